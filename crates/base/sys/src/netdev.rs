//! XDP features of drivers: the generic netlink family "netdev".
//!
//! ```text
//! body   := command:u8 version:u8 0:u16 attribute*        linux/genetlink.h
//! family := GETFAMILY { FAMILY_NAME "netdev" }  ->  { FAMILY_ID:u16 ... }
//! device := DEV_GET { IFINDEX:u32 }  ->  { IFINDEX XDP_FEATURES:u64 XDP_RX_METADATA_FEATURES:u64 ... }
//! ```
//!
//! The numbers are those of the kernel's Documentation/netlink/specs/netdev.yaml. Minimum kernel: 6.3; older ones do
//! not know the family.

use crate::SyscallError;
use crate::netlink::{Message, NetlinkSocket, Protocol, attributes, read_u16, read_u64};

const GENERIC: Protocol = Protocol {
    number: libc::NETLINK_GENERIC,
    socket: "socket(NETLINK_GENERIC)",
    bind: "bind(NETLINK_GENERIC)",
    send: "send(NETLINK_GENERIC)",
    receive: "recv(NETLINK_GENERIC)",
    answer: "netlink(NETLINK_GENERIC)",
};

const HEADER_LEN: usize = 4;
/// The family of families, its question, and its attributes.
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

const GET_DEVICE: u8 = 1;
const IF_INDEX: u16 = 1;
const XDP_FEATURES: u16 = 3;
const METADATA_FEATURES: u16 = 5;

/// The features that a driver declares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures {
    /// `NETDEV_XDP_ACT_*`: 1 drop, pass and send back; 2 redirect; 4 send redirected frames; 8 AF_XDP without copies;
    /// 0x10 programs in the adapter; 0x20 frames in pieces.
    pub actions: u64,
    /// `NETDEV_XDP_RX_METADATA_*`: 1 time stamp, 2 hash, 4 VLAN tag.
    pub metadata: u64,
}

impl XdpFeatures {
    /// Whether programs run in the driver.
    pub fn has_driver_mode(&self) -> bool {
        self.actions & 1 != 0
    }

    /// Whether AF_XDP sockets get packets without a copy.
    pub fn has_zero_copy(&self) -> bool {
        self.actions & 8 != 0
    }
}

/// A socket for these questions, in the network namespace of the thread that opened it. Needs no capability.
#[derive(Debug)]
pub struct NetdevSocket {
    socket: NetlinkSocket,
    family: u16,
}

impl NetdevSocket {
    /// Opens it and looks the family up.
    ///
    /// # Errors
    /// `ENOENT` if the kernel does not know the family; else the error of socket(2).
    pub fn open() -> Result<NetdevSocket, SyscallError> {
        let mut socket = NetlinkSocket::bound(&GENERIC, 0, 0)?;
        let body = body(GET_FAMILY, FAMILY_NAME, b"netdev\0");
        let family = socket.ask(CONTROLLER, &body, parse_family)?;
        let family = family.ok_or(SyscallError::from_errno(GENERIC.answer, libc::ENOENT))?;
        Ok(NetdevSocket { socket, family })
    }

    /// The features that the driver of this interface declares; `None` if the answer is not understood.
    ///
    /// # Errors
    /// `ENODEV` if there is no such interface.
    pub fn xdp_features(&mut self, if_index: u32) -> Result<Option<XdpFeatures>, SyscallError> {
        let body = body(GET_DEVICE, IF_INDEX, &if_index.to_ne_bytes());
        self.socket.ask(self.family, &body, parse_features)
    }
}

fn body(command: u8, attribute: u16, value: &[u8]) -> Vec<u8> {
    let mut body = vec![command, 1, 0, 0];
    body.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
    body.extend_from_slice(&attribute.to_ne_bytes());
    body.extend_from_slice(value);
    body.resize(body.len().next_multiple_of(4), 0);
    body
}

fn parse_family(message: &Message<'_>) -> Option<u16> {
    let id = attributes(message.body.get(HEADER_LEN..)?).find(|&(kind, _)| kind == FAMILY_ID);
    id.and_then(|(_, value)| read_u16(value, 0))
}

fn parse_features(message: &Message<'_>) -> Option<XdpFeatures> {
    let mut features = XdpFeatures::default();
    let mut is_told = false;
    for (kind, value) in attributes(message.body.get(HEADER_LEN..)?) {
        match kind {
            XDP_FEATURES => {
                features.actions = read_u64(value, 0)?;
                is_told = true;
            }
            METADATA_FEATURES => features.metadata = read_u64(value, 0).unwrap_or(0),
            _ => {}
        }
    }
    is_told.then_some(features)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RouteSocket;

    #[test]
    fn an_answer_cut_at_any_byte_is_less_or_nothing() {
        let mut answer = body(GET_DEVICE, IF_INDEX, &7u32.to_ne_bytes());
        answer.extend(&body(0, XDP_FEATURES, &9u64.to_ne_bytes())[HEADER_LEN..]);
        answer.extend(&body(0, METADATA_FEATURES, &5u64.to_ne_bytes())[HEADER_LEN..]);
        let of = |len: usize| parse_features(&Message::of_body(&answer[..len]));
        let whole = of(answer.len()).unwrap();
        assert_eq!(whole, XdpFeatures { actions: 9, metadata: 5 });
        assert!(whole.has_driver_mode() && whole.has_zero_copy());
        for len in 0..answer.len() {
            assert!(of(len).is_none_or(|less| less.actions == 9 && less.metadata == 0), "{len}");
        }
        // A value that is too short is not a number.
        assert_eq!(parse_features(&Message::of_body(&body(0, XDP_FEATURES, &[1, 2]))), None);
    }

    #[test]
    fn netdev_answers_for_the_loopback_interface() {
        let mut socket = match NetdevSocket::open() {
            Ok(socket) => socket,
            Err(error) => return assert_eq!(error.errno(), libc::ENOENT, "{error}"),
        };
        let links = RouteSocket::open().unwrap().links().unwrap();
        let loopback = links.iter().find(|link| link.is_loopback()).unwrap();
        let features = socket.xdp_features(loopback.index).unwrap().unwrap();
        assert!(!features.has_driver_mode() && !features.has_zero_copy());
        assert_eq!(socket.xdp_features(u32::MAX / 2).unwrap_err().errno(), libc::ENODEV);
    }
}
