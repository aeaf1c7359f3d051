//! Native code for the programs that a set of filters falls back on.
//!
//! ```text
//! Filter --compile_with--> residual program --Residuals::ready--> Native, or the interpreter
//! ```
//!
//! Each piece of code is a mapping of its own. The kernel allows a process 65,530 of them (`vm.max_map_count`), and one that has no more
//! left cannot grow its heap either, so the number of pieces has a limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tapline_filter::bpf::Program;
use tapline_filter::ir::raise_program;
use tapline_filter::optimise::optimise;
use tapline_filter::set::Accept;
use tapline_packet::Packet;

use crate::Native;

/// A good limit for [`Residuals`]: leaves three quarters of the mappings that Linux allows by default.
pub const RESIDUALS_MAX: usize = 16_384;

/// Makes the programs of a [`FilterSet`](tapline_filter::set::FilterSet) native, up to a limit.
///
/// ```
/// use tapline_filter::Options;
/// use tapline_filter::set::{Filter, FilterSet, Mode};
/// use tapline_jit::{RESIDUALS_MAX, Residuals};
///
/// let residuals = Residuals::new(RESIDUALS_MAX);
/// let mut set = FilterSet::new(Mode::All);
/// let ready = |program| residuals.ready(program);
/// set.insert(Filter::compile_with("ip[8] + ip[9] = 70", &Options::default(), &ready)?, 0);
/// assert_eq!((residuals.native(), residuals.interpreted()), (1, 0));
/// # Ok::<(), tapline_filter::Error>(())
/// ```
#[derive(Debug)]
pub struct Residuals {
    max: usize,
    native: AtomicUsize,
    interpreted: AtomicUsize,
}

impl Residuals {
    /// At most `max` programs become native.
    pub const fn new(max: usize) -> Residuals {
        Residuals { max, native: AtomicUsize::new(0), interpreted: AtomicUsize::new(0) }
    }

    /// The program ready to run: native code, or the interpreter beyond the limit and where there is no native code.
    pub fn ready(&self, program: Program) -> Arc<dyn Accept> {
        let take = |made: usize| (made < self.max).then_some(made + 1);
        let may = self.native.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
        if may {
            let mut ir = raise_program(&program);
            optimise(&mut ir);
            match Native::compile(&ir) {
                Ok(native) => return Arc::new(native),
                Err(_) => self.native.fetch_sub(1, Ordering::Relaxed),
            };
        }
        self.interpreted.fetch_add(1, Ordering::Relaxed);
        Arc::new(program)
    }

    /// How many programs became native code. What was dropped since still counts.
    pub fn native(&self) -> usize {
        self.native.load(Ordering::Relaxed)
    }

    /// How many did not.
    pub fn interpreted(&self) -> usize {
        self.interpreted.load(Ordering::Relaxed)
    }
}

/// With cells of its own, as [`Select`](tapline_filter::Select).
impl Accept for Native {
    fn accepts(&self, packet: Packet<'_>) -> bool {
        tapline_filter::Select::accepts(self, packet)
    }
}
