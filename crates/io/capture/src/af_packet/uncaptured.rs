//! Interfaces that are meant and are there, but could not be opened: reported once, tried again, and in the account, as
//! nobody knows how many packets they had.
//!
//! An attempt may fail because another worker has not heard yet that an interface of the same number was removed, or
//! because no socket was left.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tapline_source::{Count, Error, InterfaceAccount, Loss, LossPoint, RingAccount};
use tapline_sys::Link;

use super::AfPacket;

/// Interfaces that are remembered at most. Further ones are reported, and tried at each change of theirs.
const REMEMBERED_MAX: usize = 1024;

/// Interval of attempts, one interface each. An interface that could not be opened for less than this is not in the
/// account: it came and went, or waited for another worker.
const AGAIN: Duration = Duration::from_secs(1);

/// Interfaces that are not captured.
#[derive(Debug, Default)]
pub(super) struct UncapturedList {
    list: VecDeque<Uncaptured>,
    /// Names and reasons of those that were removed or are captured by now.
    former: Vec<(String, String)>,
    tried: Option<Instant>,
}

/// An interface that is not captured.
#[derive(Debug)]
struct Uncaptured {
    link: Link,
    why: String,
    since: Instant,
}

impl UncapturedList {
    /// Forgets interfaces, by their numbers.
    pub(super) fn retain(&mut self, stays: impl Fn(u32) -> bool) {
        let mut at = 0;
        while let Some(one) = self.list.get(at) {
            if stays(one.link.index) {
                at += 1;
                continue;
            }
            let Some(Uncaptured { link, why, since }) = self.list.remove(at) else { return };
            let former = (link.name, why);
            let is_new = is_counted(since) && !self.former.contains(&former);
            if is_new && self.former.len() < REMEMBERED_MAX {
                self.former.push(former);
            }
        }
    }

    /// Takes note of a failure. Returns whether it is a new one.
    fn note(&mut self, link: &Link, why: &str) -> bool {
        let before = self.list.iter().position(|known| known.link.index == link.index);
        let known = before.and_then(|at| self.list.remove(at));
        if self.list.len() < REMEMBERED_MAX {
            let since = known.as_ref().map_or_else(Instant::now, |known| known.since);
            self.list.push_back(Uncaptured { link: link.clone(), why: why.to_owned(), since });
        }
        known.is_none_or(|known| known.link.name != link.name || known.why != why)
    }

    /// The interface to try next, if it is time.
    fn next(&mut self) -> Option<Link> {
        let first = self.list.front()?;
        let is_due = self.tried.is_none_or(|tried| tried.elapsed() >= AGAIN);
        is_due.then(|| first.link.clone()).inspect(|_| self.tried = Some(Instant::now()))
    }

    /// Adds the unknown losses to the rows of their interfaces; those without one get it.
    pub(super) fn add_to(&self, accounts: &mut Vec<InterfaceAccount>) {
        let now = self.list.iter().filter(|one| is_counted(one.since)).map(|one| (&one.link.name, &one.why));
        for (name, why) in self.former.iter().map(|(name, why)| (name, why)).chain(now) {
            let loss = Loss { place: LossPoint::Uncaptured, counter: why.clone(), count: Count::Unknown };
            match accounts.iter_mut().find(|account| account.name == *name) {
                Some(known) => known.losses.push(loss),
                None => accounts.push(InterfaceAccount {
                    losses: vec![loss],
                    ring: Some(RingAccount::default()),
                    ..InterfaceAccount::of_file(name, 0)
                }),
            }
        }
    }
}

/// Whether an interface could not be captured for long enough to be in the account.
fn is_counted(since: Instant) -> bool {
    since.elapsed() >= AGAIN
}

impl AfPacket {
    /// Remembers and reports that an interface is not captured: what happened to it, and why.
    pub(super) fn fail(&mut self, link: &Link, what: &str, why: &str) {
        // The account and the report name it anyway, and the account has lines.
        let why = why.strip_prefix(&format!("{}: ", link.name)).unwrap_or(why);
        let first_line = why.lines().next().unwrap_or_default();
        if self.uncaptured.note(link, first_line) {
            self.tell(&link.name, format!("{what}{why}"), true);
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

    /// Also once it is captured, or removed; not if that came within a second.
    #[test]
    fn their_losses_are_unknown() {
        let mut list = UncapturedList::default();
        for index in 0..4 {
            list.note(&link(index), "no socket");
        }
        let mut accounts = Vec::new();
        list.add_to(&mut accounts);
        assert_eq!(accounts.len(), 0, "all of them have just come");
        list.list.iter_mut().skip(1).for_each(|one| one.since -= AGAIN);
        list.note(&link(1), "no memory");
        list.retain(|index| index == 3);
        let mut accounts = vec![InterfaceAccount::of_file("v1", 5)];
        list.add_to(&mut accounts);
        let row = |account: &InterfaceAccount| (account.name.clone(), account.losses[0].counter.clone());
        let rows: Vec<(String, String)> = accounts.iter().map(row).collect();
        let expected = [("v1", "no memory"), ("v2", "no socket"), ("v3", "no socket")];
        assert_eq!(rows, expected.map(|(name, why)| (name.to_owned(), why.to_owned())));
        assert!(accounts.iter().all(|account| account.losses[0].count == Count::Unknown));
        assert_eq!(accounts[0].delivered, 5);
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
