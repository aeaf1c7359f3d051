//! State that is carried from part to part while a tree is resolved.
//!
//! ```text
//! mark       where the headers are, and which cells are free; `return_to` ends the shifts since
//! flow       for which layers the transport cells hold good, after a part that holds and after one that does not
//!
//! a and b    b starts with what a gives when it holds; the whole fails with what both give when they fail
//! a or b     b starts with what a gives when it fails; the whole holds with what both give when they hold
//! ```

use super::Scope;
use super::layers::Layers;
use crate::ast::BoolOp;
use crate::predicate::Predicate;
use tapline_syntax::Span;

/// The offsets that a shift changes.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    layers: Layers,
    version: u32,
    cells: u8,
    shifts: (usize, Option<Span>),
}

/// The layers for which the transport cells hold good, on the two edges out of a part.
#[derive(Clone, Copy, Default)]
pub(super) struct Flow {
    yes: Option<u32>,
    no: Option<u32>,
}

impl Flow {
    pub(super) fn both(known: Option<u32>) -> Flow {
        Flow { yes: known, no: known }
    }

    pub(super) fn not(self) -> Flow {
        Flow { yes: self.no, no: self.yes }
    }

    /// The facts before a part that is joined to this one.
    pub(super) fn before(self, joint: BoolOp) -> Option<u32> {
        match joint {
            BoolOp::And => self.yes,
            BoolOp::Or => self.no,
        }
    }

    /// After both, the second one evaluated only as far as needed.
    pub(super) fn joined(self, joint: BoolOp, second: Flow) -> Flow {
        match joint {
            BoolOp::And => Flow { yes: second.yes, no: same(self.no, second.no) },
            BoolOp::Or => Flow { yes: same(self.yes, second.yes), no: second.no },
        }
    }
}

fn same(a: Option<u32>, b: Option<u32>) -> Option<u32> {
    a.filter(|_| a == b)
}

impl Scope<'_> {
    pub(super) fn mark(&self) -> Mark {
        Mark { layers: self.layers, version: self.version, cells: self.cells, shifts: self.shifts }
    }

    /// Ends the shifts since `mark` and frees their cells.
    pub(super) fn return_to(&mut self, mark: &Mark) {
        let Mark { layers, version, cells, shifts } = *mark;
        (self.layers, self.version, self.cells, self.shifts) = (layers, version, cells, shifts);
    }

    /// The part at `span` has moved the headers.
    pub(super) fn shifted(&mut self, span: Span) {
        self.versions += 1;
        self.version = self.versions;
        self.shifts = (self.shifts.0 + 1, Some(span));
    }
}

/// The most operators of a text whose arithmetic [`Probe::keeping_arithmetic`] keeps.
const KEPT_OPERATORS_MAX: usize = 256;

/// Leaves parts of a filter out, and notes the tests of each part: to find out which parts contradict each other.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    /// Whether parts are noted.
    noting: bool,
    /// Whether arithmetic stays as it is written, as libpcap's code generator has it.
    pub(super) keeps_arithmetic: bool,
    /// The parts that count, by number; `None`: all.
    kept: Option<Vec<bool>>,
    /// The parts in the order of the text.
    pub(crate) parts: Vec<ResolvedPart>,
    seen: usize,
}

/// One part of a filter, resolved.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedPart {
    /// Place in the text.
    pub(crate) span: Span,
    /// With the qualifiers that the text leaves out; empty if the text says it all.
    pub(crate) label: String,
    pub(crate) predicate: Predicate,
    /// Whether its contrary is wanted.
    pub(crate) negated: bool,
    /// Number of parts before it that moved the headers, and the last of them.
    pub(crate) shifts: (usize, Option<Span>),
    /// Whether it moves the headers for the tests behind it.
    pub(crate) moves: bool,
}

impl Probe {
    /// Notes every part.
    pub(crate) fn noting() -> Probe {
        Probe { noting: true, ..Probe::default() }
    }

    /// Works out no arithmetic of the text, unless there is so much that values would nest deeply.
    pub(crate) fn keeping_arithmetic(text: &str) -> Probe {
        let operators = text.bytes().filter(|byte| b"+-*/%&|^<>".contains(byte)).count();
        Probe { keeps_arithmetic: operators <= KEPT_OPERATORS_MAX, ..Probe::default() }
    }

    /// Leaves out the parts that are not `kept`.
    pub(crate) fn keeping(kept: &[bool]) -> Probe {
        Probe { kept: Some(kept.to_vec()), ..Probe::default() }
    }

    /// Notes a part; gives it back, or what asks nothing in its place but assigns the same cells.
    pub(super) fn part(
        &mut self,
        predicate: Predicate,
        negated: bool,
        span: Span,
        label: impl FnOnce() -> String,
        shifts: (usize, Option<Span>),
        moves: bool,
    ) -> Predicate {
        if self.noting {
            let (label, predicate) = (label(), predicate.clone());
            self.parts.push(ResolvedPart { span, label, predicate, negated, shifts, moves });
        }
        let number = self.seen;
        self.seen += 1;
        match &self.kept {
            Some(kept) if !kept.get(number).copied().unwrap_or(true) => left_out(predicate, negated),
            _ => predicate,
        }
    }
}

/// The weakest predicate in the place of another: true, or false where its contrary is wanted.
fn left_out(predicate: Predicate, negated: bool) -> Predicate {
    match (predicate.assigns(), negated) {
        (false, negated) => Predicate::Constant(!negated),
        (true, false) => predicate.in_any_case(),
        (true, true) => predicate.and(Predicate::Constant(false)),
    }
}
