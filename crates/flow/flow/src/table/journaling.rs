//! The entries that the table writes into a journal.

use tapline_packet::Timestamp;

use super::Table;
use super::entry::{EPOCH, FIRST_SIDE, TIMES_COLD, halves};
use crate::journal::{FlowBegin, Journal};
use crate::key;
use crate::packet::PacketSummary;

/// The low half of an address of IPv4 as one of IPv6, without that address.
const V4_MAPPED: u64 = 0xffff << 32;

impl Table {
    /// Writes a journal from now on.
    pub(crate) fn keep_journal(&mut self) {
        self.journal = Some(Box::default());
        self.epoch = EPOCH;
        self.details.iter_mut().for_each(|details| details.read_answers());
    }

    pub(crate) fn has_journal(&self) -> bool {
        self.journal.is_some()
    }

    /// The journal so far.
    pub(crate) fn journal(&self) -> Option<&Journal> {
        self.journal.as_deref()
    }

    /// Takes the journal so far, and goes on in an empty one.
    pub(crate) fn take_journal(&mut self, empty: Journal) -> Option<Journal> {
        self.journal.as_mut().map(|journal| std::mem::replace(&mut **journal, empty))
    }

    /// Describes each flow once more, with its next packet.
    pub(crate) fn describe_again(&mut self) {
        if self.has_journal() {
            self.epoch = self.epoch.checked_add(EPOCH).unwrap_or(EPOCH);
        }
    }

    /// Writes packets that were added to their slots.
    #[inline]
    pub(crate) fn note(&mut self, packets: &[PacketSummary]) {
        if let Some(journal) = &mut self.journal {
            journal.packets(packets);
        }
    }

    /// Writes the packets that come before the end of a flow, which may be theirs, and leaves none of them.
    pub(super) fn note_before(&mut self, before: &mut &[PacketSummary]) {
        self.note(std::mem::take(before));
    }

    /// Writes the flow of a slot, before its first packet in this epoch. Packets that are still to be written are of other
    /// slots.
    #[inline(never)]
    pub(super) fn describe(&mut self, slot: u32) {
        let at = slot as usize;
        let (Some(hot), Some(cold), Some(journal)) =
            (self.hot.get_mut(at), self.cold.get(at), &mut self.journal)
        else {
            return;
        };
        hot.state = hot.state & (FIRST_SIDE | TIMES_COLD) | self.epoch;
        let addresses = match key::is_wide(hot.words) {
            true => cold.addresses,
            false => halves(key::narrow_addresses(hot.words)),
        };
        let addresses = match key::is_v6(hot.words) {
            true => addresses,
            false => addresses.map(|[_, low]| [0, V4_MAPPED | low]),
        };
        let first = hot.first_side();
        let (protocol, ports) = (key::protocol(hot.words), key::ports(hot.words));
        let said = self.details.as_ref().map(|details| details.said(slot, protocol, ports, first));
        let of_sides = [first, 1 - first];
        journal.begun(
            slot,
            FlowBegin {
                addresses: of_sides.map(|side| addresses[side]),
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
    }
}
