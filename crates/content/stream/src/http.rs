//! Bodies of HTTP/1 messages (RFC 9112), out of the two streams of a connection.
//!
//! ```text
//! head --no body--> head        length, chunked, up to the end of the stream: RFC 9112, 6.3
//!   |---- body ---> Begin Data* End --> head
//!   +- no HTTP, a gap --> lost --a piece that begins like a message--> head
//! ```
//!
//! Bodies are reported as they were sent: a `Content-Encoding` is not decoded. A parser holds at most [`HEAD_MAX`]
//! bytes of a head, a conversation 64 KiB of requests whose responses are awaited, and nothing of a body.
//! [`Conversation::memory`] returns the sum. The messages show which stream has the requests: in a capture that
//! begins in the middle of a connection, the end that was seen first may be the server.

mod awaited;
mod framing;

use tapline_dissect::Detection;
use tapline_dissect::http::{self, Start, may_begin};

use self::awaited::Awaited;
pub use self::awaited::Request;
use self::framing::{Framing, KnownFields, TEXT_MAX, chunk_size, text};

/// The longest head of a message in bytes.
pub const HEAD_MAX: usize = 64 << 10;
/// The longest line before a chunk, and of a trailer.
const LINE_MAX: usize = 4096;

/// The head of a message. Texts are as they were sent, cut at 4096 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The status of a response; `None` for a request.
    pub status: Option<u16>,
    /// The request, or the one that a response answers; `None` if that is unknown.
    pub request: Option<Request>,
    /// `Content-Type`.
    pub content_type: String,
    /// `Content-Encoding`.
    pub content_encoding: String,
}

impl Head {
    /// Whether a text may have been cut.
    pub fn is_cut(&self) -> bool {
        let request = self.request.iter().flat_map(|one| [&one.method, &one.target, &one.host]);
        request.chain([&self.content_type, &self.content_encoding]).any(|text| text.len() >= TEXT_MAX)
    }
}

/// An event in a message.
#[derive(Debug, PartialEq, Eq)]
pub enum BodyEvent<'a> {
    /// The head of a message, with or without a body: of conversations [with heads](Conversation::with_heads) alone.
    Message {
        /// The head.
        head: &'a Head,
        /// The bytes of the head, with the empty line behind it.
        bytes: &'a [u8],
    },
    /// Bytes of no message, or of one that is not complete, and trailers: of conversations with heads alone.
    Other(&'a [u8]),
    /// A body begins.
    Begin(Head),
    /// The next bytes of the body.
    Data(&'a [u8]),
    /// The body is over.
    End {
        /// Bytes that are missing in it, as far as that is known.
        missing: u64,
        /// All of it was there.
        is_whole: bool,
    },
}

/// The next bytes of a stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamBytes<'b> {
    /// The bytes.
    pub bytes: &'b [u8],
    /// The offset of the first.
    pub offset: u64,
    /// The offset in the opposite stream up to which their packet acknowledges, if that is known.
    pub acknowledged: Option<u64>,
}

/// Counters of the parts of a conversation that are not HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unparsed {
    /// Times that a stream continued with something other than a message, or with a message of unknown length. The
    /// bytes behind it are left out up to a piece that begins like a message.
    pub messages: u64,
    /// Header lines that are not fields. Their messages are reported without them.
    pub lines: u64,
}

/// The two streams of a connection.
#[derive(Debug, Default)]
pub struct Conversation {
    client: Parser,
    server: Parser,
    awaited: Awaited,
    unparsed: Unparsed,
}

type Sink<'a> = &'a mut dyn FnMut(BodyEvent<'_>);

impl Conversation {
    /// A conversation that also reports the head of each message, and bytes that belong to no message. Only the framing
    /// of chunks and empty lines before messages are left out.
    pub fn with_heads() -> Conversation {
        let [client, server] = [true; 2].map(|has_heads| Parser { has_heads, ..Parser::default() });
        Conversation { client, server, ..Conversation::default() }
    }

    /// Takes the next bytes of a stream.
    pub fn data(&mut self, is_from_client: bool, piece: StreamBytes<'_>, sink: Sink<'_>) {
        let Conversation { client, server, awaited, unparsed } = self;
        let (parser, other) = if is_from_client { (client, server) } else { (server, client) };
        parser.data(piece, &mut Context { awaited, unparsed }, sink);
        if (parser.state, other.state) == (BodyState::Tunnel, BodyState::Head) {
            other.state = BodyState::Tunnel;
        }
        self.note_loss(is_from_client);
    }

    /// Notes missing bytes.
    pub fn gap(&mut self, is_from_client: bool, len: u64, sink: Sink<'_>) {
        self.parser(is_from_client).gap(len, sink);
        self.note_loss(is_from_client);
    }

    /// Notes the end of a stream.
    pub fn end(&mut self, is_from_client: bool, is_orderly: bool, sink: Sink<'_>) {
        self.parser(is_from_client).end(is_orderly, sink);
    }

    /// Bytes of memory for heads that are not whole, and for requests whose responses are awaited.
    pub fn memory(&self) -> usize {
        self.client.partial.capacity() + self.server.partial.capacity() + self.awaited.bytes
    }

    /// Frees that memory, as far as this stream caused it. If a head or a line of it was held, the stream goes on with
    /// the next message that begins.
    pub fn give_up(&mut self, is_from_client: bool, sink: Sink<'_>) {
        self.awaited.clear();
        let parser = self.parser(is_from_client);
        if parser.partial.capacity() > 0 {
            parser.lose(sink);
        }
    }

    /// Takes the counters, which begin again at 0.
    pub fn take_unparsed(&mut self) -> Unparsed {
        std::mem::take(&mut self.unparsed)
    }

    fn parser(&mut self, is_from_client: bool) -> &mut Parser {
        if is_from_client { &mut self.client } else { &mut self.server }
    }

    /// Messages may be missing in a stream that is lost.
    fn note_loss(&mut self, is_from_client: bool) {
        let parser = self.parser(is_from_client);
        match (parser.state, parser.has_requests) {
            (BodyState::Lost, Some(true)) => self.awaited.lose_requests(),
            (BodyState::Lost, _) => self.awaited.lose_responses(),
            _ => {}
        }
    }
}

/// The parts of a conversation that both parsers share.
struct Context<'c> {
    awaited: &'c mut Awaited,
    unparsed: &'c mut Unparsed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum BodyState {
    #[default]
    Head,
    /// Bytes that are still to come.
    Length(u64),
    /// The size of the next chunk.
    ChunkSize,
    /// Bytes of a chunk that are still to come.
    Chunk(u64),
    /// The end of line behind a chunk.
    ChunkEnd,
    /// The lines behind the last chunk.
    Trailer,
    /// All up to the end of the stream.
    UntilEnd,
    Lost,
    /// Another protocol from here on.
    Tunnel,
}

/// One stream.
#[derive(Debug, Default)]
struct Parser {
    state: BodyState,
    /// A head, or a line, that is not whole.
    partial: Vec<u8>,
    /// The first line of the head is in it.
    has_start: bool,
    /// Whether the messages are requests; `None` before the first.
    has_requests: Option<bool>,
    missing: u64,
    /// Heads and bytes of no message are events.
    has_heads: bool,
}

impl Parser {
    fn data(&mut self, piece: StreamBytes<'_>, context: &mut Context<'_>, sink: Sink<'_>) {
        if self.state == BodyState::Lost && self.begins_message(piece.bytes) {
            self.state = BodyState::Head;
        }
        let end = piece.offset + piece.bytes.len() as u64;
        let mut bytes = piece.bytes;
        while !bytes.is_empty() {
            bytes = match self.state {
                BodyState::Lost | BodyState::Tunnel => {
                    // Before a tunnel it may have been the beginning of a head.
                    let before = std::mem::take(&mut self.partial);
                    self.other(&before, sink);
                    return self.other(bytes, sink);
                }
                BodyState::Head => {
                    let offset = end - bytes.len() as u64;
                    self.head(StreamBytes { bytes, offset, ..piece }, context, sink)
                }
                BodyState::Length(left) => {
                    let rest = self.body(bytes, left, sink);
                    let left = left - (bytes.len() - rest.len()) as u64;
                    self.state = BodyState::Length(left);
                    if left == 0 {
                        self.close(true, sink);
                    }
                    rest
                }
                BodyState::UntilEnd => self.body(bytes, u64::MAX, sink),
                BodyState::Chunk(left) => {
                    let rest = self.body(bytes, left, sink);
                    let left = left - (bytes.len() - rest.len()) as u64;
                    self.state = if left == 0 { BodyState::ChunkEnd } else { BodyState::Chunk(left) };
                    rest
                }
                BodyState::ChunkSize | BodyState::ChunkEnd | BodyState::Trailer => {
                    self.line(bytes, context, sink)
                }
            };
        }
    }

    /// Hands on up to `left` bytes of a body; gives the others back.
    fn body<'b>(&self, bytes: &'b [u8], left: u64, sink: Sink<'_>) -> &'b [u8] {
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        let (body, rest) = bytes.split_at(len);
        if !body.is_empty() {
            sink(BodyEvent::Data(body));
        }
        rest
    }

    /// Reports bytes of no message.
    fn other(&self, bytes: &[u8], sink: Sink<'_>) {
        if self.has_heads && !bytes.is_empty() {
            sink(BodyEvent::Other(bytes));
        }
    }

    /// A line of the chunked coding: the size of a chunk, the end of one, or a trailer.
    fn line<'b>(&mut self, bytes: &'b [u8], context: &mut Context<'_>, sink: Sink<'_>) -> &'b [u8] {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (line, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
        let is_too_long = self.partial.len() + line.len() > LINE_MAX;
        self.partial.extend_from_slice(line);
        if is_too_long {
            context.unparsed.messages += 1;
            self.lose(sink);
            return rest;
        }
        if end.is_none() {
            return rest;
        }
        let line = std::mem::take(&mut self.partial);
        let is_empty = line.trim_ascii().is_empty();
        self.state = match (self.state, chunk_size(&line)) {
            (BodyState::Trailer, _) if is_empty => {
                self.close(true, sink);
                return rest;
            }
            (BodyState::Trailer, _) => {
                self.other(&line, sink);
                BodyState::Trailer
            }
            (BodyState::ChunkSize, Some(0)) => BodyState::Trailer,
            (BodyState::ChunkSize, Some(size)) => BodyState::Chunk(size),
            (BodyState::ChunkEnd, _) if is_empty => BodyState::ChunkSize,
            _ => {
                context.unparsed.messages += 1;
                self.partial = line;
                self.lose(sink);
                return rest;
            }
        };
        rest
    }

    fn head<'b>(&mut self, piece: StreamBytes<'b>, context: &mut Context<'_>, sink: Sink<'_>) -> &'b [u8] {
        let StreamBytes { mut bytes, mut offset, acknowledged } = piece;
        let before = self.partial.len();
        if before == 0 {
            // Empty lines before a message say nothing (RFC 9112, 2.2).
            let is_line_end = |byte: &&u8| matches!(byte, b'\r' | b'\n');
            let empty = bytes.iter().take_while(is_line_end).count();
            (bytes, offset, self.has_start) = (&bytes[empty..], offset + empty as u64, false);
        }
        let room = HEAD_MAX - before;
        self.partial.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if bytes.is_empty() {
            return &[];
        }
        // The first line tells other protocols apart, and an empty line ends the head: so time grows with its length
        // alone, however it is cut.
        let new = &self.partial[before.saturating_sub(2)..];
        if !has_empty_line(new) && bytes.len() < room {
            let may_go_on = match () {
                () if self.has_start => true,
                () if new.contains(&b'\n') => {
                    self.has_start = true;
                    !matches!(http::Head::parse(&self.partial, false), Detection::NoMatch)
                }
                () => may_begin(&self.partial),
            };
            if !may_go_on {
                self.refuse(context, sink);
            }
            return &[];
        }
        let partial = std::mem::take(&mut self.partial);
        let Detection::Match(head) = http::Head::parse(&partial, false) else {
            self.has_requests = self.has_requests.or_else(|| is_request(&partial));
            self.partial = partial;
            self.refuse(context, sink);
            self.other(bytes.get(room..).unwrap_or_default(), sink);
            return &[];
        };
        let used = head.len - before;
        self.message((&head, &partial), offset + used as u64, acknowledged, context, sink);
        &bytes[used..]
    }

    /// A head that ends at an offset, with the bytes that begin with it.
    fn message(
        &mut self,
        (head, bytes): (&http::Head<'_>, &[u8]),
        end: u64,
        acknowledged: Option<u64>,
        context: &mut Context<'_>,
        sink: Sink<'_>,
    ) {
        self.has_requests = Some(matches!(head.start, Start::Request { .. }));
        let fields = KnownFields::of(head);
        context.unparsed.lines += fields.malformed;
        let (status, request, framing) = match head.start {
            Start::Request { method, target, .. } => {
                let (method, target) = (text(method), text(target));
                let request =
                    Request { method, target, host: fields.host.clone(), end, received: acknowledged };
                context.awaited.push(request.clone());
                // A request without a length has no body.
                let framing = fields.framing().map(|framing| match framing {
                    Framing::UntilEnd => Framing::None,
                    framing => framing,
                });
                (None, Some(request), framing)
            }
            Start::Response { status, .. } => {
                // 100 and its like announce the answer.
                let is_interim = (100..200).contains(&status) && status != 101;
                let request = if is_interim {
                    None
                } else {
                    context.awaited.take(end.saturating_sub(head.len as u64), acknowledged)
                };
                let method = request.as_ref().map_or("", |request| request.method.as_str());
                let framing = match (status, method) {
                    (101, _) | (200..300, "CONNECT") => Some(Framing::Tunnel),
                    (100..200 | 204 | 304, _) | (_, "HEAD") => Some(Framing::None),
                    _ => fields.framing(),
                };
                (Some(status), request, framing)
            }
        };
        let KnownFields { content_type, content_encoding, .. } = fields;
        let bytes = &bytes[..head.len];
        let head = Head { status, request, content_type, content_encoding };
        if self.has_heads {
            sink(BodyEvent::Message { head: &head, bytes });
        }
        match framing {
            Some(framing) => self.begin(head, framing, sink),
            None => self.refuse(context, sink),
        }
    }

    fn begin(&mut self, head: Head, framing: Framing, sink: Sink<'_>) {
        self.missing = 0;
        self.state = match framing {
            Framing::None | Framing::Length(0) => BodyState::Head,
            Framing::Length(len) => BodyState::Length(len),
            Framing::Chunked => BodyState::ChunkSize,
            Framing::UntilEnd => BodyState::UntilEnd,
            Framing::Tunnel => BodyState::Tunnel,
        };
        if self.is_in_body() {
            sink(BodyEvent::Begin(head));
        }
    }

    fn is_in_body(&self) -> bool {
        !matches!(self.state, BodyState::Head | BodyState::Lost | BodyState::Tunnel)
    }

    fn close(&mut self, is_whole: bool, sink: Sink<'_>) {
        self.partial.clear();
        sink(BodyEvent::End { missing: self.missing, is_whole: is_whole && self.missing == 0 });
        self.state = BodyState::Head;
    }

    fn lose(&mut self, sink: Sink<'_>) {
        self.leave(false, sink);
    }

    /// Ends the body and all messages.
    fn leave(&mut self, is_whole: bool, sink: Sink<'_>) {
        let partial = std::mem::take(&mut self.partial);
        if self.is_in_body() {
            self.close(is_whole, sink);
        }
        self.other(&partial, sink);
        self.state = BodyState::Lost;
    }

    /// Skips bytes that are not a message, and counts them in a stream of HTTP.
    fn refuse(&mut self, context: &mut Context<'_>, sink: Sink<'_>) {
        context.unparsed.messages += u64::from(self.has_requests.is_some());
        self.lose(sink);
    }

    fn gap(&mut self, len: u64, sink: Sink<'_>) {
        match self.state {
            BodyState::Length(left) if len <= left => {
                self.missing += len;
                self.state = BodyState::Length(left - len);
                if len == left {
                    self.close(false, sink);
                }
            }
            BodyState::Chunk(left) if len <= left => {
                self.missing += len;
                self.state = if len == left { BodyState::ChunkEnd } else { BodyState::Chunk(left - len) };
            }
            BodyState::UntilEnd => self.missing += len,
            BodyState::Length(left) | BodyState::Chunk(left) => {
                self.missing += left.min(len);
                self.lose(sink);
            }
            // What was taken for the beginning of a head came before the gap.
            BodyState::Tunnel => {
                let before = std::mem::take(&mut self.partial);
                self.other(&before, sink);
            }
            _ => self.lose(sink),
        }
    }

    fn end(&mut self, is_orderly: bool, sink: Sink<'_>) {
        self.leave(is_orderly && self.state == BodyState::UntilEnd, sink);
    }

    /// Whether bytes begin like a message of this stream.
    fn begins_message(&self, bytes: &[u8]) -> bool {
        let line = bytes.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default();
        let kind = is_request(line);
        kind.is_some() && self.has_requests.is_none_or(|is_request| kind == Some(is_request))
    }
}

/// Whether the first line is that of a request; `None` if it is that of no message.
fn is_request(bytes: &[u8]) -> Option<bool> {
    match http::Head::parse(bytes, true) {
        Detection::Match(head) => Some(matches!(head.start, Start::Request { .. })),
        _ => None,
    }
}

/// Whether a line ends in bytes, and an empty one behind it.
fn has_empty_line(bytes: &[u8]) -> bool {
    let after_line = |at: usize| bytes[at + 1..].strip_prefix(b"\r").unwrap_or(&bytes[at + 1..]);
    line_ends(bytes).any(|at| after_line(at).starts_with(b"\n"))
}

/// The places of ends of lines.
fn line_ends(bytes: &[u8]) -> impl Iterator<Item = usize> {
    bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at)
}

#[cfg(test)]
mod tests;
