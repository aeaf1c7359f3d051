//! The pcap format, with the variants that are in the wild.
//!
//! ```text
//! file   = header record*
//! header = magic u32, major u16, minor u16, zone i32, digits u32, snap length u32, link type u32 [, Ixia: length u32]
//! record = seconds u32, fraction u32, captured length u32, wire length u32 [, more in variants], data
//!
//! link type = FCS length (4 bits, in units of 16 bits) ignored (1) FCS length is given (1) reserved (10, 0) LINKTYPE (16)
//! ```
//!
//! | magic | variant | fraction | record header |
//! |---|---|---|---|
//! | a1b2c3d4 | the standard | µs | 16 bytes |
//! | a1b23c4d | nanoseconds | ns | 16 |
//! | a1b2cd34 | Kuznetzov's patch: + interface index u32, protocol u16, packet type u8, pad | µs | 24 |
//! | a1b2cd34 | the same as SuSE 6.3 had it: + 4 bytes | µs | 28 |
//! | a1b2c3d4 | an early form of the patch (Red Hat 6.1) | µs | 24 |
//! | a1b2c3d4 | Nokia firewalls: + 4 bytes | µs | 20 |
//! | 1c0001ac, 1c0001ab | Ixia hardware, Ixia software: 4 bytes more in the file header | ns, µs | 16 |
//! | a12b3c4d | Navtel | ns | 16 |
//!
//! If one magic number has several layouts, the first records decide; if they cannot be seen (a pipe that has brought
//! no record yet), the layout is the one that libpcap takes. Sources: draft-ietf-opsawg-pcap; libpcap `sf-pcap.c`;
//! wiretap `libpcap.c` for SuSE, Red Hat, Nokia and Ixia.

use tapline_packet::{Direction, Interface, LinkType, Meta, PacketType, Record, Resolution, Timestamp};

use super::pseudo_header::PseudoHeader;
use super::scout::CHAIN_LEN;
use super::{Fault, ParseOutput, Stop, Window};
use crate::byte_order::ByteOrder;

pub(crate) const MAGIC_MICRO: u32 = 0xa1b2_c3d4;
pub(crate) const MAGIC_NANO: u32 = 0xa1b2_3c4d;
const MAGIC_PATCHED: u32 = 0xa1b2_cd34;
const MAGIC_IXIA_HARDWARE: u32 = 0x1c00_01ac;
const MAGIC_IXIA_SOFTWARE: u32 = 0x1c00_01ab;
const MAGIC_NAVTEL: u32 = 0xa12b_3c4d;

pub(crate) const FILE_HEADER_LEN: usize = 24;
pub(crate) const RECORD_HEADER_LEN: usize = 16;

/// The link type's upper bits: an FCS length is given; how many units of 16 bits it has.
pub(crate) const FCS_PRESENT: u32 = 1 << 26;
pub(crate) const FCS_LEN_SHIFT: u32 = 28;
/// The bits of the same field that are 0.
const LINK_TYPE_RESERVED: u32 = 0x03ff_0000;

/// Records that are looked at before a layout is doubted, as many as wiretap tries.
const FIRST_RECORDS: usize = 3;

/// Packets longer than this on the wire are a sign of a wrong layout: the longest D-Bus message.
const TRIAL_WIRE_LEN_MAX: u32 = 128 << 20;

/// The times of records in a row differ by no more, if a guess shall be likely.
const NEAR_SECONDS: u32 = 3600;

/// Whether the magic number at the start of a file is that of a pcap file, and in which byte order.
pub(crate) fn byte_order(magic: [u8; 4]) -> Option<ByteOrder> {
    [ByteOrder::Little, ByteOrder::Big].into_iter().find(|order| variant(order.u32(&magic, 0)).is_some())
}

/// Reads records.
#[derive(Clone, Debug)]
pub(crate) struct Parser {
    order: ByteOrder,
    layout: Layout,
    lengths: Lengths,
    /// Nanoseconds in a unit of the fraction: 1 or 1000.
    fraction_ns: i64,
    link_type: LinkType,
    pseudo_header: Option<PseudoHeader>,
}

/// The form of a record's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Standard,
    Patched,
    PatchedSuse,
    Nokia,
}

impl Layout {
    fn len(self) -> usize {
        match self {
            Layout::Standard => RECORD_HEADER_LEN,
            Layout::Nokia => 20,
            Layout::Patched => 24,
            Layout::PatchedSuse => 28,
        }
    }
}

/// The order of a record's two lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lengths {
    CapturedFirst,
    WireFirst,
    /// Version 2.3: both are in the wild; the captured length cannot be the greater one.
    Either,
}

struct Variant {
    resolution: Resolution,
    layouts: &'static [Layout],
    header_len: usize,
}

fn variant(magic: u32) -> Option<Variant> {
    let standard =
        |resolution| Variant { resolution, layouts: &[Layout::Standard], header_len: FILE_HEADER_LEN };
    Some(match magic {
        MAGIC_MICRO => {
            let layouts = &[Layout::Standard, Layout::Patched, Layout::Nokia];
            Variant { layouts, ..standard(Resolution::MICRO) }
        }
        MAGIC_NANO | MAGIC_NAVTEL => standard(Resolution::NANO),
        MAGIC_PATCHED => {
            Variant { layouts: &[Layout::Patched, Layout::PatchedSuse], ..standard(Resolution::MICRO) }
        }
        MAGIC_IXIA_HARDWARE => Variant { header_len: FILE_HEADER_LEN + 4, ..standard(Resolution::NANO) },
        MAGIC_IXIA_SOFTWARE => Variant { header_len: FILE_HEADER_LEN + 4, ..standard(Resolution::MICRO) },
        _ => return None,
    })
}

/// The file header.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) parser: Parser,
    pub(crate) interface: Interface,
    /// Length in bytes: 24 or 28.
    pub(crate) len: usize,
}

/// Bytes of the file header, by its first four.
pub(crate) fn header_len(magic: [u8; 4]) -> usize {
    let Some(order) = byte_order(magic) else { return FILE_HEADER_LEN };
    variant(order.u32(&magic, 0)).map_or(FILE_HEADER_LEN, |variant| variant.header_len)
}

impl Header {
    /// Reads the header of a file that [`byte_order`] knows; `bytes` holds at least [`header_len`] bytes and what
    /// else has come of the file.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Header, Fault> {
        let no_pcap = || Fault::new("the magic number is not that of a pcap file".to_owned());
        let magic = *bytes.first_chunk().ok_or_else(no_pcap)?;
        let order = byte_order(magic).ok_or_else(no_pcap)?;
        let variant = variant(order.u32(&magic, 0)).ok_or_else(no_pcap)?;
        let lengths = lengths(order.u16(bytes, 4), order.u16(bytes, 6))?;
        check_link_field(order.u32(bytes, 20))?;
        let interface = interface(order.u32(bytes, 16), order.u32(bytes, 20), variant.resolution);
        let link_type = interface.link_type;
        let mut parser = Parser {
            order,
            layout: variant.layouts[0],
            lengths,
            fraction_ns: if variant.resolution == Resolution::NANO { 1 } else { 1000 },
            link_type,
            pseudo_header: PseudoHeader::to_swap(order, link_type),
        };
        // Files of other versions than 2.4 were written before the patches, or not by them.
        if lengths == Lengths::CapturedFirst {
            parser.choose_layout(variant.layouts, &bytes[variant.header_len..], interface.snap_len);
        }
        Ok(Header { parser, interface, len: variant.header_len })
    }
}

/// libpcap reads versions 2.0 to 2.4, and 543.0, which DG/UX wrote.
fn lengths(major: u16, minor: u16) -> Result<Lengths, Fault> {
    match (major, minor) {
        (2, 4) => Ok(Lengths::CapturedFirst),
        (2, 3) => Ok(Lengths::Either),
        (2, 0..3) | (543, 0) => Ok(Lengths::WireFirst),
        _ => Err(Fault::unsupported(
            format!("this is version {major}.{minor} of the pcap format; 2.0 to 2.4 can be read"),
            match major {
                0 | 1 => "archaic pcap savefile format".to_owned(),
                _ => format!("unsupported pcap savefile version {major}.{minor}"),
            },
        )),
    }
}

/// The bits between the FCS length and the link type, which are 0 (draft-ietf-opsawg-pcap: *Reserved3*). Up to 1.10.3
/// libpcap takes them for part of the link type, later versions refuse them. The bit above [`FCS_PRESENT`] is ignored
/// by all.
fn check_link_field(link_field: u32) -> Result<(), Fault> {
    match link_field & LINK_TYPE_RESERVED {
        0 => Ok(()),
        bits => {
            let text = format!("savefile linktype reserved bits set (0x{bits:08x})");
            Err(Fault::unsupported(text.clone(), text))
        }
    }
}

fn interface(snap_len: u32, link_field: u32, resolution: Resolution) -> Interface {
    let mut interface = Interface::new("", LinkType::from_dlt(link_field as u16));
    // libpcap takes 0 and what does not fit an int as "no limit".
    interface.snap_len = if snap_len > i32::MAX as u32 { 0 } else { snap_len };
    interface.resolution = resolution;
    interface.fcs_len = (link_field & FCS_PRESENT != 0).then_some((link_field >> FCS_LEN_SHIFT) as u8 * 2);
    interface
}

/// One record's header, as numbers.
struct RecordHeader {
    seconds: u32,
    fraction: u32,
    cap_len: u32,
    wire_len: u32,
}

impl Parser {
    /// Walks the window until the batch is full or a record is not there as a whole.
    pub(crate) fn parse(
        &mut self,
        window: &mut Window<'_>,
        found: &mut ParseOutput<'_>,
    ) -> Result<Stop, Fault> {
        match (self.is_plain(), self.order == ByteOrder::NATIVE) {
            (true, true) => self.parse_plain::<false>(window, found),
            (true, false) => self.parse_plain::<true>(window, found),
            _ => self.parse_any(window, found),
        }
    }

    /// Bytes of a record's header.
    pub(crate) fn record_header_len(&self) -> usize {
        self.layout.len()
    }

    /// Whether records are as nearly every file has them.
    pub(super) fn is_plain(&self) -> bool {
        self.layout == Layout::Standard
            && self.lengths == Lengths::CapturedFirst
            && self.pseudo_header.is_none()
    }

    /// As [`parse_any`](Self::parse_any), for plain records: without the checks of the variants at each of them.
    fn parse_plain<const FOREIGN: bool>(
        &self,
        window: &mut Window<'_>,
        found: &mut ParseOutput<'_>,
    ) -> Result<Stop, Fault> {
        let cap_len_max = self.link_type.snap_len_max();
        while !found.is_full() {
            let Some(bytes) = window.rest().first_chunk::<RECORD_HEADER_LEN>() else {
                return Ok(Stop::need("packet header", RECORD_HEADER_LEN));
            };
            let [seconds, fraction, cap_len, wire_len] = words::<FOREIGN>(bytes);
            if cap_len > cap_len_max {
                return Err(self.too_long(cap_len));
            }
            let record_len = RECORD_HEADER_LEN + cap_len as usize;
            if window.rest().len() < record_len {
                return Ok(Stop::need("packet", record_len));
            }
            let meta = Meta { timestamp: self.timestamp(seconds, fraction), wire_len, ..Meta::default() };
            found.records.push(Record {
                offset: window.at + RECORD_HEADER_LEN,
                cap_len,
                options_len: 0,
                meta,
            });
            window.at += record_len;
        }
        Ok(Stop::Full)
    }

    /// Parses plain records as far as they are whole and make sense.
    pub(super) fn parse_likely(&self, window: &mut Window<'_>, records: &mut Vec<Record>) {
        let mut found = ParseOutput { interfaces: &mut Vec::new(), records, records_max: usize::MAX };
        // The parser that comes here in turn says what is wrong.
        let _ended = match self.order == ByteOrder::NATIVE {
            true => self.parse_plain::<false>(window, &mut found),
            false => self.parse_plain::<true>(window, &mut found),
        };
    }

    /// Whether a chain of plain records begins here whose headers make sense, and whose times are near each other.
    pub(super) fn is_likely_start(&self, bytes: &[u8], at: usize, snap_len: u32) -> bool {
        let mut rest = bytes.get(at..).unwrap_or_default();
        let mut first_seconds = None;
        (0..CHAIN_LEN).all(|_| {
            let Some(header_bytes) = rest.get(..RECORD_HEADER_LEN) else { return false };
            let header = self.header(header_bytes);
            let first_seconds = *first_seconds.get_or_insert(header.seconds);
            rest = rest.get(RECORD_HEADER_LEN + header.cap_len as usize..).unwrap_or_default();
            self.is_likely(&header, snap_len) && header.seconds.abs_diff(first_seconds) <= NEAR_SECONDS
        })
    }

    fn is_likely(&self, header: &RecordHeader, snap_len: u32) -> bool {
        let snap_len = if snap_len == 0 { u32::MAX } else { snap_len };
        // Zeros, which much data has, are no record.
        let is_wire_len = (1..=TRIAL_WIRE_LEN_MAX).contains(&header.wire_len);
        let cap_len_max = header.wire_len.min(snap_len).min(self.link_type.snap_len_max());
        let is_fraction = i64::from(header.fraction) * self.fraction_ns < 1_000_000_000;
        is_wire_len && header.cap_len <= cap_len_max && is_fraction
    }

    fn parse_any(&mut self, window: &mut Window<'_>, found: &mut ParseOutput<'_>) -> Result<Stop, Fault> {
        let header_len = self.layout.len();
        while !found.is_full() {
            let Some(header_bytes) = window.rest().get(..header_len) else {
                return Ok(Stop::need("packet header", header_len));
            };
            let header = self.header(header_bytes);
            if header.cap_len > self.link_type.snap_len_max() {
                return Err(self.too_long(header.cap_len));
            }
            let record_len = header_len + header.cap_len as usize;
            if window.rest().len() < record_len {
                return Ok(Stop::need("packet", record_len));
            }
            let record = self.record(&header, header_bytes, window.at + header_len);
            window.at += record_len;
            if let Some(pseudo_header) = self.pseudo_header {
                let end = record.offset + record.cap_len as usize;
                pseudo_header.swap(&mut window.bytes[record.offset..end]);
            }
            found.records.push(record);
        }
        Ok(Stop::Full)
    }

    #[inline]
    fn header(&self, bytes: &[u8]) -> RecordHeader {
        let first = self.order.u32(bytes, 8);
        let second = self.order.u32(bytes, 12);
        let (cap_len, wire_len) = match self.lengths {
            Lengths::CapturedFirst => (first, second),
            Lengths::WireFirst => (second, first),
            Lengths::Either => (first.min(second), first.max(second)),
        };
        RecordHeader {
            seconds: self.order.u32(bytes, 0),
            fraction: self.order.u32(bytes, 4),
            cap_len,
            wire_len,
        }
    }

    #[inline]
    fn record(&self, header: &RecordHeader, bytes: &[u8], offset: usize) -> Record {
        let timestamp = self.timestamp(header.seconds, header.fraction);
        let mut meta = Meta { timestamp, wire_len: header.wire_len, ..Meta::default() };
        if matches!(self.layout, Layout::Patched | Layout::PatchedSuse) {
            meta.if_index = self.order.u32(bytes, 16);
            meta.packet_type = PacketType::from_kernel(bytes[22]);
            meta.direction = direction(meta.packet_type);
        }
        Record { offset, cap_len: header.cap_len, options_len: 0, meta }
    }

    /// 32 bits of seconds and of a fraction, even one beyond a second, stay far below 2^63 ns.
    #[inline]
    fn timestamp(&self, seconds: u32, fraction: u32) -> Timestamp {
        Timestamp::from_nanos(i64::from(seconds) * 1_000_000_000 + i64::from(fraction) * self.fraction_ns)
    }

    fn too_long(&self, cap_len: u32) -> Fault {
        let (link_type, max) = (self.link_type, self.link_type.snap_len_max());
        let reason = format!(
            "the packet header gives {cap_len} captured bytes; a packet of link type {link_type} has at most {max}"
        );
        Fault { cap_len: Some(cap_len), ..Fault::new(reason) }
    }

    /// Takes the first layout unless the first records are odd in it, and another fits all records that have come
    /// perfectly and finds more of them. A layout that is not the file's loses the records after one or two, so odd
    /// records of the first layout, such as more captured bytes than on the wire, do not make it another one.
    fn choose_layout(&mut self, layouts: &[Layout], records: &[u8], snap_len: u32) {
        if self.trial(records, snap_len, FIRST_RECORDS).doubts == 0 {
            return;
        }
        let known = self.trial(records, snap_len, usize::MAX).whole;
        for &layout in &layouts[1..] {
            let parser = Parser { layout, pseudo_header: None, ..*self };
            let trial = parser.trial(records, snap_len, usize::MAX);
            if trial.doubts == 0 && trial.whole > known.max(1) {
                self.layout = layout;
                return;
            }
        }
    }

    /// Reads up to `records_max` records in this layout and counts odd ones. An incomplete record is not odd.
    fn trial(&self, records: &[u8], snap_len: u32, records_max: usize) -> Trial {
        let mut trial = Trial::default();
        let mut at = 0usize;
        while trial.whole < records_max {
            let Some(bytes) = records.get(at..at + self.layout.len()) else { break };
            let header = self.header(bytes);
            trial.doubts += self.header_doubts(&header, bytes, snap_len);
            let end = at.saturating_add(self.layout.len()).saturating_add(header.cap_len as usize);
            if end > records.len() {
                break;
            }
            at = end;
            trial.whole += 1;
        }
        trial
    }

    fn header_doubts(&self, header: &RecordHeader, bytes: &[u8], snap_len: u32) -> u32 {
        let snap_len = if snap_len == 0 { u32::MAX } else { snap_len };
        let mut doubts = u32::from(header.fraction >= 1_000_000)
            + u32::from(header.cap_len > self.link_type.snap_len_max())
            + u32::from(header.cap_len > snap_len)
            + u32::from(header.cap_len > header.wire_len)
            + u32::from(header.wire_len > TRIAL_WIRE_LEN_MAX);
        if matches!(self.layout, Layout::Patched | Layout::PatchedSuse) {
            // In their days no host had ten thousand interfaces; packet types are 0 to 4.
            doubts += u32::from(self.order.u32(bytes, 16) > 10_000) + u32::from(bytes[22] > 4);
        }
        doubts
    }
}

/// The four numbers of a record's header.
#[inline]
fn words<const FOREIGN: bool>(bytes: &[u8; RECORD_HEADER_LEN]) -> [u32; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        let number = u32::from_ne_bytes(*bytes);
        *word = if FOREIGN { number.swap_bytes() } else { number };
    }
    words
}

/// The outcome of reading records in a layout.
#[derive(Default)]
struct Trial {
    doubts: u32,
    whole: usize,
}

fn direction(packet_type: PacketType) -> Direction {
    match packet_type {
        PacketType::Outgoing => Direction::Out,
        _ => Direction::In,
    }
}
