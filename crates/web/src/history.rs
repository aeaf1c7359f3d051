//! The history: minutes for 60 days, hours and days for two years, in one SQLite file of bounded size.
//!
//! ```text
//! Reading, each second --TableSum--> minute --+--> roll(tier, dimension, bucket): rows of the greatest, others
//!                      --TableSum--> hour ----+    total(tier, bucket): counters, losses
//!                      --TableSum--> day -----'
//! ```
//!
//! Hours and days are made of seconds, not of cut minutes. Only where a killed writer left them behind are they made of
//! the minutes, when the file is opened next. Each day is one table, so that a year is read as 365. Buckets that are
//! over wait in memory for their transaction, and for the next one if it fails. The file is in WAL mode, so that other
//! programs read it while this one writes; `docs/view.md` has its tables.

mod answer;
mod record;
mod recover;
mod waiting;

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use tapline_view::{Dimension, Key, Reading, Second, Table, TableSum};

pub use answer::HistoryAnswer;
pub(crate) use answer::HistoryQuestion;
use waiting::{Waiting, WholeBucket};

use crate::error::Error;

const VERSION: i64 = 1;
const MINUTE_NS: u64 = 60_000_000_000;
/// Seconds that end so much later than now are not kept: what is too old is told by the latest second, and that of a
/// capture file may be of any time.
const AHEAD_MAX_NS: u64 = 3_600_000_000_000;
/// Names that are looked at together when those without a row are taken away.
const NAMES_AT_ONCE: usize = 1 << 26;
/// Rows of a sum that is being made, beyond which it is cut to half.
const SUM_ROWS_MAX: usize = 4096;

/// Dimensions that are kept. Flows are not: the probe's Parquet has each.
const KEPT: [Dimension; 7] = [
    Dimension::HostIn,
    Dimension::HostOut,
    Dimension::Pair,
    Dimension::Service,
    Dimension::Name,
    Dimension::Segment,
    Dimension::Interface,
];

/// A length of buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    Minute = 1,
    Hour = 2,
    Day = 3,
}

impl Tier {
    const ALL: [Tier; 3] = [Tier::Minute, Tier::Hour, Tier::Day];

    /// The length of a bucket.
    pub(crate) const fn len_ns(self) -> u64 {
        match self {
            Tier::Minute => MINUTE_NS,
            Tier::Hour => 60 * MINUTE_NS,
            Tier::Day => 24 * 60 * MINUTE_NS,
        }
    }

    /// The length of a bucket in seconds.
    pub(crate) const fn seconds(self) -> u64 {
        self.len_ns() / 1_000_000_000
    }

    /// The tier as one word.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Tier::Minute => "minute",
            Tier::Hour => "hour",
            Tier::Day => "day",
        }
    }

    /// Rows of a table.
    const fn rows(self) -> usize {
        match self {
            Tier::Minute => 50,
            Tier::Hour => 200,
            Tier::Day => 400,
        }
    }
}

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimits {
    /// Minutes are kept for so long.
    pub minutes: Duration,
    /// Hours and days are kept for so long.
    pub hours: Duration,
    /// The most bytes of the file; then the oldest minutes go first.
    pub bytes: u64,
}

impl Default for HistoryLimits {
    fn default() -> HistoryLimits {
        const DAY: u64 = 86_400;
        HistoryLimits {
            minutes: Duration::from_secs(60 * DAY),
            hours: Duration::from_secs(2 * 365 * DAY),
            bytes: 1_000_000_000,
        }
    }
}

/// A history, which one process writes.
#[derive(Debug)]
pub struct History {
    path: PathBuf,
    connection: Connection,
    limits: HistoryLimits,
    /// Those that are being filled: of a minute, an hour, a day.
    buckets: [Bucket; Tier::ALL.len()],
    /// Those that are over, and not in the file.
    waiting: Waiting,
}

/// A bucket that is being filled.
#[derive(Debug)]
struct Bucket {
    tier: Tier,
    number: Option<u64>,
    second: Second,
    sums: [TableSum; KEPT.len()],
}

impl Bucket {
    fn new(tier: Tier) -> Bucket {
        Bucket { tier, number: None, second: Second::default(), sums: Default::default() }
    }

    fn add(&mut self, reading: &Reading) {
        self.second.append(&reading.second);
        for (sum, dimension) in self.sums.iter_mut().zip(KEPT) {
            sum.append(reading.table(dimension));
            sum.bound(SUM_ROWS_MAX);
        }
    }
}

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS name (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE);
    CREATE TABLE IF NOT EXISTS roll (k INTEGER PRIMARY KEY, v BLOB NOT NULL);
    CREATE TABLE IF NOT EXISTS total (
        tier INTEGER NOT NULL, bucket INTEGER NOT NULL, seconds REAL NOT NULL,
        packets INTEGER NOT NULL, bytes INTEGER NOT NULL, metered INTEGER NOT NULL, metered_bytes INTEGER NOT NULL,
        flow_bytes INTEGER NOT NULL, not_ip INTEGER NOT NULL, cut INTEGER NOT NULL, sampled_out INTEGER NOT NULL,
        lost_ring INTEGER NOT NULL, lost_daemon INTEGER NOT NULL, lost_before INTEGER NOT NULL,
        flows INTEGER NOT NULL, active INTEGER NOT NULL, PRIMARY KEY (tier, bucket)) WITHOUT ROWID;
    PRAGMA user_version = 1;";

impl History {
    /// Opens or makes a history.
    ///
    /// # Errors
    /// [`Error::History`], [`Error::HistoryVersion`].
    pub fn open(path: &Path, limits: HistoryLimits) -> Result<History, Error> {
        let of = || Error::history(path);
        // Addresses and names: for the user alone, whatever the umask. SQLite gives the mode to the files beside it.
        let _ = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        let connection = Connection::open(path).map_err(of())?;
        connection.busy_timeout(Duration::from_secs(5)).map_err(of())?;
        let version = version(&connection).map_err(of())?;
        if version != 0 && version != VERSION {
            return Err(Error::HistoryVersion { path: path.to_owned(), version });
        }
        connection.pragma_update(None, "journal_mode", "WAL").map_err(of())?;
        connection.pragma_update(None, "synchronous", "NORMAL").map_err(of())?;
        // The file stays in one folder, which is all that this process may write to.
        connection.pragma_update(None, "temp_store", "MEMORY").map_err(of())?;
        connection.execute_batch(SCHEMA).map_err(of())?;
        recover::complete(&connection).map_err(of())?;
        Ok(History::new(path, connection, limits))
    }

    /// Opens the history of another process, to be asked alone.
    ///
    /// # Errors
    /// [`Error::History`], also where there is none; [`Error::HistoryVersion`].
    pub fn open_to_read(path: &Path) -> Result<History, Error> {
        let of = || Error::history(path);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(of())?;
        connection.busy_timeout(Duration::from_secs(1)).map_err(of())?;
        let version = version(&connection).map_err(of())?;
        if version != VERSION {
            return Err(Error::HistoryVersion { path: path.to_owned(), version });
        }
        Ok(History::new(path, connection, HistoryLimits::default()))
    }

    fn new(path: &Path, connection: Connection, limits: HistoryLimits) -> History {
        let (path, buckets) = (path.to_owned(), Tier::ALL.map(Bucket::new));
        History { path, connection, limits, buckets, waiting: Waiting::default() }
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Buckets that are over, and not in the file because a write failed.
    pub fn waiting(&self) -> usize {
        self.waiting.buckets.len()
    }

    /// Adds a second. A minute that is over is written, and with it an hour and a day that are over. `now_ns` is the
    /// time by the wall clock, in nanoseconds since 1970 UTC.
    ///
    /// # Errors
    /// [`Error::Unwritten`]: what could not be written waits for the next minute. [`Error::Future`] for a second of an
    /// hour later than now, or more.
    pub fn add(&mut self, reading: &Reading, now_ns: u64) -> Result<(), Error> {
        if reading.second.end_ns > now_ns.saturating_add(AHEAD_MAX_NS) {
            return Err(Error::Future { path: self.path.clone() });
        }
        // A second that ends with the minute belongs to it.
        let inside = reading.second.end_ns.saturating_sub(1);
        let mut over = Vec::new();
        for bucket in &mut self.buckets {
            let number = inside / bucket.tier.len_ns();
            if bucket.number.is_some_and(|before| before != number) {
                over.push(std::mem::replace(bucket, Bucket::new(bucket.tier)));
            }
            bucket.number = Some(number);
            bucket.add(reading);
        }
        if over.is_empty() { Ok(()) } else { self.write(over) }
    }

    /// Writes what is not whole yet, at the end.
    ///
    /// # Errors
    /// [`Error::Unwritten`].
    pub fn finish(&mut self) -> Result<(), Error> {
        let begun = std::mem::replace(&mut self.buckets, Tier::ALL.map(Bucket::new));
        self.write(begun)
    }

    /// Writes these buckets and those that wait in one transaction, and takes away what is too old.
    fn write(&mut self, buckets: impl IntoIterator<Item = Bucket>) -> Result<(), Error> {
        self.waiting.extend(buckets);
        if self.waiting.buckets.is_empty() {
            return Ok(());
        }
        match write_buckets(&self.connection, &self.waiting.buckets, &self.limits) {
            Ok(()) => {
                self.waiting = Waiting::default();
                Ok(())
            }
            Err(source) => {
                self.waiting.bound();
                let (waiting, given_up) = (self.waiting.buckets.len(), self.waiting.given_up);
                Err(Error::Unwritten { path: self.path.clone(), source, waiting, given_up })
            }
        }
    }
}

fn write_buckets(
    connection: &Connection,
    buckets: &[WholeBucket],
    limits: &HistoryLimits,
) -> rusqlite::Result<()> {
    let now = buckets.iter().map(|bucket| bucket.second.end_ns).max().unwrap_or(0);
    let transaction = connection.unchecked_transaction()?;
    buckets.iter().try_for_each(|bucket| write_bucket(&transaction, bucket))?;
    expire(&transaction, now, limits)?;
    transaction.commit()
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Adds a bucket to what the file has of it: a meter that began anew in the midst of an hour goes on with it.
fn write_bucket(connection: &Connection, bucket: &WholeBucket) -> rusqlite::Result<()> {
    let WholeBucket { tier, number, second, tables } = bucket;
    let (tier, number) = (*tier, *number);
    connection
        .prepare_cached(
            "INSERT INTO total VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16)
             ON CONFLICT DO UPDATE SET seconds = seconds + excluded.seconds, packets = packets + excluded.packets,
             bytes = bytes + excluded.bytes, metered = metered + excluded.metered,
             metered_bytes = metered_bytes + excluded.metered_bytes, flow_bytes = flow_bytes + excluded.flow_bytes,
             not_ip = not_ip + excluded.not_ip, cut = cut + excluded.cut, sampled_out = sampled_out + excluded.sampled_out,
             lost_ring = lost_ring + excluded.lost_ring, lost_daemon = lost_daemon + excluded.lost_daemon,
             lost_before = lost_before + excluded.lost_before, flows = flows + excluded.flows, active = excluded.active",
        )?
        .execute(params![
            tier as i64,
            number as i64,
            second.len_ns as f64 / 1e9,
            count(tier, second.offered()),
            count(tier, second.offered_bytes()),
            count(tier, second.metered),
            count(tier, second.metered_bytes),
            count(tier, second.flow_bytes),
            count(tier, second.not_ip),
            count(tier, second.cut),
            count(tier, second.sampled_out),
            count(tier, second.lost_ring),
            count(tier, second.lost_daemon),
            count(tier, second.lost_before),
            count(tier, second.made),
            count(tier, second.active),
        ])?;
    for (table, dimension) in tables.iter().zip(KEPT) {
        let key = roll_key(tier, dimension, number);
        match read_table(connection, key)? {
            None => write_table(connection, key, table)?,
            Some(before) => {
                let mut sum = TableSum::default();
                sum.append(&before);
                sum.append(table);
                write_table(connection, key, &sum.finish(tier.rows()))?;
            }
        }
    }
    Ok(())
}

/// What a column of a bucket counts, and what it may: sums of such are numbers of SQLite still.
fn count(tier: Tier, number: u64) -> i64 {
    let most = match tier {
        Tier::Minute => 1 << 49,
        Tier::Hour => 1 << 55,
        Tier::Day => 1 << 60,
    };
    number.min(most) as i64
}

/// The table of a bucket, if the file has it.
fn read_table(connection: &Connection, key: i64) -> rusqlite::Result<Option<Table>> {
    let blob: Option<Vec<u8>> = connection
        .prepare_cached("SELECT v FROM roll WHERE k = ?1")?
        .query_row([key], |row| row.get(0))
        .optional()?;
    blob.and_then(|blob| record::table_of(&blob)).map(|table| named(connection, table)).transpose()
}

fn write_table(connection: &Connection, key: i64, table: &Table) -> rusqlite::Result<()> {
    let ids = table.rows.iter().map(|row| id_of(connection, &row.key)).collect::<Result<Vec<_>, _>>()?;
    connection
        .prepare_cached("INSERT OR REPLACE INTO roll VALUES (?1, ?2)")?
        .execute(params![key, record::blob_of(table, &ids)])?;
    Ok(())
}

/// The keys of a table that was read: its rows have numbers of names.
fn named(connection: &Connection, table: record::NumberedTable) -> rusqlite::Result<Table> {
    let rows =
        table.rows.into_iter().map(|(id, row)| Ok(tapline_view::Row { key: key_of(connection, id)?, ..row }));
    Ok(Table { rows: rows.collect::<rusqlite::Result<_>>()?, ..table.rest })
}

/// The number of a key, made if there is none.
fn id_of(connection: &Connection, key: &Key) -> rusqlite::Result<i64> {
    let bytes = record::key_bytes(key);
    let known = connection
        .prepare_cached("SELECT id FROM name WHERE key = ?1")?
        .query_row([&bytes], |row| row.get(0))
        .optional()?;
    match known {
        Some(id) => Ok(id),
        None => {
            connection.prepare_cached("INSERT INTO name (key) VALUES (?1)")?.execute([&bytes])?;
            Ok(connection.last_insert_rowid())
        }
    }
}

fn key_of(connection: &Connection, id: i64) -> rusqlite::Result<Key> {
    let mut statement = connection.prepare_cached("SELECT key FROM name WHERE id = ?1")?;
    let bytes: Option<Vec<u8>> = statement.query_row([id], |row| row.get(0)).optional()?;
    Ok(record::key_of_bytes(&bytes.unwrap_or_default()))
}

/// The key of a roll: tier in bits 56 to 62, dimension in 48 to 55, bucket in 0 to 47.
pub(crate) fn roll_key(tier: Tier, dimension: Dimension, bucket: u64) -> i64 {
    (tier as i64) << 56 | (dimension as i64) << 48 | (bucket & 0xffff_ffff_ffff) as i64
}

/// Takes away what is too old, and the oldest minutes while the file is too large.
fn expire(connection: &Connection, now_ns: u64, limits: &HistoryLimits) -> rusqlite::Result<()> {
    let kept = [(Tier::Minute, limits.minutes), (Tier::Hour, limits.hours), (Tier::Day, limits.hours)];
    for (tier, kept) in kept {
        let oldest = now_ns.saturating_sub(kept.as_nanos() as u64) / tier.len_ns();
        take_away(connection, tier, oldest)?;
    }
    let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
    let free: i64 = connection.query_row("PRAGMA freelist_count", [], |row| row.get(0))?;
    let size: i64 = connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    if ((pages - free) * size) as u64 > limits.bytes {
        for tier in Tier::ALL {
            let (first, last): (Option<i64>, Option<i64>) = connection.query_row(
                "SELECT min(bucket), max(bucket) FROM total WHERE tier = ?1",
                [tier as i64],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )?;
            if let (Some(first), Some(last)) = (first, last)
                && last > first
            {
                // A sixteenth at a time, so that the next minutes find room.
                take_away(connection, tier, (first + 1 + (last - first) / 16) as u64)?;
                forget_names(connection)?;
                break;
            }
        }
    }
    Ok(())
}

/// Takes away names that no row has any more: strangers make new ones at will, with a packet for each.
fn forget_names(connection: &Connection) -> rusqlite::Result<()> {
    let next = |from: i64| -> rusqlite::Result<Option<i64>> {
        connection
            .prepare_cached("SELECT min(id) FROM name WHERE id >= ?1")?
            .query_row([from], |row| row.get(0))
    };
    let mut from = i64::MIN;
    while let Some(first) = next(from)? {
        let last = first.saturating_add(NAMES_AT_ONCE as i64 - 1);
        forget_names_between(connection, (first, last))?;
        let Some(after) = last.checked_add(1) else { break };
        from = after;
    }
    Ok(())
}

/// Likewise, of the names with these numbers.
fn forget_names_between(connection: &Connection, (first, last): (i64, i64)) -> rusqlite::Result<()> {
    let place = |id: i64| id.abs_diff(first) as usize;
    let greatest: i64 =
        connection.query_row("SELECT max(id) FROM name WHERE id <= ?1", [last], |row| row.get(0))?;
    let mut has_row = vec![false; place(greatest) + 1];
    let mut statement = connection.prepare_cached("SELECT v FROM roll")?;
    let mut rolls = statement.query([])?;
    while let Some(roll) = rolls.next()? {
        let Some(table) = record::table_of(roll.get_ref(0)?.as_blob()?) else { continue };
        let ids = table.rows.iter().map(|(id, _)| *id).filter(|id| (first..=greatest).contains(id));
        ids.for_each(|id| has_row[place(id)] = true);
    }
    let mut statement = connection.prepare_cached("SELECT id FROM name WHERE id BETWEEN ?1 AND ?2")?;
    let ids = statement.query_map([first, greatest], |row| row.get(0))?.collect::<Result<Vec<i64>, _>>()?;
    let mut delete = connection.prepare_cached("DELETE FROM name WHERE id = ?1")?;
    for id in ids.into_iter().filter(|id| !has_row[place(*id)]) {
        delete.execute([id])?;
    }
    Ok(())
}

/// Takes away all buckets of a tier before one.
fn take_away(connection: &Connection, tier: Tier, oldest: u64) -> rusqlite::Result<()> {
    let gone = connection
        .prepare_cached("DELETE FROM total WHERE tier = ?1 AND bucket < ?2")?
        .execute(params![tier as i64, oldest as i64])?;
    if gone > 0 {
        for dimension in KEPT {
            let (from, to) = (roll_key(tier, dimension, 0), roll_key(tier, dimension, oldest));
            connection.prepare_cached("DELETE FROM roll WHERE k >= ?1 AND k < ?2")?.execute([from, to])?;
        }
    }
    Ok(())
}
