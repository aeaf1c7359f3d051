//! Number of packets that wait together.

use std::path::Path;
use std::time::{Duration, Instant};

use tapline_capture::af_packet::{AfPacket, AfPacketSettings};
use tapline_capture::af_xdp::{AfXdp, AfXdpSettings};
use tapline_source::{Advance, Source};
use tapline_testkit::netns::{FAR, NEAR};
use tapline_testkit::sender::{Pace, Sender};

use crate::bench::{arrive, bench, number_of, numbered, ring_of, send, settings};

/// As long as anything may take that should take no time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A frame that fills much of a block.
fn long(number: u32) -> Vec<u8> {
    let mut frame = numbered(number);
    frame.resize(1500, 0);
    frame
}

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
    send(&namespace, NEAR, PACKETS, long);
    assert_eq!(source.advance(PATIENCE).unwrap(), Advance::Batch);
    let batch = source.batch();
    assert!((PACKETS as usize..2 * PACKETS as usize).contains(&batch.len()), "{}", batch.len());
    assert!(batch.records().iter().all(|record| record.cap_len <= 64), "no packet needs more room");
}

/// Packets in the block that the kernel was filling are lent at once after a stop, and each of them once.
#[test]
fn a_stop_waits_for_no_block() {
    const COUNT: u32 = 5_000;
    let Some(namespace) = bench("a_stop_waits_for_no_block") else { return };
    if let Err(error) = tapline_sys::wait_for_receive_paths() {
        return eprintln!("skipped: a_stop_waits_for_no_block: {error}");
    }
    for count in [0, 1, COUNT] {
        // Their time does not come in this test, and the last block of several is never full.
        let ring_len = Some(2 << 20);
        let patient = AfPacketSettings { latency_ms: 600_000, ring_len, ..settings(&namespace, &[FAR]) };
        let mut source = AfPacket::open(patient).unwrap();
        send(&namespace, NEAR, count, numbered);
        arrive(&mut source, count.into());
        source.stop().unwrap();
        let mut numbers = Vec::new();
        while source.advance(Duration::ZERO).unwrap() == Advance::Batch {
            numbers.extend(source.batch().iter().map(|packet| number_of(packet.data)));
        }
        assert!(numbers.into_iter().eq(0..count), "all of {count} are there without a wait");
        assert_eq!(source.advance(Duration::ZERO).unwrap(), Advance::End);
        assert_eq!((ring_of(&mut source).1, ring_of(&mut source).0.unread), (count.into(), 0));
    }
}

/// Whether a thread sleeps, and does not wait for a processor: field 3 of proc(5) `stat`.
fn is_asleep(thread: &Path) -> bool {
    let stat = std::fs::read_to_string(thread.join("stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|fields| fields.starts_with('S'))
}

/// The memory of a queue bounds the rest of an AF_XDP source, however patient its readers are: a longer rest would fill
/// the queue several times. Packets come while the reader rests, and none while it waits for a processor.
#[test]
fn a_patient_af_xdp_source_loses_no_packet() {
    const COUNT: u32 = 5_000;
    // 1024 chunks, which are enough for a pause of the reader of 200 ms.
    let ring_len = Some(1024 * 2048);
    let Some(namespace) = bench("a_patient_af_xdp_source_loses_no_packet") else { return };
    let netns = Some(namespace.name().to_owned());
    let mut source = match AfXdp::open(&AfXdpSettings { netns, ring_len, ..AfXdpSettings::new(&[FAR]) }) {
        Ok(source) => source,
        Err(error) => return eprintln!("skipped: a_patient_af_xdp_source_loses_no_packet: {error}"),
    };
    source.set_max_latency(PATIENCE * 10);
    let mut numbers = Vec::new();
    let reader = Path::new("/proc").join(std::fs::read_link("/proc/thread-self").unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let frames: Vec<Vec<u8>> = (0..COUNT).map(numbered).collect();
            let mut sender = Sender::near(&namespace).unwrap();
            for part in frames.chunks(50) {
                while !is_asleep(&reader) {
                    std::thread::yield_now();
                }
                // The queue in front of a veth's program holds 256 packets.
                sender.send(part, part.len() as u64, Pace::PerSecond(5_000)).unwrap();
            }
        });
        let start = Instant::now();
        while numbers.len() < COUNT as usize {
            if source.advance(PATIENCE).unwrap() == Advance::Batch {
                numbers.extend(source.batch().iter().map(|packet| number_of(packet.data)));
            }
            assert_eq!(source.account()[0].ring.unwrap().dropped, 0);
            assert!(start.elapsed() < PATIENCE, "{} packets came", numbers.len());
        }
    });
    assert!(numbers.into_iter().eq(0..COUNT));
}
