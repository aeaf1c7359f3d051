//! UDP (RFC 768).
//!
//! ```text
//! | source port 2 | destination port 2 | length 2, with this header | checksum 2 | payload |
//! ```

use crate::app;
use crate::bytes::{Cut, Printed, Span};
use crate::checksum;
use crate::context::{Context, put};
use crate::names::PortKind;
use crate::net::{Ip, protocol};
use crate::text::Text;
use crate::transport::{ChecksumResult, captured, print_ends, verify};

const HEADER_LEN: usize = 8;

/// Prints a UDP datagram.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>, ip: &Ip) -> Printed {
    cx.protocol = "udp";
    let (Ok(source), Ok(destination)) = (span.u16(0), span.u16(2)) else {
        print_hosts(cx, ip);
        cx.cut();
        return Ok(());
    };
    print_ends(cx, ip, protocol::UDP, PortKind::Udp, (source, destination));
    if span.length < HEADER_LEN {
        put!(cx, "truncated-udp {}", span.length);
        return Ok(());
    }
    let Ok(field) = span.u16(4) else {
        cx.cut();
        return Ok(());
    };
    // Zero stands for lengths that do not fit (RFC 2675).
    let total = if field == 0 && span.length > 65_535 { span.length } else { usize::from(field) };
    if total < HEADER_LEN {
        put!(cx, "truncated-udplength {total}");
        return Ok(());
    }
    if span.captured() < HEADER_LEN {
        cx.cut();
        return Ok(());
    }
    let declared = total - HEADER_LEN;
    let payload = span.skip(HEADER_LEN);
    let payload = payload.with_length(payload.length.min(declared));
    datagram(cx, Datagram { span, payload, declared, source, destination }, ip)
}

fn print_hosts(cx: &mut Context<'_>, ip: &Ip) {
    if ip.protocol == protocol::UDP {
        cx.host(ip.source);
        cx.text(" > ");
        cx.host(ip.destination);
        cx.text(": ");
    }
}

struct Datagram<'p> {
    span: Span<'p>,
    payload: Span<'p>,
    /// Payload bytes as the header says.
    declared: usize,
    source: u16,
    destination: u16,
}

fn datagram(cx: &mut Context<'_>, udp: Datagram<'_>, ip: &Ip) -> Printed {
    if cx.verbose() > 0 && cx.options.verify_checksums && !ip.fragmented {
        print_checksum(cx, &udp, ip)?;
    }
    if !cx.options.quiet && app::udp(cx, udp.payload, udp.source, udp.destination, ip)? {
        return Ok(());
    }
    if udp.declared > udp.payload.length && !ip.fragmented {
        put!(cx, "UDP, bad length {} > {}", udp.declared, udp.payload.length);
    } else {
        cx.text("UDP, length ");
        cx.dec(udp.declared);
    }
    Ok(())
}

fn print_checksum(cx: &mut Context<'_>, udp: &Datagram<'_>, ip: &Ip) -> Result<(), Cut> {
    let field = udp.span.u16(6)?;
    if ip.is_v4() {
        if cx.verbose() < 2 {
            return Ok(());
        }
        if field == 0 {
            cx.text("[no cksum] ");
            return Ok(());
        }
    }
    let Some(bytes) = captured(udp.span, udp.payload.length + HEADER_LEN) else { return Ok(()) };
    match verify(cx, bytes, protocol::UDP, ip) {
        ChecksumResult::Correct => cx.text("[udp sum ok] "),
        ChecksumResult::Unfinished => cx.text("[udp cksum left to the NIC] "),
        ChecksumResult::Wrong(computed) => {
            put!(cx, "[bad udp cksum 0x{field:04x} -> 0x{:04x}!] ", checksum::should_be(field, computed));
        }
    }
    Ok(())
}
