//! `tapline watch`: rules over packets and flows. The command line becomes a graph, which runs as any other.
//!
//! ```text
//! device(eth0) -> watch("rules.toml", json=yes)
//! ```

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use clap::{Args, Subcommand};
use tapline_graph::plan::{PlanBuilder, StageDraft};
use tapline_packet::Interface;
use tapline_stages::{InterfaceOptions, check_watch, counted};

use crate::args::{LanguageArgs, SNAP_LEN};
use crate::compiler::Compiler;
use crate::destinations::{check_inputs, timed_inputs};
use crate::live::XdpArgs;
use crate::mistakes::mistake;
use crate::privileges;
use crate::run::{self, CommandArgs, RunOptions};
use crate::stored::TimeArgs;
use crate::wake::WakeArgs;

pub(crate) const EXAMPLES: &str = "\
Examples:
  tapline watch check rules.toml                           is the file right?
  tapline watch -r trace.pcapng --rules rules.toml         events of a file, by the time of its packets
  tapline watch -i eth0 --rules rules.toml --json          events as lines of JSON, as they happen
  tapline watch -i tap:office --rules rules.toml           watch as one of the readers of a capture of tapline serve
  tapline watch -i eth0 --rules rules.toml --directory /srv/watch    recordings of rules go there

A file of rules:
  [[rule]]
  name = \"port-scan\"
  on = \"flow begun\"                  # packet, flow begun, flow ended, new host, new pair, silence TIME, gap TIME, burst, account lost
  filter = \"tcp\"                     # in the pcap-filter language; or fpl = \"...\"
  by = [\"src\"]                       # counted for each: src, dst, sport, dport, proto, vlan, pair
  count = \"distinct dport\"           # events, packets, bytes, distinct FIELD
  window = \"10s\"
  above = 100                        # raised at this sum ...
  below = 20                         # ... and cleared at this one
  limit = \"10/1m\"                    # at most this many events; the others are counted
  message = \"{src} tried {value} ports\"
  record = { before = \"10s\", after = \"1m\", only = \"src\" }
  run = [\"logger\", \"-t\", \"tapline\"]   # the event is its standard input

  [[script]]
  name = \"beacon\"
  file = \"beacon.rhai\"

Events go to standard output; a table of all rules and the account follow on standard error at the end, and after kill -USR1. kill -HUP
has the file read again: rules that are as before go on with all that they remember, and a mistake leaves the rules as they are.
docs/watch.md has all words, the language of scripts, and what a live run and a file have in common.";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct WatchArgs {
    #[command(subcommand)]
    command: Option<WatchCommand>,
    /// Interface to watch: a name, a glob, or 'any'; xdp: before the name captures by AF_XDP; tap:NAME is a capture of
    /// tapline serve. May be repeated.
    #[arg(short, long, value_name = "NAME", help_heading = "Input")]
    interface: Vec<String>,
    /// Watch a capture file ('-' is standard input): pcap, pcapng, ERF; also gzip, zstd, lz4. store:DIRECTORY reads a
    /// store.
    #[arg(short = 'r', value_name = "FILE", help_heading = "Input", conflicts_with_all = ["interface", "netns", "container"])]
    read: Option<PathBuf>,
    #[command(flatten)]
    times: TimeArgs,
    #[command(flatten)]
    xdp: XdpArgs,
    /// File of rules, TOML.
    #[arg(long, value_name = "FILE", help_heading = "Rules")]
    rules: Option<PathBuf>,
    /// Folder for recordings, and for webhooks that wait to be sent.
    #[arg(long, value_name = "DIR", default_value = ".", help_heading = "Rules")]
    directory: PathBuf,
    /// Add lines of events to this file in place of standard output.
    #[arg(long, value_name = "FILE", help_heading = "Reports")]
    events: Option<PathBuf>,
    /// Print each event, then results and account, as JSON objects, one a line.
    #[arg(long, help_heading = "Reports")]
    json: bool,
    #[command(flatten)]
    wake: WakeArgs,
    #[command(flatten)]
    run: CommandArgs,
}

#[derive(Debug, Subcommand)]
enum WatchCommand {
    /// Check a file of rules: words, filters, scripts.
    Check(CheckArgs),
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// File of rules.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    language: LanguageArgs,
}

pub(crate) fn run(args: &WatchArgs) -> Result<ExitCode> {
    if let Some(WatchCommand::Check(check)) = &args.command {
        privileges::confine_compiler();
        return check_file(&check.file, check.language);
    }
    let Some(rules) = &args.rules else {
        return Err(mistake("no rules: name a file (--rules rules.toml); tapline watch --help shows one"));
    };
    check_inputs(&args.interface, args.read.as_deref(), &args.times)?;
    read_rules(rules, args.run.graph.language)?;
    let options =
        RunOptions { xdp: args.xdp, results_aside: true, wake: args.wake, ..args.run.options(args.json) };
    run::run_graph(&options, &graph(args, rules), args.run.show_graph)
}

fn check_file(path: &Path, language: LanguageArgs) -> Result<ExitCode> {
    // A mistake in the file is what the command looks for, and none of its caller.
    let (rules, scripts) = read_rules(path, language).map_err(|error| anyhow!("{error}"))?;
    let (rules, scripts) = (counted(rules as u64, "rule"), counted(scripts as u64, "script"));
    writeln!(io::stdout(), "file OK: {rules}, {scripts}")?;
    Ok(ExitCode::SUCCESS)
}

/// Reads a file of rules and compiles its filters, so that a mistake shows before anything is opened. Rules and scripts.
fn read_rules(path: &Path, language: LanguageArgs) -> Result<(usize, usize)> {
    let compiler = Compiler::new(SNAP_LEN, true, language, false, None);
    let options: InterfaceOptions = Arc::new(move |interface: &Interface| compiler.options(interface));
    let rules = check_watch(path, &[], &options).map_err(mistake)?;
    Ok((rules.rules.len(), rules.scripts.len()))
}

fn graph(args: &WatchArgs, rules: &Path) -> PlanBuilder {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let to = args.events.as_deref().unwrap_or(Path::new("-"));
    let watch = StageDraft::new("watch")
        .named("watch")
        .arg(text(rules))
        .by("--rules")
        .option("--events", "to", text(to))
        .option("--json", "json", args.json)
        .option("--directory", "directory", text(&args.directory));
    let mut graph = PlanBuilder::default();
    let sources = timed_inputs(&args.interface, args.read.as_deref(), &args.times);
    if let [source] = sources.as_slice() {
        graph.add_chain([source.clone(), watch]);
        return graph;
    }
    // Packets of several interfaces are taken in the order of their times.
    let all = graph.add_chain([StageDraft::new("merge").named("all"), watch])[0];
    for source in sources {
        let source = graph.add(source);
        graph.connect(source, all);
    }
    graph
}
