//! Changes for a while: journalled, made, and put back, last first.
//!
//! ```text
//! Fixer::fix       for each change of a finding: journal the step --> make it --> journal the setting read back
//! Fixer::undo_all  last first: put back what no other program has changed since --> remove the journal
//! ```
//!
//! A setting that the driver takes otherwise than asked is put back at once. A change that cannot be made is reported
//! and left out. A change that cannot be put back keeps its journal, so that the next run reports it.

use tapline_sys::NetNs;

use crate::journal::{Entry, Header, Journal, Owner};
use crate::{Change, CheckResult, Error, Event, Step, UndoResult};

/// A change of a run.
#[derive(Clone, Debug)]
pub enum Attempt {
    /// The change was made.
    Made(Step),
    /// The change was not made.
    NotMade {
        /// The change, or the command that covers several changes.
        what: String,
        /// The reason.
        why: String,
    },
}

/// Makes changes in one network namespace. Puts them back when dropped, too.
#[derive(Debug)]
pub struct Fixer {
    netns: Option<String>,
    namespace: Option<NetNs>,
    journal: Option<Journal>,
    /// The changes made, in order.
    entries: Vec<Entry>,
    tell: fn(&Event),
}

impl Fixer {
    /// For interfaces of the network namespace `netns`; `None` is that of the process. `tell` is called for each change
    /// made or put back.
    ///
    /// # Errors
    /// If there is no such namespace.
    pub fn new(netns: Option<&str>, tell: fn(&Event)) -> Result<Fixer, Error> {
        let open = |name: &str| {
            NetNs::open(name).map_err(|source| Error::NoSuchNamespace { name: name.to_owned(), source })
        };
        let namespace = netns.map(open).transpose()?;
        Ok(Fixer { netns: netns.map(str::to_owned), namespace, journal: None, entries: Vec::new(), tell })
    }

    /// Makes the changes that mend the findings. A change that stops the link for a moment is made only on interfaces
    /// in `named`.
    ///
    /// # Errors
    /// If the journal cannot be written: then no further change is made.
    pub fn fix(&mut self, examined: &[CheckResult], named: &[String]) -> Result<Vec<Attempt>, Error> {
        let mut attempts = Vec::new();
        for finding in examined.iter().map(|one| &one.finding).filter(|finding| finding.is_fixable()) {
            let Some(mend) = &finding.remedy else { continue };
            let is_named = finding.interface.as_ref().is_some_and(|name| named.contains(name));
            if mend.interrupts_link && !is_named {
                let why = "it may stop the link for a moment: name the interface to have it done".to_owned();
                let what = mend.command.clone();
                (self.tell)(&Event::NotMade { why: format!("{what}: {why}") });
                attempts.push(Attempt::NotMade { what, why });
                continue;
            }
            for change in &mend.changes {
                attempts.extend(self.change(change)?);
            }
        }
        Ok(attempts)
    }

    /// Whether any change is in effect.
    pub fn has_changed(&self) -> bool {
        !self.entries.is_empty()
    }

    /// Makes one change; `None` if the setting has that value already.
    fn change(&mut self, change: &Change) -> Result<Option<Attempt>, Error> {
        let entry = match within(self.namespace.as_ref(), change.interface(), || Entry::now(change))? {
            Ok(entry) if entry.step.before == entry.step.change => return Ok(None),
            Ok(entry) => entry,
            Err(error) => return Ok(Some(self.refused(change, &error))),
        };
        self.note(&entry)?;
        // From here on the setting is to be put back, even if only half of the change is made.
        self.entries.push(entry.clone());
        let make = || (change.apply(), change.now().ok());
        let (made, taken) = within(self.namespace.as_ref(), change.interface(), make)?;
        let entry = Entry { taken, ..entry };
        self.entries.pop();
        self.entries.push(entry.clone());
        self.note(&entry)?;
        match made {
            Ok(()) => {
                (self.tell)(&Event::Made(entry.step.clone()));
                Ok(Some(Attempt::Made(entry.step)))
            }
            Err(error) => {
                if matches!(error, Error::NotInEffect { .. }) {
                    self.put_last_back(&entry)?;
                }
                Ok(Some(self.refused(change, &error)))
            }
        }
    }

    fn refused(&self, change: &Change, error: &Error) -> Attempt {
        let why = error.to_string();
        (self.tell)(&Event::NotMade { why: why.clone() });
        Attempt::NotMade { what: change.to_string(), why }
    }

    /// Journals a step before it is made, or with the setting read back.
    fn note(&mut self, entry: &Entry) -> Result<(), Error> {
        let journal = match self.journal.take() {
            Some(journal) => journal,
            None => Journal::create(&Header::now(self.netns.as_deref(), self.namespace.as_ref())?)?,
        };
        self.journal.insert(journal).add(entry)
    }

    /// Puts the last step back at once, as the driver took another value than it was given. If that fails it is tried
    /// again at the end.
    fn put_last_back(&mut self, entry: &Entry) -> Result<(), Error> {
        let before = &entry.step.before;
        match within(self.namespace.as_ref(), before.interface(), || before.apply())? {
            Ok(()) => drop(self.entries.pop()),
            Err(why) => (self.tell)(&Event::NotPutBack { before: None, why }),
        }
        Ok(())
    }

    /// Puts every setting back, last first. Gives whether all are as before, apart from those that other programs
    /// changed since.
    pub fn undo_all(&mut self) -> bool {
        let entries = std::mem::take(&mut self.entries);
        let restore = |entry: &&Entry| !undo_all(self.namespace.as_ref(), entry, self.tell);
        let failed = entries.iter().rev().filter(restore).count();
        let Some(journal) = self.journal.take() else { return failed == 0 };
        if failed > 0 {
            (self.tell)(&Event::JournalStays(journal.path().to_owned()));
            return false;
        }
        journal.remove().map_err(|error| (self.tell)(&Event::JournalNotRemoved(error))).is_ok()
    }
}

impl Drop for Fixer {
    fn drop(&mut self) {
        self.undo_all();
    }
}

/// Puts one step back and reports it. Returns whether nothing of the step is left to do.
pub(crate) fn undo_all(namespace: Option<&NetNs>, entry: &Entry, tell: fn(&Event)) -> bool {
    let undo = || match entry.owner()? {
        Owner::Same => Ok(Some(entry.undo()?)),
        Owner::Gone => Ok(None),
        Owner::Renamed(name) => Err(Error::Renamed { name }),
    };
    let before = entry.step.before.clone();
    match within(namespace, entry.step.change.interface(), undo).and_then(|undone| undone) {
        Ok(Some(UndoResult::Restored)) => tell(&Event::Restored(before)),
        Ok(Some(UndoResult::AlreadyRestored)) => {}
        Ok(Some(UndoResult::ChangedSince)) => tell(&Event::ChangedSince(before)),
        Ok(None) => tell(&Event::InterfaceGone(before)),
        Err(why) => {
            tell(&Event::NotPutBack { before: Some(before), why });
            return false;
        }
    }
    true
}

/// Runs `work` in the namespace of the interface; settings of the machine are the same in all.
fn within<T: Send>(
    namespace: Option<&NetNs>,
    interface: Option<&str>,
    work: impl FnOnce() -> T + Send,
) -> Result<T, Error> {
    match namespace.filter(|_| interface.is_some()) {
        None => Ok(work()),
        Some(namespace) => namespace.run(work).map_err(Error::EnterNamespace),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::journal;

    const SETTING: &str = "/proc/sys/net/core/netdev_max_backlog";

    fn now() -> Option<String> {
        Some(fs::read_to_string(SETTING).ok()?.trim().to_owned())
    }

    #[test]
    fn a_value_that_was_rounded_is_put_back_at_once() {
        let test = "a_value_that_was_rounded_is_put_back_at_once";
        let Some(before) = now() else { return eprintln!("skipped: {test}: no {SETTING} here") };
        if fs::write(SETTING, &before).is_err() {
            return eprintln!("skipped: {test}: {SETTING} cannot be written");
        }
        let directory = tempfile::tempdir().unwrap();
        let journal = journal::create_in(directory.path()).unwrap();
        let path = journal.path().to_owned();
        let mut fixer = Fixer::new(None, |_| ()).unwrap();
        fixer.journal = Some(journal);
        // The kernel takes hexadecimal numbers and gives them back in decimal, as a driver that rounds.
        let other = before.parse::<u64>().unwrap() + 1;
        let change = Change::File { path: SETTING.into(), value: format!("{other:#x}") };
        let Some(Attempt::NotMade { why, .. }) = fixer.change(&change).unwrap() else { panic!("it was") };
        assert!(why.contains("not in effect"), "{why}");
        assert_eq!(now(), Some(before));
        let text = fs::read_to_string(&path).unwrap();
        let entries: Vec<Entry> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let taken = Change::File { path: SETTING.into(), value: other.to_string() };
        assert_eq!(entries.iter().map(|entry| entry.taken.clone()).collect::<Vec<_>>(), [None, Some(taken)]);
        assert!(fixer.undo_all() && !path.exists(), "no setting was left to be put back");
    }

    #[test]
    fn an_interface_without_an_index_is_left_alone() {
        let change = Change::Features { interface: "no-such-if".into(), features: Vec::new() };
        let text = Entry::now(&change).unwrap_err().to_string();
        assert!(text.ends_with("no index of the interface no-such-if"), "{text}");
    }
}
