//! Packets that wait for the names of their flows, in the order in which they came.
//!
//! ```text
//! bytes    | gone | waits | waits | waits |        records: where each is, and its Meta; the flow of each
//! flow     its decision, its packets in the queue; kept until it has ended and none is left
//! ```

use std::collections::VecDeque;

use tapline_graph::{Out, Packets};
use tapline_packet::{BATCH_MAX, Batch, ClockReading, Interface, Packet, Record, Timestamp};
use tapline_source::Error;

/// Bytes of a waiting packet in addition to its data.
const ENTRY_LEN: usize = size_of::<(Record, u32)>();
/// The least number of freed bytes for which the rest moves to the front.
const DEAD_MAX: usize = 64 * 1024;
const NO_FLOW: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Waits,
    Wanted,
    Other,
}

#[derive(Clone, Copy, Debug)]
struct FlowState {
    decision: Decision,
    packets: u32,
    /// Packets that were neither handed on nor refused yet.
    queued: u32,
    has_ended: bool,
}

/// The flows of the meter, by numbers that outlive its slots.
#[derive(Debug, Default)]
pub(super) struct FlowStates {
    by_slot: Vec<u32>,
    all: Vec<FlowState>,
    free: Vec<u32>,
}

impl FlowStates {
    pub(super) fn begin(&mut self, slot: u32) {
        let slot = slot as usize;
        if slot >= self.by_slot.len() {
            self.by_slot.resize(slot + 1, NO_FLOW);
        }
        let state = FlowState { decision: Decision::Waits, packets: 0, queued: 0, has_ended: false };
        let flow = self.free.pop().unwrap_or(self.all.len() as u32);
        match self.all.get_mut(flow as usize) {
            Some(place) => *place = state,
            None => self.all.push(state),
        }
        self.by_slot[slot] = flow;
    }

    /// The flow of a slot.
    pub(super) fn of(&mut self, slot: u32) -> u32 {
        if self.by_slot.get(slot as usize).is_none_or(|flow| *flow == NO_FLOW) {
            self.begin(slot);
        }
        self.by_slot[slot as usize]
    }

    /// Counts a packet of a flow, which keeps the flow's number until it has [left](Self::left).
    pub(super) fn packet(&mut self, slot: u32) -> u32 {
        let flow = self.of(slot);
        let state = &mut self.all[flow as usize];
        state.packets = state.packets.saturating_add(1);
        state.queued += 1;
        flow
    }

    pub(super) fn decision(&self, flow: u32) -> Decision {
        self.all[flow as usize].decision
    }

    /// Whether a flow still waits after so many packets.
    pub(super) fn is_over(&self, flow: u32, packets: u32) -> bool {
        let state = &self.all[flow as usize];
        state.decision == Decision::Waits && state.packets > packets
    }

    /// Decides about a flow, once; whether it was undecided.
    pub(super) fn decide(&mut self, flow: u32, decision: Decision) -> bool {
        let state = &mut self.all[flow as usize];
        let waits = state.decision == Decision::Waits;
        if waits {
            state.decision = decision;
        }
        waits
    }

    /// The meter's flow has ended: nothing will be known of it any more.
    pub(super) fn end(&mut self, slot: u32) {
        let Some(place) = self.by_slot.get_mut(slot as usize) else { return };
        let flow = std::mem::replace(place, NO_FLOW);
        let Some(state) = self.all.get_mut(flow as usize) else { return };
        state.has_ended = true;
        if state.decision == Decision::Waits {
            state.decision = Decision::Other;
        }
        if state.queued == 0 {
            self.free.push(flow);
        }
    }

    /// A packet of a flow was handed on or refused.
    pub(super) fn left(&mut self, flow: u32) {
        let state = &mut self.all[flow as usize];
        state.queued -= 1;
        if state.queued == 0 && state.has_ended {
            self.free.push(flow);
        }
    }
}

/// The packets that wait.
pub(super) struct Queue {
    room: usize,
    bytes: Vec<u8>,
    /// Bytes at the front that have gone.
    dead: usize,
    waiting: VecDeque<(Record, u32)>,
    lent: Vec<Record>,
    interfaces: Vec<Interface>,
}

impl Queue {
    pub(super) fn new(room: usize) -> Queue {
        Queue {
            room,
            bytes: Vec::new(),
            dead: 0,
            waiting: VecDeque::new(),
            lent: Vec::with_capacity(BATCH_MAX),
            interfaces: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Notes the meaning of the interface numbers of packets, before they are kept.
    pub(super) fn learn(&mut self, interfaces: &[Interface]) {
        self.interfaces.extend(interfaces.iter().skip(self.interfaces.len()).cloned());
    }

    pub(super) fn has_room(&self, len: usize) -> bool {
        let used = self.bytes.len() - self.dead + self.waiting.len() * ENTRY_LEN;
        used + len + ENTRY_LEN <= self.room
    }

    /// Keeps a copy of a packet, without its raw pcapng options.
    pub(super) fn keep(&mut self, packet: Packet<'_>, flow: u32) {
        if self.dead >= DEAD_MAX && self.dead >= self.bytes.len() / 2 {
            self.bytes.drain(..self.dead);
            self.waiting.iter_mut().for_each(|(record, _)| record.offset -= self.dead);
            self.dead = 0;
        }
        let (offset, cap_len) = (self.bytes.len(), packet.data.len() as u32);
        self.bytes.extend_from_slice(packet.data);
        self.waiting.push_back((Record { offset, cap_len, options_len: 0, meta: *packet.meta }, flow));
    }

    /// Takes decided packets from the front, a batch of wanted ones at most; how many are to be lent, and how many were
    /// refused.
    pub(super) fn take(&mut self, flows: &mut FlowStates) -> (usize, u64) {
        self.lent.clear();
        let mut refused = 0;
        while let Some((record, flow)) = self.waiting.front().copied().filter(|_| self.lent.len() < BATCH_MAX)
        {
            match flows.decision(flow) {
                Decision::Waits => break,
                Decision::Wanted => self.lent.push(record),
                Decision::Other => refused += 1,
            }
            self.waiting.pop_front();
            self.dead = record.offset + record.cap_len as usize;
            flows.left(flow);
        }
        (self.lent.len(), refused)
    }

    /// Hands on the packets taken.
    pub(super) fn lend(&self, now: ClockReading, out: &mut Out<'_>) -> Result<(), Error> {
        if self.lent.is_empty() {
            return Ok(());
        }
        let batch = Batch::new(&self.bytes, &self.lent);
        out.pass(&mut Packets::all(batch, &self.interfaces, now))
    }

    /// Refuses the flow of the first packet; whether it was undecided.
    pub(super) fn give_up_first(&mut self, flows: &mut FlowStates) -> bool {
        self.waiting.front().is_some_and(|(_, flow)| flows.decide(*flow, Decision::Other))
    }

    /// Refuses the undecided flows of packets at the front that came at this time or before; how many they were.
    pub(super) fn give_up_before(&mut self, time: Timestamp, flows: &mut FlowStates) -> u64 {
        let old = self.waiting.iter().take_while(|(record, _)| record.meta.timestamp <= time);
        old.filter(|(_, flow)| flows.decide(*flow, Decision::Other)).count() as u64
    }
}
