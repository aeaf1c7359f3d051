//! Packets into a store: `tapline record`.

use tapline_graph::{Out, Packets, Stage, StageCounters, StageStatus, TickContext};
use tapline_packet::{Interface, Timestamp};
use tapline_source::{Error, InterfaceAccount, LossCause, LossPoint, OutputAccount, SkipCause};
use tapline_store::{Losses, Recorder, Totals};

use super::record::statistics;

/// Records packets into a store.
pub struct StoreOutput {
    recorder: Recorder,
    name: String,
    start: Timestamp,
    /// The wall clock at the last tick, ten of which come a second.
    now: Timestamp,
    interfaces: Vec<Interface>,
    tell: Box<dyn FnMut(&str) + Send>,
}

impl StoreOutput {
    /// Records with `recorder`. `name` is its name in the account; `tell` gets the messages for people: a disk that
    /// fails, a recording that was put in order.
    pub fn new(
        recorder: Recorder,
        name: &str,
        now: Timestamp,
        tell: Box<dyn FnMut(&str) + Send>,
    ) -> StoreOutput {
        let mut output =
            StoreOutput { recorder, name: name.to_owned(), start: now, now, interfaces: Vec::new(), tell };
        output.pass_news_on();
        output
    }

    /// The recorder's counters so far.
    pub fn totals(&self) -> Totals {
        self.recorder.totals()
    }

    fn pass_news_on(&mut self) {
        self.recorder.news().iter().for_each(|line| (self.tell)(line));
    }

    fn output_error(&self, error: tapline_store::Error) -> Error {
        Error::Output { what: self.name.clone(), source: Box::new(error) }
    }
}

/// The losses that the source counted on all its interfaces.
fn losses(interfaces: &[InterfaceAccount]) -> Losses {
    let ring = |interface: &InterfaceAccount| interface.ring.map(|ring| ring.received);
    let tap = |interface: &InterfaceAccount| interface.tap.map(|tap| tap.offered);
    let before = |interface: &InterfaceAccount| {
        let told = interface
            .losses
            .iter()
            .filter(|loss| loss.place != LossPoint::File && !loss.counts_unwanted_frames());
        told.map(|loss| loss.count.known()).sum::<Option<u64>>().map(|told| told + interface.lost())
    };
    Losses {
        received: interfaces.iter().map(|interface| ring(interface).or_else(|| tap(interface))).sum(),
        lost: interfaces.iter().map(before).sum(),
    }
}

impl Stage for StoreOutput {
    fn push(&mut self, packets: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        let interfaces = packets.interfaces;
        if self.interfaces.len() < interfaces.len() {
            self.interfaces = interfaces.to_vec();
        }
        let written = self.recorder.write(&packets.batch, &packets.selection, interfaces, self.now);
        written.map_err(|error| self.output_error(error))
    }

    // Chunks are written by the clock, not when the source is idle: an idle link would fill the store with small ones.

    fn tick(&mut self, tick: &TickContext<'_>, _: &mut Out<'_>) -> Result<StageStatus, Error> {
        self.now = tick.now;
        let statistics = statistics(tick, Some(self.start), &self.interfaces);
        let losses = losses(tick.interfaces);
        let ticked = self.recorder.tick(losses, &statistics, &self.interfaces, self.now);
        self.pass_news_on();
        ticked.map(|()| StageStatus::Running).map_err(|error| self.output_error(error))
    }

    fn finish(&mut self, tick: &TickContext<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        let statistics = statistics(tick, Some(self.start), &self.interfaces);
        let finished = self.recorder.finish(&statistics, losses(tick.interfaces), tick.now);
        self.pass_news_on();
        finished.map_err(|error| self.output_error(error))
    }

    fn counters(&self) -> StageCounters {
        let Totals { written, lost, cut, overload, buffered, .. } = self.recorder.totals();
        let name = self.name.clone();
        // In the order of `Overload::LOSING`.
        let causes = [LossCause::OverloadNewest, LossCause::OverloadOldest, LossCause::OverloadFlows];
        let lost_by = causes.into_iter().zip(overload).collect();
        let lost = lost + overload.iter().sum::<u64>();
        StageCounters::of_output(OutputAccount {
            name,
            written,
            lost,
            lost_by,
            buffered,
            skipped: Some((SkipCause::Cut, cut)),
        })
    }
}
