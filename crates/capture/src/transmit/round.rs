//! What would go round for ever.
//!
//! ```text
//! captured on a --sent on b--> arrives at: b's other end, if b is a veth whose other end is in this namespace; lo, if b is lo
//!        ^                         |
//!        '--------- ... -----------'      captured there too, and sent on: round
//! ```
//!
//! A packet that this host sends is never sent again on account of its capture on the way out; but at the other end of a veth it is a packet
//! received, like any other. So a graph that leads back to where it began is refused, whatever filters stand in between.

use tapline_sys::Link;

use super::permit::is_loopback;
use super::{Network, TransmitError};

impl Network {
    /// Whether packets would go round, where each of `ways` says that what is captured on the first interface is sent on the second.
    ///
    /// # Errors
    /// [`TransmitError::Round`], with the way round.
    pub fn check_rounds(&self, ways: &[(String, String)]) -> Result<(), TransmitError> {
        for (start, _) in ways {
            let mut visited = Vec::new();
            if self.leads_to(ways, start, start, &mut visited) {
                return Err(TransmitError::Round { way: visited.join("; ") });
            }
        }
        Ok(())
    }

    /// Whether what is captured at `at` is captured at `goal` in the end. `way` then says how.
    fn leads_to(&self, ways: &[(String, String)], at: &str, goal: &str, way: &mut Vec<String>) -> bool {
        // Each interface once: a longer way visits one twice.
        if way.len() > ways.len() {
            return false;
        }
        for (from, to) in ways.iter().filter(|(from, _)| from == at) {
            let Some(end) = self.arrives_at(to) else { continue };
            way.push(format!("what is captured on {from} is sent on {to}, and arrives at {end}"));
            if end == goal || self.leads_to(ways, end, goal, way) {
                return true;
            }
            way.pop();
        }
        false
    }

    /// Where in this namespace a packet is received that was sent on an interface.
    fn arrives_at(&self, name: &str) -> Option<&str> {
        let link = self.link(name).ok()?;
        if is_loopback(link) {
            return Some(&link.name);
        }
        let peer = link.peer.filter(|_| link.kind == "veth")?;
        let is_it = |other: &&Link| other.index == peer && other.peer == Some(link.index);
        self.links().iter().find(is_it).map(|other| other.name.as_str())
    }
}
