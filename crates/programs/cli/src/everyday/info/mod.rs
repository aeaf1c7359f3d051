//! `tapline info`: a summary of files, or of packets that come.
//!
//! ```text
//! files       opened, rights given up; each: read --> Summary    beside it a thread: SHA-256
//! tap:, store:, -i    a capture --> stage SummaryOutput --> the same
//! ```

mod files;
mod ranking;
mod report;
mod summary;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use tapline_graph::{Out, Packets, Stage, StageCounters, TickContext};
use tapline_packet::Interface;
use tapline_source::{Count, Error, InterfaceAccount, LossPoint};
use tapline_syntax::units::count_in;
use tapline_tap_client::PREFIX as TAP;

use self::report::InputFacts;
use self::summary::Summary;
use super::{Input, SessionArgs, brief, capture};
use crate::mistakes::misuse;
use crate::{output, stored};

pub(crate) const EXAMPLES: &str = "\
Examples:
  tapline info trace.pcapng                 instead of capinfos and tshark -z io,phs
  tapline info --json *.pcap | jq .packets  an object a file
  tapline info -i eth0 --duration 10s       the next ten seconds of an interface";

#[derive(Debug, Args)]
#[command(mut_args(brief))]
pub(crate) struct InfoArgs {
    /// Read files ('-' is standard input), or one store:DIRECTORY, or tap:NAME.
    ///
    /// Formats are pcap, pcapng and ERF, plain or compressed with gzip, zstd or lz4.
    #[arg(value_name = "FILE", required_unless_present = "interface", conflicts_with = "interface")]
    files: Vec<PathBuf>,
    /// Interface: a name, a glob, several with commas, or 'any'.
    #[arg(short, long, value_name = "NAMES")]
    interface: Vec<String>,
    #[command(flatten)]
    session: SessionArgs,
    /// Rows of hosts and of services.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = count_in::<u32>(..=65_536))]
    top: u32,
    /// Print JSON: an object a file, and the account.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &InfoArgs) -> Result<ExitCode> {
    let is_tap = |name: &PathBuf| name.to_str().is_some_and(|name| name.starts_with(TAP));
    let is_special = |name: &PathBuf| is_tap(name) || stored::directory(name).is_some();
    let (interfaces, stores) = match args.files.as_slice() {
        [] => (args.interface.clone(), Vec::new()),
        [only] if is_tap(only) => (vec![only.display().to_string()], Vec::new()),
        [only] if is_special(only) => (Vec::new(), vec![only.clone()]),
        names if names.iter().any(is_special) => {
            misuse!("a store or a capture of tapline serve is read alone: leave the other files out")
        }
        names => return files::run(names, args),
    };
    let names = interfaces.iter().cloned().chain(stores.iter().map(|name| name.display().to_string()));
    let facts = InputFacts { name: names.collect::<Vec<_>>().join(", "), ..InputFacts::default() };
    let stage = SummaryOutput { facts, summary: Summary::new(), rows: args.top as usize, json: args.json };
    let input = Input { interfaces: &interfaces, files: &stores, filter: &[] };
    capture(&args.session, &input, args.json, Box::new(stage))
}

/// Summarises packets, and prints the summary at the end.
struct SummaryOutput {
    facts: InputFacts,
    summary: Summary,
    rows: usize,
    json: bool,
}

impl Stage for SummaryOutput {
    fn push(&mut self, packets: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.summary.take(packets);
        Ok(())
    }

    fn join(&mut self, interfaces: &[Interface]) {
        self.summary.join(interfaces);
    }

    fn finish(&mut self, tick: &TickContext<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.facts.dropped = tick.interfaces.iter().map(dropped).collect();
        write(&self.facts, &self.summary, self.rows, self.json).map_err(|error| match error.downcast() {
            Ok(error) => Error::output("standard output", error),
            Err(error) => Error::output("standard output", std::io::Error::other(error)),
        })
    }

    fn counters(&self) -> StageCounters {
        StageCounters::of_written("info", self.summary.packets)
    }
}

/// Packets that an interface lost before we saw them, as far as it is known; the driver's own counters hold others too.
fn dropped(account: &InterfaceAccount) -> Option<u64> {
    let losses = account.losses.iter().filter(|loss| loss.place != LossPoint::Driver);
    let known = losses.filter_map(|loss| match loss.count {
        Count::Known(count) => Some(count),
        Count::Unknown => None,
    });
    let ring = account.ring.map(|ring| ring.dropped);
    let all: Vec<u64> = known.chain(ring).collect();
    (!all.is_empty()).then(|| all.iter().fold(0, |sum: u64, count| sum.saturating_add(*count)))
}

fn write(facts: &InputFacts, summary: &Summary, rows: usize, json: bool) -> Result<()> {
    output::tell(&match json {
        true => format!("{}\n", report::to_json(facts, summary, rows)),
        false => report::text(facts, summary, rows),
    })
}

/// The name for people.
fn name_of(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".to_owned() } else { path.display().to_string() }
}
