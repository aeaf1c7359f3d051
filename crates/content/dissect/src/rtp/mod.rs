//! RTP: the header, and the losses of a stream.
//!
//! ```text
//! V 2 P X CC 4 | M, type 7 | sequence 2 | time stamp 4 | source 4 | contributors | extension | payload
//! ```
//!
//! Sources: RFC 3550, 5.1 and 6.4.1; RFC 3551, 6; RFC 5761.

mod quality;
mod stream;

pub use quality::{Codec, mos};
pub use stream::Stream;

use crate::bytes::ByteReader;

/// The fixed header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The format of the payload.
    pub payload_type: u8,
    /// The number of the packet; each is one more than that of the packet before.
    pub sequence: u16,
    /// When the first octet was sampled, in ticks of the format's clock.
    pub timestamp: u32,
    /// The synchronization source.
    pub ssrc: u32,
}

impl Header {
    /// The header at the front of a datagram; `None` if it is not RTP of version 2, or RTCP (RFC 5761, 4).
    pub fn parse(datagram: &[u8]) -> Option<Header> {
        let mut bytes = ByteReader(datagram);
        let (flags, kind, sequence) = (bytes.u8()?, bytes.u8()?, bytes.u16()?);
        let mut number = || Some(u32::from(bytes.u16()?) << 16 | u32::from(bytes.u16()?));
        let (timestamp, ssrc) = (number()?, number()?);
        // 192 to 223 are packet types of RTCP.
        if flags >> 6 != 2 || matches!(kind, 192..=223) {
            return None;
        }
        bytes.take(usize::from(flags & 15) * 4)?;
        Some(Header { payload_type: kind & 0x7f, sequence, timestamp, ssrc })
    }
}

/// Name and clock of a static payload type (RFC 3551, 6).
pub fn static_format(payload_type: u8) -> Option<(&'static str, u32)> {
    Some(match payload_type {
        0 => ("PCMU", 8000),
        3 => ("GSM", 8000),
        4 => ("G723", 8000),
        5 => ("DVI4", 8000),
        6 => ("DVI4", 16_000),
        7 => ("LPC", 8000),
        8 => ("PCMA", 8000),
        9 => ("G722", 8000),
        10 | 11 => ("L16", 44_100),
        12 => ("QCELP", 8000),
        13 => ("CN", 8000),
        14 => ("MPA", 90_000),
        15 => ("G728", 8000),
        16 => ("DVI4", 11_025),
        17 => ("DVI4", 22_050),
        18 => ("G729", 8000),
        25 => ("CelB", 90_000),
        26 => ("JPEG", 90_000),
        28 => ("nv", 90_000),
        31 => ("H261", 90_000),
        32 => ("MPV", 90_000),
        33 => ("MP2T", 90_000),
        34 => ("H263", 90_000),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_version_2() {
        let packet = [0x80, 0x80, 0, 7, 0, 0, 1, 0, 1, 2, 3, 4, 9];
        let header = Header::parse(&packet).expect("RTP");
        assert_eq!((header.payload_type, header.sequence), (0, 7));
        assert_eq!((header.timestamp, header.ssrc), (256, 0x0102_0304));
        for len in 0..12 {
            assert_eq!(Header::parse(&packet[..len]), None);
        }
        let with = |at: usize, byte: u8| {
            let mut packet = packet;
            packet[at] = byte;
            Header::parse(&packet)
        };
        assert_eq!(with(0, 0x40), None, "version 1");
        assert_eq!(with(0, 0x81), None, "a contributor that is not there");
        assert_eq!(with(1, 200), None, "a sender report");
    }
}
