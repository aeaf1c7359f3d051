//! Filters with words for names of flows, in captures, stores and graphs; and scripts that decide.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::{Finished, run};
use serde_json::Value;
use tapline_testkit::capture_file::{ETHERNET, Unit, write_pcap};
use tapline_testkit::frames::application::{http_get, tls_client_hello};
use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Tcp, flags};

/// Eight connections of six packets, to four names by TLS and by HTTP in turn, side by side.
fn input(folder: &Path) -> PathBuf {
    let (a, b) = (Host::number(1), Host::number(2));
    let pair = IpPair::between(&a, &b, IpVersion::V4);
    let names = ["www.example.org", "example.org", "other.test", "example.org.test"];
    let mut frames = Vec::new();
    for turn in 0..6_u64 {
        for (client, name) in (0..8_u16).zip(names.iter().cycle()) {
            let said = if client < 4 { tls_client_hello(name, [3; 32]) } else { http_get(name, "/") };
            let (one, other) = said.split_at(40);
            let (seq, flags, payload): (u32, u8, &[u8]) = match turn {
                0 => (0, flags::SYN, b""),
                1 => (1, flags::ACK, b""),
                2 => (1, flags::ACK, one),
                3 => (41, flags::ACK, other),
                turn => (1 + said.len() as u32 + turn as u32, flags::ACK, b"more"),
            };
            let tcp =
                Tcp { src: 50_000 + client, dst: 443, seq, ack: 1, flags, window: 99, ..Tcp::default() };
            let frame = Ethernet::between(&a, &b).ip(&tcp.packet(pair, payload));
            frames.push((Duration::from_millis(turn * 10 + u64::from(client)), frame));
        }
    }
    let path = folder.join("in.pcap");
    let mut file = fs::File::create(&path).unwrap();
    write_pcap(&mut file, ETHERNET, Unit::Nanoseconds, frames.into_iter()).unwrap();
    path
}

fn text_of(finished: &Finished) -> String {
    String::from_utf8_lossy(&finished.stdout).into_owned()
}

fn count(words: &[&str]) -> u64 {
    let finished = run(words.iter().copied()).succeeded();
    let text = text_of(&finished);
    let number = text.split_whitespace().next().unwrap_or_default();
    number.parse().unwrap_or_else(|_| panic!("{words:?}: {text:?}"))
}

#[test]
fn flows_of_a_name_are_captured_whole() {
    let folder = tempfile::tempdir().unwrap();
    let input = input(folder.path()).display().to_string();
    let out = folder.path().join("out.pcapng").display().to_string();
    for (filter, packets) in [
        ("sni(.example.org)", 12),
        ("tcp port 443 and sni(www.example.org) or http_host(example.org)", 12),
        ("tcp port 50000 and sni(.example.org)", 6),
        ("http_host(other.test, .test) and tcp", 12),
        ("dns_name(example.org)", 0),
    ] {
        let told = run(["capture", "-r", &input, "-w", &out, "--json", filter]).succeeded();
        assert_eq!(count(&["capture", "-r", &out, "--count"]), packets, "{filter}");
        told.account();
        let times = run(["capture", "-r", &out, "-tt", "-n"]).succeeded();
        let times = text_of(&times);
        let times: Vec<&str> = times.lines().filter_map(|line| line.split(' ').next()).collect();
        assert!(times.is_sorted() && times.len() as u64 == packets, "{times:?}");
    }
    run(["capture", "-r", &input, "--count", "tcp or sni(a.test)"]).failed_saying(&["joined", "`and`"]);
    run(["capture", "-r", &input, "--count", "sni(a b)"]).failed_saying(&["a name is"]);
}

#[test]
fn stores_and_graphs_take_names() {
    let folder = tempfile::tempdir().unwrap();
    let input = input(folder.path()).display().to_string();
    let store = folder.path().join("store").display().to_string();
    let record = ["record", "-r", &input, "--to", &store, "--size", "16MiB", "--segment", "4MiB"];
    run(record.into_iter().chain(["sni(.example.org) or http_host(.example.org)"])).succeeded();
    assert_eq!(count(&["capture", "-r", &format!("store:{store}"), "--count"]), 24);
    let graph = format!(
        "file(\"{input}\") -> f :: filter(\"tcp and sni(.example.org)\"); f -> c :: count; c -> drop"
    );
    let told = run(["run", "--json", "-e", &graph]).succeeded();
    let text = text_of(&told);
    let results: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(results["results"]["c"][0]["packets"], 12, "{results}");
    let flows = run([
        "probe",
        "-r",
        &input,
        "--export",
        "csv:-",
        "--template",
        "packetDeltaCount",
        "sni(.example.org)",
    ]);
    let text = text_of(&flows.succeeded());
    assert_eq!(text.lines().skip(1).collect::<Vec<_>>(), ["6", "6"], "{text}");
}

#[test]
fn a_script_decides() {
    let folder = tempfile::tempdir().unwrap();
    let input = input(folder.path()).display().to_string();
    let script = folder.path().join("f.rhai");
    let verdict =
        "fn verdict(p) { if p.payload_len == 0 { false } else if p.sport < 50004 { 3 } else { true } }";
    fs::write(&script, verdict).unwrap();
    let graph = format!(
        "file(\"{input}\") -> s :: script(\"{}\") -> w :: switch(by=label); w[0] -> a :: count; w[3] -> b :: count",
        script.display()
    );
    for workers in ["1", "2"] {
        let told = run(["run", "--json", "--workers", workers, "-e", &graph]).succeeded();
        let text = text_of(&told);
        let results: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        let of = |stage: &str, column: &str| results["results"][stage][0][column].clone();
        assert_eq!([of("a", "packets"), of("b", "packets")], [16, 16], "{results}");
        assert_eq!([of("s", "dropped"), of("s", "failed")], [16, 0], "{results}");
    }
    fs::write(&script, "fn verdict(p) { let x = 0; loop { x += 1 } }").unwrap();
    let told = run(["run", "--json", "-e", &graph]).succeeded();
    let results: Value = serde_json::from_str(text_of(&told).lines().next().unwrap()).unwrap();
    assert_eq!(results["results"]["s"][0]["failed"], 48, "{results}");
    assert_eq!(told.stderr.matches("Too many operations").count(), 3, "{}", told.stderr);
}
