//! Numbers in network byte order out of bytes that may end anywhere.

/// The `N` bytes at `at`; `None` if they were not all captured.
#[inline(always)]
pub(super) fn array<const N: usize>(data: &[u8], at: usize) -> Option<&[u8; N]> {
    data.get(at..)?.first_chunk()
}

#[inline(always)]
pub(super) fn u8_at(data: &[u8], at: usize) -> Option<u8> {
    data.get(at).copied()
}

#[inline(always)]
pub(super) fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    array(data, at).copied().map(u16::from_be_bytes)
}

#[inline(always)]
pub(super) fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    array(data, at).copied().map(u32::from_be_bytes)
}
