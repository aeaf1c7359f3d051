//! Compares AF_XDP with AF_PACKET on a veth pair, interleaved: packets delivered a second, and time of the receiving
//! thread for each.
//!
//! ```text
//! cargo run --release -p tapline-capture --example receive_both [packets [frame_len [rounds]]]
//! ```
//!
//! A thread sends on one end as fast as the kernel takes frames; this thread looks at each packet's length on the
//! other. In a veth with an XDP program packets wait in a queue of 256: others are dropped before the program sees
//! them, and are neither delivered nor lost here.

use std::time::{Duration, Instant};

use tapline_capture::af_packet::{self, AfPacket, LATENCY_RECORDING_MS};
use tapline_capture::af_xdp::{self, AfXdp};
use tapline_source::{Advance, Source};
use tapline_sys::usage::CpuTime;
use tapline_testkit::netns::{FAR, Namespace};
use tapline_testkit::sender::{Pace, Sender};

/// The result of a round.
struct Round {
    /// Packets delivered in a second.
    rate: f64,
    /// Share of the packets sent that were delivered.
    share: f64,
    /// Nanoseconds of this thread for each packet delivered, in user space and in the kernel.
    cost: [f64; 2],
}

fn main() {
    let arguments: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let argument = |index: usize, default: u64| arguments.get(index).copied().unwrap_or(default);
    let (count, frame_len, rounds) = (argument(0, 300_000), argument(1, 60) as usize, argument(2, 7));
    let mut found: [Vec<Round>; 2] = Default::default();
    for _ in 0..rounds {
        for (is_xdp, rounds) in [false, true].into_iter().zip(&mut found) {
            let namespace = Namespace::with_pair("both").expect("needs the right to make namespaces");
            let mut source = open(&namespace, is_xdp);
            rounds.push(round(&namespace, source.as_mut(), count, frame_len));
        }
    }
    for (name, rounds) in ["AF_PACKET", "AF_XDP"].into_iter().zip(&found) {
        let median = |of: fn(&Round) -> f64| {
            let mut values: Vec<f64> = rounds.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        println!(
            "{name:9}  delivered {:>9.0}/s, {:5.1} % of those sent; a packet {:5.1} ns user, {:6.1} ns system",
            median(|round| round.rate),
            median(|round| 100.0 * round.share),
            median(|round| round.cost[0]),
            median(|round| round.cost[1]),
        );
    }
}

fn open(namespace: &Namespace, is_xdp: bool) -> Box<dyn Source> {
    let netns = Some(namespace.name().to_owned());
    if is_xdp {
        let settings = af_xdp::AfXdpSettings { netns, ..af_xdp::AfXdpSettings::new(&[FAR]) };
        Box::new(AfXdp::open(&settings).expect("needs root"))
    } else {
        let latency_ms = LATENCY_RECORDING_MS;
        let settings =
            af_packet::AfPacketSettings { netns, latency_ms, ..af_packet::AfPacketSettings::new(&[FAR]) };
        Box::new(AfPacket::open(settings).expect("needs CAP_NET_RAW"))
    }
}

fn round(namespace: &Namespace, source: &mut dyn Source, count: u64, frame_len: usize) -> Round {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    frame.resize(frame_len, 0);
    let mut sender = Sender::near(namespace).expect("needs CAP_NET_RAW");
    let start = Instant::now();
    let (sent, cost) = std::thread::scope(|scope| {
        let sending =
            scope.spawn(move || sender.send(&[frame], count, Pace::Full).expect("the kernel takes frames"));
        let before = CpuTime::of_thread();
        while !sending.is_finished() {
            receive(source);
        }
        let sent = sending.join().expect("the sender ends");
        source.stop().expect("a capture can be stopped");
        while receive(source) != Advance::End {}
        (sent, CpuTime::of_thread().since(before))
    });
    let elapsed = start.elapsed().as_secs_f64();
    let account = source.account().remove(0);
    assert_eq!(account.imbalance(), None);
    let delivered = account.delivered as f64;
    let each = |time: Duration| time.as_nanos() as f64 / delivered.max(1.0);
    Round {
        rate: delivered / elapsed,
        share: delivered / sent.packets as f64,
        cost: [each(cost.user), each(cost.system)],
    }
}

fn receive(source: &mut dyn Source) -> Advance {
    let advance = source.advance(Duration::from_millis(20)).expect("the capture goes on");
    let bytes: usize = source.batch().iter().map(|packet| packet.data.len()).sum();
    std::hint::black_box(bytes);
    advance
}
