//! `tapline probe --details` compared with tshark, on real captures: names, fingerprints, windows and retransmissions
//! must be the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::{captures_or_skip, program_or_skip, run, thinned};
use serde_json::Value;
use tapline_testkit::capture_file::{ETHERNET, Unit, write_pcap};
use tapline_testkit::frames::application::http_get;
use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Tcp, flags};

/// A conversation: protocol, and its ends in ascending order.
type Key = (u64, (String, u64), (String, u64));
/// Details of a conversation, as one of the two programs reports them.
type DetailTexts = BTreeMap<&'static str, String>;

/// Texts of a packet that belong to the conversation as a whole, by tshark's field and ours.
const TEXTS: [(&str, &str); 9] = [
    ("tls.handshake.extensions_server_name", "tlsServerName"),
    ("tls.handshake.ja3", "tlsJa3"),
    ("dtls.handshake.extensions_server_name", "tlsServerName"),
    ("dtls.handshake.ja3", "tlsJa3"),
    ("http.request.method", "httpRequestMethod"),
    ("http.host", "httpRequestHost"),
    ("http.request.uri", "httpRequestTarget"),
    ("http.response.code", "httpStatusCode"),
    ("dns.qry.name", "dnsQueryName"),
];

/// Packets of a conversation that have a mark, of either side.
const MARKS: [(&str, &str); 5] = [
    ("tcp.analysis.zero_window", "zero"),
    ("tcp.analysis.retransmission", "again"),
    ("tcp.analysis.fast_retransmission", "again"),
    ("tcp.analysis.spurious_retransmission", "again"),
    ("tcp.analysis.out_of_order", "again"),
];

/// Captures of what is compared: all of QUIC, and some of the others.
fn captures(test: &str) -> Option<impl Iterator<Item = PathBuf>> {
    let named = |path: &PathBuf, words: &[&str]| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        words.iter().any(|word| name.contains(word))
    };
    let (quic, others): (Vec<_>, Vec<_>) =
        captures_or_skip(test)?.into_iter().partition(|path| named(path, &["quic"]));
    let others =
        others.into_iter().filter(move |path| named(path, &["tls", "ssl", "smtp", "tcp", "dns", "http"]));
    Some(quic.into_iter().chain(thinned(others, 4)))
}

fn key(protocol: u64, one: (String, u64), other: (String, u64)) -> Key {
    if one <= other { (protocol, one, other) } else { (protocol, other, one) }
}

fn by_tshark(path: &Path) -> BTreeMap<Key, DetailTexts> {
    let ends = [
        "ip.src",
        "ip.dst",
        "ipv6.src",
        "ipv6.dst",
        "tcp.srcport",
        "tcp.dstport",
        "udp.srcport",
        "udp.dstport",
    ];
    let fields: Vec<&str> =
        ends.into_iter().chain(TEXTS.map(|(field, _)| field)).chain(MARKS.map(|(field, _)| field)).collect();
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(path).args(["-T", "fields", "-E", "occurrence=f", "-E", "separator=|"]);
    fields.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let output = command.output().expect("tshark starts");
    let mut all: BTreeMap<Key, DetailTexts> = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let cells: Vec<&str> = line.split('|').collect();
        if cells.len() != fields.len() {
            continue;
        }
        let either = |one: usize, other: usize| if cells[one].is_empty() { cells[other] } else { cells[one] };
        let (Ok(from), Ok(to)) = (either(4, 6).parse(), either(5, 7).parse()) else { continue };
        let (source, destination) = (either(0, 2).to_owned(), either(1, 3).to_owned());
        let protocol = if cells[4].is_empty() { 17 } else { 6 };
        let told = all.entry(key(protocol, (source, from), (destination, to))).or_default();
        let (texts, marks) = cells[ends.len()..].split_at(TEXTS.len());
        for ((_, name), text) in TEXTS.iter().zip(texts).filter(|(_, text)| !text.is_empty()) {
            told.entry(name).or_insert_with(|| (*text).to_owned());
        }
        let mut marked: Vec<&str> = MARKS
            .iter()
            .zip(marks)
            .filter(|(_, cell)| !cell.is_empty())
            .map(|((_, name), _)| *name)
            .collect();
        marked.dedup();
        for name in marked {
            let name = if name == "zero" { "zero" } else { "again" };
            let count = told.get(name).and_then(|count| count.parse().ok()).unwrap_or(0_u64);
            told.insert(name, (count + 1).to_string());
        }
    }
    all
}

fn by_us(path: &Path) -> BTreeMap<Key, DetailTexts> {
    // One record a conversation, however long it is silent.
    let hours = "80000h";
    let timeouts = ["--active-timeout", hours, "--idle-timeout", hours, "--closed-timeout", hours];
    let words = [&["probe", "--export", "json:-", "--biflow", "--details", "tcp,tls,http,dns", "-r"][..]];
    let words = [&words.concat()[..], &[path.to_str().unwrap()], &timeouts].concat();
    let finished = run(words).succeeded();
    let mut all: BTreeMap<Key, DetailTexts> = BTreeMap::new();
    let mut twice = Vec::new();
    for line in String::from_utf8(finished.stdout).expect("text").lines() {
        let row: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let end = |side: &str| {
            let address = [4, 6].map(|version| row[format!("{side}IPv{version}Address")].as_str());
            let port = row[format!("{side}TransportPort")].as_u64().unwrap();
            (address.into_iter().flatten().next().unwrap().to_owned(), port)
        };
        let key = key(row["protocolIdentifier"].as_u64().unwrap(), end("source"), end("destination"));
        let mut told = DetailTexts::new();
        for (_, name) in TEXTS {
            match &row[name] {
                Value::String(text) => told.insert(name, text.clone()),
                Value::Number(number) => told.insert(name, number.to_string()),
                _ => None,
            };
        }
        let sum = |names: &[&str]| names.iter().filter_map(|name| row[*name].as_u64()).sum::<u64>();
        let again = [
            "tcpRetransmittedPackets",
            "tcpOutOfOrderPackets",
            "reverseTcpRetransmittedPackets",
            "reverseTcpOutOfOrderPackets",
        ];
        for (name, count) in
            [("zero", sum(&["tcpZeroWindowPackets", "reverseTcpZeroWindowPackets"])), ("again", sum(&again))]
        {
            if count > 0 {
                told.insert(name, count.to_string());
            }
        }
        if all.insert(key.clone(), told).is_some() {
            twice.push(key);
        }
    }
    // A port that was used again is several conversations.
    twice.iter().for_each(|key| {
        all.remove(key);
    });
    all
}

/// Details that both report are equal, and few are reported by one of them only: tshark alone looks for TLS behind a
/// gap, Tapline alone names requests on foreign ports and new methods.
#[test]
fn details_are_those_of_tshark() {
    const TEST: &str = "details_are_those_of_tshark";
    if !program_or_skip(TEST, "tshark") {
        return;
    }
    let Some(paths) = captures(TEST) else { return };
    let (mut both, mut one): (BTreeMap<&str, u32>, BTreeMap<&str, u32>) = Default::default();
    let mut differ = Vec::new();
    let names: BTreeSet<&str> = TEXTS.map(|(_, name)| name).into_iter().chain(["zero", "again"]).collect();
    for path in paths {
        let (theirs, ours) = (by_tshark(&path), by_us(&path));
        for (key, told) in &ours {
            let Some(theirs) = theirs.get(key) else { continue };
            for &name in &names {
                match (told.get(name), theirs.get(name)) {
                    (Some(ours), Some(theirs)) if ours == theirs => *both.entry(name).or_default() += 1,
                    (None, None) => {}
                    (Some(ours), Some(theirs)) => {
                        differ.push(format!("{path:?} {key:?} {name}: {ours}, {theirs}"))
                    }
                    _ => *one.entry(name).or_default() += 1,
                }
            }
        }
    }
    eprintln!("alike {both:?}, told by one of us {one:?}, different {differ:?}");
    for name in ["tlsServerName", "tlsJa3", "httpRequestHost", "httpStatusCode", "dnsQueryName", "again"] {
        let (alike, single) = (both.get(name).copied().unwrap_or(0), one.get(name).copied().unwrap_or(0));
        assert!(alike >= 5 && single * 4 <= alike, "{name}: {alike} alike, {single} of one");
    }
    assert!(differ.is_empty(), "{differ:#?}");
}

/// A handshake and a request, of which the first half is sent twice.
fn request(path: &Path) {
    let hosts = [Host::number(1), Host::number(2)];
    let get = http_get("www.example.org", "/");
    let turns: [(usize, u64, u8, u32, &[u8]); 6] = [
        (0, 0, flags::SYN, 0, b""),
        (1, 4, flags::SYN | flags::ACK, 0, b""),
        (0, 5, flags::ACK, 1, b""),
        (0, 6, flags::ACK, 1, &get[..20]),
        (0, 300, flags::ACK, 1, &get[..20]),
        (0, 301, flags::ACK, 21, &get[20..]),
    ];
    let frames = turns.map(|(sender, ms, flags, seq, payload)| {
        let (src, dst) = if sender == 0 { (50_000, 80) } else { (80, 50_000) };
        let tcp = Tcp { src, dst, seq, ack: 1, flags, window: 99, ..Tcp::default() };
        let pair = IpPair::between(&hosts[sender], &hosts[1 - sender], IpVersion::V4);
        let frame = Ethernet::between(&hosts[sender], &hosts[1 - sender]).ip(&tcp.packet(pair, payload));
        (Duration::from_millis(ms), frame)
    });
    let mut file = fs::File::create(path).unwrap();
    write_pcap(&mut file, ETHERNET, Unit::Nanoseconds, frames.into_iter()).unwrap();
}

/// Round trips, names and applications are in the table, where they are known.
#[test]
fn the_table_has_the_known_columns() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.pcap");
    request(&path);
    let row = |details: &str| {
        let finished =
            run(["probe", "-r", path.to_str().unwrap(), "--json", "--details", details]).succeeded();
        let text = String::from_utf8_lossy(&finished.stdout).into_owned();
        let results: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        results["results"]["top"][0].clone()
    };
    let columns = ["application", "name", "rtt_us", "again"];
    let rich = row("tcp,http,application");
    let wanted = serde_json::json!(["http", "www.example.org", 5000, 1]);
    assert_eq!(Value::from(columns.map(|column| rich[column].clone()).to_vec()), wanted, "{rich}");
    let plain = row("none");
    assert!(columns.iter().all(|column| plain[*column].is_null()), "{plain}");
}

#[test]
fn ambiguous_requests_are_refused() {
    run(["probe", "-r", "x", "--details", "quick"]).failed_saying(&["`quick`", "tls"]);
    run(["probe", "-r", "x", "--details", "tls", "--version", "5", "--export", "127.0.0.1:9"])
        .failed_saying(&["v5", "--version 10"]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.pcap").display().to_string();
    run(["generate", "-w", &path, "count=2"]).succeeded();
    run(["probe", "-r", &path, "--details", "tcp", "--version", "9", "--export", "127.0.0.1:9"])
        .failed_saying(&["NetFlow v9", "--version 10"]);
    let graph = format!("file(\"{path}\") -> flow -> flowlog(\"-\", template=\"default,tls\")");
    run(["run", "-e", &graph]).failed_saying(&["flow(details=\\\"tls\\\")".replace('\\', "").as_str()]);
}
