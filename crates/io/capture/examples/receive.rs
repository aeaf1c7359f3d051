//! The cost of receiving: processor time a packet of the loop that only looks at each packet's length.
//!
//! ```text
//! cargo run --release -p tapline-capture --example receive [packets [frame_len [ring_KiB]]]
//! ```
//!
//! A thread sends on one end of a veth pair as fast as the kernel takes frames; this thread receives on the other end.
//! Time in the kernel that is spent on receiving counts for the sender here: on veth it runs in the sender's context.

use std::time::{Duration, Instant};

use tapline_capture::af_packet::{AfPacket, AfPacketSettings, LATENCY_RECORDING_MS};
use tapline_source::{Advance, Source};
use tapline_sys::usage::CpuTime;
use tapline_testkit::netns::{FAR, Namespace};
use tapline_testkit::sender::{Pace, Sender};

fn main() {
    let arguments: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let argument = |index: usize, default: u64| arguments.get(index).copied().unwrap_or(default);
    let (count, frame_len) = (argument(0, 5_000_000), argument(1, 60) as usize);
    let ring_len = arguments.get(2).map(|kib| kib << 10);

    let namespace = Namespace::with_pair("receive").expect("needs the right to make namespaces");
    let netns = Some(namespace.name().to_owned());
    let latency_ms = LATENCY_RECORDING_MS;
    let settings = AfPacketSettings { netns, latency_ms, ring_len, ..AfPacketSettings::new(&[FAR]) };
    let mut source = AfPacket::open(settings).expect("needs CAP_NET_RAW");
    let mut sender = Sender::near(&namespace).expect("needs CAP_NET_RAW");
    let frame = {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
        frame.resize(frame_len, 0);
        frame
    };

    let start = Instant::now();
    let (sent, loop_cost) = std::thread::scope(|scope| {
        let sending =
            scope.spawn(|| sender.send(&[frame], count, Pace::Full).expect("the kernel takes frames"));
        let before = CpuTime::of_thread();
        while !sending.is_finished() {
            receive(&mut source);
        }
        let sent = sending.join().expect("the sender ends");
        source.stop().expect("a capture can be stopped");
        while receive(&mut source) != Advance::End {}
        (sent, CpuTime::of_thread().since(before))
    });
    report(&mut source, sent.packets, sent.rate(), loop_cost, start.elapsed());
}

fn receive(source: &mut AfPacket) -> Advance {
    let advance = source.advance(Duration::from_millis(20)).expect("the capture goes on");
    let bytes: usize = source.batch().iter().map(|packet| packet.data.len()).sum();
    std::hint::black_box(bytes);
    advance
}

fn report(source: &mut AfPacket, sent: u64, rate: f64, cost: CpuTime, elapsed: Duration) {
    for (name, ring) in source.rings() {
        println!("ring on {name}: {} blocks of {} KiB", ring.block_count, ring.block_len >> 10);
    }
    let account = source.account().remove(0);
    let ring = account.ring.expect("a live interface has a ring");
    println!("sent {sent} at {rate:.0} a second, in {:.2} s", elapsed.as_secs_f64());
    println!(
        "delivered {} + dropped {} = {}",
        account.delivered,
        ring.dropped,
        account.delivered + ring.dropped
    );
    let each = |time: Duration| time.as_nanos() as f64 / account.delivered.max(1) as f64;
    println!("a packet delivered: {:.1} ns user, {:.1} ns system", each(cost.user), each(cost.system));
}
