//! All connections: which segment is due, which waits, and for how long.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tapline_packet::headers::{FiveTuple, Headers};
use tapline_packet::{Meta, Packet};

use crate::account::{Account, GapCause, Refusal};
use crate::direction::{Direction, WaitingSegment};
use crate::event::{EndCause, Event, Limits, PacketFate, Piece, Stream};
use crate::segment::Segment;

/// A reset with a number further ahead than this is none of the connection's.
const RESET_REACH: i64 = 1 << 20;

struct Connection {
    number: u64,
    /// The key: the canonical direction.
    key: FiveTuple,
    /// Whether the canonical direction is the client's.
    is_key_from_client: bool,
    has_syn: bool,
    /// The direction of the key, and the other.
    directions: [Direction; 2],
    /// The time of the last packet, no earlier than that of any packet before it.
    seen: i64,
    /// The time of the last packet as it was captured; `None` if it has none.
    packet_ns: Option<i64>,
    older: Option<usize>,
    newer: Option<usize>,
}

impl Connection {
    fn stream(&self, way: usize) -> Stream {
        let is_key = way == 0;
        Stream {
            connection: self.number,
            tuple: if is_key { self.key } else { self.key.reversed() },
            is_from_client: is_key == self.is_key_from_client,
            has_syn: self.has_syn,
            offset: self.directions[way].position,
            time_ns: self.packet_ns,
        }
    }

    /// The offset in the opposite stream of a number that a direction acknowledges.
    fn acknowledged(&self, way: usize, ack: Option<u32>) -> Option<u64> {
        u64::try_from(self.directions[1 - way].offset(ack?)?).ok()
    }

    fn holds(&self) -> bool {
        self.directions.iter().any(|direction| direction.held_count() > 0)
    }
}

/// Puts the segments of TCP connections in order. Takes the time from the packets.
pub struct Reassembler {
    limits: Limits,
    by_key: HashMap<FiveTuple, usize>,
    /// Connections, and free places.
    places: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// The ends of the list of connections by their last packet.
    oldest: Option<usize>,
    newest: Option<usize>,
    /// Connections that hold segments, by when they began to: their place and number.
    holders: VecDeque<(usize, u64)>,
    account: Account,
    now: i64,
}

/// The receiver of events.
type Sink<'a> = &'a mut dyn FnMut(&Stream, Event<'_>);

impl Reassembler {
    /// Makes a reassembler that has seen nothing.
    pub fn new(limits: Limits) -> Reassembler {
        Reassembler {
            limits: Limits { connections: limits.connections.max(1), ..limits },
            by_key: HashMap::new(),
            places: Vec::new(),
            free: Vec::new(),
            oldest: None,
            newest: None,
            holders: VecDeque::new(),
            account: Account::default(),
            now: i64::MIN,
        }
    }

    /// The sums up to now.
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Takes the next packet, and reports the resulting events.
    pub fn push(&mut self, headers: &Headers, packet: Packet<'_>, sink: Sink<'_>) -> PacketFate {
        let Some(segment) = Segment::of(headers, packet) else { return PacketFate::NotTcp };
        self.now = self.now.max(packet.meta.timestamp.as_nanos());
        self.end_idle(sink);
        let (at, way) = self.connection_of(&segment, sink);
        if let Some(connection) = &mut self.places[at] {
            connection.packet_ns = time_ns(packet.meta);
        }
        let taken = self.take(at, way, &segment, packet, sink);
        if let (Some(ack), Some(connection)) = (segment.ack, &mut self.places[at]) {
            connection.directions[1 - way].acknowledge(ack, self.now);
        }
        self.close_acknowledged(at, sink);
        taken
    }

    /// Advances the time without a packet: connections that were silent for too long end.
    pub fn tick(&mut self, now_ns: i64, sink: Sink<'_>) {
        self.now = self.now.max(now_ns);
        self.end_idle(sink);
        let patience = nanoseconds(self.limits.patience);
        for index in 0..self.holders.len() {
            let (at, number) = self.holders[index];
            let lacks = |direction: &Direction| {
                direction.lacking_since.is_some_and(|since| self.now.saturating_sub(since) >= patience)
            };
            if self.connection(at, number).is_some_and(|one| one.directions.iter().any(lacks)) {
                self.close_acknowledged(at, sink);
            }
        }
    }

    /// Ends all streams.
    pub fn finish(&mut self, sink: Sink<'_>) {
        while let Some(at) = self.oldest {
            self.remove(at, EndCause::CaptureEnd, sink);
        }
    }

    fn connection(&self, at: usize, number: u64) -> Option<&Connection> {
        self.places.get(at)?.as_ref().filter(|connection| connection.number == number)
    }

    /// The connection of a segment, which is now the newest, and the way of the segment in it.
    fn connection_of(&mut self, segment: &Segment, sink: Sink<'_>) -> (usize, usize) {
        let key = segment.tuple.canonical();
        let way = usize::from(key != segment.tuple);
        if let Some(&at) = self.by_key.get(&key) {
            if !self.is_another(at, way, segment) {
                self.unlink(at);
                self.link(at);
                return (at, way);
            }
            self.remove(at, EndCause::Replaced, sink);
        }
        if self.by_key.len() == self.limits.connections
            && let Some(oldest) = self.oldest
        {
            self.account.evicted += 1;
            self.remove(oldest, EndCause::Evicted, sink);
        }
        (self.insert(key, way, segment), way)
    }

    /// Whether a segment opens another connection between the same ports: SYN with another number.
    fn is_another(&self, at: usize, way: usize, segment: &Segment) -> bool {
        let Some(connection) = &self.places[at] else { return true };
        let direction = &connection.directions[way];
        let is_opening = segment.is_syn && segment.ack.is_none() && direction.has_begun();
        is_opening && direction.offset(segment.sequence) != Some(0)
    }

    fn insert(&mut self, key: FiveTuple, way: usize, segment: &Segment) -> usize {
        // What answers a SYN comes from the server.
        let is_server = segment.is_syn && segment.ack.is_some();
        let connection = Connection {
            number: self.account.connections,
            key,
            is_key_from_client: (way == 0) != is_server,
            has_syn: false,
            directions: Default::default(),
            seen: self.now,
            packet_ns: None,
            older: None,
            newer: None,
        };
        self.account.connections += 1;
        let at = self.free.pop().unwrap_or(self.places.len());
        if at == self.places.len() {
            self.places.push(None);
        }
        self.places[at] = Some(connection);
        self.by_key.insert(key, at);
        self.link(at);
        at
    }

    /// Puts a connection behind all others.
    fn link(&mut self, at: usize) {
        let newest = self.newest.replace(at);
        if let Some(connection) = &mut self.places[at] {
            (connection.older, connection.newer, connection.seen) = (newest, None, self.now);
        }
        match newest.and_then(|newest| self.places[newest].as_mut()) {
            Some(newest) => newest.newer = Some(at),
            None => self.oldest = Some(at),
        }
    }

    fn unlink(&mut self, at: usize) {
        let Some(Connection { older, newer, .. }) = self.places[at] else { return };
        match older.and_then(|older| self.places[older].as_mut()) {
            Some(one) => one.newer = newer,
            None => self.oldest = newer,
        }
        match newer.and_then(|newer| self.places[newer].as_mut()) {
            Some(one) => one.older = older,
            None => self.newest = older,
        }
    }

    fn end_idle(&mut self, sink: Sink<'_>) {
        let idle = nanoseconds(self.limits.idle);
        while let Some(at) = self.oldest {
            let seen = self.places[at].as_ref().map_or(self.now, |connection| connection.seen);
            if self.now.saturating_sub(seen) < idle {
                return;
            }
            self.remove(at, EndCause::Idle, sink);
        }
    }

    /// Forgets a connection, after its held bytes were handed on.
    fn remove(&mut self, at: usize, cause: EndCause, sink: Sink<'_>) {
        for way in 0..2 {
            self.end(at, way, cause, sink);
        }
        self.unlink(at);
        if let Some(connection) = self.places[at].take() {
            self.by_key.remove(&connection.key);
            let client = usize::from(!connection.is_key_from_client);
            sink(&connection.stream(client), Event::Forgotten);
        }
        self.free.push(at);
    }

    /// Ends a direction that has begun: all that it holds is handed on, with gaps.
    fn end(&mut self, at: usize, way: usize, cause: EndCause, sink: Sink<'_>) {
        while let Some(gap) = self.direction(at, way).and_then(|direction| direction.first_gap()) {
            self.close_gap(at, way, (gap, GapCause::Ended), sink);
        }
        let Some(direction) = self.direction(at, way) else { return };
        let rest = direction.fin.map_or(0, |fin| fin.saturating_sub(direction.position));
        if rest > 0 && !direction.is_over {
            self.tell_gap(at, way, (rest, GapCause::Ended), sink);
        }
        self.tell_end(at, way, cause, sink);
    }

    /// Ends a direction once. Its held bytes are behind its end.
    fn tell_end(&mut self, at: usize, way: usize, cause: EndCause, sink: Sink<'_>) {
        let Some(connection) = &mut self.places[at] else { return };
        let direction = &mut connection.directions[way];
        if !direction.has_begun() || direction.is_over {
            return;
        }
        direction.is_over = true;
        while let Some(held) = direction.take_first() {
            self.account.release(&held);
            self.account.give_up(Refusal::AfterEnd, held.len);
        }
        let cause = if direction.is_reset { EndCause::Reset } else { cause };
        sink(&connection.stream(way), Event::End(cause));
    }

    fn direction(&mut self, at: usize, way: usize) -> Option<&mut Direction> {
        Some(&mut self.places[at].as_mut()?.directions[way])
    }

    /// Takes a segment of a connection.
    fn take(
        &mut self,
        at: usize,
        way: usize,
        segment: &Segment,
        packet: Packet<'_>,
        sink: Sink<'_>,
    ) -> PacketFate {
        self.account.received += segment.len();
        let Some(connection) = &mut self.places[at] else { return PacketFate::Refused };
        let direction = &mut connection.directions[way];
        let has_more = segment.len() > 0 || segment.missing > 0 || segment.is_fin;
        if segment.is_syn {
            connection.has_syn |= direction.is_untouched();
            if direction.is_untouched() {
                direction.begin(segment.sequence);
            }
        }
        if !direction.has_begun() && has_more {
            direction.begin(segment.sequence);
        }
        if segment.is_rst {
            return self.reset(at, way, segment, packet, sink);
        }
        if !has_more {
            self.pass_plain(at, way, segment, packet, sink);
            return PacketFate::Passed;
        }
        self.take_span(at, way, segment, packet, sink)
    }

    /// Takes a segment that has bytes or FIN.
    fn take_span(
        &mut self,
        at: usize,
        way: usize,
        segment: &Segment,
        packet: Packet<'_>,
        sink: Sink<'_>,
    ) -> PacketFate {
        let Some(direction) = self.direction(at, way) else { return PacketFate::Refused };
        let (position, is_over) = (direction.position, direction.is_over);
        let Some(offset) = direction.offset(segment.sequence) else {
            self.account.give_up(Refusal::OutOfWindow, segment.len());
            return PacketFate::Refused;
        };
        let len = segment.len();
        let span = len + u64::from(segment.missing);
        // Bytes from before the first of the stream.
        let early = u64::try_from(-offset).unwrap_or(0).min(len);
        if early > 0 {
            self.account.give_up(Refusal::BeforeStart, early);
        }
        let start = u64::try_from(offset).unwrap_or(0);
        let end = u64::try_from(offset + span as i64).unwrap_or(0);
        if is_over && end > position {
            let old = position.saturating_sub(start).min(len - early);
            self.account.duplicate += old;
            self.account.give_up(Refusal::AfterEnd, len - early - old);
            return PacketFate::Refused;
        }
        let Some(direction) = self.direction(at, way) else { return PacketFate::Refused };
        // A receiver takes no end from before its next byte, and of several the first that it comes to.
        if segment.is_fin && !is_over && end >= position {
            direction.fin = Some(direction.fin.map_or(end, |fin| fin.min(end)));
        }
        let adds_fin = segment.is_fin && !is_over && end >= position;
        let is_known = end <= position || direction.holds(start, end);
        if is_known && !adds_fin {
            self.account.duplicate += len - early;
            return PacketFate::Refused;
        }
        let held = WaitingSegment {
            data: Box::default(),
            meta: *packet.meta,
            payload_at: segment.payload.start,
            early: early as usize,
            len: len - early,
            missing: (end - start).saturating_sub(len - early),
            ack: segment.ack,
        };
        if start > position {
            self.hold(at, way, start, WaitingSegment { data: packet.data.into(), ..held });
            self.bound_memory(at, way, sink);
            return PacketFate::Held;
        }
        self.deliver(at, way, start, &held, packet, true, sink);
        self.deliver_due(at, way, sink);
        PacketFate::Passed
    }

    fn hold(&mut self, at: usize, way: usize, start: u64, held: WaitingSegment) {
        self.account.hold(&held);
        let Some(connection) = &mut self.places[at] else { return };
        if !connection.holds() {
            self.holders.push_back((at, connection.number));
        }
        connection.directions[way].hold(start, held);
        if self.holders.len() > 2 * self.by_key.len() + 64 {
            self.forget_former_holders();
        }
    }

    /// Connections that hold nothing any more leave the list of those that do.
    fn forget_former_holders(&mut self) {
        let mut holders = std::mem::take(&mut self.holders);
        let mut known = std::collections::HashSet::new();
        holders.retain(|&(at, number)| {
            self.connection(at, number).is_some_and(Connection::holds) && known.insert(number)
        });
        self.holders = holders;
    }

    /// Gives up gaps until the bytes behind them are within bounds.
    fn bound_memory(&mut self, at: usize, way: usize, sink: Sink<'_>) {
        let most = self.limits.stream_bytes;
        while let Some(direction) = self.direction(at, way)
            && direction.memory > most
            && let Some(gap) = direction.first_gap()
        {
            self.close_gap(at, way, (gap, GapCause::Room), sink);
        }
        while self.account.memory > self.limits.bytes as u64
            && let Some((at, number)) = self.holders.pop_front()
        {
            for way in 0..2 {
                while self.connection(at, number).is_some()
                    && let Some(gap) = self.direction(at, way).and_then(|direction| direction.first_gap())
                {
                    self.close_gap(at, way, (gap, GapCause::Room), sink);
                }
            }
        }
    }

    /// Gives up gaps that the receiver does not have, once they were waited for.
    fn close_acknowledged(&mut self, at: usize, sink: Sink<'_>) {
        let patience = nanoseconds(self.limits.patience);
        for way in 0..2 {
            let now = self.now;
            let is_due = |direction: &&mut Direction| {
                direction.lacking_since.is_some_and(|since| now.saturating_sub(since) >= patience)
            };
            if self.direction(at, way).filter(is_due).is_none() {
                continue;
            }
            while let Some(gap) =
                self.direction(at, way).and_then(|direction| direction.first_gap_acknowledged())
            {
                self.close_gap(at, way, (gap, GapCause::Acknowledged), sink);
            }
            if let Some(direction) = self.direction(at, way) {
                direction.lacking_since = None;
            }
        }
    }

    /// Skips missing bytes up to those that wait behind them.
    fn close_gap(&mut self, at: usize, way: usize, gap: (u64, GapCause), sink: Sink<'_>) {
        self.tell_gap(at, way, gap, sink);
        self.deliver_due(at, way, sink);
    }

    fn tell_gap(&mut self, at: usize, way: usize, (len, cause): (u64, GapCause), sink: Sink<'_>) {
        let Some(connection) = &mut self.places[at] else { return };
        if len == 0 {
            return;
        }
        let stream = connection.stream(way);
        connection.directions[way].advance(len);
        self.account.miss(cause, len);
        sink(&stream, Event::Gap { len, cause });
    }

    /// Hands on held segments whose turn has come.
    fn deliver_due(&mut self, at: usize, way: usize, sink: Sink<'_>) {
        while let Some((start, held)) = self.direction(at, way).and_then(|direction| direction.take_due()) {
            self.account.release(&held);
            let packet = Packet { data: &held.data, meta: &held.meta };
            self.deliver(at, way, start, &held, packet, false, sink);
        }
    }

    /// Hands on a segment that begins at `start`, which has come: its new bytes, and the gap behind them that was not
    /// captured.
    #[allow(clippy::too_many_arguments, reason = "place, segment, and the receiver")]
    fn deliver(
        &mut self,
        at: usize,
        way: usize,
        start: u64,
        held: &WaitingSegment,
        packet: Packet<'_>,
        is_current: bool,
        sink: Sink<'_>,
    ) {
        let Some(connection) = &mut self.places[at] else { return };
        let stream = Stream { time_ns: time_ns(packet.meta), ..connection.stream(way) };
        let acknowledged = connection.acknowledged(way, held.ack);
        let direction = &mut connection.directions[way];
        let skipped = (direction.position - start).min(held.len);
        let len = held.len - skipped;
        self.account.duplicate += skipped;
        self.account.delivered += len;
        direction.advance(len);
        let rest = (start + held.len + held.missing).saturating_sub(direction.position);
        let is_end = direction.fin.is_some_and(|fin| fin <= direction.position + rest);
        if len > 0 || held.len == 0 || is_end {
            let (skipped, len) = (held.early + skipped as usize, len as usize);
            let piece = Piece { packet, payload_at: held.payload_at, skipped, len, is_current, acknowledged };
            sink(&stream, Event::Segment(piece));
        }
        self.tell_gap(at, way, (rest, GapCause::NotCaptured), sink);
        if is_end {
            self.tell_end(at, way, EndCause::Finished, sink);
        }
    }

    /// Hands on a segment without bytes.
    fn pass_plain(&mut self, at: usize, way: usize, segment: &Segment, packet: Packet<'_>, sink: Sink<'_>) {
        if let Some(connection) = &self.places[at] {
            let payload_at = segment.payload.start;
            let acknowledged = connection.acknowledged(way, segment.ack);
            let piece = Piece { packet, payload_at, skipped: 0, len: 0, is_current: true, acknowledged };
            sink(&connection.stream(way), Event::Segment(piece));
        }
    }

    /// Ends a direction, if the number of the reset is one that its receiver would believe. The other one goes on until
    /// it ends too.
    fn reset(
        &mut self,
        at: usize,
        way: usize,
        segment: &Segment,
        packet: Packet<'_>,
        sink: Sink<'_>,
    ) -> PacketFate {
        self.account.give_up(Refusal::AfterEnd, segment.len());
        let Some(direction) = self.direction(at, way) else { return PacketFate::Refused };
        let position = direction.position as i64;
        let is_near = match direction.has_begun() {
            true => direction
                .offset(segment.sequence)
                .is_some_and(|offset| (-1..=RESET_REACH).contains(&(offset - position))),
            false => true,
        };
        if is_near {
            self.end(at, way, EndCause::Reset, sink);
            // The other end does not know yet, and what it sends meanwhile is to be seen.
            if let Some(other) = self.direction(at, 1 - way) {
                other.is_reset = true;
            }
        }
        self.pass_plain(at, way, segment, packet, sink);
        PacketFate::Passed
    }
}

/// The time of a packet, in nanoseconds since 1970.
fn time_ns(meta: &Meta) -> Option<i64> {
    (!meta.is_untimed).then(|| meta.timestamp.as_nanos())
}

fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
