//! Events of rules, as text and JSON.
//!
//! ```text
//! {"time":"2023-11-14T22:13:20.000000000Z","rule":"scan","event":"raised","key":{"src":"10.0.0.9"},"value":20,
//!  "above":20,"message":"10.0.0.9 tried 20 ports","about":{"src":"10.0.0.9", ...},"swallowed":3,
//!  "recording":"scan-20231114T221320.000000000Z-1.pcapng"}
//! ```

use std::fmt::Write as _;

use serde_json::{Map, Value};

tapline_packet::named_enum! {
    /// The kind of an event.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum EventKind {
        /// Something happened; there is no condition.
        Seen = "seen",
        /// A condition came to hold.
        Raised = "raised",
        /// The condition no longer holds.
        Cleared = "cleared",
    }
}

/// A reported event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The time of the packets, in nanoseconds since 1970.
    pub time_ns: i64,
    /// The number of the rule: its place in the file, scripts behind rules.
    pub rule: usize,
    /// The name of the rule.
    pub name: String,
    /// Kind of the event.
    pub kind: EventKind,
    /// The values of the rule's key.
    pub key: Vec<(&'static str, Value)>,
    /// The sum over the window, the length of a silence in nanoseconds, or the growth of a row.
    pub value: Option<u64>,
    /// Whether the sum is a lower bound: there were more different values than are distinguished.
    pub is_least: bool,
    /// The sum that raises.
    pub above: Option<u64>,
    /// The text of the rule's message.
    pub message: String,
    /// The packet or flow; values that a script gave.
    pub about: Map<String, Value>,
    /// Events of the rule since the last reported one that were swallowed.
    pub swallowed: u64,
    /// The file in which packets before and after are recorded.
    pub recording: Option<String>,
}

impl Event {
    /// The event as one JSON object.
    pub fn to_json(&self) -> Value {
        let mut members = Map::new();
        let mut add = |name: &str, value: Value| {
            members.insert(name.to_owned(), value);
        };
        add("time", time_text(self.time_ns).into());
        add("rule", self.name.clone().into());
        add("event", self.kind.name().into());
        if !self.key.is_empty() {
            let key = self.key.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
            add("key", Value::Object(key.collect()));
        }
        self.value.into_iter().for_each(|value| add("value", value.into()));
        if self.is_least {
            add("at_least", true.into());
        }
        self.above.into_iter().for_each(|above| add("above", above.into()));
        if !self.message.is_empty() {
            add("message", self.message.clone().into());
        }
        if !self.about.is_empty() {
            add("about", Value::Object(self.about.clone()));
        }
        if self.swallowed > 0 {
            add("swallowed", self.swallowed.into());
        }
        self.recording.iter().for_each(|file| add("recording", file.clone().into()));
        Value::Object(members)
    }

    /// The event as one line for people, without a line break.
    pub fn to_text(&self) -> String {
        let mut text = format!("{} {} {}", time_text(self.time_ns), self.name, self.kind.name());
        let message = match self.message.is_empty() {
            false => self.message.clone(),
            true => self.plain_message(),
        };
        if !message.is_empty() {
            text.push_str(": ");
            text.push_str(&escaped(&message));
        }
        if self.swallowed > 0 {
            let _ = write!(text, " ({} not reported)", self.swallowed);
        }
        if let Some(file) = &self.recording {
            let _ = write!(text, " [{file}]");
        }
        text
    }

    /// For rules without a message: the key, or else the two ends.
    fn plain_message(&self) -> String {
        let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let mut text = String::new();
        for (name, value) in &self.key {
            let _ = write!(text, "{}{name} {}", if text.is_empty() { "" } else { ", " }, shown(value));
        }
        if let (true, Some(src), Some(dst)) = (text.is_empty(), self.about.get("src"), self.about.get("dst"))
        {
            let _ = write!(text, "{} to {}", shown(src), shown(dst));
        }
        if let Some(value) = self.value {
            let (comma, least) =
                (if text.is_empty() { "" } else { ", " }, if self.is_least { "at least " } else { "" });
            let _ = write!(text, "{comma}value {least}{value}");
        }
        text
    }
}

#[cfg(test)]
impl Event {
    /// An event that has nothing but its rule.
    pub(crate) fn of_rule(name: &str) -> Event {
        Event {
            time_ns: 0,
            rule: 0,
            name: name.to_owned(),
            kind: EventKind::Seen,
            key: Vec::new(),
            value: None,
            is_least: false,
            above: None,
            message: String::new(),
            about: Map::new(),
            swallowed: 0,
            recording: None,
        }
    }
}

/// Nanoseconds since 1970 as RFC 3339, UTC.
pub(crate) fn time_text(time_ns: i64) -> String {
    let moment = jiff::Timestamp::from_nanosecond(time_ns.into()).unwrap_or_default();
    moment.strftime("%Y-%m-%dT%H:%M:%S.%9fZ").to_string()
}

/// A text whose control characters cannot reach a terminal: it may contain names from the wire.
fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_line_of_text_and_of_json() {
        let event = Event {
            time_ns: 1_700_000_000_000_000_001,
            kind: EventKind::Raised,
            key: vec![("src", "10.0.0.9".into())],
            value: Some(20),
            above: Some(20),
            swallowed: 3,
            ..Event::of_rule("scan")
        };
        let text = "2023-11-14T22:13:20.000000001Z scan raised: src 10.0.0.9, value 20 (3 not reported)";
        assert_eq!(event.to_text(), text);
        assert_eq!(event.to_json()["key"]["src"], "10.0.0.9");
        assert_eq!(event.to_json()["swallowed"], 3);
        assert!(event.to_json().get("at_least").is_none());
        let least = Event { is_least: true, ..event.clone() };
        assert!(least.to_text().contains("value at least 20"));
        assert_eq!(least.to_json()["at_least"], true);
        let hostile = Event { message: "a\u{1b}[2J\nb".to_owned(), ..event };
        assert!(!hostile.to_text().contains(['\u{1b}', '\n']), "{}", hostile.to_text());
    }
}
