//! A number for each flow, the same for both directions.
//!
//! ```text
//! side  = address and port, in one word (IPv4) or folded into one (IPv6)
//! hash  = fold(fold(lower side ^ key, higher side ^ key) ^ protocol, key)
//! fold  = both halves of a product of 128 bits, one laid on the other
//! ```
//!
//! The product lets each bit of a side reach each bit of the hash; ordering the sides makes directions equal and,
//! unlike adding them, keeps flows apart that differ by an exchange of addresses or ports. Without the seed, an
//! attacker cannot choose flows that collide.

use std::net::IpAddr;

use super::read::{array, u32_at};
use super::{Headers, IpVersion, PackedOffset};
use crate::mix::fold;

/// Bits without a pattern: the fraction of pi.
const KEYS: [u64; 4] =
    [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0, 0x082e_fa98_ec4e_6c89];

impl Headers {
    /// A hash that distinguishes flows: all 64 bits are good, and both directions have the same. With one seed it is
    /// the same in every run and on every machine.
    ///
    /// - An IP packet whose [`ports`](Self::ports) are known: of addresses, protocol and ports.
    /// - A fragment, the first one too: of addresses and [`Fragment::protocol`](super::Fragment::protocol). So all
    ///   fragments of a packet have the same hash. The whole packets of the flow have another: only reassembly could
    ///   match them.
    /// - Other IP packets, and those whose ports were not captured: of addresses and protocol; where not even that is
    ///   known, of addresses.
    /// - Without IP: of the EtherType, so that all of one kind have the same.
    #[inline]
    pub fn flow_hash(&self, data: &[u8], seed: u64) -> u64 {
        self.hash_sides(data, seed).unwrap_or_else(|| {
            let kind = self.ether_type.map_or(0, |kind| u64::from(kind) + 1);
            fold(fold(kind ^ seed ^ KEYS[2], KEYS[0]), KEYS[1])
        })
    }

    /// A hash of the addresses alone, both directions alike: all packets between two hosts have the same, fragments
    /// too. Without IP it is a hash of the EtherType.
    #[inline]
    pub fn host_hash(&self, data: &[u8], seed: u64) -> u64 {
        let hosts = Headers { fragment: None, protocol: None, l4: PackedOffset::NONE, ..*self };
        hosts.flow_hash(data, seed)
    }

    /// The hash of a flow together with its VLAN tags.
    pub fn vlan_hash(&self, flow_hash: u64) -> u64 {
        self.vlans()
            .iter()
            .fold(flow_hash, |hash, tag| fold(hash ^ (u64::from(tag.id()) + 1) ^ KEYS[0], KEYS[2]))
    }

    /// A hash for each of the two addresses, whichever is the source: all packets of a host have its hash. Without IP
    /// both are a hash of the EtherType.
    pub fn address_hashes(&self, data: &[u8], seed: u64) -> [u64; 2] {
        let of = |address: IpAddr| {
            let bits = match address {
                IpAddr::V4(address) => u128::from(address.to_bits()),
                IpAddr::V6(address) => address.to_bits(),
            };
            let half = fold((bits >> 64) as u64 ^ seed ^ KEYS[1], KEYS[0]);
            fold(half ^ bits as u64 ^ KEYS[2], KEYS[3])
        };
        match self.addresses(data) {
            Some((src, dst)) => [of(src), of(dst)],
            None => [self.flow_hash(data, seed); 2],
        }
    }

    #[inline]
    fn hash_sides(&self, data: &[u8], seed: u64) -> Option<u64> {
        let at = self.l3()?;
        let (protocol, (src_port, dst_port)) = match self.fragment {
            Some(fragment) => (fragment.protocol.into(), (0, 0)),
            None => (self.protocol.map_or(0x100, u64::from), self.ports(data).unwrap_or_default()),
        };
        let (src, dst) = match self.ip? {
            IpVersion::V4 => {
                let side = |at, port| Some(u64::from(u32_at(data, at)?) << 16 | u64::from(port));
                (side(at + 12, src_port)?, side(at + 16, dst_port)?)
            }
            IpVersion::V6 => {
                let side = |at, port: u16| Some(address_v6(array(data, at)?, seed).wrapping_add(port.into()));
                (side(at + 8, src_port)?, side(at + 24, dst_port)?)
            }
        };
        Some(hash_of(src, dst, protocol, seed))
    }
}

/// [`Headers::host_hash`] of an Ethernet frame with IPv4 right behind its header, without reading more of it; `None`
/// for every other frame. The addresses alone count, so that a frame whose other fields are damaged has some hash, and
/// the same each time.
#[inline]
pub fn plain_host_hash(data: &[u8], seed: u64) -> Option<u64> {
    let head: &[u8; 34] = data.first_chunk()?;
    if head[12..14] != [0x08, 0x00] || head[14] >> 4 != 4 {
        return None;
    }
    let side =
        |at: usize| u64::from(u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])) << 16;
    Some(hash_of(side(26), side(30), 0x100, seed))
}

/// The hash of two sides, in either order, and of their protocol.
#[inline]
fn hash_of(src: u64, dst: u64, protocol: u64, seed: u64) -> u64 {
    let (low, high) = (src.min(dst), src.max(dst));
    let sides = fold(low ^ seed ^ KEYS[0], high ^ seed.rotate_left(32) ^ KEYS[1]);
    fold(sides ^ protocol, KEYS[3])
}

#[inline]
fn address_v6(address: &[u8; 16], seed: u64) -> u64 {
    let bits = u128::from_be_bytes(*address);
    fold((bits >> 64) as u64 ^ seed ^ KEYS[2], bits as u64 ^ seed.rotate_left(17) ^ KEYS[3])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LinkType, Meta, Packet};

    #[test]
    fn plain_frames_have_the_hash_of_their_headers() {
        let meta = Meta { wire_len: 60, ..Meta::default() };
        let mut frame = [0_u8; 60];
        (frame[12], frame[14], frame[17], frame[23]) = (0x08, 0x45, 46, 17);
        for number in 0..200_u8 {
            frame[26..34].copy_from_slice(&[10, 0, number, 1, 10, number.wrapping_mul(7), 3, 4]);
            let whole =
                Headers::parse(LinkType::ETHERNET, Packet { data: &frame, meta: &meta }).host_hash(&frame, 9);
            assert_eq!(plain_host_hash(&frame, 9), Some(whole));
            let mut back = frame;
            (0..4).for_each(|at| back.swap(26 + at, 30 + at));
            assert_eq!(plain_host_hash(&back, 9), Some(whole));
        }
        assert_eq!(plain_host_hash(&frame[..33], 9), None);
        frame[13] = 6;
        assert_eq!(plain_host_hash(&frame, 9), None);
    }
}
