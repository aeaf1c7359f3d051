//! The content of pages, as JSON.
//!
//! ```text
//! {second, window, account, ...}   the head: what every page shows
//! page: {...}                      one of the pages below
//! table: {rows, others, rest}      rows + others + rest = the interface
//! ```

use std::collections::HashMap;
use std::net::IpAddr;

use serde_json::{Map, Value, json};
use tapline_packet::numbers::ip_protocol;
use tapline_view::{Amount, Dimension, Key, KeyValue, ROWS_MAX, Row, Second, Segment, Table};

use crate::access::Rights;
use crate::feed::{Snapshot, WINDOW_MAX};
use crate::filter_line::FilterLine;
use crate::query::Query;

/// Rows of a table in an answer.
const ROWS: u64 = 100;
/// Rows of a table of the overview.
const ROWS_OVERVIEW: usize = 6;

/// A question for a page.
#[derive(Clone, Debug)]
pub(crate) struct PageRequest {
    page: String,
    host: Option<IpAddr>,
    filter: FilterLine,
    window: usize,
    rows: usize,
    rights: Rights,
}

impl PageRequest {
    /// Reads the question of an address.
    pub(crate) fn parse(query: &Query, rights: Rights) -> Result<PageRequest, String> {
        Ok(PageRequest {
            page: query.text("page").to_owned(),
            host: query.text("host").parse().ok(),
            filter: FilterLine::parse(query.text("filter"))?.seeing(rights),
            window: query.number("window", 10, 1, WINDOW_MAX as u64) as usize,
            rows: query.number("rows", ROWS, 1, ROWS_MAX as u64) as usize,
            rights,
        })
    }

    /// The answer of a moment.
    pub(crate) fn answer(&self, snapshot: &Snapshot) -> Value {
        let totals = snapshot.totals(self.window);
        let last = snapshot.seconds.back();
        json!({
            "process": snapshot.process.as_ref().map(|process| json!({
                "pid": process.pid, "title": process.title, "is_live": process.is_live,
                "sampling": process.sampling, "since_ns": process.created_ns,
            })),
            "processes": snapshot.processes,
            "is_alive": snapshot.is_alive,
            "rights": self.rights.name(),
            "number": last.map(|(number, _)| number),
            "second": last.map(|(_, second)| second_json(second)),
            "seconds": snapshot.last(self.window).count(),
            "window": second_json(&totals),
            "page": self.page(snapshot, &totals),
        })
    }

    fn page(&self, snapshot: &Snapshot, totals: &Second) -> Value {
        let tables = Tables { request: self, snapshot, totals };
        let all = |dimensions: &[Dimension], rows: usize| -> Value {
            let named = dimensions.iter().map(|of| (of.name().to_owned(), tables.json(*of, rows)));
            Value::Object(named.collect::<Map<_, _>>())
        };
        match self.page.as_str() {
            "hosts" if self.host.is_some() => tables.host(),
            "hosts" => all(&[Dimension::HostIn, Dimension::HostOut], self.rows),
            "pairs" => all(&[Dimension::Pair], self.rows),
            "flows" => all(&[Dimension::Flow], self.rows),
            "protocols" => all(
                &[Dimension::Service, Dimension::Name, Dimension::Segment, Dimension::Interface],
                self.rows.min(30),
            ),
            "costs" => stages(snapshot),
            "losses" | "history" | "packets" => json!({}),
            _ => all(
                &[
                    Dimension::HostOut,
                    Dimension::HostIn,
                    Dimension::Service,
                    Dimension::Name,
                    Dimension::Pair,
                ],
                ROWS_OVERVIEW,
            ),
        }
    }
}

/// The totals of the last seconds, by columns, for a chart.
pub(crate) fn seconds_json(snapshot: &Snapshot, most: usize) -> Value {
    let seconds = &snapshot.seconds;
    let seconds: Vec<_> = seconds.iter().skip(seconds.len().saturating_sub(most)).collect();
    let column = |of: &dyn Fn(&Second) -> Value| -> Value {
        seconds.iter().map(|(_, second)| of(second)).collect::<Vec<_>>().into()
    };
    let rate = |count: u64, second: &Second| json!(count as f64 * 1e9 / second.len_ns.max(1) as f64);
    json!({
        "number": seconds.last().map(|(number, _)| number),
        "t": column(&|second| json!(second.end_ns as f64 / 1e9)),
        "bits": column(&|second| rate(second.offered_bytes().saturating_mul(8), second)),
        "packets": column(&|second| rate(second.offered(), second)),
        "lost": column(&|second| rate(second.lost(), second)),
        "active": column(&|second| json!(second.active)),
    })
}

/// A second, or several, for the head and the page of losses.
pub(crate) fn second_json(second: &Second) -> Value {
    json!({
        "end_ns": second.end_ns,
        "len_ns": second.len_ns,
        "offered": [second.offered(), second.offered_bytes()],
        "metered": [second.metered, second.metered_bytes],
        "flow_bytes": second.flow_bytes,
        "not_ip": [second.not_ip, second.not_ip_bytes],
        "cut": [second.cut, second.cut_bytes],
        "sampled_out": [second.sampled_out, second.sampled_out_bytes],
        "lost_ring": second.lost_ring,
        "lost_daemon": second.lost_daemon,
        "lost_before": second.lost_before,
        "active": second.active,
        "made": second.made,
        "ended": second.ended,
        "late": second.late,
        "room": second.room,
        "delivered": second.delivered,
        "workers": second.workers,
    })
}

/// The tables of a window, with what a filter leaves.
struct Tables<'a> {
    request: &'a PageRequest,
    snapshot: &'a Snapshot,
    totals: &'a Second,
}

impl Tables<'_> {
    /// A table, and the rest up to the interface.
    fn json(&self, dimension: Dimension, rows: usize) -> Value {
        // Without the right to names a table of names is one of applications, which flows have too.
        let hides_names = dimension == Dimension::Name && self.request.rights < Rights::Names;
        if self.request.filter.is_empty() && !hides_names {
            let mut table = self.snapshot.window(dimension, self.request.window);
            table.cut(rows);
            return self.table_json(dimension, &table, Amount::default());
        }
        let (fitting, rest) = self.fitting(&self.request.filter);
        let mut table = added_up(&fitting, dimension, self.request.rights);
        table.others = rest.1;
        table.cut(rows);
        self.table_json(dimension, &table, rest.0)
    }

    /// The flows that fit a filter; the sum of those that do not, and of those that have no row.
    fn fitting(&self, filter: &FilterLine) -> (Vec<Row>, (Amount, Amount)) {
        let flows = self.snapshot.window(Dimension::Flow, self.request.window);
        let (fitting, others): (Vec<Row>, Vec<Row>) = flows.rows.iter().partition(|row| filter.fits(row));
        let mut unfitting = Amount::default();
        others.iter().for_each(|row| unfitting.add(row.amount));
        (fitting, (unfitting, flows.others))
    }

    fn table_json(&self, dimension: Dimension, table: &Table, unfitting: Amount) -> Value {
        let rows: Vec<Value> = table.rows.iter().map(|row| self.row_json(dimension, row)).collect();
        let Second { metered_bytes, flow_bytes, .. } = *self.totals;
        json!({
            "rows": rows,
            "others": [table.others.packets, table.others.bytes, table.others_flows],
            "unfitting": [unfitting.packets, unfitting.bytes],
            "missing": [table.missing.packets, table.missing.bytes],
            "not_ip": [self.totals.not_ip, self.totals.not_ip_bytes],
            "unread": [
                self.totals.cut.saturating_add(self.totals.sampled_out),
                self.totals.cut_bytes.saturating_add(self.totals.sampled_out_bytes),
            ],
            "framing": (metered_bytes as i64).saturating_sub(flow_bytes as i64),
            "lost": self.totals.lost(),
            "sum": [self.totals.offered(), self.totals.offered_bytes()],
        })
    }

    fn row_json(&self, dimension: Dimension, row: &Row) -> Value {
        let mut object = key_json(dimension, &row.key);
        object.insert("amount".into(), json!([row.amount.packets, row.amount.bytes]));
        object.insert("first".into(), json!([row.first.packets, row.first.bytes]));
        object.insert("error".into(), json!([row.error.packets, row.error.bytes]));
        object.insert("flows".into(), json!(row.flows));
        if matches!(dimension, Dimension::Flow | Dimension::Interface)
            && let KeyValue::Name(name) = row.name.value(Dimension::Name)
        {
            let is_seen = dimension == Dimension::Interface || self.request.rights >= Rights::Names;
            // Without the right to names the application remains, which is the first word.
            let shown = if is_seen { name.as_str() } else { name.split(' ').next().unwrap_or_default() };
            object.insert("name".into(), json!(shown));
        }
        if dimension == Dimension::Flow {
            object.insert("began_ns".into(), json!(row.began_ns));
            let flags = [row.state as u8, (row.state >> 8) as u8];
            object.insert("state".into(), json!(state(&row.key, row, flags)));
        }
        Value::Object(object)
    }

    /// A host with its peers, services, names and flows: of the flows that have a row.
    fn host(&self) -> Value {
        let Some(host) = self.request.host else { return json!({}) };
        let line = FilterLine::of_host(host);
        let (mut fitting, (_, unseen)) = self.fitting(&line);
        if !self.request.filter.is_empty() {
            fitting.retain(|row| self.request.filter.fits(row));
        }
        let key = Key::host(host);
        let row_of = |dimension: Dimension| {
            let table = self.snapshot.window(dimension, self.request.window);
            let found = table.rows.iter().find(|row| row.key == key).copied();
            found.map_or_else(
                || json!({"error": [table.missing.packets, table.missing.bytes], "amount": null}),
                |row| self.row_json(dimension, &row),
            )
        };
        let of = |dimension: Dimension| {
            let mut table = added_up(&fitting, dimension, self.request.rights);
            table.cut(self.request.rows.min(20));
            let rows: Vec<Value> = table.rows.iter().map(|row| self.row_json(dimension, row)).collect();
            json!({"rows": rows, "others": [table.others.packets, table.others.bytes, table.others_flows]})
        };
        json!({
            "host": host,
            "in": row_of(Dimension::HostIn),
            "out": row_of(Dimension::HostOut),
            "pair": of(Dimension::Pair),
            "service": of(Dimension::Service),
            "name_": of(Dimension::Name),
            "flow": of(Dimension::Flow),
            "unseen": [unseen.packets, unseen.bytes],
        })
    }
}

/// Flows added up by a dimension. A flow's row knows its addresses, ports and name.
fn added_up(flows: &[Row], dimension: Dimension, rights: Rights) -> Table {
    let mut sums: HashMap<Key, Row> = HashMap::new();
    for flow in flows {
        for (key, amount, first) in parts(flow, dimension, rights) {
            if amount.packets == 0 {
                continue;
            }
            let row = sums.entry(key).or_insert(Row { key, ..Row::default() });
            row.amount.add(amount);
            row.first.add(first);
            row.error.add(flow.error);
            row.flows = row.flows.saturating_add(flow.flows);
            if dimension == Dimension::Flow {
                *row = *flow;
            }
        }
    }
    Table { rows: sums.into_values().collect(), ..Table::default() }
}

/// The keys of a flow in a dimension, each with its packets and those of the first side.
fn parts(flow: &Row, dimension: Dimension, rights: Rights) -> Vec<(Key, Amount, Amount)> {
    let back = flow.amount.less(flow.first);
    let KeyValue::Flow(protocol, from, to) = flow.key.value(Dimension::Flow) else { return Vec::new() };
    let whole = |key: Key| vec![(key, flow.amount, flow.first)];
    match dimension {
        Dimension::HostIn => {
            vec![
                (Key::host(to.0), flow.first, Amount::default()),
                (Key::host(from.0), back, Amount::default()),
            ]
        }
        Dimension::HostOut => {
            vec![
                (Key::host(from.0), flow.first, Amount::default()),
                (Key::host(to.0), back, Amount::default()),
            ]
        }
        Dimension::Pair => {
            let key = Key::pair(from.0, to.0);
            let is_first = key.value(Dimension::Pair) == KeyValue::Pair(from.0, to.0);
            vec![(key, flow.amount, if is_first { flow.first } else { back })]
        }
        Dimension::Service => whole(Key::service(protocol, if to.1 <= from.1 { to.1 } else { from.1 })),
        Dimension::Name => match flow.name.value(Dimension::Name) {
            KeyValue::Name(name) => {
                let (application, asked) = name.split_once(' ').unwrap_or((name.as_str(), ""));
                let is_hidden = asked.is_empty() || rights < Rights::Names;
                whole(Key::name(if is_hidden { application } else { asked }))
            }
            _ => Vec::new(),
        },
        // A flow's row does not know these.
        Dimension::Segment | Dimension::Interface => Vec::new(),
        Dimension::Flow => whole(flow.key),
    }
}

/// A key by the words of the page.
pub(crate) fn key_json(dimension: Dimension, key: &Key) -> Map<String, Value> {
    let value = match key.value(dimension) {
        KeyValue::Host(host) => json!({"host": host}),
        KeyValue::Pair(one, other) => json!({"a": one, "b": other}),
        KeyValue::Service(protocol, port) => {
            json!({"protocol": protocol_name(protocol), "port": port, "has_port": ip_protocol::has_ports(protocol)})
        }
        KeyValue::Name(name) => json!({"key": name}),
        KeyValue::Segment(Segment::Untagged) => json!({"key": "untagged"}),
        KeyValue::Segment(Segment::Vlan(id)) => json!({"key": format!("VLAN {id}")}),
        KeyValue::Segment(Segment::Tunnel(id)) => json!({"key": format!("tunnel {id}")}),
        KeyValue::Interface(number) => json!({"key": format!("interface {number}")}),
        KeyValue::Flow(protocol, from, to) => json!({
            "protocol": protocol_name(protocol), "has_port": ip_protocol::has_ports(protocol),
            "a": from.0, "a_port": from.1, "b": to.0, "b_port": to.1,
        }),
    };
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

fn protocol_name(number: u8) -> String {
    match number {
        ip_protocol::ICMP => "icmp".to_owned(),
        ip_protocol::TCP => "tcp".to_owned(),
        ip_protocol::UDP => "udp".to_owned(),
        ip_protocol::ICMPV6 => "icmp6".to_owned(),
        ip_protocol::SCTP => "sctp".to_owned(),
        number => format!("ip {number}"),
    }
}

/// The state of a flow, by TCP's flags, or by whether both sides sent packets.
fn state(key: &Key, row: &Row, [there, back]: [u8; 2]) -> &'static str {
    const FIN: u8 = 0x01;
    const SYN: u8 = 0x02;
    const RST: u8 = 0x04;
    let is_answered = row.amount.packets > row.first.packets;
    let KeyValue::Flow(protocol, ..) = key.value(Dimension::Flow) else { return "" };
    match protocol {
        ip_protocol::TCP if there & SYN != 0 && back & (SYN | RST) == RST => "refused",
        ip_protocol::TCP if (there | back) & RST != 0 => "reset",
        ip_protocol::TCP if there & back & FIN != 0 => "closed",
        ip_protocol::TCP if (there | back) & FIN != 0 => "closing",
        ip_protocol::TCP if there & SYN != 0 && back == 0 => "no answer",
        ip_protocol::TCP => "open",
        _ if is_answered => "answered",
        _ => "one way",
    }
}

/// Work of the stages in the last second.
fn stages(snapshot: &Snapshot) -> Value {
    let stages: Vec<Value> = snapshot
        .stages
        .iter()
        .filter(|stage| !stage.has_ended())
        .map(|stage| {
            json!({
                "name": stage.recent.name, "class": stage.recent.class, "workers": stage.workers, "share": stage.share,
                "packets_in": stage.recent.packets_in, "packets_out": stage.recent.packets_out,
                "cycles": stage.recent.cycles, "cycles_total": stage.total.cycles,
                "packets_total": stage.total.packets_in,
                "median": stage.recent.percentile(0.5), "p99": stage.recent.percentile(0.99),
            })
        })
        .collect();
    json!({"stages": stages, "frequency_hz": snapshot.frequency_hz, "seconds": snapshot.stages_s})
}
