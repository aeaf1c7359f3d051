//! Proves a program bounded: accesses inside of the memory, loops with a greatest number of rounds, work with a limit.
//!
//! Each register has an interval at each statement. Comparisons with a register narrow it in the code that they
//! guard. A loop is analysed twice: at first the registers that its body writes may be anything; then they are at
//! most their values before the loop or at the end of a round.

#[cfg(test)]
mod tests;

use super::FplOptions;
use super::ast::Operator;
use super::field::{Item, START_MAX};
use super::interval::Interval;
use super::tree::{
    Arithmetic, Code, Expr, For, Kind, REGISTERS, Relation, Statement, StatementKind, assigned, low_bits,
};
use tapline_syntax::{Error, Span};

/// The work that one call of a function counts as: its true work is known to its author alone.
const CALL_WORK: u64 = 64;

/// Checks a program, and gives each loop its greatest number of rounds.
///
/// Returns the most work that one packet may cause: statements, operators and operands run, 8 bytes hashed, each once.
pub(super) fn check(code: &mut Code, options: &FplOptions) -> Result<u64, Error> {
    let mut body = std::mem::take(&mut code.body);
    let mut checker = Checker { code, options, work: 0, quiet: false, breaks: Vec::new(), dearest: None };
    checker.block(&mut body, [Interval::exactly(0); REGISTERS])?;
    let (work, dearest) = (checker.work, checker.dearest);
    code.body = body;
    if work > options.work_max {
        let (_, head) = dearest.unwrap_or_default();
        return Err(too_much(head, "with all else that is done, this loop", work, options));
    }
    Ok(work)
}

type RegisterIntervals = [Interval; REGISTERS];

struct Checker<'a> {
    code: &'a Code,
    options: &'a FplOptions,
    work: u64,
    /// In the first look at a loop, errors would be premature.
    quiet: bool,
    /// For each surrounding loop, the facts known where it is left.
    breaks: Vec<Option<RegisterIntervals>>,
    /// The loop that takes most, and how much.
    dearest: Option<(u64, Span)>,
}

impl Checker<'_> {
    /// The state after the statements; `None` if their end is not reached.
    fn block(
        &mut self,
        statements: &mut [Statement],
        state: RegisterIntervals,
    ) -> Result<Option<RegisterIntervals>, Error> {
        let mut state = Some(state);
        for statement in statements {
            if let Some(before) = state {
                state = self.statement(statement, before)?;
            }
        }
        Ok(state)
    }

    fn statement(
        &mut self,
        statement: &mut Statement,
        mut state: RegisterIntervals,
    ) -> Result<Option<RegisterIntervals>, Error> {
        self.spend(1);
        match &mut statement.kind {
            StatementKind::SetRegister(register, value) => state[*register] = self.expr(value, &state)?,
            StatementKind::SetCell(index, arithmetic, value) => {
                self.cell(index, &state)?;
                let value = self.expr(value, &state)?;
                if let Some(arithmetic) = arithmetic {
                    self.spend(2);
                    self.divisor(*arithmetic, value, statement.span)?;
                }
            }
            StatementKind::If(test, then, otherwise) => {
                self.expr(test, &state)?;
                let (yes, no) = (self.narrowed(test, true, &state)?, self.narrowed(test, false, &state)?);
                let (then, otherwise) = (self.block(then, yes)?, self.block(otherwise, no)?);
                return Ok(join(then, otherwise));
            }
            StatementKind::For(parts) => return self.repetition(parts, state).map(Some),
            StatementKind::Break => {
                if let Some(known) = self.breaks.last_mut() {
                    *known = join(*known, Some(state));
                }
                return Ok(None);
            }
            StatementKind::Return(value) => {
                self.expr(value, &state)?;
                return Ok(None);
            }
            StatementKind::Call(call) => {
                self.expr(call, &state)?;
            }
        }
        Ok(Some(state))
    }

    fn spend(&mut self, work: u64) {
        self.work = self.work.saturating_add(work);
    }

    fn repetition(
        &mut self,
        parts: &mut For,
        mut state: RegisterIntervals,
    ) -> Result<RegisterIntervals, Error> {
        let start = self.expr(&parts.start, &state)?;
        let end = self.expr(&parts.end, &state)?;
        let step = self.expr(&parts.step, &state)?;
        let (rounds, inside, after) = match rounds(parts, start, end, step) {
            Ok(known) => known,
            Err(_) if self.quiet => (0, Interval::ANY, Interval::ANY),
            Err(error) => return Err(error),
        };
        parts.rounds_max = rounds;
        state[parts.register] = inside;
        let written = assigned(&parts.body);
        let mut anything = state;
        for register in (0..REGISTERS).filter(|register| written & 1 << register != 0) {
            anything[register] = Interval::ANY;
        }
        // One look is enough inside of a first look; two at each level would take time exponential in the depth.
        let narrowed = match self.quiet {
            true => anything,
            false => join(Some(state), self.first_look(&mut parts.body, anything)?).unwrap_or(state),
        };
        let before = std::mem::replace(&mut self.work, 0);
        self.breaks.push(None);
        let ended = self.block(&mut parts.body, narrowed)?;
        let left = self.breaks.pop().flatten();
        self.count_rounds(parts, rounds, before)?;
        let mut exhausted = join(Some(narrowed), ended).unwrap_or(state);
        exhausted[parts.register] = after;
        Ok(join(Some(exhausted), left).unwrap_or(exhausted))
    }

    /// The state at the end of a round that starts from any state.
    fn first_look(
        &mut self,
        body: &mut [Statement],
        anything: RegisterIntervals,
    ) -> Result<Option<RegisterIntervals>, Error> {
        let (work, quiet) = (self.work, std::mem::replace(&mut self.quiet, true));
        self.breaks.push(None);
        let ended = self.block(body, anything)?;
        self.breaks.pop();
        (self.work, self.quiet) = (work, quiet);
        Ok(ended)
    }

    fn count_rounds(&mut self, parts: &For, rounds: u64, before: u64) -> Result<(), Error> {
        // The test and the step are part of each round, and the test fails once more.
        let whole = self.work.saturating_add(4).saturating_mul(rounds).saturating_add(2);
        self.work = before.saturating_add(whole);
        if self.quiet {
            return Ok(());
        }
        if whole > self.options.work_max {
            return Err(too_much(
                parts.head,
                &format!("this loop of up to {rounds} rounds"),
                whole,
                self.options,
            ));
        }
        if self.dearest.is_none_or(|(most, _)| whole > most) {
            self.dearest = Some((whole, parts.head));
        }
        Ok(())
    }

    fn expr(&mut self, expr: &Expr, state: &RegisterIntervals) -> Result<Interval, Error> {
        self.spend(1);
        Ok(match &expr.kind {
            Kind::Constant(value) => Interval::exactly(*value),
            Kind::Register(register) => state[*register],
            Kind::Cell(index) => {
                self.cell(index, state)?;
                Interval::ANY
            }
            Kind::Length => Interval::up_to(self.options.packet_len_max.into()),
            Kind::WireLength => Interval::up_to(u32::MAX.into()),
            Kind::Field(field) => self.field(*field),
            Kind::Load(width, offset) => {
                let offset = self.expr(offset, state)?;
                self.inside_packet(offset.low, width.bytes().into(), expr.span)?;
                Interval::up_to(low_bits(width.bytes() * 8))
            }
            Kind::Extract { of, bits, index, .. } => {
                self.expr(of, state)?;
                self.expr(index, state)?;
                Interval::up_to(low_bits(*bits))
            }
            Kind::ZeroExtend(bits, value) => self.expr(value, state)?.zero_extend(*bits),
            Kind::SignExtend(bits, value) => self.expr(value, state)?.sign_extend(*bits),
            Kind::Arithmetic(arithmetic, left, right) => {
                let (left, right) = (self.expr(left, state)?, self.expr(right, state)?);
                self.divisor(*arithmetic, right, expr.span)?;
                left.compute(*arithmetic, right)
            }
            Kind::Compare(_, left, right) | Kind::And(left, right) | Kind::Or(left, right) => {
                self.expr(left, state)?;
                self.expr(right, state)?;
                Interval::up_to(1)
            }
            Kind::Not(value) => {
                self.expr(value, state)?;
                Interval::up_to(1)
            }
            Kind::Hash(parts) => self.hash(parts, state)?,
            Kind::Call(function, cells) => self.call(*function, cells, state)?,
        })
    }

    fn field(&self, field: usize) -> Interval {
        Interval::up_to(match self.code.fields[field] {
            Item::Bits { bits, scale, .. } => low_bits(bits) * u64::from(scale),
            Item::Present(_) | Item::Fragment => 1,
            Item::EtherType => 0xffff,
            Item::IpVersion => 6,
            Item::Protocol => 255,
            Item::Start(_) | Item::TransportStart | Item::DataStart => START_MAX,
            Item::DataLength => self.options.packet_len_max.into(),
        })
    }

    fn hash(&mut self, [start, len, mask]: &[Expr; 3], state: &RegisterIntervals) -> Result<Interval, Error> {
        let from = self.expr(start, state)?;
        let bytes = self.expr(len, state)?;
        let mask = self.expr(mask, state)?;
        self.inside_packet(from.low, bytes.low, start.span.to(len.span))?;
        let bytes_max = bytes.high.min(self.options.packet_len_max.into());
        self.spend(bytes_max / 8 + 8);
        Ok(Interval::up_to(mask.high))
    }

    fn inside_packet(&self, start: u64, len: u64, span: Span) -> Result<(), Error> {
        let packet_len_max = self.options.packet_len_max;
        if start.saturating_add(len) <= packet_len_max.into() {
            return Ok(());
        }
        Err(Error::at(span, format!("this lies behind the end of every packet: byte {start} and on"))
            .hint(format!("packets have at most {packet_len_max} bytes; no packet would pass here")))
    }

    fn cell(&mut self, index: &Expr, state: &RegisterIntervals) -> Result<(), Error> {
        let cells = self.options.memory_cells;
        let known = self.expr(index, state)?;
        if known.low < cells.into() {
            return Ok(());
        }
        let at_least = if known.low == known.high { "" } else { "at least " };
        Err(Error::at(index.span, format!("there is no cell {at_least}{}", known.low))
            .hint(format!("the memory has the cells M[0] to M[{}]", cells.saturating_sub(1))))
    }

    fn call(
        &mut self,
        function: usize,
        cells: &[Expr; 2],
        state: &RegisterIntervals,
    ) -> Result<Interval, Error> {
        let function = self.code.functions[function].clone();
        for (cell, count, what) in
            [(&cells[0], function.inputs(), "reads"), (&cells[1], function.outputs(), "writes")]
        {
            let start = self.expr(cell, state)?;
            let memory_cells = u64::from(self.options.memory_cells);
            let end = start.high.checked_add(count.into());
            if end.is_none_or(|end| end > memory_cells) && !self.quiet {
                let shown = if start.low == start.high { "from" } else { "possibly from" };
                let name = function.name();
                return Err(Error::at(
                    cell.span,
                    format!(
                        "'{name}' {what} {count} cells {shown} M[{}] on, and the memory has {memory_cells}",
                        start.high
                    ),
                )
                .hint(match memory_cells.checked_sub(count.into()) {
                    Some(last) => format!("this offset is at most {last}; '& mask' or IF keeps it there"),
                    None => format!("give the program at least {} cells", count.next_power_of_two()),
                }));
            }
        }
        self.spend(CALL_WORK);
        Ok(Interval::ANY)
    }

    fn divisor(&self, arithmetic: Arithmetic, divisor: Interval, span: Span) -> Result<(), Error> {
        if arithmetic.divides() && divisor.high == 0 {
            return Err(Error::at(span, "this always divides by 0").hint(
                "a divisor that is 0 ends the program with 0: write RETURN 0, or give it another value",
            ));
        }
        Ok(())
    }

    /// The state of registers if the test gave this result.
    fn narrowed(
        &mut self,
        test: &Expr,
        truth: bool,
        state: &RegisterIntervals,
    ) -> Result<RegisterIntervals, Error> {
        let work = self.work;
        let mut state = *state;
        match (&test.kind, truth) {
            (Kind::Not(inner), _) => state = self.narrowed(inner, !truth, &state)?,
            (Kind::And(left, right), true) | (Kind::Or(left, right), false) => {
                state = self.narrowed(left, truth, &state)?;
                state = self.narrowed(right, truth, &state)?;
            }
            (Kind::Compare(relation, left, right), _) if !relation.signed => {
                let (left_known, right_known) = (self.expr(left, &state)?, self.expr(right, &state)?);
                if let Kind::Register(register) = left.kind {
                    state[register] = left_known.meet(allowed(*relation, truth, right_known));
                }
                if let Kind::Register(register) = right.kind {
                    state[register] = right_known.meet(allowed(mirrored(*relation), truth, left_known));
                }
            }
            _ => {}
        }
        self.work = work;
        Ok(state)
    }
}

fn join(one: Option<RegisterIntervals>, other: Option<RegisterIntervals>) -> Option<RegisterIntervals> {
    match (one, other) {
        (Some(one), Some(other)) => Some(std::array::from_fn(|register| one[register].join(other[register]))),
        (known, None) | (None, known) => known,
    }
}

/// The values that have this relation to one of the others, or do not.
fn allowed(relation: Relation, truth: bool, other: Interval) -> Interval {
    let (low, high) = (other.low, other.high);
    match (relation.operator, truth) {
        (Operator::Equal, true) | (Operator::NotEqual, false) => other,
        (Operator::Less, true) | (Operator::GreaterEqual, false) => Interval::up_to(high.saturating_sub(1)),
        (Operator::LessEqual, true) | (Operator::Greater, false) => Interval::up_to(high),
        (Operator::Greater, true) | (Operator::LessEqual, false) => {
            Interval { low: low.saturating_add(1), high: u64::MAX }
        }
        (Operator::GreaterEqual, true) | (Operator::Less, false) => Interval { low, high: u64::MAX },
        _ => Interval::ANY,
    }
}

/// The relation with its sides exchanged.
fn mirrored(relation: Relation) -> Relation {
    let operator = match relation.operator {
        Operator::Less => Operator::Greater,
        Operator::LessEqual => Operator::GreaterEqual,
        Operator::Greater => Operator::Less,
        Operator::GreaterEqual => Operator::LessEqual,
        same => same,
    };
    Relation { operator, ..relation }
}

fn too_much(span: Span, what: &str, work: u64, options: &FplOptions) -> Error {
    let shown = if work == u64::MAX { "more than can be counted".to_owned() } else { work.to_string() };
    Error::at(span, format!("{what} may take {shown} steps for one packet")).hint(format!(
        "at most {} are allowed: end it earlier, take larger steps, or do less in each round",
        options.work_max
    ))
}

/// The most rounds of a loop, and its register's values in rounds and after the last one.
fn rounds(parts: &For, start: Interval, end: Interval, step: Interval) -> Result<Rounds, Error> {
    let unbounded = |(message, hint): (String, &str)| {
        Error::at(parts.head, format!("this loop cannot be bounded: {message}")).hint(hint)
    };
    if let Some((message, hint)) = direction_fault(parts, step) {
        return Err(unbounded((message.to_owned(), hint)));
    }
    if parts.relation == Operator::NotEqual {
        return rounds_until_equal(parts, start, end, step);
    }
    let bounded = if parts.upward {
        rounds_up(parts.relation, start, end, step)
    } else {
        rounds_down(parts.relation, start, end, step)
    };
    let known = bounded.ok_or_else(|| unbounded(wrapping_fault(parts, end)))?;
    if known.0 > u32::MAX.into() {
        return Err(unbounded((format!("it may take {} rounds", known.0), PROVEN_END)));
    }
    Ok(known)
}

/// The rule for the end of a loop that counts upward.
const PROVEN_END: &str =
    "an end is proven from constants, PKT.LEN, fields, masks, and registers that IF has compared";

/// The reason that a loop may never reach its end, whatever the numbers are, and the remedy.
fn direction_fault(parts: &For, step: Interval) -> Option<(&'static str, &'static str)> {
    if step.low == 0 {
        let mend = "a step of at least 1 is proven from constants and masks: (R[1] & 7) + 1";
        return Some(("its step may be 0", mend));
    }
    match (parts.relation, parts.upward) {
        (Operator::Equal, _) => {
            Some(("it continues while its register equals its end", "a loop's test is <, <=, >, >= or !="))
        }
        (Operator::Less | Operator::LessEqual, false)
        | (Operator::Greater | Operator::GreaterEqual, true) => {
            Some(("it counts away from its end", "< and <= need a step upward, > and >= one downward"))
        }
        _ => None,
    }
}

/// The reason that a register may wrap before it passes the end, and the remedy.
fn wrapping_fault(parts: &For, end: Interval) -> (String, &'static str) {
    if parts.upward {
        (format!("its end may be {}, and the step beyond it wraps to 0", end.high), PROVEN_END)
    } else {
        let mend = "count down to > 0, or count up and use N - R[n] inside";
        (format!("its end may be {}, and a step below it wraps", end.low), mend)
    }
}

type Rounds = (u64, Interval, Interval);

fn rounds_up(relation: Operator, start: Interval, end: Interval, step: Interval) -> Option<Rounds> {
    // The greatest value that passes the test; none if the end is 0 and must not be reached.
    let last = if relation == Operator::Less { end.high.checked_sub(1) } else { Some(end.high) };
    let Some(last) = last.filter(|last| *last >= start.low) else {
        return Some((0, start, start));
    };
    let beyond = last.checked_add(step.high)?;
    let rounds = ((last - start.low) / step.low).checked_add(1)?;
    Some((
        rounds,
        Interval { low: start.low, high: last },
        Interval { low: start.low, high: start.high.max(beyond) },
    ))
}

fn rounds_down(relation: Operator, start: Interval, end: Interval, step: Interval) -> Option<Rounds> {
    let last = if relation == Operator::Greater { end.low.checked_add(1) } else { Some(end.low) };
    let Some(last) = last.filter(|last| *last <= start.high) else {
        return Some((0, start, start));
    };
    let beyond = last.checked_sub(step.high)?;
    let rounds = ((start.high - last) / step.low).checked_add(1)?;
    Some((
        rounds,
        Interval { low: last, high: start.high },
        Interval { low: start.low.min(beyond), high: start.high },
    ))
}

fn rounds_until_equal(parts: &For, start: Interval, end: Interval, step: Interval) -> Result<Rounds, Error> {
    let exact = [start, end, step].iter().all(|part| part.low == part.high);
    let (low, high) = if parts.upward { (start, end) } else { (end, start) };
    let hits = match exact {
        true => low.low <= high.low && (high.low - low.low) % step.low == 0,
        false => step.high == 1 && low.high <= high.low,
    };
    let rounds = high.high.saturating_sub(low.low) / step.low;
    if !hits || rounds > u32::MAX.into() {
        return Err(Error::at(parts.head, "this loop cannot be bounded: its register may step over its end")
            .hint("<, <=, > or >= ends a loop in any case"));
    }
    let span = Interval { low: low.low, high: high.high };
    Ok((rounds, span, span))
}
