//! Details from the payloads of a flow: DNS, TLS, HTTP, and the first bytes of any protocol.

use std::collections::TryReserveError;
use std::mem::Discriminant;

mod records;
mod state;
mod tag;
mod text;

use tapline_dissect::application::of_datagram;
use tapline_dissect::tls::Hello;
use tapline_dissect::{dtls, quic};
use tapline_packet::numbers::ip_protocol::{TCP, UDP};
use tapline_packet::numbers::port;

use super::pool::{NONE, PerSlot, Pool};
use super::stream::{Buffers, Stream};
use super::tcp::{RST, SYN, Segment};
use super::text_pool::{TextList, TextPool};
use super::{Application, DetailFields, Details, FoundBy, PacketView, RefusedDetails, application};
use crate::{NamedAddresses, PayloadFacts};
pub use records::{Dns, DnsAnswer, Http, Tls};
use state::{Exchange, PayloadState, ReadContext, TRIES};
use text::escaped;
pub use text::is_plain;

const UDP_HEADER: usize = 8;

/// Datagrams of each side in which an application is looked for.
pub(super) const DATAGRAMS_MAX: u64 = 4;

/// Blocks of notes for each flow: more than those of most, fewer than those of some.
const BLOCKS: usize = 4;

/// State of a flow: the number of its `PayloadState` once a payload of interest was found, and until then the first
/// sequence number of each stream.
#[derive(Clone, Copy, Debug)]
struct FlowState {
    state: u32,
    starts: [u32; 2],
    is_known: [bool; 2],
}

impl FlowState {
    const EMPTY: FlowState = FlowState { state: NONE, starts: [0; 2], is_known: [false; 2] };

    /// A SYN of a side says where its stream begins. Only the first counts.
    fn begin(&mut self, side: usize, seq: u32) {
        if !self.is_known[side] {
            (self.starts[side], self.is_known[side]) = (seq, true);
        }
    }

    /// The talk, made if there is none; `None` if the memory is full.
    fn state<'t>(&mut self, payloads: &'t mut Pool<PayloadState>) -> Option<&'t mut PayloadState> {
        let is_new = self.state == NONE;
        let state = payloads.get_or_take(&mut self.state)?;
        for side in (0..2).filter(|side| is_new && self.is_known[*side]) {
            state.streams[side].begin(self.starts[side]);
        }
        Some(state)
    }
}

/// Progress of reading a flow's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    application: Option<Application>,
    texts: TextList,
    exchange: Discriminant<Exchange>,
}

impl Default for Progress {
    fn default() -> Progress {
        let exchange = std::mem::discriminant(&Exchange::Nothing);
        Progress { application: None, texts: TextList::default(), exchange }
    }
}

/// All of them, by the slots of the flows.
pub(super) struct PayloadTable {
    fields: DetailFields,
    payload: usize,
    flows: PerSlot<FlowState>,
    payloads: Pool<PayloadState>,
    text_pool: TextPool,
    buffers: Buffers,
    scratch: Vec<u8>,
    /// Answers of DNS that wait for the journal; `None` if they are not read.
    answers: Option<Vec<NamedAddresses>>,
}

impl PayloadTable {
    pub(super) fn new(
        fields: DetailFields,
        payload: u16,
        flows_max: usize,
    ) -> Result<PayloadTable, TryReserveError> {
        Ok(PayloadTable {
            fields,
            payload: if fields.payload { payload.into() } else { 0 },
            flows: PerSlot::new(true, flows_max)?,
            payloads: Pool::new(flows_max)?,
            text_pool: TextPool::new(flows_max.saturating_mul(PayloadTable::blocks(fields, payload)))?,
            buffers: Buffers::new()?,
            scratch: Vec::with_capacity(super::stream::LEN),
            answers: None,
        })
    }

    pub(super) fn read_answers(&mut self) {
        self.answers = self.fields.dns.then(Vec::new);
    }

    pub(super) fn answers(&mut self) -> Option<&mut Vec<NamedAddresses>> {
        self.answers.as_mut()
    }

    fn blocks(fields: DetailFields, payload: u16) -> usize {
        let texts = if fields.dns || fields.tls || fields.http { BLOCKS } else { 0 };
        let payload = if fields.payload { 2 * usize::from(payload).div_ceil(52) } else { 0 };
        texts + payload
    }

    pub(super) fn flow_len(fields: DetailFields, payload: u16) -> usize {
        size_of::<FlowState>()
            + Pool::<PayloadState>::entry_len()
            + 64 * PayloadTable::blocks(fields, payload)
    }

    pub(super) fn refused(&self) -> RefusedDetails {
        RefusedDetails {
            texts: self.text_pool.refused + self.payloads.refused,
            streams: self.buffers.given_up,
        }
    }

    pub(super) fn begin(&mut self, slot: u32) {
        // Its notes were taken when the flow before ended.
        self.flows.begin(slot, FlowState::EMPTY);
    }

    #[inline]
    pub(super) fn prefetch_number(&self, slot: u32) {
        self.flows.prefetch(slot);
    }

    #[inline]
    pub(super) fn prefetch_entry(&self, slot: u32) {
        if let Some(flow) = self.flows.peek(slot) {
            self.payloads.prefetch(flow.state);
        }
    }

    pub(super) fn packet(
        &mut self,
        slot: u32,
        protocol: u8,
        ports: [u16; 2],
        (side, is_early): (usize, bool),
        view: &PacketView<'_>,
        segment: Option<&Segment<'_>>,
    ) {
        match (protocol, segment) {
            (TCP, Some(segment)) => self.segment((slot, side as u8), ports, segment, view.summary.time),
            (UDP, _) => self.datagram(slot, ports, (side, is_early), view),
            _ => {}
        }
    }

    fn datagram(
        &mut self,
        slot: u32,
        ports: [u16; 2],
        (side, is_early): (usize, bool),
        view: &PacketView<'_>,
    ) {
        let Some(span) = view.span else { return };
        let end = (span.end as usize).min(view.data.len());
        let Some(payload) = view.data.get(span.l4 as usize + UDP_HEADER..end) else { return };
        let fields = &self.fields;
        let is_dns = (fields.dns || fields.application) && ports.iter().any(|port| port::is_dns(*port));
        let is_hello = (fields.tls || fields.application)
            && (dtls::is_handshake(payload) || quic::has_long_header(payload));
        let is_other = fields.application && is_early && !is_dns && !is_hello;
        let other = if is_other { of_datagram(payload) } else { None };
        if payload.is_empty() || !(is_dns || is_hello || other.is_some() || self.payload > 0) {
            return;
        }
        self.keep(slot, side, payload);
        let PayloadTable { fields, flows, payloads, text_pool, buffers, scratch, answers, .. } = self;
        let Some(state) = flows.get(slot).and_then(|flow| flow.state(payloads)) else { return };
        state.application = state.application.or(other);
        if is_dns {
            let (time, answers) = (view.summary.time, answers.as_mut());
            state.dns(payload, &mut ReadContext { fields: *fields, time, text_pool, scratch, answers });
        }
        if !is_hello {
            return;
        }
        if dtls::is_handshake(payload) {
            state.application.get_or_insert(application::DTLS);
            return state.dtls((slot, side as u8), payload, *fields, text_pool, buffers);
        }
        state.application.get_or_insert(application::QUIC);
        let mut stream = state.streams[side];
        // The side that answers cannot be read: its keys follow from what the other chose first.
        let is_over = stream.is_done() || state.streams[1 - side].is_known() || state.tries[side] >= TRIES;
        if !fields.tls || is_over {
            return;
        }
        state.tries[side] += 1;
        let owner = (slot, side as u8);
        let mut id = buffers.id(owner, &stream).copied().unwrap_or(quic::ConnectionId::NONE);
        quic::decrypt_initials(payload, &mut id, scratch, &mut |offset, piece| {
            // The first byte has the number 0.
            stream.begin(u32::MAX);
            buffers.add(owner, &mut stream, offset, piece, true, |bytes, is_last| {
                state.plain_hello(Hello::from_crypto(bytes, is_last), text_pool)
            });
        });
        if let Some(kept) = buffers.id(owner, &stream) {
            *kept = id;
        }
        state.streams[side] = stream;
    }

    fn segment(&mut self, owner: (u32, u8), ports: [u16; 2], segment: &Segment<'_>, time: i64) {
        let (slot, side) = (owner.0, usize::from(owner.1));
        self.keep(slot, side, segment.payload);
        let PayloadTable { fields, flows, payloads, text_pool, buffers, scratch, answers, .. } = self;
        let Some(flow) = flows.get(slot) else { return };
        if segment.payload.is_empty() && flow.state == NONE {
            // Nothing was said yet; most scans end so.
            if segment.flags & SYN != 0 {
                flow.begin(side, segment.seq);
            }
            return;
        }
        let Some(state) = flow.state(payloads) else { return };
        if !(fields.dns || fields.tls || fields.http || fields.application) {
            return;
        }
        let mut stream = state.streams[side];
        if stream.is_done() {
            if !fields.tls || !state.begins_tls(segment.payload) || state.tries[side] >= TRIES {
                return;
            }
            state.tries[side] += 1;
            stream = Stream::default();
        }
        if segment.flags & SYN != 0 {
            stream.begin(segment.seq);
        }
        // Data in a SYN (RFC 7413) begins one number further on.
        let seq = segment.seq.wrapping_add(u32::from(segment.flags & SYN != 0));
        let application = state.application;
        if segment.flags & RST == 0 {
            let is_whole = segment.payload.len() == segment.payload_len as usize;
            let answers = answers.as_mut();
            let mut cx = ReadContext { fields: *fields, time, text_pool, scratch, answers };
            buffers.add(owner, &mut stream, seq, segment.payload, is_whole, |bytes, is_last| {
                state.stream(bytes, is_last, ports, &mut cx)
            });
        }
        if state.tries[side] > 0 {
            // The protocol that came before TLS began (STARTTLS).
            state.application = application;
        }
        state.streams[side] = stream;
    }

    /// Keeps the first bytes of a side.
    fn keep(&mut self, slot: u32, side: usize, payload: &[u8]) {
        if self.payload == 0 || payload.is_empty() {
            return;
        }
        let Some(state) = self.flows.get(slot).and_then(|flow| flow.state(&mut self.payloads)) else {
            return;
        };
        if !state.has_payload[side] {
            state.has_payload[side] = true;
            let first = &payload[..payload.len().min(self.payload)];
            self.text_pool.add(&mut state.text_pool, tag::PAYLOAD + side as u8, first);
        }
    }

    /// Puts the results of reading into the details of a flow that ends, and returns its memory.
    pub(super) fn finish(
        &mut self,
        slot: u32,
        (protocol, ports): (u8, [u16; 2]),
        first: usize,
        details: &mut Details,
    ) {
        let PayloadTable { fields, flows, payloads, text_pool, buffers, .. } = self;
        let Some(flow) = flows.get(slot) else { return };
        let mut state = payloads.get(flow.state).map(std::mem::take).unwrap_or_default();
        payloads.give(&mut flow.state);
        for side in 0..2 {
            buffers.end((slot, side as u8), &mut state.streams[side]);
        }
        let PayloadState { exchange, application, .. } = state;
        match exchange {
            Exchange::Nothing => {}
            Exchange::Dns { kind, answer, .. } => {
                details.dns = fields.dns.then(|| Dns { name: Box::default(), kind, answer });
            }
            Exchange::Tls(server) => {
                let (version, cipher) =
                    (server.map(|server| server.version), server.map(|server| server.cipher_suite));
                details.tls = fields.tls.then(|| Tls { version, cipher, ..Tls::default() });
            }
            Exchange::Http(status) => details.http = fields.http.then(|| Http { status, ..Http::default() }),
        }
        text_pool.drain(&mut state.text_pool, |tag, bytes| match tag {
            tag::PAYLOAD.. => details.payload[usize::from(tag - tag::PAYLOAD) ^ first] = bytes.into(),
            _ => details.note(tag, bytes),
        });
        if fields.application {
            let of_ports = || application::of_ports(protocol, ports[first], ports[1 - first]);
            details.found_by = application.map(|_| FoundBy::Content);
            details.application = application.or_else(of_ports);
            details.found_by = details.found_by.or(details.application.map(|_| FoundBy::Port));
        }
    }

    /// Application and name of a flow that goes on.
    pub(super) fn said(&self, slot: u32, (protocol, ports): (u8, [u16; 2]), first: usize) -> PayloadFacts {
        let state = self.flows.peek(slot).and_then(|flow| self.payloads.peek(flow.state));
        let known = state.and_then(|state| state.application);
        let of_ports = || application::of_ports(protocol, ports[first], ports[1 - first]);
        let application = self.fields.application.then(|| known.or_else(of_ports)).flatten();
        let wanted = state.and_then(|state| match state.exchange {
            Exchange::Nothing => None,
            Exchange::Dns { .. } => self.fields.dns.then_some((state, tag::NAME)),
            Exchange::Tls(_) => self.fields.tls.then_some((state, tag::NAME)),
            Exchange::Http(_) => self.fields.http.then_some((state, tag::HOST)),
        });
        let text = wanted.and_then(|(state, tag)| self.text_pool.find(&state.text_pool, tag));
        PayloadFacts { application, name: text.filter(|text| !text.is_empty()).map(|text| escaped(&text)) }
    }

    pub(super) fn progress(&self, slot: u32) -> Progress {
        let state = self.flows.peek(slot).and_then(|flow| self.payloads.peek(flow.state));
        state.map_or_else(Progress::default, |state| Progress {
            application: state.application,
            texts: state.text_pool,
            exchange: std::mem::discriminant(&state.exchange),
        })
    }

    pub(super) fn clear(&mut self) {
        self.flows.clear();
        self.payloads.clear();
        self.text_pool.clear();
        self.buffers.clear();
    }
}
