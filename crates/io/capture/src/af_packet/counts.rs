//! The account of each interface: sums over its taps, those that are closed too.

use tapline_packet::InterfaceId;
use tapline_source::{Count, CountedPackets, InterfaceAccount, RingAccount};

use super::opener::Opener;
use super::{AfPacket, Book, CaptureDirection, Phase};
use crate::link_state::LinkState;

impl AfPacket {
    /// The account of one interface so far.
    pub(super) fn interface_account(&self, id: InterfaceId) -> InterfaceAccount {
        let (interface, book) = (&self.interfaces[id.0 as usize], &self.books[id.0 as usize]);
        let (mut ring, mut delivered) = (book.closed, book.closed_delivered);
        let counted_packets = self.counted_in_kernel(id, book);
        for tap in self.taps.iter().filter(|tap| tap.id == id) {
            let (counted, lent) = tap.counters();
            let unread = if self.phase == Phase::Running { tap.in_flight() } else { tap.waiting() };
            ring.add(&RingAccount { unread, ..counted });
            delivered += lent;
        }
        ring.received += counted_packets.map_or(0, |counted| counted.packets);
        InterfaceAccount {
            losses: if self.is_first { book.losses.losses() } else { Vec::new() },
            kernel_filtered: self.kernel_filtered(book),
            ring: Some(ring),
            counted: counted_packets,
            ..InterfaceAccount::of_file(&interface.name, delivered)
        }
    }

    /// Packets that were counted in the kernel and ended there.
    fn counted_in_kernel(&self, id: InterfaceId, book: &Book) -> Option<CountedPackets> {
        let tally = self.opener.settings.tally.as_ref();
        let tally = tally.filter(|tally| tally.ends_packets() && tally.is_in_kernel())?;
        if tally.is_shared() {
            return Some(if self.is_first { tally.read() } else { CountedPackets::default() });
        }
        let taps = self.taps.iter().filter(|tap| tap.id == id);
        let mut sum = book.closed_counted;
        taps.filter_map(super::Tap::counted_in_kernel).for_each(|counted| sum.add(&counted));
        Some(sum)
    }

    /// Packets that the program in the kernel refused: unknown with a filter, since the kernel does not count them,
    /// else those that a sample left out.
    fn kernel_filtered(&self, book: &Book) -> Count {
        let settings = &self.opener.settings;
        let is_known =
            !book.refuses && !self.opener.was_restricted() && settings.direction == CaptureDirection::Both;
        let tally = settings.tally.as_ref().filter(|_| self.is_first);
        let left_out = tally.map_or(0, super::KernelTally::left_out);
        if is_known { Count::Known(left_out) } else { Count::Unknown }
    }

    /// Reads what cards and drivers lost.
    pub(super) fn update_losses(&mut self) {
        let Opener { route, control, .. } = &mut self.opener;
        for tap in self.taps.iter().filter(|tap| tap.state != LinkState::Gone) {
            self.books[tap.id.0 as usize].losses.update(&tap.name, tap.if_index, route, control);
        }
    }
}
