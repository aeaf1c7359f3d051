//! Compares `--from`, `--to`, `--shift` and `--packets` on files with editcap.

use std::path::Path;
use std::process::Command;

use super::info::named_captures;
use crate::support::*;

const NAMES: [&str; 10] = [
    "communityid-tcp.pcap",
    "dce-rpc-mapi.pcap",
    "ftp-ftp-many-port-expected.pcap",
    "http-get-gzip.pcap",
    "http-http-post-large.pcap",
    "krb-kerberos_tso.pcapng",
    "krb-kinit.pcap",
    "portmapper-many-unanswered-calls.pcapng",
    "smb-smb2_100_small_files.pcap",
    "tls-ssl.v3.pcap",
];

/// Times and bytes of the packets of a file.
fn packets(path: &Path) -> Vec<(u64, Vec<u8>)> {
    packets_of(path).into_iter().map(|packet| (packet.time_ns, packet.data)).collect()
}

#[test]
fn excerpts_are_those_of_editcap() {
    let folder = tempfile::tempdir().expect("a folder");
    let [ours, theirs] = ["ours.pcapng", "theirs.pcapng"].map(|name| folder.path().join(name));
    for path in named_captures("excerpts_are_those_of_editcap", &NAMES, &["editcap"]) {
        let all = packets(&path);
        let time = |at: usize| {
            let ns = all[at].0;
            format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
        };
        let (from, to) = (time(all.len() / 4), time(all.len() * 3 / 4));
        let (at_from, at_to) = (format!("@{from}"), format!("@{to}"));
        let cases: [(&[&str], &[&str], &[&str]); 5] = [
            (&["--from", &at_from, "--to", &at_to], &["-A", &from, "-B", &to], &[]),
            (&["--packets", "2-5,9,12-"], &["-r"], &["2-5", "9", "12-99999999"]),
            (&["--shift", "-1h"], &["-t", "-3600"], &[]),
            (&["--shift", "0.25s", "--from", &at_from], &["-t", "0.25", "-A", &from], &[]),
            (&["--packets", "3-8", "--to", &at_to], &["-r", "-B", &to], &["3-8"]),
        ];
        for (options, editcap, ranges) in cases {
            let output = ours.to_str().expect("text");
            let arguments =
                [&["capture", "-r", path.to_str().expect("text"), "-w", output, "--json"], options];
            let account = run(arguments.concat()).succeeded().account();
            let done = Command::new("editcap").args(editcap).arg(&path).arg(&theirs).args(ranges).output();
            assert!(done.expect("it runs").status.success(), "{path:?} {editcap:?}");
            let (ours, theirs) = (packets(&ours), packets(&theirs));
            assert!(ours == theirs, "{path:?} {options:?}: {} packets, {}", ours.len(), theirs.len());
            assert_eq!(account.count("accepted"), ours.len() as u64);
            let interfaces = account.value["interfaces"].as_array().expect("interfaces");
            let refused: u64 = interfaces.iter().filter_map(|one| one["kernel_filtered"].as_u64()).sum();
            let is_partial = interfaces.iter().any(|one| one["partial"] == true);
            assert!(is_partial || refused + ours.len() as u64 == all.len() as u64, "{path:?} {options:?}");
        }
    }
}

#[test]
fn excerpts_are_for_files() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/mixed.pcapng");
    let count = |command: &[&str]| {
        let done = run([command, &["-r", example, "--json"]].concat()).succeeded();
        done.account().count("accepted")
    };
    assert_eq!(count(&["capture", "--count", "--packets", "10-20"]), 11);
    assert_eq!(count(&["stats", "--packets", "10-20,400-"]), 21);
    assert_eq!(count(&["dns", "--from", "2023-11-14T22:13:20.06Z"]), 190);
    let info = run(["info", "--packets=5-3", example]);
    info.failed_saying(&["not a range of packets"]);
    let lines = super::info::json_lines(&["info", "--json", "--packets", "7", "--shift", "1h", example]);
    assert_eq!((&lines[0]["packets"], &lines[1]["account"]["delivered"]), (&1.into(), &1.into()));
    let refused = ["capture", "-r", example, "--shift", "-100000d"];
    run(refused).failed_saying(&["packet 1 cannot be moved", "1970"]);
    for (option, value, said) in [
        ("--packets", "1-2", "for files"),
        ("--shift", "1s", "for files"),
        ("--from", "now", "files and stores"),
    ] {
        run(["capture", "-i", "lo", option, value]).failed_saying(&[said]);
    }
}
