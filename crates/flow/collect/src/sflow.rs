//! sFlow version 5: samples of packets.
//!
//! ```text
//! datagram   version 4 | address type 4, agent 4 or 16 | sub-agent 4 | sequence 4 | uptime 4 | samples 4 | sample*
//! sample     enterprise and format 4 | length 4 | body           1, 3: of a packet; 2, 4: of counters
//! packet     sequence 4 | source 4 (3: 8) | rate 4 | pool 4 | drops 4 | input 4 (8) | output 4 (8) | records 4 | record*
//! record     enterprise and format 4 | length 4 | body, filled up to a multiple of 4
//! ```
//!
//! A sample becomes a flow of one packet, whose counters represent `rate` packets.

use std::net::IpAddr;

use tapline_dissect::ByteReader;
use tapline_flow::KnownField;
use tapline_packet::LinkType;
use tapline_packet::headers::{Headers, IpVersion};

use crate::draft::Draft;

/// Records of a sample at most: the standard has some twenty kinds.
const RECORDS_MAX: u32 = 64;
const TCP: u8 = 6;

/// The header of a datagram.
pub(crate) struct Header {
    pub(crate) agent: IpAddr,
    pub(crate) sub_agent: u32,
    pub(crate) sequence: u32,
    pub(crate) samples: u32,
}

/// The header, behind the version; `None` if it is cut short.
pub(crate) fn header(bytes: &mut ByteReader<'_>) -> Option<Header> {
    let agent = address(bytes)?;
    let (sub_agent, sequence) = (bytes.u32()?, bytes.u32()?);
    let (_uptime, samples) = (bytes.u32()?, bytes.u32()?);
    Some(Header { agent, sub_agent, sequence, samples })
}

fn address(bytes: &mut ByteReader<'_>) -> Option<IpAddr> {
    match bytes.u32()? {
        1 => Some(IpAddr::from(<[u8; 4]>::try_from(bytes.take(4)?).ok()?)),
        2 => Some(IpAddr::from(<[u8; 16]>::try_from(bytes.take(16)?).ok()?)),
        _ => None,
    }
}

pub(crate) enum Sample {
    /// A sample of a packet, with its rate.
    Packet(Box<Draft>),
    /// A sample of a packet that is not IP.
    NotIp,
    /// Counters, or an unknown kind.
    Other,
}

/// The next sample; `None` if its lengths do not fit.
pub(crate) fn sample(bytes: &mut ByteReader<'_>) -> Option<Sample> {
    let (format, len) = (bytes.u32()?, bytes.u32()?);
    let mut body = ByteReader(bytes.take(usize::try_from(len).ok()?)?);
    match format {
        1 => packet_sample(&mut body, false),
        3 => packet_sample(&mut body, true),
        _ => Some(Sample::Other),
    }
}

fn packet_sample(bytes: &mut ByteReader<'_>, is_expanded: bool) -> Option<Sample> {
    bytes.take(if is_expanded { 12 } else { 8 })?;
    let (rate, _pool, _drops) = (bytes.u32()?, bytes.u32()?, bytes.u32()?);
    let mut draft = Box::new(Draft::new());
    draft.sampled.interval = rate;
    if let Some(ingress) = interface(bytes, is_expanded)? {
        draft.ingress = ingress;
        draft.know(KnownField::Ingress, 0);
    }
    if let Some(egress) = interface(bytes, is_expanded)? {
        draft.egress = egress;
        draft.know(KnownField::Egress, 0);
    }
    let records = bytes.u32()?.min(RECORDS_MAX);
    let mut is_ip = false;
    for _ in 0..records {
        let (format, len) = (bytes.u32()?, bytes.u32()?);
        let body = bytes.take(usize::try_from(len).ok()?)?;
        is_ip |= record(format, ByteReader(body), &mut draft).unwrap_or(false);
    }
    Some(if is_ip { Sample::Packet(draft) } else { Sample::NotIp })
}

/// The number of an interface; `None` within for one that is not known, a discard, or several.
fn interface(bytes: &mut ByteReader<'_>, is_expanded: bool) -> Option<Option<u32>> {
    let (format, value) = match is_expanded {
        true => (bytes.u32()?, bytes.u32()?),
        false => {
            let both = bytes.u32()?;
            (both >> 30, both & 0x3fff_ffff)
        }
    };
    Some((format == 0 && ![0, 0x3fff_ffff, u32::MAX].contains(&value)).then_some(value))
}

/// Takes a record. Returns whether it gave addresses; `None` if it is cut short.
fn record(format: u32, mut bytes: ByteReader<'_>, draft: &mut Draft) -> Option<bool> {
    match format {
        1 => raw_header(&mut bytes, draft),
        // sampled_ipv4, sampled_ipv6: what agents tell that do not see the header.
        3 => ip_fields(&mut bytes, draft, 4),
        4 => ip_fields(&mut bytes, draft, 16),
        // extended_switch: VLAN and priority of the source.
        1001 => {
            let vlan = bytes.u32()?;
            if (1..4095).contains(&vlan) {
                draft.vlan = vlan as u16;
                draft.know(KnownField::Vlan, 0);
            }
            Some(false)
        }
        // extended_router: next hop, prefix lengths.
        1002 => {
            draft.next_hop = address(&mut bytes).filter(|address| !address.is_unspecified());
            draft.prefix_lens = [bytes.u32()? as u8, bytes.u32()? as u8];
            Some(false)
        }
        1003 => gateway(&mut bytes, draft),
        _ => Some(false),
    }
}

/// extended_gateway: next hop, AS of the router, of the source, of its peer; the path to the destination.
fn gateway(bytes: &mut ByteReader<'_>, draft: &mut Draft) -> Option<bool> {
    let _next_hop = address(bytes);
    let (router, source, _peer, segments) = (bytes.u32()?, bytes.u32()?, bytes.u32()?, bytes.u32()?);
    // AS 0 is that of the router itself.
    draft.autonomous_systems = [if source == 0 { router } else { source }, router];
    for _ in 0..segments.min(RECORDS_MAX) {
        let (_kind, count) = (bytes.u32()?, usize::try_from(bytes.u32()?).ok()?);
        let path = bytes.take(count.checked_mul(4)?)?;
        if let Some(last) = path.last_chunk::<4>() {
            draft.autonomous_systems[1] = u32::from_be_bytes(*last);
        }
    }
    Some(false)
}

/// sampled_header: the first bytes of the packet.
fn raw_header(bytes: &mut ByteReader<'_>, draft: &mut Draft) -> Option<bool> {
    let (protocol, frame_len, stripped) = (bytes.u32()?, bytes.u32()?, bytes.u32()?);
    let len = usize::try_from(bytes.u32()?).ok()?;
    let data = bytes.take(len)?;
    let link_type = match protocol {
        1 => LinkType::ETHERNET,
        7 => LinkType::PPP,
        11 | 12 => LinkType::RAW,
        _ => return Some(false),
    };
    let link_len = frame_len.saturating_sub(stripped);
    packet_head(link_type, data, link_len, draft)
}

/// Takes the first bytes of a packet whose frame has `frame_len` bytes in all. Whether it is IP; `None` if it is cut short
/// within its headers.
pub(crate) fn packet_head(
    link_type: LinkType,
    data: &[u8],
    frame_len: u32,
    draft: &mut Draft,
) -> Option<bool> {
    let headers = Headers::parse_data(link_type, data);
    let (Some(l3), Some((source, destination))) = (headers.l3(), headers.addresses(data)) else {
        return Some(false);
    };
    draft.addresses = [Some(source), Some(destination)];
    if let Some(protocol) = headers.protocol() {
        draft.protocol = protocol;
        draft.know(KnownField::Protocol, 0);
    }
    if link_type == LinkType::ETHERNET {
        draft.know(KnownField::Vlan, 0);
    }
    if let Some(vlan) = headers.vlans().first() {
        draft.vlan = vlan.id();
    }
    let side = &mut draft.sides[0];
    side.packets = 1;
    side.bytes = match headers.ip() {
        Some(IpVersion::V4) => {
            (side.tos, side.ttl_min) = (*data.get(l3 + 1)?, *data.get(l3 + 8)?);
            u16::from_be_bytes([*data.get(l3 + 2)?, *data.get(l3 + 3)?]).into()
        }
        Some(IpVersion::V6) => {
            (side.tos, side.ttl_min) = (data.get(l3)? << 4 | data.get(l3 + 1)? >> 4, *data.get(l3 + 7)?);
            u64::from(u16::from_be_bytes([*data.get(l3 + 4)?, *data.get(l3 + 5)?])) + 40
        }
        None => 0,
    };
    // Of merged segments the header has no length: then the frame's, without what stands before IP.
    if side.bytes == 0 || side.bytes == 40 && headers.ip() == Some(IpVersion::V6) {
        side.bytes = u64::from(frame_len).saturating_sub(l3 as u64).max(side.bytes);
    }
    side.ttl_max = side.ttl_min;
    let of_ip =
        [KnownField::Packets, KnownField::Bytes, KnownField::Tos, KnownField::TtlMin, KnownField::TtlMax];
    of_ip.iter().for_each(|field| draft.know(*field, 0));
    let mut ports = headers.ports(data).map(|(source, destination)| [source, destination]);
    if ports.is_none()
        && let Some([kind, code]) = headers.l4().and_then(|l4| data.get(l4..)?.first_chunk())
        && matches!(draft.protocol, 1 | 58)
    {
        ports = Some([0, u16::from_be_bytes([*kind, *code])]);
    }
    if let Some(ports) = ports {
        draft.ports = ports;
        (0..2).for_each(|side| draft.know(KnownField::Port, side));
    }
    let flags = headers.l4().filter(|_| draft.protocol == TCP).and_then(|l4| data.get(l4 + 13));
    if let Some(flags) = flags {
        draft.sides[0].tcp_flags = *flags;
        draft.know(KnownField::TcpFlags, 0);
    }
    Some(true)
}

fn ip_fields(bytes: &mut ByteReader<'_>, draft: &mut Draft, address_len: usize) -> Option<bool> {
    let (len, protocol) = (bytes.u32()?, bytes.u32()?);
    let mut address = || -> Option<IpAddr> {
        let octets = bytes.take(address_len)?;
        match <[u8; 4]>::try_from(octets) {
            Ok(v4) => Some(v4.into()),
            Err(_) => Some(<[u8; 16]>::try_from(octets).ok()?.into()),
        }
    };
    let addresses = [Some(address()?), Some(address()?)];
    let ports = [bytes.u32()? as u16, bytes.u32()? as u16];
    let (flags, tos) = (bytes.u32()? as u8, bytes.u32()? as u8);
    // A raw header tells more.
    if draft.sides[0].packets == 0 {
        (draft.addresses, draft.ports, draft.protocol) = (addresses, ports, protocol as u8);
        let side = &mut draft.sides[0];
        (side.packets, side.bytes, side.tcp_flags, side.tos) = (1, len.into(), flags, tos);
        let given = [
            KnownField::Protocol,
            KnownField::Port,
            KnownField::Packets,
            KnownField::Bytes,
            KnownField::TcpFlags,
            KnownField::Tos,
        ];
        given.iter().for_each(|field| draft.know(*field, 0));
        draft.know(KnownField::Port, 1);
    }
    Some(true)
}
