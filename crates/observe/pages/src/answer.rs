//! Questions for pages, and the answers of a moment.
//!
//! ```text
//! {second, window, account, ...}   the head: what every page shows
//! page: {...}                      the content of one page
//! ```

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Deref;

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};
use tapline_meters::Activity;
use tapline_view::{Amount, Dimension, Second};

use crate::feed::Snapshot;
use crate::filter_line::FilterLine;
use crate::fitting::{Fitting, FittingPart};
use crate::rights::Rights;
use crate::stack::Stack;
use crate::tables::{HostContent, SumTable, Tables};
use crate::words::KeyWords;

/// Rows of a table of the overview.
const ROWS_OVERVIEW: usize = 6;
/// Rows of each of the four tables of protocols.
const ROWS_PROTOCOLS: usize = 30;

tapline_packet::named_enum! {
    /// A page, in the order of its keys: 1 is the overview.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Page {
        /// Rates, losses, the greatest of each dimension.
        #[default]
        Overview = "overview",
        /// Hosts, or one host.
        Hosts = "hosts",
        /// Pairs of hosts.
        Pairs = "pairs",
        /// Flows.
        Flows = "flows",
        /// Services, names, VLANs and tunnels, interfaces.
        Protocols = "protocols",
        /// The account.
        Losses = "losses",
        /// Cycles by stage.
        Costs = "costs",
        /// Windows of the past.
        History = "history",
        /// Packets.
        Packets = "packets",
        /// Events of rules.
        Events = "events",
    }
}

impl Page {
    /// The dimensions of its tables, in the order in which they are shown.
    pub const fn dimensions(self) -> &'static [Dimension] {
        match self {
            Page::Overview => {
                &[Dimension::HostOut, Dimension::HostIn, Dimension::Service, Dimension::Name, Dimension::Pair]
            }
            Page::Hosts => &[Dimension::HostOut, Dimension::HostIn],
            Page::Pairs => &[Dimension::Pair],
            Page::Flows => &[Dimension::Flow],
            Page::Protocols => {
                &[Dimension::Service, Dimension::Name, Dimension::Segment, Dimension::Interface]
            }
            Page::Losses | Page::Costs | Page::History | Page::Packets | Page::Events => &[],
        }
    }
}

/// A question for a page.
#[derive(Clone, Debug)]
pub struct PageRequest {
    /// The page.
    pub page: Page,
    /// The host whose page is wanted, on the page of hosts.
    pub host: Option<IpAddr>,
    /// The condition for flows.
    pub filter: FilterLine,
    /// Seconds before now: 1 to [`WINDOW_MAX`](crate::WINDOW_MAX).
    pub window: usize,
    /// The most rows of a table: 1 to 256.
    pub rows: usize,
    /// The dimension of the layers of a chart: hosts or services; `None` for no chart.
    pub stack: Option<Dimension>,
    /// The rights of the viewer.
    pub rights: Rights,
}

/// The answer of a moment.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// The meter; `None` if none runs.
    pub process: Option<ProcessWords>,
    /// Number of running meters that we may read.
    pub processes: usize,
    /// Whether the meter still runs.
    pub is_alive: bool,
    /// The names of other meters that run, while this one has ended and is waited for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
    /// The rights of the viewer, as a word.
    pub rights: &'static str,
    /// The number of the last second.
    pub number: Option<u64>,
    /// The last second.
    pub second: Option<Totals>,
    /// Seconds in the window.
    pub seconds: usize,
    /// The totals of the window.
    pub window: Totals,
    /// Totals of the flows that fit the filter; `None` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fitting: Option<Fitting>,
    /// Traffic by key over the last seconds, if it is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack: Option<Stack>,
    /// The latest name of each host of the page that has one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<IpAddr, String>,
    /// The page.
    pub page: Content,
}

/// A meter.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessWords {
    /// Process identifier.
    pub pid: u32,
    /// Name, which stays the same over restarts.
    pub name: String,
    /// Command line.
    pub title: String,
    /// Whether its packets are of live interfaces.
    pub is_live: bool,
    /// The sampling interval: one packet in this number is metered.
    pub sampling: u64,
    /// Start, in nanoseconds since 1970.
    pub since_ns: u64,
    /// Addresses of the host on which it runs, by which packets are sent or received; none if that is not known.
    pub own: Vec<IpAddr>,
    /// Number of these addresses: the file of the meter has some of them at most.
    pub own_count: u64,
}

/// A second, or several. The page has packets and bytes as pairs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals(pub Second);

/// The content specific to one page.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Content {
    /// Tables by the name of their dimension.
    Tables(BTreeMap<&'static str, SumTable>),
    /// One host.
    Host(Box<HostContent>),
    /// Cycles by stage.
    Costs(Costs),
    /// Nothing beyond the head.
    Head {},
}

/// Work of the stages in the last second.
#[derive(Clone, Debug, Serialize)]
pub struct Costs {
    /// The stages.
    pub stages: Vec<StageWords>,
    /// Ticks of their clock in a second.
    pub frequency_hz: u64,
    /// The time in which they worked, in seconds.
    pub seconds: f64,
}

/// The work of a stage.
#[derive(Clone, Debug, Serialize)]
pub struct StageWords {
    /// Name of the stage.
    pub name: String,
    /// Class of the stage.
    pub class: String,
    /// Threads that have it.
    pub workers: usize,
    /// Share of the cycles of all stages.
    pub share: Option<f64>,
    /// Packets that came in.
    pub packets_in: u64,
    /// Packets that went out.
    pub packets_out: u64,
    /// Cycles of the stage, without those of the stages that it called.
    pub cycles: u64,
    /// Cycles since the start.
    pub cycles_total: u64,
    /// Packets that came in since the start.
    pub packets_total: u64,
    /// The median of its cycles a packet.
    pub median: Option<f64>,
    /// The 99th hundredth of its cycles a packet.
    pub p99: Option<f64>,
}

/// The totals of the last seconds by columns, for a chart.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Series {
    /// The number of the last.
    pub number: Option<u64>,
    /// The ends, in seconds since 1970.
    pub t: Vec<f64>,
    /// Bits a second.
    pub bits: Vec<f64>,
    /// Packets a second.
    pub packets: Vec<f64>,
    /// Packets lost a second.
    pub lost: Vec<f64>,
    /// Flows.
    pub active: Vec<u64>,
    /// Traffic of the meter's host by direction; empty where its addresses are not known.
    #[serde(flatten)]
    pub directions: Directions,
}

/// Columns of what a host sent and received, for a chart; points without a value are not known.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Directions {
    /// Bits a second that it sent.
    pub out_bits: Vec<Option<f64>>,
    /// Bits a second that it received.
    pub in_bits: Vec<Option<f64>>,
    /// Packets a second that it sent.
    pub out_packets: Vec<Option<f64>>,
    /// Packets a second that it received.
    pub in_packets: Vec<Option<f64>>,
}

impl Directions {
    /// Adds a point; `None` for an amount that is not known.
    pub fn push(&mut self, sent: Option<Amount>, received: Option<Amount>, len_ns: u64) {
        let bits = |amount: Amount| rate(amount.bytes.saturating_mul(8), len_ns);
        let packets = |amount: Amount| rate(amount.packets, len_ns);
        self.out_bits.push(sent.map(bits));
        self.in_bits.push(received.map(bits));
        self.out_packets.push(sent.map(packets));
        self.in_packets.push(received.map(packets));
    }
}

fn rate(count: u64, len_ns: u64) -> f64 {
    count as f64 * 1e9 / len_ns.max(1) as f64
}

impl PageRequest {
    /// The answer of a moment.
    pub fn answer(&self, snapshot: &Snapshot) -> Answer {
        let totals = snapshot.totals(self.window);
        let last = snapshot.seconds.back();
        let page = self.content(snapshot, &totals);
        Answer {
            process: snapshot.process.as_ref().map(|process| ProcessWords {
                pid: process.pid,
                name: process.name(),
                title: process.title.clone(),
                is_live: process.is_live,
                sampling: process.sampling,
                since_ns: process.created_ns,
                own: process.own.clone(),
                own_count: process.own_count,
            }),
            processes: snapshot.processes,
            is_alive: snapshot.is_alive,
            others: snapshot.others.clone(),
            rights: self.rights.name(),
            number: last.map(|(number, _)| *number),
            second: last.map(|&(_, second)| Totals(second)),
            seconds: snapshot.last(self.window).count(),
            window: Totals(totals),
            fitting: Fitting::of(&self.filter, snapshot, self.window),
            stack: Stack::of(self, snapshot),
            names: self.names(snapshot, &page),
            page,
        }
    }

    /// Names from payloads are for those who may have them.
    fn names(&self, snapshot: &Snapshot, page: &Content) -> BTreeMap<IpAddr, String> {
        if self.rights < Rights::Names {
            return BTreeMap::new();
        }
        snapshot.names().latest(page.keys().into_iter().flat_map(|key| key.hosts()))
    }

    fn content(&self, snapshot: &Snapshot, totals: &Second) -> Content {
        let tables = Tables { request: self, snapshot, totals };
        let rows = match self.page {
            Page::Overview => self.rows.min(ROWS_OVERVIEW),
            Page::Protocols => self.rows.min(ROWS_PROTOCOLS),
            _ => self.rows,
        };
        match (self.page, self.host) {
            (Page::Costs, _) => Content::Costs(Costs::of(snapshot)),
            (Page::Losses | Page::History | Page::Packets | Page::Events, _) => Content::Head {},
            (Page::Hosts, Some(host)) => Content::Host(Box::new(tables.host(host))),
            (page, _) => {
                let all = page.dimensions().iter().map(|of| (of.name(), tables.table(*of, rows)));
                Content::Tables(all.collect())
            }
        }
    }
}

impl Content {
    /// The keys of all rows.
    fn keys(&self) -> Vec<&KeyWords> {
        match self {
            Content::Tables(tables) => {
                tables.values().flat_map(|table| &table.rows).map(|row| &row.key).collect()
            }
            Content::Host(host) => {
                let parts = [&host.pair, &host.flow];
                parts.into_iter().flat_map(|part| &part.rows).map(|row| &row.key).collect()
            }
            Content::Costs(_) | Content::Head {} => Vec::new(),
        }
    }
}

impl Deref for Totals {
    type Target = Second;

    fn deref(&self) -> &Second {
        &self.0
    }
}

impl Serialize for Totals {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let mut out = out.serialize_struct("Totals", 21)?;
        out.serialize_field("end_ns", &self.end_ns)?;
        out.serialize_field("len_ns", &self.len_ns)?;
        out.serialize_field("offered", &[self.offered(), self.offered_bytes()])?;
        out.serialize_field("metered", &[self.metered, self.metered_bytes])?;
        out.serialize_field("flow_bytes", &self.flow_bytes)?;
        out.serialize_field("not_ip", &[self.not_ip, self.not_ip_bytes])?;
        out.serialize_field("cut", &[self.cut, self.cut_bytes])?;
        out.serialize_field("sampled_out", &[self.sampled_out, self.sampled_out_bytes])?;
        out.serialize_field("lost_ring", &self.lost_ring)?;
        out.serialize_field("lost_daemon", &self.lost_daemon)?;
        out.serialize_field("lost_before", &self.lost_before)?;
        out.serialize_field("active", &self.active)?;
        out.serialize_field("made", &self.made)?;
        out.serialize_field("ended", &self.ended)?;
        out.serialize_field("late", &self.late)?;
        out.serialize_field("room", &self.room)?;
        out.serialize_field("delivered", &self.delivered)?;
        out.serialize_field("workers", &self.workers)?;
        out.serialize_field("unranked", &self.unranked)?;
        out.serialize_field("sent", &[self.sent.packets, self.sent.bytes])?;
        out.serialize_field("received", &[self.received.packets, self.received.bytes])?;
        out.end()
    }
}

impl Totals {
    /// The length in seconds, at least a millisecond.
    pub fn seconds(&self) -> f64 {
        (self.len_ns as f64 / 1e9).max(0.001)
    }
}

impl Costs {
    fn of(snapshot: &Snapshot) -> Costs {
        let stages = snapshot.stages.iter().filter(|stage| !stage.has_ended()).map(StageWords::of);
        Costs { stages: stages.collect(), frequency_hz: snapshot.frequency_hz, seconds: snapshot.stages_s }
    }
}

impl StageWords {
    fn of(stage: &Activity) -> StageWords {
        StageWords {
            name: stage.recent.name.clone(),
            class: stage.recent.class.clone(),
            workers: stage.workers,
            share: stage.share,
            packets_in: stage.recent.packets_in,
            packets_out: stage.recent.packets_out,
            cycles: stage.recent.cycles,
            cycles_total: stage.total.cycles,
            packets_total: stage.total.packets_in,
            median: stage.recent.percentile(0.5),
            p99: stage.recent.percentile(0.99),
        }
    }
}

impl Series {
    /// The last `most` seconds.
    pub fn of(snapshot: &Snapshot, most: usize) -> Series {
        let seconds = &snapshot.seconds;
        let mut series = Series { number: seconds.back().map(|(number, _)| *number), ..Series::default() };
        let has_own = !snapshot.own().is_empty();
        for (_, second) in seconds.iter().skip(seconds.len().saturating_sub(most)) {
            let rate = |count: u64| rate(count, second.len_ns);
            series.t.push(second.end_ns as f64 / 1e9);
            series.bits.push(rate(second.offered_bytes().saturating_mul(8)));
            series.packets.push(rate(second.offered()));
            series.lost.push(rate(second.lost()));
            series.active.push(second.active);
            if has_own {
                series.directions.push(Some(second.sent), Some(second.received), second.len_ns);
            }
        }
        series
    }

    /// The flows that fit a filter, in the seconds whose tables are kept, as far as these have rows of them.
    pub fn fitting(snapshot: &Snapshot, most: usize, filter: &FilterLine) -> Series {
        let number = snapshot.readings.back().map(|reading| reading.number);
        let mut series = Series { number, ..Series::default() };
        let own = snapshot.own();
        for reading in snapshot.last(most) {
            let flows = reading.table(Dimension::Flow);
            // Of a second whose tables were missed it is not known what fits.
            if flows.rows.is_empty() && flows.missing != Amount::default() {
                continue;
            }
            let part = FittingPart::of(flows, filter, own);
            let Second { end_ns, len_ns, .. } = reading.second;
            let of = |[packets, bytes]: [u64; 2]| Amount { packets, bytes };
            series.t.push(end_ns as f64 / 1e9);
            series.bits.push(rate(part.amount[1].saturating_mul(8), len_ns));
            series.packets.push(rate(part.amount[0], len_ns));
            series.active.push(part.flows);
            if !own.is_empty() {
                series.directions.push(Some(of(part.sent)), Some(of(part.received)), len_ns);
            }
        }
        series
    }
}
