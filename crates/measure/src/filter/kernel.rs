//! The kernel's JIT, through its own test runs: a filter as an XDP program, run many times on one packet after the other.
//!
//! ```text
//! main:    r6 = r1; 32 times: r1 = r6, call filter; exit
//! filter:  the program, as it would be attached
//! ```
//!
//! The kernel's loop looks at the clock and at signals in each round, which takes longer than a short filter; so each round runs the filter
//! 32 times. What the loop and the calls cost is measured with a filter that does nothing, and taken off. What is left knows perfect
//! branches and caches: the same packet passes thousands of times. So it is the kernel's best case.

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

/// Reference besides libpcap's interpreter.
pub(crate) const KERNEL: &str = "kernel's JIT, libpcap's program";

/// Size of the sample: each packet takes thousands of runs.
const SAMPLE: usize = 64;

/// Calls of the filter in one run of the loaded program.
const CALLS: usize = 32;

/// Rough time of a round of the kernel's loop, with its calls.
const ROUND_NS: u128 = 200;

/// The index of the loopback interface in every namespace.
const LOOPBACK: u32 = 1;

const XDP: Hook = Hook::Xdp { matched: XdpAction::Pass, unmatched: XdpAction::Drop };

/// A filter and the empty program, both loaded.
pub(crate) struct Kernel {
    name: &'static str,
    program: Ready,
    empty: Ready,
}

/// A program that test runs find in the kernel's table of XDP programs: otherwise the kernel changes the table for each run, and waits for all
/// processors, twice. It is attached to the loopback interface of a namespace without any traffic.
struct Ready {
    program: LoadedProgram,
    /// `None` where there may be no namespace: runs are slow to begin then.
    _place: Option<(XdpLink, NetNs)>,
}

impl Ready {
    fn new(program: LoadedProgram) -> Ready {
        let attach = || {
            let nowhere = NetNs::unnamed().ok()?;
            let link = nowhere.run(|| XdpLink::attach(&program, LOOPBACK, XdpMode::Generic)).ok()?.ok()?;
            Some((link, nowhere))
        };
        let place = attach();
        Ready { program, _place: place }
    }
}

impl Kernel {
    /// libpcap's program, instruction by instruction; none where programs may not be loaded.
    pub(crate) fn of_libpcap(oracle: &LibpcapProgram) -> anyhow::Result<Option<Box<dyn Engine>>> {
        let program = bpf::Program::new(oracle.insns().to_vec())?;
        Ok(Kernel::load(KERNEL, &CompiledFilter::from(program).unoptimised_values()))
    }

    /// Our program, with all passes.
    pub(crate) fn of_ours(filter: &CompiledFilter) -> Option<Box<dyn Engine>> {
        Kernel::load("kernel's JIT, our program", filter.values())
    }

    fn load(name: &'static str, ir: &Ir) -> Option<Box<dyn Engine>> {
        let load = |ir: &Ir| {
            let emitted = emit(ir, XDP).ok()?;
            LoadedProgram::load(ProgramKind::Xdp, "tapline_bench", &repeated(emitted.insns()))
                .ok()
                .map(Ready::new)
        };
        Some(Box::new(Kernel { name, program: load(ir)?, empty: load(&Ir::constant(1))? }))
    }

    /// Nanoseconds that `repeat` rounds on a packet take.
    fn time(ready: &Ready, frame: &[u8], repeat: u32) -> anyhow::Result<f64> {
        let before = thread_time();
        ready.program.test_run(frame, repeat).context("running a program in the kernel")?;
        Ok(thread_time().saturating_sub(before).as_nanos() as f64)
    }
}

/// A program that calls another one [`CALLS`] times with its own context, and ends as the last call did.
fn repeated(filter: &[Insn]) -> Vec<Insn> {
    let main = 2 * CALLS + 2;
    let calls = (0..CALLS).flat_map(|call| {
        let behind = 2 * call + 3;
        [Insn::copy(R1, CONTEXT), Insn::call_local((main - behind) as i32)]
    });
    let start = [Insn::copy(CONTEXT, R1)];
    let end = [Insn::EXIT];
    start.into_iter().chain(calls).chain(end).chain(filter.iter().copied()).collect()
}

impl Engine for Kernel {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_above_empty(&self) -> bool {
        true
    }

    fn verdicts(&mut self, packets: &Packets) -> anyhow::Result<Vec<bool>> {
        let run = |frame| Ok(self.program.program.test_run(frame, 1)?.value == XdpAction::PASS);
        packets.frames().map(run).collect()
    }

    fn measure(&mut self, packets: &Packets, time: Duration) -> anyhow::Result<Cost> {
        let sample: Vec<&[u8]> = packets.frames().step_by(packets.len().div_ceil(SAMPLE)).collect();
        // There are two programs.
        let repeat = (time.as_nanos() / sample.len() as u128 / (2 * ROUND_NS)).clamp(20, 1_000_000) as u32;
        // Both run right after each other, so that what disturbs one disturbs the other; what still differs much is left out by the median.
        let mut above_empty = Vec::with_capacity(sample.len());
        for frame in sample {
            let with = Kernel::time(&self.program, frame, repeat)?;
            let without = Kernel::time(&self.empty, frame, repeat)?;
            above_empty.push((with - without) / (f64::from(repeat) * CALLS as f64));
        }
        above_empty.sort_by(f64::total_cmp);
        let kept = &above_empty[above_empty.len() / 8..above_empty.len() - above_empty.len() / 8];
        Ok(Cost { ns: (kept.iter().sum::<f64>() / kept.len() as f64).max(0.0) })
    }
}
