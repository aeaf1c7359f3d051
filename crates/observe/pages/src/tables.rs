//! Tables that add up: rows, others and the rest are the interface.

use std::collections::HashMap;
use std::net::IpAddr;

use serde::Serialize;
use tapline_view::{Amount, Dimension, Key, KeyValue, Row, Second, Table};

use crate::answer::{Directions, PageRequest};
use crate::feed::Snapshot;
use crate::filter_line::FilterLine;
use crate::rights::Rights;
use crate::words::{KeyWords, state};

/// Rows of a table of a host's page.
const ROWS_HOST: usize = 20;

/// A table: rows, others and the rest up to the interface. Amounts are packets and bytes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SumTable {
    /// The greatest first.
    pub rows: Vec<SumRow>,
    /// All keys without a row: packets, bytes, flows.
    pub others: [u64; 3],
    /// Rows of flows that the filter refuses.
    pub unfitting: [u64; 2],
    /// The most that a key without a row can have.
    pub missing: [u64; 2],
    /// Packets without IP, with the bytes of their frames.
    pub not_ip: [u64; 2],
    /// Packets cut short or sampled out, with the bytes of their frames.
    pub unread: [u64; 2],
    /// Bytes of link headers and trailers of metered packets.
    pub framing: i64,
    /// Packets lost.
    pub lost: u64,
    /// The interface.
    pub sum: [u64; 2],
}

/// A row. Amounts are packets and bytes.
#[derive(Clone, Debug, Serialize)]
pub struct SumRow {
    /// The key.
    #[serde(flatten)]
    pub key: KeyWords,
    /// All.
    pub amount: [u64; 2],
    /// The part that the first side sent.
    pub first: [u64; 2],
    /// The possible amount of the key beyond these.
    pub error: [u64; 2],
    /// Flows.
    pub flows: u64,
    /// The name of an interface; the application of a flow, and the name that its client asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When a flow began, in nanoseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began_ns: Option<i64>,
    /// The state of a flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'static str>,
}

/// The greatest of a part of the flows.
#[derive(Clone, Debug, Serialize)]
pub struct PartTable {
    /// The greatest first.
    pub rows: Vec<SumRow>,
    /// The others of this part: packets, bytes, flows.
    pub others: [u64; 3],
}

/// A direction of a host.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Side {
    /// The key has a row.
    Row(Box<SumRow>),
    /// The key has no row.
    Missing {
        /// The most that it can have.
        error: [u64; 2],
        /// None is known.
        amount: Option<[u64; 2]>,
    },
}

/// A host with its peers, services, names and flows: of the flows that have a row.
#[derive(Clone, Debug, Serialize)]
pub struct HostContent {
    /// Address of the host.
    pub host: IpAddr,
    /// Amounts that the host receives.
    #[serde(rename = "in")]
    pub received: Side,
    /// Amounts that the host sends.
    #[serde(rename = "out")]
    pub sent: Side,
    /// Peers of the host.
    pub pair: PartTable,
    /// Services.
    pub service: PartTable,
    /// Names and applications.
    #[serde(rename = "name_")]
    pub name: PartTable,
    /// Flows of the host.
    pub flow: PartTable,
    /// Flows without a row, which may be this host's too.
    pub unseen: [u64; 2],
    /// Names under which clients asked for it, the latest first.
    pub names: Vec<String>,
    /// Whether it is the host of the meter.
    pub is_own: bool,
    /// Sent and received traffic in the seconds whose tables are kept.
    pub chart: HostChart,
}

/// A host's last seconds, for a chart.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HostChart {
    /// The ends, in seconds since 1970.
    pub t: Vec<f64>,
    /// Sent and received traffic; a second without a row of the host is unknown, unless nothing is missing.
    #[serde(flatten)]
    pub directions: Directions,
}

impl HostChart {
    fn of(snapshot: &Snapshot, host: IpAddr) -> HostChart {
        let mut chart = HostChart::default();
        let key = Key::host(host);
        for reading in &snapshot.readings {
            let of = |dimension| {
                let table = reading.table(dimension);
                let row = table.rows.iter().find(|row| row.key == key);
                row.map(|row| row.amount).or((table.missing == Amount::default()).then(Amount::default))
            };
            chart.t.push(reading.second.end_ns as f64 / 1e9);
            let (sent, received) = (of(Dimension::HostOut), of(Dimension::HostIn));
            chart.directions.push(sent, received, reading.second.len_ns);
        }
        chart
    }
}

fn pair(amount: Amount) -> [u64; 2] {
    [amount.packets, amount.bytes]
}

fn others(table: &Table) -> [u64; 3] {
    [table.others.packets, table.others.bytes, table.others_flows]
}

impl SumRow {
    /// A row of a dimension, as far as `rights` let it be seen.
    pub fn of(dimension: Dimension, row: &Row, rights: Rights) -> SumRow {
        let is_flow = dimension == Dimension::Flow;
        SumRow {
            key: KeyWords::of(dimension, &row.key),
            amount: pair(row.amount),
            first: pair(row.first),
            error: pair(row.error),
            flows: row.flows,
            name: name(dimension, row, rights),
            began_ns: is_flow.then_some(row.began_ns),
            state: is_flow.then(|| state(row)),
        }
    }
}

fn name(dimension: Dimension, row: &Row, rights: Rights) -> Option<String> {
    let KeyValue::Name(name) = row.name.value(Dimension::Name) else { return None };
    match dimension {
        Dimension::Interface => Some(name),
        Dimension::Flow if rights >= Rights::Names => Some(name),
        // Without the right to names the application remains, which is the first word.
        Dimension::Flow => Some(name.split(' ').next().unwrap_or_default().to_owned()),
        _ => None,
    }
}

/// The tables of a window, as far as a filter accepts.
pub(crate) struct Tables<'a> {
    pub(crate) request: &'a PageRequest,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) totals: &'a Second,
}

impl Tables<'_> {
    /// A table, and the rest up to the interface.
    pub(crate) fn table(&self, dimension: Dimension, rows: usize) -> SumTable {
        // Without the right to names a table of names is one of applications, which flows have too.
        let hides_names = dimension == Dimension::Name && self.request.rights < Rights::Names;
        if self.request.filter.is_empty() && !hides_names {
            let mut table = self.snapshot.window(dimension, self.request.window);
            table.cut(rows);
            return self.summed(dimension, &table, Amount::default());
        }
        let (fitting, (unfitting, unseen)) = self.fitting(&self.request.filter);
        let mut table = added_up(&fitting, dimension, self.request.rights, unseen);
        table.others.add(unseen);
        table.cut(rows);
        self.summed(dimension, &table, unfitting)
    }

    /// The flows that fit a filter; the sum of those that do not, and of those that have no row.
    fn fitting(&self, filter: &FilterLine) -> (Vec<Row>, (Amount, Amount)) {
        let flows = self.snapshot.window(Dimension::Flow, self.request.window);
        let (fitting, others): (Vec<Row>, Vec<Row>) = flows.rows.iter().partition(|row| filter.fits(row));
        let mut unfitting = Amount::default();
        others.iter().for_each(|row| unfitting.add(row.amount));
        (fitting, (unfitting, flows.others))
    }

    fn rows(&self, dimension: Dimension, table: &Table) -> Vec<SumRow> {
        table.rows.iter().map(|row| SumRow::of(dimension, row, self.request.rights)).collect()
    }

    fn summed(&self, dimension: Dimension, table: &Table, unfitting: Amount) -> SumTable {
        let totals = self.totals;
        SumTable {
            rows: self.rows(dimension, table),
            others: others(table),
            unfitting: pair(unfitting),
            missing: pair(table.missing),
            not_ip: [totals.not_ip, totals.not_ip_bytes],
            unread: [
                totals.cut.saturating_add(totals.sampled_out),
                totals.cut_bytes.saturating_add(totals.sampled_out_bytes),
            ],
            framing: (totals.metered_bytes as i64).saturating_sub(totals.flow_bytes as i64),
            lost: totals.lost(),
            sum: [totals.offered(), totals.offered_bytes()],
        }
    }

    /// A host with its peers, services, names and flows: of the flows that have a row.
    pub(crate) fn host(&self, host: IpAddr) -> HostContent {
        let (mut fitting, (_, unseen)) = self.fitting(&FilterLine::of_host(host));
        if !self.request.filter.is_empty() {
            fitting.retain(|row| self.request.filter.fits(row));
        }
        let part = |dimension: Dimension| {
            let mut table = added_up(&fitting, dimension, self.request.rights, unseen);
            table.cut(self.request.rows.min(ROWS_HOST));
            PartTable { rows: self.rows(dimension, &table), others: others(&table) }
        };
        HostContent {
            host,
            received: self.side(Dimension::HostIn, host),
            sent: self.side(Dimension::HostOut, host),
            pair: part(Dimension::Pair),
            service: part(Dimension::Service),
            name: part(Dimension::Name),
            flow: part(Dimension::Flow),
            unseen: pair(unseen),
            names: self.names(host),
            is_own: self.snapshot.own().contains(&host),
            chart: HostChart::of(self.snapshot, host),
        }
    }

    fn names(&self, host: IpAddr) -> Vec<String> {
        match self.request.rights >= Rights::Names {
            true => self.snapshot.names().of(host).map(str::to_owned).collect(),
            false => Vec::new(),
        }
    }

    fn side(&self, dimension: Dimension, host: IpAddr) -> Side {
        let table = self.snapshot.window(dimension, self.request.window);
        let key = Key::host(host);
        match table.rows.iter().find(|row| row.key == key) {
            Some(row) => Side::Row(Box::new(SumRow::of(dimension, row, self.request.rights))),
            None => Side::Missing { error: pair(table.missing), amount: None },
        }
    }
}

/// Flows added up by a dimension. A flow's row knows its addresses, ports, server and name; it does not know its
/// segment and interface, so all are others there. `unseen` is in no row of a flow: it bounds the error of each sum.
pub(crate) fn added_up(flows: &[Row], dimension: Dimension, rights: Rights, unseen: Amount) -> Table {
    let mut sums: HashMap<Key, Row> = HashMap::new();
    let mut others = Amount::default();
    for flow in flows {
        if matches!(dimension, Dimension::Segment | Dimension::Interface) {
            others.add(flow.amount);
        }
        for (key, amount, first) in parts(flow, dimension, rights) {
            if amount.packets == 0 {
                continue;
            }
            let row = sums.entry(key).or_insert(Row { key, ..Row::default() });
            row.amount.add(amount);
            row.first.add(first);
            row.error.add(flow.error);
            row.error = row.error.min(unseen);
            row.flows = row.flows.saturating_add(flow.flows);
            if dimension == Dimension::Flow {
                *row = *flow;
            }
        }
    }
    Table { rows: sums.into_values().collect(), others, ..Table::default() }
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
        Dimension::Service => {
            // The client is a service's first side.
            let (port, first) = if flow.server() == 0 { (from.1, back) } else { (to.1, flow.first) };
            vec![(Key::service(protocol, port), flow.amount, first)]
        }
        Dimension::Name => match flow.name.value(Dimension::Name) {
            KeyValue::Name(name) => {
                let (application, asked) = name.split_once(' ').unwrap_or((name.as_str(), ""));
                let is_hidden = asked.is_empty() || rights < Rights::Names;
                whole(Key::name(if is_hidden { application } else { asked }))
            }
            _ => Vec::new(),
        },
        Dimension::Segment | Dimension::Interface => Vec::new(),
        Dimension::Flow => whole(flow.key),
    }
}

#[cfg(test)]
mod tests;
