//! One open file, pipe or packed stream.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;

use flate2::write::GzEncoder;
use lz4_flex::frame::FrameEncoder;

use crate::input::Compression;

/// Levels at which packing keeps up with a capture rather than saves the last byte.
const GZIP_LEVEL: u32 = 3;
const ZSTD_LEVEL: i32 = 1;

/// An open output.
pub(super) struct Output {
    target: Target,
    /// Bytes that stand in the file, if it is a plain one that can be cut.
    file_len: Option<u64>,
}

enum Target {
    Plain(File),
    Gzip(GzEncoder<File>),
    Zstd(zstd::Encoder<'static, File>),
    Lz4(Box<FrameEncoder<File>>),
}

/// A write that failed: how many bytes were taken before, and why it failed.
pub(super) struct Failure {
    pub(super) taken: usize,
    pub(super) source: io::Error,
}

impl Output {
    /// Writes to an open file, packed if need be.
    pub(super) fn new(file: File, compression: Option<Compression>) -> io::Result<Output> {
        let can_be_cut = compression.is_none() && file.metadata()?.is_file();
        let target = match compression {
            None => Target::Plain(file),
            Some(Compression::Gzip) => {
                Target::Gzip(GzEncoder::new(file, flate2::Compression::new(GZIP_LEVEL)))
            }
            Some(Compression::Zstd) => Target::Zstd(zstd::Encoder::new(file, ZSTD_LEVEL)?),
            Some(Compression::Lz4) => Target::Lz4(Box::new(FrameEncoder::new(file))),
        };
        Ok(Output { target, file_len: can_be_cut.then_some(0) })
    }

    /// Standard output, without the line buffer of the standard library.
    pub(super) fn standard(compression: Option<Compression>) -> io::Result<Output> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let mut output = Output::new(file, compression)?;
        // Others may write there too (`>> file`): what is before us or behind is not ours to cut.
        output.file_len = None;
        Ok(output)
    }

    /// Writes all of `bytes`.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let result = match &mut self.target {
            Target::Plain(file) => write_plain(file, bytes),
            // What a packer takes is not yet in the file; nothing counts as taken.
            Target::Gzip(packer) => packer.write_all(bytes).map_err(not_taken),
            Target::Zstd(packer) => packer.write_all(bytes).map_err(not_taken),
            Target::Lz4(packer) => packer.write_all(bytes).map_err(not_taken),
        };
        if let (Ok(()), Some(len)) = (&result, &mut self.file_len) {
            *len += bytes.len() as u64;
        }
        result
    }

    /// Makes what was written visible to readers.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        match &mut self.target {
            Target::Plain(_) => Ok(()),
            Target::Gzip(packer) => packer.flush(),
            Target::Zstd(packer) => packer.flush(),
            Target::Lz4(packer) => packer.flush(),
        }
    }

    /// Completes a packed stream and closes the file.
    pub(super) fn finish(self) -> io::Result<()> {
        match self.target {
            Target::Plain(_) => Ok(()),
            Target::Gzip(packer) => packer.finish().map(drop),
            Target::Zstd(packer) => packer.finish().map(drop),
            Target::Lz4(packer) => packer.finish().map(drop).map_err(io::Error::other),
        }
    }

    /// Cuts a plain file after the first `keep` bytes of the last write, which failed.
    pub(super) fn cut(&mut self, keep: usize) -> io::Result<()> {
        match (&mut self.target, self.file_len) {
            (Target::Plain(file), Some(len)) => file.set_len(len + keep as u64),
            _ => Ok(()),
        }
    }
}

fn not_taken(source: io::Error) -> Failure {
    Failure { taken: 0, source }
}

fn write_plain(file: &mut File, bytes: &[u8]) -> Result<(), Failure> {
    let mut taken = 0;
    while taken < bytes.len() {
        match file.write(&bytes[taken..]) {
            Ok(0) => return Err(Failure { taken, source: io::ErrorKind::WriteZero.into() }),
            Ok(len) => taken += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(Failure { taken, source }),
        }
    }
    Ok(())
}

/// The name that a file has while it is written.
pub(super) fn part_name(path: &Path) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}
