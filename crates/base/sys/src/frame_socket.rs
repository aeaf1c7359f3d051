//! Sending frames that lie in pieces, many in one call, without ever waiting in it.
//!
//! ```text
//! frame  := piece*                         up to three, one behind the other: a changed beginning, the rest where it was captured
//! send   := sendmmsg(frame*)               the kernel copies each frame and hands it to the interface at once
//! ```
//!
//! **Why not the ring** (`PACKET_TX_RING`), and why not past the queueing discipline. Measured on a veth whose other
//! end is in the same namespace, Linux 6.18, two busy processors; processor time of the sender, the receiver's
//! interrupt with it; medians of nine interleaved rounds of 100,000 frames, all of which arrived (`cargo run --release
//! -p tapline-sys --example transmit_rates`):
//!
//! ```text
//!                           60 bytes      1514 bytes
//! sendmmsg                  1840 ns       2114 ns
//! sendmmsg, bypass          1823 ns       2130 ns
//! ring                      1893 ns       2131 ns
//! ring, bypass              1877 ns       2170 ns
//! ```
//!
//! So neither buys speed here (nor did they in later rounds, compared with AF_XDP and live frames: docs/sending.md),
//! and each has its price. The ring's slots have one size, and frames must be copied into them first; here they go
//! from where they were captured. With the bypass no capture on the sending interface sees the frames (2,000 of 4,000
//! frames, those without it, were seen by tcpdump), a full queue drops where it would make us wait, and the kernel
//! does not cut what is left to be segmented.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::error::check;
use crate::{SyscallError, option};

/// Frames in one sendmmsg(2), at most.
pub const FRAMES_PER_CALL: usize = 256;

/// The most pieces that a frame may lie in.
pub const PIECES_MAX: usize = 3;

/// A socket that sends frames as they are on one interface, and receives nothing. Needs `CAP_NET_RAW` to open, nothing
/// afterwards.
#[derive(Debug)]
pub struct FrameSocket {
    fd: OwnedFd,
    vectors: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers in `vectors` and `headers` are only followed inside `send`, which sets them first.
unsafe impl Send for FrameSocket {}

impl FrameSocket {
    /// A socket on the interface of this number, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`; `ENODEV` if there is no such interface.
    pub fn open(if_index: u32) -> Result<FrameSocket, SyscallError> {
        // SAFETY: socket(2) takes integers only.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        let fd = check("socket(AF_PACKET)", fd)?;
        // SAFETY: the kernel has just returned this descriptor, and no other value owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: all-zero bytes are a valid sockaddr_ll. Its protocol stays 0: nothing is received, and the kernel
        // takes the protocol of what is sent from each frame's own header.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = if_index as c_int;
        let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: pointer and size describe `address`, which lives through the call.
        let result = unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), size) };
        check("bind(AF_PACKET)", result)?;
        let vectors = Vec::with_capacity(FRAMES_PER_CALL * PIECES_MAX);
        Ok(FrameSocket { fd, vectors, headers: Vec::with_capacity(FRAMES_PER_CALL) })
    }

    /// Goes past the queueing discipline, straight to the driver. Such frames are seen by no capture on this interface,
    /// and frames whose segmentation or checksum is left to the kernel are refused. Minimum kernel: 3.14.
    ///
    /// # Errors
    /// The error of setsockopt(2).
    pub fn set_qdisc_bypass(&self, enable: bool) -> Result<(), SyscallError> {
        const CALL: &str = "setsockopt(PACKET_QDISC_BYPASS)";
        option::set(self.as_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, CALL, &c_int::from(enable))
    }

    /// From now on a `struct virtio_net_hdr` (10 bytes, host byte order) precedes each frame, by which the kernel
    /// segments it.
    ///
    /// # Errors
    /// The error of setsockopt(2).
    pub fn set_vnet_header(&self, enable: bool) -> Result<(), SyscallError> {
        const CALL: &str = "setsockopt(PACKET_VNET_HDR)";
        option::set(self.as_fd(), libc::SOL_PACKET, libc::PACKET_VNET_HDR, CALL, &c_int::from(enable))
    }

    /// Requests a buffer for this many bytes of frames on their way, and returns its present size. Without
    /// `CAP_NET_ADMIN` it gets no more than `net.core.wmem_max`, which is not an error.
    ///
    /// # Errors
    /// The error of setsockopt(2) or getsockopt(2).
    pub fn set_send_buffer(&self, bytes: u32) -> Result<u32, SyscallError> {
        let value = bytes.min(i32::MAX as u32) as c_int;
        let (fd, level) = (self.as_fd(), libc::SOL_SOCKET);
        option::set(fd, level, libc::SO_SNDBUFFORCE, "setsockopt(SO_SNDBUFFORCE)", &value)
            .or_else(|_| option::set(fd, level, libc::SO_SNDBUF, "setsockopt(SO_SNDBUF)", &value))?;
        let now: c_int = option::get(fd, level, libc::SO_SNDBUF, "getsockopt(SO_SNDBUF)")?;
        Ok(now as u32)
    }

    /// Hands frames to the kernel in order, without waiting, up to the first that it refuses; at most
    /// [`FRAMES_PER_CALL`] are looked at. Returns how many it took.
    ///
    /// # Errors
    /// The reason that the *first* frame was refused: `ENOBUFS` or `EAGAIN` when a queue is full, `EMSGSIZE` for a
    /// frame longer than the interface sends, `ENETDOWN`, `ENXIO`, `EINVAL` for bytes that are not a frame. This call
    /// does not report a later one: the next call, which begins with it, does.
    pub fn send<'a>(
        &mut self,
        frames: impl Iterator<Item = [&'a [u8]; PIECES_MAX]>,
    ) -> Result<usize, SyscallError> {
        self.vectors.clear();
        self.headers.clear();
        let pieces = frames.take(FRAMES_PER_CALL).flatten();
        let vector = |p: &'a [u8]| libc::iovec { iov_base: p.as_ptr().cast_mut().cast(), iov_len: p.len() };
        self.vectors.extend(pieces.map(vector));
        for pieces in self.vectors.chunks_mut(PIECES_MAX) {
            // SAFETY: all-zero bytes are a valid mmsghdr.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_iov = pieces.as_mut_ptr();
            header.msg_hdr.msg_iovlen = pieces.len() as _;
            self.headers.push(header);
        }
        let (pointer, count) = (self.headers.as_mut_ptr(), self.headers.len() as libc::c_uint);
        // SAFETY: `count` headers, each with its vectors in `self.vectors`, which does not change before the call ends,
        // over pieces that are borrowed for 'a, which outlives the call. The kernel only reads the frames.
        let result = unsafe { libc::sendmmsg(self.fd.as_raw_fd(), pointer, count, libc::MSG_DONTWAIT as _) };
        check("sendmmsg(AF_PACKET)", result).map(|sent| sent as usize)
    }

    /// Waits until the socket has room for more, or `wait` is over. Returns whether it has; a signal ends the wait
    /// without.
    ///
    /// # Errors
    /// The error of ppoll(2).
    pub fn wait_for_room(&self, wait: Duration) -> Result<bool, SyscallError> {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        let timeout = libc::timespec {
            tv_sec: libc::time_t::try_from(wait.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        };
        // SAFETY: one pollfd, which the kernel may write to; `timeout` lives through the call; no signal mask is given.
        let result = unsafe { libc::ppoll(&mut poll, 1, &timeout, std::ptr::null()) };
        match check("ppoll", result) {
            Ok(_) => Ok(poll.revents & libc::POLLOUT != 0),
            Err(error) if error.errno() == libc::EINTR => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for FrameSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
