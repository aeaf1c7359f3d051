//! Sampling: the choice of the packets or flows that are metered, and its description in records.
//!
//! ```text
//! hashed   lower side's address 4 or 16 | higher side's 4 or 16 | port 2, port 2 | protocol 1 | with fields of the key besides: interface 4,
//!          MPLS label 4, tunnel 4, VLAN 2, type of service 1, inside of a tunnel 1         numbers in network order
//! ```
//!
//! Both directions of a flow have the same bytes, so they are metered both or not at all, as are the same flows in any
//! other meter with the same seed. Sources: RFC 5475, A.2 (the hash); RFC 7014, 6.3 (flows chosen by hash).

use crate::FlowContext;
use crate::key::{self, Addresses, Words};

/// The sampling of packets or flows for metering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// One packet of each block of N, chosen at random; 1 meters all packets.
    Packets(u32),
    /// One flow in N, chosen by a hash of its key.
    Flows(u32),
}

impl Sampling {
    /// All packets are metered.
    pub const NONE: Sampling = Sampling::Packets(1);

    /// The interval of packets: 1 where whole flows are chosen.
    pub fn packet_interval(self) -> u32 {
        match self {
            Sampling::Packets(interval) => interval.max(1),
            Sampling::Flows(_) => 1,
        }
    }

    /// The greatest hash of a flow that is chosen; `None` where packets are chosen.
    pub(crate) fn greatest_hash(self) -> Option<u32> {
        match self {
            Sampling::Packets(_) => None,
            Sampling::Flows(interval) => Some(greatest_hash(interval)),
        }
    }
}

fn greatest_hash(interval: u32) -> u32 {
    ((1u64 << 32) / u64::from(interval.max(1)) - 1) as u32
}

/// Chooses flows by a hash of their keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowSampler {
    seed: u32,
    greatest: u32,
}

impl FlowSampler {
    /// One of `interval` flows.
    pub(crate) fn new(interval: u32, seed: u32) -> FlowSampler {
        FlowSampler { seed, greatest: greatest_hash(interval) }
    }

    /// Whether the flow of a narrow key is chosen.
    #[inline]
    pub(crate) fn chooses_narrow(self, words: Words) -> bool {
        let mut bytes = [0; 13];
        bytes[..8].copy_from_slice(&words[0].to_be_bytes());
        bytes[8..].copy_from_slice(&words[1].to_be_bytes()[..5]);
        bob(&bytes, self.seed) <= self.greatest
    }

    /// Whether the flow of a wide key is chosen.
    pub(crate) fn chooses_wide(self, words: Words, addresses: &Addresses, part: &FlowContext) -> bool {
        let mut bytes = [0; 37 + 16];
        let mut len = 0;
        let mut put = |more: &[u8]| {
            bytes[len..len + more.len()].copy_from_slice(more);
            len += more.len();
        };
        let from = if key::is_v6(words) { 0 } else { 12 };
        addresses.iter().for_each(|address| put(&address.to_be_bytes()[from..]));
        put(&words[1].to_be_bytes()[..5]);
        if *part != FlowContext::NONE {
            [part.interface, part.mpls, part.tunnel].iter().for_each(|number| put(&number.to_be_bytes()));
            put(&part.vlan.to_be_bytes());
            put(&[part.tos, part.is_inner.into()]);
        }
        bob(&bytes[..len], self.seed) <= self.greatest
    }
}

/// Bob Jenkins's hash of 1996, one of those that IPFIX has a number for.
#[inline]
fn bob(key: &[u8], seed: u32) -> u32 {
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word: u32, byte| word << 8 | u32::from(*byte));
    let (mut a, mut b, mut c) = (0x9e37_79b9u32, 0x9e37_79b9u32, seed);
    let mut chunks = key.chunks_exact(12);
    for chunk in &mut chunks {
        a = a.wrapping_add(word(&chunk[..4]));
        b = b.wrapping_add(word(&chunk[4..8]));
        c = c.wrapping_add(word(&chunk[8..]));
        (a, b, c) = mix(a, b, c);
    }
    let rest = chunks.remainder();
    let part = |from: usize| word(rest.get(from..rest.len().min(from + 4)).unwrap_or_default());
    a = a.wrapping_add(part(0));
    b = b.wrapping_add(part(4));
    // The lowest byte of the last word is that of the length.
    c = c.wrapping_add(key.len() as u32).wrapping_add(part(8) << 8);
    mix(a, b, c).2
}

#[inline]
fn mix(mut a: u32, mut b: u32, mut c: u32) -> (u32, u32, u32) {
    for (one, two, three) in [(13, 8, 13), (12, 16, 5), (3, 10, 15)] {
        a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> one);
        b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << two);
        c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> three);
    }
    (a, b, c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapline_packet::headers::IpVersion;

    /// Bytes counted from 0, seed, hash.
    const VALUES: [(usize, u32, u32); 9] = [
        (0, 0, 0xbd49_d10d),
        (1, 7, 0x563f_df3b),
        (5, 0xdead_beef, 0x9540_1a44),
        (11, 0, 0xf189_c885),
        (12, 7, 0x728a_5adb),
        (13, 0xdead_beef, 0xa928_8066),
        (23, 0, 0x9f8a_db7e),
        (37, 7, 0x3591_7fa2),
        (53, 0xdead_beef, 0x6d82_b545),
    ];

    /// Values of the C code in RFC 5475, A.2, compiled and run.
    #[test]
    fn hashes_are_those_of_the_rfc() {
        let counted: Vec<u8> = (0..64).collect();
        for (len, seed, wanted) in VALUES {
            assert_eq!(bob(&counted[..len], seed), wanted, "{len} bytes, seed {seed}");
        }
    }

    #[test]
    fn a_share_of_the_flows_is_chosen_both_ways() {
        let sampler = FlowSampler::new(10, 7);
        let mut chosen = 0;
        for at in 0..100_000u32 {
            let (one, other) = ((0x0a00_0000 | at, 1024), (0x0a00_0001, 80));
            let ways = [key::narrow(one, other, 6).0, key::narrow(other, one, 6).0];
            let [forth, back] = ways.map(|words| sampler.chooses_narrow(words));
            assert_eq!(forth, back);
            chosen += u32::from(forth);
            let addresses = key::narrow_addresses(ways[0]);
            assert_eq!(sampler.chooses_wide(ways[0], &addresses, &FlowContext::NONE), forth);
        }
        // Five standard deviations of 95.
        assert!((9_525..10_475).contains(&chosen), "{chosen}");
    }

    #[test]
    fn every_field_of_a_wide_key_is_hashed() {
        let hash = |context: FlowContext, address: u128| {
            let (words, addresses, _) =
                key::wide(IpVersion::V6, (address, 2), (3, 4), 6, (&context, false), address as u64);
            let is_chosen = |seed| FlowSampler::new(2, seed).chooses_wide(words, &addresses, &context);
            (0..64).map(is_chosen).collect::<Vec<bool>>()
        };
        let none = FlowContext::NONE;
        let all = [
            hash(none, 1),
            hash(none, 1 << 127),
            hash(FlowContext { vlan: 1, ..none }, 1),
            hash(FlowContext { mpls: 1, ..none }, 1),
            hash(FlowContext { tunnel: 1, ..none }, 1),
            hash(FlowContext { interface: 1, ..none }, 1),
            hash(FlowContext { tos: 1, ..none }, 1),
            hash(FlowContext { is_inner: true, ..none }, 1),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{at}");
        }
    }

    #[test]
    fn one_of_one_is_all() {
        assert_eq!(Sampling::Flows(1).greatest_hash(), Some(u32::MAX));
        assert_eq!(Sampling::Flows(1_000_000).greatest_hash(), Some(4293));
        assert_eq!((Sampling::NONE.greatest_hash(), Sampling::Flows(5).packet_interval()), (None, 1));
    }
}
