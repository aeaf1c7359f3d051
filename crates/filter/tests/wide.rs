//! The passes that look values up, widen comparisons and turn them around: the same answers as before them, on random filters and
//! packets, cut at every byte.
//!
//! ```text
//! text --compile, plain and simplified--> program --raise--> graph --each pass alone, and the driver--> graphs
//! packet --cut at every byte--> one answer from all of them
//! ```
//!
//! `TAPLINE_WIDE_TEXTS=20000` sets how many texts are judged.

use tapline_filter::bpf::Program;
use tapline_filter::ir::{Ir, Machine, Memory, raise_program};
use tapline_filter::optimise::{PASSES, optimise_watched};
use tapline_filter::{FixedNames, Handle, Options, compile};
use tapline_packet::{LinkType, Meta, Packet};
use tapline_testkit::expressions::Expressions;
use tapline_testkit::libpcap::{Oracle, RawInsn};
use tapline_testkit::random::Random;

/// The passes that are judged alone here.
const OURS: [&str; 3] = ["widen", "switch", "order"];

/// Link types, as DLTs: Ethernet most often, then those whose headers lead to other code.
const LINK_TYPES: [i32; 18] = [1, 1, 1, 1, 0, 8, 9, 10, 12, 105, 113, 117, 119, 123, 127, 141, 192, 276];

/// Longer packets are not made: each is cut at every byte.
const LEN_MAX: usize = 90;

fn options(dlt: i32, optimise: bool) -> Options {
    Options {
        netmask: Some(0),
        handle: Handle::Dead,
        resolver: std::sync::Arc::new(FixedNames::default()),
        optimise,
        ..Options::new(LinkType::from_dlt(dlt as u16))
    }
}

fn run(machine: &mut Machine, data: &[u8], wire_len: u32) -> u64 {
    let meta = Meta { wire_len, ..Meta::default() };
    machine.run(Packet { data, meta: &meta }, &Memory::new(0))
}

fn passed(name: &str, ir: &Ir) -> Ir {
    let mut ir = ir.clone();
    let pass = PASSES.iter().find(|pass| pass.name == name).expect("the pass is there");
    (pass.run)(&mut ir);
    ir.verify().unwrap_or_else(|fault| panic!("after {name} alone: {fault}\n{ir}"));
    ir
}

fn optimised(ir: &Ir) -> Ir {
    let mut ir = ir.clone();
    optimise_watched(&mut ir, |pass, ir| {
        ir.verify().unwrap_or_else(|fault| panic!("after {}: {fault}\n{ir}", pass.name));
    });
    ir
}

/// All that must answer alike, with their names.
fn machines(programs: &[Program]) -> Vec<(String, Machine)> {
    let mut machines = Vec::new();
    for program in programs {
        let ir = raise_program(program);
        ir.verify().expect("what was raised is safe");
        let once = optimised(&ir);
        machines.push(("driver, twice".to_owned(), Machine::new(optimised(&once))));
        machines.push(("driver".to_owned(), Machine::new(once)));
        for name in OURS {
            machines.push((format!("{name} alone"), Machine::new(passed(name, &ir))));
        }
        machines.push(("raised".to_owned(), Machine::new(ir)));
    }
    machines
}

fn oracle(program: &Program) -> Oracle {
    let raw =
        |insn: &tapline_filter::bpf::Insn| RawInsn { code: insn.code, jt: insn.jt, jf: insn.jf, k: insn.k };
    Oracle::new(program.insns().iter().map(raw).collect())
}

/// Judges a text on packets that are steered through it, each cut at every byte. Whether it is a filter at all.
fn judge(text: &str, dlt: i32, packets: usize, random: &mut Random) -> bool {
    let Ok(plain) = compile(text, &options(dlt, false)) else { return false };
    let programs = match compile(text, &options(dlt, true)) {
        Ok(simplified) => vec![plain, simplified],
        Err(_) => vec![plain],
    };
    let steering: Vec<Oracle> = programs.iter().map(oracle).collect();
    let mut machines = machines(&programs);
    for _ in 0..packets {
        let len = random.below(LEN_MAX as u64) as usize;
        let mut data = random.bytes(len);
        let wire_len = len as u32 + random.below(3) as u32;
        random.pick(&steering).plant(&mut data, wire_len, random);
        data.truncate(LEN_MAX);
        for cut in 0..=data.len() {
            let packet = &data[..cut];
            let expected = run_program(&programs[0], packet, wire_len);
            for (name, machine) in &mut machines {
                let answer = run(machine, packet, wire_len);
                assert_eq!(
                    answer,
                    expected,
                    "{name}: {text:?} on DLT {dlt}, {packet:02x?}\n{}",
                    machine.ir()
                );
            }
        }
    }
    true
}

fn run_program(program: &Program, data: &[u8], wire_len: u32) -> u64 {
    let meta = Meta { wire_len, ..Meta::default() };
    program.run(Packet { data, meta: &meta }).into()
}

fn texts(default: u64) -> u64 {
    std::env::var("TAPLINE_WIDE_TEXTS").map_or(default, |n| n.parse().expect("a number of texts"))
}

#[test]
fn random_filters_answer_as_before() {
    let mut random = Random::new(91);
    let mut judged = 0;
    for seed in 0..texts(400) {
        let dlt = *random.pick(&LINK_TYPES);
        let text = Expressions::new(seed, dlt).text();
        judged += u64::from(judge(&text, dlt, 3, &mut random));
    }
    assert!(judged * 2 > texts(400), "only {judged} texts are filters");
}

#[test]
fn lists_answer_as_before() {
    let mut random = Random::new(92);
    for _ in 0..texts(150) {
        let text = list(&mut random);
        assert!(judge(&text, 1, 4, &mut random), "{text} is a filter");
    }
}

/// Lists of what is looked up: ports, ranges, hosts, nets, hardware addresses.
fn list(random: &mut Random) -> String {
    let parts = random.between(1..=9);
    let kind = random.below(7);
    let parts: Vec<String> = (0..parts).map(|_| part(kind, random)).collect();
    let joint = if random.one_of(3, 4) { " or " } else { " and not " };
    let text = parts.join(joint);
    match random.below(5) {
        0 => format!("not ({text})"),
        1 => format!("tcp and ({text})"),
        2 => format!("({text}) and ip[8] > 4"),
        _ => text,
    }
}

fn part(kind: u64, random: &mut Random) -> String {
    let side = *random.pick(&["", "src ", "dst "]);
    let (low, high) = (random.below(40), random.below(60_000));
    match if kind == 6 { random.below(6) } else { kind } {
        0 => format!("{side}port {low}"),
        1 => format!("{side}port {high}"),
        2 => format!("{side}portrange {low}-{}", low + random.below(30)),
        3 => format!("{side}host 10.0.{}.{low}", high % 3),
        4 => format!("{side}net 10.{}.0.0/{}", low & !3, random.between(14..=16)),
        _ => {
            let address = format!("00:11:22:33:{:02x}:{low:02x}", high % 2);
            let v6 = format!("2001:db8::{}:{low}", high % 2);
            if random.one_of(1, 2) {
                format!("ether {side}host {address}")
            } else {
                format!("{side}host {v6}")
            }
        }
    }
}

#[test]
fn show() {
    let Ok(text) = std::env::var("TAPLINE_WIDE_SHOW") else { return };
    let program = compile(&text, &options(1, true)).expect("a filter");
    eprintln!("{}", optimised(&raise_program(&program)));
}
