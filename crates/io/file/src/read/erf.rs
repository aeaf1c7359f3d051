//! ERF, the records of Endace DAG cards (<https://www.endace.com/erf-extensible-record-format-types.pdf>).
//!
//! ```text
//! record = time u64 (little endian: 2^-32 s since 1970), type u8, flags u8, record length u16,
//!          loss counter or colour u16, wire length u16     (the last three big endian)
//!          extension* [, sub-header], data, padding
//! type       bit 7: an extension follows; bits 0-6: the kind of record
//! flags      bits 0-1: the capture interface
//! extension  8 bytes; bit 7 of the first: another follows; bits 0-6: its kind; the rest, big endian, by its kind:
//!            3 classification: flags u24 (bits 4-19: user), number u32
//!            6 filter and hash: hash u8, colour u16, raw hash u32
//!            14 signature: payload hash u24, colour u8, flow hash u24
//!            16 flow: source u8, kind of hash u8, headers u8, flow hash u32
//! ```
//!
//! The colour of a packet is the field of the kinds 10, 11, 15, 16, 17, 19 and 20, else that of an extension: whatever
//! the filter on the card wrote there. Its hash is that of the last extension that has one.
//!
//! | kinds | sub-header | link type |
//! |---|---|---|
//! | Ethernet: 2, 11, 16, 20 | 2 bytes | Ethernet, with frame check sequence |
//! | PoS: 1, 10, 15, 19; multi-channel 5, 17 | none; 4 bytes | Cisco HDLC or PPP, by the first byte |
//! | IPv4 22, IPv6 23 | none | IPv4, IPv6 |
//! | InfiniBand 21 | none | InfiniBand |
//! | padding 48 | | skipped |
//! | all others (raw link 24, ATM, AAL, meta ...) | | ERF: the record as a whole, nothing is lost |
//!
//! There is no magic number; [`looks_like_records`] judges the first records as wiretap (`erf.c`) does, but takes times
//! that step back where the lengths of all records fit.

use std::ops::Range;

use tapline_packet::{Interface, InterfaceId, LinkType, Meta, Record, Resolution, Timestamp};

use super::{Fault, ParseOutput, Stop, Window};
use crate::byte_order::ByteOrder;

pub(crate) const HEADER_LEN: usize = 16;

/// Extension headers that one record may have. Cards write a few; the record's length bounds them too.
const EXTENSIONS_MAX: usize = 64;

const KIND_LEGACY: u8 = 0;
const KIND_PAD: u8 = 48;
/// The greatest kind that has been given out, but for padding.
const KIND_MAX: u8 = 27;

/// Records that are judged before a file is taken for ERF.
const TRIAL_RECORDS: usize = 20;
/// Times may step back by this much between interfaces, and forth by a year. Records whose lengths do not fit are taken
/// for those of another format otherwise.
const STEP_BACK_MAX: u64 = 1 << 32;
const STEP_FORTH_MAX: u64 = (365 * 24 * 3600) << 32;

/// Reads records.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    /// Interfaces met so far: the capture interface's number and the link type make one.
    interfaces: Vec<(u8, LinkType, InterfaceId)>,
}

/// A record's header, as numbers.
struct Header {
    time: u64,
    has_extension: bool,
    kind: u8,
    port: u8,
    len: usize,
    counter: u16,
    wire_len: u16,
}

impl Header {
    fn parse(bytes: &[u8; HEADER_LEN]) -> Header {
        Header {
            time: ByteOrder::Little.u64(bytes, 0),
            has_extension: bytes[8] & 0x80 != 0,
            kind: bytes[8] & 0x7f,
            port: bytes[9] & 3,
            len: usize::from(ByteOrder::Big.u16(bytes, 10)),
            counter: ByteOrder::Big.u16(bytes, 12),
            wire_len: ByteOrder::Big.u16(bytes, 14),
        }
    }
}

/// The common shapes of record kinds.
enum Content {
    Ethernet,
    Hdlc,
    MultiChannelHdlc,
    Plain(LinkType),
    Whole,
}

impl Content {
    fn of(kind: u8) -> Content {
        match kind {
            2 | 11 | 16 | 20 => Content::Ethernet,
            1 | 10 | 15 | 19 => Content::Hdlc,
            5 | 17 => Content::MultiChannelHdlc,
            21 => Content::Plain(LinkType::INFINIBAND),
            22 => Content::Plain(LinkType::IPV4),
            23 => Content::Plain(LinkType::IPV6),
            _ => Content::Whole,
        }
    }

    fn sub_header_len(&self) -> usize {
        match self {
            Content::Ethernet => 2,
            Content::MultiChannelHdlc => 4,
            _ => 0,
        }
    }
}

/// Whether the field of the loss counter holds losses: not in the kinds that colour or hash packets, and not if it
/// belongs to the record inside.
fn counts_losses(kind: u8) -> bool {
    matches!(kind, 1..=9 | 12..=14 | 18 | 21..=24)
}

/// Whether the field of the loss counter holds a colour.
fn is_colored(kind: u8) -> bool {
    matches!(kind, 10 | 11 | 15 | 16 | 17 | 19 | 20)
}

impl Parser {
    /// Walks the window until the batch is full or a record is not there as a whole.
    pub(crate) fn parse(
        &mut self,
        window: &mut Window<'_>,
        found: &mut ParseOutput<'_>,
    ) -> Result<Stop, Fault> {
        while !found.is_full() {
            let Some(bytes) = window.rest().first_chunk() else {
                return Ok(Stop::need("record header", HEADER_LEN));
            };
            let header = Header::parse(bytes);
            if header.len < HEADER_LEN {
                return Err(Fault::new(format!(
                    "a record has length {}; its header alone has {HEADER_LEN}",
                    header.len
                )));
            }
            if window.rest().len() < header.len {
                return Ok(Stop::need("record", header.len));
            }
            if header.kind != KIND_PAD {
                let record = self.record(&header, window, found.interfaces)?;
                found.records.push(record);
            }
            window.at += header.len;
        }
        Ok(Stop::Full)
    }

    fn record(
        &mut self,
        header: &Header,
        window: &Window<'_>,
        interfaces: &mut Vec<Interface>,
    ) -> Result<Record, Fault> {
        let bytes = &window.rest()[..header.len];
        let content = Content::of(header.kind);
        let data = data(header, &content, bytes)?;
        let class = Class::of(header, bytes);
        let link_type = link_type(&content, &bytes[data.clone()]);
        let interface = self.interface(header.port, link_type, interfaces);
        let whole = matches!(content, Content::Whole);
        let drops_before = if counts_losses(header.kind) { u64::from(header.counter) } else { 0 };
        let cap_len = data.len() as u32;
        let wire_len = if whole { cap_len } else { u32::from(header.wire_len) };
        let meta = Meta {
            timestamp: timestamp(header.time),
            wire_len,
            interface,
            drops_before,
            rx_hash: class.hash,
            color: class.color,
            ..Meta::default()
        };
        Ok(Record { offset: window.at + data.start, cap_len, options_len: 0, meta })
    }

    fn interface(&mut self, port: u8, link_type: LinkType, interfaces: &mut Vec<Interface>) -> InterfaceId {
        let known = self.interfaces.iter().find(|(p, l, _)| (*p, *l) == (port, link_type));
        if let Some(&(_, _, id)) = known {
            return id;
        }
        let id = InterfaceId(interfaces.len() as u32);
        let mut interface = Interface::new(&format!("port{port}"), link_type);
        interface.resolution = Resolution::Binary(32);
        interface.fcs_len = (link_type == LinkType::ETHERNET).then_some(4);
        interfaces.push(interface);
        self.interfaces.push((port, link_type, id));
        id
    }
}

/// The bytes of the packet in a record.
fn data(header: &Header, content: &Content, bytes: &[u8]) -> Result<Range<usize>, Fault> {
    if matches!(content, Content::Whole) {
        return Ok(0..bytes.len());
    }
    let start = after_extensions(header, bytes)? + content.sub_header_len();
    if start > bytes.len() {
        return Err(Fault::new(format!("a record of {} bytes has no room for its headers", bytes.len())));
    }
    // Bytes behind the wire length are padding.
    let end = bytes.len().min(start + usize::from(header.wire_len));
    Ok(start..end)
}

fn after_extensions(header: &Header, bytes: &[u8]) -> Result<usize, Fault> {
    let (mut at, mut more) = (HEADER_LEN, header.has_extension);
    for _ in 0..EXTENSIONS_MAX {
        if !more {
            return Ok(at);
        }
        let Some(first) = bytes.get(at) else { break };
        more = first & 0x80 != 0;
        at += 8;
    }
    Err(Fault::new("the extension headers of a record do not end within it".to_owned()))
}

/// The results of a card's classification of a packet.
#[derive(Default)]
struct Class {
    color: Option<u16>,
    /// 0 for none.
    hash: u32,
}

impl Class {
    /// Reads the extension headers, which [`after_extensions`] has found to end within the record.
    fn of(header: &Header, bytes: &[u8]) -> Class {
        let mut class = Class::default();
        let words = bytes.get(HEADER_LEN..).unwrap_or_default().chunks_exact(8).take(EXTENSIONS_MAX);
        let mut more = header.has_extension;
        for word in words.map_while(|word| std::mem::replace(&mut more, word[0] & 0x80 != 0).then_some(word))
        {
            let value = ByteOrder::Big.u64(word, 0);
            let (color, hash) = match word[0] & 0x7f {
                3 => (Some((value >> 36) as u16), None),
                6 => (Some((value >> 32) as u16), Some(value as u32)),
                14 => (Some((value >> 24 & 0xff) as u16), Some(value as u32 & 0xff_ffff)),
                16 => (None, Some(value as u32)),
                _ => (None, None),
            };
            class.color = color.or(class.color);
            class.hash = hash.unwrap_or(class.hash);
        }
        if is_colored(header.kind) {
            class.color = Some(header.counter);
        }
        class
    }
}

fn link_type(content: &Content, data: &[u8]) -> LinkType {
    match content {
        Content::Ethernet => LinkType::ETHERNET,
        Content::Plain(link_type) => *link_type,
        Content::Whole => LinkType::ERF,
        // RFC 1547, section 4.3.1: the address is 0x0f (unicast) or 0x8f (broadcast) in Cisco's framing.
        Content::Hdlc | Content::MultiChannelHdlc => match data.first() {
            Some(0x0f | 0x8f) => LinkType::C_HDLC,
            _ => LinkType::PPP_HDLC,
        },
    }
}

/// Rounded to the nearest nanosecond, as libpcap and wiretap do.
fn timestamp(time: u64) -> Timestamp {
    let nanos = ((time & 0xffff_ffff) * 1_000_000_000 + (1 << 31)) >> 32;
    Timestamp::from_parts((time >> 32) as i64, nanos)
}

/// Whether a file that begins with `bytes` can be ERF: at least one whole packet record, and nothing that cannot be
/// one.
pub(super) fn looks_like_records(bytes: &[u8]) -> bool {
    let (mut at, mut packets, mut last_time) = (0, 0, None);
    let (mut has_steps, mut has_misfit) = (false, false);
    for _ in 0..TRIAL_RECORDS {
        let rest = &bytes[at..];
        let Some(header) = rest.first_chunk().map(Header::parse) else { break };
        if header.len < HEADER_LEN || header.kind != KIND_PAD && !is_packet_kind(header.kind) {
            return false;
        }
        let whole = rest.get(..header.len);
        if header.kind != KIND_PAD {
            has_steps |= last_time.is_some_and(|last| is_step(last, header.time));
            last_time = Some(header.time);
            if let Some(record) = whole {
                let Some(fits) = lengths_fit(&header, record) else { return false };
                has_misfit |= !fits;
                packets += 1;
            }
        }
        if whole.is_none() {
            break;
        }
        at += header.len;
    }
    packets > 0 && !(has_steps && has_misfit)
}

/// Whether the whole of `bytes` is one record of a packet that [`Parser`] finds.
pub(crate) fn is_packet(bytes: &[u8]) -> bool {
    let Some(header) = bytes.first_chunk().map(Header::parse) else { return false };
    header.len == bytes.len()
        && is_packet_kind(header.kind)
        && data(&header, &Content::of(header.kind), bytes).is_ok()
}

fn is_packet_kind(kind: u8) -> bool {
    kind != KIND_LEGACY && kind <= KIND_MAX
}

fn is_step(last: u64, time: u64) -> bool {
    time.saturating_sub(last) > STEP_FORTH_MAX || last.saturating_sub(time) > STEP_BACK_MAX
}

/// Whether the length of a record is that of its packet, or the packet was cut; `None` if it has no room for its headers.
fn lengths_fit(header: &Header, record: &[u8]) -> Option<bool> {
    let content = Content::of(header.kind);
    let start = data(header, &content, record).ok()?.start;
    let is_padded_to_8 = record.len() - start < usize::from(header.wire_len) + 8;
    Some(matches!(content, Content::Whole) || is_padded_to_8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each kind of record has one or the other.
    #[test]
    fn the_field_of_a_kind_is_a_color_or_counts_losses() {
        assert!((1..=24).all(|kind| is_colored(kind) != counts_losses(kind)));
    }
}
