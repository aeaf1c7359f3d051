//! One direction of a connection: the next byte, and the segments that came before their turn.
//!
//! ```text
//! offset 0        position                                       offsets count from the first byte, over wraps of the number
//! |  delivered    |  missing  | held |  missing  | held | FIN
//! ```

use std::collections::BTreeMap;

use tapline_packet::Meta;

/// TCP's greatest window (RFC 7323, 2.3): a segment further away is none of this stream.
const WINDOW_MAX: i64 = 1 << 30;
/// Memory of a held segment in addition to its packet.
const HELD_COST: usize = 160;

/// A segment that waits for its turn.
#[derive(Clone, Debug)]
pub(crate) struct WaitingSegment {
    pub(crate) data: Box<[u8]>,
    pub(crate) meta: Meta,
    pub(crate) payload_at: usize,
    /// Payload in front that is older than the stream.
    pub(crate) early: usize,
    /// Captured payload behind that.
    pub(crate) len: u64,
    /// Payload behind it that was not captured.
    pub(crate) missing: u64,
    /// Acknowledged number.
    pub(crate) ack: Option<u32>,
}

impl WaitingSegment {
    /// The memory that it takes.
    pub(crate) fn cost(&self) -> usize {
        self.data.len() + HELD_COST
    }
}

#[derive(Debug, Default)]
pub(crate) struct Direction {
    /// The number of the byte at `position`, once one is known.
    next: Option<u32>,
    /// Bytes from the beginning up to the next one.
    pub(crate) position: u64,
    /// Segments ahead, by the offset at which they begin and their order of arrival.
    held: BTreeMap<(u64, u64), WaitingSegment>,
    arrivals: u64,
    /// Memory of these.
    pub(crate) memory: usize,
    /// The offset of FIN.
    pub(crate) fin: Option<u64>,
    /// The offset up to which the receiver acknowledged.
    acknowledged: u64,
    /// Time since when the receiver has the bytes that we miss.
    pub(crate) lacking_since: Option<i64>,
    /// The receiver reset the connection: data that is still sent is seen, and the end is a reset.
    pub(crate) is_reset: bool,
    /// The stream has ended.
    pub(crate) is_over: bool,
}

impl Direction {
    /// Whether a first byte is known.
    pub(crate) fn has_begun(&self) -> bool {
        self.next.is_some()
    }

    /// Whether it began and nothing was delivered or missed.
    pub(crate) fn is_untouched(&self) -> bool {
        self.position == 0 && self.held.is_empty()
    }

    /// Begins at the byte of this number.
    pub(crate) fn begin(&mut self, sequence: u32) {
        self.next = Some(sequence);
    }

    /// The offset of the byte of a number: negative for bytes before the beginning. `None` if that is further away than
    /// any window.
    pub(crate) fn offset(&self, sequence: u32) -> Option<i64> {
        let ahead = i64::from(sequence.wrapping_sub(self.next?) as i32);
        (-WINDOW_MAX..=WINDOW_MAX).contains(&ahead).then(|| self.position as i64 + ahead)
    }

    /// Goes on by some bytes, delivered or missed.
    pub(crate) fn advance(&mut self, bytes: u64) {
        self.position += bytes;
        self.next = self.next.map(|next| next.wrapping_add(bytes as u32));
        self.lacking_since = None;
    }

    /// Notes the bytes that the receiver has. Returns whether that is more than we have, of a stream that goes on.
    pub(crate) fn acknowledge(&mut self, ack: u32, now: i64) {
        let Some(offset) = self.offset(ack).and_then(|offset| u64::try_from(offset).ok()) else { return };
        self.acknowledged = self.acknowledged.max(offset);
        if self.acknowledged > self.position && !self.held.is_empty() {
            self.lacking_since.get_or_insert(now);
        }
    }

    /// Whether a held segment has all bytes up to `end` from `start` on.
    pub(crate) fn holds(&self, start: u64, end: u64) -> bool {
        let before = self.held.range(..=(start, u64::MAX)).next_back();
        before.is_some_and(|((begin, _), held)| end > start && begin + held.len >= end)
    }

    pub(crate) fn hold(&mut self, start: u64, held: WaitingSegment) {
        self.arrivals += 1;
        self.memory += held.cost();
        self.held.insert((start, self.arrivals), held);
    }

    /// Takes the next held segment if its turn has come: with its offset.
    pub(crate) fn take_due(&mut self) -> Option<(u64, WaitingSegment)> {
        let entry = self.held.first_entry()?;
        let start = entry.key().0;
        if start > self.position {
            return None;
        }
        let held = entry.remove();
        self.memory -= held.cost();
        Some((start, held))
    }

    /// Takes the first held segment, due or not.
    pub(crate) fn take_first(&mut self) -> Option<WaitingSegment> {
        let (_, held) = self.held.pop_first()?;
        self.memory -= held.cost();
        Some(held)
    }

    /// The missing bytes before the first held segment.
    pub(crate) fn first_gap(&self) -> Option<u64> {
        let ((start, _), _) = self.held.first_key_value()?;
        Some(start - self.position)
    }

    /// The first gap, if the receiver has all of its bytes.
    pub(crate) fn first_gap_acknowledged(&self) -> Option<u64> {
        self.first_gap().filter(|gap| self.position + gap <= self.acknowledged)
    }

    pub(crate) fn held_count(&self) -> usize {
        self.held.len()
    }
}
