//! Keys that leave something out: flows merge, and their sums are those of the flows that were merged.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use crate::support::*;
use serde_json::Value;

/// Protocol, source, destination and their ports.
type Key = (u64, IpAddr, IpAddr, u64, u64);

/// Packets and bytes of the records of a file, by this field.
fn sums(path: &Path, key: &str) -> BTreeMap<Key, (u64, u64)> {
    let name = path.to_str().expect("our names are UTF-8");
    let finished = run(["probe", "-r", name, "--export", "json:-", "--key", key]);
    let text = String::from_utf8_lossy(&finished.stdout).into_owned();
    let mut sums = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let record: Value = serde_json::from_str(line).expect("an object a line");
        let number = |name: &str| record[name].as_u64().unwrap_or(0);
        let address = |v4: &str, v6: &str| {
            let text = record[v4].as_str().or(record[v6].as_str()).expect("an address");
            text.parse::<IpAddr>().expect("an address")
        };
        let key = (
            number("protocolIdentifier"),
            address("sourceIPv4Address", "sourceIPv6Address"),
            address("destinationIPv4Address", "destinationIPv6Address"),
            number("sourceTransportPort"),
            number("destinationTransportPort"),
        );
        let sum: &mut (u64, u64) = sums.entry(key).or_default();
        *sum = (sum.0 + number("packetDeltaCount"), sum.1 + number("octetDeltaCount"));
    }
    sums
}

fn merged(sums: &BTreeMap<Key, (u64, u64)>, rule: fn(Key) -> Key) -> BTreeMap<Key, (u64, u64)> {
    let mut merged: BTreeMap<Key, (u64, u64)> = BTreeMap::new();
    for (key, (packets, bytes)) in sums {
        let sum = merged.entry(rule(*key)).or_default();
        *sum = (sum.0 + packets, sum.1 + bytes);
    }
    merged
}

/// The address with these leading bits, and zeros.
fn network(address: IpAddr, v4: u32, v6: u32) -> IpAddr {
    match address {
        IpAddr::V4(address) => IpAddr::V4((u32::from(address) >> (32 - v4) << (32 - v4)).into()),
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> (128 - v6) << (128 - v6)).into()),
    }
}

fn without_client_port((protocol, source, destination, from, to): Key) -> Key {
    let has_ports = [6, 17, 132].contains(&protocol);
    match has_ports {
        true if from > to => (protocol, source, destination, 0, to),
        true if from < to => (protocol, source, destination, from, 0),
        _ => (protocol, source, destination, from, to),
    }
}

/// The name of a rule, and the key that it gives a flow.
type Rule = (&'static str, fn(Key) -> Key);

#[test]
fn merged_flows_have_the_sums_of_theirs() {
    let Some(captures) = captures_or_skip("merged_flows_have_the_sums_of_theirs") else { return };
    let rules: [Rule; 5] = [
        ("no-ports", |(protocol, source, destination, ..)| (protocol, source, destination, 0, 0)),
        ("no-protocol", |(_, source, destination, ..)| (0, source, destination, 0, 0)),
        ("no-client-port", without_client_port),
        ("ipv4/24,ipv6/48", |(protocol, source, destination, from, to)| {
            (protocol, network(source, 24, 48), network(destination, 24, 48), from, to)
        }),
        ("no-client-port,ipv4/16", |key| {
            let (protocol, source, destination, from, to) = without_client_port(key);
            (protocol, network(source, 16, 128), network(destination, 16, 128), from, to)
        }),
    ];
    let (mut before, mut after) = (0, [0; 5]);
    let chosen = captures.iter().filter(|path| {
        let name = path.to_string_lossy();
        ["dns", "http", "tls", "ipv6", "frag", "icmp", "vlan"].iter().any(|word| name.contains(word))
    });
    for path in thinned(chosen, 3) {
        let whole = sums(path, "none");
        before += whole.len();
        for (at, (key, rule)) in rules.iter().enumerate() {
            let wanted = merged(&whole, *rule);
            assert_eq!(sums(path, key), wanted, "--key {key} {}", path.display());
            after[at] += wanted.len();
        }
    }
    assert!(before > 100 && after.iter().all(|count| *count < before), "{before}, {after:?}");
}

/// Several connections are one flow: none of them ends it, and what is known of one of them is refused.
#[test]
fn merged_flows_outlive_their_connections() {
    let folder = tempfile::tempdir().expect("there is room");
    let path = folder.path().join("in.pcap");
    let name = path.to_str().expect("our names are UTF-8");
    run([
        "generate",
        "-w",
        name,
        "tcp",
        "flows=50",
        "count=2000",
        "seed=3",
        "src=10.0.0.0/24",
        "dst=10.1.0.1",
    ])
    .succeeded();
    let flows = |key: &str| {
        let finished = run(["probe", "-r", name, "--key", key, "--json"]).succeeded();
        let text = String::from_utf8_lossy(&finished.stdout).into_owned();
        let results: Value = serde_json::from_str(text.lines().next().expect("results")).expect("an object");
        let account: Value = serde_json::from_str(text.lines().last().expect("account")).expect("an object");
        assert_eq!(account["account"]["balanced"], true);
        let meter = &results["results"]["meter"][0];
        (meter["flows"].as_u64().expect("a number"), meter["packets"].as_u64().expect("a number"))
    };
    let (whole, packets) = flows("none");
    assert!(whole >= 50, "{whole}");
    assert_eq!(flows("no-ports,ipv4/8"), (1, packets));
    run(["probe", "-r", name, "--key", "no-ports", "--details", "tcp,sizes"])
        .failed_saying(&["have no tcp in common", "leave these details out"]);
    run(["probe", "-r", name, "--key", "ipv4/33"])
        .failed_saying(&["unknown field `ipv4/33` of the key", "ipv6/64"]);
}
