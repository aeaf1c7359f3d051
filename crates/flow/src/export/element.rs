//! Information elements: what stands in a field of a record, by the names and numbers of IANA's registry (IPFIX Information Elements; RFC 7012).

use std::net::IpAddr;

use tapline_packet::Timestamp;

use crate::{Context, Error, Flow, Side};

/// An information element that can be filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// Its name in the registry.
    pub name: &'static str,
    /// Its number.
    pub id: u16,
    /// Octets that it takes here.
    pub len: u16,
    /// What stands in it.
    pub(crate) value: Value,
    /// Whether it says something of one direction, so that a biflow has it twice (RFC 5103, 6).
    pub(crate) is_directional: bool,
}

/// What stands in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Octets,
    Packets,
    Protocol,
    ClassOfService,
    TcpFlags,
    TcpFlagsFirst,
    SourcePort,
    DestinationPort,
    SourceAddress,
    DestinationAddress,
    Ingress,
    Egress,
    EndUptime,
    StartUptime,
    IcmpTypeCode,
    IcmpType,
    IcmpCode,
    TtlMin,
    TtlMax,
    Vlan,
    IpVersion,
    Direction,
    MplsTop,
    EndReason,
    StartSeconds,
    EndSeconds,
    StartMilliseconds,
    EndMilliseconds,
    StartNtp,
    EndNtp,
    DurationMilliseconds,
    ObservationDomain,
    Tunnel,
    SamplingInterval,
    SamplingAlgorithm,
}

/// A value, before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Datum {
    Number(u64),
    Address(IpAddr),
    Time(Timestamp),
}

/// For which version of IP an element is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    V4,
    V6,
}

const fn element(name: &'static str, id: u16, len: u16, value: Value, is_directional: bool) -> Element {
    Element { name, id, len, value, is_directional }
}

/// Every element that templates can have.
pub const ELEMENTS: &[Element] = &[
    element("octetDeltaCount", 1, 8, Value::Octets, true),
    element("packetDeltaCount", 2, 8, Value::Packets, true),
    element("protocolIdentifier", 4, 1, Value::Protocol, false),
    element("ipClassOfService", 5, 1, Value::ClassOfService, true),
    element("tcpControlBits", 6, 1, Value::TcpFlags, true),
    element("sourceTransportPort", 7, 2, Value::SourcePort, false),
    element("sourceIPv4Address", 8, 4, Value::SourceAddress, false),
    element("ingressInterface", 10, 4, Value::Ingress, false),
    element("destinationTransportPort", 11, 2, Value::DestinationPort, false),
    element("destinationIPv4Address", 12, 4, Value::DestinationAddress, false),
    element("egressInterface", 14, 4, Value::Egress, false),
    element("flowEndSysUpTime", 21, 4, Value::EndUptime, false),
    element("flowStartSysUpTime", 22, 4, Value::StartUptime, false),
    element("sourceIPv6Address", 27, 16, Value::SourceAddress, false),
    element("destinationIPv6Address", 28, 16, Value::DestinationAddress, false),
    element("icmpTypeCodeIPv4", 32, 2, Value::IcmpTypeCode, false),
    element("samplingInterval", 34, 4, Value::SamplingInterval, false),
    element("samplingAlgorithm", 35, 1, Value::SamplingAlgorithm, false),
    element("minimumTTL", 52, 1, Value::TtlMin, true),
    element("maximumTTL", 53, 1, Value::TtlMax, true),
    element("vlanId", 58, 2, Value::Vlan, false),
    element("ipVersion", 60, 1, Value::IpVersion, false),
    element("flowDirection", 61, 1, Value::Direction, false),
    element("mplsTopLabelStackSection", 70, 3, Value::MplsTop, false),
    element("octetTotalCount", 85, 8, Value::Octets, true),
    element("packetTotalCount", 86, 8, Value::Packets, true),
    element("flowEndReason", 136, 1, Value::EndReason, false),
    element("icmpTypeCodeIPv6", 139, 2, Value::IcmpTypeCode, false),
    element("observationDomainId", 149, 4, Value::ObservationDomain, false),
    element("flowStartSeconds", 150, 4, Value::StartSeconds, false),
    element("flowEndSeconds", 151, 4, Value::EndSeconds, false),
    element("flowStartMilliseconds", 152, 8, Value::StartMilliseconds, false),
    element("flowEndMilliseconds", 153, 8, Value::EndMilliseconds, false),
    element("flowStartNanoseconds", 156, 8, Value::StartNtp, false),
    element("flowEndNanoseconds", 157, 8, Value::EndNtp, false),
    element("flowDurationMilliseconds", 161, 4, Value::DurationMilliseconds, false),
    element("icmpTypeIPv4", 176, 1, Value::IcmpType, false),
    element("icmpCodeIPv4", 177, 1, Value::IcmpCode, false),
    element("icmpTypeIPv6", 178, 1, Value::IcmpType, false),
    element("icmpCodeIPv6", 179, 1, Value::IcmpCode, false),
    element("dot1qVlanId", 243, 2, Value::Vlan, false),
    element("initialTCPFlags", 14, 1, Value::TcpFlagsFirst, true),
    element("layer2SegmentId", 351, 8, Value::Tunnel, false),
];

/// Elements of other enterprises, by their numbers: CERT's, which YAF made.
const CERT: u32 = 6871;

impl Element {
    /// The element of a name.
    ///
    /// # Errors
    /// [`Error::Element`] if there is none.
    pub fn of_name(name: &str) -> Result<Element, Error> {
        let found = ELEMENTS.iter().find(|element| element.name.eq_ignore_ascii_case(name));
        found.copied().ok_or_else(|| {
            let lower = name.to_ascii_lowercase();
            let near = |element: &&Element| {
                let known = element.name.to_ascii_lowercase();
                known.contains(&lower) || lower.contains(&known)
            };
            let hint = match ELEMENTS.iter().find(near) {
                Some(near) => format!("did you mean {}?", near.name),
                None => "docs/flows.md lists those that can".to_owned(),
            };
            Error::Element { word: name.to_owned(), hint }
        })
    }

    /// The enterprise whose number it bears; `None` for IANA's.
    pub fn enterprise(&self) -> Option<u32> {
        (self.value == Value::TcpFlagsFirst).then_some(CERT)
    }

    /// Whether its text is a number (RFC 7373).
    pub(crate) fn is_number(&self) -> bool {
        !self.is_octets() && self.time_digits().is_none() && !self.is_address()
    }

    /// Whether its type is octetArray.
    pub(crate) fn is_octets(&self) -> bool {
        self.value == Value::MplsTop
    }

    pub(crate) fn is_address(&self) -> bool {
        matches!(self.value, Value::SourceAddress | Value::DestinationAddress)
    }

    /// Digits of the second, of a time.
    pub(crate) fn time_digits(&self) -> Option<usize> {
        match self.value {
            Value::StartSeconds | Value::EndSeconds => Some(0),
            Value::StartMilliseconds | Value::EndMilliseconds => Some(3),
            Value::StartNtp | Value::EndNtp => Some(9),
            _ => None,
        }
    }

    /// The same for the other version of IP, where each has its own.
    pub(crate) fn for_version(self, version: For) -> Element {
        const PAIRS: [(u16, u16); 5] = [(8, 27), (12, 28), (32, 139), (176, 178), (177, 179)];
        let pair = PAIRS.iter().find(|(v4, v6)| self.enterprise().is_none() && [*v4, *v6].contains(&self.id));
        let Some((v4, v6)) = pair else { return self };
        let id = if version == For::V4 { *v4 } else { *v6 };
        ELEMENTS
            .iter()
            .find(|element| element.id == id && element.enterprise().is_none())
            .copied()
            .unwrap_or(self)
    }
}

/// One direction of a flow: which side sent, of which the times are told, and the times of both where the record is of both.
#[derive(Clone, Copy)]
pub(crate) struct View<'f> {
    pub(crate) flow: &'f Flow,
    /// Which side of the flow sent.
    pub(crate) from: usize,
    /// What the record's times are.
    pub(crate) first: Timestamp,
    pub(crate) last: Timestamp,
    /// The time at which the exporter's uptime is 0.
    pub(crate) boot_ms: i64,
    pub(crate) domain: u32,
    pub(crate) sampling: u32,
}

impl View<'_> {
    fn source(&self) -> &Side {
        &self.flow.sides[self.from]
    }

    fn destination(&self) -> &Side {
        &self.flow.sides[1 - self.from]
    }

    /// What a value is.
    #[inline(always)]
    pub(crate) fn datum(&self, value: Value, is_reverse: bool) -> Datum {
        let (flow, context) = (self.flow, &self.flow.context);
        let side = if is_reverse { self.destination() } else { self.source() };
        let is_icmp = matches!(flow.protocol, 1 | 58);
        let icmp = if is_icmp { self.destination().port } else { 0 };
        Datum::Number(match value {
            Value::Octets => side.bytes,
            Value::Packets => side.packets,
            Value::Protocol => flow.protocol.into(),
            Value::ClassOfService => side.tos.into(),
            Value::TcpFlags => side.tcp_flags.into(),
            Value::TcpFlagsFirst => side.tcp_flags_first.into(),
            Value::SourcePort => self.source().port.into(),
            Value::DestinationPort => self.destination().port.into(),
            Value::SourceAddress => return Datum::Address(self.source().address),
            Value::DestinationAddress => return Datum::Address(self.destination().address),
            Value::Ingress => context.interface.into(),
            // What comes by is seen where it comes in, and nobody knows where it goes.
            Value::Egress | Value::Direction => 0,
            Value::EndUptime => millis(self.last).wrapping_sub(self.boot_ms) as u64,
            Value::StartUptime => millis(self.first).wrapping_sub(self.boot_ms) as u64,
            Value::IcmpTypeCode => icmp.into(),
            Value::IcmpType => (icmp >> 8).into(),
            Value::IcmpCode => (icmp & 0xff).into(),
            Value::TtlMin => side.ttl_min.into(),
            Value::TtlMax => side.ttl_max.into(),
            Value::Vlan => {
                if context.vlan == Context::NO_VLAN {
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
            Value::MplsTop => {
                if context.mpls == Context::NO_LABEL {
                    0
                } else {
                    u64::from(context.mpls) << 4
                }
            }
            Value::EndReason => flow.end as u64,
            Value::StartSeconds | Value::StartMilliseconds | Value::StartNtp => {
                return Datum::Time(self.first);
            }
            Value::EndSeconds | Value::EndMilliseconds | Value::EndNtp => return Datum::Time(self.last),
            Value::DurationMilliseconds => (millis(self.last) - millis(self.first)).max(0) as u64,
            Value::ObservationDomain => self.domain.into(),
            Value::Tunnel => context.tunnel.into(),
            Value::SamplingInterval => self.sampling.into(),
            Value::SamplingAlgorithm => 2,
        })
    }

    /// Writes a value in so many octets, the low ones of a number.
    #[inline]
    pub(crate) fn write(&self, value: Value, len: u16, is_reverse: bool, out: &mut Vec<u8>) {
        let number = match self.datum(value, is_reverse) {
            Datum::Number(number) => number,
            Datum::Address(of) => return address(of, out),
            Datum::Time(time) => match value {
                Value::StartSeconds | Value::EndSeconds => time.seconds() as u64,
                Value::StartMilliseconds | Value::EndMilliseconds => millis(time) as u64,
                _ => ntp(time),
            },
        };
        let bytes = number.to_be_bytes();
        match len {
            1 => out.push(bytes[7]),
            2 => out.extend_from_slice(&bytes[6..]),
            4 => out.extend_from_slice(&bytes[4..]),
            8 => out.extend_from_slice(&bytes),
            len => out.extend_from_slice(&bytes[8 - usize::from(len.min(8))..]),
        }
    }
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

/// Seconds since 1900 and a fraction of 32 bits (RFC 7011, 6.1.10). Rounded up, so that a reader who rounds down has the nanosecond.
fn ntp(time: Timestamp) -> u64 {
    const FROM_1900: i64 = 2_208_988_800;
    let seconds = time.seconds().wrapping_add(FROM_1900) as u32;
    let fraction = (u64::from(time.subsec_nanos()) << 32).div_ceil(1_000_000_000);
    u64::from(seconds) << 32 | fraction.min(u32::MAX.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_unique() {
        for (at, element) in ELEMENTS.iter().enumerate() {
            let same = |other: &Element| {
                other.name == element.name
                    || (other.id, other.enterprise()) == (element.id, element.enterprise())
            };
            assert!(!ELEMENTS[..at].iter().any(same), "{}", element.name);
        }
        assert_eq!(Element::of_name("octetdeltacount").unwrap().id, 1);
        let error = Element::of_name("octetDelta").unwrap_err().to_string();
        assert!(error.contains("did you mean octetDeltaCount?"), "{error}");
    }

    #[test]
    fn each_version_of_ip_has_its_own() {
        let v6 = |name: &str| Element::of_name(name).unwrap().for_version(For::V6).id;
        assert_eq!(
            ["sourceIPv4Address", "icmpTypeCodeIPv4", "vlanId", "initialTCPFlags"].map(v6),
            [27, 139, 58, 14]
        );
        assert_eq!(Element::of_name("destinationIPv6Address").unwrap().for_version(For::V4).id, 12);
    }

    #[test]
    fn fractions_give_the_nanosecond_back() {
        for nanos in [0, 1, 2, 999_999_999, 500_000_000, 123_456_789] {
            let fraction = ntp(Timestamp::from_nanos(nanos)) & 0xffff_ffff;
            assert_eq!((fraction * 1_000_000_000) >> 32, nanos as u64);
        }
        assert_eq!(ntp(Timestamp::EPOCH) >> 32, 2_208_988_800);
    }
}
