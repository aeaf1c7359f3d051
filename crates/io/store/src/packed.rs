//! Compressed chunks: the section is a frame of zstd between two skippable frames (RFC 8878, 3.1).
//!
//! ```text
//! bytes    0       8        12      16      36     244    248      248 + frame               stored        length
//!          header  stored   frame   zeros   head   zeros  frame    header of a filler, zeros |  a hole      |
//!          '--- skippable frame of 248 bytes ---------'          '--- skippable frame up to the chunk's end ---'
//! ```
//!
//! A chunk keeps the place that it would have without compression, so an index lists the same slots. The bytes behind
//! `stored` are a hole in the file: they take no room on the disk once the segment is sealed.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use tapline_file::blocks;
use tapline_sys::disk;
use zstd::bulk::{Compressor, decompress_to_buffer};

use crate::chunk::{CHUNK_HEAD_LEN, ChunkBuffer, ChunkHead, u32_at};
use crate::layout::{FRAME_HEADER_LEN, PAGE_LEN, SKIPPABLE, SLOT_LEN, StoreId, filler_len, fills_slot};
use crate::walk::{FoundChunk, Walk};

/// Offset of the section in a chunk that is about to be compressed: its interfaces stay where they are.
const SECTION_AT: usize = CHUNK_HEAD_LEN - blocks::SECTION_HEADER_LEN;
/// The first bytes of a frame (RFC 8878, 3.1.1).
const FRAME_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Descriptor of a frame with its length in four bytes, and with a window of that length (RFC 8878, 3.1.1.1.1).
const STORED_DESCRIPTOR: u8 = 0xa0;
/// Bytes of a block at most (RFC 8878, 3.1.1.2.4).
const BLOCK_LEN_MAX: usize = 128 << 10;
/// Bytes of the header of a block.
const BLOCK_HEADER_LEN: usize = 3;
/// Chunks of a segment that are looked at before all of them are read, at least where the segment has as many slots.
const SAMPLES: u64 = 8;
/// Memory for a frame that is kept for the next one.
const KEPT_LEN_MAX: usize = 2 * SLOT_LEN;

/// Lengths of the parts of a compressed chunk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packing {
    /// Bytes on the disk, from the chunk's start on: a multiple of the page.
    pub(crate) stored: u32,
    /// The frame of the section.
    pub(crate) frame: u32,
}

impl Packing {
    /// Reads the lengths in the skippable frame that begins here; `None` if none does.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Packing> {
        let bytes = bytes.get(..16)?;
        let is_frame =
            u32_at(bytes, 0) == SKIPPABLE && u32_at(bytes, 4) as usize == CHUNK_HEAD_LEN - FRAME_HEADER_LEN;
        is_frame.then(|| Packing { stored: u32_at(bytes, 8), frame: u32_at(bytes, 12) })
    }

    /// Whether the parts fit into a chunk of `len` bytes.
    pub(crate) fn fits(self, len: usize) -> bool {
        let (stored, frame) = (self.stored as usize, self.frame as usize);
        let used = frame.saturating_add(CHUNK_HEAD_LEN + FRAME_HEADER_LEN);
        frame > 0 && used <= stored && stored <= len && stored.is_multiple_of(PAGE_LEN)
    }
}

/// Where an intact compressed chunk is in its segment, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackedPlace {
    offset: u64,
    len: u32,
    stored: u32,
}

impl PackedPlace {
    /// The place of a chunk that is known to be intact; `None` if it is not compressed.
    pub(crate) fn of(head: &ChunkHead, offset: u64) -> Option<PackedPlace> {
        Some(PackedPlace { offset, len: head.len, stored: head.packing?.stored })
    }

    fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }
}

/// Bytes of the longest frame of a section.
fn frame_len_max(section_len: usize) -> usize {
    let blocks = section_len.div_ceil(BLOCK_LEN_MAX).max(1);
    section_len + FRAME_MAGIC.len() + 5 + blocks * BLOCK_HEADER_LEN
}

/// Bytes that a chunk of `len` bytes without a filler may take once it is compressed.
pub(crate) fn packed_len_max(len: usize) -> usize {
    CHUNK_HEAD_LEN + frame_len_max(len.saturating_sub(SECTION_AT)) + FRAME_HEADER_LEN
}

/// Compresses sections.
pub(crate) struct Packer {
    coder: Compressor<'static>,
    /// The frame of the last section.
    frame: Vec<u8>,
}

impl Packer {
    /// A packer of a level of zstd, 1 to 19.
    pub(crate) fn new(level: i32) -> io::Result<Packer> {
        Ok(Packer { coder: Compressor::new(level)?, frame: Vec::new() })
    }

    /// Compresses a finished chunk in its buffer; its head gets the lengths of its parts.
    pub(crate) fn pack_buffer(&mut self, buffer: &mut ChunkBuffer, head: &mut ChunkHead) {
        let chunk = buffer.bytes_mut();
        chunk.copy_within(..blocks::SECTION_HEADER_LEN, SECTION_AT);
        self.compress(&chunk[SECTION_AT..]);
        buffer.truncate(0);
        let has_room = self.write(buffer.tail(), head, 0);
        debug_assert!(has_room.is_some(), "a chunk has room for its section as it is");
    }

    /// Returns the chunk of a section, without its seal: `stored_min` bytes or more are on the disk. `None` if the
    /// chunk's place has no room for it, as a recorder leaves none.
    pub(crate) fn pack(
        &mut self,
        section: &[u8],
        head: &mut ChunkHead,
        stored_min: usize,
    ) -> Option<Vec<u8>> {
        self.compress(section);
        let mut chunk = Vec::new();
        self.write(&mut chunk, head, stored_min)?;
        Some(chunk)
    }

    fn compress(&mut self, section: &[u8]) {
        let len_max = frame_len_max(section.len());
        self.frame.clear();
        self.frame.reserve(len_max);
        let packed = self.coder.compress_to_buffer(section, &mut self.frame);
        // A chunk has room for the section itself and the headers of its blocks, and no more.
        if packed.is_err() || self.frame.len() > len_max {
            store(section, &mut self.frame);
        }
    }

    /// Appends a chunk with the frame; `None`, and nothing else, if the chunk's place is too short for it.
    fn write(&mut self, out: &mut Vec<u8>, head: &mut ChunkHead, stored_min: usize) -> Option<()> {
        let start = out.len();
        let frame = self.frame.len();
        let used = CHUNK_HEAD_LEN + frame + FRAME_HEADER_LEN;
        let stored = used.max(stored_min).next_multiple_of(PAGE_LEN);
        if stored > head.len as usize {
            return None;
        }
        head.packing = Some(Packing { stored: stored as u32, frame: frame as u32 });
        let words = [SKIPPABLE, (CHUNK_HEAD_LEN - FRAME_HEADER_LEN) as u32, stored as u32, frame as u32];
        words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        out.resize(start + CHUNK_HEAD_LEN, 0);
        out.extend_from_slice(&self.frame);
        let filler = [SKIPPABLE, head.len - used as u32];
        filler.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        out.resize(start + stored, 0);
        if self.frame.capacity() > KEPT_LEN_MAX {
            self.frame = Vec::new();
        }
        Some(())
    }
}

/// Makes a frame of a section as it is (RFC 8878, 3.1.1.2: raw blocks).
fn store(section: &[u8], frame: &mut Vec<u8>) {
    frame.clear();
    frame.extend_from_slice(&FRAME_MAGIC);
    frame.push(STORED_DESCRIPTOR);
    frame.extend_from_slice(&(section.len() as u32).to_le_bytes());
    let count = section.len().div_ceil(BLOCK_LEN_MAX);
    for (number, block) in (1..).zip(section.chunks(BLOCK_LEN_MAX)) {
        let header = (block.len() as u32) << 3 | u32::from(number == count);
        frame.extend_from_slice(&header.to_le_bytes()[..BLOCK_HEADER_LEN]);
        frame.extend_from_slice(block);
    }
}

/// Unpacks the section of an intact compressed chunk into `section`. Returns its length; `None` if the frame is not
/// valid, or the section is longer than `section`.
pub(crate) fn unpack(chunk: &[u8], head: &ChunkHead, section: &mut [u8]) -> Option<usize> {
    let frame = head.packing?.frame as usize;
    // The frame is unpacked at once: zstd takes no memory for a window, whatever the frame declares.
    decompress_to_buffer(chunk.get(CHUNK_HEAD_LEN..CHUNK_HEAD_LEN + frame)?, section).ok()
}

/// The section of an intact chunk; `None` if it is compressed and cannot be unpacked.
pub(crate) fn section<'a>(chunk: &'a [u8], head: &ChunkHead) -> Option<Cow<'a, [u8]>> {
    if head.packing.is_none() {
        return Some(Cow::Borrowed(chunk));
    }
    let mut section = vec![0; head.len as usize];
    let len = unpack(chunk, head, &mut section)?;
    section.truncate(len);
    Some(Cow::Owned(section))
}

/// Whether compression seems to leave room in a segment: by the heads, which nothing proves, of some of its chunks.
pub(crate) fn saves_room(file: &File, segment_len: u64) -> bool {
    sample_slots(segment_len).any(|slot| {
        let mut bytes = [0; CHUNK_HEAD_LEN];
        let is_read = file.read_exact_at(&mut bytes, slot * SLOT_LEN as u64).is_ok();
        let head = ChunkHead::parse(&bytes).filter(|_| is_read);
        head.is_some_and(|head| head.stored_len() < head.len as usize / 8 * 7)
    })
}

/// Reads the compressed chunks of a segment; returns the places of those that are intact.
pub(crate) fn intact_places(
    file: &File,
    store: StoreId,
    segment: u64,
    segment_len: u64,
) -> io::Result<Vec<PackedPlace>> {
    let walk = Walk::new(file, store, segment, segment_len)?;
    let (mut walk, mut bytes) = (walk, Vec::new());
    let chunks = std::iter::from_fn(|| walk.next());
    Ok(chunks.filter_map(|found| intact_place(file, &found, &mut bytes)).collect())
}

/// The place of a compressed chunk that is intact.
fn intact_place(file: &File, found: &FoundChunk, bytes: &mut Vec<u8>) -> Option<PackedPlace> {
    // The checksum proves the bytes that were read now, with the head among them.
    let is_whole = found.read(file, bytes) && ChunkHead::parse(bytes).as_ref() == Some(&found.head);
    PackedPlace::of(&found.head, found.offset).filter(|_| is_whole)
}

/// Gives the room back that compression left in the places of some intact chunks. Returns whether they had any: then
/// others may have too.
pub(crate) fn release_samples(
    file: &File,
    store: StoreId,
    segment: u64,
    segment_len: u64,
) -> io::Result<bool> {
    let mut bytes = Vec::new();
    let mut places = Vec::new();
    for slot in sample_slots(segment_len) {
        let walk = Walk::new(file, store, segment, segment_len)?;
        let first = walk.from(slot * SLOT_LEN as u64).next();
        places.extend(first.and_then(|found| intact_place(file, &found, &mut bytes)));
    }
    let before = disk::room_of(&file.metadata()?);
    release_chunks(file, &places)?;
    Ok(disk::room_of(&file.metadata()?) < before)
}

/// Slots of a segment at equal distances.
fn sample_slots(segment_len: u64) -> impl Iterator<Item = u64> {
    let slots = segment_len / SLOT_LEN as u64;
    (0..slots).step_by((slots / SAMPLES).max(1) as usize)
}

/// Gives the room back that compression left in the places of intact chunks. No other byte is changed.
pub(crate) fn release_chunks(file: &File, places: &[PackedPlace]) -> io::Result<()> {
    places.iter().try_for_each(|place| release(file, place.offset + u64::from(place.stored)..place.end()))
}

/// As [`release_chunks`], and gives back the room of fillers and of unused slots. To be called by the recorder that
/// wrote the segment: it knows that there are no other chunks.
pub(crate) fn release_all(file: &File, places: &[PackedPlace], segment_len: u64) -> io::Result<()> {
    release_chunks(file, places)?;
    let starts = |at: u64, is_filler: &dyn Fn(&[u8]) -> bool| {
        let mut bytes = [0; 16];
        file.read_exact_at(&mut bytes, at).is_ok() && is_filler(&bytes)
    };
    let (page, slot_len) = (PAGE_LEN as u64, SLOT_LEN as u64);
    let next_ones = places.iter().skip(1).map(|place| place.offset).chain([segment_len]);
    for (end, next) in places.iter().map(PackedPlace::end).zip(next_ones) {
        let (in_slot, slot_end) = ((end % slot_len) as usize, end.next_multiple_of(slot_len));
        let is_filler = |bytes: &[u8]| in_slot > 0 && fills_slot(bytes, in_slot);
        if slot_end <= next && starts(end, &is_filler) {
            release(file, end + page..slot_end)?;
        }
    }
    let end = places.last().map_or(0, PackedPlace::end).next_multiple_of(slot_len);
    for at in (end..segment_len).step_by(SLOT_LEN) {
        if starts(at, &|bytes| filler_len(bytes) == Some(SLOT_LEN)) {
            release(file, at + page..at + slot_len)?;
        }
    }
    Ok(())
}

fn release(file: &File, part: Range<u64>) -> io::Result<()> {
    disk::release(file, part).map_err(|error| error.source)
}

/// Whether the file system of an empty file can give back the room of a part of it.
///
/// # Errors
/// Those of fallocate(2), but for the one that says that it cannot.
pub(crate) fn has_holes(file: &File) -> io::Result<bool> {
    let pages = 2 * PAGE_LEN as u64;
    match disk::reserve(file, pages).and_then(|()| disk::release(file, PAGE_LEN as u64..pages)) {
        Ok(()) => Ok(true),
        Err(error) if error.is_unsupported() => Ok(false),
        Err(error) => Err(error.source),
    }
}

#[cfg(test)]
mod tests;
