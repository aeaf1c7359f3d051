//! Exact rules: a hash table of flows.
//!
//! ```text
//! slots    [ tag | number ][ tag | number ][ empty ] ...      8 bytes each, 1.5 to 3 of them for each rule
//!                     |
//! rules    [ key | directions | actions | packets | bytes | last ]   40 bytes (IPv4), 64 (IPv6)
//! key      lower end: address, port | higher end: address, port | protocol
//! ```
//!
//! Both directions of a flow have one key: its ends are in the order of their bytes. A rule says which of the two
//! directions it is for. A lookup reads two cache lines; [`ExactTable::find`] makes the lookups of a batch in three
//! passes, so that they wait for memory together.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tapline_packet::mix::fold;
use tapline_packet::{BATCH_MAX, FiveTuple};

use crate::set::Counts;

/// Bytes of a key of IPv4, and of IPv6.
const V4: usize = 13;
const V6: usize = 37;

/// Directions of a flow: bit 0 from the lower end to the higher, bit 1 back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Directions(pub u8);

impl Directions {
    /// Both.
    pub const BOTH: Directions = Directions(3);

    /// Whether one is in both.
    #[inline]
    pub fn overlap(self, other: Directions) -> bool {
        self.0 & other.0 != 0
    }
}

/// A flow as a key: its ends in order, and the direction that it was given in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    key: Key,
    /// The direction; both if the ends are equal.
    pub directions: Directions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    V4([u8; V4]),
    V6([u8; V6]),
}

impl Flow {
    /// The flow of a packet; `None` if its addresses are of two versions.
    #[inline]
    pub fn of(tuple: &FiveTuple) -> Option<Flow> {
        let ports = (tuple.src_port, tuple.dst_port);
        let (key, directions) = match (tuple.src, tuple.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let (key, directions) = in_order::<4, V4>(src.octets(), dst.octets(), ports, tuple.protocol);
                (Key::V4(key), directions)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let (key, directions) = in_order::<16, V6>(src.octets(), dst.octets(), ports, tuple.protocol);
                (Key::V6(key), directions)
            }
            _ => return None,
        };
        Some(Flow { key, directions })
    }
}

/// The key of two ends, lower end first, and the direction from the first to the second.
#[inline]
fn in_order<const A: usize, const K: usize>(
    src: [u8; A],
    dst: [u8; A],
    ports: (u16, u16),
    protocol: u8,
) -> ([u8; K], Directions) {
    let directions = match (src, ports.0).cmp(&(dst, ports.1)) {
        std::cmp::Ordering::Less => Directions(1),
        std::cmp::Ordering::Greater => Directions(2),
        std::cmp::Ordering::Equal => Directions::BOTH,
    };
    let (low, low_port, high, high_port) =
        if directions.0 == 2 { (dst, ports.1, src, ports.0) } else { (src, ports.0, dst, ports.1) };
    let mut key = [0; K];
    key[..A].copy_from_slice(&low);
    key[A..A + 2].copy_from_slice(&low_port.to_be_bytes());
    key[A + 2..2 * A + 2].copy_from_slice(&high);
    key[2 * A + 2..2 * A + 4].copy_from_slice(&high_port.to_be_bytes());
    key[2 * A + 4] = protocol;
    (key, directions)
}

/// A rule of the table as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExactRule {
    /// The flow, in a direction that the rule is for.
    pub tuple: FiveTuple,
    /// Whether it is for the other direction too.
    pub is_both: bool,
    /// The number of its list of actions.
    pub actions: u16,
}

/// A rule with its counters.
#[derive(Debug)]
struct Entry<const K: usize> {
    key: [u8; K],
    directions: u8,
    actions: u16,
    uses: Uses,
}

/// Use of a rule.
#[derive(Debug, Default)]
struct Uses {
    packets: AtomicU64,
    bytes: AtomicU64,
    /// Second of the last packet since 1970; 0 before the first, [`ExactTable::PURGED`] once it was idle for too long.
    last_s: AtomicU32,
}

const _: () = assert!(size_of::<Entry<V4>>() == 40 && size_of::<Entry<V6>>() == 64);

/// Rules of one IP version.
#[derive(Debug, Default)]
struct Rules<const K: usize> {
    slots: Vec<u64>,
    entries: Vec<Entry<K>>,
}

fn slots_for(rules: usize) -> usize {
    rules + rules / 2 + 1
}

impl<const K: usize> Rules<K> {
    #[inline]
    fn slot(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.slots.len() as u128) >> 64) as usize
    }

    /// The slot behind another one; the first is behind the last.
    #[inline]
    fn next(&self, slot: usize) -> usize {
        if slot + 1 == self.slots.len() { 0 } else { slot + 1 }
    }

    /// The number of the rule for a key and one of these directions.
    #[inline]
    fn find(&self, hash: u64, key: &[u8; K], directions: Directions) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let mut slot = self.slot(hash);
        // A third of the slots is empty, so this ends.
        while let Some(number) = number(self.slots[slot]) {
            if tag(self.slots[slot]) == hash as u32 {
                let entry = &self.entries[number as usize];
                if entry.key == *key && Directions(entry.directions).overlap(directions) {
                    return Some(number);
                }
            }
            slot = self.next(slot);
        }
        None
    }

    /// Adds a rule; gives the number of one that is for the same packets, if there is any.
    fn insert(&mut self, hash_of: impl Fn(&[u8]) -> u64, entry: Entry<K>) -> Result<(), u32> {
        let directions = Directions(entry.directions);
        if let Some(other) = self.find(hash_of(&entry.key), &entry.key, directions) {
            return Err(other);
        }
        if self.slots.len() < slots_for(self.entries.len() + 1) {
            self.resize(&hash_of, slots_for(2 * (self.entries.len() + 1)));
        }
        self.file(hash_of(&entry.key), self.entries.len() as u32);
        self.entries.push(entry);
        Ok(())
    }

    fn file(&mut self, hash: u64, number: u32) {
        let mut slot = self.slot(hash);
        while self.slots[slot] != 0 {
            slot = self.next(slot);
        }
        self.slots[slot] = hash << 32 | u64::from(number + 1);
    }

    fn resize(&mut self, hash_of: impl Fn(&[u8]) -> u64, slots: usize) {
        self.slots = vec![0; slots];
        self.file_all(hash_of);
    }

    /// Reserves memory for this many rules.
    fn reserve(&mut self, rules: usize) {
        self.slots = vec![0; slots_for(rules)];
        self.entries.reserve_exact(rules);
    }

    /// Keeps rules by their lists of actions and their last second. No memory is returned.
    fn retain(&mut self, hash_of: impl Fn(&[u8]) -> u64, keep: &mut dyn FnMut(u16, u32) -> bool) {
        self.entries.retain(|entry| keep(entry.actions, entry.uses.last_s.load(Ordering::Relaxed)));
        self.slots.fill(0);
        self.file_all(hash_of);
    }

    fn file_all(&mut self, hash_of: impl Fn(&[u8]) -> u64) {
        for number in 0..self.entries.len() {
            self.file(hash_of(&self.entries[number].key), number as u32);
        }
    }
}

/// The tag of a slot: the lower half of the hash, whose upper half chose the slot.
#[inline]
fn tag(slot: u64) -> u32 {
    (slot >> 32) as u32
}

/// The number of the rule of a slot.
#[inline]
fn number(slot: u64) -> Option<u32> {
    (slot as u32).checked_sub(1)
}

/// All exact rules of a file.
#[derive(Debug)]
pub struct ExactTable {
    seed: u64,
    v4: Rules<V4>,
    v6: Rules<V6>,
}

/// Rules are numbered: those of IPv6 from here.
const OF_V6: u32 = 1 << 31;

impl Default for ExactTable {
    fn default() -> ExactTable {
        // Without the seed, an attacker cannot choose flows that collide.
        let seed = RandomState::new().hash_one(0_u8);
        ExactTable { seed, v4: Rules::default(), v6: Rules::default() }
    }
}

/// Up to this number of rules the table fits into the processor's caches.
const CACHED_MAX: usize = 1 << 14;

impl ExactTable {
    /// The last second of a rule that was idle for too long.
    pub const PURGED: u32 = u32::MAX;

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.v4.entries.len() + self.v6.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that the table takes.
    pub fn memory(&self) -> usize {
        self.v4.memory() + self.v6.memory()
    }

    /// The numbers of the rules: those of IPv4 in their order, then those of IPv6.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + use<> {
        let (v4, v6) = (self.v4.entries.len() as u32, self.v6.entries.len() as u32);
        (0..v4).chain((0..v6).map(|number| number | OF_V6))
    }

    /// Adds a rule.
    ///
    /// # Errors
    /// The number of a rule that is for the same packets, or for some of them. Nothing is added.
    pub fn insert(&mut self, rule: &ExactRule) -> Result<(), u32> {
        let Some(Flow { key, directions }) = Flow::of(&rule.tuple) else { return Ok(()) };
        let directions = if rule.is_both { Directions::BOTH.0 } else { directions.0 };
        let (seed, actions) = (self.seed, rule.actions);
        let uses = Uses::default();
        match key {
            Key::V4(key) => {
                let entry = Entry { key, directions, actions, uses };
                self.v4.insert(|key| hash(key, seed), entry)
            }
            Key::V6(key) => {
                let entry = Entry { key, directions, actions, uses };
                self.v6.insert(|key| hash(key, seed), entry).map_err(|other| other | OF_V6)
            }
        }
    }

    /// Reserves memory for this many rules, of either version of IP.
    pub(crate) fn reserve(&mut self, rules: usize) {
        self.v4.reserve(rules);
        self.v6.reserve(rules);
    }

    /// Keeps rules by their lists of actions and their last second; the numbers of rules change.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(u16, u32) -> bool) {
        let seed = self.seed;
        self.v4.retain(|key| hash(key, seed), &mut keep);
        self.v6.retain(|key| hash(key, seed), &mut keep);
    }

    /// Puts a rule that was purged to use again, with other actions; whether it was purged.
    pub(crate) fn renew(&mut self, number: u32, actions: u16) -> bool {
        if self.uses(number).last_s.load(Ordering::Relaxed) != ExactTable::PURGED {
            return false;
        }
        let at = (number & !OF_V6) as usize;
        if number & OF_V6 == 0 {
            (self.v4.entries[at].actions, self.v4.entries[at].uses) = (actions, Uses::default());
        } else {
            (self.v6.entries[at].actions, self.v6.entries[at].uses) = (actions, Uses::default());
        }
        true
    }

    /// The number of the rule for a packet.
    pub(crate) fn number_of(&self, tuple: &FiveTuple) -> Option<u32> {
        Flow::of(tuple).and_then(|flow| self.find(&flow))
    }

    /// Returns memory that was reserved for more rules.
    pub(crate) fn shrink(&mut self) {
        self.v4.entries.shrink_to_fit();
        self.v6.entries.shrink_to_fit();
    }

    /// The number of the rule for a packet of this flow and direction.
    #[inline]
    pub fn find(&self, flow: &Flow) -> Option<u32> {
        self.find_hashed(flow, self.hash(flow))
    }

    #[inline]
    fn hash(&self, flow: &Flow) -> u64 {
        match &flow.key {
            Key::V4(key) => hash(key, self.seed),
            Key::V6(key) => hash(key, self.seed),
        }
    }

    #[inline]
    fn find_hashed(&self, flow: &Flow, hash: u64) -> Option<u32> {
        match &flow.key {
            Key::V4(key) => self.v4.find(hash, key, flow.directions),
            Key::V6(key) => self.v6.find(hash, key, flow.directions).map(|number| number | OF_V6),
        }
    }

    /// Looks up the flows of a batch, and reports the rule number of each packet.
    pub fn find_all(&self, probes: &mut Probes, mut found: impl FnMut(usize, Option<u32>)) {
        for probe in &mut probes.0 {
            probe.hash = self.hash(&probe.flow);
        }
        if self.len() > CACHED_MAX {
            self.touch(probes);
        }
        for Probe { packet, flow, hash } in &probes.0 {
            found(usize::from(*packet), self.find_hashed(flow, *hash));
        }
    }

    /// Reads the slots where lookups begin, then the rules that they name, so that the waits for memory overlap.
    fn touch(&self, probes: &Probes) {
        let mut all = 0;
        for Probe { flow, hash, .. } in &probes.0 {
            all ^= if matches!(flow.key, Key::V4(_)) { self.v4.begin(*hash) } else { self.v6.begin(*hash) };
        }
        std::hint::black_box(all);
        for Probe { flow, hash, .. } in &probes.0 {
            all ^= if matches!(flow.key, Key::V4(_)) { self.v4.touch(*hash) } else { self.v6.touch(*hash) };
        }
        std::hint::black_box(all);
    }

    /// Counts a packet of a rule, and gives the number of packets before it. With `is_shared` other threads count too.
    #[inline]
    pub fn count(&self, number: u32, bytes: u64, is_shared: bool) -> u64 {
        let uses = self.uses(number);
        crate::set::count(&uses.packets, &uses.bytes, bytes, is_shared)
    }

    #[inline]
    fn uses(&self, number: u32) -> &Uses {
        if number & OF_V6 == 0 {
            &self.v4.entries[number as usize].uses
        } else {
            &self.v6.entries[(number & !OF_V6) as usize].uses
        }
    }

    /// Notes that a packet met a rule in a second; whether the rule holds. After more than `idle_s` seconds without a
    /// packet it ends for good; 0 is for ever. A rule that has met none is idle since `began_s`.
    #[inline]
    pub fn meet(&self, number: u32, time_s: u32, idle_s: u32, began_s: u32) -> bool {
        let last = &self.uses(number).last_s;
        let last_s = last.load(Ordering::Relaxed);
        if last_s == ExactTable::PURGED {
            return false;
        }
        if idle_s > 0 && is_over(last_s, time_s, idle_s, began_s) {
            last.store(ExactTable::PURGED, Ordering::Relaxed);
            return false;
        }
        if time_s != last_s {
            last.store(time_s, Ordering::Relaxed);
        }
        true
    }

    /// The second of the last packet of a rule; `None` before the first.
    pub fn last_s(&self, number: u32) -> Option<u32> {
        let last_s = self.uses(number).last_s.load(Ordering::Relaxed);
        Some(last_s).filter(|last_s| *last_s != 0)
    }

    /// Takes the last second of the same rule in an earlier table, unless the rule has met a packet since.
    pub(crate) fn take_last_s(&self, number: u32, last_s: Option<u32>) {
        let Some(last_s) = last_s.filter(|last_s| *last_s != ExactTable::PURGED) else { return };
        let last = &self.uses(number).last_s;
        if last.load(Ordering::Relaxed) == 0 {
            last.store(last_s, Ordering::Relaxed);
        }
    }

    /// Whether a rule was idle for more than `idle_s` seconds.
    pub(crate) fn is_purged(&self, number: u32, now_s: u32, idle_s: u32, began_s: u32) -> bool {
        let last_s = self.uses(number).last_s.load(Ordering::Relaxed);
        last_s == ExactTable::PURGED || idle_s > 0 && is_over(last_s, now_s, idle_s, began_s)
    }

    /// Packets and bytes of a rule.
    pub fn counts(&self, number: u32) -> Counts {
        let Uses { packets, bytes, .. } = self.uses(number);
        Counts { packets: packets.load(Ordering::Relaxed), bytes: bytes.load(Ordering::Relaxed) }
    }

    /// The number of a rule's list of actions.
    #[inline]
    pub fn actions(&self, number: u32) -> u16 {
        if number & OF_V6 == 0 {
            self.v4.entries[number as usize].actions
        } else {
            self.v6.entries[(number & !OF_V6) as usize].actions
        }
    }

    /// The rule of a number.
    pub fn rule(&self, number: u32) -> ExactRule {
        if number & OF_V6 == 0 {
            let entry = &self.v4.entries[number as usize];
            entry.rule(|address: [u8; 4]| IpAddr::V4(Ipv4Addr::from(address)))
        } else {
            let entry = &self.v6.entries[(number & !OF_V6) as usize];
            entry.rule(|address: [u8; 16]| IpAddr::V6(Ipv6Addr::from(address)))
        }
    }

    /// The rule with the same ends and directions in another table.
    pub(crate) fn same_in(&self, number: u32, other: &ExactTable) -> Option<u32> {
        let rule = self.rule(number);
        let flow = Flow::of(&rule.tuple)?;
        other.find(&flow).filter(|found| {
            let ExactRule { tuple, is_both, .. } = other.rule(*found);
            (tuple, is_both) == (rule.tuple, rule.is_both)
        })
    }
}

impl<const K: usize> Rules<K> {
    fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<u64>() + self.entries.capacity() * size_of::<Entry<K>>()
    }

    /// The slot where a lookup begins.
    #[inline]
    fn begin(&self, hash: u64) -> u64 {
        if self.slots.is_empty() { 0 } else { self.slots[self.slot(hash)] }
    }

    /// The first bytes of the rule that a lookup most likely finds.
    #[inline]
    fn touch(&self, hash: u64) -> u64 {
        let slot = self.begin(hash);
        let entry =
            number(slot).filter(|_| tag(slot) == hash as u32).map(|number| &self.entries[number as usize]);
        entry.map_or(0, |entry| u64::from(entry.key[0]))
    }
}

impl<const K: usize> Entry<K> {
    /// The rule as it was written, or its other direction.
    fn rule<const A: usize>(&self, address: impl Fn([u8; A]) -> IpAddr) -> ExactRule {
        let side = |at: usize| {
            let mut bytes = [0; A];
            bytes.copy_from_slice(&self.key[at..at + A]);
            (address(bytes), u16::from_be_bytes([self.key[at + A], self.key[at + A + 1]]))
        };
        let ((src, src_port), (dst, dst_port)) = (side(0), side(A + 2));
        let low_first = FiveTuple { src, dst, protocol: self.key[2 * A + 4], src_port, dst_port };
        let tuple = if self.directions == 2 { low_first.reversed() } else { low_first };
        ExactRule { tuple, is_both: self.directions == Directions::BOTH.0, actions: self.actions }
    }
}

/// Whether a rule with this last second is idle for too long; one without packets is so since `began_s`, if known.
fn is_over(last_s: u32, now_s: u32, idle_s: u32, began_s: u32) -> bool {
    let since_s = if last_s == 0 { began_s } else { last_s };
    since_s > 0 && now_s > since_s.saturating_add(idle_s)
}

/// Flows of a batch that are to be looked up.
#[derive(Debug)]
pub struct Probes(Vec<Probe>);

#[derive(Clone, Copy, Debug)]
struct Probe {
    packet: u8,
    flow: Flow,
    hash: u64,
}

impl Default for Probes {
    fn default() -> Probes {
        Probes(Vec::with_capacity(BATCH_MAX))
    }
}

impl Probes {
    /// Forgets those of the batch before.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds the flow of a packet, whose index in the batch is at most 255.
    #[inline]
    pub fn add(&mut self, packet: usize, flow: Flow) {
        self.0.push(Probe { packet: packet as u8, flow, hash: 0 });
    }
}

/// All 64 bits of a key's hash are good.
#[inline]
fn hash(key: &[u8], seed: u64) -> u64 {
    const ODD: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93];
    let word = |at: usize| key[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let last = key.len() - 8;
    let mut state = seed;
    let mut at = 0;
    while at < last {
        state = fold(state ^ word(at), ODD[0]);
        at += 8;
    }
    fold(fold(state ^ word(last), ODD[1]), ODD[0])
}

#[cfg(test)]
mod tests;
