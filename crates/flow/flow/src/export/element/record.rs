//! One record of a flow: the value of each element, and its octets in a message.

use std::net::IpAddr;

use tapline_geo::Place;
use tapline_packet::Timestamp;

use super::{Detail, Element, PlaceField, Value};
use crate::flow::NO_TIME;
use crate::{
    Collected, Details, Endpoint, Flow, FlowContext, Http, KnownField, MacAddress, Sampling, TcpSide, Tls,
};

/// flowSelectorAlgorithm: flows are chosen by hash, and the hash is that of RFC 5475, A.2 (RFC 7014, 9.1).
pub(crate) const FLOW_SELECTOR_BOB: u16 = 6;

/// A value, before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValue<'f> {
    Number(u64),
    Address(IpAddr),
    Time(Timestamp),
    Text(&'f str),
    Bytes(&'f [u8]),
    /// The flow has none: it is of another kind, or it was not seen.
    Absent,
}

/// One direction of a flow: the sending side, the side whose times are reported, and the times of both if the record
/// is of both.
#[derive(Clone, Copy)]
pub(crate) struct RecordView<'f> {
    pub(crate) flow: &'f Flow,
    /// The side of the flow that sent.
    pub(crate) from: usize,
    /// Start and end of the record's time.
    pub(crate) first: Timestamp,
    pub(crate) last: Timestamp,
    /// The time at which the exporter's uptime is 0.
    pub(crate) boot_ms: i64,
    pub(crate) domain: u32,
    pub(crate) exporter: Option<IpAddr>,
    pub(crate) sampling: Sampling,
    /// The places of the flow's endpoints, if they were looked up.
    pub(crate) places: Option<&'f [Place<'f>; 2]>,
}

/// Data that the rows of a flow need in addition to the flow.
#[derive(Clone, Copy)]
pub(crate) struct RowContext<'c> {
    /// Whether both directions are one row.
    pub(crate) is_biflow: bool,
    pub(crate) domain: u32,
    pub(crate) exporter: Option<IpAddr>,
    pub(crate) sampling: Sampling,
    pub(crate) places: Option<&'c [Place<'c>; 2]>,
}

impl RowContext<'_> {
    /// The rows of a flow, one for each direction that sent or one for both, each with its packets.
    #[inline]
    pub(crate) fn for_each_row(&self, flow: &Flow, mut each: impl FnMut(&RecordView<'_>, u64)) {
        let RowContext { domain, exporter, sampling, places, .. } = *self;
        // Rows tell times since 1970.
        let boot_ms = 0;
        let mut row = |from, first, last, packets| {
            each(
                &RecordView { flow, from, first, last, boot_ms, domain, exporter, sampling, places },
                packets,
            );
        };
        if self.is_biflow {
            return row(0, flow.first(), flow.last(), flow.answered_packets());
        }
        for from in flow.senders() {
            let side = &flow.endpoints[from];
            row(from, side.first, side.last, flow.answered_packets_of(from));
        }
    }
}

impl<'f> RecordView<'f> {
    fn source(&self) -> &Endpoint {
        &self.flow.endpoints[self.from]
    }

    fn destination(&self) -> &Endpoint {
        &self.flow.endpoints[1 - self.from]
    }

    #[inline(always)]
    pub(crate) fn field_value(&self, value: Value, is_reverse: bool) -> FieldValue<'f> {
        if self.flow.collected.is_some() && !is_known(self.flow, value, self.from, is_reverse) {
            return FieldValue::Absent;
        }
        self.known_value(value, is_reverse)
    }

    /// The value of a field that the exporter gave, or that says itself whether it is there.
    #[inline(always)]
    pub(super) fn known_value(&self, value: Value, is_reverse: bool) -> FieldValue<'f> {
        let (flow, context) = (self.flow, &self.flow.context);
        let side = if is_reverse { self.destination() } else { self.source() };
        let is_icmp = matches!(flow.protocol, 1 | 58);
        let icmp = if is_icmp { self.destination().port } else { 0 };
        FieldValue::Number(match value {
            Value::Octets => side.bytes,
            Value::Packets => side.packets,
            Value::Protocol => flow.protocol.into(),
            Value::ClassOfService => side.tos.into(),
            Value::TcpFlags => side.tcp_flags.into(),
            Value::TcpFlagsFirst => side.tcp_flags_first.into(),
            Value::SourcePort => self.source().port.into(),
            Value::DestinationPort => self.destination().port.into(),
            Value::SourceAddress => return FieldValue::Address(self.source().address),
            Value::DestinationAddress => return FieldValue::Address(self.destination().address),
            // The interface that a packet leaves by is known to routers alone. A biflow's other direction came in there.
            Value::Ingress | Value::Egress => match flow.collected.as_deref() {
                Some(collected) if (value == Value::Ingress) != (self.from == 0) => collected.egress.into(),
                None if value == Value::Egress => return FieldValue::Absent,
                _ => context.interface.into(),
            },
            // A packet is seen where it comes in.
            Value::Direction => flow.collected.as_ref().map_or(0, |collected| collected.direction).into(),
            Value::NextHop => {
                let next_hop = flow.collected.as_ref().and_then(|collected| collected.next_hop);
                let is_v4 = flow.endpoints[0].address.is_ipv4();
                let next_hop = next_hop.filter(|address| self.from == 0 && address.is_ipv4() == is_v4);
                return next_hop.map_or(FieldValue::Absent, FieldValue::Address);
            }
            Value::SourcePrefix
            | Value::DestinationPrefix
            | Value::PostSourceAddress
            | Value::PostDestinationAddress
            | Value::PostSourcePort
            | Value::PostDestinationPort
            | Value::NatEvent
            | Value::FirewallEvent => return self.collected(value),
            Value::SourceAs | Value::DestinationAs => return self.autonomous_system(value),
            Value::Place(field) => return self.place(field),
            Value::EndUptime => millis(self.last).wrapping_sub(self.boot_ms) as u64,
            Value::StartUptime => millis(self.first).wrapping_sub(self.boot_ms) as u64,
            Value::IcmpTypeCode => icmp.into(),
            Value::IcmpType => (icmp >> 8).into(),
            Value::IcmpCode => (icmp & 0xff).into(),
            Value::TtlMin => side.ttl_min.into(),
            Value::TtlMax => side.ttl_max.into(),
            Value::Vlan => {
                if context.vlan == FlowContext::NO_VLAN {
                    0
                } else {
                    context.vlan.into()
                }
            }
            Value::IpVersion => {
                if self.source().address.is_ipv4() {
                    4
                } else {
                    6
                }
            }
            Value::MplsTop => match self.detail(Detail::Label(1), is_reverse) {
                Some(FieldValue::Number(entry)) => entry,
                _ if context.mpls == FlowContext::NO_LABEL => 0,
                _ => u64::from(context.mpls) << 4,
            },
            Value::EndReason => flow.end_reason as u64,
            Value::StartSeconds | Value::StartMilliseconds | Value::StartNtp => {
                return time(self.first);
            }
            Value::EndSeconds | Value::EndMilliseconds | Value::EndNtp => return time(self.last),
            Value::DurationMilliseconds if self.first == NO_TIME => return FieldValue::Absent,
            Value::DurationMilliseconds => (millis(self.last) - millis(self.first)).max(0) as u64,
            Value::ObservationDomain => {
                flow.collected.as_ref().map_or(self.domain, |collected| collected.domain).into()
            }
            Value::ExporterV4 | Value::ExporterV6 => {
                let address =
                    flow.collected.as_ref().map_or(self.exporter, |collected| Some(collected.exporter));
                let is_v4 = value == Value::ExporterV4;
                let address = address.filter(|address| address.is_ipv4() == is_v4);
                return address.map_or(FieldValue::Absent, FieldValue::Address);
            }
            Value::FlowId if flow.id == 0 => return FieldValue::Absent,
            Value::FlowId => flow.id,
            Value::Tunnel => context.tunnel.into(),
            Value::SamplingInterval => {
                let metered = Some(self.sampling.packet_interval());
                match flow.collected.as_ref().map_or(metered, |collected| collected.sampling) {
                    Some(interval) => interval.into(),
                    None => return FieldValue::Absent,
                }
            }
            Value::SamplingAlgorithm if flow.collected.is_some() => return FieldValue::Absent,
            Value::SamplingAlgorithm => 2,
            Value::FlowSelector => match self.sampling.greatest_hash() {
                Some(_) => FLOW_SELECTOR_BOB.into(),
                None => return FieldValue::Absent,
            },
            Value::GreatestHash => match self.sampling.greatest_hash() {
                Some(greatest) => greatest.into(),
                None => return FieldValue::Absent,
            },
            Value::Foreign(_) => return FieldValue::Absent,
            Value::Throughput => return throughput(side).map_or(FieldValue::Absent, FieldValue::Number),
            Value::Detail(detail) => return self.detail(detail, is_reverse).unwrap_or(FieldValue::Absent),
        })
    }

    /// Value of a field that routers report.
    #[inline(never)]
    fn collected(&self, value: Value) -> FieldValue<'f> {
        let flow = self.flow;
        let Some(collected) = flow.collected.as_deref() else { return FieldValue::Absent };
        let Collected { prefix_lens, post_addresses, post_ports, nat_event, firewall_event, .. } = *collected;
        let (there, back) = if self.from == 0 { (0, 1) } else { (1, 0) };
        let known = |number: u8| match number {
            0 => FieldValue::Absent,
            number => FieldValue::Number(number.into()),
        };
        let is_v4 = flow.endpoints[0].address.is_ipv4();
        let number = |number: Option<u64>| number.map_or(FieldValue::Absent, FieldValue::Number);
        let post_address = |side: usize| {
            let address = post_addresses[side].filter(|address| address.is_ipv4() == is_v4);
            address.map_or(FieldValue::Absent, FieldValue::Address)
        };
        match value {
            Value::PostSourceAddress => post_address(there),
            Value::PostDestinationAddress => post_address(back),
            Value::PostSourcePort => number(post_ports[there].map(u64::from)),
            Value::PostDestinationPort => number(post_ports[back].map(u64::from)),
            Value::NatEvent => number(nat_event.map(u64::from)),
            Value::FirewallEvent => number(firewall_event.map(u64::from)),
            Value::SourcePrefix => known(prefix_lens[there]),
            Value::DestinationPrefix => known(prefix_lens[back]),
            _ => FieldValue::Absent,
        }
    }

    /// The number of an autonomous system: the router's, or else that of the files of places.
    #[inline]
    fn autonomous_system(&self, value: Value) -> FieldValue<'f> {
        let side = if value == Value::SourceAs { self.from } else { 1 - self.from };
        let told = self.flow.collected.as_ref().map_or(0, |collected| collected.autonomous_systems[side]);
        match (told, self.places) {
            (0, None) => FieldValue::Absent,
            (0, Some(places)) if places[side].as_number == 0 => FieldValue::Absent,
            (0, Some(places)) => FieldValue::Number(places[side].as_number.into()),
            (told, _) => FieldValue::Number(told.into()),
        }
    }

    /// Value of a field that files of places have.
    #[inline(never)]
    fn place(&self, field: PlaceField) -> FieldValue<'f> {
        let Some(places) = self.places else { return FieldValue::Absent };
        let (source, destination) = (places[self.from], places[1 - self.from]);
        let text = match field {
            PlaceField::SourceCountry => source.country,
            PlaceField::DestinationCountry => destination.country,
            PlaceField::SourceAsName => source.as_name,
            PlaceField::DestinationAsName => destination.as_name,
            PlaceField::SourceName => source.network_name,
            PlaceField::DestinationName => destination.network_name,
        };
        if text.is_empty() { FieldValue::Absent } else { FieldValue::Text(text) }
    }

    /// Value of a detail, if the flow has it.
    #[inline(never)]
    fn detail(&self, detail: Detail, is_reverse: bool) -> Option<FieldValue<'f>> {
        let details = self.flow.details.as_deref()?;
        let side = self.from ^ usize::from(is_reverse);
        let has_sent = self.flow.endpoints[side].packets > 0;
        let number = |number: u64| Some(FieldValue::Number(number));
        let text = |text: &'f str| (!text.is_empty()).then_some(FieldValue::Text(text));
        let tcp = |of: fn(&TcpSide) -> u64| number(of(&details.tcp.as_ref()?.sides[side]));
        let gap = || details.gaps.map(|gaps| gaps[side]).filter(|gaps| gaps.count > 0);
        let dns = || details.dns.as_ref();
        let tls = |of: fn(&Tls) -> &str| text(of(details.tls.as_ref()?));
        let http = |of: fn(&Http) -> &str| text(of(details.http.as_ref()?));
        match detail {
            Detail::ServerRtt => number(details.tcp.as_ref()?.server_rtt?),
            Detail::ClientRtt => number(details.tcp.as_ref()?.client_rtt?),
            Detail::Response => number(details.tcp.as_ref()?.response?),
            Detail::Retransmitted => tcp(|side| side.retransmitted.into()),
            Detail::RetransmittedOctets => tcp(|side| side.retransmitted_bytes),
            Detail::OutOfOrder => tcp(|side| side.out_of_order.into()),
            Detail::ZeroWindows => tcp(|side| side.zero_windows.into()),
            Detail::SegmentSize => number(details.tcp.as_ref()?.sides[side].mss?.into()),
            Detail::WindowScale => number(details.tcp.as_ref()?.sides[side].window_scale?.into()),
            Detail::WindowMin => number(details.tcp.as_ref()?.sides[side].windows?.0.into()),
            Detail::WindowMax => number(details.tcp.as_ref()?.sides[side].windows?.1.into()),
            Detail::Size(class) => number(details.sizes.as_ref()?[side][usize::from(class)].into()),
            Detail::GapMin => number(gap()?.min),
            Detail::GapMean => number(gap()?.mean.round() as u64),
            Detail::GapMax => number(gap()?.max),
            Detail::GapDeviation => number(gap()?.deviation.round() as u64),
            Detail::DnsName => text(&dns()?.name),
            Detail::DnsType => number(dns()?.kind.into()),
            Detail::DnsCode => number(dns()?.answer?.code.into()),
            Detail::DnsAnswers => number(dns()?.answer?.count.into()),
            Detail::DnsAfter => number(dns()?.answer?.after?),
            Detail::TlsServerName => tls(|tls| &tls.server_name),
            Detail::TlsVersion => number(details.tls.as_ref()?.version?.into()),
            Detail::TlsCipher => number(details.tls.as_ref()?.cipher?.into()),
            Detail::TlsAlpn => tls(|tls| &tls.alpn),
            Detail::TlsJa3 => tls(|tls| &tls.ja3),
            Detail::TlsJa4 => tls(|tls| &tls.ja4),
            Detail::HttpMethod => http(|http| &http.method),
            Detail::HttpHost => http(|http| &http.host),
            Detail::HttpTarget => http(|http| &http.target),
            Detail::HttpUserAgent => http(|http| &http.user_agent),
            Detail::HttpStatus => number(details.http.as_ref()?.status?.into()),
            Detail::Application => text(details.application?),
            Detail::ApplicationFoundBy => text(details.found_by?.name()),
            Detail::SourceMac => mac(details.link.as_ref()?[side].source),
            Detail::DestinationMac => mac(details.link.as_ref()?[side].destination),
            Detail::TagPriority(at) => number(u64::from(tag(details, side, at)? >> 13)),
            Detail::TagVlan(at) => number(u64::from(tag(details, side, at)? & 0x0fff)),
            Detail::Label(place) => {
                let stack = &details.labels.as_ref()?[side];
                let &[one, two, three] = stack.entries().get(usize::from(place.checked_sub(1)?))?;
                number(u64::from(u32::from_be_bytes([0, one, two, three])))
            }
            Detail::Payload => (has_sent && !details.payload[side].is_empty())
                .then_some(FieldValue::Bytes(&details.payload[side])),
        }
    }
}

/// Writes a value in the octets of its element: the low ones of a number. An absent value is 0 or, at variable length,
/// empty. Values of variable length are cut to `most` octets, texts between two characters.
#[inline]
pub(crate) fn write_value(value: FieldValue<'_>, element: &Element, most: usize, out: &mut Vec<u8>) {
    let number = match value {
        FieldValue::Number(number) => number,
        FieldValue::Address(of) => return address(of, out),
        FieldValue::Text(text) => {
            return variable(&text.as_bytes()[..text.floor_char_boundary(most)], out);
        }
        FieldValue::Bytes(bytes) if element.is_variable() => {
            return variable(&bytes[..bytes.len().min(most)], out);
        }
        FieldValue::Bytes(bytes) => bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
        FieldValue::Absent if element.is_variable() => return variable(&[], out),
        FieldValue::Absent => 0,
        FieldValue::Time(time) => time_number(element.value, time),
    };
    let bytes = number.to_be_bytes();
    match element.len {
        1 => out.push(bytes[7]),
        2 => out.extend_from_slice(&bytes[6..]),
        4 => out.extend_from_slice(&bytes[4..]),
        8 => out.extend_from_slice(&bytes),
        len @ ..8 => out.extend_from_slice(&bytes[8 - usize::from(len)..]),
        // An address that is absent.
        len => {
            out.resize(out.len() + usize::from(len) - bytes.len(), 0);
            out.extend_from_slice(&bytes);
        }
    }
}

/// A time as the number that its element has in records.
#[inline(always)]
pub(super) fn time_number(value: Value, time: Timestamp) -> u64 {
    match value {
        Value::StartSeconds | Value::EndSeconds => time.seconds() as u64,
        Value::StartMilliseconds | Value::EndMilliseconds => millis(time) as u64,
        _ => ntp(time),
    }
}

/// Whether the exporter gave the value for a record of the packets that side `from` sent; `true` for values that say so
/// themselves.
#[inline(never)]
pub(crate) fn is_known(flow: &Flow, value: Value, from: usize, is_reverse: bool) -> bool {
    match value {
        Value::IpVersion => flow.knows(KnownField::Address, 0) || flow.knows(KnownField::Address, 1),
        Value::IcmpTypeCode | Value::IcmpType | Value::IcmpCode => match flow.protocol {
            1 | 58 => flow.knows(KnownField::IcmpTypeCode, 0),
            _ => flow.knows(KnownField::Protocol, 0),
        },
        _ => needed(value, from, is_reverse).is_none_or(|(field, side)| flow.knows(field, side)),
    }
}

/// The field of a flow, and the endpoint or 0, without which it does not have the value.
#[inline(always)]
pub(super) fn needed(value: Value, from: usize, is_reverse: bool) -> Option<(KnownField, usize)> {
    let side = from ^ usize::from(is_reverse);
    Some(match value {
        Value::Octets | Value::Throughput => (KnownField::Bytes, side),
        Value::Packets => (KnownField::Packets, side),
        Value::ClassOfService => (KnownField::Tos, side),
        Value::TcpFlags => (KnownField::TcpFlags, side),
        Value::TcpFlagsFirst => (KnownField::TcpFlagsFirst, side),
        Value::TtlMin => (KnownField::TtlMin, side),
        Value::TtlMax => (KnownField::TtlMax, side),
        Value::SourcePort => (KnownField::Port, from),
        Value::DestinationPort => (KnownField::Port, 1 - from),
        Value::SourceAddress => (KnownField::Address, from),
        Value::DestinationAddress => (KnownField::Address, 1 - from),
        Value::Protocol => (KnownField::Protocol, 0),
        Value::Ingress if from == 0 => (KnownField::Ingress, 0),
        Value::Ingress => (KnownField::Egress, 0),
        Value::Egress if from == 0 => (KnownField::Egress, 0),
        Value::Egress => (KnownField::Ingress, 0),
        Value::Direction => (KnownField::Direction, 0),
        Value::Vlan => (KnownField::Vlan, 0),
        Value::MplsTop => (KnownField::Label, 0),
        Value::Tunnel => (KnownField::Tunnel, 0),
        Value::EndReason => (KnownField::EndReason, 0),
        _ => return None,
    })
}

/// The address as the number of 48 bits.
fn mac<'f>(address: Option<MacAddress>) -> Option<FieldValue<'f>> {
    let [a, b, c, d, e, f] = address?;
    Some(FieldValue::Number(u64::from_be_bytes([0, 0, a, b, c, d, e, f])))
}

/// A MAC address as RFC 7373, 4.6 writes it.
pub(crate) fn mac_text(number: u64) -> String {
    let [_, _, a, b, c, d, e, f] = number.to_be_bytes();
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

fn tag(details: &Details, side: usize, at: u8) -> Option<u16> {
    details.link.as_ref()?[side].tags.get(usize::from(at)).copied()?
}

/// A time; that of a packet without one is not known.
fn time(time: Timestamp) -> FieldValue<'static> {
    if time == NO_TIME { FieldValue::Absent } else { FieldValue::Time(time) }
}

/// Bits a second between the first and the last packet of a side; `None` for a single one, and without times.
fn throughput(side: &Endpoint) -> Option<u64> {
    if side.first == NO_TIME {
        return None;
    }
    let ns = side.last.as_nanos().saturating_sub(side.first.as_nanos());
    let bits = u128::from(side.bytes) * 8 * 1_000_000_000;
    (ns > 0).then(|| u64::try_from(bits / ns.unsigned_abs() as u128).unwrap_or(u64::MAX))
}

/// Bytes behind their length (RFC 7011, 7).
pub(super) fn variable(bytes: &[u8], out: &mut Vec<u8>) {
    match u8::try_from(bytes.len()) {
        Ok(len) if len < u8::MAX => out.push(len),
        _ => {
            out.push(u8::MAX);
            out.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
        }
    }
    out.extend_from_slice(bytes);
}

#[inline]
fn address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => out.extend_from_slice(&address.octets()),
        IpAddr::V6(address) => out.extend_from_slice(&address.octets()),
    }
}

/// Milliseconds since 1970, rounded down.
#[inline]
pub(crate) fn millis(time: Timestamp) -> i64 {
    time.as_nanos().div_euclid(1_000_000)
}

/// NTP time: seconds since 1900 and a fraction of 32 bits (RFC 7011, 6.1.10). The fraction is rounded up, so that a
/// reader that rounds down gets the nanosecond back.
pub(super) fn ntp(time: Timestamp) -> u64 {
    const FROM_1900: i64 = 2_208_988_800;
    let seconds = time.seconds().wrapping_add(FROM_1900) as u32;
    let fraction = (u64::from(time.subsec_nanos()) << 32).div_ceil(1_000_000_000);
    u64::from(seconds) << 32 | fraction.min(u32::MAX.into())
}
