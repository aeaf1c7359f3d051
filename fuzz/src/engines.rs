//! The law that all engines give one verdict.
//!
//! ```text
//! input    := kind, length of what follows (2 bytes), source, packet*
//! source   := choices of a generator | instructions of 8 bytes | options and text        -- by kind
//! packet   := metadata (3 bytes), length (1 byte), that many bytes
//!
//! program  --raise--> graph --each pass--> graph     interpreter, machine, native code, eBPF: one verdict
//! FPL text --lower--> graph --each pass--> graph     machine, native code: one verdict, the same memory
//! ```
//!
//! Each packet is judged whole, halved, less one byte, and bent so that the program takes another way; alone and in one
//! batch.

use std::sync::Arc;

use tapline_bpf::{DumpFormat, Insn, Program};
use tapline_ebpf::{EmitError, Hook, XdpAction, emit};
use tapline_filter::{FixedNames, HandleKind, Options, compile};
use tapline_fpl::{self as fpl, FplOptions};
use tapline_ir::optimise::PASSES;
use tapline_ir::{Ir, Machine, Memory, raise_program};
use tapline_jit::Native;
use tapline_packet::{Batch, LinkType, Meta, Packet, PacketType, Record, Selection, VlanTag};
use tapline_testkit::expressions::Expressions;
use tapline_testkit::libpcap::LibpcapProgram;
use tapline_testkit::random::Random;
use tapline_testkit::stock::LINK_TYPES;
use tapline_testkit::{ebpf as machine, forms, fpl as programs_in_fpl, gallery, programs};

/// Graphs with more values get no native code here: making it would take the time of all else.
const NATIVE_VALUES_MAX: usize = 400;
/// Packets of the input that are judged; each is so in several forms.
const PACKETS_MAX: usize = 6;

/// All engines give one verdict on what the input makes.
pub fn engines(data: &[u8]) {
    let Some(([kind, low, high], rest)) = data.split_first_chunk() else { return };
    let len = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
    let (source, packets) = rest.split_at(len);
    let mut random = Random::from_bytes(source);
    match kind % 8 {
        0 => judge_insns(source, packets),
        1 => judge_program(&valid(programs::program(&mut random)), packets),
        2 => {
            let (options, text) = grammatical(&mut random);
            judge_text(&text, &options, packets);
        }
        3 => {
            let options = options(&mut random, LinkType::ETHERNET);
            let text = forms::tree(&mut random, options.scoped, 0).to_string();
            judge_text(&text, &options, packets);
        }
        4 | 5 => {
            let Some(([link_type, choices], text)) = source.split_first_chunk() else { return };
            let Ok(text) = std::str::from_utf8(text) else { return };
            let options = options(&mut Random::from_bytes(&[*choices]), LinkType((*link_type).into()));
            judge_text(text, &options, packets);
        }
        6 => judge_fpl(&programs_in_fpl::program(&mut random), packets),
        _ => {
            let Ok(text) = std::str::from_utf8(source) else { return };
            judge_fpl(text, packets);
        }
    }
}

fn judge_insns(source: &[u8], packets: &[u8]) {
    let insns = source.chunks_exact(8).map(super::insn).collect();
    if let Ok(program) = Program::new(insns) {
        judge_program(&program, packets);
    }
}

fn valid(insns: Vec<Insn>) -> Program {
    Program::new(insns).expect("valid by construction")
}

/// A text that the grammar of the language makes, for one of the link types.
fn grammatical(random: &mut Random) -> (Options, String) {
    let (dlt, _) = *random.pick(LINK_TYPES);
    let options = options(random, LinkType::from_dlt(dlt as u16));
    (options, Expressions::from_random(random.clone(), dlt).text())
}

/// One choice decides: its bits are live or dead, scoped or not, with extension headers or not.
fn options(random: &mut Random, link_type: LinkType) -> Options {
    let choice = random.below(8);
    Options {
        netmask: Some(0),
        handle: if choice & 1 == 0 { HandleKind::Dead } else { HandleKind::Live },
        scoped: choice & 2 != 0,
        ipv6_extensions: choice & 4 != 0,
        resolver: Arc::new(FixedNames::default()),
        ..Options::new(link_type)
    }
}

/// The text in all ways there are to compile it; the program that nothing simplified is the reference.
fn judge_text(text: &str, options: &Options, packets: &[u8]) {
    let plain_options = Options { optimise: false, ..options.clone() };
    let Ok(plain) = compile(text, &plain_options) else { return };
    let mut judge = Judge::new(plain.program());
    match compile(text, options) {
        Ok(simplified) => judge.add_program("simplified", simplified.program(), true),
        Err(error) if error.message == super::NEVER => judge.add_graph("never", Ir::constant(0), false),
        // What can be said only once constants are known: see the law of texts.
        Err(_) => {}
    }
    judge.judge(&format!("{text:?} with {options:?}"), packets);
}

fn judge_program(program: &Program, packets: &[u8]) {
    Judge::new(program).judge("instructions", packets);
}

/// A filter, and all engines that run it.
struct Judge {
    reference: Program,
    programs: Vec<(String, Program)>,
    graphs: Vec<(String, Machine)>,
    natives: Vec<(String, Native)>,
    kernel: Vec<(String, machine::Kind, Vec<tapline_bpf::ebpf::Insn>)>,
}

impl Judge {
    fn new(reference: &Program) -> Judge {
        let mut judge = Judge {
            reference: reference.clone(),
            programs: Vec::new(),
            graphs: Vec::new(),
            natives: Vec::new(),
            kernel: Vec::new(),
        };
        judge.add_program("reference", reference, true);
        judge
    }

    /// What is made of a program: values, before and after all passes.
    fn add_program(&mut self, name: &str, program: &Program, native: bool) {
        let raised = raise_program(program);
        self.add_graph(&format!("{name}, optimised"), optimised(raised.clone()), native);
        self.add_graph(&format!("{name}, raised"), raised, native);
        self.programs.push((name.to_owned(), program.clone()));
    }

    /// A graph; as native code as well if `native`: making that takes the most time.
    fn add_graph(&mut self, name: &str, ir: Ir, native: bool) {
        ir.verify().unwrap_or_else(|fault| panic!("{name}: {fault}\n{ir}"));
        if native && ir.instructions.len() <= NATIVE_VALUES_MAX {
            let native = Native::compile(&ir).unwrap_or_else(|error| panic!("{name}: {error}\n{ir}"));
            self.natives.push((name.to_owned(), native));
        }
        for (kind, hook) in [(machine::Kind::SocketFilter, Hook::SocketFilter), (machine::Kind::Xdp, XDP)] {
            match emit(&ir, hook) {
                Ok(program) => self.kernel.push((name.to_owned(), kind, program.insns().to_vec())),
                Err(EmitError::TooManyValues { .. }) => {}
                Err(EmitError::NotBeforeTheStack { .. }) if kind == machine::Kind::Xdp => {}
                Err(error) => panic!("{name}: {error}\n{ir}"),
            }
        }
        self.graphs.push((name.to_owned(), Machine::new(ir)));
    }

    fn judge(mut self, about: &str, packets: &[u8]) {
        let packets = Packets::new(packets, Some(&self.reference));
        let records = &packets.records;
        let batch = Batch::new(&packets.base, records);
        let mut wanted = Vec::new();
        for (index, packet) in batch.iter().enumerate() {
            if self.judge_one(about, packet) != 0 {
                wanted.push(index);
            }
        }
        let memory = Memory::new(0);
        for (name, native) in &self.natives {
            let mut selection = Selection::none();
            selection.select_all(batch.len());
            native.select(&batch, &memory, &mut selection);
            let selected: Vec<usize> = selection.iter().collect();
            assert_eq!(selected, wanted, "native, a batch: {name} of {}", self.about(about));
        }
    }

    fn about(&self, about: &str) -> String {
        format!("{about}\n{}", self.reference.text(DumpFormat::Assembly))
    }

    /// The verdict that all have.
    fn judge_one(&mut self, about: &str, packet: Packet<'_>) -> u32 {
        let verdict = self.reference.run(packet);
        let memory = Memory::new(0);
        let case =
            |name: &str| format!("{name} of {}\n{:02x?} {:?}", self.about(about), packet.data, packet.meta);
        for (name, program) in &self.programs {
            assert_eq!(program.run(packet), verdict, "program: {}", case(name));
        }
        for (name, native) in &self.natives {
            assert_eq!(native.run(packet, &memory), u64::from(verdict), "native: {}", case(name));
        }
        // To the kernel a packet is never longer than its bytes.
        let meta = Meta { wire_len: packet.data.len() as u32, ..*packet.meta };
        let whole = Packet { data: packet.data, meta: &meta };
        let of_whole = self.reference.run(whole);
        for (name, kind, insns) in &self.kernel {
            let expected = match (kind, of_whole) {
                (machine::Kind::SocketFilter, verdict) => verdict,
                (machine::Kind::Xdp, 0) => XdpAction::DROP,
                (machine::Kind::Xdp, _) => XdpAction::PASS,
            };
            assert_eq!(machine::run(*kind, insns, whole), expected, "eBPF, {kind:?}: {}", case(name));
        }
        let mut found = Vec::new();
        for (name, machine) in &mut self.graphs {
            found.push((name.clone(), machine.run(packet, &memory)));
        }
        for (name, found) in found {
            assert_eq!(
                found,
                u64::from(verdict),
                "graph of values: {name} of {}\n{packet:02x?}",
                self.about(about)
            );
        }
        verdict
    }
}

const XDP: Hook = Hook::Xdp { matched: XdpAction::Pass, unmatched: XdpAction::Drop };

/// After all passes; each must leave it safe.
fn optimised(mut ir: Ir) -> Ir {
    for pass in PASSES {
        let before = ir.clone();
        if (pass.run)(&mut ir) {
            ir.verify().unwrap_or_else(|fault| panic!("{fault}, after {}: {before}\n{ir}", pass.name));
        }
    }
    ir
}

/// Packets one after the other in one stretch of bytes, and their records.
struct Packets {
    base: Vec<u8>,
    records: Vec<Record>,
}

impl Packets {
    /// Those of the input, in several forms each; one frame that a filter may know besides.
    fn new(mut input: &[u8], steering: Option<&Program>) -> Packets {
        let oracle = steering.map(|program| LibpcapProgram::new(program.insns().to_vec()));
        let mut random = Random::from_bytes(input);
        let mut packets = Packets { base: Vec::new(), records: Vec::new() };
        for _ in 0..PACKETS_MAX {
            let Some(([choice, tag, extra, len], rest)) = input.split_first_chunk() else { break };
            let (data, rest) = rest.split_at(usize::from(*len).min(rest.len()));
            input = rest;
            let meta = meta(*choice, *tag, data.len() as u32 + u32::from(*extra));
            packets.push_cut(data, meta);
            if let Some(oracle) = &oracle {
                let mut bent = data.to_vec();
                oracle.plant(&mut bent, meta.wire_len, &mut random);
                bent.truncate(1024);
                packets.push_cut(&bent, Meta { wire_len: meta.wire_len.max(bent.len() as u32), ..meta });
            }
        }
        let frame = gallery::exhibit(&mut random);
        packets.push_cut(frame, meta(0, 0, frame.len() as u32));
        packets
    }

    /// Whole, less one byte, and halved. The bytes that are cut off lie behind it.
    fn push_cut(&mut self, data: &[u8], meta: Meta) {
        for len in [data.len(), data.len().saturating_sub(1), data.len() / 2] {
            let record = Record { offset: self.base.len(), cap_len: len as u32, options_len: 0, meta };
            self.records.push(record);
        }
        self.base.extend_from_slice(data);
    }
}

fn meta(choice: u8, tag: u8, wire_len: u32) -> Meta {
    let tpid = if choice & 2 == 0 { 0x8100 } else { 0x88a8 };
    Meta {
        wire_len,
        vlan: (choice & 1 != 0).then_some(VlanTag { tpid, tci: u16::from(tag) << (choice >> 5) }),
        packet_type: PacketType::from_kernel(choice >> 2 & 7),
        if_index: tag.into(),
        rx_hash: u32::from(tag) * 0x0101_0101,
        ..Meta::default()
    }
}

/// Little work is allowed, so that a run without an end shows as one that takes long.
fn fpl_options() -> FplOptions {
    FplOptions { work_max: 1 << 13, memory_cells: programs_in_fpl::CELLS, ..FplOptions::default() }
}

/// An engine for FPL: what it gives for a packet, and the memory that it works on.
type FplEngine = (&'static str, Box<dyn FnMut(Packet<'_>) -> u64>, Memory);

/// FPL programs remember: each engine has its own functions, and runs over the same packets in the same order.
fn judge_fpl(text: &str, packets: &[u8]) {
    let compiled = || fpl::compile(text, &fpl_options()).map(|compiled| compiled.ir);
    let Ok(plain) = compiled() else { return };
    plain.verify().unwrap_or_else(|fault| panic!("{fault}\n{text}\n{plain}"));
    let make = |optimise: bool| {
        let ir = compiled().expect("it compiled");
        if optimise { optimised(ir) } else { ir }
    };
    let packets = Packets::new(packets, None);
    let batch = Batch::new(&packets.base, &packets.records);
    let mut engines: Vec<FplEngine> = vec![machine_of("as made", plain), machine_of("optimised", make(true))];
    let native_too = make(false).instructions.len() <= NATIVE_VALUES_MAX;
    if native_too {
        engines.push(native_of("native", &make(false)));
        engines.push(native_of("native, optimised", &make(true)));
    }
    let mut wanted = Vec::new();
    for (index, packet) in batch.iter().enumerate() {
        let verdicts: Vec<u64> = engines.iter_mut().map(|(_, run, _)| run(packet)).collect();
        for ((name, _, memory), verdict) in engines.iter().zip(&verdicts) {
            assert_eq!(*verdict, verdicts[0], "{name}: packet {index} {packet:02x?}\n{text}");
            assert_eq!(
                cells(memory),
                cells(&engines[0].2),
                "{name}: cells after {index} {packet:02x?}\n{text}"
            );
        }
        if verdicts[0] != 0 {
            wanted.push(index);
        }
    }
    for optimise in [false, true].into_iter().filter(|_| native_too) {
        let ir = make(optimise);
        let native = Native::compile(&ir).expect("native code");
        let memory = Memory::new(ir.cells);
        let mut selection = Selection::none();
        selection.select_all(batch.len());
        native.select(&batch, &memory, &mut selection);
        let selected: Vec<usize> = selection.iter().collect();
        assert_eq!(selected, wanted, "native, a batch; optimised: {optimise}\n{text}");
        assert_eq!(cells(&memory), cells(&engines[0].2), "native, a batch; optimised: {optimise}\n{text}");
    }
}

fn machine_of(name: &'static str, ir: Ir) -> FplEngine {
    let memory = Memory::new(ir.cells);
    let mut machine = Machine::new(ir);
    let cells = memory.clone();
    (name, Box::new(move |packet| machine.run(packet, &cells)), memory)
}

fn native_of(name: &'static str, ir: &Ir) -> FplEngine {
    let memory = Memory::new(ir.cells);
    let native = Native::compile(ir).unwrap_or_else(|error| panic!("{name}: {error}\n{ir}"));
    let cells = memory.clone();
    let run = move |packet: Packet<'_>| {
        let verdict = native.run(packet, &cells);
        assert_eq!(native.panics(), 0, "a function panicked");
        verdict
    };
    (name, Box::new(run), memory)
}

fn cells(memory: &Memory) -> Vec<u64> {
    (0..memory.len() as u64).map(|cell| memory.get(cell)).collect()
}

/// Inputs of every kind.
pub fn engines_seeds() -> Vec<Vec<u8>> {
    let mut random = Random::new(5);
    let generated =
        [1, 2, 3, 6].iter().flat_map(|kind| [(*kind, 40), (*kind, 90), (*kind, 200), (*kind, 400)]);
    let mut sources: Vec<(u8, Vec<u8>)> = generated.map(|(kind, len)| (kind, random.bytes(len))).collect();
    for text in super::TEXTS {
        sources.push((4, [&[1, 0x60], text.as_bytes()].concat()));
    }
    for text in super::FORMS {
        sources.push((4, [&[1, 0x20], text.as_bytes()].concat()));
        sources.push((5, [&[1, 0xe0], text.as_bytes()].concat()));
    }
    sources.extend(super::PROGRAMS.iter().map(|text| (7, text.as_bytes().to_vec())));
    for seed in super::bpf_program_seeds() {
        let len = usize::from(seed[0]) * 8;
        sources.push((0, seed[1..=len].to_vec()));
    }
    let seed = |(kind, source): (u8, Vec<u8>)| {
        let mut input = vec![kind];
        input.extend_from_slice(&(source.len() as u16).to_le_bytes());
        input.extend_from_slice(&source);
        for number in 0..3 {
            let len = random.below(90) as u8;
            input.extend_from_slice(&[random.bits() as u8, 5, number, len]);
            input.extend_from_slice(&random.bytes(len.into()));
        }
        input
    };
    sources.into_iter().map(seed).collect()
}
