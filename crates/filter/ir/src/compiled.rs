//! A filter, compiled once, in the form that every engine, source and listing is given.
//!
//! ```text
//! text --tapline_filter::compile--+
//! a foreign program --------------+--> CompiledFilter --program--> the kernel's classic BPF, the interpreter
//!                                                     --values---> native code, XDP, the machine of values
//!                                                     --values_for_sockets--> eBPF socket filters
//! ```

use std::sync::{Arc, OnceLock};

use tapline_bpf::{Insn, PacketFilter, Program};
use tapline_packet::{Batch, Packet, Selection};

use crate::optimise::{optimise, optimise_for_sockets};
use crate::{Ir, raise_program};

/// A compiled filter: a classic BPF program, and the values that all other code is made from. Clones share both.
///
/// Two compiled filters are equal if their programs are.
///
/// ```
/// use tapline_bpf::{Insn, Program, code};
/// use tapline_ir::CompiledFilter;
///
/// let accept = Program::new(vec![Insn::new(code::RET | code::K, 65535)])?;
/// let filter = CompiledFilter::from(accept);
/// assert_eq!(filter.insns().len(), 1);
/// assert!(filter.values().verify().is_ok());
/// # Ok::<(), tapline_bpf::Invalid>(())
/// ```
#[derive(Clone, Debug)]
pub struct CompiledFilter(Arc<Forms>);

#[derive(Debug)]
struct Forms {
    program: Program,
    /// Made when first asked for: most captures are over before native code pays.
    values: OnceLock<Ir>,
}

impl From<Program> for CompiledFilter {
    fn from(program: Program) -> CompiledFilter {
        CompiledFilter(Arc::new(Forms { program, values: OnceLock::new() }))
    }
}

impl CompiledFilter {
    /// The classic BPF program.
    #[inline]
    pub fn program(&self) -> &Program {
        &self.0.program
    }

    /// The classic BPF program, moved out if no clone of this filter is left, else copied.
    pub fn into_program(self) -> Program {
        Arc::try_unwrap(self.0).map_or_else(|shared| shared.program.clone(), |forms| forms.program)
    }

    /// The instructions of the program.
    pub fn insns(&self) -> &[Insn] {
        self.program().insns()
    }

    /// Runs the program on one packet: bytes to keep, 0 rejects it.
    #[inline]
    pub fn run(&self, packet: Packet<'_>) -> u32 {
        self.program().run(packet)
    }

    /// The program as values, after all passes. The first call makes them; later calls and clones share them.
    pub fn values(&self) -> &Ir {
        self.0.values.get_or_init(|| {
            let mut ir = self.unoptimised_values();
            optimise(&mut ir);
            ir
        })
    }

    /// The program as values, after the passes for socket filters ([`optimise_for_sockets`]).
    pub fn values_for_sockets(&self) -> Ir {
        let mut ir = self.unoptimised_values();
        optimise_for_sockets(&mut ir);
        ir
    }

    /// The program as values before the first pass.
    pub fn unoptimised_values(&self) -> Ir {
        raise_program(self.program())
    }
}

impl PartialEq for CompiledFilter {
    fn eq(&self, other: &CompiledFilter) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.program() == other.program()
    }
}

impl Eq for CompiledFilter {}

/// The interpreter.
impl PacketFilter for CompiledFilter {
    fn accepts(&self, packet: Packet<'_>) -> bool {
        self.run(packet) != 0
    }

    fn select(&self, batch: &Batch<'_>, selection: &mut Selection) {
        self.program().select(batch, selection);
    }
}
