//! Details of the flows of the table.

use super::{NO_SLOT, Table};
use crate::details::{PacketView, RefusedDetails};
use crate::key;
use crate::packet::{PacketSummary, TransportSpan, Window};

impl Table {
    pub(crate) fn has_details(&self) -> bool {
        self.details.is_some()
    }

    /// Prefetches the entry numbers of the details of the likely slot.
    pub(crate) fn prefetch_numbers(&self, summary: &PacketSummary) {
        if let Some(details) = self.details.as_ref().filter(|_| summary.slot != NO_SLOT) {
            details.prefetch_numbers(summary.slot);
        }
    }

    /// Prefetches the detail entries of the likely slot.
    pub(crate) fn prefetch_details(&self, summary: &PacketSummary) {
        if let Some(details) = self.details.as_ref().filter(|_| summary.slot != NO_SLOT) {
            details.prefetch_entries(summary.slot, usize::from(summary.side & 1));
        }
    }

    /// Details for which the memory was full.
    pub(crate) fn refused(&self) -> RefusedDetails {
        self.details.as_ref().map_or_else(RefusedDetails::default, |details| details.refused())
    }

    /// Updates the details of a slot with a packet that was added to it. If its payload shows something new, that is
    /// written into the journal, behind the packets `before` that are not yet there. Returns whether it was.
    pub(crate) fn observe(
        &mut self,
        summary: &PacketSummary,
        window: &Window<'_>,
        data: &[u8],
        span: Option<TransportSpan>,
        before: &[PacketSummary],
    ) -> bool {
        let (slot, at) = (summary.slot, summary.slot as usize);
        let (Some(details), Some(hot), Some(cold)) = (&mut self.details, self.hot.get(at), self.cold.get(at))
        else {
            return false;
        };
        let sent = hot.sent(cold, usize::from(summary.side & 1), summary);
        let (protocol, ports) = (key::protocol(hot.words), key::ports(hot.words));
        let view = PacketView { summary, data, span, window };
        let Some(journal) = &mut self.journal else {
            details.packet(slot, protocol, ports, sent, view);
            return false;
        };
        let progress = details.progress(slot);
        details.packet(slot, protocol, ports, sent, view);
        let is_other = progress != details.progress(slot);
        let mut answers = details.take_answers().peekable();
        if !is_other && answers.peek().is_none() {
            return false;
        }
        journal.packets(before);
        answers.for_each(|named| journal.named(slot, named));
        if is_other {
            journal.said(slot, details.said(slot, protocol, ports, hot.first_side()));
        }
        true
    }
}
