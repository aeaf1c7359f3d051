//! The entries that the table writes into a journal.

use tapline_packet::Timestamp;

use super::entry::{FIRST_SIDE, Hot, whole};
use super::{Table, address};
use crate::journal::{FlowBegin, Journal, NamedAddresses};
use crate::packet::PacketSummary;
use crate::{EndReason, key};

/// A journal that is being written, and which flows it has described.
#[derive(Default)]
pub(super) struct Journaling {
    journal: Journal,
    /// The epoch in the hot part of a described flow; at least 1, so that a new flow has not been described.
    epoch: u32,
}

impl Journaling {
    /// Writes the addresses of names.
    pub(super) fn named(&mut self, slot: u32, all: impl Iterator<Item = NamedAddresses>) {
        all.for_each(|named| self.journal.named(slot, named));
    }

    pub(super) fn ended(&mut self, hot: &Hot, slot: u32, reason: EndReason) {
        // A flow without a packet since it was to be described again is not known to each reader.
        if hot.epoch == self.epoch {
            self.journal.ended(slot, reason);
        }
    }
}

impl Table {
    /// Writes a journal from now on.
    pub(crate) fn keep_journal(&mut self) {
        self.journaling = Some(Box::new(Journaling { epoch: 1, ..Journaling::default() }));
        self.details.iter_mut().for_each(|details| details.read_answers());
    }

    pub(crate) fn has_journal(&self) -> bool {
        self.journaling.is_some()
    }

    /// The journal so far.
    pub(crate) fn journal(&self) -> Option<&Journal> {
        self.journaling.as_ref().map(|journaling| &journaling.journal)
    }

    /// Takes the journal so far, and goes on in an empty one.
    pub(crate) fn take_journal(&mut self, empty: Journal) -> Option<Journal> {
        self.journaling.as_mut().map(|journaling| std::mem::replace(&mut journaling.journal, empty))
    }

    /// Describes each flow once more, with its next packet.
    pub(crate) fn describe_again(&mut self) {
        if let Some(journaling) = &mut self.journaling {
            journaling.epoch = journaling.epoch.checked_add(1).unwrap_or(1);
        }
    }

    /// Writes a packet that was added to a slot.
    #[inline(always)]
    pub(crate) fn note(&mut self, slot: u32, summary: &PacketSummary) {
        let Some(journaling) = &mut self.journaling else { return };
        let is_described = self.hot.get(slot as usize).is_some_and(|hot| hot.epoch == journaling.epoch);
        if is_described {
            return journaling.journal.packet(slot, summary.side, summary.flags, summary.bytes);
        }
        self.describe(slot, summary);
    }

    /// Writes the flow of a slot, then the packet.
    #[inline(never)]
    fn describe(&mut self, slot: u32, summary: &PacketSummary) {
        let at = slot as usize;
        let (Some(hot), Some(cold), Some(journaling)) =
            (self.hot.get_mut(at), self.cold.get(at), &mut self.journaling)
        else {
            return;
        };
        hot.epoch = journaling.epoch;
        let addresses = match key::is_wide(hot.words) {
            true => cold.addresses.map(whole),
            false => key::narrow_addresses(hot.words),
        };
        let first = usize::from(hot.state & FIRST_SIDE);
        let (protocol, ports) = (key::protocol(hot.words), key::ports(hot.words));
        let said = self.details.as_ref().map(|details| details.said(slot, protocol, ports, first));
        let of_sides = [first, 1 - first];
        let journal = &mut journaling.journal;
        journal.begun(
            slot,
            FlowBegin {
                addresses: of_sides.map(|side| address(hot.words, addresses[side])),
                ports: of_sides.map(|side| ports[side]),
                protocol,
                tcp_flags: of_sides.map(|side| hot.flags[side]),
                tcp_flags_first: cold.flags_first[first],
                first_side: first as u8,
                context: cold.context,
                began: Timestamp::from_nanos(hot.created_ns),
                application: said.as_ref().and_then(|said| said.application),
            },
        );
        if let Some(said) = said.filter(|said| said.name.is_some()) {
            journal.said(slot, said);
        }
        journal.packet(slot, summary.side, summary.flags, summary.bytes);
    }

    /// Writes the facts from the payload of a flow.
    pub(super) fn note_said(&mut self, slot: u32) {
        let (Some(hot), Some(details), Some(journaling)) =
            (self.hot.get(slot as usize), &self.details, &mut self.journaling)
        else {
            return;
        };
        let first = usize::from(hot.state & FIRST_SIDE);
        let (protocol, ports) = (key::protocol(hot.words), key::ports(hot.words));
        journaling.journal.said(slot, details.said(slot, protocol, ports, first));
    }
}
