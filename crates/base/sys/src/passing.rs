//! Descriptors handed to another process over a Unix socket: SCM_RIGHTS, unix(7).

use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::SyscallError;
use crate::error::check_len;

/// The most descriptors in one message.
pub const DESCRIPTORS_MAX: usize = 16;
/// Room for the control message, aligned as its header must be.
const CONTROL_WORDS: usize = 16;

/// Sends `bytes`, at least one of them taken, and with the first of them descriptors. Returns how many bytes were
/// taken.
///
/// # Errors
/// The error of sendmsg(2); `EINVAL` for more than [`DESCRIPTORS_MAX`] descriptors or no bytes.
pub fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<usize, SyscallError> {
    if descriptors.len() > DESCRIPTORS_MAX || bytes.is_empty() {
        return Err(SyscallError::from_errno("sendmsg(SCM_RIGHTS)", libc::EINVAL));
    }
    let mut control = [0u64; CONTROL_WORDS];
    let mut piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut message = header(&mut piece, &mut control);
    let payload = size_of_val(descriptors) as u32;
    // SAFETY: the sums of sizes are only computed.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(payload) } as _;
    debug_assert!(message.msg_controllen <= size_of_val(&control) as _);
    if descriptors.is_empty() {
        message.msg_controllen = 0;
    } else {
        // SAFETY: the control buffer has room for one header and the descriptors, as asserted, and is aligned for a
        // header; a descriptor that is borrowed has the layout of its number.
        unsafe {
            let head = libc::CMSG_FIRSTHDR(&message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(payload) as _;
            let numbers = libc::CMSG_DATA(head);
            numbers.copy_from_nonoverlapping(descriptors.as_ptr().cast(), payload as usize);
        }
    }
    // SAFETY: all that the message points to lives through the call and is only read.
    let result = unsafe { libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL) };
    check_len("sendmsg(SCM_RIGHTS)", result)
}

/// Receives bytes, and the descriptors that came with them, which are closed on exec. 0 bytes: the other end is closed.
///
/// # Errors
/// The error of recvmsg(2); `EMSGSIZE` if more descriptors came than [`DESCRIPTORS_MAX`]: none of them is kept.
pub fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), SyscallError> {
    let mut control = [0u64; CONTROL_WORDS];
    let mut piece = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut message = header(&mut piece, &mut control);
    // SAFETY: the message describes `bytes` and `control`, which live through the call and may be written to.
    let result = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) };
    let len = check_len("recvmsg(SCM_RIGHTS)", result)?;
    let found = descriptors_of(&message);
    if message.msg_flags & libc::MSG_CTRUNC != 0 || found.len() > DESCRIPTORS_MAX {
        return Err(SyscallError::from_errno("recvmsg(SCM_RIGHTS)", libc::EMSGSIZE));
    }
    Ok((len, found))
}

fn header(piece: &mut libc::iovec, control: &mut [u64; CONTROL_WORDS]) -> libc::msghdr {
    // SAFETY: a message header of zeros is one without anything.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = piece;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(control) as _;
    message
}

fn descriptors_of(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut found = Vec::new();
    // SAFETY: the kernel filled the control buffer, and the macros walk within the length that it said; each number is
    // a descriptor that was just made for us.
    unsafe {
        let mut head = libc::CMSG_FIRSTHDR(message);
        while !head.is_null() {
            if (*head).cmsg_level == libc::SOL_SOCKET && (*head).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*head).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let numbers = libc::CMSG_DATA(head).cast::<i32>();
                for at in 0..bytes / size_of::<i32>() {
                    found.push(OwnedFd::from_raw_fd(numbers.add(at).read_unaligned()));
                }
            }
            head = libc::CMSG_NXTHDR(message, head);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::{Bell, Memfd};

    #[test]
    fn a_passed_descriptor_is_the_same_file() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let memfd = Memfd::create(c"test", 4096).unwrap();
        let (bell, other) = Bell::pair().unwrap();
        assert_eq!(send(ours.as_fd(), b"two", &[memfd.as_fd(), other.as_fd()]).unwrap(), 3);
        assert_eq!(send(ours.as_fd(), b"none", &[]).unwrap(), 4);
        drop(other);
        let mut bytes = [0; 3];
        let (len, mut found) = receive(theirs.as_fd(), &mut bytes).unwrap();
        assert_eq!((len, &bytes, found.len()), (3, b"two", 2));
        bell.ring();
        assert_eq!(Bell::from(found.pop().unwrap()).answer(), crate::BellEvent::Rung);
        assert_eq!(Memfd::from_descriptor(found.pop().unwrap()).size().unwrap(), 4096);
        let mut bytes = [0; 9];
        let (len, found) = receive(theirs.as_fd(), &mut bytes).unwrap();
        assert_eq!((len, found.len()), (4, 0));
        drop(ours);
        assert_eq!(receive(theirs.as_fd(), &mut bytes).unwrap().0, 0);
    }

    #[test]
    fn limits_are_errors() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let many = [ours.as_fd(); DESCRIPTORS_MAX + 1];
        assert_eq!(send(ours.as_fd(), b"x", &many).unwrap_err().errno(), libc::EINVAL);
        assert_eq!(send(ours.as_fd(), b"", &[]).unwrap_err().errno(), libc::EINVAL);
        assert_eq!(send(ours.as_fd(), b"x", &many[1..]).unwrap(), 1);
    }
}
