//! Instructions and labels to instructions with distances.
//!
//! ```text
//! short   if r1 == 5 goto +d          d fits 16 bits
//! long    if r1 != 5 goto +1          the opposite question, over
//!         gotol +d                    a jump of 32 bits (Linux 6.6)
//!         if r1 & 5 goto +1           questions without an opposite
//!         goto +1
//!         gotol +d
//! ```
//!
//! All jumps are short at first. Jumps that do not reach their label become long, which may move others out of reach:
//! this is repeated until all fit. A jump never becomes short again, so the repetition ends.
//!
//! The kernel rewrites some instructions as several, which must not take short jumps out of reach either: distances
//! are judged by the length of the rewritten program.

use super::code::*;
use super::insn::{CONTEXT, Insn};

/// The target of jumps: a number of the caller's, small, as labels are kept in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(pub u32);

/// Instructions and labels in order, to be made a program.
#[derive(Debug, Default)]
pub struct Assembler {
    items: Vec<Item>,
    /// For each label the item behind it.
    labels: Vec<Option<u32>>,
}

#[derive(Clone, Copy, Debug)]
struct Item {
    insn: Insn,
    /// Target of the jump.
    to: Option<Label>,
    is_long: bool,
}

impl Item {
    /// Instructions here.
    fn len(&self) -> i64 {
        match (self.is_long, self.to) {
            (true, Some(_)) if self.insn == Insn::GOTO => 1,
            (true, Some(_)) if opposite(self.insn.code & 0xf0).is_some() => 2,
            (true, Some(_)) => 3,
            _ => 1,
        }
    }

    /// Instructions in the kernel at most (Linux 6.18: packet loads 7, divisions 8, fields of the context 5).
    fn len_in_kernel(&self) -> i64 {
        let (code, from) = (self.insn.code, self.insn.from());
        match self.insn.class() {
            LD if matches!(code & 0xe0, ABS | IND) => 8,
            LDX if from == CONTEXT => 8,
            ALU | ALU64 if matches!(code & 0xf0, DIV | MOD) => 16,
            JMP if code == JMP | CALL => 16,
            _ => self.len(),
        }
    }
}

/// The test that holds where this one does not; `None` for [`JSET`], which has no opposite.
pub fn opposite(test: u8) -> Option<u8> {
    Some(match test {
        JEQ => JNE,
        JNE => JEQ,
        JGT => JLE,
        JLE => JGT,
        JGE => JLT,
        JLT => JGE,
        JSGT => JSLE,
        JSLE => JSGT,
        JSGE => JSLT,
        JSLT => JSGE,
        _ => return None,
    })
}

impl Assembler {
    /// Adds an instruction that does not jump to a label.
    pub fn push(&mut self, insn: Insn) {
        self.items.push(Item { insn, to: None, is_long: false });
    }

    /// Adds a jump to a label, which may come before or behind it.
    pub fn jump(&mut self, insn: Insn, to: Label) {
        self.items.push(Item { insn, to: Some(to), is_long: false });
    }

    /// Puts a label before the next instruction.
    pub fn label(&mut self, label: Label) {
        let at = label.0 as usize;
        if self.labels.len() <= at {
            self.labels.resize(at + 1, None);
        }
        debug_assert!(self.labels[at].is_none(), "a label stands in one place");
        self.labels[at] = Some(self.items.len() as u32);
    }

    /// The instructions with the distances of their jumps. `None` if a jump leads to a label that was not put
    /// anywhere, or farther than 32 bits reach.
    pub fn finish(mut self) -> Option<Vec<Insn>> {
        while self.lengthen(&self.starts(Item::len_in_kernel))? {}
        let starts = self.starts(Item::len);
        let mut insns = Vec::with_capacity(*starts.last()? as usize);
        for (at, item) in self.items.iter().enumerate() {
            match item.to {
                None => insns.push(item.insn),
                Some(label) => {
                    let end = starts[at] + item.len();
                    let distance = self.place(label, &starts)? - end;
                    encode(item, i32::try_from(distance).ok()?, &mut insns);
                }
            }
        }
        Some(insns)
    }

    /// The start of each item, and the end of the last one, if they have these lengths.
    fn starts(&self, len: impl Fn(&Item) -> i64) -> Vec<i64> {
        let mut at = 0;
        let mut starts: Vec<i64> = Vec::with_capacity(self.items.len() + 1);
        for item in &self.items {
            starts.push(at);
            at += len(item);
        }
        starts.push(at);
        starts
    }

    fn place(&self, label: Label, starts: &[i64]) -> Option<i64> {
        let item = self.labels.get(label.0 as usize).copied().flatten()?;
        starts.get(item as usize).copied()
    }

    /// Makes jumps long that do not reach. Returns whether there were any.
    fn lengthen(&mut self, starts: &[i64]) -> Option<bool> {
        let mut changed = false;
        for at in 0..self.items.len() {
            let Item { to: Some(label), is_long: false, .. } = self.items[at] else { continue };
            let distance = self.place(label, starts)? - starts[at + 1];
            let is_long = i16::try_from(distance).is_err();
            self.items[at].is_long = is_long;
            changed |= is_long;
        }
        Some(changed)
    }
}

/// A jump by `distance` from its last instruction.
fn encode(item: &Item, distance: i32, insns: &mut Vec<Insn>) {
    let insn = item.insn;
    if !item.is_long {
        insns.push(Insn { offset: distance as i16, ..insn });
        return;
    }
    if insn != Insn::GOTO {
        match opposite(insn.code & 0xf0) {
            Some(test) => insns.push(Insn { code: insn.code & 0x0f | test, offset: 1, ..insn }),
            None => insns.extend([Insn { offset: 1, ..insn }, Insn { offset: 1, ..Insn::GOTO }]),
        }
    }
    insns.push(Insn::jump_long(distance));
}

#[cfg(test)]
mod tests {
    use super::super::{R0, R1};
    use super::*;

    #[test]
    fn near_jumps_are_short() {
        let mut assembler = Assembler::default();
        assembler.jump(Insn::jump_immediate(JEQ, true, R1, 5), Label(0));
        assembler.push(Insn::set(R0, 1));
        assembler.label(Label(0));
        assembler.push(Insn::EXIT);
        let insns = assembler.finish().unwrap();
        assert_eq!((insns.len(), insns[0].offset), (3, 1));
    }

    #[test]
    fn a_jump_to_a_missing_label_is_refused() {
        let mut assembler = Assembler::default();
        assembler.jump(Insn::GOTO, Label(3));
        assert_eq!(assembler.finish(), None);
    }

    /// Walks a program of jumps on r1, and says which instruction sets r0 last.
    fn walk(insns: &[Insn], r1: u64) -> i32 {
        let (mut at, mut r0) = (0_i64, 0);
        loop {
            let insn = insns[at as usize];
            at += 1;
            let taken = match insn.code & 0xf0 {
                JEQ => r1 == insn.immediate as u64,
                JNE => r1 != insn.immediate as u64,
                JSET => r1 & insn.immediate as u64 != 0,
                _ => true,
            };
            match insn.code {
                c if c == JMP | EXIT => return r0,
                c if c == JMP32 | JA => at += i64::from(insn.immediate),
                _ if insn.is_jump() && taken => at += i64::from(insn.offset),
                _ if insn.is_jump() => {}
                _ => r0 = insn.immediate,
            }
        }
    }

    #[test]
    fn far_jumps_become_long_and_ask_the_same() {
        for gap in [32_760, 32_766, 32_767, 32_768, 40_000] {
            for test in [JEQ, JSET] {
                let mut assembler = Assembler::default();
                assembler.jump(Insn::jump_immediate(test, true, R1, 4), Label(0));
                assembler.jump(Insn::GOTO, Label(1));
                (0..gap).for_each(|_| assembler.push(Insn::set(R0, 9)));
                assembler.label(Label(1));
                assembler.push(Insn::set(R0, 2));
                assembler.push(Insn::EXIT);
                assembler.label(Label(0));
                assembler.push(Insn::set(R0, 1));
                assembler.push(Insn::EXIT);
                let insns = assembler.finish().unwrap();
                assert_eq!((walk(&insns, 4), walk(&insns, 3)), (1, 2), "{gap} {test:#x}");
            }
        }
    }
}
