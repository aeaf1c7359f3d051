//! Output of `tapline status` for a daemon.

use std::collections::BTreeMap;

use tapline_graph::grouped;
use tapline_tap_client::ShareBy;
use tapline_tap_client::protocol::{CaptureStatus, ReaderStatus, RecordingStatus, Status, UserStatus};

/// Waits of a capture for a reader that are reported: those from this length on.
const WAIT_TOLD_MS: u64 = 500;

/// All captures, recordings and readers, as lines.
pub(super) fn text(status: &Status) -> String {
    let mut text = format!("serving for {} s, {} refused\n", status.seconds, status.refused);
    for UserStatus { uid, memory, memory_max } in &status.users {
        let (used, most) = (memory.div_ceil(1 << 20), memory_max >> 20);
        text += &format!("user {uid}: {used} of {most} MiB of memory\n");
    }
    for capture in &status.captures {
        text += &capture_text(capture);
        capture.recordings.iter().for_each(|recording| text += &recording_text(recording));
        if !capture.readers.is_empty() {
            text += &format!(
                "  {:>6}  {:>7}  {:<24}{:>14}{:>14}{:>12}{:>10}  policy, filter\n",
                "reader", "process", "program", "offered", "delivered", "lost", "lag"
            );
        }
        capture.readers.iter().for_each(|reader| text += &reader_text(reader));
        text += &groups_text(&capture.readers);
        if capture.fragments_apart > 0 {
            let count = grouped(capture.fragments_apart);
            text += &format!("  {count} fragments without their first went to readers by their addresses\n");
        }
    }
    text
}

/// A line for each group: how it shares, its packets, and its members.
fn groups_text(readers: &[ReaderStatus]) -> String {
    let mut groups: BTreeMap<(u32, &str, &str), (u64, Vec<String>)> = BTreeMap::new();
    for reader in readers {
        let Some(group) = &reader.group else { continue };
        let (offered, members) = groups.entry((reader.uid, &group.name, group.by.name())).or_default();
        *offered += reader.counts.offered;
        members.push(match group.by {
            ShareBy::First => format!("{}:{}", reader.number, group.priority),
            _ => reader.number.to_string(),
        });
    }
    let line = |((uid, name, by), (offered, members)): ((u32, &str, &str), (u64, Vec<String>))| {
        let members = members.join(" ");
        format!("  group {name} of user {uid}, by {by}: {} offered, readers {members}\n", grouped(offered))
    };
    groups.into_iter().map(line).collect()
}

fn capture_text(capture: &CaptureStatus) -> String {
    let cost = match capture.packets {
        0 => String::new(),
        packets => format!(", {} ns of processor time a packet", capture.cpu_ns / packets),
    };
    let dropped = match capture.rx_dropped {
        0 => String::new(),
        count => format!(" ({} more lost, or of no use to the host: rx_dropped)", grouped(count)),
    };
    let paused = match (capture.is_paused, capture.paused) {
        (true, count) => format!(" ({} of pauses; it is paused)", grouped(count)),
        (false, 0) => String::new(),
        (false, count) => format!(" ({} of pauses)", grouped(count)),
    };
    let kernel = match capture.kernel_insns {
        None => String::new(),
        Some(1) => ", none taken from the kernel".to_owned(),
        Some(count) => format!(", {count} instructions of kernel filter"),
    };
    // Readers are waited for briefly now and then; a long wait is reported.
    let waits = match capture.waits_for.filter(|_| capture.waits_ms >= WAIT_TOLD_MS) {
        None => String::new(),
        Some(reader) => format!(
            "; has waited {:.1} s for the lossless reader {reader}; losses meanwhile are counted when the wait ends",
            capture.waits_ms as f64 / 1e3
        ),
    };
    let uncaptured = uncaptured_text(capture);
    if capture.is_restricted {
        return format!(
            "tap:{} ({}): {} packets for readers with your rights, {} lost before{dropped}{uncaptured}{waits}\n",
            capture.name,
            interfaces_text(capture),
            grouped(capture.packets),
            grouped(capture.lost_before),
        );
    }
    format!(
        "tap:{} ({}): {} packets, {} lost before{dropped}, {} without a reader{paused}, {} stored{cost}{kernel}{uncaptured}{waits}\n",
        capture.name,
        capture.interfaces.join(", "),
        grouped(capture.packets),
        grouped(capture.lost_before),
        grouped(capture.unwanted),
        grouped(capture.stored),
    )
}

/// Interfaces whose packets are lost, and nobody knows how many.
fn uncaptured_text(capture: &CaptureStatus) -> String {
    let CaptureStatus { uncaptured, uncaptured_before, .. } = capture;
    match (uncaptured, uncaptured_before) {
        (0, 0) => String::new(),
        (now, 0) => format!("; interfaces that could not be captured: {} now", grouped(*now)),
        (now, before) => {
            let (now, before) = (grouped(*now), grouped(*before));
            format!("; interfaces that could not be captured: {now} now, {before} before")
        }
    }
}

fn interfaces_text(capture: &CaptureStatus) -> String {
    let left_out = match capture.interfaces_left_out {
        0 => None,
        count => Some(format!("{} more", grouped(count))),
    };
    let unnamed = match capture.interfaces_unnamed {
        0 => None,
        count => Some(format!("{} without a name of their own, as the list is full", grouped(count))),
    };
    let names = capture.interfaces.iter().cloned().chain(left_out).chain(unnamed);
    names.collect::<Vec<_>>().join(", ")
}

fn recording_text(recording: &RecordingStatus) -> String {
    let RecordingStatus { store, written, lost, cut, buffered, error } = recording;
    let ended = if error.is_empty() { String::new() } else { format!("; it has ended: {error}") };
    format!(
        "  recorded to {store}: {} written, {} lost, {} beyond the cut-off, {} to be written{ended}\n",
        grouped(*written),
        grouped(*lost),
        grouped(*cut),
        grouped(*buffered),
    )
}

fn reader_text(reader: &ReaderStatus) -> String {
    let filter = if reader.filter.is_empty() { "all" } else { &reader.filter };
    let past = match reader.past {
        0 => String::new(),
        left => format!(", of the past {} to look at", grouped(left)),
    };
    // Texts of other users, for our terminal.
    let shown = |text: &str| text.chars().filter(|c| !c.is_control()).collect::<String>();
    let program: String = shown(&reader.program).chars().take(22).collect();
    let filter = shown(filter);
    format!(
        "  {:>6}  {:>7}  {program:<24}{:>14}{:>14}{:>12}{:>10}  {}{past}, {filter}\n",
        reader.number,
        reader.pid,
        grouped(reader.counts.offered),
        grouped(reader.counts.delivered),
        grouped(reader.counts.lost()),
        grouped(reader.counts.unread),
        reader.standing,
    )
}
