//! Errors in recipes.

use tapline_syntax::Span;

use crate::recipe::{span_of, span_of_value};

/// The reason that a recipe's text is refused: what, where, and what to write instead. It is shown with the line and
/// a caret, as for filters.
pub type SyntaxError = tapline_syntax::Error;

/// The reason that a recipe cannot be made, or cannot continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two wishes contradict each other, or one cannot be met.
    #[error("{key}: {what}; {mend}")]
    Unmet {
        /// The key of the wish, such as `size`.
        key: &'static str,
        /// The reason.
        what: String,
        /// Text that mends it.
        mend: String,
    },
    /// The filter cannot be compiled, or accepts no packet at all.
    #[error("match: {0}")]
    Filter(tapline_syntax::Error),
    /// The filter says something else of a packet than of others of its flow.
    #[error(
        "match: packet {number}, of {len} bytes, {verdict} the filter `{filter}`, and was made to do the contrary; ask for something \
         that is the same in all packets of a flow (addresses, ports, protocols)"
    )]
    Unsteady {
        /// The packet, counted from 1.
        number: u64,
        /// Length of the frame.
        len: usize,
        /// `matches` or `does not match`.
        verdict: &'static str,
        /// The filter.
        filter: String,
    },
    /// The caller's buffer is shorter than a frame.
    #[error(
        "a buffer of {given} bytes cannot hold a frame of {needed}; give at least Generator::frame_max()"
    )]
    Buffer {
        /// Bytes of the buffer.
        given: usize,
        /// Bytes that are needed.
        needed: usize,
    },
}

impl Error {
    pub(crate) fn unmet(key: &'static str, what: impl Into<String>, mend: impl Into<String>) -> Error {
        Error::Unmet { key, what: what.into(), mend: mend.into() }
    }

    /// Turns the error into one of the recipe's text, at the place of the wish.
    pub fn in_text(&self, text: &str) -> SyntaxError {
        match self {
            Error::Unmet { key, what, mend } => {
                let error = match span_of(text, key) {
                    Some(span) => SyntaxError::at(span, what.clone()),
                    None => SyntaxError::whole(format!("{key}: {what}")),
                };
                error.hint(mend.clone())
            }
            Error::Filter(error) => match span_of_value(text, "match") {
                Some(span) => moved(error, span),
                None => error.clone(),
            },
            other => SyntaxError::whole(other.to_string()),
        }
    }
}

/// A filter's error, moved to the filter's position `at` in another text.
pub(crate) fn moved(error: &tapline_syntax::Error, at: Span) -> SyntaxError {
    let place = |place: usize| (at.start + place).min(at.end);
    let span = error.span.map_or(at, |span| Span { start: place(span.start), end: place(span.end) });
    let whole = SyntaxError::at(span, error.message.clone()).hint(error.hint.clone());
    match error.also {
        Some(also) => whole.with_earlier_place(Span { start: place(also.start), end: place(also.end) }),
        None => whole,
    }
}
