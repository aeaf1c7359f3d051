//! Length of the pieces and distance of the lookups: the tiers of a set.
//!
//! ```text
//! shortest key of the tier   1     2     3     4     5     6     7     8     9    10    13
//! piece, stride             1,1   2,1   3,1   4,1   4,2   4,3   4,4   6,3   6,4   6,5   6,8
//! ```
//!
//! A piece and its shifts need q + stride - 1 bytes of the shortest key. Longer pieces are rarer, longer strides save
//! lookups; six bytes where there is room, because four of a word are often those of another word.

use crate::keys::Keys;

/// The length of pieces, and the distance of lookups, both in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) q: u8,
    pub(crate) stride: u8,
}

impl Shape {
    /// The bytes of a piece, in a number of eight.
    pub(crate) fn mask(self) -> u64 {
        u64::MAX >> (64 - 8 * u32::from(self.q))
    }

    /// Cycles a byte for `keys` keys, by the measurements in `docs/search.md`.
    fn cost(self, keys: usize) -> f32 {
        /// Cost of a lookup in the small table, and in a large one; of a hit.
        const SPARSE: f32 = 1.5;
        const DENSE: f32 = 2.8;
        const SIX: f32 = 0.6;
        const HIT: f32 = 20.0;
        let pieces = keys as f32 * f32::from(self.stride);
        let lookup = if pieces <= super::scan::SPARSE_MAX as f32 { SPARSE } else { DENSE };
        // How often one piece of a key is met in mixed traffic.
        let met = match self.q {
            1 => 1e-2,
            2 => 7e-4,
            3 => 7e-5,
            4 => 3e-6,
            _ => 5e-7,
        };
        let longer = if self.q > 4 { SIX } else { 0.0 };
        (lookup + longer + HIT * pieces * met) / f32::from(self.stride)
    }
}

/// Lengths from which a better shape is possible, with that shape.
const SHAPES: [(usize, Shape); 11] = [
    (1, Shape { q: 1, stride: 1 }),
    (2, Shape { q: 2, stride: 1 }),
    (3, Shape { q: 3, stride: 1 }),
    (4, Shape { q: 4, stride: 1 }),
    (5, Shape { q: 4, stride: 2 }),
    (6, Shape { q: 4, stride: 3 }),
    (7, Shape { q: 4, stride: 4 }),
    (8, Shape { q: 6, stride: 3 }),
    (9, Shape { q: 6, stride: 4 }),
    (10, Shape { q: 6, stride: 5 }),
    (13, Shape { q: 6, stride: 8 }),
];
const CLASSES: usize = SHAPES.len();

/// Splits the keys into tiers, long ones last.
pub(crate) fn tiers(keys: &Keys) -> Vec<(Shape, Vec<usize>)> {
    let (cuts, _) = best_cuts(&histogram(keys));
    let mut tiers: Vec<(Shape, Vec<usize>)> = Vec::new();
    for (from, to) in segments(cuts) {
        let members = (0..keys.len()).filter(|key| (from..to).contains(&class(keys.bytes(*key).len())));
        let members: Vec<usize> = members.collect();
        let shortest = members.iter().map(|key| keys.bytes(*key).len()).min();
        tiers.extend(shortest.map(|len| (SHAPES[class(len)].1, members)));
    }
    tiers
}

/// Cycles a byte.
pub(crate) fn cost(keys: &Keys) -> f32 {
    best_cuts(&histogram(keys)).1
}

/// The classes that begin the second and the third tier, and the cost.
fn best_cuts(histogram: &[usize; CLASSES]) -> ([usize; 2], f32) {
    let cuts = (0..=CLASSES).flat_map(|first| (first..=CLASSES).map(move |second| [first, second]));
    let cost =
        |cuts: [usize; 2]| segments(cuts).map(|(from, to)| segment_cost(histogram, from, to)).iter().sum();
    cuts.map(|cuts| (cuts, cost(cuts)))
        .min_by(|a: &(_, f32), b| a.1.total_cmp(&b.1))
        .unwrap_or(([CLASSES; 2], 0.0))
}

fn segments([first, second]: [usize; 2]) -> [(usize, usize); 3] {
    [(0, first), (first, second), (second, CLASSES)]
}

fn segment_cost(histogram: &[usize; CLASSES], from: usize, to: usize) -> f32 {
    let keys: usize = histogram[from..to].iter().sum();
    let shortest = (from..to).find(|class| histogram[*class] > 0);
    shortest.map_or(0.0, |class| SHAPES[class].1.cost(keys))
}

fn histogram(keys: &Keys) -> [usize; CLASSES] {
    let mut histogram = [0; CLASSES];
    for key in keys.iter() {
        histogram[class(key.len())] += 1;
    }
    histogram
}

fn class(len: usize) -> usize {
    SHAPES.partition_point(|(least, _)| *least <= len) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pattern;

    fn tiers_of(lens: impl IntoIterator<Item = usize>) -> Vec<(Shape, usize)> {
        let pattern = |(id, len): (usize, usize)| {
            let bytes = (0..len).map(|at| (id >> (8 * (at % 2))) as u8).collect::<Vec<_>>();
            Pattern::new(id as u32, bytes)
        };
        let patterns: Vec<Pattern> = lens.into_iter().enumerate().map(pattern).collect();
        tiers(&Keys::new(&patterns)).into_iter().map(|(shape, members)| (shape, members.len())).collect()
    }

    #[test]
    fn every_shape_fits_its_shortest_key() {
        for (len, shape) in SHAPES {
            assert!(usize::from(shape.q + shape.stride) - 1 <= len, "{shape:?}");
        }
    }

    #[test]
    fn similar_lengths_share_a_tier() {
        assert_eq!(tiers_of([6; 100].into_iter().chain([15; 300])), [(Shape { q: 4, stride: 3 }, 400)]);
    }

    #[test]
    fn few_short_keys_do_not_slow_many_long_ones() {
        let shapes = tiers_of([2; 3].into_iter().chain([20; 5000]));
        assert_eq!(shapes, [(Shape { q: 2, stride: 1 }, 3), (Shape { q: 6, stride: 8 }, 5000)]);
    }
}
