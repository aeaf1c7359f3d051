//! Instructions: types of values, operations, and their arithmetic.

use super::Value;

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// 32 bits.
    U32,
    /// 64 bits.
    U64,
    /// No number: guards and stores.
    None,
}

impl Type {
    /// 32, 64, or 0.
    pub const fn bits(self) -> u32 {
        match self {
            Type::U32 => 32,
            Type::U64 => 64,
            Type::None => 0,
        }
    }

    /// The greatest number of the type.
    pub const fn max(self) -> u64 {
        match self {
            Type::U32 => u32::MAX as u64,
            Type::U64 => u64::MAX,
            Type::None => 0,
        }
    }
}

/// Width of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Width {
    /// 1 byte, gives a [`Type::U32`].
    Byte,
    /// 2 bytes, gives a [`Type::U32`].
    Half,
    /// 4 bytes, gives a [`Type::U32`].
    Word,
    /// 8 bytes, gives a [`Type::U64`].
    Double,
}

impl Width {
    /// 1, 2, 4 or 8.
    pub const fn bytes(self) -> u32 {
        match self {
            Width::Byte => 1,
            Width::Half => 2,
            Width::Word => 4,
            Width::Double => 8,
        }
    }

    /// The least type that holds a load of this width.
    pub const fn ty(self) -> Type {
        match self {
            Width::Double => Type::U64,
            _ => Type::U32,
        }
    }
}

/// The order of bytes in a load: which of them counts most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// The first: network order.
    Big,
    /// The last. Costs nothing on little-endian machines; the constants that it is compared with are swapped instead.
    Little,
}

/// An offset into the packet: `offset` bytes from its start, or from `base` bytes after it. Sums do not wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketOffset {
    /// Added to the offset; of either type.
    pub base: Option<Value>,
    /// Bytes.
    pub offset: u32,
}

impl PacketOffset {
    /// `offset` bytes from the start of the packet.
    pub const fn at(offset: u32) -> PacketOffset {
        PacketOffset { base: None, offset }
    }

    /// `offset` bytes after the byte that `base` counts to.
    pub const fn from(base: Value, offset: u32) -> PacketOffset {
        PacketOffset { base: Some(base), offset }
    }
}

tapline_packet::named_enum! {
    /// Metadata of a packet: facts that are not in its bytes. All are [`Type::U32`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum MetaField {
        /// Length on the wire.
        WireLen = "wire_len",
        /// Captured bytes.
        CapLen = "cap_len",
        /// The way in which the packet was addressed: `sll_pkttype` of packet(7).
        PacketType = "packet_type",
        /// The kernel's index of the interface.
        InterfaceIndex = "interface_index",
        /// The receive hash.
        ReceiveHash = "receive_hash",
        /// Control information of a VLAN tag that was taken out of the bytes, 0 without one.
        VlanTag = "vlan_tag",
        /// 1 if a VLAN tag was taken out of the bytes, else 0.
        VlanPresent = "vlan_present",
        /// Protocol identifier of a VLAN tag that was taken out of the bytes, 0 without one.
        VlanProtocol = "vlan_protocol",
    }
}

tapline_packet::named_enum! {
    /// Arithmetic on two numbers of one type. Wraps. A shift by the type's width or more gives 0, or the sign for
    /// [`SignedShr`](Binary::SignedShr).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[expect(missing_docs, reason = "the names say it")]
    pub enum Binary {
        Add = "+",
        Sub = "-",
        Mul = "*",
        /// The divisor is never 0: see [`Op::NonZero`].
        Div = "/",
        /// The divisor is never 0: see [`Op::NonZero`].
        Mod = "%",
        And = "&",
        Or = "|",
        Xor = "^",
        Shl = "<<",
        Shr = ">>",
        /// Shift right that repeats the highest bit.
        SignedShr = ">>s",
    }
}

tapline_packet::named_enum! {
    /// A comparison of two numbers of one type.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Comparison {
        /// Equal.
        Equal = "==",
        /// Left is greater, unsigned.
        Greater = ">",
        /// Left is greater or equal, unsigned.
        GreaterEqual = ">=",
        /// Both sides have a bit in common.
        AnySet = "&",
        /// Left is greater, as two's complement.
        SignedGreater = ">s",
        /// Left is greater or equal, as two's complement.
        SignedGreaterEqual = ">=s",
    }
}

/// The operation of an instruction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A parameter of its block.
    Parameter,
    /// A number, within its type.
    Const(u64),
    /// Metadata of the packet.
    MetaField(MetaField),
    /// Packet bytes. They have been shown to be there.
    Load(PacketOffset, Width, ByteOrder),
    /// Arithmetic.
    Binary(Binary, Value, Value),
    /// 1 if it holds, else 0; a [`Type::U32`].
    Compare(Comparison, Value, Value),
    /// A u32 as a u64.
    Extend(Value),
    /// The low 32 bits of a u64.
    Truncate(Value),
    /// Guard: rejects the packet unless as many bytes were captured as lie before the place.
    Need(PacketOffset),
    /// Guard: rejects the packet if the value is 0.
    NonZero(Value),
    /// The cell of this index (u64), modulo the number of cells; a [`Type::U64`].
    Cell(Value),
    /// Stores a u64 in the cell of this index (u64), modulo the number of cells.
    SetCell(Value, Value),
    /// Calls the function of this number in [`Ir::functions`] with u64 arguments; a [`Type::U64`]. The function may
    /// read and write cells.
    Call(u32, Box<[Value]>),
}

impl Op {
    /// Whether it does more than give a number: such an instruction stays, and stays in its order.
    pub fn has_effect(&self) -> bool {
        matches!(self, Op::Need(_) | Op::NonZero(_) | Op::SetCell(..) | Op::Call(..))
    }

    /// Whether it gives the same number in each place.
    pub fn is_pure(&self) -> bool {
        !self.has_effect() && !matches!(self, Op::Parameter | Op::Cell(_))
    }

    /// Calls `visit` with each value that it reads.
    pub fn for_each_operand(&self, mut visit: impl FnMut(Value)) {
        match self {
            Op::Parameter | Op::Const(_) | Op::MetaField(_) => {}
            Op::Load(place, ..) | Op::Need(place) => place.base.into_iter().for_each(visit),
            Op::Binary(_, left, right) | Op::Compare(_, left, right) | Op::SetCell(left, right) => {
                visit(*left);
                visit(*right);
            }
            Op::Extend(value) | Op::Truncate(value) | Op::NonZero(value) | Op::Cell(value) => visit(*value),
            Op::Call(_, arguments) => arguments.iter().copied().for_each(visit),
        }
    }

    /// Replaces each value that it reads.
    pub fn map_operands(&mut self, mut map: impl FnMut(Value) -> Value) {
        match self {
            Op::Parameter | Op::Const(_) | Op::MetaField(_) => {}
            Op::Load(place, ..) | Op::Need(place) => {
                if let Some(base) = &mut place.base {
                    *base = map(*base);
                }
            }
            Op::Binary(_, left, right) | Op::Compare(_, left, right) | Op::SetCell(left, right) => {
                *left = map(*left);
                *right = map(*right);
            }
            Op::Extend(value) | Op::Truncate(value) | Op::NonZero(value) | Op::Cell(value) => {
                *value = map(*value);
            }
            Op::Call(_, arguments) => arguments.iter_mut().for_each(|argument| *argument = map(*argument)),
        }
    }
}

/// An instruction, which defines a value of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// The operation.
    pub op: Op,
    /// The type of its value.
    pub ty: Type,
}

impl Binary {
    /// `left op right` in this type; `None` for a division by 0.
    pub fn compute(self, ty: Type, left: u64, right: u64) -> Option<u64> {
        let bits = ty.bits();
        let shift = u32::try_from(right).ok().filter(|&by| by < bits);
        let result = match self {
            Binary::Add => left.wrapping_add(right),
            Binary::Sub => left.wrapping_sub(right),
            Binary::Mul => left.wrapping_mul(right),
            Binary::Div => left.checked_div(right)?,
            Binary::Mod => left.checked_rem(right)?,
            Binary::And => left & right,
            Binary::Or => left | right,
            Binary::Xor => left ^ right,
            Binary::Shl => shift.map_or(0, |by| left << by),
            Binary::Shr => shift.map_or(0, |by| left >> by),
            Binary::SignedShr => (signed(ty, left) >> shift.unwrap_or(bits.saturating_sub(1))) as u64,
        };
        Some(result & ty.max())
    }
}

impl Comparison {
    /// Whether it holds of two numbers of a type.
    pub fn holds(self, ty: Type, left: u64, right: u64) -> bool {
        match self {
            Comparison::Equal => left == right,
            Comparison::Greater => left > right,
            Comparison::GreaterEqual => left >= right,
            Comparison::AnySet => left & right != 0,
            Comparison::SignedGreater => signed(ty, left) > signed(ty, right),
            Comparison::SignedGreaterEqual => signed(ty, left) >= signed(ty, right),
        }
    }
}

fn signed(ty: Type, value: u64) -> i64 {
    match ty {
        Type::U32 => i64::from(value as u32 as i32),
        _ => value as i64,
    }
}
