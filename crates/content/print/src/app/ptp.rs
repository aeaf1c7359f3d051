//! Precision time protocol (IEEE 1588-2008), over Ethernet and UDP.
//!
//! ```text
//! profile 4 bits, message 4 | version 1 | length 2 | domain 1 | 0 1 | flags 2 | correction 8 | 0 4 | clock 8 | port 2
//! sequence 2 | control 1 | interval 1 | by message: time stamp (seconds 6, nanoseconds 4), clock 8, port 2 ...
//! ```

use crate::bytes::{Cut, Printed, Span};
use crate::context::{Context, lookup, put, put_bits};
use crate::text::Text;

const HEADER_LEN: usize = 34;

const MESSAGES: &[(u8, &str)] = &[
    (0x0, "sync msg"),
    (0x1, "delay req msg"),
    (0x2, "peer delay req msg"),
    (0x3, "peer delay resp msg"),
    (0x8, "follow up msg"),
    (0x9, "delay resp msg"),
    (0xa, "pdelay resp fup msg"),
    (0xb, "announce msg"),
    (0xc, "signalling msg"),
    (0xd, "management msg"),
];

const CONTROLS: [&str; 6] = ["Sync", "Delay_Req", "Follow_Up", "Delay_Resp", "Management", "Other"];

const FLAGS: &[(u32, &str)] = &[
    (0x0001, "l1 61"),
    (0x0002, "l1 59"),
    (0x0004, "utc reasonable"),
    (0x0008, "timescale"),
    (0x0010, "time tracable"),
    (0x0020, "frequency tracable"),
    (0x0100, "alternate master"),
    (0x0200, "two step"),
    (0x0400, "unicast"),
    (0x1000, "profile specific 1"),
    (0x2000, "profile specific 2"),
    (0x4000, "security mask"),
    (0x18c0, "unknown"),
];

pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "ptp";
    if span.length < HEADER_LEN {
        put!(cx, " [length {} < {HEADER_LEN}]", span.length);
        cx.invalid();
        return Ok(());
    }
    let version = span.u16(0)? & 0xff;
    put!(cx, "PTPv{version}");
    match version {
        1 => cx.text(" (not implemented)"),
        2 => message(cx, span)?,
        _ => {}
    }
    Ok(())
}

fn message(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    let first = span.u8(0)?;
    let kind = first & 0x0f;
    put!(cx, ", v1 compat : {}", if first & 0x10 != 0 { "yes" } else { "no" });
    put!(cx, ", msg type : {}", lookup(MESSAGES, kind).unwrap_or("Reserved"));
    put!(cx, ", length : {}", span.u16(2)?);
    let domain = span.u16(4)?;
    put!(cx, ", domain : {}, reserved1 : {}", domain >> 8, domain & 0xff);
    let flags = u32::from(span.u16(6)?);
    cx.text(", Flags [");
    put_bits(cx, FLAGS, "none", ", ", flags);
    cx.text("]");
    put!(cx, ", NS correction : {}", u48(span, 8)?);
    put!(cx, ", sub NS correction : {}", span.u16(14)?);
    put!(cx, ", reserved2 : {}", span.u32(16)?);
    put!(cx, ", clock identity : 0x{:x}", span.u64(20)?);
    put!(cx, ", port id : {}", span.u16(28)?);
    put!(cx, ", seq id : {}", span.u16(30)?);
    let control = span.u8(32)?;
    let name = CONTROLS.get(usize::from(control)).copied().unwrap_or("Reserved");
    put!(cx, ", control : {control} ({name})");
    put!(cx, ", log message interval : {}", span.u16(32)? & 0xff);
    let body = span.skip(HEADER_LEN);
    match kind {
        0x0 | 0x1 => timestamp(cx, body, "originTimeStamp", ","),
        0x8 => timestamp(cx, body, "preciseOriginTimeStamp", ","),
        0x2 | 0xa => timestamp_of_port(cx, body, "preciseOriginTimeStamp"),
        0x3 | 0x9 => timestamp_of_port(cx, body, "receiveTimeStamp"),
        0xb => announcement(cx, body),
        0xc => port(cx, body),
        0xd => management(cx, body),
        _ => Ok(()),
    }
}

fn u48(span: Span<'_>, at: usize) -> Result<u64, Cut> {
    let [a, b, c, d, e, f] = span.array(at)?;
    Ok(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
}

fn timestamp(cx: &mut Context<'_>, body: Span<'_>, name: &str, comma: &str) -> Printed {
    put!(cx, ", {name} :");
    put!(cx, " {} seconds{comma}", u48(body, 0)?);
    put!(cx, " {} nanoseconds", body.u32(6)?);
    Ok(())
}

fn timestamp_of_port(cx: &mut Context<'_>, body: Span<'_>, name: &str) -> Printed {
    timestamp(cx, body, name, ",")?;
    port(cx, body.skip(10))
}

fn port(cx: &mut Context<'_>, body: Span<'_>) -> Printed {
    put!(cx, ", port identity : 0x{:x}", body.u64(0)?);
    put!(cx, ", port id : {}", body.u16(8)?);
    Ok(())
}

fn announcement(cx: &mut Context<'_>, body: Span<'_>) -> Printed {
    timestamp(cx, body, "originTimeStamp", "")?;
    put!(cx, ", origin cur utc :{}", body.u16(10)?);
    put!(cx, ", rsvd : {}", body.u8(12)?);
    put!(cx, ", gm priority_1 : {}", body.u8(13)?);
    put!(cx, ", gm clock class : {}", body.u8(14)?);
    put!(cx, ", gm clock accuracy : {}", body.u8(15)?);
    put!(cx, ", gm clock variance : {}", body.u16(16)?);
    put!(cx, ", gm priority_2 : {}", body.u8(18)?);
    put!(cx, ", gm clock id : 0x{:x}", body.u64(19)?);
    put!(cx, ", steps removed : {}", body.u16(27)?);
    put!(cx, ", time source : 0x{:x}", body.u8(29)?);
    Ok(())
}

/// tcpdump takes each of the four fields from the first byte of the port's identity.
fn management(cx: &mut Context<'_>, body: Span<'_>) -> Printed {
    port(cx, body)?;
    let field = body.u8(0)?;
    put!(cx, ", , start boundary hops  {field}, , boundary hops  {field}");
    put!(cx, ", , flags  0x{field:x}, , reserved  0x{field:x}");
    Ok(())
}
