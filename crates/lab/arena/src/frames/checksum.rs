//! The sums that protocols carry.

/// The internet checksum (RFC 1071) over the concatenated parts.
///
/// Every part but the last must have an even length.
pub fn internet_checksum(parts: &[&[u8]]) -> u16 {
    let mut sum: u64 = 0;
    for part in parts {
        let mut words = part.chunks_exact(2);
        sum += words.by_ref().map(|w| u64::from(u16::from_be_bytes([w[0], w[1]]))).sum::<u64>();
        if let [last] = words.remainder() {
            sum += u64::from(*last) << 8;
        }
    }
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

/// The CRC-32C of SCTP (RFC 9260 appendix A), bit by bit.
pub fn crc32c(bytes: &[u8]) -> u32 {
    const POLYNOMIAL_REVERSED: u32 = 0x82f6_3b78;
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (POLYNOMIAL_REVERSED & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_rfc_1071_section_3() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(internet_checksum(&[&bytes]), !0xddf2);
        assert_eq!(internet_checksum(&[&bytes[..4], &bytes[4..]]), !0xddf2);
    }

    #[test]
    fn the_check_value_of_crc32c() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
