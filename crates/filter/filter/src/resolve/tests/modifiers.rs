//! Modifiers, which libpcap's language does not have, by example. The modifiers against random packets:
//! `tests/it/extensions.rs`.

use tapline_packet::LinkType;

use super::frames::{ether, ipv4, ipv6, tcp, udp, udp_with};
use super::{check, options};
use crate::compile;
use crate::options::Options;

fn tagged(tag: u16, rest: &[u8]) -> Vec<u8> {
    let mut frame = rest[..12].to_vec();
    frame.extend([0x81, 0]);
    frame.extend(tag.to_be_bytes());
    frame.extend(&rest[12..]);
    frame
}

fn untagged() -> Vec<u8> {
    ether(0x0800, &ipv4(6, &tcp(1, 80)))
}

#[test]
fn a_shift_ends_with_its_parenthesis_and_at_or() {
    let accepted = [
        "scoped((vlan 5 and ip) or arp)",
        "scoped(arp or vlan)",
        "scoped(vlan and (tcp port 80 or arp))",
        "scoped(vlan 6 or vlan 5)",
        "scoped(vlan 6 and ip or vlan 5)",
        "scoped((vlan and ip) and vlan 5)",
        "scoped(not (vlan 6 and ip) and vlan 5 and tcp)",
        "scoped(vlan 5) and vlan 5",
        "scoped(((vlan)) and vlan and tcp)",
    ];
    let rejected = ["scoped(ip)", "scoped((vlan 5 and arp) or tcp)", "scoped(vlan 5 or ip) and scoped(ip)"];
    check(LinkType::ETHERNET, &tagged(5, &untagged()), &accepted, &rejected);
    check(
        LinkType::ETHERNET,
        &untagged(),
        &[
            "scoped((vlan 5 and ip) or tcp)",
            "scoped(vlan or ip)",
            "scoped(vlan and arp or tcp and ip)",
            "scoped(not vlan and tcp)",
        ],
        &["scoped(vlan)", "scoped(vlan and ip or arp)", "scoped((vlan or arp) and tcp)", "vlan or ip"],
    );
}

#[test]
fn tagged_or_not_in_one_word() {
    let twice = tagged(7, &tagged(5, &untagged()));
    for frame in [untagged(), tagged(5, &untagged()), twice.clone()] {
        check(
            LinkType::ETHERNET,
            &frame,
            &["anyvlan(tcp port 80)", "anyvlan(ip) and not arp", "arp or anyvlan(host 10.0.0.1)"],
            &["anyvlan(udp)", "anyvlan(vlan)", "anyvlan(ip6)"],
        );
    }
    check(
        LinkType::ETHERNET,
        &twice,
        &["anyvlan(tcp) and vlan 7", "vlan and anyvlan(tcp)", "scoped(anyvlan(tcp) and (vlan 5 or vlan 7))"],
        &["anyvlan(tcp) and vlan 5"],
    );
    check(LinkType::ETHERNET, &tagged(1, &twice), &["anyvlan(vlan 5)"], &["anyvlan(tcp)"]);
    check(LinkType::RAW, &ipv4(6, &tcp(1, 80)), &["anyvlan(tcp port 80)"], &["anyvlan(udp)"]);
}

#[test]
fn the_packet_inside() {
    let inner = ipv6(17, &udp(1, 53));
    let ipip = ether(0x0800, &ipv4(41, &inner));
    check(
        LinkType::ETHERNET,
        &ipip,
        &[
            "inner(udp port 53)",
            "inner(ipip, ip6)",
            "ip and inner(ip6) and ip",
            "anyvlan(inner(udp))",
            "not inner(tcp)",
        ],
        &[
            "inner(gre, udp)",
            "inner(ip)",
            "udp",
            "inner(ether host 02:00:00:00:00:01)",
            "inner(ether[0] = 2)",
            "inner(inner(udp))",
        ],
    );
    let vxlan = [&[0x88, 0, 0, 0, 0, 0, 9, 0][..], &tagged(5, &untagged())].concat();
    let outer = ether(0x86dd, &ipv6(17, &udp_with(9, 4789, &vxlan)));
    check(
        LinkType::ETHERNET,
        &outer,
        &[
            "inner(vlan 5 and tcp port 80)",
            "inner(vxlan 9, anyvlan(tcp))",
            "inner(ether host 02:00:00:00:00:01)",
            "inner(vxlan, not ip and vlan) and udp port 4789",
            "inner(vlan) or arp",
        ],
        &["inner(vxlan 8, vlan)", "inner(tcp)", "inner(geneve, vlan)", "vxlan", "inner(vlan and ip) and tcp"],
    );
    check(LinkType::RAW, &ipv4(4, &ipv4(6, &tcp(1, 80))), &["inner(tcp port 80)"], &["inner(udp)", "tcp"]);
}

#[test]
fn transport_behind_extension_headers() {
    let mut chain = vec![60, 0, 0, 0, 0, 0, 0, 0];
    chain.extend([6, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    chain.extend(tcp(1, 80));
    let frame = ether(0x86dd, &ipv6(0, &chain));
    check(
        LinkType::ETHERNET,
        &frame,
        &[
            "extensions(tcp port 80)",
            "extensions(tcp[13] & 2 != 0)",
            "extensions(tcp)",
            "extensions(proto 6 and not udp)",
            "extensions(ip6 proto 0)",
            "extensions(dst port 80 or 443)",
            "not tcp and extensions(tcp)",
        ],
        &[
            "tcp port 80",
            "tcp[13] & 2 != 0",
            "extensions(tcp port 81)",
            "extensions(udp)",
            "extensions(icmp6[0] = 0)",
        ],
    );
    let whole = Options { ipv6_extensions: true, ..options(LinkType::ETHERNET) };
    let program = compile("tcp[2:2] = 80 and port 80", &whole).expect("compiles");
    assert!(super::accepts(&program, &frame, frame.len()));
    let before_ip4 = ether(0x0800, &ipv4(6, &tcp(1, 80)));
    check(
        LinkType::ETHERNET,
        &before_ip4,
        &["extensions(tcp port 80 and tcp[13] = 2)"],
        &["extensions(udp)"],
    );
}

#[test]
fn chains_are_followed_once_where_one_way_leads() {
    let count = |text: &str| compile(text, &options(LinkType::ETHERNET)).expect(text).insns().len();
    let one = count("extensions(tcp port 80)");
    // Ports share what was found; an alternative that may come without it finds it again.
    assert!(count("extensions(tcp port 80 or 443 or 8080 and udp)") < one + 20);
    assert!(count("extensions(host 10.0.0.1 and port 80 and not port 81)") < one + 60);
    assert!(count("extensions((ip6 and port 80) or port 443)") > one + one / 2);
}

#[test]
fn fragments_by_their_place() {
    let with = |flags: u16| {
        let mut packet = ipv4(17, &udp(1, 53));
        packet[6..8].copy_from_slice(&flags.to_be_bytes());
        ether(0x0800, &packet)
    };
    let cases = [
        (0x4000, [false; 3]),
        (0x2000, [true, true, false]),
        (0x2001, [true, false, true]),
        (0x0007, [true, false, true]),
    ];
    for (flags, expected) in cases {
        for (text, expected) in ["fragment()", "fragment(first)", "fragment(later)"].into_iter().zip(expected)
        {
            let list = [text];
            let (accepted, rejected): (&[&str], &[&str]) = if expected { (&list, &[]) } else { (&[], &list) };
            check(LinkType::ETHERNET, &with(flags), accepted, rejected);
        }
    }
    let header = |word: u16| [&[17, 0][..], &word.to_be_bytes(), &[0, 0, 0, 9], &udp(1, 53)].concat();
    check(
        LinkType::ETHERNET,
        &ether(0x86dd, &ipv6(44, &header(0x0019))),
        &["fragment(later) and extensions(udp)"],
        &["extensions(port 53)"],
    );
    check(
        LinkType::ETHERNET,
        &ether(0x86dd, &ipv6(44, &header(1))),
        &["fragment(first) and extensions(port 53)"],
        &["fragment(later)"],
    );
    // A fragment header around a whole packet (RFC 6946).
    check(
        LinkType::ETHERNET,
        &ether(0x86dd, &ipv6(44, &header(0))),
        &["extensions(port 53)"],
        &["fragment()"],
    );
}
