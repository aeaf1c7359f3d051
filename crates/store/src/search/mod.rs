//! Search: finds the chunks that may have the packets of a question, reads them and checks their checksums.
//!
//! ```text
//! Search           segments --plan--> stretches of chunks --fetch--> sections of pcapng           one thread
//! ParallelSearch   the same in several threads, each running its own filter; results in the order of recording
//! ```

mod account;
mod fetch;
mod notes;
mod parallel;
mod plan;
mod tail;

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use tapline_packet::Timestamp;

pub use account::SearchAccount;
pub use notes::gap_lines;
pub(crate) use parallel::{Examine, Next, ParallelSearch};

use crate::catalog::Catalog;
use crate::error::Error;
use crate::question::Question;
pub use plan::REACH;
use plan::{CACHED_MAX, Plan, Stretch};
use tail::Tail;

/// A half-open span of time: `from` is in it, `to` is not. A `to` of [`Window::ALL`] has no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first moment in the span.
    pub from: Timestamp,
    /// The first moment after the span.
    pub to: Timestamp,
}

impl Window {
    /// All times.
    pub const ALL: Window =
        Window { from: Timestamp::from_nanos(i64::MIN), to: Timestamp::from_nanos(i64::MAX) };

    /// Whether a moment is in the span.
    pub fn has(&self, at: Timestamp) -> bool {
        self.from <= at && (at < self.to || self.to == Window::ALL.to)
    }

    /// Whether the closed span from `first` to `last` has a moment in common with it.
    pub(crate) fn overlaps(&self, first: Timestamp, last: Timestamp) -> bool {
        last >= self.from && (first < self.to || self.to == Window::ALL.to)
    }
}

/// A search in one thread. It yields whole chunks: the caller runs its filter on each packet and checks its time.
pub struct Search {
    plan: Arc<Plan>,
    /// Numbers of segments that are still to be planned.
    segments: VecDeque<u64>,
    /// Stretches of the current segment that are still to be read.
    stretches: VecDeque<Stretch>,
    /// Number of segments when the search began.
    total: u64,
    /// How far a recording was followed; `None` without [`Search::follow`].
    tail: Option<Tail>,
    account: SearchAccount,
    bytes: Vec<u8>,
}

impl Search {
    /// Begins a search of all segments that the store has now. The first 256 MiB of chunks are read through the page
    /// cache, all others past it; all of them if a recorder runs now.
    ///
    /// # Errors
    /// [`Error::File`] if the directory cannot be read.
    pub fn new(catalog: Arc<Catalog>, window: Window, question: Question) -> Result<Search, Error> {
        let segments: VecDeque<u64> = catalog.numbers()?.into();
        let total = segments.len() as u64;
        let segments_missing = catalog.missing_within(window)?;
        let recordings = catalog.recordings();
        let rests = recordings.iter().map(|recording| recording.lost_within(window));
        let lost = rests.fold(0, u64::saturating_add);
        let broken = recordings.iter().enumerate().filter(|(at, recording)| {
            let next = recordings.get(at + 1).map_or(Window::ALL.to, |next| next.from);
            let from = recording.to.unwrap_or(recording.from);
            recording.is_broken && window.overlaps(from, next.max(from)) || recording.rest.lost_unknown
        });
        let losses_unknown = broken.count() as u64;
        let account = SearchAccount {
            segments: total,
            segments_missing,
            lost,
            losses_unknown,
            ..SearchAccount::default()
        };
        let is_recorded = catalog.is_recorded();
        let cache_left = AtomicU64::new(if is_recorded { 0 } else { CACHED_MAX });
        let roll_up = Mutex::new((u64::MAX, None));
        let deleted = Mutex::default();
        let plan = Arc::new(Plan { catalog, window, question, is_recorded, cache_left, roll_up, deleted });
        let (stretches, bytes) = (VecDeque::new(), Vec::new());
        Ok(Search { plan, segments, stretches, total, tail: None, account, bytes })
    }

    /// Makes a [`ParallelSearch`] of this search go on with chunks that are recorded later: it then has no end. To be
    /// called before [`next`](Self::next), which then leaves out the newest segment: only a [`ParallelSearch`] reads
    /// it.
    pub fn follow(&mut self) {
        if self.tail.is_none() {
            self.tail = Some(Tail::of(self.segments.pop_back()));
        }
    }

    /// Counters of segments and chunks up to now.
    pub fn account(&self) -> SearchAccount {
        let chunks_left = self.stretches.iter().map(|stretch| stretch.chunks()).sum();
        let in_tail = self.tail.as_ref().map_or(0, Tail::segments_left);
        SearchAccount { segments_left: self.segments.len() as u64 + in_tail, chunks_left, ..self.account }
    }

    /// The times that the search was begun with.
    pub fn window(&self) -> Window {
        self.plan.window
    }

    /// Segments that were planned, and all that there were at the start.
    pub fn progress(&self) -> (u64, u64) {
        (self.total - self.segments.len() as u64, self.total)
    }

    /// Replaces the content of `buffer` by the next chunks that may have matching packets: whole pcapng sections whose
    /// checksums are right. `false` at the end. Chunks that are damaged or cannot be read are skipped, and the
    /// [account](Self::account) counts them.
    pub fn next(&mut self, buffer: &mut Vec<u8>) -> bool {
        loop {
            let Some(stretch) = self.stretches.pop_front() else {
                let Some(number) = self.segments.pop_front() else { return false };
                self.stretches = self.plan.segment(number, &mut self.account).into();
                continue;
            };
            let sections = self.plan.fetch(&stretch, &mut self.bytes, &mut self.account);
            if !sections.is_empty() {
                buffer.clear();
                buffer.extend_from_slice(&self.bytes[sections]);
                return true;
            }
        }
    }
}
