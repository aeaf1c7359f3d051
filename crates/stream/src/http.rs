//! Bodies of HTTP/1 messages (RFC 9112), out of the two streams of a connection.
//!
//! ```text
//! head --no body--> head        length, chunked, up to the end of the stream: RFC 9112, 6.3
//!   |---- body ---> Begin Data* End --> head
//!   +- no HTTP, a gap --> lost --a piece that begins like a message--> head
//! ```
//!
//! Bodies are told as they were sent: what `Content-Encoding` says was not undone. A parser holds at most [`HEAD_MAX`]
//! bytes of a head, a conversation 64 KiB of requests whose responses are awaited, and nothing of a body.
//! [`Conversation::memory`] tells how much that is.

use std::collections::VecDeque;

/// The longest head of a message in bytes.
pub const HEAD_MAX: usize = 64 << 10;
/// The bytes of a head that are parsed as they come, whole or not.
const LOOK_MIN: usize = 64;
/// The most fields of a head.
const FIELDS_MAX: usize = 200;
/// The longest text of a head that is kept.
const TEXT_MAX: usize = 4096;
/// Requests whose responses are awaited.
const AWAITED_MAX: usize = 256;
/// Bytes of their texts.
const AWAITED_BYTES_MAX: usize = 64 << 10;
/// The longest line before a chunk, and of a trailer.
const LINE_MAX: usize = 4096;

/// The head of a message that has a body. Texts are as they were sent, cut at 4096 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The status of a response; `None` for a request.
    pub status: Option<u16>,
    /// The request's method; that of the request that a response answers, where it was seen.
    pub method: String,
    /// The request's target.
    pub target: String,
    /// `Host`.
    pub host: String,
    /// `Content-Type`.
    pub content_type: String,
    /// `Content-Encoding`.
    pub content_encoding: String,
}

/// An event in a message.
#[derive(Debug, PartialEq, Eq)]
pub enum BodyEvent<'a> {
    /// A body begins.
    Begin(Head),
    /// Its next bytes.
    Data(&'a [u8]),
    /// The body is over.
    End {
        /// Bytes that are missing in it, as far as that is known.
        missing: u64,
        /// All of it was there.
        is_whole: bool,
    },
}

/// The part of a request that its response depends on.
#[derive(Clone, Debug, Default)]
struct Asked {
    method: String,
    target: String,
    host: String,
}

impl Asked {
    fn len(&self) -> usize {
        self.method.len() + self.target.len() + self.host.len()
    }
}

/// Requests whose responses are awaited. With more than there is room for, all are forgotten.
#[derive(Debug, Default)]
struct Awaited {
    requests: VecDeque<Asked>,
    /// Bytes of their texts.
    bytes: usize,
}

impl Awaited {
    fn push(&mut self, asked: Asked) {
        if self.requests.len() == AWAITED_MAX || self.bytes + asked.len() > AWAITED_BYTES_MAX {
            self.clear();
        }
        self.bytes += asked.len();
        self.requests.push_back(asked);
    }

    fn pop(&mut self) -> Option<Asked> {
        let asked = self.requests.pop_front()?;
        self.bytes -= asked.len();
        Some(asked)
    }

    fn clear(&mut self) {
        *self = Awaited::default();
    }
}

/// The two streams of a connection.
#[derive(Debug, Default)]
pub struct Conversation {
    requests: Parser,
    responses: Parser,
    awaited: Awaited,
}

type Sink<'a> = &'a mut dyn FnMut(BodyEvent<'_>);

impl Conversation {
    /// Takes the next bytes of a stream.
    pub fn data(&mut self, is_from_client: bool, bytes: &[u8], sink: Sink<'_>) {
        let Conversation { requests, responses, awaited } = self;
        match is_from_client {
            true => requests.data(bytes, &mut Role::Client(awaited), sink),
            false => responses.data(bytes, &mut Role::Server(awaited), sink),
        }
    }

    /// Notes missing bytes.
    pub fn gap(&mut self, is_from_client: bool, len: u64, sink: Sink<'_>) {
        if is_from_client {
            // Requests may be among them.
            self.awaited.clear();
        }
        self.parser(is_from_client).gap(len, sink);
    }

    /// Notes the end of a stream.
    pub fn end(&mut self, is_from_client: bool, is_orderly: bool, sink: Sink<'_>) {
        self.parser(is_from_client).end(is_orderly, sink);
    }

    /// Bytes of memory for heads that are not whole, and for requests whose responses are awaited.
    pub fn memory(&self) -> usize {
        self.requests.partial.capacity() + self.responses.partial.capacity() + self.awaited.bytes
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

    /// Whether a stream holds HTTP as far as is known.
    pub fn is_http(&self) -> bool {
        [&self.requests, &self.responses].iter().any(|parser| !matches!(parser.state, State::Lost))
    }

    fn parser(&mut self, is_from_client: bool) -> &mut Parser {
        if is_from_client { &mut self.requests } else { &mut self.responses }
    }
}

/// Which of the two streams a parser reads, with the requests whose responses are awaited.
enum Role<'a> {
    Client(&'a mut Awaited),
    Server(&'a mut Awaited),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    /// Bytes that are still to come.
    Length(u64),
    /// The size of the next chunk.
    ChunkSize,
    /// Bytes of a chunk that are still to come, with the end of line behind it.
    Chunk(u64),
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
    state: State,
    /// A head, or a line, that is not whole.
    partial: Vec<u8>,
    missing: u64,
}

impl Parser {
    fn data(&mut self, mut bytes: &[u8], role: &mut Role<'_>, sink: Sink<'_>) {
        if self.state == State::Lost && begins_message(bytes, role) {
            self.state = State::Head;
        }
        while !bytes.is_empty() {
            bytes = match self.state {
                State::Lost | State::Tunnel => return,
                State::Head => self.head(bytes, role, sink),
                State::Length(left) => {
                    let rest = self.body(bytes, left, sink);
                    let left = left - (bytes.len() - rest.len()) as u64;
                    self.state = State::Length(left);
                    if left == 0 {
                        self.close(true, sink);
                    }
                    rest
                }
                State::UntilEnd => self.body(bytes, u64::MAX, sink),
                State::Chunk(left) => self.chunk(bytes, left, sink),
                State::ChunkSize | State::Trailer => self.line(bytes, sink),
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

    /// A chunk's bytes; `left` counts the end of line behind it too.
    fn chunk<'b>(&mut self, bytes: &'b [u8], left: u64, sink: Sink<'_>) -> &'b [u8] {
        let body_left = left.saturating_sub(2);
        let rest = self.body(bytes, body_left, sink);
        let left = left - (bytes.len() - rest.len()) as u64;
        let line_end = rest.len().min(usize::try_from(left.min(2)).unwrap_or(2));
        let line_end = if left <= 2 { line_end } else { 0 };
        let left = left - line_end as u64;
        self.state = if left == 0 { State::ChunkSize } else { State::Chunk(left) };
        &rest[line_end..]
    }

    /// A line of the chunked coding: the size of a chunk, or a trailer.
    fn line<'b>(&mut self, bytes: &'b [u8], sink: Sink<'_>) -> &'b [u8] {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (line, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
        self.partial.extend_from_slice(line);
        if self.partial.len() > LINE_MAX {
            self.lose(sink);
            return rest;
        }
        if end.is_none() {
            return rest;
        }
        let line = std::mem::take(&mut self.partial);
        if self.state == State::Trailer {
            if line.trim_ascii().is_empty() {
                self.close(true, sink);
            }
            return rest;
        }
        match httparse::parse_chunk_size(&line) {
            Ok(httparse::Status::Complete((_, 0))) => self.state = State::Trailer,
            // The end of line behind it takes two bytes.
            Ok(httparse::Status::Complete((_, size))) if size < u64::MAX - 2 => {
                self.state = State::Chunk(size + 2);
            }
            _ => self.lose(sink),
        }
        rest
    }

    /// Bytes of a head.
    fn head<'b>(&mut self, mut bytes: &'b [u8], role: &mut Role<'_>, sink: Sink<'_>) -> &'b [u8] {
        let before = self.partial.len();
        if before == 0 {
            // Empty lines before a message say nothing (RFC 9112, 2.2).
            let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
            bytes = &bytes[bytes.iter().take_while(|byte| is_line_end(byte)).count()..];
        }
        let room = HEAD_MAX - before;
        self.partial.extend_from_slice(&bytes[..bytes.len().min(room)]);
        // The beginning of a head tells other protocols apart, and an empty line ends it. In between, a head is parsed
        // each time that it has doubled: so time grows with its length alone, however it is cut.
        let has_doubled = before == 0 || self.partial.len().ilog2() > before.ilog2();
        let may_wait = before > LOOK_MIN && bytes.len() < room && !has_doubled;
        if bytes.is_empty() || (may_wait && !has_empty_line(&self.partial[before.saturating_sub(2)..])) {
            return &[];
        }
        let partial = std::mem::take(&mut self.partial);
        let parsed = match role {
            Role::Client(awaited) => request(&partial, awaited),
            Role::Server(awaited) => response(&partial, awaited),
        };
        match parsed {
            Ok(Some(Parsed { len, head, framing })) => {
                self.begin(head, framing, sink);
                &bytes[len.saturating_sub(before).min(bytes.len())..]
            }
            Ok(None) if bytes.len() < room => {
                self.partial = partial;
                &[]
            }
            Ok(None) | Err(NotHttp) => {
                self.state = State::Lost;
                &[]
            }
        }
    }

    fn begin(&mut self, head: Head, framing: Framing, sink: Sink<'_>) {
        self.missing = 0;
        self.state = match framing {
            Framing::None | Framing::Length(0) => State::Head,
            Framing::Length(len) => State::Length(len),
            Framing::Chunked => State::ChunkSize,
            Framing::UntilEnd => State::UntilEnd,
            Framing::Tunnel => State::Tunnel,
        };
        if self.is_in_body() {
            sink(BodyEvent::Begin(head));
        }
    }

    fn is_in_body(&self) -> bool {
        !matches!(self.state, State::Head | State::Lost | State::Tunnel)
    }

    fn close(&mut self, is_whole: bool, sink: Sink<'_>) {
        self.partial.clear();
        sink(BodyEvent::End { missing: self.missing, is_whole: is_whole && self.missing == 0 });
        self.state = State::Head;
    }

    fn lose(&mut self, sink: Sink<'_>) {
        if self.is_in_body() {
            self.close(false, sink);
        }
        self.partial = Vec::new();
        self.state = State::Lost;
    }

    fn gap(&mut self, len: u64, sink: Sink<'_>) {
        match self.state {
            State::Length(left) if len < left => {
                self.missing += len;
                self.state = State::Length(left - len);
            }
            State::Chunk(left) if len < left.saturating_sub(2) => {
                self.missing += len;
                self.state = State::Chunk(left - len);
            }
            State::UntilEnd => self.missing += len,
            State::Length(left) | State::Chunk(left) => {
                self.missing += left.min(len);
                self.lose(sink);
            }
            State::Tunnel => {}
            _ => self.lose(sink),
        }
    }

    fn end(&mut self, is_orderly: bool, sink: Sink<'_>) {
        if self.is_in_body() {
            self.close(is_orderly && self.state == State::UntilEnd, sink);
        }
        self.partial = Vec::new();
        self.state = State::Lost;
    }
}

/// Whether bytes look like the beginning of a message.
fn begins_message(bytes: &[u8], role: &Role<'_>) -> bool {
    match role {
        Role::Server(_) => bytes.starts_with(b"HTTP/1."),
        Role::Client(_) => {
            let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
            let end = line.len().saturating_sub(9);
            line[end..].starts_with(b" HTTP/1.") && bytes[0].is_ascii_uppercase()
        }
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

/// The bytes are no head of HTTP/1, or one whose body cannot be told.
struct NotHttp;

struct Parsed {
    /// Bytes of the head.
    len: usize,
    head: Head,
    framing: Framing,
}

/// The way in which the length of a body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    None,
    Length(u64),
    Chunked,
    UntilEnd,
    Tunnel,
}

fn request(bytes: &[u8], awaited: &mut Awaited) -> Result<Option<Parsed>, NotHttp> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let httparse::Status::Complete(len) = request.parse(bytes).map_err(|_| NotHttp)? else { return Ok(None) };
    let mut head = of_fields(request.headers);
    head.method = text(request.method.unwrap_or_default().as_bytes());
    head.target = text(request.path.unwrap_or_default().as_bytes());
    let asked = Asked { method: head.method.clone(), target: head.target.clone(), host: head.host.clone() };
    awaited.push(asked);
    let framing = match body_length(request.headers)? {
        // A request without a length has no body.
        Framing::UntilEnd => Framing::None,
        framing => framing,
    };
    Ok(Some(Parsed { len, head, framing }))
}

fn response(bytes: &[u8], awaited: &mut Awaited) -> Result<Option<Parsed>, NotHttp> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(len) = response.parse(bytes).map_err(|_| NotHttp)? else {
        return Ok(None);
    };
    let code = response.code.unwrap_or_default();
    // 100 and its like announce the answer.
    let is_interim = (100..200).contains(&code) && code != 101;
    let asked = if is_interim { None } else { awaited.pop() }.unwrap_or_default();
    let framing = match code {
        101 => Framing::Tunnel,
        200..300 if asked.method == "CONNECT" => Framing::Tunnel,
        100..200 | 204 | 304 => Framing::None,
        _ if asked.method == "HEAD" => Framing::None,
        _ => body_length(response.headers)?,
    };
    let Asked { method, target, host } = asked;
    let head = Head { status: Some(code), method, target, host, ..of_fields(response.headers) };
    Ok(Some(Parsed { len, head, framing }))
}

/// RFC 9112, 6.3: the last transfer coding before a length, several lengths only if they are equal.
fn body_length(fields: &[httparse::Header<'_>]) -> Result<Framing, NotHttp> {
    // Several fields are one list (RFC 9110, 5.2).
    let coded = fields.iter().rfind(|field| field.name.eq_ignore_ascii_case("transfer-encoding"));
    if let Some(field) = coded {
        let last = field.value.rsplit(|byte| *byte == b',').next().unwrap_or_default();
        let is_chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
        return Ok(if is_chunked { Framing::Chunked } else { Framing::UntilEnd });
    }
    let mut length = None;
    for field in fields {
        if field.name.eq_ignore_ascii_case("content-length") {
            let digits = field.value.trim_ascii();
            let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
            let text = std::str::from_utf8(digits).ok().filter(|_| is_number).ok_or(NotHttp)?;
            let value: u64 = text.parse().map_err(|_| NotHttp)?;
            if length.replace(value).is_some_and(|before| before != value) {
                return Err(NotHttp);
            }
        }
    }
    Ok(length.map_or(Framing::UntilEnd, Framing::Length))
}

fn of_fields(fields: &[httparse::Header<'_>]) -> Head {
    let of = |name: &str| {
        let field = fields.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        field.map_or_else(String::new, |field| text(field.value))
    };
    Head {
        host: of("host"),
        content_type: of("content-type"),
        content_encoding: of("content-encoding"),
        ..Head::default()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(TEXT_MAX)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bodies of a conversation whose streams come in pieces of `step` bytes: type, bytes, and whether it is whole.
    fn bodies(parts: &[(bool, &[u8])], step: usize) -> Vec<(String, Vec<u8>, bool)> {
        let (mut conversation, mut found) = (Conversation::default(), Vec::new());
        let mut sink = |event: BodyEvent<'_>| match event {
            BodyEvent::Begin(head) => found.push((head.content_type, Vec::new(), false)),
            BodyEvent::Data(bytes) => found.last_mut().expect("it began").1.extend_from_slice(bytes),
            BodyEvent::End { is_whole, .. } => found.last_mut().expect("it began").2 = is_whole,
        };
        for (is_from_client, bytes) in parts {
            for piece in bytes.chunks(step) {
                conversation.data(*is_from_client, piece, &mut sink);
            }
        }
        conversation.end(true, true, &mut sink);
        conversation.end(false, true, &mut sink);
        found
    }

    const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: example.net\r\n\r\n";

    #[test]
    fn bodies_are_found_however_they_are_cut() {
        let post: &[u8] = b"POST / HTTP/1.1\r\nContent-Length: 4\r\nContent-Type: a/b\r\n\r\nbody";
        let chunked: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: c/d\r\n\r\n\
            5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nT: x\r\n\r\nHTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n\
            HTTP/1.1 200 OK\r\nContent-Type: e/f\r\n\r\nto the end";
        let parts: [(bool, &[u8]); 4] = [(true, post), (true, GET), (true, GET), (false, chunked)];
        for step in 1..200 {
            let found = bodies(&parts, step);
            let expected = [("a/b", "body"), ("c/d", "hello world"), ("e/f", "to the end")];
            let expected = expected.map(|(kind, body)| (kind.to_owned(), body.as_bytes().to_vec(), true));
            assert_eq!(found, expected, "in pieces of {step}");
        }
    }

    #[test]
    fn answers_to_head_have_no_body() {
        let head: &[u8] = b"HEAD / HTTP/1.1\r\n\r\n";
        let answers: &[u8] =
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        let found = bodies(&[(true, head), (true, GET), (false, answers)], 7);
        assert_eq!(found, [(String::new(), b"ok".to_vec(), true)]);
    }

    #[test]
    fn hostile_lengths_lose_the_stream_and_nothing_else() {
        for length in ["-1", "18446744073709551616", "1, 2", "", "5\r\nContent-Length: 6"] {
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nhello");
            assert!(bodies(&[(false, answer.as_bytes())], 999).is_empty(), "{length}");
        }
        let chunk: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx";
        assert_eq!(bodies(&[(false, chunk)], 999), [(String::new(), Vec::new(), false)]);
    }

    #[test]
    fn several_transfer_codings_are_one_list() {
        let answer: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nContent-Length: 3\r\n\
            Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
        assert_eq!(bodies(&[(false, answer)], 5), [(String::new(), b"ok".to_vec(), true)]);
    }

    #[test]
    fn memory_of_a_conversation_is_bounded() {
        let mut conversation = Conversation::default();
        let mut sink = |event: BodyEvent<'_>| panic!("{event:?}");
        let target = "a".repeat(4000);
        for _ in 0..300 {
            let request = format!("GET /{target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
            conversation.data(true, request.as_bytes(), &mut sink);
            assert!(conversation.memory() <= AWAITED_BYTES_MAX, "{}", conversation.memory());
        }
        // A head that never ends, and empty lines before one.
        for _ in 0..200_000 {
            conversation.data(false, b"\n", &mut sink);
        }
        conversation.data(false, b"HTTP/1.1 200 OK\r\nA: ", &mut sink);
        for _ in 0..200_000 {
            conversation.data(false, b"a", &mut sink);
            assert!(conversation.memory() <= AWAITED_BYTES_MAX + 2 * HEAD_MAX, "{}", conversation.memory());
        }
        conversation.give_up(true, &mut sink);
        conversation.give_up(false, &mut sink);
        assert_eq!(conversation.memory(), 0);
    }

    #[test]
    fn a_gap_in_a_body_is_told_and_the_next_message_found() {
        let (mut conversation, mut ends, mut bytes) = (Conversation::default(), Vec::new(), Vec::new());
        let mut sink = |event: BodyEvent<'_>| match event {
            BodyEvent::End { missing, is_whole } => ends.push((missing, is_whole)),
            BodyEvent::Data(more) => bytes.extend_from_slice(more),
            BodyEvent::Begin(_) => {}
        };
        conversation.data(false, b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12", &mut sink);
        conversation.gap(false, 5, &mut sink);
        conversation.data(false, b"890", &mut sink);
        conversation.data(false, b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12", &mut sink);
        conversation.gap(false, 500, &mut sink);
        conversation.data(false, b"in the midst of something", &mut sink);
        conversation.data(false, b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n!", &mut sink);
        assert_eq!((ends, bytes), (vec![(5, false), (8, false), (0, true)], b"1289012!".to_vec()));
    }
}
