//! FPL programs: native code compared with C that does the same, and with the interpreters.
//!
//! ```text
//! program --compile--> Ir --+--> native code, a batch a call         c/fpl.c --cc -O2--> a child that loops over the same packets
//!                           +--> interpreter of values               (simple alone: the same filter as classic BPF, interpreted)
//! ```
//!
//! Before anything is measured, all must accept as many packets and leave the same memory. The goal: within 1.3 times
//! the C.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use clap::Args;
use tapline_filter::{HandleKind, Options};
use tapline_fpl::{FplOptions, compile, report};
use tapline_ir::CompiledFilter;
use tapline_ir::optimise::optimise;
use tapline_ir::{Ir, Machine, Memory};
use tapline_packet::LinkType;
use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Tcp, Udp, flags};
use tapline_testkit::traffic::Traffic;

use tapline_measure::filter::engines::{select_all, spin};
use tapline_measure::filter::packets::Packets;
use tapline_measure::runs::{RATIOS, judge, median};

/// Different packets of each workload: their bytes fit the second cache.
const PACKETS: usize = 4096;
/// Our time by that of the C code, at most.
const GOAL: f64 = 1.3;
const C_SOURCE: &str = include_str!("../c/fpl.c");

/// Measurements of this part.
#[derive(Clone, Debug, Args)]
pub(crate) struct FplArgs {
    /// Length of each run of an engine, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 100)]
    time_ms: u64,
}

impl Default for FplArgs {
    fn default() -> FplArgs {
        FplArgs { time_ms: 100 }
    }
}

/// A program, and the traffic that it is for.
struct Workload {
    name: &'static str,
    text: &'static str,
    /// The equivalent in the filter language.
    filter: Option<&'static str>,
    frames: fn() -> Vec<Vec<u8>>,
}

const WORKLOADS: &[Workload] = &[
    Workload {
        name: "simple",
        text: include_str!("../../../filter/fpl/programs/simple.fpl"),
        filter: Some("ip and tcp dst port 80"),
        frames: small_network,
    },
    Workload {
        name: "count-flows",
        text: include_str!("../../../filter/fpl/programs/count-flows.fpl"),
        filter: None,
        frames: small_network,
    },
    Workload {
        name: "rtsp",
        text: include_str!("../../../filter/fpl/programs/rtsp.fpl"),
        filter: None,
        frames: streaming,
    },
];

/// Measures all and prints the result.
pub(crate) fn run(args: &FplArgs, runs: usize, folder: &Path) -> anyhow::Result<()> {
    let peer = c_peer(folder)?;
    if peer.is_none() {
        println!("no C compiler (cc): the peer in C is left out");
    }
    for workload in WORKLOADS {
        let packets = Packets::new(workload.name.to_owned(), &(workload.frames)());
        let mut engines = engines(workload, &packets, peer.as_deref(), folder)?;
        let time = Duration::from_millis(args.time_ms);
        let mut costs: Vec<Vec<f64>> = vec![Vec::new(); engines.len()];
        for round in 0..runs.max(1) {
            for turn in 0..engines.len() {
                let at = (turn + round) % engines.len();
                costs[at].push(engines[at].measure(&packets, time)?);
            }
        }
        tell(workload, &packets, &engines, &costs);
    }
    Ok(())
}

fn tell(workload: &Workload, packets: &Packets, engines: &[Engine], costs: &[Vec<f64>]) {
    println!("{}, {} packets", workload.name, packets.len());
    let medians: Vec<f64> = costs.iter().map(|costs| median(costs.iter().copied())).collect();
    for (engine, ns) in engines.iter().zip(&medians) {
        let share = medians[0] / ns;
        let goal = match &engine.kind {
            Kind::C { .. } => format!("  (goal {GOAL}: {})", judge(share, RATIOS, |share| share <= GOAL)),
            _ => String::new(),
        };
        println!("  {:<32} {ns:>8.2} ns/packet  native is {share:.2} of it{goal}", engine.name());
    }
}

/// An engine at work on one program.
struct Engine {
    kind: Kind,
}

enum Kind {
    Native(tapline_jit::Native, Memory),
    C { peer: PathBuf, program: &'static str, packets: PathBuf },
    Values(Box<Machine>, Memory),
    Bpf(CompiledFilter),
}

/// Answer on which all engines must agree: packets accepted in the first pass, and the memory after it.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    accepted: usize,
    digest: u64,
}

fn engines(
    workload: &Workload,
    packets: &Packets,
    peer: Option<&Path>,
    folder: &Path,
) -> anyhow::Result<Vec<Engine>> {
    let compiled = compile(workload.text, &FplOptions::default())
        .map_err(|error| anyhow!(report(&error, workload.text)))?;
    let mut kinds = Vec::new();
    // Each engine is compiled for itself: functions have a state.
    let ir = optimised(workload)?;
    let memory = Memory::new(ir.cells);
    match tapline_jit::Native::compile(&ir) {
        Ok(native) => kinds.push(Kind::Native(native, memory)),
        Err(tapline_jit::Error::NotBuilt) => {}
        Err(error) => return Err(error.into()),
    }
    if let Some(peer) = peer {
        let path = folder.join(workload.name);
        fs::write(&path, stored(packets))?;
        kinds.push(Kind::C { peer: peer.to_owned(), program: workload.name, packets: path });
    }
    kinds.push(Kind::Values(Box::new(Machine::new(optimised(workload)?)), Memory::new(compiled.ir.cells)));
    if let Some(filter) = workload.filter {
        let options =
            Options { netmask: Some(0), handle: HandleKind::Dead, ..Options::new(LinkType::ETHERNET) };
        let program =
            tapline_filter::compile(filter, &options).map_err(|error| anyhow!(error.render(filter)))?;
        kinds.push(Kind::Bpf(program));
    }
    let mut engines: Vec<Engine> = kinds.into_iter().map(|kind| Engine { kind }).collect();
    let mut expected: Option<Answer> = None;
    for engine in &mut engines {
        let found = engine.answer(packets)?;
        let expected = expected.get_or_insert(Answer { ..found });
        // Classic BPF has no memory, and this filter's program leaves it as it was.
        ensure!(
            found == *expected,
            "{}, {}: {found:?}, others have {expected:?}",
            workload.name,
            engine.name()
        );
    }
    Ok(engines)
}

fn optimised(workload: &Workload) -> anyhow::Result<Ir> {
    let compiled = compile(workload.text, &FplOptions::default())
        .map_err(|error| anyhow!(report(&error, workload.text)))?;
    let mut ir = compiled.ir;
    optimise(&mut ir);
    Ok(ir)
}

impl Engine {
    fn name(&self) -> &'static str {
        match &self.kind {
            Kind::Native(..) => "native, a batch a call",
            Kind::C { .. } => "C, cc -O2, a batch a call",
            Kind::Values(..) => "interpreter of values",
            Kind::Bpf(_) => "classic BPF, interpreted",
        }
    }

    fn answer(&mut self, packets: &Packets) -> anyhow::Result<Answer> {
        Ok(match &mut self.kind {
            Kind::Native(native, memory) => {
                let accepted = select_all(packets, |batch, all| native.select(batch, memory, all));
                Answer { accepted, digest: digest(memory) }
            }
            Kind::C { peer, program, packets } => ask(peer, program, packets, 0)?.1,
            Kind::Values(machine, memory) => {
                let accepted = select_all(packets, |batch, all| machine.select(batch, memory, all));
                Answer { accepted, digest: digest(memory) }
            }
            Kind::Bpf(program) => Answer {
                accepted: select_all(packets, |batch, all| program.program().select(batch, all)),
                digest: 0,
            },
        })
    }

    /// Nanoseconds of processor time for a packet.
    fn measure(&mut self, packets: &Packets, time: Duration) -> anyhow::Result<f64> {
        Ok(match &mut self.kind {
            Kind::Native(native, memory) => {
                spin(packets.len(), time, || {
                    select_all(packets, |batch, all| native.select(batch, memory, all))
                })
                .ns
            }
            Kind::C { peer, program, packets } => ask(peer, program, packets, time.as_millis() as u64)?.0,
            Kind::Values(machine, memory) => {
                spin(packets.len(), time, || {
                    select_all(packets, |batch, all| machine.select(batch, memory, all))
                })
                .ns
            }
            Kind::Bpf(program) => {
                spin(packets.len(), time, || {
                    select_all(packets, |batch, all| program.program().select(batch, all))
                })
                .ns
            }
        })
    }
}

/// As the program in C computes it.
fn digest(memory: &Memory) -> u64 {
    let cells = 0..memory.len() as u64;
    cells.fold(0, |sum, cell| sum.wrapping_add(memory.get(cell).wrapping_mul(2 * cell + 1)))
}

/// The program in C, compiled; `None` without a compiler.
fn c_peer(folder: &Path) -> anyhow::Result<Option<PathBuf>> {
    let (source, program) = (folder.join("fpl.c"), folder.join("fpl"));
    fs::write(&source, C_SOURCE)?;
    let output = match Command::new("cc").arg("-O2").arg("-o").arg(&program).arg(&source).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        output => output.context("starting cc")?,
    };
    ensure!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    Ok(Some(program))
}

/// Runs the program in C: nanoseconds a packet, and its answer.
fn ask(peer: &Path, program: &str, packets: &Path, time_ms: u64) -> anyhow::Result<(f64, Answer)> {
    let output = Command::new(peer).arg(program).arg(packets).arg(time_ms.to_string()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "the program in C: {}", String::from_utf8_lossy(&output.stderr));
    let words: Vec<&str> = text.split_whitespace().collect();
    let [ns, accepted, digest] = words[..] else { return Err(anyhow!("the program in C says: {text}")) };
    Ok((ns.parse()?, Answer { accepted: accepted.parse()?, digest: digest.parse()? }))
}

/// Packets as the program in C reads them.
fn stored(packets: &Packets) -> Vec<u8> {
    let one = |frame: &[u8]| [&(frame.len() as u32).to_ne_bytes(), frame].concat();
    packets.frames().flat_map(one).collect()
}

/// The traffic of a small network.
fn small_network() -> Vec<Vec<u8>> {
    Traffic::new(1).take(PACKETS).map(|(_, frame)| frame).collect()
}

/// Packets with sessions of RTSP that agree on ports, and the media that they then send: 1 packet in 128 is of a
/// session, 1 in 4 media.
fn streaming() -> Vec<Vec<u8>> {
    let number = |at: usize| 5000 + 2 * (at / 128 % 8) as u16;
    let mut frames = small_network();
    for (at, frame) in frames.iter_mut().enumerate() {
        if at % 128 == 0 {
            *frame = session(number(at));
        } else if at % 4 == 1 {
            *frame = media(number(at), at as u16);
        }
    }
    frames
}

fn ends() -> IpPair {
    IpPair::between(&Host::number(1), &Host::number(2), IpVersion::V4)
}

fn session(port: u16) -> Vec<u8> {
    let text = format!(
        "RTSP/1.0 200 OK\r\nCSeq: 3\r\nTransport: RTP/AVP;unicast;client_port={port}-{}\r\n\r\n",
        port + 1
    );
    let tcp = Tcp { src: 554, dst: 40_000, flags: flags::PSH | flags::ACK, ..Tcp::default() };
    Ethernet { dst: [2; 6], src: [4; 6] }.ip(&tcp.packet(ends(), text.as_bytes()))
}

fn media(port: u16, number: u16) -> Vec<u8> {
    let payload = [&[0x80, 0x60], &number.to_be_bytes()[..], &[0; 168]].concat();
    Ethernet { dst: [2; 6], src: [4; 6] }.ip(&Udp { src: 7000, dst: port }.packet(ends(), &payload))
}
