//! Exact shares: `over` of every `under` packets, evenly spread.

/// A share: `over` of every `under`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The numerator.
    pub over: u32,
    /// The denominator; 1 or more, and no less than `over`.
    pub under: u32,
}

impl Share {
    /// All.
    pub const ALL: Share = Share { over: 1, under: 1 };
}

/// Chooses a share of the packets: exactly `over` of any `under` in a row that start at a multiple.
#[derive(Clone, Debug)]
pub(crate) struct Portion {
    share: Share,
    sum: u64,
}

impl Portion {
    pub(crate) fn new(share: Share) -> Portion {
        Portion { share, sum: 0 }
    }

    #[inline]
    pub(crate) fn next(&mut self) -> bool {
        self.sum += u64::from(self.share.over);
        let is_due = self.sum >= u64::from(self.share.under);
        if is_due {
            self.sum -= u64::from(self.share.under);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_has_its_share() {
        for (over, under) in [(0, 1), (1, 1), (1, 3), (2, 3), (7, 100), (99, 100)] {
            let mut portion = Portion::new(Share { over, under });
            for _ in 0..20 {
                let said = (0..under).filter(|_| portion.next()).count();
                assert_eq!(said, over as usize, "{over}/{under}");
            }
        }
    }
}
