//! Packet sockets with their rings and fanout groups: sock_diag(7), linux/packet_diag.h.
//!
//! ```text
//! question := family:u8=AF_PACKET protocol:u8=0 0:u16 inode:u32 show:u32 cookie:u32[2]
//! answer   := family:u8 type:u8 protocol:u16 inode:u32 cookie:u32[2] attribute*
//!             RX_RING { block_len blocks frame_len frames retire_ms private_len features }     u32 each
//!             FANOUT  id:u16 mode:u16                                                          as one u32, the id in its low half
//! ```
//!
//! Minimum kernel: 3.13, with `PACKET_DIAG`; elsewhere the dump is refused with `ENOENT`. Needs no capability.

use crate::SyscallError;
use crate::netlink::{Message, NetlinkSocket, Protocol, attributes, read_u32};

const DIAG: Protocol = Protocol {
    number: libc::NETLINK_SOCK_DIAG,
    socket: "socket(NETLINK_SOCK_DIAG)",
    bind: "bind(NETLINK_SOCK_DIAG)",
    send: "send(NETLINK_SOCK_DIAG)",
    receive: "recv(NETLINK_SOCK_DIAG)",
    answer: "netlink(NETLINK_SOCK_DIAG)",
};

const BY_FAMILY: u16 = 20;
const ANSWER_LEN: usize = 16;
const SHOW_RINGS_AND_FANOUT: u32 = 1 << 2 | 1 << 3;
const RX_RING: u16 = 2;
const FANOUT: u16 = 4;

/// A packet socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketSocketDetail {
    /// Inode of the socket, as in [`proc_packet`](crate::proc_packet).
    pub inode: u64,
    /// Bytes of its receive ring, if it has one.
    pub ring_len: Option<u64>,
    /// Fanout group: the group's number, and `PACKET_FANOUT_*` (0 hash, 1 round robin, 2 CPU, 3 rollover, 5 queue).
    pub fanout: Option<(u16, u8)>,
}

/// The packet sockets of the calling thread's network namespace.
///
/// # Errors
/// `ENOENT` if the kernel was built without it.
pub fn sockets() -> Result<Vec<PacketSocketDetail>, SyscallError> {
    let mut question = vec![libc::AF_PACKET as u8, 0, 0, 0];
    for word in [0, SHOW_RINGS_AND_FANOUT, 0, 0] {
        question.extend_from_slice(&u32::to_ne_bytes(word));
    }
    NetlinkSocket::bound(&DIAG, 0, 0)?.dump(BY_FAMILY, &question, parse)
}

fn parse(message: &Message<'_>) -> Option<PacketSocketDetail> {
    let mut detail =
        PacketSocketDetail { inode: read_u32(message.body, 4)?.into(), ..PacketSocketDetail::default() };
    for (kind, value) in attributes(message.body.get(ANSWER_LEN..)?) {
        match kind {
            RX_RING => {
                let (len, blocks) = (read_u32(value, 0)?, read_u32(value, 4)?);
                detail.ring_len = Some(u64::from(len) * u64::from(blocks)).filter(|len| *len > 0);
            }
            FANOUT => {
                let word = read_u32(value, 0)?;
                detail.fanout = Some((word as u16, (word >> 16) as u8));
            }
            _ => {}
        }
    }
    Some(detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PacketSocket, proc_packet};

    #[test]
    fn an_answer_cut_at_any_byte_is_less_or_nothing() {
        let mut answer = vec![0; ANSWER_LEN];
        answer[4..8].copy_from_slice(&99u32.to_ne_bytes());
        let mut add = |kind: u16, words: &[u32]| {
            answer.extend_from_slice(&(4 + words.len() as u16 * 4).to_ne_bytes());
            answer.extend_from_slice(&kind.to_ne_bytes());
            words.iter().for_each(|word| answer.extend_from_slice(&word.to_ne_bytes()));
        };
        add(RX_RING, &[1 << 20, 64, 2048, 32768, 4, 0, 0]);
        add(FANOUT, &[5 << 16 | 77]);
        let of = |len: usize| parse(&Message::of_body(&answer[..len]));
        let whole = PacketSocketDetail { inode: 99, ring_len: Some(64 << 20), fanout: Some((77, 5)) };
        assert_eq!(of(answer.len()), Some(whole));
        for len in 0..answer.len() {
            assert!(of(len).is_none_or(|less| less.inode == 99 && less.fanout.is_none()), "{len}");
        }
        answer[ANSWER_LEN + 4..ANSWER_LEN + 12].fill(0xff);
        assert!(parse(&Message::of_body(&answer)).is_some(), "sizes of any amount");
    }

    #[test]
    fn our_own_socket_is_among_them() {
        let Ok(_socket) = PacketSocket::open() else {
            eprintln!("skipped: our_own_socket_is_among_them: no right to open packet sockets");
            return;
        };
        match sockets() {
            Err(error) => assert_eq!(error.errno(), libc::ENOENT, "{error}"),
            Ok(found) => {
                let inodes: Vec<u64> = proc_packet::sockets().iter().map(|socket| socket.inode).collect();
                assert!(found.iter().any(|socket| inodes.contains(&socket.inode)), "{found:?} {inodes:?}");
            }
        }
    }
}
