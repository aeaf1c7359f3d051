//! The back ends of `replay` and `generate -i` on a virtual link: the same bytes in the same order by each, every
//! packet accounted for, refusals in words.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::support::tcpdump::Tcpdump;
use crate::support::{
    Finished, Live, PATIENCE, bytes_of, finish, frames, packets_of, program_or_skip, run, tapline, wait_for,
};
use serde_json::Value;
use tapline_bpf::ebpf::{Insn, R0, xdp_action};
use tapline_sys::bpf::{LoadedProgram, ProgramKind, XdpLink, XdpMode};
use tapline_sys::{NetNs, RouteSocket};
use tapline_testkit::capture_file::{ETHERNET, Unit, write_pcap};
use tapline_testkit::netns::{FAR, NEAR, Namespace, namespaces_or_skip};

const BACKENDS: [&str; 3] = ["packet", "xdp", "live"];

/// A pair whose far end takes XDP frames, if this kernel has what all back ends need.
fn namespace(test: &str) -> Option<Namespace> {
    if !namespaces_or_skip(test) || !program_or_skip(test, "tcpdump") {
        return None;
    }
    let namespace = Namespace::with_pair("backend").expect("a probe succeeded before");
    finish(namespace.command("ethtool").args(["-K", FAR, "gro", "on"])).succeeded();
    let probe = generate(&namespace, "live", &["count=1"]);
    if probe.status.success() {
        return Some(namespace);
    }
    eprintln!("skipped: {test}: no XDP live frames: {}", probe.stderr);
    None
}

/// As [`namespace`], with an XDP program that passes everything in place of GRO, which joins segments of a TCP
/// connection: frames arrive as they were sent. It is there as long as the link.
fn namespace_without_gro(test: &str) -> Option<(Namespace, XdpLink)> {
    let namespace = namespace(test)?;
    let pass = [Insn::set(R0, xdp_action::PASS), Insn::EXIT];
    let program = LoadedProgram::load(ProgramKind::Xdp, "pass", &pass).expect("live frames work");
    let attach = || {
        let links = RouteSocket::open().unwrap().links().unwrap();
        let far = links.iter().find(|link| link.name == FAR).expect("the pair");
        XdpLink::attach(&program, far.index, XdpMode::Native).unwrap()
    };
    let link = NetNs::open(namespace.name()).unwrap().run(attach).unwrap();
    finish(namespace.command("ethtool").args(["-K", FAR, "gro", "off"])).succeeded();
    Some((namespace, link))
}

/// Packets that the far end took: those in its queue are not among them.
fn arrived(namespace: &Namespace) -> u64 {
    namespace.counter(FAR, "rx_packets").unwrap()
}

/// Waits for room in a full queue as tests wait for any event: a receiver may get no processor for longer than the
/// program's patience by itself.
const PATIENT: [&str; 2] = ["--patience", "60000"];

/// Sends a recipe, patiently unless it has a patience of its own.
fn generate(namespace: &Namespace, backend: &str, recipe: &[&str]) -> Finished {
    let fixed = ["generate", "--json", "--netns", namespace.name(), "-i", NEAR, "--backend", backend];
    let patience = if recipe.contains(&PATIENT[0]) { &[][..] } else { &PATIENT };
    run(fixed.iter().chain(patience).chain(recipe).copied())
}

fn replay(namespace: &Namespace, backend: &str, file: &Path, more: &[&str]) -> Finished {
    let file = file.to_str().expect("our names are UTF-8");
    let fixed = ["replay", "--json", "--netns", namespace.name(), "-i", NEAR, "--backend", backend, file];
    run(fixed.into_iter().chain(more.iter().copied()))
}

/// The report of a successful run, with an account that balances.
fn report(finished: Finished) -> Value {
    report_of(finished.succeeded())
}

/// The report of a run, with an account that balances.
fn report_of(finished: Finished) -> Value {
    let value: Value = serde_json::from_slice(&finished.stdout).expect("one object");
    assert_eq!(value["account"]["balanced"], true, "{value}");
    value
}

/// Frames that the interface sends.
fn sendable(seed: u64, count: usize) -> Vec<Vec<u8>> {
    frames(seed, count).into_iter().filter(|frame| (14..=1514).contains(&frame.len())).collect()
}

fn write(path: &Path, frames: &[Vec<u8>]) {
    let packets =
        frames.iter().enumerate().map(|(n, frame)| (Duration::from_micros(20) * n as u32, frame.clone()));
    write_pcap(&mut File::create(path).unwrap(), ETHERNET, Unit::Nanoseconds, packets).unwrap();
}

fn size(frames: &[Vec<u8>]) -> u64 {
    24 + frames.iter().map(|frame| frame.len() as u64 + 16).sum::<u64>()
}

/// The index among the sent frames of each frame that arrived; frames that were never sent are left out, as are copies.
fn places(got: &[Vec<u8>], sent: &[Vec<u8>]) -> Vec<usize> {
    let mut of: HashMap<&[u8], VecDeque<usize>> = HashMap::new();
    for (place, frame) in sent.iter().enumerate() {
        of.entry(frame).or_default().push_back(place);
    }
    got.iter().filter_map(|frame| of.get_mut(frame.as_slice())?.pop_front()).collect()
}

fn paths<const N: usize>(folder: &tempfile::TempDir, names: [&str; N]) -> [PathBuf; N] {
    names.map(|name| folder.path().join(name))
}

#[test]
fn each_sends_a_file_byte_by_byte_and_in_order() {
    const TEST: &str = "each_sends_a_file_byte_by_byte_and_in_order";
    let Some((namespace, _link)) = namespace_without_gro(TEST) else { return };
    let folder = tempfile::tempdir().unwrap();
    let [file, out] = paths(&folder, ["in.pcap", "out.pcap"]);
    let frames = sendable(51, 3000);
    write(&file, &frames);
    for backend in BACKENDS {
        for pace in [&["--top-speed"][..], &["--rate", "20k"]] {
            let before = namespace.counter(FAR, "rx_packets").unwrap();
            let receiver = Tcpdump::start(&namespace, &out);
            let value = report(replay(&namespace, backend, &file, &[pace, &PATIENT].concat()));
            assert_eq!(value["backend"]["name"], backend);
            assert_eq!(value["account"]["sent"], frames.len(), "{backend}: {value}");
            assert_eq!(value["account"]["tx_dropped"], 0, "{backend}: {value}");
            let bytes: usize = frames.iter().map(Vec::len).sum();
            assert_eq!(value["account"]["bytes"], bytes);
            wait_for("packets", || {
                namespace.counter(FAR, "rx_packets").unwrap() >= before + frames.len() as u64
            });
            // tcpdump has them all in its ring; it writes them when it gets a processor.
            let got = receiver.packets(&out, size(&frames));
            let places = places(&got, &frames);
            assert!(places.len() == frames.len(), "{backend} {pace:?}: {} of {}", places.len(), frames.len());
            // The far end takes XDP frames in lists of eight. A socket gets those with protocols that the kernel has no
            // handler for one place later than the others (__netif_receive_skb_list_core), with any sender.
            let is_ip = |place: &&usize| matches!(frames[**place][12..14], [0x08, 0x00]);
            let in_order: Vec<&usize> =
                places.iter().filter(|place| backend != "live" || is_ip(place)).collect();
            assert!(in_order.is_sorted(), "{backend} {pace:?}: {in_order:?}");
            std::fs::remove_file(&out).unwrap();
        }
    }
}

/// A recipe sent and captured gives the packets that it writes into a file.
#[test]
fn written_and_captured_recipes_are_equal() {
    const TEST: &str = "written_and_captured_recipes_are_equal";
    let Some((namespace, _link)) = namespace_without_gro(TEST) else { return };
    let folder = tempfile::tempdir().unwrap();
    let [file, out] = paths(&folder, ["file.pcap", "out.pcap"]);
    let recipe =
        ["udp", "icmp", "ip", "ip6", "size=64..1514+11", "flows=70", "payload=random", "seed=9", "count=20k"];
    let file_name = file.to_str().unwrap();
    run(["generate", "-w", file_name].into_iter().chain(recipe)).succeeded();
    let written = bytes_of(packets_of(&file));
    for backend in BACKENDS {
        let arguments = ["-i", FAR, "-B", "131072", "-w", out.to_str().unwrap(), "--json"];
        let live = Live::start(&namespace, 1, &arguments);
        let before = arrived(&namespace);
        let value = report(generate(&namespace, backend, &recipe));
        assert_eq!((&value["account"]["made"], &value["account"]["sent"]), (&20_000.into(), &20_000.into()));
        wait_for("packets", || arrived(&namespace) >= before + 20_000);
        let account = live.interrupt().succeeded().account();
        assert_eq!((account.output("written"), account.count("lost")), (20_000, 0), "{backend}");
        assert!(bytes_of(packets_of(&out)) == written, "{backend}: other packets than in the file");
    }
}

/// With its interrupts' work in a thread of its own, the far end empties its queue when it gets a processor: in between
/// the queue is full.
#[test]
fn senders_wait_for_full_queues_and_keep_order() {
    let Some(namespace) = namespace("senders_wait_for_full_queues_and_keep_order") else { return };
    let threaded = format!("echo 1 > /sys/class/net/{FAR}/threaded");
    if !finish(namespace.command("sh").args(["-c", &threaded])).status.success() {
        return eprintln!("skipped: this kernel has no threaded NAPI");
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcap");
    for backend in BACKENDS {
        let arguments = ["-i", FAR, "-B", "262144", "--verify", "-w", out.to_str().unwrap(), "--json"];
        let live = Live::start(&namespace, 1, &arguments);
        let before = arrived(&namespace);
        let value = report(generate(&namespace, backend, &["mark", "size=60..600", "flows=9", "count=100k"]));
        let sent = value["account"]["sent"].as_u64().unwrap();
        let dropped = value["account"]["tx_dropped"].as_u64().unwrap();
        // veth drops what finds its queue full, and counts that. By AF_PACKET and of live frames we are told, and send
        // them again; by AF_XDP we are not.
        let gone = if backend == "xdp" { dropped } else { 0 };
        wait_for("the queue to run dry", || arrived(&namespace) >= before + sent - gone);
        let finished = live.interrupt().succeeded();
        let text = String::from_utf8_lossy(&finished.stdout).into_owned();
        let marks: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
        let marks = &marks["marks"][0];
        let counts = ["doubled", "reordered"].map(|name| marks[name].as_u64());
        assert_eq!(counts, [Some(0), Some(0)], "{backend}: {marks}");
        assert_eq!(
            (sent, marks["packets"].as_u64()),
            (100_000, Some(sent - gone)),
            "{backend}: {marks} {value}"
        );
        assert!(backend != "live" || dropped == 0, "{value}");
    }
}

/// Without patience live frames are a wire: it does not slow down for a receiver that cannot follow, and what is lost
/// is counted, frame by frame.
#[test]
fn a_full_wire_loses_packets() {
    const COUNT: u64 = 300_000;
    let Some(namespace) = namespace("a_full_wire_loses_packets") else { return };
    let threaded = format!("echo 1 > /sys/class/net/{FAR}/threaded");
    if !finish(namespace.command("sh").args(["-c", &threaded])).status.success() {
        return eprintln!("skipped: this kernel has no threaded NAPI");
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pcap");
    let arguments = ["-i", FAR, "-B", "262144", "--verify", "-w", out.to_str().unwrap(), "--json"];
    let live = Live::start(&namespace, 1, &arguments);
    let before = namespace.counter(FAR, "rx_bytes").unwrap();
    let packets_before = arrived(&namespace);
    let recipe = ["mark", "size=60..600", "flows=9", "count=300k", "--patience", "0"];
    let value = report(generate(&namespace, "live", &recipe));
    let count = |name: &str| value["account"][name].as_u64().unwrap_or_else(|| panic!("{name} of {value}"));
    let full = value["account"]["unsent"]["queue_full"].as_u64().unwrap_or(0);
    assert_eq!((count("made"), count("sent") + full, count("tx_dropped")), (COUNT, COUNT, 0), "{value}");
    wait_for("the queue to run dry", || arrived(&namespace) >= packets_before + count("sent"));
    let finished = live.interrupt().succeeded();
    let text = String::from_utf8_lossy(&finished.stdout).into_owned();
    let marks: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    let marks = &marks["marks"][0];
    assert_eq!(["doubled", "reordered"].map(|name| marks[name].as_u64()), [Some(0); 2], "{marks}");
    assert_eq!(marks["packets"], count("sent"), "{marks} {value}");
    // The bytes that the link counts are those of the frames that were sent, whichever those were.
    let arrived = namespace.counter(FAR, "rx_bytes").unwrap() - before;
    assert_eq!(arrived, count("bytes"), "{value}");
}

#[test]
fn unsent_packets_are_counted_by_each_back_end() {
    let Some(namespace) = namespace("unsent_packets_are_counted_by_each_back_end") else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in.pcap");
    let mut frames = sendable(53, 40);
    for (at, len) in [(0, 1515), (7, 2000), (20, 9000), (20, 4000)] {
        frames.insert(at, vec![7; len]);
    }
    // One tag may go beyond the MTU.
    let mut tagged = vec![9; 1518];
    tagged[12..14].copy_from_slice(&[0x81, 0x00]);
    frames.push(tagged);
    write(&file, &frames);
    for backend in BACKENDS {
        let before = namespace.counter(FAR, "rx_packets").unwrap();
        let value = report(replay(&namespace, backend, &file, &["--top-speed"]));
        let account = &value["account"];
        assert_eq!(account["unsent"], serde_json::json!({ "too_long": 4 }), "{backend}: {account}");
        assert_eq!(account["sent"], frames.len() - 4, "{backend}: {account}");
        let arrived = before + frames.len() as u64 - 4;
        wait_for("packets", || namespace.counter(FAR, "rx_packets").unwrap() >= arrived);
        assert_eq!(namespace.counter(FAR, "rx_packets"), Ok(arrived), "{backend}");
    }
    namespace.ip(&["link", "set", NEAR, "down"]).unwrap();
    for backend in BACKENDS {
        let finished = replay(&namespace, backend, &file, &["--top-speed"]);
        finished.failed_saying(&["nothing was sent"]);
        let value = report_of(finished);
        let account = &value["account"];
        assert_eq!(
            (&account["sent"], &account["lost"]),
            (&0.into(), &frames.len().into()),
            "{backend}: {account}"
        );
        assert!(account["unsent"]["down"].as_u64() > Some(0), "{backend}: {account}");
    }
}

#[test]
fn the_best_that_works_is_taken_and_named() {
    let Some(namespace) = namespace("the_best_that_works_is_taken_and_named") else { return };
    let auto = |recipe: &[&str]| {
        let value = report(generate(&namespace, "auto", recipe));
        assert_eq!(value["account"]["sent"], 300, "{value}");
        let passed = value["backend"]["passed_over"].as_array().unwrap().iter();
        let passed: Vec<String> = passed.map(|over| over["name"].as_str().unwrap().to_owned()).collect();
        (
            value["backend"]["name"].as_str().unwrap().to_owned(),
            passed.join(" "),
            value["backend"].to_string(),
        )
    };
    let (name, passed, _) = auto(&["count=300"]);
    assert_eq!((name.as_str(), passed.as_str()), ("live", ""));
    let (name, passed, text) = auto(&["count=300", "rate=50k"]);
    assert_eq!((name.as_str(), passed.as_str()), ("packet", "live xdp"), "{text}");
    assert!(text.contains("packets have times"), "{text}");
    assert_eq!(auto(&["count=300", "rate=300k"]).0, "live");
    finish(namespace.command("ethtool").args(["-K", FAR, "gro", "off"])).succeeded();
    let (name, passed, text) = auto(&["count=300"]);
    assert_eq!((name.as_str(), passed.as_str()), ("xdp", "live"), "{text}");
    assert!(text.contains("gro on"), "{text}");
    let before = namespace.counter(FAR, "rx_packets").unwrap();
    let refused = generate(&namespace, "live", &["count=300"]);
    refused.failed_saying(&[
        "near0: no sending by XDP live frames",
        "ethtool -K NAME gro on",
        "--backend auto",
    ]);
    assert_eq!(namespace.counter(FAR, "rx_packets"), Ok(before), "asking sends nothing");
    // A queueing discipline that shapes packets is not bypassed.
    let queue =
        ["qdisc", "add", "dev", NEAR, "root", "tbf", "rate", "1gbit", "burst", "500kb", "latency", "50ms"];
    if program_or_skip("tc", "tc") && finish(namespace.command("tc").args(queue)).status.success() {
        let (name, passed, text) = auto(&["count=300"]);
        assert_eq!((name.as_str(), passed.as_str()), ("packet", "live xdp"), "{text}");
        assert!(text.contains("(tbf)"), "{text}");
        finish(namespace.command("tc").args(["qdisc", "del", "dev", NEAR, "root"])).succeeded();
    }
    for interface in [NEAR, FAR] {
        namespace.ip(&["link", "set", interface, "mtu", "9000"]).unwrap();
    }
    let (name, passed, text) = auto(&["count=300"]);
    assert_eq!((name.as_str(), passed.as_str()), ("packet", "live xdp"), "{text}");
    assert!(text.contains("an MTU of 9000"), "{text}");
}

#[test]
fn after_kill_9_nothing_is_left() {
    let Some(namespace) = namespace("after_kill_9_nothing_is_left") else { return };
    for backend in ["live", "xdp"] {
        let fixed = ["generate", "--netns", namespace.name(), "-i", NEAR, "--backend", backend];
        let before = namespace.counter(FAR, "rx_packets").unwrap();
        let mut child = tapline(fixed).spawn().unwrap();
        wait_for("packets", || namespace.counter(FAR, "rx_packets").unwrap() > before + 1000);
        child.kill().unwrap();
        child.wait().unwrap();
        let links = namespace.ip(&["-d", "link", "show"]).unwrap();
        assert!(!links.contains("xdp"), "{links}");
        let count = || namespace.counter(FAR, "rx_packets").unwrap();
        wait_for("silence", || {
            let now = count();
            std::thread::sleep(Duration::from_millis(50));
            count() == now
        });
        // The queue is free again, and all that a back end needs can be had.
        let value = report(generate(&namespace, backend, &["count=500"]));
        assert_eq!(value["account"]["sent"], 500);
    }
}

#[test]
fn sigusr1_prints_the_account_so_far() {
    let Some(namespace) = namespace("sigusr1_prints_the_account_so_far") else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in.pcap");
    write(&file, &sendable(54, 200));
    let replay = ["replay", file.to_str().unwrap(), "--rate", "500", "--loop", "0"];
    let generate = ["generate", "rate=2"];
    for command in [&replay[..], &generate] {
        for json in [false, true] {
            let fixed = ["--netns", namespace.name(), "-i", NEAR];
            let mut command = tapline(command.iter().copied().chain(fixed));
            if json {
                command.arg("--json");
            }
            let before = namespace.counter(FAR, "rx_packets").unwrap();
            let mut child = command.spawn().unwrap();
            let lines = lines_of(child.stderr.take().expect("piped"));
            wait_for("packets", || namespace.counter(FAR, "rx_packets").unwrap() > before);
            signal(&child, "-USR1");
            let words = if json { "\"running\":true" } else { "balanced so far: still running" };
            let line =
                std::iter::from_fn(|| lines.recv_timeout(PATIENCE).ok()).find(|line| line.contains(words));
            signal(&child, "-INT");
            let line = line.expect("the account so far");
            if json {
                let value: Value = serde_json::from_str(&line).unwrap();
                assert_eq!(value["account"]["balanced"], true, "{line}");
                assert!(value["account"]["sent"].as_u64() > Some(0), "{line}");
            }
            // The account of the end comes as well, and says nothing of running.
            assert!(
                std::iter::from_fn(|| lines.recv_timeout(PATIENCE).ok()).all(|line| !line.contains(words))
            );
            assert!(child.wait().unwrap().success());
        }
    }
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(status.expect("kill is everywhere").success());
}

/// The lines of a program's standard error, until it ends.
fn lines_of(stderr: ChildStderr) -> Receiver<String> {
    let (lines, read) = channel();
    std::thread::spawn(move || {
        BufReader::new(stderr).lines().map_while(Result::ok).all(|line| lines.send(line).is_ok())
    });
    read
}
