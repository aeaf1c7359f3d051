//! What can go wrong between packets and records.

use std::io;

/// What can go wrong between packets and records. Each text says what happened, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The table cannot have this size.
    #[error("{flows_max} flows at most: the table takes 1 to {max}; give another --flows-max")]
    FlowsMax {
        /// What was asked for.
        flows_max: usize,
        /// The most.
        max: usize,
    },
    /// The system has no room for a table of this size.
    #[error("no memory for {flows_max} flows, which may take {bytes} bytes: give a smaller --flows-max")]
    Memory {
        /// What was asked for.
        flows_max: usize,
        /// What it may take.
        bytes: usize,
    },
    /// A timeout is out of its range.
    #[error("the {name} timeout of {seconds} s: it may be {least} to 10 years")]
    Timeout {
        /// Which.
        name: &'static str,
        /// What was asked for.
        seconds: f64,
        /// The least that it may be.
        least: &'static str,
    },
    /// A word that means no field of the key.
    #[error("`{word}` is no field of the key; there are {known}")]
    KeyField {
        /// The word.
        word: String,
        /// All fields.
        known: String,
    },
    /// A word that means no group of details.
    #[error("`{word}` is nothing that flows can be asked for besides; there are {known}")]
    Detail {
        /// The word.
        word: String,
        /// All groups.
        known: String,
    },
    /// So much payload is not kept.
    #[error("{payload} bytes of payload a side: it may be 1 to {max}")]
    Payload {
        /// What was asked for.
        payload: u16,
        /// The most.
        max: u16,
    },
    /// A word that means no information element.
    #[error("`{word}` is no information element that can be filled here; {hint}")]
    Element {
        /// The word.
        word: String,
        /// A near name, or where the list is.
        hint: String,
    },
    /// A template that cannot be.
    #[error("the template {what}")]
    Template {
        /// What is wrong with it, as a clause, with what to do.
        what: String,
    },
    /// The protocol has no room for the rate of sampling.
    #[error("one of {sampling} packets: NetFlow v5 has room for one of {max} at most; use --version 9 or 10")]
    Sampling {
        /// One of so many.
        sampling: u32,
        /// The most.
        max: u32,
    },
    /// A collector's address that is none.
    #[error("`{text}`: {why}; collectors are udp://HOST:PORT, tcp://HOST:PORT or file:NAME")]
    Collector {
        /// What was given.
        text: String,
        /// Why it is none.
        why: String,
    },
    /// A collector cannot be reached, or its file not be made.
    #[error("cannot export to {collector}: {source}")]
    Open {
        /// The collector.
        collector: String,
        /// Why.
        source: io::Error,
    },
    /// A file of Parquet cannot be made whole.
    #[error("cannot write {file}: {source}; it is not there, and its flows are lost")]
    Parquet {
        /// The file.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// This build writes no Parquet.
    #[error("Parquet is not in this build; `cargo build --release --features parquet` makes one that has it")]
    NoParquet,
    /// A file of records cannot be written further.
    #[error("cannot write to {collector}: {source}; the messages before are there")]
    Write {
        /// The file.
        collector: String,
        /// Why.
        source: io::Error,
    },
}
