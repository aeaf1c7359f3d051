//! One direction of a TCP connection: the next byte to deliver, and the segments that arrived early.
//!
//! ```text
//! offset 0        position                                       offsets count from the first byte, across wraps
//! |  delivered    |  missing  | held |  missing  | held | FIN
//! ```

use std::collections::BTreeMap;

use tapline_packet::Meta;

/// TCP's largest window (RFC 7323, 2.3). A segment farther away does not belong to this stream.
const WINDOW_MAX: i64 = 1 << 30;
/// Memory of a held segment in addition to its packet, estimated: the struct, its place in the map, the allocation.
const HELD_COST: usize = 160;

/// A segment that waits for its turn.
#[derive(Clone, Debug)]
pub(crate) struct WaitingSegment {
    pub(crate) data: Box<[u8]>,
    pub(crate) meta: Meta,
    pub(crate) payload_at: usize,
    /// Bytes at the start of the payload that precede the start of the stream.
    pub(crate) early: usize,
    /// Captured payload bytes after `early`.
    pub(crate) len: u64,
    /// Payload bytes after `len` that were not captured.
    pub(crate) missing: u64,
    /// Acknowledgement number, if the segment has ACK.
    pub(crate) ack: Option<u32>,
}

impl WaitingSegment {
    /// Bytes that count against the limits of memory.
    pub(crate) fn cost(&self) -> usize {
        self.data.len() + HELD_COST
    }
}

#[derive(Debug, Default)]
pub(crate) struct Direction {
    /// Sequence number of the byte at `position`, once it is known.
    next: Option<u32>,
    /// Offset of the next byte to deliver.
    pub(crate) position: u64,
    /// Held segments by start offset and arrival: several may start at the same offset.
    held: BTreeMap<(u64, u64), WaitingSegment>,
    arrivals: u64,
    /// Memory of all held segments, in bytes.
    pub(crate) memory: usize,
    /// Offset of FIN: the end of the stream, once it is known.
    pub(crate) fin: Option<u64>,
    /// Highest offset that the receiver acknowledged.
    acknowledged: u64,
    /// When the receiver first acknowledged bytes that are missing here. The wait before their gap is given up
    /// (`Limits::patience`) starts then.
    pub(crate) lacking_since: Option<i64>,
    /// The receiver reset the connection: data that follows is still delivered, and the stream then ends with a reset.
    pub(crate) is_reset: bool,
    /// The end was reported: no more bytes are delivered.
    pub(crate) is_over: bool,
}

impl Direction {
    /// Whether a first byte is known.
    pub(crate) fn has_begun(&self) -> bool {
        self.next.is_some()
    }

    /// Whether nothing was delivered, missed or held yet.
    pub(crate) fn is_untouched(&self) -> bool {
        self.position == 0 && self.held.is_empty()
    }

    /// Starts the stream at this sequence number.
    pub(crate) fn begin(&mut self, sequence: u32) {
        self.next = Some(sequence);
    }

    /// Converts a sequence number to an offset, which is negative before the start of the stream. Returns `None` if the
    /// stream has not begun, or if the number is farther away than any window.
    pub(crate) fn offset(&self, sequence: u32) -> Option<i64> {
        let ahead = i64::from(sequence.wrapping_sub(self.next?) as i32);
        (-WINDOW_MAX..=WINDOW_MAX).contains(&ahead).then(|| self.position as i64 + ahead)
    }

    /// Advances by bytes that were delivered or given up.
    pub(crate) fn advance(&mut self, bytes: u64) {
        self.position += bytes;
        self.next = self.next.map(|next| next.wrapping_add(bytes as u32));
        self.lacking_since = None;
    }

    /// Notes that the receiver has all bytes before `ack`. Starts the wait for a gap if some of them are missing here,
    /// and segments are held after it.
    pub(crate) fn acknowledge(&mut self, ack: u32, now: i64) {
        let Some(offset) = self.offset(ack).and_then(|offset| u64::try_from(offset).ok()) else { return };
        self.acknowledged = self.acknowledged.max(offset);
        if self.acknowledged > self.position && !self.held.is_empty() {
            self.lacking_since.get_or_insert(now);
        }
    }

    /// Whether one held segment has all bytes from `start` to `end`: the usual case of a retransmission.
    pub(crate) fn holds(&self, start: u64, end: u64) -> bool {
        let before = self.held.range(..=(start, u64::MAX)).next_back();
        before.is_some_and(|((begin, _), held)| end > start && begin + held.len >= end)
    }

    pub(crate) fn hold(&mut self, start: u64, held: WaitingSegment) {
        self.arrivals += 1;
        self.memory += held.cost();
        self.held.insert((start, self.arrivals), held);
    }

    /// Removes the first held segment if no byte is missing before it. Returns it with its offset.
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

    /// Removes the first held segment, even if bytes are missing before it.
    pub(crate) fn take_first(&mut self) -> Option<WaitingSegment> {
        let (_, held) = self.held.pop_first()?;
        self.memory -= held.cost();
        Some(held)
    }

    /// Number of missing bytes before the first held segment.
    pub(crate) fn first_gap(&self) -> Option<u64> {
        let ((start, _), _) = self.held.first_key_value()?;
        Some(start - self.position)
    }

    /// Returns the first gap if the receiver acknowledged all of its bytes.
    pub(crate) fn first_gap_acknowledged(&self) -> Option<u64> {
        self.first_gap().filter(|gap| self.position + gap <= self.acknowledged)
    }

    pub(crate) fn held_count(&self) -> usize {
        self.held.len()
    }
}
