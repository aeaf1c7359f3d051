//! What flows counted since they were last asked.

use tapline_packet::Timestamp;

use crate::details::Application;
use crate::{EndReason, Endpoint, FlowContext};

/// The packets of a flow since the last [`Meter::changes`](crate::Meter::changes), or since it began.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowChange {
    /// The source of the flow's first packet, then its destination. `packets` and `bytes` are those of the change, all
    /// other fields are of the whole flow so far.
    pub endpoints: [Endpoint; 2],
    /// The IP protocol number.
    pub protocol: u8,
    /// The reason for the end, if the flow has ended.
    pub end_reason: Option<EndReason>,
    /// Fields of the first packet.
    pub context: FlowContext,
    /// When the flow began, by the meter's clock.
    pub began: Timestamp,
    /// The application, if the meter collects it and it is known so far.
    pub application: Option<Application>,
    /// The name that the client asked for in TLS, HTTP or DNS, if the meter collects names and it is known so far;
    /// escaped as in [`Details`](crate::Details).
    pub name: Option<Box<str>>,
}

impl FlowChange {
    /// Packets of both sides.
    pub fn packets(&self) -> u64 {
        self.endpoints[0].packets + self.endpoints[1].packets
    }

    /// Bytes of both sides.
    pub fn bytes(&self) -> u64 {
        self.endpoints[0].bytes + self.endpoints[1].bytes
    }
}

/// The low words of a flow's counters when they were last read: packets of both sides, then bytes. A flow that counts
/// 2^32 between two readings has ended by the active timeout long before.
pub(crate) type Seen = [u32; 4];
