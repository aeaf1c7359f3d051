//! Packets behind a chart: asked for by window and filter.

use std::io::Write;

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
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketAnswer {
    /// Packets in the answer.
    pub packets: u64,
    /// The first and the last of them, nanoseconds since 1970.
    pub span_ns: Option<(i64, i64)>,
    /// A line of text for each packet, as far as they were asked for.
    pub lines: Vec<(i64, u32, String)>,
    /// Whether there may be more, beyond the limits.
    pub is_cut: bool,
    /// The account of the reading in words: what was lost, what is no longer there.
    pub notes: Vec<String>,
}

/// Where packets of the past come from: the command that serves the page knows.
pub trait PacketSource: Send + Sync {
    /// The names of the sources that can be asked.
    fn sources(&self) -> Vec<String>;

    /// Lists packets as lines of text.
    ///
    /// # Errors
    /// A text for the user.
    fn list(&self, request: &PacketRequest) -> Result<PacketAnswer, String>;

    /// Writes packets as a pcapng file.
    ///
    /// # Errors
    /// A text for the user.
    fn write(&self, request: &PacketRequest, to: &mut dyn Write) -> Result<PacketAnswer, String>;
}
