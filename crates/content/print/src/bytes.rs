//! A stretch of a packet: its captured part, and its length on the wire.
//!
//! ```text
//! wire      |<------------- length ------------->|
//! captured  |<-------- data -------->|                cut short by the snapshot length
//! captured  |<-------------------- data -------------------->|   or with link-layer padding behind it
//! ```
//!
//! Every read is checked against `data`; one that goes past it yields [`Cut`], which ends the packet's text with
//! `[|protocol]` unless a printer on the way catches it.

/// A read went past the captured bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut;

/// The outcome of a printer: done, or the captured bytes ended too early.
pub(crate) type Printed = Result<(), Cut>;

/// A stretch of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<'p> {
    /// The captured bytes from here on. May go past `length` where something follows.
    pub(crate) data: &'p [u8],
    /// Bytes on the wire from here on, as the enclosing header says.
    pub(crate) length: usize,
}

impl<'p> Span<'p> {
    /// A stretch of which all bytes were captured.
    pub(crate) const fn whole(data: &'p [u8]) -> Span<'p> {
        Span { data, length: data.len() }
    }

    /// Captured bytes.
    pub(crate) const fn captured(self) -> usize {
        self.data.len()
    }

    /// `count` bytes at `at`.
    #[inline]
    pub(crate) fn bytes(self, at: usize, count: usize) -> Result<&'p [u8], Cut> {
        let end = at.checked_add(count).ok_or(Cut)?;
        self.data.get(at..end).ok_or(Cut)
    }

    /// An array of bytes at `at`.
    #[inline]
    pub(crate) fn array<const N: usize>(self, at: usize) -> Result<[u8; N], Cut> {
        let rest = self.data.get(at..).ok_or(Cut)?;
        rest.first_chunk::<N>().copied().ok_or(Cut)
    }

    /// Checks that `count` bytes from the start were captured.
    #[inline]
    pub(crate) fn need(self, count: usize) -> Printed {
        if count <= self.data.len() { Ok(()) } else { Err(Cut) }
    }

    #[inline]
    pub(crate) fn u8(self, at: usize) -> Result<u8, Cut> {
        self.data.get(at).copied().ok_or(Cut)
    }

    /// 16 bits in network order; so are all without `le` in their name.
    #[inline]
    pub(crate) fn u16(self, at: usize) -> Result<u16, Cut> {
        self.array(at).map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u24(self, at: usize) -> Result<u32, Cut> {
        let [a, b, c] = self.array(at)?;
        Ok(u32::from_be_bytes([0, a, b, c]))
    }

    #[inline]
    pub(crate) fn u32(self, at: usize) -> Result<u32, Cut> {
        self.array(at).map(u32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u64(self, at: usize) -> Result<u64, Cut> {
        self.array(at).map(u64::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u16_le(self, at: usize) -> Result<u16, Cut> {
        self.array(at).map(u16::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u32_le(self, at: usize) -> Result<u32, Cut> {
        self.array(at).map(u32::from_le_bytes)
    }

    /// The bytes behind the first `count`; empty past the end.
    #[inline]
    pub(crate) fn skip(self, count: usize) -> Span<'p> {
        Span { data: self.data.get(count..).unwrap_or(&[]), length: self.length.saturating_sub(count) }
    }

    /// Limits the span to `length` bytes on the wire and no captured byte past them.
    #[inline]
    pub(crate) fn limit(self, length: usize) -> Span<'p> {
        Span { data: &self.data[..length.min(self.data.len())], length }
    }

    /// Changes the length on the wire, with the captured bytes unchanged.
    #[inline]
    pub(crate) const fn with_length(self, length: usize) -> Span<'p> {
        Span { data: self.data, length }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_stop_at_the_captured_end() {
        let span = Span { data: &[1, 2, 3], length: 9 };
        assert_eq!(span.u16(1), Ok(0x0203));
        assert_eq!(span.u16(2), Err(Cut));
        assert_eq!(span.u8(usize::MAX), Err(Cut));
        assert_eq!(span.bytes(usize::MAX, 2), Err(Cut));
        assert_eq!(span.skip(5).length, 4);
        assert!(span.skip(5).data.is_empty());
        assert_eq!(span.limit(2).u24(0), Err(Cut));
    }
}
