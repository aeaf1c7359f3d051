//! IPv4 options.
//!
//! ```text
//! 0 end | 1 no operation | type 1, length 1, value
//! routes:     type, length, pointer, addresses 4...
//! timestamps: type, length, pointer, overflow 4b, flag 4b, ([address 4,] time 4)...
//! ```

use std::net::IpAddr;

use crate::bytes::{Cut, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const RECORD_ROUTE: u8 = 7;
const TIMESTAMP: u8 = 68;
const LOOSE_ROUTE: u8 = 131;
const STRICT_ROUTE: u8 = 137;
const ROUTER_ALERT: u8 = 148;

const NAMES: &[(u8, &str)] = &[
    (END, "EOL"),
    (NO_OPERATION, "NOP"),
    (TIMESTAMP, "timestamp"),
    (130, "security"),
    (RECORD_ROUTE, "RR"),
    (STRICT_ROUTE, "SSRR"),
    (LOOSE_ROUTE, "LSRR"),
    (ROUTER_ALERT, "RA"),
    (82, "traceroute"),
];

/// Prints `length` bytes of options. `false` if they were not all captured.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>, length: usize) -> Result<bool, Cut> {
    let mut rest = span.with_length(length);
    let mut separator = "";
    while rest.length > 0 {
        cx.text(separator);
        separator = ",";
        let code = rest.u8(0)?;
        match lookup(NAMES, code) {
            Some(name) => cx.text(name),
            None => put!(cx, "unknown {code}"),
        }
        let option_len = if code <= NO_OPERATION { 1 } else { usize::from(rest.u8(1)?) };
        if (code > NO_OPERATION && option_len < 2) || option_len > rest.length {
            put!(cx, " [bad length {option_len}]");
            return Ok(true);
        }
        if rest.need(option_len).is_err() {
            return Ok(false);
        }
        if code == END {
            return Ok(true);
        }
        // Addresses of a wrong length are read on past the option, as far as there are bytes.
        if !value(cx, rest.with_length(option_len), code)? {
            return Ok(false);
        }
        rest = rest.skip(option_len);
    }
    Ok(true)
}

/// Prints the contents of an option. `false` if an address or a time was not captured.
fn value(cx: &mut Context<'_>, option: Span<'_>, code: u8) -> Result<bool, Cut> {
    match code {
        TIMESTAMP => timestamps(cx, option),
        RECORD_ROUTE | LOOSE_ROUTE | STRICT_ROUTE => route(cx, option),
        ROUTER_ALERT if option.length < 4 => {
            put!(cx, " [bad length {}]", option.length);
            Ok(true)
        }
        ROUTER_ALERT => {
            let value = option.u16(2)?;
            if value != 0 {
                put!(cx, " value {value}");
            }
            Ok(true)
        }
        _ => Ok(true),
    }
}

/// The addresses of a route; those already passed are followed by a comma.
fn route(cx: &mut Context<'_>, option: Span<'_>) -> Result<bool, Cut> {
    let length = option.length;
    if length < 3 {
        put!(cx, " [bad length {length}]");
        return Ok(true);
    }
    if (length + 1) & 3 != 0 {
        put!(cx, " [bad length {length}]");
    }
    let field = option.u8(2)?;
    let pointer = usize::from(field).wrapping_sub(1);
    if pointer < 3 || pointer.wrapping_add(1) & 3 != 0 || pointer > length + 1 {
        put!(cx, " [bad ptr {field}]");
    }
    for at in (3..length).step_by(4) {
        let Ok(address) = option.array::<4>(at) else { return Ok(false) };
        cx.text(" ");
        cx.host(IpAddr::from(address));
        if pointer > at {
            cx.text(",");
        }
    }
    Ok(true)
}

fn timestamps(cx: &mut Context<'_>, option: Span<'_>) -> Result<bool, Cut> {
    let length = option.length;
    if length < 4 {
        put!(cx, "[bad length {length}]");
        return Ok(true);
    }
    cx.text(" TS{");
    let (overflow, flag) = (option.u8(3)? >> 4, option.u8(3)? & 0x0f);
    let hop_len = if flag == 0 { 4 } else { 8 };
    if (length - 4) & (hop_len - 1) != 0 {
        put!(cx, "[bad length {length}]");
    }
    let field = option.u8(2)?;
    let pointer = usize::from(field).wrapping_sub(1);
    if pointer < 4 || pointer.wrapping_sub(4) & (hop_len - 1) != 0 || pointer > length + 1 {
        put!(cx, "[bad ptr {field}]");
    }
    let mut at = 0;
    match flag {
        0 => cx.text("TSONLY"),
        1 => cx.text("TS+ADDR"),
        3 => cx.text("PRESPEC"),
        _ => put!(cx, "[bad ts type {flag}]"),
    }
    if matches!(flag, 0 | 1 | 3) {
        match hops(cx, option, hop_len, pointer)? {
            Some(end) => at = end,
            None => return Ok(false),
        }
    }
    if pointer == at {
        cx.text(" ^ ");
    }
    match overflow {
        0 => cx.text("}"),
        _ => put!(cx, " [{overflow} hops not recorded]}} "),
    }
    Ok(true)
}

/// Times and addresses of hops; where they end. `None` if one was not captured.
fn hops(
    cx: &mut Context<'_>,
    option: Span<'_>,
    hop_len: usize,
    pointer: usize,
) -> Result<Option<usize>, Cut> {
    let mut at = 4;
    while at < option.length {
        if option.need(at + hop_len).is_err() {
            return Ok(None);
        }
        cx.text(if pointer == at { " ^ " } else { " " });
        put!(cx, "{}@", option.u32(at + hop_len - 4)?);
        if hop_len == 8 {
            cx.host(IpAddr::from(option.array::<4>(at)?));
        }
        at += hop_len;
    }
    Ok(Some(at))
}

/// The last address of the source route, if there is one.
pub(super) fn final_destination(mut options: &[u8]) -> Option<IpAddr> {
    loop {
        let (&code, _) = options.split_first()?;
        let option_len = match code {
            END => return None,
            NO_OPERATION => 1,
            _ => usize::from(*options.get(1)?),
        };
        if option_len == 0 || (code != NO_OPERATION && option_len < 2) {
            return None;
        }
        let option = options.get(..option_len)?;
        if matches!(code, LOOSE_ROUTE | STRICT_ROUTE) && option_len >= 7 {
            return option.last_chunk::<4>().map(|address| IpAddr::from(*address));
        }
        options = &options[option_len..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_address_of_a_source_route_counts() {
        let options = [NO_OPERATION, LOOSE_ROUTE, 11, 4, 1, 2, 3, 4, 10, 0, 0, 9];
        assert_eq!(final_destination(&options), Some(IpAddr::from([10, 0, 0, 9])));
        assert_eq!(final_destination(&options[..11]), None);
        assert_eq!(final_destination(&[LOOSE_ROUTE, 0]), None);
    }
}
