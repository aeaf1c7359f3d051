//! Fields of records: which of them become part of a flow.
//!
//! ```text
//! number of IANA's, version 9's (the same up to 127), CERT's (6871) --Field::of--> Field | none: its octets are skipped
//! enterprise 29305: the same, of the reverse direction (RFC 5103)
//! ```

/// Enterprise number of reverse elements (RFC 5103, 6.1).
const REVERSE: u32 = 29305;
/// CERT's enterprise number: YAF has its TCP flags there, with this bit for the reverse direction.
const CERT: u32 = 6871;
const CERT_REVERSE: u16 = 0x4000;

/// The meaning of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Octets,
    Packets,
    /// Counters after middleboxes, for records that have no others.
    PostOctets,
    PostPackets,
    /// Counters since the beginning of the flow.
    TotalOctets,
    TotalPackets,
    Protocol,
    ClassOfService,
    TcpFlags,
    TcpFlagsFirst,
    SourcePort,
    DestinationPort,
    SourceAddress,
    DestinationAddress,
    SourcePrefix,
    DestinationPrefix,
    Ingress,
    Egress,
    IngressPhysical,
    EgressPhysical,
    NextHop,
    SourceAs,
    DestinationAs,
    IcmpTypeCode,
    IcmpType,
    IcmpCode,
    TtlMin,
    TtlMax,
    Ttl,
    Vlan,
    Direction,
    MplsTop,
    EndReason,
    Tunnel,
    ExporterAddress,
    StartUptime,
    EndUptime,
    StartSeconds,
    EndSeconds,
    StartMilliseconds,
    EndMilliseconds,
    /// NTP times: of micro- and of nanoseconds.
    StartNtp,
    EndNtp,
    /// Microseconds before the message's time.
    StartDelta,
    EndDelta,
    ObservedSeconds,
    ObservedMilliseconds,
    DurationMilliseconds,
    DurationMicroseconds,
    /// Milliseconds since 1970 at which the exporter's uptime was 0.
    BootMilliseconds,
    SamplingInterval,
    SamplingPackets,
    SamplingSpace,
    SamplingSize,
    SamplingPopulation,
    SamplingProbability,
    SelectorAlgorithm,
    Sampler,
    /// The scope that means all of the exporter: of version 9, and the exporting process of IPFIX.
    System,
    /// The scopes of a domain and of a template.
    Domain,
    Template,
    PostSourceAddress,
    PostDestinationAddress,
    PostSourcePort,
    PostDestinationPort,
    NatEvent,
    FlowId,
    FirewallEvent,
    /// The length of a frame, and the first bytes of it, or of an IP packet (RFC 7133, RFC 5477).
    FrameLen,
    FrameSection,
    IpSection,
}

impl Field {
    /// The meaning of an element, and whether it is of the reverse direction; `None` for elements that are skipped.
    pub(crate) fn of(enterprise: u32, id: u16) -> Option<(Field, bool)> {
        match enterprise {
            // What the responder sent, as Cisco's firewalls have it (NSEL).
            0 if id == 232 => Some((Field::Octets, true)),
            0 if id == 299 => Some((Field::Packets, true)),
            0 => Some((Field::of_iana(id)?, false)),
            REVERSE => Some((Field::of_iana(id)?, true)),
            CERT => match id & !CERT_REVERSE {
                14 => Some((Field::TcpFlagsFirst, id & CERT_REVERSE != 0)),
                15 => Some((Field::TcpFlags, id & CERT_REVERSE != 0)),
                _ => None,
            },
            _ => None,
        }
    }

    /// The meaning of a scope of version 9 (RFC 3954, 6.1), whose types have numbers of their own.
    pub(crate) fn of_scope9(kind: u16) -> Option<(Field, bool)> {
        match kind {
            1 => Some((Field::System, false)),
            2 => Some((Field::Ingress, false)),
            5 => Some((Field::Template, false)),
            _ => None,
        }
    }

    fn of_iana(id: u16) -> Option<Field> {
        Some(match id {
            // Cisco's firewalls have what the initiator sent as 231 and 298 (NSEL).
            1 | 231 => Field::Octets,
            2 | 298 => Field::Packets,
            85 => Field::TotalOctets,
            86 => Field::TotalPackets,
            23 => Field::PostOctets,
            24 => Field::PostPackets,
            4 => Field::Protocol,
            5 => Field::ClassOfService,
            6 => Field::TcpFlags,
            7 | 180 | 182 => Field::SourcePort,
            11 | 181 | 183 => Field::DestinationPort,
            8 | 27 => Field::SourceAddress,
            12 | 28 => Field::DestinationAddress,
            9 | 29 => Field::SourcePrefix,
            13 | 30 => Field::DestinationPrefix,
            10 => Field::Ingress,
            14 => Field::Egress,
            252 => Field::IngressPhysical,
            253 => Field::EgressPhysical,
            15 | 62 => Field::NextHop,
            16 => Field::SourceAs,
            17 => Field::DestinationAs,
            32 | 139 => Field::IcmpTypeCode,
            176 | 178 => Field::IcmpType,
            177 | 179 => Field::IcmpCode,
            52 => Field::TtlMin,
            53 => Field::TtlMax,
            192 => Field::Ttl,
            58 | 243 => Field::Vlan,
            61 => Field::Direction,
            70 => Field::MplsTop,
            136 => Field::EndReason,
            351 => Field::Tunnel,
            130 | 131 => Field::ExporterAddress,
            22 => Field::StartUptime,
            21 => Field::EndUptime,
            150 => Field::StartSeconds,
            151 => Field::EndSeconds,
            152 => Field::StartMilliseconds,
            153 => Field::EndMilliseconds,
            154 | 156 => Field::StartNtp,
            155 | 157 => Field::EndNtp,
            158 => Field::StartDelta,
            159 => Field::EndDelta,
            322 => Field::ObservedSeconds,
            323 => Field::ObservedMilliseconds,
            161 => Field::DurationMilliseconds,
            162 => Field::DurationMicroseconds,
            160 => Field::BootMilliseconds,
            34 | 50 => Field::SamplingInterval,
            305 => Field::SamplingPackets,
            306 => Field::SamplingSpace,
            144 => Field::System,
            145 => Field::Template,
            149 => Field::Domain,
            304 => Field::SelectorAlgorithm,
            309 => Field::SamplingSize,
            310 => Field::SamplingPopulation,
            311 => Field::SamplingProbability,
            48 | 302 => Field::Sampler,
            // 40001 to 40005 are those of Cisco's firewalls before version 8.4.
            225 | 281 | 40_001 => Field::PostSourceAddress,
            226 | 282 | 40_002 => Field::PostDestinationAddress,
            227 | 40_003 => Field::PostSourcePort,
            228 | 40_004 => Field::PostDestinationPort,
            148 => Field::FlowId,
            230 => Field::NatEvent,
            312 => Field::FrameLen,
            // Cisco's layer2packetSectionData.
            104 | 315 => Field::FrameSection,
            313 => Field::IpSection,
            233 | 40_005 => Field::FirewallEvent,
            _ => return None,
        })
    }
}
