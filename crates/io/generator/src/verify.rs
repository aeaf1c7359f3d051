//! Statistics of a stream of marked packets: lost, duplicated and reordered ones, and their latency.
//!
//! ```text
//!  first                                highest
//!    |--------------- ... ---------------|         lost = numbers from first to highest that never came
//!              |--- the last 65,536 -----|         which of these came is known bit by bit
//! ```
//!
//! A packet whose number is below the highest is reordered (RFC 4737, 3), unless it came before: then it is doubled
//! (RFC 5560). A packet that is further behind than the window may be either; it is counted as too late.

use tapline_meters::Distribution;
use tapline_packet::Timestamp;

use crate::mark::Mark;

/// Distance behind the highest number up to which a packet is recognised as reordered or doubled.
pub const WINDOW: u64 = 1 << 16;
/// A send time so much before the arrival, or any after it, is of another clock.
const LATENCY_MAX_NS: i64 = 60_000_000_000;

/// Statistics of one stream.
pub struct Stream {
    came: Box<[u64; (WINDOW / 64) as usize]>,
    first: u64,
    highest: u64,
    received: u64,
    /// Numbers that came at least once, as far as known.
    different: u64,
    doubled: u64,
    reordered: u64,
    too_late: u64,
    latency: Latency,
}

impl Default for Stream {
    fn default() -> Stream {
        Stream {
            came: Box::new([0; (WINDOW / 64) as usize]),
            first: 0,
            highest: 0,
            received: 0,
            different: 0,
            doubled: 0,
            reordered: 0,
            too_late: 0,
            latency: Latency::default(),
        }
    }
}

impl Stream {
    /// Takes the mark of a packet that came at `arrived`.
    #[inline]
    pub fn take(&mut self, mark: Mark, arrived: Timestamp) {
        self.latency.take(arrived.since(mark.sent));
        let number = mark.sequence;
        if self.received == 0 {
            (self.first, self.highest) = (number, number);
        } else if number > self.highest {
            self.advance(number);
        } else {
            return self.take_behind(number);
        }
        self.received += 1;
        self.different += 1;
        self.set(number);
    }

    fn take_behind(&mut self, number: u64) {
        self.received += 1;
        if self.highest - number >= WINDOW {
            self.too_late += 1;
        } else if self.has(number) {
            self.doubled += 1;
        } else {
            self.reordered += 1;
            self.different += 1;
            self.first = self.first.min(number);
            self.set(number);
        }
    }

    /// Forgets numbers that leave the window.
    fn advance(&mut self, number: u64) {
        if number - self.highest >= WINDOW {
            self.came.fill(0);
        } else {
            for gone in self.highest + 1..number {
                self.clear(gone);
            }
        }
        self.highest = number;
    }

    fn place(number: u64) -> (usize, u64) {
        ((number % WINDOW / 64) as usize, 1 << (number % 64))
    }

    fn has(&self, number: u64) -> bool {
        let (word, bit) = Stream::place(number);
        self.came[word] & bit != 0
    }

    fn set(&mut self, number: u64) {
        let (word, bit) = Stream::place(number);
        self.came[word] |= bit;
    }

    fn clear(&mut self, number: u64) {
        let (word, bit) = Stream::place(number);
        self.came[word] &= !bit;
    }

    /// Packets that came.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// The lowest and the highest number that came.
    pub fn bounds(&self) -> (u64, u64) {
        (self.first, self.highest)
    }

    /// Numbers between the bounds that never came, or came too late.
    pub fn lost(&self) -> u64 {
        if self.received == 0 { 0 } else { self.highest - self.first + 1 - self.different }
    }

    /// Packets whose number had come before.
    pub fn doubled(&self) -> u64 {
        self.doubled
    }

    /// Packets that came behind one with a higher number.
    pub fn reordered(&self) -> u64 {
        self.reordered
    }

    /// Packets behind the window: whether their number had come before is unknown.
    pub fn too_late(&self) -> u64 {
        self.too_late
    }

    /// Latencies of packets.
    pub fn latency(&self) -> &Latency {
        &self.latency
    }
}

/// Latencies of packets, if the sender's clock is the receiver's.
#[derive(Default)]
pub struct Latency {
    spread: Distribution,
    unknown: u64,
    /// The shortest and the longest, in nanoseconds.
    bounds: Option<(u64, u64)>,
}

impl Latency {
    #[inline]
    fn take(&mut self, ns: i64) {
        if !(0..LATENCY_MAX_NS).contains(&ns) {
            self.unknown += 1;
            return;
        }
        let ns = ns as u64;
        let (min, max) = self.bounds.unwrap_or((ns, ns));
        self.bounds = Some((min.min(ns), max.max(ns)));
        self.spread.add(ns);
    }

    /// Packets whose send time is none of our clock: later than the arrival, or a minute before it.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Packets whose latency is known.
    pub fn known(&self) -> u64 {
        self.spread.len()
    }

    /// The shortest and the longest, in nanoseconds; `None` if none is known.
    pub fn bounds_ns(&self) -> Option<(u64, u64)> {
        self.bounds
    }

    /// This share (0 to 1) of the packets took no longer than that, in nanoseconds, known to a sixteenth; `None` if
    /// none is known.
    pub fn percentile_ns(&self, share: f64) -> Option<u64> {
        let (min, max) = self.bounds?;
        self.spread.percentile(share).map(|ns| ns.clamp(min, max))
    }

    /// Steps that hold packets: from, to (both included, in nanoseconds), packets.
    pub fn steps(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.spread.steps()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::random::Random;

    fn mark(sequence: u64) -> Mark {
        Mark { stream: 0, sequence, sent: Timestamp::EPOCH }
    }

    fn taken(numbers: &[u64]) -> [u64; 5] {
        let mut stream = Stream::default();
        numbers.iter().for_each(|number| stream.take(mark(*number), Timestamp::EPOCH));
        [stream.received(), stream.lost(), stream.doubled(), stream.reordered(), stream.too_late()]
    }

    #[test]
    fn losses_copies_and_orders() {
        assert_eq!(taken(&[]), [0; 5]);
        assert_eq!(taken(&[5, 6, 7]), [3, 0, 0, 0, 0]);
        assert_eq!(taken(&[0, 1, 4]), [3, 2, 0, 0, 0]);
        assert_eq!(taken(&[0, 1, 1, 2, 0]), [5, 0, 2, 0, 0]);
        assert_eq!(taken(&[0, 2, 1, 3]), [4, 0, 0, 1, 0]);
        assert_eq!(taken(&[9, 3]), [2, 5, 0, 1, 0], "what came before the first counts too");
        assert_eq!(taken(&[0, WINDOW, 0, 1]), [4, WINDOW - 2, 0, 1, 1]);
        assert_eq!(taken(&[0, 10 * WINDOW, 9 * WINDOW + 1, 9 * WINDOW]), [4, 10 * WINDOW - 2, 0, 1, 1]);
    }

    #[test]
    fn counts_within_the_window_are_those_of_a_set() {
        let mut random = Random::new(3, 3);
        for _ in 0..50 {
            let mut stream = Stream::default();
            let (mut seen, mut highest, mut base) = (HashSet::new(), None, 0);
            let (mut doubled, mut reordered) = (0, 0);
            for _ in 0..5000 {
                base += random.below(40);
                let number = base + random.below(20_000);
                doubled += u64::from(!seen.insert(number));
                if highest.is_some_and(|highest| number < highest) && !stream.has(number) {
                    reordered += 1;
                }
                highest = highest.max(Some(number));
                stream.take(mark(number), Timestamp::EPOCH);
            }
            let (first, last) = (seen.iter().min().copied().unwrap_or(0), highest.unwrap_or(0));
            assert_eq!((stream.doubled(), stream.too_late()), (doubled, 0));
            assert_eq!(stream.lost(), last - first + 1 - seen.len() as u64);
            assert_eq!(stream.reordered(), reordered);
        }
    }

    #[test]
    fn latencies_of_another_clock_are_unknown() {
        let mut stream = Stream::default();
        for (number, arrived) in [(0, 100), (1, 200), (2, 1000), (3, -1), (4, LATENCY_MAX_NS)] {
            stream.take(mark(number), Timestamp::from_nanos(arrived));
        }
        let latency = stream.latency();
        assert_eq!((latency.known(), latency.unknown()), (3, 2));
        assert_eq!(latency.bounds_ns(), Some((100, 1000)));
        assert_eq!(latency.percentile_ns(0.5), Some(207));
        assert_eq!(latency.percentile_ns(1.0), Some(1000));
        assert_eq!(Stream::default().latency().percentile_ns(0.5), None);
    }
}
