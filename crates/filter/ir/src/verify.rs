//! Conditions under which a graph is safe to run: the proof that engines rely on.
//!
//! ```text
//! values    defined before they are read on every path; types fit; blocks get as many arguments as they have parameters
//! loads     on every path, a guard (need) or the like has shown that their bytes are there
//! divisors  constants other than 0, or guarded (nonzero)
//! edges     none leads back, except to a declared loop's header
//! ```

use thiserror::Error;

use super::{
    Binary, Block, BlockId, Comparison, Dominators, Ir, MetaField, Op, PacketOffset, Target, Terminator,
    Type, Value,
};

/// The reason that a graph may not run. Such a graph is our own fault, never that of the filter's text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it")]
pub enum VerifyError {
    /// A value is read where it is not defined on every path.
    #[error("b{}: v{} is read before it is defined", .block.0, .value.0)]
    Undefined {
        /// The block with the read.
        block: BlockId,
        /// The value that is read.
        value: Value,
    },
    /// A value is defined more than once, or a parameter is something else as well.
    #[error("b{}: v{} is defined twice", .block.0, .value.0)]
    DefinedTwice {
        /// The block with the second definition.
        block: BlockId,
        value: Value,
    },
    /// A value has another type than its reader needs, or holds more than its type.
    #[error("b{}: v{} has the wrong type", .block.0, .value.0)]
    WrongType { block: BlockId, value: Value },
    /// An edge gives its block too few or too many arguments, or of wrong types, or leads to no block.
    #[error("b{}: the edge to b{} passes arguments that do not match its parameters", .block.0, .to.0)]
    WrongArguments {
        /// The block at which the edge starts.
        block: BlockId,
        /// The block to which it leads.
        to: BlockId,
    },
    /// A load is not covered by guards.
    #[error("b{}: v{} loads bytes that no guard proves to be captured", .block.0, .value.0)]
    UncoveredLoad {
        block: BlockId,
        /// The load.
        value: Value,
    },
    /// A divisor may be 0.
    #[error("b{}: v{} divides by a value that may be 0", .block.0, .value.0)]
    UncoveredDivision {
        block: BlockId,
        /// The division.
        value: Value,
    },
    /// An edge leads back to a block that is not the header of a declared loop, or a header does not dominate the
    /// source of the edge.
    #[error("b{}: an edge leads back to b{}, which is not declared as a loop", .block.0, .to.0)]
    UndeclaredLoop {
        /// The block at which the edge starts.
        block: BlockId,
        /// The block to which it leads.
        to: BlockId,
    },
    /// The keys of a switch do not ascend, or are beyond its value's type.
    #[error("b{}: the keys of a switch do not ascend", .block.0)]
    UnsortedSwitch { block: BlockId },
    /// An unknown function, cells in a graph without cells, or a number of cells that is not a power of two.
    #[error("b{}: v{} uses a function or cells that are not there", .block.0, .value.0)]
    Unknown {
        block: BlockId,
        /// The instruction.
        value: Value,
    },
}

impl Ir {
    /// Proves the graph safe to run.
    ///
    /// # Errors
    /// The first [`VerifyError`] that is found.
    pub fn verify(&self) -> Result<(), VerifyError> {
        let dominators = Dominators::new(self);
        self.verify_definitions(&dominators)?;
        Verifier { ir: self, spans: dominators.spans(), defined_in: self.defined_in(&dominators) }
            .blocks(&dominators)?;
        self.verify_guards(&dominators)
    }

    /// Each value is defined in one place: facts about it then hold wherever it is read.
    fn verify_definitions(&self, dominators: &Dominators) -> Result<(), VerifyError> {
        let mut is_defined = vec![false; self.instructions.len()];
        for &block in &dominators.order {
            let Block { parameters, instructions, .. } = &self[block];
            for &value in parameters.iter().chain(instructions) {
                let Some(is_defined) = is_defined.get_mut(value.0 as usize) else {
                    return Err(VerifyError::Undefined { block, value });
                };
                if std::mem::replace(is_defined, true) {
                    return Err(VerifyError::DefinedTwice { block, value });
                }
            }
            let is_number =
                |value: &Value| *self.op(*value) == Op::Parameter && self.ty(*value) != Type::None;
            if let Some(&value) = parameters.iter().find(|value| !is_number(value)) {
                return Err(VerifyError::WrongType { block, value });
            }
        }
        Ok(())
    }

    /// For each value the reachable block that defines it, and its place there; parameters have place 0.
    fn defined_in(&self, dominators: &Dominators) -> Vec<Option<(BlockId, u32)>> {
        let mut defined = vec![None; self.instructions.len()];
        for &id in &dominators.order {
            let block = &self[id];
            block.parameters.iter().for_each(|value| defined[value.0 as usize] = Some((id, 0)));
            for (at, value) in block.instructions.iter().enumerate() {
                defined[value.0 as usize] = Some((id, at as u32 + 1));
            }
        }
        defined
    }

    fn verify_guards(&self, dominators: &Dominators) -> Result<(), VerifyError> {
        let mut arriving: Vec<Option<Coverage>> = vec![None; self.blocks.len()];
        for &id in &dominators.order {
            // At a loop's header, the facts of a path back include those of the entry.
            let mut covered = match dominators.order[0] == id {
                true => Coverage::default(),
                false => arriving[id.0 as usize].take().unwrap_or_default(),
            };
            for &value in &self[id].instructions {
                match self.op(value) {
                    Op::Load(place, width, _) => {
                        let end = place.offset.checked_add(width.bytes());
                        if !end.is_some_and(|end| covered.covers(self, place.base, end)) {
                            return Err(VerifyError::UncoveredLoad { block: id, value });
                        }
                    }
                    Op::Binary(Binary::Div | Binary::Mod, _, divisor)
                        if !covered.is_nonzero(self, *divisor) =>
                    {
                        return Err(VerifyError::UncoveredDivision { block: id, value });
                    }
                    _ => {}
                }
                covered.learn(self, value);
            }
            self[id].terminator.for_each_target(|target| {
                let mut there = covered.clone();
                there.learn_from_edge(self, &self[id].terminator, target);
                let known = &mut arriving[target.block.0 as usize];
                match known {
                    Some(known) => known.meet(&there),
                    None => *known = Some(there),
                }
            });
        }
        Ok(())
    }
}

impl Ir {
    /// The place up to which bytes are there if the test holds: the captured length is compared with a constant, or
    /// with a value plus a constant, both in 64 bits, where the sum cannot wrap.
    pub(crate) fn shown_by(&self, test: Comparison, left: Value, right: Value) -> Option<PacketOffset> {
        if test != Comparison::GreaterEqual || !self.is_captured_length(left) {
            return None;
        }
        if let Some(k) = self.as_const(right) {
            // A greater one is never captured.
            return Some(PacketOffset::at(u32::try_from(k).unwrap_or(u32::MAX)));
        }
        let Op::Binary(Binary::Add, base, more) = *self.op(right) else { return None };
        let Op::Extend(base) = *self.op(base) else { return None };
        Some(PacketOffset::from(base, u32::try_from(self.as_const(more)?).ok()?))
    }

    /// Counts the offset from the value to which its base adds a constant, if that sum does not wrap.
    fn behind(&self, place: PacketOffset) -> Option<PacketOffset> {
        let Op::Binary(Binary::Add, base, more) = *self.op(place.base?) else { return None };
        let more = self.as_const(more)?;
        let fits = self.upper_bound(base).checked_add(more)? <= Type::U32.max();
        let offset = u32::try_from(u64::from(place.offset).checked_add(more)?).ok()?;
        fits.then_some(PacketOffset::from(base, offset))
    }

    /// Whether a value is the number of captured bytes, in 32 or 64 bits.
    pub(crate) fn is_captured_length(&self, value: Value) -> bool {
        match self.op(value) {
            Op::MetaField(field) => *field == MetaField::CapLen,
            Op::Extend(value) => *self.op(*value) == Op::MetaField(MetaField::CapLen),
            _ => false,
        }
    }
}

/// The least length of the packet, in bytes from its start and from values; and the values that are not 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    bytes: u32,
    from: Vec<(Value, u32)>,
    nonzero: Vec<Value>,
}

impl Coverage {
    /// Whether the bytes from `base` (or the packet's start) up to `end` are known to be there: because a guard said
    /// so, or since there are enough bytes from the start for the greatest `base` that there can be.
    pub fn covers(&self, ir: &Ir, base: Option<Value>, end: u32) -> bool {
        // Not by a sum: see `Ir::upper_bound`.
        let behind_greatest = |base| {
            u64::from(self.bytes).checked_sub(end.into()).is_some_and(|before| ir.upper_bound(base) <= before)
        };
        let asked_for = self.asked_for(base);
        asked_for.is_some_and(|bytes| end <= bytes) || base.is_some_and(behind_greatest)
    }

    /// `None`: not even that the packet reaches to the base, which a guard for 0 bytes from there asks.
    fn asked_for(&self, base: Option<Value>) -> Option<u32> {
        let Some(base) = base else { return Some(self.bytes) };
        self.from.iter().find(|(value, _)| *value == base).map(|&(_, bytes)| bytes)
    }

    /// Bytes known to be captured.
    pub fn bytes_from(&self, base: Option<Value>) -> u32 {
        self.asked_for(base).unwrap_or(0)
    }

    /// Whether a value is known not to be 0.
    pub fn is_nonzero(&self, ir: &Ir, value: Value) -> bool {
        ir.as_const(value).is_some_and(|k| k != 0) || self.nonzero.contains(&value)
    }

    /// Adds the facts that follow from an instruction that has been run.
    pub fn learn(&mut self, ir: &Ir, value: Value) {
        match ir.op(value) {
            Op::Need(place) => self.add(*place),
            Op::NonZero(value) if !self.nonzero.contains(value) => self.nonzero.push(*value),
            _ => {}
        }
    }

    fn add(&mut self, place: PacketOffset) {
        // Whatever the base, it is not negative: the bytes from the start are there as well.
        self.bytes = self.bytes.max(place.offset);
        let Some(base) = place.base else { return };
        match self.from.iter_mut().find(|(value, _)| *value == base) {
            Some((_, bytes)) => *bytes = place.offset.max(*bytes),
            None => self.from.push((base, place.offset)),
        }
    }

    /// Adds the facts that follow from taking an edge: a comparison of the captured length shows bytes.
    pub fn learn_from_edge(&mut self, ir: &Ir, terminator: &Terminator, target: &Target) {
        if let Terminator::Branch { test, left, right, yes, no } = terminator
            && std::ptr::eq(yes, target)
            && yes != no
            && let Some(place) = ir.shown_by(*test, *left, *right)
        {
            self.add(place);
            // The same place, counted from what its base is a sum of: loads may have been written so.
            let mut place = place;
            while let Some(earlier) = ir.behind(place) {
                self.add(earlier);
                place = earlier;
            }
        }
    }

    /// Keeps the bytes of which both paths are sure.
    pub fn meet(&mut self, other: &Coverage) {
        self.bytes = self.bytes.min(other.bytes);
        self.from.retain_mut(|(value, bytes)| {
            let theirs = other.asked_for(Some(*value));
            *bytes = (*bytes).min(theirs.unwrap_or(0));
            theirs.is_some()
        });
        self.nonzero.retain(|value| other.nonzero.contains(value));
    }
}

struct Verifier<'a> {
    ir: &'a Ir,
    spans: Vec<(u32, u32)>,
    defined_in: Vec<Option<(BlockId, u32)>>,
}

impl Verifier<'_> {
    fn blocks(&self, dominators: &Dominators) -> Result<(), VerifyError> {
        if !self.ir[self.ir.entry].parameters.is_empty() {
            return Err(VerifyError::WrongArguments { block: self.ir.entry, to: self.ir.entry });
        }
        for &id in &dominators.order {
            self.block(id, dominators)?;
        }
        Ok(())
    }

    fn block(&self, id: BlockId, dominators: &Dominators) -> Result<(), VerifyError> {
        let block = &self.ir[id];
        for (at, &value) in block.instructions.iter().enumerate() {
            self.operands_defined(id, at as u32 + 1, |visit| self.ir.op(value).for_each_operand(visit))?;
            self.types(id, value)?;
        }
        self.operands_defined(id, u32::MAX, |visit| block.terminator.for_each_operand(visit))?;
        self.terminator(id, &block.terminator)?;
        let mut fault = None;
        block.terminator.for_each_target(|target| {
            let to = target.block;
            if !self.fits(target) {
                fault.get_or_insert(VerifyError::WrongArguments { block: id, to });
            } else if dominators.place[to.0 as usize] <= dominators.place[id.0 as usize]
                && !(self.is_header(to) && self.dominates(to, id))
            {
                fault.get_or_insert(VerifyError::UndeclaredLoop { block: id, to });
            }
        });
        fault.map_or(Ok(()), Err)
    }

    fn operands_defined(
        &self,
        block: BlockId,
        at: u32,
        visit: impl FnOnce(&mut dyn FnMut(Value)),
    ) -> Result<(), VerifyError> {
        let mut fault = None;
        visit(&mut |value| {
            let known = match self.defined_in.get(value.0 as usize).copied().flatten() {
                Some((home, place)) if home == block => place < at,
                Some((home, _)) => self.dominates(home, block),
                None => false,
            };
            if !known {
                fault.get_or_insert(VerifyError::Undefined { block, value });
            }
        });
        fault.map_or(Ok(()), Err)
    }

    fn types(&self, block: BlockId, value: Value) -> Result<(), VerifyError> {
        let ty = |value: &Value| self.ir.ty(*value);
        let own = self.ir.ty(value);
        let number = |of: Type| of != Type::None;
        let fits = match self.ir.op(value) {
            Op::Parameter => false,
            Op::Const(k) => number(own) && *k <= own.max(),
            Op::MetaField(_) => own == Type::U32,
            Op::Load(place, width, _) => own == width.ty() && place.base.iter().all(|base| number(ty(base))),
            Op::Binary(_, left, right) => number(own) && ty(left) == own && ty(right) == own,
            Op::Compare(_, left, right) => own == Type::U32 && number(ty(left)) && ty(left) == ty(right),
            Op::Extend(value) => own == Type::U64 && ty(value) == Type::U32,
            Op::Truncate(value) => own == Type::U32 && ty(value) == Type::U64,
            Op::Need(place) => own == Type::None && place.base.iter().all(|base| number(ty(base))),
            Op::NonZero(value) => own == Type::None && number(ty(value)),
            Op::Cell(index) => own == Type::U64 && ty(index) == Type::U64,
            Op::SetCell(index, value) => {
                own == Type::None && ty(index) == Type::U64 && ty(value) == Type::U64
            }
            Op::Call(_, arguments) => {
                own == Type::U64 && arguments.iter().all(|argument| ty(argument) == Type::U64)
            }
        };
        if !fits {
            return Err(VerifyError::WrongType { block, value });
        }
        let there = match self.ir.op(value) {
            Op::Cell(_) | Op::SetCell(..) => self.ir.cells.is_power_of_two(),
            Op::Call(function, _) => (*function as usize) < self.ir.functions.len(),
            _ => true,
        };
        if there { Ok(()) } else { Err(VerifyError::Unknown { block, value }) }
    }

    fn terminator(&self, block: BlockId, terminator: &Terminator) -> Result<(), VerifyError> {
        let ty = |value: &Value| self.ir.ty(*value);
        match terminator {
            Terminator::Branch { left, right, .. } if ty(left) != ty(right) || ty(left) == Type::None => {
                Err(VerifyError::WrongType { block, value: *right })
            }
            Terminator::Return(value) if ty(value) == Type::None => {
                Err(VerifyError::WrongType { block, value: *value })
            }
            Terminator::Switch { value, cases, .. } => {
                let last = cases.last().map_or(0, |case| case.key);
                if cases.is_sorted_by(|a, b| a.key < b.key) && last <= ty(value).max() {
                    Ok(())
                } else {
                    Err(VerifyError::UnsortedSwitch { block })
                }
            }
            _ => Ok(()),
        }
    }

    fn fits(&self, target: &Target) -> bool {
        let Some(block) = self.ir.blocks.get(target.block.0 as usize) else { return false };
        let types = |values: &[Value]| values.iter().map(|value| self.ir.ty(*value)).collect::<Vec<_>>();
        block.parameters.len() == target.arguments.len()
            && types(&block.parameters) == types(&target.arguments)
    }

    fn is_header(&self, id: BlockId) -> bool {
        self.ir.loops.iter().any(|one| one.header == id)
    }

    fn dominates(&self, above: BlockId, below: BlockId) -> bool {
        let (above, below) = (self.spans[above.0 as usize], self.spans[below.0 as usize]);
        above.0 <= below.0 && below.1 <= above.1
    }
}
