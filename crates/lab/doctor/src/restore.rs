//! Restores the settings that killed runs have left changed, from their journals.

use std::{fs, io};

use tapline_sys::{NetNs, privilege};

use crate::fix::undo_all;
use crate::journal::{self, Entry, FoundJournal, Header};
use crate::{Error, Event};

/// Journals after an attempt to restore them.
#[derive(Debug, Default)]
pub struct Restored {
    /// Journals of which every setting is as before; their files are removed.
    pub done: Vec<FoundJournal>,
    /// Journals with a setting that could not be put back; their files stay.
    pub kept: Vec<FoundJournal>,
}

/// The network namespace of a journal.
enum JournalNamespace {
    /// The namespace of the process.
    Here,
    /// Another one.
    There(NetNs),
    /// Gone, and its virtual interfaces with it.
    Gone,
    /// None that this user can see, while some are hidden from the user.
    Hidden,
}

/// Restores every journal of this user whose process is gone. `tell` is called for each setting.
pub fn restore(tell: fn(&Event)) -> Restored {
    journal::sweep();
    let (ours, others): (Vec<_>, Vec<_>) =
        journal::found().into_iter().filter(|found| !found.is_running).partition(|found| found.is_ours);
    for other in others {
        tell(&Event::JournalOfRoot(other.path));
    }
    if ours.is_empty() {
        tell(&Event::NothingLeft);
    }
    let (done, kept) = ours.into_iter().partition(|found| restore_one(found, tell));
    Restored { done, kept }
}

/// Restores one journal. Gives whether its file is removed.
fn restore_one(found: &FoundJournal, tell: fn(&Event)) -> bool {
    if !found.header.is_of_this_boot() {
        tell(&Event::Restarted);
        return remove(found, tell);
    }
    let place = place(&found.header);
    // Each entry is tried, also behind one that fails.
    let failed = found.entries.iter().rev().filter(|entry| !restore_entry(entry, &place, tell)).count();
    failed == 0 && remove(found, tell)
}

fn restore_entry(entry: &Entry, place: &JournalNamespace, tell: fn(&Event)) -> bool {
    match place {
        JournalNamespace::There(namespace) => undo_all(Some(namespace), entry, tell),
        JournalNamespace::Here => undo_all(None, entry, tell),
        // Settings of the machine are the same in every namespace.
        JournalNamespace::Gone | JournalNamespace::Hidden if entry.step.change.interface().is_none() => {
            undo_all(None, entry, tell)
        }
        JournalNamespace::Gone => {
            tell(&Event::NamespaceGone);
            true
        }
        JournalNamespace::Hidden => {
            let before = Some(entry.step.before.clone());
            tell(&Event::NotPutBack { before, why: Error::HiddenNamespace });
            false
        }
    }
}

fn remove(found: &FoundJournal, tell: fn(&Event)) -> bool {
    let removed = fs::remove_file(&found.path);
    let path = || found.path.display().to_string();
    let failed = |source| Error::Journal { action: "remove", path: path(), source };
    removed.map_err(|source| tell(&Event::JournalNotRemoved(failed(source)))).is_ok()
}

/// The namespace of the journal: that of the process, one under the journal's name, under any name, or of another
/// process.
fn place(header: &Header) -> JournalNamespace {
    // Of the namespaces that there are one has the inode: if its cookie is another, that of the journal is gone.
    if NetNs::inode_here().is_ok_and(|inode| inode == header.netns_inode) {
        let is_it = header.has_cookie(NetNs::cookie_here());
        return if is_it { JournalNamespace::Here } else { JournalNamespace::Gone };
    }
    let has_inode = |namespace: &NetNs| namespace.inode().is_ok_and(|inode| inode == header.netns_inode);
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let paths = processes.map(|pid| format!("/proc/{pid}/ns/net"));
    let mut is_hidden = false;
    for name in header.netns.iter().cloned().chain(NetNs::names()).chain(paths) {
        match NetNs::open(&name) {
            Ok(namespace) if has_inode(&namespace) => {
                let is_it = header.has_cookie(namespace.run(NetNs::cookie_here).ok().flatten());
                return if is_it { JournalNamespace::There(namespace) } else { JournalNamespace::Gone };
            }
            Ok(_) => {}
            Err(error) => is_hidden |= error.kind() == io::ErrorKind::PermissionDenied,
        }
    }
    // A namespace that is hidden from root too (of a container's first process) never becomes visible.
    if is_hidden && !privilege::is_root() { JournalNamespace::Hidden } else { JournalNamespace::Gone }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_with_the_inode_of_a_removed_one_is_another() {
        let mut header = Header::now(None, None).unwrap();
        assert!(matches!(place(&header), JournalNamespace::Here));
        let cookie = header.netns_cookie.take();
        assert!(matches!(place(&header), JournalNamespace::Here), "a journal of Linux before 5.14");
        if let Some(cookie) = cookie {
            header.netns_cookie = Some(cookie + 1);
            assert!(matches!(place(&header), JournalNamespace::Gone));
        }
    }
}
