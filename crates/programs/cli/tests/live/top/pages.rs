//! Pages of `tapline top` in a terminal, compared with frames that are kept as text.
//!
//! ```text
//! a view file and a history of this test --> top in script(1) --keys, frames--> frames/NAME.txt
//! ```
//!
//! `TAPLINE_FRAMES=write` writes new frames, to be reviewed.

use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use serde_json::Value;
use tapline_meters::RunFolder;
use tapline_view::{Amount, Dimension, Key, Row, Second, Table, ViewFile};

use crate::support::*;

/// The end of the one second: 2026-09-21 10:00:00 UTC.
const END: u64 = 1_789_984_800;

fn amount(packets: u64, bytes: u64) -> Amount {
    Amount { packets, bytes }
}

fn host(number: u64) -> std::net::IpAddr {
    Ipv4Addr::from(0x0a00_0000 + number as u32).into()
}

/// Keys of a dimension, the greatest first.
fn key(dimension: Dimension, rank: u64) -> Key {
    match dimension {
        Dimension::HostIn => Key::host(host(100 + rank)),
        Dimension::HostOut => Key::host(host(1 + rank)),
        Dimension::Pair => Key::pair(host(1 + rank), host(100 + rank)),
        Dimension::Service => Key::service(if rank.is_multiple_of(3) { 17 } else { 6 }, 443 + rank as u16),
        Dimension::Name => Key::name(&format!("host{rank}.example.org")),
        Dimension::Segment => Key([1 << 32 | rank, 0, 0, 0, 0, 0, 0, 0]),
        Dimension::Interface => Key([rank, 0, 0, 0, 0, 0, 0, 0]),
        Dimension::Flow => {
            let pair = Key::pair(host(1 + rank), host(100 + rank)).0;
            Key([pair[0], pair[1], pair[2], pair[3], 6 << 32 | (40_000 + rank) << 16 | 443, 0, 0, 0])
        }
    }
}

fn table(dimension: Dimension, rows: u64) -> Table {
    let row = |rank: u64| {
        let part = 1000 / (rank + 1);
        Row {
            key: key(dimension, rank),
            name: if dimension == Dimension::Flow {
                Key::name("tls www.example.org")
            } else {
                Key::default()
            },
            amount: amount(part, part * 800),
            first: amount(part / 4, part * 100),
            error: if rank == 2 { amount(3, 1800) } else { Amount::default() },
            flows: 1 + rank % 4,
            began_ns: ((END - 90 * (rank + 1)) * 1_000_000_000) as i64,
            state: 0x1212,
        }
    };
    let rows: Vec<Row> = (0..rows).map(row).collect();
    Table { rows, others: amount(70, 7000), others_flows: 9, missing: amount(3, 1800) }
}

/// The tables of a second and its totals, which they add up to.
fn second(end: u64) -> (Second, [Table; 8]) {
    let tables = Dimension::ALL.map(|dimension| table(dimension, 30));
    let sum = tables[0].sum();
    let second = Second {
        end_ns: end * 1_000_000_000,
        len_ns: 1_000_000_000,
        metered: sum.packets,
        metered_bytes: sum.bytes + 14 * sum.packets,
        flow_bytes: sum.bytes,
        not_ip: 12,
        not_ip_bytes: 720,
        lost_ring: 34,
        active: 56,
        made: 7,
        room: 1_048_576,
        delivered: sum.packets + 12,
        workers: 1,
        ..Second::default()
    };
    (second, tables)
}

/// A folder with a view of one second, which lives as long as this.
struct Metered {
    folder: tempfile::TempDir,
    _view: ViewFile,
}

impl Metered {
    fn new() -> Metered {
        let folder = tempfile::tempdir().unwrap();
        let view = ViewFile::create_in(&RunFolder::of(folder.path()), "probe -i eth0 --view").unwrap();
        view.set_live();
        let worker = view.join();
        let (second, tables) = second(END);
        view.contribute(worker, &second, &tables);
        Metered { folder, _view: view }
    }

    fn top(&self, arguments: &[&str]) -> Finished {
        let mut command = tapline(["top", "--interval", "20ms"]);
        command.args(arguments).env("TZ", "UTC").env("LC_ALL", "C");
        command.env("XDG_STATE_HOME", self.folder.path());
        finish(command.env("TAPLINE_RUN_DIR", self.folder.path()))
    }
}

/// `top` on a terminal of script(1).
struct Terminal {
    child: Child,
    keys: ChildStdin,
    log: PathBuf,
}

impl Terminal {
    fn open(metered: &Metered, (columns, lines): (u16, u16), arguments: &str, locale: &str) -> Terminal {
        let top = format!("{TAPLINE} top --interval 1m {arguments}");
        Terminal::of_line(metered, &format!("stty cols {columns} rows {lines}; {top}"), locale)
    }

    fn of_line(metered: &Metered, line: &str, locale: &str) -> Terminal {
        let log = metered.folder.path().join("typescript");
        let mut child = Command::new("script")
            .args(["-q", "-e", "-f", "-c", line])
            .arg(&log)
            .env("TAPLINE_RUN_DIR", metered.folder.path())
            .env("XDG_STATE_HOME", metered.folder.path())
            .env("TZ", "UTC")
            .env("LC_ALL", locale)
            .env("NO_COLOR", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let keys = child.stdin.take().expect("a pipe");
        Terminal { child, keys, log }
    }

    fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// The lines of the last whole frame.
    fn shown(&self) -> String {
        let log = self.log();
        let whole = log.rfind("\x1b[J").map_or("", |end| &log[..end]);
        let frame = whole.rsplit("\x1b[H").next().unwrap_or_default().replace('\r', "");
        let mut text = String::new();
        let mut rest = frame.as_str();
        while let Some((before, escape)) = rest.split_once("\x1b[") {
            text += before;
            rest =
                escape.split_once(|letter: char| letter.is_ascii_alphabetic()).map_or("", |(_, rest)| rest);
        }
        text + rest
    }

    /// Waits for a frame with a word, and compares it with the one that is kept.
    fn shows(&self, word: &str, name: &str) {
        wait_for(&format!("a frame with {word:?} for {name}"), || self.shown().contains(word));
        same_as_kept(name, &self.shown());
    }

    fn quit(mut self) {
        self.press("q");
        assert!(self.child.wait().unwrap().success());
        let log = fs::read_to_string(&self.log).unwrap();
        assert!(log.contains("\x1b[?1049l"), "the terminal is given back");
        assert!(!log.contains("\x1b[31m") && !log.contains("\x1b[2m"), "NO_COLOR holds");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn same_as_kept(name: &str, shown: &str) {
    let shown: String = shown.lines().map(|line| line.trim_end().to_owned() + "\n").collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/live/top/frames/{name}.txt"));
    if std::env::var_os("TAPLINE_FRAMES").is_some_and(|value| value == "write") {
        fs::write(&path, &shown).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(shown, kept, "{name}: shown, and kept in {}", path.display());
}

#[test]
fn pages_are_as_kept_at_80_by_24() {
    const TEST: &str = "pages_are_as_kept_at_80_by_24";
    if !program_or_skip(TEST, "script") {
        return;
    }
    let metered = Metered::new();
    let mut terminal = Terminal::open(&metered, (80, 24), "", "C");
    terminal.shows("Senders", "overview-80");
    for (key, word, name) in [
        ("2", "[2 hosts]", "hosts-80"),
        ("3", "[3 pairs]", "pairs-80"),
        ("4", "[4 flows]", "flows-80"),
        ("5", "[5 protocols]", "protocols-80"),
        ("6", "balanced", "losses-80"),
        ("2jj\r", "10.0.0.2  sends", "host-80"),
        ("\x1b", "Receivers", "host-back-80"),
        ("1bb", "10 s  packets", "overview-packets-80"),
        ("/host:10.0.0.3\r", "1 s  filter: host:10.0.0.3", "filtered-80"),
        ("?", "Keys, as", "keys-80"),
    ] {
        terminal.press(key);
        terminal.shows(word, name);
        for line in terminal.shown().lines() {
            assert!(line.chars().count() <= 80, "{name}: {line}");
        }
    }
    terminal.quit();
}

/// Events of rules and tables of recorders, as `tapline watch --events FILE --json` writes them.
fn events(folder: &Path) -> PathBuf {
    let path = folder.join("events.json");
    let lines = [
        r#"{"time":"2026-09-21T09:58:07.5Z","rule":"port-scan","event":"raised","key":{"src":"10.0.0.9"},"value":20,"message":"10.0.0.9 tried 20 ports","swallowed":3}"#,
        "no event",
        r#"{"time":"2026-09-21T09:59:30Z","rule":"port-scan","event":"cleared","key":{"src":"10.0.0.9"},"value":4}"#,
        r#"{"recorder":"talkers/talkers","kind":"top","from":"2026-09-21T08:00:00Z","to":"2026-09-21T09:00:00Z","columns":["key","sum"],"rows":[["10.0.0.1",7000],["10.0.0.2",300]]}"#,
    ];
    fs::write(&path, lines.join("\n") + "\n").unwrap();
    path
}

#[test]
fn events_of_rules_have_a_page() {
    const TEST: &str = "events_of_rules_have_a_page";
    let metered = Metered::new();
    let path = events(metered.folder.path());
    let path = path.to_str().expect("text");
    let told = metered.top(&["--once", "--json", "--events", path]).succeeded().stdout;
    let told: Value = serde_json::from_slice(&told).expect("JSON");
    let watched = &told["watched"];
    assert_eq!(watched["events"].as_array().map(Vec::len), Some(2), "{watched}");
    assert_eq!(watched["events"][0]["kind"], "cleared", "the latest first");
    assert_eq!(watched["tables"][0]["rows"][1][0], "10.0.0.2");
    metered.top(&["--once", "--page", "events"]).failed_saying(&["tapline watch --events FILE --json"]);
    metered.top(&["--once", "--events", "/nonexistent"]).failed_saying(&["--events", "/nonexistent"]);
    if !program_or_skip(TEST, "script") {
        return;
    }
    let mut terminal = Terminal::open(&metered, (80, 24), &format!("--events {path}"), "C");
    wait_for("a frame", || terminal.shown().contains("Senders"));
    terminal.press("0");
    terminal.shows("[0 events]", "events-80");
    terminal.quit();
}

/// Ctrl-Z gives the terminal back as it was, and `fg` takes it again.
#[test]
fn a_stopped_top_leaves_the_terminal_as_it_was() {
    const TEST: &str = "a_stopped_top_leaves_the_terminal_as_it_was";
    if !program_or_skip(TEST, "script") {
        return;
    }
    let metered = Metered::new();
    let line = format!(
        "set -m; stty cols 80 rows 24; {TAPLINE} top --interval 1m; stty -a | tr ' ' '\\n' | grep -x '.*icanon'; fg; echo at the end"
    );
    let mut terminal = Terminal::of_line(&metered, &line, "C");
    wait_for("a frame", || terminal.shown().contains("Senders"));
    terminal.press("\x1a");
    // What follows the end of the other screen; the line itself stands before it.
    let left = |terminal: &Terminal| {
        terminal.log().split_once("\x1b[?1049l").map(|(_, left)| left.to_owned()).unwrap_or_default()
    };
    wait_for("the shell's line", || left(&terminal).contains("icanon"));
    assert!(!left(&terminal).contains("-icanon"), "{:?}", left(&terminal));
    wait_for("the other screen after fg", || left(&terminal).contains("\x1b[?1049h"));
    wait_for("a frame after fg", || left(&terminal).contains("Senders"));
    terminal.press("q");
    wait_for("the end of the shell", || terminal.log().contains("at the end"));
    assert!(terminal.child.wait().unwrap().success());
}

#[test]
fn a_wide_terminal_has_tables_side_by_side() {
    const TEST: &str = "a_wide_terminal_has_tables_side_by_side";
    if !program_or_skip(TEST, "script") {
        return;
    }
    let metered = Metered::new();
    let mut terminal = Terminal::open(&metered, (150, 50), "", "C.UTF-8");
    terminal.shows("Senders", "overview-150");
    terminal.press("4");
    terminal.shows("[4 flows]", "flows-150");
    terminal.quit();
}

/// Each table of the JSON adds up to the interface, and has the figures of the text.
#[test]
fn json_has_what_a_browser_gets() {
    let metered = Metered::new();
    let told = metered.top(&["--once", "--json", "--page", "hosts"]).succeeded().stdout;
    let told: Value = serde_json::from_slice(&told).expect("JSON");
    assert_eq!(told["processes"], Value::Array(Vec::new()), "this test has no meters");
    let view = &told["view"];
    assert_eq!(view["process"]["title"], "probe -i eth0 --view");
    for name in ["host_in", "host_out"] {
        let table = &view["page"][name];
        let packets = |value: &Value| value[0].as_u64().expect("a number");
        let rows: u64 =
            table["rows"].as_array().expect("rows").iter().map(|row| packets(&row["amount"])).sum();
        let rest = ["others", "unfitting", "not_ip", "unread"].map(|part| packets(&table[part]));
        let lost = table["lost"].as_u64().expect("a number");
        assert_eq!(rows + rest.iter().sum::<u64>() + lost, packets(&table["sum"]), "{table}");
    }
    assert_eq!(view["page"]["host_out"]["rows"][0]["host"], "10.0.0.1");
    metered.top(&["--once", "--filter", "host:nowhere"]).failed_saying(&["--filter", "not an address"]);
}

#[test]
fn once_prints_a_whole_page() {
    let metered = Metered::new();
    let text = String::from_utf8(metered.top(&["--once"]).succeeded().stdout).expect("text");
    same_as_kept("once", &text);
    assert!(text.is_ascii(), "the locale has no other letters");
}

#[test]
fn lines_are_one_for_each_second() {
    let metered = Metered::new();
    let mut command = tapline(["top", "--lines"]);
    command.env("TZ", "UTC").env("TAPLINE_RUN_DIR", metered.folder.path());
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the program was built");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("a pipe")));
    let first = lines.next().expect("a line").expect("text");
    assert_eq!(
        first,
        "10:00:00  26.0 Mbit/s  4.10 k packets/s  56 flows  lost 34  Senders: 10.0.0.1 6.40 Mbit/s"
    );
    // With its meter it ends.
    drop(metered);
    assert_eq!(lines.count(), 0, "no second more");
    assert!(child.wait().unwrap().success());
}

#[cfg(feature = "view")]
mod past {
    use std::time::Duration;

    use tapline_view::Reading;
    use tapline_web::{History, HistoryLimits};

    use super::*;

    /// An hour of minutes, and before them a second of each hour of a week.
    fn history(path: &Path) {
        let limits = HistoryLimits { hours: Duration::from_secs(800 * 86_400), ..HistoryLimits::default() };
        let mut history = History::open(path, limits).expect("a history");
        let hours = (1..=7 * 24).rev().map(|hour| END - hour * 3600 - 1800);
        for end in hours.chain((1..=60).rev().map(|minute| END - minute * 60 + 1)) {
            let (mut second, tables) = second(end);
            // Half of the time nothing is lost.
            if end / 43_200 % 2 == 0 {
                second.lost_ring = 0;
            }
            history.add(&Reading { number: end, second, tables }, u64::MAX).expect("it is written");
        }
        history.finish().expect("it is written");
    }

    #[test]
    fn brackets_lead_into_the_history() {
        const TEST: &str = "brackets_lead_into_the_history";
        if !program_or_skip(TEST, "script") {
            return;
        }
        let metered = Metered::new();
        fs::create_dir(metered.folder.path().join("tapline")).unwrap();
        let path = metered.folder.path().join("history.sqlite");
        history(&path);
        let mut terminal = Terminal::open(&metered, (80, 24), &format!("--history {}", path.display()), "C");
        terminal.shows("Senders", "overview-80");
        for (key, word, name) in [
            ("8", "[8 history]", "history-day-80"),
            ("]", "7 d", "history-week-80"),
            ("d", "Receivers", "history-receivers-80"),
            ("h", "2026-09-10 22:00", "history-earlier-80"),
            ("2]]]", "1 h  ", "hosts-hour-80"),
        ] {
            terminal.press(key);
            terminal.shows(word, name);
        }
        terminal.quit();
    }
}
