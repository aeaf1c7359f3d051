//! Flows of records: their checks, and their part in the account of the source.

use tapline_flow::{Collected, Endpoint, Flow};
use tapline_packet::Timestamp;

use crate::account::{RefusedCause, SourceAccount};
use crate::draft::{Draft, MessageTime};

/// Packets and bytes of one record at most: half an hour at 1 Tbit/s is 2.7e12 packets and 2.3e14 bytes.
const PACKETS_MAX: u64 = 1 << 42;
const BYTES_MAX: u64 = 1 << 48;
/// Packets of all flows for which outputs answer: their sums do not wrap. Forged records can reach it, so flows are
/// not refused then, but each side counts as one packet ([`tapline_flow::Collected::is_beyond`]).
const ANSWERED_MAX: u64 = 1 << 63;
/// Time before its message at which a flow may begin, and time behind it at which it may end.
const BEFORE_NS: i64 = 7 * 86_400 * 1_000_000_000;
const BEHIND_NS: i64 = 3600 * 1_000_000_000;

/// Boxes that are kept for the next flows.
const SPARE_MAX: usize = 4096;

/// Sums over the flows of all sources, and memory for the next flows.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    /// Packets of all flows for which outputs answer.
    pub(crate) answered: u64,
    /// Whether they have reached [`ANSWERED_MAX`].
    pub(crate) is_beyond: bool,
    /// Boxes of flows that were handed on.
    #[allow(clippy::vec_box, reason = "flows are handed on in their boxes, which come back here")]
    spare: Vec<Box<Collected>>,
}

impl Sums {
    pub(crate) fn recycle(&mut self, flows: &mut Vec<Flow>) {
        let room = SPARE_MAX.saturating_sub(self.spare.len());
        self.spare.extend(flows.drain(..).filter_map(|flow| flow.collected).take(room));
    }
}

/// The destination of the flows of a message.
pub(crate) struct FlowSink<'f> {
    pub(crate) time: MessageTime,
    pub(crate) scales: bool,
    pub(crate) sums: &'f mut Sums,
    pub(crate) flows: &'f mut Vec<Flow>,
}

impl FlowSink<'_> {
    /// Makes a flow of a record, and counts it.
    #[inline]
    pub(crate) fn add(&mut self, draft: &Draft, account: &mut SourceAccount, sampling: Option<u32>) {
        if draft.is_not_ip {
            return account.refuse(RefusedCause::NotIp);
        }
        if !draft.is_counted() && !draft.has_event() {
            return account.refuse(RefusedCause::NoCounters);
        }
        let (first, last) = draft.times(self.time);
        let (first, last, is_retimed) = match self.misplaced(first, last) {
            Some(time) => (time, time, true),
            None => (first, last, false),
        };
        let (exporter, spare) = ((account.exporter, account.domain), self.sums.spare.pop());
        let mut flow = draft.flow((first, last), exporter, sampling, self.scales, spare);
        let both = |of: fn(&Endpoint) -> u64| flow.endpoints.iter().map(of).fold(0, u64::saturating_add);
        let (packets, bytes) = (both(|side| side.packets), both(|side| side.bytes));
        if packets > PACKETS_MAX || bytes > BYTES_MAX {
            return account.refuse(RefusedCause::TooGreat);
        }
        if self.sums.answered.saturating_add(packets) > ANSWERED_MAX
            && let Some(collected) = &mut flow.collected
        {
            collected.is_beyond = true;
            self.sums.is_beyond = true;
        }
        self.sums.answered += flow.answered_packets();
        account.retimed += u64::from(is_retimed);
        account.unscaled += u64::from(self.scales && sampling.is_none());
        account.flows += 1;
        account.packets += u128::from(packets);
        account.bytes += u128::from(bytes);
        account.extend_span(Some((first, last)));
        self.flows.push(flow);
    }

    /// The time of the message, if the flow's own cannot be right.
    #[inline]
    fn misplaced(&self, first: Timestamp, last: Timestamp) -> Option<Timestamp> {
        let export_ns = self.time.export_ns;
        let is_early = first.as_nanos() < export_ns.saturating_sub(BEFORE_NS);
        let is_late = last.as_nanos() > export_ns.saturating_add(BEHIND_NS);
        (is_early || is_late).then_some(Timestamp::from_nanos(export_ns))
    }
}
