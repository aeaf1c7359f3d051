//! A look for VLAN tags among the first packets that a filter sees: most filters do not look behind tags, and a hint
//! helps where one accepts nothing of tagged traffic.

use tapline_graph::Packets;
use tapline_packet::numbers::ethertype::is_vlan;
use tapline_packet::{LinkType, Selection};

/// Packets that are looked at.
const LOOKS_MAX: u64 = 4096;

/// The packets with tags among the first ones.
#[derive(Clone, Debug, Default)]
pub struct TagLook {
    looked: u64,
    tagged: u64,
}

impl TagLook {
    /// The hint.
    pub const HINT: &str = "no packet matched, and packets have VLAN tags; --any-vlan looks behind them";
    /// A look that is over: it counts nothing.
    pub const OVER: TagLook = TagLook { looked: LOOKS_MAX, tagged: 0 };

    /// Whether enough packets were looked at.
    pub fn is_over(&self) -> bool {
        self.looked >= LOOKS_MAX
    }

    /// Looks at selected packets of a batch.
    pub fn look(&mut self, packets: &Packets<'_>, selection: &Selection) {
        if self.is_over() {
            return;
        }
        self.looked += selection.len() as u64;
        let is_tagged = |index: &usize| {
            let packet = packets.batch.packet(*index);
            let interface = packets.interfaces.get(packet.meta.interface.0 as usize);
            let is_ethernet = interface.is_some_and(|interface| interface.link_type == LinkType::ETHERNET);
            let in_bytes = || {
                packet.data.get(12..14).is_some_and(|kind| is_vlan(u16::from_be_bytes([kind[0], kind[1]])))
            };
            packet.meta.vlan.is_some() || is_ethernet && in_bytes()
        };
        self.tagged += selection.iter().filter(is_tagged).count() as u64;
    }

    /// Whether a filter's text says what to do with tags: then there is no hint.
    pub fn is_known_to(filter: &str) -> bool {
        filter.contains("vlan")
    }

    /// Packets with tags.
    pub fn tagged(&self) -> u64 {
        self.tagged
    }
}
