//! The facts of a packet as keys of the index.
//!
//! ```text
//! link header, tags --> EtherTypes, VLANs      IP --> protocols, addresses, networks      transport --> ports
//! ```
//!
//! The rule that searches rest on: a packet that a filter's [`Question`](crate::Question) can name has the named keys, or is
//! *open*. So whatever a filter may find in a packet by other means than [`Headers`] (a load at a fixed offset reads
//! what an impossible length hides) makes the packet open here.

use std::net::IpAddr;

use tapline_packet::headers::Headers;
use tapline_packet::{LinkType, Packet};

/// What kind of fact a key stands for. The numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Class {
    /// A type of a link header, of a VLAN tag, of the network header.
    EtherType = 1,
    /// What IP carries.
    Protocol = 2,
    /// An IPv4 address, of IP or ARP.
    Ipv4 = 3,
    /// An IPv6 address.
    Ipv6 = 4,
    /// The first 24 bits of an IPv4 address.
    Ipv4Net = 5,
    /// The first 64 bits of an IPv6 address.
    Ipv6Net = 6,
    /// Protocol and port.
    Port = 7,
    /// The identifier of a VLAN tag.
    Vlan = 8,
    /// Any VLAN tag.
    Tagged = 9,
    /// A packet whose facts are not all in the index.
    Open = 15,
}

/// The first 192 bits of the fraction of pi.
const SALT: [u64; 3] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0];

/// The key of a fact (docs/format/store.md, "Index").
#[inline]
pub fn key(class: Class, value: u128) -> u64 {
    let (high, low) = ((value >> 64) as u64, value as u64);
    fold(fold(low ^ SALT[0] ^ class as u64, SALT[1] ^ high), SALT[2])
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// The keys of one packet, at most [`KEYS_MAX`].
#[derive(Debug)]
pub(crate) struct PacketKeys {
    keys: [u64; KEYS_MAX],
    len: usize,
    is_open: bool,
}

/// Four tags with three keys each, two EtherTypes, three protocols, two addresses and networks, two ports: 23.
const KEYS_MAX: usize = 32;

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const RARP: u16 = 0x8035;
const IPV6: u16 = 0x86dd;
/// What is no EtherType but a length (IEEE 802.3).
const LENGTH_MAX: u16 = 1500;
/// The fragment header of IPv6.
const FRAGMENT: u8 = 44;
/// Next headers of IPv6 that are no transport: filters step over some of them.
const EXTENSIONS: [u8; 5] = [0, 43, FRAGMENT, 51, 60];
const WITH_PORTS: [u8; 3] = [6, 17, 132];

impl PacketKeys {
    pub(crate) fn new() -> PacketKeys {
        PacketKeys { keys: [0; KEYS_MAX], len: 0, is_open: false }
    }

    /// The keys, perhaps with repetitions.
    pub(crate) fn as_slice(&self) -> &[u64] {
        &self.keys[..self.len]
    }

    /// Takes the keys of a packet in place of those before.
    #[inline]
    pub(crate) fn take(&mut self, link_type: LinkType, packet: Packet<'_>) {
        (self.len, self.is_open) = (0, false);
        let headers = Headers::parse(link_type, packet);
        if self.fill(link_type, packet, &headers).is_none() {
            self.is_open = true;
        }
        if self.is_open {
            self.push(Class::Open, 0);
        }
    }

    #[inline]
    fn push(&mut self, class: Class, value: u128) {
        if let Some(place) = self.keys.get_mut(self.len) {
            *place = key(class, value);
            self.len += 1;
        } else {
            // Cannot be with the numbers above; a search must not miss a packet if they are ever wrong.
            self.keys[KEYS_MAX - 1] = key(Class::Open, 0);
        }
    }

    /// `None` where the packet is open.
    fn fill(&mut self, link_type: LinkType, packet: Packet<'_>, headers: &Headers) -> Option<()> {
        let data = packet.data;
        self.link(link_type, packet, headers)?;
        let Some(at) = headers.l3() else {
            // A frame that ends at its link header, or 802.2, which no key is about: but tags may hide a network header.
            return self.without_network(link_type, data, headers);
        };
        let kind = headers.ether_type()?;
        self.push(Class::EtherType, kind.into());
        match kind {
            IPV4 | IPV6 => self.ip(data, headers, at),
            ARP | RARP => {
                let sender = u32_at(data, at + 14)?;
                let target = u32_at(data, at + 24)?;
                self.ipv4(sender);
                self.ipv4(target);
                Some(())
            }
            _ => Some(()),
        }
    }

    /// Types and tags in front of the network header.
    fn link(&mut self, link_type: LinkType, packet: Packet<'_>, headers: &Headers) -> Option<()> {
        let type_at = match link_type {
            LinkType::ETHERNET => Some(12),
            LinkType::LINUX_SLL => Some(14),
            LinkType::LINUX_SLL2 => Some(0),
            LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 | LinkType::NULL | LinkType::LOOP => None,
            _ => return None,
        };
        if headers.vlan_count() > headers.vlans().len() {
            return None;
        }
        for tag in headers.vlans() {
            self.push(Class::Tagged, 0);
            self.push(Class::Vlan, tag.id().into());
            self.push(Class::EtherType, tag.tpid.into());
        }
        if let Some(at) = type_at {
            let kind = u16_at(packet.data, at)?;
            self.push(Class::EtherType, kind.into());
        }
        Some(())
    }

    /// A packet in which no network header was found.
    fn without_network(&mut self, link_type: LinkType, data: &[u8], headers: &Headers) -> Option<()> {
        if link_type != LinkType::ETHERNET || headers.vlan_count() > 0 {
            return None;
        }
        let kind = u16_at(data, 12)?;
        // 802.2 without SNAP: the key of its length was taken, and filters ask no more of it by keys.
        (kind <= LENGTH_MAX).then_some(())
    }

    fn ip(&mut self, data: &[u8], headers: &Headers, at: usize) -> Option<()> {
        match headers.addresses(data).filter(|_| headers.ip().is_some())? {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                self.ipv4(src.into());
                self.ipv4(dst.into());
                let protocol = headers.protocol()?;
                self.push(Class::Protocol, protocol.into());
                self.ports(data, headers, protocol)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                for address in [src, dst].map(u128::from) {
                    self.push(Class::Ipv6, address);
                    self.push(Class::Ipv6Net, address >> 64);
                }
                let first = *data.get(at + 6)?;
                self.push(Class::Protocol, first.into());
                if first == FRAGMENT {
                    self.push(Class::Protocol, (*data.get(at + 40)?).into());
                }
                let protocol = headers.protocol()?;
                let is_later = headers.fragment().is_some_and(|fragment| fragment.is_later());
                if EXTENSIONS.contains(&protocol) && !is_later {
                    return None;
                }
                self.push(Class::Protocol, protocol.into());
                self.ports(data, headers, protocol)
            }
            _ => None,
        }
    }

    fn ports(&mut self, data: &[u8], headers: &Headers, protocol: u8) -> Option<()> {
        let is_later = headers.fragment().is_some_and(|fragment| fragment.is_later());
        if !WITH_PORTS.contains(&protocol) || is_later {
            return Some(());
        }
        let (src, dst) = headers.ports(data)?;
        for port in [src, dst] {
            self.push(Class::Port, port_value(protocol, port));
        }
        Some(())
    }

    fn ipv4(&mut self, address: u32) {
        self.push(Class::Ipv4, address.into());
        self.push(Class::Ipv4Net, (address >> 8).into());
    }
}

/// The value of [`Class::Port`].
pub(crate) fn port_value(protocol: u8, port: u16) -> u128 {
    u128::from(protocol) << 16 | u128::from(port)
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..)?.first_chunk().copied().map(u32::from_be_bytes)
}
