//! Ranking in a thread of its own: the meter's thread hands journals over and waits for nothing.
//!
//! ```text
//! add     --journal--> queue of 512 --> thread `view`: Mirror, what each flow counted --> Rankings
//! publish --Second---->                                 end of the second: ViewFile::contribute
//!
//! queue full, of live traffic: packets are not ranked until the second has ended and the queue is nearly empty;
//! they are among the others, and each row may have had as much more
//! ```

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};

use tapline_flow::{Flow, Journal, KnownField};

use crate::change::CollectedFlow;
use crate::dimension::{Dimension, Key, KeyValue};
use crate::layout::OWN_MAX;
use crate::mirror::Mirror;
use crate::names::lock;
use crate::rankings::{Directions, Rankings};
use crate::table::Amount;
use crate::{Second, ViewFile};

/// Parts that wait: a million packets of known flows, 8 MiB. Where each packet begins a flow they are half as many, and
/// some 60 MB, with names as long as these are.
const QUEUE: usize = 512;
/// Parts of files that wait: their meter waits for room, and loses nothing. So few stay in the cache.
const QUEUE_OF_FILES: usize = 32;
/// Room behind these for the ends of seconds.
const QUEUE_OF_SECONDS: usize = 8;
/// Parts for which the thread is woken, unless a second ends: a system call of the meter's thread. As many are still in
/// the second-level cache.
const WAKE_AT: usize = 16;
/// Seconds after which the addresses of this host are read again: they may change, as those of IPv6 do each day.
const OWN_SECONDS: u64 = 10;
/// Collected flows of a part.
const COLLECTED_MAX: usize = 1024;

/// A worker of a view: the journals of its meter go in, and the file gets the tables of each second.
#[derive(Debug)]
pub struct Ranker {
    file: Arc<ViewFile>,
    worker: usize,
    /// Amount that is not ranked in this second.
    unranked: Amount,
    /// Since a part was missed, the flows of slots are not known until the meter describes them again.
    progress: Progress,
    thread: Option<Thread>,
    has_begun: bool,
    own: ReadOwn,
}

/// Reads the addresses of this host. `None` if the system does not report them now.
pub type ReadOwn = fn() -> Option<Vec<IpAddr>>;

/// The thread, and the way to it.
#[derive(Debug)]
struct Thread {
    jobs: SyncSender<Job>,
    /// Parts in the queue.
    waiting: Arc<AtomicUsize>,
    handle: JoinHandle<()>,
}

/// Whether journals are of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Good,
    /// A part of this second was missed.
    Missed,
    /// The second has ended. Flows are wanted again, once the queue is nearly empty: to describe them costs the
    /// meter time, and is done once a second at most.
    Waiting,
}

/// Work for the thread.
#[derive(Debug)]
enum Job {
    Journal(Arc<Journal>),
    Collected(Vec<CollectedFlow>),
    Second(Box<Totals>),
}

/// The end of a second.
#[derive(Debug)]
struct Totals {
    second: Second,
    /// Names of interfaces by their numbers.
    interfaces: Vec<(u32, String)>,
    unranked: Amount,
}

impl Ranker {
    /// A worker of a file. Its thread starts with the first part, so that it has the rights of that time.
    pub fn new(file: Arc<ViewFile>) -> Ranker {
        let worker = file.join();
        Ranker {
            file,
            worker,
            unranked: Amount::default(),
            progress: Progress::Good,
            thread: None,
            has_begun: false,
            own: || None,
        }
    }

    /// Separates packets of live interfaces that this host sends and receives, by its addresses.
    #[must_use]
    pub fn with_own(mut self, own: ReadOwn) -> Ranker {
        self.own = own;
        self
    }

    /// Adds a journal of the meter. A journal of files waits while the queue is full. One of live traffic is not
    /// ranked then, nor are those behind it: their packets are among the others of each table. Returns whether
    /// journals are of use again: the meter must then describe its flows once more, in those from here on.
    pub fn add(&mut self, journal: &Arc<Journal>, is_live: bool) -> bool {
        if journal.is_empty() {
            return false;
        }
        if self.progress == Progress::Good {
            if self.send(Job::Journal(Arc::clone(journal)), is_live) {
                return false;
            }
            self.progress = Progress::Missed;
        }
        let (packets, bytes) = journal.sum();
        self.unranked.add(Amount { packets, bytes });
        let is_free = self.thread.as_ref().is_some_and(|thread| thread.waiting.load(Relaxed) < QUEUE / 8);
        let is_wanted = self.progress == Progress::Waiting && is_free;
        if is_wanted {
            self.progress = Progress::Good;
        }
        is_wanted
    }

    /// Adds flows that other exporters metered, by the same rule; each part of them is complete. Flows whose
    /// addresses are not known have no place in the tables: they are among the others.
    pub fn add_collected(&mut self, flows: &[Flow], is_live: bool) {
        for flows in flows.chunks(COLLECTED_MAX) {
            let has_addresses = |flow: &Flow| (0..2).all(|side| flow.knows(KnownField::Address, side));
            for flow in flows.iter().filter(|flow| !has_addresses(flow)) {
                self.unranked.add(CollectedFlow::new(flow).amount());
            }
            let flows: Vec<CollectedFlow> =
                flows.iter().filter(|flow| has_addresses(flow)).map(CollectedFlow::new).collect();
            let mut amount = Amount::default();
            flows.iter().for_each(|flow| amount.add(flow.amount()));
            if !self.send(Job::Collected(flows), is_live) {
                self.unranked.add(amount);
            }
        }
    }

    /// Ends the second: its totals, the names of interfaces by their numbers, and the sampling interval.
    pub fn publish(
        &mut self,
        second: Second,
        (interfaces, sampling): (&[(u32, String)], u64),
        is_live: bool,
    ) {
        if is_live {
            self.file.set_live();
        }
        self.file.set_sampling(sampling);
        let unranked = std::mem::take(&mut self.unranked);
        let totals = Box::new(Totals { second, interfaces: interfaces.to_vec(), unranked });
        // There is room for it, unless the thread has stood still for seconds.
        let refused = match self.thread(is_live) {
            Some(Thread { jobs, handle, .. }) => {
                let sent = jobs.send(Job::Second(totals));
                handle.thread().unpark();
                sent.err().map(|error| error.0)
            }
            None => Some(Job::Second(totals)),
        };
        if let Some(Job::Second(totals)) = refused {
            contribute(&self.file, self.worker, *totals, &mut Rankings::default());
        }
        if self.progress == Progress::Missed {
            self.progress = Progress::Waiting;
        }
    }

    /// Publishes the rest, and leaves the file.
    pub fn finish(&mut self) {
        self.join();
        self.file.leave(self.worker);
    }

    /// The thread, which starts with the first call; `None` if there can be none.
    fn thread(&mut self, is_live: bool) -> Option<&Thread> {
        if !self.has_begun {
            self.has_begun = true;
            let room = if is_live { QUEUE + QUEUE_OF_SECONDS } else { QUEUE_OF_FILES };
            let own: ReadOwn = if is_live { self.own } else { || None };
            self.thread = start(&self.file, self.worker, room, own).ok();
        }
        self.thread.as_ref()
    }

    /// Hands a part over. Returns whether the thread gets it.
    fn send(&mut self, job: Job, is_live: bool) -> bool {
        let Some(thread) = self.thread(is_live) else { return false };
        if is_live && thread.waiting.load(Relaxed) >= QUEUE {
            return false;
        }
        let waiting = thread.waiting.fetch_add(1, Relaxed) + 1;
        let is_sent = thread.jobs.send(job).is_ok();
        if waiting == WAKE_AT {
            thread.handle.thread().unpark();
        }
        is_sent
    }

    fn join(&mut self) {
        if let Some(Thread { jobs, handle, .. }) = self.thread.take() {
            drop(jobs);
            handle.thread().unpark();
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

fn start(file: &Arc<ViewFile>, worker: usize, room: usize, own: ReadOwn) -> std::io::Result<Thread> {
    let (jobs, theirs) = sync_channel(room);
    let waiting = Arc::new(AtomicUsize::new(0));
    let (file, in_queue) = (Arc::clone(file), Arc::clone(&waiting));
    let work = move || rank(&file, worker, (&theirs, &*in_queue), own);
    let handle = thread::Builder::new().name("view".to_owned()).spawn(work)?;
    Ok(Thread { jobs, waiting, handle })
}

fn rank(file: &ViewFile, worker: usize, (jobs, waiting): (&Receiver<Job>, &AtomicUsize), own: ReadOwn) {
    let (mut mirror, mut rankings) = (Mirror::default(), Rankings::default());
    let mut seconds = 0;
    set_own(file, &mut rankings, own);
    loop {
        let job = match jobs.try_recv() {
            Ok(job) => job,
            Err(TryRecvError::Empty) => {
                thread::park();
                continue;
            }
            Err(TryRecvError::Disconnected) => return,
        };
        match job {
            Job::Journal(journal) => {
                waiting.fetch_sub(1, Relaxed);
                mirror.read(&journal, &mut rankings, file.names());
            }
            Job::Collected(flows) => {
                waiting.fetch_sub(1, Relaxed);
                rankings.add(&flows.iter().map(CollectedFlow::change).collect::<Vec<_>>());
            }
            Job::Second(mut totals) => {
                totals.unranked.add(mirror.end_second(&mut rankings));
                contribute(file, worker, *totals, &mut rankings);
                seconds += 1;
                if seconds % OWN_SECONDS == 0 {
                    set_own(file, &mut rankings, own);
                }
            }
        }
    }
}

/// Sets the addresses of this host: as many as the file has. Where they cannot be read now, those of the last reading
/// stay: without any, the host would seem to send and receive nothing until the next one.
fn set_own(file: &ViewFile, rankings: &mut Rankings, own: ReadOwn) {
    let Some(addresses) = own() else { return };
    rankings.set_own(&addresses[..addresses.len().min(OWN_MAX)]);
    file.set_own(&addresses);
}

/// Brings a second into the file, with the names of its interfaces.
fn contribute(file: &ViewFile, worker: usize, totals: Totals, rankings: &mut Rankings) {
    let Totals { second, interfaces, unranked } = totals;
    let Directions { sent, received } = rankings.take_directions();
    let second = Second { unranked: unranked.packets, sent, received, ..second };
    let mut tables = rankings.take();
    tables.iter_mut().for_each(|table| table.add_unranked(unranked));
    lock(file.names()).name_hosts(&mut tables);
    for row in &mut tables[Dimension::Interface as usize].rows {
        let KeyValue::Interface(number) = row.key.value(Dimension::Interface) else { continue };
        let known = interfaces.iter().find(|(known, _)| *known == number);
        row.name = known.map_or(row.name, |(_, name)| Key::name(name));
    }
    file.contribute(worker, &second, &tables);
}
