//! Single operations: a call of `poll()`, time stamps, FFPF's Table 1, waking a reader once in N packets, filters.

use std::hint::black_box;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tapline_meters::{StampMode, TaskReport, measure_stamps};
use tapline_sys::usage::{process_time, thread_time};
use tapline_sys::{Poller, Wakeup};

use super::copies;
use super::rig::Rig;
use super::section::{Figure, Findings};
use crate::micro;
use crate::micro::filters::FPL_NAME;
use crate::micro::wake::Pair;
use crate::spread::Spread;

/// Calls in a window.
const CALLS: u32 = 512;
/// A call into the kernel: none takes fewer than 50 cycles, and none that does nothing takes a hundred thousand.
const SYSTEM_CALL: [f64; 2] = [50.0, 100_000.0];

/// The slides' "IRQ and CPU load": a dummy `poll()`.
pub(super) fn poll(rig: &mut Rig<'_>) -> anyhow::Result<Findings> {
    let mut found = Findings {
        conditions: format!(
            "poll() of one descriptor with a timeout of zero: processor time of the thread over {CALLS} calls, once alone \
             and once while as many threads as there are processors compute."
        ),
        ..Findings::default()
    };
    let idle = calls(rig)?;
    let loaded = next_to_load(|| calls(rig))?;
    let paper = [("otherwise idle", idle, 1000.0), ("next to busy threads", loaded, 10_000.0)];
    for (row, ours, theirs) in paper {
        found.figures.push(Figure::new(row, "", "cycles a call", ours, SYSTEM_CALL).paper(theirs));
    }
    Ok(found)
}

/// Runs `work` while all processors are busy.
fn next_to_load<T>(work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    black_box((0..1000_u64).fold(0, |sum, number| black_box(sum ^ number)));
                }
            });
        }
        let result = work();
        is_over.store(true, Ordering::Relaxed);
        result
    })
}

fn calls(rig: &Rig<'_>) -> anyhow::Result<Option<Spread>> {
    let nothing = Wakeup::new()?;
    let mut poller = Poller::new();
    poller.add(nothing.as_fd());
    let mut costs = Vec::new();
    for _ in 0..rig.windows() {
        rig.check()?;
        let before = thread_time();
        for _ in 0..CALLS {
            poller.wait(Duration::ZERO)?;
        }
        let spent = thread_time() - before;
        costs.push(spent.as_nanos() as f64 * rig.ghz / f64::from(CALLS));
    }
    Ok(Spread::of(&costs))
}

/// 4.3.4 and 5.3: a time stamp from the system and one from the processor's counter.
pub(super) fn stamps(rig: &mut Rig<'_>) -> anyhow::Result<Findings> {
    let repeats = if rig.is_quick { 5 } else { 11 };
    let mut costs: Vec<(StampMode, Vec<f64>)> = Vec::new();
    let mut readings = Vec::new();
    for _ in 0..repeats {
        rig.check()?;
        readings.extend(clock_readings(rig.ghz));
        for report in measure_stamps(Duration::from_millis(20)) {
            match costs.iter_mut().find(|(mode, _)| *mode == report.mode) {
                Some((_, all)) => all.push(report.ticks_per_packet),
                None => costs.push((report.mode, vec![report.ticks_per_packet])),
            }
        }
    }
    let unit = "cycles a packet";
    let mut found = Findings {
        conditions:
            "one reading of CLOCK_REALTIME, as the kernel does for each packet; and the modes of `-j`, in \
                     batches of 256 packets."
                .to_owned(),
        ..Findings::default()
    };
    let clock = Figure::new("the system's clock", "", unit, Spread::of(&readings), [5.0, 100_000.0]);
    found.figures.push(clock.paper(1800.0));
    for (mode, all) in costs.iter().filter(|(mode, _)| *mode != StampMode::Kernel) {
        let paper = (*mode == StampMode::Tsc).then_some(270.0);
        let figure = Figure::new(format!("-j {mode}"), "", unit, Spread::of(all), [0.1, 100_000.0]);
        found.figures.push(figure.paper(paper));
    }
    Ok(found)
}

/// Cycles of a reading of the system's clock, from some windows.
fn clock_readings(ghz: f64) -> impl Iterator<Item = f64> {
    (0..9).map(move |_| {
        let before = thread_time();
        for _ in 0..10_000 {
            black_box(tapline_sys::clock::realtime_ns());
        }
        (thread_time() - before).as_nanos() as f64 * ghz / 10_000.0
    })
}

/// FFPF's Table 1, row by row.
pub(super) fn table_1(rig: &mut Rig<'_>) -> anyhow::Result<Findings> {
    rig.show("operations");
    let reports = micro::measure(if rig.is_quick { 51 } else { 501 })?;
    rig.check()?;
    let [index, packet] = copies::store(rig.windows());
    let spread = |report: &TaskReport| Spread {
        value: report.cycles,
        low: report.cycles_p10,
        high: report.cycles_p90,
    };
    let of = |name: &str| reports.iter().find(|report| report.name == name).map(spread);
    let search = |name: &str, bytes: f64| of(name).map(|spread| spread.times(bytes));
    // Least: an operation takes a cycle, but rows 6 and 7 go over 1,500 bytes at 64 a cycle at most.
    let rows = [
        ("1 calling a filter", of("calling a filter, native, a packet a call"), 71.0),
        ("2 a filter stage", of("an empty stage, batches of 1 packet"), 171.0),
        ("3 storing an index entry, cold ring", index, 154.0),
        ("4 storing a packet of 1,500 bytes, cold ring", packet, 7479.0),
        ("5 waking a user process", of("waking a thread, until it runs"), 624.0),
        ("6 Aho-Corasick, 10 patterns, match", of("searching 10 patterns, first match"), 1000.0),
        ("7 the same without match, 1,500 bytes", search("searching 10 patterns, no match", 1500.0), 9900.0),
        ("8 FPL-2 filter, TCP to port 80", of(FPL_NAME), 185.0),
        ("9 BPF filter, TCP to port 80", of("filter tcp80, interpreted"), 740.0),
    ];
    let mut found = Findings {
        conditions: "medians and the middle 80 of 100 runs (rows 3 and 4: the interval of the median); rows 3 and 4 into \
                     a ring that is flushed from the caches, row 4 from a flushed slot; filters in batches of 256 \
                     packets."
            .to_owned(),
        ..Findings::default()
    };
    let unit = "cycles";
    for (row, ours, theirs) in rows {
        found.figures.push(Figure::new(row, "", unit, ours, [0.3, 1e7]).paper(theirs));
    }
    if let (Some(index), Some(packet)) = (index, packet) {
        let ratio = Spread {
            value: packet.value / index.value,
            low: packet.low / index.high,
            high: packet.high / index.low,
        };
        let row = "a packet by an index entry (rows 4 and 3)";
        found.figures.push(Figure::new(row, "", "times", Some(ratio), [1.0, 1000.0]).paper(7479.0 / 154.0));
    }
    if of(FPL_NAME).is_none() {
        found.left_out.push("rows 1 and 8: this build has no native code".to_owned());
    }
    Ok(found)
}

/// Packets of each measurement of waking once in N.
const PACKETS: u32 = 4096;

/// FFPF: waking the reader once in N packets.
pub(super) fn wake(rig: &mut Rig<'_>) -> anyhow::Result<Findings> {
    let pair = Pair::new()?;
    let mut poller = Poller::new();
    let repeats = if rig.is_quick { 7 } else { 21 };
    let mut found = Findings {
        conditions: format!(
            "a thread counts {PACKETS} packets and wakes another one (eventfd, poll) after each N, which sleeps until \
             then and answers; processor time of both threads."
        ),
        ..Findings::default()
    };
    for every in [1, 4, 16, 64, 256, 1024, 4096] {
        rig.check()?;
        rig.show(&format!("once in {every}"));
        let mut costs = Vec::new();
        for _ in 0..repeats {
            let before = process_time();
            for packet in 1..=PACKETS {
                if black_box(packet) % every == 0 {
                    pair.there_and_back(&mut poller)?;
                }
            }
            // There and back are two wake-ups.
            let spent = (process_time() - before) / 2;
            costs.push(spent.as_nanos() as f64 * rig.ghz / f64::from(PACKETS));
        }
        let paper = (every == 1).then_some(624.0);
        let figure =
            Figure::new(format!("N = {every}"), "", "cycles a packet", Spread::of(&costs), [0.01, 1e6]);
        found.figures.push(figure.paper(paper));
    }
    Ok(found)
}

/// Figures 4 and 7: three filters, interpreted and native.
pub(super) fn filters(rig: &mut Rig<'_>) -> anyhow::Result<Findings> {
    rig.show("engines");
    let reports = micro::measure(if rig.is_quick { 51 } else { 501 })?;
    let of = |name: &str| reports.iter().find(|report| report.name == name);
    let mut found = Findings {
        conditions:
            "tapline's interpreter and native code on 256 packets of 64 bytes that go through every test; \
                     `tapline filter bench` has libpcap and the kernel too."
                .to_owned(),
        ..Findings::default()
    };
    for (name, row, speed_up) in [
        ("ip", "IP (3)", Some(3.1)),
        ("tcp5", "5 ports (21)", None),
        ("h10p10", "10 hosts, 10 ports (50)", Some(5.0)),
    ] {
        let interpreted = of(&format!("filter {name}, interpreted"));
        let native = of(&format!("filter {name}, native, a batch a call"));
        for (series, report) in [("interpreted", interpreted), ("native", native)] {
            let ours = report.map(|report| Spread {
                value: report.cycles,
                low: report.cycles_p10,
                high: report.cycles_p90,
            });
            found.figures.push(Figure::new(row, series, "cycles a packet", ours, [0.3, 1e5]));
        }
        let ratio = interpreted.zip(native).map(|(slow, fast)| Spread {
            value: slow.cycles / fast.cycles,
            low: slow.cycles_p10 / fast.cycles_p90,
            high: slow.cycles_p90 / fast.cycles_p10,
        });

        found.figures.push(Figure::new(row, "speed-up", "times", ratio, [0.5, 1000.0]).paper(speed_up));
    }
    Ok(found)
}
