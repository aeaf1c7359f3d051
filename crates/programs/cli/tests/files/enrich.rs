//! `--enrich`: records and tables have the places of addresses, and new ones when the files change.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::*;
use serde_json::{Value, json};
use tapline_testkit::capture_file::{ETHERNET, Unit, write_pcap};
use tapline_testkit::frames::*;

const NETWORKS: &str = "network,name,country,as,as_name\n\
    10.0.0.0/24,office,DE,,\n\
    10.0.0.9,printer,,64511,Own\n\
    203.0.113.0/24,,NO,64496,\"Example, Ltd\"\n\
    2001:db8::/32,lab,FR,4200000000,\n";

fn datagram(source: &str, destination: &str) -> Vec<u8> {
    let (a, b) = (Host::number(1), Host::number(2));
    let pair = match (source.parse(), destination.parse()) {
        (Ok(IpAddr::V4(source)), Ok(IpAddr::V4(destination))) => IpPair::V4(source, destination),
        (Ok(IpAddr::V6(source)), Ok(IpAddr::V6(destination))) => IpPair::V6(source, destination),
        _ => panic!("{source} and {destination} are not a pair"),
    };
    Ethernet::between(&a, &b).ip(&Udp { src: 4000, dst: 9 }.packet(pair, b"twelve bytes"))
}

/// A file of networks, and a capture of three flows: two with IPv4, one with IPv6.
fn input(folder: &Path) -> (PathBuf, PathBuf) {
    let (networks, trace) = (folder.join("networks.csv"), folder.join("trace.pcap"));
    fs::write(&networks, NETWORKS).expect("there is room");
    let frames = [
        datagram("10.0.0.7", "203.0.113.1"),
        datagram("10.0.0.9", "198.51.100.1"),
        datagram("2001:db8::1", "2001:db8:ffff::2"),
    ];
    let mut bytes = Vec::new();
    let packets = (0..).zip(frames).map(|(n, frame)| (Duration::from_millis(n), frame));
    write_pcap(&mut bytes, ETHERNET, Unit::Nanoseconds, packets).expect("memory");
    fs::write(&trace, bytes).expect("there is room");
    (networks, trace)
}

/// The fields of places in a record of lines.
fn places(line: &str) -> Value {
    let record: Value = serde_json::from_str(line).expect("an object");
    let names = [
        "sourceCountry",
        "destinationCountry",
        "bgpSourceAsNumber",
        "bgpDestinationAsNumber",
        "sourceAsName",
        "destinationAsName",
        "sourceNetworkName",
        "destinationNetworkName",
    ];
    names.iter().filter_map(|name| Some(((*name).to_owned(), record.get(*name)?.clone()))).collect()
}

#[test]
fn records_and_table_tell_the_places() {
    let folder = tempfile::tempdir().expect("there is room");
    let (networks, trace) = input(folder.path());
    let probe = ["probe", "-r", text(&trace), "--enrich", text(&networks)];
    let told = run(probe.into_iter().chain(["--export", "json:-"])).succeeded();
    let lines = String::from_utf8(told.stdout).expect("text");
    let found: Vec<Value> = lines.lines().map(places).collect();
    let expected = [
        json!({
            "sourceCountry": "DE", "destinationCountry": "NO", "bgpDestinationAsNumber": 64496,
            "destinationAsName": "Example, Ltd", "sourceNetworkName": "office",
        }),
        json!({ "bgpSourceAsNumber": 64511, "sourceAsName": "Own", "sourceNetworkName": "printer" }),
        json!({
            "sourceCountry": "FR", "destinationCountry": "FR", "bgpSourceAsNumber": 4_200_000_000_u32,
            "bgpDestinationAsNumber": 4_200_000_000_u32, "sourceNetworkName": "lab", "destinationNetworkName": "lab",
        }),
    ];
    assert_eq!(found.len(), 3);
    assert!(expected.iter().all(|one| found.contains(one)), "{found:?}");
    let told = run(probe).succeeded();
    let table = String::from_utf8(told.stdout).expect("text");
    assert!(table.contains("       office, DE > NO, AS64496 Example, Ltd\n"), "{table}");
    assert!(table.contains("       printer, AS64511 Own > ?\n"), "{table}");
    let told = run(probe.into_iter().chain(["--json"])).succeeded();
    let first = String::from_utf8(told.stdout).expect("text");
    let results: Value = serde_json::from_str(first.lines().next().expect("results")).expect("an object");
    let rows = results["results"]["top"].as_array().expect("rows");
    assert!(rows.iter().any(|row| row["source_place"] == "office, DE"), "{rows:?}");
}

#[test]
fn every_form_of_export_has_them() {
    let folder = tempfile::tempdir().expect("there is room");
    let (networks, trace) = input(folder.path());
    let probe = |to: &str, more: &[&str]| {
        let line = ["probe", "-r", text(&trace), "--enrich", text(&networks), "--export", to];
        run(line.iter().chain(more)).succeeded()
    };
    let native = folder.path().join("flows.native");
    probe(&format!("batch+file:{}?format=native", native.display()), &[]);
    let bytes = fs::read(&native).expect("it was written");
    let has = |word: &str| bytes.windows(word.len()).any(|window| window == word.as_bytes());
    assert!(["sourceCountry", "office", "Example, Ltd", "destinationNetworkName"].into_iter().all(has));
    let goflow = folder.path().join("flows.bin");
    probe(&format!("batch+file:{}?format=goflow", goflow.display()), &[]);
    // Field 15 is dst_as: the number in bits of seven.
    let bytes = fs::read(&goflow).expect("it was written");
    assert!(
        bytes.windows(4).any(|window| window == [15 << 3, 0xf0, 0xf7, 0x03]),
        "64496 is the destination's"
    );
    let csv = folder.path().join("flows.csv");
    probe(&format!("csv:{}", csv.display()), &["--template", "destinationIPv4Address,destinationAsName"]);
    let rows = fs::read_to_string(&csv).expect("it was written");
    assert!(rows.contains("203.0.113.1,,\"Example, Ltd\"\n"), "{rows}");
    if !program_or_skip("every_form_of_export_has_them", "tshark") {
        return;
    }
    for (version, systems) in [("10", "64496"), ("9", "64496"), ("5", "64496")] {
        let ipfix = folder.path().join(format!("v{version}.ipfix"));
        let datagrams = Collected::start();
        let to = if version == "10" { format!("file:{}", ipfix.display()) } else { datagrams.address() };
        probe(&to, &["--version", version]);
        if version != "10" {
            datagrams.write(&ipfix);
        }
        let told = Command::new("tshark")
            .args(["-r", text(&ipfix), "-d", "udp.port==4739,cflow", "-T", "fields", "-e", "cflow.dstas"])
            .output()
            .expect("tshark runs");
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(told.split([',', '\n']).any(|word| word == systems), "version {version}: {told:?}");
    }
}

/// A socket that takes datagrams, and writes them as a capture for tshark.
struct Collected(UdpSocket);

impl Collected {
    fn start() -> Collected {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.set_read_timeout(Some(Duration::from_millis(300))).expect("a socket");
        Collected(socket)
    }

    fn address(&self) -> String {
        self.0.local_addr().expect("it is bound").to_string()
    }

    fn write(&self, path: &Path) {
        let mut bytes = Vec::new();
        let mut buffer = [0; 2048];
        let (a, b) = (Host::number(1), Host::number(2));
        let pair = IpPair::between(&a, &b, IpVersion::V4);
        let mut packets = Vec::new();
        while let Ok(len) = self.0.recv(&mut buffer) {
            let packet = Udp { src: 4000, dst: 4739 }.packet(pair, &buffer[..len]);
            packets
                .push((Duration::from_millis(packets.len() as u64), Ethernet::between(&a, &b).ip(&packet)));
        }
        assert!(!packets.is_empty(), "no datagram came");
        write_pcap(&mut bytes, ETHERNET, Unit::Nanoseconds, packets.into_iter()).expect("memory");
        fs::write(path, bytes).expect("there is room");
    }
}

#[test]
fn files_that_change_are_read_again() {
    let folder = tempfile::tempdir().expect("there is room");
    let networks = folder.path().join("networks.csv");
    fs::write(&networks, "network,name\n10.0.0.0/8,before\n").expect("there is room");
    let template = "flowStartSeconds,sourceIPv4Address,sourceNetworkName";
    let mut child = tapline(["probe", "-r", "-", "--export", "json:-", "--template", template])
        .args(["--enrich", text(&networks)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut input = child.stdin.take().expect("a pipe");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let mut until =
        |word: &str| lines.by_ref().map_while(Result::ok).find(|line| line.contains(word)).expect(word);
    let file = |from: u64, frames: u64| {
        let mut bytes = Vec::new();
        let second = |n: u64| (Duration::from_secs(100 * (from + n)), datagram("10.0.0.1", "192.0.2.1"));
        write_pcap(&mut bytes, ETHERNET, Unit::Nanoseconds, (0..frames).map(second)).expect("memory");
        bytes
    };
    // Each packet ends the flow of the one before.
    input.write_all(&file(0, 3)).expect("it reads");
    input.flush().expect("it reads");
    until("reading from");
    // The thread that reads the files again is there once they were read.
    let threads = format!("/proc/{}/task", child.id());
    wait_for("the files to be watched", || {
        let names = fs::read_dir(&threads).into_iter().flatten().flatten();
        let mut names = names.flat_map(|thread| fs::read_to_string(thread.path().join("comm")));
        names.any(|name| name.trim_end() == "places")
    });
    fs::write(&networks, "network,name\n10.0.0.0/99,broken\n").expect("there is room");
    let refused = until("networks.csv:2: \"10.0.0.0/99\" is not a network");
    assert!(refused.ends_with("; the places before stay"), "{refused}");
    // Written whole under another name first, as it should be.
    let next = folder.path().join("next.csv");
    fs::write(&next, "network,name\n10.0.0.0/8,after\n10.1.0.0/16,other\n").expect("there is room");
    fs::rename(&next, &networks).expect("the same folder");
    until("files of places read again: 2 entries");
    input.write_all(&file(3, 3)[24..]).expect("it reads");
    drop(input);
    let finished = Finished::new(child.wait_with_output().expect("it ends")).succeeded();
    let records = String::from_utf8(finished.stdout).expect("text");
    let names: Vec<String> = records
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("an object")["sourceNetworkName"].to_string())
        .collect();
    assert_eq!(names.len(), 6, "{records}");
    assert_eq!((names[0].as_str(), names[5].as_str()), ("\"before\"", "\"after\""));
}

#[test]
fn mistakes_are_told_before_a_packet_is_read() {
    let folder = tempfile::tempdir().expect("there is room");
    let (networks, trace) = input(folder.path());
    let probe = ["probe", "-r", text(&trace)];
    let failed = |more: &[&str], words: &[&str]| run(probe.iter().chain(more)).failed_saying(words);
    failed(&["--enrich", ","], &["--enrich: no file of places is named"]);
    failed(&["--enrich", "/nowhere.csv"], &["cannot read /nowhere.csv"]);
    failed(&["--enrich", "/dev/zero"], &["/dev/zero is not a regular file"]);
    failed(&["--enrich", text(&trace)], &["trace.pcap:1: "]);
    failed(
        &["--export", "json:-", "--template", "default,sourceCountry"],
        &["sourceCountry", "no file has the places of addresses", "--enrich FILE"],
    );
    failed(
        &[
            "--export",
            "udp://127.0.0.1:9",
            "--version",
            "9",
            "--template",
            "default,places",
            "--enrich",
            text(&networks),
        ],
        &["sourceCountry, which NetFlow v9 has no", "use --version 10"],
    );
}
