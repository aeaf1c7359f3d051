//! The history: exact where it says so, bounded, and open to others.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tapline_view::{Amount, Dimension, Key, Reading, Row, Second, Table};
use tapline_web::{Error, History, HistoryLimits};

/// A program that writes the same file: no other writer gets in until it has ended.
pub(crate) fn lock(path: &Path) -> rusqlite::Connection {
    let other = rusqlite::Connection::open(path).expect("the file");
    other.execute_batch("BEGIN IMMEDIATE").expect("no other connection writes");
    other
}

/// Minutes of a window of seconds that the file has.
pub(crate) fn minutes(path: &Path, from: u64, to: u64) -> u64 {
    let file = rusqlite::Connection::open(path).expect("the file");
    let question = "SELECT count(*) FROM total WHERE tier = 1 AND bucket >= ?1 AND bucket < ?2";
    file.query_row(question, [from / 60, to / 60], |row| row.get(0)).expect("a count")
}

/// By the wall clock: later than all.
const NOW: u64 = u64::MAX;
const BEGIN: u64 = 1_790_000_000 / 3600 * 3600;

fn host(number: u32) -> Key {
    Key::host(Ipv4Addr::from(0x0a00_0000 + number).into())
}

/// A second in which each of `hosts` hosts has something, and others and losses have, too.
fn reading(end: u64, hosts: u32) -> Reading {
    let row = |number: u32| {
        let amount =
            Amount { packets: u64::from(number) + end % 7, bytes: 1000 * u64::from(number) + end % 11 };
        Row { key: host(number), amount, flows: 1, ..Row::default() }
    };
    let rows: Vec<Row> = (1..=hosts).rev().map(row).collect();
    let others = Amount { packets: 3, bytes: 3000 };
    let table = Table { rows, others, others_flows: 2, missing: Amount { packets: 1, bytes: 500 } };
    let sum = table.sum();
    let second = Second {
        end_ns: end * 1_000_000_000,
        len_ns: 1_000_000_000,
        metered: sum.packets,
        metered_bytes: sum.bytes + 14 * sum.packets,
        flow_bytes: sum.bytes,
        not_ip: 2,
        lost_ring: end % 3,
        ..Second::default()
    };
    Reading { number: end, second, tables: std::array::from_fn(|_| table.clone()) }
}

fn open(path: &Path, limits: HistoryLimits) -> History {
    History::open(path, limits).expect("a history")
}

#[test]
fn minutes_and_hours_add_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history.sqlite");
    let mut history = open(&path, HistoryLimits::default());
    let (mut exact, mut offered, mut lost) = (HashMap::<Key, Amount>::new(), 0, 0);
    for end in (BEGIN..BEGIN + 4 * 3600).step_by(15).map(|end| end + 1) {
        let reading = reading(end, 20);
        history.add(&reading, NOW).expect("it is written");
        offered += reading.second.offered();
        lost += reading.second.lost();
        reading.tables[0].rows.iter().for_each(|row| exact.entry(row.key).or_default().add(row.amount));
    }
    history.finish().expect("it is written");
    let days = 10 * 86_400;
    for (from, to) in [(BEGIN, BEGIN + 4 * 3600), (BEGIN - days, BEGIN + days)] {
        for dimension in [Dimension::HostIn, Dimension::Pair, Dimension::Interface] {
            let answer = history.greatest(dimension, from, to, 100).expect("an answer");
            assert_eq!(answer.packets(), (offered, lost));
            assert_eq!(answer.table.rows.len(), 20);
            for row in &answer.table.rows {
                assert_eq!((row.amount, row.error), (exact[&row.key], Amount::default()), "{:?}", row.key);
            }
            assert_eq!(answer.table.rows[0].key, host(20), "the greatest first");
        }
    }
    let part = history.greatest(Dimension::HostIn, BEGIN + 60, BEGIN + 120, 100).expect("an answer");
    assert_eq!((part.buckets(), part.table.rows.len()), (1, 20));
}

#[test]
fn keys_without_a_row_are_in_doubt_and_sums_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut history = open(&folder.path().join("history.sqlite"), HistoryLimits::default());
    let mut all = Amount::default();
    for minute in 0..30 {
        // 250 hosts, of which a minute keeps 50; and one that is there in every second minute alone.
        let mut reading = reading(BEGIN + minute * 60 + 1, 250);
        if minute % 2 == 0 {
            reading.tables[0].rows.insert(
                0,
                Row { key: host(9999), amount: Amount { packets: 1, bytes: 1 << 30 }, ..Row::default() },
            );
        }
        all.add(reading.tables[0].sum());
        history.add(&reading, NOW).expect("it is written");
    }
    history.finish().expect("it is written");
    let answer = history.greatest(Dimension::HostIn, BEGIN, BEGIN + 1800, 100).expect("an answer");
    assert_eq!(answer.table.sum(), all, "rows and others");
    let first = answer.table.rows[0];
    assert_eq!((first.key, first.amount.bytes), (host(9999), 15 << 30));
    assert!(first.error.bytes > 0, "absent in 15 minutes, it may have had something there");
    let exact = answer.table.rows.iter().find(|row| row.key == host(250)).expect("a host of every minute");
    assert_eq!(exact.error, Amount::default());
}

#[test]
fn a_killed_writer_loses_at_most_a_minute() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history.sqlite");
    let mut history = open(&path, HistoryLimits::default());
    for end in BEGIN + 1..=BEGIN + 5 * 60 + 30 {
        history.add(&reading(end, 3), NOW).expect("it is written");
    }
    // Nothing is finished, as after a kill.
    drop(history);
    let mut history = open(&path, HistoryLimits::default());
    let minutes = |history: &History| {
        history.greatest(Dimension::HostIn, BEGIN, BEGIN + 3600, 10).expect("an answer").buckets()
    };
    assert_eq!(minutes(&history), 5, "five minutes were over");
    for end in BEGIN + 5 * 60 + 40..=BEGIN + 6 * 60 + 1 {
        history.add(&reading(end, 3), NOW).expect("it is written");
    }
    assert_eq!(minutes(&history), 6);
}

/// Set in the process that is killed: the file that it writes.
const WRITER: &str = "TAPLINE_HISTORY_WRITER";

/// The process that [`kill_9_loses_a_minute_at_most`] kills: writes seconds, and says which it has added.
#[test]
fn writes_until_it_is_killed() {
    let Some(path) = std::env::var_os(WRITER) else { return };
    let mut history = open(Path::new(&path), HistoryLimits::default());
    for end in BEGIN + 1.. {
        history.add(&reading(end, 3), NOW).expect("it is written");
        println!("added {end}");
    }
}

/// Events that a process reported before `kill -9` are in the file, but for the last minute: also in hours and days.
#[test]
fn kill_9_loses_a_minute_at_most() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history.sqlite");
    let rounds = std::env::var("TAPLINE_VOLUME").ok().and_then(|volume| volume.parse().ok()).unwrap_or(1);
    for round in 1..=3 * rounds {
        let _ = std::fs::remove_file(&path);
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "history::writes_until_it_is_killed", "--nocapture"]).env(WRITER, &path);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("this test runs");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut added = lines
            .map_while(Result::ok)
            .filter_map(|line| line.strip_prefix("added ").and_then(|end| end.parse::<u64>().ok()));
        // Killed after an hour and some, at another second each time.
        let wanted = BEGIN + 3700 + round * 777;
        let last = added.find(|end| *end >= wanted).expect("it writes");
        child.kill().expect("it runs");
        child.wait().expect("it is ours");
        let history = open(&path, HistoryLimits::default());
        let long = 10 * 86_400;
        for (from, to) in [(BEGIN, BEGIN + 86_400), (BEGIN - long, BEGIN + long)] {
            let answer = history.greatest(Dimension::HostIn, from, to, 10).expect("an answer");
            let seconds = answer.window.seconds as u64;
            assert!(seconds + 60 >= last - BEGIN, "round {round}: {seconds} s of {}", last - BEGIN);
            let table = answer.table.sum();
            let sum = &answer.window.table;
            let rest = sum.not_ip[0] + sum.unread[0] + sum.lost;
            assert_eq!(table.packets + rest, sum.sum[0], "rows and the rest are the interface");
        }
    }
}

/// Before the file is opened again, and for readers that may not write it, minutes replace missing hours and days.
#[test]
fn readers_see_what_a_killed_writer_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history.sqlite");
    let mut history = open(&path, HistoryLimits::default());
    let ends = (BEGIN..BEGIN + 30 * 3600).step_by(60).map(|end| end + 1);
    ends.for_each(|end| history.add(&reading(end, 3), NOW).expect("it is written"));
    std::mem::forget(history);
    let reader = History::open_to_read(&path).expect("it is there");
    let long = 10 * 86_400;
    let answer = reader.greatest(Dimension::Pair, BEGIN - long, BEGIN + long, 10).expect("an answer");
    assert_eq!(answer.window.seconds, 30.0 * 60.0 - 1.0, "all minutes but the one that was not over");
    assert_eq!(answer.table.rows[0].error, Amount::default(), "they are exact");
    assert!(matches!(History::open_to_read(&folder.path().join("none")), Err(Error::History { .. })));
}

#[test]
fn size_and_age_are_bounded() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history.sqlite");
    let limits =
        HistoryLimits { bytes: 300_000, minutes: Duration::from_secs(86_400), ..HistoryLimits::default() };
    let mut history = open(&path, limits);
    // One minute in three of a day and an hour.
    for minute in (0..1500).step_by(3) {
        history.add(&reading(BEGIN + minute * 60 + 1, 40), NOW).expect("it is written");
    }
    history.finish().expect("it is written");
    let len = std::fs::metadata(&path).expect("the file").len();
    assert!(len < 600_000, "{len} bytes");
    let left = minutes(&path, BEGIN, BEGIN + 1500 * 60);
    assert!((10..480).contains(&left), "the oldest went first: {left} are left");
    assert_eq!(minutes(&path, BEGIN + 1470 * 60, BEGIN + 1500 * 60), 10, "the latest stay");
}

/// Minute, hour and day are over at once, and another program writes just then.
#[test]
fn a_write_that_fails_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history.sqlite");
    let mut history = open(&path, HistoryLimits::default());
    let midnight = BEGIN.next_multiple_of(86_400);
    let ends: Vec<u64> = (midnight - 7200..midnight + 120).step_by(30).map(|end| end + 1).collect();
    let before = ends.iter().filter(|end| **end < midnight);
    before.for_each(|end| history.add(&reading(*end, 3), NOW).expect("it is written"));
    let other = lock(&path);
    let failed = history.add(&reading(midnight + 1, 3), NOW);
    assert!(matches!(failed, Err(Error::Unwritten { waiting: 3, given_up: 0, .. })), "{failed:?}");
    drop(other);
    let after = ends.iter().filter(|end| **end > midnight + 1);
    after.for_each(|end| history.add(&reading(*end, 3), NOW).expect("it is written"));
    history.finish().expect("it is written");
    assert_eq!(history.waiting(), 0);
    let offered: u64 = ends.iter().map(|end| reading(*end, 3).second.offered()).sum();
    let counted = rusqlite::Connection::open(&path).expect("the file");
    for tier in 1..=3 {
        let kept: u64 = counted
            .query_row("SELECT sum(packets) FROM total WHERE tier = ?1", [tier], |row| row.get(0))
            .expect("a sum");
        assert_eq!(kept, offered, "tier {tier}");
    }
}

#[test]
fn days_without_minutes_are_answered_by_hours() {
    const DAY: u64 = 86_400;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history.sqlite");
    let limits = HistoryLimits { minutes: Duration::from_secs(DAY), ..HistoryLimits::default() };
    let mut history = open(&path, limits);
    let begin = BEGIN.next_multiple_of(DAY);
    let ends: Vec<u64> = (begin..begin + 4 * DAY).step_by(600).map(|end| end + 1).collect();
    ends.iter().for_each(|end| history.add(&reading(*end, 3), NOW).expect("it is written"));
    history.finish().expect("it is written");
    let offered = |from: u64, to: u64| -> u64 {
        let inside = ends.iter().filter(|end| (from + 1..=to).contains(*end));
        inside.map(|end| reading(*end, 3).second.offered()).sum()
    };
    let ask = |from: u64, to: u64| {
        let answer = history.greatest(Dimension::HostIn, from, to, 10).expect("an answer");
        let sum = &answer.window.table;
        let rest = sum.not_ip[0] + sum.unread[0] + sum.lost;
        assert_eq!(answer.table.sum().packets + rest, sum.sum[0], "rows and the rest are the interface");
        (answer.window.tier, answer.buckets(), answer.packets().0)
    };
    let (old, new) = (begin + DAY, begin + 7 * DAY / 2);
    assert_eq!(ask(old, old + DAY), ("hour", 24, offered(old, old + DAY)));
    assert_eq!(ask(old + 600, old + 1200), ("hour", 1, offered(old, old + 3600)), "the hour is whole");
    assert_eq!(ask(new, new + 7200), ("minute", 12, offered(new, new + 7200)));
    let edge = begin + 3 * DAY - 6 * 3600;
    assert_eq!(ask(edge, edge + DAY / 2), ("hour", 12, offered(edge, edge + DAY / 2)), "across the edge");
    // Days stay where the size of the file took hours, too.
    let file = rusqlite::Connection::open(&path).expect("the file");
    let gone = file.execute("DELETE FROM total WHERE tier = 2 AND bucket < ?1", [(old + DAY) / 3600]);
    assert_eq!(gone.expect("they go"), 48);
    assert_eq!(ask(old, old + 2 * DAY), ("day", 2, offered(old, old + 2 * DAY)));
    assert_eq!(ask(begin, begin + 4 * DAY), ("day", 4, offered(begin, begin + 4 * DAY)));
}

/// A clock of 2038 at boot: by it all is too old, and little goes until it is set.
#[test]
fn a_wrong_clock_takes_little_away() {
    const DAY: u64 = 86_400;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history.sqlite");
    let mut history = open(&path, HistoryLimits::default());
    let ends: Vec<u64> = (BEGIN..BEGIN + 2 * DAY).step_by(300).map(|end| end + 1).collect();
    ends.iter().for_each(|end| history.add(&reading(*end, 3), NOW).expect("it is written"));
    history.finish().expect("it is written");
    let wrong = BEGIN + 12 * 365 * DAY;
    for minute in 0..10 {
        history.add(&reading(wrong + 60 * minute + 1, 3), NOW).expect("it is written");
    }
    history.finish().expect("it is written");
    let left = minutes(&path, BEGIN, BEGIN + 2 * DAY);
    assert_eq!(left, ends.len() as u64 - 2 * 10, "two for one");
    let answer = history.greatest(Dimension::HostIn, BEGIN, BEGIN + 3 * DAY, 10).expect("an answer");
    assert!(answer.window.seconds > 500.0, "hours and days are there: {} s", answer.window.seconds);
}

/// A program that reads one moment of the file keeps its log from being written back.
#[test]
fn the_log_of_the_file_is_bounded_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history.sqlite");
    let mut history = open(&path, HistoryLimits { bytes: 16_000_000, ..HistoryLimits::default() });
    history.add(&reading(BEGIN + 1, 3), NOW).expect("it is written");
    history.finish().expect("it is written");
    let other = rusqlite::Connection::open(&path).expect("the file");
    other.execute_batch("BEGIN; SELECT count(*) FROM total;").expect("it reads");
    let log = path.with_extension("sqlite-wal");
    let len = || std::fs::metadata(&log).map_or(0, |about| about.len());
    let mut ends = (BEGIN + 3600..).step_by(60).map(|end| end + 1);
    let failed =
        ends.by_ref().take(3000).map(|end| history.add(&reading(end, 250), NOW)).find(Result::is_err);
    assert!(matches!(failed, Some(Err(Error::Unwritten { given_up: 0, .. }))), "{failed:?}");
    assert!(len() < 6_000_000, "{} bytes", len());
    drop(other);
    history.add(&reading(ends.next().expect("more"), 250), NOW).expect("it is written");
    assert_eq!(history.waiting(), 0);
    assert!(len() < 4_300_000, "{} bytes", len());
}

/// Names go with the last row that has them, also from a file that is not full.
#[test]
fn names_without_a_row_go_within_a_day() {
    const DAY: u64 = 86_400;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history.sqlite");
    let day = Duration::from_secs(DAY);
    let mut history = open(&path, HistoryLimits { minutes: day, hours: day, ..HistoryLimits::default() });
    for end in (BEGIN..BEGIN + 4 * DAY).step_by(600) {
        // On the first day 20 hosts, then three.
        let hosts = if end < BEGIN + DAY { 20 } else { 3 };
        history.add(&reading(end + 1, hosts), NOW).expect("it is written");
    }
    history.finish().expect("it is written");
    let file = rusqlite::Connection::open(&path).expect("the file");
    let names: u64 = file.query_row("SELECT count(*) FROM name", [], |row| row.get(0)).expect("a count");
    assert_eq!(names, 3);
}

/// Addresses and names that are seen once are forgotten with the minute, else strangers fill the file with them.
#[test]
fn names_are_bounded_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history.sqlite");
    let mut history = open(&path, HistoryLimits { bytes: 1_000_000, ..HistoryLimits::default() });
    for minute in 0..900 {
        let mut reading = reading(BEGIN + minute * 60 + 1, 0);
        let amount = Amount { packets: 1, bytes: 60 };
        let row = |number: u64| Row { key: host((minute * 50 + number) as u32), amount, ..Row::default() };
        reading.tables[0].rows = (0..50).map(row).collect();
        history.add(&reading, NOW).expect("it is written");
    }
    history.finish().expect("it is written");
    let len = std::fs::metadata(&path).expect("the file").len();
    assert!(len < 1_000_000, "{len} bytes");
    let answer = history.greatest(Dimension::HostIn, BEGIN, BEGIN + 900 * 60, 100).expect("an answer");
    let left = minutes(&path, BEGIN, BEGIN + 900 * 60);
    assert!(left > 100, "minutes are left, not names alone: {left}");
    let keys: Vec<Key> = answer.table.rows.iter().map(|row| row.key).collect();
    assert!(!keys.contains(&Key::default()) && keys.len() == 100, "rows have their names still");
}

#[test]
fn a_file_of_the_future_takes_nothing_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut history = open(&folder.path().join("history.sqlite"), HistoryLimits::default());
    let now = (BEGIN + 700) * 1_000_000_000;
    for end in BEGIN + 1..BEGIN + 600 {
        history.add(&reading(end, 3), now).expect("it is written");
    }
    let far = reading(BEGIN + 400 * 365 * 86_400, 3);
    assert!(matches!(history.add(&far, now), Err(Error::Future { .. })));
    history.add(&reading(BEGIN + 661, 3), now).expect("it is written");
    history.finish().expect("it is written");
    let answer = history.greatest(Dimension::HostIn, BEGIN, BEGIN + 3600, 10).expect("an answer");
    assert_eq!(answer.buckets(), 11);
}

/// The writer of a view may be wrong: its numbers must not make the minute unreadable.
#[test]
fn any_numbers_can_be_kept_and_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history.sqlite");
    for _ in 0..3 {
        let mut history = open(&path, HistoryLimits::default());
        let mut reading = reading(BEGIN + 1, 3);
        let most = u64::MAX / 2;
        reading.second =
            Second { lost_ring: most, lost_daemon: most, flow_bytes: u64::MAX, ..reading.second };
        history.add(&reading, NOW).expect("it is written");
        history.finish().expect("it is written");
        let answer = history.greatest(Dimension::HostIn, BEGIN, BEGIN + 60, 10).expect("an answer");
        assert!(answer.packets().0 > 0 && answer.packets().1 > 0, "{:?}", answer.packets());
    }
}

/// Two years are answered: those that are kept, not those before an end that is far ahead.
#[test]
fn a_window_that_ends_far_ahead_has_what_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut history = open(&folder.path().join("history.sqlite"), HistoryLimits::default());
    (BEGIN + 1..BEGIN + 600).for_each(|end| history.add(&reading(end, 3), NOW).expect("it is written"));
    history.finish().expect("it is written");
    for (from, to) in [(0, 99_999_999_999), (BEGIN, u64::MAX), (0, BEGIN + 3600)] {
        let answer = history.greatest(Dimension::HostIn, from, to, 10).expect("an answer");
        assert_eq!((answer.window.seconds, answer.table.rows.len()), (599.0, 3), "{from} to {to}");
    }
    let later = history.greatest(Dimension::HostIn, BEGIN + 86_400, 99_999_999_999, 10).expect("an answer");
    assert_eq!(later.buckets(), 0);
}

#[test]
fn a_new_file_is_for_its_user_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history.sqlite");
    let mut history = open(&path, HistoryLimits::default());
    history.add(&reading(BEGIN + 1, 3), NOW).expect("it is written");
    for file in std::fs::read_dir(folder.path()).expect("a folder") {
        let file = file.expect("an entry");
        let mode = file.metadata().expect("its mode").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{:?} has mode {mode:o}", file.file_name());
    }
}

#[test]
fn other_programs_read_it_while_it_is_written() {
    if Command::new("sqlite3").arg("--version").output().is_err() {
        eprintln!("other_programs_read_it_while_it_is_written: skipped: no sqlite3");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history.sqlite");
    let mut history = open(&path, HistoryLimits::default());
    for end in (BEGIN + 1..BEGIN + 600).step_by(5) {
        history.add(&reading(end, 3), NOW).expect("it is written");
        if end % 100 == 1 {
            let question = "SELECT count(*), sum(lost_ring) >= 0 FROM total WHERE tier = 1";
            let read = Command::new("sqlite3").arg(&path).arg(question).output().expect("sqlite3");
            let text = String::from_utf8_lossy(&read.stdout).into_owned();
            let minutes = (end - BEGIN) / 60;
            assert!(read.status.success() && text.starts_with(&format!("{minutes}|")), "{text}");
        }
    }
}

#[test]
fn another_version_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history.sqlite");
    drop(open(&path, HistoryLimits::default()));
    // `user_version` stands at byte 60 of the file (SQLite file format, 1.3).
    let mut bytes = std::fs::read(&path).expect("the file");
    bytes[60..64].copy_from_slice(&9u32.to_be_bytes());
    std::fs::write(&path, bytes).expect("written");
    assert!(matches!(
        History::open(&path, HistoryLimits::default()),
        Err(Error::HistoryVersion { version: 9, .. })
    ));
}

/// A file that is not a history keeps its bytes, and the refusal is one line that names the remedy.
#[test]
fn what_is_no_history_is_refused_untouched() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history.sqlite");
    let refused = || {
        let error = History::open(&path, HistoryLimits::default()).expect_err("it is none");
        assert!(matches!(error, Error::HistoryFile { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("--no-history") && !text.contains('\n') && !text.contains("SELECT"), "{text}");
        text
    };
    std::fs::write(&path, [7; 8192]).expect("written");
    refused();
    std::fs::remove_file(&path).expect("it goes");
    let foreign = rusqlite::Connection::open(&path).expect("a file");
    foreign.execute_batch("CREATE TABLE note (text); PRAGMA user_version = 1;").expect("a table");
    drop(foreign);
    let before = std::fs::read(&path).expect("the file");
    assert!(refused().contains("another program"));
    assert!(std::fs::read(&path).expect("the file") == before, "it is as it was");
    std::fs::remove_file(&path).expect("it goes");
    assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo").success());
    assert!(refused().contains("regular file"));
    assert!(matches!(History::open_to_read(&path), Err(Error::HistoryFile { .. })));
}

/// A second process would complete hours from minutes that the first adds again.
#[test]
fn a_history_has_one_writer() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history.sqlite");
    let mut history = open(&path, HistoryLimits::default());
    (BEGIN + 1..BEGIN + 130).for_each(|end| history.add(&reading(end, 3), NOW).expect("it is written"));
    let second = History::open(&path, HistoryLimits::default()).expect_err("the first has it");
    let text = second.to_string();
    assert!(matches!(second, Error::HistoryHeld { .. }), "{second:?}");
    let holder = format!("process {} writes it", std::process::id());
    assert!(text.contains(&holder) && text.contains("--no-history"), "{text}");
    let hours: u64 = rusqlite::Connection::open(&path)
        .and_then(|file| file.query_row("SELECT count(*) FROM total WHERE tier > 1", [], |row| row.get(0)))
        .expect("a count");
    assert_eq!(hours, 0, "the second has written nothing");
    history.finish().expect("it is written");
    drop(history);
    let history = open(&path, HistoryLimits::default());
    let answer = history.greatest(Dimension::HostIn, BEGIN, BEGIN + 86_400, 10).expect("an answer");
    let offered: u64 = (BEGIN + 1..BEGIN + 130).map(|end| reading(end, 3).second.offered()).sum();
    assert_eq!(answer.packets().0, offered);
}

/// As with every output: a link is the choice of any user who may write to its folder.
#[test]
fn root_follows_no_link_to_a_history() {
    let folder = tempfile::tempdir().expect("a folder");
    let [target, link] = ["target", "link"].map(|name| folder.path().join(name));
    for is_there in [false, true] {
        if is_there {
            drop(open(&target, HistoryLimits::default()));
        }
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(&target, &link).expect("a link");
        let opened = History::open(&link, HistoryLimits::default());
        match tapline_sys::privilege::is_root() {
            true => assert!(opened.expect_err("a link").to_string().contains("root follows none")),
            false => assert_eq!(opened.is_ok(), is_there),
        }
        assert_eq!(target.exists(), is_there);
    }
}

/// `cargo test -p tapline-web --test it a_year -- --ignored --nocapture` prints size and times: some minutes.
/// `TAPLINE_HISTORY_DAYS=60` has minutes for as long as they are kept by default, and takes ten times as long.
#[test]
#[ignore = "takes minutes; prints figures"]
fn a_year_is_small_and_answered_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history.sqlite");
    let mut history = open(&path, HistoryLimits::default());
    let mut dice = 1u64;
    let mut roll = |sides: u64| {
        dice = dice.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (dice >> 33) % sides
    };
    let days = std::env::var("TAPLINE_HISTORY_DAYS").ok().and_then(|days| days.parse().ok()).unwrap_or(2);
    let (hours, minutes) = (365 * 24, days * 24 * 60);
    let end = BEGIN + hours * 3600;
    let starts = (0..hours - minutes / 60).map(|hour| BEGIN + hour * 3600);
    for at in starts.chain((0..minutes).map(|minute| end - (minutes - minute) * 60)) {
        let mut reading = reading(at + 1, 0);
        for table in &mut reading.tables {
            let rows = (0..200).map(|rank| {
                let amount = Amount {
                    packets: 90_000 / (rank + 1) + roll(99),
                    bytes: 90_000_000 / (rank + 1) + roll(99_999),
                };
                // The greatest are mostly the same, the others come and go.
                let key = host(if rank < 40 { rank as u32 } else { roll(20_000) as u32 });
                Row { key, amount, flows: 1 + roll(50), ..Row::default() }
            });
            let rows: HashMap<Key, Row> = rows.map(|row| (row.key, row)).collect();
            table.rows = rows.into_values().collect();
            table.cut(256);
        }
        history.add(&reading, NOW).expect("it is written");
    }
    history.finish().expect("it is written");
    let len = std::fs::metadata(&path).expect("the file").len();
    println!("a year of hours and days, {days} days of minutes: {:.1} MB", len as f64 / 1e6);
    assert!(len < 1_000_000_000);
    for (name, from) in [
        ("a year", BEGIN),
        ("30 days", end - 30 * 86_400),
        ("two days", end - 2 * 86_400),
        ("an hour", end - 3600),
    ] {
        let begin = std::time::Instant::now();
        let answer = history.greatest(Dimension::Pair, from, end, 100).expect("an answer");
        println!(
            "{name}: {} buckets, {} rows, {:.1} ms",
            answer.buckets(),
            answer.table.rows.len(),
            begin.elapsed().as_secs_f64() * 1e3
        );
    }
}
