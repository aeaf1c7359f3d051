//! Live capture on AF_PACKET: a block ring (TPACKET_V3) for each interface, one thread for all of them.
//!
//! ```text
//! kernel:  packet -> direction, filter, snap length -> block of the interface's ring -> handed over: full, or in time
//! advance: ring with a block -> records of up to 256 packets, in place -> lent -> block given back after its last packet
//!          no block anywhere -> poll: rings, link changes, a wake-up
//! stop:    drop all in the kernel -> wait for packets on their way -> statistics -> lend what the rings hold, with the
//!          blocks that the kernel was filling
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `pattern` | which interfaces are meant |
//! | `opener` | the order of calls; filter, ring, promiscuous mode, fanout |
//! | `flow_share` | the program that shares packets among workers |
//! | `spares` | sockets kept for interfaces that come later |
//! | `workers` | taps of several workers on one interface |
//! | `uncaptured` | interfaces that could not be opened then |
//! | `groups` | fanout groups of workers |
//! | `growing` | rings that begin small |
//! | `tap` | one socket on one interface: ring, counters, state of the link |
//! | `block`, `vlan`, `offload` | what a block says of its packets |
//! | `kernel_filter`, `extended` | the program in the kernel; the same as eBPF where it is too large |
//! | `counting` | the same with a count, where packets need not come here |
//! | `size`, `timestamps`, `hardware` | the ring's size, the clock, the link type |
//! | `settings`, `order` | what to capture and how; in which order taps are lent from |
//! | `counts` | the account of each interface |
//! | `links` | what to do when links come, go and change |
//! | `losses` | what NIC and driver lost |
//! | `listing` | what interfaces there are |
//! | `single` | one socket for callers with a loop of their own: libpcap's interface |
//!
//! `received = counted + dropped + unread + delivered` holds exactly, for each interface, once the capture was stopped.

mod block;
mod counting;
mod counts;
mod error;
mod extended;
mod flow_share;
mod groups;
mod growing;
mod kernel_filter;
mod links;
mod listing;
mod losses;
mod offload;
mod opener;
mod order;
mod pattern;
mod settings;
mod single;
mod size;
mod spares;
mod tap;
mod timestamps;
mod uncaptured;
mod vlan;
mod workers;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tapline_ir::CompiledFilter;
use tapline_packet::{BATCH_MAX, Batch, Interface, InterfaceId, Record};
use tapline_source::{
    Advance, CountedPackets, Error, Event, InterfaceAccount, RingAccount, Source, UncapturedCounts,
};
use tapline_sys::{LinkChange, Poller, RingGeometry, RouteSocket, SyscallError, Wakeup};

pub use counting::{KernelCount, KernelTally};
pub use error::AfPacketError;
pub use extended::KernelFilterRuns;
pub use listing::{CapturingProcess, InterfaceInfo, list, netmasks};
pub(crate) use losses::LossWatch;
pub(crate) use opener::open_namespace;
pub(crate) use pattern::Patterns;
pub use pattern::is_pattern;
pub(crate) use settings::snap_len;
pub use settings::{
    AfPacketSettings, CaptureDirection, CompileFilter, LATENCY_FILE_MS, LATENCY_INTERACTIVE_MS,
    LATENCY_RECORDING_MS, LATENCY_STORE_MS, MergeOrder,
};
pub use single::{LinkLayerAddress, LinkLayerAddresses, SingleCount, SingleSettings, SingleSocket};
pub use tapline_sys::FanoutMode;
pub use timestamps::TimestampSource;

use growing::Growth;
use opener::{OpenTap, Opener};
use tap::Tap;
use uncaptured::UncapturedList;
use workers::Shared;

/// The time beyond the latency that blocks may take to be handed over after a stop, before the account is given as it
/// is.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(5);
/// The longest single wait while draining: blocks come by the kernel's timer.
const DRAIN_WAIT: Duration = Duration::from_millis(5);
/// Time to wait for packets on their way if the kernel does not report them.
const GRACE: Duration = Duration::from_millis(50);

/// Packets of one or several interfaces, lent from the kernel's rings.
///
/// Opening needs `CAP_NET_RAW`; nothing afterwards, also when interfaces come back or new ones appear. Minimum kernel:
/// 3.2.
#[derive(Debug)]
pub struct AfPacket {
    opener: Opener,
    /// Whether this is the first worker, which also watches the interface as a whole.
    is_first: bool,
    interfaces: Vec<Interface>,
    books: Vec<Book>,
    taps: Vec<Tap>,
    /// Taps that another worker opened for this one, and which are not among `taps` yet.
    arrived: Vec<OpenTap>,
    /// Rings that are being made.
    growing: Vec<Growth>,
    /// The tap whose block is lent; the next search begins with it.
    current: usize,
    is_lent: bool,
    /// Whether packets are there that wait because earlier ones may still come.
    is_holding: bool,
    records: Vec<Record>,
    monitor: RouteSocket,
    changes: Vec<LinkChange>,
    events: Vec<Event>,
    uncaptured: UncapturedList,
    /// Fragments apart from their flow that were reported.
    told_apart: u64,
    poller: Poller,
    wakeup: Arc<Wakeup>,
    phase: Phase,
    /// The time since which all interfaces are gone.
    gone_since: Option<Instant>,
    /// The longest that packets may wait to be lent.
    max_latency: Duration,
    /// Whether packets were lent since the last sleep.
    has_lent: bool,
}

/// Counters and filter state of an interface, with the sums of its closed taps.
#[derive(Debug, Default)]
struct Book {
    is_filtered: bool,
    /// Whether the program in the kernel may refuse packets.
    refuses: bool,
    losses: LossWatch,
    /// Sums of closed taps.
    closed: RingAccount,
    closed_delivered: u64,
    closed_counted: CountedPackets,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Draining { since: Instant },
    Ended,
}

impl AfPacket {
    /// Starts to capture. From the call's return on every packet is lent, or counted as lost.
    ///
    /// # Errors
    /// [`AfPacketError`] in [`Error::Source`]; the filter's own error if it does not compile for an interface.
    pub fn open(settings: AfPacketSettings) -> Result<AfPacket, Error> {
        let mut workers = AfPacket::open_workers(AfPacketSettings { workers: 1, ..settings })?;
        workers.pop().ok_or_else(|| Error::source("capture", "no worker was opened"))
    }

    /// Starts to capture with [`AfPacketSettings::workers`] sources, one for each thread. Each packet goes to one of
    /// them; packets of one flow go to the same one, unless [`AfPacketSettings::fanout`] differs.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_workers(settings: AfPacketSettings) -> Result<Vec<AfPacket>, Error> {
        let count = settings.workers.max(1);
        let settings = Arc::new(AfPacketSettings { workers: count, ..settings });
        let shared = Shared::of(count);
        let mut workers = Vec::with_capacity(count);
        for number in 0..count {
            workers.push(AfPacket::closed(Arc::clone(&settings), shared.clone(), number)?);
        }
        for worker in &mut workers {
            worker.start()?;
        }
        Ok(workers)
    }

    /// The rings as they were set up, with their interfaces' names.
    pub fn rings(&self) -> impl Iterator<Item = (&str, RingGeometry)> {
        self.taps.iter().map(|tap| (tap.name.as_str(), tap.geometry))
    }

    /// Opens all taps; with several, none lets packets in yet.
    fn closed(settings: Arc<AfPacketSettings>, shared: Shared, worker: usize) -> Result<AfPacket, Error> {
        let fail = |error: AfPacketError| Error::source("capture", error);
        let opener = Opener::new(settings, shared, worker).map_err(fail)?;
        let monitor = opener.monitor().map_err(fail)?;
        let wakeup = Wakeup::new().map_err(|e| fail(AfPacketError::of_call("capture", e)))?;
        let mut source = AfPacket {
            opener,
            is_first: worker == 0,
            interfaces: Vec::new(),
            books: Vec::new(),
            taps: Vec::new(),
            arrived: Vec::new(),
            growing: Vec::new(),
            current: 0,
            is_lent: false,
            is_holding: false,
            records: Vec::with_capacity(BATCH_MAX),
            monitor,
            changes: Vec::new(),
            events: Vec::new(),
            uncaptured: UncapturedList::default(),
            told_apart: 0,
            poller: Poller::new(),
            wakeup: Arc::new(wakeup),
            phase: Phase::Running,
            gone_since: None,
            max_latency: Duration::ZERO,
            has_lent: false,
        };
        source.open_present()?;
        let growable = source.taps.iter().filter(|tap| tap.growable.is_some()).count();
        source.opener.keep_spares(growable);
        Ok(source)
    }

    /// Opens a tap on every interface that the settings name.
    fn open_present(&mut self) -> Result<(), Error> {
        let links = self.opener.links_at_start().map_err(|error| Error::source("capture", error))?;
        let patterns = &self.opener.patterns;
        let is_meant = |link: &&tapline_sys::Link| {
            patterns.is_named(&link.name) || (link.is_up() && patterns.matches(&link.name))
        };
        let meant: Vec<_> = links.iter().filter(is_meant).cloned().collect();
        let (mut fits, mut unfit) = (false, None);
        for link in &meant {
            let opened = self.opener.open(link, self.next_id(), meant.len() as u64);
            if opened.is_err() && !self.is_first && matches!(self.opener.route.link(link.index), Ok(None)) {
                continue;
            }
            let mut opened = opened?;
            fits |= opened.unfit.is_none();
            unfit = unfit.or(opened.unfit.take());
            self.enter(opened);
        }
        // A filter that no interface can have is a mistake; one that some cannot have is told of.
        unfit.filter(|_| !fits).map_or(Ok(()), |reason| Err(Error::Filter(reason)))
    }

    fn next_id(&self) -> InterfaceId {
        InterfaceId(self.interfaces.len() as u32)
    }

    /// Takes a tap on an interface that is new to the table.
    fn enter(&mut self, opened: OpenTap) {
        let OpenTap { tap, interface, is_filtered, refuses, events, .. } = opened;
        let Opener { route, control, .. } = &mut self.opener;
        let losses = match self.is_first {
            true => LossWatch::start(&tap.name, tap.if_index, route, control),
            false => LossWatch::default(),
        };
        self.interfaces.push(interface);
        self.books.push(Book { is_filtered, refuses, losses, ..Book::default() });
        self.taps.push(tap);
        self.tell_all(events);
    }

    fn start(&mut self) -> Result<(), Error> {
        self.taps.iter_mut().try_for_each(|tap| tap.start().map_err(|e| call_error(&tap.name, e)))
    }

    /// Fills the table from a held or a new block. Returns whether there is anything to lend.
    fn fill(&mut self) -> Result<bool, Error> {
        while let Some((index, until)) = self.pick()? {
            self.current = index;
            let tap = &mut self.taps[index];
            tap.fill(until, &mut self.records);
            if tap.take_crowded() {
                self.grow(index);
            }
            if !self.records.is_empty() {
                (self.is_lent, self.has_lent) = (true, true);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sleeps until a ring has a block, a link changed, a wake-up came, or `wait` is over.
    fn wait(&mut self, wait: Duration) -> Result<(), Error> {
        let is_running = self.phase == Phase::Running;
        let doze = self.doze();
        // Blocks end no doze, and a ring that holds packets back would end every wait at once.
        let taps = if self.is_holding || doze.is_some() { 0 } else { self.taps.len() };
        let wait = match doze {
            Some(doze) => wait.min(doze),
            None if self.is_holding => wait.min(DRAIN_WAIT),
            None => wait,
        };
        self.poller.clear();
        self.poller.add(self.wakeup.as_fd());
        self.taps[..taps].iter().for_each(|tap| self.poller.add(tap.socket.as_fd()));
        if is_running {
            self.poller.add(self.monitor.as_fd());
        }
        if self.poller.wait(wait).map_err(|e| call_error("capture", e))? == 0 {
            return Ok(());
        }
        if self.poller.is_readable(0) {
            self.wakeup.take();
        }
        for index in 0..taps {
            if self.poller.has_error(1 + index) {
                self.hear_error(index)?;
            }
        }
        let monitor = 1 + taps;
        let has_changes = self.poller.is_readable(monitor) || self.poller.has_error(monitor);
        if is_running && has_changes { self.follow_links() } else { Ok(()) }
    }

    /// The time to sleep although blocks are handed over; `None` if the next block is to end the sleep.
    ///
    /// At most the latency, and half of the time that links at their full speed take to fill their rings: the other
    /// half is for late wake-ups. A source that lent nothing since the last sleep waits for the next block, so that
    /// no wake-up is in vain.
    fn doze(&mut self) -> Option<Duration> {
        let has_lent = std::mem::take(&mut self.has_lent);
        let shortest = Duration::from_millis(self.opener.settings.latency_ms.into());
        if !has_lent || self.max_latency <= shortest || self.phase != Phase::Running {
            return None;
        }
        let bearable =
            |tap: &Tap| size::half_full_after(&tap.geometry, self.interfaces[tap.id.0 as usize].speed);
        let bearable = self.taps.iter().map(bearable).min()?;
        Some(self.max_latency.min(bearable)).filter(|doze| *doze > shortest)
    }

    /// The result when there is nothing to lend.
    fn idle(&mut self) -> Result<Advance, Error> {
        match self.phase {
            Phase::Ended => Ok(Advance::End),
            Phase::Running => self.check_gone().map(|()| Advance::Idle),
            Phase::Draining { since } => {
                let is_done =
                    self.taps.iter().all(Tap::is_drained) || since.elapsed() > self.drain_time_max();
                self.phase = if is_done { Phase::Ended } else { self.phase };
                Ok(if is_done { Advance::End } else { Advance::Idle })
            }
        }
    }

    /// Counts the packets in the rings after a stop, once the kernel has handed its open blocks over.
    fn settle(&mut self) {
        let Phase::Draining { since } = self.phase else { return };
        let is_settled = |tap: &Tap| tap.waiting() == tap.in_flight();
        while !self.taps.iter().all(is_settled) && since.elapsed() < self.drain_time_max() {
            std::thread::sleep(DRAIN_WAIT);
        }
    }

    fn drain_time_max(&self) -> Duration {
        DRAIN_TIME_MAX + Duration::from_millis(self.opener.settings.latency_ms.into())
    }

    /// Whether another worker has opened a tap for this one.
    fn has_arrivals(&self) -> bool {
        self.phase == Phase::Running && self.opener.shared.arrivals.is_any(self.opener.worker)
    }

    /// Follows changes; an error is reported.
    fn look_at_links(&mut self) {
        if let Err(error) = self.follow_links() {
            self.tell("", error.to_string(), true);
        }
    }

    /// Reports malformed packets, once there are new ones.
    fn tell_oddities(&mut self) {
        let wants_hardware = self.opener.settings.timestamps != TimestampSource::Host;
        for tap in &mut self.taps {
            let new = std::mem::take(&mut tap.oddities);
            let mut tell = |text: String| {
                self.events.push(Event { interface: tap.name.clone(), text, is_warning: true });
            };
            if new.clipped > 0 {
                let room = tap.geometry.block_len;
                tell(format!(
                    "{} packets did not fit into a ring block of {room} bytes and were cut; use a larger ring (-B)",
                    new.clipped
                ));
            }
            if wants_hardware && new.software_stamped > 0 {
                tell(format!(
                    "{} packets were not stamped by the adapter and carry the host's time",
                    new.software_stamped
                ));
            }
        }
    }

    /// Reports fragments that workers got apart from their flow: when there are twice as many as before, and at the end.
    fn tell_apart(&mut self) {
        let apart = self.opener.fragments_apart();
        let is_due = self.phase != Phase::Running || apart >= 2 * self.told_apart;
        if self.is_first && apart > self.told_apart && is_due {
            self.told_apart = apart;
            let text = format!(
                "{apart} later fragments may be at another worker than their flow: they came before the first one of their packet, or after it was forgotten"
            );
            self.tell("", text, false);
        }
    }

    fn tell(&mut self, interface: &str, text: String, warning: bool) {
        self.tell_all([Event { interface: interface.to_owned(), text, is_warning: warning }]);
    }

    /// Reports events once: all workers see the same links, and only the first one reports them.
    fn tell_all(&mut self, events: impl IntoIterator<Item = Event>) {
        if self.is_first {
            self.events.extend(events);
        }
    }
}

impl Source for AfPacket {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn wait_on(&self, poller: &mut Poller) -> bool {
        poller.add(self.wakeup.as_fd());
        poller.add(self.monitor.as_fd());
        self.taps.iter().for_each(|tap| poller.add(tap.socket.as_fd()));
        self.phase == Phase::Running && !self.is_holding && self.max_latency.is_zero()
    }

    fn advance(&mut self, wait: Duration) -> Result<Advance, Error> {
        self.records.clear();
        if std::mem::take(&mut self.is_lent) {
            self.taps[self.current].release();
        }
        if !self.growing.is_empty() {
            self.finish_growing(false);
        }
        if self.has_arrivals() {
            self.follow_links()?;
        }
        if self.fill()? {
            return Ok(Advance::Batch);
        }
        let wait = match self.phase {
            Phase::Ended => return Ok(Advance::End),
            Phase::Running => wait,
            Phase::Draining { .. } if self.taps.iter().all(Tap::is_drained) => return self.idle(),
            Phase::Draining { .. } => wait.min(DRAIN_WAIT),
        };
        self.wait(wait)?;
        if self.fill()? { Ok(Advance::Batch) } else { self.idle() }
    }

    fn batch(&self) -> Batch<'_> {
        match self.taps.get(self.current) {
            Some(tap) if self.is_lent => Batch::new(tap.base(), &self.records),
            _ => Batch::empty(),
        }
    }

    fn stop(&mut self) -> Result<(), Error> {
        if self.phase != Phase::Running {
            return Ok(());
        }
        self.finish_growing(true);
        self.arrived.append(&mut self.opener.shared.arrivals.take_last(self.opener.worker));
        self.admit_arrived()?;
        for tap in &self.taps {
            tap.socket.attach_drop_all().map_err(|e| call_error(&tap.name, e))?;
        }
        let is_quiet = tapline_sys::wait_for_receive_paths().is_ok();
        if !is_quiet {
            std::thread::sleep(GRACE);
        }
        for tap in &mut self.taps {
            tap.read_statistics().map_err(|e| call_error(&tap.name, e))?;
            if is_quiet {
                tap.end_ring();
            }
        }
        self.phase = Phase::Draining { since: Instant::now() };
        Ok(())
    }

    fn is_filtered(&self, interface: InterfaceId) -> bool {
        self.books.get(interface.0 as usize).is_some_and(|book| book.is_filtered)
    }

    fn restrict(&self, program: Option<&CompiledFilter>) -> Result<bool, Error> {
        self.opener.restrict(program);
        if self.phase == Phase::Running {
            for tap in &self.taps {
                self.opener.attach_again(tap, &self.interfaces[tap.id.0 as usize])?;
            }
            let Opener { shared, worker, .. } = &self.opener;
            let attach = |opened: &OpenTap| self.opener.attach_again(&opened.tap, &opened.interface);
            shared.arrivals.try_for_each(*worker, attach)?;
        }
        Ok(true)
    }

    fn set_max_latency(&mut self, latency: Duration) {
        self.max_latency = latency;
    }

    /// Blocks come by their time where there are few packets.
    fn preferred_wait(&self) -> Option<Duration> {
        Some(Duration::from_millis(self.opener.settings.latency_ms.into()))
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        if self.has_arrivals() {
            self.look_at_links();
        }
        for tap in &mut self.taps {
            // A socket that cannot be read leaves its sums as they were; the account then shows it.
            let _ = tap.read_statistics();
        }
        self.settle();
        if self.is_first {
            self.update_losses();
        }
        let ids = 0..self.interfaces.len() as u32;
        let mut accounts = ids.map(|id| self.interface_account(InterfaceId(id))).collect();
        self.uncaptured.add_to(&mut accounts, |row, name| self.is_called(row, name));
        accounts
    }

    fn uncaptured(&self) -> UncapturedCounts {
        self.uncaptured.counts()
    }

    fn wakeup(&self) -> Option<Arc<Wakeup>> {
        Some(Arc::clone(&self.wakeup))
    }

    fn waited_ticks(&self) -> u64 {
        self.poller.waited_ticks()
    }

    fn events(&mut self) -> Vec<Event> {
        if self.phase == Phase::Running {
            self.look_at_links();
        }
        self.tell_oddities();
        self.tell_apart();
        std::mem::take(&mut self.events)
    }
}

/// Sockets that one thread closes at most.
const CLOSED_IN_TURN: usize = 4;

/// The kernel takes milliseconds to close a socket, as it waits for all processors; several at once wait together.
impl Drop for AfPacket {
    fn drop(&mut self) {
        self.finish_growing(true);
        let mut taps = std::mem::take(&mut self.taps);
        let arrivals = &self.opener.shared.arrivals;
        drop(arrivals.take_last(self.opener.worker));
        // Workers that go on may need them.
        let mut spares = if arrivals.is_open() { Vec::new() } else { self.opener.spares.take() };
        std::thread::scope(|scope| {
            while taps.len() + spares.len() > CLOSED_IN_TURN {
                let (some, more) = (last(&mut taps), last(&mut spares));
                // Without a thread they are closed here.
                let _ = std::thread::Builder::new().spawn_scoped(scope, move || drop((some, more)));
            }
        });
    }
}

/// Takes the last few of a list.
fn last<T>(list: &mut Vec<T>) -> Vec<T> {
    list.split_off(list.len().saturating_sub(CLOSED_IN_TURN))
}

fn call_error(interface: &str, source: SyscallError) -> Error {
    Error::source(interface, AfPacketError::of_call(interface, source))
}
