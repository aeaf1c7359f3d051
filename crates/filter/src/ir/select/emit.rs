//! The code of each block.

use super::{Cells, Unsupported, header_len};
use crate::bpf::ancillary;
use crate::cfg::{self, Alu, Cfg, Operand, Statement};
use crate::ir::{Binary, BlockId, Field, Ir, Op, Place, Target, Terminator, Test, Value, Width};

/// So few cases of a switch are compared one by one.
const COMPARED_MAX: usize = 3;

/// For so many values it is remembered how many bytes behind them are needed.
const BASES_MAX: usize = 8;

pub(super) struct Emitter<'a> {
    ir: &'a Ir,
    cells: Cells,
    cfg: Cfg,
    /// The block of the graph that is made for each block of values.
    blocks: Vec<cfg::BlockId>,
    code: Vec<Statement>,
    /// The first cell that the expression that is being computed does not use.
    free: u8,
    /// What the block's loads have shown to be there, and what it divided by.
    shown: Vec<Place>,
    divisors: Vec<Value>,
    /// While the block's guards are made, which stand before all else: its values whose cells are not written yet.
    unwritten: Vec<Value>,
    /// For each block that is finished, what every way from its start to an accepting return loads.
    needed: Vec<Needed>,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(ir: &'a Ir, cells: Cells) -> Emitter<'a> {
        let mut cfg = Cfg::constant(0);
        let blocks = ir.blocks.iter().map(|_| cfg.push(Vec::new(), cfg::Terminator::Return(0))).collect();
        let free = cells.first_free;
        Emitter {
            ir,
            cells,
            cfg,
            blocks,
            code: Vec::new(),
            free,
            shown: Vec::new(),
            divisors: Vec::new(),
            unwritten: Vec::new(),
            needed: vec![Needed::default(); ir.blocks.len()],
        }
    }

    pub(super) fn graph(mut self, order: &[BlockId]) -> Result<Cfg, Unsupported> {
        // From the end: then it is known what comes after each block.
        for &id in order.iter().rev() {
            self.block(id)?;
        }
        self.cfg.entry = self.blocks[self.ir.entry.0 as usize];
        Ok(self.cfg)
    }

    /// The block that rejects.
    const REJECT: cfg::BlockId = cfg::BlockId(0);

    fn block(&mut self, id: BlockId) -> Result<(), Unsupported> {
        let ir = self.ir;
        self.shown.clear();
        self.divisors.clear();
        for &value in &ir[id].instructions {
            if let Some(cell) = self.cells.of(value) {
                self.compute(value)?;
                self.code.push(Statement::Store(cell));
            }
        }
        let terminator = self.terminator(&ir[id].terminator)?;
        let rest = std::mem::take(&mut self.code);
        let mut block = cfg::Block { statements: rest, terminator };
        let mut needed = self.needed_at_end(id);
        let checks = self.checks(id, &needed)?;
        self.shown.iter().for_each(|place| needed.add(*place));
        self.needed[id.0 as usize] = needed;
        for check in checks.into_iter().rev() {
            block = match check {
                Check::Load(mut load) => {
                    load.append(&mut block.statements);
                    cfg::Block { statements: load, ..block }
                }
                Check::NonZero(statements) => {
                    let rest = self.cfg.push(block.statements, block.terminator);
                    let (test, operand) = (cfg::Test::Equal, Operand::K(0));
                    let terminator =
                        cfg::Terminator::Branch { test, operand, on_true: Self::REJECT, on_false: rest };
                    cfg::Block { statements, terminator }
                }
                Check::Never => cfg::Block { statements: Vec::new(), terminator: cfg::Terminator::Return(0) },
            };
        }
        let arrived = ir[id].parameters.iter().find(|value| self.cells.arrives_in_a(**value));
        if let Some(cell) = arrived.and_then(|value| self.cells.of(*value)) {
            block.statements.insert(0, Statement::Store(cell));
        }
        self.cfg[self.blocks[id.0 as usize]] = block;
        Ok(())
    }

    fn needed_at_end(&self, id: BlockId) -> Needed {
        let terminator = &self.ir[id].terminator;
        let accepts = match terminator {
            Terminator::Return(value) => self.ir.as_const(*value) != Some(0),
            _ => false,
        };
        let mut needed = Needed { everything: !accepts, ..Needed::default() };
        terminator.for_each_target(|target| needed.meet(&self.needed[target.block.0 as usize]));
        needed
    }

    /// The guards of a block that neither the block nor what comes after it implies. What comes after it: if the packet is too short,
    /// those ways that could accept it reject it in the end, and the others reject it in any case.
    fn checks(&mut self, id: BlockId, needed: &Needed) -> Result<Vec<Check>, Unsupported> {
        let ir = self.ir;
        let mut checks = Vec::new();
        let in_cells = ir[id].instructions.iter().filter(|value| self.cells.of(**value).is_some());
        self.unwritten = in_cells.copied().collect();
        for &value in &ir[id].instructions {
            match *ir.op(value) {
                Op::Need(place) if !self.is_shown(place) && !needed.covers(place) => {
                    checks.push(self.probe(place)?);
                    self.shown.push(place);
                }
                Op::NonZero(divisor) => match ir.as_const(divisor) {
                    Some(0) => checks.push(Check::Never),
                    Some(_) => {}
                    None if self.divisors.contains(&divisor) => {}
                    None => {
                        self.load_a(divisor)?;
                        checks.push(Check::NonZero(std::mem::take(&mut self.code)));
                    }
                },
                _ => {}
            }
        }
        self.unwritten.clear();
        Ok(checks)
    }

    /// The cell that holds a value by now.
    fn cell_of(&self, value: Value) -> Option<u8> {
        self.cells.of(value).filter(|_| !self.unwritten.contains(&value))
    }

    fn is_shown(&self, place: Place) -> bool {
        let shows = |shown: &Place| {
            place.offset <= shown.offset && (place.base.is_none() || place.base == shown.base)
        };
        place == Place::at(0) || self.shown.iter().any(shows)
    }

    /// A load of the last byte before a place.
    fn probe(&mut self, place: Place) -> Result<Check, Unsupported> {
        match (place.base, place.offset.checked_sub(1)) {
            (None, Some(last)) if last >= ancillary::BASE => return Ok(Check::Never),
            (None, Some(last)) => self.code.push(Statement::LoadPacket(cfg::Width::Byte, last)),
            (None, None) => {}
            (Some(base), Some(last)) => {
                self.load_x(base)?;
                self.code.push(Statement::LoadIndexed(cfg::Width::Byte, last));
            }
            (Some(base), None) => {
                // The byte before the one that the base counts to; there is always one if the base is 0.
                return Err(Unsupported::Operation(base));
            }
        }
        Ok(Check::Load(std::mem::take(&mut self.code)))
    }

    fn terminator(&mut self, terminator: &Terminator) -> Result<cfg::Terminator, Unsupported> {
        match terminator {
            Terminator::Goto(target) => {
                self.give(target, None)?;
                Ok(cfg::Terminator::Goto(self.start(target)))
            }
            Terminator::Return(value) => match self.ir.as_const(*value) {
                Some(k) => Ok(cfg::Terminator::Return(k as u32)),
                None => {
                    self.load_a(*value)?;
                    Ok(cfg::Terminator::ReturnA)
                }
            },
            Terminator::Branch { test, left, right, yes, no } => self.branch(*test, *left, *right, yes, no),
            Terminator::Switch { value, cases, default, .. } => {
                self.load_a(*value)?;
                let default = self.way(default, *value)?;
                let mut keys = Vec::with_capacity(cases.len());
                for case in cases {
                    keys.push((case.key as u32, self.way(&case.to, *value)?));
                }
                Ok(cfg::Terminator::Goto(self.search(&keys, default)))
            }
        }
    }

    fn start(&self, target: &Target) -> cfg::BlockId {
        self.blocks[target.block.0 as usize]
    }

    /// Where a choice goes to get to a target, while `in_a` is in A: to a block of its own, if there is something to be given.
    fn way(&mut self, target: &Target, in_a: Value) -> Result<cfg::BlockId, Unsupported> {
        let shown = (self.shown.len(), self.divisors.len());
        let before = std::mem::take(&mut self.code);
        self.give(target, Some(in_a))?;
        let code = std::mem::replace(&mut self.code, before);
        // What is loaded on the way shows nothing for the block.
        self.shown.truncate(shown.0);
        self.divisors.truncate(shown.1);
        let start = self.start(target);
        Ok(if code.is_empty() { start } else { self.cfg.push(code, cfg::Terminator::Goto(start)) })
    }

    /// Puts a target's arguments where its parameters are.
    fn give(&mut self, target: &Target, mut in_a: Option<Value>) -> Result<(), Unsupported> {
        let ir = self.ir;
        let mut first = None;
        for (parameter, argument) in ir[target.block].parameters.iter().zip(&target.arguments) {
            if self.cells.arrives_in_a(*parameter) {
                first = Some(*argument);
            } else if let Some(cell) = self.cells.of(*parameter) {
                self.load_a(*argument)?;
                self.code.push(Statement::Store(cell));
                in_a = Some(*argument);
            }
        }
        match first {
            Some(argument) if in_a != first => self.load_a(argument),
            _ => Ok(()),
        }
    }

    fn branch(
        &mut self,
        test: Test,
        left: Value,
        right: Value,
        yes: &Target,
        no: &Target,
    ) -> Result<cfg::Terminator, Unsupported> {
        let constants = (self.ir.as_const(left), self.ir.as_const(right));
        let (test, operand, in_a, yes, no) = match (constants, test) {
            ((Some(k), None), Test::Greater | Test::GreaterEqual) => {
                self.load_a(right)?;
                // k > v unless v >= k; k >= v unless v > k.
                let test = if test == Test::Greater { cfg::Test::GreaterEqual } else { cfg::Test::Greater };
                (test, Operand::K(k as u32), right, no, yes)
            }
            ((Some(k), None), _) => {
                self.load_a(right)?;
                (question(test, left)?, Operand::K(k as u32), right, yes, no)
            }
            (_, _) => {
                let operand = self.pair(left, right)?;
                (question(test, left)?, operand, left, yes, no)
            }
        };
        let (on_true, on_false) = (self.way(yes, in_a)?, self.way(no, in_a)?);
        Ok(cfg::Terminator::Branch { test, operand, on_true, on_false })
    }

    /// Blocks that find the case that A equals.
    fn search(&mut self, cases: &[(u32, cfg::BlockId)], default: cfg::BlockId) -> cfg::BlockId {
        if cases.len() > COMPARED_MAX {
            let (low, high) = cases.split_at(cases.len() / 2);
            let border = low.last().map_or(0, |&(key, _)| key);
            let (on_false, on_true) = (self.search(low, default), self.search(high, default));
            let operand = Operand::K(border);
            let terminator = cfg::Terminator::Branch { test: cfg::Test::Greater, operand, on_true, on_false };
            return self.cfg.push(Vec::new(), terminator);
        }
        cases.iter().rev().fold(default, |on_false, &(key, on_true)| {
            let operand = Operand::K(key);
            let terminator = cfg::Terminator::Branch { test: cfg::Test::Equal, operand, on_true, on_false };
            self.cfg.push(Vec::new(), terminator)
        })
    }

    /// A = the value.
    fn load_a(&mut self, value: Value) -> Result<(), Unsupported> {
        match self.cell_of(value) {
            Some(cell) => self.code.push(Statement::LoadCell(cell)),
            None => self.compute(value)?,
        }
        Ok(())
    }

    /// A = the value, from what it is made of.
    fn compute(&mut self, value: Value) -> Result<(), Unsupported> {
        let statement = match *self.ir.op(value) {
            Op::Const(k) => Statement::LoadConst(k as u32),
            Op::Field(field) => known(field)?,
            // No packet is so long: the guard in front of it has rejected.
            Op::Load(Place { base: None, offset: ancillary::BASE.. }, ..) => Statement::LoadConst(0),
            Op::Load(place, width, _) => {
                self.shown.push(Place { offset: place.offset.saturating_add(width.bytes()), ..place });
                let size = size(width, value)?;
                match place.base {
                    None => Statement::LoadPacket(size, place.offset),
                    Some(base) => {
                        self.load_x(base)?;
                        Statement::LoadIndexed(size, place.offset)
                    }
                }
            }
            Op::Binary(Binary::Sub, left, right) if self.ir.as_const(left) == Some(0) => {
                self.load_a(right)?;
                Statement::Negate
            }
            Op::Binary(op, left, right) => {
                let (left, right) = match self.ir.as_const(left) {
                    Some(_) if commutes(op) => (right, left),
                    _ => (left, right),
                };
                if matches!(op, Binary::Div | Binary::Mod) {
                    self.divisors.push(right);
                }
                let operand = self.pair(left, right)?;
                return self.arithmetic(op, operand, value);
            }
            _ => return Err(Unsupported::Operation(value)),
        };
        self.code.push(statement);
        Ok(())
    }

    fn arithmetic(&mut self, op: Binary, operand: Operand, value: Value) -> Result<(), Unsupported> {
        let alu = match op {
            Binary::Add => Alu::Add,
            Binary::Sub => Alu::Sub,
            Binary::Mul => Alu::Mul,
            Binary::Div => Alu::Div,
            Binary::Mod => Alu::Mod,
            Binary::And => Alu::And,
            Binary::Or => Alu::Or,
            Binary::Xor => Alu::Xor,
            Binary::Shl => Alu::Shl,
            Binary::Shr => Alu::Shr,
            Binary::SignedShr => return Err(Unsupported::Operation(value)),
        };
        self.code.push(match (op, operand) {
            // A shift by a constant of 32 or more is no valid instruction.
            (Binary::Shl | Binary::Shr, Operand::K(32..)) => Statement::LoadConst(0),
            _ => Statement::Alu(alu, operand),
        });
        Ok(())
    }

    /// A = the left value, and the right one as operand.
    fn pair(&mut self, left: Value, right: Value) -> Result<Operand, Unsupported> {
        if let Some(k) = self.ir.as_const(right) {
            self.load_a(left)?;
            return Ok(Operand::K(k as u32));
        }
        if self.is_simple(right) {
            self.load_a(left)?;
            self.load_x(right)?;
        } else if self.leaves_x(left) {
            self.load_a(right)?;
            self.code.push(Statement::Tax);
            self.load_a(left)?;
        } else {
            let cell = self.free;
            if cell >= cfg::CELLS {
                return Err(Unsupported::Cells);
            }
            self.load_a(right)?;
            self.code.push(Statement::Store(cell));
            self.free += 1;
            self.load_a(left)?;
            self.free -= 1;
            self.code.push(Statement::LoadXCell(cell));
        }
        Ok(Operand::X)
    }

    /// Whether a value gets to X without A.
    fn is_simple(&self, value: Value) -> bool {
        let direct = matches!(self.ir.op(value), Op::Const(_) | Op::Field(Field::WireLen));
        direct || self.cell_of(value).is_some() || header_len(self.ir, value).is_some()
    }

    /// Whether a value is computed without X.
    fn leaves_x(&self, value: Value) -> bool {
        if self.cell_of(value).is_some() {
            return true;
        }
        match *self.ir.op(value) {
            Op::Load(place, ..) => place.base.is_none(),
            Op::Binary(_, left, right) => {
                let constant = |value: Value| self.ir.as_const(value).is_some();
                (constant(right) && self.leaves_x(left)) || (constant(left) && self.leaves_x(right))
            }
            _ => true,
        }
    }

    /// X = the value; may write A.
    fn load_x(&mut self, value: Value) -> Result<(), Unsupported> {
        let statement = match (self.cell_of(value), self.ir.op(value)) {
            (Some(cell), _) => Statement::LoadXCell(cell),
            (None, Op::Const(k)) => Statement::LoadXConst(*k as u32),
            (None, Op::Field(Field::WireLen)) => Statement::LoadXLen,
            (None, _) => match header_len(self.ir, value) {
                Some(k) => {
                    self.shown.push(Place::at(k.saturating_add(1)));
                    Statement::LoadXHeaderLen(k)
                }
                None => {
                    self.compute(value)?;
                    Statement::Tax
                }
            },
        };
        self.code.push(statement);
        Ok(())
    }
}

/// Bytes that are going to be loaded.
#[derive(Clone, Debug, Default)]
struct Needed {
    /// More than any packet has: no way accepts.
    everything: bool,
    bytes: u32,
    from: Vec<(Value, u32)>,
}

impl Needed {
    fn covers(&self, place: Place) -> bool {
        let from = |base| self.from.iter().any(|&(value, bytes)| value == base && place.offset <= bytes);
        self.everything || place.base.map_or(place.offset <= self.bytes, from)
    }

    fn add(&mut self, place: Place) {
        // Whatever the base, it is not negative.
        self.bytes = self.bytes.max(place.offset);
        let Some(base) = place.base else { return };
        if let Some((_, bytes)) = self.from.iter_mut().find(|(value, _)| *value == base) {
            *bytes = place.offset.max(*bytes);
        } else if self.from.len() < BASES_MAX {
            self.from.push((base, place.offset));
        }
    }

    /// Keeps what both ways need.
    fn meet(&mut self, other: &Needed) {
        if other.everything {
            return;
        }
        if self.everything {
            *self = other.clone();
            return;
        }
        self.bytes = self.bytes.min(other.bytes);
        self.from.retain_mut(|(base, bytes)| match other.from.iter().find(|(value, _)| value == base) {
            Some((_, there)) => {
                *bytes = (*bytes).min(*there);
                true
            }
            None => false,
        });
    }
}

/// What stands before a block's code.
enum Check {
    /// A load that rejects short packets.
    Load(Vec<Statement>),
    /// What computes a divisor.
    NonZero(Vec<Statement>),
    /// No packet gets past it.
    Never,
}

fn commutes(op: Binary) -> bool {
    matches!(op, Binary::Add | Binary::Mul | Binary::And | Binary::Or | Binary::Xor)
}

fn question(test: Test, value: Value) -> Result<cfg::Test, Unsupported> {
    Ok(match test {
        Test::Equal => cfg::Test::Equal,
        Test::Greater => cfg::Test::Greater,
        Test::GreaterEqual => cfg::Test::GreaterEqual,
        Test::AnySet => cfg::Test::AnySet,
        Test::SignedGreater | Test::SignedGreaterEqual => return Err(Unsupported::Operation(value)),
    })
}

fn size(width: Width, value: Value) -> Result<cfg::Width, Unsupported> {
    Ok(match width {
        Width::Byte => cfg::Width::Byte,
        Width::Half => cfg::Width::Half,
        Width::Word => cfg::Width::Word,
        Width::Double => return Err(Unsupported::Operation(value)),
    })
}

fn known(field: Field) -> Result<Statement, Unsupported> {
    let k = match field {
        Field::WireLen => return Ok(Statement::LoadLen),
        Field::CapLen => return Err(Unsupported::Field(field)),
        Field::PacketType => ancillary::PKTTYPE,
        Field::InterfaceIndex => ancillary::IFINDEX,
        Field::ReceiveHash => ancillary::RXHASH,
        Field::VlanTag => ancillary::VLAN_TAG,
        Field::VlanPresent => ancillary::VLAN_TAG_PRESENT,
        Field::VlanProtocol => ancillary::VLAN_TPID,
    };
    Ok(Statement::LoadPacket(cfg::Width::Word, k))
}
