//! The packets that a recording gives up when the disk is too slow for them.
//!
//! ```text
//! free buffers   many --less than a quarter--> overloaded --half--> many
//! policy         wait     the caller waits for a buffer; the source's ring loses packets, which the source counts
//!                newest   without a buffer packets are refused as they come
//!                oldest   the chunk that waits longest for the disk gives its buffer
//!                flows    while overloaded new flows are refused, for as long as they last; without a buffer all packets
//! ```

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::writing::Job;
use crate::chunk::ChunkBuffer;

/// The packets that a recording gives up when the disk does not keep up with the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overload {
    /// None: [`Recorder::write`](super::Recorder::write) blocks, so that the source's ring loses packets.
    #[default]
    Wait,
    /// Packets that come while no buffer is free.
    Newest,
    /// The packets that wait longest for the disk.
    Oldest,
    /// New flows: each packet of a flow that begins while the recorder is overloaded, also later. Packets of other
    /// flows are lost only while no buffer is free.
    Flows,
}

impl Overload {
    /// All policies that lose packets, in the order of their numbers in heads of chunks, from 1 on.
    pub const LOSING: [Overload; 3] = [Overload::Newest, Overload::Oldest, Overload::Flows];

    /// The number in the head of a chunk; 0 for [`Overload::Wait`].
    pub(crate) fn number(self) -> u16 {
        Overload::LOSING.iter().position(|policy| *policy == self).map_or(0, |at| at as u16 + 1)
    }

    /// The policy of a number.
    pub(crate) fn of_number(number: u16) -> Overload {
        let at = usize::from(number).checked_sub(1);
        at.and_then(|at| Overload::LOSING.get(at)).copied().unwrap_or_default()
    }
}

/// Jobs that wait for the writing thread. The caller's thread may take the buffer of one back.
#[derive(Default)]
pub(super) struct Jobs(Mutex<VecDeque<Job>>);

impl Jobs {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Job>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, job: Job) {
        self.lock().push_back(job);
    }

    pub(super) fn pop(&self) -> Option<Job> {
        self.lock().pop_front()
    }

    /// Puts a job back that was taken and cannot be done yet.
    pub(super) fn put_back(&self, job: Job) {
        self.lock().push_front(job);
    }

    /// Takes the buffer of the oldest chunk with packets; its counts stay in its place.
    pub(super) fn shed_oldest(&self) -> Option<ChunkBuffer> {
        let mut jobs = self.lock();
        let job = jobs.iter_mut().find(|job| is_spare(job))?;
        let Job::Chunk { head, .. } = job else { return None };
        let head = std::mem::take(head);
        match std::mem::replace(job, Job::Shed { head }) {
            Job::Chunk { buffer, .. } => Some(buffer),
            _ => None,
        }
    }
}

/// Whether a job is a chunk that may be given up: one with packets. The first chunk of a segment has none.
fn is_spare(job: &Job) -> bool {
    matches!(job, Job::Chunk { buffer, head, .. } if head.packets > 0 && buffer.is_of_slot())
}

/// FreeBuffers chunk buffers, which both threads count.
#[derive(Debug, Default)]
pub(super) struct FreeBuffers(AtomicUsize);

impl FreeBuffers {
    /// Counts a buffer that is free again.
    pub(super) fn give(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts a free buffer that was taken. Gives the number of those that are left.
    pub(super) fn take(&self) -> usize {
        self.0.fetch_sub(1, Ordering::Relaxed).saturating_sub(1)
    }
}

/// The state of the caller's thread.
#[derive(Debug, Default)]
pub(super) struct OverloadState {
    pub(super) policy: Overload,
    /// Buffers in all.
    pub(super) buffers: usize,
    pub(super) is_overloaded: bool,
    /// Packets that the caller's thread gave up: all of them, and those that heads of chunks already count.
    pub(super) refused: (u64, u64),
    /// Packets that came while no buffer was free. The others are packets of refused flows.
    pub(super) without_buffer: u64,
}

impl OverloadState {
    /// Learns how many buffers are free.
    pub(super) fn look(&mut self, free: usize) {
        let limit = if self.is_overloaded { self.buffers / 2 } else { self.buffers / 4 };
        self.is_overloaded = free < limit;
    }

    /// Whether flows that begin now are refused.
    pub(super) fn refuses_flows(&self) -> bool {
        self.is_overloaded && self.policy == Overload::Flows
    }

    /// Counts a packet that came while no buffer was free.
    pub(super) fn refuse_without_buffer(&mut self) {
        self.refused.0 += 1;
        self.without_buffer += 1;
    }

    /// Packets given up since the head of the last chunk.
    pub(super) fn untold(&mut self) -> u64 {
        let (all, told) = self.refused;
        self.refused.1 = all;
        all - told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::ChunkHead;
    use crate::layout::SLOT_LEN;

    fn chunk(packets: u32, number: u64) -> Job {
        let head = Box::new(ChunkHead { packets, number, ..ChunkHead::default() });
        Job::Chunk { buffer: ChunkBuffer::of_slot(), head, offset: number * SLOT_LEN as u64 }
    }

    #[test]
    fn the_oldest_chunk_with_packets_is_given_up() {
        let jobs = Jobs::default();
        [chunk(0, 1), Job::Seal { index: None }, chunk(5, 2), chunk(6, 3)]
            .into_iter()
            .for_each(|job| jobs.push(job));
        assert!(jobs.shed_oldest().is_some() && jobs.shed_oldest().is_some() && jobs.shed_oldest().is_none());
        let told = |job: Option<Job>| match job {
            Some(Job::Chunk { head, .. }) => (1, head.packets),
            Some(Job::Shed { head }) => (2, head.packets),
            Some(_) => (3, 0),
            None => (4, 0),
        };
        let all: Vec<_> = (0..5).map(|_| told(jobs.pop())).collect();
        assert_eq!(all, [(1, 0), (3, 0), (2, 5), (2, 6), (4, 0)]);
    }

    #[test]
    fn an_overload_ends_later_than_it_began() {
        let mut load = OverloadState { policy: Overload::Flows, buffers: 32, ..OverloadState::default() };
        let states = [9, 8, 7, 8, 15, 16, 8].map(|free| {
            load.look(free);
            load.refuses_flows()
        });
        assert_eq!(states, [false, false, true, true, true, false, false]);
    }

    #[test]
    fn numbers_in_heads_name_policies() {
        for policy in [Overload::Wait, Overload::Newest, Overload::Oldest, Overload::Flows] {
            assert_eq!(Overload::of_number(policy.number()), policy);
        }
        assert_eq!(Overload::of_number(9), Overload::Wait);
    }
}
