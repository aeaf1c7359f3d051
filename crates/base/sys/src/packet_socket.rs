//! AF_PACKET sockets for capture.
//!
//! The order of calls matters, see packet(7) and net/packet/af_packet.c:
//!
//! ```text
//! open (protocol 0: nothing is received yet)
//!   set_vnet_header, attach_filter                       before the ring
//!   map_ring
//!   set_timestamping, set_ignore_outgoing, join_promiscuous
//! bind                                                   packets arrive from here on
//!   join_fanout                                          only once bound
//! ```

use std::ffi::c_int;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::SOL_PACKET;
use tapline_bpf::{Insn, code};

use crate::error::{check, check_len};
use crate::{BlockRing, RingGeometry, SyscallError, option};

// Programs are handed to the kernel as they are.
const _: () = {
    assert!(size_of::<Insn>() == size_of::<libc::sock_filter>());
    assert!(offset_of!(Insn, code) == offset_of!(libc::sock_filter, code));
    assert!(offset_of!(Insn, jt) == offset_of!(libc::sock_filter, jt));
    assert!(offset_of!(Insn, jf) == offset_of!(libc::sock_filter, jf));
    assert!(offset_of!(Insn, k) == offset_of!(libc::sock_filter, k));
};

/// `ret #0`: nothing passes.
const DROP_ALL: Insn = Insn::new(code::RET | code::K, 0);

/// A protocol that no packet has: numbers up to 1500 are lengths of frames, and those from 1536 on types.
const NO_PROTOCOL: u16 = 1535;

/// The rule by which a fanout group chooses the member that gets a packet. Minimum kernel: 3.1 (`QueueMapping`:
/// 3.14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanoutMode {
    /// By flow; both directions meet in one member.
    Hash,
    /// In turn. Flows are split.
    LoadBalance,
    /// By the CPU that received it.
    Cpu,
    /// By the NIC's receive queue. Keeps flows together where the NIC hashes symmetrically.
    QueueMapping,
    /// By a program ([`choose_member`](PacketSocket::choose_member)). Minimum kernel: 4.3.
    Program,
    /// By an eBPF program ([`choose_member_by`](PacketSocket::choose_member_by)). Minimum kernel: 4.3.
    ExtendedProgram,
}

/// `PACKET_FANOUT_EBPF` of linux/if_packet.h.
const FANOUT_EBPF: u32 = 7;

impl FanoutMode {
    fn number(self) -> u32 {
        match self {
            FanoutMode::Hash => libc::PACKET_FANOUT_HASH,
            FanoutMode::LoadBalance => libc::PACKET_FANOUT_LB,
            FanoutMode::Cpu => libc::PACKET_FANOUT_CPU,
            FanoutMode::QueueMapping => libc::PACKET_FANOUT_QM,
            FanoutMode::Program => libc::PACKET_FANOUT_CBPF,
            FanoutMode::ExtendedProgram => FANOUT_EBPF,
        }
    }
}

/// The counters of `PACKET_STATISTICS`: since the last reading, which sets all to zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingStatistics {
    /// Packets that passed the filter, with the dropped ones.
    pub packets: u32,
    /// Packets for which the ring was full.
    pub drops: u32,
    /// Times that the ring froze because its next block had not been given back.
    pub freezes: u32,
}

/// An AF_PACKET socket that captures whole frames (`SOCK_RAW`), or frames without their link-layer header
/// (`SOCK_DGRAM`).
///
/// Needs `CAP_NET_RAW` in the user namespace that owns the network namespace to open; nothing afterwards.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
}

impl PacketSocket {
    /// A socket of protocol 0, which receives nothing until [`bind`](Self::bind), with TPACKET_V3 chosen.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`; `EINVAL` from `PACKET_VERSION` on kernels before 3.2.
    pub fn open() -> Result<PacketSocket, SyscallError> {
        PacketSocket::of_kind(libc::SOCK_RAW)
    }

    /// Opens a "cooked" socket: packets start at their network header, and the fields of the link-layer header are in
    /// the `sockaddr_ll` of each. For link types that have no common header, and for all interfaces at once.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_cooked() -> Result<PacketSocket, SyscallError> {
        PacketSocket::of_kind(libc::SOCK_DGRAM)
    }

    fn of_kind(kind: c_int) -> Result<PacketSocket, SyscallError> {
        let kind = kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: socket(2) takes no pointers.
        let fd = check("socket(AF_PACKET)", unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
        // SAFETY: the kernel has just returned this descriptor, and no other value owns it.
        let socket = PacketSocket { fd: unsafe { OwnedFd::from_raw_fd(fd) } };
        let version = libc::tpacket_versions::TPACKET_V3 as c_int;
        socket.set(libc::PACKET_VERSION, "setsockopt(PACKET_VERSION)", version)?;
        Ok(socket)
    }

    /// Puts a `struct virtio_net_hdr` (10 bytes) just before each packet. Before [`map_ring`](Self::map_ring).
    ///
    /// The kernel drops packets whose segmentation that header cannot express (tunnels, for one), so this costs packets
    /// on hosts that use such offloads.
    ///
    /// # Errors
    /// `EBUSY` once the ring exists.
    pub fn set_vnet_header(&self, enable: bool) -> Result<(), SyscallError> {
        self.set(libc::PACKET_VNET_HDR, "setsockopt(PACKET_VNET_HDR)", c_int::from(enable))
    }

    /// Puts this program before the ring in place of the present one. Its result is the bytes to keep, 0 for none.
    ///
    /// A packet that is being received while this runs may still see the former program; see
    /// [`wait_for_receive_paths`].
    ///
    /// # Errors
    /// `EINVAL` for a program that the kernel finds wrong or longer than 4096 instructions; `ENOMEM` for one whose
    /// translation exceeds `net.core.optmem_max`; `EPERM` if the filter is locked.
    pub fn attach_filter(&self, program: &[Insn]) -> Result<(), SyscallError> {
        const CALL: &str = "setsockopt(SO_ATTACH_FILTER)";
        let len = u16::try_from(program.len()).map_err(|_| SyscallError::from_errno(CALL, libc::EINVAL))?;
        let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut().cast() };
        let size = size_of::<libc::sock_fprog>() as libc::socklen_t;
        let value = std::ptr::from_ref(&program).cast();
        // SAFETY: `value` points to a sock_fprog that lives through the call, and its `filter` to `len` instructions in
        // the layout of struct sock_filter (the assertions at the top of this file). The kernel only reads them.
        let result = unsafe {
            libc::setsockopt(self.fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, value, size)
        };
        check(CALL, result).map(|_| ())
    }

    /// Puts this program before the ring in place of the present one: a
    /// [`SocketFilter`](crate::bpf::ProgramKind::SocketFilter), whose result is the bytes to keep, 0 for none. Needs no
    /// capability: the process that loaded the program had them. Minimum kernel: 3.19.
    ///
    /// # Errors
    /// `EINVAL` for a program of another kind; `ENOMEM` for one whose translation exceeds `net.core.optmem_max`;
    /// `EPERM` if the filter is locked.
    pub fn attach_program(&self, program: &crate::bpf::LoadedProgram) -> Result<(), SyscallError> {
        let fd = program.as_fd().as_raw_fd();
        option::set(self.as_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_BPF, "setsockopt(SO_ATTACH_BPF)", &fd)
    }

    /// Lets nothing pass from now on.
    ///
    /// # Errors
    /// `EPERM` if the filter is locked.
    pub fn attach_drop_all(&self) -> Result<(), SyscallError> {
        self.attach_filter(&[DROP_ALL])
    }

    /// Sets the ring up and maps it. With `receive_hash` each packet has its hash by flow (`tp_rxhash`): where the
    /// adapter gives none, the kernel dissects the packet for it: 9 % of the samples of `perf` on a core that receives
    /// 60-byte packets from a veth.
    ///
    /// # Errors
    /// `ENOMEM` if there is not enough memory; `EINVAL` for a block length that is not a multiple of the page size.
    pub fn map_ring(&self, geometry: &RingGeometry, receive_hash: bool) -> Result<BlockRing, SyscallError> {
        let request = libc::tpacket_req3 {
            tp_block_size: geometry.block_len,
            tp_block_nr: geometry.block_count,
            // In version 3 a "frame" only has to divide the blocks: packets take what they need.
            tp_frame_size: geometry.block_len,
            tp_frame_nr: geometry.block_count,
            tp_retire_blk_tov: geometry.retire_ms,
            tp_sizeof_priv: 0,
            tp_feature_req_word: if receive_hash { libc::TP_FT_REQ_FILL_RXHASH } else { 0 },
        };
        self.set(libc::PACKET_RX_RING, "setsockopt(PACKET_RX_RING)", request)?;
        let mapped = BlockRing::map(self.as_fd(), geometry);
        if mapped.is_err() {
            // An unmapped ring would stand in the way of a smaller one. If it cannot be removed either, the next
            // attempt fails with that error.
            let _ = self.remove_ring();
        }
        mapped
    }

    /// Maps the ring again that was unmapped but could not be removed, as another process maps it too. Reading goes
    /// on at the same block.
    ///
    /// # Errors
    /// `ENOMEM` if there is too little memory for the mapping.
    pub fn map_ring_again(&self, ring: &mut BlockRing, geometry: &RingGeometry) -> Result<(), SyscallError> {
        ring.map_again(self.as_fd(), geometry)
    }

    /// Takes the ring away, which must not be mapped any more; another one may be mapped then.
    ///
    /// # Errors
    /// `EBUSY` while it is mapped.
    pub fn remove_ring(&self) -> Result<(), SyscallError> {
        // SAFETY: all-zero bytes are a valid request: no ring.
        let request: libc::tpacket_req3 = unsafe { std::mem::zeroed() };
        self.set(libc::PACKET_RX_RING, "setsockopt(PACKET_RX_RING)", request)
    }

    /// Sets the clock that stamps packets: `SOF_TIMESTAMPING_*` of linux/net_tstamp.h; 0 for the kernel's own.
    ///
    /// # Errors
    /// The error of setsockopt(2).
    pub fn set_timestamping(&self, flags: u32) -> Result<(), SyscallError> {
        self.set(libc::PACKET_TIMESTAMP, "setsockopt(PACKET_TIMESTAMP)", flags as c_int)
    }

    /// Keeps the packets that this host sends out of the ring, before the filter runs. In a fanout group the group's
    /// own flag counts.
    ///
    /// # Errors
    /// `ENOPROTOOPT` before kernel 4.20.
    pub fn set_ignore_outgoing(&self, enable: bool) -> Result<(), SyscallError> {
        self.set(libc::PACKET_IGNORE_OUTGOING, "setsockopt(PACKET_IGNORE_OUTGOING)", c_int::from(enable))
    }

    /// Makes the interface receive frames for others too, for as long as this socket lives. The kernel counts such
    /// sockets, so that it ends with the last socket that asked, also after a crash. Needs no capability of its own.
    ///
    /// # Errors
    /// `ENODEV` if there is no such interface; the error of its driver.
    pub fn join_promiscuous(&self, if_index: u32) -> Result<(), SyscallError> {
        let membership = promiscuous(if_index);
        self.set(libc::PACKET_ADD_MEMBERSHIP, "setsockopt(PACKET_ADD_MEMBERSHIP)", membership)
    }

    /// Ends what [`join_promiscuous`](Self::join_promiscuous) began.
    ///
    /// # Errors
    /// The error of setsockopt(2). A membership that is not there is not an error.
    pub fn leave_promiscuous(&self, if_index: u32) -> Result<(), SyscallError> {
        let membership = promiscuous(if_index);
        self.set(libc::PACKET_DROP_MEMBERSHIP, "setsockopt(PACKET_DROP_MEMBERSHIP)", membership)
    }

    /// Takes ring, counts, errors and interface away, so that the socket can be set up for another interface. Nothing
    /// passes it then. The ring must not be mapped any more.
    ///
    /// # Errors
    /// `EBUSY` while the ring is mapped; `EINVAL` for a member of a fanout group, which only its end takes out.
    pub fn reset(&self) -> Result<(), SyscallError> {
        self.attach_drop_all()?;
        // Protocol 0 would leave the present one.
        self.bind_to(0, NO_PROTOCOL)?;
        self.remove_ring()?;
        // Kernels without the option ignore nothing.
        let _ = self.set_ignore_outgoing(false);
        self.take_error()?;
        self.statistics().map(|_| ())
    }

    /// Whether the interface that the socket was bound to is still there.
    ///
    /// # Errors
    /// The error of getsockname(2).
    pub fn has_interface(&self) -> Result<bool, SyscallError> {
        // SAFETY: all-zero bytes are a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        let mut size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        let pointer = std::ptr::from_mut(&mut address).cast();
        // SAFETY: pointer and size describe `address`, which lives through the call.
        check("getsockname(AF_PACKET)", unsafe {
            libc::getsockname(self.fd.as_raw_fd(), pointer, &mut size)
        })?;
        // The kernel sets the number to -1 when the interface is removed.
        Ok(address.sll_ifindex >= 0)
    }

    /// Starts to capture all protocols on this interface, or on another one than before.
    ///
    /// # Errors
    /// `ENODEV` if there is no such interface; `EINVAL` in a fanout group. An interface that is down is not an error
    /// here: [`take_error`](Self::take_error) then returns `ENETDOWN`, and packets flow once it is up.
    pub fn bind(&self, if_index: u32) -> Result<(), SyscallError> {
        self.bind_to(if_index, libc::ETH_P_ALL as u16)
    }

    /// Binds to one protocol, an EtherType as `linux/if_ether.h` has it (`ETH_P_ALL` is 3), and with 0 to all
    /// interfaces at once.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_to(&self, if_index: u32, protocol: u16) -> Result<(), SyscallError> {
        // SAFETY: all-zero bytes are a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = if_index as c_int;
        let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: pointer and size describe `address`, which lives through the call.
        let result = unsafe { libc::bind(self.fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), size) };
        check("bind(AF_PACKET)", result).map(|_| ())
    }

    /// Joins a fanout group of sockets bound to the same interface: each packet goes to one member. Without a `group`
    /// a new one is made, with a number that no other group uses (minimum kernel 4.12). Returns the group's number.
    ///
    /// # Errors
    /// `EINVAL` if the interface or the mode is not the group's; before kernel 5.16 also if the interface is down.
    pub fn join_fanout(
        &self,
        group: Option<u16>,
        mode: FanoutMode,
        ignore_outgoing: bool,
    ) -> Result<u16, SyscallError> {
        let new = if group.is_none() { libc::PACKET_FANOUT_FLAG_UNIQUEID } else { 0 };
        let ignore = if ignore_outgoing { libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING } else { 0 };
        // Low half: group; high half: mode and flags.
        let value = u32::from(group.unwrap_or(0)) | (mode.number() | new | ignore) << 16;
        self.set(libc::PACKET_FANOUT, "setsockopt(PACKET_FANOUT)", value)?;
        let joined: u32 =
            option::get(self.as_fd(), SOL_PACKET, libc::PACKET_FANOUT, "getsockopt(PACKET_FANOUT)")?;
        Ok(joined as u16)
    }

    /// Sends all packets of a group with [`FanoutMode::Program`] to one member, by the order in which members joined.
    /// On return no packet is on its way to another one: the kernel waits for that when it replaces a program.
    ///
    /// # Errors
    /// `EINVAL` for a socket in no group.
    pub fn choose_member(&self, member: u32) -> Result<(), SyscallError> {
        const CALL: &str = "setsockopt(PACKET_FANOUT_DATA)";
        let program = [Insn::new(code::RET | code::K, member)];
        let program = libc::sock_fprog { len: 1, filter: program.as_ptr().cast_mut().cast() };
        let size = size_of::<libc::sock_fprog>() as libc::socklen_t;
        let value = std::ptr::from_ref(&program).cast();
        // SAFETY: as in `attach_filter`: `value` points to a sock_fprog and that to one instruction, both of which live
        // through the call.
        let result = unsafe {
            libc::setsockopt(self.fd.as_raw_fd(), SOL_PACKET, libc::PACKET_FANOUT_DATA, value, size)
        };
        check(CALL, result).map(|_| ())
    }

    /// Has a program choose the member for each packet of a group with [`FanoutMode::ExtendedProgram`]: its result,
    /// modulo the number of members. Without one all packets go to the first member.
    ///
    /// # Errors
    /// `EINVAL` for a socket in no such group, or a program of another kind than a socket filter.
    pub fn choose_member_by(&self, program: &crate::bpf::LoadedProgram) -> Result<(), SyscallError> {
        let fd = program.as_fd().as_raw_fd();
        self.set(libc::PACKET_FANOUT_DATA, "setsockopt(PACKET_FANOUT_DATA)", fd)
    }

    /// Sends one frame, whole with its link-layer header, on the interface that the socket is bound to. Without room
    /// for it, `waits` says whether to wait.
    ///
    /// # Errors
    /// The error of send(2): `EMSGSIZE` for a frame longer than the interface sends, `ENETDOWN`, `ENXIO`; `EAGAIN` if
    /// the queue is full and it does not wait.
    pub fn send(&self, frame: &[u8], waits: bool) -> Result<usize, SyscallError> {
        loop {
            let (fd, pointer) = (self.fd.as_raw_fd(), frame.as_ptr().cast());
            // SAFETY: pointer and length describe `frame`, which the kernel only reads.
            let result = unsafe { libc::send(fd, pointer, frame.len(), libc::MSG_NOSIGNAL) };
            match check_len("send(AF_PACKET)", result) {
                Err(error) if error.errno() == libc::EAGAIN && waits => self.wait_for_room()?,
                result => return result,
            }
        }
    }

    /// The socket never blocks, for the sake of its reader, so the sender waits here. A signal ends the wait, as room
    /// does: the caller looks again.
    fn wait_for_room(&self) -> Result<(), SyscallError> {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: one pollfd, which the kernel may write to.
        match check("poll", unsafe { libc::poll(&mut poll, 1, -1) }) {
            Err(error) if error.errno() != libc::EINTR => Err(error),
            _ => Ok(()),
        }
    }

    /// Reads the ring's counters and sets them to zero. They are 32 bits wide: read them at least once a second.
    ///
    /// # Errors
    /// The error of getsockopt(2).
    pub fn statistics(&self) -> Result<RingStatistics, SyscallError> {
        let raw: libc::tpacket_stats_v3 =
            option::get(self.as_fd(), SOL_PACKET, libc::PACKET_STATISTICS, "getsockopt(PACKET_STATISTICS)")?;
        Ok(RingStatistics { packets: raw.tp_packets, drops: raw.tp_drops, freezes: raw.tp_freeze_q_cnt })
    }

    /// The error that waits on the socket, which is cleared: `ENETDOWN` when the interface went down or away.
    ///
    /// # Errors
    /// The error of getsockopt(2) itself.
    pub fn take_error(&self) -> Result<Option<io::Error>, SyscallError> {
        let number: c_int =
            option::get(self.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR, "getsockopt(SO_ERROR)")?;
        Ok((number != 0).then(|| io::Error::from_raw_os_error(number)))
    }

    fn set<T: option::Plain>(&self, name: c_int, call: &'static str, value: T) -> Result<(), SyscallError> {
        option::set(self.as_fd(), SOL_PACKET, name, call, &value)
    }
}

fn promiscuous(if_index: u32) -> libc::packet_mreq {
    libc::packet_mreq {
        mr_ifindex: if_index as c_int,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns once every packet whose reception had begun before the call has passed all filters and rings.
///
/// Packets are received under the RCU read lock, and a replaced filter stays in use by those on their way. The call
/// `membarrier(MEMBARRIER_CMD_GLOBAL)` waits for such a grace period: some milliseconds. Minimum kernel: 4.3.
///
/// # Errors
/// `ENOSYS` on older kernels; `EINVAL` where CPUs are isolated with `nohz_full`. The caller may then wait a while
/// instead.
pub fn wait_for_receive_paths() -> Result<(), SyscallError> {
    // SAFETY: membarrier(2) takes integers only.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
    check("membarrier(MEMBARRIER_CMD_GLOBAL)", result as c_int).map(|_| ())
}
