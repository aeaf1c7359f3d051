//! Packets behind a chart: asked for by window and filter.

use std::io::Write;
use std::time::Duration;

/// Maximum duration of a list, and maximum pause of a file.
const QUESTION_MAX: Duration = Duration::from_secs(60);

/// The time of a question, on a steady clock. A list is to come soon. A file goes on as long as packets are found and
/// the browser takes them: 256 MB over a line of 20 Mbit/s take 107 seconds.
#[derive(Clone, Copy, Debug)]
pub struct QuestionTime {
    is_file: bool,
    /// The last progress that counts.
    since: Duration,
}

impl QuestionTime {
    /// A question that begins now.
    pub fn begin(is_file: bool, now: Duration) -> QuestionTime {
        QuestionTime { is_file, since: now }
    }

    /// Notes that a packet was found and taken.
    pub fn progress(&mut self, now: Duration) {
        if self.is_file {
            self.since = now;
        }
    }

    /// Whether it has taken too long.
    pub fn is_over(&self, now: Duration) -> bool {
        now.saturating_sub(self.since) > QUESTION_MAX
    }
}

/// A question for packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketRequest {
    /// The source by its name: `tap:office`, `store:/srv/store`.
    pub source: String,
    /// In the pcap-filter language; empty for all.
    pub filter: String,
    /// The first moment, nanoseconds since 1970.
    pub from_ns: i64,
    /// The first moment after the last.
    pub to_ns: i64,
    /// The most packets.
    pub packets_max: u64,
    /// The most bytes of the file.
    pub bytes_max: u64,
    /// List the last packets of the window, not the first.
    pub is_from_end: bool,
    /// Each packet in all lines of its details and with its bytes, not in one.
    pub is_detailed: bool,
}

/// The outcome of a search for packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketAnswer {
    /// Packets in the answer.
    pub packets: u64,
    /// The first and the last of them, nanoseconds since 1970.
    pub span_ns: Option<(i64, i64)>,
    /// A line of text for each packet, as far as they were asked for.
    pub lines: Vec<(i64, u32, String)>,
    /// Whether there may be more, beyond the limits of number, bytes and time.
    pub is_cut: bool,
    /// The account of the reading in words: lost packets, and packets that are no longer there.
    pub notes: Vec<String>,
}

/// Where packets of the past come from: the command that serves the page knows.
pub trait PacketSource: Send + Sync {
    /// The names of the sources that can be asked now.
    fn sources(&self) -> Vec<String>;

    /// Lists packets as lines of text.
    ///
    /// # Errors
    /// A text for the user.
    fn list(&self, request: &PacketRequest) -> Result<PacketAnswer, String>;

    /// Writes packets as a pcapng file, whose comments say where it is cut, and what was lost.
    ///
    /// # Errors
    /// A text for the user.
    fn write(&self, request: &PacketRequest, to: &mut dyn Write) -> Result<PacketAnswer, String>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_take_long_but_not_stand_still() {
        let at = Duration::from_secs;
        let (mut list, mut file) = (QuestionTime::begin(false, at(5)), QuestionTime::begin(true, at(5)));
        for now in (5..=605).step_by(50).map(at) {
            assert!(!file.is_over(now), "{now:?}");
            assert_eq!(list.is_over(now), now > at(65), "{now:?}");
            list.progress(now);
            file.progress(now);
        }
        assert!(!file.is_over(at(665)) && file.is_over(at(666)));
    }
}
