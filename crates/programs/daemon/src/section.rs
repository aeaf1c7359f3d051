//! The filters of one user in one buffer: asked on what the user may see, and paid by the user.
//!
//! ```text
//! batch --cut as the rules say--> packets that the rules' filter accepts --> the user's filters, merged --> its readers
//!                                       some packets at a time, each time paid from the user's purse
//! ```
//!
//! A filter sees no more of a packet than its reader, so no verdict depends on bytes behind the cut. Processor time is
//! measured from one part of a batch to the next: a part has as many packets as take about a millisecond, and four at
//! least.

use std::time::Duration;

use tapline_filterset::{FilterSet, MatchPolicy, Matches};
use tapline_packet::{BATCH_MAX, Batch, Selection};
use tapline_sys::usage;

use crate::budget::{Payer, Purses};

/// Processor time that a part of a batch should take.
const PART: Duration = Duration::from_millis(1);
/// The most packets of a part, as a multiple of the last one that was measured.
const GROWTH: usize = 4;
/// The fewest packets of a part once its cost is known, so that the thread's clock is read once for several packets
/// also where filters take longer than a part should.
const PART_LEN_MIN: usize = 4;

/// Filters of one user, for one buffer.
pub(crate) struct Section {
    pub(crate) payer: Payer,
    /// Index of the buffer.
    pub(crate) view: usize,
    pub(crate) set: FilterSet,
    /// By a filter's index in the set: the reader that it is of, and the label of it unless it is the reader's own.
    pub(crate) uses: Vec<Option<(usize, Option<u32>)>>,
    /// The user has spent its budget and is being disconnected: the filters are not run any more.
    pub(crate) is_over: bool,
    /// The control thread knows the readers.
    pub(crate) is_told: bool,
    matches: Matches,
    part: Selection,
    /// Packets of the next part.
    part_len: usize,
}

impl Section {
    pub(crate) fn new(payer: Payer, view: usize) -> Section {
        Section {
            payer,
            view,
            set: FilterSet::new(MatchPolicy::All),
            uses: Vec::new(),
            is_over: false,
            is_told: false,
            matches: Matches::new(),
            part: Selection::none(),
            part_len: 1,
        }
    }

    /// The readers whose filters these are.
    pub(crate) fn readers(&self) -> impl Iterator<Item = usize> {
        let own = self.uses.iter().flatten().filter(|(_, label)| label.is_none());
        own.map(|(reader, _)| *reader)
    }

    /// The cost of filters is no longer known.
    pub(crate) fn forget_cost(&mut self) {
        self.part_len = 1;
    }

    /// Asks all filters of the packets of `batch` that the user may see, and gives each packet with the reader and label
    /// whose filter accepts it to `found`. Stops when the purse is empty; whether it was.
    pub(crate) fn ask(
        &mut self,
        batch: &Batch<'_>,
        allowed: &Selection,
        purses: &mut Purses,
        found: &mut dyn FnMut(usize, usize, Option<u32>),
    ) -> bool {
        let (mut asked, mut before) = (0, usage::thread_time());
        while asked < allowed.len() {
            let len = self.part_len.min(allowed.len() - asked);
            let part = match len == allowed.len() {
                true => allowed,
                false => {
                    self.part.clear();
                    allowed.iter().skip(asked).take(len).for_each(|index| self.part.push(index));
                    &self.part
                }
            };
            self.set.classify(batch, part, &mut self.matches);
            for index in part.iter() {
                let filters = self.matches.of(index).iter();
                let uses = filters.filter_map(|filter| *self.uses.get(*filter as usize)?);
                uses.for_each(|(reader, label)| found(index, reader, label));
            }
            asked += len;
            let now = usage::thread_time();
            let cost = now.saturating_sub(before);
            before = now;
            self.part_len = part_len(self.part_len, len, cost);
            if !purses.spend(self.payer, cost) {
                return true;
            }
        }
        false
    }
}

/// Packets of the next part, after `len` packets took `cost`.
fn part_len(current: usize, len: usize, cost: Duration) -> usize {
    let fits = PART.as_nanos() * len as u128 / cost.as_nanos().max(1);
    let most = current.max(len * GROWTH).min(BATCH_MAX);
    usize::try_from(fits).unwrap_or(BATCH_MAX).clamp(PART_LEN_MIN, most.max(PART_LEN_MIN))
}

#[cfg(test)]
mod tests {
    use tapline_filter::Options;
    use tapline_filterset::Filter;
    use tapline_packet::{Meta, Record};

    use super::*;
    use crate::budget::TIME_OF_ALL_MS;

    #[test]
    fn parts_take_about_a_millisecond() {
        let us = Duration::from_micros;
        assert_eq!(part_len(1, 1, us(10)), 4, "it grows step by step");
        assert_eq!(part_len(64, 64, us(10)), BATCH_MAX);
        assert_eq!(part_len(256, 256, us(32_000)), 8);
        assert_eq!(part_len(256, 1, us(1)), BATCH_MAX, "a small batch says nothing against large ones");
        assert_eq!(part_len(256, 256, us(1_000_000)), PART_LEN_MIN, "however long a packet takes");
        assert_eq!(part_len(1, 1, Duration::ZERO), 4);
    }

    /// Each packet is asked about once, in whatever parts; an empty purse ends that.
    #[test]
    fn filters_run_until_the_budget_is_spent() {
        let payer = Payer { uid: 7, time_ms: 200 };
        let mut section = Section::new(payer, 0);
        let filter = Filter::compile("link[0] = 1", &Options::default()).unwrap();
        let id = section.set.insert(filter, 0);
        section.uses = vec![None; id.index() as usize + 1];
        section.uses[id.index() as usize] = Some((5, None));
        let bytes: Vec<u8> = (0..BATCH_MAX).flat_map(|index| [u8::from(index % 3 == 0), 0]).collect();
        let record = |index| Record { offset: 2 * index, cap_len: 2, meta: Meta::default(), options_len: 0 };
        let records: Vec<Record> = (0..BATCH_MAX).map(record).collect();
        let batch = Batch::new(&bytes, &records);
        let mut allowed = Selection::none();
        allowed.select_all(BATCH_MAX);
        allowed.retain(|index| index % 2 == 0);
        let mut ask = |span| {
            let mut pairs = Vec::new();
            let mut purses = Purses::new(span, TIME_OF_ALL_MS, 0);
            section.forget_cost();
            let is_over = section.ask(&batch, &allowed, &mut purses, &mut |index, reader, _| {
                pairs.push((index, reader));
            });
            (is_over, pairs)
        };
        let expected: Vec<_> = (0..BATCH_MAX).step_by(6).map(|index| (index, 5)).collect();
        assert_eq!(ask(Duration::from_secs(3600)), (false, expected));
        assert_eq!(ask(Duration::ZERO), (true, vec![(0, 5)]), "one packet, which it could not pay");
    }
}
