//! Verdicts: the number of each packet in a reader's index.
//!
//! ```text
//! labels given      the number of the first label, from 1, whose filter accepts the packet; 0 for none
//! a program         the number that it returns for the packet: bytes to keep
//! a filter's text   0
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use tapline_bpf::{Insn, Program, code};
use tapline_filterset::Filter;
use tapline_ir::CompiledFilter;
use tapline_packet::{BATCH_MAX, Packet};

/// The rule by which packets of a reader get their verdicts, as its wish has it.
#[derive(Clone, Default)]
pub(crate) enum VerdictRule {
    /// No packet has one.
    #[default]
    None,
    /// All have the same: a program that has one return value.
    Constant(u32),
    /// The return value of a program.
    Program(CompiledFilter),
    /// The first label whose filter accepts the packet.
    Labels(Arc<[Arc<Filter>]>),
}

impl VerdictRule {
    /// The rule of a program, by the values that it can return.
    pub(crate) fn of_program(program: &Program) -> VerdictRule {
        let returns = program.insns().iter().filter(|insn| insn.class() == code::RET);
        let value = |insn: &Insn| (insn.code == code::RET | code::K).then_some(insn.k);
        let accepting: BTreeSet<Option<u32>> = returns.map(value).filter(|value| *value != Some(0)).collect();
        match accepting.first() {
            None => VerdictRule::None,
            Some(Some(value)) if accepting.len() == 1 => VerdictRule::Constant(*value),
            _ => VerdictRule::Program(program.clone().into()),
        }
    }

    /// The filters of labels, in order.
    pub(super) fn labels(&self) -> &[Arc<Filter>] {
        if let VerdictRule::Labels(labels) = self { labels } else { &[] }
    }

    /// The verdict on one packet that the reader gets. `label` is the first label that accepts it.
    pub(super) fn of(&self, packet: Packet<'_>, label: u32) -> u32 {
        match self {
            VerdictRule::None => 0,
            VerdictRule::Constant(value) => *value,
            VerdictRule::Program(program) => program.run(packet),
            VerdictRule::Labels(_) => label,
        }
    }
}

/// The verdicts of one reader on the packets of a batch.
pub(super) struct Verdicts {
    pub(super) rule: VerdictRule,
    /// By a packet's index in the batch; none where all have the same.
    of_packets: Option<Box<[u32; BATCH_MAX]>>,
}

impl Verdicts {
    pub(super) fn new(rule: VerdictRule) -> Verdicts {
        let differ = matches!(rule, VerdictRule::Program(_) | VerdictRule::Labels(_));
        Verdicts { rule, of_packets: differ.then(|| Box::new([0; BATCH_MAX])) }
    }

    /// Forgets the batch before.
    pub(super) fn clear(&mut self) {
        if let Some(of_packets) = &mut self.of_packets {
            of_packets.fill(0);
        }
    }

    /// Notes that a filter accepts a packet: the reader's own, or that of a label.
    pub(super) fn note(&mut self, index: usize, label: Option<u32>, packet: Packet<'_>) {
        let Some(of_packets) = &mut self.of_packets else { return };
        let known = &mut of_packets[index];
        match label {
            Some(label) if *known == 0 || label < *known => *known = label,
            None => *known = self.rule.of(packet, *known),
            Some(_) => {}
        }
    }

    /// The verdict on a packet that was noted.
    pub(super) fn get(&self, index: usize) -> u32 {
        match (&self.of_packets, &self.rule) {
            (Some(of_packets), _) => of_packets[index],
            (None, VerdictRule::Constant(value)) => *value,
            (None, _) => 0,
        }
    }

    /// The verdict on all packets, where it is one.
    pub(super) fn of_all(&self) -> Option<u32> {
        self.of_packets.is_none().then(|| self.get(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(returns: &[Insn]) -> VerdictRule {
        // A jump to each: `jeq #0` over one return to the next.
        let mut insns: Vec<Insn> = Vec::new();
        for insn in &returns[1..] {
            insns.extend([Insn::jump(code::JMP | code::JEQ | code::K, 7, 0, 1), *insn]);
        }
        insns.push(returns[0]);
        VerdictRule::of_program(&Program::new(insns).expect("a program"))
    }

    #[test]
    fn a_program_runs_for_verdicts_only_if_they_differ() {
        let k = |value| Insn::new(code::RET | code::K, value);
        assert!(matches!(rule(&[k(0)]), VerdictRule::None));
        assert!(matches!(rule(&[k(0), k(96), k(96)]), VerdictRule::Constant(96)));
        assert!(matches!(rule(&[k(0), k(96), k(40)]), VerdictRule::Program(_)));
        assert!(matches!(rule(&[k(96), Insn::new(code::RET | code::A, 0)]), VerdictRule::Program(_)));
    }

    #[test]
    fn the_first_label_in_order_counts() {
        let packet = Packet { data: &[], meta: &Default::default() };
        let mut verdicts = Verdicts::new(VerdictRule::Labels(Arc::new([])));
        for (label, expected) in [(None, 0), (Some(3), 3), (Some(2), 2), (Some(9), 2), (None, 2)] {
            verdicts.note(5, label, packet);
            assert_eq!(verdicts.get(5), expected);
        }
        verdicts.clear();
        assert_eq!((verdicts.get(5), verdicts.of_all()), (0, None));
    }
}
