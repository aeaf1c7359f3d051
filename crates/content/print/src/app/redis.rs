//! The Redis serialization protocol (RESP).
//!
//! ```text
//! '+' text CR LF    '-' error CR LF    ':' number CR LF
//! '$' length CR LF bytes CR LF         length -1 is null
//! '*' count CR LF value*               count -1 is null
//! anything else: an inline command up to CR or LF
//! ```
//!
//! Text: `: RESP "SET" "key" "value"`.

use crate::bytes::Span;
use crate::context::Context;
use crate::text::Text;

/// Maximum nesting depth of arrays before a packet counts as cut.
const DEPTH_MAX: u32 = 32;

/// The packet does not contain the bytes that it announces.
struct Broken;

/// The value of a length line.
enum Length {
    Of(usize),
    Null,
    TooLarge,
    Negative,
    Invalid,
}

/// All values of a segment.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>) {
    if span.length == 0 {
        return;
    }
    cx.protocol = "resp";
    cx.text(": RESP");
    let mut reader = Reader { span, at: 0 };
    while reader.at < span.length {
        if reader.value(cx, 0).is_err() {
            return cx.cut();
        }
    }
}

struct Reader<'p> {
    span: Span<'p>,
    at: usize,
}

impl<'p> Reader<'p> {
    fn byte(&self, at: usize) -> Result<u8, Broken> {
        if at < self.span.length { self.span.u8(at).map_err(|_| Broken) } else { Err(Broken) }
    }

    fn value(&mut self, cx: &mut Context<'_>, depth: u32) -> Result<(), Broken> {
        match self.byte(self.at)? {
            b'+' | b'-' | b':' => self.line(cx),
            b'$' => self.bulk(cx),
            b'*' if depth < DEPTH_MAX => self.array(cx, depth),
            b'*' => Err(Broken),
            _ => self.inline(cx),
        }
    }

    fn line(&mut self, cx: &mut Context<'_>) -> Result<(), Broken> {
        let start = self.at + 1;
        self.at = self.line_end(start)?;
        self.quoted(cx, start, self.at)?;
        self.at += 2;
        Ok(())
    }

    fn bulk(&mut self, cx: &mut Context<'_>) -> Result<(), Broken> {
        let length = match self.length()? {
            Length::Of(length) => length,
            fault => {
                print_fault(cx, &fault);
                return Ok(());
            }
        };
        if length == 0 {
            cx.text(" empty");
        } else {
            let end = self.at.checked_add(length).filter(|&end| end <= self.span.length).ok_or(Broken)?;
            self.quoted(cx, self.at, end)?;
            self.at = end;
        }
        self.at = self.line_end(self.at)? + 2;
        Ok(())
    }

    fn array(&mut self, cx: &mut Context<'_>, depth: u32) -> Result<(), Broken> {
        match self.length()? {
            Length::Of(0) => cx.text(" empty"),
            // Each value takes bytes or breaks off, so the count is not a bound that matters.
            Length::Of(count) => {
                for _ in 0..count {
                    self.value(cx, depth + 1)?;
                }
            }
            fault => print_fault(cx, &fault),
        }
        Ok(())
    }

    /// An inline command, with the line ends before and behind it.
    fn inline(&mut self, cx: &mut Context<'_>) -> Result<(), Broken> {
        self.skip_line_ends();
        let start = self.at;
        while !is_line_end(self.byte(self.at)?) {
            self.at += 1;
        }
        self.quoted(cx, start, self.at)?;
        self.skip_line_ends();
        Ok(())
    }

    fn skip_line_ends(&mut self) {
        while self.byte(self.at).is_ok_and(is_line_end) {
            self.at += 1;
        }
    }

    fn quoted(&self, cx: &mut Context<'_>, start: usize, end: usize) -> Result<(), Broken> {
        let bytes = self.span.bytes(start, end - start).map_err(|_| Broken)?;
        cx.text(" \"");
        cx.visible_all(bytes);
        cx.text("\"");
        Ok(())
    }

    /// The offset of the next CR LF from `at` on.
    fn line_end(&self, mut at: usize) -> Result<usize, Broken> {
        while (self.byte(at)?, self.byte(at + 1)?) != (b'\r', b'\n') {
            at += 1;
        }
        Ok(at)
    }

    /// The number after the type, with its line end.
    fn length(&mut self) -> Result<Length, Broken> {
        self.at += 1;
        let negative = self.byte(self.at)? == b'-';
        self.at += usize::from(negative);
        let start = self.at;
        let mut value = Some(0_u32);
        loop {
            let byte = self.byte(self.at)?;
            self.at += 1;
            match byte {
                b'0'..=b'9' => {
                    value = value.and_then(|v| v.checked_mul(10)?.checked_add(u32::from(byte - b'0')))
                }
                b'\r' if self.at > start + 1 => break,
                _ => return Ok(Length::Invalid),
            }
        }
        let byte = self.byte(self.at)?;
        self.at += 1;
        let value = value.filter(|&v| v <= i32::MAX as u32);
        Ok(match (byte, negative, value) {
            (b'\n', true, Some(1)) => Length::Null,
            (b'\n', true, _) => Length::Negative,
            (b'\n', false, Some(value)) => Length::Of(value as usize),
            (b'\n', false, None) => Length::TooLarge,
            _ => Length::Invalid,
        })
    }
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

fn print_fault(cx: &mut Context<'_>, fault: &Length) {
    cx.text(match fault {
        Length::Null => " null",
        Length::TooLarge => " length too large",
        Length::Negative => " length negative and not -1",
        Length::Of(_) | Length::Invalid => " invalid",
    });
}
