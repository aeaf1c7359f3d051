//! Statistics of one stream: packets lost, late and doubled, and jitter.
//!
//! ```text
//! expected = highest extended sequence - first + 1         (RFC 3550, A.3)
//! lost     = expected - received that are not duplicates
//! J        = J + (|D| - J) / 16,  D = (arrival - arrival before) - (time stamp - time stamp before)     (A.8)
//!            for |D| of 5 s at most: a greater step is another time base
//! ```

use super::Header;

/// The largest step that counts as a gap of lost packets (RFC 3550, A.1, `MAX_DROPOUT`). After a greater one the
/// stream restarts, once a packet has followed.
const DROPOUT_MAX: u16 = 3000;

/// Packets behind the highest of which is known whether they came.
const REMEMBERED: u32 = 64;

/// A silence after which numbers that do not go on belong to another stream.
const SILENCE_NS: i64 = 5_000_000_000;

/// A step between arrival and time stamp from which on it is not jitter: the sender has another time base, or was on
/// hold.
const TIME_STEP_NS: i64 = 5_000_000_000;

/// A stream: the packets of a synchronization source to one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    received: u64,
    duplicates: u64,
    late: u64,
    /// Packets expected before the last restart of the stream.
    expected_before: u64,
    restarts: u64,
    first: u64,
    highest: u64,
    /// Bit mask of the last packets that came: bit 0 is the highest.
    window: u64,
    /// The number that a packet after a great step must have to restart the stream.
    resumes_at: Option<u16>,
    /// Arrival in nanoseconds and time stamp of the last packet.
    last: (i64, u32),
    jitter_ns: i64,
    jitter_max_ns: i64,
    jitter_sum_ns: i128,
    jitter_count: u64,
    gap_max_ns: i64,
}

impl Stream {
    /// A stream that begins with this packet, which arrived at `time_ns` (since 1970).
    pub fn new(header: &Header, time_ns: i64) -> Stream {
        let sequence = u64::from(header.sequence);
        Stream {
            received: 1,
            duplicates: 0,
            late: 0,
            expected_before: 0,
            restarts: 0,
            first: sequence,
            highest: sequence,
            window: 1,
            resumes_at: None,
            last: (time_ns, header.timestamp),
            jitter_ns: 0,
            jitter_max_ns: 0,
            jitter_sum_ns: 0,
            jitter_count: 0,
            gap_max_ns: 0,
        }
    }

    /// Whether a packet belongs to another stream of the same source: it comes after a silence, and its number does
    /// not go on. `is_over` means that the call of this stream has ended, so that the silence alone shows it.
    pub fn is_over_before(&self, header: &Header, time_ns: i64, is_over: bool) -> bool {
        let step = header.sequence.wrapping_sub(self.highest as u16);
        let goes_on = step < DROPOUT_MAX || step > u16::MAX - REMEMBERED as u16;
        time_ns.saturating_sub(self.last.0) > SILENCE_NS && (is_over || !goes_on)
    }

    /// The next packet. `clock` are ticks a second of its time stamps; 0 where they are not known: such packets do not
    /// count for jitter.
    pub fn packet(&mut self, header: &Header, time_ns: i64, clock: u32) {
        self.received += 1;
        let is_new = self.number(header.sequence);
        let (last_ns, last_stamp) = self.last;
        self.gap_max_ns = self.gap_max_ns.max(time_ns.saturating_sub(last_ns));
        if is_new && clock > 0 {
            let ticks = i64::from(header.timestamp.wrapping_sub(last_stamp) as i32);
            let sent_ns = (i128::from(ticks) * 1_000_000_000 / i128::from(clock)) as i64;
            let difference = time_ns.saturating_sub(last_ns).saturating_sub(sent_ns).saturating_abs();
            if difference <= TIME_STEP_NS {
                self.jitter_ns += (difference - self.jitter_ns) / 16;
                self.jitter_max_ns = self.jitter_max_ns.max(self.jitter_ns);
                self.jitter_sum_ns += i128::from(self.jitter_ns);
                self.jitter_count += 1;
            }
        }
        self.last = (time_ns, header.timestamp);
    }

    /// Takes the number of a packet into account. Returns whether it is not a duplicate.
    fn number(&mut self, sequence: u16) -> bool {
        let step = sequence.wrapping_sub(self.highest as u16);
        let is_back = step > u16::MAX - REMEMBERED as u16;
        if step == 0 || is_back {
            let behind = u32::from(step.wrapping_neg());
            let bit = 1u64.checked_shl(behind).unwrap_or(0);
            // A packet from before the first, or twice.
            let is_twice = self.window & bit != 0 || bit == 0;
            self.window |= bit;
            self.duplicates += u64::from(is_twice);
            self.late += u64::from(!is_twice);
            if !is_twice && self.highest - u64::from(behind).min(self.highest) < self.first {
                self.first = self.highest - u64::from(behind).min(self.highest);
            }
            return !is_twice;
        }
        if step < DROPOUT_MAX {
            self.window = self.window.checked_shl(u32::from(step)).unwrap_or(0) | 1;
            self.highest += u64::from(step);
            self.resumes_at = None;
        } else if self.resumes_at == Some(sequence) {
            self.begin_anew(sequence);
        } else {
            self.resumes_at = Some(sequence.wrapping_add(1));
        }
        true
    }

    fn begin_anew(&mut self, sequence: u16) {
        // The packet that told of the step, and this one, are the first of the rest.
        self.expected_before = self.expected();
        self.restarts += 1;
        self.highest = u64::from(sequence) + (1 << 16);
        (self.first, self.window, self.resumes_at) = (self.highest - 1, 3, None);
    }

    /// Packets received.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Packets that were sent, by their numbers.
    pub fn expected(&self) -> u64 {
        self.expected_before + (self.highest - self.first + 1)
    }

    /// Packets that did not come.
    pub fn lost(&self) -> u64 {
        self.expected().saturating_sub(self.received - self.duplicates)
    }

    /// Packets that came more than once.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Packets that came after such as were sent later.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Number of restarts of the numbers.
    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    /// The greatest interarrival jitter, in nanoseconds; `None` without a clock.
    pub fn jitter_max_ns(&self) -> Option<u64> {
        (self.jitter_count > 0).then_some(self.jitter_max_ns.unsigned_abs())
    }

    /// The mean of the interarrival jitter, in nanoseconds; `None` without a clock.
    pub fn jitter_mean_ns(&self) -> Option<u64> {
        let count = i128::from(self.jitter_count);
        (count > 0).then(|| (self.jitter_sum_ns / count).unsigned_abs() as u64)
    }

    /// The longest time between two packets, in nanoseconds.
    pub fn gap_max_ns(&self) -> u64 {
        self.gap_max_ns.max(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn header(sequence: u16) -> Header {
        let timestamp = u32::from(sequence).wrapping_mul(160);
        Header { payload_type: 0, sequence, timestamp, ssrc: 1 }
    }

    fn stream(numbers: &[u16]) -> Stream {
        let mut stream = Stream::new(&header(numbers[0]), 0);
        for (at, number) in numbers.iter().enumerate().skip(1) {
            stream.packet(&header(*number), at as i64 * 20 * MS, 8000);
        }
        stream
    }

    #[test]
    fn lost_late_and_doubled_packets() {
        let whole = stream(&[5, 6, 7, 8]);
        assert_eq!((whole.expected(), whole.lost(), whole.jitter_max_ns()), (4, 0, Some(0)));
        let lossy = stream(&[65_534, 65_535, 1, 2, 5]);
        assert_eq!((lossy.expected(), lossy.lost(), lossy.received()), (8, 3, 5));
        let late = stream(&[1, 2, 4, 3, 3, 5]);
        assert_eq!((late.expected(), late.lost(), late.late(), late.duplicates()), (5, 0, 1, 1));
        let before_first = stream(&[5, 4, 6]);
        assert_eq!((before_first.expected(), before_first.lost()), (3, 0));
    }

    #[test]
    fn a_great_step_begins_anew_once_a_packet_follows() {
        let jumped = stream(&[1, 2, 40_000, 40_001, 40_002]);
        assert_eq!((jumped.restarts(), jumped.expected(), jumped.lost()), (1, 5, 0));
        let stray = stream(&[1, 2, 40_000, 3, 4]);
        assert_eq!((stray.restarts(), stray.expected(), stray.received()), (0, 4, 5));
    }

    #[test]
    fn a_silence_and_other_numbers_are_another_stream() {
        let stream = stream(&[1, 2, 3]);
        let (last, second) = (40 * MS, 1000 * MS);
        for (sequence, after, is_over, expected) in [
            (40_000, 6 * second, false, true),
            (40_000, 4 * second, false, false),
            (4, 60 * second, false, false),
            (2, 60 * second, false, false),
            (4, 60 * second, true, true),
            (4, second, true, false),
        ] {
            assert_eq!(
                stream.is_over_before(&header(sequence), last + after, is_over),
                expected,
                "{sequence}"
            );
        }
    }

    #[test]
    fn another_time_base_is_no_jitter() {
        let mut stream = stream(&[1, 2, 3]);
        for sequence in [4, 5] {
            let other = Header { timestamp: 3_000_000_000 + u32::from(sequence) * 160, ..header(sequence) };
            stream.packet(&other, i64::from(sequence) * 20 * MS - 20 * MS, 8000);
        }
        assert_eq!((stream.jitter_max_ns(), stream.lost()), (Some(0), 0));
    }

    #[test]
    fn jitter_by_the_formula() {
        let mut stream = Stream::new(&header(0), 0);
        let (mut expected, mut last) = (0f64, 0i64);
        for number in 1..500u16 {
            let time = i64::from(number) * 20 * MS + i64::from(number.wrapping_mul(7919) % 13) * MS;
            stream.packet(&header(number), time, 8000);
            let difference = ((time - last) - 20 * MS).abs() as f64;
            expected += (difference - expected) / 16.0;
            last = time;
        }
        let jitter = stream.jitter_ns as f64;
        assert!((jitter - expected).abs() < 1000.0, "{jitter} {expected}");
        assert!(stream.jitter_max_ns() >= stream.jitter_mean_ns());
    }
}
