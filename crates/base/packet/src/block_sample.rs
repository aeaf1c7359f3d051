//! A sample of exactly `over` packets of each block of `under`, decided by a packet's number alone: so that the same
//! packets are chosen here and by a program in the kernel, where processors number packets together.
//!
//! ```text
//! number = block * under + place
//! chosen = (place * step + start) mod under < over        start = mixed(seed + block * GOLDEN) mod under, new for each block
//! ```
//!
//! The step has no divisor in common with `under`, so each block has exactly `over` places that are chosen; the random
//! start makes each place as likely as any other, so that periodic traffic is not sampled unevenly.

use crate::mix::{GOLDEN, mixed};

/// A sample of packets by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSample {
    over: u64,
    under: u64,
    step: u64,
    seed: u64,
}

impl BlockSample {
    /// `over` of each `under` packets. With `over` of 0 none, from `under` on all are chosen. An `under` of 0 counts
    /// as 1.
    pub fn new(over: u64, under: u64, seed: u64) -> BlockSample {
        let under = under.max(1);
        let golden = ((u128::from(under) * u128::from(GOLDEN)) >> 64) as u64;
        let step = (golden.max(1)..).find(|step| greatest_divisor(*step, under) == 1).unwrap_or(1);
        BlockSample { over, under, step: step % under, seed }
    }

    /// Number of packets chosen of each block.
    pub fn over(&self) -> u64 {
        self.over
    }

    /// Number of packets of a block.
    pub fn under(&self) -> u64 {
        self.under
    }

    /// The distance of neighbours.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The seed of the random starts.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Whether the packet of this number, from 0, is chosen.
    #[inline]
    pub fn chooses(&self, number: u64) -> bool {
        let (block, place) = (number / self.under, number % self.under);
        let start = mixed(self.seed.wrapping_add(block.wrapping_mul(GOLDEN))) % self.under;
        let turned = match u32::try_from(self.under) {
            Ok(_) => (place * self.step + start) % self.under,
            Err(_) => {
                let under = u128::from(self.under);
                ((u128::from(place) * u128::from(self.step) + u128::from(start)) % under) as u64
            }
        };
        turned < self.over
    }
}

fn greatest_divisor(mut one: u64, mut other: u64) -> u64 {
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_even_over_blocks_and_positions() {
        for (over, under) in [(1, 1), (0, 5), (5, 5), (1, 100), (3, 7), (999, 1000), (2, 1 << 33)] {
            let sample = BlockSample::new(over, under, 7);
            for block in 0..3 {
                let places = block * under..(block + 1) * under;
                let chosen = places.take(1 << 16).filter(|number| sample.chooses(*number)).count() as u64;
                assert!(chosen == over || under > 1 << 16, "{over}/{under}: {chosen}");
            }
        }
        let tenth = BlockSample::new(1, 10, 1);
        let mut turns = [0; 10];
        (0..20_000)
            .filter(|number| tenth.chooses(*number))
            .for_each(|number| turns[number as usize % 10] += 1);
        assert!(turns.iter().all(|turn| (150..250).contains(turn)), "{turns:?}");
    }
}
