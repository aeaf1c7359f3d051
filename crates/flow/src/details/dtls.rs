//! The hello of TLS in datagrams.
//!
//! ```text
//! datagram    record | record | ...
//! record      type 22 | version 2 | epoch 2 | number 6 | length 2 | parts of messages
//! part        type 1 | length of the message 3 | number of the message 2 | offset 3 | length 3 | bytes
//! ```
//!
//! Sources: RFC 6347, 4.1 and 4.2; RFC 9147, 4 and 5, whose hellos look the same.

use super::bytes::Bytes;

const HANDSHAKE: u8 = 22;
/// DTLS 1.0 and 1.2; 1.3 calls itself 1.2 here.
const VERSIONS: [u16; 2] = [0xfeff, 0xfefd];

/// A part of a message of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part<'d> {
    /// 1 is the client's hello, 2 the server's.
    pub(super) kind: u8,
    /// Bytes of the whole message.
    pub(super) len: usize,
    /// Each side's messages have numbers, from 0 on.
    pub(super) number: u16,
    pub(super) offset: usize,
    pub(super) bytes: &'d [u8],
}

impl Part<'_> {
    pub(super) fn is_whole(&self) -> bool {
        self.offset == 0 && self.bytes.len() == self.len
    }
}

/// Whether a datagram begins with a record of the handshake that is not encrypted.
pub(super) fn is_dtls(datagram: &[u8]) -> bool {
    records(datagram).next().is_some()
}

/// The parts of messages in a datagram, as far as they were captured.
pub(super) fn parts(datagram: &[u8]) -> impl Iterator<Item = Part<'_>> {
    records(datagram).flat_map(|record| {
        let mut rest = Bytes(record);
        std::iter::from_fn(move || part(&mut rest))
    })
}

fn records(datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Bytes(datagram);
    std::iter::from_fn(move || {
        let (kind, version, epoch) = (rest.byte()?, rest.word()?, rest.word()?);
        if kind != HANDSHAKE || !VERSIONS.contains(&version) || epoch != 0 {
            return None;
        }
        rest.take(6)?;
        rest.long_or_less()
    })
}

fn part<'d>(rest: &mut Bytes<'d>) -> Option<Part<'d>> {
    let kind = rest.byte()?;
    let len = three(rest)?;
    let number = rest.word()?;
    let (offset, part_len) = (three(rest)?, three(rest)?);
    let bytes = rest.take(part_len)?;
    Some(Part { kind, len, number, offset, bytes })
}

fn three(rest: &mut Bytes<'_>) -> Option<usize> {
    Some(usize::from(rest.byte()?) << 16 | usize::from(rest.word()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(epoch: u8, body: &[u8]) -> Vec<u8> {
        [&[22, 0xfe, 0xfd, 0, epoch, 0, 0, 0, 0, 0, 1, 0, body.len() as u8][..], body].concat()
    }

    #[test]
    fn messages_come_in_parts() {
        let one = [&[1, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 4][..], b"clie"].concat();
        let other = [&[1, 0, 0, 7, 0, 0, 0, 0, 4, 0, 0, 3][..], b"nt!"].concat();
        let whole = [&[2, 0, 0, 2, 0, 1, 0, 0, 0, 0, 0, 2][..], b"ok"].concat();
        let datagram = [record(0, &one), record(0, &[other, whole].concat()), record(1, b"sealed")].concat();
        let found: Vec<Part<'_>> = parts(&datagram).collect();
        let part = |number, offset, bytes| Part { kind: 1, len: 7, number, offset, bytes };
        assert_eq!(found[..2], [part(0, 0, &b"clie"[..]), part(0, 4, b"nt!")]);
        assert_eq!(found[2..], [Part { kind: 2, len: 2, number: 1, offset: 0, bytes: b"ok" }]);
        assert!(found[2].is_whole() && !found[0].is_whole() && !found[1].is_whole());
        for end in 0..datagram.len() {
            assert!(parts(&datagram[..end]).count() < 4);
        }
        assert!(is_dtls(&datagram) && !is_dtls(&record(1, b"sealed")) && !is_dtls(b"\x16\x03\x03"));
    }
}
