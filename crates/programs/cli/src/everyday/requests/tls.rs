//! TLS over TCP at every port: the hellos of client and server.

use std::collections::HashMap;

use serde_json::json;
use tapline_dissect::Detection;
use tapline_dissect::tls::{Hello, Record, Ssl2ClientHello};
use tapline_stream::{EndCause, Event, Stream};

use super::StreamProtocol;
use super::report::{Endpoint, Outcome, Report, Transaction, latency};

/// Bytes of a stream that are kept until its hello is whole.
const STREAM_MAX: usize = 32 << 10;
/// The hellos of all streams.
const MEMORY_MAX: usize = 64 << 20;
/// Content type of records that carry alerts.
const ALERT: u8 = 21;

/// The connections of TLS.
#[derive(Default)]
pub(super) struct Handshakes {
    known: HashMap<u64, Handshake>,
    memory: usize,
    given_up: u64,
    scratch: Vec<u8>,
}

/// The beginning of a connection.
#[derive(Default)]
struct Handshake {
    /// The server's stream and the client's, as far as their hellos are not whole.
    streams: [Vec<u8>; 2],
    client: Option<ClientSide>,
    /// Printed already, or another protocol.
    is_over: bool,
}

struct ClientSide {
    time_ns: Option<i64>,
    /// The stream that it sends. Without the beginning of the connection this may be the other one.
    is_from_client: bool,
    ends: (Endpoint, Endpoint),
    name: String,
    version: u16,
    protocols: Vec<String>,
    ja4: Option<String>,
}

impl ClientSide {
    /// A hello in the form of SSL 2.0 has nothing but a version.
    fn of_ssl2(stream: &Stream, hello: &Ssl2ClientHello) -> ClientSide {
        let tuple = &stream.tuple;
        ClientSide {
            time_ns: stream.time_ns,
            is_from_client: stream.is_from_client,
            ends: ((tuple.src, tuple.src_port), (tuple.dst, tuple.dst_port)),
            name: String::new(),
            version: hello.version,
            protocols: Vec::new(),
            ja4: None,
        }
    }
}

impl StreamProtocol for Handshakes {
    fn take(&mut self, stream: &Stream, event: Event<'_>, report: &mut Report) {
        if let Event::Forgotten = event {
            if let Some(mut handshake) = self.known.remove(&stream.connection) {
                self.memory -= handshake.memory();
                handshake.end("no answer", report);
            }
            return;
        }
        let Handshakes { known, memory, given_up, scratch } = self;
        let handshake = match event {
            Event::Segment(piece) if piece.len > 0 => known.entry(stream.connection).or_default(),
            _ => match known.get_mut(&stream.connection) {
                Some(handshake) => handshake,
                None => return,
            },
        };
        if handshake.is_over {
            return;
        }
        let others = *memory - handshake.memory();
        match event {
            Event::Segment(piece) if piece.len > 0 && others + STREAM_MAX > MEMORY_MAX => {
                *given_up += 1;
                handshake.end("unknown", report);
            }
            Event::Segment(piece) => handshake.bytes(stream, piece.bytes(), scratch, report),
            Event::End(EndCause::Reset) => handshake.end("reset", report),
            Event::End(_) if handshake.is_of_server(stream) => handshake.end("closed", report),
            Event::Gap { .. } => handshake.end("unknown: bytes are missing", report),
            Event::End(_) | Event::Forgotten => {}
        }
        *memory = others + handshake.memory();
    }

    fn notes(&self) -> Vec<(&'static str, u64)> {
        vec![("connections found no memory", self.given_up)]
    }
}

impl Handshake {
    fn memory(&self) -> usize {
        self.streams.iter().map(Vec::capacity).sum()
    }

    fn is_of_server(&self, stream: &Stream) -> bool {
        self.client.as_ref().is_some_and(|client| client.is_from_client != stream.is_from_client)
    }

    /// Takes the next bytes of a stream.
    fn bytes(&mut self, stream: &Stream, bytes: &[u8], scratch: &mut Vec<u8>, report: &mut Report) {
        let is_done = |client: &ClientSide| client.is_from_client == stream.is_from_client;
        if bytes.is_empty() || self.client.as_ref().is_some_and(is_done) {
            return;
        }
        let kept = &mut self.streams[usize::from(stream.is_from_client)];
        kept.extend_from_slice(&bytes[..bytes.len().min(STREAM_MAX - kept.len())]);
        let is_full = kept.len() == STREAM_MAX;
        let kept = std::mem::take(kept);
        match Hello::from_stream(&kept, is_full, scratch) {
            Detection::Match(Hello::Client(hello)) => {
                let tuple = &stream.tuple;
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                self.client = Some(ClientSide {
                    time_ns: stream.time_ns,
                    is_from_client: stream.is_from_client,
                    ends: ((tuple.src, tuple.src_port), (tuple.dst, tuple.dst_port)),
                    name: text(hello.server_name()),
                    version: hello.version(),
                    protocols: hello.protocols().take(16).map(text).collect(),
                    ja4: hello.ja4(),
                });
            }
            Detection::Match(Hello::Server(hello)) => {
                let cipher = hello.cipher_suite.map(|number| format!("0x{number:04x}"));
                let chosen = hello.protocols().next().map(|name| String::from_utf8_lossy(name).into_owned());
                let mut status = version_name(hello.version());
                status.extend(cipher.iter().map(|cipher| format!(" {cipher}")));
                let details = json!({
                    "version": version_name(hello.version()), "cipher_suite": cipher, "protocol": chosen,
                });
                self.answer(stream, &status, Outcome::Answered, &details, report);
            }
            Detection::NeedMore => self.streams[usize::from(stream.is_from_client)] = kept,
            Detection::NoMatch if self.client.is_none() => match Ssl2ClientHello::from_stream(&kept) {
                Detection::Match(hello) => self.client = Some(ClientSide::of_ssl2(stream, &hello)),
                Detection::NeedMore => self.streams[usize::from(stream.is_from_client)] = kept,
                Detection::NoMatch => self.is_over = true,
            },
            Detection::NoMatch => {
                let alert = Record::parse(&kept).filter(|record| record.content_type == ALERT);
                match alert.map(|record| record.data) {
                    Some([_, number]) => {
                        let status = format!("alert {}", alert_name(*number));
                        self.answer(stream, &status, Outcome::Failed, &json!({"alert": number}), report);
                    }
                    _ => self.end("answer is not TLS", report),
                }
            }
        }
        if self.is_over {
            self.streams = Default::default();
        }
    }

    /// The server's answer came.
    fn answer(
        &mut self,
        stream: &Stream,
        status: &str,
        outcome: Outcome,
        details: &serde_json::Value,
        report: &mut Report,
    ) {
        self.is_over = true;
        let tuple = &stream.tuple;
        let seen = self.client.take();
        let ends = seen
            .as_ref()
            .map_or(((tuple.dst, tuple.dst_port), (tuple.src, tuple.src_port)), |client| client.ends);
        let latency_ns = seen.as_ref().and_then(|client| latency(client.time_ns, stream.time_ns));
        report.add(Transaction {
            time_ns: seen.as_ref().map_or(stream.time_ns, |client| client.time_ns),
            client: ends.0,
            server: ends.1,
            name: seen.as_ref().map(|client| client.name.clone()).unwrap_or_default(),
            status: status.to_owned(),
            latency_ns,
            outcome: if seen.is_some() { outcome } else { Outcome::OnlyAnswer },
            details: with_client(details.clone(), seen.as_ref()),
        });
    }

    /// No hello of the server comes.
    fn end(&mut self, status: &str, report: &mut Report) {
        self.is_over = true;
        self.streams = Default::default();
        let Some(client) = self.client.take() else { return };
        report.add(Transaction {
            time_ns: client.time_ns,
            client: client.ends.0,
            server: client.ends.1,
            name: client.name.clone(),
            status: status.to_owned(),
            latency_ns: None,
            outcome: Outcome::Unanswered,
            details: with_client(json!({}), Some(&client)),
        });
    }
}

fn with_client(mut details: serde_json::Value, client: Option<&ClientSide>) -> serde_json::Value {
    details["client_version"] = client.map(|client| version_name(client.version)).into();
    details["client_protocols"] = client.map(|client| client.protocols.clone()).into();
    details["ja4"] = client.and_then(|client| client.ja4.clone()).into();
    details
}

fn version_name(version: u16) -> String {
    match version {
        0x0002 => "SSL 2.0".to_owned(),
        0x0300 => "SSL 3.0".to_owned(),
        0x0301 => "TLS 1.0".to_owned(),
        0x0302 => "TLS 1.1".to_owned(),
        0x0303 => "TLS 1.2".to_owned(),
        0x0304 => "TLS 1.3".to_owned(),
        0x7f00..=0x7fff => format!("TLS 1.3 draft {}", version & 0xff),
        _ => format!("version 0x{version:04x}"),
    }
}

/// Names of alerts (IANA, TLS Alerts).
fn alert_name(number: u8) -> String {
    let name = match number {
        0 => "close_notify",
        10 => "unexpected_message",
        40 => "handshake_failure",
        42 => "bad_certificate",
        47 => "illegal_parameter",
        49 => "access_denied",
        50 => "decode_error",
        70 => "protocol_version",
        71 => "insufficient_security",
        80 => "internal_error",
        86 => "inappropriate_fallback",
        109 => "missing_extension",
        112 => "unrecognized_name",
        116 => "certificate_required",
        120 => "no_application_protocol",
        _ => return number.to_string(),
    };
    name.to_owned()
}
