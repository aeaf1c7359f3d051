//! Files that are read again when they change: rules, and files of places.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Interval at which files are looked at.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// Metadata that shows that a file has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStamp {
    len: u64,
    modified: Option<SystemTime>,
    inode: u64,
}

impl FileStamp {
    /// `None` if there is no file.
    pub(super) fn of(path: &Path) -> Option<FileStamp> {
        use std::os::unix::fs::MetadataExt as _;
        let file = fs::metadata(path).ok()?;
        Some(FileStamp { len: file.len(), modified: file.modified().ok(), inode: file.ino() })
    }
}

/// Finds out when the file is to be read again.
pub(super) struct FileWatcher {
    /// The file as it was when it was last read.
    read: Option<FileStamp>,
    /// The file at the last look.
    last: Option<FileStamp>,
}

impl FileWatcher {
    /// For a file that has been read when it had this stamp.
    pub(super) fn new(read: Option<FileStamp>) -> FileWatcher {
        FileWatcher { read, last: read }
    }

    /// Whether the file is to be read: a reload was requested, or it has changed and then stayed for a look, since it
    /// may be in the midst of being written.
    pub(super) fn is_due(&mut self, now: Option<FileStamp>, is_asked: bool) -> bool {
        let is_settled = now.is_some() && now != self.read && now == self.last;
        self.last = now;
        let is_due = is_asked || is_settled;
        if is_due {
            self.read = now;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_due_once_it_has_settled() {
        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path().join("f");
        fs::write(&path, "a").expect("there is room");
        let mut watcher = FileWatcher::new(FileStamp::of(&path));
        assert!(!watcher.is_due(FileStamp::of(&path), false));
        assert!(watcher.is_due(FileStamp::of(&path), true), "it was asked for");
        fs::write(&path, "ab").expect("there is room");
        assert!(!watcher.is_due(FileStamp::of(&path), false), "it may be in the midst of being written");
        assert!(watcher.is_due(FileStamp::of(&path), false));
        assert!(!watcher.is_due(FileStamp::of(&path), false));
        fs::remove_file(&path).expect("it is there");
        assert!(!watcher.is_due(None, false) && !watcher.is_due(None, false), "what is gone is not read");
    }
}
