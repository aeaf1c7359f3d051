//! Text to tokens.
//!
//! ```text
//! token  := number | name | ipv4 | ipv6 | mac | mac8 | protocol | keyword | symbol
//! number := [0-9]+ | 0[xX][0-9A-Fa-f]+ | a named constant such as tcp-syn     -- 0 leads an octal one
//! ipv4   := n.n | n.n.n | n.n.n.n          -- n as above; short forms are networks
//! mac    := b:b:b:b:b:b | b-b-b-b-b-b | b.b.b.b.b.b | bbbb.bbbb.bbbb | 12 hexadecimal digits
//! mac8   := $b                             -- b: one or two hexadecimal digits
//! name   := [A-Za-z0-9] | [A-Za-z0-9][-_.A-Za-z0-9]*[.A-Za-z0-9] | \ anything up to a blank, ! ( )
//! modifier := scoped | extensions | anyvlan | inner | fragment      -- only before (, elsewhere a name; never after \
//! ```
//!
//! The longest match wins; of equally long ones the first of: keyword, MAC address, number, IPv4, IPv6, named
//! constant, name. Source: `scanner.l` of libpcap and pcap-filter(7).

mod words;

use std::net::Ipv6Addr;

use crate::ast::{Keyword, Protocol};
use tapline_syntax::{Error, Span};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// A number or a named constant.
    Number(u32),
    /// A name, without the backslash that may lead it.
    Name(&'a str),
    /// Two to four numbers with dots between them, not yet checked.
    Ipv4(&'a str),
    /// An IPv6 address.
    Ipv6(Ipv6Addr),
    /// A 48-bit link-layer address.
    Mac([u8; 6]),
    /// An 8-bit link-layer address.
    Mac8(u8),
    /// A word of our own, with a parenthesis behind it.
    Modifier(ModifierWord),
    /// A word that names a protocol.
    Protocol(Protocol),
    /// Any other word of the language.
    Keyword(Keyword),
    /// An operator or a bracket.
    Symbol(Symbol),
    /// The end of the text.
    End,
}

/// The modifiers' words. Without a parenthesis behind them they are names, as in libpcap, whose grammar allows no
/// name before a parenthesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModifierWord {
    Scoped,
    Extensions,
    AnyVlan,
    Inner,
    Fragment,
}

/// Operators and brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Symbol {
    Plus,
    Minus,
    Star,
    Slash,
    Percent,
    Colon,
    Comma,
    LeftBracket,
    RightBracket,
    LeftParen,
    RightParen,
    Not,
    Less,
    Greater,
    LessEqual,
    GreaterEqual,
    Equal,
    NotEqual,
    Ampersand,
    Bar,
    Caret,
    ShiftLeft,
    ShiftRight,
    And,
    Or,
}

/// Takes the text apart, token by token.
#[derive(Clone, Debug)]
pub(crate) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    /// At the start of `text`.
    pub(crate) fn new(text: &'a str) -> Lexer<'a> {
        Lexer { text, at: 0 }
    }

    /// The next token and its place; [`Token::End`] for ever at the end.
    ///
    /// # Errors
    /// If no token starts here, or a number or an address is malformed.
    pub(crate) fn next_token(&mut self) -> Result<(Token<'a>, Span), Error> {
        self.skip_blanks();
        let rest = &self.text[self.at..];
        let (token, len) = match rest.as_bytes().first() {
            None => (Ok(Token::End), 0),
            Some(b'\\') => escaped(rest),
            Some(b'$') => mac8(rest),
            Some(b) if b.is_ascii_alphanumeric() || *b == b':' => word_or_form(rest),
            Some(_) => symbol(rest),
        };
        let span = Span { start: self.at, end: self.at + len };
        self.at = span.end;
        token.map(|token| (token, span)).map_err(|error| error.with_place_if_none(span))
    }

    fn skip_blanks(&mut self) {
        self.at += blanks(&self.text[self.at..]);
    }
}

/// Number of blanks at the beginning of the text.
fn blanks(text: &str) -> usize {
    text.bytes().take_while(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n')).count()
}

type Scanned<'a> = (Result<Token<'a>, Error>, usize);

fn escaped(rest: &str) -> Scanned<'_> {
    let name = rest[1..].split([' ', '!', '(', ')', '\n', '\t']).next().unwrap_or("");
    if name.is_empty() {
        return (Err(bad_character(rest)), 1);
    }
    (Ok(Token::Name(name)), 1 + name.len())
}

fn mac8(rest: &str) -> Scanned<'_> {
    let digits = hex_run(&rest.as_bytes()[1..]).min(2);
    match u8::from_str_radix(&rest[1..1 + digits], 16) {
        Ok(address) => (Ok(Token::Mac8(address)), 1 + digits),
        Err(_) => (Err(bad_character(rest)), 1),
    }
}

fn symbol(rest: &str) -> Scanned<'_> {
    let two = rest.get(..2).and_then(two_char_symbol);
    if let Some(symbol) = two {
        return (Ok(Token::Symbol(symbol)), 2);
    }
    let first = rest.chars().next().unwrap_or(' ');
    match one_char_symbol(first) {
        Some(symbol) => (Ok(Token::Symbol(symbol)), 1),
        None => (Err(bad_character(rest)), first.len_utf8()),
    }
}

fn two_char_symbol(text: &str) -> Option<Symbol> {
    Some(match text {
        ">=" => Symbol::GreaterEqual,
        "<=" => Symbol::LessEqual,
        "!=" => Symbol::NotEqual,
        "==" => Symbol::Equal,
        "<<" => Symbol::ShiftLeft,
        ">>" => Symbol::ShiftRight,
        "&&" => Symbol::And,
        "||" => Symbol::Or,
        _ => return None,
    })
}

fn one_char_symbol(c: char) -> Option<Symbol> {
    Some(match c {
        '+' => Symbol::Plus,
        '-' => Symbol::Minus,
        '*' => Symbol::Star,
        '/' => Symbol::Slash,
        '%' => Symbol::Percent,
        ':' => Symbol::Colon,
        ',' => Symbol::Comma,
        '[' => Symbol::LeftBracket,
        ']' => Symbol::RightBracket,
        '(' => Symbol::LeftParen,
        ')' => Symbol::RightParen,
        '!' => Symbol::Not,
        '<' => Symbol::Less,
        '>' => Symbol::Greater,
        '=' => Symbol::Equal,
        '&' => Symbol::Ampersand,
        '|' => Symbol::Bar,
        '^' => Symbol::Caret,
        _ => return None,
    })
}

fn bad_character(rest: &str) -> Error {
    let shown = rest.chars().next().unwrap_or(' ').escape_debug();
    Error::whole(SYNTAX).hint(format!("'{shown}' means nothing here"))
}

/// libpcap's message for any text that its grammar does not allow.
pub(crate) const SYNTAX: &str = "can't parse filter expression: syntax error";

/// As [`word`]; a name of ours that a parenthesis follows is a modifier.
fn word_or_form(rest: &str) -> Scanned<'_> {
    let (token, len) = word(rest);
    let Ok(Token::Name(name)) = token else { return (token, len) };
    let after = &rest[len..];
    let opens = after[blanks(after)..].starts_with('(');
    match words::modifier(name).filter(|_| opens) {
        Some(modifier) => (Ok(Token::Modifier(modifier)), len),
        None => (token, len),
    }
}

/// A token that starts with a letter, a digit or a colon: the longest of all candidates.
fn word(rest: &str) -> Scanned<'_> {
    let bytes = rest.as_bytes();
    let name_len = name_len(bytes);
    let candidates = [
        (words::find(&rest[..name_len]).map_or(0, |_| name_len), Kind::Word),
        (mac_len(bytes), Kind::Mac),
        (number_len(bytes), Kind::Number),
        (ipv4_len(bytes), Kind::Ipv4),
        (ipv6_len(rest), Kind::Ipv6),
        (bad_mac_len(bytes), Kind::BadMac),
        (name_len, Kind::Name),
    ];
    let mut best = candidates[0];
    for candidate in candidates {
        if candidate.0 > best.0 {
            best = candidate;
        }
    }
    match best {
        (0, _) => symbol(rest),
        (len, kind) => (token_of(kind, &rest[..len]), len),
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Word,
    Mac,
    Number,
    Ipv4,
    Ipv6,
    BadMac,
    Name,
}

fn token_of(kind: Kind, text: &str) -> Result<Token<'_>, Error> {
    match kind {
        Kind::Word => Ok(words::find(text).unwrap_or(Token::Name(text))),
        Kind::Mac => Ok(Token::Mac(mac(text))),
        Kind::Number => number(text).map(Token::Number),
        Kind::Ipv4 => Ok(Token::Ipv4(text)),
        Kind::Ipv6 => text.parse().map(Token::Ipv6).map_err(|_| {
            Error::whole(format!("invalid IPv6 address '{text}'"))
                .hint("an example of a valid one: 2001:db8::1")
        }),
        Kind::BadMac => Err(Error::whole(format!("invalid Ethernet address '{text}'"))
            .hint("an Ethernet address is six bytes, as 00:00:5e:00:53:01; an IPv6 address may have ::")),
        Kind::Name => Ok(Token::Name(text)),
    }
}

/// The value of decimal, octal or hexadecimal digits.
///
/// # Errors
/// If it takes more than 32 bits or is octal with an 8 or a 9.
pub(crate) fn number(text: &str) -> Result<u32, Error> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    if radix == 8 && digits.bytes().any(|b| b > b'7') {
        return Err(Error::whole(format!("number {text} contains non-octal digit"))
            .hint("a number that starts with 0 is octal; leave the 0 out for decimal"));
    }
    u32::from_str_radix(digits, radix).map_err(|_| {
        Error::whole(format!("number {text} overflows 32 bits")).hint("numbers go up to 4294967295")
    })
}

/// Whether the text is a number as a whole.
pub(crate) fn is_number(text: &str) -> bool {
    !text.is_empty() && number_len(text.as_bytes()) == text.len()
}

/// Whether the word begins a modifier where a parenthesis comes next.
pub(crate) fn is_form(text: &str) -> bool {
    words::modifier(text).is_some()
}

/// Whether the text is a word of the language once it is in lower case, as words must be.
pub(crate) fn is_word_in_lower_case(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    lower != text && words::find(&lower).is_some()
}

fn mac(text: &str) -> [u8; 6] {
    let groups: Vec<&str> = text.split([':', '-', '.']).collect();
    let digits: String = match groups.len() {
        6 => groups.iter().map(|g| format!("{g:0>2}")).collect(),
        _ => groups.concat(),
    };
    std::array::from_fn(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap_or(0))
}

fn hex_run(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|b| b.is_ascii_hexdigit()).count()
}

fn name_len(bytes: &[u8]) -> usize {
    if !bytes.first().is_some_and(u8::is_ascii_alphanumeric) {
        return 0;
    }
    let run =
        bytes.iter().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')).count();
    bytes[..run].iter().rposition(|b| !matches!(b, b'-' | b'_')).map_or(0, |last| last + 1)
}

fn number_len(bytes: &[u8]) -> usize {
    if let [b'0', b'x' | b'X', digits @ ..] = bytes
        && hex_run(digits) > 0
    {
        return 2 + hex_run(digits);
    }
    bytes.iter().take_while(|b| b.is_ascii_digit()).count()
}

fn ipv4_len(bytes: &[u8]) -> usize {
    let mut end = number_len(bytes);
    let mut parts = usize::from(end > 0);
    while (1..4).contains(&parts) && bytes.get(end) == Some(&b'.') {
        let len = number_len(&bytes[end + 1..]);
        if len == 0 {
            break;
        }
        end += 1 + len;
        parts += 1;
    }
    if parts > 1 { end } else { 0 }
}

fn mac_len(bytes: &[u8]) -> usize {
    let grouped = |separator, count, digits_min, digits_max| {
        groups_len(bytes, separator, count, digits_min, digits_max)
    };
    let forms = [
        grouped(b':', 6, 1, 2),
        grouped(b'-', 6, 1, 2),
        grouped(b'.', 6, 1, 2),
        grouped(b'.', 3, 4, 4),
        if hex_run(bytes) >= 12 { 12 } else { 0 },
    ];
    forms.into_iter().max().unwrap_or(0)
}

/// The length of `count` groups of hexadecimal digits, 0 if they are not there.
fn groups_len(bytes: &[u8], separator: u8, count: usize, digits_min: usize, digits_max: usize) -> usize {
    let mut end = 0;
    for group in 0..count {
        if group > 0 {
            if bytes.get(end) != Some(&separator) {
                return 0;
            }
            end += 1;
        }
        let run = hex_run(&bytes[end..]);
        let taken = if group + 1 == count { run.min(digits_max) } else { run };
        if !(digits_min..=digits_max).contains(&taken) {
            return 0;
        }
        end += taken;
    }
    end
}

/// The length of one or two digits and colons, at least twice: neither a MAC nor an IPv6 address.
fn bad_mac_len(bytes: &[u8]) -> usize {
    let (mut end, mut groups) = (0, 0);
    loop {
        let digits = hex_run(&bytes[end..]);
        let colons = bytes[end..].iter().skip(digits).take_while(|&&b| b == b':').count();
        if !(1..=2).contains(&digits) || colons == 0 {
            break;
        }
        end += digits + colons;
        groups += 1;
    }
    if groups > 1 { end } else { 0 }
}

/// No IPv6 address is longer as text; longer text is not examined, to keep the time linear.
const IPV6_TEXT_MAX: usize = 80;

fn ipv6_len(rest: &str) -> usize {
    let run = rest.bytes().take(IPV6_TEXT_MAX).take_while(|b| is_ipv6_byte(*b)).count();
    let text = &rest[..run];
    let first_colon = text.find(':').unwrap_or(run);
    (first_colon + 2..=run).rev().find(|&end| is_ipv6_form(&text[..end])).unwrap_or(0)
}

fn is_ipv6_byte(b: u8) -> bool {
    b.is_ascii_hexdigit() || matches!(b, b':' | b'.' | b'x' | b'X')
}

/// Whether the groups are right in number and size. Whether they are an address is for the parser of addresses.
fn is_ipv6_form(text: &str) -> bool {
    match text.find("::") {
        None => groups_in(text) == Some(8),
        Some(gap) => match (groups_in(&text[..gap]), groups_in(&text[gap + 2..])) {
            (Some(before), Some(after)) => before + after <= 7 && !text[..gap].contains('.'),
            _ => false,
        },
    }
}

/// Number of 16-bit groups; a dotted quad at the end counts as two.
fn groups_in(text: &str) -> Option<usize> {
    if text.is_empty() {
        return Some(0);
    }
    let mut groups = 0;
    let mut parts = text.split(':').peekable();
    while let Some(part) = parts.next() {
        let dotted = parts.peek().is_none() && part.contains('.');
        groups += match dotted {
            true if part.split('.').count() == 4 && ipv4_len(part.as_bytes()) == part.len() => 2,
            false if (1..=4).contains(&part.len()) && hex_run(part.as_bytes()) == part.len() => 1,
            _ => return None,
        };
    }
    Some(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lex(text: &str) -> Vec<Token<'_>> {
        let mut lexer = Lexer::new(text);
        let mut tokens = Vec::new();
        loop {
            match lexer.next_token().expect("tokens") {
                (Token::End, _) => return tokens,
                (token, _) => tokens.push(token),
            }
        }
    }

    fn error(text: &str) -> String {
        let mut lexer = Lexer::new(text);
        loop {
            match lexer.next_token() {
                Ok((Token::End, _)) => panic!("{text:?} has no error"),
                Ok(_) => {}
                Err(error) => return error.message,
            }
        }
    }

    #[test]
    fn numbers_have_three_radixes() {
        let numbers =
            [Token::Number(10), Token::Number(8), Token::Number(16), Token::Number(0), Token::Number(13)];
        assert_eq!(lex("10 010 0X10 0 tcpflags"), numbers);
        assert_eq!(error("08"), "number 08 contains non-octal digit");
        assert_eq!(error("4294967296"), "number 4294967296 overflows 32 bits");
    }

    #[test]
    fn the_longest_match_wins() {
        assert_eq!(lex("1a"), [Token::Name("1a")]);
        assert_eq!(lex("1-1"), [Token::Name("1-1")]);
        assert_eq!(lex("10.1"), [Token::Ipv4("10.1")]);
        assert_eq!(lex("10.1."), [Token::Name("10.1.")]);
        assert_eq!(lex("1.2.3.4.5"), [Token::Name("1.2.3.4.5")]);
        assert_eq!(lex("tcpdump"), [Token::Name("tcpdump")]);
        assert_eq!(lex("\\tcp)"), [Token::Name("tcp"), Token::Symbol(Symbol::RightParen)]);
    }

    #[test]
    fn twelve_hexadecimal_digits_are_a_mac_address() {
        let mac = Token::Mac([1, 0, 0, 0, 0, 0]);
        assert_eq!(lex("010000000000 1:0:0:0:0:0 1-0-0-0-0-0 1.0.0.0.0.0 0100.0000.0000"), [mac; 5]);
        assert_eq!(lex("0010000000000"), [Token::Number(0o10000000000)]);
    }

    #[test]
    fn ipv6_takes_all_text_forms() {
        for text in
            ["::", "::1", "1::", "fe80::1", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4", "1:2:3:4:5:6:1.2.3.4"]
        {
            assert_eq!(lex(text), [Token::Ipv6(text.parse().expect("an address"))], "{text}");
        }
        assert_eq!(error("1:2:3:4:5:6:7:8:9"), "invalid Ethernet address '1:2:3:4:5:6:7:8:'");
        assert_eq!(error("aa:bb:cc:dd:ee"), "invalid Ethernet address 'aa:bb:cc:dd:'");
        assert_eq!(error("::1.2.3.400"), "invalid IPv6 address '::1.2.3.400'");
    }

    #[test]
    fn unknown_tokens_are_syntax_errors() {
        for text in ["#", "foo_ ", "é", "\\", "$", "~", ";", "$g"] {
            assert_eq!(error(text), SYNTAX, "{text:?}");
        }
    }
}
