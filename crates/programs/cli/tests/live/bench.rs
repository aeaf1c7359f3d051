//! `tapline bench`: small workloads of our own on the real link, with the real peers.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::{catches_interrupts, wait_for};
use tapline_testkit::netns::{has_program, namespaces_or_skip};

const WORKLOAD: &str = r#"
name = "small"
title = "Small <and> quick"
about = "A test."
kind = "matrix"
programs = ["tapline", "tcpdump", "libpcap"]
traffic = "udp flows=3"
rate = 5000
seconds = 0.1
sizes = [60, 300]
snaps = [100]
figures = [{ what = "frames", value = "148,809" }]
"#;

fn tapline(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tapline")).args(arguments).output().expect("tapline runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a workload and gives its results.
fn bench(folder: &Path, workload: &str, more: &[&str]) -> (Output, Value) {
    let (file, report) = (folder.join("small.toml"), folder.join("report.html"));
    fs::write(&file, workload).expect("a file");
    let folder = folder.to_str().expect("UTF-8");
    let (file, report) = (file.to_str().expect("UTF-8"), report.to_str().expect("UTF-8"));
    let mut arguments = vec!["bench", file, "--report", report, "--folder", folder, "--runs", "1"];
    arguments.extend(more);
    let output = tapline(&arguments);
    let json = fs::read_to_string(report.replace(".html", ".json")).unwrap_or_default();
    (output, serde_json::from_str(&json).unwrap_or_default())
}

/// Every packet of every run has a place.
fn assert_balanced(results: &Value) {
    assert_eq!(results["is_balanced"], true, "{results:#}");
    for case in results["workloads"]
        .as_array()
        .expect("workloads")
        .iter()
        .flat_map(|w| w["cases"].as_array().expect("cases"))
    {
        for run in case["runs"].as_array().expect("runs") {
            let of = |key: &str| run[key].as_i64().unwrap_or_else(|| panic!("{key} in {run}"));
            let places =
                ["refused", "lost_on_link", "filtered", "dropped", "unread", "captured", "unexplained"];
            assert_eq!(of("made"), places.into_iter().map(of).sum::<i64>(), "{run}");
            assert!(of("made") > 0 && of("captured") > 0, "{run}");
        }
    }
}

#[test]
fn a_workload_gives_a_page_and_json_and_balances() {
    if !namespaces_or_skip("a_workload_gives_a_page_and_json_and_balances") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (output, results) = bench(folder.path(), WORKLOAD, &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_balanced(&results);
    let cases = results["workloads"][0]["cases"].as_array().expect("cases");
    let peers = [true, has_program("tcpdump"), tapline_testkit::libpcap::Libpcap::get().is_ok()];
    assert_eq!(cases.len(), 2 * peers.iter().filter(|&&is_there| is_there).count(), "{results:#}");
    for case in cases.iter().filter(|case| case["program"] == "tapline") {
        assert_eq!(case["runs"][0]["made"], 500);
        assert_eq!(case["runs"][0]["unexplained"], 0);
    }
    let page = fs::read_to_string(folder.path().join("report.html")).expect("the page");
    for part in ["<svg", "Small &lt;and&gt; quick", "148,809", "balances", "tcpdump"] {
        assert!(page.contains(part), "{part}");
    }
    let outside = page.replace("http://www.w3.org/2000/svg", "");
    assert!(!outside.contains("http") && !outside.contains("src="), "the page refers to nothing else");
    assert!(text(&output.stdout).contains("every account balances"), "{}", text(&output.stdout));
}

#[test]
fn stored_packets_are_read_again_through_a_filter() {
    if !namespaces_or_skip("stored_packets_are_read_again_through_a_filter") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let workload = WORKLOAD
        .replace("seconds", "store = true\nfilters = [\"udp\", \"tcp\"]\nseconds")
        .replace(", \"libpcap\"", "");
    let (output, results) = bench(folder.path(), &workload.replace("[60, 300]", "[60]"), &["--json"]);
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).expect("JSON"), results);
    assert_eq!(results["is_balanced"], true, "{results:#}");
    for case in results["workloads"][0]["cases"].as_array().expect("cases") {
        let run = &case["runs"][0];
        assert_eq!(run["stored"], run["captured"], "{case}");
        let (wanted, unwanted) =
            if case["filter"] == "udp" { ("captured", "filtered") } else { ("filtered", "captured") };
        assert!(run[wanted].as_u64() > Some(0), "{case}");
        assert_eq!(run[unwanted], 0, "{case}");
    }
    assert!(
        !folder
            .path()
            .read_dir()
            .expect("a folder")
            .flatten()
            .any(|file| file.file_name().to_string_lossy().contains("tapline-bench-"))
    );
}

#[test]
fn the_limit_of_a_command_is_found() {
    if !namespaces_or_skip("the_limit_of_a_command_is_found") {
        return;
    }
    let program = env!("CARGO_BIN_EXE_tapline");
    let arguments = [
        "bench",
        "--quick",
        "--limit",
        "--seconds",
        "0.1",
        "--json",
        "--",
        program,
        "capture",
        "-i",
        "far0",
        "--count",
        "-Z",
        "root",
    ];
    let output = tapline(&arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rate = found["rate"].as_f64().expect("a rate");
    for probe in found["probes"].as_array().expect("probes") {
        let outcome = &probe["outcome"];
        assert_eq!(outcome["faults"].as_array().map(Vec::len), Some(0), "{probe}");
        let number = |key: &str| outcome[key].as_f64().expect("a number");
        let did = number("made") / number("seconds");
        // A rate that the link slowed down was not reached, though no packet was lost. A flood counts with the rate
        // that it reached.
        let asked = probe["asked"].as_f64().unwrap_or(did);
        let is_borne = number("made") == number("captured") && did >= asked * 0.98;
        assert!(!is_borne || asked <= rate * 1.01, "{rate} is not the highest: {probe}");
    }
}

/// `probe` and `run` report their packets as an account of a graph, which has to balance as that of `capture`.
#[test]
fn limits_of_probe_and_run_are_found() {
    if !namespaces_or_skip("limits_of_probe_and_run_are_found") {
        return;
    }
    let program = env!("CARGO_BIN_EXE_tapline");
    for command in [
        vec!["probe", "-i", "far0", "-Z", "root"],
        vec!["run", "-Z", "root", "-e", "device(far0) -> flow -> count"],
    ] {
        let mut arguments = vec!["bench", "--quick", "--limit", "--seconds", "0.1", "--json", "--", program];
        arguments.extend(&command);
        let output = tapline(&arguments);
        assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
        let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert!(found["rate"].as_f64() > Some(100.0), "{command:?}: {found}");
        for probe in found["probes"].as_array().expect("probes") {
            assert_eq!(probe["outcome"]["faults"], serde_json::json!([]), "{command:?}: {probe}");
        }
    }
}

/// The report's JSON, and the sections by name.
fn papers(folder: &Path, more: &[&str]) -> (Output, Value) {
    let report = folder.join("papers.html");
    let mut arguments = vec!["bench", "papers", "--quick", "--runs", "1"];
    arguments.extend(["--report", report.to_str().expect("UTF-8")]);
    arguments.extend(["--folder", folder.to_str().expect("UTF-8")]);
    arguments.extend(more);
    let output = tapline(&arguments);
    let json = fs::read_to_string(report.with_extension("json")).unwrap_or_default();
    (output, serde_json::from_str(&json).unwrap_or_default())
}

fn section<'v>(report: &'v Value, name: &str) -> &'v Value {
    let sections = report["sections"].as_array().expect("sections");
    sections
        .iter()
        .find(|section| section["name"] == name)
        .unwrap_or_else(|| panic!("no {name} in {report:#}"))
}

#[test]
fn sections_of_papers_run_by_name_and_resume() {
    if !namespaces_or_skip("sections_of_papers_run_by_name_and_resume") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (output, first) = papers(folder.path(), &["poll", "share"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("A dummy poll()"), "{}", text(&output.stdout));
    for name in ["poll", "share"] {
        let found = section(&first, name);
        assert_eq!(found["faults"], serde_json::json!([]), "{found:#}");
        let left_out = found["left_out"].as_array().expect("a list").iter().filter_map(Value::as_str);
        let ours: Vec<&str> = left_out.filter(|text| text.starts_with("tapline")).collect();
        assert_eq!(ours, Vec::<&str>::new(), "programs of ours without figures");
        for figure in found["figures"].as_array().expect("figures") {
            let number =
                |key: &str| figure["ours"][key].as_f64().unwrap_or_else(|| panic!("{key} in {figure}"));
            assert!(number("low") <= number("value") && number("value") <= number("high"), "{figure}");
            let has_paper = figure["unit"] != "packets in a second of the core's time";
            assert_eq!(figure["paper"].is_f64(), has_paper, "{figure}");
            let is_plausible = number("value") >= figure["plausible"][0].as_f64().expect("a number")
                && number("value") <= figure["plausible"][1].as_f64().expect("a number");
            assert_eq!(figure["verdict"] == "measured", is_plausible, "{figure}");
        }
    }
    let shares = section(&first, "share")["figures"].as_array().expect("figures");
    assert!(shares.len() >= 6, "three sizes of tapline by both sources at least: {shares:?}");
    let (output, second) = papers(folder.path(), &["stamps", "poll", "--resume", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).expect("JSON"), second);
    assert_eq!(section(&second, "share"), section(&first, "share"), "kept as it was");
    assert_ne!(section(&second, "poll"), section(&first, "poll"), "named, so measured again");
    assert!(section(&second, "stamps")["figures"].as_array().is_some_and(|figures| figures.len() == 4));
    let page = fs::read_to_string(folder.path().join("papers.html")).expect("the page");
    assert!(page.contains("id=\"stamps\"") && page.contains("id=\"share\"") && page.contains("<svg"));
    assert!(!page.replace("http://www.w3.org/2000/svg", "").contains("http"), "it refers to nothing else");
    let (output, _) = papers(folder.path(), &["pol"]);
    assert!(
        text(&output.stderr).contains("no section \"pol\"; there are interrupts,"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn unmeasurable_requests_are_refused() {
    if !namespaces_or_skip("unmeasurable_requests_are_refused") {
        return;
    }
    let output = tapline(&["bench", "--limit", "--", "cat", "/etc/passwd"]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("the losses of cat are unknown"), "{}", text(&output.stderr));
    let output = tapline(&["bench", "no-such-workload"]);
    assert!(text(&output.stderr).contains("built in are filter, driver, disk"), "{}", text(&output.stderr));
    let folder = tempfile::tempdir().expect("a folder");
    let (output, _) = bench(folder.path(), &WORKLOAD.replace("udp flows=3", "udp flaws=3"), &[]);
    assert!(!output.status.success());
    let errors = text(&output.stderr);
    assert!(errors.contains("nothing could be measured") && errors.contains("flaws"), "{errors}");
}

#[test]
fn an_interrupted_bench_reports_finished_runs() {
    if !namespaces_or_skip("an_interrupted_bench_reports_finished_runs") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (file, report) = (folder.path().join("small.toml"), folder.path().join("report.html"));
    fs::write(
        &file,
        WORKLOAD.replace("seconds = 0.1", "seconds = 1").replace(", \"tcpdump\", \"libpcap\"", ""),
    )
    .expect("a file");
    let child = Command::new(env!("CARGO_BIN_EXE_tapline"))
        .args([
            "bench",
            file.to_str().expect("UTF-8"),
            "--runs",
            "500",
            "--report",
            report.to_str().expect("UTF-8"),
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("tapline runs");
    let pid = child.id();
    let namespace = format!("tapline-bench-{pid}-");
    wait_for("the bench to begin", || {
        let listed = Command::new("ip").args(["netns", "list"]).output().expect("ip runs");
        text(&listed.stdout).contains(&namespace)
    });
    // Some runs of a second may have ended, or none: both are reported.
    wait_for("the bench to obey signals and run a program", || {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        catches_interrupts(pid) && children.is_ok_and(|children| !children.trim().is_empty())
    });
    Command::new("kill").args(["-INT", &pid.to_string()]).status().expect("kill");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let results: Value =
        serde_json::from_str(&fs::read_to_string(report.with_extension("json")).expect("JSON"))
            .expect("JSON");
    assert_eq!(results["is_interrupted"], true);
    let left = Command::new("ip").args(["netns", "list"]).output().expect("ip runs");
    assert!(!text(&left.stdout).contains(&namespace), "{}", text(&left.stdout));
}
