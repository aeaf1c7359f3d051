//! A source, its filters and its views, in a thread.
//!
//! ```text
//! orders --> batch --> which filters accept which packets, in one pass
//!                  --> for each view: what its readers want, stored once; then, for each reader, 16 bytes a packet
//!                  --> published; sleepers woken
//!        --> readers of the past: some more of what the buffer holds
//! ```

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError};
use std::time::{Duration, Instant};

use tapline_capture::{Advance, Event, InterfaceAccount, Place, Source};
use tapline_filter::Options;
use tapline_filter::bpf::Program;
use tapline_filter::set::{Accept, Filter, FilterId, FilterSet, Matches, Mode};
use tapline_packet::{BATCH_MAX, Batch, LinkType, Record, Selection, Timestamp};
use tapline_ring::{
    Departed, Held, Place as Counted, ReaderId, ReaderParts, ReaderSpec, Replay, Room, SourceCounts,
    Standing, Start,
};
use tapline_sys::{clock, usage};
use tapline_tap::protocol::{DELAY_MAX, ReaderCounts};

use crate::union::{self, Asked};
use crate::view::{Rights, View};

/// The longest sleep without packets. Orders end it sooner, where the source can be woken.
const WAIT: Duration = Duration::from_millis(50);
/// How many stored packets are looked at for a reader of the past between two batches: four times as many as come by one, so that it comes to the present, in some 0.1 ms.
const LOOKS: usize = 4 * BATCH_MAX;
/// The same for all such readers together, in some 0.4 ms, and the least that each gets of it: with many of them nobody comes to the present sooner than packets come, but packets
/// are not lost because somebody asks for the past often.
const LOOKS_OF_ALL: usize = 4 * LOOKS;
const LEAST_LOOKS: usize = BATCH_MAX / 4;
/// The same for one that leaves: some 0.02 s, in which packets wait in the kernel's ring.
const LAST_LOOKS: usize = 1 << 18;
/// How many batches at most orders wait while packets are there.
const BATCHES_BEFORE_ORDERS: u32 = 64;
/// The shortest wait for a sleeper's delay: readers that lie about it take no processor.
const NAP_MIN: Duration = Duration::from_millis(1);
/// How long a reader of the past whose index is full has to read some of it, before it is looked at again.
const FULL_NAP: Duration = Duration::from_millis(4);
/// How often readers that are gone are looked for, credits of time are looked at, and counters are shown.
const TEND_EVERY: Duration = Duration::from_millis(100);
/// One sleep of the writer for a lossless reader.
const ROOM_WAIT: Duration = Duration::from_millis(20);
/// How long readers have at the end to read what is left.
const LINGER: Duration = Duration::from_secs(3);

/// What the control thread wants.
pub(crate) enum Order {
    /// Another reader.
    Attach(Box<Joining>, SyncSender<Result<ReaderParts, Refusal>>),
    /// Another filter for a reader.
    Filter(u64, Wish, SyncSender<Result<(), String>>),
    /// A reader leaves.
    Detach(u64, SyncSender<ReaderCounts>),
    /// What is going on.
    Report(SyncSender<Report>),
    /// The end.
    Stop,
}

/// What a reader wants, within its rights.
#[derive(Clone)]
pub(crate) struct Wish {
    /// For the set.
    pub(crate) filter: Arc<Filter>,
    /// For the kernel.
    pub(crate) asked: Asked,
}

/// A reader that comes.
pub(crate) struct Joining {
    pub(crate) number: u64,
    pub(crate) rights: Rights,
    pub(crate) wish: Wish,
    pub(crate) spec: ReaderSpec,
    pub(crate) start: Start,
    /// How long packets may wait before it can read them.
    pub(crate) patience: Duration,
    /// A buffer for readers of its rights, if there is none yet.
    pub(crate) view: Option<View>,
}

/// Why it does not come.
pub(crate) enum Refusal {
    /// There is no buffer for readers of its rights: it is to bring one along. To make one takes too long while packets come.
    NoBuffer(Box<Joining>),
    /// In words.
    Text(String),
}

impl From<String> for Refusal {
    fn from(text: String) -> Refusal {
        Refusal::Text(text)
    }
}

impl From<&str> for Refusal {
    fn from(text: &str) -> Refusal {
        Refusal::Text(text.to_owned())
    }
}

/// What a worker did so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) unwanted: u64,
    pub(crate) stored: u64,
    pub(crate) not_stored: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) interfaces: Vec<InterfaceAccount>,
    pub(crate) readers: Vec<ReaderReport>,
    /// How many instructions in the kernel say what anybody wants; `None` if all comes.
    pub(crate) restricted: Option<usize>,
    /// The lossless reader that is waited for, and for how long.
    pub(crate) blocked: Option<(u64, Duration)>,
    /// Why the source ended by itself; empty for the end of a file.
    pub(crate) ended: Option<String>,
}

/// What a reader of a worker did so far.
#[derive(Clone, Debug)]
pub(crate) struct ReaderReport {
    pub(crate) number: u64,
    pub(crate) counts: ReaderCounts,
    pub(crate) standing: Standing,
    pub(crate) wakes: u64,
    /// Stored packets that are still to be looked at for it.
    pub(crate) past: u64,
}

/// What is stored though nobody reads it.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) text: String,
    /// For the kernel.
    pub(crate) asked: Asked,
}

/// How a worker works.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) link_type: LinkType,
    pub(crate) buffer_mib: u32,
    pub(crate) worker: u32,
    /// What is stored though nobody reads it.
    pub(crate) history: Option<History>,
    /// The source lends also what nobody wants, so that it is counted.
    pub(crate) counts_all: bool,
    /// Nothing is read as long as there are no readers: a file would be over.
    pub(crate) waits_for_readers: bool,
    pub(crate) options: Options,
}

/// Somebody who wants packets.
struct Attached {
    number: u64,
    id: ReaderId,
    /// Its filter in the set: what it wants is stored from the first batch on.
    filter: FilterId,
    /// It is offered what comes. One that reads the past finds that there, behind what was stored before.
    is_present: bool,
    /// Its filter for what was stored before it came, until it has that or it is counted.
    past: Option<Box<One>>,
    asked: Asked,
    view: usize,
    wanted: Selection,
    patience: Duration,
}

/// What the source was told that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Restricted {
    /// All that the capture filter accepts.
    Not,
    /// What this program accepts.
    To(Program),
    /// It cannot be told.
    Never,
}

/// What a filter of the set is for.
#[derive(Clone, Copy, Debug)]
enum Use {
    Nothing,
    Reader(usize),
    History(usize),
}

/// Whether there is room for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    /// There is, or nobody waits for it any longer.
    Now,
    /// There never will be, for so many.
    Never,
}

/// A source and its readers.
pub(crate) struct Worker {
    source: Box<dyn Source>,
    desk: Desk,
}

/// All but the source: so orders are obeyed also while a batch is lent and a lossless reader has no room for it.
struct Desk {
    setting: Setting,
    orders: Receiver<Order>,
    /// What a person should know of.
    log: Sender<String>,
    stop: Arc<AtomicBool>,
    set: FilterSet,
    matches: Matches,
    all: Selection,
    views: Vec<View>,
    readers: Vec<Attached>,
    /// By a filter's index in the set.
    uses: Vec<Use>,
    /// Readers that left, until they are asked for.
    left: HashMap<u64, ReaderCounts>,
    packets: u64,
    bytes: u64,
    unwanted: u64,
    /// What was stored, and could not be, in buffers that were given back.
    closed: (u64, u64),
    /// What the source said when it was last asked.
    interfaces: Vec<InterfaceAccount>,
    restricted: Restricted,
    /// Fewer may be wanted than it was told.
    may_want_less: bool,
    /// How long packets may wait, as the least patient of the readers has it.
    patience: Duration,
    tended: Instant,
    /// When lossless readers are waited for no longer, once it is to end.
    patience_ends: Option<Instant>,
    /// The lossless reader that is waited for, and since when.
    blocked: Option<(u64, Instant)>,
    ended: Option<String>,
}

impl Worker {
    pub(crate) fn new(
        setting: Setting,
        source: Box<dyn Source>,
        orders: Receiver<Order>,
        log: Sender<String>,
        stop: Arc<AtomicBool>,
    ) -> Worker {
        let restricted = if setting.counts_all { Restricted::Never } else { Restricted::Not };
        let desk = Desk {
            setting,
            orders,
            log,
            stop,
            set: FilterSet::new(Mode::All),
            matches: Matches::new(),
            all: Selection::none(),
            views: Vec::new(),
            readers: Vec::new(),
            uses: Vec::new(),
            left: HashMap::new(),
            packets: 0,
            bytes: 0,
            unwanted: 0,
            closed: (0, 0),
            interfaces: Vec::new(),
            restricted,
            may_want_less: true,
            patience: Duration::ZERO,
            tended: Instant::now(),
            patience_ends: None,
            blocked: None,
            ended: None,
        };
        Worker { source, desk }
    }

    /// Works until it is stopped. What was captured until then is still passed on.
    pub(crate) fn run(mut self) -> Report {
        let Worker { source, desk } = &mut self;
        desk.interfaces = source.account();
        if let Err(error) = desk.begin_history() {
            let _ = desk.log.send(format!("nothing is stored as long as nobody reads: {error}"));
        }
        // From the first packet on: else those of the first tenth of a second would be taken for nothing.
        desk.want_less(&**source);
        let (mut is_stopping, mut patience, mut batches) = (false, Duration::ZERO, 0);
        loop {
            // What waits already is of the time before the order: who leaves gets it, who comes does not.
            let is_time = batches == 0 || batches >= BATCHES_BEFORE_ORDERS;
            batches = if is_time { 0 } else { batches };
            if is_time && desk.obey(&**source) && !is_stopping {
                is_stopping = true;
                if let Err(error) = source.stop() {
                    desk.ended = Some(error.to_string());
                    break;
                }
            }
            let is_waiting = desk.setting.waits_for_readers && desk.readers.is_empty() && !is_stopping;
            let wait = desk.catch_up().min(desk.wait());
            let advanced = if is_waiting {
                std::thread::sleep(WAIT);
                Ok(Advance::Idle)
            } else {
                if patience != desk.patience {
                    patience = desk.patience;
                    source.set_patience(patience);
                }
                source.advance(wait)
            };
            match advanced {
                Ok(Advance::Batch) => {
                    batches += 1;
                    desk.pass(&**source);
                }
                Ok(Advance::Idle) => {
                    batches = 0;
                    desk.wake_who_waited();
                }
                Ok(Advance::End) => {
                    desk.ended.get_or_insert_default();
                    break;
                }
                Err(error) => {
                    desk.ended = Some(error.to_string());
                    break;
                }
            }
            if desk.tended.elapsed() >= TEND_EVERY {
                desk.tend(source.account());
                desk.want_less(&**source);
                source.events().into_iter().for_each(|event| desk.tell(&event));
            }
        }
        let interfaces = self.source.account();
        self.desk.end(&*self.source, interfaces, is_stopping)
    }
}

impl Desk {
    /// Does what the control thread wants. Returns whether that is the end.
    fn obey(&mut self, source: &dyn Source) -> bool {
        loop {
            match self.orders.try_recv() {
                Ok(Order::Attach(joining, reply)) => drop(reply.send(self.attach(joining, source))),
                Ok(Order::Filter(number, wish, reply)) => {
                    drop(reply.send(self.exchange(number, wish, source)));
                }
                Ok(Order::Detach(number, reply)) => drop(reply.send(self.detach(number))),
                Ok(Order::Report(reply)) => drop(reply.send(self.report())),
                Ok(Order::Stop) | Err(TryRecvError::Disconnected) => return true,
                Err(TryRecvError::Empty) => return self.stop.load(Ordering::Relaxed),
            }
        }
    }

    fn attach(&mut self, mut joining: Box<Joining>, source: &dyn Source) -> Result<ReaderParts, Refusal> {
        if self.ended.is_some() {
            return Err("the capture has ended".into());
        }
        let known = self.views.iter().position(|view| view.rights == joining.rights);
        let view = match (known, joining.view.take()) {
            (Some(at), _) => at,
            (None, Some(view)) => self.add(view)?,
            (None, None) => return Err(Refusal::NoBuffer(joining)),
        };
        let Joining { number, wish: Wish { filter, asked }, spec, start, patience, .. } = *joining;
        // Should it come to nothing.
        self.may_want_less = true;
        // From here on all that it wants comes.
        self.want(Some(&asked), source)?;
        let counts = counts(&self.interfaces, self.unwanted);
        let writer = &mut self.views[view].writer;
        // So that the reader knows what was lost before it came.
        writer.set_source(&counts);
        let attachment = writer.attach(&spec).map_err(|error| error.to_string())?;
        let (id, wanted) = (attachment.id, Selection::none());
        // Before the first packet of the present: what comes now belongs behind the past.
        writer.begin(id, start).map_err(|error| error.to_string())?;
        writer.publish(clock::monotonic_ns());
        let is_present = start == Start::Newest;
        let past = (!is_present).then(|| Box::new(One::new(Arc::clone(&filter))));
        let filter = self.set.insert(filter, 0);
        self.readers.push(Attached { number, id, filter, is_present, past, asked, view, wanted, patience });
        self.know_uses();
        Ok(attachment.parts)
    }

    /// Offers readers of the past some more of it. How long the next batch may be waited for meanwhile.
    fn catch_up(&mut self) -> Duration {
        let looks = self.looks();
        let mut wait = Duration::MAX;
        for at in 0..self.readers.len() {
            match self.replay(at, looks) {
                Replay::More => wait = Duration::ZERO,
                Replay::Full => wait = wait.min(FULL_NAP),
                Replay::Done => {}
            }
        }
        wait
    }

    /// How many stored packets are looked at for each reader of the past.
    fn looks(&self) -> usize {
        let count = self.readers.iter().filter(|reader| reader.past.is_some()).count();
        (LOOKS_OF_ALL / count.max(1)).clamp(LEAST_LOOKS, LOOKS)
    }

    /// Likewise one of the readers.
    fn replay(&mut self, at: usize, looks: usize) -> Replay {
        let Attached { id, view, past: Some(one), .. } = &mut self.readers[at] else { return Replay::Done };
        let writer = &mut self.views[*view].writer;
        // Only one that just left is unknown.
        let replay = writer.replay(*id, looks, |held| one.verdict(held)).unwrap_or(Replay::Done);
        if replay == Replay::Done {
            let _ = writer.be_present(*id);
        }
        writer.publish(clock::monotonic_ns());
        if replay == Replay::Done {
            self.join_set(at);
            self.readers[at].past = None;
        }
        replay
    }

    /// Has a reader of the past get what comes from the next batch on.
    fn join_set(&mut self, at: usize) {
        self.readers[at].is_present = true;
        self.know_uses();
    }

    /// Has a reader go on with what comes though it has not all of the past, which is counted as lost.
    fn skip(&mut self, number: u64) {
        let Some(at) = self.readers.iter().position(|reader| reader.number == number) else { return };
        let Attached { id, view, .. } = self.readers[at];
        let _ = self.views[view].writer.skip(id);
        self.join_set(at);
    }

    /// Offers readers of the past what a part of a batch may overwrite. Those that have no place for all of it are noted as `lagging`. Whether the part is small enough for that.
    fn rescue(
        &mut self,
        view: usize,
        batch: &Batch<'_>,
        part: &Range<usize>,
        lagging: &mut Vec<u64>,
    ) -> bool {
        let View { writer, wanted, .. } = &mut self.views[view];
        if !writer.has_past() {
            return true;
        }
        let wanted = within(wanted, part);
        for reader in self.readers.iter_mut().filter(|reader| reader.view == view) {
            let Some(one) = &mut reader.past else { continue };
            match writer.replay_before(reader.id, batch, &wanted, |held| one.verdict(held)) {
                Err(_) => return false,
                Ok(lost) if lost > 0 && !lagging.contains(&reader.number) => lagging.push(reader.number),
                Ok(_) => {}
            }
        }
        true
    }

    /// Has the source lend what anybody wants, and one more.
    fn want(&mut self, more: Option<&Asked>, source: &dyn Source) -> Result<(), String> {
        if self.restricted == Restricted::Never {
            return Ok(());
        }
        let union = self.union(more);
        if union == self.restricted {
            return Ok(());
        }
        let program = match &union {
            Restricted::To(program) => Some(program),
            _ => None,
        };
        let can = source.restrict(program).map_err(|error| error.to_string())?;
        self.restricted = if can { union } else { Restricted::Never };
        Ok(())
    }

    /// What anybody wants, and one more.
    fn union(&self, more: Option<&Asked>) -> Restricted {
        let readers = self.readers.iter().map(|reader| &reader.asked);
        let all = self.setting.history.iter().map(|history| &history.asked).chain(readers).chain(more);
        union::of(all).map_or(Restricted::Not, Restricted::To)
    }

    /// Tells the source what nobody wants any longer. Not at once: whoever comes often costs no more than that.
    fn want_less(&mut self, source: &dyn Source) {
        if std::mem::take(&mut self.may_want_less) {
            // What cannot be told is lent.
            let _ = self.want(None, source);
        }
    }

    /// Stores history before anybody comes, for those who may see all.
    fn begin_history(&mut self) -> Result<(), String> {
        let full = Rights { filter: String::new(), snap_len: self.setting.options.snap_len };
        if self.setting.history.is_some() {
            let Setting { link_type, buffer_mib, worker, .. } = self.setting;
            let view = View::new(full, link_type, buffer_mib, worker).map_err(|error| error.to_string())?;
            self.add(view)?;
        }
        Ok(())
    }

    /// Takes a buffer for readers of other rights than there are.
    fn add(&mut self, mut view: View) -> Result<usize, String> {
        let Setting { history, options, .. } = &self.setting;
        let rights = &view.rights;
        let history =
            history.as_ref().map(|history| compile(&rights.narrowed(&history.text), options)).transpose()?;
        // Last, when nothing can fail any more: what is in the set has a use.
        view.history = history.map(|filter| self.set.insert(filter, 0));
        self.views.push(view);
        self.know_uses();
        Ok(self.views.len() - 1)
    }

    fn exchange(&mut self, number: u64, wish: Wish, source: &dyn Source) -> Result<(), String> {
        self.want(Some(&wish.asked), source)?;
        if let Some(reader) = self.readers.iter_mut().find(|reader| reader.number == number) {
            // It is in the set as long as the reader is here.
            let _ = self.set.exchange(reader.filter, Arc::clone(&wish.filter));
            if let Some(past) = &mut reader.past {
                **past = One::new(wish.filter);
            }
            reader.asked = wish.asked;
        }
        self.may_want_less = true;
        Ok(())
    }

    fn detach(&mut self, number: u64) -> ReaderCounts {
        if let Some(at) = self.readers.iter().position(|reader| reader.number == number) {
            let Attached { id, filter, view, past, is_present, .. } = self.readers.remove(at);
            // Its filter was inserted with it.
            let _ = self.set.remove(filter);
            let writer = &mut self.views[view].writer;
            if let Some(mut one) = past.filter(|_| is_present) {
                count_the_rest(writer, id, &mut one, number, &self.log);
            }
            let account = writer.detach(id).unwrap_or_default();
            self.may_want_less = true;
            self.know_uses();
            return account.into();
        }
        self.left.remove(&number).unwrap_or_default()
    }

    /// Readers whose processes are gone: their filters go too.
    fn depart(&mut self, view: usize, departed: Vec<Departed>) {
        for Departed { id, account } in departed {
            let is_it = |reader: &Attached| reader.view == view && reader.id == id;
            let Some(at) = self.readers.iter().position(is_it) else { continue };
            let reader = self.readers.remove(at);
            let _ = self.set.remove(reader.filter);
            self.left.insert(reader.number, account.into());
            self.may_want_less = true;
            self.know_uses();
        }
    }

    /// How long to wait for packets: until somebody who sleeps over few is to be woken, at most.
    fn wait(&self) -> Duration {
        match self.due_ns() {
            None | Some(u64::MAX) => WAIT,
            Some(due) => {
                let left = Duration::from_nanos(due.saturating_sub(clock::monotonic_ns()));
                left.clamp(NAP_MIN, WAIT)
            }
        }
    }

    fn due_ns(&self) -> Option<u64> {
        self.views.iter().filter_map(|view| view.writer.due_ns()).min()
    }

    /// Wakes those whose delay is over though nothing came.
    fn wake_who_waited(&mut self) {
        if self.due_ns().is_some_and(|due| due != u64::MAX) {
            let now = clock::monotonic_ns();
            self.views.iter_mut().for_each(|view| view.writer.tick(now));
        }
    }

    /// After each change: what filters are for, and how long packets may wait.
    fn know_uses(&mut self) {
        let patience = self.readers.iter().map(|reader| reader.patience).min();
        self.patience = patience.unwrap_or(DELAY_MAX).min(DELAY_MAX);
        let indices = self.readers.iter().map(|reader| reader.filter);
        let indices = indices.chain(self.views.iter().filter_map(|view| view.history));
        let len = indices.map(|id| id.index() as usize + 1).max().unwrap_or(0);
        self.uses.clear();
        self.uses.resize(len, Use::Nothing);
        for (at, view) in self.views.iter().enumerate() {
            if let Some(id) = view.history {
                self.uses[id.index() as usize] = Use::History(at);
            }
        }
        for (at, reader) in self.readers.iter().enumerate() {
            let stored = Use::History(reader.view);
            self.uses[reader.filter.index() as usize] =
                if reader.is_present { Use::Reader(at) } else { stored };
        }
    }

    /// Gives a batch to those who want it.
    fn pass(&mut self, source: &dyn Source) {
        let batch = &source.batch();
        self.all.select_all(batch.len());
        self.set.classify(batch, &self.all, &mut self.matches);
        self.views.iter_mut().for_each(|view| view.wanted.clear());
        self.readers.iter_mut().for_each(|reader| reader.wanted.clear());
        self.packets += batch.len() as u64;
        for (index, record) in batch.records().iter().enumerate() {
            self.bytes += u64::from(record.cap_len);
            let found = self.matches.of(index);
            self.unwanted += u64::from(found.is_empty());
            for filter in found {
                match self.uses[*filter as usize] {
                    Use::Nothing => {}
                    Use::History(view) => self.views[view].wanted.push(index),
                    Use::Reader(at) => {
                        let reader = &mut self.readers[at];
                        reader.wanted.push(index);
                        self.views[reader.view].wanted.push(index);
                    }
                }
            }
        }
        let now = clock::monotonic_ns();
        for at in 0..self.views.len() {
            self.hand_out(at, source, now);
        }
    }

    /// Stores for a view and its readers, in parts if a lossless one never has room for all of the batch.
    fn hand_out(&mut self, at: usize, source: &dyn Source, now: u64) {
        let batch = &source.batch();
        let (mut from, mut len, mut lagging) = (0, batch.len(), Vec::new());
        while from < batch.len() {
            let part = from..from + len.min(batch.len() - from);
            let fit = self.wait_for_room(at, source, &part);
            let fits = fit == Fit::Now && self.rescue(at, batch, &part, &mut lagging);
            if !fits && part.len() > 1 {
                len = part.len() / 2;
                continue;
            }
            let View { writer, wanted, .. } = &mut self.views[at];
            writer.store(batch, &within(wanted, &part));
            for reader in self.readers.iter().filter(|reader| reader.view == at && reader.is_present) {
                // Only one that just left is unknown.
                let _ = writer.index(reader.id, &within(&reader.wanted, &part), 0);
            }
            writer.publish(now);
            from = part.end;
        }
        for number in lagging {
            self.skip(number);
        }
    }

    /// Waits for lossless readers; at the end only for a while. Orders are obeyed meanwhile: such a reader may want to leave, and who comes gets packets
    /// from the next batch on.
    fn wait_for_room(&mut self, at: usize, source: &dyn Source, part: &Range<usize>) -> Fit {
        let fit = self.wait_for_readers(at, source, part);
        self.blocked = None;
        fit
    }

    fn wait_for_readers(&mut self, at: usize, source: &dyn Source, part: &Range<usize>) -> Fit {
        let batch = &source.batch();
        loop {
            let View { writer, wanted, .. } = &mut self.views[at];
            let id = match writer.make_room(batch, &within(wanted, part)) {
                Ok(Room::Ready) => return Fit::Now,
                Ok(Room::Blocked(id)) => id,
                Err(_) => return Fit::Never,
            };
            let is_it = |reader: &&mut Attached| reader.view == at && reader.id == id;
            let reader = self.readers.iter_mut().find(is_it);
            if let Some(number) = reader.as_ref().map(|reader| reader.number)
                && self.blocked.is_none_or(|(blocked, _)| blocked != number)
            {
                self.blocked = Some((number, Instant::now()));
            }
            // It may be one of the past, or wait itself, in the order of time, for another whose past has not come yet.
            let is_on = self.go_on_with_the_past();
            let writer = &mut self.views[at].writer;
            let asleep = if is_on { Ok(()) } else { writer.wait_for(id, ROOM_WAIT) };
            let departed = writer.reap();
            self.depart(at, departed);
            if asleep.is_err() || self.obey(source) && self.is_out_of_patience() {
                return Fit::Now;
            }
            if self.tended.elapsed() >= TEND_EVERY {
                self.tend_writers();
            }
        }
    }

    /// In the midst of a batch: offers readers some more of the past, and none comes to the present. Whether there was any.
    fn go_on_with_the_past(&mut self) -> bool {
        let looks = self.looks();
        let mut is_on = false;
        for Attached { id, view, past, .. } in &mut self.readers {
            let (Some(one), writer) = (past, &mut self.views[*view].writer) else { continue };
            let left = writer.past(*id).ok();
            let _ = writer.replay(*id, looks, |held| one.verdict(held));
            writer.publish(clock::monotonic_ns());
            is_on |= writer.past(*id).ok() != left;
        }
        is_on
    }

    /// Whether it has been the end for so long that readers had the time to read what is left.
    fn is_out_of_patience(&mut self) -> bool {
        Instant::now() >= *self.patience_ends.get_or_insert_with(|| Instant::now() + LINGER)
    }

    /// What is to be done now and then.
    fn tend(&mut self, interfaces: Vec<InterfaceAccount>) {
        self.interfaces = interfaces;
        self.tend_writers();
        self.close_idle_views();
    }

    /// What happened to an interface.
    fn tell(&self, event: &Event) {
        let of = if event.interface.is_empty() { String::new() } else { format!("{}: ", event.interface) };
        // Nobody listens any more at the end.
        let _ = self.log.send(format!("{of}{}", event.text));
    }

    /// Of that what can be done in the midst of a batch too.
    fn tend_writers(&mut self) {
        self.tended = Instant::now();
        let counts = counts(&self.interfaces, self.unwanted);
        let now = clock::monotonic_ns();
        for at in 0..self.views.len() {
            let writer = &mut self.views[at].writer;
            writer.set_source(&counts);
            writer.tick(now);
            let departed = writer.reap();
            self.depart(at, departed);
        }
    }

    /// Buffers that nobody reads and that keep no history are given back.
    fn close_idle_views(&mut self) {
        for at in (0..self.views.len()).rev() {
            let is_read = self.readers.iter().any(|reader| reader.view == at);
            if is_read || self.views[at].history.is_some() {
                continue;
            }
            let View { writer, .. } = self.views.swap_remove(at);
            self.closed.0 += writer.stored();
            self.closed.1 += writer.not_stored();
            let moved = self.views.len();
            self.readers.iter_mut().filter(|reader| reader.view == moved).for_each(|reader| reader.view = at);
            self.know_uses();
        }
    }

    /// Says that nothing more comes, lets readers read what is left, and gives the last report.
    fn end(&mut self, source: &dyn Source, interfaces: Vec<InterfaceAccount>, is_stopping: bool) -> Report {
        self.interfaces = interfaces;
        let counts = counts(&self.interfaces, self.unwanted);
        let mut is_stopping = is_stopping;
        // What is stored belongs to readers of the past as well; but the others are not to wait for long to hear of the end.
        let begun = Instant::now();
        while self.readers.iter().any(|reader| reader.past.is_some()) {
            is_stopping |= self.obey(source);
            if begun.elapsed() >= LINGER {
                let numbers: Vec<u64> = self.readers.iter().map(|reader| reader.number).collect();
                numbers.into_iter().for_each(|number| self.skip(number));
            }
            if self.catch_up() > Duration::ZERO {
                self.tend_writers();
                std::thread::sleep(FULL_NAP);
            }
        }
        for view in &mut self.views {
            view.writer.set_source(&counts);
            view.writer.end();
        }
        while !(is_stopping && (self.readers.is_empty() || self.is_out_of_patience())) {
            is_stopping |= self.obey(source);
            for at in 0..self.views.len() {
                let departed = self.views[at].writer.reap();
                self.depart(at, departed);
            }
            std::thread::sleep(ROOM_WAIT);
        }
        self.report()
    }

    fn report(&mut self) -> Report {
        let mut readers = Vec::new();
        for reader in &self.readers {
            let writer = &mut self.views[reader.view].writer;
            readers.push(ReaderReport {
                number: reader.number,
                counts: writer.account(reader.id).unwrap_or_default().into(),
                standing: writer.standing(reader.id).unwrap_or(Standing::Lossy),
                wakes: writer.wakes(reader.id).unwrap_or(0),
                past: writer.past(reader.id).unwrap_or(0),
            });
        }
        Report {
            packets: self.packets,
            bytes: self.bytes,
            unwanted: self.unwanted,
            stored: self.closed.0 + self.views.iter().map(|view| view.writer.stored()).sum::<u64>(),
            not_stored: self.closed.1 + self.views.iter().map(|view| view.writer.not_stored()).sum::<u64>(),
            cpu_ns: usage::thread_time().as_nanos() as u64,
            interfaces: self.interfaces.clone(),
            blocked: self.blocked.map(|(number, since)| (number, since.elapsed())),
            readers,
            restricted: match &self.restricted {
                Restricted::To(program) => Some(program.insns().len()),
                Restricted::Not | Restricted::Never => None,
            },
            ended: self.ended.clone(),
        }
    }
}

/// Those of a part of the batch, which mostly is all of it.
fn within<'a>(wanted: &'a Selection, part: &Range<usize>) -> Cow<'a, Selection> {
    let is_all = part.start == 0 && wanted.last().is_none_or(|last| last < part.end);
    if is_all {
        return Cow::Borrowed(wanted);
    }
    let mut within = wanted.clone();
    within.retain(|index| part.contains(&index));
    Cow::Owned(within)
}

/// What the source counted, for readers to see.
fn counts(accounts: &[InterfaceAccount], unwanted: u64) -> SourceCounts {
    let mut counts = SourceCounts::new();
    let sum = |of: &dyn Fn(&InterfaceAccount) -> Option<u64>| accounts.iter().map(of).sum::<Option<u64>>();
    let losses = |account: &InterfaceAccount, place: Place| {
        let told = account.losses.iter().filter(|loss| loss.place == place && !loss.is_doubtful());
        told.map(|loss| loss.count.known()).sum()
    };
    counts.set(Counted::Received, sum(&|account| account.ring.map(|ring| ring.received)));
    counts.set(Counted::Nic, sum(&|account| losses(account, Place::Nic)));
    counts.set(Counted::Driver, sum(&|account| losses(account, Place::Driver)));
    let dropped = |is_xdp: bool| {
        sum(&|account| match account.xdp.is_some() == is_xdp {
            true => account.ring.map(|ring| ring.dropped),
            false => Some(0),
        })
    };
    counts.set(Counted::KernelRing, dropped(false));
    counts.set(Counted::Xdp, dropped(true));
    counts.set(Counted::KernelFiltered, sum(&|account| account.kernel_filtered.known()));
    counts.set(Counted::File, sum(&|account| losses(account, Place::File)));
    counts.set(Counted::Unwanted, Some(unwanted));
    counts
}

/// A filter of the set.
pub(crate) fn compile(text: &str, options: &Options) -> Result<Filter, String> {
    Filter::compile_with(text, options, &ready).map_err(|error| error.render(text))
}

/// A program as native code.
#[cfg(feature = "jit")]
pub(crate) fn ready(program: Program) -> Arc<dyn Accept> {
    tapline_jit::Residuals::of_process().ready(program)
}

/// A program in the interpreter.
#[cfg(not(feature = "jit"))]
pub(crate) fn ready(program: Program) -> Arc<dyn Accept> {
    Arc::new(program)
}

/// One filter, asked of one packet at a time: of those that a new reader finds in the buffer.
struct One {
    set: FilterSet,
    matches: Matches,
    only: Selection,
}

impl One {
    fn new(filter: Arc<Filter>) -> One {
        let (mut set, mut only) = (FilterSet::new(Mode::All), Selection::none());
        set.insert(filter, 0);
        only.select_all(1);
        One { set, matches: Matches::new(), only }
    }

    fn verdict(&mut self, held: &Held<'_>) -> Option<u32> {
        let record = Record { cap_len: held.data.len() as u32, meta: held.meta, ..Record::default() };
        self.set.classify(&Batch::new(held.data, &[record]), &self.only, &mut self.matches);
        (!self.matches.of(0).is_empty()).then_some(0)
    }
}

/// Counts what a reader lost that went on to the present without all of the past, before it leaves.
fn count_the_rest(
    writer: &mut tapline_ring::Writer,
    id: ReaderId,
    one: &mut One,
    number: u64,
    log: &Sender<String>,
) {
    let replayed = writer.replay(id, LAST_LOOKS, |held| one.verdict(held));
    // Its own account has it too.
    writer.publish(clock::monotonic_ns());
    if let Ok(Replay::More) = replayed {
        let left = writer.past(id).unwrap_or_default();
        let _ = log.send(format!("reader {number} leaves before all that it lost is counted: {left} packets of the past were not looked at"));
    }
}

/// The moment so many milliseconds ago.
pub(crate) fn ago(ms: u64) -> Timestamp {
    let ns = i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000_000);
    Timestamp::from_nanos(clock::realtime_ns().saturating_sub(ns))
}
