//! Our filters against the system's libpcap: the same verdict on every packet, and an error where it gives one.
//!
//! ```text
//! for each link type, for each random text:
//!     compile it here and there, optimised and not     both refuse it, or both take it
//!     for each packet: plant constants, flip bits, cut
//!         ours = libpcap's optimised or plain verdict  or a rule of differential/rules.rs says why not
//! ```
//!
//! `TAPLINE_FILTER_PAIRS=10000000` sets how many pairs of text and packet are judged (else 150,000), and
//! `TAPLINE_FILTER_SEED=7` where chance starts (else 1). A difference prints a line for `TAPLINE_FILTER_CASE`,
//! which judges that one pair again and prints the programs:
//!
//! ```text
//! TAPLINE_FILTER_CASE='DLT|wire length|packet in hex|text' cargo test -p tapline-filter --test it differential::one_case -- --nocapture
//! ```

mod rules;

use std::collections::BTreeMap;
use std::fmt::Write;

use rules::{Difference, NEVER, RULES, Refusal};
use tapline_bpf::code::{K, RET};
use tapline_bpf::{DumpFormat, Insn, Program};
use tapline_filter::{HandleKind, Options, compile};
use tapline_ir::optimise::optimise_with_observer;
use tapline_ir::{Machine, Memory, raise_program};
use tapline_packet::{LinkType, Meta, Packet};
use tapline_testkit::libpcap::{CompileSettings, Libpcap, LibpcapProgram};
use tapline_testkit::random::Random;
use tapline_testkit::stock::{Sample, Stock, Texts};
use tapline_testkit::volume::{number, volume};

/// Packets for each text.
const PACKETS_PER_TEXT: usize = 40;

/// Differences after which a run stops and prints them.
const DIFFERENCES_MAX: usize = 25;

/// A text compiled on all sides.
struct Judged<'a> {
    text: &'a str,
    dlt: i32,
    ours: Program,
    /// Ours before it was simplified: the very same answer on every packet.
    unsimplified: Program,
    /// Ours as a graph of values.
    machine: Machine,
    optimised: LibpcapProgram,
    plain: LibpcapProgram,
}

#[derive(Default)]
struct Tally {
    pairs: u64,
    texts: u64,
    refused: u64,
    accepted: u64,
    /// Texts that only one side proves never true; the other side's program must then reject every packet.
    unproven: u64,
    /// Pairs on which we give the verdict of libpcap's optimised program, but not of its plain one.
    optimised_only: u64,
    covered: BTreeMap<&'static str, u64>,
    differences: Vec<String>,
}

fn compile_ours(text: &str, dlt: i32, optimise: bool) -> Result<Program, String> {
    let link_type = LinkType::from_dlt(dlt as u16);
    let options = Options { netmask: Some(0), handle: HandleKind::Dead, optimise, ..Options::new(link_type) };
    compile(text, &options).map(|filter| filter.program().clone()).map_err(|error| error.message)
}

fn run_ours(program: &Program, data: &[u8], wire_len: u32) -> u32 {
    let meta = Meta { wire_len, ..Meta::default() };
    program.run(Packet { data, meta: &meta })
}

#[test]
fn same_verdicts_as_libpcap() {
    let pcap = match Libpcap::get() {
        Ok(pcap) => pcap,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let (pairs, seed) = (volume("TAPLINE_FILTER_PAIRS", 15_000), number("TAPLINE_FILTER_SEED", 1));
    let mut random = Random::new(seed);
    let stock = Stock::new(pcap, &mut random);
    let mut tally = Tally::default();
    let mut texts = Texts::new(&mut random);
    while tally.pairs < pairs && tally.differences.len() < DIFFERENCES_MAX {
        let (dlt, text) = texts.next(&mut random);
        judge_text(pcap, &stock, &text, dlt, &mut random, &mut tally);
    }
    eprintln!("{}", tally.report(seed, stock.len(), pcap.version()));
    assert!(tally.differences.is_empty(), "{}", tally.differences.join("\n"));
}

/// Filters that are never true, of which libpcap's optimiser proves some: we refuse those, and no others.
#[test]
fn proofs_end_where_those_of_libpcap_end() {
    let pcap = match Libpcap::get() {
        Ok(pcap) => pcap,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    const ETHERNET: i32 = 1;
    const RAW: i32 = 12;
    const IPV6: i32 = 229;
    const LINUX_SLL2: i32 = 276;
    let texts = [
        (ETHERNET, "udp and 2 < (17 & 8)"),
        (ETHERNET, "udp and 2 < 0"),
        (ETHERNET, "2 < (17 & 8)"),
        (ETHERNET, "sctp and not (84 * 2031) >= 69"),
        (ETHERNET, "sctp and not 100 >= 69"),
        (RAW, "ip6[0] & 0xf0 = 0x40"),
        (IPV6, "pim and 0xff < (0x800 & 255)"),
        (LINUX_SLL2, "not (stp or (not 0xffff < (0xf * 6)))"),
        (RAW, "arp src net 10.0.0.50/32 and (ip[0xffffffff] | sctp[4:2]) <= (69 / 0xf)"),
        (ETHERNET, "ip and ether[12:2] = 0x806"),
        (ETHERNET, "ether[12:2] = 0x800 and ether[12:2] = 0x806"),
        (ETHERNET, "ether[12:2] & 0xff = 0 and ether[12:2] & 0xff = 6"),
        (ETHERNET, "ether[12:2] = 0x800 and ether[12:2] & 0xffff = 0x806"),
        (ETHERNET, "ip[0] = 4 and ether[14] = 5"),
        (ETHERNET, "ip[0] & 0 = 5"),
        (ETHERNET, "ether[3] * 0 = 5"),
        (ETHERNET, "tcp and 0 - 1 = 4"),
        (ETHERNET, "tcp and tcp[-1 + 1] = 5 and tcp[0] = 4"),
        (ETHERNET, "tcp port 80 and tcp[0:2] = 90 and tcp[2:2] = 90"),
        (ETHERNET, "tcp[0] = 4 and tcp[0] = 5"),
        (ETHERNET, "(2 + 1 = 3 or ip) and (2 + 1 = 4)"),
        (ETHERNET, "arp[0xffffffff] = 1 and ip and ip6"),
        (ETHERNET, "ip[0xffffffff] = 1"),
    ];
    for (dlt, text) in texts {
        let theirs = pcap.compile(text, CompileSettings::new(dlt)).err();
        let ours = compile_ours(text, dlt, true).err();
        assert_eq!(ours, theirs, "{dlt}: {text}");
    }
}

/// Judges again the pair that `TAPLINE_FILTER_CASE` describes.
#[test]
fn one_case() {
    let Ok(case) = std::env::var("TAPLINE_FILTER_CASE") else { return };
    let pcap = Libpcap::get().expect("libpcap is installed");
    let mut fields = case.splitn(4, '|');
    let mut field = || fields.next().expect("four fields: DLT|wire length|hex|text");
    let dlt: i32 = field().parse().expect("a DLT");
    let wire_len: u32 = field().parse().expect("a length");
    let data = from_hex(field());
    let text = field();
    let theirs = |optimise| pcap.compile(text, CompileSettings { optimise, ..CompileSettings::new(dlt) });
    for (name, program) in [("libpcap optimised", theirs(true)), ("libpcap plain", theirs(false))] {
        match program {
            Ok(oracle) => {
                let lines = oracle.insns().iter().enumerate().map(|(at, &insn)| pcap.image(insn, at) + "\n");
                let trace = oracle.trace(&data, wire_len);
                eprintln!("{name}: {:?}\n{}", trace, lines.collect::<String>());
            }
            Err(error) => eprintln!("{name}: {error}"),
        }
    }
    match compile_ours(text, dlt, true) {
        Ok(program) => {
            eprintln!("ours: {}\n{}", run_ours(&program, &data, wire_len), program.text(DumpFormat::Assembly))
        }
        Err(error) => eprintln!("ours: {error}"),
    }
}

fn judge_text(pcap: &Libpcap, stock: &Stock, text: &str, dlt: i32, random: &mut Random, tally: &mut Tally) {
    tally.texts += 1;
    let optimised = pcap.compile(text, CompileSettings::new(dlt));
    let plain = pcap.compile(text, CompileSettings { optimise: false, ..CompileSettings::new(dlt) });
    let ours = compile_ours(text, dlt, true);
    let never = |message: &String| message == NEVER;
    if ours.as_ref().is_err_and(never) != optimised.as_ref().is_err_and(never) && plain.is_ok() {
        tally.unproven += 1;
        if std::env::var_os("TAPLINE_FILTER_UNPROVEN").is_some() {
            eprintln!(
                "never true on {dlt}: ours {}, libpcap's {}: {text}",
                ours.is_err(),
                optimised.is_err()
            );
        }
    }
    // A wrong proof that a filter is never true would show here: the filter is run as one that rejects, against the
    // other side's program.
    let ours = ours.or_else(|message| if never(&message) { Ok(rejecting()) } else { Err(message) });
    let optimised = match (optimised, &plain) {
        (Err(message), Ok(plain)) if never(&message) => Ok(plain.clone()),
        (optimised, _) => optimised,
    };
    match (ours, optimised, plain) {
        (Ok(ours), Ok(optimised), Ok(plain)) => {
            let before = tally.differences.len();
            let unsimplified = compile_ours(text, dlt, false).expect("what the optimiser takes is a filter");
            let machine = machine(&ours);
            let mut judged = Judged { text, dlt, ours, unsimplified, machine, optimised, plain };
            for _ in 0..PACKETS_PER_TEXT {
                judge_packet(pcap, stock, &mut judged, random, tally);
            }
            // One packet shows what is wrong with a text.
            tally.differences.truncate(before + 1);
        }
        (ours, optimised, _) => {
            tally.refused += 1;
            let ours = ours.as_ref().err().map(String::as_str);
            let theirs = optimised.as_ref().err().map(String::as_str);
            tally.judge_refusal(&Refusal { text, dlt, ours, optimised: theirs });
        }
    }
}

fn rejecting() -> Program {
    Program::new(vec![Insn::new(RET | K, 0)]).expect("a return is a program")
}

/// The program raised, optimised, and proved safe.
fn machine(program: &Program) -> Machine {
    let mut ir = raise_program(program);
    ir.verify().expect("what was raised is safe");
    optimise_with_observer(&mut ir, |pass, ir| {
        ir.verify().unwrap_or_else(|fault| panic!("after {}: {fault}\n{ir}", pass.name));
    });
    Machine::new(ir)
}

fn run_machine(machine: &mut Machine, data: &[u8], wire_len: u32) -> u64 {
    let meta = Meta { wire_len, ..Meta::default() };
    machine.run(Packet { data, meta: &meta }, &Memory::new(0))
}

fn judge_packet(
    pcap: &Libpcap,
    stock: &Stock,
    judged: &mut Judged<'_>,
    random: &mut Random,
    tally: &mut Tally,
) {
    let Sample { data, wire_len } = vary(stock.sample(judged.dlt, random), judged, random);
    let Judged { text, dlt, ours, unsimplified, machine, optimised, plain } = judged;
    tally.pairs += 1;
    let answer = run_ours(ours, &data, wire_len);
    if u64::from(answer) != run_machine(machine, &data, wire_len) {
        let case = format!("TAPLINE_FILTER_CASE='{dlt}|{wire_len}|{}|{text}'", to_hex(&data));
        tally.differences.push(format!("{case}  program {answer}, graph of values not"));
    }
    if answer != run_ours(unsimplified, &data, wire_len) {
        let case = format!("TAPLINE_FILTER_CASE='{dlt}|{wire_len}|{}|{text}'", to_hex(&data));
        tally.differences.push(format!("{case}  simplified {answer}, unsimplified not"));
    }
    let verdict = answer != 0;
    tally.accepted += u64::from(verdict);
    let may_loop = optimised.may_loop() || plain.may_loop();
    if !may_loop
        && (optimised.run(pcap, &data, wire_len) != 0) == verdict
        && (plain.run(pcap, &data, wire_len) != 0) == verdict
    {
        return;
    }
    let (optimised, plain) = (optimised.trace(&data, wire_len), plain.trace(&data, wire_len));
    let agrees = |theirs: Option<u32>| theirs.is_some_and(|theirs| (theirs != 0) == verdict);
    if agrees(optimised.verdict) || agrees(plain.verdict) {
        tally.optimised_only += u64::from(!agrees(plain.verdict));
        return;
    }
    let is_short = data.len() < wire_len as usize;
    let difference =
        Difference { text, dlt: *dlt, data: &data, is_short, optimised: &optimised, plain: &plain };
    match RULES.iter().find(|rule| (rule.covers)(&difference)) {
        Some(rule) => *tally.covered.entry(rule.name).or_default() += 1,
        None => tally.differences.push(format!(
            "TAPLINE_FILTER_CASE='{dlt}|{wire_len}|{}|{text}'  ours {verdict}, libpcap {:?}, plain {:?}",
            to_hex(&data),
            optimised.verdict,
            plain.verdict
        )),
    }
}

/// Steers the sample along a branch of the filter, flips a bit, cuts it.
fn vary(mut sample: Sample, judged: &Judged<'_>, random: &mut Random) -> Sample {
    let steering = if random.one_of(2, 3) { &judged.optimised } else { &judged.plain };
    let mut loads = Vec::new();
    if random.one_of(4, 5) {
        loads = steering.plant(&mut sample.data, sample.wire_len, random).load_ends;
    }
    if random.one_of(1, 8) && !sample.data.is_empty() {
        let bit = random.below(sample.data.len().min(80) as u64 * 8);
        sample.data[bit as usize / 8] ^= 1 << (bit % 8);
    }
    if random.one_of(1, 8) {
        let len = match loads.len() {
            0 => random.below(80) as usize,
            // Just before, at, or just behind the end of a load.
            _ => (*random.pick(&loads) + 1).saturating_sub(random.below(4) as usize),
        };
        sample.data.truncate(len);
    }
    sample.wire_len = sample.wire_len.max(sample.data.len() as u32);
    sample
}

impl Tally {
    fn judge_refusal(&mut self, refusal: &Refusal<'_>) {
        if refusal.ours.is_some() == refusal.optimised.is_some() {
            return;
        }
        match rules::REFUSALS.iter().find(|rule| (rule.covers)(refusal)) {
            Some(rule) => *self.covered.entry(rule.name).or_default() += 1,
            None => self.differences.push(format!(
                "TAPLINE_FILTER_CASE='{}|0||{}'  ours {:?}, libpcap {:?}",
                refusal.dlt, refusal.text, refusal.ours, refusal.optimised
            )),
        }
    }

    fn report(&self, seed: u64, stock: usize, version: &str) -> String {
        let mut report = format!(
            "{} pairs of {} texts ({} refused) and packets varied from {stock}, seed {seed}, against {version}: \
             {} accepted, {} differences; {} agree only with libpcap's optimised program; {} texts only one side proves \
             never true",
            self.pairs,
            self.texts,
            self.refused,
            self.accepted,
            self.differences.len(),
            self.optimised_only,
            self.unproven
        );
        let reasons = RULES
            .iter()
            .map(|r| (r.name, r.reason))
            .chain(rules::REFUSALS.iter().map(|r| (r.name, r.reason)));
        for (name, reason) in reasons {
            if let Some(count) = self.covered.get(name) {
                write!(report, "\n  {count} by rule {name}: {reason}").expect("a String takes any text");
            }
        }
        report
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("a String takes any text");
        hex
    })
}

fn from_hex(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().map(|c| c.to_digit(16).expect("a hex digit")).collect();
    digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}
