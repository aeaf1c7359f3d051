//! Chunks that may hold what is asked, found, read and checked.
//!
//! ```text
//! Search           segments --plan--> stretches of chunks --fetch--> sections of pcapng           one thread
//! ParallelSearch   the same on all cores, with what each thread makes of them, in the order of recording
//! ```

mod account;
mod fetch;
mod parallel;
mod plan;
mod tail;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tapline_packet::Timestamp;

pub use account::SearchAccount;
pub use parallel::{Examine, Examiners, Next, ParallelSearch};

use crate::catalog::Catalog;
use crate::error::Error;
use crate::question::Question;
use plan::{Plan, Stretch};
use tail::Tail;

/// The times that are asked for: from `from`, before `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first moment.
    pub from: Timestamp,
    /// The first moment after.
    pub to: Timestamp,
}

impl Window {
    /// All times.
    pub const ALL: Window =
        Window { from: Timestamp::from_nanos(i64::MIN), to: Timestamp::from_nanos(i64::MAX) };

    /// Whether a moment is in it.
    pub fn has(&self, at: Timestamp) -> bool {
        self.from <= at && (at < self.to || self.to == Window::ALL.to)
    }

    /// Whether any moment of a span may be in it.
    pub(crate) fn overlaps(&self, first: Timestamp, last: Timestamp) -> bool {
        last >= self.from && (first < self.to || self.to == Window::ALL.to)
    }
}

/// A search under way.
pub struct Search {
    plan: Arc<Plan>,
    /// Segments still to be looked into.
    segments: VecDeque<u64>,
    /// What is still to be read of the present one.
    stretches: VecDeque<Stretch>,
    /// Segments when it began.
    total: u64,
    /// The end of a recording that is followed.
    tail: Option<Tail>,
    account: SearchAccount,
    bytes: Vec<u8>,
}

impl Search {
    /// Begins a search of all segments that are there now. While somebody records, chunks are read past the page cache.
    ///
    /// # Errors
    /// [`Error::File`] if the directory cannot be read.
    pub fn new(catalog: Arc<Catalog>, window: Window, question: Question) -> Result<Search, Error> {
        let segments: VecDeque<u64> = catalog.numbers()?.into();
        let total = segments.len() as u64;
        let account = SearchAccount { segments: total, ..SearchAccount::default() };
        let is_past_cache = catalog.is_recorded();
        let roll_up = Mutex::new((u64::MAX, None));
        let plan = Arc::new(Plan { catalog, window, question, is_past_cache, roll_up });
        let (stretches, bytes) = (VecDeque::new(), Vec::new());
        Ok(Search { plan, segments, stretches, total, tail: None, account, bytes })
    }

    /// Goes on, once all is read, with what is recorded from then on: a search by [several threads](ParallelSearch) then has no end.
    pub fn follow(&mut self) {
        if self.tail.is_none() {
            self.tail = Some(Tail::of(self.segments.pop_back()));
        }
    }

    /// What it did so far.
    pub fn account(&self) -> SearchAccount {
        let chunks_left = self.stretches.iter().map(|stretch| stretch.chunks()).sum();
        let in_tail = self.tail.as_ref().map_or(0, Tail::segments_left);
        SearchAccount { segments_left: self.segments.len() as u64 + in_tail, chunks_left, ..self.account }
    }

    /// The times that are asked for.
    pub fn window(&self) -> Window {
        self.plan.window
    }

    /// Segments done, and all.
    pub fn progress(&self) -> (u64, u64) {
        (self.total - self.segments.len() as u64, self.total)
    }

    /// Reads the next chunks that may hold what is asked into `buffer`, whole and checked. `false` at the end. What cannot be
    /// read is passed over, and is in the account.
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
