//! The packets of a source as a schedule of frames: read ahead in a thread, sent by a [`Pacer`](super::Pacer).
//!
//! ```text
//! source --reader's thread: copy, rewrite, times--> channel of 64 batches --Replay, a Schedule--> Pacer
//!                    ^------------------- batches that were sent, to be freed -------'
//! ```
//!
//! `packets read = frames handed to the pacer + left` holds for every run.

mod reader;
mod timeline;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use tapline_packet::{Batch, Interface};
use tapline_source::{Error, Source};

pub use timeline::{ReplayRate, Timing};

use super::Schedule;
use super::rewrite::Rewrite;
use reader::{Prepared, Reader};

/// Batches that are ready ahead of the one being sent.
const AHEAD: usize = 64;

/// Opens the source once more, for a further pass that does not fit into memory.
pub type Reopen = Box<dyn FnMut() -> Result<Box<dyn Source>, Error> + Send>;

/// A source to be sent.
pub struct ReplaySource {
    /// Packets of the first pass.
    pub source: Box<dyn Source>,
    /// Opens it again.
    pub reopen: Reopen,
}

/// Settings of a replay.
#[derive(Clone, Debug)]
pub struct ReplaySettings {
    /// Departure times.
    pub timing: Timing,
    /// Addresses to replace.
    pub rewrite: Rewrite,
    /// Number of passes over the source, at least 1; `u64::MAX` repeats without end.
    pub passes: u64,
    /// Packets after which the replay ends, over all passes.
    pub packets_max: u64,
}

/// Counters of the reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayRead {
    /// Packets, over all passes.
    pub packets: u64,
    /// Passes that were read to their end.
    pub passes: u64,
    /// Packets whose times were before those of the packets before.
    pub backwards: u64,
}

/// Result of a replay.
#[derive(Debug)]
pub struct ReplayEnd {
    /// Counters of the reader.
    pub read: ReplayRead,
    /// Packets that were read ahead and never lent to the pacer.
    pub left: u64,
    /// The error at which reading ended, if any. Packets read before it were sent.
    pub failure: Option<Error>,
}

/// Whether the replay is to end: asked by the reader between batches.
type Stopped = Box<dyn Fn() -> bool + Send>;

/// Frames of a source that the reader has ready.
pub struct Replay {
    ahead: Receiver<Prepared>,
    /// Memory is freed in the thread that allocated it, not between two frames.
    used: Sender<Prepared>,
    current: Option<Prepared>,
    is_over: Arc<AtomicBool>,
    reader: JoinHandle<(ReplayRead, Option<Error>)>,
}

impl Replay {
    /// Starts the reader's thread. `is_stopped` ends it early.
    ///
    /// # Errors
    /// The thread cannot be made.
    pub fn start(
        opened: ReplaySource,
        settings: ReplaySettings,
        is_stopped: impl Fn() -> bool + Send + 'static,
    ) -> io::Result<Replay> {
        let (prepared, ahead) = mpsc::sync_channel(AHEAD);
        let (used, bin) = mpsc::channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let stopped = Box::new(move || is_stopped() || over.load(Ordering::Relaxed));
        let reader = Reader::new(opened, settings, stopped);
        let run = move || reader.run(&prepared, &bin);
        let reader = thread::Builder::new().name("reader".to_owned()).spawn(run)?;
        Ok(Replay { ahead, used, current: None, is_over, reader })
    }

    /// Ends the reader with its next batch, and counts the frames that it had ready.
    ///
    /// # Errors
    /// The reader's thread panicked.
    pub fn finish(self) -> Result<ReplayEnd, Error> {
        self.is_over.store(true, Ordering::Relaxed);
        let left = self.ahead.iter().map(|prepared| prepared.times.len() as u64).sum();
        let (read, failure) =
            self.reader.join().map_err(|_| Error::source("replay", "the reader's thread panicked"))?;
        Ok(ReplayEnd { read, left, failure })
    }
}

impl Schedule for Replay {
    fn advance(&mut self) -> Result<bool, Error> {
        if let Some(used) = self.current.take() {
            let _ = self.used.send(used);
        }
        self.current = self.ahead.recv().ok();
        Ok(self.current.is_some())
    }

    fn batch(&self) -> Batch<'_> {
        self.current.as_ref().map_or(Batch::empty(), |prepared| prepared.frames.batch())
    }

    fn times(&self) -> &[u64] {
        self.current.as_ref().map_or(&[], |prepared| &prepared.times)
    }

    fn interfaces(&self) -> &[Interface] {
        self.current.as_ref().map_or(&[], |prepared| &prepared.frames.interfaces)
    }
}
