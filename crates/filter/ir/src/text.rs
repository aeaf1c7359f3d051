//! The graph as text, for `tapline filter explain --stage ir` and for the search for faults.
//!
//! ```text
//! b0:
//!     need 14
//!     v1 = load16 [12]
//!     branch v1 == 0x800 ? b1 : reject
//! b1(v5: u32):
//!     ...
//! ```
//!
//! Constants are printed where they are used; blocks that only reject are called `reject`.

use std::fmt;

use super::{BlockId, ByteOrder, Ir, Op, PacketOffset, Target, Terminator, Type, Value, Width};

/// The blocks that are reached, in order.
impl fmt::Display for Ir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cells > 0 {
            writeln!(f, "memory {} cells", self.cells)?;
        }
        for id in self.order() {
            if id != self.entry && self.only_rejects(id) {
                continue;
            }
            self.write_block(f, id)?;
        }
        Ok(())
    }
}

impl Ir {
    fn write_block(&self, f: &mut fmt::Formatter<'_>, id: BlockId) -> fmt::Result {
        let block = &self[id];
        write!(f, "b{}", id.0)?;
        if !block.parameters.is_empty() {
            let parameters: Vec<String> = block
                .parameters
                .iter()
                .map(|value| format!("v{}: {}", value.0, type_name(self.ty(*value))))
                .collect();
            write!(f, "({})", parameters.join(", "))?;
        }
        if let Some(one) = self.loops.iter().find(|one| one.header == id) {
            write!(f, " loop, at most {} rounds", one.rounds_max)?;
        }
        writeln!(f, ":")?;
        for &value in &block.instructions {
            if !matches!(self.op(value), Op::Const(_)) {
                writeln!(f, "    {}", self.instruction_text(value))?;
            }
        }
        writeln!(f, "    {}", self.terminator_text(&block.terminator))
    }

    fn instruction_text(&self, value: Value) -> String {
        let op = self.op(value);
        let text = match op {
            Op::Parameter => "parameter".to_owned(),
            Op::Const(k) => number(*k),
            Op::MetaField(field) => field.name().to_owned(),
            Op::Load(place, width, order) => self.load_text(*place, *width, *order),
            Op::Binary(op, left, right) => {
                format!("{} {} {}", self.name(*left), op.name(), self.name(*right))
            }
            Op::Compare(test, left, right) => {
                format!("{} {} {}", self.name(*left), test.name(), self.name(*right))
            }
            Op::Extend(value) => format!("u64 {}", self.name(*value)),
            Op::Truncate(value) => format!("u32 {}", self.name(*value)),
            Op::Need(place) => format!("need {}", self.place_text(*place)),
            Op::NonZero(value) => format!("nonzero {}", self.name(*value)),
            Op::Cell(index) => format!("M[{}]", self.name(*index)),
            Op::SetCell(index, value) => format!("M[{}] = {}", self.name(*index), self.name(*value)),
            Op::Call(function, arguments) => {
                let name = self.functions.get(*function as usize).map_or("?", |function| function.name());
                format!("{name}({})", self.names(arguments))
            }
        };
        if self.ty(value) == Type::None { text } else { format!("v{} = {text}", value.0) }
    }

    fn load_text(&self, place: PacketOffset, width: Width, order: ByteOrder) -> String {
        let order = match (order, width) {
            (ByteOrder::Little, Width::Half | Width::Word | Width::Double) => "le",
            _ => "",
        };
        format!("load{}{order} [{}]", width.bytes() * 8, self.place_text(place))
    }

    fn place_text(&self, place: PacketOffset) -> String {
        match place.base {
            None => place.offset.to_string(),
            Some(base) if place.offset == 0 => self.name(base),
            Some(base) => format!("{} + {}", self.name(base), place.offset),
        }
    }

    fn terminator_text(&self, terminator: &Terminator) -> String {
        match terminator {
            Terminator::Goto(target) => format!("goto {}", self.target_text(target)),
            Terminator::Return(value) => format!("return {}", self.name(*value)),
            Terminator::Branch { test, left, right, yes, no } => format!(
                "branch {} {} {} ? {} : {}",
                self.name(*left),
                test.name(),
                self.name(*right),
                self.target_text(yes),
                self.target_text(no)
            ),
            Terminator::Switch { value, cases, default, search } => {
                let mut text = format!("switch {} by {} {{", self.name(*value), search.name());
                let mut rest = &cases[..];
                while let Some((first, _)) = rest.split_first() {
                    let same = rest.iter().take_while(|case| case.to == first.to).count();
                    let keys: Vec<String> = rest[..same].iter().map(|case| number(case.key)).collect();
                    text += &format!(" {}: {};", keys.join(", "), self.target_text(&first.to));
                    rest = &rest[same..];
                }
                format!("{text} else: {} }}", self.target_text(default))
            }
        }
    }

    fn target_text(&self, target: &Target) -> String {
        let Target { block, arguments } = target;
        if self.only_rejects(*block) {
            return "reject".to_owned();
        }
        if arguments.is_empty() {
            format!("b{}", block.0)
        } else {
            format!("b{}({})", block.0, self.names(arguments))
        }
    }

    fn names(&self, values: &[Value]) -> String {
        values.iter().map(|value| self.name(*value)).collect::<Vec<_>>().join(", ")
    }

    /// A constant's number, any other value's name.
    fn name(&self, value: Value) -> String {
        match self.instructions.get(value.0 as usize).map(|instruction| &instruction.op) {
            Some(Op::Const(k)) => number(*k),
            _ => format!("v{}", value.0),
        }
    }
}

fn number(k: u64) -> String {
    if k < 256 { k.to_string() } else { format!("{k:#x}") }
}

fn type_name(ty: Type) -> &'static str {
    match ty {
        Type::U32 => "u32",
        Type::U64 => "u64",
        Type::None => "none",
    }
}
