//! Points in time: `2026-11-21T22:23:47.123456789Z` (RFC 3339, always UTC and nine digits) and nanoseconds.
//!
//! The nanoseconds are a string: many readers of JSON keep numbers as 64-bit floats, which hold 2^53 exactly, and the
//! present is at 2^60.

use tapline_packet::{Timestamp, date_of_day};

use super::write::StringWriter;

/// The date and time of day.
pub(super) fn rfc3339(time: Timestamp, part: &mut StringWriter) {
    let seconds = time.seconds();
    let (year, month, day) = date_of_day(seconds.div_euclid(86_400));
    let second = seconds.rem_euclid(86_400) as u64;
    part.decimal(year.max(0) as u64, 4);
    for (sign, value) in [(b"-", month), (b"-", day)] {
        part.bytes(sign);
        part.decimal(u64::from(value), 2);
    }
    for (sign, value) in [(b"T", second / 3600), (b":", second / 60 % 60), (b":", second % 60)] {
        part.bytes(sign);
        part.decimal(value, 2);
    }
    part.bytes(b".");
    part.decimal(u64::from(time.subsec_nanos()), 9);
    part.bytes(b"Z");
}

/// Nanoseconds since 1970, negative before.
pub(super) fn nanoseconds(time: Timestamp, part: &mut StringWriter) {
    let nanos = time.as_nanos();
    if nanos < 0 {
        part.bytes(b"-");
    }
    part.decimal(nanos.unsigned_abs(), 1);
}

#[cfg(test)]
mod tests {
    use super::super::write::Writer;
    use super::*;
    use proptest::prelude::*;

    fn written(time: Timestamp) -> String {
        let mut out = Vec::new();
        Writer::new(&mut out).string(|part| rfc3339(time, part));
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn known_times() {
        assert_eq!(written(Timestamp::EPOCH), r#""1970-01-01T00:00:00.000000000Z""#);
        assert_eq!(written(Timestamp::from_nanos(-1)), r#""1969-12-31T23:59:59.999999999Z""#);
        assert_eq!(written(Timestamp::from_parts(951_826_554, 5)), r#""2000-02-29T12:15:54.000000005Z""#);
    }

    proptest! {
        #[test]
        fn agrees_with_a_calendar(nanos: i64) {
            let time = jiff::Timestamp::from_nanosecond(i128::from(nanos)).expect("in range");
            prop_assert_eq!(written(Timestamp::from_nanos(nanos)), format!("\"{time:.9}\""));
        }
    }
}
