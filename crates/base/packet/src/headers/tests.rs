//! Single packets, byte by byte. Any bytes, filters and tshark judge in `testkit/tests/it/headers.rs` and
//! `filter/tests/it/headers.rs`.

use super::*;
use crate::Meta;

/// TCP from port 1024 to 80 between 192.0.2.1 and 192.0.2.2, with two bytes of payload.
fn tcp() -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 42, 0, 9, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
    packet.extend([4, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0, 7, 7]);
    packet
}

fn frame(types: &[u8], packet: &[u8]) -> Vec<u8> {
    [&[2; 12], types, packet].concat()
}

fn parse(data: &[u8]) -> Headers {
    Headers::parse_data(LinkType::ETHERNET, data)
}

#[test]
fn a_padded_frame() {
    let data = [frame(&[8, 0], &tcp()), vec![0; 4]].concat();
    let headers = parse(&data);
    assert_eq!((headers.l3(), headers.l4(), headers.payload()), (Some(14), Some(34), Some(54)));
    assert_eq!((headers.ip_end(), data.len()), (56, 60));
    assert_eq!(headers.ports(&data), Some((1024, 80)));
    let flow = headers.five_tuple(&data).unwrap();
    assert_eq!(
        flow.to_string(),
        "ip src host 192.0.2.1 and ip dst host 192.0.2.2 and tcp src port 1024 and tcp dst port 80"
    );
    assert_eq!(flow.canonical(), flow);
    assert_eq!(flow.reversed().canonical(), flow);
    assert!(size_of::<Headers>() <= 64, "one cache line");
}

#[test]
fn tags_of_bytes_and_metadata() {
    let outer = VlanTag { tpid: 0x88a8, tci: 3 };
    let meta = Meta { vlan: Some(outer), ..Meta::default() };
    for (types, inner) in
        [(vec![8, 0], 0), (vec![0x81, 0, 0, 5, 8, 0], 1), (vec![0x91, 0, 0, 5, 0x81, 0, 0, 6, 8, 0], 2)]
    {
        let data = frame(&types, &tcp());
        let headers = Headers::parse(LinkType::ETHERNET, Packet { data: &data, meta: &meta });
        assert_eq!(headers.vlans()[0], outer);
        assert_eq!((headers.vlans().len(), headers.l3()), (1 + inner, Some(12 + types.len())));
        assert_eq!(headers.ports(&data), Some((1024, 80)));
        assert_eq!(headers.vlans().last().unwrap().id(), [3, 5, 6][inner]);
    }
}

#[test]
fn snap_and_length() {
    let snap = frame(&[0, 50, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &tcp());
    assert_eq!((parse(&snap).ether_type(), parse(&snap).l3()), (Some(0x0800), Some(22)));
    let spanning_tree = parse(&frame(&[0, 38, 0x42, 0x42, 3], &[0; 35]));
    assert_eq!((spanning_tree.ether_type(), spanning_tree.l3()), (None, None));
}

#[test]
fn serial_lines_rings_and_switch_tags() {
    let snap: &[u8] = &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
    let addresses: &[u8] = &[2; 12];
    for (link_type, header) in [
        (LinkType::HDLC, vec![0x0f, 0, 8, 0]),
        (LinkType::DSA_TAG_DSA, [addresses, &[1, 32, 32, 5, 8, 0]].concat()),
        (LinkType::DSA_TAG_EDSA, [addresses, &[0xda, 0xda, 0, 0, 1, 32, 32, 5, 8, 0]].concat()),
        (LinkType::DSA_TAG_BRCM, [addresses, &[0x20, 0, 0, 3, 8, 0]].concat()),
        (LinkType::DSA_TAG_BRCM_PREPEND, [&[0x20, 0, 0, 3], addresses, &[8, 0]].concat()),
        (LinkType::FRELAY, vec![0x18, 0x41, 3, 0xcc]),
        (LinkType::FRELAY, vec![0x18, 0x41, 8, 0]),
        (LinkType::IPOIB, [&[0; 40][..], &[8, 0, 0, 0]].concat()),
        (LinkType::IPNET, vec![1; 24]),
        (LinkType::SLIP, vec![0; 16]),
        (LinkType::FDDI, [&[0x50], addresses, snap].concat()),
        (LinkType::ATM_RFC1483, snap.to_vec()),
        (LinkType::SUNATM, [&[2, 0, 0, 64], snap].concat()),
    ] {
        let data = [header.clone(), tcp()].concat();
        let headers = Headers::parse_data(link_type, &data);
        assert_eq!((headers.ether_type(), headers.l3()), (Some(0x0800), Some(header.len())), "{link_type}");
        assert_eq!(headers.ports(&data), Some((1024, 80)), "{link_type}");
        for end in 0..data.len() {
            Headers::parse_data(link_type, &data[..end]);
        }
    }
    let management = Headers::parse_data(LinkType::FDDI, &[&[0x41], addresses, snap, &tcp()].concat());
    assert_eq!(management.l3(), None);
}

#[test]
fn malformed_ip_is_none() {
    for (at, value) in [(0, 0x55), (0, 0x44), (0, 0x65)] {
        let mut packet = tcp();
        packet[at] = value;
        let data = frame(&[8, 0], &packet);
        let headers = parse(&data);
        assert_eq!((headers.ip(), headers.l3(), headers.ether_type()), (None, Some(14), Some(0x0800)));
        assert_eq!(headers.five_tuple(&data), None);
    }
    // The total length ends within the header, or within the ports.
    for total_len in [19, 23] {
        let mut packet = tcp();
        packet[3] = total_len;
        let data = frame(&[8, 0], &packet);
        assert_eq!((parse(&data).ports(&data), parse(&data).payload()), (None, None));
    }
    // None at all: segmentation is left to the NIC.
    let mut packet = tcp();
    packet[3] = 0;
    let data = frame(&[8, 0], &packet);
    assert_eq!((parse(&data).ip_end(), parse(&data).payload()), (data.len(), Some(54)));
}

#[test]
fn fragments_meet() {
    let part = |offset: u8, more: bool, id: u8| {
        let mut packet = tcp();
        packet[5..8].copy_from_slice(&[id, if more { 0x20 } else { 0 }, offset]);
        frame(&[8, 0], &packet)
    };
    let (first, later, whole) = (part(0, true, 9), part(3, false, 9), part(0, false, 9));
    let hash = |data: &[u8]| parse(data).flow_hash(data, 1);
    assert_eq!(hash(&first), hash(&later));
    assert_ne!(hash(&first), hash(&whole));
    let headers = parse(&later);
    let fragment = headers.fragment().unwrap();
    assert_eq!((fragment.id, fragment.offset, fragment.more, fragment.is_later()), (9, 24, false, true));
    assert_eq!((headers.l4(), headers.payload(), headers.ports(&later)), (None, Some(34), None));
    assert_eq!(headers.five_tuple(&later).unwrap().src_port, 0);
    assert_eq!(parse(&first).ports(&first), Some((1024, 80)));
    assert_eq!(parse(&whole).fragment(), None);
}

/// The later fragment's header says destination options, behind which only the first fragment shows TCP.
#[test]
fn fragments_of_ipv6_meet() {
    let packet = |place: [u8; 2], rest: &[u8]| {
        let len = (8 + rest.len()) as u8;
        let head =
            [&[0x60, 0, 0, 0, 0, len, 44, 64][..], &[1; 16], &[2; 16], &[60, 0], &place, &[0, 0, 0, 7]];
        frame(&[0x86, 0xdd], &[&head.concat(), rest].concat())
    };
    let first = packet([0, 1], &[&[6, 0, 1, 4, 0, 0, 0, 0], &tcp()[20..]].concat());
    let later = packet([0, 8], &[9; 16]);
    assert_eq!(parse(&first).protocol(), Some(6));
    assert_eq!(parse(&later).protocol(), Some(60));
    assert_eq!(parse(&first).ports(&first), Some((1024, 80)));
    assert_eq!(parse(&first).flow_hash(&first, 3), parse(&later).flow_hash(&later, 3));
    let atomic = packet([0, 0], &[6, 0, 1, 4, 0, 0, 0, 0]);
    assert_eq!((parse(&atomic).fragment(), parse(&atomic).protocol()), (None, Some(6)));
}

#[test]
fn labels_and_pseudo_wires() {
    let labels = [0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64];
    let data = frame(&labels, &tcp());
    let headers = parse(&data);
    assert_eq!(headers.mpls(), Some(Mpls { label: 16, count: 2 }));
    assert_eq!((headers.ether_type(), headers.l3()), (Some(0x0800), Some(22)));
    let inner = headers.inner(&data).unwrap();
    assert_eq!((inner.tunnel, inner.link_type, inner.offset), (Tunnel::Mpls, LinkType::RAW, 22));
    assert_eq!(inner.headers(&data).ports(inner.data(&data)), Some((1024, 80)));

    let wire = |word: &[u8], first: u8| {
        let mut carried = frame(&[8, 0], &tcp());
        carried[0] = first;
        frame(&labels, &[word, &carried].concat())
    };
    // A control word; an address that is none; an address that could be one.
    for (data, offset) in [(wire(&[0; 4], 2), 26), (wire(&[], 0xa2), 22), (wire(&[], 0), 22)] {
        let headers = parse(&data);
        assert_eq!((headers.ether_type(), headers.l3(), headers.ip()), (Some(0x8847), Some(22), None));
        let inner = headers.inner(&data).unwrap();
        assert_eq!((inner.link_type, inner.offset), (LinkType::ETHERNET, offset));
        assert_eq!(inner.headers(&data).ports(inner.data(&data)), Some((1024, 80)));
    }
    let associated_channel = wire(&[0x10, 0, 0, 0], 2);
    assert_eq!(parse(&associated_channel).inner(&associated_channel), None);
}

#[test]
fn both_directions_hash_alike_and_others_do_not() {
    let flow = |src: u8, dst: u8, ports: [u8; 4], is_v6: bool| {
        let rest = &tcp()[24..];
        let ip = match is_v6 {
            false => [&tcp()[..12], &[192, 0, 2, src, 192, 0, 2, dst]].concat(),
            true => [&[0x60, 0, 0, 0, 0, 22, 6, 64], &[3; 15][..], &[src], &[3; 15], &[dst]].concat(),
        };
        frame(if is_v6 { &[0x86, 0xdd] } else { &[8, 0] }, &[&ip, &ports[..], rest].concat())
    };
    let hash = |data: &[u8], seed| parse(data).flow_hash(data, seed);
    for is_v6 in [false, true] {
        let there = flow(1, 2, [4, 0, 0, 80], is_v6);
        let back = flow(2, 1, [0, 80, 4, 0], is_v6);
        assert_eq!(hash(&there, 5), hash(&back, 5));
        assert_ne!(hash(&there, 5), hash(&there, 6));
        // The same addresses and ports, but not the same pairs of them.
        assert_ne!(hash(&there, 5), hash(&flow(1, 2, [0, 80, 4, 0], is_v6), 5));
    }
}

/// Flows that count up spread over low and over high bits as chance would.
#[test]
fn hashes_spread() {
    const PLACES: usize = 256;
    const FLOWS: u32 = 64 * PLACES as u32;
    for which in 0..3 {
        let (mut low, mut high) = ([0_u32; PLACES], [0_u32; PLACES]);
        for number in 0..FLOWS {
            let mut packet = tcp();
            match which {
                0 => packet[12..16].copy_from_slice(&(0x0a00_0000 + number).to_be_bytes()),
                1 => packet[20..22].copy_from_slice(&(number as u16).to_be_bytes()),
                _ => packet[16..20].copy_from_slice(&(number << 8).to_be_bytes()),
            }
            let data = frame(&[8, 0], &packet);
            let hash = parse(&data).flow_hash(&data, 0);
            low[hash as usize % PLACES] += 1;
            high[(hash >> 56) as usize] += 1;
        }
        for places in [low, high] {
            // The sum of squares over the mean has the mean 255 and the deviation 23: this is six deviations off.
            let chi: f64 = places.iter().map(|count| (f64::from(*count) - 64.0).powi(2) / 64.0).sum();
            assert!(chi < 400.0, "case {which}: {chi}");
        }
    }
}

#[test]
fn each_bit_turns_half_of_the_hash() {
    let hash = |packet: &[u8]| {
        let data = frame(&[8, 0], packet);
        parse(&data).flow_hash(&data, 99)
    };
    let mut turned = 0;
    let bits: Vec<usize> = (12 * 8..24 * 8).collect();
    for bit in &bits {
        let mut packet = tcp();
        packet[bit / 8] ^= 1 << (bit % 8);
        let count = (hash(&packet) ^ hash(&tcp())).count_ones();
        assert!((10..=54).contains(&count), "bit {bit} turns {count}");
        turned += count as usize;
    }
    let mean = turned as f64 / bits.len() as f64;
    assert!((29.0..35.0).contains(&mean), "{mean}");
}
