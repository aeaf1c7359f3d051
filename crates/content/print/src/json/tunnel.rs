//! Tunnels: PPPoE, GRE, VXLAN, Geneve, GTP-U.

use super::walk::Walk;
use super::{link, network};
use crate::bytes::{Printed, Span};

const TRANSPARENT_ETHERNET: u16 = 0x6558;

/// PPPoE sessions (RFC 2516) and the IP in them.
pub(super) fn pppoe(walk: &mut Walk, span: Span<'_>) -> Printed {
    let (length, protocol) = walk.layer("pppoe", |json| {
        json.number_field("session", span.u16(2)?);
        let length = span.u16(4)?;
        json.number_field("length", length);
        let protocol = span.u16(6)?;
        json.hex_field("protocol", protocol, 4);
        Ok((usize::from(length), protocol))
    })?;
    let rest = span.skip(6).limit(length.min(span.length.saturating_sub(6))).skip(2);
    link::ppp_payload(walk, protocol, rest)
}

/// GRE (RFC 2784, RFC 2890), and PPTP's version of it (RFC 2637).
pub(super) fn gre(walk: &mut Walk, span: Span<'_>) -> Printed {
    let (protocol, header_len) = walk.layer("gre", |json| {
        let flags = span.u16(0)?;
        let protocol = span.u16(2)?;
        json.number_field("version", flags & 7);
        json.hex_field("flags", flags & 0xfff8, 4);
        json.hex_field("protocol", protocol, 4);
        let mut at = 4;
        if flags & 0xc000 != 0 {
            json.hex_field("checksum", span.u16(at)?, 4);
            at += 4;
        }
        if flags & 0x2000 != 0 {
            json.number_field("key", span.u32(at)?);
            at += 4;
        }
        if flags & 0x1000 != 0 {
            json.number_field("sequence", span.u32(at)?);
            at += 4;
        }
        if flags & 0x0087 == 0x0081 {
            json.number_field("acknowledgment", span.u32(at)?);
            at += 4;
        }
        // Source routes are historic; what lies behind them is not looked for.
        let protocol = if flags & 0x4000 == 0 { protocol } else { 0 };
        Ok((protocol, at))
    })?;
    let rest = span.skip(header_len);
    match protocol {
        TRANSPARENT_ETHERNET => walk.inner(rest, |walk| link::ethernet(walk, rest, None)),
        // ERSPAN types I and II (header of 8 bytes, if there is a sequence number), type III (12 bytes).
        0x88be if header_len > 4 => erspan(walk, rest, 8),
        0x88be => walk.inner(rest, |walk| link::ethernet(walk, rest, None)),
        // Its last bit says that 8 more bytes follow, which depend on the platform.
        0x22eb => {
            let more = rest.u8(11).is_ok_and(|last| last & 1 != 0);
            erspan(walk, rest, if more { 20 } else { 12 })
        }
        0x0800 | 0x86dd | 0x8847 | 0x8848 => {
            walk.inner(rest, |walk| network::by_ethertype(walk, protocol, rest))
        }
        _ => {
            walk.payload(rest);
            Ok(())
        }
    }
}

/// Mirrored traffic (draft-foschiano-erspan).
fn erspan(walk: &mut Walk, span: Span<'_>, header_len: usize) -> Printed {
    walk.layer("erspan", |json| {
        let first = span.u32(0)?;
        json.number_field("version", first >> 28);
        json.number_field("vlan", first >> 16 & 0xfff);
        json.number_field("session", first & 0x3ff);
        Ok(())
    })?;
    let rest = span.skip(header_len);
    walk.inner(rest, |walk| link::ethernet(walk, rest, None))
}

/// VXLAN (RFC 7348).
pub(super) fn vxlan(walk: &mut Walk, span: Span<'_>) -> Printed {
    walk.layer("vxlan", |json| {
        json.hex_field("flags", span.u8(0)?, 2);
        json.number_field("vni", span.u24(4)?);
        Ok(())
    })?;
    let rest = span.skip(8);
    walk.inner(rest, |walk| link::ethernet(walk, rest, None))
}

/// Geneve (RFC 8926).
pub(super) fn geneve(walk: &mut Walk, span: Span<'_>) -> Printed {
    let (protocol, header_len) = walk.layer("geneve", |json| {
        let first = span.u8(0)?;
        let flags = span.u8(1)?;
        let protocol = span.u16(2)?;
        let options_len = usize::from(first & 0x3f) * 4;
        json.number_field("version", first >> 6);
        json.boolean_field("control", flags & 0x80 != 0);
        json.boolean_field("critical", flags & 0x40 != 0);
        json.hex_field("protocol", protocol, 4);
        json.number_field("vni", span.u24(4)?);
        json.number_field("options_length", options_len as u64);
        Ok((protocol, 8 + options_len))
    })?;
    let rest = span.skip(header_len);
    match protocol {
        TRANSPARENT_ETHERNET => walk.inner(rest, |walk| link::ethernet(walk, rest, None)),
        _ => walk.inner(rest, |walk| network::by_ethertype(walk, protocol, rest)),
    }
}

/// Maximum number of skipped extension headers of a GTP packet.
const EXTENSIONS_MAX: usize = 16;

/// GTP-U, version 1 (3GPP TS 29.281): user packets of mobile networks.
pub(super) fn gtp_u(walk: &mut Walk, span: Span<'_>) -> Printed {
    let (kind, header_len) = walk.layer("gtp", |json| {
        let (flags, kind) = (span.u8(0)?, span.u8(1)?);
        json.number_field("version", flags >> 5);
        json.number_field("type", kind);
        json.number_field("length", span.u16(2)?);
        json.hex_field("teid", span.u32(4)?, 8);
        if flags & 7 == 0 {
            return Ok((kind, 8));
        }
        if flags & 2 != 0 {
            json.number_field("sequence", span.u16(8)?);
        }
        let mut at = 12;
        if flags & 4 != 0 {
            let mut next = span.u8(11)?;
            for passed in 0.. {
                let length = usize::from(if next == 0 { 0 } else { span.u8(at)? }) * 4;
                if length == 0 {
                    break;
                }
                if passed == EXTENSIONS_MAX {
                    json.boolean_field("extensions_truncated", true);
                    return Ok((0, at));
                }
                next = span.u8(at + length - 1)?;
                at += length;
            }
        }
        Ok((kind, at))
    })?;
    let rest = span.skip(header_len);
    // Message 255 is a user's packet.
    match kind {
        255 => walk.inner(rest, |walk| network::raw(walk, rest)),
        _ => Ok(()),
    }
}
