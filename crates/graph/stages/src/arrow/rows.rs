//! The values of the columns for one packet.

use std::fmt::Write as _;
use std::net::IpAddr;

use tapline_flow::export::community_id;
use tapline_packet::numbers::ip_protocol::{ICMP, ICMPV6, TCP};
use tapline_packet::{FiveTuple, Headers, Interface, Packet};

/// Identifiers of flows that are remembered: a power of two.
const FLOWS_KNOWN: usize = 4096;

/// A packet, and the fields of its headers. Of a packet in a tunnel it is the outer one.
pub(super) struct Row<'a> {
    pub(super) packet: Packet<'a>,
    pub(super) interface: &'a str,
    pub(super) vlan: Option<i32>,
    pub(super) addresses: Option<(IpAddr, IpAddr)>,
    pub(super) protocol: Option<i16>,
    pub(super) ports: Option<(u16, u16)>,
    pub(super) tcp_flags: Option<i16>,
    /// The tuple of the flow; ICMP has type and code in the destination's port.
    tuple: Option<FiveTuple>,
}

impl<'a> Row<'a> {
    pub(super) fn of(packet: Packet<'a>, interface: &'a Interface, needs_headers: bool) -> Row<'a> {
        let mut row = Row {
            packet,
            interface: interface.label(),
            vlan: None,
            addresses: None,
            protocol: None,
            ports: None,
            tcp_flags: None,
            tuple: None,
        };
        if needs_headers {
            let headers = Headers::parse(interface.link_type, packet);
            row.vlan = headers.vlans().first().map(|tag| tag.id().into());
            row.addresses = headers.addresses(packet.data);
            row.protocol = headers.protocol().filter(|_| row.addresses.is_some()).map(i16::from);
            row.ports = headers.ports(packet.data);
            row.tcp_flags = tcp_flags(&headers, packet.data);
            row.tuple = tuple(&headers, packet.data);
        }
        row
    }
}

/// The eight flags of TCP.
fn tcp_flags(headers: &Headers, data: &[u8]) -> Option<i16> {
    if headers.protocol() != Some(TCP) {
        return None;
    }
    data.get(headers.l4()? + 13).copied().map(i16::from)
}

/// The tuple of the flow.
fn tuple(headers: &Headers, data: &[u8]) -> Option<FiveTuple> {
    let tuple = headers.five_tuple(data)?;
    if !matches!(tuple.protocol, ICMP | ICMPV6) {
        return Some(tuple);
    }
    let at = headers.l4()?;
    let (kind, code) = (*data.get(at)?, *data.get(at + 1)?);
    Some(FiveTuple { dst_port: u16::from_be_bytes([kind, code]), ..tuple })
}

/// Texts of the packet at hand, in memory that is used again.
pub(super) struct Scratch {
    source: String,
    destination: String,
    has_addresses: bool,
    flow: Option<usize>,
    /// Flows by a hash of their tuple, each with its text; empty if it is not needed. A flow takes the place of
    /// another.
    flows: Vec<Option<(FiveTuple, String)>>,
}

impl Scratch {
    pub(super) fn new(has_flows: bool) -> Scratch {
        let flows = if has_flows { vec![None; FLOWS_KNOWN] } else { Vec::new() };
        Scratch { source: String::new(), destination: String::new(), has_addresses: false, flow: None, flows }
    }

    /// Makes the texts of a packet.
    pub(super) fn fill(&mut self, row: &Row<'_>) {
        self.has_addresses = row.addresses.is_some();
        if let Some((source, destination)) = row.addresses {
            write_address(&mut self.source, source);
            write_address(&mut self.destination, destination);
        }
        self.flow = None;
        if let (Some(tuple), false) = (row.tuple, self.flows.is_empty()) {
            let place = place(&tuple);
            if !matches!(&self.flows[place], Some((known, _)) if *known == tuple) {
                let ends = [(tuple.src, tuple.src_port), (tuple.dst, tuple.dst_port)];
                self.flows[place] = Some((tuple, community_id(tuple.protocol, ends)));
            }
            self.flow = Some(place);
        }
    }

    pub(super) fn source(&self) -> Option<&str> {
        self.has_addresses.then_some(&self.source)
    }

    pub(super) fn destination(&self) -> Option<&str> {
        self.has_addresses.then_some(&self.destination)
    }

    pub(super) fn flow(&self) -> Option<&str> {
        let known = self.flows.get(self.flow?)?;
        known.as_ref().map(|(_, text)| text.as_str())
    }
}

fn write_address(text: &mut String, address: IpAddr) {
    text.clear();
    // A text has room for everything.
    let _ = write!(text, "{address}");
}

/// The place of a flow. Chosen flows that share one cost a hash a packet, as many flows do.
fn place(tuple: &FiveTuple) -> usize {
    let octets = |address: IpAddr| match address {
        IpAddr::V4(address) => u64::from(u32::from(address)),
        IpAddr::V6(address) => (u128::from(address) >> 64) as u64 ^ u128::from(address) as u64,
    };
    let ports = u64::from(tuple.src_port) << 32 | u64::from(tuple.dst_port) << 8 | u64::from(tuple.protocol);
    let mixed = (octets(tuple.src).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ octets(tuple.dst))
        .wrapping_mul(0xff51_afd7_ed55_8ccd)
        ^ ports;
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize % FLOWS_KNOWN
}
