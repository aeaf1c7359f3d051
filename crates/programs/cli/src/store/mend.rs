//! `tapline store check` and `repair`.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;
use tapline_graph::grouped;
use tapline_store::{Catalog, Checked, Finding, Repaired};

use super::manage::{StatusArgs, begun_text, finding_text};
use super::progress::{ProgressLine, print};

pub(super) const CHECK_EXAMPLES: &str = "\
Exit status: 0 no faults; 3 faults that tapline store repair can fix; 1 faults that cost packets or need an \
administrator. Heads of chunks and pages of indexes are read, packets are not: tapline store verify reads everything. \
A recorder may run at the same time.";

pub(super) const REPAIR_EXAMPLES: &str = "\
Missing and damaged indexes and roll-ups are made again from the chunks, with the keys that their recorder chose, and an erasure \
that was killed is finished. Nothing else is touched. Stop the recorder first: both need the store's lock. A search needs no \
repair: it walks the chunks of a segment without an index.";

/// Exit status if `repair` can fix all faults.
const MENDABLE: u8 = 3;

pub(super) fn check(args: &StatusArgs) -> Result<ExitCode> {
    let catalog = Catalog::open(&args.store)?;
    let line = ProgressLine::new("segments");
    let checked = tapline_store::check(&catalog, &mut |done, all| {
        line.tell(done, all);
        true
    })?;
    drop(line);
    let text = if args.json { checked_json(&checked) } else { checked_text(&checked) };
    print(&text, args.json)?;
    Ok(match checked.findings.iter().all(Finding::is_mendable) {
        _ if checked.findings.is_empty() => ExitCode::SUCCESS,
        true => ExitCode::from(MENDABLE),
        false => ExitCode::FAILURE,
    })
}

fn checked_text(checked: &Checked) -> String {
    let mut text: String =
        checked.findings.iter().map(|finding| format!("{}\n", finding_text(finding))).collect();
    if checked.begun > 0 {
        text += &begun_text(checked.begun);
    }
    text += &format!(
        "{} segments: {} with an index, {} open, {} with something wrong; {} chunks with {} packets, {} roll-ups: ",
        grouped(checked.segments),
        grouped(checked.indexed),
        grouped(checked.open),
        grouped(checked.wrong),
        grouped(checked.chunks),
        grouped(checked.packets),
        grouped(checked.roll_ups)
    );
    let mendable = checked.findings.iter().filter(|finding| finding.is_mendable()).count();
    text += &match (checked.findings.len(), mendable) {
        (0, _) => "OK (packets are not read: tapline store verify does)\n".to_owned(),
        (all, 0) => format!("{all} findings\n"),
        (all, mendable) => format!("{all} findings, of which tapline store repair can fix {mendable}\n"),
    };
    text
}

fn checked_json(checked: &Checked) -> String {
    let finding =
        |finding: &Finding| json!({ "text": finding_text(finding), "mendable": finding.is_mendable() });
    let value = json!({
        "segments": checked.segments,
        "segments_indexed": checked.indexed,
        "segments_open": checked.open,
        "segments_begun": checked.begun,
        "segments_wrong": checked.wrong,
        "chunks": checked.chunks,
        "packets": checked.packets,
        "roll_ups": checked.roll_ups,
        "findings": checked.findings.iter().map(finding).collect::<Vec<_>>(),
        "balanced": checked.is_balanced(),
    });
    format!("{value}\n")
}

pub(super) fn repair(args: &StatusArgs) -> Result<ExitCode> {
    let catalog = Catalog::open(&args.store)?;
    let line = ProgressLine::new("segments");
    let repaired = tapline_store::repair(&catalog, &mut |done, all| {
        line.tell(done, all);
        true
    })?;
    drop(line);
    let text = if args.json { repaired_json(&repaired) } else { repaired_text(&repaired) };
    print(&text, args.json)?;
    let is_whole = repaired.unreadable + repaired.damaged == 0 && repaired.is_balanced();
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn repaired_text(repaired: &Repaired) -> String {
    let mut text: String = repaired.refused.iter().map(|line| format!("{line}\n")).collect();
    let mut row = |name: &str, count: u64| text += &format!("  {name:<44}{:>14}\n", grouped(count));
    row("segments", repaired.segments);
    row("with an intact index", repaired.intact);
    row("whose index was made again", repaired.made);
    row("unreadable", repaired.unreadable);
    row("roll-ups", repaired.roll_ups);
    row("of these made again", repaired.roll_ups_made);
    row("chunks of an erasure that was killed", repaired.rewritten);
    if repaired.damaged > 0 {
        row("damaged chunks and places, in no index", repaired.damaged);
    }
    text + format!(
        "  {} bytes of indexes were made of {} packets in {} chunks; {}\n",
        grouped(repaired.index_bytes),
        grouped(repaired.packets),
        grouped(repaired.chunks),
        if repaired.is_balanced() { "every segment is accounted for" } else { "NOT BALANCED" }
    )
    .as_str()
}

fn repaired_json(repaired: &Repaired) -> String {
    let value = json!({
        "segments": repaired.segments,
        "segments_intact": repaired.intact,
        "segments_made": repaired.made,
        "segments_unreadable": repaired.unreadable,
        "chunks": repaired.chunks,
        "packets": repaired.packets,
        "damaged": repaired.damaged,
        "index_bytes": repaired.index_bytes,
        "roll_ups": repaired.roll_ups,
        "roll_ups_made": repaired.roll_ups_made,
        "chunks_rewritten": repaired.rewritten,
        "refused": repaired.refused,
        "balanced": repaired.is_balanced(),
    });
    format!("{value}\n")
}
