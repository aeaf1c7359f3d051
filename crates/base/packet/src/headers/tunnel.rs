//! The packet inside: one layer of tunnel taken off.
//!
//! ```text
//! MPLS        labels | IP, or [control word 4] frame
//! IP  4, 41   IPv4, IPv6
//!     47      GRE: C 0 K S, 0, version 0 | type 2 | [sum 2, 0 2] [key 4] [sequence 4] | what the type says
//!               0x0800 0x86dd  IP       0x8847 0x8848  labels      0x6558  frame
//!               0x88be         ERSPAN: without a sequence number (type I) a frame at once, else 8 bytes before it (type II)
//!               0x22eb         ERSPAN of type III: 12 bytes, or 20 with their last bit set, then a frame or IP
//! UDP 4789    VXLAN, also at 8472: flag 8 | ... | network 3 | 0 | frame
//!     6081    Geneve: version 2b, words of options 6b | flags 1 | type 2 | network 3 | 0 | options | IP or a frame, as the type says
//!     2152    GTP-U: version 3b, flags | message 255 | length 2 | endpoint 4 | [4 bytes, with flags; the last begins a chain of
//!               extensions: words 1 ... next 1] | IP
//! ```
//!
//! The tunnels here are those of the filter language's `inner(...)`, and MPLS. A tunnel's header in a first fragment
//! counts as well.
//!
//! Sources: RFC 2784, RFC 2890; RFC 2003, RFC 2473, RFC 4213; RFC 7348; RFC 8926; 3GPP TS 29.281, 5;
//! draft-foschiano-erspan-03; RFC 4385.

use super::label::{pseudo_wire, stack};
use super::read::{array, u8_at, u16_at, u32_at};
use super::transport::UDP_LEN;
use super::{Headers, IpVersion};
use crate::LinkType;
use crate::numbers::ethertype::{ERSPAN, ERSPAN_III, IPV4, IPV6, MPLS, MPLS_MULTICAST, TRANSPARENT_BRIDGING};
use crate::numbers::ip_protocol::{self, GRE, UDP};
use crate::numbers::port;

/// Extensions of a GTP header that are followed, as by filters.
const GTP_EXTENSIONS_MAX: usize = 4;

crate::named_enum! {
    /// A kind of tunnel.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum Tunnel {
        /// RFC 3032, with Ethernet as RFC 4448 has it.
        Mpls = "mpls",
        /// RFC 2784.
        Gre = "gre",
        /// Cisco's mirroring over GRE, types I, II and III.
        Erspan = "erspan",
        /// RFC 7348.
        Vxlan = "vxlan",
        /// RFC 8926.
        Geneve = "geneve",
        /// 3GPP TS 29.281.
        Gtp = "gtp",
        /// RFC 2003, RFC 4213.
        IpInIp = "ipip",
    }
}

/// The packet inside one layer of tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerPacket {
    /// The kind of tunnel.
    pub tunnel: Tunnel,
    /// Identifier within the kind: MPLS's outermost label, GRE's key, ERSPAN's session, the network of VXLAN and
    /// Geneve, GTP's endpoint.
    pub id: Option<u32>,
    /// Link type of the inner packet: [`LinkType::ETHERNET`] or [`LinkType::RAW`].
    pub link_type: LinkType,
    /// The start of the inner packet, counted from the first byte that was parsed.
    pub offset: usize,
    /// Captured length of the packet, without the padding of the outer packet.
    pub len: usize,
}

impl InnerPacket {
    /// The bytes of the packet inside, of those of the packet around it.
    #[inline]
    pub fn data<'a>(&self, outer: &'a [u8]) -> &'a [u8] {
        outer.get(self.offset..).and_then(|rest| rest.get(..self.len)).unwrap_or(&[])
    }

    /// The headers of the packet inside; their offsets count from its start.
    #[inline]
    pub fn headers(&self, outer: &[u8]) -> Headers {
        Headers::parse_data(self.link_type, self.data(outer))
    }
}

/// The inner packet, before the end of the outer one is known.
struct TunnelHeader {
    tunnel: Tunnel,
    id: Option<u32>,
    link_type: LinkType,
    offset: usize,
}

impl Headers {
    /// The packet inside, one layer of tunnel taken off: labels if there are any, else the payload of IP or UDP.
    /// `None` if there is no tunnel, its header is cut short, or it carries neither IP nor Ethernet.
    ///
    /// `data` must be the parsed bytes; with other bytes any answer may come, but no panic.
    pub fn inner(&self, data: &[u8]) -> Option<InnerPacket> {
        let (found, end) = match self.mpls {
            Some(mpls) => {
                let id = Some(mpls.label);
                let (link_type, offset) = match self.ip_type() {
                    Some(_) => (LinkType::RAW, self.l3()?),
                    None => (LinkType::ETHERNET, pseudo_wire(data, self.l3()?)?),
                };
                (TunnelHeader { tunnel: Tunnel::Mpls, id, link_type, offset }, self.ip_end())
            }
            None => self.carried(data)?,
        };
        let TunnelHeader { tunnel, id, link_type, offset } = found;
        let len = end.min(data.len()).checked_sub(offset)?;
        Some(InnerPacket { tunnel, id, link_type, offset, len })
    }

    fn ip_type(&self) -> Option<u16> {
        self.ether_type.filter(|kind| matches!(*kind, IPV4 | IPV6))
    }

    /// The packet that IP carries, and its end.
    fn carried(&self, data: &[u8]) -> Option<(TunnelHeader, usize)> {
        let (at, end) = (self.l4()?, self.ip_end());
        let data = data.get(..end)?;
        let found = match self.protocol? {
            ip_protocol::IPV4 => ip_of(data, at, IpVersion::V4).map(ip_in_ip)?,
            ip_protocol::IPV6 => ip_of(data, at, IpVersion::V6).map(ip_in_ip)?,
            GRE => gre(data, at)?,
            UDP => return in_udp(data, at),
            _ => return None,
        };
        Some((found, end))
    }
}

fn ip_in_ip(offset: usize) -> TunnelHeader {
    TunnelHeader { tunnel: Tunnel::IpInIp, id: None, link_type: LinkType::RAW, offset }
}

/// An IP packet of a version at `at`.
fn ip_of(data: &[u8], at: usize, version: IpVersion) -> Option<usize> {
    let nibble = if version == IpVersion::V4 { 4 } else { 6 };
    (u8_at(data, at)? >> 4 == nibble).then_some(at)
}

/// An IP packet of either version at `at`.
fn any_ip(data: &[u8], at: usize) -> Option<(LinkType, usize)> {
    matches!(u8_at(data, at)? >> 4, 4 | 6).then_some((LinkType::RAW, at))
}

/// The packet at `at` by its EtherType, if that is IP, a frame, or either behind labels.
fn of_type(data: &[u8], kind: u16, at: usize) -> Option<(LinkType, usize)> {
    match kind {
        IPV4 => Some((LinkType::RAW, ip_of(data, at, IpVersion::V4)?)),
        IPV6 => Some((LinkType::RAW, ip_of(data, at, IpVersion::V6)?)),
        TRANSPARENT_BRIDGING => frame(data, at),
        MPLS | MPLS_MULTICAST => {
            let at = at + 4 * usize::from(stack(data, at)?.count);
            any_ip(data, at).or_else(|| frame(data, pseudo_wire(data, at)?))
        }
        _ => None,
    }
}

fn frame(data: &[u8], at: usize) -> Option<(LinkType, usize)> {
    (at <= data.len()).then_some((LinkType::ETHERNET, at))
}

fn gre(data: &[u8], at: usize) -> Option<TunnelHeader> {
    /// Version, and RFC 1701's routing, which we do not know.
    const UNKNOWN: u16 = 0x4007;
    const CHECKSUM: u16 = 0x8000;
    const KEY: u16 = 0x2000;
    const SEQUENCE: u16 = 0x1000;
    let (flags, kind) = (u16_at(data, at)?, u16_at(data, at + 2)?);
    if flags & UNKNOWN != 0 {
        return None;
    }
    let field = |flag| if flags & flag != 0 { 4 } else { 0 };
    let key_at = at + 4 + field(CHECKSUM);
    let payload = key_at + field(KEY) + field(SEQUENCE);
    match kind {
        ERSPAN if field(SEQUENCE) == 0 => erspan(None, frame(data, payload)?),
        ERSPAN => {
            let session = erspan_session(data, payload, 1)?;
            erspan(Some(session), frame(data, payload + 8)?)
        }
        ERSPAN_III => {
            let session = erspan_session(data, payload, 2)?;
            erspan(Some(session), erspan_iii(data, payload)?)
        }
        _ => {
            let id = if field(KEY) != 0 { Some(u32_at(data, key_at)?) } else { None };
            let (link_type, offset) = of_type(data, kind, payload)?;
            Some(TunnelHeader { tunnel: Tunnel::Gre, id, link_type, offset })
        }
    }
}

fn erspan(id: Option<u32>, (link_type, offset): (LinkType, usize)) -> Option<TunnelHeader> {
    Some(TunnelHeader { tunnel: Tunnel::Erspan, id, link_type, offset })
}

/// The session of a header of this version: 1 is type II, 2 is type III.
fn erspan_session(data: &[u8], at: usize, version: u8) -> Option<u32> {
    let &[first, _, s0, s1] = array(data, at)?;
    (first >> 4 == version).then(|| u32::from(u16::from_be_bytes([s0, s1]) & 0x03ff))
}

/// Bits 14 to 10 of the last half word give the type of the payload, bit 0 whether 8 more bytes follow.
fn erspan_iii(data: &[u8], at: usize) -> Option<(LinkType, usize)> {
    let flags = u16_at(data, at + 10)?;
    let payload = at + if flags & 1 != 0 { 20 } else { 12 };
    match flags >> 10 & 0x1f {
        0 => frame(data, payload),
        2 => any_ip(data, payload),
        _ => None,
    }
}

/// The packet that a tunnel over UDP carries, and the end of the datagram.
fn in_udp(data: &[u8], at: usize) -> Option<(TunnelHeader, usize)> {
    let &[_, _, p0, p1, l0, l1, _, _] = array::<UDP_LEN>(data, at)?;
    let len = usize::from(u16::from_be_bytes([l0, l1]));
    let end = if len < UDP_LEN { data.len() } else { data.len().min(at + len) };
    let (data, at) = (&data[..end], at + UDP_LEN);
    let (tunnel, id, (link_type, offset)) = match u16::from_be_bytes([p0, p1]) {
        port::VXLAN | port::VXLAN_LINUX => vxlan(data, at)?,
        port::GENEVE => geneve(data, at)?,
        port::GTP_U => gtp(data, at)?,
        _ => return None,
    };
    Some((TunnelHeader { tunnel, id: Some(id), link_type, offset }, end))
}

type InUdp = (Tunnel, u32, (LinkType, usize));

fn vxlan(data: &[u8], at: usize) -> Option<InUdp> {
    const HAS_NETWORK: u8 = 0x08;
    let network = u32_at(data, at + 4)? >> 8;
    // The other flags are to be ignored; group policies use one of them.
    let is_valid = u8_at(data, at)? & HAS_NETWORK != 0;
    is_valid.then_some((Tunnel::Vxlan, network, frame(data, at + 8)?))
}

fn geneve(data: &[u8], at: usize) -> Option<InUdp> {
    let &[first, _, t0, t1, n0, n1, n2, _] = array(data, at)?;
    if first >> 6 != 0 {
        return None;
    }
    let payload = at + 8 + usize::from(first & 0x3f) * 4;
    let carried = of_type(data, u16::from_be_bytes([t0, t1]), payload)?;
    Some((Tunnel::Geneve, u32::from_be_bytes([0, n0, n1, n2]), carried))
}

fn gtp(data: &[u8], at: usize) -> Option<InUdp> {
    const G_PDU: u8 = 255;
    const VERSION_1: u8 = 0x30;
    const HAS_MORE: u8 = 0x07;
    const HAS_EXTENSIONS: u8 = 0x04;
    let &[first, message, _, _, e0, e1, e2, e3] = array(data, at)?;
    if first & 0xf0 != VERSION_1 || message != G_PDU {
        return None;
    }
    let payload = match (first & HAS_MORE != 0, first & HAS_EXTENSIONS != 0) {
        (false, _) => at + 8,
        (true, false) => at + 12,
        (true, true) => behind_gtp_extensions(data, at + 12)?,
    };
    Some((Tunnel::Gtp, u32::from_be_bytes([e0, e1, e2, e3]), any_ip(data, payload)?))
}

/// The chain begins in the byte before `at`; 0 ends it.
fn behind_gtp_extensions(data: &[u8], mut at: usize) -> Option<usize> {
    for _ in 0..GTP_EXTENSIONS_MAX {
        if u8_at(data, at - 1)? == 0 {
            return Some(at);
        }
        let words = usize::from(u8_at(data, at)?);
        if words == 0 {
            return None;
        }
        at += words * 4;
    }
    (u8_at(data, at - 1)? == 0).then_some(at)
}
