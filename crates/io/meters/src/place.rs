//! Directories of files that others read while their process runs, and which files belong to ended processes:
//! `docs/format/meters.md`, "Where".
//!
//! ```text
//! process   makes the file --locks it--------------------------------> ends: the kernel takes the lock away
//! sweeper   opens it ------tries to lock it: refused, so it lives      got it: stale, removed under the lock
//! ```
//!
//! A remover holds the file's lock and checks that its name still belongs to it. So a reused name is never removed.

use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process;

use tapline_sys::{disk, privilege};

use crate::Error;

/// Files that one process may have.
const FILES_MAX: usize = 64;

/// A kind of files. The names of others are not touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileKind {
    /// The end of the name, with its dot.
    pub suffix: &'static str,
    /// The mode of the files.
    pub mode: u32,
}

/// Files of meters: for everyone to read.
pub(crate) const METERS: FileKind = FileKind { suffix: ".meters", mode: 0o644 };

/// A folder that such files may be in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder {
    folder: PathBuf,
    /// Anyone could have made it: it counts only if it is ours alone.
    is_public: bool,
}

/// The folders, the best one first.
pub fn run_folders() -> Vec<RunFolder> {
    places_of(env::var_os("TAPLINE_RUN_DIR"), env::var_os("XDG_RUNTIME_DIR"), privilege::user())
}

fn places_of(
    chosen: Option<std::ffi::OsString>,
    runtime: Option<std::ffi::OsString>,
    user: u32,
) -> Vec<RunFolder> {
    let own = |folder: PathBuf| RunFolder { folder, is_public: false };
    let named =
        |value: Option<std::ffi::OsString>| value.filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = named(chosen) {
        return vec![own(folder)];
    }
    let mut places = vec![own("/run/tapline".into())];
    places.extend(named(runtime).map(|folder| own(folder.join("tapline"))));
    places.push(RunFolder { folder: format!("/tmp/tapline-{user}").into(), is_public: true });
    places
}

impl RunFolder {
    /// This folder, whichever user made it.
    pub fn of(folder: &Path) -> RunFolder {
        RunFolder { folder: folder.to_owned(), is_public: false }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Makes the folder if it is not there.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be made; as [`check`](Self::check) if it is there.
    pub fn prepare(&self) -> Result<(), Error> {
        match DirBuilder::new().mode(0o755).create(&self.folder) {
            Ok(()) => fs::set_permissions(&self.folder, Permissions::from_mode(0o755))
                .map_err(Error::io("set the mode of", &self.folder)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.check(),
            Err(error) => Err(Error::io("create", &self.folder)(error)),
        }
    }

    /// Whether the contents of the folder can be trusted.
    ///
    /// # Errors
    /// [`Error::ForeignFolder`] if others may write to it.
    pub fn check(&self) -> Result<(), Error> {
        if !self.is_public {
            return Ok(());
        }
        let about = fs::symlink_metadata(&self.folder).map_err(Error::io("look at", &self.folder))?;
        let is_ours = about.is_dir() && about.uid() == privilege::user() && about.mode() & 0o022 == 0;
        if is_ours { Ok(()) } else { Err(Error::ForeignFolder { path: self.folder.clone() }) }
    }

    /// A new file in the folder, locked and empty.
    ///
    /// # Errors
    /// The first step that failed.
    pub fn create(&self, kind: FileKind) -> Result<(File, PathBuf), Error> {
        self.prepare()?;
        self.sweep(kind);
        let names = (0..FILES_MAX).map(|number| match number {
            0 => format!("{}{}", process::id(), kind.suffix),
            _ => format!("{}-{number}{}", process::id(), kind.suffix),
        });
        for name in names {
            let path = self.folder.join(name);
            if let Some(file) = create(&path, kind.mode)? {
                return Ok((file, path));
            }
        }
        let source =
            io::Error::new(io::ErrorKind::AlreadyExists, format!("{FILES_MAX} files are there already"));
        Err(Error::io("create a file in", &self.folder)(source))
    }

    /// Files of processes that live; removes those of others as far as it may.
    pub fn sweep(&self, kind: FileKind) -> Vec<PathBuf> {
        let mut paths = self.files(kind);
        paths.retain(|path| !remove_if_stale(path));
        paths
    }

    /// Files that this user has no right to read.
    pub fn refused(&self, kind: FileKind) -> Vec<PathBuf> {
        let mut paths = self.files(kind);
        paths.retain(|path| {
            open_to_look(path).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
        });
        paths
    }

    /// Files of a kind, by name.
    fn files(&self, kind: FileKind) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        let mut paths: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                is_name(path, kind.suffix) && fs::symlink_metadata(path).is_ok_and(|about| about.is_file())
            })
            .collect();
        paths.sort();
        paths
    }
}

/// `None` if the name is taken, or was taken away before we could lock the file.
fn create(path: &Path, mode: u32) -> Result<Option<File>, Error> {
    let file = match OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
        Err(error) => return Err(Error::io("create", path)(error)),
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => {
            // Without a lock it would be taken for stale. The error that matters is the first.
            let _ = fs::remove_file(path);
            return Err(Error::io("lock", path)(error));
        }
    }
    // Whatever the umask.
    file.set_permissions(Permissions::from_mode(mode)).map_err(Error::io("set the mode of", path))?;
    let has_name = file.metadata().is_ok_and(|about| about.nlink() > 0);
    Ok(has_name.then_some(file))
}

/// Whether the process that made the file has ended: then its lock is free.
pub fn is_stale(file: &File) -> bool {
    file.try_lock_shared().is_ok_and(|()| file.unlock().is_ok())
}

/// Opens a file that others may have made; a pipe in its place does not make us wait.
fn open_to_look(path: &Path) -> io::Result<File> {
    disk::open_at_once(path, OpenOptions::new().read(true))
}

fn remove_if_stale(path: &Path) -> bool {
    let Ok(file) = open_to_look(path) else { return true };
    if !file.metadata().is_ok_and(|about| about.is_file()) {
        return true;
    }
    if file.try_lock().is_err() {
        return false;
    }
    if file.metadata().is_ok_and(|about| about.nlink() > 0) {
        // Without the right to remove it, a later process does.
        let _ = fs::remove_file(path);
    }
    true
}

/// `PID.meters`, `PID-N.meters`.
fn is_name(path: &Path, suffix: &str) -> bool {
    let stem = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(suffix));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    stem.is_some_and(|stem| match stem.split_once('-') {
        Some((process, number)) => is_number(process) && is_number(number),
        None => is_number(stem),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_folder_is_the_only_one() {
        let folders = |chosen: Option<&str>, runtime: Option<&str>| -> Vec<PathBuf> {
            let places = places_of(chosen.map(Into::into), runtime.map(Into::into), 7);
            places.into_iter().map(|place| place.folder).collect()
        };
        assert_eq!(folders(Some("/x"), Some("/y")), [Path::new("/x")]);
        let all = ["/run/tapline", "/y/tapline", "/tmp/tapline-7"].map(PathBuf::from);
        assert_eq!(folders(Some(""), Some("/y")), all);
        assert_eq!(folders(None, None), [&all[0], &all[2]].map(Clone::clone));
    }

    #[test]
    fn only_our_names_are_swept() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["1.meters", "1-2.meters", "x.meters", ".meters", "1-.meters", "1.meters.txt"] {
            fs::write(folder.path().join(name), "").expect("a file");
        }
        std::os::unix::fs::symlink("1.meters", folder.path().join("3.meters")).expect("a link");
        assert_eq!(RunFolder::of(folder.path()).sweep(METERS), Vec::<PathBuf>::new());
        let mut left: Vec<_> = fs::read_dir(folder.path())
            .expect("the folder")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
            .collect();
        left.sort();
        assert_eq!(left, [".meters", "1-.meters", "1.meters.txt", "3.meters", "x.meters"]);
    }

    #[test]
    fn a_locked_file_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = RunFolder::of(folder.path());
        let (first, path) = place.create(METERS).expect("a file");
        let (_second, other) = place.create(METERS).expect("another");
        assert_ne!(path, other);
        assert_eq!(place.sweep(METERS).len(), 2);
        drop(first);
        assert_eq!(place.sweep(METERS), [other]);
        assert!(!path.exists());
    }

    #[test]
    fn a_public_folder_must_be_ours_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let public = RunFolder { folder: folder.path().join("tapline"), is_public: true };
        public.prepare().expect("a new one is ours");
        public.prepare().expect("and stays so");
        fs::set_permissions(&public.folder, Permissions::from_mode(0o777)).expect("our folder");
        assert!(matches!(public.prepare(), Err(Error::ForeignFolder { .. })));
        let link = RunFolder { folder: folder.path().join("link"), is_public: true };
        std::os::unix::fs::symlink(folder.path(), &link.folder).expect("a link");
        assert!(matches!(link.prepare(), Err(Error::ForeignFolder { .. })));
    }

    /// A pipe that takes a file's place between the listing and the opening.
    #[test]
    fn a_pipe_is_neither_waited_for_nor_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("1.meters");
        disk::make_pipe(&path).expect("there is room");
        assert!(remove_if_stale(&path), "it is not a file of a process");
        assert!(fs::symlink_metadata(&path).is_ok(), "it was removed");
    }
}
