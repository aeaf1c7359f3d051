//! The tests of a filter on a packet, with all names, qualifiers and offsets resolved.
//!
//! ```text
//! predicate := constant | test | relation | chain | not
//!            | any of               -- one field, equal to one of several numbers
//!            | headers              -- follow IP headers to a protocol (`protochain`)
//!            | assign               -- note where a header is, in scratch cells; holds always
//! test      := field & mask  test  value
//! field     := pkt[place : width] | len
//! place     := offset from the packet's start, from a cell's value, or from the end of an IPv4 header
//! relation  := value test value
//! ```
//!
//! Parts are evaluated from left to right and only as far as needed. A load outside of the captured bytes ends the
//! evaluation: the packet is rejected as a whole, also under `not` and before an `or`.

use crate::ast::BoolOp;
use tapline_bpf::cfg::{Alu, JumpTest as Compare, Width};

/// A scratch cell, 0 to 15.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScratchCell(pub u8);

/// A filter for one link type, resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predicates {
    /// The predicate that accepts a packet, behind the steps that find its headers.
    pub root: Predicate,
    /// The cells that predicates assign; those from here on are free for arithmetic.
    pub cells: u8,
    /// Whether libpcap's optimiser looks at such a filter. If it does, a filter that rejects every packet is an error.
    pub provable: bool,
}

/// A question about a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Predicate {
    /// Always or never.
    Constant(bool),
    /// One field, compared with a constant.
    Test(FieldTest),
    /// One field, equal to any of several numbers: at least one, ascending. Only results of `gather` have it.
    AnyOf(FieldTest, Box<[u32]>),
    /// Two numbers, compared.
    Relation(Relation),
    /// The parts from left to right, `and` and `or` binding alike.
    Chain(Box<Predicate>, Vec<(BoolOp, Predicate)>),
    /// The contrary.
    Not(Box<Predicate>),
    /// Whether a chain of IP headers leads to a protocol.
    Headers(HeaderChain),
    /// Whether two cells differ.
    Differ(ScratchCell, ScratchCell),
    /// Puts a value in a cell; holds always.
    Assign(ScratchCell, NumberExpr),
}

/// A field of the packet, compared with a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldTest {
    /// The value that is tested.
    pub field: TestedField,
    /// The bits that count; all ones for a whole field.
    pub mask: u32,
    /// The comparison.
    pub compare: Compare,
    /// The compared value.
    pub value: u32,
    /// The name of the field, for people.
    pub name: &'static str,
}

/// The value of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestedField {
    /// Bytes of the packet, big-endian.
    Packet(FieldOffset, Width),
    /// The packet's length on the wire.
    Len,
}

/// An offset: `offset` bytes from `base`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldOffset {
    /// The origin of the offset.
    pub base: Base,
    /// From 0xfffff000 on and from the packet's start, a load of Linux's own (`SKF_AD_OFF`).
    pub offset: u32,
}

/// The origin of an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The packet's first byte.
    Packet,
    /// The value of a cell.
    Cell(ScratchCell),
    /// The length of the IPv4 header at `header` bytes from the cell's value or from the packet's start, plus that
    /// value. An offset from here that includes `header` is past the IPv4 header.
    Ipv4Len {
        /// Holds the variable part of the header's place.
        cell: Option<ScratchCell>,
        /// The constant part.
        header: u32,
    },
}

/// A comparison of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    /// The left operand.
    pub left: NumberExpr,
    /// The comparison.
    pub compare: Compare,
    /// The right operand.
    pub right: NumberExpr,
}

/// A number computed for each packet: 32 bits, unsigned, wraps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NumberExpr {
    /// A number.
    Constant(u32),
    /// The packet's length on the wire.
    Len,
    /// A cell's value.
    Cell(ScratchCell),
    /// The bytes at `place` plus `index`.
    Load {
        /// Added to the place.
        index: Box<NumberExpr>,
        /// The origin of the index.
        place: FieldOffset,
        /// Number of bytes.
        width: Width,
    },
    /// `-a`.
    Negate(Box<NumberExpr>),
    /// `a op b`.
    Binary(Alu, Box<NumberExpr>, Box<NumberExpr>),
}

/// A chain of IP headers that is followed to a protocol: at most [`HEADERS_MAX`] headers past the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderChain {
    /// 4 or 6.
    pub version: u8,
    /// The offset of the IP header from the packet's start.
    pub start: u32,
    /// The protocol that is looked for.
    pub protocol: u8,
}

/// The most headers that `protochain` follows. libpcap loops without a bound, backwards, which no kernel loads, and
/// with a wrong step over authentication headers, which may never end. Real chains are shorter (RFC 8200, 4.1, names
/// each kind once, at most seven in all); longer chains do not match.
pub const HEADERS_MAX: usize = 10;

/// The most IPv6 extension headers that `extensions(...)` and `inner(...)` follow. RFC 8200, 4.1, has six kinds that
/// others may follow, each once but for destination options, which may occur twice; longer chains are not followed.
pub const EXTENSIONS_MAX: usize = 8;

/// The most GTP-U extension headers that `inner(...)` follows; longer chains are not found. Networks send one, seldom
/// two.
pub const GTP_EXTENSIONS_MAX: usize = 4;

impl FieldTest {
    /// Whether all of a field is compared for equality.
    fn is_whole(&self, field: TestedField) -> bool {
        self.field == field && self.mask == u32::MAX && self.compare == tapline_bpf::cfg::JumpTest::Equal
    }
}

impl Predicate {
    /// Whether a part of it sets a variable.
    pub(crate) fn assigns(&self) -> bool {
        match self {
            Predicate::Assign(..) => true,
            Predicate::Not(inner) => inner.assigns(),
            Predicate::Chain(first, rest) => first.assigns() || rest.iter().any(|(_, part)| part.assigns()),
            _ => false,
        }
    }

    /// Both, this one first.
    #[must_use]
    pub fn and(self, other: Predicate) -> Predicate {
        self.joined(BoolOp::And, other)
    }

    /// Either, this one first.
    #[must_use]
    pub fn or(self, other: Predicate) -> Predicate {
        self.joined(BoolOp::Or, other)
    }

    /// The contrary.
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "the language's word, beside `and` and `or`")]
    pub fn not(self) -> Predicate {
        match self {
            Predicate::Not(inner) => *inner,
            Predicate::Constant(holds) => Predicate::Constant(!holds),
            other => Predicate::Not(Box::new(other)),
        }
    }

    /// Evaluates this one for its assignments and holds in any case.
    #[must_use]
    pub fn in_any_case(self) -> Predicate {
        self.or(Predicate::Constant(true))
    }

    /// Adds a part to the right; a chain stays one list, however long it gets.
    #[must_use]
    ///
    /// Joins two predicates. A constant decides at once, in any position, as in libpcap 1.11: `ip[0] = 1 and false`
    /// reads no byte of the packet. Assignments to cells are kept, for the parts that read them.
    pub fn joined(self, joint: BoolOp, other: Predicate) -> Predicate {
        // `false and`, `true or`: the constant that decides. The other one leaves the decision to the other side.
        let decisive = joint == BoolOp::Or;
        match (&self, &other) {
            (Predicate::Constant(holds), _) if *holds != decisive => return other,
            (_, Predicate::Constant(holds)) if *holds != decisive => return self,
            (Predicate::Constant(_), dropped) if !dropped.writes_cells() => return self,
            (dropped, Predicate::Constant(_)) if !dropped.writes_cells() => return other,
            _ => {}
        }
        match self {
            Predicate::Chain(first, mut rest) => {
                rest.push((joint, other));
                Predicate::Chain(first, rest)
            }
            first => Predicate::Chain(Box::new(first), vec![(joint, other)]),
        }
    }

    /// Whether a cell is written in it.
    fn writes_cells(&self) -> bool {
        match self {
            Predicate::Assign(..) => true,
            Predicate::Not(inner) => inner.writes_cells(),
            Predicate::Chain(first, rest) => {
                first.writes_cells() || rest.iter().any(|(_, part)| part.writes_cells())
            }
            _ => false,
        }
    }

    /// The numbers with which a field is compared for equality.
    pub(crate) fn asked_of(&self, field: TestedField, numbers: &mut Vec<u32>) {
        match self {
            Predicate::Test(test) if test.is_whole(field) => numbers.push(test.value),
            Predicate::Not(inner) => inner.asked_of(field, numbers),
            Predicate::Chain(first, rest) => {
                first.asked_of(field, numbers);
                rest.iter().for_each(|(_, part)| part.asked_of(field, numbers));
            }
            _ => {}
        }
    }

    /// The predicate that is left if a field has this number; `None` means a number that it is not compared with.
    pub(crate) fn assuming(&self, field: TestedField, number: Option<u32>) -> Predicate {
        match self {
            Predicate::Test(test) if test.is_whole(field) => Predicate::Constant(number == Some(test.value)),
            Predicate::Not(inner) => inner.assuming(field, number).not(),
            Predicate::Chain(first, rest) => rest.iter().fold(first.assuming(field, number), |left, part| {
                left.joined(part.0, part.1.assuming(field, number))
            }),
            other => other.clone(),
        }
    }

    /// Any of them, from left to right; never if there are none.
    pub fn any(parts: impl IntoIterator<Item = Predicate>) -> Predicate {
        parts.into_iter().reduce(Predicate::or).unwrap_or(Predicate::Constant(false))
    }

    /// All of them, from left to right; always if there are none.
    pub fn all(parts: impl IntoIterator<Item = Predicate>) -> Predicate {
        parts.into_iter().reduce(Predicate::and).unwrap_or(Predicate::Constant(true))
    }
}

impl NumberExpr {
    /// `a op b`, computed now if both are constants. A shift by more than 31 gives 0; a division by zero stays, to
    /// reject the packet.
    #[must_use]
    pub fn binary(op: Alu, left: NumberExpr, right: NumberExpr) -> NumberExpr {
        match (&left, &right) {
            (NumberExpr::Constant(a), NumberExpr::Constant(b)) => match fold(op, *a, *b) {
                Some(result) => NumberExpr::Constant(result),
                None => NumberExpr::Binary(op, Box::new(left), Box::new(right)),
            },
            _ => NumberExpr::Binary(op, Box::new(left), Box::new(right)),
        }
    }

    /// The bytes at a fixed place.
    pub fn load(place: FieldOffset, width: Width) -> NumberExpr {
        NumberExpr::Load { index: Box::new(NumberExpr::Constant(0)), place, width }
    }

    /// `self + constant`.
    #[must_use]
    pub fn plus(self, constant: u32) -> NumberExpr {
        if constant == 0 { self } else { NumberExpr::binary(Alu::Add, self, NumberExpr::Constant(constant)) }
    }
}

fn fold(op: Alu, a: u32, b: u32) -> Option<u32> {
    Some(match op {
        Alu::Add => a.wrapping_add(b),
        Alu::Sub => a.wrapping_sub(b),
        Alu::Mul => a.wrapping_mul(b),
        Alu::Div => a.checked_div(b)?,
        Alu::Mod => a.checked_rem(b)?,
        Alu::And => a & b,
        Alu::Or => a | b,
        Alu::Xor => a ^ b,
        Alu::Shl => a.checked_shl(b).unwrap_or(0),
        Alu::Shr => a.checked_shr(b).unwrap_or(0),
    })
}
