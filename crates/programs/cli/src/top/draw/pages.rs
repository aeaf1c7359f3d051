//! The pages below the head.

use tapline_graph::grouped;
use tapline_pages::{Content, HostContent, Page, PartTable, PastWindow, Side, SumRow, SumTable, Totals};
use tapline_view::Dimension;

use super::super::state::Unit;
use super::super::table;
use super::super::watching::Events;
use super::grid::{self, Context};
use super::numbers::{amount, moment, second_of, value};
use super::{Line, Look, Room, Shown, strip};

/// Columns that each of two tables in a row needs.
const COLUMNS_HALF: usize = 62;
/// Lines of the smallest table: head, two rows, all others.
const LINES_LEAST: usize = 4;

/// The title of a dimension's table.
const fn title(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::HostIn => "Receivers",
        Dimension::HostOut => "Senders",
        Dimension::Pair => "Pairs",
        Dimension::Service => "Services",
        Dimension::Name => "Names, applications",
        Dimension::Segment => "VLANs, tunnels",
        Dimension::Interface => "Interfaces",
        Dimension::Flow => "Flows",
    }
}

pub(super) fn page(shown: &Shown<'_>, room: Room) -> Vec<Line> {
    let page = shown.state.place.page;
    if let (Page::Events, Some(events)) = (page, shown.events) {
        return events_page(events, room);
    }
    if page == Page::Costs || (shown.answer.process.is_none() && shown.past.is_none()) {
        return table::text(shown.report, room.columns).lines().map(Line::plain).collect();
    }
    match shown.past {
        Some(Err(error)) => return message(error),
        Some(Ok(past)) => return past_page(shown, past, room),
        None => {}
    }
    match (&shown.answer.page, page) {
        (Content::Host(host), _) => host_page(shown, host, room),
        (Content::Tables(_), _) => tables(&live_tables(shown), &context(shown), room),
        (_, Page::Losses) => losses(&shown.answer.window, shown.answer.seconds),
        _ => Vec::new(),
    }
}

/// Events, the latest first, and below them what recorders held. A third of the lines are for the latter at most.
fn events_page(events: &Events, room: Room) -> Vec<Line> {
    let head = format!("{:<19}  {:<7}  {:<16}  what", "time", "event", "rule");
    let rows = events.events.iter().map(|event| {
        let look = if event.kind == "raised" { Look::Bad } else { Look::Plain };
        let swallowed = match event.swallowed {
            0 => String::new(),
            number => format!(" ({} not reported)", grouped(number)),
        };
        let time = second_of(event.time_ns);
        let text = format!("{time:<19}  {:<7}  {:<16}  {}{swallowed}", event.kind, event.rule, event.text);
        Line::new(look, text)
    });
    let mut tables = Vec::new();
    for table in &events.tables {
        let (from, to) = (second_of(table.from_ns), second_of(table.to_ns));
        tables.push(Line::new(Look::Head, format!("{} ({}), {from} to {to}", table.recorder, table.kind)));
        let rows = std::iter::once(&table.columns).chain(&table.rows);
        tables.extend(rows.map(|row| Line::plain(format!("  {}", row.join("  ")))));
    }
    let mut lines = vec![Line::new(Look::Head, head)];
    lines.extend(rows);
    if events.events.is_empty() {
        lines.push(Line::plain("  no event"));
    }
    lines.truncate(room.lines.saturating_sub(tables.len().min(room.lines / 3)));
    lines.extend(tables);
    lines.truncate(room.lines);
    lines
}

fn message(text: &str) -> Vec<Line> {
    vec![Line::plain(""), Line::plain(format!("  {text}"))]
}

fn context(shown: &Shown<'_>) -> Context {
    let window = &shown.answer.window;
    Context {
        unit: shown.state.unit,
        seconds: window.seconds(),
        end_ns: shown.answer.second.as_ref().map_or(0, |second| second.end_ns),
        cursor: shown.state.cursor,
        whole: "the interface",
    }
}

type Titled<'a> = (&'static str, &'a SumTable);

fn live_tables<'a>(shown: &Shown<'a>) -> Vec<Titled<'a>> {
    let Content::Tables(tables) = &shown.answer.page else { return Vec::new() };
    let dimensions = shown.state.place.page.dimensions().iter();
    dimensions.filter_map(|of| Some((title(*of), tables.get(of.name())?))).collect()
}

fn past_tables(past: &[PastWindow]) -> Vec<Titled<'_>> {
    past.iter().map(|one| (title(one.dimension), &one.table)).collect()
}

/// The rows of the first table, in which the cursor moves.
pub(in super::super) fn cursor_rows<'a>(shown: &Shown<'a>) -> &'a [SumRow] {
    if matches!(shown.state.place.page, Page::Costs | Page::Events) {
        return &[];
    }
    match (shown.past, &shown.answer.page) {
        (Some(Ok(past)), _) => past.first().map_or(&[], |one| &one.table.rows[..]),
        (Some(Err(_)), _) => &[],
        (None, Content::Host(host)) => &host.flow.rows,
        (None, _) => live_tables(shown).first().map_or(&[], |(_, table)| &table.rows[..]),
    }
}

/// The greatest row of the first table, with its title.
pub(super) fn greatest<'a>(shown: &Shown<'a>) -> Option<(&'static str, &'a SumRow)> {
    let (title, table) = *live_tables(shown).first()?;
    let unit = shown.state.unit;
    let row = table.rows.iter().max_by_key(|row| (value(row.amount, unit), std::cmp::Reverse(row.flows)))?;
    Some((title, row))
}

/// Tables one below the other, or two in a row; those without room are left out.
fn tables(all: &[Titled<'_>], context: &Context, room: Room) -> Vec<Line> {
    let is_wide = room.columns >= 2 * COLUMNS_HALF + 2 && all.len() > 1;
    let columns = if is_wide { (room.columns - 2) / 2 } else { room.columns };
    let groups: Vec<&[Titled<'_>]> = all.chunks(if is_wide { 2 } else { 1 }).collect();
    let fitting = groups.len().min((room.lines / LINES_LEAST).max(1));
    let mut lines = Vec::new();
    for (at, group) in groups[..fitting].iter().enumerate() {
        // What earlier groups left over is there for the later ones.
        let left = room.lines.saturating_sub(lines.len());
        let room = Room { columns, lines: left / (fitting - at), ..room };
        let drawn = group.iter().enumerate().map(|(place, (title, table))| {
            let cursor = context.cursor.filter(|_| at == 0 && place == 0);
            grid::table(title, table, &Context { cursor, ..*context }, room)
        });
        lines.extend(beside(drawn.collect(), columns));
    }
    lines
}

/// Two tables in the lines of one. The look is the first one's, for its cursor.
fn beside(mut tables: Vec<Vec<Line>>, columns: usize) -> Vec<Line> {
    let right = if tables.len() > 1 { tables.remove(1) } else { Vec::new() };
    let Some(left) = tables.pop() else { return Vec::new() };
    if right.is_empty() {
        return left;
    }
    let blank = Line::plain("");
    (0..left.len().max(right.len()))
        .map(|at| {
            let (one, other) = (left.get(at).unwrap_or(&blank), right.get(at).unwrap_or(&blank));
            let text = format!("{:<columns$}  {}", one.text, other.text).trim_end().to_owned();
            Line::new(if one.look == other.look { one.look } else { Look::Plain }, text)
        })
        .collect()
}

/// A host: its directions, peers, services, names and flows.
fn host_page(shown: &Shown<'_>, host: &HostContent, room: Room) -> Vec<Line> {
    let context = Context { whole: "its flows", ..context(shown) };
    let side = |side: &Side| match side {
        Side::Row(row) => amount(row.amount, context.unit, context.seconds),
        Side::Missing { error, .. } => format!("at most {}", amount(*error, context.unit, context.seconds)),
    };
    let head = format!(
        "{}  sends {}  receives {}  others {}",
        host.host,
        side(&host.sent),
        side(&host.received),
        amount(host.unseen, context.unit, context.seconds)
    );
    let part = |part: &PartTable| {
        let mut rows = part.rows.clone();
        rows.iter_mut().for_each(|row| row.key = other_side(host, row));
        let rows_sum = rows.iter().fold([0, 0], |sum, row| [sum[0] + row.amount[0], sum[1] + row.amount[1]]);
        let sum = [rows_sum[0] + part.others[0], rows_sum[1] + part.others[1]];
        SumTable { rows, others: part.others, sum, ..SumTable::default() }
    };
    let parts = [
        ("Flows", part(&host.flow)),
        ("Peers", part(&host.pair)),
        ("Services", part(&host.service)),
        ("Names, applications", part(&host.name)),
    ];
    let titled: Vec<Titled<'_>> = parts.iter().map(|(title, table)| (*title, table)).collect();
    let mut lines = vec![Line::new(Look::Head, head)];
    lines.extend(tables(&titled, &context, Room { lines: room.lines.saturating_sub(1), ..room }));
    lines
}

/// The peer in a pair with the host.
fn other_side(host: &HostContent, row: &SumRow) -> tapline_pages::KeyWords {
    match row.key {
        tapline_pages::KeyWords::Pair { a, b } => {
            tapline_pages::KeyWords::Host { host: if a == host.host { b } else { a } }
        }
        ref key => key.clone(),
    }
}

/// The account as an equation.
fn losses(window: &Totals, seconds: usize) -> Vec<Line> {
    let parts = [
        ("metered", window.metered, "in flows, and in every table", false),
        ("not IP", window.not_ip, "ARP, STP, LLDP and others", false),
        ("headers cut short", window.cut, "a longer snap length captures them whole", true),
        ("sampled out", window.sampled_out, "left out by sampling", false),
        ("lost in the kernel's ring", window.lost_ring, "a larger ring, or more --workers", true),
        ("lost at the daemon", window.lost_daemon, "the reader was too slow", true),
    ];
    let sum = parts.iter().map(|(_, value, ..)| value).sum::<u64>();
    let verdict = if sum == window.offered() { "balanced" } else { "DOES NOT BALANCE" };
    let mut lines = vec![Line::new(Look::Head, format!("The account of {seconds} s: {verdict}"))];
    let term = |sign: &str, name: &str, value: u64, why: &str, is_bad: bool| {
        let why = if value == 0 { "" } else { why };
        let look = if is_bad && value > 0 { Look::Bad } else { Look::Plain };
        Line::new(look, format!("{sign:>2} {name:<26}{:>16}  {why}", grouped(value)).trim_end())
    };
    for (at, (name, value, why, is_bad)) in parts.into_iter().enumerate() {
        lines.push(term(if at == 0 { "" } else { "+" }, name, value, why, is_bad));
    }
    lines.push(term("=", "offered by the interface", window.offered(), "", false));
    lines.push(Line::new(Look::Head, "Not in the sum"));
    lines.extend([
        term("", "lost in card and driver", window.lost_before, "by their own counters", true),
        term("", "lent by the sources", window.delivered, "before filters", false),
        term("", "late", window.late, "out of order; counted all the same", false),
        term("", "flows ended for no room", window.ended[4], "the flow table was full", true),
        term("", "not ranked", window.unranked, "among the others: the view's thread was behind", true),
        term("", "flows now", window.active, "", false),
        term("", "room for flows", window.room, "", false),
        term("", "workers", window.workers, "", false),
    ]);
    lines
}

/// A page of a window of the past: a chart, and tables of the same dimensions.
fn past_page(shown: &Shown<'_>, past: &[PastWindow], room: Room) -> Vec<Line> {
    let page = shown.state.place.page;
    if page == Page::Flows || shown.state.place.host.is_some() {
        return message("flows are not kept in the history: [ leads back to the last minute");
    }
    if !shown.state.place.filter.is_empty() {
        return message("the history is not filtered: / and an empty line show it");
    }
    let (Some(first), Some(window)) = (past.first(), shown.past_window) else { return Vec::new() };
    let by = format!("by the {}, {} to {}", first.tier, moment(window.0), moment(window.1));
    if first.buckets == 0 {
        return [vec![Line::new(Look::Head, by)], message("nothing is kept of this window")].concat();
    }
    let kept = first
        .span
        .map_or_else(String::new, |[from, _]| format!(", kept since {}", moment(from.max(0).unsigned_abs())));
    let mut lines = vec![Line::new(Look::Head, format!("{by}{kept}"))];
    let is_packets = shown.state.unit == Unit::Packets;
    let values = if is_packets { &first.packets } else { &first.bits };
    let columns = room.columns.min(120).saturating_sub(strip::BESIDE);
    let (means, lost) = strip::columns(&first.t, values, &first.lost, window, columns);
    let unit = if is_packets { "packets/s" } else { "bit/s" };
    lines.extend(strip::strips(&means, &lost, unit, columns, room.is_ascii));
    let room = Room { lines: room.lines.saturating_sub(lines.len()), ..room };
    if page == Page::Losses {
        lines.extend(past_losses(&first.table));
        return lines;
    }
    let context = Context { seconds: first.seconds.max(1.0), ..context(shown) };
    lines.extend(tables(&past_tables(past), &context, room));
    lines
}

fn past_losses(table: &SumTable) -> Vec<Line> {
    let beside = table.not_ip[0] + table.unread[0] + table.lost;
    let parts = [
        ("", "metered", table.sum[0].saturating_sub(beside)),
        ("+", "not IP", table.not_ip[0]),
        ("+", "cut short or sampled out", table.unread[0]),
        ("+", "lost before us", table.lost),
        ("=", "offered by the interface", table.sum[0]),
    ];
    let line = |(sign, name, value): (&str, &str, u64)| {
        Line::plain(format!("{sign:>2} {name:<26}{:>18}", grouped(value)))
    };
    parts.map(line).to_vec()
}
