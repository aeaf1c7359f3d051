//! `tapline top`: shows a running process whose meters it reads.

mod pages;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::*;
use serde_json::Value;
use tapline_testkit::capture_file::{ETHERNET, Unit, write_pcap};
use tapline_testkit::netns::{FAR, namespaces_or_skip};
use tapline_testkit::sender::{Pace, Sender};
use tapline_testkit::traffic::Traffic;

const FRAMES: usize = 2000;

/// A run that reads a capture from its standard input, and the capture: it runs until that ends.
struct Running {
    child: Child,
    folder: tempfile::TempDir,
}

impl Running {
    /// Has read all of the frames, and waits for more.
    fn start() -> Running {
        let folder = tempfile::tempdir().unwrap();
        let mut command = tapline(["run", "-e", "file(\"-\") -> filter(\"udp\") -> c :: count"]);
        command.env("TAPLINE_RUN_DIR", folder.path()).stdin(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the program was built");
        let mut capture = Vec::new();
        let traffic = Traffic::new(9).take(FRAMES);
        write_pcap(&mut capture, ETHERNET, Unit::Nanoseconds, traffic).unwrap();
        child.stdin.as_mut().expect("a pipe").write_all(&capture).unwrap();
        let running = Running { child, folder };
        wait_for("all frames to be read", || {
            running.stages(&["--once", "--json", "--interval", "10ms"]).is_some_and(|stages| {
                stages.iter().any(|stage| stage["total"]["class"] == "file" && total(stage) == FRAMES as u64)
            })
        });
        running
    }

    fn top(&self, arguments: &[&str]) -> Finished {
        top_in(self.folder.path(), arguments)
    }

    fn stages(&self, arguments: &[&str]) -> Option<Vec<Value>> {
        let value: Value = serde_json::from_slice(&self.top(arguments).succeeded().stdout).expect("JSON");
        value["processes"].get(0)?["stages"].as_array().cloned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn top_in(folder: &Path, arguments: &[&str]) -> Finished {
    finish(tapline(["top"]).args(arguments).env("TAPLINE_RUN_DIR", folder))
}

fn total(stage: &Value) -> u64 {
    stage["total"]["packets_in"].as_u64().expect("a number")
}

#[test]
fn a_run_is_seen_by_others() {
    let running = Running::start();
    let stages = running.stages(&["--once", "--json", "--interval", "20ms"]).expect("it runs");
    let of = |class: &str| {
        let mut found = stages.iter().filter(|stage| stage["total"]["class"] == class);
        found.next().unwrap_or_else(|| panic!("no {class} in {stages:?}"))
    };
    assert_eq!((total(of("file")), total(of("filter"))), (FRAMES as u64, FRAMES as u64));
    assert_eq!(total(of("count")), of("filter")["total"]["packets_out"]);
    assert!(total(of("count")) > 0 && of("count")["total"]["name"] == "c");
    assert!(of("filter")["total"]["cycles_per_packet"]["p99"].is_number());
    // Nothing came in the meantime.
    assert_eq!(
        (&of("file")["recent"]["packets_in"], &of("file")["packets_per_second"]),
        (&0.into(), &0.0.into())
    );

    let text = String::from_utf8(running.top(&["--once", "--interval", "20ms"]).succeeded().stdout).unwrap();
    for word in ["run file -", "packets/s", "cycles/packet", "median", "p99", "share", "2,000"] {
        assert!(text.contains(word), "no {word} in {text}");
    }
    assert!(text.starts_with(&running.child.id().to_string()), "{text}");
}

#[test]
fn one_process_may_be_chosen() {
    let running = Running::start();
    let pid = running.child.id().to_string();
    assert_eq!(running.stages(&[&pid, "--once", "--json", "--interval", "10ms"]).expect("it runs").len(), 3);
    running.top(&["1", "--once"]).failed_saying(&[
        "process 1 is not a process of tapline",
        &pid,
        "run file -",
    ]);
}

#[test]
fn without_a_process_top_says_how_to_start_one() {
    let folder = tempfile::tempdir().unwrap();
    let text = top_in(folder.path(), &["--interval", "10ms"]).succeeded().stdout;
    assert!(String::from_utf8_lossy(&text).contains("sudo tapline top -i eth0"));
    let none = top_in(folder.path(), &["--once", "--json", "--interval", "10ms"]).succeeded().stdout;
    assert_eq!(serde_json::from_slice::<Value>(&none).expect("JSON")["processes"], Value::Array(Vec::new()));
    top_in(folder.path(), &["--interval", "0"]).failed_saying(&["10ms"]);
}

#[test]
fn each_refresh_is_a_table_without_a_terminal() {
    let mut running = Running::start();
    let mut command = tapline(["top", "--json", "--interval", "20ms"]);
    let mut top =
        command.env("TAPLINE_RUN_DIR", running.folder.path()).spawn().expect("the program was built");
    let file = running.folder.path().join(format!("{}.meters", running.child.id()));
    assert!(file.exists());
    let mut lines = BufReader::new(top.stdout.take().expect("a pipe"))
        .lines()
        .map(|line| serde_json::from_str::<Value>(&line.expect("text")).expect("JSON"));
    for _ in 0..2 {
        let processes = lines.next().expect("a refresh")["processes"].clone();
        assert_eq!(processes.as_array().map(Vec::len), Some(1), "{processes}");
    }
    drop(running.child.stdin.take());
    assert!(running.child.wait().unwrap().success());
    let last = lines.last().expect("a refresh after the end");
    assert_eq!(last["processes"], Value::Array(Vec::new()), "the last one says that none is left");
    Finished::new(top.wait_with_output().unwrap()).succeeded();
}

#[test]
fn a_live_capture_is_seen_with_its_command_line() {
    const TEST: &str = "a_live_capture_is_seen_with_its_command_line";
    if !namespaces_or_skip(TEST) {
        return;
    }
    let namespace = tapline_testkit::netns::Namespace::with_pair("top").expect("a probe succeeded");
    let folder = tempfile::tempdir().unwrap();
    let mut command = tapline(["capture", "--netns", namespace.name(), "-i", FAR, "--json", "-w"]);
    command.arg(folder.path().join("out.pcap")).env("TAPLINE_RUN_DIR", folder.path());
    let live = Live::start_command(&namespace, 1, &mut command);
    let sent =
        Sender::near(&namespace).unwrap().send(&frames(3, 500), 5000, Pace::PerSecond(20_000)).unwrap();
    let mut seen = Value::Null;
    wait_for("all packets to be counted", || {
        let stdout = top_in(folder.path(), &["--once", "--json", "--interval", "10ms"]).succeeded().stdout;
        seen = serde_json::from_slice::<Value>(&stdout).expect("JSON")["processes"][0].take();
        seen["stages"][0].is_object() && total(&seen["stages"][0]) == sent.packets
    });
    assert!(seen["title"].as_str().is_some_and(|title| title.starts_with("capture --netns")), "{seen}");
    assert_eq!(seen["pid"], live.pid());
    assert_eq!(live.interrupt().succeeded().account().count("accepted"), sent.packets);
}

/// Gauges that only a stage knows, while it runs: the size of the flow table, and exported records.
#[test]
fn a_live_probe_tells_of_its_table() {
    const TEST: &str = "a_live_probe_tells_of_its_table";
    if !namespaces_or_skip(TEST) {
        return;
    }
    let namespace = tapline_testkit::netns::Namespace::with_pair("gauges").expect("a probe succeeded");
    let folder = tempfile::tempdir().unwrap();
    let mut command =
        tapline(["probe", "--netns", namespace.name(), "-i", FAR, "--json", "--flows-max", "5000"]);
    let to = format!("json:{}", folder.path().join("flows").display());
    let live = Live::start_command(
        &namespace,
        1,
        command.args(["--export", &to]).env("TAPLINE_RUN_DIR", folder.path()),
    );
    let sent =
        Sender::near(&namespace).unwrap().send(&frames(3, 500), 5000, Pace::PerSecond(20_000)).unwrap();
    let (mut meter, mut text) = (Value::Null, String::new());
    wait_for("flows to be counted", || {
        let top = |more: &[&str]| {
            top_in(folder.path(), &[&["--once", "--interval", "150ms"], more].concat()).succeeded()
        };
        text = String::from_utf8(top(&[]).stdout).expect("text");
        let seen: Value = serde_json::from_slice(&top(&["--json"]).stdout).expect("JSON");
        let stages = seen["processes"][0]["stages"].as_array().cloned().unwrap_or_default();
        meter = stages.into_iter().find(|stage| stage["total"]["class"] == "flow").unwrap_or_default();
        total(&meter) == sent.packets
    });
    let gauge =
        |name: &str| meter["total"]["extras"][name].as_u64().unwrap_or_else(|| panic!("{name}: {meter}"));
    let ended = ["idle", "active", "end", "full"].map(gauge).into_iter().sum::<u64>();
    assert_eq!(gauge("flows"), gauge("now") + ended, "{meter}");
    assert!(gauge("now") > 0 && gauge("chain_max") > 0 && gauge("room") == 5000, "{meter}");
    assert!(meter["total"]["cycles_per_packet"]["mean"].is_number());
    let line = text.lines().find(|line| line.contains("chain_max")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.trim().starts_with("now ") && line.contains("room 5,000"), "{text}");
    assert!(
        text.lines().any(|line| line.trim().starts_with("flows ") && line.contains("records ")),
        "{text}"
    );
    live.interrupt().succeeded();
}

/// With script(1) as the terminal: q ends it, and the terminal is left as it was.
#[test]
fn on_a_terminal_it_refreshes_in_place_until_q() {
    const TEST: &str = "on_a_terminal_it_refreshes_in_place_until_q";
    if !program_or_skip(TEST, "script") {
        return;
    }
    let running = Running::start();
    let log = running.folder.path().join("typescript");
    let line = format!("stty cols 60 rows 10; {TAPLINE} top --interval 20ms; stty -a");
    let mut script = Command::new("script")
        .args(["-q", "-e", "-f", "-c", &line])
        .arg(&log)
        .env("TAPLINE_RUN_DIR", running.folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let shown = || fs::read_to_string(&log).unwrap_or_default();
    wait_for("three frames", || shown().matches("\x1b[H").count() >= 3);
    let mut keys = script.stdin.take().expect("a pipe");
    keys.write_all(b"xq").unwrap();
    wait_for("the screen to be given back", || shown().contains("\x1b[?1049l"));
    drop(keys);
    assert!(script.wait().unwrap().success());
    let text = shown();
    assert!(text.contains("run file -") && text.contains("packets/s"), "{text}");
    assert!(!text.contains("class "), "60 columns have no room for the class: {text}");
    let after = text.rsplit("\x1b[?1049l").next().expect("what stty says");
    assert!(after.contains(" icanon") && after.contains(" echo "), "{after}");
}
