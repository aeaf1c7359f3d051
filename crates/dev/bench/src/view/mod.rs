//! Cost of the view to a meter: the same file through `flow`, with and without `view` behind it; then of browsers.
//!
//! ```text
//! file -> flow(view=yes) -> view     each packet is written into a journal, which another thread reads
//! file -> flow                       the meter alone
//! ```
//!
//! `browsers.rs` has the second part. The year of a history is a test of `tapline-web`, which prints its figures:
//! `cargo test --release -p tapline-web --test it a_year -- --ignored --nocapture`.

mod browsers;

use clap::Args;
use tapline_measure::runs::Run;
use tapline_sys::usage::process_time;

use crate::Options;
use crate::accounting::once;
use crate::flows::make_file;
use crate::report::{Goal, Report, Series};

#[derive(Clone, Debug, Args)]
pub(crate) struct ViewArgs {
    /// Numbers of conversations.
    #[arg(long, value_delimiter = ',', default_value = "100000,1000000")]
    conversations: Vec<u64>,
    /// Packets of a file.
    #[arg(long, default_value_t = 6_000_000)]
    packets: u64,
    /// Packets in a second of the file's time.
    #[arg(long, default_value = "1500k")]
    rate: String,
    /// Browsers that watch a live meter; 0 leaves this part out. Needs root.
    #[arg(long, default_value_t = 32)]
    browsers: usize,
    /// Length of each run of that part, in seconds.
    #[arg(long, default_value_t = 12)]
    seconds: u64,
}

impl Default for ViewArgs {
    fn default() -> ViewArgs {
        ViewArgs {
            conversations: vec![100_000, 1_000_000],
            packets: 6_000_000,
            rate: "1500k".to_owned(),
            browsers: 32,
            seconds: 12,
        }
    }
}

pub(crate) fn run(args: &ViewArgs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let tapline = options.tapline()?;
    let folder = options.folder()?;
    let path = folder.path().join("flows.pcap");
    for &conversations in &args.conversations {
        make_file(&tapline, &path, "64", (conversations, args.packets), &args.rate)?;
        let goal = Some(Goal::ShareOfTime(1.02));
        let names = ["with view", "meter alone"];
        let mut series = Series::new(format!("view/{conversations}"), &names, goal);
        let meter = |view: &str| format!("flow(flows=2097152, idle=1h, active=1h, view={view})");
        let graphs = [format!("{} -> view", meter("yes")), meter("no")];
        let mut both = Series::new(format!("{}, both threads", series.workload), &names, None);
        series.interleave(options.runs, |peer| {
            let before = process_time();
            let run = once(&path, &graphs[peer], true, args.packets)?;
            both.peers[peer].1.push(Run { cpu: process_time() - before, ..run });
            Ok(run)
        })?;
        report.add(&series)?;
        report.add(&both)?;
    }
    if args.browsers > 0 {
        browsers::run(&tapline, (args.browsers, args.seconds), options, report)?;
    }
    Ok(())
}
