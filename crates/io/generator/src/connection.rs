//! A TCP connection, one segment after the other.
//!
//! ```text
//! client                          server
//!   | SYN -------------------------> |
//!   | <--------------------- SYN,ACK |
//!   | ACK -------------------------> |
//!   | data, data ------------------> |   as many as the recipe says; PSH on each
//!   | <------------------------- ACK |   for every second one and the last
//!   | FIN,ACK ---------------------> |
//!   | <--------------------- FIN,ACK |
//!   | ACK -------------------------> |   then the next connection, with other sequence numbers
//! ```

use crate::random::Random;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// The state of a flow's connection; for ICMP, the last echo.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connection {
    /// The next sequence numbers of both sides.
    client: u32,
    server: u32,
    /// Data segments to come.
    left: u32,
    /// Data segments that were not acknowledged yet.
    open: u8,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Closed,
    SynSent,
    SynReceived,
    Established,
    FinSent,
    LastAck,
}

/// The header fields of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    /// Whether the segment goes from the server to the client.
    pub(crate) is_answer: bool,
    /// Bytes of payload.
    pub(crate) payload: usize,
}

impl Connection {
    /// The next segment, of the client alone if only `one_way` is wanted. `draw` is asked for the payload's length
    /// where there is one.
    #[inline]
    pub(crate) fn next(
        &mut self,
        segments: u32,
        one_way: bool,
        random: &mut Random,
        mut draw: impl FnMut() -> usize,
    ) -> Segment {
        loop {
            let segment = self.step(segments, random, &mut draw);
            if !(one_way && segment.is_answer) {
                return segment;
            }
        }
    }

    fn step(&mut self, segments: u32, random: &mut Random, draw: &mut impl FnMut() -> usize) -> Segment {
        match self.phase {
            Phase::Closed => {
                let bits = random.bits();
                (self.client, self.server) = ((bits >> 32) as u32, bits as u32);
                (self.left, self.open, self.phase) = (segments, 0, Phase::SynSent);
                let segment = Segment { seq: self.client, flags: SYN, ..Segment::default() };
                self.client = self.client.wrapping_add(1);
                segment
            }
            Phase::SynSent => {
                self.phase = Phase::SynReceived;
                let segment = self.answer(SYN | ACK);
                self.server = self.server.wrapping_add(1);
                segment
            }
            Phase::SynReceived => {
                self.phase = Phase::Established;
                self.request(ACK, 0)
            }
            Phase::Established if self.open == 2 || self.left == 0 && self.open > 0 => {
                self.open = 0;
                self.answer(ACK)
            }
            Phase::Established if self.left > 0 => {
                self.left -= 1;
                self.open += 1;
                let len = draw();
                let segment = self.request(PSH | ACK, len);
                self.client = self.client.wrapping_add(len as u32);
                segment
            }
            Phase::Established => {
                self.phase = Phase::FinSent;
                let segment = self.request(FIN | ACK, 0);
                self.client = self.client.wrapping_add(1);
                segment
            }
            Phase::FinSent => {
                self.phase = Phase::LastAck;
                let segment = self.answer(FIN | ACK);
                self.server = self.server.wrapping_add(1);
                segment
            }
            Phase::LastAck => {
                self.phase = Phase::Closed;
                self.request(ACK, 0)
            }
        }
    }

    #[inline]
    pub(crate) fn next_echo(&mut self) -> u16 {
        self.client = self.client.wrapping_add(1);
        self.client as u16
    }

    fn request(&self, flags: u8, payload: usize) -> Segment {
        Segment { seq: self.client, ack: self.server, flags, is_answer: false, payload }
    }

    fn answer(&self, flags: u8) -> Segment {
        Segment { seq: self.server, ack: self.client, flags, is_answer: true, payload: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_as_drawn_above() {
        let (mut connection, mut random) = (Connection::default(), Random::new(1, 1));
        let shown = |segment: &Segment| {
            let names = [(SYN, 'S'), (FIN, 'F'), (PSH, 'P'), (ACK, '.')];
            let flags: String =
                names.iter().filter(|(bit, _)| segment.flags & bit != 0).map(|(_, name)| name).collect();
            format!("{}{flags}{}", if segment.is_answer { '<' } else { '>' }, segment.payload)
        };
        for _ in 0..3 {
            let segments: Vec<Segment> =
                (0..11).map(|_| connection.next(3, false, &mut random, || 7)).collect();
            let shown: Vec<String> = segments.iter().map(shown).collect();
            assert_eq!(
                shown,
                [">S0", "<S.0", ">.0", ">P.7", ">P.7", "<.0", ">P.7", "<.0", ">F.0", "<F.0", ">.0"]
            );
            let (client, server) = (segments[0].seq, segments[1].seq);
            let relative: Vec<(u32, u32)> = segments[2..]
                .iter()
                .map(|s| if s.is_answer { (server, client, s) } else { (client, server, s) })
                .map(|(own, other, s)| (s.seq.wrapping_sub(own), s.ack.wrapping_sub(other)))
                .collect();
            assert_eq!(
                relative,
                [(1, 1), (1, 1), (8, 1), (1, 15), (15, 1), (1, 22), (22, 1), (1, 23), (23, 2)]
            );
        }
    }
}
