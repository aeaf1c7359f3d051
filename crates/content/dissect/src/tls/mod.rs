//! Hellos of TLS (RFC 8446, RFC 5246): the client's offers, and the server's choice.
//!
//! ```text
//! record    = type 1 (20 to 24), version 2, length 2, data: messages of the handshake, or a part of them
//! message   = type 1 (1 client hello, 2 server hello), length 3, body
//! client    = version 2, random 32, session <1>, [DTLS: cookie <1>,] cipher suites <2>, compressions <1>, extensions <2>
//! server    = version 2, random 32, session <1>, cipher suite 2, compression 1, extensions <2>
//! extension = type 2, data <2>;   <n>: a vector behind its length of n bytes
//! ```
//!
//! A hello that was cut keeps its captured part: fields that are missing, or contradict themselves, are empty.
//! Extensions: RFC 6066, 3 (server name), RFC 7301 (ALPN), RFC 8446, 4.2.1 (versions), RFC 8701 (GREASE).

mod fingerprint;
mod ssl2;

#[cfg(test)]
mod tests;

pub use self::ssl2::Ssl2ClientHello;
use crate::Detection;
use crate::bytes::ByteReader;

/// Content type of records that carry the handshake.
pub const HANDSHAKE: u8 = 22;
/// Bytes before the data of a record.
pub const RECORD_HEADER_LEN: usize = 5;
/// Longest data of a record: 2^14 bytes and the overhead of encryption (RFC 5246, 6.2.3).
pub const RECORD_MAX: usize = 16_384 + 2_048;

/// Message type of a client's hello.
pub const CLIENT_HELLO: u8 = 1;
/// Message type of a server's hello.
pub const SERVER_HELLO: u8 = 2;

/// First byte of the versions of TLS 1.3's drafts; the second is the draft's number.
pub const DRAFT_VERSION: u8 = 0x7f;

const SERVER_NAME: u16 = 0;
const GROUPS: u16 = 10;
const POINT_FORMATS: u16 = 11;
const SIGNATURES: u16 = 13;
const ALPN: u16 = 16;
const VERSIONS: u16 = 43;

/// A record over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'b> {
    /// Content type, 20 (change cipher spec) to 24 (heartbeat).
    pub content_type: u8,
    /// Version of the record layer: 0x0300 to 0x0304.
    pub version: u16,
    /// Bytes of its data on the wire, 1 to [`RECORD_MAX`].
    pub length: u16,
    /// The data, as far as it was captured.
    pub data: &'b [u8],
}

impl<'b> Record<'b> {
    /// The record at the start of `bytes`; `None` if its header is cut or is none of a record.
    pub fn parse(bytes: &'b [u8]) -> Option<Record<'b>> {
        let mut reader = ByteReader(bytes);
        let (content_type, version, length) = (reader.u8()?, reader.u16()?, reader.u16()?);
        let is_record = matches!(content_type, 20..=24)
            && matches!(version, 0x0300..=0x0304)
            && (1..=RECORD_MAX).contains(&length.into());
        let data = &reader.0[..reader.0.len().min(length.into())];
        is_record.then_some(Record { content_type, version, length, data })
    }

    /// The hello that the record begins with, as far as this record has it.
    pub fn hello(&self) -> Option<Hello<'b>> {
        if self.content_type != HANDSHAKE {
            return None;
        }
        match Hello::from_message(self.data, true, Transport::Tcp) {
            Detection::Match(hello) => Some(hello),
            _ => None,
        }
    }
}

/// Message type of the handshake message that a segment begins with, if it begins with a record of the handshake.
pub fn message_type(segment: &[u8]) -> Option<u8> {
    match segment.first_chunk() {
        Some(&[HANDSHAKE, 3, _, _, _, kind]) => Some(kind),
        _ => None,
    }
}

/// The transport of a hello, as JA4 distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TLS over TCP.
    Tcp,
    /// QUIC.
    Quic,
    /// DTLS over UDP.
    Dtls,
}

/// A hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hello<'b> {
    /// The client's.
    Client(ClientHello<'b>),
    /// The server's.
    Server(ServerHello<'b>),
}

impl<'b> Hello<'b> {
    /// Reads the hello at the start of a TCP stream of which `stream` was seen. `is_last` says that no more of the
    /// stream can come: then a hello that is not complete is read as far as it is there. `scratch` takes hellos in
    /// several records.
    pub fn from_stream(stream: &'b [u8], is_last: bool, scratch: &'b mut Vec<u8>) -> Detection<Hello<'b>> {
        match message_of_records(stream, scratch) {
            Some(message) => Hello::from_message(message, is_last, Transport::Tcp),
            None => Detection::NoMatch,
        }
    }

    /// Reads the hello at the start of QUIC's CRYPTO stream, which has no records (RFC 9001, 4.1.3). `is_last` as in
    /// [`Hello::from_stream`].
    pub fn from_crypto(stream: &'b [u8], is_last: bool) -> Detection<Hello<'b>> {
        Hello::from_message(stream, is_last, Transport::Quic)
    }

    /// Reads a hello of DTLS from the first bytes of its message, whose type and length are in the headers of its
    /// [fragments](crate::dtls::HandshakeFragment). `is_last` as in [`Hello::from_stream`].
    pub fn from_dtls(
        message_type: u8,
        message_len: usize,
        body: &'b [u8],
        is_last: bool,
    ) -> Detection<Hello<'b>> {
        let is_whole = body.len() >= message_len;
        if !is_whole && !is_last {
            return Detection::NeedMore;
        }
        Hello::parse(message_type, &body[..message_len.min(body.len())], is_whole, Transport::Dtls)
    }

    fn from_message(message: &'b [u8], is_last: bool, transport: Transport) -> Detection<Hello<'b>> {
        if !may_be_hello(message) {
            return Detection::NoMatch;
        }
        let is_whole = is_whole(message);
        if !is_whole && !is_last {
            return Detection::NeedMore;
        }
        let end = message_len(message).map_or(0, |len| len.min(message.len()));
        match message[..end].split_first_chunk::<4>() {
            Some((&[kind, ..], body)) => Hello::parse(kind, body, is_whole, transport),
            None => Detection::NoMatch,
        }
    }

    fn parse(kind: u8, body: &'b [u8], is_whole: bool, transport: Transport) -> Detection<Hello<'b>> {
        let hello = match kind {
            CLIENT_HELLO => ClientHello::parse(body, is_whole, transport).map(Hello::Client),
            SERVER_HELLO => ServerHello::parse(body).map(Hello::Server),
            _ => None,
        };
        hello.map_or(Detection::NoMatch, Detection::Match)
    }
}

/// The first message of a handshake, as far as it is there: in place if the first record has all of it, or is the only
/// one. `None` if a record is none of the handshake.
fn message_of_records<'b>(stream: &'b [u8], scratch: &'b mut Vec<u8>) -> Option<&'b [u8]> {
    let (first, mut rest) = match handshake_record(stream) {
        Detection::Match(split) => split,
        Detection::NeedMore => return Some(&[]),
        Detection::NoMatch => return None,
    };
    if rest.is_empty() || is_whole(first) || !may_be_hello(first) {
        return Some(first);
    }
    scratch.clear();
    scratch.extend_from_slice(first);
    while !is_whole(scratch) {
        match handshake_record(rest) {
            Detection::Match((data, behind)) => {
                scratch.extend_from_slice(data);
                rest = behind;
            }
            Detection::NeedMore => break,
            Detection::NoMatch => return None,
        }
    }
    Some(scratch)
}

/// The captured data of a record of the handshake, and the bytes behind the record.
fn handshake_record(bytes: &[u8]) -> Detection<(&[u8], &[u8])> {
    if !matches!(bytes, [] | [HANDSHAKE] | [HANDSHAKE, 3, ..]) {
        return Detection::NoMatch;
    }
    let Some((&[_, _, _, high, low], body)) = bytes.split_first_chunk::<RECORD_HEADER_LEN>() else {
        return Detection::NeedMore;
    };
    match usize::from(u16::from_be_bytes([high, low])) {
        len @ 1..=RECORD_MAX => Detection::Match(body.split_at(len.min(body.len()))),
        _ => Detection::NoMatch,
    }
}

/// Whether a message begins as a hello does; nothing says otherwise of an empty one.
fn may_be_hello(message: &[u8]) -> bool {
    matches!(message, [] | [CLIENT_HELLO | SERVER_HELLO, ..])
}

/// Bytes of a handshake message with its header.
fn message_len(message: &[u8]) -> Option<usize> {
    let &[_, high, middle, low] = message.first_chunk()?;
    Some(4 + u32::from_be_bytes([0, high, middle, low]) as usize)
}

fn is_whole(message: &[u8]) -> bool {
    message_len(message).is_some_and(|len| message.len() >= len)
}

/// A client's hello. Lists are empty where they were not captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientHello<'b> {
    /// The transport.
    pub transport: Transport,
    /// Whether all of it was captured, and its extensions fit into each other: only then it has fingerprints.
    pub is_complete: bool,
    /// The version in its body: at most 1.2, whatever is offered (RFC 8446, 4.1.2).
    pub legacy_version: u16,
    server_name: Option<&'b [u8]>,
    cipher_suites: &'b [u8],
    extensions: &'b [u8],
    alpn: &'b [u8],
    versions: &'b [u8],
    groups: &'b [u8],
    point_formats: &'b [u8],
    signatures: &'b [u8],
}

impl<'b> ClientHello<'b> {
    fn parse(body: &'b [u8], is_whole: bool, transport: Transport) -> Option<ClientHello<'b>> {
        let mut reader = ByteReader(body);
        let mut hello = ClientHello {
            transport,
            is_complete: false,
            legacy_version: reader.u16()?,
            server_name: None,
            cipher_suites: &[],
            extensions: &[],
            alpn: &[],
            versions: &[],
            groups: &[],
            point_formats: &[],
            signatures: &[],
        };
        // Fields found before the end of the bytes stay.
        hello.is_complete = hello.fill(reader).is_some() && is_whole;
        Some(hello)
    }

    /// Reads from the random bytes on; `None` if a field is cut.
    fn fill(&mut self, mut reader: ByteReader<'b>) -> Option<()> {
        reader.take(32)?;
        reader.vector8()?;
        if self.transport == Transport::Dtls {
            // The cookie (RFC 6347, 4.2.1).
            reader.vector8()?;
        }
        self.cipher_suites = reader.vector16()?;
        reader.vector8()?;
        // A hello of SSL 3 may have no extensions at all.
        self.extensions = reader.vector16_captured().unwrap_or_default();
        let mut extensions = ByteReader(self.extensions);
        while let Some(kind) = extensions.u16() {
            let value = extensions.vector16()?;
            self.note(kind, value);
        }
        Some(())
    }

    fn note(&mut self, kind: u16, value: &'b [u8]) {
        let mut reader = ByteReader(value);
        match kind {
            SERVER_NAME => self.server_name = Some(host_name(reader.vector16().unwrap_or_default())),
            GROUPS => self.groups = reader.vector16().unwrap_or_default(),
            POINT_FORMATS => self.point_formats = reader.vector8().unwrap_or_default(),
            SIGNATURES => self.signatures = reader.vector16().unwrap_or_default(),
            ALPN => self.alpn = reader.vector16().unwrap_or_default(),
            VERSIONS => self.versions = reader.vector8().unwrap_or_default(),
            _ => {}
        }
    }

    /// The name of the server that the client asks for (SNI), as the client wrote it; empty without one.
    pub fn server_name(&self) -> &'b [u8] {
        self.server_name.unwrap_or_default()
    }

    /// Application protocols that the client offers (ALPN), the preferred one first.
    pub fn protocols(&self) -> impl Iterator<Item = &'b [u8]> + use<'b> {
        protocols(self.alpn)
    }

    /// Cipher suites that the client offers, the preferred one first, without reserved values (RFC 8701).
    pub fn cipher_suites(&self) -> impl Iterator<Item = u16> + use<'b> {
        values(self.cipher_suites)
    }

    /// Versions that the client offers by extension, without reserved values; nothing before TLS 1.3.
    pub fn versions(&self) -> impl Iterator<Item = u16> + use<'b> {
        values(self.versions)
    }

    /// The highest version offered.
    pub fn version(&self) -> u16 {
        match self.transport {
            // Versions of DTLS go down.
            Transport::Dtls => self.versions().min(),
            Transport::Tcp | Transport::Quic => self.versions().max(),
        }
        .unwrap_or(self.legacy_version)
    }

    /// Types of the extensions in their order, without reserved values.
    fn extension_types(&self) -> impl Iterator<Item = u16> + use<'b> {
        let mut reader = ByteReader(self.extensions);
        std::iter::from_fn(move || {
            let kind = reader.u16()?;
            reader.vector16();
            Some(kind)
        })
        .filter(|kind| !is_reserved(*kind))
    }
}

/// A server's hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerHello<'b> {
    /// The version in its body: at most 1.2, except in drafts of TLS 1.3.
    pub legacy_version: u16,
    /// The version that the server chose by extension, from TLS 1.3 on.
    pub selected_version: Option<u16>,
    /// The cipher suite that the server chose; `None` if it was not captured.
    pub cipher_suite: Option<u16>,
    alpn: &'b [u8],
}

impl<'b> ServerHello<'b> {
    fn parse(body: &'b [u8]) -> Option<ServerHello<'b>> {
        let mut reader = ByteReader(body);
        let legacy_version = reader.u16()?;
        let mut hello = ServerHello { legacy_version, selected_version: None, cipher_suite: None, alpn: &[] };
        // Fields found before the end of the bytes stay.
        let _: Option<()> = hello.fill(reader);
        Some(hello)
    }

    /// Reads from the random bytes on; `None` if a field is cut.
    fn fill(&mut self, mut reader: ByteReader<'b>) -> Option<()> {
        reader.take(32)?;
        // Drafts of TLS 1.3 up to 21 have neither session nor compression.
        let is_draft = self.legacy_version.to_be_bytes()[0] == DRAFT_VERSION;
        if !is_draft {
            reader.vector8()?;
        }
        self.cipher_suite = Some(reader.u16()?);
        if !is_draft {
            reader.u8()?;
        }
        let mut extensions = ByteReader(reader.vector16_captured()?);
        while let (Some(kind), Some(value)) = (extensions.u16(), extensions.vector16()) {
            let mut value = ByteReader(value);
            match kind {
                VERSIONS => self.selected_version = value.u16().or(self.selected_version),
                ALPN => self.alpn = value.vector16().unwrap_or_default(),
                _ => {}
            }
        }
        Some(())
    }

    /// The version that the server chose.
    pub fn version(&self) -> u16 {
        self.selected_version.unwrap_or(self.legacy_version)
    }

    /// Application protocols of the answer (ALPN): one, up to TLS 1.2; none from 1.3 on, where the answer is encrypted.
    pub fn protocols(&self) -> impl Iterator<Item = &'b [u8]> + use<'b> {
        protocols(self.alpn)
    }
}

/// The first name of the kind host_name (RFC 6066, 3).
fn host_name(list: &[u8]) -> &[u8] {
    let mut reader = ByteReader(list);
    while let (Some(kind), Some(name)) = (reader.u8(), reader.vector16()) {
        if kind == 0 {
            return name;
        }
    }
    &[]
}

fn protocols(list: &[u8]) -> impl Iterator<Item = &[u8]> + use<'_> {
    let mut reader = ByteReader(list);
    std::iter::from_fn(move || reader.vector8())
}

/// Values of two bytes, without reserved ones.
fn values(list: &[u8]) -> impl Iterator<Item = u16> + use<'_> {
    let values = list.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
    values.filter(|value| !is_reserved(*value))
}

/// Whether a value is one that clients send to keep servers tolerant: 0x0a0a, 0x1a1a, ... (RFC 8701).
fn is_reserved(value: u16) -> bool {
    value & 0x0f0f == 0x0a0a && value >> 8 == value & 0xff
}
