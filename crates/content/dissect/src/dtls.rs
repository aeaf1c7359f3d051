//! Messages of the handshake of DTLS, which datagrams carry in fragments.
//!
//! ```text
//! datagram    record | record | ...
//! record      type 22 | version 2 | epoch 2 | sequence number 6 | length 2 | fragments
//! fragment    message type 1 | message length 3 | message number 2 | offset 3 | length 3 | bytes
//! ```
//!
//! Sources: RFC 6347, 4.1 and 4.2; RFC 9147, 4 and 5, whose hellos look the same.

use crate::bytes::ByteReader;
use crate::tls::HANDSHAKE;

/// DTLS 1.0 and 1.2; records of 1.3 carry the number of 1.2.
const VERSIONS: [u16; 2] = [0xfeff, 0xfefd];

/// A fragment of a message of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandshakeFragment<'d> {
    /// Message type: 1 is the client's hello, 2 the server's.
    pub message_type: u8,
    /// Bytes of the whole message, without its header.
    pub message_len: usize,
    /// Number of the message; each side counts from 0.
    pub message_number: u16,
    /// The offset of the bytes in the message.
    pub offset: usize,
    /// The bytes, all of them captured.
    pub bytes: &'d [u8],
}

impl HandshakeFragment<'_> {
    /// Whether the fragment is the whole message.
    pub fn is_whole(&self) -> bool {
        self.offset == 0 && self.bytes.len() == self.message_len
    }
}

/// Whether a datagram begins with an unencrypted record of the handshake.
pub fn is_handshake(datagram: &[u8]) -> bool {
    records(datagram).next().is_some()
}

/// The fragments in the unencrypted records of a datagram, up to the first that was not captured whole.
pub fn fragments(datagram: &[u8]) -> impl Iterator<Item = HandshakeFragment<'_>> {
    records(datagram).flat_map(|record| {
        let mut rest = ByteReader(record);
        std::iter::from_fn(move || fragment(&mut rest))
    })
}

fn records(datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = ByteReader(datagram);
    std::iter::from_fn(move || {
        let (kind, version, epoch) = (rest.u8()?, rest.u16()?, rest.u16()?);
        if kind != HANDSHAKE || !VERSIONS.contains(&version) || epoch != 0 {
            return None;
        }
        rest.take(6)?;
        rest.vector16_captured()
    })
}

fn fragment<'d>(rest: &mut ByteReader<'d>) -> Option<HandshakeFragment<'d>> {
    let message_type = rest.u8()?;
    let message_len = rest.u24()?;
    let message_number = rest.u16()?;
    let (offset, len) = (rest.u24()?, rest.u24()?);
    let bytes = rest.take(len)?;
    Some(HandshakeFragment { message_type, message_len, message_number, offset, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(epoch: u8, body: &[u8]) -> Vec<u8> {
        [&[22, 0xfe, 0xfd, 0, epoch, 0, 0, 0, 0, 0, 1, 0, body.len() as u8][..], body].concat()
    }

    #[test]
    fn messages_come_in_fragments() {
        let one = [&[1, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 4][..], b"clie"].concat();
        let other = [&[1, 0, 0, 7, 0, 0, 0, 0, 4, 0, 0, 3][..], b"nt!"].concat();
        let whole = [&[2, 0, 0, 2, 0, 1, 0, 0, 0, 0, 0, 2][..], b"ok"].concat();
        let datagram = [record(0, &one), record(0, &[other, whole].concat()), record(1, b"sealed")].concat();
        let found: Vec<HandshakeFragment<'_>> = fragments(&datagram).collect();
        let fragment = |message_type, message_len, message_number, offset, bytes| HandshakeFragment {
            message_type,
            message_len,
            message_number,
            offset,
            bytes,
        };
        let hello = [fragment(1, 7, 0, 0, &b"clie"[..]), fragment(1, 7, 0, 4, b"nt!")];
        assert_eq!(found[..2], hello);
        assert_eq!(found[2..], [fragment(2, 2, 1, 0, b"ok")]);
        assert!(found[2].is_whole() && !found[0].is_whole() && !found[1].is_whole());
        for end in 0..datagram.len() {
            assert!(fragments(&datagram[..end]).count() < 4);
        }
        assert!(is_handshake(&datagram));
        assert!(!is_handshake(&record(1, b"sealed")) && !is_handshake(b"\x16\x03\x03"));
    }
}
