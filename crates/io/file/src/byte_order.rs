//! Numbers in the byte order of the machine that wrote a file.

/// The order of the bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// Least significant byte first, as on x86 and most ARM.
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    /// The order of this machine.
    pub const NATIVE: ByteOrder =
        if cfg!(target_endian = "little") { ByteOrder::Little } else { ByteOrder::Big };

    /// The 2 bytes at `at` as a number.
    ///
    /// # Panics
    /// Like the other readers, if `bytes` end before; callers check the length of the whole item first.
    #[inline]
    pub(crate) fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let number = u16::from_le_bytes(array(bytes, at));
        if self == ByteOrder::Little { number } else { number.swap_bytes() }
    }

    /// The 4 bytes at `at` as a number.
    #[inline]
    pub(crate) fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let number = u32::from_le_bytes(array(bytes, at));
        if self == ByteOrder::Little { number } else { number.swap_bytes() }
    }

    /// The 8 bytes at `at` as a number.
    #[inline]
    pub(crate) fn u64(self, bytes: &[u8], at: usize) -> u64 {
        let number = u64::from_le_bytes(array(bytes, at));
        if self == ByteOrder::Little { number } else { number.swap_bytes() }
    }
}

#[inline]
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

/// Turns `len` bytes at `at` around, if they are all there.
pub(crate) fn reverse(bytes: &mut [u8], at: usize, len: usize) -> Option<()> {
    bytes.get_mut(at..at.checked_add(len)?)?.reverse();
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_orders() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(ByteOrder::Little.u16(&bytes, 1), 0x0302);
        assert_eq!(ByteOrder::Big.u32(&bytes, 0), 0x0102_0304);
        assert_eq!(ByteOrder::Big.u64(&bytes, 0), 0x0102_0304_0506_0708);
    }
}
