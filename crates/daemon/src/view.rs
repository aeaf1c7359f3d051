//! A buffer for readers of the same rights.

use tapline_filter::set::FilterId;
use tapline_packet::{LinkType, Selection, Timestamp};
use tapline_ring::{BLOCK_LEN_DEFAULT, BufferSpec, Error, Writer};
use tapline_sys::clock;

/// What readers of a buffer may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    /// What they see at most; empty for all.
    pub(crate) filter: String,
    /// Bytes of each packet.
    pub(crate) snap_len: u32,
}

impl Rights {
    /// A filter within these rights.
    pub(crate) fn narrowed(&self, text: &str) -> String {
        match (self.filter.trim(), text.trim()) {
            ("", own) => own.to_owned(),
            (forced, "") => forced.to_owned(),
            (forced, own) => format!("({forced}) and ({own})"),
        }
    }
}

/// A buffer of a worker.
pub(crate) struct View {
    pub(crate) rights: Rights,
    pub(crate) writer: Writer,
    /// What of a batch anybody wants.
    pub(crate) wanted: Selection,
    /// What is stored though nobody reads it.
    pub(crate) history: Option<FilterId>,
}

impl View {
    /// A buffer of so many MiB.
    pub(crate) fn new(rights: Rights, link_type: LinkType, mib: u32, worker: u32) -> Result<View, Error> {
        let spec = BufferSpec {
            blocks: mib * ((1 << 20) / BLOCK_LEN_DEFAULT),
            snap_len: rights.snap_len,
            worker,
            ..BufferSpec::new(link_type)
        };
        let writer = Writer::create(&spec, Timestamp::from_nanos(clock::realtime_ns()))?;
        Ok(View { rights, writer, wanted: Selection::none(), history: None })
    }
}
