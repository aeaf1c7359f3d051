//! Flows for exporters.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tapline_flow::{EndReason, Endpoint, Flow, FlowContext};
use tapline_packet::Timestamp;
use tapline_testkit::random::Random;

/// When the first flow begins.
pub(crate) const START: i64 = 1_700_000_000_250_000_000;

/// Flows of both versions of IP, some of one direction.
pub(crate) fn flows(seed: u64, count: usize) -> Vec<Flow> {
    let mut random = Random::new(seed);
    (0..count as u16)
        .map(|at| {
            let is_v6 = random.one_of(1, 3);
            let address = |last: u16| -> IpAddr {
                if is_v6 {
                    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, at, last).into()
                } else {
                    Ipv4Addr::from(0x0a00_0000 | u32::from(at) << 8 | u32::from(last)).into()
                }
            };
            let first = START + i64::from(at) * 1_000_000;
            let mut side = |last: u16, packets: u64| Endpoint {
                address: address(last),
                port: random.below(65_536) as u16,
                packets,
                bytes: packets * 100,
                first: Timestamp::from_nanos(if packets > 0 { first } else { 0 }),
                last: Timestamp::from_nanos(if packets > 0 { first + 70_000_000 } else { 0 }),
                tcp_flags: 0x1b,
                tcp_flags_first: 2,
                ttl_min: 60,
                ttl_max: 64,
                tos: 4,
            };
            let back = u64::from(at % 4);
            let endpoints = [side(1, 1 + u64::from(at)), side(2, back)];
            Flow {
                endpoints,
                protocol: 6,
                end_reason: EndReason::Idle,
                context: FlowContext::NONE,
                details: None,
                collected: None,
                id: 0,
            }
        })
        .collect()
}
