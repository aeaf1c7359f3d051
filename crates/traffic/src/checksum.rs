//! The internet checksum (RFC 1071) in parts that are added later.
//!
//! A sum is that of big-endian words of 16 bits, not folded; sums of parts that begin at even places add up to the sum of the whole.

/// The sum of the bytes; an odd last byte counts as the upper half of a word.
pub(crate) fn sum(bytes: &[u8]) -> u32 {
    let mut words = bytes.chunks_exact(2);
    let sum: u32 = words.by_ref().map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    sum + words.remainder().first().map_or(0, |last| u32::from(*last) << 8)
}

/// A sum of 32 bits or more in 16, with the carries added.
#[inline]
pub(crate) fn folded(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    sum as u16
}

/// The checksum that a sum gives.
#[inline]
pub(crate) fn checksum(sum: u64) -> u16 {
    !folded(sum)
}

/// A sum of bytes as it counts where they begin at an odd place (RFC 1071, 2 B).
#[inline]
pub(crate) fn shifted(sum: u32) -> u32 {
    u32::from(folded(u64::from(sum)).swap_bytes())
}

/// The checksum after words of the packet changed from `before` to `after` (RFC 1624, equation 3).
pub(crate) fn updated(checksum: u16, before: u32, after: u32) -> u16 {
    let before = u64::from(!folded(u64::from(before)));
    !folded(u64::from(!checksum) + before + u64::from(after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_rfc_1071_section_3() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(u64::from(sum(&bytes))), !0xddf2);
        let (even, odd) = (sum(&bytes[..3]), shifted(sum(&bytes[3..])));
        assert_eq!(checksum(u64::from(even) + u64::from(odd)), !0xddf2);
    }

    #[test]
    fn the_update_of_rfc_1624_section_4() {
        // The example in which equation 2 fails: 0xdd2f with 0x5555 becoming 0x3285 gives 0, not 0xffff.
        assert_eq!(updated(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn any_sum_folds() {
        assert_eq!([folded(0), folded(0xffff), folded(0x1_0000), folded(u64::MAX)], [0, 0xffff, 1, 0xffff]);
    }
}
