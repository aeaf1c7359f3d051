//! A program's statements as they were read, one a line, indented by their nesting.

use super::ast::{Expr, For, Item, Statement, StatementKind};
use super::parse;
use tapline_syntax::{Error, Span};

/// The outline of a text. Lines end in line feeds; macros and constants are left as they are written.
///
/// # Errors
/// If the text cannot be parsed.
///
/// ```
/// let text = "IF (PKT.LEN > 60 && R[0] == 0) THEN M[0]++; FI RETURN 1;";
/// let outline = tapline_fpl::outline(text)?;
/// assert_eq!(outline, "IF PKT.LEN > 60 && R[0] == 0\n  M[0]++\nRETURN 1\n");
/// # Ok::<(), tapline_syntax::Error>(())
/// ```
pub fn outline(text: &str) -> Result<String, Error> {
    let program = parse(text)?;
    let mut outline = Outline { text, lines: String::new() };
    for item in &program.items {
        match item {
            Item::Constant(name, value) => {
                outline.line(0, &format!("CONST {} = {}", name.text, outline.written(value.span)));
            }
            Item::Macro(one) => {
                let parameters: Vec<&str> = one.parameters.iter().map(|name| name.text.as_str()).collect();
                let head = match parameters.as_slice() {
                    [] => one.name.text.clone(),
                    names => format!("{}({})", one.name.text, names.join(", ")),
                };
                outline.line(0, &format!("MACRO {head} = {}", outline.written(one.body.span)));
            }
            Item::Statement(statement) => outline.statement(0, statement),
        }
    }
    Ok(outline.lines)
}

struct Outline<'a> {
    text: &'a str,
    lines: String,
}

impl Outline<'_> {
    fn statement(&mut self, depth: usize, statement: &Statement) {
        match &statement.kind {
            StatementKind::If(test, then, otherwise) => {
                self.line(depth, &self.choice(test));
                self.block(depth + 1, then);
                if !otherwise.is_empty() {
                    self.line(depth, "ELSE");
                    self.block(depth + 1, otherwise);
                }
            }
            StatementKind::For(parts) => self.repetition(depth, parts),
            _ => {
                let written = self.written(statement.span);
                self.line(depth, written.trim_end_matches(|end: char| end == ';' || end.is_whitespace()));
            }
        }
    }

    fn choice(&self, test: &Expr) -> String {
        format!("IF {}", self.written(test.span))
    }

    fn repetition(&mut self, depth: usize, parts: &For) {
        self.line(depth, &self.written(parts.head));
        self.block(depth + 1, &parts.body);
    }

    fn block(&mut self, depth: usize, statements: &[Statement]) {
        statements.iter().for_each(|statement| self.statement(depth, statement));
    }

    /// A part of the text in one line.
    fn written(&self, span: Span) -> String {
        let part = self.text.get(span.start..span.end).unwrap_or_default();
        part.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn line(&mut self, depth: usize, line: &str) {
        self.lines += &format!("{:indent$}{line}\n", "", indent = depth * 2);
    }
}
