//! `tapline probe`: packets to flows, flows to collectors. The command line becomes a graph, which runs as any other.
//!
//! ```text
//! device(eth0) -> filter("...") -> meter :: flow(...) -> export :: ipfix(...)        without --export: -> top :: flowtop(...)
//! ```

use std::io::{self, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use tapline_export::Destination;
use tapline_flow::export::{EXAMPLE_ENTERPRISE, Element, Version};
use tapline_flow::{DetailFields, KeyFields, PAYLOAD_MAX, Sampling, TIMEOUT_MAX};
use tapline_graph::plan::{PlanBuilder, StageDraft, Value};
use tapline_syntax::units::{count_in, size_in};

use crate::args::parse_duration;
use crate::compiler::check_stage_filter;
use crate::destinations::{
    Destinations, ExportArgs, Records, check_inputs, collectors_of, destinations, is_on_stdout, lead, show,
    timed_inputs,
};
use crate::flows;
use crate::live::XdpArgs;
use crate::mistakes::of_caller;
use crate::run::{self, CommandArgs, RunOptions};
use crate::stored::TimeArgs;
use crate::topics;
use crate::wake::WakeArgs;

pub(crate) const EXAMPLES: &str = "\
Examples:
  tapline probe -r trace.pcap                                        the largest flows of a file
  tapline probe -r trace.pcap --export file:trace.ipfix              its flows as IPFIX (RFC 5655)
  tapline probe -r trace.pcap --export json:- | jq .communityId      as lines of JSON; csv:NAME for spreadsheets
  tapline probe -r trace.pcap --details tcp,tls,dns,application      with round trips, retransmissions, names, applications
  tapline probe -i eth0 --export parquet:flows                       as Parquet by date and hour, for DuckDB, Polars, Spark and others
  tapline probe -i eth0 --export https://receiver/flows --spool /var/spool/tapline,20G     acknowledged batches
  tapline probe -i eth0 --view                                       for tapline view, in a browser
  tapline probe -i eth0 --export udp://10.0.0.1:4739                 flows of an interface, to a collector
  tapline probe -i eth0 --export udp://a:2055 --version 9            NetFlow v9; --version 5 for older collectors
  tapline probe -i eth0 --export tls://collector --tls-ca ca.pem --tls-cert probe.pem \\
      --tls-key probe.key
  tapline probe -i eth0 --export a:4739,b:4739 --spread flow         half of the flows to each of two collectors
  tapline probe -i eth0 --sample 100 --export a:4739                 1 in 100 packets; records carry the interval
  tapline probe -i eth0 --sample-flows 100 --sample-seed 7           1 in 100 flows, the same in each probe with this seed
  tapline probe -i eth0 --key vlan,tunnel --inner                    flows inside tunnels, separate by VLAN and tunnel
  tapline probe -r trace.pcap --key no-client-port,ipv4/24           one flow for all connections of a network to a service
  tapline probe -r trace.pcap --biflow --template sourceIPv4Address,destinationIPv4Address,octetDeltaCount \\
      --export tcp://collector:4739                                  fields of your choice, both directions in one record
  nfcapd -l /tmp/flows -p 4739 & \\
      tapline probe -r trace.pcap --rate 2000 --export localhost:4739; nfdump -R /tmp/flows

Without --export the largest flows are shown as a table. Columns: bytes and packets count both directions; back is the bytes that the
destination sent; state is the state of TCP (open, closing, closed, reset, refused, no answer), or for other protocols whether the
destination answered (answered, one way); ended is the reason for the end of the record: idle (--idle-timeout), active (--active-timeout;
the flow goes on in another record), end (of TCP), forced (end of the capture), full (--flows-max). A line about all flows and the account
follow. kill -USR1 prints the same during the run.

From a file, messages carry the capture's time, and sequence numbers begin at 0. With -v, `meter` is a row of statistics. Columns: flows,
the flows begun; idle, active, end, forced and full, the flows ended for each reason; most, the largest number at a time; room, the size of
the table; late, packets older than one before them; ahead, packets of a live interface more than a second ahead of the clock; no_room,
details left out for lack of memory.
docs/reference/elements.md lists the fields, docs/flow-table.md the cost.";

/// Flows that are shown where nothing is exported.
pub(crate) const TOP: u32 = 10;

#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    /// Interface to meter: a name, a glob, or 'any'; xdp: before the name captures by AF_XDP. May be repeated.
    #[arg(short, long, value_name = "NAME", help_heading = "Input")]
    interface: Vec<String>,
    /// Meter a capture file ('-' is standard input): pcap, pcapng, ERF; also gzip, zstd, lz4. store:DIRECTORY reads a
    /// store.
    #[arg(short = 'r', value_name = "FILE", help_heading = "Input", conflicts_with_all = ["interface", "netns", "container"])]
    read: Option<PathBuf>,
    #[command(flatten)]
    times: TimeArgs,
    #[command(flatten)]
    xdp: XdpArgs,
    #[command(flatten)]
    wake: WakeArgs,
    /// Threads that share the packets by host; each meters and exports on its own, in its own observation domain. Not
    /// for a single output file (file:, json:, csv:).
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count_in::<u16>(1..=64), help_heading = "Input")]
    workers: u16,

    /// Active timeout: a flow older than this is exported, and continues in another record: seconds, or 90s, 5m, 1h.
    #[arg(long, value_name = "TIME", default_value = "60", value_parser = parse_duration, help_heading = "Flows")]
    active_timeout: Duration,
    /// Idle timeout: a flow ends if no packet came for longer than this.
    #[arg(long, value_name = "TIME", default_value = "15", value_parser = parse_duration, help_heading = "Flows")]
    idle_timeout: Duration,
    /// Idle timeout of TCP flows after FIN from both sides or RST.
    #[arg(long, value_name = "TIME", default_value = "2", value_parser = parse_duration, help_heading = "Flows")]
    closed_timeout: Duration,
    /// The most flows at a time, of 195 bytes each (more with --details: docs/flow-table.md), allocated as they come. A
    /// full table ends the flow that was idle longest.
    #[arg(long, value_name = "N", default_value_t = 1 << 20, value_parser = count_in::<u64>(1..=1_000_000_000), help_heading = "Flows")]
    flows_max: u64,
    /// Fields of the flow key in addition to addresses, ports and protocol: vlan, mpls, tunnel, tos, interface. Fields
    /// to leave out of it, which merges flows: no-ports, no-client-port (the higher port), no-protocol, ipv4/24 and
    /// ipv6/64 (hosts of a network). With commas.
    #[arg(long, value_name = "FIELDS", default_value = "none", help_heading = "Flows")]
    key: String,
    /// Meter the packets inside tunnels: GRE, VXLAN, Geneve, GTP, IP in IP, ERSPAN, MPLS.
    #[arg(long, help_heading = "Flows")]
    inner: bool,
    /// Count bytes of frames, not of IP packets.
    #[arg(long, help_heading = "Flows")]
    layer2: bool,
    /// Collect further details of flows: tcp (round trips, retransmissions, windows), sizes, gaps, dns, tls (server
    /// name, JA3, JA4), http, application, payload, ethernet (MAC addresses, VLAN tags), mpls (label stack), with
    /// commas; or all. They are shown with the flows, and their elements are added to the template.
    #[arg(long, value_name = "GROUPS", default_value = "none", help_heading = "Flows")]
    details: String,
    /// With --details payload: bytes of the first payload to keep for each direction [default: 64].
    #[arg(long, value_name = "BYTES", value_parser = size_in::<u16>(1..=u64::from(PAYLOAD_MAX)), help_heading = "Flows")]
    payload: Option<u16>,
    /// Sampling interval N: one random packet of each block of N is metered. Records carry the interval, and are not
    /// scaled.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count_in::<u64>(1..=1_000_000), help_heading = "Flows")]
    sample: u64,
    /// Sampling of flows: one flow in N is metered, whole and both directions, as a hash of its key decides. IPFIX and
    /// NetFlow v9 report it in an options record; counts are not scaled.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count_in::<u64>(1..=1_000_000), conflicts_with = "sample", help_heading = "Flows")]
    sample_flows: u64,
    /// Seed of either sample: probes with the same seed and --key choose the same flows. The default 0 is a secret seed
    /// on live interfaces, which no sender can avoid, and always the same for files.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = count_in::<u32>(..), help_heading = "Flows")]
    sample_seed: u32,
    /// With --sample N or --sample-flows N: multiply packets and bytes of each flow by N, as an estimate. Records then
    /// carry the interval 1.
    #[arg(long, help_heading = "Flows")]
    scale: bool,
    /// Leave out flows with fewer packets, of both directions. Their packets are counted in the account.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count_in::<u64>(1..=1_000_000), help_heading = "Flows")]
    min_packets: u64,
    /// Leave out flows with fewer bytes, of both directions, by protocol: TCP[:UDP[:OTHERS]], as 500:100. Their packets
    /// are counted in the account.
    #[arg(long, value_name = "LIMITS", default_value = "0", help_heading = "Flows")]
    min_bytes: String,
    /// Flows to export: any, those with packets of both directions, or those of one direction alone (scans, lost
    /// answers). Packets of others are counted in the account.
    #[arg(long, value_name = "WHICH", default_value = "any", value_parser = ["any", "both", "one"], help_heading = "Flows")]
    directions: String,

    /// Destinations, with commas. Collectors: udp://HOST:PORT, tcp://HOST:PORT, tls://HOST:PORT (only in builds with the
    /// feature `tls`); HOST:PORT means UDP, and the default port is 4739, of TLS 4740. Files: file:NAME (IPFIX),
    /// json:NAME and csv:NAME (lines of text), parquet:DIR (a directory by date and hour; only in builds with the feature
    /// `parquet`). - as a name is standard output. Receivers of batches: http://HOST/PATH, https://HOST/PATH,
    /// clickhouse://HOST/DB.TABLE (only in builds with the feature `http`),
    /// kafka://HOST/TOPIC (feature `kafka`), batch+file:NAME, batch+stdout: (docs/export.md).
    #[arg(long, value_name = "TO", help_heading = "Export")]
    export: Option<String>,
    #[command(flatten)]
    records: ExportArgs,
    /// Elements of a record, by IANA's names, with commas (docs/reference/elements.md). `default` and the words of --details each
    /// mean several.
    #[arg(long, value_name = "NAMES", default_value = "default", help_heading = "Export")]
    template: String,
    /// The exporter's address: source of the messages, and value of exporterIPv4Address or exporterIPv6Address in a
    /// template.
    #[arg(long, value_name = "ADDRESS", help_heading = "Export")]
    exporter: Option<IpAddr>,
    /// Private enterprise number for elements that IANA does not have; the default is reserved for examples (RFC 5612).
    #[arg(long, value_name = "N", default_value_t = EXAMPLE_ENTERPRISE, value_parser = count_in::<u32>(1..), help_heading = "Export")]
    enterprise: u32,
    /// Send templates again after this many messages, over UDP.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = count_in::<u32>(1..=1_000_000), help_heading = "Export")]
    template_messages: u32,
    /// Send templates again after this time, over UDP.
    #[arg(long, value_name = "TIME", default_value = "60", value_parser = parse_duration, help_heading = "Export")]
    template_time: Duration,
    /// The longest time that a message of a live interface waits for further records; in tenths of a second.
    #[arg(long, value_name = "TIME", default_value = "1", value_parser = parse_duration, help_heading = "Export")]
    message_delay: Duration,
    /// Send a message once it has this many records; 0 waits until it is full, or --message-delay is over.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = count_in::<u16>(..), help_heading = "Export")]
    message_records: u16,
    /// For tls://: PEM file of the authorities that may have signed the collector's certificate.
    #[arg(long, value_name = "FILE", help_heading = "Export")]
    tls_ca: Option<PathBuf>,
    /// For tls://: PEM file of the exporter's certificate, for collectors that ask for one.
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = "Export")]
    tls_cert: Option<PathBuf>,
    /// PEM file of the key to --tls-cert.
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "Export")]
    tls_key: Option<PathBuf>,
    /// For tls://: the name that the collector's certificate must have, if not the host of its address.
    #[arg(long, value_name = "NAME", help_heading = "Export")]
    tls_name: Option<String>,
    /// Distribution over collectors. all: each gets all flows; flow: each flow goes to one of them.
    #[arg(long, value_name = "HOW", default_value = "all", value_parser = ["all", "flow"], help_heading = "Export")]
    spread: String,
    /// Limit of messages per second to each collector; 0 is none. Metering waits for it, so it is for files. After
    /// Ctrl-C the rest is still sent at this rate; a second Ctrl-C drops it, and the account counts it as lost.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = count_in::<u32>(..=10_000_000), help_heading = "Export")]
    rate: u32,

    /// Show the traffic live: writes the file that `tapline view` reads, once a second. Names and applications are
    /// collected for it.
    #[arg(long, help_heading = "Reports")]
    view: bool,
    /// Also show statistics of the flow table, as columns of numbers (docs/flows.md).
    #[arg(short, long, help_heading = "Reports")]
    verbose: bool,
    /// Print flows, statistics and account as JSON on standard output, in two lines.
    #[arg(long, help_heading = "Reports")]
    json: bool,
    #[command(flatten)]
    run: CommandArgs,
    /// Meter only packets that this filter accepts, in the pcap-filter language.
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
}

pub(crate) fn run(args: &ProbeArgs) -> Result<ExitCode> {
    topics::of_sources(args.read.as_slice(), &args.interface)?;
    check_inputs(&args.interface, args.read.as_deref(), &args.times)?;
    let to = check(args).map_err(of_caller)?;
    let options = RunOptions {
        xdp: args.xdp,
        wake: args.wake,
        workers: args.workers,
        results_aside: to.iter().any(is_on_stdout),
        flows: Some(flows::Style { verbose: args.verbose, top: args.records.top.unwrap_or(TOP) as usize }),
        ..args.run.options(args.json)
    };
    run::run_graph(&options, &graph(args, &to), args.run.show_graph)
}

/// The destinations, unless there are mistakes that the words of the command explain better than those of the graph.
fn check(args: &ProbeArgs) -> Result<Vec<(&str, Destination)>> {
    if KeyFields::parse(&args.key)?.tunnel && !args.inner {
        let what = "--key tunnel has no effect without --inner: no tunnel is removed";
        writeln!(io::stderr(), "tapline: {what}")?;
    }
    let details = DetailFields::parse(&args.details)?;
    let has_form = args.template != "default" || args.records.biflow;
    let collectors = "udp://HOST:PORT, tcp://HOST:PORT, tls://HOST:PORT";
    let export = args.export.as_deref();
    let to = destinations(export, has_form, args.json, &args.records, collectors)?;
    for (name, time) in [
        ("--active-timeout", args.active_timeout),
        ("--idle-timeout", args.idle_timeout),
        ("--closed-timeout", args.closed_timeout),
    ] {
        if time > TIMEOUT_MAX {
            bail!("{name}: ten years are the longest");
        }
    }
    if args.payload.is_some() && !details.payload {
        bail!("--payload is for --details payload, which is not asked for");
    }
    if collectors_of(&to).is_some() {
        check_sampling(args)?;
        if args.records.version == "5" && details.any() {
            bail!("NetFlow v5 has no place for --details: use --version 10");
        }
    }
    check_stage_filter(&args.filter.join(" "))?;
    Ok(to)
}

fn check_sampling(args: &ProbeArgs) -> Result<()> {
    let version = args.records.version.parse().ok().and_then(Version::of_number).unwrap_or_default();
    let sampling = match args.sample_flows {
        _ if args.scale => Sampling::NONE,
        1 => Sampling::Packets(args.sample as u32),
        interval => Sampling::Flows(interval as u32),
    };
    Ok(version.check_sampling(sampling)?)
}

/// The graph that does it.
fn graph(args: &ProbeArgs, to: &Destinations<'_>) -> PlanBuilder {
    let mut graph = PlanBuilder::default();
    let sources = timed_inputs(&args.interface, args.read.as_deref(), &args.times);
    let filter = (!args.filter.is_empty()).then(|| args.filter.join(" "));
    let meter = lead(&mut graph, sources, filter.as_deref(), meter(args));
    let records = Records {
        template: args.records.places.of_rows(&template(args)),
        exporter: args.exporter.map(|address| address.to_string().into()),
        args: &args.records,
    };
    let messages = args.records.places.of_messages(&template(args), &args.records.version);
    if let Some(stage) = records.messages(to, &messages) {
        let export = graph.add(export(args, &records, stage));
        graph.connect(meter, export);
    }
    records.write(&mut graph, meter, to, |format, stage| match format {
        "parquet" => args.records.parquet.add_to(stage),
        _ => stage,
    });
    let top = args.records.top.or(args.export.is_none().then_some(TOP));
    show(&mut graph, meter, args.view, top, &args.records.places);
    graph
}

fn meter(args: &ProbeArgs) -> StageDraft {
    let sampled = if args.sample_flows > 1 { "flow" } else { "packet" };
    let meter = StageDraft::new("flow")
        .named("meter")
        .option("--active-timeout", "active", args.active_timeout)
        .option("--idle-timeout", "idle", args.idle_timeout)
        .option("--closed-timeout", "closed", args.closed_timeout)
        .option("--flows-max", "flows", args.flows_max)
        .option("--key", "key", args.key.as_str())
        .option("--inner", "inner", args.inner)
        .option("--layer2", "bytes", Value::word(if args.layer2 { "frame" } else { "ip" }))
        .option("--sample", "sample", args.sample.max(args.sample_flows))
        .option("--sample-flows", "sample_by", Value::word(sampled))
        .option("--sample-seed", "seed", args.sample_seed)
        .option("--details", "details", details(args).words())
        .option("--payload", "payload", args.payload.unwrap_or(64))
        .option("--min-packets", "min_packets", args.min_packets)
        .option("--min-bytes", "min_bytes", args.min_bytes.as_str())
        .option("--directions", "directions", Value::word(&args.directions))
        .option("--scale", "scale", args.scale);
    meter.with_some("view", args.view.then_some(true))
}

/// Fields of flows: those of the options, and those that the template needs.
fn details(args: &ProbeArgs) -> DetailFields {
    let asked = DetailFields::parse(&args.details).unwrap_or_default();
    let viewed = DetailFields { tls: true, dns: true, http: true, application: true, ..DetailFields::NONE };
    let of_view = if args.view { viewed } else { DetailFields::NONE };
    asked.with(Element::needs_of(&args.template)).with(of_view)
}

/// The template with the elements of `--details`.
fn template(args: &ProbeArgs) -> String {
    match DetailFields::parse(&args.details).unwrap_or_default() {
        DetailFields::NONE => args.template.clone(),
        asked => format!("{},{}", args.template, asked.words()),
    }
}

fn export(args: &ProbeArgs, records: &Records<'_>, stage: StageDraft) -> StageDraft {
    let export = stage
        .option("--template-messages", "templates", args.template_messages)
        .option("--template-time", "template_time", args.template_time)
        .option("--message-delay", "delay", args.message_delay)
        .option("--message-records", "records", args.message_records)
        .option("--spread", "spread", Value::word(&args.spread))
        .option("--rate", "rate", args.rate)
        .option("--enterprise", "enterprise", args.enterprise)
        .with_some("exporter", records.exporter.clone());
    let file = |path: &Option<PathBuf>| path.as_ref().map(|path| path.to_string_lossy().into_owned());
    let export = export
        .with_some("tls_ca", file(&args.tls_ca))
        .with_some("tls_cert", file(&args.tls_cert))
        .with_some("tls_key", file(&args.tls_key))
        .with_some("tls_name", args.tls_name.as_deref());
    args.records.places.add_to(export)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use tapline_graph::plan::{GraphText, Plan};

    use crate::run::catalog;

    #[derive(Debug, Parser)]
    struct ProbeLine {
        #[command(flatten)]
        args: ProbeArgs,
    }

    fn graph_of(line: &str) -> PlanBuilder {
        let words = ["probe"].into_iter().chain(line.split_whitespace());
        let args = ProbeLine::try_parse_from(words).expect(line).args;
        graph(&args, &check(&args).expect(line))
    }

    #[test]
    fn arguments_become_a_graph() {
        for (line, nodes) in [
            ("-r a.pcap", 3),
            ("-r a.pcap --export 127.0.0.1:9 --version 9 --biflow", 3),
            ("-r a.pcap --export 127.0.0.1:9,json:a --details tcp,tls --template default,dnsQueryName", 4),
            ("-i eth0 -i eth1 --export udp://a:1,udp://b:2 --spread flow --top 7 udp port 53", 6),
            ("-r a.pcap --export json:a.json,csv:-,127.0.0.1:9 --top 3", 6),
            ("-r a.pcap --export [::1]:9,json:a --exporter ::1 --template default,exporterIPv6Address", 4),
            ("-r a.pcap --export parquet:flows,json:- --parquet-size 1M --parquet-time 90s --domain 7", 4),
            ("-i eth0 --view --export json:a", 4),
            ("-r a.pcap --export http://h/p,batch+file:a --spool s,20G --sensor x --batch-time 1s", 4),
            ("-r a\\\"b.pcap --key vlan,tos --inner --active-timeout 1.5m --idle-timeout 500ms", 3),
        ] {
            let graph = graph_of(line);
            let plan = graph.plan(catalog()).unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(plan.nodes.len(), nodes, "{graph}");
            let read = Plan::new(catalog(), &[GraphText { name: "probe", text: &graph.to_string() }]);
            assert_eq!(read.unwrap_or_else(|why| panic!("{why}")).dot(), plan.dot(), "{graph}");
        }
        assert!(graph_of("-r a").to_string().contains("active=60000000000ns, idle=15000000000ns"));
    }
}
