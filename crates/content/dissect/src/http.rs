//! Heads of HTTP/1 messages, for extracted bodies, flows and JSON.
//!
//! ```text
//! head = start-line fields line-end
//! start-line = method SP target SP version  |  version SP status [SP reason]         version = HTTP/1.DIGIT
//! ```
//!
//! Servers and clients accept more than the grammar of RFC 9112 allows, so this parser does too: only an invalid
//! start line reveals another protocol. [`Fields`] describes how the lines behind it are read.

use crate::Detection;
use crate::fields::{Fields, head_len, line_end};

/// The longest method that is taken for one; the longest of the registry has 17 letters.
const METHOD_MAX: usize = 32;

/// The first line of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start<'h> {
    /// First line of a request.
    Request {
        /// The method.
        method: &'h [u8],
        /// The target, which may hold any bytes.
        target: &'h [u8],
        /// The digit behind `HTTP/1.`.
        minor: u8,
    },
    /// First line of a response.
    Response {
        /// The status, 100 to 999.
        status: u16,
        /// The text behind it; empty where the line is not whole.
        reason: &'h [u8],
        /// The digit behind `HTTP/1.`.
        minor: u8,
    },
}

/// The head of a message.
#[derive(Clone, Copy, Debug)]
pub struct Head<'h> {
    /// First line of the message.
    pub start: Start<'h>,
    lines: &'h [u8],
    /// Length in bytes, with the empty line that ends it.
    pub len: usize,
    /// The empty line was there.
    pub is_whole: bool,
}

impl<'h> Head<'h> {
    /// The head at the front of a stream. If no more bytes can come (`is_last`), the present part of a head is read.
    pub fn parse(bytes: &'h [u8], is_last: bool) -> Detection<Head<'h>> {
        if !may_begin(bytes) {
            return Detection::NoMatch;
        }
        let Some(line_len) = line_end(bytes) else {
            return match start(bytes, false) {
                Some(start) if is_last => {
                    Detection::Match(Head { start, lines: &[], len: bytes.len(), is_whole: false })
                }
                _ if !is_last => Detection::NeedMore,
                _ => Detection::NoMatch,
            };
        };
        let Some(start) = start(&bytes[..line_len], true) else { return Detection::NoMatch };
        let rest = &bytes[line_len..];
        let len = head_len(rest);
        if len.is_none() && !is_last {
            return Detection::NeedMore;
        }
        let lines = &rest[..len.unwrap_or(rest.len())];
        let fields = lines.strip_suffix(b"\n").filter(|_| len.is_some());
        let fields = fields.map(|lines| lines.strip_suffix(b"\r").unwrap_or(lines));
        let len_all = line_len + lines.len();
        Detection::Match(Head {
            start,
            lines: fields.unwrap_or(lines),
            len: len_all,
            is_whole: len.is_some(),
        })
    }

    /// Header fields of the message.
    pub fn fields(&self) -> Fields<'h> {
        Fields::new(self.lines)
    }

    /// The value of the first field of this name.
    pub fn field(&self, name: &str) -> Option<std::borrow::Cow<'h, [u8]>> {
        self.fields().find(|field| field.is(name)).map(|field| field.value())
    }
}

/// Whether bytes may be the beginning of a message. Takes the same time however many there are.
pub fn may_begin(bytes: &[u8]) -> bool {
    if let Some(rest) = strip_version(bytes) {
        let (front, status) = (&rest[..rest.len().min(16)], rest[..rest.len().min(16)].trim_ascii_start());
        let is_apart = front.is_empty() || status.len() < front.len();
        return is_apart && status.iter().take(3).all(u8::is_ascii_digit);
    }
    let version = &b"HTTP/1."[..bytes.len().min(7)];
    let method = method_len(bytes);
    match bytes.get(method) {
        None => method <= METHOD_MAX,
        Some(b' ') => (1..=METHOD_MAX).contains(&method),
        // A version that is not whole.
        Some(_) => version.eq_ignore_ascii_case(bytes),
    }
}

/// Reads the first line of a message; `is_whole` means that the line has its end.
fn start(line: &[u8], is_whole: bool) -> Option<Start<'_>> {
    if let Some(rest) = strip_version(line) {
        let minor = line[7] - b'0';
        let rest = rest.strip_prefix(b" ").or_else(|| rest.strip_prefix(b"\t"))?.trim_ascii_start();
        let (digits, reason) = rest.split_first_chunk::<3>()?;
        let is_end = reason.first().is_none_or(u8::is_ascii_whitespace);
        if !is_end || !digits.iter().all(u8::is_ascii_digit) || digits[0] == b'0' {
            return None;
        }
        let status = digits.iter().fold(0, |status, digit| 10 * status + u16::from(digit - b'0'));
        let reason = if is_whole { reason.trim_ascii() } else { b"" };
        return Some(Start::Response { status, reason, minor });
    }
    let method_len = method_len(line);
    if !(1..=METHOD_MAX).contains(&method_len) || line.get(method_len) != Some(&b' ') {
        return None;
    }
    let (method, rest) = line.split_at(method_len);
    let (target, version) = rest.trim_ascii_end().split_last_chunk::<8>()?;
    let target = target.strip_suffix(b" ").or_else(|| target.strip_suffix(b"\t"))?.trim_ascii();
    (strip_version(version).is_some() && !target.is_empty()).then(|| Start::Request {
        method,
        target,
        minor: version[7] - b'0',
    })
}

/// The letters of a method at the front: RFC 9110 has more characters, and no method uses them.
fn method_len(bytes: &[u8]) -> usize {
    let is_letter = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if !bytes.first().is_some_and(u8::is_ascii_alphabetic) {
        return 0;
    }
    bytes.iter().take(METHOD_MAX + 1).take_while(is_letter).count()
}

/// The bytes behind `HTTP/1.x`, in any case.
fn strip_version(bytes: &[u8]) -> Option<&[u8]> {
    let (version, rest) = bytes.split_first_chunk::<8>()?;
    (version[..7].eq_ignore_ascii_case(b"HTTP/1.") && version[7].is_ascii_digit()).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matched(bytes: &[u8], is_last: bool) -> Head<'_> {
        match Head::parse(bytes, is_last) {
            Detection::Match(head) => head,
            other => panic!("{:?}: {other:?}", String::from_utf8_lossy(bytes)),
        }
    }

    #[test]
    fn start_lines_are_read_however_they_are_written() {
        let get = |method, target, minor| Start::Request { method, target, minor };
        for (line, expected) in [
            (&b"GET / HTTP/1.1\r\n"[..], get(b"GET", b"/", 1)),
            (b"get /a b\xe9 http/1.0\n", get(b"get", b"/a b\xe9", 0)),
            (b"M-SEARCH  *  HTTP/1.1 \r\n", get(b"M-SEARCH", b"*", 1)),
        ] {
            assert_eq!(matched(line, true).start, expected);
        }
        for (line, status, reason) in [
            (&b"HTTP/1.1 200 OK\r\n"[..], 200, &b"OK"[..]),
            (b"http/1.0  404\r\n", 404, b""),
            (b"HTTP/1.1 999 \xff \n", 999, b"\xff"),
        ] {
            let Start::Response { status: found, reason: text, .. } = matched(line, true).start else {
                panic!("a response: {line:?}")
            };
            assert_eq!((found, text), (status, reason));
        }
        for other in [
            &b"HTTP/2 200 OK\r\n"[..],
            b"HTTP/1.1 2000 OK\r\n",
            b"HTTP/1.1 099 OK\r\n",
            b"HTTP/1.1 abc\r\n",
            b"PRI * HTTP/2.0\r\n",
            b"GET  HTTP/1.1\r\n",
            b"GET /index.html\r\n",
            b"HELO example.org\r\n",
            b"* OK HTTP/1.1\r\n",
            b"\r\nGET / HTTP/1.1\r\n",
        ] {
            assert!(matches!(Head::parse(other, true), Detection::NoMatch), "{other:?}");
        }
    }

    #[test]
    fn heads_are_waited_for_however_they_are_cut() {
        let head = b"HTTP/1.1 200 OK\r\nX-A : b\r\nX-B: c\r\n d\r\nnone\r\nX-\xe9: x\n\nbody";
        let whole = matched(head, false);
        assert_eq!((whole.len, whole.is_whole), (head.len() - 4, true));
        let mut fields = whole.fields();
        assert_eq!((fields.by_ref().count(), fields.malformed()), (3, 1));
        assert_eq!(whole.field("x-b").as_deref(), Some(&b"c d"[..]));
        for cut in 1..whole.len {
            assert!(matches!(Head::parse(&head[..cut], false), Detection::NeedMore), "{cut}");
        }
        let request = b"GET / HTTP/1.1\r\n\r\n";
        for cut in 1..request.len() {
            assert!(matches!(Head::parse(&request[..cut], false), Detection::NeedMore), "{cut}");
        }
        assert_eq!(matched(request, false).len, request.len());
        for other in [&b"SSH-2.0-O"[..], b"HTTP/2", b"220 ", b"HTTP/1.1 abc", b"\x16\x03\x01", &[b'a'; 40]] {
            assert!(matches!(Head::parse(other, false), Detection::NoMatch), "{other:?}");
        }
    }
}
