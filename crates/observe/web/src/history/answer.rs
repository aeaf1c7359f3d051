//! Questions to the history: any window, one dimension.
//!
//! ```text
//! up to two days   |days|hours|---------- minutes ----------|                   the chart: the longest of these
//!                   '-- where shorter buckets are no longer kept
//! beyond           |hours|-------------- days --------------|hours|minutes|      the chart: hours
//!                   '-- edges of the window                  today  '-- the hour that is not over
//! ```
//!
//! A day's table replaces its hours only if it has all of their seconds, and an hour's its minutes: seconds that a
//! killed writer did not write there are answered from the shorter buckets. If a bucket has seconds that its parts
//! lack, because these are too old or were not written, it is read in their place, whole: a window is then wider at
//! its edges, and its answer names the longer bucket.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rusqlite::params;
use tapline_pages::{PastWindow, Rights, Stack, StackPoint, SumRow, SumTable};
use tapline_view::{Amount, Dimension, Row, Table};

use super::{History, KEPT, Tier, key_of, record, roll_key};
use crate::error::Error;
use crate::query::Query;

/// Minutes that are read for one answer; longer windows are answered by hours and days.
const MINUTES_MAX: u64 = 2 * 24 * 60;
/// Buckets of hours: two years.
const HOURS_MAX: u64 = 2 * 366 * 24;
/// Points of a chart.
const POINTS_MAX: u64 = 600;
const ROWS_MAX: u64 = 100;
/// Tables of one chart with layers: minutes of two days, hours of a quarter; longer windows have layers by the day.
const STACK_TABLES_MAX: usize = 3000;
/// Two sums of the same seconds differ by less.
const SECONDS_EQUAL: f64 = 0.5;
/// A part of a window is measured if buckets have so much of its seconds.
const SHARE_MEASURED: f64 = 0.98;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HistoryQuestion {
    dimension: Dimension,
    tier: Tier,
    /// The first bucket that was asked for.
    first: u64,
    /// The first bucket, and the one after the last.
    buckets: (u64, u64),
    rows: usize,
    /// The dimension of the chart's layers, if it has some.
    stack: Option<Dimension>,
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

/// A bucket that answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) tier: Tier,
    pub(super) bucket: u64,
    totals: Totals,
}

/// The buckets of each point of a chart.
pub(super) struct Points {
    pub(super) tier: &'static str,
    pub(super) step_seconds: u64,
    /// By the begin of the point, in seconds since 1970.
    pub(super) pieces: BTreeMap<u64, Vec<Piece>>,
}

impl Piece {
    /// Seconds that were measured.
    pub(super) fn seconds(&self) -> f64 {
        self.totals.seconds
    }

    /// Begin and end of the bucket, in seconds since 1970.
    pub(super) fn span(&self) -> [u64; 2] {
        [self.begin(), self.begin() + self.tier.seconds()]
    }

    /// Begin of the bucket, in seconds since 1970.
    fn begin(&self) -> u64 {
        self.bucket * self.tier.seconds()
    }

    fn is_in(&self, (from, to): (u64, u64)) -> bool {
        self.begin() < to && self.begin() + self.tier.seconds() > from
    }
}

/// An hour of the days of a window.
#[derive(Debug)]
struct HourPieces {
    /// Seconds of all of it, also outside the window.
    seconds: f64,
    /// The pieces that answer for the part that is in the window.
    pieces: Vec<Piece>,
}

/// The buckets that answer a question; both lists have the same seconds.
#[derive(Debug, Default)]
struct Cover {
    /// The shortest, for the chart.
    chart: Vec<Piece>,
    /// The fewest, for the table.
    table: Vec<Piece>,
}

/// The answer: totals over time, and the greatest keys of the window.
#[derive(Clone, Debug)]
pub struct HistoryAnswer {
    /// The window that the page shows.
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
        let window = HistoryQuestion::window_of(query)?;
        let dimension = match query.text("dimension") {
            "" => Dimension::HostOut,
            word => Dimension::of_name(word)
                .filter(|dimension| KEPT.contains(dimension))
                .ok_or_else(|| format!("{word} is not a dimension of the history"))?,
        };
        if dimension == Dimension::Name && rights < Rights::Names {
            return Err("this token is for counts, not for names".to_owned());
        }
        let rows = query.number("rows", 50, 1, ROWS_MAX) as usize;
        Ok(HistoryQuestion { dimension, rows, stack: query.stack(), rights, ..window })
    }

    /// The window of an address, `from` and `to`.
    pub(crate) fn window_of(query: &Query) -> Result<HistoryQuestion, String> {
        let time = |name: &str| {
            query.text(name).parse::<u64>().map_err(|_| format!("{name} is not a time in seconds since 1970"))
        };
        let (from, to) = (time("from")?, time("to")?);
        match from < to {
            true => Ok(HistoryQuestion::of(Dimension::HostOut, from, to, 1)),
            false => Err("the window ends before it begins".to_owned()),
        }
    }

    /// The question for a window of seconds since 1970.
    pub(crate) fn of(dimension: Dimension, from: u64, to: u64, rows: usize) -> HistoryQuestion {
        let is_short = (to - from) / 60 <= MINUTES_MAX;
        let tier = if is_short { Tier::Minute } else { Tier::Hour };
        let (first, end) = (from / tier.seconds(), to.div_ceil(tier.seconds()));
        let (buckets, rights) = ((first, end), Rights::Packets);
        let question = HistoryQuestion { dimension, tier, first, buckets, rows, stack: None, rights };
        question.ending(end)
    }

    /// The question with another end, and the buckets before it as far as they are answered.
    fn ending(self, end: u64) -> HistoryQuestion {
        let most = if self.tier == Tier::Minute { MINUTES_MAX + 1 } else { HOURS_MAX };
        HistoryQuestion { buckets: (end.saturating_sub(most).max(self.first), end), ..self }
    }

    /// The question for kept data: of a window that is too long the part before `end`, in seconds since 1970.
    fn before(self, end: u64) -> HistoryQuestion {
        let end = end.div_ceil(self.tier.seconds());
        let is_cut = self.buckets.0 > self.first;
        if is_cut && (self.first..self.buckets.1).contains(&end) { self.ending(end) } else { self }
    }

    /// The window in seconds since 1970, widened to whole buckets.
    fn window(&self) -> (u64, u64) {
        let len = self.tier.seconds();
        (self.buckets.0.saturating_mul(len), self.buckets.1.saturating_mul(len))
    }
}

impl History {
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
        // All of it is of one moment: a writer may go on meanwhile.
        let _moment = self.connection.unchecked_transaction()?;
        let question = &question.before(self.end()?);
        let cover = self.cover(question)?;
        let table = self.sum(question.dimension, &cover.table, question.rows)?;
        let tier = cover.tier(question);
        let span = self.connection.query_row(
            "SELECT min(bucket), max(bucket) FROM total WHERE tier = ?1",
            [tier as i64],
            |row| Ok(row.get::<_, Option<i64>>(0)?.zip(row.get::<_, Option<i64>>(1)?)),
        )?;
        let len = tier.seconds() as i64;
        let mut window = window(question, tier, &cover, &table);
        window.stack = question.stack.map(|by| self.stack(by, question, &cover)).transpose()?;
        window.span = span.map(|(first, last)| [first * len, (last + 1) * len]);
        Ok(HistoryAnswer { window, table })
    }

    /// The buckets of a window, by the points of its chart.
    pub(super) fn points(&self, question: &HistoryQuestion) -> rusqlite::Result<Points> {
        let question = &question.before(self.end()?);
        let cover = self.cover(question)?;
        let tier = cover.tier(question);
        let (len, step) = (tier.seconds(), step(question, tier));
        let mut pieces = BTreeMap::<u64, Vec<Piece>>::new();
        for piece in cover.chart {
            pieces.entry(piece.begin() / len / step * step * len).or_default().push(piece);
        }
        Ok(Points { tier: tier.name(), step_seconds: step * len, pieces })
    }

    /// The end of the last bucket, in seconds since 1970.
    fn end(&self) -> rusqlite::Result<u64> {
        let mut ends = [0; Tier::ALL.len()];
        let mut statement =
            self.connection.prepare_cached("SELECT max(bucket) + 1 FROM total WHERE tier = ?1")?;
        for (end, tier) in ends.iter_mut().zip(Tier::ALL) {
            let buckets: Option<i64> = statement.query_row([tier as i64], |row| row.get(0))?;
            *end = buckets.unwrap_or(0).max(0) as u64 * tier.seconds();
        }
        Ok(ends.into_iter().max().unwrap_or(0))
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

    /// The buckets that have all seconds of a window.
    fn cover(&self, question: &HistoryQuestion) -> rusqlite::Result<Cover> {
        const HOURS: u64 = 24;
        let window @ (from, to) = question.window();
        let day = Tier::Day.seconds();
        let days = self.totals(Tier::Day, (from / day, to.div_ceil(day)))?;
        let by_hour = self.by_hour(question)?;
        let numbers: BTreeSet<u64> =
            days.keys().copied().chain(by_hour.keys().map(|hour| hour / HOURS)).collect();
        let mut cover = Cover::default();
        for number in numbers {
            let hours = by_hour.range(number * HOURS..(number + 1) * HOURS).map(|(_, hour)| hour);
            let measured = hours.clone().map(|hour| hour.seconds).sum();
            let parts = hours.flat_map(|hour| &hour.pieces).copied().collect();
            let whole =
                days.get(&number).map(|totals| Piece { tier: Tier::Day, bucket: number, totals: *totals });
            let chosen = whole_or_parts(whole, measured, parts, window);
            let stands_for_all = |whole: &Piece| {
                let is_inside = from <= whole.begin() && whole.begin() + day <= to;
                is_inside && whole.totals.seconds + SECONDS_EQUAL >= measured
            };
            match whole.filter(|whole| question.tier > Tier::Minute && stands_for_all(whole)) {
                Some(whole) => cover.table.push(whole),
                None => cover.table.extend(chosen.iter().copied()),
            }
            cover.chart.extend(chosen);
        }
        Ok(cover)
    }

    /// The hours of the days of a window, each as a bucket or as its minutes.
    fn by_hour(&self, question: &HistoryQuestion) -> rusqlite::Result<BTreeMap<u64, HourPieces>> {
        const MINUTES: u64 = 60;
        const HOURS: u64 = 24;
        let window @ (from, to) = question.window();
        let (day, hour) = (Tier::Day.seconds(), Tier::Hour.seconds());
        let hours = self.totals(Tier::Hour, (from / day * HOURS, to.div_ceil(day) * HOURS))?;
        let is_short = question.tier == Tier::Minute;
        // The last hour of the file may lack minutes, and those after it have no hour yet. Before it there are few that
        // a long window needs: a writer makes hours of all others when it opens the file.
        let last = hours.keys().next_back().copied().filter(|_| !is_short);
        let first = last.unwrap_or(0).max(from / hour);
        let mut minutes = BTreeMap::<u64, Vec<Piece>>::new();
        for (bucket, totals) in self.totals(Tier::Minute, (first * MINUTES, to.div_ceil(hour) * MINUTES))? {
            let piece = Piece { tier: Tier::Minute, bucket, totals };
            minutes.entry(bucket / MINUTES).or_default().push(piece);
        }
        let numbers: BTreeSet<u64> = hours.keys().chain(minutes.keys()).copied().collect();
        let found = numbers.into_iter().map(|number| {
            let parts = minutes.remove(&number).unwrap_or_default();
            let whole =
                hours.get(&number).map(|totals| Piece { tier: Tier::Hour, bucket: number, totals: *totals });
            let measured = parts.iter().map(|part| part.totals.seconds).sum::<f64>();
            let seconds = whole.map_or(measured, |whole| whole.totals.seconds.max(measured));
            let is_enough = |whole: &Piece| {
                !is_short && whole.is_in(window) && whole.totals.seconds + SECONDS_EQUAL >= measured
            };
            let pieces = match whole.filter(is_enough) {
                Some(whole) => vec![whole],
                None => whole_or_parts(whole, measured, parts, window),
            };
            (number, HourPieces { seconds, pieces })
        });
        Ok(found.collect())
    }

    /// The layers of a window's chart, by its buckets or by those of its table.
    fn stack(&self, by: Dimension, question: &HistoryQuestion, cover: &Cover) -> rusqlite::Result<Stack> {
        let is_short = cover.chart.len() <= STACK_TABLES_MAX;
        let pieces = if is_short { &cover.chart } else { &cover.table };
        let tier = pieces.iter().map(|piece| piece.tier).max().unwrap_or(question.tier);
        let step = step(question, tier) * tier.seconds();
        let mut points = BTreeMap::<u64, StackPoint<i64>>::new();
        let mut statement = self.connection.prepare_cached("SELECT v FROM roll WHERE k = ?1")?;
        for piece in pieces {
            let mut found = statement.query([roll_key(piece.tier, by, piece.bucket)])?;
            let Some(found) = found.next()? else { continue };
            let Some(table) = record::table_of(found.get_ref(0)?.as_blob()?) else { continue };
            let begin = piece.begin() / step * step;
            let point = points.entry(begin).or_default();
            point.t = begin as f64;
            point.len_ns += (piece.totals.seconds * 1e9) as u64;
            point.sum.add(table.rest.others);
            for (id, row) in table.rows {
                point.sum.add(row.amount);
                point.rows.push((id, row.amount));
            }
        }
        let points: Vec<_> = points.into_values().collect();
        Stack::of_points(by, step, &points, |id| key_of(&self.connection, id))
    }

    /// The tables of some buckets added up. Keys are numbers until the greatest are known.
    fn sum(&self, dimension: Dimension, pieces: &[Piece], most: usize) -> rusqlite::Result<Table> {
        let mut rows: HashMap<i64, (Row, Amount)> = HashMap::new();
        let mut sum = Table::default();
        let mut statement = self.connection.prepare_cached("SELECT v FROM roll WHERE k = ?1")?;
        for piece in pieces {
            let mut found = statement.query([roll_key(piece.tier, dimension, piece.bucket)])?;
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

/// The parts of a bucket that are in a window; the bucket itself where it has seconds of the window that they lack.
/// `seconds` is the time that all of its parts measured.
fn whole_or_parts(whole: Option<Piece>, seconds: f64, parts: Vec<Piece>, window: (u64, u64)) -> Vec<Piece> {
    let inside: Vec<Piece> = parts.into_iter().filter(|part| part.is_in(window)).collect();
    let measured: f64 = inside.iter().map(|part| part.totals.seconds).sum();
    let is_lacking = |whole: &Piece| {
        let end = (whole.begin() + whole.tier.seconds()).min(window.1);
        let len = end.saturating_sub(whole.begin().max(window.0)) as f64;
        whole.totals.seconds > seconds + SECONDS_EQUAL && measured < SHARE_MEASURED * len
    };
    match whole.filter(|whole| whole.is_in(window) && is_lacking(whole)) {
        Some(whole) => vec![whole],
        None => inside,
    }
}

impl Cover {
    /// The longest bucket of the chart.
    fn tier(&self, question: &HistoryQuestion) -> Tier {
        self.chart.iter().map(|piece| piece.tier).max().unwrap_or(question.tier).max(question.tier)
    }
}

/// Buckets of `tier` between two points of a chart.
fn step(question: &HistoryQuestion, tier: Tier) -> u64 {
    let (len, (from, to)) = (tier.seconds(), question.window());
    (to.div_ceil(len) - from / len).div_ceil(POINTS_MAX).max(1)
}

/// Totals and table as the page has them, in buckets of `tier`.
fn window(question: &HistoryQuestion, tier: Tier, cover: &Cover, table: &Table) -> PastWindow {
    let (len, step) = (tier.seconds(), step(question, tier));
    let mut points = BTreeMap::<u64, Totals>::new();
    let mut buckets = BTreeSet::new();
    for piece in &cover.chart {
        let bucket = piece.begin() / len;
        buckets.insert(bucket);
        points.entry(bucket / step * step).or_default().add(&piece.totals);
    }
    let mut sum = Totals::default();
    cover.table.iter().for_each(|piece| sum.add(&piece.totals));
    let rate = |count: i64, seconds: f64| count as f64 / seconds.max(1.0);
    PastWindow {
        dimension: question.dimension,
        tier: tier.name(),
        seconds: sum.seconds,
        step_seconds: step * len,
        buckets: buckets.len(),
        span: None,
        t: points.keys().map(|bucket| bucket * len).collect(),
        bits: points.values().map(|point| rate(point.counts[1].saturating_mul(8), point.seconds)).collect(),
        packets: points.values().map(|point| rate(point.counts[0], point.seconds)).collect(),
        lost: points.values().map(|point| point.counts[2]).collect(),
        stack: None,
        names: BTreeMap::new(),
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tapline_view::{Key, Reading, Second};

    use super::*;
    use crate::history::HistoryLimits;

    const BEGIN: u64 = 1_790_000_000 / 86_400 * 86_400;

    /// A second with eight hosts, and others.
    fn reading(end: u64) -> Reading {
        let host = |number: u8| Row {
            key: Key::host(Ipv4Addr::new(10, 0, 0, number).into()),
            amount: Amount { packets: number.into(), bytes: 1000 * u64::from(number) },
            ..Row::default()
        };
        let others = Amount { packets: 3, bytes: 3000 };
        let table = Table { rows: (1..=8).rev().map(host).collect(), others, ..Table::default() };
        let Amount { packets, bytes } = table.sum();
        let (end_ns, len_ns) = (end * 1_000_000_000, 1_000_000_000);
        let second = Second { end_ns, len_ns, metered: packets, flow_bytes: bytes, ..Second::default() };
        Reading { number: end, second, tables: std::array::from_fn(|_| table.clone()) }
    }

    #[test]
    fn layers_of_the_past_add_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("history.sqlite");
        let mut history = History::open(&path, HistoryLimits::default()).expect("a history");
        // Minutes of a day, of which one is missing.
        for minute in (0..1440).filter(|minute| *minute != 2) {
            history.add(&reading(BEGIN + 60 * minute + 1), u64::MAX).expect("it is written");
        }
        history.finish().expect("it is written");
        let question = |days: u64| HistoryQuestion {
            stack: Some(Dimension::HostIn),
            ..HistoryQuestion::of(Dimension::Pair, BEGIN, BEGIN + days * 86_400, 10)
        };
        let of_window =
            |days: u64| history.answer(&question(days)).expect("an answer").window.stack.expect("layers");
        // Beyond 3,000 tables those of days are read.
        let Cover { chart, table } = history.cover(&question(365)).expect("buckets");
        let long = Cover { chart: chart.into_iter().cycle().take(STACK_TABLES_MAX + 1).collect(), table };
        let by_day = history.stack(Dimension::HostIn, &question(365), &long).expect("layers");
        for (stack, step, points) in [
            (of_window(1), 180, 480),
            (of_window(30), 7200, 12),
            (of_window(365), 54_000, 2),
            (by_day, 86_400, 1),
        ] {
            assert_eq!((stack.by, stack.step_seconds, stack.t.len()), ("host_in", step, points));
            assert_eq!(stack.t[0], (BEGIN / step * step) as f64);
            // In each second the six greatest have 8 to 3 packets; 2, 1 and 3 are among all others.
            let first: Vec<f64> = stack.rows.iter().map(|row| row.layer.packets[0]).collect();
            assert_eq!(first, [8.0, 7.0, 6.0, 5.0, 4.0, 3.0]);
            assert!(stack.others.packets.iter().all(|packets| *packets == 6.0), "{step}");
            assert!(stack.others.bits.iter().all(|bits| *bits == 48_000.0), "{step}");
        }
    }
}
