//! Programs are about as short as libpcap's optimised ones, and long filters compile in time that grows with their length.

use tapline_bpf::{Insn, code};
use tapline_filter::{Options, compile};
use tapline_testkit::libpcap::{Libpcap, Oracle, Settings};
use tapline_testkit::volume::processor_time;

/// Filters that people write; those that papers measure come first.
const FILTERS: [&str; 24] = [
    "ip",
    "udp",
    "src host 1.1.1.1 and dst host 2.2.2.2",
    "tcp port 10 or 20 or 30 or 40 or 50",
    "ip host (1.1.1.1 or 2.2.2.2 or 3.3.3.3 or 4.4.4.4 or 5.5.5.5 or 6.6.6.6 or 7.7.7.7 or 8.8.8.8 or 9.9.9.9 or \
     10.10.10.10) and tcp port (10 or 20 or 30 or 40 or 50 or 60 or 70 or 80 or 90 or 100)",
    "port 53",
    "host 10.0.0.1",
    "host 10.0.0.1 or host 10.0.0.2 or host 10.0.0.3",
    "net 10.0.0.0/8 and not port 22",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "tcp[tcpflags] == tcp-syn|tcp-ack and not src net 192.168.0.0/16",
    "icmp or arp",
    "icmp[icmptype] != icmp-echo and icmp[icmptype] != icmp-echoreply",
    "portrange 6000-6010",
    "vlan and ip",
    "vlan 100 and tcp port 443",
    "not broadcast and not multicast",
    "ip6 and udp port 53",
    "ether host 00:11:22:33:44:55 and not arp",
    "tcp port 80 and (((ip[2:2] - ((ip[0]&0xf)<<2)) - ((tcp[12]&0xf0)>>2)) != 0)",
    "greater 100 and less 1500",
    "mpls 1000 and host 10.0.0.1",
    "pppoes and ip",
    "(tcp or udp) and host 10.0.0.1 and port 5060",
];

fn longest(insns: &[Insn]) -> usize {
    let mut ways = vec![0; insns.len()];
    for (at, insn) in insns.iter().enumerate().rev() {
        let next = |skip: usize| ways[at + 1 + skip];
        ways[at] = 1 + match insn.class() {
            code::RET => 0,
            _ if insn.is_branch() => next(insn.jt.into()).max(next(insn.jf.into())),
            code::JMP => next(insn.k as usize),
            _ => next(0),
        };
    }
    ways[0]
}

fn theirs(oracle: &Oracle) -> Vec<Insn> {
    oracle.insns().to_vec()
}

#[test]
fn programs_are_about_as_short_as_libpcaps() {
    let pcap = match Libpcap::get() {
        Ok(pcap) => pcap,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    for text in FILTERS {
        let oracle = theirs(&pcap.compile(text, Settings::new(1)).expect(text));
        let ours = compile(text, &Options::default()).expect(text);
        let (ours, longest_ours) = (ours.insns().len(), longest(ours.insns()));
        let (oracle, longest_oracle) = (oracle.len(), longest(&oracle));
        let shown: String = text.chars().take(60).collect();
        eprintln!("{ours:3} ({longest_ours:2}) ours, {oracle:3} ({longest_oracle:2}) libpcap: {shown}");
        // Where a chain looks at two fields, one is loaded again: short packets must see the loads in the order of the text.
        assert!(ours <= oracle + 3 && longest_ours <= longest_oracle + 2, "{text}");
    }
}

fn hosts(count: u32) -> String {
    let host = |n: u32| format!("host 10.{}.{}.{}", n >> 16, (n >> 8) & 255, n & 255);
    (1..=count).map(host).collect::<Vec<_>>().join(" or ")
}

#[test]
fn compiling_takes_time_in_proportion() {
    let compiled = |text: String| processor_time(|| compile(&text, &Options::default()).expect("compiles"));
    let ((short, _), (long, program)) = (compiled(hosts(100)), compiled(hosts(1000)));
    eprintln!("100 hosts: {short:?}; 1,000 hosts: {long:?}, {} instructions", program.insns().len());
    // The square of the length would be 100 times.
    assert!(long < 40 * short, "{short:?}, {long:?}");
}
