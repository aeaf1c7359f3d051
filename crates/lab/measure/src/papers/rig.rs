//! Means of the sections: the virtual link, made when the first one needs it; runs on it; the amount of work.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tapline_arena::netns::FAR;

use crate::spread::Spread;
use crate::system::arena::{Arena, Counters};
use crate::system::programs::{CaptureOrder, Program};
use crate::system::trial::{self, Load, Receiver, Running, TrialOutcome};
use crate::tap_timer::TapTimer;

/// Bytes of a program's ring, where nothing else is said.
pub(super) const RING: u64 = 32 << 20;

/// Means of measuring, lent to each section.
pub(super) struct Rig<'a> {
    arena: Option<Arena>,
    tapline: PathBuf,
    pub(super) folder: &'a Path,
    /// Repeats of each run on the link.
    pub(super) runs: usize,
    pub(super) is_quick: bool,
    /// Profiles by rate, which two sections are about.
    pub(super) by_rate: Option<Rc<[Vec<Profiled>]>>,
    /// Ticks of the time stamp counter in a nanosecond.
    pub(super) ghz: f64,
    is_over: &'a (dyn Fn() -> bool + Sync),
    progress: &'a dyn Fn(&str),
}

/// A run on the link.
#[derive(Clone, Debug)]
pub(super) struct Order<'o> {
    pub(super) program: Program,
    pub(super) size: u32,
    /// Packets a second; `None` is as fast as it goes.
    pub(super) rate: Option<u64>,
    pub(super) snap: u32,
    pub(super) filter: &'o str,
    pub(super) store: Option<&'o Path>,
    pub(super) ring: u64,
}

impl Order<'_> {
    /// A program that discards whole packets of one size.
    pub(super) fn new(program: Program, size: u32, rate: Option<u64>) -> Order<'static> {
        Order { program, size, rate, snap: 262_144, filter: "", store: None, ring: RING }
    }
}

/// A run of `tapline profile` on the link.
pub(super) struct Profiled {
    /// The output, as JSON.
    pub(super) value: Value,
    /// Growth of the link's counters.
    pub(super) grown: Counters,
}

impl Profiled {
    /// Cycles a packet of a component.
    pub(super) fn component(&self, name: &str) -> Option<f64> {
        let parts = self.value["components"].as_array()?;
        parts.iter().find(|part| part["name"] == name)?["cycles"].as_f64()
    }

    /// A fact of the run.
    pub(super) fn fact(&self, name: &str) -> Option<f64> {
        self.value["facts"][name].as_f64()
    }
}

impl<'a> Rig<'a> {
    pub(super) fn new(
        folder: &'a Path,
        (is_quick, runs): (bool, Option<usize>),
        is_over: &'a (dyn Fn() -> bool + Sync),
        progress: &'a dyn Fn(&str),
    ) -> Result<Rig<'a>> {
        Ok(Rig {
            arena: None,
            tapline: std::env::current_exe()?,
            folder,
            runs: runs.unwrap_or(if is_quick { 2 } else { 7 }),
            is_quick,
            by_rate: None,
            ghz: tapline_sys::tsc::frequency(Duration::from_millis(50)) / 1e9,
            is_over,
            progress,
        })
    }

    /// Length of a run on the link.
    pub(super) fn time(&self) -> Duration {
        Duration::from_millis(if self.is_quick { 300 } else { 1000 })
    }

    /// Repeats of a measurement that takes microseconds.
    pub(super) fn windows(&self) -> usize {
        if self.is_quick { 101 } else { 501 }
    }

    pub(super) fn arena(&mut self) -> Result<&mut Arena> {
        let arena = match self.arena.take() {
            Some(arena) => arena,
            None => Arena::new().context(
                "making a network namespace with a virtual link (it takes root: sudo tapline bench papers)",
            )?,
        };
        Ok(self.arena.insert(arena))
    }

    /// Shows what is being measured.
    pub(super) fn show(&self, what: &str) {
        (self.progress)(what);
    }

    /// Whether a signal ended the bench.
    pub(super) fn check(&self) -> Result<()> {
        ensure!(!(self.is_over)(), "it was ended");
        Ok(())
    }

    /// One run of a program on the link.
    pub(super) fn trial(&mut self, order: &Order<'_>) -> Result<TrialOutcome> {
        self.check()?;
        self.show(&format!("{}, {} bytes", order.program.name(), order.size));
        let capture = CaptureOrder {
            interface: FAR,
            snap: order.snap,
            filter: order.filter,
            store: order.store,
            buffer: order.ring,
        };
        let receiver = Receiver::new(order.program, &self.tapline, &capture);
        let (size, tapline, time) = (order.size.to_string(), self.tapline.clone(), self.time());
        let load = Load {
            traffic: "udp flows=100",
            size: &size,
            rate: order.rate,
            time,
            queue_timeout: Duration::ZERO,
        };
        trial::run(self.arena()?, &tapline, &receiver, &load)
    }

    /// Runs of several orders, in turns. An order that fails once is not tried again; its error is in place of its runs.
    pub(super) fn trials(&mut self, orders: &[Order<'_>]) -> Result<Vec<Result<Vec<TrialOutcome>>>> {
        let mut all: Vec<Result<Vec<TrialOutcome>>> = orders.iter().map(|_| Ok(Vec::new())).collect();
        for round in 0..self.runs {
            for turn in 0..orders.len() {
                let at = (turn + round) % orders.len();
                self.check()?;
                if let Ok(runs) = &mut all[at] {
                    match self.trial(&orders[at]) {
                        Ok(outcome) => runs.push(outcome),
                        Err(error) => all[at] = Err(error),
                    }
                }
            }
        }
        self.check()?;
        Ok(all)
    }

    /// Median nanoseconds of the tap and its copy in a run.
    pub(super) fn tap(&mut self, order: &Order<'_>) -> Result<f64> {
        let thread = self.arena()?.receiving_thread().context("the kernel's receiving thread is unknown")?;
        let timer = TapTimer::start(thread)?;
        self.trial(order)?;
        timer.median_ns().context("no packets came to the kernel's receiving thread")
    }

    /// Profiles the capture of TCP packets of 60 bytes at a rate, with further arguments.
    pub(super) fn profile(&mut self, rate: Option<u64>, arguments: &[&str]) -> Result<Profiled> {
        self.check()?;
        self.show(&rate.map_or("a flood".to_owned(), |rate| format!("{rate} packets a second")));
        let (tapline, time) = (self.tapline.clone(), self.time());
        let arena = self.arena()?;
        let name = tapline.to_string_lossy().into_owned();
        let mut command: Vec<String> =
            [&name, "profile", "-i", FAR, "-Z", "root", "--json", "--duration"].map(str::to_owned).to_vec();
        // A quarter of it passes before the capture opens.
        command.push(format!("{}ms", (time.as_millis() + 1000) * 4));
        command.extend(arguments.iter().map(|&argument| argument.to_owned()));
        let receiver = Receiver { program: Program::Tapline, command, is_filtered: false, file: None };
        let running = Running::start(arena, &receiver)?;
        let before = arena.counters()?;
        let load =
            Load { traffic: "tcp dport=50 flows=100", size: "60", rate, time, queue_timeout: Duration::ZERO };
        trial::send(arena, &tapline, &load)?;
        trial::wait_until_quiet(arena)?;
        let grown = arena.counters()?.since(before);
        let (output, errors) = running.stop()?;
        let value: Value = serde_json::from_str(output.lines().last().unwrap_or_default())
            .with_context(|| format!("tapline profile: {}", errors.trim()))?;
        ensure!(value["error"].is_null(), "tapline profile: {}", value["error"]);
        Ok(Profiled { value, grown })
    }
}

/// The median of a quantity over runs.
pub(super) fn over<T>(runs: &[T], value: impl Fn(&T) -> Option<f64>) -> Option<Spread> {
    let values: Option<Vec<f64>> = runs.iter().map(value).collect();
    Spread::of(&values?)
}
