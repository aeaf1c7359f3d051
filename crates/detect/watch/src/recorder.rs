//! Recorders of scripts: rows, histograms and rankings by period, each with a fixed schema.
//!
//! ```text
//! recorder("talkers", "top", #{every: "1h", n: 10})      record("talkers", p.src, p.len)
//! period over --> {"recorder":"beacon/talkers","kind":"top","from":...,"to":...,"columns":[...],"rows":[[...], ...]}
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};

use crate::event::time_text;

/// Recorders of a script.
pub(crate) const RECORDERS_MAX: usize = 32;
/// Rows of a list in a period.
const ROWS_MAX: usize = 10_000;
/// Keys of a ranking in a period.
const KEYS_MAX: usize = 100_000;
/// Approximate bytes of a row or sum in addition to its values.
const ROW_LEN: usize = 128;

tapline_packet::named_enum! {
    /// The kind of a recorder.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum RecorderKind {
        /// Rows in the order in which they were recorded.
        List = "list",
        /// Number of values between powers of two.
        Histogram = "histogram",
        /// The keys with the greatest sums.
        Top = "top",
    }
}

/// The contents of a recorder for one period.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedPeriod {
    /// The script and the recorder: `SCRIPT/RECORDER`.
    pub name: String,
    /// Kind of the recorder.
    pub kind: RecorderKind,
    /// Beginning and end in nanoseconds since 1970; the end is not part of it.
    pub period_ns: (i64, i64),
    /// The schema: names of the columns.
    pub columns: Vec<String>,
    /// The rows, with a value for each column.
    pub rows: Vec<Vec<Value>>,
    /// Rows or keys that did not fit.
    pub left_out: u64,
}

impl RecordedPeriod {
    /// The period as one JSON object.
    pub fn to_json(&self) -> Value {
        let mut object = json!({
            "recorder": self.name, "kind": self.kind.name(), "from": time_text(self.period_ns.0),
            "to": time_text(self.period_ns.1), "columns": self.columns, "rows": self.rows,
        });
        if self.left_out > 0 {
            object["left_out"] = self.left_out.into();
        }
        object
    }

    /// The period as lines for people: a head, then the rows.
    pub fn to_text(&self) -> String {
        let (from, to) = (time_text(self.period_ns.0), time_text(self.period_ns.1));
        let plain =
            |text: &str| -> String { text.chars().map(|c| if c.is_control() { '.' } else { c }).collect() };
        let mut text = format!("{} ({}) from {from} to {to}", plain(&self.name), self.kind.name());
        if self.left_out > 0 {
            text += &format!(", {} left out", self.left_out);
        }
        let shown = |value: &Value| match value.as_str() {
            Some(text) => plain(text),
            None => value.to_string(),
        };
        let head = self.columns.iter().map(|column| plain(column)).collect();
        let rows = self.rows.iter().map(|row| row.iter().map(shown).collect());
        for row in std::iter::once(head).chain(rows) {
            let row: Vec<String> = row;
            text += &format!("\n  {}", row.join("  "));
        }
        text
    }
}

#[derive(Debug, Default)]
struct Content {
    rows: Vec<Vec<Value>>,
    /// By the exponent of the power of two below a value.
    buckets: BTreeMap<u32, u64>,
    sums: HashMap<String, u64>,
    left_out: u64,
    /// Bytes of rows and sums, about.
    len: usize,
}

/// A recorder of a script.
#[derive(Debug)]
pub(crate) struct Recorder {
    name: String,
    kind: RecorderKind,
    columns: Vec<String>,
    every_ns: i64,
    /// Number of reported rows of a ranking.
    n: usize,
    /// The number of the present period; `None` before the first record.
    period: Option<i64>,
    content: Content,
}

impl Recorder {
    pub(crate) fn new(
        name: String,
        kind: RecorderKind,
        columns: Vec<String>,
        every_ns: i64,
        n: usize,
    ) -> Recorder {
        Recorder { name, kind, columns, every_ns, n, period: None, content: Content::default() }
    }

    pub(crate) fn kind(&self) -> RecorderKind {
        self.kind
    }

    /// Columns that a script gives: of a list all but the time, of a ranking key and sum, of a histogram the value.
    pub(crate) fn columns_given(&self) -> usize {
        match self.kind {
            RecorderKind::List => self.columns.len() - 1,
            RecorderKind::Histogram => 1,
            RecorderKind::Top => 2,
        }
    }

    /// Begins the period of `now_ns`. Returns the contents of the previous one, if it is over.
    pub(crate) fn advance(&mut self, now_ns: i64) -> Option<RecordedPeriod> {
        let period = now_ns.div_euclid(self.every_ns);
        match self.period {
            Some(before) if before < period => self.take(),
            _ => None,
        }
    }

    /// Handles a clock that was set back to `now_ns`. Returns the contents of the present period, if the time is of
    /// an earlier one.
    pub(crate) fn set_back(&mut self, now_ns: i64) -> Option<RecordedPeriod> {
        let period = now_ns.div_euclid(self.every_ns);
        self.period.is_some_and(|present| period < present).then(|| self.take()).flatten()
    }

    /// Bytes that the present period takes, about.
    pub(crate) fn len_kept(&self) -> usize {
        self.content.len
    }

    /// Takes a row of `row_len` bytes, for which `room` are left.
    pub(crate) fn row(&mut self, now_ns: i64, mut row: Vec<Value>, row_len: usize, room: usize) {
        self.begin(now_ns);
        let len = row_len + ROW_LEN;
        if self.content.rows.len() >= ROWS_MAX || len > room {
            self.content.left_out += 1;
            return;
        }
        self.content.len += len;
        row.insert(0, time_text(now_ns).into());
        self.content.rows.push(row);
    }

    pub(crate) fn value(&mut self, now_ns: i64, value: u64) {
        self.begin(now_ns);
        *self.content.buckets.entry(u64::BITS - value.leading_zeros()).or_default() += 1;
    }

    /// Adds to the sum of a key; `room` bytes are left for a new one.
    pub(crate) fn weigh(&mut self, now_ns: i64, key: String, weight: u64, room: usize) {
        self.begin(now_ns);
        let Content { sums, left_out, len, .. } = &mut self.content;
        let key_len = key.len() + ROW_LEN;
        let has_room = sums.len() < KEYS_MAX && key_len <= room;
        match sums.get_mut(&key) {
            Some(sum) => *sum = sum.saturating_add(weight),
            None if has_room => {
                *len += key_len;
                sums.insert(key, weight);
            }
            None => *left_out += 1,
        }
    }

    fn begin(&mut self, now_ns: i64) {
        self.period.get_or_insert(now_ns.div_euclid(self.every_ns));
    }

    /// Takes the contents of the present period; the next one begins.
    pub(crate) fn take(&mut self) -> Option<RecordedPeriod> {
        let period = self.period.take()?;
        let content = std::mem::take(&mut self.content);
        let rows = match self.kind {
            RecorderKind::List => content.rows,
            RecorderKind::Histogram => histogram_rows(&content.buckets),
            RecorderKind::Top => top_rows(content.sums, self.n),
        };
        let from_ns = period.saturating_mul(self.every_ns);
        Some(RecordedPeriod {
            name: self.name.clone(),
            kind: self.kind,
            period_ns: (from_ns, from_ns.saturating_add(self.every_ns)),
            columns: self.columns.clone(),
            rows,
            left_out: content.left_out,
        })
    }
}

/// The schema of a recorder; of a list behind the time.
pub(crate) fn columns(kind: RecorderKind, given: Vec<String>) -> Vec<String> {
    match kind {
        RecorderKind::List => std::iter::once("time".to_owned()).chain(given).collect(),
        RecorderKind::Histogram => ["from", "to", "count"].map(str::to_owned).to_vec(),
        RecorderKind::Top => ["key", "sum"].map(str::to_owned).to_vec(),
    }
}

/// Powers of two that have values: least and greatest value, and how many.
fn histogram_rows(buckets: &BTreeMap<u32, u64>) -> Vec<Vec<Value>> {
    let row = |(bits, count): (&u32, &u64)| {
        let (from, to) = match bits {
            0 => (0, 0),
            bits => (1_u64 << (bits - 1), u64::MAX >> (u64::BITS - bits)),
        };
        vec![from.into(), to.into(), (*count).into()]
    };
    buckets.iter().map(row).collect()
}

/// The keys with the greatest sums; equal ones by their names.
fn top_rows(sums: HashMap<String, u64>, n: usize) -> Vec<Vec<Value>> {
    let mut sums: Vec<(String, u64)> = sums.into_iter().collect();
    sums.sort_by(|a, b| (Reverse(a.1), &a.0).cmp(&(Reverse(b.1), &b.0)));
    sums.into_iter().take(n).map(|(key, sum)| vec![key.into(), sum.into()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder(kind: RecorderKind) -> Recorder {
        Recorder::new("s/r".to_owned(), kind, columns(kind, vec!["host".to_owned()]), 10, 2)
    }

    #[test]
    fn rankings_tell_the_greatest_of_each_period() {
        let mut top = recorder(RecorderKind::Top);
        for (key, weight) in [("a", 1), ("b", 5), ("c", 5), ("a", 1)] {
            top.weigh(12, key.to_owned(), weight, 1000);
        }
        assert!(top.advance(19).is_none());
        let period = top.advance(20).unwrap();
        assert_eq!(period.period_ns, (10, 20));
        assert_eq!(period.rows, [vec![json!("b"), json!(5)], vec![json!("c"), json!(5)]]);
        assert!(top.advance(40).is_none(), "nothing was recorded since");
    }

    #[test]
    fn histograms_count_between_powers_of_two() {
        let mut histogram = recorder(RecorderKind::Histogram);
        [0, 1, 2, 3, 4, u64::MAX].into_iter().for_each(|value| histogram.value(0, value));
        let rows = histogram.take().unwrap().rows;
        let shown: Vec<String> = rows.iter().map(|row| Value::from(row.clone()).to_string()).collect();
        assert_eq!(
            shown,
            ["[0,0,1]", "[1,1,1]", "[2,3,2]", "[4,7,1]", "[9223372036854775808,18446744073709551615,1]"]
        );
    }

    #[test]
    fn names_of_a_script_do_not_steer_the_terminal() {
        let given = columns(RecorderKind::List, vec!["a\u{1b}]0;title\u{7}".to_owned()]);
        let mut list = Recorder::new("s/\u{1b}[31m".to_owned(), RecorderKind::List, given, 10, 2);
        list.row(7, vec!["h\u{1b}".into()], 1, 1000);
        let text = list.take().unwrap().to_text();
        assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text:?}");
    }

    #[test]
    fn lists_have_the_time_first_and_a_bound() {
        let mut list = recorder(RecorderKind::List);
        (0..ROWS_MAX + 3).for_each(|_| list.row(7, vec!["h".into()], 1, 1000));
        list.row(7, vec!["h".into()], 1000, 1000);
        let period = list.take().unwrap();
        assert_eq!((period.rows.len(), period.left_out, list.len_kept()), (ROWS_MAX, 4, 0));
        assert_eq!(period.rows[0], [json!("1970-01-01T00:00:00.000000007Z"), json!("h")]);
        assert_eq!(period.to_json()["columns"], json!(["time", "host"]));
    }
}
