//! Initial packets of QUIC, which carry the client's hello under keys that everybody can derive.
//!
//! ```text
//! datagram    packet | packet | ...
//! packet      flags 1 | version 4 | destination id | source id | token | length | number 1 to 4 | frames, sealed | tag 16
//! frames      CRYPTO: offset | length | a piece of the handshake; others between them, in any order
//! ```
//!
//! The keys follow from the connection ID that the client chose for the server. The packets of the client's first
//! flight carry that ID. The keys stay when the server has chosen another ID, and change after a Retry. A packet that
//! does not open with them comes from the server, or is not QUIC.
//!
//! Sources: RFC 9000, 16 (numbers), 17.2 (packets), 19 (frames); RFC 9001, 5 (keys and protection); RFC 9369 (version
//! 2).

use aes_gcm::aead::AeadInOut;
use aes_gcm::aes::Aes128;
use aes_gcm::aes::cipher::BlockCipherEncrypt;
use aes_gcm::{Aes128Gcm, KeyInit, Nonce, Tag};
use hkdf::Hkdf;
use sha2::Sha256;

use crate::bytes::ByteReader;

/// CRYPTO frames of one packet that are sorted without memory of their own: Chrome sends about ten.
const PIECES: usize = 64;
const ID_MAX: usize = 20;
/// The bit of the first byte that distinguishes QUIC from other protocols, unless it is cleared (RFC 9000, 17.2; RFC
/// 9287).
const QUIC_BIT: u8 = 0x40;
const TAG_LEN: usize = 16;
/// Bytes that the mask of the header is made of (RFC 9001, 5.4.2).
const SAMPLE_LEN: usize = 16;

/// Version 2 on the wire (RFC 9369, 3.1).
const VERSION_2: u32 = 0x6b33_43cf;

/// The constants that differ between versions.
struct Version {
    salt: [u8; 20],
    key: &'static str,
    iv: &'static str,
    mask: &'static str,
}

const V1: Version = Version {
    salt: *b"\x38\x76\x2c\xf7\xf5\x59\x34\xb3\x4d\x17\x9a\xe6\xa4\xc8\x0c\xad\xcc\xbb\x7f\x0a",
    key: "quic key",
    iv: "quic iv",
    mask: "quic hp",
};

const V2: Version = Version {
    salt: *b"\x0d\xed\xe3\xde\xf7\x00\xa6\xdb\x81\x93\x81\xbe\x6e\x26\x9d\xcb\xf9\xbd\x2e\xd9",
    key: "quicv2 key",
    iv: "quicv2 iv",
    mask: "quicv2 hp",
};

/// The version of a datagram that begins with a long header. Endpoints that agreed on it clear the bit behind the first
/// (RFC 9287).
#[inline]
fn version(datagram: &[u8]) -> Option<&'static Version> {
    let &[first, number @ ..] = datagram.first_chunk::<5>()?;
    match u32::from_be_bytes(number) {
        _ if first & 0x80 == 0 => None,
        1 => Some(&V1),
        VERSION_2 => Some(&V2),
        _ => None,
    }
}

/// Whether a datagram begins with a long header of version 1 or 2.
#[inline]
pub fn has_long_header(datagram: &[u8]) -> bool {
    version(datagram).is_some() && (datagram[0] & QUIC_BIT != 0 || has_ids(datagram))
}

/// Whether connection IDs of QUIC follow the version. Without the QUIC bit a datagram may be one of another protocol:
/// RTP begins with the same byte.
fn has_ids(datagram: &[u8]) -> bool {
    let header = LongHeader::parse(datagram);
    let ids = header.and_then(|header| header.destination_id.zip(header.source_id));
    ids.is_some_and(|(to, from)| to.len().max(from.len()) <= ID_MAX && to.len() + from.len() > 0)
}

/// The type of a packet with a long header (RFC 9000, 17.2; RFC 9369, 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongPacketType {
    /// The versions that a server takes; its version is 0.
    VersionNegotiation,
    /// Begins a handshake, under keys that every observer can derive.
    Initial,
    /// Data of a resumed connection.
    ZeroRtt,
    /// The rest of the handshake.
    Handshake,
    /// Asks the client to begin again with a token; it has no length field.
    Retry,
}

impl LongPacketType {
    /// The type in the first byte. Version 2 numbers the types differently; other versions are read as version 1.
    fn new(first: u8, version: u32) -> LongPacketType {
        let number = first >> 4 & 3;
        match if version == VERSION_2 { (number + 3) & 3 } else { number } {
            _ if version == 0 => LongPacketType::VersionNegotiation,
            0 => LongPacketType::Initial,
            1 => LongPacketType::ZeroRtt,
            2 => LongPacketType::Handshake,
            _ => LongPacketType::Retry,
        }
    }
}

/// The fields that long headers of all versions have (RFC 8999, 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongHeader<'d> {
    /// The version; 0 in a version negotiation.
    pub version: u32,
    /// The type.
    pub packet_type: LongPacketType,
    /// The destination's connection ID, 0 to 255 bytes (20 at most in versions 1 and 2); `None` if it was cut.
    pub destination_id: Option<&'d [u8]>,
    /// The source's connection ID, of the same lengths; `None` if it was cut.
    pub source_id: Option<&'d [u8]>,
    /// The bytes behind the connection IDs; empty if these were cut.
    rest: &'d [u8],
}

impl<'d> LongHeader<'d> {
    /// Reads the header at the beginning of a datagram. `None` for a short header, and for one cut before its
    /// version's end.
    pub fn parse(datagram: &'d [u8]) -> Option<LongHeader<'d>> {
        let &[first, number @ ..] = datagram.first_chunk::<5>()?;
        if first & 0x80 == 0 {
            return None;
        }
        let version = u32::from_be_bytes(number);
        let mut reader = ByteReader(&datagram[5..]);
        let destination_id = reader.vector8();
        let source_id = destination_id.and_then(|_| reader.vector8());
        let rest = source_id.map_or(&[][..], |_| reader.0);
        Some(LongHeader {
            version,
            packet_type: LongPacketType::new(first, version),
            destination_id,
            source_id,
            rest,
        })
    }
}

/// The connection ID that the keys of a connection follow from, 0 to 20 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionId {
    bytes: [u8; ID_MAX],
    len: u8,
}

impl ConnectionId {
    /// The ID of a connection of which no packet opened yet.
    pub const NONE: ConnectionId = ConnectionId { bytes: [0; ID_MAX], len: 0 };

    fn new(bytes: &[u8]) -> ConnectionId {
        let len = bytes.len().min(ID_MAX);
        let mut id = ConnectionId { len: len as u8, ..ConnectionId::NONE };
        id.bytes[..len].copy_from_slice(&bytes[..len]);
        id
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }
}

/// Opens the Initial packets of a client in a datagram, and gives `piece` the bytes of their CRYPTO frames with their
/// offsets in the handshake, in ascending order within a packet. `id` is the connection ID with which earlier packets
/// of the connection opened, and is set to that with which these did. `scratch` takes one opened packet at a time.
pub fn decrypt_initials(
    datagram: &[u8],
    id: &mut ConnectionId,
    scratch: &mut Vec<u8>,
    piece: &mut dyn FnMut(u32, &[u8]),
) {
    let mut rest = datagram;
    // Each packet has a header, so that there are fewer of them than bytes.
    while let Some((packet, next)) = Packet::split(rest) {
        let own = ConnectionId::new(packet.id);
        let ids = [*id, own].into_iter().skip(usize::from(*id == own || id.len == 0));
        let mut opened = ids.filter(|id| packet.is_initial && packet.open(id.bytes(), scratch).is_some());
        if let Some(key) = opened.next() {
            *id = key;
            pieces(scratch, piece);
        }
        rest = next;
    }
}

/// A packet with a long header and a length.
struct Packet<'d> {
    version: &'static Version,
    is_initial: bool,
    id: &'d [u8],
    /// From its first byte to its last.
    bytes: &'d [u8],
    /// The offset of the packet number.
    number_at: usize,
}

impl<'d> Packet<'d> {
    /// The first packet and the bytes behind it; `None` if the packet was not captured whole.
    fn split(datagram: &'d [u8]) -> Option<(Packet<'d>, &'d [u8])> {
        let version = version(datagram)?;
        let header = LongHeader::parse(datagram)?;
        if header.packet_type == LongPacketType::Retry {
            return None;
        }
        let id = header.destination_id.filter(|id| id.len() <= ID_MAX)?;
        header.source_id.filter(|id| id.len() <= ID_MAX)?;
        let mut reader = ByteReader(header.rest);
        let is_initial = header.packet_type == LongPacketType::Initial;
        if is_initial {
            let token = reader.number()?;
            reader.take(usize::try_from(token).ok()?)?;
        }
        let len = usize::try_from(reader.number()?).ok()?;
        let number_at = datagram.len() - reader.0.len();
        reader.take(len)?;
        let (bytes, rest) = datagram.split_at(datagram.len() - reader.0.len());
        Some((Packet { version, is_initial, id, bytes, number_at }, rest))
    }

    /// Puts the packet's frames into `plain`, if a client sealed it with the keys of this connection ID.
    fn open(&self, id: &[u8], plain: &mut Vec<u8>) -> Option<()> {
        let Packet { version, bytes, number_at, .. } = *self;
        let sample = bytes.get(number_at + 4..)?.first_chunk::<SAMPLE_LEN>()?;
        let secret = client_secret(version, id)?;
        let mut mask = (*sample).into();
        Aes128::new(&expand::<16>(&secret, version.mask)?.into()).encrypt_block(&mut mask);
        let first = bytes[0] ^ mask[0] & 0x0f;
        let number_len = usize::from(first & 3) + 1;
        plain.clear();
        plain.extend_from_slice(bytes);
        plain[0] = first;
        let number = plain.get_mut(number_at..number_at + number_len)?;
        let mut nonce = expand::<12>(&secret, version.iv)?;
        for ((byte, mask), place) in number.iter_mut().zip(&mask[1..]).zip(12 - number_len..) {
            *byte ^= mask;
            nonce[place] ^= *byte;
        }
        let (header, sealed) = plain.split_at_mut(number_at + number_len);
        let text_len = sealed.len().checked_sub(TAG_LEN)?;
        let (text, tag) = sealed.split_at_mut(text_len);
        let tag: [u8; TAG_LEN] = (*tag).try_into().ok()?;
        Aes128Gcm::new(&expand::<16>(&secret, version.key)?.into())
            .decrypt_inout_detached(&Nonce::from(nonce), header, text.into(), &Tag::from(tag))
            .ok()?;
        plain.truncate(number_at + number_len + text_len);
        plain.drain(..number_at + number_len);
        Some(())
    }
}

fn client_secret(version: &Version, id: &[u8]) -> Option<Hkdf<Sha256>> {
    let initial = Hkdf::<Sha256>::new(Some(&version.salt), id);
    Hkdf::from_prk(&expand::<32>(&initial, "client in")?).ok()
}

/// HKDF-Expand-Label of TLS 1.3 without context (RFC 8446, 7.1).
fn expand<const N: usize>(secret: &Hkdf<Sha256>, label: &str) -> Option<[u8; N]> {
    let len = (N as u16).to_be_bytes();
    let label_len = [(6 + label.len()) as u8];
    let info: [&[u8]; 5] = [&len, &label_len, b"tls13 ", label.as_bytes(), &[0]];
    let mut out = [0; N];
    secret.expand_multi_info(&info, &mut out).ok()?;
    Some(out)
}

/// Passes to `piece` the bytes of CRYPTO frames, up to the first frame that is not one of an Initial packet.
fn pieces(frames: &[u8], piece: &mut dyn FnMut(u32, &[u8])) {
    let mut found: [(u32, &[u8]); PIECES] = [(0, &[]); PIECES];
    let mut count = 0;
    for one in crypto_frames(frames) {
        let Some(place) = found.get_mut(count) else {
            // A frame has three bytes at least, so that the packet bounds their number.
            return in_order(&mut crypto_frames(frames).collect::<Vec<_>>(), piece);
        };
        *place = one;
        count += 1;
    }
    in_order(&mut found[..count], piece);
}

fn in_order(found: &mut [(u32, &[u8])], piece: &mut dyn FnMut(u32, &[u8])) {
    found.sort_unstable_by_key(|(offset, _)| *offset);
    found.iter().for_each(|(offset, bytes)| piece(*offset, bytes));
}

fn crypto_frames(frames: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    let mut reader = ByteReader(frames);
    let all = std::iter::from_fn(move || reader.frame());
    all.filter_map(|frame| match frame {
        Frame::Crypto(offset, bytes) => Some((offset, bytes)),
        Frame::Other => None,
    })
}

/// A frame of an Initial packet (RFC 9000, 12.4).
enum Frame<'d> {
    /// Bytes of the handshake, and their offset.
    Crypto(u32, &'d [u8]),
    Other,
}

impl<'d> ByteReader<'d> {
    /// An integer whose first two bits are its length: 1, 2, 4 or 8 bytes (RFC 9000, 16).
    fn number(&mut self) -> Option<u64> {
        let first = self.u8()?;
        let rest = self.take((1 << (first >> 6)) - 1)?;
        Some(rest.iter().fold(u64::from(first & 0x3f), |number, byte| number << 8 | u64::from(*byte)))
    }

    /// The next frame; `None` behind the last one and for frames that Initial packets do not have.
    fn frame(&mut self) -> Option<Frame<'d>> {
        let kind = self.number()?;
        match kind {
            // PADDING, PING.
            0 | 1 => {}
            // ACK: the largest, the delay, ranges; with 3 also three counts of ECN.
            2 | 3 => {
                let [_, _, ranges, _] = self.numbers()?;
                for _ in 0..ranges {
                    self.numbers::<2>()?;
                }
                if kind == 3 {
                    self.numbers::<3>()?;
                }
            }
            6 => {
                let [offset, len] = self.numbers()?;
                let bytes = self.take(usize::try_from(len).ok()?)?;
                return Some(
                    u32::try_from(offset).map_or(Frame::Other, |offset| Frame::Crypto(offset, bytes)),
                );
            }
            // CONNECTION_CLOSE: the error, the frame, the reason.
            0x1c => {
                let [_, _, len] = self.numbers()?;
                self.take(usize::try_from(len).ok()?)?;
            }
            _ => return None,
        }
        Some(Frame::Other)
    }

    fn numbers<const N: usize>(&mut self) -> Option<[u64; N]> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = self.number()?;
        }
        Some(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The connection ID of the examples in both RFCs.
    const ID: [u8; 8] = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];

    fn hexadecimal(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// RFC 9001, A.1, and RFC 9369, A.1.
    #[test]
    fn keys_are_those_of_the_examples() {
        for (version, key, iv, mask) in [
            (
                &V1,
                "1f369613dd76d5467730efcbe3b1a22d",
                "fa044b2f42a3fd3b46fb255c",
                "9f50449e04a0e810283a1e9933adedd2",
            ),
            (
                &V2,
                "8b1a0bc121284290a29e0971b5cd045d",
                "91f73e2351d8fa91660e909f",
                "45b95e15235d6f45a6b19cbcb0294ba9",
            ),
        ] {
            let secret = client_secret(version, &ID).unwrap();
            assert_eq!(hexadecimal(&expand::<16>(&secret, version.key).unwrap()), key);
            assert_eq!(hexadecimal(&expand::<12>(&secret, version.iv).unwrap()), iv);
            assert_eq!(hexadecimal(&expand::<16>(&secret, version.mask).unwrap()), mask);
        }
    }

    #[test]
    fn long_headers_of_all_versions_and_cuts_are_read() {
        use LongPacketType::{Handshake, Initial, Retry, VersionNegotiation, ZeroRtt};
        for (version, types) in [
            (0, [VersionNegotiation; 4]),
            (1, [Initial, ZeroRtt, Handshake, Retry]),
            (VERSION_2, [Retry, Initial, ZeroRtt, Handshake]),
        ] {
            for (number, packet_type) in types.into_iter().enumerate() {
                let first = 0xc0 | (number as u8) << 4;
                let fields: [&[u8]; 5] = [&[first], &u32::to_be_bytes(version), &[2, 7, 8], &[1, 9], &[42]];
                let bytes = fields.concat();
                let header = LongHeader::parse(&bytes).expect("a long header");
                assert_eq!((header.version, header.packet_type), (version, packet_type));
                assert_eq!(header.destination_id.zip(header.source_id), Some((&[7, 8][..], &[9][..])));
                assert_eq!(header.rest, [42]);
                for cut in 0..bytes.len() {
                    let header = LongHeader::parse(&bytes[..cut]);
                    assert_eq!(header.is_some(), cut >= 5);
                    assert_eq!(header.and_then(|header| header.destination_id).is_some(), cut >= 8);
                    assert_eq!(header.and_then(|header| header.source_id).is_some(), cut >= 10);
                }
            }
        }
        assert_eq!(LongHeader::parse(&[0x40; 20]), None, "a short header");
    }

    /// A number in two bytes.
    fn two(value: usize) -> [u8; 2] {
        (value as u16 | 0x4000).to_be_bytes()
    }

    fn crypto(offset: usize, bytes: &[u8]) -> Vec<u8> {
        [&[6][..], &two(offset), &two(bytes.len()), bytes].concat()
    }

    fn sealed(version: &Version, wire: u32, number: u8, frames: &[u8]) -> Vec<u8> {
        sealed_to(&ID, version, wire, number, frames)
    }

    /// An Initial packet as a client seals it, to a server by this connection ID.
    fn sealed_to(to: &[u8; 8], version: &Version, wire: u32, number: u8, frames: &[u8]) -> Vec<u8> {
        sealed_as(0xc0, to, version, wire, number, frames)
    }

    fn sealed_as(bits: u8, to: &[u8; 8], version: &Version, wire: u32, number: u8, frames: &[u8]) -> Vec<u8> {
        let secret = client_secret(version, &ID).unwrap();
        let frames = [frames, &[0; 1000]].concat();
        let first = bits | u8::from(wire == VERSION_2) << 4;
        let ids = [&[8][..], to, &[2, 1, 1], &[1, 7]].concat();
        let len = two(1 + frames.len() + TAG_LEN);
        let header = [&[first][..], &wire.to_be_bytes(), &ids, &len, &[number]].concat();
        let mut nonce: [u8; 12] = expand(&secret, version.iv).unwrap();
        nonce[11] ^= number;
        let cipher = Aes128Gcm::new(&expand::<16>(&secret, version.key).unwrap().into());
        let mut text = frames;
        let tag =
            cipher.encrypt_inout_detached(&Nonce::from(nonce), &header, text.as_mut_slice().into()).unwrap();
        let mut packet = [&header[..], &text, &tag].concat();
        let at = header.len() - 1;
        let sample: [u8; SAMPLE_LEN] = packet[at + 4..][..SAMPLE_LEN].try_into().unwrap();
        let mut mask = sample.into();
        Aes128::new(&expand::<16>(&secret, version.mask).unwrap().into()).encrypt_block(&mut mask);
        packet[0] ^= mask[0] & 0x0f;
        packet[at] ^= mask[1];
        packet
    }

    fn pieces_of(datagram: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let mut pieces = Vec::new();
        let mut id = ConnectionId::NONE;
        decrypt_initials(datagram, &mut id, &mut Vec::new(), &mut |offset, bytes| {
            pieces.push((offset, bytes.to_vec()))
        });
        pieces
    }

    #[test]
    fn crypto_frames_come_in_order() {
        let ack = [&[2][..], &[5, 0, 1, 0, 2, 3]].concat();
        let frames = [crypto(300, b"later"), ack, vec![1, 0, 0], crypto(0, b"first")].concat();
        for (version, wire) in [(&V1, 1), (&V2, 0x6b33_43cf)] {
            let packet = sealed(version, wire, 3, &frames);
            let wanted = vec![(0, b"first".to_vec()), (300, b"later".to_vec())];
            assert_eq!(pieces_of(&packet), wanted);
            // Two packets in a datagram, with the end of another one.
            let again = sealed(version, wire, 4, &crypto(305, b"end"));
            let both = pieces_of(&[&packet[..], &again, &packet[..50]].concat());
            assert_eq!(both, [wanted, vec![(305, b"end".to_vec())]].concat());
        }
    }

    /// RFC 9287.
    #[test]
    fn packets_without_the_quic_bit_are_opened() {
        let packet = sealed_as(0x80, &ID, &V1, 1, 0, &crypto(0, b"hello"));
        assert_eq!((packet[0] & 0xc0, has_long_header(&packet)), (0x80, true));
        assert_eq!(pieces_of(&packet), [(0, b"hello".to_vec())]);
        // RTP of number 0, whose time stamp is like a version.
        let rtp = [&[0x80, 0, 0, 0, 1, 0xa0, 0x12, 0x34, 0, 0, 0, 7][..], &[0xff; 160]].concat();
        assert!(!has_long_header(&rtp));
        assert!(!has_long_header(&[0x40, 0, 0, 0, 1, 1, 7, 1, 9]), "a short header");
    }

    /// Keys stay those of the first connection ID, until a Retry gives the client another one to begin with.
    #[test]
    fn keys_outlive_the_first_connection_id() {
        let mut id = ConnectionId::NONE;
        let mut count_of = |packet: &[u8]| {
            let mut count = 0;
            decrypt_initials(packet, &mut id, &mut Vec::new(), &mut |_, _| count += 1);
            count
        };
        let frames = crypto(0, b"hello");
        let answered = sealed_to(&[7; 8], &V1, 1, 2, &frames);
        assert_eq!(count_of(&answered), 0, "its keys are not known");
        assert_eq!(count_of(&sealed(&V1, 1, 0, &frames)), 1);
        assert_eq!(count_of(&answered), 1);
        assert_eq!(id, ConnectionId::new(&ID));
    }

    #[test]
    fn packets_that_do_not_open_give_nothing() {
        let packet = sealed(&V1, 1, 0, &crypto(0, b"hello"));
        for at in 0..packet.len() {
            let mut other = packet.clone();
            other[at] ^= 1;
            assert_eq!(pieces_of(&other), [], "byte {at}");
            assert_eq!(pieces_of(&packet[..at]), [], "cut at {at}");
        }
    }

    /// Random bytes, many of them such as frames and packets begin with.
    #[test]
    fn any_bytes_are_read() {
        let mut random = tapline_testkit::random::Random::new(9);
        for _ in 0..200_000 {
            let mut bytes = vec![0; random.below(60) as usize];
            for byte in &mut bytes {
                *byte = match random.below(3) {
                    0 => *random.pick(&[0, 1, 2, 3, 6, 0x1c, 0x40, 0xc0, 0xff]),
                    _ => random.bits() as u8,
                };
            }
            let mut last = 0;
            pieces(&bytes, &mut |offset, piece| {
                assert!(offset >= last && piece.len() < bytes.len());
                last = offset;
            });
            let datagram = [&[0xc0 | bytes.len() as u8, 0, 0, 0, 1], &bytes[..]].concat();
            assert_eq!(pieces_of(&datagram), [], "its tag is random");
        }
    }

    #[test]
    fn hostile_frames_end() {
        // Ranges of an acknowledgement that are not there; a piece beyond its packet.
        for frames in
            [&[2, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0][..], &[6, 0, 0x7f, 0xff, 1], &[9]]
        {
            let mut reader = ByteReader(frames);
            assert!(reader.frame().is_none(), "{frames:?}");
        }
        let many = (0..200).rev().flat_map(|offset| crypto(offset, b"x")).collect::<Vec<_>>();
        let mut offsets = Vec::new();
        pieces(&many, &mut |offset, _| offsets.push(offset));
        assert_eq!(offsets, (0..200).collect::<Vec<u32>>());
    }
}
