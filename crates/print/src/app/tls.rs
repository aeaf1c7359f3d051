//! TLS (RFC 8446, RFC 5246): records, and what a ClientHello or ServerHello says in the clear.
//!
//! ```text
//! record    = type 1 (20 to 24), version 2, length 2, data
//! handshake = type 1 (1 client hello, 2 server hello), length 3, body
//! client    = version 2, random 32, session <1>, cipher suites <2>, compressions <1>, extensions <2>
//! server    = version 2, random 32, session <1>, cipher suite 2, compression 1, extensions <2>
//! extension = type 2, data <2>;   <n>: a length of n bytes goes first
//! ```
//!
//! tcpdump prints nothing for TLS, so the text without `-v` is left as it is; `-v` adds
//! `TLS client hello, version 1.3, sni example.com, alpn h2,http/1.1`. A hello may go on in the next segment: what was
//! captured of it is told.

use crate::bytes::{Cut, Span};
use crate::context::{Context, lookup, put};
use crate::text::Text;

/// Content types of records.
pub(crate) const CONTENTS: &[(u8, &str)] = &[
    (20, "change_cipher_spec"),
    (21, "alert"),
    (22, "handshake"),
    (23, "application_data"),
    (24, "heartbeat"),
];

const HANDSHAKE: u8 = 22;
const RECORD_HEADER_LEN: usize = 5;
/// Longest record: 2^14 bytes and room for what encryption adds (RFC 5246, 6.2.3).
const RECORD_MAX: usize = 16_384 + 2_048;

/// First byte of the versions of TLS 1.3's drafts; the second is the draft's number.
const DRAFT: u16 = 0x7f;

const SERVER_NAME: u16 = 0;
const PROTOCOLS: u16 = 16;
const SUPPORTED_VERSIONS: u16 = 43;

/// How many extensions of a hello are looked at.
const EXTENSIONS_MAX: usize = 64;

/// The header of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'p> {
    pub(crate) content: u8,
    pub(crate) version: u16,
    pub(crate) length: u16,
    /// What was captured of the data.
    pub(crate) data: Span<'p>,
}

/// What a hello says. Fields that were not captured, or are not there, are empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hello<'p> {
    pub(crate) is_client: bool,
    /// As the body has it: at most 1.2, whatever is offered.
    pub(crate) legacy_version: u16,
    /// The name of the server that the client wants.
    pub(crate) server_name: &'p [u8],
    /// Names of application protocols, each with its length before it.
    protocols: &'p [u8],
    /// Versions offered, or the one chosen; two bytes each.
    versions: &'p [u8],
    /// Cipher suites offered, or the one chosen; two bytes each.
    suites: &'p [u8],
}

impl<'p> Hello<'p> {
    /// Names of application protocols, in the order of preference.
    pub(crate) fn protocols(&self) -> impl Iterator<Item = &'p [u8]> + use<'p> {
        let mut rest = self.protocols;
        std::iter::from_fn(move || {
            let (&length, after) = rest.split_first()?;
            let (name, after) = after.split_at_checked(usize::from(length))?;
            rest = after;
            Some(name)
        })
    }

    /// Versions offered, or the one chosen, without the reserved ones (RFC 8701).
    pub(crate) fn versions(&self) -> impl Iterator<Item = u16> + use<'p> {
        numbers(self.versions)
    }

    /// Cipher suites offered, or the one chosen, without the reserved ones.
    pub(crate) fn suites(&self) -> impl Iterator<Item = u16> + use<'p> {
        numbers(self.suites)
    }

    /// The highest version offered, or the one chosen.
    pub(crate) fn version(&self) -> u16 {
        self.versions().max().unwrap_or(self.legacy_version)
    }
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = u16> + use<'_> {
    bytes
        .chunks_exact(2)
        .map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
        .filter(|&number| !is_reserved(number))
}

/// Values that clients send to keep servers tolerant: 0x0a0a, 0x1a1a, ... (RFC 8701).
fn is_reserved(number: u16) -> bool {
    number & 0x0f0f == 0x0a0a && number >> 8 == number & 0xff
}

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

/// The record at the start of `span`, if one stands there.
pub(crate) fn record(span: Span<'_>) -> Option<Record<'_>> {
    let (content, version, length) = (span.u8(0).ok()?, span.u16(1).ok()?, span.u16(3).ok()?);
    let is_record = lookup(CONTENTS, content).is_some() && version >> 8 == 3 && version & 0xff <= 4;
    if !is_record || length == 0 || usize::from(length) > RECORD_MAX {
        return None;
    }
    let data = span.skip(RECORD_HEADER_LEN).limit(usize::from(length));
    Some(Record { content, version, length, data })
}

/// The hello in a handshake record, as far as it was captured.
pub(crate) fn hello<'p>(record: &Record<'p>) -> Option<Hello<'p>> {
    if record.content != HANDSHAKE {
        return None;
    }
    let kind = record.data.u8(0).ok()?;
    if !matches!(kind, 1 | 2) {
        return None;
    }
    let body = record.data.skip(4);
    let mut hello = Hello {
        is_client: kind == 1,
        legacy_version: body.u16(0).ok()?,
        server_name: &[],
        protocols: &[],
        versions: &[],
        suites: &[],
    };
    // Drafts of TLS 1.3 up to 21 have neither session nor compression in the server's hello.
    let is_draft = !hello.is_client && hello.legacy_version >> 8 == DRAFT;
    // Where the bytes end, what was found before holds.
    let _: Result<(), Cut> = match is_draft {
        true => body.bytes(34, 2).map(|suite| hello.suites = suite),
        false => fill(&mut hello, body.skip(34)),
    };
    Some(hello)
}

/// Reads from the session identifier on.
fn fill<'p>(hello: &mut Hello<'p>, span: Span<'p>) -> Result<(), Cut> {
    let session_len = usize::from(span.u8(0)?);
    let mut rest = span.skip(1 + session_len);
    if hello.is_client {
        let suites_len = usize::from(rest.u16(0)?);
        hello.suites = rest.bytes(2, suites_len)?;
        rest = rest.skip(2 + suites_len);
        let compressions_len = usize::from(rest.u8(0)?);
        rest = rest.skip(1 + compressions_len);
    } else {
        hello.suites = rest.bytes(0, 2)?;
        rest = rest.skip(3);
    }
    let extensions_len = usize::from(rest.u16(0)?);
    rest = rest.skip(2).limit(extensions_len);
    for _ in 0..EXTENSIONS_MAX {
        if rest.length < 4 {
            break;
        }
        let (kind, length) = (rest.u16(0)?, usize::from(rest.u16(2)?));
        extension(hello, kind, Span::whole(rest.bytes(4, length)?));
        rest = rest.skip(4 + length);
    }
    Ok(())
}

/// Keeps what an extension says; one that contradicts itself says nothing.
fn extension<'p>(hello: &mut Hello<'p>, kind: u16, data: Span<'p>) {
    let found = match kind {
        // A list of names with one entry in practice: length 2, kind 1 (0: a host), length 2, name.
        SERVER_NAME => {
            data.u16(3).and_then(|length| data.bytes(5, usize::from(length))).map(|v| hello.server_name = v)
        }
        PROTOCOLS => {
            data.u16(0).and_then(|length| data.bytes(2, usize::from(length))).map(|v| hello.protocols = v)
        }
        SUPPORTED_VERSIONS if hello.is_client => {
            data.u8(0).and_then(|length| data.bytes(1, usize::from(length))).map(|v| hello.versions = v)
        }
        SUPPORTED_VERSIONS => data.bytes(0, 2).map(|v| hello.versions = v),
        _ => Ok(()),
    };
    let _: Result<(), Cut> = found;
}

/// The hello of a segment, with `-v` only; nothing, and `false`, for any other payload.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) -> bool {
    if cx.verbose() == 0 {
        return false;
    }
    let Some(hello) = record(span).as_ref().and_then(hello) else { return false };
    cx.text(if hello.is_client { ": TLS client hello" } else { ": TLS server hello" });
    let version = hello.version();
    match version_name(version) {
        Some(name) => put!(cx, ", version {name}"),
        None if version >> 8 == DRAFT => put!(cx, ", version 1.3 draft {}", version & 0xff),
        None => put!(cx, ", version 0x{version:04x}"),
    }
    if !hello.server_name.is_empty() {
        cx.text(", sni ");
        cx.visible_all(hello.server_name);
    }
    for (index, name) in hello.protocols().enumerate() {
        cx.text(if index == 0 { ", alpn " } else { "," });
        cx.visible_all(name);
    }
    if !hello.is_client
        && let Some(suite) = hello.suites().next()
    {
        put!(cx, ", cipher 0x{suite:04x}");
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client hello for `a.example` with ALPN `h2` and versions 1.3 and 1.2 behind a reserved one.
    pub(crate) fn client_hello() -> Vec<u8> {
        let extensions = [
            &[0, 0, 0, 14, 0, 12, 0, 0, 9][..],
            b"a.example",
            &[0, 16, 0, 5, 0, 3, 2],
            b"h2",
            &[0, 43, 0, 7, 6, 0x1a, 0x1a, 3, 4, 3, 3],
        ]
        .concat();
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 4, 0x0a, 0x0a, 0x13, 0x01, 1, 0]);
        body.extend((extensions.len() as u16).to_be_bytes());
        body.extend(extensions);
        let mut record = vec![22, 3, 1];
        record.extend((body.len() as u16 + 4).to_be_bytes());
        record.extend([1, 0]);
        record.extend((body.len() as u16).to_be_bytes());
        record.extend(body);
        record
    }

    #[test]
    fn a_client_hello_tells_its_names() {
        let bytes = client_hello();
        let hello = hello(&record(Span::whole(&bytes)).expect("a record")).expect("a hello");
        assert_eq!(hello.server_name, b"a.example");
        assert_eq!(hello.protocols().collect::<Vec<_>>(), [b"h2"]);
        assert_eq!(hello.versions().collect::<Vec<_>>(), [0x0304, 0x0303]);
        assert_eq!(hello.suites().collect::<Vec<_>>(), [0x1301]);
        assert_eq!(version_name(hello.version()), Some("1.3"));
    }

    #[test]
    fn a_hello_cut_anywhere_tells_what_is_left() {
        let bytes = client_hello();
        for end in 0..bytes.len() {
            let span = Span { data: &bytes[..end], length: bytes.len() };
            if let Some(hello) = record(span).as_ref().and_then(hello) {
                assert!(hello.server_name.is_empty() || hello.server_name == b"a.example");
            }
        }
    }

    #[test]
    fn other_payloads_are_no_records() {
        for bytes in [&b"GET / HTTP/1.1"[..], &[22, 9, 9, 0, 1, 1], &[22, 3, 1, 0, 0], &[22, 3, 1], &[]] {
            assert!(record(Span::whole(bytes)).is_none(), "{bytes:?}");
        }
    }
}
