//! `tapline stats` compared with `tshark -z io,stat`.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::info::{json_lines, named_captures};

/// Captures in the order of time, without tunnels, of less than an hour.
const NAMES: [&str; 11] = [
    "communityid-tcp.pcap",
    "dce-rpc-mapi.pcap",
    "dce-rpc-20-fids.pcap",
    "dce-rpc-20-fids-no-close.pcap",
    "ftp-ftp-many-port-expected.pcap",
    "http-http-post-large.pcap",
    "krb-kinit.pcap",
    "krb-kerberos_tso.pcapng",
    "portmapper-many-unanswered-calls.pcapng",
    "smb-smb2_100_small_files.pcap",
    "tls-ssl.v3.pcap",
];

/// Packets and bytes of all, TCP and UDP.
type Rows = Vec<[(u64, u64); 3]>;

fn tshark(path: &Path) -> Rows {
    let done =
        Command::new("tshark").arg("-r").arg(path).args(["-q", "-z", "io,stat,0.5,frame,tcp,udp"]).output();
    let text = String::from_utf8_lossy(&done.expect("it runs").stdout).into_owned();
    let rows = text.lines().filter(|line| line.contains("<>") && !line.contains("Interval")).map(|line| {
        let numbers: Vec<u64> = line.split('|').skip(2).filter_map(|cell| cell.trim().parse().ok()).collect();
        [0, 2, 4].map(|at| (numbers[at], numbers[at + 1]))
    });
    rows.collect()
}

fn amount(value: &Value) -> (u64, u64) {
    let number = |key: &str| value[key].as_u64().expect("a number");
    (number("packets"), number("bytes"))
}

#[test]
fn intervals_are_those_of_tshark() {
    for path in named_captures("intervals_are_those_of_tshark", &NAMES, &["tshark"]) {
        let name = path.to_str().expect("text");
        let mut lines =
            json_lines(&["stats", "-r", name, "-I", "500ms", "--json", "ip proto 6", "ip proto 17"]);
        assert_eq!(lines.pop().expect("an account")["account"]["balanced"], true);
        let row = |line: &Value| [amount(line), amount(&line["filters"][0]), amount(&line["filters"][1])];
        let total = row(&lines.pop().expect("a total"));
        let ours: Rows = lines.iter().map(row).collect();
        let theirs = tshark(&path);
        assert_eq!(ours, theirs, "{name}");
        let sum = |at: usize| theirs.iter().fold((0, 0), |sum, row| (sum.0 + row[at].0, sum.1 + row[at].1));
        assert_eq!(total, [0, 1, 2].map(sum), "{name}");
    }
}
