//! Several workers on one file or stream: one thread reads for all, and they give what one worker gives. Reports on the
//! way.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Finished, run, run_with_input, tapline};
use serde_json::Value;

const RECIPE: &str =
    "udp tcp icmp ip ip6 size=80..1400 flows=500 order=random rate=10k count=30k start=1700000000";

/// A file of flows of several protocols. Gives its path.
fn traffic(folder: &Path, name: &str, recipe: &str) -> String {
    let path = folder.join(name).display().to_string();
    run([&["generate", "-w", &path][..], &recipe.split_whitespace().collect::<Vec<_>>()].concat())
        .succeeded();
    path
}

/// Results and account of `tapline run --json`, what differs between runs of different workers taken out.
fn outcome(finished: &Finished) -> (Value, Value) {
    let text = String::from_utf8_lossy(&finished.stdout).into_owned();
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let mut results = lines.next().expect("results")["results"].clone();
    for meter in results["m"].as_array_mut().into_iter().flatten() {
        // Each worker has a table of its own.
        let meter = meter.as_object_mut().expect("an object");
        ["most", "room", "chain"].iter().for_each(|name| drop(meter.remove(*name)));
    }
    let account = finished.account().value.clone();
    let stages = account["stages"].as_array().expect("stages").iter();
    let stages = stages.filter(|stage| stage["class"] != "join");
    let mut stages: Vec<Value> = stages
        .map(|stage| ["name", "received", "passed", "bytes"].map(|key| stage[key].clone()).to_vec().into())
        .collect();
    stages.sort_by_key(ToString::to_string);
    let rest = ["interfaces", "delivered", "unexamined", "lost"].map(|key| account[key].clone());
    (results, Value::from(vec![Value::from(stages), Value::from(rest.to_vec())]))
}

const STAGES: &str = "all -> m :: flow -> t :: flowtop(n=40); all -> filter(\"tcp\") -> top(by=host, n=20);
    all -> sample(1/7) -> histogram; all -> dedup -> kept :: count";

/// A stream can be read once: what several workers take of it went through one reader.
#[test]
fn several_workers_share_one_stream() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = fs::read(traffic(folder.path(), "in.pcap", RECIPE)).unwrap();
    let text = format!("all :: count; file(\"-\") -> all; {STAGES}");
    let of = |workers: &str| {
        let words = ["run", "--json", "--workers", workers, "-e", &text];
        outcome(&run_with_input(&mut tapline(words), &bytes).succeeded())
    };
    let one = of("1");
    for workers in ["2", "3", "8"] {
        assert_eq!(of(workers), one, "{workers} workers");
    }
}

/// Packets before the damage are counted by every worker, and the damage is reported once.
#[test]
fn damaged_files_give_all_packets_before_damage() {
    let folder = tempfile::tempdir().unwrap();
    let whole = fs::read(traffic(folder.path(), "in.pcap", RECIPE)).unwrap();
    let path = folder.path().join("damaged.pcap").display().to_string();
    let text = format!("all :: count; file({path:?}) -> all; {STAGES}");
    for (cut, byte) in [(whole.len() / 2 + 5, None), (whole.len(), Some(whole.len() / 3))] {
        let mut bytes = whole[..cut].to_vec();
        if let Some(from) = byte {
            bytes[from..from + 3000].fill(0xff);
        }
        fs::write(&path, bytes).unwrap();
        let of = |workers: &str| {
            let finished = run(["run", "--json", "--workers", workers, "-e", &text]);
            assert_eq!(finished.stderr.matches("tapline: ").count(), 2, "{}", finished.stderr);
            (outcome(&finished), finished.status.code())
        };
        let one = of("1");
        for workers in ["2", "5", "8"] {
            assert_eq!(of(workers), one, "{workers} workers, cut at {cut}");
        }
    }
}

/// Several files, whose workers wait for each other across files and ways, come to their end.
#[test]
fn workers_on_several_files_never_wait_in_a_ring() {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        (0, "udp size=1400 flows=1 count=60k"),
        (1, "tcp size=60 flows=3 count=90k"),
        (2, "udp size=60..1400 flows=900 count=40k"),
    ];
    let files = files.map(|(number, recipe)| traffic(folder.path(), &format!("{number}.pcap"), recipe));
    let sources: String = files.iter().map(|path| format!("file({path:?}) -> all; ")).collect();
    let text = format!(
        "all :: count; {sources} m :: merge; all -> filter(\"udp\") -> m; all -> filter(\"tcp\") -> sample(1/3) -> m; m -> end :: count; all -> dedup -> count"
    );
    for workers in ["1", "2", "7"] {
        let account = run(["run", "--json", "--workers", workers, "-e", &text]).succeeded().account();
        assert_eq!(account.count("delivered"), 190_000, "{workers} workers");
    }
}

/// A stop ends the reader and all workers; what they had is accounted for.
#[test]
fn several_workers_end_when_told() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = fs::read(traffic(folder.path(), "in.pcap", RECIPE)).unwrap();
    for workers in ["2", "4"] {
        let text = format!("all :: count; file(\"-\") -> all; {STAGES}");
        let words = ["run", "--json", "--workers", workers, "-e", &text];
        let mut child = tapline(words).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&bytes).unwrap();
        signal(child.id(), "INT");
        let output = child.wait_with_output().unwrap();
        drop(stdin);
        Finished::new(output).succeeded().account();
    }
}

fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap().success());
}

/// Asked by SIGUSR1, graphs and probes show what the stages found out so far, as at the end, before the account.
#[test]
fn sigusr1_prints_results_of_stages() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = fs::read(traffic(folder.path(), "in.pcap", RECIPE)).unwrap();
    let text = "all :: count; file(\"-\") -> all -> top(by=host, n=3)";
    for (words, told) in [
        (&["run", "-e", text][..], &["all :: count", "30,000"][..]),
        (&["run", "--workers", "2", "-e", text], &["(worker 1 of 2)", "(worker 2 of 2)"]),
        (&["probe", "-r", "-", "--idle-timeout", "100ms"], &["proto  source", "30.0k packets"]),
        (
            &["probe", "-r", "-", "--workers", "2", "--idle-timeout", "100ms"],
            &["proto  source", "30.0k packets"],
        ),
        (&["probe", "-r", "-", "--json"], &["{\"results\":{\"meter\":["]),
    ] {
        let mut child = tapline(words).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&bytes).unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        // Until all packets have come through, reports tell of fewer.
        let mut report = String::new();
        let is_all = |report: &str| report.contains("30,000") || report.contains("\"delivered\":30000");
        while !is_all(&report) {
            report.clear();
            signal(child.id(), "USR1");
            let mut line = String::new();
            loop {
                line.clear();
                assert!(stderr.read_line(&mut line).unwrap() > 0, "{words:?}: {report}");
                report += &line;
                if line.contains("balanced") || line.contains("still runs") || line.contains("still running")
                {
                    break;
                }
            }
        }
        for word in told {
            assert!(report.contains(word), "{words:?}: {word}: {report}");
        }
        drop(stdin);
        stderr.read_to_string(&mut report).unwrap();
        assert!(child.wait().unwrap().success());
    }
}

/// The report begins with the greatest flows, with units, and a line about all flows; tables of stages need -v, and
/// programs have --json.
#[test]
fn probe_begins_with_the_greatest_flows() {
    let folder = tempfile::tempdir().unwrap();
    let path = traffic(folder.path(), "in.pcap", RECIPE);
    let text = |words: &[&str]| {
        let finished = run([&["probe", "-r", &path][..], words].concat()).succeeded();
        String::from_utf8(finished.stdout).unwrap()
    };
    let plain = text(&[]);
    let lines: Vec<&str> = plain.lines().collect();
    let head: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(
        head,
        ["proto", "source", "destination", "start", "packets", "bytes", "back", "duration", "state", "ended"]
    );
    assert_eq!(lines.len(), 12, "{plain}");
    assert!(lines[1].contains(" kB ") && lines[1].contains("one way"), "{plain}");
    assert!(lines[11].contains("flows  30.0k packets") && lines[11].contains("packets/s"), "{plain}");
    for inside in [" :: ", "no_room", "chain"] {
        assert!(!plain.contains(inside), "{plain}");
    }
    let verbose = text(&["-v", "--top", "2"]);
    assert!(
        verbose.starts_with("proto") && verbose.contains("meter :: flow") && verbose.contains("no_room"),
        "{verbose}"
    );
    let json: Value = serde_json::from_str(text(&["--json", "--top", "2"]).lines().next().unwrap()).unwrap();
    assert_eq!(json["results"]["top"].as_array().map(Vec::len), Some(2));
    assert_eq!(json["results"]["meter"][0]["packets"], 30_000);
}

/// Details are shown with their flow.
#[test]
fn details_are_readable() {
    let folder = tempfile::tempdir().unwrap();
    let path = traffic(folder.path(), "in.pcap", "udp size=200 flows=2 count=40");
    let finished = run(["probe", "-r", &path, "--details", "all"]).succeeded();
    let text = String::from_utf8(finished.stdout).unwrap();
    for word in ["sizes <=256: 20", "gaps ", "says \""] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

/// A pipe that one writes to slowly hands its packets on at once.
#[test]
fn slow_streams_are_not_held_back() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = fs::read(traffic(folder.path(), "in.pcap", "udp size=100 flows=4 count=10")).unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut child =
        tapline(["run", "--workers", "2", "-e", &format!("file({pipe:?}) -> print")]).spawn().unwrap();
    let mut file: File = OpenOptions::new().write(true).open(&pipe).unwrap();
    file.write_all(&bytes).unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let mut lines = stdout.lines();
    // The pipe is still open.
    assert!(lines.by_ref().take(10).all(|line| line.unwrap().contains("IP")));
    drop(file);
    assert_eq!(lines.count(), 0);
    let mut rest = String::new();
    child.stderr.take().unwrap().read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{rest}");
}
