//! Live capture on AF_XDP: packets go from the driver to our memory, past the host.
//!
//! ```text
//! driver:  packet -> XDP program: filter -- match ----> socket of the packet's queue: chunk of its memory, RX ring
//!                                       \- no match -> the host's stack, as ever
//! advance: RX ring -> records of up to 256 packets, in place -> lent -> chunks back to the fill ring
//!          no packet on any queue -> a short rest if there was one just now; then poll: sockets, link changes, a wake-up
//! stop:    the program lets everything pass -> wait for packets on their way -> lend what the rings hold -> counters last
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `opener` | the order of calls |
//! | `attachment` | the program in front, its maps and counters |
//! | `queue` | a socket, and the packets that it receives |
//! | `protect` | sessions and hosts that a capture would cut off |
//! | `size` | memory of a queue, and the rest that it bears |
//!
//! Packets that the host does not get are the point and the danger: see `protect`, and docs/afxdp.md.
//!
//! `received = dropped + unread + delivered` holds exactly for each interface once the capture was stopped. `received`
//! is what the program in front counted, `dropped` what the sockets counted, `delivered` what we did.

mod attachment;
mod error;
mod opener;
mod protect;
mod queue;
mod size;
mod warnings;

use std::fmt;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tapline_packet::{BATCH_MAX, Batch, Interface, InterfaceId, Record, Timestamp};
use tapline_source::{Advance, Count, Error, Event, InterfaceAccount, RingAccount, Source, XdpAccount};
use tapline_sys::{Link, LinkChange, LinkControl, Poller, RouteSocket, SyscallError, Wakeup};

pub use attachment::XdpAttachMode;
pub use error::AfXdpError;
pub use protect::address_of_ssh_session;

use attachment::Attachment;
use opener::{OpenInterface, Opener};
use queue::Queue;

use crate::af_packet::{CompileFilter, LossWatch, TimestampSource, open_namespace};
use crate::link_state::LinkState;

/// Time to wait for packets on their way if the kernel does not report them.
const GRACE: Duration = Duration::from_millis(50);

/// With busy polling, how long the driver is asked before the loop looks at its flags again.
const SPIN_MAX: Duration = Duration::from_millis(10);

/// A [`AfXdpSettings::wakeup_delay_us`] for all programs but those that answer packets. Times that are read once a batch
/// are late by as much.
pub const WAKEUP_DELAY_US: u32 = 250;

/// Settings of a capture by AF_XDP.
#[derive(Clone)]
pub struct AfXdpSettings {
    /// Names or numbers of interfaces that are there.
    pub interfaces: Vec<String>,
    /// The network namespace: a name as `ip netns` has it, a process number, or a path. `None` for our own.
    pub netns: Option<String>,
    /// The filter, compiled as for a file: before the stack a VLAN tag is in the packet. Runs in front if the kernel
    /// takes it there.
    pub filter: Option<CompileFilter>,
    /// The filter as text, for descriptions of interfaces.
    pub filter_text: String,
    /// The most bytes to keep of a packet; 0 for [`SNAP_LEN_MAX`](tapline_packet::SNAP_LEN_MAX).
    pub snap_len: u32,
    /// Whether the interfaces receive frames for other hosts.
    pub promiscuous: bool,
    /// Bytes for each queue; `None` to choose from memory.
    pub ring_len: Option<u64>,
    /// Only packets of this receive queue, counted from 0; those of the others stay with the host. `None` for all.
    pub queue: Option<u16>,
    /// Workers that divide the queues among them, at least 1.
    pub workers: usize,
    /// Microseconds to rest once no packet is left, before the kernel is asked to wake us for the next: at high rates
    /// several have come by then, for one wake-up. Less if the memory of a queue does not bear it. 0 wakes for each
    /// packet at once.
    pub wakeup_delay_us: u32,
    /// Poll the driver ourselves, for at most this many microseconds a call.
    pub busy_poll_us: Option<u32>,
    /// The clock that stamps packets; the adapter's only if its driver gives the time to XDP programs.
    pub timestamps: TimestampSource,
    /// Take interfaces too on which this host or this session depends.
    pub force: bool,
}

impl AfXdpSettings {
    /// The defaults for these interfaces: everything, promiscuous.
    pub fn new(interfaces: &[&str]) -> AfXdpSettings {
        AfXdpSettings {
            interfaces: interfaces.iter().map(|&name| name.to_owned()).collect(),
            netns: None,
            filter: None,
            filter_text: String::new(),
            snap_len: 0,
            promiscuous: true,
            ring_len: None,
            queue: None,
            workers: 1,
            wakeup_delay_us: WAKEUP_DELAY_US,
            busy_poll_us: None,
            timestamps: TimestampSource::Host,
            force: false,
        }
    }
}

impl fmt::Debug for AfXdpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AfXdpSettings")
            .field("interfaces", &self.interfaces)
            .field("netns", &self.netns)
            .field("filter", &self.filter_text)
            .finish_non_exhaustive()
    }
}

/// Packets of one or several interfaces, lent from memory that the driver wrote them to.
///
/// Opening needs `CAP_NET_RAW`, `CAP_NET_ADMIN` and `CAP_BPF`; nothing afterwards. Minimum kernel: 5.9.
#[derive(Debug)]
pub struct AfXdp {
    interfaces: Vec<Interface>,
    // With the programs: dropped before the sockets.
    books: Vec<Book>,
    queues: Vec<Queue>,
    /// The queue that is asked first next time.
    next: usize,
    /// The queue whose packets are lent.
    lent: Option<usize>,
    records: Vec<Record>,
    /// The first worker also watches over what concerns the interface and not its share.
    is_first: bool,
    is_busy_polling: bool,
    rest: Duration,
    /// The longest rest in which no queue loses a packet.
    rest_max: Duration,
    /// The longest that packets may wait to be lent, if that is longer than the rest.
    max_latency: Duration,
    /// Packets have come since the last rest.
    is_warm: bool,
    route: RouteSocket,
    control: LinkControl,
    monitor: RouteSocket,
    changes: Vec<LinkChange>,
    events: Vec<Event>,
    poller: Poller,
    wakeup: Arc<Wakeup>,
    phase: Phase,
}

/// Counters and program of an interface, without its queues.
#[derive(Debug)]
struct Book {
    attachment: Arc<Attachment>,
    link: Link,
    /// Receive queues whose packets stay with the host.
    others: Vec<u16>,
    is_gone: bool,
    is_filtered: bool,
    losses: LossWatch,
    summary: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Draining,
    Ended,
}

impl AfXdp {
    /// Starts to capture. From its return on every packet that the filter accepts is lent, or counted as lost, and the
    /// host does not get it.
    ///
    /// # Errors
    /// [`AfXdpError`] in [`Error::Source`]; the filter's own error if it does not compile for an interface.
    pub fn open(settings: &AfXdpSettings) -> Result<AfXdp, Error> {
        let mut workers = AfXdp::open_workers(&AfXdpSettings { workers: 1, ..settings.clone() })?;
        workers.pop().ok_or_else(|| Error::source("capture", "no worker was opened"))
    }

    /// Starts to capture with [`AfXdpSettings::workers`] sources, one for each thread, that divide the queues among
    /// them.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_workers(settings: &AfXdpSettings) -> Result<Vec<AfXdp>, Error> {
        let Some(name) = settings.netns.as_deref() else { return open_here(settings) };
        let namespace = open_namespace(name).map_err(|error| Error::source("capture", error))?;
        namespace.run(|| open_here(settings)).map_err(|source| {
            let name = name.to_owned();
            Error::source("capture", crate::af_packet::AfPacketError::Namespace { name, source })
        })?
    }

    /// The way of each interface's capture, in words: place of the program, copies or none, queues and memory.
    pub fn summaries(&self) -> impl Iterator<Item = &str> {
        self.books.iter().map(|book| book.summary.as_str())
    }

    /// Lends from the first queue that has something.
    fn fill(&mut self) -> bool {
        for step in 0..self.queues.len() {
            let index = (self.next + step) % self.queues.len();
            if self.queues[index].take(now, &mut self.records) {
                self.lent = Some(index);
                self.is_warm = true;
                self.next = index + 1;
                return true;
            }
        }
        false
    }

    fn release(&mut self) -> Result<(), Error> {
        self.records.clear();
        let Some(index) = self.lent.take() else { return Ok(()) };
        match self.queues[index].release() {
            // Of a link that is down or gone rtnetlink tells.
            Err(error) if !matches!(error.errno(), ENETDOWN | ENXIO) => Err(self.call_error(index, error)),
            _ => Ok(()),
        }
    }

    /// Reads the counters of sockets, of all or of those that have lent something since, so that the next packet
    /// carries the losses before it.
    fn read_statistics(&mut self, of_all: bool) {
        for queue in self.queues.iter_mut().filter(|queue| of_all || queue.has_lent()) {
            // A socket that cannot be read leaves its sums as they were; the account then shows it.
            let _ = queue.read_statistics();
        }
    }

    /// Sleeps until a queue has a packet, a link changed, a wake-up came, or `wait` is over.
    fn wait(&mut self, wait: Duration) -> Result<(), Error> {
        self.poller.clear();
        self.poller.add(self.wakeup.as_fd());
        self.poller.add(self.monitor.as_fd());
        self.queues.iter().for_each(|queue| self.poller.add(queue.as_fd()));
        let wait = if self.is_busy_polling {
            self.spin(wait);
            Duration::ZERO
        } else {
            wait
        };
        let ready = self.poller.wait(wait).map_err(|e| Error::source("capture", AfXdpError::from(e)))?;
        if ready == 0 {
            return Ok(());
        }
        if self.poller.is_readable(0) {
            self.wakeup.take();
        }
        if self.poller.is_readable(1) || self.poller.has_error(1) {
            self.follow_links()?;
        }
        Ok(())
    }

    /// Lets some packets come without being woken for each. Says whether it rested at all.
    fn rest(&mut self, wait: Duration) -> Result<bool, Error> {
        let rest = self.rest.max(self.max_latency).min(self.rest_max).min(wait);
        if rest.is_zero() || self.is_busy_polling {
            return Ok(false);
        }
        self.poller.clear();
        self.poller.add(self.wakeup.as_fd());
        self.poller.wait(rest).map_err(|e| Error::source("capture", AfXdpError::from(e)))?;
        Ok(true)
    }

    /// Polls the drivers until one of them has given a packet, or for a while.
    fn spin(&mut self, wait: Duration) {
        let start = Instant::now();
        loop {
            for queue in &mut self.queues {
                // A driver that cannot be asked now will be asked again.
                let _ = queue.socket.wake_receive();
                if queue.socket.waiting() > 0 {
                    return;
                }
            }
            if start.elapsed() >= wait.min(SPIN_MAX) {
                return;
            }
        }
    }

    fn idle(&mut self) -> Result<Advance, Error> {
        let is_all_gone = self.books.iter().all(|book| book.is_gone);
        match self.phase {
            Phase::Running if is_all_gone => {
                self.phase = Phase::Ended;
                let names: Vec<&str> = self.interfaces.iter().map(|i| i.name.as_str()).collect();
                Err(Error::source("capture", AfXdpError::Gone { names: names.join(", ") }))
            }
            Phase::Running => Ok(Advance::Idle),
            Phase::Draining | Phase::Ended => {
                self.tell_unstamped();
                self.phase = Phase::Ended;
                Ok(Advance::End)
            }
        }
    }

    fn follow_links(&mut self) -> Result<(), Error> {
        let mut changes = std::mem::take(&mut self.changes);
        let heard = self.monitor.changes(&mut changes);
        if changes.contains(&LinkChange::Missed) {
            changes.extend(self.look_at_all_links());
        }
        for change in changes.drain(..) {
            match change {
                LinkChange::Present(link) => self.follow_present(*link),
                LinkChange::Gone { index, .. } => self.follow_gone(index),
                LinkChange::Missed => {}
            }
        }
        self.changes = changes;
        heard.map_err(|error| Error::source("network interfaces", AfXdpError::from(error)))
    }

    /// Finds removed interfaces, and returns those that are there, when the kernel could not keep all of its messages.
    fn look_at_all_links(&mut self) -> Vec<LinkChange> {
        let Ok(links) = self.route.links() else { return Vec::new() };
        // Another interface may have the number by now.
        let is_there = |book: &Book| {
            links.iter().any(|link| link.index == book.link.index) && book.attachment.has_interface()
        };
        let gone: Vec<u32> =
            self.books.iter().filter(|book| !is_there(book)).map(|book| book.link.index).collect();
        gone.into_iter().for_each(|index| self.follow_gone(index));
        links.into_iter().map(|link| LinkChange::Present(Box::new(link))).collect()
    }

    fn follow_gone(&mut self, if_index: u32) {
        let is_it = |book: &&mut Book| book.link.index == if_index && !book.is_gone;
        let Some(book) = self.books.iter_mut().find(is_it) else { return };
        book.is_gone = true;
        let name = book.link.name.clone();
        self.tell(&name, "was removed; AF_XDP does not come back by itself".to_owned(), true);
    }

    fn follow_present(&mut self, link: Link) {
        let is_it = |book: &&mut Book| book.link.index == link.index && !book.is_gone;
        let Some(book) = self.books.iter_mut().find(is_it) else { return };
        let before = std::mem::replace(&mut book.link, link);
        let (name, now) = (book.link.name.clone(), LinkState::of(&book.link));
        if before.name != name {
            self.tell(&before.name, format!("is now called {name}"), false);
        }
        if now != LinkState::of(&before) {
            self.tell(&name, now.news().to_owned(), now != LinkState::Running);
        }
    }

    /// Reports packets whose time is not from the clock that was requested.
    fn tell_unstamped(&mut self) {
        for queue in &mut self.queues {
            let interface = &self.interfaces[queue.common.interface.0 as usize].name;
            let (count, number) = (std::mem::take(&mut queue.unstamped), queue.number);
            if count > 0 {
                let text = format!(
                    "{count} packets of queue {number} were not stamped by the adapter and carry the host's time"
                );
                self.events.push(Event { interface: interface.clone(), text, is_warning: true });
            }
        }
    }

    /// Workers see the same links; the first one speaks for all.
    fn tell(&mut self, interface: &str, text: String, warning: bool) {
        if self.is_first {
            self.events.push(Event { interface: interface.to_owned(), text, is_warning: warning });
        }
    }

    fn interface_account(&mut self, id: InterfaceId) -> InterfaceAccount {
        let book = &self.books[id.0 as usize];
        let (mut ring, mut xdp) = (RingAccount::default(), XdpAccount::default());
        let (mut passed, mut delivered) = (0, 0);
        if self.is_first {
            passed += book.others.iter().map(|queue| book.attachment.counts(*queue).1).sum::<u64>();
        }
        for queue in self.queues.iter_mut().filter(|queue| queue.common.interface == id) {
            let (lent, counted) = queue.counts();
            let (taken, left) = book.attachment.counts(queue.number);
            let unread = match self.phase {
                // While it runs the counts are of different moments.
                Phase::Running => taken.saturating_sub(counted.lost() + lent),
                _ => queue.waiting(),
            };
            ring.received += taken;
            ring.dropped += counted.lost();
            ring.unread += unread;
            xdp.merge(&counted);
            passed += left;
            delivered += lent;
        }
        InterfaceAccount {
            losses: if self.is_first { book.losses.losses() } else { Vec::new() },
            kernel_filtered: Count::Known(passed),
            ring: Some(ring),
            xdp: Some(xdp),
            ..InterfaceAccount::of_file(&self.interfaces[id.0 as usize].name, delivered)
        }
    }

    fn call_error(&self, queue: usize, error: SyscallError) -> Error {
        let id = self.queues[queue].common.interface;
        Error::source(&self.interfaces[id.0 as usize].name, AfXdpError::from(error))
    }
}

const ENXIO: i32 = 6;
const ENETDOWN: i32 = 100;

impl Source for AfXdp {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn advance(&mut self, wait: Duration) -> Result<Advance, Error> {
        self.release()?;
        if self.fill() {
            return Ok(Advance::Batch);
        }
        if self.phase != Phase::Running {
            return self.idle();
        }
        if std::mem::take(&mut self.is_warm) && self.rest(wait)? && self.fill() {
            return Ok(Advance::Batch);
        }
        self.read_statistics(false);
        self.wait(wait)?;
        if self.fill() { Ok(Advance::Batch) } else { self.idle() }
    }

    fn batch(&self) -> Batch<'_> {
        match self.lent {
            Some(index) => Batch::new(self.queues[index].base(), &self.records),
            None => Batch::empty(),
        }
    }

    fn stop(&mut self) -> Result<(), Error> {
        if self.phase != Phase::Running {
            return Ok(());
        }
        self.books.iter().for_each(|book| book.attachment.stop());
        if tapline_sys::wait_for_receive_paths().is_err() {
            std::thread::sleep(GRACE);
        }
        self.phase = Phase::Draining;
        Ok(())
    }

    fn is_filtered(&self, interface: InterfaceId) -> bool {
        self.books.get(interface.0 as usize).is_some_and(|book| book.is_filtered)
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        self.read_statistics(true);
        if self.is_first {
            for book in self.books.iter_mut().filter(|book| !book.is_gone) {
                book.losses.update(&book.link.name, book.link.index, &mut self.route, &mut self.control);
            }
        }
        (0..self.interfaces.len()).map(|id| self.interface_account(InterfaceId(id as u32))).collect()
    }

    fn wakeup(&self) -> Option<Arc<Wakeup>> {
        Some(Arc::clone(&self.wakeup))
    }

    fn wait_on(&self, poller: &mut Poller) -> bool {
        poller.add(self.wakeup.as_fd());
        poller.add(self.monitor.as_fd());
        self.queues.iter().for_each(|queue| poller.add(queue.as_fd()));
        let rests = !self.rest.max(self.max_latency).is_zero();
        self.phase == Phase::Running && !self.is_busy_polling && !rests
    }

    fn set_max_latency(&mut self, latency: Duration) {
        self.max_latency = latency;
    }

    /// A driver that is polled is asked at every turn.
    fn preferred_wait(&self) -> Option<Duration> {
        self.is_busy_polling.then_some(Duration::ZERO)
    }

    fn waited_ticks(&self) -> u64 {
        self.poller.waited_ticks()
    }

    fn events(&mut self) -> Vec<Event> {
        if self.phase == Phase::Running
            && let Err(error) = self.follow_links()
        {
            self.tell("", error.to_string(), true);
        }
        std::mem::take(&mut self.events)
    }
}

/// Opens all interfaces in the namespace of the calling thread.
fn open_here(settings: &AfXdpSettings) -> Result<Vec<AfXdp>, Error> {
    let fail = |error: AfXdpError| Error::source("capture", error);
    let workers = settings.workers.max(1);
    let mut opener = Opener::new(settings).map_err(fail)?;
    let meant = opener.meant()?;
    let queues: usize = meant.iter().map(|link| opener.served(link) as usize).sum();
    if workers > queues {
        return Err(fail(AfXdpError::TooManyWorkers { workers, queues }));
    }
    let mut opened = Vec::new();
    for (number, link) in meant.iter().enumerate() {
        opened.push(opener.open(link, InterfaceId(number as u32), queues as u64)?);
    }
    let rest_max = opened.iter().map(|opened| opened.rest_max).min().unwrap_or_default();
    let call = |error: SyscallError| fail(error.into());
    let mut all = Vec::with_capacity(workers);
    for number in 0..workers {
        all.push(AfXdp {
            interfaces: opened.iter().map(|opened| opened.interface.clone()).collect(),
            books: opened.iter_mut().map(|opened| book(opened, number == 0)).collect(),
            queues: Vec::new(),
            next: 0,
            lent: None,
            records: Vec::with_capacity(BATCH_MAX),
            is_first: number == 0,
            is_busy_polling: settings.busy_poll_us.is_some(),
            rest: Duration::from_micros(settings.wakeup_delay_us.into()),
            rest_max,
            max_latency: Duration::ZERO,
            is_warm: false,
            route: RouteSocket::open().map_err(call)?,
            control: LinkControl::open().map_err(call)?,
            monitor: RouteSocket::monitor().map_err(call)?,
            changes: Vec::new(),
            events: if number == 0 {
                opened.iter_mut().flat_map(|o| o.events.drain(..)).collect()
            } else {
                Vec::new()
            },
            poller: Poller::new(),
            wakeup: Arc::new(Wakeup::new().map_err(call)?),
            phase: Phase::Running,
        });
    }
    let each = opened.into_iter().flat_map(|opened| opened.queues).enumerate();
    each.for_each(|(number, queue)| all[number % workers].queues.push(queue));
    Ok(all)
}

fn book(opened: &mut OpenInterface, is_first: bool) -> Book {
    Book {
        attachment: Arc::clone(&opened.attachment),
        link: opened.link.clone(),
        others: opened.others.clone(),
        is_gone: false,
        is_filtered: opened.is_filtered,
        losses: if is_first { std::mem::take(&mut opened.losses) } else { LossWatch::default() },
        summary: opened.summary.clone(),
    }
}

fn now() -> Timestamp {
    Timestamp::from_nanos(tapline_sys::clock::realtime_ns())
}
