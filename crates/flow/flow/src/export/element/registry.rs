//! The elements that templates can have, and those that only records of other exporters have.
//!
//! ```text
//! number of IANA's, version 9's (the same up to 127), CERT's (6871) --Value::of_number--> Value | none: its octets are skipped
//! enterprise 29305: the same, of the reverse direction (RFC 5103)
//! ```

use super::{CERT, Detail, Element, Foreign, PlaceField, REVERSE, REVERSE_BIT, Registry, Value};
use crate::SIZES;

const fn element(name: &'static str, id: u16, len: u16, value: Value, is_directional: bool) -> Element {
    Element { name, id, len, registry: Registry::Iana, value, is_directional }
}

const fn detail(name: &'static str, id: u16, len: u16, value: Detail) -> Element {
    element(name, id, len, Value::Detail(value), false)
}

/// One of our own.
const fn own(name: &'static str, id: u16, len: u16, value: Detail) -> Element {
    Element { registry: Registry::Ours, ..detail(name, id, len, value) }
}

/// One of our own, of files of places.
const fn place(name: &'static str, id: u16, field: PlaceField) -> Element {
    Element { registry: Registry::Ours, ..element(name, id, TEXT, Value::Place(field), false) }
}

/// An element of one direction.
const fn each_way(element: Element) -> Element {
    Element { is_directional: true, ..element }
}

/// An entry of the label stack below the top one (RFC 7012).
const fn label(name: &'static str, id: u16) -> Element {
    each_way(detail(name, id, 3, Detail::Label((id - 69) as u8)))
}

const TEXT: u16 = Element::VARIABLE;

/// Every element that templates can have.
pub const ELEMENTS: &[Element] = &[
    element("octetDeltaCount", 1, 8, Value::Octets, true),
    element("packetDeltaCount", 2, 8, Value::Packets, true),
    element("protocolIdentifier", 4, 1, Value::Protocol, false),
    element("ipClassOfService", 5, 1, Value::ClassOfService, true),
    element("tcpControlBits", 6, 1, Value::TcpFlags, true),
    element("sourceTransportPort", 7, 2, Value::SourcePort, false),
    element("sourceIPv4Address", 8, 4, Value::SourceAddress, false),
    element("sourceIPv4PrefixLength", 9, 1, Value::SourcePrefix, false),
    element("ingressInterface", 10, 4, Value::Ingress, false),
    element("destinationTransportPort", 11, 2, Value::DestinationPort, false),
    element("destinationIPv4Address", 12, 4, Value::DestinationAddress, false),
    element("destinationIPv4PrefixLength", 13, 1, Value::DestinationPrefix, false),
    element("egressInterface", 14, 4, Value::Egress, false),
    element("ipNextHopIPv4Address", 15, 4, Value::NextHop, false),
    element("bgpSourceAsNumber", 16, 4, Value::SourceAs, false),
    element("bgpDestinationAsNumber", 17, 4, Value::DestinationAs, false),
    element("flowEndSysUpTime", 21, 4, Value::EndUptime, false),
    element("flowStartSysUpTime", 22, 4, Value::StartUptime, false),
    element("sourceIPv6Address", 27, 16, Value::SourceAddress, false),
    element("destinationIPv6Address", 28, 16, Value::DestinationAddress, false),
    element("sourceIPv6PrefixLength", 29, 1, Value::SourcePrefix, false),
    element("destinationIPv6PrefixLength", 30, 1, Value::DestinationPrefix, false),
    element("icmpTypeCodeIPv4", 32, 2, Value::IcmpTypeCode, false),
    element("samplingInterval", 34, 4, Value::SamplingInterval, false),
    element("samplingAlgorithm", 35, 1, Value::SamplingAlgorithm, false),
    element("flowSelectorAlgorithm", 390, 2, Value::FlowSelector, false),
    element("hashSelectedRangeMax", 332, 8, Value::GreatestHash, false),
    element("minimumTTL", 52, 1, Value::TtlMin, true),
    element("maximumTTL", 53, 1, Value::TtlMax, true),
    each_way(detail("sourceMacAddress", 56, 6, Detail::SourceMac)),
    element("vlanId", 58, 2, Value::Vlan, false),
    element("ipVersion", 60, 1, Value::IpVersion, false),
    element("flowDirection", 61, 1, Value::Direction, false),
    element("ipNextHopIPv6Address", 62, 16, Value::NextHop, false),
    element("mplsTopLabelStackSection", 70, 3, Value::MplsTop, false),
    label("mplsLabelStackSection2", 71),
    label("mplsLabelStackSection3", 72),
    label("mplsLabelStackSection4", 73),
    label("mplsLabelStackSection5", 74),
    label("mplsLabelStackSection6", 75),
    label("mplsLabelStackSection7", 76),
    label("mplsLabelStackSection8", 77),
    label("mplsLabelStackSection9", 78),
    label("mplsLabelStackSection10", 79),
    each_way(detail("destinationMacAddress", 80, 6, Detail::DestinationMac)),
    element("octetTotalCount", 85, 8, Value::Octets, true),
    element("packetTotalCount", 86, 8, Value::Packets, true),
    element("exporterIPv4Address", 130, 4, Value::ExporterV4, false),
    element("exporterIPv6Address", 131, 16, Value::ExporterV6, false),
    element("flowEndReason", 136, 1, Value::EndReason, false),
    element("icmpTypeCodeIPv6", 139, 2, Value::IcmpTypeCode, false),
    element("flowId", 148, 8, Value::FlowId, false),
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
    element("postNATSourceIPv4Address", 225, 4, Value::PostSourceAddress, false),
    element("postNATDestinationIPv4Address", 226, 4, Value::PostDestinationAddress, false),
    element("postNAPTSourceTransportPort", 227, 2, Value::PostSourcePort, false),
    element("postNAPTDestinationTransportPort", 228, 2, Value::PostDestinationPort, false),
    element("natEvent", 230, 1, Value::NatEvent, false),
    element("firewallEvent", 233, 1, Value::FirewallEvent, false),
    element("dot1qVlanId", 243, 2, Value::Vlan, false),
    each_way(detail("dot1qPriority", 244, 1, Detail::TagPriority(0))),
    each_way(detail("dot1qCustomerVlanId", 245, 2, Detail::TagVlan(1))),
    each_way(detail("dot1qCustomerPriority", 246, 1, Detail::TagPriority(1))),
    Element { registry: Registry::Cert, ..element("initialTCPFlags", 14, 1, Value::TcpFlagsFirst, true) },
    element("postNATSourceIPv6Address", 281, 16, Value::PostSourceAddress, false),
    element("postNATDestinationIPv6Address", 282, 16, Value::PostDestinationAddress, false),
    element("layer2SegmentId", 351, 8, Value::Tunnel, false),
    detail("applicationName", 96, TEXT, Detail::Application),
    each_way(detail("tcpWindowScale", 238, 2, Detail::WindowScale)),
    detail("httpStatusCode", 457, 2, Detail::HttpStatus),
    detail("httpRequestMethod", 459, TEXT, Detail::HttpMethod),
    detail("httpRequestHost", 460, TEXT, Detail::HttpHost),
    detail("httpRequestTarget", 461, TEXT, Detail::HttpTarget),
    detail("httpUserAgent", 468, TEXT, Detail::HttpUserAgent),
    own("tcpServerRttNanoseconds", 1, 8, Detail::ServerRtt),
    own("tcpClientRttNanoseconds", 2, 8, Detail::ClientRtt),
    each_way(own("tcpRetransmittedPackets", 3, 4, Detail::Retransmitted)),
    each_way(own("tcpRetransmittedOctets", 4, 8, Detail::RetransmittedOctets)),
    each_way(own("tcpOutOfOrderPackets", 5, 4, Detail::OutOfOrder)),
    each_way(own("tcpZeroWindowPackets", 6, 4, Detail::ZeroWindows)),
    each_way(own("tcpMaximumSegmentSize", 7, 2, Detail::SegmentSize)),
    each_way(own("tcpWindowMinimum", 8, 4, Detail::WindowMin)),
    each_way(own("tcpWindowMaximum", 9, 4, Detail::WindowMax)),
    own("tcpResponseNanoseconds", 11, 8, Detail::Response),
    Element { registry: Registry::Ours, ..element("bitsPerSecond", 10, 8, Value::Throughput, true) },
    each_way(own("packetsUpTo64Octets", 16, 4, Detail::Size(0))),
    each_way(own("packetsUpTo128Octets", 17, 4, Detail::Size(1))),
    each_way(own("packetsUpTo256Octets", 18, 4, Detail::Size(2))),
    each_way(own("packetsUpTo512Octets", 19, 4, Detail::Size(3))),
    each_way(own("packetsUpTo1024Octets", 20, 4, Detail::Size(4))),
    each_way(own("packetsUpTo1500Octets", 21, 4, Detail::Size(5))),
    each_way(own("packetsOver1500Octets", 22, 4, Detail::Size(6))),
    each_way(own("gapMinimumNanoseconds", 32, 8, Detail::GapMin)),
    each_way(own("gapMeanNanoseconds", 33, 8, Detail::GapMean)),
    each_way(own("gapMaximumNanoseconds", 34, 8, Detail::GapMax)),
    each_way(own("gapDeviationNanoseconds", 35, 8, Detail::GapDeviation)),
    own("dnsQueryName", 48, TEXT, Detail::DnsName),
    own("dnsQueryType", 49, 2, Detail::DnsType),
    own("dnsResponseCode", 50, 1, Detail::DnsCode),
    own("dnsAnswerCount", 51, 2, Detail::DnsAnswers),
    own("dnsResponseNanoseconds", 52, 8, Detail::DnsAfter),
    own("tlsServerName", 64, TEXT, Detail::TlsServerName),
    own("tlsVersion", 65, 2, Detail::TlsVersion),
    own("tlsCipherSuite", 66, 2, Detail::TlsCipher),
    own("tlsAlpn", 67, TEXT, Detail::TlsAlpn),
    own("tlsJa3", 68, TEXT, Detail::TlsJa3),
    own("tlsJa4", 69, TEXT, Detail::TlsJa4),
    each_way(own("initialPayload", 80, TEXT, Detail::Payload)),
    own("applicationFoundBy", 81, TEXT, Detail::ApplicationFoundBy),
    place("sourceCountry", 96, PlaceField::SourceCountry),
    place("destinationCountry", 97, PlaceField::DestinationCountry),
    place("sourceAsName", 98, PlaceField::SourceAsName),
    place("destinationAsName", 99, PlaceField::DestinationAsName),
    place("sourceNetworkName", 100, PlaceField::SourceName),
    place("destinationNetworkName", 101, PlaceField::DestinationName),
];

const _: () =
    assert!(SIZES[0] == 64 && SIZES[SIZES.len() - 1] == 1500, "the names of the elements tell the classes");

/// Numbers of IANA's registry and of Cisco's that are read otherwise than written, or read alone.
const READ: &[(u16, Value)] = &[
    // Cisco's firewalls have what the initiator sent as 231 and 298 (NSEL).
    (231, Value::Octets),
    (298, Value::Packets),
    (180, Value::SourcePort),
    (182, Value::SourcePort),
    (181, Value::DestinationPort),
    (183, Value::DestinationPort),
    (154, Value::StartNtp),
    (155, Value::EndNtp),
    (50, Value::SamplingInterval),
    // 40001 to 40005 are those of Cisco's firewalls before version 8.4.
    (40_001, Value::PostSourceAddress),
    (40_002, Value::PostDestinationAddress),
    (40_003, Value::PostSourcePort),
    (40_004, Value::PostDestinationPort),
    (40_005, Value::FirewallEvent),
    (23, Value::Foreign(Foreign::PostOctets)),
    (24, Value::Foreign(Foreign::PostPackets)),
    (85, Value::Foreign(Foreign::TotalOctets)),
    (86, Value::Foreign(Foreign::TotalPackets)),
    (252, Value::Foreign(Foreign::IngressPhysical)),
    (253, Value::Foreign(Foreign::EgressPhysical)),
    (192, Value::Foreign(Foreign::Ttl)),
    (158, Value::Foreign(Foreign::StartDelta)),
    (159, Value::Foreign(Foreign::EndDelta)),
    (322, Value::Foreign(Foreign::ObservedSeconds)),
    (323, Value::Foreign(Foreign::ObservedMilliseconds)),
    (162, Value::Foreign(Foreign::DurationMicroseconds)),
    (160, Value::Foreign(Foreign::BootMilliseconds)),
    (305, Value::Foreign(Foreign::SamplingPackets)),
    (306, Value::Foreign(Foreign::SamplingSpace)),
    (309, Value::Foreign(Foreign::SamplingSize)),
    (310, Value::Foreign(Foreign::SamplingPopulation)),
    (311, Value::Foreign(Foreign::SamplingProbability)),
    (304, Value::Foreign(Foreign::SelectorAlgorithm)),
    (48, Value::Foreign(Foreign::Sampler)),
    (302, Value::Foreign(Foreign::Sampler)),
    (144, Value::Foreign(Foreign::System)),
    (145, Value::Foreign(Foreign::Template)),
    (312, Value::Foreign(Foreign::FrameLen)),
    // Cisco's layer2packetSectionData.
    (104, Value::Foreign(Foreign::FrameSection)),
    (315, Value::Foreign(Foreign::FrameSection)),
    (313, Value::Foreign(Foreign::IpSection)),
];

impl Value {
    /// The value of an element in a record of another exporter, and whether it is of the reverse direction; `None` for
    /// elements that are skipped.
    pub fn of_number(enterprise: u32, id: u16) -> Option<(Value, bool)> {
        match enterprise {
            // What the responder sent, as Cisco's firewalls have it (NSEL).
            0 if id == 232 => Some((Value::Octets, true)),
            0 if id == 299 => Some((Value::Packets, true)),
            0 => Some((Value::of_iana(id)?, false)),
            REVERSE => Some((Value::of_iana(id)?, true)),
            CERT => match id & !REVERSE_BIT {
                14 => Some((Value::TcpFlagsFirst, id & REVERSE_BIT != 0)),
                15 => Some((Value::TcpFlags, id & REVERSE_BIT != 0)),
                _ => None,
            },
            _ => None,
        }
    }

    fn of_iana(id: u16) -> Option<Value> {
        let read = READ.iter().find(|(number, _)| *number == id).map(|(_, value)| *value);
        let written = || {
            let mut of_iana = ELEMENTS.iter().filter(|element| element.registry == Registry::Iana);
            of_iana.find(|element| element.id == id).map(|element| element.value)
        };
        read.or_else(written).filter(|value| !value.is_skipped())
    }

    /// Whether readers skip the value: it follows from others, or flows of other exporters have no room for it.
    fn is_skipped(self) -> bool {
        matches!(
            self,
            Value::IpVersion
                | Value::SamplingAlgorithm
                | Value::FlowSelector
                | Value::GreatestHash
                | Value::Detail(_)
        )
    }
}
