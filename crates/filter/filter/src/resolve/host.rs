//! Addresses in headers.
//!
//! ```text
//! IPv4      source at 12, destination at 16        IPv6   source at 8, destination at 24
//! ARP       sender at 14, target at 24             (also RARP; assumes 6-byte hardware addresses, as on Ethernet)
//! Ethernet  destination at 0, source at 6          FDDI   1 and 7;  Token Ring 2 and 8;  IP over FC 2 and 10
//! ARCnet    source at 0, destination at 1          MS/TP  destination at 3, source at 4
//! ```

use tapline_packet::LinkType;

use super::layers::{bytes, equal, masked};
use super::numbers::ethertype;
use super::{Result, Scope, bad_qualifier};
use crate::ast::{Direction, IdKind, Protocol, Qualifiers};
use crate::predicate::Predicate;
use tapline_bpf::cfg::Width;
use tapline_syntax::Error;

impl Scope<'_> {
    /// An IPv4 host or network, in IPv4 and, unless one protocol is named, in ARP and RARP.
    pub(super) fn ipv4_host(&mut self, address: u32, mask: u32, qualifiers: Qualifiers) -> Result<Predicate> {
        let direction = qualifiers.direction;
        match qualifiers.protocol {
            None => {
                let ip = self.ipv4_in(ethertype::IPV4, address, mask, direction)?;
                if self.layers.labels > 0 {
                    return Ok(ip);
                }
                let arp = self.ipv4_in(ethertype::ARP, address, mask, direction)?;
                let rarp = self.ipv4_in(ethertype::REVERSE_ARP, address, mask, direction)?;
                Ok(ip.or(arp).or(rarp))
            }
            Some(Protocol::Ip) => self.ipv4_in(ethertype::IPV4, address, mask, direction),
            Some(Protocol::Arp) => self.ipv4_in(ethertype::ARP, address, mask, direction),
            Some(Protocol::Rarp) => self.ipv4_in(ethertype::REVERSE_ARP, address, mask, direction),
            Some(other) => {
                let what = if qualifiers.kind == Some(IdKind::Net) { "ip net" } else { "ip host" };
                Err(bad_qualifier(other.name(), what))
            }
        }
    }

    fn ipv4_in(
        &mut self,
        protocol: u32,
        address: u32,
        mask: u32,
        direction: Option<Direction>,
    ) -> Result<Predicate> {
        let (source, destination, names) = match protocol {
            ethertype::IPV4 => (12, 16, ["IPv4 source", "IPv4 destination"]),
            _ => (14, 24, ["ARP sender address", "ARP target address"]),
        };
        let carried = self.link_protocol(protocol)?;
        if mask == 0 && address == 0 {
            return Ok(carried);
        }
        let source = masked(self.at_network(source), Width::Word, address, mask, names[0]);
        let destination = masked(self.at_network(destination), Width::Word, address, mask, names[1]);
        Ok(carried.and(by_direction(direction, source, destination)?))
    }

    /// An IPv6 host or network.
    pub(super) fn ipv6_host(
        &mut self,
        address: u128,
        mask: u128,
        qualifiers: Qualifiers,
    ) -> Result<Predicate> {
        if !matches!(qualifiers.protocol, None | Some(Protocol::Ip6)) {
            let what = if qualifiers.kind == Some(IdKind::Net) { "ip6 net" } else { "ip6 host" };
            return Err(bad_qualifier(qualifiers.protocol.map_or("", Protocol::name), what));
        }
        let carried = self.link_protocol(ethertype::IPV6)?;
        if mask == 0 && address == 0 {
            return Ok(carried);
        }
        let source = self.ipv6_at(8, address, mask, "IPv6 source");
        let destination = self.ipv6_at(24, address, mask, "IPv6 destination");
        Ok(carried.and(by_direction(qualifiers.direction, source, destination)?))
    }

    /// Four words, from the first; those that the mask leaves out are not read.
    fn ipv6_at(&mut self, offset: u32, address: u128, mask: u128, name: &'static str) -> Predicate {
        let word = |of: u128, index: u32| (of >> (96 - 32 * index)) as u32;
        let words = (0..4).filter(|index| word(mask, *index) != 0 || word(address, *index) != 0);
        Predicate::all(words.map(|index| {
            let place = self.at_network(offset + 4 * index);
            masked(place, Width::Word, word(address, index), word(mask, index), name)
        }))
    }

    /// Whether the link type has Ethernet's addresses.
    pub(super) fn has_mac48(&self) -> bool {
        self.mac48_offsets().is_some() || self.is_wlan()
    }

    /// Offsets of source and destination.
    fn mac48_offsets(&self) -> Option<(u32, u32)> {
        match self.link_type() {
            LinkType::ETHERNET
            | LinkType::NETANALYZER
            | LinkType::NETANALYZER_TRANSPARENT
            | LinkType::DSA_TAG_BRCM
            | LinkType::DSA_TAG_DSA
            | LinkType::DSA_TAG_EDSA => Some((6, 0)),
            LinkType::FDDI => Some((7, 1)),
            LinkType::IEEE802_5 => Some((8, 2)),
            LinkType::IP_OVER_FC => Some((10, 2)),
            _ => None,
        }
    }

    /// A 48-bit link-layer address.
    pub(super) fn link_host(
        &mut self,
        address: [u8; 6],
        direction: Option<Direction>,
        context: &str,
    ) -> Result<Predicate> {
        if self.is_wlan() {
            return Ok(self.wlan_host(address, direction));
        }
        let Some((source, destination)) = self.mac48_offsets() else {
            return Err(self.unsupported(context));
        };
        let check = self.outer_check_for_ethernet();
        let source = bytes(self.at_link(source), &address, "link-layer source");
        let destination = bytes(self.at_link(destination), &address, "link-layer destination");
        let host = by_direction(direction, source, destination)?;
        Ok(Predicate::all(check.into_iter().chain([host])))
    }

    /// Only Ethernet can be within something else.
    fn outer_check_for_ethernet(&mut self) -> Option<Predicate> {
        match self.link_type() {
            LinkType::ETHERNET | LinkType::NETANALYZER | LinkType::NETANALYZER_TRANSPARENT => {
                self.outer_check()
            }
            _ => None,
        }
    }

    /// An 8-bit link-layer address.
    pub(super) fn short_link_host(
        &mut self,
        address: u8,
        direction: Option<Direction>,
        context: &str,
    ) -> Result<Predicate> {
        let (source, destination) = match self.link_type() {
            LinkType::ARCNET_BSD | LinkType::ARCNET_LINUX => (0, 1),
            LinkType::BACNET_MS_TP => (4, 3),
            _ => return Err(self.unsupported(context)),
        };
        let source = equal(self.at_link(source), Width::Byte, u32::from(address), "link-layer source");
        let destination =
            equal(self.at_link(destination), Width::Byte, u32::from(address), "link-layer destination");
        by_direction(direction, source, destination)
            .map_err(|_| bad_qualifier(direction.map_or("", Direction::name), context))
    }

    /// `broadcast`, with a protocol before it or none.
    pub(super) fn broadcast(&mut self, protocol: Option<Protocol>) -> Result<Predicate> {
        let to = Some(Direction::Dst);
        match protocol {
            None | Some(Protocol::Link) => match self.link_type() {
                LinkType::ARCNET_BSD | LinkType::ARCNET_LINUX => self.short_link_host(0, to, "broadcast"),
                LinkType::BACNET_MS_TP => self.short_link_host(0xff, to, "broadcast"),
                _ => self.link_host([0xff; 6], to, "broadcast"),
            },
            Some(Protocol::Ip) => self.ip_broadcast(),
            Some(other) => Err(bad_qualifier(other.name(), "broadcast")),
        }
    }

    /// The host part of the destination is all zeros or all ones.
    fn ip_broadcast(&mut self) -> Result<Predicate> {
        let Some(netmask) = self.options.netmask.filter(|mask| *mask != u32::MAX) else {
            return Err(Error::whole("netmask not known, so 'ip broadcast' not supported"));
        };
        let is_ip = self.link_protocol(ethertype::IPV4)?;
        let at = self.at_network(16);
        let part = |value| masked(at, Width::Word, value, !netmask, "IPv4 destination");
        Ok(is_ip.and(part(0).or(part(!netmask))))
    }

    /// `multicast`, with a protocol before it or none.
    pub(super) fn multicast(&mut self, protocol: Option<Protocol>) -> Result<Predicate> {
        match protocol {
            None | Some(Protocol::Link) => self.link_multicast(),
            Some(Protocol::Ip) => {
                let is_ip = self.link_protocol(ethertype::IPV4)?;
                Ok(is_ip.and(masked(self.at_network(16), Width::Byte, 0xe0, 0xf0, "IPv4 destination")))
            }
            Some(Protocol::Ip6) => {
                let is_ip6 = self.link_protocol(ethertype::IPV6)?;
                Ok(is_ip6.and(equal(self.at_network(24), Width::Byte, 0xff, "IPv6 destination")))
            }
            Some(other) => Err(bad_qualifier(other.name(), "multicast")),
        }
    }

    fn link_multicast(&mut self) -> Result<Predicate> {
        if self.is_wlan() {
            return Ok(self.wlan_multicast());
        }
        if let LinkType::ARCNET_BSD | LinkType::ARCNET_LINUX = self.link_type() {
            return self.short_link_host(0, Some(Direction::Dst), "multicast");
        }
        let Some((_, destination)) = self.mac48_offsets() else {
            return Err(self.unsupported("multicast"));
        };
        let check = self.outer_check_for_ethernet();
        let group = self.group_bit(destination);
        Ok(Predicate::all(check.into_iter().chain([group])))
    }

    /// The low bit of an address's first byte: a group's address.
    pub(super) fn group_bit(&mut self, offset: u32) -> Predicate {
        super::layers::any_set(self.at_link(offset), Width::Byte, 0x01, "group bit")
    }
}

/// Source, destination, either or both.
pub(super) fn by_direction(
    direction: Option<Direction>,
    source: Predicate,
    destination: Predicate,
) -> Result<Predicate> {
    match direction {
        None | Some(Direction::SrcOrDst) => Ok(source.or(destination)),
        Some(Direction::SrcAndDst) => Ok(source.and(destination)),
        Some(Direction::Src) => Ok(source),
        Some(Direction::Dst) => Ok(destination),
        Some(other) => Err(Error::whole(format!("'{}' is valid for 802.11 syntax only", other.name()))),
    }
}
