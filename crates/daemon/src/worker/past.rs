//! Readers that began in the past: some more of what the buffer holds, between two batches.
//!
//! ```text
//! stored:   oldest ... next one to look at ... newest       what comes is stored behind it, and met on the way
//!                      ---- some looks, paid by the reader's user --->
//! ```

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use tapline_filterset::{Filter, FilterSet, Matches, Mode};
use tapline_packet::{BATCH_MAX, Batch, Record, Selection};
use tapline_ring::{Held, ReaderId, Replay, Writer};
use tapline_sys::{clock, usage};

use super::passing::within;
use super::{Attached, Desk, FULL_NAP};
use crate::budget::{Payer, Purses};
use crate::section::Section;
use crate::view::View;

/// How many stored packets are looked at for a reader of the past between two batches: four times as many as come by one, so that it comes to the present, in some 0.1 ms.
const LOOKS: usize = 4 * BATCH_MAX;
/// The same for all such readers together, in some 0.4 ms, and the least that each gets of it: with many of them nobody comes to the present sooner than packets come, but packets
/// are not lost because somebody asks for the past often.
const LOOKS_OF_ALL: usize = 4 * LOOKS;
const LEAST_LOOKS: usize = BATCH_MAX / 4;
/// The same for one that leaves: some 0.02 s, in which packets wait in the kernel's ring.
const LAST_LOOKS: usize = 1 << 18;
/// Looks between two looks at the clock.
const LOOKS_PAID_AT_ONCE: usize = 64;

impl Desk {
    /// Offers readers of the past some more of it. How long the next batch may be waited for meanwhile.
    pub(super) fn catch_up(&mut self) -> Duration {
        let looks = self.looks();
        let mut wait = Duration::MAX;
        self.purses.fill(self.time.now_ns());
        for at in 0..self.readers.len() {
            match self.replay(at, looks) {
                Replay::More => wait = Duration::ZERO,
                Replay::Full => wait = wait.min(FULL_NAP),
                Replay::Done => {}
            }
        }
        wait
    }

    /// How many stored packets are looked at for each reader of the past.
    fn looks(&self) -> usize {
        let count = self.readers.iter().filter(|reader| reader.past.is_some()).count();
        (LOOKS_OF_ALL / count.max(1)).clamp(LEAST_LOOKS, LOOKS)
    }

    /// Likewise one of the readers, as long as its user has the means: half of a purse is for what comes.
    fn replay(&mut self, at: usize, looks: usize) -> Replay {
        let Desk { readers, views, purses, .. } = self;
        let Attached { id, view, past: Some(one), payer, .. } = &mut readers[at] else { return Replay::Done };
        if payer.is_some_and(|payer| !purses.is_half_full(payer.uid)) {
            return Replay::Full;
        }
        let writer = &mut views[*view].writer;
        let mut paid = Paid::new(one, *payer, purses);
        // Only one that just left is unknown.
        let replay = writer.replay(*id, looks, |held| paid.verdict(held)).unwrap_or(Replay::Done);
        paid.finish();
        if replay == Replay::Done {
            let _ = writer.be_present(*id);
        }
        writer.publish(clock::monotonic_ns());
        if replay == Replay::Done {
            self.join_set(at);
            self.readers[at].past = None;
        }
        replay
    }

    /// Has a reader of the past get what comes from the next batch on.
    pub(super) fn join_set(&mut self, at: usize) {
        self.readers[at].is_present = true;
        self.know_uses();
    }

    /// Has a reader go on with what comes though it has not all of the past, which is counted as lost.
    pub(super) fn skip(&mut self, number: u64) {
        let Some(at) = self.readers.iter().position(|reader| reader.number == number) else { return };
        let Attached { id, view, .. } = self.readers[at];
        let _ = self.views[view].writer.skip(id);
        self.join_set(at);
    }

    /// Offers readers of the past what a part of a batch may overwrite. Those that have no place for all of it are noted as `lagging`. Whether the part is small enough for that.
    pub(super) fn rescue(
        &mut self,
        view: usize,
        batch: &Batch<'_>,
        part: &Range<usize>,
        lagging: &mut Vec<u64>,
    ) -> bool {
        let Desk { readers, views, purses, sections, .. } = self;
        let View { writer, wanted, cut, .. } = &mut views[view];
        if !writer.has_past() {
            return true;
        }
        let (batch, wanted) = (&cut.batch(batch), within(wanted, part));
        for reader in readers.iter_mut().filter(|reader| reader.view == view) {
            let Some(one) = &mut reader.past else { continue };
            let mut paid = Paid::new(one, reader.payer, purses);
            let replayed = writer.replay_before(reader.id, batch, &wanted, |held| paid.verdict(held));
            if paid.finish() {
                // What was not looked at cannot be counted: the reader is sent away.
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
        self.tell_who_is_over();
        true
    }

    /// In the midst of a batch: offers readers some more of the past, and none comes to the present. Whether there was any.
    pub(super) fn go_on_with_the_past(&mut self) -> bool {
        let looks = self.looks();
        let mut is_on = false;
        let Desk { readers, views, purses, time, .. } = self;
        purses.fill(time.now_ns());
        for Attached { id, view, past, payer, .. } in readers {
            let (Some(one), writer) = (past, &mut views[*view].writer) else { continue };
            if payer.is_some_and(|payer| !purses.is_half_full(payer.uid)) {
                continue;
            }
            let left = writer.past(*id).ok();
            let mut paid = Paid::new(one, *payer, purses);
            let _ = writer.replay(*id, looks, |held| paid.verdict(held));
            paid.finish();
            writer.publish(clock::monotonic_ns());
            is_on |= writer.past(*id).ok() != left;
        }
        is_on
    }
}

/// One filter, asked of one packet at a time: of those that a new reader finds in the buffer.
pub(super) struct One {
    set: FilterSet,
    matches: Matches,
    only: Selection,
}

impl One {
    pub(super) fn new(filter: Arc<Filter>) -> One {
        let (mut set, mut only) = (FilterSet::new(Mode::All), Selection::none());
        set.insert(filter, 0);
        only.select_all(1);
        One { set, matches: Matches::new(), only }
    }

    fn verdict(&mut self, held: &Held<'_>) -> Option<u32> {
        let record = Record { cap_len: held.data.len() as u32, meta: held.meta, ..Record::default() };
        self.set.classify(&Batch::new(held.data, &[record]), &self.only, &mut self.matches);
        (!self.matches.of(0).is_empty()).then_some(0)
    }
}

/// Looks at the past that a user pays for, until its purse is empty: then nothing more is found.
struct Paid<'a> {
    one: &'a mut One,
    payer: Option<Payer>,
    purses: &'a mut Purses,
    looks: usize,
    before: Duration,
    is_over: bool,
}

impl<'a> Paid<'a> {
    fn new(one: &'a mut One, payer: Option<Payer>, purses: &'a mut Purses) -> Paid<'a> {
        Paid { one, payer, purses, looks: 0, before: usage::thread_time(), is_over: false }
    }

    fn verdict(&mut self, held: &Held<'_>) -> Option<u32> {
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS_PAID_AT_ONCE) {
            self.pay();
        }
        if self.is_over { None } else { self.one.verdict(held) }
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

/// A reader that went on to the present without all of the past, and leaves.
pub(super) struct Leaving<'a> {
    pub(super) id: ReaderId,
    pub(super) number: u64,
    pub(super) one: &'a mut One,
    pub(super) payer: Option<Payer>,
}

impl Leaving<'_> {
    /// Counts what it lost of the past.
    pub(super) fn count_the_rest(self, writer: &mut Writer, purses: &mut Purses, log: &Sender<String>) {
        let Leaving { id, number, one, payer } = self;
        let (mut looks, mut is_over) = (0, false);
        let replayed = loop {
            let mut paid = Paid::new(one, payer, purses);
            let replayed = writer.replay(id, LOOKS, |held| paid.verdict(held));
            is_over |= paid.finish();
            looks += LOOKS;
            if is_over || looks >= LAST_LOOKS || !matches!(replayed, Ok(Replay::More)) {
                break replayed;
            }
        };
        // Its own account has it too.
        writer.publish(clock::monotonic_ns());
        if is_over || matches!(replayed, Ok(Replay::More)) {
            let left = writer.past(id).unwrap_or_default();
            let _ = log.send(format!(
                "reader {number} leaves before all that it lost is counted: {left} packets of the past were not looked at"
            ));
        }
    }
}
