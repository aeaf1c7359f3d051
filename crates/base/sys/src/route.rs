//! Interfaces and their changes: rtnetlink(7).
//!
//! ```text
//! datagram  := message*                               each padded to 4 bytes, host byte order
//! message   := len:u32 type:u16 flags:u16 seq:u32 pid:u32 body
//! body      := ifinfomsg attribute*                   RTM_NEWLINK, RTM_DELLINK
//!            | ifaddrmsg attribute*                   RTM_NEWADDR
//!            | errno:i32 ...                          NLMSG_ERROR; 0 acknowledges
//! ifinfomsg := family:u8 0:u8 type:u16 index:i32 flags:u32 change:u32
//! rtmsg     := family:u8 dst_len:u8 src_len:u8 tos:u8 table:u8 protocol:u8 scope:u8 type:u8 flags:u32
//! ifaddrmsg := family:u8 prefixlen:u8 flags:u8 scope:u8 index:u32
//! attribute := len:u16 type:u16 value                 padded to 4 bytes
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};

use crate::SyscallError;
use crate::netlink::{
    Message, NetlinkSocket, Protocol, attributes, messages, push_attribute, read_u16, read_u32, text,
};

const ROUTE: Protocol = Protocol {
    number: libc::NETLINK_ROUTE,
    socket: "socket(NETLINK_ROUTE)",
    bind: "bind(NETLINK_ROUTE)",
    send: "send(NETLINK_ROUTE)",
    receive: "recv(NETLINK_ROUTE)",
    answer: "netlink(NETLINK_ROUTE)",
};

const LINK_HEADER_LEN: usize = 16;
const ADDRESS_HEADER_LEN: usize = 8;
const ROUTE_HEADER_LEN: usize = 12;

/// A network interface as the kernel describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Number of the interface. A later one may have it again, by `ip link add index` or from another namespace.
    pub index: u32,
    /// Name of the interface, such as `eth0`.
    pub name: String,
    /// Hardware type: `ARPHRD_*` of linux/if_arp.h.
    pub hardware_type: u16,
    /// `IFF_*` of netdevice(7), among them `IFF_UP`, `IFF_RUNNING`, `IFF_LOOPBACK`.
    pub flags: u32,
    /// Operational state: `IF_OPER_*` of linux/if.h (RFC 2863).
    pub oper_state: u8,
    /// The largest packet it sends, without the link-layer header, in bytes.
    pub mtu: u32,
    /// Link-layer address; empty if it has none.
    pub hardware_address: Vec<u8>,
    /// The kind of its driver: `veth`, `bridge`, `bond`; empty for hardware.
    pub kind: String,
    /// The other end of a veth, or the interface below a VLAN device, by its number in the same network namespace;
    /// `None` if it has none, or that is in another one.
    pub peer: Option<u32>,
    /// The queueing discipline that packets pass on their way out, such as `noqueue` or `fq_codel`.
    pub discipline: String,
    /// A description that an administrator gave it (`ip link set alias`).
    pub alias: String,
    /// Number of requests for promiscuous mode.
    pub promiscuity: u32,
    /// The bridge, bond or team that it is a port of, by number.
    pub controller: Option<u32>,
    /// The XDP program that sees its packets first.
    pub xdp: Option<XdpProgram>,
    /// Queues that it was made with to receive from; drivers may use fewer.
    pub rx_queues: u32,
    /// Counters, if the kernel sent them.
    pub statistics: Option<LinkStatistics>,
}

impl Link {
    /// Whether an administrator has switched it on.
    pub fn is_up(&self) -> bool {
        self.flags & libc::IFF_UP as u32 != 0
    }

    /// Whether it is up and can pass packets (carrier, for one).
    pub fn is_running(&self) -> bool {
        self.flags & libc::IFF_RUNNING as u32 != 0
    }

    /// Whether sent packets come back as received.
    pub fn is_loopback(&self) -> bool {
        self.flags & libc::IFF_LOOPBACK as u32 != 0
    }
}

/// An XDP program on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpProgram {
    /// Number of the program (`bpftool prog show id N`); 0 if there are several.
    pub id: u32,
    /// `XDP_ATTACHED_*` of linux/if_link.h: 1 in the driver, 2 generic (after the packet's memory was made), 3 in the
    /// adapter, 4 several.
    pub mode: u8,
}

/// The receive side of `struct rtnl_link_stats64`: counted since the interface was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStatistics {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Bad packets, of all kinds.
    pub rx_errors: u64,
    /// Frames dropped after reception: for lack of room, and those of protocols without a receiver on this host,
    /// which a capture did see.
    pub rx_dropped: u64,
    /// Dropped before transmission.
    pub tx_dropped: u64,
    /// Frames of a wrong length.
    pub rx_length_errors: u64,
    /// Did not fit the receive buffers.
    pub rx_over_errors: u64,
    /// With a wrong checksum of the frame.
    pub rx_crc_errors: u64,
    /// Misaligned.
    pub rx_frame_errors: u64,
    /// The NIC's queue was full.
    pub rx_fifo_errors: u64,
    /// The host was too slow to offer buffers.
    pub rx_missed_errors: u64,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The interface.
    pub if_index: u32,
    /// The address.
    pub address: IpAddr,
    /// Bits of the network part.
    pub prefix_len: u8,
}

/// The fate of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkChange {
    /// The interface is new, or a property of it changed.
    Present(Box<Link>),
    /// The interface is gone.
    Gone {
        /// Number of the interface.
        index: u32,
        /// Name of the interface.
        name: String,
    },
    /// Changes came faster than they were read and some are lost: ask for all links.
    Missed,
}

/// A netlink socket for interfaces, in the network namespace of the thread that opened it.
///
/// Needs no capability.
#[derive(Debug)]
pub struct RouteSocket {
    socket: NetlinkSocket,
}

impl RouteSocket {
    /// A socket for questions.
    ///
    /// # Errors
    /// The error of socket(2) and bind(2).
    pub fn open() -> Result<RouteSocket, SyscallError> {
        RouteSocket::bound(0, 0)
    }

    /// A socket that hears of changes, without waiting.
    ///
    /// # Errors
    /// The error of socket(2) and bind(2).
    pub fn monitor() -> Result<RouteSocket, SyscallError> {
        RouteSocket::bound(libc::SOCK_NONBLOCK, libc::RTMGRP_LINK as u32)
    }

    /// All interfaces with their statistics.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn links(&mut self) -> Result<Vec<Link>, SyscallError> {
        self.dump(libc::RTM_GETLINK, LINK_HEADER_LEN, parse_link)
    }

    /// The interface of this number with its statistics, if there is one.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn link(&mut self, index: u32) -> Result<Option<Link>, SyscallError> {
        let mut body = [0u8; LINK_HEADER_LEN];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        match self.socket.ask(libc::RTM_GETLINK, &body, parse_link) {
            Err(error) if error.errno() == libc::ENODEV => Ok(None),
            result => result,
        }
    }

    /// All addresses of all interfaces.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn addresses(&mut self) -> Result<Vec<InterfaceAddress>, SyscallError> {
        self.dump(libc::RTM_GETADDR, ADDRESS_HEADER_LEN, parse_address)
    }

    /// The interface by which packets to this address leave; `None` if there is no way to it.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn route_to(&mut self, address: IpAddr) -> Result<Option<u32>, SyscallError> {
        let (family, bytes) = match address {
            IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
            IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
        };
        let mut body = vec![0u8; ROUTE_HEADER_LEN];
        body[0] = family as u8;
        body[1] = 8 * bytes.len() as u8;
        body.extend_from_slice(&(4 + bytes.len() as u16).to_ne_bytes());
        body.extend_from_slice(&libc::RTA_DST.to_ne_bytes());
        body.extend_from_slice(&bytes);
        match self.socket.ask(libc::RTM_GETROUTE, &body, parse_route) {
            Err(error) if matches!(error.errno(), libc::ENETUNREACH | libc::EHOSTUNREACH) => Ok(None),
            result => Ok(result?.and_then(|route| route.interfaces.first().copied())),
        }
    }

    /// The interfaces of all routes that packets take whose address no other route knows.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn default_routes(&mut self) -> Result<Vec<u32>, SyscallError> {
        let routes = self.dump(libc::RTM_GETROUTE, ROUTE_HEADER_LEN, parse_route)?;
        let mut ways: Vec<u32> =
            routes.into_iter().filter(|route| route.is_default).flat_map(|route| route.interfaces).collect();
        ways.sort_unstable();
        ways.dedup();
        Ok(ways)
    }

    /// Adds the changes that have arrived on a [`monitor`](Self::monitor) to `changes`, without waiting.
    ///
    /// # Errors
    /// The error of recv(2).
    pub fn changes(&mut self, changes: &mut Vec<LinkChange>) -> Result<(), SyscallError> {
        loop {
            match self.socket.receive() {
                Ok(datagram) => changes.extend(messages(datagram).filter_map(|m| parse_change(&m))),
                Err(error) if error.errno() == libc::ENOBUFS => changes.push(LinkChange::Missed),
                Err(error) if error.errno() == libc::EAGAIN => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Adds a pair of virtual Ethernet interfaces, veth(4), which stay down. A frame sent on one arrives on the other.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`; `EEXIST` if a name is taken; `EOPNOTSUPP` if the kernel has no veth.
    pub fn add_veth_pair(&mut self, name: &str, peer: &str) -> Result<(), SyscallError> {
        /// `VETH_INFO_PEER` of linux/veth.h.
        const PEER: u16 = 1;
        let link = |name: &str| {
            let mut body = vec![0; LINK_HEADER_LEN];
            push_attribute(&mut body, libc::IFLA_IFNAME, &[name.as_bytes(), b"\0"].concat());
            body
        };
        let mut data = Vec::new();
        push_attribute(&mut data, PEER, &link(peer));
        let mut info = Vec::new();
        push_attribute(&mut info, libc::IFLA_INFO_KIND, b"veth\0");
        push_attribute(&mut info, libc::IFLA_INFO_DATA, &data);
        let mut body = link(name);
        push_attribute(&mut body, libc::IFLA_LINKINFO, &info);
        self.socket.change(libc::RTM_NEWLINK, libc::NLM_F_CREATE | libc::NLM_F_EXCL, &body)
    }

    /// Sets those flags of an interface that `mask` names: `IFF_*` of netdevice(7).
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`; `ENODEV` if there is no such interface.
    pub fn set_flags(
        &mut self,
        index: u32,
        flags: libc::c_int,
        mask: libc::c_int,
    ) -> Result<(), SyscallError> {
        let mut body = [0; LINK_HEADER_LEN];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        body[8..12].copy_from_slice(&flags.to_ne_bytes());
        body[12..16].copy_from_slice(&mask.to_ne_bytes());
        self.socket.change(libc::RTM_NEWLINK, 0, &body)
    }

    fn bound(flags: libc::c_int, groups: u32) -> Result<RouteSocket, SyscallError> {
        Ok(RouteSocket { socket: NetlinkSocket::bound(&ROUTE, flags, groups)? })
    }

    fn dump<T>(
        &mut self,
        question: u16,
        body_len: usize,
        parse: fn(&Message<'_>) -> Option<T>,
    ) -> Result<Vec<T>, SyscallError> {
        self.socket.dump(question, &vec![0; body_len], parse)
    }
}

impl AsFd for RouteSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn parse_change(message: &Message<'_>) -> Option<LinkChange> {
    match message.kind {
        libc::RTM_NEWLINK => parse_link(message).map(|link| LinkChange::Present(Box::new(link))),
        libc::RTM_DELLINK => {
            let Link { index, name, .. } = parse_link(message)?;
            Some(LinkChange::Gone { index, name })
        }
        _ => None,
    }
}

fn parse_link(message: &Message<'_>) -> Option<Link> {
    // RTM_NEWLINK of the family AF_BRIDGE reports a port of a bridge, which is not a new interface.
    if !matches!(message.kind, libc::RTM_NEWLINK | libc::RTM_DELLINK) || *message.body.first()? != 0 {
        return None;
    }
    let mut link = Link {
        hardware_type: read_u16(message.body, 2)?,
        index: read_u32(message.body, 4)?,
        flags: read_u32(message.body, 8)?,
        ..Link::default()
    };
    let mut is_peer_elsewhere = false;
    for (kind, value) in attributes(message.body.get(LINK_HEADER_LEN..)?) {
        match kind {
            libc::IFLA_LINK => link.peer = read_u32(value, 0).filter(|index| *index != 0),
            libc::IFLA_LINK_NETNSID => is_peer_elsewhere = true,
            libc::IFLA_IFNAME => link.name = text(value),
            libc::IFLA_ADDRESS => link.hardware_address = value.to_vec(),
            libc::IFLA_OPERSTATE => link.oper_state = value.first().copied().unwrap_or(0),
            libc::IFLA_MTU => link.mtu = read_u32(value, 0).unwrap_or(0),
            libc::IFLA_QDISC => link.discipline = text(value),
            libc::IFLA_IFALIAS => link.alias = text(value),
            libc::IFLA_PROMISCUITY => link.promiscuity = read_u32(value, 0).unwrap_or(0),
            libc::IFLA_MASTER => link.controller = read_u32(value, 0).filter(|index| *index != 0),
            libc::IFLA_XDP => link.xdp = parse_xdp(value),
            libc::IFLA_NUM_RX_QUEUES => link.rx_queues = read_u32(value, 0).unwrap_or(0),
            libc::IFLA_STATS64 => link.statistics = parse_statistics(value),
            libc::IFLA_LINKINFO => {
                let kind = attributes(value).find(|&(kind, _)| kind == libc::IFLA_INFO_KIND);
                link.kind = kind.map(|(_, name)| text(name)).unwrap_or_default();
            }
            _ => {}
        }
    }
    link.peer = link.peer.filter(|_| !is_peer_elsewhere);
    Some(link)
}

/// Without a program the mode is 0.
fn parse_xdp(value: &[u8]) -> Option<XdpProgram> {
    const ATTACHED: u16 = 2;
    const PROGRAM_ID: u16 = 4;
    let find = |wanted: u16| attributes(value).find(|&(kind, _)| kind == wanted).map(|(_, value)| value);
    let mode = *find(ATTACHED)?.first()?;
    let id = find(PROGRAM_ID).and_then(|value| read_u32(value, 0)).unwrap_or(0);
    (mode != 0).then_some(XdpProgram { id, mode })
}

/// The fields of `struct rtnl_link_stats64`, 64 bits each, in its order.
fn parse_statistics(value: &[u8]) -> Option<LinkStatistics> {
    let field = |number: usize| {
        let bytes = value.get(number * 8..number * 8 + 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    };
    Some(LinkStatistics {
        rx_packets: field(0)?,
        tx_packets: field(1)?,
        rx_bytes: field(2)?,
        tx_bytes: field(3)?,
        rx_errors: field(4)?,
        rx_dropped: field(6)?,
        tx_dropped: field(7)?,
        rx_length_errors: field(10)?,
        rx_over_errors: field(11)?,
        rx_crc_errors: field(12)?,
        rx_frame_errors: field(13)?,
        rx_fifo_errors: field(14)?,
        rx_missed_errors: field(15)?,
    })
}

fn parse_address(message: &Message<'_>) -> Option<InterfaceAddress> {
    if message.kind != libc::RTM_NEWADDR {
        return None;
    }
    let prefix_len = *message.body.get(1)?;
    let if_index = read_u32(message.body, 4)?;
    let mut address = None;
    for (kind, value) in attributes(message.body.get(ADDRESS_HEADER_LEN..)?) {
        // On point-to-point links IFA_ADDRESS is the far end, and IFA_LOCAL ours (linux/if_addr.h).
        let is_ours = kind == libc::IFA_LOCAL || (kind == libc::IFA_ADDRESS && address.is_none());
        address = if is_ours { parse_ip(value) } else { address };
    }
    Some(InterfaceAddress { if_index, address: address?, prefix_len })
}

/// A route for packets that leave.
struct Route {
    is_default: bool,
    /// One, or several that share its packets.
    interfaces: Vec<u32>,
}

fn parse_route(message: &Message<'_>) -> Option<Route> {
    const UNICAST: u8 = 1;
    if message.kind != libc::RTM_NEWROUTE {
        return None;
    }
    let mut interfaces = Vec::new();
    for (kind, value) in attributes(message.body.get(ROUTE_HEADER_LEN..)?) {
        match kind {
            libc::RTA_OIF => interfaces.extend(read_u32(value, 0)),
            libc::RTA_MULTIPATH => interfaces.extend(next_hops(value)),
            _ => {}
        }
    }
    let is_default = *message.body.get(1)? == 0 && *message.body.get(7)? == UNICAST;
    Some(Route { is_default, interfaces })
}

/// The interfaces of a list of `rtnexthop := len:u16 flags:u8 hops:u8 index:u32 attribute*`.
fn next_hops(mut value: &[u8]) -> Vec<u32> {
    let mut interfaces = Vec::new();
    while let (Some(len), Some(index)) = (read_u16(value, 0), read_u32(value, 4)) {
        interfaces.push(index);
        // A length that leads nowhere ends the list.
        value = value.get(usize::from(len.max(8)).next_multiple_of(4)..).unwrap_or(&[]);
    }
    interfaces
}

fn parse_ip(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::MESSAGE_HEADER_LEN as MESSAGE_LEN;

    #[test]
    fn ways_lead_somewhere() {
        let mut route = RouteSocket::open().unwrap();
        let lo = route.links().unwrap().into_iter().find(Link::is_loopback).unwrap();
        if lo.is_up() {
            assert_eq!(route.route_to(Ipv4Addr::LOCALHOST.into()).unwrap(), Some(lo.index));
        }
        let alone = || {
            if crate::NetNs::enter_new().is_err() {
                return eprintln!("skipped: no right to make a namespace");
            }
            let mut route = RouteSocket::open().unwrap();
            let far = IpAddr::from([192, 0, 2, 1]);
            assert_eq!((route.route_to(far).unwrap(), route.default_routes().unwrap()), (None, vec![]));
            let ip = |arguments: &str| {
                let status = std::process::Command::new("ip").args(arguments.split(' ')).status();
                status.is_ok_and(|status| status.success())
            };
            let made = ip("link add w0 type veth peer name w1")
                && ip("link set w0 up")
                && ip("link set w1 up")
                && ip("address add 10.9.8.1/24 dev w0")
                && ip("address add 10.9.9.1/24 dev w1")
                && ip("route add default nexthop via 10.9.8.2 nexthop via 10.9.9.2");
            if !made {
                return eprintln!("skipped: no veth pair");
            }
            let links = route.links().unwrap();
            let number = |name: &str| links.iter().find(|link| link.name == name).unwrap().index;
            let mut both = vec![number("w0"), number("w1")];
            both.sort_unstable();
            assert_eq!(route.default_routes().unwrap(), both);
            assert!(both.contains(&route.route_to(far).unwrap().unwrap()));
            assert_eq!(route.route_to(IpAddr::from([10, 9, 9, 7])).unwrap(), Some(number("w1")));
        };
        std::thread::spawn(alone).join().unwrap();
    }

    #[test]
    fn the_loopback_interface_has_counters() {
        let mut route = RouteSocket::open().unwrap();
        let links = route.links().unwrap();
        let loopback = links.iter().find(|link| link.is_loopback()).unwrap();
        assert!(loopback.statistics.is_some());
        let again = route.link(loopback.index).unwrap().unwrap();
        assert_eq!((&again.name, again.hardware_type), (&loopback.name, libc::ARPHRD_LOOPBACK));
        assert_eq!(route.link(u32::MAX / 2).unwrap(), None);
    }

    #[test]
    fn messages_cut_at_any_byte_are_left_out() {
        let mut datagram = Vec::new();
        for name in ["eth0", "wlan0"] {
            datagram.extend(link_message(name));
        }
        for len in 0..=datagram.len() {
            let whole = messages(&datagram[..len]).filter_map(|m| parse_link(&m)).count();
            assert!(whole <= 2 && (len < datagram.len() || whole == 2), "{whole} of {len} bytes");
        }
        let names: Vec<String> = messages(&datagram).filter_map(|m| parse_link(&m)).map(|l| l.name).collect();
        assert_eq!(names, ["eth0", "wlan0"]);
    }

    #[test]
    fn a_length_that_goes_nowhere_ends_the_walk() {
        for len in [0u32, 3, 15, u32::MAX] {
            let mut datagram = link_message("eth0");
            datagram[..4].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(messages(&datagram).count(), 0);
        }
        assert_eq!(attributes(&[0, 0, 0, 0, 0, 0]).count(), 0);
    }

    #[test]
    fn an_xdp_program_has_a_mode_and_a_number() {
        // Attributes of 5 and of 8 bytes: attached, program.
        let value = |mode| [5, 0, 2, 0, mode, 0, 0, 0, 8, 0, 4, 0, 7, 0, 0, 0];
        assert_eq!(parse_xdp(&value(0)), None);
        if cfg!(target_endian = "little") {
            assert_eq!(parse_xdp(&value(2)), Some(XdpProgram { id: 7, mode: 2 }));
        }
        for len in 0..16 {
            assert!(parse_xdp(&value(2)[..len]).is_none_or(|program| program.id == 0));
        }
    }

    fn link_message(name: &str) -> Vec<u8> {
        let mut attribute = Vec::new();
        attribute.extend_from_slice(&(4 + name.len() as u16).to_ne_bytes());
        attribute.extend_from_slice(&libc::IFLA_IFNAME.to_ne_bytes());
        attribute.extend_from_slice(name.as_bytes());
        attribute.resize(attribute.len().next_multiple_of(4), 0);
        let len = (MESSAGE_LEN + LINK_HEADER_LEN + attribute.len()) as u32;
        let mut message = len.to_ne_bytes().to_vec();
        message.extend_from_slice(&libc::RTM_NEWLINK.to_ne_bytes());
        message.resize(MESSAGE_LEN + LINK_HEADER_LEN, 0);
        message.extend(attribute);
        message
    }
}
