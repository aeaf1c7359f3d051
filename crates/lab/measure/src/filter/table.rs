//! Prints the result: text tables, or with `--json` one array with an object for each filter.

use serde_json::{Value, json};
use tapline_sys::tsc;

use super::compile::CompileTimes;
use super::engines::LIBPCAP;
use super::kernel::KERNEL_LIBPCAP;
use super::libpcap_child::LibpcapCompile;
use super::packets::Packets;
use super::{EngineCosts, Subject};
use crate::filters::Filter;
use std::time::Duration;

/// Duration of the comparison of the time stamp counter with the clock: it gives the rate to four digits.
const CALIBRATION: Duration = Duration::from_millis(50);

/// Costs below this, in nanoseconds, are noise: no ratio is printed for them.
const RESOLUTION_NS: f64 = 0.05;

/// Prints as it goes, or collects rows for JSON until [`finish`](Table::finish).
pub(crate) struct Table {
    /// The objects of the filters so far; `None` for text.
    json: Option<Vec<Value>>,
    /// Ticks of the time stamp counter in a nanosecond.
    ticks_per_ns: f64,
}

impl Table {
    pub(crate) fn new(json: bool) -> Table {
        let ticks_per_ns = tsc::frequency(CALIBRATION) / 1e9;
        if !json {
            println!(
                "ns/packet: CPU time, median of the runs; least: fastest run; times faster: than \"{LIBPCAP}\""
            );
            println!(
                "of empty: the same engine with the empty filter (loop and calls alone; \"-\": subtracted already); \
                 above: ns/packet less of empty; than the kernel's: times faster than \"{KERNEL_LIBPCAP}\", by above"
            );
            println!("cycles: ticks of the time stamp counter, {ticks_per_ns:.3} per nanosecond");
            if cfg!(debug_assertions) {
                println!(
                    "this is a debug build of tapline: its own code is many times slower than in a release build"
                );
            }
        }
        Table { json: json.then(Vec::new), ticks_per_ns }
    }

    /// Begins a filter: prints its text, its instructions and its compile times.
    pub(crate) fn filter(
        &mut self,
        filter: &Filter<'_>,
        subject: &Subject,
        compile_times: &CompileTimes,
        libpcap: &LibpcapCompile,
    ) {
        let ours = subject.ours.insns().len();
        let theirs = subject.theirs.as_ref().map(|oracle| oracle.insns().len());
        let us = |time: Duration| (time.as_secs_f64() * 1e8).round() / 100.0;
        if let Some(rows) = &mut self.json {
            rows.push(json!({
                "filter": filter.text,
                "instructions": ours,
                "libpcap_instructions": theirs,
                "compile_us": us(compile_times.to_bpf),
                "compile_values_us": us(compile_times.to_values),
                "compile_native_us": compile_times.to_native.map(us),
                "libpcap_compile_us": libpcap.time().map(us),
                "libpcap_ended_after_s": libpcap.killed_after().map(|limit| limit.as_secs_f64()),
                "measured": [],
            }));
            return;
        }
        let or_none = |value: Option<f64>| value.map_or("none".to_owned(), |value| format!("{value:.0} us"));
        println!("\n{}: {}", filter.name, filter.text);
        println!(
            "  {ours} instructions of classic BPF (libpcap: {}); compile time: text to classic BPF {:.0} us \
             (libpcap: {}), then to SSA form {:.0} us, then to native code {}",
            theirs.map_or("none".to_owned(), |count| count.to_string()),
            us(compile_times.to_bpf),
            or_none(libpcap.time().map(us)),
            us(compile_times.to_values),
            or_none(compile_times.to_native.map(us)),
        );
        if let Some(limit) = libpcap.killed_after() {
            println!(
                "  libpcap: left out; its compiler was killed after {} s (--libpcap-limit)",
                limit.as_secs_f64()
            );
        }
    }

    /// Prints the engines' costs on one set of packets.
    pub(crate) fn engine_costs(&mut self, packets: &Packets, costs: &[EngineCosts]) {
        let reference = costs.iter().find(|one| one.engine == LIBPCAP).map(|one| one.median.ns);
        let kernel = costs.iter().find(|one| one.engine == KERNEL_LIBPCAP).map(EngineCosts::above_empty);
        if let Some(rows) = &mut self.json {
            let engines: Vec<Value> = costs
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
        for one in costs {
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

    /// Prints the JSON array, if one was asked for.
    pub(crate) fn finish(self) {
        if let Some(rows) = self.json {
            println!("{}", Value::Array(rows));
        }
    }
}

/// `reference / ns`, how many times faster `ns` is; "-" without a reference or where `ns` is below [`RESOLUTION_NS`].
fn ratio(reference: Option<f64>, ns: f64) -> String {
    match reference {
        Some(reference) if ns >= RESOLUTION_NS => format!("{:.2}", reference / ns),
        _ => "-".to_owned(),
    }
}
