//! IPv4, IPv6 and the messages that belong to them.
//!
//! ```text
//! IPv4   vhl 1, tos 1, length 2, id 2, flags+offset 2, ttl 1, protocol 1, checksum 2, src 4, dst 4, options
//! IPv6   version+class+label 4, payload length 2, next header 1, hop limit 1, src 16, dst 16, extensions
//! ```

use super::checksum::internet_checksum;
use super::{Host, IpVersion};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Source and destination of one IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpPair {
    /// Over IPv4.
    V4(Ipv4Addr, Ipv4Addr),
    /// Over IPv6.
    V6(Ipv6Addr, Ipv6Addr),
}

impl IpPair {
    /// From one host to another.
    pub fn between(src: &Host, dst: &Host, version: IpVersion) -> IpPair {
        match version {
            IpVersion::V4 => IpPair::V4(src.v4, dst.v4),
            IpVersion::V6 => IpPair::V6(src.v6, dst.v6),
        }
    }

    /// A packet with default header fields that carries `payload` as `protocol`.
    pub fn packet(&self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        match *self {
            IpPair::V4(src, dst) => Ipv4::new(src, dst, protocol).packet(payload),
            IpPair::V6(src, dst) => Ipv6::new(src, dst, protocol).packet(payload),
        }
    }

    /// The checksum of `segment` with its pseudo header (RFC 9293 section 3.1, RFC 8200 section 8.1).
    pub fn transport_checksum(&self, protocol: u8, segment: &[u8]) -> u16 {
        let len = (segment.len() as u32).to_be_bytes();
        let tail = [0, 0, 0, protocol];
        match self {
            IpPair::V4(src, dst) => internet_checksum(&[&src.octets(), &dst.octets(), &tail, &len, segment]),
            IpPair::V6(src, dst) => internet_checksum(&[&src.octets(), &dst.octets(), &len, &tail, segment]),
        }
    }
}

/// An IPv4 header (RFC 791).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ipv4 {
    /// Source.
    pub src: Ipv4Addr,
    /// Destination.
    pub dst: Ipv4Addr,
    /// The protocol of the payload: 1 ICMP, 6 TCP, 17 UDP.
    pub protocol: u8,
    /// Type of service: DSCP and ECN.
    pub tos: u8,
    /// Identification, shared by the fragments of one packet.
    pub id: u16,
    /// May not be fragmented.
    pub dont_fragment: bool,
    /// Not the last fragment.
    pub more_fragments: bool,
    /// The offset of this fragment, in units of 8 bytes, 0 to 8191.
    pub fragment_offset: u16,
    /// Hops left.
    pub ttl: u8,
    /// Options as given, up to 40 bytes; padded with zeroes to whole words.
    pub options: Vec<u8>,
}

impl Ipv4 {
    /// A header without options: TTL 64, may not be fragmented.
    pub fn new(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8) -> Ipv4 {
        Ipv4 {
            src,
            dst,
            protocol,
            tos: 0,
            id: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            options: Vec::new(),
        }
    }

    /// The packet that carries `payload`.
    pub fn packet(&self, payload: &[u8]) -> Vec<u8> {
        let header_len = 20 + self.options.len().next_multiple_of(4);
        let total_len = (header_len + payload.len()) as u16;
        let fragment = u16::from(self.dont_fragment) << 14
            | u16::from(self.more_fragments) << 13
            | (self.fragment_offset & 0x1fff);
        let mut bytes = Vec::with_capacity(header_len + payload.len());
        bytes.extend_from_slice(&[0x40 | (header_len / 4) as u8, self.tos]);
        bytes.extend_from_slice(&total_len.to_be_bytes());
        bytes.extend_from_slice(&self.id.to_be_bytes());
        bytes.extend_from_slice(&fragment.to_be_bytes());
        bytes.extend_from_slice(&[self.ttl, self.protocol, 0, 0]);
        bytes.extend_from_slice(&self.src.octets());
        bytes.extend_from_slice(&self.dst.octets());
        bytes.extend_from_slice(&self.options);
        bytes.resize(header_len, 0);
        let checksum = internet_checksum(&[&bytes]);
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        bytes.extend_from_slice(payload);
        bytes
    }
}

/// The packets into which `payload` falls when each may carry `fragment_len` bytes, a multiple of 8.
pub fn fragments_v4(header: &Ipv4, payload: &[u8], fragment_len: usize) -> Vec<Vec<u8>> {
    let fragment_len = (fragment_len & !7).max(8);
    let last = payload.len().saturating_sub(1) / fragment_len;
    let fragment = |(index, part): (usize, &[u8])| {
        let header = Ipv4 {
            dont_fragment: false,
            more_fragments: index != last,
            fragment_offset: (index * fragment_len / 8) as u16,
            ..header.clone()
        };
        header.packet(part)
    };
    payload.chunks(fragment_len).enumerate().map(fragment).collect()
}

/// An IPv6 header (RFC 8200).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6 {
    /// Source.
    pub src: Ipv6Addr,
    /// Destination.
    pub dst: Ipv6Addr,
    /// The first header behind this one.
    pub next_header: u8,
    /// Hops left.
    pub hop_limit: u8,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
}

impl Ipv6 {
    /// A header with hop limit 64.
    pub fn new(src: Ipv6Addr, dst: Ipv6Addr, next_header: u8) -> Ipv6 {
        Ipv6 { src, dst, next_header, hop_limit: 64, traffic_class: 0, flow_label: 0 }
    }

    /// The packet that carries `payload`: extension headers, then the transport segment.
    pub fn packet(&self, payload: &[u8]) -> Vec<u8> {
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | (self.flow_label & 0xf_ffff);
        let len = payload.len() as u16;
        let next = [self.next_header, self.hop_limit];
        let parts: [&[u8]; 6] = [
            &first.to_be_bytes(),
            &len.to_be_bytes(),
            &next,
            &self.src.octets(),
            &self.dst.octets(),
            payload,
        ];
        parts.concat()
    }
}

/// A hop-by-hop options header (next header 0) with a router alert (RFC 2711), before `payload`.
pub fn hop_by_hop(next_header: u8, payload: &[u8]) -> Vec<u8> {
    [&[next_header, 0, 5, 2, 0, 0, 1, 0], payload].concat()
}

/// A destination options header (next header 60) of nothing but padding, before `payload`.
pub fn destination_options(next_header: u8, payload: &[u8]) -> Vec<u8> {
    [&[next_header, 0, 1, 4, 0, 0, 0, 0], payload].concat()
}

/// A routing header of type 2 (next header 43, RFC 6275 section 6.4) by way of `hop`, before `payload`.
pub fn routing_header(next_header: u8, hop: Ipv6Addr, payload: &[u8]) -> Vec<u8> {
    [&[next_header, 2, 2, 1, 0, 0, 0, 0], &hop.octets()[..], payload].concat()
}

/// A fragment header (next header 44), `offset` in units of 8 bytes, before `payload`.
pub fn fragment_header(next_header: u8, id: u32, offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    let place = offset << 3 | u16::from(more);
    [&[next_header, 0], &place.to_be_bytes()[..], &id.to_be_bytes(), payload].concat()
}

/// An ICMP message (RFC 792): type, code, the four bytes that depend on them, and the rest.
pub fn icmp(kind: u8, code: u8, word: [u8; 4], rest: &[u8]) -> Vec<u8> {
    let mut bytes = [&[kind, code, 0, 0], &word[..], rest].concat();
    let checksum = internet_checksum(&[&bytes]);
    bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// An ICMPv6 message (RFC 4443); its checksum covers the addresses.
pub fn icmpv6(src: Ipv6Addr, dst: Ipv6Addr, kind: u8, code: u8, word: [u8; 4], rest: &[u8]) -> Vec<u8> {
    let mut bytes = [&[kind, code, 0, 0], &word[..], rest].concat();
    let checksum = IpPair::V6(src, dst).transport_checksum(58, &bytes);
    bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// An IGMP message of version 2 (RFC 2236): 0x11 asks, 0x16 reports, 0x17 leaves.
pub fn igmp(kind: u8, max_response: u8, group: Ipv4Addr) -> Vec<u8> {
    icmp(kind, max_response, group.octets(), &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_sums_to_zero_with_its_checksum() {
        let mut header = Ipv4::new([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), 17);
        header.options = vec![7, 7, 4, 0, 0, 0, 0];
        let packet = header.packet(&[1, 2, 3]);
        assert_eq!(packet.len(), 28 + 3);
        assert_eq!(internet_checksum(&[&packet[..28]]), 0);
    }

    #[test]
    fn fragments_cover_the_payload_once() {
        let payload: Vec<u8> = (0..100).collect();
        let header = Ipv4::new([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), 17);
        let mut joined = Vec::new();
        for packet in fragments_v4(&header, &payload, 24) {
            let offset = usize::from(u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff) * 8;
            assert_eq!(offset, joined.len());
            joined.extend_from_slice(&packet[20..]);
            assert_eq!(packet[6] & 0x20 != 0, joined.len() < payload.len());
        }
        assert_eq!(joined, payload);
    }
}
