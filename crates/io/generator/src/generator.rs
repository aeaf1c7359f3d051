//! The generator: which packet comes next, and when.
//!
//! ```text
//! next_into(buffer)   a piece of the last packet, if it was cut
//!                     which flow -> which segment -> which size -> bytes -> malformed? -> does the filter say what it should?
//! ```

use std::collections::HashSet;
use std::num::NonZeroU64;

use tapline_packet::Timestamp;
use tapline_packet::headers::IpVersion;

use crate::checksum::{shifted, sum, updated};
use crate::connection::{Connection, Segment};
use crate::error::Error;
use crate::flow::{self, Flow, FlowRanges};
use crate::fragment::{self, Whole};
use crate::gap::Clock;
use crate::malform::Faults;
use crate::mark::{MARK_LEN, Mark};
use crate::matching::{FrameFilter, Search};
use crate::payload::Pool;
use crate::random::Random;
use crate::recipe::{FlowOrder, Malformation, Rate, Recipe, SIZE_MAX, Transport};
use crate::shape::Shape;
use crate::share::{Portion, Share};
use crate::size::SizeChooser;
use crate::write::Packet;

/// The least that a piece of a marked packet carries, so that its last piece can hold the mark.
const MARKED_PIECE_MIN: usize = 48;

/// A generated frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Length in bytes, without the frame check sequence.
    pub len: u32,
    /// Departure time in nanoseconds after the first packet; never earlier than that of the frame before.
    pub at_ns: u64,
    /// Place of its mark; `None` without a mark, or if the mark's time cannot be changed any more.
    pub mark: Option<MarkPlace>,
}

/// The places of a frame's mark and of the checksum that covers it.
///
/// One word, so that it travels in a register: | at 24 bits | checksum 24 bits | is odd | is UDP |. The mark is never
/// at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkPlace(NonZeroU64);

impl MarkPlace {
    /// A mark at `at`, with the checksum of UDP or of another transport at `checksum_at`. `is_odd` means that the
    /// mark begins at an odd place of the checksum's bytes. Places are below [`SIZE_MAX`].
    pub(crate) fn new(at: usize, checksum_at: usize, is_odd: bool, is_udp: bool) -> Option<MarkPlace> {
        let word = (at as u64) << 26 | (checksum_at as u64) << 2 | u64::from(is_odd) << 1 | u64::from(is_udp);
        NonZeroU64::new(word).map(MarkPlace)
    }

    /// Writes another send time into the frame's mark and mends its checksum: for senders that know only now when the
    /// packet leaves. A frame other than the one that this place was given with is left as it is, if it is too short.
    pub fn restamp(self, frame: &mut [u8], sent: Timestamp) {
        let word = self.0.get();
        let (at, check) = ((word >> 26) as usize, (word >> 2 & 0xff_ffff) as usize);
        let (is_odd, is_udp) = (word & 2 != 0, word & 1 != 0);
        let time = at + MARK_LEN - 8;
        if frame.len() < time + 8 || check + 2 > frame.len() {
            return;
        }
        let part = |sum: u32| u64::from(if is_odd { shifted(sum) } else { sum });
        let before = part(sum(&frame[time..time + 8]));
        frame[time..time + 8].copy_from_slice(&sent.as_nanos().to_be_bytes());
        let after = part(sum(&frame[time..time + 8]));
        let checksum = updated(u16::from_be_bytes([frame[check], frame[check + 1]]), before, after);
        let checksum = if is_udp && checksum == 0 { 0xffff } else { checksum };
        frame[check..check + 2].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Flows that take turns.
#[derive(Clone, Copy, Default)]
struct Turns {
    start: u32,
    len: u32,
    next: u32,
}

impl Turns {
    #[inline]
    fn next(&mut self, order: FlowOrder, random: &mut Random) -> usize {
        let place = match order {
            FlowOrder::Turns => {
                let place = self.next;
                self.next = if place + 1 == self.len { 0 } else { place + 1 };
                place
            }
            FlowOrder::Random => random.below(self.len.into()) as u32,
        };
        (self.start + place) as usize
    }
}

/// Makes one packet after the other.
pub struct Generator {
    shapes: Vec<Shape>,
    flows: Vec<Flow>,
    /// One for each flow, if any needs one.
    connections: Vec<Connection>,
    pool: Pool,
    sizes: SizeChooser,
    clock: Clock,
    /// The flows that match the filter, and the flows that do not; without a filter, all match.
    turns: [Turns; 2],
    portion: Portion,
    judge: Option<FrameFilter>,
    faults: Faults,
    whole: Whole,
    fragment: Option<usize>,
    order: FlowOrder,
    segments: u32,
    is_one_way: bool,
    frame_max: usize,
    mark: Option<u8>,
    sequence: u64,
    start: Timestamp,
    made: u64,
    count: u64,
    duration_ns: u64,
    is_paced: bool,
    has_ended: bool,
    random: Random,
}

impl Generator {
    /// Prepares everything that does not change from packet to packet.
    ///
    /// # Errors
    /// If wishes of the recipe contradict each other, or the filter cannot be met.
    pub fn new(recipe: &Recipe) -> Result<Generator, Error> {
        check_alone(recipe)?;
        let kinds = kinds(recipe);
        let shapes: Vec<Shape> =
            kinds.iter().map(|&(transport, version)| Shape::new(recipe, transport, version)).collect();
        let size_max = recipe.sizes.bounds().1 as usize;
        let headers_max = shapes.iter().map(Shape::len).max().unwrap_or(0);
        let pool = Pool::new(&recipe.payload, size_max, recipe.seed);
        let frame_max = size_max.max(headers_max) + 8;
        let judge = recipe.matching.as_ref().map(|(text, _)| FrameFilter::new(text)).transpose()?;
        let (flows, matching) = all_flows(recipe, &shapes, &kinds, &pool, judge.as_ref(), frame_max)?;
        let count = flows.len() as u32;
        check_shapes(recipe, &shapes, &flows)?;
        let has_connections =
            flows.iter().any(|flow| shapes[flow.shape as usize].transport != Transport::Udp);
        let turns = |start: u32, end: u32| Turns { start, len: end - start, next: 0 };
        Ok(Generator {
            connections: if has_connections { vec![Connection::default(); flows.len()] } else { Vec::new() },
            turns: [turns(0, matching), turns(matching, count)],
            portion: Portion::new(share_of(recipe)),
            sizes: SizeChooser::new(&recipe.sizes),
            clock: Clock::new(recipe.rate, recipe.gaps, recipe.seed),
            faults: Faults::new(&recipe.bad, recipe.seed),
            whole: Whole::new(if recipe.fragment.is_some() { frame_max } else { 0 }),
            fragment: recipe.fragment.map(|limit| limit as usize),
            order: recipe.order,
            segments: recipe.segments,
            is_one_way: recipe.is_one_way,
            frame_max,
            mark: recipe.mark,
            sequence: 0,
            start: Timestamp::from_nanos(recipe.start_ns.unwrap_or(0)),
            made: 0,
            count: recipe.count.unwrap_or(u64::MAX),
            duration_ns: recipe.duration_ns.unwrap_or(u64::MAX),
            is_paced: recipe.rate != Rate::Free,
            has_ended: false,
            random: Random::new(recipe.seed, 0x7061_636b_6574),
            shapes,
            flows,
            pool,
            judge,
        })
    }

    /// Makes the first packet leave at `start`, which marks record. A recipe without a time of its own (`start=now`)
    /// needs it.
    #[must_use]
    pub fn starting(mut self, start: Timestamp) -> Generator {
        self.start = start;
        self
    }

    /// Length of the longest frame, in bytes, and so the least length of a buffer.
    pub fn frame_max(&self) -> usize {
        self.frame_max
    }

    /// Whether the recipe has a rate. Without one, packets leave as fast as they can, and the times of departures mean
    /// nothing to a sender.
    pub fn is_paced(&self) -> bool {
        self.is_paced
    }

    /// Packets made so far, and how many there will be, if that is known.
    pub fn progress(&self) -> (u64, Option<u64>) {
        (self.made, Some(self.count).filter(|count| *count != u64::MAX))
    }

    /// Number of flows.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Makes the next frame at the start of `out`; `None` once there are as many as the recipe says, or the duration is
    /// over.
    ///
    /// # Errors
    /// If `out` is shorter than [`frame_max`](Self::frame_max), or the filter's verdict on this packet differs from
    /// that on others of its flow.
    #[inline]
    pub fn next_into(&mut self, out: &mut [u8]) -> Result<Option<Departure>, Error> {
        if out.len() < self.frame_max {
            return Err(Error::Buffer { given: out.len(), needed: self.frame_max });
        }
        let at_ns = self.clock.now_ns();
        if self.made >= self.count || at_ns >= self.duration_ns || self.has_ended {
            return Ok(None);
        }
        let (len, mark) = if self.whole.is_pending() {
            (self.next_piece(out), None)
        } else {
            self.next_packet(out, at_ns)?
        };
        self.made += 1;
        self.clock.pass(len);
        Ok(Some(Departure { len: len as u32, at_ns, mark }))
    }

    #[inline]
    fn next_packet(&mut self, out: &mut [u8], at_ns: u64) -> Result<(usize, Option<MarkPlace>), Error> {
        let is_match = self.judge.is_none() || self.portion.next();
        let index = self.turns[usize::from(!is_match)].next(self.order, &mut self.random);
        let flow = &self.flows[index];
        let shape = &self.shapes[flow.shape as usize];
        let (sizes, random) = (&mut self.sizes, &mut self.random);
        // The payload begins elsewhere in each packet; the flow's own chance stays apart from that of sizes.
        let start = self.pool.start(random);
        // Scalars, not a segment: one that a call may write to memory would be read back in other widths than it was
        // written.
        let (seq, ack, flags, is_answer, payload, echo) = match shape.transport {
            Transport::Udp => (0, 0, 0, false, sizes.next(random) - shape.len(), 0),
            Transport::Tcp => {
                let mut chance = Random::new(random.bits(), 0);
                let connection = &mut self.connections[index];
                let draw = || sizes.next(random) - shape.len();
                let segment = connection.next(self.segments, self.is_one_way, &mut chance, draw);
                let Segment { seq, ack, flags, is_answer, payload } = segment;
                (seq, ack, flags, is_answer, payload, 0)
            }
            Transport::Icmp => {
                let echo = self.connections[index].next_echo();
                (0, 0, 0, false, sizes.next(random) - shape.len(), echo)
            }
        };
        let segment = Segment { seq, ack, flags, is_answer, payload };
        let bad = self.faults.next();
        let mark = self.mark.filter(|_| bad.is_none() && segment.payload >= MARK_LEN).map(|stream| {
            let sent = self.start.plus_nanos(at_ns as i64);
            let sequence = self.sequence;
            self.sequence += 1;
            Mark { stream, sequence, sent }
        });
        let packet = Packet { shape, flow, segment, echo, id: self.made as u16, start, mark };
        let len = packet.len();
        if self.fragment.is_some_and(|limit| len - shape.l3 > limit) {
            packet.write(&self.pool, &mut self.whole.bytes[..len]);
            let (port, id) = (flow.tunnel_port, self.made as u32);
            self.whole.begin(len, flow.shape as usize, id, port, packet.mark.is_some());
            return Ok((self.next_piece(out), None));
        }
        packet.write(&self.pool, &mut out[..len]);
        let place = packet.mark_place();
        if let Some(bad) = bad {
            return Ok((self.faults.spoil(bad, &mut out[..len], shape), None));
        }
        match &self.judge {
            Some(judge) if judge.accepts(&out[..len]) != is_match => Err(self.unsteady(len, is_match)),
            _ => Ok((len, place)),
        }
    }

    fn next_piece(&mut self, out: &mut [u8]) -> usize {
        let limit = self.fragment.unwrap_or(SIZE_MAX);
        self.whole.write_next(&self.shapes[self.whole.shape], limit, out)
    }

    #[cold]
    fn unsteady(&mut self, len: usize, is_match: bool) -> Error {
        self.has_ended = true;
        let verdict = if is_match { "does not match" } else { "matches" };
        let filter = self.judge.as_ref().map_or_else(String::new, |judge| judge.text.clone());
        Error::Unsteady { number: self.made + 1, len, verdict, filter }
    }
}

/// The protocols and versions that packets may have, in the order of their turns.
fn kinds(recipe: &Recipe) -> Vec<(Transport, IpVersion)> {
    let any = recipe.matching.is_some();
    let transports: &[Transport] = match recipe.transports.as_slice() {
        [] if any => &[Transport::Udp, Transport::Tcp, Transport::Icmp],
        [] => &[Transport::Udp],
        some => some,
    };
    let versions: &[IpVersion] = match recipe.versions.as_slice() {
        [] if any => &[IpVersion::V4, IpVersion::V6],
        [] => &[IpVersion::V4],
        some => some,
    };
    versions
        .iter()
        .flat_map(|&version| transports.iter().map(move |&transport| (transport, version)))
        .collect()
}

/// All flows of a recipe, those that match the filter first, and their number; without a filter all match.
fn all_flows(
    recipe: &Recipe,
    shapes: &[Shape],
    kinds: &[(Transport, IpVersion)],
    pool: &Pool,
    filter: Option<&FrameFilter>,
    frame_max: usize,
) -> Result<(Vec<Flow>, u32), Error> {
    let share = share_of(recipe);
    let is_split = share.over > 0 && share.over < share.under;
    let count = recipe.flows.unwrap_or(if is_split { 2 } else { 1 });
    if is_split && count < 2 {
        return Err(Error::unmet(
            "flows",
            "one flow cannot match and not match",
            "flows=2 or more, or leave share out",
        ));
    }
    let Some(judge) = filter else {
        let ranges: Vec<FlowRanges> = kinds.iter().map(|&(t, v)| FlowRanges::new(recipe, t, v)).collect();
        return Ok((flow::all(recipe, &ranges, count)?, count));
    };
    let search = Search { recipe, shapes, pool, judge, frame: vec![0; frame_max], seen: HashSet::new() };
    search.flows(share, count)
}

/// The share of the packets that is to match the filter.
fn share_of(recipe: &Recipe) -> Share {
    recipe.matching.as_ref().map_or(Share::ALL, |(_, share)| *share)
}

/// Checks of the recipe that need no flows.
fn check_alone(recipe: &Recipe) -> Result<(), Error> {
    let has_filter = recipe.matching.is_some();
    if has_filter && recipe.fragment.is_some() {
        let why = "of a packet in fragments only the first has ports, so a share of packets is not what a filter counts";
        return Err(Error::unmet("fragment", why, "leave fragment or match out"));
    }
    if has_filter && !recipe.bad.is_empty() {
        return Err(Error::unmet("bad", "malformed packets match by chance", "leave bad or match out"));
    }
    if recipe.fragment.is_some() && !recipe.bad.is_empty() {
        return Err(Error::unmet(
            "bad",
            "packets are either malformed or in fragments",
            "leave bad or fragment out",
        ));
    }
    let has_v4 = recipe.versions.is_empty() || recipe.versions.contains(&IpVersion::V4);
    let is_only_v4 = recipe.versions.iter().all(|version| *version == IpVersion::V4);
    if recipe.bad.iter().any(|(bad, _)| *bad == Malformation::IpChecksum) && !(has_v4 && is_only_v4) {
        return Err(Error::unmet(
            "bad",
            "the header of IPv6 has no checksum",
            "leave ip-checksum or ip6 out",
        ));
    }
    Ok(())
}

/// Checks that each size has room for the headers, and for the other contents of each packet.
fn check_shapes(recipe: &Recipe, shapes: &[Shape], flows: &[Flow]) -> Result<(), Error> {
    let size_min = recipe.sizes.bounds().0 as usize;
    let mark = if recipe.mark.is_some() { MARK_LEN } else { 0 };
    let mut used = vec![false; shapes.len()];
    flows.iter().for_each(|flow| used[flow.shape as usize] = true);
    for (shape, _) in shapes.iter().zip(used).filter(|(_, used)| *used) {
        let least = shape.len() + mark;
        if size_min < least {
            let what = match mark {
                0 => format!("{size_min} bytes are fewer than the headers have: {least}"),
                _ => {
                    format!("{size_min} bytes have no room for the headers and a mark of {MARK_LEN}: {least}")
                }
            };
            return Err(Error::unmet(
                "size",
                what,
                format!("size={least} or more, or a list that begins there"),
            ));
        }
        let limit = recipe.fragment.map(|limit| fragment::piece_max(limit as usize, shape.version));
        if mark > 0 && limit.is_some_and(|limit| limit < MARKED_PIECE_MIN) {
            let what = "such small fragments would cut a mark in two";
            return Err(Error::unmet("fragment", what, "fragment=100 or more, or leave mark out"));
        }
    }
    Ok(())
}
