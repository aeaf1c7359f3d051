//! Mixed traffic of a small network, the same for the same seed: an endless stream of frames with their times.
//!
//! ```text
//! arrivals --pick--> session (web, tls, dns, ...) --> its frames with times --heap by time--> (offset, frame)
//! ```
//!
//! Sessions begin at random and run side by side, so their frames mix as they do on a wire. Sizes follow those of
//! real links: many small frames, many full ones, few between; few flows carry most bytes. No frame is longer than
//! [`FRAME_MAX`], so that every interface takes it.

mod conversation;
mod session;
mod wrap;

pub use conversation::Conversation;
pub use wrap::Encapsulation;

use crate::random::Random;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// The longest frame: an MTU of 1500, the Ethernet header and one tag.
pub const FRAME_MAX: usize = 1518;

/// Mean time between two sessions' beginnings.
const ARRIVAL_MEAN_NS: u64 = 2_000_000;

/// A frame and the time of its sending, counted from the traffic's beginning.
pub type TimedFrame = (Duration, Vec<u8>);

/// An endless stream of frames in the order of their times.
#[derive(Debug)]
pub struct Traffic {
    random: Random,
    next_arrival_ns: u64,
    started: u64,
    // Ordered by time, then by the order in which they were made, so that equal times keep a fixed order.
    pending: BinaryHeap<Reverse<(u64, u64, Vec<u8>)>>,
}

impl Traffic {
    /// The traffic of this seed.
    pub fn new(seed: u64) -> Traffic {
        Traffic { random: Random::new(seed), next_arrival_ns: 0, started: 0, pending: BinaryHeap::new() }
    }

    fn start_session(&mut self) {
        let frames = session::any(&mut self.random);
        let start_ns = self.next_arrival_ns;
        let order = self.started << 32;
        let timed = frames.into_iter().enumerate();
        self.pending
            .extend(timed.map(|(i, (at_ns, frame))| Reverse((start_ns + at_ns, order + i as u64, frame))));
        self.started += 1;
        self.next_arrival_ns += self.random.below(2 * ARRIVAL_MEAN_NS);
    }

    fn earliest_ns(&self) -> u64 {
        self.pending.peek().map_or(u64::MAX, |Reverse((at_ns, ..))| *at_ns)
    }
}

impl Iterator for Traffic {
    type Item = TimedFrame;

    fn next(&mut self) -> Option<TimedFrame> {
        while self.earliest_ns() >= self.next_arrival_ns {
            self.start_session();
        }
        let Reverse((at_ns, _, frame)) = self.pending.pop()?;
        Some((Duration::from_nanos(at_ns), frame))
    }
}

#[cfg(test)]
mod tests;
