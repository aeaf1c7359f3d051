//! A search of a store finds what a scan of the captures finds, packet for packet, whatever the filter.

use std::path::{Path, PathBuf};

use tapline_testkit::expressions::Expressions;

use crate::support::{captures_or_skip, packets_of, run};

/// Times and bytes of packets, in an order of their own: files are read one after the other, the store has them as they
/// were recorded.
fn packets_in_order(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let mut all: Vec<_> = packets_of(path).into_iter().map(|packet| (packet.time_ns, packet.data)).collect();
    all.sort_unstable();
    all
}

/// The captures of Ethernet, which one filter fits: those that `tapline capture -r` writes to a pcap file with link
/// type 1.
fn ethernet(captures: Vec<PathBuf>, folder: &Path) -> Vec<PathBuf> {
    let is_ethernet = |path: &PathBuf| {
        let out = folder.join("one.pcap");
        let read = run(["capture", "-r", text(path), "-w", text(&out)]);
        let head = std::fs::read(&out).unwrap_or_default();
        read.status.success() && head.get(20..24) == Some(&[1, 0, 0, 0])
    };
    captures.into_iter().filter(is_ethernet).collect()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("plain names")
}

/// `TAPLINE_STORE_TEXTS=N` tries more filters, `TAPLINE_STORE_SEED` others.
#[test]
fn a_store_of_captures_is_searched_as_scanned() {
    let Some(captures) = captures_or_skip("a_store_of_captures_is_searched_as_scanned") else { return };
    let number =
        |name: &str, usual: u64| std::env::var(name).map_or(usual, |text| text.parse().expect("a number"));
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let captures = ethernet(captures, folder.path());
    assert!(captures.len() > 100, "{}", captures.len());
    // A recording each, so that chunks are small and keys have something to tell apart.
    for capture in &captures {
        let of_store = ["--to", text(&store), "--size", "512MiB", "--segment", "4MiB"];
        run(["record", "-r", text(capture)].into_iter().chain(of_store)).succeeded();
    }
    let reads: Vec<&str> = captures.iter().flat_map(|path| ["-r", text(path)]).collect();
    // A pcap file of several captures has the snap length of the first; pcapng cuts none.
    let (scanned, found) = (folder.path().join("scanned.pcapng"), folder.path().join("found.pcap"));
    let mut texts = Expressions::new(number("TAPLINE_STORE_SEED", 23), 1);
    let (mut tried, mut hits, mut packets) = (0, 0, 0);
    while tried < number("TAPLINE_STORE_TEXTS", 40) {
        let filter = texts.text();
        let scan = run(["capture"].into_iter().chain(reads.iter().copied()).chain([
            "-w",
            text(&scanned),
            "--",
            &filter,
        ]));
        if !scan.status.success() {
            continue;
        }
        tried += 1;
        run(["find", text(&store), "-w", text(&found), "--", &filter]).succeeded();
        let (wanted, got) = (packets_in_order(&scanned), packets_in_order(&found));
        assert!(wanted == got, "{filter:?}: {} by a scan, {} by a search", wanted.len(), got.len());
        hits += u64::from(!wanted.is_empty());
        packets += wanted.len();
    }
    eprintln!("{tried} filters, {hits} with packets, {packets} packets in all: alike");
    assert!(hits > 0);
}
