//! Names of rotated files, and sizes, as tcpdump has them.
//!
//! ```text
//! -w x                x
//! -w x -C 1           x, x1, x2 ...
//! -w x -C 1 -W 12     x00, x01 ... x11, x00 ...
//! -w x%H%M -G 60      x1405, x1406 ...                    (local time at which the file begins)
//! -w x%H%M -G 60 -C 1 x1405, x14051, x14052, x1406 ...    (numbers start over in each period)
//! ```

use std::path::{Path, PathBuf};

use jiff::fmt::strtime::{BrokenDownTime, Config};
use jiff::tz::TimeZone;
use tapline_packet::Timestamp;

use crate::error::WriteError;
use crate::zone::system_zone;

/// Makes names from the argument of `-w`.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pattern: PathBuf,
    /// Local time, if names hold the time. Read once: later the process may see other files, or none.
    zone: Option<TimeZone>,
    /// Digits of the number.
    width: usize,
}

impl Names {
    /// Names for a rotation by time (`has_time`) through at most `count` files.
    pub(super) fn new(pattern: &Path, has_time: bool, count: Option<u32>) -> Names {
        Names {
            pattern: pattern.to_owned(),
            zone: has_time.then(system_zone),
            width: digits(count.unwrap_or(0)),
        }
    }

    /// The name of the file that begins at `start`; `number` counts files by size, if that is done.
    pub(super) fn make(&self, start: Timestamp, number: Option<u32>) -> Result<PathBuf, WriteError> {
        let name = match &self.zone {
            None => self.pattern.clone(),
            Some(zone) => self.at_time(start, zone)?,
        };
        Ok(match number {
            None => name,
            Some(0) if self.width == 0 => name,
            Some(number) => {
                let mut name = name.into_os_string();
                name.push(format!("{number:0width$}", width = self.width));
                name.into()
            }
        })
    }

    fn at_time(&self, start: Timestamp, zone: &TimeZone) -> Result<PathBuf, WriteError> {
        let fail = |why: &dyn std::fmt::Display| {
            let pattern = self.pattern.display();
            WriteError::Options(format!("no file name can be made from {pattern}: {why}; see strftime(3)"))
        };
        let pattern = self.pattern.to_str().ok_or_else(|| fail(&"it is not UTF-8"))?;
        let time = jiff::Timestamp::from_nanosecond(start.as_nanos().into()).map_err(|error| fail(&error))?;
        // Lenient, as strftime is: text that is not a conversion is copied.
        let config = Config::new().lenient(true);
        let broken_down = BrokenDownTime::from(&time.to_zoned(zone.clone()));
        let name = broken_down.to_string_with_config(&config, pattern).map_err(|error| fail(&error))?;
        Ok(name.into())
    }
}

/// Digits of the greatest number of `count` files, which are counted from 0.
fn digits(count: u32) -> usize {
    match count {
        0 | 1 => 0,
        _ => (count - 1).ilog10() as usize + 1,
    }
}

/// A file size as `-C` takes it: millions of bytes, or with k, m, g in any case KiB, MiB, GiB (tcpdump 4.99.4).
///
/// # Errors
/// If it is not a positive number, or does not fit in 64 bits.
///
/// ```
/// use tapline_file::parse_size;
/// assert_eq!(parse_size("2").unwrap(), 2_000_000);
/// assert_eq!(parse_size("64k").unwrap(), 65_536);
/// ```
pub fn parse_size(text: &str) -> Result<u64, WriteError> {
    let (number, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
        Some((at, 'g' | 'G')) => (&text[..at], 1 << 30),
        _ => (text, 1_000_000),
    };
    let size = number.parse::<u64>().ok().filter(|&n| n > 0).and_then(|n| n.checked_mul(unit));
    size.ok_or_else(|| {
        let advice = "give millions of bytes, or a number with k, m or g";
        WriteError::Options(format!("'{text}' is not a file size: {advice}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(has_time: bool, count: Option<u32>) -> Names {
        let mut names = Names::new("x%H%M%%".as_ref(), has_time, count);
        names.zone = has_time.then_some(TimeZone::UTC);
        names
    }

    fn make(names: &Names, number: Option<u32>) -> String {
        names.make(Timestamp::from_parts(3_660, 0), number).unwrap().display().to_string()
    }

    #[test]
    fn numbers_as_tcpdump_writes_them() {
        assert_eq!(make(&names(false, None), None), "x%H%M%%");
        assert_eq!(make(&names(false, None), Some(0)), "x%H%M%%");
        assert_eq!(make(&names(false, None), Some(1)), "x%H%M%%1");
        assert_eq!(make(&names(false, Some(1)), Some(0)), "x%H%M%%");
        assert_eq!(make(&names(false, Some(10)), Some(0)), "x%H%M%%0");
        assert_eq!(make(&names(false, Some(11)), Some(0)), "x%H%M%%00");
        assert_eq!(make(&names(false, Some(12)), Some(11)), "x%H%M%%11");
    }

    #[test]
    fn times_as_strftime_writes_them() {
        assert_eq!(make(&names(true, None), None), "x0101%");
        assert_eq!(make(&names(true, Some(3)), Some(2)), "x0101%2");
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("1").unwrap(), 1_000_000);
        assert_eq!(parse_size("3M").unwrap(), 3 << 20);
        assert_eq!(parse_size("1g").unwrap(), 1 << 30);
        for bad in ["", "0", "k", "-1", "1.5", "1kk", "99999999999999999999", "18446744073709551615", "é"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
