//! Sending whole frames through AF_PACKET, many in one call, and counting what the kernel took.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::error::check;
use crate::{SyscallError, option};

/// Frames in one sendmmsg(2).
const FRAMES_PER_CALL: usize = 64;

/// A socket that sends frames as they are on one interface. Needs `CAP_NET_RAW` to open.
#[derive(Debug)]
pub struct PacketSender {
    fd: OwnedFd,
    vectors: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

// SAFETY: the pointers in `vectors` and `headers` are only followed inside `send`, which sets them first.
unsafe impl Send for PacketSender {}

impl PacketSender {
    /// A sender on the interface of this number. It receives nothing.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`; `ENODEV` if there is no such interface.
    pub fn open(if_index: u32) -> Result<PacketSender, SyscallError> {
        // SAFETY: socket(2) takes integers only.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        let fd = check("socket(AF_PACKET)", fd)?;
        // SAFETY: the kernel just gave us this descriptor, and nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: all-zero bytes are a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = if_index as c_int;
        let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: pointer and size describe `address`, which lives through the call.
        let result = unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), size) };
        check("bind(AF_PACKET)", result)?;
        let (vectors, headers) = (Vec::with_capacity(FRAMES_PER_CALL), Vec::with_capacity(FRAMES_PER_CALL));
        Ok(PacketSender { fd, vectors, headers })
    }

    /// Goes past the queueing discipline, straight to the driver. Minimum kernel: 3.14.
    ///
    /// # Errors
    /// What setsockopt(2) says.
    pub fn set_qdisc_bypass(&self, enable: bool) -> Result<(), SyscallError> {
        const CALL: &str = "setsockopt(PACKET_QDISC_BYPASS)";
        option::set(self.as_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, CALL, &c_int::from(enable))
    }

    /// Sends frames in order until all are sent or one is refused. Returns how many the kernel took.
    ///
    /// # Errors
    /// Why the first frame was refused, if it was: `ENOBUFS` when the interface's queue is full, `EMSGSIZE` for a frame
    /// longer than its MTU allows, `ENETDOWN`.
    pub fn send(&mut self, frames: &[&[u8]]) -> Result<usize, SyscallError> {
        let mut sent = 0;
        for some in frames.chunks(FRAMES_PER_CALL) {
            match self.send_some(some) {
                Ok(count) if count == some.len() => sent += count,
                Ok(count) => return Ok(sent + count),
                Err(error) if sent == 0 => return Err(error),
                Err(_) => return Ok(sent),
            }
        }
        Ok(sent)
    }

    fn send_some(&mut self, frames: &[&[u8]]) -> Result<usize, SyscallError> {
        self.vectors.clear();
        self.headers.clear();
        let vector = |f: &&[u8]| libc::iovec { iov_base: f.as_ptr().cast_mut().cast(), iov_len: f.len() };
        self.vectors.extend(frames.iter().map(vector));
        for vector in &mut self.vectors {
            // SAFETY: all-zero bytes are a valid mmsghdr.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            self.headers.push(header);
        }
        let (pointer, count) = (self.headers.as_mut_ptr(), self.headers.len() as libc::c_uint);
        // SAFETY: `count` headers, each with one vector in `self.vectors`, which does not change before the call ends,
        // over a frame that is borrowed for as long. The kernel only reads the frames.
        let result = unsafe { libc::sendmmsg(self.fd.as_raw_fd(), pointer, count, 0) };
        check("sendmmsg(AF_PACKET)", result).map(|sent| sent as usize)
    }
}

impl AsFd for PacketSender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
