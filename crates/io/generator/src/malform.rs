//! Packets that are wrong in one way, and right in every other.

use tapline_packet::headers::IpVersion;

use crate::random::Random;
use crate::recipe::{Malformation, Transport};
use crate::shape::Shape;
use crate::share::Share;
use crate::write::write_ip_checksum;

/// Decides which packets are malformed, and how.
pub(crate) struct Faults {
    /// Each fault, its share, and how much of a packet it is behind, in parts of `under`.
    list: Vec<(Malformation, Share, u64)>,
    random: Random,
}

impl Faults {
    pub(crate) fn new(list: &[(Malformation, Share)], seed: u64) -> Faults {
        let list = list.iter().map(|(bad, share)| (*bad, *share, 0)).collect();
        Faults { list, random: Random::new(seed, 0x6261_6400) }
    }

    /// The fault of the next packet. A packet has one fault at most; a second one that is due waits for the next
    /// packet.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Malformation> {
        let mut due = None;
        for (bad, share, behind) in &mut self.list {
            *behind += u64::from(share.over);
            if due.is_none() && *behind >= u64::from(share.under) {
                *behind -= u64::from(share.under);
                due = Some(*bad);
            }
        }
        due
    }

    /// Spoils a frame, and gives its length.
    pub(crate) fn spoil(&mut self, bad: Malformation, frame: &mut [u8], shape: &Shape) -> usize {
        match bad {
            Malformation::Checksum => spoil_sum(&mut frame[shape.l4 + shape.checksum_at()..]),
            Malformation::IpChecksum => spoil_sum(&mut frame[shape.l3 + 10..]),
            Malformation::Length => self.spoil_length(frame, shape),
            Malformation::Truncated => {
                return shape.l3 + self.random.below((shape.len() - shape.l3) as u64) as usize;
            }
        }
        frame.len()
    }

    fn spoil_length(&mut self, frame: &mut [u8], shape: &Shape) {
        let other = 1 + self.random.below(100) as u16;
        let kinds = if shape.transport == Transport::Udp { 3 } else { 2 };
        let kind = self.random.below(kinds);
        let (headers, transport) = frame.split_at_mut(shape.l4);
        let header = &mut headers[shape.l3..];
        let field = if shape.version == IpVersion::V4 { 2 } else { 4 };
        let len = u16::from_be_bytes([header[field], header[field + 1]]);
        match kind {
            // More than there is.
            0 => header[field..field + 2].copy_from_slice(&len.saturating_add(other).to_be_bytes()),
            // Less than the headers.
            1 => header[field..field + 2].copy_from_slice(&(other % 8).to_be_bytes()),
            _ => {
                let len = u16::from_be_bytes([transport[4], transport[5]]);
                transport[4..6].copy_from_slice(&len.saturating_add(other).to_be_bytes());
            }
        }
        if shape.version == IpVersion::V4 {
            write_ip_checksum(header);
        }
    }
}

/// One bit that differs: 0 and 0xffff, which mean the same, are never both met.
fn spoil_sum(field: &mut [u8]) {
    let sum = u16::from_be_bytes([field[0], field[1]]);
    // Zero would mean to UDP that there is no checksum.
    let wrong = if sum == 0x0100 { sum ^ 0x0200 } else { sum ^ 0x0100 };
    field[..2].copy_from_slice(&wrong.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_its_share() {
        let list = [
            (Malformation::Checksum, Share { over: 1, under: 2 }),
            (Malformation::Length, Share { over: 1, under: 4 }),
            (Malformation::Truncated, Share { over: 1, under: 4 }),
        ];
        let mut faults = Faults::new(&list, 1);
        let mut counts = [0; 3];
        for _ in 0..4000 {
            let bad = faults.next();
            list.iter()
                .zip(&mut counts)
                .for_each(|((kind, _), count)| *count += i32::from(Some(*kind) == bad));
        }
        assert!(
            counts.iter().zip([2000, 1000, 1000]).all(|(count, wanted)| (*count - wanted).abs() <= 1),
            "{counts:?}"
        );
    }
}
