//! The cost of the measuring itself on this machine: the clock, a meter, the time stamp modes.
//!
//!     cargo run --release -p tapline-meters --example costs

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tapline_meters::{Clock, Cost, Meter, Meters, Reader, measure_stamps, stamps_to_text};

const RUNS: usize = 2001;
const ADDS: u64 = 256;

fn main() {
    let clock = Clock::get();
    println!("{clock}\n");
    let shared = Meters::create("costs");
    if let Some(reason) = shared.reason() {
        println!("shared    {reason}");
    }
    println!("Meter::add, cycles (median of {RUNS} runs of {ADDS}; p10 to p90)");
    let private = Meters::private();
    for (title, meters, stages) in [
        ("private, one stage", &private, 1),
        ("shared, one stage", &shared, 1),
        ("shared, five stages in turn", &shared, 5),
        ("shared, 64 stages in turn", &shared, 64),
    ] {
        let all: Vec<Meter> = (0..stages).map(|_| meters.slot("stage", "count", 0)).collect();
        print(title, clock, |round| {
            all[round as usize % all.len()].add(&cost(round));
        });
    }
    let meter = shared.slot("stage", "count", 0);
    print("two readings and an add", clock, |round| {
        let before = clock.now();
        black_box(round);
        let cycles = clock.now().wrapping_sub(before);
        meter.add(&Cost { cycles, ..cost(round) });
    });

    if let Some(path) = shared.path() {
        let meter = shared.slot("stage", "count", 0);
        for (title, pause) in [("a reader ten times a second", 100), ("a reader without a pause", 0)] {
            let stop = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    let reader = Reader::open(path).expect("our own file");
                    while !stop.load(Ordering::Relaxed) {
                        black_box(reader.snapshot().expect("our own file"));
                        thread::sleep(Duration::from_millis(pause));
                    }
                });
                print(title, clock, |round| meter.add(&cost(round)));
                stop.store(true, Ordering::Relaxed);
            });
        }
    }

    print!("\n{}", stamps_to_text(&measure_stamps(Duration::from_secs(2))));
}

/// Batches as they come: of different sizes and costs.
fn cost(round: u64) -> Cost {
    let packets = 1 + round * 7 % 256;
    black_box(Cost {
        cycles: packets * (10 + round % 50),
        packets_in: packets,
        bytes_in: packets * 64,
        packets_out: packets,
        bytes_out: packets * 64,
    })
}

/// The work, without the loop and without the parts that add up to a cost. All variants take turns with the empty
/// loop.
fn print(title: &str, clock: &Clock, mut work: impl FnMut(u64)) {
    let run = |work: &mut dyn FnMut(u64)| {
        let before = clock.now();
        work(0);
        clock.now().wrapping_sub(before) as f64 / ADDS as f64
    };
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        with.push(run(&mut |_| (0..ADDS).for_each(&mut work)));
        without.push(run(&mut |_| {
            (0..ADDS).for_each(|round| {
                black_box(cost(round));
            })
        }));
    }
    with.sort_by(f64::total_cmp);
    without.sort_by(f64::total_cmp);
    let at = |share: usize| with[RUNS * share / 100] - without[RUNS / 2];
    println!("{title:28} {:6.1}  ({:.1} to {:.1})", at(50), at(10), at(90));
}
