//! Reasons that nothing can be sent: what happened, where, and what to do about it.

use std::io;

use tapline_sys::{NetNs, SyscallError};

use super::Backend;

const EPERM: i32 = 1;
const EACCES: i32 = 13;

/// The reason that nothing can be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it")]
pub enum TransmitError {
    /// The interface leads to a network that may belong to others.
    #[error(
        "sending on {interface} is refused: it is {what}, and what is behind it may not be yours\n  Tapline sends on loopback and veth \
         interfaces; on others only if you name them. If that network is yours, add: --i-own-this-network {interface}"
    )]
    NotAllowed {
        interface: String,
        /// The kind of interface, with an article.
        what: String,
    },
    /// No interface of this name.
    #[error("there is no interface {wanted:?} to send on; there are: {present}")]
    NoSuchInterface {
        /// The requested name or setting.
        wanted: String,
        /// The names that there are.
        present: String,
    },
    /// Another interface has the number by now, or none has.
    #[error("{interface} was removed or changed while it was opened, and nothing was sent: start again")]
    Replaced { interface: String },
    /// Packets would go round for ever.
    #[error(
        "packets would go round for ever: {way}\n  capture somewhere else, or send somewhere else; a filter does not make this right"
    )]
    Round {
        /// The loop: interfaces of capture, and of sending.
        way: String,
    },
    /// No network namespace of this name.
    #[error("cannot open the network namespace {name:?}: {source}{known}")]
    NoSuchNamespace {
        /// The requested name or setting.
        name: String,
        /// A clause that lists the names there are; may be empty.
        known: String,
        source: io::Error,
    },
    /// Without the right to open packet sockets.
    #[error("no permission to send on {interface}: {source}\n  sending needs CAP_NET_RAW: sudo tapline ...")]
    NoPermission { interface: String, source: SyscallError },
    /// The requested back end is not available.
    #[error("{interface}: no sending by {backend}: {why}\n  --backend auto takes the best that works")]
    NoBackend {
        interface: String,
        /// The back end.
        backend: Backend,
        /// The reason, in words.
        why: String,
    },
    /// Something else failed.
    #[error("{interface}: {source}")]
    Call {
        /// The interface; a word for all of them if the error is about none.
        interface: String,
        source: SyscallError,
    },
}

impl TransmitError {
    pub(super) fn no_backend(interface: &str, backend: Backend, why: String) -> TransmitError {
        TransmitError::NoBackend { interface: interface.to_owned(), backend, why }
    }

    pub(super) fn of_call(interface: &str, source: SyscallError) -> TransmitError {
        let interface = interface.to_owned();
        match source.errno() {
            EPERM | EACCES => TransmitError::NoPermission { interface, source },
            _ => TransmitError::Call { interface, source },
        }
    }

    pub(super) fn no_such_namespace(name: &str, source: io::Error) -> TransmitError {
        TransmitError::NoSuchNamespace { name: name.to_owned(), known: NetNs::known_names(), source }
    }
}
