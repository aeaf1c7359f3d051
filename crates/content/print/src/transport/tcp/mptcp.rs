//! Multipath TCP (RFC 8684).
//!
//! ```text
//! | kind 30, length 1 | subtype 4b, version or flags 4b | depends on the subtype ... |
//! ```
//!
//! The value that is handed over starts at the subtype, so the whole option is two bytes longer.

use std::net::IpAddr;

use super::{ACK, SYN};
use crate::bytes::{Cut, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

const NAMES: [&str; 9] =
    ["capable", "join", "dss", "add-addr", "rem-addr", "prio", "fail", "fast-close", "unknown"];

const ADDRESS_FORMS: &[(u8, &str)] = &[(0x6, "v0-ip6"), (0x4, "v0-ip4"), (0x1, "v1-echo"), (0x0, "v1")];

/// Prints an option. `false` if its length does not fit its subtype.
pub(super) fn print(cx: &mut Context<'_>, value: Span<'_>, flags: u8) -> Result<bool, Cut> {
    cx.protocol = "mptcp";
    if value.length < 1 {
        return Ok(false);
    }
    let subtype = usize::from(value.u8(0)? >> 4).min(NAMES.len() - 1);
    put!(cx, " {} {}", value.length + 2, NAMES[subtype]);
    let fits = match subtype {
        0 => capable(cx, value, flags),
        1 => join(cx, value, flags),
        2 if flags & SYN != 0 => Ok(false),
        2 => data_sequence(cx, value),
        3 => add_address(cx, value),
        4 => remove_addresses(cx, value),
        5 => priority(cx, value),
        6 => number(cx, value, " seq ", false),
        7 => number(cx, value, " key 0x", true),
        _ => Ok(true),
    };
    cx.protocol = "tcp";
    fits
}

fn capable(cx: &mut Context<'_>, value: Span<'_>, flags: u8) -> Result<bool, Cut> {
    let length = value.length + 2;
    let opens = matches!(length, 4 | 12) && flags & SYN != 0;
    let follows = matches!(length, 20 | 22) && flags & (SYN | ACK) == ACK;
    if !opens && !follows {
        return Ok(false);
    }
    let version = value.u8(0)? & 0x0f;
    if version > 1 {
        put!(cx, " Unknown Version ({version})");
        return Ok(true);
    }
    put!(cx, " v{version}");
    if value.u8(1)? & 0x80 != 0 {
        cx.text(" csum");
    }
    if length >= 12 {
        put!(cx, " {{0x{:x}", value.u64(2)?);
        if length >= 20 {
            put!(cx, ",0x{:x}", value.u64(10)?);
        }
        cx.text("}");
    }
    Ok(true)
}

fn join(cx: &mut Context<'_>, value: Span<'_>, flags: u8) -> Result<bool, Cut> {
    let length = value.length + 2;
    let fits = match length {
        12 => flags & SYN != 0,
        16 => flags & (SYN | ACK) == SYN | ACK,
        24 => flags & ACK != 0,
        _ => false,
    };
    if !fits {
        return Ok(false);
    }
    if length != 24 {
        if value.u8(0)? & 1 != 0 {
            cx.text(" backup");
        }
        put!(cx, " id {}", value.u8(1)?);
    }
    match length {
        12 => put!(cx, " token 0x{:x} nonce 0x{:x}", value.u32(2)?, value.u32(6)?),
        16 => put!(cx, " hmac 0x{:x} nonce 0x{:x}", value.u64(2)?, value.u32(10)?),
        _ => {
            cx.text(" hmac 0x");
            for byte in value.bytes(2, 20)? {
                cx.hex(*byte, 2);
            }
        }
    }
    Ok(true)
}

/// Data sequence signal: acknowledgement and mapping, each present or not, short or long.
fn data_sequence(cx: &mut Context<'_>, value: Span<'_>) -> Result<bool, Cut> {
    if value.length < 2 {
        return Ok(false);
    }
    let flags = value.u8(1)?;
    if flags & 0x10 != 0 {
        cx.text(" fin");
    }
    let mut rest = value.skip(2);
    if flags & 0x01 != 0 {
        cx.text(" ack ");
        let Some(after) = wide_or_short(cx, rest, flags & 0x02 != 0)? else { return Ok(false) };
        rest = after;
    }
    if flags & 0x04 != 0 {
        cx.text(" seq ");
        let Some(after) = wide_or_short(cx, rest, flags & 0x08 != 0)? else { return Ok(false) };
        rest = after;
        if rest.length < 4 {
            return Ok(false);
        }
        put!(cx, " subseq {}", rest.u32(0)?);
        if rest.length < 6 {
            return Ok(false);
        }
        put!(cx, " len {}", rest.u16(4)?);
        rest = rest.skip(6);
        if rest.length >= 2 {
            put!(cx, " csum 0x{:x}", rest.u16(0)?);
            rest = rest.skip(2);
        }
    }
    Ok(rest.length == 0)
}

fn wide_or_short<'p>(cx: &mut Context<'_>, span: Span<'p>, wide: bool) -> Result<Option<Span<'p>>, Cut> {
    let length = if wide { 8 } else { 4 };
    if span.length < length {
        return Ok(None);
    }
    let number = if wide { span.u64(0)? } else { u64::from(span.u32(0)?) };
    cx.dec(number);
    Ok(Some(span.skip(length)))
}

fn add_address(cx: &mut Context<'_>, value: Span<'_>) -> Result<bool, Cut> {
    let (v6, port, mac) = match value.length + 2 {
        8 => (false, false, false),
        10 => (false, true, false),
        16 => (false, false, true),
        18 => (false, true, true),
        20 => (true, false, false),
        22 => (true, true, false),
        28 => (true, false, true),
        30 => (true, true, true),
        _ => return Ok(false),
    };
    put!(
        cx,
        " {} id {} ",
        lookup(ADDRESS_FORMS, value.u8(0)? & 0x0f).unwrap_or("[bad version/echo]"),
        value.u8(1)?
    );
    let mut at = 2;
    if v6 {
        cx.host(IpAddr::from(value.array::<16>(at)?));
        at += 16;
    } else {
        cx.host(IpAddr::from(value.array::<4>(at)?));
        at += 4;
    }
    if port {
        put!(cx, ":{}", value.u16(at)?);
        at += 2;
    }
    if mac {
        put!(cx, " hmac 0x{:x}", value.u64(at)?);
    }
    Ok(true)
}

fn remove_addresses(cx: &mut Context<'_>, value: Span<'_>) -> Result<bool, Cut> {
    if value.length < 2 {
        return Ok(false);
    }
    cx.text(" id");
    for byte in value.bytes(1, value.length - 1)? {
        put!(cx, " {byte}");
    }
    Ok(true)
}

fn priority(cx: &mut Context<'_>, value: Span<'_>) -> Result<bool, Cut> {
    if !matches!(value.length, 1 | 2) {
        return Ok(false);
    }
    cx.text(if value.u8(0)? & 1 != 0 { " backup" } else { " non-backup" });
    if value.length == 2 {
        put!(cx, " id {}", value.u8(1)?);
    }
    Ok(true)
}

fn number(cx: &mut Context<'_>, value: Span<'_>, name: &str, hex: bool) -> Result<bool, Cut> {
    if value.length != 10 {
        return Ok(false);
    }
    let number = value.u64(2)?;
    cx.text(name);
    if hex {
        cx.hex(number, 1)
    } else {
        cx.dec(number)
    }
    Ok(true)
}
