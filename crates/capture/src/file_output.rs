//! Capture files as sinks.

use tapline_file::{FileWriter, InterfaceStatistics, Progress};
use tapline_packet::{Batch, Interface, InterfaceId, Now, Selection, Timestamp};

use crate::{Count, Error, InterfaceAccount, OutputAccount, Place, Sink, Wants};

/// A capture file, or a rotating set of them.
pub struct FileOutput {
    writer: FileWriter,
    name: String,
    start: Option<Timestamp>,
}

impl FileOutput {
    /// Stores packets with `writer`. `name` is what the account calls it; `start` is when the
    /// capture began, if it is ours.
    pub fn new(writer: FileWriter, name: &str, start: Option<Timestamp>) -> FileOutput {
        FileOutput { writer, name: name.to_owned(), start }
    }
}

/// What interface statistics blocks say of an account: `start` is when the capture began, if it is ours.
pub(crate) fn statistics(
    now: Timestamp,
    start: Option<Timestamp>,
    interfaces: &[InterfaceAccount],
) -> Vec<InterfaceStatistics> {
    let statistics = |(index, interface): (usize, &InterfaceAccount)| InterfaceStatistics {
        interface: InterfaceId(index as u32),
        taken: now,
        start,
        end: Some(now),
        ..counters(interface)
    };
    // What is known of several together says nothing of one.
    let is_of_one =
        |(_, interface): &(usize, &InterfaceAccount)| interface.tap.is_none_or(|tap| tap.interfaces == 1);
    interfaces.iter().enumerate().filter(is_of_one).map(statistics).collect()
}

/// The counters of an account as pcapng names them. What is not known is left out.
fn counters(interface: &InterfaceAccount) -> InterfaceStatistics {
    let of_ring = interface.ring.map(|ring| (ring.received, ring.dropped));
    let of_tap = || interface.tap.map(|tap| (tap.offered, tap.lost()));
    let (filter_accepted, os_dropped) = of_ring.or_else(of_tap).unzip();
    let unfiltered = interface.kernel_filtered == Count::Known(0);
    InterfaceStatistics {
        received: filter_accepted.filter(|_| unfiltered),
        dropped: sum_of(interface, Place::Nic, None)
            .or_else(|| sum_of(interface, Place::Daemon, None))
            .or_else(|| sum_of(interface, Place::File, Some("isb_ifdrop"))),
        filter_accepted,
        os_dropped: os_dropped.or_else(|| sum_of(interface, Place::File, Some("isb_osdrop"))),
        delivered: Some(interface.delivered),
        ..InterfaceStatistics::default()
    }
}

/// The sum of the losses at a place, of one counter or of all; `None` if there are none or one is unknown.
fn sum_of(interface: &InterfaceAccount, place: Place, counter: Option<&str>) -> Option<u64> {
    let of_place =
        |loss: &&crate::Loss| loss.place == place && counter.is_none_or(|name| loss.counter == name);
    let mut counts = interface.losses.iter().filter(of_place).map(|loss| loss.count.known()).peekable();
    counts.peek()?;
    // A daemon or a file that lies may say any number.
    counts.try_fold(0_u64, |sum, count| Some(sum.saturating_add(count?)))
}

impl Sink for FileOutput {
    fn write(
        &mut self,
        batch: &Batch<'_>,
        selection: &Selection,
        interfaces: &[Interface],
    ) -> Result<(), Error> {
        Ok(self.writer.write(batch, selection, interfaces)?)
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(self.writer.flush()?)
    }

    fn tick(&mut self, now: Now, interfaces: &[InterfaceAccount]) -> Result<Wants, Error> {
        let statistics = statistics(now.wall, self.start, interfaces);
        Ok(match self.writer.tick(now, &statistics)? {
            Progress::Writing => Wants::More,
            Progress::Done => Wants::Nothing,
        })
    }

    fn finish(&mut self, now: Timestamp, interfaces: &[InterfaceAccount]) -> Result<(), Error> {
        let statistics = statistics(now, self.start, interfaces);
        Ok(self.writer.finish(&statistics)?)
    }

    fn account(&self) -> OutputAccount {
        let buffered = self.writer.buffered();
        OutputAccount {
            name: self.name.clone(),
            written: self.writer.written(),
            lost: self.writer.lost(),
            buffered,
            ..OutputAccount::default()
        }
    }
}
