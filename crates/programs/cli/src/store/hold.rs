//! `tapline store hold` and `release`: evidence that is never deleted.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use tapline_store::moments::{Clock, shown};
use tapline_store::{Catalog, Hold, HoldEntry, Window};

use super::progress::print;
use super::when::{WhenArgs, window_text};
use crate::compiler::check_filter;
use crate::mistakes::misuse;

pub(super) const HOLD_EXAMPLES: &str = "\
Examples:
  tapline store hold /srv/store case-7 --from '2026-11-24 09:00' --to +2h 'host 192.0.2.7'
  tapline store hold /srv/store                  lists the holds, and the segments that each keeps
  tapline store release /srv/store case-7        the packets may be deleted again

A hold keeps whole segments: those whose times overlap and whose index cannot rule out such packets. A recorder makes room with \
other segments; where all are held it loses new packets, says so, and counts them. forget refuses packets on hold.";

#[derive(Debug, Args)]
pub(crate) struct HoldArgs {
    /// The store.
    #[arg(value_name = "STORE")]
    pub(super) store: PathBuf,
    /// A name for the hold: letters, digits, '-', '_'. Without one all holds are listed.
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Packets of the time to hold, in the pcap-filter language; all packets without a filter.
    #[arg(value_name = "FILTER")]
    pub(super) filter: Vec<String>,
    #[command(flatten)]
    when: WhenArgs,
    /// The reason, for people.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true, requires = "name")]
    why: String,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReleaseArgs {
    /// The store.
    #[arg(value_name = "STORE")]
    pub(super) store: PathBuf,
    /// The hold.
    #[arg(value_name = "NAME")]
    name: String,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

pub(super) fn hold(args: &HoldArgs) -> Result<ExitCode> {
    let filter = args.filter.join(" ").trim().to_owned();
    check_filter(&filter)?;
    let catalog = Catalog::open(&args.store)?;
    let window = args.when.window()?;
    if let Some(name) = &args.name {
        let hold =
            Hold { name: name.clone(), window, filter, made: Clock::local().now, why: args.why.clone() };
        catalog.hold(&hold)?;
    } else if args.when.is_given() {
        misuse!("a hold has a name: tapline store hold STORE NAME --from ... --to ...");
    }
    let mut holds = catalog.holds()?;
    if let Some(name) = &args.name {
        holds.retain(|hold| hold.name == *name);
    }
    let kept = kept(&catalog, &holds)?;
    let text = if args.json { holds_json(&holds, &kept) } else { holds_text(&holds, &kept) };
    print(&text, args.json)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn release(args: &ReleaseArgs) -> Result<ExitCode> {
    Catalog::open(&args.store)?.release(&args.name)?;
    match args.json {
        true => println!("{}", json!({ "released": args.name })),
        false => println!("{} is released: its packets may be deleted again", args.name),
    }
    Ok(ExitCode::SUCCESS)
}

/// The segments that each hold keeps, and their packets and bytes as far as indexes have them.
fn kept(catalog: &Catalog, holds: &[HoldEntry]) -> Result<Vec<Vec<u64>>> {
    let mut kept = vec![Vec::new(); holds.len()];
    for number in catalog.numbers()? {
        let names = catalog.holds_of(number)?;
        for (hold, segments) in holds.iter().zip(&mut kept) {
            if names.contains(&hold.name) {
                segments.push(number);
            }
        }
    }
    Ok(kept)
}

fn holds_text(holds: &[HoldEntry], kept: &[Vec<u64>]) -> String {
    if holds.is_empty() {
        return "nothing is on hold\n".to_owned();
    }
    holds.iter().zip(kept).map(|(hold, segments)| hold_text(hold, segments)).collect()
}

fn hold_text(entry: &HoldEntry, segments: &[u64]) -> String {
    let kept = match segments {
        [] => "no segment has such packets now".to_owned(),
        [one] => format!("keeps segment {one}"),
        [first, .., last] => format!("keeps {} segments from {first} to {last}", segments.len()),
    };
    match &entry.hold {
        Ok(Hold { name, window, filter, made, why }) => {
            let filter = if filter.is_empty() { "all packets" } else { filter };
            let why = if why.is_empty() { String::new() } else { format!(": {}", printable(why)) };
            let filter = printable(filter);
            format!("{name}: {filter}, {}; {kept}; made {}{why}\n", window_text(window), shown(*made))
        }
        Err(reason) => {
            let reason = printable(reason.trim_end());
            format!(
                "{}: its file cannot be understood ({reason}), so it holds everything; {kept}\n",
                printable(&entry.name)
            )
        }
    }
}

/// Text of another user, in which nothing steers a terminal.
pub(super) fn printable(text: &str) -> String {
    // Marks of direction and of lines reorder and break what stands around them.
    let is_steering = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|letter| if is_steering(letter) { ' ' } else { letter }).collect()
}

fn holds_json(holds: &[HoldEntry], kept: &[Vec<u64>]) -> String {
    let value = |(entry, segments): (&HoldEntry, &Vec<u64>)| match &entry.hold {
        Ok(hold) => json!({
            "name": hold.name,
            "from_ns": bound(hold.window.from.as_nanos(), Window::ALL.from.as_nanos()),
            "to_ns": bound(hold.window.to.as_nanos(), Window::ALL.to.as_nanos()),
            "filter": hold.filter,
            "made_ns": hold.made.as_nanos(),
            "why": hold.why,
            "segments": segments,
        }),
        Err(reason) => json!({ "name": entry.name, "error": reason, "segments": segments }),
    };
    format!("{}\n", json!({ "holds": holds.iter().zip(kept).map(value).collect::<Vec<_>>() }))
}

/// A bound of times, unless it is none.
fn bound(nanos: i64, none: i64) -> Value {
    if nanos == none { Value::Null } else { nanos.into() }
}
