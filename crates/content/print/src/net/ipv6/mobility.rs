//! The mobility header (RFC 6275).
//!
//! ```text
//! | payload protocol 1 | length 1 | type 1 | reserved 1 | checksum 2 | data ... | options: type 1, length 1, value |
//! ```

use std::net::IpAddr;

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

const DATA_AT: usize = 8;

const TYPES: &[(u8, &str)] =
    &[(0, "BRR"), (1, "HoTI"), (2, "CoTI"), (3, "HoT"), (4, "CoT"), (5, "BU"), (6, "BA"), (7, "BE")];

/// Bytes before the options, by type.
const HEADER_LENS: [usize; 8] = [8, 16, 16, 24, 24, 12, 12, 24];

/// Prints a mobility header. Nothing follows it.
pub(super) fn print(cx: &mut Context<'_>, header: Span<'_>) -> Printed {
    cx.protocol = "mobility";
    let length = (usize::from(header.u8(1)?) + 1) * 8;
    let kind = header.u8(2)?;
    let Some(&header_len) = HEADER_LENS.get(usize::from(kind)) else {
        put!(cx, "mobility: type-#{kind} len={}", header.u8(1)?);
        return Ok(());
    };
    if length < header_len {
        put!(cx, "(header length {length} is too small for type {kind})");
        cx.cut();
        return Ok(());
    }
    cx.text("mobility: ");
    cx.text(lookup(TYPES, kind).unwrap_or(""));
    print_data(cx, header, kind)?;
    if cx.verbose() > 0 && !print_options(cx, header.skip(header_len), length - header_len)? {
        cx.cut();
    }
    Ok(())
}

fn print_data(cx: &mut Context<'_>, header: Span<'_>, kind: u8) -> Printed {
    let verbose = cx.verbose() > 0;
    let place = if kind % 2 == 1 { "Home" } else { "Care-of" };
    match kind {
        1 | 2 if verbose => put_pair(cx, place, "Init Cookie", header, DATA_AT)?,
        3 | 4 => {
            put!(cx, " nonce id=0x{:x}", header.u16(6)?);
            if verbose {
                put_pair(cx, place, "Init Cookie", header, DATA_AT)?;
                put_pair(cx, place, "Keygen Token", header, DATA_AT + 8)?;
            }
        }
        5 => {
            put!(cx, " seq#={}", header.u16(6)?);
            header.bytes(DATA_AT + 2, 2)?;
            print_update_flags(cx, header.u8(DATA_AT)? >> 4);
            put!(cx, " lifetime={}", u32::from(header.u16(DATA_AT + 2)?) << 2);
        }
        6 => {
            put!(cx, " status={}", header.u8(6)?);
            if header.u8(7)? & 0x80 != 0 {
                cx.text(" K");
            }
            put!(cx, " seq#={}", header.u16(DATA_AT)?);
            put!(cx, " lifetime={}", u32::from(header.u16(DATA_AT + 2)?) << 2);
        }
        7 => {
            put!(cx, " status={}", header.u8(6)?);
            let home = header.array::<16>(DATA_AT)?;
            cx.text(" homeaddr ");
            cx.host(IpAddr::from(home));
        }
        _ => {}
    }
    Ok(())
}

fn put_pair(cx: &mut Context<'_>, place: &str, name: &str, header: Span<'_>, at: usize) -> Printed {
    put!(cx, " {place} {name}={:08x}:{:08x}", header.u32(at)?, header.u32(at + 4)?);
    Ok(())
}

fn print_update_flags(cx: &mut Context<'_>, flags: u8) {
    if flags == 0 {
        return;
    }
    cx.text(" ");
    for (bit, name) in [(8, "A"), (4, "H"), (2, "L"), (1, "K")] {
        if flags & bit != 0 {
            cx.text(name);
        }
    }
}

/// `false` if they make no sense.
fn print_options(cx: &mut Context<'_>, options: Span<'_>, length: usize) -> Result<bool, Cut> {
    let mut rest = options.with_length(length);
    while rest.length > 0 {
        let kind = rest.u8(0)?;
        let option_len = match kind {
            0 => 1,
            _ if rest.length < 2 => return Ok(false),
            _ => usize::from(rest.u8(1)?) + 2,
        };
        // tcpdump asks for a byte behind each option.
        let is_cut = option_len > rest.length || rest.captured() <= option_len;
        if is_cut || !print_option(cx, rest, kind)? {
            return Ok(false);
        }
        rest = rest.skip(option_len);
    }
    Ok(true)
}

fn print_option(cx: &mut Context<'_>, option: Span<'_>, kind: u8) -> Result<bool, Cut> {
    let (name, min) = match kind {
        1 => ("padn", 2),
        2 => ("refresh", 4),
        3 => ("altcoa", 18),
        4 => ("ni", 6),
        5 => ("auth", 12),
        _ => ("", 0),
    };
    if option.length < min {
        put!(cx, "({name}: trunc)");
        return Ok(false);
    }
    match kind {
        0 => cx.text("(pad1)"),
        1 => cx.text("(padn)"),
        // In units of 4 seconds.
        2 => put!(cx, "(refresh: {})", u32::from(option.u16(2)?) << 2),
        3 => {
            cx.text("(alt-CoA: ");
            cx.host(IpAddr::from(option.array::<16>(2)?));
            cx.text(")");
        }
        4 => put!(cx, "(ni: ho=0x{:04x} co=0x{:04x})", option.u16(2)?, option.u16(4)?),
        5 => cx.text("(auth)"),
        _ => put!(cx, "(type-0x{kind:02x}: len={})", option.u8(1)?),
    }
    Ok(true)
}
