//! VRRP, versions 2 (RFC 3768) and 3 (RFC 5798, RFC 9568).
//!
//! ```text
//! version 4 bits, type 4 | router 1 | priority 1 | addresses 1 | authentication 1, interval 1 | checksum 2
//! version 3:                                                   | interval 12 bits (1/100 s)
//! addresses 4 each | [version 2, authentication 1: password 8]
//! ```

use crate::bytes::{Printed, Span};
use crate::checksum;
use crate::context::{Context, put};
use crate::net::Ip;
use crate::text::Text;

/// One advertisement: `VRRPv2, Advertisement, vrid 1, prio 100, authtype none, intvl 1s, length 20`.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>, ip: &Ip) -> Printed {
    cx.protocol = "vrrp";
    if fields(cx, span, ip).is_err() {
        cx.cut();
    }
    Ok(())
}

fn fields(cx: &mut Context<'_>, span: Span<'_>, ip: &Ip) -> Printed {
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
    span.need(3)?;
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
    // The checksum of version 3 covers addresses that are not known for sure behind extension headers.
    if version == 2 && span.need(span.length).is_ok() && checksum::internet(span.bytes(0, span.length)?) != 0
    {
        put!(cx, ", (bad vrrp cksum {:x})", span.u16(6)?);
    }
    print_addresses(cx, span, version == 2 && authentication == 1)
}

fn print_addresses(cx: &mut Context<'_>, span: Span<'_>, has_password: bool) -> Printed {
    let count = usize::from(span.u8(3)?);
    cx.text(", addrs");
    if count > 1 {
        put!(cx, "({count})");
    }
    cx.text(":");
    for index in 0..count {
        let address = span.array::<4>(8 + index * 4)?;
        cx.text(if index == 0 { " " } else { "," });
        cx.host(address.into());
    }
    if has_password {
        let password = span.bytes(8 + count * 4, 8)?;
        cx.text(" auth \"");
        cx.visible_all(password);
        cx.text("\"");
    }
    Ok(())
}
