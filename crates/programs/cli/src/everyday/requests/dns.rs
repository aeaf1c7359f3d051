//! DNS over UDP and TCP, at port 53: queries and responses by addresses, ports, identifier and question.

use std::collections::{HashMap, VecDeque};

use serde_json::json;
use tapline_dissect::dns::{Message, flag};
use tapline_graph::Packets;
use tapline_packet::numbers::ip_protocol::{TCP, UDP};
use tapline_packet::numbers::port::DNS;
use tapline_stream::{Event, Limits, Reassembler, Stream};

use super::Protocol;
use super::report::{Endpoint, Outcome, Report, Transaction, latency};

/// Queries that wait for their response.
const PENDING_MAX: usize = 65_536;
/// Time that a query waits for its answer, in packet time.
const PATIENCE_NS: i64 = 10_000_000_000;
/// Bytes of messages over TCP that are not whole, of all connections.
const PARTIAL_MAX: usize = 16 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    client: Endpoint,
    server: Endpoint,
    id: u16,
    is_tcp: bool,
}

struct Query {
    time_ns: Option<i64>,
    number: u64,
    kind: Option<u16>,
    name: Vec<u8>,
}

/// Queries on their way.
#[derive(Default)]
struct Queries {
    pending: HashMap<Key, Query>,
    /// All of them and some that are answered, the oldest first.
    order: VecDeque<(i64, Key, u64)>,
    numbers: u64,
    repeated: u64,
    evicted: u64,
    scratch: Vec<u8>,
}

pub(super) struct Dns {
    queries: Queries,
    reassembler: Reassembler,
    streams: Streams,
}

/// Beginnings of messages over TCP.
#[derive(Default)]
struct Streams {
    /// By connection, and whether it is the client's stream; `None` once bytes are missing.
    partial: HashMap<(u64, bool), Option<Vec<u8>>>,
    bytes: usize,
    given_up: u64,
}

impl Dns {
    pub(super) fn new() -> Dns {
        Dns {
            queries: Queries::default(),
            reassembler: Reassembler::new(Limits { connections: 10_000, ..Limits::default() }),
            streams: Streams::default(),
        }
    }
}

impl Protocol for Dns {
    fn take(&mut self, packets: &Packets<'_>, report: &mut Report) {
        let Dns { queries, reassembler, streams } = self;
        let mut latest = i64::MIN;
        for index in packets.selection.iter() {
            let packet = packets.batch.packet(index);
            let headers = packets.headers(index);
            let Some(ports) = headers.ports(packet.data) else { continue };
            if ports.0 != DNS && ports.1 != DNS {
                continue;
            }
            let time_ns = (!packet.meta.is_untimed).then(|| packet.meta.timestamp.as_nanos());
            latest = latest.max(time_ns.unwrap_or(i64::MIN));
            match headers.protocol() {
                Some(UDP) => {
                    let Some((source, destination)) = headers.addresses(packet.data) else { continue };
                    let payload = headers.payload().and_then(|at| packet.data.get(at..headers.ip_end()));
                    let ends = ((source, ports.0), (destination, ports.1));
                    queries.message(time_ns, ends, false, payload.unwrap_or_default(), report);
                }
                Some(TCP) => {
                    let mut sink =
                        |stream: &Stream, event: Event<'_>| streams.take(stream, event, queries, report);
                    reassembler.push(&headers, packet, &mut sink);
                }
                _ => {}
            }
        }
        queries.expire(latest.saturating_sub(PATIENCE_NS), report);
    }

    fn tick(&mut self, now_ns: i64, report: &mut Report) {
        let Dns { queries, reassembler, streams } = self;
        reassembler.tick(now_ns, &mut |stream, event| streams.take(stream, event, queries, report));
        queries.expire(now_ns.saturating_sub(PATIENCE_NS), report);
    }

    fn finish(&mut self, report: &mut Report) -> Vec<(&'static str, u64)> {
        let Dns { queries, reassembler, streams } = self;
        reassembler.finish(&mut |stream, event| streams.take(stream, event, queries, report));
        queries.expire(i64::MAX, report);
        vec![
            ("queries were repeated", queries.repeated),
            ("queries found the table full", queries.evicted),
            ("streams with missing bytes were given up", streams.given_up),
        ]
    }
}

impl Streams {
    fn take(&mut self, stream: &Stream, event: Event<'_>, queries: &mut Queries, report: &mut Report) {
        let key = (stream.connection, stream.is_from_client);
        match event {
            Event::Segment(piece) if piece.len > 0 => self.bytes(key, stream, piece.bytes(), queries, report),
            Event::Gap { .. } => self.give_up(key),
            Event::Forgotten => {
                for is_from_client in [true, false] {
                    let partial = self.partial.remove(&(stream.connection, is_from_client)).flatten();
                    self.bytes -= partial.map_or(0, |partial| partial.len());
                }
            }
            Event::Segment(_) | Event::End(_) => {}
        }
    }

    fn bytes(
        &mut self,
        key: (u64, bool),
        stream: &Stream,
        bytes: &[u8],
        queries: &mut Queries,
        report: &mut Report,
    ) {
        let is_full = self.bytes + bytes.len() > PARTIAL_MAX;
        let Some(partial) = self.partial.entry(key).or_insert_with(|| Some(Vec::new())) else { return };
        if is_full {
            self.give_up(key);
            return;
        }
        let before = partial.len();
        partial.extend_from_slice(bytes);
        let mut at = 0;
        while let Some((&[high, low], rest)) = partial[at..].split_first_chunk::<2>() {
            let len = usize::from(u16::from_be_bytes([high, low]));
            let Some(message) = rest.get(..len) else { break };
            let tuple = &stream.tuple;
            let ends = ((tuple.src, tuple.src_port), (tuple.dst, tuple.dst_port));
            queries.message(stream.time_ns, ends, true, message, report);
            at += 2 + len;
        }
        partial.drain(..at);
        self.bytes = self.bytes + partial.len() - before;
    }

    fn give_up(&mut self, key: (u64, bool)) {
        if let Some(partial) = self.partial.insert(key, None).unwrap_or(Some(Vec::new())) {
            self.bytes -= partial.len();
            self.given_up += 1;
        }
    }
}

impl Queries {
    /// Takes a message with its sender and receiver.
    fn message(
        &mut self,
        time_ns: Option<i64>,
        (from, to): (Endpoint, Endpoint),
        is_tcp: bool,
        bytes: &[u8],
        report: &mut Report,
    ) {
        let mut name = std::mem::take(&mut self.scratch);
        if let Some(message) = Message::parse(bytes, &mut name) {
            let id = message.header.id;
            if message.header.has(flag::RESPONSE) {
                let key = Key { client: to, server: from, id, is_tcp };
                self.response(time_ns, key, &message, &name, report);
            } else {
                let key = Key { client: from, server: to, id, is_tcp };
                self.query(time_ns, key, message.question_type, &name, report);
            }
        }
        self.scratch = name;
    }

    fn query(&mut self, time_ns: Option<i64>, key: Key, kind: Option<u16>, name: &[u8], report: &mut Report) {
        if let Some(known) = self.pending.get(&key) {
            if known.kind == kind && known.name == name {
                self.repeated += 1;
                return;
            }
            self.give_up(&key, report);
        }
        if self.pending.len() >= PENDING_MAX {
            self.evicted += 1;
            self.drop_oldest(report);
        }
        self.numbers += 1;
        // Without a time a query is as old as the one before it.
        let before = self.order.back().map_or(i64::MIN, |(time_ns, ..)| *time_ns);
        self.order.push_back((time_ns.unwrap_or(before), key, self.numbers));
        self.pending.insert(key, Query { time_ns, number: self.numbers, kind, name: name.to_vec() });
    }

    fn response(
        &mut self,
        time_ns: Option<i64>,
        key: Key,
        message: &Message,
        name: &[u8],
        report: &mut Report,
    ) {
        // A server may leave the question out.
        let is_its = |query: &Query| {
            message.question_type.is_none() || query.kind == message.question_type && same(&query.name, name)
        };
        let query = if self.pending.get(&key).is_some_and(is_its) { self.pending.remove(&key) } else { None };
        let code = message.header.response_code();
        let outcome = match (&query, code) {
            (None, _) => Outcome::OnlyAnswer,
            (Some(_), 0) => Outcome::Answered,
            (Some(_), _) => Outcome::Failed,
        };
        let (kind, name) = match &query {
            Some(query) => (query.kind, query.name.as_slice()),
            None => (message.question_type, name),
        };
        let answers = message.header.answers;
        let cut = if message.header.has(flag::TRUNCATED) { ", cut" } else { "" };
        let status = match answers {
            1 => format!("{}, 1 record{cut}", code_name(code)),
            _ if code == 0 => format!("{}, {answers} records{cut}", code_name(code)),
            _ => format!("{}{cut}", code_name(code)),
        };
        let latency_ns = query.as_ref().and_then(|query| latency(query.time_ns, time_ns));
        let details = json!({
            "id": key.id, "type": kind.map(type_name), "query": text(name), "code": code_name(code),
            "answers": answers, "truncated": message.header.has(flag::TRUNCATED), "transport": transport(key),
        });
        let name = question(kind, name);
        let time_ns = query.map_or(time_ns, |query| query.time_ns);
        let status = if outcome == Outcome::Failed { code_name(code) } else { status };
        report.add(Transaction {
            time_ns,
            client: key.client,
            server: key.server,
            name,
            status,
            latency_ns,
            outcome,
            details,
        });
    }

    /// Gives up queries from before a time.
    fn expire(&mut self, before_ns: i64, report: &mut Report) {
        while self.order.front().is_some_and(|(time_ns, ..)| *time_ns < before_ns) {
            self.drop_oldest(report);
        }
        // Queries that were answered leave their entries behind.
        if self.order.len() > 2 * PENDING_MAX {
            let pending = &self.pending;
            self.order
                .retain(|(_, key, number)| pending.get(key).is_some_and(|query| query.number == *number));
        }
    }

    fn drop_oldest(&mut self, report: &mut Report) {
        let Some((_, key, number)) = self.order.pop_front() else { return };
        if self.pending.get(&key).is_some_and(|query| query.number == number) {
            self.give_up(&key, report);
        }
    }

    fn give_up(&mut self, key: &Key, report: &mut Report) {
        let Some(Query { time_ns, kind, name, .. }) = self.pending.remove(key) else { return };
        let details = json!({
            "id": key.id, "type": kind.map(type_name), "query": text(&name), "code": null, "answers": null,
            "truncated": null, "transport": transport(*key),
        });
        report.add(Transaction {
            time_ns,
            client: key.client,
            server: key.server,
            name: question(kind, &name),
            status: "no answer".to_owned(),
            latency_ns: None,
            outcome: Outcome::Unanswered,
            details,
        });
    }
}

/// Whether two names are the same; servers may change the case of letters.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.eq_ignore_ascii_case(other)
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn question(kind: Option<u16>, name: &[u8]) -> String {
    kind.map_or_else(String::new, |kind| format!("{} {}", type_name(kind), text(name)))
}

fn transport(key: Key) -> &'static str {
    if key.is_tcp { "tcp" } else { "udp" }
}

/// Names of types of records (IANA, DNS Parameters).
fn type_name(kind: u16) -> String {
    let name = match kind {
        1 => "A",
        2 => "NS",
        5 => "CNAME",
        6 => "SOA",
        10 => "NULL",
        12 => "PTR",
        13 => "HINFO",
        15 => "MX",
        16 => "TXT",
        28 => "AAAA",
        33 => "SRV",
        35 => "NAPTR",
        39 => "DNAME",
        41 => "OPT",
        43 => "DS",
        46 => "RRSIG",
        47 => "NSEC",
        48 => "DNSKEY",
        50 => "NSEC3",
        52 => "TLSA",
        64 => "SVCB",
        65 => "HTTPS",
        249 => "TKEY",
        250 => "TSIG",
        251 => "IXFR",
        252 => "AXFR",
        255 => "ANY",
        257 => "CAA",
        _ => return format!("TYPE{kind}"),
    };
    name.to_owned()
}

/// Names of response codes (IANA, DNS Parameters).
fn code_name(code: u8) -> String {
    let names = [
        "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET", "NXRRSET",
        "NOTAUTH", "NOTZONE",
    ];
    names.get(usize::from(code)).map_or_else(|| format!("RCODE{code}"), |name| (*name).to_owned())
}
