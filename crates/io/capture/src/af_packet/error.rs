//! Errors of a live capture: what happened, where, and what to do about it.

use std::io;

use tapline_sys::{NetNs, SyscallError, capability::Capability};

const EPERM: i32 = 1;
const EACCES: i32 = 13;

/// Error of a live capture at its start or while it runs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it")]
pub enum AfPacketError {
    /// Without the right to open packet sockets.
    #[error(
        "no permission to capture: {source}\n  {missing}capturing needs {capability}; any one of these grants it:\n    \
         sudo tapline ...                                     as root\n    \
         sudo setcap cap_net_raw,cap_net_admin=eip \"$(command -v tapline)\"   for this program, for good\n    \
         unshare --user --map-root-user --net tapline ...     in a namespace of your own, with its own interfaces"
    )]
    NoPermission {
        /// The missing right's name.
        capability: &'static str,
        /// A remark on what this process has.
        missing: &'static str,
        source: SyscallError,
    },
    /// An interface appeared after the rights were given up, and all sockets that were opened before are used.
    #[error("no socket is left of {kept} that were opened in advance; start again to capture it")]
    NoSocketLeft {
        /// Number of sockets that were opened in advance.
        kept: usize,
        /// The error of the kernel for another one.
        source: SyscallError,
    },
    /// No interface of this name or pattern.
    #[error("there is no interface {wanted:?}{guess}; there are: {present}")]
    NoSuchInterface {
        /// The requested name or setting.
        wanted: String,
        /// A clause that names the nearest one; may be empty.
        guess: String,
        /// The names that there are.
        present: String,
    },
    /// The interface has no receive queue of this number.
    #[error("there is no receive queue {queue}: it has {queues}, counted from 0 (ethtool -l)")]
    NoSuchQueue {
        /// The requested queue, from 0.
        queue: u16,
        /// Number of its receive queues.
        queues: u32,
    },
    /// No network namespace of this name.
    #[error("cannot open the network namespace {name:?}: {source}{known}")]
    NoSuchNamespace {
        /// The requested name or setting.
        name: String,
        /// A clause that lists the names there are; may be empty.
        known: String,
        /// Error of the system call.
        source: io::Error,
    },
    /// The namespace is there, but we may not enter it.
    #[error("cannot enter the network namespace {name:?}: {source}; this needs CAP_SYS_ADMIN (use sudo)")]
    Namespace {
        /// The requested name or setting.
        name: String,
        source: SyscallError,
    },
    /// Not even the smallest ring could be allocated.
    #[error(
        "no memory for a capture ring on {interface}, not even {len} bytes: {source}; ask for a smaller one (-B)"
    )]
    NoRing {
        interface: String,
        /// The last size tried.
        len: u64,
        source: SyscallError,
    },
    /// The adapter cannot stamp packets.
    #[error(
        "{interface} cannot stamp all packets by its own clock: {source}; use host timestamps (-j host){hint}"
    )]
    NoHardwareTimestamps {
        interface: String,
        /// A clause on the missing permission or setting; may be empty.
        hint: &'static str,
        source: SyscallError,
    },
    /// Every interface has gone and none came back.
    #[error("{names} has gone while capturing and did not come back{within}")]
    Gone {
        names: String,
        /// The time that the capture waited.
        within: String,
    },
    /// Something else failed.
    #[error("{source}")]
    Call {
        /// The interface; a word for the whole capture if the error is about none.
        interface: String,
        source: SyscallError,
    },
}

impl AfPacketError {
    /// The error of a failed call on an interface: `NoPermission` if a permission was missing.
    pub(super) fn of_call(interface: &str, source: SyscallError) -> AfPacketError {
        let is_refused = matches!(source.errno(), EPERM | EACCES) && source.call.starts_with("socket");
        if is_refused {
            return AfPacketError::no_permission(source);
        }
        AfPacketError::Call { interface: interface.to_owned(), source }
    }

    fn no_permission(source: SyscallError) -> AfPacketError {
        let missing = match Capability::NetRaw.is_effective() {
            // The process has the right, but not over this network namespace's owner.
            Ok(true) => "this process has it, but not in the user namespace that owns these interfaces; ",
            _ => "",
        };
        AfPacketError::NoPermission { capability: Capability::NetRaw.name(), missing, source }
    }

    pub(super) fn no_such_namespace(name: &str, source: io::Error) -> AfPacketError {
        AfPacketError::NoSuchNamespace { name: name.to_owned(), known: NetNs::known_names(), source }
    }
}
