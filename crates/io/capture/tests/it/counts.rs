//! Captured + lost = sent, exactly.

use std::time::Duration;

use tapline_capture::af_packet::{AfPacket, AfPacketSettings};
use tapline_source::{Advance, Count, LossPoint, RingAccount, Source};
use tapline_testkit::netns::{FAR, NEAR};

use crate::bench::{arrive, bench, far, finish, number_of, numbered, ring_of, send, settings};

/// Bytes that a frame of 60 bytes takes in a ring, and a block's head (reference: TPACKET3_HDRLEN).
const SLOT_LEN: u64 = 144;

#[test]
fn below_the_rings_limit_no_packet_is_lost() {
    let Some(namespace) = bench("below_the_rings_limit_no_packet_is_lost") else { return };
    let mut source =
        AfPacket::open(AfPacketSettings { latency_ms: 1000, ..settings(&namespace, &[FAR]) }).unwrap();
    let (_, ring) = source.rings().next().unwrap();
    // So few that the ring could hold them all: whether anybody reads meanwhile does not matter.
    let count = (ring.len() / 2 / SLOT_LEN) as u32;
    let sent = send(&namespace, NEAR, count, numbered);
    arrive(&mut source, sent);
    let packets = finish(&mut source);
    let numbers: Vec<u32> = packets.iter().map(|packet| number_of(&packet.data)).collect();
    assert_eq!(sent, u64::from(count));
    assert!(numbers.iter().copied().eq(0..count), "all of them, in order");
    let (account, delivered) = ring_of(&mut source);
    assert_eq!((delivered, account), (sent, RingAccount { received: sent, ..RingAccount::default() }));
}

#[test]
fn above_the_rings_limit_every_loss_is_counted() {
    let Some(namespace) = bench("above_the_rings_limit_every_loss_is_counted") else { return };
    let ring_len = Some(256 << 10);
    let mut source = AfPacket::open(AfPacketSettings { ring_len, ..settings(&namespace, &[FAR]) }).unwrap();
    // No thread reads while four times as many are sent as there is room for.
    let count = (4 * (256 << 10) / SLOT_LEN) as u32;
    let sent = send(&namespace, NEAR, count, numbered);
    arrive(&mut source, sent);
    let packets = finish(&mut source);
    let (ring, delivered) = ring_of(&mut source);
    assert_eq!(sent, u64::from(count));
    assert_eq!(delivered, packets.len() as u64);
    assert_eq!(delivered + ring.dropped, sent);
    assert!(ring.dropped > 0 && ring.freezes > 0 && delivered > 0, "{ring:?}");
}

#[test]
fn a_slow_reader_loses_and_knows_where() {
    let Some(namespace) = bench("a_slow_reader_loses_and_knows_where") else { return };
    let ring_len = Some(256 << 10);
    let mut source = AfPacket::open(AfPacketSettings { ring_len, ..settings(&namespace, &[FAR]) }).unwrap();
    let (mut sent, mut packets) = (0, Vec::new());
    for round in 0..20u32 {
        sent += send(&namespace, NEAR, 1000, |number| numbered(round * 1000 + number));
        // One batch for 1,000 packets: the ring runs over again and again.
        if source.advance(Duration::ZERO).unwrap() == Advance::Batch {
            packets.extend(source.batch().iter().map(|p| (number_of(p.data), p.meta.drops_before)));
        }
    }
    arrive(&mut source, sent);
    packets.extend(finish(&mut source).iter().map(|p| (number_of(&p.data), p.meta.drops_before)));
    let (ring, delivered) = ring_of(&mut source);
    assert_eq!((delivered + ring.dropped, sent), (20_000, 20_000));
    assert_eq!(delivered, packets.len() as u64);
    assert!(packets.windows(2).all(|pair| pair[0].0 < pair[1].0), "in order, none twice");

    let told: u64 = packets.iter().map(|packet| packet.1).sum();
    let lost_after_the_last = u64::from(19_999 - packets.last().unwrap().0);
    assert!(told > 0 && told <= ring.dropped, "{told} of {}", ring.dropped);
    assert!(told >= ring.dropped - lost_after_the_last, "{told} + {lost_after_the_last} of {}", ring.dropped);
}

#[test]
fn reading_while_sending_at_full_speed_adds_up() {
    let Some(namespace) = bench("reading_while_sending_at_full_speed_adds_up") else { return };
    for ring_len in [128 << 10, 1 << 20, 64 << 20] {
        let ring_len = Some(ring_len);
        let mut source =
            AfPacket::open(AfPacketSettings { ring_len, ..settings(&namespace, &[FAR]) }).unwrap();
        let (mut delivered, mut told) = (0, 0);
        let mut take = |source: &mut AfPacket, wait: Duration| {
            let advance = source.advance(wait).unwrap();
            delivered += source.batch().len() as u64;
            told += source.batch().iter().map(|packet| packet.meta.drops_before).sum::<u64>();
            advance
        };
        let sent = std::thread::scope(|scope| {
            let sender = scope.spawn(|| send(&namespace, NEAR, 200_000, numbered));
            while !sender.is_finished() {
                take(&mut source, Duration::from_millis(10));
            }
            sender.join().unwrap()
        });
        arrive(&mut source, sent);
        source.stop().unwrap();
        while take(&mut source, Duration::from_millis(10)) != Advance::End {}
        let (ring, lent) = ring_of(&mut source);
        assert_eq!((sent, lent), (200_000, delivered));
        assert_eq!(delivered + ring.dropped, sent, "{ring_len:?}");
        assert!(told <= ring.dropped);
    }
}

#[test]
fn packets_left_in_the_ring_are_counted_as_unread() {
    let Some(namespace) = bench("packets_left_in_the_ring_are_counted_as_unread") else { return };
    let mut source = far(&namespace);
    let sent = send(&namespace, NEAR, 10_000, numbered);
    let mut taken = 0;
    while taken == 0 {
        source.advance(Duration::from_secs(1)).unwrap();
        taken = source.batch().len() as u64;
    }
    arrive(&mut source, sent);
    source.stop().unwrap();
    let (ring, delivered) = ring_of(&mut source);
    let expected = RingAccount { received: sent, unread: sent - taken, ..RingAccount::default() };
    assert_eq!((delivered, ring), (taken, expected));
}

#[test]
fn after_a_stop_nothing_new_comes_in() {
    let Some(namespace) = bench("after_a_stop_nothing_new_comes_in") else { return };
    let mut source = far(&namespace);
    let before = send(&namespace, NEAR, 500, numbered);
    arrive(&mut source, before);
    source.stop().unwrap();
    send(&namespace, NEAR, 500, numbered);
    let packets = finish(&mut source);
    let (ring, delivered) = ring_of(&mut source);
    assert_eq!((packets.len() as u64, delivered, ring.received), (before, before, before));
    assert_eq!(source.advance(Duration::from_secs(60)).unwrap(), Advance::End);
}

#[test]
fn losses_before_the_ring_have_names() {
    let Some(namespace) = bench("losses_before_the_ring_have_names") else { return };
    let mut source = far(&namespace);
    let losses = source.account().remove(0).losses;
    for name in ["rx_dropped", "rx_missed_errors", "rx_fifo_errors", "rx_over_errors"] {
        let loss = losses.iter().find(|loss| loss.counter == name).unwrap();
        assert_eq!(loss.place, LossPoint::Nic);
        assert!(loss.count.known().is_some(), "{name}");
    }
    // veth tells of its drops.
    let driver: Vec<_> = losses.iter().filter(|loss| loss.place == LossPoint::Driver).collect();
    assert!(driver.iter().all(|loss| loss.count != Count::Unknown), "{driver:?}");
    assert!(!driver.is_empty());
}
