//! The table of flows: one entry for both directions.
//!
//! ```text
//! Index: hash -> place        Hot, 64 bytes a place                           Cold, 104 bytes a place
//!                             key | born | packets, bytes, last, flags, TTL   addresses of wide keys, context, first times, what outgrew the hot part
//!                             Wheel, Births: 8 bytes a place each, untouched by packets
//! ```
//!
//! A packet of a flow that is there reads a line of the index and reads and writes one of the hot part. The cold part is for the first packet of each direction, for
//! IPv6 and other wide keys, and for flows whose packets came late.
//!
//! # Time
//! The clock is the greatest time that any packet has had. A flow was born, and was last seen, by the clock: a packet that comes late makes no flow older than the flow is.
//! As long as packets are in order the clock is the packet's own time, so the hot part holds one `born` and, for each direction, how long after
//! it the last packet came. The first late packet of a flow makes it an *odd* one, which keeps all its times in the cold part.
//!
//! # Details
//! What flows are asked for besides stands in a table of its own, at the same places ([`DetailTable`]); without any, packets pay one test of a pointer.
//!
//! # The end
//! A flow has ended once it was silent for too long, which the wheel finds, or has lasted for too long, which its place among the births tells.
//! Whether it is found so or by its next packet makes no difference to any record.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tapline_packet::Timestamp;
use tapline_packet::numbers::ip_protocol::TCP;
use tapline_sys::memory;

use crate::births::Births;
use crate::details::{DetailFields, DetailTable, Look, Refused, Sent};
use crate::index::{Home, Index};
use crate::key::{self, Addresses, KeyFields, Seeds, Words};
use crate::packet::{Around, Inside, Rest, Seen};
use crate::statistics::Statistics;
use crate::wheel::Wheel;
use crate::{Context, EndReason, Error, Flow, Side};

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// Which side of the key sent the first packet.
const FIRST_SIDE: u8 = 1;
/// Times stand in the cold part.
const ODD: u8 = 2;

/// Nanoseconds after its birth that a hot part can tell: 78 hours.
const AFTER_MAX: u64 = (1 << 48) - 1;

/// From so many flows on memory is asked for in large pages. Small tables do without: the address cache holds their pages, and a large one costs 2 MiB of zeros.
const SMALL_PAGES: usize = 1 << 15;

/// Bytes that a flow takes, with its part of the index, the wheel and the births.
const FLOW_LEN: usize = 195;

/// The key of a place in no use, which no packet has: there is none whose unused bits are set.
const FREE: Words = [u64::MAX; 2];

/// No place.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// When flows end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub(crate) active: i64,
    pub(crate) idle: i64,
    /// Of silence after TCP has ended.
    pub(crate) closed: i64,
}

/// What every packet touches.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Hot {
    words: Words,
    born: i64,
    packets: [u32; 2],
    bytes: [u32; 2],
    after_low: [u32; 2],
    after_high: [u16; 2],
    flags: [u8; 2],
    ttl_min: [u8; 2],
    ttl_max: [u8; 2],
    state: u8,
}

const _: () = assert!(size_of::<Hot>() == 64, "an entry is a cache line");

/// What few packets touch.
#[derive(Clone, Copy)]
struct Cold {
    addresses: [[u64; 2]; 2],
    context: Context,
    first: [i64; 2],
    /// Of odd flows: the latest packet of each side, and the last one by the clock.
    last: [i64; 2],
    seen: i64,
    /// What does not fit into the hot counters, in units of 2^32.
    bytes_high: [u32; 2],
    packets_high: [u16; 2],
    flags_first: [u8; 2],
    tos: [u8; 2],
}

const _: () = assert!(
    size_of::<Cold>() == 104,
    "with the hot part, wheel, births and index less than 200 bytes a flow"
);

/// Addresses as the cold part has them: as numbers of 128 bits they would begin at multiples of 16, and fill it up to 112 bytes.
fn halves(addresses: Addresses) -> [[u64; 2]; 2] {
    addresses.map(|address| [(address >> 64) as u64, address as u64])
}

fn whole([high, low]: [u64; 2]) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

/// The table.
pub(crate) struct Table {
    index: Index,
    hot: Vec<Hot>,
    cold: Vec<Cold>,
    wheel: Wheel,
    births: Births,
    details: Option<Box<DetailTable>>,
    /// Places that are in no use: the wheel has them as a list.
    free: u32,
    flows_max: usize,
    seeds: Seeds,
    fields: KeyFields,
    timeouts: Timeouts,
    pub(crate) clock: i64,
}

impl Table {
    /// Room for `flows_max` flows; memory is taken from the system as places come into use.
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
        let births = Births::new(flows_max).map_err(no_memory)?;
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
            births,
            details,
            free: 0,
            flows_max,
            seeds: key::seeds(seed),
            fields,
            timeouts,
            clock,
        })
    }

    /// Bytes that a flow takes, with its part of what all share.
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

    /// Before a batch, of which each packet may begin a flow: has the index grow if it must. That takes some 25 ns a flow, and as many as there are once each time that they are twice as many.
    pub(crate) fn make_room(&mut self, packets: usize) {
        let places = (self.len() + packets).min(self.flows_max);
        if self.index.has_room(places) {
            return;
        }
        self.index.grow(places);
        for (place, hot) in self.hot.iter().enumerate().filter(|(_, hot)| hot.words != FREE) {
            let home = self.index.home(key::hash(hot.words, self.seeds));
            self.index.insert(home, place as u32);
        }
    }

    /// Finds out where the index may know a packet's flow, and asks for that line.
    #[inline(always)]
    pub(crate) fn look_ahead(&self, seen: &mut Seen) {
        seen.home = self.index.home(key::hash(seen.words, self.seeds));
        self.index.prefetch(seen.home);
    }

    /// Finds the place that most likely is the flow's, and asks for its line.
    #[inline(always)]
    pub(crate) fn guess(&self, seen: &mut Seen) {
        seen.place = NOWHERE;
        if let Some(place) = self.index.hint(seen.home) {
            memory::prefetch_element(&self.hot, place as usize);
            seen.place = place;
        }
    }

    pub(crate) fn has_details(&self) -> bool {
        self.details.is_some()
    }

    /// Asks for the line of a guessed flow that has the numbers of its details.
    pub(crate) fn ask_numbers(&self, seen: &Seen) {
        if let Some(details) = self.details.as_ref().filter(|_| seen.place != NOWHERE) {
            details.ask_numbers(seen.place);
        }
    }

    /// Asks for the details of a guessed flow, whose numbers were asked for.
    pub(crate) fn ask_details(&self, seen: &Seen) {
        if let Some(details) = self.details.as_ref().filter(|_| seen.place != NOWHERE) {
            details.ask_entries(seen.place, usize::from(seen.side & 1));
        }
    }

    /// What found no room among the details.
    pub(crate) fn refused(&self) -> Refused {
        self.details.as_ref().map_or_else(Refused::default, |details| details.refused())
    }

    /// Looks at a packet that was added at a place, for the details that flows were asked for.
    pub(crate) fn look(&mut self, place: u32, seen: &Seen, data: &[u8], inside: Option<Inside>) {
        let at = place as usize;
        if let (Some(details), Some(hot), Some(cold)) =
            (&mut self.details, self.hot.get(at), self.cold.get(at))
        {
            let sent = hot.sent(cold, usize::from(seen.side & 1), seen);
            let (protocol, ports) = (key::protocol(hot.words), key::ports(hot.words));
            details.packet(place, protocol, ports, sent, Look { seen, data, inside });
        }
    }

    /// Adds a packet to its flow, which is made if there is none. A flow that had ended before comes out. The place of the flow.
    #[inline(always)]
    pub(crate) fn add(
        &mut self,
        seen: &Seen,
        around: &Around<'_>,
        statistics: &mut Statistics,
        ended: &mut Vec<Flow>,
    ) -> u32 {
        let is_late = seen.time < self.clock;
        if !is_late {
            self.clock = seen.time;
        }
        let clock = self.clock;
        let Timeouts { active, idle, .. } = self.timeouts;
        // The common case: the guess is right, nothing is late, nothing ends.
        if let Some(hot) = self.hot.get_mut(seen.place as usize)
            && hot.words == seen.words
            && !key::is_wide(seen.words)
            && !is_late
            && hot.state & ODD == 0
        {
            let after = clock.wrapping_sub(hot.born) as u64;
            let latest = hot.after(0).max(hot.after(1));
            let side = usize::from(seen.side & 1);
            let (bytes, is_over) = hot.bytes[side].overflowing_add(seen.bytes);
            let is_plain = after <= AFTER_MAX
                && (after as i64) < active
                && (after - latest.min(after)) as i64 <= idle
                && hot.packets[side].wrapping_sub(1) < u32::MAX - 1
                && !is_over
                && (seen.flags | hot.flags[0] | hot.flags[1]) & (FIN | RST) == 0;
            if is_plain {
                hot.packets[side] += 1;
                hot.bytes[side] = bytes;
                hot.after_low[side] = after as u32;
                hot.after_high[side] = (after >> 32) as u16;
                hot.flags[side] |= seen.flags;
                hot.ttl_min[side] = hot.ttl_min[side].min(seen.ttl);
                hot.ttl_max[side] = hot.ttl_max[side].max(seen.ttl);
                return seen.place;
            }
        }
        self.add_any(seen, around, statistics, ended)
    }

    #[inline(never)]
    fn add_any(
        &mut self,
        seen: &Seen,
        around: &Around<'_>,
        statistics: &mut Statistics,
        ended: &mut Vec<Flow>,
    ) -> u32 {
        statistics.late += u64::from(seen.time < self.clock);
        let place = match self.find(seen, around.rest(seen)) {
            Some(place) => {
                if let Some(reason) = self.over(place).or_else(|| self.is_begun_anew(place, seen)) {
                    let flow = self.flow(place, reason);
                    ended.push(flow);
                    statistics.ended.count(reason);
                    statistics.made += 1;
                    self.births.remove(place);
                    self.begin(place, seen, around);
                }
                place
            }
            None => {
                statistics.made += 1;
                self.make(seen, around, statistics, ended)
            }
        };
        let was_closed = is_closed(&self.hot[place as usize]);
        self.count(place, seen);
        if !was_closed && is_closed(&self.hot[place as usize]) {
            self.put_back(place, self.deadlines(place).0);
        }
        place
    }

    fn find(&self, seen: &Seen, rest: Option<&Rest>) -> Option<u32> {
        let is_it = |place: u32| self.hot.get(place as usize).is_some_and(|hot| hot.words == seen.words);
        if !key::is_wide(seen.words) {
            return self.index.find(seen.home, is_it);
        }
        let rest = rest?;
        let (part, addresses) = (self.fields.of(&rest.context), halves(rest.addresses));
        self.index.find(seen.home, |place| {
            let cold = &self.cold[place as usize];
            is_it(place) && cold.addresses == addresses && self.fields.of(&cold.context) == part
        })
    }

    /// A new place for the flow of a packet; if there is none, that of the flow that was silent longest.
    fn make(
        &mut self,
        seen: &Seen,
        around: &Around<'_>,
        statistics: &mut Statistics,
        ended: &mut Vec<Flow>,
    ) -> u32 {
        if self.len() >= self.flows_max
            && let Some(place) = self.longest_idle()
        {
            let reason = self.over(place).unwrap_or(EndReason::Full);
            self.end(place, reason, statistics, ended);
        }
        let place = match self.wheel.take_free() {
            Some(place) => {
                self.free -= 1;
                place
            }
            None => self.fresh_place(),
        };
        self.begin(place, seen, around);
        self.index.insert(seen.home, place);
        self.wheel.begin(self.clock);
        self.wheel.insert(place, self.clock.saturating_add(self.timeouts.idle));
        place
    }

    /// A place that was never used.
    fn fresh_place(&mut self) -> u32 {
        if self.hot.len() == SMALL_PAGES {
            memory::advise_large_pages(self.hot.spare_capacity_mut());
            memory::advise_large_pages(self.cold.spare_capacity_mut());
        }
        self.hot.push(Hot::EMPTY);
        self.cold.push(Cold::EMPTY);
        (self.hot.len() - 1) as u32
    }

    /// Makes a place that of a flow which begins with this packet. The packet is not counted yet.
    fn begin(&mut self, place: u32, seen: &Seen, around: &Around<'_>) {
        let state = if seen.side == 1 { FIRST_SIDE } else { 0 };
        self.hot[place as usize] = Hot { words: seen.words, born: self.clock, state, ..Hot::EMPTY };
        self.births.push(place);
        if let Some(details) = &mut self.details {
            details.begin(place);
        }
        let (addresses, context) = match around.rest(seen) {
            Some(rest) => (halves(rest.addresses), rest.context),
            None => ([[0; 2]; 2], around.plain_context(seen)),
        };
        self.cold[place as usize] = Cold { addresses, context, ..Cold::EMPTY };
    }

    /// Counts a packet of any kind.
    fn count(&mut self, place: u32, seen: &Seen) {
        let (clock, side) = (self.clock, usize::from(seen.side & 1));
        let (hot, cold) = (&mut self.hot[place as usize], &mut self.cold[place as usize]);
        let after = clock.wrapping_sub(hot.born) as u64;
        if hot.state & ODD == 0 && (seen.time < clock || after > AFTER_MAX) {
            hot.make_odd(cold);
        }
        let is_first = hot.packets[side] == 0 && cold.packets_high[side] == 0;
        if is_first {
            (cold.first[side], cold.last[side]) = (seen.time, seen.time);
            (cold.flags_first[side], cold.tos[side]) = (seen.flags, seen.tos);
            (hot.ttl_min[side], hot.ttl_max[side]) = (seen.ttl, seen.ttl);
        }
        if hot.state & ODD == 0 {
            hot.after_low[side] = after as u32;
            hot.after_high[side] = (after >> 32) as u16;
        } else {
            cold.first[side] = cold.first[side].min(seen.time);
            cold.last[side] = cold.last[side].max(seen.time);
            cold.seen = clock;
        }
        let (packets, bytes) =
            (hot.packets[side].overflowing_add(1), hot.bytes[side].overflowing_add(seen.bytes));
        (hot.packets[side], hot.bytes[side]) = (packets.0, bytes.0);
        cold.packets_high[side] = cold.packets_high[side].saturating_add(packets.1.into());
        cold.bytes_high[side] = cold.bytes_high[side].saturating_add(bytes.1.into());
        hot.flags[side] |= seen.flags;
        hot.ttl_min[side] = hot.ttl_min[side].min(seen.ttl);
        hot.ttl_max[side] = hot.ttl_max[side].max(seen.ttl);
    }

    /// Whether a flow is over by the clock, and why: whatever came first.
    #[inline]
    fn over(&self, place: u32) -> Option<EndReason> {
        let (silent_until, why, active_until) = self.deadlines(place);
        let is_over = self.clock > silent_until || self.clock >= active_until;
        is_over.then_some(if silent_until < active_until { why } else { EndReason::Active })
    }

    /// Until when a flow may be silent, what it ends of then, and until when it may last.
    #[inline]
    fn deadlines(&self, place: u32) -> (i64, EndReason, i64) {
        let hot = &self.hot[place as usize];
        let seen = match hot.state & ODD {
            0 => hot.last(0).max(hot.last(1)),
            _ => self.cold[place as usize].seen,
        };
        let Timeouts { active, idle, closed } = self.timeouts;
        let (silence, why) = match is_closed(hot) && closed < idle {
            true => (closed, EndReason::End),
            false => (idle, EndReason::Idle),
        };
        (seen.saturating_add(silence), why, hot.born.saturating_add(active))
    }

    /// A new connection between the same ports after the old one was closed.
    fn is_begun_anew(&self, place: u32, seen: &Seen) -> Option<EndReason> {
        let is_begin = seen.flags & (SYN | ACK | RST) == SYN && is_closed(&self.hot[place as usize]);
        is_begin.then_some(EndReason::End)
    }

    /// Ends flows whose time is over, `most` of them at most; whether that was all.
    pub(crate) fn expire(&mut self, most: usize, statistics: &mut Statistics, ended: &mut Vec<Flow>) -> bool {
        let mut found = 0;
        while let Some(place) = self.wheel.due(self.clock) {
            match self.over(place) {
                Some(_) if found == most => return false,
                Some(reason) => {
                    self.end(place, reason, statistics, ended);
                    found += 1;
                }
                None => self.put_back(place, self.deadlines(place).0),
            }
        }
        while let Some((place, reason)) =
            self.births.first().and_then(|place| Some((place, self.over(place)?)))
        {
            if found == most {
                return false;
            }
            self.end(place, reason, statistics, ended);
            found += 1;
        }
        true
    }

    /// Ends one flow.
    fn end(&mut self, place: u32, reason: EndReason, statistics: &mut Statistics, ended: &mut Vec<Flow>) {
        let flow = self.flow(place, reason);
        ended.push(flow);
        statistics.ended.count(reason);
        self.remove(place);
    }

    /// Ends every flow, `most` of them at most; whether that was all. Those that are over by the clock have ended of that. The index is cleared at
    /// the end as a whole: to take each flow out would touch all of it at random. No packet may come between.
    pub(crate) fn end_all(
        &mut self,
        most: usize,
        statistics: &mut Statistics,
        ended: &mut Vec<Flow>,
    ) -> bool {
        for _ in 0..most {
            let Some((place, _)) = self.wheel.oldest() else { break };
            let reason = self.over(place).unwrap_or(EndReason::Forced);
            let flow = self.flow(place, reason);
            ended.push(flow);
            statistics.ended.count(reason);
            self.wheel.remove(place);
            self.free += 1;
        }
        let is_all = self.wheel.oldest().is_none();
        if is_all {
            self.index.clear();
            self.wheel.clear();
            self.births.clear();
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
            let (place, tick) = self.wheel.oldest()?;
            let silent_until = self.deadlines(place).0;
            if self.wheel.tick(silent_until) <= tick {
                return Some(place);
            }
            self.put_back(place, silent_until);
        }
    }

    /// Moves a place to where silence will end its flow.
    fn put_back(&mut self, place: u32, silent_until: i64) {
        self.wheel.remove(place);
        self.wheel.insert(place, silent_until);
    }

    fn remove(&mut self, place: u32) {
        self.births.remove(place);
        self.wheel.remove(place);
        self.wheel.give_free(place);
        self.free += 1;
        let home = self.home(self.hot[place as usize].words);
        self.index.remove(home, place);
        self.hot[place as usize].words = FREE;
    }

    fn home(&self, words: Words) -> Home {
        self.index.home(key::hash(words, self.seeds))
    }

    /// What becomes of a flow that ends. Its details are taken.
    fn flow(&mut self, place: u32, end: EndReason) -> Flow {
        let (hot, cold) = (&self.hot[place as usize], &self.cold[place as usize]);
        let addresses = match key::is_wide(hot.words) {
            true => cold.addresses.map(whole),
            false => key::narrow_addresses(hot.words),
        };
        let first = usize::from(hot.state & FIRST_SIDE);
        let side = |at: usize| hot.side(cold, at, address(hot.words, addresses[at]));
        let sides = [side(first), side(1 - first)];
        let (protocol, ports) = (key::protocol(hot.words), key::ports(hot.words));
        let details = self.details.as_mut();
        let details = details.map(|details| details.take(place, protocol, ports, first, &sides));
        Flow { sides, protocol, end, context: cold.context, details }
    }
}

fn address(words: Words, address: u128) -> IpAddr {
    match key::is_v6(words) {
        true => Ipv6Addr::from(address).into(),
        false => Ipv4Addr::from(address as u32).into(),
    }
}

/// Whether TCP has ended: a reset, or FIN from both.
#[inline]
fn is_closed(hot: &Hot) -> bool {
    let [one, other] = hot.flags;
    key::protocol(hot.words) == TCP && ((one | other) & RST != 0 || one & other & FIN != 0)
}

impl Hot {
    const EMPTY: Hot = Hot {
        words: FREE,
        born: 0,
        packets: [0; 2],
        bytes: [0; 2],
        after_low: [0; 2],
        after_high: [0; 2],
        flags: [0; 2],
        ttl_min: [0; 2],
        ttl_max: [0; 2],
        state: 0,
    };

    /// Nanoseconds from birth to the last packet of a side.
    #[inline(always)]
    fn after(&self, side: usize) -> u64 {
        u64::from(self.after_high[side]) << 32 | u64::from(self.after_low[side])
    }

    fn last(&self, side: usize) -> i64 {
        self.born.saturating_add(self.after(side) as i64)
    }

    /// Moves all times into the cold part.
    fn make_odd(&mut self, cold: &mut Cold) {
        self.state |= ODD;
        cold.seen = self.last(0).max(self.last(1));
        cold.last = [self.last(0), self.last(1)];
    }

    /// What a side has sent, of which a packet was the last that came. Of two packets the first is what the last leaves of the sums, and of the times
    /// the one that is not its own.
    fn sent(&self, cold: &Cold, side: usize, seen: &Seen) -> Sent {
        if self.packets[side] > 2 {
            // Nobody asks for more of it, and the line of the cold part stays where it is.
            return Sent { packets: self.packets[side].into(), bytes: 0, time: 0 };
        }
        let packets = u64::from(cold.packets_high[side]) << 32 | u64::from(self.packets[side]);
        let last = if self.state & ODD == 0 { self.last(side) } else { cold.last[side] };
        Sent {
            packets,
            bytes: self.bytes[side].wrapping_sub(seen.bytes),
            time: cold.first[side].wrapping_add(last).wrapping_sub(seen.time),
        }
    }

    fn side(&self, cold: &Cold, at: usize, address: IpAddr) -> Side {
        let sum = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let packets = sum(cold.packets_high[at].into(), self.packets[at]);
        let last = if self.state & ODD == 0 { self.last(at) } else { cold.last[at] };
        let (first, last) = if packets == 0 { (0, 0) } else { (cold.first[at], last) };
        Side {
            address,
            port: key::ports(self.words)[at],
            packets,
            bytes: sum(cold.bytes_high[at], self.bytes[at]),
            first: Timestamp::from_nanos(first),
            last: Timestamp::from_nanos(last),
            tcp_flags: self.flags[at],
            tcp_flags_first: cold.flags_first[at],
            ttl_min: self.ttl_min[at],
            ttl_max: self.ttl_max[at],
            tos: cold.tos[at],
        }
    }
}

impl Cold {
    const EMPTY: Cold = Cold {
        addresses: [[0; 2]; 2],
        context: Context::NONE,
        first: [0; 2],
        last: [0; 2],
        seen: 0,
        bytes_high: [0; 2],
        packets_high: [0; 2],
        flags_first: [0; 2],
        tos: [0; 2],
    };
}
