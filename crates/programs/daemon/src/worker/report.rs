//! Counters of a worker, for the control thread and for readers.

use std::time::Duration;

use tapline_ring::{Guarantee, SourceCounter as Counted, SourceCounts};
use tapline_source::{InterfaceAccount, LossPoint, UncapturedCounts};
use tapline_tap_client::protocol::ReaderCounts;

use crate::view::{Rights, View};

/// Counters of a worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) unwanted: u64,
    /// Packets of `unwanted` that came while the capture was paused.
    pub(crate) paused: u64,
    pub(crate) is_paused: bool,
    /// Fragments that groups gave out by their addresses, as their first fragment was not known.
    pub(crate) fragments_apart: u64,
    pub(crate) stored: u64,
    pub(crate) not_stored: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) interfaces: Vec<InterfaceAccount>,
    /// Interfaces that are meant and could not be captured.
    pub(crate) uncaptured: UncapturedCounts,
    pub(crate) readers: Vec<ReaderReport>,
    /// Counters of each buffer.
    pub(crate) views: Vec<ViewReport>,
    /// Instructions of the kernel's filter; `None` if it lets everything through.
    pub(crate) restricted: Option<usize>,
    /// The lossless reader that blocks the worker, and for how long.
    pub(crate) blocked: Option<(u64, Duration)>,
    /// The reason for which the source ended by itself; empty for the end of a file.
    pub(crate) ended: Option<String>,
}

/// Counters of one reader of a worker.
#[derive(Clone, Debug)]
pub(crate) struct ReaderReport {
    pub(crate) number: u64,
    pub(crate) counts: ReaderCounts,
    pub(crate) standing: Guarantee,
    pub(crate) wakes: u64,
    /// Stored packets that are still to be looked at for it.
    pub(crate) past: u64,
}

/// Counters of one buffer of a worker.
#[derive(Clone, Debug)]
pub(crate) struct ViewReport {
    pub(crate) rights: Rights,
    pub(crate) stored: u64,
    pub(crate) bytes: u64,
    pub(crate) not_stored: u64,
}

impl ViewReport {
    pub(super) fn of(view: &View) -> ViewReport {
        ViewReport {
            rights: view.rights.clone(),
            stored: view.writer.stored(),
            bytes: view.writer.stored_bytes(),
            not_stored: view.writer.unstored_packets(),
        }
    }
}

/// The source's counters for readers of a buffer. Readers that may not see everything get neither `unwanted` nor any
/// count that depends on the filters of others: it would reveal what those found in bytes that are withheld here. No
/// reader gets the name of an interface here.
pub(super) fn source_counts(
    accounts: &[InterfaceAccount],
    uncaptured: UncapturedCounts,
    unwanted: Option<u64>,
) -> SourceCounts {
    let mut counts = SourceCounts::new();
    let sum = |of: &dyn Fn(&InterfaceAccount) -> Option<u64>| accounts.iter().map(of).sum::<Option<u64>>();
    let losses = |account: &InterfaceAccount, place: LossPoint| {
        let told = account.losses.iter().filter(|loss| loss.place == place && !loss.counts_unwanted_frames());
        told.map(|loss| loss.count.known()).sum()
    };
    counts.set(Counted::Nic, sum(&|account| losses(account, LossPoint::Nic)));
    counts.set(Counted::Driver, sum(&|account| losses(account, LossPoint::Driver)));
    let dropped = |is_xdp: bool| {
        sum(&|account| match account.xdp.is_some() == is_xdp {
            true => account.ring.map(|ring| ring.dropped),
            false => Some(0),
        })
    };
    counts.set(Counted::KernelRing, dropped(false));
    counts.set(Counted::Xdp, dropped(true));
    counts.set(Counted::File, sum(&|account| losses(account, LossPoint::File)));
    counts.set(Counted::UncapturedBegun, Some(uncaptured.begun));
    counts.set(Counted::UncapturedEnded, Some(uncaptured.ended));
    if unwanted.is_some() {
        counts.set(Counted::Received, sum(&|account| account.ring.map(|ring| ring.received)));
        counts.set(Counted::KernelFiltered, sum(&|account| account.kernel_filtered.known()));
        counts.set(Counted::Unwanted, unwanted);
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn withheld_counters_are_unknown() {
        let accounts = [InterfaceAccount::of_file("a", 5)];
        let uncaptured = UncapturedCounts { begun: 2, ended: 1 };
        let full = source_counts(&accounts, uncaptured, Some(3));
        assert_eq!(full.get(Counted::Unwanted), Some(3));
        let withheld = source_counts(&accounts, uncaptured, None);
        for place in [Counted::Received, Counted::KernelFiltered, Counted::Unwanted] {
            assert_eq!(withheld.get(place), None);
        }
        // The file lost nothing, for either.
        assert_eq!(full.get(Counted::KernelRing), withheld.get(Counted::KernelRing));
        assert_eq!(
            withheld.get(Counted::UncapturedBegun),
            Some(2),
            "any of them may have had packets for it"
        );
        assert_eq!(withheld.get(Counted::UncapturedEnded), Some(1));
    }
}
