//! Packets that contain their numbers.

use tapline_packet::{Batch, Meta, Record, Selection, Timestamp};
use tapline_testkit::random::Random;

/// A batch whose packets contain their numbers.
pub(crate) struct Made {
    pub(crate) base: Vec<u8>,
    pub(crate) records: Vec<Record>,
    pub(crate) all: Selection,
}

impl Made {
    pub(crate) fn new(first: u64, random: &mut Random) -> Made {
        let count = random.between(1..=64) as usize;
        let (mut base, mut records, mut all) = (Vec::new(), Vec::new(), Selection::none());
        all.select_all(count);
        for number in first..first + count as u64 {
            let len = random.heavy_tailed(8, 1500) as usize;
            let offset = base.len();
            base.resize(offset + len, number as u8);
            base[offset..offset + 8].copy_from_slice(&number.to_le_bytes());
            let timestamp = Timestamp::from_nanos(number as i64);
            let meta = Meta { timestamp, wire_len: len as u32, ..Meta::default() };
            records.push(Record { offset, cap_len: len as u32, options_len: 0, meta });
        }
        Made { base, records, all }
    }

    pub(crate) fn batch(&self) -> Batch<'_> {
        Batch::new(&self.base, &self.records)
    }

    pub(crate) fn len(&self) -> u64 {
        self.records.len() as u64
    }
}

/// A packet's number, if it is whole.
pub(crate) fn number_in(bytes: &[u8], meta: &Meta) -> Option<u64> {
    let number = u64::from_le_bytes(*bytes.first_chunk()?);
    let is_whole = bytes[8..].iter().all(|byte| *byte == number as u8)
        && meta.timestamp.as_nanos() == number as i64
        && meta.wire_len as usize == bytes.len();
    is_whole.then_some(number)
}
