//! Tapline's compile time, step by step: text to classic BPF, classic BPF to SSA form, SSA form to native code.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use tapline_filter::{HandleKind, Options, compile};
use tapline_ir::CompiledFilter;
use tapline_packet::LinkType;

use crate::runs::median;

/// Median time of each step of compiling one filter.
pub(crate) struct CompileTimes {
    /// Text to classic BPF.
    pub(crate) to_bpf: Duration,
    /// Classic BPF to values (the SSA form), with all optimisation passes.
    pub(crate) to_values: Duration,
    /// Values to native code; `None` where native code cannot be made.
    pub(crate) to_native: Option<Duration>,
}

impl CompileTimes {
    pub(crate) fn measure(text: &str, runs: usize) -> anyhow::Result<CompileTimes> {
        let options =
            Options { netmask: Some(0), handle: HandleKind::Dead, ..Options::new(LinkType::ETHERNET) };
        let to_bpf = time(runs, || compile(text, &options).map(drop).map_err(|e| anyhow!(e.render(text))))?;
        let filter = compile(text, &options).map_err(|error| anyhow!(error.render(text)))?;
        // A new object in each run, as an object keeps the values it has made.
        let to_values = time(runs, || {
            black_box(CompiledFilter::from(filter.program().clone()).values());
            Ok(())
        })?;
        let to_native = super::native::compile_time(filter.values(), |compile| time(runs, compile));
        Ok(CompileTimes { to_bpf, to_values, to_native })
    }
}

/// Median duration of `work`, in at least three runs.
fn time(runs: usize, mut work: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    let mut seconds = Vec::new();
    for _ in 0..runs.max(3) {
        let start = Instant::now();
        work()?;
        seconds.push(black_box(start.elapsed()).as_secs_f64());
    }
    Ok(Duration::from_secs_f64(median(seconds.into_iter())))
}
