//! RPL, routing for low-power networks (RFC 6550).
//!
//! ```text
//! DIO: | instance 1 | version 1 | rank 2 | G, mode, preference 1 | sequence 1 | flags 1 | 0 | DODAG id 16 | options |
//! DAO: | instance 1 | K, D, flags 1 | 0 | sequence 1 | [DODAG id 16] | options |
//! ACK: | instance 1 | D 1 | sequence 1 | status 1 | [DODAG id 16] | options |
//! ```

use std::net::IpAddr;

use crate::bytes::{Printed, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

const OPTIONS: &[(u8, &str)] = &[
    (0, "pad1"),
    (1, "padN"),
    (2, "metrics"),
    (3, "routinginfo"),
    (4, "config"),
    (5, "rpltarget"),
    (6, "transitinfo"),
    (8, "destprefix"),
    (9, "rpltargetdesc"),
];

/// Prints a message; details only with `-v`.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>, code: u8) -> Printed {
    if code & 0x80 != 0 {
        cx.text(", (SEC) [worktodo]");
        return Ok(());
    }
    cx.text(", (CLR)");
    let body = span.skip(4);
    let verbose = cx.verbose() > 0;
    match code {
        0 => cx.text("DODAG Information Solicitation"),
        1 => {
            cx.text("DODAG Information Object");
            if verbose {
                information(cx, body)?;
            }
        }
        2 => {
            cx.text("Destination Advertisement Object");
            if verbose {
                advertisement(cx, body)?;
            }
        }
        3 => {
            cx.text("Destination Advertisement Object Ack");
            if verbose {
                acknowledgement(cx, body)?;
            }
        }
        _ => put!(cx, "RPL message, unknown code {code}"),
    }
    Ok(())
}

fn information(cx: &mut Context<'_>, body: Span<'_>) -> Printed {
    if body.length < 24 {
        cx.invalid();
        return Ok(());
    }
    let id = body.array::<16>(8)?;
    cx.text(" [dagid:");
    cx.host(IpAddr::from(id));
    let flags = body.u8(4)?;
    put!(cx, ",seq:{},instance:{},rank:{},", body.u8(5)?, body.u8(0)?, body.u16(2)?);
    cx.text(if flags & 0x80 != 0 { "grounded," } else { "" });
    cx.text("mop:");
    match (flags >> 3) & 7 {
        0 => cx.text("nonstoring"),
        1 => cx.text("storing"),
        2 => cx.text("nonstoring-multicast"),
        3 => cx.text("storing-multicast"),
        mode => put!(cx, "mop{mode}"),
    }
    put!(cx, ",prf:{}]", flags & 7);
    options(cx, body.skip(24))
}

/// Prints the DODAG id if there is one. Returns the rest, `None` if it does not fit.
fn graph_id<'p>(
    cx: &mut Context<'_>,
    body: Span<'p>,
    present: bool,
) -> Result<Option<Span<'p>>, crate::bytes::Cut> {
    if body.length < if present { 20 } else { 4 } {
        cx.invalid();
        return Ok(None);
    }
    cx.text(" [dagid:");
    if !present {
        cx.text("<elided>");
        return Ok(Some(body.skip(4)));
    }
    cx.host(IpAddr::from(body.array::<16>(4)?));
    Ok(Some(body.skip(20)))
}

fn advertisement(cx: &mut Context<'_>, body: Span<'_>) -> Printed {
    let flags = body.u8(1)?;
    let (acknowledged, with_id) = (flags & 0x80 != 0, flags & 0x40 != 0);
    body.need(4)?;
    let Some(rest) = graph_id(cx, body, with_id)? else { return Ok(()) };
    put!(cx, ",seq:{},instance:{}", body.u8(3)?, body.u8(0)?);
    cx.text(if acknowledged { ",acK" } else { "" });
    cx.text(if with_id { ",Dagid" } else { "" });
    put!(cx, ",{flags:02x}]");
    options(cx, rest)
}

fn acknowledgement(cx: &mut Context<'_>, body: Span<'_>) -> Printed {
    body.need(4)?;
    let Some(rest) = graph_id(cx, body, body.u8(1)? & 0x80 != 0)? else { return Ok(()) };
    put!(cx, ",seq:{},instance:{},status:{}]", body.u8(2)?, body.u8(0)?, body.u8(3)?);
    options(cx, rest)
}

fn options(cx: &mut Context<'_>, mut rest: Span<'_>) -> Printed {
    if cx.verbose() < 2 {
        return Ok(());
    }
    while rest.length > 0 {
        let kind = rest.u8(0)?;
        if kind == 0 {
            cx.text(" opt:pad1");
            rest = rest.skip(1);
            continue;
        }
        if rest.length < 2 {
            cx.cut();
            return Ok(());
        }
        let length = usize::from(rest.u8(1)?) + 2;
        cx.text(" opt:");
        match lookup(OPTIONS, kind) {
            Some(name) => cx.text(name),
            None => put!(cx, "subopt:{kind}"),
        }
        put!(cx, " len:{length} ");
        if rest.captured() < length || rest.length < length {
            cx.cut();
            return Ok(());
        }
        if cx.verbose() > 2 {
            cx.hex_lines(" ", rest.skip(2).limit(length - 2));
        }
        rest = rest.skip(length);
    }
    Ok(())
}
