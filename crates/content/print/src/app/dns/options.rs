//! The OPT record of EDNS (RFC 6891): `UDPsize=4096 DO [ECS 192.0.2.0/24/0,COOKIE 0123456789abcdef]`.
//!
//! ```text
//! class = UDP payload size | ttl = extended rcode 1, version 1, DO + zero 2 | data = (code 2, length 2, value)*
//! ```

use super::print_name;
use super::tables::{DIGEST_ALGORITHMS, EDNS_OPTIONS, HASH_ALGORITHMS, SIGNATURE_ALGORITHMS};
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

const DNSSEC_OK: u16 = 0x8000;

/// Prints the record whose data are at `at`.
pub(super) fn print(
    cx: &mut Context<'_>,
    message: Span<'_>,
    mut at: usize,
    length: usize,
    udp_size: u16,
    flags: u16,
) -> Printed {
    put!(cx, " UDPsize={udp_size}");
    if flags & DNSSEC_OK != 0 {
        cx.text(" DO");
    }
    let end = at + length;
    if length == 0 {
        return Ok(());
    }
    cx.text(" [");
    while at < end {
        at = print_option(cx, message, at)?;
        if at < end {
            cx.text(",");
        }
    }
    cx.text("]");
    Ok(())
}

/// One option; where the next starts.
fn print_option(cx: &mut Context<'_>, message: Span<'_>, at: usize) -> Result<usize, Cut> {
    let code = message.u16(at)?;
    match lookup(EDNS_OPTIONS, code) {
        Some(name) => cx.text(name),
        None => put!(cx, "Opt{code}"),
    }
    let length = usize::from(message.u16(at + 2)?);
    let value = message.bytes(at + 4, length)?;
    if !value.is_empty() {
        cx.text(" ");
        print_value(cx, message, at + 4, code, value)?;
    }
    Ok(at + 4 + length)
}

fn print_value(cx: &mut Context<'_>, message: Span<'_>, at: usize, code: u16, value: &[u8]) -> Printed {
    match (code, value) {
        (5, _) => print_algorithms(cx, SIGNATURE_ALGORITHMS, value),
        (6, _) => print_algorithms(cx, DIGEST_ALGORITHMS, value),
        (7, _) => print_algorithms(cx, HASH_ALGORITHMS, value),
        (8, _) => print_client_subnet(cx, value),
        (9, &[a, b, c, d]) => put!(cx, "{} sec", u32::from_be_bytes([a, b, c, d])),
        (10, _) if value.len() == 8 || (16..=40).contains(&value.len()) => print_cookie(cx, value),
        // In units of 100 milliseconds (RFC 7828).
        (11, &[a, b]) => put!(cx, "{:.1} sec", f64::from(u16::from_be_bytes([a, b])) / 10.0),
        (9..=11, _) => cx.invalid(),
        (12, _) => put!(cx, "({})", value.len()),
        (13, _) => {
            print_name(cx, message, at)?;
        }
        (14, _) => print_key_tags(cx, value),
        _ => value.iter().for_each(|&byte| cx.hex(byte, 2)),
    }
    Ok(())
}

fn print_algorithms(cx: &mut Context<'_>, table: &[(u8, &'static str)], value: &[u8]) {
    for (index, &algorithm) in value.iter().enumerate() {
        cx.text(if index > 0 { " " } else { "" });
        match lookup(table, algorithm) {
            Some(name) => cx.text(name),
            None => put!(cx, "Alg_{algorithm}"),
        }
    }
}

/// The client's part, a space, the server's part (RFC 7873).
fn print_cookie(cx: &mut Context<'_>, value: &[u8]) {
    for (index, &byte) in value.iter().enumerate() {
        cx.text(if index == 8 { " " } else { "" });
        cx.hex(byte, 2);
    }
}

/// Numbers of keys, 16 bits each (RFC 8145).
fn print_key_tags(cx: &mut Context<'_>, value: &[u8]) {
    if !value.len().is_multiple_of(2) {
        return cx.invalid();
    }
    for (index, tag) in value.chunks_exact(2).enumerate() {
        cx.text(if index > 0 { " " } else { "" });
        cx.dec(u16::from_be_bytes([tag[0], tag[1]]));
    }
}

/// `address/source prefix length/scope prefix length` (RFC 7871). The address is as long as its prefix needs.
fn print_client_subnet(cx: &mut Context<'_>, value: &[u8]) {
    let Some(([family_high, family_low, source, scope], address)) = value.split_first_chunk::<4>() else {
        return cx.invalid();
    };
    let family = u16::from_be_bytes([*family_high, *family_low]);
    let bits_max = match family {
        1 => 32,
        2 => 128,
        _ => return cx.invalid(),
    };
    if *source > bits_max || *scope > bits_max || usize::from(*source).div_ceil(8) != address.len() {
        return cx.invalid();
    }
    let mut padded = [0; 16];
    padded[..address.len()].copy_from_slice(address);
    match padded.first_chunk::<4>() {
        Some(first) if family == 1 => cx.ipv4(*first),
        _ => cx.ipv6(padded),
    }
    put!(cx, "/{source}/{scope}");
}
