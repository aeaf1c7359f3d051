//! A batch on its way: the packets that each reader wants, and their way into its buffer.

use std::ops::Range;
use std::sync::Arc;

use tapline_bpf::PacketFilter;
use tapline_filterset::Matches;
use tapline_packet::{Batch, InterfaceId, Record, Selection};
use tapline_source::Source;
use tapline_sys::{clock, usage};

use super::Dispatcher;
use super::part::within;
use super::pause::PauseState;
use super::readers::{Reader, Readers, Use};
use super::waiting::Room;
use crate::view::{Marks, View};

/// Counters of all batches, and the memory in which one is sorted.
pub(super) struct Passed {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) unwanted: u64,
    /// Packets of `unwanted` that came while the capture was paused.
    pub(super) paused: u64,
    matches: Matches,
    all: Selection,
    /// Filter of the capture.
    filter: Option<Arc<dyn PacketFilter>>,
    /// Records of a batch with the capture's numbers of interfaces.
    renumbered: Vec<Record>,
}

impl Passed {
    pub(super) fn new(filter: Option<Arc<dyn PacketFilter>>) -> Passed {
        Passed {
            packets: 0,
            bytes: 0,
            unwanted: 0,
            paused: 0,
            matches: Matches::new(),
            all: Selection::none(),
            filter,
            renumbered: Vec::new(),
        }
    }
}

impl Passed {
    /// Selects the packets of a batch that are captured: all but those of a pause, and those that the capture's filter
    /// refuses where the source may not have run it: it took another filter in its place once, which the kernel may have
    /// refused.
    fn select(&mut self, source: &dyn Source, state: PauseState, has_replaced: bool) {
        let batch = &source.batch();
        self.all.select_all(batch.len());
        match state {
            PauseState::Running { since: None } => {}
            PauseState::Paused => self.all.truncate(0),
            PauseState::Running { since: Some(since) } => {
                let records = batch.records();
                self.all.retain(|index| records[index].meta.timestamp >= since);
            }
        }
        self.paused += (batch.len() - self.all.len()) as u64;
        let Some(filter) = &self.filter else { return };
        let interfaces = source.interfaces().len();
        let is_filtered = |index: usize| !has_replaced && source.is_filtered(InterfaceId(index as u32));
        match (0..interfaces).filter(|index| is_filtered(*index)).count() {
            0 => filter.select(batch, &mut self.all),
            all if all == interfaces => {}
            _ => self.all.retain(|index| {
                let packet = batch.packet(index);
                source.is_filtered(packet.meta.interface) || filter.accepts(packet)
            }),
        }
    }
}

impl Dispatcher {
    /// Passes a batch to the readers that want packets of it.
    pub(super) fn pass(&mut self, source: &dyn Source) {
        self.learn_interfaces(source);
        let mut renumbered = std::mem::take(&mut self.passed.renumbered);
        let batch = &self.numbers.renumber(source.batch(), &mut renumbered);
        self.passed.select(source, self.state, self.kernel.has_replaced());
        self.readers.classify(batch, &mut self.passed);
        self.ask_sections(batch);
        let Readers { groups, list, .. } = &mut self.readers;
        groups.share(batch, self.setting.link_type, list, &mut self.budgets.packets);
        if self.setting.goes_to_first {
            groups.give_to_first(batch.len(), list);
        }
        let wanted = self.readers.select_wanted();
        self.passed.unwanted += batch.len() as u64 - u64::from(wanted);
        let now = clock::monotonic_ns();
        for at in 0..self.readers.views.len() {
            self.hand_out(at, source, batch, now);
        }
        self.passed.renumbered = renumbered;
    }

    /// Asks the filters of users, each on the packets that its user may see, at the user's cost.
    fn ask_sections(&mut self, batch: &Batch<'_>) {
        if self.readers.sections.is_empty() {
            return;
        }
        self.budgets.fill();
        let Readers { sections, views, list, .. } = &mut self.readers;
        for section in sections.iter_mut().filter(|section| !section.is_over) {
            let View { marks, cut, gate, allowed, .. } = &mut views[section.view];
            let allowed = if gate.is_some() { allowed } else { &self.passed.all };
            let purses = &mut self.budgets.packets;
            let seen = cut.batch(batch);
            section.is_over = section.ask(&seen, allowed, purses, &mut |index, at, label| {
                let reader = &mut list[at];
                if label.is_none() {
                    marks.set(index);
                }
                if reader.is_present {
                    reader.verdicts.note(index, label, seen.packet(index));
                    if label.is_none() {
                        reader.wanted.push(index);
                    }
                }
            });
        }
        self.evict_overspent();
    }

    /// Stores for a view and its readers, in parts if a lossless reader never has room for all of the batch.
    fn hand_out(&mut self, at: usize, source: &dyn Source, batch: &Batch<'_>, now: u64) {
        let View { writer, wanted, is_restricted, .. } = &mut self.readers.views[at];
        if *is_restricted && wanted.is_empty() {
            // Packets of others are nothing that its readers should notice.
            if writer.next_wake_ns().is_some_and(|due| due <= now) {
                writer.tick(now);
            }
            return;
        }
        let (mut from, mut len, mut lagging) = (0, batch.len(), Vec::new());
        while from < batch.len() {
            let part = from..from + len.min(batch.len() - from);
            let room = self.wait_for_room(at, source, &part);
            let fits =
                room == Room::Now && self.past().replay_before_overwrite(at, batch, &part, &mut lagging);
            self.evict_overspent();
            if !fits && part.len() > 1 {
                len = part.len() / 2;
                continue;
            }
            self.store(at, batch, &part);
            self.readers.views[at].writer.publish(now);
            from = part.end;
        }
        for number in lagging {
            self.past().skip(number);
        }
    }

    /// Stores a part of a batch once, and offers it to each reader of a view.
    fn store(&mut self, at: usize, batch: &Batch<'_>, part: &Range<usize>) {
        let Readers { views, list, sections, .. } = &mut self.readers;
        let View { writer, wanted, cut, .. } = &mut views[at];
        writer.store(&cut.batch(batch), &within(wanted, part));
        let mut offer = |reader: &Reader| {
            if reader.is_present {
                let wanted = &within(&reader.wanted, part);
                // Only a reader that just left is unknown.
                let _ = match reader.verdicts.of_all() {
                    Some(verdict) => writer.index(reader.id, wanted, verdict),
                    None => writer.index_each(reader.id, wanted, |index| reader.verdicts.get(index)),
                };
            }
        };
        let is_free = |reader: &&Reader| reader.view == at && reader.payer.is_none();
        list.iter().filter(is_free).for_each(&mut offer);
        for section in sections.iter().filter(|section| section.view == at) {
            let before = usage::thread_time();
            section.readers().for_each(|reader| offer(&list[reader]));
            // A debt shows when the user's filters are asked the next time.
            self.budgets.packets.spend(section.payer, usage::thread_time().saturating_sub(before));
        }
    }
}

impl Readers {
    /// Asks the capture's set, and sorts the packets of a batch by the uses of the filters that accept them.
    fn classify(&mut self, batch: &Batch<'_>, passed: &mut Passed) {
        let Readers { set, uses, views, list, .. } = self;
        let Passed { matches, all, packets, bytes, .. } = passed;
        set.classify(batch, all, matches);
        views.iter_mut().for_each(|view| view.begin(batch));
        for reader in list.iter_mut() {
            reader.wanted.clear();
            reader.verdicts.clear();
        }
        *packets += batch.len() as u64;
        for (index, record) in batch.records().iter().enumerate() {
            *bytes += u64::from(record.cap_len);
            for filter in matches.of(index) {
                match uses[*filter as usize] {
                    Use::Nothing => {}
                    Use::Gate(view) => views[view].allowed.push(index),
                    Use::History(view) => views[view].marks.set(index),
                    Use::Label(at, label) => {
                        list[at].verdicts.note(index, Some(label), batch.packet(index));
                    }
                    Use::Reader(at) => {
                        let reader = &mut list[at];
                        reader.wanted.push(index);
                        reader.verdicts.note(index, None, batch.packet(index));
                        views[reader.view].marks.set(index);
                    }
                }
            }
        }
    }

    /// Selects the wanted packets of each view. Returns how many packets are wanted by any.
    fn select_wanted(&mut self) -> u32 {
        let mut wanted = Marks::default();
        for view in &mut self.views {
            wanted.merge(&view.marks);
            view.marks.select(&mut view.wanted);
        }
        wanted.count()
    }
}
