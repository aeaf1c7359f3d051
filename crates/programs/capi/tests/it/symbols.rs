//! The library's names: Debian's 96, WinPcap's additions, and nothing else.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::support::{Library, SONAME, programs_or_skip, system_library};

/// Symbols of WinPcap that Debian's libpcap lacks.
const ADDITIONS: [&str; 11] = [
    "pcap_live_dump",
    "pcap_live_dump_ended",
    "pcap_sendqueue_alloc",
    "pcap_sendqueue_destroy",
    "pcap_sendqueue_queue",
    "pcap_sendqueue_transmit",
    "pcap_setbuff",
    "pcap_setmintocopy",
    "pcap_setmode",
    "pcap_setsampling",
    "pcap_stats_ex",
];

/// Names and kinds, `T pcap_open_live`. The compiler decides on sections of data, so all of it is `D`.
fn symbols(library: &Path) -> BTreeSet<String> {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().expect("nm runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let symbol = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, kind, name] = words[..] else { panic!("{line:?} is not an address, kind and name") };
        let kind = if ["R", "B"].contains(&kind) { "D" } else { kind };
        format!("{kind} {name}")
    };
    text.lines().map(symbol).collect()
}

#[test]
fn the_symbols_are_debians_and_winpcaps() {
    const TEST: &str = "the_symbols_are_debians_and_winpcaps";
    if !programs_or_skip(TEST, &["nm", "readelf"]) {
        return;
    }
    let library = Library::new();
    let ours = symbols(&library.file());
    let Some(system) = system_library() else { return eprintln!("skipped: {TEST}: no {SONAME} here") };
    let theirs = symbols(&system);
    let missing: Vec<_> = theirs.difference(&ours).collect();
    assert!(missing.is_empty(), "missing: {missing:?}");
    let more: Vec<&str> = ours.difference(&theirs).map(String::as_str).collect();
    assert_eq!(more, ADDITIONS.map(|name| format!("T {name}")));
    assert!(theirs.iter().any(|symbol| symbol.starts_with("D ")), "there are data among them: {theirs:?}");
    assert!(theirs.len() >= 96, "{}", theirs.len());
}

#[test]
fn programs_find_it_by_debians_name() {
    if !programs_or_skip("programs_find_it_by_debians_name", &["readelf"]) {
        return;
    }
    let library = Library::new();
    let output = Command::new("readelf").arg("-d").arg(library.file()).output().expect("readelf runs");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains(&format!("Library soname: [{SONAME}]")), "{text}");
}
