//! Who is at the other end of a Unix socket: SO_PEERCRED, unix(7).

use std::os::fd::BorrowedFd;

use crate::{SyscallError, option};

/// A process at the other end, as it was when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its number; 0 if it is not to be seen from our namespace.
    pub pid: u32,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
}

/// Who is at the other end of a connected stream.
///
/// # Errors
/// What getsockopt(2) says; `ENOTCONN` for a socket without another end.
pub fn of(socket: BorrowedFd<'_>) -> Result<Peer, SyscallError> {
    /// `struct ucred`.
    type Raw = [u32; 3];
    let [pid, uid, gid]: Raw =
        option::get(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, "getsockopt(SO_PEERCRED)")?;
    Ok(Peer { pid, uid, gid })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_other_end_is_us() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = of(one.as_fd()).unwrap();
        assert_eq!((peer.pid, peer.uid), (std::process::id(), crate::privilege::user()));
    }
}
