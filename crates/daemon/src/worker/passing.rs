//! A batch on its way: who wants which packets, and how they get them.

use std::borrow::Cow;
use std::ops::Range;

use tapline_capture::Source;
use tapline_packet::{Batch, Selection};
use tapline_sys::{clock, usage};

use super::waiting::Fit;
use super::{Desk, Use};
use crate::view::{Marks, View};

impl Desk {
    /// Gives a batch to those who want it.
    pub(super) fn pass(&mut self, source: &dyn Source) {
        let batch = &source.batch();
        self.all.select_all(batch.len());
        self.set.classify(batch, &self.all, &mut self.matches);
        self.views.iter_mut().for_each(|view| view.begin(batch));
        self.readers.iter_mut().for_each(|reader| reader.wanted.clear());
        self.packets += batch.len() as u64;
        for (index, record) in batch.records().iter().enumerate() {
            self.bytes += u64::from(record.cap_len);
            for filter in self.matches.of(index) {
                match self.uses[*filter as usize] {
                    Use::Nothing => {}
                    Use::Gate(view) => self.views[view].allowed.push(index),
                    Use::History(view) => self.views[view].marks.set(index),
                    Use::Reader(at) => {
                        let reader = &mut self.readers[at];
                        reader.wanted.push(index);
                        self.views[reader.view].marks.set(index);
                    }
                }
            }
        }
        self.ask_sections(batch);
        let mut wanted = Marks::default();
        for view in &mut self.views {
            wanted.merge(&view.marks);
            view.marks.select(&mut view.wanted);
        }
        self.unwanted += batch.len() as u64 - u64::from(wanted.count());
        let now = clock::monotonic_ns();
        for at in 0..self.views.len() {
            self.hand_out(at, source, now);
        }
    }

    /// Asks the filters of users, each of what its user may see, at the user's cost.
    fn ask_sections(&mut self, batch: &Batch<'_>) {
        if self.sections.is_empty() {
            return;
        }
        let Desk { sections, views, readers, purses, all, time, .. } = self;
        purses.fill(time.now_ns());
        let mut is_any_over = false;
        for section in sections.iter_mut().filter(|section| !section.is_over) {
            let View { marks, cut, gate, allowed, .. } = &mut views[section.view];
            let allowed = if gate.is_some() { allowed } else { &*all };
            section.is_over = section.ask(&cut.batch(batch), allowed, purses, &mut |index, at| {
                marks.set(index);
                let reader = &mut readers[at];
                if reader.is_present {
                    reader.wanted.push(index);
                }
            });
            is_any_over |= section.is_over;
        }
        if is_any_over {
            self.tell_who_is_over();
        }
    }

    /// Stores for a view and its readers, in parts if a lossless one never has room for all of the batch.
    fn hand_out(&mut self, at: usize, source: &dyn Source, now: u64) {
        let batch = &source.batch();
        let View { writer, wanted, is_restricted, .. } = &mut self.views[at];
        if *is_restricted && wanted.is_empty() {
            // Packets of others are nothing that its readers should notice.
            if writer.due_ns().is_some_and(|due| due <= now) {
                writer.tick(now);
            }
            return;
        }
        let (mut from, mut len, mut lagging) = (0, batch.len(), Vec::new());
        while from < batch.len() {
            let part = from..from + len.min(batch.len() - from);
            let fit = self.wait_for_room(at, source, &part);
            let fits = fit == Fit::Now && self.rescue(at, batch, &part, &mut lagging);
            if !fits && part.len() > 1 {
                len = part.len() / 2;
                continue;
            }
            self.store(at, batch, &part);
            self.views[at].writer.publish(now);
            from = part.end;
        }
        for number in lagging {
            self.skip(number);
        }
    }

    /// Stores a part of a batch once, and offers it to each reader of a view.
    fn store(&mut self, at: usize, batch: &Batch<'_>, part: &Range<usize>) {
        let Desk { views, readers, sections, purses, .. } = self;
        let View { writer, wanted, cut, .. } = &mut views[at];
        writer.store(&cut.batch(batch), &within(wanted, part));
        let mut offer = |reader: &super::Attached| {
            if reader.is_present {
                // Only one that just left is unknown.
                let _ = writer.index(reader.id, &within(&reader.wanted, part), 0);
            }
        };
        let is_free = |reader: &&super::Attached| reader.view == at && reader.payer.is_none();
        readers.iter().filter(is_free).for_each(&mut offer);
        for section in sections.iter().filter(|section| section.view == at) {
            let before = usage::thread_time();
            section.uses.iter().flatten().for_each(|reader| offer(&readers[*reader]));
            // What is owed shows when its filters are asked the next time.
            purses.spend(section.payer, usage::thread_time().saturating_sub(before));
        }
    }
}

/// Those of a part of the batch, which mostly is all of it.
pub(super) fn within<'a>(wanted: &'a Selection, part: &Range<usize>) -> Cow<'a, Selection> {
    let is_all = part.start == 0 && wanted.last().is_none_or(|last| last < part.end);
    if is_all {
        return Cow::Borrowed(wanted);
    }
    let mut within = wanted.clone();
    within.retain(|index| part.contains(&index));
    Cow::Owned(within)
}
