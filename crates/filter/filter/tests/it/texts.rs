//! Any text at all: refused or compiled, quickly, and refused where libpcap refuses it.

use std::time::Duration;

use tapline_filter::{FixedNames, HandleKind, Options, compile};
use tapline_packet::LinkType;
use tapline_testkit::expressions::Expressions;
use tapline_testkit::libpcap::{CompileSettings, Libpcap};
use tapline_testkit::random::Random;
use tapline_testkit::volume::thread_time;

/// Names resolve without the system, so that random texts send no query.
fn options() -> Options {
    Options {
        netmask: Some(0),
        handle: HandleKind::Dead,
        resolver: std::sync::Arc::new(FixedNames::default()),
        ..Options::default()
    }
}

/// Pieces of the language, to be thrown together.
const PIECES: [&str; 64] = [
    "scoped(",
    "inner(",
    "anyvlan(",
    "extensions(",
    "fragment(later)",
    "gre",
    ",",
    "inner(vxlan 5,",
    "ip",
    "ip6",
    "tcp",
    "udp",
    "port",
    "host",
    "net",
    "src",
    "dst",
    "and",
    "or",
    "not",
    "!",
    "(",
    ")",
    "[",
    "]",
    ":",
    "=",
    "!=",
    "<",
    ">=",
    "&",
    "|",
    "^",
    "<<",
    "%",
    "/",
    "-",
    "*",
    "80",
    "0x7f",
    "017",
    "4294967295",
    "1.2.3.4",
    "10.0.0.0/8",
    "::1",
    "fe80::/10",
    "00:11:22:33:44:55",
    "\\tcp",
    "vlan",
    "mpls",
    "geneve",
    "vxlan",
    "pppoes",
    "len",
    "proto",
    "protochain",
    "broadcast",
    "portrange",
    "1-2",
    "mask",
    "llc",
    "ether",
    "gateway",
    "#",
];

/// Compiles on a few link types; a text of this size must not take more processor time than `limit`.
fn try_text(text: &str, limit: Duration) {
    for link_type in [LinkType::ETHERNET, LinkType(105), LinkType(9)] {
        let started = thread_time();
        let outcome = compile(text, &Options { link_type, ..options() });
        let elapsed = thread_time().saturating_sub(started);
        let shown: String = text.chars().take(200).collect();
        assert!(elapsed < limit, "{elapsed:?} for {shown:?}");
        if let Err(error) = outcome {
            assert!(!error.message.is_empty() && !error.render(text).is_empty(), "{shown:?}");
        }
    }
}

#[test]
fn random_texts_never_panic_or_hang() {
    let mut random = Random::new(31);
    for _ in 0..4000 {
        let len = random.below(60) as usize;
        try_text(&String::from_utf8_lossy(&random.bytes(len)), Duration::from_secs(2));
        let pieces: Vec<&str> = (0..random.below(25)).map(|_| *random.pick(&PIECES)).collect();
        try_text(&pieces.join(*random.pick(&[" ", " ", ""])), Duration::from_secs(2));
    }
}

/// Texts of 100,000 words and more: refused, or compiled in time that grows with their length, not faster.
#[test]
fn huge_texts_never_overflow_or_hang() {
    let limit = Duration::from_secs(60);
    for (piece, tail) in
        [("(", "ip"), ("not ", "ip"), ("-", "1 = 1"), ("ip[", "0"), ("!(", "arp"), ("\\", "a")]
    {
        try_text(&(piece.repeat(100_000) + tail), limit);
    }
    for piece in ["(", "not (", "scoped(", "extensions(", "anyvlan(", "inner(", "ip and scoped(not "] {
        try_text(&(piece.repeat(240) + "ip" + &")".repeat(240)), limit);
        try_text(&(piece.repeat(100_000) + "ip"), limit);
    }
    try_text(&("tcp port 80 or ".repeat(20_000) + "80"), limit);
    try_text(&("vlan and ".repeat(20_000) + "ip"), limit);
    try_text(&("1 + ".repeat(100_000) + "1 = 2"), limit);
    try_text(&"9".repeat(1_000_000), limit);
}

/// Texts that are wrong in one way each, and their neighbours that are right.
const CORPUS: [&str; 118] = [
    "",
    " ",
    "tcp",
    "TCP",
    "tcp port",
    "tcp port 80",
    "tcp port 80 or",
    "or tcp",
    "tcp tcp",
    "tcp and 80",
    "80",
    "port 80 and 443",
    "host",
    "host 1.2.3.4",
    "host 1.2.3.4.5",
    "host 1.2.3.256",
    "host 1.2",
    "host 1",
    "host ::1",
    "host 1::2::3",
    "host 1:2:3:4:5:6:7:8:9",
    "host 00:11:22:33:44:55",
    "ether host 00:11:22:33:44:55",
    "ether host 00:11:22:33:44",
    "ether host 001122334455",
    "ether host 1.2.3.4",
    "ip host ::1",
    "ip6 host 1.2.3.4",
    "net 10",
    "net 10.0.0.0/8",
    "net 10.0.0.1/8",
    "net 10.0.0.0/33",
    "net 10.0.0.0 mask 255.0.0.0",
    "net ::/0",
    "net 10.0.0.1 mask 255.0.0.0",
    "net fe80::/129",
    "net fe80::1/10",
    "net fe80:: mask ffff::",
    "src 10.0.0.0/8",
    "src net 10.0.0.0/8",
    "src 10.0.0.1",
    "src or dst 10.0.0.1",
    "src and 10.0.0.1",
    "src tcp",
    "dst port 80",
    "src dst port 80",
    "port 65535",
    "port 65536",
    "port -1",
    "port http",
    "tcp port http",
    "udp port ssh",
    "port nosuchservice",
    "ip port 80",
    "arp port 80",
    "icmp port 80",
    "portrange 1-2",
    "portrange 2-1",
    "portrange 1",
    "portrange 1-",
    "portrange -2",
    "proto 6",
    "ip proto 6",
    "ip proto tcp",
    "ip proto \\tcp",
    "ip proto \\nosuch",
    "ether proto \\ip",
    "ether proto ip",
    "ether proto 0x800",
    "tcp proto 6",
    "not tcp",
    "! tcp",
    "not",
    "not not tcp",
    "(tcp)",
    "(tcp",
    "tcp)",
    "()",
    "tcp or (udp and)",
    "ip[0] = 1",
    "ip[0:2] = 1",
    "ip[0:3] = 1",
    "ip[0:4] = 1",
    "ip[0:0] = 1",
    "ip[] = 1",
    "ip[0 = 1",
    "ip[0]",
    "ip[0] = ",
    "ip[0] == 1",
    "ip[0] =! 1",
    "ip[0] <> 1",
    "ip[0] =< 1",
    "ip[ip[0]] = 1",
    "ah[0] = 1",
    "vlan[0] = 1",
    "len = 5",
    "len",
    "less 5",
    "less",
    "greater -1",
    "5 = 5",
    "(5) = 5",
    "08 = 8",
    "0x = 1",
    "4294967295 = 1",
    "4294967296 = 1",
    "1 << 32 = 1",
    "1 / 0 = 1",
    "vlan 4095",
    "vlan 4096",
    "mpls 1048576",
    "mpls and arp",
    "pppoes 65536",
    "tcp #",
    "foo- and tcp",
    "\\ip",
    "host \\ip",
    "byte 5 = 255",
];

#[test]
fn the_corpus_is_refused_where_libpcap_refuses_it() {
    let pcap = match Libpcap::get() {
        Ok(pcap) => pcap,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let mut same = 0;
    let mut refused = 0;
    for text in CORPUS {
        for dlt in [1, 12, 105, 113] {
            let theirs = pcap.compile(text, CompileSettings::new(dlt));
            let link_type = LinkType::from_dlt(dlt as u16);
            let ours = compile(
                text,
                &Options { link_type, netmask: Some(0), handle: HandleKind::Dead, ..Options::default() },
            );
            assert_eq!(
                ours.as_ref().err().map(|error| &error.message).is_some(),
                theirs.is_err(),
                "{text:?} on DLT {dlt}: ours {:?}, libpcap {:?}",
                ours.as_ref().err(),
                theirs.as_ref().err()
            );
            if let (Err(ours), Err(theirs)) = (ours, theirs) {
                refused += 1;
                same += usize::from(theirs.starts_with(&ours.message) || ours.message.starts_with(&theirs));
            }
        }
    }
    eprintln!("{refused} refusals, {same} of them in the words of {}", pcap.version());
    assert!(same * 2 > refused, "only {same} of {refused} messages begin as libpcap's");
}

/// The program for a text is always the same, and with `optimise` never a longer one.
#[test]
fn programs_repeat_and_do_not_grow() {
    let mut stream = Expressions::new(33, 1);
    for _ in 0..500 {
        let text = stream.text();
        let Ok(program) = compile(&text, &options()) else { continue };
        assert_eq!(compile(&text, &options()), Ok(program.clone()), "{text}");
        let plain = compile(&text, &Options { optimise: false, ..options() }).expect("a part of the other");
        assert!(program.insns().len() <= plain.insns().len(), "{text}");
    }
}
