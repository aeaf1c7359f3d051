//! VRRP, versions 2 (RFC 3768) and 3 (RFC 5798, RFC 9568).
//!
//! ```text
//! version 4 bits, type 4 | router 1 | priority 1 | addresses 1 | authentication 1, interval 1 | checksum 2
//! version 3:                                                   | interval 12 bits (1/100 s)
//! addresses 4 each | [version 2, authentication 1: password 8]
//! ```

use std::net::IpAddr;

use crate::bytes::{Printed, Span};
use crate::checksum;
use crate::context::{Context, put};
use crate::net::Ip;
use crate::text::Text;
use crate::transport::pseudo_header;

const PROTOCOL: u8 = 112;

/// One advertisement: `VRRPv2, Advertisement, vrid 1, prio 100, authtype none, intvl 1s, length 20`.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>, ip: &Ip) -> Printed {
    cx.protocol = "vrrp";
    cx.text("VRRP");
    let first = span.u8(0)?;
    let (version, kind) = (first >> 4, first & 15);
    match kind {
        1 => put!(cx, "v{version}, Advertisement"),
        _ => put!(cx, "v{version}, unknown type ({kind})"),
    }
    if ip.ttl != 255 {
        put!(cx, ", (ttl {})", ip.ttl);
    }
    if !matches!(version, 2 | 3) || kind != 1 {
        return Ok(());
    }
    put!(cx, ", vrid {}, prio {}", span.u8(1)?, span.u8(2)?);
    let authentication = span.u8(4)?;
    if version == 2 {
        match authentication {
            0 => cx.text(", authtype none"),
            1 => cx.text(", authtype simple"),
            2 => cx.text(", authtype ah"),
            other => put!(cx, ", authtype #{other}"),
        }
        put!(cx, ", intvl {}s, length {}", span.u8(5)?, span.length);
    } else {
        put!(cx, ", intvl {}cs, length {}", span.u16(4)? & 0x0fff, span.length);
    }
    if cx.verbose() == 0 {
        return Ok(());
    }
    if let Ok(bytes) = span.bytes(0, span.length) {
        // Only version 3 covers the addresses (RFC 5798, 5.2.8).
        let computed = match version {
            2 => checksum::internet(bytes),
            _ => pseudo_header(span.length, PROTOCOL, ip).with(bytes).finish(),
        };
        if computed != 0 {
            put!(cx, ", (bad vrrp cksum {:x})", span.u16(6)?);
        }
    }
    print_addresses(cx, span, ip, version == 2 && authentication == 1)
}

fn print_addresses(cx: &mut Context<'_>, span: Span<'_>, ip: &Ip, has_password: bool) -> Printed {
    let count = usize::from(span.u8(3)?);
    cx.text(", addrs");
    if count > 1 {
        put!(cx, "({count})");
    }
    cx.text(":");
    let address_len = if ip.is_v4() { 4 } else { 16 };
    for index in 0..count {
        let at = 8 + index * address_len;
        let address: IpAddr = match ip.is_v4() {
            true => span.array::<4>(at)?.into(),
            false => span.array::<16>(at)?.into(),
        };
        cx.text(if index == 0 { " " } else { "," });
        cx.host(address);
    }
    if has_password {
        let password = span.bytes(8 + count * address_len, 8)?;
        cx.text(" auth \"");
        cx.visible_until_nul(password);
        cx.text("\"");
    }
    Ok(())
}
