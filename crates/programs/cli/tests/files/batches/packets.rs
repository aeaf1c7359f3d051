//! `tapline capture -w` to receivers: packets in chunks, all of them acknowledged or reported as lost.

use std::os::unix::fs::PermissionsExt as _;

use super::http::{Behaviour, Receiver};
use super::*;

/// The packets of a file as text: times, headers and bytes.
fn packets(file: &Path) -> String {
    let shown = run(["capture", "-r", text(file), "-n", "-tttt", "-xx"]).succeeded();
    String::from_utf8(shown.stdout).expect("text")
}

/// A capture of several chunks.
fn long_capture(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("long.pcap");
    run(["generate", "-w", text(&path), "count=5000", "udp", "flows=50", "seed=3", "size=800"]).succeeded();
    path
}

#[test]
fn chunks_have_every_packet_once() {
    let folder = tempfile::tempdir().expect("there is room");
    let input = long_capture(folder.path());
    let receiver = Receiver::start(|call| {
        [Behaviour::Busy, Behaviour::Good, Behaviour::Silent, Behaviour::Cut, Behaviour::Good][call % 5]
    });
    let words = ["capture", "-r", text(&input), "--json", "--patience", "60", "-w", &receiver.url];
    let told = run(words).succeeded();
    let account: Value = serde_json::from_slice(&told.stdout).expect("an object");
    assert_eq!(account["account"]["outputs"][0]["written"], 5000, "{account}");
    assert_eq!(account["account"]["balanced"], true, "{account}");
    let kept = receiver.kept.lock().expect("no panic");
    assert!(kept.blocks.len() > 3 && kept.again > 0, "{} chunks", kept.blocks.len());
    // Sections of pcapng behind each other are a file.
    let joined = folder.path().join("joined.pcapng");
    fs::write(&joined, kept.blocks.values().flatten().copied().collect::<Vec<u8>>()).expect("there is room");
    assert_eq!(packets(&joined), packets(&input));
}

#[test]
fn packets_that_are_refused_fail_a_run_over_a_file() {
    let folder = tempfile::tempdir().expect("there is room");
    let input = capture(folder.path(), 100);
    let receiver = Receiver::start(|_| Behaviour::Refusing);
    let told = run(["capture", "-r", text(&input), "--json", "-w", &receiver.url]);
    let account: Value = serde_json::from_slice(&told.stdout).expect("an object");
    told.failed_saying(&["not all was taken", "refused: answer 400"]);
    assert_eq!(account["account"]["balanced"], true, "{account}");
    assert_eq!(account["account"]["outputs"][0]["lost"], 100, "{account}");
}

#[test]
fn receivers_of_packets_that_cannot_be_are_told() {
    let folder = tempfile::tempdir().expect("there is room");
    let input = capture(folder.path(), 1);
    let capture = |more: &[&str]| run(["capture", "-r", text(&input)].iter().chain(more));
    capture(&["-w", "clickhouse://h/t"]).failed_saying(&["have flows", "probe --export"]);
    capture(&["-w", "http://h/?format=json"]).failed_saying(&["sections of pcapng", "format="]);
    capture(&["-w", "kafka://h"]).failed_saying(&["topic is missing"]);
    capture(&["-w", "kafka://h/t", "-C", "1"]).failed_saying(&["are for files"]);
    capture(&["-w", "http://h/", "--spool", "x"]).failed_saying(&["expected DIR,SIZE"]);
    capture(&["-c", "1", "--spool", "x,1G"]).failed_saying(&["there is none"]);
    run(["capture", "-i", "kafka://h/t", "-i", "lo"]).failed_saying(&["is read alone"]);
    run(["capture", "-i", "kafka://h/t?until=now"]).failed_saying(&["unknown setting", "until=end"]);
}

/// Under `sudo` and with `-Z` a process is confined before it has a receiver: passwords stay within reach.
#[test]
fn a_confined_process_has_its_password_and_spool() {
    if !root_or_skip("a_confined_process_has_its_password_and_spool") {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room");
    let mode = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    mode(folder.path(), 0o755);
    let input = capture(folder.path(), 100);
    let [secret, spool] = ["secret", "spool"].map(|name| folder.path().join(name));
    fs::write(&secret, "sesame\n").expect("there is room");
    fs::create_dir(&spool).expect("there is room");
    mode(&spool, 0o777);
    let receiver = Receiver::start(|_| Behaviour::Good);
    let spool = format!("{},10M", spool.display());
    let shared = ["-Z", "nobody", "--json", "--spool", &spool, "--export-secret", text(&secret)];
    let words = ["probe", "-r", text(&input), "--export", &receiver.url];
    let told = run(words.iter().chain(&shared)).succeeded();
    assert_eq!(counters(&told)["acknowledged"], 100);
    // A capture reads the password while it has its rights.
    mode(&secret, 0o600);
    let words = ["capture", "-r", text(&input), "-w", &receiver.url];
    let told = run(words.iter().chain(&shared)).succeeded();
    let account: Value = serde_json::from_slice(&told.stdout).expect("an object");
    assert_eq!(account["account"]["outputs"][0]["written"], 100, "{account}");
}
