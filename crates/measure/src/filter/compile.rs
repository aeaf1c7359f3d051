//! What compiling costs: from text to a program, and on to native code.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use tapline_filter::{Handle, Options, compile, compile_ir};
use tapline_packet::LinkType;

use crate::runs::median;

/// Medians of the times of compiling one text.
pub(crate) struct Compiling {
    /// Text to classic BPF.
    pub(crate) program: Duration,
    /// Text to values, after all passes.
    pub(crate) values: Duration,
    /// Values to native code; `None` where there is none.
    pub(crate) native: Option<Duration>,
}

impl Compiling {
    pub(crate) fn measure(text: &str, runs: usize) -> anyhow::Result<Compiling> {
        let options = Options { netmask: Some(0), handle: Handle::Dead, ..Options::new(LinkType::ETHERNET) };
        let program = time(runs, || compile(text, &options).map(drop).map_err(|e| anyhow!(e.render(text))))?;
        let values =
            time(runs, || compile_ir(text, &options).map(drop).map_err(|e| anyhow!(e.render(text))))?;

        let native = native(text, &options, runs)?;
        Ok(Compiling { program, values, native })
    }
}

#[cfg(feature = "jit")]
fn native(text: &str, options: &Options, runs: usize) -> anyhow::Result<Option<Duration>> {
    let ir = compile_ir(text, options).map_err(|error| anyhow!(error.render(text)))?;
    Ok(super::native::compile_time(&ir, |compile| time(runs, compile)))
}

#[cfg(not(feature = "jit"))]
fn native(_: &str, _: &Options, _: usize) -> anyhow::Result<Option<Duration>> {
    Ok(None)
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
