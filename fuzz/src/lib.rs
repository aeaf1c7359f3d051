//! Laws that hold for any input. A fuzz target looks for inputs that break one; a test of the workspace replays seeds.
//!
//! ```text
//! seeds --mutate--> input --law--> returns, or panics: then the law is broken
//! ```
//!
//! Each law takes bytes as a hostile sender or a damaged disk might give them.

mod application;
mod collected;
mod engines;
mod places;
mod ring;
mod roll_up;
mod signatures;
mod sip;
mod store;
mod streams;
mod tap;
mod wire;

use std::collections::VecDeque;
use std::io::Read;
use std::sync::{Arc, OnceLock};
use tapline_bpf::{DumpFormat, Insn, Program};
use tapline_file::FileSource;
use tapline_filter::{FixedNames, HandleKind, explain, tree};
use tapline_flow::export::{ExportOptions, ExportTarget, Exporter, FlowSink as _, Version};
use tapline_flow::{DetailFields, Flow, KeyFields, Meter, MeterSettings};
use tapline_fpl::{self as fpl, FplOptions};
use tapline_graph::plan::{GraphText, Plan};
use tapline_ir::{CompiledFilter, Ir, Machine, Memory};
use tapline_packet::{Batch, Interface, LinkType, Meta, Packet, Record, Selection};
use tapline_print::{HexStyle, Options, Printer, json};
use tapline_search::{Pattern, Patterns, SearchEngine, StreamState, find_all_naive, parse_list};
use tapline_testkit::capture_file::{ETHERNET, Unit, write_pcap, write_pcapng};
use tapline_testkit::{gallery, traffic::Traffic};

/// A law, its name as a fuzz target, and inputs to begin with.
pub struct Law {
    /// The target's name.
    pub name: &'static str,
    /// Panics if the input breaks the law.
    pub check: fn(&[u8]),
    /// Inputs that reach deep.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const LAWS: &[Law] = &[
    Law { name: "capture_file", check: capture_file, seeds: capture_file_seeds },
    Law { name: "filter_text", check: filter_text, seeds: filter_text_seeds },
    Law { name: "bpf_program", check: bpf_program, seeds: bpf_program_seeds },
    Law { name: "fpl_text", check: fpl_text, seeds: fpl_text_seeds },
    Law { name: "engines", check: engines, seeds: engines::engines_seeds },
    Law { name: "graph_text", check: graph_text, seeds: graph_text_seeds },
    Law { name: "rules_text", check: rules_text, seeds: rules_text_seeds },
    Law { name: "packet_text", check: packet_text, seeds: packet_seeds },
    Law { name: "packet_json", check: packet_json, seeds: packet_seeds },
    Law { name: "flows", check: flows, seeds: flows_seeds },
    Law { name: "collected", check: collected, seeds: collected::collected_seeds },
    Law { name: "places", check: places, seeds: places::places_seeds },
    Law { name: "wire", check: wire, seeds: wire::wire_seeds },
    Law { name: "application", check: application, seeds: application::application_seeds },
    Law { name: "sip", check: sip, seeds: sip::sip_seeds },
    Law { name: "pattern_search", check: pattern_search, seeds: pattern_search_seeds },
    Law { name: "signatures", check: signatures, seeds: signatures::signatures_seeds },
    Law { name: "tcp_streams", check: tcp_streams, seeds: streams::seeds },
    Law { name: "ring_writer", check: ring_writer, seeds: ring::ring_writer_seeds },
    Law { name: "ring_reader", check: ring_reader, seeds: ring::ring_reader_seeds },
    Law { name: "store_files", check: store_files, seeds: store::store_files_seeds },
    Law { name: "store_roll_up", check: store_roll_up, seeds: roll_up::store_roll_up_seeds },
    Law { name: "tap_socket", check: tap_socket, seeds: tap::tap_socket_seeds },
];

/// Streams come out in order, each byte once and accounted for (`streams.rs`).
pub fn tcp_streams(data: &[u8]) {
    streams::check(data);
}

/// A file gives the same packets however its bytes arrive.
///
/// ERF has no magic number, and three layouts share that of pcap with microseconds: what such a file is, is judged by
/// the records that have arrived. There the law says only that reading ends.
pub fn capture_file(data: &[u8]) {
    let whole = read_all(Box::new(VecDeque::from(data.to_vec())));
    if !is_told_by_magic(data) {
        return;
    }
    let trickle = read_all(Box::new(Trickle { data: data.to_vec(), at: 0 }));
    assert!(whole == trickle, "the same file gives different packets when it is read in small pieces");
}

fn is_told_by_magic(data: &[u8]) -> bool {
    const MAGICS: [u32; 2] = [0x0a0d_0d0a, 0xa1b2_3c4d];
    let magic = data.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    MAGICS.contains(&magic) || MAGICS.contains(&magic.swap_bytes())
}

/// The captured bytes of all packets up to the end or the first fault, and whether there was a fault.
fn read_all(reader: Box<dyn Read + Send>) -> (Vec<Vec<u8>>, bool) {
    let mut packets = Vec::new();
    let mut bytes = 0;
    let Ok(mut file) = FileSource::from_reader(reader, "fuzz") else { return (packets, true) };
    loop {
        match file.advance() {
            Ok(true) => {
                for (index, packet) in file.batch().iter().enumerate() {
                    assert!((packet.meta.interface.0 as usize) < file.interfaces().len());
                    bytes += packet.data.len() + file.batch().options(index).len();
                    packets.push(packet.data.to_vec());
                }
            }
            Ok(false) => return (packets, false),
            Err(error) => {
                assert!(!error.to_string().is_empty());
                return (packets, true);
            }
        }
        // A packed file may be far larger than it looks; a bound keeps the fuzzer fast.
        if bytes > 1 << 24 {
            return (packets, false);
        }
    }
}

/// Gives few bytes at a time, as a pipe may.
struct Trickle {
    data: Vec<u8>,
    at: usize,
}

impl Read for Trickle {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let len = (1 + self.at % 7).min(buffer.len()).min(self.data.len() - self.at);
        buffer[..len].copy_from_slice(&self.data[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}

pub use application::application;
pub use collected::collected;
pub use engines::engines;
pub use places::places;
pub use ring::{ring_reader, ring_writer};
pub use roll_up::store_roll_up;
pub use signatures::signatures;
pub use sip::sip;
pub use store::store_files;
pub use tap::tap_socket;
pub use wire::wire;

/// What is said of filters that are proven to reject every packet.
const NEVER: &str = "expression rejects all packets";

/// A text compiles to programs and values that agree, simplified or not, on every packet, and can be explained at each
/// stage; or gives an error that points into it.
///
/// The input is 10 bits of link type, 4 of options, and from the third byte on the text.
pub fn filter_text(data: &[u8]) {
    let Some((head, text)) = data.split_at_checked(2) else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let options = filter_options(u16::from_le_bytes([head[0], head[1]]));
    let plain_options = tapline_filter::Options { optimise: false, ..options.clone() };
    ensure_is_explained(text, &options);
    let (plain, simple) =
        (tapline_filter::compile(text, &plain_options), tapline_filter::compile(text, &options));
    match (plain, simple) {
        (Ok(plain), Ok(simple)) => {
            ensure_same_verdicts(plain.program(), Some(simple.program()));
            ensure_same_values(&plain);
            ensure_same_values(&simple);
        }
        // Simplifying computes constants, and meets shifts and divisions that libpcap's optimiser refuses too; or it
        // proves that no packet passes.
        (Ok(plain), Err(error)) => {
            ensure_points_into(&error, text);
            if error.message == NEVER {
                ensure_same_verdicts(plain.program(), None);
            }
        }
        (Err(error), Err(_)) => ensure_points_into(&error, text),
        (Err(error), Ok(_)) => panic!("only the simplified form compiles: {error}"),
    }
}

fn filter_options(bits: u16) -> tapline_filter::Options {
    tapline_filter::Options {
        link_type: LinkType(bits & 0x03ff),
        handle: [HandleKind::Savefile, HandleKind::Live, HandleKind::Dead, HandleKind::Live]
            [usize::from(bits >> 10 & 3)],
        scoped: bits & 0x1000 != 0,
        ipv6_extensions: bits & 0x2000 != 0,
        // Fixed names: a fuzzer must not ask name servers.
        resolver: Arc::new(FixedNames::default()),
        ..tapline_filter::Options::default()
    }
}

/// What compiles can be shown at every stage; for the rest there is an error as compiling gives it, or what contradicts
/// itself.
fn ensure_is_explained(text: &str, options: &tapline_filter::Options) {
    match (tapline_filter::compile(text, options), explain(text, options)) {
        (Ok(filter), Ok(shown)) => {
            assert!(shown.contains("Its program:") && shown.ends_with('\n'));
            assert!(tree(text).is_ok_and(|shown| !shown.is_empty()), "{text:?}");
            assert!(!filter.values().to_string().is_empty(), "{text:?}");
        }
        (Err(error), Ok(shown)) => assert!(error.message == NEVER && shown.contains("No packet can match")),
        (Err(error), Err(other)) => assert_eq!(error.message, other.message),
        (Ok(_), Err(error)) => panic!("what compiles cannot be explained: {error}"),
    }
}

/// The values of a filter are safe and answer as its program does.
fn ensure_same_values(filter: &CompiledFilter) {
    let (program, ir) = (filter.program(), filter.values());
    assert_eq!(ir.verify(), Ok(()), "{ir}");
    let (mut machine, memory) = (Machine::new(ir.clone()), Memory::new(0));
    for (name, frame) in exhibits() {
        for len in [frame.len(), frame.len() / 2] {
            let meta = Meta { wire_len: frame.len() as u32, ..Meta::default() };
            let packet = Packet { data: &frame[..len], meta: &meta };
            assert_eq!(machine.run(packet, &memory), u64::from(program.run(packet)), "{name}, {len} bytes");
        }
    }
}

fn exhibits() -> &'static [gallery::NamedFrame] {
    static FRAMES: OnceLock<Vec<gallery::NamedFrame>> = OnceLock::new();
    FRAMES.get_or_init(gallery::exhibits)
}

fn ensure_points_into(error: &tapline_filter::Error, text: &str) {
    assert!(!error.to_string().is_empty());
    let is_inside = error.span.is_none_or(|span| text.get(span.start..span.end).is_some());
    assert!(is_inside, "the error's place is not in the text: {error:?}");
}

/// Without a second program, that the first one rejects everything.
fn ensure_same_verdicts(one: &Program, other: Option<&Program>) {
    for (name, frame) in exhibits() {
        let meta = Meta { wire_len: frame.len() as u32, ..Meta::default() };
        let verdict = |program: &Program| program.run(Packet { data: frame, meta: &meta });
        assert_eq!(verdict(one), other.map_or(0, verdict), "{name}");
    }
}

/// An FPL text that compiles ends within its proven work, and does the same after all passes; another gives an error
/// that points into it.
///
/// The input is the packet's length in one byte, the packet, and the text.
pub fn fpl_text(data: &[u8]) {
    let Some((&len, rest)) = data.split_first() else { return };
    let Some((packet, text)) = rest.split_at_checked(len.into()) else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    // Each with functions of its own: some of them remember.
    match [0, 1].map(|_| fpl::compile(text, &fpl_options())) {
        [Ok(plain), Ok(mut optimised)] => {
            assert!(plain.work <= fpl_options().work_max);
            tapline_ir::optimise::optimise(&mut optimised.ir);
            assert_eq!(
                fpl_run(plain.ir, packet),
                fpl_run(optimised.ir, packet),
                "the passes change what it does"
            );
        }
        [Err(error), _] | [_, Err(error)] => {
            ensure_points_into(&error, text);
            assert!(fpl::report(&error, text).len() > error.message.len());
        }
    }
}

/// Little work is allowed, so that a run without an end shows as one that takes long.
fn fpl_options() -> FplOptions {
    FplOptions { work_max: 1 << 14, ..FplOptions::default() }
}

/// Verdicts on the packet whole and cut, and the memory after them.
fn fpl_run(ir: Ir, packet: &[u8]) -> (Vec<u64>, Vec<u64>) {
    assert_eq!(ir.verify(), Ok(()));
    let memory = Memory::new(fpl_options().memory_cells);
    let mut machine = Machine::new(ir);
    let cuts = [packet.len(), packet.len() / 2, packet.len().saturating_sub(1)];
    let verdict = |len: usize| {
        let meta = Meta { wire_len: packet.len() as u32, ..Meta::default() };
        machine.run(Packet { data: &packet[..len], meta: &meta }, &memory)
    };
    let verdicts = cuts.map(verdict).to_vec();
    (verdicts, (0..memory.len() as u64).map(|cell| memory.get(cell)).collect())
}

/// A program that is accepted runs to its end on any packet, alone and in a batch alike, and can be shown.
///
/// The input is a number of instructions, the instructions of 8 bytes each, and the packet.
pub fn bpf_program(data: &[u8]) {
    let Some((&count, rest)) = data.split_first() else { return };
    let program_len = usize::from(count) * 8;
    let Some((program, packet)) = rest.split_at_checked(program_len) else { return };
    let insns: Vec<Insn> = program.chunks_exact(8).map(insn).collect();
    let Ok(program) = Program::new(insns) else { return };
    let meta = Meta { wire_len: packet.len() as u32, ..Meta::default() };
    let verdict = program.run(Packet { data: packet, meta: &meta });
    let record = Record { offset: 0, cap_len: packet.len() as u32, options_len: 0, meta };
    let mut selection = Selection::none();
    selection.select_all(1);
    program.select(&Batch::new(packet, &[record]), &mut selection);
    assert_eq!(verdict != 0, !selection.is_empty());
    assert_eq!(program.text(DumpFormat::Assembly).lines().count(), program.insns().len());
}

fn insn(bytes: &[u8]) -> Insn {
    Insn {
        code: u16::from_le_bytes([bytes[0], bytes[1]]),
        jt: bytes[2],
        jf: bytes[3],
        k: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
    }
}

/// Any bytes print as whole lines, the same each time.
///
/// The input is two bytes of link type, two that choose options, and the packet.
pub fn packet_text(data: &[u8]) {
    let Some((link_type, choice, packet)) = packet_of(data) else { return };
    let text = print(link_type, choice, packet);
    assert_eq!(text.last(), Some(&b'\n'));
    assert!(text == print(link_type, choice, packet), "the same packet prints differently");
}

fn print(link_type: LinkType, choice: u16, packet: &[u8]) -> Vec<u8> {
    const HEX: [HexStyle; 4] = [HexStyle::None, HexStyle::HexLink, HexStyle::HexAscii, HexStyle::Ascii];
    let options = Options {
        port_names: false,
        verbose: (choice & 3) as u8,
        quiet: choice & 4 != 0,
        link_header: choice & 8 != 0,
        absolute_seq: choice & 16 != 0,
        hex: HEX[usize::from(choice >> 5 & 3)],
        ..Options::default()
    };
    let meta = Meta { wire_len: packet.len() as u32 + u32::from(choice >> 12), ..Meta::default() };
    let mut printer = Printer::new(options);
    let mut out = Vec::new();
    printer.print(Packet { data: packet, meta: &meta }, &Interface::new("eth0", link_type), &mut out);
    out
}

/// Any bytes become one line of valid JSON.
///
/// The input is as for [`packet_text`].
pub fn packet_json(data: &[u8]) {
    let Some((link_type, choice, packet)) = packet_of(data) else { return };
    let meta = Meta { wire_len: packet.len() as u32 + u32::from(choice >> 12), ..Meta::default() };
    let mut line = Vec::new();
    json::packet(Packet { data: packet, meta: &meta }, &Interface::new("eth0", link_type), 1, &mut line);
    assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1));
    if let Err(error) = serde_json::from_slice::<serde_json::Value>(&line) {
        panic!("{error}: {}", String::from_utf8_lossy(&line));
    }
}

fn packet_of(data: &[u8]) -> Option<(LinkType, u16, &[u8])> {
    let (head, packet) = data.split_at_checked(4)?;
    Some((LinkType(u16::from_le_bytes([head[0], head[1]])), u16::from_le_bytes([head[2], head[3]]), packet))
}

/// Every engine finds what the plain search finds, in the whole and in the pieces of a stream; and any bytes are a
/// pattern list or give an error that points into them.
///
/// The input is a number of patterns, each a byte of case and length and its bytes, then the length of a piece and the
/// haystack.
pub fn pattern_search(data: &[u8]) {
    let Some((&count, mut rest)) = data.split_first() else { return };
    let mut patterns = Vec::new();
    for id in 0..u32::from(count) {
        let Some((&head, tail)) = rest.split_first() else { return };
        let Some((bytes, tail)) = tail.split_at_checked(usize::from(head >> 1 & 31) + 1) else { return };
        patterns.push(Pattern { id, bytes: bytes.to_vec(), nocase: head & 1 == 1 });
        rest = tail;
    }
    let Some((&piece_len, haystack)) = rest.split_first() else { return };
    ensure_list_errors_point_into(haystack);
    let expected = find_all_naive(&patterns, haystack);
    let chosen = Patterns::new(patterns.clone());
    assert_eq!(chosen.is_ok(), count > 0);
    let engines = [SearchEngine::Single, SearchEngine::Teddy, SearchEngine::Grams, SearchEngine::Automaton];
    let fixed = engines.iter().filter_map(|engine| Patterns::with_engine(patterns.clone(), *engine).ok());
    for search in chosen.into_iter().chain(fixed) {
        let engine = search.engine();
        assert_eq!(search.find_all(haystack), expected, "{engine}");
        assert_eq!(search.find(haystack), expected.first().copied(), "{engine}");
        assert_eq!(search.is_match(haystack), !expected.is_empty(), "{engine}");
        let (mut stream, mut found) = (StreamState::new(), Vec::new());
        for piece in haystack.chunks(usize::from(piece_len) + 1) {
            stream.push(&search, piece, |each| found.push((each.start as usize, each.id)));
        }
        found.sort_unstable();
        assert!(found.iter().copied().eq(expected.iter().map(|each| (each.start, each.id))), "{engine}");
    }
}

fn ensure_list_errors_point_into(text: &[u8]) {
    if let Err(tapline_search::Error::List { line, column, .. }) = parse_list(text) {
        let line = text.split(|byte| *byte == b'\n').nth(line as usize - 1);
        assert!(line.is_some_and(|line| (1..=line.len()).contains(&column)), "byte {column} of {line:?}");
    }
}

fn pattern_search_seeds() -> Vec<Vec<u8>> {
    let encode = |patterns: &[&[u8]], nocase: u8, piece: u8, haystack: &[u8]| {
        let mut bytes = vec![patterns.len() as u8];
        for pattern in patterns {
            bytes.push((pattern.len() as u8 - 1) << 1 | nocase);
            bytes.extend_from_slice(pattern);
        }
        [bytes, vec![piece], haystack.to_vec()].concat()
    };
    let texts: Vec<Vec<u8>> =
        (0..80_u8).map(|index| [b"pattern-".as_slice(), &[index; 5]].concat()).collect();
    let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
    let haystack = [texts.concat(), b"pattern-pattern-xxPATTERN-".repeat(4)].concat();
    vec![
        encode(&[b"needle"], 0, 4, b"hay needle needlneedle"),
        encode(&[b"a", b"aa", b"aaa", b"aaaab", b"ba"], 0, 0, &b"aaaab".repeat(20)),
        encode(&[b"Needle", b"EED", b"needless"], 1, 6, b"NEEDLES needless \x00|41 42|/i\n#\\x41\nneedle"),
        encode(&texts, 0, 30, &haystack),
        encode(&texts, 1, 100, &haystack),
    ]
}

fn capture_file_seeds() -> Vec<Vec<u8>> {
    let frames = || Traffic::new(1).take(5);
    let mut seeds = vec![Vec::new(); 3];
    let written = [
        write_pcap(&mut seeds[0], ETHERNET, Unit::Microseconds, frames()),
        write_pcap(&mut seeds[1], ETHERNET, Unit::Nanoseconds, frames()),
        write_pcapng(&mut seeds[2], ETHERNET, "eth0", frames()),
    ];
    assert!(written.iter().all(Result::is_ok));
    // ERF: time, type 2 (Ethernet), flags, record length, loss, wire length, 2 bytes of padding, the frame.
    seeds.push([&[0; 8][..], &[2, 4, 0, 78, 0, 0, 0, 60, 0, 0], &[0x11; 60]].concat());
    seeds
}

const TEXTS: &[&str] = &[
    "",
    "tcp port 80",
    "src host 10.0.0.1 and not (dst net 192.168.0.0/16 or port 22)",
    "ip[0] & 0xf != 5 and tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "vlan 100 and mpls 5 and pppoes 7 and ip6 proto 58",
    "ether host 00:11:22:33:44:55 or ether multicast",
    "len >= 100 and portrange 100-200 and greater 5",
    "icmp[icmptype] == icmp-echo or ip protochain 6",
    "((((udp))))",
    "host 1.2.3.4 or 5.6.7.8 and ip6 host fe80::1",
    "geneve 7 and tcp or vxlan 5",
    "ip[2:2] - ((ip[0] & 0xf) << 2) * 4 / 2 % 3 ^ 1 > 0",
    // Found by fuzzing: a shift by more than 31 bits, an index below zero.
    "ip[2:2] - ((ip[0] & 0xf) << -2) * 4 / 6 % 6 ^ 1 > 0",
    "ip[2:2] - ((ip[0 - 0 ^ 1] & 0) * 4 / 6 % 62) * 4 > 0",
];

/// What the old language does not have.
const FORMS: &[&str] = &[
    "scoped(vlan 5 and tcp port 80) or udp",
    "anyvlan (ip6 and port 53) and not arp",
    "inner(vxlan 5, tcp[13] & 2 != 0) or inner(gre, ip host 10.0.0.1)",
    "extensions(tcp port 80 or udp[4:2] > 20) and fragment(later)",
    "inner(scoped(vlan or inner( gtp 5,icmp6)))",
];

fn filter_text_seeds() -> Vec<Vec<u8>> {
    let of_ethernet = TEXTS.iter().map(|text| [&[1, 0], text.as_bytes()].concat());
    // Raw IP (101), 802.11 with radiotap (127), Linux cooked (113): other offsets, other keywords.
    let others = [(101, "ip6 and tcp port 80"), (127, "type mgt subtype beacon"), (113, "vlan and inbound")];
    let forms = FORMS
        .iter()
        .flat_map(|text| [[&[1, 0], text.as_bytes()].concat(), [&[1, 0x34], text.as_bytes()].concat()]);
    let others = others.map(|(link_type, text)| [&[link_type, 0], text.as_bytes()].concat());
    of_ethernet.chain(others).chain(forms).collect()
}

const PROGRAMS: &[&str] = &[
    include_str!("../../crates/filter/fpl/programs/count-flows.fpl"),
    include_str!("../../crates/filter/fpl/programs/flows.fpl"),
    include_str!("../../crates/filter/fpl/programs/fragments.fpl"),
    include_str!("../../crates/filter/fpl/programs/rtsp.fpl"),
    "MACRO F(x) = x * 2; CONST N = 0b11; FOR (R[0] = 0; R[0] < PKT.LEN & 31; R[0] += N) R[1] ^= PKT.B[R[0]].S4[1]; ROF RETURN F(R[1]);",
    "R[1] = EXTERN(count, 0, 1); IF (S8(PKT.B[3]) < -4 && !(PKT.TCP_FLAGS & TCP_SYN)) THEN M[R[1]] <<= 3; ELSE RETURN 1 / R[2]; FI",
    "RETURN HASH(PKT.DATA_START, PKT.DATA_LEN, ~0) % 7 == 'GET ' >> 3; // end",
];

fn fpl_text_seeds() -> Vec<Vec<u8>> {
    let frames = gallery::exhibits().into_iter().map(|(_, frame)| frame).filter(|frame| frame.len() < 256);
    let seed =
        |(program, frame): (&&str, Vec<u8>)| [&[frame.len() as u8], &frame[..], program.as_bytes()].concat();
    PROGRAMS.iter().cycle().zip(frames).map(seed).collect()
}

fn bpf_program_seeds() -> Vec<Vec<u8>> {
    // ldh [12]; jeq #0x800; ret #262144; ret #0 -- and one with an index, scratch memory, arithmetic.
    let ip: &[(u16, u8, u8, u32)] =
        &[(0x28, 0, 0, 12), (0x15, 0, 1, 0x800), (6, 0, 0, 262_144), (6, 0, 0, 0)];
    let index: &[(u16, u8, u8, u32)] = &[
        (0xb1, 0, 0, 14),
        (0x02, 0, 0, 1),
        (0x60, 0, 0, 1),
        (0x0c, 0, 0, 0),
        (0x48, 0, 0, 16),
        (0x35, 0, 1, 1024),
        (0x16, 0, 0, 0),
        (0x06, 0, 0, 0),
    ];
    let frame = vec![0x45; 80];
    let encode = |program: &[(u16, u8, u8, u32)]| {
        let mut bytes = vec![program.len() as u8];
        for (code, jt, jf, k) in program {
            bytes.extend_from_slice(&code.to_le_bytes());
            bytes.extend_from_slice(&[*jt, *jf]);
            bytes.extend_from_slice(&k.to_le_bytes());
        }
        [bytes, frame.clone()].concat()
    };
    vec![encode(ip), encode(index)]
}

fn packet_seeds() -> Vec<Vec<u8>> {
    let frames = gallery::exhibits().into_iter().map(|(_, frame)| frame);
    let choices = [[1, 0, 0, 0], [1, 0, 3, 0], [1, 0, 0x2a, 0]];
    frames.zip(choices.iter().cycle()).map(|(frame, choice)| [&choice[..], &frame].concat()).collect()
}

/// A graph is refused with a message, or planned: every stage stands behind those that lead to it, and the same graph
/// twice is no more than once.
pub fn graph_text(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let source = GraphText { name: "fuzz", text: &text };
    let plan = match Plan::new(tapline_stages::catalog(), std::slice::from_ref(&source)) {
        Ok(plan) => plan,
        Err(message) => {
            assert!(!message.is_empty(), "an error says nothing");
            return;
        }
    };
    for (index, node) in plan.nodes.iter().enumerate() {
        assert!(
            node.inputs.iter().all(|(from, _)| *from < index),
            "{} stands before what leads to it",
            node.name
        );
    }
    assert!(plan.dot().ends_with("}\n"));
    let twice = Plan::new(tapline_stages::catalog(), &[source.clone(), source])
        .expect("the same graph twice is right as well");
    assert_eq!(plan.nodes.len(), twice.nodes.len(), "the same graph twice is more than once");
}

fn graph_text_seeds() -> Vec<Vec<u8>> {
    let classes = tapline_stages::catalog().classes().iter().map(|class| class.example);
    let texts = classes.chain([
        "a, b :: count; file(x) -> a -> b; a[0] -> [0]drop // end",
        "s :: file(\"a b\"); s -> filter(\"tcp port 80\", fragments=follow) -> cut(l4, 16) -> record(\"o.pcapng\")",
        "/* two */ file(x) -> b :: balance(by=inner, seed=7); b[0] -> top(by=flow, n=3); b[1] -> sample(1/1k, flow)",
    ]);
    texts.map(|text| text.as_bytes().to_vec()).collect()
}

/// A file of rules is refused with an error that stands within the text, or means the same once it is written anew; and
/// each exact rule is found by its own flow.
pub fn rules_text(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let outputs = ["web", "ids", "reflect"].map(str::to_owned);
    let file = match tapline_flow_rules::parse(&text, &outputs) {
        Ok(file) => file,
        Err(error) => {
            assert!(!error.message.is_empty(), "an error says nothing");
            let spans = [error.span, error.also].into_iter().flatten();
            spans.for_each(|span| assert!(span.start <= span.end && span.end <= text.len(), "{span:?}"));
            assert!(error.span.is_some(), "an error without a place: {error}");
            error.render(&text);
            return;
        }
    };
    let written = file.to_string();
    let again = tapline_flow_rules::parse(&written, &outputs);
    let again = again.unwrap_or_else(|error| panic!("{}", error.render(&written)));
    assert_eq!(again.to_string(), written, "the rules mean something else once they are written anew");
    for number in file.exact.numbers() {
        let rule = file.exact.rule(number);
        let flow = tapline_flow_rules::Flow::of(&rule.tuple).expect("ends of one version");
        assert_eq!(file.exact.find(&flow), Some(number), "{rule:?}");
        let back = tapline_flow_rules::Flow::of(&rule.tuple.reversed()).expect("ends of one version");
        assert!(!rule.is_both || file.exact.find(&back) == Some(number), "{rule:?}");
    }
}

fn rules_text_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "filter not port 22 # first\nflow tcp 192.0.2.1:1024 <-> 198.51.100.7:443 => drop\n\
         flow udp [2001:db8::1]:53 -> [2001:db8::2]:4000 => to ids, go on\nflow icmp 192.0.2.1 -> 192.0.2.9 => sample 1/100\n",
        "rule scan: tcp dst portrange 1-1023 and net 10.0.0.0/8 => to ids, go on\nrule: ip => count\r\n\
         rule web: tcp port 80 => sample 3/7, to web, reflect, pass\nsample 1/10\ndefault drop",
        "flow 50 192.0.2.1 -> 192.0.2.2 => drop\nflow 50 192.0.2.2 -> 192.0.2.1 => pass, stop\ndefault to web, reflect\n",
    ];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}

/// Whatever packets are and whenever they come, each belongs to one record or is counted with the reason why not; and
/// every record is exported.
///
/// ```text
/// input := settings 1 { leap 1 | length 1 | link type 1 | bytes }
/// ```
pub fn flows(data: &[u8]) {
    let Some((&choice, mut rest)) = data.split_first() else { return };
    let key = if choice & 1 == 0 { "none" } else { "vlan,mpls,tunnel,tos,interface" };
    let all = "tcp,sizes,gaps,dns,tls,http,application,payload";
    let all_details = DetailFields::parse(all).expect("these are groups");
    let settings = MeterSettings {
        active_ns: 3_000_000_000,
        idle_ns: 1_000_000_000,
        closed_ns: 100_000_000,
        flows_max: if choice & 2 == 0 { 3 } else { 1000 },
        key: KeyFields::parse(key).expect("these are fields"),
        inner: choice & 4 != 0,
        counts_frames: choice & 8 != 0,
        details: if choice & 0x10 == 0 { DetailFields::NONE } else { all_details },
        payload: 40,
    };
    let mut meter = Meter::new(&settings).expect("these are settings");
    let version = [Version::V5, Version::V9, Version::Ipfix][usize::from(choice >> 4) % 3];
    let options = ExportOptions {
        version,
        biflow: version == Version::Ipfix && choice >= 0x80,
        template: if version == Version::Ipfix { format!("default,{all}") } else { String::new() },
        ..ExportOptions::default()
    };
    let mut exporter =
        Exporter::open(&[ExportTarget::Udp("127.0.0.1:9".to_owned())], &options).expect("loopback is there");
    let (mut time, mut packets, mut bytes) = (0_i64, 0, 0);
    let mut ended: Vec<Flow> = Vec::new();
    while let Some((&[leap, len, link], behind)) = rest.split_first_chunk() {
        let (frame, behind) = behind.split_at(behind.len().min(len.into()));
        rest = behind;
        time = match leap {
            255 => i64::MAX,
            254 => i64::MIN,
            leap => time.saturating_add((i64::from(leap) - 30) << 25),
        };
        let link_type =
            [LinkType::ETHERNET, LinkType::RAW, LinkType::LINUX_SLL, LinkType::NULL][usize::from(link) % 4];
        let meta = Meta {
            timestamp: tapline_packet::Timestamp::from_nanos(time),
            wire_len: len.into(),
            ..Meta::default()
        };
        let records = [Record { offset: 0, cap_len: frame.len() as u32, options_len: 0, meta }];
        let mut selection = Selection::none();
        selection.select_all(1);
        meter.push(
            &Batch::new(frame, &records),
            &mut selection,
            &[Interface::new("", link_type)],
            &mut ended,
        );
        while !meter.expire(&mut ended) {}
        packets += 1;
        bytes += u64::from(len);
    }
    while !meter.finish(&mut ended) {}
    let statistics = meter.statistics();
    assert_eq!((statistics.read().packets, statistics.read().bytes), (packets, bytes));
    assert_eq!(ended.iter().map(Flow::packets).sum::<u64>(), statistics.metered.packets);
    assert_eq!(ended.iter().map(Flow::bytes).sum::<u64>(), statistics.flow_bytes);
    assert_eq!((statistics.made, statistics.ended.sum()), (ended.len() as u64, ended.len() as u64));
    let now = meter.clock().unwrap_or_default();
    exporter.export(&ended, now).expect("nothing is written to files");
    exporter.flush(now).expect("nothing is written to files");
    let account = exporter.account();
    assert_eq!(account.packets.written + account.packets.lost, statistics.metered.packets);
    assert_eq!(account.packets.buffered, 0);
}

fn flows_seeds() -> Vec<Vec<u8>> {
    let packet = |frame: &Vec<u8>| {
        let len = frame.len().min(255) as u8;
        [&[40, len, 0], &frame[..len.into()]].concat()
    };
    let frames: Vec<Vec<u8>> = Traffic::new(9).take(60).map(|(_, frame)| frame).collect();
    let mut seeds: Vec<Vec<u8>> =
        gallery::exhibits().iter().map(|(_, frame)| [vec![0x27], packet(frame)].concat()).collect();
    seeds.extend((0..16).map(|choice| {
        let all: Vec<u8> = frames.iter().flat_map(packet).collect();
        [vec![choice * 17], all].concat()
    }));
    seeds
}
