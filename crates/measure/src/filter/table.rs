//! The result: a table for people, an array of objects for programs.

use serde_json::{Value, json};
use tapline_sys::tsc;

use super::compile::Compiling;
use super::engines::LIBPCAP;
use super::kernel::KERNEL;
use super::packets::Packets;
use super::peer::Peer;
use super::{Series, Subject};
use crate::filters::Filter;
use std::time::Duration;

/// Long enough to count the clock's rate to four digits.
const CALIBRATION: Duration = Duration::from_millis(50);

/// Times below cannot be told apart.
const SHORTEST_NS: f64 = 0.05;

pub(crate) struct Table {
    json: Option<Vec<Value>>,
    /// Ticks of the time stamp counter in a nanosecond.
    ticks_per_ns: f64,
}

impl Table {
    pub(crate) fn new(json: bool) -> Table {
        let ticks_per_ns = tsc::frequency(CALIBRATION) / 1e9;
        if !json {
            println!(
                "ns/packet: processor time, the median of the runs; least: of the best run; times faster: than {LIBPCAP}"
            );
            println!(
                "above: without what the same engine takes for the empty filter (its loop and calls), as the kernel's figures are; \
                 than the kernel's: than {KERNEL}, both so"
            );
            println!("a cycle is one of the time stamp counter: {ticks_per_ns:.3} in a nanosecond");
            if cfg!(debug_assertions) {
                println!(
                    "this tapline was built for debugging: its own code is many times slower than in a release"
                );
            }
        }
        Table { json: json.then(Vec::new), ticks_per_ns }
    }

    /// The filter that is measured next, and its compile time.
    pub(crate) fn filter(
        &mut self,
        filter: &Filter<'_>,
        subject: &Subject,
        compiling: &Compiling,
        peer: &Peer,
    ) {
        let ours = subject.ours.insns().len();
        let theirs = subject.theirs.as_ref().map(|oracle| oracle.insns().len());
        let us = |time: Duration| (time.as_secs_f64() * 1e8).round() / 100.0;
        if let Some(rows) = &mut self.json {
            rows.push(json!({
                "filter": filter.text,
                "instructions": ours,
                "libpcap_instructions": theirs,
                "compile_us": us(compiling.program),
                "compile_values_us": us(compiling.values),
                "compile_native_us": compiling.native.map(us),
                "libpcap_compile_us": peer.time().map(us),
                "libpcap_ended_after_s": peer.ended_after().map(|limit| limit.as_secs_f64()),
                "measured": [],
            }));
            return;
        }
        let or_none = |value: Option<f64>| value.map_or("none".to_owned(), |value| format!("{value:.0} us"));
        println!("\n{}: {}", filter.name, filter.text);
        println!(
            "  {ours} instructions of classic BPF (libpcap: {}); compiled in {:.0} us (libpcap: {}), from there to values in {:.0} us, \
             and to native code in {}",
            theirs.map_or("none".to_owned(), |count| count.to_string()),
            us(compiling.program),
            or_none(peer.time().map(us)),
            us(compiling.values),
            or_none(compiling.native.map(us)),
        );
        if let Some(limit) = peer.ended_after() {
            println!(
                "  {LIBPCAP}: left out; its compiler was ended after {} s (--libpcap-limit)",
                limit.as_secs_f64()
            );
        }
    }

    /// Times of the engines on these packets.
    pub(crate) fn series(&mut self, packets: &Packets, series: &[Series]) {
        let reference = series.iter().find(|one| one.engine == LIBPCAP).map(|one| one.median.ns);
        let kernel = series.iter().find(|one| one.engine == KERNEL).map(Series::above_empty);
        if let Some(rows) = &mut self.json {
            let engines: Vec<Value> = series
                .iter()
                .map(|one| {
                    json!({
                        "engine": one.engine,
                        "ns": one.median.ns,
                        "least_ns": one.least.ns,
                        "empty_ns": one.empty.map(|empty| empty.ns),
                        "above_empty_ns": one.above_empty(),
                        "kernel_ratio": kernel.map(|kernel| kernel / one.above_empty()),
                        "cycles": one.median.ns * self.ticks_per_ns,
                        "libpcap_ratio": reference.map(|reference| reference / one.median.ns),
                    })
                })
                .collect();
            if let Some(measured) = rows.last_mut().and_then(|row| row["measured"].as_array_mut()) {
                measured.push(json!({ "packets": packets.name, "engines": engines }));
            }
            return;
        }
        println!("  {}", packets.name);
        println!(
            "    {:<34} {:>10} {:>8} {:>8} {:>8} {:>8}  times faster  than the kernel's",
            "engine", "ns/packet", "least", "cycles", "of empty", "above"
        );
        for one in series {
            let cycles = one.median.ns * self.ticks_per_ns;
            let (times, than_kernel) = (ratio(reference, one.median.ns), ratio(kernel, one.above_empty()));
            let empty = one.empty.map_or("-".to_owned(), |empty| format!("{:.2}", empty.ns));
            println!(
                "    {:<34} {:>10.2} {:>8.2} {:>8.1} {empty:>8} {:>8.2}  {times:<12}  {than_kernel}",
                one.engine,
                one.median.ns,
                one.least.ns,
                cycles,
                one.above_empty()
            );
        }
    }

    pub(crate) fn finish(self) {
        if let Some(rows) = self.json {
            println!("{}", Value::Array(rows));
        }
    }
}

/// How often `ns` goes into the reference; "-" without one, or for what is too short to be told apart.
fn ratio(reference: Option<f64>, ns: f64) -> String {
    match reference {
        Some(reference) if ns >= SHORTEST_NS => format!("{:.2}", reference / ns),
        _ => "-".to_owned(),
    }
}
