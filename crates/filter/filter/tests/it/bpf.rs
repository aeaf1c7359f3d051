//! Classic BPF on random programs: nothing panics or loops, and the answers are those of two other interpreters.
//!
//! ```text
//! random instructions --Program::new--> refused
//!                                   \-> runs as testkit's slow interpreter and libpcap's run it; prints as libpcap prints it
//! ```

use tapline_bpf::{DumpFormat, Insn, Program, ancillary, code::*};
use tapline_ir::{Machine, Memory, raise_program};
use tapline_packet::{Meta, Packet};
use tapline_testkit::libpcap::{Libpcap, LibpcapProgram};
use tapline_testkit::programs;
use tapline_testkit::random::Random;

#[test]
fn runs_as_other_interpreters_run() {
    let pcap = Libpcap::get().inspect_err(|reason| eprintln!("without libpcap: {reason}")).ok();
    let mut random = Random::new(11);
    for _ in 0..20_000 {
        let insns = programs::program(&mut random);
        let Ok(program) = Program::new(insns.clone()) else { panic!("valid by construction: {insns:?}") };
        let oracle = LibpcapProgram::new(insns.clone());
        let ir = raise_program(&program);
        ir.verify().unwrap_or_else(|fault| panic!("{fault}\n{ir}{}", program.text(DumpFormat::Assembly)));
        let mut machine = Machine::new(ir);
        for _ in 0..5 {
            let len = random.below(60) as usize;
            let data = random.bytes(len);
            let meta = Meta { wire_len: random.below(100) as u32, ..Meta::default() };
            let ours = program.run(Packet { data: &data, meta: &meta });
            let trace = oracle.trace(&data, meta.wire_len);
            let listing = || format!("{data:02x?}\n{}", program.text(DumpFormat::Assembly));
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
        let mut insns: Vec<Insn> = (0..len).map(|_| programs::wild_insn(&mut random)).collect();
        if random.one_of(3, 4) {
            insns.push(Insn::new(RET | A, 0));
        }
        let Ok(program) = Program::new(insns) else { continue };
        valid += 1;
        let _ = program.check_for_kernel();
        let _ = program.text(DumpFormat::Assembly);
        let meta = Meta::default();
        let _ = program.run(Packet { data: &[], meta: &meta });
        let _ = program.run(Packet { data: &[0xff; 100], meta: &meta });
    }
    assert!(valid > 1000, "only {valid} programs were valid");
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
            let Insn { jt, jf, k, .. } = programs::wild_insn(&mut random);
            let insn =
                Insn { code, jt, jf, k: if random.one_of(1, 2) { ancillary::BASE + k % 80 } else { k } };
            if Program::new(vec![insn; 1]).is_err_and(|e| e.to_string().contains("unknown code")) {
                continue;
            }
            let at = random.below(5000) as usize;
            assert_eq!(insn.assembly(at), pcap.image(insn, at));
        }
    }
}
