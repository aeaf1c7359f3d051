//! Pattern lists: text with one pattern a line.
//!
//! ```text
//! line     := blanks [ '#' anything | bytes [ blanks "/i" ] ] blanks
//! bytes    := ( byte | escape | '|' hex pairs, blanks between them '|' )+
//! escape   := '\' ( 'x' hex hex | 'n' | 'r' | 't' | '0' | '\' | '|' | '/' | '#' | ' ' )
//! ```
//!
//! `/i` at the end ignores case. Bytes above 0x7e are taken literally; blanks inside a pattern too, those around it
//! go. Lines end with a line feed, before which a carriage return is dropped.

use crate::{Error, Pattern};

/// The patterns of a list. Each one's id is its line, from 1.
///
/// # Errors
/// [`Error::List`] with line and byte: an unknown escape, a digit that is none, a `|` that is not closed, `/i` alone.
///
/// ```
/// let list = b"# agents\ncurl/ /i\nMZ|90 00|\\x03\n";
/// let patterns = tapline_search::parse_list(list)?;
/// assert_eq!((patterns[0].id, &*patterns[0].bytes, patterns[0].nocase), (2, &b"curl/"[..], true));
/// assert_eq!((patterns[1].id, &*patterns[1].bytes, patterns[1].nocase), (3, &b"MZ\x90\x00\x03"[..], false));
/// # Ok::<(), tapline_search::Error>(())
/// ```
pub fn parse_list(text: &[u8]) -> Result<Vec<Pattern>, Error> {
    let mut patterns = Vec::new();
    for (line, number) in text.split(|byte| *byte == b'\n').zip(1..) {
        let indent = line.len() - line.trim_ascii_start().len();
        let content = trim_end(&line[indent..]);
        if content.is_empty() || content[0] == b'#' {
            continue;
        }
        let mut reader = Line { rest: content, number, column: indent + 1 };
        patterns.push(reader.pattern()?);
    }
    Ok(patterns)
}

/// Without blanks at the end, except one that a backslash protects.
fn trim_end(line: &[u8]) -> &[u8] {
    let trimmed = line.trim_ascii_end();
    let backslashes = trimmed.iter().rev().take_while(|byte| **byte == b'\\').count();
    let protects = backslashes % 2 == 1 && line.get(trimmed.len()) == Some(&b' ');
    &line[..trimmed.len() + usize::from(protects)]
}

struct Line<'a> {
    rest: &'a [u8],
    number: u32,
    /// Column of the first byte of `rest`.
    column: usize,
}

impl Line<'_> {
    fn pattern(&mut self) -> Result<Pattern, Error> {
        let nocase = self.rest.ends_with(b"/i") && !self.rest.ends_with(b"\\/i");
        if nocase {
            self.rest = trim_end(&self.rest[..self.rest.len() - 2]);
        }
        let mut bytes = Vec::with_capacity(self.rest.len());
        while let Some(byte) = self.next() {
            match byte {
                b'\\' => bytes.push(self.escape()?),
                b'|' => self.hex_run(&mut bytes)?,
                byte => bytes.push(byte),
            }
        }
        if bytes.is_empty() {
            return Err(self.error("a pattern needs a byte before /i or between | and |"));
        }
        Ok(Pattern { id: self.number, bytes, nocase })
    }

    fn escape(&mut self) -> Result<u8, Error> {
        Ok(match self.next() {
            Some(b'x') => self.hex_pair()?,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'0') => 0,
            Some(byte @ (b'\\' | b'|' | b'/' | b'#' | b' ')) => byte,
            _ => return Err(self.error(r"after \ comes xNN, n, r, t, 0, \, |, /, # or a blank")),
        })
    }

    /// From behind the first `|` to behind the second.
    fn hex_run(&mut self, bytes: &mut Vec<u8>) -> Result<(), Error> {
        loop {
            match self.rest.first() {
                Some(b' ' | b'\t') => _ = self.next(),
                Some(b'|') => {
                    self.next();
                    return Ok(());
                }
                Some(_) => bytes.push(self.hex_pair()?),
                None => {
                    return Err(
                        self.error(r"| opens hexadecimal digits that another | closes; \| is the byte")
                    );
                }
            }
        }
    }

    fn hex_pair(&mut self) -> Result<u8, Error> {
        let mut digit = || {
            let value = self.next().and_then(|byte| char::from(byte).to_digit(16));
            value.ok_or_else(|| self.error("two hexadecimal digits were expected"))
        };
        Ok((digit()? << 4 | digit()?) as u8)
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        self.column += 1;
        Some(*first)
    }

    /// At the byte that was read last.
    fn error(&self, reason: &'static str) -> Error {
        Error::List { line: self.number, column: self.column.saturating_sub(1).max(1), reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> (Vec<u8>, bool) {
        let mut patterns = parse_list(line.as_bytes()).unwrap();
        assert_eq!(patterns.len(), 1, "{line}");
        let pattern = patterns.remove(0);
        (pattern.bytes, pattern.nocase)
    }

    fn place(list: &str) -> (u32, usize) {
        match parse_list(list.as_bytes()) {
            Err(Error::List { line, column, .. }) => (line, column),
            other => panic!("{list}: {other:?}"),
        }
    }

    #[test]
    fn lines() {
        let list = parse_list(b"\n# one\n  first \r\nsecond/i\r\n\n#\n\\#third").unwrap();
        let ids: Vec<_> = list.iter().map(|pattern| (pattern.id, pattern.bytes.as_slice())).collect();
        assert_eq!(ids, [(3, &b"first"[..]), (4, b"second"), (7, b"#third")]);
        assert!(list[1].nocase && !list[0].nocase);
        assert_eq!(parse_list(b""), Ok(vec![]));
    }

    #[test]
    fn escapes() {
        assert_eq!(one(r"a\x00\xfF\n\r\t\0\\\|\/\#").0, b"a\x00\xff\n\r\t\0\\|/#");
        assert_eq!(one("GET /index /i"), (b"GET /index".to_vec(), true));
        assert_eq!(one(r"GET \/i"), (b"GET /i".to_vec(), false));
        assert_eq!(one(r"end\ "), (b"end ".to_vec(), false));
        assert_eq!(one(r"end\  /i"), (b"end ".to_vec(), true));
        assert_eq!(one(r"end\\ "), (b"end\\".to_vec(), false));
        assert_eq!(one("|AB cd|x|0001 02|"), (b"\xab\xcdx\0\x01\x02".to_vec(), false));
    }

    #[test]
    fn errors_have_a_place() {
        assert_eq!(place("ok\nab\\q"), (2, 4));
        assert_eq!(place("|0g|"), (1, 3));
        assert_eq!(place("|00"), (1, 3));
        assert_eq!(place("/i"), (1, 1));
        assert_eq!(place("||"), (1, 2));
        assert_eq!(place(r"\x1"), (1, 3));
        assert_eq!(place("  \\"), (1, 3));
    }
}
