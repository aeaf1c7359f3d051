//! Options on the payload, evaluated in the order of the text, with a cursor behind the last match.
//!
//! ```text
//! options   content "a"   content "b", distance 1   pcre /c/R
//! payload   ..a....a.b..bc
//!             ^ the rest fails from here: the next occurrence is tried
//! ```
//!
//! A search tries each occurrence of a content as long as an option behind depends on its place. So a signature fits
//! exactly if there is any choice of occurrences that fits all options.

use crate::content::{Content, ContentRange};
use crate::expression::{Expression, GaveUp};
use crate::number::{number, signed};
use crate::options::{parts, shortened};

/// The most steps of an evaluation: a step is a byte that a search may look at. Behind it the signature does not fit,
/// and the evaluation is counted.
pub const STEPS_MAX: u32 = 1 << 18;

/// Bytes that the regular expressions of a ruleset may take together.
pub(crate) const REGEX_SUM_MAX: usize = 1 << 30;

#[derive(Clone, Debug)]
pub(crate) enum PayloadOption {
    Content(Box<Content>),
    Pcre(Pcre),
    /// Bytes are there.
    IsDataAt {
        count: i64,
        is_relative: bool,
        is_negated: bool,
    },
    ByteTest(ByteTest),
    ByteJump(ByteJump),
}

/// A regular expression.
#[derive(Clone, Debug)]
pub(crate) struct Pcre {
    expression: Expression,
    is_relative: bool,
    is_negated: bool,
}

/// A number in the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    len: usize,
    offset: i64,
    is_relative: bool,
    is_little: bool,
    /// The base, if it is written in digits.
    base: Option<u32>,
}

/// A comparison of a number in the payload with a constant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteTest {
    field: Field,
    operator: Operator,
    is_negated: bool,
    value: u64,
}

#[derive(Clone, Copy, Debug)]
enum Operator {
    Less,
    Greater,
    LessOrEqual,
    GreaterOrEqual,
    Equal,
    And,
    Or,
}

/// A move of the cursor by a number in the payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteJump {
    field: Field,
    multiplier: u64,
    is_aligned: bool,
    is_from_beginning: bool,
    post_offset: i64,
}

/// The outcome of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Fits,
    Differs,
    /// The budget was spent.
    GivenUp,
}

pub(crate) fn evaluate(options: &[PayloadOption], payload: &[u8]) -> Outcome {
    let mut evaluation = Evaluation { payload, steps: STEPS_MAX };
    match evaluation.fits(options, 0) {
        Some(true) => Outcome::Fits,
        Some(false) => Outcome::Differs,
        None => Outcome::GivenUp,
    }
}

struct Evaluation<'p> {
    payload: &'p [u8],
    steps: u32,
}

impl Evaluation<'_> {
    /// Whether options fit with the cursor at `cursor`; `None` once the budget is spent.
    fn fits(&mut self, options: &[PayloadOption], cursor: usize) -> Option<bool> {
        let Some((option, rest)) = options.split_first() else { return Some(true) };
        match option {
            PayloadOption::Content(content) => self.content(content, rest, cursor),
            PayloadOption::Pcre(pcre) => self.pcre(pcre, rest, cursor),
            PayloadOption::IsDataAt { count, is_relative, is_negated } => {
                let is_there = match is_relative {
                    true => self.place(cursor, *count).is_some(),
                    false => self.place(0, *count).is_some_and(|at| at < self.payload.len()),
                };
                if is_there == *is_negated { Some(false) } else { self.fits(rest, cursor) }
            }
            PayloadOption::ByteTest(test) => match test.holds(self.payload, cursor) {
                Some(true) => self.fits(rest, cursor),
                _ => Some(false),
            },
            PayloadOption::ByteJump(jump) => match jump.target(self.payload, cursor) {
                Some(target) => self.fits(rest, target),
                None => Some(false),
            },
        }
    }

    fn content(&mut self, content: &Content, rest: &[PayloadOption], cursor: usize) -> Option<bool> {
        let (start, end) = self.area(content.place, cursor);
        let haystack = self.payload.get(..end).unwrap_or_default();
        let mut from = start;
        loop {
            self.spend(end.saturating_sub(from))?;
            let Some(at) = content.find(haystack, from) else { return self.missing(content, rest, cursor) };
            let behind = at + content.bytes.len();
            from = at + 1;
            if content.is_last && behind != self.payload.len() {
                continue;
            }
            if content.is_negated {
                return Some(false);
            }
            if self.fits(rest, behind)? {
                return Some(true);
            }
            if !depends_on_cursor(rest) {
                return Some(false);
            }
        }
    }

    fn missing(&mut self, content: &Content, rest: &[PayloadOption], cursor: usize) -> Option<bool> {
        if content.is_negated { self.fits(rest, cursor) } else { Some(false) }
    }

    /// The bytes that must contain a whole content.
    fn area(&self, place: ContentRange, cursor: usize) -> (usize, usize) {
        let (start, room) = match place {
            ContentRange::Absolute { offset, depth } => (offset, depth),
            ContentRange::Relative { distance, within } => {
                (cursor.saturating_add_signed(distance as isize), within)
            }
        };
        let len = self.payload.len();
        (start, room.map_or(len, |room| start.saturating_add(room).min(len)))
    }

    fn pcre(&mut self, pcre: &Pcre, rest: &[PayloadOption], cursor: usize) -> Option<bool> {
        let base = if pcre.is_relative { cursor } else { 0 };
        let haystack = self.payload.get(base..).unwrap_or_default();
        let mut from = 0;
        loop {
            self.spend(pcre.expression.steps(haystack.len().saturating_sub(from)))?;
            let found = match pcre.expression.find_at(haystack, from) {
                Ok(found) => found,
                Err(GaveUp) => return None,
            };
            let Some((start, end)) = found else {
                return if pcre.is_negated { self.fits(rest, cursor) } else { Some(false) };
            };
            if pcre.is_negated {
                return Some(false);
            }
            if self.fits(rest, base + end)? {
                return Some(true);
            }
            if !depends_on_cursor(rest) {
                return Some(false);
            }
            from = start + 1;
        }
    }

    fn place(&self, base: usize, offset: i64) -> Option<usize> {
        base.checked_add_signed(offset as isize).filter(|at| *at <= self.payload.len())
    }

    fn spend(&mut self, bytes: usize) -> Option<()> {
        let steps = u32::try_from(bytes).unwrap_or(u32::MAX).saturating_add(16);
        self.steps = self.steps.checked_sub(steps)?;
        Some(())
    }
}

/// Whether an option looks at the cursor before another one sets it.
fn depends_on_cursor(options: &[PayloadOption]) -> bool {
    for option in options {
        let (is_relative, sets_cursor) = match option {
            PayloadOption::Content(content) => {
                (matches!(content.place, ContentRange::Relative { .. }), !content.is_negated)
            }
            PayloadOption::Pcre(pcre) => (pcre.is_relative, !pcre.is_negated),
            PayloadOption::IsDataAt { is_relative, .. } => (*is_relative, false),
            PayloadOption::ByteTest(test) => (test.field.is_relative, false),
            PayloadOption::ByteJump(jump) => (jump.field.is_relative, true),
        };
        if is_relative || sets_cursor {
            return is_relative;
        }
    }
    false
}

impl Pcre {
    /// `!"/expression/flags"`.
    pub(crate) fn parse(value: &str, room: &mut usize) -> Result<Pcre, String> {
        let (is_negated, quoted) = match value.strip_prefix('!') {
            Some(rest) => (true, rest.trim_start()),
            None => (false, value),
        };
        let wrong = || format!("pcre `{}` is not written as \"/expression/flags\"", shortened(value));
        let inner = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).ok_or_else(wrong)?;
        let inner = inner.strip_prefix('m').filter(|rest| !rest.starts_with('/')).unwrap_or(inner);
        let delimiter = inner.chars().next().ok_or_else(wrong)?;
        let (expression, flags) = inner[delimiter.len_utf8()..].rsplit_once(delimiter).ok_or_else(wrong)?;
        let mut text = expression.to_owned();
        let mut is_relative = false;
        let mut settings = String::new();
        for flag in flags.chars() {
            match flag {
                'i' | 's' | 'm' | 'x' => settings.push(flag),
                'G' => settings.push('U'),
                'A' => text = format!(r"\A(?:{text})"),
                'R' => is_relative = true,
                // `$` is the very end here in any case; the buffer is the raw payload in any case.
                'E' | 'B' | 'O' => {}
                other => return Err(format!("the flag `{other}` of pcre is not supported")),
            }
        }
        let settings = if settings.is_empty() { String::new() } else { format!("(?{settings})") };
        let (expression, size) = Expression::new(&format!("{settings}{text}"))
            .map_err(|reason| format!("pcre `{}`: {reason}", shortened(expression)))?;
        *room = room.checked_sub(size).ok_or_else(|| {
            format!("the regular expressions of all signatures take more than {} MiB", REGEX_SUM_MAX >> 20)
        })?;
        Ok(Pcre { expression, is_relative, is_negated })
    }
}

impl Field {
    fn new(len: &str, offset: &str, is_relative: bool) -> Result<Field, String> {
        let len = number(len, 10)? as usize;
        if len == 0 {
            return Err("a number of 0 bytes cannot be read".to_owned());
        }
        Ok(Field { len, offset: signed(offset)?, is_relative, is_little: false, base: None })
    }

    /// Applies a setting; whether there is such a setting.
    fn set(&mut self, setting: &str) -> bool {
        match setting {
            "relative" => self.is_relative = true,
            "little" => self.is_little = true,
            "big" => self.is_little = false,
            "string" => self.base = self.base.or(Some(10)),
            "hex" => self.base = Some(16),
            "dec" => self.base = Some(10),
            "oct" => self.base = Some(8),
            _ => return false,
        }
        true
    }

    fn check(&self) -> Result<(), String> {
        match self.base {
            None if self.len > 8 => Err("a number of more than 8 bytes needs `string`".to_owned()),
            _ => Ok(()),
        }
    }

    /// The number, and the place behind it.
    fn read(&self, payload: &[u8], cursor: usize) -> Option<(u64, usize)> {
        let base = if self.is_relative { cursor } else { 0 };
        let start = base.checked_add_signed(self.offset as isize)?;
        let end = start.checked_add(self.len)?;
        let bytes = payload.get(start..end)?;
        let number = match self.base {
            Some(base) => digits(bytes, base)?,
            None if self.is_little => {
                bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
            }
            None => bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
        };
        Some((number, end))
    }
}

/// The number that a text begins with, blanks before it left out.
fn digits(text: &[u8], base: u32) -> Option<u64> {
    let text = text.trim_ascii_start();
    let len = text.iter().take_while(|byte| char::from(**byte).is_digit(base)).count();
    u64::from_str_radix(std::str::from_utf8(&text[..len]).ok()?, base).ok()
}

impl ByteTest {
    pub(crate) fn is_relative(&self) -> bool {
        self.field.is_relative
    }

    /// `bytes, operator, value, offset, settings`.
    pub(crate) fn parse(value: &str) -> Result<ByteTest, String> {
        let all = parts(value);
        let [len, operator, constant, offset, settings @ ..] = all.as_slice() else {
            return Err("byte_test needs bytes, operator, value and offset".to_owned());
        };
        let (is_negated, sign) = match operator.strip_prefix('!') {
            Some("") => (true, "="),
            Some(rest) => (true, rest),
            None => (false, *operator),
        };
        let operator = match sign {
            "<" => Operator::Less,
            ">" => Operator::Greater,
            "<=" => Operator::LessOrEqual,
            ">=" => Operator::GreaterOrEqual,
            "=" => Operator::Equal,
            "&" => Operator::And,
            "^" => Operator::Or,
            other => return Err(format!("byte_test has no operator `{other}`")),
        };
        let mut field = Field::new(len, offset, false)?;
        if let Some(unknown) = settings.iter().find(|setting| !field.set(setting)) {
            return Err(format!("byte_test has no setting `{unknown}`"));
        }
        field.check()?;
        Ok(ByteTest { field, operator, is_negated, value: number(constant, u64::MAX)? })
    }

    fn holds(&self, payload: &[u8], cursor: usize) -> Option<bool> {
        let (number, _) = self.field.read(payload, cursor)?;
        let holds = match self.operator {
            Operator::Less => number < self.value,
            Operator::Greater => number > self.value,
            Operator::LessOrEqual => number <= self.value,
            Operator::GreaterOrEqual => number >= self.value,
            Operator::Equal => number == self.value,
            Operator::And => number & self.value != 0,
            Operator::Or => number ^ self.value != 0,
        };
        Some(holds != self.is_negated)
    }
}

impl ByteJump {
    pub(crate) fn is_relative(&self) -> bool {
        self.field.is_relative
    }

    /// `bytes, offset, settings`.
    pub(crate) fn parse(value: &str) -> Result<ByteJump, String> {
        let all = parts(value);
        let [len, offset, settings @ ..] = all.as_slice() else {
            return Err("byte_jump needs bytes and offset".to_owned());
        };
        let mut jump = ByteJump {
            field: Field::new(len, offset, false)?,
            multiplier: 1,
            is_aligned: false,
            is_from_beginning: false,
            post_offset: 0,
        };
        for setting in settings {
            let (name, value) = setting.split_once(char::is_whitespace).unwrap_or((setting, ""));
            match name {
                "multiplier" => jump.multiplier = number(value, 65_535)?,
                "align" => jump.is_aligned = true,
                "from_beginning" => jump.is_from_beginning = true,
                "post_offset" => jump.post_offset = signed(value)?,
                _ if jump.field.set(setting) => {}
                _ => return Err(format!("byte_jump has no setting `{name}`")),
            }
        }
        jump.field.check()?;
        Ok(jump)
    }

    fn target(&self, payload: &[u8], cursor: usize) -> Option<usize> {
        let (number, behind) = self.field.read(payload, cursor)?;
        let mut distance = number.checked_mul(self.multiplier)?;
        if self.is_aligned {
            distance = distance.checked_next_multiple_of(4)?;
        }
        let base = if self.is_from_beginning { 0 } else { behind };
        let target = base.checked_add(usize::try_from(distance).ok()?)?;
        target.checked_add_signed(self.post_offset as isize).filter(|at| *at <= payload.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(text: &str) -> PayloadOption {
        PayloadOption::Content(Box::new(Content::parse(text).expect(text)))
    }

    fn pcre(text: &str) -> PayloadOption {
        PayloadOption::Pcre(Pcre::parse(text, &mut REGEX_SUM_MAX.clone()).expect(text))
    }

    fn fits(options: &[PayloadOption], payload: &[u8]) -> bool {
        match evaluate(options, payload) {
            Outcome::GivenUp => panic!("the budget is spent"),
            outcome => outcome == Outcome::Fits,
        }
    }

    #[test]
    fn places_are_absolute_or_behind_the_last_match() {
        let payload = b"GET /index.html HTTP/1.1";
        assert!(fits(
            &[content(r#""GET",offset 0,depth 3"#), content(r#""/",distance 1,within 1"#)],
            payload
        ));
        assert!(!fits(&[content(r#""GET""#), content(r#""/",distance 2,within 1"#)], payload));
        assert!(!fits(&[content(r#""index",depth 9"#)], payload), "it ends at 10");
        assert!(fits(&[content(r#""index",depth 10"#)], payload));
        assert!(fits(&[content(r#""HTTP""#), content(r#""GET",distance -100"#)], payload));
        assert!(
            fits(&[content(r#""1.1",endswith"#)], payload) && !fits(&[content(r#""1.",endswith"#)], payload)
        );
        assert!(fits(&[content(r#"!"POST""#)], payload) && !fits(&[content(r#"!"GET""#)], payload));
    }

    #[test]
    fn other_occurrences_are_tried_where_it_matters() {
        let options =
            [content(r#""a""#), content(r#""b",distance 1,within 1"#), content(r#""c",distance 0,within 1"#)];
        assert!(fits(&options, b"a.b.a.bc"));
        assert!(!fits(&options, b"a.b.a.b.c"));
        assert!(fits(&[pcre(r#""/x\d/""#), content(r#""!",distance 0,within 1"#)], b"x1 x2!"));
    }

    #[test]
    fn expressions_have_their_flags() {
        assert!(fits(&[pcre(r#""/get .*html/i""#)], b"GET /index.html"));
        assert!(!fits(&[pcre(r#""/get .*html/""#)], b"GET /index.html"));
        assert!(fits(&[content(r#""key=""#), pcre(r#""/^[0-9]+\x00$/R""#)], b"key=123\0"));
        assert!(fits(&[pcre(r#"!"/\xff{3}/""#)], b"\xff\xff"));
        for (text, wanted) in [
            (r#""/a(?=b)/""#, "look-around"),
            (r#""/(a)\1/""#, "backreferences"),
            (r#""/a/U""#, "`U`"),
            (r#""/a""#, "not written as"),
            (r#""/(a{1000}){1000}/""#, "size"),
        ] {
            let error = Pcre::parse(text, &mut REGEX_SUM_MAX.clone()).expect_err(text);
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }

    #[test]
    fn numbers_are_read_as_they_lie() {
        let test = |text: &str| PayloadOption::ByteTest(ByteTest::parse(text).expect(text));
        let jump = |text: &str| PayloadOption::ByteJump(ByteJump::parse(text).expect(text));
        let payload = b"\x00\x04\x01\x02LEN: 12;abcdefghijkl!";
        assert!(fits(
            &[test("2,=,4,0"), test("2,=,513,2,little"), test("1,&,4,1"), test("2,!=,5,0")],
            payload
        ));
        assert!(fits(&[content(r#""LEN:""#), test("3,>,11,0,relative,string,dec")], payload));
        assert!(!fits(&[test("4,>,0,1000")], payload), "it lies behind the end");
        let steps = [
            content(r#""LEN:""#),
            jump("3,0,relative,string,dec,post_offset 1"),
            content(r#""!",distance 0,within 1"#),
        ];
        assert!(fits(&steps, payload));
        assert!(fits(&[jump("2,0"), content(r#""N",distance 0,within 1"#)], payload));
        let at = |count, is_relative, is_negated| PayloadOption::IsDataAt { count, is_relative, is_negated };
        assert!(fits(&[content(r#""!""#), at(1, true, true), at(0, true, false)], payload));
        assert!(fits(&[at(24, false, false), at(25, false, true)], payload), "{}", payload.len());
        for text in ["1,=,1", "0,=,1,0", "9,=,1,0", "1,~,1,0", "1,=,1,0,upside", "1,=,x,0"] {
            assert!(ByteTest::parse(text).is_err(), "{text}");
        }
        assert!(ByteJump::parse("1").is_err() && ByteJump::parse("1,0,dce").is_err());
    }

    #[test]
    fn a_hostile_payload_spends_the_budget() {
        let options: Vec<PayloadOption> =
            (0..8).map(|_| content(r#""a",distance 0"#)).chain([content(r#""b",distance 0"#)]).collect();
        assert_eq!(evaluate(&options, &[b'a'; 1400]), Outcome::GivenUp);
    }

    #[test]
    fn expressions_have_a_most_together() {
        let small = 3 * (16 << 10);
        let mut room = 2 * small;
        for _ in 0..2 {
            Pcre::parse("\"/a/\"", &mut room).expect("there is room");
        }
        assert_eq!(room, 0);
        let error = Pcre::parse("\"/a/\"", &mut room).expect_err("there is none");
        assert!(error.contains("more than 1024 MiB"), "{error}");
        let mut room = REGEX_SUM_MAX;
        Pcre::parse("\"/[ab]{3000}/\"", &mut room).expect("it fits in a larger size");
        assert!(REGEX_SUM_MAX - room > small, "a large one is charged more");
    }
}
