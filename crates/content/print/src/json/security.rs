//! Plaintext of encrypted protocols: TLS hellos, QUIC headers, SSH identification.

use tapline_dissect::quic::{LongHeader, LongPacketType};
use tapline_dissect::tls::{ClientHello, Hello, ServerHello};

use super::walk::Walk;
use super::write::Writer;
use crate::app::tls;
use crate::bytes::{Cut, Span};
use crate::context::lookup;

/// A TLS record at the start of a segment. Whether there is one.
pub(super) fn tls(walk: &mut Walk, span: Span<'_>) -> bool {
    let Some(record) = tls::record(span) else { return false };
    let _: Result<(), Cut> = walk.layer("tls", |json| {
        json.text_field("content", lookup(tls::CONTENTS, record.content_type).unwrap_or("").as_bytes());
        json.hex_field("record_version", record.version, 4);
        json.number_field("record_length", record.length);
        match record.hello() {
            Some(Hello::Client(hello)) => client_hello(json, &hello),
            Some(Hello::Server(hello)) => server_hello(json, &hello),
            None => {}
        }
        Ok(())
    });
    true
}

fn client_hello(json: &mut Writer, hello: &ClientHello<'_>) {
    json.text_field("handshake", b"client_hello");
    version(json, hello.version());
    if !hello.server_name().is_empty() {
        json.text_field("sni", hello.server_name());
    }
    protocols(json, || hello.protocols());
    json.array_field("versions", |json| hello.versions().for_each(|v| json.hex(v.into(), 4)));
    json.array_field("ciphers", |json| hello.cipher_suites().for_each(|v| json.hex(v.into(), 4)));
}

fn server_hello(json: &mut Writer, hello: &ServerHello<'_>) {
    json.text_field("handshake", b"server_hello");
    version(json, hello.version());
    protocols(json, || hello.protocols());
    if let Some(suite) = hello.cipher_suite {
        json.hex_field("cipher", suite, 4);
    }
}

fn version(json: &mut Writer, version: u16) {
    json.hex_field("version", version, 4);
    if let Some(name) = tls::version_name(version) {
        json.text_field("version_name", name.as_bytes());
    }
}

fn protocols<'p, P: Iterator<Item = &'p [u8]>>(json: &mut Writer, names: impl Fn() -> P) {
    if names().next().is_some() {
        json.array_field("alpn", |json| names().for_each(|name| json.text(name)));
    }
}

/// An SSH identification line. Whether there is one.
pub(super) fn ssh(walk: &mut Walk, span: Span<'_>) -> bool {
    let bytes = &span.data[..span.length.min(span.data.len())];
    if !bytes.starts_with(b"SSH-") {
        return false;
    }
    let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(bytes.len());
    let _: Result<(), Cut> = walk.layer("ssh", |json| {
        // Identifications are at most 255 bytes long (RFC 4253, 4.2).
        json.text_field("identification", &bytes[..end.min(255)]);
        Ok(())
    });
    true
}

/// The long header of a QUIC packet (RFC 9000, 17.2). Other packets are encrypted, or cannot be distinguished from
/// other protocols.
pub(super) fn quic(walk: &mut Walk, span: Span<'_>) {
    if span.need(7).is_err() {
        return;
    }
    let Some(header) = LongHeader::parse(&span.data[..span.length.min(span.data.len())]) else { return };
    // A cut is noted by the layer.
    let _: Result<(), Cut> = walk.layer("quic", |json| {
        json.hex_field("version", header.version, 8);
        json.text_field("type", type_name(header.packet_type));
        json.bytes_field("dcid", header.destination_id.ok_or(Cut)?);
        json.bytes_field("scid", header.source_id.ok_or(Cut)?);
        Ok(())
    });
}

fn type_name(packet_type: LongPacketType) -> &'static [u8] {
    match packet_type {
        LongPacketType::VersionNegotiation => b"version_negotiation",
        LongPacketType::Initial => b"initial",
        LongPacketType::ZeroRtt => b"0rtt",
        LongPacketType::Handshake => b"handshake",
        LongPacketType::Retry => b"retry",
    }
}
