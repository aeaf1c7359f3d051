//! The readers of a worker, the buffers that they read, and the sets of their filters.
//!
//! ```text
//! set of the capture   filters of the rules, of root and of the owner    each with its use: reader, history, gate of a buffer
//! a section            filters of one user in one buffer                 each with its reader
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tapline_filterset::{Filter, FilterId, FilterSet, MatchPolicy};
use tapline_packet::Selection;
use tapline_ring::{DetachedReader, Guarantee, Policy, ReaderId, ReaderParts, StartPosition};
use tapline_sys::clock;
use tapline_tap_client::GroupRequest;
use tapline_tap_client::protocol::{DELAY_MAX, ReaderCounts};

use super::filter::PastFilter;
use super::groups::Groups;
use super::order::{Joining, Wish};
use super::report::{ReaderReport, ViewReport};
use super::verdicts::Verdicts;
use crate::budget::Payer;
use crate::section::Section;
use crate::union::FilterNeed;
use crate::view::View;

/// Time for which a buffer of a user without privileges is kept for the next reader of the same rights. A process may
/// keep the memory of a buffer mapped for ever, so not every attachment may make another one.
const LENT_KEPT: Duration = Duration::from_secs(60);

/// Readers that are to be sent away, as their user has spent all.
#[derive(Clone, Debug)]
pub(crate) struct Eviction {
    pub(crate) readers: Vec<u64>,
    /// For them to read.
    pub(crate) reason: String,
}

/// A reader of a buffer.
pub(super) struct Reader {
    pub(super) number: u64,
    pub(super) id: ReaderId,
    /// The user that pays for the reader's costs.
    pub(super) payer: Option<Payer>,
    /// Filter of the reader, in the set of the capture or of its user: wanted packets are stored from the first batch
    /// on.
    filter: FilterId,
    /// New packets are offered. A reader of the past gets them later, behind those that were stored before.
    pub(super) is_present: bool,
    /// The filter for packets stored before the reader came, until it has those or they are counted.
    pub(super) past: Option<Box<PastFilter>>,
    pub(super) asked: FilterNeed,
    pub(super) view: usize,
    pub(super) wanted: Selection,
    pub(super) verdicts: Verdicts,
    /// The filters of its labels, in the same set, by their order.
    labels: Vec<FilterId>,
    max_latency: Duration,
    /// The group whose share of the packets it gets.
    pub(super) group: Option<GroupRequest>,
    /// Rank among the readers of which the first gets each packet; `None` if the reader gets its packets anyway.
    pub(super) precedence: Option<u64>,
    /// Wake-ups that its user has paid for.
    pub(super) wakes_paid: u64,
}

/// The use of a filter in the set of the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Nothing,
    Reader(usize),
    /// A reader, and the number of a label of it.
    Label(usize, u32),
    History(usize),
    /// The packets that the rules let readers of a buffer see.
    Gate(usize),
}

/// All readers of a worker.
pub(super) struct Readers {
    pub(super) views: Vec<View>,
    pub(super) list: Vec<Reader>,
    /// Filters of the rules, and of root and the owner of the daemon.
    pub(super) set: FilterSet,
    /// By a filter's index in the set.
    pub(super) uses: Vec<Use>,
    /// Filters of other users.
    pub(super) sections: Vec<Section>,
    pub(super) groups: Groups,
    /// Counters of readers whose processes are gone, until they are read.
    left: HashMap<u64, ReaderCounts>,
    /// Packets stored, and not stored, in buffers that were given back.
    closed: (u64, u64),
    /// The longest time that a packet may wait, as the least patient reader has it.
    pub(super) max_latency: Duration,
    /// A reader left or took another filter: the kernel's may let too much through.
    has_loosened: bool,
}

impl Readers {
    pub(super) fn new() -> Readers {
        Readers {
            views: Vec::new(),
            list: Vec::new(),
            set: FilterSet::new(MatchPolicy::All),
            uses: Vec::new(),
            sections: Vec::new(),
            groups: Groups::default(),
            left: HashMap::new(),
            closed: (0, 0),
            max_latency: Duration::ZERO,
            has_loosened: true,
        }
    }

    /// The place of a reader in the list.
    pub(super) fn position(&self, number: u64) -> Option<usize> {
        self.list.iter().position(|reader| reader.number == number)
    }

    /// The user that pays for a reader.
    pub(super) fn payer_of(&self, number: u64) -> Option<Payer> {
        self.list[self.position(number)?].payer
    }

    /// Whether readers of a user are being sent away.
    pub(super) fn is_evicting(&self, uid: u32) -> bool {
        self.sections.iter().any(|section| section.payer.uid == uid && section.is_over)
    }

    /// Whether a reader left or took another filter since the last call.
    pub(super) fn take_loosened(&mut self) -> bool {
        std::mem::take(&mut self.has_loosened)
    }

    /// Requests that the kernel's filter is computed again at the next opportunity.
    pub(super) fn note_loosened(&mut self) {
        self.has_loosened = true;
    }

    /// Takes a buffer for readers of other rights than there are. `history` is the filter of packets that are stored
    /// without readers, `gate` that of the rules.
    pub(super) fn add_view(
        &mut self,
        mut view: View,
        history: Option<Arc<Filter>>,
        gate: Option<Arc<Filter>>,
    ) -> usize {
        view.history = history.map(|filter| self.set.insert(filter, 0));
        view.gate = gate.map(|filter| self.set.insert(filter, 0));
        self.views.push(view);
        self.rebuild_filter_index();
        self.views.len() - 1
    }

    /// Refuses a credit beyond the users' share: users together have half of the credits of a buffer, root and the
    /// owner of the daemon the rest.
    ///
    /// # Errors
    /// The refusal, in words.
    pub(super) fn admit_leased(
        &mut self,
        joining: &Joining,
        view: usize,
        buffer_mib: u32,
    ) -> Result<(), String> {
        if joining.payer.is_none() || !matches!(joining.spec.policy, Policy::Leased { .. }) {
            return Ok(());
        }
        let most = (buffer_mib as usize / 4 / 2).max(1);
        let writer = &mut self.views[view].writer;
        let readers = self.list.iter().filter(|reader| reader.view == view && reader.payer.is_some());
        let standings = readers.map(|reader| writer.guarantee(reader.id));
        let theirs = standings.filter(|standing| matches!(standing, Ok(Guarantee::Leased))).count();
        if theirs < most {
            return Ok(());
        }
        Err(format!("users have {theirs} leased readers of this buffer, and no more are allowed: take lossy"))
    }

    /// Adds a reader to a buffer.
    ///
    /// # Errors
    /// The ring's error, in words.
    pub(super) fn join(&mut self, joining: Joining, view: usize) -> Result<ReaderParts, String> {
        let Joining { number, wish, spec, start, max_latency, payer, group, precedence, .. } = joining;
        let Wish { filter, asked, verdicts } = wish;
        if let Some(group) = &group {
            self.groups.admit(group, payer.map(|payer| payer.uid), view)?;
        }
        let View { writer, is_lent, .. } = &mut self.views[view];
        let attachment = writer.attach(&spec).map_err(|error| error.to_string())?;
        *is_lent |= payer.is_some();
        // Before the first packet of the present: new packets belong behind the past.
        writer.begin(attachment.id, start).map_err(|error| error.to_string())?;
        writer.publish(clock::monotonic_ns());
        let is_present = start == StartPosition::Newest;
        let past = (!is_present).then(|| Box::new(PastFilter::new(Arc::clone(&filter), verdicts.clone())));
        let set = self.set_of(payer, view);
        let filter = set.insert(filter, 0);
        let labels = verdicts.labels().iter().map(|label| set.insert(Arc::clone(label), 0)).collect();
        let (id, wanted, wakes_paid) = (attachment.id, Selection::none(), 0);
        self.list.push(Reader {
            number,
            id,
            payer,
            filter,
            is_present,
            past,
            asked,
            view,
            wanted,
            verdicts: Verdicts::new(verdicts),
            labels,
            max_latency,
            group,
            precedence,
            wakes_paid,
        });
        self.rebuild_filter_index();
        Ok(attachment.parts)
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

    /// Replaces the filter of a reader.
    pub(super) fn exchange_filter(&mut self, number: u64, wish: Wish) {
        if let Some(at) = self.position(number) {
            let Reader { filter, view, payer, .. } = self.list[at];
            // The filter is in the set as long as the reader is here.
            let _ = self.set_of(payer, view).replace(filter, Arc::clone(&wish.filter));
            let reader = &mut self.list[at];
            // Labels stay, whichever packets they are for.
            let rule = if reader.labels.is_empty() { wish.verdicts } else { reader.verdicts.rule.clone() };
            if let Some(past) = &mut reader.past {
                **past = PastFilter::new(wish.filter, rule.clone());
            }
            reader.verdicts = Verdicts::new(rule);
            reader.asked = wish.asked;
        }
        self.has_loosened = true;
    }

    /// Takes a reader out of the list, and its filter out of its set.
    pub(super) fn remove(&mut self, at: usize) -> Reader {
        let reader = self.list.remove(at);
        let set = self.set_of(reader.payer, reader.view);
        // The filters were inserted with the reader.
        for filter in std::iter::once(reader.filter).chain(reader.labels.iter().copied()) {
            let _ = set.remove(filter);
        }
        self.has_loosened = true;
        self.rebuild_filter_index();
        reader
    }

    /// The last counters of a reader whose process was gone before it was detached; nothing a second time.
    pub(super) fn take_left(&mut self, number: u64) -> ReaderCounts {
        self.left.remove(&number).unwrap_or_default()
    }

    /// Takes out readers whose processes are gone.
    pub(super) fn reap(&mut self, view: usize) {
        for DetachedReader { id, account } in self.views[view].writer.reap() {
            let is_it = |reader: &Reader| reader.view == view && reader.id == id;
            let Some(at) = self.list.iter().position(is_it) else { continue };
            let reader = self.remove(at);
            self.left.insert(reader.number, account.into());
        }
    }

    /// Has a reader of the past get new packets, from the next batch on.
    pub(super) fn become_present(&mut self, at: usize) {
        self.list[at].is_present = true;
        self.rebuild_filter_index();
    }

    /// Computes what depends on the list of readers: the use of each filter, and the least latency.
    pub(super) fn rebuild_filter_index(&mut self) {
        let latency = self.list.iter().map(|reader| reader.max_latency).min();
        self.max_latency = latency.unwrap_or(DELAY_MAX).min(DELAY_MAX);
        self.groups.rebuild(&self.list);
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
        for (at, reader) in self.list.iter().enumerate() {
            let index = reader.filter.index();
            let Some(payer) = reader.payer else {
                let wanted = if reader.is_present { Use::Reader(at) } else { Use::History(reader.view) };
                put(&mut self.uses, index, wanted, Use::Nothing);
                for (label, filter) in (1..).zip(&reader.labels) {
                    let labelled = if reader.is_present { Use::Label(at, label) } else { Use::Nothing };
                    put(&mut self.uses, filter.index(), labelled, Use::Nothing);
                }
                continue;
            };
            let is_its =
                |section: &&mut Section| section.payer.uid == payer.uid && section.view == reader.view;
            if let Some(section) = self.sections.iter_mut().find(is_its) {
                put(&mut section.uses, index, Some((at, None)), None);
                for (label, filter) in (1..).zip(&reader.labels) {
                    put(&mut section.uses, filter.index(), Some((at, Some(label))), None);
                }
            }
        }
    }

    /// Readers whose users have spent all since the last call.
    pub(super) fn take_evictions(&mut self) -> Vec<Eviction> {
        let Readers { sections, list, .. } = self;
        let over = sections.iter_mut().filter(|section| section.is_over && !section.is_told);
        let evictions = over.map(|section| {
            section.is_told = true;
            let readers = section.readers().map(|at| list[at].number).collect();
            let Payer { uid, time_ms } = section.payer;
            let reason = format!(
                "readers of user {uid} took more processor time than the {time_ms} ms a second that the rules allow (user_time), or than their share of what all users have: come back with cheaper filters or fewer readers"
            );
            Eviction { readers, reason }
        });
        evictions.collect()
    }

    /// Frees buffers that have no readers and keep no history.
    pub(super) fn close_idle_views(&mut self) {
        for at in (0..self.views.len()).rev() {
            let is_read = self.list.iter().any(|reader| reader.view == at);
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
            self.closed.1 += writer.unstored_packets();
            let moved = self.views.len();
            self.list.iter_mut().filter(|reader| reader.view == moved).for_each(|reader| reader.view = at);
            let sections = self.sections.iter_mut().filter(|section| section.view == moved);
            sections.for_each(|section| section.view = at);
            self.rebuild_filter_index();
        }
    }

    /// Packets stored, and not stored, in all buffers that there ever were.
    pub(super) fn stored(&self) -> (u64, u64) {
        let stored = self.views.iter().map(|view| view.writer.stored()).sum::<u64>();
        let not_stored = self.views.iter().map(|view| view.writer.unstored_packets()).sum::<u64>();
        (self.closed.0 + stored, self.closed.1 + not_stored)
    }

    /// Counters of each reader.
    pub(super) fn reports(&mut self) -> Vec<ReaderReport> {
        let Readers { list, views, .. } = self;
        let report = |reader: &Reader| {
            let writer = &mut views[reader.view].writer;
            ReaderReport {
                number: reader.number,
                counts: writer.account(reader.id).unwrap_or_default().into(),
                standing: writer.guarantee(reader.id).unwrap_or(Guarantee::Lossy),
                wakes: writer.wake_count(reader.id).unwrap_or(0),
                past: writer.replay_left(reader.id).unwrap_or(0),
            }
        };
        list.iter().map(report).collect()
    }

    /// Counters of each buffer.
    pub(super) fn view_reports(&self) -> Vec<ViewReport> {
        self.views.iter().map(ViewReport::of).collect()
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

#[cfg(test)]
pub(super) mod tests {
    use tapline_filter::Options;
    use tapline_packet::LinkType;
    use tapline_ring::ReaderSpec;

    use super::super::verdicts::VerdictRule;
    use super::*;
    use crate::view::Rights;

    const USER: Payer = Payer { uid: 7, time_ms: 200 };

    fn filter(text: &str) -> Arc<Filter> {
        Arc::new(Filter::compile(text, &Options::default()).expect("a filter"))
    }

    pub(in super::super) fn view(snap_len: u32) -> View {
        let rights = Rights { filter: String::new(), snap_len };
        View::new(rights, LinkType::ETHERNET, 65_535, 4, 0).expect("a buffer")
    }

    /// Has a reader join a buffer, and gives its descriptors.
    pub(in super::super) fn join(
        readers: &mut Readers,
        number: u64,
        (view, start, payer): (usize, StartPosition, Option<Payer>),
    ) -> ReaderParts {
        let joining = Joining {
            number,
            rights: readers.views[view].rights.clone(),
            wish: Wish {
                filter: filter("tcp"),
                asked: FilterNeed::text("", "tcp", &Options::default()),
                verdicts: VerdictRule::None,
            },
            spec: ReaderSpec::new(Policy::Lossy),
            start,
            max_latency: Duration::from_millis(number),
            group: None,
            precedence: Some(0),
            payer,
            view: None,
        };
        readers.join(joining, view).expect("a reader")
    }

    #[test]
    fn every_filter_has_its_use() {
        let mut readers = Readers::new();
        let first = readers.add_view(view(65_535), Some(filter("udp")), None);
        let second = readers.add_view(view(60), None, Some(filter("icmp")));
        assert_eq!(readers.uses, [Use::History(first), Use::Gate(second)]);
        let _parts = [
            join(&mut readers, 30, (first, StartPosition::Newest, None)),
            join(&mut readers, 20, (first, StartPosition::Oldest, None)),
            join(&mut readers, 40, (second, StartPosition::Newest, Some(USER))),
        ];
        // A reader of the past has its packets stored, and gets them from the buffer.
        let known = [Use::History(first), Use::Gate(second), Use::Reader(0), Use::History(first)];
        assert_eq!(readers.uses, known);
        assert_eq!(readers.sections[0].readers().collect::<Vec<_>>(), [2]);
        assert_eq!(readers.max_latency, Duration::from_millis(20));
        readers.become_present(1);
        assert_eq!(readers.uses[3], Use::Reader(1));
        readers.remove(1);
        assert_eq!((readers.uses[2], readers.uses.get(3)), (Use::Reader(0), None));
        assert_eq!(readers.sections[0].readers().collect::<Vec<_>>(), [1]);
        assert_eq!(readers.max_latency, Duration::from_millis(30));
    }

    #[test]
    fn idle_buffers_go_and_others_keep_their_readers() {
        let mut readers = Readers::new();
        for snap_len in [60, 70, 80] {
            readers.add_view(view(snap_len), None, None);
        }
        let _parts = [
            join(&mut readers, 1, (1, StartPosition::Newest, None)),
            join(&mut readers, 2, (2, StartPosition::Newest, Some(USER))),
        ];
        readers.close_idle_views();
        let of = |number| {
            let at = readers.position(number).expect("it is here");
            readers.views[readers.list[at].view].rights.snap_len
        };
        assert_eq!((readers.views.len(), of(1), of(2)), (2, 70, 80));
        assert_eq!(readers.views[readers.sections[0].view].rights.snap_len, 80);
        // A buffer that a user had is kept for a while.
        readers.remove(readers.position(2).expect("it is here"));
        readers.close_idle_views();
        assert_eq!(readers.views.len(), 2);
    }

    #[test]
    fn a_reader_that_dies_leaves_its_counters() {
        let mut readers = Readers::new();
        let view = readers.add_view(view(65_535), None, None);
        let parts = join(&mut readers, 5, (view, StartPosition::Newest, None));
        assert!(readers.take_loosened() && !readers.take_loosened());
        drop(tapline_ring::Reader::open(parts).expect("a reader"));
        for _ in 0..1000 {
            readers.reap(view);
            if readers.list.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(readers.list.is_empty() && readers.take_loosened());
        assert_eq!(readers.take_left(5), ReaderCounts::default());
    }
}
