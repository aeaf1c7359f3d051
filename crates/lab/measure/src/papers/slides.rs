//! The slides on PF_RING: share captured by size, polling, one busy processor, capture and flows.

use anyhow::Result;

use super::rig::{Order, Rig, over};
use super::section::{Figure, Findings};
use super::winpcap::{present, runs_of};
use crate::system::programs::Program;
use crate::system::trial::TrialOutcome;

/// Sizes with the check sequence, as the slides count them, and without it.
const SIZES: [(u32, u32); 3] = [(64, 60), (512, 508), (1500, 1496)];
const PERCENT: [f64; 2] = [0.0, 100.0];
/// Packets a second: 1.5e8 of 64 bytes fill 100 Gbit/s, which no processor takes alone here.
const RATE: [f64; 2] = [100.0, 1.5e8];

fn share(run: &TrialOutcome) -> Option<f64> {
    Some(run.share() * 100.0)
}

fn rate(run: &TrialOutcome) -> Option<f64> {
    Some(run.captured_rate())
}

/// Packets in a second of the receiving core's time: the rate of a core that does nothing else.
fn core_rate(run: &TrialOutcome) -> Option<f64> {
    (run.received > 0).then(|| 1e9 / run.cost_ns())
}
const CORE_RATE: &str = "packets in a second of the core's time";

/// Floods of each size for each program; `figure` makes the figures of a program's runs.
fn floods(
    rig: &mut Rig<'_>,
    found: &mut Findings,
    programs: &[Program],
    figures: impl Fn(usize, Program, &[TrialOutcome]) -> Vec<Figure>,
) -> Result<()> {
    let programs = present(found, programs);
    for (at, (_, size)) in SIZES.iter().enumerate() {
        let orders: Vec<Order<'_>> =
            programs.iter().map(|&program| Order::new(program, *size, None)).collect();
        for (program, runs) in programs.iter().zip(rig.trials(&orders)?) {
            let runs = runs_of(found, *program, runs);
            found.figures.extend(figures(at, *program, &runs));
        }
    }
    Ok(())
}

fn row(at: usize) -> String {
    format!("{} bytes", SIZES[at].0)
}

/// Share captured by size.
pub(super) fn share_captured(rig: &mut Rig<'_>) -> Result<Findings> {
    let mut found = Findings {
        conditions:
            "as fast as the generator can send over a virtual link; kernel's part and program on one core."
                .to_owned(),
        ..Findings::default()
    };
    let programs = [Program::Libpcap, Program::Tapline, Program::TaplineXdp];
    // Linux 2.6.1 with libpcap, with mmap, with PF_RING.
    let theirs = [[2.5, 1.1, 34.3], [14.9, 11.7, 93.5], [75.7, 47.0, 92.9]];
    floods(rig, &mut found, &programs, |at, program, runs| {
        let which = programs.iter().position(|known| *known == program).unwrap_or(0);
        let figure = Figure::new(row(at), program.name(), "% captured", over(runs, share), PERCENT);
        let core = Figure::new(row(at), program.name(), CORE_RATE, over(runs, core_rate), RATE);
        vec![figure.paper(theirs[which][at]), core]
    })?;
    Ok(found)
}

/// Polling against interrupts.
pub(super) fn polling(rig: &mut Rig<'_>) -> Result<Findings> {
    let mut found = Findings {
        conditions: "AF_XDP, which waits for the kernel's receiving thread or polls the driver itself (--busy-poll); as \
                     fast as the generator can send."
            .to_owned(),
        ..Findings::default()
    };
    // Linux with NAPI and libpcap, FreeBSD with polling.
    let theirs = [[2.5, 1.1, 34.3], [97.3, 47.3, 56.1]];
    floods(rig, &mut found, &[Program::TaplineXdp, Program::TaplineBusyPoll], |at, program, runs| {
        let (which, series) = match program {
            Program::TaplineBusyPoll => (1, "polling"),
            _ => (0, "interrupts"),
        };
        let figure = |unit, ours, plausible| Figure::new(row(at), series, unit, ours, plausible);
        vec![
            figure("% captured", over(runs, share), PERCENT).paper(theirs[which][at]),
            figure("packets a second", over(runs, rate), RATE),
            figure(CORE_RATE, over(runs, core_rate), RATE),
        ]
    })?;
    Ok(found)
}

/// One processor at its limit, the others idle.
pub(super) fn processors(rig: &mut Rig<'_>) -> Result<Findings> {
    let cores = rig.arena()?.cores;
    let mut found = Findings {
        conditions: format!(
            "packets of 60 bytes as fast as the generator can send; it runs on processor {}, the kernel's part and the \
             program on processor {}; load of all work of the machine, also of others.",
            cores.sender, cores.receiver
        ),
        ..Findings::default()
    };
    let programs = present(&mut found, &[Program::Tapline, Program::TaplineBusyPoll]);
    let orders: Vec<Order<'_>> = programs.iter().map(|&program| Order::new(program, 60, None)).collect();
    for (program, runs) in programs.iter().zip(rig.trials(&orders)?) {
        let runs = runs_of(&mut found, *program, runs);
        // One polling processor of a dual Xeon; PF_RING without it.
        let (theirs, load) = match program {
            Program::TaplineBusyPoll => (1.1e6, [100.0, 0.0]),
            _ => (650_000.0, [f64::NAN; 2]),
        };
        let name = program.name();
        found.figures.push(Figure::new("captured", name, "packets a second", over(&runs, rate), RATE));
        let core = Figure::new("captured", name, CORE_RATE, over(&runs, core_rate), RATE);
        found.figures.push(core.paper(theirs));
        let processors = runs.first().map_or(0, |run| run.busy.len());
        for processor in 0..processors {
            let role = match processor {
                at if at == cores.receiver => "receives",
                at if at == cores.sender => "sends",
                _ => "idle",
            };
            let ours = over(&runs, |run| Some(run.busy.get(processor)? * 100.0));
            let theirs = if processor == cores.receiver { load[0] } else { load[1] };
            let row = format!("processor {processor} ({role})");
            let figure = Figure::new(row, name, "% busy", ours, PERCENT);
            let is_known = theirs.is_finite() && processor != cores.sender;
            found.figures.push(figure.paper(is_known.then_some(theirs)));
        }
    }
    Ok(found)
}

/// Capture and flows by size.
pub(super) fn flows(rig: &mut Rig<'_>) -> Result<Findings> {
    let mut found = Findings {
        conditions: "as fast as the generator can send, 100 conversations; kernel's part and program on one core; flows \
                     are kept in a table and exported when they end. Rates fall where others use the core; the core's \
                     own time does not."
            .to_owned(),
        ..Findings::default()
    };
    // softflowd exports to a port of this machine.
    if let Err(error) = rig.arena()?.namespace().ip(&["link", "set", "lo", "up"]) {
        found.left_out.push(format!("softflowd: {error}"));
    }
    let programs =
        [Program::Tapline, Program::TaplineProbe, Program::TaplineRun, Program::Softflowd, Program::Nfpcapd];
    let capture = [550_789.0, 213_548.0, 81_616.0];
    let nprobe = [376_453.0, 213_548.0, 81_616.0];
    floods(rig, &mut found, &programs, |at, program, runs| {
        let theirs = if program == Program::Tapline { capture[at] } else { nprobe[at] };
        let series = if program == Program::Tapline { "capture" } else { program.name() };
        let paper = matches!(program, Program::Tapline | Program::TaplineProbe).then_some(theirs);
        vec![
            Figure::new(row(at), series, "packets a second", over(runs, rate), RATE),
            Figure::new(row(at), series, CORE_RATE, over(runs, core_rate), RATE).paper(paper),
        ]
    })?;
    Ok(found)
}
