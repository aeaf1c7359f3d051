//! Costs by rate: interrupts, reads, and the breakdown of a packet's cost.
//!
//! On the virtual link the kernel's receiving thread takes the part of the interrupt: it sleeps when the link is empty,
//! and a packet wakes it. Its wake-ups are counted (voluntary switches) and its processor time is its own.

use std::rc::Rc;

use super::rig::{Order, Profiled, Rig, over};
use super::section::{Figure, Findings};
use crate::spread::Spread;
use crate::system::programs::Program;

/// Packets a second; the last but one fills a wire of 100 Mbit/s.
const RATES: [Option<u64>; 6] = [Some(1_000), Some(10_000), Some(50_000), Some(100_000), Some(148_809), None];
/// Rate at which packets of 64 bytes fill 100 Mbit/s.
const WIRE: u64 = 148_809;
/// The paper's filter of 21 instructions, of which our packets pass every test.
const FILTER: &str = "tcp port 10 or 20 or 30 or 40 or 50";
/// Cycles of the kernel and of a program for a packet.
const PACKET: [f64; 2] = [10.0, 1e6];

fn row(rate: Option<u64>) -> String {
    rate.map_or("a flood".to_owned(), |rate| format!("{}/s", tapline_graph::grouped(rate)))
}

/// Each rate as often as runs are repeated, in turns; measured once for all sections.
fn profiles(rig: &mut Rig<'_>) -> anyhow::Result<Rc<[Vec<Profiled>]>> {
    if let Some(known) = &rig.by_rate {
        return Ok(Rc::clone(known));
    }
    let mut all: Vec<Vec<Profiled>> = RATES.iter().map(|_| Vec::new()).collect();
    for round in 0..rig.runs {
        for turn in 0..RATES.len() {
            let at = (turn + round) % RATES.len();
            all[at].push(rig.profile(RATES[at], &[])?);
        }
    }
    Ok(Rc::clone(rig.by_rate.insert(all.into())))
}

/// 4.2.1 and 4.2.2: frames and cycles of an interrupt, by load.
pub(super) fn interrupts(rig: &mut Rig<'_>) -> anyhow::Result<Findings> {
    let all = profiles(rig)?;
    let ghz = rig.ghz;
    let mut found = Findings {
        conditions:
            "the kernel's receiving thread (NAPI) of a virtual link, which a packet wakes, in place of an \
                     interrupt; its processor time with the tap and the copy; TCP packets of 60 bytes."
                .to_owned(),
        ..Findings::default()
    };
    let each = |run: &Profiled| Some(run.grown.kernel_ns as f64 * ghz / (run.grown.received as f64).max(1.0));
    for (rate, runs) in RATES.iter().zip(all.iter()) {
        let frames = over(runs, |run| {
            (run.grown.kernel_wakes > 0).then(|| run.grown.received as f64 / run.grown.kernel_wakes as f64)
        });
        let is_wire = *rate == Some(WIRE);
        let figure = |series, unit, ours, plausible| Figure::new(row(*rate), series, unit, ours, plausible);
        let frames = figure("", "frames an interrupt", frames, [0.5, 1e7]);
        found.figures.push(frames.paper(is_wire.then_some(49.61)));
        // Interrupts, driver, tap, first copy, time stamp: 54 + 1497 + 830 + 540 + 1800.
        let kernel = figure("kernel", "cycles a frame", over(runs, each), PACKET);
        found.figures.push(kernel.paper(is_wire.then_some(4721.0)));
    }
    // At the lowest rate each frame has an interrupt of its own, in a flood nearly none has.
    if let (Some(alone), Some(many)) = (over(&all[0], each), over(&all[RATES.len() - 1], each)) {
        let figure =
            Figure::new("fixed cost", "", "cycles an interrupt", Some(alone.minus(many)), [1.0, 1e6]);
        found.figures.push(figure.difference().paper(2700.0));
    }
    Ok(found)
}

/// 4.3.3: packets and cycles of a read, by rate.
pub(super) fn reads(rig: &mut Rig<'_>) -> anyhow::Result<Findings> {
    let all = profiles(rig)?;
    let mut found = Findings {
        conditions: "`tapline profile -i`: a wait of the program for the kernel's ring (poll), in place of a read call, \
                     which copies nothing; processor time of the waits alone; TCP packets of 60 bytes."
            .to_owned(),
        ..Findings::default()
    };
    for (rate, runs) in RATES.iter().zip(all.iter()) {
        let is_full = rate.is_none();
        let packets = over(runs, |run| run.fact("packets_per_wake_up"));
        let figure = Figure::new(row(*rate), "", "packets a read", packets, [0.01, 1e8]);
        found.figures.push(figure.paper(is_full.then_some(3200.0)));
        let each = over(runs, |run| run.component("wake-up"));
        let figure = Figure::new(row(*rate), "by packet", "cycles a packet", each, [1e-4, 1e5]);
        found.figures.push(figure.paper(is_full.then_some(10.0)));
        let call = over(runs, |run| {
            let waits = run.fact("waits").filter(|waits| *waits > 0.0)?;
            Some(run.component("wake-up")? * run.value["packets"].as_f64()? / waits)
        });
        let figure = Figure::new(row(*rate), "", "cycles a read", call, [100.0, 1e7]);
        found.figures.push(figure.paper(is_full.then_some(33_500.0)));
    }
    Ok(found)
}

/// Sizes with the check sequence, as the paper counts them, and without it; tap, time stamp and first copy of the
/// optimised driver: 560 + 270 + 300 to 9600.
const TAP: [(u32, u32, Option<f64>); 5] = [
    (64, 60, Some(1130.0)),
    (256, 252, None),
    (512, 508, None),
    (1024, 1020, None),
    (1518, 1514, Some(10_430.0)),
];

/// Tap and first copy by size, timed in the kernel.
pub(super) fn tap(rig: &mut Rig<'_>) -> anyhow::Result<Findings> {
    let mut found = Findings {
        conditions: "the interval between two packets of a list at the kernel's tracepoint netif_receive_skb: tap, time \
                     stamp and copy into the ring, and the timing program's own tens of nanoseconds; whole packets, and the \
                     first 68 bytes of them; a flood."
            .to_owned(),
        ..Findings::default()
    };
    let cases: Vec<(usize, u32)> = (0..TAP.len()).flat_map(|at| [(at, 262_144), (at, 68)]).collect();
    let mut costs = vec![Vec::new(); cases.len()];
    for _ in 0..rig.runs {
        for (costs, (at, snap)) in costs.iter_mut().zip(&cases) {
            let order = Order { snap: *snap, ..Order::new(Program::Tapline, TAP[*at].1, None) };
            costs.push(rig.tap(&order)? * rig.ghz);
        }
    }
    for (costs, (at, snap)) in costs.iter().zip(cases) {
        let (shown, _, paper) = TAP[at];
        let series = if snap == 68 { "first 68 bytes" } else { "whole" };
        let ours = Spread::of(costs);
        let figure = Figure::new(format!("{shown} bytes"), series, "cycles a packet", ours, [20.0, 1e5]);
        found.figures.push(figure.paper(paper.filter(|_| snap != 68)));
    }
    Ok(found)
}

/// Options of our run before the optimisation: the filter in the program, interpreted.
const BEFORE: [&str; 2] = ["--interpret", "--no-kernel-filter"];

/// A row of the breakdown: its name, the paper's cycles before and after, ours.
type BreakdownRow = (&'static str, [Option<f64>; 2], fn(&Profiled) -> Option<f64>);

/// The filter is the rest of the paper's totals, the kernel's part what is neither read nor context switch.
const PARTS: [BreakdownRow; 5] = [
    ("filter", [Some(585.0), Some(109.0)], |run| run.component("kernel filter").or(run.component("filter"))),
    ("wake-up (context switch)", [Some(10.0); 2], |run| run.component("wake-up")),
    ("read (second copy)", [Some(364.0); 2], |run| run.component("read")),
    ("count", [None; 2], |run| run.component("count")),
    ("engine", [None; 2], |run| run.component("engine")),
];

/// Figures 6 and 9: the cost of a packet, by component.
pub(super) fn breakdown(rig: &mut Rig<'_>) -> anyhow::Result<Findings> {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for _ in 0..rig.runs {
        before.push(rig.profile(Some(WIRE), &[&BEFORE[..], &[FILTER]].concat())?);
        after.push(rig.profile(Some(WIRE), &[FILTER])?);
    }
    let ghz = rig.ghz;
    let mut found = Findings {
        conditions: format!(
            "`tapline profile -i` at {WIRE} packets of 60 bytes a second, filter of 21 instructions: before, interpreted \
             in the program; after, native code in the kernel. The kernel's part is the processor time of its receiving \
             thread, the others are timed; nothing is subtracted."
        ),
        ..Findings::default()
    };
    let kernel = |run: &Profiled| run.grown.kernel_ns as f64 * ghz / (run.grown.received as f64).max(1.0);
    let total = |run: &Profiled| Some(run.value["facts"]["process"]["cycles"].as_f64()? + kernel(run));
    let unit = "cycles a packet";
    for (at, (series, runs)) in [("before", &before), ("after", &after)].into_iter().enumerate() {
        let mut push = |row: &str, ours: Option<Spread>, theirs: Option<f64>| {
            found.figures.push(Figure::new(row, series, unit, ours, [0.001, 1e6]).paper(theirs));
        };
        let ours = over(runs, |run| Some(kernel(run)));
        push(
            "kernel: interrupt, driver, tap, first copy, time stamp",
            ours,
            [Some(4721.0), Some(2681.0)][at],
        );
        for (row, theirs, ours) in PARTS {
            push(row, over(runs, ours), theirs[at]);
        }
        push("total", over(runs, total), [Some(5680.0), Some(3164.0)][at]);
    }
    Ok(found)
}
