//! One packet as bytes.

use tapline_packet::headers::IpVersion;

use crate::checksum::{checksum, shifted, sum};
use crate::connection::Segment;
use crate::flow::Flow;
use crate::generator::MarkPlace;
use crate::mark::{MARK_LEN, Mark};
use crate::payload::Pool;
use crate::recipe::Transport;
use crate::shape::Shape;

/// Everything that a packet says.
pub(crate) struct Packet<'a> {
    pub(crate) shape: &'a Shape,
    pub(crate) flow: &'a Flow,
    /// The segment of TCP; of the others only the payload's length.
    pub(crate) segment: Segment,
    pub(crate) echo: u16,
    /// The identification of IPv4.
    pub(crate) id: u16,
    /// The offset of the payload in the pool.
    pub(crate) start: usize,
    /// The mark at the end of the payload, which is long enough for it.
    pub(crate) mark: Option<Mark>,
}

impl Packet<'_> {
    /// Bytes of the frame.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.shape.len() + self.segment.payload
    }

    /// The place of a mark and of the checksum that covers it.
    #[inline]
    pub(crate) fn mark_place(&self) -> Option<MarkPlace> {
        self.mark?;
        let checksum_at = self.shape.l4 + self.shape.checksum_at();
        let (is_odd, is_udp) = (self.segment.payload % 2 == 1, self.shape.transport == Transport::Udp);
        MarkPlace::new(self.len() - MARK_LEN, checksum_at, is_odd, is_udp)
    }

    /// Writes the frame, which has exactly the length of `out`.
    #[inline]
    pub(crate) fn write(&self, pool: &Pool, out: &mut [u8]) {
        let (headers, payload) = out.split_at_mut(self.shape.len());
        headers.copy_from_slice(&self.shape.bytes);
        let payload_sum = self.write_payload(pool, payload);
        if self.segment.is_answer {
            self.turn_round(headers);
        }
        let (headers, transport) = headers.split_at_mut(self.shape.l4);
        let len = transport.len() + payload.len();
        self.write_transport(transport, len, payload_sum);
        self.write_network(&mut headers[self.shape.l3..], len);
        if let Some(outer) = self.shape.outer {
            write_tunnel(headers, outer, len, self.shape, self.flow.tunnel_port);
        }
    }

    /// Writes the payload and returns its sum.
    #[inline]
    fn write_payload(&self, pool: &Pool, payload: &mut [u8]) -> u32 {
        let Some(mark) = self.mark else {
            let (bytes, sum) = pool.part(self.start, payload.len());
            payload.copy_from_slice(bytes);
            return sum;
        };
        let filled = payload.len() - MARK_LEN;
        let (bytes, sum) = pool.part(self.start, filled);
        payload[..filled].copy_from_slice(bytes);
        payload[filled..].copy_from_slice(&mark.to_bytes());
        let mark = mark.sum();
        sum + if filled.is_multiple_of(2) { mark } else { shifted(mark) }
    }

    /// From the server to the client: link addresses and those of the tunnel change places.
    #[cold]
    fn turn_round(&self, headers: &mut [u8]) {
        let swap_macs = |headers: &mut [u8], at: usize| {
            let (dst, src) = headers[at..at + 12].split_at_mut(6);
            dst.swap_with_slice(src);
        };
        swap_macs(headers, 0);
        if let Some(outer) = self.shape.outer {
            swap_macs(headers, self.shape.l3 - 14);
            let (src, dst) = headers[outer + 12..outer + 20].split_at_mut(4);
            src.swap_with_slice(dst);
        }
    }

    #[inline]
    fn write_transport(&self, header: &mut [u8], len: usize, payload_sum: u32) {
        let Packet { shape, flow, segment, .. } = self;
        let mut sum = u64::from(shape.l4_sum) + u64::from(payload_sum);
        if shape.has_pseudo_header() {
            sum += u64::from(flow.addresses_sum) + len as u64;
        }
        let (from, to) = match segment.is_answer {
            false => (flow.src_port, flow.dst_port),
            true => (flow.dst_port, flow.src_port),
        };
        sum += u64::from(from);
        match shape.transport {
            Transport::Udp => {
                let header: &mut [u8; 8] = header.try_into().expect("a UDP header");
                sum += u64::from(to) + len as u64;
                // A sum of zero is sent as its complement: zero means that there is none (RFC 768).
                let checksum = Some(checksum(sum)).filter(|sum| *sum != 0).unwrap_or(0xffff);
                let fields = [from, to, len as u16, checksum];
                fields
                    .iter()
                    .zip(header.chunks_exact_mut(2))
                    .for_each(|(field, at)| at.copy_from_slice(&field.to_be_bytes()));
            }
            Transport::Tcp => {
                let header: &mut [u8; 20] = header.try_into().expect("a TCP header");
                let halves = |number: u32| u64::from(number >> 16) + u64::from(number & 0xffff);
                sum += u64::from(to) + halves(segment.seq) + halves(segment.ack) + u64::from(segment.flags);
                header[0..2].copy_from_slice(&from.to_be_bytes());
                header[2..4].copy_from_slice(&to.to_be_bytes());
                header[4..8].copy_from_slice(&segment.seq.to_be_bytes());
                header[8..12].copy_from_slice(&segment.ack.to_be_bytes());
                header[13] = segment.flags;
                header[16..18].copy_from_slice(&checksum(sum).to_be_bytes());
            }
            Transport::Icmp => {
                let header: &mut [u8; 8] = header.try_into().expect("an ICMP header");
                sum += u64::from(self.echo);
                header[2..4].copy_from_slice(&checksum(sum).to_be_bytes());
                header[4..6].copy_from_slice(&from.to_be_bytes());
                header[6..8].copy_from_slice(&self.echo.to_be_bytes());
            }
        }
    }

    /// `carried` bytes follow the header.
    #[inline]
    fn write_network(&self, header: &mut [u8], carried: usize) {
        let Packet { shape, flow, .. } = self;
        let (from, to) = if self.segment.is_answer { (&flow.dst, &flow.src) } else { (&flow.src, &flow.dst) };
        match shape.version {
            IpVersion::V4 => {
                let header: &mut [u8; 20] = header.try_into().expect("an IPv4 header");
                let len = 20 + carried as u16;
                let sum = u64::from(shape.ip_sum)
                    + u64::from(flow.addresses_sum)
                    + u64::from(len)
                    + u64::from(self.id);
                header[2..4].copy_from_slice(&len.to_be_bytes());
                header[4..6].copy_from_slice(&self.id.to_be_bytes());
                header[10..12].copy_from_slice(&checksum(sum).to_be_bytes());
                header[12..16].copy_from_slice(&from[..4]);
                header[16..20].copy_from_slice(&to[..4]);
            }
            IpVersion::V6 => {
                let header: &mut [u8; 40] = header.try_into().expect("an IPv6 header");
                header[4..6].copy_from_slice(&(carried as u16).to_be_bytes());
                header[8..24].copy_from_slice(from);
                header[24..40].copy_from_slice(to);
            }
        }
    }
}

/// Lengths, port and checksum of a tunnel's headers, before `carried` bytes behind the inner IP header of the shape.
pub(crate) fn write_tunnel(headers: &mut [u8], outer: usize, carried: usize, shape: &Shape, port: u16) {
    let len = (shape.l4 - outer + carried) as u16;
    let header = &mut headers[outer..outer + 28];
    header[2..4].copy_from_slice(&len.to_be_bytes());
    header[10..12].copy_from_slice(&checksum(u64::from(shape.outer_sum) + u64::from(len)).to_be_bytes());
    header[20..22].copy_from_slice(&port.to_be_bytes());
    header[24..26].copy_from_slice(&(len - 20).to_be_bytes());
}

/// Writes the checksum of an IPv4 header without options again.
pub(crate) fn write_ip_checksum(header: &mut [u8]) {
    header[10..12].fill(0);
    let checksum = checksum(u64::from(sum(&header[..20])));
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}
