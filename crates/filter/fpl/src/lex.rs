//! FPL text to tokens.
//!
//! ```text
//! token   := number | name | symbol
//! number  := [1-9][0-9_]* | 0 | 0x[0-9A-Fa-f_]+ | 0b[01_]+ | address | text
//! address := d.d.d.d                          -- an IPv4 address: 32 bits in network order
//! text    := ' 1 to 8 characters '            -- their bytes in network order; \r \n \t \0 \\ \' \xHH
//! name    := [A-Za-z_][A-Za-z_0-9]*
//! ```
//!
//! Blanks, `// ...` up to the end of the line and `/* ... */` separate tokens. The longest symbol wins.

use tapline_syntax::{Error, Span};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    Number(u64),
    Name(&'a str),
    Symbol(&'static str),
    End,
}

/// Symbols, each before those that it begins with.
const SYMBOLS: &[&str] = &[
    "<<=", ">>=", "++", "--", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "==", "!=", "<=", ">=", "<<",
    ">>", "&&", "||", "+", "-", "*", "/", "%", "&", "|", "^", "~", "!", "<", ">", "=", "(", ")", "[", "]",
    ".", ",", ";",
];

/// Takes the text apart, token by token.
#[derive(Clone, Debug)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Lexer<'a> {
        Lexer { text, at: 0 }
    }

    /// The next token and its place; [`Token::End`] for ever at the end.
    pub(super) fn next_token(&mut self) -> Result<(Token<'a>, Span), Error> {
        self.skip_blanks()?;
        let rest = &self.text[self.at..];
        let (token, len) = match rest.as_bytes().first() {
            None => (Ok(Token::End), 0),
            Some(b'0'..=b'9') => number(rest),
            Some(b'\'') => text(rest),
            Some(b) if is_name_start(*b) => name(rest),
            Some(_) => symbol(rest),
        };
        let span = Span { start: self.at, end: self.at + len };
        self.at = span.end;
        token.map(|token| (token, span)).map_err(|error| error.with_place_if_none(span))
    }

    fn skip_blanks(&mut self) -> Result<(), Error> {
        loop {
            let rest = &self.text[self.at..];
            let len = blank_len(rest);
            match len {
                Some(0) => return Ok(()),
                Some(len) => self.at += len,
                None => {
                    let span = Span { start: self.at, end: self.at + 2 };
                    return Err(Error::at(span, "this comment has no end").hint("it ends with */"));
                }
            }
        }
    }
}

/// The length of blanks or of one comment, 0 where none begins; `None` for a comment without an end.
fn blank_len(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if let Some(comment) = rest.strip_prefix("/*") {
        return comment.find("*/").map(|end| end + 4);
    }
    Some(rest.bytes().take_while(u8::is_ascii_whitespace).count())
}

type Scanned<'a> = (Result<Token<'a>, Error>, usize);

fn is_name_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}

fn name(rest: &str) -> Scanned<'_> {
    let len = rest.bytes().take_while(|b| is_name_start(*b) || b.is_ascii_digit()).count();
    (Ok(Token::Name(&rest[..len])), len)
}

fn symbol(rest: &str) -> Scanned<'_> {
    if let Some(symbol) = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
        return (Ok(Token::Symbol(symbol)), symbol.len());
    }
    let first = rest.chars().next().unwrap_or(' ');
    let error = Error::whole(format!("'{}' means nothing here", first.escape_default()));
    let hint = match first {
        '"' => "text stands between ' and ', at most 8 characters",
        '#' => "comments begin with //, definitions with CONST or MACRO",
        '{' | '}' => "blocks end with FI and ROF",
        _ => "",
    };
    (Err(error.hint(hint)), first.len_utf8())
}

fn number(rest: &str) -> Scanned<'_> {
    let len = rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
    if rest[len..].starts_with('.') && rest.as_bytes().get(len + 1).is_some_and(u8::is_ascii_digit) {
        return address(rest);
    }
    (value_of(&rest[..len]).map(Token::Number), len)
}

fn value_of(text: &str) -> Result<u64, Error> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', b'b' | b'B', ..] => (&text[2..], 2),
        [b'0', b'0'..=b'9', ..] => {
            return Err(Error::whole(format!("{text} begins with a 0"))
                .hint("octal numbers do not exist here: leave the 0 out, or write 0x for hexadecimal"));
        }
        _ => (text, 10),
    };
    let digits: String = digits.chars().filter(|c| *c != '_').collect();
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Err(Error::whole(format!("'{text}' is not a number"))
            .hint("a number is decimal, 0x and hexadecimal digits, or 0b and binary digits"));
    }
    u64::from_str_radix(&digits, radix).map_err(|_| {
        Error::whole(format!("{text} takes more than 64 bits"))
            .hint("the greatest number is 0xffff_ffff_ffff_ffff")
    })
}

fn address(rest: &str) -> Scanned<'_> {
    let len = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let text = &rest[..len];
    let value = text.parse::<std::net::Ipv4Addr>().map(|address| Token::Number(u32::from(address).into()));
    let error = || {
        Error::whole(format!("'{text}' is not an IPv4 address")).hint("four numbers from 0 to 255: 10.0.0.1")
    };
    (value.map_err(|_| error()), len)
}

fn text(rest: &str) -> Scanned<'_> {
    let (mut value, mut count, mut at) = (0u64, 0, 1);
    loop {
        let (byte, len) = match rest.as_bytes()[at..] {
            [b'\'', ..] => break,
            [b'\\', b'x', high, low, ..] => match hex(high, low) {
                Some(byte) => (byte, 4),
                None => return (Err(bad_escape()), at + 2),
            },
            [b'\\', escaped, ..] => match escape(escaped) {
                Some(byte) => (byte, 2),
                None => return (Err(bad_escape()), at + 1),
            },
            [byte @ b' '..=b'~', ..] => (byte, 1),
            _ => {
                let error = Error::whole("this text has no end, or a character that is not ASCII");
                return (Err(error.hint("text ends with '; other bytes are written \\x and two digits")), at);
            }
        };
        value = value << 8 | u64::from(byte);
        count += 1;
        at += len;
    }
    if !(1..=8).contains(&count) {
        let error = Error::whole(format!("a text of {count} characters is not a number"));
        return (Err(error.hint("1 to 8 characters fit 64 bits")), at + 1);
    }
    (Ok(Token::Number(value)), at + 1)
}

fn hex(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    Some((digit(high)? << 4 | digit(low)?) as u8)
}

fn escape(byte: u8) -> Option<u8> {
    match byte {
        b'r' => Some(b'\r'),
        b'n' => Some(b'\n'),
        b't' => Some(b'\t'),
        b'0' => Some(0),
        b'\\' | b'\'' => Some(byte),
        _ => None,
    }
}

fn bad_escape() -> Error {
    Error::whole("this escape does not exist").hint("there are \\r \\n \\t \\0 \\\\ \\' and \\xHH")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lex(text: &str) -> Result<Vec<Token<'_>>, Error> {
        let mut lexer = Lexer::new(text);
        let mut tokens = Vec::new();
        loop {
            match lexer.next_token()?.0 {
                Token::End => return Ok(tokens),
                token => tokens.push(token),
            }
        }
    }

    #[test]
    fn numbers_have_many_forms() {
        for (text, value) in [
            ("0", 0),
            ("1_000", 1000),
            ("0xFf", 255),
            ("0b1010_1010", 170),
            ("10.0.0.1", 0x0a00_0001),
            ("'GET '", 0x4745_5420),
            ("'\\r\\n\\x00\\''", 0x0d0a_0027),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(lex(text), Ok(vec![Token::Number(value)]), "{text}");
        }
    }

    #[test]
    fn malformed_numbers_are_refused() {
        for (text, message) in [
            ("010", "010 begins with a 0"),
            ("0x", "'0x' is not a number"),
            ("12ab", "'12ab' is not a number"),
            ("18446744073709551616", "18446744073709551616 takes more than 64 bits"),
            ("1.2.3", "'1.2.3' is not an IPv4 address"),
            ("1.2.3.400", "'1.2.3.400' is not an IPv4 address"),
            ("''", "a text of 0 characters is not a number"),
            ("'123456789'", "a text of 9 characters is not a number"),
            ("'\\q'", "this escape does not exist"),
            ("'\\xg0'", "this escape does not exist"),
            ("'ab", "this text has no end, or a character that is not ASCII"),
            ("'é'", "this text has no end, or a character that is not ASCII"),
            ("\"", "'\\\"' means nothing here"),
            ("/* never", "this comment has no end"),
        ] {
            assert_eq!(lex(text).map_err(|error| error.message), Err(message.to_owned()), "{text}");
        }
    }

    #[test]
    fn comments_and_blanks_separate() {
        let expected = vec![Token::Name("a"), Token::Symbol("<<="), Token::Number(1), Token::Symbol(";")];
        assert_eq!(lex("a/* ; */<<=// x\n\t1;//"), Ok(expected));
        assert_eq!(lex("a<<==").map(|tokens| tokens.len()), Ok(3));
    }
}
