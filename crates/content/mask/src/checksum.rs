//! Checksums that stay right where they were right, and wrong where they were wrong.
//!
//! ```text
//! before a change: sum of what the checksum covers        after: checksum + sum before - sum after       (RFC 1624)
//! ```
//!
//! A checksum that was wrong by some amount is wrong by the same amount afterwards, also in a packet that was cut.

use std::ops::Range;

/// A checksum in a packet, and the sum of its covered bytes before any change.
pub(crate) struct Scope {
    /// The offset of the checksum.
    field: usize,
    kind: Kind,
    /// The covered bytes: its own header and data, and addresses of a pseudo-header.
    covered: [Range<usize>; 3],
    before: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Ones' complement (RFC 1071).
    Internet,
    /// The internet checksum, where 0 means that there is none (RFC 768).
    Udp,
    /// CRC-32C (RFC 9260); `before` means that it was right.
    Sctp,
}

impl Scope {
    /// The checksum at `field`; `None` if it is not there as a whole, or says that there is none.
    pub(crate) fn new(data: &[u8], field: usize, kind: Kind, covered: [Range<usize>; 3]) -> Option<Scope> {
        let len = if kind == Kind::Sctp { 4 } else { 2 };
        if field + len > covered[0].end || covered.iter().any(|range| range.end > data.len()) {
            return None;
        }
        if kind == Kind::Udp && data[field..field + 2] == [0, 0] {
            return None;
        }
        let before = match kind {
            Kind::Sctp => u32::from(sctp(data, field, &covered[0]) == data[field..field + 4]),
            _ => sum_of(data, &covered),
        };
        Some(Scope { field, kind, covered, before })
    }

    /// Puts the checksum right, if it was.
    pub(crate) fn close(&self, data: &mut [u8]) {
        if self.kind == Kind::Sctp {
            if self.before == 1 {
                let sum = sctp(data, self.field, &self.covered[0]);
                data[self.field..self.field + 4].copy_from_slice(&sum);
            }
            return;
        }
        let after = sum_of(data, &self.covered);
        if after == self.before {
            return;
        }
        let old = u32::from(u16::from_be_bytes([data[self.field], data[self.field + 1]]));
        let new = (old + self.before + (0xffff - after)) % 0xffff;
        let new = if new == 0 && self.kind == Kind::Udp { 0xffff } else { new as u16 };
        data[self.field..self.field + 2].copy_from_slice(&new.to_be_bytes());
    }
}

/// The sum of all ranges, below 65,535.
fn sum_of(data: &[u8], covered: &[Range<usize>; 3]) -> u32 {
    let sum: u64 = covered.iter().map(|range| sum(&data[range.clone()])).sum();
    (sum % 0xffff) as u32
}

fn sum(bytes: &[u8]) -> u64 {
    let mut pairs = bytes.chunks_exact(2);
    let sum: u64 = pairs.by_ref().map(|pair| u64::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    sum + pairs.remainder().first().map_or(0, |&last| u64::from(last) << 8)
}

/// CRC-32C over a packet of SCTP whose field counts as 0, as the packet has it.
fn sctp(data: &[u8], field: usize, covered: &Range<usize>) -> [u8; 4] {
    let before = crc32c::crc32c(&data[covered.start..field]);
    let zeros = crc32c::crc32c_append(before, &[0; 4]);
    crc32c::crc32c_append(zeros, &data[field + 4..covered.end]).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(data: &[u8]) -> [Range<usize>; 3] {
        [0..data.len(), 0..0, 0..0]
    }

    fn is_right(data: &[u8]) -> bool {
        sum_of(data, &whole(data)) == 0
    }

    #[test]
    fn right_stays_right_and_wrong_stays_wrong() {
        let mut data: Vec<u8> = (0..21).collect();
        data[4..6].copy_from_slice(&[0, 0]);
        let sum = 0xffff - sum_of(&data, &whole(&data)) as u16;
        for (offset, right) in [(0, true), (1, false), (0x1234, false)] {
            data[4..6].copy_from_slice(&sum.wrapping_add(offset).to_be_bytes());
            assert_eq!(is_right(&data), right);
            let mut changed = data.clone();
            let scope = Scope::new(&changed, 4, Kind::Internet, whole(&data)).expect("it is there");
            changed[6..].fill(0);
            scope.close(&mut changed);
            assert_eq!(is_right(&changed), right, "{offset}");
            assert_ne!(changed, data);
        }
    }

    #[test]
    fn no_checksum_stays_none() {
        let data = [1, 2, 0, 0, 5, 6];
        assert!(Scope::new(&data, 2, Kind::Udp, whole(&data)).is_none());
        assert!(Scope::new(&data, 5, Kind::Internet, whole(&data)).is_none());
        assert!(Scope::new(&data, 3, Kind::Sctp, whole(&data)).is_none());
    }

    #[test]
    fn a_sum_of_zero_is_all_ones_in_udp() {
        let mut data = [0x12, 0x34, 0xed, 0xcb, 0, 1, 0xff, 0xfe];
        // The words sum up to 0 without the last two; the checksum at 6 makes it so with them.
        let scope = Scope::new(&data, 6, Kind::Udp, whole(&data)).expect("it is there");
        data[5] = 0;
        scope.close(&mut data);
        assert_eq!(data[6..], [0xff, 0xff]);
    }
}
