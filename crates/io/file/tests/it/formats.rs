//! Every format and variant, from bytes written by hand.

use crate::samples;
use crate::samples::{Bytes, ORDERS, data, read};
use tapline_file::{ByteOrder, Error, FileSource};
use tapline_packet::{Direction, InterfaceId, LinkType, PacketType, Resolution, Timestamp};

const SECOND: u32 = 1_700_000_000;

fn nanos(whole: &samples::Whole) -> Vec<i64> {
    whole.packets.iter().map(|packet| packet.meta.timestamp.as_nanos()).collect()
}

#[test]
fn pcap_in_both_orders_and_all_units() {
    let magics = [
        (0xa1b2_c3d4, 123_000, Resolution::MICRO, 0),
        (0xa1b2_3c4d, 123, Resolution::NANO, 0),
        (0xa12b_3c4d, 123, Resolution::NANO, 0),
        (0x1c00_01ac, 123, Resolution::NANO, 4),
        (0x1c00_01ab, 123_000, Resolution::MICRO, 4),
    ];
    for order in ORDERS {
        for (magic, fraction_ns, resolution, extra) in magics {
            let mut file = Bytes::new(order);
            file.pcap_header(magic, (2, 4), 100, 1).raw(&[0; 4][..extra]);
            file.pcap_record((SECOND, 123), 1500, &[], &data(61)).pcap_record(
                (SECOND, 999),
                3,
                &[],
                &data(3),
            );
            let whole = read(&file.bytes);
            assert!(whole.error.is_none(), "{magic:x}: {:?}", whole.error);
            assert_eq!(whole.packets.len(), 2, "{magic:x}");
            let first = &whole.packets[0];
            assert_eq!((&first.data, first.meta.wire_len), (&data(61), 1500));
            assert_eq!(first.meta.timestamp, Timestamp::from_parts(SECOND.into(), fraction_ns));
            let interface = &whole.interfaces[0];
            assert_eq!((interface.link_type, interface.snap_len), (LinkType::ETHERNET, 100));
            assert_eq!(interface.resolution, resolution);
        }
    }
}

/// Record headers that are longer than the standard one, with packets that make sense in that layout only.
#[test]
fn pcap_with_longer_record_headers() {
    let variants = [(0xa1b2_cd34, 8), (0xa1b2_cd34, 12), (0xa1b2_c3d4, 8), (0xa1b2_c3d4, 4)];
    for order in ORDERS {
        for (magic, extra_len) in variants {
            let mut file = Bytes::new(order);
            file.pcap_header(magic, (2, 4), 2000, 1);
            let mut extra = file.body(|b| {
                b.u32(3).u16(0x0800).raw(&[4, 0, 1, 1, 0, 0]);
            });
            extra.truncate(extra_len);
            for len in [60, 70, 80] {
                file.pcap_record((SECOND, 10), 1000, &extra, &vec![0xee; len]);
            }
            let path = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(path.path(), &file.bytes).unwrap();
            let mut source = FileSource::open(path.path()).unwrap();
            let whole = samples::read_source(&mut source);
            assert!(whole.error.is_none(), "{magic:x}+{extra_len}: {:?}", whole.error);
            let lengths: Vec<_> = whole.packets.iter().map(|packet| packet.data.len()).collect();
            assert_eq!(lengths, [60, 70, 80], "{magic:x}+{extra_len}");
            assert!(whole.packets.iter().all(|packet| packet.data.iter().all(|&b| b == 0xee)));
            if extra_len >= 8 {
                let meta = whole.packets[0].meta;
                assert_eq!((meta.if_index, meta.packet_type), (3, PacketType::Outgoing));
                assert_eq!(meta.direction, Direction::Out);
            }
        }
    }
}

/// Odd records of the standard layout do not make it another one, though their bytes may look like its header.
#[test]
fn odd_records_are_of_the_standard_layout() {
    for order in ORDERS {
        for (fraction, cap_len, wire_len) in [(10, 40, 8), (2_000_000, 0, 0), (10, 0, 200 << 20)] {
            let mut file = Bytes::new(order);
            file.pcap_header(0xa1b2_c3d4, (2, 4), 2000, 1);
            for _ in 0..200 {
                file.pcap_record((SECOND, fraction), wire_len, &[], &vec![0; cap_len]);
            }
            let whole = read(&file.bytes);
            assert!(whole.error.is_none(), "{:?}", whole.error);
            assert_eq!(whole.packets.len(), 200, "{fraction} {cap_len} {wire_len}");
            assert!(whole.packets.iter().all(|packet| packet.data.len() == cap_len));
        }
    }
}

#[test]
fn pcap_versions_with_lengths_the_other_way_round() {
    for order in ORDERS {
        for version in [(2, 0), (2, 2), (2, 3), (543, 0)] {
            let mut file = Bytes::new(order);
            file.pcap_header(0xa1b2_c3d4, version, 100, 1);
            file.u32(SECOND).u32(0).u32(900).u32(5).raw(&data(5));
            // In 2.3 the greater one is the wire length, whichever comes first.
            if version == (2, 3) {
                file.u32(SECOND).u32(0).u32(5).u32(900).raw(&data(5));
            }
            let whole = read(&file.bytes);
            assert!(whole.error.is_none(), "{version:?}: {:?}", whole.error);
            assert!(whole.packets.iter().all(|p| p.data == data(5) && p.meta.wire_len == 900), "{version:?}");
        }
    }
}

/// A version that is not supported is not damage: plain, packed, and in the words of libpcap.
#[test]
fn unknown_versions_are_told_as_versions() {
    for (version, words) in [
        ((1, 0), "archaic pcap savefile format"),
        ((2, 5), "unsupported pcap savefile version 2.5"),
        ((3, 0), "unsupported pcap savefile version 3.0"),
        ((543, 1), "unsupported pcap savefile version 543.1"),
    ] {
        let mut file = Bytes::new(ByteOrder::Big);
        file.pcap_header(0xa1b2_c3d4, version, 100, 1);
        check_version(&file.bytes, version, "the pcap format; 2.0 to 2.4", words);
    }
    for version in [(0, 1), (1, 1), (2, 0)] {
        for order in ORDERS {
            let mut file = Bytes::new(order);
            file.section(&[]).interface(1, 0, &[]);
            let numbers = file.body(|body| {
                body.u16(version.0).u16(version.1);
            });
            file.bytes[12..16].copy_from_slice(&numbers);
            let words = format!("unsupported pcapng savefile version {}.{}", version.0, version.1);
            check_version(&file.bytes, version, "pcapng; 1.0", &words);
        }
    }
}

fn check_version(bytes: &[u8], (major, minor): (u16, u16), format: &str, words: &str) {
    let packed = packed(bytes).into_iter().map(|(_, bytes)| bytes);
    for bytes in packed.chain([bytes.to_vec()]) {
        let error = read(&bytes).error.expect("refused");
        let text = format!("sample cannot be read: this is version {major}.{minor} of {format} can be read");
        assert_eq!(error.to_string(), text);
        assert!(matches!(error, Error::Unsupported { libpcap, .. } if libpcap == words));
    }
}

/// A later section of another version ends the file where it begins.
#[test]
fn a_section_of_an_unknown_version_ends_the_file() {
    let mut file = Bytes::new(ByteOrder::Little);
    file.section(&[]).interface(1, 0, &[]).enhanced(0, 1, &data(4), 4, &[]);
    let end = file.bytes.len();
    file.section(&[]);
    file.bytes[end + 12] = 3;
    let whole = read(&file.bytes);
    assert_eq!(whole.packets.len(), 1);
    let expected = format!("sample cannot be read beyond byte {end}: this is version 3.0 of pcapng");
    assert!(whole.error.expect("refused").to_string().starts_with(&expected));
}

/// Bits 16 to 25 of the link type are reserved (draft-ietf-opsawg-pcap); bit 27 is ignored, as libpcap does.
#[test]
fn reserved_bits_of_the_link_type_are_refused() {
    for bit in 16..32 {
        for order in ORDERS {
            let mut file = Bytes::new(order);
            file.pcap_header(0xa1b2_c3d4, (2, 4), 100, 1 | 1 << bit);
            let whole = read(&file.bytes);
            if bit > 25 {
                assert_eq!(whole.interfaces[0].link_type, LinkType::ETHERNET, "bit {bit}");
                continue;
            }
            let text =
                format!("sample cannot be read: savefile linktype reserved bits set (0x{:08x})", 1u32 << bit);
            assert_eq!(whole.error.expect("refused").to_string(), text);
        }
    }
}

#[test]
fn pcap_link_type_field() {
    let cases = [
        (0x2400_0001, LinkType::ETHERNET, Some(4)),
        (0x0400_0001, LinkType::ETHERNET, Some(0)),
        // Without the bit that says so, the length is none.
        (0x2000_0001, LinkType::ETHERNET, None),
        (12, LinkType::RAW, None),
        (101, LinkType::RAW, None),
        (40_000, LinkType(40_000), None),
    ];
    for (field, link_type, fcs_len) in cases {
        let mut file = Bytes::new(ByteOrder::Big);
        file.pcap_header(0xa1b2_c3d4, (2, 4), 100, field).pcap_record((1, 1), 1, &[], &[1]);
        let whole = read(&file.bytes);
        assert_eq!((whole.interfaces[0].link_type, whole.interfaces[0].fcs_len), (link_type, fcs_len));
        assert_eq!(whole.packets.len(), 1);
    }
}

/// libpcap accepts captured lengths up to 262,144 whatever the snap length says, and more for a few link types.
#[test]
fn pcap_length_limits() {
    for (link_type, max) in [(1, 262_144), (231, 128 << 20), (279, 8 << 20)] {
        let mut file = Bytes::new(ByteOrder::Little);
        file.pcap_header(0xa1b2_c3d4, (2, 4), 10, link_type);
        file.u32(1).u32(1).u32(max + 1).u32(max + 1);
        let error = read(&file.bytes).error.expect("refused");
        assert!(matches!(&error, Error::Corrupt { place, .. } if place.offset == 24), "{error}");
        assert!(error.to_string().contains(&max.to_string()), "{error}");
    }
    let mut file = Bytes::new(ByteOrder::Little);
    file.pcap_header(0xa1b2_c3d4, (2, 4), 10, 1).pcap_record((1, 1), 300_000, &[], &data(262_144));
    let whole = read(&file.bytes);
    assert_eq!((whole.packets[0].data.len(), whole.error.is_none()), (262_144, true));
}

#[test]
fn a_long_packet_comes_whole_through_the_buffer() {
    let mut file = Bytes::new(ByteOrder::Little);
    file.pcap_header(0xa1b2_c3d4, (2, 4), 0, 231);
    let long = data(5 << 20);
    file.pcap_record((1, 1), 5 << 20, &[], &long).pcap_record((2, 2), 4, &[], &[1, 2, 3, 4]);
    let whole = read(&file.bytes);
    assert!(whole.packets[0].data == long);
    assert_eq!(whole.packets[1].data, [1, 2, 3, 4]);
}

/// Pseudo-headers that the capturing machine wrote in its own order come in ours.
#[test]
fn foreign_pseudo_headers_are_turned_around() {
    let write = |order: ByteOrder| {
        let mut file = Bytes::new(order);
        file.pcap_header(0xa1b2_c3d4, (2, 4), 1000, 189);
        let packet = file.body(|b| {
            b.u64(0x0102_0304_0506_0708).raw(&[b'S', 3, 1, 2]).u16(7).raw(&[0, 0]);
            b.u64(9).u32(10).u32(11).u32(12).u32(13).raw(&[1, 2, 3, 4, 5, 6, 7, 8]).raw(b"payload");
        });
        file.pcap_record((1, 1), packet.len() as u32, &[], &packet);
        file.bytes
    };
    let little = read(&write(ByteOrder::Little));
    let big = read(&write(ByteOrder::Big));
    assert_eq!(little.packets, big.packets);
}

#[test]
fn pcapng_sections_have_either_byte_order() {
    let mut file = Bytes::new(ByteOrder::Little);
    file.section(&[(1, b"first"), (2, b"hw"), (3, b"os"), (4, b"app")]);
    file.interface(1, 96, &[(2, b"eth0"), (3, b"uplink"), (8, &10_000_000_000u64.to_le_bytes()), (9, &[9])]);
    file.interface(101, 0, &[(9, &[0x80 | 10]), (14, &5i64.to_le_bytes())]);
    file.enhanced(0, 77, &data(5), 50, &[]).enhanced(1, 1024 + 512, &data(6), 6, &[]);
    file.order = ByteOrder::Big;
    file.section(&[(1, b"second")]).interface(228, 0, &[(11, b"\0tcp port 80"), (13, &[4])]);
    file.enhanced(0, 3, &data(7), 7, &[]);
    let mut source =
        FileSource::from_reader(Box::new(std::io::Cursor::new(file.bytes.clone())), "x").unwrap();
    let whole = samples::read_source(&mut source);
    assert!(whole.error.is_none(), "{:?}", whole.error);
    assert_eq!(nanos(&whole), [77, 6_500_000_000, 3_000]);
    let ids: Vec<_> = whole.packets.iter().map(|packet| packet.meta.interface).collect();
    assert_eq!(ids, [InterfaceId(0), InterfaceId(1), InterfaceId(2)]);
    let [eth, raw, ip] = &whole.interfaces[..] else { panic!("three interfaces") };
    assert_eq!((&*eth.name, &*eth.description, eth.speed), ("eth0", "uplink", Some(10_000_000_000)));
    assert_eq!((eth.snap_len, eth.resolution), (96, Resolution::NANO));
    assert_eq!((raw.link_type, raw.resolution), (LinkType::RAW, Resolution::Binary(10)));
    assert_eq!((ip.link_type, &*ip.filter, ip.fcs_len), (LinkType::IPV4, "tcp port 80", Some(4)));
    assert_eq!(source.sections().len(), 2);
    assert_eq!((&*source.sections()[0].hardware, &*source.sections()[0].application), ("hw", "app"));
    assert_eq!(source.sections()[1].comments, ["second"]);
    assert_eq!(source.counters()[1].packets, 1);
}

/// Two files put together: what is described in the same words in the same place is the same interface.
#[test]
fn pcapng_sections_share_repeated_interfaces() {
    let mut file = Bytes::new(ByteOrder::Little);
    for name in [&b"eth0"[..], b"eth0", b"eth1"] {
        file.section(&[]).interface(1, 96, &[(2, name)]).enhanced(0, 77, &data(5), 50, &[]);
    }
    let whole = read(&file.bytes);
    let ids: Vec<_> = whole.packets.iter().map(|packet| packet.meta.interface.0).collect();
    assert_eq!((ids, whole.interfaces.len()), (vec![0, 0, 1], 2));
}

#[test]
fn pcapng_simple_and_obsolete_packets() {
    for order in ORDERS {
        let mut file = Bytes::new(order);
        file.section(&[]).interface(1, 6, &[]).interface(101, 0, &[]);
        // A simple packet of 9 bytes on the wire, of which the snap length leaves 6.
        let simple = file.body(|b| {
            b.u32(9).padded(&data(6));
        });
        file.block(3, &simple);
        let obsolete = file.body(|b| {
            b.u16(1).u16(12).u32(0).u32(1_000_000).u32(5).u32(70).padded(&data(5));
        });
        file.block(2, &obsolete);
        let unknown = file.body(|b| {
            b.u16(1).u16(0xffff).u32(0).u32(0).u32(5).u32(70).padded(&data(5));
        });
        file.block(2, &unknown);
        let whole = read(&file.bytes);
        assert!(whole.error.is_none(), "{:?}", whole.error);
        let [simple, obsolete, unknown] = &whole.packets[..] else { panic!("three packets") };
        assert_eq!((&simple.data, simple.meta.wire_len), (&data(6), 9));
        assert_eq!(simple.meta.timestamp, Timestamp::EPOCH);
        assert_eq!((&obsolete.data, obsolete.meta.interface), (&data(5), InterfaceId(1)));
        assert_eq!((obsolete.meta.drops_before, obsolete.meta.timestamp.seconds()), (12, 1));
        assert_eq!(unknown.meta.drops_before, 0);
    }
}

#[test]
fn pcapng_packet_options_come_in_native_order() {
    let mut seen = Vec::new();
    for order in ORDERS {
        let mut file = Bytes::new(order);
        let number = |n: u32| if order == ByteOrder::Little { n.to_le_bytes() } else { n.to_be_bytes() };
        let long = |n: u64| if order == ByteOrder::Little { n.to_le_bytes() } else { n.to_be_bytes() };
        file.section(&[]).interface(1, 0, &[]);
        let (out, dropped) = (number(2 | 3 << 2), long(1 << 40));
        file.enhanced(0, 1, &data(3), 3, &[(1, b"hello"), (2, &out), (4, &dropped), (0x0bad, b"x")]);
        let whole = read(&file.bytes);
        let packet = &whole.packets[0];
        assert_eq!((packet.meta.direction, packet.meta.packet_type), (Direction::Out, PacketType::Broadcast));
        assert_eq!(packet.meta.drops_before, 1 << 40);
        seen.push(packet.options.clone());
    }
    assert_eq!(seen[0], seen[1]);
    assert!(!seen[0].is_empty());
}

#[test]
fn pcapng_statistics() {
    let mut file = Bytes::new(ByteOrder::Big);
    file.section(&[]).interface(1, 0, &[]);
    let body = file.body(|b| {
        let counts = [(2, 5u64), (3, 6), (4, 100), (5, 1), (6, 90), (7, 9), (8, 80)];
        b.u32(0).u32(0).u32(7);
        for (code, count) in counts {
            b.u16(code).u16(8).u64(count);
        }
        b.u32(0);
    });
    file.block(5, &body);
    let mut source = FileSource::from_reader(Box::new(std::io::Cursor::new(file.bytes)), "x").unwrap();
    assert!(samples::read_source(&mut source).packets.is_empty());
    let statistics = source.statistics()[0];
    assert_eq!(statistics.taken.as_nanos(), 7_000);
    assert_eq!(
        (statistics.received, statistics.dropped, statistics.filter_accepted),
        (Some(100), Some(1), Some(90))
    );
    assert_eq!((statistics.os_dropped, statistics.delivered), (Some(9), Some(80)));
    assert_eq!(statistics.start.map(Timestamp::as_nanos), Some(5_000));
}

#[test]
fn unknown_pcapng_blocks_are_skipped() {
    let mut file = Bytes::new(ByteOrder::Little);
    file.section(&[]).interface(1, 0, &[]);
    // Name resolution, systemd journal, secrets, custom, and one far longer than the buffer.
    for (kind, len) in [(4, 10), (9, 0), (10, 100), (0x0bad, 7), (0x8000_0001, 20 << 20)] {
        file.block(kind, &vec![0x55; len]).enhanced(0, 1, &data(9), 9, &[]);
    }
    let whole = read(&file.bytes);
    assert!(whole.error.is_none(), "{:?}", whole.error);
    assert_eq!(whole.packets.len(), 5);
}

#[test]
fn pcapng_contradictions_are_told_with_their_place() {
    let start = |order| {
        let mut file = Bytes::new(order);
        file.section(&[]).interface(1, 0, &[]).enhanced(0, 1, &data(4), 4, &[]);
        file
    };
    type Break = fn(&mut Bytes);
    let breaks: [(&str, Break); 9] = [
        ("length 0", |b| {
            b.u32(6).u32(0).u32(0);
        }),
        ("length 8", |b| {
            b.u32(6).u32(8).u32(8);
        }),
        ("at its end", |b| {
            b.u32(6).u32(32).raw(&[0; 20]).u32(36);
        }),
        ("interface 7", |b| {
            b.enhanced(7, 1, &[], 0, &[]);
        }),
        ("too short", |b| {
            b.block(6, &[0; 8]);
        }),
        ("too short", |b| {
            b.block(1, &[]);
        }),
        ("does not fit", |b| {
            b.u32(6).u32(32).raw(&[0; 12]).u32(100).u32(100).u32(32);
        }),
        ("make sense", |b| {
            b.u32(6).u32(0x7fff_fff0);
        }),
        ("byte-order magic", |b| {
            b.u32(0x0a0d_0d0a).u32(28).raw(&[1; 20]);
        }),
    ];
    for order in ORDERS {
        for (text, damage) in breaks {
            let mut file = start(order);
            let at = file.bytes.len() as u64;
            damage(&mut file);
            file.raw(&[0; 64]);
            let whole = read(&file.bytes);
            assert_eq!(whole.packets.len(), 1, "{text}");
            let error = whole.error.expect("an error");
            assert!(matches!(&error, Error::Corrupt { place, .. } if place.offset == at), "{text}: {error}");
            assert!(error.to_string().contains(text), "{text}: {error}");
        }
    }
}

#[test]
fn erf_records() {
    let mut file = Bytes::new(ByteOrder::Little);
    let time = (u64::from(SECOND) << 32) | 0x8000_0000;
    let extension = |more: u8| [more, 1, 2, 3, 4, 5, 6, 7];
    file.erf(time, 2, 1, 0, 60, &[&[0, 0], &data(60)[..], &[0; 2]].concat());
    file.erf(time, 2 | 0x80, 1, 3, 60, &[&extension(0x80)[..], &extension(0), &[0, 0], &data(60)].concat());
    file.erf(time, 16, 2, 999, 1000, &[&[0, 0], &data(46)[..]].concat());
    file.erf(time, 48, 0, 0, 0, &[0; 16]);
    file.erf(time, 22, 0, 0, 40, &data(40)).erf(time, 23, 0, 0, 48, &data(48));
    file.erf(time, 1, 0, 0, 8, &[0xff, 3, 0, 33, 1, 2, 3, 4]).erf(
        time,
        1,
        0,
        0,
        8,
        &[0x0f, 0, 8, 0, 1, 2, 3, 4],
    );
    file.erf(time, 24, 0, 0, 20, &data(24));
    let whole = read(&file.bytes);
    assert!(whole.error.is_none(), "{:?}", whole.error);
    let link_types: Vec<_> =
        whole.packets.iter().map(|p| whole.interfaces[p.meta.interface.0 as usize].link_type).collect();
    use LinkType as L;
    let expected = [L::ETHERNET, L::ETHERNET, L::ETHERNET, L::IPV4, L::IPV6, L::PPP_HDLC, L::C_HDLC, L::ERF];
    assert_eq!(link_types, expected);
    assert_eq!((&whole.packets[0].data, &whole.packets[1].data), (&data(60), &data(60)));
    assert_eq!((whole.packets[1].meta.drops_before, whole.packets[2].meta.drops_before), (3, 0));
    assert_eq!((whole.packets[2].data.len(), whole.packets[2].meta.wire_len), (46, 1000));
    assert_eq!(whole.packets[0].meta.timestamp, Timestamp::from_parts(SECOND.into(), 500_000_000));
    assert_eq!(whole.packets[7].data.len(), 40, "a record that is not looked into comes with its header");
    assert_eq!(whole.interfaces[0].name, "port1");
}

#[test]
fn erf_contradictions() {
    let mut file = Bytes::new(ByteOrder::Little);
    file.erf(1 << 32, 2, 0, 0, 60, &[&[0, 0], &data(62)[..]].concat());
    for damage in [&[0; 16][..], &[1, 0, 0, 0, 1, 0, 0, 0, 0x82, 0, 0, 17, 0, 0, 0, 1, 0x80]] {
        let mut broken = vec![0; 0];
        // Enough good records that the file is known.
        for _ in 0..30 {
            broken.extend_from_slice(&file.bytes);
        }
        broken.extend_from_slice(damage);
        let whole = read(&broken);
        assert_eq!(whole.packets.len(), 30);
        let at = 30 * file.bytes.len() as u64;
        let error = whole.error.expect("an error");
        assert!(matches!(&error, Error::Corrupt { place, .. } if place.offset == at), "{error}");
    }
}

#[test]
fn packed_files_are_read_as_their_contents() {
    let (_, file) = &samples::small_files()[0];
    let plain = read(&file.bytes).packets;
    for (name, packed) in packed(&file.bytes) {
        let whole = read(&packed);
        assert!(whole.error.is_none(), "{name}: {:?}", whole.error);
        assert_eq!(whole.packets, plain, "{name}");
    }
}

/// The bytes packed in each way, in one piece and in two that follow each other.
fn packed(bytes: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    use std::io::Write;
    let gzip = |bytes: &[u8]| {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    };
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
    let lz4 = |bytes: &[u8]| {
        let info = lz4_flex::frame::FrameInfo::new().block_size(lz4_flex::frame::BlockSize::Max64KB);
        let mut packer = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    };
    let (a, b) = bytes.split_at(bytes.len() / 2);
    vec![
        ("gzip", gzip(bytes)),
        ("gzip twice", [gzip(a), gzip(b)].concat()),
        ("zstd", zstd(bytes)),
        ("zstd twice", [zstd(a), zstd(b)].concat()),
        ("lz4", lz4(bytes)),
        ("lz4 twice", [lz4(a), lz4(b)].concat()),
    ]
}

#[test]
fn packed_files_that_end_early_report_the_cut() {
    let mut file = Bytes::new(ByteOrder::Little);
    file.pcap_header(0xa1b2_c3d4, (2, 4), 2000, 1);
    let mut noise = 1u32;
    for i in 0..3000 {
        let body: Vec<u8> = (0..200)
            .map(|_| {
                noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (noise >> 24) as u8
            })
            .collect();
        file.pcap_record((i, 0), 200, &[], &body);
    }
    let plain = read(&file.bytes).packets;
    for (name, packed) in packed(&file.bytes) {
        let whole = read(&packed[..packed.len() * 2 / 3]);
        let error = whole.error.unwrap_or_else(|| panic!("{name}: cut data are an error"));
        assert!(error.to_string().contains("unpacked data"), "{name}: {error}");
        assert!(whole.packets.len() > 1000 && plain.starts_with(&whole.packets), "{name}");
    }
}

#[test]
fn files_of_other_formats_are_named() {
    let cases: [(&[u8], &str); 7] = [
        (b"", "empty"),
        (b"PK\x03\x04 and so on", "zip"),
        (b"snoop\0\0\0\0\0\0\x02\0\0\0\x04", "snoop"),
        (b"12:00:00.000000 IP 10.0.0.1 > 10.0.0.2: ICMP echo request\n", "text"),
        (b"BZh91AY&SY", "bzip2"),
        (&[0; 100], "zeros"),
        (b"\xde\xad\xbe\xef\x01\x02\x03", "deadbeef"),
    ];
    for (bytes, text) in cases {
        let error = read(bytes).error.expect("refused").to_string();
        assert!(error.contains(text), "{error}");
        let packed = zstd::encode_all(bytes, 1).unwrap();
        assert!(read(&packed).error.expect("refused").to_string().contains(text));
    }
    let twice = zstd::encode_all(&zstd::encode_all(&b"x"[..], 1).unwrap()[..], 1).unwrap();
    assert!(read(&twice).error.unwrap().to_string().contains("inside of compressed data"));
    let missing = FileSource::open("/nonexistent/file.pcap".as_ref()).err().unwrap();
    assert!(missing.to_string().contains("/nonexistent/file.pcap"));
    assert!(FileSource::open("/tmp".as_ref()).is_err());
}
