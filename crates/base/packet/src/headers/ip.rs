//! IPv4, and IPv6 with its extension headers.
//!
//! ```text
//! IPv4  version 4b, words 4b | tos 1 | length 2 | id 2 | 0 DF MF, offset 13b | ttl 1 | protocol 1 | sum 2 | src 4 | dst 4 | options
//! IPv6  version 4b, class 8b, label 20b | length 2 | next header 1 | hops 1 | src 16 | dst 16 | extensions
//!
//! extension  0 43 60   next header 1 | units of 8 bytes, less one 1 | ...
//!            51        next header 1 | units of 4 bytes, less two 1 | ...
//!            44        next header 1 | 0 | offset 13b, 0 0 MF | id 4          a later fragment ends here
//! ```
//!
//! Sources: RFC 791, 3.1; RFC 8200, 3 and 4; RFC 4302, 2.2; RFC 6946.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::read::{array, u8_at};
use super::{Headers, PackedOffset};
use crate::numbers::ip_protocol::{AH, DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, ROUTING};

const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;

/// Extension headers that are followed, as by filters.
const EXTENSIONS_MAX: usize = 8;

/// Bits of IPv4's word at 6: more fragments follow, and the offset in units of 8 bytes.
const MORE: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

/// A version of the internet protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IpVersion {
    /// RFC 791.
    V4,
    /// RFC 8200.
    V6,
}

/// The part of a packet that a fragment carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fragment {
    /// Identification, which the fragments of one packet share in addition to their addresses; 16 bits in IPv4.
    pub id: u32,
    /// The offset of its data in the packet, in bytes, a multiple of 8.
    pub offset: u16,
    /// Whether it is not the last.
    pub more: bool,
    /// The protocol that the header of every fragment names: IPv4's protocol, or the next header of the first IPv6
    /// fragment header. With IPv6 it may be another extension, behind which only the first fragment shows the
    /// payload.
    pub protocol: u8,
}

impl Fragment {
    /// Whether it is not the first, so that it has no transport header.
    #[inline]
    pub fn is_later(&self) -> bool {
        self.offset != 0
    }
}

impl Headers {
    /// Source and destination address of the IP header.
    ///
    /// `data` must be the parsed bytes; with other bytes any answer may come, but no panic.
    #[inline]
    pub fn addresses(&self, data: &[u8]) -> Option<(IpAddr, IpAddr)> {
        let at = self.l3()?;
        match self.ip? {
            IpVersion::V4 => {
                let &[s0, s1, s2, s3, d0, d1, d2, d3] = array(data, at + 12)?;
                Some((Ipv4Addr::new(s0, s1, s2, s3).into(), Ipv4Addr::new(d0, d1, d2, d3).into()))
            }
            IpVersion::V6 => {
                let (src, dst) = (array::<16>(data, at + 8)?, array::<16>(data, at + 24)?);
                Some((Ipv6Addr::from(*src).into(), Ipv6Addr::from(*dst).into()))
            }
        }
    }

    #[inline(always)]
    pub(super) fn walk_ipv4(&mut self, data: &[u8], at: usize) -> Option<()> {
        let header: &[u8; IPV4_LEN] = array(data, at)?;
        let header_len = usize::from(header[0] & 0x0f) * 4;
        if header[0] >> 4 != 4 || header_len < IPV4_LEN {
            return None;
        }
        let protocol = header[9];
        self.ip = Some(IpVersion::V4);
        self.protocol = Some(protocol);
        let total_len = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let end = self.end_at(data, at, total_len);
        let carried = at + header_len;
        let cut = u16::from_be_bytes([header[6], header[7]]);
        if cut & (MORE | OFFSET) != 0 {
            let id = u16::from_be_bytes([header[4], header[5]]).into();
            let fragment = Fragment { id, offset: (cut & OFFSET) * 8, more: cut & MORE != 0, protocol };
            self.fragment = Some(fragment);
            if fragment.is_later() {
                return self.later_fragment(carried, end);
            }
        }
        self.walk_transport(data, protocol, carried, end)
    }

    pub(super) fn walk_ipv6(&mut self, data: &[u8], at: usize) -> Option<()> {
        let (next, end) = self.ipv6_header(data, at)?;
        self.walk_extensions(&data[..end], next, at + IPV6_LEN)
    }

    /// Walks a packet whose next header is not an extension.
    #[inline(always)]
    pub(super) fn walk_plain_ipv6(&mut self, data: &[u8], at: usize) -> Option<()> {
        let (next, end) = self.ipv6_header(data, at)?;
        self.protocol = Some(next);
        self.walk_transport(data, next, at + IPV6_LEN, end)
    }

    /// The next header, and where the packet ends.
    #[inline(always)]
    fn ipv6_header(&mut self, data: &[u8], at: usize) -> Option<(u8, usize)> {
        let header: &[u8; IPV6_LEN] = array(data, at)?;
        if header[0] >> 4 != 6 {
            return None;
        }
        self.ip = Some(IpVersion::V6);
        let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let total_len = if payload_len == 0 { 0 } else { IPV6_LEN + payload_len };
        Some((header[6], self.end_at(data, at, total_len)))
    }

    /// Notes and gives where a packet ends that begins at `at` and has a length, or none.
    #[inline(always)]
    fn end_at(&mut self, data: &[u8], at: usize, total_len: usize) -> usize {
        if total_len == 0 {
            return data.len();
        }
        let end = data.len().min(at + total_len);
        self.end = end as u32;
        end
    }

    /// Over extension headers in `data`, which ends where the packet does.
    fn walk_extensions(&mut self, data: &[u8], mut next: u8, mut at: usize) -> Option<()> {
        for _ in 0..EXTENSIONS_MAX {
            let len = match next {
                HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => (usize::from(u8_at(data, at + 1)?) + 1) * 8,
                AH => (usize::from(u8_at(data, at + 1)?) + 2) * 4,
                FRAGMENT => {
                    if self.cuts(data, at)? {
                        self.protocol = Some(data[at]);
                        return self.later_fragment(at + 8, data.len());
                    }
                    8
                }
                _ => break,
            };
            // The number counts also where the rest of its header was not captured: there is no `l4` then.
            (next, at) = (u8_at(data, at)?, at + len);
        }
        self.protocol = Some(next);
        if is_extension(next) {
            return None;
        }
        self.walk_transport(data, next, at, data.len())
    }

    /// Notes the fragment header at `at`; whether it is that of a later fragment. A second one in the same packet is
    /// not noted.
    fn cuts(&mut self, data: &[u8], at: usize) -> Option<bool> {
        let &[protocol, _, o0, o1, i0, i1, i2, i3] = array(data, at)?;
        let word = u16::from_be_bytes([o0, o1]);
        let id = u32::from_be_bytes([i0, i1, i2, i3]);
        let fragment = Fragment { id, offset: word & !7, more: word & 1 != 0, protocol };
        if (fragment.more || fragment.is_later()) && self.fragment.is_none() {
            self.fragment = Some(fragment);
        }
        Some(fragment.is_later())
    }

    #[inline(always)]
    fn later_fragment(&mut self, carried: usize, end: usize) -> Option<()> {
        if carried <= end {
            self.payload = PackedOffset::at(carried);
        }
        Some(())
    }
}

#[inline]
pub(super) fn is_extension(protocol: u8) -> bool {
    matches!(protocol, HOP_BY_HOP | ROUTING | FRAGMENT | AH | DESTINATION_OPTIONS)
}
