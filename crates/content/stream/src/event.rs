//! Events of streams, and the bounds of a reassembler.

use std::time::Duration;

use tapline_packet::Packet;
use tapline_packet::headers::FiveTuple;

use crate::account::GapCause;

/// The bounds of a [`Reassembler`](crate::Reassembler).
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections that are known at a time, 1 or more; about 400 bytes each.
    pub connections: usize,
    /// Bytes of memory for packets of one direction that wait behind a gap.
    pub stream_bytes: usize,
    /// Bytes of memory for packets of all streams that wait behind gaps.
    pub bytes: usize,
    /// The wait for missing bytes that the receiver has acknowledged.
    pub patience: Duration,
    /// The longest silence of a connection.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 100_000,
            stream_bytes: 4 << 20,
            bytes: 64 << 20,
            patience: Duration::from_millis(100),
            idle: Duration::from_secs(300),
        }
    }
}

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The number of the connection, from 0 in the order in which they began.
    pub connection: u64,
    /// Sender and receiver.
    pub tuple: FiveTuple,
    /// Sent by the end that opened the connection; by the end that was seen first where SYN is missing.
    pub is_from_client: bool,
    /// The beginning of the connection was seen.
    pub has_syn: bool,
    /// The offset of the event: bytes since the stream's beginning, delivered or missed.
    pub offset: u64,
    /// The time of the event's packet, in nanoseconds since 1970; that of the connection's last packet where the event
    /// has none. `None` for a packet without a time.
    pub time_ns: Option<i64>,
}

tapline_packet::named_enum! {
    /// The reason for which a stream ended.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum EndCause {
        /// FIN.
        Finished = "fin",
        /// RST, of either end.
        Reset = "rst",
        /// Silence for longer than [`Limits::idle`].
        Idle = "idle",
        /// There were too many connections.
        Evicted = "evicted",
        /// A new connection has the same addresses and ports.
        Replaced = "replaced",
        /// The capture ended.
        CaptureEnd = "capture end",
    }
}

/// A segment whose turn has come.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// The packet as it was captured.
    pub packet: Packet<'a>,
    /// The offset of its payload.
    pub payload_at: usize,
    /// Bytes of payload that were delivered before, or are older than the stream.
    pub skipped: usize,
    /// Bytes of payload behind these that are new.
    pub len: usize,
    /// The packet is the one that was pushed, and did not wait.
    pub is_current: bool,
    /// The offset in the opposite stream up to which the packet acknowledges; `None` if that is not known.
    pub acknowledged: Option<u64>,
}

impl<'a> Piece<'a> {
    /// The next bytes of the stream; none for segments without payload.
    pub fn bytes(&self) -> &'a [u8] {
        let start = self.payload_at + self.skipped;
        self.packet.data.get(start..start + self.len).unwrap_or_default()
    }
}

/// An event in a stream.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A segment, with the next bytes of the stream or without any.
    Segment(Piece<'a>),
    /// Bytes that will not come.
    Gap {
        /// Number of missing bytes, 1 or more.
        len: u64,
        /// The reason for which they were given up.
        cause: GapCause,
    },
    /// No more bytes come. Segments without bytes, such as the reset itself, may.
    End(EndCause),
    /// The last event of a connection: both of its streams are forgotten. It is reported once, for the client's
    /// stream, whether or not a stream had begun.
    Forgotten,
}

/// The fate of a packet that was pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketFate {
    /// No TCP: a packet without a whole TCP header, or a fragment.
    NotTcp,
    /// Handed on, as an event.
    Passed,
    /// Waiting: the packet's event comes later.
    Held,
    /// Refused: nothing in the packet is new.
    Refused,
}
