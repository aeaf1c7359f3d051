//! Places of a segment without a chunk: fillers, gaps and unused slots, as blocks of pcapng, or as skippable frames in a
//! segment whose chunks are compressed (docs/format/store.md, "Segment").

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::layout::{PAGE_LEN, SLOT_LEN, filler, filler_frame, gap, gap_frame};

/// Fills the slot that `from` is in; gives its end. Chunks that a power failure left behind fillers do not come back.
pub(super) fn fill_slot(file: &File, from: u64, is_packed: bool) -> io::Result<u64> {
    let end = from.next_multiple_of(SLOT_LEN as u64);
    let page = if is_packed { filler_frame(PAGE_LEN) } else { filler(PAGE_LEN) };
    (from..end).step_by(PAGE_LEN).try_for_each(|at| file.write_all_at(&page, at))?;
    if is_packed && from < end {
        // For decoders of zstd: a frame over all of them.
        file.write_all_at(&filler_frame((end - from) as usize), from)?;
    }
    Ok(end)
}

/// Makes every slot from `from` on an unused one by its first and last bytes; the bytes between have no meaning. The
/// disk has to keep that before a chunk is written: otherwise old chunks could come back after a power failure.
pub(super) fn clear(file: &File, from: u64, len: u64, is_packed: bool) -> io::Result<()> {
    let block = if is_packed { filler_frame(SLOT_LEN) } else { filler(SLOT_LEN) };
    // Whole pages, so that no page has to be read before. A frame has no last bytes.
    let (head, tail) = block.split_at(PAGE_LEN);
    let tail = &tail[tail.len().saturating_sub(PAGE_LEN)..];
    for slot in from / SLOT_LEN as u64..len / SLOT_LEN as u64 {
        let at = slot * SLOT_LEN as u64;
        file.write_all_at(head, at)?;
        file.write_all_at(tail, at + (SLOT_LEN - tail.len()) as u64)?;
    }
    file.sync_data()
}

/// Marks a place within a slot as one without a chunk.
pub(super) fn mark_gap(file: &File, place: Range<u64>, is_packed: bool) -> io::Result<()> {
    let len = (place.end - place.start) as usize;
    if is_packed {
        return file.write_all_at(&gap_frame(len), place.start);
    }
    let (head, tail) = gap(len);
    file.write_all_at(&head, place.start)?;
    file.write_all_at(&tail, place.end - tail.len() as u64)
}
