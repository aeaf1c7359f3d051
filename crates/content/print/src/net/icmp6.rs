//! ICMPv6 (RFC 4443), multicast listener discovery (RFC 2710, RFC 3810) and neighbour discovery (RFC 4861).
//!
//! ```text
//! | type 1 | code 1 | checksum 2 | depends on the type 4 | quoted packet, addresses, options ... |
//! ```

use std::net::IpAddr;

use crate::bytes::{Cut, Printed, Span};
use crate::checksum;
use crate::context::{Context, lookup, put, put_bits};
use crate::names::PortKind;
use crate::net::{Ip, protocol};
use crate::text::Text;
use crate::transport::{ChecksumResult, captured, verify};

mod listener;
mod node_information;
mod options;
mod renumbering;
mod rpl;

const UNREACHABLE: u8 = 1;
const TOO_BIG: u8 = 2;
const TIME_EXCEEDED: u8 = 3;
const PARAMETER_PROBLEM: u8 = 4;
const ECHO: u8 = 128;
const ECHO_REPLY: u8 = 129;
const LISTENER_QUERY: u8 = 130;
const LISTENER_REPORT: u8 = 131;
const LISTENER_DONE: u8 = 132;
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOR_SOLICITATION: u8 = 135;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;
const ROUTER_RENUMBERING: u8 = 138;
const NODE_QUERY: u8 = 139;
const NODE_REPLY: u8 = 140;
const LISTENER_REPORT_V2: u8 = 143;
const HOME_AGENT_REQUEST: u8 = 144;
const HOME_AGENT_REPLY: u8 = 145;
const MOBILE_SOLICITATION: u8 = 146;
const MOBILE_ADVERTISEMENT: u8 = 147;
const RPL: u8 = 155;

/// Offset of the quoted packet.
const QUOTE_AT: usize = 8;

const NAMES: &[(u8, &str)] = &[
    (UNREACHABLE, "destination unreachable"),
    (TOO_BIG, "packet too big"),
    (TIME_EXCEEDED, "time exceeded in-transit"),
    (PARAMETER_PROBLEM, "parameter problem"),
    (ECHO, "echo request"),
    (ECHO_REPLY, "echo reply"),
    (LISTENER_QUERY, "multicast listener query"),
    (LISTENER_REPORT, "multicast listener report"),
    (LISTENER_DONE, "multicast listener done"),
    (ROUTER_SOLICITATION, "router solicitation"),
    (ROUTER_ADVERTISEMENT, "router advertisement"),
    (NEIGHBOR_SOLICITATION, "neighbor solicitation"),
    (NEIGHBOR_ADVERTISEMENT, "neighbor advertisement"),
    (REDIRECT, "redirect"),
    (ROUTER_RENUMBERING, "router renumbering"),
    (141, "inverse neighbor solicitation"),
    (142, "inverse neighbor advertisement"),
    (LISTENER_REPORT_V2, "multicast listener report v2"),
    (HOME_AGENT_REQUEST, "ha discovery request"),
    (HOME_AGENT_REPLY, "ha discovery reply"),
    (MOBILE_SOLICITATION, "mobile router solicitation"),
    (MOBILE_ADVERTISEMENT, "mobile router advertisement"),
    (NODE_QUERY, "who-are-you request"),
    (NODE_REPLY, "who-are-you reply"),
    (201, "mtrace message"),
    (200, "mtrace response"),
    (RPL, "RPL"),
];

/// Types whose length precedes their details.
const DETAILED: [u8; 7] = [
    ROUTER_SOLICITATION,
    ROUTER_ADVERTISEMENT,
    NEIGHBOR_ADVERTISEMENT,
    NEIGHBOR_SOLICITATION,
    REDIRECT,
    HOME_AGENT_REPLY,
    MOBILE_ADVERTISEMENT,
];

/// Prints an ICMPv6 message.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>, ip: &Ip) -> Printed {
    cx.protocol = "icmp6";
    if span.length == 0 {
        cx.text("ICMP6, length 0");
        cx.invalid();
        return Ok(());
    }
    let verbose = cx.verbose() > 0;
    if verbose && !ip.fragmented {
        print_checksum(cx, span, ip)?;
    }
    let kind = span.u8(0)?;
    cx.text("ICMP6, ");
    match lookup(NAMES, kind) {
        Some(name) => cx.text(name),
        None => put!(cx, "unknown icmp6 type ({kind})"),
    }
    if verbose && DETAILED.contains(&kind) {
        put!(cx, ", length {}", span.length);
    }
    let code = span.u8(1)?;
    if !print_details(cx, span, kind, code)? {
        return Ok(());
    }
    if !verbose {
        cx.text(", length ");
        cx.dec(span.length);
    }
    Ok(())
}

fn print_checksum(cx: &mut Context<'_>, span: Span<'_>, ip: &Ip) -> Printed {
    let Some(bytes) = captured(span, span.length) else { return Ok(()) };
    let field = span.u16(2)?;
    match verify(cx, bytes, protocol::ICMPV6, ip) {
        ChecksumResult::Correct => cx.text("[icmp6 sum ok] "),
        ChecksumResult::Unfinished => cx.text("[icmp6 cksum left to the NIC] "),
        ChecksumResult::Wrong(computed) => {
            put!(cx, "[bad icmp6 cksum 0x{field:04x} -> 0x{:04x}!] ", checksum::should_be(field, computed));
        }
    }
    Ok(())
}

/// `false` if all is said, the length included.
fn print_details(cx: &mut Context<'_>, span: Span<'_>, kind: u8, code: u8) -> Result<bool, Cut> {
    let verbose = cx.verbose() > 0;
    match kind {
        UNREACHABLE => return unreachable(cx, span, code),
        TOO_BIG => put!(cx, ", mtu {}", span.u32(4)?),
        TIME_EXCEEDED => match code {
            0 => {
                let destination = span.array::<16>(QUOTE_AT + 24)?;
                cx.text(" for ");
                cx.host(IpAddr::from(destination));
            }
            1 => cx.text(" (reassembly)"),
            _ => put!(cx, ", unknown code ({code})"),
        },
        PARAMETER_PROBLEM => return parameter_problem(cx, span, code),
        ECHO | ECHO_REPLY => {
            let (id, seq) = (span.u16(4)?, span.u16(6)?);
            cx.text(", id ");
            cx.dec(id);
            cx.text(", seq ");
            cx.dec(seq);
        }
        LISTENER_QUERY => listener::query(cx, span)?,
        LISTENER_REPORT | LISTENER_DONE => listener::version_1(cx, span),
        LISTENER_REPORT_V2 => listener::report_v2(cx, span)?,
        ROUTER_SOLICITATION if verbose => return options::print(cx, span, 8),
        ROUTER_SOLICITATION => {}
        ROUTER_ADVERTISEMENT if verbose => return router_advertisement(cx, span),
        ROUTER_ADVERTISEMENT => {}
        NEIGHBOR_SOLICITATION => {
            let target = span.array::<16>(8)?;
            cx.text(", who has ");
            cx.host(IpAddr::from(target));
            if verbose {
                return options::print(cx, span, 24);
            }
        }
        NEIGHBOR_ADVERTISEMENT => return neighbor_advertisement(cx, span),
        REDIRECT => return redirect(cx, span),
        ROUTER_RENUMBERING => renumbering::print(cx, span)?,
        NODE_QUERY | NODE_REPLY => node_information::print(cx, span)?,
        141 | 142 => {}
        HOME_AGENT_REQUEST | MOBILE_SOLICITATION => put!(cx, ", id 0x{:04x}", span.u16(4)?),
        HOME_AGENT_REPLY if verbose => home_agents(cx, span)?,
        HOME_AGENT_REPLY => {}
        MOBILE_ADVERTISEMENT if verbose => return mobile_advertisement(cx, span),
        MOBILE_ADVERTISEMENT => {}
        RPL => rpl::print(cx, span, code)?,
        _ => {
            put!(cx, ", length {}", span.length);
            if cx.verbose() <= 1 {
                cx.hex_lines("\n\t", span);
            }
            return Ok(false);
        }
    }
    Ok(true)
}

fn host_at(cx: &mut Context<'_>, span: Span<'_>, at: usize) -> Printed {
    let address = span.array::<16>(at)?;
    cx.host(IpAddr::from(address));
    Ok(())
}

fn unreachable(cx: &mut Context<'_>, span: Span<'_>, code: u8) -> Result<bool, Cut> {
    cx.text(", ");
    match code {
        0 => cx.text("unreachable route"),
        1 => cx.text(" unreachable prohibited"),
        2 => cx.text("beyond scope"),
        3 => cx.text("unreachable address"),
        4 => cx.text("unreachable port"),
        _ => put!(cx, "unknown unreach code ({code})"),
    }
    match code {
        0 | 1 | 3 => {
            let destination = span.array::<16>(QUOTE_AT + 24)?;
            cx.text(" ");
            cx.host(IpAddr::from(destination));
        }
        2 => {
            span.need(QUOTE_AT + 40)?;
            cx.text(" ");
            host_at(cx, span, QUOTE_AT + 24)?;
            cx.text(", source address ");
            host_at(cx, span, QUOTE_AT + 8)?;
        }
        4 => return unreachable_port(cx, span),
        _ if cx.verbose() <= 1 => {
            cx.hex_lines("\n\t", span);
            return Ok(false);
        }
        _ => {}
    }
    Ok(true)
}

fn unreachable_port(cx: &mut Context<'_>, span: Span<'_>) -> Result<bool, Cut> {
    let quote = span.skip(QUOTE_AT);
    let Some((number, port)) = quoted_port(quote) else {
        cx.cut();
        return Ok(false);
    };
    cx.text(", ");
    host_at(cx, quote, 24)?;
    let kind = if number == protocol::TCP { PortKind::Tcp } else { PortKind::Udp };
    cx.text(if number == protocol::TCP { " tcp port " } else { " udp port " });
    cx.port(kind, port);
    Ok(true)
}

/// Protocol and destination port of a quoted packet, past its extension headers.
fn quoted_port(quote: Span<'_>) -> Option<(u8, u16)> {
    let mut next = quote.u8(6).ok()?;
    let mut rest = quote.skip(40);
    loop {
        let length = match next {
            protocol::UDP | protocol::TCP => return rest.u16(2).ok().map(|port| (next, port)),
            protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS | protocol::ROUTING => {
                (usize::from(rest.u8(1).ok()?) + 1) * 8
            }
            protocol::FRAGMENT if rest.u16(2).ok()? & 0xfff8 == 0 => 8,
            protocol::AH => (usize::from(rest.u8(1).ok()?) + 2) * 4,
            _ => return None,
        };
        next = rest.u8(0).ok()?;
        rest = rest.skip(length);
    }
}

fn parameter_problem(cx: &mut Context<'_>, span: Span<'_>, code: u8) -> Result<bool, Cut> {
    if span.need(QUOTE_AT + 40).is_err() {
        cx.cut();
        return Ok(false);
    }
    let octet = span.u32(4)?;
    match code {
        0 => put!(cx, ", erroneous - octet {octet}"),
        1 => put!(cx, ", next header - octet {octet}"),
        2 => put!(cx, ", option - octet {octet}"),
        3 => put!(cx, ", incomplete header chain - octet {octet}"),
        _ => put!(cx, ", code-#{code}"),
    }
    Ok(true)
}

const ROUTER_FLAGS: &[(u32, &str)] =
    &[(0x80, "managed"), (0x40, "other stateful"), (0x20, "home agent"), (0x02, "ipv6 only")];

const NEIGHBOR_FLAGS: &[(u32, &str)] =
    &[(0x8000_0000, "router"), (0x4000_0000, "solicited"), (0x2000_0000, "override")];

/// A router's preference (RFC 4191), from the byte that holds it.
fn preference(flags: u8) -> &'static str {
    ["medium", "high", "rsv", "low"][usize::from((flags >> 3) & 3)]
}

fn router_advertisement(cx: &mut Context<'_>, span: Span<'_>) -> Result<bool, Cut> {
    let flags = span.u8(5)?;
    span.need(16)?;
    put!(cx, "\n\thop limit {}, Flags [", span.u8(4)?);
    put_bits(cx, ROUTER_FLAGS, "none", ", ", u32::from(flags));
    put!(
        cx,
        "], pref {}, router lifetime {}s, reachable time {}ms, retrans timer {}ms",
        preference(flags),
        span.u16(6)?,
        span.u32(8)?,
        span.u32(12)?
    );
    options::print(cx, span, 16)
}

fn neighbor_advertisement(cx: &mut Context<'_>, span: Span<'_>) -> Result<bool, Cut> {
    let target = span.array::<16>(8)?;
    cx.text(", tgt is ");
    cx.host(IpAddr::from(target));
    if cx.verbose() == 0 {
        return Ok(true);
    }
    cx.text(", Flags [");
    put_bits(cx, NEIGHBOR_FLAGS, "none", ", ", span.u32(4)?);
    cx.text("]");
    options::print(cx, span, 24)
}

fn redirect(cx: &mut Context<'_>, span: Span<'_>) -> Result<bool, Cut> {
    let destination = span.array::<16>(24)?;
    cx.text(", ");
    cx.host(IpAddr::from(destination));
    cx.text(" to ");
    host_at(cx, span, 8)?;
    if cx.verbose() == 0 {
        return Ok(true);
    }
    options::print(cx, span, 40)
}

fn home_agents(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    put!(cx, ", id 0x{:04x}", span.u16(4)?);
    for at in (8..span.length).step_by(16) {
        let address = span.array::<16>(at)?;
        cx.text(", ");
        cx.host(IpAddr::from(address));
    }
    Ok(())
}

fn mobile_advertisement(cx: &mut Context<'_>, span: Span<'_>) -> Result<bool, Cut> {
    put!(cx, ", id 0x{:04x}", span.u16(4)?);
    let flags = span.u16(6)?;
    if flags & 0xc000 != 0 {
        cx.text(" ");
    }
    if flags & 0x8000 != 0 {
        cx.text("M");
    }
    if flags & 0x4000 != 0 {
        cx.text("O");
    }
    options::print(cx, span, 8)
}
