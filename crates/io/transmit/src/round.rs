//! Forwarding loops.
//!
//! ```text
//! captured on a --sent on b--> arrives at: b's other end, if b is a veth whose other end is in this namespace; lo, if b is lo
//!        ^                         |
//!        '--------- ... -----------'      captured there too, and sent on: round
//! ```
//!
//! A packet that this host sends is never sent again on account of its capture on the way out; but at the other end
//! of a veth it is a packet received, like any other. So a graph that leads back to where it began is refused,
//! whatever filters are in between.

use std::collections::HashSet;

use tapline_sys::Link;

use super::permit::is_loopback;
use super::{SendPolicy, TransmitError};

/// A search for a way back.
struct Search<'w> {
    ways: &'w [(String, String)],
    goal: &'w str,
    seen: HashSet<&'w str>,
    way: Vec<String>,
}

impl SendPolicy {
    /// Whether packets would go round, where each of `ways` says that what is captured on the first interface is sent
    /// on the second.
    ///
    /// # Errors
    /// [`TransmitError::Round`], with the way round.
    pub fn check_for_loops(&self, ways: &[(String, String)]) -> Result<(), TransmitError> {
        for (start, _) in ways {
            let mut search = Search { ways, goal: start, seen: HashSet::new(), way: Vec::new() };
            if self.leads_back(&mut search, start) {
                return Err(TransmitError::Round { way: search.way.join("; ") });
            }
        }
        Ok(())
    }

    /// Whether a packet captured at `at` comes to the goal in the end; `search.way` then holds the steps.
    fn leads_back<'w>(&self, search: &mut Search<'w>, at: &'w str) -> bool {
        // An interface that was searched before leads nowhere new.
        if !search.seen.insert(at) {
            return false;
        }
        for (from, to) in search.ways.iter().filter(|(from, _)| from == at) {
            let Some(end) = self.arrives_at(to) else { continue };
            search.way.push(format!("what is captured on {from} is sent on {to}, and arrives at {end}"));
            let next = search.ways.iter().find(|(from, _)| from == end);
            if end == search.goal || next.is_some_and(|(next, _)| self.leads_back(search, next)) {
                return true;
            }
            search.way.pop();
        }
        false
    }

    /// The interface of this namespace that receives a packet sent on `name`.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// lo, the pair a-b here, the pair c-d here, and e, whose other end is in another namespace.
    fn network() -> SendPolicy {
        let link = |index, name: &str, kind: &str, peer| Link {
            index,
            name: name.to_owned(),
            kind: kind.to_owned(),
            peer,
            ..Link::default()
        };
        let lo = Link { hardware_type: 772, flags: 0x8, ..link(1, "lo", "", None) };
        let veth = |index, name, peer| link(index, name, "veth", peer);
        let pairs =
            [veth(2, "a", Some(3)), veth(3, "b", Some(2)), veth(4, "c", Some(5)), veth(5, "d", Some(4))];
        SendPolicy::of([lo].into_iter().chain(pairs).chain([veth(6, "e", None)]).collect(), Vec::new())
    }

    fn goes_round(ways: &[(&str, &str)]) -> bool {
        let ways: Vec<(String, String)> =
            ways.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect();
        network().check_for_loops(&ways).is_err()
    }

    #[test]
    fn loops_back_to_the_source_are_found() {
        assert!(goes_round(&[("lo", "lo")]));
        assert!(goes_round(&[("b", "a")]));
        assert!(goes_round(&[("a", "a"), ("b", "b")]));
        assert!(goes_round(&[("e", "c"), ("d", "a"), ("b", "c")]));
        let text = network().check_for_loops(&[("b".to_owned(), "a".to_owned())]).unwrap_err().to_string();
        assert!(text.contains("captured on b is sent on a, and arrives at b"), "{text}");
    }

    #[test]
    fn paths_elsewhere_are_allowed() {
        assert!(!goes_round(&[]));
        assert!(!goes_round(&[("a", "a")]));
        assert!(!goes_round(&[("a", "lo")]));
        assert!(!goes_round(&[("a", "c"), ("c", "a")]));
        assert!(!goes_round(&[("e", "e"), ("a", "e"), ("e", "a")]));
        assert!(!goes_round(&[("b", "none")]));
    }
}
