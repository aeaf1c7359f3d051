//! The table of flows: one entry for both directions.
//!
//! ```text
//! Index: hash -> slot        Hot, 64 bytes a slot                           Cold, 104 bytes a slot
//!                             key | created | packets, bytes, last, flags, TTL   addresses of wide keys, context, first times, high words of counters
//!                             Wheel, CreationOrder: 8 bytes a slot each, untouched by packets
//! ```
//!
//! A packet of a known flow reads a cache line of the index, and reads and writes one of the hot part. The cold part is
//! for the first packet of each direction, for IPv6 and other wide keys, and for flows with late packets.
//!
//! # Time
//! The clock is the greatest time stamp so far. The creation and the last packet of a flow are timed by the clock, so a
//! late packet does not make a flow older. While packets are in order the clock is the packet's own time: the hot part
//! holds one time of creation and, for each direction, the time from there to the last packet. The first late packet of
//! a flow moves all its times to the cold part.
//!
//! # Details
//! Details are in a table of their own, at the same slots ([`DetailTable`]); without details a packet costs one test of
//! a pointer.
//!
//! # Expiry
//! The timer wheel finds flows whose idle timeout has passed, the list in order of creation those whose active timeout
//! has. Whether a flow is found there or by its next packet makes no difference to any record.

mod entry;
mod journaling;
mod observing;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tapline_sys::memory;

use crate::creation_order::CreationOrder;
use crate::details::{DetailFields, DetailTable};
use crate::flow::NO_TIME;
use crate::index::{BucketTag, Index};
use crate::journal::Journal;
use crate::key::{self, KeyFields, Seeds, Words};
use crate::packet::{ExtraFields, PacketSummary, Window};
use crate::statistics::Statistics;
use crate::wheel::Wheel;
use crate::{EndReason, Error, Flow};
use entry::{AFTER_MAX, Cold, FIRST_SIDE, FREE, Hot, TIMES_COLD, halves, is_closed, whole};

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// Flows from which on large pages are requested. The TLB holds the pages of smaller tables, and a large page costs 2
/// MiB of zeros.
const SMALL_PAGES: usize = 1 << 15;

/// Bytes of a flow, with its share of the index, the timer wheel and the list of creation.
const FLOW_LEN: usize = 195;

pub(crate) const NO_SLOT: u32 = u32::MAX;

/// The timeouts, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub(crate) active: i64,
    pub(crate) idle: i64,
    /// The idle timeout after the end of a TCP connection.
    pub(crate) closed: i64,
}

pub(crate) struct Table {
    index: Index,
    hot: Vec<Hot>,
    cold: Vec<Cold>,
    wheel: Wheel,
    creation_order: CreationOrder,
    details: Option<Box<DetailTable>>,
    /// With [`keep_journal`](Table::keep_journal).
    journal: Option<Box<Journal>>,
    /// The present epoch of the journal, as the hot part of described flows has it. A new flow has 0, which is the epoch
    /// of a table without a journal.
    epoch: u32,
    /// With [`track_begun`](Table::track_begun): packets of the batch that began a flow.
    begun: Option<Vec<u8>>,
    /// Unused slots, which the wheel links as a list.
    free: u32,
    flows_max: usize,
    seeds: Seeds,
    fields: KeyFields,
    timeouts: Timeouts,
    /// Flows that have ended.
    ended: u64,
    pub(crate) clock: i64,
}

impl Table {
    /// Room for `flows_max` flows; memory is taken from the system as slots come into use.
    ///
    /// # Errors
    /// [`Error::Memory`] if the system cannot have so much.
    pub(crate) fn new(
        flows_max: usize,
        seed: u64,
        fields: KeyFields,
        timeouts: Timeouts,
        (details, payload): (DetailFields, u16),
    ) -> Result<Table, Error> {
        let bytes = flows_max.saturating_mul(Table::flow_len(details, payload));
        let no_memory = |_| Error::Memory { flows_max, bytes };
        let (mut hot, mut cold) = (Vec::new(), Vec::new());
        hot.try_reserve_exact(flows_max).map_err(no_memory)?;
        cold.try_reserve_exact(flows_max).map_err(no_memory)?;
        let wheel = Wheel::new(flows_max, timeouts.idle).map_err(no_memory)?;
        let creation_order = CreationOrder::new(flows_max).map_err(no_memory)?;
        let index = Index::new(flows_max).map_err(no_memory)?;
        let details = match details.any() {
            true => Some(Box::new(DetailTable::new(details, payload, flows_max).map_err(no_memory)?)),
            false => None,
        };
        let clock = i64::MIN;
        Ok(Table {
            index,
            hot,
            cold,
            wheel,
            creation_order,
            details,
            journal: None,
            epoch: 0,
            begun: None,
            free: 0,
            flows_max,
            seeds: key::seeds(seed),
            fields,
            timeouts,
            ended: 0,
            clock,
        })
    }

    /// Bytes of a flow, with its part of the shared memory.
    pub(crate) fn flow_len(details: DetailFields, payload: u16) -> usize {
        FLOW_LEN + DetailTable::flow_len(details, payload)
    }

    /// Flows that are there.
    pub(crate) fn len(&self) -> usize {
        self.hot.len() - self.free as usize
    }

    pub(crate) fn chain_max(&self) -> u32 {
        self.index.chain_max
    }

    /// Before a batch, of which each packet may begin a flow: has the index grow if it must. That takes some 25 ns a
    /// flow, and as many as there are once each time that they are twice as many.
    pub(crate) fn make_room(&mut self, packets: usize) {
        let slots = (self.len() + packets).min(self.flows_max);
        if self.index.has_room(slots) {
            return;
        }
        self.index.grow(slots);
        for (slot, hot) in self.hot.iter().enumerate().filter(|(_, hot)| hot.words != FREE) {
            let bucket_tag = self.index.bucket_tag(key::hash(hot.words, self.seeds));
            self.index.insert(bucket_tag, slot as u32);
        }
    }

    /// Computes the home bucket of a packet's key, and prefetches it.
    #[inline(always)]
    pub(crate) fn prefetch_bucket(&self, summary: &mut PacketSummary) {
        summary.bucket_tag = self.index.bucket_tag(key::hash(summary.words, self.seeds));
        self.index.prefetch(summary.bucket_tag);
    }

    /// Finds the most likely slot of a packet's flow, and prefetches its hot part.
    #[inline(always)]
    pub(crate) fn prefetch_likely_slot(&self, summary: &mut PacketSummary) {
        summary.slot = NO_SLOT;
        if let Some(slot) = self.index.hint(summary.bucket_tag) {
            memory::prefetch_element(&self.hot, slot as usize);
            summary.slot = slot;
        }
    }

    /// Adds a packet to its flow in the common case: the likely slot is right, the packet is in order, no timeout has
    /// passed, and the flow is described in the journal. Returns whether it was; otherwise nothing has changed but the
    /// clock, and [`add_any`](Self::add_any) adds the packet.
    #[inline(always)]
    pub(crate) fn add_plain(&mut self, summary: &PacketSummary) -> bool {
        let is_late = summary.time < self.clock;
        if !is_late {
            self.clock = summary.time;
        }
        let clock = self.clock;
        let Timeouts { active, idle, .. } = self.timeouts;
        let epoch = self.epoch;
        if let Some(hot) = self.hot.get_mut(summary.slot as usize)
            && hot.words == summary.words
            && !key::is_wide(summary.words)
            && !is_late
            && hot.state & !FIRST_SIDE == epoch
        {
            let after = clock.wrapping_sub(hot.created_ns) as u64;
            let latest = hot.after(0).max(hot.after(1));
            let side = usize::from(summary.side & 1);
            let (bytes, is_over) = hot.bytes[side].overflowing_add(summary.bytes);
            let is_plain = after <= AFTER_MAX
                && (after as i64) < active
                && (after - latest.min(after)) as i64 <= idle
                && hot.packets[side].wrapping_sub(1) < u32::MAX - 1
                && !is_over
                && (summary.flags | hot.flags[0] | hot.flags[1]) & (FIN | RST) == 0;
            if is_plain {
                hot.packets[side] += 1;
                hot.bytes[side] = bytes;
                hot.after_low[side] = after as u32;
                hot.after_high[side] = (after >> 32) as u16;
                hot.flags[side] |= summary.flags;
                hot.ttl_min[side] = hot.ttl_min[side].min(summary.ttl);
                hot.ttl_max[side] = hot.ttl_max[side].max(summary.ttl);
                return true;
            }
        }
        false
    }

    /// Adds any packet to its flow, which is made if there is none. A flow that had ended before comes out; its end is
    /// written into the journal behind the packets `before`, of which none is left then. Returns the slot of the flow.
    #[inline(never)]
    pub(crate) fn add_any(
        &mut self,
        summary: &PacketSummary,
        window: &Window<'_>,
        before: &mut &[PacketSummary],
        statistics: &mut Statistics,
        ended: &mut Vec<Flow>,
    ) -> u32 {
        let summary = &PacketSummary { time: window.time_of(summary, self.clock), ..*summary };
        let is_late = summary.time < self.clock && summary.time != NO_TIME.as_nanos();
        statistics.late += u64::from(is_late);
        let slot = match self.find(summary, window.extra(summary)) {
            Some(slot) => {
                if let Some(reason) = self.expiry_reason(slot).or_else(|| self.is_reopened(slot, summary)) {
                    self.note_before(before);
                    let flow = self.flow(slot, reason);
                    ended.push(flow);
                    statistics.ended.count(reason);
                    statistics.made += 1;
                    self.note_begun(summary);
                    self.creation_order.remove(slot);
                    self.begin(slot, summary, window);
                }
                slot
            }
            None => {
                statistics.made += 1;
                self.note_begun(summary);
                self.make(summary, window, before, statistics, ended)
            }
        };
        let was_closed = is_closed(&self.hot[slot as usize]);
        self.count(slot, summary);
        if !was_closed && is_closed(&self.hot[slot as usize]) {
            self.reschedule(slot, self.deadlines(slot).0);
        }
        if self.hot[slot as usize].epoch() != self.epoch {
            self.describe(slot);
        }
        slot
    }

    fn note_begun(&mut self, summary: &PacketSummary) {
        if let Some(begun) = &mut self.begun {
            begun.push(summary.index);
        }
    }

    /// Turns on the notes about packets that begin flows.
    pub(crate) fn track_begun(&mut self) {
        self.begun.get_or_insert_default();
    }

    /// The packets that began flows.
    pub(crate) fn begun(&mut self) -> Option<&mut Vec<u8>> {
        self.begun.as_mut()
    }

    fn find(&self, summary: &PacketSummary, extra: Option<&ExtraFields>) -> Option<u32> {
        let matches_key =
            |slot: u32| self.hot.get(slot as usize).is_some_and(|hot| hot.words == summary.words);
        if !key::is_wide(summary.words) {
            return self.index.find(summary.bucket_tag, matches_key);
        }
        let extra = extra?;
        let (part, addresses) = (self.fields.of(&extra.context), halves(extra.addresses));
        self.index.find(summary.bucket_tag, |slot| {
            let cold = &self.cold[slot as usize];
            matches_key(slot) && cold.addresses == addresses && self.fields.of(&cold.context) == part
        })
    }

    /// A new slot for the flow of a packet; if there is none, that of the flow that was silent longest.
    fn make(
        &mut self,
        summary: &PacketSummary,
        window: &Window<'_>,
        before: &mut &[PacketSummary],
        statistics: &mut Statistics,
        ended: &mut Vec<Flow>,
    ) -> u32 {
        if self.len() >= self.flows_max
            && let Some(slot) = self.longest_idle()
        {
            let reason = self.expiry_reason(slot).unwrap_or(EndReason::Full);
            self.note_before(before);
            self.end(slot, reason, statistics, ended);
        }
        let slot = match self.wheel.take_free() {
            Some(slot) => {
                self.free -= 1;
                slot
            }
            None => self.new_slot(),
        };
        self.begin(slot, summary, window);
        self.index.insert(summary.bucket_tag, slot);
        self.wheel.begin(self.clock);
        self.wheel.insert(slot, self.clock.saturating_add(self.timeouts.idle));
        slot
    }

    /// A slot that was never used.
    fn new_slot(&mut self) -> u32 {
        if self.hot.len() == SMALL_PAGES {
            memory::advise_large_pages(self.hot.spare_capacity_mut());
            memory::advise_large_pages(self.cold.spare_capacity_mut());
        }
        self.hot.push(Hot::EMPTY);
        self.cold.push(Cold::EMPTY);
        (self.hot.len() - 1) as u32
    }

    /// Makes a slot that of a flow which begins with this packet. The packet is not counted yet.
    fn begin(&mut self, slot: u32, summary: &PacketSummary, window: &Window<'_>) {
        let state = if summary.side == 1 { FIRST_SIDE } else { 0 };
        self.hot[slot as usize] = Hot { words: summary.words, created_ns: self.clock, state, ..Hot::EMPTY };
        self.creation_order.push(slot);
        if let Some(details) = &mut self.details {
            details.begin(slot);
        }
        let (addresses, context) = match window.extra(summary) {
            Some(extra) => (halves(extra.addresses), extra.context),
            None => ([[0; 2]; 2], window.plain_context(summary)),
        };
        self.cold[slot as usize] = Cold { addresses, context, ..Cold::EMPTY };
    }

    /// Counts a packet of any kind.
    fn count(&mut self, slot: u32, summary: &PacketSummary) {
        let (clock, side) = (self.clock, usize::from(summary.side & 1));
        let (hot, cold) = (&mut self.hot[slot as usize], &mut self.cold[slot as usize]);
        let after = clock.wrapping_sub(hot.created_ns) as u64;
        if hot.state & TIMES_COLD == 0 && (summary.time < clock || after > AFTER_MAX) {
            hot.move_times_to_cold(cold);
        }
        let is_first = hot.packets[side] == 0 && cold.packets_high[side] == 0;
        if is_first {
            (cold.first[side], cold.last[side]) = (summary.time, summary.time);
            (cold.flags_first[side], cold.tos[side]) = (summary.flags, summary.tos);
            (hot.ttl_min[side], hot.ttl_max[side]) = (summary.ttl, summary.ttl);
        }
        if hot.state & TIMES_COLD == 0 {
            hot.after_low[side] = after as u32;
            hot.after_high[side] = (after >> 32) as u16;
        } else {
            cold.first[side] = cold.first[side].min(summary.time);
            cold.last[side] = cold.last[side].max(summary.time);
            cold.last_clock = clock;
        }
        let (packets, bytes) =
            (hot.packets[side].overflowing_add(1), hot.bytes[side].overflowing_add(summary.bytes));
        (hot.packets[side], hot.bytes[side]) = (packets.0, bytes.0);
        cold.packets_high[side] = cold.packets_high[side].saturating_add(packets.1.into());
        cold.bytes_high[side] = cold.bytes_high[side].saturating_add(bytes.1.into());
        hot.flags[side] |= summary.flags;
        hot.ttl_min[side] = hot.ttl_min[side].min(summary.ttl);
        hot.ttl_max[side] = hot.ttl_max[side].max(summary.ttl);
    }

    /// Whether a flow is over by the clock, and why: whatever came first.
    #[inline]
    fn expiry_reason(&self, slot: u32) -> Option<EndReason> {
        let (silent_until, why, active_until) = self.deadlines(slot);
        let is_over = self.clock > silent_until || self.clock >= active_until;
        is_over.then_some(if silent_until < active_until { why } else { EndReason::Active })
    }

    /// End of the permitted silence of a flow, the reason for its end then, and its latest end.
    #[inline]
    fn deadlines(&self, slot: u32) -> (i64, EndReason, i64) {
        let hot = &self.hot[slot as usize];
        let summary = match hot.state & TIMES_COLD {
            0 => hot.last(0).max(hot.last(1)),
            _ => self.cold[slot as usize].last_clock,
        };
        let Timeouts { active, idle, closed } = self.timeouts;
        let (silence, why) = match is_closed(hot) && closed < idle {
            true => (closed, EndReason::End),
            false => (idle, EndReason::Idle),
        };
        (summary.saturating_add(silence), why, hot.created_ns.saturating_add(active))
    }

    /// A new connection between the same ports after the old one was closed.
    fn is_reopened(&self, slot: u32, summary: &PacketSummary) -> Option<EndReason> {
        let is_begin = summary.flags & (SYN | ACK | RST) == SYN && is_closed(&self.hot[slot as usize]);
        is_begin.then_some(EndReason::End)
    }

    /// Ends at most `most` expired flows; `false` if more are left.
    pub(crate) fn expire(&mut self, most: usize, statistics: &mut Statistics, ended: &mut Vec<Flow>) -> bool {
        let mut found = 0;
        while let Some(slot) = self.wheel.due(self.clock) {
            match self.expiry_reason(slot) {
                Some(_) if found == most => return false,
                Some(reason) => {
                    self.end(slot, reason, statistics, ended);
                    found += 1;
                }
                None => self.reschedule(slot, self.deadlines(slot).0),
            }
        }
        while let Some((slot, reason)) =
            self.creation_order.first().and_then(|slot| Some((slot, self.expiry_reason(slot)?)))
        {
            if found == most {
                return false;
            }
            self.end(slot, reason, statistics, ended);
            found += 1;
        }
        true
    }

    fn end(&mut self, slot: u32, reason: EndReason, statistics: &mut Statistics, ended: &mut Vec<Flow>) {
        let flow = self.flow(slot, reason);
        ended.push(flow);
        statistics.ended.count(reason);
        self.remove(slot);
    }

    /// Ends at most `most` of all flows; `false` if more are left. Expired ones end by their timeout. The index is
    /// cleared at the end as a whole: to take each flow out would touch all of it at random. No packet may come
    /// between.
    pub(crate) fn end_all(
        &mut self,
        most: usize,
        statistics: &mut Statistics,
        ended: &mut Vec<Flow>,
    ) -> bool {
        for _ in 0..most {
            let Some((slot, _)) = self.wheel.oldest() else { break };
            let reason = self.expiry_reason(slot).unwrap_or(EndReason::Forced);
            let flow = self.flow(slot, reason);
            ended.push(flow);
            statistics.ended.count(reason);
            self.wheel.remove(slot);
            self.free += 1;
        }
        let is_all = self.wheel.oldest().is_none();
        if is_all {
            self.index.clear();
            self.wheel.clear();
            self.creation_order.clear();
            self.hot.clear();
            self.cold.clear();
            if let Some(details) = &mut self.details {
                details.clear();
            }
            self.free = 0;
        }
        is_all
    }

    /// The flow that was silent longest, to a tick of the wheel.
    fn longest_idle(&mut self) -> Option<u32> {
        loop {
            let (slot, tick) = self.wheel.oldest()?;
            let silent_until = self.deadlines(slot).0;
            if self.wheel.tick(silent_until) <= tick {
                return Some(slot);
            }
            self.reschedule(slot, silent_until);
        }
    }

    /// Moves a slot to where silence will end its flow.
    fn reschedule(&mut self, slot: u32, silent_until: i64) {
        self.wheel.remove(slot);
        self.wheel.insert(slot, silent_until);
    }

    fn remove(&mut self, slot: u32) {
        self.creation_order.remove(slot);
        self.wheel.remove(slot);
        self.wheel.give_free(slot);
        self.free += 1;
        let bucket_tag = self.bucket_tag(self.hot[slot as usize].words);
        self.index.remove(bucket_tag, slot);
        self.hot[slot as usize].words = FREE;
    }

    fn bucket_tag(&self, words: Words) -> BucketTag {
        self.index.bucket_tag(key::hash(words, self.seeds))
    }

    /// The flow of a slot that ends, with its details.
    fn flow(&mut self, slot: u32, end: EndReason) -> Flow {
        let (hot, cold) = (&self.hot[slot as usize], &self.cold[slot as usize]);
        // A flow without a packet since it was to be described again is not known to each reader.
        if let Some(journal) = self.journal.as_mut().filter(|_| hot.epoch() == self.epoch) {
            journal.ended(slot, end);
        }
        let addresses = match key::is_wide(hot.words) {
            true => cold.addresses.map(whole),
            false => key::narrow_addresses(hot.words),
        };
        let first = hot.first_side();
        let side = |at: usize| hot.side(cold, at, address(hot.words, addresses[at]));
        let endpoints = [side(first), side(1 - first)];
        let (protocol, ports) = (key::protocol(hot.words), key::ports(hot.words));
        let details = self.details.as_mut();
        let details = details.map(|details| details.take(slot, protocol, ports, first, &endpoints));
        self.ended += 1;
        Flow {
            endpoints,
            id: self.ended,
            protocol,
            end_reason: end,
            context: cold.context,
            details,
            collected: None,
        }
    }
}

fn address(words: Words, address: u128) -> IpAddr {
    match key::is_v6(words) {
        true => Ipv6Addr::from(address).into(),
        false => Ipv4Addr::from(address as u32).into(),
    }
}
