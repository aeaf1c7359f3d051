//! The PBuf's reading half: records copied out and then believed, or looked at in place while the block is held.
//!
//! ```text
//! copy    sequence as expected? bytes; fence; sequence still the same -> whole, else overwritten
//! hold    held := sequence; fence; sequence as expected?              -> it stays until held := 0, else overwritten
//! ```
//!
//! Nothing here believes the writer: a position is masked and checked before it leads anywhere, and a record must
//! itself confirm the words of an index.

use tapline_packet::Timestamp;

use crate::account::{PLACES, SourceCounts};
use crate::atomic::{Acquire, Release, SeqCst, fence};
use crate::copy::load_lines;
use crate::layout::{
    BLOCK_HEAD_LEN, BUFFER_MAGIC, BYTE_ORDER, BlockPosition, Geometry, HEADER_LEN, LINE_LEN, LINE_WORDS,
    VERSION, block, buffer, header, record_len,
};
use crate::memory::ReadWords;
use crate::record::{self, RecordHead};
use crate::store::IndexEntry;
use crate::{Error, atomic::AtomicU64};

const FILE: &str = "packet buffer";

/// The reason that a record is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Miss {
    /// The block holds something else by now.
    Overwritten,
    /// The record makes no sense.
    Damaged,
}

/// The reading half.
pub(crate) struct View {
    words: ReadWords,
    geometry: Geometry,
    snap_len: u32,
}

impl View {
    /// Checks the header once: the checked values are kept, and the memory is not read again.
    pub(crate) fn new(words: ReadWords) -> Result<View, Error> {
        ensure_header(FILE, &|word| words.load(word), BUFFER_MAGIC)?;
        let geometry = Geometry::new(words.load(buffer::BLOCK_LEN), words.load(buffer::BLOCKS))?;
        let snap_len = words.load(buffer::SNAP_LEN).min(u64::from(geometry.cap_len_max())) as u32;
        Ok(View { words, geometry, snap_len })
    }

    #[cfg(test)]
    pub(crate) fn unchecked(words: ReadWords, geometry: Geometry) -> View {
        View { words, geometry, snap_len: geometry.cap_len_max() }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    pub(crate) fn snap_len(&self) -> u32 {
        self.snap_len
    }

    /// A word of the header, as it is now.
    pub(crate) fn header(&self, word: usize) -> u64 {
        self.words.load(word)
    }

    /// The end of the stored packets: all before it can be seen after this call. Readers follow their indices; they
    /// only ask how far the writer is.
    pub(crate) fn head(&self) -> u64 {
        let head = self.words.load(buffer::HEAD);
        // Pairs with the release store in `Store::publish`.
        fence(Acquire);
        head
    }

    /// Entries that are not there after this are of packets that are not older; `None` if the writer did not say.
    pub(crate) fn watermark(&self) -> Option<Timestamp> {
        let nanos = self.words.load(buffer::WATERMARK) as i64;
        // Pairs with the release store in `Store::publish`: heads of indices that are read after this are at least
        // those it speaks of.
        fence(Acquire);
        (nanos != i64::MIN).then_some(Timestamp::from_nanos(nanos))
    }

    pub(crate) fn is_closed(&self) -> bool {
        let state = self.words.load(buffer::STATE);
        // Pairs with `Store::close`: heads that are read after this are the last ones.
        fence(Acquire);
        state == buffer::CLOSED
    }

    pub(crate) fn source(&self) -> SourceCounts {
        SourceCounts {
            words: std::array::from_fn::<_, PLACES, _>(|place| self.words.load(buffer::SOURCE + place)),
        }
    }

    /// Number of words of the record that an entry leads to.
    pub(crate) fn words_of(&self, entry: IndexEntry) -> Result<usize, Miss> {
        self.locate(entry).map(|_| record_len(entry.cap_len) / 8)
    }

    /// Copies a record, metadata and bytes, to the beginning of `into`, which has at least [`words_of`](Self::words_of)
    /// it.
    pub(crate) fn copy(&self, entry: IndexEntry, into: &mut [u64]) -> Result<RecordHead, Miss> {
        let place = self.locate(entry)?;
        if !self.has(&place) {
            return Err(Miss::Overwritten);
        }
        let into = &mut into[..record_len(entry.cap_len) / 8];
        load_lines(&self.words, self.word(&place), into);
        // Pairs with the fence in `Store::take`: if a byte is of another record, the sequence is too.
        fence(Acquire);
        let head = record::decode(into.first_chunk().expect("a record has a line of metadata"));
        if !self.has(&place) {
            return Err(Miss::Overwritten);
        }
        if is_meant(&head, entry) { Ok(head) } else { Err(Miss::Damaged) }
    }

    /// Holds the block of a record, if it is still there: until [`release`], or until another block is held.
    pub(crate) fn hold(&self, entry: IndexEntry, held: &AtomicU64) -> Result<u64, Miss> {
        let place = self.locate(entry)?;
        // If another block was held until now, it was looked at before this: pairs with the acquire load in
        // `Producer::held`.
        held.store(place.sequence, Release);
        // Pairs with the fence in `Store::take`: either we see the new sequence, or the writer that we hold the old
        // one.
        fence(SeqCst);
        if self.has(&place) {
            return Ok(place.sequence);
        }
        release(held);
        Err(Miss::Overwritten)
    }

    /// The head of a record in a block that is held.
    pub(crate) fn look(&self, entry: IndexEntry) -> Result<RecordHead, Miss> {
        let place = self.locate(entry)?;
        let first = self.word(&place);
        let line: [u64; LINE_WORDS] = std::array::from_fn(|word| self.words.load(first + word));
        let head = record::decode(&line);
        if is_meant(&head, entry) { Ok(head) } else { Err(Miss::Damaged) }
    }

    /// The block of a position.
    pub(crate) fn sequence_of(&self, entry: IndexEntry) -> u64 {
        self.geometry.place(entry.position).sequence
    }

    /// Bytes of a record in its block: where they begin.
    pub(crate) fn data_offset(&self, entry: IndexEntry) -> usize {
        self.geometry.place(entry.position).offset + LINE_LEN
    }

    /// The bytes `range` of a block.
    ///
    /// # Safety
    /// The block is held, and only records that were published before lie in the range: then they are not written to,
    /// if the writer keeps to the rules, which is trusted here.
    #[cfg(not(loom))]
    pub(crate) unsafe fn bytes(&self, sequence: u64, range: std::ops::Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.geometry.block_len());
        let first = self.geometry.block_word(self.geometry.slot(sequence));
        // SAFETY: the block lies in the memory, whose length was compared with the geometry, and the range in the
        // block; the caller says that it is not written to.
        unsafe {
            let block = self.words.as_ptr().add(first).cast::<u8>();
            std::slice::from_raw_parts(block.add(range.start), range.len())
        }
    }

    /// The record that an entry points to, if a record can be there.
    fn locate(&self, entry: IndexEntry) -> Result<BlockPosition, Miss> {
        let place = self.geometry.place(entry.position);
        let fits = entry.cap_len <= self.snap_len
            && place.sequence != 0
            && place.offset >= BLOCK_HEAD_LEN
            && place.offset.is_multiple_of(LINE_LEN)
            && place.offset + record_len(entry.cap_len) <= self.geometry.block_len();
        if fits { Ok(place) } else { Err(Miss::Damaged) }
    }

    fn word(&self, place: &BlockPosition) -> usize {
        self.geometry.block_word(place.slot) + place.offset / 8
    }

    /// Whether the block still holds the same content.
    fn has(&self, place: &BlockPosition) -> bool {
        self.words.load(self.geometry.block_word(place.slot) + block::SEQUENCE) == place.sequence
    }
}

/// Lets go of a block. All reads in place come before this: pairs with the acquire load in `Producer::held`.
pub(crate) fn release(held: &AtomicU64) {
    held.store(0, Release);
}

fn is_meant(head: &RecordHead, entry: IndexEntry) -> bool {
    head.position == entry.position && head.cap_len == entry.cap_len
}

/// The words that every header begins with.
pub(crate) fn ensure_header(
    file: &'static str,
    load: &dyn Fn(usize) -> u64,
    magic: u64,
) -> Result<(), Error> {
    for (word, expected) in [
        (header::MAGIC, magic),
        (header::BYTE_ORDER, BYTE_ORDER),
        (header::VERSION, VERSION),
        (header::HEADER_LEN, HEADER_LEN as u64),
    ] {
        let found = load(word);
        if found != expected {
            return Err(Error::WrongHeader { file, offset: word * 8, found, expected });
        }
    }
    Ok(())
}
