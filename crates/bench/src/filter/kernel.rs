//! The kernel's JIT, through its own test runs: a filter as an XDP program, run many times on one packet after the other.
//!
//! The kernel's loop around the program is measured with a program that does nothing, and taken off. What is left knows perfect branches: the
//! same packet passes thousands of times. So it is the kernel's best case.

use std::time::Duration;

use anyhow::Context;
use tapline_filter::bpf;
use tapline_filter::ebpf::{Hook, XdpAction, emit};
use tapline_filter::ir::{Ir, raise_program};
use tapline_filter::optimise::optimise;
use tapline_sys::bpf::{Insn, Program, ProgramKind};
use tapline_sys::usage::thread_time;
use tapline_testkit::libpcap::Oracle;

use super::engines::{Cost, Engine};
use super::packets::Packets;

/// So many packets stand for all: each takes thousands of runs.
const SAMPLE: usize = 64;

const XDP: Hook = Hook::Xdp { matched: XdpAction::Pass, unmatched: XdpAction::Drop };

/// A filter and the empty program, both loaded.
pub(crate) struct Kernel {
    name: &'static str,
    program: Program,
    empty: Program,
}

impl Kernel {
    /// libpcap's program, instruction by instruction; none where programs may not be loaded.
    pub(crate) fn of_libpcap(oracle: &Oracle) -> anyhow::Result<Option<Box<dyn Engine>>> {
        let insns =
            oracle.insns().iter().map(|raw| bpf::Insn { code: raw.code, jt: raw.jt, jf: raw.jf, k: raw.k });
        let program = bpf::Program::new(insns.collect())?;
        Ok(Kernel::load("kernel's JIT, libpcap's program", &raise_program(&program)))
    }

    /// Our program, with all passes.
    pub(crate) fn of_ours(program: &bpf::Program) -> Option<Box<dyn Engine>> {
        let mut ir = raise_program(program);
        optimise(&mut ir);
        Kernel::load("kernel's JIT, our program", &ir)
    }

    fn load(name: &'static str, ir: &Ir) -> Option<Box<dyn Engine>> {
        let load = |ir: &Ir| {
            let emitted = emit(ir, XDP).ok()?;
            let insns: Vec<Insn> = emitted.insns().iter().map(to_kernel).collect();
            Program::load(ProgramKind::Xdp, "tapline_bench", &insns).ok()
        };
        Some(Box::new(Kernel { name, program: load(ir)?, empty: load(&Ir::constant(1))? }))
    }

    /// Nanoseconds that `repeat` runs on a packet take.
    fn time(program: &Program, frame: &[u8], repeat: u32) -> anyhow::Result<f64> {
        let before = thread_time();
        program.test_run(frame, repeat).context("running a program in the kernel")?;
        Ok(thread_time().saturating_sub(before).as_nanos() as f64)
    }
}

fn to_kernel(insn: &tapline_filter::ebpf::Insn) -> Insn {
    let tapline_filter::ebpf::Insn { code, offset, immediate, .. } = *insn;
    Insn { code, registers: insn.registers(), offset, immediate }
}

impl Engine for Kernel {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_above_empty(&self) -> bool {
        true
    }

    fn verdicts(&mut self, packets: &Packets) -> anyhow::Result<Vec<bool>> {
        let run = |frame| Ok(self.program.test_run(frame, 1)?.value == XdpAction::PASS);
        packets.frames().map(run).collect()
    }

    fn measure(&mut self, packets: &Packets, time: Duration) -> anyhow::Result<Cost> {
        let sample: Vec<&[u8]> = packets.frames().step_by(packets.len().div_ceil(SAMPLE)).collect();
        // A run with the kernel's loop takes some 30 ns, and there are two programs.
        let repeat = (time.as_nanos() / sample.len() as u128 / 60).clamp(100, 1_000_000) as u32;
        // Both run right after each other, so that what disturbs one disturbs the other; what still differs much is left out by the median.
        let mut above_empty = Vec::with_capacity(sample.len());
        for frame in sample {
            let with = Kernel::time(&self.program, frame, repeat)?;
            let without = Kernel::time(&self.empty, frame, repeat)?;
            above_empty.push((with - without) / f64::from(repeat));
        }
        above_empty.sort_by(f64::total_cmp);
        let kept = &above_empty[above_empty.len() / 8..above_empty.len() - above_empty.len() / 8];
        Ok(Cost { ns: (kept.iter().sum::<f64>() / kept.len() as f64).max(0.0) })
    }
}
