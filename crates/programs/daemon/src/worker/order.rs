//! Orders of the control thread to a worker.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use tapline_filterset::Filter;
use tapline_ring::{ReaderParts, ReaderSpec, StartPosition};
use tapline_tap_client::GroupRequest;
use tapline_tap_client::protocol::{ControlAction, ReaderCounts};

use super::report::Report;
use super::verdicts::VerdictRule;
use crate::budget::Payer;
use crate::union::FilterNeed;
use crate::view::{Rights, View};

/// An order, with the channel for its answer.
pub(crate) enum Order {
    /// Another reader.
    Attach(Box<Joining>, SyncSender<Result<ReaderParts, Refusal>>),
    /// Another filter for a reader.
    Filter(u64, Wish, SyncSender<Result<(), String>>),
    /// A reader leaves.
    Detach(u64, SyncSender<ReaderCounts>),
    /// A pause, or its end.
    Control(ControlAction, SyncSender<Result<(), String>>),
    /// Counters up to now.
    Report(SyncSender<Report>),
    /// The end.
    Stop,
}

/// The packets that a reader wants, within its rights.
#[derive(Clone)]
pub(crate) struct Wish {
    /// For the set.
    pub(crate) filter: Arc<Filter>,
    /// For the kernel.
    pub(crate) asked: FilterNeed,
    /// The verdicts on packets that the filter accepts.
    pub(crate) verdicts: VerdictRule,
}

/// A reader that is to be attached.
pub(crate) struct Joining {
    pub(crate) number: u64,
    pub(crate) rights: Rights,
    pub(crate) wish: Wish,
    pub(crate) spec: ReaderSpec,
    pub(crate) start: StartPosition,
    /// The longest time that packets may wait before the reader can read them.
    pub(crate) max_latency: Duration,
    /// The group whose share of the packets it gets.
    pub(crate) group: Option<GroupRequest>,
    /// Rank among the readers of which the first gets each packet; `None` if the reader gets its packets anyway.
    pub(crate) precedence: Option<u64>,
    /// The user that pays for the reader's costs; none for root and the owner of the daemon.
    pub(crate) payer: Option<Payer>,
    /// A buffer for readers of its rights, if they have none yet.
    pub(crate) view: Option<View>,
}

/// The reason for which a reader is not attached.
pub(crate) enum Refusal {
    /// There is no buffer for readers of its rights: it is to bring one along. To make one takes too long while packets
    /// come.
    NoBuffer(Box<Joining>),
    /// In words.
    Text(String),
}

impl From<String> for Refusal {
    fn from(text: String) -> Refusal {
        Refusal::Text(text)
    }
}

impl From<&str> for Refusal {
    fn from(text: &str) -> Refusal {
        Refusal::Text(text.to_owned())
    }
}
