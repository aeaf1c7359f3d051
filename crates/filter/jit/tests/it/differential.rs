//! Native code against the interpreters, on random texts of all link types and on random classic BPF programs.
//!
//! ```text
//! for each text or program: Program (reference), raised, optimised -> Native
//!     for each packet:  Program::run = Machine::run = Native::run of both graphs
//!     for all packets:  Native::select of both = those with a verdict other than 0, also of a batch that was cut, and of records outside
//! ```
//!
//! `TAPLINE_FILTER_PAIRS=10000000` sets how many pairs of text and packet are judged (else 2,500),
//! `TAPLINE_FILTER_SEED=7` where chance starts (else 1).

use crate::support;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::support::Packets;
use tapline_bpf::{DumpFormat, Program};
use tapline_filter::{HandleKind, Options, compile};
use tapline_ir::optimise::optimise;
use tapline_ir::{Ir, Machine, Memory, Op, raise_program};
use tapline_jit::Native;
use tapline_packet::{Batch, LinkType, Meta, Packet, PacketType, Record, Selection, VlanTag};
use tapline_testkit::libpcap::{CompileSettings, Libpcap, LibpcapProgram};
use tapline_testkit::random::Random;
use tapline_testkit::stock::{Stock, Texts, Wording};
use tapline_testkit::volume::{number, volume};
use tapline_testkit::{frames, programs};

const PACKETS_PER_TEXT: usize = 40;

/// A program and the engines made from it.
struct Engines {
    name: String,
    program: Program,
    graphs: [(Machine, Native); 2],
}

impl Engines {
    fn new(name: String, program: Program) -> Engines {
        let raised = raise_program(&program);
        let mut optimised = raised.clone();
        let done = catch_unwind(AssertUnwindSafe(|| optimise(&mut optimised)));
        assert!(done.is_ok(), "the passes panic over {name}");
        let graphs = [raised, optimised].map(|ir| {
            let native = Native::compile(&ir).unwrap_or_else(|error| panic!("{name}: {error}\n{ir}"));
            (Machine::new(ir), native)
        });
        Engines { name, program, graphs }
    }

    fn judge(&mut self, packets: &Packets) {
        let batch = Batch::new(&packets.base, &packets.records);
        for batch in [batch, batch.cut(30)] {
            self.judge_batch(&batch);
        }
    }

    fn judge_batch(&mut self, batch: &Batch<'_>) {
        let memory = Memory::new(0);
        let mut wanted = Vec::new();
        for (index, packet) in batch.iter().enumerate() {
            let verdict = u64::from(self.program.run(packet));
            for (machine, native) in &mut self.graphs {
                let Packet { data, meta } = packet;
                let case = || format!("{}\n{}\n{meta:?} {data:02x?}", self.name, machine_text(machine.ir()));
                assert_eq!(native.run(packet, &memory), verdict, "native, of {}", case());
                let interpreted = machine.clone().run(packet, &memory);
                assert_eq!(interpreted, verdict, "graph of values, of {}", case());
            }
            if verdict != 0 {
                wanted.push(index);
            }
        }
        for (machine, native) in &self.graphs {
            let mut selection = Selection::none();
            selection.select_all(batch.len());
            native.select(batch, &memory, &mut selection);
            let selected: Vec<usize> = selection.iter().collect();
            assert_eq!(selected, wanted, "select, of {}\n{}", self.name, machine_text(machine.ir()));
        }
    }
}

fn machine_text(ir: &Ir) -> String {
    ir.to_string()
}

fn random_meta(wire_len: u32, random: &mut Random) -> Meta {
    let tci = *random.pick(&[5, 7, 0x2005, random.clone().bits() as u16]);
    let tag = VlanTag { tpid: *random.pick(&[0x8100, 0x88a8]), tci };
    Meta {
        wire_len,
        vlan: random.one_of(1, 4).then_some(tag),
        packet_type: PacketType::from_kernel(random.below(5) as u8),
        if_index: random.below(4) as u32,
        rx_hash: random.bits() as u32,
        ..Meta::default()
    }
}

/// A record that is partly or wholly outside of its base, in one of several ways.
fn outside(base_len: usize, random: &mut Random) -> Record {
    let offset = *random.pick(&[
        base_len,
        base_len.saturating_sub(3),
        base_len + 1,
        usize::MAX,
        usize::MAX - 7,
        1 << 63,
    ]);
    Record {
        offset,
        cap_len: *random.pick(&[4, 64, u32::MAX]),
        options_len: 0,
        meta: random_meta(64, random),
    }
}

#[test]
fn same_verdicts_on_texts() {
    let pcap = match Libpcap::get() {
        Ok(pcap) => pcap,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let (pairs, seed) = (volume("TAPLINE_FILTER_PAIRS", 2_500), number("TAPLINE_FILTER_SEED", 1));
    let mut random = Random::new(seed);
    let stock = Stock::new(pcap, &mut random);
    let mut texts = Texts::new(&mut random);
    let (mut judged, mut compiled, mut accepted) = (0, 0, 0);
    while judged < pairs {
        let wording = texts.wording(&mut random);
        let Wording { dlt, ref text, scoped, ipv6_extensions, .. } = wording;
        let link_type = LinkType::from_dlt(dlt as u16);
        let handle = if random.one_of(1, 4) { HandleKind::Live } else { HandleKind::Dead };
        let options =
            Options { netmask: Some(0), handle, scoped, ipv6_extensions, ..Options::new(link_type) };
        let Ok(program) = compile(text, &options) else { continue };
        // Packets are bent to follow the path of libpcap's program, or of ours if libpcap has none.
        let oracle =
            match pcap.compile(text, CompileSettings { optimise: false, ..CompileSettings::new(dlt) }) {
                Ok(oracle) => oracle,
                Err(_) => LibpcapProgram::new(program.insns().to_vec()),
            };
        let mut engines = Engines::new(format!("{wording:?}, {handle:?}"), program.program().clone());
        let mut packets = Packets::default();
        for _ in 0..PACKETS_PER_TEXT {
            let mut sample = stock.sample_for(&wording, &mut random);
            if random.one_of(4, 5) {
                oracle.plant(&mut sample.data, sample.wire_len, &mut random);
            }
            if random.one_of(1, 8) {
                sample.data.truncate(random.below(80) as usize);
            }
            let wire_len = sample.wire_len.max(sample.data.len() as u32);
            let meta = random_meta(wire_len, &mut random);
            accepted += u64::from(engines.program.run(Packet { data: &sample.data, meta: &meta }) != 0);
            packets.push(&sample.data, meta);
        }
        packets.records.push(outside(packets.base.len(), &mut random));
        engines.judge(&packets);
        judged += PACKETS_PER_TEXT as u64;
        compiled += 1;
    }
    eprintln!(
        "{judged} pairs of {compiled} texts and packets, seed {seed}: {accepted} accepted, native code as the interpreters"
    );
    assert!(accepted > judged / 20, "packets that match are too seldom: {accepted}");
}

#[test]
fn same_verdicts_on_random_programs() {
    let mut random = Random::new(number("TAPLINE_FILTER_SEED", 1) + 20);
    for _ in 0..volume("TAPLINE_FILTER_PAIRS", 2_500) / 100 {
        let program = Program::new(programs::program(&mut random)).expect("valid by construction");
        let mut engines = Engines::new(program.text(DumpFormat::Assembly), program);
        let mut packets = Packets::default();
        for _ in 0..10 {
            let len = random.below(60) as usize;
            let wire_len = random.below(100) as u32;
            packets.push(&random.bytes(len), random_meta(wire_len, &mut random));
        }
        packets.records.push(outside(packets.base.len(), &mut random));
        engines.judge(&packets);
    }
}

/// Packets at every length, each directly before memory that is not there: reading one byte too many ends the test.
#[test]
fn nothing_is_read_past_the_end() {
    let mut guarded = support::Guarded::new(1 << 14);
    let texts = [
        "tcp port 10 or 20 or 30 or 40 or 50",
        "host 10.0.0.1 or host 192.0.2.1 or ip6 host 2001:db8::1",
        "tcp[tcpflags] & tcp-syn != 0 and ip[2:2] - ((ip[0] & 15) << 2) > 20",
        "vlan and mpls and ip6 protochain 17",
        "ether host 02:00:00:00:00:01 and udp[8:4] = 1",
        "greater 60 and len - 4 > 3",
    ];
    let frames: Vec<Vec<u8>> =
        tapline_testkit::gallery::exhibits().into_iter().map(|(_, frame)| frame).collect();
    let memory = Memory::new(0);
    for text in texts {
        let program = compile(text, &Options::default()).expect(text);
        let engines = Engines::new(text.to_owned(), program.program().clone());
        for frame in &frames {
            for len in 0..=frame.len().min(200) {
                let held = guarded.hold(&frame[..len]);
                let meta = Meta { wire_len: frame.len() as u32, ..Meta::default() };
                let packet = Packet { data: held, meta: &meta };
                let verdict = u64::from(engines.program.run(packet));
                let records = [Record { offset: 0, cap_len: len as u32, options_len: 0, meta }];
                for (_, native) in &engines.graphs {
                    assert_eq!(native.run(packet, &memory), verdict, "{text}: {len} bytes of {frame:02x?}");
                    let mut selection = Selection::none();
                    selection.select_all(1);
                    native.select(&Batch::new(held, &records), &memory, &mut selection);
                    assert_eq!(
                        selection.len(),
                        usize::from(verdict != 0),
                        "{text}: {len} bytes of {frame:02x?}"
                    );
                }
            }
        }
    }
}

/// Packets that were left out before stay out.
#[test]
fn a_selection_is_narrowed_further() {
    let program = compile("ip", &Options::default()).expect("compiles");
    let native = Native::of(&program).expect("native code");
    let mut packets = Packets::default();
    let ip = frames::Ethernet { dst: [2; 6], src: [4; 6] }.frame(frames::ETHERTYPE_IPV4, &[0x45; 20]);
    let arp = frames::Ethernet { dst: [2; 6], src: [4; 6] }.frame(frames::ETHERTYPE_ARP, &[0; 28]);
    (0..256).for_each(|index| packets.push(if index % 2 == 0 { &ip } else { &arp }, Meta::default()));
    let batch = Batch::new(&packets.base, &packets.records);
    let mut selection = Selection::none();
    selection.select_all(256);
    selection.retain(|index| index % 3 == 0);
    native.select(&batch, &Memory::new(0), &mut selection);
    let wanted: Vec<usize> = (0..256).filter(|index| index % 6 == 0).collect();
    assert_eq!(selection.iter().collect::<Vec<_>>(), wanted);
    selection.select_all(0);
    native.select(&batch, &Memory::new(0), &mut selection);
    assert!(selection.is_empty());
}

/// Headers are fetched ahead in a base of more than 32 KiB: whatever the number of selected packets, none is left
/// out, and a record outside of the base does no harm.
#[test]
fn headers_that_are_fetched_ahead_change_nothing() {
    let text = "tcp port 10 or 20 or 30 or 40 or 50";
    let program = compile(text, &Options::default()).expect("compiles");
    let ir = program.values();
    let loads = ir
        .order()
        .iter()
        .flat_map(|id| &ir[*id].instructions)
        .filter(|v| matches!(ir.op(**v), Op::Load(..)))
        .count();
    assert!(loads >= 6, "a filter of {loads} loads has nothing fetched");
    let native = Native::of(&program).expect("native code");
    let mut packets = Packets::default();
    (0..256).for_each(|index| packets.push(&tcp(10 * (index % 7)), Meta::default()));
    assert!(packets.base.len() > 32 << 10);
    for at in [0, 9, 100, 255] {
        packets.records[at].offset = [usize::MAX, packets.base.len(), 1 << 62, usize::MAX - 40][at % 4];
    }
    let batch = Batch::new(&packets.base, &packets.records);
    for count in (0..40).chain(240..=256) {
        for step in [1, 3] {
            let mut selection = Selection::none();
            selection.select_all(count);
            selection.retain(|index| index % step == 0);
            let wanted: Vec<usize> =
                selection.iter().filter(|index| program.run(batch.packet(*index)) != 0).collect();
            native.select(&batch, &Memory::new(0), &mut selection);
            assert_eq!(selection.iter().collect::<Vec<_>>(), wanted, "{count} packets, each {step}.");
        }
    }
}

/// Lists of every length, around those that are compared eight at once: each key, its neighbours and its bytes the
/// other way round.
#[test]
fn lists_of_ports_match_the_named_ports_alone() {
    for count in 2..=20u16 {
        let keys: Vec<u16> = (0..count).map(|index| index.wrapping_mul(2711).wrapping_add(80)).collect();
        let list = keys.iter().map(u16::to_string).collect::<Vec<_>>().join(" or ");
        for direction in ["dst", "src"] {
            let text = format!("tcp {direction} port {list}");
            let program = compile(&text, &Options::default()).expect("compiles");
            let mut packets = Packets::default();
            let near = |key: &u16| [*key, key.wrapping_add(1), key.wrapping_sub(1), key.swap_bytes()];
            let ports: Vec<u16> = keys.iter().flat_map(near).chain([0, u16::MAX]).collect();
            for port in &ports {
                let mut frame = tcp(*port);
                if direction == "src" {
                    frame[34..38].rotate_left(2);
                }
                packets.push(&frame, Meta::default());
            }
            let accepted = ports.iter().filter(|port| keys.contains(port)).count();
            let batch = Batch::new(&packets.base, &packets.records);
            assert_eq!(batch.iter().filter(|packet| program.run(*packet) != 0).count(), accepted, "{text}");
            Engines::new(text, program.program().clone()).judge(&packets);
        }
    }
}

/// A frame of 200 bytes: TCP to a port.
fn tcp(port: u16) -> Vec<u8> {
    let mut packet = vec![0; 186];
    (packet[0], packet[9]) = (0x45, 6);
    packet[22..24].copy_from_slice(&port.to_be_bytes());
    frames::Ethernet { dst: [2; 6], src: [4; 6] }.frame(frames::ETHERTYPE_IPV4, &packet)
}

#[test]
#[should_panic(expected = "the batch has no packet")]
fn indices_outside_of_the_batch_are_refused() {
    let native = Native::compile(&Ir::constant(1)).expect("native code");
    let mut selection = Selection::none();
    selection.select_all(2);
    native.select(&Batch::empty(), &Memory::new(0), &mut selection);
}
