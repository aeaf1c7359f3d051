//! Tokens to a tree. [`super::ast`] has the grammar.

mod expression;
#[cfg(test)]
mod tests;

use super::ast::{Expr, ExprKind, For, Item, Macro, Name, Operator, Program, Statement, StatementKind};
use super::lex::{Lexer, Token};
use tapline_syntax::{Error, Span};

/// The deepest nesting of blocks, parentheses and operators. Keeps the stack small.
pub const DEPTH_MAX: u32 = 250;

/// The longest text in bytes.
pub const TEXT_MAX: usize = 1 << 16;

/// The tree of a text.
///
/// # Errors
/// The first place where the text does not follow the grammar.
pub fn parse(text: &str) -> Result<Program, Error> {
    if text.len() > TEXT_MAX {
        return Err(Error::whole(format!("the program has {} bytes", text.len()))
            .hint(format!("programs have at most {TEXT_MAX} bytes")));
    }
    let mut parser = Parser::new(text)?;
    let mut items = Vec::new();
    while parser.token != Token::End {
        items.push(parser.item()?);
    }
    Ok(Program { items })
}

/// Words with a meaning of their own.
const KEYWORDS: &[&str] = &[
    "IF", "THEN", "ELSE", "FI", "FOR", "ROF", "BREAK", "RETURN", "HASH", "EXTERN", "CONST", "MACRO", "PKT",
    "R", "M", "MEM",
];

/// Whether a word cannot name a constant, a macro, or a parameter.
fn is_reserved(word: &str) -> bool {
    KEYWORDS.contains(&word) || super::ast::Piece::from_name(word).is_some()
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    token: Token<'a>,
    span: Span,
    /// The end of the token before.
    last_end: usize,
    depth: u32,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Parser<'a>, Error> {
        let mut lexer = Lexer::new(text);
        let (token, span) = lexer.next_token()?;
        Ok(Parser { lexer, token, span, last_end: 0, depth: 0 })
    }

    fn advance(&mut self) -> Result<Token<'a>, Error> {
        let token = self.token;
        self.last_end = self.span.end;
        (self.token, self.span) = self.lexer.next_token()?;
        Ok(token)
    }

    fn is_symbol(&self, symbol: &str) -> bool {
        matches!(self.token, Token::Symbol(found) if found == symbol)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.token, Token::Name(found) if found == word)
    }

    fn take_symbol(&mut self, symbol: &str) -> Result<bool, Error> {
        let found = self.is_symbol(symbol);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn take_word(&mut self, word: &str) -> Result<bool, Error> {
        let found = self.is_word(word);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn expect_symbol(&mut self, symbol: &str) -> Result<(), Error> {
        if self.take_symbol(symbol)? { Ok(()) } else { Err(self.unexpected(&format!("'{symbol}'"))) }
    }

    fn expect_word(&mut self, word: &str) -> Result<(), Error> {
        if self.take_word(word)? { Ok(()) } else { Err(self.unexpected(word)) }
    }

    fn unexpected(&self, expected: &str) -> Error {
        let found = match self.token {
            Token::End => "the text ends too early".to_owned(),
            Token::Number(_) => "a number is not expected here".to_owned(),
            Token::Name(name) => format!("'{name}' is not expected here"),
            Token::Symbol(symbol) => format!("'{symbol}' is not expected here"),
        };
        let case = match self.token {
            Token::Name(name) if expected == name.to_ascii_uppercase() => {
                "; words of the language are in upper case"
            }
            _ => "",
        };
        Error::at(self.span, found).hint(format!("{expected} was expected here{case}"))
    }

    fn since(&self, start: Span) -> Span {
        Span { start: start.start, end: self.last_end.max(start.start) }
    }

    /// Runs `inner` one level deeper.
    fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        if self.depth >= DEPTH_MAX {
            return Err(Error::at(self.span, format!("more than {DEPTH_MAX} levels are nested here"))
                .hint("put a part into a register first"));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    fn item(&mut self) -> Result<Item, Error> {
        if self.take_word("CONST")? {
            let name = self.new_name()?;
            self.expect_symbol("=")?;
            let value = self.expression()?;
            self.expect_symbol(";")?;
            return Ok(Item::Constant(name, value));
        }
        if self.take_word("MACRO")? {
            return self.definition().map(Item::Macro);
        }
        self.statement().map(Item::Statement)
    }

    fn definition(&mut self) -> Result<Macro, Error> {
        let name = self.new_name()?;
        let mut parameters: Vec<Name> = Vec::new();
        if self.take_symbol("(")? && !self.take_symbol(")")? {
            loop {
                let parameter = self.new_name()?;
                if parameters.iter().any(|known| known.text == parameter.text) {
                    let message = format!("there are two parameters '{}'", parameter.text);
                    return Err(Error::at(parameter.span, message).hint("give each its own name"));
                }
                parameters.push(parameter);
                if !self.take_symbol(",")? {
                    break;
                }
            }
            self.expect_symbol(")")?;
        }
        self.expect_symbol("=")?;
        let body = self.expression()?;
        self.expect_symbol(";")?;
        Ok(Macro { name, parameters, body })
    }

    /// A word that is free to be given a meaning.
    fn new_name(&mut self) -> Result<Name, Error> {
        match self.token {
            Token::Name(name) if is_reserved(name) => {
                Err(Error::at(self.span, format!("'{name}' is a word of the language"))
                    .hint("choose another name"))
            }
            Token::Name(_) => self.name(),
            _ => Err(self.unexpected("a name")),
        }
    }

    fn name(&mut self) -> Result<Name, Error> {
        let span = self.span;
        match self.token {
            Token::Name(text) => {
                self.advance()?;
                Ok(Name { text: text.to_owned(), span })
            }
            _ => Err(self.unexpected("a name")),
        }
    }

    fn statement(&mut self) -> Result<Statement, Error> {
        let start = self.span;
        let kind = self.deeper(Self::statement_kind)?;
        Ok(Statement { kind, span: self.since(start) })
    }

    fn statement_kind(&mut self) -> Result<StatementKind, Error> {
        match self.token {
            Token::Name("IF") => self.condition(),
            Token::Name("FOR") => self.repetition(),
            Token::Name("BREAK") => {
                self.advance()?;
                self.expect_symbol(";")?;
                Ok(StatementKind::Break)
            }
            Token::Name("RETURN") => {
                self.advance()?;
                let value = self.expression()?;
                self.expect_symbol(";")?;
                Ok(StatementKind::Return(value))
            }
            Token::Name("EXTERN") => {
                let call = self.primary()?;
                self.expect_symbol(";")?;
                Ok(StatementKind::Call(call))
            }
            Token::Name(word @ ("CONST" | "MACRO")) => {
                Err(Error::at(self.span, format!("{word} stands inside of a block"))
                    .hint("definitions stand at the top of the text, outside of IF and FOR"))
            }
            Token::Name(word) if word == "PKT" || (KEYWORDS.contains(&word) && !is_place(word)) => {
                Err(self.unexpected("a statement"))
            }
            Token::Name(_) | Token::Symbol("++" | "--") => self.assignment(),
            _ => Err(self.unexpected("a statement")),
        }
    }

    fn condition(&mut self) -> Result<StatementKind, Error> {
        self.expect_word("IF")?;
        self.expect_symbol("(")?;
        let test = self.expression()?;
        self.expect_symbol(")")?;
        self.expect_word("THEN")?;
        let then = self.block(&["ELSE", "FI"])?;
        let otherwise = if self.take_word("ELSE")? { self.block(&["FI"])? } else { Vec::new() };
        self.expect_word("FI")?;
        self.take_symbol(";")?;
        Ok(StatementKind::If(test, then, otherwise))
    }

    /// Statements up to one of the words.
    fn block(&mut self, ends: &[&str]) -> Result<Vec<Statement>, Error> {
        let mut statements = Vec::new();
        while !ends.iter().any(|end| self.is_word(end)) {
            if self.token == Token::End {
                return Err(self.unexpected(&format!("a statement or {}", ends.join(" or "))));
            }
            statements.push(self.statement()?);
        }
        Ok(statements)
    }

    fn repetition(&mut self) -> Result<StatementKind, Error> {
        let start_of_head = self.span;
        self.expect_word("FOR")?;
        self.expect_symbol("(")?;
        let register = self.place()?;
        self.expect_symbol("=")?;
        let start = self.expression()?;
        self.expect_symbol(";")?;
        let (tested, relation, end) = self.loop_test()?;
        self.expect_symbol(";")?;
        let (stepped, upward, step) = self.loop_step()?;
        self.expect_symbol(")")?;
        let head = self.since(start_of_head);
        let body = self.block(&["ROF"])?;
        self.expect_word("ROF")?;
        self.take_symbol(";")?;
        let parts = For { register, start, tested, relation, end, stepped, upward, step, body, head };
        Ok(StatementKind::For(Box::new(parts)))
    }

    fn loop_test(&mut self) -> Result<(Expr, Operator, Expr), Error> {
        let test = self.expression()?;
        match test.kind {
            ExprKind::Binary(relation, tested, end) if relation.is_relation() => {
                Ok((*tested, relation, *end))
            }
            _ => Err(Error::at(test.span, "this is not a comparison of the loop's register")
                .hint("a loop's test compares its register with its end: R[0] < 10")),
        }
    }

    fn loop_step(&mut self) -> Result<(Expr, bool, Expr), Error> {
        let start = self.span;
        let StatementKind::Assign(stepped, operator, step) = self.change()? else {
            return Err(self.unexpected("a step"));
        };
        match operator {
            Some(Operator::Add) => Ok((stepped, true, step)),
            Some(Operator::Subtract) => Ok((stepped, false, step)),
            _ => Err(Error::at(self.since(start), "this is not a step of a loop")
                .hint("a step is R[n] += step, R[n] -= step, R[n]++ or R[n]--")),
        }
    }

    fn assignment(&mut self) -> Result<StatementKind, Error> {
        let change = self.change()?;
        self.expect_symbol(";")?;
        Ok(change)
    }

    /// An assignment without its semicolon.
    fn change(&mut self) -> Result<StatementKind, Error> {
        if let Some((operator, span)) = self.take_increment()? {
            let place = self.place()?;
            return Ok(increment(place, operator, span));
        }
        let place = self.place()?;
        if let Some((operator, span)) = self.take_increment()? {
            return Ok(increment(place, operator, span));
        }
        let Some(operator) = self.assign_operator() else {
            return Err(self.unexpected("'=', an operator with '=', '++' or '--'"));
        };
        self.advance()?;
        let value = self.expression()?;
        Ok(StatementKind::Assign(place, operator, value))
    }

    fn take_increment(&mut self) -> Result<Option<(Operator, Span)>, Error> {
        let span = self.span;
        let operator = match self.token {
            Token::Symbol("++") => Operator::Add,
            Token::Symbol("--") => Operator::Subtract,
            _ => return Ok(None),
        };
        self.advance()?;
        Ok(Some((operator, span)))
    }

    /// `None` for `=`, or the operator before it; nothing if this is not an assignment.
    fn assign_operator(&self) -> Option<Option<Operator>> {
        let Token::Symbol(symbol) = self.token else { return None };
        if symbol == "=" {
            return Some(None);
        }
        let operator = Operator::of_name(symbol.strip_suffix('=')?)?;
        (operator.precedence() > 3).then_some(Some(operator))
    }

    /// Something that can be written to, as far as the grammar knows.
    fn place(&mut self) -> Result<Expr, Error> {
        match self.token {
            Token::Name(word) if is_place(word) || !is_reserved(word) => self.primary(),
            _ => Err(self.unexpected("R[n] or M[n]")),
        }
    }
}

fn is_place(word: &str) -> bool {
    matches!(word, "R" | "M" | "MEM")
}

fn increment(place: Expr, operator: Operator, span: Span) -> StatementKind {
    let one = Expr { kind: ExprKind::Number(1), span };
    StatementKind::Assign(place, Some(operator), one)
}
