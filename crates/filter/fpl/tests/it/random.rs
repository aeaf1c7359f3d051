//! Random programs on random packets: the form computes the meaning of the text.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tapline_fpl::{Compiled, FplOptions, compile, parse, report};
use tapline_ir::optimise::optimise_with_observer;
use tapline_ir::{Ir, Machine, Memory};
use tapline_packet::{Meta, Packet};
use tapline_testkit::fpl::{CELLS, packet, program};
use tapline_testkit::random::Random;

use super::evaluator::Evaluator;
use tapline_testkit::volume::volume;

fn options() -> FplOptions {
    FplOptions { memory_cells: CELLS, ..FplOptions::default() }
}

/// An engine and the memory that it works on.
struct Engine {
    name: &'static str,
    machine: Machine,
    memory: Memory,
}

impl Engine {
    fn new(name: &'static str, ir: &Ir) -> Engine {
        Engine { name, machine: Machine::new(ir.clone()), memory: Memory::new(CELLS) }
    }
}

/// The interpreter on the form as it was made, and as it is after all passes, or after each of them.
fn engines(compiled: &Compiled, each_pass: bool) -> Vec<Engine> {
    let mut engines = vec![Engine::new("as made", &compiled.ir)];
    let mut optimised = compiled.ir.clone();
    optimise_with_observer(&mut optimised, |pass, ir| {
        if each_pass {
            engines.push(Engine::new(pass.name, ir));
        }
    });
    assert_eq!(optimised.verify(), Ok(()), "after the passes");
    engines.push(Engine::new("after all passes", &optimised));
    engines
}

/// Runs some packets one after the other, and compares verdicts and memory after each.
fn compare(text: &str, compiled: &Compiled, mut engines: Vec<Engine>, random: &mut Random) {
    let tree = parse(text).expect("it compiled");
    let mut evaluator = Evaluator::new(&tree, CELLS as usize);
    for _ in 0..12 {
        let data = packet(random);
        let meta = Meta { wire_len: data.len() as u32 + 4, ..Meta::default() };
        let expected = evaluator.run(&data, meta.wire_len);
        for Engine { name, machine, memory } in &mut engines {
            let verdict = machine.run(Packet { data: &data, meta: &meta }, memory);
            assert_eq!(verdict, expected, "{name}: verdict on {data:02x?}");
            let cells: Vec<u64> = (0..u64::from(CELLS)).map(|cell| memory.get(cell)).collect();
            assert_eq!(cells, evaluator.memory, "{name}: memory after {data:02x?}");
        }
        assert!(evaluator.steps <= compiled.work, "{} steps, proven were {}", evaluator.steps, compiled.work);
    }
}

/// Number of programs: TAPLINE_FPL_PROGRAMS, or few enough for every run of the tests.
fn programs() -> u64 {
    volume("TAPLINE_FPL_PROGRAMS", 300)
}

/// Compiles the seed's program; the few that do not compile fail for a reason that is known.
fn compiled(seed: u64) -> Option<(String, Compiled, Random)> {
    const KNOWN: &[&str] = &[
        "divides by 0",
        "there is no cell",
        "there is no piece",
        "behind the end of every packet",
        "steps for one packet",
    ];
    let mut random = Random::new(seed);
    let text = program(&mut random);
    match compile(&text, &options()) {
        Ok(compiled) => Some((text, compiled, random)),
        Err(error) => {
            let is_known = KNOWN.iter().any(|words| error.message.contains(words));
            assert!(is_known, "seed {seed}: {}\n{text}", report(&error, &text));
            None
        }
    }
}

#[test]
fn the_graph_equals_the_text() {
    let mut count = 0;
    for (seed, (text, compiled, mut random)) in
        (0..programs()).filter_map(|seed| Some((seed, compiled(seed)?)))
    {
        assert_eq!(compiled.ir.verify(), Ok(()), "seed {seed}");
        count += 1;
        let as_made = vec![Engine::new("as made", &compiled.ir)];
        let law = catch_unwind(AssertUnwindSafe(|| compare(&text, &compiled, as_made, &mut random)));
        assert!(law.is_ok(), "seed {seed}:\n{text}");
    }
    assert!(count * 10 > programs() * 7, "only {count} programs compile");
}

#[test]
fn the_passes_change_nothing() {
    for (seed, (text, compiled, mut random)) in
        (0..programs()).filter_map(|seed| Some((seed, compiled(seed)?)))
    {
        let law = catch_unwind(AssertUnwindSafe(|| {
            compare(&text, &compiled, engines(&compiled, false), &mut random.clone());
        }));
        if law.is_err() {
            // Once more, to tell the pass.
            println!("seed {seed}:\n{text}");
            compare(&text, &compiled, engines(&compiled, true), &mut random);
        }
    }
}
