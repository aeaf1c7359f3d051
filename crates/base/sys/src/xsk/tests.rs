//! Over a veth pair in a namespace of the test's own: the tests are skipped where none may be made.

use std::process::Command;
use std::time::{Duration, Instant};

use super::*;
use crate::bpf::{LoadedProgram, Map, MapKind, ProgramKind, XdpLink, XdpMode};
use crate::{NetNs, Poller};
use std::os::fd::{AsFd, AsRawFd};
use tapline_bpf::ebpf::{Insn, R1, R2, R3, code, helper, xdp_action, xdp_md};

const RECEIVER: XskSettings = XskSettings {
    chunk_len: 2048,
    chunks: 64,
    fill_len: 32,
    completion_len: 32,
    rx_len: 32,
    tx_len: 0,
    huge_pages: false,
};
/// The longest wait for frames.
const PATIENCE: Duration = Duration::from_secs(60);
const SENDER: XskSettings = XskSettings { rx_len: 0, tx_len: 32, ..RECEIVER };

/// Runs `test` with the numbers of two connected interfaces, in a namespace that ends with it.
fn over_veth(test: impl FnOnce(u32, u32) + Send) {
    let inside = || {
        if NetNs::enter_new().is_err() {
            return eprintln!("skipped: no right to make a namespace");
        }
        let made = ip("link add near0 type veth peer name far0")
            && ["near0", "far0"].iter().all(|name| {
                // No greeting of IPv6 is counted beside the frames; a kernel without IPv6 refuses, and sends none.
                let _ = ip(&format!("link set {name} addrgenmode none"));
                ip(&format!("link set {name} arp off multicast off")) && ip(&format!("link set {name} up"))
            });
        if !made {
            return eprintln!("skipped: no veth pair");
        }
        let mut route = crate::RouteSocket::open().unwrap();
        let links = route.links().unwrap();
        let number = |name: &str| links.iter().find(|link| link.name == name).unwrap().index;
        test(number("near0"), number("far0"));
    };
    std::thread::scope(|scope| scope.spawn(inside).join()).unwrap_or_else(|e| std::panic::resume_unwind(e));
}

fn ip(arguments: &str) -> bool {
    // A child is in the namespace of the thread that made it.
    let status = Command::new("ip").args(arguments.split(' ')).status();
    status.is_ok_and(|status| status.success())
}

/// `return bpf_redirect_map(map, queue, XDP_PASS)`
fn redirect(map: &Map, kind: ProgramKind) -> LoadedProgram {
    let load_queue = Insn::load(code::WORD, R2, R1, xdp_md::RX_QUEUE_INDEX);
    let [map, high] = Insn::set_map(R1, map.as_fd().as_raw_fd());
    let pass = Insn::set(R3, xdp_action::PASS);
    let insns = [load_queue, map, high, pass, Insn::call(helper::REDIRECT_MAP), Insn::EXIT];
    LoadedProgram::load(kind, "redirect", &insns).unwrap()
}

/// Frames of the receiver until there are `count`, or nothing comes any more.
fn receive(socket: &mut XdpSocket, count: usize) -> Vec<Frame> {
    let (mut frames, mut poller) = (Vec::new(), Poller::new());
    while frames.len() < count {
        if socket.receive(&mut frames, count) == 0 {
            poller.clear();
            poller.add(socket.as_fd());
            if poller.wait(PATIENCE).unwrap() == 0 {
                break;
            }
        }
    }
    frames
}

/// Sends frames of `len` bytes, each full of its number, and waits until all are the sender's again.
fn send(socket: &mut XdpSocket, numbers: std::ops::Range<u8>, len: u32) {
    for number in numbers {
        let chunk = socket.take_chunk().unwrap();
        let bytes = &mut socket.chunk_mut(chunk)[..len as usize];
        bytes.fill(number);
        bytes[..14].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
        assert!(socket.transmit(chunk, 0, len, false));
        assert!(socket.chunk_mut(chunk).is_empty(), "it is the kernel's");
        assert!(!socket.give_back(chunk) && !socket.transmit(chunk, 0, len, false));
    }
    let end = Instant::now() + PATIENCE;
    while socket.free_chunks() < socket.settings().chunks {
        socket.flush().unwrap();
        socket.complete();
        assert!(Instant::now() < end, "{} frames were not taken", socket.transmits_pending());
    }
}

/// A receiver with its program attached. The other returned values keep it so.
fn receiver(
    settings: &XskSettings,
    if_index: u32,
    multi_buffer: bool,
) -> (XdpSocket, BoundModes, (XdpLink, Map)) {
    let mut socket = XdpSocket::open(settings).unwrap();
    assert_eq!(socket.refill(), settings.fill_len.min(settings.chunks));
    let bound = socket.bind(if_index, 0, multi_buffer).unwrap();
    let map = Map::create(MapKind::XdpSockets, "sockets", 1).unwrap();
    map.set(0, socket.as_fd()).unwrap();
    let link = XdpLink::attach(&redirect(&map, ProgramKind::Xdp), if_index, XdpMode::Native).unwrap();
    (socket, bound, (link, map))
}

#[test]
fn one_socket_receives_the_frames_of_another() {
    over_veth(|near, far| {
        let (mut receiver, bound, _attached) = receiver(&RECEIVER, far, true);
        assert!(!bound.zero_copy, "veth copies");
        let mut sender = XdpSocket::open(&SENDER).unwrap();
        sender.bind(near, 0, false).unwrap();
        // Five times around the rings.
        for round in 0..10u8 {
            let numbers = round * 16..(round + 1) * 16;
            send(&mut sender, numbers.clone(), 60 + u32::from(round) * 100);
            let frames = receive(&mut receiver, 16);
            assert_eq!(frames.len(), 16);
            for (frame, number) in frames.iter().zip(numbers) {
                assert_eq!(frame.len, 60 + u32::from(round) * 100);
                let bytes = &receiver.memory()[frame.offset..][..frame.len as usize];
                assert!(bytes[14..].iter().all(|byte| *byte == number));
                assert!(!frame.is_continued);
            }
            frames.iter().for_each(|frame| assert!(receiver.give_back(frame.chunk)));
            frames.iter().for_each(|frame| assert!(!receiver.give_back(frame.chunk)));
            assert_eq!(receiver.refill(), 16);
        }
        assert_eq!(receiver.statistics().unwrap(), XskStatistics::default());
        assert_eq!((receiver.refused_descriptors(), sender.refused_descriptors()), (0, 0));
    });
}

#[test]
fn frames_without_room_are_counted() {
    over_veth(|near, far| {
        let mut sender = XdpSocket::open(&SENDER).unwrap();
        sender.bind(near, 0, false).unwrap();
        // No chunk for the ninth.
        let few = XskSettings { chunks: 8, fill_len: 8, ..RECEIVER };
        let (mut starved, _, attached) = receiver(&few, far, false);
        send(&mut sender, 0..20, 60);
        assert_eq!(receive(&mut starved, 8).len(), 8);
        let statistics = starved.statistics().unwrap();
        assert_eq!((statistics.rx_dropped, statistics.rx_ring_full), (12, 0));
        assert_eq!(statistics.rx_fill_ring_empty, 12);
        assert_eq!(starved.packets_waiting(), 0);
        drop((starved, attached));
        // No place in the ring for the fifth, and what is too long for a chunk.
        let short = XskSettings { rx_len: 4, ..RECEIVER };
        let mut socket = XdpSocket::open(&short).unwrap();
        socket.refill();
        let end = Instant::now() + PATIENCE;
        while let Err(error) = socket.bind(far, 0, false) {
            assert!(error.errno() == libc::EBUSY && Instant::now() < end, "{error}");
        }
        let map = Map::create(MapKind::XdpSockets, "sockets", 1).unwrap();
        map.set(0, socket.as_fd()).unwrap();
        let _link = XdpLink::attach(&redirect(&map, ProgramKind::Xdp), far, XdpMode::Native).unwrap();
        send(&mut sender, 0..20, 60);
        assert_eq!(receive(&mut socket, 4).len(), 4);
        let statistics = socket.statistics().unwrap();
        assert_eq!((statistics.rx_dropped, statistics.rx_ring_full), (0, 16));
    });
}

#[test]
fn a_long_packet_comes_in_several_chunks() {
    over_veth(|near, far| {
        assert!(ip("link set near0 mtu 9000") && ip("link set far0 mtu 9000"));
        let settings = XskSettings { chunk_len: 4096, ..RECEIVER };
        let mut socket = XdpSocket::open_with_scratch(&settings, 1 << 14).unwrap();
        socket.refill();
        let bound = socket.bind(far, 0, true).unwrap();
        if !bound.multi_buffer {
            return eprintln!("skipped: this kernel has no packets in several chunks");
        }
        let map = Map::create(MapKind::XdpSockets, "sockets", 1).unwrap();
        map.set(0, socket.as_fd()).unwrap();
        let link = XdpLink::attach(&redirect(&map, ProgramKind::XdpFragments), far, XdpMode::Native);
        let Ok(_link) = link else { return eprintln!("skipped: veth takes no such program") };
        let mut sender = crate::FrameSocket::open(near).unwrap();
        let mut packet: Vec<u8> = (0..9000u32).map(|number| (number % 251) as u8).collect();
        packet[..14].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
        assert_eq!(sender.send(std::iter::once([&packet[..], &[], &[]])).unwrap(), 1);
        let frames = receive(&mut socket, 3);
        assert_eq!(socket.waiting(), 0);
        let (last, others) = frames.split_last().unwrap();
        assert!(others.len() >= 2 && others.iter().all(|frame| frame.is_continued) && !last.is_continued);
        let mut at = 0;
        for frame in &frames {
            at += socket.gather(frame, at);
        }
        let start = socket.scratch_start();
        assert_eq!(socket.memory()[start..][..at], packet);
        // Bytes that do not fit are cut, and chunks that are not held are not read.
        assert_eq!(socket.gather(&frames[0], (1 << 14) - 10), 10);
        assert!(socket.give_back(frames[0].chunk));
        assert_eq!(socket.gather(&frames[0], 0), 0);
    });
}

#[test]
fn a_queue_has_one_socket_and_known_offsets_only() {
    over_veth(|near, _| {
        let mut first = XdpSocket::open(&RECEIVER).unwrap();
        first.bind(near, 0, false).unwrap();
        let mut second = XdpSocket::open(&RECEIVER).unwrap();
        assert_eq!(second.bind(near, 0, false).unwrap_err().errno(), libc::EBUSY);
        assert_eq!(second.bind(near, 99, false).unwrap_err().errno(), libc::EINVAL);
        assert_eq!(second.bind(9999, 0, false).unwrap_err().errno(), libc::ENODEV);
        let none = XskSettings { chunks: 0, ..RECEIVER };
        assert_eq!(XdpSocket::open(&none).unwrap_err().errno(), libc::EINVAL);
        let odd = XskSettings { rx_len: 33, ..RECEIVER };
        assert_eq!(XdpSocket::open(&odd).unwrap_err().errno(), libc::EINVAL);
    });
}

#[test]
fn bytes_outside_of_a_chunk_are_not_sent() {
    if XdpSocket::open(&SENDER).is_err() {
        return eprintln!("skipped: no right to open an AF_XDP socket");
    }
    let mut socket = XdpSocket::open(&XskSettings { huge_pages: true, ..SENDER }).unwrap();
    assert_eq!(socket.memory().len(), 64 * 2048);
    let chunk = socket.take_chunk().unwrap();
    assert_eq!(socket.chunk_mut(chunk).len(), 2048);
    assert!(!socket.transmit(chunk, 2000, 49, false) && !socket.transmit(chunk, u32::MAX, 2, false));
    assert!(socket.transmit(chunk, 2000, 48, false));
    assert_eq!((socket.transmits_pending(), socket.free_chunks()), (1, 63));
    assert_eq!(socket.complete(), 0, "it was not sent");
    let mut receiver = XdpSocket::open(&RECEIVER).unwrap();
    let chunk = receiver.take_chunk().unwrap();
    assert!(!receiver.transmit(chunk, 0, 60, false), "it has no TX ring");
    assert!(receiver.give_back(chunk));
    assert_eq!((receiver.refill(), receiver.refill()), (32, 0));
    assert_eq!((receiver.free_chunks(), receiver.waiting()), (32, 0));
}
