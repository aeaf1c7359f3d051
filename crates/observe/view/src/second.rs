//! The totals and the account of a second.

use tapline_flow::{EndReason, Statistics, UnmeteredCause};

use crate::layout::SECOND_WORDS;
use crate::table::Amount;

/// Totals and account of a second, or of several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// End of the second, in nanoseconds since 1970 UTC.
    pub end_ns: u64,
    /// Length of the second, in nanoseconds.
    pub len_ns: u64,
    /// Packets metered.
    pub metered: u64,
    /// Bytes of their frames.
    pub metered_bytes: u64,
    /// Bytes of the metered packets as flows count them.
    pub flow_bytes: u64,
    /// Packets without IP.
    pub not_ip: u64,
    /// Bytes of their frames.
    pub not_ip_bytes: u64,
    /// Packets whose headers were cut short.
    pub cut: u64,
    /// Bytes of their frames.
    pub cut_bytes: u64,
    /// Packets that sampling left out.
    pub sampled_out: u64,
    /// Bytes of their frames.
    pub sampled_out_bytes: u64,
    /// Packets lost in the kernel's ring, or between XDP program and meter.
    pub lost_ring: u64,
    /// Packets lost between the daemon and the meter.
    pub lost_daemon: u64,
    /// Packets lost in card and driver, by their own counters: not part of the sum.
    pub lost_before: u64,
    /// Flows at the end.
    pub active: u64,
    /// Flows that began.
    pub made: u64,
    /// Flows that ended, by reason.
    pub ended: [u64; 5],
    /// Packets older than one before them.
    pub late: u64,
    /// Room of the flow table.
    pub room: u64,
    /// Packets that the sources lent.
    pub delivered: u64,
    /// Workers whose packets are in it.
    pub workers: u64,
    /// Metered packets that were not ranked, because the view's thread was behind: among the others of each table.
    pub unranked: u64,
    /// Packets and bytes, as flows count them, from this host to others. The host's addresses are in the header; without
    /// any, and for packets that were not ranked, directions are not known, and this is 0.
    pub sent: Amount,
    /// Packets and bytes from others to this host, by the same rule.
    pub received: Amount,
}

/// The place of the packets and bytes that were offered: sums of others.
const OFFERED: usize = 3;

/// The places of all other words.
fn places() -> impl Iterator<Item = usize> {
    (1..OFFERED).chain(OFFERED + 2..33)
}

/// A file may have any numbers: sums of them stay at the greatest.
fn sum<const N: usize>(parts: [u64; N]) -> u64 {
    parts.into_iter().fold(0, u64::saturating_add)
}

impl Second {
    /// The totals of a meter since its start.
    pub fn of_statistics(statistics: &Statistics) -> Second {
        let not = |cause: UnmeteredCause| statistics.not_metered[cause as usize];
        let (not_ip, cut, sampled) =
            (not(UnmeteredCause::NotIp), not(UnmeteredCause::Cut), not(UnmeteredCause::Sampled));
        Second {
            metered: statistics.metered.packets,
            metered_bytes: statistics.metered.bytes,
            flow_bytes: statistics.flow_bytes,
            not_ip: not_ip.packets,
            not_ip_bytes: not_ip.bytes,
            cut: cut.packets,
            cut_bytes: cut.bytes,
            sampled_out: sampled.packets,
            sampled_out_bytes: sampled.bytes,
            active: statistics.active,
            made: statistics.made,
            ended: EndReason::OF_METERS.map(|reason| statistics.ended.of(reason)),
            late: statistics.late,
            room: statistics.flows_max,
            workers: 1,
            ..Second::default()
        }
    }

    /// Packets lost between the wire and the meter, as far as the sum has them.
    pub fn lost(&self) -> u64 {
        sum([self.lost_ring, self.lost_daemon])
    }

    /// Packets of the interface: metered, not metered by cause, and lost.
    pub fn offered(&self) -> u64 {
        sum([self.metered, self.not_ip, self.cut, self.sampled_out, self.lost()])
    }

    /// Bytes of the frames of these packets; of lost packets none are known.
    pub fn offered_bytes(&self) -> u64 {
        sum([self.metered_bytes, self.not_ip_bytes, self.cut_bytes, self.sampled_out_bytes])
    }

    /// Totals since `before`, where both are totals since the start of a meter.
    #[must_use]
    pub fn since(&self, before: &Second) -> Second {
        let Second { end_ns, len_ns, active, room, workers, .. } = *self;
        let (mut since, mut before) = (*self, *before);
        for (ours, theirs) in since.words_mut().into_iter().zip(before.words_mut()) {
            *ours = ours.saturating_sub(*theirs);
        }
        Second { end_ns, len_ns, active, room, workers, ..since }
    }

    /// Adds another worker's part of the same second.
    pub fn merge(&mut self, other: &Second) {
        let (end_ns, len_ns) = (self.end_ns.max(other.end_ns), self.len_ns.max(other.len_ns));
        self.add(other);
        (self.end_ns, self.len_ns) = (end_ns, len_ns);
    }

    /// Adds the second that follows.
    pub fn append(&mut self, next: &Second) {
        self.add(next);
        (self.end_ns, self.active, self.room, self.workers) =
            (next.end_ns, next.active, next.room, next.workers);
    }

    fn add(&mut self, other: &Second) {
        let mut other = *other;
        for (ours, theirs) in self.words_mut().into_iter().zip(other.words_mut()) {
            *ours = ours.saturating_add(*theirs);
        }
    }

    /// The words of the file in their order, without the sums at [`OFFERED`].
    fn words_mut(&mut self) -> [&mut u64; 30] {
        let [idle, active, end, forced, full] = &mut self.ended;
        [
            &mut self.end_ns,
            &mut self.len_ns,
            &mut self.metered,
            &mut self.metered_bytes,
            &mut self.flow_bytes,
            &mut self.not_ip,
            &mut self.not_ip_bytes,
            &mut self.cut,
            &mut self.cut_bytes,
            &mut self.sampled_out,
            &mut self.sampled_out_bytes,
            &mut self.lost_ring,
            &mut self.lost_daemon,
            &mut self.lost_before,
            &mut self.active,
            &mut self.made,
            idle,
            active,
            end,
            forced,
            full,
            &mut self.late,
            &mut self.room,
            &mut self.delivered,
            &mut self.workers,
            &mut self.unranked,
            &mut self.sent.packets,
            &mut self.sent.bytes,
            &mut self.received.packets,
            &mut self.received.bytes,
        ]
    }

    /// The words of the file, without the first: `docs/format/view.md`, "A second".
    pub fn to_words(&self) -> [u64; SECOND_WORDS] {
        let (mut words, mut copy) = ([0; SECOND_WORDS], *self);
        for (place, word) in places().zip(copy.words_mut()) {
            words[place] = *word;
        }
        words[OFFERED..OFFERED + 2].copy_from_slice(&[self.offered(), self.offered_bytes()]);
        words
    }

    /// Decodes the words of a second. `None` if their sum does not add up: the file is damaged.
    pub fn of_words(words: &[u64]) -> Option<Second> {
        let at = |place: usize| words.get(place).copied().unwrap_or(0);
        let mut second = Second::default();
        for (place, word) in places().zip(second.words_mut()) {
            *word = at(place);
        }
        let Second { metered, not_ip, cut, sampled_out, lost_ring, lost_daemon, .. } = second;
        let mut parts = [metered, not_ip, cut, sampled_out, lost_ring, lost_daemon].into_iter();
        let sum = parts.try_fold(0u64, |sum, part| sum.checked_add(part));
        (sum == Some(at(OFFERED))).then_some(second)
    }
}
