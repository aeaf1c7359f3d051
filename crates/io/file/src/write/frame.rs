//! A packet as it goes into a file: with its VLAN tag back in its place.
//!
//! ```text
//! Ethernet   destination 6, source 6, [tag 4,] type ...
//! SLL        type 2, address type 2, length 2, address 8, [tag 4,] protocol ...
//! ```

use tapline_packet::{LinkType, Packet, VlanTag};

/// The parts of a packet's bytes in the order in which they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    head: &'a [u8],
    tag: [u8; 4],
    tag_len: usize,
    tail: &'a [u8],
    pub(super) wire_len: u32,
}

impl<'a> Frame<'a> {
    /// The packet in its form on a wire of this link type.
    ///
    /// A tag that the kernel took out is put back, as libpcap does for live captures: both lengths grow by 4. The
    /// packet is cut to `snap_len` (0 for no limit), so that no file holds more than its header says. Other writers'
    /// files may: libpcap cuts their packets as it reads them (`pcap_next_packet` in sf-pcap.c). No reader takes more than
    /// the link type's greatest length, which a tag may exceed.
    #[inline]
    pub(super) fn new(packet: &Packet<'a>, link_type: LinkType, snap_len: u32) -> Frame<'a> {
        let wire_len = packet.meta.wire_len;
        let whole = Frame { head: packet.data, tag: [0; 4], tag_len: 0, tail: &[], wire_len };
        let frame = match packet.meta.vlan {
            None => whole,
            Some(tag) => whole.tagged(tag, link_type).unwrap_or(whole),
        };
        let len_max = len_max(link_type, snap_len);
        if frame.len() > len_max { frame.cut(len_max) } else { frame }
    }

    /// Captured bytes.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.head.len() + self.tag_len + self.tail.len()
    }

    /// Appends the captured bytes.
    #[inline]
    pub(super) fn write(&self, buffer: &mut Vec<u8>) {
        buffer.extend_from_slice(self.head);
        if self.tag_len > 0 {
            buffer.extend_from_slice(&self.tag[..self.tag_len]);
            buffer.extend_from_slice(self.tail);
        }
    }

    fn tagged(self, tag: VlanTag, link_type: LinkType) -> Option<Frame<'a>> {
        let (head, tail) = self.head.split_at_checked(tag_offset(link_type)?)?;
        let [a, b] = tag.tpid.to_be_bytes();
        let [c, d] = tag.tci.to_be_bytes();
        let wire_len = self.wire_len.saturating_add(4);
        Some(Frame { head, tag: [a, b, c, d], tag_len: 4, tail, wire_len })
    }

    fn cut(self, len: usize) -> Frame<'a> {
        let head = &self.head[..self.head.len().min(len)];
        let tag_len = self.tag_len.min(len - head.len());
        let tail = &self.tail[..self.tail.len().min(len - head.len() - tag_len)];
        Frame { head, tag_len, tail, ..self }
    }
}

/// The most bytes of a packet of this link type that are written; `snap_len` is 0 for no limit.
#[inline]
pub(super) fn len_max(link_type: LinkType, snap_len: u32) -> usize {
    let len_max = link_type.snap_len_max();
    (if snap_len == 0 { len_max } else { snap_len.min(len_max) }) as usize
}

/// The offset of a tag in a packet of this link type (libpcap's `vlan_offset`).
fn tag_offset(link_type: LinkType) -> Option<usize> {
    match link_type {
        LinkType::ETHERNET => Some(12),
        LinkType::LINUX_SLL => Some(14),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapline_packet::Meta;

    const TAG: VlanTag = VlanTag { tpid: 0x8100, tci: 0x2005 };

    fn bytes(data: &[u8], link_type: LinkType, snap_len: u32) -> (Vec<u8>, u32) {
        let meta = Meta { vlan: Some(TAG), wire_len: 60, ..Meta::default() };
        let frame = Frame::new(&Packet { data, meta: &meta }, link_type, snap_len);
        let mut buffer = Vec::new();
        frame.write(&mut buffer);
        assert_eq!(buffer.len(), frame.len());
        (buffer, frame.wire_len)
    }

    #[test]
    fn the_tag_stands_behind_the_addresses() {
        let data: Vec<u8> = (0..20).collect();
        let (written, wire_len) = bytes(&data, LinkType::ETHERNET, 0);
        assert_eq!(written, [&data[..12], &[0x81, 0, 0x20, 5], &data[12..]].concat());
        assert_eq!(wire_len, 64);
        assert_eq!(bytes(&data, LinkType::LINUX_SLL, 0).0[14..18], [0x81, 0, 0x20, 5]);
    }

    #[test]
    fn packets_without_room_for_a_tag_stay() {
        let data: Vec<u8> = (0..11).collect();
        assert_eq!(bytes(&data, LinkType::ETHERNET, 0), (data.clone(), 60));
        let data: Vec<u8> = (0..40).collect();
        assert_eq!(bytes(&data, LinkType::RAW, 0), (data.clone(), 60));
    }

    #[test]
    fn a_tagged_packet_keeps_to_the_snap_length() {
        let data: Vec<u8> = (0..64).collect();
        assert_eq!(bytes(&data, LinkType::ETHERNET, 64).0.len(), 64);
        for snap_len in 1..=70 {
            let (written, wire_len) = bytes(&data, LinkType::ETHERNET, snap_len);
            assert_eq!(written, bytes(&data, LinkType::ETHERNET, 0).0[..(snap_len as usize).min(68)]);
            assert_eq!(wire_len, 64);
        }
    }

    #[test]
    fn a_packet_longer_than_the_snap_length_is_cut() {
        let data: Vec<u8> = (0..34).collect();
        let meta = Meta { wire_len: 60, ..Meta::default() };
        let frame = Frame::new(&Packet { data: &data, meta: &meta }, LinkType::ETHERNET, 31);
        assert_eq!((frame.len(), frame.wire_len), (31, 60));
    }
}
