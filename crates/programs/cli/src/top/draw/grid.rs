//! Tables that add up, as wide and as high as there is room.
//!
//! ```text
//! Senders                bit/s    packets  flows        head: columns without room are left out, less needed ones first
//!   10.0.0.7        12.3 Mbit/s    1.23 k     12        a row; a key that is wider than the screen has a line of its own
//! + 3 more rows     ...                                 rows below, added up
//! + others          ...                                 the rest, up to
//! = the interface   ...
//! ```

use std::net::IpAddr;

use tapline_pages::{KeyWords, SumRow, SumTable};

use super::super::state::Unit;
use super::super::table::{printable, short};
use super::numbers::{age, amount};
use super::{Line, Look, Room};

/// Between two columns.
const GAP: usize = 2;
/// Rows that are shown before the rest of a table is drawn out in lines of its own.
const ROWS_LEAST: usize = 4;

/// Words of the rows of a table.
pub(super) struct Context {
    pub(super) unit: Unit,
    pub(super) seconds: f64,
    /// The moment at which flows have their age, in nanoseconds since 1970.
    pub(super) end_ns: u64,
    pub(super) cursor: Option<usize>,
    /// Name of the sum of all rows.
    pub(super) whole: &'static str,
}

/// A column: its head, its cells, and its turn to be left out: 0 never.
struct Column {
    head: &'static str,
    cell: fn(&SumRow, &Context) -> String,
    leaves: u8,
}

const FLOWS: Column = Column { head: "flows", cell: |row, _| short(row.flows as f64), leaves: 3 };
const PACKETS: Column = Column { head: "packets", cell: |row, _| short(row.amount[0] as f64), leaves: 4 };
const FORTH: Column = Column {
    head: "forth",
    cell: |row, context| amount(row.first, context.unit, context.seconds),
    leaves: 5,
};
const BACK: Column = Column {
    head: "back",
    cell: |row, context| {
        let back = [
            row.amount[0] - row.first[0].min(row.amount[0]),
            row.amount[1] - row.first[1].min(row.amount[1]),
        ];
        amount(back, context.unit, context.seconds)
    },
    leaves: 5,
};
const STATE: Column =
    Column { head: "state", cell: |row, _| row.state.unwrap_or_default().to_owned(), leaves: 2 };
const AGE: Column = Column {
    head: "age",
    cell: |row, context| {
        row.began_ns.map_or_else(String::new, |began| age((context.end_ns as i64 - began) / 1_000_000_000))
    },
    leaves: 6,
};
const NAME: Column = Column {
    head: "application, name",
    cell: |row, _| row.name.as_deref().filter(|name| !name.is_empty()).unwrap_or("-").to_owned(),
    leaves: 7,
};

/// The key of a row as text.
pub(in super::super) fn label(key: &KeyWords) -> String {
    let end = |host: &IpAddr, port: u16, has_port: bool| match (host, has_port) {
        (_, false) => host.to_string(),
        (IpAddr::V4(_), true) => format!("{host}:{port}"),
        (IpAddr::V6(_), true) => format!("[{host}]:{port}"),
    };
    match key {
        KeyWords::Host { host } => host.to_string(),
        KeyWords::Pair { a, b } => format!("{a} <> {b}"),
        KeyWords::Service { protocol, port, has_port: true } => format!("{protocol} {port}"),
        KeyWords::Service { protocol, .. } => protocol.clone(),
        KeyWords::Named { key } if key.is_empty() => "no name".to_owned(),
        KeyWords::Named { key } => key.clone(),
        KeyWords::Flow { protocol, has_port, a, a_port, b, b_port } => {
            format!("{protocol} {} > {}", end(a, *a_port, *has_port), end(b, *b_port, *has_port))
        }
    }
}

fn columns(rows: &[SumRow]) -> &'static [Column] {
    match rows.first().map(|row| &row.key) {
        Some(KeyWords::Flow { .. }) => {
            const ALL: [Column; 6] = [STATE, PACKETS, FORTH, BACK, AGE, NAME];
            &ALL
        }
        Some(KeyWords::Pair { .. }) => {
            const ALL: [Column; 4] = [PACKETS, FLOWS, FORTH, BACK];
            &ALL
        }
        _ => {
            const ALL: [Column; 2] = [PACKETS, FLOWS];
            &ALL
        }
    }
}

fn row_label(row: &SumRow) -> String {
    let label = match (&row.key, &row.name) {
        (KeyWords::Named { .. }, Some(name)) if !name.is_empty() => name.clone(),
        _ => label(&row.key),
    };
    printable(&label)
}

/// The part of a table that has room: cells, the first is the key.
struct Grid {
    heads: Vec<String>,
    cells: Vec<Vec<String>>,
    widths: Vec<usize>,
}

impl Grid {
    fn new(title: &str, rows: &[SumRow], context: &Context, width: usize) -> Grid {
        let is_other = |column: &&Column| column.head != context.unit.name();
        let mut columns: Vec<&Column> = columns(rows).iter().filter(is_other).collect();
        let amounts = rows.iter().map(|row| {
            let error = amount(row.error, context.unit, context.seconds);
            let value = amount(row.amount, context.unit, context.seconds);
            if row.error == [0, 0] { value } else { format!("{value} + <= {error}") }
        });
        let fixed: Vec<[String; 2]> =
            rows.iter().zip(amounts).map(|(row, amount)| [row_label(row), amount]).collect();
        loop {
            let mut heads = vec![title.to_owned(), context.unit.name().to_owned()];
            heads.extend(columns.iter().map(|column| column.head.to_owned()));
            let cells: Vec<Vec<String>> = rows
                .iter()
                .zip(&fixed)
                .map(|(row, fixed)| {
                    let more = columns.iter().map(|column| printable(&(column.cell)(row, context)));
                    fixed.iter().cloned().chain(more).collect()
                })
                .collect();
            let widest = |at: usize| {
                let all = cells.iter().map(|row| &row[at]).chain([&heads[at]]);
                all.map(|cell| cell.chars().count()).max().unwrap_or(0)
            };
            let widths: Vec<usize> = (0..heads.len()).map(widest).collect();
            let wanted = widths.iter().sum::<usize>() + GAP * widths.len();
            let leaving = columns.iter().map(|column| column.leaves).max();
            match leaving {
                Some(leaving) if wanted > width => columns.retain(|column| column.leaves != leaving),
                _ => return Grid { heads, cells, widths },
            }
        }
    }

    /// A line, or two where the key leaves no room for numbers.
    fn lines(&self, mark: char, cells: &[String], width: usize) -> Vec<String> {
        let numbers: usize = self.widths[1..].iter().map(|width| width + GAP).sum();
        // Where all is narrower than the screen, numbers stand beside keys.
        let key_width = self.widths[0].min(width.saturating_sub(numbers + GAP));
        let rest: String = cells[1..]
            .iter()
            .zip(&self.widths[1..])
            .map(|(cell, width)| format!("{:GAP$}{cell:>width$}", ""))
            .collect();
        if cells[0].chars().count() <= key_width {
            return vec![format!("{mark} {:<key_width$}{rest}", cells[0])];
        }
        vec![format!("{mark} {}", cells[0]), format!("  {:<key_width$}{rest}", "")]
    }
}

/// The rest of a table: words, amount, and whether it is a loss.
fn rest(table: &SumTable, context: &Context) -> Vec<(String, String, bool)> {
    // Of what the history keeps, and of lost packets, the bytes are not known.
    let amount = |pair: [u64; 2]| match pair {
        [packets, 0] if packets > 0 => format!("{} packets", short(packets as f64)),
        pair => amount(pair, context.unit, context.seconds),
    };
    let pair =
        |name: &str, pair: [u64; 2]| (pair != [0, 0]).then(|| (format!("+ {name}"), amount(pair), false));
    let framing = (context.unit != Unit::Packets && table.framing != 0)
        .then(|| ("+ link headers".to_owned(), amount([0, table.framing.max(0) as u64]), false));
    let lost = (table.lost > 0)
        .then(|| ("+ lost before us".to_owned(), format!("{} packets", short(table.lost as f64)), true));
    [
        pair("others", [table.others[0], table.others[1]]),
        pair("not fitting the filter", table.unfitting),
        pair("not IP", table.not_ip),
        pair("not looked at", table.unread),
        framing,
        lost,
        Some((format!("= {}", context.whole), amount(table.sum), false)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn sum(rows: &[SumRow]) -> [u64; 2] {
    rows.iter().fold([0, 0], |sum, row| [sum[0] + row.amount[0], sum[1] + row.amount[1]])
}

/// A table in the room that it has. Whatever is shown of it adds up to the interface.
pub(super) fn table(title: &str, table: &SumTable, context: &Context, room: Room) -> Vec<Line> {
    let mut rest = rest(table, context);
    let has_rest = room.lines > ROWS_LEAST + rest.len() + 2;
    let room_for_rows = room.lines.saturating_sub(if has_rest { rest.len() + 2 } else { 2 });
    let first = context.cursor.map_or(0, |at| (at + 1).saturating_sub(room_for_rows.max(1)));
    let rows = &table.rows[first.min(table.rows.len())..];
    let shown = &rows[..rows.len().min(room_for_rows)];
    let hidden = table.rows.len() - shown.len();
    let (all, seen) = (sum(&table.rows), sum(shown));
    let below = [all[0] - seen[0], all[1] - seen[1]];
    if !has_rest {
        let beside = [table.sum[0].saturating_sub(seen[0]), table.sum[1].saturating_sub(seen[1])];
        let lost =
            if table.lost > 0 { format!(", lost {}", short(table.lost as f64)) } else { String::new() };
        rest = vec![(
            format!("+ all others{lost}"),
            amount(beside, context.unit, context.seconds),
            table.lost > 0,
        )];
    } else if hidden > 0 {
        rest.insert(
            0,
            (format!("+ {hidden} more rows"), amount(below, context.unit, context.seconds), false),
        );
    }
    let mut grid = Grid::new(title, shown, context, room.columns);
    for (name, value, _) in &rest {
        grid.widths[0] = grid.widths[0].max(name.chars().count() - 2);
        grid.widths[1] = grid.widths[1].max(value.chars().count());
    }
    let heads = grid.heads.clone();
    let mut lines: Vec<Line> = grid
        .lines(' ', &heads, room.columns)
        .into_iter()
        .map(|text| Line::new(Look::Head, &text[2..]))
        .collect();
    for (at, cells) in grid.cells.iter().enumerate() {
        let is_cursor = context.cursor == Some(first + at);
        let look = if is_cursor { Look::Cursor } else { Look::Plain };
        let texts = grid.lines(if is_cursor { '>' } else { ' ' }, cells, room.columns);
        lines.extend(texts.into_iter().map(|text| Line::new(look, text)));
    }
    if grid.cells.is_empty() {
        lines.push(Line::plain("  nothing in this window"));
    }
    lines.extend(rest.into_iter().map(|(name, value, is_bad)| {
        let (mark, name) = name.split_at(2);
        let cells = [name.to_owned(), value];
        let texts = grid.lines(mark.chars().next().unwrap_or(' '), &cells, room.columns);
        Line::new(if is_bad { Look::Bad } else { Look::Faint }, texts.concat())
    }));
    lines
}
