//! The size of the next frame.

use crate::random::Random;
use crate::recipe::Sizes;

/// Chooses one size after the other.
pub(crate) enum SizeChooser {
    Fixed(u32),
    /// Weights, and how many of each size the block still has.
    Weighted {
        list: Vec<(u32, u32)>,
        left: Vec<u32>,
        left_sum: u64,
    },
    Sweep {
        first: u32,
        last: u32,
        step: u32,
        next: u32,
    },
}

impl SizeChooser {
    pub(crate) fn new(sizes: &Sizes) -> SizeChooser {
        match sizes {
            Sizes::Fixed(size) => SizeChooser::Fixed(*size),
            Sizes::Weighted(list) => {
                SizeChooser::Weighted { list: list.clone(), left: vec![0; list.len()], left_sum: 0 }
            }
            &Sizes::Sweep { first, last, step } => {
                SizeChooser::Sweep { first, last, step: step.max(1), next: first }
            }
        }
    }

    #[inline]
    pub(crate) fn next(&mut self, random: &mut Random) -> usize {
        match self {
            SizeChooser::Fixed(size) => *size as usize,
            SizeChooser::Weighted { list, left, left_sum } => weighted(list, left, left_sum, random),
            SizeChooser::Sweep { first, last, step, next } => {
                let size = *next;
                *next = size.checked_add(*step).filter(|next| next <= last).unwrap_or(*first);
                size as usize
            }
        }
    }
}

/// Draws without putting back, so that each block has exactly its shares.
fn weighted(list: &[(u32, u32)], left: &mut [u32], left_sum: &mut u64, random: &mut Random) -> usize {
    if *left_sum == 0 {
        left.iter_mut().zip(list).for_each(|(left, (_, weight))| *left = *weight);
        *left_sum = list.iter().map(|(_, weight)| u64::from(*weight)).sum();
    }
    let mut place = random.below(*left_sum);
    for (left, (size, _)) in left.iter_mut().zip(list) {
        if place < u64::from(*left) {
            *left -= 1;
            *left_sum -= 1;
            return *size as usize;
        }
        place -= u64::from(*left);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(sizes: &Sizes, count: usize) -> Vec<usize> {
        let (mut drawer, mut random) = (SizeChooser::new(sizes), Random::new(1, 1));
        (0..count).map(|_| drawer.next(&mut random)).collect()
    }

    #[test]
    fn each_block_of_a_mix_has_its_shares() {
        let sizes = drawn(&Sizes::imix(), 1200);
        for block in sizes.chunks(12) {
            let count = |size: usize| block.iter().filter(|one| **one == size).count();
            assert_eq!([count(60), count(590), count(1514)], [7, 4, 1]);
        }
        assert_ne!(sizes[..12], sizes[12..24], "not in one rhythm");
    }

    #[test]
    fn a_sweep_begins_again() {
        assert_eq!(drawn(&Sizes::Sweep { first: 60, last: 65, step: 2 }, 7), [60, 62, 64, 60, 62, 64, 60]);
        assert_eq!(Sizes::Sweep { first: 60, last: 65, step: 2 }.bounds(), (60, 64));
    }
}
