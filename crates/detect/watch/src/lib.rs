//! Rules that watch packets and flows, and report events.
//!
//! ```text
//! TOML --parse--> Rules --Program: filters as sets--> Watch <-- packets, time, accounts
//!                                                       |--> Event: a line, a command, a webhook, a hold in a store
//!                                                       '--> recordings: the seconds before and after, each a pcapng
//! ```
//!
//! | module | has |
//! |---|---|
//! | `rules`, `parse` | the file of rules |
//! | `burst` | runs of windows shorter than a second |
//! | `clock` | the time of the packets, which may be wrong or go back |
//! | `key`, `window`, `limit` | the key of a rule, its time, and its limit of events |
//! | `state` | the memory of a rule |
//! | `filters` | the filters of all rules as sets |
//! | `flows` | flows that begin and end |
//! | `past`, `recording` | packets before and after an event |
//! | `script`, `tables`, `recorder` | scripts, their values by key, their recorders |
//! | `certificates` | certificates of TLS servers, for scripts |
//! | `delivery`, `webhook`, `holding` | commands, calls and holds in a store, each by a thread with a bounded queue |
//! | `starter` | the process that starts commands for one that is confined |
//! | `faults` | failures of these and of recordings, each cause reported once |
//! | `watch` | the engine |
//!
//! Every state has a bound, and a counter of its refusals.
#![forbid(unsafe_code)]

mod burst;
#[cfg_attr(not(feature = "scripts"), allow(dead_code, reason = "for scripts"))]
mod certificates;
mod clock;
mod comparison;
mod delivery;
mod error;
mod event;
mod faults;
mod filters;
mod flows;
mod holding;
mod key;
mod limit;
mod outbox;
mod parse;
mod past;
#[cfg_attr(not(feature = "scripts"), allow(dead_code, reason = "for scripts"))]
mod recorder;
mod recording;
mod rules;
#[cfg(feature = "scripts")]
mod script;
#[cfg(not(feature = "scripts"))]
#[path = "no_script.rs"]
mod script;
mod starter;
mod state;
#[cfg(feature = "scripts")]
mod tables;
mod template;
#[cfg_attr(not(feature = "scripts"), allow(dead_code, reason = "for scripts"))]
mod verdict;
mod watch;
mod webhook;
mod window;

pub use burst::{BURST_WINDOW_NS, Burst, BurstLimits, BurstMeter, Late, per_second};
pub use comparison::Comparison;
pub use delivery::{Commands, DeliveryCounts, DeliveryQueue, END_TIME, counted};
pub use error::RuleError;
pub use event::{Event, EventKind};
pub use filters::Compile;
pub use flows::FlowFrames;
pub use holding::{HoldRequest, Holds, KeepHold};
pub use key::{KeyField, Subject};
pub use limit::Limit;
pub use outbox::Report;
pub use parse::parse;
pub use recorder::{RecordedPeriod, RecorderKind};
pub use rules::{
    AccountRow, Actions, Condition, Count, FILE_MAX, HoldSettings, RecordSettings, RecordedPackets, Rule,
    Rules, ScriptEntry, Secret, Settings, Source, Webhook, WebhookFormat,
};
pub use script::{STACK_LEN, VerdictScript};
pub use starter::CommandStarter;
pub use state::RuleCounts;
pub use template::Template;
pub use verdict::{Verdict, VerdictCounts};
pub use watch::{Program, Watch};
pub use webhook::Webhooks;
pub use window::Threshold;
