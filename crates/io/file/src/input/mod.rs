//! The bytes of a file as one window that moves along.
//!
//! ```text
//!             consumed   window (parsers work here)   free
//! buffer    |..........|============================|......|
//!                      start                        end
//! offset ->|  of buffer[0] in the (unpacked) file
//! ```
//!
//! Packets are lent from the buffer in place. The buffer grows only when it is full of bytes that really came, so
//! that no length in a file can make us allocate.
//!
//! # Why files are not mapped
//! Measured on a file of 1.0 GB in the page cache, walking over all records and touching three bytes of each (CPU
//! time, user and system, medians of 3 interleaved runs, virtual machine on AMD EPYC, ext4):
//!
//! | how | s |
//! |---|---|
//! | mmap | 0.15 |
//! | mmap, MADV_SEQUENTIAL | 0.16 |
//! | mmap, MAP_POPULATE | 0.19 |
//! | mmap, MADV_POPULATE_READ by 256 KiB / 1 MiB / 4 MiB | 0.21 / 0.20 / 0.19 |
//! | read into one reused buffer of 128 KiB / 256 KiB / 512 KiB / 1 MiB / 4 MiB | 0.09 / 0.09 / 0.09 / 0.10 / 0.10 |
//!
//! Page faults cost more than a copy into a buffer that stays in the second-level cache. Reading also cannot be hurt
//! by a file that is cut or rewritten meanwhile (a mapping dies of SIGBUS), follows one that still grows, and leaves
//! the bytes ours to put into this machine's order.

mod compression;
mod lz4;

use std::fs::File;
use std::io::{self, Read, Seek};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use compression::Compression;

/// Among the fastest in the table above, and the best for what follows: filtering the same file (`tcp port 443`) takes
/// 0.24, 0.21, 0.22 and 0.23 s with 64, 128, 256 and 512 KiB, as packets are still in the cache when they are looked
/// at.
const BUFFER_LEN: usize = 128 << 10;

/// Bytes that are looked at to know a compression: the longest magic number and a little.
const MAGIC_LEN: usize = 6;

/// A stream of bytes, unpacked if need be, behind a window.
pub(crate) struct Input {
    reader: Box<dyn Read + Send>,
    /// The file that the reader reads, if it is a regular one that is read from its first byte.
    file: Option<Arc<File>>,
    compression: Option<Compression>,
    raw_read: Arc<AtomicU64>,
    raw_len: Option<u64>,
    buffer: Vec<u8>,
    /// A former buffer, in which packets are still lent.
    former: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
    state: StreamState,
}

enum StreamState {
    Open,
    Ended,
    Failed(Option<io::Error>),
}

impl Input {
    /// A file by name.
    pub(crate) fn open(path: &std::path::Path) -> io::Result<Input> {
        Input::of_file(File::open(path)?)
    }

    /// The rest of an open file.
    pub(crate) fn of_file(mut file: File) -> io::Result<Input> {
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        let from = if metadata.is_file() { file.stream_position()? } else { 0 };
        let raw_len = metadata.is_file().then(|| metadata.len().saturating_sub(from));
        let file = Arc::new(file);
        let input = Input::new(Box::new(Arc::clone(&file)), raw_len)?;
        Ok(Input { file: (raw_len.is_some() && from == 0).then_some(file), ..input })
    }

    /// Any stream; `raw_len` is its length if that is known.
    pub(crate) fn new(reader: Box<dyn Read + Send>, raw_len: Option<u64>) -> io::Result<Input> {
        let raw_read = Arc::new(AtomicU64::new(0));
        let mut counting = Counting { reader, count: Arc::clone(&raw_read) };
        let mut magic = [0; MAGIC_LEN];
        let have = read_magic(&mut counting, &mut magic)?;
        let compression = Compression::detect(&magic[..have]);
        let mut buffer = vec![0; BUFFER_LEN];
        let (reader, end) = match compression {
            Some(compression) => (compression.unpack(magic[..have].to_vec(), counting)?, 0),
            None => {
                buffer[..have].copy_from_slice(&magic[..have]);
                (Box::new(counting) as Box<dyn Read + Send>, have)
            }
        };
        Ok(Input {
            reader,
            file: None,
            compression,
            raw_read,
            raw_len,
            buffer,
            former: Vec::new(),
            start: 0,
            end,
            offset: 0,
            state: StreamState::Open,
        })
    }

    /// The compression of the file.
    pub(crate) fn compression(&self) -> Option<Compression> {
        self.compression
    }

    /// The buffer as far as it is filled, and where in it the window begins, which ends with it.
    pub(crate) fn window(&mut self) -> (&mut [u8], usize) {
        (&mut self.buffer[..self.end], self.start)
    }

    /// Bytes in the window.
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    /// The place of the window's first byte in the unpacked file.
    pub(crate) fn offset(&self) -> u64 {
        self.offset.wrapping_add(self.start as u64)
    }

    /// The file, if threads can read it at any place: it is a regular one, and not packed.
    pub(crate) fn plain_file(&self) -> Option<Arc<File>> {
        self.file.clone().filter(|_| self.compression.is_none())
    }

    /// Puts other bytes in place of the buffer, with the window at `window`, whose first byte is at `offset` in the
    /// file.
    pub(crate) fn set_buffer(&mut self, bytes: Vec<u8>, window: Range<usize>, offset: u64) {
        self.buffer = bytes;
        self.start = window.start;
        self.offset = offset.wrapping_sub(window.start as u64);
        self.set_end(window.end);
    }

    /// Moves the end of the window.
    pub(crate) fn set_end(&mut self, end: usize) {
        self.end = end.min(self.buffer.len());
        self.raw_read.store(self.offset.wrapping_add(self.end as u64), Ordering::Relaxed);
    }

    /// Takes the buffer, and leaves none.
    pub(crate) fn take_buffer(&mut self) -> Vec<u8> {
        (self.start, self.end) = (0, 0);
        std::mem::take(&mut self.buffer)
    }

    /// Ends the stream with an error behind the window.
    pub(crate) fn fail(&mut self, fault: io::Error) {
        self.state = StreamState::Failed(Some(fault));
    }

    /// Whether it is a file: its next bytes are available without waiting for a writer.
    pub(crate) fn is_file(&self) -> bool {
        self.raw_len.is_some()
    }

    /// Consumes `len` bytes of the window. They stay in the buffer until [`fill`](Self::fill).
    pub(crate) fn consume(&mut self, len: usize) {
        self.start = self.start.saturating_add(len).min(self.end);
    }

    /// The whole buffer, for lent packets.
    pub(crate) fn buffer(&self) -> &[u8] {
        &self.buffer
    }

    /// Moves the window to the front of the buffer and reads once behind it. Whether bytes came; if not, the stream is
    /// at its end or failed (see [`take_fault`](Self::take_fault)).
    pub(crate) fn fill(&mut self) -> bool {
        self.fill_up_to(usize::MAX)
    }

    /// [`fill`](Self::fill) with at most `most` bytes.
    pub(crate) fn fill_up_to(&mut self, most: usize) -> bool {
        if !matches!(self.state, StreamState::Open) {
            return false;
        }
        self.make_room();
        let room_end = self.end.saturating_add(most).min(self.buffer.len());
        match read_once(&mut self.reader, &mut self.buffer[self.end..room_end]) {
            Ok(0) => self.state = StreamState::Ended,
            Ok(len) => {
                self.end += len;
                return true;
            }
            Err(error) => self.state = StreamState::Failed(Some(error)),
        }
        false
    }

    /// Empties the window, to read on from the reader's position, even after an end or a failure.
    pub(crate) fn restart(&mut self) {
        self.offset += self.end as u64;
        (self.start, self.end) = (0, 0);
        self.state = StreamState::Open;
    }

    /// Leaves the buffer as it is for the packets lent in it, until [`free_former`](Self::free_former), and reads into
    /// a new one.
    pub(crate) fn change_buffer(&mut self) {
        self.former = std::mem::replace(&mut self.buffer, vec![0; BUFFER_LEN]);
        self.restart();
    }

    /// Frees the former buffer.
    pub(crate) fn free_former(&mut self) {
        self.former = Vec::new();
    }

    /// The error with which the stream ended; returned once.
    pub(crate) fn take_fault(&mut self) -> Option<io::Error> {
        match &mut self.state {
            StreamState::Failed(fault) => fault.take(),
            _ => None,
        }
    }

    /// Whether the stream failed only because it has nothing now; reading may go on then.
    pub(crate) fn resume(&mut self) -> bool {
        let has_nothing = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        let waits = matches!(&self.state, StreamState::Failed(Some(error)) if has_nothing(error));
        if waits {
            self.state = StreamState::Open;
        }
        waits
    }

    /// Bytes read of the file as stored on disk.
    pub(crate) fn raw_read(&self) -> u64 {
        self.raw_read.load(Ordering::Relaxed)
    }

    /// Bytes of the file as it lay on disk when it was opened, if it is one.
    pub(crate) fn raw_len(&self) -> Option<u64> {
        self.raw_len
    }

    fn make_room(&mut self) {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.offset += self.start as u64;
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            let mut larger = vec![0; self.buffer.len() * 2];
            larger[..self.end].copy_from_slice(&self.buffer);
            self.buffer = larger;
        }
    }
}

/// Counts bytes read, for progress.
struct Counting {
    reader: Box<dyn Read + Send>,
    count: Arc<AtomicU64>,
}

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.reader.read(buffer)?;
        // One thread reads the file; others only look: no need to add in one step, which costs more than a small read.
        self.count.store(self.count.load(Ordering::Relaxed) + len as u64, Ordering::Relaxed);
        Ok(len)
    }
}

fn read_once(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Reads the first bytes, behind frames that decoders of zstd and lz4 pass over.
fn read_magic(reader: &mut impl Read, magic: &mut [u8; MAGIC_LEN]) -> io::Result<usize> {
    let mut have = read_up_to(reader, magic)?;
    let mut was_skipped = false;
    while Compression::is_skippable(&magic[..have]) {
        let mut rest = [0; 2];
        let more = read_up_to(reader, &mut rest)?;
        let len = u32::from_le_bytes([magic[4], magic[5], rest[0], rest[1]]);
        if have < MAGIC_LEN
            || more < 2
            || io::copy(&mut reader.take(len.into()), &mut io::sink())? < len.into()
        {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends in a frame to be passed over"));
        }
        was_skipped = true;
        have = read_up_to(reader, magic)?;
    }
    match Compression::detect(&magic[..have]) {
        None if was_skipped => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a frame to be passed over is followed by none of zstd or lz4",
        )),
        _ => Ok(have),
    }
}

fn read_up_to(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut have = 0;
    while have < buffer.len() {
        match read_once(reader, &mut buffer[have..])? {
            0 => break,
            len => have += len,
        }
    }
    Ok(have)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns one byte at a time, with interruptions.
    struct Slow(Vec<u8>, usize);

    impl Read for Slow {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 += 1;
            if self.1.is_multiple_of(3) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let Some((&first, rest)) = self.0.split_first() else { return Ok(0) };
            buffer[0] = first;
            self.0 = rest.to_vec();
            Ok(1)
        }
    }

    #[test]
    fn the_window_moves_over_the_whole_stream() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut input = Input::new(Box::new(Slow(bytes.clone(), 0)), None).unwrap();
        let mut seen = Vec::new();
        loop {
            assert_eq!(input.offset() as usize, seen.len());
            let (bytes, start) = input.window();
            seen.extend_from_slice(&bytes[start..]);
            input.consume(usize::MAX);
            if !input.fill() {
                break;
            }
        }
        assert_eq!((seen, input.raw_read()), (bytes, 256));
        assert!(input.take_fault().is_none());
    }

    #[test]
    fn the_buffer_grows_only_with_bytes_that_came() {
        let bytes = vec![7; BUFFER_LEN * 3];
        let mut input = Input::new(Box::new(io::Cursor::new(bytes)), None).unwrap();
        while input.fill() {}
        assert_eq!(input.len(), BUFFER_LEN * 3);
        assert_eq!(input.buffer().len(), BUFFER_LEN * 4);
    }
}
