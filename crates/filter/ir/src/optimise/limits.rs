//! Two limits of one counter made one: the lesser of both, found before the loop.
//!
//! ```text
//! b0: goto b1(0)                                   b0: v9 = min(64, v3); branch 0 >= v3 ? b4 : b2(0)
//! b1(v1): branch v1 >= v3 ? b4 : b2                b2(v1): ...
//! b2: ...                                          b3: v5 = v1 + 1
//! b3: v5 = v1 + 1; branch v5 >= 64 ? b4 : b1(v5)       branch v5 >= v9 ? b4 : b2(v5)
//! ```
//!
//! That is a FOR whose first statement leaves it: a round asks once less. The loop then starts with its second block;
//! the parameters of the first one that are read become parameters of the second ([`ReachingDefinitions`]). A graph
//! that the proof does not like afterwards is left as it was.

use crate::{
    Binary, Block, BlockId, Comparison, Dominators, Ir, Loop, Op, ReachingDefinitions, Target, Terminator,
    Type, Value,
};

/// Makes the limits of loops one.
pub(super) fn limits(ir: &mut Ir) -> bool {
    let mut changed = false;
    for at in 0..ir.loops.len() {
        let Some(found) = Limits::find(ir, ir.loops[at]) else { continue };
        let mut new = ir.clone();
        found.apply(&mut new, at);
        if new.verify().is_ok() {
            *ir = new;
            changed = true;
        }
    }
    changed
}

/// A loop that fits.
struct Limits {
    header: BlockId,
    /// The counter's place among the header's parameters.
    place: usize,
    /// The value that the header compares it with.
    first: Value,
    out: Target,
    next: BlockId,
    /// The block before the loop, and its arguments.
    before: BlockId,
    given: Vec<Value>,
    /// The block that goes back, the operand of its comparison with the counter, and its arguments.
    last: BlockId,
    second: Value,
    onward: Vec<Value>,
}

impl Limits {
    fn find(ir: &Ir, one: Loop) -> Option<Limits> {
        let header = one.header;
        let dominators = Dominators::new(ir);
        let places = &dominators.place;
        let &[a, b] = dominators.predecessors.get(header.0 as usize)?.as_slice() else { return None };
        let (before, last) = if places[a.0 as usize] < places[b.0 as usize] { (a, b) } else { (b, a) };
        let body = dominators.body(header);
        if !body.contains(&last) || body.contains(&before) || last == header {
            return None;
        }
        let (counter, first, out, next) = question(ir, header)?;
        let place = ir[header].parameters.iter().position(|parameter| *parameter == counter)?;
        let is_bare = ir[header].instructions.iter().all(|value| ir.as_const(*value).is_some());
        let inside = |value: Value| {
            body.iter().any(|id| ir[*id].parameters.contains(&value) || ir[*id].instructions.contains(&value))
        };
        let leads_on =
            next.arguments.is_empty() && dominators.predecessors[next.block.0 as usize] == [header];
        if !is_bare || inside(first) || !leads_on || body.contains(&out.block) || next.block == header {
            return None;
        }
        let Terminator::Goto(entry) = &ir[before].terminator else { return None };
        let (counted, second, out_later, back) = question(ir, last)?;
        let given_back = substituted(ir, out, header, &back.arguments);
        let fits = back.block == header
            && back.arguments.get(place) == Some(&counted)
            && *out_later == given_back
            && ir.as_const(second).is_some();
        fits.then(|| Limits {
            header,
            place,
            first,
            out: out.clone(),
            next: next.block,
            before,
            given: entry.arguments.clone(),
            last,
            second,
            onward: back.arguments.clone(),
        })
    }

    fn apply(&self, ir: &mut Ir, at: usize) {
        let parameters = ir[self.header].parameters.clone();
        let lesser = self.lesser(ir);
        let [enter, again] = [(); 2].map(|()| {
            let terminator = Terminator::Goto(Target::to(self.next));
            ir.add_block(Block { parameters: Vec::new(), instructions: Vec::new(), terminator })
        });
        let test = Comparison::GreaterEqual;
        let out = substituted(ir, &self.out, self.header, &self.given);
        let (left, no) = (self.given[self.place], Target::to(enter));
        ir[self.before].terminator = Terminator::Branch { test, left, right: self.first, yes: out, no };
        if let Terminator::Branch { right, no, .. } = &mut ir[self.last].terminator {
            (*right, *no) = (lesser, Target::to(again));
        }
        ir.loops[at].header = self.next;
        let dominators = Dominators::new(ir);
        let mut reaching = ReachingDefinitions::new(ir, &dominators);
        for (place, parameter) in parameters.iter().enumerate() {
            reaching.define(enter, *parameter, self.given[place]);
            reaching.define(again, *parameter, self.onward[place]);
        }
        let is_bridge = |id: BlockId| id == enter || id == again;
        reaching.rewrite(ir, &dominators.order, |value| parameters.contains(&value), is_bridge);
    }

    /// The lesser limit, computed at the end of the block before the loop.
    fn lesser(&self, ir: &mut Ir) -> Value {
        let (first, ty) = (self.first, ir.ty(self.first));
        let second = Op::Const(ir.as_const(self.second).unwrap_or(ty.max()));
        let mut put = |op: Op, ty| {
            let value = ir.add(op, ty);
            ir[self.before].instructions.push(value);
            value
        };
        let second = put(second, ty);
        let mut is_greater = put(Op::Compare(Comparison::Greater, first, second), Type::U32);
        if ty == Type::U64 {
            is_greater = put(Op::Extend(is_greater), ty);
        }
        let excess = put(Op::Binary(Binary::Sub, first, second), ty);
        let taken = put(Op::Binary(Binary::Mul, excess, is_greater), ty);
        put(Op::Binary(Binary::Sub, first, taken), ty)
    }
}

/// A block's last question, if it is whether a value is at least another.
fn question(ir: &Ir, id: BlockId) -> Option<(Value, Value, &Target, &Target)> {
    match &ir[id].terminator {
        Terminator::Branch { test: Comparison::GreaterEqual, left, right, yes, no } => {
            Some((*left, *right, yes, no))
        }
        _ => None,
    }
}

/// An edge out of a block, with its parameters as they are given.
fn substituted(ir: &Ir, to: &Target, block: BlockId, given: &[Value]) -> Target {
    let mut to = to.clone();
    for argument in &mut to.arguments {
        if let Some(place) = ir[block].parameters.iter().position(|parameter| parameter == argument) {
            *argument = given.get(place).copied().unwrap_or(*argument);
        }
    }
    to
}
