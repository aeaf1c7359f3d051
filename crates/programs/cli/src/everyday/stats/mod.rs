//! `tapline stats`: packets and bytes per interval, of all packets and of each of several filters.

mod series;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::json;
use tapline_bpf::PacketFilter;
use tapline_graph::{Out, Packets, Stage, StageCounters, StageStatus, TickContext, grouped};
use tapline_jit::TieredFilter;
use tapline_packet::{BATCH_MAX, Interface, Timestamp};
use tapline_source::Error;
use tapline_stages::TagLook;

use self::series::{Amount, Row, Series};
use super::lines::{ResultLines, local, universal};
use super::{Input, SessionArgs, brief, capture};
use crate::args::{SNAP_LEN, parse_duration};
use crate::compiler::{Compiler, check_filter};
use crate::escape::plain;
use crate::mistakes::misuse;

pub(crate) const EXAMPLES: &str = "\
Examples:
  tapline stats -r trace.pcap -I 1s 'tcp' 'udp port 53'  like tshark -z io,stat
  tapline stats -i eth0                                  each second, like tcpstat
  tapline stats -i eth0 -I 10s --json | jq .bytes        for programs";

/// The most filters: a column each.
const FILTERS_MAX: usize = 32;
/// Time that packets of a live interval may take to arrive.
const LATENESS_NS: i64 = 300_000_000;

#[derive(Debug, Args)]
#[command(mut_args(brief))]
pub(crate) struct StatsArgs {
    /// Filters, each one argument: a column of packets and bytes for each.
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
    /// Interface: a name, a glob, a list (a,b), 'any', or tap:NAME.
    #[arg(short, long, value_name = "NAMES")]
    interface: Vec<String>,
    /// Read files ('-' is standard input), or store:DIRECTORY.
    #[arg(short = 'r', value_name = "FILE", conflicts_with = "interface")]
    read: Vec<PathBuf>,
    /// Length of an interval.
    ///
    /// The first begins with the first packet.
    #[arg(short = 'I', long, value_name = "TIME", default_value = "1s", value_parser = parse_step)]
    interval: Duration,
    #[command(flatten)]
    session: SessionArgs,
    /// Print JSON: an object an interval, the total, and the account.
    #[arg(long)]
    json: bool,
}

fn parse_step(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text)?;
    if time < Duration::from_millis(1) { Err("less than 1ms".to_owned()) } else { Ok(time) }
}

pub(crate) fn run(args: &StatsArgs) -> Result<ExitCode> {
    if args.filters.len() > FILTERS_MAX {
        misuse!("{} filters: there are {FILTERS_MAX} columns at most", args.filters.len());
    }
    args.filters.iter().try_for_each(|filter| check_filter(filter))?;
    let session = &args.session;
    let compiler = Compiler::new(
        SNAP_LEN,
        true,
        session.language,
        args.read.is_empty(),
        session.network.name().map(String::as_str),
    );
    let interval_ns = i64::try_from(args.interval.as_nanos()).unwrap_or(i64::MAX);
    let stage = StatsOutput {
        columns: args.filters.iter().map(|text| Column { text: text.clone(), filters: Vec::new() }).collect(),
        compiler: Arc::new(compiler),
        series: Series::new(interval_ns, 1 + args.filters.len()),
        interval_ns,
        lines: ResultLines::open()?,
        json: args.json,
        has_head: false,
        is_live: false,
        packets: 0,
        tags: if session.language.any_vlan { TagLook::OVER } else { TagLook::default() },
        events: Vec::new(),
        notices: Vec::new(),
    };
    let input = Input { interfaces: &args.interface, files: &args.read, filter: &[] };
    capture(session, &input, args.json, Box::new(stage))
}

/// A filter, and its program for each interface; `None` where it cannot be asked.
struct Column {
    text: String,
    filters: Vec<Option<TieredFilter>>,
}

struct StatsOutput {
    columns: Vec<Column>,
    compiler: Arc<Compiler>,
    series: Series,
    interval_ns: i64,
    lines: ResultLines,
    json: bool,
    has_head: bool,
    is_live: bool,
    packets: u64,
    tags: TagLook,
    events: Vec<String>,
    notices: Vec<String>,
}

impl StatsOutput {
    /// For each packet of the batch, the columns that count it, in bits: the first counts all.
    fn columns_of(&self, packets: &Packets<'_>) -> [u64; BATCH_MAX] {
        let mut columns = [1; BATCH_MAX];
        for (number, column) in self.columns.iter().enumerate() {
            let mut selection = packets.selection.clone();
            match column.filters.as_slice() {
                [Some(only)] => only.select(&packets.batch, &mut selection),
                several => selection.retain(|index| {
                    let packet = packets.batch.packet(index);
                    let filter = several.get(packet.meta.interface.0 as usize);
                    filter.and_then(Option::as_ref).is_some_and(|filter| filter.accepts(packet))
                }),
            }
            selection.iter().for_each(|index| columns[index] |= 2 << number);
        }
        columns
    }

    fn compile(&mut self, interfaces: &[Interface]) {
        let StatsOutput { columns, compiler, events, .. } = self;
        for column in columns {
            for interface in interfaces.iter().skip(column.filters.len()) {
                let program = compiler.program(&column.text, interface);
                if let Err(error) = &program {
                    let name = if interface.label().is_empty() { "an interface" } else { interface.label() };
                    events
                        .push(format!("{name}: the column of this filter has none of its packets: {error}"));
                }
                column.filters.push(program.ok().map(TieredFilter::new));
            }
        }
    }

    /// Prints the rows that are complete.
    fn print_rows(&mut self) {
        for row in std::mem::take(&mut self.series.rows) {
            let text = match (self.json, row) {
                (true, Row::Interval(start, amounts)) => {
                    self.row_json("time", universal(at(start)).into(), &amounts)
                }
                (true, Row::Empty(start, count)) => {
                    format!("{}\n", json!({"time": universal(at(start)), "empty_intervals": count}))
                }
                (false, Row::Interval(start, amounts)) => self.row_text(&self.time_text(start), &amounts),
                (false, Row::Empty(start, count)) => {
                    format!(
                        "{}  {} intervals without packets\n",
                        self.time_text(start),
                        grouped(count as u64)
                    )
                }
            };
            if !self.json && !std::mem::replace(&mut self.has_head, true) {
                let head = self.head();
                self.lines.add(&head);
            }
            self.lines.add(&text);
        }
    }

    fn time_text(&self, start: i64) -> String {
        let whole = self.interval_ns % 1_000_000_000 == 0;
        local(at(start), if whole { "%Y-%m-%d %H:%M:%S.%6f" } else { "%Y-%m-%d %H:%M:%S.%9f" })
    }

    /// The names of the columns, and below each packets and bytes.
    fn head(&self) -> String {
        let width = self.time_text(0).len();
        let mut names = " ".repeat(width);
        let mut units = format!("{:width$}", "time");
        let all = ["all".to_owned()].into_iter();
        for name in all.chain(self.columns.iter().map(|column| plain(&column.text))) {
            let _ = write!(names, "{:>GROUP_WIDTH$}", shortened(&name));
            let _ = write!(units, "{:>PACKETS_WIDTH$}{:>BYTES_WIDTH$}", "packets", "bytes");
        }
        format!("{names}\n{units}\n")
    }

    fn row_text(&self, name: &str, amounts: &[Amount]) -> String {
        let mut text = name.to_owned();
        for Amount { packets, bytes } in amounts {
            let _ = write!(text, "{:>PACKETS_WIDTH$}{:>BYTES_WIDTH$}", grouped(*packets), grouped(*bytes));
        }
        text + "\n"
    }

    fn row_json(&self, name: &str, value: serde_json::Value, amounts: &[Amount]) -> String {
        let filters = self.columns.iter().zip(&amounts[1..]).map(|(column, amount)| {
            json!({"filter": column.text, "packets": amount.packets, "bytes": amount.bytes})
        });
        let filters: Vec<_> = filters.collect();
        let mut row = json!({"packets": amounts[0].packets, "bytes": amounts[0].bytes, "filters": filters});
        row[name] = value;
        format!("{row}\n")
    }

    /// Hints at columns that counted nothing, where packets have VLAN tags.
    fn hint_at_tags(&mut self) {
        if self.tags.tagged() == 0 {
            return;
        }
        for (column, amount) in self.columns.iter().zip(&self.series.totals[1..]) {
            if amount.packets == 0 && !TagLook::is_known_to(&column.text) {
                self.notices.push(format!("`{}`: {}", column.text, TagLook::HINT));
            }
        }
    }

    fn print_total(&mut self) {
        let Series { late, untimed, .. } = self.series;
        let totals = self.series.totals.clone();
        if self.json {
            let total = json!({"interval_ns": self.interval_ns, "late": late, "untimed": untimed});
            let text = self.row_json("total", total, &totals);
            self.lines.add(&text);
            return;
        }
        let width = self.time_text(0).len();
        let text = self.row_text(&format!("{:width$}", "total"), &totals);
        self.lines.add(&text);
        let why_late = "before the first interval, or later than an interval is kept open";
        for (count, why) in [(late, why_late), (untimed, "without a time")] {
            if count > 0 {
                let s = if count == 1 { "" } else { "s" };
                self.lines.add(&format!("in the total alone: {} packet{s} {why}\n", grouped(count)));
            }
        }
    }
}

/// Widths of the numbers of a column.
const PACKETS_WIDTH: usize = 14;
const BYTES_WIDTH: usize = 18;
const GROUP_WIDTH: usize = PACKETS_WIDTH + BYTES_WIDTH;

/// A name that fits its column.
fn shortened(name: &str) -> String {
    const ROOM: usize = GROUP_WIDTH - 2;
    match name.chars().count() {
        ..=ROOM => name.to_owned(),
        _ => name.chars().take(ROOM - 3).chain("...".chars()).collect(),
    }
}

fn at(ns: i64) -> Timestamp {
    Timestamp::from_nanos(ns)
}

impl Stage for StatsOutput {
    fn push(&mut self, packets: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.compile(packets.interfaces);
        let columns = self.columns_of(packets);
        self.tags.look(packets, &packets.selection);
        self.packets += packets.len() as u64;
        for index in packets.selection.iter() {
            let meta = &packets.batch.records()[index].meta;
            self.is_live |= meta.if_index != 0;
            let time = (!meta.is_untimed).then(|| meta.timestamp.as_nanos());
            self.series.add(time, meta.wire_len, columns[index]);
        }
        self.print_rows();
        self.lines.offer()
    }

    fn idle(&mut self) -> Result<(), Error> {
        self.lines.flush()
    }

    fn tick(&mut self, tick: &TickContext<'_>, _: &mut Out<'_>) -> Result<StageStatus, Error> {
        if self.is_live {
            self.series.complete_before(tick.now.as_nanos().saturating_sub(LATENESS_NS));
            self.print_rows();
            self.lines.flush()?;
        }
        Ok(StageStatus::Running)
    }

    fn finish(&mut self, _: &TickContext<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.series.finish();
        self.print_rows();
        self.print_total();
        self.hint_at_tags();
        self.lines.flush()
    }

    fn counters(&self) -> StageCounters {
        StageCounters::of_written("stats", self.packets)
    }

    fn events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    fn notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }
}
