//! Payloads of IKE, version 1 (RFC 2408, RFC 2407).

use std::net::IpAddr;

use super::attribute::{self, Name};
use super::{
    PROTOCOLS, Payload, PayloadEnd, cut_in, print_chain, print_contents, print_hex, print_name, print_some,
    print_whole, version2,
};
use crate::bytes::{Cut, Span};
use crate::context::{Context, put};
use crate::net::protocol;
use crate::text::Text;

const PROPOSAL: u8 = 2;
const TRANSFORM: u8 = 3;

/// The domain of interpretation of IPsec (RFC 2407).
const IPSEC: u32 = 1;

/// SPIs without a length that are shown: their count says nothing of the bytes that follow.
const EMPTY_SPIS_MAX: usize = 64;

const CERTIFICATES: [&str; 11] =
    ["none", "pkcs7", "pgp", "dns", "x509sign", "x509ke", "kerberos", "crl", "arl", "spki", "x509attr"];

const IDENTITIES: [&str; 12] = [
    "",
    "IPv4",
    "FQDN",
    "user FQDN",
    "IPv4net",
    "IPv6",
    "IPv6net",
    "IPv4range",
    "IPv6range",
    "ASN1 DN",
    "ASN1 GN",
    "keyid",
];

/// Errors that a notification reports (RFC 2408, 3.14.1).
#[rustfmt::skip]
const ERRORS: [&str; 31] = [
    "", "INVALID-PAYLOAD-TYPE", "DOI-NOT-SUPPORTED", "SITUATION-NOT-SUPPORTED", "INVALID-COOKIE",
    "INVALID-MAJOR-VERSION", "INVALID-MINOR-VERSION", "INVALID-EXCHANGE-TYPE", "INVALID-FLAGS",
    "INVALID-MESSAGE-ID", "INVALID-PROTOCOL-ID", "INVALID-SPI", "INVALID-TRANSFORM-ID",
    "ATTRIBUTES-NOT-SUPPORTED", "NO-PROPOSAL-CHOSEN", "BAD-PROPOSAL-SYNTAX", "PAYLOAD-MALFORMED",
    "INVALID-KEY-INFORMATION", "INVALID-ID-INFORMATION", "INVALID-CERT-ENCODING", "INVALID-CERTIFICATE",
    "CERT-TYPE-UNSUPPORTED", "INVALID-CERT-AUTHORITY", "INVALID-HASH-INFORMATION", "AUTHENTICATION-FAILED",
    "INVALID-SIGNATURE", "ADDRESS-NOTIFICATION", "NOTIFY-SA-LIFETIME", "CERTIFICATE-UNAVAILABLE",
    "UNSUPPORTED-EXCHANGE-TYPE", "UNEQUAL-PAYLOAD-LENGTHS",
];

const RESPONDER_LIFETIME: u16 = 24_576;
const REPLAY_STATUS: u16 = 24_577;

const AUTHENTICATIONS: [&str; 8] =
    ["", "(reserved)", "md5", "sha", "1des", "sha2-256", "sha2-384", "sha2-512"];
pub(super) const CIPHERS: [&str; 13] = [
    "",
    "1des-iv64",
    "1des",
    "3des",
    "rc5",
    "idea",
    "cast",
    "blowfish",
    "3idea",
    "1des-iv32",
    "rc4",
    "null",
    "aes",
];
const COMPRESSIONS: [&str; 4] = ["", "oui", "deflate", "lzs"];

/// Prints a payload that is in a message of version 2.
pub(super) fn print_alone(cx: &mut Context<'_>, message: Span<'_>, payload: Payload) -> PayloadEnd {
    print_payload(cx, message, payload, 0)
}

/// Prints the payloads of a message, the first of which is `first`.
pub(super) fn print(cx: &mut Context<'_>, message: Span<'_>, first: (u8, usize)) -> PayloadEnd {
    print_inner(cx, message, first, 0, 0)
}

/// Prints a payload; `protocol` is that of the proposal around it, 0 if there is none.
fn print_payload(cx: &mut Context<'_>, message: Span<'_>, payload: Payload, protocol: u8) -> PayloadEnd {
    let Payload { kind, at, length, .. } = payload;
    if !matches!(kind, 1..=13) {
        return version2::print_payload(cx, message, payload);
    }
    print_name(cx, &super::PAYLOADS, kind);
    cx.text(":");
    let whole = match kind {
        1 => return association(cx, message, payload, protocol),
        PROPOSAL => return proposal(cx, message, payload),
        TRANSFORM => return transform(cx, message, payload, protocol),
        12 => return deletion(cx, message, at),
        11 => match notification(cx, message, payload)? {
            Some(end) => return Ok(Some(end)),
            None => false,
        },
        4 => print_whole(cx, message, at, length, "key len"),
        5 => identity(cx, message, payload)?,
        6 | 7 => certificate(cx, message, payload),
        10 => print_whole_nonce(cx, message, payload),
        _ => print_whole(cx, message, at, length, "len"),
    };
    Ok(if whole { Some(at + length) } else { cut_in(cx, kind) })
}

fn print_inner(
    cx: &mut Context<'_>,
    message: Span<'_>,
    first: (u8, usize),
    depth: usize,
    protocol: u8,
) -> PayloadEnd {
    print_chain(cx, message, first, depth, &mut |cx, message, payload| {
        print_payload(cx, message, payload, protocol)
    })
}

fn association(cx: &mut Context<'_>, message: Span<'_>, payload: Payload, protocol: u8) -> PayloadEnd {
    let Payload { kind, at, depth, .. } = payload;
    let (Ok(interpretation), Ok(situation)) = (message.u32(at + 4), message.u32(at + 8)) else {
        return Ok(cut_in(cx, kind));
    };
    if interpretation != IPSEC {
        put!(cx, " doi={interpretation} situation={situation}");
        return Ok(Some(at + 12));
    }
    cx.text(" doi=ipsec situation=");
    let mut separator = "";
    for (bit, name) in [(1, "identity"), (2, "secrecy"), (4, "integrity")] {
        if situation & bit != 0 {
            put!(cx, "{separator}{name}");
            separator = "+";
        }
    }
    let mut first = at + 12;
    if situation != 1 {
        // tcpdump reads the identifier where the interpretation stands.
        put!(cx, " ident={}", message.u32(at + 4)?);
        first += 4;
    }
    if message.bytes(first, 4).is_err() {
        return Ok(cut_in(cx, kind));
    }
    print_inner(cx, message, (PROPOSAL, first), depth, protocol)
}

fn proposal(cx: &mut Context<'_>, message: Span<'_>, payload: Payload) -> PayloadEnd {
    let Payload { kind, at, depth, .. } = payload;
    let Ok([number, protocol, spi_len, transforms]) = message.array(at + 4) else {
        return Ok(cut_in(cx, kind));
    };
    put!(cx, " #{number} protoid=");
    print_name(cx, &PROTOCOLS, protocol);
    put!(cx, " transform={transforms}");
    if spi_len != 0 {
        cx.text(" spi=");
        if !print_hex(cx, message, at + 8, usize::from(spi_len)) {
            return Ok(cut_in(cx, kind));
        }
    }
    let first = at + 8 + usize::from(spi_len);
    if message.bytes(first, 4).is_err() {
        return Ok(cut_in(cx, kind));
    }
    print_inner(cx, message, (TRANSFORM, first), depth, protocol)
}

fn transform(cx: &mut Context<'_>, message: Span<'_>, payload: Payload, protocol: u8) -> PayloadEnd {
    let Payload { kind, at, length, .. } = payload;
    let Ok([number, id, ..]) = message.array::<4>(at + 4) else { return Ok(cut_in(cx, kind)) };
    put!(cx, " #{number} id=");
    let names: &[Name] = match protocol {
        1 => {
            print_name(cx, &["", "ike"], id);
            &attribute::IKE
        }
        2 => {
            print_name(cx, &AUTHENTICATIONS, id);
            &attribute::IPSEC
        }
        3 => {
            print_name(cx, &CIPHERS, id);
            &attribute::IPSEC
        }
        4 => {
            print_name(cx, &COMPRESSIONS, id);
            &attribute::IPSEC
        }
        _ => {
            put!(cx, "{id}");
            &[]
        }
    };
    cx.text(" ");
    let end = attribute::print_all(cx, message, at + 8, at + length, names)?;
    Ok(if end.is_none() { cut_in(cx, kind) } else { end })
}

fn identity(cx: &mut Context<'_>, message: Span<'_>, payload: Payload) -> Result<bool, Cut> {
    let Payload { at, length, .. } = payload;
    let Ok([kind, protocol, port @ ..]) = message.array::<4>(at + 4) else { return Ok(false) };
    cx.text(" idtype=");
    print_name(cx, &IDENTITIES, kind);
    cx.text(" protoid=");
    match protocol::keyword(protocol) {
        name if protocol != 0 && !name.is_empty() && cx.options.port_names => cx.text(name),
        _ => cx.dec(protocol),
    }
    put!(cx, " port={}", u16::from_be_bytes(port));
    let length = length.saturating_sub(8);
    if length == 0 {
        return Ok(true);
    }
    let Ok(value) = message.bytes(at + 8, length) else { return Ok(false) };
    let value = Span::whole(value);
    put!(cx, " len={length}");
    let least = match kind {
        1 => 4,
        4 | 7 => 8,
        5 => 16,
        6 | 8 => 32,
        _ => 0,
    };
    if length < least {
        put!(cx, " [bad: < {least}]");
        return Ok(true);
    }
    match kind {
        1 | 4 | 7 => {
            cx.text(" ");
            cx.host(IpAddr::from(value.array::<4>(0)?));
        }
        5 | 6 | 8 => {
            cx.text(" ");
            cx.host(IpAddr::from(value.array::<16>(0)?));
        }
        2 | 3 => {
            cx.text(" ");
            cx.visible_all(value.data);
        }
        _ if cx.verbose() > 2 => {
            cx.text(" ");
            print_hex(cx, value, 0, length);
        }
        _ => {}
    }
    match kind {
        4 => {
            cx.text("/");
            cx.ipv4(value.array(4)?);
        }
        6 => {
            cx.text("/0x");
            print_hex(cx, value, 16, 16);
        }
        7 => {
            cx.text("-");
            cx.host(IpAddr::from(value.array::<4>(4)?));
        }
        8 => {
            cx.text("-");
            cx.host(IpAddr::from(value.array::<16>(16)?));
        }
        _ => {}
    }
    Ok(true)
}

fn certificate(cx: &mut Context<'_>, message: Span<'_>, payload: Payload) -> bool {
    let Payload { at, length, .. } = payload;
    let Ok([encoding, _]) = message.array::<2>(at + 4) else { return false };
    put!(cx, " len={} type=", length - 4);
    print_name(cx, &CERTIFICATES, encoding);
    print_contents(cx, message, at, length, 4)
}

fn print_whole_nonce(cx: &mut Context<'_>, message: Span<'_>, payload: Payload) -> bool {
    let Payload { at, length, .. } = payload;
    if cx.verbose() != 2 {
        return print_whole(cx, message, at, length, "n len");
    }
    put!(cx, " n len={} ", length - 4);
    print_some(cx, message, at + 4)
}

fn print_type(cx: &mut Context<'_>, kind: u16, is_ipsec: bool) {
    cx.text(" type=");
    // A number of a range that has names is counted from the start of the range.
    let (names, first): (&[&str], u16) = match kind {
        0..8192 => (&ERRORS, 0),
        8192..16_384 if is_ipsec => (&["RESERVED"], 8192),
        16_384..24_576 => (&["CONNECTED"], 16_384),
        24_576..32_768 if is_ipsec => (&["RESPONDER-LIFETIME", "REPLAY-STATUS", "INITIAL-CONTACT"], 24_576),
        _ => (&[], 0),
    };
    print_name(cx, names, kind - first);
}

fn notification(cx: &mut Context<'_>, message: Span<'_>, payload: Payload) -> PayloadEnd {
    let Payload { at, length, .. } = payload;
    let (Ok(interpretation), Ok([protocol, spi_len, kind @ ..])) =
        (message.u32(at + 4), message.array::<4>(at + 8))
    else {
        return Ok(None);
    };
    let is_ipsec = interpretation == IPSEC;
    let kind = u16::from_be_bytes(kind);
    if is_ipsec {
        cx.text(" doi=ipsec proto=");
        print_name(cx, &PROTOCOLS, protocol);
    } else {
        put!(cx, " doi={interpretation} proto={protocol}");
    }
    print_type(cx, kind, is_ipsec);
    if spi_len != 0 {
        cx.text(" spi=");
        if !print_hex(cx, message, at + 12, usize::from(spi_len)) {
            return Ok(None);
        }
    }
    let data = at + 12 + usize::from(spi_len);
    if !is_ipsec {
        return Ok(Some(data));
    }
    if data < message.captured() && !notification_data(cx, message, data, (kind, at + length))? {
        return Ok(None);
    }
    Ok(Some(at + length))
}

fn notification_data(
    cx: &mut Context<'_>,
    message: Span<'_>,
    at: usize,
    (kind, end): (u16, usize),
) -> Result<bool, Cut> {
    match kind {
        RESPONDER_LIFETIME => {
            cx.text(" attrs=(");
            let printed = attribute::print_all(cx, message, at, end, &attribute::IKE)?;
            cx.text(")");
            Ok(printed.is_some())
        }
        REPLAY_STATUS => {
            cx.text(" status=(");
            let enabled = message.u32(at)? != 0;
            put!(cx, "replay detection {}abled)", if enabled { "en" } else { "dis" });
            Ok(true)
        }
        _ => Ok(print_some(cx, message, at)),
    }
}

fn deletion(cx: &mut Context<'_>, message: Span<'_>, at: usize) -> PayloadEnd {
    let (Ok(interpretation), Ok([protocol, spi_len, count @ ..])) =
        (message.u32(at + 4), message.array::<4>(at + 8))
    else {
        return Ok(cut_in(cx, 12_u8));
    };
    if interpretation == IPSEC {
        cx.text(" doi=ipsec proto=");
        print_name(cx, &PROTOCOLS, protocol);
    } else {
        put!(cx, " doi={interpretation} proto={protocol}");
    }
    let (spi_len, count) = (usize::from(spi_len), usize::from(u16::from_be_bytes(count)));
    put!(cx, " spilen={spi_len} nspi={count} spi=");
    let shown = if spi_len == 0 { count.min(EMPTY_SPIS_MAX) } else { count };
    for index in 0..shown {
        cx.text(if index > 0 { "," } else { "" });
        if !print_hex(cx, message, at + 12 + index * spi_len, spi_len) {
            return Ok(cut_in(cx, 12_u8));
        }
    }
    Ok(Some(at + 12 + count * spi_len))
}
