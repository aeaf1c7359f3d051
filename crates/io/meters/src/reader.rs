//! The counters of another process, while it runs.
//!
//! The file is read, not mapped, so that it may shrink or vanish. A slot can be reused while it is read, so
//! everything is read twice: the first reading counts if the second finds the same generation after it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tapline_sys::disk;

use crate::Error;
use crate::clock::ClockKind;
use crate::layout::{
    BYTE_ORDER, MAGIC, SLOT_LEN, SLOT_WORDS, SLOTS_MAX, SlotState, VERSION, header, slot, text_of,
};
use crate::place::{self, RunFolder};
use crate::snapshot::Snapshot;

/// A process that counts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Process {
    /// Path of the file of meters.
    pub path: PathBuf,
    /// Process identifier.
    pub pid: u32,
    /// Command line of the process.
    pub title: String,
    /// When it began to count, in nanoseconds since 1970 UTC.
    pub created_ns: u64,
    /// Counter behind its cycles; `None` for a kind that this version does not know.
    pub clock: Option<ClockKind>,
    /// Ticks in a second.
    pub frequency_hz: u64,
    /// Cost of one reading of its clock, in ticks.
    pub read_ticks: f64,
}

/// An open file of meters.
#[derive(Debug)]
pub struct Reader {
    file: File,
    process: Process,
}

type Words = [u64; SLOT_WORDS];

impl Reader {
    /// The processes that count now, in the folders that [`Meters::create`](crate::Meters::create) uses; of several
    /// users if they all use `/run/tapline`. Files that processes left behind are removed, as far as we may.
    pub fn list() -> Vec<Process> {
        place::run_folders().iter().flat_map(list).collect()
    }

    /// Lists the processes in one folder.
    pub fn list_in(folder: &Path) -> Vec<Process> {
        list(&RunFolder::of(folder))
    }

    /// Opens a file of meters, even one that a process left behind.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be opened; [`Error::Foreign`] if it is something else, or of another version or byte
    /// order; [`Error::Ended`] if its process has ended and could only empty it.
    pub fn open(path: &Path) -> Result<Reader, Error> {
        // Opened without waiting, and looked at when open: a folder of others may swap a pipe in at any time.
        let file =
            disk::open_at_once(path, OpenOptions::new().read(true)).map_err(Error::io("open", path))?;
        if !file.metadata().map_err(Error::io("look at", path))?.is_file() {
            return Err(Error::Foreign { path: path.to_owned(), reason: "it is not a regular file".into() });
        }
        let process = process(path, &read_slots(&file, path, 0, 1)?[0])?;
        Ok(Reader { file, process })
    }

    /// The process that counts.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Whether the process still counts.
    pub fn is_alive(&self) -> bool {
        !place::is_stale(&self.file)
    }

    /// All counters as they are now: those in use and those that retired, in the order of their slots.
    ///
    /// # Errors
    /// [`Error::Ended`] if the file became shorter; [`Error::Io`] if it cannot be read.
    pub fn snapshot(&self) -> Result<Vec<Snapshot>, Error> {
        let path = &self.process.path;
        let head = read_slots(&self.file, path, 0, 1)?[0];
        let used = head[header::USED].min(SLOTS_MAX as u64) as usize;
        let first = read_slots(&self.file, path, 1, used)?;
        let second = read_slots(&self.file, path, 1, used)?;
        Ok(first.iter().zip(&second).filter_map(|(first, second)| settled(first, second)).collect())
    }
}

/// The slot's content, if both readings are of one generation. A slot that changed owner is left out until the next
/// reading.
fn settled(first: &Words, second: &Words) -> Option<Snapshot> {
    let snapshot = Snapshot::of_words(first).filter(|snapshot| snapshot.state != SlotState::Free)?;
    let again = Snapshot::of_words(second).filter(|snapshot| snapshot.state != SlotState::Free)?;
    (snapshot.generation == again.generation).then_some(snapshot)
}

fn list(place: &RunFolder) -> Vec<Process> {
    if place.check().is_err() {
        return Vec::new();
    }
    let paths = place.sweep(place::METERS);
    paths.iter().filter_map(|path| Some(Reader::open(path).ok()?.process)).collect()
}

/// Content of the header.
fn process(path: &Path, words: &Words) -> Result<Process, Error> {
    let foreign = |reason: String| Err(Error::Foreign { path: path.to_owned(), reason });
    let is = |place: usize, value: u64| words[place] == value;
    if !is(header::MAGIC, MAGIC) {
        return foreign("it does not begin with TAPMETER".into());
    }
    if is(header::BYTE_ORDER, BYTE_ORDER.swap_bytes()) {
        return foreign("it was written on a machine of the other byte order".into());
    }
    if !is(header::BYTE_ORDER, BYTE_ORDER) {
        return foreign(format!("the byte order at byte 8 is {:#018x}", words[header::BYTE_ORDER]));
    }
    if !is(header::VERSION, VERSION) {
        let version = words[header::VERSION];
        return foreign(format!("it has version {version}; this program knows version {VERSION}"));
    }
    if !is(header::SLOTS, SLOTS_MAX as u64) || !is(header::SLOT_LEN, SLOT_LEN as u64) {
        let (slots, len) = (words[header::SLOTS], words[header::SLOT_LEN]);
        return foreign(format!("it has {slots} slots of {len} bytes, not {SLOTS_MAX} of {SLOT_LEN}"));
    }
    let Ok(pid) = u32::try_from(words[header::PROCESS]) else {
        return foreign(format!("{} at byte 24 is not a process", words[header::PROCESS]));
    };
    Ok(Process {
        path: path.to_owned(),
        pid,
        title: text_of(words[header::TITLE].iter().copied()),
        created_ns: words[header::CREATED],
        clock: ClockKind::from_number(words[header::CLOCK]),
        frequency_hz: words[header::FREQUENCY],
        read_ticks: words[header::READ_COST] as f64 / 1000.0,
    })
}

/// `count` stretches of a slot's length, the header being number 0.
fn read_slots(file: &File, path: &Path, first: usize, count: usize) -> Result<Vec<Words>, Error> {
    let mut bytes = vec![0; count * SLOT_LEN];
    file.read_exact_at(&mut bytes, (first * SLOT_LEN) as u64).map_err(|source| match source.kind() {
        io::ErrorKind::UnexpectedEof => Error::Ended { path: path.to_owned() },
        _ => Error::io("read", path)(source),
    })?;
    Ok(bytes.chunks_exact(SLOT_LEN).map(words_in).collect())
}

fn words_in(bytes: &[u8]) -> Words {
    let mut words = [0; SLOT_WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    words
}

const _: () = assert!(slot::TAG == 0, "the generation is what a slot begins with");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Kind, Tag};

    #[test]
    fn a_slot_that_changed_hands_is_left_out() {
        let words = |state, generation| {
            let mut words = [0; SLOT_WORDS];
            words[slot::TAG] = Tag { state, kind: Kind::Stage, worker: 0, generation }.word();
            words
        };
        let used = words(SlotState::Used, 1);
        assert!(settled(&used, &used).is_some());
        assert!(settled(&used, &words(SlotState::Retired, 1)).is_some());
        assert!(settled(&used, &words(SlotState::Used, 2)).is_none());
        assert!(settled(&used, &words(SlotState::Free, 2)).is_none());
        assert!(settled(&words(SlotState::Free, 0), &used).is_none());
        let mut damaged = used;
        damaged[slot::TAG] = 0xff;
        assert!(settled(&damaged, &damaged).is_none());
    }
}
