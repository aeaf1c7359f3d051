//! Network namespaces: another one by its name, or a new one.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

use crate::SyscallError;
use crate::error::check;

/// The directory of the names that `ip netns` gives.
const NAMED: &str = "/var/run/netns";

/// A network namespace that was found.
///
/// Sockets belong to the namespace in which they were opened, whichever process uses them later. So a capture opens all
/// it needs in [`run`](Self::run) and works from the outside.
#[derive(Debug)]
pub struct NetNs {
    file: File,
}

impl NetNs {
    /// The namespace of this name (as `ip netns` has it), of the process with this number, or at this path.
    ///
    /// # Errors
    /// The error of open(2) of the path that the name stands for.
    pub fn open(name: &str) -> io::Result<NetNs> {
        Ok(NetNs { file: File::open(path_of(name))? })
    }

    /// The number by which the kernel tells namespaces apart, until the next start of the system.
    ///
    /// # Errors
    /// The error of fstat(2).
    pub fn inode(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.ino())
    }

    /// The number of the calling thread's namespace.
    ///
    /// # Errors
    /// The error of stat(2), if `/proc` is not there.
    pub fn inode_here() -> io::Result<u64> {
        Ok(fs::metadata("/proc/thread-self/ns/net")?.ino())
    }

    /// The names that `ip netns` knows, sorted.
    pub fn names() -> Vec<String> {
        let entries = fs::read_dir(NAMED).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Runs `work` in this namespace, in a thread of its own, so that no other thread is moved.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN` here and in the namespace's owner.
    ///
    /// # Panics
    /// If `work` does.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, SyscallError> {
        let inside = || {
            // SAFETY: setns(2) takes integers only.
            let result = unsafe { libc::setns(self.file.as_raw_fd(), libc::CLONE_NEWNET) };
            check("setns(CLONE_NEWNET)", result).map(|_| work())
        };
        thread::scope(|scope| scope.spawn(inside).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// A new, empty namespace without a name, which ends with this value. The calling thread stays where it is.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN`.
    ///
    /// # Panics
    /// If the system has no memory for a thread.
    pub fn unnamed() -> Result<NetNs, SyscallError> {
        let make = || {
            NetNs::enter_new()?;
            let file = File::open("/proc/thread-self/ns/net");
            let open = |source| SyscallError { call: "open(/proc/thread-self/ns/net)", source };
            file.map(|file| NetNs { file }).map_err(open)
        };
        thread::scope(|scope| scope.spawn(make).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Moves the calling thread into a new, empty network namespace, which ends with its last thread and socket.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN`.
    pub fn enter_new() -> Result<(), SyscallError> {
        // SAFETY: unshare(2) takes integers only, and a network namespace can be left by one thread alone.
        check("unshare(CLONE_NEWNET)", unsafe { libc::unshare(libc::CLONE_NEWNET) }).map(|_| ())
    }
}

fn path_of(name: &str) -> PathBuf {
    if name.contains('/') {
        PathBuf::from(name)
    } else if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) && !is_named(name) {
        Path::new("/proc").join(name).join("ns/net")
    } else {
        Path::new(NAMED).join(name)
    }
}

fn is_named(name: &str) -> bool {
    Path::new(NAMED).join(name).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_numbers_and_paths() {
        assert_eq!(path_of("blue"), Path::new("/var/run/netns/blue"));
        assert_eq!(path_of("4194305"), Path::new("/proc/4194305/ns/net"));
        assert_eq!(path_of("/proc/self/ns/net"), Path::new("/proc/self/ns/net"));
    }

    #[test]
    fn a_missing_namespace_is_an_error() {
        assert_eq!(NetNs::open("no-such-namespace").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
