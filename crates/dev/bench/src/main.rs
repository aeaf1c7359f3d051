//! Workloads as data, peers side by side, ratios of medians.
//!
//! ```text
//! for each workload
//!   check      every peer gives the same answer, or the workload is not measured
//!   for each run, for each peer (the order rotates)
//!     measure  processor time, user and system, of that peer alone
//!   report     median of each peer, ratio to tapline, the goal
//! ```
//!
//! The machine may be busy: runs of the peers alternate, so what disturbs one disturbs all, and the ratio of the
//! medians is what counts. `--csv` keeps every single run.
#![forbid(unsafe_code)]

mod accounting;
mod collect;
mod ending;
mod export;
mod file;
mod flows;
mod fpl;
mod live;
mod patterns;
mod print;
mod rate;
mod readers;
mod report;
mod ring;
mod sets;
mod signatures;
mod store;
mod traffic;
mod versions;
mod view;
mod watch;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use report::Report;
use std::path::PathBuf;
use tapline_measure::filter;

/// Compare Tapline with tcpdump, dumpcap and libpcap on this machine.
#[derive(Debug, Parser)]
#[command(name = "tapline-bench", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    workload: Workload,
    #[command(flatten)]
    options: Options,
}

#[derive(Clone, Debug, Subcommand)]
enum Workload {
    /// Builds of several commits at the same work: whole commands on the same files, in turns. Prints a table for a
    /// document.
    Versions(versions::VersionsArgs),
    /// Everything below, with its defaults.
    All,
    /// Read and filter a file: against `tcpdump -r`.
    File(file::FileArgs),
    /// Print a file as text: against `tcpdump -n -r`.
    Print(print::PrintArgs),
    /// Capture from a virtual link to a file: against tcpdump and dumpcap at the same offered load. Needs root.
    Live(live::LiveArgs),
    /// Run filters: each engine that there is, the same filters on the same packets.
    Filter(filter::FilterArgs),
    /// FPL programs: native code compared with C that does the same.
    Fpl(fpl::FplArgs),
    /// Search payloads for many patterns at once: each engine that there is.
    Patterns(patterns::PatternsArgs),
    /// Signatures in Snort's language: the cost of thousands, compared with none and with the search for their
    /// contents.
    Signatures(signatures::SignaturesArgs),
    /// Many filters at once: what a packet costs as their number grows, and what changes cost while packets flow.
    Sets(sets::SetsArgs),
    /// Cost of counting cycles: a graph with and without.
    Accounting(accounting::AccountingArgs),
    /// Packets to flows to IPFIX: against softflowd and nfpcapd.
    Flows(flows::FlowsArgs),
    /// Messages of exporters to flows: against nfcapd.
    Collect(collect::CollectArgs),
    /// Flows to batches in each format: compared with lines, and with pmacctd's JSON.
    Export(export::ExportArgs),
    /// Flows for the view: a meter with the stage `view` behind it, against the meter alone.
    View(view::ViewArgs),
    /// Rules that watch: a thousand of them, against one of each kind.
    Watch(watch::WatchArgs),
    /// Make packets from recipes: the cost of one, compared with building it from nothing.
    Traffic(traffic::TrafficArgs),
    /// Send at rates from 1,000 packets a second to all that goes, by each back end: what was asked for and what was
    /// achieved. Needs root.
    Rate(rate::RateArgs),
    /// The shared ring: storing a packet once, indexing it for 1 to 16 readers, reading it.
    Ring(ring::RingArgs),
    /// Many readers of one interface: a tcpdump for each against one daemon for all. Needs root.
    Readers(readers::ReadersArgs),
    /// The recorder: the cost to keep a packet and to find it again, compared with Stenographer and others. Needs root.
    Store(store::StoreArgs),
    /// Send traffic: the sending half of `live`, in a process of its own.
    #[command(hide = true)]
    Send(live::SendArgs),
}

/// Options of all workloads.
#[derive(Clone, Debug, Args)]
struct Options {
    /// Runs of each peer in each workload.
    #[arg(long, default_value_t = 5, global = true)]
    runs: usize,
    /// Write every run to this file, as comma-separated values.
    #[arg(long, value_name = "FILE", global = true)]
    csv: Option<PathBuf>,
    /// The tapline program. By default the one in the directory of this program.
    #[arg(long, value_name = "PATH", global = true)]
    tapline: Option<PathBuf>,
    /// Folder for temporary files, which take as much room as the workload asks for.
    #[arg(long, value_name = "FOLDER", global = true)]
    folder: Option<PathBuf>,
}

impl Options {
    fn tapline(&self) -> anyhow::Result<PathBuf> {
        let path = match &self.tapline {
            Some(path) => path.clone(),
            None => std::env::current_exe()?.with_file_name("tapline"),
        };
        anyhow::ensure!(path.exists(), "{} is not there: build it first (make bench does)", path.display());
        Ok(path)
    }

    fn folder(&self) -> anyhow::Result<tempfile::TempDir> {
        let parent = self.folder.clone().unwrap_or_else(std::env::temp_dir);
        let folder = tempfile::Builder::new()
            .prefix("tapline-bench-")
            .tempdir_in(&parent)
            .with_context(|| format!("making a folder in {}", parent.display()))?;
        ending::note_folder(folder.path());
        Ok(folder)
    }
}

fn main() -> anyhow::Result<()> {
    if filter::answered()? {
        return Ok(());
    }
    let Cli { workload, options } = Cli::parse();
    if let Workload::Send(args) = workload {
        return live::send(&args);
    }
    ending::clean_up_on_signals().context("signals")?;
    let outcome = run(workload, &options);
    ending::wait_if_ending();
    outcome
}

fn run(workload: Workload, options: &Options) -> anyhow::Result<()> {
    let mut report = Report::new(options.csv.as_deref())?;
    report.describe_machine();
    match workload {
        Workload::File(args) => file::run(&args, options, &mut report),
        Workload::Print(args) => print::run(&args, options, &mut report),
        Workload::Live(args) => live::run(&args, options, &mut report),
        Workload::Filter(args) => filter::run(&args, options.runs, || ()),
        Workload::Fpl(args) => fpl::run(&args, options.runs, options.folder()?.path()),
        Workload::Patterns(args) => patterns::run(&args, options, &mut report),
        Workload::Signatures(args) => signatures::run(&args, options, &mut report),
        Workload::Sets(args) => sets::run(&args, options.runs),
        Workload::Accounting(args) => accounting::run(&args, options, &mut report),
        Workload::Flows(args) => flows::run(&args, options, &mut report),
        Workload::Collect(args) => collect::run(&args, options, &mut report),
        Workload::Export(args) => export::run(&args, options, &mut report),
        Workload::View(args) => view::run(&args, options, &mut report),
        Workload::Watch(args) => watch::run(&args, options, &mut report),
        Workload::Traffic(args) => traffic::run(&args, options.runs),
        Workload::Rate(args) => rate::run(&args, options),
        Workload::Ring(args) => ring::run(&args, options.runs),
        Workload::Readers(args) => readers::run(&args, options),
        Workload::Store(args) => store::run(&args, options),
        Workload::Versions(args) => versions::run(&args, options, &mut report),
        Workload::All => all(options, &mut report),
        Workload::Send(_) => Ok(()),
    }
}

fn all(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    filter::run(&Default::default(), options.runs, || ())?;
    fpl::run(&Default::default(), options.runs, options.folder()?.path())?;
    ring::run(&Default::default(), options.runs)?;
    patterns::run(&Default::default(), options, report)?;
    signatures::run(&Default::default(), options, report)?;
    sets::run(&Default::default(), options.runs)?;
    traffic::run(&Default::default(), options.runs)?;
    file::run(&Default::default(), options, report)?;
    flows::run(&Default::default(), options, report)?;
    collect::run(&Default::default(), options, report)?;
    export::run(&Default::default(), options, report)?;
    accounting::run(&Default::default(), options, report)?;
    view::run(&Default::default(), options, report)?;
    watch::run(&Default::default(), options, report)?;
    print::run(&Default::default(), options, report)?;
    if let Err(reason) = tapline_testkit::netns::may_make_namespaces() {
        eprintln!("live: left out: {reason}");
        return Ok(());
    }
    rate::run(&Default::default(), options)?;
    readers::run(&Default::default(), options)?;
    store::run(&Default::default(), options)?;
    live::run(&Default::default(), options, report)
}

#[cfg(test)]
mod tests {
    use tapline_testkit::documents;

    use super::*;

    /// Commands of the documents: in code blocks, in README's table behind its last bar, and after BENCH=.
    fn documented() -> Vec<(String, Vec<String>)> {
        let mut found = Vec::new();
        for document in documents::all() {
            let mut add = |text: &str| {
                let words = documents::command(text, "tapline-bench");
                found.extend(words.map(|words| (format!("{}: {text}", document.name), words)));
            };
            document.blocks().iter().flat_map(|block| &block.lines).for_each(|line| add(line));
            let mut is_in_table_of_commands = false;
            for line in document.text.lines() {
                if let Some((_, text)) = line.split_once("BENCH=\"") {
                    add(&format!("tapline-bench {}", text.split('"').next().unwrap_or_default()));
                }
                // In prose: `tapline-bench ...`.
                line.split('`')
                    .skip(1)
                    .step_by(2)
                    .filter(|text| text.starts_with("tapline-bench "))
                    .for_each(&mut add);
                let cell =
                    line.strip_suffix(" |").and_then(|row| row.rsplit("| ").next()).unwrap_or_default();
                is_in_table_of_commands &= line.starts_with('|');
                if is_in_table_of_commands {
                    cell.split('`').skip(1).step_by(2).for_each(|text| add(&format!("tapline-bench {text}")));
                }
                is_in_table_of_commands |= line.ends_with("command (`target/release/tapline-bench`) |");
            }
        }
        found.retain(|(_, words)| words.get(1).is_some_and(|word| word != "target/release/tapline-bench"));
        found
    }

    #[test]
    fn commands_of_the_documents_are_taken() {
        let commands = documented();
        for (place, words) in &commands {
            Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{place}\n{error}"));
        }
        let of_readme = commands.iter().filter(|(place, _)| place.starts_with("README.md")).count();
        assert!(of_readme >= 5 && commands.len() > 20, "{of_readme} in README.md, {} in all", commands.len());
    }
}
