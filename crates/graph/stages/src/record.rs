//! `record`: packets into capture files.

use std::sync::Arc;

use tapline_file::{FileWriter, InterfaceStatistics, WriteProgress};
use tapline_graph::{Control, Out, Packets, Stage, StageCounters, StageStatus, TickContext};
use tapline_packet::{Interface, InterfaceId, Timestamp};
use tapline_source::{Count, Error, InterfaceAccount, Loss, LossCause, LossPoint, OutputAccount};

/// A capture file, or a rotating set of them.
pub struct FileOutput {
    writer: FileWriter,
    name: String,
    start: Option<Timestamp>,
    /// Interfaces that have joined.
    joined: usize,
    /// The interfaces of the packets.
    interfaces: Vec<Interface>,
    /// Where requests to open files again come from, and how many were obeyed.
    reloads: Option<(Arc<Control>, u64)>,
    notices: Vec<String>,
}

impl FileOutput {
    /// Stores packets with `writer`. `name` is its name in the account; `start` is the start of the capture, if it is
    /// ours.
    pub fn new(writer: FileWriter, name: &str, start: Option<Timestamp>) -> FileOutput {
        FileOutput {
            writer,
            name: name.to_owned(),
            start,
            joined: 0,
            interfaces: Vec::new(),
            reloads: None,
            notices: Vec::new(),
        }
    }

    /// Has the file opened again when it was renamed and `control` requests it.
    #[must_use]
    pub fn reopening(mut self, control: &Arc<Control>) -> FileOutput {
        self.reloads = Some((Arc::clone(control), control.reloads().count()));
        self
    }

    fn is_to_reopen(&mut self) -> bool {
        let Some((control, obeyed)) = &mut self.reloads else { return false };
        let requested = control.reloads().count();
        std::mem::replace(obeyed, requested) != requested
    }
}

/// Interface statistics blocks for an account of packets that have these interfaces. `start` is the time when the
/// capture began, if it is ours.
pub(super) fn statistics(
    tick: &TickContext<'_>,
    start: Option<Timestamp>,
    interfaces: &[Interface],
) -> Vec<InterfaceStatistics> {
    let now = tick.now;
    let statistics = |(index, account): (usize, &InterfaceAccount)| {
        let number = if tick.is_renumbered { number_of(account, interfaces)? } else { index };
        let interface = InterfaceId(number as u32);
        Some(InterfaceStatistics { interface, taken: now, start, end: Some(now), ..counters(account) })
    };
    // Counters of several interfaces together are not counters of one.
    let is_of_one =
        |(_, interface): &(usize, &InterfaceAccount)| interface.tap.is_none_or(|tap| tap.interfaces == 1);
    // The next interface that is captured has the place of one that is not, maybe before the account is read again.
    let has_number = |(_, interface): &(usize, &InterfaceAccount)| !interface.is_uncaptured();
    tick.interfaces.iter().enumerate().filter(is_of_one).filter(has_number).filter_map(statistics).collect()
}

/// The interface of an account by its name; without one the first that a stage made of it (`eth0/raw`).
fn number_of(account: &InterfaceAccount, interfaces: &[Interface]) -> Option<usize> {
    let is_part = |name: &str| name.strip_prefix(&account.name).is_some_and(|part| part.starts_with('/'));
    let itself = interfaces.iter().position(|interface| interface.name == account.name);
    itself.or_else(|| interfaces.iter().position(|interface| is_part(&interface.name)))
}

/// The counters of an account as pcapng names them. Unknown counts are left out.
fn counters(interface: &InterfaceAccount) -> InterfaceStatistics {
    let of_ring = interface.ring.map(|ring| (ring.received, ring.dropped));
    let of_tap = || interface.tap.map(|tap| (tap.offered, tap.lost()));
    let (filter_accepted, os_dropped) = of_ring.or_else(of_tap).unzip();
    let unfiltered = interface.kernel_filtered == Count::Known(0);
    InterfaceStatistics {
        received: filter_accepted.filter(|_| unfiltered),
        dropped: sum_of(interface, LossPoint::Nic, None)
            .or_else(|| sum_of(interface, LossPoint::Daemon, None))
            .or_else(|| sum_of(interface, LossPoint::File, Some("isb_ifdrop"))),
        filter_accepted,
        os_dropped: os_dropped.or_else(|| sum_of(interface, LossPoint::File, Some("isb_osdrop"))),
        delivered: Some(interface.delivered),
        ..InterfaceStatistics::default()
    }
}

/// The sum of the losses at a place, of one counter or of all; `None` if there are none or one is unknown.
fn sum_of(interface: &InterfaceAccount, place: LossPoint, counter: Option<&str>) -> Option<u64> {
    let of_place = |loss: &&Loss| loss.place == place && counter.is_none_or(|name| loss.counter == name);
    let mut counts = interface.losses.iter().filter(of_place).map(|loss| loss.count.known()).peekable();
    counts.peek()?;
    // A daemon or a file that lies may say any number.
    counts.try_fold(0_u64, |sum, count| Some(sum.saturating_add(count?)))
}

impl Stage for FileOutput {
    fn push(&mut self, packets: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        if self.interfaces.len() < packets.interfaces.len() {
            self.interfaces = packets.interfaces.to_vec();
        }
        Ok(self.writer.write(&packets.batch, &packets.selection, packets.interfaces)?)
    }

    /// Missing abilities of a live interface are reported when it joins; a file may describe interfaces without
    /// packets.
    fn join(&mut self, interfaces: &[Interface]) {
        let new = interfaces.iter().enumerate().skip(self.joined);
        for (index, interface) in new.filter(|(_, interface)| interface.if_index != 0) {
            self.writer.expect(InterfaceId(index as u32), interface);
        }
        self.joined = self.joined.max(interfaces.len());
    }

    fn events(&mut self) -> Vec<String> {
        self.writer.notices()
    }

    fn notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    fn idle(&mut self) -> Result<(), Error> {
        Ok(self.writer.flush()?)
    }

    fn tick(&mut self, tick: &TickContext<'_>, _: &mut Out<'_>) -> Result<StageStatus, Error> {
        let statistics = statistics(tick, self.start, &self.interfaces);
        if self.is_to_reopen() && self.writer.reopen(&statistics)? {
            self.notices.push(format!("{} opened again", self.name));
        }
        Ok(match self.writer.tick(tick.clocks(), &statistics)? {
            WriteProgress::Writing => StageStatus::Running,
            WriteProgress::Done => StageStatus::Complete,
        })
    }

    fn finish(&mut self, tick: &TickContext<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        let statistics = statistics(tick, self.start, &self.interfaces);
        Ok(self.writer.finish(&statistics)?)
    }

    fn counters(&self) -> StageCounters {
        StageCounters::of_output(OutputAccount {
            name: self.name.clone(),
            written: self.writer.written(),
            lost: self.writer.lost(),
            buffered: self.writer.buffered(),
            lost_by: [(LossCause::LinkType, self.writer.unfit())].into_iter().collect(),
            ..OutputAccount::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use tapline_packet::{ClockReading, LinkType};
    use tapline_source::RingAccount;

    use super::*;

    #[test]
    fn an_interface_that_could_not_be_captured_has_no_statistics() {
        let uncaptured =
            Loss { place: LossPoint::Uncaptured, counter: "no socket".to_owned(), count: Count::Unknown };
        let ring = |received| Some(RingAccount { received, ..RingAccount::default() });
        let row = |received, losses| InterfaceAccount {
            ring: ring(received),
            losses,
            ..InterfaceAccount::of_file("v", received)
        };
        let rows = [row(5, vec![uncaptured.clone()]), row(0, vec![]), row(0, vec![uncaptured])];
        let of = statistics(&TickContext::new(ClockReading::default(), &rows), None, &[]);
        assert_eq!(of.iter().map(|one| one.interface.0).collect::<Vec<_>>(), [0, 1]);
    }

    /// Behind a stage that numbers interfaces by their first packets.
    #[test]
    fn statistics_are_of_the_interface_that_has_the_name() {
        let rows = ["a", "b", "c"].map(|name| InterfaceAccount::of_file(name, 1));
        let interfaces = ["b/raw", "a/ethernet", "b"].map(|name| Interface::new(name, LinkType::RAW));
        let tick = TickContext { is_renumbered: true, ..TickContext::new(ClockReading::default(), &rows) };
        let of = statistics(&tick, None, &interfaces);
        assert_eq!(of.iter().map(|one| one.interface.0).collect::<Vec<_>>(), [1, 2], "no packet of c came");
    }
}
