//! Keys with the most traffic, in bounded memory.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

/// The most keys of a table. A key has about 80 bytes.
pub(super) const KEYS_MAX: usize = 65_536;
/// Keys that are found without the hash table.
const RECENT: usize = 256;

/// Packets, and their bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl Amount {
    pub(super) fn add(&mut self, wire_len: u32) {
        self.packets += 1;
        self.bytes += u64::from(wire_len);
    }
}

/// A key of a [`Ranking`].
pub(super) trait RankingKey: Copy + Eq + Ord + Hash {
    /// A number that often differs between keys, found in no time.
    fn mixed(&self) -> u32;
}

impl RankingKey for IpAddr {
    fn mixed(&self) -> u32 {
        match self {
            IpAddr::V4(address) => address.to_bits(),
            IpAddr::V6(address) => {
                let bits = address.to_bits();
                (bits >> 64) as u32 ^ bits as u32
            }
        }
    }
}

/// Protocol and port.
impl RankingKey for (u8, u16) {
    fn mixed(&self) -> u32 {
        u32::from(self.0) << 16 | u32::from(self.1)
    }
}

/// Counts of keys. A key is counted from its first packet on or not at all: counts are exact, and once the table is
/// full, packets of further keys are counted together.
pub(super) struct Ranking<K> {
    places: HashMap<K, u32>,
    rows: Vec<(K, Amount)>,
    recent: Vec<Option<(K, u32)>>,
    /// Packets of keys that found the table full.
    pub(super) others: Amount,
}

impl<K: RankingKey> Ranking<K> {
    pub(super) fn new() -> Ranking<K> {
        Ranking {
            places: HashMap::new(),
            rows: Vec::new(),
            recent: vec![None; RECENT],
            others: Amount::default(),
        }
    }

    /// Counts a packet of a key.
    pub(super) fn add(&mut self, key: K, wire_len: u32) {
        let slot = (key.mixed().wrapping_mul(0x9e37_79b1) >> 24) as usize % RECENT;
        if let Some((recent, place)) = self.recent[slot]
            && recent == key
        {
            self.rows[place as usize].1.add(wire_len);
            return;
        }
        let next = self.rows.len() as u32;
        let place = match self.places.get(&key) {
            Some(place) => *place,
            None if self.rows.len() == KEYS_MAX => {
                self.others.add(wire_len);
                return;
            }
            None => {
                self.places.insert(key, next);
                self.rows.push((key, Amount::default()));
                next
            }
        };
        self.recent[slot] = Some((key, place));
        self.rows[place as usize].1.add(wire_len);
    }

    /// The number of keys in the table.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The keys with the most bytes.
    pub(super) fn top(&self, count: usize) -> Vec<(K, Amount)> {
        let mut rows = self.rows.clone();
        rows.sort_unstable_by_key(|(key, amount)| (Reverse(amount.bytes), Reverse(amount.packets), *key));
        rows.truncate(count);
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_counts_the_others_together() {
        let mut ranking = Ranking::new();
        for round in 0..2u32 {
            for address in 0..KEYS_MAX as u32 + 5 {
                ranking.add(IpAddr::from(address.to_be_bytes()), 100 + round);
            }
        }
        ranking.add(IpAddr::from([0, 0, 0, 9]), 1);
        assert_eq!((ranking.len(), ranking.others), (KEYS_MAX, Amount { packets: 10, bytes: 1005 }));
        assert_eq!(ranking.top(1), [(IpAddr::from([0, 0, 0, 9]), Amount { packets: 3, bytes: 202 })]);
    }
}
