//! Flows that leave the graph: what `ipfix` and `flowlog` have in common.

use std::any::Any;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tapline_capture::{Error, OutputAccount};
use tapline_flow::export::{Element, ExportAccount};
use tapline_flow::{DetailFields, Flow};
use tapline_packet::Timestamp;

use crate::catalog::Arguments;
use crate::graph::Out;
use crate::packets::Packets;
use crate::stage::{ExpiredFlows, Stage, StageCounters, StageStatus, TickContext};
use crate::table::{Table, grouped};

/// Messages of live interfaces that are not full wait for so many ticks: a second. Those of files wait until they are full, so that they are the same
/// however fast a file is read.
const TICKS_WAITING: u32 = 10;
/// How long a TCP collector may keep a meter of live interfaces waiting, whose ring fills meanwhile; and one of files, which can wait.
const WRITE_TIMEOUT_LIVE: Duration = Duration::from_millis(250);
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// What `RowWriter` calls standard output.
const STANDARD_OUTPUT: &str = "standard output";

/// What a template names that only meters know which are asked for it.
pub(super) fn check_details(meters: &[&Arguments], own: &Arguments) -> Result<(), String> {
    let needed = Element::needs_of(own.text("template"));
    for meter in meters {
        // A mistake there is the meter's to tell.
        let asked = DetailFields::parse(meter.text("details")).unwrap_or(needed);
        let missing = needed.without(asked);
        if missing.any() {
            let words = needed.with(asked).words();
            return Err(format!(
                "its template has elements of {}, which its meter is not asked for: flow(details=\"{words}\")",
                missing.words()
            ));
        }
    }
    Ok(())
}

/// Where flows go.
pub(super) trait Destination: Send {
    /// One of so many packets is metered.
    fn set_sampling(&mut self, sampling: u32) -> Result<(), tapline_flow::Error>;
    fn set_write_timeout(&mut self, _timeout: Duration) {}
    fn export(&mut self, flows: &[Flow], now: Timestamp) -> Result<(), tapline_flow::Error>;
    fn flush(&mut self, now: Timestamp) -> Result<(), tapline_flow::Error>;
    fn finish(&mut self, now: Timestamp) -> Result<(), tapline_flow::Error> {
        self.flush(now)
    }
    fn account(&self) -> ExportAccount;
    fn names(&self) -> &str;
    /// What a person should know of it, each thing once.
    fn take_events(&mut self) -> Vec<String> {
        Vec::new()
    }
    /// Of several places: those that did not take everything, with messages and packets.
    fn losses(&self) -> Vec<(String, u64, u64)> {
        Vec::new()
    }
    /// What its result tells besides flows, records and octets.
    fn told(&self, _all: &ExportAccount) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

pub(super) fn exporter(arguments: &Arguments) -> Result<Option<IpAddr>, String> {
    match arguments.text("exporter") {
        "none" => Ok(None),
        text => {
            text.parse().map(Some).map_err(|_| format!("exporter=\"{text}\" is no address of IPv4 or IPv6"))
        }
    }
}

pub(super) fn stage(class: &'static str, exporter: impl Destination + 'static) -> Box<dyn Stage> {
    Box::new(ExportStage {
        class,
        exporter: Box::new(exporter),
        received: 0,
        given: 0,
        now: None,
        is_live: false,
        ticks: 0,
        is_finished: false,
        absorbed: ExportAccount::default(),
        losses_absorbed: Vec::new(),
    })
}

struct ExportStage {
    class: &'static str,
    exporter: Box<dyn Destination>,
    /// Packets that came, and packets of flows that came.
    received: u64,
    given: u64,
    /// The time of the last flows.
    now: Option<Timestamp>,
    is_live: bool,
    ticks: u32,
    is_finished: bool,
    /// What the same stage did in other workers.
    absorbed: ExportAccount,
    losses_absorbed: Vec<(String, u64, u64)>,
}

/// Adds losses by name.
fn merge_losses(sum: &mut Vec<(String, u64, u64)>, more: &[(String, u64, u64)]) {
    for (name, messages, packets) in more {
        match sum.iter_mut().find(|(known, ..)| known == name) {
            Some((_, all_messages, all_packets)) => {
                *all_messages += messages;
                *all_packets += packets;
            }
            None => sum.push((name.clone(), *messages, *packets)),
        }
    }
}

fn losses_text(losses: &[(String, u64, u64)]) -> String {
    let one = |(name, messages, packets): &(String, u64, u64)| {
        format!("{name}: {} messages, {} packets", grouped(*messages), grouped(*packets))
    };
    losses.iter().map(one).collect::<Vec<_>>().join("; ")
}

impl ExportStage {
    fn checked(&self, result: Result<(), tapline_flow::Error>) -> Result<(), Error> {
        result.map_err(|error| match error {
            // Lines whose reader has enough, as those of packets.
            tapline_flow::Error::Write { collector, source }
                if source.kind() == io::ErrorKind::BrokenPipe && collector == STANDARD_OUTPUT =>
            {
                Error::BrokenPipe { what: collector }
            }
            error => Error::Output { what: self.class.to_owned(), source: Box::new(error) },
        })
    }
}

impl Stage for ExportStage {
    fn push(&mut self, packets: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.received += packets.len() as u64;
        Ok(())
    }

    fn flows(&mut self, ended: &ExpiredFlows<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.now = Some(ended.now);
        self.is_live = ended.is_live;
        let set = self.exporter.set_sampling(ended.sampling);
        self.checked(set)?;
        self.exporter.set_write_timeout(if ended.is_live { WRITE_TIMEOUT_LIVE } else { WRITE_TIMEOUT });
        self.given += ended.flows.iter().map(tapline_flow::Flow::packets).sum::<u64>();
        let exported = self.exporter.export(ended.flows, ended.now);
        self.checked(exported)
    }

    fn tick(&mut self, tick: &TickContext<'_>, _: &mut Out<'_>) -> Result<StageStatus, Error> {
        self.ticks += 1;
        if self.is_live && self.ticks.is_multiple_of(TICKS_WAITING) {
            let flushed = self.exporter.flush(tick.now);
            self.checked(flushed)?;
        }
        Ok(StageStatus::Running)
    }

    fn finish(&mut self, tick: &TickContext<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.is_finished = true;
        let finished = self.exporter.finish(self.now.unwrap_or(tick.now));
        self.checked(finished)?;
        let losses = self.exporter.losses();
        if self.is_live || losses.is_empty() {
            return Ok(());
        }
        // A file is all there, and so should its flows be.
        let source = format!("not all was taken: {}", losses_text(&losses)).into();
        Err(Error::Output { what: self.class.to_owned(), source })
    }

    fn counters(&self) -> StageCounters {
        let ExportAccount { written, lost, left_out, waiting, .. } = self.exporter.account();
        // Until the end there are packets in flows that go on. Whatever did not come by then is lost.
        let rest = self.received.saturating_sub(self.given);
        let (in_flows, missing) = if self.is_finished { (0, rest) } else { (rest, 0) };
        let output = OutputAccount {
            name: self.exporter.names().to_owned(),
            written,
            lost: lost + left_out + missing,
            buffered: waiting + in_flows,
            ..OutputAccount::default()
        };
        StageCounters::of_output(output)
    }

    fn result(&self) -> Option<Table> {
        let mut all = self.exporter.account();
        all.merge(&self.absorbed);
        let rows = [("flows", all.flows), ("records", all.records), ("octets", all.octets)];
        let mut table = Table::of_numbers(&[&rows[..], &self.exporter.told(&all)].concat());
        let mut losses = self.exporter.losses();
        merge_losses(&mut losses, &self.losses_absorbed);
        if !losses.is_empty() {
            table.add("lost_by", losses_text(&losses).into());
        }
        Some(table)
    }

    fn events(&mut self) -> Vec<String> {
        self.exporter.take_events()
    }

    fn gauges(&self, tell: &mut dyn FnMut(&str, u64)) {
        let all = self.exporter.account();
        tell("flows", all.flows);
        tell("records", all.records);
        self.exporter.told(&all).into_iter().for_each(|(name, value)| tell(name, value));
    }

    fn merge(&mut self, other: &dyn Any) {
        if let Some(other) = other.downcast_ref::<ExportStage>() {
            self.absorbed.merge(&other.exporter.account());
            self.absorbed.merge(&other.absorbed);
            merge_losses(&mut self.losses_absorbed, &other.exporter.losses());
            merge_losses(&mut self.losses_absorbed, &other.losses_absorbed);
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
