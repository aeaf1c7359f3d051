//! Requests with their answers as lines, and a summary at the end.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde_json::{Value, json};
use tapline_graph::grouped;

pub(super) use super::super::lines::Endpoint;
use super::super::lines::{ResultLines, endpoint, local_ns, universal_ns};
use crate::escape::plain;

/// Slow answers that are shown at the end.
const SLOWEST: usize = 5;
/// Kinds of failures that are counted one by one.
const FAILURES_MAX: usize = 256;
/// Letters of a name that are shown to people.
const NAME_MAX: usize = 120;

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Answered,
    /// An answer that says that the request failed.
    Failed,
    /// No answer was seen.
    Unanswered,
    /// An answer whose request was not seen.
    OnlyAnswer,
}

/// A request and its answer.
pub(super) struct Transaction {
    /// The time of the request; that of the answer if the request was not seen.
    pub(super) time_ns: Option<i64>,
    pub(super) client: Endpoint,
    pub(super) server: Endpoint,
    /// Name for people: of a host, a page.
    pub(super) name: String,
    pub(super) status: String,
    pub(super) latency_ns: Option<i64>,
    pub(super) outcome: Outcome,
    /// Further members of the object.
    pub(super) details: Value,
}

/// The time from a request to its answer; unknown if either has none.
pub(super) fn latency(request_ns: Option<i64>, answer_ns: Option<i64>) -> Option<i64> {
    Some(answer_ns?.saturating_sub(request_ns?))
}

/// Prints transactions, and sums them up.
pub(super) struct Report {
    lines: ResultLines,
    json: bool,
    counts: [u64; 4],
    failures: HashMap<String, u64>,
    other_failures: u64,
    /// The slowest with their lines, the slowest first.
    slowest: Vec<(i64, Value, String)>,
}

impl Report {
    pub(super) fn new(lines: ResultLines, json: bool) -> Report {
        Report {
            lines,
            json,
            counts: [0; 4],
            failures: HashMap::new(),
            other_failures: 0,
            slowest: Vec::new(),
        }
    }

    pub(super) fn lines(&mut self) -> &mut ResultLines {
        &mut self.lines
    }

    /// Prints a transaction.
    pub(super) fn add(&mut self, transaction: Transaction) {
        self.counts[transaction.outcome as usize] += 1;
        if matches!(transaction.outcome, Outcome::Failed | Outcome::Unanswered) {
            self.count_failure(&transaction.status);
        }
        let (text, object) = if self.json {
            (String::new(), to_json(&transaction))
        } else {
            (text(&transaction), Value::Null)
        };
        if self.json {
            self.lines.add(&format!("{object}\n"));
        } else {
            self.lines.add(&text);
        }
        let latency = transaction.latency_ns.unwrap_or(-1);
        if latency >= 0
            && (self.slowest.len() < SLOWEST || self.slowest.last().is_some_and(|last| latency > last.0))
        {
            self.slowest.push((latency, object, text));
            self.slowest.sort_by_key(|(latency, ..)| Reverse(*latency));
            self.slowest.truncate(SLOWEST);
        }
    }

    fn count_failure(&mut self, status: &str) {
        if let Some(count) = self.failures.get_mut(status) {
            *count += 1;
        } else if self.failures.len() == FAILURES_MAX {
            self.other_failures += 1;
        } else {
            self.failures.insert(status.to_owned(), 1);
        }
    }

    /// Prints the sums. `notes` are counts of unknown values, which are shown unless they are 0.
    pub(super) fn finish(&mut self, notes: &[(&str, u64)]) {
        let [answered, failed, unanswered, only_answers] = self.counts;
        let mut failures: Vec<(String, u64)> = self.failures.drain().collect();
        failures.sort_by(|(one, a), (other, b)| (Reverse(a), one).cmp(&(Reverse(b), other)));
        if self.other_failures > 0 {
            failures.push(("others".to_owned(), self.other_failures));
        }
        if self.json {
            let failures = failures.into_iter().map(|(status, count)| (status, count.into()));
            let mut summary = json!({
                "requests": answered + failed + unanswered,
                "answered": answered + failed,
                "failed": failed,
                "unanswered": unanswered,
                "answers_without_request": only_answers,
                "failures": failures.collect::<serde_json::Map<String, Value>>(),
                "slowest": self.slowest.iter().map(|(_, object, _)| object.clone()).collect::<Vec<_>>(),
            });
            notes.iter().for_each(|(name, count)| summary[name.replace(' ', "_")] = (*count).into());
            self.lines.add(&format!("{}\n", json!({ "summary": summary })));
            return;
        }
        let mut text = format!(
            "{} requests: {} answered, {} failed, {} without an answer",
            grouped(answered + failed + unanswered),
            grouped(answered),
            grouped(failed),
            grouped(unanswered)
        );
        if only_answers > 0 {
            text += &format!("; {} answers without a request", grouped(only_answers));
        }
        for (name, count) in notes.iter().filter(|(_, count)| *count > 0) {
            text += &format!("; {} {name}", grouped(*count));
        }
        text.push('\n');
        if !failures.is_empty() {
            text += "failures\n";
            failures
                .iter()
                .for_each(|(status, count)| text += &format!("  {:<30}{:>10}\n", status, grouped(*count)));
        }
        if !self.slowest.is_empty() {
            text += "slowest\n";
            self.slowest.iter().for_each(|(.., line)| text += &format!("  {line}"));
        }
        self.lines.add(&text);
    }
}

fn text(transaction: &Transaction) -> String {
    let Transaction { time_ns, client, server, name, status, latency_ns, .. } = transaction;
    let time = local_ns(*time_ns, "%H:%M:%S.%6f");
    let latency = latency_ns.map_or_else(|| "-".to_owned(), milliseconds);
    let name: String = match name.chars().count() {
        ..=NAME_MAX => plain(name),
        _ => plain(&name.chars().take(NAME_MAX).collect::<String>()) + "...",
    };
    let name = if name.is_empty() { "-".to_owned() } else { name };
    let (client, server) = (endpoint(*client), endpoint(*server));
    format!("{time}  {client} > {server}  {name}  {}  {latency}\n", plain(status))
}

fn milliseconds(ns: i64) -> String {
    format!("{}.{:03} ms", grouped((ns / 1_000_000).unsigned_abs()), ns / 1000 % 1000)
}

fn to_json(transaction: &Transaction) -> Value {
    let Transaction { time_ns, client, server, name, status, latency_ns, outcome, details } = transaction;
    let mut object = json!({
        "time": universal_ns(*time_ns),
        "client": client.0.to_string(),
        "client_port": client.1,
        "server": server.0.to_string(),
        "server_port": server.1,
        "name": name,
        "status": status,
        "latency_ns": latency_ns,
        "answered": *outcome != Outcome::Unanswered,
        "failed": matches!(outcome, Outcome::Failed | Outcome::Unanswered),
        "request_seen": *outcome != Outcome::OnlyAnswer,
    });
    if let (Value::Object(all), Value::Object(more)) = (&mut object, details.clone()) {
        all.extend(more);
    }
    object
}
