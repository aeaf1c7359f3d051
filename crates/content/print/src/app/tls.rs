//! Hellos of TLS, as `tapline_dissect` reads them.
//!
//! tcpdump prints nothing for TLS, so the text without `-v` is left as it is; `-v` adds `TLS client hello, version
//! 1.3, sni example.com, alpn h2,http/1.1`. A hello may go on in the next segment: its captured part is printed.

use tapline_dissect::tls::{ClientHello, DRAFT_VERSION, Hello, Record, ServerHello};

use crate::bytes::Span;
use crate::context::{Context, put};
use crate::text::Text;

/// Content types of records.
pub(crate) const CONTENTS: &[(u8, &str)] = &[
    (20, "change_cipher_spec"),
    (21, "alert"),
    (22, "handshake"),
    (23, "application_data"),
    (24, "heartbeat"),
];

/// `1.2`; `None` for numbers that name no version.
pub(crate) fn version_name(version: u16) -> Option<&'static str> {
    Some(match version {
        0x0002 => "SSL 2",
        0x0300 => "SSL 3",
        0x0301 => "1.0",
        0x0302 => "1.1",
        0x0303 => "1.2",
        0x0304 => "1.3",
        _ => return None,
    })
}

/// The record at the start of `span`, if there is one.
pub(crate) fn record(span: Span<'_>) -> Option<Record<'_>> {
    Record::parse(&span.data[..span.length.min(span.data.len())])
}

/// The hello of a segment, with `-v` only; nothing, and `false`, for any other payload.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> bool {
    if cx.verbose() == 0 {
        return false;
    }
    match record(span).and_then(|record| record.hello()) {
        Some(Hello::Client(hello)) => print_client(cx, &hello),
        Some(Hello::Server(hello)) => print_server(cx, &hello),
        None => return false,
    }
    true
}

fn print_client(cx: &mut Context<'_>, hello: &ClientHello<'_>) {
    cx.text(": TLS client hello");
    print_version(cx, hello.version());
    if !hello.server_name().is_empty() {
        cx.text(", sni ");
        cx.visible_all(hello.server_name());
    }
    print_protocols(cx, hello.protocols());
}

fn print_server(cx: &mut Context<'_>, hello: &ServerHello<'_>) {
    cx.text(": TLS server hello");
    print_version(cx, hello.version());
    print_protocols(cx, hello.protocols());
    if let Some(suite) = hello.cipher_suite {
        put!(cx, ", cipher 0x{suite:04x}");
    }
}

fn print_version(cx: &mut Context<'_>, version: u16) {
    match (version_name(version), version.to_be_bytes()) {
        (Some(name), _) => put!(cx, ", version {name}"),
        (None, [DRAFT_VERSION, draft]) => put!(cx, ", version 1.3 draft {draft}"),
        (None, _) => put!(cx, ", version 0x{version:04x}"),
    }
}

fn print_protocols<'p>(cx: &mut Context<'_>, protocols: impl Iterator<Item = &'p [u8]>) {
    for (index, name) in protocols.enumerate() {
        cx.text(if index == 0 { ", alpn " } else { "," });
        cx.visible_all(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::lookup;

    #[test]
    fn every_content_type_of_a_record_has_a_name() {
        for content in 0..=255 {
            let bytes = [content, 3, 3, 0, 1, 0];
            assert_eq!(record(Span::whole(&bytes)).is_some(), lookup(CONTENTS, content).is_some());
        }
        assert_eq!(version_name(0x0304), Some("1.3"));
    }

    #[test]
    fn padding_behind_a_segment_is_no_record() {
        let bytes = [22, 3, 3, 0, 1, 1];
        assert!(record(Span { data: &bytes, length: 4 }).is_none());
        assert_eq!(record(Span { data: &bytes, length: 9 }).map(|record| record.data), Some(&[1][..]));
    }
}
