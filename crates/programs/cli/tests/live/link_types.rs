//! Interfaces of several link types in one capture: what one of them cannot have affects that one alone.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use crate::support::*;
use tapline_sys::{NetNs, packet_diag};
use tapline_testkit::netns::{Namespace, has_program, namespaces_or_skip};
use tapline_testkit::sender::{Pace, Sender};

/// Makes a tun device as a VPN does, and for each line that it reads has that many IPv4 packets come out of it.
const VPN: &str = "
import fcntl, os, struct, subprocess, sys
f = os.open('/dev/net/tun', os.O_RDWR)
fcntl.ioctl(f, 0x400454ca, struct.pack('16sH', b'vpn0', 0x1001))
for words in (['addr', 'add', '198.51.100.1/24', 'dev', 'vpn0'], ['link', 'set', 'vpn0', 'up']):
    subprocess.run(['ip'] + words, check=True)
print('up', flush=True)
packet = bytes.fromhex('4500001c000100004011bb5fc6336409c63364010035003500080000')
for line in sys.stdin:
    for _ in range(int(line)):
        os.write(f, packet)
    print('sent', flush=True)
";

struct Vpn {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Vpn {
    fn start(namespace: &Namespace) -> Vpn {
        let mut command = namespace.command("python3");
        command.args(["-c", VPN]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 was found");
        let (orders, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut vpn = Vpn { child, orders, answers: BufReader::new(answers) };
        vpn.expect("up");
        vpn
    }

    fn send(&mut self, packets: usize) {
        writeln!(self.orders, "{packets}").unwrap();
        self.expect("sent");
    }

    fn expect(&mut self, word: &str) {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), word);
    }
}

impl Drop for Vpn {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}

/// A namespace with a quiet pair, in which a VPN can come up.
fn namespace(test: &str) -> Option<Namespace> {
    if !has_program("python3") || !Path::new("/dev/net/tun").exists() {
        eprintln!("skipped: {test}: python3 or /dev/net/tun is missing");
        return None;
    }
    namespaces_or_skip(test).then(|| Namespace::with_pair("types").expect("a probe succeeded before"))
}

/// Sends frames on the pair: `any` gets each where it leaves and where it arrives.
fn send(namespace: &Namespace, count: u64) {
    let frames = frames(3, 10);
    Sender::near(namespace).unwrap().send(&frames, count, Pace::PerSecond(5_000)).unwrap();
}

/// Lengths of the rings of captures in the namespace.
fn rings(namespace: &Namespace) -> Vec<u64> {
    let sockets = NetNs::open(namespace.name()).unwrap().run(packet_diag::sockets).unwrap().unwrap();
    sockets.iter().filter_map(|socket| socket.ring_len).collect()
}

/// Rings of the length that a link has whose packets come in numbers.
fn large_rings(namespace: &Namespace) -> usize {
    rings(namespace).iter().filter(|len| **len > 8 << 20).count()
}

#[test]
fn a_vpn_that_comes_later_ends_no_capture() {
    let Some(namespace) = namespace("a_vpn_that_comes_later_ends_no_capture") else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("any.pcap");
    let live = Live::start(&namespace, 2, &["-i", "any", "-w", out.to_str().unwrap(), "--json", "udp"]);
    let before = rings(&namespace).len();
    let mut vpn = Vpn::start(&namespace);
    wait_for("the capture of the VPN", || rings(&namespace).len() > before);
    // A socket has its ring before it is bound.
    live.wait_until_idle();
    vpn.send(7);
    send(&namespace, 20);
    let finished = live.interrupt().succeeded();
    let account = finished.account();
    assert_eq!(account.output("lost"), 7, "{:?}", account.value);
    let output = &account.value["outputs"][0];
    assert_eq!(output["unsent"]["link_type"], 7, "{output}");
    assert_eq!(packets_of(&out).len() as u64, account.output("written"));
    assert!(account.output("written") > 0 && account.value["balanced"] == true);
    let told = |line: &str| line.contains("warning") && line.contains("packets of vpn0 are left out");
    assert!(finished.stderr.lines().any(told), "{}", finished.stderr);
}

#[test]
fn filters_unfit_for_a_vpn_apply_to_the_others() {
    let Some(namespace) = namespace("filters_unfit_for_a_vpn_apply_to_the_others") else { return };
    let mut vpn = Vpn::start(&namespace);
    // With and without a count in the kernel; the filter is an error on raw IP.
    for arguments in [&["--count"][..], &["-w", "/dev/null"]] {
        let mut all = vec!["-i", "any", "--json"];
        all.extend(arguments);
        all.push("ether multicast or not ether multicast");
        let live = Live::start(&namespace, 3, &all);
        vpn.send(9);
        send(&namespace, 20);
        let finished = live.interrupt().succeeded();
        let account = finished.account();
        let unfit = &account.value["unfit_link_types"];
        assert_eq!((&unfit[0]["packets"], unfit.as_array().map(Vec::len)), (&9.into(), Some(1)), "{unfit}");
        assert_eq!(account.count("filtered"), 9);
        assert!(account.value["balanced"] == true);
        let told =
            |line: &&str| line.contains("warning: vpn0: its link type RAW does not support this filter");
        assert_eq!(finished.stderr.lines().filter(told).count(), 1, "{}", finished.stderr);
        assert!(!finished.stderr.contains("\\n"), "{}", finished.stderr);
    }
}

#[test]
fn cooked_packets_fit_into_one_pcap_file() {
    let Some(namespace) = namespace("cooked_packets_fit_into_one_pcap_file") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("any.pcap");
    let mut vpn = Vpn::start(&namespace);
    let arguments =
        ["-i", "any", "-y", "LINUX_SLL2", "-w", out.to_str().unwrap(), "--json", "host 198.51.100.9"];
    let live = Live::start(&namespace, 3, &arguments);
    vpn.send(6);
    send(&namespace, 20);
    let account = live.interrupt().succeeded().account();
    assert_eq!((account.output("written"), account.output("lost")), (6, 0), "{:?}", account.value);
    let packets = packets_of(&out);
    assert_eq!(packets.len(), 6);
    // IPv4, hardware type NONE, no address.
    assert!(
        packets.iter().all(|packet| packet.data[..2] == [8, 0] && packet.data[8..12] == [0xff, 0xfe, 0, 0])
    );
    assert!(packets.iter().all(|packet| packet.data[20..] == packets[0].data[20..]));
}

#[test]
fn idle_virtual_links_take_little_memory_and_grow() {
    let Some(namespace) = namespace("idle_virtual_links_take_little_memory_and_grow") else { return };
    for number in 0..20 {
        let (one, other) = (format!("a{number}"), format!("b{number}"));
        namespace.add_pair(&one, &other).unwrap();
    }
    let live = Live::start(&namespace, 42, &["-i", "any", "--json", "-w", "/dev/null"]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", live.pid())).unwrap();
    let resident = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    let kib: u64 = resident.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kib < 250 << 10, "{resident}");
    let before = large_rings(&namespace);
    let mut sent = 0;
    // Blocks become full, and the rings of both ends grow; nothing is lost or doubled on the way.
    let mut sender = Sender::near(&namespace).unwrap();
    let frames = frames(4, 1000);
    wait_for("a larger ring", || {
        sent += sender.send(&frames, 20_000, Pace::PerSecond(100_000)).unwrap().packets;
        live.wait_until_idle();
        large_rings(&namespace) > before
    });
    sent += sender.send(&frames, 20_000, Pace::PerSecond(100_000)).unwrap().packets;
    let account = live.interrupt().succeeded().account();
    let interfaces = account.value["interfaces"].as_array().unwrap();
    for name in [tapline_testkit::netns::NEAR, tapline_testkit::netns::FAR] {
        let interface = interfaces.iter().find(|interface| interface["name"] == name).unwrap();
        let count = |key: &str| interface["ring"][key].as_u64().unwrap();
        assert_eq!(count("received"), sent, "{interface}");
        let delivered = interface["delivered"].as_u64().unwrap();
        assert_eq!(count("received"), count("dropped") + count("unread") + delivered, "{interface}");
    }
    assert!(account.value["balanced"] == true);
}
