//! Simplified graphs answer as the given ones: on libpcap's own unoptimised programs, raised to graphs, and on
//! made-up ones.

use std::collections::BTreeSet;

use tapline_packet::{Meta, Packet};
use tapline_testkit::expressions::Expressions;
use tapline_testkit::libpcap::{CompileSettings, Libpcap, LibpcapProgram};
use tapline_testkit::random::Random;
use tapline_testkit::volume::processor_time;

use super::{is_proven_to_reject_all, simplify};
use crate::assemble::assemble;
use crate::cfg::{Alu, Block, BlockId, Cfg, JumpTest, Operand, Statement, Terminator, Width};
use crate::code::*;
use crate::{Insn, Program};

/// A program as a graph: each jump target starts a block.
fn raise(insns: &[Insn]) -> Cfg {
    let mut starts: BTreeSet<usize> = BTreeSet::from([0]);
    for (at, insn) in insns.iter().enumerate() {
        if insn.class() == JMP || insn.class() == RET {
            starts.insert(at + 1);
            starts.extend(targets(at, *insn));
        }
    }
    starts.remove(&insns.len());
    let starts: Vec<usize> = starts.into_iter().collect();
    let block_at = |at: usize| BlockId(starts.binary_search(&at).expect("a block starts there") as u32);
    let mut cfg = Cfg { blocks: Vec::new(), entry: BlockId(0), lists: Default::default() };
    for (n, &start) in starts.iter().enumerate() {
        let end = starts.get(n + 1).copied().unwrap_or(insns.len());
        let last = insns[end - 1];
        let terminator = match last.class() {
            RET => Terminator::Return(last.k),
            JMP => terminator(end - 1, last, &block_at),
            _ => Terminator::Goto(block_at(end)),
        };
        let body = if matches!(last.class(), RET | JMP) { end - 1 } else { end };
        cfg.blocks.push(Block { statements: insns[start..body].iter().map(statement).collect(), terminator });
    }
    cfg
}

fn targets(at: usize, insn: Insn) -> Vec<usize> {
    match insn.class() {
        JMP if insn.is_branch() => vec![at + 1 + usize::from(insn.jt), at + 1 + usize::from(insn.jf)],
        JMP => vec![at + 1 + insn.k as usize],
        _ => vec![],
    }
}

fn terminator(at: usize, insn: Insn, block_at: &dyn Fn(usize) -> BlockId) -> Terminator {
    let next: Vec<BlockId> = targets(at, insn).into_iter().map(block_at).collect();
    let test = match insn.code & 0xf0 {
        JEQ => JumpTest::Equal,
        JGT => JumpTest::Greater,
        JGE => JumpTest::GreaterEqual,
        JSET => JumpTest::AnySet,
        _ => return Terminator::Goto(next[0]),
    };
    Terminator::Branch { test, operand: operand(insn), on_true: next[0], on_false: next[1] }
}

fn operand(insn: Insn) -> Operand {
    if insn.code & X != 0 { Operand::X } else { Operand::K(insn.k) }
}

fn statement(insn: &Insn) -> Statement {
    let Insn { code, k, .. } = *insn;
    let width = match code & 0x18 {
        H => Width::Half,
        B => Width::Byte,
        _ => Width::Word,
    };
    match (insn.class(), code & 0xe0) {
        (LD, ABS) => Statement::LoadPacket(width, k),
        (LD, IND) => Statement::LoadIndexed(width, k),
        (LD, LEN) => Statement::LoadLen,
        (LD, MEM) => Statement::LoadCell(k as u8),
        (LD, _) => Statement::LoadConst(k),
        (LDX, MSH) => Statement::LoadXHeaderLen(k),
        (LDX, MEM) => Statement::LoadXCell(k as u8),
        (LDX, LEN) => Statement::LoadXLen,
        (LDX, _) => Statement::LoadXConst(k),
        (ST, _) => Statement::Store(k as u8),
        (STX, _) => Statement::StoreX(k as u8),
        (MISC, _) if code == MISC | TXA => Statement::Txa,
        (MISC, _) => Statement::Tax,
        _ if code == ALU | NEG => Statement::Negate,
        _ => Statement::Alu(alu(code), operand(*insn)),
    }
}

fn alu(code: u16) -> Alu {
    match code & 0xf0 {
        ADD => Alu::Add,
        SUB => Alu::Sub,
        MUL => Alu::Mul,
        DIV => Alu::Div,
        MOD => Alu::Mod,
        AND => Alu::And,
        OR => Alu::Or,
        XOR => Alu::Xor,
        LSH => Alu::Shl,
        _ => Alu::Shr,
    }
}

fn insns(oracle: &LibpcapProgram) -> Vec<Insn> {
    // This crate without its tests, on which testkit depends, is another one with another type.
    let insns = oracle.insns().iter();
    insns.map(|insn| Insn { code: insn.code, jt: insn.jt, jf: insn.jf, k: insn.k }).collect()
}

fn program(cfg: &Cfg) -> Program {
    Program::new(assemble(cfg)).expect("an assembled graph is valid")
}

fn simplified(insns: &[Insn]) -> Program {
    program(&simplify(&raise(insns)))
}

fn verdict(program: &Program, data: &[u8]) -> u32 {
    let meta = Meta { wire_len: data.len() as u32 + 3, ..Meta::default() };
    program.run(Packet { data, meta: &meta })
}

fn pcap() -> Option<&'static Libpcap> {
    Libpcap::get().inspect_err(|reason| eprintln!("skipped: {reason}")).ok()
}

const PLAIN: CompileSettings = CompileSettings { optimise: false, ..CompileSettings::new(1) };

/// Random texts, compiled by libpcap without its optimiser: the simplified program agrees on steered and cut packets.
#[test]
fn simplified_programs_answer_as_plain_ones() {
    let Some(pcap) = pcap() else { return };
    let mut random = Random::new(3);
    let (mut ours, mut theirs) = (0, 0);
    for dlt in [1, 105, 127, 9, 123, 1, 1] {
        let mut stream = Expressions::new(random.bits(), dlt);
        for _ in 0..300 {
            let text = stream.text();
            let Ok(oracle) = pcap.compile(&text, CompileSettings { dlt, ..PLAIN }) else { continue };
            if oracle.may_loop() {
                continue;
            }
            let plain = Program::new(insns(&oracle)).expect("libpcap's programs are valid");
            let short = simplified(plain.insns());
            assert!(short.insns().len() <= plain.insns().len(), "{text} on {dlt} grew");
            if let Ok(optimised) = pcap.compile(&text, CompileSettings::new(dlt)) {
                (ours, theirs) = (ours + short.insns().len(), theirs + optimised.insns().len());
            }
            for _ in 0..25 {
                let len = random.below(90) as usize;
                let mut data = random.bytes(len);
                let trace = oracle.plant(&mut data, len as u32 + 3, &mut random);
                if !trace.load_ends.is_empty() && random.one_of(1, 3) {
                    let end = *random.pick(&trace.load_ends);
                    data.truncate((end + 1).saturating_sub(random.below(4) as usize));
                }
                assert_eq!(
                    verdict(&short, &data),
                    verdict(&plain, &data),
                    "{text} on {dlt}, packet {data:02x?}\n{}{}",
                    plain.text(crate::DumpFormat::Assembly),
                    short.text(crate::DumpFormat::Assembly)
                );
            }
        }
    }
    eprintln!("instructions of all programs: {ours}, libpcap's optimiser {theirs}");
    assert!(ours <= theirs * 21 / 20, "ours {ours}, libpcap's {theirs}");
}

/// The filters that people write are about as short as libpcap's optimised ones.
#[test]
fn common_filters_are_as_short_as_libpcaps() {
    let Some(pcap) = pcap() else { return };
    let texts = [
        "ip",
        "udp",
        "src host 1.1.1.1 and dst host 2.2.2.2",
        "tcp port 10 or 20 or 30 or 40 or 50",
        "ip host (1.1.1.1 or 2.2.2.2 or 3.3.3.3 or 4.4.4.4 or 5.5.5.5) and tcp port (10 or 20 or 30 or 40)",
        "port 53",
        "host 10.0.0.1",
        "host 10.0.0.1 or host 10.0.0.2 or host 10.0.0.3",
        "net 10.0.0.0/8 and not port 22",
        "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
        "icmp or arp",
        "portrange 6000-6010",
        "vlan and ip",
        "not broadcast and not multicast",
        "ip6 and udp port 53",
        "tcp dst port 80 and (((ip[2:2] - ((ip[0]&0xf)<<2)) - ((tcp[12]&0xf0)>>2)) != 0)",
    ];
    for text in texts {
        let plain = insns(&pcap.compile(text, PLAIN).expect("compiles"));
        let optimised = pcap.compile(text, CompileSettings::new(1)).expect("compiles").insns().len();
        let short = simplified(&plain);
        eprintln!("{:4} plain, {optimised:3} libpcap, {:3} ours  {text}", plain.len(), short.insns().len());
        // Each chain may need a load again, after the load whose failure decides for short packets.
        assert!(short.insns().len() <= optimised + 3, "{text}\n{}", short.text(crate::DumpFormat::Assembly));
    }
}

/// Texts that libpcap refuses as never true, and texts that it takes although they never are.
#[test]
fn never_true_is_proven_where_libpcap_proves_it() {
    let Some(pcap) = pcap() else { return };
    let texts = [
        "ip and arp",
        "icmp and vlan",
        "ip6 and tcp[13] = 2",
        "tcp and udp and ip",
        "1 > 2",
        "len & 0 = 1",
        "0 * ip[0] = 1",
        "ip and not ip",
        "ip[9] = 6 and ip[9] > 10",
        "tcp[0] = 300",
        "ip[0] != ip[0]",
        "ip or arp",
        "not ip or not arp",
        "vlan 5 and vlan 6",
        "src host 1.1.1.1 and src host 2.2.2.2",
        "tcp port 80 and not tcp",
        // Arithmetic is worked out too late for its tests to decide others, unless nothing stands before them.
        "udp and 2 < 0",
        "udp and 2 < (17 & 8)",
        "2 < (17 & 8)",
        "sctp and not (84 * 2031) >= 69",
        "ip and 2 + 1 = 4",
        "2 + 1 = 4 and ip",
        "(2 + 1 = 3 or ip) and (2 + 1 = 4)",
        "ip and 2 + 1 = 4 and 2 + 1 = 5",
        "ether[3] = 5 and ether[3] * 0 = 5",
        // So are loads behind an index: these are other bytes than those that tell the protocol.
        "ip and ether[12:2] = 0x806",
        "ether[12:2] = 0x800 and ether[12:2] = 0x806",
        "ether[12:2] & 0xff = 0 and ether[12:2] & 0xff = 6",
        "ether[12:2] = 0x800 and ether[12:2] & 0xffff = 0x806",
        "tcp[0] = 4 and tcp[-1+1] = 5",
    ];
    for text in texts {
        let plain = raise(&insns(&pcap.compile(text, PLAIN).expect("compiles")));
        let theirs = pcap.compile(text, CompileSettings::new(1)).is_err();
        assert_eq!(is_proven_to_reject_all(&plain), theirs, "{text}");
    }
}

/// A thousand hosts joined by `or`: for each and each protocol a test of the protocol and of two addresses.
#[test]
fn long_chains_take_linear_time() {
    let chain = |hosts: u32| {
        let mut cfg = Cfg::constant(0);
        let accept = cfg.push(vec![], Terminator::Return(1));
        let mut next = BlockId(0);
        for host in (0..hosts).rev() {
            for (proto, source, target) in [(0x8035, 28, 38), (0x0806, 28, 38), (0x0800, 26, 30)] {
                let test = |k: u32, on_false| Terminator::Branch {
                    test: JumpTest::Equal,
                    operand: Operand::K(k),
                    on_true: accept,
                    on_false,
                };
                let word = |at: u32| vec![Statement::LoadPacket(Width::Word, at)];
                let on_target = cfg.push(word(target), test(host, next));
                let on_source = cfg.push(word(source), test(host, on_target));
                let Terminator::Branch { test, operand, .. } = test(proto, next) else { unreachable!() };
                let to = Terminator::Branch { test, operand, on_true: on_source, on_false: next };
                next = cfg.push(vec![Statement::LoadPacket(Width::Half, 12)], to);
            }
        }
        cfg.entry = next;
        cfg
    };
    let small = simplify(&chain(10));
    // 4 to tell the protocols apart; for IPv4 and for both kinds of ARP 3 loads and the tests of 10 targets and one
    // source; the tests of the other 8 sources are the same; 2 returns.
    assert_eq!(program(&small).insns().len(), 4 + 2 * 3 + 2 * 12 + 8 + 2);
    let (few, many) = (chain(100), chain(1000));
    let (short, _) = processor_time(|| simplify(&few));
    let (long, large) = processor_time(|| simplify(&many));
    eprintln!("100 hosts simplified in {short:?}, 1,000 in {long:?} to {} blocks", large.order().len());
    // Ten times the hosts take some twelve times as long; steps in the square of the length would take 100 times.
    assert!(long < 40 * short, "{short:?}, {long:?}");
}
