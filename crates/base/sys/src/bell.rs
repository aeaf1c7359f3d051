//! A pair of connected sockets that wakes an untrusted process, and detects when it is gone.
//!
//! ```text
//! writer's end --ring()--> reader's end: poll(2) reports it readable --answer()--> not readable
//! an end is closed (or its process dies) --> poll(2) at the other end reports a hang-up
//! ```
//!
//! Why not an eventfd: both sides would share one open file. The other side could make it blocking and fill its
//! counter, and then our `write` would block for ever. Each end of a pair is a file of its own, and `MSG_DONTWAIT`
//! makes one call non-blocking whatever the flags of the file are.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::SyscallError;
use crate::error::check;

/// One end of a pair.
#[derive(Debug)]
pub struct Bell {
    socket: OwnedFd,
}

/// Result of [`Bell::answer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BellEvent {
    /// The other end has not rung since the last call.
    Nothing,
    /// The other end rang.
    Rung,
    /// All descriptors of the other end are closed, or it was shut down for writing.
    Gone,
}

impl Bell {
    /// Creates a connected pair.
    ///
    /// # Errors
    /// The error of socketpair(2).
    pub fn pair() -> Result<(Bell, Bell), SyscallError> {
        let mut fds = [0; 2];
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: the call writes two descriptors.
        check("socketpair", unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) })?;
        // SAFETY: the kernel has just returned these descriptors, and no other value owns them.
        let [one, other] = fds.map(|fd| Bell { socket: unsafe { OwnedFd::from_raw_fd(fd) } });
        Ok((one, other))
    }

    /// Makes the other end readable. Never blocks, and ignores errors: if the buffer of the socket is full, the other
    /// end is readable already; if it is closed, no process waits.
    pub fn ring(&self) {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: one byte of a constant is read.
        unsafe { libc::send(self.socket.as_raw_fd(), b"!".as_ptr().cast(), 1, flags) };
    }

    /// Consumes the pending rings in one system call. Reports whether there were any, and whether the other end is
    /// closed.
    ///
    /// Reads at most 512 rings, so that a peer that rings without pause cannot keep the caller here.
    pub fn answer(&self) -> BellEvent {
        let mut rung = [0u8; 512];
        // SAFETY: the pointer and the length describe `rung`.
        let len = unsafe {
            libc::recv(self.socket.as_raw_fd(), rung.as_mut_ptr().cast(), rung.len(), libc::MSG_DONTWAIT)
        };
        match len {
            1.. => BellEvent::Rung,
            0 => BellEvent::Gone,
            _ => match SyscallError::last("recv").errno() {
                libc::EAGAIN | libc::EINTR => BellEvent::Nothing,
                // ECONNRESET: the other end was closed before it had read all rings of this end.
                _ => BellEvent::Gone,
            },
        }
    }

    /// Waits for at most `timeout` until the other end has rung or is gone. Returns `false` after the timeout, or if a
    /// signal ended the wait.
    ///
    /// # Errors
    /// The error of ppoll(2); a signal is not an error.
    pub fn wait(&self, timeout: Duration) -> Result<bool, SyscallError> {
        Ok(self.poll(timeout)? != 0)
    }

    /// Whether all descriptors of the other end are closed, or it was shut down. An error of ppoll(2) counts as not
    /// closed.
    pub fn is_hung_up(&self) -> bool {
        self.poll(Duration::ZERO).is_ok_and(|events| events & (libc::POLLHUP | libc::POLLRDHUP) != 0)
    }

    fn poll(&self, timeout: Duration) -> Result<i16, SyscallError> {
        let timeout = libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let mut fd =
            libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN | libc::POLLRDHUP, revents: 0 };
        // SAFETY: one pollfd, which the kernel may write to; the timeout lives through the call; no signal mask is
        // given.
        match check("ppoll", unsafe { libc::ppoll(&mut fd, 1, &timeout, std::ptr::null()) }) {
            Ok(_) => Ok(fd.revents),
            Err(error) if error.errno() == libc::EINTR => Ok(0),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl From<OwnedFd> for Bell {
    fn from(socket: OwnedFd) -> Bell {
        Bell { socket }
    }
}

impl From<Bell> for OwnedFd {
    fn from(bell: Bell) -> OwnedFd {
        bell.socket
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rung_answered_hung_up() {
        let (ours, theirs) = Bell::pair().unwrap();
        assert!(!theirs.wait(Duration::ZERO).unwrap());
        assert_eq!(theirs.answer(), BellEvent::Nothing);
        ours.ring();
        ours.ring();
        assert!(theirs.wait(Duration::from_secs(60)).unwrap());
        assert_eq!((theirs.answer(), theirs.answer()), (BellEvent::Rung, BellEvent::Nothing));
        assert!(!ours.is_hung_up());
        theirs.ring();
        drop(theirs);
        assert!(ours.is_hung_up());
        // A ring that was sent before the close is reported before the close.
        assert_eq!((ours.answer(), ours.answer()), (BellEvent::Rung, BellEvent::Gone));
        ours.ring();
    }

    #[test]
    fn a_peer_that_does_not_listen_blocks_no_ring() {
        let (ours, theirs) = Bell::pair().unwrap();
        // SAFETY: fcntl(2) with integers only: the other side makes its end block.
        unsafe { libc::fcntl(theirs.as_fd().as_raw_fd(), libc::F_SETFL, 0) };
        for _ in 0..100_000 {
            ours.ring();
        }
        assert_eq!(theirs.answer(), BellEvent::Rung);
    }
}
