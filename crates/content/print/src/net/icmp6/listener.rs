//! Multicast listener discovery (RFC 2710, RFC 3810).
//!
//! ```text
//! | type, code, checksum 4 | response time 2 | 0 | group 16 |
//! v2 query:  ... | flags 1 | interval 1 | count 2 | sources 16... |
//! v2 report: | type, code, checksum 4 | 0 | count 2 | (type 1, aux 1, count 2, group 16, sources 16...)... |
//! ```

use std::net::IpAddr;

use super::host_at;
use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put};
use crate::net::igmp::{self, RECORD_TYPES};
use crate::text::Text;

const VERSION_1_LEN: usize = 24;
const QUERY_V2_LEN: usize = 28;
const RECORD_LEN: usize = 20;

/// Queries of both versions, which differ in their length.
pub(super) fn query(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    match span.length {
        VERSION_1_LEN => {
            version_1(cx, span);
            Ok(())
        }
        QUERY_V2_LEN.. => {
            cx.text(" v2");
            query_v2(cx, span)
        }
        length => {
            put!(cx, " unknown-version (len {length}) ");
            Ok(())
        }
    }
}

/// Messages of the first version. One that is cut short is shown without its group.
pub(super) fn version_1(cx: &mut Context<'_>, span: Span<'_>) {
    let (Ok(delay), Ok(group)) = (span.u16(4), span.array::<16>(8)) else { return };
    put!(cx, "max resp delay: {delay} addr: ");
    cx.host(IpAddr::from(group));
}

fn query_v2(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    let verbose = cx.verbose() > 0;
    let code = span.u16(4)?;
    if verbose {
        put!(cx, " [max resp delay={}]", response_delay(code));
    }
    span.need(24)?;
    cx.text(" [gaddr ");
    host_at(cx, span, 8)?;
    if verbose {
        print_query_fields(cx, span.u8(24)?, span.u8(25)?);
    }
    let count = usize::from(span.u16(26)?);
    if count > 0 {
        if span.length < QUERY_V2_LEN + count * 16 {
            cx.text(" [invalid number of sources]");
        } else if cx.verbose() > 1 {
            sources(cx, span.skip(QUERY_V2_LEN), count)?;
        } else {
            put!(cx, ", {count} source(s)");
        }
    }
    cx.text("]");
    Ok(())
}

/// Milliseconds; a code from 32768 on is a floating point number (RFC 3810, 5.1.3).
fn response_delay(code: u16) -> u32 {
    let code = u32::from(code);
    if code < 32_768 { code } else { ((code & 0x0fff) | 0x1000) << (((code & 0x7000) >> 12) + 3) }
}

fn print_query_fields(cx: &mut Context<'_>, flags: u8, interval: u8) {
    if flags & 0x08 != 0 {
        cx.text(" sflag");
    }
    if flags & 0x07 != 0 {
        put!(cx, " robustness={}", flags & 0x07);
    }
    let interval = u32::from(interval);
    let seconds =
        if interval < 128 { interval } else { ((interval & 0x0f) | 0x10) << (((interval & 0x70) >> 4) + 3) };
    put!(cx, " qqi={seconds}");
}

fn sources(cx: &mut Context<'_>, span: Span<'_>, count: usize) -> Printed {
    cx.text(" {");
    for index in 0..count {
        let source = span.array::<16>(index * 16)?;
        cx.text(" ");
        cx.host(IpAddr::from(source));
    }
    cx.text(" }");
    Ok(())
}

/// Reports of the second version.
pub(super) fn report_v2(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    if span.length < 8 {
        put!(cx, " [invalid len {}]", span.length);
        return Ok(());
    }
    igmp::group_records(cx, span, RECORD_LEN, record)
}

/// The number of bytes of the record; `None` if its count of sources makes no sense.
fn record(cx: &mut Context<'_>, span: Span<'_>) -> Result<Option<usize>, Cut> {
    span.need(RECORD_LEN)?;
    cx.text(" [gaddr ");
    host_at(cx, span, 4)?;
    cx.text(" ");
    let kind = span.u8(0)?;
    match lookup(RECORD_TYPES, kind) {
        Some(name) => cx.text(name),
        None => put!(cx, " [v2-report-#{kind}]"),
    }
    let count = usize::from(span.u16(2)?);
    if span.length < RECORD_LEN + count * 16 {
        put!(cx, " [invalid number of sources {count}]");
        return Ok(None);
    }
    if cx.verbose() == 1 {
        put!(cx, ", {count} source(s)");
    } else {
        sources(cx, span.skip(RECORD_LEN), count)?;
    }
    cx.text("]");
    Ok(Some(RECORD_LEN + count * 16))
}
