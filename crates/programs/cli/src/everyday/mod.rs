//! Commands of every day: `info` and its like. Each is a capture whose packets go to one stage, and the stage prints
//! its results.
//!
//! ```text
//! InputArgs --> CaptureArgs: sources, filter, rights, signals, account --packets--> the command's stage --> text, JSON
//! ```

pub(crate) mod follow;
pub(crate) mod grep;
pub(crate) mod info;
mod lines;
pub(crate) mod requests;
pub(crate) mod stats;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Arg, Args};
use tapline_file::Excerpt;
use tapline_graph::Stage;
use tapline_syntax::units::count_in;

use crate::args::{LanguageArgs, NetworkArgs, parse_duration};
use crate::capture::{self, CaptureArgs};
use crate::live::TapArgs;
use crate::mistakes::misuse;
use crate::stored::{ExcerptArgs, PastArgs};
use crate::strict::ReportArgs;

/// Options whose place is the long help: the short one fits a screen.
const RARE: &[&str] = &[
    "since",
    "policy",
    "reconnect",
    "label",
    "socket",
    "from",
    "to",
    "follow",
    "max_read",
    "packets",
    "shift",
    "name",
    "scoped",
    "ipv6_extensions",
    "any_vlan",
    "strict",
    "account",
    "netns",
    "container",
    "relinquish_privileges",
];

/// Leaves rare options out of the short help.
pub(crate) fn brief(arg: Arg) -> Arg {
    let is_rare = RARE.contains(&arg.get_id().as_str());
    if is_rare { arg.hide_short_help(true) } else { arg }
}

/// Packets to look at, and for how long.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct SessionArgs {
    #[command(flatten)]
    network: NetworkArgs,
    #[command(flatten)]
    past: PastArgs,
    #[command(flatten)]
    excerpt: ExcerptArgs,
    #[command(flatten)]
    tap: TapArgs,
    /// Stop after this many packets.
    #[arg(short = 'c', value_name = "N", value_parser = count_in::<u64>(1..))]
    count: Option<u64>,
    /// Stop after this time: 90, 90s, 5m, 1h.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    #[command(flatten)]
    language: LanguageArgs,
    #[command(flatten)]
    report: ReportArgs,
    /// Run as this user once everything is open. Default for root: the caller of sudo.
    #[arg(short = 'Z', long, value_name = "USER", help_heading = "Privileges")]
    relinquish_privileges: Option<String>,
}

impl SessionArgs {
    /// The packets of files that are read as a whole; options of captures are refused.
    pub(crate) fn of_files(&self) -> Result<Excerpt> {
        let is_live = self.network.name().is_some() || self.tap.is_given();
        if is_live || self.count.is_some() || self.duration.is_some() {
            misuse!(
                "files are read whole: -c, --duration, --netns and options of tap: are for -i, tap: and store:"
            );
        }
        self.excerpt.of_files(&self.past)
    }
}

/// The packets of a command: interfaces or files, and a filter.
pub(crate) struct Input<'a> {
    pub(crate) interfaces: &'a [String],
    pub(crate) files: &'a [PathBuf],
    pub(crate) filter: &'a [String],
}

/// Runs a capture whose packets go to `stage`. With `json` the account is the last line of standard output.
pub(crate) fn capture(
    session: &SessionArgs,
    input: &Input<'_>,
    json: bool,
    stage: Box<dyn Stage>,
) -> Result<ExitCode> {
    let args = CaptureArgs {
        interface: input.interfaces.to_vec(),
        read: input.files.to_vec(),
        merge: input.files.len() > 1,
        filter: input.filter.to_vec(),
        past: session.past.clone(),
        excerpt: session.excerpt.clone(),
        tap: session.tap.clone(),
        netns: session.network.name().cloned(),
        count_packets: session.count,
        duration: session.duration,
        language: session.language,
        report: session.report,
        relinquish_privileges: session.relinquish_privileges.clone(),
        json,
        // Results are for somebody who waits for them.
        packet_buffered: true,
        has_own_output: true,
        ..CaptureArgs::without_arguments()
    };
    capture::run_with(&args, Some(stage))
}
