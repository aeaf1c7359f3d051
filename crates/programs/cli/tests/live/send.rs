//! Graphs that send: a bridge between two namespaces, packets sent back, and what is refused.
//!
//! ```text
//! namespace L         namespace M (Tapline)          namespace R
//!   l0 <== veth ==> left0         right0 <== veth ==> r0
//! ```

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use crate::support::{
    Account, Live, TAPLINE, bytes_of, finish, frames, packets_of, program_or_skip, tapline, wait_for,
};
use serde_json::Value;
use tapline_sys::NetNs;
use tapline_testkit::netns::{FAR, NEAR, Namespace, namespaces_or_skip};
use tapline_testkit::sender::{Pace, Sender};

const BRIDGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/graphs/bridge.graph");

/// A host on either side, and Tapline's namespace between them.
struct Chain {
    left: Namespace,
    middle: Namespace,
    right: Namespace,
}

impl Chain {
    /// Without offloads frames arrive as they were sent; with them the kernel leaves checksums and segmentation for
    /// later.
    fn new(offloads: bool) -> Chain {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let named =
            |side: &str| Namespace::named(&format!("tapline-{side}-{}-{count}", std::process::id())).unwrap();
        let chain = Chain { left: named("l"), middle: named("m"), right: named("r") };
        chain.join("left0", &chain.left, "l0", "10.9.0.1/24", offloads);
        chain.join("right0", &chain.right, "r0", "10.9.0.2/24", offloads);
        chain
    }

    fn join(&self, inner: &str, side: &Namespace, outer: &str, address: &str, offloads: bool) {
        let middle = &self.middle;
        middle
            .ip(&["link", "add", inner, "type", "veth", "peer", "name", outer, "netns", side.name()])
            .unwrap();
        side.ip(&["addr", "add", address, "dev", outer]).unwrap();
        for (namespace, interface) in [(middle, inner), (side, outer)] {
            if !offloads {
                let off =
                    ["-K", interface, "tx", "off", "gso", "off", "tso", "off", "gro", "off", "sg", "off"];
                finish(namespace.command("ethtool").args(off)).succeeded();
                namespace.ip(&["link", "set", interface, "arp", "off", "multicast", "off"]).unwrap();
            }
        }
        middle.ip(&["link", "set", inner, "up"]).unwrap();
        side.ip(&["link", "set", outer, "up"]).unwrap();
        for (namespace, interface) in [(middle, inner), (side, outer)] {
            namespace.wait_until_up(interface).unwrap();
        }
    }

    fn graph(&self, sockets: usize, arguments: &[&str]) -> Live {
        let mut command = tapline(["run", "--json", "--netns", self.middle.name()]);
        Live::start_command(&self.middle, sockets, command.args(arguments))
    }
}

fn capture(namespace: &Namespace, interface: &str, file: &Path) -> Live {
    Live::start(namespace, 1, &["-i", interface, "-Q", "in", "-w", file.to_str().unwrap(), "--json"])
}

fn stage<'a>(account: &'a Account, name: &str) -> &'a Value {
    let stages = account.value["stages"].as_array().expect("stages");
    stages.iter().find(|stage| stage["name"] == name).unwrap_or_else(|| panic!("no {name} in {account:?}"))
}

/// Packets that a stage sent, and those of a cause that it did not.
fn sent(account: &Account, name: &str) -> u64 {
    stage(account, name)["output"]["written"].as_u64().unwrap()
}

fn unsent(account: &Account, name: &str, cause: &str) -> u64 {
    stage(account, name)["output"]["unsent"][cause].as_u64().unwrap_or(0)
}

/// Frames that every interface here sends: whole, and not longer than its MTU, with and without tags.
fn sendable(seed: u64, count: usize) -> Vec<Vec<u8>> {
    frames(seed, count).into_iter().filter(|frame| (14..=1514).contains(&frame.len())).collect()
}

fn counter(namespace: &Namespace, interface: &str) -> u64 {
    namespace.counter(interface, "rx_packets").unwrap()
}

#[test]
fn a_bridge_passes_packets_unchanged_without_loops() {
    if !namespaces_or_skip("a_bridge_passes_packets_unchanged_without_loops") {
        return;
    }
    let chain = Chain::new(false);
    let folder = tempfile::tempdir().unwrap();
    let (at_left, at_right) = (folder.path().join("left.pcap"), folder.path().join("right.pcap"));
    let bridge = chain.graph(2, &[BRIDGE]);
    let listeners = [capture(&chain.left, "l0", &at_left), capture(&chain.right, "r0", &at_right)];
    let (rightward, leftward) = (sendable(1, 6000), sendable(2, 5000));
    let before = (counter(&chain.left, "l0"), counter(&chain.right, "r0"));
    thread::scope(|scope| {
        for (namespace, interface, frames) in
            [(&chain.left, "l0", &rightward), (&chain.right, "r0", &leftward)]
        {
            scope.spawn(move || {
                let mut sender = Sender::open(Some(namespace.name()), interface).unwrap();
                sender.send(frames, frames.len() as u64, Pace::PerSecond(5000)).unwrap();
            });
        }
    });
    let expected = (before.0 + leftward.len() as u64, before.1 + rightward.len() as u64);
    wait_for("packets at both ends", || {
        counter(&chain.left, "l0") >= expected.0 && counter(&chain.right, "r0") >= expected.1
    });
    bridge.wait_until_idle();
    let account = bridge.interrupt().succeeded().account();
    // A packet in a loop would be counted again and again.
    assert_eq!((counter(&chain.left, "l0"), counter(&chain.right, "r0")), expected);
    assert_eq!(
        (sent(&account, "to_right"), sent(&account, "to_left")),
        (rightward.len() as u64, leftward.len() as u64)
    );
    assert_eq!(account.count("lost"), 0);
    for listener in listeners {
        listener.interrupt().succeeded();
    }
    assert!(
        bytes_of(packets_of(&at_right)) == rightward,
        "what arrived at the right differs from what the left sent"
    );
    assert!(
        bytes_of(packets_of(&at_left)) == leftward,
        "what arrived at the left differs from what the right sent"
    );
}

#[test]
fn own_packets_are_not_forwarded() {
    if !namespaces_or_skip("own_packets_are_not_forwarded") {
        return;
    }
    let chain = Chain::new(false);
    // Without direction=in each device also captures what is sent there.
    let graph = "device(left0) -> to_right :: bounce(right0); device(right0) -> to_left :: bounce(left0)";
    let bridge = chain.graph(2, &["-e", graph]);
    let rightward = sendable(3, 2000);
    let mut sender = Sender::open(Some(chain.left.name()), "l0").unwrap();
    sender.send(&rightward, rightward.len() as u64, Pace::PerSecond(10_000)).unwrap();
    let count = rightward.len() as u64;
    wait_for("packets at the right", || counter(&chain.right, "r0") >= count);
    bridge.wait_until_idle();
    let account = bridge.interrupt().succeeded().account();
    assert_eq!((sent(&account, "to_right"), sent(&account, "to_left")), (count, 0));
    assert_eq!((unsent(&account, "to_left", "own"), account.count("lost")), (count, 0));
    assert_eq!((counter(&chain.right, "r0"), counter(&chain.left, "l0")), (count, 0));
}

#[test]
fn bridged_hosts_talk_with_all_offloads() {
    const TEST: &str = "bridged_hosts_talk_with_all_offloads";
    if !namespaces_or_skip(TEST) || !program_or_skip(TEST, "ping") {
        return;
    }
    let chain = Chain::new(true);
    let bridge = chain.graph(2, &[BRIDGE]);
    let ping = ["-c", "5", "-i", "0.2", "-W", "5", "10.9.0.2"];
    let pinged =
        finish(chain.left.command("ping").args(ping).stdout(std::process::Stdio::piped())).succeeded();
    let text = String::from_utf8_lossy(&pinged.stdout).into_owned();
    assert!(text.contains("5 received") && !text.contains("DUP"), "{text}");
    // TCP, whose segments are merged on their way here, and whose checksums are left to adapters that do not exist.
    let bytes: Vec<u8> = (0..4_000_000_u32).map(|n| (n ^ (n >> 8).wrapping_mul(31)) as u8).collect();
    let place = |namespace: &Namespace| NetNs::open(namespace.name()).unwrap();
    let listener = place(&chain.right).run(|| TcpListener::bind("10.9.0.2:5001").unwrap()).unwrap();
    let received = thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut all = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut all).unwrap();
            all
        });
        let mut stream = place(&chain.left).run(|| TcpStream::connect("10.9.0.2:5001").unwrap()).unwrap();
        stream.write_all(&bytes).unwrap();
        drop(stream);
        receiver.join().unwrap()
    });
    assert!(received == bytes, "{} of {} bytes arrived", received.len(), bytes.len());
    let account = bridge.interrupt().succeeded().account();
    for name in ["to_right", "to_left"] {
        let output = &stage(&account, name)["output"];
        assert!(output["unsent"].is_null(), "{output}");
    }
    let count = |name: &str| stage(&account, "to_right")[name].as_u64().unwrap();
    assert!(count("bytes") > 1514 * count("received"), "no segments were merged: nothing was shown here");
}

/// A bridge that takes the packets off the host: both ways without a block timer.
const XDP_BRIDGE: &str =
    "device(\"xdp:left0\") -> to_right :: bounce(right0); device(\"xdp:right0\") -> to_left :: bounce(left0)";

#[test]
fn a_bridge_by_xdp_forwards_every_frame_both_ways() {
    const TEST: &str = "a_bridge_by_xdp_forwards_every_frame_both_ways";
    if !crate::xdp::can_use_xdp(TEST) {
        return;
    }
    let chain = Chain::new(false);
    let bridge = chain.graph(0, &["-e", XDP_BRIDGE]);
    let folder = tempfile::tempdir().unwrap();
    let (at_left, at_right) = (folder.path().join("left.pcap"), folder.path().join("right.pcap"));
    let listeners = [capture(&chain.left, "l0", &at_left), capture(&chain.right, "r0", &at_right)];
    let (rightward, leftward) = (sendable(21, 1500), sendable(22, 1500));
    for (side, interface, frames) in [(&chain.left, "l0", &rightward), (&chain.right, "r0", &leftward)] {
        let mut sender = Sender::open(Some(side.name()), interface).unwrap();
        sender.send(frames, frames.len() as u64, Pace::PerSecond(5_000)).unwrap();
    }
    wait_for("packets at both ends", || {
        counter(&chain.left, "l0") >= leftward.len() as u64
            && counter(&chain.right, "r0") >= rightward.len() as u64
    });
    bridge.wait_until_idle();
    let account = bridge.interrupt().succeeded().account();
    let counts = (rightward.len() as u64, leftward.len() as u64);
    assert_eq!((sent(&account, "to_right"), sent(&account, "to_left")), counts);
    listeners.into_iter().for_each(|listener| drop(listener.interrupt().succeeded()));
    assert!(bytes_of(packets_of(&at_right)) == rightward, "what arrived at the right differs");
    assert!(bytes_of(packets_of(&at_left)) == leftward, "what arrived at the left differs");
}

#[test]
fn packets_go_back_with_their_addresses_swapped() {
    if !namespaces_or_skip("packets_go_back_with_their_addresses_swapped") {
        return;
    }
    let namespace = Namespace::with_pair("reflect").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("back.pcap");
    let mut command = tapline(["run", "--json", "--netns", namespace.name(), "-e"]);
    let reflector =
        Live::start_command(&namespace, 1, command.arg(format!("device({FAR}) -> r :: reflect(swap=mac)")));
    let listener =
        Live::start(&namespace, 2, &["-i", NEAR, "-Q", "in", "-w", file.to_str().unwrap(), "--json"]);
    let frames = sendable(5, 3000);
    let mut sender = Sender::near(&namespace).unwrap();
    sender.send(&frames, frames.len() as u64, Pace::PerSecond(10_000)).unwrap();
    wait_for("packets that came back", || counter(&namespace, NEAR) >= frames.len() as u64);
    reflector.wait_until_idle();
    let account = reflector.interrupt().succeeded().account();
    let count = frames.len() as u64;
    assert_eq!((sent(&account, "r"), unsent(&account, "r", "own")), (count, count));
    listener.interrupt().succeeded();
    let swapped: Vec<Vec<u8>> =
        frames.iter().map(|frame| [&frame[6..12], &frame[..6], &frame[12..]].concat()).collect();
    assert!(bytes_of(packets_of(&file)) == swapped, "what came back differs");
}

#[test]
fn several_workers_keep_each_flow_in_order() {
    if !namespaces_or_skip("several_workers_keep_each_flow_in_order") {
        return;
    }
    let chain = Chain::new(false);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("right.pcap");
    let bridge =
        chain.graph(2, &["--workers", "2", "-e", "device(left0, direction=in) -> b :: bounce(right0)"]);
    let listener = capture(&chain.right, "r0", &file);
    // UDP of 40 flows, numbered within each.
    let frames: Vec<Vec<u8>> = (0..4000_u16).map(|n| udp_frame(n % 40, n / 40)).collect();
    let mut sender = Sender::open(Some(chain.left.name()), "l0").unwrap();
    sender.send(&frames, frames.len() as u64, Pace::PerSecond(20_000)).unwrap();
    wait_for("packets at the right", || counter(&chain.right, "r0") >= frames.len() as u64);
    let account = bridge.interrupt().succeeded().account();
    assert_eq!((sent(&account, "b"), account.count("lost")), (frames.len() as u64, 0));
    listener.interrupt().succeeded();
    let mut next: HashMap<u16, u16> = HashMap::new();
    for frame in bytes_of(packets_of(&file)) {
        let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let (flow, number) = (word(34) - 1000, word(42));
        assert_eq!(std::mem::replace(next.entry(flow).or_default(), number + 1), number, "flow {flow}");
    }
    assert!(next.len() == 40 && next.values().all(|count| *count == 100), "{next:?}");
}

/// A frame of UDP from port 1000 + `flow` that carries `number`.
fn udp_frame(flow: u16, number: u16) -> Vec<u8> {
    use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Udp};
    let (from, to) = (Host::number(1 + flow), Host::number(500));
    let ips = IpPair::between(&from, &to, IpVersion::V4);
    let udp = Udp { src: 1000 + flow, dst: 9 };
    Ethernet::between(&from, &to).ip(&udp.packet(ips, &number.to_be_bytes()))
}

#[test]
fn each_packet_that_is_not_sent_has_its_cause() {
    if !namespaces_or_skip("each_packet_that_is_not_sent_has_its_cause") {
        return;
    }
    let chain = Chain::new(false);
    chain.middle.ip(&["link", "set", "right0", "mtu", "600"]).unwrap();
    let graph = "d :: device(left0, direction=in); d -> whole :: bounce(right0); d -> cut(l2, bytes=0) -> part :: bounce(right0)";
    let bridge = chain.graph(1, &["-e", graph]);
    let frames: Vec<Vec<u8>> = sendable(7, 3000).into_iter().filter(|frame| frame[12] == 8).collect();
    let mut sender = Sender::open(Some(chain.left.name()), "l0").unwrap();
    sender.send(&frames, frames.len() as u64, Pace::PerSecond(10_000)).unwrap();
    let long = frames.iter().filter(|frame| frame.len() > 614).count() as u64;
    let count = frames.len() as u64;
    wait_for("packets at the right", || counter(&chain.right, "r0") >= count - long);
    chain.middle.ip(&["link", "set", "right0", "down"]).unwrap();
    sender.send(&frames[..50], 50, Pace::PerSecond(10_000)).unwrap();
    bridge.wait_until_idle();
    let account = bridge.interrupt().succeeded().account();
    assert!(long > 10);
    assert_eq!((sent(&account, "whole"), unsent(&account, "whole", "too_long")), (count - long, long));
    assert_eq!(unsent(&account, "whole", "down"), 50, "{account:?}");
    let partial = unsent(&account, "part", "partial");
    assert!(
        partial > count / 2
            && partial + sent(&account, "part") + unsent(&account, "part", "down") == count + 50
    );
}

#[test]
fn full_queues_are_counted_after_a_wait() {
    const TEST: &str = "full_queues_are_counted_after_a_wait";
    if !namespaces_or_skip(TEST) || !program_or_skip(TEST, "tc") {
        return;
    }
    let chain = Chain::new(false);
    // A small frame takes five milliseconds, longer than the patience of a stage.
    let queue = "qdisc add dev right0 root tbf rate 100kbit burst 2kb latency 1ms";
    if !finish(chain.middle.command("tc").args(queue.split(' '))).status.success() {
        return eprintln!("skipped: {TEST}: this kernel has no tbf");
    }
    let bridge = chain.graph(1, &["-e", "device(left0, direction=in) -> b :: bounce(right0)"]);
    let frames: Vec<Vec<u8>> = (0..500).map(|n| udp_frame(n, 1)).collect();
    let mut sender = Sender::open(Some(chain.left.name()), "l0").unwrap();
    sender.send(&frames, frames.len() as u64, Pace::PerSecond(20_000)).unwrap();
    wait_for("packets at the middle", || counter(&chain.middle, "left0") >= frames.len() as u64);
    bridge.wait_until_idle();
    let account = bridge.interrupt().succeeded().account();
    let (sent, refused) = (sent(&account, "b"), unsent(&account, "b", "queue_full"));
    assert!(refused > 0 && sent + refused == frames.len() as u64, "{account:?}");
    // The packets that the kernel took arrive, and no others.
    let show = ["-s", "qdisc", "show", "dev", "right0"];
    wait_for("the queue to run dry", || {
        let shown = finish(chain.middle.command("tc").args(show)).succeeded();
        String::from_utf8_lossy(&shown.stdout).contains("backlog 0b 0p")
    });
    assert_eq!(counter(&chain.right, "r0"), sent);
}

#[test]
fn sending_is_refused_on_unowned_networks() {
    if !namespaces_or_skip("sending_is_refused_on_unowned_networks") {
        return;
    }
    let namespace = Namespace::with_pair("refused").unwrap();
    // A name proves nothing.
    namespace.ip(&["link", "add", "veth9", "type", "bridge"]).unwrap();
    namespace.ip(&["link", "set", "veth9", "up"]).unwrap();
    let run = |arguments: &[&str]| {
        finish(
            Command::new(TAPLINE)
                .args(["run", "--netns", namespace.name(), "--duration", "50ms"])
                .args(arguments),
        )
    };
    let graph = format!("device({NEAR}, direction=in) -> bounce(veth9)");
    run(&["-e", &graph]).failed_saying(&[
        "sending on veth9 is refused",
        "of the kind bridge",
        "--i-own-this-network veth9",
    ]);
    run(&["-e", &graph, "--i-own-this-network", "veth9"]).succeeded();
    run(&["-e", "device(veth9) -> reflect"]).failed_saying(&["--i-own-this-network veth9"]);
    run(&["-e", "device(any) -> reflect"]).failed_saying(&["refused"]);
    run(&["-e", &graph, "--i-own-this-network", "none0"]).failed_saying(&["no interface \"none0\"", "veth9"]);
    // Packets sent on `lo` come back as received, and would go round.
    run(&["-e", "device(lo) -> reflect"]).failed_saying(&["go round", "lo"]);
    run(&["-e", &format!("device({FAR}) -> filter(\"udp\") -> bounce({NEAR})")])
        .failed_saying(&["go round", NEAR, FAR]);
    run(&["-e", &format!("device({NEAR}) -> reflect; device({FAR}) -> reflect")])
        .failed_saying(&["go round"]);
    run(&["-e", &format!("device({NEAR}) -> reflect")]).succeeded();
}

/// Signatures of the action drop, between two hosts: their packets do not arrive, all others do, in their order.
#[test]
fn signatures_keep_packets_from_being_forwarded() {
    if !namespaces_or_skip("signatures_keep_packets_from_being_forwarded") {
        return;
    }
    let chain = Chain::new(false);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (rules, alerts, arrived) = (path("x.rules"), path("eve.json"), path("right.pcap"));
    let text = "drop udp any 1002 -> any any (msg:\"no\"; sid:1;)\nalert udp any 1004 -> any any (msg:\"odd\"; sid:2;)\n";
    std::fs::write(&rules, text).unwrap();
    let graph = format!(
        "device(left0, direction=in) -> s :: signatures({rules:?}, alerts={alerts:?}); s[1] -> b :: bounce(right0)"
    );
    let inline = chain.graph(1, &["-e", &graph]);
    let listener = capture(&chain.right, "r0", &arrived);
    let frames: Vec<Vec<u8>> = (0..700).map(|n| udp_frame(n % 7, n)).collect();
    let mut sender = Sender::open(Some(chain.left.name()), "l0").unwrap();
    sender.send(&frames, frames.len() as u64, Pace::PerSecond(5000)).unwrap();
    wait_for("packets at the middle", || counter(&chain.middle, "left0") >= 700);
    inline.wait_until_idle();
    let account = inline.interrupt().succeeded().account();
    wait_for("packets at the right", || counter(&chain.right, "r0") >= 600);
    listener.interrupt().succeeded();
    let expected: Vec<Vec<u8>> =
        frames.iter().enumerate().filter(|(n, _)| n % 7 != 2).map(|(_, frame)| frame.clone()).collect();
    assert_eq!(sent(&account, "b"), 600);
    assert_eq!(bytes_of(packets_of(&arrived)), expected);
    let lines = std::fs::read_to_string(&alerts).unwrap();
    let with = |word: &str| lines.lines().filter(|line| line.contains(word)).count();
    assert_eq!((with("\"blocked\""), with("\"allowed\"")), (100, 100));
}
