//! The file of a history, before anything is written: a regular one, no link for root, and one process writes it.
//!
//! ```text
//! FILE       the database; root follows no link to it, as to no output (docs/files.md)
//! FILE-lock  locked as long as a process writes FILE (flock(2)); has the number of that process
//! ```
//!
//! SQLite locks the database itself by fcntl(2), and such locks go with the first descriptor that is closed: this lock
//! has a file of its own.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use tapline_sys::{output_file, privilege, sandbox};

use super::VERSION;
use crate::error::Error;

/// The tables of a history.
const TABLES: [&str; 3] = ["name", "roll", "total"];
const MEND: &str = "name another file (--history FILE), keep none (--no-history), or move this one away";

/// A file that this process alone writes as long as the lock is open.
#[derive(Debug)]
pub(super) struct LockedFile {
    /// The file without links on the way to it.
    pub(super) path: PathBuf,
    pub(super) lock: File,
}

/// Takes the lock of a file, and makes the file for its user alone if it is not there.
///
/// # Errors
/// [`Error::HistoryFile`], [`Error::HistoryHeld`].
pub(super) fn take(path: &Path) -> Result<LockedFile, Error> {
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: io::Error| useless(path, &format!("{what}: {error}"))
    };
    let path = settled(path).map_err(|error| useless(path, &error))?;
    check(&path).map_err(|why| useless(&path, &why))?;
    let lock_path = beside(&path, "-lock");
    let lock = output_file::lock_at(&lock_path).map_err(failed(&format!("lock {}", lock_path.display())))?;
    let Some(mut lock) = lock else {
        let holder = fs::read_to_string(&lock_path).ok().and_then(|text| text.trim().parse().ok());
        return Err(Error::HistoryHeld { path, holder });
    };
    let written = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
    written.map_err(failed(&format!("lock {}", lock_path.display())))?;
    // Addresses and names: for the user alone, whatever the umask. SQLite gives the mode to the files beside it.
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed("cannot be made")(error)),
        _ => Ok(LockedFile { path, lock }),
    }
}

/// Refuses a file that is not regular: opening a pipe waits for ever.
///
/// # Errors
/// A text that says so.
pub(super) fn check(path: &Path) -> Result<(), String> {
    output_file::check_replaced(path).map_err(|error| error.to_string())?;
    match fs::metadata(path) {
        Ok(about) if !about.is_file() => Err("it is not a regular file".to_owned()),
        _ => Ok(()),
    }
}

/// Whether a database is a new one. One of another program, or of another version, is refused before it is changed.
///
/// # Errors
/// [`Error::HistoryFile`], [`Error::HistoryVersion`].
pub(super) fn is_new(connection: &Connection, path: &Path) -> Result<bool, Error> {
    let looked = || -> rusqlite::Result<(i64, Vec<String>)> {
        let mut statement = connection.prepare("SELECT name FROM sqlite_master WHERE type = 'table'")?;
        let tables = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
        Ok((super::version(connection)?, tables))
    };
    let (version, tables) = looked().map_err(|error| useless(path, &Error::line(&error)))?;
    let is_history = TABLES.iter().all(|name| tables.iter().any(|table| table == name));
    match version {
        0 if tables.is_empty() => Ok(true),
        VERSION if is_history => Ok(false),
        _ if is_history => Err(Error::HistoryVersion { path: path.to_owned(), version }),
        _ => Err(useless(path, &"it is the database of another program")),
    }
}

/// A file that cannot be the history, and the mend.
pub(super) fn useless(path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::HistoryFile { path: path.to_owned(), why: format!("{why}: {MEND}") }
}

/// The name of a file in the same folder.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The path without links: folders on the way may be some, and for users the file itself.
fn settled(path: &Path) -> io::Result<PathBuf> {
    let is_link = fs::symlink_metadata(path).is_ok_and(|about| about.is_symlink());
    if is_link && privilege::is_root() {
        return Err(io::Error::other("it is a link, and root follows none"));
    }
    if is_link {
        return fs::canonicalize(path);
    }
    let (Some(folder), Some(name)) = (sandbox::folder_of(path), path.file_name()) else {
        return Err(io::Error::other("it is a folder"));
    };
    Ok(fs::canonicalize(folder)?.join(name))
}
