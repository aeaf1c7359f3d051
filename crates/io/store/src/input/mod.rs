//! A store as a source of packets: reads the chunks that a search finds, and filters their packets on all cores.
//!
//! ```text
//! ParallelSearch --sections--> Examiner, one a thread: time, filter --packets--> TimeOrder --> batches
//! ```

mod examine;
mod order;

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tapline_packet::{BATCH_MAX, Batch, Interface, InterfaceId};
use tapline_source::{Advance, Count, Error, Event, InterfaceAccount, Loss, LossPoint, Source};

pub use self::examine::SearchFilter;
use self::examine::{Examiner, FoundPackets};
use self::order::TimeOrder;
use crate::search::{Examine, Next, ParallelSearch, Search, SearchAccount};

/// Source of the packets of a store that a search finds and a filter accepts.
pub struct StoreInput {
    name: String,
    search: ParallelSearch<FoundPackets>,
    /// Whether there is a filter.
    is_filtered: bool,
    interfaces: Interfaces,
    /// Packets lent in batches, and packets that the filter refused, by interface.
    lent: Vec<u64>,
    refused: Vec<u64>,
    /// Packets that were found and wait for older ones.
    order: TimeOrder,
    /// The result whose packets are being lent. Its records `from..to` are the current batch.
    current: FoundPackets,
    from: usize,
    to: usize,
    /// `advance` has started the threads of the search.
    is_begun: bool,
    is_stopped: bool,
    /// The end of the search was reached.
    is_read: bool,
    /// The warnings of the search were added to `faults`.
    is_warned: bool,
    /// Error of the filter. No packet can be tested after it.
    failure: Option<Error>,
    report: SearchReport,
    /// Sections that were not read to their end.
    faulty: u64,
    /// Faults that are not reported yet.
    faults: Vec<String>,
}

/// Settings for reading a store.
#[derive(Clone, Default)]
pub struct StoreReading {
    /// Number of threads that read; 0 means two for each processor. With 1, the thread that calls
    /// [`advance`](Source::advance) reads.
    pub threads: usize,
    /// Maximum bytes of chunks to read in a second.
    pub rate: Option<NonZeroU64>,
    /// The filter; without one all packets in the times of the search are lent.
    pub sieve: Option<SearchFilter>,
}

/// Threads for each processor: while one thread waits for the disk another works on the chunk that it read, and disks
/// are faster with several requests at once.
const THREADS_PER_PROCESSOR: usize = 2;
/// Maximum number of chunk faults kept for the next report; further ones are only counted.
const FAULTS_SHOWN_MAX: usize = 16;
/// Poll interval while [`StoreInput::new`] waits for the first packets.
const FIRST_PACKETS_WAIT: Duration = Duration::from_secs(1);

/// Counters of a running search, shared with other threads.
#[derive(Clone, Debug, Default)]
pub struct SearchReport(Arc<Mutex<SearchAccount>>);

impl SearchReport {
    /// Returns the counters as of the last result that the source took.
    pub fn get(&self) -> SearchAccount {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, account: SearchAccount) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = account;
    }
}

impl StoreInput {
    /// Opens the packets of a search; `name` is the store's name in the account. Reads up to the first chunks that the
    /// search finds, because they describe the interfaces for which filters are compiled. The threads that read them
    /// have ended when it returns, so that the caller can drop privileges; the first [`advance`](Source::advance)
    /// starts new ones.
    pub fn new(search: Search, name: &str, reading: StoreReading) -> StoreInput {
        let threads = match reading.threads {
            0 => THREADS_PER_PROCESSOR * std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let (window, sieve) = (search.window(), reading.sieve);
        let is_filtered = sieve.is_some();
        let examiners = move |thread: usize| {
            let mut examiner = Examiner::new(thread, window, sieve.clone());
            let examine = move |buffer: &mut Vec<u8>, place, later| examiner.examine(buffer, place, later);
            Box::new(examine) as Examine<FoundPackets>
        };
        let mut input = StoreInput {
            name: name.to_owned(),
            search: ParallelSearch::new(search, threads, reading.rate, Arc::new(examiners)),
            is_filtered,
            interfaces: Interfaces::default(),
            lent: Vec::new(),
            refused: Vec::new(),
            order: TimeOrder::default(),
            current: FoundPackets::default(),
            from: 0,
            to: 0,
            is_begun: false,
            is_stopped: false,
            is_read: false,
            is_warned: false,
            failure: None,
            report: SearchReport::default(),
            faulty: 0,
            faults: Vec::new(),
        };
        input.find_first();
        input
    }

    /// Returns a handle to the counters of the search, which are updated while it runs.
    pub fn report(&self) -> SearchReport {
        self.report.clone()
    }

    fn find_first(&mut self) {
        self.search.resume();
        while self.interfaces.all.is_empty() {
            match self.search.next(FIRST_PACKETS_WAIT) {
                Next::Found(found) => self.take(found),
                Next::Idle if !self.search.is_waiting() => {}
                Next::Idle | Next::End => break,
            }
        }
        self.search.pause();
        self.note_account();
    }

    fn note_account(&self) {
        self.report.set(SearchAccount { late: self.order.late(), ..self.search.account() });
    }

    /// Takes the packets that a thread found.
    fn take(&mut self, mut found: FoundPackets) {
        self.interfaces.renumber(&mut found);
        self.lent.resize(self.interfaces.all.len(), 0);
        self.refused.resize(self.interfaces.all.len(), 0);
        for (at, refused) in found.refused.iter().enumerate().filter(|(_, refused)| **refused > 0) {
            if let Some(id) = self.interfaces.number(found.thread, at) {
                self.refused[id.0 as usize] += refused;
            }
        }
        self.faulty += found.faults.len() as u64;
        for reason in found.faults.drain(..) {
            if self.faults.len() < FAULTS_SHOWN_MAX {
                self.faults.push(format!("a chunk contradicts itself: {reason}; the rest of it is left out"));
            }
        }
        self.failure = self.failure.take().or(found.failure.take());
        if let Some(empty) = self.order.add(found) {
            self.search.give_back(empty.bytes);
        }
        // Packets that were found before the error are still lent.
        if self.failure.is_some() {
            self.order.end();
        }
    }

    /// Moves to the next result that may be lent. Returns whether there is one.
    fn next_found(&mut self) -> bool {
        let Some(found) = self.order.next() else { return false };
        let used = std::mem::replace(&mut self.current, found);
        (self.from, self.to) = (0, 0);
        self.search.give_back(used.bytes);
        true
    }

    /// Moves to the next batch of the current result. Returns whether there is one.
    fn next_batch(&mut self) -> bool {
        self.from = self.to;
        self.to = self.current.records.len().min(self.from + BATCH_MAX);
        for record in &self.current.records[self.from..self.to] {
            if let Some(lent) = self.lent.get_mut(record.meta.interface.0 as usize) {
                *lent += 1;
            }
        }
        self.from < self.to
    }

    fn end(&mut self) {
        self.is_read = true;
        self.warn_once();
    }

    /// Adds the warnings of the search to `faults`, once.
    fn warn_once(&mut self) {
        if !std::mem::replace(&mut self.is_warned, true) {
            self.faults.extend(self.search.account().warnings(&self.name));
        }
    }

    /// Moves to packets that wait for older ones. Called when no more results will come, or when the search waits for
    /// new recordings.
    fn lend_all(&mut self) -> bool {
        self.order.end();
        self.next_found()
    }
}

impl Source for StoreInput {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces.all
    }

    fn advance(&mut self, wait: Duration) -> Result<Advance, Error> {
        if self.is_stopped || self.is_read {
            return Ok(Advance::End);
        }
        if !std::mem::replace(&mut self.is_begun, true) {
            self.search.resume();
        }
        let (until, mut is_late) = (Instant::now() + wait, false);
        loop {
            if self.next_batch() {
                return Ok(Advance::Batch);
            }
            if self.next_found() {
                continue;
            }
            if let Some(failure) = self.failure.take() {
                self.end();
                return Err(failure);
            }
            if is_late {
                return Ok(Advance::Idle);
            }
            let next = self.search.next(wait);
            self.note_account();
            match next {
                Next::Found(found) => {
                    self.take(found);
                    // Return in time even if the chunks so far had no matching packet.
                    is_late = Instant::now() >= until;
                }
                Next::Idle if self.search.is_waiting() && self.lend_all() => {}
                Next::End if self.lend_all() => {}
                Next::Idle => return Ok(Advance::Idle),
                Next::End => {
                    self.end();
                    return Ok(Advance::End);
                }
            }
        }
    }

    fn batch(&self) -> Batch<'_> {
        match self.is_stopped || self.is_read {
            true => Batch::empty(),
            false => Batch::new(&self.current.bytes, &self.current.records[self.from..self.to]),
        }
    }

    fn stop(&mut self) -> Result<(), Error> {
        self.is_stopped = true;
        self.search.pause();
        self.note_account();
        self.warn_once();
        Ok(())
    }

    fn is_filtered(&self, _interface: InterfaceId) -> bool {
        self.is_filtered
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        let rows = self.interfaces.all.iter().zip(self.lent.iter().zip(&self.refused));
        let row = |(interface, (lent, refused)): (&Interface, (&u64, &u64))| InterfaceAccount {
            is_partial: !self.is_read,
            kernel_filtered: Count::Known(*refused),
            ..InterfaceAccount::of_file(&format!("{} {}", self.name, interface.label()), *lent)
        };
        let mut rows: Vec<InterfaceAccount> = rows.map(row).collect();
        let account = self.report.get();
        // Chunks count losses for the whole recording, not by interface: the first row has them.
        if let Some(first) = rows.first_mut() {
            let mut lose = |counter: &str, count| {
                first.losses.push(Loss { place: LossPoint::File, counter: counter.to_owned(), count });
            };
            if account.lost > 0 {
                lose("lost while recorded", Count::Known(account.lost));
            }
            if account.losses_unknown > 0 {
                lose("lost while recorded, not counted", Count::Unknown);
            }
        }
        if let Some(first) = rows.first_mut().filter(|_| self.faulty > 0) {
            let counter = format!("in {} chunks that contradict themselves", self.faulty);
            first.losses.push(Loss { place: LossPoint::File, counter, count: Count::Unknown });
        }
        rows
    }

    fn events(&mut self) -> Vec<Event> {
        let event = |text| Event { interface: String::new(), text, is_warning: true };
        std::mem::take(&mut self.faults).into_iter().map(event).collect()
    }

    fn progress(&self) -> Option<(u64, u64)> {
        Some(self.search.progress())
    }
}

/// One table of the interfaces that all threads found, in the order of recording.
#[derive(Default)]
struct Interfaces {
    all: Vec<Interface>,
    alike: HashMap<Interface, Alike>,
    /// For each thread, its interface numbers as numbers of this table.
    of_thread: Vec<Vec<InterfaceId>>,
}

/// Interfaces with the same description. Threads find them in the same order, so the first one of each thread is the
/// same interface, the second one of each thread is the next, and so on.
#[derive(Default)]
struct Alike {
    ids: Vec<InterfaceId>,
    /// Number of interfaces that each thread has met.
    met: Vec<usize>,
}

impl Interfaces {
    /// Sets the interface numbers of records to those of this table.
    fn renumber(&mut self, found: &mut FoundPackets) {
        if self.of_thread.len() <= found.thread {
            self.of_thread.resize(found.thread + 1, Vec::new());
        }
        let ids = &mut self.of_thread[found.thread];
        for interface in found.interfaces.drain(..) {
            let alike = self.alike.entry(interface.clone()).or_default();
            alike.met.resize(alike.met.len().max(found.thread + 1), 0);
            let place = alike.met[found.thread];
            alike.met[found.thread] += 1;
            if place == alike.ids.len() {
                alike.ids.push(InterfaceId(self.all.len() as u32));
                self.all.push(interface);
            }
            ids.push(alike.ids[place]);
        }
        // The usual case: the numbers agree, and the records need no change.
        let is_same = ids.iter().enumerate().all(|(at, id)| id.0 as usize == at);
        if !is_same {
            for record in &mut found.records {
                let id = ids.get(record.meta.interface.0 as usize);
                record.meta.interface = id.copied().unwrap_or_default();
            }
        }
    }

    fn number(&self, thread: usize, at: usize) -> Option<InterfaceId> {
        self.of_thread.get(thread)?.get(at).copied()
    }
}
