//! Keys: the fields that tell flows apart.
//!
//! ```text
//! narrow   IPv4, five-tuple only:   address 4, address 4 | port 2, port 2, protocol 1, 0, 0, 0         the key itself
//! wide     all else:                digest 8             | port 2, port 2, protocol 1, 0, 0, 1         the rest stands in the cold part
//! ```
//!
//! A key is that of both directions: the lower side (address and port as one number) comes first. Which side sent a
//! packet is kept beside the key.

use tapline_packet::headers::IpVersion;

use crate::{Error, FlowContext};

/// Fields of the key besides addresses, ports and protocol.
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
}

/// Each field by its word.
const FIELDS: [(&str, Field); 5] = [
    ("vlan", |fields| &mut fields.vlan),
    ("mpls", |fields| &mut fields.mpls),
    ("tunnel", |fields| &mut fields.tunnel),
    ("tos", |fields| &mut fields.tos),
    ("interface", |fields| &mut fields.interface),
];

type Field = fn(&mut KeyFields) -> &mut bool;

impl KeyFields {
    /// Words with commas between them; none is the five-tuple alone.
    ///
    /// # Errors
    /// [`Error::KeyField`] for a word that means no field.
    pub fn parse(text: &str) -> Result<KeyFields, Error> {
        let mut fields = KeyFields::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty() && *word != "none") {
            let Some((_, field)) = FIELDS.iter().find(|(known, _)| *known == word) else {
                let known = FIELDS.map(|(word, _)| word).join(", ");
                return Err(Error::KeyField { word: word.to_owned(), known });
            };
            *field(&mut fields) = true;
        }
        Ok(fields)
    }

    /// Whether there is any.
    pub(crate) fn any(self) -> bool {
        self != KeyFields::default()
    }

    /// Of a context what belongs to the key.
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

/// Of the second word: the key is a wide one, and of IPv6.
const WIDE: u64 = 1;
const V6: u64 = 2;

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

/// Two addresses of either version, the lower side's first; IPv4 stands in the low 32 bits.
pub(crate) type Addresses = [u128; 2];

/// The wide key of two sides with what else belongs to it, and which of them sent.
pub(crate) fn wide(
    version: IpVersion,
    source: (u128, u16),
    destination: (u128, u16),
    protocol: u8,
    part: &FlowContext,
    seed: u64,
) -> (Words, Addresses, u8) {
    let is_second = source > destination;
    let (low, high) = if is_second { (destination, source) } else { (source, destination) };
    let version = if version == IpVersion::V6 { V6 } else { 0 };
    let second =
        u64::from(low.1) << 48 | u64::from(high.1) << 32 | u64::from(protocol) << 24 | version | WIDE;
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

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
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
        let words = |context: FlowContext| wide(IpVersion::V4, (1, 2), (3, 4), 6, &context, 99).0;
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
