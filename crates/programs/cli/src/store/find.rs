//! `tapline find`: packets of a store, by time and filter.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{self, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use clap::{ArgAction, Args};
use tapline_graph::plan::{PlanBuilder, StageDraft};
use tapline_packet::Timestamp;
use tapline_store::{Catalog, StoreName, Window};
use tapline_syntax::units::count_in;
use tapline_tap_client::protocol::FindRequest;
use tapline_tap_client::{Client, PREFIX as TAP, socket_path};

use crate::args::{FormatArg, LanguageArgs};
use crate::capture::{self, ArrowArgs, CaptureArgs};
use crate::compiler::{check_filter, filter_text};
use crate::destinations::{PlaceArgs, collectors, inputs, lead, lines, show};
use crate::flows::Style;
use crate::mistakes::misuse;
use crate::probe::TOP;
use crate::report::AccountArgs;
use crate::run::{self, GraphArgs, RunOptions};
use crate::stored::PastArgs;
use crate::strict::ReportArgs;

pub(crate) const FIND_EXAMPLES: &str = "\
Examples:
  tapline find /srv/store --from -5m 'host 10.0.0.1 and tcp port 443'
  tapline find /srv/store --from 'yesterday 22:00' --to +10m -w night.pcapng
  tapline find /srv/store --from 2026-11-24T10:00:00Z --count 'udp port 53'
  tapline find /srv/store --from -1d --name .example.org       DNS, TLS and QUIC with the name
  tapline find /srv/store --explain 'host 192.0.2.7'           what was passed over, what was read
  tapline find /srv/store --from -1h --json icmp | jq .ipv4.src
  tapline find /srv/store --from -1h --arrow 'udp port 53' | python3 job.py    columns for programs
  tapline find tap:office --from -1h 'udp port 53'             by the rules of tapline serve, which records office
  tapline find /srv/store --from -1h --flows 'tcp port 443'    flows in place of packets

Times: 10:00, yesterday 22:00, 2026-11-24 10:00 (local), RFC 3339, -1h (ago), @SECONDS since 1970; --to also +5m after --from.

The index only passes over what cannot match: the filter decides about each packet, so a search finds what a scan finds. \
Packets come in the order of time. Where nothing is found, a line on standard error says why.

Exit status: 0 all packets of the time were searched, also where none matches; 1 an error; 3 packets may be missing, because \
parts of the store are damaged or unreadable: a line on standard error says how many.";

/// Arguments of `tapline find`.
#[derive(Debug, Args)]
pub(crate) struct FindArgs {
    /// The store: a directory that tapline record fills; or tap:NAME, a capture that tapline serve records, if its
    /// rules allow that (`store = true`). Without a right to the directory's files the daemon is asked too.
    #[arg(value_name = "STORE")]
    store: PathBuf,
    /// The filter, in the pcap-filter language and Tapline's words. Without one all packets of the time are meant.
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,

    #[command(flatten)]
    past: PastArgs,
    /// The socket of tapline serve, for tap:NAME.
    #[arg(long, value_name = "PATH", help_heading = "Store")]
    socket: Option<PathBuf>,

    /// Read the filter from a file.
    #[arg(short = 'F', value_name = "FILE", help_heading = "Filter")]
    filter_file: Option<PathBuf>,
    #[command(flatten)]
    language: LanguageArgs,
    /// Stop after this many packets, 1 or more.
    #[arg(short, value_name = "N", value_parser = count_in::<u64>(1..), help_heading = "Filter")]
    count_packets: Option<u64>,

    /// Write packets to a file ('-' is standard output). Its ending chooses the format: .pcapng, .erf or else pcap,
    /// and .gz, .zst or .lz4 after it.
    #[arg(short = 'w', value_name = "FILE", help_heading = "Output")]
    write: Option<PathBuf>,
    /// Write in this format, whatever the name says.
    #[arg(long, value_name = "FORMAT", help_heading = "Output", requires = "write")]
    format: Option<FormatArg>,
    /// Only count packets.
    #[arg(long, help_heading = "Output")]
    count: bool,
    /// Print the flows of the packets, as tapline probe does. With --json one object a flow; with -w NAME a file whose
    /// ending chooses the format: .csv, .json, .ipfix, or .parquet, a directory (a build with the feature parquet).
    #[arg(long, help_heading = "Output", conflicts_with_all = ["name", "max_read", "count", "count_packets", "format", "explain", "arrow"])]
    flows: bool,
    /// Print one JSON object a packet, and the account as the last object.
    #[arg(long, help_heading = "Output")]
    json: bool,
    #[command(flatten)]
    arrow: ArrowArgs,
    /// Show which segments and chunks the search skipped by time and by index, which it read, and which were gone.
    #[arg(long, help_heading = "Output")]
    explain: bool,
    #[command(flatten)]
    account: AccountArgs,

    /// Addresses and ports as numbers (twice: protocols too).
    #[arg(short = 'n', action = ArgAction::Count, help_heading = "Text")]
    numeric: u8,
    /// Show link-layer headers.
    #[arg(short = 'e', help_heading = "Text")]
    link_header: bool,
    /// Show more detail; may be repeated.
    #[arg(short = 'v', action = ArgAction::Count, help_heading = "Text")]
    verbose: u8,
    /// Time: -t none, -tt seconds since 1970, -ttt since the last packet, -tttt with date, -ttttt since the first.
    #[arg(short = 't', action = ArgAction::Count, help_heading = "Text")]
    time: u8,
    /// Packet bytes in hex and ASCII; twice: with the link-layer header.
    #[arg(short = 'X', action = ArgAction::Count, help_heading = "Text")]
    hex_ascii: u8,
}

/// Runs the command.
pub(crate) fn find(args: &FindArgs) -> Result<ExitCode> {
    let daemon = args.store.to_str().and_then(|name| name.strip_prefix(TAP));
    if args.flows && daemon.is_some() {
        misuse!("--flows needs the files of the store: tapline find DIRECTORY");
    }
    if args.flows {
        return flows(args);
    }
    let opened = if daemon.is_some() { Ok(()) } else { Catalog::open(&args.store).map(drop) };
    let input = match (daemon, opened) {
        (Some(capture), _) => {
            ask_daemon(args, FindRequest { capture: capture.to_owned(), ..FindRequest::default() })?
        }
        // The daemon that records it may show more than the files do.
        (None, Err(error)) if error.is_denied() => {
            let store = path::absolute(&args.store)?.display().to_string();
            let asked = ask_daemon(args, FindRequest { store, ..FindRequest::default() });
            asked.map_err(|answer| anyhow!("{error}; tapline serve was asked in vain: {answer:#}"))?
        }
        (None, _) if args.socket.is_some() => {
            misuse!("--socket is for captures of tapline serve: tapline find {TAP}NAME")
        }
        (None, _) => CaptureArgs {
            read: vec![StoreName::of(&args.store)],
            past: args.past.clone(),
            explain_search: args.explain,
            filter: args.filter.clone(),
            filter_file: args.filter_file.clone(),
            ..CaptureArgs::without_arguments()
        },
    };
    let capture = CaptureArgs {
        // An answer has packets as they are stored.
        snapshot_length: u32::MAX,
        language: args.language,
        count_packets: args.count_packets,
        write: args.write.clone(),
        format: args.format,
        count: args.count,
        json: args.json,
        arrow: args.arrow.clone(),
        numeric: args.numeric,
        link_header: args.link_header,
        verbose: args.verbose,
        report: ReportArgs { account: args.account, ..ReportArgs::default() },
        time: args.time,
        hex_ascii: args.hex_ascii,
        ..input
    };
    capture::run(&capture)
}

/// Has the daemon search a recording, which `named` names: its answer is a capture file in a pipe.
fn ask_daemon(args: &FindArgs, named: FindRequest) -> Result<CaptureArgs> {
    if args.explain {
        misuse!("--explain needs the files of the store: tapline find DIRECTORY");
    }
    let window = args.past.only_times()?;
    let bound = |at: Timestamp, none: Timestamp| Some(at.as_nanos()).filter(|_| at != none);
    let find = FindRequest {
        filter: args.language.in_words(&filter_text(args.filter_file.as_deref(), &args.filter)?),
        from_ns: bound(window.from, Window::ALL.from),
        to_ns: bound(window.to, Window::ALL.to),
        ..named
    };
    let program = format!("tapline find {}", env!("CARGO_PKG_VERSION"));
    let (_, pipe) = Client::connect(&socket_path(args.socket.as_deref()), &program)?.find(&find)?;
    Ok(CaptureArgs {
        read: vec![args.store.clone()],
        stream: Some(Arc::new(File::from(pipe))),
        ..CaptureArgs::without_arguments()
    })
}

/// The flows of the packets, as `tapline probe` meters them.
fn flows(args: &FindArgs) -> Result<ExitCode> {
    let store = args.past.name_of(&StoreName::of(&args.store))?;
    let export = export(args)?;
    let filter = filter_text(args.filter_file.as_deref(), &args.filter)?;
    check_filter(&filter)?;
    let filter = Some(filter.as_str()).filter(|filter| !filter.trim().is_empty());
    let mut graph = PlanBuilder::default();
    let meter = lead(&mut graph, inputs(&[], Some(&store)), filter, StageDraft::new("flow").named("meter"));
    let top = export.is_none().then_some(TOP);
    if let Some(stage) = export {
        let stage = graph.add(stage);
        graph.connect(meter, stage);
    }
    show(&mut graph, meter, false, top, &PlaceArgs::default());
    let options = RunOptions {
        results_aside: args.json && args.write.is_none(),
        flows: Some(Style { verbose: false, top: TOP as usize }),
        graph: GraphArgs {
            report: ReportArgs { account: args.account, ..ReportArgs::default() },
            language: args.language,
            ..GraphArgs::default()
        },
        ..RunOptions::default()
    };
    run::run_graph(&options, &graph, false)
}

/// The stage that writes the flows; `None` for a table.
fn export(args: &FindArgs) -> Result<Option<StageDraft>> {
    let Some(path) = &args.write else {
        return Ok(args.json.then(|| lines(0, "json", "-")));
    };
    let name = path.display().to_string();
    match path.extension().and_then(OsStr::to_str).unwrap_or_default() {
        format @ ("csv" | "json" | "parquet") => Ok(Some(lines(0, format, &name))),
        "ipfix" => Ok(Some(collectors(&format!("file:{name}")))),
        _ => misuse!("-w {name}: --flows writes .csv, .json, .ipfix and .parquet, by the ending of the name"),
    }
}
