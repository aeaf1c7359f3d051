//! Finds values that are the same number in every place: a packet does not change while its filter runs.
//!
//! ```text
//! v1 = load16 [12]   v7 = load16 [12]     v1 and v7 are one class
//! v3 = v1 + v2       v9 = v2 + v7         so are v3 and v9
//! b4(v5): all paths give it v1 or v7       so is v5, and v1
//! ```

use crate::{Binary, BlockId, Comparison, Ir, Op, Type, Value};
use rustc_hash::FxHashMap as Map;

/// For each value the first one, in order, that is the same number.
#[derive(Debug)]
pub(super) struct Classes {
    first: Vec<Value>,
}

impl Classes {
    /// The classes of the values in the blocks of `order`, which is [`Ir::order`].
    pub(super) fn new(ir: &Ir, order: &[BlockId]) -> Classes {
        let mut known: Map<(Op, Type), Value> = Map::default();
        known.reserve(ir.instructions.len());
        let mut classes = Classes { first: (0..ir.instructions.len() as u32).map(Value).collect() };
        let arguments = Arguments::new(ir, order);
        for &id in order {
            classes.parameters(ir, id, &arguments);
            for &value in &ir[id].instructions {
                if ir.op(value).is_pure() {
                    let op = classes.normal(ir.op(value));
                    classes.first[value.0 as usize] = *known.entry((op, ir.ty(value))).or_insert(value);
                }
            }
        }
        classes
    }

    /// The representative of all values that are the same number.
    pub(super) fn of(&self, value: Value) -> Value {
        self.first[value.0 as usize]
    }

    /// The operation on the representatives of its operands, in an order that does not depend on how it was written.
    fn normal(&self, op: &Op) -> Op {
        let mut op = op.clone();
        op.map_operands(|operand| self.of(operand));
        match &mut op {
            Op::Binary(Binary::Add | Binary::Mul | Binary::And | Binary::Or | Binary::Xor, left, right)
            | Op::Compare(Comparison::Equal | Comparison::AnySet, left, right)
                if *left > *right =>
            {
                std::mem::swap(left, right);
            }
            _ => {}
        }
        op
    }

    /// A parameter that always gets the same, or itself, is that; two that always get the same as one another are one.
    fn parameters(&mut self, ir: &Ir, id: BlockId, arguments: &Arguments) {
        let parameters = &ir[id].parameters;
        for (at, &parameter) in parameters.iter().enumerate() {
            let given = || arguments.of(id, parameters.len(), at).map(|value| self.of(value));
            let mut others = given().filter(|&value| value != parameter);
            let same = match others.next() {
                Some(first) if others.all(|value| value == first) => Some(first),
                _ => {
                    let twin = |&earlier: &usize| {
                        given().eq(arguments.of(id, parameters.len(), earlier).map(|value| self.of(value)))
                    };
                    (0..at).find(twin).map(|earlier| self.of(parameters[earlier]))
                }
            };
            if let Some(same) = same {
                self.first[parameter.0 as usize] = same;
            }
        }
    }
}

/// The arguments that each block with parameters is given, edge by edge.
struct Arguments {
    of_block: Vec<Vec<Value>>,
}

impl Arguments {
    fn new(ir: &Ir, order: &[BlockId]) -> Arguments {
        let mut of_block = vec![Vec::new(); ir.blocks.len()];
        for &id in order {
            ir[id].terminator.for_each_target(|target| {
                of_block[target.block.0 as usize].extend_from_slice(&target.arguments);
            });
        }
        Arguments { of_block }
    }

    /// The arguments for parameter `at` of `parameters`, one for each edge.
    fn of(&self, id: BlockId, parameters: usize, at: usize) -> impl Iterator<Item = Value> {
        self.of_block[id.0 as usize].chunks_exact(parameters).map(move |way| way[at])
    }
}
