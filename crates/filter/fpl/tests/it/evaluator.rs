//! The meaning of FPL, written a second time and as simply as possible: a walk over the tree of the text, packet by
//! packet.
//!
//! The evaluator shares the parser with the compiler, and the functions and the hash, which have tests of their own;
//! nothing else.

use std::collections::HashMap;

use tapline_fpl::ast::{Expr, ExprKind, For, Item, Name, Operator, Program, Statement, StatementKind, Unary};
use tapline_fpl::{CONSTANTS, hash};

use super::dissect::fields;

/// A program with its memory.
pub(crate) struct Evaluator<'a> {
    program: &'a Program,
    constants: HashMap<&'a str, (u64, Sign)>,
    macros: HashMap<&'a str, (&'a [Name], &'a Expr)>,
    pub(crate) memory: Vec<u64>,
    /// Statements, rounds, accesses to memory and packet, calls and hashed words of the last packet.
    pub(crate) steps: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sign {
    Literal,
    Unsigned,
    Signed,
}
use Sign::{Literal, Signed, Unsigned};

/// The reason that statements end early.
enum Stop {
    Break,
    Verdict(u64),
}

/// Beyond the packet, or divided by 0.
const REJECT: Stop = Stop::Verdict(0);

type Value = (u64, Sign);

/// Arguments of the macro at hand, and the frame they were written in.
struct Frame<'a, 'f> {
    parameters: &'a [Name],
    arguments: &'a [Expr],
    outer: Option<&'f Frame<'a, 'f>>,
}

struct Run<'a, 'r> {
    evaluator: &'r Evaluator<'a>,
    packet: &'r [u8],
    wire_len: u32,
    memory: &'r mut [u64],
    registers: [u64; 32],
    fields: HashMap<&'static str, u64>,
    steps: u64,
}

impl<'a> Evaluator<'a> {
    pub(crate) fn new(program: &'a Program, cells: usize) -> Evaluator<'a> {
        let mut evaluator = Evaluator {
            program,
            constants: CONSTANTS.iter().map(|(name, value)| (*name, (*value, Literal))).collect(),
            macros: HashMap::new(),
            memory: vec![0; cells],
            steps: 0,
        };
        for item in &program.items {
            match item {
                Item::Constant(name, value) => {
                    let value = evaluator.fresh(&[], 0, &mut []).expr(value, None);
                    let Ok(value) = value else { panic!("a constant rejects") };
                    evaluator.constants.insert(&name.text, value);
                }
                Item::Macro(definition) => {
                    evaluator
                        .macros
                        .insert(&definition.name.text, (&definition.parameters, &definition.body));
                }
                Item::Statement(_) => {}
            }
        }
        evaluator
    }

    fn fresh<'r>(&'r self, packet: &'r [u8], wire_len: u32, memory: &'r mut [u64]) -> Run<'a, 'r> {
        let fields = fields(packet);
        Run { evaluator: self, packet, wire_len, memory, registers: [0; 32], fields, steps: 0 }
    }

    pub(crate) fn run(&mut self, packet: &[u8], wire_len: u32) -> u64 {
        let mut memory = std::mem::take(&mut self.memory);
        let statements: Vec<&Statement> = self
            .program
            .items
            .iter()
            .filter_map(|item| if let Item::Statement(statement) = item { Some(statement) } else { None })
            .collect();
        let mut run = self.fresh(packet, wire_len, &mut memory);
        let stop = statements.iter().try_for_each(|statement| run.statement(statement));
        self.steps = run.steps;
        self.memory = memory;
        match stop {
            Err(Stop::Verdict(verdict)) => verdict,
            _ => 0,
        }
    }
}

impl<'a> Run<'a, '_> {
    fn block(&mut self, statements: &'a [Statement]) -> Result<(), Stop> {
        statements.iter().try_for_each(|statement| self.statement(statement))
    }

    fn statement(&mut self, statement: &'a Statement) -> Result<(), Stop> {
        self.steps += 1;
        match &statement.kind {
            StatementKind::Assign(place, operator, value) => self.assign(place, *operator, value),
            StatementKind::If(test, then, otherwise) => {
                let holds = self.expr(test, None)?.0 != 0;
                self.block(if holds { then } else { otherwise })
            }
            StatementKind::For(parts) => self.repeat(parts),
            StatementKind::Break => Err(Stop::Break),
            StatementKind::Return(value) => Err(Stop::Verdict(self.expr(value, None)?.0)),
            StatementKind::Call(call) => self.expr(call, None).map(|_| ()),
        }
    }

    fn repeat(&mut self, parts: &'a For) -> Result<(), Stop> {
        let start = self.expr(&parts.start, None)?.0;
        let end = self.expr(&parts.end, None)?.0;
        let step = self.expr(&parts.step, None)?.0;
        let register = self.register(&parts.register);
        self.registers[register] = start;
        loop {
            self.steps += 1;
            let counter = self.registers[register];
            if operate(parts.relation, (counter, Unsigned), (end, Unsigned))?.0 == 0 {
                return Ok(());
            }
            match self.block(&parts.body) {
                Err(Stop::Break) => return Ok(()),
                other => other?,
            }
            let counter = &mut self.registers[register];
            *counter = if parts.upward { counter.wrapping_add(step) } else { counter.wrapping_sub(step) };
        }
    }

    fn register(&mut self, place: &'a Expr) -> usize {
        match &place.kind {
            ExprKind::Register(index) => match self.expr(index, None) {
                Ok((index, _)) => index as usize,
                Err(_) => panic!("a register's number rejects"),
            },
            _ => panic!("no register"),
        }
    }

    fn assign(&mut self, place: &'a Expr, operator: Option<Operator>, value: &'a Expr) -> Result<(), Stop> {
        match &place.kind {
            ExprKind::Register(_) => {
                let register = self.register(place);
                let mut value = self.expr(value, None)?;
                if let Some(operator) = operator {
                    value = operate(operator, (self.registers[register], Unsigned), value)?;
                }
                self.registers[register] = value.0;
            }
            ExprKind::Cell(index) => {
                let cells = self.memory.len() as u64;
                let index = (self.expr(index, None)?.0 % cells) as usize;
                let mut value = self.expr(value, None)?;
                if let Some(operator) = operator {
                    value = operate(operator, (self.memory[index], Unsigned), value)?;
                }
                self.memory[index] = value.0;
            }
            _ => panic!("written to what is not a place"),
        }
        Ok(())
    }

    fn expr(&mut self, expr: &'a Expr, frame: Option<&Frame<'a, '_>>) -> Result<Value, Stop> {
        Ok(match &expr.kind {
            ExprKind::Number(value) => (*value, Literal),
            ExprKind::Name(name, arguments) => return self.name(name, arguments, frame),
            ExprKind::Register(index) => {
                let index = self.expr(index, frame)?.0;
                (self.registers[index as usize], Unsigned)
            }
            ExprKind::Cell(index) => {
                self.steps += 1;
                let index = self.expr(index, frame)?.0 % self.memory.len() as u64;
                (self.memory[index as usize], Unsigned)
            }
            ExprKind::Bytes(unit, offset, piece) => {
                self.steps += 1;
                let offset = self.expr(offset, frame)?.0;
                let number =
                    self.bytes(offset, unit.bytes.into())?.iter().fold(0, |n, b| n << 8 | u64::from(*b));
                let Some((piece, index)) = piece else {
                    return Ok(extend(number, unit.bytes * 8, unit.signed));
                };
                let pieces = unit.bytes * 8 / piece.bits;
                let index = (self.expr(index, frame)?.0 % u64::from(pieces)) as u32;
                let from_end = pieces - 1 - index;
                extend(number >> (from_end * piece.bits), piece.bits, piece.signed)
            }
            ExprKind::Field(name) => (self.field(name), Unsigned),
            ExprKind::Unary(operator, operand) => {
                let (value, sign) = self.expr(operand, frame)?;
                match operator {
                    Unary::Minus => ((value as i64).wrapping_neg() as u64, Signed),
                    Unary::Complement => (!value, sign),
                    Unary::Not => ((value == 0).into(), Unsigned),
                }
            }
            ExprKind::Binary(Operator::And, left, right) => {
                let holds = self.expr(left, frame)?.0 != 0 && self.expr(right, frame)?.0 != 0;
                (holds.into(), Unsigned)
            }
            ExprKind::Binary(Operator::Or, left, right) => {
                let holds = self.expr(left, frame)?.0 != 0 || self.expr(right, frame)?.0 != 0;
                (holds.into(), Unsigned)
            }
            ExprKind::Binary(operator, left, right) => {
                let left = self.expr(left, frame)?;
                let right = self.expr(right, frame)?;
                operate(*operator, left, right)?
            }
            ExprKind::Cast(piece, value) => {
                let value = self.expr(value, frame)?.0;
                extend(value, piece.bits, piece.signed)
            }
            ExprKind::Hash(parts) => {
                let start = self.expr(&parts[0], frame)?.0;
                let len = self.expr(&parts[1], frame)?.0;
                let hash = hash(self.bytes(start, len)?, 0);
                self.steps += len / 8;
                (hash & self.expr(&parts[2], frame)?.0, Unsigned)
            }
            ExprKind::Extern(name, cells) => {
                let input = self.expr(&cells[0], frame)?.0 as usize;
                let output = self.expr(&cells[1], frame)?.0 as usize;
                (self.call(&name.text, input, output), Unsigned)
            }
        })
    }

    fn name(
        &mut self,
        name: &str,
        arguments: &'a [Expr],
        frame: Option<&Frame<'a, '_>>,
    ) -> Result<Value, Stop> {
        if let Some(frame) = frame
            && let Some(at) = frame.parameters.iter().position(|parameter| parameter.text == name)
        {
            return self.expr(&frame.arguments[at], frame.outer);
        }
        if let Some(value) = self.evaluator.constants.get(name) {
            return Ok(*value);
        }
        let (parameters, body) = self.evaluator.macros[name];
        self.expr(body, Some(&Frame { parameters, arguments, outer: frame }))
    }

    fn bytes(&self, start: u64, len: u64) -> Result<&[u8], Stop> {
        let end = start.checked_add(len).ok_or(REJECT)?;
        if end > self.packet.len() as u64 {
            Err(REJECT)
        } else {
            Ok(&self.packet[start as usize..end as usize])
        }
    }

    fn field(&self, name: &str) -> u64 {
        match name {
            "LEN" => self.packet.len() as u64,
            "WIRE_LEN" => self.wire_len.into(),
            _ => self.fields.get(name).copied().unwrap_or(0),
        }
    }

    fn call(&mut self, name: &str, input: usize, output: usize) -> u64 {
        self.steps += 1;
        match name {
            "count" => {
                self.memory[output] = self.memory[output].wrapping_add(1);
                self.memory[output + 1] = self.memory[output + 1].wrapping_add(self.wire_len.into());
                self.memory[output]
            }
            "sample" => {
                let every = self.memory[input];
                let calls = self.memory[output].saturating_add(1);
                let chosen = every != 0 && calls >= every;
                self.memory[output] = if chosen { 0 } else { calls };
                chosen.into()
            }
            other => panic!("the function {other} is not registered"),
        }
    }
}

/// The low bits, with or without a sign.
fn extend(value: u64, bits: u32, signed: bool) -> Value {
    let low = (u128::from(value) % (1u128 << bits)) as i128;
    let negative = signed && low >= 1i128 << (bits - 1);
    let value = if negative { low - (1i128 << bits) } else { low };
    (value as u64, if signed { Signed } else { Unsigned })
}

fn operate(operator: Operator, left: Value, right: Value) -> Result<Value, Stop> {
    let sign = match (left.1, right.1) {
        (Unsigned, _) | (_, Unsigned) => Unsigned,
        (Signed, _) | (_, Signed) => Signed,
        _ => Literal,
    };
    // Exact numbers, cut back to 64 bits at the end.
    let exact = |value: u64| if sign == Signed { i128::from(value as i64) } else { i128::from(value) };
    let (a, b) = (exact(left.0), exact(right.0));
    let truth = |holds: bool| Ok((u64::from(holds), Unsigned));
    let result = match operator {
        Operator::Multiply => a.wrapping_mul(b),
        Operator::Add => a + b,
        Operator::Subtract => a - b,
        Operator::Divide if b == 0 => return Err(REJECT),
        Operator::Remainder if b == 0 => return Err(REJECT),
        Operator::Divide => a / b,
        Operator::Remainder => a % b,
        Operator::BitAnd => a & b,
        Operator::BitOr => a | b,
        Operator::BitXor => a ^ b,
        Operator::ShiftLeft => {
            let shifted = if right.0 < 64 { left.0 << right.0 } else { 0 };
            return Ok((shifted, left.1));
        }
        Operator::ShiftRight => {
            let by = right.0.min(64) as u32;
            let value = if left.1 == Signed { i128::from(left.0 as i64) } else { i128::from(left.0) };
            return Ok(((value >> by) as u64, left.1));
        }
        Operator::Equal => return truth(left.0 == right.0),
        Operator::NotEqual => return truth(left.0 != right.0),
        Operator::Less => return truth(a < b),
        Operator::Greater => return truth(a > b),
        Operator::LessEqual => return truth(a <= b),
        Operator::GreaterEqual => return truth(a >= b),
        Operator::And | Operator::Or => unreachable!("looked at before"),
    };
    Ok((result as u64, sign))
}
