//! What the two ends of a flow say to each other: DNS, TLS, HTTP, and the first bytes of anything.

use std::collections::TryReserveError;
use std::fmt::Write as _;

use tapline_packet::numbers::ip_protocol::{TCP, UDP};
use tapline_packet::numbers::port;
use tapline_wire::tls::{self, ClientHello, Hello, ServerHello};
use tapline_wire::{Detection, dns, dtls, quic};

use super::http;
use super::notes::{List, Notes};
use super::pool::{NONE, Places, Pool};
use super::stream::{Buffers, Stream, Verdict};
use super::tcp::{RST, SYN, Segment};
use super::{Application, DetailFields, Details, Look, Refused, application};

const UDP_HEADER: usize = 8;

/// The most bytes of a text that are told.
pub(crate) const TEXT_MAX: usize = 255;

/// The first question of a flow, and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dns {
    /// The name that was asked for, or answered where the question was not seen.
    pub name: Box<str>,
    /// The type of record that was asked for (IANA, DNS Parameters).
    pub kind: u16,
    /// The answer, if it was seen.
    pub answer: Option<DnsAnswer>,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DnsAnswer {
    /// RCODE.
    pub code: u8,
    /// Records in its answer section.
    pub count: u16,
    /// Nanoseconds after the question; `None` if that was not seen.
    pub after: Option<u64>,
}

/// What was said in the hello of TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The name of the server that the client asked for; empty without.
    pub server_name: Box<str>,
    /// What the client offers to speak, with commas in between.
    pub alpn: Box<str>,
    /// JA3 of the client: MD5 in hexadecimal; empty if its hello was not seen as a whole.
    pub ja3: Box<str>,
    /// JA4 of the client.
    pub ja4: Box<str>,
    /// The version that the server chose, as TLS has it: 0x0304 is 1.3. `None` if its hello was not seen.
    pub version: Option<u16>,
    /// The cipher suite that it chose.
    pub cipher: Option<u16>,
}

/// The first request of a flow, and the status of its first answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Http {
    /// Its method; empty if no request was seen.
    pub method: Box<str>,
    /// The host that it names.
    pub host: Box<str>,
    /// Path and query.
    pub target: Box<str>,
    /// The user agent that it names.
    pub user_agent: Box<str>,
    /// The status of the answer.
    pub status: Option<u16>,
}

/// What a note is.
const NAME: u8 = 0;
const ALPN: u8 = 1;
const PRINTS: u8 = 2;
const METHOD: u8 = 3;
const HOST: u8 = 4;
const TARGET: u8 = 5;
const USER_AGENT: u8 = 6;
/// And the side.
const PAYLOAD: u8 = 8;

/// Datagrams of QUIC that are looked at of each side: a client's hello has two or three. And how often TLS may seem to begin in the middle of a stream.
const TRIES: u8 = 8;

/// Blocks of notes for each flow: more than those of most, fewer than those of some.
const BLOCKS: usize = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Talk {
    notes: List,
    streams: [Stream; 2],
    said: Said,
    application: Option<Application>,
    has_payload: [bool; 2],
    tries: [u8; 2],
}

/// Numbers of what was said.
#[derive(Clone, Copy, Debug, Default)]
enum Said {
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

/// What the server's hello chose.
#[derive(Clone, Copy, Debug)]
struct ServerChoice {
    version: u16,
    cipher_suite: u16,
}

impl ServerChoice {
    /// `None` if the hello was cut before the choice.
    fn of(hello: &ServerHello<'_>) -> Option<ServerChoice> {
        Some(ServerChoice { version: hello.version(), cipher_suite: hello.cipher_suite? })
    }
}

/// What each flow has: the number of its talk once something was said that may be of interest, and until then where its streams begin.
#[derive(Clone, Copy, Debug)]
struct Slot {
    talk: u32,
    starts: [u32; 2],
    is_known: [bool; 2],
}

impl Slot {
    const EMPTY: Slot = Slot { talk: NONE, starts: [0; 2], is_known: [false; 2] };

    /// A SYN of a side says where its stream begins. Only the first counts.
    fn begin(&mut self, side: usize, seq: u32) {
        if !self.is_known[side] {
            (self.starts[side], self.is_known[side]) = (seq, true);
        }
    }

    /// The talk, made if there is none; `None` if there is no room.
    fn talk<'t>(&mut self, talks: &'t mut Pool<Talk>) -> Option<&'t mut Talk> {
        let is_new = self.talk == NONE;
        let talk = talks.get_or_take(&mut self.talk)?;
        for side in (0..2).filter(|side| is_new && self.is_known[*side]) {
            talk.streams[side].begin(self.starts[side]);
        }
        Some(talk)
    }
}

/// All of them, by the places of the flows.
pub(super) struct Talks {
    fields: DetailFields,
    payload: usize,
    slots: Places<Slot>,
    talks: Pool<Talk>,
    notes: Notes,
    buffers: Buffers,
    scratch: Vec<u8>,
}

impl Talks {
    pub(super) fn new(
        fields: DetailFields,
        payload: u16,
        flows_max: usize,
    ) -> Result<Talks, TryReserveError> {
        Ok(Talks {
            fields,
            payload: if fields.payload { payload.into() } else { 0 },
            slots: Places::new(true, flows_max)?,
            talks: Pool::new(flows_max)?,
            notes: Notes::new(flows_max.saturating_mul(Talks::blocks(fields, payload)))?,
            buffers: Buffers::new()?,
            scratch: Vec::with_capacity(super::stream::LEN),
        })
    }

    fn blocks(fields: DetailFields, payload: u16) -> usize {
        let texts = if fields.dns || fields.tls || fields.http { BLOCKS } else { 0 };
        let payload = if fields.payload { 2 * usize::from(payload).div_ceil(52) } else { 0 };
        texts + payload
    }

    pub(super) fn flow_len(fields: DetailFields, payload: u16) -> usize {
        size_of::<Slot>() + Pool::<Talk>::entry_len() + 64 * Talks::blocks(fields, payload)
    }

    pub(super) fn refused(&self) -> Refused {
        Refused { texts: self.notes.refused + self.talks.refused, streams: self.buffers.given_up }
    }

    pub(super) fn begin(&mut self, place: u32) {
        // Its notes were taken when the flow before ended.
        self.slots.begin(place, Slot::EMPTY);
    }

    #[inline]
    pub(super) fn ask_number(&self, place: u32) {
        self.slots.prefetch(place);
    }

    #[inline]
    pub(super) fn ask_entry(&self, place: u32) {
        if let Some(slot) = self.slots.peek(place) {
            self.talks.prefetch(slot.talk);
        }
    }

    pub(super) fn packet(
        &mut self,
        place: u32,
        protocol: u8,
        ports: [u16; 2],
        side: usize,
        look: &Look<'_>,
        segment: Option<&Segment<'_>>,
    ) {
        match (protocol, segment) {
            (TCP, Some(segment)) => self.segment((place, side as u8), ports, segment, look.seen.time),
            (UDP, _) => self.datagram(place, ports, side, look),
            _ => {}
        }
    }

    fn datagram(&mut self, place: u32, ports: [u16; 2], side: usize, look: &Look<'_>) {
        let Some(inside) = look.inside else { return };
        let end = (inside.end as usize).min(look.data.len());
        let Some(payload) = look.data.get(inside.l4 as usize + UDP_HEADER..end) else { return };
        let fields = &self.fields;
        let is_dns = (fields.dns || fields.application) && ports.iter().any(|port| port::is_dns(*port));
        let is_hello = (fields.tls || fields.application)
            && (dtls::is_handshake(payload) || quic::has_long_header(payload));
        if payload.is_empty() || !(is_dns || is_hello || self.payload > 0) {
            return;
        }
        self.keep(place, side, payload);
        let Talks { fields, slots, talks, notes, buffers, scratch, .. } = self;
        let Some(talk) = slots.get(place).and_then(|slot| slot.talk(talks)) else { return };
        if is_dns {
            talk.dns(payload, &mut Ear { fields: *fields, time: look.seen.time, notes, scratch });
        }
        if !is_hello {
            return;
        }
        if dtls::is_handshake(payload) {
            talk.application.get_or_insert(application::DTLS);
            return talk.dtls((place, side as u8), payload, *fields, notes, buffers);
        }
        talk.application.get_or_insert(application::QUIC);
        let mut stream = talk.streams[side];
        // The side that answers cannot be read: its keys follow from what the other chose first.
        let is_over = stream.is_done() || talk.streams[1 - side].is_known() || talk.tries[side] >= TRIES;
        if !fields.tls || is_over {
            return;
        }
        talk.tries[side] += 1;
        let owner = (place, side as u8);
        let mut id = buffers.id(owner, &stream).copied().unwrap_or(quic::ConnectionId::NONE);
        quic::decrypt_initials(payload, &mut id, scratch, &mut |offset, piece| {
            // The first byte has the number 0.
            stream.begin(u32::MAX);
            buffers.add(owner, &mut stream, offset, piece, true, |bytes, is_last| {
                talk.plain_hello(Hello::from_crypto(bytes, is_last), notes)
            });
        });
        if let Some(kept) = buffers.id(owner, &stream) {
            *kept = id;
        }
        talk.streams[side] = stream;
    }

    fn segment(&mut self, owner: (u32, u8), ports: [u16; 2], segment: &Segment<'_>, time: i64) {
        let (place, side) = (owner.0, usize::from(owner.1));
        self.keep(place, side, segment.payload);
        let Talks { fields, slots, talks, notes, buffers, scratch, .. } = self;
        let Some(slot) = slots.get(place) else { return };
        if segment.payload.is_empty() && slot.talk == NONE {
            // Nothing was said yet; most scans end so.
            if segment.flags & SYN != 0 {
                slot.begin(side, segment.seq);
            }
            return;
        }
        let Some(talk) = slot.talk(talks) else { return };
        if !(fields.dns || fields.tls || fields.http || fields.application) {
            return;
        }
        let mut stream = talk.streams[side];
        if stream.is_done() {
            if !fields.tls || !talk.begins_tls(segment.payload) || talk.tries[side] >= TRIES {
                return;
            }
            talk.tries[side] += 1;
            stream = Stream::default();
        }
        if segment.flags & SYN != 0 {
            stream.begin(segment.seq);
        }
        // Data in a SYN (RFC 7413) begins one number further on.
        let seq = segment.seq.wrapping_add(u32::from(segment.flags & SYN != 0));
        let application = talk.application;
        if segment.flags & RST == 0 {
            let is_whole = segment.payload.len() == segment.payload_len as usize;
            let mut ear = Ear { fields: *fields, time, notes, scratch };
            buffers.add(owner, &mut stream, seq, segment.payload, is_whole, |bytes, is_last| {
                talk.stream(bytes, is_last, ports, &mut ear)
            });
        }
        if talk.tries[side] > 0 {
            // It was spoken before TLS began.
            talk.application = application;
        }
        talk.streams[side] = stream;
    }

    /// Keeps the first bytes of a side.
    fn keep(&mut self, place: u32, side: usize, payload: &[u8]) {
        if self.payload == 0 || payload.is_empty() {
            return;
        }
        let Some(talk) = self.slots.get(place).and_then(|slot| slot.talk(&mut self.talks)) else { return };
        if !talk.has_payload[side] {
            talk.has_payload[side] = true;
            let first = &payload[..payload.len().min(self.payload)];
            self.notes.add(&mut talk.notes, PAYLOAD + side as u8, first);
        }
    }

    /// Puts what was said into the details of a flow that ends, and gives its memory back.
    pub(super) fn finish(
        &mut self,
        place: u32,
        (protocol, ports): (u8, [u16; 2]),
        first: usize,
        details: &mut Details,
    ) {
        let Talks { fields, slots, talks, notes, buffers, .. } = self;
        let Some(slot) = slots.get(place) else { return };
        let mut talk = talks.get(slot.talk).map(std::mem::take).unwrap_or_default();
        talks.give(&mut slot.talk);
        for side in 0..2 {
            buffers.end((place, side as u8), &mut talk.streams[side]);
        }
        let Talk { said, application, .. } = talk;
        match said {
            Said::Nothing => {}
            Said::Dns { kind, answer, .. } => {
                details.dns = fields.dns.then(|| Dns { name: Box::default(), kind, answer });
            }
            Said::Tls(server) => {
                let (version, cipher) =
                    (server.map(|server| server.version), server.map(|server| server.cipher_suite));
                details.tls = fields.tls.then(|| Tls { version, cipher, ..Tls::default() });
            }
            Said::Http(status) => details.http = fields.http.then(|| Http { status, ..Http::default() }),
        }
        notes.drain(&mut talk.notes, |tag, bytes| match tag {
            PAYLOAD.. => details.payload[usize::from(tag - PAYLOAD) ^ first] = bytes.into(),
            _ => details.note(tag, bytes),
        });
        if fields.application {
            let of_ports = || application::of_ports(protocol, ports[first], ports[1 - first]);
            details.application = application.or_else(of_ports);
        }
    }

    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.talks.clear();
        self.notes.clear();
        self.buffers.clear();
    }
}

/// What it takes to hear what is said.
struct Ear<'t> {
    fields: DetailFields,
    time: i64,
    notes: &'t mut Notes,
    scratch: &'t mut Vec<u8>,
}

impl Talk {
    /// Whether TLS begins with a segment in the middle of a stream, as with STARTTLS, of which nothing else was understood: the client's hello, and then the server's.
    fn begins_tls(&self, payload: &[u8]) -> bool {
        let kind = tls::message_type(payload);
        matches!((kind, self.said), (Some(1 | 2), Said::Nothing) | (Some(2), Said::Tls(None)))
    }

    /// Looks at the first bytes of a stream.
    fn stream(&mut self, bytes: &[u8], is_last: bool, ports: [u16; 2], ear: &mut Ear<'_>) -> Verdict {
        let fields = ear.fields;
        if ports.contains(&port::DNS) {
            return self.dns_stream(bytes, is_last, ear);
        }
        if let Some(application) = application::of_stream(bytes) {
            self.application = Some(application);
            return Verdict::Done;
        }
        let hello = match fields.tls || fields.application {
            true => Hello::from_stream(bytes, is_last, ear.scratch),
            false => Detection::NoMatch,
        };
        let message = match hello {
            Detection::Match(hello) => {
                self.hello(hello, fields, ear.notes);
                return Verdict::Done;
            }
            Detection::NeedMore => return Verdict::More,
            Detection::NoMatch if fields.http || fields.application => http::read(bytes, is_last),
            Detection::NoMatch => Detection::NoMatch,
        };
        match message {
            Detection::Match(message) => {
                self.http(message, ear);
                Verdict::Done
            }
            Detection::NeedMore => Verdict::More,
            Detection::NoMatch => Verdict::Done,
        }
    }

    /// Over TCP a message stands behind its length (RFC 1035, 4.2.2).
    fn dns_stream(&mut self, bytes: &[u8], is_last: bool, ear: &mut Ear<'_>) -> Verdict {
        let whole =
            bytes.split_first_chunk().map(|(len, rest)| (usize::from(u16::from_be_bytes(*len)), rest));
        match whole {
            Some((len, rest)) if rest.len() >= len || is_last => {
                self.dns(&rest[..len.min(rest.len())], ear);
                Verdict::Done
            }
            _ => Verdict::More,
        }
    }

    /// The first question counts, and the first answer with its number. Of a flow that begins with an answer, that one.
    fn dns(&mut self, bytes: &[u8], ear: &mut Ear<'_>) {
        let is_over = match self.said {
            Said::Nothing => false,
            Said::Dns { answer, .. } => answer.is_some(),
            _ => true,
        };
        if is_over {
            return;
        }
        let Some(message) = dns::Message::parse(bytes, ear.scratch) else { return };
        let header = message.header;
        let is_response = header.has(dns::flag::RESPONSE);
        let answer = |after| DnsAnswer { code: header.response_code(), count: header.answers, after };
        match &mut self.said {
            Said::Dns { id, asked, answer: kept, .. } => {
                if is_response && *id == header.id {
                    *kept = Some(answer(asked.map(|then| ear.time.saturating_sub(then).max(0) as u64)));
                }
            }
            said => {
                let (asked, answer) =
                    if is_response { (None, Some(answer(None))) } else { (Some(ear.time), None) };
                *said = Said::Dns { id: header.id, kind: message.question_type.unwrap_or(0), asked, answer };
                self.application = Some(application::DNS);
                if ear.fields.dns {
                    ear.notes.add(&mut self.notes, NAME, ear.scratch);
                }
            }
        }
    }

    fn hello(&mut self, hello: Hello<'_>, fields: DetailFields, notes: &mut Notes) {
        self.application = Some(application::TLS);
        let server = match self.said {
            Said::Nothing => None,
            Said::Tls(server) => server,
            _ => return,
        };
        match hello {
            Hello::Server(hello) => self.said = Said::Tls(ServerChoice::of(&hello).or(server)),
            Hello::Client(client) => {
                self.said = Said::Tls(server);
                if fields.tls {
                    self.client_hello(&client, notes);
                }
            }
        }
    }

    /// A handshake in datagrams, of which the first message of each side is the hello; after a request for a cookie it comes again.
    fn dtls(
        &mut self,
        owner: (u32, u8),
        payload: &[u8],
        fields: DetailFields,
        notes: &mut Notes,
        buffers: &mut Buffers,
    ) {
        let mut stream = self.streams[usize::from(owner.1)];
        if !fields.tls || stream.is_done() {
            return;
        }
        let is_hello = |kind| matches!(kind, tls::CLIENT_HELLO | tls::SERVER_HELLO);
        for fragment in dtls::fragments(payload).filter(|fragment| is_hello(fragment.message_type)) {
            let (kind, len) = (fragment.message_type, fragment.message_len);
            let mut look = |talk: &mut Talk, bytes: &[u8], is_last| {
                talk.plain_hello(Hello::from_dtls(kind, len, bytes, is_last), notes)
            };
            if fragment.is_whole() {
                look(self, fragment.bytes, true);
                buffers.end(owner, &mut stream);
            } else if fragment.message_number == 0
                && let Ok(offset) = u32::try_from(fragment.offset)
            {
                stream.begin(u32::MAX);
                buffers.add(owner, &mut stream, offset, fragment.bytes, true, |bytes, is_last| {
                    look(self, bytes, is_last)
                });
            }
        }
        self.streams[usize::from(owner.1)] = stream;
    }

    /// A hello that no stream carries. In QUIC only that of a client can be read.
    fn plain_hello(&mut self, hello: Detection<Hello<'_>>, notes: &mut Notes) -> Verdict {
        match (hello, self.said) {
            (Detection::NeedMore, _) => return Verdict::More,
            (Detection::Match(Hello::Client(client)), Said::Nothing | Said::Tls(Some(_))) => {
                if matches!(self.said, Said::Nothing) {
                    self.said = Said::Tls(None);
                }
                self.client_hello(&client, notes);
            }
            (Detection::Match(Hello::Server(hello)), Said::Nothing | Said::Tls(None)) => {
                self.said = Said::Tls(ServerChoice::of(&hello));
            }
            _ => {}
        }
        Verdict::Done
    }

    fn client_hello(&mut self, client: &ClientHello<'_>, notes: &mut Notes) {
        let alpn = client.protocols().collect::<Vec<_>>().join(&b',');
        for (tag, text) in [(NAME, client.server_name()), (ALPN, &alpn)] {
            if !text.is_empty() {
                notes.add(&mut self.notes, tag, &text[..text.len().min(TEXT_MAX)]);
            }
        }
        if let (Some(ja3), Some(ja4)) = (client.ja3(), client.ja4()) {
            notes.add(&mut self.notes, PRINTS, &[&ja3, ja4.as_bytes()].concat());
        }
    }

    fn http(&mut self, message: http::Message<'_>, ear: &mut Ear<'_>) {
        self.application = Some(application::HTTP);
        let status = match self.said {
            Said::Nothing => None,
            Said::Http(status) => status,
            _ => return,
        };
        match message {
            http::Message::Response(status) => self.said = Said::Http(Some(status)),
            http::Message::Request(request) => {
                self.said = Said::Http(status);
                let texts = [
                    (METHOD, request.method),
                    (HOST, request.host),
                    (TARGET, request.target),
                    (USER_AGENT, request.user_agent),
                ];
                for (tag, text) in texts.into_iter().filter(|(_, text)| ear.fields.http && !text.is_empty()) {
                    ear.notes.add(&mut self.notes, tag, &text[..text.len().min(TEXT_MAX)]);
                }
            }
        }
    }
}

impl Details {
    fn note(&mut self, tag: u8, bytes: &[u8]) {
        let Details { dns, tls, http, .. } = self;
        match (tag, dns, tls, http) {
            (NAME, Some(dns), ..) => dns.name = text(bytes),
            (NAME, _, Some(tls), _) => tls.server_name = text(bytes),
            (ALPN, _, Some(tls), _) => tls.alpn = text(bytes),
            (PRINTS, _, Some(tls), _) => {
                let (ja3, ja4) = bytes.split_at(bytes.len().min(16));
                let ja3 = ja3.iter().fold(String::new(), |mut out, byte| {
                    let _ = write!(out, "{byte:02x}");
                    out
                });
                (tls.ja3, tls.ja4) = (ja3.into(), text(ja4));
            }
            (METHOD, .., Some(http)) => http.method = text(bytes),
            (HOST, .., Some(http)) => http.host = text(bytes),
            (TARGET, .., Some(http)) => http.target = text(bytes),
            (USER_AGENT, .., Some(http)) => http.user_agent = text(bytes),
            _ => {}
        }
    }
}

/// Whether a letter shows as itself and leaves its neighbours in their places: no control character, none that turns the direction of a line, ends
/// it, or is not seen (Unicode's category Cf in such scripts as have names).
pub fn is_plain(letter: char) -> bool {
    let is_unseen = matches!(letter,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    !letter.is_control() && !is_unseen
}

/// Bytes of a packet as text that harms nobody: UTF-8 of letters that are plain as it is, every other byte and the backslash as `\xNN`; at most
/// [`TEXT_MAX`] bytes.
fn text(bytes: &[u8]) -> Box<str> {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            let is_plain = is_plain(letter) && letter != '\\';
            if out.len() + if is_plain { letter.len_utf8() } else { 4 * letter.len_utf8() } > TEXT_MAX {
                return out.into();
            }
            match is_plain {
                true => out.push(letter),
                false => {
                    let mut buffer = [0; 4];
                    letter.encode_utf8(&mut buffer).bytes().for_each(|byte| escape(byte, &mut out));
                }
            }
        }
        for byte in chunk.invalid() {
            if out.len() + 4 > TEXT_MAX {
                return out.into();
            }
            escape(*byte, &mut out);
        }
    }
    out.into()
}

fn escape(byte: u8, out: &mut String) {
    let _ = write!(out, "\\x{byte:02x}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_strangers_do_no_harm() {
        assert_eq!(&*text("www.bücher.example".as_bytes()), "www.bücher.example");
        assert_eq!(&*text(b"a\x1b[2J\\\xff\n"), "a\\x1b[2J\\x5c\\xff\\x0a");
        assert_eq!(&*text("\u{85}".as_bytes()), "\\xc2\\x85");
        assert_eq!(&*text("a\u{202e}b\u{200b}c".as_bytes()), "a\\xe2\\x80\\xaeb\\xe2\\x80\\x8bc");
        assert_eq!(text(&[0; 300]).len(), 252);
        assert_eq!(text(&[b'a'; 300]).len(), 255);
    }
}
