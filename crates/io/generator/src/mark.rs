//! A sequence number and a time at the end of a payload: `docs/format/mark.md`.
//!
//! ```text
//! | magic 4 | stream 1 | sequence 5 | time 8 |     18 bytes, big-endian: what a frame of 60 bytes with IPv4 and UDP has room for
//! ```

use tapline_packet::Timestamp;

use crate::checksum;

/// Bytes of a mark.
pub const MARK_LEN: usize = 18;
/// The bits of a sequence number.
const SEQUENCE: u64 = (1 << 40) - 1;
/// `TLm1`.
const MAGIC: [u8; 4] = *b"TLm1";

/// Stream, number and send time of a packet, carried in its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The stream; each stream has its own sequence numbers.
    pub stream: u8,
    /// The sequence number in the stream, from 0; below 2^40.
    pub sequence: u64,
    /// The send time, by the sender's clock.
    pub sent: Timestamp,
}

impl Mark {
    /// The bytes of the mark in a packet.
    #[inline]
    pub fn to_bytes(self) -> [u8; MARK_LEN] {
        let mut bytes = [0; MARK_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        // One word holds the stream above the sequence number.
        let number = u64::from(self.stream) << 40 | self.sequence & SEQUENCE;
        bytes[2..10].copy_from_slice(
            &(u64::from(u16::from_be_bytes([MAGIC[2], MAGIC[3]])) << 48 | number).to_be_bytes(),
        );
        bytes[10..].copy_from_slice(&self.sent.as_nanos().to_be_bytes());
        bytes
    }

    /// From the last bytes of a payload.
    #[inline]
    pub fn from_bytes(bytes: &[u8; MARK_LEN]) -> Option<Mark> {
        let number = u64::from_be_bytes(bytes[2..10].try_into().ok()?);
        let time = i64::from_be_bytes(bytes[10..].try_into().ok()?);
        let mark = Mark {
            stream: (number >> 40) as u8,
            sequence: number & SEQUENCE,
            sent: Timestamp::from_nanos(time),
        };
        (bytes[..4] == MAGIC).then_some(mark)
    }

    /// The mark at the end of a packet that ends at `end` of its captured bytes.
    #[inline]
    pub fn find(data: &[u8], end: usize) -> Option<Mark> {
        let start = end.checked_sub(MARK_LEN)?;
        Mark::from_bytes(data.get(start..end)?.try_into().ok()?)
    }

    /// Contribution to a checksum.
    #[inline]
    pub(crate) fn sum(self) -> u32 {
        checksum::sum(&self.to_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_those_of_the_document() {
        let mark = Mark { stream: 7, sequence: 0x01_0203_0405, sent: Timestamp::from_nanos(-2) };
        let bytes = mark.to_bytes();
        assert_eq!(bytes, *b"TLm1\x07\x01\x02\x03\x04\x05\xff\xff\xff\xff\xff\xff\xff\xfe");
        assert_eq!(Mark::from_bytes(&bytes), Some(mark));
        assert_eq!(Mark::sum(mark), checksum::sum(&bytes));
    }

    #[test]
    fn only_whole_marks_are_found() {
        let mark = Mark { stream: 0, sequence: 1, sent: Timestamp::EPOCH };
        let data = [&[9; 5], &mark.to_bytes()[..], &[0; 3]].concat();
        assert_eq!(Mark::find(&data, 23), Some(mark));
        let elsewhere = [0, 17, 22, 24, 26, 27, usize::MAX];
        assert!(elsewhere.iter().all(|end| Mark::find(&data, *end).is_none()));
        assert_eq!(Mark::find(&data[..22], 23), None);
    }
}
