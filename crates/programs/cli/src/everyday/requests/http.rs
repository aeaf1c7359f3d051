//! HTTP/1 at every port: requests and responses of a connection in their order.

use std::collections::{HashMap, VecDeque};

use serde_json::json;
use tapline_stream::http::{BodyEvent, Conversation, Head, Request, StreamBytes};
use tapline_stream::{EndCause, Event, Stream};

use super::StreamProtocol;
use super::report::{Endpoint, Outcome, Report, Transaction, latency};

/// Requests of a connection that wait for their responses.
const WAITING_MAX: usize = 256;
/// Bytes of memory of heads of all connections.
const MEMORY_MAX: usize = 64 << 20;

/// The connections of HTTP.
#[derive(Default)]
pub(super) struct Talks {
    known: HashMap<u64, Talk>,
    memory: usize,
    given_up: u64,
    unparsed: u64,
}

struct Talk {
    http: Conversation,
    /// Requests with their times.
    waiting: VecDeque<(Request, Option<i64>)>,
    /// Bytes of memory of both.
    memory: usize,
    /// The end that sends requests, and the other, once a message was seen.
    ends: Option<(Endpoint, Endpoint)>,
}

impl Talk {
    fn new() -> Talk {
        Talk { http: Conversation::with_heads(), waiting: VecDeque::new(), memory: 0, ends: None }
    }

    fn memory(&self) -> usize {
        self.http.memory() + self.waiting.iter().map(|(request, _)| memory_of(request)).sum::<usize>()
    }
}

fn memory_of(request: &Request) -> usize {
    size_of::<Request>() + request.method.len() + request.target.len() + request.host.len()
}

impl StreamProtocol for Talks {
    fn take(&mut self, stream: &Stream, event: Event<'_>, report: &mut Report) {
        let talk = match event {
            Event::Segment(piece) if piece.len == 0 => return,
            Event::Segment(_) => self.known.entry(stream.connection).or_insert_with(Talk::new),
            Event::Forgotten => {
                if let Some(mut talk) = self.known.remove(&stream.connection) {
                    self.memory -= talk.memory;
                    talk.give_up(talk.waiting.len(), report);
                }
                return;
            }
            Event::Gap { .. } | Event::End(_) => match self.known.get_mut(&stream.connection) {
                Some(talk) => talk,
                None => return,
            },
        };
        talk.event(stream, event, report);
        self.unparsed += talk.http.take_unparsed().messages;
        let others = self.memory - talk.memory;
        if others + talk.memory() > MEMORY_MAX {
            talk.http.give_up(stream.is_from_client, &mut |_| {});
            talk.give_up(talk.waiting.len(), report);
            self.given_up += 1;
        }
        talk.memory = talk.memory();
        self.memory = others + talk.memory;
    }

    fn notes(&self) -> Vec<(&'static str, u64)> {
        vec![("messages could not be parsed", self.unparsed), ("connections found no memory", self.given_up)]
    }
}

impl Talk {
    fn event(&mut self, stream: &Stream, event: Event<'_>, report: &mut Report) {
        let Talk { http, waiting, ends, .. } = self;
        let is_client = stream.is_from_client;
        let mut sink = |event: BodyEvent<'_>| {
            if let BodyEvent::Message { head, .. } = event {
                message(stream, head, waiting, ends, report);
            }
        };
        match event {
            Event::Segment(piece) => {
                let (offset, acknowledged) = (stream.offset, piece.acknowledged);
                http.data(is_client, StreamBytes { bytes: piece.bytes(), offset, acknowledged }, &mut sink);
            }
            Event::Gap { len, .. } => http.gap(is_client, len, &mut sink),
            Event::End(cause) => http.end(is_client, cause == EndCause::Finished, &mut sink),
            Event::Forgotten => {}
        }
        let surplus = self.waiting.len().saturating_sub(WAITING_MAX);
        self.give_up(surplus, report);
    }

    /// The first requests get no answer.
    fn give_up(&mut self, count: usize, report: &mut Report) {
        let Some((client, server)) = self.ends else { return };
        for (request, time_ns) in self.waiting.drain(..count) {
            report.add(Transaction {
                time_ns,
                client,
                server,
                name: page(&request),
                status: "no answer".to_owned(),
                latency_ns: None,
                outcome: Outcome::Unanswered,
                details: details(Some(&request), None),
            });
        }
    }
}

/// Takes the head of a message.
fn message(
    stream: &Stream,
    head: &Head,
    waiting: &mut VecDeque<(Request, Option<i64>)>,
    ends: &mut Option<(Endpoint, Endpoint)>,
    report: &mut Report,
) {
    let tuple = &stream.tuple;
    let (from, to) = ((tuple.src, tuple.src_port), (tuple.dst, tuple.dst_port));
    let Some(status) = head.status else {
        *ends = Some((from, to));
        waiting.extend(head.request.clone().map(|request| (request, stream.time_ns)));
        return;
    };
    // 100 and its like announce the answer.
    if (100..200).contains(&status) && status != 101 {
        return;
    }
    let (client, server) = *ends.get_or_insert((to, from));
    let at = head.request.as_ref().and_then(|request| waiting.iter().position(|(other, _)| other == request));
    let found = at.and_then(|at| waiting.remove(at));
    let outcome = match (&found, status) {
        (None, _) => Outcome::OnlyAnswer,
        (_, 400..) => Outcome::Failed,
        _ => Outcome::Answered,
    };
    let (request, time_ns) =
        found.map_or((None, stream.time_ns), |(request, time_ns)| (Some(request), time_ns));
    report.add(Transaction {
        time_ns,
        client,
        server,
        name: request.as_ref().map(page).unwrap_or_default(),
        status: status.to_string(),
        latency_ns: request.as_ref().and_then(|_| latency(time_ns, stream.time_ns)),
        outcome,
        details: details(request.as_ref(), Some(head)),
    });
}

fn page(Request { method, target, host, .. }: &Request) -> String {
    match target.starts_with('/') {
        true => format!("{method} {host}{target}"),
        false => format!("{method} {target}"),
    }
}

fn details(request: Option<&Request>, head: Option<&Head>) -> serde_json::Value {
    json!({
        "method": request.map(|request| &request.method),
        "host": request.map(|request| &request.host),
        "target": request.map(|request| &request.target),
        "code": head.and_then(|head| head.status),
        "content_type": head.map(|head| &head.content_type),
        "content_encoding": head.map(|head| &head.content_encoding),
    })
}
