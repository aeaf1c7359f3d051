//! `capture --count` on an interface: counted in the kernel, with the numbers that counting here gives.

use std::process::Stdio;

use serde_json::Value;

use crate::support::*;
use tapline_testkit::capture_file::StoredPacket;
use tapline_testkit::netns::{FAR, Namespace, namespaces_or_skip};
use tapline_testkit::sender::{Pace, Sender};

const PACKETS: u64 = 12_000;

/// Sends frames, tagged and short ones among them, while all of `live` capture.
fn send(namespace: &Namespace) {
    let frames = frames(21, 3000);
    let sent = Sender::near(namespace).unwrap().send(&frames, PACKETS, Pace::PerSecond(20_000)).unwrap();
    assert_eq!(sent.packets, PACKETS);
}

fn total(packets: &[StoredPacket]) -> u64 {
    packets.iter().map(|packet| u64::from(packet.wire_len)).sum()
}

#[test]
fn the_kernel_counts_what_a_file_would_hold() {
    const TEST: &str = "the_kernel_counts_what_a_file_would_hold";
    if !namespaces_or_skip(TEST) {
        return;
    }
    let namespace = Namespace::with_pair("count").expect("a probe succeeded before");
    let folder = tempfile::tempdir().unwrap();
    for filter in ["", "udp or vlan", "less 100", "ip[2:2] % 3 == 1", "tcp port 99 and tcp port 98"] {
        let out = folder.path().join("out.pcap");
        let file = Live::start(&namespace, 1, &["-i", FAR, "-w", text(&out), "--json", filter]);
        let count = Live::start(&namespace, 2, &["-i", FAR, "--count", "--in-kernel", "--json", filter]);
        let shared = Live::start(
            &namespace,
            4,
            &["-i", FAR, "--count", "--in-kernel", "--workers", "2", "-s", "60", "--json", filter],
        );
        send(&namespace);
        let counted = [count, shared].map(|live| live.interrupt().succeeded().account());
        file.interrupt().succeeded();
        let packets = packets_of(&out);
        for account in counted {
            let interface = &account.value["interfaces"][0];
            if interface["counted"].is_null() {
                return eprintln!("skipped: {TEST}: this kernel does not count for us");
            }
            assert_eq!(interface["counted"]["packets"], packets.len(), "{filter}");
            assert_eq!(interface["counted"]["bytes"], total(&packets), "{filter}");
            assert_eq!((account.ring("received"), account.count("delivered")), (packets.len() as u64, 0));
        }
    }
}

/// Without the right to load a program packets come here, and are counted here.
#[test]
fn without_the_right_packets_are_counted_here() {
    const TEST: &str = "without_the_right_packets_are_counted_here";
    if !namespaces_or_skip(TEST) || !program_or_skip(TEST, "setpriv") {
        return;
    }
    let namespace = Namespace::with_pair("count").expect("a probe succeeded before");
    let mut command = namespace.command("setpriv");
    command.args([
        "--bounding-set",
        "-sys_admin,-bpf,-perfmon",
        TAPLINE,
        "capture",
        "-i",
        FAR,
        "--count",
        "--in-kernel",
        "--account",
        "full",
    ]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let live = Live::start_command(&namespace, 1, &mut command);
    send(&namespace);
    let finished = live.interrupt().succeeded();
    assert_eq!(String::from_utf8_lossy(&finished.stdout), format!("{PACKETS} packets\n"));
    let in_kernel = finished.stderr.contains("counted in the kernel");
    let here =
        finished.stderr.contains("packets are counted here, at more cost, as the kernel does not count");
    assert!(in_kernel != here, "{}", finished.stderr);
}

/// A graph on the far end of the link while frames are sent: its results and its account.
fn run_graph(namespace: &Namespace, sockets: usize, graph: &str, more: &[&str]) -> (Value, Value) {
    let mut command = tapline(["run", "--json", "--netns", namespace.name(), "-e", graph]);
    let live = Live::start_command(namespace, sockets, command.args(more));
    send(namespace);
    let finished = live.interrupt().succeeded();
    let text = String::from_utf8_lossy(&finished.stdout).into_owned();
    let objects: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON, line by line")).collect();
    let [.., results, account] = objects.as_slice() else { panic!("{text}") };
    assert_eq!(account["account"]["balanced"], true, "{account}");
    (results["results"].clone(), account["account"].clone())
}

#[test]
fn graphs_count_and_sample_in_the_kernel_as_here() {
    const TEST: &str = "graphs_count_and_sample_in_the_kernel_as_here";
    if !namespaces_or_skip(TEST) {
        return;
    }
    let namespace = Namespace::with_pair("tally").expect("a probe succeeded before");
    let count = |place: &str, filter: &str, sample: &str, workers: &[&str]| {
        let graph = format!("device(\"{FAR}\") -> {filter} {sample} n :: count(place={place}) -> drop");
        let sockets = if workers.is_empty() { 1 } else { 2 };
        let (results, account) = run_graph(&namespace, sockets, &graph, workers);
        (results["n"].clone(), account["interfaces"][0].clone())
    };
    for filter in ["", "filter(\"udp or vlan\") ->"] {
        let (here, interface) = count("here", filter, "", &[]);
        assert!(interface["counted"].is_null());
        for workers in [&[][..], &["--workers", "2"]] {
            let (kernel, interface) = count("kernel", filter, "", workers);
            if interface["counted"].is_null() {
                return eprintln!("skipped: {TEST}: this kernel does not count for us");
            }
            assert_eq!((&kernel, &interface["delivered"]), (&here, &0.into()), "{filter}");
            assert_eq!(interface["ring"]["received"], here[0]["packets"], "{interface}");
        }
    }
    // A third of each three, over all workers together.
    for workers in [&[][..], &["--workers", "2"]] {
        let (third, interface) = count("kernel", "", "sample(1/3, place=kernel) ->", workers);
        assert_eq!(third[0]["packets"], PACKETS / 3);
        assert_eq!(interface["kernel_filtered"], PACKETS - PACKETS / 3, "{interface}");
    }
}

#[test]
fn kernel_samples_have_the_packets_of_user_samples() {
    const TEST: &str = "kernel_samples_have_the_packets_of_user_samples";
    if !namespaces_or_skip(TEST) {
        return;
    }
    let namespace = Namespace::with_pair("tally").expect("a probe succeeded before");
    let folder = tempfile::tempdir().unwrap();
    let sampled = |place: &str| {
        let out = folder.path().join(format!("{place}.pcap"));
        let graph = format!(
            "device(\"{FAR}\") -> filter(\"ip\") -> sample(3/7, seed=5, place={place}) -> record({:?})",
            text(&out)
        );
        let (_, account) = run_graph(&namespace, 1, &graph, &[]);
        (bytes_of(packets_of(&out)), account["interfaces"][0]["delivered"].as_u64().expect("a number"))
    };
    let (here, all) = sampled("here");
    let (kernel, lent) = sampled("kernel");
    assert!(all / 3 < here.len() as u64 && (here.len() as u64) < all / 2, "{} of {all}", here.len());
    assert!(kernel == here, "{} packets, not {}", kernel.len(), here.len());
    assert!(lent == here.len() as u64 || lent == all, "the kernel lends the sample, if it samples at all");
}

#[test]
fn places_where_the_kernel_cannot_work_are_errors() {
    let refused = |graph: &str, words: &str| run(["run", "--check", "-e", graph]).failed_saying(&[words]);
    refused(
        "device(eth0) -> count -> c :: count(place=kernel)",
        "c: place=kernel is for a stage right behind",
    );
    refused("file(\"x\") -> count(place=kernel)", "right behind device(NAME)");
    refused("device(any) -> count(place=kernel)", "one interface by AF_PACKET");
    refused("device(\"xdp:eth0\") -> count(place=kernel)", "one interface by AF_PACKET");
    refused("device(eth0) -> count(place=kernel) -> print", "nothing but drop comes behind it");
    refused("device(eth0) -> sample(1/2, by=flow, place=kernel) -> print", "by packet, not by flow");
    let graph =
        "device(eth0) -> filter(\"tcp\") -> s :: sample(1/2, place=kernel) -> n :: count(place=kernel)";
    let told = run(["run", "--check", "--explain", "-e", graph]).succeeded();
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("s runs in the kernel") && told.contains("n runs in the kernel"), "{told}");
}
