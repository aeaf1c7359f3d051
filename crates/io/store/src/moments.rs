//! Moments as people say them: `-1h`, `10:00`, `yesterday 22:00`, `2026-11-24T10:00:00Z`.
//!
//! ```text
//! moment := now | -DURATION | +DURATION        before now; after the moment that it is counted from
//!         | [DAY] HH:MM[:SS[.frac]]            of today unless a day is given, by local time
//!         | DAY                                its first moment
//!         | RFC 3339                           with its own offset
//!         | @SECONDS[.frac]                    since 1970
//! DAY    := today | yesterday | YYYY-MM-DD
//! ```

use std::fmt::Display;
use std::sync::OnceLock;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{Timestamp as Moment, ToSpan};
use tapline_file::system_zone;
use tapline_packet::Timestamp;
use tapline_syntax::units;

use crate::search::Window;

/// Clock and time zone by which a moment is parsed.
#[derive(Clone, Debug)]
pub struct Clock {
    /// The moment that is called now.
    pub now: Timestamp,
    /// Where `10:00` is meant; `None` for the system's zone, which is then looked up when a time needs it: that reads
    /// the whole directory of zones.
    pub zone: Option<TimeZone>,
}

impl Clock {
    /// Now, by local time.
    pub fn local() -> Clock {
        Clock { now: Timestamp::from_nanos(tapline_sys::clock::realtime_ns()), zone: None }
    }

    /// The moment that `text` says; `+5m` is counted from `from`.
    ///
    /// # Errors
    /// Why it says none, and what would.
    pub fn parse(&self, text: &str, from: Option<Timestamp>) -> Result<Timestamp, String> {
        let text = text.trim();
        if text == "now" {
            return Ok(self.now);
        }
        if let Some(duration) = text.strip_prefix('-') {
            return within(self.now, text, -i128::from(units_of(duration)?));
        }
        if let Some(duration) = text.strip_prefix('+') {
            let from = from.ok_or("a time with + counts from --from, which is not given")?;
            return within(from, text, units_of(duration)?.into());
        }
        if let Some(seconds) = text.strip_prefix('@') {
            return within(Timestamp::EPOCH, text, units_of(seconds)?.into());
        }
        if let Ok(moment) = text.parse::<Moment>() {
            return of(moment);
        }
        self.civil(text).ok_or_else(|| {
            format!(
                "{text:?} is not a time: write 10:00, yesterday 22:00, 2026-11-24 10:00, -1h, or \
                 2026-11-24T10:00:00Z"
            )
        })?
    }

    /// The times between two moments, of which either may be missing. `names` are the names of the moments in errors.
    ///
    /// # Errors
    /// A message if one of them is not a moment, or the window is empty.
    pub fn window(&self, from: Option<&str>, to: Option<&str>, names: [&str; 2]) -> Result<Window, String> {
        let at = |name: &str, text: Option<&str>, from: Option<Timestamp>| {
            let parse = |text| self.parse(text, from).map_err(|error| format!("{name}: {error}"));
            text.map(parse).transpose()
        };
        let from = at(names[0], from, None)?;
        let to = at(names[1], to, from)?;
        let window = Window { from: from.unwrap_or(Window::ALL.from), to: to.unwrap_or(Window::ALL.to) };
        match window.from < window.to {
            true => Ok(window),
            false => Err(format!("{} is not after {}: the window is empty", names[1], names[0])),
        }
    }

    /// A day, a time of day, or both, by local time.
    fn civil(&self, text: &str) -> Option<Result<Timestamp, String>> {
        let (day, time) = match text.split_once([' ', 'T']) {
            Some((day, time)) => (self.day(day)?, time_of_day(time.trim())?),
            None => match self.day(text) {
                // A day has a first moment, also where clocks are set at midnight.
                Some(day) => {
                    let zoned = day.to_datetime(Time::midnight()).to_zoned(self.zone());
                    return Some(
                        zoned.map_err(|error| error.to_string()).and_then(|zoned| of(zoned.timestamp())),
                    );
                }
                None => (self.today()?, time_of_day(text)?),
            },
        };
        Some(self.moment_of(day.to_datetime(time)))
    }

    /// The moment of a local time: one that occurs twice, or not at all, where clocks are set, is none.
    fn moment_of(&self, local: DateTime) -> Result<Timestamp, String> {
        let moment = self.zone().to_ambiguous_timestamp(local);
        let (twice, [one, other]) = match moment.offset() {
            AmbiguousOffset::Unambiguous { .. } => {
                return moment.compatible().map_err(|error| error.to_string()).and_then(of);
            }
            AmbiguousOffset::Fold { before, after } => (true, [before, after]),
            AmbiguousOffset::Gap { before, after } => (false, [before, after]),
        };
        // At the offset after the clocks are set forward, a time within the gap is the earlier moment.
        let written = |offset: Offset| {
            let moment = offset.to_timestamp(local).map_err(|error| error.to_string())?;
            Ok::<_, String>(moment.display_with_offset(offset).to_string())
        };
        let (one, other) = (written(one)?, written(other)?);
        Err(match twice {
            true => {
                format!("the local time {local} occurs twice, as clocks are set back: write {one} or {other}")
            }
            false => format!(
                "the local time {local} does not occur, as clocks are set forward: write {one} or {other}"
            ),
        })
    }

    fn day(&self, text: &str) -> Option<Date> {
        match text {
            "today" => self.today(),
            "yesterday" => self.today()?.checked_sub(1.day()).ok(),
            _ => text.parse().ok().filter(|_| text.len() == 10),
        }
    }

    fn today(&self) -> Option<Date> {
        let now = Moment::from_nanosecond(self.now.as_nanos().into()).ok()?;
        Some(now.to_zoned(self.zone()).date())
    }

    fn zone(&self) -> TimeZone {
        self.zone.as_ref().unwrap_or_else(|| local_zone()).clone()
    }
}

/// `10:00`, `10:00:30`, `10:00:30.5`.
fn time_of_day(text: &str) -> Option<Time> {
    text.parse().ok().filter(|_| text.contains(':'))
}

/// A time as docs/units.md has it, in nanoseconds.
fn units_of(text: &str) -> Result<u64, String> {
    units::nanoseconds(text).map_err(|error| error.to_string())
}

/// A moment, moved by nanoseconds; `text` is the form in which it was given.
fn within(from: Timestamp, text: &str, nanoseconds: i128) -> Result<Timestamp, String> {
    timestamp(i128::from(from.as_nanos()) + nanoseconds, &text)
}

fn of(moment: Moment) -> Result<Timestamp, String> {
    timestamp(moment.as_nanosecond(), &moment)
}

fn timestamp(nanoseconds: i128, said: &dyn Display) -> Result<Timestamp, String> {
    let nanoseconds =
        i64::try_from(nanoseconds).map_err(|_| format!("{said} is outside of the years 1677 to 2262"))?;
    Ok(Timestamp::from_nanos(nanoseconds))
}

/// Looks up the system's time zone, for later: to be called before the process gives up the right to read its file.
pub fn learn_zone() {
    local_zone();
}

fn local_zone() -> &'static TimeZone {
    static ZONE: OnceLock<TimeZone> = OnceLock::new();
    ZONE.get_or_init(system_zone)
}

/// A moment for people: local date and time to the second.
pub fn shown(at: Timestamp) -> String {
    local(at, "%Y-%m-%d %H:%M:%S")
}

/// Local date and time in a format of strftime.
pub fn local(at: Timestamp, format: &str) -> String {
    let Ok(moment) = Moment::from_nanosecond(at.as_nanos().into()) else { return "unknown".to_owned() };
    moment.to_zoned(local_zone().clone()).strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> Clock {
        // 2026-11-24 12:00:00 in a zone one hour east.
        let zone = Some(TimeZone::fixed(jiff::tz::offset(1)));
        Clock { now: Timestamp::from_parts(1_795_518_000, 0), zone }
    }

    #[test]
    fn seconds_are_exact_to_the_nanosecond() {
        let at = clock().parse("@1795500504.479016660", None).unwrap();
        assert_eq!(at.as_nanos(), 1_795_500_504_479_016_660);
    }

    fn said(text: &str) -> String {
        let at = clock().parse(text, Some(Timestamp::from_parts(1_795_518_000, 0))).unwrap();
        Moment::from_nanosecond(at.as_nanos().into()).unwrap().to_string()
    }

    #[test]
    fn moments_are_understood_as_people_say_them() {
        for (text, moment) in [
            ("now", "2026-11-24T11:00:00Z"),
            ("-1h", "2026-11-24T10:00:00Z"),
            ("+90s", "2026-11-24T11:01:30Z"),
            ("10:00", "2026-11-24T09:00:00Z"),
            ("10:00:30.5", "2026-11-24T09:00:30.5Z"),
            ("yesterday 22:00", "2026-11-23T21:00:00Z"),
            ("today", "2026-11-23T23:00:00Z"),
            ("2026-11-20", "2026-11-19T23:00:00Z"),
            ("2026-11-20 08:15", "2026-11-20T07:15:00Z"),
            ("2026-11-20T08:15:00+05:00", "2026-11-20T03:15:00Z"),
            ("@1795518000", "2026-11-24T11:00:00Z"),
        ] {
            assert_eq!(said(text), moment, "{text}");
        }
    }

    #[test]
    fn a_time_that_occurs_twice_is_not_guessed() {
        let zone = TimeZone::posix("EST5EDT,M3.2.0,M11.1.0").unwrap();
        let clock = Clock { now: Timestamp::from_parts(1_795_518_000, 0), zone: Some(zone) };
        let of = |text: &str| clock.parse(text, None);
        // 2026-11-01: at 2 o'clock it is 1 o'clock again. 2026-03-08: at 2 o'clock it is 3.
        let twice = of("2026-11-01 01:50").unwrap_err();
        let [first, second] = ["2026-11-01T01:50:00-04:00", "2026-11-01T01:50:00-05:00"];
        assert!(twice.contains("occurs twice") && twice.contains(first) && twice.contains(second), "{twice}");
        assert_eq!(of(second).unwrap().since(of(first).unwrap()), 3_600_000_000_000);
        let none = of("2026-03-08 02:30").unwrap_err();
        assert!(none.contains("does not occur"), "{none}");
        let window = clock.window(Some("2026-11-01 00:30"), Some("2026-11-01T01:50"), ["--from", "--to"]);
        assert!(window.unwrap_err().starts_with("--to: "));
        for text in ["2026-11-01 00:59", "2026-11-01 02:00", "2026-03-08 03:00", "2026-11-01", "2026-03-08"] {
            assert!(of(text).is_ok(), "{text}");
        }
        // Where midnight does not occur the day begins later.
        let clock = Clock { zone: Some(TimeZone::posix("BRT3BRST,M10.3.0/0,M2.3.0/0").unwrap()), ..clock };
        let begins = clock.parse("2026-10-18", None).unwrap();
        assert_eq!(begins, clock.parse("2026-10-18T01:00:00-02:00", None).unwrap());
    }

    #[test]
    fn what_is_no_moment_is_told() {
        for text in ["", "10", "25:00", "tomorrow", "yesterday 22", "-1x", "2026-13-01", "@x"] {
            assert!(clock().parse(text, None).is_err(), "{text}");
        }
        assert!(clock().parse("+5m", None).unwrap_err().contains("--from"));
        let now = Some(clock().now);
        for text in ["@9300000000", "-4000000h", "+4000000h", "2300-01-01", "1600-01-01T00:00:00Z"] {
            assert!(clock().parse(text, now).unwrap_err().contains("1677 to 2262"), "{text}");
        }
        assert!(clock().parse("1960-01-01", None).unwrap() < Timestamp::EPOCH);
    }
}
