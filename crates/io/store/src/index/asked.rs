//! Finds the slots that may have the keys of a question.

use super::{Index, Slots};
use crate::keys::{OpenKeys, WAYS_ALL};
use crate::question::{Fact, Question};

impl Index {
    /// For each slot whether packets that satisfy the question may be in it; `None` if the index is damaged.
    pub(crate) fn may_satisfy(&self, question: &Question) -> Option<Vec<bool>> {
        let facts = question.facts();
        let open: Vec<Slots> = WAYS_ALL.into_iter().map(|way| self.open(way)).collect::<Option<_>>()?;
        let sets: Vec<Slots> = facts.iter().map(|fact| self.slots(fact.key())).collect::<Option<_>>()?;
        let slot_may = |slot: u32| {
            let has = |fact: &Fact| {
                !self.has_class(fact.class())
                    || fact.ways().iter().any(|way| open[*way as usize].has(slot))
                    || facts.binary_search(fact).is_ok_and(|at| sets[at].has(slot))
            };
            open[OpenKeys::All as usize].has(slot) || question.holds(&has)
        };
        Some((0..self.summary.slots).map(slot_may).collect())
    }
}
