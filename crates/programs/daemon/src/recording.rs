//! Captures that are recorded: their table in the rules, and their state for `tapline status`.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use tapline_tap_client::protocol::RecordingStatus;

use crate::CaptureRule;
use crate::rules::parses;

/// A capture that is recorded to a store: a table `[[record]]`. Keys other than `capture` and `filter` are options of
/// `tapline record`, with the same values as text; one that is left out has the default of the command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecordRule {
    /// The name of the capture.
    pub capture: String,
    /// Packets that are recorded, in the pcap-filter language; empty for all.
    pub filter: String,
    /// The directory of the store.
    pub to: PathBuf,
    /// Bytes of all segments, or percent of the disk.
    pub size: Option<String>,
    /// Age at which packets are deleted.
    pub keep: Option<String>,
    /// Bytes of a segment.
    pub segment: Option<String>,
    /// Compression of chunks: `zstd` or `zstd:LEVEL`.
    pub compress: Option<String>,
    /// Age at which packets are written although their chunk is not full.
    pub flush: Option<String>,
    /// Interval of flushes to the disk.
    pub sync: Option<String>,
    /// Limits of bytes per flow: `SIZE` or `FILTER=SIZE`.
    pub cut: Vec<String>,
    /// Optional keys of the index: `names`, `mac`.
    pub index: Vec<String>,
    /// The packets that are given up when the disk is too slow: `wait`, `newest`, `oldest`, `flows`.
    pub overload: Option<String>,
    /// Whether the store gets no index.
    pub no_index: bool,
}

impl RecordRule {
    /// Whether the table makes sense, but for values of options, which the command parses.
    pub(crate) fn check(&self, captures: &[CaptureRule]) -> Result<(), String> {
        let RecordRule { capture: name, filter, to, .. } = self;
        let Some(capture) = captures.iter().find(|capture| capture.name == *name) else {
            return Err(format!("[[record]] names the capture {name:?}, and there is none"));
        };
        if capture.file.is_some() {
            return Err(format!(
                "[[record]] names the capture {name:?} of a file: tapline record -r FILE --to STORE records files"
            ));
        }
        if to.as_os_str().is_empty() {
            return Err(format!("[[record]] of {name:?} names no store: give to = DIRECTORY"));
        }
        parses(name, filter)
    }

    /// The options as words of the command line, without the filter.
    pub fn options(&self) -> Vec<String> {
        let mut words = vec![format!("--to={}", self.to.display())];
        let single = [
            ("size", &self.size),
            ("keep", &self.keep),
            ("segment", &self.segment),
            ("compress", &self.compress),
            ("flush", &self.flush),
            ("sync", &self.sync),
            ("overload", &self.overload),
        ];
        words.extend(
            single.into_iter().filter_map(|(name, value)| Some(format!("--{name}={}", value.as_ref()?))),
        );
        words.extend(self.cut.iter().map(|cut| format!("--cut={cut}")));
        words.extend(self.index.iter().map(|keys| format!("--index={keys}")));
        words.extend(self.no_index.then(|| "--no-index".to_owned()));
        words
    }
}

/// The state of a recording, which its thread writes and the control thread reads.
#[derive(Debug, Default)]
pub struct Recording {
    status: Mutex<RecordingStatus>,
}

impl Recording {
    /// Shows another state.
    pub fn set(&self, status: RecordingStatus) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    pub(crate) fn status(&self) -> RecordingStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_options_of_the_command() {
        let text =
            "to = \"/a b\"\nsize = \"8MiB\"\ncut = [\"udp=1k\", \"5MB\"]\nindex = [\"mac\"]\nno_index = true";
        let rule: RecordRule = toml::from_str(text).unwrap();
        let words = ["--to=/a b", "--size=8MiB", "--cut=udp=1k", "--cut=5MB", "--index=mac", "--no-index"];
        assert_eq!(rule.options(), words);
    }
}
