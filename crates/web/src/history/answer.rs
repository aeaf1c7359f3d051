//! Questions to the history: any window, one dimension.
//!
//! ```text
//! up to two days   minutes
//! beyond           |hours|-------------- days --------------|hours|minutes|      the chart: hours
//!                   '-- edges of the window                  today  '-- the hour that is not over
//! ```
//!
//! A day's table stands for its hours only where it has all of their seconds, and an hour's for its minutes: what a
//! killed writer did not come to write is answered from the shorter buckets.

use std::collections::{BTreeMap, HashMap};

use rusqlite::params;
use tapline_pages::{PastWindow, Rights, SumRow, SumTable};
use tapline_view::{Amount, Dimension, Row, Table};

use super::{History, KEPT, Tier, key_of, record, roll_key};
use crate::error::Error;
use crate::query::Query;

/// Minutes that are read for one answer; longer windows are answered by hours and days.
const MINUTES_MAX: u64 = 2 * 24 * 60;
/// Buckets of hours: two years.
const HOURS_MAX: u64 = 2 * 366 * 24;
/// Points of a chart.
const POINTS_MAX: usize = 600;
const ROWS_MAX: u64 = 100;
/// Two sums of the same seconds differ by less.
const SECONDS_EQUAL: f64 = 0.5;

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HistoryQuestion {
    dimension: Dimension,
    tier: Tier,
    /// The first bucket, and the one after the last.
    buckets: (u64, u64),
    rows: usize,
    rights: Rights,
}

/// The totals of a bucket, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Totals {
    seconds: f64,
    counts: [i64; Totals::COUNTS],
}

impl Totals {
    const COUNTS: usize = 7;
    const COLUMNS: &str =
        "packets, bytes, lost_ring + lost_daemon, metered_bytes, flow_bytes, not_ip, cut + sampled_out";

    fn add(&mut self, other: &Totals) {
        self.seconds += other.seconds;
        for (ours, theirs) in self.counts.iter_mut().zip(other.counts) {
            *ours = ours.saturating_add(theirs);
        }
    }
}

/// The answer: totals over time, and the greatest keys of the window.
#[derive(Clone, Debug)]
pub struct HistoryAnswer {
    /// What the page shows.
    pub window: PastWindow,
    /// The greatest keys, with those of all buckets added.
    pub table: Table,
}

impl HistoryAnswer {
    /// Buckets that are there.
    pub fn buckets(&self) -> usize {
        self.window.buckets
    }

    /// Packets of the window: offered to the interface, and of these lost.
    pub fn packets(&self) -> (u64, u64) {
        (self.window.table.sum[0], self.window.table.lost)
    }
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
        Ok(HistoryQuestion { rights, ..HistoryQuestion::of(dimension, from, to, rows) })
    }

    /// The question for a window of seconds since 1970.
    pub(crate) fn of(dimension: Dimension, from: u64, to: u64, rows: usize) -> HistoryQuestion {
        let is_short = (to - from) / 60 <= MINUTES_MAX;
        let tier = if is_short { Tier::Minute } else { Tier::Hour };
        let (first, end) = (from / tier.seconds(), to.div_ceil(tier.seconds()));
        let most = if is_short { MINUTES_MAX + 1 } else { HOURS_MAX };
        let buckets = (end.saturating_sub(most).max(first), end);
        HistoryQuestion { dimension, tier, buckets, rows, rights: Rights::Packets }
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
        let HistoryQuestion { dimension, tier, buckets: range, rows, .. } = *question;
        let mut totals = self.totals(tier, range)?;
        let buckets = match tier {
            Tier::Minute => totals.keys().map(|bucket| (Tier::Minute, *bucket)).collect(),
            Tier::Hour | Tier::Day => self.cover(&mut totals, range)?,
        };
        let table = self.sum(dimension, &buckets, rows)?;
        let span = self.connection.query_row(
            "SELECT min(bucket), max(bucket) FROM total WHERE tier = ?1",
            [tier as i64],
            |row| Ok(row.get::<_, Option<i64>>(0)?.zip(row.get::<_, Option<i64>>(1)?)),
        )?;
        let len = tier.seconds() as i64;
        let mut window = window(question, &totals, &table);
        window.span = span.map(|(first, last)| [first * len, (last + 1) * len]);
        Ok(HistoryAnswer { window, table })
    }

    /// The totals of a tier's buckets.
    fn totals(&self, tier: Tier, (first, end): (u64, u64)) -> rusqlite::Result<BTreeMap<u64, Totals>> {
        let text = format!(
            "SELECT bucket, seconds, {} FROM total WHERE tier = ?1 AND bucket >= ?2 AND bucket < ?3",
            Totals::COLUMNS
        );
        let mut statement = self.connection.prepare_cached(&text)?;
        let found = statement.query_map(params![tier as i64, first as i64, end as i64], |row| {
            let mut totals = Totals { seconds: row.get(1)?, ..Totals::default() };
            for (at, count) in totals.counts.iter_mut().enumerate() {
                *count = row.get(2 + at)?;
            }
            Ok((row.get::<_, i64>(0)? as u64, totals))
        })?;
        found.collect()
    }

    /// The fewest buckets that have all seconds of a window of hours. `hours` gets what is known by the minute alone.
    fn cover(
        &self,
        hours: &mut BTreeMap<u64, Totals>,
        (first, end): (u64, u64),
    ) -> rusqlite::Result<Vec<(Tier, u64)>> {
        const MINUTES: u64 = 60;
        const HOURS: u64 = 24;
        let mut buckets = Vec::new();
        // The last hour of the file may lack minutes, and those after it have no hour yet.
        let last = hours.keys().next_back().copied().unwrap_or(first);
        let mut by_hour = BTreeMap::<u64, (Totals, Vec<u64>)>::new();
        // There are few: a writer makes hours of all others when it opens the file.
        for (minute, totals) in self.totals(Tier::Minute, (last * MINUTES, end * MINUTES))? {
            let (sum, minutes) = by_hour.entry(minute / MINUTES).or_default();
            sum.add(&totals);
            minutes.push(minute);
        }
        let mut by_minutes = Vec::new();
        for (hour, (sum, minutes)) in by_hour {
            if hours.get(&hour).is_none_or(|known| known.seconds + SECONDS_EQUAL < sum.seconds) {
                hours.insert(hour, sum);
                by_minutes.push(hour);
                buckets.extend(minutes.into_iter().map(|minute| (Tier::Minute, minute)));
            }
        }
        let days = self.totals(Tier::Day, (first.div_ceil(HOURS), end / HOURS))?;
        let is_whole = |day: u64, known: &Totals| {
            let its = hours.range(day * HOURS..(day + 1) * HOURS).map(|(_, hour)| hour.seconds).sum::<f64>();
            known.seconds + SECONDS_EQUAL >= its
        };
        let whole: Vec<u64> =
            days.iter().filter(|(day, known)| is_whole(**day, known)).map(|(day, _)| *day).collect();
        buckets.extend(whole.iter().map(|day| (Tier::Day, *day)));
        let rest = hours.keys().filter(|hour| {
            whole.binary_search(&(**hour / HOURS)).is_err() && by_minutes.binary_search(hour).is_err()
        });
        buckets.extend(rest.map(|hour| (Tier::Hour, *hour)));
        Ok(buckets)
    }

    /// The tables of some buckets added up. Keys are numbers until the greatest are known.
    fn sum(&self, dimension: Dimension, buckets: &[(Tier, u64)], most: usize) -> rusqlite::Result<Table> {
        let mut rows: HashMap<i64, (Row, Amount)> = HashMap::new();
        let mut sum = Table::default();
        let mut statement = self.connection.prepare_cached("SELECT v FROM roll WHERE k = ?1")?;
        for (tier, bucket) in buckets {
            let mut found = statement.query([roll_key(*tier, dimension, *bucket)])?;
            let Some(found) = found.next()? else { continue };
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

/// Totals and table as the page has them.
fn window(question: &HistoryQuestion, totals: &BTreeMap<u64, Totals>, table: &Table) -> PastWindow {
    let (first, end) = question.buckets;
    let step = ((end - first) as usize).div_ceil(POINTS_MAX).max(1) as u64;
    let mut points = BTreeMap::<u64, Totals>::new();
    let mut sum = Totals::default();
    for (bucket, totals) in totals {
        points.entry(bucket / step * step).or_default().add(totals);
        sum.add(totals);
    }
    let len = question.tier.seconds();
    let rate = |count: i64, seconds: f64| count as f64 / seconds.max(1.0);
    PastWindow {
        dimension: question.dimension,
        tier: question.tier.name(),
        seconds: sum.seconds,
        step_seconds: step * len,
        buckets: totals.len(),
        span: None,
        t: points.keys().map(|bucket| bucket * len).collect(),
        bits: points.values().map(|point| rate(point.counts[1].saturating_mul(8), point.seconds)).collect(),
        packets: points.values().map(|point| rate(point.counts[0], point.seconds)).collect(),
        lost: points.values().map(|point| point.counts[2]).collect(),
        table: sum_table(question, &sum, table),
    }
}

fn sum_table(question: &HistoryQuestion, sum: &Totals, table: &Table) -> SumTable {
    let Table { rows, others, others_flows, missing } = table;
    let [packets, bytes, lost, _, flow_bytes, not_ip, unread] = sum.counts.map(|count| count.max(0) as u64);
    SumTable {
        rows: rows.iter().map(|row| SumRow::of(question.dimension, row, question.rights)).collect(),
        others: [others.packets, others.bytes, *others_flows],
        unfitting: [0, 0],
        missing: [missing.packets, missing.bytes],
        // Of their frames' bytes the sum is kept alone: they stand under `framing`.
        not_ip: [not_ip, 0],
        unread: [unread, 0],
        framing: (bytes as i64).saturating_sub(flow_bytes as i64),
        lost,
        sum: [packets, bytes],
    }
}
