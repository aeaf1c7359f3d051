//! Lines of results on standard output. They are written when there are many, and when the packets pause.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::net::IpAddr;

use anyhow::Result;
use serde_json::Value;
use tapline_packet::Timestamp;
use tapline_source::Error;
pub(super) use tapline_store::moments::local;

use crate::output::{self, say};

/// The buffer is written out beyond this size.
const BUFFER_LEN: usize = 64 * 1024;

pub(super) struct ResultLines {
    stream: File,
    /// Whole lines.
    buffer: String,
    is_eager: bool,
}

impl ResultLines {
    /// Lines on standard output.
    pub(super) fn open() -> Result<ResultLines> {
        let is_eager = io::stdout().is_terminal();
        Ok(ResultLines { stream: output::standard()?, buffer: String::new(), is_eager })
    }

    /// Adds text, which ends in a line end.
    pub(super) fn add(&mut self, text: &str) {
        self.buffer += text;
    }

    /// Writes what is there, if there is much of it or somebody watches.
    pub(super) fn offer(&mut self) -> Result<(), Error> {
        if self.is_eager || self.buffer.len() >= BUFFER_LEN { self.flush() } else { Ok(()) }
    }

    /// Writes what is there.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        let written = self.stream.write_all(self.buffer.as_bytes());
        self.buffer.clear();
        written.map_err(|error| Error::output("standard output", error))
    }

    /// Writes the rest, and the summary: an object behind the results, or a line on standard error.
    pub(super) fn finish(&mut self, json: bool, object: &Value, text: &str) -> Result<(), Error> {
        if json {
            self.add(&format!("{object}\n"));
        }
        let written = self.flush();
        if !json {
            say(text);
        }
        written
    }
}

/// UTC as RFC 3339 has it, in nanoseconds.
pub(super) fn universal(time: Timestamp) -> String {
    let time = jiff::Timestamp::from_nanosecond(time.as_nanos().into()).unwrap_or(jiff::Timestamp::MAX);
    time.strftime("%Y-%m-%dT%H:%M:%S.%9fZ").to_string()
}

/// UTC of nanoseconds since 1970; `None` for a packet without a time.
pub(super) fn universal_ns(time_ns: Option<i64>) -> Option<String> {
    time_ns.map(|time_ns| universal(Timestamp::from_nanos(time_ns)))
}

/// Local date and time of nanoseconds since 1970.
pub(super) fn local_ns(time_ns: Option<i64>, format: &str) -> String {
    time_ns.map_or_else(|| "no time".to_owned(), |time_ns| local(Timestamp::from_nanos(time_ns), format))
}

/// An address and a port.
pub(super) type Endpoint = (IpAddr, u16);

/// An address with a port, as text.
pub(super) fn endpoint((address, port): Endpoint) -> String {
    if address.is_ipv6() { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

/// Bytes as text, with a point for each byte that is not printable ASCII.
pub(super) fn printable(bytes: &[u8]) -> String {
    let letter = |byte: &u8| if matches!(byte, b' '..=b'~') { char::from(*byte) } else { '.' };
    bytes.iter().map(letter).collect()
}
