//! The state of a flow whose payload is read: the progress of its streams, and the results.

use tapline_dissect::application::{Hint, Sign, of_stream};
use tapline_dissect::tls::{self, ClientHello, Hello, ServerHello};
use tapline_dissect::{Detection, dns, dtls};
use tapline_packet::numbers::port;

use super::text::{TEXT_MAX, escaped};
use super::{DnsAnswer, tag};
use crate::details::http;
use crate::details::stream::{Buffers, ParseProgress, Stream};
use crate::details::text_pool::{TextList, TextPool};
use crate::details::{Application, DetailFields, application};
use crate::journal::{ADDRESSES_MAX, NamedAddresses};

/// Datagrams of QUIC that are looked at of each side: a client's hello has two or three. And how often TLS may seem to
/// begin in the middle of a stream.
pub(super) const TRIES: u8 = 8;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PayloadState {
    pub(super) text_pool: TextList,
    pub(super) streams: [Stream; 2],
    pub(super) exchange: Exchange,
    pub(super) application: Option<Application>,
    /// The first bytes of one side, if they are a hint only.
    pub(super) hint: Option<Hint>,
    pub(super) has_payload: [bool; 2],
    pub(super) tries: [u8; 2],
}

/// Numbers of the results.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Exchange {
    #[default]
    Nothing,
    Dns {
        id: u16,
        kind: u16,
        /// When it was asked, if that was seen.
        asked: Option<i64>,
        answer: Option<DnsAnswer>,
    },
    Tls(Option<ServerChoice>),
    Http(Option<u16>),
}

/// Version and cipher suite of the server's hello.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerChoice {
    pub(super) version: u16,
    pub(super) cipher_suite: u16,
}

impl ServerChoice {
    /// `None` if the hello was cut before the choice.
    fn of(hello: &ServerHello<'_>) -> Option<ServerChoice> {
        Some(ServerChoice { version: hello.version(), cipher_suite: hello.cipher_suite? })
    }
}

/// Settings and memory that the parsers of payloads share.
pub(super) struct ReadContext<'t> {
    pub(super) fields: DetailFields,
    pub(super) time: i64,
    pub(super) text_pool: &'t mut TextPool,
    pub(super) scratch: &'t mut Vec<u8>,
    /// Where the addresses of names go; `None` if they are not read.
    pub(super) answers: Option<&'t mut Vec<NamedAddresses>>,
}

/// Adds the addresses of an answer's name.
fn read_answer(bytes: &[u8], answers: &mut Vec<NamedAddresses>, scratch: &mut Vec<u8>) {
    let header = dns::Header::parse(bytes);
    if !header.is_some_and(|header| header.has(dns::flag::RESPONSE) && header.response_code() == 0) {
        return;
    }
    let mut addresses = Vec::new();
    dns::addresses(bytes, scratch, |address| {
        if addresses.len() < ADDRESSES_MAX {
            addresses.push(address);
        }
    });
    if !addresses.is_empty() {
        answers.push(NamedAddresses { name: escaped(scratch), addresses });
    }
}

impl PayloadState {
    /// Whether TLS begins in the middle of a stream, as after STARTTLS, with this segment: the client's hello if
    /// nothing else was recognised before, then the server's.
    pub(super) fn begins_tls(&self, payload: &[u8]) -> bool {
        let kind = tls::message_type(payload);
        matches!((kind, self.exchange), (Some(1 | 2), Exchange::Nothing) | (Some(2), Exchange::Tls(None)))
    }

    /// Looks at the first bytes of a stream.
    pub(super) fn stream(
        &mut self,
        bytes: &[u8],
        is_last: bool,
        ports: [u16; 2],
        cx: &mut ReadContext<'_>,
    ) -> ParseProgress {
        let fields = cx.fields;
        if ports.contains(&port::DNS) {
            return self.dns_stream(bytes, is_last, cx);
        }
        if let Some(application) = application::of_stream(bytes) {
            self.application = Some(application);
            return ParseProgress::Done;
        }
        let hello = match fields.tls || fields.application {
            true => Hello::from_stream(bytes, is_last, cx.scratch),
            false => Detection::NoMatch,
        };
        let message = match hello {
            Detection::Match(hello) => {
                self.hello(hello, fields, cx.text_pool);
                return ParseProgress::Done;
            }
            Detection::NeedMore => return ParseProgress::NeedMore,
            // The other side has shown it.
            Detection::NoMatch
                if self.application.is_some() && matches!(self.exchange, Exchange::Nothing) =>
            {
                return ParseProgress::Done;
            }
            Detection::NoMatch if fields.application => match self.sign(of_stream(bytes, is_last)) {
                Some(progress) => return progress,
                None => http::read(bytes, is_last),
            },
            Detection::NoMatch if fields.http => http::read(bytes, is_last),
            Detection::NoMatch => Detection::NoMatch,
        };
        match message {
            Detection::Match(message) => {
                self.http(message, cx);
                ParseProgress::Done
            }
            Detection::NeedMore => ParseProgress::NeedMore,
            Detection::NoMatch => ParseProgress::Done,
        }
    }

    /// Notes an application's first bytes; `None` if they show none, so that another reader may look at them.
    fn sign(&mut self, found: Detection<Sign>) -> Option<ParseProgress> {
        match found {
            Detection::NoMatch => return None,
            Detection::NeedMore => return Some(ParseProgress::NeedMore),
            Detection::Match(Sign::Application(name)) => self.application = Some(name),
            Detection::Match(Sign::Hint(hint)) => {
                self.application = self.hint.and_then(|other| hint.with(other));
                self.hint = Some(hint);
            }
        }
        Some(ParseProgress::Done)
    }

    /// Reads DNS over TCP, where the length precedes a message (RFC 1035, 4.2.2).
    fn dns_stream(&mut self, bytes: &[u8], is_last: bool, cx: &mut ReadContext<'_>) -> ParseProgress {
        let whole =
            bytes.split_first_chunk().map(|(len, rest)| (usize::from(u16::from_be_bytes(*len)), rest));
        match whole {
            Some((len, rest)) if rest.len() >= len || is_last => {
                self.dns(&rest[..len.min(rest.len())], cx);
                ParseProgress::Done
            }
            _ => ParseProgress::NeedMore,
        }
    }

    /// The first question counts, and the first answer with its number. Of a flow that begins with an answer, that one.
    pub(super) fn dns(&mut self, bytes: &[u8], cx: &mut ReadContext<'_>) {
        if let Some(answers) = cx.answers.as_deref_mut() {
            read_answer(bytes, answers, cx.scratch);
        }
        let is_over = match self.exchange {
            Exchange::Nothing => false,
            Exchange::Dns { answer, .. } => answer.is_some(),
            _ => true,
        };
        if is_over {
            return;
        }
        let Some(message) = dns::Message::parse(bytes, cx.scratch) else { return };
        let header = message.header;
        let is_response = header.has(dns::flag::RESPONSE);
        let answer = |after| DnsAnswer { code: header.response_code(), count: header.answers, after };
        match &mut self.exchange {
            Exchange::Dns { id, asked, answer: kept, .. } => {
                if is_response && *id == header.id {
                    *kept = Some(answer(asked.map(|then| cx.time.saturating_sub(then).max(0) as u64)));
                }
            }
            exchange => {
                let (asked, answer) =
                    if is_response { (None, Some(answer(None))) } else { (Some(cx.time), None) };
                *exchange =
                    Exchange::Dns { id: header.id, kind: message.question_type.unwrap_or(0), asked, answer };
                self.application = Some(application::DNS);
                if cx.fields.dns {
                    cx.text_pool.add(&mut self.text_pool, tag::NAME, cx.scratch);
                }
            }
        }
    }

    fn hello(&mut self, hello: Hello<'_>, fields: DetailFields, text_pool: &mut TextPool) {
        self.application = Some(application::TLS);
        let server = match self.exchange {
            Exchange::Nothing => None,
            Exchange::Tls(server) => server,
            _ => return,
        };
        match hello {
            Hello::Server(hello) => self.exchange = Exchange::Tls(ServerChoice::of(&hello).or(server)),
            Hello::Client(client) => {
                self.exchange = Exchange::Tls(server);
                if fields.tls {
                    self.client_hello(&client, text_pool);
                }
            }
        }
    }

    /// A handshake in datagrams, of which the first message of each side is the hello; after a request for a cookie it
    /// comes again.
    pub(super) fn dtls(
        &mut self,
        owner: (u32, u8),
        payload: &[u8],
        fields: DetailFields,
        text_pool: &mut TextPool,
        buffers: &mut Buffers,
    ) {
        let mut stream = self.streams[usize::from(owner.1)];
        if !fields.tls || stream.is_done() {
            return;
        }
        let is_hello = |kind| matches!(kind, tls::CLIENT_HELLO | tls::SERVER_HELLO);
        for fragment in dtls::fragments(payload).filter(|fragment| is_hello(fragment.message_type)) {
            let (kind, len) = (fragment.message_type, fragment.message_len);
            let mut read = |state: &mut PayloadState, bytes: &[u8], is_last| {
                state.plain_hello(Hello::from_dtls(kind, len, bytes, is_last), text_pool)
            };
            if fragment.is_whole() {
                read(self, fragment.bytes, true);
                buffers.end(owner, &mut stream);
            } else if fragment.message_number == 0
                && let Ok(offset) = u32::try_from(fragment.offset)
            {
                stream.begin(u32::MAX);
                buffers.add(owner, &mut stream, offset, fragment.bytes, true, |bytes, is_last| {
                    read(self, bytes, is_last)
                });
            }
        }
        self.streams[usize::from(owner.1)] = stream;
    }

    /// A hello that no stream carries. In QUIC only that of a client can be read.
    pub(super) fn plain_hello(
        &mut self,
        hello: Detection<Hello<'_>>,
        text_pool: &mut TextPool,
    ) -> ParseProgress {
        match (hello, self.exchange) {
            (Detection::NeedMore, _) => return ParseProgress::NeedMore,
            (Detection::Match(Hello::Client(client)), Exchange::Nothing | Exchange::Tls(Some(_))) => {
                if matches!(self.exchange, Exchange::Nothing) {
                    self.exchange = Exchange::Tls(None);
                }
                self.client_hello(&client, text_pool);
            }
            (Detection::Match(Hello::Server(hello)), Exchange::Nothing | Exchange::Tls(None)) => {
                self.exchange = Exchange::Tls(ServerChoice::of(&hello));
            }
            _ => {}
        }
        ParseProgress::Done
    }

    fn client_hello(&mut self, client: &ClientHello<'_>, text_pool: &mut TextPool) {
        let alpn = client.protocols().collect::<Vec<_>>().join(&b',');
        for (tag, text) in [(tag::NAME, client.server_name()), (tag::ALPN, &alpn)] {
            if !text.is_empty() {
                text_pool.add(&mut self.text_pool, tag, &text[..text.len().min(TEXT_MAX)]);
            }
        }
        if let (Some(ja3), Some(ja4)) = (client.ja3(), client.ja4()) {
            text_pool.add(&mut self.text_pool, tag::PRINTS, &[&ja3, ja4.as_bytes()].concat());
        }
    }

    fn http(&mut self, message: http::Message<'_>, cx: &mut ReadContext<'_>) {
        self.application = Some(application::HTTP);
        let status = match self.exchange {
            Exchange::Nothing => None,
            Exchange::Http(status) => status,
            _ => return,
        };
        match message {
            http::Message::Response(status) => self.exchange = Exchange::Http(Some(status)),
            http::Message::Request(request) => {
                self.exchange = Exchange::Http(status);
                let texts = [
                    (tag::METHOD, request.method),
                    (tag::HOST, &request.host),
                    (tag::TARGET, request.target),
                    (tag::USER_AGENT, &request.user_agent),
                ];
                for (tag, text) in texts.into_iter().filter(|(_, text)| cx.fields.http && !text.is_empty()) {
                    cx.text_pool.add(&mut self.text_pool, tag, &text[..text.len().min(TEXT_MAX)]);
                }
            }
        }
    }
}
