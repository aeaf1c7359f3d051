//! The index as a file (docs/format/store.md, "Index").

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use tapline_packet::Timestamp;
use tapline_sys::disk;

use super::{Builder, ChunkRow, Slots, Summary};
use crate::chunk::CHUNK_LEN_MAX;
use crate::error::Error;
use crate::layout::{PAGE_LEN, SEGMENT_LEN_MAX, SLOT_LEN, sync_directory};

const MAGIC: [u8; 8] = *b"TAPLTIX1";
const HEAD_LEN: usize = 168;
const ROW_LEN: usize = 48;
/// The bit of a start that says that the postings are a bit set.
const IS_BIT_SET: u32 = 1 << 31;
/// More than any segment needs: what claims to be longer is not read.
const LEN_MAX: u64 = 128 << 20;

/// An index that was read and whose checksum fits.
pub(crate) struct Index {
    pub(crate) summary: Summary,
    bytes: Vec<u8>,
    chunks: usize,
    keys: usize,
    postings: usize,
}

/// Writes the index of a sealed segment: under another name first, so that a file of this name is whole.
pub(crate) fn write(path: &Path, summary: &Summary, builder: &Builder) -> Result<u64, Error> {
    let bytes = encode(summary, builder);
    let part = path.with_extension("tix.part");
    let write = || -> io::Result<()> {
        // Whatever has the name is not this index: a link could lead anywhere.
        match fs::remove_file(&part) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = fs::File::create_new(&part)?;
        file.write_all(&bytes)?;
        file.sync_data()?;
        fs::rename(&part, path)?;
        sync_directory(path)
    };
    write().map_err(Error::file("write", path))?;
    Ok(bytes.len() as u64)
}

fn encode(summary: &Summary, builder: &Builder) -> Vec<u8> {
    let sorted = builder.sorted();
    let slots = summary.slots as usize;
    let set_len = slots.div_ceil(16);
    let mut postings: Vec<u8> = Vec::new();
    let mut starts: Vec<u32> = Vec::with_capacity(sorted.len());
    for (_, of_key) in &sorted {
        let start = (postings.len() / 2) as u32;
        if of_key.len() <= set_len {
            starts.push(start);
            of_key.iter().for_each(|slot| postings.extend_from_slice(&slot.to_le_bytes()));
        } else {
            starts.push(start | IS_BIT_SET);
            let mut set = vec![0u8; set_len * 2];
            of_key.iter().for_each(|slot| set[usize::from(*slot) / 8] |= 1 << (slot % 8));
            postings.extend_from_slice(&set);
        }
    }
    let mut bytes = Vec::with_capacity(HEAD_LEN + builder.chunks.len() * ROW_LEN + sorted.len() * 12);
    head(&mut bytes, summary, builder.chunks.len(), sorted.len(), postings.len() / 2);
    builder.chunks.iter().for_each(|chunk| row(&mut bytes, chunk));
    sorted.iter().for_each(|(key, _)| bytes.extend_from_slice(&key.to_le_bytes()));
    starts.iter().for_each(|start| bytes.extend_from_slice(&start.to_le_bytes()));
    bytes.extend_from_slice(&postings);
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

fn head(bytes: &mut Vec<u8>, summary: &Summary, chunks: usize, keys: usize, postings: usize) {
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&summary.store);
    let words = [
        summary.segment,
        summary.first.as_nanos() as u64,
        summary.last.as_nanos() as u64,
        summary.packets,
        summary.bytes,
        summary.lost,
        summary.dropped,
    ];
    words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    let counts = [chunks as u32, summary.slots, keys as u32, postings as u32, summary.complete, 0];
    counts.iter().for_each(|count| bytes.extend_from_slice(&count.to_le_bytes()));
    bytes.extend_from_slice(&summary.last_number.to_le_bytes());
    bytes.extend_from_slice(&summary.last_hash);
    bytes.extend_from_slice(&[0; 24]);
    debug_assert_eq!(bytes.len(), HEAD_LEN);
}

fn row(bytes: &mut Vec<u8>, chunk: &ChunkRow) {
    let pages = (chunk.offset / PAGE_LEN as u64) as u32;
    for number in [pages, chunk.len, chunk.packets, chunk.lost] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    let (first, last) = (chunk.first.as_nanos() as u64, chunk.last.as_nanos() as u64);
    for number in [first, last, chunk.bytes, chunk.number] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
}

impl Index {
    /// Reads an index; `None` if there is none, or one that is damaged or of another segment: then its segment is walked.
    pub(crate) fn read(path: &Path, store: &[u8; 16], segment: u64) -> Option<Index> {
        let file = disk::open_regular(path, OpenOptions::new().read(true)).ok()?;
        let len = file.metadata().ok()?.len();
        if !(HEAD_LEN as u64 + 4..=LEN_MAX).contains(&len) {
            return None;
        }
        let mut bytes = Vec::with_capacity(len as usize);
        file.take(LEN_MAX).read_to_end(&mut bytes).ok()?;
        let index = Index::parse(bytes)?;
        (index.summary.store == *store && index.summary.segment == segment).then_some(index)
    }

    /// Takes the bytes of an index apart; `None` if they are not those that were written.
    pub(crate) fn parse(bytes: Vec<u8>) -> Option<Index> {
        let (body, checksum) = bytes.split_last_chunk::<4>()?;
        if body.get(..8)? != MAGIC || crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let (u32_at, u64_at) = (|at| u32_at(body, at), |at| u64_at(body, at));
        let summary = Summary {
            store: *body.get(8..)?.first_chunk()?,
            segment: u64_at(24)?,
            first: Timestamp::from_nanos(u64_at(32)? as i64),
            last: Timestamp::from_nanos(u64_at(40)? as i64),
            packets: u64_at(48)?,
            bytes: u64_at(56)?,
            lost: u64_at(64)?,
            dropped: u64_at(72)?,
            slots: u32_at(84)?,
            complete: u32_at(96)?,
            last_number: u64_at(104)?,
            last_hash: *body.get(112..)?.first_chunk()?,
        };
        let (chunks, keys, postings) = (u32_at(80)? as usize, u32_at(88)? as usize, u32_at(92)? as usize);
        let len = HEAD_LEN
            .checked_add(chunks.checked_mul(ROW_LEN)?)?
            .checked_add(keys.checked_mul(12)?)?
            .checked_add(postings.checked_mul(2)?)?;
        (body.len() == len).then_some(())?;
        let index = Index { summary, chunks, keys, postings, bytes };
        index.is_sound().then_some(index)
    }

    /// Whether slots and chunks are such as a segment can have, each chunk behind the one before.
    fn is_sound(&self) -> bool {
        let segment_len = u64::from(self.summary.slots) * SLOT_LEN as u64;
        let mut end = 0;
        let mut fits = |row: ChunkRow| {
            let begin = std::mem::replace(&mut end, row.offset + u64::from(row.len));
            row.offset >= begin
                && (PAGE_LEN..=CHUNK_LEN_MAX).contains(&(row.len as usize))
                && end <= segment_len
        };
        segment_len <= SEGMENT_LEN_MAX && self.chunks().all(&mut fits)
    }

    /// Bytes of the file.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Its chunks, in the order of recording.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = ChunkRow> + '_ {
        (0..self.chunks).filter_map(|at| self.chunk(HEAD_LEN + at * ROW_LEN))
    }

    fn chunk(&self, at: usize) -> Option<ChunkRow> {
        let bytes = &self.bytes;
        Some(ChunkRow {
            offset: u64::from(u32_at(bytes, at)?) * PAGE_LEN as u64,
            len: u32_at(bytes, at + 4)?,
            packets: u32_at(bytes, at + 8)?,
            lost: u32_at(bytes, at + 12)?,
            first: Timestamp::from_nanos(u64_at(bytes, at + 16)? as i64),
            last: Timestamp::from_nanos(u64_at(bytes, at + 24)? as i64),
            bytes: u64_at(bytes, at + 32)?,
            number: u64_at(bytes, at + 40)?,
        })
    }

    /// The slots that have packets with this key.
    pub(crate) fn slots(&self, key: u64) -> Slots {
        let mut slots = Slots::none(self.summary.slots);
        let keys_at = HEAD_LEN + self.chunks * ROW_LEN;
        let key_at = |index: usize| u64_at(&self.bytes, keys_at + index * 8).unwrap_or(u64::MAX);
        let (mut low, mut high) = (0, self.keys);
        while low < high {
            let middle = low + (high - low) / 2;
            if key_at(middle) < key.max(1) { low = middle + 1 } else { high = middle }
        }
        if low == self.keys || key_at(low) != key.max(1) {
            return slots;
        }
        self.fill(low, keys_at + self.keys * 8, &mut slots);
        slots
    }

    fn fill(&self, index: usize, starts_at: usize, slots: &mut Slots) {
        let postings_at = starts_at + self.keys * 4;
        let start_of = |index: usize| u32_at(&self.bytes, starts_at + index * 4);
        let Some(start) = start_of(index) else { return };
        let begin = (start & !IS_BIT_SET) as usize;
        let end = match index + 1 < self.keys {
            true => start_of(index + 1).map_or(begin, |next| (next & !IS_BIT_SET) as usize),
            false => self.postings,
        };
        let place = postings_at + begin * 2..postings_at + end.min(self.postings).max(begin) * 2;
        let Some(postings) = self.bytes.get(place) else { return };
        if start & IS_BIT_SET == 0 {
            for slot in postings.as_chunks::<2>().0 {
                slots.insert(u16::from_le_bytes(*slot).into());
            }
            return;
        }
        for slot in 0..self.summary.slots {
            let byte = postings.get(slot as usize / 8).copied().unwrap_or(0);
            if byte & 1 << (slot % 8) != 0 {
                slots.insert(slot);
            }
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
}
