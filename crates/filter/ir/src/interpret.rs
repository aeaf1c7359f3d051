//! The interpreter of the form: it defines the meaning of an [`Ir`], and is the engine of FPL if no native code can
//! be made.

use tapline_packet::{Batch, Packet, Selection};

use super::{BlockId, ByteOrder, Ir, Memory, MetaField, Op, PacketOffset, Target, Terminator, Value, Width};

/// Runs a graph. Holds the values of the run in progress, so that a run allocates nothing.
#[derive(Clone, Debug)]
pub struct Machine {
    ir: Ir,
    values: Vec<u64>,
    arguments: Vec<u64>,
}

/// A run that ended early: the packet is rejected.
struct Rejected;

impl Machine {
    /// An engine for a graph that [`Ir::verify`] has passed.
    pub fn new(ir: Ir) -> Machine {
        let values = vec![0; ir.instructions.len()];
        Machine { ir, values, arguments: Vec::new() }
    }

    /// The graph.
    pub fn ir(&self) -> &Ir {
        &self.ir
    }

    /// Runs on one packet: 0 rejects it.
    pub fn run(&mut self, packet: Packet<'_>, memory: &Memory) -> u64 {
        self.attempt(packet, memory).unwrap_or(0)
    }

    /// Keeps in `selection` the packets of `batch` that are accepted.
    ///
    /// # Panics
    /// If `selection` holds an index that the batch does not have.
    pub fn select(&mut self, batch: &Batch<'_>, memory: &Memory, selection: &mut Selection) {
        selection.retain(|index| self.run(batch.packet(index), memory) != 0);
    }

    fn attempt(&mut self, packet: Packet<'_>, memory: &Memory) -> Result<u64, Rejected> {
        let mut at = self.ir.entry;
        loop {
            for index in 0..self.ir[at].instructions.len() {
                let value = self.ir[at].instructions[index];
                self.values[value.0 as usize] = self.evaluate(value, packet, memory)?;
            }
            match self.step(at) {
                Ok(next) => at = next,
                Err(verdict) => return Ok(verdict),
            }
        }
    }

    fn get(&self, value: Value) -> u64 {
        self.values[value.0 as usize]
    }

    fn evaluate(&mut self, value: Value, packet: Packet<'_>, memory: &Memory) -> Result<u64, Rejected> {
        let instruction = &self.ir.instructions[value.0 as usize];
        Ok(match &instruction.op {
            Op::Parameter => self.get(value),
            Op::Const(k) => *k,
            Op::MetaField(field) => known(*field, packet).into(),
            Op::Load(place, width, order) => load(packet.data, self.start(*place)?, *width, *order)?,
            Op::Binary(op, left, right) => {
                op.compute(instruction.ty, self.get(*left), self.get(*right)).ok_or(Rejected)?
            }
            Op::Compare(test, left, right) => {
                test.holds(self.ir.ty(*left), self.get(*left), self.get(*right)).into()
            }
            Op::Extend(value) => self.get(*value),
            Op::Truncate(value) => self.get(*value) & u64::from(u32::MAX),
            Op::Need(place) if self.start(*place)? <= packet.data.len() as u64 => 0,
            Op::NonZero(value) if self.get(*value) != 0 => 0,
            Op::Need(_) | Op::NonZero(_) => return Err(Rejected),
            Op::Cell(index) => memory.get(self.get(*index)),
            Op::SetCell(index, value) => {
                memory.set(self.get(*index), self.get(*value));
                0
            }
            Op::Call(function, arguments) => {
                let given = arguments.iter().map(|argument| self.values[argument.0 as usize]);
                self.arguments.clear();
                self.arguments.extend(given);
                self.ir.functions[*function as usize].call(packet, memory, &self.arguments)
            }
        })
    }

    /// The place's distance from the packet's start; a sum that wraps is beyond every packet.
    fn start(&self, place: PacketOffset) -> Result<u64, Rejected> {
        let base = place.base.map_or(0, |base| self.get(base));
        base.checked_add(place.offset.into()).ok_or(Rejected)
    }

    /// The next block, or the verdict.
    fn step(&mut self, at: BlockId) -> Result<BlockId, u64> {
        let target = match &self.ir[at].terminator {
            Terminator::Return(value) => return Err(self.get(*value)),
            Terminator::Goto(target) => target,
            Terminator::Branch { test, left, right, yes, no } => {
                if test.holds(self.ir.ty(*left), self.get(*left), self.get(*right)) { yes } else { no }
            }
            Terminator::Switch { value, cases, default, .. } => {
                let value = self.get(*value);
                cases.binary_search_by_key(&value, |case| case.key).map_or(default, |at| &cases[at].to)
            }
        };
        let Target { block, arguments } = target;
        // All are read before any is written: a block may lead to itself.
        self.arguments.clear();
        self.arguments.extend(arguments.iter().map(|argument| self.values[argument.0 as usize]));
        for (parameter, argument) in self.ir[*block].parameters.iter().zip(&self.arguments) {
            self.values[parameter.0 as usize] = *argument;
        }
        Ok(*block)
    }
}

/// A field of the packet's metadata.
pub(super) fn known(field: MetaField, packet: Packet<'_>) -> u32 {
    let meta = packet.meta;
    match field {
        MetaField::WireLen => meta.wire_len,
        MetaField::CapLen => packet.data.len() as u32,
        MetaField::PacketType => meta.packet_type.to_kernel().into(),
        MetaField::InterfaceIndex => meta.if_index,
        MetaField::ReceiveHash => meta.rx_hash,
        MetaField::VlanTag => meta.vlan.map_or(0, |tag| tag.tci.into()),
        MetaField::VlanPresent => meta.vlan.is_some().into(),
        MetaField::VlanProtocol => meta.vlan.map_or(0, |tag| tag.tpid.into()),
    }
}

fn load(data: &[u8], start: u64, width: Width, order: ByteOrder) -> Result<u64, Rejected> {
    let start = usize::try_from(start).map_err(|_| Rejected)?;
    let bytes = data.get(start..).and_then(|rest| rest.get(..width.bytes() as usize)).ok_or(Rejected)?;
    let join = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    Ok(match order {
        ByteOrder::Big => bytes.iter().fold(0, join),
        ByteOrder::Little => bytes.iter().rev().fold(0, join),
    })
}

impl MetaField {
    /// The value of the field for a packet.
    pub fn of(self, packet: Packet<'_>) -> u32 {
        known(self, packet)
    }
}
