//! `tapline profile`: its sums balance, its JSON can be compared, its picture has its labels. Tests do not judge costs.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::*;
use serde_json::Value;
use tapline_sys::bpf::RunTimeStatistics;
use tapline_testkit::capture_file::{ETHERNET, Unit, write_pcap};
use tapline_testkit::netns::{FAR, Namespace, namespaces_or_skip};
use tapline_testkit::sender::{Pace, Sender};
use tapline_testkit::traffic::Traffic;

const PACKETS: usize = 20_000;

fn capture_in(folder: &Path) -> PathBuf {
    let path = folder.join("in.pcap");
    let traffic = Traffic::new(5).take(PACKETS);
    write_pcap(&mut fs::File::create(&path).unwrap(), ETHERNET, Unit::Nanoseconds, traffic).unwrap();
    path
}

fn profile(folder: &Path, arguments: &[&str]) -> Finished {
    finish(tapline(["profile"]).args(arguments).env("TAPLINE_RUN_DIR", folder))
}

fn json(finished: Finished) -> Value {
    serde_json::from_slice(&finished.succeeded().stdout).expect("JSON")
}

fn component<'a>(profile: &'a Value, name: &str) -> &'a Value {
    let parts = profile["components"].as_array().expect("a list");
    parts.iter().find(|part| part["name"] == name).unwrap_or_else(|| panic!("no {name} in {profile}"))
}

/// The parts and what is unexplained come to the total, whatever they are.
fn balances(profile: &Value) {
    let number = |value: &Value| value.as_f64().expect("a number");
    let parts = profile["components"].as_array().expect("a list");
    let sum: f64 = parts.iter().map(|part| number(&part["cycles"])).sum();
    let total = number(&profile["total_cycles"]);
    assert!(total > 0.0, "{profile}");
    assert!((sum + number(&profile["unexplained_cycles"]) - total).abs() < total * 1e-6 + 1e-6, "{profile}");
    assert!(parts.iter().all(|part| part["how"].is_string()), "{profile}");
}

/// Elements that are opened are closed, in their order; what is in them holds no mark.
fn well_formed(svg: &str) {
    let mut open = Vec::new();
    for piece in svg.split('<').skip(1) {
        let (tag, rest) = piece.split_once('>').expect("a tag ends");
        assert!(!rest.contains('>'), "{rest}");
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name.to_owned())),
            None if tag.ends_with('/') => {}
            None => open.push(tag.split_whitespace().next().expect("a name").to_owned()),
        }
    }
    assert_eq!(open, Vec::<String>::new());
}

#[test]
fn a_file_is_profiled_stage_by_stage() {
    let folder = tempfile::tempdir().unwrap();
    let (capture, out, svg) =
        (capture_in(folder.path()), folder.path().join("out.pcapng"), folder.path().join("costs.svg"));
    let arguments = ["-r", text(&capture), "-w", text(&out), "--svg", text(&svg), "--json", "udp"];
    let value = json(profile(folder.path(), &arguments));
    assert_eq!((&value["packets"], &value["facts"]["delivered"]), (&PACKETS.into(), &PACKETS.into()));
    assert_eq!(value["title"], "in.pcap, udp");
    assert_eq!(value["account"]["balanced"], true, "{}", value["account"]);
    balances(&value);
    for (name, how) in [("read", "timed"), ("filter", "timed"), ("count", "timed"), ("engine", "difference")]
    {
        assert_eq!(component(&value, name)["how"], how);
    }
    assert!(component(&value, "record")["cycles"].as_f64().is_some_and(|cycles| cycles > 0.0));
    let written = packets_of(&out).len();
    assert!(written > 0 && written < PACKETS, "udp is some of it");
    let svg = fs::read_to_string(svg).unwrap();
    well_formed(&svg);
    for label in
        ["cycles a packet", "read", "filter", "record", "engine", "unexplained", "total", "in.pcap, udp"]
    {
        assert!(svg.lines().any(|line| line == label), "no {label} in {svg}");
    }
}

#[test]
fn the_table_has_its_columns_and_facts() {
    let folder = tempfile::tempdir().unwrap();
    let capture = capture_in(folder.path());
    let output =
        profile(folder.path(), &["-r", text(&capture), "-e", "n :: count -> t :: top(by=flow)"]).succeeded();
    let table = String::from_utf8(output.stdout).unwrap();
    for word in [
        "in.pcap: 20000 packets",
        "cycles/packet",
        "by difference",
        "unexplained",
        "total",
        "20,000 delivered",
    ] {
        assert!(table.contains(word), "no {word} in {table}");
    }
    assert!(
        table.lines().any(|line| line.starts_with("t ")) && table.lines().any(|line| line.starts_with("n ")),
        "{table}"
    );
}

#[test]
fn two_profiles_stand_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let capture = capture_in(folder.path());
    let saved = |name: &str, extra: &[&str]| {
        let arguments = [&["-r", text(&capture), "--json", "--title", name], extra].concat();
        let path = folder.path().join(name);
        fs::write(&path, profile(folder.path(), &arguments).succeeded().stdout).unwrap();
        path
    };
    let (before, after) = (saved("before", &[]), saved("after", &["tcp"]));
    let svg = folder.path().join("both.svg");
    let both = ["--compare", text(&before), text(&after), "--svg", text(&svg)];
    let table = String::from_utf8(profile(folder.path(), &both).succeeded().stdout).unwrap();
    assert!(table.starts_with("before: before, 20000 packets\nafter:  after"), "{table}");
    assert!(table.lines().any(|line| line.starts_with("filter") && line.contains(" - ")), "{table}");
    let drawn = fs::read_to_string(&svg).unwrap();
    well_formed(&drawn);
    assert!(drawn.contains("bar 1") && drawn.contains("bar 2") && drawn.lines().any(|line| line == "after"));
    let value = json(profile(folder.path(), &[&both[..3], &["--json"]].concat()));
    assert_eq!((&value["before"]["title"], &value["after"]["title"]), (&"before".into(), &"after".into()));
    fs::write(&before, "{}").unwrap();
    profile(folder.path(), &both).failed_saying(&["not a profile", "title"]);
}

#[test]
fn an_interface_is_profiled_with_the_kernels_part() {
    const TEST: &str = "an_interface_is_profiled_with_the_kernels_part";
    if !namespaces_or_skip(TEST) {
        return;
    }
    let namespace = Namespace::with_pair("profile").expect("a probe succeeded");
    let folder = tempfile::tempdir().unwrap();
    for extra in [&[][..], &["-j", "tsc-sync"], &["--no-kernel-filter"]] {
        let mut command = tapline(["profile", "--netns", namespace.name(), "-i", FAR, "--json", "udp"]);
        let command = command.args(extra).args(["--duration", "1m"]).env("TAPLINE_RUN_DIR", folder.path());
        let live = Live::start_command(&namespace, 1, command);
        let sent =
            Sender::near(&namespace).unwrap().send(&frames(7, 500), 5000, Pace::PerSecond(20_000)).unwrap();
        let value = json(live.interrupt());
        balances(&value);
        let delivered = value["facts"]["delivered"].as_u64().expect("a number");
        assert_eq!(value["facts"]["offered"], sent.packets);
        assert_eq!(value["packets"], sent.packets, "costs are spread over all that the filter saw");
        match extra {
            [] => {
                assert!(delivered > 0 && delivered < sent.packets, "{value}");
                // The kernel's own word, where it gives it.
                let runs = value["facts"]["kernel"]["filter_runs"].as_u64();
                let tells = RunTimeStatistics::enable().is_ok();
                assert!(!tells || runs >= Some(sent.packets), "{value}");
            }
            ["-j", ..] => assert!(component(&value, "timestamp")["cycles"].as_f64() > Some(0.0), "{value}"),
            _ => assert_eq!(delivered, sent.packets),
        }
        for name in ["read", "filter", "count", "engine", "wake-up", "interrupts"] {
            assert!(component(&value, name)["cycles"].is_number());
        }
        assert!(value["facts"]["packets_per_wake_up"].is_number());
    }
}

#[test]
fn time_stamp_modes_are_measured() {
    let folder = tempfile::tempdir().unwrap();
    let value = json(profile(folder.path(), &["--timestamps", "--duration", "50ms", "--json"]));
    let modes: Vec<&str> =
        value.as_array().expect("a list").iter().filter_map(|mode| mode["mode"].as_str()).collect();
    assert_eq!(modes, ["kernel", "tsc", "tsc-sync", "batch"]);
    assert!(value[1]["ticks_per_packet"].as_f64().is_some_and(|ticks| ticks > 0.0));
    assert_eq!(value[2]["error"]["backwards"], 0);
}

#[test]
fn small_things_are_measured_and_did_their_work() {
    let folder = tempfile::tempdir().unwrap();
    let value = json(profile(folder.path(), &["--micro", "--runs", "3", "--json"]));
    let tasks = value.as_array().expect("a list");
    for word in [
        "calling a filter",
        "batches of 1 packet",
        "batches of 256",
        "meter",
        "clock",
        "index",
        "storing 64 bytes",
        "512",
        "1500",
        "waking",
        "10 patterns",
        "1000 patterns",
        "filter ip",
        "tcp5",
        "h10p10, interpreted",
    ] {
        let task = tasks.iter().find(|task| task["name"].as_str().is_some_and(|name| name.contains(word)));
        let task = task.unwrap_or_else(|| panic!("no {word} in {value}"));
        assert!(task["cycles"].as_f64().is_some_and(|cycles| cycles > 0.0), "{task}");
    }
    let theirs: Vec<f64> = tasks.iter().filter_map(|task| task["reference_cycles"].as_f64()).collect();
    for cycles in [71.0, 171.0, 154.0, 7479.0, 624.0, 6.6, 1000.0, 740.0] {
        assert!(theirs.contains(&cycles), "{cycles} of FFPF's table is missing");
    }
    let text =
        String::from_utf8(profile(folder.path(), &["--micro", "--runs", "1"]).succeeded().stdout).unwrap();
    assert!(text.contains("p10 to p90") && text.contains("FFPF"), "{text}");
}

#[test]
fn unprofilable_sources_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let say = |arguments: &[&str], words: &[&str]| profile(folder.path(), arguments).failed_saying(words);
    say(&[], &["-i INTERFACE"]);
    say(&["-r", "/none.pcap"], &["/none.pcap"]);
    say(&["-r", "/none.pcap", "-i", "lo"], &["cannot be used with"]);
    say(&["--micro", "--timestamps"], &["one at a time"]);
    say(&["-e", "count", "udp"], &["-i or -r"]);
    let empty = folder.path().join("empty.pcap");
    write_pcap(&mut fs::File::create(&empty).unwrap(), ETHERNET, Unit::Nanoseconds, std::iter::empty())
        .unwrap();
    say(&["-r", text(&empty)], &["no packet came"]);
}
