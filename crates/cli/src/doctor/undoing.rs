//! `--undo`: what runs with --fix have left that were killed.

use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;
use tapline_sys::NetNs;

use super::fixing::{put_back, say};
use super::journal::{self, Left};
use super::json;

/// Where the interfaces of a journal are.
enum Place {
    /// In our own namespace.
    Here,
    /// In another one.
    There(NetNs),
    /// In none that can be found: it is gone, and its virtual interfaces with it.
    Nowhere,
}

/// Runs the command.
pub(super) fn run(is_json: bool) -> Result<ExitCode> {
    journal::sweep();
    let all = journal::left();
    let left: Vec<&Left> = all.iter().filter(|left| !left.is_running && left.is_ours).collect();
    for other in all.iter().filter(|left| !left.is_running && !left.is_ours) {
        say(&format!("{} is root's: sudo tapline doctor --undo", other.path.display()));
    }
    if left.is_empty() {
        say("nothing is left to be put back");
    }
    let failed = left.iter().filter(|left| !undo(left)).count();
    if is_json {
        let undone: Vec<_> = left.iter().map(|left| json::left(left)).collect();
        writeln!(io::stdout(), "{}", json!({"undone": undone, "failed": failed}))?;
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Puts back what one journal tells. Returns whether nothing is left of it.
fn undo(left: &Left) -> bool {
    if !left.header.is_of_this_start() {
        say("the system was started anew since: all settings are its own");
        return remove(left);
    }
    let place = place(left.header.netns_inode);
    let mut is_done = true;
    for line in left.lines.iter().rev() {
        is_done &= match &place {
            Place::Here => put_back(None, line),
            Place::There(namespace) => put_back(Some(namespace), line),
            // Files are of the machine and not of the namespace.
            Place::Nowhere if line.step.change.interface().is_none() => put_back(None, line),
            Place::Nowhere => {
                say("the network namespace is gone, and nothing to put back");
                true
            }
        };
    }
    is_done && remove(left)
}

fn remove(left: &Left) -> bool {
    let removed = fs::remove_file(&left.path);
    removed.map_err(|error| say(&format!("cannot remove {}: {error}", left.path.display()))).is_ok()
}

/// The namespace of this number: ours, one with a name, or that of a process.
fn place(inode: u64) -> Place {
    if NetNs::inode_here().is_ok_and(|here| here == inode) {
        return Place::Here;
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let paths = processes.map(|pid| format!("/proc/{pid}/ns/net"));
    let mut all = NetNs::names().into_iter().chain(paths).filter_map(|name| NetNs::open(&name).ok());
    let found = all.find(|namespace| namespace.inode().is_ok_and(|other| other == inode));
    found.map_or(Place::Nowhere, Place::There)
}
