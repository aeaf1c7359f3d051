//! Number of packets that wait together.

use std::time::Duration;

use tapline_capture::af_packet::{AfPacket, AfPacketSettings};
use tapline_source::{Advance, Source};
use tapline_testkit::netns::{FAR, NEAR};

use crate::bench::{bench, numbered, send, settings};

/// As long as anything may take that should take no time.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_block_holds_as_many_packets_as_are_asked_for() {
    const PACKETS: u32 = 100;
    let Some(namespace) = bench("a_block_holds_as_many_packets_as_are_asked_for") else { return };
    // Their time does not come in this test.
    let settings = AfPacketSettings {
        latency_ms: 600_000,
        min_packets: Some(PACKETS),
        ring_len: Some(8 << 20),
        ..settings(&namespace, &[FAR])
    };
    let mut source = AfPacket::open(settings).unwrap();
    let long = |number: u32| {
        let mut frame = numbered(number);
        frame.resize(1500, 0);
        frame
    };
    send(&namespace, NEAR, PACKETS - 1, long);
    assert_eq!(source.advance(Duration::ZERO).unwrap(), Advance::Idle, "fewer wait for their time");
    send(&namespace, NEAR, 2 * PACKETS, long);
    assert_eq!(source.advance(PATIENCE).unwrap(), Advance::Batch);
    let together = source.batch().len();
    assert!((PACKETS as usize..2 * PACKETS as usize).contains(&together), "{together}");
}

/// PF_RING's watermark: 64 packets of 64 bytes fill no 64 KiB, so a block is shorter where no packet is longer.
#[test]
fn few_short_packets_come_together() {
    const PACKETS: u32 = 64;
    let Some(namespace) = bench("few_short_packets_come_together") else { return };
    let settings = AfPacketSettings {
        latency_ms: 600_000,
        min_packets: Some(PACKETS),
        snap_len: 64,
        ring_len: Some(8 << 20),
        ..settings(&namespace, &[FAR])
    };
    let mut source = AfPacket::open(settings).unwrap();
    send(&namespace, NEAR, PACKETS - 1, numbered);
    assert_eq!(source.advance(Duration::ZERO).unwrap(), Advance::Idle, "fewer wait for their time");
    let long = |number: u32| {
        let mut frame = numbered(number);
        frame.resize(1500, 0);
        frame
    };
    send(&namespace, NEAR, PACKETS, long);
    assert_eq!(source.advance(PATIENCE).unwrap(), Advance::Batch);
    let batch = source.batch();
    assert!((PACKETS as usize..2 * PACKETS as usize).contains(&batch.len()), "{}", batch.len());
    assert!(batch.records().iter().all(|record| record.cap_len <= 64), "no packet needs more room");
}
