//! Events of rules and tables of recorders in the history: a row for each, however often the file of events is read.
//!
//! ```text
//! event     time, rule, kind, text, swallowed, recording    the latest 100,000
//! recorded  recorder, from, to, kind, columns, rows         the latest 10,000; columns and rows as JSON
//! ```
//!
//! Both together have an eighth of the history's size. The history's file may be another program's work: rows of other
//! types or longer ones are not read.

use rusqlite::{Connection, Row, Rows, Transaction, TransactionBehavior, params};
use tapline_pages::{EventLine, RecorderTable, WatchEvent};

use super::{AHEAD_MAX_NS, History, HistoryLimits};
use crate::error::Error;

/// Rows of each table; the oldest go first.
const EVENTS_MAX: i64 = 100_000;
const RECORDED_MAX: i64 = 10_000;
/// Rows that are added before the oldest go: to find these takes a walk over all.
const TAKEN_AWAY_AFTER: usize = 1000;
/// Events and tables may take an eighth of a history's bytes. A sixteenth of that may be added before the oldest go.
const SHARE: u64 = 8;
/// Steps in which the oldest go by size: some 150 of a sixteenth take all of a table.
const STEPS_MAX: usize = 400;
/// The most columns and rows of a table that is read.
const COLUMNS_MAX: usize = 64;
const ROWS_MAX: usize = 1000;

pub(super) const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS event (
        time INTEGER NOT NULL, rule TEXT NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL, swallowed INTEGER NOT NULL,
        recording TEXT, PRIMARY KEY (time, rule, kind, text)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS recorded (
        recorder TEXT NOT NULL, \"from\" INTEGER NOT NULL, \"to\" INTEGER NOT NULL, kind TEXT NOT NULL,
        columns TEXT NOT NULL, rows TEXT NOT NULL, PRIMARY KEY (recorder, \"from\"));
    CREATE INDEX IF NOT EXISTS recorded_to ON recorded (\"to\");";

/// Condition for the rows that are read. SQLite knows types and lengths from the head of a row, and does not read its
/// texts for them.
const EVENT_FITS: &str = "typeof(time) = 'integer' AND typeof(swallowed) = 'integer'
    AND typeof(rule) = 'text' AND octet_length(rule) <= 4096
    AND typeof(kind) = 'text' AND octet_length(kind) <= 4096
    AND typeof(text) = 'text' AND octet_length(text) <= 4096
    AND (recording IS NULL OR typeof(recording) = 'text' AND octet_length(recording) <= 4096)";
const TABLE_FITS: &str = "typeof(\"from\") = 'integer' AND typeof(\"to\") = 'integer'
    AND typeof(recorder) = 'text' AND octet_length(recorder) <= 4096
    AND typeof(kind) = 'text' AND octet_length(kind) <= 4096
    AND typeof(columns) = 'text' AND typeof(rows) = 'text'
    AND octet_length(columns) + octet_length(rows) <= 1048576";

/// Bytes of the rows: of their texts, and some 64 more.
const EVENTS_LEN: &str = "SELECT ifnull(sum(64 + octet_length(rule) + octet_length(kind) + octet_length(text)
    + ifnull(octet_length(recording), 0)), 0) FROM event";
const TABLES_LEN: &str = "SELECT ifnull(sum(64 + octet_length(recorder) + octet_length(kind)
    + octet_length(columns) + octet_length(rows)), 0) FROM recorded";

/// Takes away a sixteenth of the rows, one at least.
const OLDEST_EVENTS: &str = "DELETE FROM event WHERE time <= (SELECT max(time) FROM (
    SELECT time FROM event ORDER BY time LIMIT 1 + (SELECT count(*) FROM event) / 16))";
const OLDEST_TABLES: &str = "DELETE FROM recorded WHERE \"to\" <= (SELECT max(\"to\") FROM (
    SELECT \"to\" FROM recorded ORDER BY \"to\" LIMIT 1 + (SELECT count(*) FROM recorded) / 16))";

impl History {
    /// Adds events and tables in one transaction. Rows that are already there stay as they are; the table of a period
    /// that went on is replaced. `now_ns` is the time by the wall clock, in nanoseconds since 1970 UTC. Returns the
    /// number that was left out: those of more than an hour later, which would push the others out for ever.
    ///
    /// # Errors
    /// [`Error::History`]: nothing was added, or all was added and the oldest could not be taken away. The same,
    /// added again, is there once.
    pub(crate) fn add_told(&mut self, told: &[EventLine], now_ns: u64) -> Result<u64, Error> {
        let last_ns = i64::try_from(now_ns.saturating_add(AHEAD_MAX_NS)).unwrap_or(i64::MAX);
        let (fitting, future): (Vec<&EventLine>, Vec<&EventLine>) =
            told.iter().partition(|one| time(one) <= last_ns);
        let written = self.bound_log().and_then(|()| write(&self.connection, &fitting));
        let bytes = written.map_err(Error::history(&self.path))?;
        self.told_added.0 += fitting.len();
        self.told_added.1 += bytes as u64;
        let (count, bytes) = self.told_added;
        if count >= TAKEN_AWAY_AFTER || bytes >= self.limits.bytes / SHARE / 16 {
            take_away(&self.connection, &self.limits).map_err(Error::history(&self.path))?;
            self.told_added = (0, 0);
        }
        Ok(future.len() as u64)
    }

    /// Events of a time, the latest first, and tables of recorders whose period ended in it; at most some of each.
    ///
    /// # Errors
    /// [`Error::History`].
    pub(crate) fn told_between(
        &self,
        from_ns: i64,
        to_ns: i64,
        (events_most, tables_most): (usize, usize),
    ) -> Result<(Vec<WatchEvent>, Vec<RecorderTable>), Error> {
        let events = || events(&self.connection, (from_ns, to_ns, events_most as i64));
        let tables = || tables(&self.connection, (from_ns, to_ns, tables_most as i64));
        let read = || Ok((events()?, tables()?));
        read().map_err(Error::history(&self.path))
    }
}

/// The time by which one is kept.
fn time(told: &EventLine) -> i64 {
    match told {
        EventLine::Event(event) => event.time_ns,
        EventLine::Table(table) => table.to_ns,
    }
}

/// Writes rows; how many bytes of texts these have.
fn write(connection: &Connection, told: &[&EventLine]) -> rusqlite::Result<usize> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    let mut bytes = 0;
    for one in told {
        bytes += match one {
            EventLine::Event(event) => write_event(&transaction, event)?,
            EventLine::Table(table) => write_table(&transaction, table)?,
        };
    }
    transaction.commit()?;
    Ok(bytes)
}

fn write_event(connection: &Connection, event: &WatchEvent) -> rusqlite::Result<usize> {
    let WatchEvent { time_ns, rule, kind, text, swallowed, recording } = event;
    let swallowed = (*swallowed).min(i64::MAX as u64) as i64;
    connection
        .prepare_cached("INSERT OR IGNORE INTO event VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
        .execute(params![time_ns, rule, kind, text, swallowed, recording])?;
    Ok(rule.len() + kind.len() + text.len() + recording.as_ref().map_or(0, String::len))
}

fn write_table(connection: &Connection, table: &RecorderTable) -> rusqlite::Result<usize> {
    let RecorderTable { recorder, kind, from_ns, to_ns, columns, rows } = table;
    let (columns, rows) = (json(columns), json(rows));
    connection
        .prepare_cached("INSERT OR REPLACE INTO recorded VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
        .execute(params![recorder, from_ns, to_ns, kind, columns, rows])?;
    Ok(recorder.len() + kind.len() + columns.len() + rows.len())
}

/// Takes the oldest of each away by number, by the time of the first that is too many, and by size.
fn take_away(connection: &Connection, limits: &HistoryLimits) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "DELETE FROM event WHERE time <= (SELECT time FROM event ORDER BY time DESC LIMIT 1 OFFSET ?1)",
        )?
        .execute([EVENTS_MAX])?;
    connection
        .prepare_cached(
            "DELETE FROM recorded WHERE \"to\" <= (SELECT \"to\" FROM recorded ORDER BY \"to\" DESC LIMIT 1 OFFSET ?1)",
        )?
        .execute([RECORDED_MAX])?;
    by_size(connection, limits)
}

/// Takes away the oldest while events and tables have more than their part of the size: of those that have more bytes,
/// so that tables push out no events. Rows that are not read go first.
pub(super) fn by_size(connection: &Connection, limits: &HistoryLimits) -> rusqlite::Result<()> {
    let number = |question: &str| connection.query_row(question, [], |row| row.get::<_, i64>(0));
    let lens = || -> rusqlite::Result<(u64, u64)> {
        Ok((number(EVENTS_LEN)?.max(0).unsigned_abs(), number(TABLES_LEN)?.max(0).unsigned_abs()))
    };
    let is_within = |(events, tables): (u64, u64)| events + tables <= limits.bytes / SHARE;
    if is_within(lens()?) {
        return Ok(());
    }
    connection.execute(&format!("DELETE FROM event WHERE NOT ({EVENT_FITS})"), [])?;
    connection.execute(&format!("DELETE FROM recorded WHERE NOT ({TABLE_FITS})"), [])?;
    for _ in 0..STEPS_MAX {
        let (events, tables) = lens()?;
        if is_within((events, tables)) {
            break;
        }
        connection.execute(if tables > events { OLDEST_TABLES } else { OLDEST_EVENTS }, [])?;
    }
    Ok(())
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn events(connection: &Connection, (from, to, most): (i64, i64, i64)) -> rusqlite::Result<Vec<WatchEvent>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT time, rule, kind, text, swallowed, recording FROM event WHERE time >= ?1 AND time < ?2
         AND {EVENT_FITS} ORDER BY time DESC LIMIT ?3"
    ))?;
    let event = |row: &Row<'_>| -> rusqlite::Result<WatchEvent> {
        Ok(WatchEvent {
            time_ns: row.get(0)?,
            rule: row.get(1)?,
            kind: row.get(2)?,
            text: row.get(3)?,
            swallowed: row.get::<_, i64>(4)?.max(0).unsigned_abs(),
            recording: row.get(5)?,
        })
    };
    readable(statement.query([from, to, most])?, |row| event(row).ok())
}

fn tables(
    connection: &Connection,
    (from, to, most): (i64, i64, i64),
) -> rusqlite::Result<Vec<RecorderTable>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT recorder, \"from\", \"to\", kind, columns, rows FROM recorded WHERE \"to\" > ?1 AND \"to\" <= ?2
         AND {TABLE_FITS} ORDER BY \"to\" DESC LIMIT ?3"
    ))?;
    let table = |row: &Row<'_>| -> Option<RecorderTable> {
        let text = |at: usize| row.get::<_, String>(at).ok();
        Some(RecorderTable {
            recorder: text(0)?,
            from_ns: row.get(1).ok()?,
            to_ns: row.get(2).ok()?,
            kind: text(3)?,
            columns: serde_json::from_str(&text(4)?).ok()?,
            rows: serde_json::from_str(&text(5)?).ok()?,
        })
    };
    let fits = |table: &RecorderTable| table.columns.len() <= COLUMNS_MAX && table.rows.len() <= ROWS_MAX;
    readable(statement.query([from, to, most])?, |row| table(row).filter(fits))
}

/// Reads rows; unreadable ones are left out.
fn readable<T>(mut rows: Rows<'_>, read: impl Fn(&Row<'_>) -> Option<T>) -> rusqlite::Result<Vec<T>> {
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.extend(read(row));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::expiry;
    use super::*;

    const NOW: i64 = 1_790_000_000_000_000_000;

    fn opened(folder: &Path, limits: HistoryLimits) -> History {
        History::open(&folder.join("history.sqlite"), limits).expect("a history")
    }

    fn event(time_ns: i64) -> WatchEvent {
        let (rule, kind) = ("a".to_owned(), "seen".to_owned());
        WatchEvent { time_ns, rule, kind, text: String::new(), swallowed: 0, recording: None }
    }

    /// A table of a period that began at `from_ns`, with a row of `bytes` bytes.
    fn table(from_ns: i64, to_ns: i64, bytes: usize) -> RecorderTable {
        RecorderTable {
            recorder: "a".to_owned(),
            kind: "list".to_owned(),
            from_ns,
            to_ns,
            columns: vec!["key".to_owned()],
            rows: vec![vec!["x".repeat(bytes)]],
        }
    }

    fn add(history: &mut History, told: impl IntoIterator<Item = EventLine>) -> u64 {
        let told: Vec<EventLine> = told.into_iter().collect();
        history.add_told(&told, NOW as u64).expect("it is written")
    }

    fn number(history: &History, question: &str) -> i64 {
        history.connection.query_row(question, [], |row| row.get(0)).expect("a number")
    }

    fn times(told: &(Vec<WatchEvent>, Vec<RecorderTable>)) -> (Vec<i64>, Vec<i64>) {
        let events = told.0.iter().map(|event| event.time_ns);
        (events.collect(), told.1.iter().map(|table| table.to_ns).collect())
    }

    #[test]
    fn a_window_has_its_begin_and_not_its_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut history = opened(folder.path(), HistoryLimits::default());
        add(&mut history, [10, 20, 30].map(|at| EventLine::Event(event(at))));
        add(&mut history, [10, 20, 30].map(|at| EventLine::Table(table(at - 10, at, 1))));
        let between = |from, to, most| times(&history.told_between(from, to, most).expect("an answer"));
        assert_eq!(between(10, 30, (9, 9)), (vec![20, 10], vec![30, 20]), "of periods the end counts");
        assert_eq!(between(11, 31, (9, 9)), (vec![30, 20], vec![30, 20]));
        assert_eq!(between(0, 100, (1, 2)), (vec![30], vec![30, 20]), "the latest");
        assert_eq!(between(0, 100, (1, 0)), (vec![30], vec![]));
    }

    #[test]
    fn what_is_told_again_is_there_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut history = opened(folder.path(), HistoryLimits::default());
        for to_ns in [10, 20] {
            add(&mut history, [EventLine::Event(event(5)), EventLine::Table(table(0, to_ns, 1))]);
        }
        let told = history.told_between(0, 100, (9, 9)).expect("an answer");
        assert_eq!(told, (vec![event(5)], vec![table(0, 20, 1)]), "the period went on");
    }

    #[test]
    fn of_both_tables_the_oldest_go_by_number() {
        let folder = tempfile::tempdir().expect("a folder");
        let history = opened(folder.path(), HistoryLimits::default());
        let numbers = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ";
        let fill = format!(
            "{numbers} 100999) INSERT INTO event SELECT i, 'a', 'seen', '', 0, NULL FROM n;
             {numbers} 10099) INSERT INTO recorded SELECT 'a', i, i, 'list', '[]', '[]' FROM n;"
        );
        history.connection.execute_batch(&fill).expect("rows");
        take_away(&history.connection, &history.limits).expect("they go");
        for (question, wanted) in [
            ("SELECT count(*) FROM event", EVENTS_MAX),
            ("SELECT min(time) FROM event", 1000),
            ("SELECT count(*) FROM recorded", RECORDED_MAX),
            ("SELECT min(\"to\") FROM recorded", 100),
        ] {
            assert_eq!(number(&history, question), wanted, "{question}");
        }
    }

    #[test]
    fn tables_have_their_part_and_push_out_no_event() {
        let folder = tempfile::tempdir().expect("a folder");
        let limits = HistoryLimits { bytes: 8_000_000, ..HistoryLimits::default() };
        let mut history = opened(folder.path(), limits);
        let part = (limits.bytes / SHARE) as i64;
        add(&mut history, (0..500).map(|at| EventLine::Event(event(at))));
        for at in (0..200).step_by(10) {
            add(&mut history, (at..at + 10).map(|at| EventLine::Table(table(at, at + 1, 20_000))));
            let bytes = number(&history, EVENTS_LEN) + number(&history, TABLES_LEN);
            assert!(bytes <= part, "{bytes} bytes after {at}");
        }
        let (events, tables) = times(&history.told_between(0, 1000, (1000, 1000)).expect("an answer"));
        assert_eq!((events.len(), tables[0]), (500, 200), "the latest stay");
        assert!((20..50).contains(&tables.len()), "{} tables", tables.len());
        // Events that are most of it go likewise.
        for at in (1000..21_000).step_by(1000) {
            add(&mut history, (at..at + 1000).map(|at| EventLine::Event(event(at))));
        }
        let (events, tables) = times(&history.told_between(0, 99_999, (99_999, 1000)).expect("an answer"));
        assert!((1000..16_000).contains(&events.len()), "{} events", events.len());
        assert!(events[0] == 20_999 && !tables.is_empty(), "the latest stay");
    }

    /// No minute is deleted for the leftovers of another version or another program.
    #[test]
    fn a_large_file_loses_tables_before_minutes() {
        let folder = tempfile::tempdir().expect("a folder");
        let limits = HistoryLimits { bytes: 8_000_000, ..HistoryLimits::default() };
        let history = opened(folder.path(), limits);
        let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
            INSERT INTO recorded SELECT 'a', i, i, 'list', '[]', hex(zeroblob(10000)) FROM n;
            INSERT INTO recorded VALUES ('b', 1, 'never', 'list', '[]', '[]');";
        history.connection.execute_batch(fill).expect("rows");
        let did_buckets_go = expiry::by_size(&history.connection, &limits).expect("they go");
        assert!(!did_buckets_go, "tables were enough");
        assert!(number(&history, TABLES_LEN) <= (limits.bytes / SHARE) as i64);
        assert_eq!(number(&history, "SELECT max(\"to\") FROM recorded"), 500, "what is not read went first");
        assert!(number(&history, "SELECT count(*) FROM recorded") > 20);
    }

    #[test]
    fn what_is_of_the_future_is_left_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut history = opened(folder.path(), HistoryLimits::default());
        let ahead = NOW + AHEAD_MAX_NS as i64;
        let left_out = add(
            &mut history,
            [NOW, ahead, ahead + 1, i64::MAX - 1]
                .into_iter()
                .flat_map(|at| [EventLine::Event(event(at)), EventLine::Table(table(at - 1, at, 1))]),
        );
        assert_eq!(left_out, 4);
        let told = history.told_between(0, i64::MAX, (9, 9)).expect("an answer");
        assert_eq!(times(&told), (vec![ahead, NOW], vec![ahead, NOW]));
    }

    #[test]
    fn a_file_without_the_tables_gets_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let history = opened(folder.path(), HistoryLimits::default());
        history.connection.execute_batch("DROP TABLE event; DROP TABLE recorded;").expect("they go");
        drop(history);
        let mut history = opened(folder.path(), HistoryLimits::default());
        add(&mut history, [EventLine::Event(event(5)), EventLine::Table(table(0, 5, 1))]);
        drop(history);
        let history = History::open_to_read(&folder.path().join("history.sqlite")).expect("it is there");
        let told = history.told_between(0, 9, (9, 9)).expect("an answer");
        assert_eq!(told, (vec![event(5)], vec![table(0, 5, 1)]));
    }

    #[test]
    fn rows_of_another_program_are_left_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut history = opened(folder.path(), HistoryLimits::default());
        let wrong = "INSERT INTO event VALUES
                ('soon', 'b', 'seen', 'x', 0, NULL), (5, x'00', 'seen', 'x', 0, NULL),
                (5, 'b', 'seen', hex(zeroblob(4000)), 0, NULL), (5, 'b', 'seen', 'y', 'many', NULL),
                (5, 'b', 'seen', CAST(x'ff' AS TEXT), 0, NULL), (5, 'b', 'seen', 'z', 0, x'00');
            INSERT INTO recorded VALUES
                ('b', 'x', 5, 'top', '[]', '[]'), (x'00', 1, 5, 'top', '[]', '[]'), ('c', 1, 'x', 'top', '[]', '[]'),
                ('d', 1, 5, 'top', '[]', hex(zeroblob(600000))), ('e', 1, 5, 'top', '{}', '[]'),
                ('f', 1, 5, 'top', '[]', '[[7]]'), ('g', 1, 5, 'top', '[]', 'no JSON'), ('h', 1, 5, 'top', x'00', '[]'),
                ('i', 1, 5, 'top', '[]', '[[]' || replace(hex(zeroblob(1000)), '00', ',[]') || ']');";
        history.connection.execute_batch(wrong).expect("rows");
        add(&mut history, [EventLine::Event(event(5)), EventLine::Table(table(0, 5, 1))]);
        let told = history.told_between(i64::MIN, i64::MAX, (99, 99)).expect("an answer");
        assert_eq!(told, (vec![event(5)], vec![table(0, 5, 1)]));
    }
}
