//! Blocks of a shared source, with the packets of each worker.

use std::ops::Range;

use tapline_packet::headers::{self, Headers};
use tapline_packet::{BATCH_MAX, Batch, Interface, LinkType, Packet, Record};
use tapline_source::Piece;

/// The seed of the hash.
const SEED: u64 = 0x7368_6172_6500;

/// Batches of a source, with the packets of each worker.
pub(super) struct Block {
    pub(super) bytes: Vec<u8>,
    pub(super) spans: Vec<BatchSpan>,
    /// The records of each worker, in the source's order.
    records: Vec<Vec<Record>>,
    /// For each span and worker, in this order: the end of its records.
    ends: Vec<usize>,
    /// Interfaces that the source knew of.
    pub(super) interfaces: usize,
}

/// A batch of the source, or a piece with more packets than a batch.
pub(super) struct BatchSpan {
    pub(super) bytes: Range<usize>,
    pub(super) snap_len: u32,
    /// The places in the source of its first packet, and of the one behind its last.
    pub(super) places: Range<u64>,
}

impl Block {
    pub(super) fn new(workers: usize) -> Block {
        let records = (0..workers).map(|_| Vec::new()).collect();
        Block { bytes: Vec::new(), spans: Vec::new(), records, ends: Vec::new(), interfaces: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.clear_records();
    }

    fn clear_records(&mut self) {
        self.spans.clear();
        self.records.iter_mut().for_each(Vec::clear);
        self.ends.clear();
    }

    /// Copies a batch whose first packet has the place `start`, and deals out its records.
    pub(super) fn add(&mut self, batch: &Batch<'_>, interfaces: &[Interface], start: u64) {
        let base = batch.base();
        let end_of = |record: &Record| {
            let options =
                (record.cap_len as usize).next_multiple_of(4).saturating_add(record.options_len as usize);
            let len = if record.options_len > 0 { options } else { record.cap_len as usize };
            record.offset.saturating_add(len).min(base.len())
        };
        let from = batch.records().iter().map(|record| record.offset.min(base.len())).min().unwrap_or(0);
        let to = batch.records().iter().map(end_of).max().unwrap_or(0).max(from);
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&base[from..to]);
        self.deal(batch, interfaces, from);
        self.ends.extend(self.records.iter().map(Vec::len));
        self.spans.push(BatchSpan {
            bytes: at..self.bytes.len(),
            snap_len: batch.snap_len(),
            places: start..start + batch.len() as u64,
        });
    }

    /// Holds the packets of a piece alone: takes its memory, and gives it that of former packets.
    pub(super) fn take(&mut self, piece: &mut Piece, interfaces: &[Interface]) {
        self.clear_records();
        for records in piece.records.chunks(BATCH_MAX) {
            self.deal(&Batch::new(&piece.bytes, records), interfaces, 0);
        }
        std::mem::swap(&mut self.bytes, &mut piece.bytes);
        self.ends.extend(self.records.iter().map(Vec::len));
        self.spans.push(BatchSpan {
            bytes: 0..self.bytes.len(),
            snap_len: u32::MAX,
            places: piece.start..piece.start + piece.records.len() as u64,
        });
        self.interfaces = piece.interfaces;
    }

    /// Deals out the records of a batch, whose bytes before `from` are left out.
    fn deal(&mut self, batch: &Batch<'_>, interfaces: &[Interface], from: usize) {
        let workers = self.records.len() as u128;
        for (index, record) in batch.records().iter().enumerate() {
            let hash = hash(interfaces, batch.packet(index));
            let worker = (u128::from(hash) * workers) >> 64;
            self.records[worker as usize]
                .push(Record { offset: record.offset.wrapping_sub(from), ..*record });
        }
    }

    pub(super) fn records(&self, span: usize, worker: usize) -> &[Record] {
        let workers = self.records.len();
        let end = |span: usize| self.ends[span * workers + worker];
        let begin = span.checked_sub(1).map_or(0, end);
        &self.records[worker][begin..end(span)]
    }
}

/// The hash of a packet's hosts.
#[inline]
fn hash(interfaces: &[Interface], packet: Packet<'_>) -> u64 {
    let interface = interfaces.get(packet.meta.interface.0 as usize);
    let link_type = interface.map_or(LinkType::ETHERNET, |interface| interface.link_type);
    let plain =
        if link_type == LinkType::ETHERNET { headers::plain_host_hash(packet.data, SEED) } else { None };
    plain.unwrap_or_else(|| Headers::parse(link_type, packet).host_hash(packet.data, SEED))
}
