//! A resolved filter as alternatives: each a list of parts of the packet and their required values.
//!
//! ```text
//! tcp port 80   { type=ip   proto=6 fragment=0 source=80 }  { type=ip  proto=6 fragment=0 destination=80 }
//!               { type=ip6  next=6  source=80 }             { type=ip6 next=6  destination=80 }
//!
//! a or b        both lists; alternatives that differ in the numbers of one part become one
//! a and b       each of a with each of b; what contradicts itself goes
//! not           moves inward
//! ```
//!
//! A predicate of another form (a value computed from others, a chain of headers, a place in a cell) counts as *holds
//! perhaps*, whatever surrounds it. Too many alternatives become one: that of their common literals. So each packet
//! that the filter accepts satisfies one of the alternatives, and all parts of that one were loaded on the filter's
//! path to its verdict. The reverse holds if no load fails and no predicate was left open or out: `needs.rs` decides
//! that.

use std::collections::HashMap;

use super::condition::Condition;
use super::field::BitField;
use tapline_bpf::cfg::{Alu, JumpTest as Compare};
use tapline_filter::ast::BoolOp;
use tapline_filter::folded;
use tapline_filter::predicate::{FieldTest, NumberExpr, Predicate, Relation, TestedField};

/// Maximum number of alternatives of a filter; one with more is looked up by their common part, and then run.
pub(super) const DISJUNCTS_MAX: usize = 256;

/// Alternatives that are looked at side by side before they are reduced.
const STEPS_MAX: usize = 1 << 14;

/// Literals that must hold together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Conjunction {
    /// Parts in ascending order, all different; an empty list has no condition.
    pub(super) parts: Vec<(BitField, Condition)>,
    /// Whether it has weaker conditions than its filter, to be short.
    pub(super) is_weak: bool,
}

/// A predicate of a filter, as a set sees it.
pub(super) enum Literal {
    Constant(bool),
    Part(BitField, Condition),
    /// The answer is not known from parts and numbers alone.
    Open,
}

impl Conjunction {
    pub(super) fn of(part: BitField, condition: Condition) -> Conjunction {
        Conjunction { parts: vec![(part, condition)], is_weak: false }
    }

    /// Both; `None` if they contradict each other.
    pub(super) fn and(&self, other: &Conjunction) -> Option<Conjunction> {
        let mut all = Vec::with_capacity(self.parts.len() + other.parts.len());
        let (mut left, mut right) = (self.parts.iter().peekable(), other.parts.iter().peekable());
        while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
            match a.0.cmp(&b.0) {
                std::cmp::Ordering::Less => all.extend(left.next().cloned()),
                std::cmp::Ordering::Greater => all.extend(right.next().cloned()),
                std::cmp::Ordering::Equal => {
                    let both = a.1.and(&b.1);
                    if both.is_empty() {
                        return None;
                    }
                    all.push((a.0, both));
                    left.next();
                    right.next();
                }
            }
        }
        all.extend(left.cloned());
        all.extend(right.cloned());
        Some(Conjunction { parts: all, is_weak: self.is_weak || other.is_weak })
    }

    /// The answer of the conjunction to a condition on a part: yes, no, or unknown.
    pub(super) fn decides(&self, part: BitField, condition: &Condition) -> Option<bool> {
        let known = |(own, its): &(BitField, Condition)| {
            if !own.same_bytes(part) || own.mask & part.mask != part.mask {
                return None;
            }
            let values = its.among.as_ref()?;
            let first = condition.holds(values.first()? & part.mask);
            values.iter().all(|value| condition.holds(value & part.mask) == first).then_some(first)
        };
        self.parts.iter().find_map(known)
    }
}

/// The alternatives of a predicate, or of its contrary.
pub(super) fn disjuncts(predicate: &Predicate, holds: bool) -> Vec<Conjunction> {
    match predicate {
        Predicate::Not(inner) => disjuncts(inner, !holds),
        Predicate::Chain(first, rest) => chain(first, rest, holds),
        other => match literal(other, holds) {
            Literal::Constant(false) => Vec::new(),
            Literal::Part(_, condition) if condition.is_empty() => Vec::new(),
            Literal::Part(part, condition) => vec![Conjunction::of(part, condition)],
            Literal::Constant(true) | Literal::Open => vec![Conjunction::default()],
        },
    }
}

/// From left to right; a run of `or` is gathered before it is reduced.
fn chain(first: &Predicate, rest: &[(BoolOp, Predicate)], holds: bool) -> Vec<Conjunction> {
    let mut all = disjuncts(first, holds);
    let mut rest = rest.iter().peekable();
    while let Some((joint, part)) = rest.next() {
        let part = disjuncts(part, holds);
        if (*joint == BoolOp::And) == holds {
            all = product(&all, &part);
        } else {
            all.extend(part);
            let more = rest.peek().is_some_and(|(next, _)| next == joint);
            if more && all.len() < STEPS_MAX {
                continue;
            }
        }
        all = reduced(all);
    }
    all
}

fn product(left: &[Conjunction], right: &[Conjunction]) -> Vec<Conjunction> {
    let mut all = Vec::with_capacity(left.len().max(right.len()));
    if left.len() * right.len() > STEPS_MAX {
        let right = common(right);
        all.extend(left.iter().filter_map(|a| a.and(&right)));
    } else {
        all.extend(left.iter().flat_map(|a| right.iter().filter_map(|b| a.and(b))));
    }
    all
}

/// Not more than [`DISJUNCTS_MAX`], at the price of asking for less.
fn reduced(all: Vec<Conjunction>) -> Vec<Conjunction> {
    if all.len() < 2 {
        return all;
    }
    if let Some(always) = all.iter().find(|one| one.parts.is_empty()) {
        return vec![always.clone()];
    }
    let merged = merged(all);
    if merged.len() > DISJUNCTS_MAX { vec![common(&merged)] } else { merged }
}

/// Alternatives that differ in the numbers of one part alone become one. Order stays.
fn merged(mut all: Vec<Conjunction>) -> Vec<Conjunction> {
    let mut parts: Vec<BitField> =
        all.iter().flat_map(|one| one.parts.iter().map(|(part, _)| *part)).collect();
    parts.sort_unstable();
    parts.dedup();
    // From the last bytes of a packet to the first: what differs is mostly there.
    for part in parts.into_iter().rev() {
        if all.len() < 2 {
            break;
        }
        all = merged_in(all, part);
    }
    all
}

fn merged_in(all: Vec<Conjunction>, part: BitField) -> Vec<Conjunction> {
    let mut kept: Vec<(Conjunction, Option<Vec<u32>>)> = Vec::with_capacity(all.len());
    let mut places: HashMap<Conjunction, usize> = HashMap::new();
    for mut one in all {
        let numbers = match one.parts.binary_search_by_key(&part, |(part, _)| *part) {
            Ok(at) => one.parts[at].1.among.as_mut().map(std::mem::take),
            Err(_) => None,
        };
        let Some(numbers) = numbers else {
            kept.push((one, None));
            continue;
        };
        match places.get(&one) {
            Some(&at) => kept[at].1.get_or_insert_default().extend(numbers),
            None => {
                places.insert(one.clone(), kept.len());
                kept.push((one, Some(numbers)));
            }
        }
    }
    let restored = |(mut one, numbers): (Conjunction, Option<Vec<u32>>)| {
        if let (Some(mut numbers), Ok(at)) =
            (numbers, one.parts.binary_search_by_key(&part, |(part, _)| *part))
        {
            numbers.sort_unstable();
            numbers.dedup();
            one.parts[at].1 = Condition::among(numbers);
        }
        one
    };
    kept.into_iter().map(restored).collect()
}

/// The literals that all of them have: weaker than each.
pub(super) fn common(all: &[Conjunction]) -> Conjunction {
    let Some((first, rest)) = all.split_first() else {
        return Conjunction { parts: Vec::new(), is_weak: true };
    };
    let shared = |(part, condition): &(BitField, Condition)| {
        let mut numbers = condition.among.clone()?;
        for one in rest {
            let at = one.parts.binary_search_by_key(part, |(part, _)| *part).ok()?;
            numbers.extend(one.parts[at].1.among.as_ref()?);
        }
        numbers.sort_unstable();
        numbers.dedup();
        Some((*part, Condition::among(numbers)))
    };
    Conjunction { parts: first.parts.iter().filter_map(shared).collect(), is_weak: true }
}

/// A question, or its contrary, that is not a chain.
pub(super) fn literal(predicate: &Predicate, holds: bool) -> Literal {
    match predicate {
        Predicate::Constant(constant) => Literal::Constant(*constant == holds),
        Predicate::Test(test) => tested(test, holds),
        Predicate::Relation(relation) => related(relation, holds),
        _ => Literal::Open,
    }
}

fn tested(test: &FieldTest, holds: bool) -> Literal {
    match BitField::of(test.field, test.mask) {
        Some(part) => compared(part, test.compare, test.value, holds),
        None => Literal::Open,
    }
}

fn related(relation: &Relation, holds: bool) -> Literal {
    let Relation { left, compare, right: NumberExpr::Constant(value) } = relation else {
        return Literal::Open;
    };
    let part = match left {
        NumberExpr::Binary(Alu::And, inner, mask) => match **mask {
            NumberExpr::Constant(mask) => plain(inner, mask),
            _ => None,
        },
        inner => plain(inner, u32::MAX),
    };
    part.map_or(Literal::Open, |part| compared(part, *compare, *value, holds))
}

/// Bytes at a place that the text gives, or the length.
fn plain(value: &NumberExpr, mask: u32) -> Option<BitField> {
    match value {
        NumberExpr::Len => BitField::of(TestedField::Len, mask),
        NumberExpr::Load { index, place, width } => match **index {
            NumberExpr::Constant(index) => BitField::at(folded(*place, index)?, *width, mask),
            _ => None,
        },
        _ => None,
    }
}

fn compared(part: BitField, compare: Compare, value: u32, holds: bool) -> Literal {
    let condition = match (compare, holds) {
        (Compare::Equal, holds) => {
            if value & !part.mask != 0 {
                return constant(part, !holds);
            }
            Condition::equal(value, holds)
        }
        (Compare::Greater, true) => match value.checked_add(1) {
            Some(low) => Condition::within(low, u32::MAX),
            None => Condition::among(Vec::new()),
        },
        (Compare::Greater, false) => Condition::within(0, value),
        (Compare::GreaterEqual, true) => Condition::within(value, u32::MAX),
        (Compare::GreaterEqual, false) => match value.checked_sub(1) {
            Some(high) => Condition::within(0, high),
            None => Condition::among(Vec::new()),
        },
        (Compare::AnySet, holds) => {
            let bits = BitField { mask: part.mask & value, ..part };
            return Literal::Part(bits, Condition::equal(0, !holds));
        }
    };
    Literal::Part(part, condition)
}

/// A question that has one answer where its bytes were captured. They are loaded all the same.
fn constant(part: BitField, holds: bool) -> Literal {
    Literal::Part(part, if holds { Condition::within(0, u32::MAX) } else { Condition::among(Vec::new()) })
}
