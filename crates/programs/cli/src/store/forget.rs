//! `tapline store forget`: packets erased from a store.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;
use tapline_filter::Options;
use tapline_graph::grouped;
use tapline_store::{Catalog, Eraser, ErasureAccount, ErasureScope};

use super::progress::{ProgressLine, print};
use super::when::{WhenArgs, window_text};
use crate::args::LanguageArgs;
use crate::compiler::check_filter;
use crate::mistakes::misuse;

pub(super) const FORGET_EXAMPLES: &str = "\
Examples:
  tapline store forget /srv/store --dry-run 'host 192.0.2.7'      shows what would be erased
  tapline store forget /srv/store --from -2d --to -1d 'host 192.0.2.7' --why 'request 2026/14'
  tapline store forget /srv/store --yes 'ether host 02:00:00:00:00:01'

Chunks with such packets are written again at their places, without them, and their segments get a fresh index with the same \
keys; the chain of hashes still joins, and tapline store verify names the chunks. The store's log says what was erased and why, \
filter included. Stop the recorder first: both need the store's lock. Killed at any moment, the next recorder, repair or forget \
goes on.

Bytes are written over where they lie: file systems that copy on write, and disks that move blocks, may keep old ones, as do \
reserved files (seg/spare-*) and slots that nothing was recorded to yet.

Exit status: 0 erased; 1 an error, packets on hold (nothing is erased then), or damaged chunks that could not be searched.";

#[derive(Debug, Args)]
pub(crate) struct ForgetArgs {
    /// The store.
    #[arg(value_name = "STORE")]
    pub(super) store: PathBuf,
    /// Packets to erase, in the pcap-filter language.
    #[arg(value_name = "FILTER")]
    pub(super) filter: Vec<String>,
    #[command(flatten)]
    when: WhenArgs,
    #[command(flatten)]
    language: LanguageArgs,
    /// The reason, for the store's log.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    why: String,
    /// Only show what would be erased.
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// Erase packets that are on hold too.
    #[arg(long)]
    despite_holds: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

pub(super) fn forget(args: &ForgetArgs) -> Result<ExitCode> {
    let filter = args.filter.join(" ").trim().to_owned();
    check_filter(&filter)?;
    let catalog = Catalog::open(&args.store)?;
    let window = args.when.window()?;
    if filter.is_empty() && !args.when.is_given() {
        misuse!("this would erase every packet: give --from, --to or a filter");
    }
    let options = args.language.options(Options::default());
    let what = if filter.is_empty() { "all packets".to_owned() } else { format!("packets of {filter:?}") };
    let what = format!("{what}, {}", window_text(&window));
    let mut eraser = Eraser::open(catalog, ErasureScope { window, filter, options, why: args.why.clone() })?;
    let line = ProgressLine::new("segments looked into");
    let looked = eraser.look(&mut |done, all| {
        line.tell(done, all);
        true
    })?;
    drop(line);
    let account = if args.dry_run {
        tell(args, &looked, false)?;
        looked
    } else {
        refuse_held(&looked, args.despite_holds)?;
        if looked.packets_erased > 0 && !args.yes && !is_confirmed(&looked, &what)? {
            bail!("nothing was erased");
        }
        let line = ProgressLine::new("segments done");
        let erased = eraser.erase(&mut |done, all| {
            line.tell(done, all);
            true
        });
        drop(line);
        // What was erased before an error stays erased.
        tell(args, eraser.account(), true)?;
        erased?
    };
    let is_all = account.chunks_damaged + account.places_damaged + account.segments_unreadable == 0;
    Ok(if is_all && account.is_balanced() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn refuse_held(account: &ErasureAccount, is_allowed: bool) -> Result<()> {
    if account.packets_held > 0 && !is_allowed {
        bail!(
            "{} of the {} packets are on hold ({}): nothing was erased; release the hold, narrow the filter, or say \
             --despite-holds",
            grouped(account.packets_held),
            grouped(account.packets_erased),
            account.holds.join(", ")
        );
    }
    Ok(())
}

/// Asks on a terminal; elsewhere `--yes` is needed.
fn is_confirmed(account: &ErasureAccount, what: &str) -> Result<bool> {
    let packets = grouped(account.packets_erased);
    if !io::stdin().is_terminal() {
        misuse!(
            "{packets} packets would be erased ({what}): say --yes to erase them, --dry-run to see the account"
        );
    }
    let mut error = io::stderr();
    write!(error, "erase {packets} packets in {} chunks ({what})? [y/N] ", grouped(account.chunks_erased))?;
    error.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn tell(args: &ForgetArgs, account: &ErasureAccount, is_done: bool) -> Result<()> {
    let text = match args.json {
        true => account_json(account, is_done),
        false => account_text(account, is_done),
    };
    print(&text, args.json)?;
    Ok(())
}

fn account_text(account: &ErasureAccount, is_done: bool) -> String {
    let mut text = format!("{:<32}{:>14}{:>14}{:>16}\n", "erasure", "segments", "chunks", "packets");
    let mut row = |name: &str, counts: [Option<u64>; 3]| {
        let [segments, chunks, packets] = counts.map(|count| count.map_or(String::new(), grouped));
        text += format!("  {name:<30}{segments:>14}{chunks:>14}{packets:>16}").trim_end();
        text.push('\n');
    };
    let erased = if is_done { "erased" } else { "would be erased" };
    row("there, looked into", [Some(account.segments), Some(account.chunks), Some(account.packets)]);
    row("passed over by time", [Some(account.segments_by_time), Some(account.chunks_by_time), None]);
    row("passed over by index", [Some(account.segments_by_keys), Some(account.chunks_by_keys), None]);
    row("left as they are", [None, Some(account.chunks_left), Some(account.packets_left)]);
    if account.packets_unfit > 0 {
        row("of these of unfit link types", [None, None, Some(account.packets_unfit)]);
    }
    row(erased, [None, Some(account.chunks_erased), Some(account.packets_erased)]);
    if account.chunks_unwritten > 0 {
        row("not written", [None, Some(account.chunks_unwritten), Some(account.packets_unwritten)]);
    }
    if account.packets_held > 0 {
        let name = format!("of these on hold: {}", account.holds.join(", "));
        row(&name, [None, None, Some(account.packets_held)]);
    }
    if account.segments_unreadable > 0 {
        row("not to be read", [Some(account.segments_unreadable), None, None]);
    }
    if account.chunks_damaged + account.places_damaged > 0 {
        row("damaged: not looked into", [None, Some(account.chunks_damaged + account.places_damaged), None]);
    }
    let balance = if account.is_balanced() { "every chunk is accounted for" } else { "NOT BALANCED" };
    text + format!("  {} bytes of packets {erased}; {balance}\n", grouped(account.bytes_erased)).as_str()
}

fn account_json(account: &ErasureAccount, is_done: bool) -> String {
    let mut value = json!(account);
    value["erased"] = is_done.into();
    value["balanced"] = account.is_balanced().into();
    format!("{value}\n")
}
