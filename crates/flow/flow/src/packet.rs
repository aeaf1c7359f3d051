//! The fields of a packet that the flow table needs.
//!
//! ```text
//! plain    Ethernet, IPv4 without options, TCP, UDP or ICMP, whole     read at fixed slots
//! all else                                                             by the header views
//! ```
//!
//! Both ways give the same for every packet that both can read; tests hold them to it.

use tapline_packet::headers::{Fragment, Headers, IpVersion, Tunnel};
use tapline_packet::numbers::ethertype;
use tapline_packet::numbers::ip_protocol::{ICMP, ICMPV6, TCP, UDP, has_ports};
use tapline_packet::{Batch, Interface, LinkType, Meta, Packet, Timestamp, VlanTag};

use crate::flow::NO_TIME;
use crate::fragments::{Datagram, Fragments, Transport};
use crate::index::BucketTag;
use crate::key::{self, Addresses, KeyFields, Words};
use crate::statistics::Statistics;
use crate::{FlowContext, UnmeteredCause};

/// Tunnels within tunnels that are taken off.
const TUNNELS_MAX: usize = 8;

/// The fields of one packet that its flow needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PacketSummary {
    pub(crate) words: Words,
    /// Nanoseconds since 1970.
    pub(crate) time: i64,
    /// The home bucket of its key, and its tag.
    pub(crate) bucket_tag: BucketTag,
    /// The most likely slot of its flow.
    pub(crate) slot: u32,
    /// Bytes as the flow counts them.
    pub(crate) bytes: u32,
    /// The side of the key that sent the packet, 0 or 1.
    pub(crate) side: u8,
    pub(crate) flags: u8,
    pub(crate) ttl: u8,
    pub(crate) tos: u8,
    /// The packet's slot in the batch.
    pub(crate) index: u8,
    /// The slot of the [`ExtraFields`] among those of the window; [`NO_EXTRA`](Self::NO_EXTRA) for a plain packet.
    pub(crate) extra: u16,
}

impl PacketSummary {
    pub(crate) const NO_EXTRA: u16 = u16::MAX;
}

/// A window of packets with their batch: the source of fields that only the first packet of a flow needs.
pub(crate) struct Window<'a> {
    pub(crate) extras: &'a [ExtraFields],
    pub(crate) batch: &'a Batch<'a>,
    pub(crate) interfaces: &'a [Interface],
}

impl Window<'_> {
    /// The extra fields of a packet; `None` for a plain one.
    #[inline]
    pub(crate) fn extra(&self, summary: &PacketSummary) -> Option<&ExtraFields> {
        self.extras.get(usize::from(summary.extra))
    }

    /// The time of a packet: one without a time counts at the clock, as far as packets with a time have set it.
    pub(crate) fn time_of(&self, summary: &PacketSummary, clock: i64) -> i64 {
        const EPOCH: i64 = Timestamp::EPOCH.as_nanos();
        let is_untimed = || self.batch.packet(summary.index.into()).meta.is_untimed;
        match summary.time == EPOCH && is_untimed() {
            false => summary.time,
            true if clock > EPOCH => clock,
            true => NO_TIME.as_nanos(),
        }
    }

    pub(crate) fn packet(&self, summary: &PacketSummary) -> (LinkType, Packet<'_>) {
        let packet = self.batch.packet(summary.index.into());
        let interface = self.interfaces.get(packet.meta.interface.0 as usize);
        (interface.map_or(LinkType::ETHERNET, |interface| interface.link_type), packet)
    }

    pub(crate) fn plain_context(&self, summary: &PacketSummary) -> FlowContext {
        let meta = self.batch.packet(summary.index.into()).meta;
        let interface = interface_number(self.interfaces, meta.interface.0);
        FlowContext {
            interface,
            vlan: meta.vlan.map_or(FlowContext::NO_VLAN, VlanTag::id),
            ..FlowContext::NONE
        }
    }
}

/// Number of an interface in flows: the kernel's index; without one, the slot in the table plus one.
pub(crate) fn interface_number(interfaces: &[Interface], at: u32) -> u32 {
    match interfaces.get(at as usize).map_or(0, |interface| interface.if_index) {
        0 => at.saturating_add(1),
        index => index,
    }
}

/// Fields of a packet that is not plain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExtraFields {
    pub(crate) addresses: Addresses,
    pub(crate) context: FlowContext,
    /// `None` for later fragments, and without a transport's header.
    pub(crate) span: Option<TransportSpan>,
}

/// Offsets of the transport header and of the end of its IP packet, by the length in the IP header, captured or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransportSpan {
    pub(crate) l4: u32,
    pub(crate) end: u32,
}

impl TransportSpan {
    /// The span of a plain packet.
    #[inline]
    pub(crate) fn of_plain(data: &[u8]) -> Option<TransportSpan> {
        let &[high, low] = data.get(16..)?.first_chunk()?;
        Some(TransportSpan { l4: 34, end: 14 + u32::from(u16::from_be_bytes([high, low])) })
    }
}

/// The settings that decide how packets are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParseOptions {
    pub(crate) fields: KeyFields,
    /// The packets inside of tunnels count, not those outside.
    pub(crate) inner: bool,
    /// Frames are counted, not IP packets.
    pub(crate) counts_frames: bool,
    /// Seed of the digests of wide keys.
    pub(crate) seed: u64,
}

impl ParseOptions {
    /// Whether plain packets need only the data at fixed slots.
    pub(crate) fn has_fast_path(&self) -> bool {
        !self.inner && !self.fields.any()
    }
}

/// Bytes that the parser of plain packets reads: Ethernet 14, IPv4 20, TCP up to its flags 14.
pub(crate) const PLAIN_LEN: usize = 48;

/// By protocol the greatest length of an IP packet that is too short for the fields read from its header; no length
/// is enough for those that are not plain.
const TOO_SHORT: [u16; 256] = {
    let mut lengths = [u16::MAX; 256];
    lengths[TCP as usize] = 20 + 14 - 1;
    lengths[UDP as usize] = 20 + 4 - 1;
    lengths[ICMP as usize] = 20 + 2 - 1;
    lengths
};

/// Reads a plain packet into `seen`, in place: copied, it took half as long again. Whether it is one.
#[inline(always)]
pub(crate) fn plain(
    h: &[u8; PLAIN_LEN],
    meta: &Meta,
    counts_frames: bool,
    summary: &mut PacketSummary,
) -> bool {
    let u32_at = |at: usize| u32::from_be_bytes([h[at], h[at + 1], h[at + 2], h[at + 3]]);
    let u16_at = |at: usize| u16::from_be_bytes([h[at], h[at + 1]]);
    let (total, protocol) = (u16_at(16), h[23]);
    // EtherType, version and length of the header; more fragments, or not the first.
    if u32_at(12) >> 8 != 0x08_00_45 || u16_at(20) & 0x3fff != 0 {
        return false;
    }
    // TCP and UDP come mixed as chance has it: a branch that tells them apart is guessed wrong every other time.
    if total <= TOO_SHORT[usize::from(protocol)] {
        return false;
    }
    let ports = match protocol {
        ICMP => (0, u16_at(34)),
        _ => (u16_at(34), u16_at(36)),
    };
    let flags = h[47] & 0u8.wrapping_sub(u8::from(protocol == TCP));
    let (words, side) = key::narrow((u32_at(26), ports.0), (u32_at(30), ports.1), protocol);
    summary.words = words;
    summary.side = side;
    summary.time = meta.timestamp.as_nanos();
    summary.bytes = if counts_frames { meta.wire_len } else { total.into() };
    summary.flags = flags;
    summary.ttl = h[22];
    summary.tos = h[15];
    summary.extra = PacketSummary::NO_EXTRA;
    true
}

/// The cause for a packet without an IP header: cut within the header, or not IP.
fn cause_without_ip(headers: &Headers, data: &[u8]) -> UnmeteredCause {
    let fixed_len = match headers.ether_type() {
        Some(ethertype::IPV4) => 20,
        Some(ethertype::IPV6) => 40,
        _ => return UnmeteredCause::NotIp,
    };
    let is_whole = |at: usize| data.len() >= at + fixed_len;
    if headers.l3().is_none_or(is_whole) { UnmeteredCause::NotIp } else { UnmeteredCause::Cut }
}

/// Reads any packet. The parts that are not plain are separate, so that the loop over plain packets has all
/// registers.
#[inline(never)]
pub(crate) fn any(
    view: ParseOptions,
    link_type: LinkType,
    packet: Packet<'_>,
    interface: u32,
    fragments: &mut Fragments,
    statistics: &mut Statistics,
) -> Result<(PacketSummary, ExtraFields), UnmeteredCause> {
    let mut context = FlowContext { interface, ..FlowContext::NONE };
    let mut layer = Layer {
        headers: Headers::parse(link_type, packet),
        data: packet.data,
        wire_len: packet.meta.wire_len,
        offset: 0,
    };
    if let Some(tag) = layer.headers.vlans().first() {
        context.vlan = tag.id();
    }
    if let Some(mpls) = layer.headers.mpls() {
        context.mpls = mpls.label;
    }
    if view.inner {
        layer = innermost(layer, &mut context);
    }
    let Layer { headers, data, wire_len, offset } = layer;
    let (version, l3) = headers.ip().zip(headers.l3()).ok_or_else(|| cause_without_ip(&headers, data))?;
    let (ttl, tos, total) = ip_fields(version, data, l3).ok_or(UnmeteredCause::Cut)?;
    if view.fields.tos {
        context.tos = tos;
    }
    let (source, destination) = addresses(version, data, l3).ok_or(UnmeteredCause::Cut)?;
    let time = packet.meta.timestamp.as_nanos();
    let named = HostPair { version, source, destination };
    let part = view.fields.of(&context);
    let shared = FlowContext { tos: 0, ..part };
    let transport = transport(&headers, data, named, shared, time, fragments, statistics)?;
    let flags = tcp_flags(&headers, data, transport.protocol);
    let (protocol, ports) = view.fields.transport(transport.protocol, transport.ports);
    let [source, destination] = [source, destination].map(|address| view.fields.network(version, address));
    let bytes = match (view.counts_frames, total) {
        (true, _) => packet.meta.wire_len,
        // Segmentation that is still to be done leaves no length.
        (_, 0) => wire_len.saturating_sub(l3 as u32),
        (_, total) => total,
    };
    let (words, addresses, side) = if version == IpVersion::V4 && !view.fields.any() {
        let (words, side) = key::narrow((source as u32, ports.0), (destination as u32, ports.1), protocol);
        (words, key::narrow_addresses(words), side)
    } else {
        let merges = view.fields.merges_connections();
        key::wide(version, (source, ports.0), (destination, ports.1), protocol, (&part, merges), view.seed)
    };
    let span = span(&headers, l3, total, wire_len, offset);
    let summary = PacketSummary { words, side, time, bytes, flags, ttl, tos, ..PacketSummary::default() };
    Ok((summary, ExtraFields { addresses, context, span }))
}

/// A packet, or one inside of it.
struct Layer<'p> {
    headers: Headers,
    data: &'p [u8],
    wire_len: u32,
    /// Offset in the outer packet.
    offset: usize,
}

/// The innermost IP packet.
fn innermost<'p>(mut layer: Layer<'p>, context: &mut FlowContext) -> Layer<'p> {
    for _ in 0..TUNNELS_MAX {
        let Some(inner) = layer.headers.inner(layer.data) else { break };
        let headers = inner.headers(layer.data);
        if headers.ip().is_none() && headers.mpls().is_none() {
            break;
        }
        let data = inner.data(layer.data);
        layer = Layer {
            headers,
            data,
            wire_len: layer.wire_len.saturating_sub(inner.offset as u32),
            offset: layer.offset + inner.offset,
        };
        context.is_inner = true;
        match inner.tunnel {
            // The outermost one counts.
            Tunnel::Mpls if context.mpls != FlowContext::NO_LABEL => {}
            Tunnel::Mpls => context.mpls = inner.id.unwrap_or(FlowContext::NO_LABEL),
            _ => context.tunnel = inner.id.unwrap_or(0),
        }
    }
    layer
}

/// Time to live, type of service, and the length that IP gives itself; 0 if it gives none.
fn ip_fields(version: IpVersion, data: &[u8], at: usize) -> Option<(u8, u8, u32)> {
    let header = data.get(at..)?;
    Some(match version {
        IpVersion::V4 => {
            let header: &[u8; 20] = header.first_chunk()?;
            (header[8], header[1], u16::from_be_bytes([header[2], header[3]]).into())
        }
        IpVersion::V6 => {
            let header: &[u8; 40] = header.first_chunk()?;
            let payload = u32::from(u16::from_be_bytes([header[4], header[5]]));
            let class = header[0] << 4 | header[1] >> 4;
            (header[7], class, if payload == 0 { 0 } else { payload + 40 })
        }
    })
}

fn addresses(version: IpVersion, data: &[u8], at: usize) -> Option<(u128, u128)> {
    let header = data.get(at..)?;
    Some(match version {
        IpVersion::V4 => {
            let &[s0, s1, s2, s3, d0, d1, d2, d3] = header.get(12..)?.first_chunk()?;
            let number = |bytes| u128::from(u32::from_be_bytes(bytes));
            (number([s0, s1, s2, s3]), number([d0, d1, d2, d3]))
        }
        IpVersion::V6 => {
            let source = header.get(8..)?.first_chunk()?;
            let destination = header.get(24..)?.first_chunk()?;
            (u128::from_be_bytes(*source), u128::from_be_bytes(*destination))
        }
    })
}

#[derive(Clone, Copy)]
struct HostPair {
    version: IpVersion,
    source: u128,
    destination: u128,
}

/// Protocol and ports; those of the first fragment for later ones.
fn transport(
    headers: &Headers,
    data: &[u8],
    named: HostPair,
    context: FlowContext,
    now: i64,
    fragments: &mut Fragments,
    statistics: &mut Statistics,
) -> Result<Transport, UnmeteredCause> {
    let protocol = headers.protocol().ok_or(UnmeteredCause::Cut)?;
    let Some(fragment) = headers.fragment() else {
        return Ok(Transport { protocol, ports: own_ports(headers, data, protocol)? });
    };
    let datagram = datagram(named, context, fragment);
    if !fragment.is_later() {
        let transport = Transport { protocol, ports: own_ports(headers, data, protocol)? };
        fragments.note(datagram, transport, now);
        return Ok(transport);
    }
    match fragments.of(&datagram, now) {
        Some(transport) => {
            statistics.fragments_joined += 1;
            Ok(transport)
        }
        None => {
            statistics.fragments_alone += 1;
            Ok(Transport { protocol, ports: (0, 0) })
        }
    }
}

fn datagram(named: HostPair, context: FlowContext, fragment: Fragment) -> Datagram {
    let HostPair { version, source, destination } = named;
    let Fragment { id, protocol, .. } = fragment;
    Datagram { source, destination, id, protocol, is_v6: version == IpVersion::V6, context }
}

/// The ports in a packet; of ICMP type and code as the destination's.
fn own_ports(headers: &Headers, data: &[u8], protocol: u8) -> Result<(u16, u16), UnmeteredCause> {
    match protocol {
        _ if has_ports(protocol) => headers.ports(data).ok_or(UnmeteredCause::Cut),
        ICMP | ICMPV6 => {
            let at = headers.l4().ok_or(UnmeteredCause::Cut)?;
            let end = headers.ip_end().min(data.len());
            let bytes = data.get(at..end).and_then(|bytes| bytes.first_chunk()).ok_or(UnmeteredCause::Cut)?;
            Ok((0, u16::from_be_bytes(*bytes)))
        }
        _ => Ok((0, 0)),
    }
}

/// The place of the transport header in the outer packet.
fn span(headers: &Headers, l3: usize, total: u32, wire_len: u32, offset: usize) -> Option<TransportSpan> {
    let l4 = headers.l4().filter(|_| !headers.fragment().is_some_and(|fragment| fragment.is_later()))?;
    let end = if total == 0 { wire_len } else { l3 as u32 + total };
    Some(TransportSpan { l4: (offset + l4) as u32, end: (offset as u32).saturating_add(end) })
}

fn tcp_flags(headers: &Headers, data: &[u8], protocol: u8) -> u8 {
    let is_later = headers.fragment().is_some_and(|fragment| fragment.is_later());
    let at = headers.l4().filter(|_| protocol == TCP && !is_later);
    let flags = at.filter(|at| at + 14 <= headers.ip_end()).and_then(|at| data.get(at + 13));
    flags.copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapline_packet::{InterfaceId, Record};
    use tapline_testkit::gallery;

    const VIEW: ParseOptions =
        ParseOptions { fields: KeyFields::NONE, inner: false, counts_frames: false, seed: 1 };

    fn meta(frame: &[u8], vlan: Option<VlanTag>) -> Meta {
        let timestamp = Timestamp::from_nanos(1_700_000_000_123_456_789);
        Meta { timestamp, wire_len: frame.len() as u32 + 4, vlan, ..Meta::default() }
    }

    fn read(
        view: ParseOptions,
        data: &[u8],
        meta: &Meta,
    ) -> Result<(PacketSummary, ExtraFields), UnmeteredCause> {
        let (mut fragments, mut statistics) = (Fragments::new(), Statistics::default());
        any(view, LinkType::ETHERNET, Packet { data, meta }, 3, &mut fragments, &mut statistics)
    }

    fn is_plain_packet(data: &[u8], meta: &Meta, counts_frames: bool, summary: &mut PacketSummary) -> bool {
        data.first_chunk().is_some_and(|head| plain(head, meta, counts_frames, summary))
    }

    /// The context of a plain packet of the third interface.
    fn context_of(data: &[u8], meta: &Meta, summary: &PacketSummary) -> FlowContext {
        let record = Record {
            cap_len: data.len() as u32,
            meta: Meta { interface: InterfaceId(2), ..*meta },
            ..Record::default()
        };
        Window { extras: &[], batch: &Batch::new(data, &[record]), interfaces: &[] }.plain_context(summary)
    }

    /// Whether it is a plain packet; if so, both readers must give the same result.
    fn is_alike(data: &[u8], meta: &Meta, what: &str) -> bool {
        let mut is_plain = false;
        for counts_frames in [false, true] {
            let mut summary = PacketSummary::default();
            if !is_plain_packet(data, meta, counts_frames, &mut summary) {
                continue;
            }
            is_plain = true;
            let (other, extra) = read(ParseOptions { counts_frames, ..VIEW }, data, meta)
                .unwrap_or_else(|cause| panic!("{what}: plain, and yet {cause:?}"));
            assert_eq!(extra.context, context_of(data, meta, &summary), "{what}");
            assert_eq!(PacketSummary { extra: other.extra, ..summary }, other, "{what}");
        }
        is_plain
    }

    #[test]
    fn plain_packets_are_read_alike_both_ways() {
        let tags = [None, Some(VlanTag { tpid: 0x8100, tci: 0x2007 })];
        let mut count = 0;
        for (name, frame) in gallery::exhibits() {
            for (cut, tag) in (0..=frame.len()).flat_map(|cut| tags.map(|tag| (cut, tag))) {
                let is_plain = is_alike(&frame[..cut], &meta(&frame, tag), &format!("{name}, {cut} bytes"));
                count += usize::from(is_plain);
            }
            // With each byte of the headers changed.
            for at in 0..frame.len().min(60) {
                for value in [0, 1, 6, 17, 0x20, 0x28, 0x40, 0x45, 0x46, 0x7f, 0x80, 0xff] {
                    let mut changed = frame.clone();
                    changed[at] = value;
                    is_alike(&changed, &meta(&frame, None), &format!("{name}, byte {at} is {value}"));
                }
            }
        }
        assert!(count > 1000, "{count}: there are plain packets in the gallery");
    }

    #[test]
    fn tags_in_metadata_leave_a_packet_plain() {
        let frame = gallery::exhibits()
            .into_iter()
            .map(|(_, frame)| frame)
            .find(|frame| is_plain_packet(frame, &meta(frame, None), false, &mut PacketSummary::default()));
        let frame = frame.expect("one is plain");
        let mut summary = PacketSummary::default();
        let tag = VlanTag { tpid: 0x88a8, tci: 0xf123 };
        let meta = meta(&frame, Some(tag));
        assert!(is_plain_packet(&frame, &meta, false, &mut summary));
        assert_eq!(context_of(&frame, &meta, &summary).vlan, 0x123);
    }

    #[test]
    fn type_of_service_is_part_of_keys_on_request() {
        let mut frame = gallery::exhibits()
            .into_iter()
            .map(|(_, frame)| frame)
            .find(|frame| is_plain_packet(frame, &meta(frame, None), false, &mut PacketSummary::default()))
            .expect("one is plain");
        frame[15] = 0x2e;
        let meta = meta(&frame, None);
        let tos = |fields| {
            let (summary, extra) =
                read(ParseOptions { fields, ..VIEW }, &frame, &meta).expect("it is a packet");
            (summary.tos, extra.context.tos)
        };
        let none = KeyFields::default();
        assert_eq!(tos(none), (0x2e, 0));
        assert_eq!(tos(KeyFields { interface: true, ..none }), (0x2e, 0));
        assert_eq!(tos(KeyFields { tos: true, ..none }), (0x2e, 0x2e));
    }

    /// Labels around a frame with labels: the outer one counts, whether tunnels are taken off or not.
    #[test]
    fn the_outermost_label_counts() {
        let label = |label: u32| (label << 12 | 0x100 | 64).to_be_bytes();
        let types = |kind: u16| [&[0x02; 12][..], &kind.to_be_bytes()].concat();
        let mut ip = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        ip.extend([0, 1, 0, 2, 0, 8, 0, 0]);
        let span = [types(0x8847), label(200).to_vec(), ip.clone()].concat();
        let outside = [types(0x8847), label(100).to_vec(), vec![0; 4], span].concat();
        let meta = meta(&outside, None);
        let view = ParseOptions { inner: true, ..VIEW };
        let (summary, extra) = read(view, &outside, &meta).expect("there is a packet in it");
        assert_eq!((extra.context.mpls, extra.context.is_inner, summary.bytes), (100, true, 28));
    }
}
