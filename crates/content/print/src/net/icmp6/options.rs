//! Options of neighbour discovery (RFC 4861, RFC 6275, RFC 8106, RFC 4191).
//!
//! ```text
//! | type 1 | length 1, in units of 8 bytes | value |
//! ```

use std::net::IpAddr;

use super::preference;
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put, put_bits};
use crate::text::Text;

const NAMES: &[(u8, &str)] = &[
    (1, "source link-address"),
    (2, "destination link-address"),
    (3, "prefix info"),
    (4, "redirected header"),
    (5, "mtu"),
    (25, "rdnss"),
    (31, "dnssl"),
    (7, "advertisement interval"),
    (8, "homeagent information"),
    (24, "route info"),
];

const PREFIX_FLAGS: &[(u32, &str)] = &[(0x80, "onlink"), (0x40, "auto"), (0x20, "router")];

/// Prints the options that start at `at`. `false` if they make no sense or are cut, and said so.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>, at: usize) -> Result<bool, Cut> {
    let first = span.skip(at);
    let mut rest = first;
    while rest.captured() > 0 {
        if rest.captured() < 2 {
            cx.cut();
            return Ok(false);
        }
        if rest.length == 0 {
            break;
        }
        let kind = rest.u8(0)?;
        let units = rest.u8(1)?;
        let length = usize::from(units) * 8;
        if units == 0 || length > rest.captured() {
            cx.cut();
            return Ok(false);
        }
        let name = lookup(NAMES, kind).unwrap_or("unknown");
        put!(cx, "\n\t  {name} option ({kind}), length {length} ({units}): ");
        let option = Span { data: rest.bytes(0, length)?, length };
        if kind == 4 {
            // The bytes of the first option, whichever this is: tcpdump's form is kept.
            cx.hex_lines("\n\t    ", first.with_length(length));
        } else if !print_value(cx, option, kind, units)? {
            if cx.verbose() <= 1 {
                cx.hex_lines("\n\t  ", option.skip(2));
                return Ok(true);
            }
        } else if kind == 24 && units > 3 {
            cx.cut();
            return Ok(false);
        }
        if cx.verbose() > 1 {
            cx.hex_lines("\n\t    ", option.skip(2));
        }
        rest = rest.skip(length);
    }
    Ok(true)
}

/// `false` if the option is not known.
fn print_value(cx: &mut Context<'_>, option: Span<'_>, kind: u8, units: u8) -> Result<bool, Cut> {
    match kind {
        1 | 2 => cx.colon_hex(option.skip(2).data),
        3 => prefix(cx, option, units)?,
        5 => {
            put!(cx, " {}", option.u32(4)?);
            cx.text(if units == 1 { "" } else { "bad option length" });
        }
        25 => name_servers(cx, option)?,
        31 => search_list(cx, option)?,
        7 => put!(cx, " {}ms", option.u32(4)?),
        8 => put!(cx, " preference {}, lifetime {}", option.u16(4)?, option.u16(6)?),
        24 if units > 3 => {}
        24 => route(cx, option, units)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn print_lifetime(cx: &mut Context<'_>, seconds: u32) {
    match seconds {
        u32::MAX => cx.text("infinity"),
        _ => put!(cx, "{seconds}s"),
    }
}

fn prefix(cx: &mut Context<'_>, option: Span<'_>, units: u8) -> Printed {
    let address = option.array::<16>(16)?;
    cx.host(IpAddr::from(address));
    put!(cx, "/{}", option.u8(2)?);
    cx.text(if units == 4 { "" } else { "badlen" });
    cx.text(", Flags [");
    put_bits(cx, PREFIX_FLAGS, "none", ", ", u32::from(option.u8(3)?));
    cx.text("], valid time ");
    print_lifetime(cx, option.u32(4)?);
    cx.text(", pref. time ");
    print_lifetime(cx, option.u32(8)?);
    Ok(())
}

fn name_servers(cx: &mut Context<'_>, option: Span<'_>) -> Printed {
    put!(cx, " lifetime {}s,", option.u32(4)?);
    for at in (8..).step_by(16).take_while(|at| at + 16 <= option.length) {
        cx.text(" addr: ");
        cx.host(IpAddr::from(option.array::<16>(at)?));
    }
    Ok(())
}

/// Domain names as in DNS, without compression.
fn search_list(cx: &mut Context<'_>, option: Span<'_>) -> Printed {
    put!(cx, " lifetime {}s, domain(s):", option.u32(4)?);
    let mut at = 8;
    while at < option.length && option.u8(at)? != 0 {
        cx.text(" ");
        loop {
            let length = usize::from(option.u8(at)?);
            at += 1;
            if length == 0 {
                break;
            }
            cx.visible_all(option.bytes(at, length)?);
            cx.text(".");
            at += length;
        }
    }
    Ok(())
}

fn route(cx: &mut Context<'_>, option: Span<'_>, units: u8) -> Printed {
    let mut address = [0; 16];
    let stored = option.bytes(8, usize::from(units - 1) * 8)?;
    address[..stored.len()].copy_from_slice(stored);
    cx.text(" ");
    cx.host(IpAddr::from(address));
    put!(cx, "/{}", option.u8(2)?);
    put!(cx, ", pref={}, lifetime=", preference(option.u8(3)?));
    print_lifetime(cx, option.u32(4)?);
    Ok(())
}
