//! FPL without state is a filter: the verdicts of filters in the other language, in every engine, the kernel included.
//!
//! ```text
//! FPL text, filter text that asks the same   --> interpreter, native code, eBPF (socket, XDP), classic BPF: accepted or not, by all alike
//! random FPL program without state           --> interpreter, eBPF in the kernel
//! ```
//!
//! Without the right to load programs the kernel is left out, and the tests say so. `TAPLINE_FPL_PACKETS=100000` sets
//! how many packets each pair is judged on (else 1,000), `TAPLINE_FPL_SEED=7` where chance starts.

use tapline_ebpf::{self as ebpf, Hook, XdpAction, emit};
use tapline_filter::{HandleKind, Options};
use tapline_fpl::{self as fpl, FplOptions};
use tapline_ir::optimise::{optimise, optimise_for_sockets};
use tapline_ir::{Ir, Machine, Memory};
use tapline_jit::Native;
use tapline_packet::{LinkType, Meta, Packet};
use tapline_sys::bpf::{LoadError, LoadedProgram, ProgramKind, probe};
use tapline_testkit::fpl::{packet, program};
use tapline_testkit::libpcap::LibpcapProgram;
use tapline_testkit::random::Random;
use tapline_testkit::volume::{number, volume};

/// A question in both languages. Fields of FPL are found behind tags, and only in headers that are whole; the
/// filters say so.
const PAIRS: &[(&str, &str)] = &[
    ("RETURN PKT.W[12] == TYPE_IP;", "ip"),
    ("RETURN PKT.W[12] == TYPE_ARP && PKT.W[20] == 1;", "arp[6:2] = 1"),
    ("RETURN PKT.W[12] == TYPE_IP && PKT.B[23] == PROTO_UDP;", "ip proto 17"),
    ("RETURN PKT.W[12] == TYPE_IP && (PKT.DW[26] == 10.0.0.1 || PKT.DW[30] == 10.0.0.1);", "ip host 10.0.0.1"),
    ("RETURN PKT.W[12] == TYPE_IP && PKT.DW[26] & 0xff000000 == 10.0.0.0;", "ip src net 10.0.0.0/8"),
    ("RETURN PKT.B[0] & 1;", "ether[0] & 1 != 0"),
    ("RETURN PKT.DW[8] == 0x00000001 && PKT.W[6] == 0x0200;", "ether src 02:00:00:00:00:01"),
    (
        "RETURN (PKT.W[12] == 0x8100 || PKT.W[12] == 0x88a8 || PKT.W[12] == 0x9100) && PKT.W[14] & 0xfff == 5;",
        "vlan 5",
    ),
    ("RETURN PKT.LEN >= 100;", "greater 100"),
    ("RETURN PKT.W[12] == TYPE_IP && PKT.W[16] > PKT.W[18];", "ip[2:2] > ip[4:2]"),
    ("RETURN PKT.W[12] == TYPE_IP && PKT.B[22] % 3 == 1;", "ip[8] % 3 = 1"),
    (
        "MACRO HEADER = 14 + PKT.B[14].U4[1] * 4;
         IF (PKT.W[12] == TYPE_IP6) THEN RETURN PKT.B[20] == PROTO_TCP && PKT.W[56] == 80; FI
         RETURN PKT.W[12] == TYPE_IP && PKT.B[23] == PROTO_TCP && PKT.W[20] & 0x1fff == 0 && PKT.W[HEADER + 2] == 80;",
        "tcp dst port 80",
    ),
    (
        "IF (PKT.W[12] != TYPE_IP) THEN RETURN 0; FI
         FOR (R[0] = 0; R[0] < 4; R[0]++) R[1] += PKT.B[26 + R[0]]; ROF
         RETURN R[1] > 400;",
        "ip[12] + ip[13] + ip[14] + ip[15] > 400",
    ),
    ("RETURN PKT.W[12] == TYPE_IP && PKT.IS_IP && PKT.IP_TTL <= 64;", "ip[8] <= 64 and len >= 34"),
    ("RETURN PKT.W[12] == TYPE_IP6 && PKT.IP6_HOPS == 64;", "ip6[7] = 64 and len >= 54"),
    (
        "RETURN PKT.W[12] == TYPE_IP && PKT.IP_PROTO == PROTO_TCP && PKT.TCP_DPORT == 80;",
        "tcp dst port 80 and (ip[0] & 0xf) >= 5 and len >= 34 + ((ip[0] & 0xf) << 2)",
    ),
    (
        "IF (PKT.W[12] != TYPE_IP || !PKT.IS_TCP) THEN RETURN 0; FI
         RETURN PKT.TCP_FLAGS & (TCP_SYN | TCP_ACK) == TCP_SYN;",
        "tcp[13] & 0x12 = 2 and (ip[0] & 0xf) >= 5 and len >= 34 + ((ip[0] & 0xf) << 2)",
    ),
    (
        "RETURN PKT.W[12] == TYPE_IP && (PKT.UDP_SPORT == 53 || PKT.UDP_DPORT == 53);",
        "ip and udp port 53 and (ip[0] & 0xf) >= 5 and len >= 22 + ((ip[0] & 0xf) << 2)",
    ),
];

/// Bytes before the data of a socket filter in a test run: an Ethernet header.
const HEADER: usize = 14;

const XDP: Hook = Hook::Xdp { matched: XdpAction::Pass, unmatched: XdpAction::Drop };

/// Whether programs may be loaded; says so if not.
fn may_load() -> bool {
    probe(ProgramKind::Xdp).map_err(|error| eprintln!("without the kernel: {error}")).is_ok()
}

fn load(program: &ebpf::Program) -> Result<LoadedProgram, LoadError> {
    let kind = match program.hook() {
        Hook::SocketFilter => ProgramKind::SocketFilter,
        _ => ProgramKind::Xdp,
    };
    LoadedProgram::load(kind, "tapline_test", program.insns())
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

/// A program in the kernel, at a socket and before the stack.
struct Kernel {
    socket: LoadedProgram,
    xdp: LoadedProgram,
}

impl Kernel {
    /// As a capture loads it.
    fn new(ir: &Ir) -> Result<Kernel, LoadError> {
        let mut for_sockets = ir.clone();
        optimise_for_sockets(&mut for_sockets);
        let mut optimised = ir.clone();
        optimise(&mut optimised);
        let emitted = |ir: &Ir, hook| emit(ir, hook).unwrap_or_else(|error| panic!("{error}\n{ir}"));
        let loaded = |program: ebpf::Program| {
            load(&program).map_err(|error| {
                assert!(error.is_too_large(), "{error}\n{}\n{}", program.text(), error.log);
                error
            })
        };
        Ok(Kernel {
            socket: loaded(emitted(&for_sockets, Hook::SocketFilter))?,
            xdp: loaded(emitted(&optimised, XDP))?,
        })
    }

    /// Verdicts, cut to the kernel's width; of XDP, only whether it accepts, if a test run takes the packet.
    fn verdicts(&self, data: &[u8]) -> (u32, Option<bool>) {
        let socket = run(&self.socket, &[&[0; HEADER], data].concat());
        let xdp = (data.len() >= HEADER).then(|| run(&self.xdp, data) == XdpAction::PASS);
        (socket, xdp)
    }
}

#[test]
fn fpl_and_pcap_filters_agree() {
    let with_kernel = may_load();
    let packets = volume("TAPLINE_FPL_PACKETS", 25);
    let mut random = Random::new(number("TAPLINE_FPL_SEED", 1));
    let mut matched = 0;
    for (text, filter) in PAIRS {
        let ir = fpl::compile(text, &FplOptions::default())
            .unwrap_or_else(|error| panic!("{}", fpl::report(&error, text)))
            .ir;
        assert!(!ir.has_state(), "{text}");
        let options =
            Options { netmask: Some(0), handle: HandleKind::Dead, ..Options::new(LinkType::ETHERNET) };
        let classic = tapline_filter::compile(filter, &options)
            .unwrap_or_else(|error| panic!("{}", error.render(filter)));
        let steering = LibpcapProgram::new(classic.insns().to_vec());
        let mut optimised = ir.clone();
        optimise(&mut optimised);
        let native = Native::compile(&optimised).expect("native code");
        let kernel = with_kernel.then(|| Kernel::new(&ir).unwrap_or_else(|error| panic!("{text}: {error}")));
        let mut machine = Machine::new(ir);
        let none = Memory::new(0);
        let mut accepted = 0;
        for _ in 0..packets {
            let mut data = packet(&mut random);
            if random.one_of(3, 4) {
                // Along a branch of the filter.
                let wire_len = data.len() as u32;
                steering.plant(&mut data, wire_len, &mut random);
            }
            data.truncate(3000);
            let meta = Meta { wire_len: data.len() as u32, ..Meta::default() };
            let packet = Packet { data: &data, meta: &meta };
            let expected = classic.run(packet) != 0;
            let about = || format!("{filter}\n{text}\n{data:02x?}");
            assert_eq!(machine.run(packet, &none) != 0, expected, "interpreter: {}", about());
            assert_eq!(native.run(packet, &none) != 0, expected, "native: {}", about());
            if let Some(kernel) = &kernel {
                let (socket, xdp) = kernel.verdicts(&data);
                assert_eq!(socket != 0, expected, "socket filter: {}", about());
                assert!(xdp.is_none_or(|xdp| xdp == expected), "XDP: {}", about());
            }
            accepted += u64::from(expected);
        }
        assert!(accepted < packets, "{filter} accepts each of {packets} packets");
        matched += accepted;
    }
    // Few packets may all miss a rare filter, but not all filters.
    let judged = packets * PAIRS.len() as u64;
    eprintln!("{matched} of {judged} packets accepted");
    assert!(
        matched * 20 > judged,
        "{matched} of {judged} packets accepted: packets that match are too seldom"
    );
}

/// Programs with a loop over IPv6 extension headers, at both places in the kernel.
#[test]
fn kernel_programs_skip_ipv6_extensions() {
    if !may_load() {
        return;
    }
    let mut random = Random::new(number("TAPLINE_FPL_SEED", 1));
    for text in [
        "RETURN PKT.TCP_DPORT;",
        "RETURN PKT.L4_PROTO * 65536 + PKT.L4_START;",
        "RETURN PKT.IS_FRAGMENT + 2 * PKT.IS_UDP;",
        "RETURN (PKT.TCP_SPORT | PKT.UDP_SPORT) == 53 || PKT.IS_ICMP6;",
        "RETURN PKT.DATA_START * 65536 + PKT.DATA_LEN;",
    ] {
        let ir = fpl::compile(text, &FplOptions::default()).expect("a program").ir;
        assert!(!ir.loops.is_empty(), "{text}");
        let kernel = Kernel::new(&ir).unwrap_or_else(|error| panic!("{text}: {error}"));
        let mut machine = Machine::new(ir);
        let mut accepted = 0;
        for _ in 0..400 {
            let data = packet(&mut random);
            let meta = Meta { wire_len: data.len() as u32, ..Meta::default() };
            let expected = machine.run(Packet { data: &data, meta: &meta }, &Memory::new(0));
            let (socket, xdp) = kernel.verdicts(&data);
            assert_eq!(socket, expected as u32, "{text}\n{data:02x?}");
            assert!(xdp.is_none_or(|xdp| xdp == (expected != 0)), "XDP: {text}\n{data:02x?}");
            accepted += u32::from(expected != 0);
        }
        assert!((8..400).contains(&accepted), "{text}: {accepted}");
    }
}

/// Random programs: as likely with IPv6 extension headers and loops as plain.
#[test]
fn random_programs_without_state_run_in_the_kernel() {
    if !may_load() {
        return;
    }
    let first = number("TAPLINE_FPL_SEED", 1);
    let (mut judged, mut with_loops, mut too_large, mut accepted) = (0, 0, 0, 0);
    for seed in first..first + 2_000 {
        let mut random = Random::new(seed);
        let text = program(&mut random);
        let Ok(compiled) = fpl::compile(&text, &FplOptions::default()) else { continue };
        if compiled.ir.has_state() {
            continue;
        }
        let has_loops = !compiled.ir.loops.is_empty();
        let ir = compiled.ir;
        if matches!(
            emit(&ir, XDP),
            Err(ebpf::EmitError::TooManyRounds { .. } | ebpf::EmitError::TooManyValues { .. })
        ) {
            too_large += 1;
            continue;
        }
        let Ok(kernel) = Kernel::new(&ir) else {
            too_large += 1;
            continue;
        };
        let mut machine = Machine::new(ir);
        for _ in 0..16 {
            let data = packet(&mut random);
            // A test run has no more on the wire than it has bytes.
            let meta = Meta { wire_len: data.len() as u32, ..Meta::default() };
            let expected = machine.run(Packet { data: &data, meta: &meta }, &Memory::new(0));
            let (socket, xdp) = kernel.verdicts(&data);
            assert_eq!(socket, expected as u32, "seed {seed}: {text}\n{data:02x?}\n{}", machine.ir());
            assert!(
                xdp.is_none_or(|xdp| xdp == (expected != 0)),
                "XDP, seed {seed}: {text}\n{data:02x?}\n{}",
                machine.ir()
            );
            accepted += u64::from(expected != 0);
        }
        judged += 1;
        with_loops += u64::from(has_loops);
    }
    eprintln!(
        "{judged} programs, {with_loops} with loops, {accepted} packets accepted, {too_large} too large"
    );
    assert!(judged > 20 && with_loops > 5 && too_large < judged, "{judged}, {with_loops}, {too_large}");
}
