//! Header lines of HTTP/1 and SIP, as lenient as the receivers that accept them.
//!
//! ```text
//! field = name [blank] ':' value line-end *(blank continuation line-end)       blank = space or tab
//! line-end = [CR] LF
//! ```
//!
//! Names and values may hold any bytes. A line without a colon, or with nothing before it, is not a field: it is
//! skipped and counted ([`Fields::malformed`]). Sources: RFC 9112, 5 and 2.2; RFC 3261, 7.3.1.

use std::borrow::Cow;

/// A header line, with the lines that continue it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'h> {
    /// Name as it was sent, without blanks around it.
    pub name: &'h [u8],
    /// Value as it was sent, without blanks around it. It has line ends if the field spans several lines.
    raw: &'h [u8],
}

impl<'h> Field<'h> {
    /// Whether the field has this name, in any case.
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }

    /// The value, its lines joined by spaces (RFC 9112, 5.2).
    pub fn value(&self) -> Cow<'h, [u8]> {
        if !self.raw.contains(&b'\n') {
            return Cow::Borrowed(self.raw);
        }
        let lines = self.raw.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        Cow::Owned(lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(&b' '))
    }

    /// The first line of the value.
    pub fn first_line(&self) -> &'h [u8] {
        self.raw.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii_end()
    }
}

/// The fields in some header lines, in their order.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'h> {
    rest: &'h [u8],
    malformed: usize,
}

impl<'h> Fields<'h> {
    /// The fields in `lines`. A last line without its end is skipped.
    pub fn new(lines: &'h [u8]) -> Fields<'h> {
        Fields { rest: lines, malformed: 0 }
    }

    /// Lines up to here that are not fields.
    pub fn malformed(&self) -> usize {
        self.malformed
    }
}

impl<'h> Iterator for Fields<'h> {
    type Item = Field<'h>;

    fn next(&mut self) -> Option<Field<'h>> {
        loop {
            let end = field_end(self.rest)?;
            let (lines, rest) = self.rest.split_at(end);
            self.rest = rest;
            let colon = lines.iter().position(|byte| matches!(byte, b':' | b'\n'));
            let (name, value) = lines.split_at(colon.unwrap_or(lines.len()));
            if let (b':', name @ [_, ..]) = (value.first().unwrap_or(&0), name.trim_ascii()) {
                return Some(Field { name, raw: value[1..].trim_ascii() });
            }
            self.malformed += 1;
        }
    }
}

/// The length of the first line and of those that continue it; `None` without a line end.
fn field_end(bytes: &[u8]) -> Option<usize> {
    let mut end = line_end(bytes)?;
    while let Some(b' ' | b'\t') = bytes.get(end) {
        match line_end(&bytes[end..]) {
            Some(len) => end += len,
            None => return Some(end),
        }
    }
    Some(end)
}

/// The length of the first line with its end.
pub(crate) fn line_end(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1)
}

/// The length of the header lines at the front, up to the empty line that ends them and with it.
pub(crate) fn head_len(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let len = line_end(&bytes[at..])?;
        let line = &bytes[at..at + len];
        at += len;
        if matches!(line, b"\n" | b"\r\n") {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[u8]) -> (Vec<(String, String)>, usize) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut fields = Fields::new(lines);
        let found = fields.by_ref().map(|field| (text(field.name), text(&field.value()))).collect();
        (found, fields.malformed())
    }

    #[test]
    fn lenient_lines_are_fields() {
        for (lines, name, value) in [
            (&b"A: b\r\n"[..], "A", "b"),
            (b"A : b\r\n", "A", "b"),
            (b"A\t:\tb \n", "A", "b"),
            (b"A:b\r\n c\r\n\td\r\n", "A", "b c d"),
            (b"A:\r\n b\r\n", "A", "b"),
            (b"X-\xe9: \xff:\r\n", "X-\u{fffd}", "\u{fffd}:"),
            (b"A:\0\x01b\n", "A", "\0\x01b"),
            (b"A:\r\n", "A", ""),
            (b"no colon\r\n: no name\r\n  stray\r\nA: b\r\n", "A", "b"),
        ] {
            assert_eq!(of(lines).0, [(name.to_owned(), value.to_owned())], "{lines:?}");
        }
        assert_eq!(of(b"no colon\r\n:\r\n \r\nA: b\r\nnone\n").1, 3);
        assert_eq!(of(b"A: b"), (Vec::new(), 0));
    }

    #[test]
    fn every_line_is_a_field_or_counted() {
        let many = "A: b\r\nnone\r\n".repeat(10_000);
        let (found, malformed) = of(many.as_bytes());
        assert_eq!((found.len(), malformed), (10_000, 10_000));
    }
}
