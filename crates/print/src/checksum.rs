//! The Internet checksum (RFC 1071) over several pieces.

/// A ones' complement sum in progress. Pieces of odd length are allowed anywhere.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    total: u64,
    odd: bool,
}

impl Sum {
    /// Adds bytes.
    pub(crate) fn add(mut self, bytes: &[u8]) -> Sum {
        let mut bytes = bytes;
        if self.odd
            && let Some((&low, rest)) = bytes.split_first()
        {
            self.total += u64::from(low);
            self.odd = false;
            bytes = rest;
        }
        let (words, tail) = bytes.as_chunks::<4>();
        for word in words {
            self.total += u64::from(u32::from_be_bytes(*word));
        }
        let (pairs, last) = tail.as_chunks::<2>();
        for pair in pairs {
            self.total += u64::from(u16::from_be_bytes(*pair));
        }
        if let [high] = last {
            self.total += u64::from(*high) << 8;
            self.odd = true;
        }
        self
    }

    /// The complement of the sum: 0 if the bytes include a correct checksum.
    pub(crate) fn finish(self) -> u16 {
        let mut total = self.total;
        while total > 0xffff {
            total = (total & 0xffff) + (total >> 16);
        }
        !(total as u16)
    }
}

/// The checksum of `bytes`: 0 if they include a correct one.
pub(crate) fn internet(bytes: &[u8]) -> u16 {
    Sum::default().add(bytes).finish()
}

/// What a checksum field should hold, from what it holds and the checksum over the bytes with it.
pub(crate) fn should_be(field: u16, computed: u16) -> u16 {
    let shifted = u32::from(field) + u32::from(computed);
    ((shifted & 0xffff) + (shifted >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_length_sum_alike() {
        let bytes: Vec<u8> = (0..=255).map(|i: u8| i.wrapping_mul(37)).collect();
        let whole = internet(&bytes[..251]);
        for cut in 0..251 {
            let sum = Sum::default().add(&bytes[..cut]).add(&bytes[cut..251]);
            assert_eq!(sum.finish(), whole, "cut at {cut}");
        }
    }

    #[test]
    fn a_wrong_field_is_put_right() {
        let mut header =
            [0x45, 0, 0, 0x3c, 0x1c, 0x46, 0x40, 0, 0x40, 6, 0x12, 0x34, 10, 0, 0, 1, 10, 0, 0, 2];
        let right = should_be(0x1234, internet(&header));
        header[10..12].copy_from_slice(&right.to_be_bytes());
        assert_eq!(internet(&header), 0);
    }
}
