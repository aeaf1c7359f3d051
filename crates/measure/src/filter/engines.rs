//! The engines: each runs one filter over packets and says what that costs.

use std::hint::black_box;
use std::time::{Duration, Instant};

use tapline_arena::libpcap::{Libpcap, LibpcapProgram};
use tapline_bpf::PacketFilter;
use tapline_ir::CompiledFilter;
use tapline_packet::Selection;
use tapline_sys::usage::thread_time;

use super::Subject;
use super::kernel::Kernel;
use super::packets::Packets;

/// Cost of one packet.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Nanoseconds of processor time.
    pub ns: f64,
}

/// A way to run a filter.
pub(crate) trait Engine {
    /// Name in reports.
    fn name(&self) -> &'static str;

    /// Whether what it costs to run the empty filter is taken off already.
    fn is_above_empty(&self) -> bool {
        false
    }

    /// Which packets it accepts.
    fn verdicts(&mut self, packets: &Packets) -> anyhow::Result<Vec<bool>>;

    /// Cost of a packet, measured for about `time`.
    fn measure(&mut self, packets: &Packets, time: Duration) -> anyhow::Result<Cost>;
}

/// libpcap's interpreter: what the others are compared with.
pub(crate) const LIBPCAP: &str = "libpcap, interpreted";

/// All engines of this machine, libpcap's first.
pub(crate) fn all(subject: &Subject) -> anyhow::Result<Vec<Box<dyn Engine + '_>>> {
    let mut engines: Vec<Box<dyn Engine + '_>> = Vec::new();
    if let (Some(oracle), Ok(libpcap)) = (&subject.theirs, Libpcap::get()) {
        engines.push(Box::new(Bpf { oracle, libpcap }));
        engines.extend(Kernel::of_libpcap(oracle)?);
    }
    engines.extend(Kernel::of_ours(&subject.ours));
    engines.push(Box::new(Interpreter { program: &subject.ours }));
    engines.extend(super::native::engines(subject)?);
    Ok(engines)
}

/// `bpf_filter` of libpcap, one packet a call.
struct Bpf<'a> {
    oracle: &'a LibpcapProgram,
    libpcap: &'static Libpcap,
}

impl Engine for Bpf<'_> {
    fn name(&self) -> &'static str {
        LIBPCAP
    }

    fn verdicts(&mut self, packets: &Packets) -> anyhow::Result<Vec<bool>> {
        let accepts = |frame: &[u8]| self.oracle.run(self.libpcap, frame, frame.len() as u32) != 0;
        Ok(packets.frames().map(accepts).collect())
    }

    fn measure(&mut self, packets: &Packets, time: Duration) -> anyhow::Result<Cost> {
        let round = || {
            let one = |packet: tapline_packet::Packet<'_>| {
                self.oracle.run(self.libpcap, packet.data, packet.meta.wire_len) != 0
            };
            packets.batches().map(|batch| batch.iter().filter(|packet| one(*packet)).count()).sum()
        };
        Ok(spin(packets.len(), time, round))
    }
}

/// Our interpreter, a batch a call.
struct Interpreter<'a> {
    program: &'a CompiledFilter,
}

impl Engine for Interpreter<'_> {
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

/// The verdicts of an engine that selects from batches.
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

/// Filters all batches once. Gives the number of accepted packets.
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

/// Rounds between two looks at the clock are as many as take so long.
const BETWEEN_LOOKS: Duration = Duration::from_micros(200);

/// Does `round`, which filters `packets` packets, over and over for `time`.
pub fn spin(packets: usize, time: Duration, mut round: impl FnMut() -> usize) -> Cost {
    let warm_up = Instant::now();
    black_box(round());
    let rounds = (BETWEEN_LOOKS.as_nanos() / warm_up.elapsed().as_nanos().max(1)).max(1);
    let (start, before) = (Instant::now(), thread_time());
    let mut done = 0_u64;
    while start.elapsed() < time {
        for _ in 0..rounds {
            black_box(round());
        }
        done += rounds as u64 * packets as u64;
    }
    let cpu = thread_time().saturating_sub(before);
    Cost { ns: cpu.as_nanos() as f64 / done as f64 }
}
