//! A view file of another process, while that writes it.
//!
//! The file is read, not mapped, so that it may shrink or vanish. A second and a copy each have a number that the
//! writer changes before and after: a reading counts if the number was the right one both times.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tapline_meters::{RunFolder, is_stale, meter_name, run_folders, text_of};
use tapline_sys::disk;

use crate::Error;
use crate::dimension::{Dimension, address};
use crate::layout::{
    BYTE_ORDER, COPY_HEAD_WORDS, COPY_WORDS, HEADER_WORDS, MAGIC, OWN_MAX, ROW_WORDS, ROWS_MAX, SECOND_WORDS,
    SECONDS, TABLE_WORDS, VERSION, copy_at, header, second_at,
};
use crate::second::Second;
use crate::table::Table;
use crate::writer::VIEWS;

/// Attempts at a copy that the writer changes meanwhile. It takes a reader that sleeps for a second each time.
const ATTEMPTS: usize = 8;

/// A process that writes a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Path of the view file.
    pub path: PathBuf,
    /// Process identifier.
    pub pid: u32,
    /// Command line of the process.
    pub title: String,
    /// When the file was made, in nanoseconds since 1970 UTC.
    pub created_ns: u64,
    /// Whether its packets are of live interfaces.
    pub is_live: bool,
    /// The sampling interval N: 1 packet in N is metered.
    pub sampling: u64,
    /// Addresses of the host, by which packets are sent or received; none if directions are not known.
    pub own: Vec<IpAddr>,
    /// Number of its addresses, of which the file has [`OWN_MAX`] at most.
    pub own_count: u64,
}

impl Process {
    /// The name of its meter, which stays the same over restarts.
    pub fn name(&self) -> String {
        meter_name(&self.title)
    }
}

/// An open view file.
#[derive(Debug)]
pub struct Reader {
    file: File,
    process: Process,
}

/// A second with its tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The number of the second, from 0.
    pub number: u64,
    /// Totals and account.
    pub second: Second,
    /// A table for each of [`Dimension::ALL`].
    pub tables: [Table; Dimension::ALL.len()],
}

impl Reading {
    /// The table of a dimension.
    pub fn table(&self, dimension: Dimension) -> &Table {
        &self.tables[dimension as usize]
    }
}

impl Reader {
    /// The processes that write a view now, and whose views we may read.
    pub fn list() -> Vec<Process> {
        run_folders().iter().flat_map(Reader::list_in).collect()
    }

    /// Lists the processes in one folder.
    pub fn list_in(folder: &RunFolder) -> Vec<Process> {
        if folder.check().is_err() {
            return Vec::new();
        }
        let paths = folder.sweep(VIEWS);
        paths.iter().filter_map(|path| Some(Reader::open(path).ok()?.process)).collect()
    }

    /// View files that this user has no right to read: those of meters of other users.
    pub fn refused() -> Vec<PathBuf> {
        let folders = run_folders().into_iter().filter(|folder| folder.check().is_ok());
        folders.flat_map(|folder| folder.refused(VIEWS)).collect()
    }

    /// Opens a view file, even one that a process left behind.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be opened, or if its process has ended and could only empty it; [`Error::Foreign`] if
    /// it is something else, or of another version or byte order.
    pub fn open(path: &Path) -> Result<Reader, Error> {
        // Opened without waiting, and looked at when open: a folder of others may swap a pipe in at any time.
        let file =
            disk::open_at_once(path, OpenOptions::new().read(true)).map_err(Error::io("open", path))?;
        if !file.metadata().map_err(Error::io("look at", path))?.is_file() {
            return Err(Error::Foreign { path: path.to_owned(), reason: "it is not a regular file".into() });
        }
        let head = read_words(&file, path, 0, HEADER_WORDS)?;
        let process = process(path, &head)?;
        Ok(Reader { file, process })
    }

    /// The process that writes it.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Whether the process still writes.
    pub fn is_alive(&self) -> bool {
        !is_stale(&self.file)
    }

    /// Reads the header again: whether packets are live is known with the first second.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn refresh(&mut self) -> Result<(), Error> {
        let path = self.process.path.clone();
        self.process = process(&path, &self.words(0, HEADER_WORDS)?)?;
        Ok(())
    }

    fn words(&self, first: usize, words: usize) -> Result<Vec<u64>, Error> {
        read_words(&self.file, &self.process.path, first, words)
    }

    fn word(&self, at: usize) -> Result<u64, Error> {
        Ok(self.words(at, 1)?[0])
    }

    /// Seconds published so far.
    ///
    /// # Errors
    /// [`Error::File`] if the file became shorter or cannot be read.
    pub fn published(&self) -> Result<u64, Error> {
        self.word(header::PUBLISHED)
    }

    /// The last second with its tables; `None` before the first, and if the writer was faster eight times in a row.
    ///
    /// # Errors
    /// As for [`published`](Self::published).
    pub fn last(&self) -> Result<Option<Reading>, Error> {
        for _ in 0..ATTEMPTS {
            let Some(number) = self.published()?.checked_sub(1) else { return Ok(None) };
            let (at, whole) = (copy_at(number), number.wrapping_mul(2).wrapping_add(2));
            if self.word(at)? != whole {
                continue;
            }
            let words = self.words(at, COPY_WORDS)?;
            if self.word(at)? == whole
                && let Some(second) = Second::of_words(&words[COPY_HEAD_WORDS - SECOND_WORDS..])
            {
                let table = |number: usize| {
                    Table::of_words(&words[COPY_HEAD_WORDS + number * TABLE_WORDS..][..TABLE_WORDS])
                };
                return Ok(Some(Reading { number, second, tables: std::array::from_fn(table) }));
            }
        }
        Ok(None)
    }

    /// The totals of the seconds from number `from` on, as far as the ring still has them, with their numbers; at most
    /// `most` of them, the latest.
    ///
    /// # Errors
    /// As for [`published`](Self::published).
    pub fn seconds(&self, from: u64, most: usize) -> Result<Vec<(u64, Second)>, Error> {
        let published = self.published()?;
        let most = most.min(SECONDS) as u64;
        let from = from.max(published.saturating_sub(most));
        let mut seconds = Vec::new();
        for number in from..published {
            let at = second_at(number);
            let words = self.words(at, SECOND_WORDS)?;
            let is_whole = words[0] == number + 1 && self.word(at)? == number + 1;
            seconds
                .extend(is_whole.then(|| Second::of_words(&words)).flatten().map(|second| (number, second)));
        }
        Ok(seconds)
    }
}

fn read_words(file: &File, path: &Path, first: usize, words: usize) -> Result<Vec<u64>, Error> {
    let mut bytes = vec![0; words * 8];
    file.read_exact_at(&mut bytes, (first * 8) as u64).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => tapline_meters::Error::Ended { path: path.to_owned() }.into(),
        _ => Error::io("read", path)(error),
    })?;
    let word = |bytes: &[u8]| u64::from_ne_bytes(std::array::from_fn(|at| bytes[at]));
    Ok(bytes.chunks_exact(8).map(word).collect())
}

fn own(words: &[u64]) -> Vec<IpAddr> {
    let count = words[header::OWN_COUNT].min(OWN_MAX as u64) as usize;
    words[header::OWN].chunks_exact(2).take(count).map(|half| address([half[0], half[1]])).collect()
}

/// Content of the header.
fn process(path: &Path, words: &[u64]) -> Result<Process, Error> {
    let foreign = |reason: String| Err(Error::Foreign { path: path.to_owned(), reason });
    if words[header::MAGIC] != MAGIC {
        return foreign("it does not begin with TAPLVIEW".into());
    }
    for (place, expected, name) in [
        (header::BYTE_ORDER, BYTE_ORDER, "byte order"),
        (header::VERSION, VERSION, "version"),
        (header::TABLES, Dimension::ALL.len() as u64, "number of tables"),
        (header::ROWS, ROWS_MAX as u64, "number of rows"),
        (header::SECONDS, SECONDS as u64, "number of seconds"),
        (header::ROW_WORDS, ROW_WORDS as u64, "number of words of a row"),
        (header::SECOND_WORDS, SECOND_WORDS as u64, "number of words of a second"),
    ] {
        if words[place] != expected {
            return foreign(format!("its {name} is {:#x}; this program knows {expected:#x}", words[place]));
        }
    }
    let Ok(pid) = u32::try_from(words[header::PROCESS]) else {
        return foreign(format!("{} at byte 24 is not a process", words[header::PROCESS]));
    };
    Ok(Process {
        path: path.to_owned(),
        pid,
        title: text_of(words[header::TITLE].iter().copied()),
        created_ns: words[header::CREATED],
        is_live: words[header::IS_LIVE] == 1,
        sampling: words[header::SAMPLING].max(1),
        own: own(words),
        own_count: words[header::OWN_COUNT],
    })
}
