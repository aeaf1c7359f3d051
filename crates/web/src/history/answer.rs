//! Questions to the history: any window, one dimension.

use std::collections::HashMap;

use rusqlite::params;
use serde_json::{Value, json};
use tapline_view::{Amount, Dimension, Row, Table};

use super::{History, KEPT, Tier, key_of, record, roll_key};
use crate::access::Rights;
use crate::error::Error;
use crate::page::key_json;
use crate::query::Query;

/// Minutes that are read for one answer; longer windows are answered by hours.
const MINUTES_MAX: u64 = 2 * 24 * 60;
/// Buckets of hours: two years.
const HOURS_MAX: u64 = 2 * 366 * 24;
/// Points of a chart.
const POINTS_MAX: usize = 600;
const ROWS_MAX: u64 = 100;

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HistoryQuestion {
    dimension: Dimension,
    tier: Tier,
    /// The first bucket, and the one after the last.
    buckets: (u64, u64),
    rows: usize,
}

/// A point of a chart: some buckets together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Point {
    at: u64,
    seconds: f64,
    packets: i64,
    bytes: i64,
    lost: i64,
}

/// The answer: totals over time, and the greatest keys of the window.
#[derive(Clone, Debug, Default)]
pub struct HistoryAnswer {
    points: Vec<Point>,
    /// The greatest keys, with those of all buckets added.
    pub table: Table,
    /// Buckets that are there.
    pub buckets: usize,
    /// The first and the last bucket of the file, in this tier.
    span: Option<(i64, i64)>,
    sums: [i64; 8],
    /// Buckets of a point.
    step: u64,
}

impl HistoryQuestion {
    /// Reads the question of an address: `from` and `to` in seconds since 1970.
    pub(crate) fn parse(query: &Query, rights: Rights) -> Result<HistoryQuestion, String> {
        let time = |name: &str| {
            query.text(name).parse::<u64>().map_err(|_| format!("{name} is no time in seconds since 1970"))
        };
        let (from, to) = (time("from")?, time("to")?);
        let dimension = match query.text("dimension") {
            "" => Dimension::HostOut,
            word => Dimension::of_name(word)
                .filter(|dimension| KEPT.contains(dimension))
                .ok_or_else(|| format!("{word} is no dimension of the history"))?,
        };
        if dimension == Dimension::Name && rights < Rights::Names {
            return Err("this token is for counts, not for names".to_owned());
        }
        if from >= to {
            return Err("the window ends before it begins".to_owned());
        }
        let rows = query.number("rows", 50, 1, ROWS_MAX) as usize;
        Ok(HistoryQuestion::of(dimension, from, to, rows))
    }

    /// The question for a window of seconds since 1970.
    pub(crate) fn of(dimension: Dimension, from: u64, to: u64, rows: usize) -> HistoryQuestion {
        let is_short = (to - from) / 60 <= MINUTES_MAX;
        let tier = if is_short { Tier::Minute } else { Tier::Hour };
        let len = tier.len_ns() / 1_000_000_000;
        let (first, end) = (from / len, to.div_ceil(len));
        let most = if is_short { MINUTES_MAX + 1 } else { HOURS_MAX };
        HistoryQuestion { dimension, tier, buckets: (end.saturating_sub(most).max(first), end), rows }
    }
}

impl History {
    /// Answers a question.
    pub(crate) fn answer(&self, question: &HistoryQuestion) -> Result<HistoryAnswer, Error> {
        self.ask(question).map_err(Error::history(&self.path))
    }

    /// The greatest keys of a window of seconds since 1970.
    ///
    /// # Errors
    /// [`Error::History`].
    pub fn greatest(
        &self,
        dimension: Dimension,
        from: u64,
        to: u64,
        rows: usize,
    ) -> Result<HistoryAnswer, Error> {
        self.answer(&HistoryQuestion::of(dimension, from, to.max(from + 1), rows))
    }

    fn ask(&self, question: &HistoryQuestion) -> rusqlite::Result<HistoryAnswer> {
        let HistoryQuestion { dimension, tier, buckets: (first, end), rows, .. } = *question;
        let step = ((end - first) as usize).div_ceil(POINTS_MAX).max(1) as u64;
        let mut answer = HistoryAnswer { step, ..HistoryAnswer::default() };
        let mut statement = self.connection.prepare_cached(
            "SELECT bucket, seconds, packets, bytes, lost_ring + lost_daemon, metered, flow_bytes, not_ip,
             cut + sampled_out, flows, metered_bytes FROM total WHERE tier = ?1 AND bucket >= ?2 AND bucket < ?3",
        )?;
        let mut found = statement.query(params![tier as i64, first as i64, end as i64])?;
        while let Some(row) = found.next()? {
            let number = |at: usize| row.get::<_, i64>(at);
            answer.buckets += 1;
            answer.add_point(
                number(0)? as u64 / step * step,
                row.get(1)?,
                [number(2)?, number(3)?, number(4)?],
            );
            for (sum, at) in answer.sums.iter_mut().zip([2, 3, 4, 5, 6, 7, 8, 9]) {
                *sum = sum.saturating_add(number(at)?);
            }
        }
        answer.table = self.sum(tier, dimension, (first, end), rows)?;
        answer.span = self.connection.query_row(
            "SELECT min(bucket), max(bucket) FROM total WHERE tier = ?1",
            [tier as i64],
            |row| Ok(row.get::<_, Option<i64>>(0)?.zip(row.get(1)?)),
        )?;
        Ok(answer)
    }

    /// The tables of some buckets added up. Keys are numbers until the greatest are known.
    fn sum(
        &self,
        tier: Tier,
        dimension: Dimension,
        (first, end): (u64, u64),
        most: usize,
    ) -> rusqlite::Result<Table> {
        let mut rows: HashMap<i64, (Row, Amount)> = HashMap::new();
        let mut sum = Table::default();
        let mut statement = self.connection.prepare_cached("SELECT v FROM roll WHERE k >= ?1 AND k < ?2")?;
        let range = [roll_key(tier, dimension, first), roll_key(tier, dimension, end)];
        let mut found = statement.query(range)?;
        while let Some(found) = found.next()? {
            let Some(table) = record::table_of(found.get_ref(0)?.as_blob()?) else { continue };
            for (id, row) in &table.rows {
                let (all, present) = rows.entry(*id).or_default();
                all.append(row);
                present.add(table.rest.missing);
            }
            sum.others.add(table.rest.others);
            sum.others_flows = sum.others_flows.max(table.rest.others_flows);
            sum.missing.add(table.rest.missing);
        }
        let missing = sum.missing;
        let mut greatest: Vec<(i64, Row)> = rows
            .into_iter()
            .map(|(id, (mut row, present))| {
                row.error.add(missing.less(present));
                (id, row)
            })
            .collect();
        greatest.sort_unstable_by_key(|(id, row)| (std::cmp::Reverse(row.amount.bytes), *id));
        for (_, row) in greatest.drain(most.min(greatest.len())..) {
            sum.others.add(row.amount);
        }
        for (id, row) in greatest {
            sum.rows.push(Row { key: key_of(&self.connection, id)?, ..row });
        }
        Ok(sum)
    }
}

impl HistoryAnswer {
    /// Packets of the window: offered to the interface, and of these lost.
    pub fn packets(&self) -> (i64, i64) {
        (self.sums[0], self.sums[2])
    }

    fn add_point(&mut self, at: u64, seconds: f64, [packets, bytes, lost]: [i64; 3]) {
        let is_new = self.points.last().is_none_or(|point| point.at != at);
        if is_new {
            self.points.push(Point { at, ..Point::default() });
        }
        if let Some(point) = self.points.last_mut() {
            point.seconds += seconds;
            point.packets = point.packets.saturating_add(packets);
            point.bytes = point.bytes.saturating_add(bytes);
            point.lost = point.lost.saturating_add(lost);
        }
    }

    /// The answer as the page has it.
    pub(crate) fn to_json(&self, question: &HistoryQuestion) -> Value {
        let len = question.tier.len_ns() / 1_000_000_000;
        let column = |of: &dyn Fn(&Point) -> Value| self.points.iter().map(of).collect::<Vec<_>>();
        let rate = |count: i64, seconds: f64| json!(count as f64 / seconds.max(1.0));
        let rows = self.table.rows.iter().map(|row| {
            let mut object = key_json(question.dimension, &row.key);
            object.insert("amount".into(), json!([row.amount.packets, row.amount.bytes]));
            object.insert("first".into(), json!([row.first.packets, row.first.bytes]));
            object.insert("error".into(), json!([row.error.packets, row.error.bytes]));
            object.insert("flows".into(), json!(row.flows));
            Value::Object(object)
        });
        let [offered, bytes, lost, _, flow_bytes, not_ip, unread, _] = self.sums;
        json!({
            "tier": if question.tier == Tier::Minute { "minute" } else { "hour" },
            "seconds": self.points.iter().map(|point| point.seconds).sum::<f64>(),
            "step_seconds": self.step * len,
            "buckets": self.buckets,
            "span": self.span.map(|(first, last)| [first * len as i64, (last + 1) * len as i64]),
            "t": column(&|point| json!(point.at * len)),
            "bits": column(&|point| rate(point.bytes.saturating_mul(8), point.seconds)),
            "packets": column(&|point| rate(point.packets, point.seconds)),
            "lost": column(&|point| json!(point.lost)),
            "table": {
                "rows": rows.collect::<Vec<_>>(),
                "others": [self.table.others.packets, self.table.others.bytes, self.table.others_flows],
                "missing": [self.table.missing.packets, self.table.missing.bytes],
                "unfitting": [0, 0],
                "not_ip": [not_ip, 0],
                "unread": [unread, 0],
                "framing": bytes.saturating_sub(flow_bytes),
                "lost": lost,
                "sum": [offered, bytes],
            },
        })
    }
}
