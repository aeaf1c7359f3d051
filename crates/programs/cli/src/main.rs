//! The `tapline` program: parse the command line, call the libraries, print.
#![forbid(unsafe_code)]

mod args;
mod bench;
mod capture;
mod clock_error;
mod collect_flows;
mod compiler;
mod configuration;
mod container;
mod demand;
mod destinations;
mod doctor;
#[cfg(test)]
mod documents;
mod escape;
mod everyday;
mod extcap;
mod files;
mod filter;
mod flows;
mod fpl;
mod front_parts;
mod generate;
mod help;
mod interfaces;
mod live;
mod manual;
mod memory;
mod metrics;
mod mistakes;
#[cfg(test)]
mod option_units;
mod output;
mod privileges;
mod probe;
mod profile;
#[cfg(test)]
mod reference;
mod replay;
mod report;
mod run;
mod sending;
mod serve;
mod session;
mod signals;
mod starting;
mod store;
mod stored;
mod stream;
mod strict;
mod top;
mod topics;
mod view;
mod wake;
mod watch;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use demand::OnDemand;
use tapline_sys::capability::Capability;
use tapline_sys::{privilege, standard_output};

/// Scripts of `tapline watch` are stopped by the memory that they hold.
#[cfg(feature = "scripts")]
#[global_allocator]
static HEAP: tapline_sys::heap::CountingHeap = tapline_sys::heap::CountingHeap;

/// Packet capture and network analysis that never lies about loss.
#[derive(Debug, Parser)]
#[command(name = "tapline", version, max_term_width = 110, after_help = after_help())]
struct Cli {
    /// Take options from this profile of the configuration files ([profile.NAME], docs/configuration.md).
    #[arg(long, global = true, value_name = "NAME", help_heading = "Configuration")]
    profile: Option<String>,
    #[command(subcommand)]
    command: Command,
}

fn after_help() -> String {
    format!("{TOP_EXAMPLES}\n\n{}", manual::exit_status_text())
}

const TOP_EXAMPLES: &str = "\
Examples:
  tapline interfaces                                  interfaces, and who captures there
  tapline doctor                                      causes of losses, and their remedy
  tapline capture -i eth0 -n 'tcp port 443'           look at traffic
  tapline capture -i eth0 -w trace.pcapng -G 60       a file each minute, drops noted inside
  tapline capture -r trace.pcapng -n -v 'udp'         read it again
  tapline run -e 'device(eth0) -> top(by=flow)'       a graph of stages: the busiest flows
  tapline probe -i eth0 --export 10.0.0.1:4739        flows to a collector, as IPFIX
  tapline collect-flows --listen udp://:4739          flows of routers: IPFIX, NetFlow, sFlow
  tapline watch -i eth0 --rules rules.toml            events by rules: scans, new hosts, losses
  tapline generate -w imix.pcap size=imix count=1M    packets by recipe
  tapline filter explain 'vlan and tcp port 80'       a filter, test by test
  tapline replay trace.pcap -i veth0 --rate 10k       send a file again
  tapline serve -i eth0 --name office                 for many readers: capture -i tap:office
  tapline record -i eth0 --to /srv/store --size 80%   keep packets for days, for tapline find
  tapline metrics --listen 127.0.0.1:9477             counters and losses, for Prometheus
  tapline top                                         who talks to whom, in the terminal
  tapline profile -r trace.pcapng 'udp'               the cost of a packet, by component";

#[derive(Debug, Subcommand)]
enum Command {
    /// Capture packets from interfaces or files: filter, print and save them, and account for every packet.
    Capture(OnDemand<capture::CaptureArgs>),
    /// Summarise capture files: packets, rates, order, protocols, hosts.
    #[command(after_help = everyday::info::EXAMPLES)]
    Info(OnDemand<everyday::info::InfoArgs>),
    /// Print packets whose payload matches a regular expression.
    #[command(after_help = everyday::grep::EXAMPLES)]
    Grep(OnDemand<everyday::grep::GrepArgs>),
    /// Print TCP conversations in order, client and server apart.
    #[command(after_help = everyday::follow::EXAMPLES)]
    Follow(OnDemand<everyday::follow::FollowArgs>),
    /// Count packets and bytes per interval, for each of several filters.
    #[command(after_help = everyday::stats::EXAMPLES)]
    Stats(OnDemand<everyday::stats::StatsArgs>),
    /// Print DNS queries with their answers, failures and latency.
    #[command(after_help = everyday::requests::DNS_EXAMPLES)]
    Dns(OnDemand<everyday::requests::RequestsArgs>),
    /// Print HTTP requests with their answers, failures and latency.
    #[command(after_help = everyday::requests::HTTP_EXAMPLES)]
    Http(OnDemand<everyday::requests::RequestsArgs>),
    /// Print TLS handshakes: server names, versions, failures and latency.
    #[command(after_help = everyday::requests::TLS_EXAMPLES)]
    Tls(OnDemand<everyday::requests::RequestsArgs>),
    /// Record packets for days into a store of bounded size, indexed while it is written.
    #[command(after_help = store::RECORD_EXAMPLES)]
    Record(OnDemand<store::RecordArgs>),
    /// Find packets in a store, by time and filter, up to those of a second ago.
    #[command(after_help = store::FIND_EXAMPLES)]
    Find(OnDemand<store::FindArgs>),
    /// Manage a store: show, check, verify and repair it, hold or erase packets, import files.
    #[command(subcommand, after_help = store::STORE_EXAMPLES)]
    Store(OnDemand<store::StoreCommand>),
    /// Run a graph of stages: filter, sample, count, record, and more, with each packet read once for all of them.
    #[command(after_help = run::EXAMPLES)]
    Run(OnDemand<run::RunArgs>),
    /// Meter flows, and export them to collectors as IPFIX or NetFlow, or show the largest.
    #[command(after_help = probe::EXAMPLES)]
    Probe(OnDemand<probe::ProbeArgs>),
    /// Collect flows from routers and probes: IPFIX, NetFlow v5 and v9, sFlow; export them, or show the largest.
    #[command(after_help = collect_flows::EXAMPLES)]
    CollectFlows(OnDemand<collect_flows::CollectArgs>),
    /// Watch packets and flows by rules: rates, scans, new hosts, silence, scripts; report events, record around them.
    #[command(after_help = watch::EXAMPLES)]
    Watch(OnDemand<watch::WatchArgs>),
    /// Generate packets from a recipe, the same for the same seed: protocols, sizes, flows, rates, faults.
    Generate(OnDemand<generate::GenerateArgs>),
    /// Explain and benchmark filters.
    #[command(subcommand)]
    Filter(OnDemand<filter::FilterCommand>),
    /// List interfaces: addresses, speed, driver, link type, and the programs that capture there.
    Interfaces(OnDemand<interfaces::InterfacesArgs>),
    /// Find causes of lost, altered or delayed packets: rate them, and print or apply the remedies.
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(OnDemand<doctor::DoctorArgs>),
    /// Show traffic, losses and costs in the terminal: hosts, flows, and the stages of running tapline processes.
    #[command(after_help = top::EXAMPLES)]
    Top(OnDemand<top::TopArgs>),
    /// Show the traffic of an interface in a browser: hosts, flows, losses, costs, history, packets.
    #[command(after_help = view::EXAMPLES)]
    View(OnDemand<view::ViewArgs>),
    /// Measure the cost of a packet on this machine: in the kernel, at each stage, at each output.
    #[command(after_help = profile::EXAMPLES)]
    Profile(OnDemand<profile::ProfileArgs>),
    /// Send the packets of capture files on an interface: with original or scaled gaps or at a rate, once or in a loop.
    #[command(after_help = replay::EXAMPLES)]
    Replay(OnDemand<replay::ReplayArgs>),
    /// Capture once for many readers: programs read from shared memory (-i tap:NAME), each with its own filter.
    #[command(after_help = serve::EXAMPLES)]
    Serve(OnDemand<serve::ServeArgs>),
    /// Show or change the memory of an FPL program that runs: cells of one moment, or an order between two packets.
    #[command(after_help = memory::EXAMPLES)]
    Memory(OnDemand<memory::MemoryArgs>),
    /// Pause a capture of tapline serve for all of its readers, or resume it.
    Control(OnDemand<serve::ControlArgs>),
    /// Show the state of tapline serve: captures, readers with their lag and losses, and the cost.
    Status(OnDemand<serve::StatusArgs>),
    /// Export counters of running captures to Prometheus: packets, losses by place, stages, readers, recordings.
    #[command(after_help = metrics::EXAMPLES)]
    Metrics(OnDemand<metrics::MetricsArgs>),
    /// Offer captures of tapline serve to Wireshark and tshark as interfaces.
    #[command(after_help = extcap::EXAMPLES)]
    Extcap(OnDemand<extcap::ExtcapArgs>),
    /// Show and check options from files, profiles and the environment.
    #[command(subcommand, after_help = configuration::EXAMPLES)]
    Config(OnDemand<configuration::ConfigCommand>),
    /// Write man pages, and completions for bash, zsh and fish.
    #[command(after_help = manual::EXAMPLES)]
    Manual(OnDemand<manual::ManualArgs>),
    /// Measure the capture performance of this machine: capture, filter and store at every rate, compared with other
    /// programs.
    Bench(OnDemand<tapline_measure::system::BenchArgs>),
}

fn main() -> ExitCode {
    // A set-uid program must not read or write files in its caller's stead. Capturing needs one right only.
    if let Err(error) = privilege::leave_set_uid(&[Capability::NetRaw]) {
        let _ = writeln!(io::stderr(), "tapline: cannot give up the rights of a set-uid program: {error}");
        return ExitCode::FAILURE;
    }
    if let Err(error) = standard_output::refuse_if_closed() {
        let _ = writeln!(io::stderr(), "tapline: standard output is closed: {error}");
        return ExitCode::FAILURE;
    }
    if let Err(error) = signals::ignore_early_orders() {
        let _ = writeln!(io::stderr(), "tapline: cannot install a signal handler: {error}");
        return ExitCode::FAILURE;
    }
    let arguments = arguments();
    let parsed = match configuration::command_line::<Cli>(&arguments) {
        Ok(Some(program)) => program.try_get_matches_from(&arguments),
        Ok(None) => demand::parse::<Cli>(&arguments),
        Err(faults) => return configuration::tell_faults(&faults),
    };
    let mut matches = parsed.unwrap_or_else(|error| help::exit::<Cli>(&arguments, error));
    let is_json = asks_for_json(&matches);
    let cli = Cli::from_arg_matches_mut(&mut matches).unwrap_or_else(|error| error.exit());
    let result = match cli.command {
        Command::Capture(OnDemand(mut args)) => {
            args.netns = args.netns.take().or(args.container.take());
            capture::run(&args)
        }
        Command::Info(OnDemand(args)) => everyday::info::run(&args),
        Command::Grep(OnDemand(args)) => everyday::grep::run(&args),
        Command::Follow(OnDemand(args)) => everyday::follow::run(&args),
        Command::Stats(OnDemand(args)) => everyday::stats::run(&args),
        Command::Dns(OnDemand(args)) => everyday::requests::dns(&args),
        Command::Http(OnDemand(args)) => everyday::requests::http(&args),
        Command::Tls(OnDemand(args)) => everyday::requests::tls(&args),
        Command::Filter(OnDemand(command)) => filter::run(&command).map(|()| ExitCode::SUCCESS),
        Command::Bench(OnDemand(args)) => bench::run(&args),
        Command::Record(OnDemand(args)) => store::record(&args),
        Command::Find(OnDemand(args)) => store::find(&args),
        Command::Store(OnDemand(command)) => store::manage(&command),
        Command::Run(OnDemand(args)) => run::run(&args),
        Command::Probe(OnDemand(args)) => probe::run(&args),
        Command::CollectFlows(OnDemand(args)) => collect_flows::run(&args),
        Command::Watch(OnDemand(args)) => watch::run(&args),
        Command::Generate(OnDemand(args)) => generate::run(&args),
        Command::Interfaces(OnDemand(mut args)) => {
            args.netns = args.netns.take().or(args.container.take());
            interfaces::list(&args).map(|()| ExitCode::SUCCESS)
        }
        Command::Doctor(OnDemand(args)) => doctor::run(&args),
        Command::Top(OnDemand(args)) => top::run(*args),
        Command::View(OnDemand(args)) => view::run(*args),
        Command::Profile(OnDemand(args)) => profile::run(&args),
        Command::Replay(OnDemand(args)) => replay::run(&args),
        Command::Serve(OnDemand(args)) => serve::run(&args),
        Command::Status(OnDemand(args)) => serve::status(&args),
        Command::Memory(OnDemand(args)) => memory::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Control(OnDemand(args)) => serve::control(&args).map(|()| ExitCode::SUCCESS),
        Command::Config(OnDemand(command)) => {
            configuration::run(&command, &Cli::command(), cli.profile.as_deref())
        }
        Command::Manual(OnDemand(args)) => manual::run(&args, Cli::command()).map(|()| ExitCode::SUCCESS),
        Command::Metrics(OnDemand(args)) => metrics::run(&args),
        Command::Extcap(OnDemand(args)) => extcap::run(&args),
    };
    result.unwrap_or_else(|error| {
        if !is_broken_pipe(&error) {
            let closed = match standard_output::check() {
                Err(_) if is_kind(&error, io::ErrorKind::StorageFull) => {
                    "standard output was closed when the program began: "
                }
                _ => "",
            };
            let _ = writeln!(io::stderr(), "tapline: {closed}{}", chain(&error));
            if is_json {
                let _ = writeln!(io::stdout(), "{}", serde_json::json!({ "error": chain(&error) }));
            }
        }
        ExitCode::from(mistakes::status(&error))
    })
}

/// The command line. Under the name that Wireshark's folders have for it the program is one command.
fn arguments() -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let name = arguments.first().and_then(|program| Path::new(program).file_name());
    if name.is_some_and(|name| name == extcap::PROGRAM) {
        arguments.insert(1, "extcap".into());
    }
    arguments
}

/// Whether a command with `--json` was given whose standard output is for it.
fn asks_for_json(matches: &ArgMatches) -> bool {
    if let Some((_, matches)) = matches.subcommand() {
        return asks_for_json(matches);
    }
    let writes_there = || matches.try_get_one::<PathBuf>("write").ok().flatten().is_some_and(|to| to == "-");
    matches.try_get_one::<bool>("json").ok().flatten() == Some(&true) && !writes_there()
}

/// The error with its causes, without those that the text before them contains already. It may quote files of others:
/// control characters are escaped.
fn chain(error: &anyhow::Error) -> String {
    escape::plain_lines(&causes(error))
}

fn causes(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |mut text, cause| {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        text
    })
}

/// Whether the reader of standard output has gone: an error message would have no reader.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    is_kind(error, io::ErrorKind::BrokenPipe)
}

fn is_kind(error: &anyhow::Error, kind: io::ErrorKind) -> bool {
    error.downcast_ref::<io::Error>().map(io::Error::kind) == Some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn causes_are_told_once() {
        let cause = io::Error::other("no disk");
        let error = anyhow::Error::new(cause).context("cannot write x: no disk").context("cannot go on");
        assert_eq!(chain(&error), "cannot go on: cannot write x: no disk");
        let cited = anyhow::anyhow!("line 1: \x1b]0;owned\x07\n  id = ^");
        assert_eq!(chain(&cited), "line 1: \\u{1b}]0;owned\\u{7}\n  id = ^");
    }
}
