//! Protocols of text lines: HTTP, RTSP, SIP, FTP, SMTP, WHOIS.
//!
//! ```text
//! message = first line, CR LF, (line, CR LF)*
//! first line = command ' ' ...  |  [version ' '] code(3 digits) ' ' ...
//! ```
//!
//! Text: `HTTP: GET / HTTP/1.1`; with `-v` all lines that are text. Where only messages have a first line (HTTP, RTSP,
//! SIP), a packet that starts with something else shows the protocol's name alone.

use crate::bytes::{Cut, Printed, Span};
use crate::context::Context;
use crate::text::Text;

/// A protocol, by the first words of its messages.
pub(crate) struct Protocol {
    /// Name in `[|name]`.
    name: &'static str,
    /// Name at the start of the text.
    title: &'static str,
    /// The commands; empty if every packet is taken for text.
    commands: &'static [&'static str],
}

pub(crate) const FTP: Protocol = Protocol { name: "ftp", title: "FTP", commands: &[] };

pub(crate) const SMTP: Protocol = Protocol { name: "smtp", title: "SMTP", commands: &[] };

pub(crate) const WHOIS: Protocol = Protocol { name: "whois", title: "WHOIS", commands: &[] };

/// Requests of HTTP (RFC 9110) and WebDAV.
pub(crate) const HTTP: Protocol = Protocol {
    name: "http",
    title: "HTTP",
    commands: &[
        "GET",
        "PUT",
        "COPY",
        "HEAD",
        "LOCK",
        "MOVE",
        "POLL",
        "POST",
        "BCOPY",
        "BMOVE",
        "MKCOL",
        "TRACE",
        "LABEL",
        "MERGE",
        "DELETE",
        "SEARCH",
        "UNLOCK",
        "REPORT",
        "UPDATE",
        "NOTIFY",
        "BDELETE",
        "CONNECT",
        "OPTIONS",
        "CHECKIN",
        "PROPFIND",
        "CHECKOUT",
        "CCM_POST",
        "SUBSCRIBE",
        "PROPPATCH",
        "BPROPFIND",
        "BPROPPATCH",
        "UNCHECKOUT",
        "MKACTIVITY",
        "MKWORKSPACE",
        "UNSUBSCRIBE",
        "RPC_CONNECT",
        "VERSION-CONTROL",
        "BASELINE-CONTROL",
    ],
};

/// Requests of RTSP (RFC 2326).
pub(crate) const RTSP: Protocol = Protocol {
    name: "rtsp",
    title: "RTSP",
    commands: &[
        "DESCRIBE",
        "ANNOUNCE",
        "GET_PARAMETER",
        "OPTIONS",
        "PAUSE",
        "PLAY",
        "RECORD",
        "REDIRECT",
        "SETUP",
        "SET_PARAMETER",
        "TEARDOWN",
    ],
};

/// Requests of SIP (RFC 3261 and its extensions).
pub(crate) const SIP: Protocol = Protocol {
    name: "sip",
    title: "SIP",
    commands: &[
        "ACK",
        "BYE",
        "CANCEL",
        "DO",
        "INFO",
        "INVITE",
        "MESSAGE",
        "NOTIFY",
        "OPTIONS",
        "PRACK",
        "QAUTH",
        "REFER",
        "REGISTER",
        "SPRACK",
        "SUBSCRIBE",
        "UPDATE",
        "PUBLISH",
    ],
};

/// Longest word that is taken for a command or a code.
const WORD_MAX: usize = 128;

/// Prints a packet of `protocol`.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>, protocol: &Protocol) -> Printed {
    cx.protocol = protocol.name;
    cx.text(protocol.title);
    if !protocol.commands.is_empty() && !starts_message(span, protocol.commands) {
        return Ok(());
    }
    if cx.verbose() == 0 {
        print_line(cx, ": ", span, 0)?;
        return Ok(());
    }
    cx.text(", length: ");
    cx.dec(span.length as u64);
    let mut at = 0;
    while at < span.length {
        match print_line(cx, "\n\t", span, at)? {
            Some(next) => at = next,
            None => break,
        }
    }
    Ok(())
}

/// Whether the first word is one of the commands, or the second a code.
fn starts_message(span: Span<'_>, commands: &[&str]) -> bool {
    let Some((first, after)) = word(span, 0) else { return false };
    commands.iter().any(|command| first.eq_ignore_ascii_case(command.as_bytes()))
        || word(span, after).is_some_and(|(second, _)| is_code(second))
}

fn is_code(word: &[u8]) -> bool {
    word.len() == 3 && word.iter().all(u8::is_ascii_digit)
}

/// The word at `at` and where the next one starts; `None` if there is none, or none of text.
fn word(span: Span<'_>, at: usize) -> Option<(&[u8], usize)> {
    let rest = span.data.get(at..span.length.min(span.data.len()))?;
    let len = rest.iter().position(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
    // A word that ends with the packet is one, a word that ends with what was captured is not.
    let len = len.or((span.data.len() >= span.length).then_some(rest.len()))?;
    let word = &rest[..len];
    if word.is_empty() || word.len() > WORD_MAX || !word.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    let spaces = rest[len..].iter().take_while(|&&byte| byte == b' ').count();
    Some((word, at + len + spaces))
}

/// The line at `at` after `prefix`; where the next one starts. `None`, and nothing printed, if it is not text.
fn print_line(cx: &mut Context<'_>, prefix: &str, span: Span<'_>, at: usize) -> Result<Option<usize>, Cut> {
    let mut end = at;
    while end < span.length {
        let next = match span.u8(end)? {
            b'\n' => end + 1,
            b'\r' if end + 1 < span.length && span.u8(end + 1)? == b'\n' => end + 2,
            b'\t' | 0x20..0x7f => {
                end += 1;
                continue;
            }
            _ => return Ok(None),
        };
        cx.text(prefix);
        cx.raw(span.bytes(at, end - at)?);
        return Ok(Some(next));
    }
    cx.text(prefix);
    cx.raw(span.bytes(at, end - at)?);
    cx.cut();
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_start_with_a_command_or_a_code() {
        for (text, expected) in [
            (&b"GET / HTTP/1.1\r\n"[..], true),
            (b"get / HTTP/1.1\r\n", true),
            (b"HTTP/1.1 200 OK\r\n", true),
            (b"HTTP/1.1 2000 OK\r\n", false),
            (b"GETS /\r\n", false),
            (b"\x00GET /\r\n", false),
            (b"", false),
            (b" GET", false),
        ] {
            assert_eq!(starts_message(Span::whole(text), HTTP.commands), expected, "{text:?}");
        }
    }

    #[test]
    fn a_word_cut_short_is_none() {
        assert!(starts_message(Span::whole(b"GET"), HTTP.commands));
        assert!(!starts_message(Span { data: b"GET", length: 9 }, HTTP.commands));
    }
}
