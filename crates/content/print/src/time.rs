//! The time at the start of a line.

use jiff::tz::TimeZone;
use tapline_packet::{Timestamp, date_of_day};

use crate::text::Text;
use crate::{Options, Precision, TimeStyle};

/// Times of earlier packets, and the zone's offset where it was last asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    first: Option<Timestamp>,
    previous: Option<Timestamp>,
    /// The quarter of an hour since 1970, and the offset in it: zones change their offset at whole quarters.
    offset: Option<(i64, i64)>,
}

const QUARTER_S: i64 = 15 * 60;
const DAY_S: i64 = 86_400;

impl Clock {
    /// Writes `time` and a space in the form of the options, and remembers it.
    pub(crate) fn print(&mut self, out: &mut Vec<u8>, options: &Options, time: Timestamp) {
        match options.time {
            TimeStyle::None => {}
            TimeStyle::TimeOfDay => {
                let local = self.local_seconds(&options.zone, time);
                time_of_day(out, local.rem_euclid(DAY_S) as u64);
                fraction(out, options.precision, time.subsec_nanos());
            }
            TimeStyle::DateTime => {
                let local = self.local_seconds(&options.zone, time);
                date(out, local.div_euclid(DAY_S));
                out.text(" ");
                time_of_day(out, local.rem_euclid(DAY_S) as u64);
                fraction(out, options.precision, time.subsec_nanos());
            }
            TimeStyle::Epoch => {
                out.dec(time.seconds() as u32);
                fraction(out, options.precision, time.subsec_nanos());
            }
            TimeStyle::SincePrevious => {
                let previous = self.previous.replace(time).unwrap_or(time);
                difference(out, options.precision, time, previous);
            }
            TimeStyle::SinceFirst => {
                let first = *self.first.get_or_insert(time);
                difference(out, options.precision, time, first);
            }
        }
    }

    /// Seconds since 1970 as a clock in the zone shows them.
    fn local_seconds(&mut self, zone: &TimeZone, time: Timestamp) -> i64 {
        let seconds = time.seconds();
        let quarter = seconds.div_euclid(QUARTER_S);
        let offset = match self.offset {
            Some((known, offset)) if known == quarter => offset,
            _ => {
                let offset = jiff::Timestamp::from_second(quarter * QUARTER_S)
                    .map_or(0, |at| i64::from(zone.to_offset(at).seconds()));
                self.offset = Some((quarter, offset));
                offset
            }
        };
        seconds + offset
    }
}

fn time_of_day(out: &mut Vec<u8>, seconds: u64) {
    out.dec_padded(seconds / 3600, 2);
    out.text(":");
    out.dec_padded(seconds / 60 % 60, 2);
    out.text(":");
    out.dec_padded(seconds % 60, 2);
}

fn fraction(out: &mut Vec<u8>, precision: Precision, nanos: u32) {
    out.text(".");
    match precision {
        Precision::Micro => out.dec_padded(nanos / 1000, 6),
        Precision::Nano => out.dec_padded(nanos, 9),
    }
    out.text(" ");
}

/// ` 00:00:01.000002`, with a `-` in place of the space where time went back.
fn difference(out: &mut Vec<u8>, precision: Precision, time: Timestamp, base: Timestamp) {
    let (later, earlier, sign) = if time < base { (base, time, "-") } else { (time, base, " ") };
    let unit = match precision {
        Precision::Micro => 1000,
        Precision::Nano => 1,
    };
    // Both are cut to the unit that is shown before they are subtracted, as the reader would do.
    let cut = |t: Timestamp| t.as_nanos().div_euclid(unit);
    let nanos = i128::from(cut(later)) - i128::from(cut(earlier));
    let nanos = nanos.unsigned_abs() * unit as u128;
    out.text(sign);
    let seconds = (nanos / 1_000_000_000) as u64;
    // Whole days are left out, as in tcpdump.
    time_of_day(out, seconds % DAY_S as u64);
    fraction(out, precision, (nanos % 1_000_000_000) as u32);
}

/// `yyyy-mm-dd` of a day counted from 1970-01-01.
fn date(out: &mut Vec<u8>, day: i64) {
    let (year, month, day) = date_of_day(day);
    out.dec_padded(year.max(0) as u64, 4);
    out.text("-");
    out.dec_padded(month, 2);
    out.text("-");
    out.dec_padded(day, 2);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(style: TimeStyle, times: &[i64]) -> String {
        let mut clock = Clock::default();
        let options = Options { time: style, precision: Precision::Nano, ..Options::default() };
        let mut out = Vec::new();
        for &nanos in times {
            out.clear();
            clock.print(&mut out, &options, Timestamp::from_nanos(nanos));
        }
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn dates() {
        assert_eq!(printed(TimeStyle::DateTime, &[0]), "1970-01-01 00:00:00.000000000 ");
        assert_eq!(
            printed(TimeStyle::DateTime, &[1_709_210_096_000_000_001]),
            "2024-02-29 12:34:56.000000001 "
        );
    }

    #[test]
    fn differences_keep_their_sign() {
        assert_eq!(printed(TimeStyle::SincePrevious, &[5, 3_000_000_010]), " 00:00:03.000000005 ");
        assert_eq!(printed(TimeStyle::SinceFirst, &[10, 3]), "-00:00:00.000000007 ");
    }
}
