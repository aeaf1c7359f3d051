//! Common parts of Tapline's small languages and its options: places in a text, errors that show them, and units.
//!
//! ```text
//! text --parser of the language--> tree with a Span at each node
//!                             \--> Error at a Span --render(text)--> message, line, caret, hint
//! ```
#![forbid(unsafe_code)]

mod error;
pub mod units;

pub use error::{Error, Span, line_and_column};
