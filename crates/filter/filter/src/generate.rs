//! Predicates to a block graph.
//!
//! ```text
//! a and b        a or b         not a         test
//!   a --no--> N    a --yes-> Y    a with Y      ld field; and mask
//!   |yes           |no            and N         branch test value ? Y : N
//!   b --> Y, N     b --> Y, N     exchanged
//! ```
//!
//! Code is made backwards: each predicate gets the blocks Y and N that go on after it and returns the block that
//! starts it. A chain is a loop over its parts from the last to the first, so its length costs no stack.

mod headers;
mod value;

pub(crate) use value::cells_needed;
pub use value::folded;

use crate::ast::BoolOp;
use crate::predicate::{Base, FieldOffset, FieldTest, Predicate, Predicates, Relation, TestedField};
use tapline_bpf::cfg::{BlockId, Cfg, ListId, Operand, Statement, Terminator};

/// Makes the graph that returns `snap_len` for the packets that the predicates accept and 0 for others.
pub fn generate(predicates: &Predicates, snap_len: u32) -> Cfg {
    make(predicates, snap_len, false, LIST_MIN)
}

/// Generates code with arithmetic as libpcap's code generator writes it.
pub(crate) fn generate_as_written(predicates: &Predicates) -> Cfg {
    make(predicates, 1, true, usize::MAX)
}

/// Fewer numbers are compared one by one, so that facts about them are known further on. A path does not remember more
/// of them.
const LIST_MIN: usize = 64;

/// Lists of at least `list_min` numbers are looked up in one block.
pub(crate) fn make(predicates: &Predicates, snap_len: u32, is_written: bool, list_min: usize) -> Cfg {
    let mut cfg = Cfg::constant(0);
    let reject = cfg.entry;
    let accept = cfg.push(Vec::new(), Terminator::Return(snap_len));
    let mut generator =
        Generator { cfg, first_free_cell: predicates.cells, is_written, list_min, lists: Vec::new() };
    generator.cfg.entry = generator.predicate(&predicates.root, Exits { yes: accept, no: reject });
    Cfg { lists: generator.lists.into(), ..generator.cfg }
}

/// The blocks in which to go on.
#[derive(Clone, Copy)]
struct Exits {
    yes: BlockId,
    no: BlockId,
}

struct Generator {
    cfg: Cfg,
    first_free_cell: u8,
    is_written: bool,
    list_min: usize,
    /// The lists so far, each once.
    lists: Vec<Box<[u32]>>,
}

impl Generator {
    fn predicate(&mut self, predicate: &Predicate, exits: Exits) -> BlockId {
        match predicate {
            Predicate::Constant(true) => exits.yes,
            Predicate::Constant(false) => exits.no,
            Predicate::Not(inner) => self.predicate(inner, Exits { yes: exits.no, no: exits.yes }),
            Predicate::Chain(first, rest) => self.chain(first, rest, exits),
            Predicate::Test(test) => self.test(test, exits),
            Predicate::AnyOf(test, values) => self.any_of(test, values, exits),
            Predicate::Relation(relation) => self.relation(relation, exits),
            Predicate::Headers(headers) => self.headers(headers, exits),
            Predicate::Differ(a, b) => {
                let load = vec![Statement::LoadCell(a.0), Statement::LoadXCell(b.0)];
                self.branch(
                    load,
                    tapline_bpf::cfg::JumpTest::Equal,
                    Operand::X,
                    Exits { yes: exits.no, no: exits.yes },
                )
            }
            Predicate::Assign(cell, value) => {
                let mut code = self.value(value);
                code.push(Statement::Store(cell.0));
                self.cfg.push(code, Terminator::Goto(exits.yes))
            }
        }
    }

    /// From the last part to the first: the target after a part depends on the operator that joins the next one to
    /// it.
    fn chain(&mut self, first: &Predicate, rest: &[(BoolOp, Predicate)], exits: Exits) -> BlockId {
        let mut exits = exits;
        for (joint, part) in rest.iter().rev() {
            let start = self.predicate(part, exits);
            match joint {
                BoolOp::And => exits.yes = start,
                BoolOp::Or => exits.no = start,
            }
        }
        self.predicate(first, exits)
    }

    fn test(&mut self, test: &FieldTest, exits: Exits) -> BlockId {
        self.branch(field(test), test.compare, Operand::K(test.value), exits)
    }

    fn any_of(&mut self, test: &FieldTest, values: &[u32], exits: Exits) -> BlockId {
        if values.len() >= self.list_min {
            let terminator =
                Terminator::OneOf { list: self.list(values), on_true: exits.yes, on_false: exits.no };
            return self.cfg.push(field(test), terminator);
        }
        let one = |value: u32| FieldTest { value, ..*test };
        values.iter().rev().fold(exits.no, |no, &value| self.test(&one(value), Exits { no, ..exits }))
    }

    /// The number of a list. A text has few lists as long as these.
    fn list(&mut self, values: &[u32]) -> ListId {
        let known = self.lists.iter().position(|list| **list == *values);
        let number = known.unwrap_or(self.lists.len());
        if number == self.lists.len() {
            self.lists.push(values.into());
        }
        ListId(number as u32)
    }

    fn relation(&mut self, relation: &Relation, exits: Exits) -> BlockId {
        let (code, operand) = self.pair(&relation.left, &relation.right);
        self.branch(code, relation.compare, operand, exits)
    }

    fn branch(
        &mut self,
        code: Vec<Statement>,
        test: tapline_bpf::cfg::JumpTest,
        operand: Operand,
        exits: Exits,
    ) -> BlockId {
        let terminator = Terminator::Branch { test, operand, on_true: exits.yes, on_false: exits.no };
        self.cfg.push(code, terminator)
    }
}

/// A = the bits of a field that a test compares.
fn field(test: &FieldTest) -> Vec<Statement> {
    let mut code = match test.field {
        TestedField::Len => vec![Statement::LoadLen],
        TestedField::Packet(place, width) => load(place, width),
    };
    if test.mask != u32::MAX {
        code.push(Statement::Alu(tapline_bpf::cfg::Alu::And, Operand::K(test.mask)));
    }
    code
}

/// A = the bytes at a place.
fn load(place: FieldOffset, width: tapline_bpf::cfg::Width) -> Vec<Statement> {
    let Some(mut code) = base_to_x(place.base) else {
        return vec![Statement::LoadPacket(width, place.offset)];
    };
    code.push(Statement::LoadIndexed(width, place.offset));
    code
}

/// X = the base of the place, `None` for the packet's start. May use A.
fn base_to_x(base: Base) -> Option<Vec<Statement>> {
    use tapline_bpf::cfg::{Alu, Width};
    Some(match base {
        Base::Packet => return None,
        Base::Cell(cell) => vec![Statement::LoadXCell(cell.0)],
        Base::Ipv4Len { cell: None, header } => vec![Statement::LoadXHeaderLen(header)],
        Base::Ipv4Len { cell: Some(cell), header } => vec![
            Statement::LoadXCell(cell.0),
            Statement::LoadIndexed(Width::Byte, header),
            Statement::Alu(Alu::And, Operand::K(0xf)),
            Statement::Alu(Alu::Shl, Operand::K(2)),
            Statement::Alu(Alu::Add, Operand::X),
            Statement::Tax,
        ],
    })
}
