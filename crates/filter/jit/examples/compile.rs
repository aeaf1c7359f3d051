//! Time and size from text to native code: the texts of the differential corpus, and a list of 1,000 hosts.
//!
//! ```text
//! cargo run --release -p tapline-jit --example compile
//! ```
//!
//! The least of several runs each, so other load on the machine counts little. Native code: the function for batches,
//! which filters over batches have; the function for one packet is generated when it is first called.

use std::hint::black_box;
use std::time::{Duration, Instant};

use tapline_filter::{HandleKind, Options, compile};
use tapline_jit::Native;
use tapline_packet::LinkType;
use tapline_testkit::random::Random;
use tapline_testkit::stock::Texts;

const TEXTS: usize = 1000;

/// Each step of each text runs so often; the least counts.
const RUNS: u32 = 10;

fn main() {
    let mut random = Random::new(1);
    let mut texts = Texts::new(&mut random);
    let mut steps: [Vec<Duration>; 3] = Default::default();
    while steps[0].len() < TEXTS {
        let (dlt, text) = texts.next(&mut random);
        let options = Options {
            netmask: Some(0),
            handle: HandleKind::Dead,
            ..Options::new(LinkType::from_dlt(dlt as u16))
        };
        if let Some(times) = measure(&text, &options) {
            steps.iter_mut().zip(times).for_each(|(step, time)| step.push(time));
        }
    }
    println!("{TEXTS} texts of the differential corpus, the least of {RUNS} runs each");
    for (name, mut times) in
        ["text to values", "values to native code", "text to native code"].iter().zip(steps)
    {
        times.sort();
        let at = |percent: usize| times[(times.len() - 1) * percent / 100];
        println!("{name:>22}: median {:.1?}, 90th {:.1?}, 99th {:.1?}", at(50), at(90), at(99));
    }
    let host = |n: u32| format!("host 10.0.{}.{}", n >> 8, n & 255);
    let list = (1..=1000).map(host).collect::<Vec<_>>().join(" or ");
    if let Some([values, native, _]) = measure(&list, &Options::default()) {
        println!("1,000 hosts: text to values {values:.1?}, values to native code {native:.1?}");
    }
}

/// Text to values, values to native code, both; `None` if the text is not a filter.
fn measure(text: &str, options: &Options) -> Option<[Duration; 3]> {
    let filter = compile(text, options).ok()?;
    Native::of(&filter).ok()?;
    let values = least(|| drop(black_box(compile(text, options).map(|filter| filter.values().cells))));
    let native = least(|| drop(black_box(Native::of(&filter))));
    Some([values, native, values + native])
}

fn least(mut work: impl FnMut()) -> Duration {
    let time = |_| {
        let clock = Instant::now();
        work();
        clock.elapsed()
    };
    (0..RUNS).map(time).min().unwrap_or_default()
}
