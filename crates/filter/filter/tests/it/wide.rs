//! The passes that look values up, widen comparisons and turn them around: the same answers as before them, on random
//! filters and packets, cut at every byte.
//!
//! ```text
//! text --compile, plain and simplified--> program --raise--> graph --each pass alone, and the driver--> graphs
//! packet --cut at every byte--> one answer from all of them
//! ```
//!
//! `TAPLINE_WIDE_TEXTS=20000` sets how many texts are judged.

use std::collections::HashMap;

use tapline_bpf::Program;
use tapline_filter::{FixedNames, HandleKind, Options, compile};
use tapline_ir::optimise::{PASSES, optimise_with_observer};
use tapline_ir::{
    Builder, ByteOrder, Comparison, Ir, Machine, Memory, Op, PacketOffset, Terminator, Value, Width,
    raise_program,
};
use tapline_packet::{LinkType, Meta, Packet, VlanTag};
use tapline_testkit::expressions::Expressions;
use tapline_testkit::layers;
use tapline_testkit::libpcap::LibpcapProgram;
use tapline_testkit::random::Random;
use tapline_testkit::stock::Wording;
use tapline_testkit::volume::volume;

/// The passes that are judged alone here.
const OURS: [&str; 3] = ["widen", "switch", "order"];

/// Link types, as DLTs: Ethernet most often, then those whose headers lead to other code.
const LINK_TYPES: [i32; 18] = [1, 1, 1, 1, 0, 8, 9, 10, 12, 105, 113, 117, 119, 123, 127, 141, 192, 276];

/// Longer packets are not made: each is cut at every byte.
const LEN_MAX: usize = 90;

fn options(wording: &Wording, optimise: bool) -> Options {
    let Wording { dlt, scoped, ipv6_extensions, .. } = *wording;
    Options {
        netmask: Some(0),
        handle: if wording.has_forms { HandleKind::Live } else { HandleKind::Dead },
        scoped,
        ipv6_extensions,
        resolver: std::sync::Arc::new(FixedNames::default()),
        optimise,
        ..Options::new(LinkType::from_dlt(dlt as u16))
    }
}

/// Packets of every fourth length have a tag in the metadata.
fn meta(data: &[u8], wire_len: u32) -> Meta {
    let tag = VlanTag { tpid: 0x8100, tci: 5 };
    Meta { wire_len, vlan: data.len().is_multiple_of(4).then_some(tag), ..Meta::default() }
}

fn run(machine: &mut Machine, data: &[u8], wire_len: u32) -> u64 {
    let meta = meta(data, wire_len);
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
    optimise_with_observer(&mut ir, |pass, ir| {
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

fn oracle(program: &Program) -> LibpcapProgram {
    LibpcapProgram::new(program.insns().to_vec())
}

/// Judges a text on packets that are steered through it, each cut at every byte. Whether it is a filter at all.
fn judge(wording: &Wording, packets: usize, random: &mut Random) -> bool {
    let Ok(plain) = compile(&wording.text, &options(wording, false)) else { return false };
    let simplified = compile(&wording.text, &options(wording, true)).ok();
    let programs: Vec<Program> =
        [plain].iter().chain(&simplified).map(|filter| filter.program().clone()).collect();
    let steering: Vec<LibpcapProgram> = programs.iter().map(oracle).collect();
    let mut machines = machines(&programs);
    for _ in 0..packets {
        let mut data = match wording.has_forms {
            true => layers::frame(random),
            false => noise(random),
        };
        let wire_len = data.len() as u32 + random.below(3) as u32;
        random.pick(&steering).plant(&mut data, wire_len, random);
        data.truncate(LEN_MAX);
        for cut in 0..=data.len() {
            let packet = &data[..cut];
            let expected = run_program(&programs[0], packet, wire_len);
            for (name, machine) in &mut machines {
                let answer = run(machine, packet, wire_len);
                assert_eq!(answer, expected, "{name}: {wording:?}, {packet:02x?}\n{}", machine.ir());
            }
        }
    }
    true
}

fn noise(random: &mut Random) -> Vec<u8> {
    let len = random.below(LEN_MAX as u64) as usize;
    random.bytes(len)
}

fn run_program(program: &Program, data: &[u8], wire_len: u32) -> u64 {
    let meta = meta(data, wire_len);
    program.run(Packet { data, meta: &meta }).into()
}

/// A text of the old language.
fn plain(dlt: i32, text: String) -> Wording {
    Wording { dlt, text, scoped: false, ipv6_extensions: false, has_forms: false }
}

fn texts(default: u64) -> u64 {
    volume("TAPLINE_WIDE_TEXTS", default / 4)
}

#[test]
fn random_filters_answer_as_before() {
    let mut random = Random::new(91);
    let mut judged = 0;
    for seed in 0..texts(400) {
        let dlt = *random.pick(&LINK_TYPES);
        let text = Expressions::new(seed, dlt).text();
        judged += u64::from(judge(&plain(dlt, text), 3, &mut random));
    }
    assert!(judged * 2 > texts(400), "only {judged} texts are filters");
}

#[test]
fn forms_answer_as_before() {
    let mut random = Random::new(93);
    let mut judged = 0;
    for _ in 0..texts(200) {
        judged += u64::from(judge(&Wording::of_forms(&mut random), 3, &mut random));
    }
    assert!(judged * 2 > texts(200), "only {judged} texts are filters");
}

/// A chain's last blocks may be copied for a second chain, but not where a copy's way out leads back into them.
#[test]
fn copied_tails_do_not_come_back() {
    let text = "fragment(later) or vlan 5 or scoped(fragment() or not ether host 02:00:00:00:00:00 or \
                extensions(tcp[4] & 255 != 0) or (ip host 10.0.0.2)) or (not vlan 7)";
    let mut random = Random::new(94);
    for has_forms in [false, true] {
        let wording =
            Wording { dlt: 1, text: text.to_owned(), scoped: true, ipv6_extensions: true, has_forms };
        assert!(judge(&wording, 20, &mut random), "{text} is a filter");
    }
}

#[test]
fn lists_answer_as_before() {
    let mut random = Random::new(92);
    for _ in 0..texts(150) {
        let text = list(&mut random);
        assert!(judge(&plain(1, text.clone()), 4, &mut random), "{text} is a filter");
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

/// A chain: `need`, then each test in turn; what holds accepts (`any`), or what does not rejects.
fn chain(need: u32, tests: &[(u32, Width, u64)], any: bool) -> Ir {
    let mut builder = Builder::new();
    let [entry, accept, reject] = [(); 3].map(|()| builder.block());
    for (block, k) in [(accept, 1), (reject, 0)] {
        builder.switch_to(block);
        let value = builder.const32(k);
        builder.finish(Terminator::Return(value));
    }
    builder.switch_to(entry);
    builder.require_bytes(PacketOffset::at(need));
    let mut loads: HashMap<(u32, Width), Value> = HashMap::new();
    for &(offset, width, _) in tests {
        let load = || builder.push(Op::Load(PacketOffset::at(offset), width, ByteOrder::Big), width.ty());
        loads.entry((offset, width)).or_insert_with(load);
    }
    for (at, &(offset, width, k)) in tests.iter().enumerate() {
        let key = builder.push(Op::Const(k), width.ty());
        let next = match (at + 1 == tests.len(), any) {
            (false, _) => builder.block(),
            (true, true) => reject,
            (true, false) => accept,
        };
        let (yes, no) = if any { (accept, next) } else { (next, reject) };
        builder.branch(Comparison::Equal, loads[&(offset, width)], key, yes, no);
        builder.switch_to(next);
    }
    builder.build(entry)
}

fn assert_says(ir: &Ir, parts: &[&str]) {
    let text = ir.to_string();
    parts.iter().for_each(|part| assert!(text.contains(part), "no {part:?} in\n{text}"));
}

#[test]
fn keys_are_looked_up() {
    let port = |port: u64| (16, Width::Half, port);
    let close = chain(20, &[80, 20, 21].map(port), true);
    assert_says(&passed("switch", &close), &["by bitmap { 20, 21, 80: b1; else: reject }"]);
    let ports = chain(20, &[80, 443, 8080, 22, 10_000].map(port), true);
    assert_says(
        &passed("switch", &ports),
        &["by bit table { 22, 80, 0x1bb, 0x1f90, 0x2710: b1; else: reject }"],
    );
    let few = chain(20, &[80, 443].map(port), true);
    assert_eq!(passed("switch", &few).to_string(), few.to_string());
    let hosts: Vec<_> = (1..=10).map(|n: u64| (26, Width::Word, n * 0x0a01_0101)).collect();
    assert_says(&passed("switch", &chain(34, &hosts, true)), &["by perfect hash { 0xa010101, "]);
    let five = &hosts[..5];
    assert_says(&passed("switch", &chain(34, five, true)), &["by halves { 0xa010101, "]);
}

#[test]
fn tests_of_two_values_in_turn_become_two_lookups() {
    let ends: Vec<_> = (1..=10).flat_map(|n: u64| [(26, n << 8), (30, n << 8)]).collect();
    let tests: Vec<_> = ends.into_iter().map(|(offset, k)| (offset, Width::Word, k)).collect();
    let mut ir = chain(34, &tests, true);
    ir = passed("switch", &ir);
    let switches = ir.to_string().matches("switch").count();
    assert_eq!((switches, ir.to_string().matches("branch").count()), (2, 0), "{ir}");
}

/// Whether a port is in a range, or in the next, or ...: two comparisons each, as the language's `portrange` makes
/// them.
fn ranges(ranges: &[(u32, u32)]) -> Ir {
    let mut builder = Builder::new();
    let [entry, accept, reject] = [(); 3].map(|()| builder.block());
    for (block, k) in [(accept, 1), (reject, 0)] {
        builder.switch_to(block);
        let value = builder.const32(k);
        builder.finish(Terminator::Return(value));
    }
    builder.switch_to(entry);
    let port = builder.load(PacketOffset::at(16), Width::Half);
    for (at, &(low, high)) in ranges.iter().enumerate() {
        let inside = builder.block();
        let next = if at + 1 == ranges.len() { reject } else { builder.block() };
        let low = builder.const32(low);
        builder.branch(Comparison::GreaterEqual, port, low, inside, next);
        builder.switch_to(inside);
        let high = builder.const32(high);
        builder.branch(Comparison::Greater, port, high, next, accept);
        builder.switch_to(next);
    }
    builder.build(entry)
}

#[test]
fn ranges_are_compared_once_each_by_bisection() {
    let given = ranges(&[(10, 20), (100, 200), (1000, 2000), (3000, 4000), (150, 1500)]);
    let ir = passed("switch", &given);
    // 100-200, 150-1500 and 1000-2000 are one: so three, and one question to tell them apart at each half.
    assert_eq!(ir.to_string().matches("branch").count(), 5, "{ir}");
    assert_says(&ir, &[" - 10\n", " - 100\n", " - 0xbb8\n", " > 0x76c ? "]);
    let (mut before, mut after) = (Machine::new(given), Machine::new(ir));
    for port in 0..=u16::MAX {
        let mut data = [0; 18];
        data[16..].copy_from_slice(&port.to_be_bytes());
        assert_eq!(run(&mut before, &data, 18), run(&mut after, &data, 18), "{port}");
    }
    let close = passed("switch", &ranges(&[(10, 20), (30, 31), (40, 40)]));
    assert_says(&close, &["by bitmap { 10, 11, "]);
}

#[test]
fn neighbours_are_compared_at_once() {
    let hardware = chain(14, &[(8, Width::Word, 0x2233_4455), (6, Width::Half, 0x0011)], false);
    let parts = ["load64 [6]", " & 0xffffffffffff0000", " == 0x11223344550000 ? "];
    assert_says(&passed("widen", &hardware), &parts);
    let ends = chain(34, &[(26, Width::Word, 0x0102_0304), (30, Width::Word, 0x0506_0708)], false);
    assert_says(&passed("widen", &ends), &["load64 [26]", " == 0x102030405060708 ? "]);
    // Nothing says that the bytes are there: a guard that says so would reject what the first test lets through.
    let either = chain(14, &[(8, Width::Word, 1), (6, Width::Half, 2)], true);
    assert_eq!(passed("widen", &either).to_string(), either.to_string());
}

#[test]
fn constants_are_swapped_instead_of_bytes() {
    let ir = chain(14, &[(12, Width::Half, 0x0800)], false);
    assert_says(&passed("order", &ir), &["load16le [12]", " == 8 ? "]);
    // A word of bits wants keys that lie close together.
    let ports = passed("switch", &chain(20, &[80, 20, 21].map(|port| (16, Width::Half, port)), true));
    assert_eq!(passed("order", &ports).to_string(), ports.to_string());
}

/// Nanoseconds of processor time that this thread took.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// 10,000 hosts: lookups, not chains. `--nocapture` shows the time.
#[test]
fn long_chains_become_two_lookups() {
    let ends = (1..=5_000_u64).flat_map(|n| [(26, n * 77), (30, n * 77)]);
    let tests: Vec<_> = ends.map(|(offset, k)| (offset, Width::Word, k)).collect();
    let mut ir = chain(34, &tests, true);
    for name in OURS {
        let pass = PASSES.iter().find(|pass| pass.name == name).expect("the pass is there");
        let start = cpu_ns();
        (pass.run)(&mut ir);
        eprintln!("{name}: {} blocks, {} us of processor time", tests.len(), (cpu_ns() - start) / 1000);
    }
    ir.verify().expect("safe");
    assert_eq!(ir.order().len(), 4, "two lookups, two ends");
}
