//! The block graph: a filter as blocks of straight code that branch to blocks.
//!
//! ```text
//! cfg        := block* entry                     -- acyclic: no path comes back to a block
//! block      := statement* terminator
//! statement  := A = load | X = load | M[n] = A | M[n] = X | A = A op operand | A = -A | X = A | A = X
//! load       := pkt[k:1|2|4] | pkt[X+k:1|2|4] | k | len | M[n]   -- for X: k | len | M[n] | 4*(pkt[k:1]&15)
//! terminator := if A test operand then block else block | goto block | return k | return A
//!             | if A in list then block else block
//! operand    := k | X
//! ```
//!
//! A packet load outside of the captured bytes ends the program: the packet is rejected, whatever surrounds the load.
//! A pass may therefore drop a load only where it shows that the same bytes, or bytes behind them, were read before
//! on every path.

use std::ops::{Index, IndexMut};
use std::sync::Arc;

use crate::ancillary;

/// Number of scratch cells `M[]`: `BPF_MEMWORDS` of the users of `<linux/bpf_common.h>`.
pub const CELLS: u8 = 16;

/// A block's place in its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

/// The number of a list of its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListId(pub u32);

/// Width of a packet load; several bytes are big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Width {
    /// One byte.
    Byte,
    /// Two bytes.
    Half,
    /// Four bytes.
    Word,
}

impl Width {
    /// 1, 2 or 4.
    pub const fn bytes(self) -> u32 {
        match self {
            Width::Byte => 1,
            Width::Half => 2,
            Width::Word => 4,
        }
    }
}

/// The second operand of arithmetic and of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A constant.
    K(u32),
    /// The index register.
    X,
}

/// Arithmetic on 32-bit unsigned numbers that wrap. Division or modulus by zero in X rejects the packet; a shift by
/// 32 or more in X gives zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Alu {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    And,
    Or,
    Xor,
    Shl,
    Shr,
}

/// The test of a jump on A and the operand; comparisons are unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JumpTest {
    /// A = operand.
    Equal,
    /// A > operand.
    Greater,
    /// A >= operand.
    GreaterEqual,
    /// A & operand is not 0.
    AnySet,
}

/// One instruction that is not a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Statement {
    /// A = k.
    LoadConst(u32),
    /// A = pkt[k : width]. From 0xfffff000 on, Linux takes k for an ancillary load (`SKF_AD_OFF`).
    LoadPacket(Width, u32),
    /// A = pkt[X + k : width]; X + k never wraps: a sum above 32 bits is outside of the packet.
    LoadIndexed(Width, u32),
    /// A = the packet's length on the wire.
    LoadLen,
    /// `A = M[cell]`.
    LoadCell(u8),
    /// X = k.
    LoadXConst(u32),
    /// `X = M[cell]`.
    LoadXCell(u8),
    /// X = the packet's length on the wire.
    LoadXLen,
    /// X = 4 * (pkt[k : 1] & 15): the length of the IPv4 header at k.
    LoadXHeaderLen(u32),
    /// `M[cell] = A`.
    Store(u8),
    /// `M[cell] = X`.
    StoreX(u8),
    /// A = A op operand.
    Alu(Alu, Operand),
    /// A = -A.
    Negate,
    /// X = A.
    Tax,
    /// A = X.
    Txa,
}

impl Statement {
    /// The register that it writes: 0 for A, 1 for X, `n + 2` for `M[n]`.
    pub fn writes(self) -> u32 {
        match self {
            Statement::Store(n) | Statement::StoreX(n) => u32::from(n) + 2,
            Statement::LoadXConst(_)
            | Statement::LoadXCell(_)
            | Statement::LoadXLen
            | Statement::LoadXHeaderLen(_)
            | Statement::Tax => 1,
            _ => 0,
        }
    }

    /// The registers that it reads, a bit for each as [`writes`](Self::writes) numbers them.
    pub fn reads(self) -> u32 {
        const A: u32 = 1;
        const X: u32 = 2;
        match self {
            Statement::LoadPacket(_, ancillary::ALU_XOR_X) | Statement::Alu(_, Operand::X) => A | X,
            Statement::Store(_) | Statement::Negate | Statement::Tax | Statement::Alu(_, Operand::K(_)) => A,
            Statement::LoadIndexed(..) | Statement::StoreX(_) | Statement::Txa => X,
            Statement::LoadCell(n) | Statement::LoadXCell(n) => 4 << n,
            _ => 0,
        }
    }
}

/// The end of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Terminator {
    /// To one of two blocks.
    Branch {
        /// The question about A.
        test: JumpTest,
        /// The operand that A is compared with.
        operand: Operand,
        /// The next block if the test holds.
        on_true: BlockId,
        /// The next block if it does not.
        on_false: BlockId,
    },
    /// To one of two blocks, by a lookup: a long chain of equalities as one block, which passes look at once.
    OneOf {
        /// The numbers that A is looked up in.
        list: ListId,
        /// The next block if A is in the list.
        on_true: BlockId,
        /// The next block if it is not.
        on_false: BlockId,
    },
    /// To one block.
    Goto(BlockId),
    /// The end: the bytes to keep of the packet, 0 to reject it.
    Return(u32),
    /// The end: A says how many bytes to keep. Only programs that others made have it.
    ReturnA,
}

impl Terminator {
    /// The blocks it may go to: none, one or two.
    pub fn successors(&self) -> impl DoubleEndedIterator<Item = BlockId> + use<> {
        let (first, second) = match *self {
            Terminator::Branch { on_true, on_false, .. } | Terminator::OneOf { on_true, on_false, .. } => {
                (Some(on_true), Some(on_false))
            }
            Terminator::Goto(next) => (Some(next), None),
            Terminator::Return(_) | Terminator::ReturnA => (None, None),
        };
        first.into_iter().chain(second)
    }
}

/// Straight code and the branch at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Run in order.
    pub statements: Vec<Statement>,
    /// Run last.
    pub terminator: Terminator,
}

/// A block graph. Acyclic; blocks that no path reaches are allowed and cost nothing in the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cfg {
    /// In no order that matters; a [`BlockId`] is an index.
    pub blocks: Vec<Block>,
    /// The block at which the program starts.
    pub entry: BlockId,
    /// Lists of numbers, by [`ListId`]: each ascending, with at least one number.
    pub lists: Arc<[Box<[u32]>]>,
}

impl Cfg {
    /// A graph that returns `k` for every packet.
    pub fn constant(k: u32) -> Cfg {
        Cfg {
            blocks: vec![Block { statements: Vec::new(), terminator: Terminator::Return(k) }],
            entry: BlockId(0),
            lists: Arc::default(),
        }
    }

    /// The numbers of a list.
    pub fn list(&self, list: ListId) -> &[u32] {
        &self.lists[list.0 as usize]
    }

    /// Adds a block and returns its number.
    pub fn push(&mut self, statements: Vec<Statement>, terminator: Terminator) -> BlockId {
        self.blocks.push(Block { statements, terminator });
        BlockId((self.blocks.len() - 1) as u32)
    }

    /// The blocks that the entry reaches, each before all its successors. Needs no stack in proportion to the graph.
    pub fn order(&self) -> Vec<BlockId> {
        let mut order = self.post_order();
        order.reverse();
        order
    }

    fn post_order(&self) -> Vec<BlockId> {
        let mut seen = vec![false; self.blocks.len()];
        let mut done = Vec::new();
        let mut stack = vec![(self.entry, false)];
        while let Some((id, left)) = stack.pop() {
            if left {
                done.push(id);
            } else if !std::mem::replace(&mut seen[id.0 as usize], true) {
                stack.push((id, true));
                stack.extend(self[id].terminator.successors().map(|next| (next, false)));
            }
        }
        done
    }
}

impl Index<BlockId> for Cfg {
    type Output = Block;

    fn index(&self, id: BlockId) -> &Block {
        &self.blocks[id.0 as usize]
    }
}

impl IndexMut<BlockId> for Cfg {
    fn index_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.blocks[id.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_puts_each_block_before_its_successors() {
        let mut cfg = Cfg::constant(0);
        let reject = BlockId(0);
        let accept = cfg.push(Vec::new(), Terminator::Return(1));
        let mut next = reject;
        for k in 0..100_000 {
            let terminator = Terminator::Branch {
                test: JumpTest::Equal,
                operand: Operand::K(k),
                on_true: accept,
                on_false: next,
            };
            next = cfg.push(Vec::new(), terminator);
        }
        cfg.entry = next;
        let order = cfg.order();
        assert_eq!(order.len(), cfg.blocks.len());
        let mut place = vec![0; cfg.blocks.len()];
        order.iter().enumerate().for_each(|(i, id)| place[id.0 as usize] = i);
        for &id in &order {
            assert!(
                cfg[id].terminator.successors().all(|next| place[next.0 as usize] > place[id.0 as usize])
            );
        }
    }
}
