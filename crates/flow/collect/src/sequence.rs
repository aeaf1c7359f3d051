//! Sequence numbers: the losses of a source.
//!
//! ```text
//! next expected        number of a message + units in it
//! number ahead         the units between are lost
//! number in the gap    a late message: what it has was counted as lost, and is not
//! far off              the exporter restarted, once another message goes on from there; else a copy or a forgery
//! ```
//!
//! Exporters count otherwise than their protocol says: datagrams in IPFIX, records in version 9, the records of the
//! message among those before it. So each number is read in several ways, and that way counts in which the most messages
//! go on from the one before: the protocol's own, unless another fits better.

use crate::{Protocol, SourceAccount};

/// From this gap on, in units, it is not a loss: the exporter restarted.
const GAP_MAX: u32 = 1 << 24;

/// Messages in order that another way of counting must have ahead of the protocol's own.
const FIT: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SequenceUnit {
    /// Datagrams before the message.
    Datagrams,
    /// Records before the message.
    Records,
    /// Records before and in the message.
    RecordsWithOwn,
}

impl SequenceUnit {
    /// The ways of a protocol, its own first.
    fn all(protocol: Protocol) -> &'static [SequenceUnit] {
        match protocol {
            Protocol::SFlow5 => &[SequenceUnit::Datagrams],
            Protocol::NetFlow9 => {
                &[SequenceUnit::Datagrams, SequenceUnit::Records, SequenceUnit::RecordsWithOwn]
            }
            _ => &[SequenceUnit::Records, SequenceUnit::Datagrams, SequenceUnit::RecordsWithOwn],
        }
    }

    fn unit(self, protocol: Protocol) -> &'static str {
        match (self, protocol) {
            (SequenceUnit::Datagrams, _) => "datagrams",
            (_, Protocol::NetFlow9) => "records",
            _ => protocol.unit(),
        }
    }
}

/// The sequence numbers of a source, in each way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sequences {
    ways: [(Sequence, Counts); 3],
    /// The number that came last.
    last: u32,
}

/// Counts of one way.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    lost: u64,
    late: u64,
    restarts: u64,
    in_order: u64,
}

impl Sequences {
    /// Whether a message of this number is the first one of an exporter that counted as its protocol says, and has sent
    /// some before: not a number that has wrapped.
    pub(crate) fn begins_anew(&self, number: u32) -> bool {
        let (Sequence { next, .. }, Counts { in_order, .. }) = self.ways[0];
        number == 0
            && self.last > 0
            && in_order > 0
            && next.is_some_and(|next| next > 0 && number.wrapping_sub(next) > GAP_MAX)
    }

    /// Notes a message of `number` with so many records of flows and options; `None` if they are unknown. Whether it goes
    /// on from the one before.
    pub(crate) fn note(&mut self, number: u32, records: Option<u32>, account: &mut SourceAccount) -> bool {
        let ways = SequenceUnit::all(account.protocol);
        self.last = number;
        let mut is_in_order = false;
        for (way, (sequence, counts)) in ways.iter().zip(&mut self.ways) {
            let (number, units) = match way {
                SequenceUnit::Datagrams => (number, Some(1)),
                SequenceUnit::Records => (number, records),
                SequenceUnit::RecordsWithOwn => (number.wrapping_sub(records.unwrap_or(0)), records),
            };
            let goes_on = sequence.note(number, units, counts);
            counts.in_order += u64::from(goes_on);
            is_in_order |= goes_on;
        }
        let own = self.ways[0].1.in_order;
        let best = (1..ways.len()).filter(|at| self.ways[*at].1.in_order >= own + FIT);
        let best = best.max_by_key(|at| (self.ways[*at].1.in_order, usize::MAX - at)).unwrap_or(0);
        let Counts { lost, late, restarts, .. } = self.ways[best].1;
        (account.lost, account.late, account.restarts) = (lost, late, restarts);
        account.unit = ways[best].unit(account.protocol);
        is_in_order
    }
}

/// The sequence number that a source's next message should have.
#[derive(Clone, Copy, Debug, Default)]
struct Sequence {
    /// `None` before the first message, and after one whose units could not be counted.
    next: Option<u32>,
    gap: Gap,
    /// The number that goes on from a message that was far off.
    restart: Option<u32>,
}

/// The gap that was seen last: a message whose number is in it is late.
#[derive(Clone, Copy, Debug, Default)]
struct Gap {
    start: u32,
    len: u32,
    /// Units that are still missing.
    missing: u32,
}

impl Sequence {
    /// Notes a message of `number`, with `units` units; `None` if they are unknown. Whether it goes on from the one
    /// before.
    fn note(&mut self, number: u32, units: Option<u32>, counts: &mut Counts) -> bool {
        let after = units.map(|units| number.wrapping_add(units));
        let Some(next) = self.next else {
            self.next = after;
            return false;
        };
        if self.restart == Some(number) && number != next {
            counts.restarts += 1;
            *self = Sequence { next: after, ..Sequence::default() };
            return true;
        }
        let ahead = number.wrapping_sub(next);
        if ahead == 0 {
            self.next = after;
        } else if ahead <= GAP_MAX {
            counts.lost += u64::from(ahead);
            self.gap = Gap { start: next, len: ahead, missing: ahead };
            self.next = after;
        } else if number.wrapping_sub(self.gap.start) < self.gap.len && self.gap.missing > 0 {
            let found = units.unwrap_or(1).min(self.gap.missing);
            counts.late += 1;
            counts.lost -= u64::from(found).min(counts.lost);
            self.gap.missing -= found;
        } else {
            self.restart = after;
        }
        ahead == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Protocol;

    fn noted(messages: &[(u32, Option<u32>)]) -> (u64, u64, u64) {
        let mut account = Counts::default();
        let mut sequence = Sequence::default();
        for &(number, units) in messages {
            sequence.note(number, units, &mut account);
        }
        (account.lost, account.late, account.restarts)
    }

    #[test]
    fn gaps_are_losses_until_they_are_filled() {
        assert_eq!(noted(&[(0, Some(10)), (10, Some(5)), (15, Some(5))]), (0, 0, 0));
        assert_eq!(noted(&[(7, Some(10)), (27, Some(5))]), (10, 0, 0));
        assert_eq!(noted(&[(7, Some(10)), (27, Some(5)), (17, Some(10)), (32, Some(1))]), (0, 1, 0));
        assert_eq!(noted(&[(u32::MAX - 4, Some(10)), (5, Some(5)), (12, Some(1))]), (2, 0, 0));
    }

    #[test]
    fn a_far_number_is_a_restart() {
        assert_eq!(noted(&[(5_000_000, Some(10)), (0, Some(10)), (10, Some(1)), (12, Some(1))]), (1, 0, 1));
        assert_eq!(noted(&[(100, Some(10)), (0, Some(10)), (10, Some(10))]), (0, 0, 1));
        assert_eq!(noted(&[(0, Some(1)), (1 << 30, Some(1)), ((1 << 30) + 1, None)]), (0, 0, 1));
    }

    #[test]
    fn copies_and_lone_forgeries_change_nothing() {
        let copied = [(0, Some(10)), (10, Some(10)), (20, Some(10)), (10, Some(10)), (30, Some(10))];
        assert_eq!(noted(&copied), (0, 0, 0));
        assert_eq!(noted(&[(0, Some(10)), (1 << 30, Some(10)), (10, Some(10)), (20, Some(1))]), (0, 0, 0));
    }

    /// Lost units and their name after these messages: number and records.
    fn lost(protocol: Protocol, messages: impl IntoIterator<Item = (u32, u32)>) -> (u64, &'static str) {
        let mut account = SourceAccount::new([192, 0, 2, 1].into(), 4739, protocol, 0);
        let mut sequences = Sequences::default();
        for (number, records) in messages {
            sequences.note(number, Some(records), &mut account);
        }
        (account.lost, account.unit)
    }

    #[test]
    fn exporters_that_count_against_the_protocol() {
        let records = |at: u32| 2 + at % 3;
        let before = |at: u32| (0..at).map(records).sum::<u32>();
        let v9 = |each: fn(u32, u32, u32) -> Option<u32>| {
            let message = |at| Some((each(at, before(at), records(at))?, records(at)));
            lost(Protocol::NetFlow9, (0..20).filter_map(message))
        };
        assert_eq!(v9(|at, _, _| Some(at)), (0, "datagrams"));
        assert_eq!(v9(|at, _, _| (at != 7).then_some(at)), (1, "datagrams"));
        assert_eq!(v9(|_, before, _| Some(before)), (0, "records"));
        assert_eq!(v9(|_, before, own| Some(before + own)), (0, "records"));
        assert_eq!(v9(|at, before, _| (at != 7).then_some(before)), (u64::from(records(7)), "records"));
        let ipfix = |each: fn(u32, u32, u32) -> u32| {
            lost(Protocol::Ipfix, (0..20).map(|at| (each(at, before(at), records(at)), records(at))))
        };
        assert_eq!(ipfix(|_, before, _| before), (0, "records"));
        assert_eq!(ipfix(|at, _, _| at), (0, "datagrams"));
        // A message of one record each says nothing of the way: the protocol's own counts.
        assert_eq!(lost(Protocol::NetFlow9, (0..20).map(|at| (at, 1))), (0, "datagrams"));
    }

    /// Records of a set without a template cannot be counted: no gap is reported behind it.
    #[test]
    fn unknown_units_tell_no_loss() {
        assert_eq!(noted(&[(0, None), (50, Some(10)), (70, Some(1))]), (10, 0, 0));
    }
}
