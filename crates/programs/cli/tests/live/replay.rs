//! `tapline replay` on a virtual link, with real tcpdump at the other end: the same bytes, the same count, the gaps as
//! planned.

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use crate::support::tcpdump::Tcpdump;
use crate::support::{Finished, PATIENCE, finish, frames, program_or_skip, run, tapline, wait_for};
use serde_json::Value;
use tapline_testkit::capture_file::{ETHERNET, Unit, write_pcap};
use tapline_testkit::netns::{FAR, NEAR, Namespace, namespaces_or_skip};

fn namespace(test: &str) -> Option<Namespace> {
    let may = namespaces_or_skip(test) && program_or_skip(test, "tcpdump");
    may.then(|| Namespace::with_pair("replay").expect("a probe succeeded before"))
}

/// A capture of frames a millisecond apart.
fn write(path: &Path, frames: &[Vec<u8>], gap: Duration) {
    let packets = frames.iter().enumerate().map(|(n, frame)| (gap * n as u32, frame.clone()));
    write_pcap(&mut File::create(path).unwrap(), ETHERNET, Unit::Nanoseconds, packets).unwrap();
}

fn sendable(seed: u64, count: usize) -> Vec<Vec<u8>> {
    frames(seed, count).into_iter().filter(|frame| (14..=1514).contains(&frame.len())).collect()
}

/// Bytes of a pcap file of these frames.
fn size(frames: &[Vec<u8>]) -> u64 {
    24 + frames.iter().map(|frame| frame.len() as u64 + 16).sum::<u64>()
}

fn replay(namespace: &Namespace, file: &Path, arguments: &[&str]) -> Finished {
    let fixed = ["replay", "--json", "--netns", namespace.name(), "-i", NEAR];
    run(fixed.into_iter().chain([file.to_str().unwrap()]).chain(arguments.iter().copied()))
}

/// Rate and account of a replay that ended well and balances.
fn report(finished: Finished) -> (Value, Value) {
    let finished = finished.succeeded();
    let value: Value = serde_json::from_slice(&finished.stdout).expect("one object");
    assert_eq!(value["account"]["balanced"], true, "{value}");
    (value["rate"].clone(), value["account"].clone())
}

#[test]
fn every_format_arrives_byte_by_byte() {
    let Some(namespace) = namespace("every_format_arrives_byte_by_byte") else { return };
    let folder = tempfile::tempdir().unwrap();
    let frames = sendable(31, 3000);
    let plain = folder.path().join("in.pcap");
    write(&plain, &frames, Duration::from_micros(50));
    for ending in ["pcap", "pcapng", "pcapng.zst"] {
        let file = folder.path().join(format!("made.{ending}"));
        run(["capture", "-r", plain.to_str().unwrap(), "-w", file.to_str().unwrap()]).succeeded();
        let out = folder.path().join(format!("out.{ending}"));
        let receiver = Tcpdump::start(&namespace, &out);
        let (rate, account) = report(replay(&namespace, &file, &[]));
        let count = frames.len() as u64;
        assert_eq!((account["read"].as_u64(), account["sent"].as_u64()), (Some(count), Some(count)));
        assert!(receiver.packets(&out, size(&frames)) == frames, "{ending}: other packets than in the file");
        // The plan is the file's own time, to the nanosecond.
        let planned = (count - 1) as f64 * 50e-6;
        assert!((rate["planned_seconds"].as_f64().unwrap() - planned).abs() < 1e-6, "{rate}");
        assert!(rate["gap_error_median_ns"].is_u64() && rate["seconds"].is_f64(), "{rate}");
    }
}

#[test]
fn erf_is_sent_without_its_check_sequences() {
    let Some(namespace) = namespace("erf_is_sent_without_its_check_sequences") else { return };
    let folder = tempfile::tempdir().unwrap();
    let frames = sendable(32, 500);
    let (file, out) = (folder.path().join("in.erf"), folder.path().join("out.pcap"));
    let mut bytes = Vec::new();
    for (number, frame) in frames.iter().enumerate() {
        // ERF type 2 (Ethernet): time, type, flags, rlen, lctr, wlen; 2 bytes of padding, the frame, its check
        // sequence.
        bytes.extend(((1_700_000_000_u64 << 32) + number as u64 * 100_000).to_le_bytes());
        bytes.extend([2, 4]);
        bytes.extend((frame.len() as u16 + 4 + 18).to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend((frame.len() as u16 + 4).to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(frame);
        bytes.extend([0xfc, 0x5f, 0xc5, 0xcf]);
    }
    std::fs::write(&file, bytes).unwrap();
    let receiver = Tcpdump::start(&namespace, &out);
    let (_, account) = report(replay(&namespace, &file, &[]));
    assert_eq!(account["sent"], frames.len());
    assert!(receiver.packets(&out, size(&frames)) == frames, "other packets than in the file");
}

#[test]
fn in_a_loop_at_a_rate_and_at_top_speed() {
    let Some(namespace) = namespace("in_a_loop_at_a_rate_and_at_top_speed") else { return };
    let folder = tempfile::tempdir().unwrap();
    let frames = sendable(33, 700);
    let file = folder.path().join("in.pcap");
    write(&file, &frames, Duration::from_millis(500));
    let ways: [(&[&str], f64); 4] = [
        (&["--rate", "20k"], 1.0 / 20e3),
        (&["--speed", "10000"], 0.5 / 10_000.0),
        (&["--top-speed"], 0.0),
        (&["--rate", "50Mbps"], 0.0),
    ];
    for (number, (way, gap)) in ways.into_iter().enumerate() {
        let out = folder.path().join(format!("out{number}.pcap"));
        let receiver = Tcpdump::start(&namespace, &out);
        let (rate, account) = report(replay(&namespace, &file, &[&["--loop", "3"], way].concat()));
        let expected = [&frames[..], &frames, &frames].concat();
        assert_eq!(account["sent"], expected.len(), "{way:?} {account}");
        assert!(
            receiver.packets(&out, size(&expected)) == expected,
            "{way:?}: other packets than in the file"
        );
        match way {
            ["--top-speed"] => assert!(rate["planned_seconds"].is_null(), "{rate}"),
            ["--rate", "50Mbps"] => {
                let bits: usize = expected[..expected.len() - 1].iter().map(|frame| frame.len() * 8).sum();
                let planned = rate["planned_seconds"].as_f64().unwrap();
                assert!((planned - bits as f64 / 50e6).abs() < 1e-6, "{planned}");
            }
            _ => {
                let planned = rate["planned_seconds"].as_f64().unwrap();
                assert!((planned - gap * (expected.len() - 1) as f64).abs() < 1e-6, "{way:?} {planned}");
            }
        }
    }
    let (_, account) = report(replay(&namespace, &file, &["--loop", "0", "--top-speed", "-c", "1500"]));
    assert_eq!((&account["sent"], &account["passes"]), (&1500.into(), &2.into()));
}

#[test]
fn endpoints_are_rewritten_with_their_checksums() {
    use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Tcp};
    let Some(namespace) = namespace("endpoints_are_rewritten_with_their_checksums") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
    let made = |from: &Host, to: &Host| -> Vec<Vec<u8>> {
        let frame = |port| {
            let ips = IpPair::between(from, to, IpVersion::V4);
            let tcp = Tcp { src: port, dst: 80, ..Tcp::default() };
            Ethernet::between(from, to).ip(&tcp.packet(ips, &[b'x'; 99]))
        };
        (1000..1100).map(frame).collect()
    };
    let (from, to) = (Host::number(1), Host::number(2));
    let new_from = Host { mac: [2, 0, 0, 0, 9, 9], v4: Ipv4Addr::new(192, 168, 0, 1), ..from };
    let new_to = Host { v4: Ipv4Addr::new(192, 168, 0, 2), ..to };
    write(&file, &made(&from, &to), Duration::from_micros(10));
    let receiver = Tcpdump::start(&namespace, &out);
    let rules = ["--mac", "02:00:00:00:00:01=02:00:00:00:09:09", "--ip", "10.0.0.0/16=192.168.0.0/16"];
    report(replay(&namespace, &file, &rules));
    let expected = made(&new_from, &new_to);
    assert!(
        receiver.packets(&out, size(&expected)) == expected,
        "other frames than those hosts would have sent"
    );
}

#[test]
fn unsent_packets_are_counted_by_cause() {
    let Some(namespace) = namespace("unsent_packets_are_counted_by_cause") else { return };
    let folder = tempfile::tempdir().unwrap();
    let frames = sendable(34, 1000);
    let (file, cut) = (folder.path().join("in.pcap"), folder.path().join("cut.pcap"));
    write(&file, &frames, Duration::from_micros(10));
    run(["capture", "-r", file.to_str().unwrap(), "-s", "200", "-w", cut.to_str().unwrap()]).succeeded();
    let (_, account) = report(replay(&namespace, &cut, &["--top-speed"]));
    let long = frames.iter().filter(|frame| frame.len() > 200).count();
    assert!(long > 100);
    assert_eq!(
        (&account["unsent"]["partial"], &account["sent"]),
        (&long.into(), &(frames.len() - long).into())
    );
    namespace.ip(&["link", "set", NEAR, "mtu", "500"]).unwrap();
    let (_, account) = report(replay(&namespace, &file, &["--top-speed"]));
    // Four bytes more for a frame with a tag of 802.1Q.
    let room = |frame: &Vec<u8>| if frame[12..14] == [0x81, 0] { 518 } else { 514 };
    let long = frames.iter().filter(|frame| frame.len() > room(frame)).count();
    assert_eq!(
        (&account["unsent"]["too_long"], &account["sent"]),
        (&long.into(), &(frames.len() - long).into())
    );
    let strict = replay(&namespace, &file, &["--top-speed", "--strict"]);
    assert_eq!(strict.status.code(), Some(3), "{}", strict.stderr);
    assert!(strict.stderr.contains("--strict: packets were lost") && strict.stderr.contains("longer than"));
    namespace.ip(&["link", "set", NEAR, "down"]).unwrap();
    // That nothing was sent is an error without the option, too.
    let nothing = replay(&namespace, &file, &["--top-speed"]);
    assert_eq!(nothing.status.code(), Some(1));
    nothing.failed_saying(&["nothing was sent"]);
    let account = nothing.account().value;
    // Which of two reasons is named first is the back end's.
    let unsent = |cause: &str| account["unsent"][cause].as_u64().unwrap_or(0);
    assert_eq!((unsent("down") + unsent("too_long"), &account["sent"]), (frames.len() as u64, &0.into()));
    assert!(unsent("down") >= (frames.len() - long) as u64, "{account}");
}

#[test]
fn full_queues_slow_replays_and_lose_nothing() {
    const TEST: &str = "full_queues_slow_replays_and_lose_nothing";
    let Some(namespace) = namespace(TEST) else { return };
    let queue =
        ["qdisc", "add", "dev", NEAR, "root", "tbf", "rate", "20mbit", "burst", "5kb", "latency", "1ms"];
    if !program_or_skip(TEST, "tc") || !finish(namespace.command("tc").args(queue)).status.success() {
        return eprintln!("skipped: {TEST}: no tc, or no tbf in this kernel");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in.pcap");
    let frames = sendable(37, 800);
    write(&file, &frames, Duration::from_millis(1));
    let (_, account) = report(replay(&namespace, &file, &["--top-speed"]));
    assert_eq!(account["sent"], frames.len(), "{account}");
    wait_for("the queue to run dry", || namespace.counter(FAR, "rx_packets").unwrap() >= frames.len() as u64);
    assert_eq!(namespace.counter(FAR, "rx_packets"), Ok(frames.len() as u64));
}

#[test]
fn a_damaged_file_is_sent_as_far_as_it_is_whole() {
    let Some(namespace) = namespace("a_damaged_file_is_sent_as_far_as_it_is_whole") else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in.pcap");
    write(&file, &sendable(38, 100), Duration::from_micros(10));
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 5]).unwrap();
    let finished = replay(&namespace, &file, &[]);
    finished.failed_saying(&["in.pcap"]);
    let value: Value = serde_json::from_slice(&finished.stdout).expect("the account all the same");
    assert_eq!(value["account"]["balanced"], true, "{value}");
    assert_eq!(namespace.counter(FAR, "rx_packets").ok(), value["account"]["sent"].as_u64());
    assert!(value["account"]["sent"].as_u64() >= Some(90), "{value}");
}

#[test]
fn ctrl_c_ends_it_with_its_account() {
    let Some(namespace) = namespace("ctrl_c_ends_it_with_its_account") else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in.pcap");
    write(&file, &sendable(35, 2000), Duration::from_millis(1));
    for way in [&["--rate", "1000", "--loop", "0"][..], &["--loop", "0", "--speed", "0.001"]] {
        let arguments = ["replay", "--json", "--netns", namespace.name(), "-i", NEAR, file.to_str().unwrap()];
        let before = namespace.counter(FAR, "rx_packets").unwrap();
        let mut child = tapline(arguments.iter().chain(way)).spawn().unwrap();
        wait_for("packets", || namespace.counter(FAR, "rx_packets").unwrap() > before);
        let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(kill.unwrap().success());
        let start = std::time::Instant::now();
        while child.try_wait().unwrap().is_none() && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = child.kill();
        let (_, account) = report(Finished::new(child.wait_with_output().unwrap()));
        assert_eq!(
            account["sent"].as_u64(),
            namespace.counter(FAR, "rx_packets").ok().map(|all| all - before)
        );
        assert!(account["not_reached"].as_u64() > Some(0), "{account}");
    }
}

#[test]
fn sending_needs_an_owned_network() {
    let Some(namespace) = namespace("sending_needs_an_owned_network") else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in.pcap");
    write(&file, &sendable(36, 10), Duration::from_millis(1));
    namespace.ip(&["link", "add", "veth9", "type", "bridge"]).unwrap();
    namespace.ip(&["link", "set", "veth9", "up"]).unwrap();
    let to_bridge = |more: &[&str]| {
        let arguments =
            ["replay", "--json", "--netns", namespace.name(), "-i", "veth9", file.to_str().unwrap()];
        finish(&mut tapline(arguments.iter().chain(more)))
    };
    to_bridge(&[]).failed_saying(&["sending on veth9 is refused", "--i-own-this-network veth9"]);
    report(to_bridge(&["--i-own-this-network", "veth9"]));
    replay(&namespace, &file, &["--rate", "5x"]).failed_saying(&["'5x' is not packets a second"]);
    replay(&namespace, &file, &["--ip", "10.0.0.1"]).failed_saying(&["there is no ="]);
    replay(&namespace, Path::new("/dev/null"), &[]).failed_saying(&["/dev/null"]);
}
