//! Interfaces that are meant and are there, but could not be opened: reported once, and tried again.
//!
//! An attempt may fail because another worker has not heard yet that an interface of the same number was removed, or
//! because no socket was left.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tapline_source::Error;
use tapline_sys::Link;

use super::AfPacket;

/// Interfaces that are remembered at most. Further ones are reported, and tried at each change of theirs.
const REMEMBERED_MAX: usize = 1024;

/// Interval of attempts, one interface each.
const AGAIN: Duration = Duration::from_secs(1);

/// Interfaces that are not captured.
#[derive(Debug, Default)]
pub(super) struct UncapturedList {
    list: VecDeque<(Link, String)>,
    tried: Option<Instant>,
}

impl UncapturedList {
    /// Forgets interfaces, by their numbers.
    pub(super) fn retain(&mut self, stays: impl Fn(u32) -> bool) {
        self.list.retain(|(link, _)| stays(link.index));
    }

    /// Takes note of a failure. Returns whether it is a new one.
    fn note(&mut self, link: &Link, why: &str) -> bool {
        let before = self.list.iter().position(|(known, _)| known.index == link.index);
        let known = before.and_then(|at| self.list.remove(at));
        if self.list.len() < REMEMBERED_MAX {
            self.list.push_back((link.clone(), why.to_owned()));
        }
        known.is_none_or(|(known, text)| known.name != link.name || text != why)
    }

    /// The interface to try next, if it is time.
    fn next(&mut self) -> Option<Link> {
        let (link, _) = self.list.front()?;
        let is_due = self.tried.is_none_or(|tried| tried.elapsed() >= AGAIN);
        is_due.then(|| link.clone()).inspect(|_| self.tried = Some(Instant::now()))
    }
}

impl AfPacket {
    /// Remembers and reports that an interface is not captured.
    pub(super) fn fail(&mut self, link: &Link, why: String) {
        if self.uncaptured.note(link, &why) {
            self.tell(&link.name, why, true);
        }
    }

    /// Tries one of the interfaces that could not be opened again, each second, while there is a socket for it.
    pub(super) fn try_again(&mut self) -> Result<(), Error> {
        if !self.opener.spares.is_any_left() {
            return Ok(());
        }
        self.uncaptured.next().map_or(Ok(()), |link| self.follow_new(&link))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32) -> Link {
        Link { index, name: format!("v{index}"), ..Link::default() }
    }

    #[test]
    fn a_failure_is_reported_once() {
        let mut list = UncapturedList::default();
        assert!(list.note(&link(7), "no socket"));
        assert!(!list.note(&link(7), "no socket"));
        assert!(list.note(&link(7), "no memory"), "for another reason");
        assert!(list.note(&Link { name: "w7".to_owned(), ..link(7) }, "no memory"), "under another name");
        list.retain(|index| index != 7);
        assert!(list.note(&link(7), "no memory"), "it was removed and came back");
    }

    #[test]
    fn interfaces_take_turns_and_are_bounded() {
        let mut list = UncapturedList::default();
        (0..2 * REMEMBERED_MAX as u32).for_each(|index| assert!(list.note(&link(index), "no socket")));
        assert_eq!(list.list.len(), REMEMBERED_MAX);
        assert_eq!(list.next().map(|link| link.index), Some(0));
        assert!(list.next().is_none(), "not at once again");
        list.tried = None;
        list.note(&link(0), "no socket");
        assert_eq!(list.next().map(|link| link.index), Some(1));
    }
}
