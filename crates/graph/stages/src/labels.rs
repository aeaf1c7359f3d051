//! Packets with labels of a stage: the records are copied, the bytes are not.

use tapline_packet::{BATCH_MAX, Batch, Record};

/// The records of a batch whose packets get labels.
#[derive(Default)]
pub(super) struct Labels {
    records: Vec<Record>,
    is_begun: bool,
}

impl Labels {
    /// Begins a batch.
    pub(super) fn begin(&mut self) {
        self.is_begun = false;
    }

    /// Labels a packet of a batch.
    pub(super) fn set(&mut self, batch: &Batch<'_>, index: usize, label: u8) {
        if !std::mem::replace(&mut self.is_begun, true) {
            self.records.clear();
            self.records.reserve(BATCH_MAX);
            self.records.extend_from_slice(batch.records());
        }
        self.records[index].meta.label = label;
    }

    /// The batch with its labels.
    pub(super) fn of<'l>(&'l self, batch: &Batch<'l>) -> Batch<'l> {
        match self.is_begun {
            true => Batch::new(batch.base(), &self.records).cut(batch.snap_len()),
            false => *batch,
        }
    }
}
