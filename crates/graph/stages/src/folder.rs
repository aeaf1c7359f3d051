//! A folder that a stage fills with files, whose names are its own: none comes from the wire.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tapline_sys::output_file;

/// The file in which each line describes one thing that was written.
const INDEX: &str = "index.jsonl";

/// A folder, with an index of lines.
pub(super) struct Folder {
    path: PathBuf,
    index: Option<File>,
    /// Bytes that the index may still take.
    room: u64,
    /// Lines for which the index was full.
    not_indexed: u64,
}

impl Folder {
    /// Takes a folder, which is made unless it is there, with an index of `index_max` bytes at most. Others than its user
    /// and group may not look into it.
    ///
    /// # Errors
    /// The folder cannot be made, or has the index of another run.
    pub(super) fn make(path: &Path, index_max: u64) -> Result<Folder, String> {
        let why = |error: io::Error| format!("{}: {error}", path.display());
        DirBuilder::new().recursive(true).mode(0o750).create(path).map_err(why)?;
        if path.join(INDEX).exists() {
            return Err(format!(
                "{} has files of another run: name another folder, or empty it",
                path.display()
            ));
        }
        Ok(Folder { path: path.to_owned(), index: None, room: index_max, not_indexed: 0 })
    }

    /// The folder, for messages.
    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The place of a file in it.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Makes a file that is not there yet.
    ///
    /// # Errors
    /// The file is there, or cannot be made.
    pub(super) fn create(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).mode(0o640).open(self.path(name))
    }

    /// Adds a line to the index, if there is room.
    ///
    /// # Errors
    /// As for [`create`](Self::create), and those of writing.
    pub(super) fn log(&mut self, line: &Value) -> io::Result<()> {
        let line = format!("{line}\n");
        match self.room.checked_sub(line.len() as u64).filter(|_| self.not_indexed == 0) {
            Some(room) => {
                self.room = room;
                self.write(&line)
            }
            None => {
                self.not_indexed += 1;
                Ok(())
            }
        }
    }

    /// Ends the index: its last line counts those for which it was full.
    ///
    /// # Errors
    /// As for [`log`](Self::log).
    pub(super) fn end(&mut self) -> io::Result<()> {
        match self.not_indexed {
            0 => Ok(()),
            count => self.write(&format!("{}\n", json!({ "not_indexed": count }))),
        }
    }

    /// Lines for which the index was full.
    pub(super) fn not_indexed(&self) -> u64 {
        self.not_indexed
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        if self.index.is_none() {
            self.index = Some(self.create(INDEX)?);
        }
        self.index.as_mut().map_or(Ok(()), |index| index.write_all(line.as_bytes()))
    }
}

/// Opens a file that was made before, to go on.
pub(super) fn appending(path: &Path) -> io::Result<File> {
    output_file::open(path, OpenOptions::new().append(true))
}
