//! Counters of a source: its messages, and their outcome.
//!
//! ```text
//! datagrams   received = read + refused by DatagramFault                                    (all sources together)
//! sets        without their template: held until it comes, then decoded; else refused
//! records     decoded = flows handed on + flows filtered out + options + refused by RefusedCause
//! ```

use std::net::{IpAddr, Ipv4Addr};

use tapline_packet::Timestamp;

tapline_packet::named_enum! {
    /// A protocol of flow export.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Protocol {
        /// NetFlow version 1.
        NetFlow1 = "v1",
        /// NetFlow version 5.
        NetFlow5 = "v5",
        /// NetFlow version 7.
        NetFlow7 = "v7",
        /// NetFlow version 9.
        NetFlow9 = "v9",
        /// IPFIX.
        Ipfix = "ipfix",
        /// sFlow version 5.
        SFlow5 = "sflow",
    }
}

impl Protocol {
    /// The unit of its sequence numbers, in which losses are counted. Version 1 has none.
    pub const fn unit(self) -> &'static str {
        match self {
            Protocol::NetFlow1 | Protocol::NetFlow5 | Protocol::NetFlow7 => "flows",
            Protocol::Ipfix => "records",
            Protocol::NetFlow9 | Protocol::SFlow5 => "datagrams",
        }
    }
}

tapline_packet::named_enum! {
    /// The reason for which a whole datagram was refused.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(usize)]
    pub enum DatagramFault {
        /// The first bytes are not those of a protocol of flow export.
        NotExport = "no flow export",
        /// The message ends within its header, or before the length in the header; or it is a fragment of a datagram.
        Short = "cut short",
    }
}

tapline_packet::named_enum! {
    /// The reason for which a part of a datagram was refused.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(usize)]
    pub enum RefusedCause {
        /// Sets of records whose template has not come.
        NoTemplate = "no_template",
        /// Sets, records or samples whose lengths do not fit; the rest of the datagram is not read.
        Malformed = "malformed",
        /// Templates for which the table was full.
        NoRoom = "no_room",
        /// Records that count neither packets nor bytes, such as events of firewalls.
        NoCounters = "no_counters",
        /// Samples of packets that are not IP.
        NotIp = "not_ip",
        /// Records with counters greater than any router's.
        TooGreat = "too_great",
        /// Records of fewer octets than any description of a flow has: one datagram would have tens of thousands.
        TooShort = "too_short",
    }
}

/// Counters of one source. All numbers are since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceAccount {
    /// The exporter's address; of sFlow the agent's.
    pub exporter: IpAddr,
    /// The source port; 0 for sFlow, whose agents are distinguished by their address alone.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
    /// Observation domain (IPFIX), source id (v9), engine type and id (v5), sub-agent (sFlow).
    pub domain: u32,
    /// Datagrams that were read.
    pub datagrams: u64,
    /// Records that became flows.
    pub flows: u64,
    /// Records of options, and samples of counters, which are not flows.
    pub options: u64,
    /// Flows that a filter refused. They are not among the flows.
    pub filtered: u64,
    /// Packets that the flows count.
    pub packets: u128,
    /// Bytes that the flows count.
    pub bytes: u128,
    /// Losses by the sequence numbers, in their unit.
    pub lost: u64,
    /// The unit: [`Protocol::unit`], unless the exporter counts otherwise.
    pub unit: &'static str,
    /// Datagrams that came after ones that were sent later. They are not lost.
    pub late: u64,
    /// Restarts of the sequence numbers.
    pub restarts: u64,
    /// Templates known.
    pub templates: u64,
    /// Sets held because their template is missing.
    pub held: u64,
    /// The sampling interval that was reported last; `None` if none was.
    pub sampling: Option<u32>,
    /// Flows that were to be multiplied by their sampling interval, and were not: it is not known.
    pub unscaled: u64,
    /// Flows whose earlier totals were forgotten because the table was full: their next totals count those again.
    pub totals_forgotten: u64,
    /// Flows whose times were no times of their message, more than a week before it or an hour behind: they have that of
    /// the message.
    pub retimed: u64,
    /// The earliest start and the latest end of its flows; `None` before the first.
    pub span: Option<(Timestamp, Timestamp)>,
    /// Refused messages and records, by cause.
    pub refused: [u64; RefusedCause::ALL.len()],
}

impl SourceAccount {
    pub(crate) fn new(exporter: IpAddr, port: u16, protocol: Protocol, domain: u32) -> SourceAccount {
        SourceAccount {
            exporter,
            port,
            protocol,
            domain,
            datagrams: 0,
            flows: 0,
            options: 0,
            filtered: 0,
            packets: 0,
            bytes: 0,
            lost: 0,
            unit: protocol.unit(),
            late: 0,
            restarts: 0,
            templates: 0,
            held: 0,
            sampling: None,
            unscaled: 0,
            totals_forgotten: 0,
            retimed: 0,
            span: None,
            refused: [0; RefusedCause::ALL.len()],
        }
    }

    pub(crate) fn refuse(&mut self, cause: RefusedCause) {
        self.refused[cause as usize] += 1;
    }

    pub(crate) fn extend_span(&mut self, span: Option<(Timestamp, Timestamp)>) {
        let Some((first, last)) = span else { return };
        self.span = Some(self.span.map_or((first, last), |span| (span.0.min(first), span.1.max(last))));
    }
}

/// Sources that were forgotten because the table was full, and the sums of their counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forgotten {
    /// Times that a source was forgotten.
    pub sources: u64,
    /// Sums of the counters. Address, protocol, domain and sampling interval have no meaning; losses are in the units of
    /// each protocol.
    pub account: SourceAccount,
}

impl Default for Forgotten {
    fn default() -> Forgotten {
        let nobody = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        Forgotten { sources: 0, account: SourceAccount::new(nobody, 0, Protocol::Ipfix, 0) }
    }
}

impl Forgotten {
    pub(crate) fn add(&mut self, account: &SourceAccount) {
        if account.datagrams == 0 {
            return;
        }
        self.sources += 1;
        let sum = &mut self.account;
        sum.datagrams += account.datagrams;
        sum.flows += account.flows;
        sum.options += account.options;
        sum.filtered += account.filtered;
        sum.packets += account.packets;
        sum.bytes += account.bytes;
        sum.lost += account.lost;
        sum.late += account.late;
        sum.restarts += account.restarts;
        sum.unscaled += account.unscaled;
        sum.totals_forgotten += account.totals_forgotten;
        sum.retimed += account.retimed;
        sum.extend_span(account.span);
        sum.refused.iter_mut().zip(account.refused).for_each(|(sum, count)| *sum += count);
    }
}
