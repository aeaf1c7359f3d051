//! The engines that run a compiled filter, and how they are timed.

use std::hint::black_box;
use std::time::{Duration, Instant};

use tapline_arena::libpcap::{Libpcap, LibpcapProgram};
use tapline_bpf::PacketFilter;
use tapline_ir::CompiledFilter;
use tapline_packet::Selection;
use tapline_sys::usage::thread_time;

use super::Subject;
use super::kernel::KernelJit;
use super::packets::Packets;

/// Cost per packet.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// CPU time of the thread, in nanoseconds.
    pub ns: f64,
}

/// An engine with one filter loaded: an interpreter, native code, or the kernel's JIT.
pub(crate) trait Engine {
    /// Name in reports.
    fn name(&self) -> &'static str;

    /// Whether [`measure`](Engine::measure) has subtracted the cost of the empty filter (loop and calls) already.
    fn excludes_overhead(&self) -> bool {
        false
    }

    /// For each packet, in order: whether the filter accepts it.
    fn verdicts(&mut self, packets: &Packets) -> anyhow::Result<Vec<bool>>;

    /// Filters the packets over and over for about `time`; gives the mean cost of a packet.
    fn measure(&mut self, packets: &Packets, time: Duration) -> anyhow::Result<Cost>;
}

/// Name of libpcap's interpreter in reports: the reference of the column `times faster`.
pub(crate) const LIBPCAP: &str = "libpcap, interpreted";

/// All engines that this machine can run, with the filter loaded; those of libpcap's program first.
pub(crate) fn all(subject: &Subject) -> anyhow::Result<Vec<Box<dyn Engine + '_>>> {
    let mut engines: Vec<Box<dyn Engine + '_>> = Vec::new();
    if let (Some(oracle), Ok(libpcap)) = (&subject.theirs, Libpcap::get()) {
        engines.push(Box::new(LibpcapInterpreter { oracle, libpcap }));
        engines.extend(KernelJit::of_libpcap(oracle)?);
    }
    engines.extend(KernelJit::of_ours(&subject.ours));
    engines.push(Box::new(TaplineInterpreter { program: &subject.ours }));
    engines.extend(super::native::engines(subject)?);
    Ok(engines)
}

/// libpcap's `bpf_filter()`, one call per packet.
struct LibpcapInterpreter<'a> {
    oracle: &'a LibpcapProgram,
    libpcap: &'static Libpcap,
}

impl Engine for LibpcapInterpreter<'_> {
    fn name(&self) -> &'static str {
        LIBPCAP
    }

    fn verdicts(&mut self, packets: &Packets) -> anyhow::Result<Vec<bool>> {
        let accepts = |frame: &[u8]| self.oracle.run(self.libpcap, frame, frame.len() as u32) != 0;
        Ok(packets.frames().map(accepts).collect())
    }

    fn measure(&mut self, packets: &Packets, time: Duration) -> anyhow::Result<Cost> {
        let round = || {
            let accepts = |packet: tapline_packet::Packet<'_>| {
                self.oracle.run(self.libpcap, packet.data, packet.meta.wire_len) != 0
            };
            packets.batches().map(|batch| batch.iter().filter(|packet| accepts(*packet)).count()).sum()
        };
        Ok(spin(packets.len(), time, round))
    }
}

/// Tapline's interpreter of classic BPF, one call per batch.
struct TaplineInterpreter<'a> {
    program: &'a CompiledFilter,
}

impl Engine for TaplineInterpreter<'_> {
    fn name(&self) -> &'static str {
        "ours, interpreted"
    }

    fn verdicts(&mut self, packets: &Packets) -> anyhow::Result<Vec<bool>> {
        Ok(verdicts(packets, |batch, selection| self.program.select(batch, selection)))
    }

    fn measure(&mut self, packets: &Packets, time: Duration) -> anyhow::Result<Cost> {
        Ok(spin(packets.len(), time, || select_all(packets, |batch, all| self.program.select(batch, all))))
    }
}

/// For each packet: whether `select` leaves it in the selection of its batch.
pub fn verdicts(
    packets: &Packets,
    mut select: impl FnMut(&tapline_packet::Batch<'_>, &mut Selection),
) -> Vec<bool> {
    let mut verdicts = Vec::with_capacity(packets.len());
    for batch in packets.batches() {
        let mut selection = Selection::none();
        selection.select_all(batch.len());
        select(&batch, &mut selection);
        let start = verdicts.len();
        verdicts.resize(start + batch.len(), false);
        selection.iter().for_each(|index| verdicts[start + index] = true);
    }
    verdicts
}

/// Calls `select` once on each batch, with all packets selected; gives the number of packets that stay selected.
pub fn select_all(
    packets: &Packets,
    mut select: impl FnMut(&tapline_packet::Batch<'_>, &mut Selection),
) -> usize {
    let mut selection = Selection::none();
    let mut accepted = 0;
    for batch in packets.batches() {
        selection.select_all(batch.len());
        select(&batch, &mut selection);
        accepted += selection.len();
    }
    accepted
}

/// The clock is read about this often while an engine is timed: reading it each round would count as filter time.
const CLOCK_INTERVAL: Duration = Duration::from_micros(200);

/// Repeats `round` for about `time`, after one round of warm-up; gives the CPU time per packet. A round filters all
/// `packets` packets once.
pub fn spin(packets: usize, time: Duration, mut round: impl FnMut() -> usize) -> Cost {
    let warm_up = Instant::now();
    black_box(round());
    let rounds = (CLOCK_INTERVAL.as_nanos() / warm_up.elapsed().as_nanos().max(1)).max(1);
    let (start, before) = (Instant::now(), thread_time());
    let mut filtered = 0_u64;
    while start.elapsed() < time {
        for _ in 0..rounds {
            black_box(round());
        }
        filtered += rounds as u64 * packets as u64;
    }
    let cpu = thread_time().saturating_sub(before);
    Cost { ns: cpu.as_nanos() as f64 / filtered as f64 }
}
