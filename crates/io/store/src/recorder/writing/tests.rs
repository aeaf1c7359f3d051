//! Chunks around writes that fail.

use tapline_packet::{Interface, LinkType, Meta, Packet};

use std::path::Path;

use super::*;
use crate::RecorderSettings;
use crate::check::verify;

fn chunk_of(offset: u64, packets: u32) -> (ChunkBuffer, ChunkHead) {
    let interfaces = [Interface::new("far0", LinkType::ETHERNET)];
    let mut builder = ChunkBuilder::new(65_535);
    builder.begin(ChunkBuffer::of_slot(), SLOT_LEN, &interfaces);
    let meta = Meta { wire_len: 60, ..Meta::default() };
    (0..packets).for_each(|_| builder.push(&Packet { data: &[0; 60], meta: &meta }, &interfaces[0], &[]));
    let (buffer, mut head) = builder.finish(&[], Timestamp::EPOCH);
    head.slot = (offset / SLOT_LEN as u64) as u32;
    (buffer, head)
}

fn packets(root: &Path) -> u64 {
    let verified = verify(&Catalog::open(root).unwrap(), &mut |_, _| true).unwrap();
    assert_eq!(verified.findings, Vec::new());
    verified.packets
}

#[test]
fn chunks_are_found_behind_a_write_that_failed() {
    let folder = tempfile::tempdir().unwrap();
    let settings =
        RecorderSettings { size: 16 << 20, segment_len: Some(4 << 20), ..RecorderSettings::default() };
    let mut writing = Writing::open(folder.path(), &settings, Timestamp::EPOCH).unwrap().writing;
    let put = |writing: &mut Writing, offset: u64| {
        let (buffer, head) = chunk_of(offset, 1);
        writing.chunk(buffer, head, offset, None);
    };
    put(&mut writing, 0);
    // A file that cannot be written stands for a disk that fails.
    writing.target = Arc::new(Target::read_only(&writing.path));
    put(&mut writing, 2 * SLOT_LEN as u64 + 8 * PAGE_LEN as u64);
    assert_eq!(packets(folder.path()), 2, "{:?}", writing.progress.news());
    // Once more, with the segment after it failing too: chunks of this slot are then missing before the next one.
    writing.end = 2 * SLOT_LEN as u64 + 9 * PAGE_LEN as u64;
    put(&mut writing, 2 * SLOT_LEN as u64 + 12 * PAGE_LEN as u64);
    put(&mut writing, 3 * SLOT_LEN as u64);
    assert_eq!(packets(folder.path()), 4, "{:?}", writing.progress.news());
    drop(writing);
    let going_on = Writing::open(folder.path(), &settings, Timestamp::EPOCH).unwrap().writing;
    assert_eq!(going_on.last.0, 5);
}
