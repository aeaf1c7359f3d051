//! The recorder against its peers: the cost of keeping a packet, and of finding it again.
//!
//! ```text
//! generator --near0 === far0--> recorder --> disk       rates: processor time, highest rate without loss, the index
//!                                              |
//!                        finder <--cold cache--+        finding: a needle, a tenth of all, a few seconds of all
//! ```
//!
//! | file | content |
//! |---|---|
//! | `recorders` | the start of each recorder, and its stored packets |
//! | `rates` | recording at a rate, the highest rate, what the index costs |
//! | `finding` | the same packets in a store and in Stenographer's files, and searches of both |
//! | `delay` | how soon a packet is found |
//! | `disk` | what the disk can do; caches |
//! | `table` | medians, ratios, goals: text and JSON |
//!
//! Recorders take turns. A run counts only if everything that was sent was stored; a search only if all found the same
//! packets.

mod delay;
mod disk;
mod finding;
mod rates;
mod recorders;
mod table;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueEnum};
use tapline_measure::system::arena::Arena;

use crate::Options;
use table::Table;

/// The measurement to run.
#[derive(Clone, Debug, Args)]
pub(crate) struct StoreArgs {
    /// Parts, with commas.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Measurement::ALL)]
    part: Vec<Measurement>,
    /// Frame sizes, with commas, as recipes of `tapline generate` have them.
    #[arg(long, value_delimiter = ',', default_values_t = ["60", "imix", "1514"].map(str::to_owned))]
    sizes: Vec<String>,
    /// Length of each run, in seconds.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Packets a second where processor time is measured: a rate that all recorders bear.
    #[arg(long, default_value_t = 60_000)]
    rate: u64,
    /// MiB of packets to search. Stenographer keeps as many in addition.
    #[arg(long, default_value_t = 1024)]
    mib: u64,
    /// Write all figures there, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Measurement {
    /// Processor time of a packet at the same rate, with and without index; the size of the index.
    Cost,
    /// The highest rate without loss, compared with the rate of the disk.
    Limit,
    /// Searches with cold caches.
    Find,
    /// The delay until a packet is found.
    Delay,
}

impl Measurement {
    const ALL: [Measurement; 4] =
        [Measurement::Cost, Measurement::Limit, Measurement::Find, Measurement::Delay];
}

impl Default for StoreArgs {
    fn default() -> StoreArgs {
        StoreArgs {
            part: Measurement::ALL.to_vec(),
            sizes: ["60", "imix", "1514"].map(str::to_owned).to_vec(),
            seconds: 3.0,
            rate: 60_000,
            mib: 1024,
            json: None,
        }
    }
}

/// The common data of all parts.
struct Bench<'a> {
    args: &'a StoreArgs,
    runs: usize,
    tapline: PathBuf,
    folder: tempfile::TempDir,
    arena: Arena,
    table: Table,
}

impl Bench<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Measures all that was asked for and prints the table.
pub(crate) fn run(args: &StoreArgs, options: &Options) -> Result<()> {
    let mut bench = Bench {
        args,
        runs: options.runs,
        tapline: std::fs::canonicalize(options.tapline()?)?,
        folder: options.folder()?,
        arena: Arena::new()?,
        table: Table::new(),
    };
    for peer in recorders::missing() {
        bench.table.note(format!("left out: {peer} is not installed"));
    }
    for part in &args.part {
        match part {
            Measurement::Cost => rates::cost(&mut bench)?,
            Measurement::Limit => rates::limit(&mut bench)?,
            Measurement::Find => finding::run(&mut bench)?,
            Measurement::Delay => delay::run(&mut bench)?,
        }
    }
    bench.table.finish(args.json.as_deref())
}

/// Bytes of all files of a folder and those below it.
fn bytes_below(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(about) if about.is_dir() => bytes_below(&entry.path()),
        Ok(about) => about.len(),
        Err(_) => 0,
    };
    entries.map(size).sum()
}
