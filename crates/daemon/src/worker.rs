//! A source, its filters and its views, in a thread.
//!
//! ```text
//! orders --> batch --> which filters accept which packets, in one pass; then the filters of users, paid by each
//!                  --> for each view: what its readers want, stored once; then, for each reader, 16 bytes a packet
//!                  --> published; sleepers woken
//!        --> readers of the past: some more of what the buffer holds
//! ```
//!
//! | module | job |
//! |---|---|
//! | `readers` | readers that come and go, and buffers for their rights |
//! | `passing` | a batch on its way: who wants which packets, and how they get them |
//! | `past` | readers that began in the past |
//! | `kernel` | what the source is told that is wanted |
//! | `waiting` | waiting for packets, and for lossless readers |

mod kernel;
mod passing;
mod past;
mod readers;
mod waiting;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError};
use std::time::{Duration, Instant};

use tapline_capture::{Advance, Event, InterfaceAccount, Place, Source};
use tapline_filter::Options;
use tapline_filterset::{Accept, Filter, FilterId, FilterSet, Matches, Mode};
use tapline_ir::CompiledFilter;
use tapline_packet::{LinkType, Selection, Timestamp};
use tapline_packet::{Meta, Packet};
use tapline_ring::{Place as Counted, ReaderId, ReaderParts, ReaderSpec, SourceCounts, Standing, Start};
use tapline_sys::{clock, usage};
use tapline_tap::protocol::ReaderCounts;

use crate::budget::{Payer, Purses, TIME_OF_ALL_MS, spent};
use crate::section::Section;
use crate::union::Asked;
use crate::view::{Rights, View};
use kernel::Restricted;
use past::One;
pub(crate) use readers::Over;

/// The longest sleep without packets. Orders end it sooner, where the source can be woken.
const WAIT: Duration = Duration::from_millis(50);
/// How many batches at most orders wait while packets are there.
const BATCHES_BEFORE_ORDERS: u32 = 64;
/// How long a reader of the past whose index is full has to read some of it, before it is looked at again.
const FULL_NAP: Duration = Duration::from_millis(4);
/// How often readers that are gone are looked for, credits of time are looked at, and counters are shown.
const TEND_EVERY: Duration = Duration::from_millis(100);
/// One sleep of the writer for a lossless reader.
const ROOM_WAIT: Duration = Duration::from_millis(20);
/// Readers of a user may take at once what processor time they may take in this time.
const PURSE: Duration = Duration::from_millis(125);
/// Likewise for coming, leaving and other filters, for which each user may take 200 ms a second.
const ORDER_PURSE: Duration = Duration::from_millis(2500);
const ORDER_TIME_MS: u32 = 200;
/// The same for all users together. With what their filters may take it leaves a third of the thread to receiving.
const ORDER_TIME_OF_ALL_MS: u32 = 150;
/// What a user pays for a reader that is woken: one system call of the writer, 2 to 4 us on the machines that were
/// measured.
const WAKE: Duration = Duration::from_micros(3);
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
    /// The user that pays for what it costs; none for root and the owner of the daemon.
    pub(crate) payer: Option<Payer>,
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
    /// Of each buffer.
    pub(crate) views: Vec<ViewReport>,
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

/// What a buffer of a worker got so far.
#[derive(Clone, Debug)]
pub(crate) struct ViewReport {
    pub(crate) rights: Rights,
    pub(crate) stored: u64,
    pub(crate) bytes: u64,
    pub(crate) not_stored: u64,
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
    /// What fills purses, in nanoseconds; none for the time that the worker has: its processor time, and what it waits for
    /// packets. Where others keep the processor from it, purses fill the slower.
    pub(crate) clock: Option<fn() -> u64>,
}

/// Somebody who wants packets.
struct Attached {
    number: u64,
    id: ReaderId,
    /// The user that pays for it.
    payer: Option<Payer>,
    /// Its filter in the set of the capture or of its user: what it wants is stored from the first batch on.
    filter: FilterId,
    /// It is offered what comes. One that reads the past finds that there, behind what was stored before.
    is_present: bool,
    /// Its filter for what was stored before it came, until it has that or it is counted.
    past: Option<Box<One>>,
    asked: Asked,
    view: usize,
    wanted: Selection,
    patience: Duration,
    /// How often it had been woken when its user paid for that last.
    wakes_paid: u64,
}

/// What a filter of the set is for.
#[derive(Clone, Copy, Debug)]
enum Use {
    Nothing,
    Reader(usize),
    History(usize),
    /// What the rules let readers of a buffer see.
    Gate(usize),
}

/// The time that a worker has.
#[derive(Clone, Copy, Debug)]
struct Time {
    clock: Option<fn() -> u64>,
    /// Up to when it last began or ended to wait for packets.
    had: Duration,
    /// Processor time of the thread then.
    worked_from: Duration,
}

impl Time {
    /// What it had by now, in nanoseconds.
    fn now_ns(&self) -> u64 {
        let now = || self.had + usage::thread_time().saturating_sub(self.worked_from);
        self.clock.map_or_else(|| now().as_nanos() as u64, |clock| clock())
    }

    /// It begins to wait for packets.
    fn pause(&mut self) {
        self.had += usage::thread_time().saturating_sub(self.worked_from);
    }

    /// It has waited.
    fn go_on(&mut self, waited: Duration) {
        self.had += waited;
        self.worked_from = usage::thread_time();
    }
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
    /// Who is to be sent away.
    over: Sender<Over>,
    stop: Arc<AtomicBool>,
    time: Time,
    /// Filters of the rules, and of root and the owner of the daemon.
    set: FilterSet,
    matches: Matches,
    all: Selection,
    views: Vec<View>,
    readers: Vec<Attached>,
    /// Filters of other users.
    sections: Vec<Section>,
    /// What these may spend on packets, and on orders.
    purses: Purses,
    order_purses: Purses,
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
        (log, over): (Sender<String>, Sender<Over>),
        stop: Arc<AtomicBool>,
    ) -> Worker {
        let time = Time { clock: setting.clock, had: Duration::ZERO, worked_from: usage::thread_time() };
        let restricted = if setting.counts_all { Restricted::Never } else { Restricted::Not };
        let desk = Desk {
            setting,
            orders,
            log,
            over,
            stop,
            time,
            set: FilterSet::new(Mode::All),
            matches: Matches::new(),
            all: Selection::none(),
            views: Vec::new(),
            readers: Vec::new(),
            sections: Vec::new(),
            purses: Purses::new(PURSE, TIME_OF_ALL_MS, time.now_ns()),
            order_purses: Purses::new(ORDER_PURSE, ORDER_TIME_OF_ALL_MS, time.now_ns()),
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
                desk.time.pause();
                let (before, advanced) = (Instant::now(), source.advance(wait));
                desk.time.go_on(before.elapsed());
                advanced
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
                Ok(Order::Attach(joining, reply)) => {
                    let payer = joining.payer;
                    self.at_cost_of(payer, |desk| drop(reply.send(desk.attach(joining, source))));
                }
                Ok(Order::Filter(number, wish, reply)) => {
                    let payer = self.payer_of(number);
                    self.at_cost_of(payer, |desk| drop(reply.send(desk.exchange(number, wish, source))));
                }
                Ok(Order::Detach(number, reply)) => {
                    let payer = self.payer_of(number);
                    self.at_cost_of(payer, |desk| {
                        let _ = reply.send(desk.detach(number));
                    });
                }
                Ok(Order::Report(reply)) => drop(reply.send(self.report())),
                Ok(Order::Stop) | Err(TryRecvError::Disconnected) => return true,
                Err(TryRecvError::Empty) => return self.stop.load(Ordering::Relaxed),
            }
        }
    }

    /// Obeys an order of a user.
    fn at_cost_of(&mut self, payer: Option<Payer>, order: impl FnOnce(&mut Desk)) {
        let Some(payer) = payer else { return order(self) };
        self.purses.fill(self.time.now_ns());
        self.order_purses.fill(self.time.now_ns());
        let ((), cost) = spent(|| order(self));
        self.order_purses.spend(Payer { time_ms: ORDER_TIME_MS, ..payer }, cost);
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
        let now = clock::monotonic_ns();
        for at in 0..self.views.len() {
            let counts = self.counts(at);
            let writer = &mut self.views[at].writer;
            writer.set_source(&counts);
            writer.tick(now);
            let departed = writer.reap();
            self.depart(at, departed);
        }
        let Desk { readers, views, purses, .. } = self;
        for Attached { id, view, payer, wakes_paid, .. } in readers {
            let Some(payer) = *payer else { continue };
            let wakes = views[*view].writer.wakes(*id).unwrap_or(*wakes_paid);
            let since = u32::try_from(wakes.saturating_sub(*wakes_paid)).unwrap_or(u32::MAX);
            // What is owed shows when its filters are asked the next time.
            purses.spend(payer, WAKE * since);
            *wakes_paid = wakes;
        }
    }

    /// Says that nothing more comes, lets readers read what is left, and gives the last report.
    fn end(&mut self, source: &dyn Source, interfaces: Vec<InterfaceAccount>, is_stopping: bool) -> Report {
        self.interfaces = interfaces;
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
                self.time.pause();
                std::thread::sleep(FULL_NAP);
                self.time.go_on(FULL_NAP);
            }
        }
        for at in 0..self.views.len() {
            let counts = self.counts(at);
            let writer = &mut self.views[at].writer;
            writer.set_source(&counts);
            writer.end();
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

    /// What the source counted, for readers of a buffer to see.
    fn counts(&self, view: usize) -> SourceCounts {
        let is_restricted = self.views[view].is_restricted;
        counts(&self.interfaces, Some(self.unwanted).filter(|_| !is_restricted))
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
            views: self.views.iter().map(ViewReport::of).collect(),
            restricted: match &self.restricted {
                Restricted::To(program) => Some(program.insns().len()),
                Restricted::Not | Restricted::Never => None,
            },
            ended: self.ended.clone(),
        }
    }
}

impl ViewReport {
    fn of(view: &View) -> ViewReport {
        ViewReport {
            rights: view.rights.clone(),
            stored: view.writer.stored(),
            bytes: view.writer.stored_bytes(),
            not_stored: view.writer.not_stored(),
        }
    }
}

/// What the source counted. Without what is `unwanted`, and all that depends on what others asked for, for readers that
/// may not see all: how many packets came would tell what others found in bytes that these readers may not see.
fn counts(accounts: &[InterfaceAccount], unwanted: Option<u64>) -> SourceCounts {
    let mut counts = SourceCounts::new();
    let sum = |of: &dyn Fn(&InterfaceAccount) -> Option<u64>| accounts.iter().map(of).sum::<Option<u64>>();
    let losses = |account: &InterfaceAccount, place: Place| {
        let told = account.losses.iter().filter(|loss| loss.place == place && !loss.is_doubtful());
        told.map(|loss| loss.count.known()).sum()
    };
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
    counts.set(Counted::File, sum(&|account| losses(account, Place::File)));
    if unwanted.is_some() {
        counts.set(Counted::Received, sum(&|account| account.ring.map(|ring| ring.received)));
        counts.set(Counted::KernelFiltered, sum(&|account| account.kernel_filtered.known()));
        counts.set(Counted::Unwanted, unwanted);
    }
    counts
}

/// A filter of the set.
pub(crate) fn compile(text: &str, options: &Options) -> Result<Filter, String> {
    Filter::compile_with(text, options, &ready).map_err(|error| error.render(text))
}

/// A filter as native code. All of that is made here, by the thread that answers: code for one packet would else be made
/// at the first packet, by the thread that captures, which takes some 8 ms for a program of 4,096 instructions.
pub(crate) fn ready(filter: CompiledFilter) -> Arc<dyn Accept> {
    let ready = tapline_jit::Residuals::of_process().ready(filter);
    ready.accepts(Packet { data: &[], meta: &Meta::default() });
    ready
}

/// The moment so many milliseconds ago.
pub(crate) fn ago(ms: u64) -> Timestamp {
    let ns = i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000_000);
    Timestamp::from_nanos(clock::realtime_ns().saturating_sub(ns))
}
