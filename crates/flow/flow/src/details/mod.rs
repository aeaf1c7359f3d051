//! Optional details of flows, beyond packets, bytes and times.
//!
//! ```text
//! --template default,tcp,tls  -->  DetailFields  -->  DetailTable: a pool a group, entries by need  --flow ends-->  Details
//!                                                        TextPool: texts, in blocks of 64 bytes that all flows share
//!                                                        Buffers: first bytes of TCP streams that came in pieces
//! ```
//!
//! Packets are parsed for details only if a group of details is asked for. All memory is reserved when the meter is
//! made; a detail that does not fit is left out and counted.

mod application;
mod gaps;
mod http;
mod link;
mod payloads;
mod pool;
mod sizes;
mod stream;
mod tcp;
mod text_pool;

pub use application::{Application, FoundBy, names as application_names, recognise};
pub use gaps::InterarrivalTimes;
pub use link::{LABELS_KEPT, LabelStack, LinkHeader, MacAddress};
pub use payloads::{Dns, DnsAnswer, Http, Tls, is_plain};
pub use sizes::{SIZES, SizeCounts};
pub use tcp::{Tcp, TcpSide};

use crate::packet::{PacketSummary, TransportSpan, Window};
use crate::{Endpoint, Error, NamedAddresses, PayloadFacts};
use payloads::{PayloadTable, Progress};
use pool::{NONE, PerSlot, Pool};
use tcp::Connections;

/// The most bytes of payload kept for each side.
pub const PAYLOAD_MAX: u16 = 512;

/// The groups of details that a meter collects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DetailFields {
    /// Times of the handshake, retransmissions, packets out of order, zero windows, segment size and window scale.
    pub tcp: bool,
    /// Packets by size class.
    pub sizes: bool,
    /// Times between packets (interarrival times).
    pub gaps: bool,
    /// The first DNS question and its answer.
    pub dns: bool,
    /// Server name, version, protocol and fingerprints of the TLS hello.
    pub tls: bool,
    /// The first HTTP request and the status of its answer.
    pub http: bool,
    /// The application, recognised by its payload or else by its port.
    pub application: bool,
    /// The first bytes of payload of each side.
    pub payload: bool,
    /// MAC addresses and VLAN tags of each side's first packet.
    pub ethernet: bool,
    /// The MPLS label stack of each side's first packet.
    pub mpls: bool,
}

/// Words of the groups.
const GROUPS: [(&str, Group); 10] = [
    ("tcp", |fields| &mut fields.tcp),
    ("sizes", |fields| &mut fields.sizes),
    ("gaps", |fields| &mut fields.gaps),
    ("dns", |fields| &mut fields.dns),
    ("tls", |fields| &mut fields.tls),
    ("http", |fields| &mut fields.http),
    ("application", |fields| &mut fields.application),
    ("payload", |fields| &mut fields.payload),
    ("ethernet", |fields| &mut fields.ethernet),
    ("mpls", |fields| &mut fields.mpls),
];

type Group = fn(&mut DetailFields) -> &mut bool;

impl DetailFields {
    /// No group.
    pub const NONE: DetailFields = DetailFields {
        tcp: false,
        sizes: false,
        gaps: false,
        dns: false,
        tls: false,
        http: false,
        application: false,
        payload: false,
        ethernet: false,
        mpls: false,
    };

    /// The groups that mean something of every flow, also where it is of several connections.
    pub const OF_ANY_KEY: DetailFields =
        DetailFields { sizes: true, gaps: true, ethernet: true, mpls: true, ..DetailFields::NONE };

    /// The group that a word names.
    pub fn of_word(word: &str) -> Option<DetailFields> {
        let (_, group) = GROUPS.iter().find(|(known, _)| *known == word)?;
        let mut fields = DetailFields::NONE;
        *group(&mut fields) = true;
        Some(fields)
    }

    /// Parses words separated by commas; `none` and an empty text give no group, `all` gives every group.
    ///
    /// # Errors
    /// [`Error::Detail`] for a word that names no group.
    pub fn parse(text: &str) -> Result<DetailFields, Error> {
        let mut fields = DetailFields::NONE;
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty() && *word != "none") {
            let unknown =
                || Error::Detail { word: word.to_owned(), known: GROUPS.map(|(word, _)| word).join(", ") };
            match word {
                "all" => GROUPS.iter().for_each(|(_, group)| *group(&mut fields) = true),
                _ => fields = fields.with(DetailFields::of_word(word).ok_or_else(unknown)?),
            }
        }
        Ok(fields)
    }

    /// The groups of both.
    #[must_use]
    pub fn with(mut self, mut other: DetailFields) -> DetailFields {
        for (_, group) in GROUPS {
            *group(&mut self) |= *group(&mut other);
        }
        self
    }

    /// The words of the groups, separated by commas; `none` if there are none.
    pub fn words(mut self) -> String {
        let words: Vec<&str> =
            GROUPS.into_iter().filter_map(|(word, group)| (*group(&mut self)).then_some(word)).collect();
        if words.is_empty() { "none".to_owned() } else { words.join(",") }
    }

    /// The groups that are not in `other`.
    #[must_use]
    pub fn without(mut self, mut other: DetailFields) -> DetailFields {
        for (_, group) in GROUPS {
            *group(&mut self) &= !*group(&mut other);
        }
        self
    }

    /// Whether it has any group.
    pub fn any(self) -> bool {
        self != DetailFields::NONE
    }

    /// Whether a group needs the payload parsed.
    fn reads_payload(self) -> bool {
        self.dns || self.tls || self.http || self.application || self.payload
    }
}

/// Details of a flow that has ended. Sides are in the order of the flow's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    /// TCP's details, for TCP flows.
    pub tcp: Option<Tcp>,
    /// Packets of each side by size.
    pub sizes: Option<[SizeCounts; 2]>,
    /// Times between the packets of each side.
    pub gaps: Option<[InterarrivalTimes; 2]>,
    /// The first DNS question and its answer.
    pub dns: Option<Dns>,
    /// Fields of the TLS hello.
    pub tls: Option<Tls>,
    /// The first HTTP request, and the status of its answer.
    pub http: Option<Http>,
    /// The application, if known.
    pub application: Option<Application>,
    /// The way in which the application was found, if it is known.
    pub found_by: Option<FoundBy>,
    /// The first bytes of payload of each side.
    pub payload: [Box<[u8]>; 2],
    /// The link header of each side's first packet.
    pub link: Option<[LinkHeader; 2]>,
    /// The label stack of each side's first packet, if either has one.
    pub labels: Option<[LabelStack; 2]>,
}

/// Details that were left out because their pool was full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusedDetails {
    /// Texts and other details that found no free block or entry.
    pub texts: u64,
    /// Streams whose first bytes were dropped half read, because others needed the buffer.
    pub streams: u64,
}

impl RefusedDetails {
    pub(crate) fn merge(&mut self, other: RefusedDetails) {
        self.texts += other.texts;
        self.streams += other.streams;
    }
}

/// The details of all flows, by slot of the flow table.
pub(crate) struct DetailTable {
    fields: DetailFields,
    tcp: Connections,
    /// Only for sides that have sent two packets or more: the details of one packet follow from the flow.
    sizes: Sides<SizeCounts>,
    gaps: Sides<gaps::GapSums>,
    payloads: Option<PayloadTable>,
    links: PerSlot<[LinkHeader; 2]>,
    /// Only for sides whose first packet has labels.
    labels: Sides<LabelStack>,
}

/// Details of each side of the flows.
struct Sides<T> {
    numbers: PerSlot<[u32; 2]>,
    pool: Pool<T>,
}

impl<T: Copy + Default> Sides<T> {
    fn new(is_wanted: bool, flows_max: usize) -> Result<Sides<T>, std::collections::TryReserveError> {
        let most = if is_wanted { flows_max.saturating_mul(2) } else { 0 };
        Ok(Sides { numbers: PerSlot::new(is_wanted, flows_max)?, pool: Pool::new(most)? })
    }

    fn begin(&mut self, slot: u32) {
        self.numbers.begin(slot, [NONE; 2]);
    }

    /// The entry of a side, created if there is none.
    fn of(&mut self, slot: u32, side: usize) -> Option<&mut T> {
        self.pool.get_or_take(&mut self.numbers.get(slot)?[side])
    }

    /// Takes the entry of a side of a flow that ends, if it has one.
    fn end(&mut self, slot: u32, side: usize) -> Option<T> {
        let number = &mut self.numbers.get(slot)?[side];
        let entry = self.pool.get(*number).copied();
        self.pool.give(number);
        entry
    }

    #[inline]
    fn ask(&self, slot: u32, side: usize) {
        if let Some(numbers) = self.numbers.peek(slot) {
            self.pool.prefetch(numbers[side]);
        }
    }

    fn clear(&mut self) {
        self.numbers.clear();
        self.pool.clear();
    }

    /// The most bytes that a flow takes.
    fn flow_len() -> usize {
        size_of::<[u32; 2]>() + 2 * Pool::<T>::entry_len()
    }
}

/// The packets of a side so far, including the present one. At the second packet `bytes` and `time` are those of the
/// first.
#[derive(Clone, Copy)]
pub(crate) struct SideTotals {
    pub(crate) packets: u64,
    pub(crate) bytes: u32,
    pub(crate) time: i64,
}

/// A packet, as the details need it.
#[derive(Clone, Copy)]
pub(crate) struct PacketView<'p> {
    pub(crate) summary: &'p PacketSummary,
    pub(crate) data: &'p [u8],
    /// The place of the transport header; `None` for later fragments.
    pub(crate) span: Option<TransportSpan>,
    /// The window that has the packet, for fields of the first packet of a side.
    pub(crate) window: &'p Window<'p>,
}

impl DetailTable {
    pub(crate) fn new(
        fields: DetailFields,
        payload: u16,
        flows_max: usize,
    ) -> Result<DetailTable, std::collections::TryReserveError> {
        let payloads = match fields.reads_payload() {
            true => Some(PayloadTable::new(fields, payload, flows_max)?),
            false => None,
        };
        Ok(DetailTable {
            fields,
            tcp: Connections::new(fields.tcp, flows_max)?,
            sizes: Sides::new(fields.sizes, flows_max)?,
            gaps: Sides::new(fields.gaps, flows_max)?,
            payloads,
            links: PerSlot::new(fields.ethernet, flows_max)?,
            labels: Sides::new(fields.mpls, flows_max)?,
        })
    }

    /// The most bytes that a flow takes in these tables, with its part of shared pools.
    pub(crate) fn flow_len(fields: DetailFields, payload: u16) -> usize {
        let of = |is_wanted: bool, len: usize| if is_wanted { len } else { 0 };
        of(fields.tcp, Connections::flow_len())
            + of(fields.sizes, Sides::<SizeCounts>::flow_len())
            + of(fields.gaps, Sides::<gaps::GapSums>::flow_len())
            + of(fields.reads_payload(), PayloadTable::flow_len(fields, payload))
            + of(fields.ethernet, size_of::<[LinkHeader; 2]>())
            + of(fields.mpls, Sides::<LabelStack>::flow_len())
    }

    pub(crate) fn refused(&self) -> RefusedDetails {
        let mut refused = self.payloads.as_ref().map_or_else(RefusedDetails::default, PayloadTable::refused);
        refused.texts +=
            self.tcp.refused() + self.sizes.pool.refused + self.gaps.pool.refused + self.labels.pool.refused;
        refused
    }

    /// Resets a slot that begins to be used, or is used for another flow.
    pub(crate) fn begin(&mut self, slot: u32) {
        if self.fields.tcp {
            self.tcp.begin(slot);
        }
        if self.fields.sizes {
            self.sizes.begin(slot);
        }
        if self.fields.gaps {
            self.gaps.begin(slot);
        }
        if let Some(payloads) = &mut self.payloads {
            payloads.begin(slot);
        }
        if self.fields.ethernet {
            self.links.begin(slot, [LinkHeader::default(); 2]);
        }
        if self.fields.mpls {
            self.labels.begin(slot);
        }
    }

    /// Prefetches the cache lines with the numbers of a flow's entries.
    #[inline]
    pub(crate) fn prefetch_numbers(&self, slot: u32) {
        self.tcp.prefetch_number(slot);
        self.sizes.numbers.prefetch(slot);
        self.gaps.numbers.prefetch(slot);
        if let Some(payloads) = &self.payloads {
            payloads.prefetch_number(slot);
        }
    }

    /// Prefetches the entries of the side that sent a packet.
    #[inline]
    pub(crate) fn prefetch_entries(&self, slot: u32, side: usize) {
        self.tcp.prefetch_entry(slot);
        self.sizes.ask(slot, side);
        self.gaps.ask(slot, side);
        if let Some(payloads) = &self.payloads {
            payloads.prefetch_entry(slot);
        }
    }

    /// Adds a packet of a flow, with the side of the key that sent it and that side's totals.
    pub(crate) fn packet(
        &mut self,
        slot: u32,
        protocol: u8,
        ports: [u16; 2],
        sent: SideTotals,
        view: PacketView<'_>,
    ) {
        let side = usize::from(view.summary.side & 1);
        if sent.packets > 1 {
            self.again(slot, side, sent, &view);
        } else if self.fields.ethernet || self.fields.mpls {
            self.first(slot, side, &view);
        }
        let segment = tcp::Segment::read(protocol, &view);
        if let Some(segment) = segment.as_ref().filter(|_| self.fields.tcp) {
            self.tcp.add(slot, side, segment, view.summary.time);
        }
        if let Some(payloads) = &mut self.payloads {
            let is_early = sent.packets <= payloads::DATAGRAMS_MAX;
            payloads.packet(slot, protocol, ports, (side, is_early), &view, segment.as_ref());
        }
    }

    /// Notes the link header and the labels of the first packet of a side.
    fn first(&mut self, slot: u32, side: usize, view: &PacketView<'_>) {
        let (link_type, packet) = view.window.packet(view.summary);
        if let Some(links) = self.links.get(slot).filter(|_| self.fields.ethernet) {
            links[side] = LinkHeader::of(link_type, packet);
        }
        if self.fields.mpls {
            let stack = LabelStack::of(link_type, packet);
            if let Some(labels) = (!stack.is_empty()).then(|| self.labels.of(slot, side)).flatten() {
                *labels = stack;
            }
        }
    }

    /// Adds a packet of a side that has sent one before. The second packet creates the entry for sizes and times, and
    /// adds the first one too.
    fn again(&mut self, slot: u32, side: usize, sent: SideTotals, view: &PacketView<'_>) {
        if let Some(sizes) = self.fields.sizes.then(|| self.sizes.of(slot, side)).flatten() {
            if sent.packets == 2 {
                sizes::count(sizes, sent.bytes);
            }
            sizes::count(sizes, view.summary.bytes);
        }
        if let Some(gaps) = self.fields.gaps.then(|| self.gaps.of(slot, side)).flatten() {
            if sent.packets == 2 {
                gaps.add(sent.time);
            }
            gaps.add(view.summary.time);
        }
    }

    /// Takes the details of a flow that ends. `first` is the side that sent first, `sides` are in the order of the
    /// flow's.
    pub(crate) fn take(
        &mut self,
        slot: u32,
        protocol: u8,
        ports: [u16; 2],
        first: usize,
        sides: &[Endpoint; 2],
    ) -> Box<Details> {
        let in_order = [(first, &sides[0]), (1 - first, &sides[1])];
        let mut details = Box::new(Details {
            tcp: self.fields.tcp.then(|| self.tcp.end(slot, protocol, first)).flatten(),
            sizes: self.fields.sizes.then(|| in_order.map(|(at, side)| self.sizes_of(slot, at, side))),
            gaps: self
                .fields
                .gaps
                .then(|| in_order.map(|(at, _)| self.gaps.end(slot, at).unwrap_or_default().finish())),
            link: self.links.get(slot).map(|links| [links[first & 1], links[(first & 1) ^ 1]]),
            ..Details::default()
        });
        if self.fields.mpls {
            let labels = in_order.map(|(at, _)| self.labels.end(slot, at));
            details.labels =
                labels.iter().any(Option::is_some).then(|| labels.map(Option::unwrap_or_default));
        }
        if let Some(payloads) = &mut self.payloads {
            payloads.finish(slot, (protocol, ports), first, &mut details);
        }
        details
    }

    /// Application and name of a flow that goes on, as far as they are known.
    pub(crate) fn said(&self, slot: u32, protocol: u8, ports: [u16; 2], first: usize) -> PayloadFacts {
        let payloads = self.payloads.as_ref();
        payloads.map_or_else(PayloadFacts::default, |payloads| payloads.said(slot, (protocol, ports), first))
    }

    /// Reads the addresses of names in DNS answers from now on, if names of DNS are collected.
    pub(crate) fn read_answers(&mut self) {
        if let Some(payloads) = &mut self.payloads {
            payloads.read_answers();
        }
    }

    /// Takes the answers of the last packet.
    pub(crate) fn take_answers(&mut self) -> impl Iterator<Item = NamedAddresses> {
        self.payloads
            .as_mut()
            .and_then(PayloadTable::answers)
            .into_iter()
            .flat_map(|answers| answers.drain(..))
    }

    /// Progress of reading a flow's payload: the results can differ only if this does.
    pub(crate) fn progress(&self, slot: u32) -> Progress {
        self.payloads.as_ref().map_or_else(Progress::default, |payloads| payloads.progress(slot))
    }

    /// Packets of a side by size. The size of a single packet follows from the flow.
    fn sizes_of(&mut self, slot: u32, at: usize, side: &Endpoint) -> SizeCounts {
        self.sizes.end(slot, at).unwrap_or_else(|| {
            let mut counts = SizeCounts::default();
            if side.packets == 1 {
                sizes::count(&mut counts, side.bytes.min(u32::MAX.into()) as u32);
            }
            counts
        })
    }

    pub(crate) fn clear(&mut self) {
        self.tcp.clear();
        self.sizes.clear();
        self.gaps.clear();
        if let Some(payloads) = &mut self.payloads {
            payloads.clear();
        }
        self.links.clear();
        self.labels.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory of a flow is the one that docs/flow-table.md gives.
    #[test]
    fn a_flow_takes_the_documented_memory() {
        let len = |words: &str| DetailTable::flow_len(DetailFields::parse(words).unwrap(), 64);
        assert_eq!([len("tcp"), len("sizes"), len("gaps")], [256, 72, 112]);
        assert_eq!([len("application"), len("dns") - len("application")], [116, 256]);
        assert_eq!(len("payload") - len("application"), 256);
        assert_eq!([len("ethernet"), len("mpls")], [44, 78]);
    }

    #[test]
    fn words_are_groups() {
        let both = DetailFields::parse("tcp, tls").unwrap();
        assert_eq!((both.tcp, both.tls, both.dns, both.words().as_str()), (true, true, false, "tcp,tls"));
        assert_eq!(DetailFields::parse("none").unwrap().words(), "none");
        let all = DetailFields::parse("all").unwrap();
        assert_eq!(all.words(), "tcp,sizes,gaps,dns,tls,http,application,payload,ethernet,mpls");
        assert_eq!(both.without(DetailFields::of_word("tcp").unwrap()).words(), "tls");
        let error = DetailFields::parse("tcp,quick").unwrap_err().to_string();
        assert!(error.contains("`quick`") && error.contains("application"), "{error}");
    }
}
