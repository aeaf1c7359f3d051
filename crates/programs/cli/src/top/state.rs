//! State of the display and the effect of keys, which are the same as those of the page in a browser.
//!
//! ```text
//! State --press(Key, rows of the table)--> State, and an Effect
//! ```

use std::net::IpAddr;

use tapline_pages::{FilterLine, KeyWords, Page, WINDOW_MAX};
use tapline_view::Dimension;

/// Lengths of live windows in seconds.
const LIVE: [u64; 4] = [1, 10, 30, WINDOW_MAX as u64];
/// Lengths of windows of the past in seconds: an hour, a day, a week, 30 days, a year.
const PAST: [u64; 5] = [3600, 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400];
/// Dimensions of the history, in the order of `d`.
pub(super) const DIMENSIONS: [Dimension; 7] = [
    Dimension::HostOut,
    Dimension::HostIn,
    Dimension::Pair,
    Dimension::Service,
    Dimension::Name,
    Dimension::Segment,
    Dimension::Interface,
];
/// Places to go back to.
const BACK_MAX: usize = 32;
/// Letters of a filter that is typed.
const TYPED_MAX: usize = 1000;

/// A key of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Letter(char),
    Enter,
    Escape,
    Backspace,
    Up,
    Down,
    Left,
    Right,
}

tapline_packet::named_enum! {
    /// The unit of amounts.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(super) enum Unit {
        #[default]
        Bits = "bit/s",
        Bytes = "bytes",
        Packets = "packets",
    }
}

impl Unit {
    const fn next(self) -> Unit {
        match self {
            Unit::Bits => Unit::Bytes,
            Unit::Bytes => Unit::Packets,
            Unit::Packets => Unit::Bits,
        }
    }
}

/// Whether the loop goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    Quit,
}

/// A page with its host and filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PageView {
    pub(super) page: Page,
    pub(super) host: Option<IpAddr>,
    /// The filter line that holds.
    pub(super) filter: String,
}

/// State of the display, apart from the meter's data.
#[derive(Clone, Debug)]
pub(super) struct DisplayState {
    pub(super) place: PageView,
    back: Vec<PageView>,
    /// The window in seconds; beyond a minute it comes from the history.
    pub(super) window: u64,
    /// The window of the page of history.
    pub(super) length: u64,
    /// Half windows by which the window ends in the past.
    pub(super) steps_back: u64,
    pub(super) dimension: Dimension,
    pub(super) unit: Unit,
    pub(super) is_frozen: bool,
    pub(super) is_help: bool,
    /// The row of the cursor; rows stay in order while there is one.
    pub(super) cursor: Option<usize>,
    /// The filter while it is typed.
    pub(super) typed: Option<String>,
    /// Error of the typed filter.
    pub(super) refusal: String,
    /// Whether events of rules are read, which have a page then.
    pub(super) has_events: bool,
}

impl DisplayState {
    /// At a page, with a live window in seconds.
    pub(super) fn new(place: PageView, window: u64, has_events: bool) -> DisplayState {
        DisplayState {
            place,
            back: Vec::new(),
            window,
            length: 86_400,
            steps_back: 0,
            dimension: Dimension::HostOut,
            unit: Unit::default(),
            is_frozen: false,
            is_help: false,
            cursor: None,
            typed: None,
            refusal: String::new(),
            has_events,
        }
    }

    /// The pages that there are, each with its key.
    pub(super) fn pages(&self) -> impl Iterator<Item = (char, Page)> {
        let last = self.has_events.then_some(('0', Page::Events));
        ('1'..='8').zip(Page::ALL).chain(last)
    }

    /// The length in seconds of the window of the past that is shown; `None` if the window is live.
    pub(super) fn past(&self) -> Option<u64> {
        match self.place.page {
            Page::History => Some(self.length),
            _ => (self.window > WINDOW_MAX as u64).then_some(self.window),
        }
    }

    /// The window of the past as seconds since 1970, where the meter is at `now`.
    pub(super) fn past_window(&self, now: u64) -> Option<(u64, u64)> {
        let length = self.past()?;
        let end = now.saturating_sub(self.steps_back * length / 2);
        Some((end.saturating_sub(length), end))
    }

    /// Obeys a key. `rows` are the keys of the table in which the cursor moves.
    pub(super) fn press(&mut self, key: Key, rows: &[KeyWords]) -> Effect {
        if self.typed.is_some() {
            self.type_key(key);
            return Effect::None;
        }
        match key {
            Key::Letter('q' | 'Q') => return Effect::Quit,
            Key::Letter(digit @ '0'..='9') => {
                let page = self.pages().find(|(key, _)| *key == digit);
                if let Some((_, page)) = page {
                    self.go(PageView { page, host: None, filter: self.place.filter.clone() });
                }
            }
            Key::Letter('/') => self.typed = Some(self.place.filter.clone()),
            Key::Letter(' ') => self.is_frozen = !self.is_frozen,
            Key::Letter('b') => self.unit = self.unit.next(),
            Key::Letter('d') => self.next_dimension(),
            Key::Letter('[') => self.other_window(-1),
            Key::Letter(']') => self.other_window(1),
            Key::Letter('h') | Key::Left if self.past().is_some() => self.steps_back += 1,
            Key::Letter('l') | Key::Right => self.steps_back = self.steps_back.saturating_sub(1),
            Key::Letter('j') | Key::Down => {
                self.cursor = Some(self.cursor.map_or(0, |at| at + 1).min(rows.len().saturating_sub(1)));
            }
            Key::Letter('k') | Key::Up => self.cursor = Some(self.cursor.unwrap_or(0).saturating_sub(1)),
            Key::Letter('?') => self.is_help = !self.is_help,
            Key::Enter => {
                if let Some(row) = self.cursor.and_then(|at| rows.get(at)) {
                    self.open(row);
                }
            }
            Key::Escape | Key::Backspace => self.go_back(),
            _ => {}
        }
        Effect::None
    }

    fn type_key(&mut self, key: Key) {
        let Some(typed) = &mut self.typed else { return };
        match key {
            Key::Letter(letter) if typed.len() < TYPED_MAX => typed.push(letter),
            Key::Backspace => drop(typed.pop()),
            Key::Escape => (self.typed, self.refusal) = (None, String::new()),
            Key::Enter => match FilterLine::parse(typed) {
                Ok(_) => {
                    let filter = typed.trim().to_owned();
                    (self.typed, self.refusal) = (None, String::new());
                    self.go(PageView { filter, ..self.place.clone() });
                }
                Err(refusal) => self.refusal = refusal,
            },
            _ => {}
        }
    }

    /// Goes to a place, from which [`go_back`](Self::go_back) leads here.
    fn go(&mut self, place: PageView) {
        (self.cursor, self.is_help) = (None, false);
        if place != self.place {
            if self.back.len() == BACK_MAX {
                self.back.remove(0);
            }
            self.back.push(std::mem::replace(&mut self.place, place));
        }
    }

    fn go_back(&mut self) {
        if self.is_help {
            self.is_help = false;
        } else if self.cursor.is_some() {
            self.cursor = None;
        } else if let Some(place) = self.back.pop() {
            self.place = place;
        }
    }

    /// Opens the page of a row: its host, the flows of its pair, or a filter.
    fn open(&mut self, row: &KeyWords) {
        let filter = |term: String| narrowed(&self.place.filter, &term);
        let place = match row {
            KeyWords::Host { host } => {
                PageView { page: Page::Hosts, host: Some(*host), filter: self.place.filter.clone() }
            }
            KeyWords::Pair { a, b } | KeyWords::Flow { a, b, .. } => {
                PageView { page: Page::Flows, host: None, filter: filter(format!("host:{a} host:{b}")) }
            }
            KeyWords::Service { port, has_port: true, .. } => {
                PageView { page: Page::Flows, host: None, filter: filter(format!("port {port}")) }
            }
            KeyWords::Named { key } if !key.is_empty() && !key.contains(' ') => {
                PageView { page: Page::Flows, host: None, filter: filter(format!("app:{key}")) }
            }
            _ => return,
        };
        self.go(place);
    }

    fn next_dimension(&mut self) {
        if self.place.page == Page::History {
            let at = DIMENSIONS.iter().position(|one| *one == self.dimension).unwrap_or(0);
            (self.dimension, self.cursor) = (DIMENSIONS[(at + 1) % DIMENSIONS.len()], None);
        }
    }

    fn other_window(&mut self, by: isize) {
        let step = |all: &[u64], now: u64| {
            let at = all.iter().position(|one| *one >= now).unwrap_or(0);
            all[at.saturating_add_signed(by).min(all.len() - 1)]
        };
        if self.place.page == Page::History {
            self.length = step(&PAST, self.length);
        } else {
            self.window = step(&[&LIVE[..], &PAST[..]].concat(), self.window);
        }
        (self.steps_back, self.cursor) = (0, None);
    }
}

/// A filter line with one term more, which is pcap-filter text or words of the view; the same line if it is there.
fn narrowed(line: &str, term: &str) -> String {
    if format!(" {line} ").contains(&format!(" {term} ")) {
        return line.to_owned();
    }
    let is_text = |word: &str| !word.starts_with("host:") && !word.starts_with("app:");
    let both_are_text = line.split_whitespace().any(is_text) && is_text(term);
    format!("{line}{}{term}", if both_are_text { " and " } else { " " }).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> DisplayState {
        DisplayState::new(PageView::default(), 10, true)
    }

    fn press(state: &mut DisplayState, keys: &str) {
        for letter in keys.chars() {
            state.press(Key::Letter(letter), &[]);
        }
    }

    #[test]
    fn digits_choose_pages_and_escape_leads_back() {
        let mut state = state();
        press(&mut state, "25");
        assert_eq!(state.place.page, Page::Protocols);
        state.press(Key::Escape, &[]);
        assert_eq!(state.place.page, Page::Hosts);
        assert_eq!(state.press(Key::Letter('q'), &[]), Effect::Quit);
    }

    #[test]
    fn brackets_lead_from_seconds_into_the_history() {
        let mut state = state();
        press(&mut state, "]]");
        assert_eq!((state.window, state.past()), (60, None));
        press(&mut state, "]]h");
        assert_eq!(state.past_window(1_000_000), Some((1_000_000 - 43_200 - 86_400, 1_000_000 - 43_200)));
        press(&mut state, "]]]]");
        assert_eq!(state.past(), Some(365 * 86_400));
        press(&mut state, "[[[[[[[[[[");
        assert_eq!((state.window, state.past()), (1, None));
    }

    #[test]
    fn rows_lead_to_hosts_and_to_filters() {
        let mut state = state();
        let host = "10.0.0.7".parse().expect("an address");
        let rows = [KeyWords::Host { host }, KeyWords::Named { key: "tls".into() }];
        state.press(Key::Down, &rows);
        state.press(Key::Enter, &rows);
        assert_eq!((state.place.page, state.place.host), (Page::Hosts, Some(host)));
        state.press(Key::Escape, &rows);
        for key in [Key::Down, Key::Down, Key::Down, Key::Enter] {
            state.press(key, &rows);
        }
        assert_eq!((state.place.page, state.place.filter.as_str()), (Page::Flows, "app:tls"));
    }

    #[test]
    fn a_filter_is_narrowed_by_whole_terms() {
        assert_eq!(narrowed("", "port 80"), "port 80");
        assert_eq!(narrowed("port 8080", "port 80"), "port 8080 and port 80");
        assert_eq!(narrowed("host:10.0.0.7 port 80", "port 80"), "host:10.0.0.7 port 80");
        assert_eq!(narrowed("tcp", "app:tls"), "tcp app:tls");
        assert_eq!(narrowed("app:tls", "port 443"), "app:tls port 443");
        assert_eq!(narrowed("host:10.0.0.70", "host:10.0.0.7"), "host:10.0.0.70 host:10.0.0.7");
    }

    #[test]
    fn a_wrong_filter_stays_to_be_mended() {
        let mut state = state();
        press(&mut state, "/port x1q");
        state.press(Key::Enter, &[]);
        assert!(!state.refusal.is_empty() && state.typed.is_some(), "{state:?}");
        for _ in 0..3 {
            state.press(Key::Backspace, &[]);
        }
        press(&mut state, "80");
        state.press(Key::Enter, &[]);
        assert_eq!((state.place.filter.as_str(), state.refusal.as_str()), ("port 80", ""));
    }
}
