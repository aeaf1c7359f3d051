//! The fate of the packets that a reader was offered, and of those that never came to the ring.
//!
//! ```text
//! offered = delivered + lost        lost = index full + overwritten + damaged + unread
//! ```

use std::fmt;

/// The fate of a reader's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Packets meant for it. Counted by the writer.
    pub offered: u64,
    /// Packets handed on, and done with. Reported by the reader.
    pub delivered: u64,
    /// Packets that it did not get.
    pub lost: LossCounts,
    /// Whether the reader reported impossible counts, and is not believed further. `offered` is right all the same.
    pub is_implausible: bool,
}

/// Packets that a reader did not get, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossCounts {
    /// The index was full. Counted by the writer.
    pub index_full: u64,
    /// The packets were gone from the buffer before the reader came to them. Reported by the reader.
    pub overwritten: u64,
    /// The packets made no sense: a fault of the writer. Reported by the reader.
    pub damaged: u64,
    /// Packets not looked at: lost at the reader's end, still to come before.
    pub unread: u64,
}

impl LossCounts {
    /// All causes together. A dishonest writer may give any number, so the sum does not wrap around.
    pub fn total(&self) -> u64 {
        let LossCounts { index_full, overwritten, damaged, unread } = *self;
        [overwritten, damaged, unread].into_iter().fold(index_full, u64::saturating_add)
    }
}

impl Account {
    /// Whether offered = delivered + lost.
    pub fn balances(&self) -> bool {
        self.offered == self.delivered.saturating_add(self.lost.total())
    }

    /// Adds another's, such as that of the same reader in another buffer.
    pub fn merge(&mut self, other: &Account) {
        for (sum, count) in [
            (&mut self.offered, other.offered),
            (&mut self.delivered, other.delivered),
            (&mut self.lost.index_full, other.lost.index_full),
            (&mut self.lost.overwritten, other.lost.overwritten),
            (&mut self.lost.damaged, other.lost.damaged),
            (&mut self.lost.unread, other.lost.unread),
        ] {
            *sum = sum.saturating_add(count);
        }
        self.is_implausible |= other.is_implausible;
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Account { offered, delivered, lost, .. } = self;
        write!(
            f,
            "offered {offered} = delivered {delivered} + index full {} + overwritten {} + damaged {} + unread {}",
            lost.index_full, lost.overwritten, lost.damaged, lost.unread
        )
    }
}

/// Counters of a source before the ring: packets received, lost or left out, and interfaces that were not captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceCounter {
    /// Came to the source.
    Received = 0,
    /// Lost in the network card.
    Nic = 1,
    /// Lost in its driver.
    Driver = 2,
    /// Lost because the kernel's ring was full.
    KernelRing = 3,
    /// Lost before AF_XDP's ring.
    Xdp = 4,
    /// Left out by a filter in the kernel.
    KernelFiltered = 5,
    /// Lost when the file that is read now was captured.
    File = 6,
    /// Wanted by no reader.
    Unwanted = 7,
    /// Sampled out.
    Sampled = 8,
    /// Left in the kernel's ring at the end.
    KernelUnread = 9,
    /// Failures to capture an interface whose packets are meant for readers: their number is unknown. Each lasted for a
    /// second or longer.
    UncapturedBegun = 10,
    /// Failures of `UncapturedBegun` that are over. A reader that attaches now misses nothing by them.
    UncapturedEnded = 11,
}

pub(crate) const PLACES: usize = 16;
const UNKNOWN: u64 = u64::MAX;

/// The source's counters, by place. Each is unknown until it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceCounts {
    pub(crate) words: [u64; PLACES],
}

impl SourceCounts {
    /// Nothing known.
    pub fn new() -> SourceCounts {
        SourceCounts { words: [UNKNOWN; PLACES] }
    }

    /// The count at a place; `None` if it is not known.
    pub fn get(&self, place: SourceCounter) -> Option<u64> {
        Some(self.words[place as usize]).filter(|count| *count != UNKNOWN)
    }

    /// Sets the count at a place; `None` means that it is not known. 2^64 - 1 cannot be distinguished from that.
    pub fn set(&mut self, place: SourceCounter, count: Option<u64>) {
        self.words[place as usize] = count.unwrap_or(UNKNOWN);
    }
}

impl Default for SourceCounts {
    fn default() -> SourceCounts {
        SourceCounts::new()
    }
}
