//! What Tapline's small languages share: filters, FPL, graphs, recipes.
//!
//! ```text
//! text --parser of the language--> tree with a Span at each node
//!                             \--> Error at a Span --render(text)--> message, line, caret, hint
//! ```
#![forbid(unsafe_code)]

mod error;

pub use error::{Error, Span, line_and_column};
