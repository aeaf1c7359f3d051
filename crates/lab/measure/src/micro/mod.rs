//! Small operations that everything is made of: Table 1 of FFPF (OSDI'04), with today's cycles next to its own.
//!
//! ```text
//! call      a filter, a packet a call           store    an index entry, 64, 512, 1500 bytes
//! stage     an empty one, batches of 1 and 256  wake     a thread that waits
//! count     a meter, a clock                    search   a byte without a match; a payload with one
//!                                               filter   interpreter, native code, FPL-2
//! ```

pub(crate) mod filters;
mod searches;
mod stages;
mod stores;
pub(crate) mod wake;

use std::hint::black_box;

use tapline_meters::{Clock, Cost, Meters, Task, TaskReport, measure_tasks};

/// Measures all in turns, each `runs` times.
///
/// # Errors
/// If something to be measured cannot be made, or does not do its work.
pub fn measure(runs: usize) -> anyhow::Result<Vec<TaskReport>> {
    let mut tasks = Vec::new();
    filters::calls(&mut tasks)?;
    stages::tasks(&mut tasks);
    tasks.push(meter());
    tasks.push(clock());
    stores::tasks(&mut tasks);
    tasks.push(wake::task()?);
    searches::tasks(&mut tasks)?;
    filters::fpl(&mut tasks)?;
    filters::engines(&mut tasks)?;
    Ok(measure_tasks(&mut tasks, runs)?)
}

fn meter() -> Task<'static> {
    const ADDS: u64 = 4096;
    let meter = Meters::private().slot("stage", "count", 0);
    let mut before = 0;
    Task::new("one meter, counting a batch", "batch", ADDS as f64, ADDS, move || {
        for round in 0..ADDS {
            let packets = 1 + round % 256;
            let (cycles, bytes) = (packets * (10 + round % 50), packets * 64);
            meter.add(&black_box(Cost {
                cycles,
                packets_in: packets,
                bytes_in: bytes,
                packets_out: packets,
                bytes_out: bytes,
            }));
        }
        let batches = meter.snapshot().batches;
        batches - std::mem::replace(&mut before, batches)
    })
}

fn clock() -> Task<'static> {
    const READS: u64 = 1024;
    let clock = Clock::get();
    Task::new("one reading of the clock", "reading", READS as f64, READS, || {
        let mut last = 0;
        (0..READS).map(|_| u64::from(std::mem::replace(&mut last, clock.now()) <= last)).sum()
    })
}
