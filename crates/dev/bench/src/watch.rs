//! Cost of many rules that watch: the same file under a thousand rules and under one of each kind.
//!
//! ```text
//! file -> watch(1,000 rules: half on packets, by source over a window; a quarter on begun, a quarter on ended flows)
//! file -> watch(the first of each)
//! ```

use std::fmt::Write as _;
use std::fs;

use clap::Args;

use crate::Options;
use crate::accounting::once;
use crate::flows::make_file;
use crate::report::{Goal, Report, Series};

#[derive(Clone, Debug, Args)]
pub(crate) struct WatchArgs {
    /// Number of rules.
    #[arg(long, default_value_t = 1000)]
    rules: u32,
    /// Number of conversations.
    #[arg(long, default_value_t = 100_000)]
    conversations: u64,
    /// Packets of the file.
    #[arg(long, default_value_t = 4_000_000)]
    packets: u64,
    /// Packets in a second of the file's time.
    #[arg(long, default_value = "1M")]
    rate: String,
}

impl Default for WatchArgs {
    fn default() -> WatchArgs {
        WatchArgs { rules: 1000, conversations: 100_000, packets: 4_000_000, rate: "1M".to_owned() }
    }
}

/// `count` rules: of four in a row two are on packets, one on begun and one on ended flows.
fn rules(count: u32) -> String {
    let mut text = String::new();
    for number in 0..count {
        let (high, low) = (number / 250, number % 250 + 1);
        let host = format!("host 10.0.{high}.{low}");
        let (on, filter) = match number % 4 {
            0 => ("packet", format!("src {host} and udp")),
            1 => ("packet", format!("{host} and tcp dst port {}", 1024 + number)),
            2 => ("flow begun", format!("dst {host}")),
            _ => ("flow ended", format!("src {host}")),
        };
        let _ = write!(
            text,
            "[[rule]]\nname = \"r{number}\"\non = \"{on}\"\nfilter = \"{filter}\"\nby = [\"src\"]\nwindow = \"10s\"\nabove = 1000000000\n\n"
        );
    }
    text
}

pub(crate) fn run(args: &WatchArgs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let tapline = options.tapline()?;
    let folder = options.folder()?;
    let path = folder.path().join("flows.pcap");
    make_file(&tapline, &path, "64", (args.conversations, args.packets), &args.rate)?;
    let graph = |name: &str, count: u32| -> anyhow::Result<String> {
        let file = folder.path().join(name);
        fs::write(&file, rules(count))?;
        let to = folder.path().join("events").display().to_string();
        Ok(format!(
            "watch({:?}, to={to:?}, directory={:?})",
            file.display().to_string(),
            folder.path().display().to_string()
        ))
    };
    let graphs = [graph("many.toml", args.rules)?, graph("one.toml", 4)?];
    let goal = Some(Goal::ShareOfTime(1.3));
    let mut series = Series::new(format!("watch/{} rules", args.rules), &["many", "one"], goal);
    series.interleave(options.runs, |peer| once(&path, &graphs[peer], true, args.packets))?;
    report.add(&series)
}
