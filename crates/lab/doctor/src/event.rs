//! Changes made and put back, reported one by one as they happen.

use std::fmt;
use std::path::PathBuf;

use crate::{Change, Error, Step};

/// An event of a run that makes changes or puts them back. Its text is one line, and holds names that others chose:
/// escape it for terminals.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A change was made.
    Made(Step),
    /// A change was not made.
    NotMade {
        /// The reason, with the name of the setting.
        why: String,
    },
    /// The setting is as before again.
    Restored(Change),
    /// Another program changed the setting meanwhile; its value stays.
    ChangedSince(Change),
    /// The interface is gone, and its settings with it.
    InterfaceGone(Change),
    /// The network namespace is gone, and its interfaces with it.
    NamespaceGone,
    /// A setting could not be put back; its journal stays.
    NotPutBack {
        /// The setting as it was; `None` where the error names it.
        before: Option<Change>,
        /// The reason.
        why: Error,
    },
    /// A journal stays, because a change of it could not be put back.
    JournalStays(PathBuf),
    /// A journal could not be removed.
    JournalNotRemoved(Error),
    /// The journal of another user: only that user can restore it.
    JournalOfRoot(PathBuf),
    /// The system was restarted since the changes of a journal: no setting is left of them.
    Restarted,
    /// No journal is left to restore.
    NothingLeft,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Made(Step { change, before: Change::Features { .. } }) => write!(f, "changed: {change}"),
            Event::Made(Step { change, before }) => write!(f, "changed: {change} (was: {before})"),
            Event::NotMade { why } => write!(f, "not done: {why}"),
            Event::Restored(before) => write!(f, "put back: {before}"),
            Event::ChangedSince(before) => {
                write!(f, "left alone, as another program has changed it since: {before}")
            }
            Event::InterfaceGone(before) => {
                write!(f, "the interface is gone; there is nothing to restore: {before}")
            }
            Event::NamespaceGone => f.write_str("the network namespace is gone; there is nothing to restore"),
            Event::NotPutBack { before: Some(before), why } => write!(f, "NOT put back: {before}: {why}"),
            Event::NotPutBack { before: None, why } => write!(f, "NOT put back: {why}"),
            Event::JournalStays(path) => write!(
                f,
                "{} holds the changes that are left; tapline doctor --undo tries again",
                path.display()
            ),
            Event::JournalNotRemoved(error) => write!(f, "{error}"),
            Event::JournalOfRoot(path) => {
                write!(f, "{} belongs to root: sudo tapline doctor --undo", path.display())
            }
            Event::Restarted => f.write_str("the system was restarted since: its settings are its own again"),
            Event::NothingLeft => f.write_str("nothing is left to be put back"),
        }
    }
}
