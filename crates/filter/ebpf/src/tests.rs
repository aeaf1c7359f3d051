//! Emitted programs, their results on an interpreter of ours, and refusals. Only the kernel's verifier proves them
//! loadable: `tests/it/ebpf.rs`.

use tapline_packet::{BlockSample, Meta, Packet, PacketType, VlanTag};
use tapline_testkit::ebpf as machine;
use tapline_testkit::programs;
use tapline_testkit::random::Random;

use super::*;
use tapline_bpf::ebpf::{FRAME, code};
use tapline_bpf::{self as bpf, Insn as Classic, code as classic};
use tapline_ir::{
    Binary, Builder, ByteOrder, Comparison, MetaField, Op, PacketOffset, Target, Terminator, Type, Value,
    Width, raise_program,
};

const XDP: Hook = Hook::Xdp { matched: XdpAction::Pass, unmatched: XdpAction::Drop };

/// A graph of one block that returns what `make` makes.
fn graph(make: impl FnOnce(&mut Builder) -> Value) -> Ir {
    let mut builder = Builder::new();
    let entry = builder.block();
    builder.switch_to(entry);
    let value = make(&mut builder);
    builder.finish(Terminator::Return(value));
    let ir = builder.build(entry);
    ir.verify().expect("it is safe");
    ir
}

fn text(ir: &Ir, hook: Hook) -> String {
    emit(ir, hook).expect("it can be had").text()
}

/// The program's return value, from an interpreter of ours.
fn run(program: &Program, data: &[u8], meta: &Meta) -> u32 {
    let kind = match program.hook() {
        Hook::SocketFilter | Hook::Count(_) => machine::Kind::SocketFilter,
        Hook::Xdp { .. } | Hook::Front(_) => machine::Kind::Xdp,
    };
    machine::run(kind, program.insns(), Packet { data, meta })
}

/// `ip`: the EtherType at 12.
fn ip() -> Ir {
    let program = bpf::Program::new(vec![
        Classic::new(classic::LD | classic::H | classic::ABS, 12),
        Classic::jump(classic::JMP | classic::JEQ | classic::K, 0x800, 0, 1),
        Classic::new(classic::RET | classic::K, 96),
        Classic::new(classic::RET | classic::K, 0),
    ]);
    raise_program(&program.expect("a program"))
}

#[test]
fn a_socket_filter_loads_and_the_load_is_the_guard() {
    let text = text(&ip(), Hook::SocketFilter);
    let lines: Vec<&str> = text.lines().map(|line| line.split_once(") ").expect("a code").1).collect();
    assert_eq!(lines[..3], ["r6 = r1", "r0 = *(u16 *)skb[12]", "r2 = r0"]);
    assert!(lines[3].starts_with("if w2 ") && lines[3].contains("0x800"), "{text}");
    assert!(!text.contains("r6 +0"), "no comparison of the length: {text}");
}

#[test]
fn an_xdp_program_compares_with_the_packets_end() {
    let text = text(&ip(), XDP);
    let expected =
        ["r7 = *(u32 *)(r1 +0)", "r8 = *(u32 *)(r1 +4)", "r7", "+= 14", "if r2 > r8", "(r7 +12)", "be16"];
    let mut rest = text.as_str();
    for part in expected {
        rest = rest.split_once(part).unwrap_or_else(|| panic!("no {part} there: {text}")).1;
    }
    assert!(text.contains("w0 = 2") && text.contains("w0 = 1"), "{text}");
}

#[test]
fn negative_offsets_are_compared_first() {
    let ir = |mask: u32| {
        graph(|builder| {
            let word = builder.load(PacketOffset::at(0), Width::Word);
            let mask = builder.const32(mask);
            let base = builder.binary(Binary::And, word, mask);
            builder.load(PacketOffset::from(base, 2), Width::Half)
        })
    };
    let small = text(&ir(0xffff), Hook::SocketFilter);
    assert!(!small.contains("(r6 +0)"), "{small}");
    let large = text(&ir(0xffff_fffe), Hook::SocketFilter);
    let (before, _) = large.split_once("skb[r").expect("a load at a variable place");
    assert!(before.contains("*(u32 *)(r6 +0)"), "{large}");
}

#[test]
fn values_spill_to_the_stack_and_no_farther() {
    let sum = |count: u32| {
        graph(|builder| {
            let values: Vec<Value> =
                (0..count).map(|at| builder.load(PacketOffset::at(at), Width::Byte)).collect();
            // In the order of their loads, so that all are alive behind the last one.
            values.into_iter().reduce(|sum, value| builder.binary(Binary::Xor, sum, value)).expect("some")
        })
    };
    assert!(!text(&sum(3), Hook::SocketFilter).contains("(r10 "));
    let program = emit(&sum(60), Hook::SocketFilter).expect("it fits the stack");
    let stores = program.insns().iter().filter(|insn| insn.code == code::STX | code::MEM | code::DOUBLE);
    let slots: Vec<i16> = stores.map(|insn| insn.offset).collect();
    assert!(
        slots.len() > 50 && slots.iter().all(|slot| (-512..0).contains(slot) && slot % 8 == 0),
        "{slots:?}"
    );
    let too_many = emit(&sum(200), Hook::SocketFilter);
    assert!(matches!(too_many, Err(EmitError::TooManyValues { needed: 65.. })), "{too_many:?}");
}

#[test]
fn no_stack_is_read_before_it_is_written() {
    let ir = graph(|builder| {
        let values: Vec<Value> = (0..40).map(|at| builder.load(PacketOffset::at(at), Width::Byte)).collect();
        values.into_iter().rev().reduce(|sum, value| builder.binary(Binary::Add, sum, value)).expect("some")
    });
    for hook in [Hook::SocketFilter, XDP] {
        let program = emit(&ir, hook).expect("it fits");
        let mut written = Vec::new();
        for insn in program.insns() {
            if insn.code == code::STX | code::MEM | code::DOUBLE {
                written.push(insn.offset);
            } else if insn.class() == code::LDX && insn.from() == FRAME {
                assert!(written.contains(&insn.offset), "{}", program.text());
            }
        }
        assert!(!written.is_empty());
    }
}

#[test]
fn wide_loads_and_both_orders() {
    let load = |order| {
        graph(|builder| {
            builder.require_bytes(PacketOffset::at(8));
            let value = builder.push(Op::Load(PacketOffset::at(0), Width::Double, order), Type::U64);
            builder.truncate(value)
        })
    };
    let big = text(&load(ByteOrder::Big), Hook::SocketFilter);
    assert_eq!(big.matches("*(u32 *)skb[").count(), 2, "{big}");
    assert!(!big.contains("be64") && text(&load(ByteOrder::Little), Hook::SocketFilter).contains("be64"));
    if cfg!(target_endian = "little") {
        assert!(text(&load(ByteOrder::Big), XDP).contains("be64"));
        assert!(!text(&load(ByteOrder::Little), XDP).contains("be64"));
    }
}

#[test]
fn fields_unknown_before_the_stack_are_errors() {
    for field in [
        MetaField::PacketType,
        MetaField::ReceiveHash,
        MetaField::VlanTag,
        MetaField::VlanPresent,
        MetaField::VlanProtocol,
    ] {
        let ir = graph(|builder| builder.field(field));
        assert!(matches!(emit(&ir, XDP), Err(EmitError::NotBeforeTheStack { .. })), "{field:?}");
        emit(&ir, Hook::SocketFilter).expect("sockets know");
    }
    for field in [MetaField::WireLen, MetaField::CapLen, MetaField::InterfaceIndex] {
        emit(&graph(|builder| builder.field(field)), XDP).expect("XDP knows");
    }
}

#[test]
fn state_is_refused() {
    let ir = graph(|builder| {
        builder.cells(4);
        let index = builder.const64(1);
        let cell = builder.cell(index);
        builder.truncate(cell)
    });
    assert_eq!(emit(&ir, Hook::SocketFilter), Err(EmitError::State));
}

#[test]
fn loads_past_any_packet_end_the_program() {
    let ir = graph(|builder| {
        let value = builder.load(PacketOffset::at(3_000_000_000), Width::Byte);
        let one = builder.const32(1);
        builder.binary(Binary::Or, value, one)
    });
    for (hook, result) in [(Hook::SocketFilter, "w0 = 0"), (XDP, "w0 = 1")] {
        let text = text(&ir, hook);
        assert!(!text.contains("skb") && !text.contains("|=") && text.contains(result), "{text}");
    }
}

#[test]
fn tests_without_opposite_and_edge_arguments() {
    let mut builder = Builder::new();
    let (entry, join) = (builder.block(), builder.block());
    let result = builder.parameter(join, Type::U32);
    builder.switch_to(entry);
    let (left, right) =
        (builder.load(PacketOffset::at(0), Width::Byte), builder.load(PacketOffset::at(1), Width::Byte));
    let to = |value| Target { block: join, arguments: vec![value] };
    let branch = Terminator::Branch { test: Comparison::AnySet, left, right, yes: to(left), no: to(right) };
    builder.finish(branch);
    builder.switch_to(join);
    builder.finish(Terminator::Return(result));
    let text = text(&builder.build(entry), Hook::SocketFilter);
    assert!(text.contains(" & w"), "{text}");
}

/// Random classic programs, as both kinds of program, on a machine that knows the kernel's rules.
#[test]
fn verdicts_are_those_of_the_interpreter() {
    let mut random = Random::new(3);
    let mut accepted = 0;
    for _ in 0..2_000 {
        let insns = programs::program(&mut random);
        let insns = insns.into_iter().map(|raw| Classic { code: raw.code, jt: raw.jt, jf: raw.jf, k: raw.k });
        let reference = bpf::Program::new(insns.collect()).expect("valid");
        let ir = raise_program(&reference);
        let socket = emit(&ir, Hook::SocketFilter).expect("no state");
        let xdp = emit(&ir, XDP).ok();
        for _ in 0..10 {
            let len = random.below(60) as usize;
            let data = random.bytes(len);
            let meta = Meta { wire_len: len as u32, ..Meta::default() };
            let expected = reference.run(Packet { data: &data, meta: &meta });
            assert_eq!(run(&socket, &data, &meta), expected, "{}\n{data:02x?}", socket.text());
            if let Some(xdp) = &xdp {
                let action = if expected == 0 { XdpAction::DROP } else { XdpAction::PASS };
                assert_eq!(run(xdp, &data, &meta), action, "{}\n{data:02x?}", xdp.text());
            }
            accepted += u32::from(expected != 0);
        }
    }
    assert!(accepted > 1_000, "{accepted}");
}

/// Metadata that no test run of the kernel has: tags and hashes.
#[test]
fn fields_hold_the_metadata_of_the_capture() {
    let tagged = Meta {
        vlan: Some(VlanTag { tpid: 0x88a8, tci: 0xa123 }),
        packet_type: PacketType::OtherHost,
        if_index: 4,
        rx_hash: 0xdead_beef,
        ..Meta::default()
    };
    let value = |field, meta: &Meta| {
        let program = emit(&graph(|builder| builder.field(field)), Hook::SocketFilter).expect("a filter");
        run(&program, &[0; 33], meta)
    };
    let fields = [
        (MetaField::VlanTag, 0xa123, 0),
        (MetaField::VlanProtocol, 0x88a8, 0),
        (MetaField::VlanPresent, 1, 0),
        (MetaField::PacketType, 3, 0),
        (MetaField::InterfaceIndex, 4, 0),
        (MetaField::ReceiveHash, 0xdead_beef, 0),
        (MetaField::CapLen, 33, 33),
    ];
    for (field, expected, without) in fields {
        assert_eq!((value(field, &tagged), value(field, &Meta::default())), (expected, without), "{field:?}");
    }
}

#[test]
fn a_count_adds_in_the_line_of_its_processor() {
    let count = SocketCount { map: 7, lines: 4, header_len: 16, sample: None, hands_on: true };
    let text = |count| text(&ip(), Hook::Count(count));
    let (beside, only) = (text(count), text(SocketCount { hands_on: false, ..count }));
    for line in ["w0 &= 3", "r0 <<= 6", "r8 += 16", "lock *(u64 *)(r2 +80) += r8"] {
        assert!(beside.contains(line), "{line}: {beside}");
    }
    assert!(beside.contains("r0 = r7") && !only.contains("r7"), "{only}");
    let sampled = text(SocketCount { sample: Some(BlockSample::new(1, 100, 3)), ..count });
    assert!(sampled.contains("lock r1 = *(u64 *)(r2 +0) += r1"), "{sampled}");
    let words: Vec<usize> = (0..4).map(SocketCount::packets_word).collect();
    assert_eq!((words, SocketCount::memory_len(4)), (vec![8, 16, 24, 32], 320));
}
