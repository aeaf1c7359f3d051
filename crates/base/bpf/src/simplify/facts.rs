//! Facts along a path through the graph: outcomes of tests, and the least length of the packet.
//!
//! ```text
//! fact := value test value = true | false
//! held := bytes from the start | bytes from a value on
//! ```
//!
//! The rules of inference are those of libpcap's optimiser (`fold_edge`), no more: the same test again, and equality
//! with another constant. So both prove the same filters never true, and refuse them.

use std::rc::Rc;

use super::value::{Value, Values};
use crate::cfg::JumpTest;

/// Maximum number of facts that one path remembers; later facts are forgotten.
const FACTS_MAX: usize = 64;

/// The most values for which one path remembers how many bytes follow.
const INDEXED_MAX: usize = 8;

/// A test: the operands, and the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Question {
    pub(super) left: Value,
    test: u8,
    pub(super) right: Value,
}

impl Question {
    pub(super) fn new(left: Value, test: JumpTest, right: Value) -> Question {
        Question { left, test: test as u8, right }
    }

    pub(super) fn is_equality(self) -> bool {
        self.test == JumpTest::Equal as u8
    }
}

/// Outcomes of tests, sorted by question. Cheap to copy.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    known: Rc<Vec<(Question, bool)>>,
}

impl Facts {
    /// The outcome of a test, if it follows.
    pub(super) fn decide(&self, question: Question, values: &Values) -> Option<bool> {
        if let Ok(at) = self.known.binary_search_by_key(&question, |&(q, _)| q) {
            return Some(self.known[at].1);
        }
        let excluded = question.is_equality()
            && values.constant(question.right).is_some()
            && self.equal_constant(question.left, values).is_some();
        excluded.then_some(false)
    }

    /// The constant that a value is known to equal.
    pub(super) fn equal_constant(&self, left: Value, values: &Values) -> Option<Value> {
        let from = self.known.partition_point(|&(q, _)| q.left < left);
        let mut same = self.known[from..].iter().take_while(|&&(q, _)| q.left == left);
        same.find(|&&(q, holds)| holds && q.is_equality() && values.constant(q.right).is_some())
            .map(|&(q, _)| q.right)
    }

    pub(super) fn learn(&mut self, question: Question, holds: bool) {
        if self.known.len() >= FACTS_MAX {
            return;
        }
        if let Err(at) = self.known.binary_search_by_key(&question, |&(q, _)| q) {
            Rc::make_mut(&mut self.known).insert(at, (question, holds));
        }
    }

    /// Keeps the facts that both paths know.
    pub(super) fn meet(&mut self, other: &Facts) {
        if Rc::ptr_eq(&self.known, &other.known) {
            return;
        }
        let kept = |fact: &(Question, bool)| other.known.binary_search(fact).is_ok();
        if !self.known.iter().all(kept) {
            Rc::make_mut(&mut self.known).retain(kept);
        }
    }
}

/// The least length of the packet, in bytes from its start and from offsets that the packet decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LengthFacts {
    bytes: u64,
    indexed: Vec<(Value, u64)>,
}

impl LengthFacts {
    pub(super) fn covers(&self, base: Option<Value>, end: u64) -> bool {
        end <= self.bytes_from(base)
    }

    fn bytes_from(&self, base: Option<Value>) -> u64 {
        match base {
            None => self.bytes,
            Some(base) => {
                self.indexed.iter().find(|(value, _)| *value == base).map_or(0, |&(_, bytes)| bytes)
            }
        }
    }

    /// A load up to `end` has succeeded.
    pub(super) fn add(&mut self, base: Option<Value>, end: u64) {
        // Whatever the base, it is not negative: the bytes from the start are there as well.
        self.bytes = self.bytes.max(end);
        let Some(base) = base else { return };
        if let Some((_, bytes)) = self.indexed.iter_mut().find(|(value, _)| *value == base) {
            *bytes = end.max(*bytes);
        } else if self.indexed.len() < INDEXED_MAX {
            self.indexed.push((base, end));
        }
    }

    /// Keeps the facts that both paths are sure of.
    pub(super) fn meet(&mut self, other: &LengthFacts) {
        self.bytes = self.bytes.min(other.bytes);
        self.indexed.retain_mut(|(value, bytes)| {
            *bytes = (*bytes).min(other.bytes_from(Some(*value)));
            *bytes > 0
        });
    }
}
