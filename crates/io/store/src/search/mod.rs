//! Search: finds the chunks that may have the packets of a question, reads them and checks their checksums.
//!
//! ```text
//! Search --segments--> ParallelSearch --plan--> stretches of chunks --fetch--> sections of pcapng --> what threads
//!                                                                              make of them, in the order of recording
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
use plan::{CACHED_MAX, Plan};
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

/// A search before its start: a [`StoreInput`](crate::StoreInput) reads its results.
pub struct Search {
    plan: Arc<Plan>,
    /// Numbers of segments that are still to be planned.
    segments: VecDeque<u64>,
    /// Number of segments when the search began.
    total: u64,
    /// Position in a recording that is followed; `None` without [`Search::follow`].
    tail: Option<Tail>,
    account: SearchAccount,
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
        let (missing, history) = catalog.missing_segments()?;
        let segments_missing = catalog.missing_within(&missing, window)?;
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
        let history = Mutex::new(history);
        let plan = Arc::new(Plan { catalog, window, question, is_recorded, cache_left, roll_up, history });
        Ok(Search { plan, segments, total, tail: None, account })
    }

    /// Goes on with chunks that are recorded later: the search then has no end.
    pub fn follow(&mut self) {
        if self.tail.is_none() {
            self.tail = Some(Tail::of(self.segments.pop_back()));
        }
    }

    /// The times that the search was begun with.
    pub fn window(&self) -> Window {
        self.plan.window
    }
}
