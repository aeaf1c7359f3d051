//! Cost and gain of each pass over the graph of values: instruction counts on a set of filters, times on a long one.
//!
//! ```text
//! cargo run --release -p tapline-filter --example passes              the counts after each pass, summed over the filters
//! cargo run --release -p tapline-filter --example passes -- hosts     5,000 hosts: time to classic BPF
//! cargo run --release -p tapline-filter --example passes -- TEXT      the graph of one text after each pass
//! ```

use std::time::{Duration, Instant};

use tapline_bpf::simplify::simplify;
use tapline_filter::{HandleKind, Options, compile, generate, lower, parse};
use tapline_ir::optimise::{PASSES, optimise_with_observer};
use tapline_ir::{Ir, Op, Terminator, raise};
use tapline_packet::LinkType;
use tapline_testkit::random::Random;
use tapline_testkit::stock::{COMMON_FILTERS, Texts};

fn main() {
    match std::env::args().nth(1) {
        Some(word) if word == "hosts" => list(),
        Some(text) => show(&text),
        None => {
            counts(true);
            counts(false);
            times();
            corpus();
        }
    }
}

fn graph(text: &str, simplified: bool) -> Ir {
    let predicates = lower(&parse(text).expect("a filter"), &Options::default()).expect("a filter");
    let cfg = generate(&predicates, 262_144);
    raise(&if simplified { simplify(&cfg) } else { cfg })
}

fn show(text: &str) {
    for simplified in [false, true] {
        let mut ir = graph(text, simplified);
        println!("--- {}\n{ir}", if simplified { "raised, simplified" } else { "raised" });
        optimise_with_observer(&mut ir, |pass, ir| println!("--- {}\n{ir}", pass.name));
    }
}

/// The contents of a graph: blocks, branches, guards, loads, other instructions but constants, parameters.
fn count(ir: &Ir) -> [usize; 6] {
    let mut counts = [0; 6];
    for id in ir.order() {
        let block = &ir[id];
        counts[0] += 1;
        counts[1] +=
            usize::from(matches!(block.terminator, Terminator::Branch { .. } | Terminator::Switch { .. }));
        counts[5] += block.parameters.len();
        for value in &block.instructions {
            match ir.op(*value) {
                Op::Const(_) => {}
                Op::Need(_) | Op::NonZero(_) => counts[2] += 1,
                Op::Load(..) => counts[3] += 1,
                _ => counts[4] += 1,
            }
        }
    }
    counts
}

fn counts(simplified: bool) {
    println!(
        "{} filters, {}",
        COMMON_FILTERS.len(),
        if simplified { "simplified before" } else { "as generated" }
    );
    println!("{:>12} blocks branches guards loads others parameters", "after");
    let mut graphs: Vec<Ir> = COMMON_FILTERS.iter().map(|text| graph(text, simplified)).collect();
    let line = |name: &str, graphs: &[Ir]| {
        let sum = graphs.iter().map(count).fold([0; 6], |mut sum, one| {
            sum.iter_mut().zip(one).for_each(|(sum, one)| *sum += one);
            sum
        });
        println!("{name:>12} {:6} {:8} {:6} {:5} {:6} {:10}", sum[0], sum[1], sum[2], sum[3], sum[4], sum[5]);
    };
    line("raise", &graphs);
    for pass in PASSES {
        for ir in &mut graphs {
            (pass.run)(ir);
        }
        line(pass.name, &graphs);
    }
}

fn hosts(count: u32) -> String {
    let host = |n: u32| format!("host 10.{}.{}.{}", n >> 16, (n >> 8) & 255, n & 255);
    (1..=count).map(host).collect::<Vec<_>>().join(" or ")
}

/// The median time of each step on 1,000 hosts.
fn times() {
    let text = hosts(1000);
    let mut steps: Vec<(&'static str, Vec<Duration>)> = Vec::new();
    for _ in 0..51 {
        let mut at = 0;
        let mut clock = Instant::now();
        let mut lap = |name: &'static str| {
            let took = clock.elapsed();
            match steps.get_mut(at) {
                Some((_, times)) => times.push(took),
                None => steps.push((name, vec![took])),
            }
            at += 1;
            clock = Instant::now();
        };
        let ast = parse(&text).expect("a filter");
        lap("parse");
        let predicates = lower(&ast, &Options::default()).expect("a filter");
        lap("resolve");
        drop(ast);
        let filter = compile(&text, &Options::default()).expect("a filter");
        lap("to BPF");
        let mut ir = filter.unoptimised_values();
        lap("raise");
        for pass in PASSES {
            (pass.run)(&mut ir);
            lap(pass.name);
        }
        let cfg = generate(&predicates, 262_144);
        lap("(generate)");
        simplify(&cfg);
        lap("(simplify)");
    }
    println!(
        "1,000 hosts, medians of 51 runs; to BPF: from text, with parse and resolve; in parentheses: of the list as it stands"
    );
    let mut sum = Duration::ZERO;
    for (name, times) in &mut steps {
        times.sort();
        let median = times[times.len() / 2];
        if *name == "to BPF" || *name == "raise" || PASSES.iter().any(|pass| pass.name == *name) {
            sum += median;
        }
        println!("{name:>12} {median:>10.1?}");
    }
    println!("{:>12} {sum:>10.1?}", "text to IR");
}

/// The median time from text to classic BPF for 5,000 hosts, in a row and at random, and of each step of it.
fn list() {
    let row = hosts(5000);
    let mut random = Random::new(1);
    let at_random =
        |_| format!("host {}", std::net::Ipv4Addr::from(1 + random.below(u64::from(u32::MAX)) as u32));
    let at_random = (0..5000).map(at_random).collect::<Vec<_>>().join(" or ");
    for (name, text) in [("in a row", row), ("at random", at_random)] {
        let options = Options::default();
        let whole = least(30, || compile(&text, &options).expect("a filter"));
        let ast = parse(&text).expect("a filter");
        let parsed = least(30, || parse(&text).expect("a filter"));
        let lowered = least(30, || lower(&ast, &options).expect("a filter"));
        println!("5,000 hosts {name}: to BPF {whole:.1?}, parse {parsed:.1?}, lower {lowered:.1?}");
    }
}

/// Compile times of the texts of the differential corpus.
fn corpus() {
    const TEXTS: usize = 3000;
    const RUNS: u32 = 10;
    let mut random = Random::new(1);
    let mut texts = Texts::new(&mut random);
    let (mut to_ir, mut to_bpf) = (Vec::new(), Vec::new());
    while to_ir.len() < TEXTS {
        let (dlt, text) = texts.next(&mut random);
        let link_type = LinkType::from_dlt(dlt as u16);
        let options = Options { netmask: Some(0), handle: HandleKind::Dead, ..Options::new(link_type) };
        if compile(&text, &options).is_ok() {
            to_ir.push(least(RUNS, || compile(&text, &options).map(|filter| filter.values().cells)));
            to_bpf.push(least(RUNS, || compile(&text, &options).map(drop)));
        }
    }
    println!("{TEXTS} texts of the differential corpus, the least of {RUNS} runs each");
    for (name, times) in [("text to IR", to_ir), ("text to classic BPF", to_bpf)] {
        let mut times = times;
        times.sort();
        let at = |percent: usize| times[(times.len() - 1) * percent / 100];
        println!(
            "{name:>20}: median {:.1?}, 90th {:.1?}, 99th {:.1?}, worst {:.1?}",
            at(50),
            at(90),
            at(99),
            at(100)
        );
    }
}

fn least<T>(runs: u32, mut work: impl FnMut() -> T) -> Duration {
    let time = |_| {
        let clock = Instant::now();
        std::hint::black_box(work());
        clock.elapsed()
    };
    (0..runs).map(time).min().unwrap_or_default()
}
