//! Blocks and flows for tests.

use std::net::IpAddr;

use tapline_flow::{EndReason, Endpoint, Flow, FlowContext};
use tapline_packet::Timestamp;

use crate::{Block, BlockId, Encoding, Sensor};

/// A flow of a packet each way; an end is its address and port.
pub(crate) fn flow(protocol: u8, ends: [(IpAddr, u16); 2], bytes: u64, time: Timestamp) -> Flow {
    let end = |(address, port)| Endpoint {
        address,
        port,
        packets: 1,
        bytes,
        first: time,
        last: time,
        tcp_flags: 0,
        tcp_flags_first: 0,
        ttl_min: 64,
        ttl_max: 64,
        tos: 0,
    };
    Flow {
        endpoints: ends.map(end),
        protocol,
        end_reason: EndReason::Idle,
        context: FlowContext::NONE,
        details: None,
        collected: None,
        id: 0,
    }
}

/// A block of one row.
pub(crate) fn block(number: u64, bytes: &[u8]) -> Block {
    Block {
        id: BlockId { sensor: Sensor::new("test").expect("a name"), epoch: 7, number },
        encoding: Encoding::JsonLines,
        schema: 1,
        flows: 1,
        rows: 1,
        packets: 3,
        packets_before: 0,
        first_ns: 10,
        last_ns: 20,
        bytes: bytes.to_vec(),
    }
}
