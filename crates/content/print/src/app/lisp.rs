//! Control messages of LISP (RFC 6833): registrations of a map server, and its notifications.
//!
//! ```text
//! type 4 bits, flags 4 | 0 1 | flags 1 | records 1 | nonce 8 | key 2 | length 2 | authentication
//! record:   TTL 4 | locators 1 | mask 1 | action 3 bits, authoritative 1 | 0 1 | version 2 | family 2 | prefix
//! locator:  priority 1 | weight 1 | multicast priority 1, weight 1 | flags 2 | family 2 | address
//! [router 16, site 8]
//! ```

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put, put_bits};
use crate::text::Text;

const REGISTER: u8 = 3;
const NOTIFY: u8 = 4;

const TYPES: &[(u8, &str)] = &[
    (0, "LISP-Reserved"),
    (1, "LISP-Map-Request"),
    (2, "LISP-Map-Reply"),
    (REGISTER, "LISP-Map-Register"),
    (NOTIFY, "LISP-Map-Notify"),
    (8, "LISP-Encapsulated-Contol-Message"),
];

const REGISTER_FLAGS: &[(u32, &str)] = &[
    (0x0800_0000, "P-Proxy-Map-Reply"),
    (0x0400_0000, "S-LISP-SEC-Capable"),
    (0x0200_0000, "I-xTR-ID-Present"),
    (0x0100_0000, "R-Build-For-RTR"),
    (0x0000_0100, "M-Want-Map-Notify"),
];
const NOTIFY_FLAGS: &[(u32, &str)] = &[(0x0800_0000, "I-xTR-ID-Present"), (0x0400_0000, "R-Build-For-RTR")];

const KEYS: &[(u16, &str)] = &[(0, "None"), (1, "SHA1"), (2, "SHA256")];
const ACTIONS: [&str; 8] =
    ["No-Action", "Natively-Forward", "Send-Map-Request", "Drop", "unknown", "unknown", "unknown", "unknown"];
const LOCATOR_FLAGS: &[(u32, &str)] = &[(4, "Local-Locator"), (2, "RLoc-Probed"), (1, "Reachable")];

/// The end of a message's text.
enum End {
    Done,
    Invalid,
}

pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "lisp";
    span.need(16)?;
    let first = span.u8(0)?;
    let kind = first >> 4;
    match lookup(TYPES, kind) {
        Some(name) => put!(cx, "{name},"),
        None => put!(cx, "unknown-type-{kind},"),
    }
    if !matches!(kind, REGISTER | NOTIFY) {
        return Ok(());
    }
    if cx.verbose() > 0 {
        let flags = if kind == REGISTER { REGISTER_FLAGS } else { NOTIFY_FLAGS };
        cx.text(" flags [");
        put_bits(cx, flags, "none", ", ", span.u32(0)?);
        cx.text("],");
    }
    let has_router = first & if kind == REGISTER { 2 } else { 8 } != 0;
    match body(cx, span, has_router)? {
        End::Done => {}
        End::Invalid => cx.invalid(),
    }
    Ok(())
}

/// Offsets have 16 bits, so those of a great length wrap around to the front.
fn body(cx: &mut Context<'_>, span: Span<'_>, has_router: bool) -> Result<End, Cut> {
    let (mut records, key, authentication_len) = (span.u8(3)?, span.u16(12)?, span.u16(14)?);
    let mut at = 16_u16;
    if cx.verbose() > 0 {
        put!(cx, "\n    {records} record(s), ");
        put!(cx, "Authentication {},", lookup(KEYS, key).unwrap_or("unknown-type"));
        let data = span.skip(16).with_length(usize::from(authentication_len));
        cx.hex_lines("\n    Authentication-Data: ", data);
        data.need(data.length)?;
    } else {
        put!(cx, " {records} record(s),");
    }
    at = at.wrapping_add(authentication_len);
    if records == 0 {
        return Ok(End::Invalid);
    }
    while span.length > usize::from(at) && records != 0 {
        records -= 1;
        if !record(cx, span, &mut at)? {
            return Ok(End::Done);
        }
    }
    let rest = span.skip(usize::from(at));
    if has_router {
        if rest.need(24).is_err() {
            return Ok(End::Invalid);
        }
        cx.hex_lines("\n    xTR-ID: ", rest.with_length(16));
        put!(cx, "\n    SITE-ID: {}", rest.u64(16)?);
    } else {
        cx.hex_lines("\n    Data: ", rest.with_length(rest.captured()));
    }
    Ok(End::Done)
}

/// A prefix and its locators. `false` where its addresses are of a family that is not known.
fn record(cx: &mut Context<'_>, span: Span<'_>, at: &mut u16) -> Result<bool, Cut> {
    let record = span.skip(usize::from(*at));
    record.need(12)?;
    cx.text("\n");
    *at = at.wrapping_add(12);
    let (mask, family, locators) = (record.u8(5)?, record.u16(10)?, record.u8(4)?);
    if cx.verbose() > 0 {
        let action = record.u8(6)?;
        let authority = if action & 0x10 != 0 { "Authoritative" } else { "Non-Authoritative" };
        put!(cx, "      Record TTL {}, {authority},", record.u32(0)?);
        put!(cx, " {}, Map Version: {},", ACTIONS[usize::from(action >> 5)], record.u16(8)? & 0x0fff);
    }
    let prefix = span.skip(usize::from(*at));
    let Some(length) = put_address(cx, prefix, " EID ", family)? else { return Ok(false) };
    put!(cx, "/{mask}, {locators} locator(s)");
    *at = at.wrapping_add(length);
    for _ in 0..locators {
        let locator = span.skip(usize::from(*at));
        locator.need(8)?;
        *at = at.wrapping_add(8);
        let family = locator.u16(6)?;
        cx.text(if cx.verbose() > 0 { "\n       " } else { "" });
        if let Some(length) = put_address(cx, locator.skip(8), " LOC ", family)? {
            *at = at.wrapping_add(length);
        }
        if cx.verbose() > 0 {
            let [priority, weight, multicast_priority, multicast_weight] = locator.array(0)?;
            put!(cx, "\n          Priority/Weight {priority}/{weight},");
            put!(cx, " Multicast Priority/Weight {multicast_priority}/{multicast_weight}, flags [");
            put_bits(cx, LOCATOR_FLAGS, "none", ", ", u32::from(locator.u16(4)?));
            cx.text("],");
        }
    }
    Ok(true)
}

/// Prints an address and returns its number of bytes. Returns `None`, and prints nothing, if its family is not known.
fn put_address(cx: &mut Context<'_>, span: Span<'_>, before: &str, family: u16) -> Result<Option<u16>, Cut> {
    let (address, length) = match family {
        1 => (span.array::<4>(0)?.into(), 4),
        2 => (span.array::<16>(0)?.into(), 16),
        _ => return Ok(None),
    };
    cx.text(before);
    cx.host(address);
    Ok(Some(length))
}
