//! Compares `tapline follow` with `tshark -z follow,tcp`; damaged and hostile streams.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Tcp};

use super::info::{json_lines, named_captures};
use super::requests::write_frames;
use crate::support::*;

const NAMES: [&str; 11] = [
    "communityid-tcp.pcap",
    "dce-rpc-mapi.pcap",
    "ftp-ftp-many-port-expected.pcap",
    "http-entity_gap.pcap",
    "http-get-gzip.pcap",
    "http-http-post-large.pcap",
    "http-pipelined-requests.pcap",
    "krb-kinit.pcap",
    "smb-smb2_100_small_files.pcap",
    "ssh-ssh.client-side-half-duplex.pcap",
    "tls-ssl.v3.pcap",
];

/// The objects of a run, and its summary. The account balances.
fn follow(arguments: &[&str]) -> (Vec<Value>, Value) {
    let mut lines = json_lines(&[&["follow", "--json"], arguments].concat());
    assert_eq!(lines.pop().expect("an account")["account"]["balanced"], true);
    let summary = lines.pop().expect("a summary")["summary"].clone();
    (lines, summary)
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks_exact(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("hex"), 16).expect("hex")).collect()
}

/// The text of a turn.
fn bytes_of(turn: &Value) -> Vec<u8> {
    match turn["text"].as_str() {
        Some(text) => text.as_bytes().to_vec(),
        None => unhex(turn["hex"].as_str().unwrap_or_default()),
    }
}

/// The streams of a conversation, by the port of their sender; gaps as tshark writes them, with the zero byte behind
/// its text.
type Streams = BTreeMap<u64, Vec<u8>>;

fn ours(path: &Path) -> BTreeMap<u64, Streams> {
    let (lines, summary) = follow(&["--raw", "-r", path.to_str().expect("text")]);
    let mut all: BTreeMap<u64, Streams> = BTreeMap::new();
    for line in lines.iter().filter(|line| line["end"].is_null()) {
        let streams = all.entry(line["conversation"].as_u64().expect("a number")).or_default();
        let from = line["from"].as_str().expect("an end");
        let stream = streams.entry(line[format!("{from}_port")].as_u64().expect("a port")).or_default();
        match line["missing"].as_u64() {
            // tshark does not say which bytes the snap length cut.
            Some(_) if line["cause"] == "not captured" => {}
            Some(len) => stream.extend(format!("[{len} bytes missing in capture file]\0").bytes()),
            None => stream.extend(bytes_of(line)),
        }
    }
    assert_eq!(summary["conversations"].as_u64(), Some(all.len() as u64));
    all
}

fn theirs(path: &Path, number: u64) -> Streams {
    let done = Command::new("tshark")
        .arg("-r")
        .arg(path)
        .args(["-q", "-z", &format!("follow,tcp,raw,{number}")])
        .output();
    let text = String::from_utf8_lossy(&done.expect("it runs").stdout).into_owned();
    let port = |node: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(node)).expect("a node");
        line.rsplit(':').next().and_then(|port| port.parse::<u64>().ok()).expect("a port")
    };
    let ports = [port("Node 0: "), port("Node 1: ")];
    let mut streams = Streams::new();
    for line in text.lines().filter(|line| line.trim().bytes().all(|byte| byte.is_ascii_hexdigit())) {
        let side = usize::from(line.starts_with('\t'));
        streams.entry(ports[side]).or_default().extend(unhex(line.trim()));
    }
    streams
}

#[test]
fn conversations_are_those_of_tshark() {
    for path in named_captures("conversations_are_those_of_tshark", &NAMES, &["tshark"]) {
        // The first ones: tshark reads the file again for each.
        for (number, streams) in ours(&path).into_iter().take(8) {
            assert!(streams == theirs(&path, number), "{} {number}", path.display());
        }
    }
}

fn segment(side: usize, port: u16, seq: u32, flags: u8, bytes: &[u8]) -> Vec<u8> {
    let hosts = [1, 2].map(Host::number);
    let (from, to) = (&hosts[side], &hosts[1 - side]);
    let (src, dst) = if side == 0 { (port, 80) } else { (80, port) };
    let tcp = Tcp { src, dst, seq, flags, ..Tcp::default() };
    Ethernet::between(from, to).ip(&tcp.packet(IpPair::between(from, to, IpVersion::V4), bytes))
}

/// Text of the conversations in these frames.
fn text_of(frames: Vec<Vec<u8>>, options: &[&str]) -> (String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.pcap");
    write_frames(&path, frames);
    let done = run([&["follow", "-r", path.to_str().expect("text")], options].concat()).succeeded();
    (String::from_utf8_lossy(&done.stdout).into_owned(), done.stderr)
}

#[test]
fn turns_are_in_order_and_gaps_are_marked() {
    let frames = || {
        vec![
            segment(0, 4000, 0, 2, b""),
            segment(1, 4000, 0, 18, b""),
            segment(0, 4000, 1, 16, b"EHLO a\r\nMA"),
            segment(0, 4001, 0, 2, b""),
            segment(0, 4001, 1, 16, b"other"),
            // Out of order, and once more.
            segment(0, 4000, 13, 16, b" b\r\n"),
            segment(0, 4000, 11, 16, b"IL"),
            segment(0, 4000, 11, 16, b"IL"),
            segment(1, 4000, 1, 16, b"250 \x1b]0;x\x07\r\n"),
            segment(1, 4000, 31, 17, b"end"),
            segment(0, 4000, 17, 17, b""),
        ]
    };
    let (text, summary) = text_of(frames(), &[]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("conversation 0: ") && lines[0].contains(":4000 > "), "{text}");
    let expected = [
        "> EHLO a",
        "> MAIL b",
        "< 250 .]0;x.",
        "!< 18 bytes are missing: at the end",
        "< end",
        "end: client fin, 16 bytes; server fin, 15 bytes",
        "",
    ];
    assert_eq!(lines[1..8], expected);
    assert_eq!(lines[9..11], ["> other", "end: client capture end, 5 bytes; server sent nothing, 0 bytes"]);
    assert!(
        summary.contains("2 conversations with 36 bytes of payload, of 11 packets; 18 bytes are missing"),
        "{summary}"
    );
    let (hex, _) = text_of(frames(), &["-X", "--number", "1", "--color", "always"]);
    assert!(hex.contains("\x1b[31m> 00000000  6f 74 68 65 72 "), "{hex:?}");
    assert!(!hex.contains("conversation 0"), "{hex}");
}

#[test]
fn bodies_of_http_are_unpacked() {
    let packed: [u8; 29] = [
        31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 203, 72, 205, 201, 201, 87, 72, 76, 74, 6, 0, 15, 167, 172, 219, 9,
        0, 0, 0,
    ];
    let head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n1d\r\n";
    let answer = [&head[..], &packed, b"\r\n0\r\n\r\nHTTP/1.1 204 No\r\n\r\n"].concat();
    let frames = || {
        vec![
            segment(0, 4000, 0, 2, b""),
            segment(0, 4000, 1, 16, b"GET / HTTP/1.1\r\n\r\n"),
            segment(1, 4000, 1, 16, &answer[..90]),
            segment(1, 4000, 91, 16, &answer[90..]),
        ]
    };
    let (text, _) = text_of(frames(), &[]);
    let answers: Vec<&str> = text.lines().filter(|line| line.starts_with('<')).collect();
    assert_eq!(answers[3..], ["< ", "< hello abc", "< HTTP/1.1 204 No", "< "], "{text}");
    let (raw, _) = text_of(frames(), &["--raw"]);
    assert!(raw.contains("\n< 1d\n") && !raw.contains("hello"), "{raw}");
}

#[test]
fn memory_for_conversations_is_bounded() {
    // A conversation of 40 MB in front of a short one.
    let bytes = vec![b'a'; 60_000];
    let mut frames = vec![segment(0, 4000, 0, 2, b""), segment(0, 4001, 0, 2, b"")];
    frames.extend((0..700).map(|at| segment(0, 4000, 1 + at * 60_000, 16, &bytes)));
    frames.push(segment(0, 4001, 1, 17, b"short"));
    let (text, summary) = text_of(frames, &[]);
    assert!(text.contains("conversation 0 goes on: ") && text.contains("\n> short\n"));
    assert!(summary.contains("; 1 conversations were shown in parts"), "{summary}");
    let long = text.lines().filter(|line| line.starts_with("> aa"));
    assert_eq!(long.map(|line| line.len() - 2).sum::<usize>(), 42_000_000);
}
