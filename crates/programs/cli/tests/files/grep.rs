//! Compares `tapline grep` with ngrep; matches across segments.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Tcp};

use super::info::{json_lines, named_captures};
use super::requests::write_frames;
use crate::support::*;

const NAMES: [&str; 10] = [
    "communityid-tcp.pcap",
    "dce-rpc-mapi.pcap",
    "ftp-ftp-many-port-expected.pcap",
    "http-get-gzip.pcap",
    "http-http-post-large.pcap",
    "http-post.pcap",
    "krb-kinit.pcap",
    "smb-smb2_100_small_files.pcap",
    "ssh-ssh.client-side-half-duplex.pcap",
    "tls-ssl.v3.pcap",
];

/// Matches, the summary, and the account, which balances.
fn matches(arguments: &[&str]) -> (Vec<Value>, Value) {
    let mut lines = json_lines(&[&["grep", "--json"], arguments].concat());
    assert_eq!(lines.pop().expect("an account")["account"]["balanced"], true);
    let summary = lines.pop().expect("a summary")["summary"].clone();
    (lines, summary)
}

/// ngrep takes the padding of short frames for payload.
const FILTER: &str = "(tcp or udp) and greater 61";

/// Packets that ngrep finds.
fn ngrep(path: &Path, options: &[&str], pattern: &str) -> u64 {
    let mut command = Command::new("ngrep");
    command.args(["-q", "-t", "-W", "single", "-I"]).arg(path).args(options).arg(pattern).arg(FILTER);
    let text = String::from_utf8_lossy(&command.output().expect("it runs").stdout).into_owned();
    text.lines().filter(|line| line.starts_with("T ") || line.starts_with("U ")).count() as u64
}

#[test]
fn matches_are_those_of_ngrep() {
    for path in named_captures("matches_are_those_of_ngrep", &NAMES, &["ngrep"]) {
        let name = path.to_str().expect("text");
        for (options, pattern) in [(&[][..], "SSH-|user|HTTP"), (&["-i"], "host|ssh|USER"), (&["-v"], "e")] {
            let arguments = [options, &["-r", name, pattern, FILTER]].concat();
            let (lines, summary) = matches(&arguments);
            assert_eq!(summary["matched"].as_u64(), Some(lines.len() as u64));
            assert_eq!(lines.len() as u64, ngrep(&path, options, pattern), "{name} {options:?} {pattern}");
        }
    }
}

#[test]
fn streams_match_across_segments() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("stream.pcap");
    let [client, server] = [1, 2].map(Host::number);
    let segment = |seq: u32, flags: u8, text: &str| {
        let tcp = Tcp { src: 4000, dst: 80, seq, flags, ..Tcp::default() };
        let ip = IpPair::between(&client, &server, IpVersion::V4);
        Ethernet::between(&client, &server).ip(&tcp.packet(ip, text.as_bytes()))
    };
    // The second and third are swapped.
    write_frames(
        &path,
        vec![
            segment(0, 2, ""),
            segment(1, 16, "one pass"),
            segment(13, 16, "=secret\n"),
            segment(9, 16, "word"),
        ],
    );
    let name = path.to_str().expect("text");
    assert_eq!(matches(&["-r", name, "password=\\w+"]).1["matched"], 0);
    let (lines, summary) = matches(&["--stream", "-r", name, "password=\\w+"]);
    assert_eq!((&lines[0]["match"], &lines[0]["offset"]), (&"password=secret".into(), &4.into()));
    assert_eq!((lines.len(), &summary["matched"], &summary["missing_bytes"]), (1, &1.into(), &0.into()));
    let colored = run(["grep", "--color", "always", "--stream", "-r", name, "-F", "password="]).succeeded();
    let text = String::from_utf8_lossy(&colored.stdout).into_owned();
    assert!(text.contains("one \x1b[1;31mpassword=\x1b[0msecret\n"), "{text:?}");
    run(["grep", "-i", "lo"]).failed_saying(&["-d lo"]);
    run(["grep", "-r", name, "("]).failed_saying(&["the pattern", "unclosed group"]);
}

#[test]
fn payloads_are_shown_in_three_ways() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/mixed.pcapng");
    let shown = |options: &[&str]| {
        let done = run([&["grep", "-r", example, "GET /\\w*"], options].concat()).succeeded();
        assert!(done.stderr.contains("1 of 409 packets match"), "{}", done.stderr);
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    assert_eq!(shown(&[]).lines().count(), 2);
    let (ascii, hex) = (shown(&["-A"]), shown(&["-X"]));
    assert!(ascii.lines().count() > 3 && ascii.contains("Host: "), "{ascii}");
    assert!(hex.contains("0x0000:  45"), "{hex}");
}
