//! The length of programs: ours beside libpcap's, on the texts of the differential corpus; and graphs of values back in classic BPF.
//!
//! ```text
//! (a) libpcap's optimised program
//! (b) text --simplify--> program
//! (c) text --generate--> block graph --raise, portable passes--> values --select, simplify--> program
//! ```
//!
//! `TAPLINE_WIDE_TEXTS=20000` sets how many texts are compiled.

use tapline_filter::bpf::code::*;
use tapline_filter::bpf::{Insn, Program};
use tapline_filter::cfg::Cfg;
use tapline_filter::ir::{Ir, Machine, Memory, decode, raise, raise_program, select};
use tapline_filter::optimise::portable;
use tapline_filter::{FixedNames, Handle, Options, assemble, compile, generate, lower, parse, simplify};
use tapline_packet::{LinkType, Meta, Packet};
use tapline_testkit::expressions::Expressions;
use tapline_testkit::libpcap::{Libpcap, Oracle, RawInsn, Settings};
use tapline_testkit::random::Random;

/// The link types of the differential corpus.
const LINK_TYPES: [i32; 24] =
    [1, 1, 1, 1, 1, 1, 1, 1, 0, 9, 10, 12, 50, 104, 105, 105, 113, 117, 119, 123, 127, 127, 192, 276];

fn options(dlt: i32) -> Options {
    Options {
        netmask: Some(0),
        handle: Handle::Dead,
        resolver: std::sync::Arc::new(FixedNames::default()),
        ..Options::new(LinkType::from_dlt(dlt as u16))
    }
}

/// A graph as values, after the passes that classic BPF can follow.
fn values(cfg: &Cfg) -> Ir {
    let mut ir = raise(cfg);
    for pass in portable() {
        (pass.run)(&mut ir);
    }
    ir
}

/// A graph through values and back.
fn through_values(cfg: &Cfg) -> Result<Program, String> {
    let ir = values(cfg);
    let selected = select(&ir).map_err(|reason| reason.to_string())?;
    let insns = assemble(&simplify(&selected));
    Program::new(insns).map_err(|invalid| format!("{invalid}"))
}

fn texts(default: u64) -> u64 {
    std::env::var("TAPLINE_WIDE_TEXTS").map_or(default, |n| n.parse().expect("a number of texts"))
}

#[test]
fn programs_are_no_longer_than_those_of_libpcap() {
    let pcap = match Libpcap::get() {
        Ok(pcap) => pcap,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let mut random = Random::new(7);
    let (mut theirs, mut ours, mut through, mut counted, mut unsupported) = (0, 0, 0, 0, 0);
    for seed in 0..texts(2_000) {
        let dlt = *random.pick(&LINK_TYPES);
        let text = Expressions::new(seed, dlt).text();
        let Ok(libpcap) = pcap.compile(&text, Settings::new(dlt)) else { continue };
        let Ok(program) = compile(&text, &options(dlt)) else { continue };
        let predicates = parse(&text).and_then(|ast| lower(&ast, &options(dlt))).expect("it compiled");
        counted += 1;
        theirs += libpcap.insns().len();
        ours += program.insns().len();
        let raw = generate(&predicates, options(dlt).snap_len);
        match through_values(&raw) {
            Ok(back) => {
                if std::env::var_os("TAPLINE_WIDE_WORSE").is_some()
                    && back.insns().len() > program.insns().len()
                {
                    eprintln!("{:+} {dlt} {text}", back.insns().len() - program.insns().len());
                }
                through += back.insns().len();
            }
            Err(reason) => {
                eprintln!("{dlt} {text}: {reason}");
                unsupported += 1;
                through += program.insns().len();
            }
        }
    }
    eprintln!(
        "{counted} texts, {}: libpcap {theirs} instructions, ours {ours}, through values {through}, {unsupported} not selected",
        pcap.version()
    );
    assert!(counted > texts(2_000) / 2, "only {counted} texts are filters");
    assert!(ours <= theirs, "ours {ours}, libpcap's {theirs}");
}

fn run(program: &Program, data: &[u8], wire_len: u32) -> u32 {
    let meta = Meta { wire_len, ..Meta::default() };
    program.run(Packet { data, meta: &meta })
}

/// Programs from elsewhere, through values and back, answer as they did.
#[test]
fn selected_programs_answer_as_before() {
    let mut random = Random::new(8);
    let mut judged = 0;
    for seed in 0..texts(300) {
        let dlt = *random.pick(&LINK_TYPES);
        let text = Expressions::new(seed + 1_000_000, dlt).text();
        let Ok(program) = compile(&text, &Options { optimise: false, ..options(dlt) }) else { continue };
        let plain = select(&raise_program(&program)).expect("what was a program becomes one");
        let plain = Program::new(assemble(&plain)).expect("a program");
        let through = through_values(&decode(&program)).expect("what was a program becomes one");
        let mut machine = Machine::new(values(&decode(&program)));
        judged += 1;
        let raw = |insn: &tapline_filter::bpf::Insn| RawInsn {
            code: insn.code,
            jt: insn.jt,
            jf: insn.jf,
            k: insn.k,
        };
        let steering = Oracle::new(program.insns().iter().map(raw).collect());
        for _ in 0..4 {
            let mut data = {
                let len = random.below(90) as usize;
                random.bytes(len)
            };
            let wire_len = data.len() as u32;
            steering.plant(&mut data, wire_len, &mut random);
            for cut in 0..=data.len() {
                let expected = run(&program, &data[..cut], wire_len);
                let meta = Meta { wire_len, ..Meta::default() };
                let packet = Packet { data: &data[..cut], meta: &meta };
                assert_eq!(
                    machine.run(packet, &Memory::new(0)),
                    expected.into(),
                    "values: {text} on DLT {dlt}, {:02x?}\n{}",
                    &data[..cut],
                    machine.ir()
                );
                for (name, other) in [("selected", &plain), ("optimised and selected", &through)] {
                    assert_eq!(
                        run(other, &data[..cut], wire_len),
                        expected,
                        "{name}: {text} on DLT {dlt}, {:02x?}",
                        &data[..cut]
                    );
                }
            }
        }
    }
    assert!(judged * 2 > texts(300), "only {judged} texts are filters");
}

/// A program through values, selected as they are.
fn selected(insns: Vec<Insn>) -> [Program; 2] {
    let program = Program::new(insns).expect("a program");
    let cfg = select(&raise_program(&program)).expect("what was a program becomes one");
    [program, Program::new(assemble(&cfg)).expect("a program")]
}

fn assert_same(insns: Vec<Insn>) {
    let [given, back] = selected(insns);
    for first in 0..=u8::MAX {
        assert_eq!(run(&back, &[first; 4], 4), run(&given, &[first; 4], 4), "{first}");
    }
}

/// Found by fuzzing: a divisor that differs by the way.
#[test]
fn a_divisor_may_come_from_several_ways() {
    assert_same(vec![
        Insn::new(LD | B | ABS, 0),
        Insn::jump(JMP | JEQ | K, 1, 0, 2),
        Insn::new(LDX | IMM, 2),
        Insn::new(JMP | JA, 1),
        Insn::new(LDX | IMM, 0),
        Insn::new(LD | IMM, 10),
        Insn::new(ALU | DIV | X, 0),
        Insn::new(RET | A, 0),
    ]);
}

/// A guard stands before its block: what it asks about is not in its cell yet.
#[test]
fn a_guard_reads_no_cell_before_it_is_written() {
    assert_same(vec![
        Insn::new(LD | B | ABS, 0),
        Insn::new(ALU | MUL | K, 3),
        Insn::new(ALU | ADD | K, 1),
        Insn::new(ALU | XOR | K, 5),
        Insn::new(ST, 0),
        Insn::new(ALU | AND | K, 255),
        Insn::new(MISC | TAX, 0),
        Insn::new(LD | IMM, 1000),
        Insn::new(ALU | DIV | X, 0),
        Insn::new(LDX | MEM, 0),
        Insn::new(ALU | ADD | X, 0),
        Insn::new(RET | A, 0),
    ]);
}
