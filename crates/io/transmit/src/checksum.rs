//! The checksums of TCP and UDP, and their pseudo-headers.

use tapline_packet::checksum::{checksum, folded, sum};
use tapline_packet::headers::{Headers, IpVersion};

const TCP: u8 = 6;
const UDP: u8 = 17;

/// The place of TCP's or UDP's checksum, and the bytes that it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// The transport header.
    pub(super) start: usize,
    /// The field's first byte.
    pub(super) at: usize,
    /// The end of the summed bytes.
    pub(super) end: usize,
    /// The sum of the pseudo-header, folded.
    pub(super) pseudo: u16,
    is_udp: bool,
}

impl Field {
    /// The field of an unfragmented packet of TCP or UDP; `None` for others.
    pub(super) fn find(headers: &Headers, data: &[u8]) -> Option<Field> {
        if headers.fragment().is_some() {
            return None;
        }
        let (start, end) = (headers.l4()?, headers.ip_end());
        let (protocol, at) = match headers.protocol()? {
            TCP => (TCP, start + 16),
            UDP => (UDP, start + 6),
            _ => return None,
        };
        if at + 2 > end || end > data.len() {
            return None;
        }
        let addresses = match headers.ip()? {
            IpVersion::V4 => data.get(headers.l3()? + 12..)?.get(..8)?,
            IpVersion::V6 => data.get(headers.l3()? + 8..)?.get(..32)?,
        };
        let len = (end - start) as u64;
        let pseudo = folded(sum(addresses) + u64::from(protocol) + (len >> 16) + (len & 0xffff));
        Some(Field { start, at, end, pseudo, is_udp: protocol == UDP })
    }

    /// Whether the field has the value that the kernel leaves for an adapter to complete: the pseudo-header's sum, not
    /// inverted.
    pub(super) fn is_partial(&self, data: &[u8]) -> bool {
        data.get(self.at..self.at + 2) == Some(&self.pseudo.to_be_bytes())
    }

    /// The checksum as it should be, whatever the field holds.
    pub(super) fn complete(&self, data: &[u8]) -> [u8; 2] {
        // Both parts begin at an even distance from the transport header.
        let parts = [data.get(self.start..self.at), data.get(self.at + 2..self.end)];
        let carried: u64 = parts.into_iter().flatten().map(sum).sum();
        match checksum(carried + u64::from(self.pseudo)) {
            // RFC 768: 0 means that there is none.
            0 if self.is_udp => [0xff, 0xff],
            sum => sum.to_be_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tapline_packet::LinkType;
    use tapline_testkit::traffic::Traffic;

    use super::*;

    #[test]
    fn a_checksum_taken_out_comes_back() {
        let mut seen = [0; 2];
        for (_, frame) in Traffic::new(11).take(3000) {
            let headers = Headers::parse_data(LinkType::ETHERNET, &frame);
            let Some(field) = Field::find(&headers, &frame) else { continue };
            let original = [frame[field.at], frame[field.at + 1]];
            if original == [0, 0] {
                continue;
            }
            let mut partial = frame.clone();
            partial[field.at..field.at + 2].copy_from_slice(&field.pseudo.to_be_bytes());
            assert!(field.is_partial(&partial));
            assert_eq!(field.complete(&partial), original, "{frame:02x?}");
            assert_eq!(field.complete(&frame), original);
            seen[usize::from(field.is_udp)] += 1;
        }
        assert!(seen[0] > 100 && seen[1] > 100, "{seen:?}");
    }

    #[test]
    fn frames_cut_anywhere_do_no_harm() {
        for (_, frame) in Traffic::new(12).take(60) {
            for len in 0..=frame.len() {
                let data = &frame[..len];
                let headers = Headers::parse_data(LinkType::ETHERNET, data);
                if let Some(field) = Field::find(&headers, data) {
                    field.complete(data);
                }
            }
        }
    }
}
