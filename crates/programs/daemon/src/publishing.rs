//! Published places: stages behind a capture, whose packets are a capture of their own. Their tables in the rules.
//!
//! ```text
//! tap:office --reader--> graph of the capture: STAGES of each table --> publish(dns) --> tap:dns
//! ```

use serde::Deserialize;

use crate::CaptureRule;
use crate::rules::{SNAP_LEN_MAX, parses};

/// MiB of a place's buffer.
const BUFFER_MIB_DEFAULT: u32 = 16;

/// A place that the daemon publishes: a table `[[publish]]`. Access to it is said by `[[access]]`, as for captures.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PublishRule {
    /// The name that readers use.
    pub name: String,
    /// The capture whose packets go through the stages.
    pub capture: String,
    /// Stages of a graph, as between two arrows: `filter("udp port 53") -> sample(1/10)`. Empty for none.
    pub stages: String,
    /// MiB of each buffer, a power of two from 4 on.
    pub buffer: u32,
    /// Bytes kept of each packet.
    pub snap_len: u32,
    /// The filter of packets that are stored for readers that start in the past; `None` for no packet.
    pub history: Option<String>,
}

impl Default for PublishRule {
    fn default() -> PublishRule {
        PublishRule {
            name: String::new(),
            capture: String::new(),
            stages: String::new(),
            buffer: BUFFER_MIB_DEFAULT,
            snap_len: SNAP_LEN_MAX,
            history: None,
        }
    }
}

impl PublishRule {
    /// Whether the table makes sense, but for its stages, which the command plans.
    pub(crate) fn check(&self, captures: &[CaptureRule]) -> Result<(), String> {
        let PublishRule { name, capture, .. } = self;
        let Some(of) = captures.iter().find(|known| known.name == *capture) else {
            return Err(format!("[[publish]] {name:?} names the capture {capture:?}, and there is none"));
        };
        if of.file.is_some() {
            return Err(format!(
                "[[publish]] {name:?} names the capture {capture:?} of a file: tapline run publishes places of files"
            ));
        }
        // As a capture it has the limits of one.
        self.as_capture(std::slice::from_ref(capture)).check()?;
        self.history.as_deref().map_or(Ok(()), |text| parses(name, text))
    }

    /// The capture that readers see, with these names of interfaces.
    pub fn as_capture(&self, interfaces: &[String]) -> CaptureRule {
        CaptureRule {
            name: self.name.clone(),
            interfaces: interfaces.to_vec(),
            buffer: self.buffer,
            snap_len: self.snap_len,
            history: self.history.clone(),
            ..CaptureRule::default()
        }
    }

    /// The graph from the capture to the place, as text.
    pub fn graph(&self) -> String {
        let stages = match self.stages.trim() {
            "" => String::new(),
            stages => format!("{stages} -> "),
        };
        format!("device(\"tap:{}\") -> {stages}publish(\"{}\")", self.capture, self.name)
    }
}
