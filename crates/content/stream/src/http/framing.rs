//! The length of a body, out of the head of its message (RFC 9112, 6.3) or the size in front of a chunk.

use tapline_dissect::http;

/// The longest text of a head that is kept.
pub(super) const TEXT_MAX: usize = 4096;

/// The size before a chunk: hexadecimal digits, and perhaps extensions (RFC 9112, 7.1).
pub(super) fn chunk_size(line: &[u8]) -> Option<u64> {
    let line = line.trim_ascii();
    let len = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (digits, rest) = line.split_at(len);
    let is_end = rest.first().is_none_or(|byte| matches!(byte, b';' | b' ' | b'\t'));
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_end)?;
    u64::from_str_radix(digits, 16).ok().filter(|size| *size <= i64::MAX as u64)
}

/// The framing of a body: the source of its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    None,
    Length(u64),
    Chunked,
    UntilEnd,
    Tunnel,
}

/// The fields of a head that bodies depend on.
#[derive(Default)]
pub(super) struct KnownFields {
    pub(super) host: String,
    pub(super) content_type: String,
    pub(super) content_encoding: String,
    /// Lines that are not fields.
    pub(super) malformed: u64,
    /// The last transfer coding is chunked, if there is one.
    is_chunked: Option<bool>,
    /// The length that all fields give; `Err` if they differ, or one is not a number.
    length: Option<Result<u64, ()>>,
}

impl KnownFields {
    pub(super) fn of(head: &http::Head<'_>) -> KnownFields {
        let mut known = KnownFields::default();
        let first = |kept: &mut String, value: &[u8]| {
            if kept.is_empty() {
                *kept = text(value);
            }
        };
        let mut fields = head.fields();
        for field in fields.by_ref() {
            match field.name.to_ascii_lowercase().as_slice() {
                b"host" => first(&mut known.host, &field.value()),
                b"content-type" => first(&mut known.content_type, &field.value()),
                b"content-encoding" => first(&mut known.content_encoding, &field.value()),
                // Several fields are one list (RFC 9110, 5.2).
                b"transfer-encoding" => {
                    let value = field.value();
                    let mut codings = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
                    let last = codings.rfind(|coding| !coding.is_empty());
                    known.is_chunked =
                        last.map(|last| last.eq_ignore_ascii_case(b"chunked")).or(known.is_chunked);
                }
                b"content-length" => {
                    for number in field.value().split(|byte| *byte == b',') {
                        let number = decimal(number.trim_ascii()).ok_or(());
                        let before = known.length.replace(number);
                        if before.is_some_and(|before| before != number) {
                            known.length = Some(Err(()));
                        }
                    }
                }
                _ => {}
            }
        }
        known.malformed = fields.malformed() as u64;
        known
    }

    /// RFC 9112, 6.3: the last transfer coding before a length, several lengths only if they are equal. `None` if the
    /// length is unknown.
    pub(super) fn framing(&self) -> Option<Framing> {
        match (self.is_chunked, self.length) {
            (Some(true), _) => Some(Framing::Chunked),
            (Some(false), _) | (None, None) => Some(Framing::UntilEnd),
            (None, Some(length)) => length.ok().map(Framing::Length),
        }
    }
}

fn decimal(digits: &[u8]) -> Option<u64> {
    let is_number = digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(TEXT_MAX)]).into_owned()
}
