//! Files of rules: TOML, checked as a whole before any of it is used.
//!
//! ```text
//! [[rule]]    name
//!   which events            on  filter | fpl  where
//!   a condition over them   by  count  window  above  below
//!   what is told            limit  message
//!   what follows            run  webhook  record  hold
//! [[script]]  name  file
//! [[webhook]] name  url  format  headers
//! ```

use std::path::PathBuf;

use crate::comparison::Comparison;
use crate::key::KeyField;
use crate::limit::Limit;
use crate::template::Template;
use crate::window::Threshold;

/// The most rules and scripts of a file.
pub(crate) const RULES_MAX: usize = 10_000;
/// The most bytes of a file.
pub const FILE_MAX: u64 = 8 << 20;

/// The source that a rule counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Each packet.
    Packet,
    /// Each flow, at its first packet.
    FlowBegun,
    /// Each flow, once it has ended.
    FlowEnded,
    /// A source address that was not seen before.
    NewHost,
    /// Two addresses that were not seen together before.
    NewPair,
    /// No packet for this time, in nanoseconds.
    Silence(u64),
    /// A time without a packet that is longer than this, in nanoseconds, at its end.
    Gap(u64),
    /// A run of short windows that reach the threshold, once it is over.
    Burst,
    /// Growth of a row of the account.
    Account(AccountRow),
}

/// A row of the account of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountRow {
    /// Packets lost anywhere before this program.
    Lost,
    /// Packets lost in the NIC or the driver, or as a file records them.
    Before,
    /// Sums that do not add up; 1 for each second in which they do not.
    Imbalance,
}

/// The quantity that is summed over a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Events.
    Events,
    /// Packets: one for each packet, those of a flow.
    Packets,
    /// Bytes.
    Bytes,
    /// Different values of a field.
    Distinct(KeyField),
}

/// A condition over a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The quantity that is summed.
    pub count: Count,
    /// When it raises, and when it clears.
    pub threshold: Threshold,
}

/// Packets of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedPackets {
    /// All that come.
    All,
    /// From and to the source address of the event.
    Src,
    /// From and to its destination address.
    Dst,
    /// Between its two addresses.
    Pair,
    /// The packets of its flow.
    Flow,
}

/// A recording that an event begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordSettings {
    /// Nanoseconds before the event.
    pub before_ns: u64,
    /// Nanoseconds after it; a further event of the same rule and key restarts this time.
    pub after_ns: u64,
    /// The packets.
    pub only: RecordedPackets,
    /// The most bytes of packets in a file.
    pub size: u64,
    /// The most files of the rule.
    pub files: u64,
}

/// A hold that an event makes in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldSettings {
    /// The directory of the store.
    pub store: PathBuf,
    /// Nanoseconds before the event.
    pub before_ns: u64,
    /// Nanoseconds after it.
    pub after_ns: u64,
    /// Maximum number of holds of the rule in a run: held packets leave less space for new ones.
    pub holds: u64,
}

/// A receiver of events, which rules call by its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Webhook {
    /// Name, unique among the receivers of the file.
    pub name: String,
    /// The address.
    pub url: Secret,
    /// The body.
    pub format: WebhookFormat,
    /// Further headers: name and value.
    pub headers: Vec<(String, Secret)>,
}

/// A text of a rule file, or the first line of a file that others may not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    /// The text.
    Text(String),
    /// The file; it is read at each call.
    File(PathBuf),
}

/// The body that a receiver gets for an event.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum WebhookFormat {
    /// The event as JSON.
    #[default]
    Event,
    /// A message of Slack, or of what takes these.
    Slack,
    /// PagerDuty's Events API, version 2.
    PagerDuty {
        /// The integration key.
        key: Secret,
    },
    /// Alerts for Prometheus' Alertmanager, API version 2.
    Alertmanager,
    /// A body with words in braces.
    Body(serde_json::Value),
}

impl Webhook {
    /// Files that are read at each call.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let key = match &self.format {
            WebhookFormat::PagerDuty { key } => Some(key),
            _ => None,
        };
        let secrets = self.headers.iter().map(|(_, value)| value).chain([&self.url]).chain(key);
        secrets.filter_map(|secret| match secret {
            Secret::File(path) => Some(path),
            Secret::Text(_) => None,
        })
    }
}

/// Actions after a reported event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actions {
    /// A program and its arguments; the event is its standard input.
    pub run: Vec<String>,
    /// The address that gets the event by POST, or the name of a receiver; empty for none.
    pub webhook: String,
    /// Packets before and after.
    pub record: Option<RecordSettings>,
    /// The time around the event, kept in a store.
    pub hold: Option<HoldSettings>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Name, unique in the file.
    pub name: String,
    /// Line, from 1.
    pub line: usize,
    /// Source that the rule counts.
    pub source: Source,
    /// In the pcap-filter language; empty for all. Of flows it is asked about a packet with the flow's addresses,
    /// ports and protocol.
    pub filter: String,
    /// A program in FPL in place of the filter.
    pub fpl: Option<String>,
    /// Comparisons that a flow which ended must meet.
    pub comparisons: Vec<Comparison>,
    /// Fields that it counts by; none counts all together.
    pub by: Vec<KeyField>,
    /// The condition; without one each event is reported.
    pub condition: Option<Condition>,
    /// Maximum number of reported events.
    pub limit: Limit,
    /// The most keys at a time.
    pub keys_max: usize,
    /// New hosts and pairs that are learnt without an event, after the first packet; nanoseconds.
    pub learn_ns: u64,
    /// The text of its events.
    pub message: Option<Template>,
    /// Actions after its events.
    pub actions: Actions,
    /// Whether it is off.
    pub is_off: bool,
}

/// A script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptEntry {
    /// Name, unique in the file.
    pub name: String,
    /// Line, from 1.
    pub line: usize,
    /// The file, from the folder of the rules.
    pub file: String,
    /// Maximum number of reported events.
    pub limit: Limit,
    /// Actions after its events.
    pub actions: Actions,
    /// Whether it is off.
    pub is_off: bool,
}

/// Bounds that hold for all rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of packets that are kept for recordings, with 64 for the record of each.
    pub history: u64,
    /// Idle timeout of flows in nanoseconds.
    pub flow_idle_ns: u64,
    /// The most flows at a time.
    pub flows_max: u64,
    /// Operations of a script in one call.
    pub operations: u64,
}

/// A file of rules.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Bounds for all.
    pub settings: Settings,
    /// In the order of the file.
    pub rules: Vec<Rule>,
    /// In the order of the file.
    pub scripts: Vec<ScriptEntry>,
    /// Receivers of events, by name.
    pub webhooks: Vec<Webhook>,
}
