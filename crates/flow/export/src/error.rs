//! Errors of exporters in batches.

use std::io;

/// Errors of exporters in batches. Each text says what happened, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it")]
pub enum Error {
    /// A name of a sensor that is not valid in an id.
    #[error("`{name}` is not a name of a sensor: 1 to 64 letters, digits, dots, hyphens and underscores are")]
    Sensor {
        /// The name that was given.
        name: String,
    },
    /// A destination that cannot be opened.
    #[error("{name}: {source}")]
    Open {
        /// The destination.
        name: String,
        source: io::Error,
    },
    /// There is no further thread.
    #[error("no thread for {name}: {source}")]
    Thread {
        /// The destination that it was to serve.
        name: String,
        source: io::Error,
    },
    /// Blocks of a spool that have another encoding.
    #[error(
        "the spool {folder} has flows as {there}, and they are to leave as {wanted}: have it emptied with format={there} first, or name another folder"
    )]
    SpoolEncoding {
        folder: String,
        /// The encoding of its blocks.
        there: &'static str,
        /// The encoding of this run.
        wanted: &'static str,
    },
    /// A text that is not a collector, where other kinds of destinations were possible.
    #[error("{0}; json:NAME and csv:NAME are lines of text, parquet:DIRECTORY is Parquet")]
    Collector(String),
    /// A text that is not a destination of blocks.
    #[error("`{text}` is not a destination: {why}")]
    Destination {
        /// The text, without a possible password.
        text: String,
        /// The fault, and its mend.
        why: String,
    },
    /// A text that is not a topic to read.
    #[error("`{text}` is not a topic: {why}")]
    Source {
        /// The text, without a possible password.
        text: String,
        /// The fault, and its mend.
        why: String,
    },
    /// A web server in a build without HTTP.
    #[error("this build exports no flows over HTTP: cargo build --release --features http")]
    NoHttp,
    /// A line in a file of properties that is none, or not the user's to set.
    #[error("{file}:{line}: {why}")]
    Properties {
        file: String,
        /// The line, from 1 on.
        line: usize,
        /// The fault, and its mend.
        why: String,
    },
    /// A topic that the brokers refuse, or properties that the client of Kafka refuses.
    #[error("{name}: {why}")]
    Topic {
        /// The destination.
        name: String,
        /// The fault, and its mend.
        why: String,
    },
    /// A table that is not there, that the user may not see, or that lacks columns.
    #[error("{name}: {why}")]
    Table {
        /// The destination.
        name: String,
        /// The fault, and its mend.
        why: String,
    },
    /// A topic in a build without Kafka.
    #[error("this build has no Kafka: cargo build --release --features kafka")]
    NoKafka,
}
