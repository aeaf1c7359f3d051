//! A source, its filters and its views, in a thread.
//!
//! ```text
//! orders --> batch --> packets that the capture's filters accept, in one pass; then the filters of users, paid by each
//!                  --> for each view: wanted packets, stored once; then, for each reader, 16 bytes a packet
//!                  --> published; sleeping readers woken
//!        --> readers of the past: some more of the buffer
//! ```
//!
//! | module | owns |
//! |---|---|
//! | `order` | orders of the control thread, as types |
//! | `readers` | `Readers`: readers that come and go, their buffers, the sets of their filters |
//! | `passing` | `Passed`: a batch on its way into the buffers |
//! | `part` | parts of a batch, for which room is found |
//! | `past` | `Past`: readers that began in the past |
//! | `pause` | `PauseState`: running or paused |
//! | `kernel` | `KernelFilter`: the union of all filters, in the kernel |
//! | `waiting` | `Waiting`: waits for packets, and for lossless readers |
//! | `budgets` | `Budgets`: the users' purses, and the clock that refills them |
//! | `report` | counters, for the control thread and for readers |
//! | `filter` | filters as the sets take them |
//! | `verdicts` | `Verdicts`: the number of each packet in a reader's index |

mod budgets;
mod filter;
mod groups;
mod kernel;
mod order;
mod part;
mod passing;
mod past;
mod pause;
mod readers;
mod report;
mod verdicts;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use tapline_bpf::PacketFilter;
use tapline_filter::Options;
use tapline_packet::LinkType;
use tapline_ring::{ReaderParts, SourceCounts};
use tapline_source::{Advance, Event, InterfaceAccount, Source, UncapturedCounts};
use tapline_sys::{clock, usage};
use tapline_tap_client::protocol::{ControlAction, INTERFACES_MAX, ReaderCounts};

use crate::budget::Payer;
use crate::interfaces::InterfaceNumbers;
use crate::union::FilterNeed;
use crate::view::{Rights, View};
use budgets::Budgets;
pub(crate) use filter::{compile, ready};
use kernel::KernelFilter;
pub(crate) use order::{Joining, Order, Refusal, Wish};
use passing::Passed;
use past::{FULL_NAP, Past, count_lost_past};
use pause::PauseState;
pub(crate) use readers::Eviction;
use readers::{Reader, Readers};
use report::source_counts;
pub(crate) use report::{ReaderReport, Report, ViewReport};
pub(crate) use verdicts::VerdictRule;
use waiting::{LINGER, ROOM_WAIT, WAIT, Waiting};

/// The most batches for which orders wait while packets are there.
const BATCHES_BEFORE_ORDERS: u32 = 64;
/// The interval at which dead readers are looked for, credits of time are checked, and counters are shown.
const HOUSEKEEPING: Duration = Duration::from_millis(100);
/// The price of waking a reader, for its user: one system call of the writer, 2 to 4 us on the machines that were
/// measured.
const WAKE: Duration = Duration::from_micros(3);

/// Packets that are stored even without readers.
#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) text: String,
    /// For the kernel.
    pub(crate) asked: FilterNeed,
}

/// The settings of a worker.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) link_type: LinkType,
    pub(crate) buffer_mib: u32,
    pub(crate) worker: u32,
    /// Packets that are stored even without readers.
    pub(crate) history: Option<History>,
    /// A packet goes to the first reader that wants it, by precedence, and to no other.
    pub(crate) goes_to_first: bool,
    /// The source lends unwanted packets too, so that they are counted.
    pub(crate) counts_all: bool,
    /// Nothing is read as long as there are no readers: a file would be over.
    pub(crate) waits_for_readers: bool,
    pub(crate) options: Options,
    /// The clock that fills purses, in nanoseconds; none for the time that the worker has.
    pub(crate) clock: Option<fn() -> u64>,
}

/// A source and its readers.
pub(crate) struct Worker {
    source: Box<dyn Source>,
    dispatcher: Dispatcher,
}

/// The channels to the control thread.
pub(crate) struct ControlLine {
    pub(crate) orders: Receiver<Order>,
    /// Lines for a person to read.
    pub(crate) log: Sender<String>,
    pub(crate) evictions: Sender<Eviction>,
    pub(crate) stop: Arc<AtomicBool>,
}

/// Worker state apart from the source, so that orders are obeyed also while a batch is borrowed and a lossless reader
/// has no room for it.
struct Dispatcher {
    setting: Setting,
    line: ControlLine,
    budgets: Budgets,
    readers: Readers,
    passed: Passed,
    numbers: InterfaceNumbers,
    kernel: KernelFilter,
    waiting: Waiting,
    state: PauseState,
    /// The source's account when it was last asked.
    interfaces: Vec<InterfaceAccount>,
    uncaptured: UncapturedCounts,
    housekept: Instant,
    ended: Option<String>,
}

/// The state that a worker's loop keeps from one round to the next.
#[derive(Default)]
struct Rounds {
    is_stopping: bool,
    max_latency: Duration,
    /// Batches since orders were last obeyed.
    batches: u32,
}

impl Worker {
    /// A worker of a source, with the numbers of its interfaces. `filter` is for packets of the interfaces on which the
    /// source does not run it.
    pub(crate) fn new(
        setting: Setting,
        (source, numbers): (Box<dyn Source>, InterfaceNumbers),
        filter: Option<Arc<dyn PacketFilter>>,
        line: ControlLine,
    ) -> Worker {
        let dispatcher = Dispatcher {
            line,
            budgets: Budgets::new(setting.clock),
            readers: Readers::new(),
            passed: Passed::new(filter),
            numbers,
            kernel: KernelFilter::new(setting.counts_all),
            waiting: Waiting::default(),
            state: PauseState::Running { since: None },
            interfaces: Vec::new(),
            uncaptured: UncapturedCounts::default(),
            housekept: Instant::now(),
            ended: None,
            setting,
        };
        Worker { source, dispatcher }
    }

    /// Works until it is stopped. Packets captured until then are still passed on.
    pub(crate) fn run(mut self) -> Report {
        let Worker { source, dispatcher } = &mut self;
        dispatcher.begin(&mut **source);
        let mut rounds = Rounds::default();
        while dispatcher.round(&mut rounds, &mut **source) {
            if dispatcher.housekept.elapsed() >= HOUSEKEEPING {
                dispatcher.housekeep(&mut **source);
            }
        }
        self.dispatcher.learn_account(&mut *self.source);
        self.dispatcher.tell_events(&mut *self.source);
        self.dispatcher.end(&*self.source, rounds.is_stopping)
    }
}

impl Dispatcher {
    fn begin(&mut self, source: &mut dyn Source) {
        self.learn_account(source);
        if let Err(error) = self.begin_history() {
            self.tell(format!("nothing is stored until a reader attaches: {error}"));
        }
        // From the first packet on: else those of the first tenth of a second would be taken for nothing.
        self.narrow_kernel_filter(source);
    }

    /// Obeys orders when it is time, then asks the source once. Returns `false` at the end.
    fn round(&mut self, rounds: &mut Rounds, source: &mut dyn Source) -> bool {
        // Packets that wait already are of the time before an order: a reader that leaves gets them, one that comes
        // does not.
        let is_time = rounds.batches == 0 || rounds.batches >= BATCHES_BEFORE_ORDERS;
        rounds.batches = if is_time { 0 } else { rounds.batches };
        if is_time && self.obey(source) && !rounds.is_stopping {
            rounds.is_stopping = true;
            if let Err(error) = source.stop() {
                self.ended = Some(error.to_string());
                return false;
            }
        }
        match self.advance(rounds, source) {
            Ok(Advance::Batch) => {
                rounds.batches += 1;
                self.pass(source);
                true
            }
            Ok(Advance::Idle) => {
                rounds.batches = 0;
                self.readers.fire_expired_wakeups();
                true
            }
            Ok(Advance::End) => {
                self.ended.get_or_insert_default();
                false
            }
            Err(error) => {
                self.ended = Some(error.to_string());
                false
            }
        }
    }

    /// Offers readers of the past some more, then waits for a batch. A file that has no readers yet is not read.
    fn advance(
        &mut self,
        rounds: &mut Rounds,
        source: &mut dyn Source,
    ) -> Result<Advance, tapline_source::Error> {
        self.budgets.fill();
        let wait = self.past().catch_up().min(self.poll_timeout());
        let is_held_up = self.readers.list.is_empty() || self.state == PauseState::Paused;
        if self.setting.waits_for_readers && is_held_up && !rounds.is_stopping {
            std::thread::sleep(WAIT);
            return Ok(Advance::Idle);
        }
        if rounds.max_latency != self.readers.max_latency {
            rounds.max_latency = self.readers.max_latency;
            source.set_max_latency(rounds.max_latency);
        }
        self.budgets.sleeping(|| source.advance(wait))
    }

    /// Carries out the orders of the control thread. Returns whether the worker is to end.
    fn obey(&mut self, source: &dyn Source) -> bool {
        loop {
            match self.line.orders.try_recv() {
                Ok(Order::Attach(joining, reply)) => {
                    let payer = joining.payer;
                    self.charge_to(payer, |own| drop(reply.send(own.attach(joining, source))));
                }
                Ok(Order::Filter(number, wish, reply)) => {
                    let payer = self.readers.payer_of(number);
                    self.charge_to(payer, |own| drop(reply.send(own.exchange_filter(number, wish, source))));
                }
                Ok(Order::Detach(number, reply)) => {
                    let payer = self.readers.payer_of(number);
                    self.charge_to(payer, |own| {
                        let _ = reply.send(own.detach(number));
                    });
                }
                Ok(Order::Control(action, reply)) => drop(reply.send(self.control(action))),
                Ok(Order::Report(reply)) => drop(reply.send(self.report())),
                Ok(Order::Stop) | Err(TryRecvError::Disconnected) => return true,
                Err(TryRecvError::Empty) => return self.line.stop.load(Ordering::Relaxed),
            }
        }
    }

    /// Pauses, or goes on.
    fn control(&mut self, action: ControlAction) -> Result<(), String> {
        if self.ended.is_some() {
            return Err("the capture has ended".to_owned());
        }
        self.state = self.state.after(action, self.setting.waits_for_readers)?;
        Ok(())
    }

    /// Carries out an order at the cost of a user.
    fn charge_to(&mut self, payer: Option<Payer>, order: impl FnOnce(&mut Dispatcher)) {
        let Some(payer) = payer else { return order(self) };
        let begun = self.budgets.begin_order();
        order(self);
        self.budgets.end_order(payer, begun);
    }

    fn attach(&mut self, mut joining: Box<Joining>, source: &dyn Source) -> Result<ReaderParts, Refusal> {
        if self.ended.is_some() {
            return Err("the capture has ended".into());
        }
        self.admit(joining.payer)?;
        let known = self.readers.views.iter().position(|view| view.rights == joining.rights);
        let view = match (known, joining.view.take()) {
            (Some(at), _) => at,
            (None, Some(view)) => self.add_view(view)?,
            (None, None) => return Err(Refusal::NoBuffer(joining)),
        };
        self.readers.admit_leased(&joining, view, self.setting.buffer_mib)?;
        // Should the attachment come to nothing.
        self.readers.note_loosened();
        // From here on all packets that it wants come.
        self.require(Some(&joining.wish.asked), source)?;
        let counts = self.counts(view);
        // So that the reader knows what was lost before it came.
        self.readers.views[view].writer.set_source(&counts);
        Ok(self.readers.join(*joining, view)?)
    }

    /// Refuses a user without processor time left.
    fn admit(&self, payer: Option<Payer>) -> Result<(), String> {
        let Some(Payer { uid, .. }) = payer else { return Ok(()) };
        // Readers that are being sent away are asked for nothing more, nor would be those that join them.
        if !self.readers.is_evicting(uid) && self.budgets.has_time(uid) {
            return Ok(());
        }
        Err(format!(
            "readers of user {uid} have spent the processor time that they may take (user_time): ask again in {:.1} s, with cheaper filters or for fewer readers",
            self.budgets.wait(uid).as_secs_f64()
        ))
    }

    /// Stores history before any reader comes, for readers that may see all.
    fn begin_history(&mut self) -> Result<(), String> {
        let Setting { link_type, buffer_mib, worker, .. } = self.setting;
        let snap_len = self.setting.options.snap_len;
        let full = Rights { filter: String::new(), snap_len };
        if self.setting.history.is_some() {
            let view = View::new(full, link_type, snap_len, buffer_mib, worker);
            self.add_view(view.map_err(|error| error.to_string())?)?;
        }
        Ok(())
    }

    /// Takes a buffer for readers of other rights than there are, with the filters of its history and of the rules.
    fn add_view(&mut self, view: View) -> Result<usize, String> {
        let Setting { history, options, .. } = &self.setting;
        let rights = &view.rights;
        let history = match history.as_ref().map(|history| rights.narrowed(&history.text)) {
            // Packets that the rules forbid altogether are not part of their history.
            Some(text)
                if tapline_filter::compile(&text, options)
                    .is_err_and(|error| tapline_filter::is_never_true(&error)) =>
            {
                None
            }
            Some(text) => Some(Arc::new(compile(&text, options)?)),
            None => None,
        };
        let gate = match rights.filter.trim() {
            "" => None,
            forced => Some(Arc::new(compile(forced, options)?)),
        };
        Ok(self.readers.add_view(view, history, gate))
    }

    fn exchange_filter(&mut self, number: u64, wish: Wish, source: &dyn Source) -> Result<(), String> {
        self.admit(self.readers.payer_of(number))?;
        self.require(Some(&wish.asked), source)?;
        self.readers.exchange_filter(number, wish);
        Ok(())
    }

    fn detach(&mut self, number: u64) -> ReaderCounts {
        let Some(at) = self.readers.position(number) else { return self.readers.take_left(number) };
        let mut reader = self.readers.remove(at);
        let writer = &mut self.readers.views[reader.view].writer;
        let unlooked = count_lost_past(&mut reader, writer, &mut self.budgets.packets);
        let account = writer.detach(reader.id).unwrap_or_default();
        if let Some(left) = unlooked {
            self.tell(format!(
                "reader {number} leaves before all that it lost is counted: {left} packets of the past were not looked at"
            ));
        }
        account.into()
    }

    /// The readers of the past.
    fn past(&mut self) -> Past<'_> {
        Past { readers: &mut self.readers, purses: &mut self.budgets.packets }
    }

    /// Has the kernel let through what all readers, the history, and one reader more want.
    fn require(&mut self, more: Option<&FilterNeed>, source: &dyn Source) -> Result<(), String> {
        let readers = self.readers.list.iter().map(|reader| &reader.asked);
        let history = self.setting.history.iter().map(|history| &history.asked);
        self.kernel.require(history.chain(readers).chain(more), source)
    }

    /// Has the kernel hold back what no reader wants any longer. Not at once: readers that come often cost no more than
    /// that.
    fn narrow_kernel_filter(&mut self, source: &dyn Source) {
        if self.readers.take_loosened() {
            // Packets that the source cannot hold back are lent.
            let _ = self.require(None, source);
        }
    }

    /// Has the control thread send away the readers whose users have spent all.
    fn evict_overspent(&mut self) {
        for eviction in self.readers.take_evictions() {
            // At the end no reader is sent away any more.
            let _ = self.line.evictions.send(eviction);
        }
    }

    fn learn_account(&mut self, source: &mut dyn Source) {
        (self.interfaces, self.uncaptured) = (source.account(), source.uncaptured());
    }

    /// Takes note of interfaces that appeared.
    fn learn_interfaces(&mut self, source: &dyn Source) {
        if self.numbers.learn(source.interfaces()) {
            self.tell(format!(
                "{INTERFACES_MAX} interfaces, and no number is left: packets of all that appear from now on are under one interface without a name; restart the daemon to name them"
            ));
        }
    }

    /// Sends the control thread a line for the log.
    fn tell(&self, line: String) {
        // At the end the control thread has gone.
        let _ = self.line.log.send(line);
    }

    /// The work of every tenth of a second.
    fn housekeep(&mut self, source: &mut dyn Source) {
        self.learn_account(source);
        self.learn_interfaces(source);
        self.housekeep_writers();
        self.readers.close_idle_views();
        self.narrow_kernel_filter(source);
        self.tell_events(source);
    }

    fn tell_events(&self, source: &mut dyn Source) {
        for Event { interface, text, .. } in source.events() {
            self.tell(if interface.is_empty() { text } else { format!("{interface}: {text}") });
        }
    }

    /// The part of that which can be done in the midst of a batch too.
    fn housekeep_writers(&mut self) {
        self.housekept = Instant::now();
        let now = clock::monotonic_ns();
        for at in 0..self.readers.views.len() {
            let counts = self.counts(at);
            let writer = &mut self.readers.views[at].writer;
            writer.set_source(&counts);
            writer.tick(now);
            self.readers.reap(at);
        }
        let Readers { list, views, .. } = &mut self.readers;
        for Reader { id, view, payer, wakes_paid, .. } in list {
            let Some(payer) = *payer else { continue };
            let wakes = views[*view].writer.wake_count(*id).unwrap_or(*wakes_paid);
            let since = u32::try_from(wakes.saturating_sub(*wakes_paid)).unwrap_or(u32::MAX);
            // A debt shows when the user's filters are asked the next time.
            self.budgets.packets.spend(payer, WAKE * since);
            *wakes_paid = wakes;
        }
    }

    /// Ends the buffers, lets readers read the rest, and returns the last report.
    fn end(&mut self, source: &dyn Source, is_stopping: bool) -> Report {
        let mut is_stopping = is_stopping;
        self.finish_past(source, &mut is_stopping);
        for at in 0..self.readers.views.len() {
            let counts = self.counts(at);
            let writer = &mut self.readers.views[at].writer;
            writer.set_source(&counts);
            writer.end();
        }
        while !(is_stopping && (self.readers.list.is_empty() || self.waiting.has_lingered(Instant::now()))) {
            is_stopping |= self.obey(source);
            (0..self.readers.views.len()).for_each(|at| self.readers.reap(at));
            std::thread::sleep(ROOM_WAIT);
        }
        self.report()
    }

    /// Offers stored packets to readers of the past, for a while: the other readers are not to wait long for the end.
    fn finish_past(&mut self, source: &dyn Source, is_stopping: &mut bool) {
        let begun = Instant::now();
        while self.readers.list.iter().any(|reader| reader.past.is_some()) {
            *is_stopping |= self.obey(source);
            if begun.elapsed() >= LINGER {
                let numbers: Vec<u64> = self.readers.list.iter().map(|reader| reader.number).collect();
                numbers.into_iter().for_each(|number| self.past().skip(number));
            }
            self.budgets.fill();
            if self.past().catch_up() > Duration::ZERO {
                self.housekeep_writers();
                self.budgets.sleeping(|| std::thread::sleep(FULL_NAP));
            }
        }
    }

    /// The source's counters, for readers of a buffer to see.
    fn counts(&self, view: usize) -> SourceCounts {
        let is_restricted = self.readers.views[view].is_restricted;
        let unwanted = Some(self.passed.unwanted).filter(|_| !is_restricted);
        source_counts(&self.interfaces, self.uncaptured, unwanted)
    }

    fn report(&mut self) -> Report {
        let (stored, not_stored) = self.readers.stored();
        Report {
            packets: self.passed.packets,
            bytes: self.passed.bytes,
            unwanted: self.passed.unwanted,
            paused: self.passed.paused,
            is_paused: self.state == PauseState::Paused,
            fragments_apart: self.readers.groups.fragments_apart,
            stored,
            not_stored,
            cpu_ns: usage::thread_time().as_nanos() as u64,
            interfaces: self.interfaces.clone(),
            uncaptured: self.uncaptured,
            readers: self.readers.reports(),
            views: self.readers.view_reports(),
            restricted: self.kernel.instructions(),
            blocked: self.waiting.blocked(),
            ended: self.ended.clone(),
        }
    }
}
