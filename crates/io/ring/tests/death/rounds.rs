//! Rounds of one death each, and the events that they must have seen in sum.

mod child;
mod events;
mod packets;
mod reader;
mod readers_die;
mod writer_dies;

use std::env;

use tapline_testkit::random::Random;

use events::Sums;
use readers_die::readers_die;
use writer_dies::writer_dies;

pub(crate) fn main() {
    let args: Vec<String> = env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("as-reader") => reader::as_reader(args[2].parse().expect("a pace")),
        Some("as-writer") => writer_dies::as_writer(args[2].parse().expect("a seed")),
        Some("--list") => {}
        _ => rounds(),
    }
}

fn number_of(name: &str, default: u64) -> u64 {
    env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

fn rounds() {
    let (count, seed) = (number_of("TAPLINE_RING_DEATHS", 100), number_of("TAPLINE_RING_SEED", 1));
    println!("{count} rounds of death from seed {seed}");
    let mut sums = Sums::default();
    for round in seed..seed + count {
        let mut random = Random::new(round);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            if random.one_of(3, 10) { writer_dies(&mut random) } else { readers_die(&mut random) }
        }));
        match outcome {
            Ok(found) => sums.add(&found),
            Err(_) => panic!("TAPLINE_RING_DEATHS=1 TAPLINE_RING_SEED={round} repeats it"),
        }
    }
    println!("{sums:?}");
    assert!(sums.delivered > 0 && sums.kills > 0, "nothing was tested");
    // Whether these come about is a matter of time: only that many rounds make it sure.
    if count >= 1000 {
        let Sums { stops, overwritten, index_full, unread, demoted, in_place, replayed, skipped, .. } = sums;
        let sums = [stops, overwritten, index_full, unread, demoted, in_place, replayed, skipped];
        assert!(sums.iter().all(|sum| *sum > 0));
    }
    println!("every account balanced");
}
