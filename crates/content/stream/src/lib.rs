//! TCP streams: the bytes that each end sent, in order, out of packets that were reordered, repeated, cut or lost.
//!
//! ```text
//! packet --Segment--> connection --> direction: due? --> Event::Segment (its new bytes)
//!                                        |  ahead: held, as a copy
//!                                        +- what holds it up is given up --> Event::Gap
//!                                        +- FIN, RST, silence, end ---------> Event::End
//! ```
//!
//! | module | has |
//! |---|---|
//! | `segment` | the sequence number, flags and payload of a packet |
//! | `direction` | one direction of a connection: due and held segments |
//! | `event` | events of streams; [`Limits`] |
//! | `reassembler` | all connections, their limits, and the account |
//! | `account` | the account of every byte |
//! | [`http`] | bodies of HTTP/1 messages out of a stream |
//!
//! # Decisions
//!
//! - **Overlaps**: of bytes that were sent several times, those delivered first count. Behind a gap, the segment that
//!   begins first in the stream is delivered first.
//! - **Gaps** are given up, and reported, once the receiver acknowledged the missing bytes and [`Limits::patience`]
//!   has passed (the capture lost it); once more than [`Limits::stream_bytes`] or [`Limits::bytes`] wait behind gaps
//!   (the connection that has held longest gives up first); and when the stream ends. Bytes that a snap length cut
//!   off are a gap at once.
//! - **Beginnings**: SYN, or the first segment with payload. Bytes from before it that come later are given up.
//! - **Ends**: FIN once all before it came, RST with a number at most 1 MiB ahead (bytes that the other end sends
//!   until it knows are delivered), silence for [`Limits::idle`] by the packets' time, another SYN on the same ports,
//!   a full table of connections (the longest silent one goes), the end of the capture. A connection that ended is
//!   remembered until it was silent for as long, so that a retransmission does not start a new one.
//! - **Numbers** are those of tshark's `tcp.stream` as long as no connection had to make room.
//!
//! Every captured byte of TCP payload is delivered, a duplicate, given up or held; every byte of a stream is
//! delivered or in a gap. [`Account`] has the sums. Fragments of IP packets and packets in tunnels are left alone.

#![forbid(unsafe_code)]

mod account;
mod direction;
mod event;
pub mod http;
mod reassembler;
mod segment;
#[cfg(test)]
mod tests;

pub use account::{Account, GapCause, Refusal};
pub use event::{EndCause, Event, Limits, PacketFate, Piece, Stream};
pub use reassembler::Reassembler;
