//! The packets of the last seconds, for recordings that begin before their event.
//!
//! ```text
//! oldest                                                       newest
//! [ chunk: packets | packets ][ chunk ][ chunk ] ... [ chunk: being filled ]
//!   given up once all of it is too old, or once there are too many bytes; its memory is used again
//! bytes: those of packets, and of the record of each: an empty packet is not free
//! ```

use std::collections::VecDeque;

use tapline_packet::{Batch, Packet, Record};

use crate::clock::ClockStep;

/// Bytes of a chunk with its records; the last packet may exceed them.
const CHUNK: usize = 1 << 20;

#[derive(Debug, Default)]
struct Chunk {
    bytes: Vec<u8>,
    records: Vec<Record>,
    /// The latest time stamp in nanoseconds.
    latest_ns: i64,
}

impl Chunk {
    fn len(&self) -> usize {
        self.bytes.len() + self.records.len() * size_of::<Record>()
    }
}

/// Copies of the last packets.
#[derive(Debug)]
pub(crate) struct Past {
    /// Time for which packets are kept.
    keep_ns: i64,
    /// The most bytes of packets and their records.
    most: usize,
    len: usize,
    chunks: VecDeque<Chunk>,
    spare: Vec<Chunk>,
    /// Packets given up before their time, for lack of room.
    given_up: u64,
}

impl Past {
    pub(crate) fn new(keep_ns: u64, most: u64) -> Past {
        Past {
            keep_ns: keep_ns.min(i64::MAX as u64) as i64,
            most: usize::try_from(most).unwrap_or(usize::MAX),
            len: 0,
            chunks: VecDeque::new(),
            spare: Vec::new(),
            given_up: 0,
        }
    }

    /// Sets new bounds; packets within them are kept.
    pub(crate) fn set_bounds(&mut self, keep_ns: u64, most: u64) {
        self.keep_ns = keep_ns.min(i64::MAX as u64) as i64;
        self.most = usize::try_from(most).unwrap_or(usize::MAX);
    }

    pub(crate) fn push(&mut self, packet: Packet<'_>) {
        let is_full = |chunk: &Chunk| chunk.len() >= CHUNK.min(self.most / 8 + 1);
        if self.chunks.back().is_none_or(is_full) {
            self.give_up(packet.meta.timestamp.as_nanos());
            let chunk = self.spare.pop().unwrap_or_default();
            self.chunks.push_back(chunk);
        }
        let Some(chunk) = self.chunks.back_mut() else { return };
        let record = Record {
            offset: chunk.bytes.len(),
            cap_len: packet.data.len() as u32,
            options_len: 0,
            meta: *packet.meta,
        };
        chunk.bytes.extend_from_slice(packet.data);
        chunk.latest_ns = chunk.latest_ns.max(packet.meta.timestamp.as_nanos());
        chunk.records.push(record);
        self.len += packet.data.len() + size_of::<Record>();
    }

    /// The clock was set back: packets are as old as before. Their time stamps stay, so that a recording takes all of
    /// them that are still there.
    pub(crate) fn set_back(&mut self, step: ClockStep) {
        self.chunks.iter_mut().for_each(|chunk| chunk.latest_ns = step.moved(chunk.latest_ns));
    }

    fn give_up(&mut self, now_ns: i64) {
        while let Some(oldest) = self.chunks.front() {
            let is_old = oldest.latest_ns < now_ns.saturating_sub(self.keep_ns);
            if !is_old && self.len <= self.most {
                break;
            }
            let Some(mut chunk) = self.chunks.pop_front() else { break };
            self.len -= chunk.len();
            self.given_up += if is_old { 0 } else { chunk.records.len() as u64 };
            chunk.bytes.clear();
            chunk.records.clear();
            chunk.latest_ns = i64::MIN;
            self.spare.push(chunk);
        }
    }

    /// The packets that are kept, the oldest first, a part at a time.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Batch<'_>> {
        self.chunks.iter().flat_map(|chunk| {
            chunk.records.chunks(tapline_packet::BATCH_MAX).map(|records| Batch::new(&chunk.bytes, records))
        })
    }

    pub(crate) fn given_up(&self) -> u64 {
        self.given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapline_packet::{Meta, Timestamp};

    const RECORD: usize = size_of::<Record>();

    fn push(past: &mut Past, second: i64, len: usize) {
        let timestamp = Timestamp::from_nanos(second * 1_000_000_000);
        let meta = Meta { timestamp, wire_len: len as u32, ..Meta::default() };
        past.push(Packet { data: &vec![second as u8; len], meta: &meta });
    }

    fn seconds(past: &Past) -> Vec<u8> {
        past.parts().flat_map(|batch| batch.iter().map(|packet| packet.data[0]).collect::<Vec<_>>()).collect()
    }

    #[test]
    fn old_packets_go_and_no_others() {
        let mut past = Past::new(5_000_000_000, 8 * (10 + RECORD) as u64);
        (0..4).for_each(|second| push(&mut past, second, 10));
        assert_eq!(seconds(&past), [0, 1, 2, 3]);
        (4..20).for_each(|second| push(&mut past, second, 10));
        let kept = seconds(&past);
        assert!(kept.ends_with(&[14, 15, 16, 17, 18, 19]), "{kept:?}");
        assert!(kept[0] >= 10, "{kept:?}");
        assert_eq!(past.given_up(), 0);
    }

    #[test]
    fn bytes_are_bounded_and_early_removal_counted() {
        let mut past = Past::new(1_000_000_000_000, 10 * (100 + RECORD) as u64);
        (0..100).for_each(|second| push(&mut past, second, 100));
        assert!(seconds(&past).len() <= 14, "{}", seconds(&past).len());
        assert_eq!(past.given_up() as usize + seconds(&past).len(), 100);
    }

    #[test]
    fn empty_packets_have_a_bound() {
        let mut past = Past::new(1_000_000_000_000, 100 * RECORD as u64);
        (0..1000).for_each(|second| push(&mut past, second, 0));
        let kept: usize = past.parts().map(|batch| batch.len()).sum();
        assert!((80..140).contains(&kept), "{kept}");
        assert_eq!(past.given_up() as usize + kept, 1000);
    }
}
