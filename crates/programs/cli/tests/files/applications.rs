//! Applications by content, compared with tshark on real captures: each that it finds on a usual port, and none where it
//! finds another.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::support::{captures_or_skip, program_or_skip, run};
use serde_json::Value;

/// Protocols of tshark, and our names.
const NAMES: [(&str, &str); 11] = [
    ("sip", "sip"),
    ("ftp", "ftp"),
    ("smtp", "smtp"),
    ("ntp", "ntp"),
    ("rdp", "ms-wbt-server"),
    ("rdpudp", "ms-wbt-server"),
    ("mysql", "mysql"),
    ("pgsql", "postgresql"),
    ("ldap", "ldap"),
    ("resp", "redis"),
    ("mqtt", "mqtt"),
];

/// Protocol and both ends of a flow, the lesser one first.
type Key = (u64, BTreeSet<(String, u64)>);

/// The protocols of each flow by tshark.
fn by_tshark(path: &Path) -> BTreeMap<Key, BTreeSet<&'static str>> {
    let fields = ["ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "tcp.srcport", "tcp.dstport", "udp.srcport"];
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(path).args(["-T", "fields", "-E", "occurrence=l", "-E", "separator=|"]);
    for field in fields.into_iter().chain(["udp.dstport", "frame.protocols"]) {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark starts");
    let mut flows: BTreeMap<Key, BTreeSet<&str>> = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let cells: Vec<&str> = line.split('|').collect();
        let [src, dst, src6, dst6, tcp_src, tcp_dst, udp_src, udp_dst, protocols] = cells[..] else {
            continue;
        };
        let either = |one: &'_ str, other: &'_ str| if one.is_empty() { other } else { one }.to_owned();
        let ports = (either(tcp_src, udp_src).parse(), either(tcp_dst, udp_dst).parse());
        let (Ok(from), Ok(to)) = ports else { continue };
        let key = (
            if tcp_src.is_empty() { 17 } else { 6 },
            [(either(src, src6), from), (either(dst, dst6), to)].into(),
        );
        let found = flows.entry(key).or_default();
        let known = |protocol: &str| NAMES.iter().find(|(name, _)| *name == protocol).map(|(_, ours)| *ours);
        found.extend(protocols.split(':').filter_map(known));
    }
    flows
}

/// The application of each flow, and whether it was found by content.
fn by_us(path: &Path) -> BTreeMap<Key, (String, bool)> {
    let words = ["probe", "--export", "json:-", "--biflow", "--details", "application"];
    let timeouts = ["--active-timeout", "80000h", "--idle-timeout", "80000h", "--closed-timeout", "80000h"];
    let finished = run(words.into_iter().chain(timeouts).chain(["-r", path.to_str().unwrap()])).succeeded();
    let mut flows: BTreeMap<Key, (String, bool)> = BTreeMap::new();
    for line in String::from_utf8(finished.stdout).expect("text").lines() {
        let row: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let end = |side: &str| {
            let address = [4, 6].map(|version| row[format!("{side}IPv{version}Address")].as_str());
            let port = row[format!("{side}TransportPort")].as_u64().unwrap();
            (address.into_iter().flatten().next().unwrap().to_owned(), port)
        };
        let key = (row["protocolIdentifier"].as_u64().unwrap(), [end("source"), end("destination")].into());
        let name = row["applicationName"].as_str().unwrap_or_default().to_owned();
        let is_content = row["applicationFoundBy"] == "content";
        assert_eq!(name.is_empty(), row["applicationFoundBy"].is_null(), "{line}");
        let known = flows.entry(key).or_insert_with(|| (name.clone(), is_content));
        if is_content && !known.1 {
            *known = (name, true);
        }
    }
    flows
}

#[test]
fn applications_are_those_of_tshark() {
    const TEST: &str = "applications_are_those_of_tshark";
    if !program_or_skip(TEST, "tshark") {
        return;
    }
    let Some(captures) = captures_or_skip(TEST) else { return };
    let words = [
        "sip",
        "ftp",
        "smtp",
        "ntp",
        "rdp",
        "mysql",
        "postgresql",
        "ldap",
        "redis",
        "pop3",
        "irc",
        "snmp",
        "krb",
    ];
    let (mut right, mut missed, mut others) = (BTreeMap::<&str, u32>::new(), Vec::new(), Vec::new());
    for path in captures {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !words.iter().any(|word| name.contains(word)) {
            continue;
        }
        let ours = by_us(&path);
        for (key, theirs) in by_tshark(&path) {
            let Some((application, is_content)) = ours.get(&key) else { continue };
            let mine = NAMES.iter().map(|(_, ours)| *ours).find(|name| *is_content && name == application);
            match (mine, theirs.is_empty()) {
                (Some(mine), _) if theirs.contains(mine) => *right.entry(mine).or_default() += 1,
                (Some(mine), true) => others.push(format!("{name} {key:?}: {mine}")),
                // tshark goes by the port.
                (Some("mysql"), false) if name == "postgresql-mysql-on-port-5432.pcap" => {}
                (Some(mine), false) => panic!("{name} {key:?}: {mine}, and tshark has {theirs:?}"),
                (None, false) => {
                    missed.push(format!("{name} {key:?}: {application}, and tshark has {theirs:?}"))
                }
                (None, true) => {}
            }
        }
    }
    eprintln!("right {right:?}, of us alone {others:#?}, missed {missed:#?}");
    for (application, least) in EXPECTED {
        assert!(right.get(application).is_some_and(|count| count >= &least), "{application}: {right:?}");
    }
    assert!(missed.len() <= MISSED_MAX, "{missed:#?}");
}

/// Flows that both find, at least.
const EXPECTED: [(&str, u32); 9] = [
    ("sip", 2),
    ("ftp", 7),
    ("smtp", 9),
    ("ntp", 21),
    ("ms-wbt-server", 4),
    ("mysql", 25),
    ("postgresql", 5),
    ("ldap", 22),
    ("redis", 11),
];
/// Flows that tshark names by their port, and whose first bytes are missing or are not of the protocol.
const MISSED_MAX: usize = 5;
