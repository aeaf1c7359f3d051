//! ISO network protocols: IS-IS (ISO 10589, RFC 1195), and the names of the others.
//!
//! ```text
//! network layer protocol 1 (0x83 IS-IS) | header length 1 | version 1 | id length 1 | type 1 | version 1 | 0 1 | areas 1
//! hello:    circuit 1, source 6, holding time 2, length 2, priority 1 (LAN), designated 7 (LAN)
//! link state: length 2, lifetime 2, id 8, sequence 4 ...      sequence numbers: length 2, source 7 ...
//! ```

use crate::bytes::{Printed, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;
use crate::{link, net};

/// Network layer protocol identifiers (ISO/IEC TR 9577).
pub(crate) const NETWORK_PROTOCOLS: &[(u8, &str)] = &[
    (0x00, "NULL"),
    (0x08, "Q.933"),
    (0x09, "LMI"),
    (0x80, "SNAP"),
    (0x81, "CLNP"),
    (0x82, "ES-IS"),
    (0x83, "IS-IS"),
    (0x84, "CONS"),
    (0x85, "IDRP"),
    (0x8a, "X25 ES-IS"),
    (0x8e, "IPv6"),
    (0xb1, "FRF.15"),
    (0xc1, "ISIS_SPB"),
    (0xcc, "IPv4"),
    (0xcf, "PPP"),
];

const PACKETS: &[(u8, &str)] = &[
    (15, "L1 Lan IIH"),
    (16, "L2 Lan IIH"),
    (17, "p2p IIH"),
    (18, "L1 LSP"),
    (20, "L2 LSP"),
    (24, "L1 CSNP"),
    (25, "L2 CSNP"),
    (26, "L1 PSNP"),
    (27, "L2 PSNP"),
];

/// Prints one packet, of the protocol in its first byte.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "isoclns";
    let protocol = span.u8(0)?;
    let name = lookup(NETWORK_PROTOCOLS, protocol).unwrap_or("Unknown");
    if cx.options.link_header {
        put!(cx, "OSI NLPID {name} (0x{protocol:02x}): ");
    }
    match protocol {
        0x83 => print_isis(cx, span),
        0xcc => net::ipv4::print(cx, span.skip(1)),
        0x8e => net::ipv6::print(cx, span.skip(1)),
        0xcf => link::ppp::print(cx, span.skip(1)),
        0x08 => link::q933::print(cx, span.skip(1)),
        0x00 => {
            cx.text(if cx.options.link_header { "" } else { ", " });
            put!(cx, "length: {}", span.length);
            Ok(())
        }
        _ => {
            if !cx.options.link_header {
                match protocol {
                    0x81 | 0x82 => put!(cx, "OSI NLPID {name} (0x{protocol:02x}): "),
                    _ => put!(cx, "OSI NLPID 0x{protocol:02x} unknown, "),
                }
            }
            put!(cx, "length: {}", span.length);
            if span.length > 1 {
                cx.hex_lines("\n\t", span);
            }
            Ok(())
        }
    }
}

fn print_isis(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "isis";
    cx.text(if cx.options.link_header { "" } else { "IS-IS, " });
    let kind = span.u8(4)? & 0x1f;
    match lookup(PACKETS, kind) {
        Some(name) => cx.text(name),
        None => put!(cx, "unknown PDU Type {kind}"),
    }
    let body = span.skip(8);
    match kind {
        15 | 16 => {
            cx.text(", src-id ");
            print_id(cx, body.bytes(1, 6)?);
            cx.text(", lan-id ");
            print_id(cx, body.bytes(12, 7)?);
            put!(cx, ", prio {}", body.u8(11)? & 0x7f);
        }
        17 => {
            cx.text(", src-id ");
            print_id(cx, body.bytes(1, 6)?);
        }
        18 | 20 => {
            cx.text(", lsp-id ");
            print_id(cx, body.bytes(4, 8)?);
            put!(cx, ", seq 0x{:08x}, lifetime {:5}s", body.u32(12)?, body.u16(2)?);
        }
        24..=27 => {
            cx.text(", src-id ");
            print_id(cx, body.bytes(2, 7)?);
        }
        _ => {}
    }
    put!(cx, ", length {}", span.length);
    Ok(())
}

/// `1921.6800.1001.00-00`: a system, its pseudonode, the fragment of its link state.
fn print_id(cx: &mut Context<'_>, id: &[u8]) {
    for (index, &byte) in id.iter().enumerate() {
        cx.text(match index {
            2 | 4 | 6 => ".",
            7 => "-",
            _ => "",
        });
        cx.hex(byte, 2);
    }
}
