//! `--undo`: what runs with --fix have left that were killed.

use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;
use tapline_sys::{NetNs, privilege};

use super::fixing::{put_back, say};
use super::journal::{self, Header, Left};
use super::json;
use super::words::plain;

/// Where the interfaces of a journal are.
enum Place {
    /// In our own namespace.
    Here,
    /// In another one.
    There(NetNs),
    /// In none: it is gone, and its virtual interfaces with it.
    Nowhere,
    /// In none that we can see, and there are some that we may not look at.
    Hidden,
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
    let (done, kept): (Vec<&Left>, Vec<&Left>) = left.into_iter().partition(|left| undo(left));
    let failed = kept.len();
    if is_json {
        let undone: Vec<_> = done.into_iter().map(json::left).collect();
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
    let place = place(&left.header);
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
            Place::Hidden if line.step.change.interface().is_none() => put_back(None, line),
            Place::Hidden => {
                let before = plain(&line.step.before.to_string());
                say(&format!(
                    "NOT put back: {before}: its network namespace may be one that you may not see; use sudo"
                ));
                false
            }
        };
    }
    is_done && remove(left)
}

fn remove(left: &Left) -> bool {
    let removed = fs::remove_file(&left.path);
    removed.map_err(|error| say(&format!("cannot remove {}: {error}", left.path.display()))).is_ok()
}

/// The namespace of this number: ours, the one at the path or of the name that it had, another one with a name, or that of a process.
fn place(header: &Header) -> Place {
    let inode = header.netns_inode;
    if NetNs::inode_here().is_ok_and(|here| here == inode) {
        return Place::Here;
    }
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let paths = processes.map(|pid| format!("/proc/{pid}/ns/net"));
    let mut is_hidden = false;
    for name in header.netns.iter().cloned().chain(NetNs::names()).chain(paths) {
        match NetNs::open(&name) {
            Ok(namespace) if namespace.inode().is_ok_and(|other| other == inode) => {
                return Place::There(namespace);
            }
            Ok(_) => {}
            Err(error) => is_hidden |= error.kind() == io::ErrorKind::PermissionDenied,
        }
    }
    // Root sees all that can be seen: what is kept from root as well (a container's first process) never becomes visible.
    if is_hidden && !privilege::is_root() { Place::Hidden } else { Place::Nowhere }
}
