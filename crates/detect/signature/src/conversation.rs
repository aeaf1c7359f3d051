//! The state of a flow that signatures ask for: its direction, its handshake, and flow bits.

use std::collections::HashMap;

/// The most flow bits of a ruleset.
pub const FLOW_BITS_MAX: usize = 256;

const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// The sender of a packet, by its part in the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// The state of a flow, both directions together.
///
/// The client is the sender of the first SYN. In a flow whose SYN was not seen, the sender of a SYN with ACK is the
/// server; without either, the client is the sender of the first packet that was seen, unless its port is below 1024
/// and the receiver's is not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversation {
    /// The client is the lower side of the flow's key; `None` before the first packet.
    client_is_lower: Option<bool>,
    has_syn: bool,
    /// Packets came from the lower side, from the higher side.
    has_sent: [bool; 2],
    is_reset: bool,
    bits: [u64; FLOW_BITS_MAX / 64],
}

impl Conversation {
    /// Takes note of a packet. `is_lower` says that the lower side of the flow's key sent it; `ports` are the sender's
    /// and the receiver's; `tcp_flags` are the low eight flags, `None` for other protocols.
    pub fn observe(&mut self, is_lower: bool, ports: (u16, u16), tcp_flags: Option<u8>) {
        let flags = tcp_flags.unwrap_or(0);
        if flags & (SYN | ACK) == SYN {
            // A new connection of the same ports.
            if self.is_reset || (self.has_sent[0] && self.has_sent[1]) {
                *self = Conversation::default();
            }
            (self.client_is_lower, self.has_syn) = (Some(is_lower), true);
        } else if flags & SYN != 0 && !self.has_syn {
            self.client_is_lower = Some(!is_lower);
        }
        let is_from_server = ports.0 < 1024 && ports.1 >= 1024;
        self.client_is_lower.get_or_insert(is_lower != is_from_server);
        self.has_sent[usize::from(!is_lower)] = true;
        self.is_reset |= flags & RST != 0;
    }

    /// The part of the sender.
    pub fn direction(&self, is_lower: bool) -> Direction {
        match self.client_is_lower == Some(is_lower) {
            true => Direction::ToServer,
            false => Direction::ToClient,
        }
    }

    /// Both sides have sent, or the flow was there before its first packet was seen.
    pub fn is_established(&self) -> bool {
        !self.has_syn || (self.has_sent[0] && self.has_sent[1])
    }

    pub(crate) fn has(&self, bit: FlowBit) -> bool {
        self.bits[usize::from(bit.0) / 64] & 1 << (bit.0 % 64) != 0
    }

    pub(crate) fn change(&mut self, bit: FlowBit, change: FlowBitChange) {
        let (word, mask) = (&mut self.bits[usize::from(bit.0) / 64], 1 << (bit.0 % 64));
        match change {
            FlowBitChange::Set => *word |= mask,
            FlowBitChange::Unset => *word &= !mask,
            FlowBitChange::Toggle => *word ^= mask,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowBit(u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowBitChange {
    Set,
    Unset,
    Toggle,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct FlowBitNames(HashMap<String, FlowBit>);

impl FlowBitNames {
    /// The bit of a name, new for a new name.
    pub(crate) fn of(&mut self, name: &str) -> Result<FlowBit, String> {
        if let Some(bit) = self.0.get(name) {
            return Ok(*bit);
        }
        let Some(free) = (self.0.len() < FLOW_BITS_MAX).then_some(self.0.len() as u8) else {
            return Err(format!("more than {FLOW_BITS_MAX} names of flow bits: split the file"));
        };
        self.0.insert(name.to_owned(), FlowBit(free));
        Ok(FlowBit(free))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: (u16, u16) = (40_000, 80);
    const SERVER: (u16, u16) = (80, 40_000);

    #[test]
    fn the_handshake_says_who_is_the_client() {
        for lower in [true, false] {
            let mut flow = Conversation::default();
            flow.observe(lower, CLIENT, Some(SYN));
            assert!(!flow.is_established());
            assert_eq!(flow.direction(lower), Direction::ToServer);
            flow.observe(!lower, SERVER, Some(SYN | ACK));
            assert!(flow.is_established());
            assert_eq!(flow.direction(!lower), Direction::ToClient);
        }
    }

    #[test]
    fn a_flow_met_in_its_middle_has_a_direction() {
        let mut flow = Conversation::default();
        flow.observe(true, SERVER, Some(ACK));
        assert_eq!((flow.direction(true), flow.is_established()), (Direction::ToClient, true));
        let mut flow = Conversation::default();
        flow.observe(true, (5000, 6000), None);
        assert_eq!(flow.direction(true), Direction::ToServer);
        let mut flow = Conversation::default();
        flow.observe(true, (5000, 6000), Some(SYN | ACK));
        assert_eq!(flow.direction(true), Direction::ToClient);
    }

    #[test]
    fn new_connections_reset_the_flow_bits() {
        let mut names = FlowBitNames::default();
        let (one, other) = (names.of("one").unwrap(), names.of("other").unwrap());
        assert_eq!(names.of("one"), Ok(one));
        let mut flow = Conversation::default();
        flow.observe(true, CLIENT, Some(SYN));
        flow.observe(false, SERVER, Some(SYN | ACK));
        flow.change(one, FlowBitChange::Set);
        flow.change(other, FlowBitChange::Toggle);
        assert!(flow.has(one) && flow.has(other));
        flow.change(other, FlowBitChange::Unset);
        assert!(flow.has(one) && !flow.has(other));
        flow.observe(true, CLIENT, Some(SYN));
        assert!(!flow.has(one) && !flow.is_established());
    }

    #[test]
    fn names_have_a_bound() {
        let mut names = FlowBitNames::default();
        for number in 0..FLOW_BITS_MAX {
            names.of(&number.to_string()).expect("there is room");
        }
        assert!(names.of("more").is_err() && names.of("7").is_ok());
    }
}
