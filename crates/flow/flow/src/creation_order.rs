//! Flows in order of creation, for the active timeout.
//!
//! ```text
//! oldest -> slot <-> slot <-> slot <- newest      the clock never goes back: a new flow is appended, the oldest is first
//! ```
//!
//! All flows have the same active timeout, so the first flow that is not due ends a search.

use std::collections::TryReserveError;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Link {
    before: u32,
    after: u32,
}

/// A doubly linked list of slots in order of creation.
pub(crate) struct CreationOrder {
    links: Vec<Link>,
    first: u32,
    last: u32,
}

impl CreationOrder {
    /// A list for `slots` slots.
    ///
    /// # Errors
    /// If there is no memory for the slots.
    pub(crate) fn new(slots: usize) -> Result<CreationOrder, TryReserveError> {
        let mut links = Vec::new();
        links.try_reserve_exact(slots)?;
        Ok(CreationOrder { links, first: NONE, last: NONE })
    }

    /// The slot of the oldest flow.
    pub(crate) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// Appends a slot that is not in the list. New slots come in ascending order.
    pub(crate) fn push(&mut self, slot: u32) {
        let link = Link { before: self.last, after: NONE };
        match self.links.get_mut(slot as usize) {
            Some(there) => *there = link,
            None => self.links.push(link),
        }
        match self.last {
            NONE => self.first = slot,
            last => self.links[last as usize].after = slot,
        }
        self.last = slot;
    }

    /// Unlinks a slot.
    pub(crate) fn remove(&mut self, slot: u32) {
        let Link { before, after } = self.links[slot as usize];
        match before {
            NONE => self.first = after,
            before => self.links[before as usize].after = after,
        }
        match after {
            NONE => self.last = before,
            after => self.links[after as usize].before = before,
        }
    }

    /// Forgets every slot.
    pub(crate) fn clear(&mut self) {
        self.links.clear();
        (self.first, self.last) = (NONE, NONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use tapline_testkit::random::Random;

    #[test]
    fn the_oldest_stands_first() {
        let (mut creation_order, mut model, mut random) =
            (CreationOrder::new(50).expect("there is memory"), VecDeque::new(), Random::new(3));
        for slot in 0..50 {
            creation_order.push(slot);
            model.push_back(slot);
        }
        for _ in 0..1000 {
            let slot = random.below(50) as u32;
            match model.iter().position(|there| *there == slot) {
                Some(at) => {
                    model.remove(at);
                    creation_order.remove(slot);
                }
                None => {
                    model.push_back(slot);
                    creation_order.push(slot);
                }
            }
            assert_eq!(creation_order.first(), model.front().copied());
        }
        while let Some(slot) = model.pop_front() {
            assert_eq!(creation_order.first(), Some(slot));
            creation_order.remove(slot);
        }
        assert_eq!(creation_order.first(), None);
    }
}
