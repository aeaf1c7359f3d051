//! Compares `tapline info` with capinfos and `tshark -z io,phs`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::*;

/// Captures whose packets are neither fragments nor cut.
const NAMES: [&str; 11] = [
    "dce-rpc-mapi.pcap",
    "http-http-post-large.pcap",
    "redis-large-requests-responses.pcap",
    "smb-smb2_100_small_files.pcap",
    "tls-ssl.v3.pcap",
    "ssh-ssh.client-side-half-duplex.pcap",
    "tunnels-gre-within-gre.pcap",
    "krb-kinit.pcap",
    "ftp-ftp-many-port-expected.pcap",
    "portmapper-many-unanswered-calls.pcapng",
    "krb-kerberos_tso.pcapng",
];

/// The real captures of these names; none where there are no captures or not these programs.
pub(crate) fn named_captures(test: &str, names: &[&str], programs: &[&str]) -> Vec<PathBuf> {
    if !programs.iter().all(|program| program_or_skip(test, program)) {
        return Vec::new();
    }
    let all = captures_or_skip(test).unwrap_or_default();
    let is_named = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| names.contains(&name))
    };
    all.into_iter().filter(is_named).collect()
}

/// Lines of JSON on standard output.
pub(crate) fn json_lines(arguments: &[&str]) -> Vec<Value> {
    let done = run(arguments).succeeded();
    let text = String::from_utf8(done.stdout).expect("text");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}")))
        .collect()
}

fn info(path: &Path) -> Value {
    let mut lines = json_lines(&["info", "--json", path.to_str().expect("text")]);
    let account = lines.pop().expect("an account");
    assert_eq!(account["account"]["balanced"], true);
    assert_eq!(lines.len(), 1);
    lines.remove(0)
}

fn output_of(command: &mut Command) -> String {
    let done = command.env("TZ", "UTC").output().expect("it runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

fn capinfos(path: &Path) -> BTreeMap<String, String> {
    let table = output_of(Command::new("capinfos").args(["-T", "-M", "-A"]).arg(path));
    let mut lines = table.lines().map(|line| line.split('\t').map(str::to_owned).collect::<Vec<_>>());
    let (head, row) = (lines.next().expect("names"), lines.next().expect("a row"));
    head.into_iter().zip(row).collect()
}

#[test]
fn info_has_the_numbers_of_capinfos() {
    for path in named_captures("info_has_the_numbers_of_capinfos", &NAMES, &["capinfos"]) {
        let (ours, theirs) = (info(&path), capinfos(&path));
        let their = |name: &str| theirs[name].as_str();
        let name = path.display();
        for (key, column) in
            [("packets", "Number of packets"), ("size", "File size (bytes)"), ("bytes", "Data size (bytes)")]
        {
            assert_eq!(ours[key].to_string(), their(column), "{name}: {key}");
        }
        assert_eq!(ours["sha256"], their("SHA256"), "{name}");
        assert_eq!(ours["in_order"].to_string(), their("Strict time order").to_lowercase(), "{name}");
        for (key, column) in [("first", "Start time"), ("last", "End time")] {
            let time = their(column).replace(' ', "T");
            assert!(
                ours[key].as_str().is_some_and(|ours| ours.starts_with(&time)),
                "{name}: {} {time}",
                ours[key]
            );
        }
        let seconds: f64 = their("Capture duration (seconds)").parse().expect("a number");
        let ours_ns = ours["duration_ns"].as_f64().expect("a number");
        assert!((ours_ns - seconds * 1e9).abs() <= 1.0 + seconds, "{name}: {ours_ns}");
        for (key, column) in [
            ("bits_per_second", "Data bit rate (bits/sec)"),
            ("packets_per_second", "Average packet rate (packets/sec)"),
        ] {
            let theirs: f64 = their(column).parse().expect("a number");
            let ours = ours[key].as_f64().expect("a rate");
            // Their seconds are rounded to those of the file.
            assert!((ours - theirs).abs() <= 0.01 + theirs * 1e-6, "{name}: {key}: {ours} {theirs}");
        }
    }
}

/// Protocols without applications, by their path: packets and bytes.
type Hierarchy = BTreeMap<String, (u64, u64)>;

const COMPARED: [&str; 10] = ["eth", "null", "ip", "ipv6", "tcp", "udp", "icmp", "icmpv6", "arp", "gre"];

fn hierarchy(path: &Path) -> Hierarchy {
    let text = output_of(Command::new("tshark").arg("-r").arg(path).args(["-q", "-z", "io,phs"]));
    let mut open: Vec<String> = Vec::new();
    let mut found = Hierarchy::new();
    for line in text.lines().filter(|line| line.contains("frames:")) {
        let depth = (line.len() - line.trim_start().len()) / 2;
        let words: Vec<&str> = line.split_whitespace().collect();
        let number =
            |word: &str| word.rsplit(':').next().and_then(|digits| digits.parse().ok()).expect("a number");
        open.truncate(depth);
        open.push(words[0].to_owned());
        if open.iter().all(|name| COMPARED.contains(&name.as_str())) {
            found.insert(open.join(":"), (number(words[1]), number(words[2])));
        }
    }
    found
}

#[test]
fn protocols_are_those_of_tshark() {
    for path in named_captures("protocols_are_those_of_tshark", &NAMES, &["tshark"]) {
        let ours = info(&path);
        let rows = ours["protocols"].as_array().expect("a list").iter().map(|row| {
            let number = |key: &str| row[key].as_u64().expect("a number");
            (row["path"].as_str().expect("text").to_owned(), (number("packets"), number("bytes")))
        });
        let is_compared = |path: &str| path.split(':').all(|name| COMPARED.contains(&name));
        let ours: Hierarchy = rows.filter(|(path, _)| is_compared(path)).collect();
        assert_eq!(ours, hierarchy(&path), "{}", path.display());
    }
}

#[test]
fn damaged_files_are_told_with_their_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/mixed.pcapng"))
        .expect("a file");
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("cut.pcapng"), &whole[..100_000]).expect("written");
    std::fs::write(path("text.pcap"), "no capture").expect("written");
    std::fs::write(path("whole.pcapng"), &whole).expect("written");
    let files = ["cut.pcapng", "text.pcap", "whole.pcapng"].map(path);
    let mut arguments = vec!["info", "--json"];
    arguments.extend(files.iter().map(String::as_str));
    let done = run(&arguments);
    done.failed_saying(&["cut.pcapng", "text.pcap", "100000"]);
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let packets: Vec<&Value> = lines[..3].iter().map(|line| &line["packets"]).collect();
    assert!(packets[0].as_u64().is_some_and(|count| count > 100 && count < 409), "{packets:?}");
    assert_eq!((packets[1], packets[2]), (&0.into(), &409.into()));
    assert!(lines[0]["damage"].as_str().is_some_and(|why| why.contains("byte")), "{}", lines[0]["damage"]);
    assert_eq!((&lines[2]["damage"], &lines[3]["account"]["balanced"]), (&Value::Null, &true.into()));
    arguments[1] = "--top=1";
    let text = String::from_utf8_lossy(&run(&arguments).stdout).into_owned();
    assert!(text.contains("DAMAGED     after"), "{text}");
}

#[test]
fn recorded_drops_and_order_are_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let to = |name: &str| folder.path().join(name).display().to_string();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/mixed.pcapng");
    // An interface statistics block, which says that 5 packets were dropped.
    let mut file = std::fs::read(example).expect("a file");
    for word in [5u32, 40, 0, 0, 0, 5 | 8 << 16, 5, 0, 0, 40] {
        file.extend(word.to_ne_bytes());
    }
    std::fs::write(to("dropped.pcapng"), &file).expect("written");
    let dropped = info(Path::new(&to("dropped.pcapng")));
    assert_eq!((&dropped["dropped"], &dropped["interfaces"][0]["dropped"]), (&5.into(), &5.into()));
    // A pcap has no place for drops, and one file twice goes back in time.
    run(["capture", "-r", example, "-r", example, "-w", &to("twice.pcap")]).succeeded();
    let twice = info(Path::new(&to("twice.pcap")));
    assert_eq!(
        (&twice["dropped"], &twice["in_order"], &twice["steps_back"]),
        (&Value::Null, &false.into(), &1.into())
    );
    assert_eq!(twice["step_back_max_ns"], 90_036_392);
}
