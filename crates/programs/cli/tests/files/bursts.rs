//! Bursts and gaps compared with tshark's sums of intervals: the stage's table and the events of rules.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tapline_testkit::capture_file::{ETHERNET, Unit, write_pcap};
use tapline_testkit::random::Random;
use tapline_testkit::traffic::TimedFrame;

use crate::support::*;

/// Bytes in 10 ms from which on a window is part of a burst.
const ABOVE: u64 = 6000;
const MS: u64 = 1_000_000;

/// Quiet traffic with bursts, and with holes of 60 ms and more.
fn traffic(path: &Path) {
    let mut random = Random::new(45);
    // A time of 0 is none.
    let mut time_ns = 10 * MS;
    let frames = (0..6000_u64).map(|at| {
        let at_ns = time_ns;
        time_ns += match at % 500 {
            499 => 60 * MS + random.below(100 * MS),
            100..180 => 1 + random.below(MS / 2),
            _ => 1 + random.below(3 * MS),
        };
        (Duration::from_nanos(at_ns), vec![0; 60 + random.below(1400) as usize])
    });
    let frames: Vec<TimedFrame> = frames.collect();
    let mut file = fs::File::create(path).expect("a file");
    write_pcap(&mut file, ETHERNET, Unit::Nanoseconds, frames.into_iter()).expect("it is written");
}

/// Packets and bytes of each run of full intervals, as tshark counts them.
fn runs_of_tshark(path: &Path) -> Vec<(u64, u64)> {
    let output = Command::new("tshark").args(["-q", "-z", "io,stat,0.01", "-r"]).arg(path).output();
    let text = String::from_utf8_lossy(&output.expect("tshark runs").stdout).into_owned();
    let mut intervals: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
    for line in text.lines().filter(|line| line.contains("<>")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let number = |at: usize| cells[at].parse::<u64>().expect("a number");
        intervals.insert(intervals.len(), (number(2), number(3)));
    }
    let mut runs: Vec<(usize, (u64, u64))> = Vec::new();
    for (at, (packets, bytes)) in intervals.into_iter().filter(|(_, (_, bytes))| *bytes >= ABOVE) {
        match runs.last_mut() {
            Some((last, sum)) if *last + 1 == at => {
                (*last, sum.0, sum.1) = (at, sum.0 + packets, sum.1 + bytes);
            }
            _ => runs.push((at, (packets, bytes))),
        }
    }
    runs.into_iter().map(|(_, sum)| sum).collect()
}

#[test]
fn bursts_are_the_full_intervals_of_tshark() {
    if !program_or_skip("bursts_are_the_full_intervals_of_tshark", "tshark") {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room");
    let (file, rules) = (folder.path().join("in.pcap"), folder.path().join("rules.toml"));
    traffic(&file);
    let expected = runs_of_tshark(&file);
    assert!(expected.len() > 10, "{expected:?}");

    let graph =
        format!("file(\"{}\") -> b :: bursts(bits={}, gap=50ms, rows=1000)", file.display(), ABOVE * 800);
    let done = run(["run", "--json", "-e", &graph]).succeeded();
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let results: Value = serde_json::from_str(text.lines().next().expect("results")).expect("JSON");
    let rows = results["results"]["b"].as_array().expect("a table");
    let of = |what: &str| rows.iter().filter(|row| row["what"] == what).collect::<Vec<_>>();
    let number = |value: &Value| value.as_u64().expect("a number");
    let found: Vec<_> =
        of("burst").iter().map(|row| (number(&row["packets"]), number(&row["bytes"]))).collect();
    assert_eq!(found, expected);
    let gaps: Vec<u64> = of("gap").iter().map(|row| number(&row["length_ns"])).collect();
    assert_eq!(gaps.len(), 11);
    assert!(gaps.iter().all(|gap| *gap >= 60 * MS));

    let text = format!(
        "[[rule]]\nname = \"burst\"\non = \"burst\"\ncount = \"bytes\"\nwindow = \"10ms\"\nabove = {ABOVE}\nlimit = \"100000/1s\"\n\
         [[rule]]\nname = \"gap\"\non = \"gap 50ms\"\n"
    );
    fs::write(&rules, text).expect("a file of rules");
    let words =
        [Path::new("watch"), Path::new("--json"), Path::new("-r"), &file, Path::new("--rules"), &rules];
    let done = run(words).succeeded();
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let events: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of = |rule: &str| events.iter().filter(|event| event["rule"] == rule).cloned().collect::<Vec<_>>();
    let about = |event: &Value, name: &str| number(&event["about"][name]);
    let bursts = of("burst");
    let found: Vec<_> =
        bursts.iter().map(|event| (about(event, "burst_packets"), about(event, "burst_bytes"))).collect();
    assert_eq!(found, expected);
    let first = rows.iter().find(|row| row["what"] == "burst").expect("a burst");
    for name in ["length_ns", "peak_bits", "peak_packets"] {
        assert_eq!(bursts[0]["about"][name], first[name], "{name}");
    }
    assert_eq!(of("gap").iter().map(|event| number(&event["value"])).collect::<Vec<_>>(), gaps);
}
