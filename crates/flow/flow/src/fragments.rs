//! Ports for the later fragments of a packet, remembered from its first fragment.

use std::collections::{HashMap, VecDeque};

use crate::FlowContext;

/// First fragments in memory; the oldest makes room for the next.
const FIRSTS_MAX: usize = 8192;
/// Time for which a first fragment is kept: the reassembly timeout of hosts (60 s in RFC 8200, 4.5; 30 s in most
/// systems).
const FIRST_NS: i64 = 30_000_000_000;

/// Fields that the fragments of one packet have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Datagram {
    pub(crate) source: u128,
    pub(crate) destination: u128,
    pub(crate) id: u32,
    /// The protocol field of every fragment's header.
    pub(crate) protocol: u8,
    pub(crate) is_v6: bool,
    /// The rest of the flow's key: the same addresses may be other hosts on another VLAN. The type of service is left
    /// out, as routers change two bits of it on the way (RFC 3168, 5.3).
    pub(crate) context: FlowContext,
}

/// Fields that only the first fragment has: the protocol behind all extension headers, and the ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transport {
    pub(crate) protocol: u8,
    pub(crate) ports: (u16, u16),
}

/// First fragments by their packet.
pub(crate) struct Fragments {
    firsts: HashMap<Datagram, (Transport, i64)>,
    /// In the order of arrival, with the times that identify their entries.
    order: VecDeque<(Datagram, i64)>,
}

impl Fragments {
    /// An empty table with room for all entries.
    pub(crate) fn new() -> Fragments {
        // Twice the room: a map that is more than half full sometimes allocates instead of removing deleted entries in
        // place.
        Fragments {
            firsts: HashMap::with_capacity(2 * FIRSTS_MAX),
            order: VecDeque::with_capacity(FIRSTS_MAX),
        }
    }

    /// Remembers a first fragment.
    pub(crate) fn note(&mut self, datagram: Datagram, transport: Transport, now: i64) {
        if self.order.len() >= FIRSTS_MAX {
            self.forget_oldest();
        }
        self.firsts.insert(datagram, (transport, now));
        self.order.push_back((datagram, now));
    }

    /// The transport fields of this packet's first fragment, if that came within [`FIRST_NS`].
    pub(crate) fn of(&self, datagram: &Datagram, now: i64) -> Option<Transport> {
        let (transport, then) = self.firsts.get(datagram)?;
        (now.saturating_sub(*then) <= FIRST_NS).then_some(*transport)
    }

    fn forget_oldest(&mut self) {
        let Some((datagram, then)) = self.order.pop_front() else { return };
        // A newer one may have taken its name.
        if self.firsts.get(&datagram).is_some_and(|(_, noted)| *noted == then) {
            self.firsts.remove(&datagram);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(id: u32) -> Datagram {
        Datagram { source: 1, destination: 2, id, protocol: 17, is_v6: false, context: FlowContext::NONE }
    }

    #[test]
    fn firsts_are_known_for_a_while() {
        let mut fragments = Fragments::new();
        let transport = Transport { protocol: 17, ports: (1, 2) };
        fragments.note(datagram(1), transport, 0);
        assert_eq!(fragments.of(&datagram(1), FIRST_NS), Some(transport));
        assert_eq!(fragments.of(&datagram(1), FIRST_NS + 1), None);
        assert_eq!(fragments.of(&datagram(2), 0), None);
        let elsewhere = Datagram { context: FlowContext { vlan: 7, ..FlowContext::NONE }, ..datagram(1) };
        assert_eq!(fragments.of(&elsewhere, 0), None);
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut fragments = Fragments::new();
        let transport = Transport { protocol: 17, ports: (1, 2) };
        let room = fragments.firsts.capacity();
        for id in 0..12 * FIRSTS_MAX as u32 {
            fragments.note(datagram(id), transport, i64::from(id));
            fragments.note(datagram(7), transport, i64::from(id));
        }
        assert!(fragments.firsts.len() <= FIRSTS_MAX && fragments.order.len() <= FIRSTS_MAX);
        // Entries that were deleted lower the capacity until the map is rehashed.
        assert!(fragments.firsts.capacity() <= room && fragments.order.capacity() == FIRSTS_MAX);
        assert!(fragments.of(&datagram(12 * FIRSTS_MAX as u32 - 1), 0).is_some());
        assert!(fragments.of(&datagram(7), 0).is_some());
        assert!(fragments.of(&datagram(0), 0).is_none());
    }
}
