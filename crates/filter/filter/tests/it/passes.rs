//! Each pass over the graph of values, alone and in the driver's order: the graph stays safe, and every packet,
//! however short, gets the answer that it got before.
//!
//! ```text
//! random text --compile--> program --raise--+
//! random program -------------------raise---+--> graph --each pass--> graph': verified, same answers, same cells
//! random graph with loops, cells and calls --+
//! ```

mod graphs;

use std::collections::BTreeMap;

use tapline_bpf::{DumpFormat, Program};
use tapline_filter::{HandleKind, Options, compile, generate, lower, parse};
use tapline_fpl::{self as fpl, FplOptions};
use tapline_ir::optimise::{PASSES, Pass};
use tapline_ir::{Ir, Machine, Memory, Op, raise_program};
use tapline_packet::{LinkType, Meta, Packet, VlanTag};
use tapline_testkit::libpcap::{Libpcap, LibpcapProgram};
use tapline_testkit::programs;
use tapline_testkit::random::Random;
use tapline_testkit::stock::{Sample, Stock, Texts, Wording};

/// Each pass once, by its name.
fn passes() -> BTreeMap<&'static str, &'static Pass> {
    PASSES.iter().map(|pass| (pass.name, pass)).collect()
}

/// The answers and the cells after some packets.
fn answers(ir: &Ir, packets: &[Sample]) -> (Vec<u64>, Vec<u64>) {
    let memory = Memory::new(ir.cells);
    let mut machine = Machine::new(ir.clone());
    let mut run = |packet: &Sample| {
        // Some have a tag in the metadata; which, their length decides.
        let tag = VlanTag { tpid: 0x8100, tci: 5 + (packet.data.len() % 3) as u16 };
        let vlan = packet.data.len().is_multiple_of(4).then_some(tag);
        let meta = Meta { wire_len: packet.wire_len, vlan, ..Meta::default() };
        machine.run(Packet { data: &packet.data, meta: &meta }, &memory)
    };
    let answers = packets.iter().map(&mut run).collect();
    (answers, (0..ir.cells.into()).map(|cell| memory.get(cell)).collect())
}

/// Runs each pass alone, then all in their order, and compares after each.
fn judge(raw: &Ir, packets: &[Sample], about: &dyn Fn() -> String) {
    raw.verify().unwrap_or_else(|fault| panic!("before all passes: {fault}\n{raw}{}", about()));
    let expected = answers(raw, packets);
    let check = |name: &str, before: &Ir, after: &Ir| {
        let text = || format!("{name}:\n{before}--- becomes\n{after}{}", about());
        after.verify().unwrap_or_else(|fault| panic!("{fault}, after {}", text()));
        let found = answers(after, packets);
        let at = expected.0.iter().zip(&found.0).position(|(a, b)| a != b);
        if let Some(at) = at {
            panic!("{} became {} for {:02x?}, {}", expected.0[at], found.0[at], packets[at], text());
        }
        assert_eq!(expected.1, found.1, "cells, after {}", text());
    };
    for (name, pass) in passes() {
        let mut ir = raw.clone();
        if (pass.run)(&mut ir) {
            check(&format!("{name} alone"), raw, &ir);
        }
    }
    let mut ir = raw.clone();
    for pass in PASSES {
        let before = ir.clone();
        if (pass.run)(&mut ir) {
            check(&format!("{} in order", pass.name), &before, &ir);
        }
    }
}

/// Some packets on ways that chance chooses, and one of them cut at each length.
fn packets(program: &Program, random: &mut Random, sample: impl Fn(&mut Random) -> Sample) -> Vec<Sample> {
    let oracle = LibpcapProgram::new(program.insns().to_vec());
    let mut packets: Vec<Sample> = (0..12)
        .map(|_| {
            let mut sample = sample(random);
            oracle.plant(&mut sample.data, sample.wire_len, random);
            sample.wire_len = sample.wire_len.max(sample.data.len() as u32);
            sample
        })
        .collect();
    let longest = packets[0].clone();
    packets.extend(
        (0..longest.data.len().min(120))
            .map(|len| Sample { data: longest.data[..len].to_vec(), wire_len: longest.wire_len }),
    );
    packets
}

#[test]
fn texts_mean_the_same() {
    let Ok(pcap) = Libpcap::get() else { return eprintln!("skipped: no libpcap to read captures") };
    let mut random = Random::new(31);
    let stock = Stock::new(pcap, &mut random);
    let mut texts = Texts::new(&mut random);
    let mut judged = 0;
    while judged < 200 {
        let wording = texts.wording(&mut random);
        let Wording { dlt, ref text, scoped, ipv6_extensions, .. } = wording;
        let handle = if random.one_of(1, 3) { HandleKind::Live } else { HandleKind::Dead };
        for optimise in [false, true] {
            let link_type = LinkType::from_dlt(dlt as u16);
            let netmask = Some(0);
            let options =
                Options { netmask, handle, scoped, ipv6_extensions, optimise, ..Options::new(link_type) };
            let Ok(filter) = compile(text, &options) else { continue };
            let packets = packets(filter.program(), &mut random, |random| stock.sample_for(&wording, random));
            judge(&filter.unoptimised_values(), &packets, &|| format!("{wording:?}, {handle:?}"));
            judged += 1;
        }
    }
}

#[test]
fn programs_mean_the_same() {
    let mut random = Random::new(32);
    for _ in 0..1_500 {
        let program = Program::new(programs::program(&mut random)).expect("valid by construction");
        let packets = packets(&program, &mut random, noise);
        judge(&raise_program(&program), &packets, &|| program.text(DumpFormat::Assembly));
    }
}

#[test]
fn graphs_with_loops_cells_and_calls_mean_the_same() {
    let mut random = Random::new(33);
    let mut loops = 0;
    for seed in 0..600 {
        let ir = graphs::graph(&mut random);
        loops += ir.loops.len();
        let packets: Vec<Sample> = (0..20).map(|_| noise(&mut random)).collect();
        judge(&ir, &packets, &|| format!("graph {seed}"));
    }
    assert!(loops > 150, "only {loops} loops");
}

fn noise(random: &mut Random) -> Sample {
    let len = random.below(60) as usize;
    Sample { data: random.bytes(len), wire_len: random.below(100) as u32 }
}

/// The graph of a text as it was generated, after the passes up to the first of this name.
fn before(name: &str, text: &str) -> Ir {
    let predicates = lower(&parse(text).expect(text), &Options::default()).expect(text);
    let mut ir = tapline_ir::raise(&generate(&predicates, 262_144));
    for pass in PASSES.iter().take_while(|pass| pass.name != name) {
        (pass.run)(&mut ir);
    }
    ir
}

fn lines_with(ir: &Ir, part: &str) -> usize {
    ir.to_string().lines().filter(|line| line.contains(part)).count()
}

/// F4: one comparison of lengths for each group of headers: link and network layer share one, each port has one,
/// because a packet that ends between them may match by its first port.
#[test]
fn length_checks_are_one_for_each_group_of_headers() {
    let ir = before("widen", "ip and tcp port 80");
    assert_eq!(
        ir.to_string().replace("    ", " "),
        "b12:\n need 24\n v2 = load16 [12]\n branch v2 == 0x800 ? b5 : reject\n\
         b5:\n v20 = load8 [23]\n branch v20 == 6 ? b4 : reject\n\
         b4:\n v23 = load16 [20]\n branch v23 & 0x1fff ? reject : b3\n\
         b3:\n v26 = load8 [14]\n v29 = v26 & 15\n v30 = v29 << 2\n need v30 + 16\n v32 = load16 [v30 + 14]\n \
         branch v32 == 80 ? b1 : b2\n\
         b2:\n need v30 + 18\n v41 = load16 [v30 + 16]\n branch v41 == 80 ? b1 : reject\n\
         b1:\n return 0x40000\n"
    );
}

/// F5: what both sides of an `or` ask is asked once.
#[test]
fn tests_are_asked_once_across_and_or_not() {
    for text in [
        "(ip and udp port 1) or (ip and udp port 2)",
        "ip and not (ip and not udp port 1 and not udp port 2)",
    ] {
        let ir = before("widen", text);
        assert_eq!(lines_with(&ir, "== 0x800"), 1, "{text}\n{ir}");
        assert_eq!(lines_with(&ir, "== 17"), 1, "{text}\n{ir}");
        assert_eq!(lines_with(&ir, "load16 [12]"), 1, "{text}\n{ir}");
        assert_eq!(lines_with(&ir, "need"), 3, "{text}\n{ir}");
    }
}

#[test]
fn masks_of_one_byte_know_of_each_other() {
    let ir = before("widen", "ether[0] = 0x45 and ether[0] & 0xf0 = 0x40 and ether[0] & 1 != 0");
    assert_eq!(lines_with(&ir, "branch"), 1, "{ir}");
    let never = before("widen", "ether[0] & 0xf0 = 0x60 and ether[0] & 0x40 = 0");
    assert_eq!(never.to_string(), Ir::constant(0).to_string().replace("b0", &format!("b{}", never.entry.0)));
}

/// A guard behind the longest IPv4 header answers all behind shorter ones.
#[test]
fn ranges_answer_guards() {
    let ir = before("widen", "ether[79] = 1 and ip and tcp port 80");
    assert_eq!(lines_with(&ir, "need"), 1, "{ir}");
}

/// A guard for no bytes from a place on still requires that the packet reaches that place: an effect follows it.
#[test]
fn guards_for_no_bytes_stay() {
    let text = "R[0] = HASH(PKT.B[0], PKT.B[1], 63); M[0]++; RETURN R[0];";
    let ir = fpl::compile(text, &FplOptions::default()).expect("a program").ir;
    let packets: Vec<Sample> =
        [[1, 1], [3, 0], [2, 1], [1, 2]].map(|data| Sample { data: data.to_vec(), wire_len: 2 }).into();
    assert_eq!(answers(&ir, &packets).1[0], 1, "only the first has the bytes");
    judge(&ir, &packets, &|| text.to_owned());
}

/// All ways end at one accepting return, and rejecting takes no block of its own.
#[test]
fn equal_blocks_are_one() {
    let ir = before("widen", "(tcp port 1 or udp port 2) and (host 1.1.1.1 or ether[0] = 1)");
    assert_eq!(lines_with(&ir, "return"), 1, "{ir}");
}

/// Neighbouring ports need a range and no word of bits.
#[test]
fn neighbouring_keys_are_a_range() {
    for text in ["port 1 or 2 or 3 or 4 or 5", "tcp port 80 or 81 or 82 or 83"] {
        let filter = compile(text, &Options::default()).expect(text);
        let ir = filter.values();
        assert_eq!(lines_with(ir, "switch"), 0, "{text}\n{ir}");
    }
    let filter =
        compile("ether[0] = 4 or ether[0] = 6 or ether[0] = 5", &Options::default()).expect("a filter");
    let ir = filter.values();
    assert_eq!((lines_with(ir, "branch"), lines_with(ir, "> 2 ?")), (1, 1), "{ir}");
}

#[test]
fn long_chains_keep_their_length() {
    let host = |n: u32| format!("host 10.{}.{}.{}", n >> 16, (n >> 8) & 255, n & 255);
    let text = (1..=1000).map(host).collect::<Vec<_>>().join(" or ");
    let filter = compile(&text, &Options::default()).expect("a filter");
    let ir = filter.values();
    ir.verify().expect("safe");
    let needs = ir.order().into_iter().flat_map(|id| ir[id].instructions.clone());
    assert!(needs.filter(|value| matches!(ir.op(*value), Op::Need(_))).count() < 12);
}
