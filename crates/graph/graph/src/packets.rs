//! Packets on their way from one stage to the next.

use tapline_packet::headers::Headers;
use tapline_packet::{Batch, ClockReading, Interface, InterfaceId, LinkType, Selection, Timestamp};

/// Packets on their way: a lent batch, and which of its packets are still wanted.
///
/// Cloning copies the selection, never a packet.
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    /// The packets as the source, or the stage before, lends them.
    pub batch: Batch<'a>,
    /// The packets that are still wanted. A stage may remove packets, but not add any.
    pub selection: Selection,
    /// The interfaces of the packets' interface numbers. The table only grows.
    pub interfaces: &'a [Interface],
    /// For each interface whether its packets have passed the filter next to the source already, in the kernel say.
    pub filtered: &'a [bool],
    /// The time at which the batch was lent, by the wall clock.
    pub now: Timestamp,
    /// The time of the steady clock, for intervals: see [`ClockReading`].
    pub steady_ns: i64,
    /// Bytes of the selection when it had this length.
    sum: (usize, u64),
}

impl<'a> Packets<'a> {
    /// All packets of a batch.
    pub fn all(batch: Batch<'a>, interfaces: &'a [Interface], now: ClockReading) -> Packets<'a> {
        let mut selection = Selection::none();
        selection.select_all(batch.len());
        let ClockReading { wall, steady_ns } = now;
        Packets { batch, selection, interfaces, filtered: &[], now: wall, steady_ns, sum: (0, 0) }
    }

    /// Other packets in place of these, at the same time: those of `batch`, all of them wanted.
    pub fn replaced<'b>(&self, batch: Batch<'b>, interfaces: &'b [Interface]) -> Packets<'b> {
        Packets::all(batch, interfaces, self.clocks())
    }

    /// Wall clock and steady clock at the time when the batch was lent.
    pub fn clocks(&self) -> ClockReading {
        ClockReading { wall: self.now, steady_ns: self.steady_ns }
    }

    /// Applies the selection to other packets: as many, in the same order, such as shorter ones.
    pub fn changed<'b>(&self, batch: Batch<'b>) -> Packets<'b>
    where
        'a: 'b,
    {
        Packets { batch, selection: self.selection.clone(), sum: (0, 0), ..*self }
    }

    /// Some of the same packets.
    pub fn narrowed_to(&self, selection: Selection) -> Packets<'a> {
        Packets { selection, sum: (0, 0), ..*self }
    }

    /// Number of selected packets.
    pub fn len(&self) -> usize {
        self.selection.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.selection.is_empty()
    }

    /// Bytes on the wire of those that are wanted.
    ///
    /// Bytes of the selected packets. The sum is kept as long as the selection has its length: a selection only
    /// narrows, so its length shows whether it changed.
    pub fn bytes(&mut self) -> u64 {
        let len = self.selection.len();
        if self.sum.0 != len {
            let records = self.batch.records();
            let bytes = self.selection.iter().map(|index| u64::from(records[index].meta.wire_len));
            self.sum = (len, bytes.sum());
        }
        self.sum.1
    }

    /// The headers of the packet at `index`.
    ///
    /// # Panics
    /// If the batch has no such packet.
    #[inline]
    pub fn headers(&self, index: usize) -> Headers {
        let packet = self.batch.packet(index);
        let interface = self.interfaces.get(packet.meta.interface.0 as usize);
        Headers::parse(interface.map_or(LinkType::ETHERNET, |interface| interface.link_type), packet)
    }

    /// Whether packets of an interface have passed the filter next to the source.
    pub fn is_filtered(&self, interface: InterfaceId) -> bool {
        self.filtered.get(interface.0 as usize).copied().unwrap_or(false)
    }
}
