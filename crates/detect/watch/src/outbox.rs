//! Output of rules: events within the limits of each rule, and the recordings that they begin.

use serde_json::{Map, Value};
use tapline_packet::Interface;

use crate::burst::{Burst, per_second};
use crate::event::{Event, EventKind, time_text};
use crate::key::{Key, Subject};
#[cfg(feature = "scripts")]
use crate::limit::Limit;
use crate::limit::LimitState;
use crate::past::Past;
use crate::recorder::RecordedPeriod;
use crate::recording::{RecordRequest, Recordings};
use crate::rules::{RecordSettings, Rule};
use crate::template::Facts;

/// An output of rules and scripts.
#[derive(Clone, Debug)]
pub enum Report {
    /// Something that happened.
    Event(Event),
    /// The contents of a recorder for a period that is over.
    Period(RecordedPeriod),
}

/// Reports that wait to be taken, and packets kept for recordings.
pub(crate) struct Outbox {
    /// In the order of their times.
    pub(crate) reports: Vec<Report>,
    /// Faults of scripts, and their printed lines.
    pub(crate) faults: Vec<String>,
    pub(crate) past: Past,
    pub(crate) recordings: Recordings,
    /// The interfaces of the packets that came last.
    pub(crate) interfaces: Vec<Interface>,
}

#[cfg(test)]
impl Outbox {
    /// Without a past, for tests of rules and scripts.
    pub(crate) fn empty() -> Outbox {
        Outbox {
            reports: Vec::new(),
            faults: Vec::new(),
            past: Past::new(0, 0),
            recordings: Recordings::new(".".into(), 1),
            interfaces: Vec::new(),
        }
    }
}

/// An event of a rule, before its limit is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Happening<'a> {
    pub(crate) kind: EventKind,
    pub(crate) time_ns: i64,
    pub(crate) key: Key,
    pub(crate) subject: Option<&'a Subject>,
    pub(crate) value: Option<u64>,
    /// Whether the value is a lower bound.
    pub(crate) is_least: bool,
    pub(crate) above: Option<u64>,
    /// A name that replaces the key, such as an interface's.
    pub(crate) named: Option<(&'static str, &'a str)>,
    /// A burst, and the length of its windows.
    pub(crate) burst: Option<(&'a Burst, u64)>,
}

impl<'a> Happening<'a> {
    /// Something without a value.
    pub(crate) fn new(
        kind: EventKind,
        time_ns: i64,
        key: Key,
        subject: Option<&'a Subject>,
    ) -> Happening<'a> {
        Happening {
            kind,
            time_ns,
            key,
            subject,
            value: None,
            is_least: false,
            above: None,
            named: None,
            burst: None,
        }
    }
}

/// The facts of a burst, behind those of its last packet.
fn burst_facts(burst: &Burst, window_ns: u64) -> [(String, Value); 6] {
    [
        ("start", Value::from(time_text(burst.start_ns))),
        ("length_ns", burst.length_ns().into()),
        ("burst_packets", burst.packets.into()),
        ("burst_bytes", burst.bytes.into()),
        ("peak_bits", per_second(burst.bytes_peak.saturating_mul(8), window_ns).into()),
        ("peak_packets", per_second(burst.packets_peak, window_ns).into()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
}

impl Outbox {
    /// Reports periods that are over.
    pub(crate) fn tell_periods(&mut self, periods: Vec<RecordedPeriod>) {
        self.reports.extend(periods.into_iter().map(Report::Period));
    }

    /// Reports an event of a rule, unless it is one too many.
    pub(crate) fn tell(
        &mut self,
        number: usize,
        rule: &Rule,
        limit: &mut LimitState,
        happening: &Happening<'_>,
    ) {
        let Happening { kind, time_ns, key, subject, value, is_least, above, named, burst } = *happening;
        let Some(swallowed) = limit.take(rule.limit, time_ns) else { return };
        let (value_told, above_told) = (value.unwrap_or(1), above.unwrap_or(0));
        let facts = Facts { rule: &rule.name, value: value_told, is_least, above: above_told, subject };
        let mut values = key.values(&rule.by);
        values.extend(named.map(|(name, value)| (name, Value::from(value))));
        let mut event = Event {
            time_ns,
            rule: number,
            name: rule.name.clone(),
            kind,
            key: values,
            value,
            is_least,
            above,
            message: rule.message.as_ref().map_or_else(String::new, |message| message.text(&facts)),
            about: subject.map_or_else(Map::new, Subject::to_json),
            swallowed,
            recording: None,
        };
        if let Some((burst, window_ns)) = burst {
            event.about.extend(burst_facts(burst, window_ns));
        }
        if kind != EventKind::Cleared {
            event.recording = self.record(number, key, rule.actions.record, subject, &event);
        }
        self.reports.push(Report::Event(event));
    }

    /// Reports an event that a script made.
    #[cfg(feature = "scripts")]
    pub(crate) fn tell_script(
        &mut self,
        limit: (&mut LimitState, Limit),
        record: Option<RecordSettings>,
        subject: Option<&Subject>,
        mut event: Event,
    ) {
        let Some(swallowed) = limit.0.take(limit.1, event.time_ns) else { return };
        event.swallowed = swallowed;
        let key =
            subject.map_or_else(Key::default, |subject| Key::of(subject, &[crate::key::KeyField::Pair]));
        event.recording = self.record(event.rule, key, record, subject, &event);
        self.reports.push(Report::Event(event));
    }

    fn record(
        &mut self,
        number: usize,
        key: Key,
        settings: Option<RecordSettings>,
        subject: Option<&Subject>,
        event: &Event,
    ) -> Option<String> {
        let comment = event.to_json().to_string();
        let request = RecordRequest {
            owner: (number, key),
            rule: &event.name,
            time_ns: event.time_ns,
            settings: settings?,
            subject,
            comment: &comment,
        };
        self.recordings.begin(&request, &self.past, &self.interfaces)
    }
}
