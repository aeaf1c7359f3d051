//! The arguments of `tapline run`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tapline_syntax::units::count_in;

use super::settings::RunSettings;
use crate::args::{LanguageArgs, parse_duration};
use crate::flows::Style;
use crate::live::XdpArgs;

pub(crate) const EXAMPLES: &str = "\
Examples:
  tapline run -e 'device(eth0) -> filter(\"tcp port 80\") -> record(\"web.pcapng\")'
  tapline run -e 'file(\"a.pcap\") -> top(by=flow, n=20)'
  tapline run web.graph dns.graph                  what both have in common runs once
  tapline run --check --explain web.graph          is it right, and what the planner makes of it
  tapline run --dot web.graph | dot -Tsvg          a drawing
  tapline run --stages                             every class of stages; --stages sample: one of them

The language: name :: class(arguments) declares a stage, a -> b -> c connects. docs/graph.md has the grammar.";

#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    /// Files that hold graphs. Several run as one: stages that they have in common run once.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// A graph as text. May be repeated, and stand beside files.
    #[arg(short = 'e', value_name = "TEXT")]
    pub(crate) text: Vec<String>,
    /// Only check whether the graph is right.
    #[arg(long)]
    pub(crate) check: bool,
    /// Only draw the graph, in the language of Graphviz.
    #[arg(long, conflicts_with = "check")]
    pub(crate) dot: bool,
    /// Say changes by the planner: which stages run once for several, which filters the kernel runs.
    #[arg(long)]
    pub(crate) explain: bool,
    /// Read the files again on SIGHUP: graphs come, go and change while the others run on and miss nothing. Sources stay as they are. Filters then
    /// run here, one by one, not in the kernel.
    #[arg(long, conflicts_with = "workers")]
    pub(crate) reload: bool,
    /// Describe the classes of stages, or the one named.
    #[arg(long, value_name = "CLASS", num_args = 0..=1, default_missing_value = "")]
    pub(crate) stages: Option<String>,
    /// Open devices in this network namespace (`ip netns list`).
    #[arg(long, value_name = "NAME")]
    pub(crate) netns: Option<String>,
    #[command(flatten)]
    pub(crate) xdp: XdpArgs,
    /// Allow bounce and reflect on this interface of any kind. May be repeated. Without it they send on loopback and veth
    /// interfaces only.
    #[arg(long, value_name = "IFACE")]
    pub(crate) i_own_this_network: Vec<String>,
    /// Threads that share the packets of each source by host, each with the graph up to the first stage that must see all packets in their order;
    /// from there on one thread has those of all. Results are those of one worker; packets reach files and lines batch by batch, not strictly by
    /// time, unless `merge` stands before them.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count_in::<u16>(1..=64))]
    pub(crate) workers: u16,
    /// Stop after this time: 90, 90s, 5m, 1h.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// Results and account as JSON, on standard output.
    #[arg(long)]
    pub(crate) json: bool,
    /// Results go where the account goes, for standard output has something else.
    #[arg(skip)]
    pub(crate) results_aside: bool,
    /// Show results of `meter` and `top` as flows, as text: `tapline probe`.
    #[arg(skip)]
    pub(crate) flows: Option<Style>,
    #[command(flatten)]
    pub(crate) language: LanguageArgs,
    /// User of the process once all is open. Default for root: the caller of sudo.
    #[arg(short = 'Z', long, value_name = "USER")]
    pub(crate) relinquish_privileges: Option<String>,
    /// As root, write through a symbolic link that has the name of a file; otherwise that is an error.
    #[arg(long)]
    pub(crate) follow_links: bool,
}

impl RunArgs {
    /// Settings of the run's sources and outputs.
    pub(super) fn settings(&self) -> RunSettings {
        RunSettings {
            netns: self.netns.clone(),
            json: self.json,
            owned: self.i_own_this_network.clone(),
            xdp: self.xdp,
            ..RunSettings::default()
        }
    }
}
