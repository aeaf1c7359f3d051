//! Seconds of a meter for a view, and the memory of the journals between them.

use std::collections::VecDeque;
use std::sync::Arc;

use tapline_flow::Journal;
use tapline_packet::Timestamp;
use tapline_source::InterfaceAccount;

const SECOND_NS: i64 = 1_000_000_000;
/// Journals that were handed on and whose memory is kept for the next ones.
const JOURNALS_KEPT: usize = 512;

/// The second of a time, since 1970.
pub(crate) fn second_of(time: Timestamp) -> i64 {
    time.as_nanos().div_euclid(SECOND_NS)
}

/// The begin of a second since 1970; the greatest time if it is later.
pub(crate) fn begin_of(second: i64) -> Timestamp {
    Timestamp::from_nanos(second.saturating_mul(SECOND_NS))
}

/// The seconds that are passed to a view.
#[derive(Default)]
pub(super) struct Seconds {
    /// The second of the last packets or the last tick.
    pub(super) now: Option<i64>,
    pub(super) journals: Journals,
    pub(super) interfaces: Vec<(u32, String)>,
    pub(super) accounts: Vec<InterfaceAccount>,
}

/// Memory of journals, used again and again.
#[derive(Default)]
pub(super) struct Journals {
    /// Journals that were handed on, the oldest first.
    on_their_way: VecDeque<Arc<Journal>>,
    /// Journals that were read, the last one on top.
    read: Vec<Journal>,
}

impl Journals {
    /// An empty journal, in the memory of the one that was read last: that is most likely in the cache. Many are on their
    /// way only while the reader ends a second.
    pub(super) fn empty(&mut self) -> Journal {
        while let Some(oldest) = self.on_their_way.pop_front_if(|oldest| Arc::strong_count(oldest) == 1) {
            self.read.extend(Arc::into_inner(oldest));
        }
        let mut journal = self.read.pop().unwrap_or_default();
        journal.clear();
        journal
    }

    pub(super) fn keep(&mut self, journal: Arc<Journal>) {
        if self.on_their_way.len() + self.read.len() < JOURNALS_KEPT {
            self.on_their_way.push_back(journal);
        }
    }
}
