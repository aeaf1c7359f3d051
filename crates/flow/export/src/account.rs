//! Counters of an exporter in batches, which balance.
//!
//! ```text
//! ended = acknowledged + spooled + lost (memory, refused, spool full, undelivered) + in flight
//! found in the spool = acknowledged of it + still spooled + refused + unreadable
//! ```

use std::ops::{AddAssign, SubAssign};

use tapline_source::{LossCause, OutputAccount};

use crate::Block;

/// Rows, flows and packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Flows.
    pub flows: u64,
    /// Rows of them.
    pub rows: u64,
    /// Packets that they count.
    pub packets: u64,
}

impl Tally {
    /// The tally of a block.
    pub fn of(block: &Block) -> Tally {
        Tally { flows: block.flows, rows: block.rows, packets: block.packets }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, more: Tally) {
        self.flows = self.flows.saturating_add(more.flows);
        self.rows = self.rows.saturating_add(more.rows);
        self.packets = self.packets.saturating_add(more.packets);
    }
}

impl SubAssign for Tally {
    fn sub_assign(&mut self, less: Tally) {
        self.flows = self.flows.saturating_sub(less.flows);
        self.rows = self.rows.saturating_sub(less.rows);
        self.packets = self.packets.saturating_sub(less.packets);
    }
}

tapline_packet::named_enum! {
    /// A cause by which rows are lost.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Cause {
        /// More waited than the memory that was allowed.
        Memory = "memory full",
        /// The receiver refused them.
        Refused = "refused",
        /// The spool was full, or its disk failed.
        SpoolFull = "spool full",
        /// The run ended before a receiver took them, and there is no spool.
        Undelivered = "undelivered",
    }
}

/// The causes as the account of an output has them.
const CAUSES: [LossCause; 4] =
    [LossCause::BatchMemory, LossCause::BatchRefused, LossCause::BatchSpool, LossCause::BatchUndelivered];

/// Deliveries of an exporter: flows, rows and packets in each state between its queue and the receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryAccount {
    /// Flows that ended and were given to the exporter.
    pub ended: Tally,
    /// Acknowledged by the receiver.
    pub acknowledged: Tally,
    /// In the spool now, to be delivered by this run or the next.
    pub spooled: Tally,
    /// Lost, by [`Cause`].
    pub lost: [Tally; 4],
    /// In memory, or on the way.
    pub in_flight: Tally,
    /// Blocks that were acknowledged, and those lost.
    pub blocks: u64,
    /// Blocks that were lost, by [`Cause`].
    pub blocks_lost: [u64; 4],
    /// Bytes of the blocks that were acknowledged.
    pub bytes: u64,
    /// Attempts that failed and are repeated.
    pub repeated: u64,
    /// Rows of earlier runs that were in the spool at the start.
    pub found: Tally,
    /// Rows of earlier runs: acknowledged now.
    pub replayed: Tally,
    /// Rows of earlier runs that the receiver refused, or that the disk has lost.
    pub replay_lost: Tally,
}

impl DeliveryAccount {
    /// Counts rows as lost.
    pub(crate) fn lose(&mut self, cause: Cause, rows: Tally) {
        self.in_flight -= rows;
        self.lost[cause as usize] += rows;
        self.blocks_lost[cause as usize] += 1;
    }

    /// Counts a block as acknowledged.
    pub(crate) fn acknowledge(&mut self, block: &Block) {
        self.in_flight -= Tally::of(block);
        self.acknowledged += Tally::of(block);
        self.blocks += 1;
        self.bytes += block.bytes.len() as u64;
    }

    /// All that was lost.
    pub fn all_lost(&self) -> Tally {
        let mut all = Tally::default();
        self.lost.into_iter().for_each(|lost| all += lost);
        all
    }

    /// The packets as those of an output of this name: written are those acknowledged, or in the spool.
    pub fn output(&self, name: &str) -> OutputAccount {
        OutputAccount {
            lost: self.all_lost().packets,
            buffered: self.in_flight.packets,
            lost_by: CAUSES.into_iter().zip(self.lost.map(|lost| lost.packets)).collect(),
            ..OutputAccount::of_written(name, self.acknowledged.packets + self.spooled.packets)
        }
    }

    /// Whether each flow, row and packet is in one place.
    pub fn is_balanced(&self) -> bool {
        let mut all = self.all_lost();
        [self.acknowledged, self.spooled, self.in_flight].into_iter().for_each(|part| all += part);
        all == self.ended
    }
}
