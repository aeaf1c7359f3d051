//! PIM, version 1, whose messages travel in IGMP.
//!
//! ```text
//! IGMP type 1 | type 1 | checksum 2 | version 4 bits ... 4 | ...
//! ```

use crate::app::relative_time;
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, put};
use crate::text::Text;

type Whole = Result<bool, Cut>;

const MESSAGES: [&str; 8] =
    ["Query", "Register", "Register-Stop", "Join/Prune", "RP-reachable", "Assert", "Graft", "Graft-ACK"];

/// A mask that is not that of a host, after a slash.
fn put_mask(cx: &mut Context<'_>, span: Span<'_>, at: usize) -> Printed {
    if span.u32(at)? != u32::MAX {
        cx.ipv4_after("/", span, at)?;
    }
    Ok(())
}

/// A message of version 1, in IGMP.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "pimv1";
    let kind = span.u8(1)?;
    match MESSAGES.get(usize::from(kind)) {
        Some(name) => put!(cx, " {name}"),
        None => put!(cx, " [type {kind}]"),
    }
    match kind {
        0 => query(cx, span)?,
        1 => {
            if span.bytes(8, 20).is_err() {
                cx.cut();
                return Ok(());
            }
            cx.ipv4_after(" for ", span, 20)?;
            cx.ipv4_after(" > ", span, 24)?;
        }
        2 => {
            cx.ipv4_after(" for ", span, 8)?;
            cx.ipv4_after(" > ", span, 12)?;
        }
        4 if cx.verbose() > 0 => {
            cx.ipv4_after(" group ", span, 8)?;
            put_mask(cx, span, 12)?;
            cx.ipv4_after(" RP ", span, 16)?;
            cx.text(" hold ");
            let hold = span.u16(22)?;
            relative_time(cx, u32::from(hold));
        }
        5 => {
            cx.ipv4_after(" for ", span, 16)?;
            cx.ipv4_after(" > ", span, 8)?;
            put_mask(cx, span, 12)?;
            let preference = span.u32(20)?;
            let tree = if preference >> 31 != 0 { "RP-tree" } else { "SPT" };
            put!(cx, " {tree} pref {} metric {}", preference & 0x7fff_ffff, span.u32(24)?);
        }
        3 | 6 | 7 if cx.verbose() > 0 => {
            if span.length < 8 {
                cx.cut();
                return Ok(());
            }
            if !joins(cx, span.skip(8))? {
                cx.cut();
            }
        }
        _ => {}
    }
    let version = span.u8(4)? >> 4;
    if version != 1 {
        put!(cx, " [v{version}]");
    }
    Ok(())
}

fn query(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    if let Ok(mode) = span.u8(8) {
        match mode >> 4 {
            0 => cx.text(" Dense-mode"),
            1 => cx.text(" Sparse-mode"),
            2 => cx.text(" Sparse-Dense-mode"),
            mode => put!(cx, " mode-{mode}"),
        }
    }
    if cx.verbose() > 0 {
        cx.text(" (Hold-time ");
        let hold = span.u16(10)?;
        relative_time(cx, u32::from(hold));
        cx.text(")");
    }
    Ok(())
}

fn joins(cx: &mut Context<'_>, span: Span<'_>) -> Whole {
    if span.captured() >= 30 && span.u8(11)? == 1 && u32::from(span.u16(20)?) + u32::from(span.u16(22)?) == 1
    {
        single_join(cx, span)?;
        return Ok(true);
    }
    let line = if cx.verbose() > 1 { "\n" } else { "" };
    if span.length < 4 {
        return Ok(false);
    }
    cx.text(line);
    cx.ipv4_after(" Upstream Nbr: ", span, 0)?;
    if span.length < 8 {
        return Ok(false);
    }
    put!(cx, "{line} Hold time: ");
    let hold = span.u16(6)?;
    relative_time(cx, u32::from(hold));
    if cx.verbose() < 2 {
        return Ok(true);
    }
    if span.length < 12 {
        return Ok(false);
    }
    let mut rest = span.skip(12);
    for _ in 0..span.u8(11)? {
        if rest.length < 4 {
            return Ok(false);
        }
        cx.ipv4_after("\n\tGroup: ", rest, 0)?;
        if rest.length < 8 {
            return Ok(false);
        }
        put_mask(cx, rest, 4)?;
        if rest.length < 12 {
            return Ok(false);
        }
        let (joined, pruned) = (usize::from(rest.u16(8)?), usize::from(rest.u16(10)?));
        put!(cx, " joined: {joined} pruned: {pruned}");
        rest = rest.skip(12);
        for index in 0..joined + pruned {
            if rest.length < 6 {
                return Ok(false);
            }
            let (flags, more) = (rest.u8(0)?, rest.u8(1)?);
            cx.text(if index < joined { "\n\tJoin  " } else { "\n\tPrune " });
            cx.text(if flags & 1 != 0 { "Sparse " } else { "Dense " });
            cx.text(if more & 0x80 != 0 { "WC " } else { "" });
            cx.text(if more & 0x40 != 0 { "RP " } else { "SPT " });
            cx.ipv4_after("", rest, 2)?;
            put!(cx, "/{}", more & 0x3f);
            rest = rest.skip(6);
        }
    }
    Ok(true)
}

/// A message about one source of one group, in one line.
fn single_join(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.ipv4_after(" RPF ", span, 0)?;
    cx.text(" ");
    let hold = span.u16(6)?;
    if hold != 180 {
        cx.text("Hold ");
        relative_time(cx, u32::from(hold));
    }
    let (flags, more) = (span.u8(24)?, span.u8(25)?);
    cx.text(if span.u16(20)? != 0 { "Join (" } else { "Prune (" });
    cx.ipv4_after("", span, 26)?;
    put!(cx, "/{}, ", more & 0x3f);
    cx.ipv4_after("", span, 12)?;
    put_mask(cx, span, 16)?;
    cx.text(if flags & 1 != 0 { ") Sparse" } else { ") Dense" });
    cx.text(if more & 0x80 != 0 { " WC" } else { "" });
    cx.text(if more & 0x40 != 0 { " RP" } else { " SPT" });
    Ok(())
}
