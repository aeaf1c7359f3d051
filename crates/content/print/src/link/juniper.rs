//! The headers that Juniper's routers put before captured packets.
//!
//! ```text
//! | "MGC" 3 | flags 1 | [length 2 | extensions: type 1, length 1, value] | [cookie] | frame of the link type |
//! flags: 0x80 extensions, 0x40 filter, 0x04 interface, 0x02 no link header, 0x01 incoming
//! ```
//!
//! The cookie comes from the card of the router (PIC): 0x47 begins one of 8 bytes, 0x54 one two bytes longer than
//! others of the card. Extensions below 128 are little-endian.

mod tables;

use tapline_packet::LinkType;

use super::{atm, cisco_hdlc, ethernet, frame_relay, mfr, mpls, ppp};
use crate::app;
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put, put_bits};
use crate::llc::iso;
use crate::net::{self, ipv4, ipv6};
use crate::text::Text;
use tables::{CARDS, ENCAPSULATIONS, EXTENSIONS, FLAGS, MEDIA};

const MAGIC: u32 = 0x4d_4743;
const INCOMING: u8 = 0x01;
const NO_LINK: u8 = 0x02;
const EXTENDED: u8 = 0x80;

const COOKIE_MAX: usize = 8;
/// First bytes of cookies of link services and adaptive services.
const LINK_SERVICES: u8 = 0x54;
const ADAPTIVE_SERVICES: u8 = 0x47;

/// Protocols in the cookie of adaptive services.
const IPV4: u16 = 0x00;
const IPV6: u16 = 0x10;
const MPLS: u16 = 0x20;
const ISO: u16 = 0x30;

const PPP_OSI: u16 = 0x0023;
const PPP_FRAMED: u16 = 0xff03;

/// Fields of the headers before the frame.
#[derive(Default)]
struct Header {
    len: usize,
    is_incoming: bool,
    cookie: [u8; COOKIE_MAX],
    cookie_len: usize,
    bundle: u16,
    protocol: u16,
    /// Bytes of the header that count as the frame's: a control word of ATM cells.
    extra: usize,
}

impl Header {
    fn cookie_word(&self) -> u32 {
        let [a, b, c, d, ..] = self.cookie;
        u32::from_be_bytes([a, b, c, d])
    }

    /// The bundle in a cookie of adaptive services.
    fn services_bundle(&self) -> u16 {
        u16::from_be_bytes([self.cookie[6], self.cookie[7]]) >> 3 & 0xfff
    }
}

/// The name in `[|name]` of a link type of Juniper's; `None` for others.
fn name(link_type: LinkType) -> Option<&'static str> {
    Some(match link_type {
        LinkType::JUNIPER_GGSN => "juniper_ggsn",
        LinkType::JUNIPER_ES => "juniper_es",
        LinkType::JUNIPER_MONITOR => "juniper_monitor",
        LinkType::JUNIPER_SERVICES => "juniper_services",
        LinkType::JUNIPER_PPPOE => "juniper_pppoe",
        LinkType::JUNIPER_ETHER => "juniper_ether",
        LinkType::JUNIPER_PPP => "juniper_ppp",
        LinkType::JUNIPER_FRELAY => "juniper_frelay",
        LinkType::JUNIPER_CHDLC => "juniper_chdlc",
        LinkType::JUNIPER_PPPOE_ATM => "juniper_pppoe_atm",
        LinkType::JUNIPER_MLPPP => "juniper_mlppp",
        LinkType::JUNIPER_MFR => "juniper_mfr",
        LinkType::JUNIPER_MLFR => "juniper_mlfr",
        LinkType::JUNIPER_ATM1 => "juniper_atm1",
        LinkType::JUNIPER_ATM2 => "juniper_atm2",
        _ => return None,
    })
}

/// Prints a packet. `false`, and nothing printed, if its type is not one of Juniper's.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>, link_type: LinkType) -> Result<bool, Cut> {
    let Some(name) = name(link_type) else { return Ok(false) };
    cx.protocol = name;
    let mut header = Header::default();
    if read(cx, span, link_type, &mut header)? {
        let length = span.length.saturating_sub(header.len - header.extra);
        frame(cx, span.skip(header.len).with_length(length), span, link_type, &header)?;
    }
    cx.link_header_len += header.len;
    Ok(true)
}

/// Reads and prints everything before the frame. Returns whether the frame is still to be printed.
fn read(cx: &mut Context<'_>, span: Span<'_>, link_type: LinkType, header: &mut Header) -> Result<bool, Cut> {
    let flags = span.u8(3)?;
    if span.u24(0)? != MAGIC {
        cx.text("no magic-number found!");
        return Ok(false);
    }
    header.is_incoming = flags & INCOMING != 0;
    if cx.options.link_header {
        cx.text(if header.is_incoming { " In " } else { "Out " });
    }
    if cx.verbose() > 1 {
        cx.text("\n\tJuniper PCAP Flags [");
        put_bits(cx, FLAGS, "none", ", ", u32::from(flags));
        cx.text("]");
    }
    let mut len = 4;
    if flags & EXTENDED != 0 {
        let extensions_len = usize::from(span.u16(4)?);
        len = 6 + extensions_len;
        if !extensions(cx, span.skip(6), extensions_len)? {
            return Ok(false);
        }
    }
    if flags & NO_LINK != 0 {
        cx.text(if cx.options.link_header { "no-L2-hdr, " } else { "" });
        span.need(len + 5)?;
        if !by_version(cx, span.skip(len + 4))? {
            cx.text("no IP-hdr found!");
        }
        header.len = len + 4;
        return Ok(false);
    }
    header.len = len;
    if let Some((_, cookie_len, card)) = CARDS.iter().find(|(card, ..)| *card == link_type)
        && !cookie(cx, span.skip(len), link_type, header, *cookie_len, card)?
    {
        return Ok(false);
    }
    by_card(cx, span.skip(len + header.cookie_len), link_type, header)?;
    if cx.options.link_header {
        put!(cx, "hlen {}, proto 0x{:04x}, ", header.len, header.protocol);
    }
    Ok(true)
}

/// `false` if they make no sense.
fn extensions(cx: &mut Context<'_>, mut span: Span<'_>, mut left: usize) -> Result<bool, Cut> {
    if cx.verbose() > 1 {
        put!(cx, ", PCAP Extension(s) total length {left}");
    }
    span.need(left)?;
    while left > 2 {
        let [kind, length] = span.array(0)?;
        if kind == 0 || length == 0 {
            break;
        }
        let size = usize::from(length);
        if left < size + 2 {
            put!(cx, " [extension_length {left} < {}]", size + 2);
            cx.invalid();
            return Ok(false);
        }
        if cx.verbose() > 1 {
            let name = lookup(EXTENSIONS, kind).unwrap_or("Unknown");
            put!(cx, "\n\t  {name} Extension TLV #{kind}, length {length}, value ");
        }
        let value = value(span.bytes(2, size)?, kind);
        if let (Some(value), true) = (value, cx.verbose() > 1) {
            match kind {
                2 => {}
                3 | 7 => put!(cx, "{} ({value})", lookup(MEDIA, value).unwrap_or("Unknown")),
                6 | 8 => put!(cx, "{} ({value})", lookup(ENCAPSULATIONS, value).unwrap_or("Unknown")),
                _ => put!(cx, "{value}"),
            }
        }
        span = span.skip(size + 2);
        left -= size + 2;
    }
    if cx.verbose() > 1 {
        cx.text("\n\t-----original packet-----\n\t");
    }
    Ok(true)
}

/// A number of one to four bytes; all ones is none.
fn value(bytes: &[u8], kind: u8) -> Option<u32> {
    let mut word = [0; 4];
    word.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let value = match kind {
        0..128 => u32::from_le_bytes(word),
        _ => u32::from_be_bytes(word) >> (32 - 8 * bytes.len()),
    };
    Some(value).filter(|value| *value != u32::MAX)
}

/// `false` if it is longer than any.
fn cookie(
    cx: &mut Context<'_>,
    span: Span<'_>,
    link_type: LinkType,
    header: &mut Header,
    cookie_len: usize,
    card: &str,
) -> Result<bool, Cut> {
    let first = span.u8(0)?;
    header.cookie_len = match first {
        LINK_SERVICES => cookie_len + 2,
        ADAPTIVE_SERVICES => COOKIE_MAX,
        _ => cookie_len,
    };
    // The links of a bundle have none.
    if link_type == LinkType::JUNIPER_MFR && first & 0xc0 == 0xc0 {
        header.cookie_len = 0;
    }
    header.len += header.cookie_len;
    if cx.options.link_header {
        put!(cx, "{card}-PIC, cookie-len {}", header.cookie_len);
    }
    if header.cookie_len > COOKIE_MAX {
        cx.invalid();
        return Ok(false);
    }
    let bytes = span.bytes(0, header.cookie_len)?;
    header.cookie[..bytes.len()].copy_from_slice(bytes);
    if cx.options.link_header {
        if !bytes.is_empty() {
            cx.text(", cookie 0x");
            bytes.iter().for_each(|byte| cx.hex(*byte, 2));
        }
        cx.text(": ");
    }
    header.protocol = span.u16(header.cookie_len)?;
    Ok(true)
}

/// Reads the cookie, whose meaning depends on the card. `rest` begins behind it.
fn by_card(cx: &mut Context<'_>, rest: Span<'_>, link_type: LinkType, header: &mut Header) -> Printed {
    match link_type {
        LinkType::JUNIPER_MLPPP | LinkType::JUNIPER_MLFR | LinkType::JUNIPER_MFR => match header.cookie[0] {
            ADAPTIVE_SERVICES => {
                header.bundle = header.services_bundle();
                header.protocol = u16::from(header.cookie[5]) & 0x170;
            }
            LINK_SERVICES => {
                header.bundle = u16::from(header.cookie[1]);
                if link_type != LinkType::JUNIPER_MLPPP {
                    header.protocol = rest.u16(0)?;
                    header.len += 2;
                }
            }
            _ => {
                header.bundle = u16::from(header.cookie[0]);
                if link_type == LinkType::JUNIPER_MLFR {
                    header.len += 2;
                }
            }
        },
        LinkType::JUNIPER_ATM2 => {
            let word = rest.u32(0)?;
            if header.cookie[7] & 0x70 != 0 {
                if matches!(word, 0 | 0x0800_0000 | 0x0838_0000) {
                    header.len += 4;
                    header.extra = 4;
                }
                if cx.options.link_header {
                    put!(cx, "control-word 0x{word:08x} ");
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// The frame; `span` is the packet from its first byte on.
fn frame(
    cx: &mut Context<'_>,
    rest: Span<'_>,
    span: Span<'_>,
    link_type: LinkType,
    header: &Header,
) -> Printed {
    match link_type {
        LinkType::JUNIPER_GGSN => support_node(cx, rest, header),
        LinkType::JUNIPER_ES => encryption(cx, rest),
        LinkType::JUNIPER_MONITOR => {
            rest.need(8)?;
            if cx.options.link_header {
                let (service, interface) = (rest.u32(4)?, rest.u16(2)?);
                put!(cx, "service-id {service}, iif {interface}, pkt-type {}: ", rest.u8(0)?);
            }
            by_version(cx, rest).map(drop)
        }
        LinkType::JUNIPER_SERVICES => {
            rest.need(8)?;
            if cx.options.link_header {
                let [service, flags] = rest.array(0)?;
                put!(cx, "service-id {service} flags 0x{flags:02x} ");
                put!(cx, "service-set-id 0x{:04x} iif {}: ", rest.u16(2)?, rest.u24(5)?);
            }
            by_version(cx, rest).map(drop)
        }
        LinkType::JUNIPER_PPPOE => ethernet::frame(cx, rest, "").map(drop),
        LinkType::JUNIPER_ETHER => {
            cx.link_header_len += ethernet::frame(cx, rest, "")?;
            Ok(())
        }
        LinkType::JUNIPER_PPP => ppp::print(cx, rest),
        LinkType::JUNIPER_FRELAY => frame_relay::print(cx, rest).map(drop),
        LinkType::JUNIPER_CHDLC => cisco_hdlc::print(cx, rest).map(drop),
        LinkType::JUNIPER_PPPOE_ATM => {
            let kind = rest.u16(0)?;
            if !net::ethertype(cx, rest.skip(2), kind)? {
                put!(cx, "unknown ethertype 0x{kind:04x}");
            }
            Ok(())
        }
        LinkType::JUNIPER_MLPPP => multilink_ppp(cx, rest, span, header),
        LinkType::JUNIPER_MFR => multilink_frame_relay(cx, rest, span, header),
        LinkType::JUNIPER_MLFR => {
            bundle(cx, header);
            match header.protocol {
                0x0003 | 0x0300 => iso::print(cx, rest),
                _ => by_network_protocol(cx, rest, span, header),
            }
        }
        _ => cells(cx, rest, link_type, header),
    }
}

fn bundle(cx: &mut Context<'_>, header: &Header) {
    if cx.options.link_header && header.cookie_word() != 1 {
        put!(cx, "Bundle-ID {}, ", header.bundle);
    }
}

/// Behind a control byte: the protocol's byte is the last one of the header.
fn by_network_protocol(cx: &mut Context<'_>, rest: Span<'_>, span: Span<'_>, header: &Header) -> Printed {
    match header.protocol {
        0x0308 | 0x03cc | 0x038e => {
            let from_protocol = span.skip(header.len - 1).with_length(rest.length + 1);
            iso::print(cx, from_protocol)
        }
        protocol => {
            put!(cx, "unknown protocol 0x{protocol:04x}, length {}", rest.length);
            Ok(())
        }
    }
}

fn support_node(cx: &mut Context<'_>, rest: Span<'_>, header: &Header) -> Printed {
    let protocol = header.cookie[2];
    if cx.options.link_header {
        let name = lookup(&[(1, "Null"), (2, "IPv4"), (6, "IPv6")], protocol).unwrap_or("Unknown");
        let vlan = u16::from_be_bytes([header.cookie[4], header.cookie[5]]);
        put!(cx, "proto {name} ({protocol}), vlan {vlan}: ");
    }
    match protocol {
        2 => ipv4::print(cx, rest),
        6 => ipv6::print(cx, rest),
        _ if cx.options.link_header => Ok(()),
        _ => {
            put!(cx, "unknown GGSN proto ({protocol})");
            Ok(())
        }
    }
}

/// Encryption services: association 2, TTL 1, type 1, SPI 4, source 4, destination 4; bundles keep these before the
/// packet.
fn encryption(cx: &mut Context<'_>, rest: Span<'_>) -> Printed {
    const TYPES: &[(u8, &str)] =
        &[(1, "ESP ENCR-AUTH"), (2, "ESP ENCR-AH AUTH"), (3, "ESP AUTH"), (4, "AH AUTH"), (5, "ESP ENCR")];
    rest.need(16)?;
    let kind = rest.u8(3)?;
    let Some(name) = lookup(TYPES, kind) else {
        put!(cx, "ES Invalid type {kind}, length {}", rest.length);
        return Ok(());
    };
    let is_bundle = kind <= 2;
    let packet = if is_bundle { rest } else { rest.skip(16) };
    if cx.options.link_header {
        put!(cx, "ES SA, index {}, ttl {} type {name} ({kind}), ", rest.u16(0)?, rest.u8(2)?);
        if !is_bundle {
            put!(cx, "spi {}, Tunnel ", rest.u32(4)?);
            cx.host(rest.array::<4>(8)?.into());
            cx.text(" > ");
            cx.host(rest.array::<4>(12)?.into());
            cx.text(", ");
        }
        put!(cx, "length {}\n", packet.length);
    }
    ipv4::print(cx, packet)
}

fn multilink_ppp(cx: &mut Context<'_>, rest: Span<'_>, span: Span<'_>, header: &Header) -> Printed {
    let cookie = (header.cookie_word() >> 16) as u16;
    if cx.options.link_header && !matches!(cookie, PPP_OSI | PPP_FRAMED) {
        put!(cx, "Bundle-ID {}: ", header.bundle);
    }
    match header.protocol {
        // Packets to the routing engine have no such cookie: this is IS-IS over PPP.
        IPV4 if header.cookie[4] == 0x0c => ppp::print(cx, rest),
        IPV4 => ipv4::print(cx, rest),
        IPV6 => ipv6::print(cx, rest),
        MPLS => mpls::print(cx, rest),
        ISO => iso::print(cx, rest),
        _ if cookie == PPP_OSI => ppp::print(cx, span.skip(header.len - 2).with_length(rest.length + 2)),
        _ => ppp::print(cx, rest),
    }
}

fn multilink_frame_relay(cx: &mut Context<'_>, rest: Span<'_>, span: Span<'_>, header: &Header) -> Printed {
    if header.cookie_len == 0 {
        return mfr::frame(cx, rest).map(drop);
    }
    if header.cookie_len == COOKIE_MAX {
        return match header.protocol {
            IPV4 => ipv4::print(cx, rest),
            IPV6 => ipv6::print(cx, rest),
            MPLS => mpls::print(cx, rest),
            ISO => iso::print(cx, rest),
            _ => Ok(()),
        };
    }
    bundle(cx, header);
    match header.protocol {
        0xfefe => {
            rest.need(1)?;
            iso::print(cx, rest.skip(1))
        }
        _ => by_network_protocol(cx, rest, span, header),
    }
}

/// Prints the payload of ATM cards: OAM cells, LLC, ISO protocols, Ethernet, PPP, IP, distinguished by their first
/// bytes.
fn cells(cx: &mut Context<'_>, rest: Span<'_>, link_type: LinkType, header: &Header) -> Printed {
    let is_second = link_type == LinkType::JUNIPER_ATM2;
    let is_operation = if is_second { header.cookie[7] & 0x70 != 0 } else { header.cookie[0] == 0x80 };
    if is_operation {
        return atm::oam(cx, rest, false);
    }
    if matches!(rest.u24(0)?, 0xfe_fe03 | 0xaa_aa03) && app::llc(cx, rest, None, None)?.known {
        return Ok(());
    }
    if is_second && !header.is_incoming && header.cookie_word() & 0x3f != 0 {
        return ethernet::frame(cx, rest, "").map(drop);
    }
    if rest.u8(0)? == 3 {
        return iso::print(cx, rest.skip(1));
    }
    const PPP: [u16; 13] = [
        0x0021, 0x0023, 0x0281, 0x0283, 0x8021, 0x8023, 0x8281, 0xc021, 0xc023, 0xc223, 0x003d, 0x0057,
        0x8057,
    ];
    if is_second && PPP.contains(&rest.u16(0)?) {
        return ppp::print(cx, rest);
    }
    by_version(cx, rest).map(drop)
}

/// Prints an IP packet of the version in its first byte. Returns `false`, and prints nothing, if it is not IP.
fn by_version(cx: &mut Context<'_>, span: Span<'_>) -> Result<bool, Cut> {
    match span.u8(0)? {
        0x45..=0x4f => ipv4::print(cx, span)?,
        0x60..=0x6f => ipv6::print(cx, span)?,
        _ => return Ok(false),
    }
    Ok(true)
}
