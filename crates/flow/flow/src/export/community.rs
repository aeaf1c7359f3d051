//! Community ID, version 1: a text that names a flow alike at every probe, for either direction.
//!
//! ```text
//! "1:" base64(SHA-1(seed 2 | lower address | higher address | protocol 1 | 0 1 | its port 2 | other port 2))      ports for TCP, UDP, SCTP, ICMP
//! ```
//!
//! Source: the Community ID Flow Hashing specification (Corelight). For ICMP the message's type is the source port
//! and the type of its answer the destination port; a message without an answer has its type and code there instead,
//! and the addresses are not sorted.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest as _, Sha1};

use tapline_packet::numbers::ip_protocol::{ICMP, ICMPV6};

use crate::{Flow, KnownField};

/// Protocols with ports: TCP, UDP, SCTP.
const WITH_PORTS: [u8; 3] = [6, 17, 132];
/// Types of ICMP messages and of their answers.
const ANSWERS: [(u16, u16); 5] = [(0, 8), (13, 14), (15, 16), (17, 18), (9, 10)];
const ANSWERS_V6: [(u16, u16); 6] = [(128, 129), (133, 134), (135, 136), (130, 131), (139, 140), (144, 145)];

/// Bytes of a text: `1:` and the base64 of 20 octets.
const LEN: usize = 30;

/// The text of a flow, with the seed 0; `None` if a part of it is not known.
pub(super) fn of_flow(flow: &Flow) -> Option<[u8; LEN]> {
    let ends = || flow.endpoints.each_ref().map(|end| (end.address, end.port));
    is_known(flow).then(|| text_of(flow.protocol, ends()))
}

/// Whether all of a flow is known that the text is made of.
fn is_known(flow: &Flow) -> bool {
    let has_ports = WITH_PORTS.contains(&flow.protocol);
    let is_icmp = matches!(flow.protocol, ICMP | ICMPV6);
    let knows =
        |side| flow.knows(KnownField::Address, side) && (!has_ports || flow.knows(KnownField::Port, side));
    flow.knows(KnownField::Protocol, 0)
        && knows(0)
        && knows(1)
        && (!is_icmp || flow.knows(KnownField::IcmpTypeCode, 0))
}

/// Community ID (version 1, seed 0) of a flow or packet: protocol, source and destination with their ports. Of ICMP type *
/// 256 + code is the destination's port.
pub fn community_id(protocol: u8, ends: [(IpAddr, u16); 2]) -> String {
    text_of(protocol, ends).map(char::from).iter().collect()
}

fn text_of(protocol: u8, [mut source, mut destination]: [(IpAddr, u16); 2]) -> [u8; LEN] {
    let mut is_one_way = false;
    if matches!(protocol, ICMP | ICMPV6) {
        let (kind, code) = (destination.1 >> 8, destination.1 & 0xff);
        let answer = answer(protocol, kind);
        is_one_way = answer.is_none();
        (source.1, destination.1) = (kind, answer.unwrap_or(code));
    }
    if !is_one_way && source > destination {
        (source, destination) = (destination, source);
    }
    let mut message = Message { octets: [0; 40], len: 0 };
    message.add(&[0, 0]);
    message.add_address(source.0);
    message.add_address(destination.0);
    message.add(&[protocol, 0]);
    if WITH_PORTS.contains(&protocol) || matches!(protocol, ICMP | ICMPV6) {
        message.add(&source.1.to_be_bytes());
        message.add(&destination.1.to_be_bytes());
    }
    let mut text = [0; LEN];
    text[..2].copy_from_slice(b"1:");
    // There is room for the base64 of 20 octets.
    let _ = STANDARD.encode_slice(Sha1::digest(&message.octets[..message.len]), &mut text[2..]);
    text
}

/// The octets that are hashed, in one piece: a block of SHA-1 has room for all of them.
struct Message {
    octets: [u8; 40],
    len: usize,
}

impl Message {
    fn add(&mut self, octets: &[u8]) {
        self.octets[self.len..self.len + octets.len()].copy_from_slice(octets);
        self.len += octets.len();
    }

    fn add_address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.add(&address.octets()),
            IpAddr::V6(address) => self.add(&address.octets()),
        }
    }
}

/// The type that answers a type, or is answered by it.
fn answer(protocol: u8, kind: u16) -> Option<u16> {
    let pairs = if protocol == ICMP { &ANSWERS[..] } else { &ANSWERS_V6[..] };
    pairs.iter().find_map(|&(one, other)| match kind {
        kind if kind == one => Some(other),
        kind if kind == other => Some(one),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use tapline_packet::Timestamp;

    use super::*;
    use crate::{EndReason, Endpoint, FlowContext};

    fn id(protocol: u8, one: (&str, u16), other: (&str, u16)) -> String {
        let side = |(address, port): (&str, u16)| Endpoint {
            address: address.parse().unwrap(),
            port,
            packets: 1,
            bytes: 1,
            first: Timestamp::EPOCH,
            last: Timestamp::EPOCH,
            tcp_flags: 0,
            tcp_flags_first: 0,
            ttl_min: 0,
            ttl_max: 0,
            tos: 0,
        };
        let endpoints = [side(one), side(other)];
        let text = of_flow(&Flow {
            endpoints,
            protocol,
            end_reason: EndReason::Idle,
            context: FlowContext::NONE,
            details: None,
            collected: None,
            id: 0,
        });
        String::from_utf8_lossy(&text.expect("all is known")).into_owned()
    }

    /// The examples of the specification.
    #[test]
    fn known_ids() {
        for (protocol, one, other, expected) in [
            (6, ("128.232.110.120", 34855), ("66.35.250.204", 80), "1:LQU9qZlK+B5F3KDmev6m5PMibrg="),
            (17, ("192.168.1.52", 54585), ("8.8.8.8", 53), "1:d/FP5EW3wiY1vCndhwleRRKHowQ="),
            (1, ("192.168.0.89", 0), ("192.168.0.1", 8 << 8), "1:X0snYXpgwiv9TZtqg64sgzUn6Dk="),
        ] {
            assert_eq!(id(protocol, one, other), expected);
        }
    }

    #[test]
    fn both_directions_and_both_messages_are_one() {
        let (one, other) = (("10.0.0.1", 7), ("10.0.0.2", 5));
        assert_eq!(id(6, one, other), id(6, other, one));
        let (asks, answers) = (8 << 8, 0);
        assert_eq!(id(1, ("10.0.0.1", 0), ("10.0.0.2", asks)), id(1, ("10.0.0.2", 0), ("10.0.0.1", answers)));
        // Unreachable is not an answer to anything.
        let unreachable = 3 << 8 | 1;
        assert_ne!(
            id(1, ("10.0.0.1", 0), ("10.0.0.2", unreachable)),
            id(1, ("10.0.0.2", 0), ("10.0.0.1", unreachable))
        );
    }
}
