//! Fields of flows that other exporters metered.

use std::net::IpAddr;

/// Fields of a flow that came in a record of another exporter, beside those that every flow has. A meter here knows
/// none of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collected {
    /// The exporter: the source of the message, or the address that the record or the sFlow agent gives.
    pub exporter: IpAddr,
    /// Observation domain (IPFIX), source id (v9), engine type and id (v5), or sub-agent (sFlow).
    pub domain: u32,
    /// Sampling interval N (1 packet in N was metered) of the counters; 1 for none, or for counters that were scaled.
    pub sampling: u32,
    /// The interface by which the packets left, by the exporter's number; 0 if unknown.
    pub egress: u32,
    /// Where the packets were metered: 0 as they came in, 1 as they left (`flowDirection`).
    pub direction: u8,
    /// Lengths of the prefixes by which source and destination were routed, in bits; 0 if unknown.
    pub prefix_lens: [u8; 2],
    /// Autonomous systems of source and destination; 0 if unknown.
    pub autonomous_systems: [u32; 2],
    /// The next router, if it is known.
    pub next_hop: Option<IpAddr>,
}
