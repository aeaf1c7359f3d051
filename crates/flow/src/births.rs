//! Flows in the order of their birth.
//!
//! ```text
//! first -> place <-> place <-> place <- last      the clock never goes back: whoever is born stands last, whoever has lasted longest first
//! ```
//!
//! All flows have the same active timeout, so nobody has to look behind the first whose time is not over.

use std::collections::TryReserveError;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Link {
    before: u32,
    after: u32,
}

/// A list of places, by birth.
pub(crate) struct Births {
    links: Vec<Link>,
    first: u32,
    last: u32,
}

impl Births {
    /// For so many places.
    ///
    /// # Errors
    /// If there is no memory for the places.
    pub(crate) fn new(places: usize) -> Result<Births, TryReserveError> {
        let mut links = Vec::new();
        links.try_reserve_exact(places)?;
        Ok(Births { links, first: NONE, last: NONE })
    }

    /// The place of the oldest flow.
    pub(crate) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// A flow is born in a place that stands nowhere. Places come into use one after the other.
    pub(crate) fn push(&mut self, place: u32) {
        let link = Link { before: self.last, after: NONE };
        match self.links.get_mut(place as usize) {
            Some(there) => *there = link,
            None => self.links.push(link),
        }
        match self.last {
            NONE => self.first = place,
            last => self.links[last as usize].after = place,
        }
        self.last = place;
    }

    /// Takes a place out.
    pub(crate) fn remove(&mut self, place: u32) {
        let Link { before, after } = self.links[place as usize];
        match before {
            NONE => self.first = after,
            before => self.links[before as usize].after = after,
        }
        match after {
            NONE => self.last = before,
            after => self.links[after as usize].before = before,
        }
    }

    /// Forgets every place.
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
        let (mut births, mut model, mut random) =
            (Births::new(50).expect("there is memory"), VecDeque::new(), Random::new(3));
        for place in 0..50 {
            births.push(place);
            model.push_back(place);
        }
        for _ in 0..1000 {
            let place = random.below(50) as u32;
            match model.iter().position(|there| *there == place) {
                Some(at) => {
                    model.remove(at);
                    births.remove(place);
                }
                None => {
                    model.push_back(place);
                    births.push(place);
                }
            }
            assert_eq!(births.first(), model.front().copied());
        }
        while let Some(place) = model.pop_front() {
            assert_eq!(births.first(), Some(place));
            births.remove(place);
        }
        assert_eq!(births.first(), None);
    }
}
