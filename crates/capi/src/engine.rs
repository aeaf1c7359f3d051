//! A filter program that runs here: interpreted at first, as native code once that pays.
//!
//! ```text
//! first NATIVE_AFTER packets   Program::run
//! then                         raise -> optimise -> Native::run; the interpreter where native code is refused
//! ```

use tapline_bpf::Program;
use tapline_packet::Packet;

/// So many packets are interpreted first. Native code takes about half a millisecond to make, and saves about 10 ns a packet on a filter of
/// some tests (docs/filter.md).
const NATIVE_AFTER: u64 = 1 << 16;

/// A program and what runs it.
pub(crate) struct Engine {
    program: Program,
    seen: u64,
    native: native::Slot,
}

impl Engine {
    pub(crate) fn new(program: Program) -> Engine {
        Engine { program, seen: 0, native: native::Slot::default() }
    }

    /// Whether the program accepts the packet.
    #[inline]
    pub(crate) fn accepts(&mut self, packet: Packet<'_>) -> bool {
        self.seen += 1;
        if self.seen > NATIVE_AFTER
            && let Some(verdict) = self.native.run(&self.program, packet)
        {
            return verdict;
        }
        self.program.run(packet) != 0
    }
}

#[cfg(feature = "jit")]
mod native {
    use tapline_bpf::Program;
    use tapline_ir::optimise::optimise;
    use tapline_ir::{Memory, raise_program};
    use tapline_jit::Native;
    use tapline_packet::Packet;

    /// Native code, once it was tried for.
    #[derive(Default)]
    pub(super) enum Slot {
        #[default]
        Untried,
        Refused,
        Made(Box<(Native, Memory)>),
    }

    impl Slot {
        /// The verdict of native code; `None` where there is none.
        #[inline]
        pub(super) fn run(&mut self, program: &Program, packet: Packet<'_>) -> Option<bool> {
            if let Slot::Untried = self {
                *self = make(program);
            }
            match self {
                Slot::Made(made) => Some(made.0.run(packet, &made.1) != 0),
                _ => None,
            }
        }
    }

    #[cold]
    fn make(program: &Program) -> Slot {
        let mut ir = raise_program(program);
        optimise(&mut ir);
        let memory = Memory::new(ir.cells);
        Native::compile(&ir).map_or(Slot::Refused, |native| Slot::Made(Box::new((native, memory))))
    }
}

#[cfg(not(feature = "jit"))]
mod native {
    use tapline_bpf::Program;
    use tapline_packet::Packet;

    /// This build has no native code.
    #[derive(Default)]
    pub(super) struct Slot(());

    impl Slot {
        #[inline]
        pub(super) fn run(&mut self, _: &Program, _: Packet<'_>) -> Option<bool> {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use tapline_filter::{Options, compile};
    use tapline_packet::Meta;

    use super::*;

    #[test]
    fn both_forms_decide_alike() {
        let mut engine = Engine::new(compile("ip proto 17", &Options::default()).expect("compiles"));
        let mut frame = [0; 60];
        frame[12] = 8;
        let meta = Meta { wire_len: 60, ..Meta::default() };
        for round in 0..NATIVE_AFTER + 1000 {
            frame[23] = if round % 3 == 0 { 17 } else { 6 };
            let accepted = engine.accepts(Packet { data: &frame, meta: &meta });
            assert_eq!(accepted, round % 3 == 0, "{round}");
        }
        #[cfg(all(feature = "jit", target_arch = "x86_64"))]
        assert!(matches!(engine.native, native::Slot::Made(_)));
    }
}
