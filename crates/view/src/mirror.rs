//! The flows of a meter as its journals tell them, by their slots, with what each counted in this second.
//!
//! ```text
//! journal --packet--> Counts, 32 bytes a slot: the only part that a packet touches
//!         --begun---> FlowFields, texts
//! end of a flow, or of the second: what it counted --> Rankings
//! ```

use tapline_flow::{Application, FlowBegin, Journal, JournalEntry, Said};
use tapline_sys::memory;

use crate::change::{Change, FlowFields, state};
use crate::ranking::Rankings;
use crate::table::Amount;

/// Entries of a journal between the request for the memory of a slot and its use.
const AHEAD: usize = 16;

/// No text.
const NONE: u32 = u32::MAX;

/// What a flow counted in this second.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    bytes: [u64; 2],
    packets: [u32; 2],
    /// Of all packets of the flow so far.
    tcp_flags: [u8; 2],
    /// The side that sent the first packet.
    first_side: u8,
    is_known: bool,
    /// It stands among the touched slots.
    is_touched: bool,
}

/// A flow: all that a packet does not touch.
#[derive(Clone, Copy, Debug)]
struct Known {
    fields: FlowFields,
    application: Option<Application>,
    /// Its place in the names.
    name: u32,
}

impl Known {
    const NOTHING: Known = Known { fields: FlowFields::NOTHING, application: None, name: NONE };
}

/// The flows of a meter.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    counts: Vec<Counts>,
    flows: Vec<Known>,
    names: Vec<Box<str>>,
    names_free: Vec<u32>,
    /// Slots that had packets in this second.
    touched: Vec<u32>,
    /// Packets of slots of which no flow is known.
    unknown: Amount,
}

impl Mirror {
    /// Reads a journal. Flows that end are ranked.
    pub(crate) fn read(&mut self, journal: &Journal, rankings: &mut Rankings) {
        let mut ahead = journal.slots();
        ahead.by_ref().take(AHEAD).for_each(|slot| memory::prefetch_element(&self.counts, slot as usize));
        for entry in journal.entries() {
            if let Some(slot) = ahead.next() {
                memory::prefetch_element(&self.counts, slot as usize);
            }
            match entry {
                JournalEntry::Packet { slot, side, tcp_flags, bytes } => {
                    self.packet(slot, side, tcp_flags, bytes);
                }
                JournalEntry::Begun { slot, flow } => self.begin(slot, flow, rankings),
                JournalEntry::Said { slot, said } => self.say(slot, said),
                JournalEntry::Ended { slot, reason } => {
                    self.rank(slot, reason as u32, rankings);
                    self.forget(slot);
                }
            }
        }
    }

    fn packet(&mut self, slot: u32, side: u8, tcp_flags: u8, bytes: u32) {
        let Some(counts) = self.counts.get_mut(slot as usize).filter(|counts| counts.is_known) else {
            return self.unknown.add(Amount { packets: 1, bytes: bytes.into() });
        };
        let side = usize::from((side ^ counts.first_side) & 1);
        let Some(packets) = counts.packets[side].checked_add(1) else {
            return self.unknown.add(Amount { packets: 1, bytes: bytes.into() });
        };
        if !counts.is_touched {
            counts.is_touched = true;
            self.touched.push(slot);
        }
        counts.packets[side] = packets;
        counts.bytes[side] += u64::from(bytes);
        counts.tcp_flags[side] |= tcp_flags;
    }

    fn begin(&mut self, slot: u32, flow: &FlowBegin, rankings: &mut Rankings) {
        // Of a flow that is described once more in a second nothing is left out.
        self.rank(slot, 0, rankings);
        self.forget(slot);
        let at = slot as usize;
        if at >= self.counts.len() {
            self.counts.resize(at + 1, Counts::default());
            self.flows.resize(at + 1, Known::NOTHING);
        }
        self.counts[at] = Counts {
            tcp_flags: flow.tcp_flags,
            first_side: flow.first_side,
            is_known: true,
            is_touched: self.counts[at].is_touched,
            ..Counts::default()
        };
        let protocol = (flow.protocol, flow.tcp_flags_first);
        let fields =
            FlowFields::new(flow.addresses, flow.ports, protocol, &flow.context, flow.began.as_nanos());
        self.flows[at] = Known { fields, application: flow.application, name: NONE };
    }

    fn say(&mut self, slot: u32, said: &Said) {
        let at = slot as usize;
        if !self.counts.get(at).is_some_and(|counts| counts.is_known) {
            return;
        }
        self.flows[at].application = said.application;
        self.forget_name(slot);
        let Some(name) = said.name.clone() else { return };
        self.flows[at].name = match self.names_free.pop() {
            Some(place) => {
                self.names[place as usize] = name;
                place
            }
            None => {
                self.names.push(name);
                (self.names.len() - 1) as u32
            }
        };
    }

    fn forget(&mut self, slot: u32) {
        if let Some(counts) = self.counts.get_mut(slot as usize) {
            counts.is_known = false;
            self.forget_name(slot);
        }
    }

    fn forget_name(&mut self, slot: u32) {
        let place = std::mem::replace(&mut self.flows[slot as usize].name, NONE);
        if let Some(name) = self.names.get_mut(place as usize) {
            *name = Box::default();
            self.names_free.push(place);
        }
    }

    /// Ranks what a flow counted, if it did, and begins anew.
    fn rank(&mut self, slot: u32, end: u32, rankings: &mut Rankings) {
        let at = slot as usize;
        let Some(counts) = self.counts.get_mut(at).filter(|counts| counts.packets != [0; 2]) else { return };
        let (packets, bytes) = (std::mem::take(&mut counts.packets), std::mem::take(&mut counts.bytes));
        let flow = &self.flows[at];
        rankings.add(&Change {
            fields: &flow.fields,
            amounts: [0, 1].map(|side| Amount { packets: packets[side].into(), bytes: bytes[side] }),
            state: state(counts.tcp_flags, end),
            application: flow.application.unwrap_or_default(),
            name: self.names.get(flow.name as usize).map_or("", |name| name),
        });
    }

    /// Ends the second: ranks all that was counted. Returns the packets of which no flow is known.
    pub(crate) fn end_second(&mut self, rankings: &mut Rankings) -> Amount {
        let touched = std::mem::take(&mut self.touched);
        for (number, slot) in touched.iter().enumerate() {
            if let Some(&next) = touched.get(number + AHEAD) {
                memory::prefetch_element(&self.counts, next as usize);
                memory::prefetch_element(&self.flows, next as usize);
            }
            self.rank(*slot, 0, rankings);
            if let Some(counts) = self.counts.get_mut(*slot as usize) {
                counts.is_touched = false;
            }
        }
        self.touched = touched;
        self.touched.clear();
        std::mem::take(&mut self.unknown)
    }
}
