//! PIM, version 2 (RFC 7761; RFC 3973 for dense mode) and version 1, which travels in IGMP.
//!
//! ```text
//! v2: version 4 bits, type 4 | subtype 4 bits, address length 4 | checksum 2 | ...
//!     unicast address = family 1, encoding 1, address      group = family 1, encoding 1, flags 1, mask 1, address
//! ```
//!
//! Text: `PIMv2, Hello, length 44`; with `-v` a line for each part.

mod version1;

use std::net::IpAddr;

use super::relative_time;
use crate::bytes::{Cut, Printed, Span};
use crate::checksum;
use crate::context::{Context, lookup, put};
use crate::net::{Ip, ipv4, ipv6};
use crate::text::Text;
use crate::transport::pseudo_header;
pub(crate) use version1::print as print_version1;

const PROTOCOL: u8 = 103;

const MESSAGES: [&str; 12] = [
    "Hello",
    "Register",
    "Register Stop",
    "Join / Prune",
    "Bootstrap",
    "Assert",
    "Graft",
    "Graft Acknowledgement",
    "Candidate RP Advertisement",
    "Prune Refresh",
    "DF Election",
    "ECMP Redirect",
];
const REGISTER: u8 = 1;
const GRAFT_ACKNOWLEDGEMENT: u8 = 7;

/// Options of a hello (IANA, "PIM-Hello Options").
const OPTIONS: &[(u16, &str)] = &[
    (1, "Hold Time"),
    (2, "LAN Prune Delay"),
    (18, "DR Priority (Old)"),
    (19, "DR Priority"),
    (20, "Generation ID"),
    (21, "State Refresh Capability"),
    (22, "Bi-Directional Capability"),
    (24, "Address List"),
    (65_001, "Address List (Old)"),
];

/// The result of a message's printer: `false` ends the text with the mark of a cut.
type Whole = Result<bool, Cut>;

/// A message of IP protocol 103.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>, ip: &Ip) -> Printed {
    cx.protocol = "pim";
    let first = span.u8(0)?;
    let (version, kind) = (first >> 4, first & 15);
    let name = MESSAGES.get(usize::from(kind)).copied().unwrap_or("Unknown Type");
    match (version, cx.verbose()) {
        (2, 0) => put!(cx, "PIMv2, {name}, length {}", span.length),
        (2, _) => {
            put!(cx, "PIMv2, length {}\n\t{name}", span.length);
            print_2(cx, span, ip)?;
        }
        _ => put!(cx, "PIMv{version}, length {}", span.length),
    }
    Ok(())
}

fn print_2(cx: &mut Context<'_>, span: Span<'_>, ip: &Ip) -> Printed {
    cx.protocol = "pimv2";
    if span.length < 2 {
        put!(cx, "[length {} < 2]", span.length);
        cx.invalid();
        return Ok(());
    }
    let kind = span.u8(0)? & 15;
    let reserved = span.u8(1)?;
    let address_len = usize::from(reserved & 15);
    cx.text(if address_len != 0 { ", RFC2117-encoding" } else { "" });
    if span.length < 4 {
        put!(cx, "[length {} < 4]", span.length);
        cx.invalid();
        return Ok(());
    }
    put!(cx, ", cksum 0x{:04x} ({})", span.u16(2)?, verdict(span, kind, ip)?);
    let mut body = Body { rest: span.skip(4), address_len };
    let whole = match kind {
        0 => hello(cx, &mut body)?,
        REGISTER => register(cx, body.rest)?,
        2 => body.group(cx, " group=")? && body.unicast(cx, " source=")?,
        3 | 6 | 7 => joins(cx, &mut body, kind)?,
        4 => bootstrap(cx, &mut body)?,
        5 => assertion(cx, &mut body)?,
        8 => candidate(cx, &mut body)?,
        9 => refresh(cx, &mut body)?,
        10 => election(cx, &mut body, reserved >> 4)?,
        _ => {
            put!(cx, " [type {kind}]");
            true
        }
    };
    if !whole {
        cx.cut();
    }
    Ok(())
}

/// A register's checksum covers 8 bytes, or, of some routers, all (RFC 7761, 4.9).
fn verdict(span: Span<'_>, kind: u8, ip: &Ip) -> Result<&'static str, Cut> {
    if span.u16(2)? == 0 {
        return Ok("unverified");
    }
    let check = |length: usize| {
        span.data.get(..length).map(|bytes| match ip.source {
            IpAddr::V4(_) => checksum::internet(bytes) == 0,
            IpAddr::V6(_) => pseudo_header(length, PROTOCOL, ip).with(bytes).finish() == 0,
        })
    };
    let mut right = check(if kind == REGISTER { 8 } else { span.length });
    if kind == REGISTER && right == Some(false) {
        right = check(span.length);
    }
    Ok(match right {
        None => "unverified",
        Some(true) => "correct",
        Some(false) => "incorrect",
    })
}

/// The rest of a message, and the encoding of its addresses.
struct Body<'p> {
    rest: Span<'p>,
    /// Bytes of an address as the header says (RFC 2117); 0 where each address has its family before it.
    address_len: usize,
}

impl<'p> Body<'p> {
    /// Family, length and offset of the next address. `None` if its form is not known.
    fn address(&self, extra: usize) -> Result<Option<(usize, usize)>, Cut> {
        let (head_len, length) = match self.address_len {
            0 if self.rest.length < 2 => return Ok(None),
            0 => {
                let length = match self.rest.u8(0)? {
                    1 => 4,
                    2 => 16,
                    _ => return Ok(None),
                };
                if self.rest.u8(1)? != 0 {
                    return Ok(None);
                }
                (2, length)
            }
            length @ (4 | 16) => (0, length),
            _ => return Ok(None),
        };
        let end = head_len + extra + length;
        if self.rest.length < end || self.rest.captured() < end {
            return Ok(None);
        }
        Ok(Some((head_len, length)))
    }

    fn print_host(&self, cx: &mut Context<'_>, at: usize, length: usize) -> Printed {
        cx.host(match length {
            4 => IpAddr::from(self.rest.array::<4>(at)?),
            _ => IpAddr::from(self.rest.array::<16>(at)?),
        });
        Ok(())
    }

    fn unicast(&mut self, cx: &mut Context<'_>, name: &str) -> Whole {
        cx.text(name);
        let Some((head_len, length)) = self.address(0)? else { return Ok(false) };
        self.print_host(cx, head_len, length)?;
        self.rest = self.rest.skip(head_len + length);
        Ok(true)
    }

    /// An address with a mask; its flags.
    fn masked(&mut self, cx: &mut Context<'_>, name: &str) -> Result<Option<u8>, Cut> {
        cx.text(name);
        let Some((head_len, length)) = self.address(2)? else { return Ok(None) };
        let (flags, mask) = (self.rest.u8(head_len)?, self.rest.u8(head_len + 1)?);
        self.print_host(cx, head_len + 2, length)?;
        if usize::from(mask) != length * 8 {
            put!(cx, "/{mask}");
        }
        self.rest = self.rest.skip(head_len + 2 + length);
        Ok(Some(flags))
    }

    fn group(&mut self, cx: &mut Context<'_>, name: &str) -> Whole {
        let Some(flags) = self.masked(cx, name)? else { return Ok(false) };
        if flags != 0 {
            put!(cx, "(0x{flags:02x})");
        }
        Ok(true)
    }

    fn source(&mut self, cx: &mut Context<'_>, name: &str) -> Whole {
        let Some(flags) = self.masked(cx, name)? else { return Ok(false) };
        if flags == 0 {
            return Ok(true);
        }
        cx.text("(");
        for (bit, letter) in [(4, "S"), (2, "W"), (1, "R")] {
            cx.text(if flags & bit != 0 { letter } else { "" });
        }
        if flags & 0xf8 != 0 {
            put!(cx, "+0x{:02x}", flags & 0xf8);
        }
        cx.text(")");
        Ok(true)
    }

    /// Whether as many bytes are left on the wire.
    fn has(&self, count: usize) -> bool {
        self.rest.length >= count
    }
}

fn hello(cx: &mut Context<'_>, body: &mut Body<'_>) -> Whole {
    while body.rest.length > 0 {
        if !body.has(4) {
            return Ok(false);
        }
        let (kind, length) = (body.rest.u16(0)?, usize::from(body.rest.u16(2)?));
        let name = lookup(OPTIONS, kind).unwrap_or("Unknown");
        put!(cx, "\n\t  {name} Option ({kind}), length {length}, Value: ");
        let after = body.rest.skip(4);
        if after.length < length || after.captured() < length {
            return Ok(false);
        }
        let value = after.limit(length);
        let wanted = match kind {
            1 => 2,
            2 | 20 | 21 => 4,
            18 | 19 if length != 0 => 4,
            _ => length,
        };
        if length != wanted {
            put!(cx, "[option length {length} != {wanted}]");
            cx.invalid();
            return Ok(true);
        }
        if !hello_option(cx, kind, value, (after, body.address_len))? {
            return Ok(false);
        }
        if cx.verbose() > 1 {
            cx.hex_lines("\n\t    ", value);
        }
        body.rest = after.skip(length);
    }
    Ok(true)
}

fn hello_option(
    cx: &mut Context<'_>,
    kind: u16,
    value: Span<'_>,
    (rest, address_len): (Span<'_>, usize),
) -> Whole {
    match kind {
        1 => relative_time(cx, u32::from(value.u16(0)?)),
        2 => {
            let delay = value.u16(0)?;
            put!(cx, "\n\t    T-bit={}, LAN delay {}ms", delay >> 15, delay & 0x7fff);
            put!(cx, ", Override interval {}ms", value.u16(2)?);
        }
        18 | 19 if value.length == 0 => cx.text("Bi-Directional Capability (Old)"),
        18 | 19 => put!(cx, "{}", value.u32(0)?),
        20 => put!(cx, "0x{:08x}", value.u32(0)?),
        21 => {
            put!(cx, "v{}", value.u8(0)?);
            if value.u8(1)? != 0 {
                cx.text(", interval ");
                relative_time(cx, u32::from(value.u8(1)?));
            }
            if value.u16(2)? != 0 {
                put!(cx, " ?0x{:04x}?", value.u16(2)?);
            }
        }
        22 => {}
        24 | 65_001 if cx.verbose() > 1 => {
            let mut body = Body { rest, address_len };
            while rest.length - body.rest.length < value.length {
                if !body.unicast(cx, "\n\t    ")? {
                    return Ok(false);
                }
            }
        }
        24 | 65_001 => {}
        _ if cx.verbose() == 1 => cx.hex_lines("\n\t    ", value),
        _ => {}
    }
    Ok(true)
}

fn register(cx: &mut Context<'_>, rest: Span<'_>) -> Whole {
    if rest.length < 4 || rest.captured() < 4 {
        return Ok(false);
    }
    let flags = match rest.u32(0)? {
        0x8000_0000 => "Border",
        0x4000_0000 => "Null",
        _ => "none",
    };
    put!(cx, ", Flags [ {flags} ]\n\t");
    let inner = rest.skip(4);
    if inner.length == 0 {
        return Ok(false);
    }
    match inner.u8(0)? >> 4 {
        0 => {
            inner.need(20)?;
            cx.ipv4_after("IP-Null-header ", inner, 12)?;
            cx.ipv4_after(" > ", inner, 16)?;
        }
        4 => ipv4::print(cx, inner)?,
        6 => ipv6::print(cx, inner)?,
        version => put!(cx, "IP ver {version}"),
    }
    Ok(true)
}

fn joins(cx: &mut Context<'_>, body: &mut Body<'_>, kind: u8) -> Whole {
    let with_neighbor = kind != GRAFT_ACKNOWLEDGEMENT;
    if with_neighbor && !body.unicast(cx, ", upstream-neighbor: ")? {
        return Ok(false);
    }
    if !body.has(4) || body.rest.captured() < 4 {
        return Ok(false);
    }
    let (groups, hold) = (body.rest.u8(1)?, body.rest.u16(2)?);
    put!(cx, "\n\t  {groups} group(s)");
    if with_neighbor {
        cx.text(", holdtime: ");
        match hold {
            0xffff => cx.text("infinite"),
            _ => relative_time(cx, u32::from(hold)),
        }
    }
    body.rest = body.rest.skip(4);
    // Each source takes at least 6 bytes of the message.
    for group in 1..=groups {
        put!(cx, "\n\t    group #{group}: ");
        if !body.group(cx, "")? || !body.has(4) || body.rest.captured() < 4 {
            return Ok(false);
        }
        let (joined, pruned) = (body.rest.u16(0)?, body.rest.u16(2)?);
        put!(cx, ", joined sources: {joined}, pruned sources: {pruned}");
        body.rest = body.rest.skip(4);
        for (what, count) in [("joined", joined), ("pruned", pruned)] {
            for source in 1..=count {
                put!(cx, "\n\t      {what} source #{source}: ");
                if !body.source(cx, "")? {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}

fn bootstrap(cx: &mut Context<'_>, body: &mut Body<'_>) -> Whole {
    if !body.has(2) {
        return Ok(false);
    }
    put!(cx, " tag={:x}", body.rest.u16(0)?);
    if !body.has(3) {
        return Ok(false);
    }
    put!(cx, " hashmlen={}", body.rest.u8(2)?);
    if !body.has(4) || body.rest.captured() < 5 {
        return Ok(false);
    }
    put!(cx, " BSRprio={}", body.rest.u8(3)?);
    body.rest = body.rest.skip(4);
    if !body.unicast(cx, " BSR=")? {
        return Ok(false);
    }
    let mut index = 0;
    while body.rest.length > 0 {
        put!(cx, " (group{index}: ");
        if !body.group(cx, "")? || !body.has(1) {
            return Ok(false);
        }
        put!(cx, " RPcnt={}", body.rest.u8(0)?);
        if !body.has(2) {
            return Ok(false);
        }
        let count = body.rest.u8(1)?;
        put!(cx, " FRPcnt={count}");
        if !body.has(4) {
            return Ok(false);
        }
        body.rest = body.rest.skip(4);
        for point in 0..count {
            if body.rest.length == 0 {
                break;
            }
            put!(cx, " RP{point}=");
            if !body.unicast(cx, "")? || !rendezvous_point(cx, body)? {
                return Ok(false);
            }
        }
        cx.text(")");
        index += 1;
    }
    Ok(true)
}

fn rendezvous_point(cx: &mut Context<'_>, body: &mut Body<'_>) -> Whole {
    if !body.has(2) {
        return Ok(false);
    }
    cx.text(",holdtime=");
    let hold = body.rest.u16(0)?;
    relative_time(cx, u32::from(hold));
    if !body.has(3) {
        return Ok(false);
    }
    put!(cx, ",prio={}", body.rest.u8(2)?);
    if !body.has(4) {
        return Ok(false);
    }
    body.rest = body.rest.skip(4);
    Ok(true)
}

fn assertion(cx: &mut Context<'_>, body: &mut Body<'_>) -> Whole {
    if !body.group(cx, " group=")? || !body.unicast(cx, " src=")? || !body.has(8) || body.rest.captured() < 8
    {
        return Ok(false);
    }
    let preference = body.rest.u32(0)?;
    cx.text(if preference >> 31 != 0 { " RPT" } else { "" });
    put!(cx, " pref={} metric={}", preference & 0x7fff_ffff, body.rest.u32(4)?);
    Ok(true)
}

fn candidate(cx: &mut Context<'_>, body: &mut Body<'_>) -> Whole {
    if !body.has(1) {
        return Ok(false);
    }
    let count = body.rest.u8(0)?;
    put!(cx, " prefix-cnt={count}");
    if !body.has(2) {
        return Ok(false);
    }
    put!(cx, " prio={}", body.rest.u8(1)?);
    if !body.has(4) {
        return Ok(false);
    }
    cx.text(" holdtime=");
    let hold = body.rest.u16(2)?;
    relative_time(cx, u32::from(hold));
    body.rest = body.rest.skip(4);
    if !body.unicast(cx, " RP=")? {
        return Ok(false);
    }
    for index in 0..count {
        if body.rest.length == 0 {
            break;
        }
        put!(cx, " Group{index}=");
        if !body.group(cx, "")? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn refresh(cx: &mut Context<'_>, body: &mut Body<'_>) -> Whole {
    if !body.unicast(cx, " src=")?
        || !body.group(cx, " grp=")?
        || !body.unicast(cx, " forwarder=")?
        || !body.has(2)
    {
        return Ok(false);
    }
    cx.text(" TUNR ");
    let metric = body.rest.u16(0)?;
    relative_time(cx, u32::from(metric));
    Ok(true)
}

/// The election of a designated forwarder (RFC 5015, 3.7.1).
fn election(cx: &mut Context<'_>, body: &mut Body<'_>, subtype: u8) -> Whole {
    const BACKOFF: u8 = 3;
    const PASS: u8 = 4;
    let name = lookup(&[(1, "Offer"), (2, "Winner"), (BACKOFF, "Backoff"), (PASS, "Pass")], subtype);
    put!(cx, "\n\t  {},", name.unwrap_or("Unknown"));
    if !body.unicast(cx, " rpa=")? {
        return Ok(false);
    }
    put!(cx, " sender pref={}", body.rest.u32(0)?);
    put!(cx, " sender metric={}", body.rest.u32(4)?);
    if !matches!(subtype, BACKOFF | PASS) {
        return Ok(true);
    }
    let name = if subtype == BACKOFF { "offer" } else { "new winner" };
    // The length wraps there in tcpdump: it does not end the message.
    let rest = body.rest;
    body.rest = Span { data: rest.data.get(8..).unwrap_or(&[]), length: rest.length.wrapping_sub(8) };
    put!(cx, "\n\t  {name} addr=");
    if !body.unicast(cx, "")? {
        return Ok(false);
    }
    put!(cx, " {name} pref={}", body.rest.u32(0)?);
    put!(cx, " {name} metric={}", body.rest.u32(4)?);
    if subtype == BACKOFF {
        put!(cx, " interval {}ms", body.rest.u16(8)?);
    }
    Ok(true)
}
