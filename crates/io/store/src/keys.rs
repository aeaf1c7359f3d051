//! The facts of a packet as keys of the index.
//!
//! ```text
//! link header, tags --> EtherTypes, VLANs      IP --> protocols, addresses, networks, pair      transport --> ports, flow
//! tunnel --> the same of the packet in it
//! ```
//!
//! The rule that searches rest on: a packet that a filter's [`Question`](crate::Question) can name has the named keys,
//! or is *open*. So whatever a filter may find in a packet by other means than [`Headers`] (a load at a fixed offset
//! reads what an impossible length hides) makes the packet open here.

use std::net::{IpAddr, Ipv4Addr};

use tapline_packet::headers::{Headers, InnerPacket};
use tapline_packet::mix::fold;
use tapline_packet::numbers::{ethertype, ip_protocol, port};
use tapline_packet::{LinkType, Meta, Packet};

/// Kind of fact of a key. The numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Class {
    /// A type of a link header, of a VLAN tag, of the network header.
    EtherType = 1,
    /// Protocol number of IP.
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
    /// Both addresses of an IP packet, or sender and target of ARP, without a direction.
    Pair = 10,
    /// Addresses, protocol and ports, without a direction.
    Flow = 11,
    /// A MAC address; by option.
    Mac = 12,
    /// A name in DNS or a hello; by option.
    Name = 13,
    /// Slots that are open in a [`OpenKeys`].
    Open = 15,
}

/// Added to the class of a fact of the packet in a tunnel.
pub(crate) const INNER: u8 = 16;

/// In which way a slot is open: which facts of its packets are not all in the index. The numbers are part of the
/// format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum OpenKeys {
    /// Any fact.
    All = 0,
    /// Pairs and flows.
    Flows = 1,
    /// Ports from 1024 on.
    Ports = 2,
    /// Addresses and names; not their networks.
    Addresses = 3,
    /// Facts of packets in tunnels.
    Inner = 4,
    /// Names.
    Names = 5,
}

/// Ways in which a slot may be open.
pub const WAYS: usize = WAYS_ALL.len();

/// All of them, by their numbers.
pub const WAYS_ALL: [OpenKeys; 6] =
    [OpenKeys::All, OpenKeys::Flows, OpenKeys::Ports, OpenKeys::Addresses, OpenKeys::Inner, OpenKeys::Names];

/// Group of keys that the budget of an index drops together. The numbers are the upper two bits of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Group {
    /// Few facts in all packets: types, protocols, networks, known ports. Given up last.
    Kinds = 0,
    /// Addresses, names.
    Addresses = 1,
    /// Ports from 1024 on.
    Ports = 2,
    /// Pairs and flows. Given up first.
    Flows = 3,
}

impl Group {
    /// The group of a key.
    #[inline]
    pub fn of(key: u64) -> Group {
        match key >> 62 {
            0 => Group::Kinds,
            1 => Group::Addresses,
            2 => Group::Ports,
            _ => Group::Flows,
        }
    }

    /// The way in which a slot is open where keys of the group were given up.
    pub fn way(self) -> OpenKeys {
        match self {
            Group::Kinds => OpenKeys::All,
            Group::Addresses => OpenKeys::Addresses,
            Group::Ports => OpenKeys::Ports,
            Group::Flows => OpenKeys::Flows,
        }
    }
}

/// The first port that belongs to no service.
const HIGH_PORT: u16 = 1024;

/// The first 192 bits of the fraction of pi.
const SALT: [u64; 3] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0];

/// The key of a fact of a packet's own headers (docs/format/store.md, "Keys").
#[inline]
pub fn key(class: Class, value: u128) -> u64 {
    let group = match class {
        Class::Ipv4 | Class::Ipv6 | Class::Mac | Class::Name => Group::Addresses,
        Class::Port if value as u16 >= HIGH_PORT => Group::Ports,
        Class::Pair | Class::Flow => Group::Flows,
        _ => Group::Kinds,
    };
    key_of(group, class as u8, value)
}

/// The key of a fact of the first packet that a tunnel carries.
#[inline]
pub fn inner_key(class: Class, value: u128) -> u64 {
    key_of(Group::of(key(class, value)), class as u8 + INNER, value)
}

/// Key of the slots that are open in a way.
pub fn open_key(way: OpenKeys) -> u64 {
    key(Class::Open, way as u128)
}

#[inline]
fn key_of(group: Group, class: u8, value: u128) -> u64 {
    (group as u64) << 62 | hash(class, value) >> 2
}

#[inline]
fn hash(class: u8, value: u128) -> u64 {
    let (high, low) = ((value >> 64) as u64, value as u64);
    fold(fold(low ^ SALT[0] ^ u64::from(class), SALT[1] ^ high), SALT[2])
}

/// The value of [`Class::Pair`].
#[inline]
pub fn pair_value(one: IpAddr, other: IpAddr) -> u128 {
    hash_of_address(one).wrapping_add(hash_of_address(other)).into()
}

/// The value of [`Class::Flow`].
#[inline]
pub fn flow_value(one: (IpAddr, u16), other: (IpAddr, u16), protocol: u8) -> u128 {
    let end = |(address, port): (IpAddr, u16)| fold(hash_of_address(address) ^ u64::from(port), SALT[2]);
    end(one).wrapping_add(end(other)).wrapping_mul(u64::from(protocol) + 1).into()
}

#[inline]
fn hash_of_address(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(address) => hash(Class::Ipv4 as u8, u32::from(address).into()),
        IpAddr::V6(address) => hash(Class::Ipv6 as u8, address.into()),
    }
}

/// The value of [`Class::Name`]: of a name in any case.
pub fn name_value(name: &[u8]) -> u128 {
    let mut value = 0;
    for part in name.chunks(8) {
        let mut bytes = [0; 8];
        bytes[..part.len()].copy_from_slice(part);
        bytes.make_ascii_lowercase();
        value = hash(Class::Name as u8, u128::from(value) << 64 | u128::from(u64::from_le_bytes(bytes)));
    }
    value.into()
}

/// The keys of one packet, at most [`KEYS_MAX`].
#[derive(Debug)]
pub(crate) struct PacketKeys {
    keys: [u64; KEYS_MAX],
    len: usize,
    /// Added to classes: 0 or [`INNER`].
    depth: u8,
    has_macs: bool,
}

/// Four tags with three keys each, two EtherTypes, three protocols, two addresses and networks, two ports, pair and
/// flow: 25, twice; two MAC addresses, ways.
const KEYS_MAX: usize = 64;

/// IP protocols of tunnels that filters know. UDP ports and MPLS labels are others.
const TUNNELS: [u8; 3] = [ip_protocol::IPV4, ip_protocol::IPV6, ip_protocol::GRE];
const TUNNEL_PORTS: [u16; 4] = [port::GTP_U, port::VXLAN, port::GENEVE, port::VXLAN_LINUX];

impl PacketKeys {
    pub(crate) fn new(has_macs: bool) -> PacketKeys {
        PacketKeys { keys: [0; KEYS_MAX], len: 0, depth: 0, has_macs }
    }

    /// The keys, perhaps with repetitions. Ways in which the packet is open are among them.
    pub(crate) fn as_slice(&self) -> &[u64] {
        &self.keys[..self.len]
    }

    /// Takes the keys of a packet in place of those before.
    #[inline]
    pub(crate) fn take(&mut self, link_type: LinkType, packet: Packet<'_>, headers: &Headers) {
        (self.len, self.depth) = (0, 0);
        if self.fill(link_type, packet, headers).is_none() {
            self.open(OpenKeys::All);
        }
        match headers.inner(packet.data) {
            Some(inner) => self.take_inner(&inner, packet),
            None if may_be_tunnel(packet.data, headers) => self.open(OpenKeys::Inner),
            None => {}
        }
    }

    /// Takes the facts of the packet in a tunnel.
    fn take_inner(&mut self, inner: &InnerPacket, packet: Packet<'_>) {
        let (data, meta) = (inner.data(packet.data), Meta::default());
        let headers = inner.headers(packet.data);
        self.depth = INNER;
        if self.fill(inner.link_type, Packet { data, meta: &meta }, &headers).is_none() {
            self.open(OpenKeys::Inner);
        }
    }

    fn open(&mut self, way: OpenKeys) {
        self.put(open_key(way));
    }

    #[inline]
    fn push(&mut self, class: Class, value: u128) {
        self.put(if self.depth == 0 { key(class, value) } else { inner_key(class, value) });
    }

    #[inline]
    fn put(&mut self, key: u64) {
        if let Some(place) = self.keys.get_mut(self.len) {
            *place = key;
            self.len += 1;
        } else {
            // Cannot be with the numbers above; a search must not miss a packet if they are ever wrong.
            self.keys[KEYS_MAX - 1] = open_key(OpenKeys::All);
        }
    }

    /// `None` where the packet is open.
    fn fill(&mut self, link_type: LinkType, packet: Packet<'_>, headers: &Headers) -> Option<()> {
        let data = packet.data;
        self.link(link_type, packet, headers)?;
        let Some(at) = headers.l3() else {
            // A frame that ends at its link header, or 802.2, which no key is about: but tags may hide a network
            // header.
            return self.without_network(link_type, data, headers);
        };
        let kind = headers.ether_type()?;
        self.push(Class::EtherType, kind.into());
        match kind {
            ethertype::IPV4 | ethertype::IPV6 => self.ip(data, headers, at),
            ethertype::ARP | ethertype::REVERSE_ARP => {
                let sender = u32_at(data, at + 14)?;
                let target = u32_at(data, at + 24)?;
                self.push(
                    Class::Pair,
                    pair_value(Ipv4Addr::from(sender).into(), Ipv4Addr::from(target).into()),
                );
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
        if self.has_macs && self.depth == 0 && link_type == LinkType::ETHERNET {
            for at in [0, 6] {
                self.push(Class::Mac, mac_value(packet.data.get(at..)?.first_chunk()?));
            }
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
        (kind <= ethertype::LENGTH_MAX).then_some(())
    }

    fn ip(&mut self, data: &[u8], headers: &Headers, at: usize) -> Option<()> {
        let (one, other) = headers.addresses(data).filter(|_| headers.ip().is_some())?;
        self.push(Class::Pair, pair_value(one, other));
        match (one, other) {
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
                if first == ip_protocol::FRAGMENT {
                    self.push(Class::Protocol, (*data.get(at + 40)?).into());
                }
                let protocol = headers.protocol()?;
                let is_later = headers.fragment().is_some_and(|fragment| fragment.is_later());
                if ip_protocol::IPV6_EXTENSIONS.contains(&protocol) && !is_later {
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
        if !ip_protocol::has_ports(protocol) || is_later {
            return Some(());
        }
        let (src, dst) = headers.ports(data)?;
        for port in [src, dst] {
            self.push(Class::Port, port_value(protocol, port));
        }
        let (one, other) = headers.addresses(data)?;
        self.push(Class::Flow, flow_value((one, src), (other, dst), protocol));
        Some(())
    }

    fn ipv4(&mut self, address: u32) {
        self.push(Class::Ipv4, address.into());
        self.push(Class::Ipv4Net, (address >> 8).into());
    }
}

/// Whether a filter may find a tunnel here that [`Headers::inner`] does not.
#[inline]
fn may_be_tunnel(data: &[u8], headers: &Headers) -> bool {
    let has_port = || {
        let ports = headers.ports(data);
        ports.is_none_or(|(src, dst)| TUNNEL_PORTS.contains(&src) || TUNNEL_PORTS.contains(&dst))
    };
    headers.mpls().is_some()
        || headers
            .protocol()
            .is_some_and(|protocol| TUNNELS.contains(&protocol) || protocol == ip_protocol::UDP && has_port())
}

/// The value of [`Class::Mac`].
pub fn mac_value(address: &[u8; 6]) -> u128 {
    address.iter().fold(0, |value, byte| value << 8 | u128::from(*byte))
}

/// The value of [`Class::Port`].
#[inline]
pub fn port_value(protocol: u8, port: u16) -> u128 {
    u128::from(protocol) << 16 | u128::from(port)
}

fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    data.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..)?.first_chunk().copied().map(u32::from_be_bytes)
}
