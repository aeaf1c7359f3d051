//! Keys: the fields that distinguish flows.
//!
//! ```text
//! narrow   IPv4, five-tuple only:   address 4, address 4 | port 2, port 2, protocol 1, 0, 0, 0         the key itself
//! wide     all else:                digest 8             | port 2, port 2, protocol 1, 0, 0, 1         the rest stands in the cold part
//! ```
//!
//! Both directions have one key: the lower side (address and port as one number) comes first. The side that sent a
//! packet is kept apart from the key.

use std::cmp::Ordering;

use tapline_packet::headers::IpVersion;
use tapline_packet::mix::fold;
use tapline_packet::numbers::ip_protocol::has_ports;

use crate::{Error, FlowContext};

/// Fields of the key in addition to addresses, ports and protocol, and which of these are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeyFields {
    /// The outer VLAN's identifier.
    pub vlan: bool,
    /// The outermost MPLS label.
    pub mpls: bool,
    /// The identifier of the innermost tunnel that was taken off, and whether there was one.
    pub tunnel: bool,
    /// The type of service or traffic class.
    pub tos: bool,
    /// The interface.
    pub interface: bool,
    /// Ports are left out: of TCP and UDP as of ICMP, which has type and code in their place.
    pub no_ports: bool,
    /// The greater of two different ports is left out, which is the client's by custom.
    pub no_client_port: bool,
    /// The protocol is left out, and the ports with it.
    pub no_protocol: bool,
    /// Low bits of IPv4 addresses that are left out: 0 to 32. 8 makes networks of /24.
    pub ipv4_host_bits: u8,
    /// Low bits of IPv6 addresses that are left out: 0 to 128.
    pub ipv6_host_bits: u8,
}

/// Each field by its word.
const FIELDS: [(&str, Field); 8] = [
    ("vlan", |fields| &mut fields.vlan),
    ("mpls", |fields| &mut fields.mpls),
    ("tunnel", |fields| &mut fields.tunnel),
    ("tos", |fields| &mut fields.tos),
    ("interface", |fields| &mut fields.interface),
    ("no-ports", |fields| &mut fields.no_ports),
    ("no-client-port", |fields| &mut fields.no_client_port),
    ("no-protocol", |fields| &mut fields.no_protocol),
];

type Field = fn(&mut KeyFields) -> &mut bool;

impl KeyFields {
    /// The five-tuple alone.
    pub const NONE: KeyFields = KeyFields {
        vlan: false,
        mpls: false,
        tunnel: false,
        tos: false,
        interface: false,
        no_ports: false,
        no_client_port: false,
        no_protocol: false,
        ipv4_host_bits: 0,
        ipv6_host_bits: 0,
    };

    /// Words with commas between them; none is the five-tuple alone. `ipv4/24` makes one host of a network.
    ///
    /// # Errors
    /// [`Error::KeyField`] for a word that means no field.
    pub fn parse(text: &str) -> Result<KeyFields, Error> {
        let mut fields = KeyFields::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty() && *word != "none") {
            match FIELDS.iter().find(|(known, _)| *known == word) {
                Some((_, field)) => *field(&mut fields) = true,
                None if fields.set_network(word) => {}
                None => {
                    let known =
                        FIELDS.map(|(word, _)| word).join(", ") + ", ipv4/24 (or another length), ipv6/64";
                    return Err(Error::KeyField { word: word.to_owned(), known });
                }
            }
        }
        Ok(fields)
    }

    /// Takes a word such as `ipv4/24`. Whether it is one.
    fn set_network(&mut self, word: &str) -> bool {
        let Some((version, length)) = word.split_once('/') else { return false };
        let (bits, host_bits) = match version {
            "ipv4" => (32, &mut self.ipv4_host_bits),
            "ipv6" => (128, &mut self.ipv6_host_bits),
            _ => return false,
        };
        let is_number = length.bytes().all(|byte| byte.is_ascii_digit());
        match length.parse::<u8>().ok().filter(|length| is_number && *length <= bits) {
            Some(length) => *host_bits = bits - length,
            None => return false,
        }
        true
    }

    /// Whether packets of several connections may have one key: facts about a connection then mean nothing.
    pub fn merges_connections(self) -> bool {
        self.no_ports
            || self.no_client_port
            || self.no_protocol
            || self.ipv4_host_bits > 0
            || self.ipv6_host_bits > 0
    }

    pub(crate) fn network(self, version: IpVersion, address: u128) -> u128 {
        let host_bits = match version {
            IpVersion::V4 => self.ipv4_host_bits,
            IpVersion::V6 => self.ipv6_host_bits,
        };
        let all = u128::MAX.checked_shl(host_bits.into()).unwrap_or(0);
        address & all
    }

    /// Protocol and ports in the key of those of a packet.
    pub(crate) fn transport(self, protocol: u8, (source, destination): (u16, u16)) -> (u8, (u16, u16)) {
        if self.no_protocol {
            return (0, (0, 0));
        }
        let ports = match source.cmp(&destination) {
            _ if self.no_ports => (0, 0),
            Ordering::Greater if self.no_client_port && has_ports(protocol) => (0, destination),
            Ordering::Less if self.no_client_port && has_ports(protocol) => (source, 0),
            _ => (source, destination),
        };
        (protocol, ports)
    }

    /// Whether there is any.
    pub(crate) fn any(self) -> bool {
        self != KeyFields::default()
    }

    /// The fields of a context that belong to the key.
    pub(crate) fn of(self, context: &FlowContext) -> FlowContext {
        let mut part = FlowContext::NONE;
        if self.vlan {
            part.vlan = context.vlan;
        }
        if self.mpls {
            part.mpls = context.mpls;
        }
        if self.tunnel {
            (part.tunnel, part.is_inner) = (context.tunnel, context.is_inner);
        }
        if self.tos {
            part.tos = context.tos;
        }
        if self.interface {
            part.interface = context.interface;
        }
        part
    }
}

/// A key as the table compares it.
pub(crate) type Words = [u64; 2];

/// Flags of the second word: the key is a wide one, of IPv6, and of several connections.
const WIDE: u64 = 1;
const V6: u64 = 2;
const MERGED: u64 = 4;

/// The narrow key of two sides, and which of them sent: 0 the first, 1 the second.
#[inline(always)]
pub(crate) fn narrow(source: (u32, u16), destination: (u32, u16), protocol: u8) -> (Words, u8) {
    let side = |(address, port): (u32, u16)| u64::from(address) << 16 | u64::from(port);
    let (from, to) = (side(source), side(destination));
    let (low, high) = (from.min(to), from.max(to));
    let words = [
        (low >> 16) << 32 | high >> 16,
        (low & 0xffff) << 48 | (high & 0xffff) << 32 | u64::from(protocol) << 24,
    ];
    (words, u8::from(from > to))
}

/// Two addresses of either version, the lower side's first; IPv4 is in the low 32 bits.
pub(crate) type Addresses = [u128; 2];

/// The wide key of two sides with its other fields, and the side that sent.
pub(crate) fn wide(
    version: IpVersion,
    source: (u128, u16),
    destination: (u128, u16),
    protocol: u8,
    (part, merges): (&FlowContext, bool),
    seed: u64,
) -> (Words, Addresses, u8) {
    let is_second = source > destination;
    let (low, high) = if is_second { (destination, source) } else { (source, destination) };
    let version = if version == IpVersion::V6 { V6 } else { 0 };
    let kind = version | WIDE | if merges { MERGED } else { 0 };
    let second = u64::from(low.1) << 48 | u64::from(high.1) << 32 | u64::from(protocol) << 24 | kind;
    let addresses = [low.0, high.0];
    ([digest(&addresses, part, seed), second], addresses, u8::from(is_second))
}

#[inline(always)]
pub(crate) fn is_wide(words: Words) -> bool {
    words[1] & WIDE != 0
}

pub(crate) fn is_v6(words: Words) -> bool {
    words[1] & V6 != 0
}

/// Whether several connections may have the key.
pub(crate) fn is_merged(words: Words) -> bool {
    words[1] & MERGED != 0
}

pub(crate) fn protocol(words: Words) -> u8 {
    (words[1] >> 24) as u8
}

/// The ports of the lower and the higher side.
pub(crate) fn ports(words: Words) -> [u16; 2] {
    [(words[1] >> 48) as u16, (words[1] >> 32) as u16]
}

/// The addresses of a narrow key.
pub(crate) fn narrow_addresses(words: Words) -> Addresses {
    [u128::from(words[0] >> 32), u128::from(words[0] & 0xffff_ffff)]
}

/// Bits without a pattern: the fraction of e.
const KEYS: [u64; 3] = [0xb7e1_5162_8aed_2a6a, 0xbf71_5880_9cf4_f3c7, 0x62e7_160f_38b4_da56];

/// A hash of the parts of a wide key that do not fit into it. The seed is secret, so that no sender can choose
/// addresses with equal digests: a sender who knows a factor of the product can make it 0, and the other factor then
/// has no effect.
fn digest(addresses: &Addresses, part: &FlowContext, seed: u64) -> u64 {
    let half = |address: u128, key: u64| {
        fold(address as u64 ^ seed ^ key, (address >> 64) as u64 ^ seed.rotate_left(17) ^ KEYS[2])
    };
    let sides = fold(half(addresses[0], KEYS[0]), half(addresses[1], KEYS[1]).rotate_left(29));
    if *part == FlowContext::NONE {
        return sides;
    }
    let one = u64::from(part.mpls) << 32 | u64::from(part.tunnel);
    let other = u64::from(part.interface) << 32
        | u64::from(part.vlan) << 16
        | u64::from(part.tos) << 8
        | u64::from(part.is_inner);
    fold(sides ^ one, other ^ seed.rotate_left(47) ^ KEYS[1])
}

/// The hash of a key. The seed is random, so that no sender can choose flows that share a bucket.
#[inline(always)]
pub(crate) fn hash(words: Words, seeds: Seeds) -> u64 {
    let [one, other, last] = seeds;
    fold(fold(words[0] ^ one, words[1] ^ other) ^ last, KEYS[1])
}

/// Seeds of the hash.
pub(crate) type Seeds = [u64; 3];

/// The three seeds that follow from one number.
pub(crate) fn seeds(seed: u64) -> Seeds {
    [seed, seed.rotate_left(17) ^ KEYS[0], seed.rotate_left(32)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_have_one_key() {
        let (a, b) = ((0x0a00_0001, 2000), (0x0a00_0002, 80));
        let ((forth, one), (back, other)) = (narrow(a, b, 6), narrow(b, a, 6));
        assert_eq!((forth, one, other), (back, 0, 1));
        assert_eq!(narrow_addresses(forth), [0x0a00_0001, 0x0a00_0002]);
        assert_eq!((ports(forth), protocol(forth), is_wide(forth)), ([2000, 80], 6, false));
        // The lower port decides between equal addresses.
        assert_eq!(narrow((1, 9), (1, 7), 17).1, 1);
        assert_ne!(narrow((1, 9), (2, 7), 17).0, narrow((1, 7), (2, 9), 17).0);
    }

    #[test]
    fn each_field_of_the_key_tells_flows_apart() {
        let words = |context: FlowContext| wide(IpVersion::V4, (1, 2), (3, 4), 6, (&context, false), 99).0;
        let contexts = [
            FlowContext::NONE,
            FlowContext { vlan: 1, ..FlowContext::NONE },
            FlowContext { mpls: 1, ..FlowContext::NONE },
            FlowContext { tunnel: 1, ..FlowContext::NONE },
            FlowContext { interface: 1, ..FlowContext::NONE },
            FlowContext { tos: 1, ..FlowContext::NONE },
            FlowContext { is_inner: true, ..FlowContext::NONE },
        ];
        for (at, one) in contexts.iter().enumerate() {
            contexts[..at].iter().for_each(|other| assert_ne!(words(*one), words(*other)));
            let all = KeyFields::parse("vlan, mpls,tunnel,tos,interface").unwrap();
            assert_eq!(all.of(one), *one);
            assert_eq!(KeyFields::default().of(one), FlowContext::NONE);
        }
        assert!(KeyFields::parse("vlan,prot").unwrap_err().to_string().contains("`prot`"));
    }

    #[test]
    fn fields_left_out_of_a_key_are_zero() {
        let fields = KeyFields::parse("no-client-port, ipv4/24,ipv6/64").unwrap();
        assert_eq!(fields.network(IpVersion::V4, 0x0a01_0203), 0x0a01_0200);
        assert_eq!(fields.network(IpVersion::V6, u128::MAX), u128::MAX << 64);
        assert_eq!(fields.transport(6, (50_000, 80)), (6, (0, 80)));
        assert_eq!(fields.transport(6, (80, 50_000)), (6, (80, 0)), "and back");
        assert_eq!(fields.transport(17, (123, 123)), (17, (123, 123)), "neither is the client");
        assert_eq!(fields.transport(1, (0, 2048)), (1, (0, 2048)), "no ports");
        assert_eq!(KeyFields::parse("no-ports").unwrap().transport(1, (0, 2048)), (1, (0, 0)));
        assert_eq!(KeyFields::parse("no-protocol").unwrap().transport(6, (1, 2)), (0, (0, 0)));
        let none = KeyFields::parse("ipv4/0,ipv6/0").unwrap();
        assert_eq!(none.network(IpVersion::V4, 0xffff_ffff), 0);
        assert_eq!(none.network(IpVersion::V6, u128::MAX), 0);
        assert_eq!(KeyFields::parse("ipv4/32,ipv6/128").unwrap(), KeyFields::NONE);
        for wrong in ["ipv4/33", "ipv6/129", "ipv4/", "ipv4/+8", "ipv5/8", "no-port"] {
            assert!(KeyFields::parse(wrong).is_err(), "{wrong}");
        }
        assert!(!KeyFields::parse("vlan,tos").unwrap().merges_connections());
    }

    /// Interface identifiers and prefixes that are the constants of the digest, and contexts that are: products of 0,
    /// were there no seed.
    #[test]
    fn no_sender_can_choose_equal_keys() {
        let address = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
        let chosen = |at: u64| {
            [address(at, KEYS[0]), address(KEYS[2], at), address(at, KEYS[1]), address(at, KEYS[0] ^ KEYS[1])]
        };
        for part in [FlowContext::NONE, FlowContext { vlan: 7, ..FlowContext::NONE }] {
            for way in 0..4 {
                let digests = (0..1000).map(|at| digest(&[chosen(at)[way], chosen(at)[3 - way]], &part, 5));
                assert_eq!(digests.collect::<std::collections::BTreeSet<_>>().len(), 1000, "{way}");
            }
        }
    }
}
