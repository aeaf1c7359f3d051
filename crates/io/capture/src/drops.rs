//! Packets that the kernel drops in a network namespace, each with the reason, as a source.
//!
//! ```text
//! kernel: kfree_skb(packet, place, reason) --program--> record --ring--> packet with a comment and a label
//! packet  := IPv4 or IPv6 (link type RAW), options (opt_comment)
//!
//! seen (by the program) = refused (no IP header, or not filled) + no room + unread + delivered
//! ```
//!
//! Offsets of the packet's structure come from the kernel's type information.

mod program;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use tapline_packet::{BATCH_MAX, Batch, Interface, InterfaceId, LinkType, Meta, Record, Timestamp};
use tapline_source::{Advance, Count, Error, Event, InterfaceAccount, RingAccount, Source};
use tapline_sys::bpf::{MissedRuns, RecordRing, SharedArray, TracepointLink, kernel_enumeration};
use tapline_sys::{NetNs, Poller, Wakeup, clock};

use program::{
    BYTES, COUNTERS_LEN, HEAD_LEN, NAME, NO_ROOM, Offsets, PROTOCOLS, REFUSED, SEEN, UNKNOWN, refusal,
};

/// Bytes of the ring: some 14,000 records.
const RING_LEN: u32 = 4 << 20;
/// Bytes of the shortest and of the longest ring.
const RING_LENS: [u32; 2] = [64 << 10, 1 << 31];
/// Time for programs on other processors to end, if the kernel does not say when.
const GRACE: Duration = Duration::from_millis(50);
/// `SKB_DROP_REASON_NOT_SPECIFIED`: the place in the kernel gives no reason.
const NOT_SPECIFIED: &str = "not_specified";

/// Settings of [`DroppedPackets`].
#[derive(Clone, Debug, Default)]
pub struct DropSettings {
    /// The network namespace, as [`NetNs::open`] takes it; `None` for our own.
    pub netns: Option<String>,
    /// The most bytes to keep of a packet, from its IP header on; 0 for as many as there are: 240.
    pub snap_len: u32,
    /// Bytes of the ring, rounded up to a power of two; `None` for 4 MiB.
    pub ring_len: Option<u64>,
    /// The filter that readers run, for the description of the interface.
    pub filter_text: String,
}

/// A source of the packets that the kernel drops in one network namespace. Opening needs `CAP_BPF` and `CAP_PERFMON`,
/// for another namespace `CAP_SYS_ADMIN` too, and Linux 5.17 with type information; nothing afterwards.
///
/// No filter runs in front of it: [`Source::is_filtered`] is false.
pub struct DroppedPackets {
    interfaces: Vec<Interface>,
    /// Dropped at the stop: nothing comes from then on.
    link: Option<TracepointLink>,
    missed: MissedRuns,
    /// Keeps the number of the namespace in use.
    _namespace: Option<NetNs>,
    ring: RecordRing,
    ring_len: u32,
    counters: SharedArray,
    reasons: BTreeMap<u32, Reason>,
    /// The comment of a reason without a name.
    unnamed: String,
    bytes: Vec<u8>,
    records: Vec<Record>,
    poller: Poller,
    wakeup: Arc<Wakeup>,
    delivered: u64,
    /// Records without an IP header.
    headless: u64,
    /// Packets without a reason that the kernel names.
    unexplained: u64,
    has_reported: bool,
    has_batch: bool,
}

impl DroppedPackets {
    /// Name of this source, in place of an interface's.
    pub const NAME: &str = "drops:";
    /// Link type of the packets.
    pub const LINK_TYPE: LinkType = LinkType::RAW;
    /// Subject of errors, and name of the interface in files and in the account.
    const LABEL: &str = "drops";

    /// Begins to capture.
    ///
    /// # Errors
    /// The kernel lacks type information, the tracepoint or its reasons, we lack the rights, or there is no such
    /// namespace.
    pub fn open(settings: &DropSettings) -> Result<DroppedPackets, Error> {
        DroppedPackets::begin(settings).map_err(|what| Error::source(DroppedPackets::LABEL, what))
    }

    fn begin(settings: &DropSettings) -> Result<DroppedPackets, String> {
        let (number, namespace) = namespace(settings.netns.as_deref())?;
        let ring_len = ring_len(settings.ring_len)?;
        let offsets = Offsets::of_kernel()?;
        let reasons = reasons()?;
        let ring = RecordRing::create(NAME, ring_len).map_err(|error| refusal(&error, &error))?;
        let counters = SharedArray::create(NAME, COUNTERS_LEN, 1).map_err(|error| refusal(&error, &error))?;
        let attached = program::attach(&ring, &counters, &offsets, number)?;
        let missed = MissedRuns::of(attached.program).map_err(|error| format!("/proc/self: {error}"))?;
        let wakeup = Wakeup::new().map_err(|error| error.to_string())?;
        let snap_len = if settings.snap_len == 0 { BYTES } else { settings.snap_len.min(BYTES) };
        let interface = Interface {
            snap_len,
            fcs_len: Some(0),
            filter: settings.filter_text.clone(),
            ..Interface::new(DroppedPackets::LABEL, DroppedPackets::LINK_TYPE)
        };
        Ok(DroppedPackets {
            interfaces: vec![interface],
            link: Some(attached.link),
            missed,
            _namespace: namespace,
            ring,
            ring_len,
            counters,
            reasons,
            unnamed: String::new(),
            bytes: Vec::new(),
            records: Vec::with_capacity(BATCH_MAX),
            poller: Poller::new(),
            wakeup: Arc::new(wakeup),
            delivered: 0,
            headless: 0,
            unexplained: 0,
            has_reported: false,
            has_batch: false,
        })
    }

    /// Whether this is the interface of such a source.
    pub fn is_its(interface: &Interface) -> bool {
        let (label, link_type) = (DroppedPackets::LABEL, DroppedPackets::LINK_TYPE);
        interface.name == label && interface.link_type == link_type && interface.if_index == 0
    }

    /// Bytes of the ring.
    pub fn ring_len(&self) -> u32 {
        self.ring_len
    }

    /// Makes packets of records that wait; says whether there are any. Records without an IP header are passed over, as
    /// many as the ring holds: after the stop none is left then.
    fn take(&mut self) -> bool {
        self.bytes.clear();
        self.records.clear();
        let rounds = self.ring_len / (HEAD_LEN + BYTES) / BATCH_MAX as u32 + 1;
        for _ in 0..rounds {
            if self.take_some() == 0 || !self.records.is_empty() {
                break;
            }
        }
        self.delivered += self.records.len() as u64;
        !self.records.is_empty()
    }

    /// Takes a batch of records at most. Returns their number.
    fn take_some(&mut self) -> usize {
        let DroppedPackets {
            interfaces, ring, bytes, records, reasons, unnamed, headless, unexplained, ..
        } = self;
        let snap_len = interfaces[0].snap_len as usize;
        // Records have the time since the start of the machine.
        let since_1970 = clock::realtime_ns().saturating_sub_unsigned(clock::monotonic_ns());
        ring.read(BATCH_MAX, |record| {
            let Some(dropped) = Dropped::parse(record) else {
                *headless += 1;
                return;
            };
            let reason = reasons.get(&dropped.reason);
            *unexplained += u64::from(reason.is_none_or(|reason| !reason.is_specified));
            let data = &dropped.data[..dropped.data.len().min(snap_len)];
            let offset = bytes.len();
            bytes.extend_from_slice(data);
            bytes.resize(offset + data.len().next_multiple_of(4), 0);
            let words =
                reason.map_or_else(|| unnamed_reason(unnamed, dropped.reason), |reason| &reason.comment);
            let options_len = comment(bytes, words);
            let meta = Meta {
                timestamp: Timestamp::from_nanos(since_1970.saturating_add_unsigned(dropped.time_ns)),
                wire_len: dropped.wire_len,
                if_index: dropped.if_index,
                label: u8::try_from(dropped.reason).unwrap_or(u8::MAX),
                interface: InterfaceId(0),
                ..Meta::default()
            };
            records.push(Record { offset, cap_len: data.len() as u32, options_len, meta });
        })
    }

    /// Sentences about packets that the account does not show, or not as such, and whether they are warnings.
    fn report(&self) -> Vec<(String, bool)> {
        let mut sentences = Vec::new();
        if self.unexplained > 0 {
            let words = "dropped packets have a reason that the kernel does not name";
            sentences.push((format!("{} {words}", self.unexplained), false));
        }
        let hidden = self.counters.word(0, UNKNOWN);
        if hidden > 0 {
            let words =
                "packets were dropped in a network namespace that the kernel does not say, and not captured";
            sentences.push((format!("{hidden} {words}"), true));
        }
        let missed = self.missed.count();
        if missed != Some(0) {
            let missed = missed.map_or("an unknown number of".to_owned(), |missed| missed.to_string());
            let words =
                "packets of all namespaces were dropped while another drop was looked at, and not seen";
            sentences.push((format!("{missed} {words}"), true));
        }
        sentences
    }
}

/// The number of a network namespace by its name, or of our own.
fn namespace(name: Option<&str>) -> Result<(u32, Option<NetNs>), String> {
    let Some(name) = name else {
        let number = NetNs::inode_here().map_err(|error| {
            format!("our network namespace is unknown: /proc/thread-self/ns/net: {error}")
        })?;
        return Ok((short(number)?, None));
    };
    let refused = |error: &dyn std::fmt::Display| format!("network namespace {name}: {error}");
    let opened = NetNs::open(name).map_err(|error| refused(&error))?;
    // Only who may enter it sees its packets.
    let number = opened.run(NetNs::inode_here).map_err(|error| refused(&error))?;
    Ok((short(number.map_err(|error| refused(&error))?)?, Some(opened)))
}

fn short(number: u64) -> Result<u32, String> {
    u32::try_from(number).map_err(|_| format!("the number of the network namespace is too large: {number}"))
}

fn ring_len(wanted: Option<u64>) -> Result<u32, String> {
    let [shortest, longest] = RING_LENS;
    let Some(wanted) = wanted else { return Ok(RING_LEN) };
    let len = wanted.max(u64::from(shortest)).checked_next_power_of_two();
    let len = len.and_then(|len| u32::try_from(len).ok()).filter(|len| *len <= longest);
    len.ok_or_else(|| format!("the ring cannot have {wanted} bytes: 2 GiB at most"))
}

/// A reason that the kernel names.
struct Reason {
    /// The comment of a packet that was dropped for it.
    comment: String,
    /// Whether it says more than that there is none.
    is_specified: bool,
}

impl Reason {
    fn new(name: &str) -> Reason {
        let name = name.trim_start_matches("SKB_DROP_REASON_").to_ascii_lowercase();
        let is_specified = name != NOT_SPECIFIED;
        let words = if is_specified { &name } else { "reason unknown (not specified)" };
        Reason { comment: format!("dropped: {words}"), is_specified }
    }
}

/// The kernel's names of reasons.
fn reasons() -> Result<BTreeMap<u32, Reason>, String> {
    const NEEDED: &str = "this needs Linux 5.17, built with CONFIG_DEBUG_INFO_BTF=y";
    let named = kernel_enumeration("skb_drop_reason");
    let named = named.map_err(|error| format!("reasons have no names here: {error}; {NEEDED}"))?;
    if named.is_empty() {
        return Err(format!("this kernel gives no reasons; {NEEDED}"));
    }
    Ok(named.into_iter().map(|(name, value)| (value, Reason::new(&name))).collect())
}

/// The comment of a reason without a name, in the memory of the last one.
fn unnamed_reason(comment: &mut String, number: u32) -> &str {
    comment.clear();
    let _ = write!(comment, "dropped: reason unknown ({number})");
    comment
}

/// Appends an option with a comment; gives its length.
fn comment(bytes: &mut Vec<u8>, text: &str) -> u32 {
    const OPT_COMMENT: u16 = 1;
    let start = bytes.len();
    bytes.extend(OPT_COMMENT.to_ne_bytes());
    bytes.extend((text.len() as u16).to_ne_bytes());
    bytes.extend(text.as_bytes());
    bytes.resize(start + 4 + text.len().next_multiple_of(4), 0);
    (bytes.len() - start) as u32
}

/// A record of an IP packet.
struct Dropped<'a> {
    time_ns: u64,
    reason: u32,
    if_index: u32,
    wire_len: u32,
    data: &'a [u8],
}

impl<'a> Dropped<'a> {
    /// `None` for packets without a whole IP header in their first buffer.
    fn parse(record: &'a [u8]) -> Option<Dropped<'a>> {
        let (head, bytes) = record.split_at_checked(HEAD_LEN as usize)?;
        let half = |at: usize| Some(u16::from_ne_bytes(head.get(at..at + 2)?.try_into().ok()?));
        let word = |at: usize| Some(u32::from_ne_bytes(head.get(at..at + 4)?.try_into().ok()?));
        let double = |at: usize| Some(u64::from_ne_bytes(head.get(at..at + 8)?.try_into().ok()?));
        let network = u32::from(half(22)?);
        // Bytes between the header and the end of the packet's first buffer.
        let there = word(24)?.checked_sub(network)?;
        let data = &bytes[..bytes.len().min(there as usize)];
        let protocol = u16::from_be(half(20)?);
        let (version, header_len) = if protocol == PROTOCOLS[0] { (4, 20) } else { (6, 40) };
        if !PROTOCOLS.contains(&protocol) || data.len() < header_len || data[0] >> 4 != version {
            return None;
        }
        // The stack may have moved the packet's start past headers, or not yet to the network header.
        let moved = double(40)?.wrapping_sub(double(32)?).wrapping_sub(u64::from(network)) as i64;
        let wire_len = i64::from(word(12)?).checked_add(moved)?.max(data.len() as i64);
        let wire_len = u32::try_from(wire_len).unwrap_or(u32::MAX);
        Some(Dropped { time_ns: double(0)?, reason: word(8)?, if_index: word(16)?, wire_len, data })
    }
}

impl Source for DroppedPackets {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn advance(&mut self, wait: Duration) -> Result<Advance, Error> {
        self.has_batch = self.take();
        if !self.has_batch && self.link.is_some() && !wait.is_zero() {
            self.poller.clear();
            self.poller.add(self.wakeup.as_fd());
            self.poller.add(self.ring.as_fd());
            let waited = self.poller.wait(wait);
            waited.map_err(|source| Error::source(DroppedPackets::LABEL, source))?;
            if self.poller.is_readable(0) {
                self.wakeup.take();
            }
            self.has_batch = self.take();
        }
        Ok(match (self.has_batch, &self.link) {
            (true, _) => Advance::Batch,
            (false, None) => Advance::End,
            (false, Some(_)) => Advance::Idle,
        })
    }

    fn batch(&self) -> Batch<'_> {
        if self.has_batch { Batch::new(&self.bytes, &self.records) } else { Batch::empty() }
    }

    fn stop(&mut self) -> Result<(), Error> {
        // The program may run on another processor for a moment; what it writes then is still taken.
        self.link = None;
        if tapline_sys::wait_for_receive_paths().is_err() {
            std::thread::sleep(GRACE);
        }
        Ok(())
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        // The program counts a packet as seen first: read last, that count has all packets of the others.
        let [dropped, unfit, hidden, seen] =
            [NO_ROOM, REFUSED, UNKNOWN, SEEN].map(|word| self.counters.word(0, word));
        let refused = unfit.saturating_add(self.headless);
        let received = seen.saturating_sub(refused);
        let unread = received.saturating_sub(dropped + self.delivered);
        let ring = RingAccount { received, dropped, unread, ..RingAccount::default() };
        vec![InterfaceAccount {
            ring: Some(ring),
            kernel_filtered: Count::Known(refused.saturating_add(hidden)),
            ..InterfaceAccount::of_file(&self.interfaces[0].name, self.delivered)
        }]
    }

    fn waited_ticks(&self) -> u64 {
        self.poller.waited_ticks()
    }

    fn wakeup(&self) -> Option<Arc<Wakeup>> {
        Some(Arc::clone(&self.wakeup))
    }

    fn wait_on(&self, poller: &mut Poller) -> bool {
        poller.add(self.wakeup.as_fd());
        poller.add(self.ring.as_fd());
        true
    }

    fn events(&mut self) -> Vec<Event> {
        if self.link.is_some() || std::mem::replace(&mut self.has_reported, true) {
            return Vec::new();
        }
        let interface = &self.interfaces[0].name;
        let event = |(text, is_warning)| Event { interface: interface.clone(), text, is_warning };
        self.report().into_iter().map(event).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of a packet whose network header is 100 bytes behind the start of its memory.
    fn record(protocol: u16, len: u32, data_at: u64, packet: &[u8]) -> Vec<u8> {
        let mut record = 7_u64.to_ne_bytes().to_vec();
        for word in [3_u32, len, 9] {
            record.extend(word.to_ne_bytes());
        }
        record.extend(protocol.to_be_bytes());
        record.extend(100_u16.to_ne_bytes());
        record.extend((100 + packet.len() as u32).to_ne_bytes());
        record.extend([0; 4]);
        for address in [0xffff_8880_0000_1000_u64, 0xffff_8880_0000_1000 + data_at] {
            record.extend(address.to_ne_bytes());
        }
        assert_eq!(record.len(), HEAD_LEN as usize);
        record.extend(packet);
        record.resize((HEAD_LEN + BYTES) as usize, 0xee);
        record
    }

    #[test]
    fn records_are_packets_from_their_network_header() {
        let packet = [&[0x45][..], &[0; 59]].concat();
        // At the Ethernet header, at the network header, and behind it.
        for (data_at, len) in [(86, 74), (100, 60), (120, 40)] {
            let bytes = record(0x0800, len, data_at, &packet);
            let dropped = Dropped::parse(&bytes).expect("IPv4");
            assert_eq!((dropped.time_ns, dropped.reason, dropped.if_index), (7, 3, 9));
            assert_eq!((dropped.data, dropped.wire_len), (&packet[..], 60), "{data_at}");
        }
        let long = record(0x0800, 1500, 100, &[0x45; 230]);
        assert_eq!(Dropped::parse(&long).map(|one| (one.data.len(), one.wire_len)), Some((230, 1500)));
        for (protocol, first) in [(0x0806, 0x45), (0x86dd, 0x45), (0x0800, 0x60)] {
            assert!(Dropped::parse(&record(protocol, 60, 100, &[first; 60])).is_none(), "{protocol:x}");
        }
        for (protocol, first, len) in [(0x0800, 0x45, 19), (0x86dd, 0x60, 39)] {
            assert!(
                Dropped::parse(&record(protocol, 90, 100, &vec![first; len])).is_none(),
                "no whole header"
            );
            assert!(Dropped::parse(&record(protocol, 90, 100, &vec![first; len + 1])).is_some());
        }
        assert!((0..HEAD_LEN as usize).all(|len| Dropped::parse(&long[..len]).is_none()));
    }

    #[test]
    fn rings_have_bounds() {
        assert_eq!(ring_len(None), Ok(RING_LEN));
        assert_eq!(
            [0, 65_536, 65_537, 1 << 31].map(|len| ring_len(Some(len))),
            [Ok(65_536), Ok(65_536), Ok(131_072), Ok(1 << 31)]
        );
        assert!([(1 << 31) + 1, u64::MAX].iter().all(|len| ring_len(Some(*len)).is_err()));
    }

    #[test]
    fn reasons_are_comments() {
        let mut bytes = vec![1, 2, 3, 4];
        let len = comment(&mut bytes, &Reason::new("SKB_DROP_REASON_NO_SOCKET").comment);
        assert_eq!((len, bytes.len()), (4 + 20, 28));
        assert_eq!(&bytes[8..26], b"dropped: no_socket");
        let unspecified = Reason::new("SKB_DROP_REASON_NOT_SPECIFIED");
        assert_eq!(unspecified.comment, "dropped: reason unknown (not specified)");
        assert!(!unspecified.is_specified && Reason::new("SKB_DROP_REASON_NO_SOCKET").is_specified);
        let mut last = "dropped: reason unknown (1234567)".to_owned();
        assert_eq!(unnamed_reason(&mut last, 70_000), "dropped: reason unknown (70000)");
    }
}
