//! Several workers on one interface.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tapline_capture::af_packet::{AfPacket, AfPacketSettings, FanoutMode};
use tapline_source::{Advance, Source, merge_interfaces};
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
