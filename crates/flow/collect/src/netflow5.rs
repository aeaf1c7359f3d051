//! NetFlow versions 1, 5 and 7, whose records have fixed fields.
//!
//! ```text
//! header    version 2 | count 2 | uptime ms 4 | seconds 4 | nanoseconds 4                                            16
//!           5 and 7: sequence 4 | 5: engine 2, sampling 2; 7: 0 4                                                    24
//! record    source 4 | destination 4 | next hop 4 | input 2 | output 2 | packets 4 | octets 4 | first 4 | last 4 | ports 2, 2 |
//!           5    0 1 | flags 1 | protocol 1 | tos 1 | AS 2, 2 | prefix lengths 1, 1 | 0 2                            48
//!           7    validity 1 | flags 1 | protocol 1 | tos 1 | AS 2, 2 | prefix lengths 1, 1 | validity 2 | router 4   52
//!           1    0 2 | protocol 1 | tos 1 | flags 1 | 0 11                                                           52
//! ```

use std::net::IpAddr;

use tapline_dissect::ByteReader;
use tapline_flow::KnownField;
use tapline_flow::export::Value;

use crate::account::Protocol;
use crate::draft::{Draft, MessageTime};

/// Octets of a record of version 5. Those of 1 and 7 have four more.
const RECORD_LEN: usize = 48;
/// The low bits of the header's sampling field: the interval. The top two are the mode.
const INTERVAL_BITS: u16 = 0x3fff;

/// The fields that each record gives; packets, octets and addresses are taken as fields.
const GIVEN: [KnownField; 6] = [
    KnownField::Protocol,
    KnownField::Ingress,
    KnownField::Egress,
    KnownField::Port,
    KnownField::TcpFlags,
    KnownField::Tos,
];

/// The header of a message.
pub(crate) struct Header {
    pub(crate) count: u16,
    pub(crate) time: MessageTime,
    /// `None` of version 1.
    pub(crate) sequence: Option<u32>,
    /// Engine type and id.
    pub(crate) engine: u16,
    /// 0 if the exporter does not say.
    pub(crate) interval: u32,
}

/// The header of a message of this protocol, behind the version; `None` if it is cut short.
pub(crate) fn header(protocol: Protocol, bytes: &mut ByteReader<'_>) -> Option<Header> {
    let (count, uptime) = (bytes.u16()?, bytes.u32()?);
    let export_ns = i64::from(bytes.u32()?) * 1_000_000_000 + i64::from(bytes.u32()?);
    let boot_ns = export_ns - i64::from(uptime) * 1_000_000;
    let time = MessageTime { export_ns, uptime: Some((uptime, boot_ns)) };
    let mut header = Header { count, time, sequence: None, engine: 0, interval: 0 };
    if protocol != Protocol::NetFlow1 {
        header.sequence = Some(bytes.u32()?);
        let (engine, sampling) = (bytes.u16()?, bytes.u16()?);
        if protocol == Protocol::NetFlow5 {
            (header.engine, header.interval) = (engine, (sampling & INTERVAL_BITS).into());
        }
    }
    Some(header)
}

/// The next record; `None` if it is cut short.
pub(crate) fn next(protocol: Protocol, bytes: &mut ByteReader<'_>) -> Option<Draft> {
    let len = if protocol == Protocol::NetFlow5 { RECORD_LEN } else { RECORD_LEN + 4 };
    let mut draft = record(bytes.0.first_chunk()?);
    let octets = bytes.take(len)?;
    if protocol == Protocol::NetFlow1 {
        draft.sides[0].tcp_flags = octets[40];
        (draft.autonomous_systems, draft.prefix_lens) = ([0; 2], [0; 2]);
    }
    Some(draft)
}

/// A record, as version 5 has it.
fn record(record: &[u8; RECORD_LEN]) -> Draft {
    let mut draft = Draft::new();
    GIVEN.iter().for_each(|field| draft.know(*field, 0));
    draft.know(KnownField::Port, 1);
    let u16_at = |at: usize| u16::from_be_bytes([record[at], record[at + 1]]);
    let address = |at: usize| IpAddr::from([record[at], record[at + 1], record[at + 2], record[at + 3]]);
    draft.addresses = [Some(address(0)), Some(address(4))];
    draft.next_hop = Some(address(8)).filter(|address| !address.is_unspecified());
    (draft.ingress, draft.egress) = (u16_at(12).into(), u16_at(14).into());
    for (field, at) in
        [(Value::Packets, 16), (Value::Octets, 20), (Value::StartUptime, 24), (Value::EndUptime, 28)]
    {
        draft.set(field, false, &record[at..at + 4]);
    }
    draft.ports = [u16_at(32), u16_at(34)];
    draft.protocol = record[38];
    (draft.sides[0].tcp_flags, draft.sides[0].tos) = (record[37], record[39]);
    draft.autonomous_systems = [u16_at(40).into(), u16_at(42).into()];
    draft.prefix_lens = [record[44], record[45]];
    draft
}
