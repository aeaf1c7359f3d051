//! Network namespaces: another one by its name, or a new one.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::thread;

use crate::error::check;
use crate::{SyscallError, option};

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
    /// The error of open(2) for the path of the name.
    pub fn open(name: &str) -> io::Result<NetNs> {
        Ok(NetNs { file: File::open(path_of(name))? })
    }

    /// Makes a new, empty namespace of this name, as `ip netns add` does. It stays until [`remove`](Self::remove).
    ///
    /// # Errors
    /// `EEXIST` if the name is taken, `EPERM` without `CAP_SYS_ADMIN`, or the error of the failing call.
    pub fn create(name: &str) -> Result<NetNs, SyscallError> {
        share_names()?;
        let path = Path::new(NAMED).join(name);
        let create = fs::OpenOptions::new().write(true).create_new(true).open(&path);
        create.map_err(|source| SyscallError { call: "open(/run/netns/NAME)", source })?;
        let inside = || {
            NetNs::enter_new()?;
            mount(Path::new("/proc/thread-self/ns/net"), &path, libc::MS_BIND)?;
            NetNs::open(name).map_err(|source| SyscallError { call: "open(/run/netns/NAME)", source })
        };
        let made = thread::scope(|scope| scope.spawn(inside).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        made.inspect_err(|_| drop(fs::remove_file(&path)))
    }

    /// Removes the name of a namespace; the namespace ends with its last socket and process.
    ///
    /// # Errors
    /// `ENOENT` if there is no such name, `EPERM` without `CAP_SYS_ADMIN`.
    pub fn remove(name: &str) -> Result<(), SyscallError> {
        let path = Path::new(NAMED).join(name);
        let bytes = c_path(&path)?;
        // SAFETY: the path is a C string that lives through the call.
        let result = unsafe { libc::umount2(bytes.as_ptr(), libc::MNT_DETACH) };
        check("umount2(/run/netns/NAME)", result)?;
        fs::remove_file(&path).map_err(|source| SyscallError { call: "unlink(/run/netns/NAME)", source })
    }

    /// The number by which the kernel distinguishes the namespaces that there are. A later one may get it.
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

    /// The number of the calling thread's namespace that no other one gets until the next start of the system
    /// (`SO_NETNS_COOKIE` of socket(7)). `None` before Linux 5.14.
    pub fn cookie_here() -> Option<u64> {
        let socket = UnixDatagram::unbound().ok()?;
        let call = "getsockopt(SO_NETNS_COOKIE)";
        option::get(socket.as_fd(), libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, call).ok()
    }

    /// The names that `ip netns` knows, sorted.
    pub fn names() -> Vec<String> {
        let entries = fs::read_dir(NAMED).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// A clause with the names, for errors about a missing namespace; empty if there are none.
    pub fn known_names() -> String {
        match NetNs::names().as_slice() {
            [] => String::new(),
            names => format!("; there are: {}", names.join(", ")),
        }
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

/// Makes the directory of names a mount that other mount namespaces share, so that a name that is removed here is gone
/// there too (as `ip netns add` does).
fn share_names() -> Result<(), SyscallError> {
    let folder = Path::new(NAMED);
    fs::create_dir_all(folder).map_err(|source| SyscallError { call: "mkdir(/run/netns)", source })?;
    let share = || mount(Path::new(""), folder, libc::MS_SHARED | libc::MS_REC);
    match share() {
        // It is not a mount yet.
        Err(error) if error.errno() == libc::EINVAL => {
            mount(folder, folder, libc::MS_BIND | libc::MS_REC)?;
            share()
        }
        result => result,
    }
}

fn mount(source: &Path, target: &Path, flags: libc::c_ulong) -> Result<(), SyscallError> {
    let (source, target) = (c_path(source)?, c_path(target)?);
    // SAFETY: both paths are C strings that live through the call; the kernel ignores type and data for these flags.
    let result =
        unsafe { libc::mount(source.as_ptr(), target.as_ptr(), c"none".as_ptr(), flags, std::ptr::null()) };
    check("mount(/run/netns)", result).map(|_| ())
}

fn c_path(path: &Path) -> Result<CString, SyscallError> {
    let path = CString::new(path.as_os_str().as_bytes());
    path.map_err(|_| SyscallError::from_errno("a path with a zero byte", libc::EINVAL))
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
