//! Flows for people: the greatest ones as a table, and all of them in a line.
//!
//! ```text
//! proto  source            destination     start         packets   bytes    back  duration  state   ended
//! tcp    10.0.0.1:40000    10.0.0.2:443    22:13:20.000      321  1.2 MB  1.1 MB  12.3 s    closed  end
//! 200 flows  20.0k packets  9.8 MB  in 20.0 s from 2023-11-14 22:13:20 UTC  1.0k packets/s  3.9 Mbit/s
//! ```
//!
//! On a narrow terminal the column `start` is left out; if that is not enough, each flow shows its two ends on lines of
//! their own, so that no address is cut.

use tapline_collect::RefusedCause;
use tapline_graph::{Cell, Table};

/// The layout of the report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    /// Whether the tables of the stages are shown too.
    pub(crate) verbose: bool,
    /// The most flows that are shown.
    pub(crate) top: usize,
}

/// The stages of `tapline probe` and `tapline collect-flows` whose results are shown as flows.
const METER: &str = "meter";
const SOURCES: &str = "sources";
const TOP: &str = "top";

/// Whether the result of this stage is shown as flows.
pub(crate) fn is_shown(stage: &str) -> bool {
    matches!(stage, METER | TOP | SOURCES)
}

/// The greatest flows and the sums of the results of one or several workers. Lines have at most `width` columns, if
/// there is a width, except for an address or a text that is longer.
pub(crate) fn text(workers: &[Vec<(String, Table)>], style: Style, width: Option<usize>) -> String {
    let of = |stage: &str| -> Vec<&Table> {
        workers.iter().flatten().filter(|(name, _)| name == stage).map(|(_, table)| table).collect()
    };
    let (meters, tops, sources) = (of(METER), of(TOP), of(SOURCES));
    let mut text = String::new();
    if !tops.is_empty() {
        let mut flows: Vec<Flow> = tops.iter().flat_map(|table| Flow::all(table)).collect();
        flows.sort_by_key(|flow| (std::cmp::Reverse(flow.bytes), flow.first_ns));
        flows.truncate(style.top);
        text += &table_text(&flows, width);
    }
    sources.iter().for_each(|table| text += &sources_text(table));
    text + totals(&[meters, sources].concat()).as_str()
}

/// The sources of collected flows, with remarks.
fn sources_text(table: &Table) -> String {
    let at = |name: &str| table.columns.iter().position(|column| *column == name);
    // Sessions of one exporter and domain are told apart by their ports.
    let session =
        |row: &Vec<Cell>| ["exporter", "protocol", "domain"].map(|name| row.get(at(name)?).cloned());
    let has_port = |row: &Vec<Cell>| {
        let is_same = |other: &&Vec<Cell>| session(other) == session(row);
        table.rows.iter().filter(is_same).count() > 1
    };
    let row = |row: &Vec<Cell>| -> Vec<Entry> {
        let cell = |name: &str| row.get(at(name)?);
        let number = |name: &str| cell(name).map_or(0, number_of);
        let word = |name: &str| cell(name).map(Cell::to_string).unwrap_or_default();
        let mut remarks = Vec::new();
        if number("sampling") > 1 {
            remarks.push(format!("1 in {} sampled", number("sampling")));
        }
        let told =
            ["late", "restarts", "held", "filtered", "unscaled", "totals_forgotten", "retimed"].into_iter();
        for name in told.chain(RefusedCause::ALL.map(RefusedCause::name)).filter(|name| number(name) > 0) {
            remarks.push(format!("{} {}", amount(number(name), ""), name.replace('_', " ")));
        }
        let lost = match number("lost") {
            0 => "0".to_owned(),
            lost => format!("{} {}", amount(lost, ""), word("unit")),
        };
        vec![
            Entry::left(
                "exporter",
                match has_port(row) {
                    true => format!("{} port {}", word("exporter"), number("port")),
                    false => word("exporter"),
                },
            ),
            Entry::left("protocol", word("protocol")),
            Entry::right(
                "domain",
                cell("domain")
                    .map_or_else(String::new, |cell| number_text(cell, |number| number.to_string())),
            ),
            Entry::right("datagrams", amount(number("datagrams"), "")),
            Entry::right("flows", amount(number("flows"), "")),
            Entry::right("packets", amount(number("packets"), "")),
            Entry::right("bytes", bytes(number("bytes"))),
            Entry::right("lost", lost),
            Entry::left("remarks", remarks.join(", ")),
        ]
    };
    columns(&table.rows.iter().map(row).collect::<Vec<_>>()).iter().map(|line| format!("{line}\n")).collect()
}

/// A row of the greatest flows.
struct Flow {
    protocol: String,
    source: String,
    destination: String,
    application: Option<String>,
    name: Option<String>,
    /// Packets and bytes of both directions, and bytes back; `None` if unknown.
    packets: Option<u64>,
    bytes: Option<u64>,
    back: Option<u64>,
    ms: u64,
    first_ns: i64,
    round_trip: Option<String>,
    again: Option<String>,
    state: String,
    ended: String,
    details: String,
    /// Where both ends are.
    places: [Option<String>; 2],
}

impl Flow {
    fn all(table: &Table) -> Vec<Flow> {
        table.rows.iter().map(|row| Flow::of(table, row)).collect()
    }

    fn of(table: &Table, row: &[Cell]) -> Flow {
        let cell = |name: &str| row.get(table.columns.iter().position(|column| *column == name)?);
        let number = |name: &str| match cell(name) {
            Some(Cell::Number(number)) => *number,
            _ => 0,
        };
        let counted = |name: &str| match cell(name) {
            Some(Cell::Number(number)) => Some(*number),
            _ => None,
        };
        // The sum of what is known.
        let both = |there: &str, back: &str| match (counted(there), counted(back)) {
            (Some(there), Some(back)) => Some(there + back),
            (there, back) => there.or(back),
        };
        let known = |name: &str| cell(name).map(Cell::to_string);
        let word = |name: &str| known(name).unwrap_or_default();
        Flow {
            protocol: word("protocol"),
            source: word("source"),
            destination: word("destination"),
            application: known("application"),
            name: known("name"),
            packets: both("packets", "packets_back"),
            bytes: both("bytes", "bytes_back"),
            back: counted("bytes_back"),
            ms: number("ms"),
            first_ns: cell("first_ns").and_then(time_of).unwrap_or(0),
            round_trip: cell("rtt_us").map(|cell| number_text(cell, microseconds)),
            again: known("again"),
            state: word("state"),
            ended: word("end"),
            details: word("details"),
            places: ["source_place", "destination_place"]
                .map(|name| known(name).filter(|place| !place.is_empty())),
        }
    }

    /// The columns behind both ends.
    fn cells(&self, has_start: bool) -> Vec<Entry> {
        let mut cells = Vec::new();
        let mut texts =
            |name, text: &Option<String>| cells.extend(text.clone().map(|text| Entry::left(name, text)));
        texts("application", &self.application);
        texts("name", &self.name);
        if has_start {
            cells.push(Entry::left("start", time_of_day(self.first_ns)));
        }
        let or_unknown = |number: Option<u64>, text: fn(u64) -> String| number.map_or("-".to_owned(), text);
        cells.push(Entry::right("packets", or_unknown(self.packets, |packets| amount(packets, ""))));
        cells.push(Entry::right("bytes", or_unknown(self.bytes, bytes)));
        cells.push(Entry::right("back", or_unknown(self.back, bytes)));
        cells.push(Entry::right("duration", duration(self.ms)));
        cells.extend(self.round_trip.clone().map(|text| Entry::right("round trip", text)));
        cells.extend(self.again.clone().map(|text| Entry::right("sent again", text)));
        cells.push(Entry::left("state", self.state.clone()));
        cells.push(Entry::left("ended", self.ended.clone()));
        cells
    }
}

/// A cell with the name of its column.
struct Entry {
    column: &'static str,
    text: String,
    is_right: bool,
}

impl Entry {
    fn left(column: &'static str, text: String) -> Entry {
        Entry { column, text, is_right: false }
    }

    fn right(column: &'static str, text: String) -> Entry {
        Entry { column, text, is_right: true }
    }
}

/// The greatest flows, in the widest form that fits.
fn table_text(flows: &[Flow], width: Option<usize>) -> String {
    if flows.is_empty() {
        return String::new();
    }
    let whole = |has_start: bool| {
        let row = |flow: &Flow| {
            let ends =
                [("proto", &flow.protocol), ("source", &flow.source), ("destination", &flow.destination)];
            let ends = ends.into_iter().map(|(name, text)| Entry::left(name, text.clone()));
            ends.chain(flow.cells(has_start)).collect()
        };
        columns(&flows.iter().map(row).collect::<Vec<_>>())
    };
    let fits = |lines: &[String]| width.is_none_or(|width| lines.iter().all(|line| length(line) <= width));
    for lines in [true, false].map(whole) {
        if fits(&lines) {
            let (head, rows) = lines.split_first().expect("the names of the columns");
            let rows =
                rows.iter().zip(flows).map(|(line, flow)| line.clone() + "\n" + details(flow).as_str());
            return format!("{head}\n{}", rows.collect::<String>());
        }
    }
    // Application and name may be long: they stand with the ends.
    let numbers = |flow: &Flow| -> Vec<Entry> {
        let cells = flow.cells(false).into_iter();
        cells.filter(|cell| !matches!(cell.column, "application" | "name")).collect()
    };
    let lines = columns(&flows.iter().map(numbers).collect::<Vec<_>>());
    let mut text = format!("proto  source > destination\n       {}\n", lines[0]);
    for (flow, line) in flows.iter().zip(&lines[1..]) {
        let names = [&flow.application, &flow.name].map(|name| name.as_deref().filter(|name| *name != "-"));
        let names: String = names.into_iter().flatten().map(|name| format!("  {name}")).collect();
        let (source, to) =
            (format!("{:<5}  {}", flow.protocol, flow.source), format!("> {}{names}", flow.destination));
        let is_one = width.is_none_or(|width| length(&source) + 1 + length(&to) <= width);
        let gap = if is_one { " " } else { "\n       " };
        text += &format!("{source}{gap}{to}\n       {line}\n{}", details(flow));
    }
    text
}

/// Places and further fields of a flow, in lines below it.
fn details(flow: &Flow) -> String {
    let places = match &flow.places {
        [None, None] => None,
        places => Some(places.each_ref().map(|place| place.as_deref().unwrap_or("?")).join(" > ")),
    };
    let lines =
        places.as_deref().into_iter().chain((!flow.details.is_empty()).then_some(flow.details.as_str()));
    lines.map(|line| format!("       {line}\n")).collect()
}

/// Columns that a terminal needs: two for a wide letter, none for a mark on the one before.
fn length(text: &str) -> usize {
    let columns = |letter: char| match letter {
        '\u{300}'..='\u{36f}' | '\u{20d0}'..='\u{20ff}' | '\u{fe00}'..='\u{fe0f}' => 0,
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{a4cf}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}' => 2,
        '\u{ff00}'..='\u{ff60}'
        | '\u{ffe0}'..='\u{ffe6}'
        | '\u{1f300}'..='\u{1faff}'
        | '\u{20000}'..='\u{3fffd}' => 2,
        _ => 1,
    };
    text.chars().map(columns).sum()
}

fn time_of(cell: &Cell) -> Option<i64> {
    match cell {
        Cell::Time(ns) => Some(*ns),
        Cell::Number(_) | Cell::Sum(_) | Cell::Text(_) | Cell::Unknown => None,
    }
}

/// The text of a cell, whose number is written by `text`.
fn number_text(cell: &Cell, text: fn(u64) -> String) -> String {
    if let Cell::Number(number) = cell { text(*number) } else { cell.to_string() }
}

/// The number of a cell; 0 if it has none.
fn number_of(cell: &Cell) -> u128 {
    match cell {
        Cell::Number(number) => u128::from(*number),
        Cell::Sum(sum) => *sum,
        Cell::Time(_) | Cell::Text(_) | Cell::Unknown => 0,
    }
}

/// The names of the columns and all rows, in columns.
fn columns(rows: &[Vec<Entry>]) -> Vec<String> {
    let count = rows.first().map_or(0, Vec::len);
    let cell = |row: &Vec<Entry>, at: usize| row.get(at).map_or(0, |entry| length(&entry.text));
    let width =
        |at: usize| rows.iter().map(|row| cell(row, at)).max().unwrap_or(0).max(length(rows[0][at].column));
    let widths: Vec<usize> = (0..count).map(width).collect();
    let line = |row: &Vec<Entry>, text: fn(&Entry) -> &str| {
        let cells = row.iter().zip(&widths).map(|(entry, width)| {
            let (text, gap) = (text(entry), " ".repeat(width.saturating_sub(length(text(entry)))));
            if entry.is_right { gap + text } else { text.to_owned() + gap.as_str() }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let head = rows.first().map(|row| line(row, |entry| entry.column));
    head.into_iter().chain(rows.iter().map(|row| line(row, |entry| &entry.text))).collect()
}

/// Totals of all flows, and remarks for people.
fn totals(meters: &[&Table]) -> String {
    let cells = |name: &str| -> Vec<&Cell> {
        let cell = |table: &&'_ Table| table.columns.iter().position(|column| *column == name);
        let rows = meters.iter().flat_map(|table| table.rows.iter().map(move |row| (table, row)));
        rows.filter_map(|(table, row)| row.get(cell(table)?)).collect()
    };
    let sum = |name: &str| cells(name).into_iter().map(number_of).sum::<u128>();
    // Sources have columns of other meanings with the same names.
    let of_meters = |name: &str| -> u128 {
        let meters = meters.iter().filter(|table| !table.columns.contains(&"exporter"));
        let numbers = meters.flat_map(|table| {
            let at = table.columns.iter().position(|column| *column == name);
            table.rows.iter().filter_map(move |row| row.get(at?)).map(number_of)
        });
        numbers.sum()
    };
    let times = |name: &str| cells(name).into_iter().filter_map(time_of);
    let (flows, packets, all_bytes) = (sum("flows"), sum("packets"), sum("bytes"));
    let span = times("first_ns").min().zip(times("last_ns").max());
    let span = span.map(|(first, last)| (first, last.saturating_sub(first).max(0) as u64));
    let mut text =
        format!("{}  {}  {}", counted(flows, "flow"), counted(packets, "packet"), bytes(all_bytes));
    if let Some((first, ns)) = span {
        text += &format!("  in {} from {} {} UTC", duration(ns / 1_000_000), date(first), time_of_day(first));
        let seconds = ns as f64 / 1e9;
        // Of less than a millisecond a rate says nothing.
        if ns >= 1_000_000 {
            let rate = |count: f64, unit: &str| amount((count / seconds) as u64, unit);
            let (packets, bits) = (rate(packets as f64, " "), rate(all_bytes as f64 * 8.0, " "));
            text += &format!("  {}packets/s  {}bit/s", packets, bits);
        }
    }
    text += "\n";
    let left_out = [("not_ip", "not IP"), ("cut", "cut too short"), ("sampled_out", "left out by --sample")];
    let left_out: Vec<String> = left_out
        .iter()
        .filter_map(|(name, what)| {
            Some(sum(name)).filter(|count| *count > 0).map(|count| format!("{} {what}", amount(count, "")))
        })
        .collect();
    if !left_out.is_empty() {
        text += &format!("of no flow: packets {}\n", left_out.join(", "));
    }
    for (name, what) in [
        ("full", "flows ended because the table was full: --flows-max gives it more room"),
        ("no_room", "details found no room: --flows-max gives them more, or ask for fewer with --details"),
    ] {
        let count = of_meters(name);
        if count > 0 {
            text += &format!("{} {what}\n", amount(count, ""));
        }
    }
    text
}

fn counted(count: u128, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{} {what}{s}", amount(count, ""))
}

/// A number with three digits or so, and the letter of its thousands right behind `gap`.
fn amount(number: impl Into<u128>, gap: &str) -> String {
    let number = number.into();
    if number < 1000 {
        return format!("{number}{gap}");
    }
    let mut value = number as f64;
    for letter in ["k", "M", "G", "T", "P"] {
        value /= 1000.0;
        if value < 99.95 {
            return format!("{value:.1}{gap}{letter}");
        }
        if value < 999.5 {
            return format!("{value:.0}{gap}{letter}");
        }
    }
    format!("{:.1}{gap}E", value / 1000.0)
}

/// Bytes, in thousands.
fn bytes(number: impl Into<u128>) -> String {
    amount(number, " ") + "B"
}

/// A time of `ms` milliseconds.
fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match ms {
        0 => "0 ms".to_owned(),
        1..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{}.{} s", seconds, ms % 1000 / 100),
        60_000..3_600_000 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3_600_000..86_400_000 => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d {:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

fn microseconds(us: u64) -> String {
    match us {
        0..1000 => format!("{us} us"),
        1000..1_000_000 => format!("{}.{} ms", us / 1000, us % 1000 / 100),
        _ => duration(us / 1000),
    }
}

/// The time of a day, UTC, to the millisecond.
fn time_of_day(ns: i64) -> String {
    let (ms, seconds) =
        (ns.div_euclid(1_000_000).rem_euclid(1000), ns.div_euclid(1_000_000_000).rem_euclid(86_400));
    format!("{:02}:{:02}:{:02}.{ms:03}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// The day, UTC: years begin in March, so that the day of a leap year comes last.
fn date(ns: i64) -> String {
    let days = ns.div_euclid(86_400_000_000_000) + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, is_next) = (day - (153 * month + 2) / 5 + 1, month >= 10);
    let (month, year) = (if is_next { month - 9 } else { month + 3 }, year + era * 400 + i64::from(is_next));
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(source: &str, destination: &str) -> Table {
        let columns = vec![
            "protocol",
            "source",
            "destination",
            "packets",
            "bytes",
            "packets_back",
            "bytes_back",
            "ms",
            "state",
            "end",
            "first_ns",
        ];
        let text = |text: &str| Cell::from(text.to_owned());
        let row = vec![
            text("tcp"),
            text(source),
            text(destination),
            3400_u64.into(),
            1_000_000_u64.into(),
            0_u64.into(),
            234_567_u64.into(),
            12_345_u64.into(),
            text("closed"),
            text("end"),
            Cell::Time(1_700_000_000_000_000_000),
        ];
        Table { columns, rows: vec![row] }
    }

    #[test]
    fn rows_fit_the_terminal_and_no_address_is_cut() {
        let far = "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535";
        let table = flow(far, far);
        let flows = Flow::all(&table);
        for width in [200, 130, 110, 100, 80, 60] {
            let text = table_text(&flows, Some(width));
            assert_eq!(text.matches(far).count(), 2, "{text}");
            assert!(text.contains("3.4k") && text.contains("1.2 MB") && text.contains("12.3 s"), "{text}");
            let widest = text.lines().map(length).max().unwrap();
            assert!(widest <= width || width < 62, "{width}: {text}");
        }
        let short = table_text(&Flow::all(&flow("10.0.0.1:40000", "10.0.0.2:443")), Some(200));
        assert!(
            short.starts_with("proto  source          destination   start         packets   bytes"),
            "{short}"
        );
        assert_eq!(short.lines().count(), 2, "{short}");
    }

    #[test]
    fn amounts_read_as_people_write_them() {
        let texts =
            [0, 999, 1000, 3400, 99_949, 99_950, 999_499, 999_500, u64::MAX].map(|number| amount(number, ""));
        assert_eq!(texts, ["0", "999", "1.0k", "3.4k", "99.9k", "100k", "999k", "1.0M", "18.4E"]);
        assert_eq!([0_u64, 999, 1_200_000].map(bytes), ["0 B", "999 B", "1.2 MB"]);
        let times = [0, 5, 1500, 61_000, 3_660_000, 90_000_000].map(duration);
        assert_eq!(times, ["0 ms", "5 ms", "1.5 s", "1m 01s", "1h 01m", "1d 01h"]);
        let days = [-1, 0, 951_782_400, 1_700_000_000, 4_107_542_400]
            .map(|seconds: i64| date(seconds * 1_000_000_000));
        assert_eq!(days, ["1969-12-31", "1970-01-01", "2000-02-29", "2023-11-14", "2100-03-01"]);
        assert_eq!([-1, 0].map(|ms| time_of_day(ms * 1_000_000)), ["23:59:59.999", "00:00:00.000"]);
    }

    /// Flows of all workers are shown together, also if each has fewer than the limit.
    #[test]
    fn greatest_flows_of_several_workers_are_shown() {
        let worker = |source: &str| vec![("top".to_owned(), flow(source, "10.0.0.9:443"))];
        let workers = ["10.0.0.1:1", "10.0.0.2:2", "10.0.0.3:3"].map(worker);
        let lines = |top| text(&workers, Style { verbose: false, top }, None).matches("10.0.0.9:443").count();
        assert_eq!([10, 3, 2].map(lines), [3, 3, 2]);
    }

    #[test]
    fn letters_take_the_columns_that_they_have() {
        assert_eq!(["abc", "日本", "e\u{301}"].map(length), [3, 4, 1]);
    }
}
