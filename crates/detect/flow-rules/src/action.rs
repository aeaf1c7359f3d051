//! Actions of a rule, and the outputs that a packet goes to.

use tapline_packet::mix::scramble;

/// Outputs as a set of bits: bit 0 for packets that pass, the others in the order of their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Outputs(pub u64);

impl Outputs {
    /// The output of packets that pass.
    pub const PASS: Outputs = Outputs(1);

    /// The output of a number from 0 to 63.
    pub fn of(number: usize) -> Outputs {
        Outputs(1 << number)
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The outputs of both.
    #[must_use]
    pub fn and(self, other: Outputs) -> Outputs {
        Outputs(self.0 | other.0)
    }

    /// Whether an output is among them.
    pub fn has(self, number: usize) -> bool {
        self.0 >> number & 1 == 1
    }
}

/// A share of packets: `chosen` of each `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Share {
    /// At most `of`.
    pub chosen: u32,
    /// At least 1.
    pub of: u32,
}

impl Share {
    /// Whether the packet with this number, from 0, is chosen: of each block of `of` packets exactly `chosen`
    /// neighbours are, counted round the end of the block, from a place that is drawn for each block. The same `salt`
    /// draws the same places.
    #[inline]
    pub fn chooses(self, number: u64, salt: u64) -> bool {
        let of = u64::from(self.of);
        let (block, at) = (number / of, number % of);
        (at + scramble(block ^ salt) % of) % of < u64::from(self.chosen)
    }
}

/// Actions of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Actions {
    /// Outputs that its packets go to; none for rules that drop, or that only count.
    pub outputs: Outputs,
    /// The share of its packets that go there; `None` for all.
    pub sample: Option<Share>,
    /// Whether further rules are asked.
    pub goes_on: bool,
    /// Whether the flow of a packet gets an exact rule with the other actions.
    pub learns: bool,
    /// Seconds without a packet after which an exact rule ends; 0 as the file says.
    pub idle_s: u32,
}

impl Actions {
    /// Packets pass, and no further rule is asked.
    pub const PASS: Actions = Actions::to(Outputs::PASS);

    /// All packets go to these outputs, and no further rule is asked.
    pub const fn to(outputs: Outputs) -> Actions {
        Actions { outputs, sample: None, goes_on: false, learns: false, idle_s: 0 }
    }

    /// The outputs of the packet with this number among those of the rule.
    #[inline]
    pub fn outputs_of(&self, number: u64, salt: u64) -> Outputs {
        match self.sample {
            Some(share) if !share.chooses(number, salt) => Outputs::default(),
            _ => self.outputs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_has_its_share_at_every_place() {
        for (chosen, of) in [(1, 100), (3, 7), (99, 100), (0, 5), (5, 5), (1, 1)] {
            let share = Share { chosen, of };
            let mut places = vec![0_u32; of as usize];
            for block in 0..2000_u64 {
                let number = |at: u32| block * u64::from(of) + u64::from(at);
                let taken: Vec<u32> = (0..of).filter(|at| share.chooses(number(*at), 7)).collect();
                assert_eq!(taken.len(), chosen as usize, "{chosen}/{of}");
                taken.iter().for_each(|at| places[*at as usize] += 1);
            }
            let expected = 2000.0 * f64::from(chosen) / f64::from(of);
            let is_even = |times: &u32| (f64::from(*times) - expected).abs() <= 5.0 * expected.sqrt() + 1.0;
            assert!(places.iter().all(is_even), "{chosen}/{of}: {places:?}");
        }
    }
}
