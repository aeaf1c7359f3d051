//! A store as a sink.

use tapline_packet::{Batch, Interface, Now, Selection, Timestamp};
use tapline_store::{Losses, Recorder, Totals};

use crate::file_output::statistics;
use crate::{Error, InterfaceAccount, OutputAccount, Place, Sink, Wants};

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
    /// Records with `recorder`. `name` is what the account calls it; `tell` is told what a person should know of: a disk that fails,
    /// a recording that was put in order.
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

    /// What became of the store so far.
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

/// What the source counted, of all its interfaces.
fn losses(interfaces: &[InterfaceAccount]) -> Losses {
    let ring = |interface: &InterfaceAccount| interface.ring.map(|ring| ring.received);
    let tap = |interface: &InterfaceAccount| interface.tap.map(|tap| tap.offered);
    let before = |interface: &InterfaceAccount| {
        let told = interface.losses.iter().filter(|loss| loss.place != Place::File && !loss.is_doubtful());
        told.map(|loss| loss.count.known()).sum::<Option<u64>>().map(|told| told + interface.lost())
    };
    Losses {
        received: interfaces.iter().map(|interface| ring(interface).or_else(|| tap(interface))).sum(),
        lost: interfaces.iter().map(before).sum(),
    }
}

impl Sink for StoreOutput {
    fn write(
        &mut self,
        batch: &Batch<'_>,
        selection: &Selection,
        interfaces: &[Interface],
    ) -> Result<(), Error> {
        if self.interfaces.len() < interfaces.len() {
            self.interfaces = interfaces.to_vec();
        }
        let written = self.recorder.write(batch, selection, interfaces, self.now);
        written.map_err(|error| self.output_error(error))
    }

    /// Chunks are written by the clock: an idle link would fill the store with small ones.
    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn tick(&mut self, now: Now, interfaces: &[InterfaceAccount]) -> Result<Wants, Error> {
        let now = now.wall;
        self.now = now;
        let statistics = statistics(now, Some(self.start), interfaces);
        let ticked = self.recorder.tick(losses(interfaces), &statistics, &self.interfaces, now);
        self.pass_news_on();
        ticked.map(|()| Wants::More).map_err(|error| self.output_error(error))
    }

    fn finish(&mut self, now: Timestamp, interfaces: &[InterfaceAccount]) -> Result<(), Error> {
        let statistics = statistics(now, Some(self.start), interfaces);
        let finished = self.recorder.finish(&statistics, losses(interfaces), now);
        self.pass_news_on();
        finished.map_err(|error| self.output_error(error))
    }

    fn account(&self) -> OutputAccount {
        let Totals { written, lost, buffered, .. } = self.recorder.totals();
        OutputAccount { name: self.name.clone(), written, lost, buffered, ..OutputAccount::default() }
    }
}
