//! The internet checksum (RFC 1071), in parts that are added up later.
//!
//! ```text
//! sum(part) + sum(part) + ... --folded--> 16 bits --complement--> what stands in a header
//!      a part that begins at an odd place counts as shifted(sum(part))
//! ```
//!
//! A sum is that of big-endian words of 16 bits, not folded. Over bytes that include a correct checksum the
//! complement is 0.

/// The sum of the bytes; an odd last byte counts as the upper half of a word.
pub fn sum(bytes: &[u8]) -> u64 {
    let (words, last) = bytes.as_chunks::<2>();
    let sum: u64 = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum();
    sum + last.first().map_or(0, |last| u64::from(*last) << 8)
}

/// A sum in 16 bits, with the carries added.
#[inline]
pub const fn folded(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    sum as u16
}

/// The checksum that a sum gives: its complement.
#[inline]
pub const fn checksum(sum: u64) -> u16 {
    !folded(sum)
}

/// A sum of bytes as it counts where they begin at an odd place (RFC 1071, 2 B).
#[inline]
pub const fn shifted(sum: u64) -> u64 {
    folded(sum).swap_bytes() as u64
}

/// The checksum after words of the packet changed, from those of the sum `before` to those of the sum `after` (RFC
/// 1624, equation 3). A wrong one stays wrong by as much.
#[inline]
pub const fn updated(checksum: u16, before: u64, after: u64) -> u16 {
    !folded(!checksum as u64 + !folded(before) as u64 + folded(after) as u64)
}

/// The checksum of bytes that lie in one piece: 0 if they include a correct one.
///
/// ```
/// use tapline_packet::checksum::internet;
/// let mut header = [0x45, 0, 0, 20, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
/// let checksum = internet(&header).to_be_bytes();
/// header[10..12].copy_from_slice(&checksum);
/// assert_eq!(internet(&header), 0);
/// ```
pub fn internet(bytes: &[u8]) -> u16 {
    checksum(sum(bytes))
}

/// A sum over pieces, one behind the other, of any length.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunningChecksum {
    total: u64,
    is_odd: bool,
}

impl RunningChecksum {
    /// With the next piece.
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> RunningChecksum {
        let piece = sum(bytes);
        let total = self.total + if self.is_odd { shifted(piece) } else { piece };
        RunningChecksum { total, is_odd: self.is_odd ^ (bytes.len() % 2 == 1) }
    }

    /// The checksum of all: 0 if they include a correct one.
    pub fn finish(self) -> u16 {
        checksum(self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_rfc_1071_section_3() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(internet(&bytes), !0xddf2);
        assert_eq!(checksum(sum(&bytes[..3]) + shifted(sum(&bytes[3..]))), !0xddf2);
    }

    #[test]
    fn the_update_of_rfc_1624_section_4() {
        // The example in which equation 2 fails: 0xdd2f with 0x5555 becoming 0x3285 gives 0, not 0xffff.
        assert_eq!(updated(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn an_update_equals_the_sum_of_the_changed_bytes() {
        let mut bytes: Vec<u8> = (0..64).map(|i: u8| i.wrapping_mul(37)).collect();
        let before = internet(&bytes);
        let old = sum(&bytes[20..28]);
        bytes[20..28].fill(0xa5);
        assert_eq!(updated(before, old, sum(&bytes[20..28])), internet(&bytes));
    }

    #[test]
    fn any_sum_folds() {
        assert_eq!([folded(0), folded(0xffff), folded(0x1_0000), folded(u64::MAX)], [0, 0xffff, 1, 0xffff]);
    }

    #[test]
    fn pieces_of_any_length_sum_alike() {
        let bytes: Vec<u8> = (0..=255).map(|i: u8| i.wrapping_mul(37)).collect();
        let whole = internet(&bytes[..251]);
        for cut in 0..251 {
            for second in cut..251 {
                let sum = RunningChecksum::default()
                    .with(&bytes[..cut])
                    .with(&bytes[cut..second])
                    .with(&bytes[second..251]);
                assert_eq!(sum.finish(), whole, "cut at {cut} and {second}");
            }
        }
    }
}
