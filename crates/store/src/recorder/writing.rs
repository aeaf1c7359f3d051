//! The thread that writes: chunks to segments, indexes beside them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};

use tapline_packet::Timestamp;

use super::segments::{Fresh, Segments, check_room, count_max};
use super::{RecorderSettings, Totals};
use crate::catalog::{Catalog, check_segment_len};
use crate::chunk::{self, ChunkBuilder, ChunkHead};
use crate::erase::rewrite;
use crate::error::Error;
use crate::index::{Builder, Contents};
use crate::layout::{PAGE_LEN, Paths, SEGMENT_LEN_DEFAULT, SLOT_LEN, filler, gap};
use crate::lock;
use crate::log::{self, now};
use crate::restore::{self, Restored};

/// How often old segments are looked for, in nanoseconds.
const EXPIRE_EVERY_NS: i64 = 60_000_000_000;

/// What the thread is to do.
pub(super) enum Job {
    /// Writes a chunk at its place in the segment.
    Chunk { buffer: Vec<u8>, head: Box<ChunkHead>, offset: u64 },
    /// The segment is full: its index, and the next one. Its first chunk comes.
    Seal { index: Builder },
    /// Has the disk keep what was written; gives up what is too old.
    Sync { now: Timestamp },
    /// The last one.
    Finish { index: Builder, now: Timestamp },
}

/// What others may see of the thread.
#[derive(Debug, Default)]
pub(super) struct Progress {
    written: AtomicU64,
    lost: AtomicU64,
    bytes: AtomicU64,
    index_bytes: AtomicU64,
    segments: AtomicU64,
    recycled: AtomicU64,
    news: Mutex<Vec<String>>,
}

impl Progress {
    pub(super) fn totals(&self) -> Totals {
        // Relaxed: counters on their own; the last look is after the thread was joined.
        Totals {
            written: self.written.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
            buffered: 0,
            bytes: self.bytes.load(Ordering::Relaxed),
            index_bytes: self.index_bytes.load(Ordering::Relaxed),
            segments: self.segments.load(Ordering::Relaxed),
            recycled: self.recycled.load(Ordering::Relaxed),
        }
    }

    pub(super) fn news(&self) -> Vec<String> {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn tell(&self, text: String) {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

/// A store that is ready to be written to.
pub(super) struct Begun {
    pub(super) writing: Writing,
    pub(super) segment_len: u64,
    /// Where the first chunk goes.
    pub(super) at: u64,
    /// Whether the directory was made.
    pub(super) is_made: bool,
    /// The index of the segment that goes on.
    pub(super) index: Builder,
    /// One for the next.
    pub(super) spare: Builder,
}

/// The state of the thread.
pub(super) struct Writing {
    segments: Segments,
    number: u64,
    file: File,
    path: PathBuf,
    /// Chunks of the segment.
    contents: Contents,
    /// The last chunk of the store: its number and hash.
    last: (u64, [u8; 32]),
    /// Bytes of the segment up to which fillers or chunks stand in the current slot.
    filled: u64,
    /// Where the last chunk of the segment ends.
    end: u64,
    /// Packets that could not be written since the last chunk that was.
    dropped: u64,
    /// Received and lost packets that a chunk told of which could not be written.
    untold: (u64, u64),
    is_unsynced: bool,
    /// The segment was sealed and there was no next one yet: chunks are for that.
    is_full: bool,
    keep_ns: Option<i64>,
    expired: Timestamp,
    progress: Arc<Progress>,
    snap_len: u32,
    /// Held as long as the store is recorded.
    _lock: File,
}

impl Writing {
    pub(super) fn open(root: &Path, settings: &RecorderSettings, now: Timestamp) -> Result<Begun, Error> {
        let paths = Paths::new(root);
        let mut is_made = false;
        let mut lock = None;
        let catalog = match Catalog::open(root) {
            Err(Error::NoStore { .. }) => {
                let segment_len = settings.segment_len.unwrap_or(SEGMENT_LEN_DEFAULT);
                // Before anything is made.
                check_segment_len(segment_len).map_err(Error::Setting)?;
                let count = count_max(settings.size, segment_len)?;
                check_room(root, count as u64 * segment_len)?;
                is_made = !root.exists();
                let folder = paths.segments();
                std::fs::create_dir_all(&folder).map_err(Error::file("make", &folder))?;
                // Of two recorders that make the same store one does.
                lock = Some(lock::take(&paths)?);
                match Catalog::open(root) {
                    Err(Error::NoStore { .. }) => Catalog::create(root, segment_len)?,
                    catalog => catalog?,
                }
            }
            catalog => catalog?,
        };
        if let Some(wanted) = settings.segment_len
            && wanted != catalog.segment_len()
        {
            return Err(Error::Setting(format!(
                "{}: its segments have {} bytes, not {wanted}: a store keeps the length that it was made with",
                root.display(),
                catalog.segment_len()
            )));
        }
        let lock = lock.map_or_else(|| lock::take(&paths), Ok)?;
        let segment_len = catalog.segment_len();
        let progress = Arc::new(Progress::default());
        if let chunks @ 1.. = rewrite::finish(&catalog)? {
            progress.tell(format!("{chunks} chunks of an erasure that was killed were written"));
        }
        let mut segments = Segments::open(catalog, settings.size)?;
        let mut builder = Builder::new(segment_len, settings.index);
        for number in segments.without_index() {
            let restored = Restored::read(segments.catalog(), number, &mut builder)?;
            restored.seal(segments.catalog(), number, &builder)?;
            progress.tell(format!("segment {number} had no index: made again from its chunks"));
            builder.clear();
        }
        let newest = segments.newest();
        let going_on =
            newest.map(|number| Restored::read(segments.catalog(), number, &mut builder)).transpose()?;
        // One in which no chunk is whole was begun when power failed, and begins again.
        let end = |found: &Restored| if found.contents.summary.chunks == 0 { 0 } else { found.end };
        let mut at = going_on.as_ref().map_or(segment_len, end);
        let last = match going_on.as_ref().map(|found| found.last) {
            Some(last) if last.0 > 0 => last,
            _ => segments.last_chunk().unwrap_or((0, [0; 32])),
        };
        let mut state = None;
        if let (Some(number), Some(restored)) = (newest, going_on) {
            if restored.damaged > 0 {
                let damaged = restored.damaged;
                progress.tell(format!("segment {number}: {damaged} damaged chunks or places were found"));
            }
            if at < segment_len {
                state = Some((number, segments.go_on(number, at)?, restored.contents));
            } else {
                restored.seal(segments.catalog(), number, &builder)?;
                builder.clear();
            }
        }
        let mut recycled = None;
        let (number, file, contents) = match state {
            Some(state) => state,
            None => {
                at = 0;
                let fresh = segments.next()?;
                recycled = fresh.recycled;
                (fresh.number, fresh.file, Contents::new(segment_len))
            }
        };
        let path = segments.catalog().segment_path(number);
        let writing = Writing {
            number,
            file,
            path,
            contents,
            last,
            filled: at,
            end: at,
            dropped: 0,
            untold: (0, 0),
            is_unsynced: false,
            is_full: false,
            keep_ns: settings.keep_ns,
            expired: now,
            progress,
            snap_len: settings.snap_len,
            _lock: lock,
            segments,
        };
        if let Some(old) = recycled {
            add(&writing.progress.recycled, 1);
            writing.note("recycled", old);
        }
        writing.note("begun", number);
        add(&writing.progress.segments, 1);
        Ok(Begun {
            writing,
            segment_len,
            at,
            is_made,
            index: builder,
            spare: Builder::new(segment_len, settings.index),
        })
    }

    pub(super) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// Works until the last job, or until no more can come.
    pub(super) fn run(
        mut self,
        jobs: &Receiver<Job>,
        buffers: &SyncSender<Vec<u8>>,
        indexes: &SyncSender<Builder>,
    ) {
        while let Ok(job) = jobs.recv() {
            match job {
                Job::Chunk { buffer, head, offset } => {
                    let buffer = self.chunk(buffer, *head, offset);
                    // The recorder may be gone.
                    let _ = buffers.try_send(buffer);
                }
                Job::Seal { mut index } => {
                    self.seal(&index);
                    index.clear();
                    let _ = indexes.try_send(index);
                    self.is_full = !self.next_segment();
                }
                Job::Sync { now } => self.sync(now),
                Job::Finish { index, now } => {
                    self.sync(now);
                    self.seal(&index);
                    return;
                }
            }
        }
        let _ = self.file.sync_data();
    }

    /// Writes a chunk; once more in the next segment if the disk fails here. Gives the buffer back.
    fn chunk(&mut self, mut buffer: Vec<u8>, mut head: ChunkHead, offset: u64) -> Vec<u8> {
        let packets = u64::from(head.packets);
        head.received = head.received.saturating_add(self.untold.0);
        head.lost = head.lost.saturating_add(self.untold.1);
        let mut written = match self.is_full {
            true => Err(io::Error::other("it is full")),
            false => self.write(&mut buffer, &mut head, offset),
        };
        if let Err(error) = &written {
            self.progress.tell(format!(
                "{}: {error}; the segment is left, and the recording goes on in the next",
                self.path.display()
            ));
            self.note("failed", self.number);
            buffer.truncate(head.len as usize);
            let has_moved = self.next_segment();
            self.is_full &= !has_moved;
            // Where there is no next segment, the chunks of this one must not be written over.
            if has_moved && offset > 0 {
                self.open_segment();
            }
            if !self.is_full {
                written = self.write(&mut buffer, &mut head, offset);
            }
        }
        match written {
            Ok(()) => {
                add(&self.progress.written, packets);
                add(&self.progress.bytes, u64::from(head.len));
                (self.dropped, self.untold) = (0, (0, 0));
            }
            Err(error) => {
                self.progress.tell(format!("{}: {error}; {packets} packets are lost", self.path.display()));
                add(&self.progress.lost, packets);
                self.dropped += packets;
                self.untold = (head.received, head.lost);
            }
        }
        // The buffer of a packet longer than a slot is not kept.
        if buffer.capacity() > 2 * SLOT_LEN { Vec::with_capacity(SLOT_LEN + PAGE_LEN) } else { buffer }
    }

    fn write(&mut self, buffer: &mut Vec<u8>, head: &mut ChunkHead, offset: u64) -> io::Result<()> {
        let (before, previous) = self.last;
        head.store = self.segments.catalog().id;
        head.segment = self.number;
        head.number = before + 1;
        head.previous = previous;
        head.dropped = self.dropped;
        let len = head.len as usize;
        let hash = chunk::seal(&mut buffer[..len], head);
        // The first chunk of a slot brings the fillers behind it along, in the same write.
        let end = offset + len as u64;
        let slot_end = end.next_multiple_of(SLOT_LEN as u64);
        if end > self.filled {
            let page = filler(PAGE_LEN);
            (0..(slot_end - end) / PAGE_LEN as u64).for_each(|_| buffer.extend_from_slice(&page));
        }
        self.leave_gap(offset)?;
        self.file.write_all_at(buffer, offset)?;
        self.end = end;
        self.filled = self.filled.max(slot_end);
        self.is_unsynced = true;
        self.last = (head.number, hash);
        self.take_in(head, offset, hash);
        Ok(())
    }

    /// Marks what lies between the last chunk and `offset` as gaps, none of which crosses a slot's end. There is something where
    /// chunks could not be written.
    fn leave_gap(&mut self, offset: u64) -> io::Result<()> {
        let slot_len = SLOT_LEN as u64;
        // Fillers stand in the rest of a slot that has a chunk.
        let slot_end = self.end.next_multiple_of(slot_len);
        let mut at = if slot_end <= offset { slot_end } else { self.end };
        while at < offset {
            let next = offset.min((at / slot_len + 1) * slot_len);
            let (head, tail) = gap((next - at) as usize);
            self.file.write_all_at(&head, at)?;
            self.file.write_all_at(&tail, next - tail.len() as u64)?;
            at = next;
        }
        Ok(())
    }

    /// Notes a chunk for the index.
    fn take_in(&mut self, head: &ChunkHead, offset: u64, hash: [u8; 32]) {
        self.contents.note(head, offset, hash);
    }

    /// Writes the index of the segment.
    fn seal(&mut self, index: &Builder) {
        let _ = self.file.sync_data();
        self.is_unsynced = false;
        let sealed = restore::seal(self.segments.catalog(), self.number, &mut self.contents, index);
        match sealed {
            Ok(len) => add(&self.progress.index_bytes, len),
            // It is searched by its chunks then.
            Err(error) => self.progress.tell(error.to_string()),
        }
        self.note("sealed", self.number);
    }

    /// Goes on in another file. `false`, said, if there is none: then the segment stays.
    fn next_segment(&mut self) -> bool {
        match self.segments.next() {
            Ok(Fresh { number, file, recycled }) => {
                if let Some(old) = recycled {
                    add(&self.progress.recycled, 1);
                    self.note("recycled", old);
                }
                (self.number, self.file) = (number, file);
                self.path = self.segments.catalog().segment_path(number);
                self.contents = Contents::new(self.segments.catalog().segment_len());
                (self.filled, self.end) = (0, 0);
                add(&self.progress.segments, 1);
                self.note("begun", number);
                true
            }
            Err(error) => {
                self.progress.tell(error.to_string());
                false
            }
        }
    }

    /// A chunk of one page at the start of a segment that takes the place of one that failed: files begin with a section.
    fn open_segment(&mut self) {
        let mut builder = ChunkBuilder::new(self.snap_len);
        builder.begin(Vec::new(), PAGE_LEN, &[]);
        let (mut buffer, mut head) = builder.finish(&[], now());
        if let Err(error) = self.write(&mut buffer, &mut head, 0) {
            self.progress.tell(format!("{}: {error}", self.path.display()));
        }
    }

    fn sync(&mut self, now: Timestamp) {
        if std::mem::take(&mut self.is_unsynced)
            && let Err(error) = self.file.sync_data()
        {
            self.progress.tell(format!("{}: the disk does not keep it: {error}", self.path.display()));
        }
        let Some(keep_ns) = self.keep_ns else { return };
        if !(0..EXPIRE_EVERY_NS).contains(&now.since(self.expired)) {
            self.expired = now;
            match self.segments.expire(now.as_nanos().saturating_sub(keep_ns)) {
                Ok(expired) => expired.into_iter().for_each(|number| self.note("expired", number)),
                Err(error) => self.progress.tell(error.to_string()),
            }
        }
    }

    /// A line in the store's log. A log that cannot be written keeps nothing else from being written.
    fn note(&self, event: &str, segment: u64) {
        let event = serde_json::json!({ "event": event, "segment": segment });
        let _ = log::append(&self.segments.catalog().paths, event);
    }
}

#[cfg(test)]
mod tests {
    use tapline_packet::{Interface, LinkType, Meta, Packet};

    use super::*;
    use crate::check::verify;

    fn chunk_of(offset: u64, packets: u32) -> (Vec<u8>, ChunkHead) {
        let interfaces = [Interface::new("far0", LinkType::ETHERNET)];
        let mut builder = ChunkBuilder::new(65_535);
        builder.begin(Vec::new(), SLOT_LEN, &interfaces);
        let meta = Meta { wire_len: 60, ..Meta::default() };
        (0..packets).for_each(|_| builder.push(&Packet { data: &[0; 60], meta: &meta }, &interfaces[0], &[]));
        let (buffer, mut head) = builder.finish(&[], Timestamp::EPOCH);
        head.slot = (offset / SLOT_LEN as u64) as u32;
        (buffer, head)
    }

    fn packets(root: &Path) -> u64 {
        let verified = verify(&Catalog::open(root).unwrap(), &mut |_, _| true).unwrap();
        assert_eq!(verified.findings, Vec::new());
        verified.packets
    }

    #[test]
    fn chunks_are_found_behind_a_write_that_failed() {
        let folder = tempfile::tempdir().unwrap();
        let settings =
            RecorderSettings { size: 16 << 20, segment_len: Some(4 << 20), ..RecorderSettings::default() };
        let mut writing = Writing::open(folder.path(), &settings, Timestamp::EPOCH).unwrap().writing;
        let put = |writing: &mut Writing, offset: u64| {
            let (buffer, head) = chunk_of(offset, 1);
            writing.chunk(buffer, head, offset);
        };
        put(&mut writing, 0);
        // A file that cannot be written stands for a disk that fails.
        writing.file = File::open(&writing.path).unwrap();
        put(&mut writing, 2 * SLOT_LEN as u64 + 8 * PAGE_LEN as u64);
        assert_eq!(packets(folder.path()), 2, "{:?}", writing.progress.news());
        // Once more, with the segment after it failing too: chunks of this slot are then missing before the next one.
        writing.end = 2 * SLOT_LEN as u64 + 9 * PAGE_LEN as u64;
        put(&mut writing, 2 * SLOT_LEN as u64 + 12 * PAGE_LEN as u64);
        put(&mut writing, 3 * SLOT_LEN as u64);
        assert_eq!(packets(folder.path()), 4, "{:?}", writing.progress.news());
        drop(writing);
        let going_on = Writing::open(folder.path(), &settings, Timestamp::EPOCH).unwrap().writing;
        assert_eq!(going_on.last.0, 5);
    }
}
