//! A plan for the records of a template: the place of each field, found once when the template comes.
//!
//! ```text
//! template  field, length, field, length ...     --Plan::of, once--> numbers: (at, shift)     none: field by field
//! record    octets | octets of the next ones     --eight octets from `at` as a number, >> shift--> field of the draft
//! ```
//!
//! A plan overwrites the same fields of a draft with each record, so one draft serves all records of a set. Templates
//! whose fields depend on each other, or vary in length, have no plan: [`Draft::set`] reads them field by field. Both
//! give the same flows.

use std::net::IpAddr;

use tapline_flow::export::{Foreign, Value};
use tapline_flow::{FlowContext, KnownField, KnownFields};

use super::{Draft, ICMP, ICMPV6, MS};

/// Octets that a plan may look at from the beginning of a record: fields begin in the first 256.
pub(crate) const WINDOW: usize = 256 + 16;

/// A number of a record. One without octets is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    at: u8,
    /// Bits of the eight octets from `at` that are not its own; 64 without octets.
    shift: u8,
}

impl Default for Number {
    fn default() -> Number {
        Number { at: 0, shift: 64 }
    }
}

impl Number {
    #[inline(always)]
    pub(super) fn read(self, record: &[u8; WINDOW]) -> u64 {
        let at = usize::from(self.at);
        let octets = record[at..at + 8].first_chunk().copied().unwrap_or_default();
        u64::from_be_bytes(octets).checked_shr(self.shift.into()).unwrap_or(0)
    }

    pub(super) fn is_given(self) -> bool {
        self.shift < 64
    }
}

/// An address of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) at: u8,
    pub(super) is_v6: bool,
}

impl Address {
    /// The octets of an address of IPv4 as a number.
    pub(super) fn number(self) -> Number {
        Number { at: self.at, shift: 32 }
    }

    #[inline(always)]
    pub(super) fn read(self, record: &[u8; WINDOW]) -> IpAddr {
        let at = usize::from(self.at);
        match self.is_v6 {
            true => IpAddr::from(record[at..at + 16].first_chunk().copied().unwrap_or([0; 16])),
            false => IpAddr::from(record[at..at + 4].first_chunk().copied().unwrap_or([0; 4])),
        }
    }
}

/// The unit of the times of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clock {
    Uptime,
    Milliseconds,
    Seconds,
}

/// The places of the fields of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The fields that each record gives.
    known: KnownFields,
    pub(super) addresses: [Option<Address>; 2],
    next_hop: Option<Address>,
    pub(super) exporter: Option<Address>,
    clock: Option<Clock>,
    /// Start and end.
    times: [Number; 2],
    pub(super) octets: Number,
    pub(super) packets: Number,
    ports: [Number; 2],
    protocol: Number,
    tcp_flags: Number,
    tos: Number,
    ttls: [Number; 2],
    icmp: Number,
    ingress: Number,
    egress: Number,
    pub(super) vlan: Number,
    direction: Number,
    pub(super) end_reason: Number,
    autonomous_systems: [Number; 2],
    prefix_lens: [Number; 2],
    sampling: Number,
    sampler: Number,
}

/// A field of a template of fixed length.
#[derive(Clone, Copy)]
pub(crate) struct PlacedField {
    pub(crate) field: Value,
    pub(crate) is_reverse: bool,
    pub(crate) at: usize,
    pub(crate) len: usize,
}

impl Plan {
    /// The plan for records of these fields; `None` if they must be read one after the other.
    pub(crate) fn of(fields: &[PlacedField]) -> Option<Plan> {
        let mut plan = Plan::default();
        for (count, field) in fields.iter().enumerate() {
            // Of two elements with one meaning the last counts, or the one that is not 0.
            if fields[..count].iter().any(|before| before.field == field.field) {
                return None;
            }
            plan.add(*field)?;
        }
        // A lone time is completed by others.
        let has_times = plan.clock.is_none() || plan.times.iter().all(|time| time.is_given());
        has_times.then_some(plan)
    }

    /// Adds a field; `None` if no plan may have it.
    fn add(&mut self, PlacedField { field, is_reverse, at, len }: PlacedField) -> Option<()> {
        let at = u8::try_from(at).ok().filter(|_| !is_reverse)?;
        if let Some(address) = self.address(field) {
            // Both elements of an exporter's address.
            if address.is_some() {
                return None;
            }
            *address = match len {
                4 => Some(Address { at, is_v6: false }),
                16 => Some(Address { at, is_v6: true }),
                _ => return None,
            };
            return Some(());
        }
        let clock = match field {
            Value::StartUptime | Value::EndUptime => Some(Clock::Uptime),
            Value::StartMilliseconds | Value::EndMilliseconds => Some(Clock::Milliseconds),
            Value::StartSeconds | Value::EndSeconds => Some(Clock::Seconds),
            _ => None,
        };
        if clock.is_some() && self.clock.is_some_and(|known| Some(known) != clock) {
            return None;
        }
        self.clock = self.clock.or(clock);
        let (number, known) = self.number(field)?;
        let bits = u8::try_from(len).ok().filter(|len| (1..=8).contains(len))? * 8;
        *number = Number { at, shift: 64 - bits };
        if let Some((known, side)) = known {
            self.known.add(known, side);
        }
        Some(())
    }

    pub(super) fn address(&mut self, field: Value) -> Option<&mut Option<Address>> {
        Some(match field {
            Value::SourceAddress => &mut self.addresses[0],
            Value::DestinationAddress => &mut self.addresses[1],
            Value::NextHop => &mut self.next_hop,
            Value::ExporterV4 | Value::ExporterV6 => &mut self.exporter,
            _ => return None,
        })
    }

    /// The number of a field, and the field of the flow that is known with it.
    pub(super) fn number(&mut self, field: Value) -> Option<(&mut Number, Option<(KnownField, usize)>)> {
        Some(match field {
            Value::StartUptime | Value::StartMilliseconds | Value::StartSeconds => (&mut self.times[0], None),
            Value::EndUptime | Value::EndMilliseconds | Value::EndSeconds => (&mut self.times[1], None),
            Value::Octets => (&mut self.octets, Some((KnownField::Bytes, 0))),
            Value::Packets => (&mut self.packets, Some((KnownField::Packets, 0))),
            Value::SourcePort => (&mut self.ports[0], Some((KnownField::Port, 0))),
            Value::DestinationPort => (&mut self.ports[1], Some((KnownField::Port, 1))),
            Value::Protocol => (&mut self.protocol, Some((KnownField::Protocol, 0))),
            Value::TcpFlags => (&mut self.tcp_flags, Some((KnownField::TcpFlags, 0))),
            Value::ClassOfService => (&mut self.tos, Some((KnownField::Tos, 0))),
            Value::TtlMin => (&mut self.ttls[0], Some((KnownField::TtlMin, 0))),
            Value::TtlMax => (&mut self.ttls[1], Some((KnownField::TtlMax, 0))),
            Value::IcmpTypeCode => (&mut self.icmp, None),
            Value::Ingress => (&mut self.ingress, Some((KnownField::Ingress, 0))),
            Value::Egress => (&mut self.egress, Some((KnownField::Egress, 0))),
            Value::Vlan => (&mut self.vlan, Some((KnownField::Vlan, 0))),
            Value::Direction => (&mut self.direction, Some((KnownField::Direction, 0))),
            Value::EndReason => (&mut self.end_reason, None),
            Value::SourceAs => (&mut self.autonomous_systems[0], None),
            Value::DestinationAs => (&mut self.autonomous_systems[1], None),
            Value::SourcePrefix => (&mut self.prefix_lens[0], None),
            Value::DestinationPrefix => (&mut self.prefix_lens[1], None),
            Value::SamplingInterval => (&mut self.sampling, None),
            Value::Foreign(Foreign::Sampler) => (&mut self.sampler, None),
            _ => return None,
        })
    }

    /// Whether the record is of ICMP, whose type and code depend on each other and on the ports.
    #[inline(always)]
    pub(crate) fn is_icmp(&self, record: &[u8; WINDOW]) -> bool {
        matches!(self.protocol.read(record) as u8, ICMP | ICMPV6)
    }

    /// Overwrites the times of a draft with those of a record, as [`read`](Self::read) does.
    #[inline(always)]
    pub(crate) fn read_times(&self, record: &[u8; WINDOW], draft: &mut Draft) {
        let [start, end] = self.times.map(|time| time.read(record));
        let absolute = |time: u64, unit: i64| Some((time as i64).saturating_mul(unit));
        match self.clock {
            Some(Clock::Uptime) => draft.uptimes = [Some(start as u32), Some(end as u32)],
            Some(Clock::Milliseconds) => (draft.start, draft.end) = (absolute(start, MS), absolute(end, MS)),
            Some(Clock::Seconds) => {
                (draft.start, draft.end) = (absolute(start, 1000 * MS), absolute(end, 1000 * MS));
            }
            None => {}
        }
    }

    /// Overwrites the fields of a draft that decide on the sampling interval of a record.
    #[inline(always)]
    pub(crate) fn read_sampling(&self, record: &[u8; WINDOW], draft: &mut Draft) {
        draft.ingress = self.ingress.read(record) as u32;
        draft.sampled.interval = self.sampling.read(record) as u32;
        draft.sampled.sampler = self.sampler.is_given().then(|| self.sampler.read(record));
    }

    /// Overwrites the fields of a draft, which no other plan has written to, with those of a record. Octets of the window
    /// behind the record do not matter.
    #[inline(always)]
    pub(crate) fn read(&self, record: &[u8; WINDOW], draft: &mut Draft) {
        draft.known = self.known;
        draft.addresses = self.addresses.map(|address| address.map(|address| address.read(record)));
        self.read_times(record, draft);
        self.read_sampling(record, draft);
        let side = &mut draft.sides[0];
        (side.bytes, side.packets) = (self.octets.read(record), self.packets.read(record));
        (side.tcp_flags, side.tos) = (self.tcp_flags.read(record) as u8, self.tos.read(record) as u8);
        [side.ttl_min, side.ttl_max] = self.ttls.map(|ttl| ttl.read(record) as u8);
        draft.ports = self.ports.map(|port| port.read(record) as u16);
        draft.protocol = self.protocol.read(record) as u8;
        draft.icmp = self.icmp.is_given().then(|| self.icmp.read(record) as u16);
        draft.egress = self.egress.read(record) as u32;
        draft.vlan = match self.vlan.read(record) {
            0 => FlowContext::NO_VLAN,
            vlan => vlan as u16 & 0x0fff,
        };
        draft.direction = self.direction.read(record) as u8;
        draft.end_reason = self.end_reason.read(record) as u8;
        draft.autonomous_systems = self.autonomous_systems.map(|number| number.read(record) as u32);
        draft.prefix_lens = self.prefix_lens.map(|len| len.read(record) as u8);
        let given = |address: Option<Address>| {
            let address = address.map(|address| address.read(record));
            address.filter(|address| !address.is_unspecified())
        };
        (draft.next_hop, draft.exporter) = (given(self.next_hop), given(self.exporter));
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tapline_flow::Flow;

    use super::*;
    use crate::draft::MessageTime;
    use crate::template::{Form, RawField, Template};
    use tapline_dissect::ByteReader;

    const NOW_NS: i64 = 1_700_000_000_000_000_000;

    /// Numbers without a pattern, the same in every run.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, bound: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % bound
        }

        fn octets(&mut self, len: usize) -> Vec<u8> {
            // Many fields are 0, or have few bits.
            let kind = self.below(3);
            (0..len)
                .map(|_| if kind == 0 { 0 } else { self.below(256) as u8 & self.below(256) as u8 })
                .collect()
        }
    }

    fn template(fields: &[(u32, u16, u16)]) -> Template {
        let raw = fields.iter().map(|&(enterprise, id, len)| RawField { enterprise, id, len });
        Template::new(raw.collect(), 0, Form::Ipfix).expect("records have octets")
    }

    fn flow(draft: &Draft, time: MessageTime) -> (Flow, bool, Option<u32>) {
        let exporter = (IpAddr::V4(Ipv4Addr::LOCALHOST), 7);
        let flow = draft.flow(draft.times(time), exporter, draft.sampled.told(), false, None);
        (flow, draft.is_counted(), draft.sampled.sampler.map(|sampler| sampler as u32))
    }

    /// The flows of records, each with a draft of its own that is filled field by field.
    fn by_fields(template: &Template, records: &[u8], time: MessageTime) -> Vec<(Flow, bool, Option<u32>)> {
        let mut bytes = ByteReader(records);
        let mut flows = Vec::new();
        while bytes.0.len() >= template.record_len {
            let mut draft = Draft::new();
            draft.boot_ns = Some(5);
            let read =
                template.record(&mut bytes, |field, is_reverse, value| draft.set(field, is_reverse, value));
            read.expect("the record is whole");
            flows.push(flow(&draft, time));
        }
        flows
    }

    fn by_plan(plan: &Plan, len: usize, records: &[u8], time: MessageTime) -> Vec<(Flow, bool, Option<u32>)> {
        let mut draft = Draft::new();
        draft.boot_ns = Some(5);
        // What comes behind a record does not matter.
        let padded = [records, &[0xa5; WINDOW]].concat();
        let record = |at: usize| {
            plan.read(padded[at..].first_chunk().expect("it is padded"), &mut draft);
            flow(&draft, time)
        };
        (0..records.len()).step_by(len).map(record).collect()
    }

    /// Elements that flows have, of both directions and of CERT, and unknown ones.
    fn any_field(numbers: &mut Numbers) -> (u32, u16, u16) {
        const COMMON: [u16; 40] = [
            1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 21, 22, 27, 28, 29, 30, 32, 34, 48, 52,
            53, 58, 61, 62, 130, 136, 139, 150, 151, 152, 153, 210, 225, 361,
        ];
        let id = match numbers.below(16) {
            0 => numbers.below(500) as u16,
            _ => COMMON[numbers.below(COMMON.len())],
        };
        let enterprise = if numbers.below(60) == 0 { [29305, 6871, 9][numbers.below(3)] } else { 0 };
        let of_type = match id {
            8 | 12 | 15 | 130 => 4,
            27 | 28 | 62 => 16,
            _ => 1 + numbers.below(8) as u16,
        };
        let len = if numbers.below(40) == 0 { numbers.below(20) as u16 } else { of_type };
        (enterprise, id, len)
    }

    #[test]
    fn plans_and_fields_give_the_same_flows() {
        let mut numbers = Numbers(1);
        let times = [
            MessageTime { export_ns: NOW_NS, uptime: Some((90_000, NOW_NS - 90_000 * MS)) },
            MessageTime { export_ns: NOW_NS, uptime: None },
        ];
        let mut planned = 0;
        for _ in 0..20_000 {
            let mut fields: Vec<_> = (0..1 + numbers.below(12)).map(|_| any_field(&mut numbers)).collect();
            fields.push((0, 2, 4));
            let template = template(&fields);
            let Some(plan) = &template.plan else { continue };
            planned += 1;
            let records = numbers.octets(3 * template.record_len);
            for time in times {
                let expected = by_fields(&template, &records, time);
                assert_eq!(by_plan(plan, template.record_len, &records, time), expected, "{fields:?}");
            }
        }
        assert!(planned > 2000, "{planned}");
    }

    #[test]
    fn common_templates_have_a_plan() {
        // Addresses, next hop, interfaces, counters, uptimes, ports, an unknown field, flags, protocol, class, systems, masks.
        let router = [8, 12, 15, 10, 14, 2, 1, 22, 21, 7, 11, 210, 6, 4, 5, 16, 17, 9, 13];
        let of_router: Vec<_> =
            router.iter().map(|id| (0, *id, if [7, 11].contains(id) { 2 } else { 4 })).collect();
        assert!(template(&of_router).plan.is_some());
        let v6 = [
            (0, 27, 16),
            (0, 28, 16),
            (0, 62, 16),
            (0, 152, 8),
            (0, 153, 8),
            (0, 1, 8),
            (0, 2, 8),
            (0, 139, 2),
        ];
        assert!(template(&v6).plan.is_some());
    }

    #[test]
    fn what_depends_on_order_has_no_plan() {
        let with = |field| template(&[(0, 8, 4), (0, 12, 4), (0, 1, 4), (0, 2, 4), field]);
        let fields = [
            ("a reverse counter", (29305, 1, 4)),
            ("an element of CERT", (6871, 14, 1)),
            ("a second counter of octets", (0, 231, 4)),
            ("a total", (0, 85, 4)),
            ("a lone start", (0, 152, 8)),
            ("an address of another version", (0, 27, 16)),
            ("a number of nine octets", (0, 10, 9)),
            ("a physical interface", (0, 252, 4)),
            ("a frame", (0, 315, 64)),
            ("a text", (0, 96, u16::MAX)),
        ];
        assert!(with((0, 96, 12)).plan.is_some(), "an unknown one");
        for (what, field) in fields {
            assert!(with(field).plan.is_none(), "{what}");
        }
        assert!(template(&[(0, 1, 2), (0, 2, 2)]).plan.is_none(), "too short for a flow");
        assert!(template(&[(0, 210, 250), (0, 1, 4), (0, 2, 4)]).plan.is_some());
        assert!(
            template(&[(0, 210, 256), (0, 1, 4), (0, 2, 4)]).plan.is_none(),
            "too far from the beginning"
        );
        let options = Template::new(template(&[(0, 149, 4), (0, 34, 4)]).raw, 1, Form::Ipfix);
        assert!(options.is_some_and(|options| options.plan.is_none()));
    }
}
