//! Copies of captures compared with Wireshark's programs: blocks without packets, ERF, masked packets, file names with
//! a wrong ending.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::*;

/// A line that browsers write.
const SECRETS: &str = "CLIENT_RANDOM \
    5f1d3b7e6c2a9048d7e1f3a5b9c0d2e4f60718293a4b5c6d7e8f9a0b1c2d3e4f \
    00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n";

/// A recipe's packets in a file.
fn generated(path: &Path) {
    run(["generate", "-w", text(path), "count=200", "seed=3"]).succeeded();
}

fn capinfos(path: &Path) -> String {
    let output = Command::new("capinfos").arg(path).output().expect("capinfos runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn tshark(options: &[&str], path: &Path) -> String {
    let output = Command::new("tshark").args(options).arg("-r").arg(path).output().expect("tshark runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// All blocks of a type in a pcapng file of this machine's byte order.
fn blocks(path: &Path, kind: u32) -> Vec<Vec<u8>> {
    let file = fs::read(path).expect("it was written");
    let (mut rest, mut found) = (file.as_slice(), Vec::new());
    while let Some((head, _)) = rest.split_first_chunk::<8>() {
        let number = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (block, behind) = rest.split_at(number(4) as usize);
        if number(0) == kind {
            found.push(block.to_vec());
        }
        rest = behind;
    }
    found
}

#[test]
fn secrets_are_those_of_editcap_and_are_copied() {
    if !program_or_skip("secrets_are_those_of_editcap_and_are_copied", "editcap") {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room");
    let [plain, keys, ours, theirs, copy, filtered, pcap] =
        ["in.pcapng", "keys", "ours.pcapng", "theirs.pcapng", "copy.pcapng.zst", "filtered.pcapng", "x.pcap"]
            .map(|name| folder.path().join(name));
    generated(&plain);
    fs::write(&keys, SECRETS).expect("there is room");
    run(["capture", "-r", text(&plain), "--secrets", text(&keys), "-w", text(&ours)]).succeeded();
    let inject = format!("tls,{}", keys.display());
    let status =
        Command::new("editcap").args(["--inject-secrets", &inject]).arg(&plain).arg(&theirs).status();
    assert!(status.expect("editcap runs").success());
    assert_eq!(blocks(&ours, 10), blocks(&theirs, 10));
    assert_eq!(blocks(&ours, 10).len(), 1);
    run(["capture", "-r", text(&theirs), "-w", text(&copy)]).succeeded();
    assert!(capinfos(&copy).contains("decryption secrets in file: 1"), "{}", capinfos(&copy));
    // Also where no packet is written.
    run(["capture", "-r", text(&theirs), "-w", text(&filtered), "less 1"]).succeeded();
    assert_eq!(blocks(&filtered, 10), blocks(&theirs, 10));
    let told = run(["capture", "-r", text(&theirs), "-w", text(&pcap)]).succeeded();
    assert!(told.stderr.contains("1 block for which this format has no place"), "{}", told.stderr);
    let refused = run(["capture", "-r", text(&plain), "--secrets", text(&keys), "-w", text(&pcap)]);
    refused.failed_saying(&["--secrets needs a file of pcapng"]);
}

#[test]
fn names_and_comments_are_copied() {
    if !program_or_skip("names_and_comments_are_copied", "editcap") {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room");
    let [plain, commented, copy] =
        ["in.pcapng", "commented.pcapng", "copy.pcapng"].map(|name| folder.path().join(name));
    generated(&plain);
    let mut editcap = Command::new("editcap");
    editcap
        .args(["--capture-comment", "of the third floor", "-a", "3:look here"])
        .arg(&plain)
        .arg(&commented);
    assert!(editcap.status().expect("editcap runs").success());
    run(["capture", "-r", text(&commented), "-w", text(&copy)]).succeeded();
    let told = capinfos(&copy);
    assert!(told.contains("of the third floor"), "{told}");
    let fields = ["-T", "fields", "-e", "frame.number", "-e", "frame.comment", "-Y", "frame.comment"];
    assert_eq!(tshark(&fields, &copy), "3\tlook here\n");
}

#[test]
fn erf_is_read_by_wireshark() {
    if !program_or_skip("erf_is_read_by_wireshark", "tshark") {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room");
    let [plain, erf] = ["in.pcap", "x.erf"].map(|name| folder.path().join(name));
    generated(&plain);
    run(["capture", "-r", text(&plain), "-w", text(&erf)]).succeeded();
    assert!(capinfos(&erf).contains("Endace ERF"), "{}", capinfos(&erf));
    let fields = |path: &Path| {
        let mut words = vec!["-n", "-T", "fields"];
        for field in ["frame.time_epoch", "ip.src", "ipv6.src", "ip.id", "tcp.seq_raw", "udp.length"] {
            words.extend(["-e", field]);
        }
        tshark(&words, path)
    };
    assert_eq!(fields(&erf), fields(&plain));
    let bad = tshark(&["-o", "eth.check_fcs:TRUE", "-Y", "eth.fcs.status == 0"], &erf);
    assert_eq!(bad, "", "no frame has a wrong check sequence");
}

#[test]
fn endings_that_would_lie_are_refused() {
    let folder = tempfile::tempdir().expect("there is room");
    let plain = folder.path().join("in.pcap");
    generated(&plain);
    for name in ["x.pcap.bz2", "x.snoop", "x.json"] {
        let path = folder.path().join(name);
        run(["capture", "-r", text(&plain), "-w", text(&path)]).failed_saying(&["are not written"]);
        let graph = format!("file(\"{}\") -> record(\"{}\")", plain.display(), path.display());
        run(["run", "-e", &graph]).failed_saying(&["are not written"]);
        assert!(!path.exists());
    }
}

#[test]
fn a_capture_stops_after_bytes() {
    let folder = tempfile::tempdir().expect("there is room");
    let [plain, copy] = ["in.pcap", "copy.pcap"].map(|name| folder.path().join(name));
    run(["generate", "-w", text(&plain), "count=200", "size=100"]).succeeded();
    for (bytes, packets) in [("1000", 10), ("1001", 11), ("1", 1), ("1G", 200)] {
        let limited = ["capture", "-r", text(&plain), "-w", text(&copy), "--stop-after", bytes, "--json"];
        let account = run(limited).succeeded().account();
        assert_eq!(account.output("written"), packets, "{bytes} bytes");
    }
}

/// tshark's verdict on the checksums of each packet: 0 wrong, 1 right, 2 not checked.
fn checksums(path: &Path) -> Vec<String> {
    const CHECKED: [&str; 3] = ["ip", "tcp", "udp"];
    const STATUS: [&str; 6] = ["ip", "tcp", "udp", "icmp", "icmpv6", "igmp"];
    let mut words: Vec<String> =
        ["-n", "-o", "ip.defragment:FALSE", "-T", "fields", "-e", "frame.number"].map(str::to_owned).into();
    for protocol in CHECKED {
        words.extend(["-o".to_owned(), format!("{protocol}.check_checksum:TRUE")]);
    }
    for protocol in STATUS {
        words.extend(["-e".to_owned(), format!("{protocol}.checksum.status")]);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    tshark(&words, path).lines().map(str::to_owned).collect()
}

/// On real captures: each checksum that was right is right, and each wrong one is wrong; no address is the original
/// one.
#[test]
fn masked_packets_have_the_checksums_that_they_had() {
    let test = "masked_packets_have_the_checksums_that_they_had";
    let Some(captures) = captures_or_skip(test).filter(|_| program_or_skip(test, "tshark")) else { return };
    let folder = tempfile::tempdir().expect("there is room");
    let [key, out] = ["key", "out.pcapng"].map(|name| folder.path().join(name));
    fs::write(&key, [7; 32]).expect("there is room");
    let wanted = ["chksums-ip6", "communityid-", "icmp-icmp6", "tunnels-vxlan", "tunnels-gre"];
    let is_wanted = |path: &&std::path::PathBuf| wanted.iter().any(|word| text(path).contains(word));
    let mut checked = 0;
    for path in thinned(captures.iter().filter(is_wanted), 3) {
        let before = checksums(path);
        if before.is_empty() {
            continue;
        }
        let graph = format!(
            "file(\"{}\") -> mask(payload=keep, key=\"{}\") -> record(\"{}\")",
            path.display(),
            key.display(),
            out.display()
        );
        // A file that is cut short is masked up to there.
        let _ = run(["run", "-e", &graph]);
        let after = checksums(&out);
        assert_eq!(before.len(), after.len(), "{}", path.display());
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(before, after, "{}", path.display());
            checked += 1;
        }
    }
    assert!(checked > 25, "{checked} packets");
}
