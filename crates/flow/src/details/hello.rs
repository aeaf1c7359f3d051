//! The hello of TLS: what the client asks for, and what the server chose.
//!
//! ```text
//! record      type 22 | version 2 | length 2 | handshake, or a part of it
//! handshake   type 1 | length 3 | version 2 | random 32 | session | cipher suites | compression | extensions
//! ```
//!
//! Sources: RFC 5246, 7.4.1; RFC 8446, 4.1; RFC 6066, 3 (server name); RFC 7301 (ALPN); RFC 8701 (GREASE). JA3: MD5 of version, suites, extensions, groups and
//! point formats, as Althouse, Atkinson and Atkins published it. JA4: as FoxIO's technical description has it, the part for TLS clients.

use std::fmt::Write as _;

use md5::{Digest, Md5};
use sha2::Sha256;

use super::bytes::Bytes;

/// What a message is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Read<T> {
    /// Something else.
    Other,
    /// The beginning of one, and more is needed.
    More,
    /// One.
    It(T),
}

/// A hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hello {
    Client(ClientHello),
    Server(ServerHello),
}

/// What the client said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClientHello {
    pub(super) server_name: Vec<u8>,
    /// What it offers, with commas in between.
    pub(super) alpn: Vec<u8>,
    /// JA3 and JA4; not of a hello that was cut.
    pub(super) prints: Option<([u8; 16], String)>,
}

/// What the server chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerHello {
    pub(super) version: u16,
    pub(super) cipher: u16,
}

const HANDSHAKE: u8 = 22;
/// Of a record: RFC 8446, 5.2.
const RECORD_MAX: usize = (1 << 14) + 256;

/// What message a record of the handshake begins with, if it is one.
pub(super) fn kind(record: &[u8]) -> Option<u8> {
    match record.first_chunk() {
        Some(&[HANDSHAKE, 3, _, _, _, kind]) => Some(kind),
        _ => None,
    }
}

/// Reads the first bytes of a stream. If no more can come, what is there of a hello is read.
pub(super) fn read(bytes: &[u8], is_last: bool, scratch: &mut Vec<u8>) -> Read<Hello> {
    scratch.clear();
    let mut rest = bytes;
    let mut is_whole = false;
    while let [kind, tail @ ..] = rest {
        let is_so = *kind == HANDSHAKE && tail.first().is_none_or(|major| *major == 3);
        if !is_so {
            return Read::Other;
        }
        let Some(&[_, _, high, low]) = tail.first_chunk() else { break };
        let len = usize::from(u16::from_be_bytes([high, low]));
        if len == 0 || len > RECORD_MAX {
            return Read::Other;
        }
        let body = &tail[4..];
        scratch.extend_from_slice(&body[..len.min(body.len())]);
        match scratch.first() {
            Some(1 | 2) | None => {}
            Some(_) => return Read::Other,
        }
        is_whole = message_len(scratch).is_some_and(|needed| scratch.len() >= needed);
        match body.get(len..) {
            Some(next) if !is_whole => rest = next,
            _ => break,
        }
    }
    if !is_whole && !is_last {
        return Read::More;
    }
    message(scratch, is_whole, 't')
}

/// Reads the first bytes of a handshake that needs no records, as in QUIC. If no more can come, what is there of a hello is read.
pub(super) fn read_bare(bytes: &[u8], is_last: bool) -> Read<Hello> {
    match bytes.first() {
        Some(1 | 2) | None => {}
        Some(_) => return Read::Other,
    }
    let is_whole = message_len(bytes).is_some_and(|needed| bytes.len() >= needed);
    if is_whole || is_last { message(bytes, is_whole, 'q') } else { Read::More }
}

/// Reads what is there of a hello, which came over a `carrier` as JA4 calls it.
fn message(bytes: &[u8], is_whole: bool, carrier: char) -> Read<Hello> {
    let end = message_len(bytes).unwrap_or(0).min(bytes.len());
    let Some((&[kind, ..], body)) = bytes[..end].split_first_chunk::<4>() else { return Read::Other };
    body_of(kind, body, is_whole, carrier)
}

/// Reads a hello without the header of a message.
fn body_of(kind: u8, body: &[u8], is_whole: bool, carrier: char) -> Read<Hello> {
    let hello = match kind {
        1 => client(body, is_whole, carrier).map(Hello::Client),
        2 => server(body).map(Hello::Server),
        _ => None,
    };
    hello.map_or(Read::Other, Read::It)
}

/// Reads a hello of DTLS, whose message has so many bytes. If no more can come, what is there is read.
pub(super) fn read_body(kind: u8, len: usize, bytes: &[u8], is_last: bool) -> Read<Hello> {
    let is_whole = bytes.len() >= len;
    if !is_whole && !is_last {
        return Read::More;
    }
    body_of(kind, &bytes[..len.min(bytes.len())], is_whole, 'd')
}

/// Bytes of a handshake message with its header.
fn message_len(message: &[u8]) -> Option<usize> {
    let &[_, high, middle, low] = message.first_chunk()?;
    Some(4 + (usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low)))
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

/// Values that say nothing, to keep others flexible (RFC 8701).
fn is_grease(value: u16) -> bool {
    value & 0x0f0f == 0x0a0a && value >> 8 == value & 0xff
}

fn client(body: &[u8], is_whole: bool, carrier: char) -> Option<ClientHello> {
    let mut bytes = Bytes(body);
    let version = bytes.word()?;
    bytes.take(32)?;
    bytes.short()?;
    if carrier == 'd' {
        // The cookie (RFC 6347, 4.2.1).
        bytes.short()?;
    }
    let ciphers = bytes.long()?;
    bytes.short()?;
    let mut asked = Asked { version, ciphers, ..Asked::default() };
    let mut extensions = Bytes(bytes.long_or_less().unwrap_or_default());
    let mut is_read = is_whole;
    while let Some(kind) = extensions.word() {
        asked.kinds.push(kind);
        match extensions.long() {
            Some(value) => asked.note(kind, value),
            None => {
                is_read = false;
                break;
            }
        }
    }
    Some(ClientHello {
        server_name: asked.server_name.unwrap_or_default().to_vec(),
        alpn: asked.protocols().collect::<Vec<_>>().join(&b','),
        prints: is_read.then(|| (asked.ja3(), asked.ja4(carrier))),
    })
}

/// What of a client's hello is told or makes its fingerprints.
#[derive(Default)]
struct Asked<'b> {
    version: u16,
    ciphers: &'b [u8],
    /// Extensions, as they stand there.
    kinds: Vec<u16>,
    server_name: Option<&'b [u8]>,
    alpn: &'b [u8],
    versions: &'b [u8],
    groups: &'b [u8],
    formats: &'b [u8],
    signatures: &'b [u8],
}

const SERVER_NAME: u16 = 0;
const GROUPS: u16 = 10;
const POINT_FORMATS: u16 = 11;
const SIGNATURES: u16 = 13;
const ALPN: u16 = 16;
const VERSIONS: u16 = 43;

impl<'b> Asked<'b> {
    fn note(&mut self, kind: u16, value: &'b [u8]) {
        let mut bytes = Bytes(value);
        let long = |mut bytes: Bytes<'b>| bytes.long().unwrap_or_default();
        match kind {
            SERVER_NAME => self.server_name = Some(host_name(long(bytes))),
            GROUPS => self.groups = long(bytes),
            POINT_FORMATS => self.formats = bytes.short().unwrap_or_default(),
            SIGNATURES => self.signatures = long(bytes),
            ALPN => self.alpn = long(bytes),
            VERSIONS => self.versions = bytes.short().unwrap_or_default(),
            _ => {}
        }
    }

    fn protocols(&self) -> impl Iterator<Item = &'b [u8]> {
        let mut names = Bytes(self.alpn);
        std::iter::from_fn(move || names.short())
    }

    fn ja3(&self) -> [u8; 16] {
        let mut text = format!("{},", self.version);
        let mut list = |values: &mut dyn Iterator<Item = u16>, end: &str| {
            for (at, value) in values.enumerate() {
                let _ = write!(text, "{}{value}", if at > 0 { "-" } else { "" });
            }
            text.push_str(end);
        };
        let meant = |value: &u16| !is_grease(*value);
        list(&mut words(self.ciphers).filter(meant), ",");
        list(&mut self.kinds.iter().copied().filter(meant), ",");
        list(&mut words(self.groups).filter(meant), ",");
        list(&mut self.formats.iter().map(|format| u16::from(*format)), "");
        Md5::digest(text).into()
    }

    fn ja4(&self, carrier: char) -> String {
        let meant = |value: &u16| !is_grease(*value);
        let offers = words(self.versions).filter(meant);
        // Versions of DTLS go down.
        let offered = if carrier == 'd' { offers.min() } else { offers.max() }.unwrap_or(self.version);
        let version = match offered {
            0x0304 => "13",
            0x0303 => "12",
            0x0302 => "11",
            0x0301 => "10",
            0x0300 => "s3",
            0x0002 => "s2",
            0xfeff => "d1",
            0xfefd => "d2",
            0xfefc => "d3",
            _ => "00",
        };
        let name = if self.server_name.is_some() { 'd' } else { 'i' };
        let mut ciphers: Vec<u16> = words(self.ciphers).filter(meant).collect();
        let kinds: Vec<u16> = self.kinds.iter().copied().filter(meant).collect();
        let (suites, count) = (ciphers.len().min(99), kinds.len().min(99));
        ciphers.sort_unstable();
        let mut told: Vec<u16> =
            kinds.into_iter().filter(|kind| ![SERVER_NAME, ALPN].contains(kind)).collect();
        told.sort_unstable();
        let signatures: Vec<u16> = words(self.signatures).filter(meant).collect();
        let mut extensions = hexadecimals(&told);
        if !signatures.is_empty() {
            extensions = format!("{extensions}_{}", hexadecimals(&signatures));
        }
        let (suites_hash, extensions_hash) = (short_hash(&hexadecimals(&ciphers)), short_hash(&extensions));
        let protocol = ends(self.protocols().next().unwrap_or_default());
        format!("{carrier}{version}{name}{suites:02}{count:02}{protocol}_{suites_hash}_{extensions_hash}")
    }
}

/// The first name of the kind host_name.
fn host_name(list: &[u8]) -> &[u8] {
    let mut bytes = Bytes(list);
    while let (Some(kind), Some(name)) = (bytes.byte(), bytes.long()) {
        if kind == 0 {
            return name;
        }
    }
    &[]
}

/// The first and the last letter of a protocol; digits of its bytes in hexadecimal, if they are none.
fn ends(protocol: &[u8]) -> String {
    let (Some(first), Some(last)) = (protocol.first(), protocol.last()) else { return "00".to_owned() };
    if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
        return [*first, *last].map(char::from).iter().collect();
    }
    let (first, last) = (format!("{first:02x}"), format!("{last:02x}"));
    format!("{}{}", &first[..1], &last[1..])
}

fn hexadecimals(values: &[u16]) -> String {
    values.iter().map(|value| format!("{value:04x}")).collect::<Vec<_>>().join(",")
}

/// The first twelve digits of SHA-256; zeros for nothing.
fn short_hash(text: &str) -> String {
    if text.is_empty() {
        return "0".repeat(12);
    }
    let digest = Sha256::digest(text);
    digest[..6].iter().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn server(body: &[u8]) -> Option<ServerHello> {
    let mut bytes = Bytes(body);
    let mut version = bytes.word()?;
    bytes.take(32)?;
    bytes.short()?;
    let cipher = bytes.word()?;
    bytes.byte();
    let mut extensions = Bytes(bytes.long_or_less().unwrap_or_default());
    while let (Some(kind), Some(value)) = (extensions.word(), extensions.long()) {
        if kind == VERSIONS {
            version = Bytes(value).word().unwrap_or(version);
        }
    }
    Some(ServerHello { version, cipher })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list behind its length of two bytes.
    fn long(bytes: &[u8]) -> Vec<u8> {
        [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
    }

    fn extension(kind: u16, value: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &long(value)].concat()
    }

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        [&[kind, 0][..], &long(body)].concat()
    }

    fn record(body: &[u8]) -> Vec<u8> {
        [&[22, 3, 1][..], &long(body)].concat()
    }

    /// With the suites, extensions and signatures of the example in FoxIO's description of JA4.
    fn hello() -> Vec<u8> {
        let suites: Vec<u8> = [
            0x3a3a_u16, 0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013,
            0xc014, 0x009c, 0x009d, 0x002f, 0x0035,
        ]
        .iter()
        .flat_map(|suite| suite.to_be_bytes())
        .collect();
        let signatures: Vec<u8> = [0x0403_u16, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601]
            .iter()
            .flat_map(|scheme| scheme.to_be_bytes())
            .collect();
        let extensions = [
            extension(0x5a5a, &[]),
            extension(0, &long(&[&[0][..], &long(b"www.example.org")].concat())),
            extension(0x17, &[]),
            extension(0xff01, &[0]),
            extension(10, &long(&[0x4a, 0x4a, 0, 29, 0, 23])),
            extension(11, &[1, 0]),
            extension(0x23, &[]),
            extension(16, &long(b"\x02h2\x08http/1.1")),
            extension(5, &[1, 0, 0, 0, 0]),
            extension(13, &long(&signatures)),
            extension(0x12, &[]),
            extension(0x33, &[0, 0]),
            extension(0x2d, &[1, 1]),
            extension(43, &[6, 0xaa, 0xaa, 3, 4, 3, 3]),
            extension(0x1b, &[2, 0, 2]),
            extension(0x4469, &[0, 0]),
            extension(0xaaaa, &[0]),
            extension(0x15, &[0; 20]),
        ]
        .concat();
        let head = [&[3, 3][..], &[7; 32], &[0], &long(&suites), &[1, 0], &long(&extensions)].concat();
        message(1, &head)
    }

    fn read_all(bytes: &[u8]) -> Read<Hello> {
        read(bytes, false, &mut Vec::new())
    }

    #[test]
    fn a_client_is_known_by_what_it_asks_for() {
        let Read::It(Hello::Client(client)) = read_all(&record(&hello())) else { panic!("it is one") };
        assert_eq!(client.server_name, b"www.example.org");
        assert_eq!(client.alpn, b"h2,http/1.1");
        let (ja3, ja4) = client.prints.expect("it is whole");
        // The example's, from FoxIO's technical description.
        assert_eq!(ja4, "t13d1516h2_8daaf6152771_e5627efa2ab1");
        let text = "771,4865-4866-4867-49195-49199-49196-49200-52393-52392-49171-49172-156-157-47-53,\
            0-23-65281-10-11-35-16-5-13-18-51-45-43-27-17513-21,29-23,0";
        assert_eq!(ja3, <[u8; 16]>::from(Md5::digest(text)));
    }

    #[test]
    fn quic_has_no_records() {
        let hello = hello();
        let Read::It(Hello::Client(client)) = read_bare(&hello, false) else { panic!("it is one") };
        assert_eq!(client.prints.expect("it is whole").1, "q13d1516h2_8daaf6152771_e5627efa2ab1");
        assert_eq!(read_bare(&hello[..hello.len() - 1], false), Read::More);
        assert_eq!((read_bare(&[], false), read_bare(&[4], false)), (Read::More, Read::Other));
    }

    #[test]
    fn records_may_cut_a_hello_anywhere() {
        let (hello, whole) = (hello(), read_all(&record(&hello())));
        for cut in 1..hello.len() {
            let (one, other) = hello.split_at(cut);
            assert_eq!(read_all(&[record(one), record(other)].concat()), whole, "{cut}");
        }
        let bytes = record(&hello);
        for cut in 1..bytes.len() {
            assert_eq!(read_all(&bytes[..cut]), Read::More, "{cut}");
            // What is there is told, without fingerprints.
            if let Read::It(Hello::Client(client)) = read(&bytes[..cut], true, &mut Vec::new()) {
                assert_eq!(client.prints, None, "{cut}");
                assert!([&b""[..], b"www.example.org"].contains(&client.server_name.as_slice()));
            }
        }
        let Read::It(Hello::Client(most)) = read(&bytes[..200], true, &mut Vec::new()) else { panic!() };
        assert_eq!(most.server_name, b"www.example.org");
    }

    #[test]
    fn a_server_says_what_it_chose() {
        let old = [&[3, 3][..], &[9; 32], &[2, 1, 1], &[0xc0, 0x2f], &[0]].concat();
        let chosen = |body: &[u8]| match read_all(&record(&message(2, body))) {
            Read::It(Hello::Server(server)) => (server.version, server.cipher),
            other => panic!("{other:?}"),
        };
        assert_eq!(chosen(&old), (0x0303, 0xc02f));
        let new = [&old[..], &long(&extension(43, &[3, 4]))].concat();
        assert_eq!(chosen(&new), (0x0304, 0xc02f));
    }

    #[test]
    fn anything_may_come() {
        assert_eq!(read_all(b"GET / HTTP/1.1"), Read::Other);
        assert_eq!(read_all(&[22, 3, 1, 0, 0]), Read::Other);
        assert_eq!(read_all(&record(&[11, 0, 0, 1, 0])), Read::Other);
        assert_eq!(read_all(&[22]), Read::More);
        let bytes = record(&hello());
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                read(&changed, true, &mut Vec::new());
            }
        }
    }
}
