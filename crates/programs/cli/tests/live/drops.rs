//! Packets that the kernel drops, with its reasons: all of a namespace, and none of another; no byte of other memory.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::serve::NOBODY;
use crate::support::*;
use tapline_sys::NetNs;
use tapline_sys::bpf::{ProgramKind, kernel_offsets, probe};
use tapline_testkit::netns::{Namespace, namespaces_or_skip};
use tapline_testkit::sender::{Pace, Sender};

/// Whether this kernel hands over drops, and namespaces can be made.
fn drops_or_skip(test: &str) -> bool {
    let can = probe(ProgramKind::RawTracepoint).map_err(|error| error.to_string());
    let has_types = || kernel_offsets([("sk_buff", "len")]).map_err(|error| error.to_string());
    if let Err(why) = can.and_then(|()| has_types()) {
        eprintln!("skipped: {test}: {why}");
        return false;
    }
    namespaces_or_skip(test)
}

/// A namespace whose loopback is up.
fn namespace() -> Namespace {
    let namespace = Namespace::with_pair("drops").expect("a probe succeeded before");
    namespace.ip(&["link", "set", "lo", "up"]).unwrap();
    namespace
}

fn text(path: &Path) -> &str {
    path.to_str().expect("our names are UTF-8")
}

/// Packets that the kernel dropped, by the port to which they went.
struct Traffic {
    walled: u16,
    full: u16,
    /// Packets for which the buffer of the socket was full.
    overflow: usize,
}

/// A port without a socket: the kernel chooses none so low for a program.
const CLOSED: u16 = 7;
const SENT: usize = 20;
const FLOOD: usize = 3000;

/// Sends to a port without a socket, to one behind a firewall, and to a socket that does not read.
fn send(namespace: &Namespace, payload: &[u8]) -> Traffic {
    let place = NetNs::open(namespace.name()).unwrap();
    let bind = || UdpSocket::bind("127.0.0.1:0").unwrap();
    let [behind, deaf, sender] = place.run(|| [bind(), bind(), bind()]).unwrap();
    let [walled, full] = [&behind, &deaf].map(|socket| socket.local_addr().unwrap().port());
    let wall = ["-w", "-A", "INPUT", "-p", "udp", "--dport", &walled.to_string(), "-j", "DROP"];
    assert!(namespace.command("iptables").args(wall).status().unwrap().success());
    for port in [CLOSED, walled] {
        (0..SENT).for_each(|_| drop(sender.send_to(payload, ("127.0.0.1", port))));
    }
    (0..FLOOD).for_each(|_| drop(sender.send_to(payload, ("127.0.0.1", full))));
    wait_for_backlog();
    deaf.set_nonblocking(true).unwrap();
    let taken = (0..).take_while(|_| match deaf.recv(&mut [0; 2000]) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        received => received.is_ok(),
    });
    let overflow = FLOOD - taken.count();
    Traffic { walled, full, overflow }
}

/// UDP packets of a file that are not quoted by ICMP: how many by port, comment, length and captured length.
fn packets_by_reason(file: &str) -> BTreeMap<String, usize> {
    let fields = ["udp.dstport", "frame.comment", "frame.len", "frame.cap_len"];
    let mut command = Command::new("tshark");
    command.args(["-r", file, "-Y", "udp and not icmp", "-T", "fields"]);
    let read = command.args(fields.iter().flat_map(|field| ["-e", field])).output().unwrap();
    let mut found = BTreeMap::new();
    for line in String::from_utf8_lossy(&read.stdout).lines() {
        *found.entry(line.to_owned()).or_default() += 1;
    }
    found
}

#[test]
fn dropped_packets_come_with_their_reason() {
    const TEST: &str = "dropped_packets_come_with_their_reason";
    if !drops_or_skip(TEST) || !program_or_skip(TEST, "tshark") || !program_or_skip(TEST, "iptables") {
        return;
    }
    let (ours, others) = (namespace(), namespace());
    let folder = tempfile::tempdir().unwrap();
    let [whole, cut] = ["whole.pcapng", "cut.pcapng"].map(|name| folder.path().join(name));
    let live = Live::start(&ours, 0, &["-i", "drops:", "-w", text(&whole), "--json"]);
    let short =
        Live::start(&ours, 0, &["-i", "drops:", "-s", "30", "-B", "8192", "-w", text(&cut), "--json"]);
    send(&others, b"of another namespace");
    let Traffic { walled, full, overflow } = send(&ours, b"ours");
    assert!(overflow > 100, "{overflow} of {FLOOD}");
    let accounts = [live, short].map(|live| live.interrupt().succeeded());
    assert!(accounts[1].stderr.contains("ring 8192 KiB"), "{}", accounts[1].stderr);
    for (finished, file, cap_len) in [(&accounts[0], &whole, 32), (&accounts[1], &cut, 30)] {
        let account = finished.account();
        assert_eq!((account.ring("dropped"), account.ring("unread")), (0, 0), "{}", account.value);
        let expected = [
            (format!("{CLOSED}\tdropped: no_socket\t32\t{cap_len}"), SENT),
            (format!("{walled}\tdropped: netfilter_drop\t32\t{cap_len}"), SENT),
            (format!("{full}\tdropped: socket_rcvbuff\t32\t{cap_len}"), overflow),
        ];
        assert_eq!(packets_by_reason(text(file)), BTreeMap::from(expected));
    }
}

/// Frames to another host, which the stack drops: with an Ethernet type, and these first bytes of the payload.
fn strange_frame(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8][..], &ethertype.to_be_bytes(), payload].concat();
    frame.resize(74, 0);
    frame
}

#[test]
fn a_stop_leaves_no_drop_in_the_ring() {
    const TEST: &str = "a_stop_leaves_no_drop_in_the_ring";
    if !drops_or_skip(TEST) || !program_or_skip(TEST, "python3") {
        return;
    }
    let namespace = namespace();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("drops.pcapng");
    let live = Live::start(&namespace, 0, &["-i", "drops:", "-w", text(&file), "--json"]);
    live.wait_until_idle();
    live.signal("STOP");
    let mut sender = Sender::near(&namespace).unwrap();
    // Not IP by their type, and by their first byte; then packets behind them.
    for (ethertype, payload, count) in [(0x88b5, 0x45, 300), (0x0800, 0x00, 6000), (0x0800, 0x45, 50)] {
        let frames = [strange_frame(ethertype, &[payload])];
        let sent = sender.send(&frames, count, Pace::PerSecond(20_000)).unwrap();
        assert_eq!(sent.packets, count);
    }
    assert!(Command::new("python3").args(["-c", LOST]).status().unwrap().success());
    wait_for_backlog();
    live.signal("INT");
    live.signal("CONT");
    let finished = live.wait().succeeded();
    let account = finished.account();
    assert_eq!(packets_of(&file).len(), 50, "{}", account.value);
    let interface = account.interface("drops");
    assert_eq!((account.ring("received"), account.ring("unread")), (50, 0), "{interface}");
    // Those without a namespace are the whole machine's, with packets that other tests leave unread in UDP sockets.
    let without = without_namespace(&finished.stderr);
    assert!(without >= 7, "{}", finished.stderr);
    assert_eq!(interface["kernel_filtered"].as_u64(), Some(6300 + without), "{}", finished.stderr);
}

/// Has the kernel drop netlink messages without a receiver; their drops have no namespace.
const LOST: &str = "
import socket
lost = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_USERSOCK)
for _ in range(7):
    try:
        lost.sendto(bytes(16), (0x7fffffff, 0))
        raise SystemExit('sent')
    except ConnectionRefusedError:
        pass
";

/// The number of drops that the program reports as without a namespace.
fn without_namespace(stderr: &str) -> u64 {
    let (before, _) =
        stderr.split_once(" packets were dropped in a network namespace that").unwrap_or_default();
    before.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Has the kernel drop packets whose memory it never wrote: raw sockets whose data ends in an unmapped page behind the
/// header, of IPv4 and of IPv6, and UDP sockets that close before their packet has its headers. The memory of the
/// latter has those of packets before. Then packets that the firewall drops, of both versions.
const UNFILLED: &str = "
import ctypes, socket, struct
with open('/proc/sys/net/ipv6/conf/lo/disable_ipv6', 'w') as switch:
    switch.write('0')
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.sendto.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_char_p, ctypes.c_int]
end = libc.mmap(None, 8192, 3, 0x22, -1, 0) + 4096
libc.munmap(end, 4096)
four, six = bytes([127, 0, 0, 1]), bytes(15) + bytes([1])
for family, header, address in [
    (socket.AF_INET, struct.pack('!BBHHHBBH4s4s', 0x45, 0, 100, 7, 0, 64, 253, 0, four, four),
     struct.pack('=HH4s8x', socket.AF_INET, 0, four)),
    (socket.AF_INET6, struct.pack('!IHBB16s16s', 6 << 28, 60, 253, 64, six, six),
     struct.pack('=HHI16sI', socket.AF_INET6, 0, 0, six, 0)),
]:
    raw = socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW)
    ctypes.memmove(end - len(header), header, len(header))
    for _ in range(20):
        sent = libc.sendto(raw.fileno(), end - len(header), 100, 0, address, len(address))
        assert sent == -1 and ctypes.get_errno() == 14, (sent, ctypes.get_errno())
receiver = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
receiver.bind(('::1', 7777))
sender = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
for _ in range(20):
    for _ in range(20):
        sender.sendto(bytes(200), ('::1', 7777))
        receiver.recv(300)
    corked = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    corked.connect(('::1', 7777))
    corked.send(bytes(200), 0x8000)
    corked.close()
for family, address in [(socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')]:
    for _ in range(20):
        try:
            socket.socket(family, socket.SOCK_DGRAM).sendto(b'walled', (address, 9))
            raise SystemExit('sent')
        except PermissionError:
            pass
";

#[test]
fn drops_have_no_byte_of_other_memory() {
    const TEST: &str = "drops_have_no_byte_of_other_memory";
    let programs = ["python3", "iptables", "ip6tables"];
    if !drops_or_skip(TEST) || !programs.iter().all(|name| program_or_skip(TEST, name)) {
        return;
    }
    let namespace = namespace();
    for wall in ["iptables", "ip6tables"] {
        let rule = ["-w", "-A", "OUTPUT", "-p", "udp", "--dport", "9", "-j", "DROP"];
        assert!(namespace.command(wall).args(rule).status().unwrap().success());
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("drops.pcapng");
    let live = Live::start(&namespace, 0, &["-i", "drops:", "-w", text(&file), "--json"]);
    assert!(namespace.command("python3").args(["-c", UNFILLED]).status().unwrap().success());
    let account = live.interrupt().succeeded().account();
    let mut found = BTreeMap::new();
    for packet in packets_of(&file) {
        let version = packet.data[0] >> 4;
        let protocol = packet.data[if version == 4 { 9 } else { 6 }];
        if [17, 253].contains(&protocol) {
            *found.entry((version, protocol)).or_insert(0) += 1;
        }
    }
    assert_eq!(found, BTreeMap::from([((4, 17), 20), ((6, 17), 20)]), "the firewall's");
    assert!(account.interface("drops")["kernel_filtered"].as_u64() >= Some(60), "{}", account.value);
}

#[test]
fn drops_without_rights_name_the_rights() {
    const TEST: &str = "drops_without_rights_name_the_rights";
    if !root_or_skip(TEST) || !drops_or_skip(TEST) {
        return;
    }
    let output = tapline(["capture", "-i", "drops:"]).uid(NOBODY).gid(NOBODY).output();
    let Ok(output) = output else { return eprintln!("skipped: {TEST}: nobody may not run {TAPLINE}") };
    let finished = Finished::new(output);
    finished.failed_saying(&["drops: this needs root, or CAP_BPF and CAP_PERFMON"]);
    assert!(!finished.stderr.contains("drops::"), "{}", finished.stderr);
    let absent = run(["capture", "-i", "drops:", "--netns", "no-such-namespace"]);
    absent.failed_saying(&["drops: network namespace no-such-namespace"]);
}
