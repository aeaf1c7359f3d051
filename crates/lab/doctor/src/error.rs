//! Reasons that the machine could not be examined or changed.

use std::io;

use tapline_sys::SyscallError;

/// The reason that the machine could not be examined or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it")]
pub enum Error {
    /// The interfaces could not be listed.
    #[error("cannot list the interfaces: {0}")]
    Interfaces(#[source] SyscallError),
    /// No interface of this name.
    #[error("there is no interface {wanted:?}; there are: {present}")]
    NoSuchInterface {
        /// The request.
        wanted: String,
        /// The names that there are.
        present: String,
    },
    /// No network namespace of this name.
    #[error("cannot open the network namespace {name:?}: {source}; ip netns list shows those there are")]
    NoSuchNamespace {
        /// The request.
        name: String,
        source: io::Error,
    },
    /// The namespace is there, but we may not enter it.
    #[error("cannot enter the network namespace {name:?}: {source}; this needs CAP_SYS_ADMIN (use sudo)")]
    Namespace {
        /// The request.
        name: String,
        source: SyscallError,
    },
    /// The kernel or the driver refused a change, or its present state could not be read.
    #[error("{what}: {source}{hint}")]
    Refused {
        /// The setting.
        what: String,
        /// A clause on the remedy; may be empty.
        hint: &'static str,
        /// The answer.
        source: SyscallError,
    },
    /// A file that cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// Where.
        path: String,
        source: io::Error,
    },
    /// The kernel took a change and did nothing.
    #[error("{what}: the kernel took it, but it is not in effect")]
    NotInEffect {
        /// The setting.
        what: String,
    },
    /// No network namespace can be entered without its right.
    #[error("cannot enter the network namespace: {0}")]
    EnterNamespace(#[source] SyscallError),
    /// The namespace of a journal may be one that the kernel hides from this user.
    #[error("its network namespace may be one that is hidden from this user; use sudo")]
    HiddenNamespace,
    /// An interface without an index, by which it is recognised after it was renamed.
    #[error("{what}: the kernel lists no index of the interface {name}")]
    NoIndex {
        /// The change.
        what: String,
        /// The interface.
        name: String,
    },
    /// The interface of a change bears another name now.
    #[error("it is called {name} now; give it its name back, then: tapline doctor --undo")]
    Renamed {
        /// The present name.
        name: String,
    },
    /// No directory takes a journal.
    #[error(
        "no directory for the journal, so nothing is changed: {reasons}; use sudo, or set TAPLINE_RUN_DIR to a directory of yours"
    )]
    NoJournal {
        /// Each directory that was tried, and why it is refused.
        reasons: String,
    },
    /// A journal cannot be written or removed.
    #[error("cannot {action} the journal {path}: {source}")]
    Journal {
        /// `write` or `remove`.
        action: &'static str,
        /// The file.
        path: String,
        source: io::Error,
    },
    /// A record of a change that is none of those this program makes.
    #[error("a record names {path:?}, which this program never writes; it was left alone")]
    ForeignPath {
        /// Where.
        path: String,
    },
}

impl Error {
    pub(crate) fn refused(what: &str, source: SyscallError) -> Error {
        const EPERM: i32 = 1;
        let hint = if source.errno() == EPERM { "; this needs CAP_NET_ADMIN (use sudo)" } else { "" };
        Error::Refused { what: what.to_owned(), hint, source }
    }
}
