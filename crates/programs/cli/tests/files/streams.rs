//! Stages over TCP streams, on real captures: tshark puts the same streams together.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{captures_or_skip, finish, program_or_skip, tapline};

/// Captures with losses, repetitions, disorder, streams that begin midway, resets, and none of these.
const CAPTURES: [&str; 16] = [
    "http-get-gzip.pcap",
    "http-http-large-gap.pcap",
    "http-pipelined-requests.pcap",
    "http-post.pcap",
    "http-http-post-large.pcap",
    "ftp-retr.pcap",
    "redis-large-requests-responses.pcap",
    "smtp.pcap",
    "smb-smb2_100_small_files.pcap",
    "tcp-fin_retransmission.pcap",
    "tcp-handshake-reorder.pcap",
    "tcp-missing-syn.pcap",
    "tcp-payload-syn.pcap",
    "tcp-reassembly.pcap",
    "tcp-retransmit-fast009.pcap",
    "websocket-two-binary-fragments.pcap",
];
/// Connections of a file that are compared.
const CONNECTIONS: usize = 40;

/// The bytes of the two directions of a connection. tshark takes the sender of the first packet for the client, also of
/// one that answers a SYN; so either may be first.
type Pair = [Vec<u8>; 2];

/// The output of `streams`: connections, and the account of bytes.
fn ours(capture: &Path, folder: &Path) -> (BTreeMap<usize, Pair>, Value) {
    let graph = format!("file({capture:?}) -> s :: streams({:?})", folder.join("out"));
    let run = finish(&mut tapline(["run", "--json", "-e", &graph])).succeeded();
    let text = String::from_utf8(run.stdout).expect("text");
    let object = |line: &str| serde_json::from_str::<Value>(line).expect("JSON");
    let [.., results, account] = &text.lines().map(object).collect::<Vec<_>>()[..] else { panic!("{text}") };
    assert_eq!(account["account"]["balanced"], true);
    let mut found: BTreeMap<usize, Pair> = BTreeMap::new();
    let index = fs::read_to_string(folder.join("out/index.jsonl")).unwrap_or_default();
    for line in index.lines().map(object) {
        let mut bytes = match line["file"].as_str() {
            Some(file) => fs::read(folder.join("out").join(file)).expect("a stream"),
            None => Vec::new(),
        };
        assert_eq!(line["bytes"], bytes.len());
        let number = |value: &Value| value.as_u64().expect("a number") as usize;
        // tshark says in words where bytes are missing. What is missing behind the last byte it does not know.
        let gaps = line["gaps"].as_array().expect("a list").iter();
        let gaps = gaps.map(|gap| (number(&gap["offset"]), number(&gap["length"])));
        let (mut shift, mut placed) = (0_isize, Vec::new());
        for (offset, len) in gaps {
            placed.push(((offset as isize + shift) as usize, len));
            shift -= len as isize;
        }
        let mut grown = 0;
        let end = bytes.len();
        for (offset, len) in placed.into_iter().filter(|(offset, _)| *offset < end) {
            let words = format!("[{len} bytes missing in capture file]\0").into_bytes();
            let at = offset + grown;
            grown += words.len();
            bytes.splice(at..at, words);
        }
        let pair = found.entry(number(&line["connection"])).or_default();
        pair[usize::from(line["from"] == "server")] = bytes;
    }
    (found, results["results"]["s"][0].clone())
}

/// The streams that tshark follows.
fn theirs(capture: &Path, connections: &[usize]) -> BTreeMap<usize, Pair> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-q", "-o", "tcp.relative_sequence_numbers:FALSE", "-r"]).arg(capture);
    for number in connections {
        command.args(["-z", &format!("follow,tcp,raw,{number}")]);
    }
    let text = String::from_utf8(finish(&mut command).succeeded().stdout).expect("hexadecimal");
    let mut found = BTreeMap::new();
    let mut number = usize::MAX;
    for line in text.lines() {
        if let Some(stream) = line.strip_prefix("Filter: tcp.stream eq ") {
            number = stream.trim().parse().expect("a number");
            found.insert(number, Pair::default());
        }
        let digits = line.trim_start_matches('\t');
        if let (Some(pair), Some(bytes)) = (found.get_mut(&number), from_hexadecimal(digits)) {
            pair[usize::from(line.starts_with('\t'))].extend(bytes);
        }
    }
    found
}

fn from_hexadecimal(digits: &str) -> Option<Vec<u8>> {
    let is_hexadecimal = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap_or_default());
    is_hexadecimal.then(|| pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap_or(0)).collect())
}

/// The streams of a capture that differ from tshark's, and how many were compared.
fn differences(capture: &Path) -> (Vec<String>, usize) {
    let folder = tempfile::tempdir().expect("there is room");
    let (mut ours, account) = ours(capture, folder.path());
    let number = |name: &str| account[name].as_u64().expect("a number");
    let in_places = ["delivered", "duplicate", "before_start", "after_end", "out_of_window", "held"];
    assert_eq!(number("bytes"), in_places.iter().map(|name| number(name)).sum::<u64>(), "{capture:?}");
    let connections: Vec<usize> = ours.keys().copied().take(CONNECTIONS).collect();
    let mut theirs = theirs(capture, &connections);
    ours.values_mut().chain(theirs.values_mut()).for_each(|pair| pair.sort());
    let name = capture.file_name().expect("a name").to_string_lossy();
    let differs = |number: &&usize| ours.get(number) != theirs.get(number);
    let describe = |number: &usize| {
        let lens = |all: &BTreeMap<usize, Pair>| all.get(number).map(|pair| [pair[0].len(), pair[1].len()]);
        format!("{name}, stream {number}: ours {:?}, tshark's {:?}", lens(&ours), lens(&theirs))
    };
    (connections.iter().filter(differs).map(describe).collect(), connections.len())
}

#[test]
fn streams_are_those_that_tshark_follows() {
    const TEST: &str = "streams_are_those_that_tshark_follows";
    let Some(captures) = captures_or_skip(TEST) else { return };
    if !program_or_skip(TEST, "tshark") {
        return;
    }
    let all = std::env::var_os("TAPLINE_ALL_CAPTURES").is_some();
    let is_chosen = |path: &&std::path::PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        all || CAPTURES.contains(&&*name)
    };
    let (mut different, mut compared) = (Vec::new(), 0);
    for capture in captures.iter().filter(is_chosen) {
        let (differences, connections) = differences(capture);
        different.extend(differences);
        compared += connections;
    }
    eprintln!("{} of {compared} connections differ:\n{}", different.len(), different.join("\n"));
    if !all {
        assert!(different.is_empty() && compared > 20);
    }
}
