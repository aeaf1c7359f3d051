//! Interfaces that sections describe, known again in later sections.
//!
//! ```text
//! section 1: eth0 eth1 eth1      numbers 0 1 2
//! section 2: eth1 eth1 eth1      numbers 1 2 3       the first two are known; a section never has one interface twice
//! ```

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use tapline_packet::{Interface, InterfaceId};

/// The interfaces of a table, found by their contents.
#[derive(Debug, Default)]
pub(super) struct Known {
    state: RandomState,
    /// By the hash of their descriptions.
    by_hash: HashMap<u64, Alike>,
    /// The section in which each was described last, by number; sections are counted from 1.
    described: Vec<u64>,
    section: u64,
    /// The number behind that of the interface before: most sections describe the interfaces of the one before in their
    /// order.
    next: usize,
}

/// Interfaces with one hash, in the order of their numbers.
#[derive(Debug, Default)]
struct Alike {
    ids: Vec<InterfaceId>,
    /// In this section those before `from` were looked at. So a section is read in a time that grows with its length
    /// only.
    section: u64,
    from: usize,
}

impl Known {
    /// From here on all interfaces may come again.
    pub(super) fn begin_section(&mut self) {
        self.section += 1;
        self.next = 0;
    }

    /// An interface of `all` described so that this section has not described yet.
    pub(super) fn again(&mut self, interface: &Interface, all: &[Interface]) -> Option<InterfaceId> {
        let Known { state, by_hash, described, section, next } = self;
        let is_it = |at: usize| {
            described.get(at).is_some_and(|last| last < section) && all.get(at) == Some(interface)
        };
        if !is_it(*next) {
            let alike = by_hash.get_mut(&state.hash_one(interface))?;
            if alike.section != *section {
                (alike.section, alike.from) = (*section, 0);
            }
            let rest = alike.ids.get(alike.from..)?;
            let found = rest.iter().position(|id| is_it(id.0 as usize));
            alike.from += found.map_or(rest.len(), |at| at + 1);
            *next = rest.get(found?)?.0 as usize;
        }
        let id = InterfaceId(*next as u32);
        self.mark(id);
        Some(id)
    }

    /// An interface that is new, whose number is one more than that of the one before.
    pub(super) fn add(&mut self, interface: &Interface, id: InterfaceId) {
        self.by_hash.entry(self.state.hash_one(interface)).or_default().ids.push(id);
        self.described.push(0);
        self.mark(id);
    }

    fn mark(&mut self, id: InterfaceId) {
        if let Some(section) = self.described.get_mut(id.0 as usize) {
            *section = self.section;
        }
        self.next = id.0 as usize + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapline_packet::LinkType;

    /// The numbers that sections of interfaces with these names get.
    fn numbers(sections: &[&[&str]]) -> Vec<Vec<u32>> {
        let (mut known, mut all) = (Known::default(), Vec::new());
        let mut number = |known: &mut Known, name: &&str| {
            let interface = Interface::new(name, LinkType::ETHERNET);
            let id = known.again(&interface, &all).unwrap_or_else(|| {
                let id = InterfaceId(all.len() as u32);
                known.add(&interface, id);
                all.push(interface);
                id
            });
            id.0
        };
        let section = |names: &&[&str]| {
            known.begin_section();
            names.iter().map(|name| number(&mut known, name)).collect()
        };
        sections.iter().map(section).collect()
    }

    #[test]
    fn interfaces_that_come_and_go_keep_their_numbers() {
        let sections: [&[&str]; 5] = [&["a", "b"], &["b"], &["c", "a"], &["b", "c"], &["a", "b", "c", "d"]];
        assert_eq!(numbers(&sections), [vec![0, 1], vec![1], vec![2, 0], vec![1, 2], vec![0, 1, 2, 3]]);
    }

    #[test]
    fn a_section_never_has_one_interface_twice() {
        let sections: [&[&str]; 4] = [&["a", "b", "b"], &["b", "b", "b"], &["b", "a", "b"], &["b"; 4]];
        let numbers = numbers(&sections);
        assert_eq!(numbers[..2], [vec![0, 1, 2], vec![1, 2, 3]]);
        for section in &numbers {
            let mut distinct = section.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), section.len(), "{numbers:?}");
        }
        assert_eq!(numbers.iter().flatten().max(), Some(&4), "{numbers:?}");
    }

    #[test]
    fn interfaces_without_end_are_told_apart_in_time() {
        let half = 1 << 14;
        let (a, b) = (vec!["a"; half], vec!["b"; half]);
        let in_turn: Vec<&str> = (0..2 * half).map(|at| if at % 2 == 0 { "a" } else { "b" }).collect();
        let first = [a, b].concat();
        let sections: Vec<&[&str]> =
            std::iter::once(&first[..]).chain((0..20).map(|_| &in_turn[..])).collect();
        let numbers = numbers(&sections);
        assert!(numbers.iter().flatten().all(|number| (*number as usize) < 2 * half));
    }
}
