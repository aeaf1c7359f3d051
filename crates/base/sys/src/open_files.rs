//! Files that this process has open, from `/proc/self`, and room for more.

use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::SyscallError;
use crate::error::check;

/// The soft limit of open descriptors (`RLIMIT_NOFILE`, getrlimit(2)).
///
/// # Errors
/// The error of getrlimit(2).
pub fn limit() -> Result<u64, SyscallError> {
    Ok(limits()?.rlim_cur)
}

fn limits() -> Result<libc::rlimit, SyscallError> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one `rlimit`, which lives through the call.
    check("getrlimit(RLIMIT_NOFILE)", unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    Ok(limit)
}

/// Raises the soft limit of open descriptors to the hard limit (`RLIMIT_NOFILE`, getrlimit(2)). Returns the limit that
/// holds then, in descriptors.
///
/// # Errors
/// The error of getrlimit(2) and setrlimit(2).
pub fn raise_limit() -> Result<u64, SyscallError> {
    let mut limit = limits()?;
    if limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: the kernel reads one `rlimit`, which lives through the call.
        check("setrlimit(RLIMIT_NOFILE)", unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) })?;
    }
    Ok(limit.rlim_cur)
}

/// The number that the next descriptor of this process will have: the lowest free one, so at least `limit - number` are
/// free. `fd` is any open descriptor.
///
/// # Errors
/// `EMFILE` if none is free.
pub fn next_number(fd: BorrowedFd<'_>) -> Result<u64, SyscallError> {
    // SAFETY: fcntl(2) with this command takes integers only.
    let number = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) };
    let number = check("fcntl(F_DUPFD_CLOEXEC)", number)?;
    // SAFETY: the kernel has just returned this descriptor, and no other value owns it.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
    Ok(number as u64)
}

/// Whether this process reads the file of this name, under whichever name it was opened: a program that then empties
/// the file to write into it loses the data. `false` for anything but a regular file, and without `/proc`.
pub fn is_read(path: &Path) -> bool {
    let Some(file) = fs::metadata(path).ok().filter(fs::Metadata::is_file) else { return false };
    let Ok(descriptors) = fs::read_dir("/proc/self/fd") else { return false };
    descriptors.flatten().any(|descriptor| {
        // The link leads to the file itself, also if that has another name by now, or none.
        let is_it = fs::metadata(descriptor.path())
            .is_ok_and(|other| (other.dev(), other.ino()) == (file.dev(), file.ino()));
        is_it && is_read_only(&descriptor.file_name().to_string_lossy())
    })
}

/// Whether a descriptor was opened for reading alone (proc(5), fdinfo: `flags` are octal, and O_ACCMODE is 3).
fn is_read_only(descriptor: &str) -> bool {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).is_some_and(|flags| flags & 3 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};

    #[test]
    fn new_descriptors_are_below_the_limit() {
        let limit = raise_limit().unwrap();
        assert_eq!((raise_limit().unwrap(), super::limit().unwrap()), (limit, limit));
        let file = File::open("/dev/null").unwrap();
        assert!(next_number(std::os::fd::AsFd::as_fd(&file)).unwrap() < limit);
    }

    #[test]
    fn an_open_file_is_found_under_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let [path, other, link] = ["a", "b", "c"].map(|name| folder.path().join(name));
        fs::write(&path, "packets").unwrap();
        fs::hard_link(&path, &other).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let names = [&path, &other, &link];
        assert!(names.iter().all(|name| !is_read(name)));
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        assert!(!is_read(&path), "the writer has emptied it");
        let reader = File::open(&other).unwrap();
        assert!(names.iter().all(|name| is_read(name)));
        drop((reader, writer));
        assert!(!is_read(&path) && !is_read(&folder.path().join("none")));
        let _null = File::open("/dev/null").unwrap();
        assert!(!is_read(Path::new("/dev/null")));
    }
}
