//! Packets before and after.

use proptest::prelude::*;
use tapline_mask::{Key, Masker, Payload, Settings};
use tapline_packet::LinkType;
use tapline_packet::headers;
use tapline_testkit::frames::*;

const ALL: Settings = Settings { masks_addresses: true, masks_macs: true, payload: Payload::Zero };

fn masker(settings: Settings) -> Masker {
    Masker::new(settings, &Key::new([7; 32]))
}

fn pair(version: IpVersion) -> IpPair {
    IpPair::between(&Host::number(1), &Host::number(2), version)
}

fn link() -> Ethernet {
    Ethernet::between(&Host::number(1), &Host::number(2))
}

fn masked(settings: Settings, frame: &[u8]) -> Vec<u8> {
    let mut data = frame.to_vec();
    let kept = masker(settings).mask(LinkType::ETHERNET, &mut data);
    data.truncate(kept);
    data
}

/// The sum of an IPv4 header.
fn header_sum(frame: &[u8], at: usize) -> u32 {
    sum(&frame[at..at + usize::from(frame[at] & 15) * 4])
}

/// The sum of a transport header and its data with the pseudo-header, 0xffff where the checksum is right.
fn transport_sum(frame: &[u8]) -> u32 {
    let found = headers::Headers::parse_data(LinkType::ETHERNET, frame);
    let (l3, l4) = (found.l3().expect("IP"), found.l4().expect("a header behind IP"));
    let addresses = match found.ip().expect("IP") {
        headers::IpVersion::V4 => &frame[l3 + 12..l3 + 20],
        headers::IpVersion::V6 => &frame[l3 + 8..l3 + 40],
    };
    let carried = &frame[l4..found.ip_end()];
    let numbers = [u32::from(found.protocol().expect("a protocol")), carried.len() as u32];
    fold(numbers.iter().sum::<u32>() + sum(addresses) + sum(carried))
}

fn sum(bytes: &[u8]) -> u32 {
    fold(bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&b| b.into())).sum())
}

fn fold(sum: u32) -> u32 {
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16)
}

#[test]
fn checksums_are_right_afterwards() {
    for version in [IpVersion::V4, IpVersion::V6] {
        let ip = pair(version);
        let tcp = Tcp { src: 1, dst: 2, flags: flags::ACK, ..Tcp::default() };
        for packet in
            [tcp.packet(ip, b"GET / of odd length"), Udp { src: 5, dst: 6 }.packet(ip, b"who is it?")]
        {
            let frame = link().ip(&packet);
            for payload in [Payload::Keep, Payload::Zero] {
                let after = masked(Settings { payload, ..ALL }, &frame);
                assert_eq!((transport_sum(&frame), transport_sum(&after)), (0xffff, 0xffff));
                assert_ne!(frame[26..34], after[26..34], "no address stays");
                if version == IpVersion::V4 {
                    assert_eq!(header_sum(&after, 14), 0xffff);
                }
                let has_payload = after.windows(4).any(|bytes| bytes == b"GET " || bytes == b"who ");
                assert_eq!(has_payload, payload == Payload::Keep);
            }
        }
    }
}

#[test]
fn a_wrong_checksum_stays_wrong() {
    let mut frame = link().ip(&Udp { src: 5, dst: 6 }.packet(pair(IpVersion::V4), b"text"));
    frame[40] ^= 0x20;
    let before = transport_sum(&frame);
    assert_ne!(before, 0xffff);
    assert_eq!(transport_sum(&masked(ALL, &frame)), before);
    // Without a checksum there is none.
    frame[40..42].fill(0);
    assert_eq!(masked(ALL, &frame)[40..42], [0, 0]);
}

#[test]
fn one_address_has_one_image_in_every_header() {
    let v4 = pair(IpVersion::V4);
    let inner = Udp { src: 5, dst: 6 }.packet(v4, b"inside");
    let plain = masked(ALL, &link().ip(&inner));
    let image = plain[26..34].to_vec();
    // IP in IP, what an ICMP error quotes, and ARP.
    let tunnel = link().ip(&v4.packet(4, &inner));
    let error = link().ip(&v4.packet(1, &[&[3, 1, 0, 0, 0, 0, 0, 0][..], &inner].concat()));
    let tunnel = masked(ALL, &tunnel);
    assert_eq!(tunnel[46..54], image[..]);
    assert_eq!(header_sum(&tunnel, 34), 0xffff);
    let error = masked(ALL, &error);
    assert_eq!(error[54..62], image[..]);
    let arp = masked(ALL, &link().frame(0x0806, &arp(1, &Host::number(1), [0; 6], Host::number(2).v4)));
    assert_eq!((&arp[28..32], &arp[38..42]), (&image[..4], &image[4..]));
    assert_eq!(arp[6..12], arp[22..28], "the hardware address too");
    assert_ne!(arp[6..12], Host::number(1).mac[..]);
}

#[test]
fn payload_is_cut_where_it_begins() {
    let frame = link().ip(&Udp { src: 5, dst: 6 }.packet(pair(IpVersion::V4), b"text"));
    let settings = Settings { payload: Payload::Cut, ..ALL };
    assert_eq!(masked(settings, &frame).len(), 42);
    let unknown = link().frame(0x88cc, b"a name of a switch");
    assert_eq!(masked(settings, &unknown).len(), 14);
}

#[test]
fn a_protocol_that_is_not_known_tells_nothing() {
    let unknown = link().frame(0x88cc, b"a name of a switch");
    for payload in [Payload::Keep, Payload::Zero] {
        let mut data = unknown.clone();
        let mut masker = masker(Settings { payload, ..ALL });
        masker.mask(LinkType::ETHERNET, &mut data);
        assert!(data[14..].iter().all(|byte| *byte == 0));
        assert_eq!((masker.counts().packets, masker.counts().not_understood), (1, 1));
    }
}

#[test]
fn nothing_is_masked_that_was_not_asked_for() {
    let frame = link().ip(&Udp { src: 5, dst: 6 }.packet(pair(IpVersion::V6), b"text"));
    let nothing = Settings { masks_addresses: false, masks_macs: false, payload: Payload::Keep };
    assert_eq!(masked(nothing, &frame), frame);
}

proptest! {
    #[test]
    fn hostile_bytes_neither_panic_nor_grow(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..400),
        start in 0..9usize,
        link_type in proptest::sample::select(vec![1u16, 101, 113, 276, 228, 229, 105, 9, 0, 999]),
    ) {
        // Beginnings that reach further than random bytes do.
        let starts: [&[u8]; 9] = [
            &[], &[0x45, 0, 1, 0, 0, 0, 0, 0, 9, 1], &[0x45, 0, 1, 0, 0, 0, 0, 0, 9, 6],
            &[0x4f, 0, 1, 0, 0, 0, 0, 0, 9, 2], &[0x60, 0, 0, 0, 1, 0, 43], &[0x60, 0, 0, 0, 1, 0, 60],
            &[0x60, 0, 0, 0, 1, 0, 58], &[0x45, 0, 1, 0, 0, 0, 0, 0, 9, 132], &[0x45, 0, 1, 0, 0, 0, 0, 0, 9, 47],
        ];
        let head = starts[start];
        let len = head.len().min(bytes.len());
        bytes[..len].copy_from_slice(&head[..len]);
        for payload in [Payload::Keep, Payload::Zero, Payload::Cut] {
            for link_type in [LinkType(link_type), LinkType::RAW] {
                let mut data = bytes.clone();
                let kept = masker(Settings { payload, ..ALL }).mask(link_type, &mut data);
                prop_assert!(kept <= bytes.len());
            }
        }
    }
}
