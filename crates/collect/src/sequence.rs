//! Sequence numbers: what is missing of a source.
//!
//! ```text
//! next expected        number of a message + units in it
//! number ahead         the units between are lost
//! number in the gap    a late message: what it has was counted as lost, and is not
//! far off              the exporter began anew, once another message goes on from there; else a copy or a forgery
//! ```

use crate::SourceAccount;

/// Further than this, in units, no gap is a loss: the exporter began anew.
const GAP_MAX: u32 = 1 << 24;

/// The sequence number that a source's next message should have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sequence {
    /// `None` before the first message, and after one whose units could not be counted.
    next: Option<u32>,
    gap: Gap,
    /// The number that goes on from a message that was far off.
    anew: Option<u32>,
}

/// The gap that was seen last: a message whose number lies in it is late.
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
    pub(crate) fn note(&mut self, number: u32, units: Option<u32>, account: &mut SourceAccount) -> bool {
        let after = units.map(|units| number.wrapping_add(units));
        let Some(next) = self.next else {
            self.next = after;
            return false;
        };
        if self.anew == Some(number) && number != next {
            account.restarts += 1;
            *self = Sequence { next: after, ..Sequence::default() };
            return true;
        }
        let ahead = number.wrapping_sub(next);
        if ahead == 0 {
            self.next = after;
        } else if ahead <= GAP_MAX {
            account.lost += u64::from(ahead);
            self.gap = Gap { start: next, len: ahead, missing: ahead };
            self.next = after;
        } else if number.wrapping_sub(self.gap.start) < self.gap.len && self.gap.missing > 0 {
            let found = units.unwrap_or(1).min(self.gap.missing);
            account.late += 1;
            account.lost -= u64::from(found).min(account.lost);
            self.gap.missing -= found;
        } else {
            self.anew = after;
        }
        ahead == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Protocol;

    fn noted(messages: &[(u32, Option<u32>)]) -> (u64, u64, u64) {
        let mut account = SourceAccount::new([192, 0, 2, 1].into(), 4739, Protocol::Ipfix, 0);
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

    /// Records of a set without a template cannot be counted: no gap is told behind it.
    #[test]
    fn unknown_units_tell_no_loss() {
        assert_eq!(noted(&[(0, None), (50, Some(10)), (70, Some(1))]), (10, 0, 0));
    }
}
