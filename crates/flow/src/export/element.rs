//! Information elements: what stands in a field of a record, by the names and numbers of IANA's registry (IPFIX Information Elements; RFC 7012).

use std::net::IpAddr;

use tapline_packet::Timestamp;

use crate::{Context, DetailFields, Error, Flow, Http, SIZES, Side, TcpSide, Tls};

/// An information element that can be filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// Its name in the registry.
    pub name: &'static str,
    /// Its number.
    pub id: u16,
    /// Octets that it takes here; [`VARIABLE`](Self::VARIABLE) if that is different from record to record.
    pub len: u16,
    /// Who gave it its number.
    pub(crate) registry: Registry,
    /// What stands in it.
    pub(crate) value: Value,
    /// Whether it says something of one direction, so that a biflow has it twice (RFC 5103, 6).
    pub(crate) is_directional: bool,
}

/// Whose number an element has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registry {
    Iana,
    /// Those that YAF made (private enterprise number 6871).
    Cert,
    /// Ours, under the enterprise number that the exporter is told.
    Ours,
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
    ExporterV4,
    ExporterV6,
    Tunnel,
    SamplingInterval,
    SamplingAlgorithm,
    Detail(Detail),
}

/// What stands in a field if flows were asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    ServerRtt,
    ClientRtt,
    Retransmitted,
    RetransmittedOctets,
    OutOfOrder,
    ZeroWindows,
    SegmentSize,
    WindowScale,
    /// Packets of a class of size.
    Size(u8),
    GapMin,
    GapMean,
    GapMax,
    GapDeviation,
    DnsName,
    DnsType,
    DnsCode,
    DnsAnswers,
    DnsAfter,
    TlsServerName,
    TlsVersion,
    TlsCipher,
    TlsAlpn,
    TlsJa3,
    TlsJa4,
    HttpMethod,
    HttpHost,
    HttpTarget,
    HttpUserAgent,
    HttpStatus,
    Application,
    Payload,
}

/// A value, before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Datum<'f> {
    Number(u64),
    Address(IpAddr),
    Time(Timestamp),
    Text(&'f str),
    Bytes(&'f [u8]),
    /// The flow has none: it is of another kind, or it was not seen.
    Absent,
}

/// For which version of IP an element is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    V4,
    V6,
}

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

/// One that tells of a direction.
const fn each_way(element: Element) -> Element {
    Element { is_directional: true, ..element }
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
    element("exporterIPv4Address", 130, 4, Value::ExporterV4, false),
    element("exporterIPv6Address", 131, 16, Value::ExporterV6, false),
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
    Element { registry: Registry::Cert, ..element("initialTCPFlags", 14, 1, Value::TcpFlagsFirst, true) },
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
];

const _: () =
    assert!(SIZES[0] == 64 && SIZES[SIZES.len() - 1] == 1500, "the names of the elements tell the classes");

/// CERT's private enterprise number.
const CERT: u32 = 6871;
/// Says that an element is of the reverse direction (RFC 5103, 6.1): IANA's.
const REVERSE: u32 = 29305;
/// The bit that says so in the number of an element of others, as RFC 5103, 6.2 has it and YAF does it.
const REVERSE_BIT: u16 = 0x4000;

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

    /// The length of elements that have a length of their own in each record (RFC 7011, 7).
    pub const VARIABLE: u16 = u16::MAX;

    /// Names of a template: its words with commas between them, where `default` stands for those of `default`, and the word of a group of details for those of
    /// its elements that do not stand before it.
    pub(crate) fn names(template: &str, default: &str) -> Vec<String> {
        let mut names = Vec::new();
        for word in template.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match DetailFields::of_word(&word.to_ascii_lowercase()) {
                _ if word.eq_ignore_ascii_case("default") => names.extend(Element::names(default, "")),
                Some(group) => {
                    let of_group = ELEMENTS.iter().filter(|element| element.needs() == group);
                    let names_of_group = of_group.map(|element| element.name.to_owned());
                    let new: Vec<String> = names_of_group.filter(|name| !names.contains(name)).collect();
                    names.extend(new);
                }
                None => names.push(word.to_owned()),
            }
        }
        if names.is_empty() && !default.is_empty() {
            return Element::names(default, "");
        }
        names
    }

    /// What flows must be asked for so that a template can be filled; names that mean nothing need nothing.
    pub fn needs_of(template: &str) -> DetailFields {
        Element::names(template, "")
            .iter()
            .filter_map(|name| Element::of_name(name).ok())
            .fold(DetailFields::NONE, |fields, element| fields.with(element.needs()))
    }

    /// The enterprise whose number it bears, where ours is told; `None` for IANA's.
    pub fn enterprise(&self, ours: u32) -> Option<u32> {
        match self.registry {
            Registry::Iana => None,
            Registry::Cert => Some(CERT),
            Registry::Ours => Some(ours),
        }
    }

    /// Enterprise and number, of the one direction or the other.
    pub(crate) fn number(&self, is_reverse: bool, ours: u32) -> (Option<u32>, u16) {
        match (self.enterprise(ours), is_reverse) {
            (enterprise, false) => (enterprise, self.id),
            (None, true) => (Some(REVERSE), self.id),
            (enterprise, true) => (enterprise, self.id | REVERSE_BIT),
        }
    }

    /// Its name, of the one direction or the other.
    pub(crate) fn name_of(&self, is_reverse: bool) -> String {
        let mut letters = self.name.chars();
        match letters.next().filter(|_| is_reverse) {
            Some(first) => format!("reverse{}{}", first.to_ascii_uppercase(), letters.as_str()),
            None => self.name.to_owned(),
        }
    }

    /// What flows must be asked for so that it can be filled.
    pub(crate) fn needs(&self) -> DetailFields {
        let Value::Detail(detail) = self.value else { return DetailFields::NONE };
        let none = DetailFields::NONE;
        match detail {
            Detail::ServerRtt
            | Detail::ClientRtt
            | Detail::Retransmitted
            | Detail::RetransmittedOctets
            | Detail::OutOfOrder
            | Detail::ZeroWindows
            | Detail::SegmentSize
            | Detail::WindowScale => DetailFields { tcp: true, ..none },
            Detail::Size(_) => DetailFields { sizes: true, ..none },
            Detail::GapMin | Detail::GapMean | Detail::GapMax | Detail::GapDeviation => {
                DetailFields { gaps: true, ..none }
            }
            Detail::DnsName | Detail::DnsType | Detail::DnsCode | Detail::DnsAnswers | Detail::DnsAfter => {
                DetailFields { dns: true, ..none }
            }
            Detail::TlsServerName
            | Detail::TlsVersion
            | Detail::TlsCipher
            | Detail::TlsAlpn
            | Detail::TlsJa3
            | Detail::TlsJa4 => DetailFields { tls: true, ..none },
            Detail::HttpMethod
            | Detail::HttpHost
            | Detail::HttpTarget
            | Detail::HttpUserAgent
            | Detail::HttpStatus => DetailFields { http: true, ..none },
            Detail::Application => DetailFields { application: true, ..none },
            Detail::Payload => DetailFields { payload: true, ..none },
        }
    }

    /// Whether its text is a number (RFC 7373).
    pub(crate) fn is_number(&self) -> bool {
        !self.is_octets() && !self.is_text() && self.time_digits().is_none() && !self.is_address()
    }

    /// Whether its type is octetArray.
    pub(crate) fn is_octets(&self) -> bool {
        matches!(self.value, Value::MplsTop | Value::Detail(Detail::Payload))
    }

    /// Whether its type is string.
    pub(crate) fn is_text(&self) -> bool {
        self.len == Element::VARIABLE && !self.is_octets()
    }

    pub(crate) fn is_variable(&self) -> bool {
        self.len == Element::VARIABLE
    }

    pub(crate) fn is_address(&self) -> bool {
        let of_flow = matches!(self.value, Value::SourceAddress | Value::DestinationAddress);
        of_flow || self.is_exporter()
    }

    /// Whether it is the exporter's address.
    fn is_exporter(&self) -> bool {
        matches!(self.value, Value::ExporterV4 | Value::ExporterV6)
    }

    /// What tells the exporter's address needs one of its version.
    ///
    /// # Errors
    /// That there is none.
    pub(crate) fn check_exporter(&self, exporter: Option<IpAddr>) -> Result<(), Error> {
        let has_it = match self.value {
            Value::ExporterV4 => exporter.is_some_and(|address| address.is_ipv4()),
            Value::ExporterV6 => exporter.is_some_and(|address| address.is_ipv6()),
            _ => true,
        };
        if has_it {
            return Ok(());
        }
        let what =
            format!("has {}, and no such address was given: say it with --exporter ADDRESS", self.name);
        Err(Error::Template { what })
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
        let is_ianas = self.registry == Registry::Iana;
        let pair = PAIRS.iter().find(|(v4, v6)| is_ianas && [*v4, *v6].contains(&self.id));
        let Some((v4, v6)) = pair else { return self };
        let id = if version == For::V4 { *v4 } else { *v6 };
        ELEMENTS
            .iter()
            .find(|element| element.id == id && element.registry == Registry::Iana)
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
    pub(crate) exporter: Option<IpAddr>,
    pub(crate) sampling: u32,
}

impl<'f> View<'f> {
    fn source(&self) -> &Side {
        &self.flow.sides[self.from]
    }

    fn destination(&self) -> &Side {
        &self.flow.sides[1 - self.from]
    }

    /// What a value is.
    #[inline(always)]
    pub(crate) fn datum(&self, value: Value, is_reverse: bool) -> Datum<'f> {
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
            Value::ExporterV4 | Value::ExporterV6 => {
                return self.exporter.map_or(Datum::Absent, Datum::Address);
            }
            Value::Tunnel => context.tunnel.into(),
            Value::SamplingInterval => self.sampling.into(),
            Value::SamplingAlgorithm => 2,
            Value::Detail(detail) => return self.detail(detail, is_reverse).unwrap_or(Datum::Absent),
        })
    }

    /// What a detail is, if the flow has it.
    #[inline(never)]
    fn detail(&self, detail: Detail, is_reverse: bool) -> Option<Datum<'f>> {
        let details = self.flow.details.as_deref()?;
        let side = self.from ^ usize::from(is_reverse);
        let has_sent = self.flow.sides[side].packets > 0;
        let number = |number: u64| Some(Datum::Number(number));
        let text = |text: &'f str| (!text.is_empty()).then_some(Datum::Text(text));
        let tcp = |of: fn(&TcpSide) -> u64| number(of(&details.tcp.as_ref()?.sides[side]));
        let gap = || details.gaps.map(|gaps| gaps[side]).filter(|gaps| gaps.count > 0);
        let dns = || details.dns.as_ref();
        let tls = |of: fn(&Tls) -> &str| text(of(details.tls.as_ref()?));
        let http = |of: fn(&Http) -> &str| text(of(details.http.as_ref()?));
        match detail {
            Detail::ServerRtt => number(details.tcp.as_ref()?.server_rtt?),
            Detail::ClientRtt => number(details.tcp.as_ref()?.client_rtt?),
            Detail::Retransmitted => tcp(|side| side.retransmitted.into()),
            Detail::RetransmittedOctets => tcp(|side| side.retransmitted_bytes),
            Detail::OutOfOrder => tcp(|side| side.out_of_order.into()),
            Detail::ZeroWindows => tcp(|side| side.zero_windows.into()),
            Detail::SegmentSize => number(details.tcp.as_ref()?.sides[side].mss?.into()),
            Detail::WindowScale => number(details.tcp.as_ref()?.sides[side].window_scale?.into()),
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
            Detail::Payload => (has_sent && !details.payload[side].is_empty())
                .then_some(Datum::Bytes(&details.payload[side])),
        }
    }

    /// Writes a value in so many octets, the low ones of a number. One that is absent is 0, or empty. Of those whose length varies `most` octets at most.
    #[inline]
    pub(crate) fn write(&self, value: Value, len: u16, is_reverse: bool, most: usize, out: &mut Vec<u8>) {
        let number = match self.datum(value, is_reverse) {
            Datum::Number(number) => number,
            Datum::Address(of) => return address(of, out),
            Datum::Text(text) => return variable(&text.as_bytes()[..text.floor_char_boundary(most)], out),
            Datum::Bytes(bytes) => return variable(&bytes[..bytes.len().min(most)], out),
            Datum::Absent if len == Element::VARIABLE => return variable(&[], out),
            Datum::Absent => 0,
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

/// Bytes behind their length (RFC 7011, 7).
fn variable(bytes: &[u8], out: &mut Vec<u8>) {
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
                other.name == element.name || (other.id, other.registry) == (element.id, element.registry)
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
    fn groups_stand_for_their_elements() {
        let names = Element::names("default, gaps,tlsServerName", "octetDeltaCount");
        assert_eq!(names.len(), 6);
        assert_eq!((names[0].as_str(), names[1].as_str()), ("octetDeltaCount", "gapMinimumNanoseconds"));
        assert_eq!(Element::needs_of("default,gaps,tlsServerName,octetDeltaCount").words(), "gaps,tls");
        assert_eq!(Element::names("", "octetDeltaCount"), ["octetDeltaCount"]);
        for word in ["tcp", "sizes", "gaps", "dns", "tls", "http", "application", "payload"] {
            assert_eq!(Element::needs_of(word).words(), word);
        }
    }

    #[test]
    fn the_reverse_direction_has_numbers_of_its_own() {
        let number = |name: &str| Element::of_name(name).unwrap().number(true, 99);
        assert_eq!(number("octetDeltaCount"), (Some(29305), 1));
        assert_eq!(number("initialTCPFlags"), (Some(6871), 16398));
        assert_eq!(number("tcpOutOfOrderPackets"), (Some(99), 0x4005));
        assert_eq!(
            Element::of_name("tcpOutOfOrderPackets").unwrap().name_of(true),
            "reverseTcpOutOfOrderPackets"
        );
    }

    #[test]
    fn lengths_that_vary_stand_before() {
        let written = |len: usize| {
            let mut out = Vec::new();
            variable(&vec![7; len], &mut out);
            out[..out.len() - len].to_vec()
        };
        assert_eq!(
            (written(0), written(254), written(255), written(300)),
            (vec![0], vec![254], vec![255, 0, 255], vec![255, 1, 44])
        );
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
