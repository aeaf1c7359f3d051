//! Events of rules and tables of recorders, as `tapline watch --events FILE --json` writes them.
//!
//! ```text
//! FILE --lines that are new--> Told --> Watched: the latest of both, for pages
//!                                   --> history (crate web): a row for each
//! ```
//!
//! The file is another process's: a line that is too long, no JSON or of other members is counted and left out, and
//! texts are cut. A file that shrinks is read from its begin, and so is another one that gets its name.

use std::collections::VecDeque;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tapline_sys::disk;

/// Bytes of a file that are read at the start, from its end, and at once.
const AT_START: u64 = 4 << 20;
const AT_ONCE: usize = 1 << 20;
/// Bytes behind the end of a file from which on the part between is left out.
const BEHIND_MAX: u64 = 64 << 20;
/// The most bytes of a line.
const LINE_MAX: usize = 256 << 10;
/// The most bytes of a text.
const TEXT_MAX: usize = 512;
/// The most columns and rows of a recorder's table.
const COLUMNS_MAX: usize = 16;
const ROWS_MAX: usize = 100;
/// Events and tables that are kept for pages.
const EVENTS_MAX: usize = 1000;
const TABLES_MAX: usize = 100;

/// A parsed line of the event file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventLine {
    /// An event.
    Event(WatchEvent),
    /// The contents of a recorder at the end of a period.
    Table(RecorderTable),
}

/// An event of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WatchEvent {
    /// The time of the packets, in nanoseconds since 1970.
    pub time_ns: i64,
    /// The rule's name.
    pub rule: String,
    /// `seen`, `raised` or `cleared`.
    pub kind: String,
    /// The rule's message; else its key and its value.
    pub text: String,
    /// Events of the rule since the last reported one that were swallowed.
    pub swallowed: u64,
    /// The file in which packets before and after are recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recording: Option<String>,
}

/// The contents of a recorder at the end of a period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecorderTable {
    /// Name: script and recorder.
    pub recorder: String,
    /// `list`, `histogram` or `top`.
    pub kind: String,
    /// The period, in nanoseconds since 1970.
    pub from_ns: i64,
    /// End of the period.
    pub to_ns: i64,
    /// Names of columns.
    pub columns: Vec<String>,
    /// Rows; values as text.
    pub rows: Vec<Vec<String>>,
}

/// A line in the form of the file: of an event or of a recorder. Other members are ignored.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Line {
    time: Option<String>,
    rule: Option<String>,
    event: Option<String>,
    key: Map<String, Value>,
    value: Option<Value>,
    at_least: bool,
    message: String,
    about: Map<String, Value>,
    swallowed: u64,
    recording: Option<String>,
    recorder: Option<String>,
    kind: String,
    from: Option<String>,
    to: Option<String>,
    columns: Vec<String>,
    rows: Vec<Vec<Value>>,
}

impl Line {
    fn told(self) -> Option<EventLine> {
        let is_table = self.recorder.is_some();
        if is_table { self.table().map(EventLine::Table) } else { self.event().map(EventLine::Event) }
    }

    fn event(self) -> Option<WatchEvent> {
        let kind = self.event.filter(|kind| ["seen", "raised", "cleared"].contains(&kind.as_str()))?;
        let mut text = self.message;
        if text.is_empty() {
            let value = self.value.as_ref().map(shown);
            let least = if self.at_least { "at least " } else { "" };
            text = plain_text(&self.key, &self.about, value.map(|value| format!("value {least}{value}")));
        }
        Some(WatchEvent {
            time_ns: nanoseconds(&self.time?)?,
            rule: cut(&self.rule?),
            kind,
            text: cut(&text),
            swallowed: self.swallowed,
            recording: self.recording.map(|file| cut(&file)),
        })
    }

    fn table(self) -> Option<RecorderTable> {
        let columns: Vec<String> = self.columns.iter().take(COLUMNS_MAX).map(|name| cut(name)).collect();
        let row = |row: &Vec<Value>| row.iter().take(columns.len()).map(|value| cut(&shown(value))).collect();
        let rows = self.rows.iter().take(ROWS_MAX).map(row).collect();
        Some(RecorderTable {
            recorder: cut(&self.recorder?),
            kind: cut(&self.kind),
            from_ns: nanoseconds(&self.from?)?,
            to_ns: nanoseconds(&self.to?)?,
            columns,
            rows,
        })
    }
}

/// The text of a rule without a message: its key, else both ends, and the value.
fn plain_text(key: &Map<String, Value>, about: &Map<String, Value>, value: Option<String>) -> String {
    let mut parts: Vec<String> = key.iter().map(|(name, value)| format!("{name} {}", shown(value))).collect();
    if let (true, Some(src), Some(dst)) = (parts.is_empty(), about.get("src"), about.get("dst")) {
        parts.push(format!("{} to {}", shown(src), shown(dst)));
    }
    parts.extend(value);
    parts.join(", ")
}

/// A value as people read it.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A text of bounded length, without control characters.
fn cut(text: &str) -> String {
    let end = text.floor_char_boundary(TEXT_MAX);
    text[..end].chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// A time of RFC 3339 in nanoseconds since 1970.
fn nanoseconds(text: &str) -> Option<i64> {
    i64::try_from(text.parse::<jiff::Timestamp>().ok()?.as_nanosecond()).ok()
}

/// A file of events that grows.
#[derive(Debug)]
pub struct EventFile {
    file: File,
    path: PathBuf,
    /// The next byte.
    position: u64,
    /// A line whose end has not been read yet.
    part: Vec<u8>,
    /// The line that is read is too long, or its begin was not read: it is left out up to its end.
    is_left_out: bool,
    /// The line began before the first read, so skipping it is not an error.
    is_of_before: bool,
    refused: u64,
}

impl EventFile {
    /// Opens a regular file. Its last 4 MiB are read first.
    ///
    /// # Errors
    /// The system's error, or that it is not a regular file.
    pub fn open(path: &Path) -> io::Result<EventFile> {
        let file = regular(path)?;
        // One byte more: where a line begins right there, its predecessor ends with it.
        let position = file.metadata()?.len().saturating_sub(AT_START + 1);
        let is_cut = position > 0;
        let (path, part) = (path.to_owned(), Vec::new());
        Ok(EventFile { file, path, position, part, is_left_out: is_cut, is_of_before: is_cut, refused: 0 })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lines that were left out.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Reads new lines, at most 1 MiB. Returns whether there may be more.
    ///
    /// # Errors
    /// The system's error; if another file has the name now, also the remedy.
    pub fn read(&mut self) -> io::Result<(Vec<EventLine>, bool)> {
        let len = self.file.metadata()?.len();
        if len < self.position {
            self.go_to(0);
        } else if len - self.position > BEHIND_MAX {
            self.go_to(len - AT_START);
            self.is_left_out = true;
        }
        let mut bytes = vec![0; AT_ONCE];
        let len = self.file.read_at(&mut bytes, self.position)?;
        self.position += len as u64;
        let mut told = Vec::new();
        let mut rest = &bytes[..len];
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.take(&rest[..end]);
            told.extend(self.line());
            rest = &rest[end + 1..];
        }
        self.take(rest);
        if len == 0 {
            self.follow()?;
        }
        Ok((told, len == AT_ONCE))
    }

    fn go_to(&mut self, position: u64) {
        (self.position, self.is_left_out, self.is_of_before) = (position, false, false);
        self.part.clear();
    }

    /// Goes on with the file that has the name now, if that is another one.
    fn follow(&mut self) -> io::Result<()> {
        let identity = |about: &Metadata| (about.dev(), about.ino());
        // One that was renamed may have no successor yet.
        let Ok(now) = fs::metadata(&self.path) else { return Ok(()) };
        if identity(&now) == identity(&self.file.metadata()?) {
            return Ok(());
        }
        self.file = regular(&self.path).map_err(|error| {
            let text = format!("another file has this name now, and is read after a new start: {error}");
            io::Error::new(error.kind(), text)
        })?;
        self.go_to(0);
        Ok(())
    }

    /// Adds a part of a line.
    fn take(&mut self, part: &[u8]) {
        self.is_left_out |= self.part.len() + part.len() > LINE_MAX;
        if self.is_left_out {
            self.part.clear();
        } else {
            self.part.extend_from_slice(part);
        }
    }

    /// Ends the line.
    fn line(&mut self) -> Option<EventLine> {
        let is_left_out = std::mem::take(&mut self.is_left_out);
        let is_of_before = std::mem::take(&mut self.is_of_before);
        let line = std::mem::take(&mut self.part);
        if is_left_out || line.is_empty() {
            self.refused += u64::from(is_left_out && !is_of_before);
            return None;
        }
        let told = serde_json::from_slice::<Line>(&line).ok().and_then(Line::told);
        self.refused += u64::from(told.is_none());
        told
    }
}

fn regular(path: &Path) -> io::Result<File> {
    let file = disk::open_at_once(path, OpenOptions::new().read(true))?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

/// The latest events and tables.
#[derive(Debug, Default)]
pub struct Watched {
    events: VecDeque<WatchEvent>,
    tables: VecDeque<RecorderTable>,
}

impl Watched {
    /// Adds a line; the oldest is dropped.
    pub fn add(&mut self, told: EventLine) {
        match told {
            EventLine::Event(event) => push(&mut self.events, event, EVENTS_MAX),
            EventLine::Table(table) => push(&mut self.tables, table, TABLES_MAX),
        }
    }

    /// Events of a time, the latest first, and tables whose period ended in it; at most some of each.
    pub fn between(
        &self,
        from_ns: i64,
        to_ns: i64,
        (events_most, tables_most): (usize, usize),
    ) -> (Vec<WatchEvent>, Vec<RecorderTable>) {
        let is_in = |ns: i64| (from_ns..to_ns).contains(&ns);
        let events = self.events.iter().rev().filter(|event| is_in(event.time_ns));
        let tables = self.tables.iter().rev().filter(|table| is_in(table.to_ns.saturating_sub(1)));
        (events.take(events_most).cloned().collect(), tables.take(tables_most).cloned().collect())
    }
}

fn push<T>(all: &mut VecDeque<T>, one: T, most: usize) {
    if all.len() == most {
        all.pop_front();
    }
    all.push_back(one);
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tapline_watch::{EventKind, RecordedPeriod, RecorderKind};

    use super::*;

    const EVENT: &str = r#"{"time":"2026-11-25T22:13:20.000000001Z","rule":"scan","event":"raised","key":{"src":"10.0.0.5"},"value":20}"#;
    const TABLE: &str = r#"{"recorder":"t/talkers","kind":"top","from":"2026-11-25T22:00:00Z","to":"2026-11-25T23:00:00Z","columns":["key","sum"],"rows":[["10.0.0.5",700]]}"#;

    fn opened(text: &str) -> (tempfile::NamedTempFile, EventFile) {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(text.as_bytes()).expect("room");
        let opened = EventFile::open(file.path()).expect("a regular file");
        (file, opened)
    }

    fn read(file: &mut EventFile) -> Vec<EventLine> {
        let mut all = Vec::new();
        for _ in 0..100 {
            let (told, has_more) = file.read().expect("readable");
            all.extend(told);
            if !has_more {
                break;
            }
        }
        all
    }

    #[test]
    fn lines_of_watch_are_read_as_they_were_written() {
        let event = tapline_watch::Event {
            time_ns: 1_795_644_800_000_000_001,
            rule: 0,
            name: "scan".to_owned(),
            kind: EventKind::Raised,
            key: vec![("src", "10.0.0.5".into())],
            value: Some(20),
            is_least: true,
            above: Some(19),
            message: String::new(),
            about: Map::new(),
            swallowed: 3,
            recording: Some("scan.pcapng".to_owned()),
        };
        let period = RecordedPeriod {
            name: "t/talkers".to_owned(),
            kind: RecorderKind::Top,
            period_ns: (1_795_644_000_000_000_000, 1_795_647_600_000_000_000),
            columns: vec!["key".to_owned(), "sum".to_owned()],
            rows: vec![vec!["10.0.0.5".into(), 700.into()]],
            left_out: 0,
        };
        let (_file, mut events) = opened(&format!("{}\n{}\n", event.to_json(), period.to_json()));
        let lines = read(&mut events);
        let [EventLine::Event(read), EventLine::Table(table)] = lines.as_slice() else { panic!("{lines:?}") };
        let text = format!("{} {}: {} (3 not reported) [scan.pcapng]", read.rule, read.kind, read.text);
        assert!(event.to_text().ends_with(&text), "{} and {text}", event.to_text());
        assert_eq!((read.time_ns, read.swallowed, &read.recording), (event.time_ns, 3, &event.recording));
        assert_eq!((&table.recorder, table.kind.as_str()), (&period.name, "top"));
        assert_eq!(((table.from_ns, table.to_ns), &table.columns), (period.period_ns, &period.columns));
        assert_eq!(table.rows, [["10.0.0.5", "700"]]);
    }

    #[test]
    fn lines_become_events_and_tables_as_they_come() {
        let (mut file, mut events) = opened(&format!("{EVENT}\n{}", &TABLE[..40]));
        let first = read(&mut events);
        let EventLine::Event(event) = &first[0] else { panic!("{first:?}") };
        assert_eq!((event.rule.as_str(), event.kind.as_str()), ("scan", "raised"));
        assert_eq!(event.text, "src 10.0.0.5, value 20", "a rule without a message has its key");
        assert_eq!(event.time_ns, 1_795_644_800_000_000_001);
        assert_eq!(first.len(), 1, "a line is whole with its end");
        writeln!(file, "{}", &TABLE[40..]).expect("room");
        let EventLine::Table(table) = &read(&mut events)[0] else { panic!("a table") };
        assert_eq!(
            (table.recorder.as_str(), table.rows.clone()),
            ("t/talkers", vec![vec!["10.0.0.5".to_owned(), "700".to_owned()]])
        );
        assert_eq!(table.to_ns - table.from_ns, 3_600_000_000_000);
        assert_eq!(events.refused(), 0);
        // A file that was emptied starts over.
        file.as_file().set_len(0).expect("it is emptied");
        fs::write(file.path(), format!("{EVENT}\n")).expect("room");
        assert_eq!(read(&mut events).len(), 1);
    }

    #[test]
    fn another_file_of_the_name_is_read_from_its_begin() {
        let (file, mut events) = opened(&format!("{EVENT}\n"));
        assert_eq!(read(&mut events).len(), 1);
        let old = file.path().with_extension("1");
        fs::rename(file.path(), &old).expect("renamed");
        fs::write(&old, format!("{EVENT}\n{EVENT}\n")).expect("room");
        assert_eq!(read(&mut events).len(), 1, "what is written to the old one still counts");
        fs::write(file.path(), format!("{EVENT}\n{TABLE}\n")).expect("room");
        assert_eq!((read(&mut events).len(), read(&mut events).len()), (0, 2));
        fs::remove_file(file.path()).expect("there");
        fs::create_dir(file.path()).expect("a directory");
        let error = events.read().expect_err("no regular file").to_string();
        assert!(error.contains("after a new start"), "{error}");
        fs::remove_dir(file.path()).expect("empty");
        fs::remove_file(old).expect("there");
    }

    #[test]
    fn a_rule_without_key_and_message_has_both_ends() {
        let line = r#"{"time":"2026-11-25T22:13:20Z","rule":"a","event":"seen","about":{"src":"10.0.0.5","dst":"10.0.0.6"},"value":7}"#;
        let (_file, mut events) = opened(&format!("{line}\n"));
        let EventLine::Event(event) = &read(&mut events)[0] else { panic!("an event") };
        assert_eq!(event.text, "10.0.0.5 to 10.0.0.6, value 7");
    }

    #[test]
    fn hostile_lines_are_counted_and_left_out() {
        let long = format!(r#"{{"message":"{}"}}"#, "x".repeat(2 * LINE_MAX));
        let wrong = [
            "no JSON",
            "[1]",
            "{}",
            "null",
            &long,
            r#"{"time":"yesterday","rule":"a","event":"seen"}"#,
            r#"{"time":"2026-11-25T22:13:20Z","rule":"a","event":"burned"}"#,
            r#"{"time":"2026-11-25T22:13:20Z","rule":7,"event":"seen"}"#,
            r#"{"recorder":"a","kind":"top","from":"x","to":"y","columns":[],"rows":[]}"#,
        ];
        let text = format!("{}\n\n{EVENT}\n", wrong.join("\n"));
        let (_file, mut events) = opened(&text);
        assert_eq!(read(&mut events).len(), 1);
        assert_eq!(events.refused(), wrong.len() as u64);
    }

    #[test]
    fn texts_and_tables_are_cut() {
        let text = format!("\u{1b}[31m{}", "\u{e9}".repeat(2000));
        let event = serde_json::json!({"time": "2026-11-25T22:13:20Z", "rule": text, "event": "seen", "message": text});
        let row = vec![serde_json::Value::from(text.clone()); 20];
        let table = serde_json::json!({
            "recorder": "a", "kind": "list", "from": "2026-11-25T22:00:00Z", "to": "2026-11-25T23:00:00Z",
            "columns": vec!["c"; 100], "rows": vec![row; 2],
        });
        let (_file, mut events) = opened(&format!("{event}\n{table}\n"));
        let told = read(&mut events);
        let [EventLine::Event(event), EventLine::Table(table)] = told.as_slice() else { panic!("{told:?}") };
        assert!(event.text.len() <= TEXT_MAX && event.rule.len() <= TEXT_MAX);
        assert!(event.text.starts_with(" [31m\u{e9}"), "no control character: {:?}", event.text);
        assert_eq!((table.columns.len(), table.rows[0].len()), (COLUMNS_MAX, COLUMNS_MAX));
    }

    #[test]
    fn of_a_long_file_the_end_is_read() {
        let mut text = String::new();
        while text.len() < 3 * AT_START as usize / 2 {
            text += EVENT;
            text.push('\n');
        }
        let (_file, mut events) = opened(&text);
        let told = read(&mut events).len();
        let of_end = AT_START as usize / (EVENT.len() + 1);
        assert_eq!(told, of_end);
        assert_eq!(events.refused(), 0, "a line of which the begin was not read is not a wrong one");
    }

    #[test]
    fn the_latest_are_kept_and_asked_by_time() {
        let mut watched = Watched::default();
        for second in 0..2000 {
            watched.add(EventLine::Event(WatchEvent {
                time_ns: second,
                rule: "a".to_owned(),
                kind: "seen".to_owned(),
                text: String::new(),
                swallowed: 0,
                recording: None,
            }));
        }
        let (events, tables) = watched.between(0, 1500, (10, 10));
        let times: Vec<i64> = events.iter().map(|event| event.time_ns).collect();
        assert_eq!((times, tables.len()), ((1490..1500).rev().collect(), 0));
        assert_eq!(watched.between(0, 1000, (10, 10)).0, [], "the oldest gave way");
    }
}
