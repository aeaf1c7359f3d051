//! Numbers whose bits all depend on all bits of their arguments, for hashes.

/// The step from one state of SplitMix64 to the next: 2^64 divided by the golden ratio.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// Steps of the mixing of SplitMix64: `x ^= x >> shift; x *= factor`.
pub const MIX: [(u32, u64); 2] = [(30, 0xbf58_476d_1ce4_e5b9), (27, 0x94d0_49bb_1331_11eb)];
/// The last shift of the mixing: `x ^= x >> shift`.
pub const MIX_LAST: u32 = 31;

/// Both halves of the product of two numbers, one laid on the other.
#[inline(always)]
pub fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// The mixing of SplitMix64: each bit of the result depends on all bits of the argument.
#[inline]
pub fn mixed(mut bits: u64) -> u64 {
    for (shift, factor) in MIX {
        bits = (bits ^ (bits >> shift)).wrapping_mul(factor);
    }
    bits ^ (bits >> MIX_LAST)
}

/// The number that SplitMix64 gives after the state `bits`.
#[inline]
pub fn scramble(bits: u64) -> u64 {
    mixed(bits.wrapping_add(GOLDEN))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of SplitMix64 with the seed 1234567, as its authors' program prints them.
    #[test]
    fn numbers_are_those_of_splitmix64() {
        let numbers: Vec<u64> = (0..3_u64).map(|n| scramble(1_234_567 + n.wrapping_mul(GOLDEN))).collect();
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }
}
