//! Packed files: known by their first bytes, unpacked through a fixed buffer.

use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use lz4_flex::frame::FrameDecoder;

use super::Counting;

/// Bytes of packed data read at once.
const PACKED_BUFFER_LEN: usize = 64 << 10;

/// How a file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
    /// The LZ4 frame format.
    Lz4,
}

impl Compression {
    /// The name that people know.
    pub fn name(self) -> &'static str {
        match self {
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
            Compression::Lz4 => "lz4",
        }
    }

    /// By the ending of a file's name: `.gz`, `.zst`, `.lz4`, in any case.
    pub fn from_name(path: &Path) -> Option<Compression> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        match ending.as_str() {
            "gz" => Some(Compression::Gzip),
            "zst" | "zstd" => Some(Compression::Zstd),
            "lz4" => Some(Compression::Lz4),
            _ => None,
        }
    }

    /// By the first bytes.
    pub(super) fn detect(magic: &[u8]) -> Option<Compression> {
        match magic {
            // 8: the only method that RFC 1952 defines.
            [0x1f, 0x8b, 8, ..] => Some(Compression::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Compression::Zstd),
            [0x04, 0x22, 0x4d, 0x18, ..] => Some(Compression::Lz4),
            _ => None,
        }
    }

    /// The unpacked stream of `magic` followed by `rest`.
    pub(super) fn unpack(self, magic: Vec<u8>, rest: Counting) -> io::Result<Box<dyn Read + Send>> {
        self.unpack_all(Cursor::new(magic).chain(rest))
    }

    /// The unpacked stream. Members or frames that follow each other are one stream.
    pub(crate) fn unpack_all(self, packed: impl Read + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
        let packed = BufReader::with_capacity(PACKED_BUFFER_LEN, packed);
        Ok(match self {
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(packed)),
            Compression::Zstd => Box::new(zstd::Decoder::with_buffer(packed)?),
            Compression::Lz4 => Box::new(Lz4Frames(FrameDecoder::new(Tail { inner: packed, last: [0; 8] }))),
        })
    }
}

/// All frames of an lz4 stream: the decoder itself stops after each, and takes an end between two blocks for one.
struct Lz4Frames<R: Read>(FrameDecoder<Tail<R>>);

impl<R: BufRead> Read for Lz4Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let len = self.0.read(buffer)?;
            if len > 0 {
                return Ok(len);
            }
            let tail = self.0.get_mut();
            if tail.inner.fill_buf()?.is_empty() {
                return if tail.is_end_mark() { Ok(0) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
    }
}

/// Remembers the last bytes of a stream.
struct Tail<R> {
    inner: R,
    last: [u8; 8],
}

impl<R> Tail<R> {
    /// Whether they end a frame: a block length of 0, with or without a checksum behind.
    fn is_end_mark(&self) -> bool {
        self.last[4..] == [0; 4] || self.last[..4] == [0; 4]
    }
}

impl<R: Read> Read for Tail<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(buffer)?;
        let new = &buffer[len.saturating_sub(8)..len];
        self.last.rotate_left(new.len());
        self.last[8 - new.len()..].copy_from_slice(new);
        Ok(len)
    }
}
