//! Errors of AF_XDP on an interface, and the alternatives.

use std::net::IpAddr;

use tapline_sys::SyscallError;
use tapline_sys::bpf::LoadError;

/// Error of a capture by AF_XDP at its start or while it runs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it")]
pub enum AfXdpError {
    /// Without the rights for programs and sockets.
    #[error(
        "no permission for AF_XDP: {source}\n  it needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF (CAP_SYS_ADMIN before Linux 5.8); run it as root (sudo), or \
         capture without xdp:, which needs CAP_NET_RAW only"
    )]
    NoPermission { source: SyscallError },
    /// The kernel was built without AF_XDP.
    #[error("this kernel has no AF_XDP (CONFIG_XDP_SOCKETS): {source}; capture without xdp:")]
    NotInKernel { source: SyscallError },
    /// Names that come later cannot be followed: rights are given up by then.
    #[error(
        "{word:?} may mean interfaces that come later; AF_XDP takes only those that are there: name each one (xdp:eth0,xdp:eth1)"
    )]
    OpenPattern {
        /// The requested name or setting.
        word: String,
    },
    /// Another XDP program has the interface.
    #[error(
        "an XDP program is there already: {program}; an interface has room for one. If it is another tapline, it takes the packets: stop it first. \
         Else take it off (xdp-loader unload {interface} --all, or ip link set dev {interface} {switch} off), or capture without xdp:"
    )]
    Occupied {
        interface: String,
        /// Name and number of the program, as far as they are known.
        program: String,
        /// iproute2's name for its mode.
        switch: &'static str,
    },
    /// Another process has a socket on the queue.
    #[error(
        "queue {queue} has an AF_XDP socket of another program already ({source}); stop that program, or capture without xdp:"
    )]
    QueueTaken {
        /// The queue, from 0.
        queue: u32,
        source: SyscallError,
    },
    /// The interface has no receive queue of this number.
    #[error("there is no receive queue {queue}: it has {queues}, counted from 0 (ethtool -l)")]
    NoSuchQueue {
        /// The requested queue, from 0.
        queue: u16,
        /// Number of its receive queues.
        queues: u32,
    },
    /// A queue cannot be bound, so packets would be missed.
    #[error(
        "AF_XDP can serve {served} of its {queues} receive queues ({source}); packets of the others would be missed. Give it fewer queues: \
         ethtool -L {interface} combined {wanted}"
    )]
    TooManyQueues {
        interface: String,
        /// Receive queues that there are.
        queues: u32,
        /// Queues that could be bound.
        served: u32,
        /// The number to ask for.
        wanted: u32,
        /// The error at the next one.
        source: SyscallError,
    },
    /// More workers than queues.
    #[error(
        "--workers {workers}: there are {queues} receive queues, and each has one worker; use --workers {queues}, or more queues (ethtool -L)"
    )]
    TooManyWorkers {
        /// The requested name or setting.
        workers: usize,
        /// Receive queues of all interfaces.
        queues: usize,
    },
    /// The capture would cut off the session of the caller.
    #[error(
        "it carries the way to {peer}, from where this SSH session comes, and AF_XDP would take {what} from this host: you would be cut off. Capture \
         without xdp: (the host keeps its packets), give a filter that leaves the session alone (what it refuses stays with the host), or insist \
         with --xdp-force"
    )]
    CutsSession {
        /// The address at the other end.
        peer: IpAddr,
        /// "all its packets", or that the filter takes those of the session.
        what: &'static str,
    },
    /// The capture would cut off the host.
    #[error(
        "it carries this host's default route, and without a whole filter in front AF_XDP could take all its packets from this host. Capture without \
         xdp: (the host keeps its packets), give a filter (what it refuses stays with the host), or insist with --xdp-force"
    )]
    CutsHost,
    /// The driver does not give XDP programs the time of a packet.
    #[error(
        "its driver gives XDP programs no time of the adapter (that takes Linux 6.3, and a driver that does); leave -j or \
         xdp: out"
    )]
    NoTime,
    /// The adapter cannot be set to stamp packets.
    #[error("the adapter does not stamp packets: {source}; leave -j out")]
    NotStamping { source: SyscallError },
    /// The program in front was refused.
    #[error("the kernel refused the XDP program: {0}")]
    Program(#[from] LoadError),
    /// The program in front cannot be made.
    #[error("no XDP program can be made: {0}")]
    Emit(#[from] tapline_ebpf::EmitError),
    /// The program cannot be attached, in the driver or otherwise.
    #[error("no XDP program can run here: in the driver: {native}; generic: {generic}; capture without xdp:")]
    NotAttached {
        /// The error of the driver.
        native: SyscallError,
        /// The error of the network stack.
        generic: SyscallError,
    },
    /// So much memory may not be locked.
    #[error(
        "{source}: a process without CAP_IPC_LOCK may lock {what}; raise it (ulimit -l unlimited), ask for less (-B), or run it as root"
    )]
    NoMemory {
        /// The limit, in words.
        what: &'static str,
        source: SyscallError,
    },
    /// Every interface was removed.
    #[error("{names} was removed; AF_XDP does not come back by itself: start again when it is there")]
    Gone { names: String },
    /// Something else failed.
    #[error("{source}")]
    Call { source: SyscallError },
}

const EPERM: i32 = 1;
const EACCES: i32 = 13;
const EAFNOSUPPORT: i32 = 97;
const ENOBUFS: i32 = 105;

impl From<SyscallError> for AfXdpError {
    fn from(source: SyscallError) -> AfXdpError {
        match source.errno() {
            EPERM | EACCES => AfXdpError::NoPermission { source },
            EAFNOSUPPORT => AfXdpError::NotInKernel { source },
            ENOBUFS => AfXdpError::NoMemory { what: "as much memory as RLIMIT_MEMLOCK says", source },
            _ => AfXdpError::Call { source },
        }
    }
}
