//! `tapline replay`: capture files out of an interface again.
//!
//! ```text
//! files, or a store --Replay, a thread that reads ahead--> Pacer --> Transmitter --> the kernel
//!                                                            |           '-- sent, refused by cause
//!                                                            '-- rate, gap errors
//! ```
//!
//! `read = sent + refused by cause + not reached` holds for every run.

mod input;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use tapline_graph::grouped;
use tapline_syntax::units::count_in;
use tapline_transmit::replay::{Replay, ReplayRate, ReplayRead, ReplaySettings, Timing};
use tapline_transmit::rewrite::{IpRule, MacRule, Rewrite};

use crate::args::{LanguageArgs, parse_duration};
use crate::output::say;
use crate::sending::{Pace, SendArgs, SendInput, Sender};
use crate::stored::{self, PastArgs};

pub(crate) const EXAMPLES: &str = "\
Examples:
  tapline replay trace.pcapng -i veth0                      with the gaps of the file
  tapline replay trace.pcap -i veth0 --speed 10             ten times as fast
  tapline replay trace.pcap -i veth0 --rate 100k --loop 0   100,000 packets a second, until Ctrl-C
  tapline replay trace.erf -i veth0 --rate 500Mbps          500 million bits a second
  tapline replay trace.pcap.zst -i veth0 --top-speed        by XDP live frames, if veth0 takes them
  tapline replay trace.pcap -i veth0 --rate 1k --realtime   even gaps on a busy machine
  tapline replay store:/srv/store --from 10:00 --to +5m -i veth0     packets recorded then, with their gaps
  tapline replay trace.pcap -i veth0 --ip 10.0.0.0/8=192.0.0.0/8 \\
      --mac 02:00:00:00:00:01=02:00:00:00:00:09

Replay sends on loopback and veth interfaces, and on others only with --i-own-this-network NAME. At the end it prints the account of all packets,
the rate, and the errors of the gaps between packets; SIGUSR1 prints the account so far. docs/sending.md also describes the back ends.";

/// Arguments of the command.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Files to send ('-' is standard input), one after the other: pcap, pcapng, ERF; also gzip, zstd, lz4. Or a store:
    /// store:DIRECTORY.
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) past: PastArgs,
    /// Send packets of a store that this filter accepts, in the pcap-filter language.
    #[arg(long, value_name = "FILTER", help_heading = "Store")]
    pub(crate) filter: Option<String>,
    #[command(flatten)]
    pub(crate) language: LanguageArgs,
    /// The interface to send on.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) interface: String,
    #[command(flatten)]
    pub(crate) sending: SendArgs,

    /// Speed relative to the file's own gaps: 0.5, 10.
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = parse_speed, help_heading = "Times")]
    pub(crate) speed: f64,
    /// Send at an even rate: packets a second (10000, 100k, 1.5M) or bits a second (10Mbps, 1Gbps; link headers count,
    /// check sequences and preambles do not).
    #[arg(long, value_name = "RATE", conflicts_with = "speed", help_heading = "Times")]
    pub(crate) rate: Option<ReplayRate>,
    /// Send as fast as possible.
    #[arg(long, conflicts_with_all = ["speed", "rate"], help_heading = "Times")]
    pub(crate) top_speed: bool,
    /// Number of passes over all files; 0 repeats without end.
    #[arg(long = "loop", value_name = "N", default_value_t = 1, value_parser = count_in::<u64>(..), help_heading = "Times")]
    pub(crate) passes: u64,
    /// Stop after this many packets.
    #[arg(short, long, value_name = "N", value_parser = count_in::<u64>(..), help_heading = "Times")]
    pub(crate) count: Option<u64>,
    /// Stop after this time: 90, 90s, 5m, 1h.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Times")]
    pub(crate) duration: Option<Duration>,

    /// Replace a hardware address: OLD=NEW. May be repeated; the first match is used.
    #[arg(long, value_name = "OLD=NEW", help_heading = "Endpoints")]
    pub(crate) mac: Vec<MacRule>,
    /// Replace an IP address or network, and correct checksums: OLD=NEW, both with the same prefix length. May be
    /// repeated.
    #[arg(long, value_name = "OLD=NEW", help_heading = "Endpoints")]
    pub(crate) ip: Vec<IpRule>,

    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    /// Run as this user once everything is open. Default for root: the caller of sudo.
    #[arg(short = 'Z', long, value_name = "USER")]
    pub(crate) relinquish_privileges: Option<String>,
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_| format!("'{text}' is not a number"))?;
    if (1e-6..=1e6).contains(&speed) { Ok(speed) } else { Err("from 0.000001 to 1000000".to_owned()) }
}

pub(crate) fn run(args: &ReplayArgs) -> Result<ExitCode> {
    let user = args.relinquish_privileges.as_deref();
    let mut sender = Sender::open(&args.sending, &args.interface, pace(args), user, args.json)?;
    let control = Arc::clone(&sender.session.control);
    let input = input::open(args, &control)?;
    let reads = args.files.iter().filter_map(|name| stored::directory(name)).collect();
    sender.confine(reads, args.duration)?;
    for line in &input.announcements {
        say(line);
    }
    sender.announce(&pace_text(args));
    let mut replay = Replay::start(input.opened, settings(args), move || control.is_stopped())?;
    let failure = sender.send(&mut replay, "read", args.count)?;
    let end = replay.finish()?;
    let ReplayRead { packets, passes, backwards } = end.read;
    let taken = SendInput { verb: "read", packets, passes, backwards, left: end.left };
    input.unfit.text().iter().for_each(say);
    let failure = failure.or(end.failure).map(|failure| failure.to_string()).or_else(|| input.unfit.error());
    sender.conclude(taken, failure.as_deref())
}

fn settings(args: &ReplayArgs) -> ReplaySettings {
    ReplaySettings {
        timing: timing(args),
        rewrite: Rewrite { macs: args.mac.clone(), ips: args.ip.clone() },
        passes: if args.passes == 0 { u64::MAX } else { args.passes },
        packets_max: args.count.unwrap_or(u64::MAX),
    }
}

/// The pace for people.
fn pace_text(args: &ReplayArgs) -> String {
    match timing(args) {
        Timing::Top => "as fast as it goes".to_owned(),
        Timing::Rate(ReplayRate::Packets(rate)) => {
            format!("{} packets a second", grouped(rate.round() as u64))
        }
        Timing::Rate(ReplayRate::Bits(rate)) => format!("{} bits a second", grouped(rate.round() as u64)),
        Timing::Original { speed: 1.0 } => "with the gaps of the file".to_owned(),
        Timing::Original { speed } => format!("{speed} times as fast as the file says"),
    }
}

fn pace(args: &ReplayArgs) -> Pace {
    match timing(args) {
        Timing::Top => Pace::Top,
        Timing::Rate(ReplayRate::Packets(rate)) => Pace::Rate(rate),
        _ => Pace::Times,
    }
}

/// The pace that the options ask for.
fn timing(args: &ReplayArgs) -> Timing {
    match args.rate {
        _ if args.top_speed => Timing::Top,
        Some(rate) => Timing::Rate(rate),
        None => Timing::Original { speed: args.speed },
    }
}
