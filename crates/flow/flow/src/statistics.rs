//! Counters of a meter.

use crate::{EndReason, RefusedDetails};

tapline_packet::named_enum! {
    /// The cause for which a packet was not metered.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(usize)]
    pub enum UnmeteredCause {
        /// No IP packet, or an unknown link type.
        NotIp = "not IP",
        /// Headers that the flow key needs were not captured, or exceed the lengths of the packet.
        Cut = "headers cut short",
        /// Not selected by sampling.
        Sampled = "sampled out",
    }
}

/// A count of packets and of their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCount {
    /// Packets.
    pub packets: u64,
    /// Bytes of frames, by their length on the wire.
    pub bytes: u64,
}

impl PacketCount {
    /// Counts one packet of `bytes` bytes.
    #[inline]
    pub fn add(&mut self, bytes: u64) {
        self.packets += 1;
        self.bytes += bytes;
    }

    /// Adds another count. A sum beyond 64 bits, which only forged records reach, stays at the greatest number.
    pub fn merge(&mut self, other: PacketCount) {
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Counts of ended flows by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndCounts([u64; 5]);

impl EndCounts {
    /// Flows that ended for this reason.
    pub fn of(&self, reason: EndReason) -> u64 {
        (reason as usize).checked_sub(1).map_or(0, |at| self.0[at])
    }

    /// Counts a flow that ended for this reason; an unknown one is not counted.
    pub fn count(&mut self, reason: EndReason) {
        if let Some(at) = (reason as usize).checked_sub(1) {
            self.0[at] += 1;
        }
    }

    /// Flows that ended for any reason.
    pub fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Adds the counts of another meter.
    pub fn merge(&mut self, other: &EndCounts) {
        self.0.iter_mut().zip(other.0).for_each(|(ours, theirs)| *ours += theirs);
    }
}

/// Counters of a meter. At any time packets read = metered + not metered, and flows made = ended + active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Metered packets, with the bytes of their frames.
    pub metered: PacketCount,
    /// The bytes of metered packets as the flows count them.
    pub flow_bytes: u64,
    /// Packets not metered, by [`UnmeteredCause`].
    pub not_metered: [PacketCount; UnmeteredCause::ALL.len()],
    /// Flows created.
    pub made: u64,
    /// Flows ended.
    pub ended: EndCounts,
    /// Flows in the table now.
    pub active: u64,
    /// The greatest number of flows at one time; for several meters the sum of their maxima.
    pub active_max: u64,
    /// The capacity of the table, in flows.
    pub flows_max: u64,
    /// The greatest number of index buckets read by a look-up since the index grew last.
    pub chain_max: u64,
    /// Later fragments that were metered with the ports of their first fragment.
    pub fragments_joined: u64,
    /// Later fragments whose first fragment is unknown; they are metered with ports 0.
    pub fragments_alone: u64,
    /// Packets older than a packet before them.
    pub late: u64,
    /// Packets with a time stamp later than [`Meter::set_latest`](crate::Meter::set_latest) allows.
    pub ahead: u64,
    /// Details for which the memory was full.
    pub refused: RefusedDetails,
}

impl Statistics {
    /// All packets read, metered or not.
    pub fn read(&self) -> PacketCount {
        let mut read = self.metered;
        self.not_metered.iter().for_each(|count| read.merge(*count));
        read
    }

    /// Adds the counters of another meter.
    pub fn merge(&mut self, other: &Statistics) {
        self.metered.merge(other.metered);
        self.flow_bytes = self.flow_bytes.saturating_add(other.flow_bytes);
        self.not_metered.iter_mut().zip(other.not_metered).for_each(|(ours, theirs)| ours.merge(theirs));
        self.made += other.made;
        self.ended.merge(&other.ended);
        self.active += other.active;
        self.active_max += other.active_max;
        self.flows_max += other.flows_max;
        self.chain_max = self.chain_max.max(other.chain_max);
        self.fragments_joined += other.fragments_joined;
        self.fragments_alone += other.fragments_alone;
        self.late += other.late;
        self.ahead += other.ahead;
        self.refused.merge(other.refused);
    }
}
