//! A packet as TCP sees it.

use std::ops::Range;

use tapline_packet::Packet;
use tapline_packet::headers::{FiveTuple, Headers, IpVersion};
use tapline_packet::numbers::ip_protocol::TCP;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// The fixed part of a TCP header (RFC 9293, 3.1).
const HEADER_LEN: usize = 20;

/// Numbers and payload of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The direction.
    pub(crate) tuple: FiveTuple,
    /// Number of the first byte of payload: one behind SYN.
    pub(crate) sequence: u32,
    /// The next byte that the sender waits for.
    pub(crate) ack: Option<u32>,
    /// The captured payload, in the packet.
    pub(crate) payload: Range<usize>,
    /// Bytes of payload behind it that were not captured.
    pub(crate) missing: u32,
    pub(crate) is_syn: bool,
    pub(crate) is_fin: bool,
    pub(crate) is_rst: bool,
}

impl Segment {
    /// `None` for packets without a whole TCP header, and for fragments.
    pub(crate) fn of(headers: &Headers, packet: Packet<'_>) -> Option<Segment> {
        let data = packet.data;
        let tuple = headers.five_tuple(data)?;
        if tuple.protocol != TCP || headers.fragment().is_some() {
            return None;
        }
        let header: &[u8; HEADER_LEN] = data.get(headers.l4()?..)?.first_chunk()?;
        let word =
            |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let flags = header[13];
        let is_syn = flags & SYN != 0;
        let end = headers.ip_end().min(data.len());
        let start = headers.payload()?.min(end);
        Some(Segment {
            tuple,
            // SYN takes a number, before the first byte.
            sequence: word(4).wrapping_add(is_syn.into()),
            ack: (flags & ACK != 0).then(|| word(8)),
            payload: start..end,
            missing: not_captured(headers, packet),
            is_syn,
            is_fin: flags & FIN != 0,
            is_rst: flags & RST != 0,
        })
    }

    /// Captured bytes of payload.
    pub(crate) fn len(&self) -> u64 {
        self.payload.len() as u64
    }
}

/// Bytes of an IP packet behind those that were captured, by its own length; by the frame's where it gives none.
fn not_captured(headers: &Headers, packet: Packet<'_>) -> u32 {
    let Packet { data, meta } = packet;
    let cut = meta.wire_len.saturating_sub(data.len() as u32);
    if cut == 0 {
        return 0;
    }
    let by_ip = headers.l3().and_then(|l3| {
        let (at, fixed) = match headers.ip()? {
            IpVersion::V4 => (2, 0),
            IpVersion::V6 => (4, 40),
        };
        let len: &[u8; 2] = data.get(l3 + at..)?.first_chunk()?;
        let len = usize::from(u16::from_be_bytes(*len));
        (len > 0).then(|| (l3 + fixed + len).saturating_sub(data.len()) as u32)
    });
    by_ip.map_or(cut, |by_ip| by_ip.min(cut))
}
