//! The reference page of elements: a row for each, from the registry.

use std::fmt::Write as _;

use super::{Detail, ELEMENTS, Element, PlaceField, Value};
use crate::DetailFields;

impl Element {
    /// The rows of all elements as a table in Markdown, by name.
    pub fn reference() -> String {
        let mut elements: Vec<&Element> = ELEMENTS.iter().collect();
        elements.sort_by_key(|element| element.name.to_ascii_lowercase());
        let mut table = String::from(
            "| element | number | type | octets | filled | content |\n|---|---|---|---|---|---|\n",
        );
        elements.into_iter().for_each(|element| element.add_row(&mut table));
        table
    }

    fn add_row(&self, table: &mut String) {
        let number = match self.enterprise(0) {
            None => self.id.to_string(),
            Some(0) => format!("{} *", self.id),
            Some(enterprise) => format!("{enterprise}/{}", self.id),
        };
        let octets = if self.is_variable() { "varies".to_owned() } else { self.len.to_string() };
        let each = if self.is_directional { ", each direction" } else { "" };
        let _ = writeln!(
            table,
            "| `{}` | {number} | {}{each} | {octets} | {} | {} |",
            self.name,
            self.type_name(),
            self.condition(),
            self.content()
        );
    }

    /// The abstract data type of the value (RFC 7012, 3.1).
    fn type_name(&self) -> &'static str {
        match (self.time_digits(), self.len) {
            (Some(0), _) => "dateTimeSeconds",
            (Some(3), _) => "dateTimeMilliseconds",
            (Some(_), _) => "dateTimeNanoseconds",
            _ if self.is_octets() => "octetArray",
            _ if self.is_text() => "string",
            _ if self.is_mac() => "macAddress",
            (_, 16) => "ipv6Address",
            _ if self.is_address() => "ipv4Address",
            (_, 1) => "unsigned8",
            (_, 2) => "unsigned16",
            (_, 4) => "unsigned32",
            _ => "unsigned64",
        }
    }

    /// When a record has the value.
    fn condition(&self) -> String {
        let needs = self.needs();
        if needs != DetailFields::NONE {
            return format!("`--details {}`", needs.words());
        }
        match self.value {
            Value::Place(_) => "`--enrich`",
            Value::SourceAs | Value::DestinationAs => "`--enrich`; collected",
            Value::ExporterV4 | Value::ExporterV6 => "`--exporter`; collected",
            Value::GreatestHash | Value::FlowSelector => "`--sample-flows`",
            Value::SamplingInterval | Value::SamplingAlgorithm => "`--sample`; collected",
            Value::Egress
            | Value::NextHop
            | Value::SourcePrefix
            | Value::DestinationPrefix
            | Value::PostSourceAddress
            | Value::PostDestinationAddress
            | Value::PostSourcePort
            | Value::PostDestinationPort
            | Value::NatEvent
            | Value::FirewallEvent => "collected",
            _ => "always",
        }
        .to_owned()
    }

    /// The content of the field, for the page.
    fn content(&self) -> &'static str {
        match self.value {
            Value::Octets => "bytes on the wire, from the IP header on",
            Value::Packets => "packets",
            Value::Protocol => "protocol of the IP header, the last one of IPv6",
            Value::ClassOfService => "traffic class of the first packet",
            Value::TcpFlags => "all TCP flags that were seen",
            Value::TcpFlagsFirst => "TCP flags of the first packet",
            Value::SourcePort => "source port, 0 where the protocol has none",
            Value::DestinationPort => "destination port; of ICMP the type times 256 plus the code",
            Value::SourceAddress => "source address",
            Value::DestinationAddress => "destination address",
            Value::Ingress => "index of the interface on which the packets came in",
            Value::Egress => "index of the interface on which the router sent them",
            Value::NextHop => "address of the next router",
            Value::SourcePrefix => "length of the prefix of the source",
            Value::DestinationPrefix => "length of the prefix of the destination",
            Value::SourceAs => "autonomous system of the source",
            Value::DestinationAs => "autonomous system of the destination",
            Value::EndUptime => "last packet, in milliseconds after the exporter's start",
            Value::StartUptime => "first packet, in milliseconds after the exporter's start",
            Value::IcmpTypeCode => "ICMP type times 256 plus the code, of the first packet",
            Value::IcmpType => "ICMP type of the first packet",
            Value::IcmpCode => "ICMP code of the first packet",
            Value::TtlMin => "smallest TTL or hop limit",
            Value::TtlMax => "largest TTL or hop limit",
            Value::Vlan => "identifier of the outer VLAN tag, 0 without a tag",
            Value::IpVersion => "4 or 6",
            Value::Direction => "0 is ingress, 1 is egress; always 0 but for collected flows",
            Value::MplsTop => "outermost MPLS label; all of the entry with the details",
            Value::EndReason => {
                "1 idle, 2 active timeout, 3 end of the connection, 4 end of the program, 5 table full"
            }
            Value::StartSeconds | Value::StartMilliseconds | Value::StartNtp => "time of the first packet",
            Value::EndSeconds | Value::EndMilliseconds | Value::EndNtp => "time of the last packet",
            Value::DurationMilliseconds => "time between the first and the last packet, in milliseconds",
            Value::ObservationDomain => "observation domain",
            Value::ExporterV4 | Value::ExporterV6 => "address of the exporter",
            Value::FlowId => {
                "number of the record in its observation domain, from 1 on; of collected flows the exporter's"
            }
            Value::Tunnel => "identifier of the tunnel: VNI, GRE key, TEID",
            Value::SamplingInterval => "one packet in how many was metered",
            Value::SamplingAlgorithm => "1 is systematic, 2 is random",
            Value::FlowSelector => "6: flows are chosen by a hash",
            Value::GreatestHash => "the largest hash of a chosen flow, of 2^32 - 1",
            Value::Throughput => "bits per second between the first and the last packet",
            Value::PostSourceAddress => "source address after translation",
            Value::PostDestinationAddress => "destination address after translation",
            Value::PostSourcePort => "source port after translation",
            Value::PostDestinationPort => "destination port after translation",
            Value::NatEvent => "event of the translation, by IANA's registry",
            Value::FirewallEvent => "event of the firewall, by IANA's registry",
            Value::Foreign(_) => "in no template",
            Value::Place(field) => field.content(),
            Value::Detail(detail) => detail.content(),
        }
    }
}

impl PlaceField {
    fn content(self) -> &'static str {
        match self {
            PlaceField::SourceCountry => "country of the source",
            PlaceField::DestinationCountry => "country of the destination",
            PlaceField::SourceAsName => "name of the source's autonomous system",
            PlaceField::DestinationAsName => "name of the destination's autonomous system",
            PlaceField::SourceName => "name of the source's network",
            PlaceField::DestinationName => "name of the destination's network",
        }
    }
}

impl Detail {
    fn content(self) -> &'static str {
        match self {
            Detail::ServerRtt => {
                "from the SYN to the SYN/ACK: from here to the server and back; unknown if one of them was seen twice"
            }
            Detail::ClientRtt => "from the SYN/ACK to the ACK: from here to the client and back",
            Detail::Response => {
                "from the client's first payload to the server's next one; unknown if the handshake was not seen"
            }
            Detail::Retransmitted => "packets that were sent again",
            Detail::RetransmittedOctets => "bytes of payload that were sent again",
            Detail::OutOfOrder => "packets that came later than data sent after them",
            Detail::ZeroWindows => {
                "packets that announce a window of 0, without SYN, FIN and RST: the application does not read"
            }
            Detail::SegmentSize => "maximum segment size of the SYN",
            Detail::WindowScale => "window scale of the SYN",
            Detail::WindowMin => {
                "smallest window after the handshake, scaled; unknown if the handshake was not seen"
            }
            Detail::WindowMax => {
                "largest window after the handshake, scaled; unknown if the handshake was not seen"
            }
            Detail::Size(_) => "packets of this class, by the bytes that the flow counts of them",
            Detail::GapMin => "shortest time between two packets of a direction",
            Detail::GapMean => "mean time between the packets of a direction",
            Detail::GapMax => "longest time between two packets of a direction",
            Detail::GapDeviation => "standard deviation of the times between the packets of a direction",
            Detail::DnsName => "name in the first question",
            Detail::DnsType => "type in the first question",
            Detail::DnsCode => "response code of its answer",
            Detail::DnsAnswers => "number of records in its answer",
            Detail::DnsAfter => "from the question to its answer",
            Detail::TlsServerName => "server name that the client asks for",
            Detail::TlsVersion => {
                "version that the server chose: 771 is TLS 1.2, 772 is 1.3; 65277 and 65276 are those of DTLS"
            }
            Detail::TlsCipher => "cipher suite that the server chose",
            Detail::TlsAlpn => "protocols that the client offers",
            Detail::TlsJa3 => "JA3 fingerprint of the client",
            Detail::TlsJa4 => "JA4 fingerprint of the client",
            Detail::HttpMethod => "method of the first request",
            Detail::HttpHost => "host of the first request",
            Detail::HttpTarget => "target of the first request",
            Detail::HttpUserAgent => "user agent of the first request",
            Detail::HttpStatus => "status of its answer",
            Detail::Application => {
                "the application by content; else the name that IANA gives the port's service"
            }
            Detail::ApplicationFoundBy => "`content` or `port`",
            Detail::Payload => "the first `--payload` bytes (64) of the first payload",
            Detail::SourceMac => "source MAC address of the first packet of a direction",
            Detail::DestinationMac => {
                "destination MAC address of the first packet of a direction; unknown with `-i any`"
            }
            Detail::TagPriority(0) => "priority of the outer VLAN tag of the first packet",
            Detail::TagPriority(_) => "priority of the inner VLAN tag of the first packet",
            Detail::TagVlan(_) => "identifier of the inner VLAN tag of the first packet",
            Detail::Label(_) => {
                "this entry of the label stack of the first packet: label, traffic class, bottom of stack"
            }
        }
    }
}
