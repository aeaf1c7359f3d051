//! Application protocols: by port, and on any port by how their messages begin (TLS, HTTP, SSH).

use tapline_dissect::Detection;
use tapline_dissect::fields::Fields;
use tapline_dissect::http::{Head, Start};

use super::walk::Walk;
use super::write::Writer;
use super::{control, dhcp, dns, security, tunnel};
use crate::app::ntp;
use crate::app::service::{TcpService, UdpService};
use crate::bytes::{Cut, Printed, Span};

/// The payload of a TCP segment.
pub(super) fn tcp(walk: &mut Walk, span: Span<'_>, (source, destination): (u16, u16)) -> Printed {
    let service = TcpService::of(source, destination);
    if service == Some(TcpService::Dns) {
        // A message that begins here has its length before it (RFC 1035, 4.2.2).
        return match span.u16(0) {
            Ok(length) if usize::from(length) <= span.length => dns::message(walk, span.skip(2), false),
            _ => Ok(()),
        };
    }
    if security::tls(walk, span) || security::ssh(walk, span) || http(walk, span) {
        return Ok(());
    }
    match service {
        Some(TcpService::OpenFlow) => control::openflow(walk, span)?,
        Some(TcpService::Rpki) => control::rpki(walk, span)?,
        Some(TcpService::Smtp | TcpService::Submission) => text_line(walk, "smtp", span),
        Some(TcpService::Ftp) => text_line(walk, "ftp", span),
        Some(TcpService::Pop3) => text_line(walk, "pop3", span),
        Some(TcpService::Imap) => text_line(walk, "imap", span),
        Some(TcpService::Rtsp) => text_line(walk, "rtsp", span),
        Some(TcpService::Sip) => text_line(walk, "sip", span),
        Some(TcpService::Irc) => text_line(walk, "irc", span),
        _ => {}
    }
    Ok(())
}

/// The payload of a UDP datagram.
pub(super) fn udp(walk: &mut Walk, span: Span<'_>, (source, destination): (u16, u16)) -> Printed {
    match UdpService::of(source, destination) {
        Some(UdpService::Dns | UdpService::Llmnr) => dns::message(walk, span, false),
        Some(UdpService::MulticastDns) => dns::message(walk, span, true),
        Some(UdpService::Dhcp) => dhcp::message(walk, span),
        Some(UdpService::Ntp) => time(walk, span),
        Some(UdpService::Ptp) => control::ptp(walk, span),
        Some(UdpService::Lisp) => control::lisp(walk, span),
        Some(UdpService::Babel) => control::babel(walk, span),
        Some(UdpService::Olsr) => control::olsr(walk, span),
        Some(UdpService::LspPing) => control::lsp_ping(walk, span),
        Some(UdpService::Vxlan) => tunnel::vxlan(walk, span),
        Some(UdpService::Geneve) => tunnel::geneve(walk, span),
        Some(UdpService::GtpU) => tunnel::gtp_u(walk, span),
        Some(UdpService::Quic) => {
            security::quic(walk, span);
            Ok(())
        }
        Some(UdpService::Sip) => {
            text_line(walk, "sip", span);
            Ok(())
        }
        Some(UdpService::Syslog) => {
            text_line(walk, "syslog", span);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The start of an HTTP message (RFC 9112). Whether the payload is one.
fn http(walk: &mut Walk, span: Span<'_>) -> bool {
    let bytes = &span.data[..span.length.min(span.data.len())];
    let Detection::Match(head) = Head::parse(bytes, true) else { return false };
    let written: Result<(), Cut> = walk.layer("http", |json| {
        let minor = match head.start {
            Start::Request { method, target, minor } => {
                json.text_field("kind", b"request");
                json.text_field("method", method);
                json.text_field("uri", target);
                minor
            }
            Start::Response { status, reason, minor } => {
                json.text_field("kind", b"response");
                json.number_field("status", status);
                json.text_field("reason", reason);
                minor
            }
        };
        json.text_field("version", &[b'1', b'.', b'0' + minor]);
        header_fields(json, head.fields());
        Ok(())
    });
    written.is_ok()
}

/// Header lines that get a key: name in lower case, key.
const HEADERS: [(&str, &str); 8] = [
    ("host", "host"),
    ("user-agent", "user_agent"),
    ("referer", "referer"),
    ("server", "server"),
    ("location", "location"),
    ("content-type", "content_type"),
    ("content-length", "content_length"),
    ("transfer-encoding", "transfer_encoding"),
];

/// Writes the first of each, as strings, and the number of lines that are not fields.
fn header_fields(json: &mut Writer, mut fields: Fields<'_>) {
    let mut found = [None; HEADERS.len()];
    for field in fields.by_ref() {
        if let Some(at) = HEADERS.iter().position(|(name, _)| field.is(name)) {
            found[at].get_or_insert(field);
        }
    }
    for ((_, key), field) in HEADERS.iter().zip(found) {
        if let Some(field) = field {
            json.text_field(key, &field.value());
        }
    }
    if fields.malformed() > 0 {
        json.number_field("malformed_lines", fields.malformed() as u64);
    }
}

/// Longest line that is shown.
const LINE_MAX: usize = 1024;

/// The first line of a text protocol; nothing for other bytes.
fn text_line(walk: &mut Walk, name: &'static str, span: Span<'_>) {
    let all = &span.data[..span.length.min(span.data.len())];
    let bytes = &all[..all.len().min(LINE_MAX)];
    let end = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
    let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    if line.is_empty() || line.iter().any(|&byte| byte < 0x20 && byte != b'\t') {
        return;
    }
    let _: Result<(), Cut> = walk.layer(name, |json| {
        json.text_field("line", line);
        if end == LINE_MAX && all.get(end).is_some_and(|byte| !matches!(byte, b'\r' | b'\n')) {
            json.boolean_field("line_truncated", true);
        }
        Ok(())
    });
}

const NTP_MODES: [&[u8]; 8] = [
    b"reserved",
    b"symmetric_active",
    b"symmetric_passive",
    b"client",
    b"server",
    b"broadcast",
    b"control",
    b"private",
];

/// NTP (RFC 5905).
fn time(walk: &mut Walk, span: Span<'_>) -> Printed {
    walk.layer("ntp", |json| {
        let first = span.u8(0)?;
        json.number_field("version", first >> 3 & 7);
        json.text_field("mode", NTP_MODES[usize::from(first & 7)]);
        if matches!(first & 7, 6 | 7) {
            return Ok(());
        }
        json.number_field("leap", first >> 6);
        json.number_field("stratum", span.u8(1)?);
        for (name, at) in [("poll", 2), ("precision", 3)] {
            let value = span.u8(at)? as i8;
            json.signed_field(name, value);
        }
        for (name, at) in [("root_delay", 4), ("root_dispersion", 8)] {
            let value = f64::from(span.u32(at)?) / 65_536.0;
            json.fraction_field(name, value);
        }
        json.hex_field("reference_id", span.u32(12)?, 8);
        for (name, at) in [("reference", 16), ("originate", 24), ("receive", 32), ("transmit", 40)] {
            let value = span.u64(at)?;
            timestamp(json, name, value);
        }
        Ok(())
    })
}

/// Seconds since 1900 with nine digits, as a string: a 64-bit float would lose some.
fn timestamp(json: &mut Writer, name: &'static str, value: u64) {
    json.string_field(name, |part| {
        part.decimal(value >> 32, 1);
        part.bytes(b".");
        part.decimal(ntp::nanoseconds(value), 9);
    });
}
