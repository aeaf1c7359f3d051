//! NetFlow version 5.
//!
//! ```text
//! header 24   version 2 | count 2 | uptime ms 4 | seconds 4 | nanoseconds 4 | sequence 4 | engine 2 | sampling 2
//! record 48   source 4 | destination 4 | next hop 4 | input 2 | output 2 | packets 4 | octets 4 | first 4 | last 4 |
//!             ports 2, 2 | 0 1 | flags 1 | protocol 1 | tos 1 | AS 2, 2 | prefix lengths 1, 1 | 0 2
//! ```

use std::net::IpAddr;

use tapline_flow::KnownField;

use crate::bytes::Bytes;
use crate::draft::{Draft, MessageTime};
use crate::field::Field;

pub(crate) const RECORD_LEN: usize = 48;
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
    pub(crate) sequence: u32,
    /// Engine type and id.
    pub(crate) engine: u16,
    /// 0 if the exporter does not say.
    pub(crate) interval: u32,
}

/// The header, behind the version; `None` if it is cut short.
pub(crate) fn header(bytes: &mut Bytes<'_>) -> Option<Header> {
    let (count, uptime) = (bytes.u16()?, bytes.u32()?);
    let export_ns = i64::from(bytes.u32()?) * 1_000_000_000 + i64::from(bytes.u32()?);
    let (sequence, engine, sampling) = (bytes.u32()?, bytes.u16()?, bytes.u16()?);
    let boot_ns = export_ns - i64::from(uptime) * 1_000_000;
    let time = MessageTime { export_ns, uptime: Some((uptime, boot_ns)) };
    Some(Header { count, time, sequence, engine, interval: (sampling & INTERVAL_BITS).into() })
}

/// A record.
pub(crate) fn record(record: &[u8; RECORD_LEN]) -> Draft {
    let mut draft = Draft::new();
    GIVEN.iter().for_each(|field| draft.know(*field, 0));
    draft.know(KnownField::Port, 1);
    let u16_at = |at: usize| u16::from_be_bytes([record[at], record[at + 1]]);
    let address = |at: usize| IpAddr::from([record[at], record[at + 1], record[at + 2], record[at + 3]]);
    draft.addresses = [Some(address(0)), Some(address(4))];
    draft.next_hop = Some(address(8)).filter(|address| !address.is_unspecified());
    (draft.ingress, draft.egress) = (u16_at(12).into(), u16_at(14).into());
    for (field, at) in
        [(Field::Packets, 16), (Field::Octets, 20), (Field::StartUptime, 24), (Field::EndUptime, 28)]
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
