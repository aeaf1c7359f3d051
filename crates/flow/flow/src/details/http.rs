//! The first message of an HTTP/1 stream (RFC 9112).

use std::borrow::Cow;

use tapline_dissect::Detection;
use tapline_dissect::http::{Head, Start};

/// The longest line of a request that is waited for.
const LINE_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message<'b> {
    Request(Request<'b>),
    /// With this status.
    Response(u16),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Request<'b> {
    pub(super) method: &'b [u8],
    pub(super) target: &'b [u8],
    pub(super) host: Cow<'b, [u8]>,
    pub(super) user_agent: Cow<'b, [u8]>,
}

/// Reads the first bytes of a stream. If no more can come, the present part of a head is read.
pub(super) fn read(bytes: &[u8], is_last: bool) -> Detection<Message<'_>> {
    let is_last = is_last || matches!(bytes, [b'H' | b'h', ..]) && is_status(bytes);
    match Head::parse(bytes, is_last) {
        Detection::Match(head) => Detection::Match(match head.start {
            Start::Response { status, .. } => Message::Response(status),
            Start::Request { method, target, .. } => Message::Request(request(&head, method, target)),
        }),
        Detection::NeedMore if bytes.len() >= LINE_MAX && !bytes[..LINE_MAX].contains(&b'\n') => {
            Detection::NoMatch
        }
        Detection::NeedMore => Detection::NeedMore,
        Detection::NoMatch => Detection::NoMatch,
    }
}

/// Whether the bytes have the status of a response: no more of it is waited for.
fn is_status(bytes: &[u8]) -> bool {
    matches!(Head::parse(bytes, true), Detection::Match(Head { start: Start::Response { .. }, .. }))
}

fn request<'b>(head: &Head<'b>, method: &'b [u8], target: &'b [u8]) -> Request<'b> {
    let field = |name| head.field(name).unwrap_or_default();
    Request { method, target, host: field("host"), user_agent: field("user-agent") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] =
        b"GET /index.html?a=b HTTP/1.1\r\nhost:  www.example.org \r\nUser-Agent: curl/8\r\nAccept: */*\r\n\r\nbody";

    #[test]
    fn requests_and_answers_are_read() {
        let expected = Request {
            method: b"GET",
            target: b"/index.html?a=b",
            host: b"www.example.org".into(),
            user_agent: b"curl/8".into(),
        };
        assert_eq!(read(HEAD, false), Detection::Match(Message::Request(expected)));
        for cut in 1..HEAD.len() - 4 {
            assert_eq!(read(&HEAD[..cut], false), Detection::NeedMore, "{cut}");
        }
        // Cut for good, behind the host.
        let Detection::Match(Message::Request(cut)) = read(&HEAD[..60], true) else { panic!("a request") };
        assert_eq!((&cut.host[..], &cut.user_agent[..]), (&b"www.example.org"[..], &b""[..]));
        assert_eq!(read(b"HTTP/1.1 404 Not Found\r\n", false), Detection::Match(Message::Response(404)));
        assert_eq!(read(b"HTT", false), Detection::NeedMore);
    }

    #[test]
    fn lines_are_read_as_leniently_as_for_bodies() {
        let head =
            b"get /a HTTP/1.1\r\nnone\r\nHost : a\xe9.example\r\nHost: b\r\nUser-Agent: x\r\n y\r\n\r\n";
        let Detection::Match(Message::Request(request)) = read(head, false) else { panic!("a request") };
        assert_eq!((&request.host[..], &request.user_agent[..]), (&b"a\xe9.example"[..], &b"x y"[..]));
        assert_eq!(read(b"http/1.1 200 OK\r\n", false), Detection::Match(Message::Response(200)));
    }

    #[test]
    fn other_things_are_not_waited_for() {
        let long = [b"GET /".as_slice(), &[b'a'; 5000]].concat();
        for other in [
            &b"SSH-2.0-OpenSSH_9\r\n"[..],
            b"220 mail.example.org ESMTP\r\n",
            b"HELO example.org\r\n",
            b"HTTP/2 200 OK\r\n",
            b"HTTP/1.1 abc ",
            b"A-VERY-LONG-WORD-THAT-IS-NO-METHOD ",
            b"\x16\x03\x01",
            &long,
        ] {
            assert_eq!(read(other, false), Detection::NoMatch, "{:?}", String::from_utf8_lossy(other));
        }
        assert_eq!(read(b"GET / HT", true), Detection::NoMatch);
    }
}
