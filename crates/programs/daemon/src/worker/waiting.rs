//! Waits of a worker: for packets, and for lossless readers.

use std::ops::Range;
use std::time::{Duration, Instant};

use tapline_ring::WriteRoom as RingRoom;
use tapline_source::Source;
use tapline_sys::clock;

use super::part::within;
use super::readers::{Reader, Readers};
use super::{Dispatcher, HOUSEKEEPING};
use crate::view::View;

/// The longest sleep without packets. Orders end it sooner, where the source can be woken.
pub(super) const WAIT: Duration = Duration::from_millis(50);
/// The shortest wait for a sleeper's delay: readers that lie about it take no processor.
const NAP_MIN: Duration = Duration::from_millis(1);
/// One sleep of the writer for a lossless reader.
pub(super) const ROOM_WAIT: Duration = Duration::from_millis(20);
/// Time for readers at the end to read the rest.
pub(super) const LINGER: Duration = Duration::from_secs(3);

/// Whether a buffer has room for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// There is room, or no lossless reader is waited for any longer.
    Now,
    /// There will never be room for that many packets at once.
    Never,
}

/// The lossless reader that blocks the worker, and the end of all patience with such readers.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    blocked: Option<(u64, Instant)>,
    lingers_until: Option<Instant>,
}

impl Waiting {
    /// The reader that blocks the worker, and for how long it has.
    pub(super) fn blocked(&self) -> Option<(u64, Duration)> {
        self.blocked.map(|(number, since)| (number, since.elapsed()))
    }

    fn block(&mut self, number: u64, now: Instant) {
        if self.blocked.is_none_or(|(blocked, _)| blocked != number) {
            self.blocked = Some((number, now));
        }
    }

    /// Whether readers had, since the first call, the time to read the rest. Called once the worker is to end.
    pub(super) fn has_lingered(&mut self, now: Instant) -> bool {
        now >= *self.lingers_until.get_or_insert(now + LINGER)
    }
}

/// Time to wait for packets, if a sleeping reader is to be woken at `next_wake_ns`; `u64::MAX` for never.
fn poll_timeout(next_wake_ns: Option<u64>, now_ns: u64) -> Duration {
    match next_wake_ns {
        None | Some(u64::MAX) => WAIT,
        Some(due) => Duration::from_nanos(due.saturating_sub(now_ns)).clamp(NAP_MIN, WAIT),
    }
}

impl Dispatcher {
    /// Time to wait for packets: at most until a reader that sleeps over few packets is to be woken.
    pub(super) fn poll_timeout(&self) -> Duration {
        poll_timeout(self.readers.next_wake_ns(), clock::monotonic_ns())
    }

    /// Waits for lossless readers; at the end only for a while. Orders are obeyed meanwhile: such a reader may want to
    /// leave, and a reader that comes gets packets from the next batch on.
    pub(super) fn wait_for_room(&mut self, at: usize, source: &dyn Source, part: &Range<usize>) -> Room {
        let room = self.wait_for_readers(at, source, part);
        self.waiting.blocked = None;
        room
    }

    fn wait_for_readers(&mut self, at: usize, source: &dyn Source, part: &Range<usize>) -> Room {
        loop {
            let View { writer, wanted, cut, .. } = &mut self.readers.views[at];
            let id = match writer.make_room(&cut.batch(&source.batch()), &within(wanted, part)) {
                Ok(RingRoom::Ready) => return Room::Now,
                Ok(RingRoom::Blocked(id)) => id,
                Err(_) => return Room::Never,
            };
            let is_it = |reader: &&Reader| reader.view == at && reader.id == id;
            if let Some(reader) = self.readers.list.iter().find(is_it) {
                self.waiting.block(reader.number, Instant::now());
            }
            // It may be a reader of the past, or wait itself, in the order of time, for another whose past has not come
            // yet.
            self.budgets.fill();
            let has_offered = self.past().replay_while_blocked();
            let writer = &mut self.readers.views[at].writer;
            let asleep =
                self.budgets.sleeping(|| if has_offered { Ok(()) } else { writer.wait_for(id, ROOM_WAIT) });
            self.readers.reap(at);
            if asleep.is_err() || self.obey(source) && self.waiting.has_lingered(Instant::now()) {
                return Room::Now;
            }
            if self.housekept.elapsed() >= HOUSEKEEPING {
                self.housekeep_writers();
            }
        }
    }
}

impl Readers {
    fn next_wake_ns(&self) -> Option<u64> {
        self.views.iter().filter_map(|view| view.writer.next_wake_ns()).min()
    }

    /// Wakes sleeping readers whose delay is over though nothing came.
    pub(super) fn fire_expired_wakeups(&mut self) {
        if self.next_wake_ns().is_some_and(|due| due != u64::MAX) {
            let now = clock::monotonic_ns();
            self.views.iter_mut().for_each(|view| view.writer.tick(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_end_with_the_next_wakeup() {
        let ms = Duration::from_millis;
        assert_eq!((poll_timeout(None, 5), poll_timeout(Some(u64::MAX), 5)), (WAIT, WAIT));
        assert_eq!(poll_timeout(Some(7_000_005), 5), ms(7));
        assert_eq!(poll_timeout(Some(1_000_000_000_000), 5), WAIT, "orders and the clock are looked at");
        assert_eq!(poll_timeout(Some(1), 5), NAP_MIN, "a delay that is over spins no processor");
    }

    #[test]
    fn a_blocking_reader_is_timed_from_its_first_wait() {
        let (mut waiting, start) = (Waiting::default(), Instant::now());
        waiting.block(4, start);
        waiting.block(4, start + Duration::from_secs(1));
        assert_eq!(waiting.blocked, Some((4, start)));
        waiting.block(5, start + Duration::from_secs(2));
        assert_eq!(waiting.blocked, Some((5, start + Duration::from_secs(2))));
    }

    #[test]
    fn patience_with_lossless_readers_ends() {
        let (mut waiting, start) = (Waiting::default(), Instant::now());
        assert!(!waiting.has_lingered(start));
        assert!(!waiting.has_lingered(start + LINGER / 2) && waiting.has_lingered(start + LINGER));
    }
}
