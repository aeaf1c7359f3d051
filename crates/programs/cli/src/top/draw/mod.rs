//! Pages as lines of text.
//!
//! ```text
//! tapline  live  probe -i eth0 --view                       10 s  bit/s      head
//! [1 overview]  2 hosts  3 pairs ...                                        tabs
//! 12.3 Mbit/s  1.23 k packets/s  56 flows  lost 0 in 10 s                   numbers
//! bit/s  ...-=+**#%@  max 12.3 M                                            strip of a minute
//! lost   .......!...
//! ...                                                                       the page
//! ```

mod grid;
mod numbers;
mod pages;
mod strip;

use tapline_pages::{Answer, KeyWords, Page, PastWindow, Series};

use super::reading::Report;
use super::state::DisplayState;
use numbers::{clock, rate, text};
pub(super) use pages::cursor_rows;

/// Style of a line on terminals that have styles. No information is in the style alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Plain,
    Head,
    Cursor,
    Faint,
    Bad,
}

/// A line of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) text: String,
    pub(super) look: Look,
}

impl Line {
    pub(super) fn new(look: Look, text: impl Into<String>) -> Line {
        Line { text: text.into(), look }
    }

    pub(super) fn plain(text: impl Into<String>) -> Line {
        Line::new(Look::Plain, text)
    }
}

/// The room for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) columns: usize,
    pub(super) lines: usize,
    /// Whether letters beyond ASCII can be shown.
    pub(super) is_ascii: bool,
}

/// All that a frame is drawn of.
pub(super) struct Shown<'a> {
    pub(super) answer: &'a Answer,
    pub(super) series: &'a Series,
    pub(super) report: &'a Report,
    /// The tables of the past, if the window is one.
    pub(super) past: Option<&'a Result<Vec<PastWindow>, String>>,
    pub(super) past_window: Option<(u64, u64)>,
    /// Events of rules and tables of recorders.
    pub(super) events: Option<&'a super::watching::Events>,
    pub(super) state: &'a DisplayState,
    /// Number of meters of other users that this user may not read.
    pub(super) refused: usize,
}

/// Windows of the history and their names.
const LENGTHS: [(u64, &str); 5] =
    [(3600, "1 h"), (86_400, "24 h"), (604_800, "7 d"), (2_592_000, "30 d"), (31_536_000, "1 y")];

/// A frame: at most as many lines as the screen has, none longer than it is wide.
pub(super) fn frame(shown: &Shown<'_>, room: Room) -> Vec<Line> {
    let mut lines = head(shown, room);
    let foot = foot(shown);
    let left = room.lines.saturating_sub(lines.len() + foot.len());
    let mut page =
        if shown.state.is_help { help() } else { pages::page(shown, Room { lines: left, ..room }) };
    page.truncate(left);
    lines.extend(page);
    lines.extend(foot);
    lines.truncate(room.lines);
    for line in &mut lines {
        let text = super::table::printable(&line.text);
        let text = if room.is_ascii { ascii(&text) } else { text };
        line.text = super::table::cut(&text, room.columns);
    }
    lines
}

fn head(shown: &Shown<'_>, room: Room) -> Vec<Line> {
    let Shown { answer, state, .. } = shown;
    let title = answer.process.as_ref().map_or_else(
        || nothing(shown.refused, room.columns),
        |process| format!("{}  {}", status(shown), process.title),
    );
    let window = match state.past() {
        Some(length) => window_name(length),
        None => format!("{} s", state.window),
    };
    let right = format!("{window}  {}", state.unit.name());
    let room_left = room.columns.min(200).saturating_sub(right.len() + 2);
    let left = super::table::cut(&format!("tapline  {title}"), room_left);
    let head = format!("{left:<room_left$}  {right}");
    // The full names take 84 columns where there is a page 0: a terminal of 80 gets a shorter one.
    let tabs = [Page::name, short_name].map(|name| tabs(state, name));
    let tabs = tabs.into_iter().find(|tabs| tabs.len() <= room.columns).unwrap_or_else(|| narrow_tabs(state));
    let mut lines = vec![Line::new(Look::Head, head), Line::plain(tabs.trim_end())];
    if answer.process.is_some() {
        lines.extend(totals(shown, room));
    }
    lines
}

/// Replaces each letter that is not ASCII by `?`: names of packets may have any.
pub(super) fn ascii(text: &str) -> String {
    text.chars().map(|letter| if letter.is_ascii() { letter } else { '?' }).collect()
}

/// A window of the past: its name, or its length in the greatest unit that divides it.
fn window_name(seconds: u64) -> String {
    let named = LENGTHS.iter().find(|(known, _)| *known == seconds);
    let units = [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    named.map(|(_, name)| (*name).to_owned()).unwrap_or_else(|| {
        let unit = units.iter().find(|(len, _)| seconds.is_multiple_of(*len));
        unit.map_or(String::new(), |(len, unit)| format!("{} {unit}", seconds / len))
    })
}

/// The keys and names of all pages, that of the present one in brackets.
fn tabs(state: &DisplayState, name: fn(Page) -> &'static str) -> String {
    let tabs = state.pages().map(|(key, page)| {
        let name = name(page);
        if page == state.place.page { format!("[{key} {name}]") } else { format!("{key} {name}") }
    });
    tabs.collect::<Vec<_>>().join(" ")
}

fn short_name(page: Page) -> &'static str {
    if page == Page::Protocols { "proto" } else { page.name() }
}

/// Tabs of a narrow terminal: digits, and the name of the page that is shown.
fn narrow_tabs(state: &DisplayState) -> String {
    let tabs = state.pages().map(|(key, page)| {
        if page == state.place.page { format!("[{key} {}]", page.name()) } else { format!(" {key} ") }
    });
    tabs.collect()
}

fn nothing(refused: usize, columns: usize) -> String {
    match (refused, columns) {
        (0, 0..90) => "no meter runs: tapline probe -i eth0 --view".to_owned(),
        (0, _) => "no meter runs with a view: start one, such as tapline probe -i eth0 --view".to_owned(),
        (refused, _) => format!("no right to read {refused} views of other users: run as their user"),
    }
}

fn status(shown: &Shown<'_>) -> &'static str {
    let Shown { answer, state, .. } = shown;
    match &answer.process {
        _ if state.is_frozen => "frozen",
        Some(_) if !answer.is_alive && !answer.others.is_empty() => "the meter has ended, others run",
        Some(_) if !answer.is_alive => "the meter has ended",
        _ if answer.window.lost() > 0 => "LOSING PACKETS",
        Some(process) if !process.is_live => "from a file",
        _ => "live",
    }
}

/// Numbers of the last second, and the strip of the last minute.
fn totals(shown: &Shown<'_>, room: Room) -> Vec<Line> {
    let Shown { answer, series, state, .. } = shown;
    let Some(second) = &answer.second else { return vec![Line::plain("no second has been read yet")] };
    let seconds = second.seconds();
    let lost = answer.window.lost();
    let mut numbers = format!(
        "{}  {}  {}  lost {} in {} s",
        rate(second.offered_bytes() as f64 * 8.0 / seconds, "bit/s"),
        rate(second.offered() as f64 / seconds, "packets/s"),
        text(second.active as f64, "flows"),
        tapline_graph::grouped(lost),
        answer.seconds,
    );
    if !state.place.filter.is_empty() {
        numbers += &format!("  filter: {}", state.place.filter);
    }
    let columns = room.columns.min(120).saturating_sub(strip::BESIDE);
    let mut lines = vec![Line::new(if lost > 0 { Look::Bad } else { Look::Plain }, numbers)];
    if state.past().is_none() {
        let values = if state.unit == super::state::Unit::Packets { &series.packets } else { &series.bits };
        let unit = if state.unit == super::state::Unit::Packets { "packets/s" } else { "bit/s" };
        lines.extend(strip::strips(values, &series.lost, unit, columns.min(60), room.is_ascii));
    }
    lines
}

fn foot(shown: &Shown<'_>) -> Vec<Line> {
    let state = shown.state;
    match &state.typed {
        Some(typed) if state.refusal.is_empty() => {
            vec![Line::new(Look::Head, format!("filter: {typed}_   Enter, Esc"))]
        }
        Some(typed) => vec![
            Line::new(Look::Bad, state.refusal.lines().next().unwrap_or_default()),
            Line::new(Look::Head, format!("filter: {typed}_   Enter, Esc")),
        ],
        None => Vec::new(),
    }
}

fn help() -> Vec<Line> {
    let keys = [
        ("1 - 8, 0", "pages; 0 with --events"),
        ("/", "filter: host:10.0.0.7 app:tls, and pcap-filter text"),
        ("Space", "freeze, go on"),
        ("b", "bits, bytes, packets"),
        ("[ ]", "shorter, longer window; beyond a minute it is one of the history"),
        ("h l, arrows", "half a window back, forth, in the history"),
        ("d", "the history by senders, receivers, pairs, services, names, ..."),
        ("j k, arrows", "row below, above; rows keep their order meanwhile"),
        ("Enter", "open a row: its host, the flows of a pair, a filter"),
        ("Esc", "back"),
        ("? q", "these keys; end"),
    ];
    let lines = keys.map(|(key, what)| Line::plain(format!("  {key:<14}{what}")));
    [vec![Line::new(Look::Head, "Keys, as those of the page of tapline view")], lines.to_vec()].concat()
}

/// A line for a second: totals, and the greatest row of the page.
pub(super) fn spoken(shown: &Shown<'_>) -> Option<String> {
    let second = shown.answer.second.as_ref()?;
    let seconds = second.seconds();
    let mut line = format!(
        "{}  {}  {}  {}  lost {}",
        clock(second.end_ns),
        rate(second.offered_bytes() as f64 * 8.0 / seconds, "bit/s"),
        rate(second.offered() as f64 / seconds, "packets/s"),
        text(second.active as f64, "flows"),
        tapline_graph::grouped(second.lost()),
    );
    if let Some((title, row)) = pages::greatest(shown) {
        let amount = numbers::amount(row.amount, shown.state.unit, shown.answer.window.seconds());
        line += &format!("  {title}: {} {amount}", super::table::printable(&grid::label(&row.key)));
    }
    Some(line)
}

/// The keys of rows, for [`DisplayState::press`].
pub(super) fn keys(rows: &[tapline_pages::SumRow]) -> Vec<KeyWords> {
    rows.iter().map(|row| row.key.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascii_has_a_mark_for_each_other_letter() {
        assert_eq!(ascii("h\u{f4}te.example \u{2264}"), "h?te.example ?");
    }

    #[test]
    fn names_of_all_pages_have_80_columns() {
        let state = DisplayState::new(crate::top::state::PageView::default(), 10, true);
        let [long, short] = [Page::name, short_name].map(|name| tabs(&state, name));
        assert_eq!((long.len(), short.len()), (84, 80), "{short}");
    }

    #[test]
    fn windows_are_named_by_their_length() {
        let names = [61, 7200, 86_400, 172_800, 31_536_000, 90].map(window_name);
        assert_eq!(names, ["61 s", "2 h", "24 h", "2 d", "1 y", "90 s"]);
    }
}
