//! Details of TCP: round-trip times of the handshake, retransmissions, packets out of order, zero windows.
//!
//! ```text
//! client      probe      server
//!   |--SYN------>|---------->|
//!   |            |<--SYN,ACK-|      server RTT: SYN/ACK - SYN
//!   |<-----------|           |
//!   |--ACK------>|           |      client RTT: ACK - SYN/ACK
//! ```
//!
//! Each side has the sequence number that comes next and the last holes that were left. With `len` of payload, SYN and
//! FIN:
//!
//! ```text
//! keep-alive       at most one byte, just before what comes next: not counted; so are probes of a closed window
//! retransmission   begins before what comes next, and lies in no hole; or lies in one that is older than the RTT
//! out of order     lies in a hole that is not older than the RTT of the handshake, or than 3 ms where that is not known
//! zero window      a window of 0 without SYN, FIN and RST
//! response         the server's first payload behind the client's first - the client's first
//! windows          the least and the greatest without SYN and RST, scaled where both sides announced a scale
//! ```
//!
//! The rule for old holes: a retransmission of a lost segment passes the probe at least one RTT after the hole was
//! seen.

use std::collections::TryReserveError;

use tapline_packet::numbers::ip_protocol::TCP;

use super::PacketView;
use super::pool::{NONE, PerSlot, Pool};

pub(super) const FIN: u8 = 0x01;
pub(super) const SYN: u8 = 0x02;
pub(super) const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// The age up to which a hole can be filled by reordering, where the RTT is not known, in nanoseconds.
const REORDERED: u64 = 3_000_000;
/// Holes of a side that are remembered.
const SEQUENCE_GAPS: usize = 3;

/// TCP's details of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tcp {
    /// From the SYN to the SYN/ACK, in nanoseconds: from here to the server and back. `None` if one of them was not
    /// seen, or more than once.
    pub server_rtt: Option<u64>,
    /// From the SYN/ACK to the ACK: from here to the client and back.
    pub client_rtt: Option<u64>,
    /// From the client's first payload to the server's next one, in nanoseconds: the time that the application takes,
    /// and one round trip to it. `None` if one of them, or the handshake that shows the client, was not seen.
    pub response: Option<u64>,
    /// By side of the flow.
    pub sides: [TcpSide; 2],
}

/// TCP's details of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpSide {
    /// Packets that were sent again.
    pub retransmitted: u32,
    /// Bytes of payload in these.
    pub retransmitted_bytes: u64,
    /// Packets that came later than such as were sent after them.
    pub out_of_order: u32,
    /// Packets that say that no more can be taken.
    pub zero_windows: u32,
    /// The maximum segment size of its SYN.
    pub mss: Option<u16>,
    /// The window scale of its SYN, a shift of 0 to 14.
    pub window_scale: Option<u8>,
    /// The least and the greatest window that the side announced after the handshake, in octets, scaled; `None` if
    /// the handshake, which has the scale, was not seen.
    pub windows: Option<(u32, u32)>,
}

/// A segment. Lengths are those on the wire, bytes the captured ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment<'p> {
    pub(super) seq: u32,
    ack: u32,
    pub(super) flags: u8,
    window: u16,
    options: &'p [u8],
    pub(super) payload: &'p [u8],
    pub(super) payload_len: u32,
}

impl<'p> Segment<'p> {
    /// Reads a header that was captured whole; `None` for other protocols, later fragments, and cut headers.
    #[inline]
    pub(super) fn read(protocol: u8, view: &PacketView<'p>) -> Option<Segment<'p>> {
        let span = view.span.filter(|_| protocol == TCP)?;
        let (at, end) = (span.l4 as usize, span.end as usize);
        let header = view.data.get(at..)?;
        let fixed: &[u8; 20] = header.first_chunk()?;
        let header_len = usize::from(fixed[12] >> 4) * 4;
        if header_len < 20 || at + header_len > end {
            return None;
        }
        let options = header.get(20..header_len).unwrap_or_default();
        let payload = view.data.get(at + header_len..end.min(view.data.len())).unwrap_or_default();
        let number = |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        Some(Segment {
            seq: number(4),
            ack: number(8),
            flags: fixed[13],
            window: u16::from_be_bytes([fixed[14], fixed[15]]),
            options,
            payload,
            payload_len: (end - at - header_len) as u32,
        })
    }

    /// Length of the segment in sequence space.
    fn len(&self) -> u32 {
        self.payload_len + u32::from(self.flags & SYN != 0) + u32::from(self.flags & FIN != 0)
    }

    /// Maximum segment size and window scale.
    fn options_seen(&self) -> (Option<u16>, Option<u8>) {
        let (mut mss, mut scale, mut rest) = (None, None, self.options);
        while let [kind, tail @ ..] = rest {
            rest = match (kind, tail) {
                (0, _) => break,
                (1, tail) => tail,
                (kind, [len, ..]) if *len >= 2 => {
                    let value = tail.get(1..usize::from(*len) - 1).unwrap_or_default();
                    match (kind, value) {
                        (2, [high, low]) => mss = Some(u16::from_be_bytes([*high, *low])),
                        (3, [shift]) => scale = Some(*shift),
                        _ => {}
                    }
                    tail.get(usize::from(*len) - 1..).unwrap_or_default()
                }
                _ => break,
            };
        }
        (mss, scale)
    }
}

/// The connections of all flows: an entry for each flow of TCP, and another for each of its sides of which packets were
/// missed, came again or closed a window.
pub(super) struct Connections {
    numbers: PerSlot<u32>,
    pool: Pool<Connection>,
    anomalies: Pool<Anomalies>,
}

impl Connections {
    pub(super) fn new(is_wanted: bool, flows_max: usize) -> Result<Connections, TryReserveError> {
        let most = if is_wanted { flows_max } else { 0 };
        Ok(Connections {
            numbers: PerSlot::new(is_wanted, flows_max)?,
            pool: Pool::new(most)?,
            anomalies: Pool::new(most.saturating_mul(2))?,
        })
    }

    /// Bytes that a flow takes at most.
    pub(super) fn flow_len() -> usize {
        size_of::<u32>() + Pool::<Connection>::entry_len() + 2 * Pool::<Anomalies>::entry_len()
    }

    pub(super) fn refused(&self) -> u64 {
        self.pool.refused + self.anomalies.refused
    }

    pub(super) fn begin(&mut self, slot: u32) {
        self.numbers.begin(slot, NONE);
    }

    #[inline]
    pub(super) fn prefetch_number(&self, slot: u32) {
        self.numbers.prefetch(slot);
    }

    #[inline]
    pub(super) fn prefetch_entry(&self, slot: u32) {
        if let Some(number) = self.numbers.peek(slot) {
            self.pool.prefetch(*number);
        }
    }

    pub(super) fn add(&mut self, slot: u32, side: usize, segment: &Segment<'_>, time: i64) {
        let Some(number) = self.numbers.get(slot) else { return };
        if let Some(connection) = self.pool.get_or_take(number) {
            connection.add(side, segment, time, &mut self.anomalies);
        }
    }

    /// The details at the end of a TCP flow; `first` is the side that sent first.
    pub(super) fn end(&mut self, slot: u32, protocol: u8, first: usize) -> Option<Tcp> {
        let number = self.numbers.get(slot)?;
        let mut connection = self.pool.get(*number).copied().unwrap_or_default();
        self.pool.give(number);
        let tcp = connection.finish(protocol, first, &mut self.anomalies);
        connection.ends.iter_mut().for_each(|end| self.anomalies.give(&mut end.anomalies));
        tcp
    }

    pub(super) fn clear(&mut self) {
        self.numbers.clear();
        self.pool.clear();
        self.anomalies.clear();
    }
}

/// A connection while it lasts, by sides of the key.
#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    ends: [End; 2],
    syn: i64,
    syn_ack: i64,
    server_rtt: Duration,
    client_rtt: Duration,
    /// When the client's first payload came, if it has.
    request: i64,
    response: Duration,
    /// The sequence number that acknowledges the SYN/ACK.
    acknowledges: u32,
    /// Number of SYNs, up to two.
    syns: u8,
    syn_acks: u8,
    /// The side of the client, once there was a SYN.
    client: u8,
    has_request: bool,
}

/// A time in nanoseconds that may be unknown, in eight bytes.
#[derive(Clone, Copy, Debug)]
struct Duration(u64);

impl Duration {
    const UNKNOWN: Duration = Duration(u64::MAX);

    fn known(self) -> Option<u64> {
        (self.0 != u64::MAX).then_some(self.0)
    }
}

impl Default for Duration {
    fn default() -> Duration {
        Duration::UNKNOWN
    }
}

#[derive(Clone, Copy, Debug)]
struct End {
    next: u32,
    /// The number of its [`Anomalies`].
    anomalies: u32,
    mss: Option<u16>,
    window_scale: Option<u8>,
    is_known: bool,
    /// Windows without SYN and RST, not scaled; the least is greater than the greatest before there was one.
    window_min: u16,
    window_max: u16,
}

impl Default for End {
    fn default() -> End {
        End {
            next: 0,
            anomalies: NONE,
            mss: None,
            window_scale: None,
            is_known: false,
            window_min: u16::MAX,
            window_max: 0,
        }
    }
}

/// Counters that stay 0 in most directions.
#[derive(Clone, Copy, Debug, Default)]
struct Anomalies {
    retransmitted_bytes: u64,
    retransmitted: u32,
    out_of_order: u32,
    zero_windows: u32,
    gaps: [SequenceGap; SEQUENCE_GAPS],
}

/// Numbers that were left out, and when; none if it ends where it begins.
#[derive(Clone, Copy, Debug, Default)]
struct SequenceGap {
    from: u32,
    to: u32,
    since: i64,
}

impl Connection {
    fn add(&mut self, side: usize, segment: &Segment<'_>, time: i64, anomalies: &mut Pool<Anomalies>) {
        self.handshake(side as u8, segment, time);
        let halves = self.server_rtt.known().zip(self.client_rtt.known());
        let rtt = halves.map_or(REORDERED, |(server, client)| server.saturating_add(client));
        self.ends[side].add(segment, time, rtt, anomalies);
        if segment.payload_len > 0 && self.response.known().is_none() && self.syns + self.syn_acks > 0 {
            self.exchange(side as u8, time);
        }
    }

    /// Times the first request.
    fn exchange(&mut self, side: u8, time: i64) {
        if side == self.client && !self.has_request {
            (self.request, self.has_request) = (time, true);
        } else if side != self.client && self.has_request {
            self.response = Duration(time.saturating_sub(self.request).max(0) as u64);
        }
    }

    /// Times the handshake. A repeated SYN or SYN/ACK leaves open which one was answered, so there is no RTT then.
    fn handshake(&mut self, side: u8, segment: &Segment<'_>, time: i64) {
        let since = |then: i64| Duration(time.saturating_sub(then).max(0) as u64);
        match segment.flags & (SYN | ACK | RST) {
            SYN if self.syn_acks == 0 => {
                (self.syns, self.syn, self.client) = ((self.syns + 1).min(2), time, side);
            }
            flags if flags == SYN | ACK => {
                self.syn_acks = (self.syn_acks + 1).min(2);
                self.server_rtt = match (self.syns, self.syn_acks) {
                    (1, 1) if self.client != side => since(self.syn),
                    _ => self.server_rtt,
                };
                self.client = 1 - side;
                (self.syn_ack, self.acknowledges) = (time, segment.seq.wrapping_add(1));
            }
            ACK if self.syn_acks == 1 && self.client_rtt.known().is_none() && self.client == side => {
                if segment.ack == self.acknowledges {
                    self.client_rtt = since(self.syn_ack);
                } else {
                    // The one that answers was not seen.
                    self.syn_acks = 2;
                }
            }
            _ => {}
        }
    }

    /// The shifts of both sides' windows: they count only where both have announced one (RFC 7323, 2.2). `None` where
    /// the handshake was not seen.
    fn window_scales(&self) -> Option<[u8; 2]> {
        let scales = self.ends.map(|end| end.window_scale);
        let is_seen = self.syns > 0 && self.syn_acks > 0;
        is_seen.then(|| match scales {
            [Some(one), Some(other)] => [one.min(14), other.min(14)],
            _ => [0, 0],
        })
    }

    /// The details at the end; `first` is the side that sent first.
    fn finish(&self, protocol: u8, first: usize, anomalies: &mut Pool<Anomalies>) -> Option<Tcp> {
        let mut sides = [first, 1 - first].map(|side| self.ends[side].statistics(anomalies));
        let scales = self.window_scales();
        for (side, end) in sides.iter_mut().zip([first, 1 - first]) {
            side.windows = scales.and_then(|scales| self.ends[end].windows(scales[end]));
        }
        let (server_rtt, client_rtt) = (self.server_rtt.known(), self.client_rtt.known());
        (protocol == TCP).then_some(Tcp { server_rtt, client_rtt, response: self.response.known(), sides })
    }
}

impl End {
    fn statistics(&self, anomalies: &mut Pool<Anomalies>) -> TcpSide {
        let anomalies = anomalies.get(self.anomalies).copied().unwrap_or_default();
        TcpSide {
            retransmitted: anomalies.retransmitted,
            retransmitted_bytes: anomalies.retransmitted_bytes,
            out_of_order: anomalies.out_of_order,
            zero_windows: anomalies.zero_windows,
            mss: self.mss,
            window_scale: self.window_scale,
            windows: None,
        }
    }

    fn windows(&self, scale: u8) -> Option<(u32, u32)> {
        let scaled = |window: u16| u32::from(window) << scale;
        (self.window_min <= self.window_max).then(|| (scaled(self.window_min), scaled(self.window_max)))
    }

    fn add(&mut self, segment: &Segment<'_>, time: i64, rtt: u64, anomalies: &mut Pool<Anomalies>) {
        let Segment { seq, flags, window, payload_len, .. } = *segment;
        if flags & SYN != 0 {
            let (mss, window_scale) = segment.options_seen();
            (self.mss, self.window_scale) = (mss.or(self.mss), window_scale.or(self.window_scale));
        }
        if flags & (SYN | RST) == 0 {
            self.window_min = self.window_min.min(window);
            self.window_max = self.window_max.max(window);
        }
        if window == 0
            && flags & (SYN | FIN | RST) == 0
            && let Some(anomalies) = anomalies.get_or_take(&mut self.anomalies)
        {
            anomalies.zero_windows = anomalies.zero_windows.saturating_add(1);
        }
        if flags & RST != 0 {
            return;
        }
        let len = segment.len();
        let end = seq.wrapping_add(len);
        if !self.is_known {
            (self.next, self.is_known) = (end, true);
            return;
        }
        let ahead = seq.wrapping_sub(self.next) as i32;
        let is_probe = len == 1 && payload_len == 1 && ahead == -1;
        let is_behind = ahead < 0 && len > 0 && !is_probe;
        if (ahead > 0 || is_behind)
            && let Some(anomalies) = anomalies.get_or_take(&mut self.anomalies)
        {
            if ahead > 0 {
                // Also what is empty tells that something before it was not seen.
                anomalies.open(SequenceGap { from: self.next, to: seq, since: time });
            } else {
                anomalies.behind((seq, end), payload_len, time, rtt);
            }
        }
        if end.wrapping_sub(self.next) as i32 > 0 {
            self.next = end;
        }
    }
}

impl Anomalies {
    /// Handles a segment that begins before the next expected byte.
    fn behind(&mut self, (seq, end): (u32, u32), payload_len: u32, time: i64, rtt: u64) {
        match fill(&mut self.gaps, seq, end, time) {
            Some(age) if age <= rtt => self.out_of_order = self.out_of_order.saturating_add(1),
            _ => {
                self.retransmitted = self.retransmitted.saturating_add(1);
                self.retransmitted_bytes += u64::from(payload_len);
            }
        }
    }

    /// Records a gap, over the oldest one if all entries are used.
    fn open(&mut self, gap: SequenceGap) {
        let free = self.gaps.iter().position(SequenceGap::is_none);
        let oldest = || (0..SEQUENCE_GAPS).min_by_key(|at| self.gaps[*at].since).unwrap_or(0);
        let at = free.unwrap_or_else(oldest);
        self.gaps[at] = gap;
    }
}

impl SequenceGap {
    fn is_none(&self) -> bool {
        self.from == self.to
    }
}

/// Takes numbers out of the holes. How old the oldest of those is that had some of them.
fn fill(gaps: &mut [SequenceGap; SEQUENCE_GAPS], from: u32, to: u32, time: i64) -> Option<u64> {
    let mut age = None;
    for at in 0..SEQUENCE_GAPS {
        let gap = gaps[at];
        let (left, right) = (from.wrapping_sub(gap.from) as i32, to.wrapping_sub(gap.to) as i32);
        let is_beside = to.wrapping_sub(gap.from) as i32 <= 0 || from.wrapping_sub(gap.to) as i32 >= 0;
        if gap.is_none() || is_beside {
            continue;
        }
        age = age.max(Some(time.saturating_sub(gap.since).max(0) as u64));
        // The part of the gap before, behind, or on both sides of the segment stays; of two parts the second takes a
        // free slot.
        gaps[at] = match (left > 0, right < 0) {
            (true, false) => SequenceGap { to: from, ..gap },
            (false, true) => SequenceGap { from: to, ..gap },
            (false, false) => SequenceGap::default(),
            (true, true) => {
                if let Some(free) = gaps.iter_mut().find(|gap| gap.is_none()) {
                    *free = SequenceGap { from: to, ..gap };
                }
                SequenceGap { to: from, ..gap }
            }
        };
    }
    age
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn segment(flags: u8, seq: u32, ack: u32, len: u32) -> Segment<'static> {
        Segment { seq, ack, flags, window: 100, options: &[], payload: &[], payload_len: len }
    }

    /// Client 0, server 1: SYN at 0, SYN/ACK at 20 ms, ACK at 25 ms. Then the client's segments, at times in ms.
    fn connection(then: &[(u32, u32, i64)]) -> Tcp {
        let (mut connection, mut anomalies) = (Connection::default(), Pool::new(9).unwrap());
        connection.add(0, &segment(SYN, u32::MAX, 0, 0), 0, &mut anomalies);
        connection.add(1, &segment(SYN | ACK, 5000, 0, 0), 20 * MS, &mut anomalies);
        connection.add(0, &segment(ACK, 0, 5001, 0), 25 * MS, &mut anomalies);
        for (seq, len, ms) in then {
            connection.add(0, &segment(ACK, *seq, 5001, *len), ms * MS, &mut anomalies);
        }
        connection.finish(6, 0, &mut anomalies).expect("it is TCP")
    }

    #[test]
    fn the_handshake_tells_both_halves_of_the_way() {
        let tcp = connection(&[]);
        assert_eq!((tcp.server_rtt, tcp.client_rtt), (Some(20_000_000), Some(5_000_000)));
        let mut anomalies = Pool::new(1).unwrap();
        assert_eq!(Connection::default().finish(17, 0, &mut anomalies), None);
    }

    #[test]
    fn a_handshake_that_was_begun_twice_tells_less() {
        let mut anomalies = Pool::new(9).unwrap();
        let mut twice = Connection::default();
        for (side, flags, seq, ack, ms) in
            [(0, SYN, 9, 0, 0), (0, SYN, 9, 0, 1000), (1, SYN | ACK, 70, 10, 1020), (0, ACK, 10, 71, 1030)]
        {
            twice.add(side, &segment(flags, seq, ack, 0), ms * MS, &mut anomalies);
        }
        let tcp = twice.finish(6, 0, &mut anomalies).unwrap();
        assert_eq!((tcp.server_rtt, tcp.client_rtt), (None, Some(10_000_000)));
        assert_eq!(tcp.sides[0].retransmitted, 1, "the SYN came again");
        // The ACK that answers was not seen, only a later one.
        let mut late = Connection::default();
        for (side, flags, seq, ack, ms) in
            [(0, SYN, 9, 0, 0), (1, SYN | ACK, 70, 10, 20), (0, ACK, 10, 99, 300), (0, ACK, 10, 71, 400)]
        {
            late.add(side, &segment(flags, seq, ack, 0), ms * MS, &mut anomalies);
        }
        assert_eq!(late.finish(6, 0, &mut anomalies).unwrap().client_rtt, None);
    }

    #[test]
    fn retransmissions_are_told_from_reordering() {
        let side = |then: &[(u32, u32, i64)]| connection(then).sides[0];
        let counts = |side: TcpSide| (side.retransmitted, side.retransmitted_bytes, side.out_of_order);
        // In order; sequence numbers start over in between.
        assert_eq!(counts(side(&[(0, 100, 30), (100, 100, 31), (200, 1, 32)])), (0, 0, 0));
        // The same again.
        assert_eq!(counts(side(&[(0, 100, 30), (0, 100, 31), (0, 100, 32)])), (2, 200, 0));
        // A hole is filled in time, and too late (the RTT is 25 ms).
        assert_eq!(counts(side(&[(0, 100, 30), (200, 100, 31), (100, 100, 32)])), (0, 0, 1));
        assert_eq!(counts(side(&[(0, 100, 30), (200, 100, 31), (100, 100, 58)])), (1, 100, 0));
        // From both ends, from the middle, and then again.
        let parts =
            [(0, 100, 30), (400, 100, 31), (200, 100, 32), (100, 100, 33), (300, 100, 33), (300, 100, 34)];
        assert_eq!(counts(side(&parts)), (1, 100, 3));
        // Partly new.
        assert_eq!(counts(side(&[(0, 100, 30), (50, 100, 31), (150, 10, 32)])), (1, 100, 0));
        // An empty one tells of the hole.
        assert_eq!(counts(side(&[(0, 100, 30), (200, 0, 31), (100, 100, 32)])), (0, 0, 1));
        // Keep-alives and probes of a window.
        assert_eq!(
            counts(side(&[(0, 100, 30), (99, 1, 31), (99, 0, 32), (99, 1, 33), (100, 5, 34)])),
            (0, 0, 0)
        );
    }

    #[test]
    fn more_holes_than_are_remembered_do_no_harm() {
        let mut then: Vec<(u32, u32, i64)> = (0..50).map(|at| (at * 200, 100, 30 + i64::from(at))).collect();
        then.extend((0..49).map(|at| (at * 200 + 100, 100, 80)));
        let side = connection(&then).sides[0];
        assert_eq!(side.retransmitted + side.out_of_order, 49);
        assert_eq!(side.out_of_order, 3);
    }

    #[test]
    fn windows_and_options_are_read() {
        let (mut end, mut anomalies) = (End::default(), Pool::new(9).unwrap());
        let options = [1, 1, 2, 4, 0x05, 0xb4, 4, 2, 3, 3, 7, 8];
        end.add(&Segment { options: &options, ..segment(SYN, 1, 0, 0) }, 0, 0, &mut anomalies);
        for flags in [ACK, ACK | FIN, RST, ACK] {
            end.add(&Segment { window: 0, ..segment(flags, 2, 0, 0) }, 0, 0, &mut anomalies);
        }
        let statistics = end.statistics(&mut anomalies);
        assert_eq!(
            (statistics.mss, statistics.window_scale, statistics.zero_windows),
            (Some(1460), Some(7), 2)
        );
        for broken in [&[2, 4, 5][..], &[2, 0, 1, 1], &[3], &[2, 1, 0], &[254, 255, 0]] {
            assert_eq!(Segment { options: broken, ..segment(SYN, 1, 0, 0) }.options_seen(), (None, None));
        }
    }
}
