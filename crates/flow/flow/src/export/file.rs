//! A file of messages (RFC 5655) or lines, of which each is there as a whole or not at all; packed, if its name says so.
//!
//! ```text
//! message | message | message | ...      what a failed write left of one is cut off again
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use tapline_file::{Compression, Format, Packer};
use tapline_sys::{open_files, output_file};

/// A file of messages.
pub struct MessageFile {
    file: File,
    /// Packs messages one by one, so that a reader of a file in progress finds those that are there.
    packer: Option<Packer>,
    /// Octets of the messages that are there.
    len: u64,
    /// A pipe or device takes no more messages after a partial one, which cannot be cut off.
    is_torn: bool,
    /// Whether all of it is ours, so that its end may be cut off.
    is_ours: bool,
    /// Whether it is neither a pipe nor a device.
    is_regular: bool,
}

impl MessageFile {
    /// The name of a file for messages.
    pub fn name_of(path: &Path) -> String {
        if path == Path::new("-") { "standard output".to_owned() } else { path.display().to_string() }
    }

    /// Makes a file, or empties the one that is there; `-` is standard output. Of two exporters that are to write one file, such as that before
    /// and after a change of the graph, the second is refused; so is a file that packets are read from.
    ///
    /// # Errors
    /// If the file cannot be made, another process writes to it, or its name ends in a packing that is not written; if
    /// standard output was closed when the program began.
    pub fn create(path: &Path) -> io::Result<MessageFile> {
        if path == Path::new("-") {
            return MessageFile::standard_output();
        }
        Format::check_name(path, true).map_err(io::Error::other)?;
        let packer = Compression::from_name(path).map(Packer::new).transpose()?;
        if open_files::is_read(path) {
            return Err(io::Error::other("packets are read from it; name another file"));
        }
        let file = output_file::open(path, OpenOptions::new().write(true).create(true).truncate(false))?;
        let is_regular = file.metadata()?.is_file();
        if is_regular {
            // File systems without locks are written to all the same.
            if !output_file::lock(&file) {
                return Err(io::Error::other("another output or process writes to it; name another file"));
            }
            // A file that was emptied is written out when it is closed (ext4), which a new one need not be.
            if file.metadata()?.len() > 0 {
                file.set_len(0)?;
            }
        }
        Ok(MessageFile { file, packer, len: 0, is_torn: false, is_ours: true, is_regular })
    }

    /// Goes on with another file if `path` is no longer this one: it was renamed or removed, as logrotate does. Returns
    /// whether it is another one now; the file before is complete then.
    ///
    /// # Errors
    /// As [`create`](Self::create); then this file stays.
    pub fn reopen(&mut self, path: &Path) -> io::Result<bool> {
        use std::os::unix::fs::MetadataExt as _;
        let number = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        let own = number(self.file.metadata()?);
        if !self.is_ours || std::fs::metadata(path).is_ok_and(|there| number(there) == own) {
            return Ok(false);
        }
        *self = MessageFile::create(path)?;
        Ok(true)
    }

    fn standard_output() -> io::Result<MessageFile> {
        let file = tapline_sys::standard_output::file()?;
        Ok(MessageFile { file, packer: None, len: 0, is_torn: false, is_ours: false, is_regular: false })
    }

    /// Whether it is neither a pipe nor a device, and not standard output.
    pub fn is_regular(&self) -> bool {
        self.is_regular
    }

    /// Whether several messages may be added as one: what a failed write left of them can be cut off, and they are not
    /// packed one by one.
    pub(super) fn takes_several(&self) -> bool {
        self.is_regular && self.packer.is_none()
    }

    /// Adds a message, or several where the file takes them.
    ///
    /// # Errors
    /// If not all of it could be written; then none of it is there.
    pub fn add(&mut self, message: &[u8]) -> io::Result<()> {
        if self.is_torn {
            return Err(io::Error::other("the message before is there in part"));
        }
        let message = match &mut self.packer {
            Some(packer) => packer.pack(message)?,
            None => message,
        };
        let (written, len) = (self.file.write_all(message), message.len() as u64);
        match (&written, &mut self.packer) {
            (Ok(()), packer) => {
                self.len += len;
                packer.iter_mut().for_each(Packer::mark);
            }
            // A packed stream goes on from what was given to it.
            (Err(_), Some(_)) => {
                let _ = self.cut_back();
                self.is_torn = true;
            }
            (Err(_), None) => self.is_torn = !self.is_ours || self.cut_back().is_err(),
        }
        written
    }

    fn cut_back(&mut self) -> io::Result<()> {
        self.file.set_len(self.len)?;
        self.file.seek(SeekFrom::Start(self.len)).map(|_| ())
    }
}

/// Without its end a packed file has all messages, and readers that complain.
impl Drop for MessageFile {
    fn drop(&mut self) {
        if let Some(packer) = &self.packer {
            let _ = self.file.write_all(&packer.end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_has_one_writer() {
        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path().join("flows.ipfix");
        let mut first = MessageFile::create(&path).expect("it can be made");
        first.add(b"a message").expect("there is room");
        let refused = MessageFile::create(&path).err().expect("it is in use");
        assert!(refused.to_string().contains("another output or process"), "{refused}");
        assert_eq!(std::fs::read(&path).expect("it is there"), b"a message");
        drop(first);
        MessageFile::create(&path).expect("the lock is released");
        assert_eq!(std::fs::read(&path).expect("it is there"), b"");
    }

    #[test]
    fn a_file_that_was_renamed_is_opened_again() {
        let folder = tempfile::tempdir().expect("there is room");
        let [path, old] = ["flows.json", "flows.json.1"].map(|name| folder.path().join(name));
        let mut file = MessageFile::create(&path).expect("it can be made");
        file.add(b"before\n").expect("there is room");
        assert!(!file.reopen(&path).expect("it is there"), "it is the same");
        std::fs::rename(&path, &old).expect("it is there");
        file.add(b"meanwhile\n").expect("there is room");
        assert!(file.reopen(&path).expect("it can be made"));
        file.add(b"after\n").expect("there is room");
        assert_eq!(std::fs::read(&old).expect("it is there"), b"before\nmeanwhile\n");
        assert_eq!(std::fs::read(&path).expect("it is there"), b"after\n");
    }

    #[test]
    fn a_name_that_says_so_is_packed() {
        let folder = tempfile::tempdir().expect("there is room");
        for name in ["flows.json.gz", "flows.json.zst", "flows.json.lz4"] {
            let path = folder.path().join(name);
            let mut file = MessageFile::create(&path).expect("it can be made");
            for _ in 0..3 {
                file.add(b"a line\n").expect("there is room");
            }
            drop(file);
            let program = ["gzip", "zstd", "lz4"].into_iter().find(|program| name.ends_with(&program[..2]));
            let program = program.unwrap_or("zstd");
            let Ok(unpacked) = std::process::Command::new(program).arg("-dc").arg(&path).output() else {
                eprintln!("skipped: a_name_that_says_so_is_packed: no {program} here");
                continue;
            };
            assert!(unpacked.status.success(), "{name}: {unpacked:?}");
            assert_eq!(unpacked.stdout, b"a line\na line\na line\n", "{name}");
        }
        let refused =
            MessageFile::create(&folder.path().join("flows.json.xz")).err().expect("no such packing");
        assert!(refused.to_string().contains("are not written"), "{refused}");
    }

    #[test]
    fn a_pipe_takes_no_message_after_a_partial_one() {
        let mut full = MessageFile::create(Path::new("/dev/full")).expect("it is everywhere");
        assert!(full.add(b"a message").is_err());
        assert!(full.add(b"another").unwrap_err().to_string().contains("in part"));
    }
}
