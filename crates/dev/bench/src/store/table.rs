//! Figures of all measures: medians, ratios to a peer, goals.

use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tapline_measure::runs::{judge, median};

/// One figure of one program.
pub(super) struct Row {
    /// The measured quantity: `cost/60`.
    pub(super) measure: String,
    /// The measured program.
    pub(super) program: String,
    pub(super) unit: &'static str,
    /// Figures of each run.
    pub(super) runs: Vec<f64>,
}

/// The relation of two figures, or of one to a bound.
pub(super) struct Verdict {
    pub(super) measure: String,
    /// The compared figures: "packets a processor second, by Stenographer's".
    pub(super) what: String,
    pub(super) value: f64,
    pub(super) goal: Goal,
}

#[derive(Clone, Copy)]
pub(super) enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

/// No goal is about a value of nothing, or less.
const PLAUSIBLE: RangeInclusive<f64> = 1e-9..=1e15;

impl Goal {
    fn is_met(self, value: f64) -> bool {
        match self {
            Goal::AtLeast(bound) => value >= bound,
            Goal::AtMost(bound) => value <= bound,
        }
    }

    fn text(self) -> String {
        match self {
            Goal::AtLeast(bound) => format!("at least {bound}"),
            Goal::AtMost(bound) => format!("at most {bound}"),
        }
    }
}

#[derive(Default)]
pub(super) struct Table {
    rows: Vec<Row>,
    verdicts: Vec<Verdict>,
    notes: Vec<String>,
}

impl Table {
    pub(super) fn new() -> Table {
        Table::default()
    }

    pub(super) fn note(&mut self, note: String) {
        println!("{note}");
        self.notes.push(note);
    }

    /// Takes runs of a program and prints their median.
    pub(super) fn row(&mut self, measure: &str, program: &str, unit: &'static str, runs: Vec<f64>) {
        if runs.is_empty() {
            return;
        }
        let (least, most) =
            (runs.iter().copied().fold(f64::MAX, f64::min), runs.iter().copied().fold(0.0, f64::max));
        let middle = median(runs.iter().copied());
        println!(
            "{measure:<22} {program:<24} {middle:>14.3} {unit:<20} {least:.3} to {most:.3} in {} runs",
            runs.len()
        );
        self.rows.push(Row { measure: measure.to_owned(), program: program.to_owned(), unit, runs });
    }

    pub(super) fn median(&self, measure: &str, program: &str) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.measure == measure && row.program == program)?;
        Some(median(row.runs.iter().copied()))
    }

    /// Says whether a goal was reached, where there is something to compare.
    pub(super) fn judge(&mut self, measure: &str, what: &str, value: Option<f64>, goal: Goal) {
        let Some(value) = value.filter(|value| value.is_finite()) else { return };
        let word = judge(value, PLAUSIBLE, |value| goal.is_met(value));
        println!("{measure:<22} {what}: {value:.2} (goal {}: {word})", goal.text());
        self.verdicts.push(Verdict { measure: measure.to_owned(), what: what.to_owned(), value, goal });
    }

    /// Writes all of it as JSON, if there is a file for it.
    pub(super) fn finish(self, file: Option<&Path>) -> Result<()> {
        let Some(path) = file else { return Ok(()) };
        let rows = self.rows.iter().map(|row| {
            let middle = median(row.runs.iter().copied());
            json!({ "measure": row.measure, "program": row.program, "unit": row.unit, "median": middle, "runs": row.runs })
        });
        let verdicts = self.verdicts.iter().map(|verdict| {
            json!({
                "measure": verdict.measure,
                "what": verdict.what,
                "value": verdict.value,
                "goal": verdict.goal.text(),
                "met": judge(verdict.value, PLAUSIBLE, |value| verdict.goal.is_met(value)) == "met",
            })
        });
        let value = json!({
            "figures": rows.collect::<Vec<Value>>(),
            "goals": verdicts.collect::<Vec<Value>>(),
            "notes": self.notes,
        });
        std::fs::write(path, format!("{value:#}\n")).with_context(|| format!("writing {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_bounds() {
        assert!(Goal::AtLeast(3.0).is_met(3.0) && !Goal::AtLeast(3.0).is_met(2.9));
        assert!(Goal::AtMost(0.2).is_met(0.1) && !Goal::AtMost(0.2).is_met(0.3));
        let mut table = Table::new();
        table.row("cost/60", "tapline", "ns", vec![3.0, 1.0, 2.0]);
        assert_eq!(
            (table.median("cost/60", "tapline"), table.median("cost/60", "nobody")),
            (Some(2.0), None)
        );
    }
}
