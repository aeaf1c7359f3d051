//! Tunnels of every kind, and packets made to confuse.

use tapline_packet::{Batch, Checksum, LinkType, Meta, Record, Timestamp, VlanTag};
use tapline_testkit::frames::*;
use tapline_testkit::layers;
use tapline_testkit::random::Random;
use tapline_testkit::volume::volume;

use crate::trial::{Trial, lent, whole};

fn pair() -> IpPair {
    IpPair::between(&Host::number(1), &Host::number(2), IpVersion::V4)
}

fn link() -> Ethernet {
    Ethernet::between(&Host::number(1), &Host::number(2))
}

fn inner_packet() -> Vec<u8> {
    let pair = IpPair::between(&Host::number(7), &Host::number(8), IpVersion::V4);
    Udp { src: 1000, dst: 53 }.packet(pair, b"what is inside")
}

fn inner_frame() -> Vec<u8> {
    Ethernet::between(&Host::number(7), &Host::number(8)).ip(&inner_packet())
}

fn in_gre(gre: Gre, payload: &[u8]) -> Vec<u8> {
    link().ip(&pair().packet(47, &gre.packet(payload)))
}

fn in_udp(dst: u16, payload: &[u8]) -> Vec<u8> {
    link().ip(&Udp { src: 40_000, dst }.packet(pair(), payload))
}

/// A frame for each kind, and its contents.
fn tunnels() -> Vec<(&'static str, Vec<u8>, Vec<u8>)> {
    let (packet, frame) = (inner_packet(), inner_frame());
    let gre = Gre { ethertype: 0x0800, key: Some(5), ..Gre::default() };
    let erspan = Gre { ethertype: ERSPAN_I_II, sequence: Some(1), ..Gre::default() };
    vec![
        ("gre", in_gre(gre, &packet), packet.clone()),
        ("erspan", in_gre(erspan, &erspan_ii(3, &frame)), frame.clone()),
        ("vxlan", in_udp(4789, &vxlan(5, &frame)), frame.clone()),
        ("geneve", in_udp(6081, &geneve(5, 0x6558, &[0; 8], &frame)), frame.clone()),
        ("gtp", in_udp(2152, &gtp_u(5, Some(1), &[], &packet)), packet.clone()),
        ("ipip", link().ip(&pair().packet(4, &packet)), packet.clone()),
        ("mpls", link().frame(0x8847, &mpls(&[16, 17], 64, &packet)), packet),
        ("vlan", vlan(&vlan(&frame, 0x8100, 5), 0x88a8, 6), frame),
    ]
}

#[test]
fn each_kind_is_taken_off_and_no_other() {
    for (kind, outer, inner) in tunnels() {
        for (what, _, _) in tunnels() {
            let mut trial = Trial::of(&format!("s :: decap({what})"));
            trial.push_frames(std::slice::from_ref(&outer));
            let arrived = trial.arrived();
            trial.assert_balanced();
            if what != kind {
                assert_eq!((arrived.len(), trial.refused_and_held("s")), (0, (1, 0)), "{what} of {kind}");
                continue;
            }
            let [packet] = arrived.as_slice() else { panic!("{kind}: {arrived:?}") };
            assert_eq!(packet.data, inner, "{kind}");
            assert_eq!(packet.meta.wire_len as usize, inner.len(), "{kind}");
            let expected = match (kind, inner == inner_frame()) {
                ("vlan", _) => ("eth0", LinkType::ETHERNET),
                (_, true) => ("eth0/ethernet", LinkType::ETHERNET),
                (_, false) => ("eth0/raw", LinkType::RAW),
            };
            assert_eq!((packet.interface.as_str(), packet.link_type), expected, "{kind}");
            assert_eq!(trial.numbers("s", Some(kind)), [1]);
        }
    }
}

#[test]
fn layers_come_off_in_turn() {
    let tagged = vlan(&inner_frame(), 0x8100, 9);
    let twice = in_udp(4789, &vxlan(5, &vlan(&in_udp(6081, &geneve(6, 0x6558, &[], &tagged)), 0x8100, 1)));
    let outer = vlan(&twice, 0x8100, 7);
    // vlan, vxlan, vlan, geneve, vlan
    let first = vlan(&in_udp(6081, &geneve(6, 0x6558, &[], &tagged)), 0x8100, 1);
    let expected = [
        twice.clone(),
        first.clone(),
        in_udp(6081, &geneve(6, 0x6558, &[], &tagged)),
        tagged.clone(),
        inner_frame(),
        inner_frame(),
    ];
    for (layers, expected) in (1..).zip(expected) {
        let mut trial = Trial::of(&format!("decap(layers={layers})"));
        trial.push_frames(std::slice::from_ref(&outer));
        assert_eq!(trial.data(), [expected], "{layers} layers");
    }
    let mut trial = Trial::of("decap(\"vxlan, geneve\")");
    trial.push_frames(&[outer]);
    assert_eq!(trial.data(), [tagged], "tags go with the frame that has them");
}

#[test]
fn packets_without_a_tunnel_stay_if_asked() {
    let plain = inner_frame();
    let frames = [plain.clone(), in_udp(4789, &vxlan(5, &plain)), plain.clone()];
    let mut trial = Trial::of("s :: decap");
    trial.push_frames(&frames);
    assert_eq!((trial.data().len(), trial.refused_and_held("s")), (1, (2, 0)));
    let mut trial = Trial::of("s :: decap(keep=yes)");
    trial.push_frames(&frames);
    let arrived = trial.arrived();
    let names: Vec<&str> = arrived.iter().map(|packet| packet.interface.as_str()).collect();
    assert_eq!(names, ["eth0", "eth0/ethernet", "eth0"]);
    assert!(arrived.iter().all(|packet| packet.data == plain));
    trial.assert_balanced();
}

#[test]
fn metadata_of_inner_packets_is_kept_or_reset() {
    let outer = in_udp(4789, &vxlan(5, &inner_frame()));
    let tag = VlanTag { tpid: 0x8100, tci: 5 };
    let meta = Meta {
        timestamp: Timestamp::from_nanos(99),
        vlan: Some(tag),
        checksum: Checksum::Valid,
        rx_hash: 3,
        if_index: 4,
        ..whole(&outer)
    };
    let arrived = |text: &str, frame: &[u8]| {
        let mut trial = Trial::of(text);
        trial.push_all(&[(frame.to_vec(), Meta { wire_len: frame.len() as u32, ..meta })], 1);
        trial.arrived().remove(0)
    };
    let inner = arrived("decap(vxlan)", &outer).meta;
    let facts = (inner.timestamp, inner.vlan, inner.checksum, inner.rx_hash, inner.if_index);
    assert_eq!(facts, (meta.timestamp, None, Checksum::Unknown, 0, 4));
    let untagged = arrived("decap(vlan)", &outer);
    assert_eq!((&untagged.data, untagged.meta), (&outer, Meta { vlan: None, ..meta }));
    let both = arrived("decap(vlan, layers=1)", &vlan(&outer, 0x8100, 8));
    assert_eq!((both.data, both.meta.vlan), (outer, None));
}

#[test]
fn wire_lengths_exclude_removed_layers() {
    let inner = inner_frame();
    let full = in_udp(4789, &vxlan(5, &inner));
    let lost = (full.len() - inner.len()) as u32;
    // Cut short when it was captured: the wire had more.
    let cut = (full[..full.len() - 20].to_vec(), whole(&full));
    // Padding behind the outer packet.
    let padded = [full.clone(), vec![0; 10]].concat();
    let padded_meta = whole(&padded);
    // A lie: shorter on the wire than captured.
    let lie = (full.clone(), Meta { wire_len: 3, ..Meta::default() });
    let mut trial = Trial::of("decap");
    trial.push_all(&[cut, (padded, padded_meta), lie], 3);
    let arrived = trial.arrived();
    let lengths: Vec<_> = arrived.iter().map(|packet| (packet.data.len(), packet.meta.wire_len)).collect();
    let whole_len = inner.len();
    let expected = [
        (whole_len - 20, full.len() as u32 - lost),
        (whole_len, whole_len as u32),
        (whole_len, whole_len as u32),
    ];
    assert_eq!(lengths, expected);
}

#[test]
fn options_of_packets_that_stay_are_kept() {
    let plain = inner_frame();
    let with_options = |data: &[u8]| {
        let mut base = data.to_vec();
        base.resize(data.len().next_multiple_of(4), 0);
        base.extend_from_slice(&[1, 0, 0, 0]);
        base
    };
    for (second, is_copied) in [(in_udp(4789, &vxlan(5, &plain)), false), (vlan(&plain, 0x8100, 1), true)] {
        let (one, other) = (with_options(&plain), with_options(&second));
        let record = |offset, data: &[u8]| Record {
            offset,
            cap_len: data.len() as u32,
            options_len: 4,
            meta: whole(data),
        };
        let records = [record(0, &plain), record(one.len(), &second)];
        let base = [one, other].concat();
        let mut trial = Trial::of("decap(keep=yes)");
        trial.push(Batch::new(&base, &records));
        let arrived = trial.arrived();
        let found: Vec<_> = arrived.iter().map(|packet| (&packet.data, packet.options.as_slice())).collect();
        assert_eq!(found, [(&plain, &[1, 0, 0, 0][..]), (&plain, &[])], "copied: {is_copied}");
    }
}

#[test]
fn a_word_that_is_no_layer_is_refused() {
    let why = Trial::graph("file(\"in\") -> decap(\"gre,ppp\") -> json").err().unwrap();
    assert!(why.contains("unknown layer `ppp`; expected one of gre, erspan"), "{why}");
}

/// With any bytes, the output is within the input, and interfaces stay few.
#[test]
fn random_layers_stay_within_captured_bytes() {
    let mut random = Random::new(12);
    for round in 0..volume("TAPLINE_DECAP_ROUNDS", 60) {
        let what = *random.pick(&["", "vlan", "gre,vlan", "vxlan,geneve,gtp", "mpls,ipip,erspan"]);
        let what = if what.is_empty() { String::new() } else { format!("\"{what}\", ") };
        let keep = *random.pick(&["no", "yes"]);
        let mut trial =
            Trial::of(&format!("s :: decap({what}layers={}, keep={keep})", random.between(1..=16)));
        let packets: Vec<(Vec<u8>, Meta)> = (0..200)
            .map(|_| {
                let mut data = layers::frame(&mut random);
                let meta = Meta { wire_len: data.len() as u32, ..Meta::default() };
                if random.one_of(1, 2) {
                    data.truncate(random.below(data.len() as u64 + 1) as usize);
                }
                (data, meta)
            })
            .collect();
        let (base, records) = lent(&packets);
        trial.push(Batch::new(&base, &records).cut(if random.one_of(1, 3) { 70 } else { u32::MAX }));
        trial.assert_balanced();
        let arrived = trial.arrived();
        if keep == "yes" {
            assert_eq!(arrived.len(), packets.len());
        }
        for packet in arrived {
            assert!(packet.data.len() as u32 <= packet.meta.wire_len, "round {round}");
            assert!(["eth0", "eth0/raw", "eth0/ethernet"].contains(&packet.interface.as_str()));
            let is_part = packets.iter().any(|(data, _)| {
                let tail = packet.data.get(12..).unwrap_or(&[]);
                data.windows(tail.len().max(1)).any(|window| window == tail) || tail.is_empty()
            });
            assert!(is_part, "round {round}");
        }
    }
}
