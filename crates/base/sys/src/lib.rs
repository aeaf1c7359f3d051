//! Every Linux call that Tapline makes, in small typed wrappers.
//!
//! ```text
//! PacketSocket --map_ring--> BlockRing      capture: an AF_PACKET socket and the ring that the kernel fills
//! FrameSocket                               transmit: frames in pieces, many in one call
//! DatagramSocket                            UDP: many datagrams in one call, and a count of dropped ones
//! LiveFrames                                transmit: frames of the kernel's own pages, past socket and queueing discipline
//! RouteSocket, LinkControl, NetdevSocket    interfaces, their state and their abilities (netlink, ethtool)
//! proc_packet, packet_diag                  captures of all programs, and their rings
//! bpf                                       programs in the kernel: loading, running, XDP
//! xsk: XdpSocket                            AF_XDP, both ways: packets in memory that the driver writes to and reads from
//! poll, Wakeup                              waiting, and being woken
//! ExecutableMemory                          machine code, written once and then never again
//! SharedWords, ReadWords                    memory that one process writes while others read it
//! Memfd, futex, Bell                        such memory sealed; sleeping on it; waking an untrusted process
//! passing                                   descriptors to another process
//! heap                                      heap memory of a thread
//! memory                                    prefetching, and memory in large pages
//! KeyInput, TerminalSize                    a terminal, for programs that refresh their output
//! clock, tsc, usage, timer                  time, processor time, and sleeping until a moment
//! clock_state, ptp, disk, process           synchronization of the clocks, room for files, signals to other processes
//! without_signals, accept_signals           signals to this thread that wait
//! unnamed                                   files that have no name until they are whole
//! affinity                                  processors of a thread
//! host_name                                 names of addresses: getnameinfo(3)
//! NetNs, capability, privilege              network namespace and rights of this process
//! Folder                                    a folder by its descriptor, even if it is renamed
//! sandbox                                   confinement of a process once all files are open: Landlock, seccomp
//! output_file                               files for results, and the rules for root
//! Opener                                    files opened by a process that kept its rights
//! helper                                    a process of our own with rights that this one gives up
//! standard_output                           standard output, if the program was started with one
//! ```
//!
//! A failed call is a [`SyscallError`], which names it. This crate knows nothing of filters, flows or files' contents.
//! Unsafe code is allowed here; each block says why it is sound.

pub mod affinity;
mod bell;
mod block_ring;
pub mod bpf;
pub mod capability;
pub mod clock;
pub mod clock_state;
mod datagram_socket;
pub mod disk;
mod error;
mod executable;
mod folder;
mod frame_socket;
pub mod futex;
pub mod heap;
pub mod helper;
mod host_name;
mod link_control;
mod live_frames;
mod memfd;
pub mod memory;
mod netdev;
mod netlink;
mod netns;
pub mod open_files;
mod opener;
mod option;
pub mod output_file;
pub mod packet_diag;
mod packet_socket;
pub mod passing;
pub mod peer;
mod poll;
pub mod privilege;
pub mod proc_packet;
pub mod process;
pub mod ptp;
mod ring_len;
mod route;
pub mod sandbox;
mod shared_words;
mod signal_mask;
pub mod standard_output;
mod terminal;
pub mod timer;
pub mod tsc;
pub mod udp;
pub mod unnamed;
pub mod usage;
pub mod waiting;
pub mod xsk;

pub use bell::{Bell, BellEvent};
pub use block_ring::{BlockHead, BlockRing, RingGeometry};
pub use datagram_socket::{DATAGRAMS_PER_CALL, DatagramSocket, ReceivedDatagram};
pub use error::SyscallError;
pub use executable::ExecutableMemory;
pub use folder::{Folder, PrivateFolder};
pub use frame_socket::{FRAMES_PER_CALL, FrameSocket, PIECES_MAX};
pub use host_name::host_name;
pub use link_control::{
    Channels, Coalescing, DriverInfo, Duplex, HashFields, LinkControl, LinkMode, Offload, PauseFrames,
    ReceiveHash, RingSizes, Timestamping, counts_receive_loss,
};
pub use live_frames::{LIVE_FRAMES_PER_RUN, LiveFrames, LiveFramesError, SubmittedFrames};
pub use memfd::{Memfd, Seals};
pub use netdev::{NetdevSocket, XdpFeatures};
pub use netns::NetNs;
pub use opener::{FileOwner, Opener};
pub use packet_socket::{FanoutMode, PacketSocket, RingStatistics, wait_for_receive_paths};
pub use poll::{Poller, Wakeup, measure_waits, measured_waits};
pub use ring_len::{RING_LEN_MAX, default_ring_len};
pub use route::{InterfaceAddress, Link, LinkChange, LinkStatistics, RouteSocket, XdpProgram};
pub use shared_words::{ReadWords, SharedWords, WordRange};
pub use signal_mask::{accept_signals, without_signals};
pub use terminal::{KeyInput, TerminalSize};
