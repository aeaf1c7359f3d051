//! Packing in pieces, each of which can be unpacked without what follows.
//!
//! ```text
//! stream = piece* end
//!
//!        piece ends with                    end
//! gzip   an empty stored block (Z_SYNC_FLUSH)   an empty last block, CRC-32, length      RFC 1951 3.2.4, RFC 1952 2.3.1
//! zstd   a whole block                      an empty raw block marked as the last    RFC 8878 3.1.1.2
//! lz4    a whole block                      the end mark, a block length of 0        LZ4 frame format 1.6.4
//! ```
//!
//! The ends are 10, 3 and 4 bytes that can be written behind any piece, so that a file which failed can be completed
//! where it was cut.

use std::io::{self, Write};

use flate2::Crc;
use flate2::write::DeflateEncoder;
use lz4_flex::frame::FrameEncoder;

use crate::input::Compression;

/// Levels at which packing keeps up with a capture rather than saves the last byte.
const GZIP_LEVEL: u32 = 3;
const ZSTD_LEVEL: i32 = 1;

/// A gzip member's header: deflate, no name and no time, unknown system.
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
/// A last block of deflate with fixed codes and nothing in it.
const DEFLATE_END: [u8; 2] = [3, 0];
const ZSTD_END: [u8; 3] = [1, 0, 0];
const LZ4_END: [u8; 4] = [0; 4];

/// Packs pieces of a stream into memory.
pub struct Packer {
    coder: Coder,
    /// The end of the stream behind the last mark; empty before the first.
    end: Vec<u8>,
}

enum Coder {
    Gzip { deflate: DeflateEncoder<Vec<u8>>, crc: Crc },
    Zstd(zstd::Encoder<'static, Vec<u8>>),
    Lz4(Box<FrameEncoder<Vec<u8>>>),
}

impl Packer {
    /// Begins a stream.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn new(compression: Compression) -> io::Result<Packer> {
        let coder = match compression {
            Compression::Gzip => Coder::Gzip {
                deflate: DeflateEncoder::new(GZIP_HEADER.to_vec(), flate2::Compression::new(GZIP_LEVEL)),
                crc: Crc::new(),
            },
            Compression::Zstd => Coder::Zstd(zstd::Encoder::new(Vec::new(), ZSTD_LEVEL)?),
            Compression::Lz4 => Coder::Lz4(Box::new(FrameEncoder::new(Vec::new()))),
        };
        Ok(Packer { coder, end: Vec::new() })
    }

    /// Packs a piece. The returned bytes are to be written whole, and then marked.
    ///
    /// # Errors
    /// If the coder fails; the stream is then of no more use.
    pub fn pack(&mut self, bytes: &[u8]) -> io::Result<&[u8]> {
        match &mut self.coder {
            Coder::Gzip { deflate, crc } => {
                crc.update(bytes);
                deflate.write_all(bytes)?;
                deflate.flush()?;
                Ok(deflate.get_ref())
            }
            Coder::Zstd(coder) => {
                coder.write_all(bytes)?;
                coder.flush()?;
                Ok(coder.get_ref())
            }
            Coder::Lz4(coder) => {
                coder.write_all(bytes)?;
                coder.flush()?;
                Ok(coder.get_ref())
            }
        }
    }

    /// The piece that was packed last has been written.
    pub fn mark(&mut self) {
        self.end.clear();
        match &mut self.coder {
            Coder::Gzip { deflate, crc } => {
                deflate.get_mut().clear();
                self.end.extend_from_slice(&DEFLATE_END);
                self.end.extend_from_slice(&crc.sum().to_le_bytes());
                // The length modulo 2^32, as RFC 1952 has it.
                self.end.extend_from_slice(&crc.amount().to_le_bytes());
            }
            Coder::Zstd(coder) => {
                coder.get_mut().clear();
                self.end.extend_from_slice(&ZSTD_END);
            }
            Coder::Lz4(coder) => {
                coder.get_mut().clear();
                self.end.extend_from_slice(&LZ4_END);
            }
        }
    }

    /// Packs all bytes as a stream of its own, into `buffer`, whose memory is used again.
    ///
    /// # Errors
    /// If the coder fails.
    pub fn pack_whole(compression: Compression, bytes: &[u8], mut buffer: Vec<u8>) -> io::Result<Vec<u8>> {
        buffer.clear();
        match compression {
            Compression::Gzip => {
                let level = flate2::Compression::new(GZIP_LEVEL);
                let mut coder = flate2::write::GzEncoder::new(buffer, level);
                coder.write_all(bytes)?;
                coder.finish()
            }
            Compression::Zstd => {
                let mut coder = zstd::Encoder::new(buffer, ZSTD_LEVEL)?;
                coder.write_all(bytes)?;
                coder.finish()
            }
            Compression::Lz4 => {
                let mut coder = FrameEncoder::new(buffer);
                coder.write_all(bytes)?;
                coder.finish().map_err(io::Error::other)
            }
        }
    }

    /// The bytes that complete the stream behind the last mark.
    pub fn end(&self) -> Vec<u8> {
        self.end.clone()
    }
}
