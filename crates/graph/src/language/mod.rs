//! The graph language: text to a syntax tree.
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
//! One file a step: [`lex`] tokens, [`parse`] the tree. What names and arguments mean is the catalogue's
//! (`crate::catalog`).

mod lex;
mod parse;

pub use parse::parse;
pub use tapline_syntax::Span;

/// Why a graph's text is refused: what, where, and what to write instead. Shown with the line and a caret, as filters
/// are.
pub type SyntaxError = tapline_syntax::Error;

/// A graph as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ast {
    /// Every stage, in the order of its declaration.
    pub stages: Vec<StageDeclaration>,
    /// The connections.
    pub links: Vec<Connection>,
}

/// A stage as declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageDeclaration {
    /// Its name; made from the class and a number if none was given: `filter@2`.
    pub name: String,
    /// Whether the name was given.
    pub is_named: bool,
    /// The class name.
    pub class: String,
    /// The place of the class name in the text.
    pub span: Span,
    /// Its arguments, in order.
    pub arguments: Vec<Argument>,
}

/// An argument as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// The name before `=`.
    pub key: Option<String>,
    /// The value, without quotes.
    pub value: String,
    /// The place in the text.
    pub span: Span,
}

/// A connection: indices into [`Ast::stages`], with the number of the output and of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The stage that packets come from.
    pub from: usize,
    /// The number of its output.
    pub output: usize,
    /// The stage that packets go to.
    pub to: usize,
    /// The number of its input.
    pub input: usize,
    /// The place of the arrow's right end in the text.
    pub span: Span,
}
