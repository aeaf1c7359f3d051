use tapline_packet::Timestamp;

use super::*;
use crate::trial;

fn flow(protocol: u8, ends: [(&str, u16); 2]) -> Flow {
    let ends = ends.map(|(address, port)| (address.parse().expect("an address"), port));
    trial::flow(protocol, ends, 1, Timestamp::EPOCH)
}

/// Sensors of other versions, and programs of others, compute the same. These were computed by a script of Python.
#[test]
fn groups_are_those_of_the_description() {
    for (protocol, ends, group) in [
        (6, [("192.0.2.1", 40_000), ("198.51.100.7", 443)], 13),
        (17, [("2001:db8::1", 53), ("2001:db8::2", 5353)], 1),
        (1, [("10.0.0.1", 0), ("10.0.0.2", 8 << 8)], 5),
        (132, [("10.0.0.9", 2905), ("10.0.0.2", 2905)], 9),
    ] {
        assert_eq!(key_group(&flow(protocol, ends)), group, "{ends:?}");
        assert_eq!(key_group(&flow(protocol, [ends[1], ends[0]])), group, "{ends:?} the other way");
    }
}

/// The answer of an echo has another type: with ports the two would have other groups.
#[test]
fn request_and_answer_of_icmp_have_one_group() {
    let request = flow(1, [("10.0.0.1", 0), ("10.0.0.2", 8 << 8)]);
    let answer = flow(1, [("10.0.0.2", 0), ("10.0.0.1", 0)]);
    assert_eq!(key_group(&request), key_group(&answer));
}

#[test]
fn flows_spread_over_all_groups() {
    let mut seen = [0_u64; KEY_GROUPS as usize];
    for port in 0..16_000_u16 {
        seen[key_group(&flow(6, [("10.0.0.1", port), ("10.0.0.2", 443)])) as usize] += 1;
    }
    assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
}

/// Java's `Utils.murmur2`, by which a client places keys.
#[cfg(feature = "kafka")]
fn partition(key: &str, partitions: u32) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c ^ key.len() as u32;
    let mut words = key.as_bytes().chunks_exact(4);
    for word in &mut words {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ (word ^ word >> 24).wrapping_mul(M);
    }
    for (at, octet) in words.remainder().iter().enumerate() {
        hash ^= u32::from(*octet) << (8 * at);
    }
    if !words.remainder().is_empty() {
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(M);
    ((hash ^ hash >> 15) & 0x7fff_ffff) % partitions
}

#[cfg(feature = "kafka")]
#[test]
fn keys_spread_evenly_over_partitions() {
    for partitions in [1, 2, 3, 4, 6, 8, 12, 16] {
        let mut seen = vec![0_u32; partitions as usize];
        for number in 32..32 + KEY_GROUPS {
            seen[partition(key_of(number), partitions) as usize] += 1;
        }
        let (least, most) = (seen.iter().min(), seen.iter().max());
        let spread = most.zip(least).map(|(most, least)| most - least);
        assert!(spread <= Some(u32::from(16 % partitions != 0)), "{partitions}: {seen:?}");
    }
}
