//! Flows for people: the greatest ones as a table, and all of them in a line.
//!
//! ```text
//! proto  source            destination     start         packets   bytes    back  duration  state   ended
//! tcp    10.0.0.1:40000    10.0.0.2:443    22:13:20.000      321  1.2 MB  1.1 MB  12.3 s    closed  end
//! 200 flows  20.0k packets  9.8 MB  in 20.0 s from 2023-11-14 22:13:20.000 +00:00  1.0k packets/s  3.9 Mbit/s
//! ```
//!
//! On a narrow terminal the column `start` is left out; if that is not enough, each flow shows its two ends on lines of
//! their own, so that no address is cut.

use std::cmp::Reverse;

use tapline_collect::{Forgotten, RefusedCause, SourceAccount};
use tapline_flow::{EndReason, Statistics, UnmeteredCause};
use tapline_graph::{StageResult, grouped};
use tapline_packet::Timestamp;
use tapline_stages::{FlowResults, FlowRow};
use tapline_store::moments::local;

/// The layout of the report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    /// Whether the tables of the stages are shown too.
    pub(crate) verbose: bool,
    /// The most flows that are shown.
    pub(crate) top: usize,
}

/// The greatest flows and the sums of the results of one or several workers. Lines have at most `width` columns, if
/// there is a width, except for an address or a text that is longer.
pub(crate) fn text<'r>(
    results: impl IntoIterator<Item = &'r StageResult>,
    style: Style,
    width: Option<usize>,
) -> String {
    let mut totals = Totals::default();
    let (mut flows, mut sources) = (Vec::new(), String::new());
    for result in results.into_iter().filter_map(FlowResults::of) {
        match result {
            FlowResults::Top(rows) => flows.extend(rows),
            FlowResults::Meter(statistics, span) => totals.add_meter(statistics, *span),
            FlowResults::Sources(accounts, forgotten) => {
                sources += &sources_text(accounts, forgotten);
                let forgotten = (forgotten.sources > 0).then_some(&forgotten.account);
                accounts.iter().chain(forgotten).for_each(|account| totals.add_source(account));
            }
        }
    }
    flows.sort_by_key(|flow| (Reverse(both(flow.bytes)), flow.first_ns));
    flows.truncate(style.top);
    table_text(&flows, width) + sources.as_str() + totals.text().as_str()
}

/// The sources of collected flows, with remarks.
fn sources_text(accounts: &[SourceAccount], forgotten: &Forgotten) -> String {
    // Sessions of one exporter and domain are distinguished by their ports.
    let session = |source: &SourceAccount| (source.exporter, source.protocol, source.domain);
    let name = |source: &SourceAccount| match accounts
        .iter()
        .filter(|other| session(other) == session(source))
        .count()
    {
        0 | 1 => source.exporter.to_string(),
        _ => format!("{} port {}", source.exporter, source.port),
    };
    let mut rows: Vec<Vec<Entry>> = accounts
        .iter()
        .map(|source| {
            let domain = source.domain.to_string();
            source_row(source, [name(source), source.protocol.name().to_owned(), domain], source.unit)
        })
        .collect();
    if forgotten.sources > 0 {
        let name = format!("{} forgotten", grouped(forgotten.sources));
        rows.push(source_row(&forgotten.account, [name, "-".to_owned(), "-".to_owned()], "-"));
    }
    columns(&rows).iter().map(|line| format!("{line}\n")).collect()
}

fn source_row(source: &SourceAccount, [name, protocol, domain]: [String; 3], unit: &str) -> Vec<Entry> {
    let sampled = source.sampling.filter(|interval| *interval > 1);
    let mut remarks: Vec<String> =
        sampled.into_iter().map(|interval| format!("1 in {interval} sampled")).collect();
    let counts = [
        ("late", source.late),
        ("restarts", source.restarts),
        ("held", source.held),
        ("filtered", source.filtered),
        ("unscaled", source.unscaled),
        ("totals forgotten", source.totals_forgotten),
        ("retimed", source.retimed),
    ];
    let refused = RefusedCause::ALL.map(|cause| (cause.name(), source.refused[cause as usize]));
    for (name, count) in counts.into_iter().chain(refused).filter(|(_, count)| *count > 0) {
        remarks.push(format!("{} {}", amount(count, ""), name.replace('_', " ")));
    }
    let lost = match source.lost {
        0 => "0".to_owned(),
        lost => format!("{} {unit}", amount(lost, "")),
    };
    vec![
        Entry::left("exporter", name),
        Entry::left("protocol", protocol),
        Entry::right("domain", domain),
        Entry::right("datagrams", amount(source.datagrams, "")),
        Entry::right("flows", amount(source.flows, "")),
        Entry::right("packets", amount(source.packets, "")),
        Entry::right("bytes", bytes(source.bytes)),
        Entry::right("lost", lost),
        Entry::left("remarks", remarks.join(", ")),
    ]
}

/// The sum of what is known of both directions.
fn both([there, back]: [Option<u64>; 2]) -> Option<u64> {
    there.into_iter().chain(back).reduce(u64::saturating_add)
}

fn or_dash(text: &Option<String>) -> String {
    text.clone().unwrap_or_else(|| "-".to_owned())
}

/// The columns behind both ends. Those that no flow has a value for are left out.
fn cells(flow: &FlowRow, all: &[&FlowRow], has_start: bool) -> Vec<Entry> {
    let optional = |name, of: fn(&FlowRow) -> Option<String>| {
        all.iter().any(|flow| of(flow).is_some()).then(|| Entry::left(name, or_dash(&of(flow))))
    };
    let number = |number: Option<u64>, text: fn(u64) -> String| number.map_or("-".to_owned(), text);
    let mut cells = Vec::new();
    cells.extend(optional("application", |flow| flow.application.clone()));
    cells.extend(optional("name", |flow| flow.name.clone()));
    cells.extend(
        has_start.then(|| Entry::left("start", flow.first_ns.map_or("no time".to_owned(), time_of_day))),
    );
    cells.push(Entry::right("packets", number(both(flow.packets), |packets| amount(packets, ""))));
    cells.push(Entry::right("bytes", number(both(flow.bytes), bytes)));
    cells.push(Entry::right("back", number(flow.bytes[1], bytes)));
    cells.push(Entry::right("duration", number(flow.ms, duration)));
    let mut right = |entry: Option<Entry>| cells.extend(entry.map(|entry| Entry { is_right: true, ..entry }));
    right(optional("round trip", |flow| flow.rtt_us.map(microseconds)));
    right(optional("sent again", |flow| flow.again.map(grouped)));
    cells.push(Entry::left("state", flow.state.to_owned()));
    cells.push(Entry::left("ended", flow.end.to_owned()));
    cells
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
fn table_text(flows: &[&FlowRow], width: Option<usize>) -> String {
    if flows.is_empty() {
        return String::new();
    }
    let whole = |has_start: bool| {
        let row = |flow: &&FlowRow| {
            let ends = [("proto", &flow.protocol), ("source", &flow.ends[0]), ("destination", &flow.ends[1])];
            let ends = ends.into_iter().map(|(name, text)| Entry::left(name, or_dash(text)));
            ends.chain(cells(flow, flows, has_start)).collect()
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
    let numbers = |flow: &&FlowRow| -> Vec<Entry> {
        let cells = cells(flow, flows, false).into_iter();
        cells.filter(|cell| !matches!(cell.column, "application" | "name")).collect()
    };
    let lines = columns(&flows.iter().map(numbers).collect::<Vec<_>>());
    let mut text = format!("proto  source > destination\n       {}\n", lines[0]);
    for (flow, line) in flows.iter().zip(&lines[1..]) {
        let names = [&flow.application, &flow.name].into_iter().flatten();
        let names: String = names.map(|name| format!("  {name}")).collect();
        let [from, to] = flow.ends.each_ref().map(or_dash);
        let (source, to) = (format!("{:<5}  {from}", or_dash(&flow.protocol)), format!("> {to}{names}"));
        let is_one = width.is_none_or(|width| length(&source) + 1 + length(&to) <= width);
        let gap = if is_one { " " } else { "\n       " };
        text += &format!("{source}{gap}{to}\n       {line}\n{}", details(flow));
    }
    text
}

/// Places and further fields of a flow, in lines below it.
fn details(flow: &FlowRow) -> String {
    let places = match &flow.places {
        [None, None] => None,
        places => Some(places.each_ref().map(|place| place.as_deref().unwrap_or("?")).join(" > ")),
    };
    let lines = places.as_deref().into_iter().chain(flow.details.as_deref());
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

/// Totals of all flows, and what people should know of them.
#[derive(Default)]
struct Totals {
    flows: u128,
    packets: u128,
    bytes: u128,
    span: Option<(Timestamp, Timestamp)>,
    not_ip: u64,
    cut: u64,
    sampled_out: u64,
    full: u64,
    no_room: u64,
}

impl Totals {
    fn add_meter(&mut self, all: &Statistics, span: Option<(Timestamp, Timestamp)>) {
        let not = |cause: UnmeteredCause| all.not_metered[cause as usize].packets;
        self.add(all.made.into(), all.metered.packets.into(), all.flow_bytes.into(), span);
        self.not_ip += not(UnmeteredCause::NotIp);
        self.cut += not(UnmeteredCause::Cut);
        self.sampled_out += not(UnmeteredCause::Sampled);
        self.full += all.ended.of(EndReason::Full);
        self.no_room += all.refused.texts + all.refused.streams;
    }

    fn add_source(&mut self, source: &SourceAccount) {
        self.add(source.flows.into(), source.packets, source.bytes, source.span);
        self.not_ip += source.refused[RefusedCause::NotIp as usize];
    }

    fn add(&mut self, flows: u128, packets: u128, bytes: u128, span: Option<(Timestamp, Timestamp)>) {
        self.flows += flows;
        self.packets = self.packets.saturating_add(packets);
        self.bytes = self.bytes.saturating_add(bytes);
        let spans = self.span.into_iter().chain(span);
        self.span = spans.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
    }

    fn text(&self) -> String {
        let Totals { flows, packets, bytes: all_bytes, .. } = *self;
        let span = self.span.map(|(first, last)| (first, last.since(first).max(0) as u64));
        let mut text =
            format!("{}  {}  {}", counted(flows, "flow"), counted(packets, "packet"), bytes(all_bytes));
        if let Some((first, ns)) = span {
            let from = local(first, "%Y-%m-%d %H:%M:%S.%3f %:z");
            text += &format!("  in {} from {from}", duration(ns / 1_000_000));
            let seconds = ns as f64 / 1e9;
            // Of less than a millisecond a rate says nothing.
            if ns >= 1_000_000 {
                let rate = |count: f64, unit: &str| amount((count / seconds) as u64, unit);
                let (packets, bits) = (rate(packets as f64, " "), rate(all_bytes as f64 * 8.0, " "));
                text += &format!("  {}packets/s  {}bit/s", packets, bits);
            }
        }
        text += "\n";
        let left_out = [
            (self.not_ip, "not IP"),
            (self.cut, "cut too short"),
            (self.sampled_out, "left out by --sample"),
        ];
        let left_out: Vec<String> = left_out
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{} {what}", amount(*count, "")))
            .collect();
        if !left_out.is_empty() {
            text += &format!("of no flow: packets {}\n", left_out.join(", "));
        }
        for (count, what) in [
            (self.full, "flows ended because the table was full: --flows-max gives it more room"),
            (
                self.no_room,
                "details found no room: --flows-max gives them more, or ask for fewer with --details",
            ),
        ] {
            if count > 0 {
                text += &format!("{} {what}\n", amount(count, ""));
            }
        }
        text
    }
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

/// The local time of a day, to the millisecond.
fn time_of_day(ns: i64) -> String {
    local(Timestamp::from_nanos(ns), "%H:%M:%S.%3f")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tapline_graph::Table;

    fn flow(source: &str, destination: &str) -> FlowRow {
        FlowRow {
            protocol: Some("tcp".to_owned()),
            ends: [source, destination].map(|end| Some(end.to_owned())),
            packets: [Some(3400), Some(0)],
            bytes: [Some(1_000_000), Some(234_567)],
            ms: Some(12_345),
            state: "closed",
            end: "end",
            first_ns: Some(1_700_000_000_000_000_000),
            ..FlowRow::default()
        }
    }

    #[test]
    fn rows_fit_the_terminal_and_no_address_is_cut() {
        let far = "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535";
        let flow_of_two = flow(far, far);
        let flows = [&flow_of_two];
        for width in [200, 130, 110, 100, 80, 60] {
            let text = table_text(&flows, Some(width));
            assert_eq!(text.matches(far).count(), 2, "{text}");
            assert!(text.contains("3.4k") && text.contains("1.2 MB") && text.contains("12.3 s"), "{text}");
            let widest = text.lines().map(length).max().unwrap();
            assert!(widest <= width || width < 62, "{width}: {text}");
        }
        let short = table_text(&[&flow("10.0.0.1:40000", "10.0.0.2:443")], Some(200));
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
    }

    /// Flows of all workers are shown together, also if each has fewer than the limit.
    #[test]
    fn greatest_flows_of_several_workers_are_shown() {
        let worker = |source: &str| StageResult {
            stage: "top".to_owned(),
            table: Table::default(),
            values: Some(Arc::new(FlowResults::Top(vec![flow(source, "10.0.0.9:443")]))),
        };
        let workers = ["10.0.0.1:1", "10.0.0.2:2", "10.0.0.3:3"].map(worker);
        let lines = |top| text(&workers, Style { verbose: false, top }, None).matches("10.0.0.9:443").count();
        assert_eq!([10, 3, 2].map(lines), [3, 3, 2]);
    }

    #[test]
    fn letters_take_the_columns_that_they_have() {
        assert_eq!(["abc", "日本", "e\u{301}"].map(length), [3, 4, 1]);
    }
}
