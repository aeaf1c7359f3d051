//! Information elements: the fields of a record, with the names and numbers of IANA's registry (IPFIX Information
//! Elements; RFC 7012).

mod fixed;
mod places;
mod record;
mod reference;
mod registry;

use super::ExportOptions;
use crate::{DetailFields, Error};
pub(crate) use fixed::FixedRecord;
pub(crate) use places::PlaceLookup;
pub(crate) use record::{
    FLOW_SELECTOR_BOB, FieldValue, RecordView, RowContext, is_known, mac_text, millis, write_value,
};
pub use registry::ELEMENTS;

/// An information element that the exporter can fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// Name in the registry.
    pub name: &'static str,
    /// Number in the registry.
    pub id: u16,
    /// Length in octets; [`VARIABLE`](Self::VARIABLE) if it differs from record to record.
    pub len: u16,
    /// The registry that assigned the number.
    pub(crate) registry: Registry,
    /// Source of its value.
    pub(crate) value: Value,
    /// Whether the value belongs to one direction, so that a biflow has the element twice (RFC 5103, 6).
    pub(crate) is_directional: bool,
}

/// The registry of an element's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registry {
    Iana,
    /// CERT's elements, as YAF exports them (private enterprise number 6871).
    Cert,
    /// Tapline's elements, under the exporter's enterprise number.
    Ours,
}

/// Source of a field's value, in records that are written and in those of other exporters.
#[allow(missing_docs, reason = "the elements of the registry say what they are")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
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
    NextHop,
    SourcePrefix,
    DestinationPrefix,
    SourceAs,
    DestinationAs,
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
    FlowSelector,
    GreatestHash,
    Throughput,
    PostSourceAddress,
    PostDestinationAddress,
    PostSourcePort,
    PostDestinationPort,
    NatEvent,
    FirewallEvent,
    FlowId,
    Foreign(Foreign),
    Place(PlaceField),
    Detail(Detail),
}

/// A value that only records of other exporters have.
#[allow(missing_docs, reason = "the elements of the registry say what they are")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// Counters after middleboxes, for records that have no others.
    PostOctets,
    PostPackets,
    /// Counters since the beginning of the flow.
    TotalOctets,
    TotalPackets,
    IngressPhysical,
    EgressPhysical,
    Ttl,
    /// Microseconds before the message's time.
    StartDelta,
    EndDelta,
    ObservedSeconds,
    ObservedMilliseconds,
    DurationMicroseconds,
    /// Milliseconds since 1970 at which the exporter's uptime was 0.
    BootMilliseconds,
    SamplingPackets,
    SamplingSpace,
    SamplingSize,
    SamplingPopulation,
    SamplingProbability,
    SelectorAlgorithm,
    Sampler,
    /// The scope that means all of the exporter: of version 9, and the exporting process of IPFIX.
    System,
    /// The scope of a template.
    Template,
    /// The length of a frame, and the first bytes of it, or of an IP packet (RFC 7133, RFC 5477).
    FrameLen,
    FrameSection,
    IpSection,
}

/// Source of a field's value that files of places have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceField {
    SourceCountry,
    DestinationCountry,
    SourceAsName,
    DestinationAsName,
    SourceName,
    DestinationName,
}

/// Source of a field's value that flows have only if asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    ServerRtt,
    ClientRtt,
    Response,
    Retransmitted,
    RetransmittedOctets,
    OutOfOrder,
    ZeroWindows,
    SegmentSize,
    WindowScale,
    WindowMin,
    WindowMax,
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
    ApplicationFoundBy,
    Payload,
    SourceMac,
    DestinationMac,
    /// Priority of the VLAN tag at this place, 0 the outer one.
    TagPriority(u8),
    /// Identifier of the VLAN of this tag.
    TagVlan(u8),
    /// An entry of the label stack, from 1 on.
    Label(u8),
}

/// The IP version of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IpFamily {
    V4,
    V6,
}

/// The word of a template that means the elements of places.
const PLACES: &str = "places";

/// CERT's private enterprise number.
const CERT: u32 = 6871;
/// Marks an element as one of the reverse direction (RFC 5103, 6.1): IANA's.
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
                None => "docs/reference/elements.md lists those that can".to_owned(),
            };
            Error::Element { word: name.to_owned(), hint }
        })
    }

    /// The length of elements that have a length of their own in each record (RFC 7011, 7).
    pub const VARIABLE: u16 = u16::MAX;

    /// Names of a template: its words with commas between them, where `default` means those of `default`, and the
    /// word of a group of details, or `places`, means those of its elements that do not come before it. A name next
    /// to `default` that is one of its names does not add a second field: defaults differ from format to format.
    pub(crate) fn names(template: &str, default: &str) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let mut of_default: Vec<String> = Vec::new();
        for word in template.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let lower = word.to_ascii_lowercase();
            let of_group: Vec<&Element> = match DetailFields::of_word(&lower) {
                Some(group) => ELEMENTS.iter().filter(|element| element.is_of(group)).collect(),
                None if lower == PLACES => ELEMENTS.iter().filter(|element| element.has_place()).collect(),
                None if lower == "default" => {
                    of_default = Element::names(default, "");
                    let is_new = |name: &&String| !names.iter().any(|known| known.eq_ignore_ascii_case(name));
                    let new: Vec<String> = of_default.iter().filter(is_new).cloned().collect();
                    names.extend(new);
                    continue;
                }
                None => {
                    if !of_default.iter().any(|known| known.eq_ignore_ascii_case(word)) {
                        names.push(word.to_owned());
                    }
                    continue;
                }
            };
            let names_of_group = of_group.into_iter().map(|element| element.name.to_owned());
            let new: Vec<String> = names_of_group.filter(|name| !names.contains(name)).collect();
            names.extend(new);
        }
        if names.is_empty() && !default.is_empty() {
            return Element::names(default, "");
        }
        names
    }

    /// The groups of details that a template needs; unknown names need none.
    pub fn needs_of(template: &str) -> DetailFields {
        Element::names(template, "")
            .iter()
            .filter_map(|name| Element::of_name(name).ok())
            .fold(DetailFields::NONE, |fields, element| fields.with(element.needs()))
    }

    /// The private enterprise number of the element, with `ours` for Tapline's; `None` for IANA's.
    pub fn enterprise(&self, ours: u32) -> Option<u32> {
        match self.registry {
            Registry::Iana => None,
            Registry::Cert => Some(CERT),
            Registry::Ours => Some(ours),
        }
    }

    /// Private enterprise number and element id, for the forward or the reverse direction.
    pub(crate) fn number(&self, is_reverse: bool, ours: u32) -> (Option<u32>, u16) {
        match (self.enterprise(ours), is_reverse) {
            (enterprise, false) => (enterprise, self.id),
            (None, true) => (Some(REVERSE), self.id),
            (enterprise, true) => (enterprise, self.id | REVERSE_BIT),
        }
    }

    /// Name of the field, for the one direction or the other.
    pub(crate) fn name_of(&self, is_reverse: bool) -> String {
        let mut letters = self.name.chars();
        match letters.next().filter(|_| is_reverse) {
            Some(first) => format!("reverse{}{}", first.to_ascii_uppercase(), letters.as_str()),
            None => self.name.to_owned(),
        }
    }

    /// Details that flows must be asked for so that it can be filled.
    pub(crate) fn needs(&self) -> DetailFields {
        let Value::Detail(detail) = self.value else { return DetailFields::NONE };
        let none = DetailFields::NONE;
        match detail {
            Detail::ServerRtt
            | Detail::ClientRtt
            | Detail::Response
            | Detail::Retransmitted
            | Detail::RetransmittedOctets
            | Detail::OutOfOrder
            | Detail::ZeroWindows
            | Detail::SegmentSize
            | Detail::WindowScale
            | Detail::WindowMin
            | Detail::WindowMax => DetailFields { tcp: true, ..none },
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
            Detail::Application | Detail::ApplicationFoundBy => DetailFields { application: true, ..none },
            Detail::Payload => DetailFields { payload: true, ..none },
            Detail::SourceMac | Detail::DestinationMac | Detail::TagPriority(_) | Detail::TagVlan(_) => {
                DetailFields { ethernet: true, ..none }
            }
            Detail::Label(_) => DetailFields { mpls: true, ..none },
        }
    }

    /// Whether the word of a group of details includes the element: the top of a stack is known without, but for its
    /// traffic class.
    fn is_of(&self, group: DetailFields) -> bool {
        self.needs() == group || group.mpls && self.value == Value::MplsTop
    }

    /// Whether files of places have its value. Routers report autonomous systems too.
    pub(crate) fn has_place(&self) -> bool {
        matches!(self.value, Value::Place(_) | Value::SourceAs | Value::DestinationAs)
    }

    /// Whether its text is a number (RFC 7373).
    pub(crate) fn is_number(&self) -> bool {
        let is_written_otherwise = self.is_octets() || self.is_text() || self.is_address() || self.is_mac();
        !is_written_otherwise && self.time_digits().is_none()
    }

    /// Whether its type is macAddress.
    pub(crate) fn is_mac(&self) -> bool {
        matches!(self.value, Value::Detail(Detail::SourceMac | Detail::DestinationMac))
    }

    /// Whether its type is octetArray.
    pub(crate) fn is_octets(&self) -> bool {
        matches!(self.value, Value::MplsTop | Value::Detail(Detail::Payload | Detail::Label(_)))
    }

    /// Whether its type is string.
    pub(crate) fn is_text(&self) -> bool {
        self.len == Element::VARIABLE && !self.is_octets()
    }

    pub(crate) fn is_variable(&self) -> bool {
        self.len == Element::VARIABLE
    }

    pub(crate) fn is_address(&self) -> bool {
        let of_flow = matches!(self.value, Value::SourceAddress | Value::DestinationAddress | Value::NextHop);
        let is_post = matches!(self.value, Value::PostSourceAddress | Value::PostDestinationAddress);
        of_flow || is_post || self.is_exporter()
    }

    /// Whether it is the exporter's address.
    fn is_exporter(&self) -> bool {
        matches!(self.value, Value::ExporterV4 | Value::ExporterV6)
    }

    /// An element of the exporter's address needs an address of its IP version, and one of places a file of places.
    ///
    /// # Errors
    /// If the template asks for an exporter's address or a file that was not given.
    pub(crate) fn check_options(&self, options: &ExportOptions) -> Result<(), Error> {
        if matches!(self.value, Value::Place(_)) && !options.has_places {
            let what = format!(
                "has {}, and no file has the places of addresses: name one (--enrich FILE; in graphs enrich=FILE)",
                self.name
            );
            return Err(Error::Template { what });
        }
        let exporter = options.exporter;
        let has_it = match self.value {
            _ if options.is_collected => true,
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

    /// Digits after the decimal point of a time; `None` for other values.
    pub(crate) fn time_digits(&self) -> Option<usize> {
        match self.value {
            Value::StartSeconds | Value::EndSeconds => Some(0),
            Value::StartMilliseconds | Value::EndMilliseconds => Some(3),
            Value::StartNtp | Value::EndNtp => Some(9),
            _ => None,
        }
    }

    /// The element of the other IP version, for those that differ.
    pub(crate) fn for_family(self, version: IpFamily) -> Element {
        const PAIRS: [(u16, u16); 10] = [
            (8, 27),
            (9, 29),
            (12, 28),
            (13, 30),
            (15, 62),
            (32, 139),
            (176, 178),
            (177, 179),
            (225, 281),
            (226, 282),
        ];
        let is_ianas = self.registry == Registry::Iana;
        let pair = PAIRS.iter().find(|(v4, v6)| is_ianas && [*v4, *v6].contains(&self.id));
        let Some((v4, v6)) = pair else { return self };
        let id = if version == IpFamily::V4 { *v4 } else { *v6 };
        ELEMENTS
            .iter()
            .find(|element| element.id == id && element.registry == Registry::Iana)
            .copied()
            .unwrap_or(self)
    }
}

#[cfg(test)]
mod tests {
    use super::record::{ntp, variable};
    use super::*;
    use tapline_packet::Timestamp;

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
        let v6 = |name: &str| Element::of_name(name).unwrap().for_family(IpFamily::V6).id;
        assert_eq!(
            ["sourceIPv4Address", "icmpTypeCodeIPv4", "vlanId", "initialTCPFlags"].map(v6),
            [27, 139, 58, 14]
        );
        assert_eq!(Element::of_name("destinationIPv6Address").unwrap().for_family(IpFamily::V4).id, 12);
    }

    #[test]
    fn numbers_are_read_as_they_are_written() {
        let skipped = ["ipVersion", "samplingAlgorithm", "flowSelectorAlgorithm", "hashSelectedRangeMax"];
        for element in ELEMENTS.iter().filter(|element| element.registry != Registry::Ours) {
            let read = |is_reverse: bool| {
                let (enterprise, id) = element.number(is_reverse, 99);
                Value::of_number(enterprise.unwrap_or(0), id)
            };
            let value = match element.value {
                Value::Detail(_) => None,
                _ if skipped.contains(&element.name) => None,
                _ if element.name == "octetTotalCount" => Some(Value::Foreign(Foreign::TotalOctets)),
                _ if element.name == "packetTotalCount" => Some(Value::Foreign(Foreign::TotalPackets)),
                value => Some(value),
            };
            for is_reverse in [false, true] {
                assert_eq!(read(is_reverse), value.map(|value| (value, is_reverse)), "{}", element.name);
            }
        }
        for (enterprise, id, read) in [
            (0, 232, Some((Value::Octets, true))),
            (0, 48, Some((Value::Foreign(Foreign::Sampler), false))),
            (0, 40_005, Some((Value::FirewallEvent, false))),
            (CERT, 15, Some((Value::TcpFlags, false))),
            (0, 0, None),
            (9, 1, None),
        ] {
            assert_eq!(Value::of_number(enterprise, id), read, "{enterprise}/{id}");
        }
    }

    #[test]
    fn groups_stand_for_their_elements() {
        let names = Element::names("default, gaps,tlsServerName", "octetDeltaCount");
        assert_eq!(names.len(), 6);
        assert_eq!((names[0].as_str(), names[1].as_str()), ("octetDeltaCount", "gapMinimumNanoseconds"));
        assert_eq!(Element::needs_of("default,gaps,tlsServerName,octetDeltaCount").words(), "gaps,tls");
        assert_eq!(Element::names("", "octetDeltaCount"), ["octetDeltaCount"]);
        let twice = ["default,vlanId,octetdeltacount", "octetDeltaCount,default,vlanId"];
        twice.iter().for_each(|template| {
            assert_eq!(Element::names(template, "octetDeltaCount"), ["octetDeltaCount", "vlanId"])
        });
        assert_eq!(Element::names("vlanId,vlanId", "vlanId").len(), 2, "a fault of the user's");
        for word in
            ["tcp", "sizes", "gaps", "dns", "tls", "http", "application", "payload", "ethernet", "mpls"]
        {
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
