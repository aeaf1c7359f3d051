//! Counters from the beginning of a flow: the difference between each record and the previous one.
//!
//! ```text
//! record    octetTotalCount 1000 | 2500 | 2500 | 4000          elements 85 and 86 (RFC 7012)
//! flow                      1000 | 1500 |    0 | 1500
//! ```

use std::collections::HashMap;
use std::net::IpAddr;

/// Flows of a source that are remembered at most: half of them are used, the other half was used before.
const FLOWS_MAX: usize = 32_768;
/// Memory of each, in bytes, about.
const FLOW_LEN: usize = 160;

/// A flow of a source. One that begins at another time is another flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FlowKey {
    pub(crate) addresses: [Option<IpAddr>; 2],
    pub(crate) ports: [u16; 2],
    pub(crate) protocol: u8,
    pub(crate) vlan: u16,
    pub(crate) ingress: u32,
    pub(crate) start: Option<i64>,
}

/// Totals of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Packets of both directions.
    pub(crate) packets: [u64; 2],
    pub(crate) bytes: [u64; 2],
    /// The end of the record, in nanoseconds since 1970, if it is given.
    pub(crate) end: Option<i64>,
}

/// The totals of the flows of a source.
#[derive(Debug, Default)]
pub(crate) struct FlowTotals {
    recent: HashMap<FlowKey, Totals>,
    older: HashMap<FlowKey, Totals>,
}

impl FlowTotals {
    /// Bytes of memory, about.
    pub(crate) fn memory(&self) -> usize {
        (self.recent.len() + self.older.len()) * FLOW_LEN
    }

    /// Takes the totals of a flow; those before, and how many flows were forgotten for it. Totals that have become less are
    /// those of another flow.
    pub(crate) fn replace(&mut self, key: FlowKey, totals: Totals) -> (Option<Totals>, u64) {
        let before = self.older.remove(&key);
        let mut forgotten = 0;
        if self.recent.len() >= FLOWS_MAX / 2 && !self.recent.contains_key(&key) {
            forgotten = self.older.len() as u64;
            self.older = std::mem::take(&mut self.recent);
        }
        let before = self.recent.insert(key, totals).or(before);
        let has_grown = |before: &Totals| {
            let at_least = |now: [u64; 2], before: [u64; 2]| now[0] >= before[0] && now[1] >= before[1];
            at_least(totals.packets, before.packets) && at_least(totals.bytes, before.bytes)
        };
        (before.filter(has_grown), forgotten)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(port: u16) -> FlowKey {
        FlowKey { addresses: [None; 2], ports: [port, 0], protocol: 6, vlan: 0, ingress: 0, start: Some(1) }
    }

    fn totals(bytes: u64) -> Totals {
        Totals { bytes: [bytes, 0], ..Totals::default() }
    }

    #[test]
    fn the_totals_before_are_remembered() {
        let mut flows = FlowTotals::default();
        assert_eq!(flows.replace(key(1), totals(10)), (None, 0));
        assert_eq!(flows.replace(key(1), totals(25)), (Some(totals(10)), 0));
        assert_eq!(flows.replace(key(1), totals(5)), (None, 0), "it restarted");
        assert_eq!(flows.replace(FlowKey { start: Some(2), ..key(1) }, totals(9)), (None, 0));
    }

    #[test]
    fn flows_that_are_silent_are_forgotten_and_counted() {
        let mut flows = FlowTotals::default();
        let mut forgotten = 0;
        for port in 1..=60_000 {
            forgotten += flows.replace(key(port), totals(1)).1;
            assert_eq!(flows.replace(key(0), totals(port.into())).0.is_some(), port > 1, "it is used");
        }
        assert!(flows.memory() <= FLOWS_MAX * FLOW_LEN);
        assert_eq!(forgotten + flows.memory() as u64 / FLOW_LEN as u64, 60_001);
    }
}
