//! The keys of a segment while it is recorded.
//!
//! ```text
//! packet --> flow seen in this slot? --> nothing more to do
//!                     no --> keys --> table: key, last slot, list of slots
//! ```
//!
//! Memory is bounded and made once: a table of keys and a pool of list entries. When one of them is full the index stays complete up
//! to the slot before, and says so.

use std::hash::{BuildHasher, RandomState};

use tapline_packet::headers::{Headers, IpVersion};
use tapline_packet::{Interface, LinkType, Packet};

use super::ChunkRow;
use crate::keys::PacketKeys;

/// Flows that are remembered within a slot: a packet of one of them costs a look.
const SEEN_LEN: usize = 1 << 12;
/// Slots of a key, on average, for which there is room.
const SLOTS_OF_KEY: usize = 4;
/// No entry of the pool.
const NONE: u32 = u32::MAX;

/// Gathers what the index of a segment will say.
pub(crate) struct Builder {
    pub(crate) chunks: Vec<ChunkRow>,
    table: Vec<Entry>,
    used: usize,
    keys_max: usize,
    /// Slots of keys: the slot, and the next entry of the same key.
    pool: Vec<(u16, u32)>,
    pool_max: usize,
    /// What was seen in the current slot, by flow.
    seen: Vec<u64>,
    slot: u32,
    /// Slots whose keys are all here.
    complete: Option<u32>,
    keys: PacketKeys,
    /// Of the numbers of flows: without it a sender could choose packets of one number and different keys.
    seed: u64,
}

/// A key and its slots, in descending order of their entries. A key of 0 is no key.
#[derive(Clone, Copy)]
struct Entry {
    key: u64,
    head: u32,
    slots: u32,
    last: u32,
}

impl Builder {
    /// An index of at most about `len_max` bytes.
    pub(crate) fn new(len_max: usize) -> Builder {
        // A key takes 12 bytes in the file, an entry of its list 2; half of the budget each way round, at four slots a key.
        let keys_max = (len_max / 20).clamp(1 << 10, 1 << 22);
        let table_len = (keys_max * 3 / 2).next_power_of_two();
        Builder {
            chunks: Vec::new(),
            table: vec![Entry { key: 0, head: NONE, slots: 0, last: NONE }; table_len],
            used: 0,
            keys_max,
            // All of it at once: no allocation while packets come.
            pool: Vec::with_capacity(keys_max * SLOTS_OF_KEY),
            pool_max: keys_max * SLOTS_OF_KEY,
            seen: vec![0; SEEN_LEN],
            slot: 0,
            complete: None,
            keys: PacketKeys::new(),
            seed: RandomState::new().hash_one(0),
        }
    }

    /// Begins another segment.
    pub(crate) fn clear(&mut self) {
        self.chunks.clear();
        self.table.fill(Entry { key: 0, head: NONE, slots: 0, last: NONE });
        self.used = 0;
        self.pool.clear();
        self.seen.fill(0);
        self.slot = 0;
        self.complete = None;
    }

    /// Packets from now on are in this slot.
    pub(crate) fn begin_slot(&mut self, slot: u32) {
        if slot != self.slot {
            self.slot = slot;
            self.seen.fill(0);
        }
    }

    /// Notes the facts of a packet.
    #[inline]
    pub(crate) fn note(&mut self, interface: &Interface, packet: Packet<'_>) {
        if self.complete.is_some() {
            return;
        }
        let flow = fingerprint(self.seed, interface.link_type, packet);
        let place = &mut self.seen[flow as usize % SEEN_LEN];
        if flow != 0 && *place == flow {
            return;
        }
        *place = flow;
        self.keys.take(interface.link_type, packet);
        for at in 0..self.keys.as_slice().len() {
            let key = self.keys.as_slice()[at];
            if self.insert(key).is_none() {
                self.complete = Some(self.slot);
                return;
            }
        }
    }

    /// `None` if there is no room.
    #[inline]
    fn insert(&mut self, key: u64) -> Option<()> {
        let key = key.max(1);
        let mask = self.table.len() - 1;
        let mut at = key as usize & mask;
        loop {
            let entry = &mut self.table[at];
            if entry.key == key {
                if entry.last == self.slot {
                    return Some(());
                }
                break;
            }
            if entry.key == 0 {
                if self.used == self.keys_max {
                    return None;
                }
                self.used += 1;
                *entry = Entry { key, head: NONE, slots: 0, last: NONE };
                break;
            }
            at = (at + 1) & mask;
        }
        if self.pool.len() == self.pool_max {
            return None;
        }
        let entry = &mut self.table[at];
        self.pool.push((self.slot as u16, entry.head));
        entry.head = self.pool.len() as u32 - 1;
        entry.last = self.slot;
        entry.slots += 1;
        Some(())
    }

    /// Slots, from the first on, whose keys are all here; all of `slots` unless room ran out.
    pub(crate) fn complete(&self, slots: u32) -> u32 {
        self.complete.unwrap_or(slots).min(slots)
    }

    /// Each key with its slots, by key.
    pub(crate) fn sorted(&self) -> Vec<(u64, Vec<u16>)> {
        let mut all: Vec<&Entry> = self.table.iter().filter(|entry| entry.key != 0).collect();
        all.sort_unstable_by_key(|entry| entry.key);
        all.into_iter().map(|entry| (entry.key, self.slots_of(entry))).collect()
    }

    fn slots_of(&self, entry: &Entry) -> Vec<u16> {
        let mut slots = Vec::with_capacity(entry.slots as usize);
        let mut at = entry.head;
        while let Some(&(slot, next)) = self.pool.get(at as usize) {
            slots.push(slot);
            at = next;
        }
        slots.reverse();
        slots
    }
}

/// A number for packets of one flow that have the same keys; 0 for packets that are to be looked at each.
#[inline]
fn fingerprint(seed: u64, link_type: LinkType, packet: Packet<'_>) -> u64 {
    let data = packet.data;
    let headers = Headers::parse(link_type, packet);
    let (Some(l3), Some(l4)) = (headers.l3(), headers.l4()) else { return 0 };
    // The next headers of extensions are facts too, and the hash of a flow does not have them.
    let has_extensions = headers.ip() == Some(IpVersion::V6) && l4 - l3 != 40;
    if has_extensions || headers.fragment().is_some() || headers.ports(data).is_none() {
        return 0;
    }
    // Types, tags and whatever else stands before the network header.
    let from = if link_type == LinkType::ETHERNET { 12.min(l3) } else { 0 };
    let tag = packet.meta.vlan.map_or(0, |tag| u64::from(tag.tpid) << 16 | u64::from(tag.tci));
    let mut link = seed ^ u64::from(link_type.0) << 32 ^ tag;
    for pair in data[from..l3].chunks(2) {
        link = (link.rotate_left(16) ^ u64::from(pair[0]) << 8 ^ u64::from(*pair.last().unwrap_or(&0)))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    (headers.flow_hash(data, seed) ^ link).max(1)
}
