//! One open file, pipe or packed stream.
//!
//! ```text
//! plain    records ------------------------------> Target
//! packed   records --> Packer --> packed bytes --> Target
//!                                             |
//!                                            mark: bytes before it can be unpacked without those after it
//! ```
//!
//! A packer never writes by itself: each write is packed, closed by a mark, and given to the system with one call. So
//! the number of bytes that the system took decides which packets a reader finds, and a failed write is cut off at the
//! last mark.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use super::packer::Packer;
use crate::input::Compression;

/// The destination of the bytes.
pub(super) trait Target: Write + Send {
    /// Removes the last `len` bytes, which were just written.
    ///
    /// # Errors
    /// If the output is not a file, or cannot be cut there.
    fn take_back(&mut self, len: u64) -> io::Result<()>;
}

impl Target for File {
    fn take_back(&mut self, len: u64) -> io::Result<()> {
        let end = self.stream_position()?;
        let metadata = self.metadata()?;
        // Bytes of another writer behind ours are not ours to cut.
        if !metadata.is_file() || metadata.len() != end {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let start = end.saturating_sub(len);
        self.set_len(start)?;
        self.seek(SeekFrom::Start(start)).map(drop)
    }
}

/// Standard output, without the line buffer of the standard library. Never cut: other programs may write there too (`>>
/// file`).
struct StandardOutput(File);

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Target for StandardOutput {
    fn take_back(&mut self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// An open output.
pub(super) struct Output {
    target: Box<dyn Target>,
    packer: Option<Packer>,
}

/// A write that failed.
pub(super) struct Failure {
    /// Bytes of the write, as they were before packing, that a reader is sure to find.
    pub(super) taken: usize,
    pub(super) source: io::Error,
    /// Bytes of the failed write that the system took.
    torn: usize,
}

impl Output {
    /// Writes to an open file, packed if need be.
    pub(super) fn new(target: Box<dyn Target>, compression: Option<Compression>) -> io::Result<Output> {
        Ok(Output { target, packer: compression.map(Packer::new).transpose()? })
    }

    /// Writes to standard output.
    ///
    /// # Errors
    /// If standard output was closed when the program began.
    pub(super) fn standard(compression: Option<Compression>) -> io::Result<Output> {
        Output::new(Box::new(StandardOutput(tapline_sys::standard_output::file()?)), compression)
    }

    /// Writes all of `bytes`, so that readers can see them.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let Some(packer) = &mut self.packer else {
            return write_all(&mut self.target, bytes).map_err(|(torn, source)| Failure {
                taken: torn,
                source,
                torn,
            });
        };
        let packed = packer.pack(bytes).map_err(|source| Failure { taken: 0, source, torn: 0 })?;
        match write_all(&mut self.target, packed) {
            Ok(()) => {
                packer.mark();
                Ok(())
            }
            Err((torn, source)) => Err(Failure { taken: 0, source, torn }),
        }
    }

    /// Completes a packed stream and closes the file.
    ///
    /// # Errors
    /// If the end mark cannot be written: without it readers find all packets, and an end that is missing.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.write_end()
    }

    /// After a failed write: leaves the first `keep` bytes of it, which are at most those taken, and completes a
    /// packed stream there. An output that cannot be cut stays as it is.
    ///
    /// # Errors
    /// If the output cannot be cut, or not completed.
    pub(super) fn repair(mut self, failure: &Failure, keep: usize) -> io::Result<()> {
        let spoiled = if self.packer.is_some() { failure.torn } else { failure.torn.saturating_sub(keep) };
        if spoiled > 0 {
            self.target.take_back(spoiled as u64)?;
        }
        self.write_end()
    }

    fn write_end(&mut self) -> io::Result<()> {
        let Some(packer) = &self.packer else { return Ok(()) };
        write_all(&mut self.target, &packer.end()).map_err(|(torn, source)| {
            // Half an end mark is worse than none. If it cannot be removed, readers tell that the end is damaged.
            let _ = self.target.take_back(torn as u64);
            source
        })
    }
}

/// Writes all of `bytes`; on failure, how many were taken before, and why it failed.
fn write_all(target: &mut Box<dyn Target>, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut taken = 0;
    while taken < bytes.len() {
        match target.write(&bytes[taken..]) {
            Ok(0) => return Err((taken, io::ErrorKind::WriteZero.into())),
            Ok(len) => taken += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err((taken, source)),
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
