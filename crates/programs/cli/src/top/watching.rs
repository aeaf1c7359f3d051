//! Data that are read and kept between two frames: the view's seconds, the meters of all processes, the history.

use std::time::{Duration, Instant};

use serde::Serialize;
use tapline_pages::{
    Answer, Content, EventFile, Feed, FilterLine, KeyWords, Page, PageRequest, PastWindow, RecorderTable,
    Rights, Series, Snapshot, SumRow, WINDOW_MAX, WatchEvent, Watched,
};
use tapline_sys::clock;
use tapline_view::Dimension;

use super::draw::{self, Line, Room, Shown};
use super::past::Past;
use super::reading::{Readings, Report};
use super::state::{DisplayState, Effect, Key};

/// Seconds of the strip.
const STRIP: usize = 60;
/// Rows of a table, as a browser asks for.
const ROWS: usize = 100;
/// Parts of the file of events, 1 MiB each, that are read at once.
const READS_MAX: usize = 8;

/// The latest events of rules, and tables of recorders.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Events {
    pub(super) events: Vec<WatchEvent>,
    pub(super) tables: Vec<RecorderTable>,
}

/// The readers, and their last readings.
pub(super) struct Watch {
    pub(super) state: DisplayState,
    feed: Feed,
    snapshot: Snapshot,
    readings: Readings,
    pub(super) report: Report,
    interval: Duration,
    read: Instant,
    past: Past,
    refused: usize,
    /// The file of events, and the events read so far.
    events: Option<(EventFile, Watched)>,
    /// The order of rows while the cursor is in their table.
    held: Vec<KeyWords>,
}

impl Watch {
    pub(super) fn new(
        state: DisplayState,
        pid: Option<u32>,
        readings: Readings,
        report: Report,
        past: Past,
    ) -> Watch {
        let mut watch = Watch {
            state,
            feed: Feed::new(pid),
            snapshot: Snapshot::default(),
            readings,
            report,
            interval: Duration::from_secs(1),
            read: Instant::now(),
            past,
            refused: Feed::refused().len(),
            events: None,
            held: Vec::new(),
        };
        watch.feed.read();
        watch.snapshot = watch.feed.snapshot();
        watch
    }

    /// Reads a file of events from now on.
    pub(super) fn watch_events(&mut self, file: Option<EventFile>) {
        self.events = file.map(|file| (file, Watched::default()));
        self.read_events();
    }

    /// Reads events of rules; returns whether there was one.
    fn read_events(&mut self) -> bool {
        let Some((file, watched)) = &mut self.events else { return false };
        let mut is_fresh = false;
        // A file that cannot be read has told nothing new; of one that grows faster the rest comes next time.
        for _ in 0..READS_MAX {
            let Ok((told, has_more)) = file.read() else { break };
            is_fresh |= !told.is_empty();
            told.into_iter().for_each(|one| watched.add(one));
            if !has_more {
                break;
            }
        }
        is_fresh
    }

    /// The latest events and tables; of the window, if that is one of the past.
    pub(super) fn events(&self) -> Option<Events> {
        let (_, watched) = self.events.as_ref()?;
        let ns = |seconds: u64| i64::try_from(seconds.saturating_mul(1_000_000_000)).unwrap_or(i64::MAX);
        let (from, to) = self.past_window().map_or((i64::MIN, i64::MAX), |(from, to)| (ns(from), ns(to)));
        let (events, tables) = watched.between(from, to, (ROWS, ROWS));
        Some(Events { events, tables })
    }

    pub(super) fn set_interval(&mut self, interval: Duration) {
        self.interval = interval;
    }

    /// Whether a meter writes a view that we may read.
    pub(super) fn has_view(&self) -> bool {
        self.snapshot.process.is_some()
    }

    /// Reads new data; returns whether there were any. Nothing changes while the screen is frozen.
    pub(super) fn read(&mut self) -> bool {
        let was_alive = self.snapshot.is_alive;
        let is_fresh = !self.feed.read().is_empty() | (!self.state.is_frozen && self.read_events());
        let is_due = self.read.elapsed() >= self.interval;
        if is_due {
            let report = self.readings.read();
            self.read = Instant::now();
            if !self.state.is_frozen {
                self.report = report;
            }
        }
        if self.state.is_frozen {
            return false;
        }
        let snapshot = self.feed.snapshot();
        let is_other = snapshot.is_alive != was_alive;
        self.snapshot = snapshot;
        is_fresh || is_due || is_other
    }

    /// Whether the meter still runs.
    pub(super) fn is_alive(&self) -> bool {
        self.snapshot.is_alive
    }

    /// The number of the last second, by which an event is new.
    pub(super) fn number(&self) -> Option<u64> {
        self.snapshot.seconds.back().map(|(number, _)| *number)
    }

    /// The answer that the page in a browser would get.
    pub(super) fn answer(&self) -> Answer {
        let filter = FilterLine::parse(&self.state.place.filter).unwrap_or_default();
        let request = PageRequest {
            page: self.state.place.page,
            host: self.state.place.host,
            filter,
            window: self.state.window.min(WINDOW_MAX as u64) as usize,
            rows: ROWS,
            stack: None,
            rights: Rights::Packets,
        };
        request.answer(&self.snapshot)
    }

    fn dimensions(&self) -> Vec<Dimension> {
        match self.state.place.page {
            Page::History => vec![self.state.dimension],
            Page::Losses | Page::Flows | Page::Events => vec![Dimension::HostOut],
            page => page.dimensions().to_vec(),
        }
    }

    /// The window of the past that is shown, in seconds since 1970: up to the meter's last second.
    fn past_window(&self) -> Option<(u64, u64)> {
        let last_ns = self.snapshot.seconds.back().map(|(_, second)| second.end_ns);
        let now_ns = last_ns.unwrap_or_else(|| clock::realtime_ns().unsigned_abs());
        self.state.past_window(now_ns.div_ceil(1_000_000_000))
    }

    /// The tables of the past, where the window is one.
    pub(super) fn ask_past(&mut self) -> Option<Result<Vec<PastWindow>, String>> {
        let is_asked = !matches!(self.state.place.page, Page::Costs | Page::Events);
        let window = self.past_window().filter(|_| is_asked)?;
        Some(self.past.ask(&self.dimensions(), window))
    }

    /// Draws a frame.
    pub(super) fn frame(&mut self, room: Room) -> Vec<Line> {
        self.show(|shown| draw::frame(shown, room))
    }

    /// A line for the last second.
    pub(super) fn spoken(&mut self) -> Option<String> {
        self.show(draw::spoken)
    }

    /// Obeys a key.
    pub(super) fn press(&mut self, key: Key) -> Effect {
        let rows = self.show(|shown| draw::keys(draw::cursor_rows(shown)));
        let had_cursor = self.state.cursor.is_some();
        let effect = self.state.press(key, &rows);
        match self.state.cursor {
            Some(_) if !had_cursor => self.held = rows,
            None => self.held.clear(),
            Some(_) => {}
        }
        effect
    }

    fn show<T>(&mut self, draw: impl FnOnce(&Shown<'_>) -> T) -> T {
        let mut answer = self.answer();
        self.hold(&mut answer);
        let past = self.ask_past();
        let past_window = self.past_window();
        let series = Series::of(&self.snapshot, STRIP);
        let events = self.events().filter(|_| self.state.place.page == Page::Events);
        draw(&Shown {
            answer: &answer,
            series: &series,
            report: &self.report,
            past: past.as_ref(),
            past_window,
            events: events.as_ref(),
            state: &self.state,
            refused: self.refused,
        })
    }

    /// Keeps rows where they were while the cursor is in their table; new ones come last.
    fn hold(&self, answer: &mut Answer) {
        if self.held.is_empty() {
            return;
        }
        let place = |row: &SumRow| self.held.iter().position(|key| *key == row.key).unwrap_or(usize::MAX);
        match &mut answer.page {
            Content::Tables(tables) => {
                let first = self.state.place.page.dimensions().first().map(|dimension| dimension.name());
                if let Some(table) = first.and_then(|name| tables.get_mut(name)) {
                    table.rows.sort_by_key(place);
                }
            }
            Content::Host(host) => host.flow.rows.sort_by_key(place),
            Content::Costs(_) | Content::Head {} => {}
        }
    }
}
