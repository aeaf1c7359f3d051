//! The other end of a Unix socket: its process (SO_PEERCRED, unix(7)), and coming to it without waiting for ever.

use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::error::check;
use crate::{SyscallError, option};

/// A process at the other end, as it was when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process identifier; 0 if it is not visible in our namespace.
    pub pid: u32,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
}

/// The process at the other end of a connected stream.
///
/// # Errors
/// The error of getsockopt(2); `ENOTCONN` for a socket without another end.
pub fn of(socket: BorrowedFd<'_>) -> Result<Peer, SyscallError> {
    /// `struct ucred`.
    type Raw = [u32; 3];
    let [pid, uid, gid]: Raw =
        option::get(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, "getsockopt(SO_PEERCRED)")?;
    Ok(Peer { pid, uid, gid })
}

/// Connects to a listener that may be stopped or hung: this, and each reading and writing of the stream, waits for so
/// long at most.
///
/// # Errors
/// The error of socket(2) and connect(2); `EAGAIN` for a listener that takes no more, `ENAMETOOLONG` for a name of more
/// than 107 bytes.
pub fn connect(path: &Path, timeout: Duration) -> Result<UnixStream, SyscallError> {
    // SAFETY: an address of zeros is one without a name.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let name = path.as_os_str().as_bytes();
    // The last byte stays zero.
    if name.len() >= address.sun_path.len() {
        return Err(SyscallError::from_errno("connect(AF_UNIX)", libc::ENAMETOOLONG));
    }
    for (place, &byte) in address.sun_path.iter_mut().zip(name) {
        *place = byte as libc::c_char;
    }
    // SAFETY: the call takes no pointer.
    let socket = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    let socket = check("socket(AF_UNIX)", socket)?;
    // SAFETY: the kernel has just returned this descriptor, and no other value owns it.
    let stream = unsafe { UnixStream::from_raw_fd(socket) };
    // The kernel has a listener with a full queue wait for as long as sending may take.
    let refused = |source| SyscallError { call: "setsockopt(SO_SNDTIMEO)", source };
    stream.set_write_timeout(Some(timeout)).map_err(refused)?;
    stream.set_read_timeout(Some(timeout)).map_err(refused)?;
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: pointer and length describe `address`, which is only read.
    let result = unsafe { libc::connect(stream.as_raw_fd(), (&raw const address).cast(), len) };
    check("connect(AF_UNIX)", result)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_other_end_is_us() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = of(one.as_fd()).unwrap();
        assert_eq!((peer.pid, peer.uid), (std::process::id(), crate::privilege::user()));
    }

    /// No connection is accepted: those that fit into the queue get no answer, the next waits for room in it.
    #[test]
    fn hanging_listeners_time_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let error = |path: &Path| connect(path, Duration::from_millis(20)).unwrap_err().source;
        assert_eq!(error(&path).raw_os_error(), Some(libc::ENOENT));
        let listener = UnixListener::bind(&path).unwrap();
        // SAFETY: the call takes no pointer. A queue of one.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let mut connected = connect(&path, Duration::from_millis(20)).unwrap();
        assert_eq!(error(&path).raw_os_error(), Some(libc::EAGAIN));
        // Other tests of this process change users, of which each thread hears by a signal.
        let silent = loop {
            let error = connected.read(&mut [0]).unwrap_err();
            if error.kind() != std::io::ErrorKind::Interrupted {
                break error;
            }
        };
        assert_eq!(silent.kind(), std::io::ErrorKind::WouldBlock);
        let long = folder.path().join("x".repeat(108));
        assert_eq!(error(&long).raw_os_error(), Some(libc::ENAMETOOLONG));
    }
}
