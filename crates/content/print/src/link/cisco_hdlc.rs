//! Cisco's framing of HDLC, and its address resolution and keep-alives (SLARP).
//!
//! ```text
//! | 0x0f unicast, 0x8f broadcast 1 | 0 1 | EtherType 2 | payload |
//! SLARP (0x8035): | code 4 | address 4, mask 4; or my sequence 4, yours 4 | reliability 2 | [uptime, ms 4] |
//! ```

use super::{ethertype, mpls};
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, put};
use crate::llc::iso;
use crate::net::{ipv4, ipv6};
use crate::text::Text;

const HEADER_LEN: usize = 4;
const SLARP: u16 = 0x8035;
const ISO: u16 = 0xfefe;
const SLARP_LEN: usize = 14;
const SLARP_UPTIME_LEN: usize = 18;

/// Prints a frame; how many bytes its header has.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Result<usize, Cut> {
    cx.protocol = "chdlc";
    if span.length < HEADER_LEN {
        cx.cut();
        return Ok(span.captured());
    }
    let protocol = span.u16(2)?;
    if cx.options.link_header {
        match span.u8(0)? {
            0x0f => cx.text("unicast"),
            0x8f => cx.text("bcast"),
            other => put!(cx, "0x{other:02x}"),
        }
        let name = ethertype::name(protocol).unwrap_or("Unknown");
        put!(cx, ", ethertype {name} (0x{protocol:04x}), length {}: ", span.length);
    }
    let rest = span.skip(HEADER_LEN);
    match protocol {
        ethertype::IPV4 => ipv4::print(cx, rest)?,
        ethertype::IPV6 => ipv6::print(cx, rest)?,
        SLARP => slarp(cx, rest)?,
        ethertype::MPLS | ethertype::MPLS_MULTICAST => mpls::print(cx, rest)?,
        ISO if rest.length < 2 => {
            cx.cut();
            return Ok(span.captured());
        }
        // Some senders have a byte of padding before the protocol's.
        ISO if matches!(rest.u8(1)?, 0x81..=0x83) => iso::print(cx, rest.skip(1))?,
        ISO => iso::print(cx, rest)?,
        _ if cx.options.link_header => {}
        _ => put!(cx, "unknown CHDLC protocol (0x{protocol:04x})"),
    }
    Ok(HEADER_LEN)
}

fn slarp(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "chdlc_slarp";
    put!(cx, "SLARP (length: {}), ", span.length);
    if span.length < SLARP_LEN || span.need(SLARP_LEN).is_err() {
        cx.cut();
        return Ok(());
    }
    let body = span.skip(4);
    let mut dumped = body;
    match span.u32(0)? {
        0 => cx.text("request"),
        1 => {
            cx.text("reply ");
            cx.ipv4(span.array(4)?);
            cx.text("/");
            cx.ipv4(span.array(8)?);
        }
        2 => {
            keep_alive(cx, span)?;
            // tcpdump shows what stands behind the uptime, if there is one.
            if span.length >= SLARP_UPTIME_LEN {
                dumped = span.skip(SLARP_UPTIME_LEN).with_length(body.length);
            }
        }
        code => {
            put!(cx, "0x{code:02x} unknown");
            if cx.verbose() <= 1 {
                cx.hex_lines("\n\t", body);
            }
        }
    }
    if span.length > SLARP_UPTIME_LEN && cx.verbose() > 0 {
        put!(cx, ", (trailing junk: {} bytes)", span.length - SLARP_UPTIME_LEN);
    }
    if cx.verbose() > 1 {
        cx.hex_lines("\n\t", dumped);
    }
    Ok(())
}

fn keep_alive(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    let (mine, yours, reliability) = (span.u32(4)?, span.u32(8)?, span.u16(12)?);
    put!(cx, "keepalive: mineseen=0x{mine:08x}, yourseen=0x{yours:08x}, reliability=0x{reliability:04x}");
    if span.length >= SLARP_UPTIME_LEN {
        let seconds = span.u32(SLARP_LEN)? / 1000;
        let (minutes, hours) = (seconds / 60, seconds / 3600);
        put!(cx, ", link uptime={}d{}h{}m{}s", hours / 24, hours % 24, minutes % 60, seconds % 60);
    }
    Ok(())
}
