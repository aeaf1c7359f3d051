//! Link headers, and the headers between them and the network header.
//!
//! ```text
//! Ethernet    destination 6 | source 6 | type 2                       types:  tag       control 2 | type 2
//! cooked 1    ... 14 bytes | type 2                                           802.2     aa aa 03 | OUI 3 | type 2, if SNAP
//! cooked 2    type 2 | ... 18 bytes                                           PPPoE     11 | code 1 | session 2 | length 2 | PPP
//! C-HDLC      address 1 | control 1 | type 2                                  MPLS      label.rs
//! raw         IP, by its version
//! loopback    address family 4 | IP
//! PPP         [ff 03] | protocol 1 (odd) or 2
//! frame relay address 2 | 03 | cc or 8e | IP, or address 2 | type 2
//! DSA, BRCM   Ethernet with a tag of 4 bytes (EDSA: 8) before the type, or before the frame
//! others      IPoIB, IPNET, SLIP: a header of a fixed length; FDDI, ATM: 802.2 behind one, or at once
//! ```
//!
//! A type leads to a header, and that to the next type, until one is that of a network header; at most
//! [`LINK_HEADERS_MAX`] times.
//!
//! Sources: IEEE 802.1Q; RFC 1042; RFC 1661, RFC 1662, RFC 2516; <https://www.tcpdump.org/linktypes.html>.

use super::read::{array, u8_at, u16_at};
use super::{Headers, PackedOffset};
use crate::numbers::ethertype::{
    self, IPV4, IPV6, JUMBO, LENGTH_MAX, MPLS, MPLS_MULTICAST, PPPOE_SESSION, VLAN, VLAN_PROVIDER,
};
use crate::{LinkType, VlanTag};

/// Tags, 802.2 headers, sessions and label stacks that are walked over before the network header.
const LINK_HEADERS_MAX: usize = 16;

const ETHERNET_TYPE: usize = 12;
const ETHERNET_LEN: usize = 14;

/// Types of cooked captures up to 1500 are not EtherTypes; of these only 802.2 is followed (`linux/if_ether.h`,
/// ETH_P_802_2).
const COOKED_802_2: u16 = 4;

/// The numbers that libpcap has for raw IP in memory, which old files carry too.
const DLT_RAW: LinkType = LinkType(12);
const DLT_RAW_OPENBSD: LinkType = LinkType(14);

/// Frame control of LLC frames (ISO 9314-2), without its last four bits.
const FDDI_LLC: u8 = 0x50;

/// Traffic of a SunATM header that is not an LLC frame.
const ATM_LAN_EMULATION: u8 = 1;

/// Address families: IPv4's is the same everywhere, IPv6's is that of Linux, NetBSD, FreeBSD and macOS.
const INET: u32 = 2;
const INET6: [u32; 4] = [10, 24, 28, 30];

/// IP behind an Ethernet header with at most one tag, without extension headers: the form of most packets.
#[derive(Clone, Copy)]
pub(super) struct Plain {
    tag: Option<VlanTag>,
    kind: u16,
    at: usize,
}

/// Such a frame, if it is one.
#[inline(always)]
pub(super) fn plain(link_type: LinkType, data: &[u8]) -> Option<Plain> {
    let &[.., t0, t1, c0, c1, k0, k1, _, _, next, _, _, _, next_behind_tag] = array::<25>(data, 0)?;
    let kind = u16::from_be_bytes([t0, t1]);
    let (plain, next) = match kind {
        _ if link_type != LinkType::ETHERNET => return None,
        VLAN | VLAN_PROVIDER => {
            let tag = VlanTag { tpid: kind, tci: u16::from_be_bytes([c0, c1]) };
            let kind = u16::from_be_bytes([k0, k1]);
            (Plain { tag: Some(tag), kind, at: ETHERNET_LEN + 4 }, next_behind_tag)
        }
        _ => (Plain { tag: None, kind, at: ETHERNET_LEN }, next),
    };
    let is_plain = plain.kind == IPV4 || plain.kind == IPV6 && !super::ip::is_extension(next);
    is_plain.then_some(plain)
}

/// A type, and the offset of the header that it announces.
pub(super) type Next = (u16, usize);

impl Headers {
    /// A frame that [`plain`] knows.
    #[inline(always)]
    pub(super) fn walk_plain(&mut self, data: &[u8], Plain { tag, kind, at }: Plain) {
        if let Some(tag) = tag {
            self.push_vlan(tag);
        }
        self.l3 = PackedOffset::at(at);
        self.ether_type = Some(kind);
        match kind {
            IPV4 => self.walk_ipv4(data, at),
            _ => self.walk_plain_ipv6(data, at),
        };
    }

    /// From the first byte on.
    pub(super) fn walk_link(&mut self, data: &[u8]) -> Option<()> {
        let (kind, at) = match self.link_type {
            LinkType::ETHERNET => (u16_at(data, ETHERNET_TYPE)?, ETHERNET_LEN),
            LinkType::RAW | DLT_RAW | DLT_RAW_OPENBSD => raw(data, 0)?,
            LinkType::IPV4 => (IPV4, 0),
            LinkType::IPV6 => (IPV6, 0),
            LinkType::LINUX_SLL => (cooked_type(u16_at(data, 14)?)?, 16),
            LinkType::LINUX_SLL2 => {
                array::<20>(data, 0)?;
                (cooked_type(u16_at(data, 0)?)?, 20)
            }
            LinkType::NULL | LinkType::LOOP => (loopback(self.link_type, data)?, 4),
            LinkType::C_HDLC | LinkType::HDLC => (u16_at(data, 2)?, 4),
            LinkType::DSA_TAG_DSA | LinkType::DSA_TAG_BRCM | LinkType::DSA_TAG_BRCM_PREPEND => {
                (u16_at(data, ETHERNET_TYPE + 4)?, ETHERNET_LEN + 4)
            }
            LinkType::DSA_TAG_EDSA => (u16_at(data, ETHERNET_TYPE + 8)?, ETHERNET_LEN + 8),
            LinkType::FRELAY => frame_relay(data)?,
            LinkType::IPOIB => (u16_at(data, 40)?, 44),
            LinkType::IPNET | LinkType::SLIP | LinkType::SLIP_BSDOS => {
                raw(data, if self.link_type == LinkType::IPNET { 24 } else { 16 })?
            }
            LinkType::FDDI if u8_at(data, 0)? & 0xf0 == FDDI_LLC => (LENGTH_MAX, 13),
            LinkType::ATM_RFC1483 | LinkType::ATM_CLIP => (LENGTH_MAX, 0),
            LinkType::SUNATM if u8_at(data, 0)? & 0x0f != ATM_LAN_EMULATION => (LENGTH_MAX, 4),
            LinkType::PPP | LinkType::PPP_PPPD => ppp_link(data)?,
            LinkType::PPP_HDLC => hdlc_link(data)?,
            LinkType::PPP_ETHER => pppoe(data, 0)?,
            LinkType::IEEE802_11 => (LENGTH_MAX, super::wlan::body(data, 0, false)?),
            LinkType::IEEE802_11_RADIOTAP => (LENGTH_MAX, super::wlan::behind_radiotap(data)?),
            _ => return None,
        };
        self.walk_to_network(data, kind, at)
    }

    /// Skips all headers before the network header.
    fn walk_to_network(&mut self, data: &[u8], mut kind: u16, mut at: usize) -> Option<()> {
        for _ in 0..LINK_HEADERS_MAX {
            (kind, at) = match kind {
                _ if ethertype::is_vlan(kind) => self.tag(data, kind, at)?,
                0..=LENGTH_MAX | JUMBO => snap(data, at)?,
                PPPOE_SESSION => pppoe(data, at)?,
                MPLS | MPLS_MULTICAST => self.labels(data, kind, at)?,
                _ => {
                    self.walk_network(data, kind, at);
                    return Some(());
                }
            };
        }
        None
    }

    fn tag(&mut self, data: &[u8], tpid: u16, at: usize) -> Option<Next> {
        let &[c0, c1, t0, t1] = array(data, at)?;
        self.push_vlan(VlanTag { tpid, tci: u16::from_be_bytes([c0, c1]) });
        Some((u16::from_be_bytes([t0, t1]), at + 4))
    }

    pub(super) fn walk_network(&mut self, data: &[u8], kind: u16, at: usize) {
        self.l3 = PackedOffset::at(at);
        self.ether_type = Some(kind);
        match kind {
            IPV4 => self.walk_ipv4(data, at),
            IPV6 => self.walk_ipv6(data, at),
            _ => None,
        };
    }
}

/// An IP packet of either version.
pub(super) fn raw(data: &[u8], at: usize) -> Option<Next> {
    match u8_at(data, at)? >> 4 {
        4 => Some((IPV4, at)),
        6 => Some((IPV6, at)),
        _ => None,
    }
}

fn cooked_type(kind: u16) -> Option<u16> {
    (kind > LENGTH_MAX || kind == COOKED_802_2).then_some(kind)
}

/// The family of NULL is in the byte order of the machine that captured: it is small, so the order shows.
fn loopback(link_type: LinkType, data: &[u8]) -> Option<u16> {
    let family = u32::from_be_bytes(*array(data, 0)?);
    let swapped = link_type == LinkType::NULL && family > 0xffff;
    match if swapped { family.swap_bytes() } else { family } {
        INET => Some(IPV4),
        family if INET6.contains(&family) => Some(IPV6),
        _ => None,
    }
}

/// The type in a SNAP header of encapsulated Ethernet (RFC 1042) or of an 802.1H bridge tunnel.
fn snap(data: &[u8], at: usize) -> Option<Next> {
    match array(data, at)? {
        &[0xaa, 0xaa, 0x03, 0x00, 0x00, 0x00 | 0xf8, t0, t1] => {
            let kind = u16::from_be_bytes([t0, t1]);
            // A length here would begin another frame's 802.2 header: there is no such thing.
            (kind > LENGTH_MAX).then_some((kind, at + 8))
        }
        _ => None,
    }
}

fn pppoe(data: &[u8], at: usize) -> Option<Next> {
    match array(data, at)? {
        // Code 0: session data.
        &[_, 0, _, _, _, _] => ppp(data, at + 6),
        _ => None,
    }
}

/// Address and control may be left out (RFC 1661, 6.6); pppd puts the direction (0 or 1) where the address was.
fn ppp_link(data: &[u8]) -> Option<Next> {
    match array(data, 0)? {
        [0xff | 0x00 | 0x01, 0x03] => ppp(data, 2),
        _ => ppp(data, 0),
    }
}

/// PPP in HDLC-like framing, or Cisco's HDLC, which has other addresses.
fn hdlc_link(data: &[u8]) -> Option<Next> {
    match array(data, 0)? {
        [0x0f | 0x8f, _] => Some((u16_at(data, 2)?, 4)),
        _ => ppp_link(data),
    }
}

/// Behind an address of two bytes: a control byte and a network layer protocol (RFC 2427), or Cisco's type.
fn frame_relay(data: &[u8]) -> Option<Next> {
    match array(data, 0)? {
        &[first, second, _, _] if first & 1 != 0 || second & 1 == 0 => None,
        [_, _, 0x03, 0xcc] => Some((IPV4, 4)),
        [_, _, 0x03, 0x8e] => Some((IPV6, 4)),
        [_, _, 0x03, _] => None,
        &[_, _, t0, t1] => Some((u16::from_be_bytes([t0, t1]), 4)),
    }
}

/// A PPP protocol number: the last byte of one is odd, all others are even (RFC 1661, 2).
fn ppp(data: &[u8], at: usize) -> Option<Next> {
    let first = u8_at(data, at)?;
    let (protocol, at) = match first % 2 {
        1 => (u16::from(first), at + 1),
        _ => (u16_at(data, at)?, at + 2),
    };
    let kind = match protocol {
        0x0021 => IPV4,
        0x0057 => IPV6,
        0x0281 => MPLS,
        0x0283 => MPLS_MULTICAST,
        _ => return None,
    };
    Some((kind, at))
}
