//! Several workers on one interface.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tapline_capture::af_packet::{AfPacket, AfPacketSettings, FanoutMode};
use tapline_source::{Advance, Source, merge_interfaces};
use tapline_sys::NetNs;
use tapline_sys::bpf::{ProgramKind, probe};
use tapline_sys::capability::{Capability, keep_only};
use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Ipv4, Udp, fragments_v4, vlan};
use tapline_testkit::netns::{FAR, NEAR};

use crate::bench::{arrive_among, bench, drive, finish, send, settings, told};

/// UDP over IPv4 without a checksum, between ports that the number chooses.
fn datagram(number: u32) -> Vec<u8> {
    let flow = (number % 97) as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
    frame.extend([0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend((1000 + flow).to_be_bytes());
    frame.extend([0, 53, 0, 26, 0, 0]);
    frame.extend(number.to_be_bytes());
    frame.resize(60, 0);
    frame
}

#[test]
fn workers_share_packets_and_keep_flows_together() {
    let Some(namespace) = bench("workers_share_packets_and_keep_flows_together") else { return };
    let settings = AfPacketSettings { workers: 3, ..settings(&namespace, &[FAR]) };
    let mut workers = AfPacket::open_workers(settings).unwrap();
    let sent = send(&namespace, NEAR, 30_000, datagram);
    arrive_among(&mut workers, sent);
    let mut owner = HashMap::new();
    let mut sum = Vec::new();
    let mut shares = Vec::new();
    for (number, worker) in workers.iter_mut().enumerate() {
        worker.stop().unwrap();
        let packets = finish(worker);
        for packet in &packets {
            let port = [packet.data[34], packet.data[35]];
            assert_eq!(*owner.entry(port).or_insert(number), number, "a flow stays with one worker");
        }
        let delivered = packets.len() as u64;
        shares.push(delivered);
        merge_interfaces(&mut sum, worker.account());
    }
    assert_eq!(sum[0].imbalance(), None);
    let ring = sum[0].ring.unwrap();
    assert_eq!((sum.len(), ring.received), (1, sent));
    assert_eq!(sum[0].delivered + ring.dropped, sent);
    assert!(shares.iter().all(|&share| share > 0), "{shares:?}");
}

/// A worker that hears later of an interface has its share all the same: joining then, it would refuse packets at first.
#[test]
fn an_interface_that_appears_is_shared_at_once() {
    let Some(namespace) = bench("an_interface_that_appears_is_shared_at_once") else { return };
    let settings = AfPacketSettings { workers: 3, ..settings(&namespace, &["far*"]) };
    let mut workers = AfPacket::open_workers(settings).unwrap();
    let mut sent = 0;
    for round in 1..=3 {
        namespace.add_pair("near7", "far7").unwrap();
        let text = if round == 1 { "appeared and is captured" } else { "came back" };
        drive(&mut workers[0], |_, events| told(events, "far7", text));
        sent += send(&namespace, "near7", 3_000, datagram);
        workers[1..].iter_mut().for_each(|worker| drop(worker.events()));
        arrive_among(&mut workers, sent);
        namespace.ip(&["link", "delete", "near7"]).unwrap();
    }
    let mut sum = Vec::new();
    for worker in &mut workers {
        let packets = finish(worker);
        assert!(!packets.is_empty());
        assert_eq!(worker.interfaces().len(), 2, "far7 is one interface each time");
        merge_interfaces(&mut sum, worker.account());
    }
    assert_eq!(sum[1].imbalance(), None);
    let ring = sum[1].ring.unwrap();
    assert_eq!((sum.len(), ring.received, sum[1].delivered + ring.dropped), (2, sent, sent));
}

/// Owners of each flow and packets of each worker; `flow_of` finds the number of a flow.
fn owners(
    workers: &mut [AfPacket],
    flow_of: impl Fn(&[u8]) -> u16,
) -> (HashMap<u16, HashSet<usize>>, Vec<usize>) {
    let mut owners: HashMap<u16, HashSet<usize>> = HashMap::new();
    let mut shares = Vec::new();
    for (number, worker) in workers.iter_mut().enumerate() {
        let packets = finish(worker);
        for packet in &packets {
            owners.entry(flow_of(&packet.data)).or_default().insert(number);
        }
        shares.push(packets.len());
    }
    (owners, shares)
}

fn half(data: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([data[at], data[at + 1]])
}

/// Fragments of a datagram of 2,000 bytes from the port 1000 + `flow`, of the identification 500 + `flow`.
fn fragments_of(flow: u16) -> Vec<Vec<u8>> {
    let (a, b) = (Host::number(1), Host::number(2));
    let udp = Udp { src: 1000 + flow, dst: 53 };
    let header = Ipv4 { id: 500 + flow, dont_fragment: false, ..Ipv4::new(a.v4, b.v4, 17) };
    let datagram = udp.datagram(IpPair::between(&a, &b, IpVersion::V4), &[7; 2000]);
    let fragments = fragments_v4(&header, &datagram, 800);
    fragments.iter().map(|packet| Ethernet::between(&a, &b).ip(packet)).collect()
}

/// Whether programs that share packets may be loaded; says so if not.
fn may_share(test: &str) -> bool {
    probe(ProgramKind::SocketFilter).map_err(|error| eprintln!("skipped: {test}: {error}")).is_ok()
}

/// Whole packets and fragments of 30 flows: all of a flow come to one worker.
#[test]
fn fragments_follow_their_flow() {
    const TEST: &str = "fragments_follow_their_flow";
    let Some(namespace) = bench(TEST).filter(|_| may_share(TEST)) else { return };
    let (a, b) = (Host::number(1), Host::number(2));
    let mut frames = Vec::new();
    for flow in 0..30 {
        let whole = Udp { src: 1000 + flow, dst: 53 }
            .packet(IpPair::between(&a, &b, IpVersion::V4), &flow.to_be_bytes());
        frames.push(Ethernet::between(&a, &b).ip(&whole));
        frames.extend(fragments_of(flow));
    }
    let settings = AfPacketSettings { workers: 3, ..settings(&namespace, &[FAR]) };
    let mut workers = AfPacket::open_workers(settings).unwrap();
    assert!(workers[0].events().is_empty());
    let sent = send(&namespace, NEAR, frames.len() as u32, |number| frames[number as usize].clone());
    arrive_among(&mut workers, sent);
    let (owners, shares) = owners(&mut workers, |data| match half(data, 20) & 0x3fff {
        0 => half(data, 34) - 1000,
        _ => half(data, 18) - 500,
    });
    assert_eq!(shares.iter().sum::<usize>() as u64, sent);
    assert!(owners.len() == 30 && owners.values().all(|owners| owners.len() == 1), "{owners:?}");
    assert!(shares.iter().all(|&share| share > 0), "{shares:?}");
    assert!(workers[0].events().is_empty());
}

#[test]
fn fragments_without_a_first_one_are_told() {
    const TEST: &str = "fragments_without_a_first_one_are_told";
    let Some(namespace) = bench(TEST).filter(|_| may_share(TEST)) else { return };
    let settings = AfPacketSettings { workers: 2, ..settings(&namespace, &[FAR]) };
    let mut workers = AfPacket::open_workers(settings).unwrap();
    let sent = send(&namespace, NEAR, 5, |number| fragments_of(number as u16).swap_remove(1));
    arrive_among(&mut workers, sent);
    workers.iter_mut().for_each(|worker| drop(finish(worker)));
    let events = workers[0].events();
    assert!(told(&events, "", "5 later fragments may be at another worker"), "{events:?}");
}

/// The kernel keeps all but the first 14 bytes of a frame longer than a page in further buffers. Sent and received
/// frames of both directions, without tags and with three.
#[test]
fn headers_beyond_the_first_buffer_are_found() {
    const TEST: &str = "headers_beyond_the_first_buffer_are_found";
    let Some(namespace) = bench(TEST).filter(|_| may_share(TEST)) else { return };
    for end in [NEAR, FAR] {
        namespace.ip(&["link", "set", end, "mtu", "9000"]).unwrap();
    }
    let (a, b) = (Host::number(1), Host::number(2));
    let frame = |from: &Host, to: &Host, udp: Udp, tags: u16| {
        let packet = udp.packet(IpPair::between(from, to, IpVersion::V4), &[7; 5000]);
        (0..tags).fold(Ethernet::between(from, to).ip(&packet), |frame, tag| vlan(&frame, 0x8100, 5 + tag))
    };
    let settings = AfPacketSettings { workers: 4, ..settings(&namespace, &[NEAR]) };
    let mut workers = AfPacket::open_workers(settings).unwrap();
    let tags = |number: u32| if number.is_multiple_of(2) { 0 } else { 3 };
    let port = |number: u32| 1000 + (number / 2) as u16;
    let there = |number| frame(&a, &b, Udp { src: port(number), dst: 53 }, tags(number));
    let back = |number| frame(&b, &a, Udp { src: 53, dst: port(number) }, tags(number));
    let sent = send(&namespace, NEAR, 120, there) + send(&namespace, FAR, 120, back);
    arrive_among(&mut workers, sent);
    let (owners, shares) = owners(&mut workers, |data| {
        let mut at = 12;
        while half(data, at) == 0x8100 {
            at += 4;
        }
        half(data, at + 22).max(half(data, at + 24))
    });
    assert_eq!(shares.iter().sum::<usize>(), 240);
    assert!(owners.len() == 60 && owners.values().all(|owners| owners.len() == 1), "{owners:?}");
    assert!(shares.iter().all(|&share| share > 0), "{shares:?}");
}

#[test]
fn the_kernel_shares_where_the_program_is_refused() {
    const TEST: &str = "the_kernel_shares_where_the_program_is_refused";
    let Some(namespace) = bench(TEST) else { return };
    let within = NetNs::open(namespace.name()).unwrap();
    let open = || {
        keep_only(&[Capability::NetRaw]).unwrap();
        if probe(ProgramKind::SocketFilter).is_ok() {
            return None;
        }
        let settings = AfPacketSettings { netns: None, workers: 3, ..settings(&namespace, &[FAR]) };
        Some(AfPacket::open_workers(settings).unwrap())
    };
    let Some(mut workers) = within.run(open).unwrap() else {
        return eprintln!("skipped: here everyone may load programs");
    };
    let events = workers[0].events();
    assert!(told(&events, FAR, "fragments go to workers by their addresses"), "{events:?}");
    assert!(told(&events, FAR, "CAP_BPF"), "{events:?}");
    let sent = send(&namespace, NEAR, 300, datagram);
    arrive_among(&mut workers, sent);
    let (owners, shares) = owners(&mut workers, |data| half(data, 34));
    assert!(owners.values().all(|owners| owners.len() == 1), "{owners:?}");
    assert!(shares.iter().all(|&share| share > 0), "{shares:?}");
}

#[test]
fn counts_of_worker_threads_add_up_under_load() {
    let Some(namespace) = bench("counts_of_worker_threads_add_up_under_load") else { return };
    let ring_len = Some(128 << 10);
    let settings = AfPacketSettings { workers: 2, ring_len, ..settings(&namespace, &[FAR]) };
    let mut workers = AfPacket::open_workers(settings).unwrap();
    let has_ended = AtomicBool::new(false);
    let read = |worker: &mut AfPacket| {
        let mut lent = 0;
        while !has_ended.load(Ordering::Relaxed) {
            worker.advance(Duration::from_millis(10)).unwrap();
            lent += worker.batch().len() as u64;
        }
        lent
    };
    let (sent, mut lent) = std::thread::scope(|scope| {
        let threads: Vec<_> = workers.iter_mut().map(|worker| scope.spawn(|| read(worker))).collect();
        let sent = send(&namespace, NEAR, 200_000, datagram);
        has_ended.store(true, Ordering::Relaxed);
        (sent, threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>())
    });
    arrive_among(&mut workers, sent);
    lent += workers.iter_mut().map(|worker| finish(worker).len() as u64).sum::<u64>();
    let rings = workers.iter_mut().map(|worker| worker.account()[0].ring.unwrap());
    let (received, dropped) = rings.fold((0, 0), |sum, ring| (sum.0 + ring.received, sum.1 + ring.dropped));
    assert_eq!((received, lent + dropped), (sent, sent));
}

#[test]
fn workers_in_turn_share_evenly() {
    let Some(namespace) = bench("workers_in_turn_share_evenly") else { return };
    let fanout = FanoutMode::LoadBalance;
    let settings = AfPacketSettings { workers: 4, fanout, ..settings(&namespace, &[FAR]) };
    let mut workers = AfPacket::open_workers(settings).unwrap();
    send(&namespace, NEAR, 4000, datagram);
    arrive_among(&mut workers, 4000);
    let shares: Vec<usize> = workers.iter_mut().map(|worker| finish(worker).len()).collect();
    assert_eq!(shares.iter().sum::<usize>(), 4000, "{shares:?}");
    assert!(shares.iter().all(|&share| share == 1000), "{shares:?}");
}

#[test]
fn workers_go_on_with_an_interface_made_anew() {
    let Some(namespace) = bench("workers_go_on_with_an_interface_made_anew") else { return };
    let settings = AfPacketSettings { workers: 2, ..settings(&namespace, &[FAR]) };
    let mut workers = AfPacket::open_workers(settings).unwrap();
    let mut lent = send(&namespace, NEAR, 1000, datagram);
    arrive_among(&mut workers, 1000);
    namespace.ip(&["link", "delete", NEAR]).unwrap();
    namespace.add_pair(NEAR, FAR).unwrap();
    // The first worker speaks for both; the other one follows when it next waits.
    let mut packets = drive(&mut workers[0], |_, events| told(events, FAR, "came back")).0.len();
    for worker in &mut workers {
        for _ in 0..3 {
            assert_ne!(worker.advance(Duration::from_millis(50)).unwrap(), Advance::End);
            packets += worker.batch().len();
        }
    }
    lent += send(&namespace, NEAR, 1000, datagram);
    arrive_among(&mut workers, 2000);
    packets += workers.iter_mut().map(|worker| finish(worker).len()).sum::<usize>();
    assert_eq!((packets, lent), (2000, 2000));
    let received: u64 = workers.iter_mut().map(|worker| worker.account()[0].ring.unwrap().received).sum();
    assert_eq!(received, 2000);
}
