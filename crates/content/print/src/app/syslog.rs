//! Syslog over UDP (RFC 3164): `<priority>message`, priority = facility * 8 + severity.

use crate::bytes::{Printed, Span};
use crate::context::{Context, put};
use crate::text::Text;

const SEVERITIES: [&str; 8] =
    ["emergency", "alert", "critical", "error", "warning", "notice", "info", "debug"];

const FACILITIES: [&str; 24] = [
    "kernel", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp",
    "ntp", "security", "console", "cron", "local0", "local1", "local2", "local3", "local4", "local5",
    "local6", "local7",
];

/// One message: `SYSLOG local7.info, length: 54`; with `-v` its text.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> Printed {
    cx.protocol = "syslog";
    if span.u8(0)? != b'<' {
        cx.invalid();
        return Ok(());
    }
    let mut at = 1;
    let mut priority = 0_u16;
    while at <= 3 && span.u8(at)?.is_ascii_digit() {
        priority = priority * 10 + u16::from(span.u8(at)? - b'0');
        at += 1;
    }
    if span.u8(at)? != b'>' {
        cx.invalid();
        return Ok(());
    }
    let (facility, severity) = (priority >> 3 & 0x7f, priority & 7);
    if cx.verbose() == 0 {
        cx.text("SYSLOG ");
        print_facility(cx, facility);
        put!(cx, ".{}, length: {}", SEVERITIES[usize::from(severity)], span.length);
        return Ok(());
    }
    put!(cx, "SYSLOG, length: {}\n\tFacility ", span.length);
    print_facility(cx, facility);
    put!(cx, " ({facility}), Severity {} ({severity})\n\tMsg: ", SEVERITIES[usize::from(severity)]);
    print_message(cx, span, at + 1)
}

fn print_facility(cx: &mut Context<'_>, facility: u16) {
    match FACILITIES.get(usize::from(facility)) {
        Some(name) => cx.text(name),
        None => put!(cx, "unknown ({facility})"),
    }
}

fn print_message(cx: &mut Context<'_>, span: Span<'_>, start: usize) -> Printed {
    let captured = &span.data[..span.length.min(span.data.len())];
    cx.visible_all(captured.get(start..).unwrap_or(&[]));
    span.need(span.length)?;
    if cx.verbose() > 1 {
        cx.hex_lines("\n\t", span);
    }
    Ok(())
}
