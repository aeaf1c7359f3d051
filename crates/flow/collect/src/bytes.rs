//! Numbers in network byte order, out of bytes that may end anywhere.

/// The bytes that are not read yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    /// The next `len` bytes; `None`, and nothing is taken, if there are fewer.
    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// The number in these bytes; of more than eight the low ones (RFC 7011, 6.2: numbers may be shorter than their type).
#[inline]
pub(crate) fn number(bytes: &[u8]) -> u64 {
    match *bytes {
        [a] => a.into(),
        [a, b] => u16::from_be_bytes([a, b]).into(),
        [a, b, c, d] => u32::from_be_bytes([a, b, c, d]).into(),
        [a, b, c, d, e, f, g, h] => u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        _ => bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_end_where_the_bytes_do() {
        let mut bytes = Bytes(&[1, 2, 3]);
        assert_eq!((bytes.u32(), bytes.u16(), bytes.u16(), bytes.u8()), (None, Some(0x0102), None, Some(3)));
        assert_eq!((bytes.take(0), bytes.take(1), bytes.len()), (Some(&[][..]), None, 0));
    }

    #[test]
    fn numbers_have_any_length() {
        assert_eq!([&[][..], &[7], &[1, 0], &[1, 0, 0], &[0, 0, 0, 9]].map(number), [0, 7, 256, 65536, 9]);
        assert_eq!(number(&[9, 0, 0, 0, 0, 0, 0, 0, 5]), 5);
    }
}
