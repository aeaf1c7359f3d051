//! The metadata of packets, and which packets come.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use tapline_bpf::{Insn, ancillary, code};
use tapline_capture::af_packet::{AfPacket, AfPacketSettings, CaptureDirection, MergeOrder};
use tapline_packet::{Checksum, Direction, Gso, InterfaceId, LinkType, PacketType, VlanTag};
use tapline_source::{Count, Source};
use tapline_sys::NetNs;
use tapline_sys::bpf::{ProgramKind, probe};
use tapline_sys::capability::{Capability, keep_only};
use tapline_testkit::frames::vlan;
use tapline_testkit::netns::{FAR, NEAR, Namespace};
use tapline_testkit::sender::{Pace, Sender};

use crate::bench::{
    arrive, bench, drive, equals, far, finish, number_of, numbered, ring_of, send, settings, told,
    with_filter,
};

#[test]
fn a_stripped_vlan_tag_is_kept_beside_the_packet() {
    let Some(namespace) = bench("a_stripped_vlan_tag_is_kept_beside_the_packet") else { return };
    let mut source = far(&namespace);
    send(&namespace, NEAR, 4, |number| match number {
        0 => numbered(0),
        1 => vlan(&numbered(1), 0x8100, 0x6005),
        2 => vlan(&numbered(2), 0x88a8, 0),
        _ => vlan(&vlan(&numbered(3), 0x8100, 7), 0x88a8, 6),
    });
    arrive(&mut source, 4);
    let packets = finish(&mut source);
    let tags: Vec<_> = packets.iter().map(|packet| packet.meta.vlan).collect();
    let tag = |tpid, tci| Some(VlanTag { tpid, tci });
    assert_eq!(tags, [None, tag(0x8100, 0x6005), tag(0x88a8, 0), tag(0x88a8, 6)]);
    assert!((0..3).all(|index| packets[index].data == numbered(index as u32)));
    assert_eq!(packets[3].data, vlan(&numbered(3), 0x8100, 7), "the inner tag stays");
    assert!(packets.iter().all(|packet| packet.meta.wire_len as usize == packet.data.len()));
}

/// A source that may sleep while packets come gets all of them, also after it may no longer.
#[test]
fn latency_costs_no_packet() {
    const COUNT: u32 = 20_000;
    let Some(namespace) = bench("latency_costs_no_packet") else { return };
    let quick = AfPacketSettings { latency_ms: 1, ring_len: Some(64 << 20), ..settings(&namespace, &[FAR]) };
    let mut source = AfPacket::open(quick).unwrap();
    let mut numbers = Vec::new();
    for (round, latency_ms) in [1000, 5, 0, 50].into_iter().enumerate() {
        source.set_max_latency(Duration::from_millis(latency_ms));
        let first = round as u32 * COUNT;
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| send(&namespace, NEAR, COUNT, |number| numbered(first + number)));
            let (packets, _) = drive(&mut source, |packets, _| packets.len() == COUNT as usize);
            numbers.extend(packets.iter().map(|packet| number_of(&packet.data)));
            assert_eq!(sender.join().unwrap(), u64::from(COUNT));
        });
    }
    assert!(finish(&mut source).is_empty());
    assert!(numbers.into_iter().eq(0..4 * COUNT));
    assert_eq!(ring_of(&mut source).0.dropped, 0);
}

#[test]
fn the_kernel_filters_by_the_stripped_tag() {
    let Some(namespace) = bench("the_kernel_filters_by_the_stripped_tag") else { return };
    let vlan_5 = vec![
        Insn::new(code::LD | code::B | code::ABS, ancillary::VLAN_TAG_PRESENT),
        Insn::jump(code::JMP | code::JEQ | code::K, 1, 0, 4),
        Insn::new(code::LD | code::B | code::ABS, ancillary::VLAN_TAG),
        Insn::new(code::ALU | code::AND | code::K, 0x0fff),
        Insn::jump(code::JMP | code::JEQ | code::K, 5, 0, 1),
        Insn::new(code::RET | code::K, 262_144),
        Insn::new(code::RET | code::K, 0),
    ];
    let mut source = AfPacket::open(with_filter(settings(&namespace, &[FAR]), vlan_5)).unwrap();
    send(&namespace, NEAR, 100, |number| match number % 4 {
        0 => numbered(number),
        1 => vlan(&numbered(number), 0x8100, 5),
        2 => vlan(&numbered(number), 0x8100, 0xe005),
        _ => vlan(&numbered(number), 0x8100, 6),
    });
    arrive(&mut source, 50);
    let packets = finish(&mut source);
    assert!(source.is_filtered(InterfaceId(0)));
    assert_eq!(packets.len(), 50);
    assert!(packets.iter().all(|packet| packet.meta.vlan.unwrap().id() == 5));
    assert_eq!(ring_of(&mut source).0.received, 50, "refused packets never reach the ring");
    assert_eq!(source.account()[0].kernel_filtered, Count::Unknown);
}

#[test]
fn no_packet_from_before_the_filter() {
    let Some(namespace) = bench("no_packet_from_before_the_filter") else { return };
    // Packets fly all the time while captures open that want none of them.
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(&namespace, NEAR, 400_000, numbered));
        let mut opened = 0;
        while !sender.is_finished() {
            let settings = with_filter(settings(&namespace, &[FAR]), equals(code::H, 12, 0x0800));
            let mut source = AfPacket::open(settings).unwrap();
            assert!(finish(&mut source).is_empty());
            assert_eq!(ring_of(&mut source).0.received, 0);
            opened += 1;
        }
        assert_eq!(sender.join().unwrap(), 400_000);
        assert!(opened > 0);
    });
}

/// A filter for the frames of [`numbered`] whose number is odd and below twice `count`: a comparison and a return for
/// each, which no classic program of the kernel may be long enough for.
pub(crate) fn odd_numbers(count: u32) -> Vec<Insn> {
    let mut insns = vec![Insn::new(code::LD | code::W | code::ABS, 14)];
    for number in 0..count {
        insns.push(Insn::jump(code::JMP | code::JEQ | code::K, 2 * number + 1, 0, 1));
        insns.push(Insn::new(code::RET | code::K, 262_144));
    }
    insns.push(Insn::new(code::RET | code::K, 0));
    insns
}

/// Whether this process may load programs; says so if not.
fn may_load(test: &str) -> bool {
    let may = probe(ProgramKind::SocketFilter);
    may.map_err(|error| eprintln!("skipped: {test}: {error}")).is_ok()
}

#[test]
fn filters_too_large_for_classic_bpf_run_as_ebpf() {
    let test = "filters_too_large_for_classic_bpf_run_as_ebpf";
    let Some(namespace) = bench(test).filter(|_| may_load(test)) else { return };
    // The second is too long for what sockets may be charged with, too: its trampoline is attached.
    for (count, direction) in
        [(2_100, CaptureDirection::Both), (30_000, CaptureDirection::Both), (2_100, CaptureDirection::In)]
    {
        let filter = odd_numbers(count);
        let text = format!("filter of {}", filter.len());
        let settings = AfPacketSettings { direction, snap_len: 40, ..settings(&namespace, &[FAR]) };
        let mut source = AfPacket::open(with_filter(settings, filter)).unwrap();
        let events = source.events();
        assert!(told(&events, FAR, &text) && told(&events, FAR, "runs in the kernel as eBPF"), "{events:?}");
        assert!(events.iter().all(|event| !event.is_warning));
        assert!(source.is_filtered(InterfaceId(0)));
        send(&namespace, NEAR, 400, numbered);
        send(&namespace, FAR, 10, numbered);
        let from_far = if direction == CaptureDirection::Both { 5 } else { 0 };
        arrive(&mut source, 200 + from_far);
        let packets = finish(&mut source);
        assert_eq!(packets.len() as u64, 200 + from_far);
        assert!(packets.iter().all(|packet| number_of(&packet.data) % 2 == 1 && packet.data.len() == 40));
        assert_eq!(ring_of(&mut source).0.received, 200 + from_far, "refused packets never reach the ring");
        assert_eq!(source.account()[0].kernel_filtered, Count::Unknown);
    }
}

/// As [`no_packet_from_before_the_filter`], with several interfaces: they start closed, and open with the program that
/// was accepted.
#[test]
fn large_filters_start_closed_too() {
    let test = "large_filters_start_closed_too";
    let Some(namespace) = bench(test).filter(|_| may_load(test)) else { return };
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(&namespace, NEAR, 200_000, |_| numbered(0)));
        let mut opened = 0;
        while !sender.is_finished() {
            let settings = with_filter(settings(&namespace, &[FAR, NEAR]), odd_numbers(2_100));
            let mut source = AfPacket::open(settings).unwrap();
            assert!((0..2).all(|index| source.is_filtered(InterfaceId(index))));
            assert!(finish(&mut source).is_empty());
            assert!(source.account().iter().all(|account| account.ring.unwrap().received == 0));
            opened += 1;
        }
        assert_eq!(sender.join().unwrap(), 200_000);
        assert!(opened > 0);
    });
}

#[test]
fn filters_refused_by_the_kernel_run_in_user_space() {
    let Some(namespace) = bench("filters_refused_by_the_kernel_run_in_user_space") else { return };
    let within = NetNs::open(namespace.name()).unwrap();
    // A user with the right to open sockets, but not to load programs.
    let open = || {
        keep_only(&[Capability::NetRaw]).unwrap();
        if probe(ProgramKind::SocketFilter).is_ok() {
            return None;
        }
        let settings = AfPacketSettings { netns: None, ..settings(&namespace, &[FAR]) };
        Some(AfPacket::open(with_filter(settings, odd_numbers(2_500))).unwrap())
    };
    let Some(mut source) = within.run(open).unwrap() else {
        return eprintln!("skipped: here everyone may load programs");
    };
    let events = source.events();
    assert!(told(&events, FAR, "refused the filter of 5002 instructions"), "{events:?}");
    assert!(told(&events, FAR, "CAP_BPF"), "{events:?}");
    assert!(!source.is_filtered(InterfaceId(0)));
    send(&namespace, NEAR, 10, numbered);
    arrive(&mut source, 10);
    assert_eq!(finish(&mut source).len(), 10);
    assert_eq!(source.account()[0].kernel_filtered, Count::Known(0));
}

#[test]
fn directions() {
    let Some(namespace) = bench("directions") else { return };
    let capture = |direction, expected| {
        let settings = AfPacketSettings { direction, ..settings(&namespace, &[NEAR]) };
        let mut source = AfPacket::open(settings).unwrap();
        send(&namespace, NEAR, 30, numbered);
        send(&namespace, FAR, 12, numbered);
        arrive(&mut source, expected);
        let packets = finish(&mut source);
        assert_eq!(ring_of(&mut source).0.received, packets.len() as u64);
        let sent = packets.iter().filter(|packet| packet.meta.direction == Direction::Out).count();
        let outgoing = packets.iter().filter(|p| p.meta.packet_type == PacketType::Outgoing).count();
        assert_eq!(sent, outgoing);
        (sent, packets.len() - sent)
    };
    assert_eq!(capture(CaptureDirection::Both, 42), (30, 12));
    assert_eq!(capture(CaptureDirection::In, 12), (0, 12));
    assert_eq!(capture(CaptureDirection::Out, 30), (30, 0));
}

#[test]
fn loopback_gives_one_copy() {
    let Some(namespace) = bench("loopback_gives_one_copy") else { return };
    namespace.ip(&["link", "set", "lo", "up"]).unwrap();
    for (direction, expected) in
        [(CaptureDirection::Both, Direction::In), (CaptureDirection::Out, Direction::Out)]
    {
        let mut source =
            AfPacket::open(AfPacketSettings { direction, ..settings(&namespace, &["lo"]) }).unwrap();
        send(&namespace, "lo", 50, numbered);
        arrive(&mut source, 50);
        let packets = finish(&mut source);
        assert_eq!(packets.len(), 50);
        assert!(packets.iter().all(|packet| packet.meta.direction == expected));
    }
}

#[test]
fn the_snap_length_cuts_in_the_kernel() {
    let Some(namespace) = bench("the_snap_length_cuts_in_the_kernel") else { return };
    let cut = AfPacketSettings { snap_len: 32, ..settings(&namespace, &[FAR]) };
    for settings in [cut.clone(), with_filter(cut, equals(code::H, 12, 0x88b5))] {
        let mut source = AfPacket::open(settings).unwrap();
        send(&namespace, NEAR, 20, numbered);
        arrive(&mut source, 20);
        let packets = finish(&mut source);
        assert_eq!(packets.len(), 20);
        assert!(packets.iter().all(|packet| packet.data.len() == 32 && packet.meta.wire_len == 60));
        assert_eq!(source.interfaces()[0].snap_len, 32);
        assert!(!told(&source.events(), FAR, "were cut"), "it was asked for");
    }
}

#[test]
fn several_interfaces_each_with_its_own_number() {
    let Some(namespace) = bench("several_interfaces_each_with_its_own_number") else { return };
    namespace.add_pair("left0", "right0").unwrap();
    for order in [MergeOrder::Block, MergeOrder::Time] {
        // Nobody reads while packets are sent: a ring that begins small could not grow, and one with a short latency
        // would spend a block on each packet of a slow sender.
        let ring_len = Some(32 << 20);
        let latency_ms = 1000;
        let settings =
            AfPacketSettings { order, ring_len, latency_ms, ..settings(&namespace, &[FAR, "r*0"]) };
        let mut source = AfPacket::open(settings).unwrap();
        let names: Vec<_> = source.interfaces().iter().map(|interface| interface.name.clone()).collect();
        assert!(names.len() == 2 && names.contains(&FAR.to_owned()) && names.contains(&"right0".to_owned()));
        assert!(source.interfaces().iter().all(|interface| interface.link_type == LinkType::ETHERNET));
        let mut senders = [NEAR, "left0"].map(|interface| {
            namespace.wait_until_up(interface).unwrap();
            Sender::open(Some(namespace.name()), interface).unwrap()
        });
        for number in 0..100 {
            let frame = numbered(number);
            senders[number as usize % 2].send(std::slice::from_ref(&frame), 1, Pace::Full).unwrap();
        }
        arrive(&mut source, 100);
        let packets = match order {
            MergeOrder::Block => finish(&mut source),
            // While the capture runs, when each packet could still be followed by an earlier one.
            MergeOrder::Time => drive(&mut source, |packets, _| packets.len() == 100).0,
        };
        assert_eq!(packets.len(), 100);
        for packet in &packets {
            let interface = &source.interfaces()[packet.meta.interface.0 as usize];
            let expected = if number_of(&packet.data).is_multiple_of(2) { FAR } else { "right0" };
            assert_eq!((interface.name.as_str(), interface.if_index), (expected, packet.meta.if_index));
        }
        if order == MergeOrder::Time {
            let is_by_time = packets.windows(2).all(|pair| pair[0].meta.timestamp <= pair[1].meta.timestamp);
            assert!(is_by_time);
        }
        let accounts = source.account();
        assert_eq!(accounts.iter().map(|account| account.delivered).sum::<u64>(), 100);
    }
}

#[test]
fn times_are_the_kernels_and_grow() {
    let Some(namespace) = bench("times_are_the_kernels_and_grow") else { return };
    let now = || std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as i64;
    let mut source = far(&namespace);
    let before = now();
    send(&namespace, NEAR, 1000, numbered);
    arrive(&mut source, 1000);
    let packets = finish(&mut source);
    let after = now();
    let times: Vec<i64> = packets.iter().map(|packet| packet.meta.timestamp.as_nanos()).collect();
    assert!(times.windows(2).all(|pair| pair[0] <= pair[1]));
    assert!(before <= times[0] && times[999] <= after);
    assert!(times.iter().any(|time| time % 1000 != 0), "nanoseconds");
}

#[test]
fn a_wakeup_ends_the_wait() {
    let Some(namespace) = bench("a_wakeup_ends_the_wait") else { return };
    let mut source = far(&namespace);
    source.wakeup().expect("live sources have one").notify();
    // Would take an hour otherwise.
    source.advance(std::time::Duration::from_secs(3600)).unwrap();
    let (packets, _) = drive(&mut source, |_, _| true);
    assert!(packets.is_empty());
}

/// Sends much over TCP on the loopback interface of the namespace.
fn transfer(namespace: &Namespace) {
    let talk = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut server = listener.accept().unwrap().0;
        std::thread::scope(|scope| {
            scope.spawn(move || client.write_all(&[0; 1 << 20]).unwrap());
            std::io::copy(&mut server, &mut std::io::sink()).unwrap()
        })
    };
    assert_eq!(NetNs::open(namespace.name()).unwrap().run(talk).unwrap(), 1 << 20);
}

#[test]
fn checksums_left_to_the_adapter_are_told() {
    let Some(namespace) = bench("checksums_left_to_the_adapter_are_told") else { return };
    namespace.ip(&["link", "set", "lo", "mtu", "1500", "up"]).unwrap();
    for vnet_header in [false, true] {
        let mut source =
            AfPacket::open(AfPacketSettings { vnet_header, ..settings(&namespace, &["lo"]) }).unwrap();
        transfer(&namespace);
        let packets = finish(&mut source);
        let large: Vec<_> = packets.iter().filter(|packet| packet.meta.wire_len > 1514).collect();
        assert!(!large.is_empty());
        // Small ones may be answers that the kernel sums up itself.
        assert!(large.iter().all(|packet| packet.meta.checksum == Checksum::NotReady));
        assert!(packets.iter().all(|packet| packet.data.len() == packet.meta.wire_len as usize));
        for packet in large {
            // Without a virtio header the kernel tells since 6.4, and never the size.
            let Some(Gso { size, kind }) = packet.meta.gso else {
                assert!(!vnet_header);
                continue;
            };
            assert_eq!((kind, size > 0 && size < 1500), (1, vnet_header));
        }
        assert!(packets.iter().filter(|p| p.meta.wire_len <= 1514).all(|p| p.meta.gso.is_none()));
        ring_of(&mut source);
    }
}
