//! DHCPv6 (RFC 8415): `dhcp6 solicit`; with `-v` its options in parentheses.
//!
//! ```text
//! type 1 | transaction 3 | options           relay (12, 13): type 1 | hops 1 | link 16 | peer 16 | options
//! option = code 2, length 2, value; those of associations hold options again
//! ```

use super::dns;
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

const RELAY_FORWARD: u8 = 12;
const RELAY_REPLY: u8 = 13;

const MESSAGES: &[(u8, &str)] = &[
    (1, "solicit"),
    (2, "advertise"),
    (3, "request"),
    (4, "confirm"),
    (5, "renew"),
    (6, "rebind"),
    (7, "reply"),
    (8, "release"),
    (9, "decline"),
    (10, "reconfigure"),
    (11, "inf-req"),
    (RELAY_FORWARD, "relay-fwd"),
    (RELAY_REPLY, "relay-reply"),
    (14, "leasequery"),
    (15, "leasequery-reply"),
];

/// Names of options (IANA, "DHCPv6 Parameters").
const OPTIONS: &[(u16, &str)] = &[
    (1, "client-ID"),
    (2, "server-ID"),
    (3, "IA_NA"),
    (4, "IA_TA"),
    (5, "IA_ADDR"),
    (6, "option-request"),
    (7, "preference"),
    (8, "elapsed-time"),
    (9, "relay-message"),
    (11, "authentication"),
    (12, "server-unicast"),
    (13, "status-code"),
    (14, "rapid-commit"),
    (15, "user-class"),
    (16, "vendor-class"),
    (17, "vendor-specific-info"),
    (18, "interface-ID"),
    (19, "reconfigure-message"),
    (20, "reconfigure-accept"),
    (21, "SIP-servers-domain"),
    (22, "SIP-servers-address"),
    (23, "DNS-server"),
    (24, "DNS-search-list"),
    (25, "IA_PD"),
    (26, "IA_PD-prefix"),
    (27, "NIS-server"),
    (28, "NIS+-server"),
    (29, "NIS-domain-name"),
    (30, "NIS+-domain-name"),
    (31, "SNTP-servers"),
    (32, "lifetime"),
    (33, "BCMCS-domain-name"),
    (34, "BCMCS-server"),
    (36, "Geoconf-Civic"),
    (37, "Remote-ID"),
    (38, "Subscriber-ID"),
    (39, "Client-FQDN"),
    (40, "PANA-agent"),
    (41, "POSIX-timezone"),
    (42, "POSIX-tz-database"),
    (43, "Echo-request-option"),
    (44, "Lease-query"),
    (45, "LQ-client-data"),
    (46, "Clt-time"),
    (47, "LQ-relay-data"),
    (48, "LQ-client-link"),
    (56, "NTP-server"),
    (59, "Bootfile-URL"),
    (64, "AFTR-Name"),
    (112, "MUD-URL"),
    (136, "SZTP-redirect"),
];

const STATUSES: [&str; 11] = [
    "Success",
    "UnspecFail",
    "NoAddrsAvail",
    "NoBinding",
    "NotOnLink",
    "UseMulticast",
    "NoPrefixAvail",
    "UnknownQueryType",
    "MalformedQuery",
    "NotConfigured",
    "NotAllowed",
];

/// Bytes of identifiers of unknown form that are shown.
const SHOWN_MAX: usize = 10;

/// Maximum nesting depth of messages and options.
const DEPTH_MAX: u32 = 16;

pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    // Bytes that were not captured are treated as absent.
    print_message(cx, span.limit(span.length.min(span.captured())), 0)
}

fn print_message(cx: &mut Context<'_>, span: Span<'_>, depth: u32) -> Printed {
    cx.protocol = "dhcp6";
    cx.text("dhcp6");
    if span.need(4).is_err() {
        cx.cut();
        return Ok(());
    }
    let kind = span.u8(0)?;
    match lookup(MESSAGES, kind) {
        Some(name) => put!(cx, " {name}"),
        None => put!(cx, " msgtype-{kind}"),
    }
    if cx.verbose() == 0 {
        return Ok(());
    }
    if matches!(kind, RELAY_FORWARD | RELAY_REPLY) {
        cx.text(" (");
        for (name, at) in [("linkaddr=", 2), (" peeraddr=", 18)] {
            let address = span.array::<16>(at)?;
            cx.text(name);
            cx.host(address.into());
        }
        print_options(cx, span.skip(34), depth);
    } else {
        put!(cx, " (xid={:x}", span.u24(1)?);
        print_options(cx, span.skip(4), depth);
    }
    cx.text(")");
    Ok(())
}

/// Options up to one that is not there as a whole.
fn print_options(cx: &mut Context<'_>, mut rest: Span<'_>, depth: u32) {
    while rest.length > 0 {
        let Ok((code, length)) = option_head(rest) else { return cx.cut() };
        let value = rest.skip(4).limit(length);
        if value.need(length).is_err() {
            return cx.cut();
        }
        match lookup(OPTIONS, code) {
            Some(name) => put!(cx, " ({name}"),
            None => put!(cx, " (opt_{code}"),
        }
        if print_value(cx, code, value, depth).is_err() {
            return cx.cut();
        }
        cx.text(")");
        rest = rest.skip(4 + length);
    }
}

/// Code and length, if as many bytes follow on the wire.
fn option_head(span: Span<'_>) -> Result<(u16, usize), Cut> {
    let (code, length) = (span.u16(0)?, usize::from(span.u16(2)?));
    if span.length < 4 + length { Err(Cut) } else { Ok((code, length)) }
}

fn print_value(cx: &mut Context<'_>, code: u16, value: Span<'_>, depth: u32) -> Printed {
    let length = value.length;
    let least = match code {
        1 | 2 | 13 => 2,
        3 | 25 => 12,
        4 | 37 | 56 => 4,
        5 => 24,
        26 => 25,
        64 => 3,
        44 => 17,
        47 => 16,
        _ => 0,
    };
    let is_odd = match code {
        6 | 43 => !length.is_multiple_of(2),
        7 | 19 => length != 1,
        8 => length != 2,
        32 | 46 => length != 4,
        22 | 23 | 27 | 28 | 31 | 34 | 40 | 48 => !length.is_multiple_of(16),
        _ => length < least,
    };
    if is_odd {
        cx.text(" ?");
        return Ok(());
    }
    match code {
        1 | 2 => print_identifier(cx, value)?,
        3 | 25 => {
            put!(cx, " IAID:{} T1:{} T2:{}", value.u32(0)?, value.u32(4)?, value.u32(8)?);
            print_inner(cx, value.skip(12), depth);
        }
        4 => {
            put!(cx, " IAID:{}", value.u32(0)?);
            print_inner(cx, value.skip(4), depth);
        }
        5 => {
            cx.text(" ");
            cx.host(value.array::<16>(0)?.into());
            put!(cx, " pltime:{} vltime:{}", value.u32(16)?, value.u32(20)?);
            print_inner(cx, value.skip(24), depth);
        }
        6 | 43 => print_codes(cx, value.data),
        7 => put!(cx, " {}", value.u8(0)?),
        8 => put!(cx, " {}", value.u16(0)?),
        9 if depth < DEPTH_MAX => {
            cx.text(" (");
            print_message(cx, value, depth + 1)?;
        }
        13 => print_status(cx, value.u16(0)?),
        18 | 38 => print_start(cx, value),
        19 => match value.u8(0)? {
            5 => cx.text(" for renew"),
            11 => cx.text(" for inf-req"),
            kind => put!(cx, " for ???({kind:02x})"),
        },
        21 | 24 => print_names(cx, value)?,
        22 | 23 | 27 | 28 | 31 | 34 | 40 | 48 => {
            for address in value.data.chunks_exact(16) {
                cx.text(" ");
                cx.host(Span::whole(address).array::<16>(0)?.into());
            }
        }
        26 => {
            cx.text(" ");
            cx.host(value.array::<16>(9)?.into());
            put!(cx, "/{} pltime:{} vltime:{}", value.u8(8)?, value.u32(0)?, value.u32(4)?);
            print_inner(cx, value.skip(25), depth);
        }
        32 | 46 => put!(cx, " {}", value.u32(0)?),
        37 => {
            put!(cx, " {}", value.u32(0)?);
            print_start(cx, value.skip(4));
        }
        41 | 42 | 112 => {
            cx.text(" ");
            cx.visible_until_nul(value.data);
        }
        45 => print_inner(cx, value, depth),
        56 => print_time_servers(cx, value)?,
        59 => {
            cx.text(" ");
            cx.visible_all(value.data);
        }
        64 => print_tunnel_end(cx, value)?,
        _ => {}
    }
    Ok(())
}

fn print_inner(cx: &mut Context<'_>, span: Span<'_>, depth: u32) {
    if depth < DEPTH_MAX {
        print_options(cx, span, depth + 1);
    }
}

/// A unique identifier (RFC 8415, 11): link-layer address and time, enterprise number, link-layer address.
fn print_identifier(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    let start = match (value.u16(0)?, value.length) {
        (1, 8..) => {
            put!(cx, " hwaddr/time type {} time {} ", value.u16(2)?, value.u32(4)?);
            8
        }
        (2, 10..) => {
            cx.text(" vid ");
            value.bytes(2, 8)?.iter().for_each(|&byte| cx.hex(byte, 2));
            return Ok(());
        }
        (3, 4..) => {
            put!(cx, " hwaddr type {} ", value.u16(2)?);
            4
        }
        (1..=3, _) => {
            cx.text(" ?");
            return Ok(());
        }
        (kind, _) => {
            put!(cx, " type {kind}");
            return Ok(());
        }
    };
    value.skip(start).data.iter().for_each(|&byte| cx.hex(byte, 2));
    Ok(())
}

fn print_codes(cx: &mut Context<'_>, codes: &[u8]) {
    for code in codes.chunks_exact(2) {
        let code = u16::from_be_bytes([code[0], code[1]]);
        match lookup(OPTIONS, code) {
            Some(name) => put!(cx, " {name}"),
            None => put!(cx, " opt_{code}"),
        }
    }
}

fn print_status(cx: &mut Context<'_>, code: u16) {
    match STATUSES.get(usize::from(code)) {
        Some(name) => put!(cx, " {name}"),
        None if code > 255 => cx.text(" INVALID code"),
        None => put!(cx, " code{code}"),
    }
}

fn print_start(cx: &mut Context<'_>, value: Span<'_>) {
    cx.text(" ");
    value.data.iter().take(SHOWN_MAX).for_each(|&byte| cx.hex(byte, 2));
    cx.text("...");
}

/// Servers of NTP (RFC 5908): suboptions 1 and 2 are addresses, 3 is a name.
fn print_time_servers(cx: &mut Context<'_>, mut rest: Span<'_>) -> Printed {
    while rest.length > 4 {
        let (code, length) = option_head(rest)?;
        put!(cx, " subopt:{code}");
        let value = rest.skip(4).limit(length);
        match (code, value.array::<16>(0)) {
            (1 | 2, Ok(address)) if length == 16 => {
                cx.text(" ");
                cx.host(address.into());
            }
            (3, _) => {
                cx.text(" ");
                dns::print_name(cx, value, 0)?;
            }
            _ => cx.text(" ?"),
        }
        rest = rest.skip(4 + length);
    }
    Ok(())
}

/// The name of the far end of a tunnel (RFC 6334), as labels without their root.
fn print_tunnel_end(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    cx.text(" ");
    let mut rest = value;
    while rest.length > 0 && rest.u8(0)? != 0 {
        let length = usize::from(rest.u8(0)?);
        if length + 1 >= rest.length {
            cx.text(" ?");
            break;
        }
        cx.visible_until_nul(rest.bytes(1, length)?);
        rest = rest.skip(1 + length);
        if rest.u8(0)? != 0 {
            cx.text(".");
        }
    }
    Ok(())
}

/// Names of DNS; they are not compressed, so the bytes before the option do not matter.
fn print_names(cx: &mut Context<'_>, value: Span<'_>) -> Printed {
    let mut at = 0;
    while at < value.length {
        cx.text(" ");
        at = dns::print_name(cx, value, at)?;
    }
    Ok(())
}
