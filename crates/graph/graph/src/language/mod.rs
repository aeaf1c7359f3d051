//! The graph language: text to a [`PlanBuilder`](crate::plan::PlanBuilder).
//!
//! ```text
//! graph       := [ statement ] { ";" [ statement ] }
//! statement   := names "::" stage                      declares stages
//!              | way                                   connects; a hop alone declares
//! names       := name { "," name }
//! hop         := [ "[" number "]" ] end [ "[" number "]" ]    input and output; 0 unless given
//!              | "(" way { "|" way } ")"               a group: packets go each way, and come together behind it
//! way         := hop { "->" hop }
//! end         := name                                  declared before or after
//!              | [ name "::" ] stage                   declared here
//! stage       := class [ "(" [ argument { "," argument } ] ")" ]
//! argument    := [ name "=" ] value
//! value       := string | word
//! string      := '"' { character | '\' character } '"'         \" \\ \n \t
//! word        := characters without space, comma, parentheses, quotes, semicolon, bar, "->"; in arguments bars and balanced parentheses belong to it
//! name, class := letter { letter | digit | "_" | "-" | "." }
//! ```
//!
//! Comments go from `//` or `#` to the end of the line, and from `/*` to `*/`. A name that was declared nowhere and has
//! no parentheses is a stage without arguments: `-> drop`.
//!
//! One file a step: [`lex`] tokens, [`parse`] the graph. The catalogue (`crate::catalog`) defines names and
//! arguments.

mod lex;
mod parse;

pub use parse::parse;
pub use tapline_syntax::Span;

/// The reason that a graph's text is refused: what, where, and what to write instead. It is shown with the line and a
/// caret, as for filters.
pub type SyntaxError = tapline_syntax::Error;
