//! Packets into flows, a window of a batch at a time.
//!
//! ```text
//! 64 packets:   read, hash, ask for the index's line
//! 64 packets:   look into that line, ask for the flow's
//! 64 packets:   count
//! ```
//!
//! By the time a line is needed the processor has had the work on up to 63 other packets to fetch it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use tapline_packet::{Batch, Interface, LinkType, Selection, Timestamp};

use crate::fragments::Fragments;
use crate::packet::{self, ExtraFields, PacketSummary, ParseOptions, TransportSpan, Window};
use crate::sampling::FlowSampler;
use crate::table::{Table, Timeouts};
use crate::wheel::SLOTS_MAX;
use crate::{
    DetailFields, Error, Flow, Journal, KeyFields, PAYLOAD_MAX, PacketCount, Statistics, UnmeteredCause,
};

/// Flows that [`Meter::expire`] and [`Meter::finish`] end in one call.
const ENDED_PER_CALL: usize = 512;

/// Packets that are in progress together: few enough that prefetched lines are still in the first-level cache when
/// they need them.
const WINDOW: usize = 64;

/// The longest timeout: ten years.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Settings of a meter: timeouts, flow key, and recorded fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterSettings {
    /// Active timeout: a flow older than this ends, and its next packet begins another record. Nanoseconds, 1 ms to 10
    /// years.
    pub active_ns: i64,
    /// Idle timeout: a flow without a packet for longer than this ends. Nanoseconds, 1 ms to 10 years.
    pub idle_ns: i64,
    /// Idle timeout of a TCP flow after FIN from both sides or RST, if less than [`idle_ns`](Self::idle_ns).
    /// Nanoseconds, 0 to 10 years.
    pub closed_ns: i64,
    /// Capacity of the table in flows, 1 to 2^30 - 1. When the table is full, the least recently active flow ends.
    pub flows_max: usize,
    /// Fields of the flow key in addition to addresses, ports and protocol.
    pub key: KeyFields,
    /// Meters the packets inside of tunnels, not those outside.
    pub inner: bool,
    /// Counts bytes of frames, not of IP packets.
    pub counts_frames: bool,
    /// Groups of details recorded for each flow.
    pub details: DetailFields,
    /// Bytes of the first payload of each side that are kept, with [`DetailFields::payload`]: 1 to [`PAYLOAD_MAX`].
    pub payload: u16,
}

impl Default for MeterSettings {
    /// 60 s active, 15 s idle, 2 s after TCP's end, a million flows (2^20), the five-tuple.
    fn default() -> MeterSettings {
        MeterSettings {
            active_ns: 60_000_000_000,
            idle_ns: 15_000_000_000,
            closed_ns: 2_000_000_000,
            flows_max: 1 << 20,
            key: KeyFields::default(),
            inner: false,
            counts_frames: false,
            details: DetailFields::NONE,
            payload: 64,
        }
    }
}

impl MeterSettings {
    /// The greatest memory of a flow in bytes, with its share of index, timers and pools; a meter takes about 6 MiB
    /// more.
    pub fn flow_len(&self) -> usize {
        Table::flow_len(self.details, self.payload)
    }

    fn check(&self) -> Result<(), Error> {
        if !(1..=SLOTS_MAX).contains(&self.flows_max) {
            return Err(Error::FlowsMax { flows_max: self.flows_max, max: SLOTS_MAX });
        }
        if !(1..=PAYLOAD_MAX).contains(&self.payload) {
            return Err(Error::Payload { payload: self.payload, max: PAYLOAD_MAX });
        }
        if self.key.merges_connections() && self.details.without(DetailFields::OF_ANY_KEY).any() {
            let words = self.details.without(DetailFields::OF_ANY_KEY).words();
            return Err(Error::MergedDetails { words });
        }
        for (name, ns, least_ns, least) in [
            ("active", self.active_ns, 1_000_000, "1 ms"),
            ("idle", self.idle_ns, 1_000_000, "1 ms"),
            ("closed", self.closed_ns, 0, "0"),
        ] {
            if !(least_ns..=TIMEOUT_MAX.as_nanos() as i64).contains(&ns) {
                return Err(Error::Timeout { name, seconds: ns as f64 / 1e9, least });
            }
        }
        Ok(())
    }
}

/// A metering process (RFC 7011, 2): packets in, expired flows out.
pub struct Meter {
    table: Table,
    view: ParseOptions,
    fragments: Fragments,
    /// `None` meters all flows.
    sampler: Option<FlowSampler>,
    statistics: Statistics,
    summary: Box<[PacketSummary; WINDOW]>,
    extras: Vec<ExtraFields>,
    /// The greatest time stamp that a packet may have, in nanoseconds.
    latest: i64,
}

impl Meter {
    /// Makes a meter without flows. Memory is reserved now, and used as flows are created.
    ///
    /// # Errors
    /// [`Error::FlowsMax`], [`Error::Payload`] or [`Error::Timeout`] for a setting out of its range,
    /// [`Error::MergedDetails`] for details that the key leaves without a meaning, [`Error::Memory`] if the table does
    /// not fit into memory.
    pub fn new(settings: &MeterSettings) -> Result<Meter, Error> {
        settings.check()?;
        let MeterSettings {
            active_ns,
            idle_ns,
            closed_ns,
            flows_max,
            key,
            inner,
            counts_frames,
            details,
            payload,
        } = *settings;
        let timeouts = Timeouts { active: active_ns, idle: idle_ns, closed: closed_ns };
        let seed = RandomState::new().build_hasher().finish();
        Ok(Meter {
            table: Table::new(flows_max, seed, key, timeouts, (details, payload))?,
            view: ParseOptions { fields: key, inner, counts_frames, seed },
            fragments: Fragments::new(),
            sampler: None,
            statistics: Statistics { flows_max: flows_max as u64, ..Statistics::default() },
            summary: Box::new([PacketSummary::default(); WINDOW]),
            extras: Vec::with_capacity(WINDOW),
            latest: i64::MAX,
        })
    }

    /// Meters the selected packets of a batch, and removes those from the selection that are not metered. Flows that
    /// end by it are appended to `ended`, at most one for each packet.
    pub fn push(
        &mut self,
        batch: &Batch<'_>,
        selection: &mut Selection,
        interfaces: &[Interface],
        ended: &mut Vec<Flow>,
    ) {
        self.table.make_room(selection.len());
        if let Some(begun) = self.table.begun() {
            begun.clear();
        }
        let Meter { table, view, fragments, sampler, statistics, summary, extras, latest } = self;
        let sampler = *sampler;
        let (has_fast_path, counts_frames, latest) = (view.has_fast_path(), view.counts_frames, *latest);
        let (mut waiting, mut bytes, mut ahead) = (0, 0, 0);
        let mut known = InterfaceCache::of(interfaces, 0, has_fast_path);
        let records = batch.records();
        selection.retain(|index| {
            if waiting == WINDOW {
                waiting = 0;
                add(table, &mut summary[..], &Window { extras, batch, interfaces }, statistics, ended);
                extras.clear();
            }
            let meta = &records[index].meta;
            if known.at != meta.interface.0 {
                known = InterfaceCache::of(interfaces, meta.interface.0, has_fast_path);
            }
            let wire_len = u64::from(meta.wire_len);
            let summary = &mut summary[waiting];
            let head = if known.is_plain { batch.head(index) } else { None };
            let is_plain = head.is_some_and(|head| packet::plain(head, meta, counts_frames, summary));
            if !is_plain {
                let InterfaceCache { link_type, number, .. } = known;
                match packet::any(*view, link_type, batch.packet(index), number, fragments, statistics) {
                    Ok((other, extra)) => {
                        *summary = PacketSummary { extra: extras.len() as u16, ..other };
                        extras.push(extra);
                    }
                    Err(cause) => {
                        statistics.not_metered[cause as usize].add(wire_len);
                        return false;
                    }
                }
            }
            if let Some(sampler) = sampler
                && !is_chosen(sampler, *view, summary, extras)
            {
                statistics.not_metered[UnmeteredCause::Sampled as usize].add(wire_len);
                return false;
            }
            summary.index = index as u8;
            ahead += u64::from(summary.time > latest);
            summary.time = summary.time.min(latest);
            table.prefetch_bucket(summary);
            bytes += wire_len;
            waiting += 1;
            true
        });
        add(table, &mut summary[..waiting], &Window { extras, batch, interfaces }, statistics, ended);
        extras.clear();
        statistics.ahead += ahead;
        statistics.metered.merge(PacketCount { packets: selection.len() as u64, bytes });
    }

    /// Meters one of `interval` flows from now on, chosen by a hash of their keys: the same flows in every meter with this
    /// seed and these fields of the key. To be called before the first packet. A sender who knows the seed can keep out
    /// of the sample.
    pub fn sample_flows(&mut self, interval: u32, seed: u32) {
        self.sampler = (interval > 1).then(|| FlowSampler::new(interval, seed));
    }

    /// Counts packets that sampling did not select.
    pub fn count_sampled_out(&mut self, packets: u64, bytes: u64) {
        let tally = &mut self.statistics.not_metered[UnmeteredCause::Sampled as usize];
        tally.packets += packets;
        tally.bytes += bytes;
    }

    /// Advances the clock to `now`, for times without packets. The clock never goes back.
    pub fn set_clock(&mut self, now: Timestamp) {
        self.table.clock = self.table.clock.max(now.as_nanos());
    }

    /// Sets the clock back to `now`. To be called after [`finish`](Self::finish) has ended all flows, whose times are
    /// by the old clock.
    pub fn reset_clock(&mut self, now: Timestamp) {
        self.table.clock = now.as_nanos();
    }

    /// Limits time stamps: later ones are taken as `latest`. For live interfaces, where one wrong time stamp in the
    /// future would stop all timers until then. Without a call all time stamps are accepted.
    pub fn set_latest(&mut self, latest: Timestamp) {
        self.latest = latest.as_nanos();
    }

    /// The clock: the greatest time of a packet or of [`set_clock`](Self::set_clock); `None` before the first.
    pub fn clock(&self) -> Option<Timestamp> {
        (self.table.clock != i64::MIN).then(|| Timestamp::from_nanos(self.table.clock))
    }

    /// Ends expired flows, at most 512. Returns `false` if more are left: call it again.
    pub fn expire(&mut self, ended: &mut Vec<Flow>) -> bool {
        self.table.expire(ENDED_PER_CALL, &mut self.statistics, ended)
    }

    /// Ends all flows, at most 512 in one call. Returns `false` if more are left: call it again, and nothing else
    /// before. Afterwards the meter can be used again.
    pub fn finish(&mut self, ended: &mut Vec<Flow>) -> bool {
        self.table.end_all(ENDED_PER_CALL, &mut self.statistics, ended)
    }

    /// Writes a [`Journal`] from now on: 8 bytes a packet, and more for a flow that begins, ends or says its name. It
    /// grows until it is taken. To be called before the first packet.
    pub fn keep_journal(&mut self) {
        self.table.keep_journal();
    }

    /// The journal since the last [`take_journal`](Self::take_journal); `None` without
    /// [`keep_journal`](Self::keep_journal).
    pub fn journal(&self) -> Option<&Journal> {
        self.table.journal()
    }

    /// Takes the journal, and goes on in `empty`. Journals in their order have every packet that was metered, each flow
    /// before its first packet, and the end of a flow behind its last one. `None` without
    /// [`keep_journal`](Self::keep_journal).
    pub fn take_journal(&mut self, empty: Journal) -> Option<Journal> {
        self.table.take_journal(empty)
    }

    /// Describes each flow once more, before its next packet in the journal: for a reader that missed a journal. A flow
    /// that ends without a packet from here on has no entry for its end.
    pub fn describe_again(&mut self) {
        self.table.describe_again();
    }

    /// Notes from now on which packets begin flows, for [`begun`](Self::begun).
    pub fn track_begun(&mut self) {
        self.table.track_begun();
    }

    /// The indices of the packets of the last [`push`](Self::push) that began a flow, in their order; none without
    /// [`track_begun`](Self::track_begun). A flow that goes on after its active timeout starts again.
    pub fn begun(&mut self) -> &[u8] {
        self.table.begun().map_or(&[], |begun| begun.as_slice())
    }

    /// The counters so far.
    pub fn statistics(&self) -> Statistics {
        let (active, chain_max) = (self.table.len() as u64, self.table.chain_max().into());
        Statistics { active, chain_max, refused: self.table.refused(), ..self.statistics }
    }
}

/// Whether the flow of a packet is one of the sample. For other packets, the parts that are not plain are forgotten.
#[inline(never)]
fn is_chosen(
    sampler: FlowSampler,
    view: ParseOptions,
    summary: &PacketSummary,
    extras: &mut Vec<ExtraFields>,
) -> bool {
    let Some(extra) = extras.get(usize::from(summary.extra)) else {
        return sampler.chooses_narrow(summary.words);
    };
    let part = view.fields.of(&extra.context);
    let is_chosen = sampler.chooses_wide(summary.words, &extra.addresses, &part);
    if !is_chosen {
        extras.pop();
    }
    is_chosen
}

/// Adds packets to their flows, whose cache lines were prefetched.
fn add(
    table: &mut Table,
    summary: &mut [PacketSummary],
    window: &Window<'_>,
    statistics: &mut Statistics,
    ended: &mut Vec<Flow>,
) {
    let add_to = match (table.has_details(), table.has_journal()) {
        (false, false) => add_to::<false, false>,
        (false, true) => add_to::<false, true>,
        (true, false) => add_to::<true, false>,
        (true, true) => add_to::<true, true>,
    };
    add_to(table, summary, window, statistics, ended);
}

/// The loop over packets, compiled for each kind of table: without details or journal it has no code for them.
#[inline(never)]
fn add_to<const HAS_DETAILS: bool, const HAS_JOURNAL: bool>(
    table: &mut Table,
    summary: &mut [PacketSummary],
    window: &Window<'_>,
    statistics: &mut Statistics,
    ended: &mut Vec<Flow>,
) {
    for summary in summary.iter_mut() {
        table.prefetch_likely_slot(summary);
    }
    if HAS_DETAILS {
        summary.iter().for_each(|summary| table.prefetch_numbers(summary));
        summary.iter().for_each(|summary| table.prefetch_details(summary));
    }
    // Packets before `noted` are in the journal. The others follow before a name or an end is written into it: a loop
    // over many takes a fraction of the time.
    let (mut bytes, mut noted) = (0, 0);
    for at in 0..summary.len() {
        bytes += u64::from(summary[at].bytes);
        if !table.add_plain(&summary[at]) {
            let (earlier, packets) = summary.split_at_mut(at);
            let mut before = if HAS_JOURNAL { &earlier[noted..] } else { &[] };
            packets[0].slot = table.add_any(&packets[0], window, &mut before, statistics, ended);
            if HAS_JOURNAL {
                noted = at - before.len();
            }
        }
        if HAS_DETAILS {
            let summary = &summary[..=at];
            let packet = &summary[at];
            let data = window.batch.packet(packet.index.into()).data;
            let span = match window.extra(packet) {
                Some(extra) => extra.span,
                None => TransportSpan::of_plain(data),
            };
            if table.observe(packet, window, data, span, &summary[noted..]) {
                noted = at + 1;
            }
        }
    }
    if HAS_JOURNAL {
        table.note(&summary[noted..]);
    }
    statistics.flow_bytes += bytes;
    statistics.active_max = statistics.active_max.max(table.len() as u64);
}

/// The interface of the packet before: most packets have the same.
#[derive(Clone, Copy)]
struct InterfaceCache {
    at: u32,
    link_type: LinkType,
    number: u32,
    /// The interface may have packets in the plain form.
    is_plain: bool,
}

impl InterfaceCache {
    #[cold]
    fn of(interfaces: &[Interface], at: u32, has_fast_path: bool) -> InterfaceCache {
        let interface = interfaces.get(at as usize);
        let link_type = interface.map_or(LinkType::ETHERNET, |interface| interface.link_type);
        let is_plain = has_fast_path && link_type == LinkType::ETHERNET;
        InterfaceCache { at, link_type, number: packet::interface_number(interfaces, at), is_plain }
    }
}
