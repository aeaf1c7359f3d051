//! Deviations from libpcap 1.10: the right answers, one test for each rule of `differential/rules.rs`.

use tapline_filter::{HandleKind, Options, compile};
use tapline_ir::CompiledFilter;
use tapline_packet::{LinkType, Meta, Packet};

fn options(dlt: u16) -> Options {
    Options { handle: HandleKind::Dead, ..Options::new(LinkType::from_dlt(dlt)) }
}

fn program(text: &str, dlt: u16) -> CompiledFilter {
    compile(text, &options(dlt)).unwrap_or_else(|error| panic!("{}", error.render(text)))
}

fn matches(text: &str, dlt: u16, data: &[u8]) -> bool {
    let meta = Meta { wire_len: data.len() as u32, ..Meta::default() };
    program(text, dlt).run(Packet { data, meta: &meta }) != 0
}

fn refusal(text: &str, dlt: u16) -> String {
    compile(text, &options(dlt)).expect_err(text).message
}

const ETHERNET: u16 = 1;
const ARCNET: u16 = 7;
const SLIP: u16 = 8;
const RAW: u16 = 12;
const WLAN: u16 = 105;
const SUNATM: u16 = 123;
const RADIOTAP: u16 = 127;
const MTP2: u16 = 140;
const PPI: u16 = 192;

/// An Ethernet frame with this type and payload.
fn frame(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&[0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2], &ether_type.to_be_bytes()[..], payload].concat()
}

/// An IPv4 header of 20 bytes without options, and a payload.
fn ipv4(protocol: u8, target: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let header = [0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1];
    [&header[..], &target, payload].concat()
}

/// An IPv6 header and a payload.
fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    [&[0x60, 0, 0, 0, 0, 40, next, 64][..], &[0x20; 16], &[0x30; 16], payload].concat()
}

/// `unwritten-scratch`: what follows a tunnel that is not there sees offsets of 0, always the same, and kernels load
/// it.
#[test]
fn no_scratch_cell_is_read_before_it_is_written() {
    for text in
        ["geneve or ip", "(geneve and tcp) or udp", "not geneve and ip", "pppoes or ip", "vxlan or tcp"]
    {
        for dlt in [ETHERNET, WLAN, RADIOTAP] {
            assert_eq!(program(text, dlt).program().check_for_kernel(), Ok(()), "{text} on {dlt}");
        }
    }
}

/// `overwritten-scratch`: arithmetic next to a test of a header at a variable place does not disturb it.
#[test]
fn arithmetic_does_not_move_headers() {
    let radiotap = [0, 0, 8, 0, 0, 0, 0, 0];
    let data = [&radiotap[..], &[0x08, 0, 0, 0], &[0x00, 0x11, 0x22, 0x33, 0x44, 0x55], &[0; 40]].concat();
    assert!(matches("wlan addr1 00:11:22:33:44:55", RADIOTAP, &data));
    assert!(matches("1 > 2 or wlan addr1 00:11:22:33:44:55", RADIOTAP, &data));
    assert!(matches("len > 5 and wlan addr1 00:11:22:33:44:55", RADIOTAP, &data));
}

/// `geneve-missed`: behind `geneve ... or`, nothing is found in a packet without Geneve; `geneve` to the right finds
/// it.
#[test]
fn the_text_behind_a_tunnel_looks_inside_of_it() {
    let udp = frame(0x0800, &ipv4(17, [10, 0, 0, 2], &[0; 20]));
    assert!(!matches("geneve or ip", ETHERNET, &udp));
    assert!(matches("ip or geneve", ETHERNET, &udp));
}

/// `tunnels-on-802.11`: a Geneve packet in an 802.11 data frame is found, whatever is to its left.
#[test]
fn geneve_is_found_behind_802_11() {
    let inner = frame(0x0806, &[0; 28]);
    let geneve = [&[0, 0, 0x65, 0x58, 0, 0, 11, 0][..], &inner].concat();
    let udp = [&[0x30, 0x39, 0x17, 0xc1, 0, 0, 0, 0][..], &geneve].concat();
    let snap = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
    let data = [&[0x08, 2][..], &[0; 22], &snap, &ipv4(17, [10, 0, 0, 2], &udp)].concat();
    for (text, expected) in [
        ("geneve", true),
        ("geneve 11 and arp", true),
        ("geneve 12", false),
        ("1 > 2 or geneve", true),
        ("-20 << 31 == 0xf0 or geneve and arp", true),
    ] {
        assert_eq!(matches(text, WLAN, &data), expected, "{text}");
    }
}

/// `tunnels-on-802.11`: and so is a PPPoE session.
#[test]
fn pppoe_is_found_behind_802_11() {
    let snap = [0xaa, 0xaa, 3, 0, 0, 0, 0x88, 0x64];
    let session = [0x11, 0, 0, 5, 0, 22, 0, 0x21];
    let data = [&[0x08, 2][..], &[0; 22], &snap, &session, &ipv4(6, [10, 0, 0, 2], &[0; 20])].concat();
    for (text, expected) in [
        ("pppoes", true),
        ("pppoes 5 and ip", true),
        ("pppoes 6", false),
        ("pppoes and ip6", false),
        ("len > 100000 or pppoes 5 and dst host 10.0.0.2", true),
    ] {
        assert_eq!(matches(text, WLAN, &data), expected, "{text}");
    }
}

/// `slip-outbound`: the direction byte of SLIP is 0 for received and 1 for sent.
#[test]
fn slip_says_its_direction_in_one_byte() {
    let with = |byte| [&[byte][..], &[0; 40]].concat();
    assert_eq!([0, 1, 2].map(|byte| matches("inbound", SLIP, &with(byte))), [true, false, false]);
    assert_eq!([0, 1, 2].map(|byte| matches("outbound", SLIP, &with(byte))), [false, true, false]);
}

/// `wrapped-offsets`: an index beyond the packet is outside of it; before a header that has one before it, inside.
#[test]
fn indices_that_wrap_count_from_their_header() {
    let data = frame(0x0800, &ipv4(6, [10, 0, 0, 2], &[0; 20]));
    assert!(matches("ip[4294967295] = 0", ETHERNET, &data), "the byte before the IPv4 header");
    assert!(!matches("ether[4294967295] = 0", ETHERNET, &data), "there is nothing before the packet");
}

/// `net-loads`: a network looks at the words that it names; a packet cut behind them is long enough.
#[test]
fn a_network_reads_no_more_than_its_prefix() {
    let whole = frame(0x86dd, &ipv6(6, &[0; 20]));
    assert!(matches("ip6 src net 2020:2020::/32", ETHERNET, &whole[..26]));
    assert!(!matches("ip6 src net 2020:2020::/32", ETHERNET, &whole[..25]));
    assert!(matches("ip6 src net ::/0", ETHERNET, &whole[..14]));
}

/// An authentication header: its length field counts 32-bit words less 2 (RFC 4302, 2.2).
fn authentication(next: u8, words: u8) -> Vec<u8> {
    let mut header = vec![0; usize::from(words) * 4];
    (header[0], header[1]) = (next, words.wrapping_sub(2));
    header
}

/// `protochain-ah`: chains go on behind an authentication header, in any position of the chain.
#[test]
fn protochain_steps_over_authentication_headers() {
    let hop_by_hop = [51, 0, 0, 0, 0, 0, 0, 0];
    let chain = [&hop_by_hop[..], &authentication(60, 6), &[6, 0, 0, 0, 0, 0, 0, 0], &[0; 20]].concat();
    let data = frame(0x86dd, &ipv6(0, &chain));
    assert!(matches("ip6 protochain 6", ETHERNET, &data));
    assert!(matches("ip6 protochain 51", ETHERNET, &data));
    assert!(!matches("ip6 protochain 17", ETHERNET, &data));
    let v4 = frame(0x0800, &ipv4(51, [10, 0, 0, 2], &[&authentication(17, 4)[..], &[0; 8]].concat()));
    assert!(matches("ip protochain 17", ETHERNET, &v4));
}

/// `protochain-unending`: a chain that comes back to itself (length byte 8 and 3: libpcap loops for ever) ends, and
/// does not match. `protochain-long`: one that is longer than we follow does not match either, and what follows is
/// still asked.
#[test]
fn protochain_ends_on_every_packet() {
    for length in 0..=255 {
        let looping = [51, length].repeat(60);
        let v6 = frame(0x86dd, &ipv6(51, &looping));
        assert!(!matches("ip6 protochain 6", ETHERNET, &v6), "length {length}");
        let v4 = frame(0x0800, &ipv4(51, [10, 0, 0, 2], &looping));
        assert!(!matches("ip protochain 6", ETHERNET, &v4), "length {length}");
    }
    let long = frame(0x86dd, &ipv6(0, &[0; 400]));
    assert!(matches("ip6 protochain 6 or ip6", ETHERNET, &long));
    assert_eq!(
        program("protochain 6", ETHERNET).program().check_for_kernel(),
        Ok(()),
        "no jump goes backward"
    );
}

/// `ip-multicast-class-e`: multicast is 224.0.0.0/4; 240.0.0.0/4 is reserved (RFC 5771, RFC 1112).
#[test]
fn class_e_is_not_multicast() {
    let to = |first| frame(0x0800, &ipv4(17, [first, 0, 0, 1], &[0; 8]));
    let answers = [223, 224, 239, 240, 255].map(|first| matches("ip multicast", ETHERNET, &to(first)));
    assert_eq!(answers, [false, true, true, false, false]);
}

/// `isis-levels`: the PDU types of ISO 10589: hellos 15 16 17, LSPs 18 20, complete SNPs 24 25, partial SNPs 26 27.
#[test]
fn isis_levels_by_pdu_type() {
    let pdu = |kind: u8| {
        let llc = [0xfe, 0xfe, 0x03, 0x83, 0x1b, 1, 0, kind, 1, 0, 0];
        frame(60, &[&llc[..], &[0; 40]].concat())
    };
    let kinds = [
        ("iih", vec![15, 16, 17]),
        ("lsp", vec![18, 20]),
        ("csnp", vec![24, 25]),
        ("psnp", vec![26, 27]),
        ("snp", vec![24, 25, 26, 27]),
        ("l1", vec![15, 17, 18, 24, 26]),
        ("l2", vec![16, 17, 20, 25, 27]),
    ];
    for (word, expected) in kinds {
        let found: Vec<u8> = (0..32).filter(|&kind| matches(word, ETHERNET, &pdu(kind))).collect();
        assert_eq!(found, expected, "{word}");
    }
}

/// `decnet-loads`: a packet with all that a DECnet test looks at has its verdict.
#[test]
fn decnet_addresses_are_little_endian() {
    // A short data packet behind the length: flags 2, destination 1.2 (0x0402), source 10.5 (0x2805).
    let data = frame(0x6003, &[10, 0, 0x02, 0x02, 0x04, 0x05, 0x28, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert!(matches("decnet dst 1.2", ETHERNET, &data));
    assert!(matches("decnet src 10.5", ETHERNET, &data));
    assert!(matches("decnet host 10.5", ETHERNET, &data));
    assert!(!matches("decnet dst 10.5", ETHERNET, &data));
}

/// `ss7-fields`: Q.704's routing label: destination 14 bits, origin 14 bits, link selection 4 bits, from the low end
/// on.
#[test]
fn mtp3_fields_are_those_of_the_routing_label() {
    let (destination, origin, selection) = (0x1234_u32, 0x2bcd_u32, 7_u32);
    let label = (destination | origin << 14 | selection << 28).to_le_bytes();
    let data = [&[0, 0, 0x3f, 0x83][..], &label, &[0; 8]].concat();
    for (text, expected) in [
        ("dpc 4660", true),
        ("dpc 4661", false),
        ("opc 11213", true),
        ("opc 11212", false),
        ("sls 7", true),
        ("sls 6", false),
        ("sio 131", true),
        ("sio != 131", false),
        ("opc != 1", true),
        ("msu", true),
        ("fisu", false),
    ] {
        assert_eq!(matches(text, MTP2, &data), expected, "{text}");
    }
}

/// `arcnet-rfc1051`: IP over ARCnet is code 212 (RFC 1201); 240 (RFC 1051) has another header.
#[test]
fn arcnet_codes_are_those_of_rfc_1201() {
    let with = |code| [&[1, 2, code, 0, 0, 0][..], &ipv4(6, [10, 0, 0, 2], &[0; 20])].concat();
    let answers = [212, 240].map(|code| matches("ip", ARCNET, &with(code)));
    assert_eq!(answers, [true, false]);
}

/// `number-too-large`, `no-metadata`, `atm-after-lane`, `port-ranges`, `decnet-address`, `constant-faults`: what 1.11
/// refuses.
#[test]
fn meaningless_forms_are_refused() {
    let cases = [
        ("ip proto 300", ETHERNET, "greater than maximum"),
        ("ether proto 65536", ETHERNET, "greater than maximum"),
        ("inbound", ETHERNET, "not a live capture"),
        ("outbound", RAW, "not a live capture"),
        ("ifindex 3", ETHERNET, "not a live capture"),
        ("lane and metac", SUNATM, "supported only on SUNATM"),
        ("portrange 60-0-6010", ETHERNET, "more than one hyphen"),
        ("portrange \\-1023", ETHERNET, "has no starting port"),
        ("portrange 1-10x3", ETHERNET, "is not a valid port"),
        ("decnet host 64.1", ETHERNET, "DECnet"),
        ("ip[8] / 0 = 1", ETHERNET, "division by zero"),
        ("ip[8] % 0 = 1", ETHERNET, "modulus by zero"),
        ("ip[8] << 32 = 1", ETHERNET, "shift by more than 31 bits"),
        ("len / (1 - 1) = 2", ETHERNET, ""),
    ];
    for (text, dlt, expected) in cases {
        let message = refusal(text, dlt);
        assert!(message.contains(expected), "{text}: {message}");
    }
}

/// `ppi-802.11`: the frame types of 802.11 behind a PPI header that says so.
#[test]
fn frame_types_behind_ppi() {
    let with = |dlt: u32| [&[0, 0, 8, 0][..], &dlt.to_le_bytes(), &[0x80, 0], &[0; 40]].concat();
    assert!(matches("type mgt subtype beacon", PPI, &with(105)));
    assert!(!matches("type ctl", PPI, &with(105)));
    assert!(!matches("type mgt", PPI, &with(1)), "that is Ethernet");
}

/// 1.10 has no `vxlan`, and 1.11's optimiser loses the places of the inner headers.
#[test]
fn vxlan_finds_the_inner_packet() {
    let inner =
        frame(0x0800, &ipv4(6, [192, 168, 7, 9], &[0, 80, 0, 81, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 0, 0]));
    let vxlan = [&[8, 0, 0, 0, 0, 0, 42, 0][..], &inner].concat();
    let udp = [&[0x30, 0x39, 0x12, 0xb5, 0, 0, 0, 0][..], &vxlan].concat();
    let data = frame(0x0800, &ipv4(17, [10, 0, 0, 2], &udp));
    for (text, expected) in [
        ("vxlan", true),
        ("vxlan 42", true),
        ("vxlan 43", false),
        ("vxlan and ip", true),
        ("vxlan and ip6", false),
        ("vxlan and tcp port 80", true),
        ("vxlan and dst host 192.168.7.9", true),
        ("vxlan and dst host 10.0.0.2", false),
        ("udp and vxlan 42 and tcp", true),
    ] {
        assert_eq!(matches(text, ETHERNET, &data), expected, "{text}");
    }
}

const DSA_TAG_BRCM: u16 = 281;
const DSA_TAG_DSA: u16 = 284;
const DSA_TAG_EDSA: u16 = 285;

/// An Ethernet frame with a switch's tag before its type.
fn switched(tag: &[u8], ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let plain = frame(ether_type, payload);
    [&plain[..12], tag, &plain[12..]].concat()
}

/// 1.10 asks the kernel. Marvell's mode is 0 to the host, 1 from the host, 3 between switches.
#[test]
fn the_mode_of_a_dsa_tag_is_its_direction() {
    let to = |word: &str, dlt: u16, before: &[u8], mode: u8| {
        let tag = [before, &[mode << 6, 0, 0, 0]].concat();
        matches(word, dlt, &switched(&tag, 0x0800, &ipv4(6, [10, 0, 0, 2], &[0; 20])))
    };
    for (dlt, before) in [(DSA_TAG_DSA, &[][..]), (DSA_TAG_EDSA, &[0xdb, 0xdb, 0, 0][..])] {
        for (word, expected) in [("inbound", [true, false, false]), ("outbound", [false, true, false])] {
            assert_eq!([0, 1, 3].map(|mode| to(word, dlt, before, mode)), expected, "{word} on {dlt}");
        }
    }
}

/// 1.10 asks the kernel. Broadcom's opcode is 0 to the host and 1 from the host.
#[test]
fn the_opcode_of_a_broadcom_tag_is_its_direction() {
    let with = |opcode: u8| switched(&[opcode << 5 | 0x1f, 0, 0, 0], 0x0800, &[0; 40]);
    assert_eq!(
        [0, 1, 2, 7].map(|opcode| matches("inbound", DSA_TAG_BRCM, &with(opcode))),
        [true, false, false, false]
    );
    assert_eq!(
        [0, 1, 2, 7].map(|opcode| matches("outbound", DSA_TAG_BRCM, &with(opcode))),
        [false, true, false, false]
    );
}

/// 1.10 has neither on tagged frames.
#[test]
fn mpls_and_llc_are_found_behind_switch_tags() {
    let tags = [
        (DSA_TAG_BRCM, &[0; 4][..]),
        (DSA_TAG_DSA, &[0; 4]),
        (DSA_TAG_EDSA, &[0xdb, 0xdb, 0, 0, 0, 0, 0, 0]),
    ];
    for (dlt, tag) in tags {
        let label = [0, 0x02, 0xa1, 64];
        let labelled = switched(tag, 0x8847, &[&label[..], &ipv4(6, [10, 0, 0, 2], &[0; 20])].concat());
        let llc = switched(tag, 38, &[0x42, 0x42, 3, 0, 0, 0, 0, 0]);
        for (text, expected) in
            [("mpls", true), ("mpls 42 and tcp", true), ("mpls 43", false), ("llc", false)]
        {
            assert_eq!(matches(text, dlt, &labelled), expected, "{text} on {dlt}");
        }
        for (text, expected) in
            [("mpls", false), ("llc", true), ("llc u", true), ("llc s", false), ("stp", true)]
        {
            assert_eq!(matches(text, dlt, &llc), expected, "{text} on {dlt}");
        }
    }
}

/// `guard-order`: which header is asked for first shows where the packet ends between the two.
#[test]
fn the_right_operand_is_asked_for_first() {
    let cut = &frame(0x0800, &ipv4(6, [10, 0, 0, 2], &[0; 20]))[..20];
    assert!(matches("not (tcp[16:4] != icmp6[9])", ETHERNET, cut), "no ICMPv6, whatever IPv4 carries");
    assert!(!matches("not (icmp6[9] != tcp[16:4])", ETHERNET, cut), "IPv4's protocol was cut off");
}

/// `index-over-ipv4`: bytes of TCP are those behind IPv4; that IPv6 may carry it too is not asked.
#[test]
fn indexed_protocols_are_asked_of_ipv4_alone() {
    const JUNIPER_ETHER: u16 = 178;
    // As IPv6 the next header would be 44, a fragment's, behind which the packet is cut off.
    let mut data = [&[0x4d, 0x47, 0x43, 0][..], &[0; 58]].concat();
    (data[32], data[32 + 6]) = (0x45, 44);
    assert!(matches("not tcp[0] = 1", JUNIPER_ETHER, &data), "IPv4's protocol says 0");
    (data[32 + 6], data[32 + 9]) = (0, 6);
    assert!(matches("tcp[0] = 0", JUNIPER_ETHER, &data));
}

/// `constants-decide`: a part that can never hold on the link type tests nothing, nor does its neighbour.
#[test]
fn a_constant_decides_on_cut_packets() {
    let cut = [0x45, 0, 0, 40];
    for (text, expected) in [
        ("not (ip[20] = 1 and arp)", true),
        ("not (arp and ip[20] = 1)", true),
        ("ip or (ip[20] = 1 and arp)", true),
        ("ip[20] = 1 or not arp", true),
        ("(ip[20] = 1 and arp) or ip[0] = 0x45", true),
        ("ip[20] = 1 or ip", false),
    ] {
        assert_eq!(matches(text, RAW, &cut), expected, "{text}");
        let plain = compile(text, &Options { optimise: false, ..options(RAW) }).expect("a filter");
        let meta = Meta { wire_len: 40, ..Meta::default() };
        assert_eq!(plain.run(Packet { data: &cut, meta: &meta }) != 0, expected, "{text}, not simplified");
    }
}

/// A text that is refused on one link type for its tests of IP is refused on link types that find IP in another way,
/// too.
#[test]
fn contradictions_are_found_on_loopback_too() {
    const NULL: u16 = 0;
    const LOOP: u16 = 108;
    for dlt in [ETHERNET, NULL, LOOP, RAW] {
        for handle in [HandleKind::Dead, HandleKind::Savefile] {
            let options = Options { handle, ..options(dlt) };
            let refused = compile("udp dst port 52356 && tcp[len] > 0", &options);
            let message = refused.map(drop).map_err(|error| error.message);
            assert_eq!(message, Err("expression rejects all packets".to_owned()), "{dlt} {handle:?}");
        }
    }
}
