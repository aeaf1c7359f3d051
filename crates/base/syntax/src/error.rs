//! Errors in a text: the message, the place, the mend.
//!
//! ```text
//! illegal port number 99999 > 65535      -- message: begins as libpcap's, for programs that search it
//!   tcp port 99999 or udp                -- the line of the text
//!   ~~~      ^^^^^                       -- also, span
//!   a port is 0 to 65535                 -- hint
//! ```

use std::fmt;

/// A range of bytes in a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// One past the last byte; equal to `start` at the end of the text.
    pub end: usize,
}

impl Span {
    /// From the start of this one to the end of `other`.
    pub fn to(self, other: Span) -> Span {
        Span { start: self.start, end: self.end.max(other.end) }
    }
}

/// The reason that a text is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Error {
    /// The fault; for filters in libpcap's words, where libpcap has any.
    pub message: String,
    /// The place in the text; `None` where the text as a whole is at fault.
    pub span: Option<Span>,
    /// An earlier place that contradicts this one, or belongs to it.
    pub also: Option<Span>,
    /// The remedy: what is valid there, or what to write instead. May be empty.
    pub hint: String,
}

impl Error {
    /// An error at `span` without a hint.
    pub fn at(span: Span, message: impl Into<String>) -> Error {
        Error { message: message.into(), span: Some(span), also: None, hint: String::new() }
    }

    /// An error of the text as a whole.
    pub fn whole(message: impl Into<String>) -> Error {
        Error { message: message.into(), span: None, also: None, hint: String::new() }
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = hint.into();
        self
    }

    /// Adds an earlier place that is related to the error.
    #[must_use]
    pub fn with_earlier_place(mut self, span: Span) -> Error {
        self.also = Some(span);
        self
    }

    /// Sets the place to `span`, unless the error already has one.
    #[must_use]
    pub fn with_place_if_none(mut self, span: Span) -> Error {
        self.span = self.span.or(Some(span));
        self
    }

    /// The message, the line of `text` with the place marked, and the hint; for people. Lines end in newlines except
    /// the last.
    ///
    /// ```
    /// use tapline_syntax::{Error, Span};
    /// let text = "tcp port 99999";
    /// let error = Error::at(Span { start: 9, end: 14 }, "illegal port number 99999 > 65535").hint("a port is 0 to 65535");
    /// assert_eq!(
    ///     error.render(text),
    ///     "illegal port number 99999 > 65535\n  tcp port 99999\n           ^^^^^\n  a port is 0 to 65535"
    /// );
    /// ```
    pub fn render(&self, text: &str) -> String {
        let mut out = self.message.clone();
        if let Some(span) = self.span {
            // A text of one line shows the place by the caret alone.
            if text.contains('\n') {
                out = format!("{}: {out}", line_and_column(text, span));
            }
            out.push_str(&marked_line(text, span, self.also));
        }
        if !self.hint.is_empty() {
            out.push_str("\n  ");
            out.push_str(&self.hint);
        }
        out
    }
}

/// Line and column where a span starts, both counted from 1, as words.
pub fn line_and_column(text: &str, span: Span) -> String {
    let before = &text[..floor_char(text, span.start)];
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    format!("line {}, column {column}", before.matches('\n').count() + 1)
}

/// The most characters of a line that are shown on each side of the fault, so that long filters stay readable.
const CONTEXT_MAX: usize = 60;

fn marked_line(text: &str, span: Span, also: Option<Span>) -> String {
    let start = floor_char(text, span.start);
    let end = floor_char(text, span.end.max(start));
    let line_start = text[..start].rfind('\n').map_or(0, |i| i + 1);
    let line_end = text[start..].find('\n').map_or(text.len(), |i| start + i);
    let before: String = tail(&text[line_start..start]);
    let fault = &text[start..end.min(line_end).max(start)];
    let after: String = text[end.min(line_end).max(start)..line_end].chars().take(CONTEXT_MAX).collect();
    let fault_shown: String = fault.chars().take(CONTEXT_MAX).collect();
    let carets = "^".repeat(fault_shown.chars().count().max(1));
    let shown_from = start - before.len();
    let is_also = |at: usize| also.is_some_and(|also| (also.start..also.end).contains(&at));
    let mark = |(at, c): (usize, char)| match c {
        '\t' => '\t',
        _ if is_also(shown_from + at) => '~',
        _ => ' ',
    };
    let blank: String = before.char_indices().map(mark).collect();
    let shown = format!("{before}{fault_shown}{after}");
    format!("\n  {}\n  {blank}{carets}", shown.trim_end().replace(|c: char| c.is_control() && c != '\t', " "))
}

fn tail(text: &str) -> String {
    let skip = text.chars().count().saturating_sub(CONTEXT_MAX);
    text.chars().skip(skip).map(|c| if c.is_control() && c != '\t' { ' ' } else { c }).collect()
}

fn floor_char(text: &str, index: usize) -> usize {
    let mut index = index.min(text.len());
    while !text.is_char_boundary(index) {
        index -= 1;
    }
    index
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_stands_below_the_fault_at_any_place() {
        for text in ["", "a", "é fault", "one\ntwo fault\nthree", "\t\tfault"] {
            for start in 0..=text.len() + 1 {
                for end in start..=text.len() + 1 {
                    let error = Error::at(Span { start, end }, "m").hint("h");
                    let lines: Vec<String> = error.render(text).lines().map(str::to_owned).collect();
                    assert_eq!((lines.len(), lines[3].as_str()), (4, "  h"), "{text:?}");
                    assert_eq!(lines[0] == "m", !text.contains('\n'), "{lines:?}");
                }
            }
        }
    }

    #[test]
    fn an_earlier_place_is_marked_too() {
        let error = Error::at(Span { start: 8, end: 11 }, "m").with_earlier_place(Span { start: 0, end: 2 });
        assert_eq!(error.render("ip\tand  arp"), "m\n  ip\tand  arp\n  ~~\t     ^^^");
        let elsewhere =
            Error::at(Span { start: 3, end: 6 }, "m").with_earlier_place(Span { start: 0, end: 2 });
        assert_eq!(elsewhere.render("ip\narp"), "line 2, column 1: m\n  arp\n  ^^^");
    }

    #[test]
    fn a_long_line_is_cut_around_the_fault() {
        let text = format!("{}FAULT{}", "x".repeat(1000), "y".repeat(1000));
        let shown = Error::at(Span { start: 1000, end: 1005 }, "m").render(&text);
        assert!(shown.len() < 300 && shown.contains("FAULT"));
    }
}
