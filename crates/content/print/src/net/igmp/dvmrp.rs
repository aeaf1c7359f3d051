//! DVMRP (RFC 1075, draft-ietf-idmr-dvmrp-v3): messages of distance-vector multicast routers in IGMP.
//!
//! ```text
//! IGMP type 1 | type 1 | checksum 2 | reserved 2, minor 1, major 1 | ...
//! ```

use crate::app::relative_time;
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

const MESSAGES: &[(u8, &str)] = &[
    (1, "Probe"),
    (2, "Report"),
    (3, "Ask-neighbors(old)"),
    (4, "Neighbors(old)"),
    (5, "Ask-neighbors2"),
    (6, "Neighbors2"),
    (7, "Prune"),
    (8, "Graft"),
    (9, "Graft-ACK"),
];

/// The reachability of a neighbour, and the state of the interface.
const INTERFACE_FLAGS: [(u8, &str); 5] =
    [(0x01, "/tunnel"), (0x02, "/srcrt"), (0x40, "/querier"), (0x20, "/disabled"), (0x10, "/down")];

/// Whether the lengths of a message make sense.
type Valid = Result<bool, Cut>;

/// Prints a message of at least 8 bytes.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "dvmrp";
    let kind = span.u8(1)?;
    match lookup(MESSAGES, kind) {
        Some(name) => put!(cx, " {name}"),
        None => put!(cx, " [type {kind}]"),
    }
    let body = span.skip(8);
    let valid = match kind {
        1 if cx.verbose() > 0 => probe(cx, body)?,
        2 if cx.verbose() > 1 => report(cx, body)?,
        4 => neighbors(cx, body)?,
        6 => {
            put!(cx, " (v {}.{}):", span.u8(7)?, span.u8(6)?);
            neighbors_2(cx, body)?
        }
        7..=9 => {
            body.need(8)?;
            cx.ipv4_after(" src ", body, 0)?;
            cx.ipv4_after(" grp ", body, 4)?;
            if kind == 7 {
                cx.text(" timer ");
                let seconds = body.u32(8)?;
                relative_time(cx, seconds);
            }
            true
        }
        _ => true,
    };
    if !valid {
        cx.invalid();
    }
    Ok(())
}

fn probe(cx: &mut Context<'_>, mut rest: Span<'_>) -> Valid {
    if rest.length < 4 {
        put!(cx, " [full length {} < 4]", rest.length);
        return Ok(false);
    }
    cx.text(if cx.verbose() > 1 { "\n\t" } else { " " });
    put!(cx, "genid {}", rest.u32(0)?);
    if cx.verbose() < 2 {
        return Ok(true);
    }
    rest = rest.skip(4);
    while rest.length > 0 {
        if rest.length < 4 {
            put!(cx, "[remaining length {} < 4]", rest.length);
            return Ok(false);
        }
        cx.ipv4_after("\n\tneighbor ", rest, 0)?;
        rest = rest.skip(4);
    }
    Ok(true)
}

/// Networks by their mask: `mask 3, (as many bytes of the network as the mask needs, metric 1 with a bit for the
/// last)*`.
fn report(cx: &mut Context<'_>, mut rest: Span<'_>) -> Valid {
    while rest.length > 0 {
        if rest.length < 3 {
            put!(cx, " [length {} < 3]", rest.length);
            return Ok(false);
        }
        let [a, b, c] = rest.array(0)?;
        let width = match (a, b, c) {
            (.., 1..) => 4,
            (_, 1.., _) => 3,
            (1.., ..) => 2,
            _ => 1,
        };
        cx.text("\n\tMask ");
        cx.ipv4([255, a, b, c]);
        rest = rest.skip(3);
        loop {
            if rest.length < width + 1 {
                cx.text("\n\t  [Truncated Report]");
                return Ok(false);
            }
            let mut network = [0; 4];
            network[..width].copy_from_slice(rest.bytes(0, width)?);
            let metric = rest.u8(width)?;
            cx.text("\n\t  ");
            cx.ipv4(network);
            put!(cx, " metric {}", metric & 0x7f);
            rest = rest.skip(width + 1);
            if metric & 0x80 != 0 {
                break;
            }
        }
    }
    Ok(true)
}

fn neighbors(cx: &mut Context<'_>, mut rest: Span<'_>) -> Valid {
    while rest.length > 0 {
        if rest.length < 7 {
            put!(cx, " [length {} < 7]", rest.length);
            return Ok(false);
        }
        let (local, metric, threshold) = (rest, rest.u8(4)?, rest.u8(5)?);
        let count = rest.u8(6)?;
        rest = rest.skip(7);
        for _ in 0..count {
            if rest.length < 4 {
                put!(cx, " [length {} < 4]", rest.length);
                return Ok(false);
            }
            cx.ipv4_after(" [", local, 0)?;
            cx.ipv4_after(" -> ", rest, 0)?;
            put!(cx, ", ({metric}/{threshold})]");
            rest = rest.skip(4);
        }
    }
    Ok(true)
}

fn neighbors_2(cx: &mut Context<'_>, mut rest: Span<'_>) -> Valid {
    while rest.length > 0 {
        if rest.length < 8 {
            put!(cx, " [length {} < 8]", rest.length);
            return Ok(false);
        }
        let (local, metric, threshold) = (rest, rest.u8(4)?, rest.u8(5)?);
        let (flags, count) = (rest.u8(6)?, rest.u8(7)?);
        rest = rest.skip(8);
        for _ in 0..count {
            if rest.length == 0 {
                cx.text(" [invalid ncount]");
                return Ok(false);
            }
            if rest.length < 4 {
                put!(cx, " [length {} < 4]", rest.length);
                return Ok(false);
            }
            cx.ipv4_after(" [", local, 0)?;
            cx.ipv4_after(" -> ", rest, 0)?;
            put!(cx, " ({metric}/{threshold}");
            for (bit, name) in INTERFACE_FLAGS {
                cx.text(if flags & bit != 0 { name } else { "" });
            }
            cx.text(")]");
            rest = rest.skip(4);
        }
    }
    Ok(true)
}
