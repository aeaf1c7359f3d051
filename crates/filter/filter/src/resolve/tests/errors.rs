//! Refused filters: the words of each error, and the place that it marks.

use tapline_packet::LinkType;

use super::options;
use crate::options::{HandleKind, Options};
use crate::{Error, compile};

fn error(link_type: LinkType, text: &str) -> Error {
    match compile(text, &options(link_type)) {
        Ok(_) => panic!("{text:?} compiles"),
        Err(error) => error,
    }
}

#[test]
fn messages_begin_as_those_of_libpcap() {
    for (text, message) in [
        ("tcp and 80", "syntax error in filter expression"),
        ("(tcp port 80) or 443", "syntax error in filter expression"),
        ("len = 5 and foo", "syntax error in filter expression"),
        ("host nowhere", "unknown host 'nowhere'"),
        ("ip6 host old", "unknown host 'old' for specified address family"),
        ("ether host nowhere", "unknown Ethernet-like host 'nowhere'"),
        ("net nowhere", "unknown network 'nowhere'"),
        ("net none", "unknown network 'none'"),
        ("port nothing", "unknown port 'nothing'"),
        ("tcp port log", "port 'log' is udp"),
        ("udp port web", "port 'web' is tcp"),
        ("sctp port web", "port 'web' is tcp"),
        ("tcp portrange log-log", "port in range 'log-log' is udp"),
        ("port 65536", "illegal port number 65536 > 65535"),
        ("portrange 1-65536", "illegal port number 65536 > 65535"),
        ("portrange web", "port range 'web' contains no hyphen"),
        ("portrange 1-2-3", "port range '1-2-3' contains more than one hyphen"),
        ("portrange 1-nothing", "'nothing' is not a valid port"),
        ("ip port 80", "'ip' is not a valid qualifier for 'port'"),
        ("src 10.0.0.0/8", "'host' is not a valid qualifier for '10.0.0.0/8'"),
        ("net 10.0.0.1/8", "non-network bits set in \"10.0.0.1/8\""),
        ("net 10.0.0.1 mask 255.0.0.0", "non-network bits set in \"10.0.0.1 mask 255.0.0.0\""),
        ("net 10.0.0.0/33", "mask length must be <= 32"),
        ("net 2001:db8::1/32", "non-network bits set in \"2001:db8::1/32\""),
        ("net ::/129", "mask length must be <= 128"),
        ("host 2001:db8::/32", "'host' is not a valid qualifier for '2001:db8::/32'"),
        ("host 10.0.0.256", "invalid IPv4 address '10.0.0.256'"),
        ("port 10.0.0.1", "'port' qualifier applied to IPv4 address"),
        ("proto 10.0.0.0/8", "'proto' qualifier applied to IPv4 address and prefix length"),
        ("portrange 10.0.0.0 mask 255.0.0.0", "'portrange' qualifier applied to IPv4 address and netmask"),
        ("port ::1", "'port' qualifier applied to IPv6 address"),
        ("host 00:11:22:33:44:55", "Ethernet address used in non-ether expression"),
        ("ether host 10.0.0.1", "illegal link-layer address '10.0.0.1'"),
        ("link host $5", "'link host $XX' not supported on DLT_EN10MB (Ethernet)"),
        ("ra host 10.0.0.1", "'ra' is valid for 802.11 syntax only"),
        ("addr1 port 80", "'addr1' is not a valid qualifier for 'port'"),
        ("tcp host 10.0.0.1", "'tcp' is not a valid qualifier for 'ip host'"),
        ("ip net ::/0", "'ip' is not a valid qualifier for 'ip6 net'"),
        ("tcp broadcast", "'tcp' is not a valid qualifier for 'broadcast'"),
        ("tcp proto 6", "'tcp' is not a valid qualifier for 'proto'"),
        ("ip proto 300", "protocol number 300 greater than maximum 255"),
        ("ip proto \\nothing", "unknown 'ip proto' value 'nothing'"),
        ("proto nothing", "unknown 'proto' value 'nothing'"),
        ("ether proto 65536", "EtherType 65536 greater than maximum 65535"),
        ("ether proto 1500", "LLC DSAP 1500 greater than maximum 255"),
        ("isis proto 32", "IS-IS PDU type 32 greater than maximum 31"),
        ("decnet host 64.1", "invalid DECnet address '64.1'"),
        ("decnet net 1.1", "'decnet' is not a valid qualifier for 'net'"),
        ("gateway 10.0.0.1", "'gateway' requires a name"),
        ("mpls and gateway router", "'gateway' cannot be used within MPLS"),
        ("tcp[0:3] = 1", "data size must be 1, 2, or 4"),
        ("ah[0] = 1", "'ah' does not support the index operation"),
        ("radio", "'radio' cannot be used as an abbreviation"),
        ("radio[0] = 1", "radio information not present in capture"),
        ("ip[8] / 0 = 1", "division by zero"),
        ("ip[8] % (1 - 1) = 1", "modulus by zero"),
        ("1 << 32 = 0", "shift by more than 31 bits"),
        ("ip[0] << (16 + 16) = 0", "shift by more than 31 bits"),
        ("1 / ip[0] = 1", "division by zero"),
        ("vlan 4096", "VLAN tag 4096 greater than maximum 4095"),
        ("mpls 1048576", "MPLS label 1048576 greater than maximum 1048575"),
        ("pppoes 65536", "PPPoE session number 65536 greater than maximum 65535"),
        ("geneve 16777216", "Geneve VNI 16777216 greater than maximum 16777215"),
        ("mpls and arp", "unsupported protocol over mpls"),
        ("mpls and vlan", "no VLAN match after MPLS"),
        ("pppoes and vlan", "'vlan' not supported on DLT_PPP (PPP)"),
        ("inbound", "not a live capture, 'inbound' not supported on DLT_EN10MB (Ethernet)"),
        ("ifindex 1", "not a live capture, 'ifindex' not supported on DLT_EN10MB (Ethernet)"),
        ("type mgt", "'type/subtype' not supported on DLT_EN10MB (Ethernet)"),
        ("ifname em0", "'ifname' supported only on PFLOG linktype"),
        ("lane", "'lane' supported only on SUNATM"),
        ("hopc 1", "'hopc' supported only on SS7"),
        ("byte 0 = 256", "byte argument 256 greater than maximum 255"),
        ("llc foo", "unknown LLC type name \"foo\""),
        ("ip and arp", "expression rejects all packets"),
        ("icmp and vlan", "expression rejects all packets"),
        ("ip6 and tcp[13] = 2", "expression rejects all packets"),
    ] {
        assert_eq!(error(LinkType::ETHERNET, text).message, message, "{text}");
    }
}

#[test]
fn the_place_is_marked() {
    for (text, rendered) in [
        ("tcp port 99999 or udp", "  tcp port 99999 or udp\n           ^^^^^"),
        ("host a and host nowhere", "  host a and host nowhere\n       ^"),
        ("ip and (tcp[0:3] = 1)", "  ip and (tcp[0:3] = 1)\n          ^^^^^^^^"),
        ("tcp and", "  tcp and\n         ^"),
    ] {
        assert!(error(LinkType::ETHERNET, text).render(text).contains(rendered), "{text}");
    }
}

#[test]
fn tests_unknown_on_a_link_type_are_refused() {
    for (link_type, text, message) in [
        (
            LinkType::RAW,
            "ether host 00:11:22:33:44:55",
            "'link host XX:XX:XX:XX:XX:XX' not supported on DLT_RAW (Raw IP)",
        ),
        (LinkType::RAW, "broadcast", "'broadcast' not supported on DLT_RAW (Raw IP)"),
        (LinkType::RAW, "vlan", "'vlan' not supported on DLT_RAW (Raw IP)"),
        (LinkType::PPI, "vlan", "'vlan' not supported on DLT_PPI (Per-Packet Information)"),
        (LinkType::LINUX_SLL, "mpls", "'mpls' not supported on DLT_LINUX_SLL (Linux cooked v1)"),
        (LinkType::IEEE802_11, "protochain 6", "'protochain' not supported with variable length headers"),
        (LinkType(13), "ip", "unknown data link type 13"),
    ] {
        assert_eq!(error(link_type, text).message, message, "{text}");
    }
    let bytes_only = error(LinkType::USB_LINUX, "ip").message;
    assert!(
        bytes_only.starts_with("link-layer type filtering not implemented for DLT_USB_LINUX"),
        "{bytes_only}"
    );
}

#[test]
fn options_can_be_at_fault() {
    let refuse = |text: &str, options: Options| compile(text, &options).expect_err("an error").message;
    let unknown = Options { netmask: None, ..options(LinkType::ETHERNET) };
    assert_eq!(refuse("ip broadcast", unknown), "netmask not known, so 'ip broadcast' not supported");
    assert_eq!(
        refuse("ip", Options { snap_len: 0, ..Options::default() }),
        "snaplen of 0 rejects all packets"
    );
    let live = Options { handle: HandleKind::Live, ..options(LinkType::ETHERNET) };
    assert!(compile("vlan and ip6 protochain 6", &Options { optimise: false, ..live.clone() }).is_err());
    assert!(compile("inbound", &live).is_ok());
    let dropped = Options { handle: HandleKind::Dropped, ..options(LinkType::RAW) };
    for word in ["inbound", "outbound"] {
        let text = format!("udp and not {word}");
        assert_eq!(
            refuse(&text, dropped.clone()),
            format!("'{word}' not supported on packets that the kernel dropped")
        );
    }
    assert!(compile("ifindex 3 and udp port 53", &dropped).is_ok());
}

#[test]
fn without_the_optimiser_contradictions_pass() {
    let plain = Options { optimise: false, ..options(LinkType::ETHERNET) };
    for text in ["ip and arp", "ip[8] / (1 - 1) = 1", "ip[0] << (16 + 16) = 0", "ip[-1] = 0"] {
        assert!(compile(text, &plain).is_ok(), "{text}");
    }
    assert_eq!(compile("ip[8] / 0 = 1", &plain).expect_err("an error").message, "division by zero");
}

#[test]
fn cells_run_out() {
    let tunnels = ["geneve"; 6].join(" and ");
    assert_eq!(
        error(LinkType::ETHERNET, &tunnels).message,
        "too many registers needed to evaluate expression"
    );
    let nested = format!("{}1{} = 1", "ip[0] + (ip[1] + (".repeat(9), "))".repeat(9));
    assert_eq!(
        error(LinkType::ETHERNET, &nested).message,
        "too many registers needed to evaluate expression"
    );
}

#[test]
fn no_text_makes_it_panic() {
    let words = [
        "ip",
        "tcp",
        "host",
        "port",
        "and",
        "or",
        "not",
        "(",
        ")",
        "[",
        "]",
        ":",
        "1",
        "10.0.0.1",
        "::1",
        "vlan",
        "mpls",
        "geneve",
        "-",
        "+",
        "/",
        "=",
        ">",
        "net",
        "src",
        "ether",
        "0",
        "4294967295",
        "00:11:22:33:44:55",
        "\\",
        "$",
        "é",
        "len",
        "portrange",
        "1-2",
        "type",
        "dir",
        "%",
        "protochain",
        "gateway",
        "x",
        "mask",
        "vpi",
        "byte",
        "&",
        "pppoes",
    ];
    let mut seed = 1u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below
    };
    let link_types: Vec<LinkType> = LinkType::all().collect();
    let handles = [HandleKind::Savefile, HandleKind::Live, HandleKind::Dead];
    for _ in 0..20_000 {
        let text: Vec<&str> = (0..1 + random(9)).map(|_| words[random(words.len())]).collect();
        let text = text.join(if random(4) == 0 { "" } else { " " });
        let options = Options {
            handle: handles[random(3)],
            optimise: random(2) == 0,
            ..options(link_types[random(link_types.len())])
        };
        match compile(&text, &options) {
            Ok(program) => assert!(!program.insns().is_empty()),
            Err(error) => assert!(!error.render(&text).is_empty()),
        }
    }
}
