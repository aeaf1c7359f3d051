//! Ranking in a thread of its own, so that a second with many flows holds up no packets.
//!
//! ```text
//! add     --part of 4,096 changes--> queue of 128 --> thread `view`: Rankings of a second
//! publish --Second------------------>                  |
//!            <-------------------------- empty parts   ViewFile::contribute
//!            queue full, of live traffic: the part is ranked here, and its tables go with the second
//! ```

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

use tapline_flow::FlowChange;

use crate::change::Changes;
use crate::dimension::{Dimension, Key, KeyValue};
use crate::ranking::Rankings;
use crate::table::Tables;
use crate::{Second, ViewFile};

/// Parts that wait: half a million changes, 55 MB where so many flows have packets in a second.
const QUEUE: usize = 128;
/// Empty parts that are kept.
const SPARE: usize = QUEUE;

/// A worker of a view: changes of flows go in, and the file gets the tables of each second.
#[derive(Debug)]
pub struct Ranker {
    file: Arc<ViewFile>,
    worker: usize,
    /// The part that is being filled.
    part: Changes,
    /// What is ranked in the thread of the caller.
    own: Option<Box<Rankings>>,
    thread: Option<Thread>,
    has_begun: bool,
}

/// The thread, and the ways to it and back.
#[derive(Debug)]
struct Thread {
    jobs: SyncSender<Job>,
    empty: Receiver<Changes>,
    handle: JoinHandle<()>,
}

/// Work for the thread.
#[derive(Debug)]
enum Job {
    Changes(Changes),
    Second(Box<Totals>),
}

/// The end of a second.
#[derive(Debug)]
struct Totals {
    second: Second,
    /// Names of interfaces by their numbers.
    interfaces: Vec<(u32, String)>,
    /// What was ranked elsewhere.
    own: Option<Tables>,
}

impl Ranker {
    /// A worker of a file. Its thread starts with the first changes, so that it has the rights of that time.
    pub fn new(file: Arc<ViewFile>) -> Ranker {
        let worker = file.join(1);
        Ranker { file, worker, part: Changes::new(), own: None, thread: None, has_begun: false }
    }

    /// Adds changes of the second. Those of files wait for room in the queue; those of live traffic that find none are
    /// ranked at once.
    pub fn add(&mut self, changes: &[FlowChange], is_live: bool) {
        for change in changes {
            self.part.push(change);
            if self.part.is_full() {
                self.send_part(is_live);
            }
        }
    }

    /// Ends the second: its totals, and the names of interfaces by their numbers.
    pub fn publish(&mut self, second: Second, interfaces: &[(u32, String)], is_live: bool) {
        if is_live {
            self.file.set_live();
        }
        self.send_part(is_live);
        let own = self.own.as_mut().map(|own| own.take());
        let totals = Box::new(Totals { second, interfaces: interfaces.to_vec(), own });
        // A queue that is full has parts of this second; there is one such message a second.
        let refused = match self.thread() {
            Some(thread) => thread.jobs.send(Job::Second(totals)).err().map(|error| error.0),
            None => Some(Job::Second(totals)),
        };
        if let Some(Job::Second(totals)) = refused {
            contribute(&self.file, self.worker, *totals, None);
        }
    }

    /// Publishes what was added, and leaves the file.
    pub fn finish(&mut self) {
        self.join();
        self.file.leave(self.worker);
    }

    /// The thread, which starts with the first call; `None` if there can be none.
    fn thread(&mut self) -> Option<&Thread> {
        if !self.has_begun {
            self.has_begun = true;
            self.thread = start(&self.file, self.worker).ok();
        }
        self.thread.as_ref()
    }

    fn send_part(&mut self, is_live: bool) {
        if self.part.is_empty() {
            return;
        }
        let Some(thread) = self.thread() else { return self.rank_here() };
        let part = thread.empty.try_recv().unwrap_or_else(|_| Changes::new());
        let jobs = thread.jobs.clone();
        let job = Job::Changes(std::mem::replace(&mut self.part, part));
        let sent = match is_live {
            true => jobs.try_send(job),
            false => jobs.send(job).map_err(|error| TrySendError::Disconnected(error.0)),
        };
        if let Err(TrySendError::Full(Job::Changes(part)) | TrySendError::Disconnected(Job::Changes(part))) =
            sent
        {
            self.part = part;
            self.rank_here();
        }
    }

    /// Ranks the part in the thread of the caller.
    fn rank_here(&mut self) {
        self.own.get_or_insert_default().add_all(&self.part);
        self.part.clear();
    }

    fn join(&mut self) {
        if let Some(Thread { jobs, handle, .. }) = self.thread.take() {
            drop(jobs);
            // A thread that panicked has said so.
            let _ = handle.join();
        }
    }
}

impl Drop for Ranker {
    /// Waits for the thread: the file is removed with its last user.
    fn drop(&mut self) {
        self.join();
    }
}

fn start(file: &Arc<ViewFile>, worker: usize) -> std::io::Result<Thread> {
    let (jobs, theirs) = sync_channel(QUEUE);
    let (back, empty) = sync_channel(SPARE);
    let file = Arc::clone(file);
    let work = move || rank(&file, worker, &theirs, &back);
    let handle = thread::Builder::new().name("view".to_owned()).spawn(work)?;
    Ok(Thread { jobs, empty, handle })
}

fn rank(file: &ViewFile, worker: usize, jobs: &Receiver<Job>, back: &SyncSender<Changes>) {
    let mut rankings = Rankings::default();
    for job in jobs {
        match job {
            Job::Changes(mut changes) => {
                rankings.add_all(&changes);
                changes.clear();
                // Without room for it, its memory is given back.
                let _ = back.try_send(changes);
            }
            Job::Second(totals) => contribute(file, worker, *totals, Some(rankings.take())),
        }
    }
}

/// Brings a second into the file, with the names of its interfaces.
fn contribute(file: &ViewFile, worker: usize, totals: Totals, tables: Option<Tables>) {
    let Totals { second, interfaces, own } = totals;
    let mut tables: Vec<Tables> = tables.into_iter().chain(own).collect();
    for row in tables.iter_mut().flat_map(|tables| &mut tables[Dimension::Interface as usize].rows) {
        let KeyValue::Interface(number) = row.key.value(Dimension::Interface) else { continue };
        let known = interfaces.iter().find(|(known, _)| *known == number);
        row.name = known.map_or(row.name, |(_, name)| Key::name(name));
    }
    file.contribute(worker, &second, &tables);
}
