//! The sleep of a reader until there is as much to read as it wishes: on the futex of the index, or on the bell.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use tapline_sys::futex::{self, FutexWaitEnd};
use tapline_sys::{BellEvent, clock};

use super::Reader;
use crate::Error;
use crate::consumer::SleepWish;
use crate::layout::index;

/// The longest sleep on the futex before it is looked whether the writer still lives: a death wakes no sleeper there.
const NAP_NS: u64 = 100_000_000;
/// A reader that bears such a delay wakes by itself that often, and the writer keeps no time for it: a wake of our own
/// costs us one call of the system, and the writer none. Others would wake too often while nothing comes.
const OWN_TIME_MIN: Duration = Duration::from_millis(50);

/// The condition that ends a reader's sleep: bytes or packets that wait, or time since the first packet.
///
/// High thresholds lose no packets: the writer also wakes a reader with a quarter of its index or of the buffer to
/// read, or half of its credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeThreshold {
    /// Captured bytes that are not read; 0 or 1 for each packet.
    pub min_bytes: u64,
    /// Packets that are not read; 0 if their number does not matter.
    pub min_packets: u64,
    /// The longest that a packet waits, although there are fewer.
    pub max_delay: Duration,
}

impl WakeThreshold {
    /// At once.
    pub const IMMEDIATE: WakeThreshold =
        WakeThreshold { min_bytes: 1, min_packets: 0, max_delay: Duration::ZERO };

    fn max_delay_ns(&self) -> u64 {
        u64::try_from(self.max_delay.as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Default for WakeThreshold {
    fn default() -> WakeThreshold {
        WakeThreshold::IMMEDIATE
    }
}

/// The reason that a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// There are packets, as many or as old as was wished.
    Ready,
    /// The time is over; there may be packets, fewer than was wished.
    TimedOut,
    /// All was read, and the writer said that nothing more comes.
    Closed,
    /// All was read, and the writer is gone without a word.
    WriterGone,
}

impl Reader {
    /// Sets when sleep is to end.
    pub fn set_wake(&mut self, wish: WakeThreshold) {
        self.wish = wish;
    }

    /// Sleeps until there are packets as wished, or nothing more comes, for `timeout` at most. The batch that is lent
    /// stays.
    ///
    /// On the futex, which costs both sides less than the bell. A reader of one buffer may use it; `tapline capture`
    /// reads several at once, and sleeps in [`MergedReader::wait`](crate::MergedReader::wait).
    ///
    /// # Errors
    /// [`Error::IndexDamaged`], [`Error::System`].
    pub fn wait(&mut self, timeout: Duration) -> Result<WaitEnd, Error> {
        let start = clock::monotonic_ns();
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        loop {
            let now = clock::monotonic_ns();
            if let Some(end) = self.look(now)? {
                return Ok(end);
            }
            // A system call, so only before a sleep.
            if self.bell.is_hung_up() {
                self.is_gone = true;
                continue;
            }
            let left = timeout_ns.saturating_sub(now - start);
            if left == 0 {
                return Ok(WaitEnd::TimedOut);
            }
            self.nap(left.min(NAP_NS).min(self.wait_left_ns(now)))?;
        }
    }

    /// Prepares for poll(2) or epoll(7) on [`descriptor`](Self::descriptor): `None` if it is right to wait there,
    /// else why not. After the wait [`advance`](Self::advance) shows the packets; there may be none.
    ///
    /// The descriptor becomes readable when the writer finds that the wish is met, and hangs up when the writer is
    /// gone. Packets that were there before do not make it readable: so call this before each wait.
    ///
    /// # Errors
    /// [`Error::IndexDamaged`].
    pub fn arm(&mut self) -> Result<Option<WaitEnd>, Error> {
        self.hear();
        self.arm_with(self.wish.max_delay_ns()).map(Result::err)
    }

    /// Arms the reader for callers that poll the bell themselves ([`hear`](Self::hear)) whenever poll(2) reports
    /// something, and look again after the returned time in nanoseconds: packets present by then may have waited for
    /// as long as allowed. Callers that surely do so may `keep_time`. No system call.
    pub(crate) fn arm_for_nap(&mut self, keep_time: bool) -> Result<Result<u64, WaitEnd>, Error> {
        let is_own_time = keep_time && self.wish.max_delay >= OWN_TIME_MIN;
        self.arm_with(if is_own_time { u64::MAX } else { self.wish.max_delay_ns() })
    }

    /// Announces that we sleep until the bell rings, which it does also when a packet reaches an age. Returns the
    /// longest sleep, or the reason against it.
    fn arm_with(&mut self, wake_after_ns: u64) -> Result<Result<u64, WaitEnd>, Error> {
        loop {
            let now = clock::monotonic_ns();
            if let Some(end) = self.look(now)? {
                self.index.announce_awake();
                self.is_armed = false;
                return Ok(Err(end));
            }
            if self.announce_sleep(index::ON_BELL, wake_after_ns) {
                self.is_armed = true;
                return Ok(Ok(self.wait_left_ns(now)));
            }
        }
    }

    /// Reads the bell.
    pub(crate) fn hear(&mut self) {
        match self.bell.answer() {
            BellEvent::Nothing => {}
            // A ring from before the last read is out of date.
            BellEvent::Rung => self.is_called |= self.is_armed,
            BellEvent::Gone => self.is_gone = true,
        }
    }

    /// The bell, for poll(2) and epoll(7).
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Whether a wait should end now, and why.
    fn look(&mut self, now_ns: u64) -> Result<Option<WaitEnd>, Error> {
        // Before the head: a reader that sees the end sees the last head too.
        let is_closed = self.view.is_closed();
        if self.is_enough(now_ns)? {
            return Ok(Some(WaitEnd::Ready));
        }
        if !is_closed && !self.is_gone {
            return Ok(None);
        }
        Ok(Some(match self.unread()? {
            0 if is_closed => WaitEnd::Closed,
            0 => WaitEnd::WriterGone,
            _ => WaitEnd::Ready,
        }))
    }

    /// Whether nothing is there and nothing more comes, as far as was heard.
    pub(crate) fn is_at_end(&mut self) -> Result<bool, Error> {
        let is_over = self.view.is_closed() || self.is_gone;
        Ok(is_over && self.unread()? == 0)
    }

    /// Whether packets lent or waiting take up a quarter of the index, or the buffer has been filled by a quarter
    /// behind those that wait: a reader that holds packets back should not do so any longer.
    pub(crate) fn is_pressed(&mut self) -> Result<bool, Error> {
        let unread = self.unread()?;
        let behind = match unread {
            0 => 0,
            // Of a writer that lies, any number.
            _ => self.view.head().wrapping_sub(self.index.peek(self.outcome.total()).0.position),
        };
        let is_index_full = self.index.ready() >= self.index.capacity() / 4;
        Ok(is_index_full || behind >= self.view.geometry().blocks_len() / 4)
    }

    /// Entries that are neither consumed nor lent.
    fn unread(&mut self) -> Result<u64, Error> {
        Ok(self.index.refresh()?.saturating_sub(self.outcome.total()))
    }

    /// Whether there is as much, or perhaps so old, as was wished; or anything that the writer woke us for.
    fn is_enough(&mut self, now_ns: u64) -> Result<bool, Error> {
        let unread = self.unread()?;
        if unread == 0 {
            (self.all_read_ns, self.is_called) = (Some(now_ns), false);
            return Ok(false);
        }
        let all_read_ns = *self.all_read_ns.get_or_insert(now_ns);
        let bytes = self.index.unread_bytes().saturating_sub(self.outcome.bytes);
        let is_old = now_ns.saturating_sub(all_read_ns) >= self.wish.max_delay_ns();
        let are_many = (1..=unread).contains(&self.wish.min_packets);
        Ok(self.is_called || is_old || are_many || bytes >= self.wish.min_bytes)
    }

    /// Time for which present packets, or the next, can wait; without end if the writer looks at the clock for us and
    /// there are none.
    fn wait_left_ns(&self, now_ns: u64) -> u64 {
        let max_delay_ns = self.wish.max_delay_ns();
        let is_ours = self.wish.max_delay >= OWN_TIME_MIN || self.index.ready() > self.outcome.total();
        let all_read_ns = self.all_read_ns.unwrap_or(now_ns);
        if is_ours {
            max_delay_ns.saturating_sub(now_ns.saturating_sub(all_read_ns)).max(1)
        } else {
            u64::MAX
        }
    }

    /// Sleeps for `ns` at most, if nothing has come since the last look, and says how that ended.
    pub(crate) fn nap(&mut self, ns: u64) -> Result<FutexWaitEnd, Error> {
        let result = if self.announce_sleep(index::ON_FUTEX, self.wish.max_delay_ns()) {
            let woken = futex::wait(self.index.waiting_word(), index::ON_FUTEX, Duration::from_nanos(ns));
            self.is_called = self.index.was_woken();
            woken
        } else {
            Ok(FutexWaitEnd::Changed)
        };
        self.index.announce_awake();
        result.map_err(Error::system("wait for packets"))
    }

    /// Announces that we are about to sleep. Returns whether that is still right: nothing has come, and the writer
    /// did not close.
    fn announce_sleep(&self, how: u64, wake_after_ns: u64) -> bool {
        let WakeThreshold { min_bytes, min_packets, .. } = self.wish;
        let wish = SleepWish { min_bytes, min_packets, max_delay_ns: wake_after_ns };
        self.index.announce_sleep(&self.view, how, &self.outcome, wish)
    }
}
