//! The flows of a segment while it is recorded: what their packets' keys are, and the slots that they are in.
//!
//! ```text
//! packet --> flow seen in this slot? --> nothing more to do
//!                     no --> flow of the segment? --> one bit: the slot
//!                                   no --> keys, once
//! ```
//!
//! Memory is bounded. Where a slot brings more new flows than its share (a scan, a flood) the slot gives them back, and
//! keeps the keys of hosts only, each by itself; then those of networks, types and protocols; at last none. Each step
//! is noted with the slot, so a scan costs the slots that it is in, and no others.

use std::hash::{BuildHasher, RandomState};

use tapline_packet::headers::{Headers, InnerPacket, IpVersion};
use tapline_packet::{Interface, LinkType, Meta, Packet};
use tapline_sys::memory::{advise_large_pages, prefetch_element};

use super::slots::{Slots, words};
use crate::keys::{Class, Group, OpenKeys, PacketKeys, WAYS, key};
use crate::layout::SLOT_LEN;
use crate::names::{self, Message, NameReader};

/// Flows whose sets are behind the packets at most; then the sets are brought up to date.
const MET_MAX: usize = 1 << 12;
/// Flows that are remembered within a slot: a packet of one of them costs a look.
const SEEN_LEN: usize = 1 << 12;
/// Bytes of a segment for each flow that there is room for: a flow's keys take about forty bytes of the two hundredth
/// that an index may have.
const BYTES_PER_FLOW: u64 = 4096;
const UDP: u8 = tapline_packet::numbers::ip_protocol::UDP;
/// Keys of a flow, on average, for which there is room.
const KEYS_PER_FLOW: usize = 16;
/// Datagrams of QUIC that are opened in a slot for the names in them: a slot has no more of full length, and opening
/// one takes microseconds. A slot with more is open in [`OpenKeys::Names`].
const OPENED_MAX: u32 = 1024;

/// Optional contents of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexOptions {
    /// MAC addresses of Ethernet as keys.
    pub macs: bool,
    /// Names as keys: of DNS, and those that the hellos of TLS, DTLS and QUIC ask for.
    pub names: bool,
}

/// Gathers the contents of a segment's index.
pub(crate) struct Builder {
    pub(super) flows: Flows,
    /// Slots that are open, by [`OpenKeys`].
    pub(super) open: [Slots; WAYS],
    pub(super) options: IndexOptions,
    slots: u32,
    slot: u32,
    /// Keys that this slot keeps, and the number of flows when the slot began.
    detail: Detail,
    base: usize,
    /// Flows that were seen in the current slot: a table by their lowest bits.
    seen: Vec<u64>,
    /// Lent while keys are noted.
    keys: Option<Box<PacketKeys>>,
    names: NameReader,
    name_keys: Vec<u64>,
    /// Datagrams of QUIC that were opened in the current slot.
    opened: u32,
    /// Seed of the flow numbers: without it a sender could choose packets of one number and different keys.
    seed: u64,
}

/// Flows, each with its keys and the slots it is in.
pub(super) struct Flows {
    /// Places of flows by their fingerprints; a fingerprint of 0 is none.
    table: Vec<TableEntry>,
    count: usize,
    /// Flows for which there is room; with keys by themselves half as many entries more.
    flows_max: usize,
    /// The fingerprint of each flow.
    prints: Vec<u64>,
    /// Where the keys of each flow end.
    ends: Vec<u32>,
    keys: Vec<u64>,
    /// Words of each flow's set of slots.
    pub(super) words: usize,
    sets: Vec<u64>,
    /// The current slot, and flows met in it whose sets do not have it yet: a set is far away in memory, and many are
    /// brought up to date at once in much less time than each by itself.
    slot: u32,
    met: Vec<u32>,
}

#[derive(Clone, Copy, Default)]
struct TableEntry {
    fingerprint: u64,
    flow: u32,
    last: u32,
}

/// Keys that a slot keeps of new flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detail {
    Whole,
    /// Without pairs, flows and high ports.
    Hosts,
    /// Networks, types, protocols.
    Kinds,
    Nothing,
}

impl Detail {
    fn keeps(self, key: u64) -> bool {
        match self {
            Detail::Whole => true,
            Detail::Hosts => matches!(Group::of(key), Group::Kinds | Group::Addresses),
            Detail::Kinds => Group::of(key) == Group::Kinds,
            Detail::Nothing => false,
        }
    }

    /// The next lower level once the table is full, and the ways in which the slot is open then.
    fn less(self) -> (Detail, &'static [OpenKeys]) {
        match self {
            Detail::Whole => (Detail::Hosts, &[OpenKeys::Flows, OpenKeys::Ports]),
            Detail::Hosts => (Detail::Kinds, &[OpenKeys::Addresses]),
            Detail::Kinds | Detail::Nothing => (Detail::Nothing, &[OpenKeys::All]),
        }
    }
}

impl Builder {
    /// For a segment of `segment_len` bytes.
    pub(crate) fn new(segment_len: u64, options: IndexOptions) -> Builder {
        Builder::with_seed(segment_len, options, RandomState::new().hash_one(0))
    }

    /// Another one for segments as long as those of this one, in which flows have the same fingerprints.
    pub(crate) fn twin(&self) -> Builder {
        Builder::with_seed(u64::from(self.slots) * SLOT_LEN as u64, self.options, self.seed)
    }

    fn with_seed(segment_len: u64, options: IndexOptions, seed: u64) -> Builder {
        let slots = (segment_len / SLOT_LEN as u64) as u32;
        Builder {
            flows: Flows::new((segment_len / BYTES_PER_FLOW) as usize, words(slots)),
            open: std::array::from_fn(|_| Slots::none(slots)),
            options,
            slots,
            slot: 0,
            detail: Detail::Whole,
            base: 0,
            seen: vec![0; SEEN_LEN],
            keys: Some(Box::new(PacketKeys::new(options.macs))),
            names: NameReader::default(),
            name_keys: Vec::new(),
            opened: 0,
            seed,
        }
    }

    /// Begins another segment.
    pub(crate) fn clear(&mut self) {
        self.flows.clear();
        self.open = std::array::from_fn(|_| Slots::none(self.slots));
        self.seen.fill(0);
        (self.slot, self.detail, self.base, self.opened) = (0, Detail::Whole, 0, 0);
    }

    /// Begins another segment, whose index has these keys.
    pub(crate) fn clear_for(&mut self, options: IndexOptions) {
        self.clear();
        if options.macs != self.options.macs {
            self.keys = Some(Box::new(PacketKeys::new(options.macs)));
        }
        self.options = options;
    }

    /// Packets from now on are in this slot.
    pub(crate) fn begin_slot(&mut self, slot: u32) {
        if slot != self.slot {
            self.flows.begin_slot(slot);
            (self.slot, self.detail, self.base, self.opened) = (slot, Detail::Whole, self.flows.count, 0);
            self.seen.fill(0);
        }
    }

    /// The fingerprint of a packet's flow; 0 for packets that are examined one by one. Prefetches the cache lines of
    /// the flow: the packet is best [noted](Self::note) some packets later.
    #[inline]
    pub(crate) fn fingerprint(&self, interface: &Interface, packet: Packet<'_>) -> u64 {
        self.fingerprint_parsed(interface, packet, &Headers::parse(interface.link_type, packet))
    }

    /// As [`fingerprint`](Self::fingerprint), with headers that are parsed already.
    #[inline]
    pub(crate) fn fingerprint_parsed(
        &self,
        interface: &Interface,
        packet: Packet<'_>,
        headers: &Headers,
    ) -> u64 {
        let prints = Prints { seed: self.seed, link_type: interface.link_type, has_macs: self.options.macs };
        let flow = prints.of_flow(packet, headers);
        self.flows.prefetch(flow);
        flow
    }

    /// Whether [`note`](Self::note) needs the headers of each packet.
    #[inline]
    pub(crate) fn needs_headers(&self) -> bool {
        self.options.names
    }

    /// Notes the facts of a packet. `flow` is its [fingerprint](Self::fingerprint), `headers` are its headers if they
    /// are known already.
    #[inline]
    pub(crate) fn note(
        &mut self,
        interface: &Interface,
        packet: Packet<'_>,
        flow: u64,
        headers: Option<&Headers>,
    ) {
        if self.options.names {
            let parse = || Headers::parse(interface.link_type, packet);
            let messages = match headers {
                Some(headers) => names::messages(packet.data, headers),
                None => names::messages(packet.data, &parse()),
            };
            messages.into_iter().flatten().for_each(|said| self.note_names(said));
        }
        let place = &mut self.seen[flow as usize % SEEN_LEN];
        if flow != 0 && *place == flow {
            return;
        }
        *place = flow;
        if flow == 0 || !self.flows.enter(flow) {
            self.note_new(interface.link_type, packet, flow);
        }
    }

    /// Notes a packet of a flow that the segment does not have, or that is looked at by itself.
    #[inline(never)]
    fn note_new(&mut self, link_type: LinkType, packet: Packet<'_>, flow: u64) {
        if self.detail == Detail::Nothing {
            return;
        }
        let Some(mut keys) = self.keys.take() else { return };
        keys.take(link_type, packet, &Headers::parse(link_type, packet));
        self.note_keys(keys.as_slice(), flow);
        self.keys = Some(keys);
    }

    #[inline(never)]
    fn note_names(&mut self, message: Message<'_>) {
        if !self.detail.keeps(key(Class::Name, 0)) {
            return;
        }
        if matches!(message, Message::Quic(_)) {
            if self.opened == OPENED_MAX {
                return self.open[OpenKeys::Names as usize].insert(self.slot);
            }
            self.opened += 1;
        }
        let (mut reader, mut keys) = (std::mem::take(&mut self.names), std::mem::take(&mut self.name_keys));
        reader.each(message, &mut |name| {
            keys.clear();
            names::name_keys(name, &mut keys);
            self.note_keys(&keys, 0);
        });
        (self.names, self.name_keys) = (reader, keys);
    }

    /// Notes keys that belong together, by the number of their flow; 0 for one that is made of the keys.
    fn note_keys(&mut self, keys: &[u64], flow: u64) {
        if self.detail == Detail::Whole {
            let print = if flow == 0 { of_keys(self.seed, keys) } else { flow };
            if self.flows.enter(print) {
                return;
            }
            if self.flows.count < self.room() {
                return self.flows.add(print, keys);
            }
            self.give_up();
        }
        keys.iter().for_each(|key| self.note_key(*key));
    }

    /// Notes a key by itself, as far as the slot keeps such keys.
    fn note_key(&mut self, key: u64) {
        while self.detail.keeps(key) {
            let print = (key ^ self.seed).max(1);
            if self.flows.enter(print) {
                return;
            }
            if self.flows.count < self.room() {
                return self.flows.add(print, &[key]);
            }
            self.give_up();
        }
    }

    /// Takes the flows back that are new in this slot, and keeps less of them.
    fn give_up(&mut self) {
        let keys = self.flows.take_back(self.base);
        let (detail, ways) = self.detail.less();
        self.detail = detail;
        ways.iter().for_each(|way| self.open[*way as usize].insert(self.slot));
        keys.into_iter().for_each(|key| self.note_key(key));
    }

    /// Entries that the segment may have now. Half of the flows may come at once, as they do when a segment begins; a
    /// quarter belongs to all slots alike. The rest is for keys by themselves, of which a slot may bring only as many
    /// as leave room for the others.
    fn room(&self) -> usize {
        let (flows_max, slots) = (self.flows.flows_max, self.slots.max(1) as usize);
        let share = flows_max / 2 + (flows_max / 4) * (self.slot as usize + 1) / slots;
        let of_slot = self.base + flows_max / 4 / slots * 64;
        match self.detail {
            Detail::Whole => share,
            Detail::Hosts => (share + flows_max / 2).min(of_slot),
            Detail::Kinds | Detail::Nothing => (share + flows_max / 4 * 3).min(of_slot),
        }
    }
}

impl Flows {
    fn new(flows_max: usize, words: usize) -> Flows {
        // At most three quarters of the places are taken.
        let mut table = vec![TableEntry::default(); (flows_max * 2).next_power_of_two()];
        advise_large_pages(&mut table);
        let entries_max = flows_max / 2 * 3;
        Flows {
            table,
            count: 0,
            flows_max,
            // All of it at once: no allocation while packets come.
            prints: Vec::with_capacity(entries_max),
            ends: Vec::with_capacity(entries_max),
            keys: Vec::with_capacity(flows_max * KEYS_PER_FLOW),
            words,
            sets: Vec::with_capacity(entries_max * words),
            slot: 0,
            met: Vec::with_capacity(MET_MAX),
        }
    }

    /// Packets from now on are in this slot.
    fn begin_slot(&mut self, slot: u32) {
        self.settle();
        self.slot = slot;
    }

    /// Adds the current slot to the sets of all flows that were met in it.
    pub(super) fn settle(&mut self) {
        let (word, bit) = (self.slot as usize / 64, 1 << (self.slot % 64));
        for flow in self.met.drain(..) {
            self.sets[flow as usize * self.words + word] |= bit;
        }
    }

    #[inline]
    fn prefetch(&self, fingerprint: u64) {
        prefetch_element(&self.table, fingerprint as usize & (self.table.len() - 1));
    }

    fn clear(&mut self) {
        self.table.fill(TableEntry::default());
        self.count = 0;
        self.prints.clear();
        self.ends.clear();
        self.keys.clear();
        self.sets.clear();
        self.met.clear();
        self.slot = 0;
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn keys(&self, flow: usize) -> &[u64] {
        let from = flow.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.keys[from..self.ends[flow] as usize]
    }

    pub(super) fn keys_len(&self) -> usize {
        self.keys.len()
    }

    /// The slots of a flow, once the sets are [settled](Self::settle).
    pub(super) fn set(&self, flow: usize) -> &[u64] {
        &self.sets[flow * self.words..(flow + 1) * self.words]
    }

    /// Notes that a flow is in the current slot; `false` if there is no such flow yet.
    #[inline]
    fn enter(&mut self, fingerprint: u64) -> bool {
        let at = self.find(fingerprint);
        let place = &mut self.table[at];
        if place.fingerprint == 0 {
            return false;
        }
        if place.last != self.slot {
            place.last = self.slot;
            self.met.push(place.flow);
            if self.met.len() == MET_MAX {
                self.settle();
            }
        }
        true
    }

    /// Index of the fingerprint in the table, or of the free entry for it.
    #[inline]
    fn find(&self, fingerprint: u64) -> usize {
        let mask = self.table.len() - 1;
        let mut at = fingerprint as usize & mask;
        while self.table[at].fingerprint != 0 && self.table[at].fingerprint != fingerprint {
            at = (at + 1) & mask;
        }
        at
    }

    /// Adds a flow that is not there. The table has more places than there may be entries.
    fn add(&mut self, fingerprint: u64, keys: &[u64]) {
        let (at, slot) = (self.find(fingerprint), self.slot);
        self.table[at] = TableEntry { fingerprint, flow: self.count as u32, last: slot };
        self.count += 1;
        let from = self.keys.len();
        for key in keys {
            if !self.keys[from..].contains(key) {
                self.keys.push(*key);
            }
        }
        self.prints.push(fingerprint);
        self.ends.push(self.keys.len() as u32);
        let set = self.sets.len();
        self.sets.resize(set + self.words, 0);
        self.sets[set + slot as usize / 64] |= 1 << (slot % 64);
    }

    /// Removes all flows but the first `count`, and gives their keys.
    fn take_back(&mut self, count: usize) -> Vec<u64> {
        self.settle();
        // The last one first: no other that is left was put behind it in the table.
        for flow in (count..self.count).rev() {
            let at = self.find(self.prints[flow]);
            self.table[at] = TableEntry::default();
        }
        let keys_len = count.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        self.count = count;
        self.prints.truncate(count);
        self.ends.truncate(count);
        self.sets.truncate(count * self.words);
        self.keys.split_off(keys_len)
    }
}

/// A number of a set of keys, for packets that are looked at by themselves.
fn of_keys(seed: u64, keys: &[u64]) -> u64 {
    keys.iter()
        .fold(seed, |number, key| (number ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
        .max(1)
}

/// Input of flow numbers that is the same for all packets of an interface.
struct Prints {
    seed: u64,
    link_type: LinkType,
    has_macs: bool,
}

impl Prints {
    /// A number for packets of one flow that have the same keys; 0 for packets that are to be looked at each.
    #[inline]
    fn of_flow(&self, packet: Packet<'_>, headers: &Headers) -> u64 {
        let data = packet.data;
        let (Some(l3), Some(l4)) = (headers.l3(), headers.l4()) else { return 0 };
        // The next headers of extensions are facts too, and the hash of a flow does not have them.
        let has_extensions = headers.ip() == Some(IpVersion::V6) && l4 - l3 != 40;
        if has_extensions || headers.fragment().is_some() || headers.ports(data).is_none() {
            return 0;
        }
        let inner = if headers.protocol() == Some(UDP) { headers.inner(data) } else { None };
        let carried = match inner {
            _ if headers.mpls().is_some() => return 0,
            // A tunnel has flows of its own.
            Some(inner) => match self.of_inner(&inner, packet) {
                0 => return 0,
                carried => carried,
            },
            None => 0,
        };
        (headers.flow_hash(data, self.seed) ^ self.of_link(packet, l3) ^ carried).max(1)
    }

    /// As [`of_flow`](Self::of_flow), for the packet in a tunnel.
    fn of_inner(&self, inner: &InnerPacket, packet: Packet<'_>) -> u64 {
        let (data, meta) = (inner.data(packet.data), Meta::default());
        let headers = inner.headers(packet.data);
        let (Some(l3), Some(l4)) = (headers.l3(), headers.l4()) else { return 0 };
        let has_extensions = headers.ip() == Some(IpVersion::V6) && l4 - l3 != 40;
        if has_extensions || headers.fragment().is_some() || headers.ports(data).is_none() {
            return 0;
        }
        let link = Prints { link_type: inner.link_type, ..*self }.of_link(Packet { data, meta: &meta }, l3);
        (headers.flow_hash(data, self.seed) ^ link).rotate_left(32).max(1)
    }

    /// Hash of all bytes before the network header (types, tags); of addresses only if they are keys.
    #[inline]
    fn of_link(&self, packet: Packet<'_>, l3: usize) -> u64 {
        let from = if self.link_type == LinkType::ETHERNET && !self.has_macs { 12.min(l3) } else { 0 };
        let tag = packet.meta.vlan.map_or(0, |tag| u64::from(tag.tpid) << 16 | u64::from(tag.tci));
        let mut link = self.seed ^ u64::from(self.link_type.0) << 32 ^ tag;
        for pair in packet.data[from..l3].chunks(2) {
            link = (link.rotate_left(16) ^ u64::from(pair[0]) << 8 ^ u64::from(*pair.last().unwrap_or(&0)))
                .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        link
    }
}
