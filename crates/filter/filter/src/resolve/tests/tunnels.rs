//! Headers within headers.

use tapline_packet::LinkType;

use super::check;
use super::frames::{ether, ipv4, ipv6, tcp, udp, udp_with};

fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

#[test]
fn vlan_moves_later_offsets() {
    let one = ether(0x8100, &join(&[&[0x20, 5, 8, 0], &ipv4(6, &tcp(1, 80))]));
    check(
        LinkType::ETHERNET,
        &one,
        &[
            "vlan",
            "vlan 5",
            "vlan and ip",
            "vlan 5 and tcp port 80",
            "vlan or ip",
            "ip or vlan",
            "vlan and host 10.0.0.1",
            "vlan (5)",
        ],
        &[
            "ip",
            "tcp port 80",
            "vlan 6",
            "vlan 5 and vlan",
            "vlan and ip6",
            "vlan 6 or vlan",
            "vlan 0x25 and ip",
        ],
    );
    let two = ether(0x88a8, &join(&[&[0, 7, 0x81, 0], &[0, 5, 8, 0], &ipv4(6, &tcp(1, 80))]));
    check(
        LinkType::ETHERNET,
        &two,
        &["vlan 7 and vlan 5 and ip", "vlan and vlan and tcp"],
        &["vlan 5", "vlan and ip"],
    );
    check(
        LinkType::ETHERNET,
        &ether(0x0800, &ipv4(6, &tcp(1, 80))),
        &["ip or vlan", "not vlan"],
        &["vlan or ip"],
    );
}

#[test]
fn mpls_guesses_ip_under_the_last_label() {
    let two = ether(0x8847, &join(&[&[0, 6, 0x40, 64], &[0, 7, 0x01, 64], &ipv4(6, &tcp(1, 80))]));
    check(
        LinkType::ETHERNET,
        &two,
        &[
            "mpls",
            "mpls 100",
            "mpls 100 and mpls 112",
            "mpls and mpls and ip",
            "mpls and mpls and tcp port 80",
            "mpls and mpls and host 10.0.0.1",
        ],
        &["mpls 112", "mpls and ip", "mpls and mpls and mpls", "mpls and mpls and ip6"],
    );
    check(LinkType::ETHERNET, &ether(0x8848, &[0; 30]), &[], &["mpls"]);
    let v6 = ether(0x8847, &join(&[&[0, 6, 0x41, 64], &ipv6(17, &udp(1, 53))]));
    check(
        LinkType::ETHERNET,
        &v6,
        &["mpls and ip6", "mpls and udp port 53"],
        &["mpls and ip", "mpls and mpls"],
    );
}

#[test]
fn pppoe_sessions_carry_ppp() {
    let session = ether(0x8864, &join(&[&[0x11, 0, 0, 9, 0, 0, 0, 0x21], &ipv4(6, &tcp(1, 80))]));
    check(
        LinkType::ETHERNET,
        &session,
        &["pppoes", "pppoes 9", "pppoes and ip", "pppoes 9 and tcp port 80", "ether[12:2] = 0x8864"],
        &["pppoed", "pppoes 8", "ip", "pppoes and ip6"],
    );
    let tagged =
        ether(0x8100, &join(&[&[0, 5, 0x88, 0x64], &[0x11, 0, 0, 9, 0, 0, 0, 0x57], &ipv6(6, &tcp(1, 80))]));
    check(
        LinkType::ETHERNET,
        &tagged,
        &["vlan and pppoes and ip6", "vlan and pppoes and tcp port 80"],
        &["pppoes"],
    );
    check(LinkType::ETHERNET, &ether(0x8863, &[0; 8]), &["pppoed"], &["pppoes"]);
}

fn geneve(options: u8, kind: u16, inner: &[u8]) -> Vec<u8> {
    let mut header = vec![options, 0];
    header.extend(kind.to_be_bytes());
    header.extend([0, 0, 42, 0]);
    header.resize(8 + 4 * usize::from(options & 0x3f), 0xee);
    header.extend(inner);
    udp_with(12345, 6081, &header)
}

#[test]
fn geneve_carries_ethernet_or_its_type() {
    let inner = ether(0x0800, &ipv4(6, &tcp(1, 80)));
    for outer in [
        ether(0x0800, &ipv4(17, &geneve(0, 0x6558, &inner))),
        ether(0x86dd, &ipv6(17, &geneve(3, 0x6558, &inner))),
    ] {
        check(
            LinkType::ETHERNET,
            &outer,
            &[
                "geneve",
                "geneve 42",
                "geneve and ip",
                "geneve 42 and tcp port 80",
                "geneve and ether dst 02:00:00:00:00:01",
                "(geneve and tcp) or arp",
                "geneve or tcp",
                "geneve and not arp",
                "udp and geneve",
            ],
            &[
                "geneve 43",
                "geneve and udp",
                "geneve and ip6",
                "geneve and geneve",
                "vxlan",
                "geneve and broadcast",
            ],
        );
    }
    let direct = ether(0x0800, &ipv4(17, &geneve(1, 0x86dd, &ipv6(17, &udp(1, 53)))));
    check(
        LinkType::ETHERNET,
        &direct,
        &["geneve and ip6", "geneve and udp port 53", "geneve and host 2001:db8::1"],
        &["geneve and ip", "geneve and ether host 02:00:00:00:00:01", "geneve and multicast"],
    );
    let tagged = ether(
        0x0800,
        &ipv4(17, &geneve(0, 0x6558, &ether(0x8100, &join(&[&[0, 5, 8, 0], &ipv4(6, &tcp(1, 80))])))),
    );
    check(
        LinkType::ETHERNET,
        &tagged,
        &["geneve and vlan 5 and tcp port 80"],
        &["geneve and ip", "geneve and vlan 6"],
    );
    let version_1 = ether(0x0800, &ipv4(17, &geneve(0x40, 0x6558, &inner)));
    check(LinkType::ETHERNET, &version_1, &[], &["geneve", "geneve and ip"]);
}

#[test]
fn tests_after_a_missing_tunnel_read_nothing() {
    // The cells are 0, so the inner type is read at the packet's start.
    let plain = ether(0x0800, &ipv4(6, &tcp(1, 80)));
    check(LinkType::ETHERNET, &plain, &["ip or geneve", "not geneve"], &["geneve or ip", "geneve or tcp"]);
    let mut looks_inner = plain;
    looks_inner[0..2].copy_from_slice(&[8, 0]);
    check(LinkType::ETHERNET, &looks_inner, &["geneve or ip", "(geneve and arp) or ip"], &["geneve or arp"]);
}

#[test]
fn vxlan_carries_ethernet() {
    let inner = ether(0x0800, &ipv4(6, &tcp(1, 80)));
    let header = |flags| join(&[&[flags, 0, 0, 0, 0, 0, 42, 0], &inner]);
    for outer in [
        ether(0x0800, &ipv4(17, &udp_with(9, 4789, &header(8)))),
        ether(0x86dd, &ipv6(17, &udp_with(9, 4789, &header(8)))),
    ] {
        check(
            LinkType::ETHERNET,
            &outer,
            &[
                "vxlan",
                "vxlan 42",
                "vxlan and ip",
                "vxlan and tcp port 80",
                "vxlan 42 and ether src 02:00:00:00:00:02",
            ],
            &["vxlan 41", "vxlan and udp", "vxlan and arp", "geneve", "vxlan and vlan"],
        );
    }
    check(
        LinkType::ETHERNET,
        &ether(0x0800, &ipv4(17, &udp_with(9, 4789, &header(12)))),
        &["udp port 4789"],
        &["vxlan"],
    );
}

#[test]
fn options_of_the_outer_ipv4_header_are_counted() {
    let inner = ether(0x0806, &[0; 28]);
    let mut outer = ipv4(17, &[]);
    outer[0] = 0x47;
    outer.extend([1; 8]);
    outer.extend(geneve(2, 0x6558, &inner));
    check(LinkType::ETHERNET, &ether(0x0800, &outer), &["geneve and arp"], &["geneve and ip"]);
}
