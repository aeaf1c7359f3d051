//! Captures in, captures out: no packet lost, none changed, whatever the container.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::*;
use tapline_testkit::capture_file::{ETHERNET, StoredPacket, Unit, read_packets, write_pcap, write_pcapng};
use tapline_testkit::sample;
use tapline_testkit::traffic::Traffic;

/// A pcap file of mixed traffic with times in nanoseconds.
fn traffic_file(folder: &Path, name: &str, seed: u64, count: usize) -> PathBuf {
    let path = folder.join(name);
    let mut file = fs::File::create(&path).unwrap();
    write_pcap(&mut file, ETHERNET, Unit::Nanoseconds, Traffic::new(seed).take(count)).unwrap();
    path
}

/// The packets that another program reads from a file; `None` if it refuses the file or fails on it.
fn reference_copy(program: &str, flags: &[&str], path: &Path, folder: &Path) -> Option<Vec<StoredPacket>> {
    let copy = folder.join("reference");
    let _ = fs::remove_file(&copy);
    let output = Command::new(program).arg("-r").arg(path).arg("-w").arg(&copy).args(flags).output().ok()?;
    let packets = read_packets(&fs::read(&copy).ok()?).ok()?;
    output.status.success().then_some(packets)
}

/// The account of a file whose end was not seen says so, however much of it was read.
#[test]
fn the_account_says_whether_the_end_was_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = traffic_file(folder.path(), "in.pcap", 3, 1000);
    for (words, is_partial) in [(&["-c", "5"][..], true), (&[], false)] {
        let words = [&["capture", "-r", text(&path), "-w", "/dev/null"][..], words].concat();
        let account = run([&words[..], &["--json"]].concat()).succeeded().account();
        assert_eq!(account.value["interfaces"][0]["partial"], is_partial);
        assert_eq!(run(words).succeeded().stderr.contains("to its end"), is_partial);
    }
}

#[test]
fn every_real_capture_keeps_every_packet() {
    const TEST: &str = "every_real_capture_keeps_every_packet";
    let Some(captures) = captures_or_skip(TEST) else { return };
    if !program_or_skip(TEST, "tcpdump") || !program_or_skip(TEST, "tshark") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (mut compared, mut differing, mut refused) = (0, Vec::new(), Vec::new());
    for capture in &captures {
        // tcpdump cuts packets that are longer than the file's own snap length, and so do we; tshark keeps them. tshark
        // refuses some files that tcpdump reads. So one of the two must have what we have.
        let mut outcome = None;
        for (program, flags) in [("tcpdump", &["--nano"][..]), ("tshark", &[])] {
            let Some(expected) = reference_copy(program, flags, capture, folder.path()) else { continue };
            outcome = Some(compare_copy(capture, folder.path(), &expected));
            if outcome == Some(Ok(())) {
                break;
            }
        }
        match outcome {
            None => refused.push(capture.file_name().unwrap().to_owned()),
            Some(Ok(())) => compared += 1,
            Some(Err(difference)) => differing.push(format!("{}: {difference}", capture.display())),
        }
    }
    eprintln!("{compared} captures compared; neither tcpdump nor tshark copies {refused:?}");
    assert!(compared > captures.len() * 9 / 10, "only {compared} of {} compared", captures.len());
    assert!(differing.is_empty(), "{} differ:\n{}", differing.len(), differing.join("\n"));
}

/// Copies a capture with our program, to pcap or, where one pcap file cannot hold it, to pcapng.
fn compare_copy(capture: &Path, folder: &Path, expected: &[StoredPacket]) -> Result<(), String> {
    let (pcap, pcapng) = (folder.join("out.pcap"), folder.join("out.pcapng"));
    let mut finished = run(["capture", "--account", "full", "-r", text(capture), "-w", text(&pcap)]);
    let mut copy = pcap;
    if !finished.status.success() && finished.stderr.contains("pcapng") {
        finished = run(["capture", "--account", "full", "-r", text(capture), "-w", text(&pcapng)]);
        copy = pcapng;
    }
    if !finished.status.success() {
        return Err(format!("{}: {}", finished.status, finished.stderr.trim()));
    }
    if !finished.stderr.contains("balanced: every packet is accounted for") {
        return Err(format!("no balance: {}", finished.stderr));
    }
    let packets = read_packets(&fs::read(&copy).map_err(|e| e.to_string())?)?;
    if packets.len() != expected.len() {
        return Err(format!("{} packets, not {}", packets.len(), expected.len()));
    }
    let same = |ours: &StoredPacket, theirs: &StoredPacket| {
        (&ours.data, ours.wire_len) == (&theirs.data, theirs.wire_len)
    };
    match packets.iter().zip(expected).position(|(ours, theirs)| !same(ours, theirs)) {
        Some(index) => Err(format!("packet {} differs", index + 1)),
        None => Ok(()),
    }
}

#[test]
fn formats_convert_without_loss_of_nanoseconds() {
    let folder = tempfile::tempdir().unwrap();
    let original = traffic_file(folder.path(), "in.pcap", 1, 500);
    let (ng, back) = (folder.path().join("ng.pcapng"), folder.path().join("back.pcap"));
    run(["capture", "-r", text(&original), "-w", text(&ng)]).succeeded();
    run(["capture", "-r", text(&ng), "-w", text(&back)]).succeeded();
    assert_eq!(packets_of(&ng), packets_of(&original));
    assert!(
        fs::read(&back).unwrap() == fs::read(&original).unwrap(),
        "the way there and back changed the file"
    );
}

#[test]
fn packed_files_read_as_plain_ones() {
    let folder = tempfile::tempdir().unwrap();
    let plain = traffic_file(folder.path(), "in.pcap", 2, 300);
    for (program, ending) in [("gzip", "gz"), ("zstd", "zst"), ("lz4", "lz4")] {
        if !program_or_skip("packed_files_read_as_plain_ones", program) {
            continue;
        }
        let output = Command::new(program).arg("-c").arg(&plain).output().unwrap();
        let packed = folder.path().join(format!("in.pcap.{ending}"));
        fs::write(&packed, output.stdout).unwrap();
        let copy = folder.path().join("copy.pcap");
        run(["capture", "-r", text(&packed), "-w", text(&copy)]).succeeded();
        assert_eq!(packets_of(&copy), packets_of(&plain), "{program}");
    }
}

#[test]
fn packed_files_are_read_by_gzip_zstd_and_lz4() {
    let folder = tempfile::tempdir().unwrap();
    let plain = traffic_file(folder.path(), "in.pcap", 3, 300);
    for (program, ending) in [("gzip", "gz"), ("zstd", "zst"), ("lz4", "lz4")] {
        if !program_or_skip("packed_files_are_read_by_gzip_zstd_and_lz4", program) {
            continue;
        }
        let packed = folder.path().join(format!("out.pcap.{ending}"));
        run(["capture", "-r", text(&plain), "-w", text(&packed)]).succeeded();
        let output = Command::new(program).arg("-dc").arg(&packed).output().unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(read_packets(&output.stdout).unwrap(), packets_of(&plain), "{program}");
    }
}

#[test]
fn standard_input_to_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let plain = traffic_file(folder.path(), "in.pcap", 4, 300);
    let finished =
        run_with_input(&mut tapline(["capture", "-r", "-", "-w", "-"]), &fs::read(&plain).unwrap())
            .succeeded();
    assert_eq!(read_packets(&finished.stdout).unwrap(), packets_of(&plain));
}

#[test]
fn a_silent_pipe_does_not_outlive_ctrl_c() {
    let folder = tempfile::tempdir().unwrap();
    let plain = fs::read(traffic_file(folder.path(), "in.pcap", 4, 300)).unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let out = folder.path().join("out.pcap");
    let mut child =
        tapline(["capture", "-r", text(&pipe), "-w", text(&out), "-U", "--json"]).spawn().unwrap();
    let mut writer = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    writer.write_all(&plain).unwrap();
    wait_for("all packets in the copy", || {
        fs::metadata(&out).is_ok_and(|copy| copy.len() >= plain.len() as u64)
    });
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    wait_for("the end", || child.try_wait().unwrap().is_some());
    let finished = Finished::new(child.wait_with_output().unwrap()).succeeded();
    assert_eq!((finished.account().output("written"), packets_of(&out).len()), (300, 300));
    drop(writer);
}

#[test]
fn files_merge_by_time() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] =
        [traffic_file(folder.path(), "a.pcap", 5, 400), traffic_file(folder.path(), "b.pcap", 6, 300)];
    let merged = folder.path().join("merged.pcapng");
    run(["capture", "-r", text(&a), "-r", text(&b), "--merge", "-w", text(&merged)]).succeeded();
    let packets = packets_of(&merged);
    assert!(packets.is_sorted_by_key(|packet| packet.time_ns));
    let mut expected = bytes_of([packets_of(&a), packets_of(&b)].concat());
    let mut found = bytes_of(packets);
    expected.sort();
    found.sort();
    assert!(found == expected, "the merged file does not hold the packets of both");
}

#[test]
fn several_files_follow_one_another() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = [traffic_file(folder.path(), "a.pcap", 7, 40), traffic_file(folder.path(), "b.pcap", 8, 30)];
    let joined = folder.path().join("joined.pcapng");
    run(["capture", "-r", text(&a), "-r", text(&b), "-w", text(&joined)]).succeeded();
    assert_eq!(bytes_of(packets_of(&joined)), [bytes_of(packets_of(&a)), bytes_of(packets_of(&b))].concat());
}

#[test]
fn a_filter_accepts_the_packets_of_libpcap() {
    const TEST: &str = "a_filter_accepts_the_packets_of_libpcap";
    if !program_or_skip(TEST, "tcpdump") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let plain = traffic_file(folder.path(), "in.pcap", 9, 3000);
    for filter in ["tcp port 443", "udp or icmp6", "vlan and ip", "not ip", "ip[8] > 63 and less 200"] {
        let (ours, theirs) = (folder.path().join("ours.pcap"), folder.path().join("theirs.pcap"));
        let finished = run(["capture", "-r", text(&plain), "-w", text(&ours), "--json", filter]).succeeded();
        let account = finished.account();
        let reference = Command::new("tcpdump")
            .arg("-r")
            .arg(&plain)
            .arg("-w")
            .arg(&theirs)
            .args(["--nano", filter])
            .output();
        assert!(reference.unwrap().status.success());
        let chosen = packets_of(&ours);
        assert_eq!(chosen, packets_of(&theirs), "{filter}");
        assert_eq!(account.count("delivered"), 3000, "{filter}");
        assert_eq!(account.count("accepted"), chosen.len() as u64, "{filter}");
        assert_eq!(account.count("filtered"), 3000 - chosen.len() as u64, "{filter}");
    }
}

#[test]
fn a_count_ends_the_work() {
    let folder = tempfile::tempdir().unwrap();
    let plain = traffic_file(folder.path(), "in.pcap", 10, 1000);
    let out = folder.path().join("out.pcap");
    let account =
        run(["capture", "-r", text(&plain), "-c", "7", "-w", text(&out), "--json"]).succeeded().account();
    assert_eq!(packets_of(&out), packets_of(&plain)[..7]);
    assert_eq!(account.count("accepted"), 7);
}

#[test]
fn the_snap_length_cuts_and_the_wire_length_stays() {
    let folder = tempfile::tempdir().unwrap();
    let plain = traffic_file(folder.path(), "in.pcap", 11, 200);
    for ending in ["pcap", "pcapng"] {
        let out = folder.path().join(format!("out.{ending}"));
        run(["capture", "-r", text(&plain), "-s", "64", "-w", text(&out)]).succeeded();
        for (cut, whole) in packets_of(&out).iter().zip(packets_of(&plain)) {
            assert_eq!(cut.data, whole.data[..whole.data.len().min(64)]);
            assert_eq!(cut.wire_len, whole.wire_len);
        }
    }
}

#[test]
fn json_is_an_object_a_packet_and_the_account() {
    let finished = run(["capture", "-r", sample::STORED, "--json"]).succeeded();
    let account = finished.account();
    let lines: Vec<serde_json::Value> = String::from_utf8(finished.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let packets = sample::frames().count();
    assert_eq!(lines.len(), packets + 1);
    assert_eq!(account.count("accepted"), packets as u64);
    assert!(lines[..packets].iter().all(|line| line.is_object() && line.get("account").is_none()));
}

#[test]
fn one_line_for_each_packet_as_tcpdump_counts_them() {
    const TEST: &str = "one_line_for_each_packet_as_tcpdump_counts_them";
    if !program_or_skip(TEST, "tcpdump") {
        return;
    }
    let finished = run(["capture", "-r", sample::STORED, "-n"]).succeeded();
    let ours = String::from_utf8(finished.stdout).unwrap();
    let reference = Command::new("tcpdump").args(["-n", "-r", sample::STORED]).output().unwrap();
    let theirs = String::from_utf8(reference.stdout).unwrap();
    let equal = ours.lines().zip(theirs.lines()).filter(|(a, b)| a == b).count();
    let all = theirs.lines().count();
    eprintln!("{equal} of {all} lines of the sample are equal to tcpdump's");
    assert_eq!(ours.lines().count(), all);
    assert!(equal * 100 >= all * 95, "only {equal} of {all} lines are equal");
}

#[test]
fn truncated_files_give_the_packets_before_the_cut() {
    let folder = tempfile::tempdir().unwrap();
    let mut ng = Vec::new();
    write_pcapng(&mut ng, ETHERNET, "eth0", Traffic::new(12).take(20)).unwrap();
    let mut pcap = Vec::new();
    write_pcap(&mut pcap, ETHERNET, Unit::Microseconds, Traffic::new(12).take(20)).unwrap();
    for (whole, ending) in [(pcap, "pcap"), (ng, "pcapng")] {
        let all = read_packets(&whole).unwrap();
        // Cuts all over the file; the file crate's tests cut at every byte.
        for cut in (120..whole.len() - 1).step_by(whole.len() / 23) {
            let (broken, out) =
                (folder.path().join(format!("broken.{ending}")), folder.path().join("out.pcap"));
            fs::write(&broken, &whole[..cut]).unwrap();
            let _ = fs::remove_file(&out);
            let finished = run(["capture", "-r", text(&broken), "-w", text(&out)]);
            // A break before the first packet leaves nothing to write.
            let kept = if out.exists() { packets_of(&out) } else { Vec::new() };
            assert_eq!(bytes_of(kept.clone()), bytes_of(all[..kept.len()].to_vec()), "{ending} cut at {cut}");
            let is_between_packets = finished.status.success();
            if !is_between_packets {
                finished.failed_saying(&["broken."]);
            }
            let complete = packets_before(&whole, cut);
            assert_eq!(kept.len(), complete, "{ending} cut at {cut}");
        }
    }
}

/// Number of packets that are whole in the first `cut` bytes of a file.
fn packets_before(whole: &[u8], cut: usize) -> usize {
    // The longest readable beginning that is not longer than the cut.
    (0..=cut).rev().find_map(|len| read_packets(&whole[..len]).ok()).map_or(0, |packets| packets.len())
}

#[test]
fn files_that_are_no_captures_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let (prose, empty) = (folder.path().join("prose.txt"), folder.path().join("empty.pcap"));
    fs::write(&prose, "This is not a capture file, whatever its name may be.\n").unwrap();
    fs::write(&empty, "").unwrap();
    run(["capture", "-r", text(&prose), "-n"]).failed_saying(&["prose.txt"]);
    run(["capture", "-r", text(&empty), "-n"]).failed_saying(&["empty.pcap"]);
    run(["capture", "-r", "/nonexistent/file.pcap", "-n"])
        .failed_saying(&["/nonexistent/file.pcap", "No such file"]);
}

/// No interface has this name, and no right is needed for the lists.
#[test]
fn drops_list_their_types() {
    let listed = run(["capture", "-i", "drops:", "-L", "-J"]).succeeded();
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(text.starts_with("link types of drops: (use option -y):\n  RAW (Raw IP)\n"), "{text}");
    assert!(text.contains("time stamp types of drops: (use option -j):\n  host ("), "{text}");
    assert!(!text.contains("adapter"), "{text}");
}

/// Captures for others and published places, with any rules; no right is needed to be refused.
#[test]
fn drops_have_no_other_readers() {
    let folder = tempfile::tempdir().unwrap();
    let (rules, socket) = (folder.path().join("serve.toml"), folder.path().join("socket"));
    let remedy = ["as root use tapline capture -i drops: or tapline record -i drops:"];
    for more in ["", "view = true\n", "filter = \"udp\"\n[[access]]\neverybody = true\n"] {
        let capture = format!("[[capture]]\nname = \"d\"\ninterfaces = [\"drops:\"]\n{more}");
        fs::write(&rules, format!("socket = {socket:?}\n{capture}")).unwrap();
        run(["serve", "--config", text(&rules)]).failed_saying(&remedy);
    }
    run(["serve", "-i", "drops:", "--socket", text(&socket)]).failed_saying(&remedy);
    let place = format!("publish(d, socket={socket:?}, everybody=yes)");
    for graph in [
        format!("device(\"drops:\") -> {place}"),
        format!("device(\"drops:\") -> filter(\"udp\") -> sample(1/2) -> {place}"),
        format!("m :: merge; device(\"drops:\") -> m; device(lo) -> m; m -> {place}"),
    ] {
        run(["run", "-e", &graph]).failed_saying(&remedy);
    }
    assert!(!socket.exists());
}
