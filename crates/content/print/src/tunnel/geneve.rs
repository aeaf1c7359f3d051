//! Geneve (RFC 8926).
//!
//! ```text
//! version 2 bits, options length 6 (in 4 bytes) | O C reserved 6 | protocol 2 | network identifier 3 | reserved 1
//! option = class 2, type 1 (top bit: critical), reserved 3 bits, length 5 (in 4 bytes), data
//! ```

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, put, put_bits};
use crate::link::{self, ethertype};
use crate::net;
use crate::text::Text;

const HEADER_LEN: usize = 8;
const OPTION_HEADER_LEN: usize = 4;
const ETHERNET: u16 = 0x6558;

const FLAGS: &[(u32, &str)] = &[
    (0x80, "O"),
    (0x40, "C"),
    (0x20, "R1"),
    (0x10, "R2"),
    (0x08, "R3"),
    (0x04, "R4"),
    (0x02, "R5"),
    (0x01, "R6"),
];

/// The header and its payload: `Geneve, Flags [none], vni 0x1: IP ...`.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "geneve";
    cx.text("Geneve");
    if span.length < HEADER_LEN {
        cx.invalid();
        return Ok(());
    }
    let first = span.u8(0)?;
    if first >> 6 != 0 {
        put!(cx, " ERROR: unknown-version {}", first >> 6);
        return Ok(());
    }
    let (flags, protocol, identifier, reserved) = (span.u8(1)?, span.u16(2)?, span.u24(4)?, span.u8(7)?);
    cx.text(", Flags [");
    put_bits(cx, FLAGS, "none", "", u32::from(flags));
    put!(cx, "], vni {identifier:#x}");
    if reserved != 0 {
        put!(cx, ", rsvd {reserved:#x}");
    }
    if cx.options.link_header {
        let name = ethertype::name(protocol).unwrap_or("unknown");
        put!(cx, ", proto {name} (0x{protocol:04x})");
    }
    let options_len = usize::from(first & 0x3f) * 4;
    let rest = span.skip(HEADER_LEN);
    if rest.length < options_len {
        put!(cx, " truncated-geneve - {} bytes missing", options_len - rest.length);
        return Ok(());
    }
    if rest.need(options_len).is_err() {
        cx.cut();
        return Ok(());
    }
    if options_len > 0 && !print_options(cx, rest, options_len)? {
        cx.invalid();
        return Ok(());
    }
    cx.text(if cx.verbose() == 0 { ": " } else { "\n\t" });
    print_payload(cx, protocol, rest.skip(options_len))
}

fn print_payload(cx: &mut Context<'_>, protocol: u16, span: Span<'_>) -> Printed {
    if net::ethertype(cx, span, protocol)? {
        return Ok(());
    }
    if protocol == ETHERNET {
        return link::ethernet::print(cx, span);
    }
    put!(cx, "geneve-proto-{protocol:#x}");
    Ok(())
}

/// `false` if an option does not fit.
fn print_options(cx: &mut Context<'_>, span: Span<'_>, length: usize) -> Result<bool, Cut> {
    if cx.verbose() == 0 {
        span.need(length)?;
        put!(cx, ", options [{length} bytes]");
        return Ok(true);
    }
    cx.text(", options [");
    let mut span = span.with_length(length);
    let mut separator = "";
    while span.length > 0 {
        if span.length < OPTION_HEADER_LEN {
            put!(cx, " [remaining options length {} < {OPTION_HEADER_LEN}]", span.length);
            return span.need(span.length).map(|()| false);
        }
        cx.text(separator);
        separator = ", ";
        let (class, kind) = (span.u16(0)?, span.u8(2)?);
        let length = OPTION_HEADER_LEN + usize::from(span.u8(3)? & 0x1f) * 4;
        let critical = if kind & 0x80 != 0 { "(C)" } else { "" };
        put!(cx, "class {} ({class:#x}) type {kind:#x}{critical} len {length}", class_name(class));
        if length > span.length {
            cx.text(" [bad length]");
            return span.need(span.length).map(|()| false);
        }
        print_option_data(cx, span, length)?;
        span = span.skip(length);
    }
    cx.text("]");
    Ok(true)
}

fn print_option_data(cx: &mut Context<'_>, span: Span<'_>, length: usize) -> Printed {
    if cx.verbose() < 2 || length <= OPTION_HEADER_LEN {
        return span.need(length);
    }
    cx.text(" data");
    for at in (OPTION_HEADER_LEN..length).step_by(4) {
        let word = span.u32(at)?;
        cx.text(" ");
        cx.hex(word, 8);
    }
    Ok(())
}

/// The organisation that defines an option class (IANA, "Geneve Option Class").
fn class_name(class: u16) -> &'static str {
    match class {
        0x0000..=0x00ff => "Standard",
        0x0100 => "Linux",
        0x0101 => "Open vSwitch",
        0x0102 => "Open Virtual Networking (OVN)",
        0x0103 => "In-band Network Telemetry (INT)",
        0x0104 => "VMware",
        0x0105 | 0x0108..=0x0110 => "Amazon",
        0x0106 | 0x0130 | 0x0131 => "Cisco",
        0x0107 => "Oracle",
        0x0111..=0x0118 => "IBM",
        0x0119..=0x0128 => "Ericsson",
        0x0129 => "Oxide",
        0x0132..=0x0135 => "Google",
        0x0136 => "InfoQuick",
        0xfff0..=0xffff => "Experimental",
        _ => "Unknown",
    }
}
