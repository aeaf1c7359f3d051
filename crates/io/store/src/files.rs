//! Files and directories that the store makes: mode and owner.
//!
//! ```text
//! directory 0750, file 0640, each less the umask      made by root: they belong to the owner of the store
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

use tapline_sys::{disk, privilege};

/// Mode of directories before the umask is taken off.
const FOLDER_MODE: u32 = 0o750;
/// Mode of files before the umask is taken off.
const FILE_MODE: u32 = 0o640;

/// Makes a directory, and those above it that are missing. One that is there stays as it is.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path)?;
    match owner_beside(path) {
        owner @ Some(_) => give(&disk::open_folder(path)?, owner),
        None => Ok(()),
    }
}

/// Makes a file. No file or link may have its name.
pub(crate) fn make(path: &Path) -> io::Result<File> {
    make_as(path, owner_beside(path))
}

/// As [`make`], for an owner: user and group.
pub(crate) fn make_as(path: &Path, owner: Option<(u32, u32)>) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(path)?;
    give(&file, owner)?;
    Ok(file)
}

/// Opens a regular file with options that may make it; a link is not followed.
pub(crate) fn open_or_make(path: &Path, options: &OpenOptions) -> io::Result<File> {
    match disk::open_regular(path, options.clone().create(false)) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        opened => return opened,
    }
    let file = disk::open_regular(path, options.clone().create(true).mode(FILE_MODE))?;
    give(&file, owner_beside(path))?;
    Ok(file)
}

fn give(file: &File, owner: Option<(u32, u32)>) -> io::Result<()> {
    match owner {
        Some((uid, gid)) => fchown(file, Some(uid), Some(gid)),
        None => Ok(()),
    }
}

/// The owner of the store that a file or directory was made in, where root made it and is not that owner. A directory
/// in which no store was made yet has none.
pub(crate) fn owner_beside(path: &Path) -> Option<(u32, u32)> {
    let folder = path.parent().filter(|_| privilege::is_root())?;
    let in_root = fs::symlink_metadata(folder.join("store.toml"));
    // A directory may be named by its descriptor.
    let above = || fs::symlink_metadata(folder.join("../store.toml")).ok();
    let about = in_root.ok().or_else(above)?;
    (about.uid() != 0).then(|| (about.uid(), about.gid()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_owner_and_group_have_access() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("above/store");
        make_folder(&store).unwrap();
        drop(make(&store.join("made")).unwrap());
        drop(open_or_make(&store.join("opened"), OpenOptions::new().append(true)).unwrap());
        for (name, mode) in [("", FOLDER_MODE), ("made", FILE_MODE), ("opened", FILE_MODE)] {
            let found = fs::metadata(store.join(name)).unwrap().mode() & 0o777;
            assert_eq!(found & !mode, 0, "{name}: {found:o}");
        }
    }

    #[test]
    fn root_makes_files_of_the_owner_of_the_store() {
        if !privilege::is_root() {
            eprintln!("skipped: root alone gives files away");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::write(root.join("store.toml"), "").unwrap();
        std::os::unix::fs::lchown(root.join("store.toml"), Some(65_534), Some(65_534)).unwrap();
        make_folder(&root.join("holds")).unwrap();
        drop(make(&root.join("holds/case.toml")).unwrap());
        drop(open_or_make(&root.join("log"), OpenOptions::new().append(true)).unwrap());
        for name in ["holds", "holds/case.toml", "log"] {
            assert_eq!(fs::metadata(root.join(name)).unwrap().uid(), 65_534, "{name}");
        }
    }
}
