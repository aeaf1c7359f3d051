//! Netlink sockets: questions, dumps, and walking the answers. netlink(7).
//!
//! ```text
//! datagram  := message*                               each padded to 4 bytes, host byte order
//! message   := len:u32 type:u16 flags:u16 seq:u32 pid:u32 body
//! body      := errno:i32 ...                          NLMSG_ERROR; 0 acknowledges
//!            | what the protocol says
//! attribute := len:u16 type:u16 value                 padded to 4 bytes
//! ```

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::SyscallError;
use crate::error::{check, check_len};

/// Dumps must start again when things change meanwhile; after this many tries the last one is used.
const DUMP_TRIES_MAX: usize = 8;

/// The kernel never makes larger datagrams (`netlink_recvmsg` allows 32 KiB for dumps).
const BUFFER_LEN: usize = 64 * 1024;

pub(crate) const MESSAGE_HEADER_LEN: usize = 16;

/// A protocol, and the names of its calls in errors.
#[derive(Debug)]
pub(crate) struct Protocol {
    /// `NETLINK_*`.
    pub(crate) number: libc::c_int,
    pub(crate) socket: &'static str,
    pub(crate) bind: &'static str,
    pub(crate) send: &'static str,
    pub(crate) receive: &'static str,
    /// The source of a refusal.
    pub(crate) answer: &'static str,
}

/// A socket, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct NetlinkSocket {
    fd: OwnedFd,
    protocol: &'static Protocol,
    buffer: Vec<u8>,
    sequence: u32,
}

impl NetlinkSocket {
    /// A socket that hears of these groups; with no groups, one for questions.
    pub(crate) fn bound(
        protocol: &'static Protocol,
        flags: libc::c_int,
        groups: u32,
    ) -> Result<NetlinkSocket, SyscallError> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | flags;
        // SAFETY: socket(2) takes integers only.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, protocol.number) };
        let fd = check(protocol.socket, fd)?;
        // SAFETY: the kernel has just returned this descriptor, and no other value owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: all-zero bytes are a valid sockaddr_nl.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as u16;
        address.nl_groups = groups;
        let len = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        // SAFETY: pointer and length describe `address`, which lives through the call.
        let result = unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), len) };
        check(protocol.bind, result)?;
        Ok(NetlinkSocket { fd, protocol, buffer: vec![0; BUFFER_LEN], sequence: 0 })
    }

    /// All that the kernel has of a kind.
    pub(crate) fn dump<T>(
        &mut self,
        question: u16,
        body: &[u8],
        parse: impl Fn(&Message<'_>) -> Option<T>,
    ) -> Result<Vec<T>, SyscallError> {
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
        let mut all = Vec::new();
        for _ in 0..DUMP_TRIES_MAX {
            all.clear();
            self.send(question, flags, body)?;
            if self.receive_answer(true, &mut |message| all.extend(parse(message)))? {
                break;
            }
        }
        Ok(all)
    }

    /// One answer; `None` if `parse` does not accept it.
    pub(crate) fn ask<T>(
        &mut self,
        question: u16,
        body: &[u8],
        parse: impl Fn(&Message<'_>) -> Option<T>,
    ) -> Result<Option<T>, SyscallError> {
        self.send(question, libc::NLM_F_REQUEST as u16, body)?;
        let mut found = None;
        self.receive_answer(false, &mut |message| found = parse(message))?;
        Ok(found)
    }

    /// A change, which the kernel acknowledges or refuses.
    pub(crate) fn change(
        &mut self,
        request: u16,
        flags: libc::c_int,
        body: &[u8],
    ) -> Result<(), SyscallError> {
        self.send(request, (libc::NLM_F_REQUEST | libc::NLM_F_ACK | flags) as u16, body)?;
        self.receive_answer(false, &mut |_| {}).map(|_| ())
    }

    /// The next datagram.
    pub(crate) fn receive(&mut self) -> Result<&[u8], SyscallError> {
        let (pointer, len) = (self.buffer.as_mut_ptr().cast(), self.buffer.len());
        // SAFETY: pointer and length describe the buffer, which the kernel may write to.
        let received = unsafe { libc::recv(self.fd.as_raw_fd(), pointer, len, 0) };
        let len = check_len(self.protocol.receive, received)?;
        Ok(&self.buffer[..len])
    }

    fn send(&mut self, question: u16, flags: u16, body: &[u8]) -> Result<(), SyscallError> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = Vec::with_capacity(MESSAGE_HEADER_LEN + body.len());
        message.extend_from_slice(&((MESSAGE_HEADER_LEN + body.len()) as u32).to_ne_bytes());
        message.extend_from_slice(&question.to_ne_bytes());
        message.extend_from_slice(&flags.to_ne_bytes());
        message.extend_from_slice(&self.sequence.to_ne_bytes());
        message.extend_from_slice(&0u32.to_ne_bytes());
        message.extend_from_slice(body);
        // SAFETY: pointer and length describe `message`, which lives through the call.
        let sent = unsafe { libc::send(self.fd.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
        check_len(self.protocol.send, sent).map(|_| ())
    }

    /// Hands each message of an answer to `take`. Returns whether the answer is consistent.
    fn receive_answer(
        &mut self,
        is_dump: bool,
        take: &mut dyn FnMut(&Message<'_>),
    ) -> Result<bool, SyscallError> {
        let mut is_consistent = true;
        loop {
            let (sequence, call) = (self.sequence, self.protocol.answer);
            for message in messages(self.receive()?).filter(|m| m.sequence == sequence) {
                is_consistent &= message.flags & libc::NLM_F_DUMP_INTR as u16 == 0;
                match i32::from(message.kind) {
                    libc::NLMSG_DONE => return Ok(is_consistent),
                    libc::NLMSG_ERROR => return answer_error(call, &message).map(|()| is_consistent),
                    _ => take(&message),
                }
                if !is_dump {
                    return Ok(true);
                }
            }
        }
    }
}

impl AsFd for NetlinkSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// One message of a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    flags: u16,
    sequence: u32,
    pub(crate) body: &'a [u8],
}

#[cfg(test)]
impl<'a> Message<'a> {
    /// A message that came with this body.
    pub(crate) fn of_body(body: &'a [u8]) -> Message<'a> {
        Message { kind: 0, flags: 0, sequence: 0, body }
    }
}

/// The messages of a datagram, up to the first that is cut short.
pub(crate) fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let len = read_u32(datagram, 0)? as usize;
        let message = Message {
            kind: read_u16(datagram, 4)?,
            flags: read_u16(datagram, 6)?,
            sequence: read_u32(datagram, 8)?,
            body: datagram.get(MESSAGE_HEADER_LEN..len)?,
        };
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some(message)
    })
}

/// The attributes after a body's fixed part: type without its flags, and value.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    const TYPE_MASK: u16 = 0x3fff;
    std::iter::from_fn(move || {
        let len = usize::from(read_u16(bytes, 0)?);
        let kind = read_u16(bytes, 2)? & TYPE_MASK;
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

/// Appends an attribute to the body of a request.
pub(crate) fn push_attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
    body.extend_from_slice(&kind.to_ne_bytes());
    body.extend_from_slice(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn answer_error(call: &'static str, message: &Message<'_>) -> Result<(), SyscallError> {
    match read_u32(message.body, 0).unwrap_or(0) as i32 {
        0 => Ok(()),
        number => Err(SyscallError::from_errno(call, number.wrapping_neg())),
    }
}

/// Text up to its end or the first zero.
pub(crate) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

pub(crate) fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(crate) fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(crate) fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
