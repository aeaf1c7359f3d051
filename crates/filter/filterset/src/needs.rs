//! Computes the bytes that must have been captured, so that an alternative that holds means that the filter accepts.
//!
//! ```text
//! filter       a and b or c         evaluated from left to right, as far as needed
//! alternative  { type=ip ... }      decides some questions beforehand; what they rule out is not evaluated
//!
//! needs := the end of the bytes that can be loaded   from the packet's start, and past IPv4 headers
//!          open, if a question can come up that parts and numbers do not answer, or the alternative asks for too little
//! ```
//!
//! A packet that satisfies the alternative and has all these bytes makes no load fail. Then the order of evaluation
//! does not matter, and the filter accepts because the alternative holds. If bytes are missing, or a condition is
//! open, the filter's own program decides.

use tapline_packet::Packet;

use super::disjunct::{Conjunction, Literal, literal};
use super::field::{BitField, Origin, ipv4_header_len};
use tapline_filter::ast::BoolOp;
use tapline_filter::predicate::Predicate;

/// The bytes that must have been captured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    /// Bytes from the packet's start.
    pub(super) start: u64,
    /// For each IPv4 header, by its place: bytes, less the header's length.
    pub(super) past: Vec<(u32, u64)>,
    /// Whether the program must be run in any case.
    pub(super) open: bool,
}

impl Needs {
    /// The bytes that evaluating `predicate` may load if `known` holds.
    pub(super) fn of(predicate: &Predicate, known: &Conjunction) -> Needs {
        let mut needs = Needs { open: known.is_weak, ..Needs::default() };
        needs.walk(predicate, known);
        needs
    }

    /// The bytes that reading parts takes.
    pub(super) fn of_parts(parts: impl IntoIterator<Item = BitField>) -> Needs {
        let mut needs = Needs::default();
        parts.into_iter().for_each(|part| needs.part(part));
        needs
    }

    /// The predicate's answer, where `known` decides it.
    fn walk(&mut self, predicate: &Predicate, known: &Conjunction) -> Option<bool> {
        match predicate {
            Predicate::Not(inner) => self.walk(inner, known).map(|answer| !answer),
            Predicate::Chain(first, rest) => {
                let mut answer = self.walk(first, known);
                for (joint, part) in rest {
                    let settled = *joint == BoolOp::Or;
                    if answer != Some(settled) {
                        answer = match (self.walk(part, known), answer) {
                            (Some(part), _) if part == settled => Some(settled),
                            (Some(_), answer) => answer,
                            (None, _) => None,
                        };
                    }
                }
                answer
            }
            other => match literal(other, true) {
                Literal::Constant(answer) => Some(answer),
                Literal::Part(part, condition) => {
                    self.part(part);
                    if condition.is_empty() { Some(false) } else { known.decides(part, &condition) }
                }
                Literal::Open => {
                    self.open = true;
                    None
                }
            },
        }
    }

    fn part(&mut self, part: BitField) {
        match part.origin {
            Origin::Start => self.start = self.start.max(part.end()),
            Origin::Ipv4Len(header) => {
                self.start = self.start.max(u64::from(header) + 1);
                match self.past.iter_mut().find(|(place, _)| *place == header) {
                    Some((_, end)) => *end = part.end().max(*end),
                    None => self.past.push((header, part.end())),
                }
            }
            Origin::Len | Origin::Kernel(_) => {}
        }
    }

    /// Whether every packet with the bytes of `other` has the bytes of this.
    pub(super) fn implied_by(&self, other: &Needs) -> bool {
        let past = |(header, end): &(u32, u64)| {
            other.past.iter().any(|(place, other_end)| place == header && end <= other_end)
        };
        !self.open && self.start <= other.start && self.past.iter().all(past)
    }

    /// Whether a packet has it all.
    pub(super) fn met_by(&self, packet: Packet<'_>) -> bool {
        let captured = packet.data.len() as u64;
        let past = |(header, end): &(u32, u64)| {
            ipv4_header_len(packet.data, *header).is_some_and(|len| len as u64 + end <= captured)
        };
        !self.open && self.start <= captured && self.past.iter().all(past)
    }
}
