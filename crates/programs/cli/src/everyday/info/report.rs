//! A summary as text and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tapline_graph::grouped;
use tapline_packet::numbers::ip_protocol::{SCTP, TCP, UDP};
use tapline_print::service_name;

use super::super::lines::{local, universal};
use super::ranking::{Amount, Ranking};
use super::summary::Summary;
use crate::escape::plain;

/// Facts about an input that are not in its packets.
#[derive(Clone, Debug, Default)]
pub(super) struct InputFacts {
    /// The name of the file, or of what was captured.
    pub(super) name: String,
    /// Format and compression of a file.
    pub(super) format: Option<&'static str>,
    pub(super) compression: Option<&'static str>,
    /// Bytes of the file.
    pub(super) size: Option<u64>,
    pub(super) sha256: Option<String>,
    /// Packets lost according to the capture, by interface; `None` where it does not say.
    pub(super) dropped: Vec<Option<u64>>,
    /// The reason that the input was not read to its end, with the place.
    pub(super) damage: Option<String>,
    /// The user stopped it.
    pub(super) is_stopped: bool,
}

impl InputFacts {
    /// The sum of all interfaces; `None` where none says.
    fn dropped(&self) -> Option<u64> {
        let known: Vec<u64> = self.dropped.iter().flatten().copied().collect();
        (!known.is_empty()).then(|| known.iter().fold(0, |sum: u64, count| sum.saturating_add(*count)))
    }

    /// Number of interfaces without any facts, among others that have some.
    fn undocumented(&self) -> usize {
        if self.dropped().is_some() { self.dropped.iter().filter(|count| count.is_none()).count() } else { 0 }
    }
}

/// Local time with its offset from UTC.
const LOCAL: &str = "%Y-%m-%d %H:%M:%S.%9f %:z";
/// Width of the column of names.
const NAME_WIDTH: usize = 12;

fn line(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "  {name:<NAME_WIDTH$}{value}");
}

/// The summary for people.
pub(super) fn text(facts: &InputFacts, summary: &Summary, rows: usize) -> String {
    let mut text = format!("{}\n", plain(&facts.name));
    if let (Some(damage), 0, None) = (&facts.damage, summary.packets, facts.format) {
        line(&mut text, "UNREADABLE", &plain(damage));
        return text;
    }
    if let Some(format) = facts.format {
        let packed = facts.compression.map(|name| format!(", {name}")).unwrap_or_default();
        let size = facts.size.map(|size| format!(", {} bytes", grouped(size))).unwrap_or_default();
        line(&mut text, "file", &format!("{format}{packed}{size}"));
        line(
            &mut text,
            "sha256",
            facts.sha256.as_deref().unwrap_or("unknown: not a regular file, or not read whole"),
        );
    }
    packets_text(&mut text, facts, summary);
    interfaces_text(&mut text, facts, summary);
    protocols_text(&mut text, summary);
    let hosts = summary.hosts.top(rows).into_iter().map(|(address, amount)| (address.to_string(), amount));
    ranking_text(&mut text, "hosts", hosts.collect(), summary.hosts.len(), summary.hosts.others);
    let services = summary.services.top(rows).into_iter().map(|(key, amount)| (service(key), amount));
    ranking_text(&mut text, "services", services.collect(), summary.services.len(), summary.services.others);
    if facts.is_stopped {
        line(&mut text, "STOPPED", "before the end: all numbers are of the packets before it");
    }
    if let Some(damage) = &facts.damage {
        let after = grouped(summary.packets);
        line(&mut text, "DAMAGED", &format!("after {after} packets: {}", plain(damage)));
    }
    text
}

fn packets_text(text: &mut String, facts: &InputFacts, summary: &Summary) {
    let cut = match summary.cut {
        0 => String::new(),
        cut => format!(", {} cut short", grouped(cut)),
    };
    line(text, "packets", &format!("{}{cut}", grouped(summary.packets)));
    let (bytes, captured) = (grouped(summary.bytes), grouped(summary.captured));
    line(text, "bytes", &format!("{bytes} on the wire, {captured} captured"));
    if let (Some((shortest, longest)), Some(mean)) = (summary.lengths, summary.mean_len()) {
        let (shortest, longest) = (grouped(shortest), grouped(longest));
        line(text, "sizes", &format!("{shortest} to {longest} bytes, mean {mean:.1}"));
    }
    if let Some((first, last)) = summary.span {
        line(text, "first", &local(first, LOCAL));
        line(text, "last", &local(last, LOCAL));
    }
    if let Some(ns) = summary.duration_ns() {
        line(text, "duration", &format!("{}.{:09} s", grouped(ns / 1_000_000_000), ns % 1_000_000_000));
    }
    if let (Some(packets), Some(bytes)) =
        (summary.per_second(summary.packets), summary.per_second(summary.bytes))
    {
        let (packets, bits) = (rate(packets), rate(bytes * 8.0));
        line(text, "rate", &format!("{packets} packets/s, {bits} bit/s"));
    }
    line(text, "order", &order(summary));
    let dropped = match (facts.dropped(), facts.undocumented()) {
        (None, _) => "unknown: not recorded".to_owned(),
        (Some(count), 0) => grouped(count),
        (Some(count), others) => {
            format!("at least {}; of {others} interfaces nothing is recorded", grouped(count))
        }
    };
    line(text, "dropped", &dropped);
}

fn order(summary: &Summary) -> String {
    let untimed = match summary.untimed {
        0 => String::new(),
        count => format!("; {} packets without a time", grouped(count)),
    };
    match summary.steps_back {
        _ if summary.span.is_none() => format!("unknown{untimed}"),
        0 => format!("by time{untimed}"),
        1 => format!("not by time: 1 packet is earlier than the one before, by {} s{untimed}", back(summary)),
        steps => {
            let steps = grouped(steps);
            format!(
                "not by time: {steps} packets are earlier than the one before, by up to {} s{untimed}",
                back(summary)
            )
        }
    }
}

fn back(summary: &Summary) -> String {
    let ns = summary.step_back_max_ns;
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

fn interfaces_text(text: &mut String, facts: &InputFacts, summary: &Summary) {
    for (at, one) in summary.interfaces.iter().enumerate() {
        let name = if at == 0 { "interfaces" } else { "" };
        let label = if one.interface.label().is_empty() { "-" } else { one.interface.label() };
        let link = one.interface.link_type;
        let link = link.name().map_or_else(|| format!("link type {}", link.0), str::to_owned);
        let snap = match one.interface.snap_len {
            0 => String::new(),
            snap => format!(", at most {} bytes of a packet", grouped(snap)),
        };
        let dropped = match facts.dropped.get(at).copied().flatten() {
            Some(count) => format!(", {} dropped", grouped(count)),
            None => String::new(),
        };
        let packets = grouped(one.amount.packets);
        line(text, name, &format!("{}: {link}, {packets} packets{dropped}{snap}", plain(label)));
    }
}

/// Width of the column of protocols, hosts and services.
const KEY_WIDTH: usize = 42;

fn protocols_text(text: &mut String, summary: &Summary) {
    let rows = summary.tree.rows();
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(text, "  {:<KEY_WIDTH$}{:>14}{:>18}", "protocols", "packets", "bytes");
    for row in &rows {
        let depth = row.path.matches(':').count();
        let name = row.path.rsplit(':').next().unwrap_or_default();
        row_text(text, &format!("{}{name}", "  ".repeat(depth)), row.amount);
    }
    if summary.tree.cut > 0 {
        let cut = grouped(summary.tree.cut);
        let _ = writeln!(
            text,
            "    the table is full: {cut} packets have further protocols, their rows are at least so many"
        );
    }
}

fn row_text(text: &mut String, name: &str, amount: Amount) {
    let (packets, bytes) = (grouped(amount.packets), grouped(amount.bytes));
    let _ = writeln!(text, "    {name:<width$}{packets:>14}{bytes:>18}", width = KEY_WIDTH - 2);
}

fn ranking_text(text: &mut String, what: &str, rows: Vec<(String, Amount)>, known: usize, others: Amount) {
    if rows.is_empty() {
        return;
    }
    let at_least = if others.packets > 0 { "at least " } else { "" };
    let head = format!("{what}, {} of {at_least}{}", rows.len(), grouped(known as u64));
    let _ = writeln!(text, "  {head:<KEY_WIDTH$}{:>14}{:>18}", "packets", "bytes");
    rows.iter().for_each(|(name, amount)| row_text(text, name, *amount));
    if others.packets > 0 {
        row_text(text, "others, for which the table has no room", others);
    }
}

fn service((protocol, port): (u8, u16)) -> String {
    let transport = match protocol {
        TCP => "tcp".to_owned(),
        UDP => "udp".to_owned(),
        SCTP => "sctp".to_owned(),
        _ => format!("protocol {protocol}"),
    };
    let name = match (protocol, port) {
        (TCP, 443) => Some("https"),
        _ => service_name(protocol, 0, port),
    };
    name.map_or_else(|| format!("{transport} {port}"), |name| format!("{transport} {port} {name}"))
}

/// Digits behind the point where they matter.
fn rate(number: f64) -> String {
    if number >= 100.0 { grouped(number.round() as u64) } else { format!("{number:.3}") }
}

/// The summary as an object; what is unknown is null.
pub(super) fn to_json(facts: &InputFacts, summary: &Summary, rows: usize) -> Value {
    let interfaces = summary.interfaces.iter().enumerate().map(|(at, one)| {
        json!({
            "name": one.interface.name,
            "description": one.interface.description,
            "link_type": one.interface.link_type.name(),
            "snap_len": one.interface.snap_len,
            "packets": one.amount.packets,
            "bytes": one.amount.bytes,
            "dropped": facts.dropped.get(at).copied().flatten(),
        })
    });
    let amount = |key: &str, name: String, amount: Amount| json!({key: name, "packets": amount.packets, "bytes": amount.bytes});
    let protocols = summary.tree.rows().into_iter().map(|row| amount("path", row.path, row.amount));
    let hosts = summary.hosts.top(rows).into_iter().map(|(key, of)| amount("address", key.to_string(), of));
    let services =
        summary.services.top(rows).into_iter().map(|(key, of)| amount("service", service(key), of));
    json!({
        "name": facts.name,
        "format": facts.format,
        "compression": facts.compression,
        "size": facts.size,
        "sha256": facts.sha256,
        "packets": summary.packets,
        "cut_packets": summary.cut,
        "bytes": summary.bytes,
        "captured_bytes": summary.captured,
        "length_min": summary.lengths.map(|(shortest, _)| shortest),
        "length_max": summary.lengths.map(|(_, longest)| longest),
        "length_mean": summary.mean_len(),
        "first": summary.span.map(|(first, _)| universal(first)),
        "last": summary.span.map(|(_, last)| universal(last)),
        "duration_ns": summary.duration_ns(),
        "packets_per_second": summary.per_second(summary.packets),
        "bits_per_second": summary.per_second(summary.bytes).map(|bytes| bytes * 8.0),
        "in_order": summary.span.map(|_| summary.steps_back == 0),
        "steps_back": summary.steps_back,
        "step_back_max_ns": summary.step_back_max_ns,
        "untimed": summary.untimed,
        "dropped": facts.dropped().filter(|_| facts.undocumented() == 0),
        "dropped_at_least": facts.dropped(),
        "interfaces": interfaces.collect::<Vec<_>>(),
        "protocols": protocols.collect::<Vec<_>>(),
        "protocols_cut": summary.tree.cut,
        "hosts": hosts.collect::<Vec<_>>(),
        "hosts_known": summary.hosts.len(),
        "hosts_others": others(&summary.hosts),
        "services": services.collect::<Vec<_>>(),
        "services_known": summary.services.len(),
        "services_others": others(&summary.services),
        "damage": facts.damage,
        "stopped": facts.is_stopped,
    })
}

fn others<K>(ranking: &Ranking<K>) -> Value {
    json!({ "packets": ranking.others.packets, "bytes": ranking.others.bytes })
}
