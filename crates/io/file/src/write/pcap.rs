//! Encoding the pcap format. The layout is in `read/pcap.rs`; numbers are in this machine's byte order.

use tapline_packet::{Interface, LinkType, Packet};

use super::frame::{Frame, len_max};
use super::options::Precision;
use crate::read::pcap::{FCS_LEN_SHIFT, FCS_PRESENT, MAGIC_MICRO, MAGIC_NANO, RECORD_HEADER_LEN};

/// Encodes packets of one link type.
#[derive(Clone, Debug)]
pub(super) struct Encoder {
    precision: Precision,
    pub(super) link_type: LinkType,
    snap_len: u32,
    fcs_len: Option<u8>,
}

impl Encoder {
    /// For packets like those of the first interface. The header's snap length is the greatest of the interfaces, and
    /// `snap_len` where one gives none.
    pub(super) fn new(precision: Precision, interfaces: &[Interface], snap_len: u32) -> Encoder {
        let default = Interface::new("", LinkType::ETHERNET);
        let interface = interfaces.first().unwrap_or(&default);
        let link_type = interface.link_type;
        let limit = |own: u32| {
            let limits = [own, snap_len, link_type.snap_len_max()];
            limits.into_iter().find(|&limit| limit != 0).unwrap_or(0)
        };
        let alike = interfaces.iter().filter(|interface| interface.link_type == link_type);
        let snap_len = alike.map(|interface| limit(interface.snap_len)).max().unwrap_or(limit(0));
        Encoder { precision, link_type, snap_len, fcs_len: interface.fcs_len }
    }

    /// The most bytes of a packet whose interface has this snap length: no more than the header says.
    pub(super) fn limit(&self, snap_len: u32) -> u32 {
        if snap_len == 0 { self.snap_len } else { snap_len.min(self.snap_len) }
    }

    /// Appends the file header.
    pub(super) fn header(&self, buffer: &mut Vec<u8>) {
        let magic = match self.precision {
            Precision::Micro => MAGIC_MICRO,
            Precision::Nano => MAGIC_NANO,
        };
        // The field counts units of 16 bits and has 4 bits; lengths that do not fit are left out.
        let fcs = match self.fcs_len {
            Some(len @ 0..=30) if len % 2 == 0 => FCS_PRESENT | u32::from(len / 2) << FCS_LEN_SHIFT,
            _ => 0,
        };
        buffer.extend_from_slice(&magic.to_ne_bytes());
        buffer.extend_from_slice(&2u16.to_ne_bytes());
        buffer.extend_from_slice(&4u16.to_ne_bytes());
        for number in [0, 0, self.snap_len, fcs | u32::from(self.link_type.0)] {
            buffer.extend_from_slice(&number.to_ne_bytes());
        }
    }

    /// Appends one record, of at most `snap_len` bytes of the packet: the [`limit`](Self::limit) of its interface.
    #[inline]
    pub(super) fn packet(&self, buffer: &mut Vec<u8>, packet: &Packet<'_>, snap_len: u32) {
        // A frame of three parts costs a short packet a tenth of its time (see pcapng.rs).
        if packet.meta.vlan.is_none() {
            let cap_len = packet.data.len().min(len_max(self.link_type, snap_len));
            buffer.reserve(RECORD_HEADER_LEN + cap_len);
            buffer.extend_from_slice(&self.record_header(packet, cap_len, packet.meta.wire_len));
            buffer.extend_from_slice(&packet.data[..cap_len]);
            return;
        }
        let frame = Frame::new(packet, self.link_type, snap_len);
        buffer.extend_from_slice(&self.record_header(packet, frame.len(), frame.wire_len));
        frame.write(buffer);
    }

    #[inline]
    fn record_header(&self, packet: &Packet<'_>, cap_len: usize, wire_len: u32) -> [u8; RECORD_HEADER_LEN] {
        let time = packet.meta.timestamp;
        // 32 bits of seconds end in 2106; what is outside has the nearest time that can be written.
        let seconds = time.seconds().clamp(0, u32::MAX.into()) as u32;
        let fraction = match self.precision {
            Precision::Micro => time.subsec_nanos() / 1000,
            Precision::Nano => time.subsec_nanos(),
        };
        let mut header = [0; RECORD_HEADER_LEN];
        for (field, number) in header.chunks_exact_mut(4).zip([seconds, fraction, cap_len as u32, wire_len]) {
            field.copy_from_slice(&number.to_ne_bytes());
        }
        header
    }
}

/// The length of the record at the start of `records`, which this encoder wrote.
pub(super) fn record_len(records: &[u8]) -> Option<usize> {
    let cap_len = u32::from_ne_bytes(*records.get(8..)?.first_chunk()?);
    Some(RECORD_HEADER_LEN + cap_len as usize)
}
