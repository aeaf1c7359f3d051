//! What a packet costs: libpcap's interpreter, ours, and native code, one packet a call and a batch a call.
//!
//! ```text
//! cargo run --release -p tapline-jit --example engines [-- ROUNDS]
//! ```
//!
//! Frames of 64 bytes that go through the whole filter and match at its end. Nanoseconds of processor time a packet, the median of rounds in
//! which the engines take turns.

use std::hint::black_box;
use std::time::{Duration, Instant};

use tapline_filter::bpf::Program;
use tapline_filter::ir::{Ir, Memory, raise_program};
use tapline_filter::optimise::optimise;
use tapline_filter::{Options, compile};
use tapline_jit::Native;
use tapline_packet::{Batch, Meta, Packet, Record, Selection};
use tapline_sys::usage::CpuTime;
use tapline_testkit::libpcap::{Libpcap, Oracle, Settings};

const FILTERS: [(&str, &str); 6] = [
    ("ip", "ip"),
    ("udp", "udp"),
    ("tcp80", "tcp port 80"),
    ("srcdst", "src host 1.1.1.1 and dst host 2.2.2.2"),
    ("tcp5", "tcp port 10 or 20 or 30 or 40 or 50"),
    (
        "h10p10",
        "ip host (1.1.1.1 or 2.2.2.2 or 3.3.3.3 or 4.4.4.4 or 5.5.5.5 or 6.6.6.6 or 7.7.7.7 or 8.8.8.8 or 9.9.9.9 or \
         10.10.10.10) and tcp port (10 or 20 or 30 or 40 or 50 or 60 or 70 or 80 or 90 or 100)",
    ),
];

/// A frame that a filter accepts at its end: last entries of lists, destination side.
fn frame(name: &str) -> Vec<u8> {
    let mut frame = vec![0_u8; 64];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[23] = if name == "udp" { 17 } else { 6 };
    let (source, destination) = match name {
        "srcdst" => ([1, 1, 1, 1], [2, 2, 2, 2]),
        _ => ([192, 0, 2, 1], [10, 10, 10, 10]),
    };
    frame[26..30].copy_from_slice(&source);
    frame[30..34].copy_from_slice(&destination);
    let port = match name {
        "tcp5" => 50_u16,
        "tcp80" => 80,
        _ => 100,
    };
    frame[34..36].copy_from_slice(&40_000_u16.to_be_bytes());
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame
}

struct Frames {
    base: Vec<u8>,
    records: Vec<Record>,
}

impl Frames {
    fn new(frame: &[u8], count: usize) -> Frames {
        let meta = Meta { wire_len: frame.len() as u32, ..Meta::default() };
        let record = |at: usize| Record {
            offset: at * frame.len(),
            cap_len: frame.len() as u32,
            options_len: 0,
            meta,
        };
        Frames { base: frame.repeat(count), records: (0..count).map(record).collect() }
    }

    fn batch(&self) -> Batch<'_> {
        Batch::new(&self.base, &self.records)
    }
}

/// Nanoseconds a packet of `round`, which goes over `packets` packets.
fn measure(packets: usize, mut round: impl FnMut() -> usize) -> f64 {
    let (start, before) = (Instant::now(), CpuTime::of_thread());
    let mut done = 0;
    while start.elapsed() < Duration::from_millis(4) {
        for _ in 0..16 {
            black_box(round());
        }
        done += 16 * packets;
    }
    CpuTime::of_thread().since(before).total().as_nanos() as f64 / done as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

struct Engines<'a> {
    pcap: &'a Libpcap,
    oracle: Oracle,
    program: Program,
    plain: Native,
    native: Native,
}

impl Engines<'_> {
    fn rows(&self, frames: &Frames, rounds: usize) -> [f64; 6] {
        let batch = frames.batch();
        let packets: Vec<Packet<'_>> = batch.iter().collect();
        let memory = Memory::new(0);
        let mut selection = Selection::none();
        let mut rows: [Vec<f64>; 6] = Default::default();
        let oracle =
            |packet: &&Packet<'_>| self.oracle.run(self.pcap, packet.data, packet.meta.wire_len) != 0;
        for _ in 0..rounds {
            rows[0].push(measure(packets.len(), || packets.iter().filter(oracle).count()));
            rows[1].push(measure(packets.len(), || {
                selection.select_all(batch.len());
                self.program.select(&batch, &mut selection);
                selection.len()
            }));
            for (row, native) in [(2, &self.plain), (4, &self.native)] {
                let accepts = |packet: &&Packet<'_>| native.run(**packet, &memory) != 0;
                rows[row].push(measure(packets.len(), || packets.iter().filter(accepts).count()));
                rows[row + 1].push(measure(packets.len(), || {
                    selection.select_all(batch.len());
                    native.select(&batch, &memory, &mut selection);
                    selection.len()
                }));
            }
        }
        rows.map(median)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds = std::env::args().nth(1).map_or(Ok(21), |text| text.parse())?;
    let pcap = Libpcap::get()?;
    println!(
        "filter  libpcap  program |  raised: one  batch | optimised: one  batch   libpcap/batch  compile ms  bytes"
    );
    for (name, text) in FILTERS {
        let program = compile(text, &Options::default())?;
        let plain = raise_program(&program);
        let mut ir = plain.clone();
        optimise(&mut ir);
        let times = (0..21).map(|_| compile_ms(&ir)).collect();
        let native = Native::compile(&ir)?;
        let bytes = native.code().len();
        let oracle = pcap.compile(text, Settings::new(1))?;
        let engines = Engines { pcap, oracle, program, plain: Native::compile(&plain)?, native };
        let frames = Frames::new(&frame(name), 256);
        let accepted = frames.batch().iter().all(|packet| engines.native.run(packet, &Memory::new(0)) != 0);
        assert!(accepted, "{name}: the frame is made to match");
        let [libpcap, program, one, batch, one_fast, batch_fast] = engines.rows(&frames, rounds);
        println!(
            "{name:7} {libpcap:7.2}  {program:7.2} | {one:12.2} {batch:6.2} | {one_fast:14.2} {batch_fast:6.2} {:15.1} {:11.3} {bytes:6}",
            libpcap / batch_fast,
            median(times),
        );
    }
    Ok(())
}

fn compile_ms(ir: &Ir) -> f64 {
    let start = Instant::now();
    black_box(Native::compile(ir).expect("compiles"));
    start.elapsed().as_secs_f64() * 1e3
}
