//! A source whose packets all get one link type: Linux cooked, in which interfaces of any kind fit into one pcap file.
//!
//! ```text
//! LINUX_SLL2   protocol:be16 0:2 interface:be32 hardware:be16 packet type:u8 address length:u8 address:8   payload
//! LINUX_SLL    0:1 packet type:u8 hardware:be16 address length:be16 address:8 protocol:be16                 payload
//! ```
//!
//! The header replaces the packet's link header; a VLAN tag that the adapter took out is in the bytes again, as
//! protocol and first bytes of the payload. Layouts: <https://www.tcpdump.org/linktypes.html>. Packets are copied;
//! interfaces whose link header is unknown here keep it, and an event says so.

use std::time::Duration;

use tapline_packet::numbers::ethertype;
use tapline_packet::{BATCH_MAX, Batch, Interface, LinkType, Packet, PacketType, Record};
use tapline_source::{Advance, Error, Event, InterfaceAccount, Source};

use crate::delegate::delegate_source;

/// Length of the longer header.
const HEADER_LEN_MAX: usize = 20;
/// Bytes of the address field.
const ADDRESS_LEN: usize = 8;
/// `ARPHRD_ETHER`, and `ARPHRD_NONE` for packets without a link header.
const HARDWARE_ETHERNET: u16 = 1;
const HARDWARE_NONE: u16 = 0xfffe;
/// `LINUX_SLL_P_802_3` and `LINUX_SLL_P_802_2`: frames with a length in place of a type.
const NOVELL_802_3: u16 = 1;
const LLC_802_2: u16 = 4;
/// The greatest length of an 802.3 frame; greater values are types.
const LENGTH_MAX: u16 = 1500;

/// A source of packets of one link type.
pub struct CookedSource {
    source: Box<dyn Source>,
    link_type: LinkType,
    /// The interfaces, of the new link type where they can be.
    interfaces: Vec<Interface>,
    events: Vec<Event>,
    bytes: Vec<u8>,
    records: Vec<Record>,
}

/// A packet without its link header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Network<'a> {
    protocol: u16,
    hardware: u16,
    packet_type: u8,
    address: &'a [u8],
    /// Bytes of the link header.
    header_len: usize,
}

impl CookedSource {
    /// Whether packets can be given this link type.
    pub fn makes(link_type: LinkType) -> bool {
        matches!(link_type, LinkType::LINUX_SLL | LinkType::LINUX_SLL2)
    }

    /// Converts packets of `source` to the link type `LINUX_SLL2`, or `LINUX_SLL`.
    pub fn wrap(source: Box<dyn Source>, link_type: LinkType) -> Box<dyn Source> {
        let mut cooked = CookedSource {
            source,
            link_type,
            interfaces: Vec::new(),
            events: Vec::new(),
            bytes: Vec::new(),
            records: Vec::with_capacity(BATCH_MAX),
        };
        cooked.learn_interfaces();
        Box::new(cooked)
    }

    fn learn_interfaces(&mut self) {
        for interface in &self.source.interfaces()[self.interfaces.len()..] {
            let mut cooked = interface.clone();
            if is_known(interface.link_type) {
                cooked.link_type = self.link_type;
                cooked.fcs_len = None;
            } else if interface.link_type != self.link_type {
                let (own, wanted) = (interface.link_type, self.link_type);
                let text = format!("its packets cannot be given link type {wanted} and keep theirs, {own}");
                self.events.push(Event { interface: interface.name.clone(), text, is_warning: true });
            }
            self.interfaces.push(cooked);
        }
    }

    /// Copies the packets of the batch that is lent.
    fn cook(&mut self) {
        let CookedSource { source, link_type, interfaces, bytes, records, .. } = self;
        bytes.clear();
        records.clear();
        let batch = source.batch();
        for (index, record) in batch.records().iter().enumerate() {
            let packet = batch.packet(index);
            let (mut meta, offset) = (record.meta, bytes.len());
            let id = meta.interface.0 as usize;
            let own = source.interfaces().get(id);
            let is_cooked = own.zip(interfaces.get(id)).filter(|(own, new)| own.link_type != new.link_type);
            if let Some((own, _)) = is_cooked {
                let network = network(own, packet);
                let inserted = header(bytes, *link_type, own, packet, &network);
                bytes.extend_from_slice(packet.data.get(network.header_len..).unwrap_or_default());
                meta.vlan = None;
                let rest = meta.wire_len.saturating_sub(network.header_len as u32);
                meta.wire_len = rest.saturating_add(inserted as u32);
            } else {
                bytes.extend_from_slice(packet.data);
            }
            let cap_len = (bytes.len() - offset) as u32;
            let options = batch.options(index);
            if !options.is_empty() {
                bytes.resize(offset + (cap_len as usize).next_multiple_of(4), 0);
                bytes.extend_from_slice(options);
            }
            records.push(Record { offset, cap_len, options_len: options.len() as u32, meta });
        }
    }
}

impl Source for CookedSource {
    delegate_source!(stop uncaptured preferred_wait wakeup wait_on waited_ticks progress);

    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn advance(&mut self, wait: Duration) -> Result<Advance, Error> {
        let advance = self.source.advance(wait)?;
        self.learn_interfaces();
        self.records.clear();
        if advance == Advance::Batch {
            self.cook();
        }
        Ok(advance)
    }

    fn batch(&self) -> Batch<'_> {
        Batch::new(&self.bytes, &self.records).cut(self.source.batch().snap_len())
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        let account = self.source.account();
        self.learn_interfaces();
        account
    }

    fn events(&mut self) -> Vec<Event> {
        let mut events = self.source.events();
        self.learn_interfaces();
        events.append(&mut self.events);
        events
    }
}

/// Whether the link header of this type can be taken off.
fn is_known(link_type: LinkType) -> bool {
    matches!(
        link_type,
        LinkType::ETHERNET
            | LinkType::RAW
            | LinkType::IPV4
            | LinkType::IPV6
            | LinkType::LINUX_SLL
            | LinkType::LINUX_SLL2
    )
}

/// The facts in the link header. One that is cut short has none, and its bytes are dropped.
fn network<'a>(interface: &Interface, packet: Packet<'a>) -> Network<'a> {
    let data = packet.data;
    let hardware = |default| interface.hardware_type.unwrap_or(default);
    let packet_type = kernel_number(packet.meta.packet_type);
    match interface.link_type {
        LinkType::ETHERNET => Network {
            protocol: ethernet_protocol(data),
            hardware: hardware(HARDWARE_ETHERNET),
            packet_type,
            address: data.get(6..12).unwrap_or_default(),
            header_len: 14,
        },
        LinkType::LINUX_SLL => Network {
            protocol: u16_at(data, 14),
            hardware: u16_at(data, 2),
            packet_type: data.get(1).copied().unwrap_or_default(),
            address: address(data, 6, u16_at(data, 4).into()),
            header_len: 16,
        },
        LinkType::LINUX_SLL2 => Network {
            protocol: u16_at(data, 0),
            hardware: u16_at(data, 8),
            packet_type: data.get(10).copied().unwrap_or_default(),
            address: address(data, 12, data.get(11).copied().unwrap_or_default().into()),
            header_len: 20,
        },
        _ => Network {
            protocol: match data.first().map(|first| first >> 4) {
                Some(4) => ethertype::IPV4,
                Some(6) => ethertype::IPV6,
                _ => 0,
            },
            hardware: hardware(HARDWARE_NONE),
            packet_type,
            ..Network::default()
        },
    }
}

fn address(data: &[u8], at: usize, len: usize) -> &[u8] {
    data.get(at..at + len.min(ADDRESS_LEN)).unwrap_or_default()
}

fn ethernet_protocol(data: &[u8]) -> u16 {
    match u16_at(data, 12) {
        length if length > LENGTH_MAX => length,
        _ if data.len() < 14 => 0,
        _ if u16_at(data, 14) == 0xffff => NOVELL_802_3,
        _ => LLC_802_2,
    }
}

/// A number of the packet in network order; 0 behind its end.
fn u16_at(data: &[u8], at: usize) -> u16 {
    data.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u16::from_be_bytes(*bytes))
}

/// `PACKET_*` of linux/if_packet.h.
fn kernel_number(packet_type: PacketType) -> u8 {
    match packet_type {
        PacketType::Host => 0,
        PacketType::Broadcast => 1,
        PacketType::Multicast => 2,
        PacketType::OtherHost => 3,
        PacketType::Outgoing => 4,
    }
}

/// Appends the header of a packet, and the rest of a VLAN tag. Returns their length.
fn header(
    bytes: &mut Vec<u8>,
    link_type: LinkType,
    interface: &Interface,
    packet: Packet<'_>,
    network: &Network<'_>,
) -> usize {
    let tag = packet.meta.vlan;
    let protocol = tag.map_or(network.protocol, |tag| tag.tpid).to_be_bytes();
    let mut address = [0; ADDRESS_LEN];
    address[..network.address.len()].copy_from_slice(network.address);
    let (hardware, address_len) = (network.hardware.to_be_bytes(), network.address.len() as u8);
    let mut header = [0; HEADER_LEN_MAX];
    let len = if link_type == LinkType::LINUX_SLL {
        header[1] = network.packet_type;
        header[2..4].copy_from_slice(&hardware);
        header[5] = address_len;
        header[6..14].copy_from_slice(&address);
        header[14..16].copy_from_slice(&protocol);
        16
    } else {
        let if_index = if packet.meta.if_index == 0 { interface.if_index } else { packet.meta.if_index };
        header[..2].copy_from_slice(&protocol);
        header[4..8].copy_from_slice(&if_index.to_be_bytes());
        header[8..10].copy_from_slice(&hardware);
        (header[10], header[11]) = (network.packet_type, address_len);
        header[12..].copy_from_slice(&address);
        20
    };
    bytes.extend_from_slice(&header[..len]);
    let Some(tag) = tag else { return len };
    bytes.extend_from_slice(&tag.tci.to_be_bytes());
    bytes.extend_from_slice(&network.protocol.to_be_bytes());
    len + 4
}

#[cfg(test)]
mod tests {
    use tapline_packet::{Meta, VlanTag};

    use super::*;

    fn cooked(link_type: LinkType, own: LinkType, data: &[u8], meta: &Meta) -> Vec<u8> {
        let mut interface = Interface::new("eth0", own);
        interface.if_index = 7;
        let packet = Packet { data, meta };
        let network = network(&interface, packet);
        let mut bytes = Vec::new();
        let len = header(&mut bytes, link_type, &interface, packet, &network);
        assert_eq!(len, bytes.len());
        bytes.extend_from_slice(data.get(network.header_len..).unwrap_or_default());
        bytes
    }

    const FRAME: [u8; 16] = [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 8, 6, 0xaa, 0xbb];

    #[test]
    fn headers_are_those_of_the_registry() {
        let meta = Meta { packet_type: PacketType::Outgoing, ..Meta::default() };
        let v2 = [8, 6, 0, 0, 0, 0, 0, 7, 0, 1, 4, 6, 2, 2, 2, 2, 2, 2, 0, 0, 0xaa, 0xbb];
        assert_eq!(cooked(LinkType::LINUX_SLL2, LinkType::ETHERNET, &FRAME, &meta), v2);
        let v1 = [0, 4, 0, 1, 0, 6, 2, 2, 2, 2, 2, 2, 0, 0, 8, 6, 0xaa, 0xbb];
        assert_eq!(cooked(LinkType::LINUX_SLL, LinkType::ETHERNET, &FRAME, &meta), v1);
        // From one version to the other: the index of the interface is the source's.
        assert_eq!(cooked(LinkType::LINUX_SLL2, LinkType::LINUX_SLL, &v1, &Meta::default()), v2);
        assert_eq!(cooked(LinkType::LINUX_SLL, LinkType::LINUX_SLL2, &v2, &Meta::default()), v1);
    }

    #[test]
    fn a_packet_without_link_header_has_no_address() {
        let raw = cooked(LinkType::LINUX_SLL2, LinkType::RAW, &[0x60, 1], &Meta::default());
        assert_eq!(raw[..2], [0x86, 0xdd]);
        assert_eq!((&raw[8..12], &raw[20..]), (&[0xff, 0xfe, 0, 0][..], &[0x60, 1][..]));
    }

    #[test]
    fn a_tag_is_in_the_bytes_again() {
        let meta = Meta { vlan: Some(VlanTag { tpid: 0x8100, tci: 5 }), ..Meta::default() };
        let tagged = cooked(LinkType::LINUX_SLL2, LinkType::ETHERNET, &FRAME, &meta);
        assert_eq!((&tagged[..2], &tagged[20..]), (&[0x81, 0][..], &[0, 5, 8, 6, 0xaa, 0xbb][..]));
    }

    #[test]
    fn lengths_are_not_types_in_cooked_headers() {
        let mut frame = FRAME;
        (frame[12], frame[13]) = (0, 2);
        assert_eq!(ethernet_protocol(&frame), LLC_802_2);
        (frame[14], frame[15]) = (0xff, 0xff);
        assert_eq!(ethernet_protocol(&frame), NOVELL_802_3);
        for own in [LinkType::ETHERNET, LinkType::RAW, LinkType::LINUX_SLL, LinkType::LINUX_SLL2] {
            for len in 0..14 {
                let cooked = cooked(LinkType::LINUX_SLL2, own, &FRAME[..len], &Meta::default());
                assert!(cooked.len() >= 20, "{own} {len}");
            }
        }
    }
}
