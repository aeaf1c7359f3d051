//! `tapline record --compress`: found as in another store, with zstd and tshark on its segments.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::{files_in, packets_of, program_or_skip, run};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/mixed.pcapng");

fn text(path: &Path) -> &str {
    path.to_str().expect("plain names")
}

/// A store of the packets of the example.
fn recorded(folder: &Path, name: &str, options: &[&str]) -> PathBuf {
    let store = folder.join(name);
    let words = ["record", "-r", EXAMPLE, "--to", text(&store), "--size", "16MiB", "--segment", "4MiB"];
    run(words.iter().chain(options)).succeeded();
    store
}

/// The packets that a search writes.
fn found(store: &Path, words: &[&str]) -> Vec<(u64, Vec<u8>)> {
    let out = store.with_extension("pcapng");
    run(["find", text(store), "-w", text(&out)].iter().chain(words)).succeeded();
    packets_of(&out).into_iter().map(|packet| (packet.time_ns, packet.data)).collect()
}

fn segments(store: &Path) -> Vec<PathBuf> {
    let mut files = files_in(&store.join("seg"));
    files.retain(|path| text(path).ends_with(".pcapng.zst"));
    files
}

#[test]
fn a_compressed_store_gives_the_same_packets() {
    let folder = tempfile::tempdir().unwrap();
    let plain = recorded(folder.path(), "plain", &[]);
    for (name, option) in [("one", "zstd"), ("three", "zstd:3"), ("nineteen", "zstd:19")] {
        let store = recorded(folder.path(), name, &["--compress", option]);
        for filter in ["", "tcp port 443", "udp", "host 10.0.2.8", "not ip", "greater 1000"] {
            let words = ["--", filter];
            assert!(found(&store, &words) == found(&plain, &words), "{option} {filter}");
        }
        run(["store", "verify", text(&store)]).succeeded();
        run(["store", "check", text(&store)]).succeeded();
        let status = run(["store", "status", text(&store)]).succeeded();
        let shown = String::from_utf8_lossy(&status.stdout).into_owned();
        assert!(shown.contains("compressed: ") && shown.contains(" bytes on the disk"), "{shown}");
        let status = run(["store", "status", "--json", text(&store)]).succeeded();
        let status: Value = serde_json::from_slice(&status.stdout).unwrap();
        let segment = &status["segments"][0];
        let room = segment["disk_bytes"].as_u64().unwrap();
        assert!(room < segment["bytes"].as_u64().unwrap() / 4, "{status}");
    }
    // Others have no such member.
    let status = run(["store", "status", "--json", text(&plain)]).succeeded();
    assert!(!String::from_utf8_lossy(&status.stdout).contains("disk_bytes"));
    run(["store", "forget", "--yes", text(&folder.path().join("one")), "host 10.0.2.8"]).succeeded();
    assert_eq!(found(&folder.path().join("one"), &["host 10.0.2.8"]), []);
    let rest = ["not host 10.0.2.8"];
    assert!(found(&folder.path().join("one"), &rest) == found(&plain, &rest));
    run(["store", "verify", text(&folder.path().join("one"))]).succeeded();
}

#[test]
fn compressed_segments_are_read_by_others() {
    let test = "compressed_segments_are_read_by_others";
    let folder = tempfile::tempdir().unwrap();
    let store = recorded(folder.path(), "store", &["--compress", "zstd"]);
    let [segment] = &segments(&store)[..] else { panic!("{:?}", segments(&store)) };
    // As a capture file, by ourselves.
    let out = folder.path().join("read.pcapng");
    run(["capture", "-r", text(segment), "-w", text(&out)]).succeeded();
    let all: Vec<_> = packets_of(&out).into_iter().map(|packet| (packet.time_ns, packet.data)).collect();
    assert!(all == found(&store, &[]));
    if !program_or_skip(test, "zstd") {
        return;
    }
    let unpacked = folder.path().join("unpacked.pcapng");
    let status = Command::new("zstd").args(["-q", "-d", "-o", text(&unpacked), text(segment)]).status();
    assert!(status.unwrap().success());
    let of_zstd: Vec<_> =
        packets_of(&unpacked).into_iter().map(|packet| (packet.time_ns, packet.data)).collect();
    assert!(of_zstd == all);
    if program_or_skip(test, "tshark") {
        let lines = |file: &str| {
            let words = ["-r", file, "-T", "fields", "-e", "frame.time_epoch"];
            let output = Command::new("tshark").args(words).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(lines(text(&unpacked)), lines(EXAMPLE));
    }
}

#[test]
fn a_compression_that_is_unknown_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    for name in ["gzip", "zstd:0", "zstd:20", "zstd:x"] {
        run(["record", "-r", EXAMPLE, "--to", text(&store), "--compress", name])
            .failed_saying(&["unknown compression", "zstd:LEVEL"]);
    }
    let graph =
        format!("file(\"{EXAMPLE}\") -> store(\"{}\", size=16MiB, segment=4MiB, compress=lz4)", text(&store));
    run(["run", "-e", &graph]).failed_saying(&["unknown compression"]);
    run(["run", "-e", &graph.replace("lz4", "\"zstd:3\"")]).succeeded();
    assert_eq!((segments(&store).len(), found(&store, &[]).len()), (1, 409));
}
