//! Stages that see TCP streams: `reassemble`, `streams` and `extract`.
//!
//! ```text
//! reassemble   packets --> the same packets, each stream in order and once --> any stage: match, fpl, filter, record
//! streams      packets --> the bytes of each stream, as files or lines      (the packets go on)
//! extract      packets --> bodies of HTTP messages, as files                (the packets go on)
//! ```
//!
//! Each has a [`Reassembler`] of its own: behind `reassemble` it finds all in order and holds nothing.

pub(crate) mod extract;
pub(crate) mod reassemble;
pub(crate) mod written;

use std::time::Duration;

use tapline_graph::catalog::{Arguments, Parameter, ParameterType};
use tapline_graph::{Packets, Table, TickContext};
use tapline_stream::{Account, Event, GapCause, Limits, Reassembler, Refusal, Stream};

/// The most connections that are known at a time.
pub(crate) const ROOM: Parameter = Parameter::new("room", ParameterType::Number(1, 10_000_000), "100000")
    .means(
        "connections that are known at a time, about 400 bytes each; the one silent for longest makes room",
    );
/// Memory for all streams.
pub(crate) const MEMORY: Parameter =
    Parameter::new("memory", ParameterType::Number(100_000, 64_000_000_000), "64M")
        .means("bytes of packets that wait behind gaps, of all streams");
pub(crate) const STREAM_MEMORY: Parameter =
    Parameter::new("stream_memory", ParameterType::Number(1_000, 64_000_000_000), "4M")
        .means("bytes of packets that wait behind gaps, of one stream");
/// The time to wait for bytes that the receiver has.
pub(crate) const PATIENCE: Parameter = Parameter::new("patience", ParameterType::Duration, "100ms")
    .means("the longest wait for bytes that the receiver has acknowledged");
/// The silence that ends a connection.
pub(crate) const IDLE: Parameter =
    Parameter::new("idle", ParameterType::Duration, "5m").means("the silence that ends a connection");

/// The room for descriptions.
pub(crate) const INDEX: Parameter =
    Parameter::new("index", ParameterType::Number(1, 1_000_000_000_000), "100M")
        .means("bytes of index.jsonl at most; lines for which there is no room are counted");

/// The limits that arguments of a stage say.
fn limits(arguments: &Arguments) -> Limits {
    Limits {
        connections: arguments.number("room") as usize,
        stream_bytes: arguments.number("stream_memory") as usize,
        bytes: arguments.number("memory") as usize,
        patience: Duration::from_nanos(arguments.nanoseconds("patience")),
        idle: Duration::from_nanos(arguments.nanoseconds("idle")),
    }
}

/// A reassembler in a graph: it knows whether the clock is the packets'.
struct Streams {
    reassembler: Reassembler,
    /// Accounts of other workers.
    others: Account,
    is_live: bool,
}

impl Streams {
    fn new(arguments: &Arguments) -> Streams {
        let reassembler = Reassembler::new(limits(arguments));
        Streams { reassembler, others: Account::default(), is_live: false }
    }

    /// Takes all packets, and reports the events of their streams.
    fn push(&mut self, packets: &Packets<'_>, mut sink: impl FnMut(&Stream, Event<'_>)) {
        for index in packets.selection.iter() {
            let packet = packets.batch.packet(index);
            self.is_live |= packet.meta.if_index != 0;
            self.reassembler.push(&packets.headers(index), packet, &mut sink);
        }
    }

    /// On live interfaces streams end by the clock too.
    fn tick(&mut self, tick: &TickContext<'_>, mut sink: impl FnMut(&Stream, Event<'_>)) {
        if self.is_live {
            self.reassembler.tick(tick.now.as_nanos(), &mut sink);
        }
    }

    fn account(&self) -> Account {
        let mut account = *self.reassembler.account();
        account.merge(&self.others);
        account
    }

    fn merge(&mut self, other: &Streams) {
        self.others.merge(&other.account());
    }
}

/// The account of bytes as a table of one row.
fn table(account: &Account) -> Table {
    let given_up = |why: Refusal| account.given_up[why as usize];
    let gap = |why: GapCause| account.gaps[why as usize];
    Table::of_numbers(&[
        ("connections", account.connections),
        ("evicted", account.evicted),
        ("bytes", account.received),
        ("delivered", account.delivered),
        ("duplicate", account.duplicate),
        ("before_start", given_up(Refusal::BeforeStart)),
        ("after_end", given_up(Refusal::AfterEnd)),
        ("out_of_window", given_up(Refusal::OutOfWindow)),
        ("held", account.held),
        ("gaps", account.gap_count),
        ("missing_acknowledged", gap(GapCause::Acknowledged)),
        ("missing_no_room", gap(GapCause::Room)),
        ("missing_at_end", gap(GapCause::Ended)),
        ("not_captured", gap(GapCause::NotCaptured)),
        ("memory_peak", account.memory_peak),
    ])
}
