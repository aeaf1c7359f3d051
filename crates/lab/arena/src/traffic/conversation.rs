//! A TCP connection between two hosts, as the frames that a tap between them sees.
//!
//! ```text
//! client                         server
//!   | SYN ------------------------> |   mss, window scale, sack, timestamps
//!   | <-------------------- SYN,ACK |   half a round trip later
//!   | ACK ------------------------> |
//!   | data, data, ----------------> |   full segments, an ACK for every second one
//!   | <------------------------ ACK |
//!   | FIN,ACK --- FIN,ACK --- ACK   |
//! ```

use super::Encapsulation;
use crate::frames::{Ethernet, Host, IpPair, IpVersion, Tcp, TcpOption, flags};

/// Wire time of a full frame at 1 Gbit/s.
const SEGMENT_GAP_NS: u64 = 12_304;

/// A TCP connection under way. Its frames gather in order of time, in nanoseconds from its beginning.
#[derive(Clone, Debug)]
pub struct Conversation {
    client: End,
    server: End,
    version: IpVersion,
    wrap: Encapsulation,
    rtt_ns: u64,
    now_ns: u64,
    frames: Vec<(u64, Vec<u8>)>,
}

#[derive(Clone, Copy, Debug)]
struct End {
    host: Host,
    port: u16,
    next_seq: u32,
}

/// The sender of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side that opened the connection.
    Client,
    /// The other.
    Server,
}

impl Conversation {
    /// Between two ends, before the first segment.
    pub fn new(
        client: (Host, u16),
        server: (Host, u16),
        version: IpVersion,
        wrap: Encapsulation,
        rtt_ns: u64,
    ) -> Conversation {
        // Sequence numbers from the ports: fixed, and close enough to the end that long sessions wrap around.
        let end = |(host, port): (Host, u16)| End { host, port, next_seq: u32::from(port) << 16 | 0xf000 };
        let (client, server) = (end(client), end(server));
        Conversation { client, server, version, wrap, rtt_ns, now_ns: 0, frames: Vec::new() }
    }

    /// The three segments that open the connection.
    pub fn open(&mut self) {
        let offers = vec![
            TcpOption::MaximumSegment(self.segment_max() as u16 + 12),
            TcpOption::SackPermitted,
            self.timestamps(),
            TcpOption::Nop,
            TcpOption::WindowScale(7),
        ];
        self.segment(Side::Client, flags::SYN, offers.clone(), &[]);
        self.wait_half_round_trip();
        self.segment(Side::Server, flags::SYN | flags::ACK, offers, &[]);
        self.wait_half_round_trip();
        self.plain(Side::Client, flags::ACK, &[]);
    }

    /// Sends `bytes` in as many segments as they need; the other side acknowledges every second one and the last.
    pub fn send(&mut self, side: Side, bytes: &[u8]) {
        let segments = bytes.len().div_ceil(self.segment_max());
        let max = self.segment_max();
        for (index, part) in bytes.chunks(max).enumerate() {
            let is_last = index + 1 == segments;
            self.plain(side, if is_last { flags::PSH | flags::ACK } else { flags::ACK }, part);
            self.now_ns += SEGMENT_GAP_NS;
            if is_last || index % 2 == 1 {
                self.plain(side.other(), flags::ACK, &[]);
            }
        }
        self.wait_half_round_trip();
    }

    /// The segments that close the connection from the client's side.
    pub fn close(&mut self) {
        self.plain(Side::Client, flags::FIN | flags::ACK, &[]);
        self.wait_half_round_trip();
        self.plain(Side::Server, flags::FIN | flags::ACK, &[]);
        self.wait_half_round_trip();
        self.plain(Side::Client, flags::ACK, &[]);
    }

    /// Ends the connection at once, from the server's side.
    pub fn reset(&mut self) {
        self.plain(Side::Server, flags::RST | flags::ACK, &[]);
    }

    /// The frames on the wire: nanoseconds from the beginning, and the frame.
    pub fn into_frames(self) -> Vec<(u64, Vec<u8>)> {
        self.frames
    }

    fn segment_max(&self) -> usize {
        let ip_header = if self.version == IpVersion::V4 { 20 } else { 40 };
        self.wrap.packet_max() - ip_header - 32
    }

    fn timestamps(&self) -> TcpOption {
        let ticks = 1000 + (self.now_ns / 1_000_000) as u32;
        TcpOption::Timestamps(ticks, ticks.saturating_sub(1))
    }

    fn wait_half_round_trip(&mut self) {
        self.now_ns += self.rtt_ns / 2;
    }

    fn plain(&mut self, side: Side, control: u8, payload: &[u8]) {
        let options = vec![TcpOption::Nop, TcpOption::Nop, self.timestamps()];
        self.segment(side, control, options, payload);
    }

    fn segment(&mut self, side: Side, control: u8, options: Vec<TcpOption>, payload: &[u8]) {
        let (from, to) = match side {
            Side::Client => (&mut self.client, &self.server),
            Side::Server => (&mut self.server, &self.client),
        };
        let tcp = Tcp {
            src: from.port,
            dst: to.port,
            seq: from.next_seq,
            ack: if control & flags::ACK != 0 { to.next_seq } else { 0 },
            flags: control,
            window: 502,
            options,
        };
        let counts = u32::from(control & (flags::SYN | flags::FIN) != 0);
        from.next_seq = from.next_seq.wrapping_add(payload.len() as u32 + counts);
        let packet = tcp.packet(IpPair::between(&from.host, &to.host, self.version), payload);
        let frame = self.wrap.frame(Ethernet::between(&from.host, &to.host), &packet);
        self.frames.push((self.now_ns, frame));
        self.now_ns += 1_000;
    }
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }
}
