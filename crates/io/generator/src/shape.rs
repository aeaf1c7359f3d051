//! The headers that all packets of one protocol and IP version share, and the parts of their checksums that stay.
//!
//! ```text
//! | Ethernet | VLAN tags | MPLS | [ IPv4 UDP VXLAN Ethernet ] | IP | UDP, TCP, ICMP | payload
//! 0                             outer                         l3   l4               len
//! ```

use tapline_packet::headers::IpVersion;
use tapline_packet::numbers::{ethertype, port};

use crate::checksum;
use crate::recipe::{Recipe, Transport};

/// The ends of VXLAN tunnels: 10.255.0.1 to 10.255.0.2.
const TUNNEL: [[u8; 4]; 2] = [[10, 255, 0, 1], [10, 255, 0, 2]];
/// `dont fragment`, in an IPv4 header's seventh and eighth byte.
pub(crate) const DONT_FRAGMENT: u16 = 0x4000;

/// Headers with zeroes where packets differ.
pub(crate) struct Shape {
    pub(crate) transport: Transport,
    pub(crate) version: IpVersion,
    pub(crate) bytes: Vec<u8>,
    /// The offset of the tunnel's IPv4 header, if there is a tunnel.
    pub(crate) outer: Option<usize>,
    pub(crate) l3: usize,
    pub(crate) l4: usize,
    /// The sums of the tunnel's IPv4 header, of the IPv4 header, and of the transport header with the protocol of its
    /// pseudo header.
    pub(crate) outer_sum: u32,
    pub(crate) ip_sum: u32,
    pub(crate) l4_sum: u32,
}

impl Shape {
    pub(crate) fn new(recipe: &Recipe, transport: Transport, version: IpVersion) -> Shape {
        let mut bytes = Vec::with_capacity(160);
        let network = match version {
            IpVersion::V4 => ethertype::IPV4,
            IpVersion::V6 => ethertype::IPV6,
        };
        let carried = if recipe.vxlan.is_some() { ethertype::IPV4 } else { network };
        link(&mut bytes, recipe, carried);
        let outer = recipe.vxlan.map(|vni| {
            let outer = bytes.len();
            tunnel(&mut bytes, recipe, vni);
            ethernet(&mut bytes, recipe, network);
            outer
        });
        let l3 = bytes.len();
        let number = protocol(transport, version);
        match version {
            IpVersion::V4 => ipv4(&mut bytes, recipe, number, DONT_FRAGMENT),
            IpVersion::V6 => {
                let class = u32::from(recipe.tos) << 20;
                bytes.extend_from_slice(&(0x6000_0000 | class).to_be_bytes());
                bytes.extend_from_slice(&[0, 0, number, recipe.ttl]);
                bytes.extend_from_slice(&[0; 32]);
            }
        }
        let l4 = bytes.len();
        transport_header(&mut bytes, transport, version);
        let has_pseudo_header = transport != Transport::Icmp || version == IpVersion::V6;
        let pseudo = if has_pseudo_header { u32::from(number) } else { 0 };
        let sum_of = |from: usize| checksum::sum(&bytes[from..from + 20]);
        Shape {
            transport,
            version,
            outer,
            l3,
            l4,
            outer_sum: outer.map_or(0, sum_of),
            ip_sum: if version == IpVersion::V4 { sum_of(l3) } else { 0 },
            l4_sum: checksum::sum(&bytes[l4..]) + pseudo,
            bytes,
        }
    }

    /// Bytes of all headers.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether addresses and length count in the transport's checksum.
    #[inline]
    pub(crate) fn has_pseudo_header(&self) -> bool {
        self.transport != Transport::Icmp || self.version == IpVersion::V6
    }

    /// The offset of the checksum in the transport's header.
    #[inline]
    pub(crate) fn checksum_at(&self) -> usize {
        match self.transport {
            Transport::Udp => 6,
            Transport::Tcp => 16,
            Transport::Icmp => 2,
        }
    }
}

pub(crate) fn protocol(transport: Transport, version: IpVersion) -> u8 {
    match (transport, version) {
        (Transport::Udp, _) => 17,
        (Transport::Tcp, _) => 6,
        (Transport::Icmp, IpVersion::V4) => 1,
        (Transport::Icmp, IpVersion::V6) => 58,
    }
}

fn ethernet(bytes: &mut Vec<u8>, recipe: &Recipe, ether_type: u16) {
    bytes.extend_from_slice(&recipe.dst_mac);
    bytes.extend_from_slice(&recipe.src_mac);
    bytes.extend_from_slice(&ether_type.to_be_bytes());
}

/// The frame's own header, tags and labels, before a packet of this type.
fn link(bytes: &mut Vec<u8>, recipe: &Recipe, carried: u16) {
    bytes.extend_from_slice(&recipe.dst_mac);
    bytes.extend_from_slice(&recipe.src_mac);
    for (place, id) in recipe.vlans.iter().enumerate() {
        let is_outer = place + 1 < recipe.vlans.len();
        bytes.extend_from_slice(
            &if is_outer { ethertype::VLAN_PROVIDER } else { ethertype::VLAN }.to_be_bytes(),
        );
        bytes.extend_from_slice(&id.to_be_bytes());
    }
    let ether_type = if recipe.labels.is_empty() { carried } else { ethertype::MPLS };
    bytes.extend_from_slice(&ether_type.to_be_bytes());
    for (place, label) in recipe.labels.iter().enumerate() {
        // RFC 3032, 2.1: label 20, class 3, bottom of the stack 1, time to live 8.
        let bottom = u32::from(place + 1 == recipe.labels.len());
        bytes.extend_from_slice(&(label << 12 | bottom << 8 | u32::from(recipe.ttl)).to_be_bytes());
    }
}

/// RFC 7348, 5; the checksum of its UDP header is zero, as it says there: none.
fn tunnel(bytes: &mut Vec<u8>, recipe: &Recipe, vni: u32) {
    let header = bytes.len();
    ipv4(bytes, recipe, protocol(Transport::Udp, IpVersion::V4), DONT_FRAGMENT);
    bytes[header + 12..header + 16].copy_from_slice(&TUNNEL[0]);
    bytes[header + 16..header + 20].copy_from_slice(&TUNNEL[1]);
    bytes.extend_from_slice(&[0, 0]);
    bytes.extend_from_slice(&port::VXLAN.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&[0x08, 0, 0, 0]);
    bytes.extend_from_slice(&(vni << 8).to_be_bytes());
}

fn ipv4(bytes: &mut Vec<u8>, recipe: &Recipe, protocol: u8, flags: u16) {
    bytes.extend_from_slice(&[0x45, recipe.tos, 0, 0, 0, 0]);
    bytes.extend_from_slice(&flags.to_be_bytes());
    bytes.extend_from_slice(&[recipe.ttl, protocol, 0, 0]);
    bytes.extend_from_slice(&[0; 8]);
}

fn transport_header(bytes: &mut Vec<u8>, transport: Transport, version: IpVersion) {
    match transport {
        Transport::Udp => bytes.extend_from_slice(&[0; 8]),
        Transport::Tcp => {
            const WINDOW: u16 = 64_240;
            bytes.extend_from_slice(&[0; 12]);
            bytes.extend_from_slice(&[0x50, 0]);
            bytes.extend_from_slice(&WINDOW.to_be_bytes());
            bytes.extend_from_slice(&[0; 4]);
        }
        Transport::Icmp => {
            let echo_request = if version == IpVersion::V4 { 8 } else { 128 };
            bytes.extend_from_slice(&[echo_request, 0, 0, 0, 0, 0, 0, 0]);
        }
    }
}
