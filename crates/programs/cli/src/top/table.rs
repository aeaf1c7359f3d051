//! Reports as text: a table for each process, as wide as there is room.
//!
//! ```text
//! 4711  run device eth0  for 1:02:03
//!   eth0  received 12,379  delivered 12,345  lost ring 34        places with packets, and those that cannot be known
//!   stage   class   packets/s    bits/s  packets  cycles/packet  in all  median    p99   share
//!   meter   flow       120 k    61.4 M   12,345           31.2    30.9    29.0   52.0   48.1%
//!           now 1,234  room 1,048,576  flows 5,678        what the stage alone tells, if anything
//! ```

use tapline_graph::grouped;
use tapline_meters::{SlotState, Snapshot, UNKNOWN};

use super::reading::{ProcessReport, Report, Stage};

/// Names are not cut shorter than this before columns are left out.
const NAME_LEAST: usize = 8;
/// Between two columns.
const GAP: usize = 2;

/// A column: its head, and its cells. Those that come later in [`LEAVING`] are left out later.
struct Column {
    head: &'static str,
    cell: fn(&Stage) -> String,
}

const COLUMNS: [Column; 10] = [
    Column { head: "stage", cell: |stage| printable(&stage.activity.total.name) },
    Column { head: "class", cell: class },
    Column { head: "packets/s", cell: |stage| rate(stage, stage.packets_per_second) },
    Column { head: "bits/s", cell: |stage| rate(stage, stage.bits_per_second) },
    Column { head: "packets", cell: |stage| grouped(stage.activity.total.packets_in) },
    Column { head: "cycles/packet", cell: |stage| cycles(stage.activity.recent.cycles_per_packet()) },
    Column { head: "in all", cell: |stage| cycles(stage.activity.total.cycles_per_packet()) },
    Column { head: "median", cell: |stage| cycles(stage.activity.recent.percentile(0.5)) },
    Column { head: "p99", cell: |stage| cycles(stage.activity.recent.percentile(0.99)) },
    Column { head: "share", cell: share },
];

/// Columns in the order in which they are left out where there is no room: class, in all, p99, median, share, packets,
/// bits/s, cycles/packet.
const LEAVING: [usize; 8] = [1, 6, 8, 7, 9, 4, 3, 5];
/// The columns of words; the others are numbers.
const WORDS: usize = 2;

/// The report, no line longer than `width`.
pub(super) fn text(report: &Report, width: usize) -> String {
    if report.processes.is_empty() {
        return nothing() + "\n";
    }
    let tables = report.processes.iter().map(|process| of_process(process, width));
    tables.collect::<Vec<_>>().join("\n")
}

/// Text where nothing runs.
pub(super) fn nothing() -> String {
    "no tapline process that you may read is running; to watch an interface: sudo tapline top -i eth0"
        .to_owned()
}

fn of_process(process: &ProcessReport, width: usize) -> String {
    let head = format!(
        "{}  {}  for {}",
        process.pid,
        printable(&process.title),
        time(process.uptime_ns / 1_000_000_000)
    );
    let mut text = cut(&head, width) + "\n";
    let rows: Vec<Vec<String>> = process
        .stages
        .iter()
        .map(|stage| COLUMNS.iter().map(|column| (column.cell)(stage)).collect())
        .collect();
    for interface in &process.interfaces {
        text += &(cut(&format!("  {}", interface_text(interface)), width) + "\n");
    }
    if rows.is_empty() {
        return text + cut("  no stages yet", width).as_str() + "\n";
    }
    let heads: Vec<String> = COLUMNS.iter().map(|column| column.head.to_owned()).collect();
    let mut widths = widths(&heads, &rows);
    let shown = shown(&mut widths, width);
    text += &(line(&heads, &widths, &shown) + "\n");
    for (row, stage) in rows.iter().zip(&process.stages) {
        text += &(line(row, &widths, &shown) + "\n");
        let gauges = &stage.activity.total.extras;
        if !gauges.is_empty() {
            let words = gauges.iter().map(|(name, value)| format!("{} {}", printable(name), grouped(*value)));
            let indent = " ".repeat(GAP + widths[0] + GAP);
            text += &(cut(&(indent + words.collect::<Vec<_>>().join("  ").as_str()), width) + "\n");
        }
    }
    text
}

/// Packets of an interface by place, without places of none.
fn interface_text(interface: &Snapshot) -> String {
    let places = interface.extras.iter().filter_map(|(name, value)| {
        let name = printable(name.strip_suffix("_max").unwrap_or(name)).replace('_', " ");
        match *value {
            0 => None,
            UNKNOWN => Some(format!("{name} unknown")),
            value => Some(format!("{name} {}", grouped(value))),
        }
    });
    format!("{}  {}", printable(&interface.name), places.collect::<Vec<_>>().join("  "))
}

fn widths(heads: &[String], rows: &[Vec<String>]) -> Vec<usize> {
    let widest = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    heads.iter().enumerate().map(|(at, head)| head.chars().count().max(widest(at))).collect()
}

/// The columns for which there is room. The first one is made narrower if need be.
fn shown(widths: &mut [usize], width: usize) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..widths.len()).collect();
    let others =
        |shown: &[usize], widths: &[usize]| shown[1..].iter().map(|at| widths[*at] + GAP).sum::<usize>();
    for leaving in LEAVING {
        let name = widths[0].min(NAME_LEAST.max(widths[0] / 2));
        if GAP + name + others(&shown, widths) <= width {
            break;
        }
        shown.retain(|at| *at != leaving);
    }
    widths[0] = widths[0].min(width.saturating_sub(GAP + others(&shown, widths)).max(1));
    shown
}

fn line(row: &[String], widths: &[usize], shown: &[usize]) -> String {
    let mut line = String::new();
    for &at in shown {
        let (cell, width) = (cut(&row[at], widths[at]), widths[at]);
        line += &" ".repeat(GAP);
        line += &if at < WORDS { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
    }
    line.trim_end().to_owned()
}

fn class(stage: &Stage) -> String {
    let class = printable(&stage.activity.total.class);
    if stage.activity.workers > 1 { format!("{class} x{}", stage.activity.workers) } else { class }
}

fn rate(stage: &Stage, value: Option<f64>) -> String {
    match value {
        _ if stage.activity.total.state == SlotState::Retired => "ended".to_owned(),
        Some(value) => short(value),
        None => "-".to_owned(),
    }
}

fn share(stage: &Stage) -> String {
    stage.activity.share.map_or_else(|| "-".to_owned(), |share| format!("{:.1}%", share * 100.0))
}

fn cycles(cycles: Option<f64>) -> String {
    match cycles {
        None => "-".to_owned(),
        Some(cycles) if cycles < 9999.5 => format!("{cycles:.1}"),
        Some(cycles) => short(cycles),
    }
}

/// Three digits and a unit: 12.3 k, 1.50 M.
pub(super) fn short(value: f64) -> String {
    let (mut value, mut unit) = (value, 0);
    const UNITS: [&str; 5] = ["", " k", " M", " G", " T"];
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = match value {
        _ if unit == 0 => 0,
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$}{}", UNITS[unit])
}

/// Hours, minutes and seconds.
fn time(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// Names come from other users' processes: nothing in them may command the terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let start: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{start}~")
}

#[cfg(test)]
mod tests {
    use tapline_meters::Activity;

    use super::*;

    fn report(name: &str) -> Report {
        let snapshot = Snapshot {
            name: name.into(),
            class: "filter".into(),
            state: SlotState::Used,
            packets_in: 1_234_567,
            cycles: 12_345_670,
            extras: vec![("now\x1b".into(), 1_234), ("a long name".into(), u64::MAX)],
            ..Snapshot::default()
        };
        let ended = Snapshot {
            state: SlotState::Retired,
            name: "old".into(),
            extras: Vec::new(),
            ..snapshot.clone()
        };
        let stage = |total: Snapshot| Stage {
            packets_per_second: Some(120_400.0),
            bits_per_second: Some(61.44e6),
            activity: Activity { recent: total.clone(), total, workers: 1, share: Some(0.481) },
        };
        let process = ProcessReport {
            pid: 4711,
            title: "run \x1b[2J".into(),
            uptime_ns: 3_723_000_000_000,
            interval_ns: Some(1_000_000_000),
            frequency_hz: 1,
            stages: vec![stage(snapshot), stage(ended)],
            interfaces: Vec::new(),
        };
        Report { time_ns: 0, processes: vec![process] }
    }

    #[test]
    fn a_table_has_the_requested_columns() {
        let text = text(&report("web"), usize::MAX);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "4711  run ?[2J  for 1:02:03");
        let words: Vec<&str> = lines[2].split("  ").map(str::trim).filter(|word| !word.is_empty()).collect();
        assert_eq!(
            words,
            ["web", "filter", "120 k", "61.4 M", "1,234,567", "10.0", "10.0", "-", "-", "48.1%"]
        );
        assert_eq!(lines[3].trim(), "now? 1,234  a long name 18,446,744,073,709,551,615");
        assert!(lines[4].contains("ended"), "{text}");
        assert_eq!(lines[1].len(), lines[2].len());
    }

    #[test]
    fn losses_of_an_interface_have_their_places() {
        let extras = [
            ("received", 1_234),
            ("unread", 0),
            ("lost_ring", 34),
            ("refused", UNKNOWN),
            ("lost_nic_max", 5),
        ];
        let extras = extras.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let interface = Snapshot { name: "eth0".into(), extras, ..Snapshot::default() };
        assert_eq!(
            interface_text(&interface),
            "eth0  received 1,234  lost ring 34  refused unknown  lost nic 5"
        );
    }

    #[test]
    fn no_line_is_longer_than_the_terminal() {
        let long = report("a stage whose name is very long, as planners make them");
        for width in [10, 20, 25, 40, 60, 80, 100, 200] {
            for line in text(&long, width).lines() {
                assert!(line.chars().count() <= width.max(22), "{width}: {line}");
            }
        }
        assert!(text(&long, 80).contains("cycles/packet"));
        assert!(text(&report("web"), 200).contains("median"));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.0, 999.4, 999.6, 12_345.0, 123_456.0, 2.5e9].map(short),
            ["0", "999", "1.00 k", "12.3 k", "123 k", "2.50 G"]
        );
        assert_eq!([59, 60, 3600].map(time), ["0:59", "1:00", "1:00:00"]);
    }
}
