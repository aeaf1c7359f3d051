//! A folder by its descriptor: names in it mean the same as when the folder was opened, whatever others rename
//! meanwhile.
//!
//! ```text
//! Folder::open(path) --make_private--> Folder (0700, ours) --own, set_mode--> --publish(name)--> the name in the folder
//! ```
//!
//! Names are single components. No call here follows a link in the last component.

use std::ffi::{CString, OsStr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::SyscallError;
use crate::disk::rename_at;
use crate::error::check;

/// Names that are tried for a private folder before giving up.
const TRIES_MAX: u32 = 64;

/// An open folder.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
}

/// A folder within another, with access for its owner only. Dropping this removes the folder, if it is empty by then.
#[derive(Debug)]
pub struct PrivateFolder<'f> {
    outer: &'f Folder,
    inner: Folder,
    name: CString,
}

impl Folder {
    /// Opens a folder; links on the way to it are followed. An empty path is the current folder.
    ///
    /// # Errors
    /// The error of open(2).
    pub fn open(path: &Path) -> Result<Folder, SyscallError> {
        let path = if path.as_os_str().is_empty() { OsStr::new(".") } else { path.as_os_str() };
        open_at(libc::AT_FDCWD, &c_string(path)?, 0)
    }

    /// As [`open`](Self::open), but a link in the last component is an error.
    ///
    /// # Errors
    /// The error of open(2): `ENOTDIR` or `ELOOP` for a link.
    pub fn open_no_link(path: &Path) -> Result<Folder, SyscallError> {
        open_at(libc::AT_FDCWD, &c_string(path.as_os_str())?, libc::O_NOFOLLOW)
    }

    /// A path for a name in it, whatever becomes of the names above; for this process alone.
    pub fn path_of(&self, name: &OsStr) -> PathBuf {
        self.path().join(name)
    }

    /// Makes a folder in this one, with mode 0700.
    ///
    /// # Errors
    /// The error of mkdirat(2) and openat(2); `EPERM` if another folder was put in its place.
    pub fn make_private(&self) -> Result<PrivateFolder<'_>, SyscallError> {
        for number in 0..TRIES_MAX {
            let name = c_string(OsStr::new(&format!(".tapline-{}-{number}", std::process::id())))?;
            // SAFETY: `name` is a C string that lives through the call.
            let made = unsafe { libc::mkdirat(self.fd.as_raw_fd(), name.as_ptr(), 0o700) };
            match check("mkdirat", made) {
                Err(error) if error.errno() == libc::EEXIST => continue,
                other => other?,
            };
            let inner = open_at(self.fd.as_raw_fd(), &name, libc::O_NOFOLLOW)?;
            inner.check_private()?;
            return Ok(PrivateFolder { outer: self, inner, name });
        }
        Err(SyscallError::from_errno("mkdirat", libc::EEXIST))
    }

    fn check_private(&self) -> Result<(), SyscallError> {
        let about =
            std::fs::metadata(self.path()).map_err(|source| SyscallError { call: "fstat", source })?;
        let is_ours = about.uid() == crate::privilege::user() && about.mode() & 0o077 == 0;
        if is_ours {
            Ok(())
        } else {
            Err(SyscallError::from_errno("the new folder is another's", libc::EPERM))
        }
    }

    /// A path to this folder that no renaming changes, for this process alone (proc(5)).
    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd()).into()
    }

    fn remove(&self, name: &CString, flags: libc::c_int) -> Result<(), SyscallError> {
        // SAFETY: `name` is a C string that lives through the call.
        check("unlinkat", unsafe { libc::unlinkat(self.fd.as_raw_fd(), name.as_ptr(), flags) }).map(|_| ())
    }
}

impl PrivateFolder<'_> {
    /// A path for a name in it, whatever becomes of the names above; for this process alone.
    pub fn path_of(&self, name: &OsStr) -> PathBuf {
        self.inner.path_of(name)
    }

    /// Sets mode and owner of the file of this name; `None` leaves user or group.
    ///
    /// # Errors
    /// The error of fchmodat(2) and fchownat(2).
    pub fn own(
        &self,
        name: &OsStr,
        mode: u32,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<(), SyscallError> {
        let (folder, name) = (self.inner.fd.as_raw_fd(), c_string(name)?);
        // SAFETY: `name` is a C string that lives through the call. In a folder of ours alone the name is not a link.
        check("fchmodat", unsafe { libc::fchmodat(folder, name.as_ptr(), mode, 0) })?;
        let [uid, gid] = [uid, gid].map(|id| id.unwrap_or(u32::MAX));
        // SAFETY: as above.
        let owned = unsafe { libc::fchownat(folder, name.as_ptr(), uid, gid, libc::AT_SYMLINK_NOFOLLOW) };
        check("fchownat", owned).map(|_| ())
    }

    /// Moves the file of this name into the outer folder. With `replaces` a file of that name there is replaced.
    ///
    /// # Errors
    /// The error of renameat2(2); `EEXIST` if the name is taken and nothing is to be replaced.
    pub fn publish(&self, name: &OsStr, replaces: bool) -> Result<(), SyscallError> {
        let name = c_string(name)?;
        let flags = if replaces { 0 } else { libc::RENAME_NOREPLACE };
        let (from, to) = (self.inner.fd.as_raw_fd(), self.outer.fd.as_raw_fd());
        rename_at((from, &name), (to, &name), flags as libc::c_uint)
    }

    /// Removes the file of this name.
    ///
    /// # Errors
    /// The error of unlinkat(2).
    pub fn remove(&self, name: &OsStr) -> Result<(), SyscallError> {
        self.inner.remove(&c_string(name)?, 0)
    }
}

impl Drop for PrivateFolder<'_> {
    fn drop(&mut self) {
        // A folder that was moved away meanwhile is left where it is.
        let _ = self.outer.remove(&self.name, libc::AT_REMOVEDIR);
    }
}

fn open_at(at: libc::c_int, name: &CString, flags: libc::c_int) -> Result<Folder, SyscallError> {
    let flags = flags | libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: `name` is a C string that lives through the call.
    let fd = check("open(folder)", unsafe { libc::openat(at, name.as_ptr(), flags) })?;
    // SAFETY: the kernel has just returned this descriptor, and no other value owns it.
    Ok(Folder { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
}

fn c_string(name: &OsStr) -> Result<CString, SyscallError> {
    CString::new(name.as_bytes())
        .map_err(|_| SyscallError::from_errno("a name with a zero byte", libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_made_in_a_private_folder_appears_whole() {
        let place = tempfile::tempdir().unwrap();
        let outer = Folder::open(place.path()).unwrap();
        let private = outer.make_private().unwrap();
        let name = OsStr::new("socket");
        fs::write(private.path_of(name), "ours").unwrap();
        private.own(name, 0o640, None, None).unwrap();
        private.publish(name, false).unwrap();
        assert_eq!(fs::metadata(place.path().join("socket")).unwrap().mode() & 0o777, 0o640);
        fs::write(private.path_of(name), "next").unwrap();
        assert_eq!(private.publish(name, false).unwrap_err().errno(), libc::EEXIST);
        private.publish(name, true).unwrap();
        assert_eq!(fs::read(place.path().join("socket")).unwrap(), b"next");
        drop(private);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn renamed_folders_stay_open() {
        let place = tempfile::tempdir().unwrap();
        let [meant, moved] = ["meant", "moved"].map(|name| place.path().join(name));
        fs::create_dir(&meant).unwrap();
        let folder = Folder::open(&meant).unwrap();
        let private = folder.make_private().unwrap();
        fs::rename(&meant, &moved).unwrap();
        std::os::unix::fs::symlink("/", &meant).unwrap();
        fs::write(private.path_of(OsStr::new("x")), "").unwrap();
        private.publish(OsStr::new("x"), false).unwrap();
        drop(private);
        assert!(moved.join("x").exists() && !Path::new("/x").exists());
        assert_eq!(fs::read_dir(&moved).unwrap().count(), 1);
    }
}
