//! Errors of meters and exporters.

use std::io;

/// Errors of meters and exporters. Each text says what happened, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it")]
pub enum Error {
    /// The flow table cannot have this size.
    #[error("{flows_max} flows at most: the table takes 1 to {max}; give another --flows-max")]
    FlowsMax {
        /// The requested size.
        flows_max: usize,
        /// The most.
        max: usize,
    },
    /// The system has too little memory for a table of this size.
    #[error("no memory for {flows_max} flows, which may take {bytes} bytes: give a smaller --flows-max")]
    Memory {
        /// The requested size.
        flows_max: usize,
        /// The most memory that it takes, in bytes.
        bytes: usize,
    },
    /// A timeout is out of its range.
    #[error("the {name} timeout of {seconds} s: it may be {least} to 10 years")]
    Timeout {
        /// The timeout's name.
        name: &'static str,
        /// The requested timeout, in seconds.
        seconds: f64,
        /// The least that it may be.
        least: &'static str,
    },
    /// A word that means no field of the key.
    #[error("unknown field `{word}` of the key; expected one of {known}")]
    KeyField {
        word: String,
        /// All fields.
        known: String,
    },
    /// A word that means no group of details.
    #[error("unknown detail group `{word}`; expected one of {known}")]
    Detail {
        word: String,
        /// All groups.
        known: String,
    },
    /// Details of a connection, where a flow may be of several.
    #[error(
        "a key without ports, protocol or hosts makes one flow of several connections, which have no {words} in common: leave these details out"
    )]
    MergedDetails {
        /// The groups of details.
        words: String,
    },
    /// The length of payload to keep is out of its range.
    #[error("{payload} bytes of payload a side: it may be 1 to {max}")]
    Payload {
        /// The requested length, in bytes.
        payload: u16,
        /// The most.
        max: u16,
    },
    /// A word that means no information element.
    #[error("`{word}` is not an information element that can be filled here; {hint}")]
    Element {
        word: String,
        /// A near name, or where the list is.
        hint: String,
    },
    /// A template that cannot be used.
    #[error("the template {what}")]
    Template {
        /// The fault of the template and its mend, as a clause.
        what: String,
    },
    /// The protocol's field is too small for the rate of sampling.
    #[error("one of {sampling} packets: NetFlow v5 has room for one of {max} at most; use --version 9 or 10")]
    Sampling {
        /// The sampling interval N (1 packet in N).
        sampling: u32,
        /// The most.
        max: u32,
    },
    /// NetFlow v5 cannot say that flows were sampled.
    #[error("NetFlow v5 has no place for sampled flows; use --version 9 or 10, or --scale")]
    FlowSampling,
    /// A collector's address that is none.
    #[error("`{text}`: {why}; collectors are udp://HOST:PORT, tcp://HOST:PORT, tls://HOST:PORT or file:NAME")]
    Collector {
        /// The text that was given.
        text: String,
        /// The fault of the text.
        why: String,
    },
    /// A collector cannot be reached, or its file not be made.
    #[error("cannot export to {collector}: {source}")]
    Open { collector: String, source: io::Error },
    /// A file of Parquet cannot be made whole.
    #[error("cannot write {file}: {source}; it is not there, and its flows are lost")]
    Parquet { file: String, source: io::Error },
    /// The library of a format refused rows.
    #[error("rows cannot be encoded as {format}: {why}")]
    Encode {
        format: &'static str,
        /// The reason.
        why: String,
    },
    /// A collector over TLS, and no authority that its certificate could be checked by.
    #[error(
        "TLS needs the authority that signed the collector's certificate: name its PEM file with --tls-ca"
    )]
    NoTlsAuthorities,
    /// A file for TLS that cannot be used.
    #[error("cannot use {file} for TLS: {why}")]
    TlsFile {
        file: String,
        /// The reason.
        why: String,
    },
    /// This build has no TLS.
    #[error("TLS is not in this build; `cargo build --release --features tls` makes one that has it")]
    NoTls,
    /// This build writes no Parquet.
    #[error("Parquet is not in this build; `cargo build --release --features parquet` makes one that has it")]
    NoParquet,
    /// A file of records cannot be written further.
    #[error("cannot write to {collector}: {source}; the messages before are there")]
    Write {
        /// The file.
        collector: String,
        source: io::Error,
    },
}
