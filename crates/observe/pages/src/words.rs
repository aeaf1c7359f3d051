//! Keys and states in the words of the pages.

use std::net::IpAddr;

use serde::Serialize;
use tapline_packet::numbers::ip_protocol;
use tapline_view::{Dimension, Key, KeyValue, Row, Segment};

/// A key by its parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum KeyWords {
    /// A host.
    Host {
        /// Address of the host.
        host: IpAddr,
    },
    /// Two hosts, the lower address first.
    Pair {
        /// The first.
        a: IpAddr,
        /// The other.
        b: IpAddr,
    },
    /// A protocol and the server's port.
    Service {
        /// The protocol's name.
        protocol: String,
        /// The port.
        port: u16,
        /// Whether the protocol has ports.
        has_port: bool,
    },
    /// A name, a VLAN or tunnel, an interface.
    Named {
        /// The text.
        key: String,
    },
    /// A flow, the side that began it first.
    Flow {
        /// The protocol's name.
        protocol: String,
        /// Whether the protocol has ports.
        has_port: bool,
        /// The side that began.
        a: IpAddr,
        /// Port of the first end.
        a_port: u16,
        /// The other side.
        b: IpAddr,
        /// Port of the second end.
        b_port: u16,
    },
}

impl KeyWords {
    /// The hosts of the key.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = IpAddr> {
        let hosts = match self {
            KeyWords::Host { host } => [Some(*host), None],
            KeyWords::Pair { a, b } | KeyWords::Flow { a, b, .. } => [Some(*a), Some(*b)],
            KeyWords::Service { .. } | KeyWords::Named { .. } => [None, None],
        };
        hosts.into_iter().flatten()
    }

    /// The words of a dimension's key.
    pub fn of(dimension: Dimension, key: &Key) -> KeyWords {
        let named = |key: String| KeyWords::Named { key };
        match key.value(dimension) {
            KeyValue::Host(host) => KeyWords::Host { host },
            KeyValue::Pair(a, b) => KeyWords::Pair { a, b },
            KeyValue::Service(protocol, port) => KeyWords::Service {
                protocol: protocol_name(protocol),
                port,
                has_port: ip_protocol::has_ports(protocol),
            },
            KeyValue::Name(name) => named(name),
            KeyValue::Segment(Segment::Untagged) => named("untagged".to_owned()),
            KeyValue::Segment(Segment::Vlan(id)) => named(format!("VLAN {id}")),
            KeyValue::Segment(Segment::Tunnel(id)) => named(format!("tunnel {id}")),
            KeyValue::Interface(number) => named(format!("interface {number}")),
            KeyValue::Flow(protocol, from, to) => KeyWords::Flow {
                protocol: protocol_name(protocol),
                has_port: ip_protocol::has_ports(protocol),
                a: from.0,
                a_port: from.1,
                b: to.0,
                b_port: to.1,
            },
        }
    }
}

fn protocol_name(number: u8) -> String {
    match number {
        ip_protocol::ICMP => "icmp".to_owned(),
        ip_protocol::TCP => "tcp".to_owned(),
        ip_protocol::UDP => "udp".to_owned(),
        ip_protocol::ICMPV6 => "icmp6".to_owned(),
        ip_protocol::SCTP => "sctp".to_owned(),
        number => format!("ip {number}"),
    }
}

/// The state of a flow, by TCP's flags, or by whether both sides sent packets.
pub(crate) fn state(row: &Row) -> &'static str {
    const FIN: u8 = 0x01;
    const SYN: u8 = 0x02;
    const RST: u8 = 0x04;
    let [there, back] = [row.state as u8, (row.state >> 8) as u8];
    let is_answered = row.amount.packets > row.first.packets;
    let KeyValue::Flow(protocol, ..) = row.key.value(Dimension::Flow) else { return "" };
    match protocol {
        ip_protocol::TCP if there & SYN != 0 && back & (SYN | RST) == RST => "refused",
        ip_protocol::TCP if (there | back) & RST != 0 => "reset",
        ip_protocol::TCP if there & back & FIN != 0 => "closed",
        ip_protocol::TCP if (there | back) & FIN != 0 => "closing",
        ip_protocol::TCP if there & SYN != 0 && back == 0 => "no answer",
        ip_protocol::TCP => "open",
        _ if is_answered => "answered",
        _ => "one way",
    }
}
