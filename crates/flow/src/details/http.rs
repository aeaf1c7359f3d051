//! The head of an HTTP/1 message (RFC 9112).

use tapline_wire::Detection;

/// Requests are known by one of these at the front; the others by their line's end.
const METHOD_MAX: usize = 20;
/// The longest line of a request that is waited for.
const LINE_MAX: usize = 4096;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message<'b> {
    Request(Request<'b>),
    /// With this status.
    Response(u16),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Request<'b> {
    pub(super) method: &'b [u8],
    pub(super) target: &'b [u8],
    pub(super) host: &'b [u8],
    pub(super) user_agent: &'b [u8],
}

/// Reads the first bytes of a stream. If no more can come, what is there of a head is read.
pub(super) fn read(bytes: &[u8], is_last: bool) -> Detection<Message<'_>> {
    match bytes {
        [b'H', b'T', b'T', b'P', b'/', ..] => response(bytes, is_last),
        _ if b"HTTP/".starts_with(bytes) && !is_last => Detection::NeedMore,
        _ => request(bytes, is_last),
    }
}

fn response(bytes: &[u8], is_last: bool) -> Detection<Message<'_>> {
    let Some(head) = bytes.first_chunk::<12>() else {
        return if is_last { Detection::NoMatch } else { Detection::NeedMore };
    };
    let [_, _, _, _, _, b'1', b'.', b'0' | b'1', b' ', digits @ ..] = head else { return Detection::NoMatch };
    match std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()) {
        Some(status @ 100..=999) => Detection::Match(Message::Response(status)),
        _ => Detection::NoMatch,
    }
}

fn request(bytes: &[u8], is_last: bool) -> Detection<Message<'_>> {
    let method = bytes.iter().take_while(|byte| byte.is_ascii_uppercase() || **byte == b'-').count();
    if method > METHOD_MAX || bytes.get(method).is_some_and(|byte| method == 0 || *byte != b' ') {
        return Detection::NoMatch;
    }
    let Some(line_len) = bytes.iter().take(LINE_MAX).position(|byte| *byte == b'\n') else {
        return if is_last || bytes.len() >= LINE_MAX { Detection::NoMatch } else { Detection::NeedMore };
    };
    let line = bytes[..line_len].trim_ascii_end();
    let Some(target) = line
        .strip_suffix(b" HTTP/1.1")
        .or_else(|| line.strip_suffix(b" HTTP/1.0"))
        .and_then(|front| front.get(method + 1..))
    else {
        return Detection::NoMatch;
    };
    let mut request = Request { method: &bytes[..method], target, ..Request::default() };
    let mut rest = &bytes[line_len + 1..];
    while let Some(len) = rest.iter().position(|byte| *byte == b'\n') {
        let line = rest[..len].trim_ascii_end();
        rest = &rest[len + 1..];
        if line.is_empty() {
            return Detection::Match(Message::Request(request));
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"host") {
            request.host = value;
        } else if name.eq_ignore_ascii_case(b"user-agent") {
            request.user_agent = value;
        }
    }
    if is_last { Detection::Match(Message::Request(request)) } else { Detection::NeedMore }
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
            host: b"www.example.org",
            user_agent: b"curl/8",
        };
        assert_eq!(read(HEAD, false), Detection::Match(Message::Request(expected)));
        for cut in 1..HEAD.len() - 4 {
            assert_eq!(read(&HEAD[..cut], false), Detection::NeedMore, "{cut}");
        }
        // Cut for good, behind the host.
        let Detection::Match(Message::Request(cut)) = read(&HEAD[..60], true) else { panic!("a request") };
        assert_eq!((cut.host, cut.user_agent), (&b"www.example.org"[..], &b""[..]));
        assert_eq!(read(b"HTTP/1.1 404 Not Found\r\n", false), Detection::Match(Message::Response(404)));
        assert_eq!(read(b"HTT", false), Detection::NeedMore);
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
