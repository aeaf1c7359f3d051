//! The kernel's eBPF JIT: the filter is loaded as an XDP program, and `BPF_PROG_TEST_RUN` runs it many times on each
//! packet of a sample.
//!
//! ```text
//! main:    r6 = r1; 32 times: { r1 = r6; call filter }; exit
//! filter:  the eBPF that a capture would attach
//! ```
//!
//! In each round of a test run the kernel reads the clock and checks for signals, which takes longer than a short
//! filter; so one round calls the filter 32 times. The cost of the rounds and calls themselves is measured with a
//! filter that accepts everything, and subtracted. The result is the kernel's best case: the same packet comes
//! thousands of times, so branches are predicted and the packet is in the L1 cache.

use std::time::Duration;

use anyhow::Context;
use tapline_arena::libpcap::LibpcapProgram;
use tapline_bpf as bpf;
use tapline_bpf::ebpf::{CONTEXT, Insn, R1};
use tapline_ebpf::{Hook, XdpAction, emit};
use tapline_ir::{CompiledFilter, Ir};
use tapline_sys::NetNs;
use tapline_sys::bpf::{LoadedProgram, ProgramKind, XdpLink, XdpMode};
use tapline_sys::usage::thread_time;

use super::engines::{Cost, Engine};
use super::packets::Packets;

/// Name in reports: the reference of the column `than the kernel's`.
pub(crate) const KERNEL_LIBPCAP: &str = "kernel's JIT, libpcap's program";

/// The most packets that are measured: each takes thousands of runs.
const SAMPLE: usize = 64;

/// Calls of the filter in one round (one run of the loaded program).
const CALLS: usize = 32;

/// Estimated duration of a round, in nanoseconds: sets how many rounds fit the requested time.
const ROUND_NS: u128 = 200;

/// ifindex of `lo`: 1 in every network namespace.
const LOOPBACK_INDEX: u32 = 1;

const XDP: Hook = Hook::Xdp { matched: XdpAction::Pass, unmatched: XdpAction::Drop };

/// The filter and the empty filter, both loaded and attached.
pub(crate) struct KernelJit {
    name: &'static str,
    program: AttachedProgram,
    empty: AttachedProgram,
}

/// A loaded program, attached to `lo` of an empty network namespace, where it sees no traffic. Being attached keeps it
/// in the kernel's dispatcher table of XDP programs. A test run of a program outside that table adds it and removes it
/// again, and waits for all CPUs each time.
struct AttachedProgram {
    program: LoadedProgram,
    /// `None` where no namespace can be made: each test run then starts slowly.
    _attachment: Option<(XdpLink, NetNs)>,
}

impl AttachedProgram {
    fn new(program: LoadedProgram) -> AttachedProgram {
        let attach = || {
            let namespace = NetNs::unnamed().ok()?;
            let link =
                namespace.run(|| XdpLink::attach(&program, LOOPBACK_INDEX, XdpMode::Generic)).ok()?.ok()?;
            Some((link, namespace))
        };
        let attachment = attach();
        AttachedProgram { program, _attachment: attachment }
    }
}

impl KernelJit {
    /// libpcap's program, translated to eBPF without Tapline's optimisation; `None` where eBPF may not be loaded.
    pub(crate) fn of_libpcap(oracle: &LibpcapProgram) -> anyhow::Result<Option<Box<dyn Engine>>> {
        let program = bpf::Program::new(oracle.insns().to_vec())?;
        Ok(KernelJit::load(KERNEL_LIBPCAP, &CompiledFilter::from(program).unoptimised_values()))
    }

    /// Tapline's program, optimised; `None` where eBPF may not be loaded.
    pub(crate) fn of_ours(filter: &CompiledFilter) -> Option<Box<dyn Engine>> {
        KernelJit::load("kernel's JIT, our program", filter.values())
    }

    fn load(name: &'static str, ir: &Ir) -> Option<Box<dyn Engine>> {
        let load = |ir: &Ir| {
            let emitted = emit(ir, XDP).ok()?;
            LoadedProgram::load(ProgramKind::Xdp, "tapline_bench", &repeated(emitted.insns()))
                .ok()
                .map(AttachedProgram::new)
        };
        Some(Box::new(KernelJit { name, program: load(ir)?, empty: load(&Ir::constant(1))? }))
    }

    /// CPU time of `repeat` rounds on one packet, in nanoseconds.
    fn time(attached: &AttachedProgram, frame: &[u8], repeat: u32) -> anyhow::Result<f64> {
        let before = thread_time();
        attached.program.test_run(frame, repeat).context("running a program in the kernel")?;
        Ok(thread_time().saturating_sub(before).as_nanos() as f64)
    }
}

/// The program `main` of the picture above: calls `filter` [`CALLS`] times with its packet, and returns the value of
/// the last call.
fn repeated(filter: &[Insn]) -> Vec<Insn> {
    let main_len = 2 * CALLS + 2;
    let calls = (0..CALLS).flat_map(|call| {
        // A call counts its offset from the instruction after it.
        let next = 2 * call + 3;
        [Insn::copy(R1, CONTEXT), Insn::call_local((main_len - next) as i32)]
    });
    let start = [Insn::copy(CONTEXT, R1)];
    let end = [Insn::EXIT];
    start.into_iter().chain(calls).chain(end).chain(filter.iter().copied()).collect()
}

impl Engine for KernelJit {
    fn name(&self) -> &'static str {
        self.name
    }

    fn excludes_overhead(&self) -> bool {
        true
    }

    fn verdicts(&mut self, packets: &Packets) -> anyhow::Result<Vec<bool>> {
        let run = |frame| Ok(self.program.program.test_run(frame, 1)?.value == XdpAction::PASS);
        packets.frames().map(run).collect()
    }

    fn measure(&mut self, packets: &Packets, time: Duration) -> anyhow::Result<Cost> {
        let sample: Vec<&[u8]> = packets.frames().step_by(packets.len().div_ceil(SAMPLE)).collect();
        // Half of the time for the filter, half for the empty filter.
        let repeat = (time.as_nanos() / sample.len() as u128 / (2 * ROUND_NS)).clamp(20, 1_000_000) as u32;
        // The two programs run one right after the other, so that a disturbance meets both. The lowest and the highest
        // eighth of the differences are dropped; the mean of the rest is the cost.
        let mut above_empty = Vec::with_capacity(sample.len());
        for frame in sample {
            let with = KernelJit::time(&self.program, frame, repeat)?;
            let without = KernelJit::time(&self.empty, frame, repeat)?;
            above_empty.push((with - without) / (f64::from(repeat) * CALLS as f64));
        }
        above_empty.sort_by(f64::total_cmp);
        let kept = &above_empty[above_empty.len() / 8..above_empty.len() - above_empty.len() / 8];
        Ok(Cost { ns: (kept.iter().sum::<f64>() / kept.len() as f64).max(0.0) })
    }
}
