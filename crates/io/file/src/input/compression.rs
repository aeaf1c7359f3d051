//! Packed files: known by their first bytes, unpacked through a fixed buffer.

use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;

use super::Counting;
use super::lz4::Lz4Frames;

/// Bytes of packed data read at once.
const PACKED_BUFFER_LEN: usize = 64 << 10;

tapline_packet::named_enum! {
    /// The compression of a file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum Compression {
        /// RFC 1952.
        Gzip = "gzip",
        /// RFC 8878.
        Zstd = "zstd",
        /// The LZ4 frame format.
        Lz4 = "lz4",
    }
}

impl Compression {
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

    /// Whether these bytes begin a frame that decoders of zstd and lz4 pass over (RFC 8878 3.1.2): pzstd puts one
    /// before each of its frames.
    pub(super) fn is_skippable(magic: &[u8]) -> bool {
        matches!(magic, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
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
            Compression::Lz4 => Box::new(Lz4Frames::new(packed)),
        })
    }
}
