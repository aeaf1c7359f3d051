//! Thresholds: how often a signature reports, by address and time.

use tapline_packet::Timestamp;

use crate::number::number;
use crate::options::parts;

/// The address that findings are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Track {
    /// The source address.
    Source,
    /// The destination address.
    Destination,
}

/// Limits of the reports of a signature: `threshold`, or `detection_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    kind: Kind,
    /// The address that findings are counted by.
    pub track: Track,
    count: u32,
    seconds: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The first `count` findings of an interval.
    Limit,
    /// Each `count`th finding of an interval.
    Threshold,
    /// The `count`th finding of an interval, and no other.
    Both,
    /// All findings of an interval behind the first `count`.
    Filter,
}

/// The findings of a signature for one address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThresholdState {
    start: Option<Timestamp>,
    count: u32,
}

impl Threshold {
    /// `type limit, track by_src, count 1, seconds 60`; of a `detection_filter` without the type.
    pub(crate) fn parse(value: &str, is_filter: bool) -> Result<Threshold, String> {
        let (mut kind, mut track, mut count, mut seconds) =
            (is_filter.then_some(Kind::Filter), None, None, None);
        for part in parts(value) {
            let (name, word) = part.split_once(char::is_whitespace).unwrap_or((part, ""));
            let word = word.trim();
            match (name, word) {
                ("type", "limit") if !is_filter => kind = Some(Kind::Limit),
                ("type", "threshold") if !is_filter => kind = Some(Kind::Threshold),
                ("type", "both") if !is_filter => kind = Some(Kind::Both),
                ("track", "by_src") => track = Some(Track::Source),
                ("track", "by_dst") => track = Some(Track::Destination),
                ("count", digits) => count = Some(number(digits, u32::MAX.into())? as u32),
                ("seconds", digits) => seconds = Some(number(digits, u32::MAX.into())? as u32),
                _ => return Err(format!("`{part}` is not a part of a threshold")),
            }
        }
        let (Some(kind), Some(track), Some(count @ 1..), Some(seconds @ 1..)) = (kind, track, count, seconds)
        else {
            return Err("a threshold needs type, track, count and seconds, the last two from 1 on".to_owned());
        };
        Ok(Threshold { kind, track, count, seconds })
    }
}

impl ThresholdState {
    /// Counts a finding at `time`; whether it is reported. An interval begins with the first finding after the last
    /// one ended, or with a finding before its start.
    pub fn count(&mut self, threshold: &Threshold, time: Timestamp) -> bool {
        let length = i64::from(threshold.seconds) * 1_000_000_000;
        let is_inside = self
            .start
            .is_some_and(|start| (0..length).contains(&time.as_nanos().saturating_sub(start.as_nanos())));
        if !is_inside {
            *self = ThresholdState { start: Some(time), count: 0 };
        }
        self.count = self.count.saturating_add(1);
        match threshold.kind {
            Kind::Limit => self.count <= threshold.count,
            Kind::Threshold => self.count.is_multiple_of(threshold.count),
            Kind::Both => self.count == threshold.count,
            Kind::Filter => self.count > threshold.count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds at which findings of each second from 0 to 19 are reported.
    fn reported(text: &str, is_filter: bool) -> Vec<i64> {
        let threshold = Threshold::parse(text, is_filter).expect(text);
        let mut state = ThresholdState::default();
        let at = |second: i64| Timestamp::from_nanos(second * 1_000_000_000);
        (0..20).filter(|second| state.count(&threshold, at(*second))).collect()
    }

    #[test]
    fn each_kind_reports_what_the_manual_says() {
        assert_eq!(reported("type limit, track by_src, count 2, seconds 10", false), [0, 1, 10, 11]);
        assert_eq!(reported("type threshold,track by_dst,count 4,seconds 10", false), [3, 7, 13, 17]);
        assert_eq!(reported("type both, track by_src, count 4, seconds 10", false), [3, 13]);
        assert_eq!(reported("track by_src, count 8, seconds 10", true), [8, 9, 18, 19]);
    }

    #[test]
    fn incomplete_thresholds_are_refused() {
        for text in [
            "",
            "type limit",
            "type often, track by_src, count 1, seconds 1",
            "type limit, track by_src, count 0, seconds 9",
        ] {
            assert!(Threshold::parse(text, false).is_err(), "{text}");
        }
        assert!(Threshold::parse("type limit, track by_src, count 1, seconds 1", true).is_err());
    }
}
