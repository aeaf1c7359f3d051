//! Work on segments while the current one is written: syncs full ones, makes their indexes, and prepares a file for the
//! next one.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::progress::{Progress, add};
use super::reserve::Reserve;
use super::segments::Segments;
use super::writers::Target;
use super::writing::Event;
use crate::catalog::Catalog;
use crate::index::{Builder, Contents};
use crate::layout::{is_packed, named};
use crate::log::{self, History, Sealed};
use crate::packed::PackedPlace;
use crate::{packed, restore};

/// A segment that is full.
pub(super) struct Sealing {
    pub(super) number: u64,
    pub(super) target: Arc<Target>,
    pub(super) contents: Contents,
    /// Contents of the index; `None` for no index.
    pub(super) index: Option<Box<Builder>>,
    /// Whether it gives back the room that compression left; else it may do so later.
    pub(super) gives_room: bool,
}

/// Work for the thread.
enum Job {
    Seal(Sealing),
    /// The segments as they are now.
    Prepare(Segments),
    /// Expired ones of them.
    Retire(Segments, Vec<u64>),
}

/// Seals segments, and prepares the next one.
struct Work {
    catalog: Catalog,
    progress: Arc<Progress>,
    reserve: Reserve,
    /// The log as it was when the recording began.
    history: History,
    /// Where builders go back to.
    indexes: SyncSender<Box<Builder>>,
    events: Sender<Event>,
}

/// The thread that does.
pub(super) struct Sealer {
    work: Arc<Work>,
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Sealer {
    pub(super) fn start(
        catalog: Catalog,
        progress: Arc<Progress>,
        (reserve, history): (Reserve, History),
        indexes: SyncSender<Box<Builder>>,
        events: Sender<Event>,
    ) -> Sealer {
        let (jobs, received) = sync_channel(1);
        let work = Arc::new(Work { catalog, progress, reserve, history, indexes, events });
        let of_thread = Arc::clone(&work);
        let run = move || of_thread.run(&received);
        // Without a thread its caller does the work.
        let thread = std::thread::Builder::new().name("store-index".to_owned()).spawn(run).ok();
        Sealer { work, jobs: thread.is_some().then_some(jobs), thread }
    }

    /// Hands a segment over. One at a time: the one before is done.
    pub(super) fn seal(&self, sealing: Sealing) {
        match &self.jobs {
            Some(jobs) => drop(jobs.send(Job::Seal(sealing))),
            None => self.work.seal(sealing),
        }
    }

    /// Has a file made ready for the next segment; `false` if the thread has other work now.
    pub(super) fn prepare(&self, segments: &Segments) -> bool {
        let jobs = self.jobs.as_ref();
        jobs.is_some_and(|jobs| jobs.try_send(Job::Prepare(segments.clone())).is_ok())
    }

    /// Has expired segments given up; `false` if there is no thread for it. The log is synced for each.
    pub(super) fn retire(&self, segments: &Segments, expired: &[u64]) -> bool {
        let job = || Job::Retire(segments.clone(), expired.to_vec());
        self.jobs.as_ref().is_some_and(|jobs| jobs.try_send(job()).is_ok())
    }

    /// Returns a builder whose segment does not exist.
    pub(super) fn give_back(&self, mut index: Box<Builder>) {
        index.clear();
        let _ = self.work.indexes.try_send(index);
    }

    /// Waits for the last segment.
    pub(super) fn finish(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Sealer {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Work {
    fn run(&self, jobs: &Receiver<Job>) {
        jobs.iter().for_each(|job| match job {
            Job::Seal(sealing) => self.seal(sealing),
            Job::Prepare(segments) => {
                let _ = self.events.send(Event::Prepared(segments.prepare()));
            }
            Job::Retire(segments, expired) => {
                let _ = self.events.send(Event::Retired(segments.retire_all(&expired)));
            }
        });
    }

    /// Gives the room back that compressed chunks left, or returns their places if it stays for now.
    fn release_room(&self, sealing: &Sealing) -> Option<Arc<[PackedPlace]>> {
        let Sealing { number, target, contents: Contents { packed: places, .. }, gives_room, .. } = sealing;
        let path = self.catalog.segment_path(*number);
        if !is_packed(&path) {
            return None;
        }
        if !gives_room {
            return Some(places.as_slice().into());
        }
        if let Err(error) = packed::release_all(&target.file, places, self.catalog.segment_len()) {
            let path = named(&path);
            self.progress.tell(format!("{}: it takes its whole length on the disk: {error}", path.display()));
        }
        None
    }

    fn seal(&self, sealing: Sealing) {
        // An index must not tell of chunks that a power failure takes.
        if let Err(error) = sealing.target.file.sync_data() {
            let path = named(&self.catalog.segment_path(sealing.number));
            self.progress.tell(format!("{}: the disk does not keep it: {error}", path.display()));
        }
        let places = self.release_room(&sealing);
        let Sealing { number, mut contents, index, .. } = sealing;
        if let Some(mut index) = index {
            self.reserve.give();
            match restore::seal(&self.catalog, number, &mut contents, &mut index, &self.history) {
                Ok(len) => add(&self.progress.index_bytes, len),
                // It is searched by its chunks then.
                Err(error) => self.progress.tell(error.to_string()),
            }
            if let Err(error) = self.reserve.renew() {
                let path = self.catalog.paths.reserve();
                self.progress.tell(format!("{}: no room is kept for indexes: {error}", path.display()));
            }
            index.clear();
            let _ = self.indexes.try_send(index);
        }
        // A log that cannot be written keeps nothing else from being written.
        let _ = log::append(&self.catalog.paths, Sealed::of(&contents.summary).event(number));
        let _ = self.events.send(Event::Sealed(number, places));
    }
}
