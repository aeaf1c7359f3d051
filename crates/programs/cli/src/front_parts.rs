//! The parts of a filter that can run in front of AF_XDP, for people.

use tapline_ebpf::{self as ebpf, EmitError, Program, XdpFront};
use tapline_ir::{CompiledFilter, Ir};

/// The whole filter as a program in front, and the weaker parts that a capture tries where the kernel refuses it.
pub(crate) struct FrontParts {
    pub(crate) whole: Result<Program, EmitError>,
    pub(crate) weaker: Vec<(Ir, Program)>,
}

impl FrontParts {
    /// The parts of a filter that was compiled for packets in front of the stack.
    pub(crate) fn of(filter: &CompiledFilter) -> FrontParts {
        // Descriptors and queues are those of a capture; programs differ in nothing else.
        let front = XdpFront { sockets: 0, counters: 0, queues: 1, several: false, notes: None };
        let whole = ebpf::front(Some(filter.values()), front);
        let mut weaker: Vec<(Ir, Program)> = Vec::new();
        for graph in ebpf::weaker_fronts(filter.values()) {
            match ebpf::front(Some(&graph), front) {
                Ok(program) if weaker.last().is_none_or(|(_, last)| *last != program) => {
                    weaker.push((graph, program))
                }
                _ => {}
            }
        }
        FrontParts { whole, weaker }
    }

    /// Where the whole filter runs, unless the kernel refuses it.
    pub(crate) fn whole_text(&self) -> String {
        match &self.whole {
            Ok(program) => {
                format!("the whole filter runs in front, in {} instructions", program.insns().len())
            }
            Err(refusal) => format!("the whole filter does not run in front: {refusal}"),
        }
    }

    /// Summary in one line, with the weaker parts.
    pub(crate) fn summary(&self) -> String {
        let whole = self.whole_text();
        let counts: Vec<String> =
            self.weaker.iter().map(|(_, program)| program.insns().len().to_string()).collect();
        match counts.is_empty() {
            true => format!("{whole}; if the kernel refuses that, all of it runs behind"),
            false => format!(
                "{whole}; if the kernel refuses that, a weaker part (of {}), and the whole behind it",
                counts.join(", then ")
            ),
        }
    }
}
