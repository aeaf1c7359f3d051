//! Proof that a recorder may read and write the files of its store, after the process has given up its other rights.
//!
//! Without it the lack would show when the first segment is full, and cost every packet from then on.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use tapline_sys::{disk, privilege};

use crate::error::Error;
use crate::files;
use crate::layout::{Paths, named};

/// Reads and writes each file and directory of a store that a recorder needs; nothing is changed.
///
/// # Errors
/// [`Error::Access`] for the first one that is refused.
pub(super) fn check(paths: &Paths) -> Result<(), Error> {
    let refused = |action: &'static str, path: &Path, tried: io::Result<()>| match tried {
        Err(source) if is_refusal(&source) => Err(Error::Access {
            action,
            path: named(path),
            root: paths.root().to_owned(),
            user: privilege::user(),
            source,
        }),
        _ => Ok(()),
    };
    let description = paths.description();
    refused("read", &description, open(&description, OpenOptions::new().read(true)))?;
    for path in [paths.lock(), paths.log(), paths.recordings(), paths.reserve()] {
        refused("write to", &path, open(&path, OpenOptions::new().append(true)))?;
    }
    let folders = [(paths.segments(), "spare-access"), (paths.roll_ups(), "access.part")];
    for (folder, name) in folders {
        refused("make files in", &folder, make_and_remove(&folder.join(name)))?;
        for path in entries(&folder, |tried| refused("read", &folder, tried))? {
            match path.extension().and_then(|ending| ending.to_str()) {
                Some("tix" | "tir") => {
                    refused("read", &path, open(&path, OpenOptions::new().read(true)))?;
                }
                Some("pcapng" | "zst") => {
                    refused("write to", &path, open(&path, OpenOptions::new().read(true).write(true)))?;
                }
                _ => {}
            }
        }
    }
    // A hold that cannot be read keeps every segment.
    let holds = paths.holds();
    let files = entries(&holds, |tried| refused("read", &holds, tried))?;
    for path in files.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "toml")) {
        refused("read", &path, open(&path, OpenOptions::new().read(true)))?;
    }
    Ok(())
}

/// A lack of rights. Others are none: a file that is missing, a disk that is full, a link that readers pass over.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

fn open(path: &Path, options: &OpenOptions) -> io::Result<()> {
    disk::open_regular(path, options).map(drop)
}

fn make_and_remove(path: &Path) -> io::Result<()> {
    drop(files::open_or_make(path, OpenOptions::new().write(true))?);
    fs::remove_file(path)
}

/// The entries of a directory that may be missing.
fn entries(
    folder: &Path,
    refused: impl FnOnce(io::Result<()>) -> Result<(), Error>,
) -> Result<Vec<PathBuf>, Error> {
    match fs::read_dir(folder) {
        Ok(entries) => Ok(entries.flatten().map(|entry| entry.path()).collect()),
        Err(error) => refused(Err(error)).map(|()| Vec::new()),
    }
}
