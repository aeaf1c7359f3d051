//! The arguments of `tapline run`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tapline_syntax::units::count_in;

use super::settings::RunSettings;
use crate::args::{LanguageArgs, NetworkArgs, parse_duration};
use crate::flows::Style;
use crate::live::XdpArgs;
use crate::strict::ReportArgs;
use crate::wake::WakeArgs;

pub(crate) const EXAMPLES: &str = "\
Examples:
  tapline run -e 'device(eth0) -> filter(\"tcp port 80\") -> record(\"web.pcapng\")'
  tapline run -e 'file(\"a.pcap\") -> top(by=flow, n=20)'
  tapline run web.graph dns.graph                  common stages run once
  tapline run --check --explain web.graph          check it, and list the planner's changes
  tapline run --dot web.graph | dot -Tsvg          a drawing
  tapline run --stages                             all classes of stages; --stages sample: one of them

The language: name :: class(arguments) declares a stage, a -> b -> c connects. docs/graph.md has the grammar.";

#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    /// Files with graphs. Several run together: stages that they have in common run once.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// A graph as text. May be repeated, and combined with files.
    #[arg(short = 'e', value_name = "TEXT")]
    pub(crate) text: Vec<String>,
    /// Only check the graph for errors.
    #[arg(long)]
    pub(crate) check: bool,
    /// Only print the graph in the language of Graphviz.
    #[arg(long, conflicts_with = "check")]
    pub(crate) dot: bool,
    /// List the planner's changes: stages that run once for several graphs, and filters that the kernel runs.
    #[arg(long)]
    pub(crate) explain: bool,
    /// Read the files again on SIGHUP: graphs are added, removed and changed while the others run on without loss.
    /// Sources stay as they are. Filters then run in this process, one by one, and not in the kernel.
    #[arg(long, conflicts_with = "workers")]
    pub(crate) reload: bool,
    /// Describe all classes of stages, or the named one.
    #[arg(long, value_name = "CLASS", num_args = 0..=1, default_missing_value = "")]
    pub(crate) stages: Option<String>,
    #[command(flatten)]
    pub(crate) options: RunOptions,
}

/// Options of a run, whatever the stages of the graph are.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    #[command(flatten)]
    pub(crate) xdp: XdpArgs,
    #[command(flatten)]
    pub(crate) wake: WakeArgs,
    /// Allow bounce and reflect to send on this interface. May be repeated. Without it they send on loopback and veth
    /// interfaces only.
    #[arg(long, value_name = "IFACE")]
    pub(crate) i_own_this_network: Vec<String>,
    /// Threads that share the packets of each source by host. Each runs the graph up to the first stage that needs all
    /// packets in order; one thread runs the rest. Results are the same as with one worker; packets reach files and
    /// lines ordered within batches, not strictly by time, unless `merge` comes before the output.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count_in::<u16>(1..=64))]
    pub(crate) workers: u16,
    /// Stop after this time: 90, 90s, 5m, 1h.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// Print results and account as JSON on standard output.
    #[arg(long)]
    pub(crate) json: bool,
    /// Results go to standard error: standard output carries exported rows.
    #[arg(skip)]
    pub(crate) results_aside: bool,
    /// Show results of `meter` and `top` as flows, as text: `tapline probe`.
    #[arg(skip)]
    pub(crate) flows: Option<Style>,
    #[command(flatten)]
    pub(crate) graph: GraphArgs,
}

/// Options of commands that become a graph.
#[derive(Debug, Args)]
pub(crate) struct CommandArgs {
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    /// Print this command as a graph for `tapline run`, and stop.
    #[arg(long, help_heading = "Reports")]
    pub(crate) show_graph: bool,
    /// Stop after this time: 90, 90s, 5m, 1h.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,
    #[command(flatten)]
    pub(crate) graph: GraphArgs,
}

impl CommandArgs {
    pub(crate) fn options(&self, json: bool) -> RunOptions {
        let CommandArgs { network, duration, graph, .. } = self;
        let (network, graph) = (network.clone(), graph.clone());
        RunOptions { network, duration: *duration, json, graph, ..RunOptions::default() }
    }
}

/// Options of every command that runs a graph.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct GraphArgs {
    #[command(flatten)]
    pub(crate) report: ReportArgs,
    #[command(flatten)]
    pub(crate) language: LanguageArgs,
    /// Run as this user once everything is open. Default for root: the caller of sudo.
    #[arg(short = 'Z', long, value_name = "USER")]
    pub(crate) relinquish_privileges: Option<String>,
    /// As root, follow a symbolic link at the path of an output; without this option that is an error.
    #[arg(long)]
    pub(crate) follow_links: bool,
}

impl RunOptions {
    /// Settings of the run's sources and outputs.
    pub(super) fn settings(&self) -> RunSettings {
        RunSettings {
            netns: self.network.name().cloned(),
            json: self.json,
            owned: self.i_own_this_network.clone(),
            xdp: self.xdp,
            wake: self.wake.wake,
            ..RunSettings::default()
        }
    }
}
