//! The shared ring: the cost of storing a packet once, of indexing it for a reader, and of reading it.
//!
//! ```text
//! Bench { writer, N readers } for N = 0, 1, 2, 4, 8, 16, in turns
//!   timed      batches stored, indexed for each reader, published
//!   not timed  readers read all, and their packets are checked: count, bytes, account
//! ```
//!
//! Readers are read by the same thread, between timed stretches, so no reader waits and the index never fills: the
//! figure is the writer's work, with indices and records gone from its first caches as if others had read them. A run's
//! figure is the mean of all its batches, those that change a block and those during which another process had the
//! processor too. Runs are so short that most have none of the latter, and the median over runs is reported. FFPF's
//! figures are those of its Table 1, on the machine of its time.

use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use tapline_meters::Clock;
use tapline_packet::{BATCH_MAX, Batch, LinkType, Meta, Record, Selection, Timestamp};
use tapline_ring::{BufferSpec, Policy, Reader, ReaderId, ReaderSpec, Writer};

use tapline_measure::runs::{RATIOS, judge, median};
use tapline_measure::spread::Spread;

/// Batches of a run, at least: a millisecond or two, and 16 blocks of the smallest packets.
const BATCHES: usize = 512;
/// Runs for each that was asked for.
const RUNS: usize = 32;
const READERS: [usize; 6] = [0, 1, 2, 4, 8, 16];
/// The writer's cost with 16 readers, by that with 1.
const GOAL: f64 = 1.3;
const FFPF_STORE: f64 = 7479.0;
const FFPF_INDEX: f64 = 154.0;

/// Measurements of this part.
#[derive(Clone, Debug, Args)]
pub(crate) struct RingArgs {
    /// Bytes of a packet.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_values_t = [60, 1514])]
    sizes: Vec<usize>,
    /// Each reader wants one packet in N, others than its neighbour.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 8])]
    wanted: Vec<usize>,
    /// MiB of the buffer: a power of two, 4 or more.
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    buffer: u32,
    /// Entries of each index: a power of two.
    #[arg(long, value_name = "N", default_value_t = 1 << 16)]
    entries: u32,
}

impl Default for RingArgs {
    fn default() -> RingArgs {
        RingArgs { sizes: vec![60, 1514], wanted: vec![1, 8], buffer: 64, entries: 1 << 16 }
    }
}

/// Measures all and prints the result.
pub(crate) fn run(args: &RingArgs, runs: usize) -> anyhow::Result<()> {
    for &size in &args.sizes {
        for &share in &args.wanted {
            let mut benches = Vec::new();
            for readers in READERS {
                benches.push(Bench::new(args, size, share.max(1), readers, Policy::Lossy)?);
            }
            measure(&mut benches, runs)?;
            tell(size, share, &benches);
        }
        tell_reading(args, size, runs)?;
    }
    Ok(())
}

/// All in turns, and each time another one first.
fn measure(benches: &mut [Bench], runs: usize) -> anyhow::Result<()> {
    for round in 0..runs.max(1) * RUNS + 1 {
        for turn in 0..benches.len() {
            let at = (turn + round) % benches.len();
            benches[at].measure(round > 0)?;
        }
    }
    Ok(())
}

fn tell(size: usize, share: usize, benches: &[Bench]) {
    let costs: Vec<f64> = benches.iter().map(|bench| median(bench.costs.iter().copied())).collect();
    println!("{size} bytes, each reader wants 1 packet of {share}: cycles a packet, writer");
    for (bench, cost) in benches.iter().zip(&costs) {
        let ratio = if bench.readers.is_empty() {
            String::new()
        } else {
            format!("{:.2} of 1 reader", cost / costs[1])
        };
        println!("  {:>2} readers {cost:>8.1}  {ratio}", bench.readers.len());
    }
    let last = benches.len() - 1;
    let entries = benches[last].readers.len() as f64 / share as f64;
    println!("  store {:.1} (FFPF {FFPF_STORE})", costs[0]);
    println!("  index {} (FFPF {FFPF_INDEX})", index_cost(&benches[0].costs, &benches[last].costs, entries));
    let ratio = costs[last] / costs[1];
    println!("  goal {GOAL}: {}", judge(ratio, RATIOS, |ratio| ratio <= GOAL));
}

/// Cost of an index entry: a difference of two medians, with the sum of their intervals as its error.
fn index_cost(without: &[f64], with: &[f64], entries: f64) -> String {
    match (Spread::of(without), Spread::of(with)) {
        (Some(without), Some(with)) => with.minus(without).times(1.0 / entries).difference("cycles an entry"),
        _ => "not measured".to_owned(),
    }
}

fn tell_reading(args: &RingArgs, size: usize, runs: usize) -> anyhow::Result<()> {
    // Half of the buffer is the most that there is.
    let leased = Policy::Leased { bytes: u64::from(args.buffer) << 19, time: Duration::from_secs(3600) };
    let mut benches = [Bench::new(args, size, 1, 1, Policy::Lossy)?, Bench::new(args, size, 1, 1, leased)?];
    measure(&mut benches, runs)?;
    for (name, bench) in ["copied out", "in place"].iter().zip(&benches) {
        let cost = median(bench.read_costs.iter().copied());
        println!("  reader, {name}: {cost:.1} cycles a packet");
    }
    Ok(())
}

/// A writer with its readers, and packets.
struct Bench {
    writer: Writer,
    readers: Vec<(ReaderId, Reader, Selection)>,
    base: Vec<u8>,
    records: Vec<Record>,
    /// Batches between two readings: they fit half of the buffer.
    batches: usize,
    policy: Policy,
    /// Cost of each run, for each packet.
    costs: Vec<f64>,
    read_costs: Vec<f64>,
}

impl Bench {
    fn new(
        args: &RingArgs,
        size: usize,
        share: usize,
        readers: usize,
        policy: Policy,
    ) -> anyhow::Result<Bench> {
        let spec = BufferSpec { blocks: args.buffer, ..BufferSpec::new(LinkType::ETHERNET) };
        let mut writer = Writer::create(&spec, Timestamp::EPOCH)?;
        let mut all = Vec::new();
        for number in 0..readers {
            let attachment = writer.attach(&ReaderSpec { policy, entries: args.entries })?;
            let mut wanted = Selection::none();
            wanted.select_all(BATCH_MAX);
            wanted.retain(|index| (index + number) % share == 0);
            all.push((attachment.id, Reader::open(attachment.parts)?, wanted));
        }
        let meta = |index: usize| Meta {
            timestamp: Timestamp::from_nanos(index as i64),
            wire_len: size as u32,
            ..Meta::default()
        };
        let records = (0..BATCH_MAX)
            .map(|index| Record {
                offset: index * size,
                cap_len: size as u32,
                options_len: 0,
                meta: meta(index),
            })
            .collect();
        let base = (0..BATCH_MAX * size).map(|at| (at / size) as u8).collect();
        let room = (args.buffer as usize) << 19;
        let batches = (room / (BATCH_MAX * (size.next_multiple_of(64) + 64)))
            .clamp(1, (args.entries as usize / 2 / BATCH_MAX).max(1));
        Ok(Bench {
            writer,
            readers: all,
            base,
            records,
            batches,
            policy,
            costs: Vec::new(),
            read_costs: Vec::new(),
        })
    }

    /// One run.
    fn measure(&mut self, counts: bool) -> anyhow::Result<()> {
        let clock = Clock::get();
        let mut all = Selection::none();
        all.select_all(BATCH_MAX);
        let (mut ticks, mut read_ticks) = (0, 0);
        let (mut written, mut read) = (0, 0);
        while written < BATCHES * BATCH_MAX {
            let batch = Batch::new(&self.base, &self.records);
            let before = clock.now();
            for _ in 0..self.batches {
                self.writer.store(&batch, &all);
                for (id, _, wanted) in &self.readers {
                    self.writer.index(*id, wanted, 1)?;
                }
                self.writer.publish(0);
            }
            ticks += clock.now().wrapping_sub(before);
            written += self.batches * BATCH_MAX;
            let before = clock.now();
            read += self.read()?;
            read_ticks += clock.now().wrapping_sub(before);
        }
        if counts {
            self.costs.push(ticks as f64 / written as f64);
            self.read_costs.push(read_ticks as f64 / read.max(1) as f64);
        }
        Ok(())
    }

    /// Reads what there is, and checks it.
    fn read(&mut self) -> anyhow::Result<u64> {
        let mut read = 0;
        for (id, reader, wanted) in &mut self.readers {
            let mut sum = 0;
            while reader.advance()? > 0 {
                let is_in_place = matches!(self.policy, Policy::Leased { .. });
                ensure!(reader.is_in_place() == is_in_place, "it reads otherwise than it was to");
                sum += reader
                    .batch()
                    .iter()
                    .map(|packet| u64::from(*packet.data.last().unwrap_or(&0)))
                    .sum::<u64>();
            }
            let account = self.writer.account(*id)?;
            let expected = self.batches as u64 * wanted.iter().map(|index| index as u64).sum::<u64>();
            let is_right = account.balances() && account.lost.total() == 0 && sum == expected;
            ensure!(is_right, "{account}: last bytes add up to {sum}, not {expected}");
            read += (self.batches * wanted.len()) as u64;
        }
        Ok(read)
    }
}
