//! `tapline record`, `find` and `store`, with real tcpdump and capinfos on the files.

use crate::support;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{
    Account, Finished, Live, bytes_of, captures_or_skip, frames, packets_of, program_or_skip, run, tapline,
    text, wait_for,
};
use serde_json::Value;
use tapline_testkit::netns::{FAR, Namespace, namespaces_or_skip};
use tapline_testkit::sender::{Pace, Sender};

fn namespace(test: &str) -> Option<Namespace> {
    namespaces_or_skip(test).then(|| Namespace::with_pair("store").expect("a probe succeeded before"))
}

/// Starts to record far0 with 16 segments of 4 MiB.
fn record(namespace: &Namespace, store: &Path) -> Live {
    let arguments = ["record", "--netns", namespace.name(), "-i", FAR, "--json"];
    let of_store = ["--to", text(store), "--size", "64MiB", "--segment", "4MiB"];
    Live::start_command(namespace, 1, tapline(arguments).args(of_store))
}

#[test]
fn compressed_packets_are_found_while_recording() {
    let test = "compressed_packets_are_found_while_recording";
    let Some(namespace) = namespace(test) else { return };
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let frames = frames(73, 20_000);
    let mut sent = 0;
    for round in 0..3 {
        let arguments = ["record", "--netns", namespace.name(), "-i", FAR, "--json", "--compress", "zstd:1"];
        let of_store = ["--to", text(&store), "--size", "64MiB", "--segment", "4MiB"];
        let live = Live::start_command(&namespace, 1, tapline(arguments).args(of_store));
        let some = &frames[sent..sent + 6000];
        send(&namespace, some);
        sent += some.len();
        wait_for("all packets to be found", || count(&store, &[]) == sent as u64);
        match round {
            // Killed; what was found stays.
            0 | 1 => {
                live.signal("KILL");
                drop(live);
            }
            _ => assert_eq!(live.interrupt().succeeded().account().output("written"), 6000),
        }
        assert_eq!(count(&store, &[]), sent as u64, "round {round}");
    }
    let out = folder.path().join("found.pcapng");
    run(["find", text(&store), "-w", text(&out)]).succeeded();
    assert!(bytes_of(packets_of(&out)) == frames[..sent], "other packets than were sent");
    let verified = run(["store", "verify", "--json", text(&store)]).succeeded();
    let verified: Value = serde_json::from_slice(&verified.stdout).unwrap();
    assert_eq!((&verified["packets"], verified["findings"].as_array().unwrap().len()), (&sent.into(), 0));
}

/// The account of a `find --count`.
fn count(store: &Path, arguments: &[&str]) -> u64 {
    let found = run(["find", text(store), "--count", "--json"].into_iter().chain(arguments.iter().copied()));
    found.succeeded().account().output("written")
}

/// Segments and chunks that the search skipped and read, by name.
fn explained(found: &Finished) -> Value {
    let line = found.stderr.lines().find(|line| line.starts_with("{\"search\"")).expect("it was asked for");
    let value: Value = serde_json::from_str(line).expect("one object");
    assert_eq!(value["search"]["balanced"], true, "{value}");
    value["search"].clone()
}

fn segments(store: &Path) -> Vec<PathBuf> {
    let mut files = support::files_in(&store.join("seg"));
    files.retain(|path| path.extension().is_some_and(|ending| ending == "pcapng"));
    files
}

/// Packets that tcpdump reads from files, with a filter.
fn scanned(files: &[PathBuf], filter: &str) -> usize {
    let lines = |file: &PathBuf| {
        let output = Command::new("tcpdump").args(["-n", "-t", "-r", text(file), filter]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).lines().filter(|line| !line.starts_with(['\t', ' '])).count()
    };
    files.iter().map(lines).sum()
}

fn send(namespace: &Namespace, frames: &[Vec<u8>]) {
    let mut sender = Sender::near(namespace).expect("the link is ours");
    sender.send(frames, frames.len() as u64, Pace::PerSecond(20_000)).expect("the link takes them");
}

#[test]
fn packets_are_found_while_recording() {
    let test = "packets_are_found_while_recording";
    let Some(namespace) = namespace(test) else { return };
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let frames = frames(71, 20_000);
    let live = record(&namespace, &store);
    send(&namespace, &frames);
    wait_for("all packets to be found", || count(&store, &[]) == frames.len() as u64);
    // Other programs read what lies there, the open segment too.
    if program_or_skip(test, "tcpdump") {
        for filter in ["tcp port 443", "udp port 53", "icmp", "arp", "ip6", "vlan"] {
            assert_eq!(count(&store, &[filter]), scanned(&segments(&store), filter) as u64, "{filter}");
        }
    }
    if program_or_skip(test, "capinfos") {
        for segment in segments(&store) {
            let output = Command::new("capinfos").args(["-c", "-M", text(&segment)]).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
    let finished = live.interrupt().succeeded();
    assert_eq!(finished.account().output("written"), frames.len() as u64);
    // Byte by byte, in order.
    let out = folder.path().join("found.pcapng");
    run(["find", text(&store), "-w", text(&out)]).succeeded();
    assert!(bytes_of(packets_of(&out)) == frames, "other packets than were sent");
    run(["store", "verify", text(&store)]).succeeded();
}

#[test]
fn a_killed_recorder_loses_no_written_chunk() {
    let Some(namespace) = namespace("a_killed_recorder_loses_no_written_chunk") else { return };
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let frames = frames(72, 6000);
    let mut expected = 0;
    for round in 0..4 {
        let live = record(&namespace, &store);
        send(&namespace, &frames[round * 1500..(round + 1) * 1500]);
        expected += 1500;
        wait_for("all packets to be found", || count(&store, &[]) == expected);
        live.signal("KILL");
        drop(live);
        assert_eq!(count(&store, &[]), expected, "round {round}");
    }
    let live = record(&namespace, &store);
    live.interrupt().succeeded();
    let verified = run(["store", "verify", "--json", text(&store)]).succeeded();
    let verified: Value = serde_json::from_slice(&verified.stdout).unwrap();
    assert_eq!((&verified["packets"], verified["findings"].as_array().unwrap().len()), (&expected.into(), 0));
}

#[test]
fn the_index_passes_over_what_cannot_match() {
    let test = "the_index_passes_over_what_cannot_match";
    let Some(captures) = captures_or_skip(test) else { return };
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let wanted =
        ["http-post.pcap", "dns53.pcap", "smtp.pcap", "tls-tls1.2.pcap", "ssh-ssh_kex_curve25519.pcap"];
    for name in wanted {
        let Some(capture) = captures.iter().find(|path| path.ends_with(name)) else { continue };
        let arguments =
            ["record", "-r", text(capture), "--to", text(&store), "--size", "32MiB", "--segment", "4MiB"];
        run(arguments).succeeded();
    }
    let found =
        run(["find", text(&store), "--count", "--json", "--explain", "host 203.0.113.77"]).succeeded();
    assert_eq!(found.account().output("written"), 0);
    let search = explained(&found);
    assert_eq!(search["chunks_read"], 0, "{search}");
    assert!(search["segments_by_keys"].as_u64() > Some(0), "{search}");
    let found = run(["find", text(&store), "--count", "--json", "--explain", "udp port 53"]).succeeded();
    assert!(found.account().output("written") > 0 && explained(&found)["chunks_read"].as_u64() > Some(0));
    // As text, and without --explain nothing of it.
    let shown = run(["find", text(&store), "--count", "--explain", "udp port 53"]).succeeded();
    assert!(
        shown.stderr.contains("passed over by index")
            && shown.stderr.contains("every chunk is accounted for")
    );
    assert!(!run(["find", text(&store), "--count"]).succeeded().stderr.contains("passed over"));
}

#[test]
fn a_time_is_a_window() {
    let folder = tempfile::tempdir().unwrap();
    let (file, store) = (folder.path().join("in.pcap"), folder.path().join("store"));
    let recipe = ["size=100", "count=1000", "rate=10", "start=1795518000"];
    run(["generate", "-w", text(&file)].into_iter().chain(recipe)).succeeded();
    run(["record", "-r", text(&file), "--to", text(&store), "--size", "8MiB", "--segment", "4MiB"])
        .succeeded();
    let all = packets_of(&file);
    assert_eq!(count(&store, &[]), all.len() as u64);
    let start = "2026-11-24T11:00:00Z";
    assert_eq!(count(&store, &["--from", start, "--to", "+10s"]), 100);
    assert_eq!(count(&store, &["--from", start, "--to", "+10s", "tcp"]), 0);
    assert_eq!(count(&store, &["--to", start]), 0);
    run(["find", text(&store), "--from", "soon"]).failed_saying(&["--from", "soon", "yesterday 22:00"]);
    run(["find", text(&store), "--from", "11:00", "--to", "10:00"])
        .failed_saying(&["--to is not after --from"]);
}

#[test]
fn stores_that_cannot_be_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    run(["find", text(folder.path())]).failed_saying(&["not a store", "tapline record"]);
    run(["store", "status", text(&store)]).failed_saying(&["not a store"]);
    let file = folder.path().join("in.pcap");
    run(["generate", "-w", text(&file), "size=100", "count=10"]).succeeded();
    let record = |size: &str, segment: &str| {
        run(["record", "-r", text(&file), "--to", text(&store), "--size", size, "--segment", segment])
    };
    record("4MiB", "4MiB").failed_saying(&["two segments"]);
    record("64MiB", "1MiB").failed_saying(&["4 MiB to 4 GiB"]);
    record("9000TB", "4GiB").failed_saying(&["--size", "free"]);
    record("much", "4MiB").failed_saying(&["--size", "'much'", "10GiB"]);
    run(["record", "--to", text(&store)]).failed_saying(&["-i INTERFACE"]);
    assert!(!store.exists());
    record("8MiB", "4MiB").succeeded();
    record("16MiB", "8MiB").failed_saying(&["4194304 bytes, not 8388608"]);
    fs::write(store.join("store.toml"), "version = 9\nid = \"00\"\nsegment = 4194304\n").unwrap();
    run(["find", text(&store)]).failed_saying(&["version 9", "store.toml"]);
}

#[test]
fn one_recorder_at_a_time_writes_a_store() {
    let Some(namespace) = namespace("one_recorder_at_a_time_writes_a_store") else { return };
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let live = record(&namespace, &store);
    let second = run(["record", "--netns", namespace.name(), "-i", FAR, "--to", text(&store)]);
    second.failed_saying(&["recorded to, or changed, by another process"]);
    let status = run(["store", "status", text(&store)]).succeeded();
    assert!(String::from_utf8_lossy(&status.stdout).contains(": being recorded"));
    let account: Account = live.interrupt().succeeded().account();
    assert_eq!(account.output("lost"), 0);
}

#[test]
fn damage_is_found_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let (file, store) = (folder.path().join("in.pcap"), folder.path().join("store"));
    run(["generate", "-w", text(&file), "size=1000", "count=3000"]).succeeded();
    run(["record", "-r", text(&file), "--to", text(&store), "--size", "8MiB", "--segment", "4MiB"])
        .succeeded();
    run(["store", "verify", text(&store)]).succeeded();
    let segment = &segments(&store)[0];
    let mut bytes = fs::read(segment).unwrap();
    bytes[1_500_000] ^= 1;
    fs::write(segment, bytes).unwrap();
    let verified = run(["store", "verify", text(&store)]);
    assert!(!verified.status.success());
    let shown = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(shown.contains("segment 1: chunk") && shown.contains("not as it was written"), "{shown}");
    let found = run(["find", text(&store), "--count", "--json", "--explain"]);
    assert_eq!(found.status.code(), Some(3), "{}", found.stderr);
    let search = explained(&found);
    assert_eq!(search["chunks_damaged"], 1, "{search}");
    let lost = 3000 - found.account().output("written");
    assert!((1..1200).contains(&lost), "{lost}");
}

/// A store of generated packets, ten a second, for `find`.
fn generated(folder: &Path) -> PathBuf {
    let (file, store) = (folder.join("in.pcap"), folder.join("store"));
    let recipe = ["size=100", "count=1000", "rate=10", "start=1795518000"];
    run(["generate", "-w", text(&file)].into_iter().chain(recipe)).succeeded();
    run(["record", "-r", text(&file), "--to", text(&store), "--size", "8MiB", "--segment", "4MiB"])
        .succeeded();
    store
}

#[test]
fn a_store_stands_where_a_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let store = generated(folder.path());
    let (start, name) = ("2026-11-24T11:00:00Z", format!("store:{}", text(&store)));
    let in_name = format!("{name}?from={start}&to=+10s");
    let written = |finished: Finished| finished.succeeded().account().output("written");
    let options = ["--from", start, "--to", "+10s"];
    let capture = |name: &str, more: &[&str]| {
        written(run(["capture", "--count", "--json", "-r", name].into_iter().chain(more.iter().copied())))
    };
    assert_eq!((capture(&name, &options), capture(&in_name, &[]), capture(&name, &[])), (100, 100, 1000));
    // What is said goes before the name.
    assert_eq!(capture(&in_name, &["--to", "+20s"]), 200);
    let probe = run(["probe", "--json", "-r", name.as_str()].into_iter().chain(options)).succeeded();
    let shown = String::from_utf8_lossy(&probe.stdout).into_owned();
    assert!(shown.contains("\"delivered\":100,"), "{shown}");
    let graph = format!("file(\"{in_name}\") -> filter(\"udp\") -> count");
    let ran = run(["run", "--json", "--explain", "-e", &graph]).succeeded();
    let shown = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(shown.contains("\"delivered\":100,") && shown.contains("\"balanced\":true"), "{shown}");
    assert!(
        ran.stderr.contains("search of the store") || shown.contains("search of the store"),
        "{}",
        ran.stderr
    );
    run(["capture", "-r", text(&folder.path().join("in.pcap")), "--max-read", "1MB"])
        .failed_saying(&["store:"]);
    run(["capture", "-r", &format!("{name}?from=1&b=2")]).failed_saying(&["b=2", "from=TIME"]);
    run(["capture", "-r", &in_name, "--from", "soon"]).failed_saying(&["--from", "yesterday 22:00"]);
}

#[test]
fn a_search_accounts_for_filtered_packets() {
    let folder = tempfile::tempdir().unwrap();
    let store = generated(folder.path());
    let found = run(["find", text(&store), "--count", "ether[0] = 255 or less 50"]).succeeded();
    assert!(found.stderr.contains("0 packets, 0 dropped, 1,000 filtered out"), "{}", found.stderr);
}

#[test]
fn a_store_is_sent_again() {
    let Some(namespace) = namespace("a_store_is_sent_again") else { return };
    let folder = tempfile::tempdir().unwrap();
    let store = generated(folder.path());
    let name = format!("store:{}", text(&store));
    let near = tapline_testkit::netns::NEAR;
    let to: &[&str] = &["--to", "2026-11-24T11:00:10Z"];
    let filter: &[&str] = &["--filter", "udp", "--loop", "2"];
    for (more, sent) in [(to, 100), (filter, 2000)] {
        let of_link = ["replay", "--json", "--netns", namespace.name(), "-i", near];
        let all = of_link.into_iter().chain(["--top-speed", name.as_str()]).chain(more.iter().copied());
        let replayed = run(all).succeeded();
        let shown: Value = serde_json::from_slice(&replayed.stdout).unwrap();
        assert_eq!(shown["account"]["sent"], sent, "{shown}");
    }
}

#[test]
fn a_recording_is_followed() {
    let Some(namespace) = namespace("a_recording_is_followed") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (store, out) = (folder.path().join("store"), folder.path().join("found.pcapng"));
    let frames = frames(73, 9_000);
    let live = record(&namespace, &store);
    send(&namespace, &frames[..3_000]);
    wait_for("all packets to be found", || count(&store, &[]) == 3_000);
    let mut following =
        tapline(["find", text(&store), "--follow", "-c", "9000", "-w", text(&out)]).spawn().unwrap();
    send(&namespace, &frames[3_000..]);
    wait_for("what was recorded meanwhile", || following.try_wait().unwrap().is_some());
    assert!(bytes_of(packets_of(&out)) == frames, "other packets than were sent");
    live.interrupt().succeeded();
}
