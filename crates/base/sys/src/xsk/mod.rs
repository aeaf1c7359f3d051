//! AF_XDP sockets: packets go between the driver and memory of ours, past the kernel's stack.
//!
//! ```text
//!  UMEM = chunk*                          one stretch of memory, registered once; each chunk has one owner at a time
//!
//!              refill                        a packet comes in
//!    Free ───────────────► KernelReceive ────────────────────► (RX ring)
//!     ▲ │                                                          │ receive
//!     │ └─take_chunk──► Held ◄──────────────────────────────────────┘
//!     │                  │ │
//!     │◄──give_back──────┘ └──transmit──► KernelTransmit ──sent──► (completion ring)
//!     └───────────────────────────complete─────────────────────────────┘
//!
//!  ring         producer        consumer          entries
//!  fill         we              kernel            chunks that it may write a packet to
//!  RX           kernel          we                packets that it wrote
//!  TX           we              kernel            packets that it may send
//!  completion   kernel          we                chunks of packets that were sent
//! ```
//!
//! The owner of each chunk is written down ([`chunks`]), and every call asks there first: memory that the kernel may
//! write to is never lent for writing, never given to it twice, and a descriptor of the kernel's counts only if it
//! names a chunk that the kernel had.
//!
//! The order of calls, from the kernel's net/xdp/xsk.c:
//!
//! ```text
//! open       memory, socket, UMEM, rings
//! refill     before bind, so that the first packet finds a chunk
//! bind       to one queue of one interface; zero copy if the driver can
//! ...        a program at the interface redirects packets to it (crate::bpf)
//! ```

mod chunks;
mod memory;
mod ring;
mod socket;

pub use chunks::ChunkId;
pub use socket::{BoundModes, BusyPolling, Frame, XdpSocket, XskSettings, XskStatistics};

#[cfg(test)]
mod tests;
