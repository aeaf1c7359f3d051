//! The counts of a reader: those of the daemon, from the moment of attaching on, and those of daemons that are gone.

use tapline_ring::{Reader, SourceCounter as Counted};
use tapline_source::{Count, InterfaceAccount, Loss, LossPoint, TapAccount, UncapturedCounts};

use super::Tap;
use crate::protocol::ReaderCounts;

/// The counters of losses before the readers, and their names.
pub(super) const PLACES: [(Counted, &str); 4] = [
    (Counted::Nic, "nic"),
    (Counted::Driver, "driver"),
    (Counted::KernelRing, "kernel ring"),
    (Counted::Xdp, "xdp"),
];

/// The counter of interfaces that the daemon could not capture while we read. Their names are not ours to know.
const UNCAPTURED: &str = "at least one interface of the capture";

/// Sums of daemons that are gone.
pub(super) struct Past {
    pub(super) counts: ReaderCounts,
    /// Losses by [`PLACES`]; counts that the last daemon did not report stay unknown.
    pub(super) losses: [Option<u64>; PLACES.len()],
    /// Whether an interface could not be captured.
    pub(super) has_uncaptured: bool,
    /// Failures to capture interfaces; all of them are over.
    pub(super) uncaptured: UncapturedCounts,
}

impl Default for Past {
    fn default() -> Past {
        Past {
            counts: ReaderCounts::default(),
            losses: [Some(0); PLACES.len()],
            has_uncaptured: false,
            uncaptured: UncapturedCounts::default(),
        }
    }
}

impl Tap {
    /// Counters of the daemon's sources, of all workers together.
    pub(super) fn counts(&self) -> [Option<u64>; PLACES.len()] {
        PLACES.map(|(place, _)| {
            let mut counts = self.merged.readers().map(|reader| reader.source().get(place));
            counts.try_fold(0_u64, |sum, count| Some(sum.saturating_add(count?)))
        })
    }

    /// Whether there was an interface during the reading that the daemon could not capture. An older daemon does not
    /// know.
    pub(super) fn has_uncaptured(&self) -> bool {
        let begun = self.merged.readers().map(|reader| reader.source().get(Counted::UncapturedBegun));
        let mut of_buffers = begun.zip(&self.ended_before);
        let has_some = |(begun, ended): (Option<u64>, &Option<u64>)| {
            begun.zip(*ended).is_some_and(|(begun, ended)| begun > ended)
        };
        self.past.has_uncaptured || of_buffers.any(has_some)
    }

    /// The counts of all daemons, and the losses during the reading.
    pub(super) fn sums(&mut self) -> (ReaderCounts, [Option<u64>; PLACES.len()]) {
        let mut counts = self.past.counts;
        counts.merge(&ReaderCounts::from(self.merged.account()));
        let (now, before, past) = (self.counts(), self.before, self.past.losses);
        let loss = |at: usize| past[at]?.checked_add(now[at]?.saturating_sub(before[at]?));
        (counts, std::array::from_fn(loss))
    }

    /// The account of all that this reader was offered.
    pub(super) fn interface_account(&mut self) -> InterfaceAccount {
        let (counts, losses) = self.sums();
        let lost = |(&(_, name), count): (&(Counted, &str), Option<u64>)| {
            Some(Loss { place: LossPoint::Daemon, counter: name.to_owned(), count: Count::Known(count?) })
        };
        let mut losses: Vec<Loss> = PLACES.iter().zip(losses).filter_map(lost).collect();
        for (is_so, place, counter) in [
            (self.has_uncaptured(), LossPoint::Uncaptured, UNCAPTURED),
            (self.was_absent, LossPoint::Daemon, "while there was no daemon"),
            (self.is_silent, LossPoint::Daemon, "after the last report of the daemon"),
        ] {
            if is_so {
                losses.push(Loss { place, counter: counter.to_owned(), count: Count::Unknown });
            }
        }
        InterfaceAccount {
            losses,
            kernel_filtered: Count::Unknown,
            tap: Some(TapAccount {
                offered: counts.offered,
                index_full: counts.index_full,
                overwritten: counts.overwritten,
                damaged: counts.damaged,
                unread: counts.offered.saturating_sub(counts.lost().saturating_add(self.delivered)),
                interfaces: self.interfaces.list().len(),
            }),
            ..InterfaceAccount::of_file(&self.name, self.delivered)
        }
    }

    /// Failures to capture interfaces, of all daemons.
    pub(super) fn uncaptured_counts(&self) -> UncapturedCounts {
        let mut now = UncapturedCounts::default();
        for source in self.merged.readers().map(Reader::source) {
            // An older daemon does not know.
            let of = |place| source.get(place).unwrap_or(0);
            let (begun, ended) = (of(Counted::UncapturedBegun), of(Counted::UncapturedEnded));
            now.merge(UncapturedCounts { begun, ended });
        }
        now.add(self.past.uncaptured);
        now
    }
}
