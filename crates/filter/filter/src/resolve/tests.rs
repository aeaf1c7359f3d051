//! Corner by corner: the packets that a filter accepts and rejects, and the texts that it refuses.

mod errors;
mod frames;
mod links;
mod modifiers;
mod tunnels;

use std::sync::Arc;

use frames::{arp, ether, ipv4, ipv6, llc, tcp, udp};
use tapline_packet::{LinkType, Meta, Packet};

use crate::compile;
use crate::names::{FixedNames, Ports};
use crate::options::{HandleKind, Options};
use tapline_ir::CompiledFilter;

/// Names that tests may use.
fn names() -> FixedNames {
    let port = |tcp, udp| Ports { tcp, udp };
    FixedNames {
        hosts: vec![
            ("dual".into(), "2001:db8::2".parse().expect("an address")),
            ("dual".into(), "10.0.0.2".parse().expect("an address")),
            ("dual".into(), "10.0.0.1".parse().expect("an address")),
            ("old".into(), "10.0.0.9".parse().expect("an address")),
            ("router".into(), "10.0.0.254".parse().expect("an address")),
        ],
        networks: vec![("office".into(), 0x0a0b), ("none".into(), 0)],
        ports: vec![
            ("web".into(), port(Some(80), None)),
            ("names".into(), port(Some(53), Some(53))),
            ("log".into(), port(None, Some(514))),
            ("both".into(), port(Some(1), Some(2))),
        ],
        protocols: vec![("tcp".into(), 6), ("udp".into(), 17)],
        stations: vec![("router".into(), [2, 0, 0, 0, 0, 0xfe])],
    }
}

fn options(link_type: LinkType) -> Options {
    Options { link_type, resolver: Arc::new(names()), netmask: Some(0xffff_ff00), ..Options::default() }
}

fn program(text: &str, options: &Options) -> CompiledFilter {
    compile(text, options).unwrap_or_else(|error| panic!("{}", error.render(text)))
}

fn accepts(program: &CompiledFilter, data: &[u8], wire_len: usize) -> bool {
    let meta = Meta { wire_len: wire_len as u32, ..Meta::default() };
    program.run(Packet { data, meta: &meta }) != 0
}

/// Whether a filter accepts a packet, simplified or not. Cut at any length it must give the same answer in both
/// forms, and load in kernels.
fn verdict(link_type: LinkType, text: &str, data: &[u8]) -> bool {
    let plain = program(text, &Options { optimise: false, ..options(link_type) });
    check_for_kernel(text, &plain);
    if let Ok(short) = compile(text, &options(link_type)) {
        check_for_kernel(text, &short);
        for len in 0..=data.len() {
            let cut = &data[..len];
            assert_eq!(accepts(&short, cut, data.len()), accepts(&plain, cut, data.len()), "{text} at {len}");
        }
    }
    accepts(&plain, data, data.len())
}

fn check_for_kernel(text: &str, program: &CompiledFilter) {
    if let Err(refusal) = program.program().check_for_kernel() {
        panic!("{text}: {refusal}");
    }
}

fn check(link_type: LinkType, data: &[u8], accepted: &[&str], rejected: &[&str]) {
    for text in accepted {
        assert!(verdict(link_type, text, data), "{text} should accept");
    }
    for text in rejected {
        assert!(!verdict(link_type, text, data), "{text} should reject");
    }
}

fn web_request() -> Vec<u8> {
    ether(0x0800, &ipv4(6, &tcp(40000, 80)))
}

#[test]
fn hosts_nets_and_ports_of_ipv4() {
    check(
        LinkType::ETHERNET,
        &web_request(),
        &[
            "",
            "ip",
            "tcp",
            "host 10.0.0.1",
            "src host 10.0.0.1",
            "dst 10.0.0.2",
            "src or dst host 10.0.0.2",
            "host 167772161",
            "net 10",
            "net 10.0",
            "net 10.0.0.0/24",
            "net 10.0.0.0 mask 255.255.255.0",
            "net 0/0 or ip",
            "src net 10 and dst net 10.0.0.2/32",
            "port 80",
            "tcp port 80",
            "dst port 80",
            "tcp src port 40000",
            "portrange 79-81",
            "portrange 81-79",
            "portrange 80",
            "portrange 80-80",
            "ip proto 6",
            "proto 6",
            "ip proto \\tcp",
            "not udp",
            "src and dst net 10",
            "port not 22",
            "greater 54",
            "less 54",
            "len = 54",
        ]
        .map(|text| if text == "net 0/0 or ip" { "net 0.0.0.0/0" } else { text }),
        &[
            "ip6",
            "udp",
            "arp",
            "host 10",
            "host 10.1",
            "dst host 10.0.0.1",
            "src and dst host 10.0.0.1",
            "net 11",
            "net 10.0.1.0/24",
            "udp port 80",
            "src port 80",
            "portrange 81-90",
            "ip6 proto 6",
            "not tcp",
            "less 53",
            "greater 55",
            "sctp port 80",
            "port 80 and 443",
            "ip broadcast",
            "ip multicast",
            "broadcast",
            "vlan",
        ],
    );
}

#[test]
fn and_or_and_elided_qualifiers() {
    check(
        LinkType::ETHERNET,
        &web_request(),
        &[
            "udp or ip and tcp",
            "tcp port 22 or 80",
            "tcp port 22 or (80)",
            "port (22 or 80)",
            "host 10.0.0.9 or 10.0.0.1",
            "not port 22 and not 443",
            "tcp port 22 or (udp) or 80",
            "not (udp or arp)",
            "host (10.0.0.1 and 10.0.0.2)",
            "tcp port 22 or not 22",
        ],
        &[
            "ip or tcp and udp",
            "tcp port 22 or 443",
            "not host 10.0.0.9 and 10.0.0.1 and udp",
            "port (22 or 443)",
        ],
    );
}

#[test]
fn ports_need_first_fragment_and_header_length() {
    let mut later = ipv4(6, &tcp(40000, 80));
    later[7] = 1;
    check(
        LinkType::ETHERNET,
        &ether(0x0800, &later),
        &["tcp", "ip proto 6"],
        &["tcp port 80", "tcp[2:2] = 80"],
    );
    let mut more_fragments = ipv4(6, &tcp(40000, 80));
    more_fragments[6] = 0x20;
    check(LinkType::ETHERNET, &ether(0x0800, &more_fragments), &["tcp port 80", "tcp[2:2] = 80"], &[]);
    let mut with_options = ipv4(6, &[]);
    with_options[0] = 0x46;
    with_options.extend([1, 1, 1, 1]);
    with_options.extend(tcp(40000, 80));
    check(
        LinkType::ETHERNET,
        &ether(0x0800, &with_options),
        &["tcp port 80", "tcp[2:2] = 80"],
        &["tcp port 257"],
    );
}

#[test]
fn ipv6_has_fixed_offsets_and_one_fragment_header() {
    let packet = ether(0x86dd, &ipv6(17, &udp(5353, 53)));
    check(
        LinkType::ETHERNET,
        &packet,
        &[
            "ip6",
            "udp",
            "udp port 53",
            "port 5353",
            "host 2001:db8::1",
            "ip6 src host 2001:db8::1",
            "net 2001:db8::/32",
            "dst net 2001:db8::2/128",
            "src 2001:db8::1/128",
            "net ::/0",
            "ip6 proto 17",
            "proto 17",
            "ip6[6] = 17",
        ],
        &[
            "ip",
            "tcp",
            "host ::1",
            "net 2001:db9::/32",
            "udp[0:2] = 5353",
            "icmp6",
            "ip6 multicast",
            "ip6 proto 44",
        ],
    );
    let mut fragment = ipv6(44, &[17, 0, 0, 0, 0, 0, 0, 1]);
    fragment.extend(udp(5353, 53));
    check(LinkType::ETHERNET, &ether(0x86dd, &fragment), &["udp", "ip6 proto 44"], &["udp port 53"]);
    let mut options = ipv6(0, &[17, 0, 1, 4, 0, 0, 0, 0]);
    options.extend(udp(5353, 53));
    check(LinkType::ETHERNET, &ether(0x86dd, &options), &["ip6 protochain 17"], &["udp", "udp port 53"]);
}

#[test]
fn arp_addresses_are_hosts_too() {
    let packet = ether(0x0806, &arp([10, 0, 0, 1], [10, 0, 0, 2]));
    check(
        LinkType::ETHERNET,
        &packet,
        &[
            "arp",
            "host 10.0.0.1",
            "src host 10.0.0.1",
            "arp dst host 10.0.0.2",
            "net 10",
            "arp[6:2] = 1",
            "not ip[0] = 5",
        ],
        &["ip", "ip host 10.0.0.1", "rarp host 10.0.0.1", "ip[0] = 5", "port 80"],
    );
}

#[test]
fn names_are_looked_up() {
    check(
        LinkType::ETHERNET,
        &web_request(),
        &[
            "host dual",
            "ip host dual",
            "src dual",
            "host old or dual",
            "tcp port web",
            "port web",
            "dst port web",
            "portrange web-both or port web",
            "portrange web-names",
            "not net office",
            "tcp port not names",
        ],
        &[
            "ip6 host dual",
            "arp host dual",
            "host old",
            "port names",
            "port both",
            "udp port log",
            "net office",
        ],
    );
    let v6 = ether(0x86dd, &ipv6(6, &tcp(1, 2)));
    check(
        LinkType::ETHERNET,
        &v6,
        &["host dual", "ip6 host dual", "port both"],
        &["ip host dual", "port log"],
    );
}

#[test]
fn gateways_match_by_mac_and_not_by_ip_address() {
    let mut routed = ether(0x0800, &ipv4(6, &tcp(1, 2)));
    routed[0..6].copy_from_slice(&[2, 0, 0, 0, 0, 0xfe]);
    check(LinkType::ETHERNET, &routed, &["gateway router", "ip gateway router", "ether host router"], &[]);
    let mut own = ipv4(6, &tcp(1, 2));
    own[12..16].copy_from_slice(&[10, 0, 0, 254]);
    let mut own = ether(0x0800, &own);
    own[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0xfe]);
    check(LinkType::ETHERNET, &own, &["ether src router"], &["gateway router"]);
}

#[test]
fn arithmetic_is_unsigned_and_wraps() {
    check(
        LinkType::ETHERNET,
        &web_request(),
        &[
            "ip[0] & 0xf = 5",
            "ip[0] = 0x45",
            "tcp[2:2] = 80",
            "tcp[tcpflags] & tcp-syn != 0",
            "tcp[13] = 2",
            "tcp[(tcp[12] >> 4) * 4 - 7] = 2",
            "ether[12:2] = 0x800",
            "-1 > 0",
            "0 - 1 = 4294967295",
            "10 % 4 + 1 = 0",
            "20 % 7 % 4 = 2",
            "2 * 3 ^ 1 = 4",
            "ip[0:4] >> 16 = ip[0:2]",
            "ip[ip[0] & 0xf + 4] = 6 or ip[9] = 6",
            "1 + tcp[13] = 3",
            "len - 14 = ip[2:2] or len = 54",
            "(ip[0] + 1) * 2 = 140",
            "- ip[0] < 0xffffffff",
            "ip[0] << ip[9] = 0x1140",
            "ip[1 + 1 : 2] = 40",
            "byte 12 = 8",
            "byte 12 & 8",
            "byte 13 | 8",
            "byte 12 < 9",
        ],
        &[
            "ip[0] & 0xf = 6",
            "tcp[13] & 4 != 0",
            "-1 < 0",
            "ip[9] / ip[1] = 1",
            "ip[9] % ip[1] = 0",
            "tcp[100] = 0",
            "not tcp[100] = 0",
            "tcp[100] = 0 or ip",
            "udp[0] = 0",
            "ip6[0] = 0",
            "ip[0] >> (ip[9] * 8) != 0",
            "byte 13 & 8",
            "byte 12 > 8",
            "ip[0:4] = ip[4:4]",
        ],
    );
    // A packet of another protocol matches under `not`; one that is too short does not.
    check(LinkType::ETHERNET, &ether(0x0806, &arp([1; 4], [2; 4])), &["not tcp[13] = 2"], &["tcp[13] = 2"]);
}

#[test]
fn an_ip_option_to_read_past_the_packet_rejects_it() {
    let mut packet = web_request();
    packet[14] = 0x4f;
    check(
        LinkType::ETHERNET,
        &packet,
        &["tcp", "ip or tcp port 80"],
        &["tcp port 80", "not tcp port 80", "port 80 or ip"],
    );
}

#[test]
fn ethernet_addresses_and_lengths() {
    let mut group = ether(0x0800, &ipv4(17, &udp(1, 2)));
    group[0..6].copy_from_slice(&[0x01, 0, 0x5e, 0, 0, 1]);
    check(
        LinkType::ETHERNET,
        &group,
        &[
            "multicast",
            "ether multicast",
            "ether dst 01:00:5e:00:00:01",
            "ether host 1-0-5e-0-0-1",
            "ether src 020000000002",
        ],
        &["broadcast", "ether src 01:00:5e:00:00:01", "ip multicast"],
    );
    group[0..6].fill(0xff);
    check(LinkType::ETHERNET, &group, &["broadcast", "multicast", "ether broadcast"], &["ip broadcast"]);
    let mut to_class_e = ipv4(17, &[]);
    to_class_e[16] = 0xf0;
    check(LinkType::ETHERNET, &ether(0x0800, &to_class_e), &["ip"], &["ip multicast"]);
    let mut to_net = ipv4(17, &[]);
    to_net[19] = 0xff;
    check(LinkType::ETHERNET, &ether(0x0800, &to_net), &["ip broadcast"], &["ip multicast"]);
}

#[test]
fn llc_frames_have_a_length_instead_of_a_type() {
    let spanning_tree = llc(&[0x42, 0x42, 0x03, 0, 0]);
    check(
        LinkType::ETHERNET,
        &spanning_tree,
        &["stp", "ether proto \\stp", "ether proto 0x42", "llc", "llc u", "llc ui"],
        &["ip", "iso", "llc i", "llc s", "llc rr", "llc xid", "ipx"],
    );
    check(
        LinkType::ETHERNET,
        &llc(&[0xfe, 0xfe, 3, 0x83, 27, 1, 0, 18]),
        &["iso", "isis", "lsp", "l1", "isis proto 18", "iso proto \\isis"],
        &["clnp", "l2", "iih", "csnp", "psnp", "snp"],
    );
    check(LinkType::ETHERNET, &llc(&[0xff, 0xff, 0, 0]), &["ipx"], &["llc", "iso"]);
    check(LinkType::ETHERNET, &llc(&[0xe0, 0xe0, 3, 0]), &["ipx", "llc"], &["netbeui"]);
    check(LinkType::ETHERNET, &llc(&[0xaa, 0xaa, 3, 0, 0, 0, 0x81, 0x37]), &["ipx"], &["atalk"]);
    check(LinkType::ETHERNET, &llc(&[0xaa, 0xaa, 3, 8, 0, 7, 0x80, 0x9b]), &["atalk"], &["aarp", "ipx"]);
    check(LinkType::ETHERNET, &ether(0x8137, &[]), &["ipx"], &["llc"]);
    check(
        LinkType::ETHERNET,
        &ether(0x88cc, &[0; 4]),
        &["ether proto \\lldp", "ether proto 35020"],
        &["ether proto \\slow"],
    );
}

#[test]
fn decnet_addresses_in_long_and_short_headers() {
    // Area 1, node 2: 0x0402, little-endian on the wire.
    let short = ether(0x6003, &[0, 0, 0x02, 0x02, 0x04, 0x03, 0x04, 0]);
    check(
        LinkType::ETHERNET,
        &short,
        &["decnet", "decnet host 1.2", "decnet dst 1.2", "decnet src host 1.3"],
        &["decnet src 1.2", "decnet host 2.1"],
    );
    let mut long = vec![0, 0, 0x81, 0x06];
    long.extend([0; 6]);
    long.extend([0x02, 0x04]);
    long.extend([0; 6]);
    long.extend([0x03, 0x04, 0, 0, 0, 0]);
    check(
        LinkType::ETHERNET,
        &ether(0x6003, &long),
        &["decnet dst host 1.2", "decnet src 1.3"],
        &["decnet src 1.2"],
    );
}

#[test]
fn protochain_steps_over_headers_and_ends() {
    // Authentication headers count words less two: 4 means 24 bytes.
    let mut ah = vec![6, 4, 0, 0];
    ah.extend([0; 20]);
    ah.extend(tcp(1, 2));
    let v4 = ether(0x0800, &ipv4(51, &ah));
    check(
        LinkType::ETHERNET,
        &v4,
        &["ip protochain 6", "protochain 6", "protochain 51", "ah"],
        &["protochain 17", "tcp", "ip6 protochain 6"],
    );
    // One that names itself and has length 0xff - 1: steps on, never back.
    for len in 0..=255u8 {
        let mut loops = vec![51, len];
        loops.resize(60, 51);
        assert!(!verdict(LinkType::ETHERNET, "ip protochain 6", &ether(0x0800, &ipv4(51, &loops))));
        assert!(!verdict(LinkType::ETHERNET, "ip6 protochain 6", &ether(0x86dd, &ipv6(51, &loops))));
    }
    let mut chain = Vec::new();
    for next in [60, 43, 44, 51, 60, 58] {
        chain.extend([next, 0, 0, 0, 0, 0, 0, 0]);
    }
    chain.extend([0; 40]);
    check(
        LinkType::ETHERNET,
        &ether(0x86dd, &ipv6(0, &chain)),
        &["ip6 protochain 58", "protochain 58"],
        &["ip6 protochain 17"],
    );
    check(LinkType::ETHERNET, &ether(0x86dd, &ipv6(59, &[])), &["ip6 protochain 59"], &["ip6 protochain 6"]);
}

#[test]
fn metadata_is_asked_on_live_captures() {
    use tapline_packet::{Direction, PacketType, VlanTag};
    let live = Options { handle: HandleKind::Live, ..options(LinkType::ETHERNET) };
    let tagged = Meta {
        wire_len: 60,
        if_index: 7,
        packet_type: PacketType::Outgoing,
        direction: Direction::Out,
        vlan: Some(VlanTag { tpid: 0x8100, tci: 0x2005 }),
        ..Meta::default()
    };
    let untagged = Meta { vlan: None, packet_type: PacketType::Host, ..tagged };
    let run = |text: &str, data: &[u8], meta: &Meta| {
        let verdicts = [true, false].map(|optimise| {
            let program = program(text, &Options { optimise, ..live.clone() });
            check_for_kernel(text, &program);
            program.run(Packet { data, meta }) != 0
        });
        assert_eq!(verdicts[0], verdicts[1], "{text}");
        verdicts[0]
    };
    let plain = web_request();
    let in_bytes = ether(0x8100, &[&[0x20, 5, 8, 0][..], &ipv4(6, &tcp(1, 80))].concat());
    for (text, data, meta) in [
        ("vlan", &plain, &tagged),
        ("vlan 5 and ip", &plain, &tagged),
        ("vlan 5 and tcp port 80", &in_bytes, &untagged),
        ("vlan 5 and vlan 5 and ip", &in_bytes, &tagged),
        ("outbound", &plain, &tagged),
        ("inbound", &plain, &untagged),
        ("ifindex 7", &plain, &tagged),
        ("ip or vlan", &plain, &untagged),
    ] {
        assert!(run(text, data, meta), "{text}");
    }
    for (text, data, meta) in [
        ("vlan", &plain, &untagged),
        ("vlan 6", &plain, &tagged),
        ("vlan 5 and vlan", &plain, &tagged),
        ("inbound", &plain, &tagged),
        ("ifindex 8", &plain, &tagged),
        ("vlan or ip", &plain, &untagged),
    ] {
        assert!(!run(text, data, meta), "{text}");
    }
}

#[test]
fn metadata_offsets_reject_in_files() {
    let meta = Meta { wire_len: 54, if_index: 7, ..Meta::default() };
    let asks = |handle| {
        let options = Options { handle, ..options(LinkType::ETHERNET) };
        program("link[0xfffff008:4] = 7", &options).run(Packet { data: &web_request(), meta: &meta }) != 0
    };
    assert!(asks(HandleKind::Live));
    assert!(!asks(HandleKind::Savefile));
}

#[test]
fn deep_and_long_filters_compile() {
    let deep = format!("{}ip{}", "(not ".repeat(crate::DEPTH_MAX / 2), ")".repeat(crate::DEPTH_MAX / 2));
    assert!(verdict(LinkType::ETHERNET, &deep, &web_request()));
    let sum = format!("ip[0]{} = 0x45", " + 0 * ip[1]".repeat(400));
    assert!(verdict(LinkType::ETHERNET, &sum, &web_request()));
    let hosts: Vec<String> = (0..3000).map(|i| format!("10.{}.{}.3", i / 250, i % 250)).collect();
    let many = format!("host {} or 10.0.0.2", hosts.join(" or "));
    let plain = Options { optimise: false, ..options(LinkType::ETHERNET) };
    assert!(accepts(&program(&many, &plain), &web_request(), 54));
    let mixed = format!("ip{}", " or udp and tcp".repeat(10_000));
    assert!(accepts(&program(&mixed, &plain), &web_request(), 54));
}
