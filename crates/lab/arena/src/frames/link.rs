//! Link layers: Ethernet and the headers between it and the network layer.
//!
//! ```text
//! Ethernet   dst 6, src 6, type 2, payload
//! 802.1Q     ... type 0x8100, tci 2, inner type 2, payload
//! 802.3      dst 6, src 6, length 2, dsap 1, ssap 1, control 1, payload
//! ```

use super::Host;
use std::net::Ipv4Addr;

/// A 48-bit link-layer address.
pub type Mac = [u8; 6];

/// All stations.
pub const BROADCAST: Mac = [0xff; 6];
/// Address resolution, RFC 826.
pub const ETHERTYPE_ARP: u16 = 0x0806;
/// IPv4, RFC 894.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// IPv6, RFC 2464.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;

/// Destination and source of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// Receiver.
    pub dst: Mac,
    /// Sender.
    pub src: Mac,
}

impl Ethernet {
    /// From one host to another.
    pub fn between(src: &Host, dst: &Host) -> Ethernet {
        Ethernet { dst: dst.mac, src: src.mac }
    }

    /// From a host to all.
    pub fn broadcast(src: &Host) -> Ethernet {
        Ethernet { dst: BROADCAST, src: src.mac }
    }

    /// From a host to a group of IPv4: the low 23 bits of the address (RFC 1112 section 6.4).
    pub fn multicast_v4(src: &Host, group: Ipv4Addr) -> Ethernet {
        let [_, b, c, d] = group.octets();
        Ethernet { dst: [0x01, 0x00, 0x5e, b & 0x7f, c, d], src: src.mac }
    }

    /// The frame that carries `payload` as `ethertype`.
    pub fn frame(&self, ethertype: u16, payload: &[u8]) -> Vec<u8> {
        [&self.dst[..], &self.src, &ethertype.to_be_bytes(), payload].concat()
    }

    /// The frame that carries an IP packet, its type taken from the version.
    pub fn ip(&self, packet: &[u8]) -> Vec<u8> {
        let is_v6 = packet.first().is_some_and(|byte| byte >> 4 == 6);
        self.frame(if is_v6 { ETHERTYPE_IPV6 } else { ETHERTYPE_IPV4 }, packet)
    }

    /// An IEEE 802.3 frame: the length of the payload where others have a type.
    pub fn frame_802_3(&self, payload: &[u8]) -> Vec<u8> {
        self.frame(payload.len() as u16, payload)
    }
}

/// Puts an 802.1Q tag (`tpid` 0x8100) or 802.1ad tag (0x88a8) into a frame, outside of those it has.
///
/// # Panics
/// If `frame` is shorter than its two addresses.
pub fn vlan(frame: &[u8], tpid: u16, tci: u16) -> Vec<u8> {
    let (addresses, rest) = frame.split_at(12);
    [addresses, &tpid.to_be_bytes(), &tci.to_be_bytes(), rest].concat()
}

/// ARP for IPv4 over Ethernet (RFC 826): operation 1 asks, 2 answers.
pub fn arp(operation: u16, sender: &Host, target_mac: Mac, target: Ipv4Addr) -> Vec<u8> {
    let header = [0, 1, 8, 0, 6, 4];
    let parts: [&[u8]; 6] =
        [&header, &operation.to_be_bytes(), &sender.mac, &sender.v4.octets(), &target_mac, &target.octets()];
    parts.concat()
}

/// IEEE 802.2: an unnumbered information frame between two service access points.
pub fn llc(dsap: u8, ssap: u8, payload: &[u8]) -> Vec<u8> {
    [&[dsap, ssap, 0x03], payload].concat()
}

/// IEEE 802.2 SNAP: an organisation and a protocol of its own numbering.
pub fn snap(organisation: [u8; 3], protocol: u16, payload: &[u8]) -> Vec<u8> {
    llc(0xaa, 0xaa, &[&organisation[..], &protocol.to_be_bytes(), payload].concat())
}

/// A configuration message of the spanning tree (IEEE 802.1D), in its LLC header.
pub fn spanning_tree(root: Mac, bridge: Mac, path_cost: u32, port: u16) -> Vec<u8> {
    const PRIORITY: [u8; 2] = [0x80, 0x00];
    let seconds = |s: u16| (s * 256).to_be_bytes();
    let parts: [&[u8]; 12] = [
        // Protocol 0, version 0, type 0 (configuration), no flags.
        &[0, 0, 0, 0, 0],
        &PRIORITY,
        &root,
        &path_cost.to_be_bytes(),
        &PRIORITY,
        &bridge,
        &port.to_be_bytes(),
        &seconds(1),
        &seconds(20),
        &seconds(2),
        &seconds(15),
        &[0; 8],
    ];
    llc(0x42, 0x42, &parts.concat())
}

/// A label stack of MPLS (RFC 3032) before `payload`; the bottom bit is set on the last label.
pub fn mpls(labels: &[u32], ttl: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(labels.len() * 4 + payload.len());
    for (index, label) in labels.iter().enumerate() {
        let bottom = u32::from(index + 1 == labels.len());
        bytes.extend_from_slice(&(label << 12 | bottom << 8 | u32::from(ttl)).to_be_bytes());
    }
    bytes.extend_from_slice(payload);
    bytes
}

/// A PPPoE session frame's payload (RFC 2516) that carries `payload` as the PPP protocol: 0x0021 IPv4, 0x0057 IPv6.
pub fn pppoe_session(session: u16, ppp_protocol: u16, payload: &[u8]) -> Vec<u8> {
    let len = payload.len() as u16 + 2;
    [&[0x11, 0x00], &session.to_be_bytes()[..], &len.to_be_bytes(), &ppp_protocol.to_be_bytes(), payload]
        .concat()
}
