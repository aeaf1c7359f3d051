//! A reader of several PBufs, one for each capture worker: by time, or as they come.
//!
//! ```text
//! reader 0: batch  t=1 2 5 9 ...          run: the packets of one reader up to the first of any other, lent as a batch
//! reader 1: batch  t=3 4 ...              -> 0: 1 2 | 1: 3 4 | ...
//! reader 2: nothing, watermark 4          -> nothing beyond 4 until it has something, says more, or 5 is as old as patience says
//! ```

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tapline_packet::{Batch, ClockReading, Timestamp};
use tapline_sys::{Poller, Wakeup, clock};

use crate::account::Account;
use crate::reader::{Reader, WaitEnd};
use crate::{Error, VerdictUse, WakeThreshold};

/// The longest sleep while packets wait for the word of another buffer's writer, which rings no bell.
const HELD_UP_NAP: Duration = Duration::from_millis(4);

/// Number of rings of a bell without data in one wait, before it is ignored for [`HELD_UP_NAP`] each time.
const RINGS_IN_VAIN_MAX: u32 = 64;

/// The order in which packets of several buffers are lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeOrder {
    /// By their times, as far as each buffer is in order itself. An empty buffer holds back the packets of others
    /// until its writer says that nothing older comes, or until they are so old that older ones must have been
    /// stored. They are held back no longer than the given time if their times are not of this clock, nor when a
    /// quarter of an index or of a buffer is taken up. Packets stored later than that come late.
    ByTime(Duration),
    /// Each buffer's in its order, buffers in turns. For readers that order packets themselves, or need no order;
    /// `tapline capture` merges by time.
    AsTheyCome,
}

fn read_clocks() -> ClockReading {
    let wall = Timestamp::from_nanos(clock::realtime_ns());
    ClockReading { wall, steady_ns: i64::try_from(clock::monotonic_ns()).unwrap_or(i64::MAX) }
}

/// Some packets of one of the buffers.
#[derive(Clone, Copy, Debug)]
pub struct MergedBatch<'a> {
    /// The index of the packets' reader.
    pub reader: usize,
    /// The packets.
    pub batch: Batch<'a>,
}

/// A reader of several buffers.
pub struct MergedReader {
    parts: Vec<MergeInput>,
    order: MergeOrder,
    turn: usize,
    /// The batch that was lent last: its part, and up to which packet.
    lent: Option<(usize, usize)>,
    /// Packets are there that wait for a buffer which has none.
    is_holding_back: bool,
    poller: Poller,
    /// Ends a wait.
    wakeup: Option<Arc<Wakeup>>,
}

struct MergeInput {
    reader: Reader,
    /// The first packet of its batch that was not lent.
    next: usize,
    len: usize,
    /// Since when its batch waits for another buffer.
    held_since_ns: Option<i64>,
    /// The last promise of a writer whose reader has nothing.
    promise: Option<Promise>,
    /// Whether its bell is one of those that are waited on.
    is_polled: bool,
}

/// A writer's watermark of a buffer before it was found empty.
#[derive(Clone, Copy)]
struct Promise {
    /// No packet older than this will come.
    nothing_before: i64,
    /// Whether the promise is about the past, which is searched for as long as that takes.
    is_past: bool,
}

/// The first packets of all buffers.
struct Fronts {
    /// The earliest: its time, and its part.
    first: Option<(i64, usize)>,
    /// The earliest of the others.
    there: i64,
    /// The time before which nothing comes into empty buffers.
    coming: i64,
}

impl Fronts {
    /// Whether an older packet than the earliest may come.
    fn is_held_back(&self) -> bool {
        self.first.is_some_and(|(time, _)| time > self.coming)
    }
}

impl MergeInput {
    /// Has packets, or asks for some.
    fn fill(&mut self) -> Result<bool, Error> {
        if self.next == self.len {
            (self.next, self.len, self.held_since_ns) = (0, self.reader.advance()?, None);
        }
        Ok(self.next < self.len)
    }

    /// The time of its first packet. If it has none and may get one, there is a promise afterwards.
    fn front(&mut self) -> Result<Option<i64>, Error> {
        // Before packets are asked for: what comes after those is not older than this.
        let nothing_before = self.reader.watermark().map_or(i64::MIN, |time| time.as_nanos());
        let is_past = self.reader.is_in_past();
        self.promise = None;
        if self.fill()? {
            return Ok(Some(self.time_at(self.next)));
        }
        self.promise = (!self.reader.is_at_end()?).then_some(Promise { nothing_before, is_past });
        Ok(None)
    }

    fn time_at(&self, index: usize) -> i64 {
        self.reader.batch().records()[index].meta.timestamp.as_nanos()
    }
}

impl MergedReader {
    /// Merges readers, each of a buffer of its own.
    pub fn new(readers: Vec<Reader>, order: MergeOrder) -> MergedReader {
        let parts = readers
            .into_iter()
            .map(|reader| MergeInput {
                reader,
                next: 0,
                len: 0,
                held_since_ns: None,
                promise: None,
                is_polled: false,
            })
            .collect();
        MergedReader {
            parts,
            order,
            turn: 0,
            lent: None,
            is_holding_back: false,
            poller: Poller::new(),
            wakeup: None,
        }
    }

    /// The readers.
    pub fn readers(&self) -> impl ExactSizeIterator<Item = &Reader> {
        self.parts.iter().map(|part| &part.reader)
    }

    /// The next packets, all of one buffer; `None` if there are none now.
    ///
    /// # Errors
    /// [`Error::IndexDamaged`], of any of the readers.
    pub fn next_batch(&mut self) -> Result<Option<MergedBatch<'_>>, Error> {
        self.next_batch_at(read_clocks)
    }

    /// As [`next_batch`](Self::next_batch), at a moment that is read only if the patience of [`MergeOrder::ByTime`]
    /// matters.
    ///
    /// # Errors
    /// As [`next_batch`](Self::next_batch).
    pub fn next_batch_at(
        &mut self,
        now: impl FnOnce() -> ClockReading,
    ) -> Result<Option<MergedBatch<'_>>, Error> {
        if let Some((part, end)) = self.lent.take() {
            self.parts[part].next = end;
        }
        let found = match self.order {
            MergeOrder::AsTheyCome => self.in_turn()?,
            MergeOrder::ByTime(max_wait) => {
                self.earliest(now, i64::try_from(max_wait.as_nanos()).unwrap_or(i64::MAX))?
            }
        };
        self.lent = found;
        self.is_holding_back = found.is_none() && self.parts.iter().any(|part| part.next < part.len);
        Ok(found.map(|(reader, end)| self.run(reader, end)))
    }

    /// The packets that the last [`next_batch`](Self::next_batch) found, once more.
    pub fn lent(&self) -> Option<MergedBatch<'_>> {
        let (reader, end) = self.lent?;
        Some(self.run(reader, end))
    }

    /// The verdicts on the packets that are lent; none unless they are lent too ([`VerdictUse::Lend`]).
    pub fn lent_verdicts(&self) -> &[u32] {
        let Some((reader, end)) = self.lent else { return &[] };
        let MergeInput { reader, next, .. } = &self.parts[reader];
        reader.verdicts().get(*next..end).unwrap_or_default()
    }

    /// Whether packets are there that the last [`next_batch`](Self::next_batch) kept back, because another buffer may
    /// have older ones. No bell rings when that is known, or when patience is over: a reader that sleeps on the
    /// descriptors of [`readers`](Self::readers) must come back by itself, as [`wait`](Self::wait) does after a
    /// millisecond.
    pub fn is_holding_back(&self) -> bool {
        self.is_holding_back
    }

    /// From now on only packets that are offered by now are read, from any buffer.
    pub fn stop_at_present(&mut self) {
        self.parts.iter_mut().for_each(|part| part.reader.stop_at_present());
    }

    /// Sets the use of the verdicts on packets that are read from now on ([`Reader::use_verdicts`]).
    pub fn use_verdicts(&mut self, verdicts: VerdictUse) {
        self.parts.iter_mut().for_each(|part| part.reader.use_verdicts(verdicts));
    }

    /// Whether all writers said that all is stored.
    pub fn is_closed(&self) -> bool {
        self.parts.iter().all(|part| part.reader.is_closed())
    }

    /// From now on this ends a wait, as if its time were over.
    pub fn set_wakeup(&mut self, wakeup: Option<Arc<Wakeup>>) {
        self.wakeup = wakeup;
    }

    /// Sleeps until one of the buffers has packets as wished, or nothing more comes, for `timeout` at most; on all
    /// their bells at once. When the time is over it is right to wait on the descriptors of [`readers`](Self::readers).
    ///
    /// # Errors
    /// As [`Reader::wait`].
    pub fn wait(&mut self, timeout: Duration) -> Result<WaitEnd, Error> {
        let start = Instant::now();
        let mut rings_in_vain = 0;
        loop {
            let left = timeout.saturating_sub(start.elapsed());
            let nap = match self.arm(!left.is_zero())? {
                Ok(nap) => nap,
                Err(end) => return Ok(end),
            };
            // Also if nothing is left: the poll says as well whether a writer is gone.
            self.poller.wait(left.min(nap)).map_err(Error::system("wait for packets"))?;
            let is_interrupted = self.hear();
            if is_interrupted || start.elapsed() >= timeout {
                return Ok(self.arm(false)?.err().unwrap_or(WaitEnd::TimedOut));
            }
            if self.is_holding_back {
                return Ok(WaitEnd::Ready);
            }
            rings_in_vain += 1;
            if rings_in_vain > RINGS_IN_VAIN_MAX {
                // A bell that rings without pause does not cost a processor.
                self.poller.clear();
                if let Some(wakeup) = &self.wakeup {
                    self.poller.add(wakeup.as_fd());
                }
                self.poller
                    .wait(left.min(nap).min(HELD_UP_NAP))
                    .map_err(Error::system("wait for packets"))?;
                if self.wakeup.as_ref().is_some_and(|wakeup| wakeup.take()) {
                    return Ok(self.arm(false)?.err().unwrap_or(WaitEnd::TimedOut));
                }
            }
        }
    }

    /// Prepares all readers for poll(2): for how long it is right to wait, or why not. Callers that then do not sleep
    /// here do not `keep_time`. No system call.
    fn arm(&mut self, keep_time: bool) -> Result<Result<Duration, WaitEnd>, Error> {
        self.poller.clear();
        if let Some(wakeup) = &self.wakeup {
            self.poller.add(wakeup.as_fd());
        }
        self.parts.iter_mut().for_each(|part| part.is_polled = false);
        let (mut gone, mut open, mut nap_ns) = (false, false, u64::MAX);
        for (at, part) in self.parts.iter_mut().enumerate() {
            if handed_on(self.lent, at, part) < part.len {
                if !self.is_holding_back {
                    return Ok(Err(WaitEnd::Ready));
                }
                open = true;
                continue;
            }
            match part.reader.arm_for_nap(keep_time)? {
                Ok(max_wait_ns) => {
                    (open, part.is_polled) = (true, true);
                    nap_ns = nap_ns.min(max_wait_ns);
                    self.poller.add(part.reader.descriptor());
                }
                Err(WaitEnd::WriterGone) => gone = true,
                Err(WaitEnd::Closed) => {}
                Err(end) => return Ok(Err(end)),
            }
        }
        let nap = if self.is_holding_back { HELD_UP_NAP } else { Duration::from_nanos(nap_ns) };
        Ok(match (open, gone) {
            (true, _) => Ok(nap),
            (_, true) => Err(WaitEnd::WriterGone),
            _ => Err(WaitEnd::Closed),
        })
    }

    /// Hears the bells of which the poll said that there is something. Whether a wake-up ended the sleep.
    fn hear(&mut self) -> bool {
        let wakeup = self.wakeup.as_ref();
        let first = usize::from(wakeup.is_some());
        let polled = self.parts.iter_mut().filter(|part| part.is_polled);
        for (at, part) in polled.enumerate() {
            if self.poller.is_readable(first + at) || self.poller.has_error(first + at) {
                part.reader.hear();
            }
        }
        wakeup.is_some_and(|wakeup| self.poller.is_readable(0) && wakeup.take())
    }

    /// Sets when sleep is to end, for each buffer.
    pub fn set_wake(&mut self, wish: WakeThreshold) {
        self.parts.iter_mut().for_each(|part| part.reader.set_wake(wish));
    }

    /// The fate of the packets of all buffers so far.
    pub fn account(&self) -> Account {
        let mut sum = Account::default();
        self.parts.iter().for_each(|part| sum.merge(&part.reader.account()));
        sum
    }

    /// Announces that the last run is done with, and ends reading. Packets that were found and not lent are unread.
    pub fn finish(self) -> Account {
        let mut sum = Account::default();
        for (at, part) in self.parts.into_iter().enumerate() {
            let packets = handed_on(self.lent, at, &part);
            sum.merge(&part.reader.finish_after(packets));
        }
        sum
    }

    fn run(&self, reader: usize, end: usize) -> MergedBatch<'_> {
        let part = &self.parts[reader];
        let batch = part.reader.batch();
        MergedBatch { reader, batch: Batch::new(batch.base(), &batch.records()[part.next..end]) }
    }

    fn in_turn(&mut self) -> Result<Option<(usize, usize)>, Error> {
        for _ in 0..self.parts.len() {
            let at = self.turn;
            self.turn = (self.turn + 1) % self.parts.len();
            if self.parts[at].fill()? {
                return Ok(Some((at, self.parts[at].len)));
            }
        }
        Ok(None)
    }

    fn earliest(
        &mut self,
        now: impl FnOnce() -> ClockReading,
        max_wait_ns: i64,
    ) -> Result<Option<(usize, usize)>, Error> {
        let mut fronts = self.fronts()?;
        if fronts.is_held_back() {
            // Empty buffers are asked again after the clock is read: a thread that had no processor between the two
            // would take packets that were stored meanwhile for late ones.
            let now = now();
            fronts = self.fronts()?;
            if let Some((_, at)) = fronts.first
                && fronts.is_held_back()
            {
                fronts.coming = self.settled(at, &now, max_wait_ns)?;
            }
        }
        let Some((time, at)) = fronts.first else { return Ok(None) };
        let limit = fronts.there.min(fronts.coming);
        if time > limit {
            return Ok(None);
        }
        let part = &self.parts[at];
        let beyond = (part.next + 1..part.len).find(|index| part.time_at(*index) > limit);
        Ok(Some((at, beyond.unwrap_or(part.len))))
    }

    fn fronts(&mut self) -> Result<Fronts, Error> {
        let mut fronts = Fronts { first: None, there: i64::MAX, coming: i64::MAX };
        for (at, part) in self.parts.iter_mut().enumerate() {
            match part.front()? {
                Some(time) if fronts.first.is_none_or(|(earliest, _)| time < earliest) => {
                    fronts.there = fronts.there.min(fronts.first.map_or(i64::MAX, |(time, _)| time));
                    fronts.first = Some((time, at));
                }
                Some(time) => fronts.there = fronts.there.min(time),
                None => {
                    let coming = part.promise.map_or(i64::MAX, |said| said.nothing_before);
                    fronts.coming = fronts.coming.min(coming);
                }
            }
        }
        Ok(fronts)
    }

    /// Up to which time empty buffers are not waited for, though their writers promise less. `at` has the first packet.
    fn settled(&mut self, at: usize, now: &ClockReading, max_wait_ns: i64) -> Result<i64, Error> {
        let old = now.wall.as_nanos().saturating_sub(max_wait_ns);
        let promises = || self.parts.iter().filter_map(|part| part.promise);
        let limit = promises()
            .map(|said| if said.is_past { said.nothing_before } else { said.nothing_before.max(old) });
        let limit = limit.min().unwrap_or(i64::MAX);
        let is_past = promises().any(|said| said.is_past);
        let part = &mut self.parts[at];
        let since_ns = *part.held_since_ns.get_or_insert(now.steady_ns);
        let mut is_over = now.steady_ns.saturating_sub(since_ns) >= max_wait_ns;
        for part in &mut self.parts {
            is_over |= part.reader.is_pressed()?;
        }
        Ok(if is_over && !is_past { i64::MAX } else { limit })
    }
}

/// Number of packets that a part has handed on, with the run that is lent.
fn handed_on(lent: Option<(usize, usize)>, at: usize, part: &MergeInput) -> usize {
    lent.filter(|(lent, _)| *lent == at).map_or(part.next, |(_, end)| end)
}
