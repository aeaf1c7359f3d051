//! Random programs of classic BPF and random graphs.

use tapline_bpf::code::*;
use tapline_bpf::{self as bpf, Insn, SCRATCH_CELLS, ancillary};
use tapline_ir::{
    Binary, BlockId, Builder, ByteOrder, Case, Comparison, Ir, MetaField, Op, PacketOffset, SwitchSearch,
    Target, Terminator, Type, Value, Width,
};
use tapline_testkit::programs;
use tapline_testkit::random::Random;

pub(super) fn random_program(random: &mut Random) -> bpf::Program {
    let insns = if random.one_of(1, 2) {
        programs::program(random)
    } else {
        let len = random.between(3..=40) as usize;
        let mut insns: Vec<Insn> = (0..len).map(|at| random_insn(at, len, random)).collect();
        insns.push(Insn::new(RET | if random.one_of(1, 2) { A } else { K }, random.below(100) as u32));
        insns
    };
    bpf::Program::new(insns).expect("random programs are valid")
}

/// Offsets at the kernel's borders, metadata, and everything else.
fn random_insn(at: usize, len: usize, random: &mut Random) -> Insn {
    let room = (len - at) as u64;
    let size = *random.pick(&[B, B, H, W]);
    let offset = match random.below(20) {
        0 => *random.pick(&[u32::MAX, 1 << 31, (1 << 31) - 4, 65_535, 0xfff0_0000, 0xffe0_0000, 70_000]),
        _ => random.below(60) as u32,
    };
    let constant = match random.below(4) {
        0 => random.bits() as u32,
        1 => *random.pick(&[0, 1, u32::MAX, 1 << 31, 31, 32]),
        _ => random.below(256) as u32,
    };
    let cell = random.below(SCRATCH_CELLS as u64) as u32;
    let operation = *random.pick(&[ADD, SUB, MUL, OR, AND, AND, XOR, LSH, RSH, DIV, MOD]);
    match random.below(24) {
        0..=5 => Insn::new(LD | size | ABS, offset),
        6..=7 => Insn::new(LD | size | IND, offset),
        8 => Insn::new(LDX | B | MSH, offset),
        9 => Insn::new(if random.one_of(1, 2) { LD | IMM } else { LDX | IMM }, constant),
        10 => Insn::new(if random.one_of(1, 2) { LD | LEN } else { LDX | LEN }, 0),
        11 => Insn::new(if random.one_of(1, 2) { LD | MEM } else { LDX | MEM }, cell),
        12 => Insn::new(if random.one_of(1, 2) { ST } else { STX }, cell),
        13 => Insn::new(MISC | if random.one_of(1, 2) { TAX } else { TXA }, 0),
        14 => Insn::new(ALU | NEG, 0),
        15..=16 => Insn::new(ALU | operation | X, 0),
        17..=18 => {
            let shift = matches!(operation, LSH | RSH);
            Insn::new(ALU | operation, if shift { constant % 32 } else { constant.max(1) })
        }
        19 => Insn::new(JMP | JA, random.below(room.min(4)) as u32),
        20 => Insn::new(
            LD | W | ABS,
            *random.pick(&[ancillary::IFINDEX, ancillary::RXHASH, ancillary::ALU_XOR_X]),
        ),
        _ => {
            let test = *random.pick(&[JEQ, JGT, JGE, JSET]);
            let mut skip = || random.below(room.min(6)) as u8;
            let (jt, jf) = (skip(), skip());
            Insn::jump(JMP | test | *random.pick(&[K, K, X]), constant, jt, jf)
        }
    }
}

/// Bytes that the first block of a random graph asks for, so that later ones need not.
const SHOWN: u32 = 12;

struct Graph<'a> {
    builder: Builder,
    random: &'a mut Random,
    /// The values that every block may read, and those that the current one may.
    values: Vec<Value>,
}

pub(super) fn random_graph(random: &mut Random) -> Ir {
    let mut graph = Graph { builder: Builder::new(), random, values: Vec::new() };
    let count = graph.random.between(2..=8) as u32;
    let blocks: Vec<BlockId> = (0..count).map(|_| graph.builder.block()).collect();
    let mut parameters = vec![Vec::new(); blocks.len()];
    for (at, &block) in blocks.iter().enumerate().skip(1) {
        for _ in 0..graph.random.below(3) {
            let ty = *graph.random.pick(&[Type::U32, Type::U64]);
            parameters[at].push(graph.builder.parameter(block, ty));
        }
    }
    let mut everywhere = 0;
    for (at, &block) in blocks.iter().enumerate() {
        graph.builder.switch_to(block);
        graph.values.truncate(everywhere);
        graph.values.extend(&parameters[at]);
        if at == 0 {
            graph.builder.require_bytes(PacketOffset::at(SHOWN));
            graph.values = vec![graph.builder.const32(7), graph.builder.const64(1 << 40)];
        }
        let count = graph.random.between(1..=14);
        (0..count).for_each(|_| graph.instruction());
        graph.terminator(&blocks[at + 1..], &parameters[at + 1..]);
        if at == 0 {
            everywhere = graph.values.len();
        }
    }
    graph.builder.build(blocks[0])
}

impl Graph<'_> {
    fn value(&mut self, ty: Type) -> Value {
        let fitting: Vec<Value> =
            self.values.iter().copied().filter(|value| self.builder.ir().ty(*value) == ty).collect();
        *self.random.pick(&fitting)
    }

    fn instruction(&mut self) {
        let ty = *self.random.pick(&[Type::U32, Type::U32, Type::U64]);
        let width = *self.random.pick(&[Width::Byte, Width::Half, Width::Word, Width::Double]);
        let order = *self.random.pick(&[ByteOrder::Big, ByteOrder::Little]);
        let value = match self.random.below(12) {
            0 => {
                let offset = self.random.below(u64::from(SHOWN - width.bytes())) as u32;
                self.builder.push(Op::Load(PacketOffset::at(offset), width, order), width.ty())
            }
            1..=2 => {
                let offset = self.random.below(40) as u32;
                self.builder.load(PacketOffset::at(offset), width)
            }
            3..=4 => {
                // Small bases, so that something is there; sometimes any.
                let base = self.value(ty);
                let base = if self.random.one_of(1, 8) { base } else { self.masked(base, ty) };
                let end = self.random.between(8..=20) as u32;
                self.builder.require_bytes(PacketOffset::from(base, end));
                let offset = self.random.below(u64::from(end - 7)) as u32;
                self.builder.push(Op::Load(PacketOffset::from(base, offset), width, order), width.ty())
            }
            5 => {
                let field =
                    *self.random.pick(&[MetaField::CapLen, MetaField::WireLen, MetaField::InterfaceIndex]);
                self.builder.field(field)
            }
            6 => {
                let k = self.constant(ty);
                self.builder.push(Op::Const(k), ty)
            }
            7 => {
                let (left, right, test) = (self.value(ty), self.value(ty), self.test());
                self.builder.compare(test, left, right)
            }
            8 if ty == Type::U32 => {
                let value = self.value(Type::U64);
                self.builder.truncate(value)
            }
            8 => {
                let value = self.value(Type::U32);
                self.builder.extend(value)
            }
            _ => {
                let op = *self.random.pick(&Binary::ALL);
                let (left, right) = (self.value(ty), self.value(ty));
                let is_shift = matches!(op, Binary::Shl | Binary::Shr | Binary::SignedShr);
                let right = if is_shift && self.random.one_of(3, 4) { self.masked(right, ty) } else { right };
                self.builder.binary(op, left, right)
            }
        };
        self.values.push(value);
    }

    fn masked(&mut self, value: Value, ty: Type) -> Value {
        let mask = *self.random.pick(&[7, 31, 63]);
        let mask = self.builder.push(Op::Const(mask), ty);
        self.builder.binary(Binary::And, value, mask)
    }

    fn constant(&mut self, ty: Type) -> u64 {
        let k = match self.random.below(4) {
            0 => self.random.bits(),
            1 => *self.random.pick(&[0, 1, 31, 32, 63, 64, 0x7fff_ffff, 0x8000_0000, u64::MAX]),
            _ => self.random.below(256),
        };
        k & ty.max()
    }

    fn test(&mut self) -> Comparison {
        *self.random.pick(&Comparison::ALL)
    }

    fn target(&mut self, blocks: &[BlockId], parameters: &[Vec<Value>]) -> Target {
        let at = self.random.below(blocks.len() as u64) as usize;
        let types: Vec<Type> = parameters[at].iter().map(|value| self.builder.ir().ty(*value)).collect();
        Target { block: blocks[at], arguments: types.into_iter().map(|ty| self.value(ty)).collect() }
    }

    fn terminator(&mut self, blocks: &[BlockId], parameters: &[Vec<Value>]) {
        let ty = *self.random.pick(&[Type::U32, Type::U64]);
        let terminator = match self.random.below(8) {
            _ if blocks.is_empty() => Terminator::Return(self.value(Type::U32)),
            0 => Terminator::Goto(self.target(blocks, parameters)),
            1 => Terminator::Return(self.value(Type::U32)),
            2..=5 => {
                let (test, left, right) = (self.test(), self.value(ty), self.value(ty));
                let (yes, no) = (self.target(blocks, parameters), self.target(blocks, parameters));
                Terminator::Branch { test, left, right, yes, no }
            }
            _ => {
                let value = self.value(ty);
                let value = if self.random.one_of(2, 3) { self.masked(value, ty) } else { value };
                let mut keys: Vec<u64> =
                    (0..self.random.between(1..=20)).map(|_| self.constant(ty) & 127).collect();
                keys.extend([self.constant(ty), ty.max()]);
                keys.sort_unstable();
                keys.dedup();
                let targets = [self.target(blocks, parameters), self.target(blocks, parameters)];
                let case = |key| Case { key, to: self.random.pick(&targets).clone() };
                let cases = keys.into_iter().map(case).collect();
                let default = self.target(blocks, parameters);
                Terminator::Switch { value, cases, default, search: SwitchSearch::Binary }
            }
        };
        self.builder.finish(terminator);
    }
}
