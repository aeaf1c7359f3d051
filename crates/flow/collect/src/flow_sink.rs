//! Flows of records: their checks, and their part in the account of the source.
//!
//! ```text
//! record --Plan--> Draft --> Flow --> flows | records of an exporter
//!   \------CopyPlan-----------------------> records of an exporter
//! ```

use std::sync::Arc;

use tapline_flow::export::{RecordBatch, RecordLayout};
use tapline_flow::{Collected, Endpoint, Flow};
use tapline_packet::Timestamp;

use crate::account::{RefusedCause, SourceAccount};
use crate::draft::{CopyPlan, Draft, MessageTime, WINDOW};

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
    pub(crate) fn recycle(&mut self, flows: impl Iterator<Item = Flow>) {
        let room = SPARE_MAX.saturating_sub(self.spare.len());
        self.spare.extend(flows.filter_map(|flow| flow.collected).take(room));
    }
}

/// Flows as they are, or as records of an exporter.
pub(crate) enum RecordOutput<'f> {
    Flows(&'f mut Vec<Flow>),
    Records(&'f Arc<RecordLayout>, &'f mut RecordBatch),
}

/// The destination of the flows of a message.
pub(crate) struct RecordSink<'f> {
    pub(crate) time: MessageTime,
    pub(crate) scales: bool,
    pub(crate) sums: &'f mut Sums,
    pub(crate) to: RecordOutput<'f>,
}

/// The time of a flow, and whether it is that of its message because its own cannot be right.
#[derive(Clone, Copy)]
struct FlowTime {
    first: Timestamp,
    last: Timestamp,
    is_of_message: bool,
}

impl RecordSink<'_> {
    /// Makes a flow of a record, and counts it.
    #[inline]
    pub(crate) fn add(&mut self, draft: &Draft, account: &mut SourceAccount, sampling: Option<u32>) {
        if draft.is_not_ip {
            return account.refuse(RefusedCause::NotIp);
        }
        if !draft.is_counted() && !draft.has_event() {
            return account.refuse(RefusedCause::NoCounters);
        }
        let time = self.flow_time(draft);
        let (exporter, spare) = ((account.exporter, account.domain), self.sums.spare.pop());
        let mut flow = draft.flow((time.first, time.last), exporter, sampling, self.scales, spare);
        let both = |of: fn(&Endpoint) -> u64| flow.endpoints.iter().map(of).fold(0, u64::saturating_add);
        let (packets, bytes) = (both(|side| side.packets), both(|side| side.bytes));
        let Some(is_beyond) = self.count(account, packets, bytes, time) else { return };
        if let Some(collected) = &mut flow.collected {
            collected.is_beyond = is_beyond;
        }
        self.sums.answered += flow.answered_packets();
        account.unscaled += u64::from(self.scales && sampling.is_none());
        match &mut self.to {
            RecordOutput::Flows(flows) => flows.push(flow),
            RecordOutput::Records(layout, records) => {
                records.add_flow(layout, &flow);
                self.sums.recycle(std::iter::once(flow));
            }
        }
    }

    /// The layout of records to which fields may be copied; `None` if each needs a flow.
    pub(crate) fn layout(&self) -> Option<&Arc<RecordLayout>> {
        match &self.to {
            RecordOutput::Records(layout, _) if !self.scales => Some(layout),
            RecordOutput::Records(..) | RecordOutput::Flows(_) => None,
        }
    }

    /// Copies the fields of a record, and counts its flow as [`add`](Self::add) does. The draft has the times.
    #[inline]
    pub(crate) fn copy(
        &mut self,
        plan: &mut CopyPlan,
        record: &[u8; WINDOW],
        draft: &Draft,
        account: &mut SourceAccount,
        sampling: Option<u32>,
    ) {
        let (packets, bytes) = plan.counters(record);
        if packets | bytes == 0 {
            return account.refuse(RefusedCause::NoCounters);
        }
        let time = self.flow_time(draft);
        let Some(is_beyond) = self.count(account, packets, bytes, time) else { return };
        let answered = if is_beyond { packets.min(1) } else { packets };
        self.sums.answered += answered;
        if let RecordOutput::Records(_, records) = &mut self.to {
            let is_v6 = plan.is_v6();
            let octets = plan.copy(record, (time.first, time.last), sampling, account.exporter);
            records.add_record(is_v6, octets, answered);
        }
    }

    /// Counts a flow, unless its counters are too great. Returns whether all flows now count more than outputs answer
    /// for.
    #[inline]
    fn count(
        &mut self,
        account: &mut SourceAccount,
        packets: u64,
        bytes: u64,
        time: FlowTime,
    ) -> Option<bool> {
        if packets > PACKETS_MAX || bytes > BYTES_MAX {
            account.refuse(RefusedCause::TooGreat);
            return None;
        }
        account.retimed += u64::from(time.is_of_message);
        account.flows += 1;
        account.packets += u128::from(packets);
        account.bytes += u128::from(bytes);
        account.extend_span(Some((time.first, time.last)));
        let is_beyond = self.sums.answered.saturating_add(packets) > ANSWERED_MAX;
        self.sums.is_beyond |= is_beyond;
        Some(is_beyond)
    }

    /// The flow's own time, or that of the message.
    #[inline]
    fn flow_time(&self, draft: &Draft) -> FlowTime {
        let (first, last) = draft.times(self.time);
        let export_ns = self.time.export_ns;
        let is_early = first.as_nanos() < export_ns.saturating_sub(BEFORE_NS);
        let is_late = last.as_nanos() > export_ns.saturating_add(BEHIND_NS);
        match is_early || is_late {
            true => {
                let time = Timestamp::from_nanos(export_ns);
                FlowTime { first: time, last: time, is_of_message: true }
            }
            false => FlowTime { first, last, is_of_message: false },
        }
    }
}
