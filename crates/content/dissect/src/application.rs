//! Applications by their first bytes, whatever the port.
//!
//! ```text
//! ftp         server 220 greeting that says FTP; or 220 and USER; client AUTH TLS, FEAT
//! smtp        server 220 greeting that says SMTP; client EHLO, HELO                        RFC 5321, 4.1
//! sip         METHOD sip:...; METHOD ... SIP/2.0; SIP/2.0 status                           RFC 3261, 7
//! redis       client *COUNT\r\n$LEN\r\n; server +PONG, -NOAUTH, -WRONGPASS                 RESP
//! mqtt        10 | length | 0004 MQTT level, or 0006 MQIsdp 3                              OASIS MQTT 5.0, 3.1
//! mysql       len 3, number 0 | 0a version 0 ..., or ff and an error; len 3, number 1 | capabilities ... 19 zeros
//! postgresql  len 4 | 00030000 and names, or the code of a request; R len 4 | code         protocol 3.x
//! ldap        30 len | 02 message number | operation, whose length fits                    RFC 4511, 5.1
//! rdp         03 00 len 2 | X.224 request or confirm with a cookie or a negotiation        MS-RDPBCGR, 2.2.1
//!             UDP: ffffffff | window | flags with SYN | ... | both MTU                     MS-RDPEUDP, 2.2.2
//! ntp         UDP, modes 6 and 7: version, command, and the length that the header gives
//!             UDP: version, mode, stratum, poll, precision and distances in their ranges   RFC 5905, 7.3
//! ```
//!
//! A sign has to be improbable for other protocols, because it overrules the port. So some first bytes that fit, such
//! as a client's `USER`, are a hint only. At most [`GREETING_MAX`] bytes are searched, everything else is compared.

use crate::Detection;
use crate::bytes::ByteReader;
use crate::sip;

/// Names of IANA's registry of services.
const FTP: &str = "ftp";
const SMTP: &str = "smtp";
const SIP: &str = "sip";
const REDIS: &str = "redis";
const MQTT: &str = "mqtt";
const MYSQL: &str = "mysql";
const POSTGRESQL: &str = "postgresql";
const LDAP: &str = "ldap";
const RDP: &str = "ms-wbt-server";
const NTP: &str = "ntp";

/// The most bytes of a greeting that are searched for the name of its protocol.
pub const GREETING_MAX: usize = 512;

/// The first bytes of one side of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// First bytes of this application, by its name in IANA's registry of services.
    Application(&'static str),
    /// First bytes of one of several applications.
    Hint(Hint),
}

/// First bytes that several applications have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// `220` of a server that does not say for what: FTP, SMTP and others.
    Greeting,
    /// `USER` of a client: FTP, POP3 and others.
    Login,
}

impl Hint {
    /// The application that the hints of both sides show.
    #[must_use]
    pub fn with(self, other: Hint) -> Option<&'static str> {
        (self != other).then_some(FTP)
    }
}

/// Looks at the first bytes of one side of a TCP stream. If no more bytes can come (`is_last`), more are not waited
/// for.
pub fn of_stream(bytes: &[u8], is_last: bool) -> Detection<Sign> {
    let found = match bytes {
        [] => Detection::NeedMore,
        [0, 0, ..] => named(POSTGRESQL, startup(bytes)),
        [3, 0, ..] => named(RDP, rdp(bytes)),
        [0x10, ..] => named(MQTT, mqtt(bytes)),
        [b'0', ..] => named(LDAP, ldap(bytes)),
        [b'*', ..] => named(REDIS, redis(bytes)),
        [b'R', 0, ..] => named(POSTGRESQL, authentication(bytes)),
        [b'+' | b'-', ..] => named(REDIS, redis_answer(bytes)),
        [b'2', ..] => greeting(bytes),
        [byte, ..] if byte.is_ascii_alphabetic() => words(bytes),
        _ => Detection::NoMatch,
    };
    match found {
        // Its length is little-endian, so its first byte may be any.
        Detection::NoMatch => named(MYSQL, mysql(bytes)),
        Detection::NeedMore if is_last && bytes.starts_with(b"220") => {
            Detection::Match(Sign::Hint(Hint::Greeting))
        }
        Detection::NeedMore if is_last => Detection::NoMatch,
        found => found,
    }
}

/// The application of a datagram, by its payload.
pub fn of_datagram(bytes: &[u8]) -> Option<&'static str> {
    let is = |found| found == Detection::Match(());
    match *bytes.first()? {
        b'0' => is(ldap(bytes)).then_some(LDAP),
        0xff => rdp_datagram(bytes).then_some(RDP),
        byte if byte.is_ascii_uppercase() && is(sip::begins(bytes)) => Some(SIP),
        _ => ntp(bytes).then_some(NTP),
    }
}

fn named(name: &'static str, found: Detection<()>) -> Detection<Sign> {
    found.map(|()| Sign::Application(name))
}

/// Compares with a text: a match once all of it is there.
fn text(bytes: &[u8], wanted: &[u8]) -> Detection<()> {
    let len = bytes.len().min(wanted.len());
    match bytes[..len].eq_ignore_ascii_case(&wanted[..len]) {
        true if len == wanted.len() => Detection::Match(()),
        true => Detection::NeedMore,
        false => Detection::NoMatch,
    }
}

/// The first of some results that is not `NoMatch`.
fn any_of<T>(all: impl IntoIterator<Item = Detection<T>>) -> Detection<T> {
    let mut result = Detection::NoMatch;
    for found in all {
        match found {
            Detection::Match(_) => return found,
            Detection::NeedMore => result = found,
            Detection::NoMatch => {}
        }
    }
    result
}

/// Commands of clients, and SIP.
fn words(bytes: &[u8]) -> Detection<Sign> {
    const COMMANDS: [(&[u8], Sign); 8] = [
        (b"EHLO ", Sign::Application(SMTP)),
        (b"HELO ", Sign::Application(SMTP)),
        (b"EHLO\r\n", Sign::Application(SMTP)),
        (b"HELO\r\n", Sign::Application(SMTP)),
        (b"AUTH TLS\r\n", Sign::Application(FTP)),
        (b"AUTH SSL\r\n", Sign::Application(FTP)),
        (b"FEAT\r\n", Sign::Application(FTP)),
        (b"USER ", Sign::Hint(Hint::Login)),
    ];
    let commands = COMMANDS.into_iter().map(|(word, sign)| text(bytes, word).map(|()| sign));
    any_of(std::iter::once(named(SIP, sip::begins(bytes))).chain(commands))
}

/// A reply 220, with the name of the protocol in its text or without.
fn greeting(bytes: &[u8]) -> Detection<Sign> {
    match bytes {
        [b'2', b'2', b'0', b' ' | b'-', rest @ ..] => {
            let line = &rest[..rest.len().min(GREETING_MAX)];
            // The first name counts, so that more bytes change nothing.
            let place = |name: &[u8]| line.windows(name.len()).position(|at| at.eq_ignore_ascii_case(name));
            match (place(b"SMTP"), place(b"FTP")) {
                (Some(smtp), ftp) if ftp.is_none_or(|ftp| smtp < ftp) => {
                    Detection::Match(Sign::Application(SMTP))
                }
                (_, Some(_)) => Detection::Match(Sign::Application(FTP)),
                _ if line.contains(&b'\n') || line.len() == GREETING_MAX => {
                    Detection::Match(Sign::Hint(Hint::Greeting))
                }
                _ => Detection::NeedMore,
            }
        }
        [b'2'] | [b'2', b'2'] | [b'2', b'2', b'0'] => Detection::NeedMore,
        _ => Detection::NoMatch,
    }
}

/// An array of bulk strings, as clients send commands.
fn redis(bytes: &[u8]) -> Detection<()> {
    let mut rest = bytes;
    for (mark, digits_max) in [(b'*', 6), (b'$', 9)] {
        match rest {
            [] => return Detection::NeedMore,
            [first, tail @ ..] if *first == mark => {
                let digits = tail.iter().take_while(|byte| byte.is_ascii_digit()).count();
                rest = match tail.get(digits..) {
                    _ if digits > digits_max => return Detection::NoMatch,
                    Some([] | [b'\r']) => return Detection::NeedMore,
                    Some([b'\r', b'\n', rest @ ..]) if digits > 0 => rest,
                    _ => return Detection::NoMatch,
                };
            }
            _ => return Detection::NoMatch,
        }
    }
    Detection::Match(())
}

/// Answers that no other protocol has: to PING, and to a client without a password.
fn redis_answer(bytes: &[u8]) -> Detection<()> {
    const ANSWERS: [&[u8]; 3] = [b"+PONG\r\n", b"-NOAUTH ", b"-WRONGPASS "];
    any_of(ANSWERS.map(|answer| text(bytes, answer)))
}

/// CONNECT: the name of the protocol behind a length of one to four bytes.
fn mqtt(bytes: &[u8]) -> Detection<()> {
    let Some(rest) = bytes.get(1..) else { return Detection::NeedMore };
    let len_len = rest.iter().take(4).take_while(|byte| **byte & 0x80 != 0).count() + 1;
    let Some(rest) = rest.get(len_len..).filter(|_| len_len <= 4) else {
        return if len_len <= 4 { Detection::NeedMore } else { Detection::NoMatch };
    };
    match rest {
        [0, 4, b'M', b'Q', b'T', b'T', 3..=5, ..] | [0, 6, b'M', b'Q', b'I', b's', b'd', b'p', 3, ..] => {
            Detection::Match(())
        }
        _ if b"\x00\x04MQTT".starts_with(rest) || b"\x00\x06MQIsdp".starts_with(rest) => Detection::NeedMore,
        _ => Detection::NoMatch,
    }
}

/// The server's greeting, its error instead, or the client's answer.
fn mysql(bytes: &[u8]) -> Detection<()> {
    const PACKET: usize = 4;
    /// Capability CLIENT_PROTOCOL_41, which all clients since 2004 set.
    const PROTOCOL_41: u16 = 0x0200;
    let &[low, middle, 0, number, ref body @ ..] = bytes else { return Detection::NoMatch };
    let len = usize::from(u16::from_le_bytes([low, middle]));
    match (number, body) {
        (0, [10, rest @ ..]) if (40..=512).contains(&len) => {
            let version_len = rest.iter().take(64).take_while(|byte| byte.is_ascii_graphic()).count();
            let is_version =
                rest.first().is_some_and(u8::is_ascii_digit) && rest.get(version_len) == Some(&0);
            // A thread's number, eight random bytes, and a zero.
            let is_filled = rest.get(version_len + 13).is_none_or(|byte| *byte == 0);
            if is_version && is_filled { Detection::Match(()) } else { Detection::NoMatch }
        }
        (0, &[0xff, low, high, ref text @ ..]) if (8..=512).contains(&len) => {
            let code = u16::from_le_bytes([low, high]);
            let is_text = text.len() >= 5 && text.iter().take(32).all(|byte| (b' '..=b'~').contains(byte));
            if (1000..5000).contains(&code) && is_text { Detection::Match(()) } else { Detection::NoMatch }
        }
        (1, &[low, high, _, _, _, _, _, _, _, ref zeros @ ..]) if (32..=4096).contains(&len) => {
            let is_new = u16::from_le_bytes([low, high]) & PROTOCOL_41 != 0;
            let is_zero = zeros.get(..19).is_some_and(|zeros| zeros.iter().all(|byte| *byte == 0));
            if is_new && is_zero && bytes.len() <= PACKET + len {
                Detection::Match(())
            } else {
                Detection::NoMatch
            }
        }
        _ => Detection::NoMatch,
    }
}

/// The first message of a client: a start with names and values, or a request for encryption or cancellation.
fn startup(bytes: &[u8]) -> Detection<()> {
    const CANCEL: u32 = 80_877_102;
    const SSL: u32 = 80_877_103;
    const GSS: u32 = 80_877_104;
    const PROTOCOL_3: std::ops::RangeInclusive<u32> = 0x0003_0000..=0x0003_0002;
    let mut reader = ByteReader(bytes);
    let (Some(len), Some(code)) = (reader.u32(), reader.u32()) else { return Detection::NeedMore };
    match (code, len) {
        (SSL | GSS, 8) | (CANCEL, 16..=272) => Detection::Match(()),
        (code, 9..=10_000) if PROTOCOL_3.contains(&code) => match reader.u8() {
            Some(b'a'..=b'z' | b'_') => Detection::Match(()),
            Some(_) => Detection::NoMatch,
            None => Detection::NeedMore,
        },
        _ => Detection::NoMatch,
    }
}

/// The answer to it: what the client has to prove.
fn authentication(bytes: &[u8]) -> Detection<()> {
    let mut reader = ByteReader(&bytes[1..]);
    match (reader.u32(), reader.u32()) {
        (Some(8..=255), Some(0..=12)) => Detection::Match(()),
        (Some(_), Some(_)) => Detection::NoMatch,
        _ => Detection::NeedMore,
    }
}

/// Tag and value of a BER element: the part of the value that is there, and its length.
fn element<'b>(reader: &mut ByteReader<'b>) -> Option<(u8, &'b [u8], usize)> {
    let tag = reader.u8()?;
    let len = match reader.u8()? {
        short @ 0..=0x7f => usize::from(short),
        long @ 0x81..=0x84 => {
            reader.take(usize::from(long & 0x7f))?.iter().fold(0, |len, byte| len << 8 | usize::from(*byte))
        }
        _ => return None,
    };
    let value = reader.take(len.min(reader.0.len()))?;
    Some((tag, value, len))
}

/// A message: its number, and an operation whose first field and length are right.
fn ldap(bytes: &[u8]) -> Detection<()> {
    /// As many bytes as the headers of message, number and operation have at most, and the operation's first field.
    const HEADERS: usize = 24;
    let is_message = || {
        let (_, message, len) = element(&mut ByteReader(bytes))?;
        let mut reader = ByteReader(message);
        let (2, number, 1..=4) = element(&mut reader)? else { return None };
        let before = message.len() - reader.0.len();
        if number.first()? & 0x80 != 0 {
            return None;
        }
        let header = reader.0.len();
        let (tag, value, value_len) = element(&mut reader)?;
        let end = before + (header - value.len() - reader.0.len()) + value_len;
        let is_exact = end == len;
        let begins = match (tag, value) {
            // The version.
            (0x60, [2, 1, 2 | 3, ..]) => true,
            // Results begin with a code.
            (0x61 | 0x65 | 0x67 | 0x69 | 0x6b | 0x6d | 0x6f | 0x78, [0x0a, 1, 0..=123, ..]) => true,
            // The name of an entry.
            (0x63 | 0x64 | 0x66 | 0x68 | 0x6c | 0x6e | 0x73, [4, ..]) => true,
            // The name of an extension.
            (0x77, [0x80, 1..=64, b'0'..=b'9', ..]) => true,
            (0x4a, [_, ..]) => is_exact,
            (0x42, []) => is_exact && value_len == 0,
            _ => false,
        };
        (begins && end <= len).then_some(())
    };
    let promised = if let [_, len @ ..=0x7f, ..] = bytes { 2 + usize::from(*len) } else { HEADERS };
    match is_message() {
        Some(()) => Detection::Match(()),
        None if bytes.len() < HEADERS.min(promised) => Detection::NeedMore,
        None => Detection::NoMatch,
    }
}

/// A connection request or confirm of X.224, with what only RDP puts behind it.
fn rdp(bytes: &[u8]) -> Detection<()> {
    match bytes {
        [3, 0, high, low, len, kind, 0, 0, _, _, 0, rest @ ..] => {
            let fits = u16::from_be_bytes([*high, *low]) == u16::from(*len) + 5;
            match (kind, rest) {
                (0xe0, [1, _, 8, 0, ..]) if fits => Detection::Match(()),
                (0xe0, _) if fits && *len > 6 => text(rest, b"Cookie: "),
                (0xd0, [2 | 3, _, 8, 0, ..]) if fits => Detection::Match(()),
                _ => Detection::NoMatch,
            }
        }
        [3, 0, ..] if bytes.len() < 11 => Detection::NeedMore,
        _ => Detection::NoMatch,
    }
}

/// The first datagram of a client: nothing was received yet, and both MTU are in the range of the protocol.
fn rdp_datagram(bytes: &[u8]) -> bool {
    let mut reader = ByteReader(bytes);
    let (none, _window, flags) = (reader.u32(), reader.u16(), reader.u16());
    let _first = reader.u32();
    let is_mtu = |mtu: Option<u16>| mtu.is_some_and(|mtu| (1132..=1232).contains(&mtu));
    none == Some(u32::MAX)
        && flags.is_some_and(|flags| flags & 1 != 0)
        && is_mtu(reader.u16())
        && is_mtu(reader.u16())
}

/// The header of 48 bytes, or a command. Nothing in it is a constant, so every field has to be in its range.
fn ntp(bytes: &[u8]) -> bool {
    match bytes {
        [first, ..] if !(1..=4).contains(&(first >> 3 & 7)) => false,
        [first, ..] if first & 7 == 6 => ntp_control(bytes),
        // A request of the former daemon: with an implementation and a code, and no data.
        [first, 0, 0 | 2 | 3, _, data @ ..] if first & 7 == 7 => {
            (4..=188).contains(&data.len()) && data.iter().all(|byte| *byte == 0)
        }
        _ => ntp_time(bytes),
    }
}

/// A control message (RFC 9327, 2): its header has the length of its data, which is padded to four bytes.
fn ntp_control(bytes: &[u8]) -> bool {
    let Some(&[_, operation, _, _, _, _, _, _, _, _, high, low]) = bytes.first_chunk::<12>() else {
        return false;
    };
    let len = 12 + usize::from(u16::from_be_bytes([high, low]));
    matches!(operation & 0x1f, 0..=12 | 31) && (len..len + 4).contains(&bytes.len())
}

fn ntp_time(bytes: &[u8]) -> bool {
    let Some(&[first, stratum, poll, precision, ref distances @ ..]) = bytes.first_chunk::<48>() else {
        return false;
    };
    let mode = first & 7;
    let is_kind = (1..=5).contains(&mode) && stratum <= 16 && poll <= 17;
    // Delay and dispersion to the root, in seconds: 16 is infinite.
    let is_near = distances[..2] <= [0, 16][..] && distances[4..6] <= [0, 16][..];
    // 2^-6 s to 2^-31 s; simple clients send 0.
    let is_clock = matches!(precision, 0 | 0xe1..=0xfa);
    // The sender's clock, between 1995 and 2036, or not set by a client. Those that hide theirs send random bits.
    let sent = distances[36];
    let is_time = mode == 3 || (0xb3..=0xff).contains(&sent);
    let is_padded = bytes.len() == 48 || (bytes.len() - 48).is_multiple_of(4) && bytes.len() <= 48 + 1024;
    is_kind && is_near && is_clock && is_time && is_padded
}

#[cfg(test)]
mod tests;
