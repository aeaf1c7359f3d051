//! The user of the process once everything is open, and the creation of files then.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tapline_file::{DirectCreator, FileCreator};
use tapline_meters::{Meters, run_folders};
use tapline_sys::privilege::{self, Identity};
use tapline_sys::sandbox::{self, AllowedAccess, MissingConfinement};
use tapline_sys::{FileOwner, Opener, output_file};

use crate::mistakes::misuse;

/// The user to become: the one named with -Z, or the caller of sudo; `None` for no change.
pub(crate) fn identity(named: Option<&str>) -> Result<Option<Identity>> {
    let identity = identity_of(named)?;
    identity.iter().for_each(|identity| output_file::allow_owner(identity.uid));
    Ok(identity)
}

fn identity_of(named: Option<&str>) -> Result<Option<Identity>> {
    match named {
        None => Ok(if privilege::is_root() { Identity::of_caller() } else { None }),
        Some("root") => Ok(None),
        Some(name) => match Identity::of_name(name) {
            Some(identity) if privilege::is_root() => Ok(Some(identity)),
            Some(_) => {
                bail!("-Z {name}: only root can become another user; run this with sudo or without -Z")
            }
            None => misuse!("-Z {name}: there is no such user (see getent passwd)"),
        },
    }
}

/// The user that started this program: under sudo(8) and doas(1) their caller, otherwise the real user.
pub(crate) fn starter() -> u32 {
    Identity::of_caller().map_or_else(privilege::user, |caller| caller.uid)
}

/// Becomes `identity`. Without one, root stays root, and other users give up the capabilities that capturing needed.
pub(crate) fn give_up(identity: Option<&Identity>) -> Result<()> {
    if identity.is_none() && privilege::is_root() {
        return Ok(());
    }
    privilege::drop_to(identity).context("cannot drop privileges")
}

/// Confines this process to the access that it needs, whether root started it or not: see [`sandbox`]. Call it before
/// threads are made. Returns the features that the kernel lacks for it.
pub(crate) fn confine(mut needs: AllowedAccess, meters: &Meters) -> MissingConfinement {
    needs.removes.extend(meters.path().and_then(sandbox::folder_of).map(Path::to_owned));
    sandbox::confine(&needs)
}

/// Confines a command that has no meters, as [`confine`] does. A kernel that lacks a part is reported by the commands that capture.
pub(crate) fn confine_quietly(needs: &AllowedAccess) {
    let _ = sandbox::confine(needs);
}

/// Leaves a process what compiling programs and filters of others takes: these name further files, and hosts.
pub(crate) fn confine_compiler() {
    confine_quietly(&AllowedAccess { reads: vec!["/".into()], ip: true, ..AllowedAccess::default() });
}

/// The folders of the meters of running captures, which a confined process may read. One of them is made where there is
/// none: a folder that is made later could not be read.
pub(crate) fn folders_of_meters() -> impl Iterator<Item = PathBuf> {
    let folders = run_folders();
    if !folders.iter().any(|folder| folder.path().is_dir()) {
        let _ = folders.iter().find(|folder| folder.prepare().is_ok());
    }
    folders.into_iter().map(|folder| folder.path().to_owned())
}

/// Creator of the files at `path`: this process, or, before it becomes another user, a process
/// that kept the rights which we have now.
pub(crate) fn files(path: &Path, identity: Option<&Identity>) -> Result<Box<dyn FileCreator>> {
    // Only this process can open its own descriptors (/dev/stdout), and it does before it gives up rights.
    let is_open = path == Path::new("-") || output_file::is_made_by_system(path);
    let Some(identity) = identity.filter(|_| !is_open) else { return Ok(Box::new(DirectCreator)) };
    let directory = path.parent().unwrap_or(Path::new("")).to_owned();
    let owner = FileOwner { uid: identity.uid, gid: identity.gid };
    // Behind the first conversion of strftime(3) names differ.
    let name = path.file_name().unwrap_or_default().as_bytes();
    let prefix = name.split(|&byte| byte == b'%').next().unwrap_or_default();
    let opener = Opener::start(&directory, OsStr::from_bytes(prefix), Some(owner))
        .with_context(|| format!("cannot open the directory of {}", path.display()))?;
    Ok(Box::new(ByOpener { directory, opener }))
}

/// Opener of the pipe that another program has made and reads.
pub(crate) struct PipeOpener;

impl FileCreator for PipeOpener {
    /// Opens a pipe only, and makes no file: the caller of this program chooses the path.
    fn create(&mut self, path: &Path) -> io::Result<File> {
        output_file::check_pipe(path)?;
        if !fs::symlink_metadata(path)?.file_type().is_fifo() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a pipe; Wireshark makes one"));
        }
        let file = fs::OpenOptions::new().write(true).open(path)?;
        match file.metadata()?.file_type().is_fifo() {
            true => Ok(file),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a pipe any more")),
        }
    }

    fn rename(&mut self, _: &Path, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Files of one directory, created by a process that kept its rights.
struct ByOpener {
    directory: PathBuf,
    opener: Opener,
}

impl ByOpener {
    fn name<'a>(&self, path: &'a Path) -> io::Result<&'a OsStr> {
        let inside = path.parent().unwrap_or(Path::new("")) == self.directory;
        let other = || {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "after dropping privileges files stay in one directory",
            )
        };
        path.file_name().filter(|_| inside).ok_or_else(other)
    }
}

impl FileCreator for ByOpener {
    fn create(&mut self, path: &Path) -> io::Result<File> {
        match self.opener.create(self.name(path)?) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => open_existing(path),
            result => result,
        }
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.opener.rename(self.name(from)?, self.name(to)?)
    }
}

/// Files that the opener leaves alone: pipes and devices are opened with present rights, and keep their owner.
fn open_existing(path: &Path) -> io::Result<File> {
    let kind = fs::symlink_metadata(path)?.file_type();
    if kind.is_file() || kind.is_symlink() || kind.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "it exists and does not belong to the user of this program after it drops privileges: remove it, choose another name, or \
             stay root with -Z root",
        ));
    }
    tapline_sys::output_file::check_pipe(path)?;
    fs::OpenOptions::new().write(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_a_pipe_is_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link, pipe] = ["file", "link", "pipe"].map(|name| folder.path().join(name));
        fs::write(&file, "kept").unwrap();
        tapline_sys::disk::make_pipe(&pipe).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for refused in [&file, &link, &folder.path().join("none")] {
            assert!(PipeOpener.create(refused).is_err(), "{}", refused.display());
        }
        assert_eq!(fs::read(&file).unwrap(), b"kept");
        // A reader that is there, so that opening does not wait for one.
        let _reader = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        assert!(PipeOpener.create(&pipe).is_ok());
    }
}
