//! Native code against the graphs' own interpreter, on random graphs: every operation, width, test, switch and
//! search, cells, calls, loops.
//!
//! ```text
//! graph    := segment+ return
//! segment  := block(parameters) ... goto | branch | switch to later segments
//!           | header(count, sum) { count < rounds ? body : next segment }
//! operands := values of the entry, of the own block, its parameters; constants
//! ```

use std::sync::Arc;

use crate::support::{Guarded, Packets};
use tapline_ir::{
    Binary, BlockId, Builder, ByteOrder, Case, Comparison, Function, Ir, Machine, Memory, MetaField, Op,
    PacketOffset, SwitchSearch, Target, Terminator, Type, Value, Width,
};
use tapline_jit::Native;
use tapline_packet::{Batch, Meta, Packet, Selection, VlanTag};
use tapline_testkit::random::Random;
use tapline_testkit::volume::{number, volume};

const CELLS: u32 = 8;

/// Mixes its inputs, and leaves a trace in a cell.
#[derive(Debug)]
struct Mix;

impl Function for Mix {
    fn name(&self) -> &str {
        "mix"
    }

    fn call(&self, packet: Packet<'_>, memory: &Memory, arguments: &[u64]) -> u64 {
        let mixed =
            arguments.iter().fold(packet.data.len() as u64, |sum, k| sum.wrapping_mul(31).wrapping_add(*k));
        memory.set(mixed, mixed ^ memory.get(mixed));
        mixed
    }
}

/// Panics on packets that start with an odd byte.
#[derive(Debug)]
struct Fragile;

impl Function for Fragile {
    fn name(&self) -> &str {
        "fragile"
    }

    fn call(&self, packet: Packet<'_>, _: &Memory, _: &[u64]) -> u64 {
        assert!(packet.data.first().is_none_or(|byte| byte % 2 == 0), "as the test wants it");
        7
    }
}

/// Makes graphs.
struct Maker<'a> {
    builder: Builder,
    random: &'a mut Random,
    /// Readable everywhere.
    everywhere: Vec<Value>,
    /// Readable in the current block.
    here: Vec<Value>,
    /// The first block of each segment, and its parameters' types.
    heads: Vec<(BlockId, Vec<Type>)>,
}

const TYPES: [Type; 2] = [Type::U32, Type::U64];
const SEARCHES: [SwitchSearch; 5] = [
    SwitchSearch::Bitmap,
    SwitchSearch::BitTable,
    SwitchSearch::JumpTable,
    SwitchSearch::Binary,
    SwitchSearch::PerfectHash,
];
const FIELDS: [MetaField; 8] = [
    MetaField::WireLen,
    MetaField::CapLen,
    MetaField::PacketType,
    MetaField::InterfaceIndex,
    MetaField::ReceiveHash,
    MetaField::VlanTag,
    MetaField::VlanPresent,
    MetaField::VlanProtocol,
];

fn graph(random: &mut Random) -> Ir {
    let mut builder = Builder::new();
    builder.cells(CELLS);
    builder.function(Arc::new(Mix));
    let entry = builder.block();
    let segments = random.between(1..=8) as usize;
    let mut heads = Vec::new();
    for _ in 0..=segments {
        let head = builder.block();
        let types: Vec<Type> = (0..random.below(4)).map(|_| *random.pick(&TYPES)).collect();
        types.iter().for_each(|ty| _ = builder.parameter(head, *ty));
        heads.push((head, types));
    }
    let mut maker = Maker { builder, random, everywhere: Vec::new(), here: Vec::new(), heads };
    maker.builder.switch_to(entry);
    maker.instructions();
    maker.leave(0);
    maker.everywhere = std::mem::take(&mut maker.here);
    for segment in 0..=segments {
        maker.segment(segment);
    }
    maker.builder.build(entry)
}

impl Maker<'_> {
    fn segment(&mut self, number: usize) {
        let head = self.heads[number].0;
        self.builder.switch_to(head);
        self.here = self.builder.ir()[head].parameters.clone();
        self.instructions();
        if number + 1 == self.heads.len() {
            let ty = *self.random.pick(&TYPES);
            let verdict = self.pick(ty);
            return self.builder.finish(Terminator::Return(verdict));
        }
        match self.random.below(4) {
            0 => self.looped(number + 1),
            _ => self.leave(number + 1),
        }
    }

    /// Ends the current block with ways to segments from `first` on.
    fn leave(&mut self, first: usize) {
        let terminator = match self.random.below(5) {
            0 => Terminator::Goto(self.target(first)),
            1 | 2 => {
                let ty = *self.random.pick(&TYPES);
                let (test, left, right) = (*self.random.pick(&Comparison::ALL), self.pick(ty), self.pick(ty));
                Terminator::Branch { test, left, right, yes: self.target(first), no: self.target(first) }
            }
            _ => self.switch(first),
        };
        self.builder.finish(terminator);
    }

    fn switch(&mut self, first: usize) -> Terminator {
        let ty = *self.random.pick(&TYPES);
        let value = self.narrowed(ty);
        let (start, apart) = (self.random.below(20), *self.random.pick(&[1, 1, 2, 7, 300]));
        let one = self.random.one_of(2, 3).then(|| self.target(first));
        let mut cases: Vec<Case> = Vec::new();
        let mut key = start;
        for _ in 0..self.random.below(40) {
            let to = one.clone().unwrap_or_else(|| self.target(first));
            cases.push(Case { key, to });
            key += 1 + self.random.below(apart);
        }
        if self.random.one_of(1, 4) && key < ty.max() {
            let to = one.clone().unwrap_or_else(|| self.target(first));
            cases.push(Case { key: ty.max(), to });
        }
        let (default, search) = (self.target(first), *self.random.pick(&SEARCHES));
        Terminator::Switch { value, cases: cases.into(), default, search }
    }

    /// A value that is likely among the keys of a switch.
    fn narrowed(&mut self, ty: Type) -> Value {
        let value = self.pick(ty);
        if self.random.one_of(1, 8) {
            return value;
        }
        let mask = *self.random.pick(&[15, 63, 255]);
        let mask = self.constant(ty, mask);
        self.builder.binary(Binary::And, value, mask)
    }

    fn target(&mut self, first: usize) -> Target {
        let last = (self.heads.len() - 1).min(first + 2);
        let number = self.random.between(first as u64..=last as u64) as usize;
        let (block, types) = self.heads[number].clone();
        Target { block, arguments: types.into_iter().map(|ty| self.pick(ty)).collect() }
    }

    /// A loop of up to 5 rounds, then on to a segment.
    fn looped(&mut self, next: usize) {
        let rounds = self.random.below(6) as u32;
        let [header, body, after] = [(); 3].map(|()| self.builder.block());
        let (count, sum) =
            (self.builder.parameter(header, Type::U32), self.builder.parameter(header, Type::U64));
        let (zero, start) = (self.constant(Type::U32, 0), self.pick(Type::U64));
        let to = |block, arguments| Target { block, arguments };
        self.builder.finish(Terminator::Goto(to(header, vec![zero, start])));
        self.builder.declare_loop(header, rounds.into());
        self.builder.switch_to(header);
        let last = self.builder.const32(rounds);
        let (yes, no) = (to(after, vec![]), to(body, vec![]));
        let test = Comparison::GreaterEqual;
        self.builder.finish(Terminator::Branch { test, left: count, right: last, yes, no });
        self.builder.switch_to(body);
        self.here = vec![count, sum];
        self.instructions();
        let one = self.builder.const32(1);
        let (more, sum_then) = (self.builder.binary(Binary::Add, count, one), self.pick(Type::U64));
        self.builder.finish(Terminator::Goto(to(header, vec![more, sum_then])));
        self.builder.switch_to(after);
        self.here = vec![count, sum];
        self.instructions();
        self.leave(next);
    }

    fn instructions(&mut self) {
        for _ in 0..self.random.below(10) {
            if let Some(value) = self.instruction() {
                self.here.push(value);
            }
        }
    }

    fn instruction(&mut self) -> Option<Value> {
        let ty = *self.random.pick(&TYPES);
        Some(match self.random.below(14) {
            0 => self.constant_of(ty),
            1 => {
                let field = *self.random.pick(&FIELDS);
                self.builder.field(field)
            }
            2 | 3 => self.load(),
            4..=6 => {
                let (op, left, right) = (*self.random.pick(&Binary::ALL), self.pick(ty), self.pick(ty));
                if matches!(op, Binary::Div | Binary::Mod) && self.random.one_of(1, 2) {
                    let by = *self.random.pick(&[1, 2, 3, 7, 8, 10, ty.max()]);
                    let by = self.constant(ty, by);
                    return Some(self.builder.binary(op, left, by));
                }
                self.builder.binary(op, left, right)
            }
            7 => {
                let (test, left, right) = (*self.random.pick(&Comparison::ALL), self.pick(ty), self.pick(ty));
                self.builder.compare(test, left, right)
            }
            8 => {
                let value = self.pick(Type::U32);
                self.builder.extend(value)
            }
            9 => {
                let value = self.pick(Type::U64);
                self.builder.truncate(value)
            }
            10 => {
                let index = self.pick(Type::U64);
                self.builder.cell(index)
            }
            11 => {
                let (index, value) = (self.pick(Type::U64), self.pick(Type::U64));
                self.builder.set_cell(index, value);
                return None;
            }
            12 => {
                let arguments: Vec<Value> = (0..self.random.below(5)).map(|_| self.pick(Type::U64)).collect();
                self.builder.call(0, &arguments)
            }
            _ => return self.guard(ty),
        })
    }

    /// A guard that mostly holds, so that the code behind it runs.
    fn guard(&mut self, ty: Type) -> Option<Value> {
        let value = self.pick(ty);
        if self.random.one_of(1, 2) {
            let one = self.constant(ty, 1);
            let odd = self.builder.binary(Binary::Or, value, one);
            let guarded = if self.random.one_of(7, 8) { odd } else { value };
            self.builder.push(Op::NonZero(guarded), Type::None);
        } else {
            let mask = self.constant(ty, 7);
            let small = self.builder.binary(Binary::And, value, mask);
            let base = if self.random.one_of(15, 16) { small } else { value };
            let offset = *self.random.pick(&[0, 1, 8, 30, 0x8000_0000, u32::MAX]);
            let offset = if self.random.one_of(7, 8) { offset % 16 } else { offset };
            self.builder.require_bytes(PacketOffset::from(base, offset));
        }
        None
    }

    fn load(&mut self) -> Value {
        let width = *self.random.pick(&[Width::Byte, Width::Half, Width::Word, Width::Double]);
        let offset = match self.random.below(12) {
            0 => *self.random.pick(&[0x7fff_ffff, 0x8000_0000, 0xffff_fff0, 60, 63]),
            _ => self.random.below(24) as u32,
        };
        let place = match self.random.below(3) {
            0 => PacketOffset::at(offset),
            _ => {
                let ty = *self.random.pick(&TYPES);
                let (value, mask) = (self.pick(ty), self.constant(ty, 15));
                let small = self.builder.binary(Binary::And, value, mask);
                PacketOffset::from(if self.random.one_of(11, 12) { small } else { value }, offset)
            }
        };
        if self.random.one_of(1, 2) {
            return self.builder.load(place, width);
        }
        self.builder
            .require_bytes(PacketOffset { offset: place.offset.saturating_add(width.bytes()), ..place });
        let place = PacketOffset { offset: place.offset.min(u32::MAX - 8), ..place };
        self.builder.push(Op::Load(place, width, ByteOrder::Little), width.ty())
    }

    /// A value of a type that can be read here.
    fn pick(&mut self, ty: Type) -> Value {
        let fits = |value: &&Value| self.builder.ir().ty(**value) == ty;
        let known: Vec<Value> = self.here.iter().chain(&self.everywhere).filter(fits).copied().collect();
        if known.is_empty() || self.random.one_of(1, 6) {
            return self.constant_of(ty);
        }
        *self.random.pick(&known)
    }

    fn constant_of(&mut self, ty: Type) -> Value {
        let bits = self.random.bits();
        let k = *self.random.pick(&[
            0,
            1,
            2,
            3,
            31,
            32,
            33,
            63,
            64,
            255,
            0x7fff_ffff,
            0x8000_0000,
            1 << 63,
            u64::MAX,
            bits,
        ]);
        self.constant(ty, k & ty.max())
    }

    fn constant(&mut self, ty: Type, k: u64) -> Value {
        self.builder.push(Op::Const(k & ty.max()), ty)
    }
}

fn packets(random: &mut Random) -> Packets {
    let mut packets = Packets::default();
    for _ in 0..12 {
        let len = random.below(64) as usize;
        let tag = VlanTag { tpid: 0x88a8, tci: random.bits() as u16 };
        let meta = Meta {
            wire_len: random.below(70) as u32,
            if_index: random.bits() as u32,
            rx_hash: random.bits() as u32,
            vlan: random.one_of(1, 2).then_some(tag),
            ..Meta::default()
        };
        packets.push(&random.bytes(len), meta);
    }
    packets
}

fn contents(memory: &Memory) -> Vec<u64> {
    (0..memory.len() as u64).map(|index| memory.get(index)).collect()
}

/// Runs a graph over packets in all three ways; says how many were accepted.
fn judge(ir: &Ir, packets: &Packets, guarded: &mut Guarded) -> usize {
    ir.verify().unwrap_or_else(|fault| panic!("{fault}\n{ir}"));
    let native = Native::compile(ir).unwrap_or_else(|error| panic!("{error}\n{ir}"));
    let mut machine = Machine::new(ir.clone());
    let memories = [(); 3].map(|()| Memory::new(ir.cells));
    let batch = Batch::new(&packets.base, &packets.records);
    let mut wanted = Vec::new();
    for (index, packet) in batch.iter().enumerate() {
        let verdict = machine.run(packet, &memories[0]);
        let held = Packet { data: guarded.hold(packet.data), meta: packet.meta };
        assert_eq!(native.run(held, &memories[1]), verdict, "{packet:02x?}\n{ir}");
        assert_eq!(contents(&memories[1]), contents(&memories[0]), "{packet:02x?}\n{ir}");
        if verdict != 0 {
            wanted.push(index);
        }
    }
    let mut selection = Selection::none();
    selection.select_all(batch.len());
    native.select(&batch, &memories[2], &mut selection);
    assert_eq!(selection.iter().collect::<Vec<_>>(), wanted, "{ir}");
    assert_eq!(contents(&memories[2]), contents(&memories[0]), "{ir}");
    wanted.len()
}

#[test]
fn random_graphs_agree_with_the_interpreter() {
    let mut random = Random::new(number("TAPLINE_FILTER_SEED", 1) + 40);
    let mut guarded = Guarded::new(4096);
    let graphs = volume("TAPLINE_FILTER_PAIRS", 2_500) / 40;
    let mut accepted = 0;
    for _ in 0..graphs {
        let ir = graph(&mut random);
        let packets = packets(&mut random);
        accepted += judge(&ir, &packets, &mut guarded);
    }
    eprintln!("{graphs} graphs, {} packets, {accepted} accepted", graphs * 12);
    assert!(accepted as u64 > graphs, "too few ways to the end: {accepted}");
}

/// Each search over keys of each shape: exact for every key and for its neighbours. `TAPLINE_SWITCH_KEYS=1000` for the
/// longest that have a test.
#[test]
fn switches_are_exact() {
    let mut random = Random::new(41);
    let mut guarded = Guarded::new(4096);
    let many = volume("TAPLINE_SWITCH_KEYS", 150).min(1000);
    for (ty, width) in [(Type::U32, Width::Word), (Type::U64, Width::Double)] {
        for search in SEARCHES {
            for (len, apart) in
                [(0, 1), (1, 1), (2, 3), (5, 1), (10, 6), (60, 1), (100, 50), (many, 3), (many, 1 << 20)]
            {
                for targets in [1, 3] {
                    let first = if random.one_of(1, 2) { 0 } else { random.below(1 << 30) };
                    let mut key = first;
                    let mut keys = Vec::new();
                    for _ in 0..len {
                        keys.push(key);
                        key += 1 + random.below(apart);
                    }
                    let ir = one_switch(ty, width, search, &keys, targets);
                    let mut packets = Packets::default();
                    for _ in 0..40 {
                        let near = keys.get(random.below(len) as usize).copied().unwrap_or(first);
                        let value = near.wrapping_add(random.below(3)).wrapping_sub(1);
                        let value = if random.one_of(1, 8) { random.bits() } else { value };
                        let bytes = value.to_be_bytes();
                        packets.push(&bytes[8 - width.bytes() as usize..], Meta::default());
                    }
                    judge(&ir, &packets, &mut guarded);
                }
            }
        }
    }
}

fn one_switch(ty: Type, width: Width, search: SwitchSearch, keys: &[u64], targets: usize) -> Ir {
    let mut builder = Builder::new();
    let entry = builder.block();
    builder.switch_to(entry);
    let value = builder.load(PacketOffset::at(0), width);
    let ends: Vec<BlockId> = (0..=targets).map(|_| builder.block()).collect();
    let case = |(at, &key): (usize, &u64)| Case { key, to: Target::to(ends[1 + at % targets]) };
    let cases = keys.iter().filter(|key| **key <= ty.max()).enumerate().map(case).collect();
    builder.finish(Terminator::Switch { value, cases, default: Target::to(ends[0]), search });
    for (verdict, end) in ends.into_iter().enumerate() {
        builder.switch_to(end);
        let verdict = builder.const32(verdict as u32);
        builder.finish(Terminator::Return(verdict));
    }
    builder.build(entry)
}

#[test]
fn a_panic_of_a_function_rejects_its_packet_only() {
    let mut builder = Builder::new();
    let function = builder.function(Arc::new(Fragile));
    let entry = builder.block();
    builder.switch_to(entry);
    let result = builder.call(function, &[]);
    builder.finish(Terminator::Return(result));
    let native = Native::compile(&builder.build(entry)).expect("native code");
    let memory = Memory::new(0);
    let meta = Meta::default();
    let verdicts = [0_u8, 1, 2].map(|byte| native.run(Packet { data: &[byte], meta: &meta }, &memory));
    assert_eq!((verdicts, native.panics()), ([7, 0, 7], 1));
    let mut packets = Packets::default();
    (0..4).for_each(|byte| packets.push(&[byte], meta));
    let mut selection = Selection::none();
    selection.select_all(4);
    native.select(&Batch::new(&packets.base, &packets.records), &memory, &mut selection);
    assert_eq!((selection.iter().collect::<Vec<_>>(), native.panics()), (vec![0, 2], 3));
}

#[test]
#[should_panic(expected = "cells")]
fn memory_of_another_size_is_refused() {
    let mut builder = Builder::new();
    builder.cells(8);
    let entry = builder.block();
    builder.switch_to(entry);
    let index = builder.const64(7);
    let cell = builder.cell(index);
    builder.finish(Terminator::Return(cell));
    let native = Native::compile(&builder.build(entry)).expect("native code");
    native.run(Packet { data: &[], meta: &Meta::default() }, &Memory::new(4));
}
