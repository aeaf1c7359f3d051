//! Bursts: runs of short windows, each with at least so much.
//!
//! ```text
//! bytes in windows of 10 ms    | 2 | 9 | 8 | 1 |        from 8 on: a burst of two windows
//!                                   ^       ^
//!                                 start    end          time stamps of its first and its last packet
//! ```
//!
//! Windows begin at multiples of their length since 1970. A burst of two windows' length fills one of them, wherever it
//! begins; a shorter one may be split between two. The clock is that of the packets, which come in its order: a packet that
//! is behind the start of the window that was reached belongs to no window.

/// Shortest and longest window, in nanoseconds.
pub const BURST_WINDOW_NS: std::ops::RangeInclusive<u64> = 1_000_000..=1_000_000_000;
/// A time stamp that is further behind the window shows that the clock was set back, and begins another window.
const LATE_NS: i64 = 1_000_000_000;

/// Windows that are part of a burst: those that reach one of the amounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstLimits {
    /// Length of a window, in [`BURST_WINDOW_NS`].
    pub window_ns: u64,
    /// The least packets of a window; 0 for no limit.
    pub packets: u64,
    /// The least bytes of a window; 0 for no limit.
    pub bytes: u64,
}

impl BurstLimits {
    fn reaches(&self, packets: u64, bytes: u64) -> bool {
        self.packets > 0 && packets >= self.packets || self.bytes > 0 && bytes >= self.bytes
    }
}

/// A burst that is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Burst {
    /// Time stamp of its first packet, in nanoseconds since 1970.
    pub start_ns: i64,
    /// Time stamp of its last packet.
    pub end_ns: i64,
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// The most packets of a window.
    pub packets_peak: u64,
    /// The most bytes of a window.
    pub bytes_peak: u64,
}

impl Burst {
    /// Nanoseconds from the first packet to the last.
    pub fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns).max(0).unsigned_abs()
    }

    /// Takes another burst's packets in.
    pub fn merge(&mut self, other: &Burst) {
        self.start_ns = self.start_ns.min(other.start_ns);
        self.end_ns = self.end_ns.max(other.end_ns);
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.packets_peak = self.packets_peak.max(other.packets_peak);
        self.bytes_peak = self.bytes_peak.max(other.bytes_peak);
    }
}

/// The rate in a second of an amount that came in a window.
pub fn per_second(amount: u64, window_ns: u64) -> u64 {
    let rate = u128::from(amount) * 1_000_000_000 / u128::from(window_ns.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// The time is behind the start of the window that was reached: it belongs to no window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late;

/// Finds bursts in a series of packets.
#[derive(Clone, Copy, Debug)]
pub struct BurstMeter {
    /// The end of the present window, exclusive; `i64::MIN` before the first packet.
    window_end_ns: i64,
    /// The packets of the present window.
    window: Burst,
    /// The windows before it that belong to a burst which may go on.
    run: Option<Burst>,
}

impl Default for BurstMeter {
    fn default() -> BurstMeter {
        BurstMeter { window_end_ns: i64::MIN, window: Burst::default(), run: None }
    }
}

impl BurstMeter {
    /// Counts packets of a time. Returns the burst that is over, if there is one.
    ///
    /// # Errors
    /// If the time is late by up to a second. These packets are not counted.
    #[inline]
    pub fn add(
        &mut self,
        limits: &BurstLimits,
        time_ns: i64,
        packets: u64,
        bytes: u64,
    ) -> Result<Option<Burst>, Late> {
        let start_ns = self.window_end_ns.saturating_sub(limits.window_ns as i64);
        let is_outside = time_ns >= self.window_end_ns || time_ns < start_ns.saturating_sub(LATE_NS);
        let over = match is_outside {
            true => self.turn(limits, time_ns),
            false if time_ns < start_ns => return Err(Late),
            false => None,
        };
        let window = &mut self.window;
        if window.packets == 0 {
            (window.start_ns, window.end_ns) = (time_ns, time_ns);
        }
        window.start_ns = window.start_ns.min(time_ns);
        window.end_ns = window.end_ns.max(time_ns);
        window.packets = window.packets.saturating_add(packets);
        window.bytes = window.bytes.saturating_add(bytes);
        Ok(over)
    }

    /// Goes on to a time without packets. Returns the burst that is over, if there is one.
    pub fn advance(&mut self, limits: &BurstLimits, now_ns: i64) -> Option<Burst> {
        if now_ns >= self.window_end_ns { self.turn(limits, now_ns) } else { None }
    }

    /// The end. Returns the burst that was going on.
    pub fn finish(&mut self, limits: &BurstLimits) -> Option<Burst> {
        self.close(limits);
        self.run.take()
    }

    /// Whether nothing was counted in the present window, and no burst goes on.
    pub fn is_idle(&self) -> bool {
        self.window.packets == 0 && self.run.is_none()
    }

    fn turn(&mut self, limits: &BurstLimits, time_ns: i64) -> Option<Burst> {
        let is_part = self.close(limits);
        let window_ns = limits.window_ns.max(1) as i64;
        let start_ns = time_ns.div_euclid(window_ns).saturating_mul(window_ns);
        let is_next = start_ns == self.window_end_ns;
        self.window_end_ns = start_ns.saturating_add(window_ns);
        if is_part && is_next { None } else { self.run.take() }
    }

    /// Ends the present window; whether it is part of a burst.
    fn close(&mut self, limits: &BurstLimits) -> bool {
        let mut window = std::mem::take(&mut self.window);
        let is_part = limits.reaches(window.packets, window.bytes);
        if is_part {
            (window.packets_peak, window.bytes_peak) = (window.packets, window.bytes);
            match &mut self.run {
                Some(run) => run.merge(&window),
                None => self.run = Some(window),
            }
        }
        is_part
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const MS: i64 = 1_000_000;
    const LIMITS: BurstLimits = BurstLimits { window_ns: 10_000_000, packets: 0, bytes: 1000 };

    /// The bursts, and the number of late packets.
    fn bursts(limits: &BurstLimits, packets: &[(i64, u64)]) -> (Vec<Burst>, usize) {
        let mut meter = BurstMeter::default();
        let (mut found, mut late) = (Vec::new(), 0);
        for (time_ns, bytes) in packets {
            match meter.add(limits, *time_ns, 1, *bytes) {
                Ok(over) => found.extend(over),
                Err(Late) => late += 1,
            }
        }
        found.extend(meter.finish(limits));
        assert!(meter.is_idle());
        (found, late)
    }

    #[test]
    fn a_burst_is_a_run_of_full_windows() {
        let packets = [(1, 400), (11, 600), (12, 400), (21, 1200), (35, 999), (52, 1000)]
            .map(|(ms, len)| (ms * MS, len));
        let first = Burst {
            start_ns: 11 * MS,
            end_ns: 21 * MS,
            packets: 3,
            bytes: 2200,
            packets_peak: 2,
            bytes_peak: 1200,
        };
        let (found, late) = bursts(&LIMITS, &packets);
        assert_eq!((found.len(), found[0], found[0].length_ns(), late), (2, first, 10 * MS as u64, 0));
        assert_eq!((found[1].start_ns, found[1].bytes), (52 * MS, 1000));
        assert_eq!(per_second(1200, LIMITS.window_ns), 120_000);
    }

    #[test]
    fn time_without_packets_ends_a_burst() {
        let mut meter = BurstMeter::default();
        assert_eq!(meter.add(&LIMITS, 5 * MS, 1, 1000), Ok(None));
        assert_eq!(meter.advance(&LIMITS, 9 * MS), None);
        assert_eq!(meter.advance(&LIMITS, 19 * MS), None, "the next window may go on with it");
        assert_eq!(meter.advance(&LIMITS, 20 * MS).map(|burst| burst.bytes), Some(1000));
        assert!(meter.is_idle());
    }

    #[test]
    fn a_packet_ahead_makes_no_burst_of_the_others() {
        let ahead = (900 * MS, 1000);
        let others = (0..80).map(|at| (at * 10 * MS, 100));
        let (found, late) = bursts(&LIMITS, &[ahead].into_iter().chain(others).collect::<Vec<_>>());
        let own = Burst {
            start_ns: 900 * MS,
            end_ns: 900 * MS,
            packets: 1,
            bytes: 1000,
            packets_peak: 1,
            bytes_peak: 1000,
        };
        assert_eq!((found, late), (vec![own], 80));
    }

    #[test]
    fn a_clock_that_was_set_back_is_not_late() {
        let packets = [5000, 5001, 10, 11, 25].map(|ms| (ms * MS, 600));
        let (found, late) = bursts(&LIMITS, &packets);
        let found: Vec<_> = found.iter().map(|burst| (burst.start_ns / MS, burst.packets)).collect();
        assert_eq!((found, late), (vec![(5000, 2), (10, 2)], 0));
    }

    /// Windows summed in a map, without packets behind the one that was reached, then runs of neighbours; and the
    /// number of late packets.
    fn naive(limits: &BurstLimits, packets: &[(i64, u64)]) -> (Vec<Burst>, usize) {
        let mut windows: BTreeMap<i64, Vec<(i64, u64)>> = BTreeMap::new();
        let (mut reached, mut late) = (i64::MIN, 0);
        for packet in packets {
            let number = packet.0.div_euclid(limits.window_ns as i64);
            reached = reached.max(number);
            match number == reached {
                true => windows.entry(number).or_default().push(*packet),
                false => late += 1,
            }
        }
        let mut found: Vec<(i64, Burst)> = Vec::new();
        for (number, packets) in windows {
            let (count, bytes) = (packets.len() as u64, packets.iter().map(|packet| packet.1).sum());
            if bytes < limits.bytes {
                continue;
            }
            let window = Burst {
                start_ns: packets.iter().map(|packet| packet.0).min().unwrap(),
                end_ns: packets.iter().map(|packet| packet.0).max().unwrap(),
                packets: count,
                bytes,
                packets_peak: count,
                bytes_peak: bytes,
            };
            match found.last_mut() {
                Some((last, burst)) if *last + 1 == number => {
                    burst.merge(&window);
                    *last = number;
                }
                _ => found.push((number, window)),
            }
        }
        (found.into_iter().map(|(_, burst)| burst).collect(), late)
    }

    #[test]
    fn random_packets_give_the_bursts_of_a_map() {
        let mut state = 7_u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        for case in 0..200 {
            let mut time_ns = 0;
            // The first half in order.
            let late_ns = case / 100 * 30 * MS as u64 + 1;
            let packets: Vec<(i64, u64)> = (0..300)
                .map(|_| {
                    time_ns += below(8 * MS as u64) as i64;
                    (time_ns - below(late_ns) as i64, 60 + below(900))
                })
                .collect();
            let expected = naive(&LIMITS, &packets);
            assert_eq!(expected.1 > 0, case >= 100, "{packets:?}");
            assert_eq!(bursts(&LIMITS, &packets), expected, "{packets:?}");
        }
    }

    #[test]
    fn times_at_the_ends_of_the_range() {
        let times = [i64::MIN, i64::MAX, 0, -1, i64::MAX, i64::MAX, i64::MIN, i64::MIN + 1, 5, 4];
        let (found, late) = bursts(&LIMITS, &times.map(|time_ns| (time_ns, 1000)));
        assert_eq!((found.iter().map(|burst| burst.packets).sum::<u64>(), late), (times.len() as u64 - 1, 1));
    }
}
