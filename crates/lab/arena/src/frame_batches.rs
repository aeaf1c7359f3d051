//! Frames in the form in which sources lend packets: one stretch of bytes, and a record for each frame.

use tapline_packet::{BATCH_MAX, Batch, Meta, Record};

/// Frames that were captured whole: each captured length is the length on the wire.
#[derive(Clone, Debug, Default)]
pub struct FrameBatches {
    base: Vec<u8>,
    records: Vec<Record>,
}

impl FrameBatches {
    /// Copies the frames, one behind the other.
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

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// All frames in batches of [`BATCH_MAX`], the last one of the rest.
    pub fn batches(&self) -> impl Iterator<Item = Batch<'_>> {
        self.records.chunks(BATCH_MAX).map(|records| Batch::new(&self.base, records))
    }

    /// All frames as one batch.
    ///
    /// # Panics
    /// If there are more than [`BATCH_MAX`] frames.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(&self.base, &self.records)
    }
}
