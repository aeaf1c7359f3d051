//! Our filters as eBPF, run by the kernel on packets of ours: the verdict of the interpreter on every packet.
//!
//! ```text
//! for each link type, for each random text:
//!     text -> classic BPF -> graph -> as it is, and optimised -> eBPF -> the verifier     it must accept
//!     for each packet: plant constants, flip bits, cut
//!         socket filter:  BPF_PROG_TEST_RUN = interpreter                                 the very number
//!         XDP:            BPF_PROG_TEST_RUN = pass or drop as the interpreter says
//! ```
//!
//! `TAPLINE_EBPF_PAIRS=10000000` sets how many pairs of text and packet are judged (else 40,000), and `TAPLINE_EBPF_SEED=7` where chance
//! starts (else 1). Without the right to load programs the tests say so and pass.

#[path = "differential/packets.rs"]
mod packets;

use std::collections::BTreeMap;

use packets::{Sample, Stock};
use tapline_filter::bpf::code::{
    ABS, ADD, ALU, B, DIV, IMM, IND, JEQ, JMP, K, LD, LDX, LSH, RET, RSH, TAX, W, X,
};
use tapline_filter::bpf::{self, Insn, ancillary};
use tapline_filter::ebpf::{self, EmitError, Hook, XdpAction, emit};
use tapline_filter::ir::{Ir, raise_program};
use tapline_filter::optimise::optimise;
use tapline_filter::{Handle, Options, compile};
use tapline_packet::{LinkType, Meta, Packet};
use tapline_sys::bpf::{Insn as KernelInsn, Program, ProgramKind, probe};
use tapline_testkit::expressions::Expressions;
use tapline_testkit::libpcap::{Libpcap, Oracle, RawInsn};
use tapline_testkit::random::Random;

/// Each text is judged on so many packets.
const PACKETS_PER_TEXT: usize = 40;

/// Bytes before what a socket filter sees in a test run: an Ethernet header.
const HEADER: usize = 14;

/// The interface of a test run: loopback.
const LOOPBACK: u32 = 1;

/// The link types whose texts are judged, as DLTs; more of the common ones.
const LINK_TYPES: &[i32] = &[
    1, 1, 1, 1, 1, 1, 0, 6, 9, 10, 12, 50, 51, 104, 105, 105, 108, 113, 117, 119, 122, 123, 127, 127, 138,
    163, 192, 276,
];

const XDP: Hook = Hook::Xdp { matched: XdpAction::Pass, unmatched: XdpAction::Drop };

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")),
        Err(_) => default,
    }
}

/// Whether programs may be loaded; says so if not.
fn may_load(test: &str) -> bool {
    probe(ProgramKind::Xdp).map_err(|error| eprintln!("{test} skipped: {error}")).is_ok()
}

fn load(program: &ebpf::Program) -> Program {
    let kind = match program.hook() {
        Hook::SocketFilter => ProgramKind::SocketFilter,
        Hook::Xdp { .. } => ProgramKind::Xdp,
    };
    let insns: Vec<KernelInsn> = program
        .insns()
        .iter()
        .map(|insn| KernelInsn {
            code: insn.code,
            registers: insn.registers(),
            offset: insn.offset,
            immediate: insn.immediate,
        })
        .collect();
    Program::load(kind, "tapline_test", &insns)
        .unwrap_or_else(|error| panic!("{error}\n{}\n{}", program.text(), error.log))
}

/// One filter in all its forms.
struct Judged {
    reference: bpf::Program,
    socket: Vec<Program>,
    xdp: Option<Program>,
}

impl Judged {
    fn new(reference: bpf::Program) -> Judged {
        let plain = raise_program(&reference);
        let mut optimised = plain.clone();
        optimise(&mut optimised);
        plain.verify().expect("raised graphs are safe");
        optimised.verify().expect("optimised graphs are safe");
        let socket = |ir: &Ir| load(&emit(ir, Hook::SocketFilter).expect("filters have no state"));
        let xdp = match emit(&optimised, XDP) {
            Ok(program) => Some(load(&program)),
            Err(EmitError::NotBeforeTheStack { .. }) => None,
            Err(error) => panic!("{error}"),
        };
        Judged { socket: vec![socket(&plain), socket(&optimised)], xdp, reference }
    }

    /// What interpreter and kernel say; the kernel as often as there are forms.
    fn judge(&self, data: &[u8]) -> Result<u32, String> {
        let meta = Meta { wire_len: data.len() as u32, if_index: LOOPBACK, ..Meta::default() };
        let expected = self.reference.run(Packet { data, meta: &meta });
        let mut behind_header = vec![0; HEADER];
        behind_header.extend_from_slice(data);
        for program in &self.socket {
            let value = run(program, &behind_header);
            if value != expected {
                return Err(format!("socket filter {value}, interpreter {expected}"));
            }
        }
        // A test run takes no shorter packets.
        if let Some(program) = self.xdp.as_ref().filter(|_| data.len() >= HEADER) {
            let value = run(program, data);
            if value != if expected == 0 { XdpAction::DROP } else { XdpAction::PASS } {
                return Err(format!("XDP {value}, interpreter {expected}"));
            }
        }
        Ok(expected)
    }
}

fn run(program: &Program, packet: &[u8]) -> u32 {
    loop {
        match program.test_run(packet, 1) {
            Ok(run) => return run.value,
            // A signal came.
            Err(error) if error.errno() == 4 => {}
            Err(error) => panic!("{error}, {} bytes", packet.len()),
        }
    }
}

fn judge(text: &str, insns: Vec<Insn>, packet: &[u8]) -> u32 {
    let program = bpf::Program::new(insns).expect("a valid program");
    Judged::new(program).judge(packet).unwrap_or_else(|difference| panic!("{text}: {difference}"))
}

#[test]
fn same_verdicts_as_the_interpreter() {
    if !may_load("same_verdicts_as_the_interpreter") {
        return;
    }
    let pcap = match Libpcap::get() {
        Ok(pcap) => pcap,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let (pairs, seed) = (number("TAPLINE_EBPF_PAIRS", 40_000), number("TAPLINE_EBPF_SEED", 1));
    let mut random = Random::new(seed);
    let stock = Stock::new(pcap, &mut random);
    let mut streams: BTreeMap<i32, Expressions> =
        LINK_TYPES.iter().map(|&dlt| (dlt, Expressions::new(random.bits(), dlt))).collect();
    let (mut judged_pairs, mut accepted, mut texts, mut with_xdp) = (0, 0, 0, 0);
    while judged_pairs < pairs {
        let dlt = *random.pick(LINK_TYPES);
        let text = streams.get_mut(&dlt).expect("one for each").text();
        let handle = if random.one_of(1, 2) { Handle::Live } else { Handle::Dead };
        let options = Options { netmask: Some(0), handle, ..Options::new(LinkType::from_dlt(dlt as u16)) };
        let Ok(reference) = compile(&text, &options) else { continue };
        let steering = Oracle::new(reference.insns().iter().map(raw).collect());
        let judged = Judged::new(reference);
        texts += 1;
        with_xdp += u64::from(judged.xdp.is_some());
        for _ in 0..PACKETS_PER_TEXT {
            let data = vary(stock.sample(dlt, &mut random), &steering, &mut random);
            let verdict = judged.judge(&data).unwrap_or_else(|difference| {
                panic!(
                    "DLT {dlt}, {text}\n{difference} on {data:02x?}\n{}",
                    judged.reference.text(bpf::Form::Assembly)
                )
            });
            accepted += u64::from(verdict != 0);
            judged_pairs += 1;
        }
    }
    eprintln!(
        "{judged_pairs} pairs of {texts} texts ({with_xdp} as XDP too) and packets varied from {}, seed {seed}: {accepted} accepted",
        stock.len()
    );
    assert!(accepted > judged_pairs / 20 && with_xdp > texts / 4, "the corpus is one-sided");
}

fn raw(insn: &Insn) -> RawInsn {
    RawInsn { code: insn.code, jt: insn.jt, jf: insn.jf, k: insn.k }
}

/// Steers the sample along a branch of the filter, flips a bit, cuts it.
fn vary(mut sample: Sample, steering: &Oracle, random: &mut Random) -> Vec<u8> {
    let mut loads = Vec::new();
    if random.one_of(4, 5) {
        loads = steering.plant(&mut sample.data, sample.wire_len, random).load_ends;
    }
    if random.one_of(1, 8) && !sample.data.is_empty() {
        let bit = random.below(sample.data.len().min(80) as u64 * 8);
        sample.data[bit as usize / 8] ^= 1 << (bit % 8);
    }
    if random.one_of(1, 8) && !loads.is_empty() {
        let end = *random.pick(&loads);
        sample.data.truncate((end + 1).saturating_sub(random.below(4) as usize));
    }
    sample.data.truncate(3000);
    sample.data
}
