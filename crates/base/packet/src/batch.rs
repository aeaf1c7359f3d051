//! Packets lent in place.

use crate::Meta;

/// The most packets in one batch, so that an index fits a byte.
pub const BATCH_MAX: usize = 256;

/// The snap length that 0 means: the longest that a pcap file may have for Ethernet.
pub const SNAP_LEN_MAX: u32 = 262_144;

/// The place of one packet in its batch's bytes, and its metadata.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record {
    /// The first byte, counted from the start of the batch's base.
    pub offset: usize,
    /// Captured bytes.
    pub cap_len: u32,
    /// Bytes of raw pcapng options, which start at `offset + cap_len` rounded up as the file pads; 0 elsewhere.
    pub options_len: u32,
    /// Metadata of the packet.
    pub meta: Meta,
}

/// Up to [`BATCH_MAX`] packets lent by a source, valid until the source advances.
///
/// The base is one stretch of memory (a ring block, the buffer that a file is read or unpacked into); records point
/// into it. A record that points outside of the base is a fault of the source: its packet reads as empty, never as
/// other memory.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    base: &'a [u8],
    records: &'a [Record],
    snap_len: u32,
}

impl<'a> Batch<'a> {
    /// A batch of the packets that `records` describes in `base`.
    ///
    /// # Panics
    /// If there are more than [`BATCH_MAX`] records.
    pub fn new(base: &'a [u8], records: &'a [Record]) -> Batch<'a> {
        assert!(records.len() <= BATCH_MAX, "a batch holds at most {BATCH_MAX} packets");
        Batch { base, records, snap_len: u32::MAX }
    }

    /// Cuts each packet to at most `snap_len` bytes; wire lengths stay.
    pub fn cut(self, snap_len: u32) -> Batch<'a> {
        Batch { snap_len: self.snap_len.min(snap_len), ..self }
    }

    /// A batch without packets.
    pub const fn empty() -> Batch<'static> {
        Batch { base: &[], records: &[], snap_len: u32::MAX }
    }

    /// Number of packets, 0 to [`BATCH_MAX`].
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The stretch of memory that the records point into.
    pub fn base(&self) -> &'a [u8] {
        self.base
    }

    /// No packet is longer than this, whatever its record says; `u32::MAX` unless the batch was [`cut`](Self::cut).
    pub fn snap_len(&self) -> u32 {
        self.snap_len
    }

    /// The records, as the source wrote them.
    pub fn records(&self) -> &'a [Record] {
        self.records
    }

    /// The packet at `index`.
    ///
    /// # Panics
    /// If `index` is not less than [`len`](Self::len).
    #[inline]
    pub fn packet(&self, index: usize) -> Packet<'a> {
        self.resolve(&self.records[index])
    }

    /// The first `N` bytes of the packet at `index`, if they were captured: a fast path for readers of headers.
    ///
    /// # Panics
    /// If `index` is not less than [`len`](Self::len).
    #[inline]
    pub fn head<const N: usize>(&self, index: usize) -> Option<&'a [u8; N]> {
        let record = &self.records[index];
        let captured = record.cap_len.min(self.snap_len) as usize;
        let head = self.base.get(record.offset..).and_then(<[u8]>::first_chunk);
        // A packet that is not all in the base reads as empty.
        head.filter(|_| captured >= N && captured <= self.base.len() - record.offset)
    }

    /// The raw pcapng options of the packet at `index`, in this machine's byte order; empty where there are none.
    ///
    /// # Panics
    /// If `index` is not less than [`len`](Self::len).
    pub fn options(&self, index: usize) -> &'a [u8] {
        let record = &self.records[index];
        let after = record.offset.saturating_add((record.cap_len as usize).next_multiple_of(4));
        slice(self.base, after, record.options_len)
    }

    /// All packets in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Packet<'a>> + use<'a> {
        let batch = *self;
        batch.records.iter().map(move |record| batch.resolve(record))
    }

    #[inline]
    fn resolve(&self, record: &'a Record) -> Packet<'a> {
        let data = slice(self.base, record.offset, record.cap_len.min(self.snap_len));
        Packet { data, meta: &record.meta }
    }
}

#[inline]
fn slice(base: &[u8], offset: usize, len: u32) -> &[u8] {
    match offset.checked_add(len as usize) {
        Some(end) => base.get(offset..end).unwrap_or(&[]),
        None => &[],
    }
}

/// One packet of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The captured bytes, from the link-layer header on.
    pub data: &'a [u8],
    /// Metadata of the packet.
    pub meta: &'a Meta,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_outside_the_base_reads_as_empty() {
        let records = [
            Record { offset: 1, cap_len: 2, ..Record::default() },
            Record { offset: 3, cap_len: 2, ..Record::default() },
            Record { offset: usize::MAX, cap_len: 2, ..Record::default() },
        ];
        let batch = Batch::new(&[10, 11, 12, 13], &records);
        let lengths: Vec<usize> = batch.iter().map(|p| p.data.len()).collect();
        assert_eq!(lengths, [2, 0, 0]);
        assert_eq!(batch.packet(0).data, [11, 12]);
        assert_eq!(batch.cut(1).packet(0).data, [11]);
        assert_eq!([0, 1, 2].map(|at| batch.head::<2>(at)), [Some(&[11, 12]), None, None]);
        // The first byte of the second is there, but not all of it.
        assert_eq!((batch.head::<1>(1), batch.cut(1).head::<1>(1)), (None, Some(&[13])));
        assert_eq!((batch.head::<3>(0), batch.cut(1).head::<2>(0)), (None, None));
    }

    #[test]
    fn options_follow_the_padding() {
        let record = Record { offset: 0, cap_len: 5, options_len: 4, ..Record::default() };
        let base: Vec<u8> = (0..12).collect();
        assert_eq!(Batch::new(&base, &[record]).options(0), [8, 9, 10, 11]);
    }
}
