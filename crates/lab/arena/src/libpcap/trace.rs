//! A slow interpreter that records the bytes a program loads, its mistakes, and how to steer it.
//!
//! ```text
//! trace:  program x packet           --> verdict, loads, whether unwritten scratch was read or the end not reached
//! plant:  program x packet x random  --> the packet changed so that the program goes where chance says
//! ```
//!
//! Planting makes packets for every branch of a filter: when a comparison looks at packet bytes, the constant (or one
//! that fails it) is written to where those bytes came from, and the run goes on from there. Planting follows A
//! through masks, shifts and scratch cells, back to the bytes.

use tapline_bpf::Insn;

use super::LibpcapProgram;
use crate::random::Random;

/// The most instructions that a run may take; only a loop takes more.
const STEPS_MAX: usize = 100_000;

/// `A & k`.
const AND_K: u16 = 0x54;

/// `A * k`.
const MUL_K: u16 = 0x24;

/// Packets do not grow beyond this while constants are planted.
const GROWN_MAX: usize = 256;

/// The steps of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The value that the program returned; `None` if it did not end.
    pub verdict: Option<u32>,
    /// Whether it read a scratch cell that it had not written: libpcap's answer is then no answer.
    pub read_unwritten: bool,
    /// Whether arithmetic put a number in a cell that still held where a header starts: a fault of libpcap's
    /// allocation.
    pub read_overwritten: bool,
    /// Whether it loaded bytes, or failed to, only to mask all of them out.
    pub masked_out: bool,
    /// Whether it multiplied by 4, as `geneve` does once it has found its header, to step over options.
    pub entered_tunnel: bool,
    /// Number of backward jumps.
    pub loops: usize,
    /// Whether a comparison with this constant held, by constant; see [`Trace::compared_equal`].
    equal: Vec<u32>,
    /// One past the last byte of each packet load, in order.
    pub load_ends: Vec<usize>,
}

impl Trace {
    /// Whether X + k of a load was beyond 32 bits.
    pub fn index_wraps(&self) -> bool {
        self.load_ends.iter().any(|&end| end > u32::MAX as usize)
    }

    /// Whether a `jeq` with this constant held on the way.
    pub fn compared_equal(&self, k: u32) -> bool {
        self.equal.contains(&k)
    }
}

/// The packet bytes that A was loaded from, and the operations on them since: `(bytes & mask) >> shift`.
#[derive(Clone, Copy, Debug)]
struct Origin {
    offset: usize,
    width: usize,
    mask: u32,
    shift: u32,
}

/// The content of a scratch cell.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    value: u32,
    origin: Option<Origin>,
    /// Whether it was written over another value that the new one was not made from.
    overwritten: bool,
    reads: u32,
}

#[derive(Default)]
struct Machine {
    a: u32,
    x: u32,
    origin: Option<Origin>,
    /// The cell that A was last loaded from, as long as A is made from it.
    from_cell: Option<u32>,
    cells: [Option<Cell>; 16],
    trace: Trace,
}

impl LibpcapProgram {
    /// Runs the program on a packet and records its steps.
    pub fn trace(&self, data: &[u8], wire_len: u32) -> Trace {
        let mut data = data.to_vec();
        self.walk(&mut data, wire_len, &mut None)
    }

    /// Changes `data` so that the program takes a way that `random` chooses.
    pub fn plant(&self, data: &mut Vec<u8>, wire_len: u32, random: &mut Random) -> Trace {
        self.walk(data, wire_len, &mut Some(random))
    }

    fn walk(&self, data: &mut Vec<u8>, wire_len: u32, random: &mut Option<&mut Random>) -> Trace {
        let mut machine = Machine::default();
        let mut pc = 0_usize;
        for _ in 0..STEPS_MAX {
            let Some(&insn) = self.insns().get(pc) else { break };
            pc += 1;
            machine.trace.entered_tunnel |= insn.code == MUL_K && insn.k == 4;
            machine.trace.masked_out |=
                self.insns().get(pc).is_some_and(|next| next.code == AND_K && next.k == 0);
            match machine.step(insn, data, wire_len, random) {
                Step::Next => {}
                Step::Jump(distance) => {
                    machine.trace.loops += usize::from(distance < 0);
                    pc = pc.wrapping_add_signed(distance as isize);
                }
                Step::End(verdict) => {
                    machine.trace.verdict = Some(verdict);
                    break;
                }
            }
        }
        machine.trace
    }
}

enum Step {
    Next,
    Jump(i32),
    End(u32),
}

impl Machine {
    fn step(
        &mut self,
        insn: Insn,
        data: &mut Vec<u8>,
        wire_len: u32,
        random: &mut Option<&mut Random>,
    ) -> Step {
        let Insn { code, k, .. } = insn;
        let (class, mode) = (code & 0x07, code & 0xe0);
        match (class, mode) {
            (0x06, _) => return Step::End(if code & 0x18 == 0x10 { self.a } else { k }),
            (0x05, _) if code & 0xf0 == 0 => return Step::Jump(k.cast_signed()),
            (0x05, _) => return self.branch(insn, data, random),
            (0x04, _) => return self.arithmetic(code, if code & 0x08 != 0 { self.x } else { k }),
            (0x02, _) => self.store(k, self.a, self.origin),
            (0x03, _) => self.store(k, self.x, None),
            (0x07, _) if code == 0x87 => self.set(self.x, None),
            (0x07, _) => self.x = self.a,
            (0x00, 0x20 | 0x40) => {
                let base = if mode == 0x40 { self.x as usize } else { 0 };
                return self.load(base + k as usize, 4 >> ((code & 0x18) >> 3), data, random);
            }
            (0x00, 0x60) => {
                let (value, origin) = self.cell(k);
                self.set(value, origin);
                self.from_cell = Some(k);
            }
            (0x00, 0x80) => self.set(wire_len, None),
            (0x00, _) => self.set(k, None),
            (_, 0x60) => self.x = self.cell(k).0,
            (_, 0x80) => self.x = wire_len,
            (_, 0xa0) => match self.bytes(k as usize, 1, data, random) {
                Some(byte) => self.x = (byte & 0x0f) << 2,
                None => return Step::End(0),
            },
            _ => self.x = k,
        }
        Step::Next
    }

    fn set(&mut self, value: u32, origin: Option<Origin>) {
        (self.a, self.origin, self.from_cell) = (value, origin, None);
    }

    fn store(&mut self, k: u32, value: u32, origin: Option<Origin>) {
        let cell = &mut self.cells[k as usize & 15];
        let overwritten = cell.is_some_and(|old| old.overwritten || self.from_cell != Some(k));
        *cell = Some(Cell { value, origin, overwritten, reads: 0 });
    }

    /// Intermediate results are read once. One that is read again, and has taken the place of something else, is taken
    /// for that.
    fn cell(&mut self, k: u32) -> (u32, Option<Origin>) {
        let Some(cell) = &mut self.cells[k as usize & 15] else {
            self.trace.read_unwritten = true;
            return (0, None);
        };
        cell.reads += 1;
        self.trace.read_overwritten |= cell.overwritten && cell.reads > 1;
        (cell.value, cell.origin)
    }

    fn load(
        &mut self,
        offset: usize,
        width: usize,
        data: &mut Vec<u8>,
        random: &mut Option<&mut Random>,
    ) -> Step {
        let Some(value) = self.bytes(offset, width, data, random) else { return Step::End(0) };
        let mask = u32::MAX >> (32 - 8 * width);
        self.set(value, Some(Origin { offset, width, mask, shift: 0 }));
        Step::Next
    }

    /// Big-endian bytes of the packet, which may grow to have them while constants are planted.
    fn bytes(
        &mut self,
        offset: usize,
        width: usize,
        data: &mut Vec<u8>,
        random: &mut Option<&mut Random>,
    ) -> Option<u32> {
        let end = offset.checked_add(width)?;
        self.trace.load_ends.push(end);
        if let Some(random) = random
            && (data.len()..GROWN_MAX).contains(&(end - 1))
            && random.one_of(7, 8)
        {
            let missing = random.bytes(end - data.len());
            data.extend(missing);
        }
        Some(data.get(offset..end)?.iter().fold(0, |value, &byte| value << 8 | u32::from(byte)))
    }

    fn arithmetic(&mut self, code: u16, operand: u32) -> Step {
        let op = code & 0xf0;
        let a = self.a;
        self.origin = self.origin.and_then(|origin| match op {
            0x50 => Some(Origin { mask: origin.mask & operand.checked_shl(origin.shift)?, ..origin }),
            0x70 => Some(Origin { shift: (origin.shift + operand).min(31), ..origin }),
            _ => None,
        });
        self.a = match op {
            0x00 => a.wrapping_add(operand),
            0x10 => a.wrapping_sub(operand),
            0x20 => a.wrapping_mul(operand),
            0x30 | 0x90 if operand == 0 => return Step::End(0),
            0x30 => a / operand,
            0x40 => a | operand,
            0x50 => a & operand,
            0x60 => a.checked_shl(operand).unwrap_or(0),
            0x70 => a.checked_shr(operand).unwrap_or(0),
            0x80 => a.wrapping_neg(),
            0x90 => a % operand,
            _ => a ^ operand,
        };
        Step::Next
    }

    fn branch(&mut self, insn: Insn, data: &mut [u8], random: &mut Option<&mut Random>) -> Step {
        let operand = if insn.code & 0x08 != 0 { self.x } else { insn.k };
        if let (Some(random), Some(origin)) = (random, self.origin)
            && random.one_of(2, 3)
        {
            let wanted = wanted(insn.code & 0xf0, operand, self.a, random.one_of(3, 5));
            origin.write(wanted, data);
            self.a = origin.read(data);
        }
        let holds = match insn.code & 0xf0 {
            0x10 => self.a == operand,
            0x20 => self.a > operand,
            0x30 => self.a >= operand,
            _ => self.a & operand != 0,
        };
        if holds && insn.code & 0xf0 == 0x10 {
            self.trace.equal.push(operand);
        }
        Step::Jump(i32::from(if holds { insn.jt } else { insn.jf }))
    }
}

/// A value of A for which the comparison holds, or does not.
fn wanted(op: u16, operand: u32, a: u32, holds: bool) -> u32 {
    match (op, holds) {
        (0x10, true) | (0x30, true) | (0x20, false) => operand,
        (0x10, false) => operand ^ 1,
        (0x20, true) => operand.wrapping_add(1),
        (0x30, false) => operand.wrapping_sub(1),
        (_, true) => a | operand,
        (_, false) => a & !operand,
    }
}

impl Origin {
    fn read(self, data: &[u8]) -> u32 {
        let bytes = &data[self.offset..self.offset + self.width];
        let value = bytes.iter().fold(0, |value, &byte| value << 8 | u32::from(byte));
        (value & self.mask) >> self.shift
    }

    fn write(self, value: u32, data: &mut [u8]) {
        let bytes = &mut data[self.offset..self.offset + self.width];
        let old = bytes.iter().fold(0, |value, &byte| value << 8 | u32::from(byte));
        let new = old & !self.mask | (value << self.shift) & self.mask;
        bytes.copy_from_slice(&new.to_be_bytes()[4 - self.width..]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CompileSettings, Libpcap};
    use super::*;

    /// The watching interpreter agrees with libpcap's own, and planting reaches both ends of a filter.
    #[test]
    fn traces_agree_with_libpcap() {
        let pcap = match Libpcap::get() {
            Ok(pcap) => pcap,
            Err(reason) => return eprintln!("skipped: {reason}"),
        };
        let mut random = Random::new(1);
        for text in ["tcp dst port 80", "ip6 net fe80::/10", "vlan 5 and udp", "ip[0] & 0xf0 = 0x40"] {
            let oracle = pcap.compile(text, CompileSettings::new(1)).expect("compiles");
            let mut accepted = 0;
            for _ in 0..300 {
                let mut data = random.bytes(60);
                let planted = oracle.plant(&mut data, 60, &mut random);
                let trace = oracle.trace(&data, 60);
                assert_eq!(trace.verdict, Some(oracle.run(pcap, &data, 60)), "{text}");
                accepted += usize::from(planted.verdict != Some(0));
            }
            assert!((5..295).contains(&accepted), "{text}: {accepted} of 300");
        }
    }
}
