//! The key of a message of flows: a flow is in one partition, whichever sensor has metered it.
//!
//! ```text
//! flow --FNV-1a of protocol, addresses, ports--> key group 0..15 --a table each--> block --key of its group--> partition
//! ```
//!
//! Both directions and all records of a flow have the same group, at every sensor that sees its addresses and ports
//! alike. A block is of one group, which is the remainder of its number by 16: block *n* of a run has the number 16
//! *n* + group.

use std::net::IpAddr;

use tapline_flow::Flow;

/// Key groups of flows.
pub(crate) const KEY_GROUPS: u64 = 16;
/// Protocols with ports: TCP, UDP, SCTP.
const WITH_PORTS: [u8; 3] = [6, 17, 132];

/// The key of each group. Placed as Java's clients place keys (murmur2), they spread evenly over 1, 2, 4, 8 and 16
/// partitions, and but for one group over 3, 6 and 12.
#[cfg(feature = "kafka")]
const KEYS: [&str; KEY_GROUPS as usize] = [
    "flow-7", "flow-32", "flow-18", "flow-0", "flow-53", "flow-36", "flow-16", "flow-39", "flow-33",
    "flow-51", "flow-2", "flow-55", "flow-38", "flow-24", "flow-35", "flow-255",
];

/// The key of the block of this number.
#[cfg(feature = "kafka")]
pub(crate) fn key_of(number: u64) -> &'static str {
    KEYS[(number % KEY_GROUPS) as usize]
}

/// The key group of a flow.
///
/// FNV-1a of 64 bits, folded to 32 (draft-eastlake-fnv), over 37 octets: protocol, lower address (IPv4 as mapped), higher
/// address, and the port of each, big-endian; 0 for protocols without ports. Other programs can compute it.
pub(crate) fn key_group(flow: &Flow) -> u64 {
    let has_ports = WITH_PORTS.contains(&flow.protocol);
    let end = |end: usize| {
        let end = &flow.endpoints[end];
        (octets(end.address), if has_ports { end.port.to_be_bytes() } else { [0; 2] })
    };
    let (mut lower, mut higher) = (end(0), end(1));
    if lower > higher {
        std::mem::swap(&mut lower, &mut higher);
    }
    let parts: [&[u8]; 5] = [&[flow.protocol], &lower.0, &higher.0, &lower.1, &higher.1];
    let hash = parts.into_iter().flatten().fold(0xcbf2_9ce4_8422_2325_u64, |hash, octet| {
        (hash ^ u64::from(*octet)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash ^ hash >> 32) % KEY_GROUPS
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests;
