//! Text to tokens.

use super::{Span, SyntaxError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A name, a class, a word, a number.
    Word(String),
    /// A quoted text, without its quotes.
    Text(String),
    Arrow,
    Colons,
    Semicolon,
    Comma,
    Equals,
    Open,
    Close,
    OpenSquare,
    CloseSquare,
    Bar,
}

impl Token {
    /// The token as people write it.
    pub(super) fn shown(&self) -> String {
        match self {
            Token::Word(word) => word.clone(),
            Token::Text(text) => format!("\"{text}\""),
            Token::Arrow => "->".to_owned(),
            Token::Colons => "::".to_owned(),
            Token::Semicolon => ";".to_owned(),
            Token::Comma => ",".to_owned(),
            Token::Equals => "=".to_owned(),
            Token::Open => "(".to_owned(),
            Token::Close => ")".to_owned(),
            Token::OpenSquare => "[".to_owned(),
            Token::CloseSquare => "]".to_owned(),
            Token::Bar => "|".to_owned(),
        }
    }
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
    /// The parentheses that are open, each with whether it holds arguments: words there may hold more characters. The
    /// others are groups of ways.
    open: Vec<bool>,
    tokens: Vec<(Token, Span)>,
}

/// The tokens of a text, each with its place.
pub(super) fn lex(text: &str) -> Result<Vec<(Token, Span)>, SyntaxError> {
    let mut lexer = Lexer { text, at: 0, open: Vec::new(), tokens: Vec::new() };
    while lexer.skip()? {
        lexer.token()?;
    }
    Ok(lexer.tokens)
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// Goes over space and comments. Whether anything is left.
    fn skip(&mut self) -> Result<bool, SyntaxError> {
        loop {
            let rest = self.rest();
            let space = rest.len() - rest.trim_start().len();
            let rest = &rest[space..];
            let start = self.at + space;
            self.at = if rest.starts_with("//") || rest.starts_with('#') {
                start + rest.find('\n').unwrap_or(rest.len())
            } else if rest.starts_with("/*") {
                let Some(end) = rest.find("*/") else {
                    let span = Span { start, end: start + 2 };
                    return Err(SyntaxError::at(span, "a comment that never ends").hint("close it with */"));
                };
                start + end + 2
            } else {
                let is_more = !rest.is_empty();
                self.at = start;
                return Ok(is_more);
            };
        }
    }

    fn token(&mut self) -> Result<(), SyntaxError> {
        let rest = self.rest();
        let fixed = [
            ("->", Token::Arrow),
            ("::", Token::Colons),
            (";", Token::Semicolon),
            (",", Token::Comma),
            ("=", Token::Equals),
            ("(", Token::Open),
            (")", Token::Close),
            ("[", Token::OpenSquare),
            ("]", Token::CloseSquare),
            ("|", Token::Bar),
        ];
        let is_argument = self.open.last() == Some(&true);
        let mut fixed = fixed.into_iter().filter(|(_, token)| !(is_argument && *token == Token::Bar));
        if let Some((shown, token)) = fixed.find(|(shown, _)| rest.starts_with(shown)) {
            match token {
                // Arguments stand behind a class.
                Token::Open => self.open.push(matches!(self.tokens.last(), Some((Token::Word(_), _)))),
                Token::Close => drop(self.open.pop()),
                _ => {}
            }
            self.push(token, shown.len());
            return Ok(());
        }
        if rest.starts_with('"') {
            return self.string();
        }
        let len = word_len(rest, is_argument);
        let word = rest[..len].to_owned();
        self.push(Token::Word(word), len);
        Ok(())
    }

    fn push(&mut self, token: Token, len: usize) {
        self.tokens.push((token, Span { start: self.at, end: self.at + len }));
        self.at += len;
    }

    fn string(&mut self) -> Result<(), SyntaxError> {
        let mut value = String::new();
        let mut characters = self.rest().char_indices().skip(1);
        while let Some((at, character)) = characters.next() {
            match character {
                '"' => {
                    self.push(Token::Text(value), at + 1);
                    return Ok(());
                }
                '\\' => match characters.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, 't')) => value.push('\t'),
                    Some((_, other)) => value.push(other),
                    None => break,
                },
                other => value.push(other),
            }
        }
        let span = Span { start: self.at, end: self.at + 1 };
        Err(SyntaxError::at(span, "a text that never ends").hint("close it with \""))
    }
}

/// Length of the word. Within an argument list it may hold colons and slashes (an address, a URL, a ratio) and
/// balanced parentheses.
fn word_len(text: &str, is_argument: bool) -> usize {
    let mut open = 0_usize;
    for (at, character) in text.char_indices() {
        let is_end = match character {
            '(' if is_argument && at > 0 => {
                open += 1;
                false
            }
            ')' if open > 0 => {
                open -= 1;
                false
            }
            _ if open > 0 => false,
            ';' | ',' | '(' | ')' | '=' | '"' | '[' | ']' => true,
            ':' => !is_argument && text[at..].starts_with("::"),
            '|' => !is_argument,
            '-' => text[at..].starts_with("->"),
            '#' => false,
            character => character.is_whitespace(),
        };
        if is_end {
            return at.max(1);
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        lex(text).expect("tokens").iter().map(|(token, _)| token.shown()).collect()
    }

    #[test]
    fn tokens_of_a_graph() {
        assert_eq!(
            words("a::b(x=1/100,c d)->e;"),
            ["a", "::", "b", "(", "x", "=", "1/100", ",", "c", "d", ")", "->", "e", ";"]
        );
        assert_eq!(words("f(\"tcp port 80\") // all\n-> g"), ["f", "(", "\"tcp port 80\"", ")", "->", "g"]);
        assert_eq!(words("x(2001:db8::1)#y\n/* -> */z"), ["x", "(", "2001:db8::1", ")", "z"]);
    }

    #[test]
    fn unterminated_strings_and_comments_are_errors() {
        assert_eq!(lex("a -> f(\"tcp").expect_err("open").span, Some(Span { start: 7, end: 8 }));
        assert!(lex("/* a").is_err());
    }
}
