//! Counts, sizes, times and rates: written the same in options, recipes, graphs and rules. docs/units.md is this page
//! for users.
//!
//! ```text
//! count     NUMBER [k|M|G|T]                          powers of 1000
//! size      NUMBER [k|M|G|T|Ki|Mi|Gi|Ti] [B]          bytes; powers of 1000, with `i` of 1024
//! duration  NUMBER [ns|us|ms|s|m|h|d]                 seconds without a unit
//! rate      NUMBER [k|M|G|T] [pps|bit|bps|wire]       packets a second without a unit
//! NUMBER    digits [. digits]                         `_` between digits: 1_000_000
//! ```
//!
//! A value is exact: `1.5M` is 1500000, and `0.1ns` is refused rather than rounded.

use std::fmt::Display;
use std::ops::{Bound, RangeBounds};
use std::time::Duration;

const COUNT_FORM: &str = "a whole number, alone or with k, M, G or T: 1000, 64k, 1.5M";
const SIZE_FORM: &str =
    "bytes, alone or with k, M, G, T (powers of 1000) or Ki, Mi, Gi, Ti (of 1024): 64k, 500MB, 10GiB";
const DURATION_FORM: &str = "seconds, or a number with ns, us, ms, s, m, h or d: 90, 500ms, 1.5h, 7d";
const RATE_FORM: &str =
    "packets a second (10000, 100k, 1.5M), bits of frames (10Mbit) or bits on the wire (100Mwire)";

/// A value that is not in the form its kind has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitError {
    text: String,
    form: &'static str,
}

impl Display for UnitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "'{}' is not {}", self.text, self.form)
    }
}

impl std::error::Error for UnitError {}

fn or_form<T>(value: Option<T>, text: &str, form: &'static str) -> Result<T, UnitError> {
    value.ok_or_else(|| UnitError { text: text.to_owned(), form })
}

/// A number with its digits in groups of three.
///
/// ```
/// use tapline_syntax::units;
/// assert_eq!([0_u64, 999, 1_234_567].map(units::grouped), ["0", "999", "1,234,567"]);
/// ```
pub fn grouped(number: impl Into<u128>) -> String {
    let digits = number.into().to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A whole number; `k`, `M`, `G` and `T` multiply by powers of 1000.
///
/// # Errors
/// If the text has another form, is not a whole number, or needs more than 64 bits.
///
/// ```
/// use tapline_syntax::units;
/// assert_eq!(units::count("1.5M"), Ok(1_500_000));
/// assert!(units::count("1.5").is_err());
/// ```
pub fn count(text: &str) -> Result<u64, UnitError> {
    let (digits, unit) = split(text);
    let factor = if unit.is_empty() { Some(1) } else { thousands(unit) };
    or_form(factor.and_then(|factor| decimal(digits, factor)), text, COUNT_FORM)
}

/// A number of bytes; `k`, `M`, `G` and `T` multiply by powers of 1000, `Ki`, `Mi`, `Gi` and `Ti` by powers of 1024.
/// A `B` may follow.
///
/// # Errors
/// As [`count`].
///
/// ```
/// use tapline_syntax::units;
/// assert_eq!(units::size("64k"), Ok(64_000));
/// assert_eq!(units::size("10GiB"), Ok(10 << 30));
/// ```
pub fn size(text: &str) -> Result<u64, UnitError> {
    let (digits, unit) = split(text);
    let prefix = unit.strip_suffix('B').unwrap_or(unit);
    let factor = match prefix.strip_suffix('i') {
        Some(prefix) => thousands(prefix).map(|factor| 1 << (factor.ilog10() / 3 * 10)),
        None if prefix.is_empty() => Some(1),
        None => thousands(prefix),
    };
    or_form(factor.and_then(|factor| decimal(digits, factor)), text, SIZE_FORM)
}

/// A time: seconds, or a number with a unit.
///
/// # Errors
/// If the text has another form, is not a whole number of nanoseconds, or is longer than 584 years.
///
/// ```
/// use std::time::Duration;
/// use tapline_syntax::units;
/// assert_eq!(units::duration("90"), units::duration("1.5m"));
/// assert_eq!(units::duration("500us"), Ok(Duration::from_micros(500)));
/// ```
pub fn duration(text: &str) -> Result<Duration, UnitError> {
    nanoseconds(text).map(Duration::from_nanos)
}

/// A [`duration`] as nanoseconds.
///
/// # Errors
/// As [`duration`].
pub fn nanoseconds(text: &str) -> Result<u64, UnitError> {
    let (digits, unit) = split(text);
    let factor = match unit {
        "ns" => Some(1),
        "us" => Some(1_000),
        "ms" => Some(1_000_000),
        "" | "s" => Some(1_000_000_000),
        "m" => Some(60_000_000_000),
        "h" => Some(3_600_000_000_000),
        "d" => Some(86_400_000_000_000),
        _ => None,
    };
    or_form(factor.and_then(|factor| decimal(digits, factor)), text, DURATION_FORM)
}

/// The unit of a [`Rate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateUnit {
    /// Packets: no unit, or `pps`.
    Packets,
    /// Bits of frames, without check sequence, preamble and gap: `bit` or `bps`.
    FrameBits,
    /// Bits on an Ethernet wire, with check sequence, preamble and gap: `wire`.
    WireBits,
}

/// Packets or bits a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The unit.
    pub unit: RateUnit,
    /// In 1000 seconds, 1 or more: a rate may be a fraction.
    pub in_1000_s: u64,
}

/// Packets or bits a second.
///
/// # Errors
/// If the text has another form, is under 0.001 a second, has more than three digits behind the point, or needs more
/// than 64 bits.
///
/// ```
/// use tapline_syntax::units::{self, Rate, RateUnit};
/// assert_eq!(units::rate("10Mbit"), Ok(Rate { unit: RateUnit::FrameBits, in_1000_s: 10_000_000_000 }));
/// ```
pub fn rate(text: &str) -> Result<Rate, UnitError> {
    let (digits, unit) = split(text);
    let kinds = [
        ("pps", RateUnit::Packets),
        ("bit", RateUnit::FrameBits),
        ("bps", RateUnit::FrameBits),
        ("wire", RateUnit::WireBits),
    ];
    let kind = kinds.iter().find_map(|(ending, kind)| Some((unit.strip_suffix(ending)?, *kind)));
    let (prefix, unit) = kind.unwrap_or((unit, RateUnit::Packets));
    let factor = if prefix.is_empty() { Some(1) } else { thousands(prefix) };
    let in_1000_s = factor.and_then(|factor| decimal(digits, factor * 1000)).filter(|rate| *rate > 0);
    or_form(in_1000_s.map(|in_1000_s| Rate { unit, in_1000_s }), text, RATE_FORM)
}

/// A parser of a [`count`] within `range`, for command lines.
pub fn count_in<T: TryFrom<u64>>(
    range: impl RangeBounds<u64> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| in_range(count(text), &range)
}

/// A parser of a [`size`] within `range`, for command lines.
pub fn size_in<T: TryFrom<u64>>(
    range: impl RangeBounds<u64> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| in_range(size(text), &range)
}

fn in_range<T: TryFrom<u64>>(
    value: Result<u64, UnitError>,
    range: &impl RangeBounds<u64>,
) -> Result<T, String> {
    let value = value.map_err(|error| error.to_string())?;
    if !range.contains(&value) {
        return Err(format!("{value} is not {}", shown(range)));
    }
    T::try_from(value).map_err(|_| format!("{value} is too large"))
}

fn shown(range: &impl RangeBounds<u64>) -> String {
    let least = match range.start_bound() {
        Bound::Included(least) => *least,
        Bound::Excluded(below) => below.saturating_add(1),
        Bound::Unbounded => 0,
    };
    match range.end_bound() {
        Bound::Included(most) => format!("from {least} to {most}"),
        Bound::Excluded(above) => format!("from {least} to {}", above.saturating_sub(1)),
        Bound::Unbounded => format!("{least} or more"),
    }
}

/// A number and its unit.
fn split(text: &str) -> (&str, &str) {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    text.split_at(digits)
}

fn thousands(prefix: &str) -> Option<u64> {
    match prefix {
        "k" | "K" => Some(1_000),
        "M" => Some(1_000_000),
        "G" => Some(1_000_000_000),
        "T" => Some(1_000_000_000_000),
        _ => None,
    }
}

/// `digits` times `factor`, exactly, if that is a whole number.
///
/// ```
/// use tapline_syntax::units::decimal;
/// assert_eq!(decimal("1.5", 1000), Some(1500));
/// assert_eq!(decimal("1.5", 1), None);
/// ```
pub fn decimal(digits: &str, factor: u64) -> Option<u64> {
    let digits = digits.replace('_', "");
    let (whole, part) = digits.split_once('.').unwrap_or((&digits, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(part) || part.len() > 18 {
        return None;
    }
    let scale = 10_u128.pow(part.len() as u32);
    let whole = whole.parse::<u64>().ok().map(u128::from)?;
    let sum = whole * scale + part.parse::<u128>().unwrap_or(0);
    let product = sum.checked_mul(factor.into())?;
    u64::try_from(product / scale).ok().filter(|_| product.is_multiple_of(scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_exact() {
        let right = ["10", "64k", "64K", "1.5M", "1_000", "0.1k", "2G", "3T"].map(|text| count(text).ok());
        let expected = [10, 64_000, 64_000, 1_500_000, 1000, 100, 2_000_000_000, 3_000_000_000_000].map(Some);
        assert_eq!(right, expected);
        for wrong in ["1.5", "", "k", "-1", "+1", "1m", "64Ki", "1 k", "1e3", "99999999999999999999", "ü"] {
            assert!(count(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_have_units_of_both_kinds() {
        let right = ["17", "64k", "500GB", "64Ki", "64KiB", "10GiB", "1.5Mi", "5B", "2Ti"].map(size);
        let expected = [17, 64_000, 500_000_000_000, 65_536, 65_536, 10 << 30, 3 << 19, 5, 2 << 40].map(Ok);
        assert_eq!(right, expected);
        for wrong in ["", "B", "iB", "64m", "64g", "5X", "5iB", "0.1Ki", "99999999T"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_without_unit_are_seconds() {
        let right = ["90", "1.5m", "10s", "1.5ms", "7us", "9ns", "1h", "2d"].map(nanoseconds);
        let s = 1_000_000_000;
        assert_eq!(right, [90 * s, 90 * s, 10 * s, 1_500_000, 7_000, 9, 3600 * s, 172_800 * s].map(Ok));
        for wrong in ["", "s", "1 s", "-1", "5x", "0.1ns", "1M", "300000d"] {
            assert!(nanoseconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_are_of_packets_or_bits() {
        let read = |text: &str| rate(text).ok().map(|rate| (rate.unit, rate.in_1000_s));
        assert_eq!(read("0.5"), Some((RateUnit::Packets, 500)));
        assert_eq!(read("100k"), read("100kpps"));
        assert_eq!(read("10Mbit"), Some((RateUnit::FrameBits, 10_000_000_000)));
        assert_eq!(read("10Mbps"), read("10Mbit"));
        assert_eq!(read("1Gwire"), Some((RateUnit::WireBits, 1_000_000_000_000)));
        for wrong in ["0", "", "bit", "1xbit", "1Mib", "0.0001", "-1", "1kk"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_bound_is_named_where_it_is_broken() {
        assert_eq!(count_in::<u16>(1..=64)("0.01k"), Ok(10));
        assert_eq!(count_in::<u16>(1..=64)("65"), Err("65 is not from 1 to 64".to_owned()));
        assert_eq!(size_in::<u64>(64_000..)("1k"), Err("1000 is not 64000 or more".to_owned()));
        assert!(count_in::<u8>(..)("256").is_err());
        assert_eq!(count("5x").unwrap_err().to_string(), format!("'5x' is not {COUNT_FORM}"));
    }
}
