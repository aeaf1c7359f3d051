//! Sending packets out of an interface, and accounting for each.
//!
//! ```text
//! SendPolicy --permit(name)--> SendPermit --open--> Transmitter --send(batch, which)--> the kernel
//!                                                 |
//!   each packet:  make ready (tag put back, checksum completed) --> sent
//!                        \--> refused, by cause                \--> refused by the kernel, by cause
//! ```
//!
//! | file | content |
//! |---|---|
//! | `backend` | the ways to the interface, and which one is taken |
//! | `permit` | where sending is allowed at all: the one place that says it |
//! | `round` | what would go round for ever |
//! | `ready` | a captured packet as the frame that was on the wire |
//! | `checksum` | sums of TCP and UDP |
//! | `pace` | frames at their times: waiting, and how far off they were |
//! | `progress` | counters of a pacer for a thread that reports |
//! | `replay` | the packets of a source as a schedule of frames |
//! | `rewrite` | other endpoints in a packet, with its checksums mended |
//!
//! `packets given = sent + refused by cause` holds exactly. Nothing here waits for ever: when a queue is full the
//! sender tries for as long as [`SendSettings::queue_timeout`] says, and then counts the packet. Without patience live
//! frames are a wire: what finds no room is lost, and nothing slows down.
#![forbid(unsafe_code)]

mod backend;
mod checksum;
mod error;
mod pace;
mod permit;
mod progress;
mod ready;
pub mod replay;
pub mod rewrite;
mod round;

use std::time::{Duration, Instant};

use tapline_packet::{BATCH_MAX, Batch, Interface, LinkType};
use tapline_source::{Error, LossCause, LossCounts};
use tapline_sys::{RouteSocket, SubmittedFrames, SyscallError};

pub use backend::{Backend, BackendChoice, SkippedBackend};
pub use error::TransmitError;
pub use pace::{LEAD_NS, PaceObserver, PaceReport, Pacer, Schedule};
pub use permit::{SendPermit, SendPolicy};
pub use progress::{Progress, ProgressReader, ProgressWriter, progress};
pub use ready::FrameEdit;

use backend::OpenBackend;
use ready::{Maker, is_own};

/// The longest wait at once for room in the socket.
const WAIT_MAX: Duration = Duration::from_millis(20);

const EAGAIN: i32 = 11;
const ENOBUFS: i32 = 105;

/// Settings of a sender.
#[derive(Clone, Copy, Debug)]
pub struct SendSettings {
    /// The time for which a full queue is tried again before the packet counts as refused.
    pub queue_timeout: Duration,
    /// The kernel's segmentation sends packets made of several frames, if their capture has the segments' size
    /// (`AfPacketSettings::vnet_header`).
    pub segments: bool,
    /// The changes to each frame.
    pub change: FrameEdit,
    /// The back end.
    pub backend: BackendChoice,
}

impl Default for SendSettings {
    fn default() -> SendSettings {
        SendSettings {
            queue_timeout: Duration::from_millis(2),
            segments: false,
            change: FrameEdit::None,
            backend: BackendChoice::This(Backend::Packet),
        }
    }
}

/// Counts of packets sent and not sent so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounts {
    /// Packets that the kernel took.
    pub packets: u64,
    /// Bytes of the frames, with link header and tags, without frame check sequence.
    pub bytes: u64,
    /// Packets that could not be sent.
    pub lost: LossCounts,
    /// Packets that this host had sent, which are left out: sent again, they would go round.
    pub own: u64,
}

impl SendCounts {
    /// Adds the counts of another interface.
    pub fn merge(&mut self, other: &SendCounts) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.lost.merge(&other.lost);
        self.own += other.own;
    }
}

/// Sends packets out of one interface.
#[derive(Debug)]
pub struct Transmitter {
    name: String,
    link_type: LinkType,
    way: OpenBackend,
    skipped_backends: Vec<SkippedBackend>,
    maker: Maker,
    queue_timeout: Duration,
    if_index: u32,
    route: RouteSocket,
    /// The interface's `tx_dropped` at the start.
    dropped_before: Option<u64>,
    /// The queue was full for all of our patience, and nothing has gone since: the next packets get no patience of
    /// their own.
    is_jammed: bool,
    /// The fate of frames that were just handed over.
    handed: Vec<SubmittedFrames>,
    sent: SendCounts,
}

impl Transmitter {
    /// Opens a back end on the interface that the permit is for. Needs `CAP_NET_RAW`, for XDP live frames more; nothing
    /// afterwards.
    ///
    /// # Errors
    /// [`TransmitError::NoPermission`] without the right to open packet sockets; [`TransmitError::NoBackend`] if the
    /// one that was asked for cannot be had; what else the kernel says.
    pub fn open(permit: &SendPermit, settings: &SendSettings) -> Result<Transmitter, TransmitError> {
        let name = permit.name().to_owned();
        let fail = |source: SyscallError| TransmitError::of_call(&name, source);
        let if_index = permit.if_index();
        let mut route = permit.run(RouteSocket::open).and_then(|opened| opened).map_err(fail)?;
        let dropped_before = tx_dropped(&mut route, if_index);
        let (way, skipped_backends) = OpenBackend::open(permit, settings.backend, settings.segments)?;
        let link_type = permit.link_type();
        let maker = Maker::new(link_type, settings.change, settings.segments);
        Ok(Transmitter {
            name,
            link_type,
            way,
            skipped_backends,
            maker,
            queue_timeout: settings.queue_timeout,
            if_index,
            route,
            dropped_before,
            is_jammed: false,
            handed: Vec::new(),
            sent: SendCounts::default(),
        })
    }

    /// Packets that the interface's driver dropped since this transmitter was opened, after the kernel had taken them:
    /// those of all senders there. `None` if they are not counted anywhere.
    pub fn dropped_by_driver(&mut self) -> Option<u64> {
        let before = self.dropped_before?;
        let told = self.way.dropped_and_told();
        tx_dropped(&mut self.route, self.if_index).map(|now| now.saturating_sub(before).saturating_sub(told))
    }

    /// The back end by which it sends.
    pub fn backend(&self) -> Backend {
        self.way.backend()
    }

    /// A few words about how the back end works here, such as `copy mode`.
    pub fn backend_remark(&self) -> Option<&'static str> {
        self.way.remark()
    }

    /// Faster back ends that were not taken, and why.
    pub fn skipped_backends(&self) -> &[SkippedBackend] {
        &self.skipped_backends
    }

    /// Waits until sent frames have left our hands, for [`SendSettings::queue_timeout`] at most. Frames that have not
    /// by then count as refused. To be called before the account is made.
    pub fn finish(&mut self) {
        let (packets, bytes, errno) = self.way.finish(self.queue_timeout);
        self.sent.packets -= packets;
        self.sent.bytes -= bytes;
        self.refuse(cause_of(errno).unwrap_or(LossCause::QueueFull), packets);
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The link type: the first header of a frame on it.
    pub fn link_type(&self) -> LinkType {
        self.link_type
    }

    /// Counts of packets sent and not sent so far.
    pub fn sent(&self) -> &SendCounts {
        &self.sent
    }

    /// Counts packets as not sent.
    pub fn refuse(&mut self, cause: LossCause, packets: u64) {
        self.sent.lost.add(cause, packets);
    }

    /// Sends these packets of a batch, in this order; each is sent or counted when the call returns. `interfaces` says
    /// what their interface numbers mean.
    ///
    /// # Errors
    /// Errors of the kernel that concern more than a packet; the packets of the batch are counted all the same.
    pub fn send(
        &mut self,
        batch: &Batch<'_>,
        which: impl Iterator<Item = usize>,
        interfaces: &[Interface],
    ) -> Result<(), Error> {
        self.maker.clear();
        for index in which.take(BATCH_MAX) {
            if is_own(&batch.records()[index].meta) {
                self.sent.own += 1;
            } else if let Err(cause) = self.maker.make(batch, index, interfaces) {
                self.sent.lost.add(cause, 1);
            }
        }
        let mut at = 0;
        while at < self.maker.len() {
            match self.hand(batch, at) {
                // The kernel takes one frame at least, or says why not.
                Ok(end) if end == at => {
                    self.refuse(LossCause::Other, (self.maker.len() - at) as u64);
                    return Ok(());
                }
                Ok(end) => at = end,
                Err(error) => at = self.refused(batch, at, error)?,
            }
        }
        Ok(())
    }

    /// Hands over the frames from `at` on. Returns where to go on. Without patience what finds no room is lost at once.
    fn hand(&mut self, batch: &Batch<'_>, at: usize) -> Result<usize, SyscallError> {
        let frames = self.maker.pieces(batch, at);
        if !self.queue_timeout.is_zero() {
            let taken = self.way.send(frames)?;
            return Ok(self.took(at, taken));
        }
        self.handed.clear();
        self.way.flood(frames, &mut self.handed)?;
        let mut end = at;
        for index in 0..self.handed.len() {
            let SubmittedFrames { taken, lost } = self.handed[index];
            end = self.took(end, taken);
            let lost = lost.min(self.maker.len() - end);
            self.refuse(LossCause::QueueFull, lost as u64);
            end += lost;
        }
        Ok(end)
    }

    fn took(&mut self, at: usize, taken: usize) -> usize {
        let end = at + taken.min(self.maker.len() - at);
        self.sent.packets += taken as u64;
        self.sent.bytes += self.maker.bytes(at..end);
        self.is_jammed &= taken == 0;
        end
    }

    /// The kernel refused the frame at `at`. Returns where to go on.
    fn refused(&mut self, batch: &Batch<'_>, at: usize, error: SyscallError) -> Result<usize, Error> {
        let rest = (self.maker.len() - at) as u64;
        match cause_of(error.errno()) {
            Some(LossCause::QueueFull) if !self.is_jammed && self.try_again(batch, at, error.errno())? => {
                Ok(at + 1)
            }
            Some(LossCause::QueueFull) => {
                self.is_jammed = true;
                self.refuse(LossCause::QueueFull, 1);
                Ok(at + 1)
            }
            Some(LossCause::Down) => {
                self.refuse(LossCause::Down, rest);
                Ok(self.maker.len())
            }
            Some(cause) => {
                self.refuse(cause, 1);
                Ok(at + 1)
            }
            None => {
                self.refuse(LossCause::Other, rest);
                Err(Error::output(&self.name, error.source))
            }
        }
    }

    /// Sends one frame, as soon as there is room for it. Returns whether there was within our patience.
    fn try_again(&mut self, batch: &Batch<'_>, at: usize, mut errno: i32) -> Result<bool, Error> {
        let start = Instant::now();
        while let Some(left) = self.queue_timeout.checked_sub(start.elapsed()).filter(|left| !left.is_zero())
        {
            let waited = self.way.wait_for_room(errno == EAGAIN, left.min(WAIT_MAX));
            waited.map_err(|error| Error::output(&self.name, error))?;
            match self.way.send(self.maker.pieces(batch, at).take(1)) {
                Ok(taken) => {
                    self.took(at, taken);
                    return Ok(taken > 0);
                }
                Err(error) if matches!(error.errno(), EAGAIN | ENOBUFS) => errno = error.errno(),
                // The caller's next call meets it again, and names it.
                Err(_) => return Ok(false),
            }
        }
        Ok(false)
    }
}

/// The cause of an error number of a send call; `None` for an unknown number.
fn cause_of(errno: i32) -> Option<LossCause> {
    match errno {
        // EAGAIN, ENOMEM, ENOBUFS
        11 | 12 | 105 => Some(LossCause::QueueFull),
        // EMSGSIZE
        90 => Some(LossCause::TooLong),
        // ENXIO, ENODEV, ENETDOWN
        6 | 19 | 100 => Some(LossCause::Down),
        // EINVAL
        22 => Some(LossCause::Malformed),
        _ => None,
    }
}

fn tx_dropped(route: &mut RouteSocket, if_index: u32) -> Option<u64> {
    Some(route.link(if_index).ok()??.statistics?.tx_dropped)
}
