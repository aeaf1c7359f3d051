//! `flowtop`: the top flows as a table.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use tapline_flow::{
    Details, Dns, DnsAnswer, Endpoint, Flow, FoundBy, Http, KnownField, LinkHeader, MacAddress, SIZES,
    SizeCounts, Tcp, TcpSide, Tls,
};
use tapline_geo::Places;
use tapline_graph::catalog::{Constructor, Order, Outputs, StageClass, StageInput};
use tapline_graph::{Cell, ExpiredFlows, Out, Packets, Stage, StageCounters, Table};
use tapline_packet::Timestamp;
use tapline_packet::numbers::ip_protocol::{self, TCP};
use tapline_source::Error;

use super::flow_results::FlowResults;
use super::places::{self, PlaceReader};
use super::top;
use crate::settings::StageSettings;

pub(crate) const CLASS: StageClass = StageClass {
    name: "flowtop",
    summary: "the top flows as a table",
    description: "Right behind `flow`. A flow that outlives the active timeout is several here. With flow's details it has columns more: \
        application, the requested name, the round trip in microseconds, retransmitted packets, and other details as text; with enrich, the \
        places of both ends. With --json on tapline run, one object each.",
    parameters: &[top::ROWS, top::RANKED_BY, places::PARAMETER],
    outputs: Outputs::None,
    input: StageInput::Flows(|_, _| Ok(())),
    order: Order::Flow,
    example: "file(\"a.pcap\") -> flow -> flowtop(n=20)",
    access: places::add_place_files,
    make: Constructor::Stage(|arguments, site| {
        Ok(Box::new(FlowTop {
            n: arguments.number("n") as usize,
            by_packets: arguments.text("order") == "packets",
            greatest: BinaryHeap::new(),
            received: 0,
            reported: 0,
            places: StageSettings::of(site.common).place_files.open(arguments, site)?,
        }))
    }),
    ..StageClass::BASE
};

struct FlowTop {
    n: usize,
    by_packets: bool,
    /// The least of them first.
    greatest: BinaryHeap<Ranked>,
    received: u64,
    /// Packets that collected flows count.
    reported: u64,
    places: Option<PlaceReader>,
}

/// A flow by its amount; of equal ones that which came first is greater.
struct Ranked(Reverse<(u64, Reverse<i64>)>, Box<Flow>);

impl PartialEq for Ranked {
    fn eq(&self, other: &Ranked) -> bool {
        self.0 == other.0
    }
}

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Ranked) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Ranked) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

impl FlowTop {
    /// The greatest flows, in their order.
    fn rows(&self) -> Vec<FlowRow> {
        let mut ranked: Vec<&Ranked> = self.greatest.iter().collect();
        ranked.sort_unstable();
        let places = self.places.as_ref().map(PlaceReader::current);
        ranked.into_iter().map(|ranked| FlowRow::of(&ranked.1, places.as_deref())).collect()
    }

    fn add(&mut self, flow: &Flow) {
        let amount = if self.by_packets { flow.packets() } else { flow.bytes() };
        let rank = Reverse((amount, Reverse(flow.first().as_nanos())));
        let is_room = self.greatest.len() < self.n;
        if is_room || self.greatest.peek().is_some_and(|least| rank < least.0) {
            self.greatest.push(Ranked(rank, Box::new(flow.clone())));
            if !is_room {
                self.greatest.pop();
            }
        }
    }
}

/// A flow as people read it. What is not known of it is `None`.
#[derive(Clone, Debug, Default)]
pub struct FlowRow {
    /// The protocol's name, or its number.
    pub protocol: Option<String>,
    /// The address and port of both ends, as far as they are known; the client first.
    pub ends: [Option<String>; 2],
    /// The application.
    pub application: Option<String>,
    /// The way in which the application was found.
    pub found_by: Option<FoundBy>,
    /// The name that the client asked for.
    pub name: Option<String>,
    /// Packets there and back.
    pub packets: [Option<u64>; 2],
    /// Bytes there and back.
    pub bytes: [Option<u64>; 2],
    /// Milliseconds from the first packet to the last.
    pub ms: Option<u64>,
    /// The round trip of the whole way, in microseconds.
    pub rtt_us: Option<u64>,
    /// Packets that were sent again, both ways.
    pub again: Option<u64>,
    /// The state at its end.
    pub state: &'static str,
    /// Reason for its end.
    pub end: &'static str,
    /// The first packet's time, in nanoseconds since 1970.
    pub first_ns: Option<i64>,
    /// Details without a field of their own.
    pub details: Option<String>,
    /// Where both ends are.
    pub places: [Option<String>; 2],
}

impl FlowRow {
    fn of(flow: &Flow, places: Option<&Places>) -> FlowRow {
        let known =
            |field, numbers: [u64; 2]| [0, 1].map(|side| flow.knows(field, side).then_some(numbers[side]));
        let place = |side: usize| Some(places?.of(flow.endpoints[side].address).to_string());
        let sides = flow.endpoints.each_ref();
        FlowRow {
            protocol: flow.knows(KnownField::Protocol, 0).then(|| protocol(flow.protocol)),
            ends: [end(flow, 0), end(flow, 1)],
            application: details(flow, |details| details.application).map(str::to_owned),
            found_by: details(flow, |details| details.found_by),
            name: name(flow).map(str::to_owned),
            packets: known(KnownField::Packets, sides.map(|side| side.packets)),
            bytes: known(KnownField::Bytes, sides.map(|side| side.bytes)),
            ms: flow.began().map(|first| flow.last().since(first).max(0) as u64 / 1_000_000),
            rtt_us: rtt(flow),
            again: again(flow),
            state: state(flow),
            end: flow.end_reason.name(),
            first_ns: flow.began().map(Timestamp::as_nanos),
            details: Some(details_text(flow)).filter(|text| !text.is_empty()),
            places: [0, 1].map(|side| place(side).filter(|text| !text.is_empty())),
        }
    }
}

impl Stage for FlowTop {
    fn push(&mut self, packets: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.received += packets.len() as u64;
        Ok(())
    }

    fn flows(&mut self, ended: &ExpiredFlows<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        ended.flows.iter().for_each(|flow| self.add(flow));
        self.reported += ended.reported();
        Ok(())
    }

    fn counters(&self) -> StageCounters {
        let written = self.received + self.reported;
        StageCounters { reported: self.reported, ..StageCounters::of_written("table", written) }
    }

    fn result(&self) -> Option<Table> {
        let rows = self.rows();
        let columns = COLUMNS
            .iter()
            .filter(|column| column.missing.is_none() || rows.iter().any(|row| (column.cell)(row).is_some()));
        let columns: Vec<&Column> = columns.collect();
        let cells = |row: &FlowRow| columns.iter().map(|column| column.of(row)).collect();
        Some(Table {
            columns: columns.iter().map(|column| column.name).collect(),
            rows: rows.iter().map(cells).collect(),
        })
    }

    fn values(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::new(FlowResults::Top(self.rows())))
    }

    fn events(&mut self) -> Vec<String> {
        self.places.iter().flat_map(PlaceReader::take_messages).collect()
    }

    fn merge(&mut self, other: &dyn Any) {
        if let Some(other) = other.downcast_ref::<FlowTop>() {
            other.greatest.iter().for_each(|ranked| self.add(&ranked.1));
        }
    }
}

/// A column of the table.
struct Column {
    name: &'static str,
    /// The text of a cell that is not known, in a column that is there if any flow's is known. `None` if it is always
    /// there.
    missing: Option<&'static str>,
    cell: fn(&FlowRow) -> Option<Cell>,
}

impl Column {
    const fn always(name: &'static str, cell: fn(&FlowRow) -> Option<Cell>) -> Column {
        Column { name, missing: None, cell }
    }

    const fn if_known(
        name: &'static str,
        missing: &'static str,
        cell: fn(&FlowRow) -> Option<Cell>,
    ) -> Column {
        Column { name, missing: Some(missing), cell }
    }

    fn of(&self, row: &FlowRow) -> Cell {
        let missing = || self.missing.map_or(Cell::Unknown, |text| Cell::from(text.to_owned()));
        (self.cell)(row).unwrap_or_else(missing)
    }
}

fn text(text: &Option<String>) -> Option<Cell> {
    text.clone().map(Cell::from)
}

const COLUMNS: &[Column] = &[
    Column::always("protocol", |row| text(&row.protocol)),
    Column::always("source", |row| text(&row.ends[0])),
    Column::always("destination", |row| text(&row.ends[1])),
    Column::if_known("application", "-", |row| text(&row.application)),
    Column::if_known("found_by", "-", |row| row.found_by.map(|by| Cell::from(by.name().to_owned()))),
    Column::if_known("name", "-", |row| text(&row.name)),
    Column::always("packets", |row| row.packets[0].map(Cell::from)),
    Column::always("bytes", |row| row.bytes[0].map(Cell::from)),
    Column::always("packets_back", |row| row.packets[1].map(Cell::from)),
    Column::always("bytes_back", |row| row.bytes[1].map(Cell::from)),
    Column::always("ms", |row| row.ms.map(Cell::from)),
    Column::if_known("rtt_us", "-", |row| row.rtt_us.map(Cell::from)),
    Column::if_known("again", "-", |row| row.again.map(Cell::from)),
    Column::always("state", |row| Some(row.state.to_owned().into())),
    Column::always("end", |row| Some(row.end.to_owned().into())),
    Column::always("first_ns", |row| row.first_ns.map(Cell::Time)),
    Column::if_known("details", "", |row| text(&row.details)),
    Column::if_known("source_place", "", |row| text(&row.places[0])),
    Column::if_known("destination_place", "", |row| text(&row.places[1])),
];

/// The state at the end of a flow: by TCP's flags, or by whether both sides sent packets.
fn state(flow: &Flow) -> &'static str {
    const FIN: u8 = 0x01;
    const SYN: u8 = 0x02;
    const RST: u8 = 0x04;
    const ACK: u8 = 0x10;
    let [there, back] = [flow.endpoints[0].tcp_flags, flow.endpoints[1].tcp_flags];
    let is_answered = flow.endpoints[1].packets > 0;
    let protocol = if flow.knows(KnownField::TcpFlags, 0) { flow.protocol } else { 0 };
    match protocol {
        TCP if there & (SYN | ACK) == SYN && back & (SYN | RST) == RST => "refused",
        TCP if (there | back) & RST != 0 => "reset",
        TCP if there & back & FIN != 0 => "closed",
        TCP if (there | back) & FIN != 0 => "closing",
        TCP if there & SYN != 0 && !is_answered => "no answer",
        TCP if is_answered => "open",
        _ if is_answered => "answered",
        _ => "one way",
    }
}

/// Details without a column of their own, as text.
fn details_text(flow: &Flow) -> String {
    let Some(details) = flow.details.as_deref() else { return String::new() };
    let mut parts: Vec<String> = Vec::new();
    parts.extend(details.dns.as_ref().map(dns_text));
    parts.extend(details.tls.as_ref().map(tls_text));
    parts.extend(details.http.as_ref().map(http_text));
    parts.extend(details.tcp.iter().flat_map(tcp_texts));
    parts.extend(details.sizes.as_ref().map(sizes_text));
    for (gaps, way) in details.gaps.iter().flatten().zip(["gaps", "gaps back"]) {
        if gaps.count > 0 {
            let (mean, least, greatest) = (time(gaps.mean as u64), time(gaps.min), time(gaps.max));
            parts.push(format!("{way} {mean} mean, {least} to {greatest}"));
        }
    }
    for (link, way) in details.link.iter().flatten().zip(["from", "back from"]) {
        parts.extend(link_text(link, way));
    }
    for (stack, way) in details.labels.iter().flatten().zip(["labels", "labels back"]) {
        let labels = stack
            .entries()
            .iter()
            .map(|&[one, two, three]| (u32::from_be_bytes([0, one, two, three]) >> 4).to_string());
        let labels = labels.collect::<Vec<_>>();
        parts.extend((!labels.is_empty()).then(|| format!("{way} {}", labels.join(" "))));
    }
    for (payload, way) in details.payload.iter().zip(["says", "answers"]) {
        if !payload.is_empty() {
            let shown = &payload[..payload.len().min(PAYLOAD_SHOWN)];
            let more = if shown.len() < payload.len() { "..." } else { "" };
            parts.push(format!("{way} \"{}\"{more}", shown.escape_ascii()));
        }
    }
    parts.join("; ")
}

/// MAC addresses and VLAN tags, if there are any.
fn link_text(link: &LinkHeader, way: &str) -> Option<String> {
    let text = |address: MacAddress| address.map(|octet| format!("{octet:02x}")).join(":");
    let mut words = vec![way.to_owned(), text(link.source?)];
    words.extend(link.destination.map(|address| format!("to {}", text(address))));
    let tags = link.tags.iter().flatten();
    words.extend(tags.map(|tag| format!("vlan {} priority {}", tag & 0x0fff, tag >> 13)));
    Some(words.join(" "))
}

fn dns_text(dns: &Dns) -> String {
    let after =
        |answer: &DnsAnswer| answer.after.map_or(String::new(), |after| format!(" after {}", time(after)));
    let answered = dns.answer.as_ref().map_or("no answer".to_owned(), |answer| {
        format!("code {}, {} answers{}", answer.code, answer.count, after(answer))
    });
    format!("dns type {}: {answered}", dns.kind)
}

fn tls_text(tls: &Tls) -> String {
    let mut words = vec![tls.version.map_or("tls".to_owned(), version)];
    words.extend(tls.cipher.map(|cipher| format!("cipher 0x{cipher:04x}")));
    let texts = [("alpn", &tls.alpn), ("ja3", &tls.ja3), ("ja4", &tls.ja4)];
    words.extend(
        texts.iter().filter(|(_, text)| !text.is_empty()).map(|(name, text)| format!("{name} {text}")),
    );
    words.join(" ")
}

fn http_text(http: &Http) -> String {
    let status = http.status.map_or(String::new(), |status| status.to_string());
    let agent = if http.user_agent.is_empty() { String::new() } else { format!("({})", http.user_agent) };
    let words = ["http", &http.method, &http.target, &status, &agent];
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Counts of both directions together, if there are any.
fn tcp_texts(tcp: &Tcp) -> impl Iterator<Item = String> + use<> {
    let sum = |of: fn(&TcpSide) -> u32| tcp.sides.iter().map(|side| u64::from(of(side))).sum::<u64>();
    let counts =
        [("out of order", sum(|side| side.out_of_order)), ("zero windows", sum(|side| side.zero_windows))];
    counts.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name} {count}"))
}

fn sizes_text(sizes: &[SizeCounts; 2]) -> String {
    let names = SIZES.iter().map(|most| format!("<={most}")).chain([format!(">{}", SIZES[SIZES.len() - 1])]);
    let counts = (0..=SIZES.len()).map(|class| u64::from(sizes[0][class]) + u64::from(sizes[1][class]));
    let some = names.zip(counts).filter(|(_, count)| *count > 0);
    format!("sizes {}", some.map(|(name, count)| format!("{name}: {count}")).collect::<Vec<_>>().join(", "))
}

/// Bytes of payload in the table; exports contain all.
const PAYLOAD_SHOWN: usize = 32;

/// A version of TLS or DTLS, by its number.
fn version(number: u16) -> String {
    match number {
        0x0300 => "ssl 3.0".to_owned(),
        0x0301..=0x0304 => format!("tls 1.{}", number - 0x0301),
        0xfeff => "dtls 1.0".to_owned(),
        0xfefd => "dtls 1.2".to_owned(),
        0xfefc => "dtls 1.3".to_owned(),
        number => format!("tls 0x{number:04x}"),
    }
}

/// A time of nanoseconds, in the greatest unit that it fills.
fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

fn details<'f, T>(flow: &'f Flow, of: impl FnOnce(&'f Details) -> Option<T>) -> Option<T> {
    flow.details.as_deref().and_then(of)
}

/// The name that a client asked for: in TLS, HTTP or DNS.
fn name(flow: &Flow) -> Option<&str> {
    let details = flow.details.as_deref()?;
    let tls = details.tls.as_ref().map(|tls| &*tls.server_name);
    let http = details.http.as_ref().map(|http| &*http.host);
    let dns = details.dns.as_ref().map(|dns| &*dns.name);
    tls.or(http).or(dns).filter(|name| !name.is_empty())
}

/// The whole way, in microseconds.
fn rtt(flow: &Flow) -> Option<u64> {
    let tcp = details(flow, |details| details.tcp)?;
    Some((tcp.server_rtt? + tcp.client_rtt?) / 1000)
}

/// Packets that were sent again, both ways.
fn again(flow: &Flow) -> Option<u64> {
    let tcp = details(flow, |details| details.tcp)?;
    Some(tcp.sides.iter().map(|side| u64::from(side.retransmitted)).sum())
}

fn protocol(number: u8) -> String {
    match number {
        ip_protocol::ICMP => "icmp".to_owned(),
        TCP => "tcp".to_owned(),
        ip_protocol::UDP => "udp".to_owned(),
        ip_protocol::ICMPV6 => "icmp6".to_owned(),
        ip_protocol::SCTP => "sctp".to_owned(),
        number => number.to_string(),
    }
}

/// Address and port of an endpoint, as far as they are known.
fn end(flow: &Flow, side: usize) -> Option<String> {
    let Endpoint { address, port, .. } = flow.endpoints[side];
    let has_port = ip_protocol::has_ports(flow.protocol) && flow.knows(KnownField::Port, side);
    match (flow.knows(KnownField::Address, side), has_port) {
        (true, true) => Some(std::net::SocketAddr::new(address, port).to_string()),
        (true, false) => Some(address.to_string()),
        (false, true) => Some(format!("-:{port}")),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapline_flow::{Collected, EndReason, FlowContext, KnownFields};
    use tapline_packet::Timestamp;

    /// A field that an exporter did not give is `-`, not 0.
    #[test]
    fn unknown_fields_are_no_zeros() {
        let side = |port| Endpoint {
            address: [0, 0, 0, 0].into(),
            port,
            packets: 0,
            bytes: 1500,
            first: Timestamp::EPOCH,
            last: Timestamp::EPOCH,
            tcp_flags: 0,
            tcp_flags_first: 0,
            ttl_min: 0,
            ttl_max: 0,
            tos: 0,
        };
        let mut known = KnownFields::default();
        [KnownField::Protocol, KnownField::Bytes, KnownField::Port]
            .iter()
            .for_each(|field| known.add(*field, 0));
        let collected = Collected {
            known,
            exporter: [192, 0, 2, 1].into(),
            domain: 0,
            sampling: None,
            egress: 0,
            direction: 0,
            prefix_lens: [0; 2],
            autonomous_systems: [0; 2],
            next_hop: None,
            post_addresses: [None; 2],
            post_ports: [None; 2],
            nat_event: None,
            firewall_event: None,
            is_beyond: false,
        };
        let flow = Flow {
            endpoints: [side(443), side(0)],
            protocol: TCP,
            end_reason: EndReason::Unknown,
            context: FlowContext::NONE,
            details: None,
            collected: Some(Box::new(collected)),
            id: 0,
        };
        let row = FlowRow::of(&flow, None);
        let cell = |name: &str| {
            let column = COLUMNS.iter().find(|column| column.name == name).expect("a column");
            column.of(&row).to_string()
        };
        let cells =
            ["protocol", "source", "destination", "packets", "bytes", "bytes_back", "state", "end"].map(cell);
        assert_eq!(cells, ["tcp", "-:443", "-", "-", "1,500", "-", "one way", "unknown"]);
    }
}
