//! Bytes of strangers, of which none is read that is not there.

/// Bytes that are read from the front.
#[derive(Clone, Copy)]
pub(super) struct Bytes<'b>(pub(super) &'b [u8]);

impl<'b> Bytes<'b> {
    pub(super) fn take(&mut self, len: usize) -> Option<&'b [u8]> {
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(super) fn word(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Bytes behind their length of one byte.
    pub(super) fn short(&mut self) -> Option<&'b [u8]> {
        let len = self.byte()?;
        self.take(len.into())
    }

    /// Bytes behind their length of two bytes.
    pub(super) fn long(&mut self) -> Option<&'b [u8]> {
        let len = self.word()?;
        self.take(len.into())
    }

    /// The same, or as much as there is.
    pub(super) fn long_or_less(&mut self) -> Option<&'b [u8]> {
        let len = usize::from(self.word()?);
        self.take(len.min(self.0.len()))
    }
}
