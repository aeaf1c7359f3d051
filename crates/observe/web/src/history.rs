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
mod events;
mod expiry;
mod host;
mod place;
mod record;
mod recover;
mod waiting;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params};
use tapline_view::{Dimension, Key, Reading, Second, Table, TableSum};

pub use answer::HistoryAnswer;
pub(crate) use answer::HistoryQuestion;
pub(crate) use host::HostQuestion;
use waiting::{Waiting, WholeBucket};

use crate::error::Error;

const VERSION: i64 = 1;
const MINUTE_NS: u64 = 60_000_000_000;
/// Seconds and events from an hour ahead of the clock are not kept: the latest second decides which are too old.
const AHEAD_MAX_NS: u64 = 3_600_000_000_000;
/// The least limit for the log of the file: a minute, an hour and a day, and the rows that they push out.
const LOG_MIN: u64 = 4 << 20;
/// Pages of the log after which it is written back into the file.
const LOG_PAGES: i64 = 256;
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

/// Limits of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimits {
    /// Minutes are kept for so long.
    pub minutes: Duration,
    /// Hours and days are kept for so long.
    pub hours: Duration,
    /// The most bytes of the file and its log, which has an eighth of them, as events of rules and tables of recorders
    /// have; beyond these the oldest minutes go first.
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
    /// Held by the process that writes, until its connection is closed.
    _lock: Option<File>,
    limits: HistoryLimits,
    /// The buckets that are being filled: of a minute, an hour, a day.
    buckets: [Bucket; Tier::ALL.len()],
    /// The buckets that are over, and not in the file.
    waiting: Waiting,
    /// The day on which names without a row were taken away last.
    names_seen: Option<u64>,
    /// Events and tables since the oldest were taken away last, and their bytes.
    told_added: (usize, u64),
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
    BEGIN IMMEDIATE;
    CREATE TABLE name (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE);
    CREATE TABLE roll (k INTEGER PRIMARY KEY, v BLOB NOT NULL);
    CREATE TABLE total (
        tier INTEGER NOT NULL, bucket INTEGER NOT NULL, seconds REAL NOT NULL,
        packets INTEGER NOT NULL, bytes INTEGER NOT NULL, metered INTEGER NOT NULL, metered_bytes INTEGER NOT NULL,
        flow_bytes INTEGER NOT NULL, not_ip INTEGER NOT NULL, cut INTEGER NOT NULL, sampled_out INTEGER NOT NULL,
        lost_ring INTEGER NOT NULL, lost_daemon INTEGER NOT NULL, lost_before INTEGER NOT NULL,
        flows INTEGER NOT NULL, active INTEGER NOT NULL, PRIMARY KEY (tier, bucket)) WITHOUT ROWID;
    PRAGMA user_version = 1;
    COMMIT;";

/// Names of meters, each with the time in nanoseconds since 1970 from which on the seconds are its own.
const METER_SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS meter (since INTEGER PRIMARY KEY, name TEXT NOT NULL);";
/// Rows of it; the oldest go.
const METERS_MAX: i64 = 10_000;

impl History {
    /// Opens or makes a history, which no other process writes as long as it is open.
    ///
    /// # Errors
    /// [`Error::HistoryHeld`], [`Error::HistoryFile`], [`Error::HistoryVersion`].
    pub fn open(path: &Path, limits: HistoryLimits) -> Result<History, Error> {
        let place::LockedFile { path, lock } = place::take(path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let begin = || -> rusqlite::Result<Connection> {
            let connection = Connection::open_with_flags(&path, flags)?;
            connection.busy_timeout(Duration::from_secs(5))?;
            Ok(connection)
        };
        let failed = |error: rusqlite::Error| place::useless(&path, &Error::line(&error));
        let connection = begin().map_err(failed)?;
        let is_new = place::is_new(&connection, &path)?;
        prepare(&connection, is_new, &limits).map_err(failed)?;
        Ok(History::new(&path, connection, Some(lock), limits))
    }

    /// Opens the history of another process, to be asked alone.
    ///
    /// # Errors
    /// [`Error::History`], also where there is none; [`Error::HistoryFile`], [`Error::HistoryVersion`].
    pub fn open_to_read(path: &Path) -> Result<History, Error> {
        place::check(path).map_err(|why| Error::HistoryFile { path: path.to_owned(), why })?;
        let of = || Error::history(path);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(of())?;
        connection.busy_timeout(Duration::from_secs(1)).map_err(of())?;
        let version = version(&connection).map_err(of())?;
        if version != VERSION {
            return Err(Error::HistoryVersion { path: path.to_owned(), version });
        }
        Ok(History::new(path, connection, None, HistoryLimits::default()))
    }

    fn new(path: &Path, connection: Connection, lock: Option<File>, limits: HistoryLimits) -> History {
        let (path, buckets) = (path.to_owned(), Tier::ALL.map(Bucket::new));
        let waiting = Waiting::default();
        let (names_seen, told_added) = (None, (0, 0));
        History { path, connection, _lock: lock, limits, buckets, waiting, names_seen, told_added }
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the meter whose seconds came last; `None` before the first, and in a file of an earlier version.
    pub fn meter(&self) -> Option<String> {
        let last = "SELECT name FROM meter ORDER BY since DESC LIMIT 1";
        self.connection.query_row(last, [], |row| row.get(0)).optional().ok().flatten()
    }

    /// Announces that seconds from `since_ns` on are of this meter. Returns the previous one, if that was another.
    ///
    /// # Errors
    /// [`Error::History`].
    pub fn set_meter(&mut self, name: &str, since_ns: u64) -> Result<Option<String>, Error> {
        let before = self.meter();
        if before.as_deref() == Some(name) {
            return Ok(None);
        }
        let since = i64::try_from(since_ns).unwrap_or(i64::MAX);
        let write = || -> rusqlite::Result<()> {
            self.connection.execute("INSERT OR REPLACE INTO meter VALUES (?1, ?2)", params![since, name])?;
            let oldest =
                "DELETE FROM meter WHERE since NOT IN (SELECT since FROM meter ORDER BY since DESC LIMIT ?1)";
            self.connection.execute(oldest, [METERS_MAX]).map(|_| ())
        };
        write().map_err(Error::history(&self.path))?;
        Ok(before)
    }

    /// Buckets that are over, and not in the file because a write failed.
    pub fn waiting(&self) -> usize {
        self.waiting.buckets.len()
    }

    /// Adds a second. A minute that is over is written, and with it an hour and a day that are over. `now_ns` is the
    /// time by the wall clock, in nanoseconds since 1970 UTC.
    ///
    /// # Errors
    /// [`Error::Unwritten`]: unwritten buckets wait for the next minute. [`Error::Future`] for a second of an hour
    /// later than now, or more.
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

    /// Writes the incomplete buckets, at the end.
    ///
    /// # Errors
    /// [`Error::Unwritten`].
    pub fn finish(&mut self) -> Result<(), Error> {
        let begun = std::mem::replace(&mut self.buckets, Tier::ALL.map(Bucket::new));
        self.write(begun)
    }

    /// Writes these buckets and those that wait, and deletes rows that are too old or too many.
    fn write(&mut self, buckets: impl IntoIterator<Item = Bucket>) -> Result<(), Error> {
        self.waiting.extend(buckets);
        let whole = &self.waiting.buckets;
        let Some(now) = whole.iter().map(|bucket| bucket.second.end_ns).max() else { return Ok(()) };
        match self.bound_log().and_then(|()| write_buckets(&self.connection, whole)) {
            Ok(begun) => {
                self.waiting = Waiting::default();
                self.expire(now, begun).map_err(Error::history(&self.path))
            }
            Err(source) => {
                self.waiting.bound();
                let (waiting, given_up) = (self.waiting.buckets.len(), self.waiting.given_up);
                Err(Error::Unwritten { path: self.path.clone(), source, waiting, given_up })
            }
        }
    }

    fn expire(&mut self, now_ns: u64, begun: [u64; Tier::ALL.len()]) -> rusqlite::Result<()> {
        expiry::by_age(&self.connection, now_ns, &self.limits, begun)?;
        let was_too_large = expiry::by_size(&self.connection, &self.limits)?;
        let day = now_ns / Tier::Day.len_ns();
        if was_too_large || self.names_seen != Some(day) {
            expiry::names(&self.connection)?;
            self.names_seen = Some(day);
        }
        Ok(())
    }

    /// Refuses to write while the log of the file is longer than its part, which a reader does whose transaction lasts.
    fn bound_log(&self) -> rusqlite::Result<()> {
        let name = place::beside(&self.path, "-wal");
        let is_long = || {
            let len = std::fs::metadata(&name).map_or(0, |about| about.len());
            len > log_max(&self.limits)
        };
        if is_long() {
            self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        }
        match is_long() {
            true => Err(rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY),
                Some(
                    "another program reads one moment of the file for so long that its log is full"
                        .to_owned(),
                ),
            )),
            false => Ok(()),
        }
    }
}

/// The most bytes of the file's log between two writes: at least those of a few buckets.
fn log_max(limits: &HistoryLimits) -> u64 {
    (limits.bytes / expiry::LOG_SHARE).max(LOG_MIN)
}

/// Writes buckets in one transaction. How many of each tier the file did not have.
fn write_buckets(
    connection: &Connection,
    buckets: &[WholeBucket],
) -> rusqlite::Result<[u64; Tier::ALL.len()]> {
    // It reads first: a transaction that becomes one that writes does not wait for other programs.
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    let mut begun = [0; Tier::ALL.len()];
    for bucket in buckets {
        let is_there = transaction
            .prepare_cached("SELECT 1 FROM total WHERE tier = ?1 AND bucket = ?2")?
            .exists(params![bucket.tier as i64, bucket.number as i64])?;
        begun[bucket.tier as usize - 1] += u64::from(!is_there);
        write_bucket(&transaction, bucket)?;
    }
    transaction.commit()?;
    Ok(begun)
}

/// Sets the write mode of the file, makes its tables if it is new, and completes the work of a killed writer.
fn prepare(connection: &Connection, is_new: bool, limits: &HistoryLimits) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    // The file stays in one folder, which is all that this process may write to.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // The log is short when it is written back, and is cut then to its part of the size.
    connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", log_max(limits) as i64)?;
    if is_new {
        connection.execute_batch(SCHEMA)?;
    }
    connection.execute_batch(METER_SCHEMA)?;
    connection.execute_batch(events::SCHEMA)?;
    recover::complete(connection)
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Merges a bucket into the file: a meter that restarted within an hour continues it.
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

/// A count for a column of a bucket, limited so that sums are still numbers of SQLite.
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
