//! Ways for frames to the interface, and which one is taken.
//!
//! ```text
//!            what it can                                      ns a frame, 60 bytes, veth     1500 bytes
//! live       XDP live frames: the kernel's own pages           802                            824
//! xdp        AF_XDP: frames in memory that the kernel reads    1310                           1320
//! packet     AF_PACKET, sendmmsg: any interface, any frame     1767                           1830
//! ```
//!
//! (Processor time of the sender with the receiver's interrupt, medians of five interleaved rounds, Linux 6.18:
//! `cargo run --release -p tapline-sys --example transmit_rates`.)
//!
//! That is for 256 frames a call. A call for one costs 2 microseconds by sendmmsg and 20 by live frames: frames of
//! which few are due at once ([`BackendChoice::AtTimes`]) go the first way.
//!
//! All keep one contract: frames go in order, up to the first that is refused; the call returns the number of frames
//! taken, or the reason that the first was not taken. Frames that were taken have left for the driver; only AF_XDP in
//! copy mode does not learn when the driver then drops one.

mod limit;
mod xdp;

use std::fmt;
use std::io;
use std::time::Duration;

use tapline_source::LossCause;
use tapline_sys::{
    FRAMES_PER_CALL, FrameSocket, LiveFrames, LiveFramesError, PIECES_MAX, SubmittedFrames, SyscallError,
};

use super::{SendPermit, TransmitError};
use limit::Limit;
use xdp::XdpSender;

/// Bytes of frames that may be on their way to the adapter. A virtual interface holds none.
const SEND_BUFFER: u32 = 4 << 20;
/// The pause before a full queue, which cannot be waited for, is tried again.
const PAUSE: Duration = Duration::from_micros(5);

const EPERM: i32 = 1;
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;
const EMSGSIZE: i32 = 90;
const EBUSY: i32 = 16;

tapline_packet::named_enum! {
    /// A back end for frames to the interface, the fastest first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum Backend {
        /// XDP live frames, through the test run of an XDP program.
        Live = "live",
        /// AF_XDP.
        Xdp = "xdp",
        /// AF_PACKET, `sendmmsg`: any interface, any frame.
        Packet = "packet",
    }
}

/// In the field's words.
impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Packet => "AF_PACKET (sendmmsg)",
            Backend::Xdp => "AF_XDP",
            Backend::Live => "XDP live frames",
        })
    }
}

/// The requested back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendChoice {
    /// The fastest that the interface can.
    Fastest,
    /// The best for frames that have times, of which few go at once.
    AtTimes,
    /// This one.
    This(Backend),
}

/// A faster back end that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedBackend {
    /// The back end.
    pub backend: Backend,
    /// The reason, in words.
    pub reason: String,
}

/// An open back end.
#[derive(Debug)]
pub(super) enum OpenBackend {
    Packet(FrameSocket),
    Xdp(Box<XdpSender>, Limit),
    Live(Box<LiveFrames>, Limit),
}

impl OpenBackend {
    /// Opens the best back end of the choice. Returns also those that were skipped, with the reason.
    pub(super) fn open(
        permit: &SendPermit,
        choice: BackendChoice,
        segments: bool,
    ) -> Result<(OpenBackend, Vec<SkippedBackend>), TransmitError> {
        let mut passed = Vec::new();
        let wanted = match choice {
            BackendChoice::This(Backend::Packet) => {
                return Ok((OpenBackend::packet(permit, segments)?, passed));
            }
            BackendChoice::This(backend) => {
                return match OpenBackend::fast(permit, backend, segments) {
                    Ok(way) => Ok((way, passed)),
                    Err(reason) => Err(TransmitError::no_backend(permit.name(), backend, reason)),
                };
            }
            BackendChoice::AtTimes => {
                let reason = "packets have times, and one alone costs more by it than by AF_PACKET";
                let over = |backend| SkippedBackend { backend, reason: reason.to_owned() };
                passed.extend([Backend::Live, Backend::Xdp].map(over));
                &[]
            }
            BackendChoice::Fastest => [Backend::Live, Backend::Xdp].as_slice(),
        };
        for &backend in wanted {
            let is_fit = Limit::of(permit).holds_all(backend).and_then(|()| passes_no_discipline(permit));
            match is_fit.and_then(|()| OpenBackend::fast(permit, backend, segments)) {
                Ok(way) => return Ok((way, passed)),
                Err(reason) => passed.push(SkippedBackend { backend, reason }),
            }
        }
        Ok((OpenBackend::packet(permit, segments)?, passed))
    }

    fn packet(permit: &SendPermit, segments: bool) -> Result<OpenBackend, TransmitError> {
        let fail = |source: SyscallError| TransmitError::of_call(permit.name(), source);
        let if_index = permit.if_index();
        let socket = permit.run(|| FrameSocket::open(if_index)).and_then(|opened| opened).map_err(fail)?;
        permit.confirm()?;
        // A smaller buffer costs time at worst.
        let _ = socket.set_send_buffer(SEND_BUFFER);
        if segments {
            socket.set_vnet_header(true).map_err(fail)?;
        }
        Ok(OpenBackend::Packet(socket))
    }

    /// The other ways, or why not.
    fn fast(permit: &SendPermit, backend: Backend, segments: bool) -> Result<OpenBackend, String> {
        if segments {
            return Err("it cannot cut what is left to be segmented".to_owned());
        }
        let limit = Limit::of(permit);
        match backend {
            Backend::Live => {
                let live = permit.run(|| open_live(permit, limit)).map_err(|error| error.to_string())??;
                Ok(OpenBackend::Live(Box::new(live), limit))
            }
            _ => {
                let opened = permit.run(|| XdpSender::open(permit.if_index(), limit));
                let sender = opened.and_then(|opened| opened).map_err(|error| match error.errno() {
                    EBUSY => format!("{error}; another AF_XDP socket has the interface's first queue"),
                    EPERM => format!(
                        "{error}; it needs CAP_NET_RAW, and CAP_IPC_LOCK or a larger memory lock limit"
                    ),
                    _ => error.to_string(),
                })?;
                permit.confirm().map_err(|error| error.to_string())?;
                Ok(OpenBackend::Xdp(Box::new(sender), limit))
            }
        }
    }

    pub(super) fn backend(&self) -> Backend {
        match self {
            OpenBackend::Packet(_) => Backend::Packet,
            OpenBackend::Xdp(..) => Backend::Xdp,
            OpenBackend::Live(..) => Backend::Live,
        }
    }

    /// A remark about how it works here.
    pub(super) fn remark(&self) -> Option<&'static str> {
        match self {
            OpenBackend::Xdp(sender, _) if sender.is_zero_copy() => Some("zero copy"),
            OpenBackend::Xdp(..) => Some("copy mode"),
            _ => None,
        }
    }

    /// Hands frames over in order, up to the first that is refused. Returns how many were taken.
    ///
    /// # Errors
    /// Why the first was refused.
    pub(super) fn send<'a>(
        &mut self,
        frames: impl Iterator<Item = [&'a [u8]; PIECES_MAX]>,
    ) -> Result<usize, SyscallError> {
        match self {
            OpenBackend::Packet(socket) => socket.send(frames.take(FRAMES_PER_CALL)),
            OpenBackend::Xdp(sender, limit) => limit.guard(frames, |frames| sender.send(frames)),
            OpenBackend::Live(live, limit) => limit.guard(frames, |frames| live.send(frames)),
        }
    }

    /// As `send`; but with back ends that report frames for which the queue was full, those are lost, and later
    /// frames go all the same. Adds the outcome of the frames, in their order.
    pub(super) fn flood<'a>(
        &mut self,
        frames: impl Iterator<Item = [&'a [u8]; PIECES_MAX]>,
        handed: &mut Vec<SubmittedFrames>,
    ) -> Result<(), SyscallError> {
        match self {
            OpenBackend::Live(live, limit) => limit.guard(frames, |frames| {
                handed.extend_from_slice(live.flood(frames)?);
                Ok(())
            }),
            _ => self.send(frames).map(|taken| handed.push(SubmittedFrames { taken, lost: 0 })),
        }
    }

    /// Waits a little for room, after `errno` said that there is none.
    pub(super) fn wait_for_room(&self, is_full_socket: bool, most: Duration) -> io::Result<()> {
        match self {
            OpenBackend::Packet(socket) if is_full_socket => {
                socket.wait_for_room(most).map(drop).map_err(|error| error.source)
            }
            _ => {
                std::thread::sleep(PAUSE.min(most));
                Ok(())
            }
        }
    }

    /// Waits until the kernel has released all frames. Returns the number of frames at the end that were not sent,
    /// their bytes, and the error number, or 0.
    pub(super) fn finish(&mut self, timeout: Duration) -> (u64, u64, i32) {
        match self {
            OpenBackend::Xdp(sender, _) => sender.finish(timeout),
            _ => (0, 0, 0),
        }
    }

    /// Frames that the driver counts as dropped, and that were counted here as not taken.
    pub(super) fn dropped_and_told(&self) -> u64 {
        match self {
            OpenBackend::Live(live, _) => live.dropped(),
            _ => 0,
        }
    }
}

/// Only AF_PACKET goes through the queueing discipline that shapes or delays packets.
fn passes_no_discipline(permit: &SendPermit) -> Result<(), String> {
    match permit.chosen_discipline() {
        None => Ok(()),
        Some(name) => Err(format!("it goes past the queueing discipline ({name}) that the interface has")),
    }
}

/// Opens live frames if the interface takes them; in the interface's namespace.
fn open_live(permit: &SendPermit, limit: Limit) -> Result<LiveFrames, String> {
    let mut live =
        LiveFrames::open(permit.if_index(), limit.longest() + 1).map_err(|error| match &error {
            LiveFramesError::Call(call) if call.errno() == EINVAL => {
                format!("{error}; live frames need Linux 5.18")
            }
            LiveFramesError::Call(call) if call.errno() == EPERM => {
                format!("{error}; it needs CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON and CAP_SYS_ADMIN")
            }
            _ => error.to_string(),
        })?;
    permit.confirm().map_err(|error| error.to_string())?;
    if limit.longest() >= LiveFrames::room() {
        // No frame is too long to ask with: the first that is sent will tell.
        return Ok(live);
    }
    match live.ask(limit.longest() + 1) {
        Err(error) if error.errno() == EMSGSIZE => Ok(live),
        Err(error) if error.errno() == EOPNOTSUPP && permit.is_veth() => Err(
            "the other end of this veth takes no XDP frames: it does with GRO on (ethtool -K NAME gro on) or an XDP program".to_owned(),
        ),
        Err(error) if error.errno() == EOPNOTSUPP => {
            Err("the interface's driver takes no XDP frames (ndo_xdp_xmit)".to_owned())
        }
        // Whether it is up is for sending to tell.
        Err(error) if super::cause_of(error.errno()) == Some(LossCause::Down) => Ok(live),
        Err(error) => Err(error.to_string()),
        Ok(_) => Err("frames vanish: one that is longer than the interface sends was taken".to_owned()),
    }
}
