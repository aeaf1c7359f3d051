//! Sums of the internet checksum in 32 bits: a frame has 65,535 bytes at most, whose words always fit.

use tapline_packet::checksum;

pub(crate) use checksum::{checksum, updated};

/// As [`checksum::sum`].
pub(crate) fn sum(bytes: &[u8]) -> u32 {
    checksum::sum(bytes) as u32
}

/// As [`checksum::shifted`].
#[inline]
pub(crate) fn shifted(sum: u32) -> u32 {
    checksum::shifted(sum.into()) as u32
}
