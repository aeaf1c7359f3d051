//! One large file and several workers: the results are those of one worker, and so is the account.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::*;
use tapline_testkit::capture_file::{ETHERNET, Unit, write_pcap};
use tapline_testkit::traffic::Traffic;

/// Mixed traffic as pcap and pcapng, packed, and cut within a packet; all but the packed one long enough for pieces.
fn files(folder: &Path) -> Vec<PathBuf> {
    let [pcap, pcapng, packed, cut] =
        ["in.pcap", "in.pcapng", "in.pcap.zst", "cut.pcap"].map(|name| folder.join(name));
    let mut file = fs::File::create(&pcap).unwrap();
    write_pcap(&mut file, ETHERNET, Unit::Nanoseconds, Traffic::new(41).take(9000)).unwrap();
    for copy in [&pcapng, &packed] {
        run(["capture", "-r", text(&pcap), "-w", text(copy)]).succeeded();
    }
    let bytes = fs::read(&pcap).unwrap();
    fs::write(&cut, &bytes[..bytes.len() - 5]).unwrap();
    for path in [&pcap, &pcapng, &cut] {
        assert!(fs::metadata(path).unwrap().len() > 1 << 20, "{}: too short for pieces", path.display());
    }
    vec![pcap, pcapng, packed, cut]
}

#[test]
fn counts_are_the_same_with_any_workers() {
    let folder = tempfile::tempdir().unwrap();
    for path in files(folder.path()) {
        for filter in ["", "tcp", "udp port 53 or vlan", "ip6 and not less 100"] {
            let of = |workers: &str| {
                let words = ["capture", "-r", text(&path), "--count", "--workers", workers];
                let filter: &[&str] = if filter.is_empty() { &[] } else { &[filter] };
                let words = [&words[..], filter].concat();
                let told = run(words.clone());
                let mut account = run([&words[..], &["--json"]].concat()).account().value;
                // Each worker has a filter of its own.
                account["filter"].take();
                (told.status.code(), told.stdout, told.stderr, account)
            };
            let one = of("1");
            for workers in ["2", "3", "7"] {
                assert_eq!(of(workers), one, "{} {filter:?}, {workers} workers", path.display());
            }
        }
    }
}

#[test]
fn flows_are_the_same_with_any_workers() {
    let folder = tempfile::tempdir().unwrap();
    for path in files(folder.path()) {
        let of = |workers: &str| {
            let told = run(["probe", "-r", text(&path), "--top", "100000", "--workers", workers]);
            (told.status.code(), String::from_utf8(told.stdout).unwrap(), told.stderr)
        };
        let one = of("1");
        assert!(one.1.lines().count() > 100, "{}", one.1);
        for workers in ["2", "3", "7"] {
            let several = of(workers);
            assert_eq!((several.0, &several.2), (one.0, &one.2), "{}, {workers} workers", path.display());
            assert!(several.1 == one.1, "{}, {workers} workers", path.display());
        }
    }
}

/// Files that are written need one worker, and so do limits.
#[test]
fn other_captures_of_files_have_one_worker() {
    let folder = tempfile::tempdir().unwrap();
    let path = &files(folder.path())[0];
    for words in [&["-w", "/dev/null"][..], &["--count", "-c", "10"], &["--print"]] {
        let refused = run([&["capture", "-r", text(path), "--workers", "2"][..], words].concat());
        assert!(!refused.status.success());
        assert!(refused.stderr.contains("files whose packets are only counted"), "{}", refused.stderr);
    }
}
