//! Optimized link state routing (RFC 3626), and the extensions of olsr.org.
//!
//! ```text
//! length 2 | sequence 2 | messages: type 1 | valid 1 | size 2 | originator 4 or 16 | TTL 1 | hops 1 | sequence 2 | body
//! hello:  0 2 | interval 1 | willingness 1 | (link code 1, 0 1, size 2, neighbors)*
//! ```
//!
//! Times are a mantissa of four bits over an exponent of four, in sixteenths of a second.

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

const HELLO: u8 = 1;
const TOPOLOGY: u8 = 2;
const INTERFACES: u8 = 3;
const NETWORKS: u8 = 4;
const NAMES: u8 = 130;
const HELLO_QUALITY: u8 = 201;
const TOPOLOGY_QUALITY: u8 = 202;

const TYPES: &[(u8, &str)] = &[
    (HELLO, "Hello"),
    (TOPOLOGY, "TC"),
    (INTERFACES, "MID"),
    (NETWORKS, "HNA"),
    (128, "Powerinfo"),
    (NAMES, "Nameservice"),
    (HELLO_QUALITY, "Hello-LQ"),
    (TOPOLOGY_QUALITY, "TC-LQ"),
];

const LINKS: [&str; 4] = ["Unspecified", "Asymmetric", "Symmetric", "Lost"];
const NEIGHBORS: [&str; 3] = ["Not-Neighbor", "Symmetric", "Symmetric-MPR"];

pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>, is_v4: bool) -> Printed {
    cx.protocol = "olsr";
    put!(cx, "OLSRv{}", if is_v4 { 4 } else { 6 });
    if span.length < 4 {
        return Err(Cut);
    }
    span.need(4)?;
    let length = span.length.min(usize::from(span.u16(0)?));
    put!(cx, ", seq 0x{:04x}, length {length}", span.u16(2)?);
    if cx.verbose() == 0 {
        return Ok(());
    }
    let address_len = if is_v4 { 4 } else { 16 };
    let header_len = 8 + address_len;
    let mut at = 4;
    while at < length {
        let message = span.skip(at);
        message.need(header_len)?;
        let (kind, size) = (message.u8(0)?, usize::from(message.u16(2)?));
        if kind == 0 || size == 0 {
            return Ok(());
        }
        let valid = size >= header_len && size <= length;
        put!(cx, "\n\t{} Message (0x{kind:02x}), originator ", lookup(TYPES, kind).unwrap_or("Unknown"));
        put_address(cx, message.skip(4), is_v4)?;
        let [ttl, hops] = message.array(4 + address_len)?;
        put!(cx, ", ttl {ttl}, hop {hops}\n\t  vtime {:.3}s", seconds(message.u8(1)?));
        put!(cx, ", msg-seq 0x{:04x}, length {size}", message.u16(6 + address_len)?);
        if !valid {
            cx.invalid();
            return Ok(());
        }
        body(cx, message.skip(header_len).with_length(size - header_len), kind, is_v4)?;
        at += size;
    }
    Ok(())
}

fn seconds(value: u8) -> f64 {
    0.0625 * (1.0 + f64::from(value >> 4) / 16.0) * f64::from(1_u32 << (value & 15))
}

fn put_address(cx: &mut Context<'_>, span: Span<'_>, is_v4: bool) -> Printed {
    let address = match is_v4 {
        true => span.array::<4>(0)?.into(),
        false => span.array::<16>(0)?.into(),
    };
    cx.host(address);
    Ok(())
}

fn body(cx: &mut Context<'_>, body: Span<'_>, kind: u8, is_v4: bool) -> Printed {
    match kind {
        HELLO | HELLO_QUALITY => hello(cx, body, kind == HELLO_QUALITY, is_v4),
        TOPOLOGY | TOPOLOGY_QUALITY => {
            if body.length < 4 {
                return Err(Cut);
            }
            body.need(4)?;
            put!(cx, "\n\t    advertised neighbor seq 0x{:04x}", body.u16(0)?);
            neighbors(cx, body.skip(4), kind == TOPOLOGY_QUALITY, is_v4)
        }
        INTERFACES => {
            let size = if is_v4 { 4 } else { 16 };
            let mut rest = body;
            while rest.length >= size {
                rest.need(size)?;
                cx.text("\n\t  interface address ");
                put_address(cx, rest, is_v4)?;
                rest = rest.skip(size);
            }
            Ok(())
        }
        NETWORKS if is_v4 => networks(cx, body),
        NETWORKS => networks_v6(cx, body),
        NAMES => names(cx, body, is_v4),
        _ => {
            cx.hex_lines("\n\t    ", body);
            Ok(())
        }
    }
}

fn hello(cx: &mut Context<'_>, body: Span<'_>, has_quality: bool, is_v4: bool) -> Printed {
    if body.length < 4 {
        return Err(Cut);
    }
    body.need(4)?;
    put!(cx, "\n\t  hello-time {:.3}s, MPR willingness {}", seconds(body.u8(2)?), body.u8(3)?);
    let mut rest = body.skip(4);
    while rest.length >= 4 {
        rest.need(4)?;
        let (code, size) = (rest.u8(0)?, usize::from(rest.u16(2)?));
        let link = LINKS[usize::from(code & 3)];
        let neighbor = NEIGHBORS.get(usize::from(code >> 2)).copied().unwrap_or("Unknown");
        put!(cx, "\n\t    link-type {link}, neighbor-type {neighbor}, len {size}");
        if size > rest.length || size < 4 {
            cx.invalid();
            break;
        }
        let list = rest.skip(4).with_length(size - 4);
        list.need(list.length)?;
        neighbors(cx, list, has_quality, is_v4)?;
        rest = rest.skip(size);
    }
    Ok(())
}

fn neighbors(cx: &mut Context<'_>, mut list: Span<'_>, has_quality: bool, is_v4: bool) -> Printed {
    if !has_quality {
        // Addresses of IPv6 are shown in four parts too, as tcpdump does.
        cx.text("\n\t      neighbor\n\t\t");
        while list.length >= 4 {
            put_address(cx, list, true)?;
            cx.text(" ");
            list = list.skip(4);
        }
        return Ok(());
    }
    let size = if is_v4 { 8 } else { 20 };
    while list.length >= size {
        list.need(size)?;
        let [quality, neighbor_quality] = list.array(size - 4)?;
        cx.text("\n\t      neighbor ");
        put_address(cx, list, is_v4)?;
        let (quality, neighbor_quality) = (f64::from(quality) / 2.55, f64::from(neighbor_quality) / 2.55);
        put!(cx, ", link-quality {quality:.2}%, neighbor-link-quality {neighbor_quality:.2}%");
        list = list.skip(size);
    }
    Ok(())
}

/// Networks that are reached through the originator; one of all zeros describes the services of a gateway to the
/// Internet.
fn networks(cx: &mut Context<'_>, body: Span<'_>) -> Printed {
    const FEATURES: &[(u8, &str)] =
        &[(1, " LINKSPEED"), (2, " IPV4"), (4, " IPV4-NAT"), (8, " IPV6"), (16, " IPv6-PREFIX")];
    put!(cx, "\n\t  Advertised networks (total {})", body.length / 8);
    let mut rest = body;
    for index in 0..body.length / 8 {
        rest.need(8)?;
        cx.text(if index % 4 == 0 { "\n\t    " } else { ", " });
        let (network, [pad, features, up, down]) = (rest.array::<4>(0)?, rest.array(4)?);
        if network == [0; 4] && pad == 0 && features != 0 {
            cx.text("Smart-Gateway:");
            FEATURES.iter().filter(|(bit, _)| features & bit != 0).for_each(|(_, name)| cx.text(name));
            let speed = |value| if features & 1 != 0 { speed(value) } else { 0 };
            put!(cx, " {}/{}", speed(up), speed(down));
        } else {
            let mask = rest.u32(4)?;
            cx.host(network.into());
            let is_prefix = mask.count_ones() == mask.leading_ones();
            put!(cx, "/{}", if is_prefix { mask.leading_ones() } else { u32::MAX });
        }
        rest = rest.skip(8);
    }
    Ok(())
}

/// Kilobits a second: a mantissa of five bits over an exponent of three, to the base of ten.
fn speed(value: u8) -> u32 {
    match value {
        0 => 0,
        u8::MAX => 320_000_000,
        _ => (u32::from(value >> 3) + 1) * 10_u32.pow(u32::from(value & 7)),
    }
}

fn networks_v6(cx: &mut Context<'_>, body: Span<'_>) -> Printed {
    put!(cx, "\n\t  Advertised networks (total {})", body.length / 32);
    let mut rest = body;
    while rest.length >= 32 {
        rest.need(32)?;
        cx.text("\n\t    #0: ");
        put_address(cx, rest, false)?;
        let mut bits = 0;
        for &byte in rest.bytes(16, 16)? {
            let is_prefix = byte.count_ones() == byte.leading_ones();
            bits += if is_prefix { byte.leading_ones() } else { 0 };
            if byte != 0xff {
                break;
            }
        }
        put!(cx, "/{bits}");
        rest = rest.skip(32);
    }
    Ok(())
}

fn names(cx: &mut Context<'_>, body: Span<'_>, is_v4: bool) -> Printed {
    if body.length < 4 {
        return Err(Cut);
    }
    let address_len = if is_v4 { 4 } else { 16 };
    let (count, version) = (usize::from(body.u16(2)?), body.u16(0)?);
    put!(cx, "\n\t  Version {version}, Entries {count}");
    if count == 0 || count * (4 + address_len) > body.length {
        cx.invalid();
        return Ok(());
    }
    let mut rest = body.skip(4);
    for index in 0..count {
        if rest.length < 4 {
            break;
        }
        let (kind, length) = (rest.u16(0)?, usize::from(rest.u16(2)?));
        let entry = rest.skip(4);
        put!(cx, "\n\t    #{index}: type ");
        match kind {
            0 => cx.text("000000"),
            _ => put!(cx, "0x{kind:04x}"),
        }
        put!(cx, ", length {length}");
        if length == 0 || address_len + length > entry.length {
            cx.invalid();
            break;
        }
        let size = address_len + length.next_multiple_of(4);
        if entry.length < size {
            return Err(Cut);
        }
        entry.need(size)?;
        cx.text(", address ");
        put_address(cx, entry, is_v4)?;
        cx.text(", name \"");
        cx.visible_all(entry.bytes(address_len, length)?);
        cx.text("\"");
        rest = entry.skip(size);
    }
    Ok(())
}
