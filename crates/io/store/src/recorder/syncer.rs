//! The thread that syncs written data, while more is written.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::progress::Progress;
use super::writers::Target;
use super::writing::Event;

/// A segment's file, and its name for messages.
type SyncTarget = (Arc<Target>, PathBuf);

/// The thread. It ends when this is dropped.
pub(super) struct Syncer {
    progress: Arc<Progress>,
    wanted: Option<SyncSender<SyncTarget>>,
    thread: Option<JoinHandle<()>>,
    is_busy: bool,
}

impl Syncer {
    pub(super) fn start(progress: Arc<Progress>, events: Sender<Event>) -> Syncer {
        let (wanted, received) = sync_channel(1);
        let of_thread = Arc::clone(&progress);
        let run = move || run(&received, &of_thread, &events);
        // Without a thread its caller does the work.
        let thread = std::thread::Builder::new().name("store-sync".to_owned()).spawn(run).ok();
        Syncer { progress, wanted: thread.is_some().then_some(wanted), thread, is_busy: false }
    }

    /// Whether it can be asked.
    pub(super) fn is_idle(&self) -> bool {
        !self.is_busy
    }

    /// Has the disk keep a file; [`Event::Synced`] comes then.
    pub(super) fn sync(&mut self, target: Arc<Target>, path: PathBuf) {
        match &self.wanted {
            Some(wanted) => self.is_busy = wanted.send((target, path)).is_ok(),
            None => sync(&target, &path, &self.progress),
        }
    }

    /// The event came.
    pub(super) fn end(&mut self) {
        self.is_busy = false;
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.wanted = None;
        self.thread.take().map(JoinHandle::join);
    }
}

fn run(wanted: &Receiver<SyncTarget>, progress: &Progress, events: &Sender<Event>) {
    for (target, path) in wanted {
        sync(&target, &path, progress);
        if events.send(Event::Synced).is_err() {
            return;
        }
    }
}

fn sync(target: &Target, path: &std::path::Path, progress: &Progress) {
    if let Err(error) = target.file.sync_data() {
        progress.tell(format!("{}: the disk does not keep it: {error}", path.display()));
    }
}
