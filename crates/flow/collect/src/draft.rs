//! A flow while the fields of its record are read.

mod copy;
mod plan;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tapline_flow::export::{Foreign, Value};
use tapline_flow::{Collected, EndReason, Endpoint, Flow, FlowContext, KnownField, KnownFields};
use tapline_packet::{LinkType, Timestamp};

use crate::bytes::number;
use crate::sampling::Sampled;
use crate::sflow::packet_head;
use crate::totals::{FlowKey, FlowTotals, Totals};
pub(crate) use copy::{CopyPlan, CopyPlans};
pub(crate) use plan::{PlacedField, Plan, WINDOW};

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Nanoseconds of a millisecond.
const MS: i64 = 1_000_000;
/// Seconds from 1900, where NTP begins, to 1970.
const FROM_1900: u64 = 2_208_988_800;

/// The time of a message, by which relative times are reckoned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageTime {
    /// The exporter's clock, in nanoseconds since 1970.
    pub(crate) export_ns: i64,
    /// The exporter's uptime, in milliseconds, and the time at which it was 0, in nanoseconds since 1970; `None` if it
    /// is not known.
    pub(crate) uptime: Option<(u32, i64)>,
}

/// Counters and further fields of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Side {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    post_packets: u64,
    post_bytes: u64,
    /// Since the beginning of the flow.
    total_packets: Option<u64>,
    total_bytes: Option<u64>,
    pub(crate) tcp_flags: u8,
    tcp_flags_first: u8,
    pub(crate) ttl_min: u8,
    pub(crate) ttl_max: u8,
    pub(crate) tos: u8,
}

/// A flow while the fields of its record are read.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    /// The fields that were read. Missing fields stay 0 or `None`.
    pub(crate) known: KnownFields,
    /// Forward and reverse.
    pub(crate) sides: [Side; 2],
    pub(crate) addresses: [Option<IpAddr>; 2],
    pub(crate) ports: [u16; 2],
    pub(crate) protocol: u8,
    icmp: Option<u16>,
    start: Option<i64>,
    end: Option<i64>,
    duration_ns: Option<i64>,
    uptimes: [Option<u32>; 2],
    deltas: [Option<u32>; 2],
    /// Time at which the uptime was 0; options records have it too.
    pub(crate) boot_ns: Option<i64>,
    end_reason: u8,
    pub(crate) vlan: u16,
    mpls: u32,
    tunnel: u32,
    pub(crate) ingress: u32,
    pub(crate) egress: u32,
    direction: u8,
    pub(crate) prefix_lens: [u8; 2],
    pub(crate) autonomous_systems: [u32; 2],
    pub(crate) next_hop: Option<IpAddr>,
    exporter: Option<IpAddr>,
    /// Addresses and ports behind address translation, and events.
    post_addresses: [Option<IpAddr>; 2],
    post_ports: [Option<u16>; 2],
    nat_event: Option<u8>,
    flow_id: u64,
    firewall_event: Option<u8>,
    /// The length of the frame whose first bytes the record has; 0 if unknown.
    frame_len: u32,
    /// The record has the first bytes of a packet that is not IP.
    pub(crate) is_not_ip: bool,
    pub(crate) sampled: Sampled,
}

impl Draft {
    pub(crate) fn new() -> Draft {
        Draft {
            known: KnownFields::default(),
            sides: [Side::default(); 2],
            addresses: [None; 2],
            ports: [0; 2],
            protocol: 0,
            icmp: None,
            start: None,
            end: None,
            duration_ns: None,
            uptimes: [None; 2],
            deltas: [None; 2],
            boot_ns: None,
            end_reason: 0,
            vlan: FlowContext::NO_VLAN,
            mpls: FlowContext::NO_LABEL,
            tunnel: 0,
            ingress: 0,
            egress: 0,
            direction: 0,
            prefix_lens: [0; 2],
            autonomous_systems: [0; 2],
            next_hop: None,
            exporter: None,
            post_addresses: [None; 2],
            post_ports: [None; 2],
            nat_event: None,
            flow_id: 0,
            firewall_event: None,
            frame_len: 0,
            is_not_ip: false,
            sampled: Sampled::default(),
        }
    }

    /// Marks a field of a direction as known, or of the flow with the direction 0.
    #[inline]
    pub(crate) fn know(&mut self, field: KnownField, side: usize) {
        self.known.add(field, side);
    }

    /// Takes the value of a field.
    #[inline]
    pub(crate) fn set(&mut self, field: Value, is_reverse: bool, bytes: &[u8]) {
        let at = usize::from(is_reverse);
        let side = &mut self.sides[at];
        let ms = |bytes: &[u8]| (number(bytes) as i64).saturating_mul(MS);
        let known = match field {
            Value::Octets => {
                side.bytes = number(bytes);
                (KnownField::Bytes, at)
            }
            Value::Packets => {
                side.packets = number(bytes);
                (KnownField::Packets, at)
            }
            Value::TcpFlags => {
                // Of two octets the low one has the flags (RFC 9565).
                side.tcp_flags |= number(bytes) as u8;
                (KnownField::TcpFlags, at)
            }
            Value::TcpFlagsFirst => {
                side.tcp_flags_first = number(bytes) as u8;
                side.tcp_flags |= side.tcp_flags_first;
                (KnownField::TcpFlagsFirst, at)
            }
            Value::ClassOfService => {
                side.tos = number(bytes) as u8;
                (KnownField::Tos, at)
            }
            Value::TtlMin => {
                side.ttl_min = number(bytes) as u8;
                (KnownField::TtlMin, at)
            }
            Value::TtlMax => {
                side.ttl_max = number(bytes) as u8;
                (KnownField::TtlMax, at)
            }
            Value::SourceAddress => return set_address(&mut self.addresses[0], bytes),
            Value::DestinationAddress => return set_address(&mut self.addresses[1], bytes),
            Value::SourcePort => {
                self.ports[0] = number(bytes) as u16;
                (KnownField::Port, 0)
            }
            Value::DestinationPort => {
                self.ports[1] = number(bytes) as u16;
                (KnownField::Port, 1)
            }
            Value::Protocol => {
                self.protocol = number(bytes) as u8;
                (KnownField::Protocol, 0)
            }
            Value::IcmpTypeCode => return set_icmp(&mut self.icmp, 0, number(bytes) as u16),
            Value::IcmpType => return set_icmp(&mut self.icmp, 0x00ff, (number(bytes) as u16) << 8),
            Value::IcmpCode => return set_icmp(&mut self.icmp, 0xff00, number(bytes) as u16 & 0xff),
            Value::StartUptime => return self.uptimes[0] = Some(number(bytes) as u32),
            Value::EndUptime => return self.uptimes[1] = Some(number(bytes) as u32),
            Value::StartMilliseconds => return self.start = Some(ms(bytes)),
            Value::EndMilliseconds => return self.end = Some(ms(bytes)),
            Value::Foreign(field) => return self.set_foreign(field, at, bytes),
            _ => return self.set_rare(field, bytes),
        };
        self.known.add(known.0, known.1);
    }

    #[inline(never)]
    fn set_rare(&mut self, field: Value, bytes: &[u8]) {
        let value = number(bytes);
        let (low, signed) = (value as u32, value as i64);
        match field {
            Value::SourcePrefix => self.prefix_lens[0] = value as u8,
            Value::DestinationPrefix => self.prefix_lens[1] = value as u8,
            Value::Ingress => {
                self.ingress = low;
                self.know(KnownField::Ingress, 0);
            }
            Value::Egress => {
                self.egress = low;
                self.know(KnownField::Egress, 0);
            }
            Value::SourceAs => self.autonomous_systems[0] = low,
            Value::DestinationAs => self.autonomous_systems[1] = low,
            Value::NextHop => {
                let mut address = None;
                set_address(&mut address, bytes);
                self.next_hop = address.filter(|address| !address.is_unspecified()).or(self.next_hop);
            }
            Value::ExporterV4 | Value::ExporterV6 => {
                let mut address = None;
                set_address(&mut address, bytes);
                self.exporter = address.filter(|address| !address.is_unspecified()).or(self.exporter);
            }
            Value::Vlan => {
                if value > 0 {
                    self.vlan = value as u16 & 0x0fff;
                }
                self.know(KnownField::Vlan, 0);
            }
            Value::Direction => {
                self.direction = value as u8;
                self.know(KnownField::Direction, 0);
            }
            Value::MplsTop => {
                self.mpls = low >> 4;
                self.know(KnownField::Label, 0);
            }
            Value::EndReason => self.end_reason = value as u8,
            Value::Tunnel => {
                self.tunnel = low;
                self.know(KnownField::Tunnel, 0);
            }
            Value::PostSourceAddress => set_address(&mut self.post_addresses[0], bytes),
            Value::PostDestinationAddress => set_address(&mut self.post_addresses[1], bytes),
            Value::PostSourcePort => self.post_ports[0] = Some(value as u16),
            Value::PostDestinationPort => self.post_ports[1] = Some(value as u16),
            Value::FlowId => self.flow_id = value,
            Value::NatEvent => self.nat_event = Some(value as u8),
            Value::FirewallEvent => self.firewall_event = Some(value as u8),
            Value::StartSeconds => self.start = Some(signed.saturating_mul(1000 * MS)),
            Value::EndSeconds => self.end = Some(signed.saturating_mul(1000 * MS)),
            Value::StartNtp => self.start = Some(of_ntp(value)),
            Value::EndNtp => self.end = Some(of_ntp(value)),
            Value::DurationMilliseconds => self.duration_ns = Some(i64::from(low) * MS),
            Value::SamplingInterval => self.sampled.interval = low,
            Value::ObservationDomain => self.sampled.domain = Some(low),
            _ => {}
        }
    }

    /// Takes the value of a field that only records of others have, of the direction `at`.
    #[inline(never)]
    fn set_foreign(&mut self, field: Foreign, at: usize, bytes: &[u8]) {
        let value = number(bytes);
        let (low, signed) = (value as u32, value as i64);
        let side = &mut self.sides[at];
        match field {
            Foreign::PostOctets => {
                side.post_bytes = value;
                self.know(KnownField::Bytes, at);
            }
            Foreign::PostPackets => {
                side.post_packets = value;
                self.know(KnownField::Packets, at);
            }
            Foreign::TotalOctets => side.total_bytes = Some(value),
            Foreign::TotalPackets => side.total_packets = Some(value),
            Foreign::Ttl => {
                (side.ttl_min, side.ttl_max) = (value as u8, value as u8);
                self.know(KnownField::TtlMax, at);
                self.know(KnownField::TtlMin, at);
            }
            // The interface below a logical one, for records that do not tell that.
            Foreign::IngressPhysical if self.ingress == 0 => self.set_rare(Value::Ingress, bytes),
            Foreign::EgressPhysical if self.egress == 0 => self.set_rare(Value::Egress, bytes),
            Foreign::IngressPhysical | Foreign::EgressPhysical => {}
            Foreign::FrameLen => self.frame_len = low,
            Foreign::FrameSection => self.set_section(LinkType::ETHERNET, bytes),
            Foreign::IpSection => self.set_section(LinkType::RAW, bytes),
            Foreign::StartDelta => self.deltas[0] = Some(low),
            Foreign::EndDelta => self.deltas[1] = Some(low),
            Foreign::ObservedSeconds => self.end = self.end.or(Some(signed.saturating_mul(1000 * MS))),
            Foreign::ObservedMilliseconds => self.end = self.end.or(Some(signed.saturating_mul(MS))),
            Foreign::DurationMicroseconds => self.duration_ns = Some(i64::from(low) * 1000),
            Foreign::BootMilliseconds => self.boot_ns = Some(signed.saturating_mul(MS)),
            Foreign::SamplingPackets => self.sampled.packets = low,
            Foreign::SamplingSpace => self.sampled.space = low,
            Foreign::SamplingSize => self.sampled.size = low,
            Foreign::SamplingPopulation => self.sampled.population = low,
            Foreign::SamplingProbability => self.sampled.probability = float(bytes),
            Foreign::SelectorAlgorithm => self.sampled.algorithm = value as u16,
            Foreign::Sampler => self.sampled.sampler = Some(value),
            Foreign::System => self.sampled.is_of_system = true,
            Foreign::Template => self.sampled.template = Some(value as u16),
        }
    }

    /// Takes the first bytes of a packet, which is a flow of one.
    fn set_section(&mut self, link_type: LinkType, bytes: &[u8]) {
        let mut head = Draft::new();
        if packet_head(link_type, bytes, self.frame_len, &mut head) != Some(true) {
            self.is_not_ip = !self.known.has(KnownField::Packets, 0);
            return;
        }
        self.fill(&head);
    }

    /// Takes the fields of the first bytes of a packet that the record has not given otherwise.
    fn fill(&mut self, head: &Draft) {
        let (known, mut added) = (self.known, self.known);
        let mut is_new = |field, side| {
            let is_new = head.known.has(field, side) && !known.has(field, side);
            if is_new {
                added.add(field, side);
            }
            is_new
        };
        let (side, of_head) = (&mut self.sides[0], &head.sides[0]);
        for (field, to, from) in [
            (KnownField::TcpFlags, &mut side.tcp_flags, of_head.tcp_flags),
            (KnownField::TtlMin, &mut side.ttl_min, of_head.ttl_min),
            (KnownField::TtlMax, &mut side.ttl_max, of_head.ttl_max),
            (KnownField::Tos, &mut side.tos, of_head.tos),
            (KnownField::Protocol, &mut self.protocol, head.protocol),
        ] {
            if is_new(field, 0) {
                *to = from;
            }
        }
        for (field, to, from) in [
            (KnownField::Packets, &mut side.packets, of_head.packets),
            (KnownField::Bytes, &mut side.bytes, of_head.bytes),
        ] {
            if is_new(field, 0) {
                *to = from;
            }
        }
        if is_new(KnownField::Vlan, 0) {
            self.vlan = head.vlan;
        }
        for end in 0..2 {
            self.addresses[end] = self.addresses[end].or(head.addresses[end]);
            if is_new(KnownField::Port, end) {
                self.ports[end] = head.ports[end];
            }
        }
        self.known = added;
    }

    /// Makes counters since the beginning of the flow those since its record before; how many flows were forgotten for
    /// it. Other counters go before them.
    pub(crate) fn take_totals(&mut self, flows: &mut FlowTotals, time: MessageTime) -> u64 {
        let has_totals = |side: &Side| side.total_packets.or(side.total_bytes).is_some();
        let has_others = [0, 1]
            .iter()
            .any(|at| self.known.has(KnownField::Packets, *at) || self.known.has(KnownField::Bytes, *at));
        if has_others || !self.sides.iter().any(has_totals) {
            return 0;
        }
        let (first, last) = self.times(time);
        let key = FlowKey {
            addresses: self.addresses,
            ports: self.ports,
            protocol: self.protocol,
            vlan: self.vlan,
            ingress: self.ingress,
            start: self.start.or(self.uptimes[0].map(i64::from)),
        };
        let totals = Totals {
            packets: self.sides.map(|side| side.total_packets.unwrap_or(0)),
            bytes: self.sides.map(|side| side.total_bytes.unwrap_or(0)),
            end: Some(last.as_nanos()),
        };
        let (before, forgotten) = flows.replace(key, totals);
        let counted = before.unwrap_or_default();
        for (at, side) in self.sides.iter_mut().enumerate() {
            if side.total_packets.is_some() {
                side.packets = totals.packets[at] - counted.packets[at];
                self.known.add(KnownField::Packets, at);
            }
            if side.total_bytes.is_some() {
                side.bytes = totals.bytes[at] - counted.bytes[at];
                self.known.add(KnownField::Bytes, at);
            }
        }
        if let Some(end) = counted.end.filter(|end| (first.as_nanos()..=last.as_nanos()).contains(end)) {
            (self.start, self.end) = (Some(end), Some(last.as_nanos()));
        }
        forgotten
    }

    /// Whether it counts anything, either way.
    pub(crate) fn is_counted(&self) -> bool {
        let any = |side: &Side| side.packets | side.bytes | side.post_packets | side.post_bytes;
        self.sides.iter().any(|side| any(side) != 0)
    }

    /// Whether it reports an event, which need not count anything.
    pub(crate) fn has_event(&self) -> bool {
        self.nat_event.is_some() || self.firewall_event.is_some()
    }

    /// The flow. `exporter` and `domain` are those of the message, `first` and `last` its [`times`](Self::times);
    /// `sampling` is the interval of the counters, if it is known, by which they are multiplied if `scales`. `spare` is
    /// used for the fields that only collected flows have.
    #[inline]
    pub(crate) fn flow(
        &self,
        (first, last): (Timestamp, Timestamp),
        (exporter, domain): (IpAddr, u32),
        sampling: Option<u32>,
        scales: bool,
        spare: Option<Box<Collected>>,
    ) -> Flow {
        let factor = if scales { u64::from(sampling.unwrap_or(1)) } else { 1 };
        let is_v6 = self.addresses.iter().flatten().any(IpAddr::is_ipv6);
        let none = if is_v6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
        let (mut known, mut ports, end_reason) = (self.known, self.ports, copy::end_reason(self.end_reason));
        if let Some(icmp) = self.icmp.filter(|_| matches!(self.protocol, ICMP | ICMPV6)) {
            ports = [0, icmp];
            known.add(KnownField::Port, 0);
            known.add(KnownField::Port, 1);
        }
        if known.has(KnownField::Port, 1) {
            // Without an element of its own the type is in the destination's port.
            known.add(KnownField::IcmpTypeCode, 0);
        }
        if end_reason != EndReason::Unknown {
            known.add(KnownField::EndReason, 0);
        }
        let given = (0..2).filter(|side| self.addresses[*side].is_some());
        given.for_each(|side| known.add(KnownField::Address, side));
        let counts_nothing = !self.is_counted();
        let endpoint = |at: usize| {
            let side = &self.sides[at];
            let or = |count: u64, post: u64| if count == 0 { post } else { count }.saturating_mul(factor);
            let (packets, bytes) = (or(side.packets, side.post_packets), or(side.bytes, side.post_bytes));
            // An event without counters has its time at the first side.
            let has_sent = packets > 0 || bytes > 0 || counts_nothing && at == 0;
            Endpoint {
                address: self.addresses[at].map_or(none, |address| of_version(address, is_v6)),
                port: ports[at],
                packets,
                bytes,
                first: if has_sent { first } else { Timestamp::EPOCH },
                last: if has_sent { last } else { Timestamp::EPOCH },
                tcp_flags: side.tcp_flags,
                tcp_flags_first: side.tcp_flags_first,
                ttl_min: side.ttl_min,
                ttl_max: side.ttl_max,
                tos: side.tos,
            }
        };
        let context = FlowContext {
            mpls: self.mpls,
            tunnel: self.tunnel,
            interface: self.ingress,
            vlan: self.vlan,
            ..FlowContext::NONE
        };
        let collected = Collected {
            known,
            exporter: self.exporter.unwrap_or(exporter),
            domain,
            sampling: if scales { sampling.and(Some(1)) } else { sampling },
            egress: self.egress,
            direction: self.direction,
            prefix_lens: self.prefix_lens,
            autonomous_systems: self.autonomous_systems,
            next_hop: self.next_hop,
            post_addresses: self
                .post_addresses
                .map(|address| address.map(|address| of_version(address, is_v6))),
            post_ports: self.post_ports,
            nat_event: self.nat_event,
            firewall_event: self.firewall_event,
            is_beyond: false,
        };
        let collected = match spare {
            Some(mut spare) => {
                *spare = collected;
                spare
            }
            None => Box::new(collected),
        };
        Flow {
            endpoints: [endpoint(0), endpoint(1)],
            id: self.flow_id,
            protocol: self.protocol,
            end_reason,
            context,
            details: None,
            collected: Some(collected),
        }
    }

    /// Start and end. Missing times are computed from the others, at last from the message's time.
    #[inline]
    pub(crate) fn times(&self, time: MessageTime) -> (Timestamp, Timestamp) {
        let absolute = |at: usize| {
            let delta = self.deltas[at].map(|delta| time.export_ns.saturating_sub(i64::from(delta) * 1000));
            delta.or_else(|| self.of_uptime(self.uptimes[at]?, time))
        };
        let (mut start, mut end) = (self.start.or_else(|| absolute(0)), self.end.or_else(|| absolute(1)));
        let lasted =
            self.uptimes[0].zip(self.uptimes[1]).map(|(from, to)| i64::from(to.wrapping_sub(from)) * MS);
        let lasted = self.duration_ns.or(lasted).unwrap_or(0);
        if start.is_none() && end.is_none() {
            end = Some(time.export_ns);
        }
        start = start.or(end.map(|end| end.saturating_sub(lasted)));
        end = end.or(start.map(|start| start.saturating_add(lasted)));
        let (start, end) = (start.unwrap_or(time.export_ns), end.unwrap_or(time.export_ns));
        (Timestamp::from_nanos(start.min(end)), Timestamp::from_nanos(end))
    }

    /// The time of an uptime, which has wrapped if it is greater than the message's own.
    fn of_uptime(&self, uptime: u32, time: MessageTime) -> Option<i64> {
        if let Some((now, boot)) = time.uptime {
            let before = now.wrapping_sub(uptime);
            // A little ahead of the message is a fault of the exporter's, not a wrap.
            let ago =
                if before > u32::MAX - 600_000 { -i64::from(before.wrapping_neg()) } else { before.into() };
            return Some(boot.saturating_add((i64::from(now) - ago).saturating_mul(MS)));
        }
        Some(self.boot_ns?.saturating_add(i64::from(uptime) * MS))
    }
}

/// The address as one of IPv6, where the other one is.
#[inline]
fn of_version(address: IpAddr, is_v6: bool) -> IpAddr {
    match address {
        IpAddr::V4(address) if is_v6 => IpAddr::V6(address.to_ipv6_mapped()),
        address => address,
    }
}

/// A number of IEEE 754, of four octets or eight; 0 for other lengths.
fn float(bytes: &[u8]) -> f64 {
    match (<[u8; 4]>::try_from(bytes), <[u8; 8]>::try_from(bytes)) {
        (Ok(single), _) => f32::from_be_bytes(single).into(),
        (_, Ok(double)) => f64::from_be_bytes(double),
        _ => 0.0,
    }
}

/// Sets an address. Addresses of other lengths are ignored. One that is not 0 stays: records of dual-stack templates
/// have both.
fn set_address(address: &mut Option<IpAddr>, bytes: &[u8]) {
    let new = if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        IpAddr::from(v4)
    } else if let Ok(v6) = <[u8; 16]>::try_from(bytes) {
        IpAddr::from(v6)
    } else {
        return;
    };
    if address.is_none_or(|known| known.is_unspecified()) {
        *address = Some(new);
    }
}

fn set_icmp(icmp: &mut Option<u16>, kept: u16, value: u16) {
    let before = icmp.unwrap_or(0);
    // Some templates have the elements of both versions, one of them 0.
    if value != 0 || icmp.is_none() {
        *icmp = Some(before & kept | value);
    }
}

/// Nanoseconds since 1970 of an NTP time.
fn of_ntp(time: u64) -> i64 {
    let seconds = (time >> 32).wrapping_sub(FROM_1900) as u32;
    let nanos = ((time & 0xffff_ffff) * 1_000_000_000) >> 32;
    i64::from(seconds) * 1_000_000_000 + nanos as i64
}
