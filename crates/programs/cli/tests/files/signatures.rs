//! `signatures` compared with tshark, on real captures: the same packets match a signature and a display filter.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{Finished, TAPLINE, captures_or_skip, program_or_skip};

/// Signatures, and display filters that say the same.
const TWINS: [(&str, &str); 8] = [
    ("tcp any any -> any any (content:\"GET \"; depth:4;", "tcp.payload[0:4] == 47:45:54:20"),
    ("tcp any any -> any any (content:\"http/1.1\"; nocase;", "tcp.payload matches \"HTTP/1[.]1\""),
    ("tcp any any -> any any (pcre:\"/^USER [a-z]+/i\";", "tcp.payload matches \"^USER [a-z]+\""),
    (
        "tcp any any -> any any (flags:S,12;",
        "tcp.flags.syn == 1 && tcp.flags.ack == 0 && tcp.flags.fin == 0 && tcp.flags.reset == 0 && tcp.flags.push == 0 \
            && tcp.flags.urg == 0",
    ),
    ("tcp any any -> any any (flags:F+; ttl:<65;", "tcp.flags.fin == 1 && ip.ttl < 65"),
    (
        "udp any any -> any 53 (content:\"|01 00 00 01|\"; offset:2; depth:4;",
        "udp.dstport == 53 && udp.payload[2:4] == 01:00:00:01",
    ),
    ("udp any any -> any any (dsize:40<>60;", "udp.length > 48 && udp.length < 68"),
    ("icmp any any -> any any (itype:8; icode:0;", "icmp.type == 8 && icmp.code == 0"),
];

/// Captures without tunnels, in which tshark and filters see the same headers.
const NAMES: [&str; 6] = ["http-", "ftp-", "dns", "smtp", "communityid-", "icmp-"];

fn chosen(test: &str) -> Option<Vec<PathBuf>> {
    let mut all = captures_or_skip(test)?;
    all.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        NAMES.iter().any(|known| name.starts_with(known))
    });
    Some(all)
}

/// Packets that each signature fitted, by sid - 1.
fn fitted(rules: &Path, capture: &Path) -> Option<Vec<u64>> {
    let graph = format!("file({capture:?}) -> twins :: signatures({rules:?}, refused=error) -> drop");
    let output = Command::new(TAPLINE).args(["run", "--json", "-e", &graph]).output().expect("it starts");
    let finished = Finished::new(output);
    if !finished.status.success() {
        return None;
    }
    let text = String::from_utf8_lossy(&finished.stdout).into_owned();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let [.., results, account] = lines.as_slice() else { panic!("{text}") };
    assert_eq!(account["account"]["balanced"], true, "{account}");
    let mut counts = vec![0; TWINS.len()];
    for row in results["results"]["twins"].as_array().expect("rows") {
        let sid = row["sid"].as_u64().expect("a sid") as usize;
        counts[sid - 1] = row["fitted"].as_u64().expect("a count");
    }
    Some(counts)
}

/// Packets that tshark shows. Headers that an ICMP error quotes are none of the packet's own.
fn shown(filter: &str, capture: &Path) -> u64 {
    let filter = match filter.starts_with("icmp") {
        true => filter.to_owned(),
        false => format!("{filter} && !icmp && !icmpv6"),
    };
    let mut command = Command::new("tshark");
    command.args(["-n", "-o", "tcp.desegment_tcp_streams:false", "-T", "fields", "-e", "frame.number", "-Y"]);
    let output = command.arg(&filter).arg("-r").arg(capture).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !said.contains("neither a field nor a protocol") && !said.contains("syntax error"),
        "{filter}: {said}"
    );
    output.stdout.iter().filter(|byte| **byte == b'\n').count() as u64
}

#[test]
fn signatures_fit_the_packets_that_tshark_shows() {
    const TEST: &str = "signatures_fit_the_packets_that_tshark_shows";
    let Some(captures) = chosen(TEST) else { return };
    if !program_or_skip(TEST, "tshark") {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room");
    let rules = folder.path().join("twins.rules");
    let lines = TWINS.iter().zip(1..).map(|((text, _), sid)| format!("alert {text} sid:{sid};)\n"));
    std::fs::write(&rules, lines.collect::<String>()).expect("there is room");
    let mut totals = vec![0; TWINS.len()];
    let (mut compared, mut wrong) = (0, Vec::new());
    for capture in captures.iter().step_by(8) {
        let Some(counts) = fitted(&rules, capture) else { continue };
        compared += 1;
        for (at, (signature, filter)) in TWINS.iter().enumerate() {
            let theirs = shown(filter, capture);
            totals[at] += counts[at];
            if counts[at] != theirs {
                wrong.push(format!("{}: {signature} {} tshark {theirs}", capture.display(), counts[at]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    eprintln!("{compared} captures, packets by signature {totals:?}");
    assert!(compared > 10 && totals.iter().filter(|total| **total > 0).count() > 4, "{compared} {totals:?}");
}
