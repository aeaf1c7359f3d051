//! Explains why a filter can never be true: which parts contradict each other, and in what.
//!
//! ```text
//! parts --leave some out, simplify: still never true?--> the fewest parts that contradict each other
//!       --what each requires of a field--> the field in which they do
//!
//! ip and arp
//! ~~     ^^^
//! `ip` requires EtherType 0x0800 (IPv4) at byte 12, `arp` requires 0x0806 (ARP) there
//! ```
//!
//! A part that is left out counts as true (under `not`, as false), so the rest is easier to satisfy; it moves headers
//! as before. The fewest parts are found by halving (Junker, "QuickXplain", AAAI 2004): for k parts out of n about 2
//! k log(n / k) tries; first among the clauses that `and` joins, then in these.

use std::ops::Range;

use crate::ast::{Ast, BoolOp, Expr, ExprKind, Modifier, Primitive};
use crate::explain::meaning;
use crate::generate::generate;
use crate::options::Options;
use crate::predicate::{
    Base, FieldOffset, FieldTest, NumberExpr, Predicate, Predicates, Relation, ScratchCell, TestedField,
};
use crate::resolve::lower_observed;
use crate::resolve::state::{Probe, ResolvedPart};
use tapline_bpf::cfg::{Alu, JumpTest as Compare};
use tapline_bpf::simplify::{rejects_all, simplify};
use tapline_syntax::{Error, Span};

/// Filters of more parts are not looked into: each try compiles the whole.
const PARTS_MAX: usize = 2000;

/// The most tries.
const TRIES_MAX: usize = 120;

/// The most parts that are named.
const NAMED_MAX: usize = 4;

/// The longest part that is shown whole.
const SHOWN_MAX: usize = 60;

/// libpcap's message for a filter that rejects every packet.
const NEVER_TRUE: &str = "expression rejects all packets";

/// Whether an error of [`compile`](crate::compile) says only that the filter, valid otherwise, rejects every packet.
pub fn is_never_true(error: &Error) -> bool {
    error.message == NEVER_TRUE
}

/// Whether a filter is never true, as far as the values of fields show. It is only computed for texts that have a
/// modifier, or are read in a mode of our own: for others that is an error which libpcap finds, no other.
pub(crate) fn contradicts_itself(ast: &Ast, predicates: &Predicates, options: &Options) -> bool {
    let of_mode = options.scoped || options.ipv6_extensions || options.any_vlan;
    let ours = of_mode || ast.root.as_ref().is_some_and(has_form);
    ours && wanted(&predicates.root).is_none()
}

/// The error for a filter that was proven never true.
pub(crate) fn never_true(ast: &Ast, text: &str, options: &Options) -> Error {
    let mut probe = Probe::noting();
    let parts = match lower_observed(ast, options, &mut probe) {
        Ok(_) => probe.parts,
        Err(_) => Vec::new(),
    };
    let found = match &ast.root {
        Some(root) if parts.len() <= PARTS_MAX => Search { ast, options, parts, tries: 0 }.run(root),
        _ => Vec::new(),
    };
    let error = Error::whole(NEVER_TRUE).hint(reason(&found, text));
    match found.as_slice() {
        [] => error,
        [one] => error.with_place_if_none(one.span),
        [first, .., last] => error.with_place_if_none(last.span).with_earlier_place(first.span),
    }
}

fn has_form(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Modified(..) | ExprKind::Primitive(Primitive::Fragment(_)) => true,
        ExprKind::Chain(first, rest) => has_form(first) || rest.iter().any(|(_, part)| has_form(part)),
        ExprKind::Not(inner) | ExprKind::Group(inner) | ExprKind::Qualified(_, inner) => has_form(inner),
        _ => false,
    }
}

/// Parts of a filter that must all hold, by their numbers: `a or b and c` is two such clauses.
struct Clause {
    parts: Range<usize>,
    span: Span,
}

fn clauses(expr: &Expr, from: usize, found: &mut Vec<Clause>) {
    match &expr.kind {
        ExprKind::Group(inner) => clauses(inner, from, found),
        ExprKind::Chain(first, rest) => {
            let last_or = rest.iter().rposition(|(joint, _)| *joint == BoolOp::Or).map_or(0, |at| at + 1);
            let head = 1 + last_or;
            let all: Vec<&Expr> = [&**first].into_iter().chain(rest.iter().map(|(_, part)| part)).collect();
            let mut at = from;
            if head > 1 {
                let end = at + all[..head].iter().map(|part| count(part)).sum::<usize>();
                found.push(Clause { parts: at..end, span: all[0].span.to(all[head - 1].span) });
                at = end;
            } else {
                clauses(first, at, found);
                at += count(first);
            }
            for part in &all[head..] {
                clauses(part, at, found);
                at += count(part);
            }
        }
        _ => found.push(Clause { parts: from..from + count(expr), span: expr.span }),
    }
}

/// Number of parts of an expression, as [`Probe`] counts them.
fn count(expr: &Expr) -> usize {
    match &expr.kind {
        ExprKind::Chain(first, rest) => {
            count(first) + rest.iter().map(|(_, part)| count(part)).sum::<usize>()
        }
        ExprKind::Not(inner) | ExprKind::Group(inner) | ExprKind::Qualified(_, inner) => count(inner),
        ExprKind::Modified(Modifier::Inner(_), inner) => 1 + count(inner),
        ExprKind::Modified(_, inner) => count(inner),
        _ => 1,
    }
}

struct Search<'a> {
    ast: &'a Ast,
    options: &'a Options,
    parts: Vec<ResolvedPart>,
    tries: usize,
}

impl Search<'_> {
    /// The fewest clauses that are never true together, and of those the fewest parts; the clauses, if there are too
    /// many parts to name.
    fn run(&mut self, root: &Expr) -> Vec<ResolvedPart> {
        let mut all = Vec::new();
        clauses(root, 0, &mut all);
        // The short ones first: of several contradictions that is the one to show.
        all.sort_by_key(|clause| clause.parts.len());
        let groups: Vec<Vec<usize>> = all.iter().map(|clause| clause.parts.clone().collect()).collect();
        let Some(chosen) = self.fewest_of(&groups) else { return Vec::new() };
        let single: Vec<Vec<usize>> =
            chosen.iter().flat_map(|&at| all[at].parts.clone()).map(|at| vec![at]).collect();
        let named = self.fewest_of(&single).filter(|found| found.len() <= NAMED_MAX);
        let mut found: Vec<ResolvedPart> = match named {
            Some(found) => found.iter().map(|&at| self.parts[single[at][0]].clone()).collect(),
            None => chosen.iter().map(|&at| self.clause_as_part(&all[at])).collect(),
        };
        found.sort_by_key(|part| part.span.start);
        found
    }

    fn clause_as_part(&self, clause: &Clause) -> ResolvedPart {
        let first = self.parts.get(clause.parts.start);
        ResolvedPart {
            span: clause.span,
            label: String::new(),
            predicate: Predicate::Constant(true),
            negated: false,
            shifts: first.map_or((0, None), |part| part.shifts),
            moves: false,
        }
    }

    /// The fewest groups of parts that are never true together; `None` if that is not found out.
    fn fewest_of(&mut self, groups: &[Vec<usize>]) -> Option<Vec<usize>> {
        self.tries = TRIES_MAX;
        let none = vec![false; self.parts.len()];
        let candidates: Vec<usize> = (0..groups.len()).collect();
        if candidates.is_empty() || self.never(&none) {
            return None;
        }
        let found = self.fewest(groups, &none, false, &candidates);
        self.tries = 1;
        self.never(&with(&none, groups, &found)).then_some(found)
    }

    /// The fewest of `candidates` that together with the parts that are `kept` are never true. `grown`: whether parts
    /// were added since that was last asked.
    fn fewest(
        &mut self,
        groups: &[Vec<usize>],
        kept: &[bool],
        grown: bool,
        candidates: &[usize],
    ) -> Vec<usize> {
        if candidates.is_empty() || grown && self.never(kept) {
            return Vec::new();
        }
        if let [one] = candidates {
            return vec![*one];
        }
        let (first, second) = candidates.split_at(candidates.len() / 2);
        let of_second = self.fewest(groups, &with(kept, groups, first), true, second);
        let of_first = self.fewest(groups, &with(kept, groups, &of_second), !of_second.is_empty(), first);
        [of_first, of_second].concat()
    }

    fn never(&mut self, kept: &[bool]) -> bool {
        if self.tries == 0 {
            return false;
        }
        self.tries -= 1;
        let lowered = lower_observed(self.ast, self.options, &mut Probe::keeping(kept));
        lowered.is_ok_and(|predicates| {
            contradicts_itself(self.ast, &predicates, self.options)
                || rejects_all(&simplify(&generate(&predicates, 1)))
        })
    }
}

fn with(kept: &[bool], groups: &[Vec<usize>], more: &[usize]) -> Vec<bool> {
    let mut kept = kept.to_vec();
    more.iter().flat_map(|&group| &groups[group]).for_each(|&part| kept[part] = true);
    kept
}

/// In words, for people.
fn reason(found: &[ResolvedPart], text: &str) -> String {
    let show = |part: &ResolvedPart| format!("`{}`", shown(part, text));
    match found {
        [] => {
            "its parts contradict each other; an offset that vlan, mpls or a tunnel moved may be the reason"
                .to_owned()
        }
        [one] if one.predicate == Predicate::Constant(false) => {
            format!("{} never holds on this link type", show(one))
        }
        [one] => match one.shifts {
            (_, Some(last)) => {
                let moved = text.get(last.start..last.end).unwrap_or("");
                format!("{} never holds behind `{moved}`", show(one))
            }
            _ => format!("{} never holds", show(one)),
        },
        [a, b] => {
            let conflict = conflict(a, b).map_or_else(
                || format!("{} and {} contradict each other", show(a), show(b)),
                |conflict| conflict.in_words(&show(a), &show(b)),
            );
            conflict + &about_shifts(a, b, text)
        }
        many => {
            let all: Vec<String> = many.iter().map(show).collect();
            format!("these cannot all hold: {}", all.join(", "))
        }
    }
}

/// A part as it may be written by itself.
fn shown(part: &ResolvedPart, text: &str) -> String {
    let written = text.get(part.span.start..part.span.end).unwrap_or("");
    let full = if part.label.is_empty() { written } else { part.label.as_str() };
    let short: String = full.chars().take(SHOWN_MAX).collect();
    let more = if short.len() < full.len() { "..." } else { "" };
    format!("{}{short}{more}", if part.negated { "not " } else { "" })
}

/// The note about headers that `vlan` and its like moved. `a` is left of `b`.
fn about_shifts(a: &ResolvedPart, b: &ResolvedPart, text: &str) -> String {
    let word = |span: Span| text.get(span.start..span.end).unwrap_or("").to_owned();
    if b.moves && !a.moves && !a.negated && !b.negated {
        let (a, b) = (shown(a, text), shown(b, text));
        return format!("; left of `{b}` the outer header is asked: `{b} and {a}` looks behind it");
    }
    if a.moves && !a.negated && b.shifts.0 <= a.shifts.0 {
        return format!("; the shift of `{}` ended before, with its parenthesis or at `or`", word(a.span));
    }
    match (a.shifts, b.shifts) {
        ((n, Some(last)), (m, _)) if n == m => format!(", behind `{}`", word(last)),
        (_, (_, Some(last))) => format!("; `{}` moved what `{}` looks at", word(last), shown(b, text)),
        _ => String::new(),
    }
}

/// The field in which two parts contradict each other.
struct Conflict {
    field: RequiredField,
    /// The values that the second one requires; empty if it excludes those that the first one requires.
    other: Vec<u32>,
    /// Whether the first one excludes the values that the second one requires.
    swapped: bool,
}

impl Conflict {
    fn in_words(&self, a: &str, b: &str) -> String {
        let (a, b) = if self.swapped { (b, a) } else { (a, b) };
        let RequiredField { key, values, name } = &self.field;
        let (name, at) = (if name.is_empty() { "these bytes as" } else { name }, key.place());
        let requires = format!("{a} requires {name} {}{at}", listed(name, values));
        match self.other.is_empty() {
            true => format!("{requires}, {b} excludes that"),
            false => format!("{requires}, {b} requires {} there", listed(name, &self.other)),
        }
    }
}

fn conflict(a: &ResolvedPart, b: &ResolvedPart) -> Option<Conflict> {
    match (a.negated, b.negated) {
        (false, false) => {
            let (a, b) = (wanted(&a.predicate)?, wanted(&b.predicate)?);
            differing(&a, &b, |a, b| a.key == b.key)
                .or_else(|| differing(&a, &b, |a, b| a.name == b.name && !a.name.is_empty()))
        }
        (false, true) => excluded(&a.predicate, &b.predicate, false),
        (true, false) => excluded(&b.predicate, &a.predicate, true),
        (true, true) => None,
    }
}

/// The first field of which two parts require different values.
fn differing(
    a: &[RequiredField],
    b: &[RequiredField],
    same: impl Fn(&RequiredField, &RequiredField) -> bool,
) -> Option<Conflict> {
    a.iter().find_map(|field| {
        let other = b.iter().find(|other| same(field, other))?;
        let disjoint = !field.values.iter().any(|value| other.values.contains(value));
        disjoint.then(|| Conflict { field: field.clone(), other: other.values.clone(), swapped: false })
    })
}

/// The field of which the first predicate requires only values for which the second one is true.
fn excluded(wants: &Predicate, excludes: &Predicate, swapped: bool) -> Option<Conflict> {
    let [all] = <[RequiredField; 1]>::try_from(alternatives(excludes)?).ok()?;
    let found = wanted(wants)?
        .into_iter()
        .find(|asked| asked.key == all.key && asked.values.iter().all(|value| all.values.contains(value)))?;
    Some(Conflict { field: found, other: Vec::new(), swapped })
}

/// A field, and the values of which it must have one.
#[derive(Clone)]
struct RequiredField {
    key: Key,
    values: Vec<u32>,
    name: &'static str,
}

#[derive(Clone, PartialEq)]
enum Key {
    Field(TestedField, u32),
    Value(NumberExpr),
}

impl Key {
    /// The cells that decide the place or kind, as bits.
    fn cells(&self) -> u16 {
        match self {
            Key::Field(TestedField::Packet(place, _), _) => cells_of_place(*place),
            Key::Field(TestedField::Len, _) => 0,
            Key::Value(value) => cells_of(value),
        }
    }

    fn place(&self) -> String {
        match self {
            Key::Field(TestedField::Packet(FieldOffset { base: Base::Packet, offset }, _), _)
                if *offset < u32::MAX / 2 =>
            {
                format!(" at byte {offset}")
            }
            _ => String::new(),
        }
    }
}

fn cells_of_place(place: FieldOffset) -> u16 {
    match place.base {
        Base::Packet => 0,
        Base::Cell(cell) => bit(cell),
        Base::Ipv4Len { cell, .. } => cell.map_or(0, bit),
    }
}

fn cells_of(value: &NumberExpr) -> u16 {
    match value {
        NumberExpr::Constant(_) | NumberExpr::Len => 0,
        NumberExpr::Cell(cell) => bit(*cell),
        NumberExpr::Load { index, place, .. } => cells_of(index) | cells_of_place(*place),
        NumberExpr::Negate(inner) => cells_of(inner),
        NumberExpr::Binary(_, left, right) => cells_of(left) | cells_of(right),
    }
}

/// Values of fields that a predicate needs in order to hold; `None` if it never holds.
fn wanted(predicate: &Predicate) -> Option<Vec<RequiredField>> {
    match predicate {
        Predicate::Constant(false) => None,
        Predicate::Test(FieldTest { field, mask, compare: Compare::Equal, value, name }) => {
            Some(vec![RequiredField { key: Key::Field(*field, *mask), values: vec![*value], name }])
        }
        Predicate::Relation(Relation {
            left,
            compare: Compare::Equal,
            right: NumberExpr::Constant(value),
        }) => {
            let (key, name) = (Key::Value(left.clone()), name_of(left));
            Some(vec![RequiredField { key, values: vec![*value], name }])
        }
        Predicate::Chain(first, rest) => rest.iter().fold(wanted(first), |so_far, (joint, part)| {
            let assigned = assigned(part);
            let part = wanted(part);
            match joint {
                BoolOp::And => still_so(so_far, assigned).zip(part).and_then(|(a, b)| both(a, b)),
                BoolOp::Or => match (so_far, part) {
                    (Some(a), Some(b)) => Some(either(a, &b)),
                    (a, b) => a.or(b),
                },
            }
        }),
        _ => Some(Vec::new()),
    }
}

/// The tests that hold after cells were assigned: those that read none of the cells.
fn still_so(asked: Option<Vec<RequiredField>>, assigned: u16) -> Option<Vec<RequiredField>> {
    asked.map(|asked| asked.into_iter().filter(|asked| asked.key.cells() & assigned == 0).collect())
}

/// The cells that a predicate may assign, as bits.
fn assigned(predicate: &Predicate) -> u16 {
    match predicate {
        Predicate::Assign(cell, _) => bit(*cell),
        Predicate::Not(inner) => assigned(inner),
        Predicate::Chain(first, rest) => {
            rest.iter().fold(assigned(first), |cells, (_, part)| cells | assigned(part))
        }
        _ => 0,
    }
}

fn bit(cell: ScratchCell) -> u16 {
    1u16.checked_shl(cell.0.into()).unwrap_or(u16::MAX)
}

/// `None` if a field would need two values.
fn both(a: Vec<RequiredField>, b: Vec<RequiredField>) -> Option<Vec<RequiredField>> {
    let mut all = a;
    for asked in b {
        match all.iter_mut().find(|known| known.key == asked.key) {
            Some(known) => known.values.retain(|value| asked.values.contains(value)),
            None => all.push(asked),
        }
    }
    all.iter().all(|asked| !asked.values.is_empty()).then_some(all)
}

fn either(a: Vec<RequiredField>, b: &[RequiredField]) -> Vec<RequiredField> {
    let same =
        |asked: &RequiredField| b.iter().find(|other| other.key == asked.key || named_alike(asked, other));
    let joined = a.into_iter().filter_map(|mut asked| {
        let more = same(&asked)?.values.iter().filter(|value| !asked.values.contains(value));
        let more: Vec<u32> = more.copied().collect();
        asked.values.extend(more);
        Some(asked)
    });
    joined.collect()
}

/// Ports have other places over IPv4 than over IPv6.
fn named_alike(a: &RequiredField, b: &RequiredField) -> bool {
    a.name == b.name && a.name.ends_with("port")
}

/// The one field of a predicate that is nothing but a choice of its values.
fn alternatives(predicate: &Predicate) -> Option<Vec<RequiredField>> {
    match predicate {
        Predicate::Test(_) | Predicate::Relation(_) => wanted(predicate),
        Predicate::Chain(first, rest) => {
            rest.iter().try_fold(alternatives(first)?, |so_far, (joint, part)| {
                let part = alternatives(part)?;
                let same = *joint == BoolOp::Or
                    && so_far.len() == 1
                    && part.len() == 1
                    && so_far[0].key == part[0].key;
                same.then(|| either(so_far, &part))
            })
        }
        _ => None,
    }
}

/// The contents of the cells that modifiers use, in words.
fn name_of(value: &NumberExpr) -> &'static str {
    match value {
        NumberExpr::Binary(Alu::And, left, right) => match (&**left, &**right) {
            (NumberExpr::Cell(_), NumberExpr::Constant(0xffff)) => "EtherType",
            (NumberExpr::Cell(_), NumberExpr::Constant(0x2ff)) => "IP protocol",
            _ => "",
        },
        NumberExpr::Cell(_) => "IP protocol",
        _ => "",
    }
}

/// A few values of a field.
fn listed(name: &str, values: &[u32]) -> String {
    const SHOWN: usize = 4;
    let mut parts: Vec<String> = values.iter().take(SHOWN).map(|value| in_terms(name, *value)).collect();
    if values.len() > SHOWN {
        parts.push("...".to_owned());
    }
    parts.join(" or ")
}

/// A number as people know it: EtherTypes and protocols with their names.
fn in_terms(name: &str, value: u32) -> String {
    let known = meaning::of_number(name, value);
    match name {
        "EtherType" | "PPP protocol" if known.starts_with("0x") => format!("{value:#06x}"),
        "EtherType" | "PPP protocol" => format!("{value:#06x} ({known})"),
        _ if known.starts_with(|c: char| c.is_ascii_alphabetic()) => format!("{value} ({known})"),
        _ => known,
    }
}

#[cfg(test)]
mod tests;
