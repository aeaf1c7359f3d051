//! Taps of several workers on one interface.
//!
//! ```text
//! at the start:   each worker opens its own, closed, and joins the group; then all are started
//! later:          the interface appears while they capture
//!
//! the first worker that hears of it:  a socket for each worker, closed -> all join one group -> all let packets in
//!                                     -> packets are shared; its own tap is lent from at once
//! the others:                         take theirs, with what its ring holds by then, before the next batch or account
//! ```
//!
//! Sockets of a group share its packets from the moment that they join. If each worker opened its own, the kernel would
//! refuse packets of its share until its filter was attached, and no counter would have them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tapline_packet::InterfaceId;
use tapline_source::{Error, Event};
use tapline_sys::Link;

use super::extended::Loaded;
use super::flow_share::SharedFlowShare;
use super::groups::Groups;
use super::opener::{OpenTap, Opener, RingWish};
use super::spares::KeptSockets;
use super::{AfPacketError, call_error};

/// State that workers share.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared {
    pub(super) groups: Groups,
    /// Filters that were too large for classic BPF.
    pub(super) loaded: Loaded,
    /// Programs that share packets by flow.
    pub(super) flow_share: SharedFlowShare,
    /// Taps on interfaces that appeared.
    pub(super) arrivals: Arrivals,
    pub(super) kept: KeptSockets,
    /// The interfaces that were there when the first worker looked: the others begin with them, too. It hears of all
    /// later ones.
    present: Arc<OnceLock<Vec<Link>>>,
}

impl Shared {
    pub(super) fn of(workers: usize) -> Shared {
        Shared { arrivals: Arrivals::of(workers), ..Shared::default() }
    }
}

/// Taps that wait for their workers.
#[derive(Clone, Debug, Default)]
pub(super) struct Arrivals(Arc<ArrivalQueues>);

#[derive(Debug, Default)]
struct ArrivalQueues {
    waiting: Mutex<Vec<WaitingTaps>>,
    /// For each worker whether a tap waits.
    have_taps: Vec<AtomicBool>,
}

/// Taps that wait for a worker, the oldest first; `None` if it takes no more.
type WaitingTaps = Option<Vec<OpenTap>>;

impl Arrivals {
    pub(super) fn of(workers: usize) -> Arrivals {
        let waiting = Mutex::new((0..workers).map(|_| Some(Vec::new())).collect());
        Arrivals(Arc::new(ArrivalQueues {
            waiting,
            have_taps: (0..workers).map(|_| AtomicBool::new(false)).collect(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<WaitingTaps>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a tap waits for a worker: one load, so that each batch may ask.
    pub(super) fn is_any(&self, worker: usize) -> bool {
        self.0.have_taps[worker].load(Ordering::Relaxed)
    }

    /// Takes all taps that wait for a worker.
    pub(super) fn take(&self, worker: usize) -> Vec<OpenTap> {
        let mut waiting = self.lock();
        self.0.have_taps[worker].store(false, Ordering::Relaxed);
        waiting[worker].as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// As [`take`](Self::take); no tap is opened for this worker any more.
    pub(super) fn take_last(&self, worker: usize) -> Vec<OpenTap> {
        self.lock()[worker].take().unwrap_or_default()
    }

    /// Whether some worker still takes taps.
    pub(super) fn is_open(&self) -> bool {
        self.lock().iter().any(Option::is_some)
    }

    /// Does something with each tap that waits for a worker.
    pub(super) fn try_for_each(
        &self,
        worker: usize,
        work: impl FnMut(&OpenTap) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.lock()[worker].iter().flatten().try_for_each(work)
    }
}

impl Opener {
    /// The interfaces that the capture begins with.
    pub(super) fn links_at_start(&mut self) -> Result<Vec<Link>, AfPacketError> {
        if let Some(links) = self.shared.present.get() {
            return Ok(links.clone());
        }
        let links = self.links()?;
        Ok(self.shared.present.get_or_init(|| links).clone())
    }

    /// Opens a tap on an interface that appeared, which lets packets in, and those of the other workers with it; or
    /// takes the one that another worker opened.
    pub(super) fn open_new(&mut self, link: &Link, id: InterfaceId, rings: u64) -> Result<OpenTap, Error> {
        let arrivals = self.shared.arrivals.clone();
        let mut waiting = arrivals.lock();
        if let Some(own) = &mut waiting[self.worker]
            && let Some(at) = own.iter().position(|opened| opened.tap.if_index == link.index)
        {
            return Ok(own.remove(at));
        }
        self.shared.groups.forget(link.index);
        let others = waiting.iter_mut().zip(&arrivals.0.have_taps).enumerate();
        let others = others.filter(|(worker, _)| *worker != self.worker);
        let others: Vec<(&mut Vec<OpenTap>, &AtomicBool)> =
            others.filter_map(|(_, (waiting, is_there))| Some((waiting.as_mut()?, is_there))).collect();
        let (mut own, mut more) = self.open_several(link, id, rings, others.len())?;
        // Where a program shares the packets, the first tap gets all until the others let them in; elsewhere the capture
        // of this interface begins with the last.
        for opened in std::iter::once(&mut own).chain(&mut more) {
            opened.tap.start().map_err(|error| call_error(&link.name, error))?;
        }
        self.share(&own, link)?;
        for ((waiting, is_there), opened) in others.into_iter().zip(more) {
            waiting.push(opened);
            is_there.store(true, Ordering::Relaxed);
        }
        Ok(own)
    }

    /// Opens a tap on `link`, as interface `id`, one of `rings` in all. No packets pass before [`Tap::start`].
    pub(super) fn open(&mut self, link: &Link, id: InterfaceId, rings: u64) -> Result<OpenTap, Error> {
        let (opened, _) = self.open_several(link, id, rings, 0)?;
        self.share(&opened, link)?;
        Ok(opened)
    }

    /// Opens a tap, and `more` for other workers, which have all joined the group of the interface then. Packets are
    /// shared once that is [decided](Self::share).
    fn open_several(
        &mut self,
        link: &Link,
        id: InterfaceId,
        rings: u64,
        more: usize,
    ) -> Result<(OpenTap, Vec<OpenTap>), Error> {
        let name = link.name.as_str();
        let fail = |error: AfPacketError| Error::source(name, error);
        let speed = self.control.speed(name).ok().flatten();
        let interface = self.describe(link, speed);
        let filter = self.wanted(&interface)?;
        self.check_queue(link).map_err(fail)?;
        let mut sockets = self.spares.sockets(name, 1 + more).map_err(fail)?.into_iter();
        let mut opened = Vec::with_capacity(1 + more);
        let wish = RingWish { id, speed, rings, grows: true };
        let all: Result<(), Error> = sockets.by_ref().try_for_each(|socket| {
            opened.push(self.open_ring(socket, link, &interface, &filter, &wish)?);
            Ok(())
        });
        let all = all.and_then(|()| opened.iter_mut().try_for_each(|opened| self.join(opened, link)));
        match (all, opened.is_empty()) {
            (Ok(()), false) => Ok((opened.remove(0), opened)),
            (all, _) => {
                let taken = opened.into_iter().map(|opened| opened.tap.into_socket());
                taken.chain(sockets).for_each(|socket| self.put_back(socket, link));
                Err(all.err().unwrap_or_else(|| Error::source(name, "no socket was opened")))
            }
        }
    }

    /// Has a tap of several workers join the group of its interface.
    fn join(&self, opened: &mut OpenTap, link: &Link) -> Result<(), Error> {
        if self.settings.workers <= 1 {
            return Ok(());
        }
        let OpenTap { tap, events, .. } = opened;
        let Shared { groups, flow_share, .. } = &self.shared;
        let ignores_sent = self.ignores_sent(link.is_loopback());
        let join = |known| flow_share.join(&tap.socket, link, known, &self.settings, ignores_sent);
        tap.group = Some(groups.join(link.index, join).map_err(|error| call_error(&link.name, error))?);
        let refusal = flow_share.refusal(link, &self.settings);
        events.extend(refusal.map(|text| Event { interface: link.name.clone(), text, is_warning: false }));
        Ok(())
    }

    /// Has the group of a tap share its packets among the members. A group ends with its last member, so each that joins
    /// a known number does this: the group may be a new one.
    pub(super) fn share(&self, opened: &OpenTap, link: &Link) -> Result<(), Error> {
        let chosen = self.shared.flow_share.choose(&opened.tap.socket, link, &self.settings);
        chosen.map_err(|error| call_error(&link.name, error))
    }
}
