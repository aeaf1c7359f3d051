//! Lines in the log that users cause: a number of lines for each, the rest counted and summed up.
//!
//! ```text
//! event of a user --within the budget--> a line         --beyond it--> counted --end of the interval--> one line with the counts
//! ```
//!
//! A line holds no control character and has a greatest length, whatever a client wrote into it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Lines of one user within an interval.
pub(crate) const LINES_MAX: u32 = 20;
/// The interval.
pub(crate) const INTERVAL: Duration = Duration::from_secs(60);
/// Users with a budget of their own; further users share one, so that a user with thousands of user ids (subuid(5))
/// fills no log.
const USERS_MAX: usize = 64;
/// The key of users without a budget of their own.
const OTHERS: u64 = u64::MAX;
/// The longest line, in characters.
const LINE_LEN_MAX: usize = 512;
/// The longest part of a filter or name that a line quotes, in characters.
const QUOTE_LEN_MAX: usize = 120;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Refused,
    Came,
    Left,
}

/// Names of events in sums, in the order of [`Event`].
const EVENTS: [&str; 3] = ["refused", "came", "left"];

/// The status of users.
#[derive(Debug, Default)]
pub(crate) struct LogBudget {
    users: HashMap<u64, Interval>,
}

/// An interval of one user.
#[derive(Debug)]
struct Interval {
    begun: Instant,
    lines: u32,
    untold: [u64; EVENTS.len()],
}

impl LogBudget {
    /// Logs a line if the user's budget has one left; counts it otherwise.
    pub(crate) fn tell(
        &mut self,
        uid: u32,
        event: Event,
        now: Instant,
        log: &mut dyn FnMut(&str),
        line: impl FnOnce() -> String,
    ) {
        self.sum_up(now, log);
        let has_own = self.users.contains_key(&u64::from(uid)) || self.users.len() < USERS_MAX;
        let key = if has_own { u64::from(uid) } else { OTHERS };
        self.tell_by_key(key, event, now, log, line);
    }

    /// Logs a line about a reader whose user is unknown, from the budget that further users share.
    pub(crate) fn tell_of_readers(
        &mut self,
        now: Instant,
        log: &mut dyn FnMut(&str),
        line: impl FnOnce() -> String,
    ) {
        self.sum_up(now, log);
        self.tell_by_key(OTHERS, Event::Left, now, log, line);
    }

    fn tell_by_key(
        &mut self,
        key: u64,
        event: Event,
        now: Instant,
        log: &mut dyn FnMut(&str),
        line: impl FnOnce() -> String,
    ) {
        let new = || Interval { begun: now, lines: 0, untold: [0; EVENTS.len()] };
        let interval = self.users.entry(key).or_insert_with(new);
        if interval.lines >= LINES_MAX {
            interval.untold[event as usize] += 1;
            return;
        }
        interval.lines += 1;
        let mut line = clean(&line(), LINE_LEN_MAX);
        if interval.lines == LINES_MAX {
            line +=
                &format!("; what else {} causes within {} s is only counted", user(key), INTERVAL.as_secs());
        }
        log(&line);
    }

    /// Ends intervals that are over, each with a line if something was not logged.
    pub(crate) fn sum_up(&mut self, now: Instant, log: &mut dyn FnMut(&str)) {
        self.end(log, |interval| now.saturating_duration_since(interval.begun) >= INTERVAL);
    }

    /// Ends all intervals.
    pub(crate) fn finish(&mut self, log: &mut dyn FnMut(&str)) {
        self.end(log, |_| true);
    }

    fn end(&mut self, log: &mut dyn FnMut(&str), is_over: impl Fn(&Interval) -> bool) {
        self.users.retain(|&key, interval| {
            let ends = is_over(interval);
            if ends && interval.untold.iter().any(|&count| count > 0) {
                let counts = EVENTS.iter().zip(interval.untold).filter(|(_, count)| *count > 0);
                let counts: Vec<String> = counts.map(|(event, count)| format!("{event} {count}")).collect();
                log(&format!("{}: not logged one by one: {}", user(key), counts.join(", ")));
            }
            !ends
        });
    }
}

fn user(key: u64) -> String {
    if key == OTHERS { "further users".to_owned() } else { format!("user {key}") }
}

/// A text of a client, in quotes, its control characters escaped, cut to a length that a line bears.
pub(crate) fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTE_LEN_MAX) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}... ({} bytes)", &text[..end], text.len()),
    }
}

/// A line of at most `max` characters with a mark where it was cut. Characters that are not printable are escaped.
fn clean(text: &str, max: usize) -> String {
    let escape = |c: char| -> Box<dyn Iterator<Item = char>> {
        if matches!(c, '"' | '\'' | '\\') { Box::new(std::iter::once(c)) } else { Box::new(c.escape_debug()) }
    };
    let mut line: String = text.chars().take(max + 1).flat_map(escape).take(max + 1).collect();
    if let Some((end, _)) = line.char_indices().nth(max) {
        line.truncate(end);
        line += "...";
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_budget_are_summed_up() {
        let (mut budget, start) = (LogBudget::default(), Instant::now());
        let mut lines = Vec::new();
        for number in 0..1000 {
            let event = if number % 2 == 0 { Event::Came } else { Event::Left };
            budget
                .tell(7, event, start, &mut |line| lines.push(line.to_owned()), || format!("line {number}"));
        }
        budget.tell(8, Event::Refused, start, &mut |line| lines.push(line.to_owned()), || "other".to_owned());
        assert_eq!(lines.len(), LINES_MAX as usize + 1, "{lines:?}");
        assert!(lines[19].ends_with("what else user 7 causes within 60 s is only counted"), "{lines:?}");
        budget.sum_up(start + INTERVAL, &mut |line| lines.push(line.to_owned()));
        assert_eq!(lines.last().unwrap(), "user 7: not logged one by one: came 490, left 490");
        assert_eq!(lines.len(), 22, "an interval in which all was told ends without a line");
        budget.tell(7, Event::Came, start + INTERVAL, &mut |line| lines.push(line.to_owned()), || {
            "again".to_owned()
        });
        budget.finish(&mut |line| lines.push(line.to_owned()));
        assert_eq!(lines.last().unwrap(), "again");
    }

    #[test]
    fn many_user_ids_share_a_budget() {
        let (mut budget, start, mut lines) = (LogBudget::default(), Instant::now(), 0);
        for number in 0..100_000u32 {
            budget.tell(number % 10_000, Event::Came, start, &mut |_| lines += 1, String::new);
        }
        assert!(lines <= (USERS_MAX + 1) * LINES_MAX as usize, "{lines}");
        assert!(budget.users.len() <= USERS_MAX + 1);
    }

    #[test]
    fn a_line_is_one_line_whatever_it_quotes() {
        let hostile = "a\nb\u{1b}[2J\u{202e}c\u{7f}\u{85}\u{2028}\"d\"";
        let cleaned = clean(hostile, 100);
        assert!(
            cleaned.chars().all(|c| !c.is_control() && c != '\u{202e}' && c != '\u{2028}'),
            "{cleaned:?}"
        );
        assert!(cleaned.ends_with("\"d\""), "{cleaned}");
        assert!(clean(&"x".repeat(1 << 18), 100).chars().count() <= 103);
        assert!(clean(&"\n".repeat(1 << 18), 100).chars().count() <= 103);
        let quote = quoted(&"port 53 or ".repeat(1000));
        assert!(quote.len() < 160 && quote.ends_with("... (11000 bytes)"), "{quote}");
    }
}
