//! TCP, UDP and SCTP.
//!
//! ```text
//! TCP    src 2, dst 2, seq 4, ack 4, offset+flags 2, window 2, checksum 2, urgent 2, options, payload
//! UDP    src 2, dst 2, length 2, checksum 2, payload
//! SCTP   src 2, dst 2, tag 4, crc32c 4, chunks: type 1, flags 1, length 2, value, padding
//! ```

use super::IpPair;
use super::checksum::crc32c;

/// The control bits of TCP.
pub mod flags {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronises sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Resets the connection.
    pub const RST: u8 = 0x04;
    /// Deliver the data to the application.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement number counts.
    pub const ACK: u8 = 0x10;
}

/// A TCP header (RFC 9293).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tcp {
    /// Source port.
    pub src: u16,
    /// Destination port.
    pub dst: u16,
    /// Sequence number of the first byte.
    pub seq: u32,
    /// The next sequence number expected from the other side.
    pub ack: u32,
    /// See [`flags`].
    pub flags: u8,
    /// Bytes the sender would take, before scaling.
    pub window: u16,
    /// Options, padded to whole words.
    pub options: Vec<TcpOption>,
}

/// A TCP option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TcpOption {
    /// Maximum segment size.
    MaximumSegment(u16),
    /// Window scale (RFC 7323).
    WindowScale(u8),
    /// Selective acknowledgement permitted (RFC 2018).
    SackPermitted,
    /// Selective acknowledgement: left and right edges, up to 4.
    Sack(Vec<(u32, u32)>),
    /// Timestamps (RFC 7323): own value and the echoed one.
    Timestamps(u32, u32),
    /// No operation.
    Nop,
}

impl TcpOption {
    fn write(&self, bytes: &mut Vec<u8>) {
        match self {
            TcpOption::MaximumSegment(size) => {
                bytes.extend_from_slice(&[[2, 4], size.to_be_bytes()].concat())
            }
            TcpOption::WindowScale(shift) => bytes.extend_from_slice(&[3, 3, *shift]),
            TcpOption::SackPermitted => bytes.extend_from_slice(&[4, 2]),
            TcpOption::Sack(edges) => {
                bytes.extend_from_slice(&[5, 2 + 8 * edges.len() as u8]);
                bytes.extend(
                    edges
                        .iter()
                        .flat_map(|(left, right)| [left.to_be_bytes(), right.to_be_bytes()])
                        .flatten(),
                );
            }
            TcpOption::Timestamps(value, echo) => {
                bytes.extend_from_slice(&[8, 10]);
                bytes.extend_from_slice(&[value.to_be_bytes(), echo.to_be_bytes()].concat());
            }
            TcpOption::Nop => bytes.push(1),
        }
    }
}

impl Tcp {
    /// The segment that carries `payload` between these addresses.
    pub fn segment(&self, ips: IpPair, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(60 + payload.len());
        bytes.extend_from_slice(&self.src.to_be_bytes());
        bytes.extend_from_slice(&self.dst.to_be_bytes());
        bytes.extend_from_slice(&self.seq.to_be_bytes());
        bytes.extend_from_slice(&self.ack.to_be_bytes());
        bytes.extend_from_slice(&[0, self.flags]);
        bytes.extend_from_slice(&self.window.to_be_bytes());
        bytes.extend_from_slice(&[0; 4]);
        self.options.iter().for_each(|option| option.write(&mut bytes));
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes[12] = (bytes.len() / 4) as u8 * 16;
        bytes.extend_from_slice(payload);
        let checksum = ips.transport_checksum(6, &bytes);
        bytes[16..18].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    /// The IP packet that carries the segment.
    pub fn packet(&self, ips: IpPair, payload: &[u8]) -> Vec<u8> {
        ips.packet(6, &self.segment(ips, payload))
    }
}

/// A UDP header (RFC 768).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp {
    /// Source port.
    pub src: u16,
    /// Destination port.
    pub dst: u16,
}

impl Udp {
    /// The datagram that carries `payload` between these addresses.
    pub fn datagram(&self, ips: IpPair, payload: &[u8]) -> Vec<u8> {
        let len = payload.len() as u16 + 8;
        let ports = [self.src.to_be_bytes(), self.dst.to_be_bytes()].concat();
        let mut bytes = [&ports, &len.to_be_bytes()[..], &[0, 0], payload].concat();
        // A sum of zero is sent as its complement: zero means that there is none.
        let checksum = match ips.transport_checksum(17, &bytes) {
            0 => 0xffff,
            sum => sum,
        };
        bytes[6..8].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    /// The IP packet that carries the datagram.
    pub fn packet(&self, ips: IpPair, payload: &[u8]) -> Vec<u8> {
        ips.packet(17, &self.datagram(ips, payload))
    }
}

/// An SCTP packet (RFC 9260) of chunks: type, flags and value each.
pub fn sctp(src: u16, dst: u16, tag: u32, chunks: &[(u8, u8, &[u8])]) -> Vec<u8> {
    let ports = [src.to_be_bytes(), dst.to_be_bytes()].concat();
    let mut bytes = [&ports, &tag.to_be_bytes()[..], &[0; 4]].concat();
    for (kind, chunk_flags, value) in chunks {
        bytes.extend_from_slice(&[*kind, *chunk_flags]);
        bytes.extend_from_slice(&(value.len() as u16 + 4).to_be_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    // RFC 9260 appendix A: the sum travels with its low byte first.
    let crc = crc32c(&bytes).to_le_bytes();
    bytes[8..12].copy_from_slice(&crc);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn segments_sum_to_zero_over_both_versions() {
        let v4 = IpPair::V4(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
        let v6 = IpPair::V6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
        let options = vec![TcpOption::MaximumSegment(1460), TcpOption::Sack(vec![(1, 2)])];
        for ips in [v4, v6] {
            let tcp = Tcp { src: 1, dst: 2, flags: flags::SYN, options: options.clone(), ..Tcp::default() };
            let segment = tcp.segment(ips, b"odd");
            assert_eq!(segment.len(), 20 + 16 + 3);
            assert_eq!(ips.transport_checksum(6, &segment), 0);
            let datagram = Udp { src: 1, dst: 2 }.datagram(ips, b"odd");
            assert_eq!(ips.transport_checksum(17, &datagram), 0);
        }
    }
}
