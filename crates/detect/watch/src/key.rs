//! Facts of packets and flows that rules count by, and keys made of them.
//!
//! ```text
//! Subject: addresses, ports, protocol, VLAN --by = ["src", "dport"]--> Key: their bytes, one behind the other
//! ```

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr};

use serde_json::{Map, Value};
use tapline_flow::{Flow, FlowContext};
use tapline_packet::Packet;
use tapline_packet::headers::{FiveTuple, Headers};
use tapline_packet::numbers::ip_protocol;

/// The most fields of a key.
pub(crate) const FIELDS_MAX: usize = 4;

/// The greatest length of a key in bytes: two addresses, two ports, protocol, VLAN.
const KEY_LEN: usize = 40;

tapline_packet::named_enum! {
    /// A field by which a rule counts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum KeyField {
        /// The source address.
        Src = "src",
        /// The destination address.
        Dst = "dst",
        /// The source port; 0 without ports.
        SrcPort = "sport",
        /// The destination port; 0 without ports.
        DstPort = "dport",
        /// The IP protocol number.
        Protocol = "proto",
        /// The outer VLAN's identifier; 0 without.
        Vlan = "vlan",
        /// The two addresses, the lower one first: the same for both directions.
        Pair = "pair",
    }
}

impl KeyField {
    fn len(self) -> usize {
        match self {
            KeyField::Src | KeyField::Dst => 16,
            KeyField::Pair => 32,
            KeyField::SrcPort | KeyField::DstPort | KeyField::Vlan => 2,
            KeyField::Protocol => 1,
        }
    }
}

/// Length of a key of these fields in bytes; `None` if they do not fit.
pub(crate) fn key_len(fields: &[KeyField]) -> Option<usize> {
    let len = fields.iter().map(|field| field.len()).sum();
    (fields.len() <= FIELDS_MAX && len <= KEY_LEN).then_some(len)
}

/// The fields' bytes, one behind the other; equal for equal fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    bytes: [u8; KEY_LEN],
    len: u8,
}

impl Default for Key {
    fn default() -> Key {
        Key { bytes: [0; KEY_LEN], len: 0 }
    }
}

impl Key {
    /// The key of a subject. Fields that do not fit are left out; [`key_len`] gives the length beforehand.
    pub(crate) fn of(subject: &Subject, fields: &[KeyField]) -> Key {
        let mut key = Key::default();
        for field in fields {
            match field {
                KeyField::Src => key.push(&mapped(subject.src)),
                KeyField::Dst => key.push(&mapped(subject.dst)),
                KeyField::SrcPort => key.push(&subject.src_port.to_be_bytes()),
                KeyField::DstPort => key.push(&subject.dst_port.to_be_bytes()),
                KeyField::Protocol => key.push(&[subject.protocol]),
                KeyField::Vlan => key.push(&subject.vlan.to_be_bytes()),
                KeyField::Pair => {
                    let (one, other) = (mapped(subject.src), mapped(subject.dst));
                    key.push(&one.min(other));
                    key.push(&one.max(other));
                }
            }
        }
        key
    }

    /// A number as a key, such as that of an interface.
    pub(crate) fn of_number(number: u64) -> Key {
        let mut key = Key::default();
        key.push(&number.to_be_bytes());
        key
    }

    fn push(&mut self, bytes: &[u8]) {
        let start = usize::from(self.len);
        if let Some(place) = self.bytes.get_mut(start..start + bytes.len()) {
            place.copy_from_slice(bytes);
            self.len += bytes.len() as u8;
        }
    }

    /// The fields with their values, for people and machines.
    pub(crate) fn values(&self, fields: &[KeyField]) -> Vec<(&'static str, Value)> {
        let mut rest = &self.bytes[..usize::from(self.len)];
        let mut values = Vec::new();
        for field in fields {
            let Some((bytes, behind)) = rest.split_at_checked(field.len()) else { break };
            rest = behind;
            let value = match field {
                KeyField::Src | KeyField::Dst => address(bytes).to_string().into(),
                KeyField::Pair => format!("{} {}", address(&bytes[..16]), address(&bytes[16..])).into(),
                KeyField::SrcPort | KeyField::DstPort | KeyField::Vlan => {
                    u16::from_be_bytes([bytes[0], bytes[1]]).into()
                }
                KeyField::Protocol => bytes[0].into(),
            };
            values.push((field.name(), value));
        }
        values
    }
}

/// An address of either version as one of IPv6; none is `::`.
fn mapped(address: Option<IpAddr>) -> [u8; 16] {
    match address {
        None => [0; 16],
        Some(IpAddr::V4(address)) => address.to_ipv6_mapped().octets(),
        Some(IpAddr::V6(address)) => address.octets(),
    }
}

fn address(bytes: &[u8]) -> IpAddr {
    let bytes: [u8; 16] = bytes.try_into().unwrap_or_default();
    Ipv6Addr::from(bytes).to_canonical()
}

/// The packet or flow that an event is about.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Subject {
    /// The source address; of a flow, that of its first packet. `None` without IP.
    pub src: Option<IpAddr>,
    /// The destination address.
    pub dst: Option<IpAddr>,
    /// The source port; 0 without ports.
    pub src_port: u16,
    /// The destination port; 0 without ports.
    pub dst_port: u16,
    /// The IP protocol number; 0 without IP.
    pub protocol: u8,
    /// The outer VLAN's identifier; 0 without.
    pub vlan: u16,
    /// Packets: 1, or those of the flow.
    pub packets: u64,
    /// Bytes on the wire, or those that the flow counted.
    pub bytes: u64,
    /// Nanoseconds between the first and the last packet.
    pub duration_ns: u64,
}

impl Subject {
    /// The subject of a packet.
    pub fn of_packet(headers: &Headers, packet: Packet<'_>) -> Subject {
        let tag = packet.meta.vlan.or_else(|| headers.vlans().first().copied());
        let mut subject = Subject {
            vlan: tag.map_or(0, |tag| tag.id()),
            packets: 1,
            bytes: u64::from(packet.meta.wire_len),
            ..Subject::default()
        };
        match headers.five_tuple(packet.data) {
            Some(FiveTuple { src, dst, protocol, src_port, dst_port }) => {
                (subject.src, subject.dst, subject.protocol) = (Some(src), Some(dst), protocol);
                (subject.src_port, subject.dst_port) = (src_port, dst_port);
            }
            None => {
                if let Some((src, dst)) = headers.addresses(packet.data) {
                    (subject.src, subject.dst) = (Some(src), Some(dst));
                }
                subject.protocol = headers.protocol().unwrap_or(0);
            }
        }
        subject
    }

    /// The subject of a flow that has ended.
    pub fn of_flow(flow: &Flow) -> Subject {
        let [client, server] = &flow.endpoints;
        let vlan = flow.context.vlan;
        Subject {
            src: Some(client.address),
            dst: Some(server.address),
            src_port: client.port,
            dst_port: server.port,
            protocol: flow.protocol,
            vlan: if vlan == FlowContext::NO_VLAN { 0 } else { vlan },
            packets: flow.packets(),
            bytes: flow.bytes(),
            duration_ns: (flow.last().as_nanos() - flow.first().as_nanos()).max(0).unsigned_abs(),
        }
    }

    /// The fields as members of an event.
    pub fn to_json(&self) -> Map<String, Value> {
        let mut members = Map::new();
        let mut add = |name: &str, value: Value| {
            members.insert(name.to_owned(), value);
        };
        if let (Some(src), Some(dst)) = (self.src, self.dst) {
            add("src", src.to_string().into());
            add("dst", dst.to_string().into());
            add("proto", self.protocol.into());
        }
        if ip_protocol::has_ports(self.protocol) {
            add("sport", self.src_port.into());
            add("dport", self.dst_port.into());
        }
        if self.vlan != 0 {
            add("vlan", self.vlan.into());
        }
        add("packets", self.packets.into());
        add("bytes", self.bytes.into());
        if self.packets > 1 {
            add("duration_ns", self.duration_ns.into());
        }
        members
    }

    /// A field as text, for messages.
    pub(crate) fn write(&self, field: &str, text: &mut String) {
        let address = |address: Option<IpAddr>| address.map_or("-".to_owned(), |address| address.to_string());
        let _ = match field {
            "src" => write!(text, "{}", address(self.src)),
            "dst" => write!(text, "{}", address(self.dst)),
            "sport" => write!(text, "{}", self.src_port),
            "dport" => write!(text, "{}", self.dst_port),
            "proto" => write!(text, "{}", self.protocol),
            "vlan" => write!(text, "{}", self.vlan),
            "packets" => write!(text, "{}", self.packets),
            "bytes" => write!(text, "{}", self.bytes),
            _ => Ok(()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> Subject {
        Subject {
            src: "10.0.0.9".parse().ok(),
            dst: "10.0.0.1".parse().ok(),
            src_port: 4000,
            dst_port: 22,
            protocol: 6,
            ..Subject::default()
        }
    }

    #[test]
    fn a_key_gives_back_its_fields() {
        let fields = [KeyField::Src, KeyField::DstPort, KeyField::Protocol];
        let values = Key::of(&subject(), &fields).values(&fields);
        assert_eq!(values, [("src", "10.0.0.9".into()), ("dport", 22.into()), ("proto", 6.into())]);
        let pair = [KeyField::Pair];
        assert_eq!(Key::of(&subject(), &pair).values(&pair), [("pair", "10.0.0.1 10.0.0.9".into())]);
    }

    #[test]
    fn both_directions_are_one_pair() {
        let Subject { src, dst, .. } = subject();
        let back = Subject { src: dst, dst: src, ..subject() };
        assert_eq!(Key::of(&subject(), &[KeyField::Pair]), Key::of(&back, &[KeyField::Pair]));
        assert_ne!(Key::of(&subject(), &[KeyField::Src]), Key::of(&back, &[KeyField::Src]));
    }

    #[test]
    fn fields_that_do_not_fit_are_known_before() {
        assert_eq!(key_len(&[KeyField::Src, KeyField::Dst, KeyField::SrcPort, KeyField::DstPort]), Some(36));
        assert_eq!(key_len(&[KeyField::Pair, KeyField::Src]), None);
    }
}
