//! `tapline store`: shows the contents of a store, and checks that it is as it was written.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::json;
use tapline_graph::grouped;
use tapline_packet::Timestamp;
use tapline_store::moments::shown;
use tapline_store::{
    Catalog, Finding, OpenKeys, RecordingEntry, Rest, SegmentEntry, Standing, Verified, Window, gap_lines,
};
use tapline_sys::sandbox::AllowedAccess;

use super::forget::{self, FORGET_EXAMPLES, ForgetArgs};
use super::hold::{self, HOLD_EXAMPLES, HoldArgs, ReleaseArgs, printable};
use super::import::{self, IMPORT_EXAMPLES, ImportArgs};
use super::mend::{self, CHECK_EXAMPLES, REPAIR_EXAMPLES};
use super::progress::{ProgressLine, print};
use crate::privileges;
use crate::stored::gap_json;

pub(crate) const STORE_EXAMPLES: &str = "\
Examples:
  tapline store status /srv/store               segments, times, packets, losses, size of the index
  tapline store check /srv/store                damaged chunk heads and indexes, and what repair can fix
  tapline store verify /srv/store               every checksum, and the chain of hashes
  tapline store hold /srv/store case-7 --from -1h 'host 192.0.2.7'      keeps packets of this host
  tapline store forget /srv/store 'host 192.0.2.7'                      erases them; asks before
  tapline store import /srv/store /srv/pcaps    capture files, with an index

docs/store.md shows typical work with a store.";

const STATUS_NOTES: &str = "\
A line for each segment: its number, the times of its packets, how many there are and their captured bytes, packets lost before \
the recorder and in it, and the length of the index in percent of the segment. Notes after it have the room on the disk of a segment \
whose chunks are compressed, and name the keys that the index does \
not have for all slots (searches for them read these slots), packets left out by --cut, and chunks from which packets were erased. \
A recorder may run at the same time.";

const VERIFY_NOTES: &str = "\
Exit status: 0 if all is as recorded, or as forget left it; 1 otherwise. Each finding names its segment and chunk. All bytes are \
read, so it takes as long as the disk needs. A recorder may run at the same time.";

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Show the contents of a store: segments, times, packets, losses.
    #[command(after_help = STATUS_NOTES)]
    Status(StatusArgs),
    /// Check all chunk heads and indexes: report damage, and what repair can fix.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(StatusArgs),
    /// Read every chunk: verify that none was altered, removed or inserted since it was recorded.
    #[command(after_help = VERIFY_NOTES)]
    Verify(StatusArgs),
    /// Rebuild missing or damaged indexes from the chunks; finish an interrupted erasure.
    #[command(after_help = REPAIR_EXAMPLES)]
    Repair(StatusArgs),
    /// Put packets on hold, by time and filter, so that they are never deleted; list the holds.
    #[command(after_help = HOLD_EXAMPLES)]
    Hold(HoldArgs),
    /// End a hold: its packets may be deleted again.
    Release(ReleaseArgs),
    /// Erase packets, by time and filter: their chunks are rewritten without them.
    #[command(after_help = FORGET_EXAMPLES)]
    Forget(ForgetArgs),
    /// Copy capture files into a store, with an index.
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(ImportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The store: a directory that tapline record fills.
    #[arg(value_name = "STORE")]
    pub(super) store: PathBuf,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(super) json: bool,
}

/// Runs the command.
pub(crate) fn manage(command: &StoreCommand) -> Result<ExitCode> {
    confine(command);
    match command {
        StoreCommand::Status(args) => status(args),
        StoreCommand::Check(args) => mend::check(args),
        StoreCommand::Verify(args) => verify(args),
        StoreCommand::Repair(args) => mend::repair(args),
        StoreCommand::Hold(args) => hold::hold(args),
        StoreCommand::Release(args) => hold::release(args),
        StoreCommand::Forget(args) => forget::forget(args),
        StoreCommand::Import(args) => import::import(args),
    }
}

/// Leaves this process the store, which some commands write to. `import` makes one.
fn confine(command: &StoreCommand) {
    let (store, writes, filter) = match command {
        StoreCommand::Status(args) | StoreCommand::Check(args) | StoreCommand::Verify(args) => {
            (&args.store, false, &[][..])
        }
        StoreCommand::Repair(args) => (&args.store, true, &[][..]),
        StoreCommand::Hold(args) => (&args.store, true, &args.filter[..]),
        StoreCommand::Release(args) => (&args.store, true, &[][..]),
        StoreCommand::Forget(args) => (&args.store, true, &args.filter[..]),
        StoreCommand::Import(_) => return,
    };
    let (makes, reads) = if writes { (vec![store.clone()], vec![]) } else { (vec![], vec![store.clone()]) };
    let ip = filter.iter().any(|word| tapline_filter::may_ask_for_names(word));
    privileges::confine_quietly(&AllowedAccess { reads, makes, ip, ..AllowedAccess::default() });
}

/// The exit status where packets that were recorded are gone.
const INCOMPLETE: u8 = 3;

fn status(args: &StatusArgs) -> Result<ExitCode> {
    let catalog = Catalog::open(&args.store)?;
    let segments = catalog.segments()?;
    let missing = catalog.segments_missing()?;
    let text = match args.json {
        true => status_json(&catalog, &segments, &missing),
        false => status_text(&catalog, &segments, &missing),
    };
    print(&text, args.json)?;
    let is_complete = missing.is_empty() && segments.iter().all(|segment| gone(segment) == 0);
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::from(INCOMPLETE) })
}

/// Chunks of a segment that are known to be gone.
fn gone(segment: &SegmentEntry) -> u64 {
    segment.chunks_missing.unwrap_or(0)
}

fn status_text(catalog: &Catalog, segments: &[SegmentEntry], missing: &[(u64, u64)]) -> String {
    let state = if catalog.is_recorded() { "being recorded" } else { "not being recorded" };
    let mut text = format!(
        "{}: {state}, {} segments of {} bytes, id {}\n",
        catalog.root().display(),
        segments.len(),
        grouped(catalog.segment_len()),
        catalog.id()
    );
    text += &format!(
        "{:>10}  {:<19}  {:<19}{:>15}{:>18}{:>12}{:>9}\n",
        "segment", "from", "to", "packets", "bytes", "lost", "index"
    );
    let without_index =
        "without an index (being recorded, broken off, or --no-index): searches walk its chunks";
    for segment in segments {
        let Some(standing) = segment.standing.as_ref().or(segment.walked.as_ref()) else {
            text += &format!("{:>10}  {without_index}\n", segment.number);
            continue;
        };
        let share = standing.index_len as f64 * 100.0 / segment.len.max(1) as f64;
        let index = segment.standing.map_or("-".to_owned(), |_| format!("{share:.2} %"));
        text += &format!(
            "{:>10}  {}  {}{:>15}{:>18}{:>12}{index:>9}{}{}{}\n",
            segment.number,
            shown(standing.first),
            shown(standing.last),
            grouped(standing.packets),
            grouped(standing.bytes),
            grouped(standing.lost.saturating_add(standing.dropped)),
            packed(segment),
            given_up(standing),
            overload(standing)
        );
        if segment.standing.is_none() {
            text += &format!("{:>10}  {without_index}\n", "");
        }
    }
    for (first, last) in missing {
        text += &format!("{}\n", missing_text(*first, *last));
    }
    for segment in segments.iter().filter(|segment| gone(segment) > 0) {
        text += &format!("{}\n", chunks_missing_text(segment.number, gone(segment)));
    }
    text + recordings_text(catalog).as_str()
}

fn missing_text(first: u64, last: u64) -> String {
    match first == last {
        true => format!("segment {first} is missing: no recorder deleted it, by the store's log"),
        false => {
            format!("segments {first} to {last} are missing: no recorder deleted them, by the store's log")
        }
    }
}

fn chunks_missing_text(segment: u64, chunks: u64) -> String {
    match chunks {
        1 => format!("segment {segment}: 1 chunk that was recorded is missing"),
        _ => format!("segment {segment}: {} chunks that were recorded are missing", grouped(chunks)),
    }
}

/// All times, but as a window with a bound: then the time after the last recording is reported too.
const SINCE_EVER: Window = Window { from: Timestamp::from_nanos(i64::MIN + 1), ..Window::ALL };

/// Losses that no chunk has, and times in which nothing was recorded.
fn recordings_text(catalog: &Catalog) -> String {
    let mut lines = Vec::new();
    for recording in catalog.recordings() {
        let Rest { segment, lost, dropped, .. } = recording.rest;
        let lost = lost.saturating_add(dropped);
        if let (1.., Some(to)) = (lost, recording.to) {
            let packets = grouped(lost);
            lines.push(format!(
                "the recording that ended at {} lost {packets} packets behind its last chunk (counted with segment {segment})",
                shown(to)
            ));
        }
    }
    lines.extend(gap_lines(&catalog.recording_gaps(SINCE_EVER)));
    lines.into_iter().map(|line| line + "\n").collect()
}

/// The room of a segment on the disk, if its chunks are compressed.
fn packed(segment: &SegmentEntry) -> String {
    segment
        .packed_len
        .map_or(String::new(), |len| format!("  compressed: {} bytes on the disk", grouped(len)))
}

/// Keys that the budget of an index dropped, and in how many slots.
fn given_up(standing: &Standing) -> String {
    let of = |way: OpenKeys, name: &str| match standing.open[way as usize] {
        0 => None,
        slots => Some(format!("{name} in {} of {} slots", grouped(slots), grouped(standing.slots))),
    };
    let ways = [
        of(OpenKeys::Flows, "flows and pairs"),
        of(OpenKeys::Ports, "high ports"),
        of(OpenKeys::Addresses, "addresses but not networks"),
        of(OpenKeys::All, "some facts"),
    ];
    let told: Vec<String> = ways.into_iter().flatten().collect();
    if told.is_empty() { String::new() } else { format!("  not in the index: {}", told.join(", ")) }
}

/// Packets lost because the disk was too slow, by policy.
fn overload(standing: &Standing) -> String {
    let policies = ["newest", "oldest", "new flows"].into_iter().zip(standing.overload);
    let lost = policies.filter(|(_, packets)| *packets > 0);
    let told: Vec<String> = lost.map(|(policy, packets)| format!("{} {policy}", grouped(packets))).collect();
    if told.is_empty() { String::new() } else { format!("  disk too slow, lost: {}", told.join(", ")) }
}

fn status_json(catalog: &Catalog, segments: &[SegmentEntry], missing: &[(u64, u64)]) -> String {
    let segment = |segment: &SegmentEntry| {
        let standing = |standing: &Standing| {
            json!({
                "first_ns": standing.first.as_nanos(),
                "last_ns": standing.last.as_nanos(),
                "packets": standing.packets,
                "bytes": standing.bytes,
                "lost": standing.lost,
                "dropped": standing.dropped,
                "index_bytes": standing.index_len,
                "cut": standing.cut,
                "overload_newest": standing.overload[0],
                "overload_oldest": standing.overload[1],
                "overload_flows": standing.overload[2],
                "erased_chunks": standing.erased,
                "slots": standing.slots,
                "slots_without_some_facts": standing.open[OpenKeys::All as usize],
                "slots_without_flows": standing.open[OpenKeys::Flows as usize],
                "slots_without_high_ports": standing.open[OpenKeys::Ports as usize],
                "slots_without_addresses": standing.open[OpenKeys::Addresses as usize],
            })
        };
        let mut value = json!({
            "number": segment.number,
            "bytes": segment.len,
            "sealed": segment.standing.as_ref().map(standing),
            "walked": segment.walked.as_ref().map(standing),
            "chunks_missing": segment.chunks_missing,
        });
        if let Some(len) = segment.packed_len {
            value["disk_bytes"] = json!(len);
        }
        value
    };
    let recording = |recording: &RecordingEntry| {
        let Rest { segment, lost, lost_unknown, dropped, cut, .. } = recording.rest;
        json!({
            "from_ns": recording.from.as_nanos(),
            "to_ns": recording.to.map(Timestamp::as_nanos),
            "live": recording.is_live,
            "broken_off": recording.is_broken,
            "behind_last_chunk": recording.to.filter(|_| !recording.is_broken).map(|_| json!({
                "segment": segment,
                "lost": (!lost_unknown).then_some(lost),
                "dropped": dropped,
                "cut": cut,
            })),
        })
    };
    let value = json!({
        "store": catalog.root(),
        "id": catalog.id(),
        "recorded": catalog.is_recorded(),
        "segment_bytes": catalog.segment_len(),
        "segments": segments.iter().map(segment).collect::<Vec<_>>(),
        "segments_missing": missing.iter().map(|(first, last)| json!([first, last])).collect::<Vec<_>>(),
        "recordings": catalog.recordings().iter().map(recording).collect::<Vec<_>>(),
        "unrecorded": catalog.recording_gaps(SINCE_EVER).iter().map(gap_json).collect::<Vec<_>>(),
    });
    format!("{value}\n")
}

fn verify(args: &StatusArgs) -> Result<ExitCode> {
    let catalog = Catalog::open(&args.store)?;
    let line = ProgressLine::new("segments");
    let verified = tapline_store::verify(&catalog, &mut |done, all| {
        line.tell(done, all);
        true
    })?;
    drop(line);
    let text = if args.json { verified_json(&verified) } else { verified_text(&verified) };
    print(&text, args.json)?;
    Ok(if verified.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn verified_text(verified: &Verified) -> String {
    let mut text: String =
        verified.findings.iter().map(|finding| format!("{}\n", finding_text(finding))).collect();
    let counts = format!(
        "{} segments, {} chunks, {} packets, {} bytes",
        grouped(verified.segments),
        grouped(verified.chunks),
        grouped(verified.packets),
        grouped(verified.bytes)
    );
    if let deleted @ 1.. = verified.deleted {
        text += &format!(
            "{} segments between were deleted by a recorder, by the store's log: no hash joins the chunks before and behind\n",
            grouped(deleted)
        );
    }
    if let (chunks @ 1.., packets) = verified.erased {
        text += &format!(
            "{} packets were erased from {} chunks (see the log)\n",
            grouped(packets),
            grouped(chunks)
        );
    }
    if verified.begun > 0 {
        text += &begun_text(verified.begun);
    }
    if verified.unfinished > 0 {
        text += &format!(
            "{} chunks were being written when their recorder was killed: their packets are lost, the others are as \
             they were recorded\n",
            grouped(verified.unfinished)
        );
    }
    text += &match verified.findings.len() {
        0 => format!("{counts}: as they were recorded\n"),
        1 => format!("{counts}: 1 finding\n"),
        several => format!("{counts}: {several} findings\n"),
    };
    text
}

/// Segments that a recorder was clearing when it ended.
pub(super) fn begun_text(segments: u64) -> String {
    let (count, verb) = (grouped(segments), if segments == 1 { "segment was" } else { "segments were" });
    format!(
        "{count} {verb} begun in a recycled file and got no packet: nothing is lost, the next recorder continues there\n"
    )
}

pub(super) fn finding_text(finding: &Finding) -> String {
    match finding {
        Finding::Damaged { segment, offset, number } => {
            format!("segment {segment}: chunk {number} at byte {offset} is not as it was written")
        }
        Finding::Unfinished { segment, offset, number } => {
            format!(
                "segment {segment}: chunk {number} at byte {offset} is not whole: its recorder was killed while it wrote \
                 here"
            )
        }
        Finding::Foreign { segment, places } => {
            format!("segment {segment}: {places} places hold neither chunk nor filler")
        }
        Finding::SegmentsMissing { first, last } => missing_text(*first, *last),
        Finding::ChunksMissing { segment, chunks } => chunks_missing_text(*segment, *chunks),
        Finding::SecondFile { segment, path } => {
            let path = printable(&path.display().to_string());
            format!("segment {segment} has two files: {path} is not read; move it away")
        }
        Finding::Unreadable { segment } => format!("segment {segment} cannot be read"),
        Finding::Missing { segment, expected, found } => {
            format!("segment {segment}: chunk {found} is in the place of chunk {expected}")
        }
        Finding::Broken { segment, number } => {
            format!("segment {segment}: chunk {number} does not follow from the one before it")
        }
        Finding::Length { segment, len } => {
            format!("segment {segment} has {} bytes, not those of a segment of this store", grouped(*len))
        }
        Finding::NoIndex { segment } => format!("segment {segment} has no index"),
        Finding::IndexDamaged { segment } => {
            format!("segment {segment}: its index is not as it was written, and is not used")
        }
        Finding::IndexDiffers { segment } => {
            format!("segment {segment}: its index lists other chunks than it has")
        }
        Finding::RollUp { number } => format!("roll-up {number} is missing, or not as it was written"),
        Finding::RewriteLeft => "an erasure was killed while it wrote (file rewrite)".to_owned(),
        Finding::HoldMissing { name } => {
            format!("hold {} is gone, and nobody released it, by the store's log", printable(name))
        }
        Finding::Hold { name, reason } => {
            let reason = printable(reason.trim_end());
            let name = printable(name);
            format!("hold {name} cannot be understood, so it holds everything: {reason}")
        }
    }
}

fn verified_json(verified: &Verified) -> String {
    let findings: Vec<String> = verified.findings.iter().map(finding_text).collect();
    let value = json!({
        "segments": verified.segments,
        "chunks": verified.chunks,
        "packets": verified.packets,
        "bytes": verified.bytes,
        "deleted_segments": verified.deleted,
        "erased_chunks": verified.erased.0,
        "erased_packets": verified.erased.1,
        "segments_begun": verified.begun,
        "chunks_unfinished": verified.unfinished,
        "findings": findings,
    });
    format!("{value}\n")
}
