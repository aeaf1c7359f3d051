//! Errors between a source and a sink.

use std::io;

/// Errors between a source and a sink. Each text says what happened, where, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The filter cannot be compiled for an interface's link type. The text is the filter's own, with a caret.
    #[error("{0}")]
    Filter(String),
    /// A capture file cannot be read or written (further). The text names the file, and the byte where it is read.
    #[error(transparent)]
    File(Box<dyn std::error::Error + Send + Sync>),
    /// A source failed.
    #[error("{what}: {source}")]
    Source {
        /// The file or interface.
        what: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An output failed.
    #[error("{what}: {source}")]
    Output {
        /// The file or stream.
        what: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The reader of our lines of text has gone (`| head`): no fault, but the end of the work. A capture file that is
    /// not taken is an [`Error::File`].
    #[error("{what}: the reader has gone (broken pipe)")]
    BrokenPipe {
        /// The stream.
        what: String,
    },
}

impl Error {
    /// The error of a failed output, with a broken pipe as a kind of its own.
    pub fn output(what: &str, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::BrokenPipe => Error::BrokenPipe { what: what.to_owned() },
            _ => Error::Output { what: what.to_owned(), source: Box::new(source) },
        }
    }

    /// A source's failure.
    pub fn source(what: &str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Source { what: what.to_owned(), source: source.into() }
    }
}
