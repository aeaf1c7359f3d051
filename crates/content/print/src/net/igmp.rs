//! IGMP (RFC 1112, RFC 2236, RFC 3376), with the mtrace messages that use its number.
//!
//! ```text
//! | type 1 | response time 1 | checksum 2 | group 4 |
//! v3 query:  ... | flags 1 | interval 1 | count 2 | sources 4... |
//! v3 report: | type 1 | 0 | checksum 2 | 0 | count 2 | (type 1, aux 1, count 2, group 4, sources 4...)... |
//! ```

use std::net::IpAddr;

mod dvmrp;

use crate::app::pim;
use crate::bytes::{Cut, Printed, Span};
use crate::checksum;
use crate::context::{Context, lookup, put};
use crate::text::Text;

/// Names of the states of a group's sources in a report; shared with MLD.
pub(super) const RECORD_TYPES: &[(u8, &str)] =
    &[(1, "is_in"), (2, "is_ex"), (3, "to_in"), (4, "to_ex"), (5, "allow"), (6, "block")];

/// The response time that is not worth a word: 10 seconds, in tenths.
const USUAL_RESPONSE: u8 = 100;

/// Prints an IGMP message.
pub(super) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "igmp";
    if cx.options.quiet {
        cx.text("igmp");
        return Ok(());
    }
    message(cx, span)?;
    if cx.verbose() > 0 && span.length >= 4 && span.captured() >= span.length {
        let bytes = span.bytes(0, span.length)?;
        if checksum::internet(bytes) != 0 {
            put!(cx, " bad igmp cksum {:x}!", span.u16(2)?);
        }
    }
    Ok(())
}

fn message(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    match span.u8(0)? {
        0x11 => {
            cx.text("igmp query");
            if span.length >= 12 { query_v3(cx, span) } else { query(cx, span) }
        }
        0x12 => {
            group(cx, "igmp v1 report ", span)?;
            if span.length != 8 {
                put!(cx, " [len {}]", span.length);
            }
            Ok(())
        }
        0x16 => group(cx, "igmp v2 report ", span),
        0x17 => group(cx, "igmp leave ", span),
        0x22 => {
            cx.text("igmp v3 report");
            report_v3(cx, span)
        }
        0x13 => {
            cx.text("igmp dvmrp");
            if span.length < 8 {
                put!(cx, " [len {}]", span.length);
                return Ok(());
            }
            dvmrp::print(cx, span)
        }
        0x14 => {
            cx.text("igmp pimv1");
            pim::print_version1(cx, span)
        }
        0x1e => trace(cx, "mresp", span),
        0x1f => trace(cx, "mtrace", span),
        kind => {
            put!(cx, "igmp-{kind}");
            Ok(())
        }
    }
}

fn address(cx: &mut Context<'_>, span: Span<'_>, at: usize) -> Printed {
    cx.host(IpAddr::from(span.array::<4>(at)?));
    Ok(())
}

fn group(cx: &mut Context<'_>, text: &str, span: Span<'_>) -> Printed {
    span.need(8)?;
    cx.text(text);
    address(cx, span, 4)
}

fn query(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    match span.u8(1)? {
        0 => cx.text(" v1"),
        USUAL_RESPONSE => cx.text(" v2"),
        time => put!(cx, " v2 [max resp time {time}]"),
    }
    if span.u32(4)? != 0 {
        cx.text(" [gaddr ");
        address(cx, span, 4)?;
        cx.text("]");
    }
    if span.length != 8 {
        put!(cx, " [len {}]", span.length);
    }
    Ok(())
}

fn query_v3(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.text(" v3");
    if !span.length.is_multiple_of(4) {
        put!(cx, " [invalid len {}]", span.length);
        return Ok(());
    }
    let code = span.u8(1)?;
    if code != USUAL_RESPONSE {
        cx.text(" [max resp time ");
        print_tenths(cx, response_tenths(code));
        cx.text("]");
    }
    if span.u32(4)? == 0 {
        return Ok(());
    }
    cx.text(" [gaddr ");
    address(cx, span, 4)?;
    let count = usize::from(span.u16(10)?);
    if count > 0 {
        if span.length < 12 + count * 4 {
            cx.text(" [invalid number of sources]");
        } else if cx.verbose() > 1 {
            sources(cx, span.skip(12), count)?;
        } else {
            put!(cx, ", {count} source(s)");
        }
    }
    cx.text("]");
    Ok(())
}

/// A code from 128 on is a floating point number (RFC 3376, 4.1.1).
fn response_tenths(code: u8) -> u32 {
    if code < 128 {
        return u32::from(code);
    }
    (u32::from(code & 0x0f) | 0x10) << (u32::from((code & 0x70) >> 4) + 3)
}

fn print_tenths(cx: &mut Context<'_>, tenths: u32) {
    if tenths < 600 {
        put!(cx, "{}.{}s", tenths / 10, tenths % 10);
    } else {
        print_duration(cx, tenths / 10);
    }
}

/// `1w2d3h4m5s`, without zero parts.
pub(crate) fn print_duration(cx: &mut Context<'_>, seconds: u32) {
    if seconds == 0 {
        cx.text("0s");
        return;
    }
    let mut rest = seconds;
    for (name, unit) in [("w", 604_800), ("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)] {
        if rest >= unit {
            put!(cx, "{}{name}", rest / unit);
            rest %= unit;
        }
    }
}

fn sources(cx: &mut Context<'_>, span: Span<'_>, count: usize) -> Printed {
    cx.text(" {");
    for index in 0..count {
        let source = span.array::<4>(index * 4)?;
        cx.text(" ");
        cx.host(IpAddr::from(source));
    }
    cx.text(" }");
    Ok(())
}

fn report_v3(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    if span.length < 16 || !span.length.is_multiple_of(4) {
        put!(cx, " [invalid len {}]", span.length);
        return Ok(());
    }
    group_records(cx, span, 8, record)
}

/// The number of group records behind the header of 8 bytes, and with `-v` each of them. `record` prints one of at
/// least `record_len` bytes, and returns its length; `None` ends the list.
pub(super) fn group_records(
    cx: &mut Context<'_>,
    span: Span<'_>,
    record_len: usize,
    record: fn(&mut Context<'_>, Span<'_>) -> Result<Option<usize>, Cut>,
) -> Printed {
    let groups = span.u16(6)?;
    put!(cx, ", {groups} group record(s)");
    if cx.verbose() == 0 {
        return Ok(());
    }
    let mut rest = span.skip(8);
    for _ in 0..groups {
        if rest.length < record_len {
            cx.text(" [invalid number of groups]");
            return Ok(());
        }
        let Some(used) = record(cx, rest)? else { return Ok(()) };
        rest = rest.skip(used);
    }
    Ok(())
}

/// The number of bytes of the record; `None` if its count of sources makes no sense.
fn record(cx: &mut Context<'_>, span: Span<'_>) -> Result<Option<usize>, Cut> {
    span.need(8)?;
    cx.text(" [gaddr ");
    address(cx, span, 4)?;
    cx.text(" ");
    let kind = span.u8(0)?;
    match lookup(RECORD_TYPES, kind) {
        Some(name) => cx.text(name),
        None => put!(cx, " [v3-report-#{kind}]"),
    }
    let count = usize::from(span.u16(2)?);
    if span.length < 8 + count * 4 {
        put!(cx, " [invalid number of sources {count}]");
        return Ok(None);
    }
    if cx.verbose() == 1 {
        put!(cx, ", {count} source(s)");
    } else {
        sources(cx, span.skip(8), count)?;
    }
    cx.text("]");
    Ok(Some(8 + count * 4))
}

/// Multicast traceroute: `| header 8 | source 4 | destination 4 | response address 4 | ttl 1 | query id 3 |`.
fn trace(cx: &mut Context<'_>, name: &str, span: Span<'_>) -> Printed {
    if span.length < 24 {
        put!(cx, " [invalid len {}]", span.length);
        return Ok(());
    }
    span.need(24)?;
    put!(cx, "{name} {}: ", span.u24(21)?);
    address(cx, span, 8)?;
    cx.text(" to ");
    address(cx, span, 12)?;
    cx.text(" reply-to ");
    address(cx, span, 16)?;
    if span.u8(16)? >> 4 == 0xe {
        put!(cx, " with-ttl {}", span.u8(20)?);
    }
    Ok(())
}
