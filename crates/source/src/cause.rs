//! Why packets were not sent, or not stored.

/// Why a packet was not sent, or not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DropReason {
    /// This host sent it, Tapline perhaps: sent again, packets would go round. No loss.
    Own,
    /// Not all of it was captured.
    Partial,
    /// Its link type is not that of the interface.
    LinkType,
    /// Shorter than the interface's link header.
    TooShort,
    /// Longer than the interface sends (`EMSGSIZE`).
    TooLong,
    /// The packet stands for several frames (segmentation offload), and the capture does not tell their size.
    Segments,
    /// Its checksum was left to an adapter, in a form that cannot be completed here.
    Checksum,
    /// The packet came from no interface that can be sent on: from a file, or from an interface that came later.
    NoInterface,
    /// The interface's queue was full for longer than the sender's patience, or refused it (`ENOBUFS`, `EAGAIN`).
    QueueFull,
    /// The interface was down or gone (`ENETDOWN`, `ENXIO`, `ENODEV`).
    Down,
    /// The kernel found it malformed (`EINVAL`).
    Malformed,
    /// Something else, which ended the sending.
    Other,
    /// The packet was beyond the cut-off of its flow (`tapline record --cut`). No loss.
    Cut,
    /// It came while a store had no buffer free (`tapline record --overload newest`).
    OverloadNewest,
    /// It waited longest for the disk of a store (`tapline record --overload oldest`).
    OverloadOldest,
    /// Its flow began while the disk of a store was too slow (`tapline record --overload flows`).
    OverloadFlows,
    /// Its flow had fewer packets than are exported (`tapline probe --min-packets`). No loss.
    SmallFlow,
    /// No reader of a published place of a graph wanted it. No loss.
    Unwanted,
    /// More waited for a receiver of chunks than the memory that is allowed.
    BatchMemory,
    /// A receiver of chunks refused it.
    BatchRefused,
    /// The spool of chunks was full, or its disk failed.
    BatchSpool,
    /// The run ended before a receiver of chunks took it, and there is no spool.
    BatchUndelivered,
}

const COUNT: usize = 22;

impl DropReason {
    /// All of them.
    pub const ALL: [DropReason; COUNT] = [
        DropReason::Own,
        DropReason::Partial,
        DropReason::LinkType,
        DropReason::TooShort,
        DropReason::TooLong,
        DropReason::Segments,
        DropReason::Checksum,
        DropReason::NoInterface,
        DropReason::QueueFull,
        DropReason::Down,
        DropReason::Malformed,
        DropReason::Other,
        DropReason::Cut,
        DropReason::OverloadNewest,
        DropReason::OverloadOldest,
        DropReason::OverloadFlows,
        DropReason::SmallFlow,
        DropReason::Unwanted,
        DropReason::BatchMemory,
        DropReason::BatchRefused,
        DropReason::BatchSpool,
        DropReason::BatchUndelivered,
    ];

    /// A few words for it, such as people read behind a number of packets.
    pub fn words(self) -> &'static str {
        match self {
            DropReason::Own => "sent by this host",
            DropReason::Partial => "not captured whole",
            DropReason::LinkType => "of another link type",
            DropReason::TooShort => "shorter than a link header",
            DropReason::TooLong => "longer than the MTU",
            DropReason::Segments => "not segmented yet",
            DropReason::Checksum => "without a checksum",
            DropReason::NoInterface => "from no interface to send on",
            DropReason::QueueFull => "queue full",
            DropReason::Down => "interface down",
            DropReason::Malformed => "malformed",
            DropReason::Other => "for other reasons",
            DropReason::Cut => "beyond the cut-off of their flow",
            DropReason::OverloadNewest => "lost: disk too slow, the newest given up",
            DropReason::OverloadOldest => "lost: disk too slow, the oldest given up",
            DropReason::OverloadFlows => "lost: disk too slow, new flows given up",
            DropReason::SmallFlow => "of flows with few packets",
            DropReason::Unwanted => "that no reader wanted",
            DropReason::BatchMemory => "lost: memory full",
            DropReason::BatchRefused => "lost: refused by the receiver",
            DropReason::BatchSpool => "lost: spool full",
            DropReason::BatchUndelivered => "lost: not delivered by the end",
        }
    }

    /// A name for machines.
    pub fn name(self) -> &'static str {
        match self {
            DropReason::Own => "own",
            DropReason::Partial => "partial",
            DropReason::LinkType => "link_type",
            DropReason::TooShort => "too_short",
            DropReason::TooLong => "too_long",
            DropReason::Segments => "segments",
            DropReason::Checksum => "checksum",
            DropReason::NoInterface => "no_interface",
            DropReason::QueueFull => "queue_full",
            DropReason::Down => "down",
            DropReason::Malformed => "malformed",
            DropReason::Other => "other",
            DropReason::Cut => "cut",
            DropReason::OverloadNewest => "overload_newest",
            DropReason::OverloadOldest => "overload_oldest",
            DropReason::OverloadFlows => "overload_flows",
            DropReason::SmallFlow => "small_flow",
            DropReason::Unwanted => "unwanted",
            DropReason::BatchMemory => "batch_memory",
            DropReason::BatchRefused => "batch_refused",
            DropReason::BatchSpool => "batch_spool",
            DropReason::BatchUndelivered => "batch_undelivered",
        }
    }

    /// Whether a packet that was not sent because of it is a loss.
    pub fn is_loss(self) -> bool {
        !matches!(self, DropReason::Own | DropReason::Cut | DropReason::SmallFlow | DropReason::Unwanted)
    }
}

/// Packets that were not sent, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropReasons([u64; COUNT]);

impl DropReasons {
    /// Counts packets.
    pub fn add(&mut self, cause: DropReason, packets: u64) {
        self.0[cause as usize] += packets;
    }

    /// Packets of a cause.
    pub fn of(&self, cause: DropReason) -> u64 {
        self.0[cause as usize]
    }

    /// The causes that there were, with their packets.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> {
        DropReason::ALL.into_iter().map(|cause| (cause, self.of(cause))).filter(|(_, packets)| *packets > 0)
    }

    /// Packets that are losses.
    pub fn lost(&self) -> u64 {
        self.iter().filter(|(cause, _)| cause.is_loss()).map(|(_, packets)| packets).sum()
    }

    /// Packets that were rightly left.
    pub fn left(&self) -> u64 {
        self.iter().filter(|(cause, _)| !cause.is_loss()).map(|(_, packets)| packets).sum()
    }

    /// Adds those of another sender.
    pub fn merge(&mut self, other: &DropReasons) {
        self.0.iter_mut().zip(other.0).for_each(|(ours, theirs)| *ours += theirs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_own_counter() {
        let mut causes = DropReasons::default();
        for (number, cause) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, number);
            causes.add(cause, 1 << number);
        }
        assert!(DropReason::ALL.iter().enumerate().all(|(number, cause)| causes.of(*cause) == 1 << number));
        let left = [DropReason::Own, DropReason::Cut, DropReason::SmallFlow, DropReason::Unwanted];
        let left = left.iter().map(|cause| 1 << *cause as u64).sum::<u64>();
        assert_eq!((causes.left(), causes.lost()), (left, (1 << COUNT) - 1 - left));
        let names: std::collections::HashSet<&str> =
            DropReason::ALL.into_iter().map(DropReason::name).collect();
        assert_eq!(names.len(), COUNT);
    }
}
