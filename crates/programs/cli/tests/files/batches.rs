//! `tapline probe --export` in batches: every flow is acknowledged, spooled or reported as lost, whatever the receiver
//! does, and whenever the probe is killed.

use std::fs;
use std::path::Path;

use crate::support::*;
use serde_json::Value;

/// A capture of this number of flows, each of one packet.
fn capture(folder: &Path, flows: usize) -> std::path::PathBuf {
    let path = folder.join("in.pcap");
    let (count, flows) = (format!("count={flows}"), format!("flows={flows}"));
    run(["generate", "-w", text(&path), &count, "udp", &flows, "seed=3", "oneway"]).succeeded();
    path
}

/// The counters of the stage, once all of the account balances.
fn counters(told: &Finished) -> Value {
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    let objects: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert_eq!(objects[1]["account"]["balanced"], true, "{text}");
    let counters = objects[0]["results"]["batches0"][0].clone();
    let sum: u64 = [
        "acknowledged",
        "spooled",
        "lost_memory",
        "lost_refused",
        "lost_spool_full",
        "lost_undelivered",
        "in_flight",
    ]
    .iter()
    .map(|name| counters[name].as_u64().expect("a number"))
    .sum();
    assert_eq!(counters["flows"], sum, "{counters}");
    assert_eq!(counters["in_flight"], 0);
    counters
}

#[test]
fn rows_of_batches_are_those_of_lines() {
    let folder = tempfile::tempdir().expect("there is room");
    let input = capture(folder.path(), 500);
    let [batches, lines] = ["batches.json", "lines.json"].map(|name| folder.path().join(name));
    let to = format!("batch+file:{},json:{}", batches.display(), lines.display());
    let told =
        run(["probe", "-r", text(&input), "--export", &to, "--batch-rows", "64", "--json"]).succeeded();
    let counters = counters(&told);
    assert_eq!((&counters["flows"], &counters["acknowledged"]), (&500.into(), &500.into()));
    assert_eq!(fs::read(&batches).expect("it is there"), fs::read(&lines).expect("it is there"));
    let to = ["--export", "batch+stdout:"];
    let told = run(["probe", "-r", text(&input)].into_iter().chain(to)).succeeded();
    assert_eq!(told.stdout, fs::read(&lines).expect("it is there"));
}

/// Fields of all records of a file of IPFIX, as tshark reads them.
fn fields(file: &Path) -> Vec<Vec<String>> {
    let names = [
        "cflow.srcaddr",
        "cflow.dstaddrv6",
        "cflow.octets",
        "cflow.packets",
        "cflow.srcport",
        "cflow.abstimestart",
        "cflow.tcpflags",
        "cflow.dstport",
    ];
    let words = names.iter().flat_map(|name| ["-e", name]);
    let mut tshark = std::process::Command::new("tshark");
    let told = finish(tshark.args(["-r", text(file), "-T", "fields"]).args(words)).succeeded();
    let text = String::from_utf8(told.stdout).expect("text");
    let columns = |line: &str| line.split('\t').map(str::to_owned).collect::<Vec<_>>();
    let lines: Vec<Vec<String>> = text.lines().map(columns).collect();
    let of =
        |at: usize| lines.iter().flat_map(move |line| line[at].split(',').filter(|value| !value.is_empty()));
    (0..names.len()).map(|at| of(at).map(str::to_owned).collect()).collect()
}

#[test]
fn tshark_reads_blocks_of_ipfix_as_the_file() {
    let folder = tempfile::tempdir().expect("there is room");
    let input = folder.path().join("in.pcap");
    let recipe = ["udp", "tcp", "ip", "ip6", "flows=3000", "count=9000", "size=80..900", "seed=5"];
    run(["generate", "-w", text(&input)].into_iter().chain(recipe)).succeeded();
    let [blocks, whole] = ["blocks.ipfix", "whole.ipfix"].map(|name| folder.path().join(name));
    let to = format!("batch+file:{}?format=ipfix,file:{}", blocks.display(), whole.display());
    let template = "sourceIPv4Address,destinationIPv4Address,octetDeltaCount,packetDeltaCount,sourceTransportPort,\
        destinationTransportPort,flowStartNanoseconds,tcpControlBits,httpRequestHost,sourceMacAddress";
    let words = ["--template", template, "--details", "http,ethernet", "--batch-rows", "1000", "--json"];
    let told = run(["probe", "-r", text(&input), "--export", &to].iter().chain(&words)).succeeded();
    assert_eq!(counters(&told)["flows"], 3000);
    let (found, expected) = (fields(&blocks), fields(&whole));
    assert!(expected[0].len() > 1000 && expected[1].len() > 1000, "both versions of IP");
    assert_eq!(found, expected);
}

#[test]
fn mistakes_are_told_in_words() {
    let probe = |more: &[&str]| run(["probe", "-r", "in.pcap"].iter().chain(more));
    probe(&["--export", "http://me:sesame@h/"]).failed_saying(&["--export-secret"]);
    probe(&["--export", "batch+file:a?format=xml"]).failed_saying(&["unknown format", "json"]);
    probe(&["--export", "batch+file:a?format=arrow"]).failed_saying(&["are not a file", "parquet:DIR"]);
    probe(&["--export", "kafka://h"]).failed_saying(&["topic is missing"]);
    probe(&["--export", "kafka://me:sesame@h/t"]).failed_saying(&["--export-secret"]);
    probe(&["--export", "batch+file:a", "--spool", "x"]).failed_saying(&["expected DIR,SIZE"]);
    probe(&["--export", "json:a", "--spool", "x,1G"]).failed_saying(&["receivers of batches"]);
    probe(&["--export", "batch+file:a", "--sensor", "a/b"]).failed_saying(&["not a name of a sensor"]);
    probe(&["--export", "batch+stdout:,json:-"]).failed_saying(&["only one output can use standard output"]);
}

#[cfg(not(feature = "kafka"))]
#[test]
fn a_build_without_kafka_says_so() {
    let folder = tempfile::tempdir().expect("there is room");
    let input = capture(folder.path(), 1);
    run(["probe", "-r", text(&input), "--export", "kafka://h/t"]).failed_saying(&["--features kafka"]);
}

mod clickhouse;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "http")]
mod packets;
