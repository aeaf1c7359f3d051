//! Bytes that may end anywhere, read from the front.

/// The bytes that were not read yet. A read past their end gives `None`.
#[derive(Clone, Copy, Debug)]
pub struct ByteReader<'b>(pub &'b [u8]);

impl<'b> ByteReader<'b> {
    /// The next `len` bytes; nothing is taken if there are fewer.
    #[inline]
    pub fn take(&mut self, len: usize) -> Option<&'b [u8]> {
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*front)
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    /// Two bytes in network order.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Three bytes in network order.
    #[inline]
    pub fn u24(&mut self) -> Option<usize> {
        self.array().map(|[high, middle, low]| u32::from_be_bytes([0, high, middle, low]) as usize)
    }

    /// Four bytes in network order.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// A vector behind its length of one byte.
    pub fn vector8(&mut self) -> Option<&'b [u8]> {
        let len = self.u8()?;
        self.take(len.into())
    }

    /// A vector behind its length of two bytes.
    pub fn vector16(&mut self) -> Option<&'b [u8]> {
        let len = self.u16()?;
        self.take(len.into())
    }

    /// A vector behind its length of two bytes; where that is more than there is, the bytes that are there.
    pub fn vector16_captured(&mut self) -> Option<&'b [u8]> {
        let len = usize::from(self.u16()?);
        self.take(len.min(self.0.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_end_where_the_bytes_do() {
        let mut bytes = ByteReader(&[1, 2, 3]);
        assert_eq!((bytes.u32(), bytes.u16(), bytes.u16(), bytes.u8()), (None, Some(0x0102), None, Some(3)));
        assert_eq!((bytes.take(0), bytes.take(1), bytes.0.len()), (Some(&[][..]), None, 0));
    }
}
