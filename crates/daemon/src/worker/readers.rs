//! Readers that come and go, and buffers for their rights.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tapline_capture::Source;
use tapline_filterset::FilterSet;
use tapline_packet::Selection;
use tapline_ring::{Departed, Policy, ReaderParts, Standing, Start};
use tapline_sys::clock;
use tapline_tap::protocol::{DELAY_MAX, ReaderCounts};

use super::past::{Leaving, One};
use super::{Attached, Desk, Joining, Refusal, Setting, Use, Wish, compile};
use crate::budget::Payer;
use crate::section::Section;
use crate::view::{Rights, View};

/// How long a buffer is kept that a user without privileges had, for the next reader of the same rights: a process may
/// hold the memory of a buffer for ever, so not every attachment may make another one.
const LENT_KEPT: Duration = Duration::from_secs(60);

/// Readers whose user has spent all: they are to be sent away.
#[derive(Clone, Debug)]
pub(crate) struct Over {
    pub(crate) readers: Vec<u64>,
    /// For them to read.
    pub(crate) reason: String,
}

impl Desk {
    pub(super) fn attach(
        &mut self,
        mut joining: Box<Joining>,
        source: &dyn Source,
    ) -> Result<ReaderParts, Refusal> {
        if self.ended.is_some() {
            return Err("the capture has ended".into());
        }
        self.admit(joining.payer)?;
        let known = self.views.iter().position(|view| view.rights == joining.rights);
        let view = match (known, joining.view.take()) {
            (Some(at), _) => at,
            (None, Some(view)) => self.add(view)?,
            (None, None) => return Err(Refusal::NoBuffer(joining)),
        };
        self.admit_leased(&joining, view)?;
        let Joining { number, wish: Wish { filter, asked }, spec, start, patience, payer, .. } = *joining;
        // Should it come to nothing.
        self.may_want_less = true;
        // From here on all that it wants comes.
        self.want(Some(&asked), source)?;
        let counts = self.counts(view);
        let View { writer, is_lent, .. } = &mut self.views[view];
        // So that the reader knows what was lost before it came.
        writer.set_source(&counts);
        let attachment = writer.attach(&spec).map_err(|error| error.to_string())?;
        *is_lent |= payer.is_some();
        let (id, wanted) = (attachment.id, Selection::none());
        // Before the first packet of the present: what comes now belongs behind the past.
        writer.begin(id, start).map_err(|error| error.to_string())?;
        writer.publish(clock::monotonic_ns());
        let is_present = start == Start::Newest;
        let past = (!is_present).then(|| Box::new(One::new(Arc::clone(&filter))));
        let filter = self.set_of(payer, view).insert(filter, 0);
        self.readers.push(Attached {
            number,
            id,
            filter,
            is_present,
            past,
            asked,
            view,
            wanted,
            patience,
            payer,
            wakes_paid: 0,
        });
        self.know_uses();
        Ok(attachment.parts)
    }

    /// Whether a user may come, or ask for another filter, now.
    fn admit(&self, payer: Option<Payer>) -> Result<(), String> {
        let Some(Payer { uid, .. }) = payer else { return Ok(()) };
        let wait = self.purses.wait(uid).max(self.order_purses.wait(uid));
        // Readers that are being sent away are asked for nothing more, nor would be those that join them.
        let is_over = self.sections.iter().any(|section| section.payer.uid == uid && section.is_over);
        if !is_over && !self.purses.is_empty(uid) && !self.order_purses.is_empty(uid) {
            return Ok(());
        }
        Err(format!(
            "readers of user {uid} have spent the processor time that they may take (user_time): ask again in {:.1} s, with cheaper filters or for fewer readers",
            wait.as_secs_f64()
        ))
    }

    /// Whether a user may have a credit: users together have half of those that a buffer has, root and the owner of the
    /// daemon the rest.
    fn admit_leased(&mut self, joining: &Joining, view: usize) -> Result<(), String> {
        if joining.payer.is_none() || !matches!(joining.spec.policy, Policy::Leased { .. }) {
            return Ok(());
        }
        let most = (self.setting.buffer_mib as usize / 4 / 2).max(1);
        let writer = &mut self.views[view].writer;
        let readers = self.readers.iter().filter(|reader| reader.view == view && reader.payer.is_some());
        let standings = readers.map(|reader| writer.standing(reader.id));
        let theirs = standings.filter(|standing| matches!(standing, Ok(Standing::Leased))).count();
        if theirs < most {
            return Ok(());
        }
        Err(format!("users have {theirs} leased readers of this buffer, and no more are allowed: take lossy"))
    }

    /// The set that a user's filters belong to.
    fn set_of(&mut self, payer: Option<Payer>, view: usize) -> &mut FilterSet {
        let Some(payer) = payer else { return &mut self.set };
        let known =
            self.sections.iter().position(|section| section.payer.uid == payer.uid && section.view == view);
        let at = known.unwrap_or_else(|| {
            self.sections.push(Section::new(payer, view));
            self.sections.len() - 1
        });
        let section = &mut self.sections[at];
        section.payer = payer;
        section.forget_cost();
        &mut section.set
    }

    /// Stores history before anybody comes, for those who may see all.
    pub(super) fn begin_history(&mut self) -> Result<(), String> {
        let Setting { link_type, buffer_mib, worker, .. } = self.setting;
        let snap_len = self.setting.options.snap_len;
        let full = Rights { filter: String::new(), snap_len };
        if self.setting.history.is_some() {
            let view = View::new(full, link_type, snap_len, buffer_mib, worker);
            self.add(view.map_err(|error| error.to_string())?)?;
        }
        Ok(())
    }

    /// Takes a buffer for readers of other rights than there are.
    fn add(&mut self, mut view: View) -> Result<usize, String> {
        let Setting { history, options, .. } = &self.setting;
        let rights = &view.rights;
        let history = match history.as_ref().map(|history| rights.narrowed(&history.text)) {
            // What the rules forbid altogether is no history of theirs.
            Some(text)
                if tapline_filter::compile(&text, options)
                    .is_err_and(|error| tapline_filter::is_never_true(&error)) =>
            {
                None
            }
            Some(text) => Some(compile(&text, options)?),
            None => None,
        };
        let gate = match rights.filter.trim() {
            "" => None,
            forced => Some(compile(forced, options)?),
        };
        // Last, when nothing can fail any more: what is in the set has a use.
        view.history = history.map(|filter| self.set.insert(filter, 0));
        view.gate = gate.map(|filter| self.set.insert(filter, 0));
        self.views.push(view);
        self.know_uses();
        Ok(self.views.len() - 1)
    }

    pub(super) fn exchange(&mut self, number: u64, wish: Wish, source: &dyn Source) -> Result<(), String> {
        let payer = self.payer_of(number);
        self.admit(payer)?;
        self.want(Some(&wish.asked), source)?;
        if let Some(at) = self.readers.iter().position(|reader| reader.number == number) {
            let Attached { filter, view, .. } = self.readers[at];
            // It is in the set as long as the reader is here.
            let _ = self.set_of(payer, view).exchange(filter, Arc::clone(&wish.filter));
            let reader = &mut self.readers[at];
            if let Some(past) = &mut reader.past {
                **past = One::new(wish.filter);
            }
            reader.asked = wish.asked;
        }
        self.may_want_less = true;
        Ok(())
    }

    /// The user that pays for a reader.
    pub(super) fn payer_of(&self, number: u64) -> Option<Payer> {
        self.readers.iter().find(|reader| reader.number == number)?.payer
    }

    pub(super) fn detach(&mut self, number: u64) -> ReaderCounts {
        if let Some(at) = self.readers.iter().position(|reader| reader.number == number) {
            let Attached { id, filter, view, past, is_present, payer, .. } = self.readers.remove(at);
            // Its filter was inserted with it.
            let _ = self.set_of(payer, view).remove(filter);
            let writer = &mut self.views[view].writer;
            if let Some(mut one) = past.filter(|_| is_present) {
                let leaving = Leaving { id, number, one: &mut one, payer };
                leaving.count_the_rest(writer, &mut self.purses, &self.log);
            }
            let account = writer.detach(id).unwrap_or_default();
            self.may_want_less = true;
            self.know_uses();
            return account.into();
        }
        self.left.remove(&number).unwrap_or_default()
    }

    /// Readers whose processes are gone: their filters go too.
    pub(super) fn depart(&mut self, view: usize, departed: Vec<Departed>) {
        for Departed { id, account } in departed {
            let is_it = |reader: &Attached| reader.view == view && reader.id == id;
            let Some(at) = self.readers.iter().position(is_it) else { continue };
            let reader = self.readers.remove(at);
            let _ = self.set_of(reader.payer, view).remove(reader.filter);
            self.left.insert(reader.number, account.into());
            self.may_want_less = true;
            self.know_uses();
        }
    }

    /// After each change: what filters are for, and how long packets may wait.
    pub(super) fn know_uses(&mut self) {
        let patience = self.readers.iter().map(|reader| reader.patience).min();
        self.patience = patience.unwrap_or(DELAY_MAX).min(DELAY_MAX);
        self.sections.retain(|section| !section.set.is_empty());
        for section in &mut self.sections {
            section.uses.clear();
        }
        self.uses.clear();
        for (at, view) in self.views.iter().enumerate() {
            if let Some(id) = view.history {
                put(&mut self.uses, id.index(), Use::History(at), Use::Nothing);
            }
            if let Some(id) = view.gate {
                put(&mut self.uses, id.index(), Use::Gate(at), Use::Nothing);
            }
        }
        for (at, reader) in self.readers.iter().enumerate() {
            let index = reader.filter.index();
            let Some(payer) = reader.payer else {
                let wanted = if reader.is_present { Use::Reader(at) } else { Use::History(reader.view) };
                put(&mut self.uses, index, wanted, Use::Nothing);
                continue;
            };
            let is_its =
                |section: &&mut Section| section.payer.uid == payer.uid && section.view == reader.view;
            if let Some(section) = self.sections.iter_mut().find(is_its) {
                put(&mut section.uses, index, Some(at), None);
            }
        }
    }

    /// Has readers sent away whose user has spent all.
    pub(super) fn tell_who_is_over(&mut self) {
        for section in self.sections.iter_mut().filter(|section| section.is_over && !section.is_told) {
            section.is_told = true;
            let readers = section.uses.iter().flatten().map(|at| self.readers[*at].number).collect();
            let Payer { uid, time_ms } = section.payer;
            let reason = format!(
                "readers of user {uid} took more processor time than the {time_ms} ms a second that the rules allow (user_time), or than their share of what all users have: come back with cheaper filters or fewer readers"
            );
            // At the end nobody is sent away any more.
            let _ = self.over.send(Over { readers, reason });
        }
    }

    /// Buffers that nobody reads and that keep no history are given back.
    pub(super) fn close_idle_views(&mut self) {
        for at in (0..self.views.len()).rev() {
            let is_read = self.readers.iter().any(|reader| reader.view == at);
            let view = &mut self.views[at];
            if is_read || view.history.is_some() {
                view.idle = None;
                continue;
            }
            let idle = view.idle.get_or_insert_with(Instant::now).elapsed();
            if view.is_lent && idle < LENT_KEPT {
                continue;
            }
            let View { writer, gate, charge, .. } = self.views.swap_remove(at);
            drop(charge);
            if let Some(gate) = gate {
                let _ = self.set.remove(gate);
            }
            self.closed.0 += writer.stored();
            self.closed.1 += writer.not_stored();
            let moved = self.views.len();
            self.readers.iter_mut().filter(|reader| reader.view == moved).for_each(|reader| reader.view = at);
            let sections = self.sections.iter_mut().filter(|section| section.view == moved);
            sections.for_each(|section| section.view = at);
            self.know_uses();
        }
    }
}

/// Writes into a list that grows as needed.
fn put<T: Clone>(list: &mut Vec<T>, index: u32, value: T, rest: T) {
    let index = index as usize;
    if list.len() <= index {
        list.resize(index + 1, rest);
    }
    list[index] = value;
}
