//! A buffer for readers of the same rights.
//!
//! ```text
//! batch --> cut: no more bytes than the rules say, and no metadata that tells of the others
//!       --> allowed: packets that the rules' filter accepts, which is asked on whole packets
//!       --> wanted: those of them that a reader or the history wants
//! ```

use std::time::Instant;

use tapline_filterset::FilterId;
use tapline_packet::{BATCH_MAX, Batch, Checksum, LinkType, Meta, Record, Selection, Timestamp};
use tapline_ring::{BLOCK_LEN_DEFAULT, BufferSpec, Error, Writer};
use tapline_sys::clock;

use crate::memory::Charge;

/// The rights of the readers of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    /// The forced filter; empty for all packets.
    pub(crate) filter: String,
    /// Bytes of each packet.
    pub(crate) snap_len: u32,
}

impl Rights {
    /// A filter of the operator within these rights.
    pub(crate) fn narrowed(&self, text: &str) -> String {
        match (self.filter.trim(), text.trim()) {
            ("", own) => own.to_owned(),
            (forced, "") => forced.to_owned(),
            (forced, own) => format!("({forced}) and ({own})"),
        }
    }

    /// Whether something of a capture is withheld that keeps `snap_len` bytes of each packet.
    pub(crate) fn withhold(&self, snap_len: u32) -> bool {
        !self.filter.trim().is_empty() || self.snap_len < snap_len
    }
}

/// Packets of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks([u64; BATCH_MAX / 64]);

impl Marks {
    /// Adds a packet, in any order.
    #[inline]
    pub(crate) fn set(&mut self, index: usize) {
        self.0[index / 64] |= 1 << (index % 64);
    }

    /// Adds those of others.
    pub(crate) fn merge(&mut self, other: &Marks) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word |= other);
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Selects these packets.
    pub(crate) fn select(&self, selection: &mut Selection) {
        selection.clear();
        for (at, word) in self.0.iter().enumerate() {
            let mut left = *word;
            while left != 0 {
                selection.push(at * 64 + left.trailing_zeros() as usize);
                left &= left - 1;
            }
        }
    }
}

/// A buffer of a worker.
pub(crate) struct View {
    pub(crate) rights: Rights,
    pub(crate) writer: Writer,
    /// Packets of the batch that a reader wants, while the filters run.
    pub(crate) marks: Marks,
    /// Packets of the batch that a reader wants, once all filters have run.
    pub(crate) wanted: Selection,
    /// Packets that are stored for later readers.
    pub(crate) history: Option<FilterId>,
    /// The rules' filter, in the set of the capture; none where its readers may see all packets.
    pub(crate) gate: Option<FilterId>,
    /// The packets of a batch that the rules' filter accepts.
    pub(crate) allowed: Selection,
    /// The rules withhold something, so counters of the whole capture are withheld too.
    pub(crate) is_restricted: bool,
    /// Length to which packets are cut.
    pub(crate) cut: Cut,
    /// A user without privileges has its memory.
    pub(crate) is_lent: bool,
    /// Memory of the buffer, charged to the user that it was made for.
    pub(crate) charge: Option<Charge>,
    /// The time since which it has no reader.
    pub(crate) idle: Option<Instant>,
}

/// Cuts packets for readers.
pub(crate) struct Cut {
    /// Bytes of each packet; none where the capture keeps no more.
    snap_len: Option<u32>,
    /// Records of the batch, as readers may know them.
    records: Vec<Record>,
}

impl View {
    /// A buffer of `mib` MiB, for a capture that keeps `snap_len` bytes of each packet.
    pub(crate) fn new(
        rights: Rights,
        link_type: LinkType,
        snap_len: u32,
        mib: u32,
        worker: u32,
    ) -> Result<View, Error> {
        let spec = BufferSpec {
            blocks: mib * ((1 << 20) / BLOCK_LEN_DEFAULT),
            snap_len: rights.snap_len,
            worker,
            ..BufferSpec::new(link_type)
        };
        let writer = Writer::create(&spec, Timestamp::from_nanos(clock::realtime_ns()))?;
        Ok(View {
            is_restricted: rights.withhold(snap_len),
            cut: Cut { snap_len: Some(rights.snap_len).filter(|len| *len < snap_len), records: Vec::new() },
            rights,
            writer,
            marks: Marks::default(),
            wanted: Selection::none(),
            history: None,
            gate: None,
            allowed: Selection::none(),
            is_lent: false,
            charge: None,
            idle: None,
        })
    }

    /// Begins a batch, of which nothing is wanted yet.
    pub(crate) fn begin(&mut self, batch: &Batch<'_>) {
        self.marks = Marks::default();
        self.allowed.clear();
        self.cut.begin(batch);
    }
}

impl Cut {
    fn begin(&mut self, batch: &Batch<'_>) {
        let Some(snap_len) = self.snap_len else { return };
        self.records.clear();
        self.records.extend(batch.records().iter().map(|record| cut(record, snap_len)));
    }

    /// The batch as readers may see it.
    pub(crate) fn batch<'a>(&'a self, batch: &Batch<'a>) -> Batch<'a> {
        match self.snap_len {
            Some(_) => Batch::new(batch.base(), &self.records),
            None => *batch,
        }
    }
}

/// The record without the bytes behind the cut, and without metadata that was computed from all bytes of the packet.
pub(crate) fn cut(record: &Record, snap_len: u32) -> Record {
    if record.cap_len <= snap_len {
        return *record;
    }
    let meta = Meta { checksum: Checksum::Unknown, gso: None, rx_hash: 0, ..record.meta };
    Record { cap_len: snap_len, options_len: 0, meta, ..*record }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_record_tells_nothing_of_the_rest() {
        let meta = Meta { wire_len: 1000, rx_hash: 7, checksum: Checksum::Valid, ..Meta::default() };
        let whole = Record { offset: 64, cap_len: 100, options_len: 8, meta };
        let short = cut(&whole, 60);
        assert_eq!((short.offset, short.cap_len, short.options_len), (64, 60, 0));
        assert_eq!(short.meta, Meta { wire_len: 1000, ..Meta::default() });
        assert_eq!(cut(&whole, 100).meta, meta, "a packet that is not cut keeps all");
    }

    #[test]
    fn marks_are_packets_in_any_order() {
        let (mut marks, mut other) = (Marks::default(), Marks::default());
        [200, 3, 3, 64].into_iter().for_each(|index| marks.set(index));
        other.set(255);
        marks.merge(&other);
        let mut selection = Selection::none();
        marks.select(&mut selection);
        assert_eq!(selection.iter().collect::<Vec<_>>(), [3, 64, 200, 255]);
        assert_eq!(marks.count(), 4);
    }
}
