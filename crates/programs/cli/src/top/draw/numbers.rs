//! Numbers in the words of the pages.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::super::state::Unit;
use super::super::table::short;

/// A number and its unit: 12.3 Mbit/s, 999 bit/s.
pub(super) fn rate(value: f64, unit: &str) -> String {
    let number = short(value);
    let has_step = number.ends_with(|letter: char| letter.is_ascii_alphabetic());
    match unit {
        "bit/s" | "B" if has_step => number + unit,
        _ => format!("{number} {unit}").trim_end().to_owned(),
    }
}

/// A count and its noun.
pub(super) fn text(value: f64, noun: &str) -> String {
    format!("{} {noun}", short(value))
}

/// Packets and bytes in the unit that was chosen.
pub(super) fn amount([packets, bytes]: [u64; 2], unit: Unit, seconds: f64) -> String {
    match unit {
        Unit::Bits => rate(bytes as f64 * 8.0 / seconds, "bit/s"),
        Unit::Bytes => rate(bytes as f64, "B"),
        Unit::Packets => short(packets as f64),
    }
}

/// Packets and bytes as a number that can be compared.
pub(super) fn value([packets, bytes]: [u64; 2], unit: Unit) -> u64 {
    if unit == Unit::Packets { packets } else { bytes }
}

fn zoned(ns: u64) -> Option<jiff::Zoned> {
    Some(Timestamp::from_nanosecond(ns.into()).ok()?.to_zoned(TimeZone::system()))
}

/// The time of day.
pub(super) fn clock(ns: u64) -> String {
    zoned(ns).map_or_else(|| "-".to_owned(), |time| time.strftime("%H:%M:%S").to_string())
}

/// A minute of a day.
pub(super) fn moment(seconds: u64) -> String {
    let time = zoned(seconds.saturating_mul(1_000_000_000));
    time.map_or_else(|| "-".to_owned(), |time| time.strftime("%Y-%m-%d %H:%M").to_string())
}

/// A time to the second.
pub(super) fn second_of(ns: i64) -> String {
    let time = zoned(ns.max(0).unsigned_abs());
    time.map_or_else(|| "-".to_owned(), |time| time.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

/// An age in seconds: 59 s, 3 min, 2 h, 5 d.
pub(super) fn age(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_their_units() {
        assert_eq!(amount([7, 125], Unit::Bits, 1.0), "1.00 kbit/s");
        assert_eq!(amount([7, 125], Unit::Bits, 10.0), "100 bit/s");
        assert_eq!(amount([7, 12_500], Unit::Bytes, 10.0), "12.5 kB");
        assert_eq!(amount([7_000, 1], Unit::Packets, 10.0), "7.00 k");
        assert_eq!([59, 130, 7200, 900_000].map(age), ["59 s", "2 min", "2 h", "10 d"]);
    }
}
