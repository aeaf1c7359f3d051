//! FPL programs from the command line: what they pass, what they remember, and what is said of mistakes.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::support::{Finished, TAPLINE, text};
use tapline_fpl::hash;
use tapline_testkit::capture_file::{ETHERNET, Unit, read_packets, write_pcap};
use tapline_testkit::traffic::Traffic;

const PACKETS: usize = 3000;

fn tapline(arguments: &[&str]) -> Finished {
    Finished::new(Command::new(TAPLINE).args(arguments).output().expect("it starts"))
}

/// A folder with a capture of mixed traffic and a program.
fn prepared(program: &str) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (capture, path) = (folder.path().join("in.pcap"), folder.path().join("program.fpl"));
    let traffic = Traffic::new(5).take(PACKETS);
    write_pcap(&mut fs::File::create(&capture).unwrap(), ETHERNET, Unit::Nanoseconds, traffic).unwrap();
    fs::write(&path, program).unwrap();
    (folder, capture, path)
}

/// Figure 6 of FFPF, by hand: TCP packets over IPv4 of each cell.
fn flows(frames: &[Vec<u8>]) -> BTreeMap<u64, u64> {
    let mut cells = BTreeMap::new();
    for frame in frames {
        if frame.len() >= 38 && frame[12..14] == [8, 0] && frame[23] == 6 {
            *cells.entry(hash(&frame[26..38], 0) & 1023).or_insert(0) += 1;
        }
    }
    cells
}

fn frames() -> Vec<Vec<u8>> {
    Traffic::new(5).take(PACKETS).map(|(_, frame)| frame).collect()
}

fn is_tagged(frame: &[u8]) -> bool {
    matches!(frame[12..14], [0x81, 0] | [0x88, 0xa8] | [0x91, 0])
}

#[test]
fn tcp_flows_are_counted_by_hash() {
    // As count-flows.fpl, without tags, which it would look behind.
    let program = "IF (!PKT.IS_VLAN && PKT.IP_PROTO == PROTO_TCP) THEN M[HASH(26, 12, 1023)] += 1; FI";
    let (_folder, capture, program) = prepared(program);
    let untagged: Vec<Vec<u8>> = frames().into_iter().filter(|frame| !is_tagged(frame)).collect();
    let expected = flows(&untagged);
    assert!(expected.len() > 10, "{expected:?}");
    let finished = tapline(&["capture", "-r", text(&capture), "--fpl", text(&program), "--fpl-memory"]);
    let finished = finished.succeeded();
    let shown: String = expected.iter().map(|(cell, count)| format!("{cell}\t{count}\n")).collect();
    assert_eq!(String::from_utf8_lossy(&finished.stdout), shown, "{}", finished.stderr);
    let json = tapline(&["capture", "--json", "-r", text(&capture), "--fpl", text(&program), "--fpl-memory"]);
    let stdout = String::from_utf8_lossy(&json.succeeded().stdout).into_owned();
    let first: serde_json::Value = serde_json::from_str(stdout.lines().next().unwrap()).unwrap();
    let cells = first["fpl_memory"][0].as_object().expect("cells of the only worker");
    let found: BTreeMap<u64, u64> = cells
        .iter()
        .map(|(cell, count)| (cell.parse().unwrap(), count.as_str().unwrap().parse().unwrap()))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn packets_pass_by_the_programs_memory() {
    // Every third of the packets that the filter accepts.
    let (folder, capture, program) = prepared("M[0]++; RETURN M[0] % 3 == 0;");
    let out = folder.path().join("out.pcap");
    let arguments =
        ["capture", "-r", text(&capture), "--fpl", text(&program), "-w", text(&out), "greater 100"];
    tapline(&arguments).succeeded();
    let long: Vec<Vec<u8>> = frames().into_iter().filter(|frame| frame.len() >= 100).collect();
    let wanted: Vec<Vec<u8>> = long.into_iter().skip(2).step_by(3).collect();
    let written: Vec<Vec<u8>> =
        read_packets(&fs::read(&out).unwrap()).unwrap().into_iter().map(|packet| packet.data).collect();
    assert!(wanted.len() > 100);
    assert!(written == wanted, "{} packets, wanted {}", written.len(), wanted.len());
}

#[test]
fn programs_search_for_the_patterns_of_a_file() {
    let program = "M[1] = PKT.LEN; IF (EXTERN(worms, 0, 2)) THEN M[8 + M[2]]++; RETURN 1; FI RETURN 0;";
    let (folder, capture, program) = prepared(program);
    let list = folder.path().join("worms.txt");
    fs::write(&list, "# two signatures\ncode red\nnimda\n").unwrap();
    let mut packets: Vec<(Duration, Vec<u8>)> = Traffic::new(5).take(100).collect();
    for (at, words) in [(3, "a code red b"), (40, "nimda"), (41, "code red")] {
        packets[at].1.extend(words.bytes());
    }
    write_pcap(
        &mut fs::File::create(&capture).unwrap(),
        ETHERNET,
        Unit::Nanoseconds,
        packets.iter().cloned(),
    )
    .unwrap();
    let with = format!("worms={}", text(&list));
    let arguments = ["--fpl", text(&program), "--fpl-patterns", &with];
    let captured =
        tapline(&[&["capture", "-r", text(&capture), "--fpl-memory"][..], &arguments].concat()).succeeded();
    let shown = String::from_utf8_lossy(&captured.stdout).into_owned();
    let counted: Vec<&str> =
        shown.lines().filter(|line| line.starts_with("10\t") || line.starts_with("11\t")).collect();
    assert_eq!(counted, ["10\t2", "11\t1"], "{shown}");
    let found = folder.path().join("found.pcap");
    tapline(&[&["capture", "-r", text(&capture), "-w", text(&found)][..], &arguments].concat()).succeeded();
    let found: Vec<Vec<u8>> =
        read_packets(&fs::read(&found).unwrap()).unwrap().into_iter().map(|packet| packet.data).collect();
    assert!(found == [3, 40, 41].map(|at| packets[at].1.clone()), "{} packets", found.len());
    tapline(&[&["filter", "explain"][..], &arguments].concat()).succeeded();
    let graph = format!(
        "file(\"{}\") -> fpl(\"{}\", patterns=\"{with}\") -> count -> drop",
        text(&capture),
        text(&program)
    );
    let ran = tapline(&["run", "--json", "-e", &graph]).succeeded();
    let shown = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(shown.contains(r#"{"cell":10,"value":2},{"cell":11,"value":1}"#), "{shown}");
    // Without the list there is no such function, and what is not a list is refused.
    tapline(&["filter", "explain", "--fpl", text(&program)]).failed_saying(&["worms", "^^^"]);
    for (wrong, words) in [("worms", "NAME=FILE"), ("1=x", "NAME=FILE"), ("w=/nonexistent", "/nonexistent")] {
        let wrong = ["filter", "explain", "--fpl", text(&program), "--fpl-patterns", wrong];
        tapline(&wrong).failed_saying(&["--fpl-patterns", words]);
    }
}

#[test]
fn mistakes_are_shown_where_they_are() {
    let (_folder, capture, program) = prepared("R[0] = 1;\nFOR (R[0] = 0; R[0] <= M[0]; R[0]++) ROF\n");
    for command in [&["capture", "-r", text(&capture)][..], &["filter", "explain"]] {
        let arguments = [command, &["--fpl", text(&program)]].concat();
        tapline(&arguments).failed_saying(&["program.fpl: line 2, column 1", "cannot be bounded", "^^^"]);
    }
    tapline(&["capture", "-r", text(&capture), "--fpl", "/nonexistent"]).failed_saying(&["/nonexistent"]);
    fs::write(&program, "RETURN 1;").unwrap();
    let cells = ["capture", "-r", text(&capture), "--fpl", text(&program), "--fpl-cells", "3"];
    tapline(&cells).failed_saying(&["3 cells", "power of two"]);
}

#[test]
fn programs_are_explained() {
    let (_folder, _, program) = prepared("IF (PKT.B[0] > 3) THEN\n  M[1]++;\nFI\nRETURN 1;");
    let explained = tapline(&["filter", "explain", "--fpl", text(&program)]).succeeded();
    let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(explained.starts_with("IF PKT.B[0] > 3\n  M[1]++\nRETURN 1\n"), "{explained}");
    assert!(
        explained.contains("1024 memory cells") && explained.contains("steps for one packet"),
        "{explained}"
    );
    let passes = tapline(&["filter", "explain", "--fpl", text(&program), "--stage", "passes,ir"]).succeeded();
    assert!(String::from_utf8_lossy(&passes.stdout).contains("before the first pass"));
    let ebpf = ["filter", "explain", "--fpl", text(&program), "--stage", "ebpf"];
    tapline(&ebpf).failed_saying(&["state"]);
    fs::write(&program, "RETURN PKT.B[12] == 8;").unwrap();
    let ebpf = tapline(&ebpf).succeeded();
    assert!(String::from_utf8_lossy(&ebpf.stdout).contains("exit"));
}

/// The memory of a program in a file: shown and changed by a command, and taken up by the next run.
#[test]
fn memory_in_a_file_is_shown_changed_and_kept() {
    let (folder, capture, program) = prepared("M[5] += 1; M[6] += 2;");
    let cells = folder.path().join("cells");
    let memory = |arguments: &[&str]| {
        let finished = tapline(&[&["memory", text(&cells)], arguments].concat()).succeeded();
        String::from_utf8(finished.stdout).expect("text")
    };
    let count = |arguments: &[&str]| {
        let run = ["capture", "-r", text(&capture), "--count", "--fpl", text(&program)];
        tapline(&[&run[..], &["--fpl-memory-file", text(&cells)], arguments].concat())
    };
    count(&[]).succeeded();
    assert_eq!(memory(&[]), format!("5\t{PACKETS}\n6\t{}\n", 2 * PACKETS));
    assert_eq!(memory(&["--set", "5=7", "--add", "6=1"]), format!("5\t{PACKETS}\n6\t{}\n", 2 * PACKETS));
    count(&[]).succeeded();
    let shown: serde_json::Value = serde_json::from_str(&memory(&["--json"])).expect("JSON");
    assert_eq!(shown["values"]["5"], (7 + PACKETS).to_string());
    assert_eq!(shown["is_consistent"], true);
    assert_eq!(memory(&["--reset"]), format!("all\t{}\n", 7 + PACKETS + 4 * PACKETS + 1));
    assert_eq!(memory(&[]), "");
    count(&["--fpl-cells", "16"]).failed_saying(&["it has 1024 cells"]);
    let finished = tapline(&["memory", text(&cells), "--set", "1024=0"]);
    finished.failed_saying(&["no cell 1024"]);
}
