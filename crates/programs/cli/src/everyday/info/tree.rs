//! The protocols of packets as a tree, each below the one that carries it.
//!
//! ```text
//! headers --LayerKey--> link, tags, network, transport    one step a packet: (node, key) --> node
//!         --service---> application                       one more
//!         --inner-----> the same again for the packet inside a tunnel
//! ```

use std::cmp::Reverse;
use std::collections::HashMap;

use tapline_dissect::{http, tls};
use tapline_packet::LinkType;
use tapline_packet::headers::{Headers, IpVersion, Tunnel};
use tapline_packet::numbers::{ethertype, ip_protocol};
use tapline_print::service_name;

use super::ranking::Amount;

/// The most nodes, and the most steps between them. Packets of further protocols are counted at the last node that is
/// known.
const NODES_MAX: usize = 4096;
/// The most tunnels inside each other that are followed.
const DEPTH_MAX: usize = 8;
/// Steps that are found without the hash table.
const RECENT: usize = 256;

/// A protocol below another one.
pub(super) struct Node {
    name: String,
    parent: u32,
    /// Packets that end here. [`Tree::rows`] adds those of the protocols below.
    amount: Amount,
}

/// All properties that distinguish the headers of one layer, in bits.
type LayerKey = u64;
type Step = (u32, LayerKey);

/// The tree, whose node 0 is every packet.
pub(super) struct Tree {
    nodes: Vec<Node>,
    steps: HashMap<Step, u32>,
    recent: Vec<Option<(Step, u32)>>,
    /// Packets whose protocols found the tree full.
    pub(super) cut: u64,
}

/// A line of the tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// Names from the link on, with colons between.
    pub(super) path: String,
    pub(super) amount: Amount,
}

impl Tree {
    pub(super) fn new() -> Tree {
        let root = Node { name: String::new(), parent: 0, amount: Amount::default() };
        Tree { nodes: vec![root], steps: HashMap::new(), recent: vec![None; RECENT], cut: 0 }
    }

    /// Counts a packet at its innermost protocol.
    pub(super) fn add(&mut self, headers: &Headers, data: &[u8], wire_len: u32) {
        let mut node = 0;
        let mut is_whole = true;
        let (mut headers, mut data) = (*headers, data);
        for _ in 0..DEPTH_MAX {
            let key = layer_key(&headers);
            is_whole &= self.step(&mut node, key, |names| layer_names(&headers, names));
            let Some(inner) = headers.inner(data) else { break };
            if let Some(name) = tunnel_name(inner.tunnel) {
                is_whole &= self.step(&mut node, name_key(name), |names| names.push(name.to_owned()));
            }
            (headers, data) = (inner.headers(data), inner.data(data));
        }
        if let Some(name) = application(&headers, data) {
            is_whole &= self.step(&mut node, name_key(name), |names| names.push(name.to_owned()));
        }
        self.cut += u64::from(!is_whole);
        self.nodes[node as usize].amount.add(wire_len);
    }

    /// Goes to the node that a key leads to; `false` if there is none, and no room for it.
    fn step(&mut self, node: &mut u32, key: LayerKey, names: impl FnOnce(&mut Vec<String>)) -> bool {
        let step = (*node, key);
        let slot =
            ((key ^ u64::from(*node) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % RECENT;
        if let Some((recent, to)) = self.recent[slot]
            && recent == step
        {
            *node = to;
            return true;
        }
        let to = match self.steps.get(&step) {
            Some(to) => *to,
            None => {
                let mut below = Vec::new();
                names(&mut below);
                if self.steps.len() + below.len() >= NODES_MAX || self.nodes.len() + below.len() > NODES_MAX {
                    return false;
                }
                let to = below.into_iter().fold(*node, |parent, name| self.child(parent, name));
                self.steps.insert(step, to);
                to
            }
        };
        self.recent[slot] = Some((step, to));
        *node = to;
        true
    }

    fn child(&mut self, parent: u32, name: String) -> u32 {
        let found =
            (1..self.nodes.len()).find(|at| self.nodes[*at].parent == parent && self.nodes[*at].name == name);
        found.unwrap_or_else(|| {
            self.nodes.push(Node { name, parent, amount: Amount::default() });
            self.nodes.len() - 1
        }) as u32
    }

    /// All protocols, those below a protocol behind it, those with the most bytes first.
    pub(super) fn rows(&self) -> Vec<Row> {
        let mut sums: Vec<Amount> = self.nodes.iter().map(|node| node.amount).collect();
        // A node is behind its parent.
        for at in (1..self.nodes.len()).rev() {
            let (sum, parent) = (sums[at], self.nodes[at].parent as usize);
            sums[parent].packets += sum.packets;
            sums[parent].bytes += sum.bytes;
        }
        let mut rows = Vec::new();
        let mut open: Vec<(u32, String)> = vec![(0, String::new())];
        while let Some((node, path)) = open.pop() {
            if node > 0 {
                rows.push(Row { path: path.clone(), amount: sums[node as usize] });
            }
            let mut below: Vec<u32> =
                (1..self.nodes.len() as u32).filter(|at| self.nodes[*at as usize].parent == node).collect();
            below.sort_by_key(|at| (sums[*at as usize].bytes, Reverse(*at)));
            let gap = if path.is_empty() { "" } else { ":" };
            open.extend(
                below.into_iter().map(|at| (at, format!("{path}{gap}{}", self.nodes[at as usize].name))),
            );
        }
        rows
    }
}

fn layer_key(headers: &Headers) -> LayerKey {
    let version = headers.ip().map_or(0, |ip| if ip == IpVersion::V4 { 1 } else { 2 });
    let is_later = headers.fragment().is_some_and(|fragment| fragment.is_later());
    u64::from(headers.link_type().0)
        | u64::from(headers.ether_type().unwrap_or(0)) << 16
        | u64::from(headers.protocol().unwrap_or(0)) << 32
        | (headers.vlan_count() as u64 & 31) << 40
        | version << 45
        | u64::from(is_later) << 47
        | u64::from(headers.mpls().is_some()) << 48
        | u64::from(headers.protocol().is_some()) << 49
        | u64::from(headers.ether_type().is_some()) << 50
        | u64::from(headers.l3().is_some()) << 51
}

/// The key of a name in place of a layer.
fn name_key(name: &str) -> LayerKey {
    name.as_bytes().iter().fold(0, |key: u64, byte| key.rotate_left(8) ^ u64::from(*byte)) | 1 << 63
}

/// Names of link, tags, network and transport, as Wireshark's where it has them.
fn layer_names(headers: &Headers, names: &mut Vec<String>) {
    if headers.link_type() != LinkType::RAW || headers.ip().is_none() {
        names.push(link_name(headers.link_type()));
    }
    names.extend((0..headers.vlan_count()).map(|_| "vlan".to_owned()));
    if headers.mpls().is_some() {
        // What the labels carry follows, as the packet inside.
        names.push("mpls".to_owned());
        return;
    }
    match (headers.ip(), headers.ether_type()) {
        (Some(IpVersion::V4), _) => names.push("ip".to_owned()),
        (Some(_), _) => names.push("ipv6".to_owned()),
        (None, Some(number)) => names.push(ether_type_name(number)),
        (None, None) if headers.link_type() == LinkType::ETHERNET && headers.l3().is_some() => {
            names.push("llc".to_owned());
        }
        (None, None) => {}
    }
    if let (Some(_), Some(protocol)) = (headers.ip(), headers.protocol()) {
        let is_later = headers.fragment().is_some_and(|fragment| fragment.is_later());
        match (is_later, protocol) {
            (true, _) => names.push("fragment".to_owned()),
            // The packet inside follows.
            (_, ip_protocol::IPV4 | ip_protocol::IPV6) => {}
            _ => names.push(protocol_name(protocol)),
        }
    }
}

fn link_name(link_type: LinkType) -> String {
    match link_type {
        LinkType::ETHERNET => "eth".to_owned(),
        LinkType::LINUX_SLL | LinkType::LINUX_SLL2 => "sll".to_owned(),
        _ => link_type.name().map_or_else(|| format!("link {}", link_type.0), str::to_ascii_lowercase),
    }
}

fn ether_type_name(number: u16) -> String {
    let name = match number {
        ethertype::IPV4 => "ip",
        ethertype::IPV6 => "ipv6",
        ethertype::ARP => "arp",
        ethertype::REVERSE_ARP => "rarp",
        ethertype::LLDP => "lldp",
        ethertype::EAPOL => "eapol",
        ethertype::SLOW => "slow",
        ethertype::PPPOE_DISCOVERY => "pppoed",
        ethertype::PPPOE_SESSION => "pppoes",
        ethertype::IPX => "ipx",
        ethertype::PTP => "ptp",
        _ => return format!("0x{number:04x}"),
    };
    name.to_owned()
}

fn protocol_name(protocol: u8) -> String {
    let name = match protocol {
        ip_protocol::ICMP => "icmp",
        ip_protocol::IGMP => "igmp",
        ip_protocol::TCP => "tcp",
        ip_protocol::UDP => "udp",
        ip_protocol::DCCP => "dccp",
        ip_protocol::GRE => "gre",
        ip_protocol::ESP => "esp",
        ip_protocol::AH => "ah",
        ip_protocol::ICMPV6 => "icmpv6",
        ip_protocol::EIGRP => "eigrp",
        ip_protocol::OSPF => "ospf",
        ip_protocol::PIM => "pim",
        ip_protocol::VRRP => "vrrp",
        ip_protocol::L2TP => "l2tp",
        ip_protocol::SCTP => "sctp",
        ip_protocol::UDP_LITE => "udplite",
        _ => return format!("protocol {protocol}"),
    };
    name.to_owned()
}

/// The header between IP or UDP and the packet inside; that of GRE and of labels has its name already.
fn tunnel_name(tunnel: Tunnel) -> Option<&'static str> {
    (!matches!(tunnel, Tunnel::Mpls | Tunnel::Gre | Tunnel::IpInIp)).then(|| tunnel.name())
}

/// The application of a packet with payload: TLS and HTTP by their first bytes, others by their ports.
fn application(headers: &Headers, data: &[u8]) -> Option<&'static str> {
    let payload = data.get(headers.payload()?..headers.ip_end())?;
    let first = payload.first()?;
    let (source, destination) = headers.ports(data)?;
    let protocol = headers.protocol()?;
    if protocol == ip_protocol::TCP {
        if matches!(first, 20..=24) && tls::Record::parse(payload).is_some() {
            return Some("tls");
        }
        if is_http(payload) {
            return Some("http");
        }
    }
    service_name(protocol, source, destination)
}

fn is_http(payload: &[u8]) -> bool {
    if !http::may_begin(payload) {
        return false;
    }
    let line = &payload[..payload.iter().take(2048).position(|byte| *byte == b'\n').unwrap_or(0)];
    line.windows(7).any(|bytes| bytes == b"HTTP/1.")
}
