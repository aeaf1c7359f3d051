//! Filter programs: our interpreter against libpcap's `bpf_filter`, the same programs on the same packets.

use crate::Options;
use crate::filters::{FILTERS, Filter};
use crate::measure::Run;
use crate::report::{Report, Series};
use anyhow::{anyhow, ensure};
use clap::Args;
use std::time::{Duration, Instant};
use tapline_filter::bpf::{Insn, Program};
use tapline_packet::{BATCH_MAX, Batch, Meta, Packet, Record, Selection};
use tapline_sys::usage::CpuTime;
use tapline_testkit::libpcap::{Libpcap, Oracle, Settings};
use tapline_testkit::traffic::Traffic;

/// The number by which libpcap knows Ethernet.
const DLT_EN10MB: i32 = 1;

#[derive(Clone, Debug, Args)]
pub(crate) struct FilterArgs {
    /// Different packets, gone through over and over.
    #[arg(long, default_value_t = 4096)]
    packets: usize,
    /// How long one run takes, in milliseconds.
    #[arg(long, default_value_t = 200)]
    time_ms: u64,
}

impl Default for FilterArgs {
    fn default() -> FilterArgs {
        FilterArgs { packets: 4096, time_ms: 200 }
    }
}

pub(crate) fn run(args: &FilterArgs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let libpcap = match Libpcap::get() {
        Ok(libpcap) => libpcap,
        Err(reason) => {
            eprintln!("filter: left out: {reason}");
            return Ok(());
        }
    };
    let frames: Vec<Vec<u8>> = Traffic::new(1).take(args.packets).map(|(_, frame)| frame).collect();
    let pool = Pool::new(&frames);
    let time = Duration::from_millis(args.time_ms);
    for filter in FILTERS.iter().filter(|filter| !filter.text.is_empty()) {
        let mut series = Series::new(format!("filter/{}", filter.name), &["interpreter", "bpf_filter"], None);
        let oracle = libpcap.compile(filter.text, Settings::new(DLT_EN10MB)).map_err(|e| anyhow!(e))?;
        let program = same_program(&oracle)?;
        let verdict = |frame: &[u8]| oracle.run(libpcap, frame, frame.len() as u32);
        ensure_equal(filter, &frames, &program, verdict)?;
        let ours = || run_batches(&program, &pool);
        let theirs = || frames.iter().filter(|frame| verdict(frame) != 0).count();
        series.interleave(options.runs, |peer| {
            Ok(if peer == 0 { spin(frames.len(), time, ours) } else { spin(frames.len(), time, theirs) })
        })?;
        report.add(&series)?;
    }
    Ok(())
}

fn same_program(oracle: &Oracle) -> anyhow::Result<Program> {
    let insns = oracle.insns().iter().map(|raw| Insn { code: raw.code, jt: raw.jt, jf: raw.jf, k: raw.k });
    Ok(Program::new(insns.collect())?)
}

/// Frames as a source lends them: one stretch of bytes and a table.
struct Pool {
    base: Vec<u8>,
    records: Vec<Record>,
}

impl Pool {
    fn new(frames: &[Vec<u8>]) -> Pool {
        let mut offset = 0;
        let record = |frame: &Vec<u8>| {
            let cap_len = frame.len() as u32;
            let meta = Meta { wire_len: cap_len, ..Meta::default() };
            let record = Record { offset, cap_len, options_len: 0, meta };
            offset += frame.len();
            record
        };
        Pool { records: frames.iter().map(record).collect(), base: frames.concat() }
    }

    fn batches(&self) -> impl Iterator<Item = Batch<'_>> {
        self.records.chunks(BATCH_MAX).map(|records| Batch::new(&self.base, records))
    }
}

/// Filters all batches. Gives the number of accepted packets.
fn run_batches(program: &Program, pool: &Pool) -> usize {
    let mut selection = Selection::none();
    let accepted = |batch: Batch<'_>| {
        selection.select_all(batch.len());
        program.select(&batch, &mut selection);
        selection.len()
    };
    pool.batches().map(accepted).sum()
}

fn ensure_equal(
    filter: &Filter,
    frames: &[Vec<u8>],
    program: &Program,
    verdict: impl Fn(&[u8]) -> u32,
) -> anyhow::Result<()> {
    for frame in frames {
        let meta = Meta { wire_len: frame.len() as u32, ..Meta::default() };
        let ours = program.run(Packet { data: frame, meta: &meta });
        ensure!(ours == verdict(frame), "filter {}: the engines differ on {frame:02x?}", filter.name);
    }
    Ok(())
}

/// Does `round`, which filters `packets` packets, over and over for `time`.
fn spin(packets: usize, time: Duration, round: impl Fn() -> usize) -> Run {
    let (start, before) = (Instant::now(), CpuTime::of_thread());
    let mut done = 0;
    while start.elapsed() < time {
        std::hint::black_box(round());
        done += packets as u64;
    }
    Run { cpu: CpuTime::of_thread().since(before).total(), wall: start.elapsed(), packets: done, lost: 0 }
}
