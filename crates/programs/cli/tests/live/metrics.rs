//! `tapline metrics`: a real Prometheus scrapes it, and has the figures of the account.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tapline_testkit::netns::{FAR, Namespace, namespaces_or_skip};
use tapline_testkit::sender::{Pace, Sender};

use crate::serve::Daemon;
use crate::support::*;

/// A process that goes with the test.
struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `tapline metrics` at a port of its choice: the process, and the address.
fn serve(run_dir: &Path) -> (Background, String) {
    let mut command = tapline(["metrics", "--listen", "127.0.0.1:0", "--socket"]);
    command.arg(run_dir.join("none")).env("TAPLINE_RUN_DIR", run_dir);
    let mut child = Background(command.spawn().expect("the program was built"));
    let mut line = String::new();
    BufReader::new(child.0.stderr.take().expect("a pipe")).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("tapline: metrics at ").unwrap_or_else(|| panic!("{line}"));
    (child, address.to_owned())
}

/// The body of an answer.
fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text.split_once("\r\n\r\n")?.1.to_owned())
}

/// Prometheus, which scrapes this address each second: the process, and its own address.
fn prometheus(folder: &Path, target: &str) -> (Background, String) {
    // A free port of an address at which few other tests have one.
    let free = TcpListener::bind("127.0.0.2:0").unwrap().local_addr().unwrap().to_string();
    let configuration = folder.join("prometheus.yml");
    let text = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n  - job_name: tapline\n    static_configs: [{{targets: ['{target}']}}]\n"
    );
    fs::write(&configuration, text).unwrap();
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", configuration.display()));
    command.arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()));
    command.arg(format!("--web.listen-address={free}")).arg("--log.level=error");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = Background(command.spawn().expect("it is installed"));
    wait_for("Prometheus to be ready", || {
        get(&free, "/-/ready").is_some_and(|text| text.contains("is Ready"))
    });
    (child, free)
}

/// The newest value of a query with one result.
fn query(address: &str, query: &str) -> Option<u64> {
    let escaped: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let value: Value =
        serde_json::from_str(&get(address, &format!("/api/v1/query?query={escaped}"))?).ok()?;
    value["data"]["result"][0]["value"][1].as_str()?.parse().ok()
}

/// Queries with one result each; the last one whether the driver's losses are known or unknown.
const SAMPLES: [&str; 6] = [
    "tapline_interface_received_packets_total",
    "tapline_interface_lost_packets_total{place=\"ring\"}",
    "tapline_interface_delivered_packets_total",
    "tapline_output_written_packets_total",
    "tapline_stage_passed_packets_total{stage=\"filter\"}",
    "count(tapline_interface_unknown{place=\"driver\"} or tapline_interface_lost_packets_total{place=\"driver\"}) == 1",
];

#[test]
fn prometheus_has_the_figures_of_the_account() {
    const TEST: &str = "prometheus_has_the_figures_of_the_account";
    const FRAMES: u64 = 21_000;
    if !namespaces_or_skip(TEST) || !program_or_skip(TEST, "prometheus") {
        return;
    }
    let namespace = Namespace::with_pair("metrics").expect("a probe succeeded before");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcap");
    let mut command =
        tapline(["capture", "--netns", namespace.name(), "-i", FAR, "-B", "1024", "--json", "-w"]);
    command.arg(&out).arg("--strict").env("TAPLINE_RUN_DIR", folder.path());
    let live = Live::start_command(&namespace, 1, &mut command);
    let (_metrics, address) = serve(folder.path());
    let (_prometheus, server) = prometheus(folder.path(), &address);

    let (frames, mut sender) = (frames(3, 5000), Sender::near(&namespace).unwrap());
    sender.send(&frames, 1000, Pace::PerSecond(20_000)).unwrap();
    live.signal("STOP");
    sender.send(&frames, FRAMES - 1000, Pace::Full).unwrap();
    live.signal("CONT");
    // A scrape may come between two counters of the capture, and one that is late takes the samples away.
    let (mut lost, mut written) = (0, 0);
    wait_for("Prometheus to have all frames", || {
        let samples: Option<Vec<u64>> = SAMPLES.iter().map(|name| query(&server, name)).collect();
        let Some([received, ring, delivered, output, filtered, _]) = samples.as_deref() else { return false };
        (lost, written) = (*ring, *output);
        [received, &(delivered + ring)] == [&FRAMES; 2] && [delivered, filtered] == [output; 2]
    });

    let finished = live.interrupt();
    let account = finished.account();
    assert!(lost > 0, "{}", account.value);
    assert_eq!((account.ring("received"), account.ring("dropped")), (FRAMES, lost));
    let counts = ["delivered", "accepted"].map(|name| account.count(name));
    assert_eq!((counts, account.output("written")), ([written; 2], written));
    assert_eq!(finished.status.code(), Some(3), "--strict: {}", finished.stderr);
    assert!(finished.stderr.contains("--strict: packets were lost: "), "{}", finished.stderr);
}

#[test]
fn promtool_finds_no_fault() {
    const TEST: &str = "promtool_finds_no_fault";
    if !program_or_skip(TEST, "promtool") {
        return;
    }
    let contrib = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../contrib/prometheus"));
    finish(Command::new("promtool").args(["check", "rules"]).arg(contrib.join("tapline.rules.yml")))
        .succeeded();
    finish(Command::new("promtool").args(["test", "rules"]).arg(contrib.join("tapline.rules.test.yml")))
        .succeeded();
    let Some(daemon) = Daemon::start(TEST, &["--history", ""]) else { return };
    let mut reader = tapline(["capture", "-i", "tap:office", "--count", "--socket"]);
    let reader = Background(reader.arg(daemon.socket()).spawn().expect("the program was built"));
    let mut command = tapline(["metrics", "--once", "--socket"]);
    command.arg(daemon.socket());
    wait_for("the reader", || {
        let text = String::from_utf8(finish(&mut command).succeeded().stdout).unwrap();
        text.contains("\ntapline_reader_lost_packets_total{capture=\"office\",reader=\"")
    });
    let text = finish(&mut command).succeeded().stdout;
    drop(reader);
    let shown = String::from_utf8_lossy(&text);
    for line in ["tapline_daemon_up 1", "tapline_capture_readers{capture=\"office\"} 1"] {
        assert!(shown.lines().any(|known| known == line), "no {line} in\n{shown}");
    }
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let checked = run_with_input(&mut promtool, &text);
    assert!(checked.stderr.is_empty(), "{}\n{shown}", checked.stderr);
    checked.succeeded();
}
