//! Packets by size.

/// The greatest size of each class but the last, in bytes of IP packets (or of frames, if the meter counts these);
/// longer ones are in the last class.
pub const SIZES: [u32; 6] = [64, 128, 256, 512, 1024, 1500];

/// Packets of each class of size.
pub type SizeCounts = [u32; SIZES.len() + 1];

/// Counts a packet. A count that is full stays so.
pub(super) fn count(counts: &mut SizeCounts, bytes: u32) {
    let class = SIZES.iter().position(|most| bytes <= *most).unwrap_or(SIZES.len());
    counts[class] = counts[class].saturating_add(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_has_its_class() {
        let mut counts = SizeCounts::default();
        [20, 64, 65, 128, 129, 256, 257, 512, 513, 1024, 1025, 1500, 1501, 9000]
            .into_iter()
            .for_each(|bytes| count(&mut counts, bytes));
        assert_eq!(counts, [2; 7]);
    }
}
