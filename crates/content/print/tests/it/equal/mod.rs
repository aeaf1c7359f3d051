//! The text of made packets against that of the installed tcpdump: for each link type and protocol of `seeds.txt` the
//! packets as they are, cut at every length, and changed at random, at each verbosity.
//!
//! `cargo test -p tapline-print --test it equal:: -- --nocapture` prints how many packets each test compared.

mod seeds;

use crate::captures;
use std::process::Command;

use crate::captures::{Random, Recorded};
use seeds::Seed;
use tapline_packet::{Interface, Meta};
use tapline_print::{HexStyle, Options, Printer, TimeStyle, json};
use tapline_testkit::surroundings::program_or_skip;

/// Flags of tcpdump with which each packet is printed.
const FLAGS: [&str; 8] = ["-n", "-nv", "-nvv", "-nvvv", "-nvvvv", "-ne", "-nevv", "-nq"];

/// Number of changed variants of each seed.
const CHANGES: usize = 150;

/// Words of protocols that tcpdump prints in more detail than we do; packets that become them by a change do not count.
const ELSEWHERE: [&str; 6] = ["CLNP", "clnp", "ES-IS", "IS-IS", "isis", "> 0.0.0: at-"];

/// Differences that a failing test shows.
const SHOWN: usize = 5;

macro_rules! protocols {
    ($($name:ident)*) => { $(#[test] fn $name() { compare(stringify!($name)); })* };
}

protocols! {
    dsa edsa brcm_tag brcm_prepend chdlc frame_relay mfr ppi prism fddi slip slip_bsdos ipoib ipnet arcnet
    arcnet_linux vsock atm sunatm clip wpan wpan_fcs wpan_tap
    juniper_ggsn juniper_es juniper_monitor juniper_services juniper_pppoe juniper_ether juniper_ppp juniper_frelay
    juniper_chdlc juniper_pppoe_atm juniper_mlppp juniper_mfr juniper_mlfr juniper_atm1 juniper_atm2
    ptp lisp rpki babel olsr udld lsp_ping openflow openflow_packets openflow_frames configuration_test iso_carriers
}

/// Compares the packets of all seeds called `name` at each verbosity.
fn compare(name: &str) {
    if !program_or_skip(name, "tcpdump") {
        return;
    }
    let seeds = seeds::named(name);
    assert!(!seeds.is_empty(), "no seeds of {name}");
    let mut random = Random::new();
    let packets: Vec<Recorded> = seeds.iter().flat_map(|seed| variants(seed, &mut random)).collect();
    let link_type = packets[0].interface.link_type;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("made.pcap");
    std::fs::write(&path, captures::pcap(link_type, &packets)).expect("the file is written");
    let (mut differences, mut compared, mut left_out) = (Vec::new(), 0, 0);
    for flags in FLAGS {
        // A frame that is cut within a message leaves tcpdump less verbose for all packets that follow.
        if name == "openflow_packets" && flags.contains("vvv") {
            continue;
        }
        let output = Command::new("tcpdump")
            .env("TZ", "UTC")
            .args([flags, "-t", "-#", "-r"])
            .arg(&path)
            .output()
            .expect("tcpdump runs");
        let (them, ours) = (by_packet(&output.stdout), by_packet(&printed(flags, &packets)));
        assert_eq!(them.len(), packets.len(), "{name} {flags}: {}", String::from_utf8_lossy(&output.stderr));
        for (index, (them, ours)) in them.iter().zip(&ours).enumerate() {
            if them != ours && ELSEWHERE.iter().any(|word| them.contains(word)) {
                left_out += 1;
                continue;
            }
            compared += 1;
            if them != ours {
                let Recorded { data, meta, .. } = &packets[index];
                let hex: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
                let wire_len = meta.wire_len;
                differences.push(format!("{flags} {hex} of {wire_len}\nthem {them}\nours {ours}\n"));
            }
        }
    }
    let equal = compared - differences.len();
    println!("{name}: {} packets, {equal} of {compared} texts equal, {left_out} left out", packets.len());
    let step = (differences.len() / SHOWN).max(1);
    let shown: String = differences.iter().step_by(step).cloned().collect();
    assert!(differences.is_empty(), "{name}: {} of {compared} texts differ\n{shown}", differences.len());
}

/// A seed as it is, cut at every length by the capture and on the wire, and changed.
fn variants(seed: &Seed, random: &mut Random) -> Vec<Recorded> {
    let Seed { frame, .. } = seed;
    let whole = frame.len();
    let mut packets = vec![recorded(seed, frame.clone(), whole), recorded(seed, frame.clone(), whole + 9)];
    if seed.changed.is_empty() {
        return packets;
    }
    for length in 1..whole {
        packets.push(recorded(seed, frame[..length].to_vec(), whole));
        packets.push(recorded(seed, frame[..length].to_vec(), length));
    }
    for change in 0..CHANGES {
        let mut data = frame.clone();
        let range = seed.changed.clone();
        for _ in 0..=random.next(3) {
            let at = range.start + random.next(range.len());
            data[at] = match random.next(6) {
                0 => 0,
                1 => 0xff,
                2 => data[at].wrapping_add(1),
                3 => data[at] ^ 1 << random.next(8),
                4 => random.next(16) as u8,
                _ => random.next(256) as u8,
            };
        }
        if change % 4 == 0 {
            data.truncate(1 + random.next(whole));
        }
        packets.push(recorded(seed, data, whole));
    }
    packets
}

fn recorded(seed: &Seed, data: Vec<u8>, wire_len: usize) -> Recorded {
    let meta = Meta { wire_len: wire_len as u32, ..Meta::default() };
    Recorded { data, meta, interface: Interface::new("", seed.link_type) }
}

fn printed(flags: &str, packets: &[Recorded]) -> Vec<u8> {
    let options = Options {
        port_names: false,
        link_header: flags.contains('e'),
        verbose: flags.matches('v').count() as u8,
        quiet: flags.contains('q'),
        time: TimeStyle::None,
        hex: HexStyle::None,
        number: true,
        ..Options::default()
    };
    let mut printer = Printer::new(options);
    let mut out = Vec::new();
    for Recorded { data, meta, interface } in packets {
        printer.print(tapline_packet::Packet { data, meta }, interface, &mut out);
    }
    out
}

/// The lines of each packet: its first one begins with its number.
fn by_packet(text: &[u8]) -> Vec<String> {
    let mut packets: Vec<String> = Vec::new();
    for line in String::from_utf8_lossy(text).split_inclusive('\n') {
        let number = format!("{:5}  ", packets.len() + 1);
        match packets.last_mut() {
            Some(last) if !line.starts_with(&number) => last.push_str(line),
            _ => packets.push(line.to_owned()),
        }
    }
    packets
}

/// The names of the layers that the JSON of the first packet of each test must have.
const LAYERS: &[(&str, &[&str])] = &[
    ("dsa", &["eth", "dsa", "ipv4", "udp"]),
    ("edsa", &["eth", "dsa", "ipv4", "udp"]),
    ("brcm_tag", &["eth", "broadcom_tag", "ipv4", "udp"]),
    ("brcm_prepend", &["broadcom_tag", "eth", "ipv4", "udp"]),
    ("chdlc", &["chdlc", "ipv4", "udp"]),
    ("frame_relay", &["frame_relay", "ipv4", "udp"]),
    ("mfr", &["mfr"]),
    ("ppi", &["ppi", "eth", "ipv4", "udp"]),
    ("prism", &["prism", "wlan", "llc", "snap", "ipv4", "udp"]),
    ("wpan", &["wpan"]),
    ("wpan_tap", &["wpan"]),
    ("fddi", &["fddi", "llc", "snap", "ipv4", "udp"]),
    ("slip", &["slip", "ipv4", "udp"]),
    ("ipoib", &["ipoib", "ipv4", "udp"]),
    ("ipnet", &["ipnet", "ipv4", "udp"]),
    ("arcnet", &["arcnet", "ipv4", "udp"]),
    ("arcnet_linux", &["arcnet", "ipv4", "udp"]),
    ("vsock", &["vsock"]),
    ("atm", &["llc", "snap", "ipv4", "udp"]),
    ("sunatm", &["atm", "llc", "snap", "ipv4", "udp"]),
    ("clip", &["llc", "snap", "ipv4", "udp"]),
    ("juniper_ether", &["juniper", "eth", "ipv4", "udp"]),
    ("juniper_ppp", &["juniper", "ppp", "ipv4", "udp"]),
    ("juniper_frelay", &["juniper", "frame_relay", "ipv4", "udp"]),
    ("juniper_chdlc", &["juniper", "chdlc", "ipv4", "udp"]),
    ("juniper_atm1", &["juniper"]),
    ("ptp", &["eth", "ipv4", "udp", "ptp"]),
    ("lisp", &["eth", "ipv4", "udp", "lisp"]),
    ("babel", &["eth", "ipv4", "udp", "babel"]),
    ("olsr", &["eth", "ipv4", "udp", "olsr"]),
    ("lsp_ping", &["eth", "ipv4", "udp", "lsp_ping"]),
    ("rpki", &["eth", "ipv4", "tcp", "rpki_rtr"]),
    ("openflow", &["eth", "ipv4", "tcp", "openflow"]),
    ("udld", &["eth", "llc", "snap", "udld"]),
];

#[test]
fn json_names_the_layers_and_is_json_when_changed() {
    let mut random = Random::new();
    for (name, expected) in LAYERS {
        let seeds = seeds::named(name);
        let first = recorded(&seeds[0], seeds[0].frame.clone(), seeds[0].frame.len());
        assert_eq!(&parsed(&first)["protocols"], &serde_json::json!(expected), "{name}");
        for packet in seeds.iter().flat_map(|seed| variants(seed, &mut random)) {
            parsed(&packet);
        }
    }
}

fn parsed(Recorded { data, meta, interface }: &Recorded) -> serde_json::Value {
    let mut line = Vec::new();
    json::packet(tapline_packet::Packet { data, meta }, interface, 1, &mut line);
    serde_json::from_slice(&line)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&line)))
}
