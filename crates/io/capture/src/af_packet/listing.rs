//! The interfaces of this machine, for a choice among them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;

use tapline_packet::LinkType;
use tapline_sys::proc_packet::{self, PacketSocketEntry, SocketHolder};
use tapline_sys::{DriverInfo, InterfaceAddress, Link, LinkControl, RouteSocket, SyscallError, XdpProgram};

use super::opener::open_namespace;
use super::{AfPacketError, TimestampSource};

/// `ETH_P_ALL`: the protocol of sockets that capture.
const ALL_PROTOCOLS: u16 = 3;

/// An interface, with all that helps to choose it.
#[derive(Clone, Debug)]
pub struct InterfaceInfo {
    /// Number of the interface.
    pub index: u32,
    /// Name of the interface.
    pub name: String,
    /// A description that an administrator gave it; mostly empty.
    pub description: String,
    /// The kind of its driver: `veth`, `bridge`; empty for hardware.
    pub kind: String,
    /// The link type: the first header of its packets.
    pub link_type: LinkType,
    /// Whether it is switched on.
    pub is_up: bool,
    /// Whether it has carrier.
    pub is_running: bool,
    /// Whether sent packets come back.
    pub is_loopback: bool,
    /// Whether it is a radio.
    pub is_wireless: bool,
    /// Whether it is in promiscuous mode.
    pub is_promiscuous: bool,
    /// The largest packet it sends, without the link-layer header, in bytes.
    pub mtu: u32,
    /// Link-layer address; empty if the interface has none.
    pub hardware_address: Vec<u8>,
    /// IP addresses, each with its prefix length.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Bits per second, if known.
    pub speed: Option<u64>,
    /// The driver, if it reports its name.
    pub driver: Option<DriverInfo>,
    /// The clocks that can stamp its packets.
    pub timestamps: Vec<TimestampSource>,
    /// The XDP program that sees its packets first: AF_XDP then has no place here.
    pub xdp: Option<XdpProgram>,
    /// Captures on this interface now.
    pub captured_by: Vec<CapturingProcess>,
}

/// A capture of any program on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturingProcess {
    /// The process; `None` if this user may not see the socket's owner.
    pub process: Option<SocketHolder>,
    /// The user that owns the socket.
    pub uid: u32,
    /// Whether it captures on all interfaces and not just here.
    pub is_everywhere: bool,
}

/// The interfaces of this namespace (see [`AfPacketSettings::netns`](super::AfPacketSettings::netns)), or of our own,
/// by number.
///
/// # Errors
/// The namespace cannot be found or entered, or the kernel does not answer.
pub fn list(netns: Option<&str>) -> Result<Vec<InterfaceInfo>, AfPacketError> {
    in_namespace(netns, list_here)
}

/// The IPv4 netmask of each interface that has an address, by name; without the search for processes that capture, which
/// goes through the descriptors of all.
///
/// # Errors
/// As [`list`].
pub fn netmasks(netns: Option<&str>) -> Result<HashMap<String, u32>, AfPacketError> {
    in_namespace(netns, || {
        let mut route = RouteSocket::open()?;
        Ok(masks_of(&route.links()?, &route.addresses()?))
    })
}

fn masks_of(links: &[Link], addresses: &[InterfaceAddress]) -> HashMap<String, u32> {
    let mask = |link: &Link| {
        let of_link =
            |address: &&InterfaceAddress| address.if_index == link.index && address.address.is_ipv4();
        let len = addresses.iter().find(of_link)?.prefix_len.min(32);
        Some((link.name.clone(), u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)))
    };
    links.iter().filter_map(mask).collect()
}

fn in_namespace<T: Send>(
    netns: Option<&str>,
    ask: impl FnOnce() -> Result<T, SyscallError> + Send,
) -> Result<T, AfPacketError> {
    let answer = match netns {
        None => ask(),
        Some(name) => open_namespace(name)?
            .run(ask)
            .map_err(|source| AfPacketError::Namespace { name: name.to_owned(), source })?,
    };
    answer.map_err(|source| AfPacketError::of_call("network interfaces", source))
}

fn list_here() -> Result<Vec<InterfaceInfo>, SyscallError> {
    let mut route = RouteSocket::open()?;
    let mut control = LinkControl::open()?;
    let mut links = route.links()?;
    links.sort_by_key(|link| link.index);
    let addresses = route.addresses()?;
    let sockets: Vec<_> = proc_packet::sockets().into_iter().filter(captures).collect();
    let inodes: Vec<u64> = sockets.iter().map(|socket| socket.inode).collect();
    let holders = proc_packet::holders(&inodes);
    let describe = |link: &Link| {
        let mut info = describe(link, &mut control);
        info.addresses = addresses_of(link.index, &addresses);
        info.captured_by = capturers(link.index, &sockets, &holders);
        info
    };
    Ok(links.iter().map(describe).collect())
}

fn captures(socket: &PacketSocketEntry) -> bool {
    socket.protocol == ALL_PROTOCOLS
}

fn describe(link: &Link, control: &mut LinkControl) -> InterfaceInfo {
    let name = link.name.as_str();
    let timestamping = control.timestamping(name).ok();
    InterfaceInfo {
        index: link.index,
        name: link.name.clone(),
        description: link.alias.clone(),
        kind: link.kind.clone(),
        link_type: LinkType::of_hardware(link.hardware_type),
        is_up: link.is_up(),
        is_running: link.is_running(),
        is_loopback: link.is_loopback(),
        is_wireless: is_wireless(name),
        is_promiscuous: link.promiscuity > 0,
        mtu: link.mtu,
        hardware_address: link.hardware_address.clone(),
        addresses: Vec::new(),
        xdp: link.xdp,
        speed: control.speed(name).ok().flatten(),
        driver: control.driver(name).ok(),
        timestamps: TimestampSource::available(timestamping.as_ref()),
        captured_by: Vec::new(),
    }
}

fn addresses_of(if_index: u32, all: &[InterfaceAddress]) -> Vec<(IpAddr, u8)> {
    let ours = all.iter().filter(|address| address.if_index == if_index);
    ours.map(|address| (address.address, address.prefix_len)).collect()
}

fn capturers(
    if_index: u32,
    sockets: &[PacketSocketEntry],
    holders: &HashMap<u64, Vec<SocketHolder>>,
) -> Vec<CapturingProcess> {
    let here = sockets.iter().filter(|socket| socket.if_index == if_index || socket.if_index == 0);
    let mut found: Vec<CapturingProcess> = Vec::new();
    for socket in here {
        let (uid, is_everywhere) = (socket.uid, socket.if_index == 0);
        let processes = holders.get(&socket.inode).map_or(&[][..], Vec::as_slice);
        let known = processes.iter().cloned().map(Some);
        let unknown = processes.is_empty().then_some(None);
        for process in known.chain(unknown) {
            let capturer = CapturingProcess { process, uid, is_everywhere };
            if !found.contains(&capturer) {
                found.push(capturer);
            }
        }
    }
    found
}

/// The kernel shows a radio by a link in sysfs, which is that of the namespace in which /sys was mounted.
fn is_wireless(name: &str) -> bool {
    Path::new("/sys/class/net").join(name).join("phy80211").exists()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn loopback_is_always_there() {
        let all = list(None).unwrap();
        let loopback = all.iter().find(|info| info.is_loopback).unwrap();
        assert_eq!(loopback.link_type, LinkType::ETHERNET);
        assert_eq!(loopback.timestamps, [TimestampSource::Host]);
        assert!(all.windows(2).all(|pair| pair[0].index < pair[1].index));
    }

    #[test]
    fn masks_are_those_of_first_ipv4_addresses() {
        let link = |index, name: &str| Link { index, name: name.to_owned(), ..Link::default() };
        let address = |if_index, text: &str, prefix_len| InterfaceAddress {
            if_index,
            address: text.parse().unwrap(),
            prefix_len,
        };
        let addresses = [
            address(1, "::1", 128),
            address(1, "127.0.0.1", 8),
            address(1, "10.0.0.1", 24),
            address(3, "192.0.2.1", 32),
            address(4, "192.0.2.2", 0),
        ];
        let links = [link(1, "lo"), link(2, "eth0"), link(3, "eth1"), link(4, "eth2")];
        let expected = [("lo", 0xff00_0000), ("eth1", u32::MAX), ("eth2", 0)];
        let expected = HashMap::from(expected.map(|(name, mask)| (name.to_owned(), mask)));
        assert_eq!(masks_of(&links, &addresses), expected);
        let has_ipv4 = |info: &InterfaceInfo| info.addresses.iter().any(|(address, _)| address.is_ipv4());
        let listed: HashSet<String> =
            list(None).unwrap().into_iter().filter(has_ipv4).map(|info| info.name).collect();
        assert_eq!(netmasks(None).unwrap().into_keys().collect::<HashSet<_>>(), listed);
    }

    #[test]
    fn sockets_on_all_interfaces_are_everywhere() {
        let socket =
            |if_index, inode| PacketSocketEntry { if_index, protocol: 3, is_running: true, uid: 7, inode };
        let sockets = [socket(0, 1), socket(2, 2), socket(3, 3)];
        let holder = SocketHolder { pid: 9, name: "dumpcap".into() };
        let holders = HashMap::from([(1, vec![holder.clone()])]);
        let found = capturers(2, &sockets, &holders);
        let everywhere = CapturingProcess { process: Some(holder), uid: 7, is_everywhere: true };
        let hidden = CapturingProcess { process: None, uid: 7, is_everywhere: false };
        assert_eq!(found, [everywhere, hidden]);
    }

    #[test]
    fn a_missing_namespace_lists_those_there_are() {
        let text = list(Some("no-such-namespace")).unwrap_err().to_string();
        assert!(text.starts_with("cannot open the network namespace \"no-such-namespace\""), "{text}");
    }
}
