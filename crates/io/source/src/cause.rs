//! Causes of lost packets, and of packets left out on purpose.

/// Cause of a loss at an output: the packet should have been sent or stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossCause {
    /// Not all of it was captured.
    Partial,
    /// The link type is not that of the interface, or not one that the file can hold.
    LinkType,
    /// Shorter than the interface's link header.
    TooShort,
    /// Longer than the interface sends (`EMSGSIZE`).
    TooLong,
    /// The packet is made of several frames (segmentation offload), and the capture does not have their size.
    Segments,
    /// The checksum was left to an adapter, in a form that cannot be completed here.
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
    /// The packet came while a store had no buffer free (`tapline record --overload newest`).
    OverloadNewest,
    /// The packet waited longest for the disk of a store (`tapline record --overload oldest`).
    OverloadOldest,
    /// The packet's flow began while the disk of a store was too slow (`tapline record --overload flows`).
    OverloadFlows,
    /// More waited for a receiver of chunks than the memory that is allowed.
    BatchMemory,
    /// A receiver of chunks refused it.
    BatchRefused,
    /// The spool of chunks was full, or its disk failed.
    BatchSpool,
    /// The run ended before a receiver of chunks took it, and there is no spool.
    BatchUndelivered,
}

const COUNT: usize = 18;

impl LossCause {
    /// Each cause with its name for machines and its words for people, in the order of the variants.
    const TABLE: [(LossCause, &'static str, &'static str); COUNT] = [
        (LossCause::Partial, "partial", "not captured whole"),
        (LossCause::LinkType, "link_type", "of another link type"),
        (LossCause::TooShort, "too_short", "shorter than a link header"),
        (LossCause::TooLong, "too_long", "longer than the MTU"),
        (LossCause::Segments, "segments", "not segmented yet"),
        (LossCause::Checksum, "checksum", "without a checksum"),
        (LossCause::NoInterface, "no_interface", "from no interface to send on"),
        (LossCause::QueueFull, "queue_full", "queue full"),
        (LossCause::Down, "down", "interface down"),
        (LossCause::Malformed, "malformed", "malformed"),
        (LossCause::Other, "other", "for other reasons"),
        (LossCause::OverloadNewest, "overload_newest", "disk too slow, the newest dropped"),
        (LossCause::OverloadOldest, "overload_oldest", "disk too slow, the oldest dropped"),
        (LossCause::OverloadFlows, "overload_flows", "disk too slow, new flows dropped"),
        (LossCause::BatchMemory, "batch_memory", "memory full"),
        (LossCause::BatchRefused, "batch_refused", "refused by the receiver"),
        (LossCause::BatchSpool, "batch_spool", "spool full"),
        (LossCause::BatchUndelivered, "batch_undelivered", "not delivered by the end"),
    ];

    /// Returns a few words that people read behind a number of packets.
    pub fn words(self) -> &'static str {
        LossCause::TABLE[self as usize].2
    }

    /// Returns its name for machines.
    pub fn name(self) -> &'static str {
        LossCause::TABLE[self as usize].1
    }
}

tapline_packet::named_enum! {
    /// Cause for which an output leaves packets out on purpose.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum SkipCause {
        /// This host sent it, Tapline perhaps: sent again, packets would go round.
        Own = "own",
        /// The packet was beyond the cut-off of its flow (`tapline record --cut`).
        Cut = "cut",
        /// The packet's flow had fewer packets than are exported (`tapline probe --min-packets`).
        SmallFlow = "small_flow",
        /// The packet's flow has too few bytes, or directions that are not exported (`tapline probe --min-bytes`,
        /// `--directions`).
        LeftOutFlow = "left_out_flow",
        /// No reader of a published place of a graph wanted it.
        Unwanted = "unwanted",
    }
}

impl SkipCause {
    /// Returns a few words that people read behind a number of packets.
    pub fn words(self) -> &'static str {
        match self {
            SkipCause::Own => "sent by this host",
            SkipCause::Cut => "beyond the cut-off of their flow",
            SkipCause::SmallFlow => "of flows with few packets",
            SkipCause::LeftOutFlow => "of flows that were left out",
            SkipCause::Unwanted => "that no reader wanted",
        }
    }
}

/// Packets lost at an output, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossCounts([u64; COUNT]);

impl LossCounts {
    /// Counts packets.
    pub fn add(&mut self, cause: LossCause, packets: u64) {
        self.0[cause as usize] += packets;
    }

    /// Returns the causes that there were, with their packets.
    pub fn iter(&self) -> impl Iterator<Item = (LossCause, u64)> {
        LossCause::TABLE
            .into_iter()
            .zip(self.0)
            .map(|((cause, ..), packets)| (cause, packets))
            .filter(|(_, packets)| *packets > 0)
    }

    /// Returns the packets of all causes.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Adds those of another output.
    pub fn merge(&mut self, other: &LossCounts) {
        self.0.iter_mut().zip(other.0).for_each(|(ours, theirs)| *ours += theirs);
    }
}

impl FromIterator<(LossCause, u64)> for LossCounts {
    fn from_iter<I: IntoIterator<Item = (LossCause, u64)>>(losses: I) -> LossCounts {
        let mut counts = LossCounts::default();
        losses.into_iter().for_each(|(cause, packets)| counts.add(cause, packets));
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_own_counter_and_name() {
        let all =
            || LossCause::TABLE.into_iter().enumerate().map(|(number, (cause, ..))| (cause, 1 << number));
        let counts: LossCounts = all().collect();
        assert!(all().enumerate().all(|(number, (cause, _))| cause as usize == number));
        assert!(counts.iter().eq(all()));
        assert_eq!(counts.total(), (1 << COUNT) - 1);
        let names: std::collections::HashSet<&str> = LossCause::TABLE.iter().map(|row| row.1).collect();
        assert_eq!(names.len(), COUNT);
    }
}
