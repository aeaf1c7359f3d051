//! The way through a packet, layer by layer.
//!
//! Of each layer the checksums are noted before anything in it changes, and put right from the innermost outwards once
//! all has changed: an outer checksum covers the inner ones.

use std::ops::Range;

use tapline_packet::LinkType;
use tapline_packet::headers::{Headers, IpVersion};
use tapline_packet::numbers::{ethertype, ip_protocol};

use crate::checksum::{Kind, Scope};
use crate::options;
use crate::prefix::{Key, PrefixPreserving};

/// Depth of parsed packets inside packets: tunnels, and packets that ICMP quotes. Deeper ones count as payload.
const DEPTH_MAX: u8 = 8;

/// Protocols of IP that are looked into and that `packet` has no name for.
const UDP_LITE: u8 = 136;
const OSPF: u8 = 89;
const PIM: u8 = 103;
const MOBILITY: u8 = 135;

/// The treatment of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// The payload stays, with names, addresses and secrets in it.
    Keep,
    /// The bytes of the payload become 0.
    Zero,
    /// The packet ends before it; its length on the wire stays.
    Cut,
}

/// The parts of packets that are masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether IP addresses become their images.
    pub masks_addresses: bool,
    /// Whether hardware addresses become others.
    pub masks_macs: bool,
    /// The treatment of payload.
    pub payload: Payload,
}

/// Packets so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that were masked.
    pub packets: u64,
    /// IP headers in them: outer, inner, and those that ICMP quotes.
    pub ip_headers: u64,
    /// Packets of protocols, or with headers, that are not looked into: all of it behind the last known header was
    /// removed.
    pub not_understood: u64,
}

/// Masks packets.
pub struct Masker {
    pub(crate) settings: Settings,
    images: PrefixPreserving,
    scopes: Vec<Scope>,
    /// The bytes that are kept of the packet.
    kept: usize,
    is_understood: bool,
    counts: Counts,
}

impl Masker {
    /// Masks by these settings; images of addresses are those under `key`.
    pub fn new(settings: Settings, key: &Key) -> Masker {
        Masker {
            settings,
            images: PrefixPreserving::new(key),
            scopes: Vec::new(),
            kept: 0,
            is_understood: true,
            counts: Counts::default(),
        }
    }

    /// Packets so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Masks the captured bytes of a packet in place and returns how many of them are to be kept: all, but for
    /// [`Payload::Cut`].
    pub fn mask(&mut self, link_type: LinkType, data: &mut [u8]) -> usize {
        self.scopes.clear();
        (self.kept, self.is_understood) = (data.len(), true);
        self.frame(data, 0..data.len(), link_type, 0);
        while let Some(scope) = self.scopes.pop() {
            scope.close(data);
        }
        self.counts.packets += 1;
        self.counts.not_understood += u64::from(!self.is_understood);
        self.kept
    }

    /// A packet of a link type at `place`.
    fn frame(&mut self, data: &mut [u8], place: Range<usize>, link_type: LinkType, depth: u8) {
        let headers = Headers::parse_data(link_type, &data[place.clone()]);
        let inner = headers.inner(&data[place.clone()]);
        self.link_addresses(data, place.clone(), link_type);
        let Some(l3) = headers.l3().map(|l3| place.start + l3) else {
            return self.not_understood(data, place);
        };
        if headers.ip().is_some() {
            return self.ip(data, l3..place.end, depth);
        }
        match (headers.ether_type(), inner) {
            (Some(ethertype::ARP), _) => self.arp(data, l3..place.end),
            (_, Some(inner)) if depth < DEPTH_MAX => {
                let start = place.start + inner.offset;
                self.frame(data, start..start + inner.len, inner.link_type, depth + 1);
            }
            _ => self.not_understood(data, l3..place.end),
        }
    }

    /// An IP packet at `place`, which may be longer than it.
    pub(crate) fn ip(&mut self, data: &mut [u8], place: Range<usize>, depth: u8) {
        let headers = Headers::parse_ip(&data[..place.end], place.start);
        let Some(version) = headers.ip().filter(|_| depth <= DEPTH_MAX) else {
            return self.not_understood(data, place);
        };
        self.counts.ip_headers += 1;
        let fixed_len = if version == IpVersion::V4 { 20 } else { 40 };
        let end = headers.ip_end().max(place.start + fixed_len);
        // Tunnels are told by their headers, which nothing has changed yet.
        let inner = headers.inner(&data[..place.end]);
        let behind = self.network(data, place.start, end, version, &headers);
        match (headers.l4(), headers.payload()) {
            (None, Some(later)) => self.wipe(data, later..end),
            (None, None) => self.not_understood(data, behind.min(end)..end),
            (Some(l4), payload) => match inner.filter(|_| depth < DEPTH_MAX) {
                Some(inner) => {
                    let inside = inner.offset..inner.offset + inner.len;
                    self.frame(data, inside, inner.link_type, depth + 1);
                }
                None => self.transport(data, l4..end, payload, &headers, depth),
            },
        }
        self.wipe(data, end..place.end);
    }

    /// Notes the checksums of an IP packet, and masks its addresses; returns the end of its fixed header and options.
    fn network(
        &mut self,
        data: &mut [u8],
        at: usize,
        end: usize,
        version: IpVersion,
        headers: &Headers,
    ) -> usize {
        let (behind, mut pseudo) = match version {
            IpVersion::V4 => {
                let behind = (at + usize::from(data[at] & 15) * 4).min(end);
                self.note(data, at + 10, Kind::Internet, [at..behind, 0..0, 0..0]);
                (behind, [at + 12..at + 16, at + 16..at + 20])
            }
            IpVersion::V6 => (at + 40, [at + 8..at + 24, at + 24..at + 40]),
        };
        if version == IpVersion::V6 {
            options::effective_addresses(data, at, headers.l4().unwrap_or(end), &mut pseudo);
        }
        if let Some(l4) = headers.l4() {
            self.note_transport(data, l4..end, version, headers.protocol().unwrap_or(0), pseudo);
        }
        if self.settings.masks_addresses {
            match version {
                IpVersion::V4 => {
                    self.v4(data, at + 12);
                    self.v4(data, at + 16);
                    self.v4_options(data, at + 20..behind);
                }
                IpVersion::V6 => {
                    self.v6(data, at + 8);
                    self.v6(data, at + 24);
                    self.v6_extensions(data, at, headers.l4().unwrap_or(end));
                }
            }
        }
        behind
    }

    /// Notes the checksum of the payload of IP.
    fn note_transport(
        &mut self,
        data: &[u8],
        place: Range<usize>,
        version: IpVersion,
        protocol: u8,
        [source, destination]: [Range<usize>; 2],
    ) {
        let is_v6 = version == IpVersion::V6;
        let (field, has_pseudo, kind) = match protocol {
            ip_protocol::TCP => (16, true, Kind::Internet),
            ip_protocol::UDP => (6, true, Kind::Udp),
            UDP_LITE | ip_protocol::DCCP => (6, true, Kind::Internet),
            ip_protocol::ICMP | ip_protocol::IGMP => (2, false, Kind::Internet),
            ip_protocol::ICMPV6 => (2, true, Kind::Internet),
            ip_protocol::SCTP => (8, false, Kind::Sctp),
            ip_protocol::GRE if data.get(place.start).is_some_and(|flags| flags & 0x80 != 0) => {
                (4, false, Kind::Internet)
            }
            OSPF if is_v6 => (12, true, Kind::Internet),
            PIM if is_v6 => (2, true, Kind::Internet),
            MOBILITY => (4, true, Kind::Internet),
            _ => return,
        };
        let end = match protocol {
            ip_protocol::UDP => udp_end(data, &place),
            _ => place.end,
        };
        let pseudo = if has_pseudo { [source, destination] } else { [0..0, 0..0] };
        let [source, destination] = pseudo;
        self.note(data, place.start + field, kind, [place.start..end, source, destination]);
    }

    fn note(&mut self, data: &[u8], field: usize, kind: Kind, covered: [Range<usize>; 3]) {
        self.scopes.extend(Scope::new(data, field, kind, covered));
    }

    /// Masks the payload of IP, unless it is a known tunnel.
    fn transport(
        &mut self,
        data: &mut [u8],
        place: Range<usize>,
        payload: Option<usize>,
        headers: &Headers,
        depth: u8,
    ) {
        let at = |offset: usize| (place.start + offset).min(place.end);
        match headers.protocol().unwrap_or(0) {
            ip_protocol::TCP => {
                let behind = payload.unwrap_or(at(20)).min(place.end);
                self.tcp_options(data, at(20)..behind.max(at(20)));
                self.wipe(data, behind..place.end);
            }
            ip_protocol::UDP | UDP_LITE => self.wipe(data, at(8)..place.end),
            ip_protocol::SCTP => self.wipe(data, at(12)..place.end),
            ip_protocol::ICMP => self.icmp(data, place, depth),
            ip_protocol::ICMPV6 => self.icmp6(data, place, depth),
            ip_protocol::IGMP => self.igmp(data, place),
            // Parameters and numbers of a security association are not addresses.
            ip_protocol::ESP => self.wipe(data, at(8)..place.end),
            _ => {
                self.is_understood &= place.is_empty();
                self.wipe(data, place);
            }
        }
    }

    /// Removes payload.
    pub(crate) fn wipe(&mut self, data: &mut [u8], place: Range<usize>) {
        if place.is_empty() {
            return;
        }
        match self.settings.payload {
            Payload::Keep => {}
            Payload::Zero => data[place].fill(0),
            Payload::Cut => self.kept = self.kept.min(place.start),
        }
    }

    /// Removes bytes that may hold addresses that are not found.
    pub(crate) fn not_understood(&mut self, data: &mut [u8], place: Range<usize>) {
        if place.is_empty() {
            return;
        }
        self.is_understood = false;
        match self.settings.payload {
            Payload::Keep if self.settings.masks_addresses => data[place].fill(0),
            _ => self.wipe(data, place),
        }
    }

    /// Masks the IPv4 address at `at`, if it is there.
    pub(crate) fn v4(&mut self, data: &mut [u8], at: usize) {
        if self.settings.masks_addresses
            && let Some(address) = data.get_mut(at..).and_then(|rest| rest.first_chunk_mut())
        {
            *address = self.images.v4(*address);
        }
    }

    /// Masks the IPv6 address at `at`, if it is there.
    pub(crate) fn v6(&mut self, data: &mut [u8], at: usize) {
        if self.settings.masks_addresses
            && let Some(address) = data.get_mut(at..).and_then(|rest| rest.first_chunk_mut())
        {
            *address = self.images.v6(*address);
        }
    }

    /// Masks the hardware address at `at`, if it is there.
    pub(crate) fn mac(&mut self, data: &mut [u8], at: usize) {
        if self.settings.masks_macs
            && let Some(address) = data.get_mut(at..).and_then(|rest| rest.first_chunk_mut())
        {
            *address = self.images.mac(*address);
        }
    }

    fn link_addresses(&mut self, data: &mut [u8], place: Range<usize>, link_type: LinkType) {
        let frame = &mut data[..place.end];
        match link_type {
            LinkType::ETHERNET => {
                self.mac(frame, place.start);
                self.mac(frame, place.start + 6);
            }
            LinkType::LINUX_SLL if frame.get(place.start + 5) == Some(&6) => self.mac(frame, place.start + 6),
            LinkType::LINUX_SLL2 if frame.get(place.start + 11) == Some(&6) => {
                self.mac(frame, place.start + 12);
            }
            _ => {}
        }
    }

    /// RFC 826, of Ethernet and IPv4; of others all behind the fixed part is removed.
    fn arp(&mut self, data: &mut [u8], place: Range<usize>) {
        let at = place.start;
        let fixed = &data[place.clone()];
        if fixed.len() < 8 || fixed[2..6] != [8, 0, 6, 4] {
            return self.not_understood(data, (at + 8).min(place.end)..place.end);
        }
        let packet = &mut data[..place.end];
        self.mac(packet, at + 8);
        self.v4(packet, at + 14);
        self.mac(packet, at + 18);
        self.v4(packet, at + 24);
        self.wipe(data, (at + 28).min(place.end)..place.end);
    }
}

/// The end of the bytes that the checksum of UDP covers.
fn udp_end(data: &[u8], place: &Range<usize>) -> usize {
    let len = data.get(place.start + 4..place.start + 6);
    match len.map(|len| usize::from(u16::from_be_bytes([len[0], len[1]]))) {
        Some(len @ 8..) => place.end.min(place.start + len),
        _ => place.end,
    }
}
