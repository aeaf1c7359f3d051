//! SIP messages, and the media that their SDP announces.
//!
//! ```text
//! INVITE sip:bob@example.org SIP/2.0        or  SIP/2.0 200 OK
//! Call-ID: a84b4c76e66710                       i: in the compact form
//! From: Alice <sip:alice@example.org>;tag=1928
//!
//! c=IN IP4 192.0.2.1                            SDP: where packets are to be sent
//! m=audio 49170 RTP/AVP 0 96                    port and payload types
//! a=rtpmap:96 opus/48000/2                      names and clocks of dynamic types
//! ```
//!
//! A message is read where it is captured whole in one datagram or segment; header lines are read as [`Fields`]
//! are, and those that are folded give their first line. Sources: RFC 3261, 7; RFC 8866; RFC 3605.

use std::net::IpAddr;
use std::str;

use crate::Detection;
use crate::fields::{Fields, head_len, line_end};

/// Media of a description, and payload types of each, that are kept.
pub const MEDIA_MAX: usize = 8;
/// See [`MEDIA_MAX`].
pub const FORMATS_MAX: usize = 16;

const METHODS: [&str; 14] = [
    "INVITE",
    "ACK",
    "BYE",
    "CANCEL",
    "REGISTER",
    "OPTIONS",
    "PRACK",
    "SUBSCRIBE",
    "NOTIFY",
    "PUBLISH",
    "INFO",
    "REFER",
    "MESSAGE",
    "UPDATE",
];

/// A SIP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'m> {
    /// Request or answer.
    pub start: Start<'m>,
    /// The name of the dialogue, in both directions.
    pub call_id: &'m str,
    /// The value of `From`.
    pub from: &'m str,
    /// The value of `To`.
    pub to: &'m str,
    /// The method in `CSeq`, that an answer answers.
    pub method: &'m str,
    /// Body of the message, if `Content-Type` says SDP.
    pub sdp: Option<&'m str>,
}

/// The first line of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start<'m> {
    /// A request with this method.
    Request(&'m str),
    /// An answer with this status.
    Status(u16),
}

impl<'m> Message<'m> {
    /// The message at the front of a payload; `None` if it is none, or has no `Call-ID`.
    pub fn parse(payload: &'m [u8]) -> Option<Message<'m>> {
        let start_len = line_end(payload)?;
        let start = start(str::from_utf8(&payload[..start_len]).ok()?.trim_end())?;
        let mut message = Message { start, call_id: "", from: "", to: "", method: "", sdp: None };
        let (head, body) = payload[start_len..].split_at(head_len(&payload[start_len..])?);
        let mut is_sdp = false;
        for field in Fields::new(head) {
            let value = text(field.first_line());
            match field.name.to_ascii_lowercase().as_slice() {
                b"call-id" | b"i" => message.call_id = value,
                b"from" | b"f" => message.from = value,
                b"to" | b"t" => message.to = value,
                b"cseq" => message.method = value.split_ascii_whitespace().nth(1).unwrap_or_default(),
                b"content-type" | b"c" => {
                    is_sdp = value.get(..15).is_some_and(|kind| kind.eq_ignore_ascii_case("application/sdp"));
                }
                _ => {}
            }
        }
        message.sdp = if is_sdp { str::from_utf8(body).ok() } else { None };
        (!message.call_id.is_empty()).then_some(message)
    }
}

/// Whether a message begins here: by the scheme of its address, else by its whole first line.
pub fn begins(bytes: &[u8]) -> Detection<()> {
    /// The longest first line that is waited for.
    const LINE_MAX: usize = 512;
    const ANSWER: &[u8] = b"SIP/2.0 ";
    let is_prefix = |word: &[u8]| bytes.len() <= word.len() && word.starts_with(bytes);
    if is_prefix(ANSWER) || METHODS.iter().any(|method| is_prefix(method.as_bytes())) {
        return Detection::NeedMore;
    }
    let method = METHODS.iter().find(|method| bytes.starts_with(method.as_bytes()));
    let address = method.and_then(|method| bytes[method.len()..].strip_prefix(b" "));
    let has_scheme = |scheme: &[u8]| address.is_some_and(|address| address.starts_with(scheme));
    if has_scheme(b"sip:") || has_scheme(b"sips:") {
        return Detection::Match(());
    }
    if address.is_none() && !bytes.starts_with(ANSWER) {
        return Detection::NoMatch;
    }
    let line =
        line_end(&bytes[..bytes.len().min(LINE_MAX)]).and_then(|len| str::from_utf8(&bytes[..len]).ok());
    match line {
        Some(line) if start(line.trim_end()).is_some() => Detection::Match(()),
        None if bytes.len() < LINE_MAX && !bytes.contains(&b'\n') => Detection::NeedMore,
        _ => Detection::NoMatch,
    }
}

/// The address in a `From` or `To`: the part in angle brackets, else the part before parameters.
pub fn address(value: &str) -> &str {
    let inside = value.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map(|(inside, _)| inside);
    inside.unwrap_or_else(|| value.split(';').next().unwrap_or_default()).trim()
}

/// A value in UTF-8. Of other values it is the part behind a displayed name, which old telephones send in Latin-1.
fn text(value: &[u8]) -> &str {
    let behind_name = || str::from_utf8(&value[value.iter().position(|byte| *byte == b'<')?..]).ok();
    str::from_utf8(value).ok().or_else(behind_name).unwrap_or_default()
}

fn start(line: &str) -> Option<Start<'_>> {
    if let Some(rest) = line.strip_prefix("SIP/2.0 ") {
        return rest.get(..3)?.parse().ok().map(Start::Status);
    }
    let (method, rest) = line.split_once(' ')?;
    (METHODS.contains(&method) && rest.ends_with(" SIP/2.0")).then_some(Start::Request(method))
}

/// A payload type of RTP and its meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Format<'s> {
    /// The number in packets.
    pub payload_type: u8,
    /// The name of the encoding; empty where the description gives none.
    pub name: &'s str,
    /// Ticks a second of its time stamps; 0 where the description gives none.
    pub clock: u32,
}

/// A medium that a side is ready to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Media<'s> {
    /// `audio`, `video` and others.
    pub kind: &'s str,
    /// Where packets are to be sent.
    pub address: IpAddr,
    /// The port of RTP.
    pub port: u16,
    /// Payload types, as many as [`count`](Self::count).
    formats: [Format<'s>; FORMATS_MAX],
    count: usize,
}

impl<'s> Media<'s> {
    /// Payload types that may come.
    pub fn formats(&self) -> &[Format<'s>] {
        &self.formats[..self.count]
    }
}

/// Calls `found` for each medium over RTP that a description announces with an address and a port, the first
/// [`MEDIA_MAX`].
pub fn media<'s>(sdp: &'s str, mut found: impl FnMut(&Media<'s>)) {
    let (mut of_session, mut current, mut count): (Option<IpAddr>, Option<Draft<'s>>, usize) =
        (None, None, 0);
    let mut close = |draft: Option<Draft<'s>>, of_session: Option<IpAddr>| {
        let Some(draft) = draft else { return };
        let address = draft.address.or(of_session);
        if let Some(address) = address.filter(|address| !address.is_unspecified() && draft.port > 0) {
            let Draft { kind, port, formats, count, .. } = draft;
            found(&Media { kind, address, port, formats, count });
        }
    };
    for line in sdp.lines() {
        match line.split_once('=') {
            Some(("c", value)) => match &mut current {
                Some(draft) => draft.address = connection(value),
                None => of_session = connection(value),
            },
            Some(("m", value)) => {
                close(current.take(), of_session);
                count += 1;
                if count > MEDIA_MAX {
                    return;
                }
                current = Draft::new(value);
            }
            Some(("a", value)) => {
                if let (Some(draft), Some(map)) = (&mut current, value.strip_prefix("rtpmap:")) {
                    draft.map(map);
                }
            }
            _ => {}
        }
    }
    close(current, of_session);
}

/// A medium before its address is known.
struct Draft<'s> {
    kind: &'s str,
    port: u16,
    address: Option<IpAddr>,
    formats: [Format<'s>; FORMATS_MAX],
    count: usize,
}

impl<'s> Draft<'s> {
    /// `audio 49170 RTP/AVP 0 96`
    fn new(value: &'s str) -> Option<Draft<'s>> {
        let mut words = value.split_ascii_whitespace();
        let (kind, port, transport) = (words.next()?, words.next()?, words.next()?);
        if !transport.contains("RTP/") {
            return None;
        }
        let port = port.split('/').next()?.parse().ok()?;
        let mut draft =
            Draft { kind, port, address: None, formats: [Format::default(); FORMATS_MAX], count: 0 };
        for word in words.take(FORMATS_MAX) {
            let payload_type = word.parse().ok()?;
            draft.formats[draft.count] = Format { payload_type, ..Format::default() };
            draft.count += 1;
        }
        Some(draft)
    }

    /// `96 opus/48000/2`
    fn map(&mut self, value: &'s str) {
        let Some((number, encoding)) = value.split_once(' ') else { return };
        let Ok(number) = number.parse::<u8>() else { return };
        let mut parts = encoding.trim().split('/');
        let (name, clock) = (parts.next().unwrap_or_default(), parts.next());
        let mut formats = self.formats[..self.count].iter_mut();
        if let Some(format) = formats.find(|format| format.payload_type == number) {
            format.name = name;
            format.clock = clock.and_then(|clock| clock.parse().ok()).unwrap_or(0);
        }
    }
}

/// `IN IP4 192.0.2.1`, perhaps with a TTL behind a slash.
fn connection(value: &str) -> Option<IpAddr> {
    let mut words = value.split_ascii_whitespace();
    let (net, _, address) = (words.next()?, words.next()?, words.next()?);
    if net != "IN" {
        return None;
    }
    address.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INVITE: &str = "INVITE sip:bob@example.org SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1\r\ni: call-7\r\n\
        From: \"Alice\" <sip:alice@example.org>;tag=1\r\nTo: sip:bob@example.org;tag=2\r\nCSeq: 1 INVITE\r\n\
        Content-Type: application/sdp\r\n\r\nv=0\r\nc=IN IP4 192.0.2.1\r\n\
        m=audio 49170 RTP/AVP 0 96\r\na=rtpmap:96 opus/48000/2\r\nm=image 5 udptl t38\r\n\
        m=video 0 RTP/AVP 31\r\nm=video 50000/2 RTP/SAVPF 97\r\nc=IN IP6 2001:db8::1\r\n";

    #[test]
    fn a_call_announces_its_media() {
        let message = Message::parse(INVITE.as_bytes()).expect("a request");
        assert_eq!((message.start, message.call_id), (Start::Request("INVITE"), "call-7"));
        assert_eq!(address(message.from), "sip:alice@example.org");
        assert_eq!((address(message.to), message.method), ("sip:bob@example.org", "INVITE"));
        let mut found = Vec::new();
        media(message.sdp.expect("a description"), |media| found.push(*media));
        let [audio, video] = &found[..] else { panic!("{found:?}") };
        assert_eq!((audio.address.to_string().as_str(), audio.port), ("192.0.2.1", 49170));
        assert_eq!(audio.formats()[1], Format { payload_type: 96, name: "opus", clock: 48_000 });
        assert_eq!((video.address.to_string().as_str(), video.port), ("2001:db8::1", 50_000));
    }

    #[test]
    fn answers_and_other_texts() {
        let answer = b"SIP/2.0 200 OK\r\nCall-ID: x\r\nCSeq: 2 BYE\r\n\r\n";
        let answer = Message::parse(answer).expect("an answer");
        assert_eq!((answer.start, answer.method, answer.sdp), (Start::Status(200), "BYE", None));
        for other in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"SIP/2.0 \xff\r\n", b"INVITE x SIP/2.0\r\n\r\n", b""] {
            assert_eq!(Message::parse(other), None);
        }
    }

    #[test]
    fn hostile_descriptions_end() {
        let many: String =
            (0..1000).map(|_| "m=audio 9 RTP/AVP 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n").collect();
        let mut count = 0;
        media(&format!("c=IN IP4 192.0.2.1\n{many}"), |media| {
            assert_eq!(media.formats().len(), FORMATS_MAX);
            count += 1;
        });
        assert_eq!(count, MEDIA_MAX);
        for len in 0..INVITE.len() {
            if let Some(message) = Message::parse(&INVITE.as_bytes()[..len]) {
                media(message.sdp.unwrap_or_default(), |_| {});
            }
        }
        let lines = "X: y\n".repeat(10_000);
        assert!(Message::parse(format!("BYE x SIP/2.0\nCall-ID: 1\n{lines}\n").as_bytes()).is_some());
    }

    #[test]
    fn lenient_lines_are_read() {
        let message =
            b"BYE x SIP/2.0\r\nno colon\r\nX: \xff\r\nFrom : \"\xe9\" <sip:a@b>;tag=1\r\nTo: \"\xe9\"\r\n\
            Call-ID\t: 1\r\n folded\r\n\r\n";
        let message = Message::parse(message).expect("a request");
        assert_eq!((message.call_id, address(message.from), message.to), ("1", "sip:a@b", ""));
    }
}
