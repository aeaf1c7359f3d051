//! Babel (RFC 8966; its source-specific and authentication messages too).
//!
//! ```text
//! 42 1 | version 1 | length 2 | (type 1, length 1, body)* | trailer: likewise
//! sub-TLVs behind the fields of a body: type 1, length 1, value; type 0 is one byte of padding
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::bytes::{Printed, Span};
use crate::context::{Context, put};
use crate::text::Text;

const HELLO: u8 = 4;
const HEARD: u8 = 5;
const UPDATE: u8 = 8;
const SOURCE_UPDATE: u8 = 13;

/// Names of TLV types, without and with `-v`.
const TYPES: [(&str, &str); 20] = [
    (" pad1", "Pad 1"),
    (" padN", "Pad "),
    (" ack-req", "Acknowledgment Request "),
    (" ack", "Acknowledgment "),
    (" hello", "Hello "),
    (" ihu", "IHU "),
    (" router-id", "Router Id"),
    (" nh", "Next Hop"),
    (" update", "Update"),
    (" route-request", "Route Request "),
    (" seqno-request", "Seqno Request "),
    (" tspc", "TS/PC "),
    (" hmac", "HMAC "),
    (" ss-update", "SS-Update"),
    (" ss-request", "SS-Request "),
    (" ss-mh-request", "SS-MH-Request "),
    (" mac", "MAC "),
    (" pc", "PC"),
    (" challenge_request", "Challenge Request"),
    (" challenge_reply", "Challenge Reply"),
];

/// The first bytes of IPv4 addresses in the form of IPv6.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
const V4: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0];

/// Reasons for the early end of messages.
enum End {
    Cut,
    Invalid,
}

impl From<crate::bytes::Cut> for End {
    fn from(_: crate::bytes::Cut) -> End {
        End::Cut
    }
}

pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "babel";
    cx.text("babel");
    let [magic, version, _, _] = span.array(0)?;
    if magic != 42 {
        cx.text(" invalid header");
        return Ok(());
    }
    put!(cx, " {version}");
    if version != 2 {
        cx.text(" unknown version");
        return Ok(());
    }
    match packet(cx, span) {
        Ok(()) => {}
        Err(End::Cut) => cx.cut(),
        Err(End::Invalid) => cx.invalid(),
    }
    Ok(())
}

fn packet(cx: &mut Context<'_>, span: Span<'_>) -> Result<(), End> {
    if span.length < 4 {
        return Err(End::Invalid);
    }
    let body_len = usize::from(span.u16(2)?);
    put!(cx, " ({body_len})");
    let rest = span.skip(4);
    if rest.length < body_len {
        return Err(End::Invalid);
    }
    messages(cx, rest.with_length(body_len))?;
    let trailer = rest.skip(body_len);
    if trailer.length != 0 {
        cx.text(if cx.verbose() > 0 { "\n\t----" } else { " |" });
        messages(cx, trailer)?;
    }
    Ok(())
}

/// Prefixes that later updates leave the start of out.
struct Defaults {
    v4: [u8; 16],
    v6: [u8; 16],
}

fn messages(cx: &mut Context<'_>, mut rest: Span<'_>) -> Result<(), End> {
    let mut defaults = Defaults { v4: V4, v6: [0; 16] };
    while rest.length != 0 {
        let kind = rest.u8(0)?;
        let verbose = cx.verbose() > 0;
        let names = TYPES.get(usize::from(kind));
        if kind == 0 {
            cx.text(if verbose { "\n\tPad 1" } else { " pad1" });
            rest = rest.skip(1);
            continue;
        }
        if rest.length < 2 {
            return Err(End::Invalid);
        }
        let [_, length] = rest.array(0)?;
        let size = 2 + usize::from(length);
        if rest.length < size {
            return Err(End::Invalid);
        }
        let body = &rest.bytes(0, size)?[2..];
        match (names, verbose) {
            (Some((brief, _)), false) => {
                cx.text(brief);
                if kind == UPDATE {
                    update_flags(cx, *body.get(1).filter(|_| body.len() >= 10).ok_or(End::Invalid)?);
                }
            }
            (None, false) => cx.text(" unknown"),
            (None, true) => put!(cx, "\n\tUnknown message type {kind}"),
            (Some((_, name)), true) => {
                put!(cx, "\n\t{name}");
                message(cx, kind, body, &mut defaults)?;
            }
        }
        rest = rest.skip(size);
    }
    Ok(())
}

fn update_flags(cx: &mut Context<'_>, flags: u8) {
    cx.text(if flags & 0x80 != 0 { "/prefix" } else { "" });
    cx.text(if flags & 0x40 != 0 { "/id" } else { "" });
    cx.text(if flags & 0x3f != 0 { "/unknown" } else { "" });
}

fn message(cx: &mut Context<'_>, kind: u8, body: &[u8], defaults: &mut Defaults) -> Result<(), End> {
    let least = match kind {
        2 | HELLO | HEARD | 11 => 6,
        3 | 7 | 9 => 2,
        6 | UPDATE | SOURCE_UPDATE => 10,
        10 | 15 => 14,
        12 => 18,
        14 => 3,
        17 => 4,
        _ => 0,
    };
    if body.len() < least {
        return Err(End::Invalid);
    }
    let span = Span::whole(body);
    match kind {
        1 => put!(cx, "{}", body.len() + 2),
        2 => {
            put!(cx, "{:04x} ", span.u16(2)?);
            interval(cx, span.u16(4)?);
        }
        3 => put!(cx, "{:04x}", span.u16(0)?),
        HELLO => hello(cx, span)?,
        HEARD => heard(cx, span)?,
        6 => {
            cx.text(" ");
            cx.colon_hex(span.bytes(2, 8)?);
        }
        7 => {
            let family = span.u8(0)?;
            let (address, _) = read_prefix(family, None, 0, &body[2..], &V4).ok_or(End::Invalid)?;
            match family {
                0 => cx.text(" invalid AE 0"),
                _ => put!(cx, " {}", readable(address)),
            }
        }
        UPDATE => update(cx, span, defaults)?,
        9 => {
            let [family, length] = span.array(0)?;
            let (prefix, _) = read_prefix(family, Some(length), 0, &body[2..], &V4).ok_or(End::Invalid)?;
            cx.text("for ");
            put_prefix(cx, family, prefix, length, "any");
        }
        10 => {
            let [family, length] = span.array(0)?;
            let (prefix, _) = read_prefix(family, Some(length), 0, &body[14..], &V4).ok_or(End::Invalid)?;
            put!(cx, "({} hops) for ", span.u8(4)?);
            put_prefix(cx, family, prefix, length, "invalid AE 0");
            put!(cx, " seqno {} id ", span.u16(2)?);
            cx.colon_hex(span.bytes(6, 8)?);
        }
        11 => put!(cx, "timestamp {} packetcounter {}", span.u32(2)?, span.u16(0)?),
        12 => {
            put!(cx, "key-id {} digest-{} ", span.u16(0)?, body.len() - 2);
            body[2..].iter().for_each(|byte| put!(cx, "{byte:02X}"));
        }
        SOURCE_UPDATE => source_update(cx, span, defaults)?,
        14 => source_request(cx, span)?,
        15 => source_request_by_hops(cx, span)?,
        16 => put!(cx, "len {}", body.len()),
        17 => put!(cx, " value {} index len {}", span.u32(0)?, body.len() - 4),
        _ if body.len() > 192 => return Err(End::Invalid),
        _ => put!(cx, " len {}", body.len()),
    }
    Ok(())
}

/// Hundredths of a second.
fn interval(cx: &mut Context<'_>, value: u16) {
    match value {
        0 => cx.text("0.0s (bogus)"),
        _ => put!(cx, "{}.{:02}s", value / 100, value % 100),
    }
}

fn update_interval(cx: &mut Context<'_>, value: u16) {
    match value {
        u16::MAX => cx.text("infinity"),
        _ => interval(cx, value),
    }
}

fn hello(cx: &mut Context<'_>, span: Span<'_>) -> Result<(), End> {
    cx.text(if span.u16(0)? & 0x8000 != 0 { "(Unicast) " } else { "" });
    put!(cx, "seqno {} ", span.u16(2)?);
    match span.u16(4)? {
        0 => cx.text("unscheduled"),
        value => {
            cx.text("interval ");
            interval(cx, value);
        }
    }
    sub_tlvs(cx, &span.data[6..], HELLO);
    Ok(())
}

fn heard(cx: &mut Context<'_>, span: Span<'_>) -> Result<(), End> {
    let family = span.u8(0)?;
    let Some((address, used)) = read_prefix(family, None, 0, &span.data[6..], &V4) else {
        cx.cut();
        return Ok(());
    };
    match family {
        0 => cx.text("any"),
        _ => put!(cx, "{}", readable(address)),
    }
    put!(cx, " rxcost {} interval ", span.u16(2)?);
    interval(cx, span.u16(4)?);
    sub_tlvs(cx, &span.data[6 + used..], HEARD);
    Ok(())
}

fn update(cx: &mut Context<'_>, span: Span<'_>, defaults: &mut Defaults) -> Result<(), End> {
    let [family, flags, length, omitted] = span.array(0)?;
    let [pause, sequence, metric] = [span.u16(4)?, span.u16(6)?, span.u16(8)?];
    let default = if family == 1 { &mut defaults.v4 } else { &mut defaults.v6 };
    let read = read_prefix(family, Some(length), omitted, &span.data[10..], default);
    let (prefix, used) = read.ok_or(End::Invalid)?;
    if flags & 0x80 != 0 {
        *default = prefix;
    }
    update_flags(cx, flags);
    cx.text(" ");
    put_prefix(cx, family, prefix, length, "any");
    put!(cx, " metric {metric} seqno {sequence} interval ");
    update_interval(cx, pause);
    sub_tlvs(cx, &span.data[10 + used..], UPDATE);
    Ok(())
}

fn source_update(cx: &mut Context<'_>, span: Span<'_>, defaults: &Defaults) -> Result<(), End> {
    let [family, source_len, length, omitted] = span.array(0)?;
    let [pause, sequence, metric] = [span.u16(4)?, span.u16(6)?, span.u16(8)?];
    let default = if family == 1 { &defaults.v4 } else { &defaults.v6 };
    let rest = &span.data[10..];
    let (prefix, used) = read_prefix(family, Some(length), omitted, rest, default).ok_or(End::Invalid)?;
    let rest = &rest[used..];
    let (source, used) = read_prefix(family, Some(source_len), 0, rest, &V4).ok_or(End::Invalid)?;
    cx.text(" ");
    put_any_prefix(cx, family, prefix, length);
    cx.text(" from ");
    put_any_prefix(cx, family, source, source_len);
    put!(cx, " metric {metric} seqno {sequence} interval ");
    update_interval(cx, pause);
    sub_tlvs(cx, &rest[used..], SOURCE_UPDATE);
    Ok(())
}

fn source_request(cx: &mut Context<'_>, span: Span<'_>) -> Result<(), End> {
    let [family, length, source_len] = span.array(0)?;
    let rest = &span.data[3..];
    let (prefix, used) = read_prefix(family, Some(length), 0, rest, &V4).ok_or(End::Invalid)?;
    let read = read_prefix(family, Some(source_len), 0, &rest[used..], &V4);
    let (source, _) = read.ok_or(End::Invalid)?;
    if family == 0 {
        cx.text("for any");
        return Ok(());
    }
    cx.text("for (");
    put_any_prefix(cx, family, prefix, length);
    cx.text(", ");
    put_any_prefix(cx, family, source, source_len);
    cx.text(")");
    Ok(())
}

fn source_request_by_hops(cx: &mut Context<'_>, span: Span<'_>) -> Result<(), End> {
    let ([family, length], [hops, source_len]) = (span.array(0)?, span.array(4)?);
    let rest = &span.data[14..];
    let (prefix, used) = read_prefix(family, Some(length), 0, rest, &V4).ok_or(End::Invalid)?;
    let read = read_prefix(family, Some(source_len), 0, &rest[used..], &V4);
    let (source, _) = read.ok_or(End::Invalid)?;
    put!(cx, "({hops} hops) for (");
    put_any_prefix(cx, family, prefix, length);
    cx.text(", ");
    put_any_prefix(cx, family, source, source_len);
    put!(cx, ") seqno {} id ", span.u16(2)?);
    cx.colon_hex(span.bytes(6, 8)?);
    Ok(())
}

/// A prefix of `length` bits, or an address; how many of `bytes` it has. `default` gives the bytes that it leaves out.
///
/// Families: 0 any, 1 IPv4, 2 IPv6, 3 IPv6 with the start `fe80::/64`.
fn read_prefix(
    family: u8,
    length: Option<u8>,
    omitted: u8,
    bytes: &[u8],
    default: &[u8; 16],
) -> Option<([u8; 16], usize)> {
    let size = match (length, family) {
        (Some(bits), _) => usize::from(bits).div_ceil(8),
        (None, 1) => 4,
        (None, _) => 16,
    };
    if size > 16 {
        return None;
    }
    let omitted = usize::from(omitted);
    let (mut prefix, start, kept, size) = match family {
        0 => return Some(([0; 16], 0)),
        1 if omitted > 4 || size > 4 => return None,
        1 => (V4, 12, omitted, size),
        2 if omitted > 16 => return None,
        2 => ([0; 16], 0, omitted, size),
        3 => {
            let mut local = [0; 16];
            local[..2].copy_from_slice(&[0xfe, 0x80]);
            (local, 8, 0, size.saturating_sub(8))
        }
        _ => return None,
    };
    if kept > 0 {
        prefix[..start + kept].copy_from_slice(&default[..start + kept]);
    }
    let used = size.saturating_sub(kept);
    let shown = bytes.get(..used)?;
    prefix[start + kept..start + kept + used].copy_from_slice(shown);
    Some((prefix, used))
}

fn readable(address: [u8; 16]) -> IpAddr {
    match address {
        [.., a, b, c, d] if address.starts_with(&MAPPED) => Ipv4Addr::new(a, b, c, d).into(),
        _ => Ipv6Addr::from(address).into(),
    }
}

/// A prefix, or `any` where the family is none.
fn put_prefix(cx: &mut Context<'_>, family: u8, prefix: [u8; 16], length: u8, any: &str) {
    match family {
        0 => cx.text(any),
        _ => put_any_prefix(cx, family, prefix, length),
    }
}

/// The length counts as that of an IPv6 prefix until it is shown.
fn put_any_prefix(cx: &mut Context<'_>, family: u8, prefix: [u8; 16], length: u8) {
    let length = if family == 1 { length.wrapping_add(96) } else { length };
    if length >= 96 && prefix.starts_with(&MAPPED) {
        put!(cx, "{}/{}", readable(prefix), length - 96);
    } else {
        cx.ipv6(prefix);
        put!(cx, "/{length}");
    }
}

fn sub_tlvs(cx: &mut Context<'_>, mut bytes: &[u8], message: u8) {
    while let Some((&kind, rest)) = bytes.split_first() {
        if kind == 0 {
            cx.text(" sub-pad1");
            bytes = rest;
            continue;
        }
        cx.text(if kind & 0x80 != 0 { " (M)" } else { "" });
        let value = rest.split_first().and_then(|(&length, rest)| rest.split_at_checked(usize::from(length)));
        let Some((value, rest)) = value else { return cx.invalid() };
        match kind {
            1 => cx.text(" sub-padn"),
            2 => diversity(cx, value, message),
            3 => {
                cx.text(" sub-timestamp");
                let count = match message {
                    HELLO => 1,
                    HEARD => 2,
                    _ => 0,
                };
                if value.len() < count * 4 {
                    return cx.invalid();
                }
                if count == 0 {
                    cx.text(" (bogus)");
                }
                for (index, word) in value.as_chunks().0.iter().take(count).enumerate() {
                    let micros = u32::from_be_bytes(*word);
                    let separator = if index == 0 { ' ' } else { '|' };
                    put!(cx, "{separator}{}.{:06}s", micros / 1_000_000, micros % 1_000_000);
                }
            }
            _ => put!(cx, " sub-unknown-0x{kind:02x}"),
        }
        bytes = rest;
    }
}

fn diversity(cx: &mut Context<'_>, channels: &[u8], message: u8) {
    cx.text(" sub-diversity");
    if channels.is_empty() {
        return cx.text(" empty");
    }
    for (index, channel) in channels.iter().enumerate() {
        cx.text(if index == 0 { " " } else { "-" });
        match channel {
            0 => cx.text("reserved"),
            255 => cx.text("all"),
            _ => put!(cx, "{channel}"),
        }
    }
    if !matches!(message, UPDATE | SOURCE_UPDATE) {
        cx.text(" (bogus)");
    }
}
