//! Threads that write: each has one write on its way to the disk, so that several are.
//!
//! ```text
//! store thread --Request--> writer --pwrite: past the page cache, or through it--> Done --> store thread
//! ```

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tapline_sys::disk;

use super::writing::Event;
use crate::chunk::ChunkBuffer;
use crate::layout::{PAGE_LEN, SLOT_LEN, filler, filler_frame};

/// Chunks that are on their way to the disk at once, at most.
pub(crate) const WRITES_MAX: usize = 4;
/// Writes on their way to a disk that takes them from our memory: disks with queues are faster with several.
const DIRECT_DEPTH: usize = WRITES_MAX;
/// Writes on their way to the page cache: each is a copy, which takes a processor.
const CACHED_DEPTH: usize = 1;

/// A segment's file.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) file: File,
    /// Second descriptor of the file that bypasses the page cache; `None` if the file system cannot, or it is not wanted.
    direct: Option<File>,
}

impl Target {
    pub(super) fn open(path: &Path, is_direct: bool) -> io::Result<Target> {
        let file = disk::open_regular(path, OpenOptions::new().read(true).write(true))?;
        let direct = if is_direct { disk::open_direct(path, &file) } else { None };
        Ok(Target { file, direct })
    }

    /// A file that accepts no writes.
    #[cfg(test)]
    pub(super) fn read_only(path: &Path) -> Target {
        Target { file: File::open(path).expect("it is there"), direct: None }
    }

    /// Whether the file system accepts writes that bypass the page cache. Tries it with the page for the next chunk,
    /// whose contents stay the same.
    pub(super) fn takes_direct(&self, unused: u64, is_packed: bool) -> bool {
        let Some(direct) = &self.direct else { return false };
        let mut page = ChunkBuffer::with_capacity(PAGE_LEN);
        page.begin();
        let in_slot = (unused % SLOT_LEN as u64) as usize;
        let len = if in_slot == 0 { SLOT_LEN } else { PAGE_LEN };
        let bytes = if is_packed { filler_frame(SLOT_LEN - in_slot) } else { filler(len) };
        page.tail().extend_from_slice(&bytes[..PAGE_LEN]);
        direct.write_all_at(page.bytes(), unused).is_ok()
    }

    /// Writes whole pages at a multiple of the page. Before them the place behind the chunk becomes a filler, in a
    /// segment whose chunks are compressed: a kill between both leaves no place that is neither.
    pub(super) fn write(
        &self,
        buffer: &ChunkBuffer,
        offset: u64,
        filler: Option<Range<u64>>,
    ) -> io::Result<()> {
        if let Some(Range { start, end }) = filler {
            self.file.write_all_at(&filler_frame((end - start) as usize), start)?;
        }
        match self.direct.as_ref().filter(|_| buffer.is_aligned()) {
            Some(direct) => direct.write_all_at(buffer.bytes(), offset),
            None => self.file.write_all_at(buffer.bytes(), offset),
        }
    }
}

/// A write that is to be done.
pub(super) struct Request {
    pub(super) target: Arc<Target>,
    pub(super) buffer: ChunkBuffer,
    pub(super) offset: u64,
    /// Place behind the chunk that becomes a filler.
    pub(super) filler: Option<Range<u64>>,
    /// Number of the request, which the answer repeats.
    pub(super) ticket: u64,
}

/// The threads. They end when this is dropped.
pub(super) struct Writers {
    requests: Option<SyncSender<Request>>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    /// Starts as many threads as the file system can use. If a thread cannot be started there are none.
    pub(super) fn start(is_direct: bool, events: &Sender<Event>) -> Writers {
        let depth = if is_direct { DIRECT_DEPTH } else { CACHED_DEPTH };
        let (requests, received) = sync_channel(depth);
        let received = Arc::new(Mutex::new(received));
        let spawn = |_| {
            let (received, events) = (Arc::clone(&received), events.clone());
            let write = move || write_all(&received, &events);
            std::thread::Builder::new().name("store-write".to_owned()).spawn(write).ok()
        };
        let threads: Vec<JoinHandle<()>> = (0..depth).filter_map(spawn).collect();
        Writers { requests: Some(requests), threads }
    }

    /// Writes that may be on their way at once.
    pub(super) fn depth(&self) -> usize {
        self.threads.len()
    }

    /// Hands a write over; fewer than [`depth`](Self::depth) are on their way.
    pub(super) fn submit(&self, request: Request) {
        // The threads are there as long as this is.
        let _ = self.requests.as_ref().map(|requests| requests.send(request));
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.requests = None;
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

fn write_all(received: &Mutex<Receiver<Request>>, events: &Sender<Event>) {
    loop {
        // One waits for the next request, the others for the lock.
        let request = received.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Request { target, buffer, offset, filler, ticket }) = request else { return };
        let result = target.write(&buffer, offset, filler);
        if events.send(Event::Written { ticket, buffer, result }).is_err() {
            return;
        }
    }
}
