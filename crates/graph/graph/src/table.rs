//! Tables: results of stages.

use std::any::Any;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use serde_json::{Map, Value};
pub use tapline_syntax::units::grouped;

/// A table: named columns, and rows of as many values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The columns' names, such as `packets`.
    pub columns: Vec<&'static str>,
    /// The rows.
    pub rows: Vec<Vec<Cell>>,
}

/// The result of a stage.
#[derive(Clone, Debug)]
pub struct StageResult {
    /// The stage's name.
    pub stage: String,
    /// The table that people and machines read.
    pub table: Table,
    /// The values of which the table is made, of a type that the crate of the stage knows.
    pub values: Option<Arc<dyn Any + Send + Sync>>,
}

/// A value in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    /// A number.
    Number(u64),
    /// A sum of more than 64 bits.
    Sum(u128),
    /// Nanoseconds since 1970, UTC; negative before.
    Time(i64),
    /// A word, left-aligned.
    Text(String),
    /// A value that is not known: `-` for people, `null` in JSON.
    Unknown,
}

impl From<u64> for Cell {
    fn from(number: u64) -> Cell {
        Cell::Number(number)
    }
}

impl Cell {
    /// The cell of a sum, which may have more than 64 bits.
    pub fn of_sum(sum: u128) -> Cell {
        u64::try_from(sum).map_or(Cell::Sum(sum), Cell::Number)
    }
}

impl From<Option<u64>> for Cell {
    fn from(number: Option<u64>) -> Cell {
        number.map_or(Cell::Unknown, Cell::Number)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl Table {
    /// One row of numbers.
    pub fn of_numbers(named: &[(&'static str, u64)]) -> Table {
        let (columns, row) = named.iter().map(|&(name, number)| (name, Cell::from(number))).unzip();
        Table { columns, rows: vec![row] }
    }

    /// Adds a column to a table of one row.
    pub fn add(&mut self, name: &'static str, cell: Cell) {
        self.columns.push(name);
        self.rows.iter_mut().for_each(|row| row.push(cell.clone()));
    }

    /// The rows as JSON objects.
    pub fn to_json(&self) -> Value {
        let object = |row: &Vec<Cell>| -> Value {
            let members = self.columns.iter().zip(row).map(|(name, cell)| {
                let value = match cell {
                    Cell::Number(number) => Value::from(*number),
                    // The nearest number of 53 bits, which most readers of JSON make of any number.
                    Cell::Sum(sum) => Value::from(*sum as f64),
                    Cell::Time(ns) => Value::from(*ns),
                    Cell::Text(text) => Value::from(text.as_str()),
                    Cell::Unknown => Value::Null,
                };
                ((*name).to_owned(), value)
            });
            Value::Object(members.collect::<Map<_, _>>())
        };
        Value::Array(self.rows.iter().map(object).collect())
    }

    fn widths(&self, texts: &[Vec<String>]) -> Vec<usize> {
        let width = |at: usize| {
            let cells = texts.iter().filter_map(|row| row.get(at)).map(|text| text.chars().count());
            cells.chain([self.columns[at].len()]).max().unwrap_or(0)
        };
        (0..self.columns.len()).map(width).collect()
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Number(number) => f.write_str(&grouped(*number)),
            Cell::Sum(sum) => f.write_str(&grouped(*sum)),
            Cell::Time(ns) => {
                let sign = if *ns < 0 { "-" } else { "" };
                write!(f, "{sign}{}", grouped(ns.unsigned_abs()))
            }
            Cell::Text(text) => f.write_str(text),
            Cell::Unknown => f.write_str("-"),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.iter().map(Cell::to_string).collect()).collect();
        let widths = self.widths(&texts);
        let is_text =
            |at: usize| matches!(self.rows.first().and_then(|row| row.get(at)), Some(Cell::Text(_)));
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut line = String::new();
            for (at, (cell, width)) in cells.zip(&widths).enumerate() {
                let gap = if at > 0 { "  " } else { "" };
                let _ = match is_text(at) {
                    true => write!(line, "{gap}{cell:<width$}"),
                    false => write!(line, "{gap}{cell:>width$}"),
                };
            }
            line.trim_end().to_owned()
        };
        writeln!(f, "{}", line(&mut self.columns.iter().copied()))?;
        texts.iter().try_for_each(|row| writeln!(f, "{}", line(&mut row.iter().map(String::as_str))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let row = |name: &str, packets: u64| vec![Cell::from(name.to_owned()), Cell::from(packets)];
        let table =
            Table { columns: vec!["address", "packets"], rows: vec![row("10.0.0.1", 1234), row("::1", 7)] };
        assert_eq!(table.to_string(), "address   packets\n10.0.0.1    1,234\n::1             7\n");
        assert_eq!(table.to_json()[1]["packets"], 7);
        let mut times = Table::of_numbers(&[("n", 1)]);
        times.add("first_ns", Cell::Time(-1_500_000_000));
        assert_eq!(times.to_string(), "n        first_ns\n1  -1,500,000,000\n");
        assert_eq!(times.to_json()[0]["first_ns"], -1_500_000_000);
    }

    #[test]
    fn sums_may_have_more_than_64_bits() {
        let sum = u128::from(u64::MAX);
        assert_eq!([sum, sum + 1].map(Cell::of_sum), [Cell::Number(u64::MAX), Cell::Sum(1 << 64)]);
        assert_eq!(Cell::Sum(1 << 64).to_string(), "18,446,744,073,709,551,616");
        let mut table = Table::of_numbers(&[]);
        table.add("bytes", Cell::Sum(1 << 64));
        assert_eq!(table.to_json()[0]["bytes"], 18_446_744_073_709_551_616_f64);
    }
}
