//! Link headers of the first packet in each direction: MAC addresses, VLAN tags, and the MPLS label stack.
//!
//! ```text
//! Ethernet     destination 6 | source 6 | tag 4 | tag 4 | type 2 | labels, 4 each | IP
//! LINUX_SLL    packet type 2 | ARPHRD 2 | length 2 | source 8 | protocol 2
//! LINUX_SLL2   protocol 2 | 0 2 | interface 4 | ARPHRD 2 | packet type 1 | length 1 | source 8
//! ```
//!
//! Sources: IEEE 802.1Q; RFC 3032, 2.1; LINKTYPE_LINUX_SLL and LINKTYPE_LINUX_SLL2 of the tcpdump group.

use tapline_packet::headers::Headers;
use tapline_packet::{LinkType, Packet, VlanTag};

/// A MAC address (EUI-48).
pub type MacAddress = [u8; 6];

/// The most labels of a stack that are kept: as many as there are information elements (70 to 79).
pub const LABELS_KEPT: usize = 10;

/// Addresses and tags of a link header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkHeader {
    /// The source address; `None` where the link has none of six octets.
    pub source: Option<MacAddress>,
    /// The destination address; `None` also for cooked captures, which do not have it.
    pub destination: Option<MacAddress>,
    /// The two outermost VLAN tags as priority (3 bits), drop eligible (1), identifier (12); the outer one first.
    pub tags: [Option<u16>; 2],
}

impl LinkHeader {
    /// The link header of a packet. A tag that the kernel took off the bytes is the outermost.
    pub(super) fn of(link_type: LinkType, packet: Packet<'_>) -> LinkHeader {
        let headers = Headers::parse(link_type, packet);
        let address = |at: usize| packet.data.get(at..).and_then(|bytes| bytes.first_chunk()).copied();
        let (source, destination) = match link_type {
            LinkType::ETHERNET => (address(6), address(0)),
            LinkType::LINUX_SLL if packet.data.get(4..6) == Some(&[0, 6]) => (address(6), None),
            LinkType::LINUX_SLL2 if packet.data.get(11) == Some(&6) => (address(12), None),
            _ => (None, None),
        };
        let tag = |at: usize| headers.vlans().get(at).map(|tag: &VlanTag| tag.tci);
        LinkHeader { source, destination, tags: [tag(0), tag(1)] }
    }
}

/// An MPLS label stack, outermost label first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LabelStack {
    /// Label (20 bits), traffic class (3), bottom of stack (1), as the information elements 70 to 79 have them.
    entries: [[u8; 3]; LABELS_KEPT],
    count: u8,
}

impl LabelStack {
    /// The label stack of a packet; empty without labels. Of deeper stacks the first [`LABELS_KEPT`] entries are
    /// kept.
    pub(super) fn of(link_type: LinkType, packet: Packet<'_>) -> LabelStack {
        let headers = Headers::parse(link_type, packet);
        let mut stack = LabelStack::default();
        let (Some(mpls), Some(l3)) = (headers.mpls(), headers.l3()) else { return stack };
        let start = l3.saturating_sub(4 * usize::from(mpls.count));
        let labels = packet.data.get(start..l3).unwrap_or_default().as_chunks::<4>().0;
        for (entry, &[one, two, three, _ttl]) in stack.entries.iter_mut().zip(labels) {
            *entry = [one, two, three];
            stack.count += 1;
        }
        stack
    }

    /// Entries of the stack.
    pub fn entries(&self) -> &[[u8; 3]] {
        &self.entries[..LABELS_KEPT.min(self.count.into())]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapline_packet::Meta;
    use tapline_testkit::frames::*;

    fn of(link_type: LinkType, data: &[u8], vlan: Option<VlanTag>) -> (LinkHeader, LabelStack) {
        let meta = Meta { vlan, ..Meta::default() };
        let packet = Packet { data, meta: &meta };
        (LinkHeader::of(link_type, packet), LabelStack::of(link_type, packet))
    }

    #[test]
    fn addresses_and_tags_of_each_link_type() {
        let (a, b) = (Host::number(1), Host::number(2));
        let pair = IpPair::between(&a, &b, IpVersion::V4);
        let frame = Ethernet::between(&a, &b).ip(&Udp { src: 1, dst: 2 }.packet(pair, b"four"));
        let plain = of(LinkType::ETHERNET, &frame, None).0;
        assert_eq!((plain.source, plain.destination), (Some(a.mac), Some(b.mac)));
        assert_eq!(plain.tags, [None; 2]);
        let tagged = vlan(&frame, 0x8100, 0x6007);
        assert_eq!(of(LinkType::ETHERNET, &tagged, None).0.tags, [Some(0x6007), None]);
        let outer = VlanTag { tpid: 0x88a8, tci: 9 };
        let both = of(LinkType::ETHERNET, &tagged, Some(outer)).0;
        assert_eq!(both, LinkHeader { tags: [Some(9), Some(0x6007)], ..plain });
        let cooked = [&[0, 0, 0, 1, 0, 6][..], &a.mac, &[0, 0, 8, 0], &frame[14..]].concat();
        let header = of(LinkType::LINUX_SLL, &cooked, None).0;
        assert_eq!((header.source, header.destination), (Some(a.mac), None));
        let cooked = [&[8, 0, 0, 0, 0, 0, 0, 3, 0, 1, 0, 6][..], &a.mac, &[0, 0], &frame[14..]].concat();
        assert_eq!(of(LinkType::LINUX_SLL2, &cooked, None).0.source, Some(a.mac));
        for len in 0..frame.len() {
            of(LinkType::ETHERNET, &tagged[..len], None);
            of(LinkType::LINUX_SLL2, &cooked[..len.min(cooked.len())], None);
        }
    }

    #[test]
    fn labels_stand_in_order_and_are_bounded() {
        let (a, b) = (Host::number(1), Host::number(2));
        let pair = IpPair::between(&a, &b, IpVersion::V4);
        let packet = Udp { src: 1, dst: 2 }.packet(pair, b"four");
        let stack = |count: u32| {
            let entry = |at: u32| (100 + at) << 12 | u32::from(at + 1 == count) << 8 | 64;
            let labels: Vec<u8> = (0..count).flat_map(|at| entry(at).to_be_bytes()).collect();
            let frame = [&[2; 12][..], &[0x88, 0x47], &labels, &packet].concat();
            of(LinkType::ETHERNET, &frame, None).1
        };
        assert_eq!(stack(2).entries(), [[0, 6, 0x40], [0, 6, 0x51]]);
        assert_eq!(stack(12).entries().len(), LABELS_KEPT);
        let plain = Ethernet::between(&a, &b).ip(&packet);
        assert!(of(LinkType::ETHERNET, &plain, None).1.is_empty());
    }
}
