//! Files that have no name until they are whole: `open(O_TMPFILE)`, and linkat(2) when they are.
//!
//! ```text
//! create(directory) -> write, write, ... -> name(file, path)      what is never named is gone with its last descriptor, after a crash too
//! ```

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::error::check;
use crate::{SyscallError, output_file};

/// A file on the file system of a directory, without a name, for writing.
///
/// # Errors
/// The error of open(2). [`is_unsupported`] recognises those of a file system that has no such files: NFS and FAT
/// have none.
pub fn create(directory: &Path) -> Result<File, SyscallError> {
    let opened =
        File::options().write(true).mode(output_file::mode()).custom_flags(libc::O_TMPFILE).open(directory);
    opened.map_err(|source| SyscallError { call: "open(O_TMPFILE)", source })
}

/// Whether [`create`] failed because there are no such files there: `EISDIR` is from kernels before 3.11 and some that
/// follow them.
pub fn is_unsupported(error: &SyscallError) -> bool {
    [libc::EOPNOTSUPP, libc::EISDIR, libc::EINVAL].contains(&error.errno())
}

/// Gives a file of [`create`] its name, all at once. A file that has the name already is not replaced. Needs /proc.
///
/// # Errors
/// The error of linkat(2); `EEXIST` if there is such a file, `ENOENT` for a path with a zero byte.
pub fn name(file: &File, path: &Path) -> Result<(), SyscallError> {
    const CALL: &str = "linkat";
    let to = CString::new(path.as_os_str().as_bytes());
    let to = to.map_err(|_| SyscallError::from_errno(CALL, libc::ENOENT))?;
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let from = from.map_err(|_| SyscallError::from_errno(CALL, libc::ENOENT))?;
    let (here, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
    // SAFETY: both are C strings that live through the call.
    check(CALL, unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), follow) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_is_there_once_it_is_named() {
        let guard = tempfile::tempdir().unwrap();
        let folder = guard.path().to_owned();
        let names = || std::fs::read_dir(&folder).unwrap().count();
        let mut file = match create(&folder) {
            Ok(file) => file,
            Err(error) => {
                assert!(is_unsupported(&error), "{error}");
                eprintln!("skipped: this file system has no files without names");
                return;
            }
        };
        file.write_all(b"whole").unwrap();
        assert_eq!(names(), 0);
        let path = folder.join("named");
        name(&file, &path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        let other = create(&folder).unwrap();
        assert_eq!(name(&other, &path).unwrap_err().errno(), libc::EEXIST);
        drop(other);
        assert_eq!(names(), 1);
    }
}
