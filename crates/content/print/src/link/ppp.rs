//! PPP (RFC 1661).
//!
//! ```text
//! | [address 0xff, control 0x03] | protocol 1 (odd) or 2 | payload |
//! control protocols: | code 1 | id 1 | length 2 | options (type 1, length 1, value)... |
//! ```

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::link::{ethertype, mpls};
use crate::llc::iso;
use crate::net::{ipv4, ipv6};
use crate::text::Text;

mod authentication;
mod control;

/// Bytes that `-x` leaves out whatever the header holds.
const HEADER_LEN: usize = 4;

const IP: u16 = 0x0021;
const VJ_UNCOMPRESSED: u16 = 0x002f;
const MULTILINK: u16 = 0x003d;
const OSI: u16 = 0x0023;
const IPV6: u16 = 0x0057;
const COMPRESSED: u16 = 0x00fd;
const MPLS_UNICAST: u16 = 0x0281;
const MPLS_MULTICAST: u16 = 0x0283;
const IPCP: u16 = 0x8021;
const OSICP: u16 = 0x8023;
const IPV6CP: u16 = 0x8057;
const CCP: u16 = 0x80fd;
const MPLSCP: u16 = 0x8281;
const LCP: u16 = 0xc021;
const PAP: u16 = 0xc023;
const LQM: u16 = 0xc025;
const SPAP_OLD: u16 = 0xc123;
const SPAP: u16 = 0xc027;
const BACP: u16 = 0xc02b;
const BAP: u16 = 0xc02d;
const CHAP: u16 = 0xc223;
const EAP: u16 = 0xc227;

const NAMES: &[(u16, &str)] = &[
    (IP, "IP"),
    (OSI, "OSI"),
    (0x0025, "NS"),
    (0x0027, "DECNET"),
    (0x0029, "APPLE"),
    (0x002b, "IPX"),
    (0x002d, "VJC IP"),
    (VJ_UNCOMPRESSED, "VJNC IP"),
    (0x0031, "BRPDU"),
    (0x0033, "STII"),
    (0x0035, "VINES"),
    (MPLS_UNICAST, "MPLS"),
    (MPLS_MULTICAST, "MPLS"),
    (COMPRESSED, "Compressed"),
    (MULTILINK, "MLPPP"),
    (IPV6, "IP6"),
    (0x0201, "HELLO"),
    (0x0231, "LUXCOM"),
    (0x0233, "SNS"),
    (IPCP, "IPCP"),
    (OSICP, "OSICP"),
    (0x8025, "NSCP"),
    (0x8027, "DECNETCP"),
    (0x8029, "APPLECP"),
    (0x802b, "IPXCP"),
    (0x8033, "STIICP"),
    (0x8035, "VINESCP"),
    (IPV6CP, "IP6CP"),
    (MPLSCP, "MPLSCP"),
    (LCP, "LCP"),
    (PAP, "PAP"),
    (LQM, "LQM"),
    (CHAP, "CHAP"),
    (EAP, "EAP"),
    (SPAP, "SPAP"),
    (SPAP_OLD, "Old-SPAP"),
    (BACP, "BACP"),
    (BAP, "BAP"),
    (0x803d, "MLPPP-CP"),
    (CCP, "CCP"),
];

/// Prints a packet of the link type PPP.
pub(super) fn link(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "ppp";
    if span.captured() < HEADER_LEN {
        cx.cut();
        cx.link_header_len += span.captured();
        return Ok(());
    }
    cx.link_header_len += HEADER_LEN;
    print(cx, span)
}

/// Prints a packet of the link type PPP_HDLC, which always has address and control.
pub(super) fn framed_link(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "ppp_hdlc";
    if span.captured() < 4 {
        cx.cut();
        cx.link_header_len += span.captured();
        return Ok(());
    }
    let (address, control) = (span.u8(0)?, span.u8(1)?);
    if cx.options.link_header {
        put!(cx, "{address:02x} {control:02x} {} ", span.length);
    }
    if address != 0xff {
        put!(cx, "unknown addr {address:02x}; ctrl {control:02x}");
        cx.link_header_len += 2;
        return Ok(());
    }
    let protocol = span.u16(2)?;
    match lookup(NAMES, protocol) {
        Some(name) => put!(cx, "{name}: "),
        None => put!(cx, "unknown PPP protocol (0x{protocol:04x}): "),
    }
    payload(cx, span.skip(4), protocol)?;
    cx.link_header_len += 4;
    Ok(())
}

/// Prints a PPP packet, with or without address and control.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "ppp";
    if span.length < 2 {
        cx.cut();
        return Ok(());
    }
    let mut rest = span;
    let head = span.u16(0)?;
    let direction = match head {
        0x0003 => Some("In  "),
        0x0103 => Some("Out "),
        0xff03 => Some(""),
        _ => None,
    };
    if let Some(direction) = direction {
        if cx.options.link_header {
            cx.text(direction);
        }
        rest = rest.skip(2);
    }
    if rest.length < 2 {
        cx.cut();
        return Ok(());
    }
    let (protocol, rest) = match rest.u8(0)? {
        odd if odd % 2 == 1 => (u16::from(odd), rest.skip(1)),
        _ => (rest.u16(0)?, rest.skip(2)),
    };
    if cx.options.link_header {
        let known = name(protocol);
        put!(cx, "{} (0x{protocol:04x}), length {}", known.unwrap_or("unknown"), span.length);
        if known.is_none() {
            return Ok(());
        }
        cx.text(": ");
    }
    payload(cx, rest, protocol)
}

fn payload(cx: &mut Context<'_>, span: Span<'_>, protocol: u16) -> Printed {
    match protocol {
        LCP | IPCP | OSICP | MPLSCP | IPV6CP | CCP | BACP => control::print(cx, span, protocol),
        MULTILINK => multilink(cx, span),
        CHAP => authentication::challenge(cx, span),
        PAP => authentication::password(cx, span),
        BAP => Ok(()),
        IP | ethertype::IPV4 | VJ_UNCOMPRESSED => ipv4::print(cx, span),
        IPV6 | ethertype::IPV6 => ipv6::print(cx, span),
        MPLS_UNICAST | MPLS_MULTICAST => mpls::print(cx, span),
        OSI => iso::print(cx, span),
        COMPRESSED => {
            cx.text("compressed PPP data");
            Ok(())
        }
        _ => {
            match lookup(NAMES, protocol) {
                Some(name) => put!(cx, "{name} "),
                None => put!(cx, "unknown PPP protocol (0x{protocol:04x}) "),
            }
            cx.hex_lines("\n\t", span);
            Ok(())
        }
    }
}

fn multilink(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    if !cx.options.link_header {
        cx.text("MLPPP, ");
    }
    if span.length < 2 || span.captured() < 2 {
        cx.text("[|mlppp]");
        return Ok(());
    }
    let head = span.u16(0)?;
    let flags = match head >> 14 {
        0 => "none",
        1 => "end",
        2 => "begin",
        _ => "begin, end",
    };
    put!(cx, "seq 0x{:03x}, Flags [{flags}], length {}", head & 0x0fff, span.length);
    Ok(())
}

/// The name of a PPP protocol, if it has one.
fn name(protocol: u16) -> Option<&'static str> {
    lookup(NAMES, protocol)
}

/// Bytes that are shown as characters, if all were captured.
fn put_characters(
    cx: &mut Context<'_>,
    text: &str,
    span: Span<'_>,
    at: usize,
    count: usize,
) -> Result<(), Cut> {
    cx.text(text);
    let shown = count.min(span.captured().saturating_sub(at));
    cx.visible_all(span.bytes(at, shown)?);
    if shown < count { Err(Cut) } else { Ok(()) }
}
