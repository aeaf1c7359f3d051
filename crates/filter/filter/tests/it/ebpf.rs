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
//! `TAPLINE_EBPF_PAIRS=10000000` sets how many pairs of text and packet are judged (else 40,000), and
//! `TAPLINE_EBPF_SEED=7` where chance starts (else 1). Without the right to load programs the tests say so and pass.

mod random;
mod share;
mod weaker;

use std::os::fd::{AsFd, AsRawFd};

use tapline_bpf as bpf;
use tapline_ebpf::{self as ebpf, EmitError, Hook, XdpAction, XdpFront, emit, front};
use tapline_filter::{HandleKind, Options, compile};
use tapline_ir::optimise::{optimise, optimise_for_sockets};
use tapline_ir::{
    Builder, Comparison, Ir, Machine, Memory, MetaField, PacketOffset, Terminator, Width, raise_program,
};
use tapline_packet::{LinkType, Meta, Packet};
use tapline_sys::bpf::{LoadError, LoadedProgram, Map, MapKind, ProgramKind, SharedArray, probe};
use tapline_sys::capability::{Capability, keep_only};
use tapline_testkit::libpcap::{Libpcap, LibpcapProgram};
use tapline_testkit::random::Random;
use tapline_testkit::stock::{Sample, Stock, Texts, Wording};
use tapline_testkit::volume::{number, volume};

use random::{random_graph, random_program};

/// Packets for each text.
const PACKETS_PER_TEXT: usize = 40;

/// Bytes before what a socket filter sees in a test run: an Ethernet header.
const HEADER: usize = 14;

/// Longer programs of forms are left out: the verifier takes time in the square of their packet loads.
const FORMS_INSNS_MAX: usize = 250;

/// The interface of a test run: loopback.
const LOOPBACK: u32 = 1;

const XDP: Hook = Hook::Xdp { matched: XdpAction::Pass, unmatched: XdpAction::Drop };

/// Whether programs may be loaded; says so if not.
fn may_load(test: &str) -> bool {
    probe(ProgramKind::Xdp).map_err(|error| eprintln!("skipped: {test}: {error}")).is_ok()
}

fn load(program: &ebpf::Program) -> LoadedProgram {
    try_load(program).unwrap_or_else(|error| refused(&error, &program.text()))
}

/// The program and what was said of it, as far as anybody would read it.
fn refused(error: &LoadError, about: &str) -> ! {
    let head = |text: &str| text.lines().take(200).collect::<Vec<_>>().join("\n");
    panic!("{error}\n{}\n{}", head(about), head(&error.log))
}

fn load_unless_large(program: &ebpf::Program) -> Result<LoadedProgram, LoadError> {
    match try_load(program) {
        Err(error) if !error.is_too_large() => refused(&error, &program.text()),
        other => other,
    }
}

fn try_load(program: &ebpf::Program) -> Result<LoadedProgram, LoadError> {
    let kind = match program.hook() {
        Hook::SocketFilter | Hook::Count(_) => ProgramKind::SocketFilter,
        Hook::Xdp { .. } | Hook::Front(_) => ProgramKind::Xdp,
    };
    try_load_as(kind, program)
}

fn load_as(kind: ProgramKind, program: &ebpf::Program) -> LoadedProgram {
    try_load_as(kind, program).unwrap_or_else(|error| refused(&error, &program.text()))
}

fn try_load_as(kind: ProgramKind, program: &ebpf::Program) -> Result<LoadedProgram, LoadError> {
    LoadedProgram::load(kind, "tapline_test", program.insns())
}

/// One filter in all its forms.
struct Judged {
    reference: bpf::Program,
    socket: Vec<LoadedProgram>,
    xdp: Option<LoadedProgram>,
}

impl Judged {
    /// All forms; what is too much for the verifier is an error.
    fn new(text: &str, reference: bpf::Program) -> Judged {
        Judged::try_new(text, reference).unwrap_or_else(|error| refused(&error, text))
    }

    /// All forms, if the verifier finds none of them too large.
    fn try_new(text: &str, reference: bpf::Program) -> Result<Judged, LoadError> {
        let plain = raise_program(&reference);
        let mut optimised = plain.clone();
        optimise(&mut optimised);
        // The graph as a capture loads it.
        let mut for_sockets = plain.clone();
        optimise_for_sockets(&mut for_sockets);
        for_sockets.verify().unwrap_or_else(|fault| panic!("for sockets: {fault}\n{text}"));
        plain.verify().expect("raised graphs are safe");
        optimised.verify().unwrap_or_else(|fault| panic!("optimised: {fault}\n{text}"));
        let socket =
            |ir: &Ir| load_unless_large(&emit(ir, Hook::SocketFilter).expect("filters have no state"));
        let xdp = match emit(&optimised, XDP) {
            Ok(program) => Some(load_unless_large(&program)?),
            Err(EmitError::NotBeforeTheStack { .. }) => None,
            Err(error) => panic!("{error}"),
        };
        Ok(Judged {
            socket: vec![socket(&plain)?, socket(&optimised)?, socket(&for_sockets)?],
            xdp,
            reference,
        })
    }

    /// The verdicts of interpreter and kernel; the kernel's once for each form of the program.
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

fn run(program: &LoadedProgram, packet: &[u8]) -> u32 {
    loop {
        match program.test_run(packet, 1) {
            Ok(run) => return run.value,
            // A signal came.
            Err(error) if error.errno() == 4 => {}
            Err(error) => panic!("{error}, {} bytes", packet.len()),
        }
    }
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
    let (pairs, seed) = (volume("TAPLINE_EBPF_PAIRS", 4_000), number("TAPLINE_EBPF_SEED", 1));
    let mut random = Random::new(seed);
    let stock = Stock::new(pcap, &mut random);
    let mut stream = Texts::new(&mut random);
    let (mut judged_pairs, mut accepted, mut texts, mut with_xdp) = (0, 0, 0, 0);
    let (mut of_forms, mut too_large) = (0, 0);
    while judged_pairs < pairs {
        let wording = stream.wording(&mut random);
        let Wording { dlt, ref text, scoped, ipv6_extensions, has_forms } = wording;
        let handle = if random.one_of(1, 2) { HandleKind::Live } else { HandleKind::Dead };
        let link_type = LinkType::from_dlt(dlt as u16);
        let options =
            Options { netmask: Some(0), handle, scoped, ipv6_extensions, ..Options::new(link_type) };
        let Ok(reference) = compile(text, &options) else { continue };
        if has_forms && reference.insns().len() > FORMS_INSNS_MAX {
            continue;
        }
        let steering = LibpcapProgram::new(reference.insns().to_vec());
        let judged = match Judged::try_new(&format!("{wording:?}, {handle:?}"), reference.program().clone()) {
            Ok(judged) => judged,
            // Forms in forms have more ways through them than the verifier walks.
            Err(error) if has_forms => {
                eprintln!("too large for the verifier: {wording:?}, {handle:?}: {error}");
                too_large += 1;
                continue;
            }
            Err(error) => refused(&error, text),
        };
        texts += 1;
        of_forms += u64::from(has_forms);
        with_xdp += u64::from(judged.xdp.is_some());
        for _ in 0..PACKETS_PER_TEXT {
            let data = vary(stock.sample_for(&wording, &mut random), &steering, &mut random);
            let verdict = judged.judge(&data).unwrap_or_else(|difference| {
                panic!(
                    "{wording:?}, {handle:?}\n{difference} on {data:02x?}\n{}",
                    judged.reference.text(bpf::DumpFormat::Assembly)
                )
            });
            accepted += u64::from(verdict != 0);
            judged_pairs += 1;
        }
    }
    eprintln!(
        "{judged_pairs} pairs of {texts} texts ({of_forms} of forms, {with_xdp} as XDP too) and packets varied from {}, seed {seed}: {accepted} accepted",
        stock.len()
    );
    assert!(
        too_large <= of_forms / 20,
        "{too_large} texts of forms are too large beside {of_forms} that are not"
    );
    assert!(accepted > judged_pairs / 20 && with_xdp > texts / 4, "the corpus is one-sided");
}

/// Steers the sample along a branch of the filter, flips a bit, cuts it.
fn vary(mut sample: Sample, steering: &LibpcapProgram, random: &mut Random) -> Vec<u8> {
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

/// A filter of many hosts; the list of them is spread, so that no two are neighbours.
fn hosts(count: u32) -> String {
    let host =
        |number: u32| std::net::Ipv4Addr::from(0x0a00_0000 + number.wrapping_mul(2_654_435) % 0x00ff_ffff);
    (0..count).map(|number| format!("host {}", host(number))).collect::<Vec<_>>().join(" or ")
}

fn compile_live(text: &str) -> bpf::Program {
    let options = Options { handle: HandleKind::Live, netmask: Some(0), ..Options::new(LinkType::ETHERNET) };
    compile(text, &options).expect("a filter").program().clone()
}

fn frame(source: u32, destination: u32) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    frame[26..30].copy_from_slice(&source.to_be_bytes());
    frame[30..34].copy_from_slice(&destination.to_be_bytes());
    frame
}

#[test]
fn large_filters_are_accepted_and_right() {
    if !may_load("large_filters_are_accepted_and_right") {
        return;
    }
    for count in [100, 5_000, 20_000] {
        let reference = compile_live(&hosts(count));
        let insns: Vec<u32> = reference.insns().iter().map(|insn| insn.k).collect();
        let judged = Judged::new("hosts", reference);
        let mut random = Random::new(u64::from(count));
        let mut accepted = 0;
        for round in 0..200 {
            // A constant of the program is a host, or at least near one.
            let near = random.pick(&insns).wrapping_add(random.below(2) as u32);
            let far = random.bits() as u32;
            let data = if round % 2 == 0 { frame(near, far) } else { frame(far, near) };
            let verdict =
                judged.judge(&data).unwrap_or_else(|difference| panic!("{count} hosts: {difference}"));
            accepted += u32::from(verdict != 0);
        }
        assert!((20..180).contains(&accepted), "{count} hosts: {accepted} of 200");
    }
}

/// A chain of questions on bytes 0 to 49, none of which can be answered by a search. With `detours`, each yes leads
/// to a second question, whose no leads back to the chain.
fn chain(questions: u32, detours: bool) -> Ir {
    let mut builder = Builder::new();
    let (accept, reject) = (builder.block(), builder.block());
    for (block, k) in [(accept, 77), (reject, 0)] {
        builder.switch_to(block);
        let k = builder.const32(k);
        builder.finish(Terminator::Return(k));
    }
    let entry = builder.block();
    builder.switch_to(entry);
    for number in 0..questions {
        let byte = builder.load(PacketOffset::at(number % 50), Width::Byte);
        let key = builder.const32(number / 50 % 240);
        let (detour, next) = (builder.block(), builder.block());
        builder.branch(Comparison::Equal, byte, key, if detours { detour } else { accept }, next);
        builder.switch_to(detour);
        builder.branch(Comparison::Greater, byte, key, accept, next);
        builder.switch_to(next);
    }
    builder.goto(reject);
    builder.build(entry)
}

/// More questions in a row than the verifier keeps ways in mind, and more instructions than a short jump crosses.
#[test]
fn long_chains_of_questions_are_accepted_and_right() {
    if !may_load("long_chains_of_questions_are_accepted_and_right") {
        return;
    }
    // The kernel takes time in the square of a socket filter's packet loads.
    for (questions, hook) in [(5_000, Hook::SocketFilter), (12_000, XDP)] {
        let ir = chain(questions, false);
        ir.verify().expect("it is safe");
        let program = emit(&ir, hook).expect("it has no state");
        assert!(program.insns().iter().any(|insn| insn.code == 0x06), "no long jump");
        let program = load(&program);
        let mut machine = Machine::new(ir);
        let mut accepted = 0;
        for number in 0..100 {
            // Bytes that no question asks for, but one in every second packet.
            let mut data = vec![0xff; 60];
            data[number / 2] = if number % 2 == 0 { 99 } else { 250 };
            let meta = Meta { wire_len: 60, ..Meta::default() };
            let expected = machine.run(Packet { data: &data, meta: &meta }, &Memory::new(0)) as u32;
            match hook {
                Hook::SocketFilter | Hook::Count(_) => {
                    assert_eq!(run(&program, &[&[0; HEADER], data.as_slice()].concat()), expected)
                }
                Hook::Xdp { .. } | Hook::Front(_) => {
                    assert_eq!(run(&program, &data) == XdpAction::PASS, expected != 0)
                }
            }
            accepted += u32::from(expected != 0);
        }
        assert_eq!(accepted, 50);
    }
}

/// If paths part and join too often, no order of tests helps.
#[test]
fn programs_too_large_for_the_verifier_are_told() {
    if !may_load("programs_too_large_for_the_verifier_are_told") {
        return;
    }
    let program = emit(&chain(10_000, true), Hook::SocketFilter).expect("it has no state");
    let error = try_load(&program).expect_err("the verifier gives up");
    assert!(error.is_too_large(), "{error}");
    assert!(error.to_string().contains("too complex"), "{error}");
}

#[test]
fn metadata_of_a_packet_in_the_kernel() {
    if !may_load("metadata_of_a_packet_in_the_kernel") {
        return;
    }
    let value = |field| {
        let mut builder = Builder::new();
        let entry = builder.block();
        builder.switch_to(entry);
        let value = builder.field(field);
        builder.finish(Terminator::Return(value));
        let program = load(&emit(&builder.build(entry), Hook::SocketFilter).expect("a filter"));
        // To a group, which the kernel notes as PACKET_MULTICAST = 2.
        run(&program, &[[0x01; HEADER].as_slice(), &[1; 77]].concat())
    };
    let fields = [MetaField::WireLen, MetaField::CapLen, MetaField::PacketType, MetaField::InterfaceIndex];
    assert_eq!(fields.map(value), [77, 77, 2, LOOPBACK]);
    let tag = [MetaField::VlanPresent, MetaField::VlanTag, MetaField::VlanProtocol, MetaField::ReceiveHash];
    assert_eq!(tag.map(value), [0; 4], "a test run has none of these");
}

#[test]
fn a_trampoline_leads_to_a_program_of_any_length() {
    if !may_load("a_trampoline_leads_to_a_program_of_any_length") {
        return;
    }
    let map = Map::create(MapKind::Programs, "tapline_test", 1).expect("a map");
    let jump = load(&ebpf::trampoline(map.as_fd().as_raw_fd()));
    assert_eq!(run(&jump, &[0; 60]), 0, "nothing passes before the program is there");
    map.set(0, load(&emit(&Ir::constant(96), Hook::SocketFilter).expect("a filter")).as_fd())
        .expect("a program");
    assert_eq!(run(&jump, &[0; 60]), 96);
}

#[test]
fn redirection_is_accepted_and_falls_back() {
    if !may_load("redirection_is_accepted_and_falls_back") {
        return;
    }
    let map = Map::create(MapKind::XdpSockets, "tapline_test", 4).expect("a map");
    let options = Options { handle: HandleKind::Dead, ..Options::new(LinkType::ETHERNET) };
    let udp = compile("udp port 53", &options).expect("a filter").unoptimised_values();
    for (else_pass, expected) in [(true, XdpAction::PASS), (false, XdpAction::DROP)] {
        let matched = XdpAction::Redirect { map: map.as_fd().as_raw_fd(), else_pass };
        let program = load(&emit(&udp, Hook::Xdp { matched, unmatched: XdpAction::Pass }).expect("a filter"));
        let mut packet = frame(1, 2);
        assert_eq!(run(&program, &packet), XdpAction::PASS, "it is not UDP");
        packet[23] = 17;
        packet[37] = 53;
        assert_eq!(run(&program, &packet), expected, "there is no socket for the queue");
    }
}

/// The kernel's counters equal the packets of each kind, and the program stops when its stop flag is set.
#[test]
fn the_front_counts_its_actions_and_obeys_the_stop() {
    if !may_load("the_front_counts_its_actions_and_obeys_the_stop") {
        return;
    }
    let sockets = Map::create(MapKind::XdpSockets, "tapline_test", 2).expect("a map");
    let counters = SharedArray::create("tapline_test", XdpFront::counters_len(2), 1).expect("an array");
    let place = XdpFront {
        sockets: sockets.as_fd().as_raw_fd(),
        counters: counters.as_fd().as_raw_fd(),
        queues: 2,
        several: false,
        notes: None,
    };
    let options = Options { handle: HandleKind::Dead, ..Options::new(LinkType::ETHERNET) };
    let filter = |text: &str| compile(text, &options).expect("a filter").unoptimised_values();
    let texts = ["udp port 53", "tcp or udp", "ip[ip[0] & 0xf] = 17 or udp[4:2] > 5", ""];
    let mut passed = 0;
    for text in texts {
        let ir = (!text.is_empty()).then(|| filter(text));
        for kind in [ProgramKind::Xdp, ProgramKind::XdpFragments] {
            // Programs for several buffers have two forms of the filter, which the verifier goes through.
            let place = XdpFront { several: kind == ProgramKind::XdpFragments, ..place };
            let program = load_as(kind, &front(ir.as_ref(), place).expect("a program"));
            for packet in [frame(1, 2), vec![0; 14], vec![0xff; 200]] {
                // Without a socket what matches goes to the stack too.
                assert_eq!(run(&program, &packet), XdpAction::PASS);
                passed += 1;
                assert_eq!(
                    (
                        counters.word(0, XdpFront::redirected_counter(0)),
                        counters.word(0, XdpFront::passed_counter(0))
                    ),
                    (0, passed)
                );
            }
            counters.set_word(0, XdpFront::STOP, 1);
            assert_eq!(run(&program, &frame(1, 2)), XdpAction::PASS);
            assert_eq!(
                counters.word(0, XdpFront::passed_counter(0)),
                passed,
                "a stopped program does not count"
            );
            counters.set_word(0, XdpFront::STOP, 0);
        }
    }
}

/// The rights that the documentation names are enough, for variable places and for values on the stack too.
#[test]
fn the_named_rights_suffice() {
    if !may_load("the_named_rights_suffice") {
        return;
    }
    let text =
        "tcp port 80 and tcp[(tcp[12] & 0xf0) >> 2] = 0x47 and ip[ip[0] & 0xf] + ip[2:2] > ip[4:2] * ip[6]";
    let options = Options { handle: HandleKind::Dead, ..Options::new(LinkType::ETHERNET) };
    let ir = compile(text, &options).expect("a filter").unoptimised_values();
    let lengths = compile("less 100", &options).expect("a filter").unoptimised_values();
    let try_with = |rights: &'static [Capability], ir: &Ir, hook| {
        let program = emit(ir, hook).expect("it has no state");
        let attempt = || {
            keep_only(rights).expect("rights can be given up");
            try_load(&program).map(|_| ())
        };
        std::thread::scope(|scope| scope.spawn(attempt).join().expect("no panic"))
    };
    try_with(&[Capability::Bpf], &ir, Hook::SocketFilter).expect("for sockets");
    try_with(&[Capability::Bpf], &lengths, Hook::SocketFilter).expect("for sockets, lengths");
    let udp = compile("ip proto 17", &options).expect("a filter").unoptimised_values();
    try_with(&[Capability::Bpf, Capability::NetAdmin], &udp, XDP).expect("for XDP at constant places");
    let refused =
        try_with(&[Capability::Bpf, Capability::NetAdmin], &ir, XDP).expect_err("a right is missing");
    assert_eq!(refused.missing, [Capability::Perfmon]);
    try_with(&[Capability::Bpf, Capability::NetAdmin, Capability::Perfmon], &ir, XDP).expect("for XDP");
}

/// Programs that no text compiles to: any instruction, any offset, scratch cells.
#[test]
fn same_verdicts_on_random_programs() {
    if !may_load("same_verdicts_on_random_programs") {
        return;
    }
    let mut random = Random::new(number("TAPLINE_EBPF_SEED", 1));
    let (mut pairs, mut accepted) = (0, 0);
    while pairs < volume("TAPLINE_EBPF_PAIRS", 4_000) / 4 {
        let judged = Judged::new("a random program", random_program(&mut random));
        for _ in 0..PACKETS_PER_TEXT {
            let len = random.below(80) as usize;
            let data = random.bytes(len);
            let verdict = judged.judge(&data).unwrap_or_else(|difference| {
                panic!("{difference} on {data:02x?}\n{}", judged.reference.text(bpf::DumpFormat::Assembly))
            });
            accepted += u64::from(verdict != 0);
            pairs += 1;
        }
    }
    eprintln!("{pairs} pairs, {accepted} accepted");
    assert!(accepted > pairs / 20);
}

/// Graphs that neither texts nor classic programs give: 64 bits, both byte orders, signs, switches, guards that hold
/// for several loads.
#[test]
fn same_verdicts_on_random_graphs() {
    if !may_load("same_verdicts_on_random_graphs") {
        return;
    }
    let mut random = Random::new(number("TAPLINE_EBPF_SEED", 1));
    let (mut pairs, mut accepted) = (0, 0);
    while pairs < volume("TAPLINE_EBPF_PAIRS", 4_000) / 4 {
        let ir = random_graph(&mut random);
        ir.verify().expect("random graphs are safe");
        let programs = [Hook::SocketFilter, XDP].map(|hook| load(&emit(&ir, hook).expect("it has no state")));
        let mut machine = Machine::new(ir);
        for _ in 0..PACKETS_PER_TEXT {
            let len = random.between(14..=120) as usize;
            let data = random.bytes(len);
            let meta = Meta { wire_len: len as u32, if_index: LOOPBACK, ..Meta::default() };
            let expected = machine.run(Packet { data: &data, meta: &meta }, &Memory::new(0)) as u32;
            let behind_header = [&[0; HEADER], data.as_slice()].concat();
            assert_eq!(run(&programs[0], &behind_header), expected, "{}\n{data:02x?}", machine.ir());
            let action = if expected == 0 { XdpAction::DROP } else { XdpAction::PASS };
            assert_eq!(run(&programs[1], &data), action, "{}\n{data:02x?}", machine.ir());
            accepted += u64::from(expected != 0);
            pairs += 1;
        }
    }
    eprintln!("{pairs} pairs, {accepted} accepted");
    assert!(accepted > pairs / 20);
}
