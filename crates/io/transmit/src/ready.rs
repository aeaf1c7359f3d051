//! A captured packet as the frame that was, or should have been, on the wire.
//!
//! ```text
//! captured      | addresses 12 | type ... checksum ... rest |          the tag in metadata, the checksum perhaps not filled in
//! frame         [virtio header] [ addresses 12 | tag 4 | type ... checksum ] [ rest ]
//!                                 head: a copy, only where something changes    in place
//! ```
//!
//! Most packets are sent unchanged: none of their bytes is copied here.

use std::ops::Range;

use tapline_packet::headers::Headers;
use tapline_packet::{BATCH_MAX, Batch, Checksum, Direction, Gso, Interface, LinkType, Meta, Packet};
use tapline_source::LossCause;
use tapline_sys::PIECES_MAX;

use super::checksum::Field;

/// The most bytes of a packet that are copied to be changed: link headers and IP with long extension headers.
const HEAD_MAX: usize = 512;
/// The addresses of an Ethernet frame, behind which tags follow.
const ADDRESSES: usize = 12;
const ETHERNET_LEN: usize = 14;
const TAG_LEN: usize = 4;
/// `struct virtio_net_hdr` of linux/virtio_net.h: flags, gso_type, and hdr_len, gso_size, csum_start, csum_offset of 16
/// bits.
const VNET_LEN: usize = 10;
const NO_SEGMENTS: [u8; VNET_LEN] = [0; VNET_LEN];
/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`.
const NEEDS_CHECKSUM: u8 = 1;

/// The changes to each frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrameEdit {
    /// Nothing.
    #[default]
    None,
    /// Source and destination of the Ethernet header are exchanged.
    SwapAddresses,
}

/// A frame that is ready: where its pieces are.
#[derive(Clone, Copy, Debug)]
struct Ready {
    /// Index of the packet in the batch.
    index: u8,
    /// Number of the packet's bytes that the head replaces.
    skip: usize,
    /// The end of the frame in the packet's bytes.
    end: usize,
    head: (usize, usize),
    vnet: [u8; VNET_LEN],
}

/// Whether this host, perhaps Tapline, sent the packet: sending it again would loop.
pub(super) fn is_own(meta: &Meta) -> bool {
    // In a file the word is another host's, or of another time.
    meta.direction == Direction::Out && meta.if_index != 0
}

/// Makes frames of a batch's packets. Allocates nothing once it is made.
#[derive(Debug)]
pub(super) struct Maker {
    link_type: LinkType,
    change: FrameEdit,
    segments: bool,
    ready: Vec<Ready>,
    heads: Vec<u8>,
}

impl Maker {
    /// Makes frames for an interface of this link type. With `segments` a virtio header precedes each.
    pub(super) fn new(link_type: LinkType, change: FrameEdit, segments: bool) -> Maker {
        let (ready, heads) =
            (Vec::with_capacity(BATCH_MAX), Vec::with_capacity(BATCH_MAX * (HEAD_MAX + TAG_LEN)));
        Maker { link_type, change, segments, ready, heads }
    }

    /// Forgets the frames of the previous batch.
    pub(super) fn clear(&mut self) {
        self.ready.clear();
        self.heads.clear();
    }

    /// Number of frames that are ready.
    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }

    /// Makes the packet at `index` ready, or says why it cannot be sent.
    pub(super) fn make(
        &mut self,
        batch: &Batch<'_>,
        index: usize,
        interfaces: &[Interface],
    ) -> Result<(), LossCause> {
        let Packet { data, meta } = batch.packet(index);
        let interface = interfaces.get(meta.interface.0 as usize);
        if interface.is_some_and(|interface| interface.link_type != self.link_type) {
            return Err(LossCause::LinkType);
        }
        // A check sequence is the adapter's to make.
        let check_len = interface.and_then(|interface| interface.fcs_len).unwrap_or(0);
        let end = (meta.wire_len as usize).checked_sub(check_len.into()).ok_or(LossCause::Partial)?;
        let data = data.get(..end).ok_or(LossCause::Partial)?;
        let is_ethernet = self.link_type == LinkType::ETHERNET;
        if is_ethernet && data.len() < ETHERNET_LEN || data.is_empty() {
            return Err(LossCause::TooShort);
        }
        let mut ready = Ready { index: index as u8, skip: 0, end, head: (0, 0), vnet: NO_SEGMENTS };
        let swaps = is_ethernet && self.change == FrameEdit::SwapAddresses;
        let tag = meta.vlan.filter(|_| is_ethernet);
        let is_plain = meta.checksum != Checksum::NotReady && meta.gso.is_none() && tag.is_none() && !swaps;
        if !is_plain {
            let sum = self.offloads(meta.checksum, meta.gso, data, tag.is_some(), &mut ready.vnet)?;
            ready.skip = sum.map_or(ADDRESSES.min(data.len()), |(at, _)| at + 2);
            let start = self.heads.len();
            self.heads.extend_from_slice(&data[..ready.skip]);
            let head = &mut self.heads[start..];
            if let Some((at, sum)) = sum {
                head[at..at + 2].copy_from_slice(&sum);
            }
            if swaps {
                let (to, from) = head[..ADDRESSES].split_at_mut(ADDRESSES / 2);
                to.swap_with_slice(from);
            }
            if let Some(tag) = tag {
                let [p0, p1] = tag.tpid.to_be_bytes();
                let [c0, c1] = tag.tci.to_be_bytes();
                let at = start + ADDRESSES;
                self.heads.splice(at..at, [p0, p1, c0, c1]);
            }
            ready.head = (start, self.heads.len() - start);
        }
        self.ready.push(ready);
        Ok(())
    }

    /// Completes the work that was left to an adapter: returns the checksum and its place, or fills in the virtio
    /// header by which the kernel does it.
    fn offloads(
        &self,
        checksum: Checksum,
        gso: Option<Gso>,
        data: &[u8],
        has_tag: bool,
        vnet: &mut [u8; VNET_LEN],
    ) -> Result<Option<(usize, [u8; 2])>, LossCause> {
        if checksum != Checksum::NotReady && gso.is_none() {
            return Ok(None);
        }
        let headers = Headers::parse_data(self.link_type, data);
        let field = Field::find(&headers, data).filter(|field| field.at + 2 <= HEAD_MAX);
        if let Some(gso) = gso {
            let (Some(field), true) = (field, self.segments && gso.size > 0) else {
                return Err(LossCause::Segments);
            };
            let payload = headers.payload().ok_or(LossCause::Segments)?;
            *vnet = segment_header(gso, &field, payload, if has_tag { TAG_LEN } else { 0 })
                .ok_or(LossCause::Segments)?;
            return Ok(None);
        }
        let field = field.filter(|field| field.is_partial(data)).ok_or(LossCause::Checksum)?;
        Ok(Some((field.at, field.complete(data))))
    }

    /// The pieces of the frames from `first` on.
    pub(super) fn pieces<'a>(
        &'a self,
        batch: &Batch<'a>,
        first: usize,
    ) -> impl Iterator<Item = [&'a [u8]; PIECES_MAX]> {
        let batch = *batch;
        self.ready[first..].iter().map(move |ready| {
            let (start, len) = ready.head;
            let vnet: &[u8] = if self.segments { &ready.vnet } else { &[] };
            let rest = batch.packet(ready.index.into()).data.get(ready.skip..ready.end).unwrap_or(&[]);
            [vnet, &self.heads[start..start + len], rest]
        })
    }

    /// Bytes of some of the frames.
    pub(super) fn bytes(&self, which: Range<usize>) -> u64 {
        self.ready[which].iter().map(|ready| (ready.head.1 + ready.end - ready.skip) as u64).sum()
    }
}

/// The virtio header with which the kernel cuts a packet into frames.
fn segment_header(gso: Gso, field: &Field, payload: usize, moved: usize) -> Option<[u8; VNET_LEN]> {
    let number = |value: usize| u16::try_from(value).ok().map(u16::to_ne_bytes);
    let [h0, h1] = number(payload + moved)?;
    let [g0, g1] = gso.size.to_ne_bytes();
    let [s0, s1] = number(field.start + moved)?;
    let [o0, o1] = number(field.at - field.start)?;
    Some([NEEDS_CHECKSUM, gso.kind, h0, h1, g0, g1, s0, s1, o0, o1])
}

#[cfg(test)]
mod tests {
    use tapline_packet::{InterfaceId, Record, VlanTag};
    use tapline_testkit::traffic::Traffic;

    use super::*;

    fn meta(data: &[u8]) -> Meta {
        Meta { wire_len: data.len() as u32, ..Meta::default() }
    }

    /// The fate of one packet.
    fn frame(
        change: FrameEdit,
        data: &[u8],
        meta: Meta,
        interface: &Interface,
    ) -> Result<Vec<u8>, LossCause> {
        let mut maker = Maker::new(LinkType::ETHERNET, change, false);
        let records = [Record { offset: 0, cap_len: data.len() as u32, options_len: 0, meta }];
        let batch = Batch::new(data, &records);
        maker.make(&batch, 0, std::slice::from_ref(interface))?;
        let frame = maker.pieces(&batch, 0).next().unwrap().concat();
        assert_eq!(maker.bytes(0..1), frame.len() as u64);
        Ok(frame)
    }

    fn ethernet() -> Interface {
        Interface::new("eth0", LinkType::ETHERNET)
    }

    #[test]
    fn a_packet_goes_as_it_was_captured() {
        for (_, data) in Traffic::new(3).take(500) {
            assert_eq!(frame(FrameEdit::None, &data, meta(&data), &ethernet()), Ok(data.clone()));
        }
    }

    #[test]
    fn tags_are_put_back_and_addresses_swapped() {
        for (_, data) in Traffic::new(4).take(500) {
            let tagged = Meta { vlan: Some(VlanTag { tpid: 0x88a8, tci: 0x1234 }), ..meta(&data) };
            let expected = [&data[..12], &[0x88, 0xa8, 0x12, 0x34], &data[12..]].concat();
            assert_eq!(frame(FrameEdit::None, &data, tagged, &ethernet()), Ok(expected.clone()));
            let swapped = [&expected[6..12], &expected[..6], &expected[12..]].concat();
            assert_eq!(frame(FrameEdit::SwapAddresses, &data, tagged, &ethernet()), Ok(swapped));
        }
    }

    #[test]
    fn packets_that_cannot_be_sent_have_a_reason() {
        let (_, data) = Traffic::new(5).next().unwrap();
        let whole = meta(&data);
        let refused = |meta, interface: &Interface| {
            frame(FrameEdit::None, &data, meta, interface).map(drop).unwrap_err()
        };
        let longer = Meta { wire_len: whole.wire_len + 1, ..whole };
        assert_eq!(refused(longer, &ethernet()), LossCause::Partial);
        assert!(is_own(&Meta { direction: Direction::Out, if_index: 3, ..whole }));
        let in_a_file = Meta { direction: Direction::Out, ..whole };
        assert!(!is_own(&in_a_file));
        assert_eq!(refused(whole, &Interface::new("", LinkType::RAW)), LossCause::LinkType);
        assert_eq!(
            refused(Meta { gso: Some(Gso { size: 0, kind: 1 }), ..whole }, &ethernet()),
            LossCause::Segments
        );
        assert_eq!(
            frame(FrameEdit::None, &data[..13], meta(&data[..13]), &ethernet()),
            Err(LossCause::TooShort)
        );
        assert_eq!(frame(FrameEdit::None, &[], meta(&[]), &ethernet()), Err(LossCause::TooShort));
        let checked = Interface { fcs_len: Some(4), ..ethernet() };
        assert_eq!(frame(FrameEdit::None, &data, whole, &checked), Ok(data[..data.len() - 4].to_vec()));
        assert_eq!(frame(FrameEdit::None, &data[..3], meta(&data[..3]), &checked), Err(LossCause::Partial));
    }

    #[test]
    fn a_checksum_left_to_the_adapter_is_completed() {
        let mut completed = 0;
        for (_, data) in Traffic::new(6).take(1000) {
            let field = Field::find(&Headers::parse_data(LinkType::ETHERNET, &data), &data);
            let Some(field) = field.filter(|field| data[field.at..field.at + 2] != [0, 0]) else { continue };
            let mut partial = data.clone();
            partial[field.at..field.at + 2].copy_from_slice(&field.pseudo.to_be_bytes());
            let not_ready = Meta { checksum: Checksum::NotReady, ..meta(&data) };
            for tag in [None, Some(VlanTag { tpid: 0x8100, tci: 7 })] {
                let sent =
                    frame(FrameEdit::None, &partial, Meta { vlan: tag, ..not_ready }, &ethernet()).unwrap();
                let (tail, at) = if tag.is_some() { (16, 12) } else { (12, 12) };
                assert_eq!(sent[tail..], data[at..]);
            }
            // A checksum other than that of a pseudo-header belongs to a header further inside, which is not known.
            partial[field.at] ^= 0x55;
            assert_eq!(frame(FrameEdit::None, &partial, not_ready, &ethernet()), Err(LossCause::Checksum));
            completed += 1;
        }
        assert!(completed > 100, "{completed}");
    }

    #[test]
    fn packets_of_any_content_are_sent_or_refused() {
        let mut maker = Maker::new(LinkType::ETHERNET, FrameEdit::SwapAddresses, true);
        for (number, (_, data)) in Traffic::new(7).take(200).enumerate() {
            for len in (0..=data.len()).step_by(1 + number % 7) {
                let data = &data[..len];
                let mut meta = Meta { checksum: Checksum::NotReady, interface: InterfaceId(9), ..meta(data) };
                meta.gso = (number % 3 == 0).then_some(Gso { size: number as u16, kind: number as u8 });
                meta.vlan = (number % 2 == 0).then_some(VlanTag { tpid: 0x8100, tci: 1 });
                let records = [Record { offset: 0, cap_len: len as u32, options_len: 0, meta }];
                let batch = Batch::new(data, &records);
                maker.clear();
                let made = maker.make(&batch, 0, &[]);
                assert_eq!(maker.pieces(&batch, 0).count(), usize::from(made.is_ok()));
            }
        }
    }
}
