//! UDP sockets that receive many datagrams in one call, and count their losses.
//!
//! ```text
//! memory := slot*           slot := headroom | datagram | rest           recvmmsg(2) fills one slot a datagram
//! lost   := sk_drops        SO_MEMINFO: no room in the receive buffer, wrong checksums
//! ```

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use crate::{SyscallError, option};

/// Datagrams in one recvmmsg(2), at most.
pub const DATAGRAMS_PER_CALL: usize = 64;

/// `SO_MEMINFO` (linux/sock_diag.h), which libc does not have; its ninth word counts drops.
const SO_MEMINFO: c_int = 55;
const MEMINFO_DROPS: usize = 8;
/// `BPF_RET | BPF_K` with 0: nothing passes.
const RETURN_K: u16 = 0x06;

/// A datagram that was received.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedDatagram {
    /// Octets of the datagram in its slot, behind the headroom.
    pub len: usize,
    /// Whether it was longer than its slot: the rest is lost.
    pub is_cut: bool,
    /// Sender of the datagram.
    pub from: SocketAddr,
}

/// A UDP socket that receives.
#[derive(Debug)]
pub struct DatagramSocket {
    socket: UdpSocket,
    local: SocketAddr,
    vectors: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
    names: Vec<libc::sockaddr_storage>,
    /// The kernel's counter of drops, which wraps, as it was read last, and the sum.
    drops: (u32, u64),
}

// SAFETY: the pointers in `vectors` and `headers` are only followed inside `receive`, which sets them first.
unsafe impl Send for DatagramSocket {}

impl DatagramSocket {
    /// A socket on this address, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// `EADDRINUSE` if another socket has it, `EACCES` for a port that needs rights.
    pub fn bind(address: SocketAddr) -> Result<DatagramSocket, SyscallError> {
        let bound = UdpSocket::bind(address).and_then(|socket| Ok((socket.local_addr()?, socket)));
        let (local, socket) = bound.map_err(|source| SyscallError { call: "bind(UDP)", source })?;
        let nonblocking = socket.set_nonblocking(true);
        nonblocking.map_err(|source| SyscallError { call: "fcntl(O_NONBLOCK)", source })?;
        // SAFETY: all-zero bytes are a valid sockaddr_storage.
        let name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        Ok(DatagramSocket {
            socket,
            local,
            vectors: Vec::with_capacity(DATAGRAMS_PER_CALL),
            headers: Vec::with_capacity(DATAGRAMS_PER_CALL),
            names: vec![name; DATAGRAMS_PER_CALL],
            drops: (0, 0),
        })
    }

    /// The address that it is bound to, with the port that the system chose for port 0.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Requests a buffer for this many bytes of waiting datagrams, and returns its present size. Without
    /// `CAP_NET_ADMIN` it gets no more than `net.core.rmem_max`, which is not an error.
    ///
    /// # Errors
    /// The error of setsockopt(2) or getsockopt(2).
    pub fn set_receive_buffer(&self, bytes: u32) -> Result<u32, SyscallError> {
        // The kernel doubles the value, for what each datagram takes beside its octets.
        let value = bytes.min(i32::MAX as u32 / 2) as c_int;
        let (fd, level) = (self.as_fd(), libc::SOL_SOCKET);
        option::set(fd, level, libc::SO_RCVBUFFORCE, "setsockopt(SO_RCVBUFFORCE)", &value)
            .or_else(|_| option::set(fd, level, libc::SO_RCVBUF, "setsockopt(SO_RCVBUF)", &value))?;
        let now: c_int = option::get(fd, level, libc::SO_RCVBUF, "getsockopt(SO_RCVBUF)")?;
        Ok(now as u32 / 2)
    }

    /// Lets no datagram in from now on; those that wait are still received.
    ///
    /// # Errors
    /// The error of setsockopt(2).
    pub fn refuse_all(&self) -> Result<(), SyscallError> {
        const CALL: &str = "setsockopt(SO_ATTACH_FILTER)";
        let mut drop_all = libc::sock_filter { code: RETURN_K, jt: 0, jf: 0, k: 0 };
        let program = libc::sock_fprog { len: 1, filter: &mut drop_all };
        let size = size_of::<libc::sock_fprog>() as libc::socklen_t;
        let value = std::ptr::from_ref(&program).cast();
        let fd = self.socket.as_raw_fd();
        // SAFETY: `value` points to a sock_fprog, and its `filter` to one instruction; both live through the call, and
        // the kernel only reads them.
        let result = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, value, size) };
        crate::error::check(CALL, result).map(|_| ())
    }

    /// Datagrams that the kernel dropped since the socket was opened. To be called once in a while: the kernel's counter
    /// has 32 bits. Minimum kernel: 4.12; before, 0.
    pub fn drops(&mut self) -> u64 {
        let words: Result<[u32; 9], _> =
            option::get(self.as_fd(), libc::SOL_SOCKET, SO_MEMINFO, "getsockopt(SO_MEMINFO)");
        let (before, sum) = &mut self.drops;
        if let Ok(words) = words {
            *sum += u64::from(words[MEMINFO_DROPS].wrapping_sub(*before));
            *before = words[MEMINFO_DROPS];
        }
        *sum
    }

    /// Receives datagrams that wait, without waiting, into slots of `slot` bytes of `memory`, each behind `headroom`
    /// bytes; at most [`DATAGRAMS_PER_CALL`], and as many as there are slots. `out` has them in the order of the slots.
    ///
    /// # Errors
    /// The error of recvmmsg(2); that none waits is none.
    pub fn receive(
        &mut self,
        memory: &mut [u8],
        slot: usize,
        headroom: usize,
        out: &mut Vec<ReceivedDatagram>,
    ) -> Result<(), SyscallError> {
        out.clear();
        self.vectors.clear();
        self.headers.clear();
        let slots = memory.chunks_exact_mut(slot.max(1)).take(DATAGRAMS_PER_CALL);
        for memory in slots {
            let room = memory.get_mut(headroom..).unwrap_or_default();
            self.vectors.push(libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() });
        }
        for (vector, name) in self.vectors.iter_mut().zip(&mut self.names) {
            // SAFETY: all-zero bytes are a valid mmsghdr.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_name = std::ptr::from_mut(name).cast();
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            self.headers.push(header);
        }
        let (headers, count) = (self.headers.as_mut_ptr(), self.headers.len() as libc::c_uint);
        // SAFETY: `headers` points to `count` mmsghdr. Each has one iovec, of a part of `memory` of its own, and room
        // for an address in `names`; `vectors` and `names` are not touched until the call returns.
        let received = unsafe {
            // The flags are a signed number in glibc, an unsigned one in musl.
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                headers,
                count,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let received = match crate::error::check("recvmmsg", received) {
            Ok(received) => received as usize,
            Err(error) if matches!(error.errno(), libc::EAGAIN | libc::EINTR) => 0,
            Err(error) => return Err(error),
        };
        for (header, name) in self.headers.iter().zip(&self.names).take(received) {
            out.push(ReceivedDatagram {
                len: header.msg_len as usize,
                is_cut: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
                from: address(name),
            });
        }
        Ok(())
    }
}

impl AsFd for DatagramSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The address that the kernel wrote. IPv4 in an IPv6 socket is IPv4.
fn address(name: &libc::sockaddr_storage) -> SocketAddr {
    let pointer = std::ptr::from_ref(name);
    match c_int::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: a sockaddr_storage has the size and the alignment of every address, and the family says which.
            let v4 = unsafe { &*pointer.cast::<libc::sockaddr_in>() };
            let address = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            SocketAddr::new(address.into(), u16::from_be(v4.sin_port))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { &*pointer.cast::<libc::sockaddr_in6>() };
            let address = IpAddr::from(Ipv6Addr::from(v6.sin6_addr.s6_addr)).to_canonical();
            SocketAddr::new(address, u16::from_be(v6.sin6_port))
        }
        _ => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &mut DatagramSocket, memory: &mut [u8], slot: usize) -> Vec<ReceivedDatagram> {
        let mut out = Vec::new();
        socket.receive(memory, slot, 4, &mut out).unwrap();
        out
    }

    #[test]
    fn datagrams_lie_behind_their_headroom() {
        let mut socket = DatagramSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut memory = [0; 3 * 10];
        assert!(received(&mut socket, &mut memory, 10).is_empty());
        for datagram in ["one", "longer", "three", "four"] {
            sender.send_to(datagram.as_bytes(), socket.local()).unwrap();
        }
        let first = received(&mut socket, &mut memory, 10);
        let of = |at: usize, memory: &[u8]| memory[at * 10 + 4..][..first[at].len].to_vec();
        assert_eq!(
            [0, 1, 2].map(|at| of(at, &memory)),
            [b"one".to_vec(), b"longer".to_vec(), b"three".to_vec()]
        );
        assert_eq!((first.len(), first[0].from), (3, sender.local_addr().unwrap()));
        assert!(!first.iter().any(|datagram| datagram.is_cut));
        let second = received(&mut socket, &mut memory[..7], 7);
        assert_eq!((second.len(), second[0].len, second[0].is_cut), (1, 3, true));
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let mut socket = DatagramSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        assert!(socket.set_receive_buffer(4096).unwrap() >= 1);
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..200 {
            sender.send_to(&[7; 1000], socket.local()).unwrap();
        }
        socket.refuse_all().unwrap();
        let lost = socket.drops();
        sender.send_to(&[7; 1000], socket.local()).unwrap();
        let (mut memory, mut count) = (vec![0; 64 * 2000], 0);
        loop {
            match received(&mut socket, &mut memory, 2000).len() {
                0 => break,
                some => count += some as u64,
            }
        }
        assert!(lost > 0 && count > 0);
        assert_eq!(count + lost, 200);
    }
}
