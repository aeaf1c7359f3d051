//! Live captures on a virtual link: captured + lost = sent, exactly, and complete files at every end.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::*;
use tapline_testkit::capture_file::StoredPacket;
use tapline_testkit::libpcap::{CompileSettings, Libpcap};
use tapline_testkit::netns::{FAR, NEAR, Namespace, namespaces_or_skip};
use tapline_testkit::sender::{Pace, Sender};

/// A namespace with a quiet pair, or `None` if this machine does not let us make one.
fn namespace(test: &str) -> Option<Namespace> {
    namespaces_or_skip(test).then(|| Namespace::with_pair("cli").expect("a probe succeeded before"))
}

/// Sends frames at a rate that every machine bears.
fn send(namespace: &Namespace, frames: &[Vec<u8>], count: u64) {
    let sent = Sender::near(namespace).unwrap().send(frames, count, Pace::PerSecond(20_000)).unwrap();
    assert_eq!(sent.packets, count);
}

#[test]
fn packets_below_the_rate_limit_are_all_captured() {
    let Some(namespace) = namespace("packets_below_the_rate_limit_are_all_captured") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for ending in ["pcap", "pcapng"] {
        let out = folder.path().join(format!("out.{ending}"));
        let live = Live::start(&namespace, 1, &["-i", FAR, "-w", text(&out), "--json"]);
        let frames = frames(1, 5000);
        send(&namespace, &frames, 10_000);
        let account = live.interrupt().succeeded().account();
        assert_eq!((account.ring("received"), account.ring("dropped")), (10_000, 0));
        assert_eq!((account.count("accepted"), account.output("written")), (10_000, 10_000));
        let captured = packets_of(&out);
        assert!(captured.is_sorted_by_key(|packet| packet.time_ns));
        // Tags that the kernel took off are back in their places.
        assert!(
            bytes_of(captured) == [&frames[..], &frames].concat(),
            "packets differ from those sent ({ending})"
        );
    }
}

#[test]
fn captured_and_lost_packets_add_up_to_sent_ones() {
    let Some(namespace) = namespace("captured_and_lost_packets_add_up_to_sent_ones") else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcapng");
    let live = Live::start(&namespace, 1, &["-i", FAR, "-B", "1024", "-w", text(&out), "--json"]);
    let frames = frames(2, 5000);
    let mut sender = Sender::near(&namespace).unwrap();
    let mut sent = sender.send(&frames, 1000, Pace::PerSecond(20_000)).unwrap().packets;
    // A program that stands still is one that is too slow by any measure.
    live.signal("STOP");
    sent += sender.send(&frames, 20_000, Pace::Full).unwrap().packets;
    live.signal("CONT");
    live.wait_until_idle();
    // So few that they find room whenever they are read: they carry the number of those lost before them.
    sent += sender.send(&frames, 100, Pace::PerSecond(20_000)).unwrap().packets;
    let account = live.interrupt().succeeded().account();
    assert!(account.ring("dropped") > 1000, "{:?}", account.value);
    assert_eq!(account.ring("received"), sent);
    assert_eq!(account.count("delivered") + account.ring("dropped") + account.ring("unread"), sent);
    let packets = packets_of(&out);
    assert_eq!(packets.len() as u64, account.output("written"));
    let told: u64 = packets.iter().map(|packet| packet.drops).sum();
    assert_eq!(told, account.ring("dropped"), "the file tells of other losses than the account");
}

#[test]
fn at_full_speed_captured_and_lost_add_up_to_sent() {
    let Some(namespace) = namespace("at_full_speed_captured_and_lost_add_up_to_sent") else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcap");
    let live = Live::start(&namespace, 1, &["-i", FAR, "-B", "256", "-w", text(&out), "--json"]);
    let sent = Sender::near(&namespace).unwrap().send(&frames(3, 5000), 200_000, Pace::Full).unwrap().packets;
    let account = live.interrupt().succeeded().account();
    assert_eq!(account.ring("received"), sent);
    assert_eq!(account.count("delivered") + account.ring("dropped") + account.ring("unread"), sent);
    assert_eq!(packets_of(&out).len() as u64, account.output("written"));
}

#[test]
fn kernel_filters_have_the_verdicts_of_libpcap() {
    const TEST: &str = "kernel_filters_have_the_verdicts_of_libpcap";
    let Some(namespace) = namespace(TEST) else { return };
    let libpcap = match Libpcap::get() {
        Ok(libpcap) => libpcap,
        Err(reason) => return eprintln!("skipped: {TEST}: {reason}"),
    };
    let filter = "udp port 53 or tcp port 443";
    let oracle = libpcap.compile(filter, CompileSettings::new(1)).unwrap();
    // Without tags: libpcap's program for files looks for them in the bytes, the kernel has taken them off.
    let frames: Vec<Vec<u8>> =
        frames(4, 8000).into_iter().filter(|frame| !matches!(frame[12], 0x81 | 0x88)).collect();
    let wanted: Vec<Vec<u8>> =
        frames.iter().filter(|frame| oracle.run(libpcap, frame, frame.len() as u32) != 0).cloned().collect();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcapng");
    let live = Live::start(&namespace, 1, &["-i", FAR, "-w", text(&out), "--json", filter]);
    send(&namespace, &frames, frames.len() as u64);
    let account = live.interrupt().succeeded().account();
    assert_eq!(account.ring("received"), wanted.len() as u64, "the kernel's filter let others through");
    assert!(
        account.value["interfaces"][0]["kernel_filtered"].is_null(),
        "no kernel counts what its filter refuses"
    );
    assert!(bytes_of(packets_of(&out)) == wanted, "other packets than libpcap's verdict chooses");
}

#[test]
fn vlan_filters_see_tags_removed_by_the_kernel() {
    let Some(namespace) = namespace("vlan_filters_see_tags_removed_by_the_kernel") else { return };
    let frames = frames(5, 8000);
    let is_tagged = |frame: &&Vec<u8>| matches!(frame[12..14], [0x81, 0x00] | [0x88, 0xa8]);
    let tagged: Vec<Vec<u8>> = frames.iter().filter(is_tagged).cloned().collect();
    assert!(tagged.len() > 100);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcap");
    let live = Live::start(&namespace, 1, &["-i", FAR, "-w", text(&out), "--json", "vlan"]);
    send(&namespace, &frames, frames.len() as u64);
    live.interrupt().succeeded().account();
    assert!(
        bytes_of(packets_of(&out)) == tagged,
        "the filter `vlan` chose other packets than the tagged ones"
    );
}

#[test]
fn a_count_ends_the_capture_by_itself() {
    let Some(namespace) = namespace("a_count_ends_the_capture_by_itself") else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcap");
    let live = Live::start(&namespace, 1, &["-i", FAR, "-c", "100", "-w", text(&out), "--json"]);
    let frames = frames(6, 1000);
    send(&namespace, &frames, 1000);
    let account = live.wait().succeeded().account();
    assert_eq!((account.count("accepted"), account.output("written")), (100, 100));
    assert!(bytes_of(packets_of(&out)) == frames[..100]);
}

#[test]
fn json_has_the_hash_by_flow() {
    let Some(namespace) = namespace("json_has_the_hash_by_flow") else { return };
    let live = Live::start(&namespace, 1, &["-i", FAR, "-c", "20", "--json"]);
    send(&namespace, &frames(11, 40), 40);
    let finished = live.wait().succeeded();
    let lines = String::from_utf8_lossy(&finished.stdout).into_owned();
    let packets = lines.lines().filter(|line| line.starts_with("{\"number\""));
    let (with, all) =
        packets.fold((0, 0), |(with, all), line| (with + usize::from(line.contains("\"rx_hash\"")), all + 1));
    assert_eq!(all, 20);
    assert!(with > 10, "{with} of {all} packets have a hash");
}

#[test]
fn a_duration_ends_the_capture_by_itself() {
    let Some(namespace) = namespace("a_duration_ends_the_capture_by_itself") else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcap");
    let live = Live::start(&namespace, 1, &["-i", FAR, "--duration", "4s", "-w", text(&out), "--json"]);
    send(&namespace, &frames(7, 100), 100);
    let account = live.wait().succeeded().account();
    assert_eq!(account.count("accepted"), 100);
    assert_eq!(packets_of(&out).len(), 100);
}

#[test]
fn signals_end_in_complete_files_and_an_account() {
    let Some(namespace) = namespace("signals_end_in_complete_files_and_an_account") else { return };
    let folder = tempfile::tempdir().unwrap();
    for signal in ["INT", "TERM", "HUP"] {
        let out = folder.path().join(format!("{signal}.pcapng"));
        let live = Live::start(&namespace, 1, &["-i", FAR, "-w", text(&out)]);
        let frames = frames(8, 777);
        send(&namespace, &frames, 777);
        wait_for_backlog();
        live.signal(signal);
        let finished = live.wait().succeeded();
        assert!(finished.stderr.contains("777 packets, 0 dropped"), "{signal}: {}", finished.stderr);
        assert!(bytes_of(packets_of(&out)) == frames, "{signal}");
    }
}

#[test]
fn a_signal_asks_for_the_account_on_the_way() {
    let Some(namespace) = namespace("a_signal_asks_for_the_account_on_the_way") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (out, told) = (folder.path().join("out.pcap"), folder.path().join("told"));
    let mut command = tapline(["capture", "--netns", namespace.name(), "-i", FAR, "-w", text(&out)]);
    let live = Live::start_command(&namespace, 1, command.stderr(fs::File::create(&told).unwrap()));
    send(&namespace, &frames(9, 100), 100);
    live.signal("USR1");
    let accounts = || fs::read_to_string(&told).unwrap().matches("delivered").count();
    wait_for("the account", || accounts() == 1);
    live.interrupt().succeeded();
    let told = fs::read_to_string(&told).unwrap();
    assert!(told.contains("100 packets, 0 dropped"), "{told}");
}

/// A process in a namespace, registered as a container by the file in which systemd lists its machines.
struct Container {
    process: Child,
    file: PathBuf,
}

impl Container {
    fn start(namespace: &Namespace) -> Container {
        let mut sleep = Command::new("ip");
        sleep.args(["netns", "exec", namespace.name(), "sleep", "600"]);
        let process = sleep.spawn().expect("ip runs");
        let file = Path::new("/run/systemd/machines").join(format!("tapline-test-{}", process.id()));
        fs::create_dir_all("/run/systemd/machines").expect("root makes it");
        fs::write(&file, format!("LEADER={}\n", process.id())).expect("root writes it");
        let network = format!("/proc/{}/ns/net", process.id());
        let own = fs::read_link("/proc/self/ns/net").expect("a link");
        wait_for("the namespace", || fs::read_link(&network).is_ok_and(|link| link != own));
        Container { process, file }
    }

    fn name(&self) -> &str {
        self.file.file_name().and_then(|name| name.to_str()).expect("our names are UTF-8")
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = (fs::remove_file(&self.file), self.process.kill(), self.process.wait());
    }
}

#[test]
fn packets_of_a_container_are_captured_by_its_name() {
    let Some(namespace) = namespace("packets_of_a_container_are_captured_by_its_name") else { return };
    let folder = tempfile::tempdir().unwrap();
    let container = Container::start(&namespace);
    let [captured, written, store] =
        ["captured.pcap", "written.pcap", "store"].map(|name| folder.path().join(name));
    let graph = format!("device({FAR}) -> record({:?})", text(&written));
    let commands = [
        vec!["capture", "-i", FAR, "-w", text(&captured)],
        vec!["run", "-e", &graph],
        vec!["record", "-i", FAR, "--to", text(&store), "--size", "128MiB", "--segment", "4MiB"],
    ];
    let frames = frames(12, 100);
    for words in commands {
        let mut command = tapline(words);
        command.args(["--container", container.name()]);
        let live = Live::start_command(&namespace, 1, &mut command);
        send(&namespace, &frames, 100);
        live.interrupt().succeeded();
    }
    assert!(bytes_of(packets_of(&captured)) == frames && bytes_of(packets_of(&written)) == frames);
    let found = folder.path().join("found.pcap");
    run(["find", text(&store), "-w", text(&found)]).succeeded();
    assert!(bytes_of(packets_of(&found)) == frames);
}

#[test]
fn files_rotate_by_size_and_hold_every_packet() {
    let Some(namespace) = namespace("files_rotate_by_size_and_hold_every_packet") else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcap");
    let live = Live::start(&namespace, 1, &["-i", FAR, "-w", text(&out), "-C", "500k", "--json"]);
    let frames = frames(10, 4000);
    send(&namespace, &frames, 4000);
    live.interrupt().succeeded().account();
    let mut files = files_in(folder.path());
    assert!(files.len() > 3, "{files:?}");
    // out.pcap, out.pcap1, out.pcap2, ... as tcpdump names them.
    files.sort_by_key(|path| {
        text(path).rsplit("pcap").next().and_then(|number| number.parse().ok()).unwrap_or(0)
    });
    let packets: Vec<Vec<u8>> = files.iter().flat_map(|path| bytes_of(packets_of(path))).collect();
    assert!(packets == frames, "{} packets in {} files", packets.len(), files.len());
    for file in &files {
        assert!(fs::metadata(file).unwrap().len() < 500 * 1024 + 2000, "{} is too large", file.display());
    }
}

#[test]
fn a_ring_of_files_keeps_its_number() {
    let Some(namespace) = namespace("a_ring_of_files_keeps_its_number") else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcap");
    let live = Live::start(&namespace, 1, &["-i", FAR, "-w", text(&out), "-C", "200k", "-W", "3", "--json"]);
    let frames = frames(11, 4000);
    send(&namespace, &frames, 4000);
    let account = live.interrupt().succeeded().account();
    assert_eq!(account.count("accepted"), 4000);
    let files = files_in(folder.path());
    assert_eq!(files.len(), 3, "{files:?}");
    let kept: Vec<Vec<u8>> = files.iter().flat_map(|path| bytes_of(packets_of(path))).collect();
    assert!(kept.contains(frames.last().unwrap()), "the newest packet is not in the ring");
}

#[test]
fn files_rotate_by_the_clock_without_traffic() {
    let Some(namespace) = namespace("files_rotate_by_the_clock_without_traffic") else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out-%H%M%S.pcapng");
    let live = Live::start(&namespace, 1, &["-i", FAR, "-w", text(&out), "-G", "1", "-W", "2"]);
    let finished = live.wait().succeeded();
    let files = files_in(folder.path());
    assert_eq!(files.len(), 2, "{files:?} {}", finished.stderr);
    for file in &files {
        assert_eq!(packets_of(file), []);
        assert!(fs::metadata(file).unwrap().len() > 100, "{} has no header", file.display());
    }
}

#[test]
fn a_file_in_progress_may_say_so() {
    let Some(namespace) = namespace("a_file_in_progress_may_say_so") else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcap");
    let live = Live::start(&namespace, 1, &["-i", FAR, "-w", text(&out), "--part", "-U"]);
    wait_for("the file in progress", || folder.path().join("out.pcap.part").exists());
    assert!(!out.exists());
    send(&namespace, &frames(12, 10), 10);
    live.interrupt().succeeded();
    assert_eq!(packets_of(&out).len(), 10);
    assert_eq!(files_in(folder.path()).len(), 1);
}

#[test]
fn both_ends_in_one_run_are_told_apart() {
    let Some(namespace) = namespace("both_ends_in_one_run_are_told_apart") else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcapng");
    let both = format!("{NEAR},{FAR}");
    let live = Live::start(&namespace, 2, &["-i", &both, "-w", text(&out), "--json"]);
    let frames = frames(13, 500);
    send(&namespace, &frames, 500);
    let account = live.interrupt().succeeded().account();
    assert_eq!(account.ring("received"), 1000);
    let packets = packets_of(&out);
    for interface in [0, 1] {
        let of_one = packets.iter().filter(|packet| packet.interface == interface).map(|packet| &packet.data);
        assert!(of_one.eq(&frames), "interface {interface}");
    }
}

#[test]
fn globs_and_any_find_interfaces() {
    let Some(namespace) = namespace("globs_and_any_find_interfaces") else { return };
    let folder = tempfile::tempdir().unwrap();
    for (interfaces, sockets) in [("*ar0", 2), ("any", 2)] {
        let out = folder.path().join("out.pcapng");
        let live = Live::start(&namespace, sockets, &["-i", interfaces, "-w", text(&out), "--json"]);
        send(&namespace, &frames(14, 50), 50);
        let account = live.interrupt().succeeded().account();
        assert_eq!(account.ring("received"), 100, "{interfaces}");
        assert_eq!(packets_of(&out).len(), 100, "{interfaces}");
    }
}

#[test]
fn a_direction_narrows_the_capture() {
    let Some(namespace) = namespace("a_direction_narrows_the_capture") else { return };
    let folder = tempfile::tempdir().unwrap();
    let both = format!("{NEAR},{FAR}");
    for direction in ["in", "out"] {
        let out = folder.path().join("out.pcapng");
        let live = Live::start(&namespace, 2, &["-i", &both, "-Q", direction, "-w", text(&out), "--json"]);
        send(&namespace, &frames(15, 300), 300);
        let account = live.interrupt().succeeded().account();
        assert_eq!(packets_of(&out).len(), 300, "{direction}");
        let side = if direction == "in" { FAR } else { NEAR };
        assert_eq!(account.interface(side)["delivered"], 300, "{direction}");
    }
}

#[test]
fn workers_share_the_packets() {
    let Some(namespace) = namespace("workers_share_the_packets") else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcapng");
    let live = Live::start(&namespace, 2, &["-i", FAR, "--workers", "2", "-w", text(&out), "--json"]);
    let mut frames = frames(16, 5000);
    send(&namespace, &frames, 5000);
    let account = live.interrupt().succeeded().account();
    assert_eq!((account.ring("received"), account.output("written")), (5000, 5000));
    let mut captured = bytes_of(packets_of(&out));
    captured.sort();
    frames.sort();
    assert!(captured == frames, "the workers together have other packets than those sent");
}

#[test]
fn files_of_workers_may_have_the_names_of_stages() {
    let Some(namespace) = namespace("files_of_workers_may_have_the_names_of_stages") else { return };
    let folder = tempfile::tempdir().unwrap();
    for name in ["source", "filter", "limit", "snap", "text"] {
        let words = ["-i", FAR, "--workers", "2", "-n", "--print", "-w", name, "--account", "full"];
        let mut command = tapline(["capture", "--netns", namespace.name()]);
        let live = Live::start_command(&namespace, 2, command.args(words).current_dir(folder.path()));
        send(&namespace, &frames(17, 300), 300);
        let finished = live.interrupt().succeeded();
        let told = &finished.stderr;
        assert!(!told.contains("NOT BALANCED"), "{name}: {told}");
        let written = told.lines().filter(|line| line.contains("written") && line.ends_with(" 300"));
        assert_eq!(written.count(), 2, "{name}: {told}");
        assert_eq!(packets_of(&folder.path().join(name)).len(), 300, "{name}");
    }
}

#[test]
fn packets_of_interface_workers_are_in_order() {
    let Some(namespace) = namespace("packets_of_interface_workers_are_in_order") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcapng");
    let graph = format!("device({FAR}) -> gaps :: histogram(gap) -> record(\"{}\")", text(&out));
    let mut command = tapline(["run", "--json", "--netns", namespace.name(), "--workers", "3", "-e", &graph]);
    let live = Live::start_command(&namespace, 3, &mut command);
    let mut frames = frames(22, 5000);
    send(&namespace, &frames, 5000);
    let finished = live.interrupt().succeeded();
    let shown = String::from_utf8_lossy(&finished.stdout).into_owned();
    assert!(shown.contains("\"balanced\":true") && shown.contains("\"delivered\":5000"), "{shown}");
    let captured = packets_of(&out);
    assert!(captured.is_sorted_by_key(|packet| packet.time_ns));
    let mut captured = bytes_of(captured);
    captured.sort();
    frames.sort();
    assert!(captured == frames, "the workers together have other packets than those sent");
}

#[test]
fn packets_have_times_of_the_requested_clock() {
    let Some(namespace) = namespace("packets_have_times_of_the_requested_clock") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let now_ns = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64;
    for mode in ["host", "tsc", "tsc-sync", "batch"] {
        let out = folder.path().join(format!("{mode}.pcapng"));
        let before = now_ns();
        let live = Live::start(&namespace, 1, &["-i", FAR, "-j", mode, "-w", text(&out)]);
        send(&namespace, &frames(23, 2000), 2000);
        live.interrupt().succeeded();
        let after = now_ns();
        let packets = packets_of(&out);
        assert_eq!(packets.len(), 2000);
        assert!(packets.is_sorted_by_key(|packet| packet.time_ns), "{mode}");
        // The raw counter may be off by its error in frequency.
        let slack = 50_000_000;
        let is_within = |packet: &StoredPacket| (before - slack..after + slack).contains(&packet.time_ns);
        assert!(packets.iter().all(is_within), "{mode}: {before} to {after}");
        let mut times: Vec<u64> = packets.iter().map(|packet| packet.time_ns).collect();
        times.dedup();
        assert_eq!(times.len() < 1000, mode == "batch", "{mode}: {} different times", times.len());
    }
    let wrong = run(["capture", "--netns", namespace.name(), "-i", FAR, "-j", "sundial"]);
    wrong.failed_saying(&["sundial", "host", "tsc-sync"]);
}

#[test]
fn programs_keep_memory_per_worker_and_report_it() {
    let Some(namespace) = namespace("programs_keep_memory_per_worker_and_report_it") else { return };
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program.fpl");
    // Of each worker's packets every second one.
    fs::write(&program, "M[3]++; RETURN M[3] % 2 == 0;").unwrap();
    let out = folder.path().join("out.pcapng");
    let said = folder.path().join("stderr");
    let mut command = tapline(["capture", "--netns", namespace.name(), "-i", FAR, "--workers", "2"]);
    command.args(["--fpl", text(&program), "--fpl-memory", "-w", text(&out)]);
    command.stderr(fs::File::create(&said).unwrap());
    let live = Live::start_command(&namespace, 2, &mut command);
    send(&namespace, &frames(21, 3000), 3000);
    // Worker, cell, value.
    let cells = |text: &str| -> Vec<u64> {
        let line = |line: &str| line.split('\t').map(|word| word.parse().ok()).collect::<Option<Vec<u64>>>();
        text.lines().filter_map(line).filter(|cell| cell.len() == 3).map(|cell| cell[2]).collect()
    };
    // They still may be at work: what they tell in the end is all.
    wait_for("both workers to tell of 3000 packets in the sum", || {
        live.signal("USR1");
        cells(&fs::read_to_string(&said).unwrap()).windows(2).any(|both| both.iter().sum::<u64>() == 3000)
    });
    let last = cells(&String::from_utf8_lossy(&live.interrupt().succeeded().stdout));
    assert_eq!((last.len(), last.iter().sum::<u64>()), (2, 3000));
    let kept: u64 = last.iter().map(|count| count / 2).sum();
    assert_eq!(packets_of(&out).len() as u64, kept);
}

#[test]
fn the_snap_length_cuts_live_packets() {
    let Some(namespace) = namespace("the_snap_length_cuts_live_packets") else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcapng");
    let live = Live::start(&namespace, 1, &["-i", FAR, "-s", "96", "-w", text(&out)]);
    let frames: Vec<Vec<u8>> =
        frames(17, 2000).into_iter().filter(|frame| !matches!(frame[12], 0x81 | 0x88)).collect();
    send(&namespace, &frames, frames.len() as u64);
    live.interrupt().succeeded();
    let packets = packets_of(&out);
    assert_eq!(packets.len(), frames.len());
    for (packet, frame) in packets.iter().zip(&frames) {
        assert_eq!(packet.data, frame[..frame.len().min(96)]);
        assert_eq!(packet.wire_len as usize, frame.len());
    }
}

#[test]
fn a_pipe_carries_a_live_capture_to_other_programs() {
    const TEST: &str = "a_pipe_carries_a_live_capture_to_other_programs";
    let Some(namespace) = namespace(TEST) else { return };
    if !program_or_skip(TEST, "tcpdump") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.pcap");
    let mut reader = Command::new("tcpdump")
        .args(["-r", "-", "-w", text(&copy), "-Z", "root"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pipe = reader.stdin.take().unwrap();
    let mut command = tapline(["capture", "--netns", namespace.name(), "-i", FAR, "-w", "-", "-U"]);
    let live = Live::start_command(&namespace, 1, command.stdout(pipe));
    drop(command);
    let frames = frames(18, 1000);
    send(&namespace, &frames, 1000);
    live.interrupt().succeeded();
    assert!(reader.wait().unwrap().success());
    assert!(bytes_of(packets_of(&copy)) == frames);
}

#[test]
fn privileges_are_dropped_and_rotation_still_works() {
    const TEST: &str = "privileges_are_dropped_and_rotation_still_works";
    let Some(namespace) = namespace(TEST) else { return };
    if !root_or_skip(TEST) {
        return;
    }
    // A folder in which the other user may not make files.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let out = folder.path().join("out.pcap");
    let live =
        Live::start(&namespace, 1, &["-i", FAR, "-w", text(&out), "-C", "200k", "-Z", "nobody", "--json"]);
    let frames = frames(19, 3000);
    send(&namespace, &frames, 3000);
    let status = fs::read_to_string(format!("/proc/{}/status", live.pid())).unwrap();
    let line = |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(!line("Uid:").split_whitespace().skip(1).any(|uid| uid == "0"), "{}", line("Uid:"));
    assert!(line("CapEff:").ends_with("0000000000000000"), "{}", line("CapEff:"));
    let account = live.interrupt().succeeded().account();
    assert_eq!(account.output("written"), 3000);
    let files = files_in(folder.path());
    assert!(files.len() > 2, "{files:?}");
    assert_eq!(files.iter().map(|path| packets_of(path).len()).sum::<usize>(), 3000);
}

/// Every thread of a capture that gave up root is confined, and so is the process that opens its files, which keeps one
/// right.
#[test]
fn a_capture_that_gave_up_root_is_confined() {
    const TEST: &str = "a_capture_that_gave_up_root_is_confined";
    let Some(namespace) = namespace(TEST).filter(|_| root_or_skip(TEST)) else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcap.zst");
    let arguments = ["-i", FAR, "-w", text(&out), "-C", "1", "-Z", "nobody", "--workers", "2", "--json"];
    let live = Live::start(&namespace, 2, &arguments);
    let tasks =
        |pid: &str| fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten().map(|task| task.path());
    let mut openers = 0;
    for task in tasks(&live.pid().to_string()) {
        let status = fs::read_to_string(task.join("status")).unwrap();
        for line in ["CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
            assert!(status.contains(line), "{line}: {status}");
        }
        for opener in fs::read_to_string(task.join("children")).unwrap_or_default().split_whitespace() {
            let status = fs::read_to_string(format!("/proc/{opener}/status")).unwrap();
            for line in ["CapPrm:\t0000000000000002", "NoNewPrivs:\t1", "Seccomp:\t2"] {
                assert!(status.contains(line), "{line}: {status}");
            }
            assert!(!status.contains("Uid:\t0"), "{status}");
            let open = fs::read_dir(format!("/proc/{opener}/fd")).unwrap().count();
            assert_eq!(open, 2, "the opener has its socket and its folder, and nothing of ours");
            openers += 1;
        }
    }
    assert_eq!(openers, 1);
    let frames = frames(29, 3000);
    send(&namespace, &frames, 3000);
    let account = live.interrupt().succeeded().account();
    assert_eq!(account.output("written"), 3000);
    let files = files_in(folder.path());
    for file in &files {
        let about = fs::metadata(file).unwrap();
        assert_eq!((about.uid(), about.mode() & 0o777 & !0o640), (65_534, 0), "{}", file.display());
    }
}

/// Waits until packets pass the link again and the capture listens.
fn wait_until_captured(namespace: &Namespace, live: &Live) {
    namespace.wait_until_up(NEAR).unwrap();
    let place = tapline_sys::NetNs::open(namespace.name()).unwrap();
    wait_for("a socket on the interface", || {
        let sockets = place.run(tapline_sys::proc_packet::sockets).unwrap();
        sockets.iter().any(|socket| socket.is_running && socket.if_index != 0)
    });
    live.wait_until_idle();
}

#[test]
fn captures_survive_a_link_that_goes_down() {
    let Some(namespace) = namespace("captures_survive_a_link_that_goes_down") else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcapng");
    let live = Live::start(&namespace, 1, &["-i", FAR, "-w", text(&out), "--json"]);
    let frames = frames(20, 400);
    send(&namespace, &frames, 400);
    wait_for_backlog();
    namespace.ip(&["link", "set", FAR, "down"]).unwrap();
    live.wait_until_idle();
    namespace.ip(&["link", "set", FAR, "up"]).unwrap();
    wait_until_captured(&namespace, &live);
    send(&namespace, &frames, 400);
    let account = live.interrupt().succeeded().account();
    assert_eq!((account.ring("received"), account.output("written")), (800, 800));
    assert_eq!(packets_of(&out).len(), 800);
}

#[test]
fn an_interface_made_anew_is_captured_again() {
    let Some(namespace) = namespace("an_interface_made_anew_is_captured_again") else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcapng");
    let live = Live::start(&namespace, 1, &["-i", FAR, "-w", text(&out), "--json"]);
    let frames = frames(21, 400);
    send(&namespace, &frames, 400);
    wait_for_backlog();
    namespace.ip(&["link", "delete", FAR]).unwrap();
    live.wait_until_idle();
    namespace.add_pair(NEAR, FAR).unwrap();
    wait_until_captured(&namespace, &live);
    send(&namespace, &frames, 400);
    let account = live.interrupt().succeeded().account();
    assert_eq!(account.output("written"), 800);
    assert_eq!(packets_of(&out).len(), 800);
}

#[test]
fn text_shows_packets_as_they_come() {
    let Some(namespace) = namespace("text_shows_packets_as_they_come") else { return };
    let live = Live::start(&namespace, 1, &["-i", FAR, "-n", "-c", "3", "-l", "arp"]);
    send(&namespace, &frames(22, 4000), 4000);
    let finished = live.wait().succeeded();
    let text = String::from_utf8(finished.stdout).unwrap();
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.lines().all(|line| line.contains("ARP, ")), "{text}");
}

#[test]
fn interfaces_are_listed_with_their_captures() {
    let Some(namespace) = namespace("interfaces_are_listed_with_their_captures") else { return };
    let live = Live::start(&namespace, 1, &["-i", FAR, "-w", "/dev/null"]);
    let finished = run(["interfaces", "--netns", namespace.name()]).succeeded();
    let listed = String::from_utf8(finished.stdout).unwrap();
    assert!(listed.contains(NEAR) && listed.contains(FAR) && listed.contains("veth"), "{listed}");
    assert!(listed.contains("tapline"), "no capture is listed: {listed}");
    live.interrupt().succeeded();
}
