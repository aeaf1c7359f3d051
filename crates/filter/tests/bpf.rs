//! Classic BPF on random programs: nothing panics or loops, and the answers are those of two other interpreters.
//!
//! ```text
//! random instructions --Program::new--> refused
//!                                   \-> runs as testkit's slow interpreter and libpcap's run it; prints as libpcap prints it
//! ```

use tapline_filter::bpf::{Form, Insn, Program, ancillary, code::*};
use tapline_filter::ir::{Machine, Memory, raise_program};
use tapline_packet::{Meta, Packet};
use tapline_testkit::libpcap::{Libpcap, Oracle, RawInsn};
use tapline_testkit::random::Random;

/// Codes of every kind, so that random programs are mostly valid.
const CODES: [u16; 32] = [
    LD | W | ABS,
    LD | H | ABS,
    LD | B | ABS,
    LD | W | IND,
    LD | H | IND,
    LD | B | IND,
    LD | LEN,
    LD | IMM,
    LD | MEM,
    LDX | IMM,
    LDX | MEM,
    LDX | B | MSH,
    ST,
    STX,
    ALU | ADD | X,
    ALU | SUB | K,
    ALU | MUL | X,
    ALU | DIV | X,
    ALU | MOD | X,
    ALU | AND | K,
    ALU | OR | X,
    ALU | XOR | K,
    ALU | LSH | X,
    ALU | RSH | K,
    ALU | NEG,
    MISC | TAX,
    MISC | TXA,
    JMP | JEQ | K,
    JMP | JGT | K,
    JMP | JGE | X,
    JMP | JSET | K,
    JMP | JA,
];

fn random_insn(random: &mut Random, room: usize) -> Insn {
    let code = *random.pick(&CODES);
    let small = random.below(40) as u32;
    let reach = |random: &mut Random| random.below(room.min(6) as u64) as u8;
    match code & 0x07 {
        JMP if code == JMP | JA => Insn::new(code, reach(random).into()),
        JMP => Insn::jump(code, small, reach(random), reach(random)),
        ST | STX => Insn::new(code, small % 16),
        LD | LDX if code & 0xe0 == MEM => Insn::new(code, small % 16),
        ALU if code & 0xf0 == RSH => Insn::new(code, small % 32),
        _ if random.one_of(1, 20) => Insn::new(code, random.bits() as u32 % ancillary::BASE),
        _ => Insn::new(code, small),
    }
}

fn random_program(random: &mut Random) -> Vec<Insn> {
    let len = random.between(1..=30) as usize;
    let mut insns: Vec<Insn> = (0..len).map(|at| random_insn(random, len - at)).collect();
    insns.push(if random.one_of(1, 2) { Insn::new(RET | A, 0) } else { Insn::new(RET | K, 7) });
    insns
}

fn raw(insns: &[Insn]) -> Oracle {
    Oracle::new(insns.iter().map(|&Insn { code, jt, jf, k }| RawInsn { code, jt, jf, k }).collect())
}

#[test]
fn runs_as_other_interpreters_run() {
    let pcap = Libpcap::get().inspect_err(|reason| eprintln!("without libpcap: {reason}")).ok();
    let mut random = Random::new(11);
    for _ in 0..20_000 {
        let insns = random_program(&mut random);
        let Ok(program) = Program::new(insns.clone()) else { panic!("valid by construction: {insns:?}") };
        let oracle = raw(&insns);
        let ir = raise_program(&program);
        ir.verify().unwrap_or_else(|fault| panic!("{fault}\n{ir}{}", program.text(Form::Assembly)));
        let mut machine = Machine::new(ir);
        for _ in 0..5 {
            let len = random.below(60) as usize;
            let data = random.bytes(len);
            let meta = Meta { wire_len: random.below(100) as u32, ..Meta::default() };
            let ours = program.run(Packet { data: &data, meta: &meta });
            let trace = oracle.trace(&data, meta.wire_len);
            let listing = || format!("{data:02x?}\n{}", program.text(Form::Assembly));
            assert_eq!(Some(ours), trace.verdict, "{}", listing());
            let raised = machine.run(Packet { data: &data, meta: &meta }, &Memory::new(0));
            assert_eq!(u64::from(ours), raised, "as values: {}{}", listing(), machine.ir());
            if let (Some(pcap), false) = (pcap, trace.read_unwritten) {
                assert_eq!(ours, oracle.run(pcap, &data, meta.wire_len), "libpcap: {}", listing());
            }
        }
    }
}

/// Any instructions at all: refused, or run to an end. The few that pass are run on an empty and on a long packet.
#[test]
fn random_bits_never_panic_or_loop() {
    let mut random = Random::new(12);
    let mut valid = 0;
    for _ in 0..200_000 {
        let len = random.between(0..=4) as usize;
        let mut insns: Vec<Insn> = (0..len).map(|_| wild_insn(&mut random)).collect();
        if random.one_of(3, 4) {
            insns.push(Insn::new(RET | A, 0));
        }
        let Ok(program) = Program::new(insns) else { continue };
        valid += 1;
        let _ = program.check_for_kernel();
        let _ = program.text(Form::Assembly);
        let meta = Meta::default();
        let _ = program.run(Packet { data: &[], meta: &meta });
        let _ = program.run(Packet { data: &[0xff; 100], meta: &meta });
    }
    assert!(valid > 1000, "only {valid} programs were valid");
}

/// Any bits, half of the time with a code of the instruction set.
fn wild_insn(random: &mut Random) -> Insn {
    let bits = random.bits();
    let code = if bits & 1 == 0 { (bits >> 8) as u16 } else { *random.pick(&CODES) };
    let k = *random.pick(&[0, 1, 15, 16, 31, 32, 0x7fff_ffff, 0xffff_f000, 0xffff_ffff, (bits >> 32) as u32]);
    Insn { code, jt: (bits >> 24) as u8 % 5, jf: (bits >> 28) as u8 % 5, k }
}

#[test]
fn prints_as_libpcap_prints() {
    let pcap = match Libpcap::get() {
        Ok(pcap) => pcap,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    /// libpcap 1.10 runs `ldx #pktlen`, but has no text for it.
    const LDX_LEN: u16 = LDX | LEN;
    let mut random = Random::new(13);
    for code in (0..=0xff).filter(|&code| code != LDX_LEN) {
        for _ in 0..50 {
            let Insn { jt, jf, k, .. } = wild_insn(&mut random);
            let insn =
                Insn { code, jt, jf, k: if random.one_of(1, 2) { ancillary::BASE + k % 80 } else { k } };
            if Program::new(vec![insn; 1]).is_err_and(|e| e.to_string().contains("unknown code")) {
                continue;
            }
            let at = random.below(5000) as usize;
            assert_eq!(insn.assembly(at), pcap.image(RawInsn { code, jt, jf, k: insn.k }, at));
        }
    }
}
