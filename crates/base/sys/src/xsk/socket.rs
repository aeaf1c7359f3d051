//! The socket with its memory and its four rings.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::chunks::{ChunkId, Chunks, Owner};
use super::memory::Mapping;
use super::ring::{Consumer, Entry, Layout, Producer};
use crate::error::{check, check_len};
use crate::{SyscallError, option};

const AF_XDP: c_int = 44;

/// The longest that a queue may take to be released, and the pause between two attempts.
const RELEASE: Duration = Duration::from_secs(2);
const RELEASE_PAUSE: Duration = Duration::from_millis(5);

// asm-generic/socket.h
const SO_BUSY_POLL: c_int = 46;
const SO_PREFER_BUSY_POLL: c_int = 69;
const SO_BUSY_POLL_BUDGET: c_int = 70;

// SAFETY: sixteen 64-bit integers.
unsafe impl option::Plain for libc::xdp_mmap_offsets {}
// SAFETY: 8 + 8 + 4 + 4 bytes of integers.
unsafe impl option::Plain for libc::xdp_umem_reg_v1 {}
// SAFETY: six 64-bit integers.
unsafe impl option::Plain for libc::xdp_statistics {}
// SAFETY: one integer.
unsafe impl option::Plain for libc::xdp_options {}

/// The memory and the rings of a socket. Lengths of rings are powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XskSettings {
    /// Bytes of a chunk: 2048 or 4096. The kernel keeps [`XdpSocket::HEADROOM`] of them for itself when it writes a
    /// packet.
    pub chunk_len: u32,
    /// Chunks, at least one.
    pub chunks: u32,
    /// Entries of the fill ring: the most chunks that the kernel has for packets to come.
    pub fill_len: u32,
    /// Entries of the completion ring: at least as many as may be on their way out.
    pub completion_len: u32,
    /// Entries of the RX ring; 0 for a socket that only sends.
    pub rx_len: u32,
    /// Entries of the TX ring; 0 for a socket that only receives.
    pub tx_len: u32,
    /// Take huge pages if there are any.
    pub huge_pages: bool,
}

/// The modes in which a socket was bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundModes {
    /// The driver writes packets to our memory itself (`XDP_OPTIONS_ZEROCOPY`); else the kernel copies them.
    pub zero_copy: bool,
    /// Packets may come in several chunks. Minimum kernel: 6.6.
    pub multi_buffer: bool,
}

/// The counters of `XDP_STATISTICS` since the socket was opened. Minimum kernel: 5.9 for all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XskStatistics {
    /// Packets dropped: no chunk was there to copy them to, or they were too long.
    pub rx_dropped: u64,
    /// Packets dropped because the RX ring was full.
    pub rx_ring_full: u64,
    /// Times that the kernel found the fill ring empty. In copy mode each such packet is in `rx_dropped` too; with
    /// zero copy the driver tries again, and packets lost meanwhile are lost in the card.
    pub rx_fill_ring_empty: u64,
    /// Descriptors in the RX ring that the kernel found wrong.
    pub rx_invalid: u64,
    /// Descriptors in the TX ring that the kernel found wrong.
    pub tx_invalid: u64,
    /// Times that the kernel found the TX ring empty.
    pub tx_ring_empty: u64,
}

/// Polling the driver from the program instead of by interrupts. Minimum kernel: 5.11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPolling {
    /// Microseconds for which a call polls at most (`SO_BUSY_POLL`).
    pub poll_us: u32,
    /// Packets that one poll takes at most (`SO_BUSY_POLL_BUDGET`).
    pub budget: u32,
}

/// One chunk's part of a packet that was received. The chunk is held until it is [given back](XdpSocket::give_back).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Chunk of the frame.
    pub chunk: ChunkId,
    /// The first byte, from the start of the [memory](XdpSocket::memory).
    pub offset: usize,
    /// Bytes; they all lie in the chunk.
    pub len: u32,
    /// The packet goes on in the next frame.
    pub is_continued: bool,
}

/// An AF_XDP socket, the memory that it shares with the kernel, and the owner of each chunk.
///
/// Needs `CAP_NET_RAW` to open, and `CAP_IPC_LOCK` or a large enough `RLIMIT_MEMLOCK`; nothing afterwards. Minimum
/// kernel: 5.4.
#[derive(Debug)]
pub struct XdpSocket {
    // Fields are dropped in this order: the socket goes first.
    fd: OwnedFd,
    fill: Producer<u64>,
    completion: Consumer<u64>,
    rx: Option<Consumer<libc::xdp_desc>>,
    tx: Option<Producer<libc::xdp_desc>>,
    chunks: Chunks,
    settings: XskSettings,
    scratch_len: usize,
    is_huge: bool,
    /// Descriptors of the kernel's that named no chunk which it had.
    refused: u64,
    umem: Mapping,
}

impl XdpSocket {
    /// Bytes at the start of a chunk that the kernel keeps free before a packet that it writes there
    /// (`XDP_PACKET_HEADROOM`).
    pub const HEADROOM: u32 = 256;

    /// A socket with its memory and rings, not bound to anything. All chunks are free: [`refill`](Self::refill) comes
    /// next.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`; `EAFNOSUPPORT` from a kernel without AF_XDP; `ENOBUFS` from `XDP_UMEM_REG` if so
    /// much memory may not be locked; `ENOMEM`; `EINVAL` for lengths that the kernel does not take.
    pub fn open(settings: &XskSettings) -> Result<XdpSocket, SyscallError> {
        XdpSocket::open_with_scratch(settings, 0)
    }

    /// Opens a socket with `scratch_len` bytes behind the chunks that are never the kernel's: room to join packets
    /// that came in several buffers.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_with_scratch(settings: &XskSettings, scratch_len: usize) -> Result<XdpSocket, SyscallError> {
        let len = settings.chunk_len as usize * settings.chunks as usize;
        if len == 0 || settings.chunks > 1 << 24 || scratch_len > 1 << 30 {
            return Err(SyscallError::from_errno("setsockopt(XDP_UMEM_REG)", libc::EINVAL));
        }
        // SAFETY: socket(2) takes no pointers.
        let fd =
            check("socket(AF_XDP)", unsafe { libc::socket(AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
        // SAFETY: the kernel has just returned this descriptor, and no other value owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let (umem, is_huge) = Mapping::anonymous(len + scratch_len, settings.huge_pages)?;
        register(fd.as_fd(), &umem, len, settings.chunk_len)?;
        let sizes = [
            (libc::XDP_UMEM_FILL_RING, "setsockopt(XDP_UMEM_FILL_RING)", settings.fill_len),
            (libc::XDP_UMEM_COMPLETION_RING, "setsockopt(XDP_UMEM_COMPLETION_RING)", settings.completion_len),
            (libc::XDP_RX_RING, "setsockopt(XDP_RX_RING)", settings.rx_len),
            (libc::XDP_TX_RING, "setsockopt(XDP_TX_RING)", settings.tx_len),
        ];
        for (name, call, len) in sizes.into_iter().filter(|(_, _, len)| *len > 0) {
            option::set(fd.as_fd(), libc::SOL_XDP, name, call, &len)?;
        }
        let at = offsets(fd.as_fd())?;
        let (rx_len, tx_len) = (settings.rx_len, settings.tx_len);
        let fill_at = libc::XDP_UMEM_PGOFF_FILL_RING as i64;
        let completion_at = libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64;
        let (fill, layout) = map::<u64>(fd.as_fd(), &at.fr, settings.fill_len, fill_at)?;
        let fill = Producer::new(fill, layout);
        let (completion, layout) = map::<u64>(fd.as_fd(), &at.cr, settings.completion_len, completion_at)?;
        let completion = Consumer::new(completion, layout);
        let rx = match rx_len {
            0 => None,
            _ => Some(map::<libc::xdp_desc>(fd.as_fd(), &at.rx, rx_len, libc::XDP_PGOFF_RX_RING)?),
        };
        let tx = match tx_len {
            0 => None,
            _ => Some(map::<libc::xdp_desc>(fd.as_fd(), &at.tx, tx_len, libc::XDP_PGOFF_TX_RING)?),
        };
        Ok(XdpSocket {
            fill,
            completion,
            rx: rx.map(|(mapping, layout)| Consumer::new(mapping, layout)),
            tx: tx.map(|(mapping, layout)| Producer::new(mapping, layout)),
            chunks: Chunks::new(settings.chunks),
            settings: *settings,
            scratch_len,
            is_huge,
            refused: 0,
            umem,
            fd,
        })
    }

    /// Joins one queue of an interface: with zero copy if its driver can, else with copies. Packets in several chunks
    /// are asked for with `multi_buffer`; where zero copy would cost them, copies are preferred.
    ///
    /// # Errors
    /// `ENODEV` if there is no such interface; `EINVAL` for a queue that it does not have; `EBUSY` if the queue has a
    /// socket already, or had one a moment ago: it is released in the background. `ENETDOWN` if the interface is down
    /// and the driver minds.
    pub fn bind(
        &mut self,
        if_index: u32,
        queue: u32,
        multi_buffer: bool,
    ) -> Result<BoundModes, SyscallError> {
        let ways: &[(u16, bool)] = match multi_buffer {
            true => &[
                (libc::XDP_ZEROCOPY | libc::XDP_USE_SG, true),
                (libc::XDP_COPY | libc::XDP_USE_SG, true),
                (libc::XDP_COPY, false),
            ],
            false => &[(libc::XDP_ZEROCOPY, false), (libc::XDP_COPY, false)],
        };
        let mut result = Err(SyscallError::from_errno("bind(AF_XDP)", libc::EINVAL));
        for (flags, multi_buffer) in ways {
            result = self.bind_as(if_index, queue, flags | libc::XDP_USE_NEED_WAKEUP).map(|()| *multi_buffer);
            match &result {
                Err(error) if may_work_otherwise(error) => {}
                _ => break,
            }
        }
        let multi_buffer = result?;
        let options: libc::xdp_options =
            option::get(self.as_fd(), libc::SOL_XDP, libc::XDP_OPTIONS, "getsockopt(XDP_OPTIONS)")?;
        Ok(BoundModes { zero_copy: options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0, multi_buffer })
    }

    /// [Binds](Self::bind), and waits for up to two seconds for a queue whose last socket was just closed: the kernel
    /// releases it in the background.
    ///
    /// # Errors
    /// As for [`bind`](Self::bind); `EBUSY` then means that another socket has the queue.
    pub fn bind_when_free(
        &mut self,
        if_index: u32,
        queue: u32,
        multi_buffer: bool,
    ) -> Result<BoundModes, SyscallError> {
        let begin = Instant::now();
        loop {
            match self.bind(if_index, queue, multi_buffer) {
                Err(error) if error.errno() == libc::EBUSY && begin.elapsed() < RELEASE => {
                    sleep(RELEASE_PAUSE)
                }
                result => return result,
            }
        }
    }

    fn bind_as(&self, if_index: u32, queue: u32, flags: u16) -> Result<(), SyscallError> {
        let address = libc::sockaddr_xdp {
            sxdp_family: AF_XDP as u16,
            sxdp_flags: flags,
            sxdp_ifindex: if_index,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let size = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
        // SAFETY: pointer and size describe `address`, which lives through the call.
        let result = unsafe { libc::bind(self.fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), size) };
        check("bind(AF_XDP)", result).map(|_| ())
    }

    /// Makes our own calls poll the driver, rather than interrupts. Needs `CAP_NET_ADMIN`. The interrupts that remain
    /// are set at the interface: `napi_defer_hard_irqs` and `gro_flush_timeout` in `/sys/class/net/*`.
    ///
    /// # Errors
    /// `ENOPROTOOPT` before kernel 5.11; `EPERM` without the right.
    pub fn set_busy_poll(&self, busy: &BusyPolling) -> Result<(), SyscallError> {
        let options = [
            (SO_PREFER_BUSY_POLL, "setsockopt(SO_PREFER_BUSY_POLL)", 1),
            (SO_BUSY_POLL, "setsockopt(SO_BUSY_POLL)", busy.poll_us),
            (SO_BUSY_POLL_BUDGET, "setsockopt(SO_BUSY_POLL_BUDGET)", busy.budget),
        ];
        for (name, call, value) in options {
            let value = c_int::try_from(value).map_err(|_| SyscallError::from_errno(call, libc::EINVAL))?;
            option::set(self.as_fd(), libc::SOL_SOCKET, name, call, &value)?;
        }
        Ok(())
    }

    /// The settings of the socket.
    pub fn settings(&self) -> &XskSettings {
        &self.settings
    }

    /// Whether the memory is in huge pages.
    pub fn has_huge_pages(&self) -> bool {
        self.is_huge
    }

    /// Free chunks.
    pub fn free_chunks(&self) -> u32 {
        self.chunks.free()
    }

    /// Descriptors that the kernel should not have given us, and that were not used: none, unless the kernel has a
    /// fault.
    pub fn refused_descriptors(&self) -> u64 {
        self.refused
    }

    /// The counters of the kernel.
    ///
    /// # Errors
    /// The error of getsockopt(2).
    pub fn statistics(&self) -> Result<XskStatistics, SyscallError> {
        let raw: libc::xdp_statistics =
            option::get(self.as_fd(), libc::SOL_XDP, libc::XDP_STATISTICS, "getsockopt(XDP_STATISTICS)")?;
        Ok(XskStatistics {
            rx_dropped: raw.rx_dropped,
            rx_ring_full: raw.rx_ring_full,
            rx_fill_ring_empty: raw.rx_fill_ring_empty_descs,
            rx_invalid: raw.rx_invalid_descs,
            tx_invalid: raw.tx_invalid_descs,
            tx_ring_empty: raw.tx_ring_empty_descs,
        })
    }
}

/// Receiving.
impl XdpSocket {
    /// The memory of all chunks, and the scratch memory behind it. Of the chunks only the [frames](Frame) of held
    /// ones may be read: it stays as it is until they are given back. Other bytes mean nothing; the kernel may write
    /// to them at any time.
    #[inline]
    pub fn memory(&self) -> &[u8] {
        let len = self.scratch_start() + self.scratch_len;
        // SAFETY: the mapping has at least this many bytes, all initialised, and lives as long as `self`. This process
        // changes them only through `chunk_mut`, which has `self` borrowed mutably. Of chunks that the kernel has, it
        // changes bytes like a device does: the promise above is that no code reads those, and the compiler makes up no
        // reads of a slice's bytes.
        unsafe { std::slice::from_raw_parts(self.umem.at(0), len) }
    }

    /// The offset of the scratch in the [memory](Self::memory).
    #[inline]
    pub fn scratch_start(&self) -> usize {
        self.settings.chunk_len as usize * self.settings.chunks as usize
    }

    /// Copies a frame's bytes to the scratch memory, from byte `at` of that on. Returns how many: fewer than the frame
    /// has if there is no more room, none if its chunk is not held.
    pub fn gather(&mut self, frame: &Frame, at: usize) -> usize {
        let start = frame.chunk.0 as usize * self.settings.chunk_len as usize;
        let is_inside = frame.offset >= start
            && frame.offset - start + frame.len as usize <= self.settings.chunk_len as usize;
        let len = (frame.len as usize).min(self.scratch_len.saturating_sub(at));
        if !is_inside || len == 0 || !self.chunks.is(frame.chunk, Owner::Held) {
            return 0;
        }
        let (from, to) = (self.umem.at(frame.offset), self.umem.at(self.scratch_start() + at));
        // SAFETY: the bytes lie in a held chunk, which the kernel does not write to, and `to` has `len` bytes in the
        // scratch memory behind all chunks, which is ours alone. `self` is borrowed mutably, so no other reference to
        // either is alive.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
        len
    }

    /// Takes up to `most` frames that have arrived and puts them behind those in `frames`. Their chunks are held.
    /// Returns how many.
    #[inline]
    pub fn receive(&mut self, frames: &mut Vec<Frame>, most: usize) -> usize {
        let Some(rx) = &mut self.rx else { return 0 };
        let mut taken = 0;
        while taken < most {
            let Some(descriptor) = rx.pop() else { break };
            match accept(&descriptor, &mut self.chunks, &self.settings) {
                Some(frame) => {
                    frames.push(frame);
                    taken += 1;
                }
                None => self.refused += 1,
            }
        }
        rx.release();
        taken
    }

    /// Frames that have arrived and were not taken.
    pub fn waiting(&mut self) -> u32 {
        self.rx.as_mut().map_or(0, Consumer::waiting)
    }

    /// Whole packets that have arrived and were not taken.
    pub fn packets_waiting(&mut self) -> u32 {
        let Some(rx) = &mut self.rx else { return 0 };
        let ends = (0..rx.waiting()).filter(|&place| rx.peek(place).options & libc::XDP_PKT_CONTD == 0);
        ends.count() as u32
    }

    /// Takes a chunk back from its holder; it is free then. Says whether it was held.
    #[inline]
    pub fn give_back(&mut self, chunk: ChunkId) -> bool {
        self.chunks.pass(chunk, Owner::Held, Owner::Free)
    }

    /// Gives the kernel free chunks, as many as there are and as fit into the fill ring. Returns how many.
    #[inline]
    pub fn refill(&mut self) -> u32 {
        let room = self.fill.room(self.settings.fill_len).min(self.chunks.free());
        for _ in 0..room {
            let Some(chunk) = self.chunks.take(Owner::KernelReceive) else { break };
            self.fill.push(u64::from(chunk.0) * u64::from(self.settings.chunk_len));
        }
        if room > 0 {
            self.fill.publish();
        }
        room
    }

    /// Whether the driver must be notified that the fill ring has something again.
    #[inline]
    pub fn needs_receive_wakeup(&self) -> bool {
        self.fill.needs_wakeup()
    }

    /// Notifies the driver. With busy polling this call polls the driver.
    ///
    /// # Errors
    /// `ENETDOWN` if the interface is down, `ENXIO` if it is gone.
    pub fn wake_receive(&self) -> Result<(), SyscallError> {
        // SAFETY: no buffer, no address.
        let result = unsafe {
            let (buffer, address) = (std::ptr::null_mut(), std::ptr::null_mut());
            libc::recvfrom(self.fd.as_raw_fd(), buffer, 0, libc::MSG_DONTWAIT, address, std::ptr::null_mut())
        };
        went(check_len("recvfrom(AF_XDP)", result)).map(|_| ())
    }
}

/// Sending.
impl XdpSocket {
    /// A free chunk, which the caller now holds: to be [written](Self::chunk_mut), then [transmitted](Self::transmit)
    /// or [given back](Self::give_back).
    #[inline]
    pub fn take_chunk(&mut self) -> Option<ChunkId> {
        self.chunks.take(Owner::Held)
    }

    /// All bytes of a held chunk; none of one that is not held.
    #[inline]
    pub fn chunk_mut(&mut self, chunk: ChunkId) -> &mut [u8] {
        if !self.chunks.is(chunk, Owner::Held) {
            return &mut [];
        }
        let len = self.settings.chunk_len as usize;
        let start = self.umem.at(chunk.0 as usize * len);
        // SAFETY: a held chunk's number is less than their count, so its bytes lie in the mapping. The kernel has no
        // descriptor of it, and `self` is borrowed mutably, so no other reference to it is alive.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }

    /// Puts `len` bytes from `offset` on of a held chunk into the TX ring; [`flush`](Self::flush) has them sent. A
    /// frame that `is_continued` goes on in the next one (multi-buffer; not where the socket was bound without).
    ///
    /// The chunk is the kernel's until [`complete`](Self::complete) has it back. Says whether it went: not if the ring
    /// is full, the chunk is not held, or the bytes do not lie in it.
    #[inline]
    pub fn transmit(&mut self, chunk: ChunkId, offset: u32, len: u32, is_continued: bool) -> bool {
        let Some(tx) = &mut self.tx else { return false };
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= self.settings.chunk_len);
        if !is_inside || tx.room(1) == 0 || !self.chunks.pass(chunk, Owner::Held, Owner::KernelTransmit) {
            return false;
        }
        let addr = u64::from(chunk.0) * u64::from(self.settings.chunk_len) + u64::from(offset);
        tx.push(libc::xdp_desc { addr, len, options: if is_continued { libc::XDP_PKT_CONTD } else { 0 } })
    }

    /// Shows the kernel the new descriptors in the TX ring, and calls it if it waits to be called. Returns whether it
    /// is done for now; if not, call again: where packets are copied one call sends some 32.
    ///
    /// # Errors
    /// `ENETDOWN` if the interface is down, `ENXIO` if it is gone, `EMSGSIZE` for a frame that it cannot send; the
    /// error of sendto(2).
    pub fn flush(&mut self) -> Result<bool, SyscallError> {
        let Some(tx) = &mut self.tx else { return Ok(true) };
        tx.publish();
        if !tx.needs_wakeup() {
            return Ok(true);
        }
        // SAFETY: no buffer, no address.
        let result = unsafe {
            libc::sendto(self.fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
        };
        went(check_len("sendto(AF_XDP)", result))
    }

    /// Takes back chunks that were sent; they are free then. Returns how many.
    #[inline]
    pub fn complete(&mut self) -> u32 {
        let mut done = 0;
        while let Some(address) = self.completion.pop() {
            let number = u32::try_from(address / u64::from(self.settings.chunk_len)).unwrap_or(u32::MAX);
            match self.chunks.pass(ChunkId(number), Owner::KernelTransmit, Owner::Free) {
                true => done += 1,
                false => self.refused += 1,
            }
        }
        self.completion.release();
        done
    }

    /// Frames in the TX ring that the kernel has not taken.
    pub fn transmits_pending(&mut self) -> u32 {
        self.tx.as_mut().map_or(0, Producer::pending)
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The frame of a descriptor, if it is within one chunk, and in one that the kernel had.
#[inline]
fn accept(descriptor: &libc::xdp_desc, chunks: &mut Chunks, settings: &XskSettings) -> Option<Frame> {
    let chunk_len = u64::from(settings.chunk_len);
    let chunk = ChunkId(u32::try_from(descriptor.addr / chunk_len).ok()?);
    let is_inside = descriptor.addr % chunk_len + u64::from(descriptor.len) <= chunk_len;
    let frame = Frame {
        chunk,
        offset: descriptor.addr as usize,
        len: descriptor.len,
        is_continued: descriptor.options & libc::XDP_PKT_CONTD != 0,
    };
    (is_inside && chunks.pass(chunk, Owner::KernelReceive, Owner::Held)).then_some(frame)
}

fn register(fd: BorrowedFd<'_>, umem: &Mapping, len: usize, chunk_len: u32) -> Result<(), SyscallError> {
    let request = libc::xdp_umem_reg_v1 {
        addr: umem.at(0) as u64,
        len: len as u64,
        chunk_size: chunk_len,
        headroom: 0,
    };
    option::set(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, "setsockopt(XDP_UMEM_REG)", &request)
}

fn offsets(fd: BorrowedFd<'_>) -> Result<libc::xdp_mmap_offsets, SyscallError> {
    const CALL: &str = "getsockopt(XDP_MMAP_OFFSETS)";
    let at: libc::xdp_mmap_offsets = option::get(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, CALL)?;
    // Before kernel 5.4 the answer was shorter, without flags.
    if at.cr.flags == 0 { Err(SyscallError::from_errno(CALL, libc::ENOPROTOOPT)) } else { Ok(at) }
}

fn map<T: Entry>(
    fd: BorrowedFd<'_>,
    at: &libc::xdp_ring_offset,
    len: u32,
    offset: i64,
) -> Result<(Mapping, Layout), SyscallError> {
    let layout = Layout {
        producer: at.producer as usize,
        consumer: at.consumer as usize,
        flags: at.flags as usize,
        entries: at.desc as usize,
        len,
    };
    Mapping::of_file(fd, layout.mapping_len::<T>(), offset).map(|mapping| (mapping, layout))
}

/// Whether a bind that failed with this may go well with less asked for. The kernel answers so where a driver has no
/// zero copy, or none in several chunks, and old kernels for flags that they do not know.
fn may_work_otherwise(error: &SyscallError) -> bool {
    matches!(error.errno(), libc::EOPNOTSUPP | libc::EINVAL | libc::EPROTONOSUPPORT)
}

/// Whether a wake-up was all that is to be done: not if the kernel says that it could go on.
fn went(result: Result<usize, SyscallError>) -> Result<bool, SyscallError> {
    match result {
        Ok(_) => Ok(true),
        Err(error) => match error.errno() {
            libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::EINTR => Ok(false),
            _ => Err(error),
        },
    }
}
