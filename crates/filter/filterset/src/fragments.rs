//! Later fragments follow their first: they get the filters that it matched, in any order of arrival.
//!
//! ```text
//! key    := IPv4: source, destination, protocol, identification (RFC 791) | IPv6: source, destination, identification (RFC 8200)
//!
//!            first comes                        first comes: the early ones are reported
//!  nothing -------------> known <------------------------------------- early
//!     |                   later ones: the first's filters              later ones: a ticket each
//!     +--------------------------------- a later one comes first --------^
//!  known, early --timeout of packet time, or no room--> nothing; the early ones are reported as unanswered
//! ```
//!
//! Packets are lent and cannot be held. So there are two answers for an early fragment: at once the filters that its
//! own bytes match and a *ticket*, and, when its first fragment comes, a report with the ticket and the filters of
//! the first. If the first is in the same batch, the answer is right at once and there is no ticket. A second first
//! fragment with the same key begins another datagram; a later fragment that comes before it counts as one of the old
//! datagram.
//!
//! Only the outermost IP header counts. The fragments of a datagram must come to the same set: with several workers
//! the kernel can put them together before it spreads packets (`PACKET_FANOUT_FLAG_DEFRAG`), or spread them by
//! addresses alone.

use std::collections::{HashMap, VecDeque};

use tapline_packet::numbers::{ethertype, ip_protocol};
use tapline_packet::{Batch, LinkType, Selection, Timestamp};

use super::{FilterId, FilterSet, Matches, SetError};

/// Limits of the memory of fragments, in number and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentLimits {
    /// Datagrams that are remembered; for one more the oldest is forgotten. Default 4096.
    pub datagrams_max: usize,
    /// Early fragments of all datagrams that wait for a report; more get no ticket. Default 4096.
    pub early_max: usize,
    /// Nanoseconds of packet time from a datagram's first sighting until it is forgotten. Default 30 s, as Linux waits.
    pub timeout_ns: u64,
}

impl Default for FragmentLimits {
    fn default() -> FragmentLimits {
        FragmentLimits { datagrams_max: 4096, early_max: 4096, timeout_ns: 30_000_000_000 }
    }
}

/// Counts of fragments by their fate. `early` is the sum of `answered`, `unanswered`, `no_ticket` and those that still
/// wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentCounts {
    /// First fragments.
    pub first: u64,
    /// Later fragments that got their first's filters at once.
    pub followed: u64,
    /// Later fragments that came before their first.
    pub early: u64,
    /// Early fragments, reported since: the first came.
    pub answered: u64,
    /// Early fragments, given up since: the first did not come in time.
    pub unanswered: u64,
    /// Early fragments without a ticket, because too many waited.
    pub no_ticket: u64,
    /// Datagrams forgotten because their time was over.
    pub expired: u64,
    /// Datagrams forgotten because the table was full.
    pub evicted: u64,
}

/// The late answer for an early fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateReport<'a> {
    /// The fragment's ticket, from [`Matches::ticket`].
    pub ticket: u64,
    /// The fate of the fragment.
    pub outcome: FragmentOutcome<'a>,
}

/// The fate of an early fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentOutcome<'a> {
    /// The first came: the filters that it matches, as in [`Matches::of`].
    Follows(&'a [u32]),
    /// The first did not come in time; the answer that was given at once stays.
    Unanswered,
}

/// The part of [`Matches`] that belongs to early fragments.
#[derive(Clone, Debug, Default)]
pub(super) struct Late {
    /// Packets of this batch with a ticket.
    tickets: Vec<(u8, u64)>,
    /// Tickets, and the range of their filters in `found`; `None`: unanswered.
    reports: Vec<(u64, Option<(u32, u32)>)>,
    found: Vec<u32>,
}

impl Late {
    pub(super) fn clear(&mut self) {
        self.tickets.clear();
        self.reports.clear();
        self.found.clear();
    }
}

impl Matches {
    /// The ticket of an early fragment: one that came before the first of its datagram. [`of`](Self::of) then gives the
    /// filters that its own bytes match. Tickets ascend and are never used twice.
    pub fn ticket(&self, packet: usize) -> Option<u64> {
        self.late.tickets.iter().find(|(index, _)| usize::from(*index) == packet).map(|(_, ticket)| *ticket)
    }

    /// Reports on early fragments, of this batch or earlier ones, that were settled while this batch was classified.
    pub fn late_reports(&self) -> impl Iterator<Item = LateReport<'_>> {
        self.late.reports.iter().map(|(ticket, range)| LateReport {
            ticket: *ticket,
            outcome: match range {
                Some((start, end)) => {
                    FragmentOutcome::Follows(&self.late.found[*start as usize..*end as usize])
                }
                None => FragmentOutcome::Unanswered,
            },
        })
    }
}

impl FilterSet {
    /// Lets later fragments follow their first from now on, for packets of this link type; `None` ends it.
    ///
    /// A later fragment then matches the filters that its first matched and no others: filters that look for later
    /// fragments find none. Filters that were removed since the first fragment are left out; filters inserted since
    /// then are not among them.
    ///
    /// # Errors
    /// If IP headers cannot be found on the link type. Known are Ethernet with up to two VLAN tags, raw IP, BSD
    /// loopback, and Linux's cooked captures.
    pub fn follow_fragments(
        &mut self,
        link_type: LinkType,
        limits: Option<FragmentLimits>,
    ) -> Result<(), SetError> {
        if limits.is_some() && !LINK_TYPES.contains(&link_type) {
            return Err(SetError::FragmentsOn(link_type));
        }
        self.fragments = limits.map(|limits| Fragments::new(link_type, limits));
        Ok(())
    }

    /// Counts of fragments since [`follow_fragments`](Self::follow_fragments).
    pub fn fragment_counts(&self) -> FragmentCounts {
        self.fragments.as_ref().map_or_else(FragmentCounts::default, |fragments| fragments.counts)
    }
}

/// The datagrams whose fragments pass.
#[derive(Debug)]
pub(super) struct Fragments {
    link_type: LinkType,
    limits: FragmentLimits,
    counts: FragmentCounts,
    datagrams: Vec<Datagram>,
    by_key: HashMap<Key, u32>,
    free: Vec<u32>,
    /// Datagrams by the time at which they were first seen, with the number that they had then.
    ages: VecDeque<(u32, u64)>,
    /// Counts datagrams.
    numbers: u64,
    waiting: usize,
    tickets: u64,
    batches: u64,
    now: Timestamp,
}

#[derive(Debug, Default)]
struct Datagram {
    key: Key,
    /// 0 while the place is free.
    number: u64,
    deadline: Timestamp,
    /// The filters that the first fragment matched, once it came.
    known: bool,
    filters: Vec<FilterId>,
    early: Vec<Early>,
}

/// A fragment that came before its first.
#[derive(Clone, Copy, Debug)]
struct Early {
    ticket: u64,
    batch: u64,
    packet: u8,
}

/// The key of a datagram, common to its fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Key {
    src: u128,
    dst: u128,
    id: u32,
    /// 256 for IPv6, where it does not count.
    protocol: u16,
}

/// A packet's part in a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Whole,
    First(Key),
    Later(Key),
}

impl Fragments {
    fn new(link_type: LinkType, limits: FragmentLimits) -> Fragments {
        let limits = FragmentLimits { datagrams_max: limits.datagrams_max.clamp(1, 1 << 24), ..limits };
        Fragments {
            link_type,
            limits,
            counts: FragmentCounts::default(),
            datagrams: Vec::new(),
            by_key: HashMap::with_capacity(limits.datagrams_max),
            free: Vec::new(),
            ages: VecDeque::with_capacity(2 * limits.datagrams_max),
            numbers: 0,
            waiting: 0,
            tickets: 0,
            batches: 0,
            now: Timestamp::from_nanos(i64::MIN),
        }
    }

    /// Looks all packets up by themselves, then passes the matches of first fragments to later ones.
    pub(super) fn classify(
        &mut self,
        set: &FilterSet,
        batch: &Batch<'_>,
        selection: &Selection,
        matches: &mut Matches,
    ) {
        set.look_up(batch, selection.iter(), matches);
        self.batches += 1;
        for index in selection.iter() {
            let packet = batch.packet(index);
            let kind = kind(self.link_type, packet.data);
            if kind != Kind::Whole {
                self.now = self.now.max(packet.meta.timestamp);
                self.forget_old(matches);
            }
            match kind {
                Kind::Whole => {}
                Kind::First(key) => self.first(key, set, index, matches),
                Kind::Later(key) => self.later(key, set, index, matches),
            }
        }
    }

    /// Remembers the matches of a first fragment, and reports the fragments that waited.
    fn first(&mut self, key: Key, set: &FilterSet, index: usize, matches: &mut Matches) {
        self.counts.first += 1;
        let at = match self.by_key.get(&key) {
            // The identification is used again, or early fragments wait.
            Some(at) => *at,
            None => self.add(key, matches),
        };
        let early = self.renew(at);
        let datagram = &mut self.datagrams[at as usize];
        datagram.known = true;
        datagram.filters.clear();
        datagram.filters.extend(matches.of(index).iter().filter_map(|filter| set.id(*filter)));
        for waiting in &early {
            self.counts.answered += 1;
            self.waiting -= 1;
            if waiting.batch == self.batches {
                matches.share(index, usize::from(waiting.packet));
                matches.late.tickets.retain(|(_, ticket)| *ticket != waiting.ticket);
            } else {
                matches.report_follows(waiting.ticket, index);
            }
        }
        self.give_back(at, early);
    }

    /// Gives a later fragment the matches of its first, or a ticket.
    fn later(&mut self, key: Key, set: &FilterSet, index: usize, matches: &mut Matches) {
        let at = self.by_key.get(&key).copied();
        if let Some(at) = at
            && self.datagrams[at as usize].known
        {
            self.counts.followed += 1;
            let mark = matches.mark();
            let filters = &self.datagrams[at as usize].filters;
            filters.iter().filter(|id| set.get(**id).is_some()).for_each(|id| matches.push(id.index()));
            let len = matches.mark() - mark;
            matches.finish(index, mark, len);
            return;
        }
        self.counts.early += 1;
        if self.waiting >= self.limits.early_max {
            self.counts.no_ticket += 1;
            return;
        }
        let at = at.unwrap_or_else(|| self.add(key, matches));
        let early = Early { ticket: self.tickets, batch: self.batches, packet: index as u8 };
        matches.late.tickets.push((index as u8, self.tickets));
        self.datagrams[at as usize].early.push(early);
        self.waiting += 1;
        self.tickets += 1;
    }

    /// A place for a datagram that is new.
    fn add(&mut self, key: Key, matches: &mut Matches) -> u32 {
        while self.by_key.len() >= self.limits.datagrams_max {
            self.forget_oldest(matches);
        }
        let at = self.free.pop().unwrap_or(self.datagrams.len() as u32);
        if at as usize == self.datagrams.len() {
            self.datagrams.push(Datagram::default());
        }
        self.datagrams[at as usize].key = key;
        self.by_key.insert(key, at);
        self.renew(at);
        at
    }

    /// Starts a datagram's time again, and takes those that wait for its first.
    fn renew(&mut self, at: u32) -> Vec<Early> {
        // Each use of an identification has an age of its own; old ones go when they are met.
        if self.ages.len() >= 2 * self.limits.datagrams_max {
            let datagrams = &self.datagrams;
            self.ages.retain(|(at, number)| datagrams[*at as usize].number == *number);
        }
        self.numbers += 1;
        self.ages.push_back((at, self.numbers));
        let timeout_ns = i64::try_from(self.limits.timeout_ns).unwrap_or(i64::MAX);
        let datagram = &mut self.datagrams[at as usize];
        datagram.number = self.numbers;
        datagram.deadline = self.now.plus_nanos(timeout_ns);
        std::mem::take(&mut datagram.early)
    }

    /// Keeps the memory of a list for the next ones.
    fn give_back(&mut self, at: u32, mut early: Vec<Early>) {
        early.clear();
        self.datagrams[at as usize].early = early;
    }

    /// Forgets the datagrams whose time is over.
    fn forget_old(&mut self, matches: &mut Matches) {
        while let Some((at, number)) = self.ages.front().copied() {
            let datagram = &self.datagrams[at as usize];
            if datagram.number == number {
                if datagram.deadline >= self.now {
                    return;
                }
                self.counts.expired += 1;
                self.forget(at, matches);
            }
            self.ages.pop_front();
        }
    }

    /// Makes room.
    fn forget_oldest(&mut self, matches: &mut Matches) {
        while let Some((at, number)) = self.ages.pop_front() {
            if self.datagrams[at as usize].number == number {
                self.counts.evicted += 1;
                return self.forget(at, matches);
            }
        }
    }

    fn forget(&mut self, at: u32, matches: &mut Matches) {
        let datagram = &mut self.datagrams[at as usize];
        (datagram.number, datagram.known) = (0, false);
        self.by_key.remove(&datagram.key);
        self.counts.unanswered += datagram.early.len() as u64;
        self.waiting -= datagram.early.len();
        matches.late.reports.extend(datagram.early.drain(..).map(|early| (early.ticket, None)));
        self.free.push(at);
    }
}

impl Matches {
    /// An early fragment follows a packet of this batch.
    fn report_follows(&mut self, ticket: u64, first: usize) {
        let start = self.late.found.len();
        let mut found = std::mem::take(&mut self.late.found);
        found.extend_from_slice(self.of(first));
        self.late.reports.push((ticket, Some((start as u32, found.len() as u32))));
        self.late.found = found;
    }
}

/// Link types that [`ip_header`] knows.
const LINK_TYPES: [LinkType; 8] = [
    LinkType::ETHERNET,
    LinkType::LINUX_SLL,
    LinkType::LINUX_SLL2,
    LinkType::RAW,
    LinkType::IPV4,
    LinkType::IPV6,
    LinkType::NULL,
    LinkType::LOOP,
];

/// The IP header of a packet, to the end of the captured bytes.
fn ip_header(link_type: LinkType, data: &[u8]) -> Option<&[u8]> {
    let (mut at_type, mut payload) = match link_type {
        LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => return Some(data),
        LinkType::NULL | LinkType::LOOP => return data.get(4..),
        LinkType::ETHERNET => (12, 14),
        LinkType::LINUX_SLL => (14, 16),
        LinkType::LINUX_SLL2 => (0, 20),
        _ => return None,
    };
    for _ in 0..3 {
        let ether_type = u16::from_be_bytes(*data.get(at_type..)?.first_chunk()?);
        if matches!(ether_type, ethertype::IPV4 | ethertype::IPV6) {
            return data.get(payload..);
        }
        if !ethertype::is_vlan(ether_type) {
            return None;
        }
        at_type = payload + 2;
        payload += 4;
    }
    None
}

/// A packet's part in a datagram.
pub(super) fn kind(link_type: LinkType, data: &[u8]) -> Kind {
    let Some(header) = ip_header(link_type, data) else { return Kind::Whole };
    let found = match header.first().map(|first| first >> 4) {
        Some(4) => ipv4(header),
        Some(6) => ipv6(header),
        _ => None,
    };
    found.unwrap_or(Kind::Whole)
}

/// Bytes 6 and 7: flags and offset.
fn ipv4(header: &[u8]) -> Option<Kind> {
    let header: &[u8; 20] = header.first_chunk()?;
    let place = u16::from_be_bytes([header[6], header[7]]);
    let (more, offset) = (place & 0x2000 != 0, place & 0x1fff);
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let key = Key {
        src: word(12).into(),
        dst: word(16).into(),
        id: u16::from_be_bytes([header[4], header[5]]).into(),
        protocol: header[9].into(),
    };
    Some(of(key, more, offset))
}

/// Extension headers that may precede a fragment header (RFC 8200, 4.1): hop by hop, routing, destination.
const BEFORE_FRAGMENT: [u8; 3] =
    [ip_protocol::HOP_BY_HOP, ip_protocol::ROUTING, ip_protocol::DESTINATION_OPTIONS];

/// Maximum number of headers before a fragment header; no honest packet has more.
const HEADERS_MAX: usize = 8;

fn ipv6(header: &[u8]) -> Option<Kind> {
    let fixed: &[u8; 40] = header.first_chunk()?;
    let (mut next, mut rest) = (fixed[6], &header[40..]);
    for _ in 0..HEADERS_MAX {
        if next == ip_protocol::FRAGMENT {
            let fragment: &[u8; 8] = rest.first_chunk()?;
            let place = u16::from_be_bytes([fragment[2], fragment[3]]);
            let id = u32::from_be_bytes([fragment[4], fragment[5], fragment[6], fragment[7]]);
            let address = |at: usize| fixed[at..at + 16].iter().fold(0, |n, byte| n << 8 | u128::from(*byte));
            let key = Key { src: address(8), dst: address(24), id, protocol: 256 };
            return Some(of(key, place & 1 != 0, place >> 3));
        }
        if !BEFORE_FRAGMENT.contains(&next) {
            return None;
        }
        let [following, len] = *rest.first_chunk()?;
        next = following;
        rest = rest.get(8 * (usize::from(len) + 1)..)?;
    }
    None
}

fn of(key: Key, more: bool, offset: u16) -> Kind {
    match (more, offset) {
        (false, 0) => Kind::Whole,
        (true, 0) => Kind::First(key),
        _ => Kind::Later(key),
    }
}
