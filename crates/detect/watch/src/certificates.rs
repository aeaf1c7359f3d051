//! Certificates of TLS servers, out of the packets of their connections. Versions up to 1.2 send them in the clear.
//!
//! ```text
//! packets --Reassembler--> the first 16 KiB of a server's side --records--> Certificate --> SHA-256 of the first
//!                          the client's hello ----------------------------------------> the name asked for
//! ```

use std::collections::HashMap;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tapline_dissect::tls::{HANDSHAKE, Hello, RECORD_HEADER_LEN, Record};
use tapline_packet::headers::{FiveTuple, Headers};
use tapline_packet::{LinkType, Packet};
use tapline_stream::{Event, Limits, Reassembler, Stream};

/// Bytes of a server's side that are looked at.
const SIDE_MAX: usize = 16_384;
/// Connections at a time.
const CONNECTIONS_MAX: usize = 2_048;
/// The type of the message (RFC 5246, 7.4).
const CERTIFICATE: u8 = 11;

/// A certificate that a server sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Certificate {
    /// From the server to the client.
    pub(crate) tuple: FiveTuple,
    /// The name that the client asked for, escaped; empty without.
    pub(crate) name: String,
    /// SHA-256 of the certificate in small hexadecimal digits.
    pub(crate) sha256: String,
    /// Length in bytes.
    pub(crate) len: usize,
}

#[derive(Default)]
struct Connection {
    name: String,
    /// Bytes that the server has sent; `None` once the certificate was found or cannot be.
    server: Option<Vec<u8>>,
}

/// The connections whose certificates are looked for.
pub(crate) struct Certificates {
    reassembler: Reassembler,
    connections: HashMap<u64, Connection>,
}

impl Certificates {
    pub(crate) fn new() -> Certificates {
        let limits = Limits {
            connections: CONNECTIONS_MAX,
            stream_bytes: 64 << 10,
            bytes: 16 << 20,
            idle: Duration::from_secs(60),
            ..Limits::default()
        };
        Certificates { reassembler: Reassembler::new(limits), connections: HashMap::new() }
    }

    /// Takes a packet; the certificates that it completes.
    pub(crate) fn push(&mut self, link_type: LinkType, packet: Packet<'_>) -> Vec<Certificate> {
        let headers = Headers::parse(link_type, packet);
        let mut found = Vec::new();
        let Certificates { reassembler, connections } = self;
        reassembler.push(&headers, packet, &mut |stream: &Stream, event| match event {
            Event::Segment(piece) => {
                let connection = connections
                    .entry(stream.connection)
                    .or_insert_with(|| Connection { name: String::new(), server: Some(Vec::new()) });
                found.extend(take(connection, stream, piece.bytes()));
            }
            Event::Gap { .. } => {
                if let Some(connection) = connections.get_mut(&stream.connection) {
                    connection.server = None;
                }
            }
            Event::End(_) => {}
            Event::Forgotten => _ = connections.remove(&stream.connection),
        });
        // Connections that the reassembler forgot are gone; their number is bounded there, and here once more.
        if connections.len() > 2 * CONNECTIONS_MAX {
            connections.clear();
        }
        found
    }
}

fn take(connection: &mut Connection, stream: &Stream, bytes: &[u8]) -> Option<Certificate> {
    if bytes.is_empty() {
        return None;
    }
    if stream.is_from_client {
        if let Some(Hello::Client(hello)) = Record::parse(bytes).and_then(|record| record.hello()) {
            connection.name = String::from_utf8_lossy(hello.server_name()).escape_default().to_string();
        }
        return None;
    }
    let side = connection.server.as_mut()?;
    side.extend_from_slice(&bytes[..bytes.len().min(SIDE_MAX - side.len())]);
    let certificate = first_certificate(side);
    if certificate.is_none() {
        // No TLS, or a certificate that does not come, costs no more memory.
        if side.len() >= SIDE_MAX || Record::parse(side).is_none() && side.len() >= RECORD_HEADER_LEN {
            connection.server = None;
        }
        return None;
    }
    let der = certificate?;
    let sha256 = Sha256::digest(der).iter().map(|byte| format!("{byte:02x}")).collect();
    let len = der.len();
    let name = connection.name.clone();
    connection.server = None;
    Some(Certificate { tuple: stream.tuple, name, sha256, len })
}

/// The first certificate of a server's side of a connection, if all of it is there.
fn first_certificate(side: &[u8]) -> Option<&[u8]> {
    // Most servers put the message into one record. One that is spread over several is not put together.
    let mut rest = side;
    while let Some(record) = Record::parse(rest) {
        if record.content_type == HANDSHAKE
            && let Some(der) = in_record(record.data)
        {
            return Some(der);
        }
        rest = rest.get(RECORD_HEADER_LEN + usize::from(record.length)..)?;
    }
    None
}

/// Messages of a record: type 1, length 3; of a certificate: length of all 3, length of the first 3, the first.
fn in_record(mut data: &[u8]) -> Option<&[u8]> {
    let number = |bytes: &[u8]| bytes.iter().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte));
    loop {
        let (head, rest) = data.split_at_checked(4)?;
        let len = number(&head[1..]);
        if head[0] == CERTIFICATE {
            let (lengths, rest) = rest.split_at_checked(6)?;
            let first = number(&lengths[3..]);
            return rest.get(..first).filter(|der| !der.is_empty());
        }
        data = rest.get(len..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_found_once_it_is_whole() {
        let der = [0x30, 1, 2, 3, 4];
        let mut message = vec![CERTIFICATE, 0, 0, 11, 0, 0, 8, 0, 0, 5];
        message.extend_from_slice(&der);
        let hello = [2, 0, 0, 2, 3, 3];
        let data = [hello.as_slice(), &message].concat();
        let record = [&[HANDSHAKE, 3, 3, 0, data.len() as u8], data.as_slice()].concat();
        assert_eq!(first_certificate(&record), Some(der.as_slice()));
        for cut in 0..record.len() {
            assert_eq!(first_certificate(&record[..cut]), None, "{cut}");
        }
        assert_eq!(first_certificate(b"220 ready\r\n"), None);
    }
}
