//! The counts of a flow in a second, as input of rankings.

use tapline_flow::{Flow, FlowContext};
use tapline_packet::numbers::ip_protocol::TCP;

use crate::dimension::halves;
use crate::table::{Amount, state};

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// No name, as [`FlowFields`] have it.
pub(crate) const NO_NAME: u32 = u32::MAX;

/// The fields of a flow that packets do not change: a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct FlowFields {
    /// The side that began the flow, then the other.
    pub(crate) hosts: [[u64; 2]; 2],
    pub(crate) segment: u64,
    pub(crate) began_ns: i64,
    pub(crate) interface: u32,
    pub(crate) ports: [u16; 2],
    /// The number of its name among those of its mirror.
    pub(crate) name: u32,
    /// The number of its application, of the same; 0 for none.
    pub(crate) application: u16,
    pub(crate) protocol: u8,
    /// The side that is the server.
    pub(crate) server: u8,
}

const _: () = assert!(size_of::<FlowFields>() == 64, "docs/view.md tells the memory of a flow");

/// The counts of a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change<'a> {
    pub(crate) fields: &'a FlowFields,
    /// Amounts that each side sent, the one that began the flow first.
    pub(crate) amounts: [Amount; 2],
    /// As rows have it.
    pub(crate) state: u32,
    /// Empty if it is not known.
    pub(crate) application: &'a str,
    /// The name that the client asked for; empty if it is not known.
    pub(crate) name: &'a str,
}

impl Change<'static> {
    pub(crate) const NOTHING: Change<'static> = Change {
        fields: &FlowFields::NOTHING,
        amounts: [Amount { packets: 0, bytes: 0 }; 2],
        state: 0,
        application: "",
        name: "",
    };
}

impl FlowFields {
    pub(crate) const NOTHING: FlowFields = FlowFields {
        hosts: [[0; 2]; 2],
        segment: 0,
        began_ns: 0,
        interface: 0,
        ports: [0; 2],
        name: NO_NAME,
        application: 0,
        protocol: 0,
        server: 0,
    };

    pub(crate) fn new(
        hosts: [[u64; 2]; 2],
        ports: [u16; 2],
        (protocol, tcp_flags_first): (u8, u8),
        context: &FlowContext,
        began_ns: i64,
    ) -> FlowFields {
        let begins = protocol == TCP && tcp_flags_first & (SYN | ACK) == SYN;
        FlowFields {
            hosts,
            segment: segment(context),
            began_ns,
            interface: context.interface,
            ports,
            protocol,
            server: u8::from(begins || ports[1] <= ports[0]),
            ..FlowFields::NOTHING
        }
    }
}

/// A flow that another exporter metered, with all that it counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CollectedFlow {
    fields: FlowFields,
    amounts: [Amount; 2],
    state: u32,
}

impl CollectedFlow {
    pub(crate) fn new(flow: &Flow) -> CollectedFlow {
        let sides = &flow.endpoints;
        let fields = FlowFields::new(
            [halves(sides[0].address), halves(sides[1].address)],
            [sides[0].port, sides[1].port],
            (flow.protocol, sides[0].tcp_flags_first),
            &flow.context,
            flow.first().as_nanos(),
        );
        let flags = [sides[0].tcp_flags, sides[1].tcp_flags];
        CollectedFlow {
            fields,
            amounts: [0, 1].map(|at| Amount { packets: sides[at].packets, bytes: sides[at].bytes }),
            state: state(flags, flow.end_reason as u8, fields.server == 0),
        }
    }

    /// Amount that both sides sent.
    pub(crate) fn amount(&self) -> Amount {
        let mut amount = self.amounts[0];
        amount.add(self.amounts[1]);
        amount
    }

    pub(crate) fn change(&self) -> Change<'_> {
        let CollectedFlow { fields, amounts, state } = self;
        Change { fields, amounts: *amounts, state: *state, application: "", name: "" }
    }
}

/// The VLAN or the tunnel of a flow, as keys have it.
fn segment(context: &FlowContext) -> u64 {
    match (context.is_inner, context.vlan) {
        (true, _) => 2 << 32 | u64::from(context.tunnel),
        (false, FlowContext::NO_VLAN) => 0,
        (false, vlan) => 1 << 32 | u64::from(vlan),
    }
}
