//! Frames as a source lends them: one stretch of bytes and a table.

use tapline_packet::{BATCH_MAX, Batch, Meta, Record};

/// Frames of one capture, whole as on the wire.
#[derive(Clone, Debug, Default)]
pub struct FrameBatches {
    base: Vec<u8>,
    records: Vec<Record>,
}

impl FrameBatches {
    /// The frames, one behind the other.
    pub fn new(frames: &[Vec<u8>]) -> FrameBatches {
        let mut offset = 0;
        let record = |frame: &Vec<u8>| {
            let cap_len = frame.len() as u32;
            let meta = Meta { wire_len: cap_len, ..Meta::default() };
            let record = Record { offset, cap_len, options_len: 0, meta };
            offset += frame.len();
            record
        };
        FrameBatches { records: frames.iter().map(record).collect(), base: frames.concat() }
    }

    /// How many frames there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// All frames in batches, full ones but for the last.
    pub fn batches(&self) -> impl Iterator<Item = Batch<'_>> {
        self.records.chunks(BATCH_MAX).map(|records| Batch::new(&self.base, records))
    }

    /// All frames as one batch.
    ///
    /// # Panics
    /// If they are more than a batch holds.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(&self.base, &self.records)
    }
}
