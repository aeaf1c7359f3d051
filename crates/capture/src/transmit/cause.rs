//! Why packets were not sent, or not stored.

/// Why a packet was not sent, or not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
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
    /// It stands for several frames (segmentation offload), whose size the capture does not tell.
    Segments,
    /// Its checksum was left to an adapter, in a form that cannot be completed here.
    Checksum,
    /// It came from no interface that can be sent on: from a file, or from one that came later.
    NoInterface,
    /// The interface's queue was full for longer than the sender's patience, or refused it (`ENOBUFS`, `EAGAIN`).
    QueueFull,
    /// The interface was down or gone (`ENETDOWN`, `ENXIO`, `ENODEV`).
    Down,
    /// The kernel found it malformed (`EINVAL`).
    Malformed,
    /// Something else, which ended the sending.
    Other,
    /// It was beyond the cut-off of its flow (`tapline record --cut`). No loss.
    Cut,
    /// It came while a store had no buffer free (`tapline record --overload newest`).
    OverloadNewest,
    /// It waited longest for the disk of a store (`tapline record --overload oldest`).
    OverloadOldest,
    /// Its flow began while the disk of a store was too slow (`tapline record --overload flows`).
    OverloadFlows,
}

const COUNT: usize = 16;

impl Cause {
    /// All of them.
    pub const ALL: [Cause; COUNT] = [
        Cause::Own,
        Cause::Partial,
        Cause::LinkType,
        Cause::TooShort,
        Cause::TooLong,
        Cause::Segments,
        Cause::Checksum,
        Cause::NoInterface,
        Cause::QueueFull,
        Cause::Down,
        Cause::Malformed,
        Cause::Other,
        Cause::Cut,
        Cause::OverloadNewest,
        Cause::OverloadOldest,
        Cause::OverloadFlows,
    ];

    /// A few words for it, such as people read behind a number of packets.
    pub fn words(self) -> &'static str {
        match self {
            Cause::Own => "sent by this host",
            Cause::Partial => "not captured whole",
            Cause::LinkType => "of another link type",
            Cause::TooShort => "shorter than a link header",
            Cause::TooLong => "longer than the MTU",
            Cause::Segments => "not segmented yet",
            Cause::Checksum => "without a checksum",
            Cause::NoInterface => "from no interface to send on",
            Cause::QueueFull => "queue full",
            Cause::Down => "interface down",
            Cause::Malformed => "malformed",
            Cause::Other => "for other reasons",
            Cause::Cut => "beyond the cut-off of their flow",
            Cause::OverloadNewest => "lost: disk too slow, the newest given up",
            Cause::OverloadOldest => "lost: disk too slow, the oldest given up",
            Cause::OverloadFlows => "lost: disk too slow, new flows given up",
        }
    }

    /// A name for machines.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Own => "own",
            Cause::Partial => "partial",
            Cause::LinkType => "link_type",
            Cause::TooShort => "too_short",
            Cause::TooLong => "too_long",
            Cause::Segments => "segments",
            Cause::Checksum => "checksum",
            Cause::NoInterface => "no_interface",
            Cause::QueueFull => "queue_full",
            Cause::Down => "down",
            Cause::Malformed => "malformed",
            Cause::Other => "other",
            Cause::Cut => "cut",
            Cause::OverloadNewest => "overload_newest",
            Cause::OverloadOldest => "overload_oldest",
            Cause::OverloadFlows => "overload_flows",
        }
    }

    /// Whether a packet that was not sent because of it is a loss.
    pub fn is_loss(self) -> bool {
        !matches!(self, Cause::Own | Cause::Cut)
    }

    /// The cause that an error number of a send call stands for; `None` if it says nothing of it.
    pub(super) fn of_errno(errno: i32) -> Option<Cause> {
        match errno {
            // EAGAIN, ENOMEM, ENOBUFS
            11 | 12 | 105 => Some(Cause::QueueFull),
            // EMSGSIZE
            90 => Some(Cause::TooLong),
            // ENXIO, ENODEV, ENETDOWN
            6 | 19 | 100 => Some(Cause::Down),
            // EINVAL
            22 => Some(Cause::Malformed),
            _ => None,
        }
    }
}

/// Packets that were not sent, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Causes([u64; COUNT]);

impl Causes {
    /// Counts packets.
    pub fn add(&mut self, cause: Cause, packets: u64) {
        self.0[cause as usize] += packets;
    }

    /// Packets of a cause.
    pub fn of(&self, cause: Cause) -> u64 {
        self.0[cause as usize]
    }

    /// The causes that there were, with their packets.
    pub fn iter(&self) -> impl Iterator<Item = (Cause, u64)> {
        Cause::ALL.into_iter().map(|cause| (cause, self.of(cause))).filter(|(_, packets)| *packets > 0)
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
    pub fn merge(&mut self, other: &Causes) {
        self.0.iter_mut().zip(other.0).for_each(|(ours, theirs)| *ours += theirs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_own_counter() {
        let mut causes = Causes::default();
        for (number, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, number);
            causes.add(cause, 1 << number);
        }
        assert!(Cause::ALL.iter().enumerate().all(|(number, cause)| causes.of(*cause) == 1 << number));
        let left = 1 << Cause::Own as u64 | 1 << Cause::Cut as u64;
        assert_eq!((causes.left(), causes.lost()), (left, (1 << COUNT) - 1 - left));
        let names: std::collections::HashSet<&str> = Cause::ALL.into_iter().map(Cause::name).collect();
        assert_eq!(names.len(), COUNT);
    }
}
