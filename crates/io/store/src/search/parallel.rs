//! A search on several cores, whose results come in the order of recording.
//!
//! ```text
//! segments --plan, ahead--> stretches --read, examine--> results, by their numbers --next--> the caller
//!             any thread       any thread, in order         at most `room` of them
//! ```
//!
//! A stretch is taken only once all segments before its own are planned, so stretches are taken in order, and the
//! result that the caller waits for is always one that some thread works on.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tapline_packet::Timestamp;
use tapline_sys::{disk, open_files};

use super::plan::{Plan, Stretch};
use super::tail::Tail;
use super::{Search, SearchAccount, Window};
use crate::layout::SLOT_LEN;
use crate::log;

/// Segments that are looked into ahead of those whose chunks are read, for each thread.
const AHEAD: usize = 4;
/// Buffers that are kept for further stretches, in addition to those in use.
const SPARE_MAX: usize = 4;
/// The longest nap of a thread that keeps to a rate: then it looks whether it is to end.
const NAP_MAX: Duration = Duration::from_millis(50);
/// Poll interval of a recording that is followed.
const LOOK: Duration = Duration::from_millis(50);
/// The time after the end of the window for which a followed recording is still read, in nanoseconds: by default
/// packets are written 800 ms after their arrival.
const FOLLOW_AFTER_NS: i64 = 2_000_000_000;
/// Open files that are left to the rest of the process.
const FILES_LEFT: u64 = 32;
/// Open files of a segment: two for its packets, one for its index.
const FILES_PER_SEGMENT: u64 = 3;

/// Examines intact sections at a place in a buffer, which it may take. The time is the least that a packet of the next
/// [`REACH`](super::REACH) slots may have: packets up to it are complete, and in order once they are sorted.
pub(crate) type Examine<T> = Box<dyn FnMut(&mut Vec<u8>, Range<usize>, Timestamp) -> T + Send>;

/// Makes the examiner of a thread by its number, counted from 0 over all threads that ever were.
pub(crate) type Examiners<T> = Arc<dyn Fn(usize) -> Examine<T> + Send + Sync>;

/// Next result of a search.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<T> {
    /// Result for the next sections.
    Found(T),
    /// Nothing within the time allowed; ask again.
    Idle,
    /// Nothing more, ever.
    End,
}

/// A search by several threads.
pub(crate) struct ParallelSearch<T> {
    shared: Arc<Shared<T>>,
    examiners: Examiners<T>,
    threads: Vec<JoinHandle<()>>,
    threads_max: usize,
    /// Examiners so far.
    begun: usize,
    /// The caller's examiner and its buffer, where no thread works.
    here: Option<(Examine<T>, Vec<u8>)>,
    tail: Option<Tail>,
    /// The followed recording has reached the end of the window.
    is_over: bool,
}

struct Shared<T> {
    plan: Arc<Plan>,
    state: Mutex<SearchState<T>>,
    /// Something is to be done.
    work: Condvar,
    /// Something is done.
    done: Condvar,
    /// Results at most, done or not, that the caller has not taken.
    room: usize,
    /// Segments that are planned ahead at most.
    ahead: usize,
    /// Bytes of chunks a second at most.
    rate: Option<NonZeroU64>,
}

struct SearchState<T> {
    segments: VecDeque<u64>,
    total: u64,
    /// Plans of the segments after those, in their order; `None` while one is being made.
    plans: VecDeque<Option<VecDeque<Stretch>>>,
    /// Segments before the first of `plans`.
    planned: u64,
    /// In the order of recording; `None` while it is worked on.
    results: VecDeque<Option<T>>,
    /// Results before the first of `results`.
    taken: u64,
    account: SearchAccount,
    spare: Vec<Vec<u8>>,
    /// When the next chunk may be read, by the rate.
    due: Option<Instant>,
    /// Whether new chunks are read once all others are done.
    is_following: bool,
    is_paused: bool,
    is_broken: bool,
}

enum Task {
    Plan(u64, u64),
    Read(u64, Stretch),
}

impl<T: Send + 'static> ParallelSearch<T> {
    /// Goes on with a search, by `threads` threads once it is [resumed](Self::resume), each with an examiner of its
    /// own. With one, that thread is the caller's, and [`next`](Self::next) does the work. `rate` is the most bytes of
    /// chunks that are read a second.
    pub(crate) fn new(
        search: Search,
        threads: usize,
        rate: Option<NonZeroU64>,
        examiners: Examiners<T>,
    ) -> ParallelSearch<T> {
        let Search { plan, segments, total, account, tail } = search;
        // Each segment that is planned, and each that is read, has open files.
        let files = open_files::limit().unwrap_or(u64::MAX).saturating_sub(FILES_LEFT);
        let open_max = usize::try_from(files / FILES_PER_SEGMENT).unwrap_or(usize::MAX).max(2);
        let workers = threads.clamp(1, open_max / 2);
        let state = SearchState {
            segments,
            total,
            plans: VecDeque::new(),
            planned: 0,
            results: VecDeque::new(),
            taken: 0,
            account,
            spare: Vec::new(),
            due: None,
            is_following: tail.is_some(),
            is_paused: true,
            is_broken: false,
        };
        let shared = Shared {
            plan,
            state: Mutex::new(state),
            work: Condvar::new(),
            done: Condvar::new(),
            room: 2 * workers + 2,
            ahead: (AHEAD * workers).min(open_max - workers).max(1),
            rate,
        };
        let threads_max = if threads > 1 { workers } else { 0 };
        let (shared, threads) = (Arc::new(shared), Vec::new());
        ParallelSearch { shared, examiners, threads, threads_max, begun: 0, here: None, tail, is_over: false }
    }

    /// Makes the threads, with the rights of this one.
    pub(crate) fn resume(&mut self) {
        self.shared.state().is_paused = false;
        while self.threads.len() < self.threads_max {
            let (shared, examine) = (Arc::clone(&self.shared), (self.examiners)(self.begun));
            let thread = thread::Builder::new().name("search".to_owned());
            match thread.spawn(move || shared.run(examine)) {
                Ok(thread) => self.threads.push(thread),
                // Fewer do as well, and without any the caller works.
                Err(_) => break,
            }
            self.begun += 1;
        }
        self.threads_max = self.threads.len();
    }

    /// Ends the threads; their results are kept. A search that is never resumed has ended.
    ///
    /// # Panics
    /// If a thread did.
    pub(crate) fn pause(&mut self) {
        self.shared.state().is_paused = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }

    /// Result for the next sections; waits for at most `wait`.
    ///
    /// # Panics If a thread panicked.
    pub(crate) fn next(&mut self, wait: Duration) -> Next<T> {
        let until = Instant::now() + wait;
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state();
        loop {
            if state.is_broken {
                drop(state);
                self.pause();
                return Next::End;
            }
            if matches!(state.results.front(), Some(Some(_))) {
                state.taken += 1;
                let found = state.results.pop_front().flatten();
                shared.work.notify_one();
                return found.map_or(Next::Idle, Next::Found);
            }
            let mut left = until.saturating_duration_since(Instant::now());
            if state.is_done() {
                let Some(tail) = self.tail.as_mut().filter(|_| !self.is_over) else { return Next::End };
                drop(state);
                let is_over = shared.is_past_window();
                let is_new = shared.look(tail);
                state = shared.state();
                if is_new {
                    continue;
                }
                if is_over {
                    self.is_over = true;
                    state.is_following = false;
                    shared.work.notify_all();
                    return Next::End;
                }
                left = left.min(LOOK);
            }
            if left.is_zero() {
                return Next::Idle;
            }
            if self.threads.is_empty() {
                drop(state);
                let has_worked = self.work_here();
                state = shared.state();
                if has_worked {
                    continue;
                }
            }
            state = shared.done.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Where no thread works the caller does one thing, if there is one.
    fn work_here(&mut self) -> bool {
        let mut state = self.shared.state();
        let task = if state.is_paused { None } else { state.task(self.shared.room, self.shared.ahead) };
        drop(state);
        let Some(task) = task else { return false };
        let (examine, buffer) = self.here.get_or_insert_with(|| {
            self.begun += 1;
            ((self.examiners)(self.begun - 1), Vec::new())
        });
        self.shared.perform(task, examine, buffer);
        true
    }

    /// Whether all recorded chunks are read, and new ones are waited for.
    pub(crate) fn is_waiting(&self) -> bool {
        self.tail.is_some() && self.shared.state().is_done()
    }

    /// Takes a buffer back that an examiner took. Others are dropped.
    pub(crate) fn give_back(&self, buffer: Vec<u8>) {
        let mut state = self.shared.state();
        if buffer.len() > SLOT_LEN && state.spare.len() < SPARE_MAX {
            state.spare.push(buffer);
        }
    }

    /// Counters so far.
    pub(crate) fn account(&self) -> SearchAccount {
        let state = self.shared.state();
        let chunks =
            |stretches: &VecDeque<Stretch>| -> u64 { stretches.iter().map(|stretch| stretch.chunks()).sum() };
        let mut account = state.account;
        // What is worked on is left as long as it is not done.
        let in_work = state.plans.iter().filter(|plan| plan.is_none()).count();
        let in_tail = self.tail.as_ref().map_or(0, Tail::segments_left);
        account.segments_left = (state.segments.len() + in_work) as u64 + in_tail;
        account.chunks_left += state.plans.iter().flatten().map(chunks).sum::<u64>();
        account
    }

    /// Segments done, and all.
    pub(crate) fn progress(&self) -> (u64, u64) {
        let state = self.shared.state();
        let left = (state.segments.len() + state.plans.len()) as u64;
        (state.total.saturating_sub(left), state.total)
    }
}

impl<T> Drop for ParallelSearch<T> {
    fn drop(&mut self) {
        self.shared.state().is_paused = true;
        self.shared.work.notify_all();
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, SearchState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of a thread.
    fn run(&self, mut examine: Examine<T>) {
        let _alarm = Alarm(self);
        if self.plan.is_recorded {
            // A disk that cannot tell threads apart serves them alike.
            let _ = disk::set_idle_io_priority();
        }
        let mut buffer = Vec::new();
        while let Some(task) = self.wait_for_task() {
            self.perform(task, &mut examine, &mut buffer);
        }
    }

    /// `None` once the search is done or paused.
    fn wait_for_task(&self) -> Option<Task> {
        let mut state = self.state();
        loop {
            if state.is_paused || state.is_done() && !state.is_following {
                return None;
            }
            if let Some(task) = state.task(self.room, self.ahead) {
                return Some(task);
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn perform(&self, task: Task, examine: &mut Examine<T>, buffer: &mut Vec<u8>) {
        let mut account = SearchAccount::default();
        match task {
            Task::Plan(at, number) => {
                let stretches = self.plan.segment(number, &mut account);
                let mut state = self.state();
                state.account += account;
                let place = (at - state.planned) as usize;
                state.plans[place] = Some(stretches.into());
            }
            Task::Read(at, stretch) => {
                self.keep_to_rate(stretch.len());
                if buffer.is_empty() {
                    *buffer = self.state().spare.pop().unwrap_or_default();
                }
                let sections = self.plan.fetch(&stretch, buffer, &mut account);
                let found = examine(buffer, sections, stretch.later);
                let mut state = self.state();
                state.account += account;
                state.account.chunks_left -= stretch.chunks();
                let place = (at - state.taken) as usize;
                state.results[place] = Some(found);
            }
        }
        self.work.notify_all();
        self.done.notify_all();
    }

    /// Plans the chunks recorded since the last call; returns whether there were any.
    fn look(&self, tail: &mut Tail) -> bool {
        let mut account = SearchAccount::default();
        let stretches = self.plan.tail(tail, &mut account);
        let is_new = !stretches.is_empty();
        let mut state = self.state();
        state.account += account;
        if is_new {
            state.plans.push_back(Some(stretches.into()));
            self.work.notify_all();
        }
        is_new
    }

    /// Whether no more packets of the window are expected from a recorder.
    fn is_past_window(&self) -> bool {
        let to = self.plan.window.to;
        to != Window::ALL.to && log::now() > to.plus_nanos(FOLLOW_AFTER_NS)
    }

    /// Waits until so many bytes more may be read.
    fn keep_to_rate(&self, len: usize) {
        let Some(rate) = self.rate else { return };
        let cost = Duration::from_secs_f64(len as f64 / rate.get() as f64);
        let mut state = self.state();
        let due = state.due.unwrap_or_else(Instant::now).max(Instant::now());
        state.due = Some(due + cost);
        while !state.is_paused {
            drop(state);
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(NAP_MAX));
            state = self.state();
        }
    }
}

impl<T> SearchState<T> {
    /// The next task, if there is one.
    fn task(&mut self, room: usize, ahead: usize) -> Option<Task> {
        while self.plans.front().is_some_and(|plan| plan.as_ref().is_some_and(VecDeque::is_empty)) {
            self.plans.pop_front();
            self.planned += 1;
        }
        if self.results.len() < room
            && let Some(Some(stretches)) = self.plans.front_mut()
            && let Some(stretch) = stretches.pop_front()
        {
            self.results.push_back(None);
            self.account.chunks_left += stretch.chunks();
            return Some(Task::Read(self.taken + self.results.len() as u64 - 1, stretch));
        }
        if self.plans.len() < ahead
            && let Some(number) = self.segments.pop_front()
        {
            self.plans.push_back(None);
            return Some(Task::Plan(self.planned + self.plans.len() as u64 - 1, number));
        }
        None
    }

    /// Whether nothing is left to do, nor to take.
    fn is_done(&self) -> bool {
        let is_empty = |plan: &Option<VecDeque<Stretch>>| plan.as_ref().is_some_and(VecDeque::is_empty);
        self.segments.is_empty() && self.results.is_empty() && self.plans.iter().all(is_empty)
    }
}

/// Wakes the caller when a thread panics: it would wait for the result for ever.
struct Alarm<'a, T>(&'a Shared<T>);

impl<T> Drop for Alarm<'_, T> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.state().is_broken = true;
            self.0.done.notify_all();
        }
    }
}

#[cfg(test)]
mod tests;
