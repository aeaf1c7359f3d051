//! Cost of small tasks, side by side: they take turns, each timed many times, and each must prove that its work was
//! done.
//!
//! ```text
//! for each run, for each task (the order rotates): t0, round() -> work, t1        work is as expected, or an error
//! report: median and spread of (t1 - t0) / units of the round
//! ```

use serde::Serialize;

use crate::Error;
use crate::clock::Clock;

/// Runs that count for nothing: caches and branch predictors learn in them.
const WARM_UPS: usize = 2;

/// Something whose cost is measured.
pub struct Task<'a> {
    name: String,
    unit: &'static str,
    units: f64,
    expected: u64,
    reference: Option<f64>,
    round: Box<dyn FnMut() -> u64 + 'a>,
}

impl<'a> Task<'a> {
    /// `round` does `units` of the measured work, each called `unit`, and returns a number that it can only know if
    /// it did; `expected` is that number.
    pub fn new(
        name: &str,
        unit: &'static str,
        units: f64,
        expected: u64,
        round: impl FnMut() -> u64 + 'a,
    ) -> Task<'a> {
        Task { name: name.to_owned(), unit, units, expected, reference: None, round: Box::new(round) }
    }

    /// A published figure for the same task, in cycles of its machine.
    #[must_use]
    pub fn with_reference(mut self, cycles: f64) -> Task<'a> {
        self.reference = Some(cycles);
        self
    }

    fn run(&mut self, clock: &Clock) -> Result<f64, Error> {
        let before = clock.now();
        let work = (self.round)();
        let ticks = clock.now().wrapping_sub(before);
        if work == self.expected {
            return Ok(ticks as f64 / self.units);
        }
        Err(Error::Work { task: self.name.clone(), expected: self.expected, found: work })
    }
}

/// Cost of a task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskReport {
    /// The task.
    pub name: String,
    /// Unit of the cost: `packet`, `byte`, `call`.
    pub unit: &'static str,
    /// Ticks of the [`Clock`], the median of all runs.
    pub cycles: f64,
    /// A tenth of the runs took less.
    pub cycles_p10: f64,
    /// A tenth of the runs took more.
    pub cycles_p90: f64,
    /// The median in nanoseconds.
    pub ns: f64,
    /// A published figure, in cycles of its machine.
    pub reference_cycles: Option<f64>,
}

/// Measures all tasks, each `runs` times.
///
/// # Errors
/// [`Error::Work`] if a task did not do its work.
pub fn measure_tasks(tasks: &mut [Task<'_>], runs: usize) -> Result<Vec<TaskReport>, Error> {
    let clock = Clock::get();
    let mut costs: Vec<Vec<f64>> = vec![Vec::with_capacity(runs); tasks.len()];
    for round in 0..runs.max(1) + WARM_UPS {
        for turn in 0..tasks.len() {
            let at = (turn + round) % tasks.len();
            let cost = tasks[at].run(clock)?;
            if round >= WARM_UPS {
                costs[at].push(cost);
            }
        }
    }
    Ok(tasks.iter().zip(costs).map(|(task, costs)| report(task, costs, clock)).collect())
}

fn report(task: &Task<'_>, mut costs: Vec<f64>, clock: &Clock) -> TaskReport {
    costs.sort_by(f64::total_cmp);
    let at = |share: usize| costs[(costs.len() - 1) * share / 100];
    TaskReport {
        name: task.name.clone(),
        unit: task.unit,
        cycles: at(50),
        cycles_p10: at(10),
        cycles_p90: at(90),
        ns: clock.nanos(at(50)),
        reference_cycles: task.reference,
    }
}

/// Reports as a table, a line for each task. `reference` is the head of the column of others' figures.
pub fn tasks_to_text(reports: &[TaskReport], reference: &str) -> String {
    let width = reports.iter().map(|report| report.name.chars().count()).max().unwrap_or(0).max(4);
    let mut text = format!(
        "{:width$}  {:>9}  {:>17}  {:>9}  per      {reference}\n",
        "task", "cycles", "p10 to p90", "ns"
    );
    for report in reports {
        let TaskReport { name, unit, cycles, cycles_p10, cycles_p90, ns, reference_cycles } = report;
        let (cycles, ns) = (short(*cycles), short(*ns));
        let spread = format!("{} to {}", short(*cycles_p10), short(*cycles_p90));
        let theirs = reference_cycles.map(short).unwrap_or_default();
        let line = format!("{name:width$}  {cycles:>9}  {spread:>17}  {ns:>9}  {unit:7}  {theirs}");
        text += line.trim_end();
        text.push('\n');
    }
    text
}

fn short(value: f64) -> String {
    if value < 9.995 { format!("{value:.2}") } else { format!("{value:.1}") }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn tasks_alternate_and_are_reported_in_order() {
        let mut calls = 0;
        let mut tasks = [
            Task::new("sum", "number", 100.0, 4950, || (0..100).map(black_box).sum()).with_reference(71.0),
            Task::new("count", "call", 1.0, 1, || {
                calls += 1;
                1
            }),
        ];
        let reports = measure_tasks(&mut tasks, 5).expect("both did their work");
        drop(tasks);
        assert_eq!(calls, 5 + WARM_UPS);
        assert_eq!([&reports[0].name, &reports[1].name], ["sum", "count"]);
        assert!(reports[0].cycles_p10 <= reports[0].cycles && reports[0].cycles <= reports[0].cycles_p90);
        let text = tasks_to_text(&reports, "FFPF");
        assert!(text.contains("FFPF\n") && text.contains("number   71.0\n"), "{text}");
    }

    #[test]
    fn work_that_was_not_done_is_an_error() {
        let mut tasks = [Task::new("lazy", "call", 1.0, 5, || 4)];
        let error = measure_tasks(&mut tasks, 1).expect_err("4 is not 5").to_string();
        assert!(error.contains("lazy") && error.contains('4') && error.contains('5'), "{error}");
    }
}
