//! Resolves names: from [`ast`](super::ast) to [`tree`](super::tree).
//!
//! Macros are replaced as trees, never as text: an argument keeps the meaning that it has where it is written. A
//! macro sees the definitions before it, so none can contain itself.

mod expression;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use super::ast::{self, ExprKind, Item, Name};
use super::field::{self, Link};
use super::tree::{Arithmetic, Code, Expr, For, Kind, REGISTERS, Sign, Statement, StatementKind};
use super::{FplOptions, parse};
use tapline_syntax::{Error, Span};

/// The most parts that a program may have once macros are replaced.
pub const PARTS_MAX: usize = 1 << 16;

/// The meaning of a program.
pub(super) fn resolve(program: &ast::Program, options: &FplOptions) -> Result<Code, Error> {
    let mut resolver = Resolver {
        options,
        link: Link::of(options.link_type),
        names: HashMap::new(),
        code: Code::default(),
        counting: Vec::new(),
        in_loop: false,
        parts: 0,
        depth: 0,
    };
    let mut body = Vec::new();
    for item in &program.items {
        match item {
            Item::Constant(name, value) => resolver.define_constant(name, value)?,
            Item::Macro(definition) => resolver.define_macro(definition)?,
            Item::Statement(statement) => resolver.append(&mut body, statement)?,
        }
    }
    resolver.code.body = body;
    Ok(resolver.code)
}

/// The meaning of a name.
#[derive(Clone, Copy)]
enum Meaning<'a> {
    Constant(u64, Sign),
    /// The macro, and how many names it sees.
    Macro(&'a ast::Macro, usize),
}

/// The arguments of the macro that is being replaced, and where they were written.
#[derive(Clone, Copy)]
struct Frame<'a, 'f> {
    parameters: &'a [Name],
    arguments: &'a [ast::Expr],
    visible: usize,
    outer: At<'a, 'f>,
}

/// The macro whose body contains the place, if any.
type At<'a, 'f> = Option<&'f Frame<'a, 'f>>;

struct Resolver<'a> {
    options: &'a FplOptions,
    link: Option<Link>,
    /// Each name's meaning, and how many names were defined before.
    names: HashMap<&'a str, (Meaning<'a>, usize)>,
    code: Code,
    /// The registers of the loops around.
    counting: Vec<usize>,
    in_loop: bool,
    parts: usize,
    depth: u32,
}

enum AssignmentTarget {
    Register(usize),
    Cell(Expr),
}

impl<'a> Resolver<'a> {
    fn define_constant(&mut self, name: &'a Name, value: &'a ast::Expr) -> Result<(), Error> {
        let resolved = self.expr(value, None)?;
        let Some(constant) = resolved.constant() else {
            return Err(Error::at(value.span, "this is not a constant")
                .hint("MACRO defines a name for an expression"));
        };
        self.define(name, Meaning::Constant(constant, resolved.sign))
    }

    fn define_macro(&mut self, definition: &'a ast::Macro) -> Result<(), Error> {
        let visible = self.names.len();
        self.define(&definition.name, Meaning::Macro(definition, visible))
    }

    fn define(&mut self, name: &'a Name, meaning: Meaning<'a>) -> Result<(), Error> {
        let known = self.names.contains_key(name.text.as_str()) || field::constant(&name.text).is_some();
        if known {
            return Err(Error::at(name.span, format!("'{}' has a meaning already", name.text))
                .hint("choose another name"));
        }
        self.names.insert(&name.text, (meaning, self.names.len()));
        Ok(())
    }

    fn block(&mut self, statements: &'a [ast::Statement]) -> Result<Vec<Statement>, Error> {
        let mut block = Vec::with_capacity(statements.len());
        for statement in statements {
            self.append(&mut block, statement)?;
        }
        Ok(block)
    }

    fn append(&mut self, block: &mut Vec<Statement>, statement: &'a ast::Statement) -> Result<(), Error> {
        if block.last().is_some_and(ends) {
            return Err(Error::at(statement.span, "this is never reached")
                .hint("what stands before always ends with RETURN or BREAK"));
        }
        let kind = self.statement(statement)?;
        block.push(Statement { kind, span: statement.span });
        Ok(())
    }

    fn statement(&mut self, statement: &'a ast::Statement) -> Result<StatementKind, Error> {
        Ok(match &statement.kind {
            ast::StatementKind::Assign(place, operator, value) => self.assign(place, *operator, value)?,
            ast::StatementKind::If(test, then, otherwise) => {
                StatementKind::If(self.expr(test, None)?, self.block(then)?, self.block(otherwise)?)
            }
            ast::StatementKind::For(parts) => self.repetition(parts)?,
            ast::StatementKind::Break if self.in_loop => StatementKind::Break,
            ast::StatementKind::Break => {
                return Err(Error::at(statement.span, "BREAK outside of a loop")
                    .hint("BREAK leaves a FOR; RETURN ends the program"));
            }
            ast::StatementKind::Return(value) => StatementKind::Return(self.expr(value, None)?),
            ast::StatementKind::Call(call) => StatementKind::Call(self.expr(call, None)?),
        })
    }

    fn assign(
        &mut self,
        place: &'a ast::Expr,
        operator: Option<ast::Operator>,
        value: &'a ast::Expr,
    ) -> Result<StatementKind, Error> {
        let span = place.span.to(value.span);
        match self.place(place, None)? {
            AssignmentTarget::Register(register) => {
                self.ensure_not_counting(register, place.span)?;
                let mut value = self.expr(value, None)?;
                if let Some(operator) = operator {
                    let old = Expr { kind: Kind::Register(register), sign: Sign::Unsigned, span: place.span };
                    value = self.arithmetic(operator, old, value, span)?;
                }
                Ok(StatementKind::SetRegister(register, value))
            }
            AssignmentTarget::Cell(index) => {
                let value = self.expr(value, None)?;
                let arithmetic = match operator {
                    Some(operator) => Some(self.compound(operator, &value, span)?),
                    None => None,
                };
                Ok(StatementKind::SetCell(index, arithmetic, value))
            }
        }
    }

    /// The arithmetic of `M[i] op= value`: the cell is unsigned.
    fn compound(&self, operator: ast::Operator, value: &Expr, span: Span) -> Result<Arithmetic, Error> {
        let signed = expression::is_signed(operator, Sign::Unsigned, value.sign, span)?;
        let not_arithmetic = || Error::at(span, "this operator does not compute a number");
        let arithmetic = Arithmetic::of(operator, signed).ok_or_else(not_arithmetic)?;
        expression::ensure_divisor(arithmetic, value)?;
        Ok(arithmetic)
    }

    fn ensure_not_counting(&self, register: usize, span: Span) -> Result<(), Error> {
        if self.counting.contains(&register) {
            return Err(Error::at(span, format!("R[{register}] counts the rounds of a loop around"))
                .hint("inside of the loop it cannot be written: use another register"));
        }
        Ok(())
    }

    fn repetition(&mut self, parts: &'a ast::For) -> Result<StatementKind, Error> {
        let register = self.register(&parts.register, "a loop counts in a register")?;
        for other in [&parts.tested, &parts.stepped] {
            if self.register(other, "the loop's register stands on the left: R[0] < 10")? != register {
                return Err(Error::at(other.span, format!("the loop's register is R[{register}]"))
                    .hint("first value, test and step of a loop are of one register"));
            }
        }
        self.ensure_not_counting(register, parts.register.span)?;
        let start = self.expr(&parts.start, None)?;
        let end = self.expr(&parts.end, None)?;
        let step = self.expr(&parts.step, None)?;
        self.counting.push(register);
        let outside = std::mem::replace(&mut self.in_loop, true);
        let body = self.block(&parts.body)?;
        self.in_loop = outside;
        self.counting.pop();
        let (relation, upward, head) = (parts.relation, parts.upward, parts.head);
        Ok(StatementKind::For(Box::new(For {
            register,
            start,
            relation,
            end,
            upward,
            step,
            body,
            head,
            rounds_max: 0,
        })))
    }

    fn register(&mut self, place: &'a ast::Expr, hint: &str) -> Result<usize, Error> {
        match place.kind {
            ExprKind::Register(_) | ExprKind::Name(..) => {}
            _ => return Err(Error::at(place.span, "this is not a register").hint(hint)),
        }
        match self.place(place, None)? {
            AssignmentTarget::Register(register) => Ok(register),
            AssignmentTarget::Cell(_) => Err(Error::at(place.span, "this is not a register").hint(hint)),
        }
    }

    fn place(&mut self, place: &'a ast::Expr, frame: At<'a, '_>) -> Result<AssignmentTarget, Error> {
        self.deeper(place.span, |resolver| match &place.kind {
            ExprKind::Register(index) => {
                resolver.register_number(index, frame).map(AssignmentTarget::Register)
            }
            ExprKind::Cell(index) => {
                resolver.cell_index(index, place.span, frame).map(AssignmentTarget::Cell)
            }
            ExprKind::Name(name, arguments) => {
                if let Some((argument, outer)) = argument_of(name, arguments, frame) {
                    return resolver.place(argument, outer);
                }
                match resolver.meaning(name, frame) {
                    Some(Meaning::Macro(definition, visible)) => {
                        ensure_arity(definition, arguments, place.span)?;
                        let inner =
                            Frame { parameters: &definition.parameters, arguments, visible, outer: frame };
                        resolver.place(&definition.body, Some(&inner))
                    }
                    Some(Meaning::Constant(..)) => Err(not_a_place(place.span)),
                    None => Err(resolver.unknown(name, place.span)),
                }
            }
            _ => Err(not_a_place(place.span)),
        })
    }

    fn register_number(&mut self, index: &'a ast::Expr, frame: At<'a, '_>) -> Result<usize, Error> {
        let number = self.expr(index, frame)?.constant();
        let known =
            number.and_then(|number| usize::try_from(number).ok()).filter(|number| *number < REGISTERS);
        known.ok_or_else(|| match number {
            Some(number) => Error::at(index.span, format!("there is no register {number}"))
                .hint(format!("registers are R[0] to R[{}]", REGISTERS - 1)),
            None => {
                Error::at(index.span, "a register's number is a constant").hint("M[...] takes any expression")
            }
        })
    }

    fn cell_index(&mut self, index: &'a ast::Expr, span: Span, frame: At<'a, '_>) -> Result<Expr, Error> {
        if self.options.memory_cells == 0 {
            return Err(
                Error::at(span, "this program has no memory").hint("give it cells when it is compiled")
            );
        }
        self.code.uses_cells = true;
        self.expr(index, frame)
    }

    fn meaning(&self, name: &str, frame: At<'a, '_>) -> Option<Meaning<'a>> {
        let visible = frame.map_or(usize::MAX, |frame| frame.visible);
        if let Some((meaning, number)) = self.names.get(name) {
            return (*number < visible).then_some(*meaning);
        }
        field::constant(name).map(|value| Meaning::Constant(value, Sign::Literal))
    }

    fn unknown(&self, name: &str, span: Span) -> Error {
        let error = Error::at(span, format!("'{name}' has no meaning here"));
        let upper = name.to_ascii_uppercase();
        if field::find(&upper).is_some() || matches!(&*upper, "LEN" | "WIRE_LEN") {
            return error.hint(format!("packet fields begin with PKT: PKT.{upper}"));
        }
        if self.names.contains_key(upper.as_str()) || field::constant(&upper).is_some() {
            return error.hint(format!("there is {upper}"));
        }
        error.hint("CONST name = number; or MACRO name = expression; before its first use gives it one")
    }

    /// Runs `inner` one level deeper, and counts a part.
    fn deeper<T>(
        &mut self,
        span: Span,
        inner: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.parts += 1;
        if self.parts > PARTS_MAX {
            return Err(Error::at(
                span,
                format!("with its macros replaced, the program has more than {PARTS_MAX} parts"),
            )
            .hint("put what macros compute into registers"));
        }
        if self.depth >= parse::DEPTH_MAX {
            return Err(Error::at(
                span,
                format!("with macros replaced, more than {} levels are nested", parse::DEPTH_MAX),
            )
            .hint("put what macros compute into registers"));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }
}

/// The argument of a parameter, and its place in the text.
fn argument_of<'a, 'f>(
    name: &str,
    arguments: &[ast::Expr],
    frame: At<'a, 'f>,
) -> Option<(&'a ast::Expr, At<'a, 'f>)> {
    let frame = frame.filter(|_| arguments.is_empty())?;
    let at = frame.parameters.iter().position(|parameter| parameter.text == name)?;
    Some((frame.arguments.get(at)?, frame.outer))
}

fn ensure_arity(definition: &ast::Macro, arguments: &[ast::Expr], span: Span) -> Result<(), Error> {
    let (wanted, given) = (definition.parameters.len(), arguments.len());
    if wanted == given {
        return Ok(());
    }
    let names: Vec<&str> = definition.parameters.iter().map(|name| name.text.as_str()).collect();
    Err(Error::at(span, format!("'{}' takes {wanted} arguments, here are {given}", definition.name.text))
        .hint(format!("it was defined as {}({})", definition.name.text, names.join(", "))))
}

fn not_a_place(span: Span) -> Error {
    Error::at(span, "this cannot be written to").hint("registers R[n] and memory cells M[n] can")
}

/// Whether nothing after the statement is reached.
pub(super) fn ends(statement: &Statement) -> bool {
    match &statement.kind {
        StatementKind::Break | StatementKind::Return(_) => true,
        StatementKind::If(_, then, otherwise) => {
            then.last().is_some_and(ends) && otherwise.last().is_some_and(ends)
        }
        _ => false,
    }
}
