//! ARCnet (RFC 1051, RFC 1201), with the header as the BSDs and as Linux capture it.
//!
//! ```text
//! BSD:    | source 1 | destination 1 | type 1 | [flag 1 | sequence 2 | [flag 0xff: type 1 | flag 1 | sequence 2]] |
//! Linux:  | source 1 | destination 1 | offset 2 | type 1 | [flag 1 | sequence 2] |
//! ```
//!
//! The types of RFC 1051 have no flag and no sequence.

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::net;
use crate::net::{ipv4, ipv6};
use crate::text::Text;

const OLD_IP: u8 = 240;
const OLD_ARP: u8 = 241;
const DIAGNOSE: u8 = 0x80;
const IP: u8 = 212;
const ARP: u8 = 213;
const REVERSE_ARP: u8 = 214;
const IPV6: u8 = 0xc4;

const TYPES: &[(u8, &str)] = &[
    (OLD_IP, "oldip"),
    (OLD_ARP, "oldarp"),
    (IP, "ip"),
    (ARP, "arp"),
    (REVERSE_ARP, "rarp"),
    (221, "atalk"),
    (247, "banyan"),
    (250, "ipx"),
    (IPV6, "ipv6"),
    (DIAGNOSE, "diag"),
];

/// The flag of a header that is followed by the real one.
const EXCEPTION: u8 = 0xff;

/// The position of a packet among the fragments of a datagram.
#[derive(Clone, Copy)]
struct Fragment {
    flag: u8,
    sequence: u16,
}

fn has_fragments(kind: u8) -> bool {
    !matches!(kind, OLD_IP | OLD_ARP | DIAGNOSE)
}

/// Prints a packet as the BSDs capture it.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "arcnet";
    let Ok(kind) = span.u8(2) else {
        cx.link_header_len += span.captured();
        return Err(Cut);
    };
    let (header_len, fragment) = match has_fragments(kind) {
        false => (3, None),
        true if span.captured() < 6 => return cut_header(cx, span, " phds"),
        true if span.u8(3)? != EXCEPTION => (6, Some(Fragment { flag: span.u8(3)?, sequence: span.u16(4)? })),
        true if span.captured() < 10 => return cut_header(cx, span, " phds extended"),
        true => (10, Some(Fragment { flag: span.u8(7)?, sequence: span.u16(8)? })),
    };
    if cx.options.link_header {
        print_header(cx, span, fragment)?;
    }
    let is_later = fragment.is_some_and(|fragment| fragment.flag != 0 && fragment.flag & 1 == 0);
    if !is_later {
        payload(cx, span.skip(header_len), kind)?;
    }
    cx.link_header_len += header_len;
    Ok(())
}

/// Prints a packet as Linux captures it: put together from its fragments.
pub(super) fn print_linux(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "arcnet_linux";
    let header_len = match span.u8(4) {
        Ok(kind) if !has_fragments(kind) => 5,
        Ok(_) if span.captured() >= 8 => 8,
        _ => {
            cx.link_header_len += span.captured();
            return Err(Cut);
        }
    };
    if cx.options.link_header {
        print_header(cx, span, None)?;
    }
    payload(cx, span.skip(header_len), span.u8(4)?)?;
    cx.link_header_len += header_len;
    Ok(())
}

fn cut_header(cx: &mut Context<'_>, span: Span<'_>, what: &str) -> Printed {
    print_header(cx, span, None)?;
    cx.text(what);
    cx.link_header_len += span.captured();
    Err(Cut)
}

fn print_header(cx: &mut Context<'_>, span: Span<'_>, fragment: Option<Fragment>) -> Printed {
    cx.protocol = "arcnet";
    let [source, destination, kind] = span.array(0)?;
    put!(cx, "{source:02x} {destination:02x} ");
    if !cx.options.quiet {
        match lookup(TYPES, kind) {
            Some(name) => put!(cx, "{name} "),
            None => put!(cx, "{kind:02x} "),
        }
        if let Some(Fragment { flag, sequence }) = fragment {
            put!(cx, "seqid {sequence:04x} ");
            match flag {
                0 => {}
                flag if flag & 1 != 0 => put!(cx, "(first of {} fragments) ", (u16::from(flag) + 3) / 2),
                flag => put!(cx, "(fragment {}) ", flag / 2 + 1),
            }
        }
    }
    put!(cx, "{}: ", span.length);
    Ok(())
}

fn payload(cx: &mut Context<'_>, span: Span<'_>, kind: u8) -> Printed {
    match kind {
        OLD_IP | IP => ipv4::print(cx, span),
        IPV6 => ipv6::print(cx, span),
        OLD_ARP | ARP | REVERSE_ARP => net::ethertype(cx, span, super::ethertype::ARP).map(drop),
        _ => {
            cx.hex_and_ascii(span.with_length(span.captured()));
            Ok(())
        }
    }
}
