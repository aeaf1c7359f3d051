//! Readers that began in the past: some more of the buffer's packets, between two batches.
//!
//! ```text
//! stored:   oldest ... next to look at ... newest       new packets are stored behind, and met on the way
//!                      ---- a quota of looks, paid by the reader's user --->
//! ```

use std::ops::Range;
use std::time::Duration;

use tapline_packet::{BATCH_MAX, Batch, Meta};
use tapline_ring::{HistoryPacket, ReplayProgress, Writer};
use tapline_sys::{clock, usage};

use super::filter::PastFilter;
use super::part::within;
use super::readers::{Reader, Readers};
use crate::budget::{Payer, Purses};
use crate::section::Section;
use crate::view::View;

/// The time that a reader of the past with a full index has to read some of it, before it is looked at again.
pub(super) const FULL_NAP: Duration = Duration::from_millis(4);
/// Stored packets that are looked at for a reader of the past between two batches: four times a batch, so that the
/// reader comes to the present, in some 0.1 ms.
const QUOTA_MAX: usize = 4 * BATCH_MAX;
/// Stored packets for all such readers together, which takes some 0.4 ms, and the minimum for each. With many of them
/// none reaches the present before new packets come, but no packets are lost because a user often asks for the past.
const QUOTA_OF_ALL: usize = 4 * QUOTA_MAX;
const QUOTA_MIN: usize = BATCH_MAX / 4;
/// Stored packets for a reader that leaves: some 0.02 s, in which packets wait in the kernel's ring.
const QUOTA_OF_LEAVING: usize = 1 << 18;
/// Looks between two readings of the thread's clock.
const LOOKS_PAID_AT_ONCE: usize = 64;

/// The readers of the past, and the purses that pay for their looks.
pub(super) struct Past<'a> {
    pub(super) readers: &'a mut Readers,
    pub(super) purses: &'a mut Purses,
}

impl Past<'_> {
    /// Offers each reader of the past some more packets. Returns how long the next batch may be waited for meanwhile.
    pub(super) fn catch_up(&mut self) -> Duration {
        let quota = self.quota();
        let mut wait = Duration::MAX;
        for at in 0..self.readers.list.len() {
            match self.replay(at, quota) {
                ReplayProgress::More => wait = Duration::ZERO,
                ReplayProgress::Full => wait = wait.min(FULL_NAP),
                ReplayProgress::Done => {}
            }
        }
        wait
    }

    fn quota(&self) -> usize {
        quota(self.readers.list.iter().filter(|reader| reader.past.is_some()).count())
    }

    /// Offers one reader up to `quota` packets, as long as its user has time left: half of a purse is for new packets.
    fn replay(&mut self, at: usize, quota: usize) -> ReplayProgress {
        let Readers { list, views, .. } = &mut *self.readers;
        let Reader { id, view, past: Some(filter), payer, .. } = &mut list[at] else {
            return ReplayProgress::Done;
        };
        if payer.is_some_and(|payer| !self.purses.is_half_full(payer.uid)) {
            return ReplayProgress::Full;
        }
        let writer = &mut views[*view].writer;
        let mut paid = PaidLooks::new(filter, *payer, self.purses);
        // Only a reader that just left is unknown.
        let replay = writer.replay(*id, quota, |held| paid.verdict(held)).unwrap_or(ReplayProgress::Done);
        paid.finish();
        if replay == ReplayProgress::Done {
            let _ = writer.finish_replay(*id);
        }
        writer.publish(clock::monotonic_ns());
        if replay == ReplayProgress::Done {
            self.readers.become_present(at);
            self.readers.list[at].past = None;
        }
        replay
    }

    /// Has a reader go on with new packets without all of the past, which is counted as lost.
    pub(super) fn skip(&mut self, number: u64) {
        let Some(at) = self.readers.position(number) else { return };
        let Reader { id, view, .. } = self.readers.list[at];
        let _ = self.readers.views[view].writer.skip(id);
        self.readers.become_present(at);
    }

    /// Offers readers of the past the packets that a part of a batch may overwrite. Readers that have no place for all
    /// of them are added to `lagging`. Returns whether the part is small enough for that.
    pub(super) fn replay_before_overwrite(
        &mut self,
        view: usize,
        batch: &Batch<'_>,
        part: &Range<usize>,
        lagging: &mut Vec<u64>,
    ) -> bool {
        let Readers { list, views, sections, .. } = &mut *self.readers;
        let View { writer, wanted, cut, .. } = &mut views[view];
        if !writer.has_replays() {
            return true;
        }
        let (batch, wanted) = (&cut.batch(batch), within(wanted, part));
        for reader in list.iter_mut().filter(|reader| reader.view == view) {
            let Some(filter) = &mut reader.past else { continue };
            let mut paid = PaidLooks::new(filter, reader.payer, self.purses);
            let replayed = writer.replay_before(reader.id, batch, &wanted, |held| paid.verdict(held));
            if paid.finish() {
                // Packets that were not looked at cannot be counted: the reader is sent away.
                let is_its =
                    |section: &&mut Section| section.view == view && Some(section.payer) == reader.payer;
                sections.iter_mut().filter(is_its).for_each(|section| section.is_over = true);
            }
            match replayed {
                Err(_) => return false,
                Ok(lost) if lost > 0 && !lagging.contains(&reader.number) => lagging.push(reader.number),
                Ok(_) => {}
            }
        }
        true
    }

    /// In the midst of a batch: offers readers of the past some more, and has none become present. Returns whether
    /// there was anything to offer.
    pub(super) fn replay_while_blocked(&mut self) -> bool {
        let quota = self.quota();
        let mut has_offered = false;
        let Readers { list, views, .. } = &mut *self.readers;
        for Reader { id, view, past, payer, .. } in list {
            let (Some(filter), writer) = (past, &mut views[*view].writer) else { continue };
            if payer.is_some_and(|payer| !self.purses.is_half_full(payer.uid)) {
                continue;
            }
            let left = writer.replay_left(*id).ok();
            let mut paid = PaidLooks::new(filter, *payer, self.purses);
            let _ = writer.replay(*id, quota, |held| paid.verdict(held));
            paid.finish();
            writer.publish(clock::monotonic_ns());
            has_offered |= writer.replay_left(*id).ok() != left;
        }
        has_offered
    }
}

/// The share of the looks for each of `readers` readers of the past.
fn quota(readers: usize) -> usize {
    (QUOTA_OF_ALL / readers.max(1)).clamp(QUOTA_MIN, QUOTA_MAX)
}

/// Counts the lost past packets of a leaving reader that went on to the present early. Returns the packets that were
/// not looked at, as there are too many or its user has no time left.
pub(super) fn count_lost_past(leaving: &mut Reader, writer: &mut Writer, purses: &mut Purses) -> Option<u64> {
    let Reader { id, payer, past: Some(filter), is_present: true, .. } = leaving else { return None };
    let (mut looks, mut is_over) = (0, false);
    let replayed = loop {
        let mut paid = PaidLooks::new(filter, *payer, purses);
        let replayed = writer.replay(*id, QUOTA_MAX, |held| paid.verdict(held));
        is_over |= paid.finish();
        looks += QUOTA_MAX;
        if is_over || looks >= QUOTA_OF_LEAVING || !matches!(replayed, Ok(ReplayProgress::More)) {
            break replayed;
        }
    };
    // The reader's own account has it too.
    writer.publish(clock::monotonic_ns());
    let is_cut_short = is_over || matches!(replayed, Ok(ReplayProgress::More));
    is_cut_short.then(|| writer.replay_left(*id).unwrap_or_default())
}

/// Looks at stored packets that a user pays for, until the purse is empty: then nothing more is found.
struct PaidLooks<'a> {
    filter: &'a mut PastFilter,
    payer: Option<Payer>,
    purses: &'a mut Purses,
    looks: usize,
    before: Duration,
    is_over: bool,
}

impl<'a> PaidLooks<'a> {
    fn new(filter: &'a mut PastFilter, payer: Option<Payer>, purses: &'a mut Purses) -> PaidLooks<'a> {
        PaidLooks { filter, payer, purses, looks: 0, before: usage::thread_time(), is_over: false }
    }

    fn verdict(&mut self, held: &HistoryPacket<'_>) -> Option<u32> {
        self.look(held.data, held.meta)
    }

    fn look(&mut self, data: &[u8], meta: Meta) -> Option<u32> {
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS_PAID_AT_ONCE) {
            self.pay();
        }
        if self.is_over { None } else { self.filter.verdict(data, meta) }
    }

    fn pay(&mut self) {
        let Some(payer) = self.payer else { return };
        let now = usage::thread_time();
        self.is_over |= !self.purses.spend(payer, now.saturating_sub(self.before));
        self.before = now;
    }

    /// Pays the rest. Whether packets were left out because the purse was empty.
    fn finish(mut self) -> bool {
        let was_over = self.is_over;
        self.pay();
        was_over
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tapline_filter::Options;
    use tapline_filterset::Filter;
    use tapline_packet::LinkType;
    use tapline_ring::StartPosition;

    use super::super::readers::tests::join;
    use super::super::verdicts::VerdictRule;
    use super::*;
    use crate::budget::TIME_OF_ALL_MS;
    use crate::view::Rights;

    const USER: Payer = Payer { uid: 7, time_ms: 200 };

    fn purses(span: Duration) -> Purses {
        Purses::new(span, TIME_OF_ALL_MS, 0)
    }

    #[test]
    fn many_readers_of_the_past_share_the_looks() {
        assert_eq!((quota(0), quota(1), quota(4)), (QUOTA_MAX, QUOTA_MAX, QUOTA_MAX));
        assert_eq!(quota(8), QUOTA_MAX / 2);
        assert_eq!(quota(10_000), QUOTA_MIN, "each comes on");
    }

    #[test]
    fn looks_end_with_the_purse() {
        let compiled = Filter::compile("len >= 0", &Options::default()).expect("a filter");
        let mut filter = PastFilter::new(Arc::new(compiled), VerdictRule::None);
        let meta = Meta { wire_len: 60, ..Meta::default() };
        let mut found = |payer, span| {
            let mut purses = purses(span);
            let mut paid = PaidLooks::new(&mut filter, payer, &mut purses);
            let found = (0..10_000).filter(|_| paid.look(&[0; 60], meta).is_some()).count();
            (found, paid.finish())
        };
        assert_eq!(found(None, Duration::ZERO), (10_000, false), "root pays nothing");
        assert_eq!(found(Some(USER), Duration::from_secs(3600)), (10_000, false));
        assert_eq!(found(Some(USER), Duration::ZERO), (LOOKS_PAID_AT_ONCE - 1, true));
    }

    #[test]
    fn without_a_past_a_reader_becomes_present_at_once() {
        let rights = Rights { filter: String::new(), snap_len: 65_535 };
        let mut readers = Readers::new();
        let view = View::new(rights, LinkType::ETHERNET, 65_535, 4, 0).expect("a buffer");
        let view = readers.add_view(view, None, None);
        let _parts = join(&mut readers, 1, (view, StartPosition::Oldest, None));
        assert!(!readers.list[0].is_present);
        let mut purses = purses(Duration::from_secs(1));
        let wait = Past { readers: &mut readers, purses: &mut purses }.catch_up();
        assert_eq!(wait, Duration::MAX, "nothing is left to be offered");
        assert!(readers.list[0].is_present && readers.list[0].past.is_none());
    }
}
