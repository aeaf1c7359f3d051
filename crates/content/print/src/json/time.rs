//! Points in time: `2026-11-21T22:23:47.123456789Z` (RFC 3339, always UTC and nine digits) and nanoseconds.
//!
//! The nanoseconds are a string: many readers of JSON keep numbers as 64-bit floats, which hold 2^53 exactly, and the
//! present is at 2^60.

use tapline_packet::Timestamp;

use super::write::StringWriter;

/// A day of the proleptic Gregorian calendar.
struct Date {
    year: i64,
    month: u8,
    day: u8,
}

/// The date and time of day.
pub(super) fn rfc3339(time: Timestamp, part: &mut StringWriter) {
    let seconds = time.seconds();
    let date = date_of(seconds.div_euclid(86_400));
    let second = seconds.rem_euclid(86_400) as u64;
    part.decimal(date.year.max(0) as u64, 4);
    for (sign, value) in [(b"-", date.month), (b"-", date.day)] {
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

/// The date of a day counted from 1970-01-01: 400-year cycles of 146,097 days, years that begin in March.
fn date_of(days: i64) -> Date {
    let days = days + 719_468;
    let cycle = days.div_euclid(146_097);
    let day_of_cycle = days.rem_euclid(146_097);
    let leap_days = day_of_cycle / 1_460 - day_of_cycle / 36_524 + day_of_cycle / 146_096;
    let year_of_cycle = (day_of_cycle - leap_days) / 365;
    let day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = cycle * 400 + year_of_cycle + i64::from(month <= 2);
    Date { year, month: month as u8, day: day as u8 }
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
