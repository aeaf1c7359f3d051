//! Packets and bytes of flows since they were last read, for stages that watch flows.

use tapline_packet::Timestamp;

use super::entry::{FIRST_SIDE, FREE, whole};
use super::{Table, address};
use crate::change::{FlowChange, Seen};
use crate::key;
use crate::{EndReason, Endpoint, Error};

/// The counters of each slot when they were last read.
#[derive(Default)]
pub(super) struct ChangeColumn {
    pub(super) seen: Vec<Seen>,
    /// The last changes of flows that have ended.
    pub(super) ended: Vec<FlowChange>,
}

impl Table {
    /// Keeps what is read of each flow's counters from now on: 16 bytes a flow.
    ///
    /// # Errors
    /// [`Error::Memory`] if the system cannot have so much.
    pub(crate) fn track_changes(&mut self) -> Result<(), Error> {
        let mut seen = Vec::new();
        let bytes = self.flows_max.saturating_mul(size_of::<Seen>());
        let no_memory = |_| Error::Memory { flows_max: self.flows_max, bytes };
        seen.try_reserve_exact(self.flows_max).map_err(no_memory)?;
        self.changes = Some(Box::new(ChangeColumn { seen, ended: Vec::new() }));
        Ok(())
    }

    /// The last changes of flows that have ended, to be taken out.
    pub(crate) fn ended_changes(&mut self) -> Option<&mut Vec<FlowChange>> {
        self.changes.as_mut().map(|changes| &mut changes.ended)
    }

    /// Reads the counters of every flow that is there.
    pub(crate) fn changes(&mut self, each: &mut dyn FnMut(FlowChange)) {
        for slot in 0..self.hot.len() {
            let hot = &self.hot[slot];
            let [one, other] = hot.packets;
            let Some(seen) = self.changes.as_ref().and_then(|changes| changes.seen.get(slot)) else { return };
            if hot.words == FREE || (one, other) == (seen[0], seen[1]) {
                continue;
            }
            if let Some(change) = self.change(slot as u32, None) {
                each(change);
            }
        }
    }

    /// The packets of a slot that were not read yet, which are read now.
    pub(super) fn change(&mut self, slot: u32, end_reason: Option<EndReason>) -> Option<FlowChange> {
        let at = slot as usize;
        let (hot, cold) = (&self.hot[at], &self.cold[at]);
        let seen = self.changes.as_mut()?.seen.get_mut(at)?;
        let now = [hot.packets[0], hot.packets[1], hot.bytes[0], hot.bytes[1]];
        let since = std::mem::replace(seen, now);
        if now == since {
            return None;
        }
        let addresses = match key::is_wide(hot.words) {
            true => cold.addresses.map(whole),
            false => key::narrow_addresses(hot.words),
        };
        let side = |at: usize| Endpoint {
            packets: now[at].wrapping_sub(since[at]).into(),
            bytes: now[2 + at].wrapping_sub(since[2 + at]).into(),
            ..hot.side(cold, at, address(hot.words, addresses[at]))
        };
        let first = usize::from(hot.state & FIRST_SIDE);
        let (protocol, ports) = (key::protocol(hot.words), key::ports(hot.words));
        let said = self.details.as_ref().map(|details| details.said(slot, protocol, ports, first));
        let (application, name) = said.unwrap_or_default();
        Some(FlowChange {
            endpoints: [side(first), side(1 - first)],
            protocol,
            end_reason,
            context: cold.context,
            began: Timestamp::from_nanos(hot.created_ns),
            application,
            name,
        })
    }
}
