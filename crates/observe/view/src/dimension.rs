//! Dimensions: by which field of a flow packets are added up.

use std::net::{IpAddr, Ipv6Addr};

use tapline_meters::{text_of, words_of};

/// Words of a key in the file.
pub(crate) const KEY_WORDS: usize = 8;

tapline_packet::named_enum! {
    /// A field of flows by which packets are added up.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(usize)]
    pub enum Dimension {
        /// Hosts by received traffic.
        HostIn = "host_in",
        /// Hosts by sent traffic.
        HostOut = "host_out",
        /// Two hosts, both directions.
        Pair = "pair",
        /// The protocol and the server's port.
        Service = "service",
        /// The name that a client asked for, else the application, if the meter collects them.
        Name = "name",
        /// The VLAN, or the tunnel.
        Segment = "segment",
        /// The interface.
        Interface = "interface",
        /// The flow itself.
        Flow = "flow",
    }
}

/// A key in the form of the file; the meaning of its words depends on the dimension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub [u64; KEY_WORDS]);

/// A key by its meaning.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyValue {
    /// A host.
    Host(IpAddr),
    /// Two hosts, the lower address first.
    Pair(IpAddr, IpAddr),
    /// IP protocol number and port of the server.
    Service(u8, u16),
    /// A name; empty for flows without one.
    Name(String),
    /// A VLAN, a tunnel, or neither.
    Segment(Segment),
    /// The number of an interface.
    Interface(u32),
    /// Protocol, and address and port of the side that began and of the other.
    Flow(u8, (IpAddr, u16), (IpAddr, u16)),
}

/// A part of a network, by the tag or tunnel of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Segment {
    /// Neither a tag nor a tunnel.
    Untagged,
    /// The identifier of the outer VLAN.
    Vlan(u16),
    /// The identifier of a tunnel that the meter took off.
    Tunnel(u32),
}

impl Key {
    /// The words of a key that begins with these.
    pub(crate) fn of_words(words: &[u64]) -> Key {
        let mut key = [0; KEY_WORDS];
        key[..words.len()].copy_from_slice(words);
        Key(key)
    }

    /// A host's.
    pub fn host(address: IpAddr) -> Key {
        Key::of_words(&halves(address))
    }

    /// The key of two hosts, in any order.
    pub fn pair(one: IpAddr, other: IpAddr) -> Key {
        let (low, high) = if bits(one) <= bits(other) { (one, other) } else { (other, one) };
        let ([a, b], [c, d]) = (halves(low), halves(high));
        Key::of_words(&[a, b, c, d])
    }

    /// A name's, cut to 64 bytes.
    pub fn name(name: &str) -> Key {
        Key(words_of(name))
    }

    /// A service's.
    pub fn service(protocol: u8, port: u16) -> Key {
        Key::of_words(&[Key::service_word(protocol, port)])
    }

    pub(crate) fn service_word(protocol: u8, port: u16) -> u64 {
        u64::from(protocol) << 16 | u64::from(port)
    }

    /// The meaning of the key of a dimension.
    pub fn value(&self, dimension: Dimension) -> KeyValue {
        let words = &self.0;
        let host = |at: usize| address([words[at], words[at + 1]]);
        match dimension {
            Dimension::HostIn | Dimension::HostOut => KeyValue::Host(host(0)),
            Dimension::Pair => KeyValue::Pair(host(0), host(2)),
            Dimension::Service => KeyValue::Service((words[0] >> 16) as u8, words[0] as u16),
            Dimension::Name => KeyValue::Name(text_of(*words)),
            Dimension::Segment => KeyValue::Segment(match words[0] >> 32 {
                1 => Segment::Vlan(words[0] as u16),
                2 => Segment::Tunnel(words[0] as u32),
                _ => Segment::Untagged,
            }),
            Dimension::Interface => KeyValue::Interface(words[0] as u32),
            Dimension::Flow => {
                let (protocol, ports) = ((words[4] >> 32) as u8, [(words[4] >> 16) as u16, words[4] as u16]);
                KeyValue::Flow(protocol, (host(0), ports[0]), (host(2), ports[1]))
            }
        }
    }
}

/// Halves of an address so that they compare as addresses do.
pub(crate) fn order(halves: [u64; 2]) -> [u64; 2] {
    halves.map(|half| u64::from_be_bytes(half.to_ne_bytes()))
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The words of an address: its bytes in their order, an address of IPv4 mapped into IPv6.
pub(crate) fn halves(address: IpAddr) -> [u64; 2] {
    let octets = bits(address).to_be_bytes();
    let half = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| octets[at + byte]));
    [half(0), half(8)]
}

pub(crate) fn address([high, low]: [u64; 2]) -> IpAddr {
    let mut octets = [0; 16];
    octets[..8].copy_from_slice(&high.to_ne_bytes());
    octets[8..].copy_from_slice(&low.to_ne_bytes());
    Ipv6Addr::from(octets).to_canonical()
}
