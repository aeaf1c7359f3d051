//! Comparisons of numbers.
//!
//! ```text
//! tcp[13] & 2 != 0   becomes   ip and tcp and first fragment and (pkt[...] & 2 != 0)
//! ```
//!
//! Bytes of a header are only there if the header is. The test for the header goes before the comparison, so under
//! `not` a packet without the header matches. As in libpcap only the leftmost bytes on each side of the comparison
//! need their header: `1 + tcp[0] = 5` reads any packet. The right side's header is tested first, as in libpcap 1.11;
//! on a cut packet that order decides.

use tapline_packet::LinkType;

use super::numbers::ip_protocol;
use super::{Result, Scope};
use crate::ast::{Arith, ArithOp, Protocol, Relop};
use crate::generate::cells_needed;
use crate::options::HandleKind;
use crate::predicate::{Base, FieldOffset, NumberExpr, Predicate, Relation};
use tapline_bpf::ancillary;
use tapline_bpf::cfg::{Alu, JumpTest as Compare, Width};
use tapline_syntax::{Error, Span};

/// A value, and the condition for its presence.
struct Guarded {
    value: NumberExpr,
    guard: Option<Predicate>,
}

/// The offset of a header, and the predicates before and after those of the index.
type Header = (FieldOffset, Vec<Predicate>, Vec<Predicate>);

impl Scope<'_> {
    pub(super) fn relation(
        &mut self,
        left: &Arith,
        op: Relop,
        right: &Arith,
        span: Span,
    ) -> Result<Predicate> {
        let left = self.arith(left)?;
        let right = self.arith(right)?;
        self.count_cells(&left.value, &right.value, span);
        let comparison = compare(left.value, op, right.value);
        Ok(Predicate::all(right.guard.into_iter().chain(left.guard).chain([comparison])))
    }

    fn count_cells(&mut self, left: &NumberExpr, right: &NumberExpr, span: Span) {
        let needed = cells_needed(left, right);
        if needed > self.arith_cells.0 {
            self.arith_cells = (needed, span);
        }
    }

    /// Counts the cells that the assignments of a predicate take.
    pub(super) fn count_assigned(&mut self, predicate: &Predicate) {
        match predicate {
            Predicate::Assign(_, value) => self.count_cells(value, &NumberExpr::Constant(0), Span::default()),
            Predicate::Not(inner) => self.count_assigned(inner),
            Predicate::Chain(first, rest) => {
                self.count_assigned(first);
                rest.iter().for_each(|(_, part)| self.count_assigned(part));
            }
            _ => {}
        }
    }

    fn arith(&mut self, arith: &Arith) -> Result<Guarded> {
        match arith {
            Arith::Number(number) => Ok(unguarded(NumberExpr::Constant(*number))),
            Arith::Len => Ok(unguarded(NumberExpr::Len)),
            Arith::Negate(inner) => {
                let Guarded { value, guard } = self.arith(inner)?;
                let value = match value {
                    NumberExpr::Constant(number) if !self.probe.keeps_arithmetic => {
                        NumberExpr::Constant(number.wrapping_neg())
                    }
                    value => NumberExpr::Negate(Box::new(value)),
                };
                Ok(Guarded { value, guard })
            }
            Arith::Load { protocol, index, size, span } => {
                self.load(*protocol, index, *size).map_err(|error| error.with_place_if_none(*span))
            }
            Arith::Binary { op, left, right, span } => {
                check_right_operand(*op, right).map_err(|error| error.with_place_if_none(*span))?;
                let left = self.arith(left)?;
                let right = self.arith(right)?;
                self.note_optimiser_error(*op, &left.value, &right.value, *span);
                let value = match self.probe.keeps_arithmetic {
                    true => NumberExpr::Binary(alu(*op), Box::new(left.value), Box::new(right.value)),
                    false => NumberExpr::binary(alu(*op), left.value, right.value),
                };
                Ok(Guarded { value, guard: left.guard })
            }
        }
    }

    /// Records the error that libpcap's optimiser reports once it knows the operands.
    fn note_optimiser_error(&mut self, op: ArithOp, left: &NumberExpr, right: &NumberExpr, span: Span) {
        let message = match (op, left, right) {
            (ArithOp::Div, _, NumberExpr::Constant(0)) => "division by zero",
            (ArithOp::Mod, _, NumberExpr::Constant(0)) => "modulus by zero",
            (_, NumberExpr::Constant(_), _) => return,
            (ArithOp::ShiftLeft | ArithOp::ShiftRight, _, NumberExpr::Constant(32..)) => TOO_FAR,
            _ => return,
        };
        self.optimiser_error.get_or_insert_with(|| Error::at(span, message));
    }

    fn load(&mut self, protocol: Protocol, index: &Arith, size: u32) -> Result<Guarded> {
        let index = self.arith(index)?;
        let width = match size {
            1 => Width::Byte,
            2 => Width::Half,
            4 => Width::Word,
            _ => {
                return Err(Error::whole("data size must be 1, 2, or 4")
                    .hint("take three bytes out of four: ip[0:4] >> 8"));
            }
        };
        let (place, before, after) = self.header(protocol)?;
        let parts = before.into_iter().chain(index.guard).chain(after);
        let guard = parts.reduce(Predicate::and);
        Ok(Guarded { value: self.load_at(place, index.value, width), guard })
    }

    /// A constant index and the offset add up with a wrap, as libpcap's optimiser adds them: `ip[-1]` is the byte
    /// before the header. Offsets that the kernel takes for its metadata are that on a live capture only; elsewhere
    /// they are outside of every packet.
    fn load_at(&self, place: FieldOffset, index: NumberExpr, width: Width) -> NumberExpr {
        match index {
            NumberExpr::Constant(index) if place.base == Base::Packet && !self.probe.keeps_arithmetic => {
                let offset = place.offset.wrapping_add(index);
                if offset >= ancillary::BASE && self.options.handle != HandleKind::Live {
                    let outside = Box::new(NumberExpr::Constant(offset));
                    return NumberExpr::Load {
                        index: outside,
                        place: FieldOffset { offset: 0, ..place },
                        width,
                    };
                }
                NumberExpr::load(FieldOffset { offset, ..place }, width)
            }
            index => NumberExpr::Load { index: Box::new(index), place, width },
        }
    }

    /// The offset of a protocol's header, and the predicates that hold if it is there: before and after those of the
    /// index.
    fn header(&mut self, protocol: Protocol) -> Result<Header> {
        if self.extensions
            && let Some(header) = self.transport_header(protocol)?
        {
            return Ok(header);
        }
        if let Some(number) = ipv4_number(protocol) {
            // As libpcap 1.11: the protocol is asked of IPv4 alone, since the header is looked for behind IPv4's.
            let place = self.after_ipv4(0);
            let carried = self.ip_carries(number)?;
            let first = self.first_fragment();
            return Ok((place, vec![self.protocol(Protocol::Ip)?], vec![carried, first]));
        }
        Ok(match protocol {
            Protocol::Link => {
                // Not every tunnel carries a link header.
                let check = self.layers.kind.and_then(|_| self.outer_check());
                (self.at_link(0), vec![], check.into_iter().collect())
            }
            Protocol::Radio => (self.radio_header()?, vec![], vec![]),
            Protocol::Ip
            | Protocol::Arp
            | Protocol::Rarp
            | Protocol::Atalk
            | Protocol::Decnet
            | Protocol::Sca
            | Protocol::Lat
            | Protocol::Moprc
            | Protocol::Mopdl
            | Protocol::Ip6 => {
                let place = self.at_network(0);
                (place, vec![], vec![self.protocol(protocol)?])
            }
            Protocol::Icmp6 => {
                let is_ip6 = self.protocol(Protocol::Ip6)?;
                let next = self.ip6_next_header(ip_protocol::ICMPV6);
                let place = self.after_ipv6(0);
                (place, vec![], vec![is_ip6, next])
            }
            other => {
                let message = format!("'{}' does not support the index operation", other.name());
                return Err(Error::whole(message).hint("index ip, ip6, arp, tcp, udp, icmp, icmp6 or ether"));
            }
        })
    }

    /// The header of a protocol that both versions of IP carry, or of ICMPv6, behind any extension headers.
    fn transport_header(&mut self, protocol: Protocol) -> Result<Option<Header>> {
        let number = match protocol {
            Protocol::Tcp | Protocol::Udp | Protocol::Sctp | Protocol::Pim => ipv4_number(protocol),
            Protocol::Icmp6 => Some(ip_protocol::ICMPV6),
            _ => None,
        };
        let Some(number) = number else { return Ok(None) };
        let (Some(cells), Some(carried)) = (self.ask_transport(), self.has_header(number)) else {
            return Ok(None);
        };
        let is_ip6 = match protocol {
            Protocol::Icmp6 => vec![self.protocol(Protocol::Ip6)?],
            _ => vec![],
        };
        Ok(Some((self.at_transport(cells, 0), is_ip6, vec![carried])))
    }

    fn radio_header(&mut self) -> Result<FieldOffset> {
        match self.link_type() {
            LinkType::IEEE802_11_PRISM | LinkType::IEEE802_11_AVS | LinkType::IEEE802_11_RADIOTAP => {
                Ok(self.at_packet(0))
            }
            _ => Err(Error::whole("radio information not present in capture")),
        }
    }
}

/// The number of a protocol whose bytes are looked for behind an IPv4 header.
fn ipv4_number(protocol: Protocol) -> Option<u32> {
    Some(match protocol {
        Protocol::Icmp => ip_protocol::ICMP,
        Protocol::Igmp => ip_protocol::IGMP,
        Protocol::Tcp => ip_protocol::TCP,
        Protocol::Igrp => ip_protocol::IGRP,
        Protocol::Udp => ip_protocol::UDP,
        Protocol::Pim => ip_protocol::PIM,
        Protocol::Vrrp | Protocol::Carp => ip_protocol::VRRP,
        Protocol::Sctp => ip_protocol::SCTP,
        _ => return None,
    })
}

const TOO_FAR: &str = "shift by more than 31 bits";

fn unguarded(value: NumberExpr) -> Guarded {
    Guarded { value, guard: None }
}

/// libpcap looks at the first number of the right operand, also if more follows it or if it is an index: `1 / ip[0]`
/// is an error, `1 / ip[1]` is none.
fn check_right_operand(op: ArithOp, right: &Arith) -> Result<()> {
    let first = first_number(right);
    let message = match (op, first) {
        (ArithOp::Div, Some(0)) => "division by zero",
        (ArithOp::Mod, Some(0)) => "modulus by zero",
        (ArithOp::ShiftLeft | ArithOp::ShiftRight, Some(32..)) => TOO_FAR,
        _ => return Ok(()),
    };
    let hint = match right {
        Arith::Number(_) => "",
        _ => {
            "the first number after the operator counts, even as an index; write the bytes as x[1 - 1 + n] or shift otherwise"
        }
    };
    Err(Error::whole(message).hint(hint))
}

fn first_number(arith: &Arith) -> Option<u32> {
    match arith {
        Arith::Number(number) => Some(*number),
        Arith::Len => None,
        Arith::Load { index, .. } => first_number(index),
        Arith::Negate(inner) => first_number(inner),
        Arith::Binary { left, .. } => first_number(left),
    }
}

fn alu(op: ArithOp) -> Alu {
    match op {
        ArithOp::Add => Alu::Add,
        ArithOp::Sub => Alu::Sub,
        ArithOp::Mul => Alu::Mul,
        ArithOp::Div => Alu::Div,
        ArithOp::Mod => Alu::Mod,
        ArithOp::And => Alu::And,
        ArithOp::Or => Alu::Or,
        ArithOp::Xor => Alu::Xor,
        ArithOp::ShiftLeft => Alu::Shl,
        ArithOp::ShiftRight => Alu::Shr,
    }
}

fn compare(left: NumberExpr, op: Relop, right: NumberExpr) -> Predicate {
    let (compare, negated) = comparison(op);
    let relation = Predicate::Relation(Relation { left, compare, right });
    if negated { relation.not() } else { relation }
}

/// BPF's test for an operator, and whether its contrary is meant.
pub(super) fn comparison(op: Relop) -> (Compare, bool) {
    match op {
        Relop::Equal => (Compare::Equal, false),
        Relop::NotEqual => (Compare::Equal, true),
        Relop::Greater => (Compare::Greater, false),
        Relop::LessEqual => (Compare::Greater, true),
        Relop::GreaterEqual => (Compare::GreaterEqual, false),
        Relop::Less => (Compare::GreaterEqual, true),
    }
}
