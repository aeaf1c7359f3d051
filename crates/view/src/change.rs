//! Changes of flows as a queue holds them: in one piece, without pointers into the meter.

use tapline_flow::{FlowChange, FlowContext};
use tapline_packet::numbers::ip_protocol::TCP;

use crate::dimension::halves;
use crate::table::Amount;

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// Changes of a part.
pub(crate) const CHANGES_MAX: usize = 4096;

/// What a ranking needs of a [`FlowChange`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    /// The side that began the flow, then the other.
    pub(crate) hosts: [[u64; 2]; 2],
    pub(crate) amounts: [Amount; 2],
    pub(crate) ports: [u16; 2],
    pub(crate) protocol: u8,
    /// The side that is the server.
    pub(crate) server: u8,
    /// TCP flags of both sides, and the reason for the end.
    pub(crate) state: u32,
    pub(crate) began_ns: i64,
    pub(crate) segment: u64,
    pub(crate) interface: u32,
    application_len: u16,
    name_len: u16,
}

/// A change with its texts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedChange<'a> {
    pub(crate) change: &'a Change,
    /// Empty if it is not known.
    pub(crate) application: &'a str,
    /// The name that the client asked for; empty if it is not known.
    pub(crate) name: &'a str,
}

/// A part of a second's changes: at most [`CHANGES_MAX`].
#[derive(Debug)]
pub(crate) struct Changes {
    list: Vec<Change>,
    /// Applications and names, in the order of the changes.
    texts: String,
}

impl Changes {
    pub(crate) fn new() -> Changes {
        Changes { list: Vec::with_capacity(CHANGES_MAX), texts: String::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.list.len() >= CHANGES_MAX
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.texts.clear();
    }

    pub(crate) fn push(&mut self, change: &FlowChange) {
        let [from, to] = &change.endpoints;
        let application = self.add_text(change.application.unwrap_or_default());
        let name = self.add_text(change.name.as_deref().unwrap_or_default());
        let end = change.end_reason.map_or(0, |reason| reason as u32);
        self.list.push(Change {
            hosts: [from, to].map(|side| halves(side.address)),
            amounts: [from, to].map(|side| Amount { packets: side.packets, bytes: side.bytes }),
            ports: [from.port, to.port],
            protocol: change.protocol,
            server: server(change),
            state: u32::from(from.tcp_flags) | u32::from(to.tcp_flags) << 8 | end << 16,
            began_ns: change.began.as_nanos(),
            segment: segment(&change.context),
            interface: change.context.interface,
            application_len: application,
            name_len: name,
        });
    }

    /// Appends a text. Returns its length; one without room for its length is left out.
    fn add_text(&mut self, text: &str) -> u16 {
        let len = u16::try_from(text.len()).unwrap_or(0);
        if len > 0 {
            self.texts.push_str(text);
        }
        len
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = NamedChange<'_>> {
        let mut rest = self.texts.as_str();
        let mut next = move |len: u16| {
            let (text, behind) = rest.split_at_checked(len.into()).unwrap_or_default();
            rest = behind;
            text
        };
        self.list.iter().map(move |change| {
            let application = next(change.application_len);
            NamedChange { change, application, name: next(change.name_len) }
        })
    }
}

/// The side of a flow that is the server.
fn server(change: &FlowChange) -> u8 {
    let [from, to] = &change.endpoints;
    let begins = change.protocol == TCP && from.tcp_flags_first & (SYN | ACK) == SYN;
    u8::from(begins || to.port <= from.port)
}

/// The VLAN or the tunnel of a flow, as keys have it.
fn segment(context: &FlowContext) -> u64 {
    match (context.is_inner, context.vlan) {
        (true, _) => 2 << 32 | u64::from(context.tunnel),
        (false, FlowContext::NO_VLAN) => 0,
        (false, vlan) => 1 << 32 | u64::from(vlan),
    }
}
