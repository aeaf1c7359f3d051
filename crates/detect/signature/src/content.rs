//! `content`: bytes that a payload has, or has not, and where they lie.

use memchr::memmem::Finder;
use memchr::{memchr, memchr2};

use crate::number::{number, signed};
use crate::options::{parts, shortened};

/// The place in which a content is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentRange {
    /// From `offset` on; within the next `depth` bytes.
    Absolute { offset: usize, depth: Option<usize> },
    /// From the end of the last match, moved by `distance`; within the next `within` bytes.
    Relative { distance: i64, within: Option<usize> },
}

impl ContentRange {
    /// From the start on.
    pub(crate) const ANYWHERE: ContentRange = ContentRange::Absolute { offset: 0, depth: None };
}

/// Bytes to be found in a payload.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    pub(crate) bytes: Vec<u8>,
    pub(crate) nocase: bool,
    pub(crate) is_negated: bool,
    pub(crate) place: ContentRange,
    /// The payload ends with them.
    pub(crate) is_last: bool,
    /// The search for all signatures at once looks for this one.
    pub(crate) is_fast: bool,
    finder: Finder<'static>,
}

impl Content {
    /// `!"bytes"`, with Snort 3's settings behind commas.
    pub(crate) fn parse(value: &str) -> Result<Content, String> {
        let all = parts(value);
        let first = all[0];
        let (is_negated, quoted) = match first.strip_prefix('!') {
            Some(rest) => (true, rest.trim_start()),
            None => (false, first),
        };
        let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let inner = inner.ok_or_else(|| format!("content `{}` needs quotes", shortened(first)))?;
        let bytes = bytes(inner)?;
        let mut content = Content {
            finder: Finder::new(&bytes).into_owned(),
            bytes,
            nocase: false,
            is_negated,
            place: ContentRange::ANYWHERE,
            is_last: false,
            is_fast: false,
        };
        for setting in &all[1..] {
            let (name, value) = setting.split_once(char::is_whitespace).unwrap_or((setting, ""));
            if !content.set(name, value.trim())? {
                return Err(format!("content has no setting `{name}`"));
            }
        }
        Ok(content)
    }

    /// Applies an option of the content. Returns whether such an option exists.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match name {
            "nocase" => self.nocase = true,
            "rawbytes" => {}
            "fast_pattern" => self.is_fast = true,
            "offset" => {
                let given = number(value, 65_535)? as usize;
                let (offset, _) = self.absolute()?;
                *offset = given;
            }
            "depth" => {
                let given = self.room(name, value)?;
                let (_, depth) = self.absolute()?;
                *depth = Some(given);
            }
            "distance" => {
                let given = signed(value)?;
                let (distance, _) = self.relative()?;
                *distance = given;
            }
            "within" => {
                let given = self.room(name, value)?;
                let (_, within) = self.relative()?;
                *within = Some(given);
            }
            "startswith" => {
                let len = self.bytes.len();
                let (offset, depth) = self.absolute()?;
                (*offset, *depth) = (0, Some(len));
            }
            "endswith" => self.is_last = true,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn room(&self, name: &str, value: &str) -> Result<usize, String> {
        let room = number(value, 65_535)? as usize;
        match room < self.bytes.len() {
            true => Err(format!("{name} {room} has no room for {} bytes", self.bytes.len())),
            false => Ok(room),
        }
    }

    fn absolute(&mut self) -> Result<(&mut usize, &mut Option<usize>), String> {
        match &mut self.place {
            ContentRange::Absolute { offset, depth } => Ok((offset, depth)),
            ContentRange::Relative { .. } => {
                Err("a content has offset and depth, or distance and within, not both".to_owned())
            }
        }
    }

    fn relative(&mut self) -> Result<(&mut i64, &mut Option<usize>), String> {
        if self.place == ContentRange::ANYWHERE {
            self.place = ContentRange::Relative { distance: 0, within: None };
        }
        match &mut self.place {
            ContentRange::Relative { distance, within } => Ok((distance, within)),
            ContentRange::Absolute { .. } => {
                Err("a content has offset and depth, or distance and within, not both".to_owned())
            }
        }
    }

    /// The first occurrence in `haystack` that begins at `from` or behind.
    pub(crate) fn find(&self, haystack: &[u8], from: usize) -> Option<usize> {
        let rest = haystack.get(from..)?;
        match self.nocase {
            false => self.finder.find(rest).map(|at| from + at),
            true => find_nocase(rest, &self.bytes).map(|at| from + at),
        }
    }
}

/// Time in proportion to both lengths at worst.
fn find_nocase(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let (first, last_start) = (*needle.first()?, haystack.len().checked_sub(needle.len())?);
    let (small, large) = (first.to_ascii_lowercase(), first.to_ascii_uppercase());
    let mut at = 0;
    loop {
        let starts = haystack.get(at..=last_start)?;
        let next = if small == large { memchr(first, starts) } else { memchr2(small, large, starts) };
        at += next?;
        if haystack[at..at + needle.len()].eq_ignore_ascii_case(needle) {
            return Some(at);
        }
        at += 1;
    }
}

/// The bytes of a text with `|hex|` and escapes.
fn bytes(text: &str) -> Result<Vec<u8>, String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'|' => {
                let end = memchr(b'|', rest).ok_or_else(|| "a | in a content is not closed".to_owned())?;
                hex(&rest[..end], &mut bytes)?;
                rest = &rest[end + 1..];
            }
            b'\\' => {
                let (&escaped, behind) =
                    rest.split_first().ok_or_else(|| r"a content ends with a \".to_owned())?;
                bytes.push(escaped);
                rest = behind;
            }
            byte => bytes.push(byte),
        }
    }
    match bytes.len() {
        0 => Err("a content needs a byte".to_owned()),
        len if len > tapline_search::PATTERN_LEN_MAX => {
            Err(format!("a content of {len} bytes exceeds {}", tapline_search::PATTERN_LEN_MAX))
        }
        _ => Ok(bytes),
    }
}

/// Pairs of hexadecimal digits with blanks between them.
fn hex(text: &[u8], bytes: &mut Vec<u8>) -> Result<(), String> {
    let mut digits = text.iter().filter(|byte| !byte.is_ascii_whitespace());
    let digit = |byte: &u8| {
        let value = char::from(*byte).to_digit(16);
        value.ok_or_else(|| format!("`{}` in |...| is not a hexadecimal digit", char::from(*byte)))
    };
    while let Some(high) = digits.next() {
        let low = digits.next().ok_or_else(|| "|...| has an odd number of digits".to_owned())?;
        bytes.push((digit(high)? << 4 | digit(low)?) as u8);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_bytes() {
        let of = |text: &str| Content::parse(text).map(|content| content.bytes);
        assert_eq!(of(r#""GET |20 2f|a\;\"\\|3a3B|""#).unwrap(), b"GET  /a;\"\\:;");
        for (text, wanted) in [
            (r#""""#, "needs a byte"),
            (r#""|4""#, "not closed"),
            (r#""|4|""#, "odd number"),
            (r#""|4x|""#, "`x`"),
            ("GET", "needs quotes"),
            (r#""abc",depth 2"#, "no room"),
            (r#""abc",depth 3,within 4"#, "not both"),
            (r#""abc",upside down"#, "`upside`"),
        ] {
            let error = of(text).expect_err(text);
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }

    #[test]
    fn settings_stand_behind_commas_too() {
        let content = Content::parse(r#"!"a,b", nocase, distance -2, within 10, fast_pattern"#).unwrap();
        assert!(content.nocase && content.is_negated && content.is_fast);
        assert_eq!(content.place, ContentRange::Relative { distance: -2, within: Some(10) });
        let content = Content::parse(r#""abc",startswith"#).unwrap();
        assert_eq!(content.place, ContentRange::Absolute { offset: 0, depth: Some(3) });
    }

    #[test]
    fn case_is_ignored_where_it_is_said() {
        let content = Content::parse(r#""nEEdle|00|",nocase"#).unwrap();
        assert_eq!(content.find(b"NeedleNEEDLE\0", 0), Some(6));
        assert_eq!(content.find(b"NEEDLE\0", 1), None);
        assert_eq!(content.find(b"", 0), None);
        assert_eq!(find_nocase(b"..1A1a", b"1A"), Some(2));
    }
}
