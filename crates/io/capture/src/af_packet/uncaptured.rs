//! Interfaces that are meant and are there, but could not be opened: reported once, tried again, and in the account, as
//! nobody knows how many packets they had.
//!
//! An attempt may fail because no socket was left.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use tapline_source::{Count, Error, InterfaceAccount, Loss, LossPoint, UncapturedCounts};
use tapline_sys::Link;

use super::AfPacket;

/// Interfaces with a row of their own in the account at most: of those that are not captured, and of former ones.
/// Further ones are reported, tried at each change of theirs, and have one row, with their number.
const REMEMBERED_MAX: usize = 1024;

/// Further interfaces that are remembered at most, by their numbers. The account says *at least*.
const FURTHER_MAX: usize = 1 << 16;

/// Interval of attempts, one interface each. An interface that could not be opened for less than this is not in the
/// account: it came and went, or waited for another worker.
const AGAIN: Duration = Duration::from_secs(1);

/// Interfaces that are not captured.
#[derive(Debug, Default)]
pub(super) struct UncapturedList {
    list: VecDeque<Uncaptured>,
    /// Names and reasons of those that were removed or are captured by now.
    former: Vec<(String, String)>,
    /// Further interfaces that are not captured: the time of the failure, by their numbers.
    further: BTreeMap<u32, Instant>,
    /// Failures that are over and are not in `former`.
    further_ended: u64,
    /// All failures that are over.
    ended: u64,
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
            let Some(gone) = self.list.remove(at) else { return };
            self.note_end(gone);
        }
        let further = self.further.len();
        let mut is_short = 0;
        self.further.retain(|index, since| {
            let does_stay = stays(*index);
            is_short += usize::from(!does_stay && !is_counted(*since));
            does_stay
        });
        let ended = (further - self.further.len() - is_short) as u64;
        self.ended += ended;
        self.further_ended += ended;
    }

    /// Takes note that a failure is over.
    fn note_end(&mut self, Uncaptured { link, why, since }: Uncaptured) {
        if !is_counted(since) {
            return;
        }
        self.ended += 1;
        let former = (link.name, why);
        match self.former.contains(&former) {
            true => {}
            false if self.former.len() < REMEMBERED_MAX => self.former.push(former),
            false => self.further_ended += 1,
        }
    }

    /// Takes note of a failure. Returns whether it is a new one.
    fn note(&mut self, link: &Link, why: &str) -> bool {
        let before = self.list.iter().position(|known| known.link.index == link.index);
        let known = before.and_then(|at| self.list.remove(at));
        let further = self.further.remove(&link.index);
        let since = known.as_ref().map(|known| known.since).or(further).unwrap_or_else(Instant::now);
        if self.list.len() < REMEMBERED_MAX {
            self.list.push_back(Uncaptured { link: link.clone(), why: why.to_owned(), since });
        } else if self.further.len() < FURTHER_MAX {
            self.further.insert(link.index, since);
        }
        match known {
            Some(known) => known.link.name != link.name || known.why != why,
            None => further.is_none(),
        }
    }

    /// The interface to try next, if it is time.
    fn next(&mut self) -> Option<Link> {
        let first = self.list.front()?;
        let is_due = self.tried.is_none_or(|tried| tried.elapsed() >= AGAIN);
        is_due.then(|| first.link.clone()).inspect(|_| self.tried = Some(Instant::now()))
    }

    /// Adds the unknown losses to the rows of their interfaces; those without one get it.
    /// `is_called` says whether the interface of a row is called so by now.
    pub(super) fn add_to(
        &self,
        accounts: &mut Vec<InterfaceAccount>,
        is_called: impl Fn(usize, &str) -> bool,
    ) {
        let rows = accounts.len();
        let now = self.list.iter().filter(|one| is_counted(one.since)).map(|one| (&one.link.name, &one.why));
        for (name, why) in self.former.iter().map(|(name, why)| (name, why)).chain(now) {
            let loss = Loss { place: LossPoint::Uncaptured, counter: why.clone(), count: Count::Unknown };
            let is_its = |(row, account): &(usize, &mut InterfaceAccount)| match *row < rows {
                true => is_called(*row, name),
                false => account.name == *name,
            };
            match accounts.iter_mut().enumerate().rfind(is_its) {
                Some((_, known)) => known.losses.push(loss),
                None => accounts.push(InterfaceAccount::of_uncaptured(name, why)),
            }
        }
        let further = self.further_ended + self.further_lasting();
        if further > 0 {
            accounts.push(InterfaceAccount::of_further_uncaptured(further));
        }
    }

    /// All failures so far.
    pub(super) fn counts(&self) -> UncapturedCounts {
        let lasting = self.list.iter().filter(|one| is_counted(one.since)).count() as u64;
        let ended = self.ended;
        UncapturedCounts { begun: ended + lasting + self.further_lasting(), ended }
    }

    /// Further interfaces that are not captured.
    fn further_lasting(&self) -> u64 {
        self.further.values().filter(|since| is_counted(**since)).count() as u64
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
        list.add_to(&mut accounts, |_, _| false);
        assert_eq!(accounts.len(), 0, "all of them have just come");
        list.list.iter_mut().skip(1).for_each(|one| one.since -= AGAIN);
        list.note(&link(1), "no memory");
        list.retain(|index| index == 3);
        // Another interface was called v2 when it was opened.
        let mut accounts = vec![InterfaceAccount::of_file("v1", 5), InterfaceAccount::of_file("v2", 6)];
        list.add_to(&mut accounts, |row, name| ["v1", "w2"][row] == name);
        assert!(accounts.remove(1).losses.is_empty());
        let row = |account: &InterfaceAccount| (account.name.clone(), account.losses[0].counter.clone());
        let rows: Vec<(String, String)> = accounts.iter().map(row).collect();
        let expected = [("v1", "no memory"), ("v2", "no socket"), ("v3", "no socket")];
        assert_eq!(rows, expected.map(|(name, why)| (name.to_owned(), why.to_owned())));
        assert!(accounts.iter().all(|account| account.losses[0].count == Count::Unknown));
        assert_eq!(accounts[0].delivered, 5);
        assert_eq!(list.counts(), UncapturedCounts { begun: 3, ended: 2 });
    }

    /// Whether they are not captured, or no longer. Those of less than a second are not counted.
    #[test]
    fn failures_without_a_row_are_counted() {
        const FEW: u32 = 5;
        let mut list = UncapturedList::default();
        let age = |list: &mut UncapturedList| {
            list.list.iter_mut().for_each(|one| one.since -= AGAIN);
            list.further.values_mut().for_each(|since| *since -= AGAIN);
        };
        let last_row = |list: &UncapturedList| {
            let mut accounts = Vec::new();
            list.add_to(&mut accounts, |_, _| false);
            accounts.last().map(|account| (account.name.clone(), account.losses[0].counter.clone()))
        };
        let further = |failures: u32| {
            Some(("further interfaces".to_owned(), format!("at least {failures} more failures")))
        };
        let most = REMEMBERED_MAX as u32;
        (0..most + FEW).for_each(|index| assert!(list.note(&link(index), "no socket")));
        assert_eq!((last_row(&list), list.counts()), (None, UncapturedCounts::default()));
        age(&mut list);
        assert!(!list.note(&link(most), "no socket"), "it is known");
        assert_eq!(last_row(&list), further(FEW));
        list.note(&link(most + FEW), "no socket");
        assert_eq!(last_row(&list), further(FEW), "the last one has just come");
        list.retain(|index| index == most);
        assert_eq!(last_row(&list), further(FEW));
        let ended = u64::from(most + FEW - 1);
        assert_eq!(list.counts(), UncapturedCounts { begun: ended + 1, ended });
        // Now former ones have no place.
        list.note(&link(2 * most), "no memory");
        age(&mut list);
        list.retain(|_| false);
        assert_eq!(last_row(&list), further(FEW + 1));
        assert_eq!(list.counts(), UncapturedCounts { begun: ended + 2, ended: ended + 2 });
    }

    #[test]
    fn further_interfaces_are_bounded() {
        let mut list = UncapturedList::default();
        let named = REMEMBERED_MAX as u32;
        (0..named + 1).for_each(|index| assert!(list.note(&link(index), "no socket")));
        // Noted one by one, each would be looked for among the named ones.
        let all = named..named + FURTHER_MAX as u32;
        list.further.extend(all.clone().map(|index| (index, Instant::now())));
        assert!(list.note(&link(all.end), "no socket"));
        assert!(!list.note(&link(named), "no socket"), "it has a place");
        assert_eq!((list.list.len(), list.further.len()), (REMEMBERED_MAX, FURTHER_MAX));
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
