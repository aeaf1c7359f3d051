//! The account: the fate of every packet, before the engine and at the outputs. `graph::GraphAccount` joins the two.
//!
//! ```text
//! live:  received = counted in the kernel + dropped by the ring + unread at stop + delivered     (each interface)
//! file:  read     = delivered                                                (each interface)
//! tap:   offered  = lost between daemon and us + unread at stop + delivered  (each capture)
//! output: given   = written + lost + skipped + buffered                      (each output)
//! ```
//!
//! Losses before the ring (NIC, driver) are not part of these sums: the kernel never showed us those packets.
//! Counters are 64 bits wide. A count that cannot be known is [`Count::Unknown`], never zero.

use std::fmt;

use tapline_packet::LinkType;

use crate::{LossCounts, SkipCause};

/// A counter, or the statement that it is not counted anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// The number.
    Known(u64),
    /// The number cannot be known here.
    Unknown,
}

impl Count {
    /// The number, if known.
    pub fn known(self) -> Option<u64> {
        match self {
            Count::Known(n) => Some(n),
            Count::Unknown => None,
        }
    }

    /// The sum; unknown if one of both is.
    #[must_use]
    pub fn plus(self, other: Count) -> Count {
        match (self, other) {
            (Count::Known(a), Count::Known(b)) => Count::Known(a.saturating_add(b)),
            _ => Count::Unknown,
        }
    }
}

impl From<u64> for Count {
    fn from(number: u64) -> Count {
        Count::Known(number)
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Count::Known(n) => n.fmt(f),
            Count::Unknown => f.pad("unknown"),
        }
    }
}

tapline_packet::named_enum! {
    /// The point of a packet's path at which it was lost.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum LossPoint {
        /// In the network card: rtnetlink's statistics.
        Nic = "nic",
        /// In the driver: its own counters (`ethtool -S`).
        Driver = "driver",
        /// In the queue of each processor between driver and captures (`net.core.netdev_max_backlog`).
        Backlog = "backlog",
        /// At the time when the file that is read now was captured, as the file itself says.
        File = "file",
        /// In the daemon, or before it, while this program was its reader.
        Daemon = "daemon",
        /// On the way through a topic: the writer reported them, and they did not come.
        Topic = "topic",
        /// On an interface that is meant and could not be opened; the counter is the reason.
        Uncaptured = "uncaptured",
    }
}

/// A loss before the packets came to this program, under the name of its counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The point of the path.
    pub place: LossPoint,
    /// The counter's own name, such as `rx_missed_errors`.
    pub counter: String,
    /// Packets since the capture began.
    pub count: Count,
}

impl Loss {
    /// Whether the counter includes frames that the host merely had no use for, of unknown protocols or VLANs:
    /// `rx_dropped` does, though a capture got them.
    pub fn counts_unwanted_frames(&self) -> bool {
        self.place == LossPoint::Nic && self.counter == "rx_dropped"
    }
}

/// Failures to capture interfaces that are meant, each of a second or longer. An interface may fail several times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UncapturedCounts {
    /// Failures since the source was opened.
    pub begun: u64,
    /// Failures of `begun` that are over: the interface is captured by now, or was removed.
    pub ended: u64,
}

impl UncapturedCounts {
    /// Adds the failures of another worker, which sees the same interfaces, maybe a little later.
    pub fn merge(&mut self, other: UncapturedCounts) {
        self.begun = self.begun.max(other.begun);
        self.ended = self.ended.max(other.ended);
    }

    /// Adds the failures of another source.
    pub fn add(&mut self, more: UncapturedCounts) {
        self.begun = self.begun.saturating_add(more.begun);
        self.ended = self.ended.saturating_add(more.ended);
    }

    /// Interfaces that are not captured now.
    pub fn lasting(&self) -> u64 {
        self.begun.saturating_sub(self.ended)
    }
}

/// Counters of the kernel's capture ring (AF_PACKET): those of `PACKET_STATISTICS`, summed in 64 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingAccount {
    /// Packets that passed the kernel filter, including those for which the ring was then full.
    pub received: u64,
    /// Packets for which the ring was full.
    pub dropped: u64,
    /// Times that the ring froze because its next block had not been given back.
    pub freezes: u64,
    /// Packets still in the ring when the capture ended, not examined.
    pub unread: u64,
}

impl RingAccount {
    /// Adds the counters of another ring.
    pub fn add(&mut self, more: &RingAccount) {
        self.received += more.received;
        self.dropped += more.dropped;
        self.freezes += more.freezes;
        self.unread += more.unread;
    }
}

/// Further counters of AF_XDP, of all queues together. The ring's `dropped` is the sum of the first two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpAccount {
    /// Packets without free memory for them, or longer than it (`rx_dropped`).
    pub no_room: u64,
    /// Packets for which the RX ring had no place (`rx_ring_full`).
    pub ring_full: u64,
    /// Times that the fill ring was found empty (`rx_fill_ring_empty_descs`). In copy mode each of these packets is
    /// in `no_room` too; with zero copy the adapter waits, and its losses meanwhile are in its own counters.
    pub fill_empty: u64,
    /// Invalid descriptors (`rx_invalid_descs`): none, unless a driver has a fault.
    pub invalid: u64,
    /// Packets that came in several buffers and were joined. They are among those delivered.
    pub joined: u64,
}

impl XdpAccount {
    /// Packets lost between the XDP program and this program.
    pub fn lost(&self) -> u64 {
        self.no_room + self.ring_full
    }

    /// Adds the counters of another queue, or of another worker.
    pub fn merge(&mut self, other: &XdpAccount) {
        self.no_room += other.no_room;
        self.ring_full += other.ring_full;
        self.fill_empty += other.fill_empty;
        self.invalid += other.invalid;
        self.joined += other.joined;
    }
}

/// The fate of the packets that a capture of `tapline serve` had for this reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TapAccount {
    /// Packets meant for this reader, by the daemon's count.
    pub offered: u64,
    /// Packets for which the reader's index was full.
    pub index_full: u64,
    /// Packets overwritten in the buffer before the reader came to them.
    pub overwritten: u64,
    /// Packets with invalid records.
    pub damaged: u64,
    /// Packets not examined before the end.
    pub unread: u64,
    /// Interfaces of the capture: the counts above are those of all of them together.
    pub interfaces: usize,
}

impl TapAccount {
    /// Packets lost between the daemon and this reader.
    pub fn lost(&self) -> u64 {
        self.index_full.saturating_add(self.overwritten).saturating_add(self.damaged)
    }
}

/// Packets that a program in the kernel counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedPackets {
    /// Packets that the filter accepted.
    pub packets: u64,
    /// Bytes on the wire, as this host sees them: without preamble and check sequence.
    pub bytes: u64,
    /// Bytes with 60 for each shorter packet, as an Ethernet pads frames.
    pub padded_bytes: u64,
    /// Packets with a VLAN tag that the adapter took out, which the bytes include.
    pub tagged: u64,
}

/// Bytes of a VLAN tag.
const TAG_LEN: u64 = 4;

impl CountedPackets {
    /// Adds other counts.
    pub fn add(&mut self, more: &CountedPackets) {
        self.packets += more.packets;
        self.bytes += more.bytes;
        self.padded_bytes += more.padded_bytes;
        self.tagged += more.tagged;
    }

    /// The bytes without the tags that adapters took out: as stages count them on an interface.
    pub fn bytes_without_tags(&self) -> u64 {
        self.bytes.saturating_sub(TAG_LEN * self.tagged)
    }

    /// The counts since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &CountedPackets) -> CountedPackets {
        CountedPackets {
            packets: self.packets.saturating_sub(earlier.packets),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            padded_bytes: self.padded_bytes.saturating_sub(earlier.padded_bytes),
            tagged: self.tagged.saturating_sub(earlier.tagged),
        }
    }
}

/// The fate of the packets of one interface before they were lent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAccount {
    /// Name of the output.
    pub name: String,
    /// Losses in the NIC, in the driver, or as recorded in a file.
    pub losses: Vec<Loss>,
    /// Packets that the kernel's filter refused. AF_PACKET does not count them: known only if no filter ran there.
    /// AF_XDP: packets left to the host, as the XDP program counts them. A store: packets that its reading threads
    /// refused. Files: packets outside of the excerpt that is read.
    pub kernel_filtered: Count,
    /// The kernel's ring, or the receive buffer of a socket; `None` for files and generated packets.
    pub ring: Option<RingAccount>,
    /// Further counters of AF_XDP; `None` elsewhere. `ring` then counts the packets that the XDP program took.
    pub xdp: Option<XdpAccount>,
    /// Counts of a daemon's buffer; `None` elsewhere.
    pub tap: Option<TapAccount>,
    /// Packets that were counted in the kernel and ended there, of those that `ring` received; `None` where packets
    /// are lent.
    pub counted: Option<CountedPackets>,
    /// Whether it is a UDP socket, whose datagrams are the packets; `ring` then counts its receive buffer.
    pub is_socket: bool,
    /// Whether its packets were generated, neither captured nor read.
    pub is_generated: bool,
    /// Whether the counts are of a file that was not read to its end: there may be more packets in it.
    pub is_partial: bool,
    /// Failures to capture interfaces that have no row of their own, at least, if this is their row; else 0.
    pub further_failures: u64,
    /// Packets lent.
    pub delivered: u64,
}

impl InterfaceAccount {
    /// An interface of a file, from which `delivered` packets were lent.
    pub fn of_file(name: &str, delivered: u64) -> InterfaceAccount {
        InterfaceAccount {
            name: name.to_owned(),
            losses: Vec::new(),
            kernel_filtered: Count::Known(0),
            ring: None,
            xdp: None,
            tap: None,
            counted: None,
            is_generated: false,
            is_socket: false,
            is_partial: false,
            further_failures: 0,
            delivered,
        }
    }

    /// Packets that a generator made and lent.
    pub fn of_generated(name: &str, delivered: u64) -> InterfaceAccount {
        InterfaceAccount { is_generated: true, ..InterfaceAccount::of_file(name, delivered) }
    }

    /// An interface that is meant and could not be captured, and the reason.
    pub fn of_uncaptured(name: &str, why: &str) -> InterfaceAccount {
        let loss = Loss { place: LossPoint::Uncaptured, counter: why.to_owned(), count: Count::Unknown };
        InterfaceAccount {
            losses: vec![loss],
            ring: Some(RingAccount::default()),
            ..InterfaceAccount::of_file(name, 0)
        }
    }

    /// The row of all interfaces that could not be captured and have no row of their own. There were at least this many
    /// failures.
    pub fn of_further_uncaptured(failures: u64) -> InterfaceAccount {
        // No interface has a space in its name.
        let why = format!("at least {failures} more failures");
        InterfaceAccount {
            further_failures: failures,
            ..InterfaceAccount::of_uncaptured("further interfaces", &why)
        }
    }

    /// Packets known to be lost between the wire and this program.
    pub fn lost(&self) -> u64 {
        self.ring.map_or(0, |ring| ring.dropped).saturating_add(self.tap.map_or(0, |tap| tap.lost()))
    }

    /// Whether it could not be captured and no packet of it came: its row is behind those of interfaces with numbers.
    pub fn is_uncaptured(&self) -> bool {
        self.ring == Some(RingAccount::default())
            && self.losses.iter().any(|loss| loss.place == LossPoint::Uncaptured)
    }

    /// The sums that do not add up, in words.
    pub fn imbalance(&self) -> Option<String> {
        if let Some(tap) = self.tap {
            let sum = tap.lost().saturating_add(tap.unread).saturating_add(self.delivered);
            return (tap.offered != sum).then(|| {
                format!(
                    "{}: offered {} but lost {} + unread {} + delivered {} = {sum}",
                    self.name,
                    tap.offered,
                    tap.lost(),
                    tap.unread,
                    self.delivered
                )
            });
        }
        let ring = self.ring?;
        let counted = self.counted.map_or(0, |counted| counted.packets);
        let sum = counted + ring.dropped + ring.unread + self.delivered;
        (ring.received != sum).then(|| {
            format!(
                "{}: received {} but counted {counted} + dropped {} + unread {} + delivered {} = {sum}",
                self.name, ring.received, ring.dropped, ring.unread, self.delivered
            )
        })
    }
}

/// The fate of the packets that an output was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputAccount {
    /// The output: a file's name, `text`, `json`.
    pub name: String,
    /// Packets stored or printed whole.
    pub written: u64,
    /// Packets that could not be sent or stored: disk full, broken pipe.
    pub lost: u64,
    /// Lost packets by cause, as far as the output names it.
    pub lost_by: LossCounts,
    /// Packets in a buffer on their way out; 0 once the output is finished.
    pub buffered: u64,
    /// Packets left out on purpose, and why; `None` at outputs that take all.
    pub skipped: Option<(SkipCause, u64)>,
}

impl OutputAccount {
    /// The account of an output that has written all packets.
    pub fn of_written(name: &str, written: u64) -> OutputAccount {
        OutputAccount { name: name.to_owned(), written, ..OutputAccount::default() }
    }

    /// Packets whose fate is known.
    pub fn total(&self) -> u64 {
        self.written + self.lost + self.skipped() + self.buffered
    }

    /// Packets left out on purpose.
    pub fn skipped(&self) -> u64 {
        self.skipped.map_or(0, |(_, packets)| packets)
    }

    /// Adds the counts of another output of this name, which skips packets for the same cause.
    pub fn merge(&mut self, other: &OutputAccount) {
        self.written += other.written;
        self.lost += other.lost;
        self.buffered += other.buffered;
        self.lost_by.merge(&other.lost_by);
        self.skipped = match (self.skipped, other.skipped) {
            (Some((cause, ours)), Some((_, theirs))) => Some((cause, ours + theirs)),
            (ours, theirs) => ours.or(theirs),
        };
    }
}

/// The engines that run filters in user space. Several interfaces and workers have their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterAccount {
    /// Filters that the interpreter runs.
    pub interpreted: u64,
    /// Filters that run as native code.
    pub compiled: u64,
    /// Packets that were interpreted before native code was ready, in the first worker to change; `None` as long as
    /// none has.
    pub compiled_after: Option<u64>,
    /// Reason why a filter has no native code; `None` if none was tried, or all have it.
    pub reason: Option<String>,
    /// Link types that cannot have the filter, and their packets, which were refused.
    pub unfit: Vec<UnfitLinkType>,
    /// Packets with a VLAN tag among the first that the filter refused, for a hint where it accepts none: at least
    /// so many.
    pub tagged: u64,
}

/// A link type that cannot have a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfitLinkType {
    /// The link type.
    pub link_type: LinkType,
    /// Reason why, as the compiler gives it.
    pub reason: String,
    /// Packets that were refused because of it.
    pub packets: u64,
}

impl UnfitLinkType {
    /// The reason in one line.
    pub fn clause(&self) -> String {
        let (link_type, reason) = (self.link_type, self.reason.lines().next().unwrap_or_default());
        format!(
            "its link type {link_type} does not support this filter, so its packets are not accepted: {reason}"
        )
    }
}

impl FilterAccount {
    /// Adds the counts of another worker, or of another stage.
    pub fn merge(&mut self, other: FilterAccount) {
        self.interpreted += other.interpreted;
        self.compiled += other.compiled;
        self.compiled_after = [self.compiled_after, other.compiled_after].into_iter().flatten().min();
        self.reason = self.reason.take().or(other.reason);
        self.tagged += other.tagged;
        for theirs in other.unfit {
            match self.unfit.iter_mut().find(|ours| ours.link_type == theirs.link_type) {
                Some(ours) => ours.packets += theirs.packets,
                None => self.unfit.push(theirs),
            }
        }
    }
}

/// Adds another worker's interfaces to ours: those of one name are one interface. Where a file describes several of one
/// name, those at one place are one. Behind them are those that no worker captures.
pub fn merge_interfaces(ours: &mut Vec<InterfaceAccount>, theirs: Vec<InterfaceAccount>) {
    if ours.is_empty() {
        *ours = theirs;
        return;
    }
    for (at, theirs) in theirs.into_iter().enumerate() {
        let is_same = |ours: &InterfaceAccount| ours.name == theirs.name;
        let at = match ours.get(at) {
            Some(ours) if is_same(ours) => Some(at),
            _ => ours.iter().position(is_same),
        };
        match at {
            Some(at) => ours[at].merge(theirs),
            None => ours.push(theirs),
        }
    }
    ours.sort_by_key(InterfaceAccount::is_uncaptured);
}

impl InterfaceAccount {
    /// Adds the counts of another worker for the same interface. Losses in NIC and driver are those of the interface,
    /// not of the worker: every worker reads the same counters, so the larger reading holds.
    fn merge(&mut self, other: InterfaceAccount) {
        if other.further_failures > 0 {
            // Nothing else is in such a row. All workers see the same interfaces.
            if other.further_failures > self.further_failures {
                *self = other;
            }
            return;
        }
        for theirs in other.losses {
            let is_same = |ours: &&mut Loss| ours.place == theirs.place && ours.counter == theirs.counter;
            match self.losses.iter_mut().find(is_same) {
                Some(ours) => ours.count = larger(ours.count, theirs.count),
                None => self.losses.push(theirs),
            }
        }
        self.kernel_filtered = self.kernel_filtered.plus(other.kernel_filtered);
        self.delivered += other.delivered;
        self.is_partial |= other.is_partial;
        self.ring = both(self.ring, other.ring, RingAccount::add);
        self.counted = both(self.counted, other.counted, CountedPackets::add);
        self.xdp = both(self.xdp, other.xdp, XdpAccount::merge);
    }
}

/// The sum of two accounts, of which one or both may not be there.
fn both<T>(ours: Option<T>, theirs: Option<T>, add: fn(&mut T, &T)) -> Option<T> {
    match (ours, theirs) {
        (Some(mut ours), Some(theirs)) => {
            add(&mut ours, &theirs);
            Some(ours)
        }
        (ours, theirs) => ours.or(theirs),
    }
}

fn larger(a: Count, b: Count) -> Count {
    match (a, b) {
        (Count::Known(a), Count::Known(b)) => Count::Known(a.max(b)),
        _ => Count::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> InterfaceAccount {
        let ring = Some(RingAccount { received: 10, dropped: 2, freezes: 1, unread: 1 });
        InterfaceAccount { ring, ..InterfaceAccount::of_file("eth0", 7) }
    }

    #[test]
    fn a_missing_packet_is_an_imbalance() {
        let whole = account();
        assert_eq!((whole.imbalance(), whole.lost()), (None, 2));
        assert!(InterfaceAccount { delivered: 8, ..whole }.imbalance().is_some());
    }

    #[test]
    fn workers_add_up_to_one_interface() {
        let mut sum = vec![account()];
        merge_interfaces(&mut sum, vec![account()]);
        assert_eq!((sum.len(), sum[0].delivered, sum[0].lost(), sum[0].imbalance()), (1, 14, 4, None));
    }

    #[test]
    fn interfaces_that_no_worker_captures_are_the_last() {
        let captured = |name: &str| InterfaceAccount { name: name.to_owned(), ..account() };
        let uncaptured = |name: &str| InterfaceAccount::of_uncaptured(name, "no socket");
        let mut sum = vec![captured("a"), uncaptured("b"), uncaptured("c")];
        merge_interfaces(&mut sum, vec![captured("a"), captured("c"), uncaptured("b")]);
        let names: Vec<&str> = sum.iter().map(|interface| interface.name.as_str()).collect();
        assert_eq!(names, ["a", "c", "b"]);
        assert!(!sum[1].is_uncaptured() && sum[1].losses.len() == 1);
    }

    /// The workers differ only in how early each notices a failure.
    #[test]
    fn further_failures_of_workers_are_the_same_ones() {
        let further = |failures| vec![InterfaceAccount::of_further_uncaptured(failures)];
        let mut sum = further(9);
        for failures in [12, 101, 11, 99] {
            merge_interfaces(&mut sum, further(failures));
        }
        assert_eq!(sum, further(101));
        assert!(sum[0].is_uncaptured());
    }

    #[test]
    fn interfaces_of_one_name_stay_apart() {
        let of = |delivered: [u64; 3]| {
            let named = ["eth0", "eth0", "eth1"].into_iter().zip(delivered);
            named.map(|(name, delivered)| InterfaceAccount::of_file(name, delivered)).collect::<Vec<_>>()
        };
        let mut sum = Vec::new();
        merge_interfaces(&mut sum, of([1, 2, 3]));
        merge_interfaces(&mut sum, of([10, 20, 30]));
        assert_eq!(sum, of([11, 22, 33]));
        merge_interfaces(&mut sum, vec![InterfaceAccount::of_file("eth1", 100)]);
        assert_eq!(sum, of([11, 22, 133]));
    }
}
