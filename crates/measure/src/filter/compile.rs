//! Compile time: from text to a program, and on to native code.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use tapline_filter::{HandleKind, Options, compile};
use tapline_ir::CompiledFilter;
use tapline_packet::LinkType;

use crate::runs::median;

/// Medians of the times of compiling one text.
pub(crate) struct Compiling {
    /// Text to classic BPF.
    pub(crate) program: Duration,
    /// Classic BPF to values, after all passes.
    pub(crate) values: Duration,
    /// Values to native code; `None` where there is none.
    pub(crate) native: Option<Duration>,
}

impl Compiling {
    pub(crate) fn measure(text: &str, runs: usize) -> anyhow::Result<Compiling> {
        let options =
            Options { netmask: Some(0), handle: HandleKind::Dead, ..Options::new(LinkType::ETHERNET) };
        let program = time(runs, || compile(text, &options).map(drop).map_err(|e| anyhow!(e.render(text))))?;
        let filter = compile(text, &options).map_err(|error| anyhow!(error.render(text)))?;
        let values = time(runs, || {
            black_box(CompiledFilter::from(filter.program().clone()).values());
            Ok(())
        })?;
        let native = super::native::compile_time(filter.values(), |compile| time(runs, compile));
        Ok(Compiling { program, values, native })
    }
}

fn time(runs: usize, mut work: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    let mut seconds = Vec::new();
    for _ in 0..runs.max(3) {
        let start = Instant::now();
        work()?;
        seconds.push(black_box(start.elapsed()).as_secs_f64());
    }
    Ok(Duration::from_secs_f64(median(seconds.into_iter())))
}
