//! Routes of address families (RFC 4760): plain, with a label (RFC 8277), of private networks (RFC 4364).

use super::{FAMILIES, SUBSEQUENT_FAMILIES, has_paths, print_prefix, print_route};
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

/// Families whose routes are shown: plain ones, and those of IPv4 with a label.
#[derive(Clone, Copy, PartialEq)]
enum Routes {
    Plain {
        is_v6: bool,
    },
    Labeled,
    /// Routes of virtual private networks, of IPv4 with a label (RFC 4364).
    Private,
}

/// The family of an attribute, which is printed; `None` if its routes are not known, so that its bytes are.
fn family(cx: &mut Context<'_>, value: Span<'_>) -> Result<Option<Routes>, Cut> {
    let (family, subsequent) = (value.u16(0)?, value.u8(2)?);
    let vendor = if subsequent > 128 { "vendor specific " } else { "" };
    put!(cx, "\n\t    AFI: {} ({family}), ", lookup(FAMILIES, family).unwrap_or("Unknown AFI"));
    let name = lookup(SUBSEQUENT_FAMILIES, subsequent).unwrap_or("Unknown SAFI");
    put!(cx, "{vendor}SAFI: {name} ({subsequent})");
    let routes = match (family, subsequent) {
        (1 | 2, 1..=3) => Routes::Plain { is_v6: family == 2 },
        (1, 4) => Routes::Labeled,
        (1, 128..=130) => Routes::Private,
        _ => {
            put!(cx, "\n\t    no AFI {family} / SAFI {subsequent} decoder");
            if cx.verbose() == 1 {
                cx.hex_lines("\n\t    ", value);
            }
            return Ok(None);
        }
    };
    Ok(Some(routes))
}

pub(super) fn reachable(cx: &mut Context<'_>, value: Span<'_>) -> Result<bool, Cut> {
    if value.length < 3 {
        return Ok(false);
    }
    let Some(routes) = family(cx, value)? else { return Ok(true) };
    if value.length < 4 {
        return Ok(false);
    }
    let hops_len = value.u8(3)?;
    let hops = value.skip(4);
    if hops.length < usize::from(hops_len) {
        return Ok(false);
    }
    let size = match routes {
        Routes::Plain { is_v6: true } => 16,
        Routes::Private => DISTINGUISHER_LEN + 4,
        _ => 4,
    };
    for (index, hop) in hops.bytes(0, usize::from(hops_len))?.chunks(size).enumerate() {
        cx.text(if index == 0 { "\n\t    nexthop: " } else { ", " });
        if routes == Routes::Private && hop.len() == size {
            let hop = Span::whole(hop);
            print_distinguisher(cx, hop)?;
            cx.ipv4_after(", ", hop, DISTINGUISHER_LEN)?;
        } else if let Ok(four) = <[u8; 4]>::try_from(hop) {
            cx.host(four.into());
        } else if let Ok(sixteen) = <[u8; 16]>::try_from(hop) {
            cx.host(sixteen.into());
        } else {
            cx.text("invalid len");
        }
    }
    put!(cx, ", nh-length: {hops_len}");
    let mut rest = hops.skip(usize::from(hops_len));
    if rest.length < 1 {
        return Ok(false);
    }
    let count = rest.u8(0)?;
    rest = rest.skip(1);
    match count {
        0 => cx.text(", no SNPA"),
        _ => put!(cx, "\n\t    {count} SNPA"),
    }
    for _ in 0..count {
        if rest.length < 1 {
            return Ok(false);
        }
        let length = rest.u8(0)?;
        put!(cx, "\n\t      {length} bytes");
        rest = rest.skip(1);
        if rest.length < usize::from(length) {
            return Ok(false);
        }
        rest = rest.skip(usize::from(length));
    }
    print_family_routes(cx, rest, routes)
}

pub(super) fn unreachable_routes(cx: &mut Context<'_>, value: Span<'_>) -> Result<bool, Cut> {
    value.need(3)?;
    let Some(routes) = family(cx, value)? else { return Ok(true) };
    if value.length == 3 {
        cx.text("\n\t      End-of-Rib Marker (empty NLRI)");
    }
    print_family_routes(cx, value.skip(3), routes)
}

fn print_family_routes(cx: &mut Context<'_>, mut rest: Span<'_>, routes: Routes) -> Result<bool, Cut> {
    let is_v6 = match routes {
        Routes::Plain { is_v6 } => is_v6,
        Routes::Labeled => return print_labeled(cx, rest),
        Routes::Private => return print_private(cx, rest),
    };
    let with_paths = has_paths(rest.data, if is_v6 { 128 } else { 32 });
    while rest.length > 0 {
        let path = if with_paths { Some(rest.u32(0)?) } else { None };
        rest = rest.skip(if with_paths { 4 } else { 0 });
        if let Some(is_whole) = print_route(cx, &mut rest, "\n\t      ", is_v6, path)? {
            return Ok(is_whole);
        }
    }
    Ok(true)
}

/// Routes of IPv4 with one label, whose 24 bits count (RFC 8277).
fn print_labeled(cx: &mut Context<'_>, mut rest: Span<'_>) -> Result<bool, Cut> {
    while rest.length > 0 {
        if rest.length < 4 {
            return Ok(true);
        }
        let bits = match rest.u8(0)?.checked_sub(24) {
            Some(bits @ 0..=32) => bits,
            _ => {
                cx.text("\n\t    (illegal prefix length)");
                return Ok(true);
            }
        };
        let length = usize::from(bits).div_ceil(8);
        if rest.length < 4 + length {
            return Ok(true);
        }
        let label = rest.u24(1)?;
        let bytes = rest.bytes(4, length)?;
        cx.text("\n\t      ");
        print_prefix(cx, bytes, bits, false);
        let bottom = if label & 1 == 0 { "(BOGUS: Bottom of Stack NOT set!)" } else { "(bottom)" };
        put!(cx, ", label:{} {bottom}", label >> 4);
        rest = rest.skip(4 + length);
    }
    Ok(true)
}

/// Bytes of a route distinguisher.
const DISTINGUISHER_LEN: usize = 8;

/// `RD: 100:1 (= 0.0.0.1)`: type 2, and a system and a number in one of three forms.
fn print_distinguisher(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.text("RD: ");
    match span.u16(0)? {
        0 => {
            put!(cx, "{}:{} (= ", span.u16(2)?, span.u32(4)?);
            cx.ipv4(span.array(4)?);
            cx.text(")");
        }
        1 => {
            cx.ipv4(span.array(2)?);
            put!(cx, ":{}", span.u16(6)?);
        }
        2 => {
            let number = span.u16(6)?;
            put!(cx, "{}:{number} (", span.u32(2)?);
            cx.ipv4(span.array(2)?);
            put!(cx, ":{number})");
        }
        _ => cx.text("unknown RD format"),
    }
    Ok(())
}

/// bits 1 | label 3 | distinguisher 8 | prefix; label and distinguisher count among the bits.
fn print_private(cx: &mut Context<'_>, mut rest: Span<'_>) -> Result<bool, Cut> {
    const HEAD_BITS: u8 = 24 + 64;
    while rest.length > 0 {
        let bits = match rest.u8(0)?.checked_sub(HEAD_BITS) {
            Some(bits @ 0..=32) => bits,
            _ => {
                cx.text("\n\t    (illegal prefix length)");
                return Ok(true);
            }
        };
        let length = usize::from(bits).div_ceil(8);
        let (label, bytes) = (rest.u24(1)?, rest.bytes(12, length)?);
        cx.text("\n\t      ");
        print_distinguisher(cx, rest.skip(4))?;
        cx.text(", ");
        print_prefix(cx, bytes, bits, false);
        let bottom = if label & 1 == 0 { "(BOGUS: Bottom of Stack NOT set!)" } else { "(bottom)" };
        put!(cx, ", label:{} {bottom}", label >> 4);
        rest = rest.skip(12 + length);
    }
    Ok(true)
}
