//! Random programs on random packets: what the form computes is what the text says.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tapline_filter::fpl::{Compiled, FplOptions, compile, parse, report};
use tapline_filter::ir::{Machine, Memory};
use tapline_packet::{Meta, Packet};
use tapline_testkit::fpl::{CELLS, packet, program};
use tapline_testkit::random::Random;

use crate::evaluator::Evaluator;

fn options() -> FplOptions {
    FplOptions { memory_cells: CELLS, ..FplOptions::default() }
}

/// Runs some packets one after the other, and compares verdicts and memory after each.
fn compare(text: &str, compiled: &Compiled, random: &mut Random) {
    let tree = parse(text).expect("it compiled");
    let mut evaluator = Evaluator::new(&tree, CELLS as usize);
    let memory = Memory::new(CELLS);
    let mut machine = Machine::new(compiled.ir.clone());
    for _ in 0..12 {
        let data = packet(random);
        let meta = Meta { wire_len: data.len() as u32 + 4, ..Meta::default() };
        let expected = evaluator.run(&data, meta.wire_len);
        assert_eq!(
            machine.run(Packet { data: &data, meta: &meta }, &memory),
            expected,
            "verdict on {data:02x?}"
        );
        let cells: Vec<u64> = (0..u64::from(CELLS)).map(|cell| memory.get(cell)).collect();
        assert_eq!(cells, evaluator.memory, "memory after {data:02x?}");
        assert!(evaluator.steps <= compiled.work, "{} steps, proven were {}", evaluator.steps, compiled.work);
    }
}

#[test]
fn the_form_computes_what_the_text_says() {
    let programs: u64 =
        std::env::var("TAPLINE_FPL_PROGRAMS").ok().and_then(|n| n.parse().ok()).unwrap_or(1500);
    let mut compiled_count = 0;
    for seed in 0..programs {
        let mut random = Random::new(seed);
        let text = program(&mut random);
        let compiled = match compile(&text, &options()) {
            Ok(compiled) => compiled,
            Err(error) => {
                let known = [
                    "divides by 0",
                    "there is no cell",
                    "there is no piece",
                    "behind the end of every packet",
                ];
                assert!(
                    known.iter().any(|words| error.message.contains(words)),
                    "{}\n{text}",
                    report(&error, &text)
                );
                continue;
            }
        };
        assert_eq!(compiled.ir.verify(), Ok(()), "seed {seed}");
        compiled_count += 1;
        let law = catch_unwind(AssertUnwindSafe(|| compare(&text, &compiled, &mut random)));
        assert!(law.is_ok(), "seed {seed}:\n{text}");
    }
    assert!(compiled_count * 10 > programs * 7, "only {compiled_count} of {programs} programs compile");
}
