//! The account: every byte in one place.
//!
//! ```text
//! received = delivered + duplicate + given up + held        bytes of payload that were captured
//! position = delivered + gaps                               of each stream: bytes since its beginning
//! ```

use crate::direction::WaitingSegment;

tapline_packet::named_enum! {
    /// The reason for which bytes are missing in a stream.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum GapCause {
        /// The receiver acknowledged them: the capture lost them.
        Acknowledged = "acknowledged",
        /// More waited behind them than may wait.
        Room = "no room",
        /// The bytes were missing when the stream ended.
        Ended = "at the end",
        /// The packet was captured, but not all of its bytes.
        NotCaptured = "not captured",
    }
}

tapline_packet::named_enum! {
    /// The reason for which captured bytes belong to no stream.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Refusal {
        /// From before the first byte of the stream.
        BeforeStart = "before start",
        /// From behind its end: FIN, RST.
        AfterEnd = "after end",
        /// More than 1 GiB, TCP's greatest window, from where the stream is.
        OutOfWindow = "out of window",
    }
}

/// Sums over all streams, in bytes unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Connections that were begun.
    pub connections: u64,
    /// Connections that ended because the table was full.
    pub evicted: u64,
    /// Payload that was captured.
    pub received: u64,
    /// Payload that was handed on, in order.
    pub delivered: u64,
    /// Payload that was there before.
    pub duplicate: u64,
    /// Payload that belongs to no stream, by [`Refusal::ALL`].
    pub given_up: [u64; Refusal::ALL.len()],
    /// Missing bytes, by [`GapCause::ALL`].
    pub gaps: [u64; GapCause::ALL.len()],
    /// Number of gaps.
    pub gap_count: u64,
    /// Payload that waits behind gaps.
    pub held: u64,
    /// Packets that wait, with and without payload.
    pub held_packets: u64,
    /// Memory that they take.
    pub memory: u64,
    /// The most memory that they took.
    pub memory_peak: u64,
}

impl Account {
    /// Payload that belongs to no stream.
    pub fn refused(&self) -> u64 {
        self.given_up.iter().sum()
    }

    /// Missing bytes.
    pub fn missing(&self) -> u64 {
        self.gaps.iter().sum()
    }

    /// Whether every captured byte is in one place.
    pub fn is_balanced(&self) -> bool {
        self.received == self.delivered + self.duplicate + self.refused() + self.held
    }

    /// Adds the account of another worker.
    pub fn merge(&mut self, other: &Account) {
        let Account { connections, evicted, received, delivered, duplicate, .. } = other;
        self.connections += connections;
        self.evicted += evicted;
        self.received += received;
        self.delivered += delivered;
        self.duplicate += duplicate;
        self.given_up.iter_mut().zip(other.given_up).for_each(|(sum, more)| *sum += more);
        self.gaps.iter_mut().zip(other.gaps).for_each(|(sum, more)| *sum += more);
        self.gap_count += other.gap_count;
        self.held += other.held;
        self.held_packets += other.held_packets;
        self.memory += other.memory;
        self.memory_peak += other.memory_peak;
    }

    pub(crate) fn hold(&mut self, held: &WaitingSegment) {
        self.held += held.len;
        self.held_packets += 1;
        self.memory += held.cost() as u64;
        self.memory_peak = self.memory_peak.max(self.memory);
    }

    pub(crate) fn release(&mut self, held: &WaitingSegment) {
        self.held -= held.len;
        self.held_packets -= 1;
        self.memory -= held.cost() as u64;
    }

    pub(crate) fn give_up(&mut self, why: Refusal, bytes: u64) {
        self.given_up[why as usize] += bytes;
    }

    pub(crate) fn miss(&mut self, why: GapCause, bytes: u64) {
        self.gaps[why as usize] += bytes;
        self.gap_count += 1;
    }
}
