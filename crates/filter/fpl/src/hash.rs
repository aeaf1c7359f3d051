//! The hash of `HASH`: fixed, so that programs, engines and applications agree on every machine and in every release.
//!
//! ```text
//! hash(bytes, seed):
//!   h = seed xor len * A
//!   for each 8 bytes, and for the 1 to 7 at the end:  w = them as a little-endian number
//!       h = (h xor w) * B;  h = h xor (h >> 32)
//!   h = h * C;  h = h xor (h >> 29)
//! ```
//!
//! Arithmetic is modulo 2^64. Each step can be undone, so inputs of up to 8 bytes never collide before the mask. The
//! hash spreads well; it does not withstand an attacker with the seed.

/// Odd, and with bits set at random: 2^64 divided by the golden ratio.
pub(super) const A: u64 = 0x9e37_79b9_7f4a_7c15;
/// The two multipliers of SplitMix64's finish (Steele, Lea, Flood, 2014).
pub(super) const B: u64 = 0xbf58_476d_1ce4_e5b9;
pub(super) const C: u64 = 0x94d0_49bb_1331_11eb;

/// The value of `HASH(start, len, mask)` before the mask, for the `len` bytes at `start` of the packet.
///
/// ```
/// // The cell that the program `M[HASH(26, 12, 1023)] += 1;` counts this packet in:
/// let packet = [0u8; 60];
/// let cell = tapline_fpl::hash(&packet[26..38], 0) & 1023;
/// # assert!(cell < 1024);
/// ```
pub fn hash(bytes: &[u8], seed: u64) -> u64 {
    let mut h = seed ^ (bytes.len() as u64).wrapping_mul(A);
    for chunk in bytes.chunks(8) {
        let word = chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        h = (h ^ word).wrapping_mul(B);
        h ^= h >> 32;
    }
    h = h.wrapping_mul(C);
    h ^ h >> 29
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapline_testkit::random::Random;

    #[test]
    fn values_never_change() {
        assert_eq!(hash(b"", 0), 0);
        // From a second implementation, of 8 lines of Python.
        assert_eq!(hash(b"\0", 0), 0xc1b2_082c_8c71_44b7);
        assert_eq!(hash(b"tapline", 0), 0x3616_b80d_b112_ca51);
        assert_eq!(hash(b"tapline, twelve and more", 7), 0xb883_20d5_6f69_7f69);
    }

    /// The sum over the cells of (count - expected)^2 / expected; its mean is the number of cells less one, its
    /// deviation the root of twice that.
    fn deviations_from_even(counts: &[u32], items: u32) -> f64 {
        let expected = f64::from(items) / counts.len() as f64;
        let chi: f64 = counts.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum();
        let degrees = (counts.len() - 1) as f64;
        (chi - degrees) / (2.0 * degrees).sqrt()
    }

    fn spread(items: u32, cells: usize, tuple: impl Fn(u32) -> [u8; 12]) -> f64 {
        let mut counts = vec![0; cells];
        for item in 0..items {
            counts[hash(&tuple(item), 0) as usize & (cells - 1)] += 1;
        }
        deviations_from_even(&counts, items)
    }

    #[test]
    fn random_tuples_spread_evenly() {
        let mut random = Random::new(1);
        let tuples: Vec<[u8; 12]> =
            (0..1_000_000).map(|_| random.bytes(12).try_into().expect("12 bytes")).collect();
        for cells in [256, 1024, 65_536] {
            let off = spread(1_000_000, cells, |item| tuples[item as usize]);
            assert!(off.abs() < 4.5, "{cells} cells: {off} deviations");
        }
    }

    #[test]
    fn tuples_that_differ_little_spread_evenly() {
        // As in a network: 10.0.x.y to one server, ports that count up.
        let tuple = |item: u32| {
            let [_, b, c, d] = item.to_be_bytes();
            [10, 0, b, c, 192, 168, 0, 1, 0x80, d, 0, 80]
        };
        for cells in [256, 1024, 65_536] {
            let off = spread(1_000_000, cells, tuple);
            assert!(off < 4.5, "{cells} cells: {off} deviations");
        }
    }
}
