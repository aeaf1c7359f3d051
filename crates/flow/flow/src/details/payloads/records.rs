//! Records of payloads: DNS, TLS, HTTP.

use std::fmt::Write as _;

use super::tag;
use super::text::escaped;
use crate::Details;

/// The first question of a flow, and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dns {
    /// The requested name, or the answered one if the question was not seen.
    pub name: Box<str>,
    /// The type of record that was asked for (IANA, DNS Parameters).
    pub kind: u16,
    /// The answer, if it was seen.
    pub answer: Option<DnsAnswer>,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DnsAnswer {
    /// RCODE.
    pub code: u8,
    /// Records in its answer section.
    pub count: u16,
    /// Nanoseconds after the question; `None` if that was not seen.
    pub after: Option<u64>,
}

/// Fields of the TLS hellos.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The name of the server that the client asked for; empty without.
    pub server_name: Box<str>,
    /// The protocols that the client offers (ALPN), separated by commas.
    pub alpn: Box<str>,
    /// JA3 of the client: MD5 in hexadecimal; empty if its hello was not seen as a whole.
    pub ja3: Box<str>,
    /// JA4 of the client.
    pub ja4: Box<str>,
    /// The version that the server chose, as TLS has it: 0x0304 is 1.3. `None` if its hello was not seen.
    pub version: Option<u16>,
    /// The cipher suite that it chose.
    pub cipher: Option<u16>,
}

/// The first request of a flow, and the status of its first answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Http {
    /// Method of the request; empty if no request was seen.
    pub method: Box<str>,
    /// The host that it names.
    pub host: Box<str>,
    /// Path and query.
    pub target: Box<str>,
    /// The user agent that it names.
    pub user_agent: Box<str>,
    /// The status of the answer.
    pub status: Option<u16>,
}

impl Details {
    pub(super) fn note(&mut self, tag: u8, bytes: &[u8]) {
        let Details { dns, tls, http, .. } = self;
        match (tag, dns, tls, http) {
            (tag::NAME, Some(dns), ..) => dns.name = escaped(bytes),
            (tag::NAME, _, Some(tls), _) => tls.server_name = escaped(bytes),
            (tag::ALPN, _, Some(tls), _) => tls.alpn = escaped(bytes),
            (tag::PRINTS, _, Some(tls), _) => {
                let (ja3, ja4) = bytes.split_at(bytes.len().min(16));
                let ja3 = ja3.iter().fold(String::new(), |mut out, byte| {
                    let _ = write!(out, "{byte:02x}");
                    out
                });
                (tls.ja3, tls.ja4) = (ja3.into(), escaped(ja4));
            }
            (tag::METHOD, .., Some(http)) => http.method = escaped(bytes),
            (tag::HOST, .., Some(http)) => http.host = escaped(bytes),
            (tag::TARGET, .., Some(http)) => http.target = escaped(bytes),
            (tag::USER_AGENT, .., Some(http)) => http.user_agent = escaped(bytes),
            _ => {}
        }
    }
}
