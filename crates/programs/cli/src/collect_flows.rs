//! `tapline collect-flows`: messages of routers and probes to flows. The command line becomes a graph, as that of
//! `probe`.
//!
//! ```text
//! listen(udp://:4739) | file | device -> filter("messages") -> sources :: collect(filter="flows") -> export :: ipfix(...)  -> top :: flowtop(...)
//! ```

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use tapline_capture::Listener;
use tapline_export::Destination;
use tapline_graph::plan::{PlanBuilder, StageDraft, Value};
use tapline_syntax::units::count_in;

use crate::compiler::check_filter;
use crate::destinations::{
    Destinations, ExportArgs, Records, destinations, inputs, is_on_stdout, lead, show,
};
use crate::flows;
use crate::mistakes::of_caller;
use crate::probe::TOP;
use crate::run::{self, CommandArgs, RunOptions};

pub(crate) const EXAMPLES: &str = "\
Examples:
  tapline collect-flows --listen udp://:4739,udp://:2055,udp://:6343   largest flows and sources until Ctrl-C
  tapline collect-flows --listen udp://:2055 --export json:- | jq .    each record as a line of JSON
  tapline collect-flows --listen udp://:4739 --export parquet:flows    Parquet by date and hour, for DuckDB, Polars, Spark and others
  tapline collect-flows --listen udp://:2055 --export 10.0.0.1:4739    NetFlow in, IPFIX out
  tapline collect-flows --listen udp://:6343 --scale                   sFlow, its samples multiplied by their rates
  tapline collect-flows --listen udp://:4739 --templates known        templates kept over restarts
  tapline collect-flows -r export.pcap                                 messages in a capture file
  tapline collect-flows -i eth0 --messages 'udp port 2055'             messages to another collector, seen on an interface
  tapline collect-flows --listen udp://:2055 'not net 10.0.0.0/8'      only flows with an address elsewhere
  tapline probe -r trace.pcap --export 127.0.0.1:4739                  something to collect

The first bytes of a datagram name its protocol: IPFIX, NetFlow v9, v7, v5 and v1, sFlow v5. A source is an exporter's address and port with one
of its domains (observation domain, source id, engine, sub-agent). Columns of the sources: lost, what is missing by the sequence numbers, in
the unit that the protocol counts; remarks tell of sampling, of messages that came late, and of what was refused by cause.
The account is of packets: datagrams up to the stage `sources`, behind it the packets that the flows count.
docs/collect.md has the fields that are read, the limits, and what the remarks mean.";

/// Elements in addition to the default ones, which collected flows have and metered ones have not.
const COLLECTED: &str =
    "exporterIPv4Address,exporterIPv6Address,bgpSourceAsNumber,bgpDestinationAsNumber,ipNextHopIPv4Address";

/// Elements of address translation and of firewalls, which lines have where a record has them. Messages would have zeros in
/// every other record.
const EVENTS: &str = "postNATSourceIPv4Address,postNATDestinationIPv4Address,postNAPTSourceTransportPort,\
    postNAPTDestinationTransportPort,natEvent,firewallEvent";

#[derive(Debug, Args)]
pub(crate) struct CollectArgs {
    /// Receive on these UDP addresses, with commas: udp://:PORT is a port on all addresses of this machine,
    /// udp://ADDRESS:PORT one on this address.
    #[arg(long, value_name = "ADDRESSES", help_heading = "Input", conflicts_with_all = ["interface", "read"])]
    listen: Option<String>,
    /// Read messages that others get on an interface: a name, a glob, or 'any'. May be repeated.
    #[arg(short, long, value_name = "NAME", help_heading = "Input")]
    interface: Vec<String>,
    /// Read messages in a capture file ('-' is standard input): pcap, pcapng, ERF; also gzip, zstd, lz4.
    #[arg(short = 'r', value_name = "FILE", help_heading = "Input", conflicts_with_all = ["interface", "netns", "container"])]
    read: Option<PathBuf>,
    /// Read only messages whose own packets this filter accepts, such as 'udp port 2055' on an interface, or 'src host
    /// 192.0.2.1', the exporter. FILTER selects among the flows in them.
    #[arg(long, value_name = "FILTER", help_heading = "Input")]
    messages: Option<String>,

    /// Keep templates and sampling intervals in this file over restarts: records that come before these are sent again can
    /// be read.
    #[arg(long, value_name = "FILE", help_heading = "Flows")]
    templates: Option<PathBuf>,
    /// Multiply packets and bytes of each flow by the sampling interval of its exporter, as an estimate. Records then
    /// carry the interval 1.
    #[arg(long, help_heading = "Flows")]
    scale: bool,
    /// The most sources, each an exporter's address and port and one of its domains. When there are more, those are
    /// forgotten that have not proved to be exporters, or are silent for the longest time.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = count_in::<u64>(1..=1_000_000), help_heading = "Flows")]
    sources_max: u64,

    /// Destinations, with commas. Collectors: udp://HOST:PORT, tcp://HOST:PORT; HOST:PORT means UDP, and the default
    /// port is 4739. Files: file:NAME (IPFIX), json:NAME and csv:NAME (lines of text), parquet:DIR (a directory by date
    /// and hour; only in builds with the feature `parquet`). - as a name is standard output. Receivers of batches:
    /// http://HOST/PATH, https://HOST/PATH, clickhouse://HOST/DB.TABLE (only in builds with the feature `http`),
    /// kafka://HOST/TOPIC (feature `kafka`), batch+file:NAME, batch+stdout: (docs/export.md).
    #[arg(long, value_name = "TO", help_heading = "Export")]
    export: Option<String>,
    #[command(flatten)]
    records: ExportArgs,
    /// Elements of a record, by IANA's names, with commas (docs/reference/elements.md). `default` means several, among them the
    /// exporter's address, autonomous systems and the next hop.
    #[arg(long, value_name = "NAMES", default_value = "default", help_heading = "Export")]
    template: String,

    /// Show the flows live: writes the file that `tapline view` reads, once a second. A flow counts when its record
    /// comes.
    #[arg(long, help_heading = "Reports")]
    view: bool,
    /// Also show all counters of the sources, as columns of numbers (docs/collect.md).
    #[arg(short, long, help_heading = "Reports")]
    verbose: bool,
    /// Print flows, sources and account as JSON on standard output, in two lines.
    #[arg(long, help_heading = "Reports")]
    json: bool,
    #[command(flatten)]
    run: CommandArgs,
    /// Report only flows that this filter accepts, in the pcap-filter language. It sees the addresses, protocol, ports,
    /// TCP flags and VLAN of each flow. Others are counted as filtered.
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
}

pub(crate) fn run(args: &CollectArgs) -> Result<ExitCode> {
    let to = check(args).map_err(of_caller)?;
    let options = RunOptions {
        results_aside: to.iter().any(is_on_stdout),
        flows: Some(flows::Style { verbose: args.verbose, top: args.records.top.unwrap_or(TOP) as usize }),
        ..args.run.options(args.json)
    };
    run::run_graph(&options, &graph(args, &to), args.run.show_graph)
}

/// The destinations, unless there are mistakes that the words of the command explain better than those of the graph.
fn check(args: &CollectArgs) -> Result<Vec<(&str, Destination)>> {
    match &args.listen {
        Some(text) => drop(Listener::addresses(text).map_err(|what| anyhow!("--listen: {what}"))?),
        None if args.read.is_none() && args.interface.is_empty() => bail!(
            "no messages: name addresses to listen on (--listen udp://:4739), a capture file (-r export.pcap) or an interface (-i eth0)"
        ),
        None => {}
    }
    let has_form = args.template != "default" || args.records.biflow;
    let (export, collectors) = (args.export.as_deref(), "udp://HOST:PORT, tcp://HOST:PORT");
    let to = destinations(export, has_form, args.json, &args.records, collectors)?;
    check_filter(&args.filter.join(" "))?;
    check_filter(args.messages.as_deref().unwrap_or_default())?;
    Ok(to)
}

/// The graph that does it.
fn graph(args: &CollectArgs, to: &Destinations<'_>) -> PlanBuilder {
    let mut graph = PlanBuilder::default();
    let file = args.read.as_ref().map(|path| path.to_string_lossy());
    let mut sources = inputs(&args.interface, file.as_deref());
    sources
        .extend(args.listen.iter().map(|text| StageDraft::new("listen").arg(text.as_str()).by("--listen")));
    let meter = lead(&mut graph, sources, args.messages.as_deref(), collector(args));
    let records =
        Records { template: of_rows(args), exporter: Some(Value::word("records")), args: &args.records };
    if let Some(export) = records.messages(to, &of_messages(args)) {
        let export =
            graph.add(args.records.places.add_to(export.with_some("exporter", records.exporter.clone())));
        graph.connect(meter, export);
    }
    records.write(&mut graph, meter, to, |_, stage| args.records.parquet.add_to(stage));
    let top = args.records.top.or(args.export.is_none().then_some(TOP));
    show(&mut graph, meter, args.view, top, &args.records.places);
    graph
}

fn collector(args: &CollectArgs) -> StageDraft {
    let templates = args.templates.as_ref().map(|path| path.to_string_lossy().into_owned());
    let filter = args.filter.join(" ");
    StageDraft::new("collect")
        .named("sources")
        .option("--scale", "scale", args.scale)
        .option("--sources-max", "sources", args.sources_max)
        .with_some("templates", templates)
        .with_some("filter", (!filter.trim().is_empty()).then_some(filter))
        .with_some("view", args.view.then_some(true))
}

/// The template of messages. Collectors of NetFlow know the default one best.
fn of_messages(args: &CollectArgs) -> String {
    let template = match (args.template.as_str(), args.records.version.as_str()) {
        ("default", "10") => format!("default,samplingInterval,{COLLECTED}"),
        (template, _) => template.to_owned(),
    };
    args.records.places.of_messages(&template, &args.records.version)
}

/// The template of lines, Parquet and batches: the default of each, with the elements of collected flows.
fn of_rows(args: &CollectArgs) -> String {
    let template = match args.template.as_str() {
        "default" => {
            format!("default,egressInterface,observationDomainId,samplingInterval,{COLLECTED},{EVENTS}")
        }
        template => template.to_owned(),
    };
    args.records.places.of_rows(&template)
}
