//! Lists of alternatives, which become lookups: the same answers as from the plain program, on random lists.
//!
//! ```text
//! list --compile, plain--> program ------------------------------------------+
//! list --compile--> program --raise--> graph --all passes--> graph with lookups --> one answer, for packets cut at every byte
//! ```
//!
//! `TAPLINE_LISTS=20000` sets how many lists are judged.

use std::sync::Arc;

use tapline_bpf::Program;
use tapline_filter::{FixedNames, HandleKind, Options, compile};
use tapline_ir::optimise::optimise_with_observer;
use tapline_ir::{BlockId, Machine, Memory, Terminator};
use tapline_packet::{LinkType, Meta, Packet};
use tapline_testkit::libpcap::LibpcapProgram;
use tapline_testkit::random::Random;
use tapline_testkit::volume::volume;

/// Longer packets are not made: each is cut at every byte.
const LEN_MAX: u64 = 90;

fn options(dlt: i32, optimise: bool) -> Options {
    Options {
        netmask: Some(0),
        handle: HandleKind::Dead,
        resolver: Arc::new(FixedNames::default()),
        optimise,
        ..Options::new(LinkType::from_dlt(dlt as u16))
    }
}

/// A part of a list; `kind` says of which shape.
fn part(kind: u64, random: &mut Random) -> String {
    let n = random.below(24);
    match kind {
        0 => format!("host 10.0.0.{n}"),
        1 => format!("src host 10.0.0.{n}"),
        2 => format!("dst net 10.{n}.0.0/16"),
        3 => format!("port {n}"),
        4 => format!("tcp src port {n}"),
        5 => format!("ip proto {n}"),
        6 => format!("ether proto {}", 0x800 + n),
        7 => format!("ip6 host fe80::{n}"),
        8 => format!("udp[{n}] = {n}"),
        9 => format!("vlan {n}"),
        10 => format!("not src host 10.0.0.{n}"),
        11 => format!("(src host 10.0.0.{n} and udp)"),
        12 => format!("(udp and dst port {n})"),
        13 => format!("portrange {n}-{}", n + 3),
        14 => format!("ip[0] & 15 = {n}"),
        15 => format!("(mpls {n} and ip)"),
        16 => format!("ether host 00:00:00:00:00:{n:02x}"),
        17 => format!("len = {n}"),
        _ => format!("arp[6:2] = {n}"),
    }
}

/// Parts of few shapes, joined by `or` most often.
fn list(random: &mut Random) -> String {
    let kinds: Vec<u64> = (0..1 + random.below(3)).map(|_| random.below(19)).collect();
    let mut text = part(*random.pick(&kinds), random);
    for _ in 0..8 + random.below(30) {
        let joint = if random.below(30) == 0 { "and" } else { "or" };
        let kind = if random.below(25) == 0 { random.below(19) } else { *random.pick(&kinds) };
        text = format!("{text} {joint} {}", part(kind, random));
    }
    match random.below(5) {
        0 => format!("tcp and ({text})"),
        1 => format!("not ({text})"),
        2 => format!("({text}) and not port 3"),
        _ => text,
    }
}

fn run(machine: &mut Machine, data: &[u8], wire_len: u32) -> u64 {
    let meta = Meta { wire_len, ..Meta::default() };
    machine.run(Packet { data, meta: &meta }, &Memory::new(0))
}

/// Judges a list. Returns the number of lookups made from it, `None` if it is not a filter.
fn judge(text: &str, dlt: i32, random: &mut Random) -> Option<usize> {
    let plain = compile(text, &options(dlt, false)).ok()?;
    let raised = compile(text, &options(dlt, true)).ok()?.unoptimised_values();
    raised.verify().unwrap_or_else(|fault| panic!("{text:?}: {fault}\n{raised}"));
    let mut optimised = raised.clone();
    optimise_with_observer(&mut optimised, |pass, ir| {
        ir.verify().unwrap_or_else(|fault| panic!("{text:?}, after {}: {fault}\n{ir}", pass.name));
    });
    let is_lookup = |id: &BlockId| matches!(optimised[*id].terminator, Terminator::Switch { .. });
    let lookups = optimised.order().iter().filter(|id| is_lookup(id)).count();
    let mut machines = [Machine::new(raised), Machine::new(optimised)];
    let steering = LibpcapProgram::new(plain.insns().to_vec());
    for _ in 0..6 {
        let len = random.below(LEN_MAX) as usize;
        let mut data = random.bytes(len);
        let wire_len = len as u32 + random.below(3) as u32;
        steering.plant(&mut data, wire_len, random);
        data.truncate(LEN_MAX as usize);
        for cut in 0..=data.len() {
            let expected = run_program(plain.program(), &data[..cut], wire_len);
            for machine in &mut machines {
                let answer = run(machine, &data[..cut], wire_len);
                let ir = || machine.ir().to_string();
                assert_eq!(answer, expected, "{text:?} on DLT {dlt}, {:02x?}\n{}", &data[..cut], ir());
            }
        }
    }
    Some(lookups)
}

fn run_program(program: &Program, data: &[u8], wire_len: u32) -> u64 {
    let meta = Meta { wire_len, ..Meta::default() };
    program.run(Packet { data, meta: &meta }).into()
}

#[test]
fn lookups_answer_as_their_lists() {
    let count = volume("TAPLINE_LISTS", 60) as usize;
    let mut random = Random::new(41);
    let (mut judged, mut lookups) = (0, 0);
    while judged < count {
        let text = list(&mut random);
        let dlt = *random.pick(&[1, 1, 1, 0, 12, 113, 276]);
        if let Some(found) = judge(&text, dlt, &mut random) {
            judged += 1;
            lookups += found;
        }
    }
    assert!(lookups > count / 4, "{lookups} lookups in {count} lists");
}
