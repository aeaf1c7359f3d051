//! Other link types than Ethernet.

use tapline_packet::LinkType;

use super::frames::{arp, ether, ipv4, ipv6, tcp, udp};
use super::{accepts, check, options, program};
use crate::options::{HandleKind, Options};

fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

#[test]
fn raw_ip_goes_by_its_version() {
    check(
        LinkType::RAW,
        &ipv4(6, &tcp(1, 80)),
        &["ip", "tcp port 80", "host 10.0.0.1", "net 10", "ip[0] = 0x45"],
        &["ip6", "arp", "udp"],
    );
    check(
        LinkType::RAW,
        &ipv6(17, &udp(1, 53)),
        &["ip6", "udp port 53", "ip6[6] = 17"],
        &["ip", "ether proto 2048"],
    );
    check(LinkType::IPV4, &ipv4(6, &tcp(1, 80)), &["ip", "tcp port 80", "not ip6"], &[]);
    check(LinkType::IPV6, &ipv6(6, &tcp(1, 80)), &["ip6", "tcp port 80"], &[]);
}

#[test]
fn files_have_loopback_families_of_all_systems() {
    for family in [24u32, 28, 30] {
        for head in [family.to_be_bytes(), family.to_le_bytes()] {
            check(LinkType::NULL, &join(&[&head, &ipv6(6, &tcp(1, 80))]), &["ip6", "tcp port 80"], &["ip"]);
        }
        check(LinkType::LOOP, &join(&[&family.to_be_bytes(), &ipv6(6, &tcp(1, 80))]), &["ip6"], &["ip"]);
    }
    for head in [[2, 0, 0, 0], [0, 0, 0, 2]] {
        check(
            LinkType::NULL,
            &join(&[&head, &ipv4(6, &tcp(1, 80))]),
            &["ip", "tcp port 80"],
            &["ip6", "arp"],
        );
        check(
            LinkType::ENC,
            &join(&[&head, &[0; 8], &ipv4(6, &tcp(1, 80))]),
            &["ip", "tcp port 80"],
            &["ip6"],
        );
    }
    let dead = Options { handle: HandleKind::Dead, ..options(LinkType::NULL) };
    let here = 10u32.to_ne_bytes();
    assert!(accepts(&program("ip6", &dead), &join(&[&here, &ipv6(6, &[])]), 44));
}

#[test]
fn cooked_captures_have_a_type_and_a_direction() {
    let sll = |kind: u8, protocol: u16, payload: &[u8]| {
        join(&[&[0, kind, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0], &protocol.to_be_bytes(), payload])
    };
    check(
        LinkType::LINUX_SLL,
        &sll(4, 0x0800, &ipv4(6, &tcp(1, 80))),
        &["ip", "tcp port 80", "outbound"],
        &["inbound", "ip6"],
    );
    check(
        LinkType::LINUX_SLL,
        &sll(0, 0x0806, &arp([10, 0, 0, 1], [10, 0, 0, 2])),
        &["arp host 10.0.0.1", "inbound"],
        &["ip"],
    );
    check(LinkType::LINUX_SLL, &sll(0, 4, &[0xfe, 0xfe, 3, 0x83]), &["iso", "ether proto 0xfe"], &["stp"]);
    check(LinkType::LINUX_SLL, &sll(0, 4, &[0x42, 0x42, 3, 0x83]), &["stp"], &["iso", "ipx"]);
    check(LinkType::LINUX_SLL, &sll(0, 1, &[0xff, 0xff]), &["ipx"], &["stp"]);
    let sll2 = join(&[&[8, 0, 0, 0, 0, 0, 0, 7, 0, 1, 4, 6, 2, 0, 0, 0, 0, 1, 0, 0], &ipv4(6, &tcp(1, 80))]);
    check(
        LinkType::LINUX_SLL2,
        &sll2,
        &["ip", "tcp port 80", "outbound", "ifindex 7"],
        &["inbound", "ifindex 8", "arp"],
    );
}

/// A data frame: 802.11 header, 802.2 SNAP, payload.
fn wlan(control: [u8; 2], more: &[u8], ether_type: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![control[0], control[1], 0, 0];
    for address in [1, 2, 3] {
        frame.extend([2, 0, 0, 0, 0, address]);
    }
    frame.extend([0, 0]);
    frame.extend(more);
    frame.extend([0xaa, 0xaa, 3, 0, 0, 0]);
    frame.extend(ether_type.to_be_bytes());
    frame.extend(payload);
    frame
}

#[test]
fn wlan_headers_have_a_variable_length() {
    let payload = ipv4(6, &tcp(1, 80));
    let plain = wlan([0x08, 0], &[], 0x0800, &payload);
    check(
        LinkType::IEEE802_11,
        &plain,
        &["ip", "tcp port 80", "llc", "llc ui", "host 10.0.0.1", "type data"],
        &["arp", "type mgt"],
    );
    let qos = wlan([0x88, 0], &[0, 0], 0x0800, &payload);
    check(LinkType::IEEE802_11, &qos, &["ip", "tcp port 80", "subtype qos-data"], &["ip6"]);
    let beacon = wlan([0x80, 0], &[], 0x0800, &payload);
    check(LinkType::IEEE802_11, &beacon, &["type mgt subtype beacon", "not ip"], &["ip", "llc", "type data"]);

    let radiotap = |present: u32, fields: &[u8]| {
        let len = 8 + fields.len() as u16;
        join(&[&[0, 0], &len.to_le_bytes(), &present.to_le_bytes(), fields])
    };
    for (head, frame) in [
        (radiotap(0, &[]), &plain),
        (radiotap(0, &[]), &qos),
        (radiotap(2, &[0]), &qos),
        (radiotap(3, &[0; 9]), &plain),
    ] {
        check(
            LinkType::IEEE802_11_RADIOTAP,
            &join(&[&head, frame]),
            &["ip", "tcp port 80", "radio[0] = 0", "link[0] & 8 != 0"],
            &["arp"],
        );
    }
    // A negative index reaches back into the radio header.
    let head = radiotap(0, &[]);
    check(
        LinkType::IEEE802_11_RADIOTAP,
        &join(&[&head, &plain]),
        &["link[-6] = 8", "wlan[0 - 8:2] = 0"],
        &["link[-9] = 0"],
    );
    // With the flag for it, the payload is padded to four bytes.
    let padded = wlan([0x88, 0], &[0, 0, 0xee, 0xee], 0x0800, &payload);
    check(
        LinkType::IEEE802_11_RADIOTAP,
        &join(&[&radiotap(2, &[0x20, 0, 0, 0]), &padded]),
        &["ip", "tcp port 80"],
        &[],
    );
    check(LinkType::IEEE802_11_RADIOTAP, &join(&[&radiotap(2, &[0, 0, 0, 0]), &padded]), &[], &["ip"]);

    check(
        LinkType::IEEE802_11_AVS,
        &join(&[&[0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 0], &qos]),
        &["ip", "tcp port 80"],
        &["arp"],
    );
    check(LinkType::IEEE802_11_PRISM, &join(&[&[0; 144], &plain]), &["ip", "tcp port 80"], &["arp"]);
    check(
        LinkType::IEEE802_11_PRISM,
        &join(&[&[0x80, 0x21, 0x10, 1, 0, 0, 0, 8], &plain]),
        &["ip"],
        &["arp"],
    );
    let ppi = |dlt: u8| join(&[&[0, 0, 8, 0, dlt, 0, 0, 0], &plain]);
    check(LinkType::PPI, &ppi(105), &["ip", "tcp port 80", "type data", "greater 1"], &["arp"]);
    check(LinkType::PPI, &ppi(1), &[], &["ip", "greater 1", "not arp"]);
}

#[test]
fn wlan_addresses_depend_on_the_direction() {
    let frame = |to_from: u8| {
        let mut frame = wlan([0x08, to_from], &[2, 0, 0, 0, 0, 4], 0x0800, &[]);
        frame.truncate(60);
        frame
    };
    let at = |n: u8| format!("02:00:00:00:00:0{n}");
    for (to_from, destination, source) in [(0, 1, 2), (1, 3, 2), (2, 1, 3), (3, 3, 4)] {
        let texts = [
            format!("wlan src {}", at(source)),
            format!("wlan dst {}", at(destination)),
            format!("wlan host {}", at(source)),
            format!("dir {to_from}"),
        ];
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let wrong = format!("wlan src {}", at(destination));
        check(LinkType::IEEE802_11, &frame(to_from), &texts, &[&wrong]);
    }
    let addresses = [
        "wlan addr1 02:00:00:00:00:01",
        "wlan ra 020000000001",
        "wlan ta 020000000002",
        "wlan addr2 020000000002",
        "wlan addr3 020000000003",
    ];
    check(LinkType::IEEE802_11, &frame(3), &addresses, &["wlan addr4 020000000003"]);
    check(LinkType::IEEE802_11, &frame(3), &["wlan addr4 020000000004"], &[]);
    // An acknowledgement has one address; control frames have neither source nor destination.
    let ack = [0xd4, 0, 0, 0, 2, 0, 0, 0, 0, 1];
    check(
        LinkType::IEEE802_11,
        &ack,
        &["subtype ack", "wlan addr1 020000000001"],
        &["wlan ta 020000000001", "wlan host 020000000001", "multicast"],
    );
}

#[test]
fn ppp_and_hdlc_have_numbers_of_their_own() {
    let ppp = |protocol: u16| join(&[&[0xff, 3], &protocol.to_be_bytes(), &ipv4(6, &tcp(1, 80))]);
    check(LinkType::PPP, &ppp(0x21), &["ip", "tcp port 80"], &["ip6", "mpls"]);
    check(LinkType::PPP, &ppp(0x0281), &["mpls"], &["ip"]);
    check(LinkType::PPP_PPPD, &ppp(0x21), &["ip", "tcp port 80"], &["inbound", "outbound"]);
    check(LinkType::PPP_PPPD, &join(&[&[1, 3, 0, 0x21], &ipv4(6, &[])]), &["outbound"], &["inbound"]);
    check(
        LinkType::PPP_BSDOS,
        &join(&[&[0, 0, 0, 0, 0, 0, 0x2d], &[0; 17], &ipv4(6, &[])]),
        &["ip"],
        &["ip6"],
    );
    check(
        LinkType::C_HDLC,
        &join(&[&[0x0f, 0, 8, 0], &ipv4(6, &tcp(1, 80))]),
        &["ip", "tcp port 80"],
        &["iso"],
    );
    check(
        LinkType::C_HDLC,
        &[0x0f, 0, 0xfe, 0xfe, 3, 0x83, 27, 1, 0, 16],
        &["iso", "isis", "l2", "iih"],
        &["ip", "clnp", "l1"],
    );
    check(LinkType::FRELAY, &join(&[&[0, 0, 3, 0xcc], &[0; 20]]), &["ip"], &["ip6", "iso", "arp"]);
    check(LinkType::FRELAY, &[0, 0, 3, 0x83, 0], &["iso", "isis"], &["ip", "clnp"]);
}

#[test]
fn older_local_networks() {
    let snap = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
    let packet = ipv4(6, &tcp(1, 80));
    let fddi = join(&[&[0x57, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &snap, &packet]);
    check(
        LinkType::FDDI,
        &fddi,
        &["ip", "tcp port 80", "ether src 020000000002", "fddi dst 020000000001", "llc"],
        &["arp", "broadcast"],
    );
    let ring = join(&[&[0, 0x40, 2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &snap, &packet]);
    check(LinkType::IEEE802_5, &ring, &["ip", "tcp port 80", "tr src 020000000002"], &["multicast"]);
    let channel = join(&[&[0, 0, 2, 0, 0, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0, 2], &snap, &packet]);
    check(LinkType::IP_OVER_FC, &channel, &["ip", "tcp port 80", "ether src 020000000002"], &["arp"]);
    check(LinkType::ATM_RFC1483, &join(&[&snap, &packet]), &["ip", "tcp port 80", "llc ui"], &["arp"]);
    check(
        LinkType::ARCNET_BSD,
        &join(&[&[5, 0, 0xd4, 0, 0, 0], &packet]),
        &["ip", "link src $5", "broadcast", "tcp port 80"],
        &["arp", "link dst $5"],
    );
    check(LinkType::ARCNET_BSD, &[5, 0, 240, 0, 0, 0], &[], &["ip", "arp"]);
    check(
        LinkType::BACNET_MS_TP,
        &[0x55, 0xff, 0, 0xff, 7],
        &["broadcast", "link src $7", "link[3] = 255"],
        &["link dst $7"],
    );
    check(LinkType::LTALK, &[1, 2, 3], &["atalk", "not ip"], &[]);
}

#[test]
fn sun_atm_and_lan_emulation() {
    let llc = join(&[&[2, 0, 0, 5], &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &ipv4(6, &tcp(1, 80))]);
    check(
        LinkType::SUNATM,
        &llc,
        &["ip", "tcp port 80", "llc", "sc", "vci 5", "vci > 4", "vci (4 or 5)", "vpi 0", "vpi < 1"],
        &["lane", "metac", "vci != 5"],
    );
    let lane = join(&[&[1, 0, 0, 9, 0, 1], &ether(0x0800, &ipv4(6, &tcp(1, 80)))]);
    check(
        LinkType::SUNATM,
        &lane,
        &["lane", "lane and ip", "lane and tcp port 80", "lane and ether src 020000000002"],
        &["ip", "lane and arp"],
    );
    let control = join(&[&[1, 0, 0, 9, 0xff, 0], &ether(0x0800, &[])]);
    check(LinkType::SUNATM, &control, &["lane"], &["lane and ip"]);
    let setup = [0, 0, 0, 5, 9, 3, 0, 0, 0, 0x05];
    check(LinkType::SUNATM, &setup, &["connectmsg", "sc"], &["metaconnect", "oam"]);
    check(
        LinkType::SUNATM,
        &[0, 0, 0, 4, 0, 0, 0, 0, 0, 0],
        &["oam", "oamf4", "oamf4ec"],
        &["oamf4sc", "connectmsg"],
    );
}

#[test]
fn ss7_fields_are_little_endian() {
    // DPC 0x1234, OPC 0x2345, SLS 9 after SIO 0x83 and a length of 5.
    let label = (0x1234u32 | 0x2345 << 14 | 9 << 28).to_le_bytes();
    let unit = join(&[&[0, 0, 5, 0x83], &label]);
    check(
        LinkType::MTP2,
        &unit,
        &[
            "msu",
            "sio 131",
            "dpc 0x1234",
            "opc 0x2345",
            "sls 9",
            "sio > 130",
            "sio != 5",
            "dpc (1 or 0x1234)",
        ],
        &["fisu", "lssu", "dpc 0x1235", "opc 0x1234", "sls 8", "sio != 131"],
    );
    check(LinkType::MTP2, &[0, 0, 0], &["fisu"], &["msu", "lssu"]);
    check(LinkType::MTP2, &[0, 0, 0xc2], &["lssu"], &["msu", "fisu"]);
    check(LinkType::MTP2_WITH_PHDR, &join(&[&[0; 4], &unit]), &["msu", "opc 0x2345"], &["fisu"]);
    let fast = join(&[&[0, 0, 0, 0, 0x80 >> 1 | 0x80, 0x80, 0x83], &label]);
    check(
        LinkType::MTP2,
        &fast,
        &["hmsu", "hsio 131", "hdpc 0x1234", "hopc 0x2345", "hsls 9"],
        &["hfisu", "hlssu"],
    );
}

#[test]
fn pf_logs() {
    let mut log = vec![61, 2, 1, 4];
    log.extend(b"em0\0\0\0\0\0\0\0\0\0\0\0\0\0rules\0\0\0\0\0\0\0\0\0\0\0");
    log.extend([0, 0, 0, 7, 0, 0, 0, 8]);
    log.resize(60, 0);
    log.extend([1, 0, 0, 0]);
    log.extend(ipv4(6, &tcp(1, 80)));
    check(
        LinkType::PFLOG,
        &log,
        &[
            "ip",
            "tcp port 80",
            "ifname em0",
            "on em",
            "ruleset rules",
            "rnr 7",
            "srnr 8",
            "reason normalize",
            "reason 4",
            "action block",
            "action DROP",
            "inbound",
        ],
        &["ip6", "ifname em1", "rulenum 8", "reason match", "action pass", "outbound"],
    );
    log[1] = 28;
    check(LinkType::PFLOG, &log, &["ip6"], &["ip"]);
}

#[test]
fn juniper_and_others_by_magic_type_or_bytes() {
    let juniper = [0x4d, 0x47, 0x43, 0x81, 0, 0, 0, 0];
    check(LinkType::JUNIPER_PPP, &juniper, &["ip", "arp", "inbound"], &["outbound"]);
    check(LinkType::JUNIPER_PPP, &[0x4d, 0x47, 0x44, 0x80], &["outbound"], &["ip"]);
    check(
        LinkType::IPNET,
        &join(&[&[1, 26, 0, 1], &[0; 20], &ipv6(6, &tcp(1, 80))]),
        &["ip6", "outbound", "tcp port 80"],
        &["ip", "inbound"],
    );
    check(LinkType::SLIP, &join(&[&[1], &[0x45; 30]]), &["outbound"], &["inbound"]);
    check(
        LinkType::NETANALYZER,
        &join(&[&[0; 4], &ether(0x0800, &ipv4(6, &tcp(1, 80)))]),
        &["ip", "tcp port 80", "ether src 020000000002"],
        &["arp"],
    );
    check(
        LinkType::USB_LINUX,
        &[7, 8, 9],
        &["link[1] = 8", "ether[2] = 9", "less 3", "byte 0 = 7"],
        &["link[3] = 0"],
    );
    let tagged =
        join(&[&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &[0x40, 0, 0, 0], &[8, 0], &ipv4(6, &tcp(1, 80))]);
    check(
        LinkType::DSA_TAG_DSA,
        &tagged,
        &["ip", "tcp port 80", "outbound", "ether src 020000000002"],
        &["inbound", "arp"],
    );
}
