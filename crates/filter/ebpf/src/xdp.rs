//! Packet access of XDP programs: pointers into the packet, and comparisons with its end that the verifier understands.
//!
//! ```text
//! need at 34          t = data + 34;  if t > data_end: no match          every copy of data may now be read up to 34
//! need at v + 4       p = v;          if p > 65535 - 4: no match         the verifier wants to know how far p may go
//!                     p += data;      t = p + 4;  if t > data_end: no match
//! load at v + 2       *(u16 *)(p + 2)                                    with that very p: another sum is another pointer to it
//! ```
//!
//! The verifier follows each path through the program by itself, so a comparison counts where it dominates. A fact
//! that the graph has from elsewhere (from all paths to a place, or from a comparison of lengths) is compared again.
//!
//! Packets have at most 65535 bytes here: the verifier follows pointers no farther.

use super::packet::size_code;
use super::select::Selector;
use super::step::{Operand, Step, Variable};
use tapline_bpf::ebpf::code::*;
use tapline_ir::{BlockId, ByteOrder, Dominators, Ir, PacketOffset, Value, Width};

/// `MAX_PACKET_OFF` of the verifier.
const PACKET_MAX: u64 = 65_535;

/// Offsets of loads have 16 bits with a sign.
const OFFSET_MAX: u32 = i16::MAX as u32;

/// Bytes that comparisons on the path to each block have shown.
#[derive(Debug)]
pub(super) struct Pointers {
    spans: Vec<(u32, u32)>,
    /// For each block how many bytes of the packet are known to be there at its end.
    shown: Vec<u32>,
    /// Pointers to values' places, with how many bytes behind them are known to be there.
    known: Vec<Known>,
    /// For each value the last of its pointers.
    last: std::collections::HashMap<Value, u32>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    block: BlockId,
    end: u32,
    pointer: Variable,
    /// The one before it with the same base.
    before: Option<u32>,
}

impl Pointers {
    pub(super) fn new(ir: &Ir, dominators: &Dominators) -> Pointers {
        let shown = vec![0; ir.blocks.len()];
        Pointers { spans: dominators.spans(), shown, known: Vec::new(), last: Default::default() }
    }

    /// A pointer behind which as many bytes are there as wanted, if a dominating comparison has shown it.
    fn find(&self, base: Value, end: u32, here: BlockId) -> Option<Variable> {
        let mut next = self.last.get(&base).copied();
        while let Some(index) = next {
            let known = self.known[index as usize];
            if known.end >= end && self.dominates(known.block, here) {
                return Some(known.pointer);
            }
            next = known.before;
        }
        None
    }

    fn dominates(&self, a: BlockId, b: BlockId) -> bool {
        let (a, b) = (self.spans[a.0 as usize], self.spans[b.0 as usize]);
        a.0 <= b.0 && b.1 <= a.1
    }
}

impl Selector<'_> {
    /// The facts at a block's start are those at the end of its nearest dominator.
    pub(super) fn enter_block(&mut self) {
        let (block, above) = (self.block, self.dominators.immediate(self.block));
        if block != above {
            self.pointers.shown[block.0 as usize] = self.pointers.shown[above.0 as usize];
        }
    }

    pub(super) fn xdp_need(&mut self, place: PacketOffset) {
        if u64::from(place.offset) > PACKET_MAX {
            return self.reject();
        }
        match place.base.map(|base| (base, self.ir.as_const(base))) {
            None => self.show(place.offset),
            Some((_, Some(k))) => match k.checked_add(place.offset.into()).filter(|&end| end <= PACKET_MAX) {
                Some(end) => self.show(end as u32),
                None => self.reject(),
            },
            Some((base, None)) => {
                self.point(base, place.offset);
            }
        }
    }

    /// Compares a constant place with the end, if that has not been done.
    fn show(&mut self, end: u32) {
        let shown = &mut self.pointers.shown[self.block.0 as usize];
        if end <= *shown {
            return;
        }
        *shown = end;
        let past = self.extra();
        let (left, right) = (Variable::Data.into(), Operand::Constant(end.into()));
        self.steps.push(Step::Alu { op: ADD, wide: true, to: past, left, right });
        self.reject_if(JGT, true, past.into(), Variable::DataEnd.into());
    }

    /// A pointer to a value's place, with `end` bytes behind it in the packet.
    fn point(&mut self, base: Value, end: u32) -> Variable {
        if let Some(pointer) = self.pointers.find(base, end, self.block) {
            return pointer;
        }
        let (distance, pointer, past) = (self.extra(), self.extra(), self.extra());
        let far = Operand::Constant(PACKET_MAX - u64::from(end));
        // A copy that lives so shortly that it has a register: the verifier wants the very register compared that is
        // added.
        self.steps.push(Step::Set { to: distance, from: self.operand(base) });
        self.reject_if(JGT, true, distance.into(), far);
        let (left, right) = (distance.into(), Variable::Data.into());
        self.steps.push(Step::Alu { op: ADD, wide: true, to: pointer, left, right });
        let (left, right) = (pointer.into(), Operand::Constant(end.into()));
        self.steps.push(Step::Alu { op: ADD, wide: true, to: past, left, right });
        self.reject_if(JGT, true, past.into(), Variable::DataEnd.into());
        let before = self.pointers.last.insert(base, self.pointers.known.len() as u32);
        self.pointers.known.push(Known { block: self.block, end, pointer, before });
        pointer
    }

    pub(super) fn xdp_load(&mut self, to: Variable, place: PacketOffset, width: Width, order: ByteOrder) {
        let Some(end) = place.offset.checked_add(width.bytes()).filter(|&end| u64::from(end) <= PACKET_MAX)
        else {
            return self.reject();
        };
        let base = place.base.map(|base| (base, self.ir.as_const(base)));
        let (pointer, offset) = match base {
            None => {
                self.show(end);
                (Variable::Data, place.offset)
            }
            Some((_, Some(k))) => {
                let Some(k) = u32::try_from(k).ok().filter(|k| u64::from(*k) + u64::from(end) <= PACKET_MAX)
                else {
                    return self.reject();
                };
                self.show(end + k);
                (Variable::Data, place.offset + k)
            }
            Some((base, None)) => (self.point(base, end), place.offset),
        };
        let (pointer, offset) = self.near(pointer, offset);
        self.steps.push(Step::Memory { to, pointer, offset, size: size_code(width) });
        self.in_order(to, width, order);
    }

    /// A pointer and an offset that a load can hold.
    fn near(&mut self, pointer: Variable, offset: u32) -> (Variable, i16) {
        if offset <= OFFSET_MAX {
            return (pointer, offset as i16);
        }
        let nearer = self.extra();
        let (left, right) = (pointer.into(), Operand::Constant(offset.into()));
        self.steps.push(Step::Alu { op: ADD, wide: true, to: nearer, left, right });
        (nearer, 0)
    }
}
