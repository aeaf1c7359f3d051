//! Room on a file system: statvfs(3), fallocate(2).

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::SyscallError;
use crate::error::check;

/// Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSpace {
    /// Of the whole file system.
    pub total: u64,
    /// That an ordinary user may still fill.
    pub free: u64,
}

/// Of the file system that this path is on.
///
/// # Errors
/// What statvfs(3) says; `ENOENT` for a path with a zero byte.
pub fn space(path: &Path) -> Result<DiskSpace, SyscallError> {
    const CALL: &str = "statvfs";
    let path = CString::new(path.as_os_str().as_bytes());
    let path = path.map_err(|_| SyscallError::from_errno(CALL, libc::ENOENT))?;
    // SAFETY: all-zero bytes are a valid statvfs.
    let mut about: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` is a C string and `about` a statvfs; both live through the call.
    check(CALL, unsafe { libc::statvfs(path.as_ptr(), &raw mut about) })?;
    let bytes = |blocks: libc::fsblkcnt_t| blocks.saturating_mul(about.f_frsize);
    Ok(DiskSpace { total: bytes(about.f_blocks), free: bytes(about.f_bavail) })
}

/// Makes a file `len` bytes long and has the file system keep room for all of them. What was not written reads as zeros.
///
/// # Errors
/// What fallocate(2) says: `ENOSPC`, `EFBIG`, `EOPNOTSUPP` on file systems that cannot.
pub fn reserve(file: &File, len: u64) -> Result<(), SyscallError> {
    const CALL: &str = "fallocate";
    let len = libc::off_t::try_from(len).map_err(|_| SyscallError::from_errno(CALL, libc::EFBIG))?;
    // SAFETY: the descriptor is open as long as `file` lives; the call touches no memory of ours.
    check(CALL, unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, len) })?;
    Ok(())
}

/// Opens a regular file. A symbolic link at the end of the path is not followed, and a pipe does not make the caller wait.
///
/// # Errors
/// Those of open(2): `ELOOP` for a symbolic link; [`io::ErrorKind::InvalidInput`] for other things than regular files.
pub fn open_regular(path: &Path, options: &OpenOptions) -> io::Result<File> {
    let file = options.clone().custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "this is no regular file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_has_room_and_nothing_has_none() {
        let space = super::space(Path::new("/")).unwrap();
        assert!(space.total > 0 && space.free <= space.total, "{space:?}");
        assert_eq!(super::space(Path::new("/no such path")).unwrap_err().errno(), libc::ENOENT);
    }
}
