//! What the meter did.

use crate::{EndReason, Refused};

/// Why a packet belongs to no flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Cause {
    /// It is no IP packet, or its link type is not known here.
    NotIp = 0,
    /// What tells its flow was not captured, or does not fit into its lengths.
    Cut = 1,
    /// It was not chosen by sampling.
    Sampled = 2,
}

impl Cause {
    /// All of them.
    pub const ALL: [Cause; 3] = [Cause::NotIp, Cause::Cut, Cause::Sampled];

    /// Words for it.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::NotIp => "not IP",
            Cause::Cut => "headers cut short",
            Cause::Sampled => "sampled out",
        }
    }
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Packets.
    pub packets: u64,
    /// Bytes: of frames, as they were on the wire.
    pub bytes: u64,
}

impl Tally {
    /// One packet more.
    #[inline]
    pub fn add(&mut self, bytes: u64) {
        self.packets += 1;
        self.bytes += bytes;
    }

    /// Adds another tally.
    pub fn merge(&mut self, other: Tally) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// How many flows ended, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends([u64; 5]);

impl Ends {
    /// How many ended for this reason.
    pub fn of(&self, reason: EndReason) -> u64 {
        self.0[reason as usize - 1]
    }

    pub(crate) fn count(&mut self, reason: EndReason) {
        self.0[reason as usize - 1] += 1;
    }

    /// How many ended at all.
    pub fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Adds those of another meter.
    pub fn merge(&mut self, other: &Ends) {
        self.0.iter_mut().zip(other.0).for_each(|(ours, theirs)| *ours += theirs);
    }
}

/// What a meter did. Always: packets read = metered + not metered, flows made = ended + active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets that belong to flows, with the bytes of their frames.
    pub metered: Tally,
    /// The bytes of these packets as flows count them.
    pub flow_bytes: u64,
    /// Packets that belong to none, by [`Cause`].
    pub not_metered: [Tally; Cause::ALL.len()],
    /// Flows begun.
    pub made: u64,
    /// Flows ended.
    pub ended: Ends,
    /// Flows in the table now.
    pub active: u64,
    /// The most that were there at once; of several meters the sum of what each had, at whatever time.
    pub active_max: u64,
    /// How many flows the table has room for.
    pub flows_max: u64,
    /// The most buckets of the index that a look-up had to read, since the index grew last.
    pub chain_max: u64,
    /// Later fragments whose first one was known.
    pub fragments_joined: u64,
    /// Later fragments without their first: they are flows without ports.
    pub fragments_alone: u64,
    /// Packets that were older than one before them.
    pub late: u64,
    /// Packets whose time was later than [`Meter::set_latest`](crate::Meter::set_latest) allows.
    pub ahead: u64,
    /// Details for which there was no room.
    pub refused: Refused,
}

impl Statistics {
    /// Packets and bytes that came, metered or not.
    pub fn read(&self) -> Tally {
        let mut read = self.metered;
        self.not_metered.iter().for_each(|tally| read.merge(*tally));
        read
    }

    /// Adds what another meter did.
    pub fn merge(&mut self, other: &Statistics) {
        self.metered.merge(other.metered);
        self.flow_bytes += other.flow_bytes;
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
