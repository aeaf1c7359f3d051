//! The file: written once a second, by whichever worker is the last to bring its part.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::fence;
use std::sync::{Mutex, PoisonError};

use tapline_meters::{FileKind, RunFolder, SharedFile, run_folders, words_of};
use tapline_sys::{SharedWords, clock};

use crate::Error;
use crate::dimension::{Dimension, halves};
use crate::layout::{
    BYTE_ORDER, COPY_HEAD_WORDS, FILE_WORDS, HEADER_WORDS, MAGIC, OWN_MAX, ROW_WORDS, ROWS_MAX, SECOND_WORDS,
    SECONDS, TABLE_WORDS, VERSION, copy_at, header, second_at,
};
use crate::names::AnsweredNames;
use crate::second::Second;
use crate::table::{TableSum, Tables};

/// Files of views: for the user and the group of the meter.
pub(crate) const VIEWS: FileKind = FileKind { suffix: ".view", mode: 0o640 };

/// A view file and its writers: one worker or several, each with a part of every second.
#[derive(Debug)]
pub struct ViewFile {
    words: SharedWords,
    file: Option<SharedFile>,
    pending: Mutex<Pending>,
    /// Names of hosts, for all workers: the answer of DNS and the host's packets may be of different ones.
    names: Mutex<AnsweredNames>,
}

/// The second that is put together.
#[derive(Debug, Default)]
struct Pending {
    /// Workers that bring parts, and the number of the next one.
    workers: Vec<usize>,
    next: usize,
    /// Workers whose part is in.
    present: Vec<usize>,
    second: Second,
    sums: [TableSum; Dimension::ALL.len()],
    published: u64,
}

impl ViewFile {
    /// A file in the first folder that takes one, `title` in its header (128 bytes of it).
    ///
    /// # Errors
    /// [`Error::NoFolder`] with the problem of each folder.
    pub fn create(title: &str) -> Result<ViewFile, Error> {
        let mut tried = Vec::new();
        for folder in run_folders() {
            match ViewFile::create_in(&folder, title) {
                Ok(view) => return Ok(view),
                Err(error) => tried.push(error.to_string()),
            }
        }
        Err(Error::NoFolder { tried })
    }

    /// Creates the file in this folder, which is made if it does not exist.
    ///
    /// # Errors
    /// The first step that failed.
    pub fn create_in(folder: &RunFolder, title: &str) -> Result<ViewFile, Error> {
        // From here on a failure removes the file.
        let own = SharedFile::new(folder.create(VIEWS)?);
        // All of it is written, so that a full disk is an error here and not a signal later.
        let zeros = vec![0; FILE_WORDS * 8];
        own.file.write_all_at(&zeros, 0).map_err(Error::io("write to", &own.path))?;
        let words = SharedWords::map(&own.file, FILE_WORDS)
            .map_err(|source| tapline_meters::Error::Map { path: own.path.clone(), source })?;
        let view = ViewFile { words, file: Some(own), pending: Mutex::default(), names: Mutex::default() };
        view.write_header(title);
        Ok(view)
    }

    /// A view that only this process sees.
    pub fn private() -> ViewFile {
        let words = SharedWords::private(FILE_WORDS);
        let view = ViewFile { words, file: None, pending: Mutex::default(), names: Mutex::default() };
        view.write_header("");
        view
    }

    pub(crate) fn names(&self) -> &Mutex<AnsweredNames> {
        &self.names
    }

    fn write_header(&self, title: &str) {
        let set = |at: usize, value: u64| self.words[at].store(value, Relaxed);
        set(header::BYTE_ORDER, BYTE_ORDER);
        set(header::VERSION, VERSION);
        set(header::PROCESS, process::id().into());
        set(header::CREATED, clock::realtime_ns().max(0).unsigned_abs());
        set(header::TABLES, Dimension::ALL.len() as u64);
        set(header::ROWS, ROWS_MAX as u64);
        set(header::SECONDS, SECONDS as u64);
        set(header::ROW_WORDS, ROW_WORDS as u64);
        set(header::SECOND_WORDS, SECOND_WORDS as u64);
        set(header::SAMPLING, 1);
        let title: [u64; header::TITLE.end - header::TITLE.start] = words_of(title);
        header::TITLE.zip(title).for_each(|(at, word)| set(at, word));
        self.words[header::MAGIC].store(MAGIC, Release);
    }

    /// The file; `None` for a private view.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|own| own.path.as_path())
    }

    /// Leaves the file to its user alone: its group may not read the metered data.
    ///
    /// # Errors
    /// The system's error.
    pub fn make_private(&self) -> Result<(), Error> {
        let Some(own) = &self.file else { return Ok(()) };
        let mode = fs::Permissions::from_mode(0o600);
        own.file.set_permissions(mode).map_err(Error::io("set the mode of", &own.path))
    }

    /// Gives the file to another user and group.
    ///
    /// # Errors
    /// The system's error.
    pub fn give_to(&self, uid: u32, gid: u32) -> Result<(), Error> {
        let Some(own) = &self.file else { return Ok(()) };
        std::os::unix::fs::fchown(&own.file, Some(uid), Some(gid)).map_err(Error::io("give away", &own.path))
    }

    /// Announces one more worker. Returns the worker's number.
    pub fn join(&self) -> usize {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let worker = pending.next;
        pending.next += 1;
        pending.workers.push(worker);
        worker
    }

    /// Announces that a worker brings no more parts.
    pub fn leave(&self, worker: usize) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.workers.retain(|other| *other != worker);
        self.publish_if_complete(&mut pending);
    }

    /// Sets the sampling interval: 1 in this many packets or flows is metered. The default is 1.
    pub fn set_sampling(&self, interval: u64) {
        self.words[header::SAMPLING].store(interval, Relaxed);
    }

    /// Sets the addresses of this host, by which packets are sent or received; the file has [`OWN_MAX`] of them.
    pub fn set_own(&self, addresses: &[IpAddr]) {
        let words = addresses.iter().flat_map(|address| halves(*address));
        header::OWN.zip(words).for_each(|(at, word)| self.words[at].store(word, Relaxed));
        self.words[header::OWN_COUNT].store(addresses.len() as u64, Relaxed);
    }

    /// Whether packets are of live interfaces, as far as known.
    pub fn is_live(&self) -> bool {
        self.words[header::IS_LIVE].load(Relaxed) == 1
    }

    /// Marks the packets as those of live interfaces.
    pub fn set_live(&self) {
        self.words[header::IS_LIVE].store(1, Relaxed);
    }

    /// Adds a worker's part of a second. Once all workers have brought theirs the second is published, and also when
    /// one brings its next, so that a worker without packets holds up no other.
    pub fn contribute(&self, worker: usize, second: &Second, tables: &Tables) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.present.contains(&worker) {
            self.publish(&mut pending);
        }
        pending.present.push(worker);
        pending.second.merge(second);
        pending.sums.iter_mut().zip(tables).for_each(|(sum, table)| sum.add(table));
        self.publish_if_complete(&mut pending);
    }

    fn publish_if_complete(&self, pending: &mut Pending) {
        let is_complete = pending.workers.iter().all(|worker| pending.present.contains(worker));
        if is_complete && !pending.present.is_empty() {
            self.publish(pending);
        }
    }

    fn publish(&self, pending: &mut Pending) {
        let n = pending.published;
        let second = std::mem::take(&mut pending.second).to_words();
        let sums = std::mem::take(&mut pending.sums);
        pending.present.clear();
        pending.published += 1;
        self.write_second(n, &second);
        self.write_copy(n, &second, sums);
        self.words[header::PUBLISHED].store(n + 1, Release);
    }

    fn write_second(&self, n: u64, second: &[u64; SECOND_WORDS]) {
        let words = &self.words[second_at(n)..][..SECOND_WORDS];
        words[0].store(0, Relaxed);
        fence(Release);
        words[1..].iter().zip(&second[1..]).for_each(|(word, value)| word.store(*value, Relaxed));
        words[0].store(n + 1, Release);
    }

    fn write_copy(&self, n: u64, second: &[u64; SECOND_WORDS], sums: [TableSum; Dimension::ALL.len()]) {
        let copy = &self.words[copy_at(n)..];
        copy[0].store(2 * n + 1, Relaxed);
        fence(Release);
        copy[1].store(n, Relaxed);
        let of_second = &copy[COPY_HEAD_WORDS - SECOND_WORDS..COPY_HEAD_WORDS];
        of_second.iter().zip(second).for_each(|(word, value)| word.store(*value, Relaxed));
        of_second[0].store(n + 1, Relaxed);
        for (number, sum) in sums.into_iter().enumerate() {
            let table = &copy[COPY_HEAD_WORDS + number * TABLE_WORDS..][..TABLE_WORDS];
            sum.finish(ROWS_MAX).to_words().for_each(|(at, value)| table[at].store(value, Relaxed));
        }
        copy[0].store(2 * n + 2, Release);
    }
}

const _: () = assert!(HEADER_WORDS >= header::OWN.end && header::OWN.end - header::OWN.start == 2 * OWN_MAX);
