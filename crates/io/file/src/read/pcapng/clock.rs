//! Times of an interface: 64-bit ticks of its own unit, from its own zero.
//!
//! ```text
//! nanoseconds = ticks * 10^9 / unit + offset in seconds * 10^9      unit = 10^n or 2^n ticks a second
//! ```

use tapline_packet::{Resolution, Timestamp};

/// Turns ticks into times. Small, as a file may describe a million interfaces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// Nanoseconds in a tick, where that is a whole number and times have no offset; 0 where it takes more.
    tick_ns: u32,
    resolution: Resolution,
    offset_seconds: i64,
}

impl Clock {
    pub(super) fn new(resolution: Resolution, offset_seconds: i64) -> Clock {
        let tick_ns = match (resolution, offset_seconds) {
            (Resolution::Decimal(n @ 0..=9), 0) => 10u32.pow(9 - u32::from(n)),
            _ => 0,
        };
        Clock { tick_ns, resolution, offset_seconds }
    }

    /// The time of a tick. Times out of range are clamped, fractions of a nanosecond are cut off.
    #[inline]
    pub(super) fn timestamp(&self, high: u32, low: u32) -> Timestamp {
        let ticks = u64::from(high) << 32 | u64::from(low);
        if self.tick_ns != 0
            && let Some(nanos) = ticks.checked_mul(u64::from(self.tick_ns))
            && let Ok(nanos) = i64::try_from(nanos)
        {
            return Timestamp::from_nanos(nanos);
        }
        self.wide(ticks)
    }

    #[cold]
    fn wide(&self, ticks: u64) -> Timestamp {
        let ticks = u128::from(ticks);
        let nanos = match self.resolution {
            Resolution::Decimal(n @ 0..=9) => ticks * 10u128.pow(9 - u32::from(n)),
            // Beyond 10^-47 s not even 2^64 ticks make a nanosecond.
            Resolution::Decimal(n) => ticks / 10u128.checked_pow(u32::from(n) - 9).unwrap_or(u128::MAX),
            Resolution::Binary(n) => (ticks * 1_000_000_000).checked_shr(u32::from(n)).unwrap_or(0),
        };
        // At most 2^64 * 10^9 and 2^63 * 10^9: far below 2^127.
        let nanos = nanos as i128 + i128::from(self.offset_seconds) * 1_000_000_000;
        Timestamp::from_nanos(nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(resolution: Resolution, offset: i64, ticks: u64) -> i64 {
        Clock::new(resolution, offset).timestamp((ticks >> 32) as u32, ticks as u32).as_nanos()
    }

    #[test]
    fn every_unit() {
        assert_eq!(nanos(Resolution::Decimal(0), 0, 3), 3_000_000_000);
        assert_eq!(nanos(Resolution::MICRO, 0, 1_700_000_000_123_456), 1_700_000_000_123_456_000);
        assert_eq!(nanos(Resolution::NANO, 0, 1_700_000_000_123_456_789), 1_700_000_000_123_456_789);
        assert_eq!(nanos(Resolution::Decimal(12), 0, 1_999), 1);
        assert_eq!(nanos(Resolution::Decimal(127), 0, u64::MAX), 0);
        assert_eq!(nanos(Resolution::Binary(10), 0, 1024 + 512), 1_500_000_000);
        assert_eq!(nanos(Resolution::Binary(127), 0, u64::MAX), 0);
    }

    #[test]
    fn offsets_and_clamping() {
        assert_eq!(nanos(Resolution::MICRO, -1, 0), -1_000_000_000);
        assert_eq!(nanos(Resolution::MICRO, i64::MAX, 0), i64::MAX);
        assert_eq!(nanos(Resolution::MICRO, i64::MIN, 0), i64::MIN);
        assert_eq!(nanos(Resolution::Decimal(0), 0, u64::MAX), i64::MAX);
    }
}
