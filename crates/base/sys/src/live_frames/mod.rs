//! Frames that the kernel makes of its own pages and hands to a driver: XDP live frames.
//!
//! ```text
//! frames --copy--> slots (an array that program and we share) --run--> the kernel takes a page, `fill` stores the next slot in it
//!                                                                       --16 of them--> ndo_xdp_xmit of the driver
//!                  state <--sent, refused, why-- tracepoints <-------------------------'
//! ```
//!
//! No socket buffer is made, no queueing discipline asked; no capture on the sending interface sees such frames. Only
//! a tracepoint reports which frames of a batch a driver dropped, so the counts come from there: `sent` is the number
//! that the driver took, which the kernel reports for each 16 frames.
//!
//! **Order.** A batch is 16 frames, as many as the kernel hands to a driver at once. With larger ones the seventeenth
//! is taken in before the outcome of the sixteen before it is known, and would overtake them if some were refused.
//! After the first refusal no frame of a run goes any more: the sent frames are always the beginning of what was
//! given. [`flood`](LiveFrames::flood) is a wire instead: what finds no room is lost, and the rest goes all the same.
//!
//! **Why the program is attached.** Before and after a run the kernel puts a program that runs more than once into its
//! table of XDP programs that are called without a detour (`bpf_dispatcher_change_prog`), and waits each time until no
//! processor can see the old table: 25 ms a run were measured, whatever the number of frames. A program that is
//! attached anywhere is in the table already. So ours is attached to the loopback interface of an empty namespace,
//! where nothing ever passes.

mod programs;

use std::os::fd::{AsFd, AsRawFd};

use crate::bpf::{
    LoadError, LoadedProgram, Map, MapKind, ProgramKind, SharedArray, TracepointLink, XdpLink, XdpMode,
};
use crate::{NetNs, PIECES_MAX, SyscallError};
use programs::{DATA_AT, LEN_MIN, Maps, word};

/// Frames in one run, at most: larger runs are not faster (docs/sending.md has 64 and 256).
pub const LIVE_FRAMES_PER_RUN: usize = crate::FRAMES_PER_CALL;
/// Frames that the kernel hands to a driver at once: `DEV_MAP_BULK_SIZE`.
const BATCH: u32 = 16;
/// The kernel's part of a page in addition to the frame: headroom 256, its own notes about 150, `struct
/// skb_shared_info` 320; and some for later kernels.
const PAGE_RESERVE: usize = 1024;
/// So often a run is begun again that a signal ended before its first frame.
const TRIES_MAX: usize = 100;
/// The driver's part that refuses frames, for errors.
const CALL: &str = "ndo_xdp_xmit";
/// The loopback interface is the first of each namespace.
const LOOPBACK: u32 = 1;

/// The reason that frames cannot be sent so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveFramesError {
    /// A program was not loaded.
    #[error("{0}")]
    Load(#[source] LoadError),
    /// The kernel has no live frames, or something else was refused.
    #[error("{0}")]
    Call(#[source] SyscallError),
}

impl From<LoadError> for LiveFramesError {
    fn from(error: LoadError) -> LiveFramesError {
        LiveFramesError::Load(error)
    }
}

impl From<SyscallError> for LiveFramesError {
    fn from(error: SyscallError) -> LiveFramesError {
        LiveFramesError::Call(error)
    }
}

/// Counts of frames in their order: the driver took the first of them, and its queue was full for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubmittedFrames {
    /// Frames taken.
    pub taken: usize,
    /// Frames lost after these.
    pub lost: usize,
}

impl SubmittedFrames {
    fn of_word(word: u64) -> SubmittedFrames {
        SubmittedFrames { taken: word as u32 as usize, lost: (word >> 32) as usize }
    }
}

/// Sends frames on one interface through live frames. Needs `CAP_BPF`, `CAP_NET_ADMIN`, `CAP_PERFMON` and
/// `CAP_SYS_ADMIN` to open; nothing afterwards on kernels from 5.19 on. Minimum kernel: 5.18. All of it is gone when
/// this is dropped, and when the process dies.
#[derive(Debug)]
pub struct LiveFrames {
    state: SharedArray,
    slots: SharedArray,
    program: LoadedProgram,
    /// The first bytes of every frame, before the program stores its own: as long as the longest that can be sent.
    blank: Vec<u8>,
    /// Frames that found the driver's queue full, those that were sent in the end too.
    dropped: u64,
    /// The fate of the last run.
    handed: Vec<SubmittedFrames>,
    _devices: Map,
    _listeners: [TracepointLink; 2],
    _attached: (XdpLink, NetNs),
}

impl LiveFrames {
    /// The longest frame that a page holds, in bytes.
    pub fn room() -> u32 {
        crate::usage::page_len().saturating_sub(PAGE_RESERVE) as u32
    }

    /// For the interface of this number, in the network namespace of the calling thread, and frames of up to
    /// `frame_max` bytes (at most [`room`](Self::room)).
    ///
    /// # Errors
    /// Without the rights; on a kernel without live frames; if there is no such interface. [`ask`](Self::ask) finds
    /// out whether the interface can send such frames.
    pub fn open(if_index: u32, frame_max: u32) -> Result<LiveFrames, LiveFramesError> {
        let frame_max = frame_max.clamp(LEN_MIN, LiveFrames::room());
        // A cache line more than a multiple of a larger power of two would be: so slots spread over the cache.
        let slot_len = (frame_max + DATA_AT as u32).next_multiple_of(64) | 64;
        let state = SharedArray::create("live_state", (word::COUNT * size_of::<u64>()) as u32, 1)?;
        let slots = SharedArray::create("live_slots", slot_len, LIVE_FRAMES_PER_RUN as u32)?;
        let devices = Map::create(MapKind::Devices, "live_device", 1)?;
        devices.set_interface(0, if_index)?;
        let maps = Maps {
            state: state.as_fd().as_raw_fd(),
            slots: slots.as_fd().as_raw_fd(),
            devices: devices.as_fd().as_raw_fd(),
        };
        let program = LoadedProgram::load(ProgramKind::Xdp, "live_fill", &programs::fill(maps, frame_max))?;
        let listen = |name, insns: &[_], at| -> Result<TracepointLink, LiveFramesError> {
            let program = LoadedProgram::load(ProgramKind::RawTracepoint, name, insns)?;
            Ok(TracepointLink::attach(&program, at)?)
        };
        let listeners = [
            listen("live_told", &programs::told(maps), c"xdp_devmap_xmit")?,
            listen("live_failed", &programs::failed(maps), c"xdp_redirect_err")?,
        ];
        let nowhere = NetNs::unnamed()?;
        let attached = nowhere.run(|| XdpLink::attach(&program, LOOPBACK, XdpMode::Generic))??;
        let live = LiveFrames {
            state,
            slots,
            program,
            blank: vec![0; frame_max as usize],
            dropped: 0,
            handed: Vec::with_capacity(word::BATCHES_MAX),
            _devices: devices,
            _listeners: listeners,
            _attached: (attached, nowhere),
        };
        // One frame that the program drops, for there is nothing to send.
        live.program.run_live(&live.blank[..LEN_MIN as usize], 1, 1)?;
        Ok(live)
    }

    /// Finds out whether the interface can send such frames, with one of `len` bytes that is longer than it sends: so
    /// it refuses that, or everything. Nothing leaves.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if its driver takes no such frames; `EMSGSIZE` if it would take others.
    pub fn ask(&mut self, len: u32) -> Result<usize, SyscallError> {
        let frame = vec![0; len as usize];
        self.send(std::iter::once([frame.as_slice(), &[], &[]]))
    }

    /// Frames that found the driver's queue full so far, those that were sent in the end too. Drivers count them as
    /// dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Hands frames to the interface in order, without waiting, up to the first that is refused; at most
    /// [`LIVE_FRAMES_PER_RUN`] are looked at. Returns how many the driver took.
    ///
    /// # Errors
    /// The reason that the *first* frame was refused: `ENOBUFS` when the driver's queue is full, `EMSGSIZE` for a
    /// frame longer than the interface sends or than fits, `ENETDOWN`, `ENXIO` if the interface is gone, `EOPNOTSUPP`
    /// if its driver takes no such frames (a veth whose other end has neither an XDP program nor GRO on), `EINVAL`
    /// for less than 14 bytes. This call does not report a later one: the next call, which begins with it, does.
    pub fn send<'a>(
        &mut self,
        frames: impl Iterator<Item = [&'a [u8]; PIECES_MAX]>,
    ) -> Result<usize, SyscallError> {
        let Some((count, first_len)) = self.put_all(frames)? else { return Ok(0) };
        self.run(count, first_len, false)?;
        match self.handed.iter().map(|handed| handed.taken).sum() {
            0 if !self.handed.is_empty() => Err(SyscallError::from_errno(CALL, libc::ENOBUFS)),
            taken => Ok(taken),
        }
    }

    /// Hands frames to the interface in order; a frame that finds the driver's queue full is lost, and later ones go
    /// all the same. At most [`LIVE_FRAMES_PER_RUN`] are looked at. Returns their outcome, up to the first that was
    /// refused for another reason.
    ///
    /// # Errors
    /// As of [`send`](Self::send); `ENOBUFS` only while the kernel has no number for the pages of another run.
    pub fn flood<'a>(
        &mut self,
        frames: impl Iterator<Item = [&'a [u8]; PIECES_MAX]>,
    ) -> Result<&[SubmittedFrames], SyscallError> {
        match self.put_all(frames)? {
            Some((count, first_len)) => self.run(count, first_len, true)?,
            None => self.handed.clear(),
        }
        Ok(&self.handed)
    }

    /// Copies frames to slots, up to the first that cannot be sent. Gives their number and the length of the first;
    /// `None` if there are none.
    fn put_all<'a>(
        &mut self,
        frames: impl Iterator<Item = [&'a [u8]; PIECES_MAX]>,
    ) -> Result<Option<(usize, usize)>, SyscallError> {
        let mut put = None;
        for pieces in frames.take(LIVE_FRAMES_PER_RUN) {
            let count = put.map_or(0, |(count, _)| count);
            match self.put(count, &pieces) {
                Ok(len) => put = Some((count + 1, put.map_or(len, |(_, first_len)| first_len))),
                Err(errno) if put.is_none() => return Err(SyscallError::from_errno("live frames", errno)),
                Err(_) => break,
            }
        }
        Ok(put)
    }

    /// Copies a frame to a slot. Gives its length, or why it cannot be sent.
    fn put(&mut self, slot: usize, pieces: &[&[u8]; PIECES_MAX]) -> Result<usize, i32> {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        if len < LEN_MIN as usize {
            return Err(libc::EINVAL);
        }
        if len > self.blank.len() {
            return Err(libc::EMSGSIZE);
        }
        let mut at = DATA_AT;
        for piece in pieces {
            self.slots.write(slot, at, piece);
            at += piece.len();
        }
        self.slots.set_word(slot, 0, len as u64);
        Ok(len)
    }

    /// Runs the program on `count` frames, and notes the fate of each, up to the first that was refused for another
    /// reason than a full queue. If that is the first of all, it is the error.
    fn run(&mut self, count: usize, first_len: usize, goes_on: bool) -> Result<(), SyscallError> {
        for number in 0..word::HANDED {
            self.state.set_word(0, number, 0);
        }
        self.state.set_word(0, word::END, count as u64);
        self.state.set_word(0, word::GOES_ON, goes_on.into());
        let mut outcome = Ok(());
        for _ in 0..TRIES_MAX {
            outcome = self.program.run_live(&self.blank[..first_len], count as u32, BATCH);
            let is_begun = self.state.word(0, word::NEXT) > 0;
            if is_begun || !outcome.as_ref().is_err_and(|error| error.errno() == libc::EINTR) {
                break;
            }
        }
        let word = |number| self.state.word(0, number);
        let batches = word(word::BATCHES) as usize;
        // Whatever the kernel did not tell of was not sent as far as anybody knows.
        if word(word::NEXT) != word(word::TOLD) || batches > word::BATCHES_MAX {
            return Err(SyscallError::from_errno(CALL, libc::EIO));
        }
        self.handed.clear();
        self.handed.extend((0..batches).map(|batch| SubmittedFrames::of_word(word(word::HANDED + batch))));
        self.dropped += self.handed.iter().map(|handed| handed.lost as u64).sum::<u64>();
        match word(word::REFUSED) {
            _ if !self.handed.is_empty() => Ok(()),
            0 => outcome.map_err(full_when_out_of_numbers),
            _ => Err(SyscallError::from_errno(CALL, (word(word::ERROR) as i64 as i32).saturating_neg())),
        }
    }
}

/// Each run has a pool of pages, and the kernel a number for each pool: 65,534 at a time. A pool whose frames are still
/// under way when the run ends is looked at again a second later, so tens of thousands of short runs in a second use up
/// all numbers (`ENOSPC`). That is a queue which is full, and which has room soon.
fn full_when_out_of_numbers(error: SyscallError) -> SyscallError {
    match error.errno() {
        libc::ENOSPC => SyscallError::from_errno(error.call, libc::ENOBUFS),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf;

    #[test]
    fn runs_without_a_number_find_a_full_queue() {
        let errno = |given| full_when_out_of_numbers(SyscallError::from_errno("bpf", given)).errno();
        assert_eq!([libc::ENOSPC, libc::EPERM].map(errno), [libc::ENOBUFS, libc::EPERM]);
    }

    /// An empty namespace, whose loopback interface takes no XDP frames.
    #[test]
    fn refused_frames_have_a_reason_and_no_effect() {
        if let Err(error) = bpf::probe(ProgramKind::Xdp) {
            return eprintln!("skipped: refused_frames_have_a_reason_and_no_effect: {error}");
        }
        let Ok(namespace) = NetNs::unnamed() else {
            return eprintln!("skipped: no right to make a namespace");
        };
        let mut live = match namespace.run(|| LiveFrames::open(LOOPBACK, 100)).unwrap() {
            Ok(live) => live,
            Err(LiveFramesError::Call(error)) if error.errno() == libc::EINVAL => {
                return eprintln!("skipped: no live frames before Linux 5.18");
            }
            Err(error) => panic!("{error}"),
        };
        let mut send = |lens: &[usize]| {
            let frames: Vec<Vec<u8>> = lens.iter().map(|len| vec![1; *len]).collect();
            live.send(
                frames.iter().map(|frame| [&frame[..7.min(frame.len())], frame.get(7..).unwrap_or(&[]), &[]]),
            )
            .map_err(|error| error.errno())
        };
        assert_eq!(send(&[]), Ok(0));
        assert_eq!(send(&[13, 60]), Err(libc::EINVAL));
        assert_eq!(send(&[101, 60]), Err(libc::EMSGSIZE));
        for lens in [&[60][..], &[60, 13], &[14, 100, 60, 99], &[64; 300]] {
            assert_eq!(send(lens), Err(libc::EOPNOTSUPP), "{lens:?}");
        }
        let frame = [1; 60];
        let flood = |live: &mut LiveFrames, count| {
            let frames = std::iter::repeat_n([&frame[..], &[], &[]], count);
            live.flood(frames).map(<[SubmittedFrames]>::to_vec).map_err(|error| error.errno())
        };
        assert_eq!(flood(&mut live, 0), Ok(Vec::new()));
        assert_eq!(flood(&mut live, 300), Err(libc::EOPNOTSUPP), "not even a wire would take them");
        assert_eq!((live.ask(90).map_err(|e| e.errno()), live.dropped()), (Err(libc::EOPNOTSUPP), 0));
        assert!(namespace.run(|| LiveFrames::open(99, 100)).unwrap().is_err(), "there is no such interface");
    }
}
