//! Waiting: for packets, and for lossless readers.

use std::ops::Range;
use std::time::{Duration, Instant};

use tapline_capture::Source;
use tapline_ring::Room;
use tapline_sys::clock;

use super::passing::within;
use super::{Attached, Desk, LINGER, ROOM_WAIT, TEND_EVERY, WAIT};
use crate::view::View;

/// The shortest wait for a sleeper's delay: readers that lie about it take no processor.
const NAP_MIN: Duration = Duration::from_millis(1);

/// Whether there is room for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// There is, or nobody waits for it any longer.
    Now,
    /// There never will be, for so many.
    Never,
}

impl Desk {
    /// How long to wait for packets: until somebody who sleeps over few is to be woken, at most.
    pub(super) fn wait(&self) -> Duration {
        match self.due_ns() {
            None | Some(u64::MAX) => WAIT,
            Some(due) => {
                let left = Duration::from_nanos(due.saturating_sub(clock::monotonic_ns()));
                left.clamp(NAP_MIN, WAIT)
            }
        }
    }

    pub(super) fn due_ns(&self) -> Option<u64> {
        self.views.iter().filter_map(|view| view.writer.due_ns()).min()
    }

    /// Wakes those whose delay is over though nothing came.
    pub(super) fn wake_who_waited(&mut self) {
        if self.due_ns().is_some_and(|due| due != u64::MAX) {
            let now = clock::monotonic_ns();
            self.views.iter_mut().for_each(|view| view.writer.tick(now));
        }
    }

    /// Waits for lossless readers; at the end only for a while. Orders are obeyed meanwhile: such a reader may want to leave, and who comes gets packets
    /// from the next batch on.
    pub(super) fn wait_for_room(&mut self, at: usize, source: &dyn Source, part: &Range<usize>) -> Fit {
        let fit = self.wait_for_readers(at, source, part);
        self.blocked = None;
        fit
    }

    fn wait_for_readers(&mut self, at: usize, source: &dyn Source, part: &Range<usize>) -> Fit {
        loop {
            let View { writer, wanted, cut, .. } = &mut self.views[at];
            let id = match writer.make_room(&cut.batch(&source.batch()), &within(wanted, part)) {
                Ok(Room::Ready) => return Fit::Now,
                Ok(Room::Blocked(id)) => id,
                Err(_) => return Fit::Never,
            };
            let is_it = |reader: &&mut Attached| reader.view == at && reader.id == id;
            let reader = self.readers.iter_mut().find(is_it);
            if let Some(number) = reader.as_ref().map(|reader| reader.number)
                && self.blocked.is_none_or(|(blocked, _)| blocked != number)
            {
                self.blocked = Some((number, Instant::now()));
            }
            // It may be one of the past, or wait itself, in the order of time, for another whose past has not come yet.
            let is_on = self.go_on_with_the_past();
            let writer = &mut self.views[at].writer;
            self.time.pause();
            let begun = Instant::now();
            let asleep = if is_on { Ok(()) } else { writer.wait_for(id, ROOM_WAIT) };
            self.time.go_on(begun.elapsed());
            let departed = writer.reap();
            self.depart(at, departed);
            if asleep.is_err() || self.obey(source) && self.is_out_of_patience() {
                return Fit::Now;
            }
            if self.tended.elapsed() >= TEND_EVERY {
                self.tend_writers();
            }
        }
    }

    /// Whether it has been the end for so long that readers had the time to read what is left.
    pub(super) fn is_out_of_patience(&mut self) -> bool {
        Instant::now() >= *self.patience_ends.get_or_insert_with(|| Instant::now() + LINGER)
    }
}
