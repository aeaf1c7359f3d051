//! A conversation between its packets and its print: turns of client and server, with gaps and notes between them.

use tapline_stream::http::{self, BodyEvent, StreamBytes};
use tapline_stream::{EndCause, Event, GapCause, Stream};

use super::super::lines::Endpoint;
use super::body::{Body, Note, Shown};

/// The most bytes of a turn. A longer one goes on in the next.
const TURN_MAX: usize = 64 << 10;
/// Memory of a conversation without its turns.
const OWN_MEMORY: usize = 1024;
/// Memory for heads of HTTP that are not complete, of all conversations.
const HEADS_MAX: usize = 64 << 20;

/// Counts and bounds of all conversations.
#[derive(Default)]
pub(super) struct Shared {
    /// Bodies that are being unpacked.
    pub(super) unpacking: usize,
    /// Bodies that are shown as they were sent, at least in part.
    pub(super) not_unpacked: u64,
    /// Bytes of unpacked bodies beyond the longest.
    pub(super) left_out: u64,
    /// Bytes of memory for heads.
    pub(super) heads: usize,
    /// Times that a stream gave its head up, as there was no memory for it.
    pub(super) heads_given_up: u64,
}

impl Shared {
    /// Frees what a conversation had.
    pub(super) fn forget(&mut self, conversation: &mut Conversation) {
        if let Some(http) = conversation.http.take() {
            self.heads -= http.memory;
            http.bodies.into_iter().flatten().for_each(|body| body.forget(self));
        }
    }
}

/// The kind of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bytes,
    Gap { len: u64, cause: GapCause },
    Note(Note),
}

/// Bytes that one end sent, or a gap or note between them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) kind: Kind,
    pub(super) is_from_client: bool,
    pub(super) time_ns: Option<i64>,
    /// Bytes before it in its direction, shown or missing.
    pub(super) offset: u64,
    /// Bytes of it.
    pub(super) len: usize,
    /// Whether it starts a new line, and does not continue the turn before it.
    pub(super) begins_line: bool,
}

/// Turns that are not printed yet.
#[derive(Default)]
pub(super) struct Turns {
    pub(super) bytes: Vec<u8>,
    pub(super) turns: Vec<Turn>,
    /// Bytes so far, of the server and of the client.
    offsets: [u64; 2],
    /// A body ended: what follows begins a line.
    is_at_end: bool,
}

impl Turns {
    fn memory(&self) -> usize {
        self.bytes.capacity() + self.turns.capacity() * size_of::<Turn>()
    }

    fn add(&mut self, is_from_client: bool, time_ns: Option<i64>, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let last = self.turns.last().filter(|last| {
                last.kind == Kind::Bytes && last.is_from_client == is_from_client && !self.is_at_end
            });
            let goes_on = last.is_some();
            let room = TURN_MAX - last.map_or(TURN_MAX, |last| last.len);
            if room == 0 {
                self.push(Kind::Bytes, is_from_client, time_ns, !goes_on);
            }
            let room = if room == 0 { TURN_MAX } else { room };
            let (now, rest) = bytes.split_at(bytes.len().min(room));
            self.bytes.extend_from_slice(now);
            self.offsets[usize::from(is_from_client)] += now.len() as u64;
            if let Some(turn) = self.turns.last_mut() {
                turn.len += now.len();
            }
            bytes = rest;
        }
    }

    fn push(&mut self, kind: Kind, is_from_client: bool, time_ns: Option<i64>, begins_line: bool) {
        self.is_at_end = false;
        let offset = &mut self.offsets[usize::from(is_from_client)];
        self.turns.push(Turn { kind, is_from_client, time_ns, offset: *offset, len: 0, begins_line });
        if let Kind::Gap { len, .. } = kind {
            *offset = offset.saturating_add(len);
        }
    }

    /// Forgets what was printed.
    pub(super) fn clear(&mut self) {
        (self.bytes, self.turns) = (Vec::new(), Vec::new());
    }
}

/// HTTP in a conversation.
struct Http {
    messages: http::Conversation,
    /// Open bodies of the server and of the client.
    bodies: [Option<Body>; 2],
    memory: usize,
}

pub(super) struct Conversation {
    pub(super) client: Endpoint,
    pub(super) server: Endpoint,
    pub(super) begin_ns: Option<i64>,
    pub(super) has_syn: bool,
    pub(super) turns: Turns,
    /// Bytes that were sent and seen, by the server and by the client.
    pub(super) sent: [u64; 2],
    /// Ends of the server's stream and of the client's.
    pub(super) ends: [Option<EndCause>; 2],
    is_forgotten: bool,
    /// Parts that were printed.
    pub(super) parts: u64,
    http: Option<Box<Http>>,
}

impl Conversation {
    pub(super) fn new(stream: &Stream, is_raw: bool) -> Conversation {
        let tuple = if stream.is_from_client { stream.tuple } else { stream.tuple.reversed() };
        let http = Http { messages: http::Conversation::with_heads(), bodies: [None, None], memory: 0 };
        Conversation {
            client: (tuple.src, tuple.src_port),
            server: (tuple.dst, tuple.dst_port),
            begin_ns: stream.time_ns,
            has_syn: stream.has_syn,
            turns: Turns::default(),
            sent: [0; 2],
            ends: [None; 2],
            is_forgotten: false,
            parts: 0,
            http: (!is_raw).then(|| Box::new(http)),
        }
    }

    pub(super) fn memory(&self) -> usize {
        OWN_MEMORY + self.turns.memory()
    }

    /// Whether nothing more comes.
    pub(super) fn is_complete(&self) -> bool {
        self.is_forgotten || self.ends.iter().all(Option::is_some)
    }

    /// Whether there is something to print.
    pub(super) fn has_news(&self) -> bool {
        self.is_complete() || !self.turns.turns.is_empty()
    }

    pub(super) fn take(&mut self, stream: &Stream, event: Event<'_>, shared: &mut Shared) {
        let side = usize::from(stream.is_from_client);
        match event {
            Event::Segment(piece) => self.sent[side] += piece.len as u64,
            Event::End(cause) => self.ends[side] = Some(cause),
            Event::Forgotten => self.is_forgotten = true,
            Event::Gap { .. } => {}
        }
        match &mut self.http {
            Some(http) => http.take(&mut self.turns, stream, event, shared),
            None => {
                if let Event::Segment(piece) = event {
                    self.turns.add(stream.is_from_client, stream.time_ns, piece.bytes());
                }
            }
        }
        if let Event::Gap { len, cause } = event {
            self.turns.push(Kind::Gap { len, cause }, stream.is_from_client, stream.time_ns, true);
        }
    }
}

impl Http {
    fn take(&mut self, turns: &mut Turns, stream: &Stream, event: Event<'_>, shared: &mut Shared) {
        let Http { messages, bodies, memory } = self;
        let (is_client, time_ns) = (stream.is_from_client, stream.time_ns);
        let body = &mut bodies[usize::from(is_client)];
        let mut sink = |event: BodyEvent<'_>| add(event, body, turns, (is_client, time_ns), shared);
        match event {
            Event::Segment(piece) => {
                let (offset, acknowledged) = (stream.offset, piece.acknowledged);
                messages.data(
                    is_client,
                    StreamBytes { bytes: piece.bytes(), offset, acknowledged },
                    &mut sink,
                );
            }
            Event::Gap { len, .. } => {
                messages.gap(is_client, len, &mut sink);
                body.iter_mut().for_each(|body| body.fail(shared));
            }
            Event::End(cause) => messages.end(is_client, cause == EndCause::Finished, &mut sink),
            Event::Forgotten => {}
        }
        shared.heads = shared.heads - *memory + messages.memory();
        if shared.heads > HEADS_MAX {
            shared.heads -= messages.memory();
            shared.heads_given_up += 1;
            let mut sink = |event: BodyEvent<'_>| add(event, body, turns, (is_client, time_ns), shared);
            messages.give_up(is_client, &mut sink);
            shared.heads += messages.memory();
        }
        *memory = messages.memory();
    }
}

/// Adds an event of HTTP to the turns.
fn add(
    event: BodyEvent<'_>,
    body: &mut Option<Body>,
    turns: &mut Turns,
    (is_client, time_ns): (bool, Option<i64>),
    shared: &mut Shared,
) {
    let mut show = |shown: Shown<'_>| match shown {
        Shown::Bytes(bytes) => turns.add(is_client, time_ns, bytes),
        Shown::Note(note) => turns.push(Kind::Note(note), is_client, time_ns, true),
    };
    match event {
        BodyEvent::Message { bytes, .. } | BodyEvent::Other(bytes) => show(Shown::Bytes(bytes)),
        BodyEvent::Begin(head) => *body = Body::begin(&head.content_encoding, shared),
        BodyEvent::Data(bytes) => match body {
            Some(body) => body.write(bytes, shared, &mut show),
            None => show(Shown::Bytes(bytes)),
        },
        BodyEvent::End { is_whole, .. } => {
            body.take().into_iter().for_each(|body| body.end(is_whole, shared, &mut show));
            turns.is_at_end = true;
        }
    }
}
