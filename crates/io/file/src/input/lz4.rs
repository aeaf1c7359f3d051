//! The frames of an lz4 stream, followed field by field.
//!
//! ```text
//! stream     = (frame | skippable)*
//! frame      = 04 22 4d 18, FLG, BD, [content size 8], [dictionary 4], HC, block*, 0 u32, [content checksum 4]
//! block      = length u32 (bit 31: not packed), bytes, [block checksum 4]
//! skippable  = 5x 2a 4d 18, length u32, bytes
//! ```
//!
//! The decoder below takes an end of the input between two blocks for the end of a frame, and refuses skippable frames.
//! Here it is known where a stream may end. Source: LZ4 Frame Format Description 1.6.4.

use std::io::{self, BufRead, Read};

use lz4_flex::frame::FrameDecoder;

use super::Compression;

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// FLG: each block has a checksum, the length of the content is given, so is its checksum, so is a dictionary's number.
const BLOCK_CHECKSUM: u8 = 1 << 4;
const CONTENT_SIZE: u8 = 1 << 3;
const CONTENT_CHECKSUM: u8 = 1 << 2;
const DICTIONARY: u8 = 1;
/// In a block's length: its bytes are not packed.
const UNPACKED: u32 = 1 << 31;

/// All frames of an lz4 stream, unpacked.
pub(super) struct Lz4Frames<R: BufRead>(FrameDecoder<Walk<R>>);

impl<R: BufRead> Lz4Frames<R> {
    pub(super) fn new(packed: R) -> Lz4Frames<R> {
        let walk =
            Walk { packed, at: At::Frame, field: [0; 4], field_len: 0, handed: 0, rest: 0, is_cut: false };
        Lz4Frames(FrameDecoder::new(walk))
    }
}

impl<R: BufRead> Read for Lz4Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let len = self.0.read(buffer)?;
            if len > 0 || buffer.is_empty() {
                return Ok(len);
            }
            let walk = self.0.get_mut();
            if walk.is_over()? {
                return if walk.is_whole() { Ok(0) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
    }
}

/// The next part of the stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Frame,
    /// FLG and BD.
    Descriptor,
    Block {
        flags: u8,
    },
    /// Bytes that are not a frame: the decoder reports its error.
    Unknown,
}

/// The packed bytes on their way to the decoder, without skippable frames.
struct Walk<R> {
    packed: R,
    at: At,
    /// The field that was read last, and how much of it has been handed on.
    field: [u8; 4],
    field_len: usize,
    handed: usize,
    /// Bytes until the next field.
    rest: u64,
    /// The stream ended within a field.
    is_cut: bool,
}

impl<R: BufRead> Walk<R> {
    fn is_over(&mut self) -> io::Result<bool> {
        Ok(self.handed == self.field_len && self.packed.fill_buf()?.is_empty())
    }

    fn is_whole(&self) -> bool {
        self.at == At::Frame && self.rest == 0 && !self.is_cut
    }

    /// Reads a field of `len` bytes, or as many as there are.
    fn read_field(&mut self, len: usize) -> io::Result<bool> {
        (self.field_len, self.handed) = (0, 0);
        while self.field_len < len {
            match self.packed.read(&mut self.field[self.field_len..len]) {
                Ok(0) => break,
                Ok(got) => self.field_len += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.is_cut |= !matches!(self.field_len, 0) && self.field_len < len;
        Ok(self.field_len == len)
    }

    /// Reads the next field, which determines the one after it.
    fn advance(&mut self) -> io::Result<()> {
        let flag = |flags: u8, bit: u8, len: u64| if flags & bit != 0 { len } else { 0 };
        match self.at {
            At::Frame => {
                while self.read_field(4)? && Compression::is_skippable(&self.field) {
                    if !self.skip()? {
                        break;
                    }
                }
                if self.field_len == 4 {
                    self.at = if self.field == MAGIC { At::Descriptor } else { At::Unknown };
                }
            }
            At::Descriptor => {
                if self.read_field(2)? {
                    let flags = self.field[0];
                    self.rest = 1 + flag(flags, CONTENT_SIZE, 8) + flag(flags, DICTIONARY, 4);
                    self.at = At::Block { flags };
                }
            }
            At::Block { flags } => {
                if self.read_field(4)? {
                    match u32::from_le_bytes(self.field) & !UNPACKED {
                        0 => {
                            self.rest = flag(flags, CONTENT_CHECKSUM, 4);
                            self.at = At::Frame;
                        }
                        len => self.rest = u64::from(len) + flag(flags, BLOCK_CHECKSUM, 4),
                    }
                }
            }
            At::Unknown => self.rest = u64::MAX,
        }
        Ok(())
    }

    /// Passes over a skippable frame whose magic number was read; `false` if it is not there as a whole.
    fn skip(&mut self) -> io::Result<bool> {
        let has_length = self.read_field(4)?;
        let len = u64::from(u32::from_le_bytes(self.field));
        (self.field_len, self.handed) = (0, 0);
        let is_whole = has_length && io::copy(&mut (&mut self.packed).take(len), &mut io::sink())? == len;
        self.is_cut |= !is_whole;
        Ok(is_whole)
    }
}

impl<R: BufRead> Read for Walk<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if self.handed == self.field_len && self.rest == 0 {
            self.advance()?;
        }
        if self.handed < self.field_len {
            let field = &self.field[self.handed..self.field_len];
            let len = field.len().min(buffer.len());
            buffer[..len].copy_from_slice(&field[..len]);
            self.handed += len;
            return Ok(len);
        }
        let len = usize::try_from(self.rest).unwrap_or(usize::MAX).min(buffer.len());
        let got = if len == 0 { 0 } else { self.packed.read(&mut buffer[..len])? };
        self.rest -= got as u64;
        Ok(got)
    }
}
