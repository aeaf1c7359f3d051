//! Native code for the programs that a set of filters falls back on.
//!
//! ```text
//! Filter --compile_with--> residual program --NativeResiduals::ready--> Native, or the interpreter
//! ```
//!
//! Each piece of code is a mapping of its own. The kernel allows a process 65,530 of them (`vm.max_map_count`), and
//! one that has no more left cannot grow its heap either, so the number of pieces has a limit.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use tapline_bpf::PacketFilter;
use tapline_ir::CompiledFilter;
use tapline_packet::Packet;

use crate::Native;

/// A good limit for [`NativeResiduals`]: leaves three quarters of the mappings that Linux allows by default.
pub const RESIDUALS_MAX: usize = 16_384;

/// Makes the programs of a `FilterSet` (crate `filterset`) native, up to a limit.
///
/// ```
/// use tapline_filter::Options;
/// use tapline_filterset::{Filter, FilterSet, MatchPolicy};
/// use tapline_jit::{RESIDUALS_MAX, NativeResiduals};
///
/// let residuals = NativeResiduals::new(RESIDUALS_MAX);
/// let mut set = FilterSet::new(MatchPolicy::All);
/// let ready = |filter| residuals.ready(filter);
/// set.insert(Filter::compile_with("ip[8] + ip[9] = 70", &Options::default(), &ready)?, 0);
/// assert_eq!((residuals.native(), residuals.interpreted()), (1, 0));
/// # Ok::<(), tapline_filter::Error>(())
/// ```
#[derive(Debug)]
pub struct NativeResiduals {
    max: usize,
    /// Pieces that are there: each gives its place back when it goes.
    native: Arc<AtomicUsize>,
    interpreted: AtomicUsize,
}

/// Native code that holds one of the places.
struct Placed {
    native: Native,
    places: Arc<AtomicUsize>,
}

impl Drop for Placed {
    fn drop(&mut self) {
        self.places.fetch_sub(1, Ordering::Relaxed);
    }
}

impl PacketFilter for Placed {
    fn accepts(&self, packet: Packet<'_>) -> bool {
        self.native.accepts(packet)
    }
}

impl NativeResiduals {
    /// At most `max` programs are native at the same time.
    pub fn new(max: usize) -> NativeResiduals {
        NativeResiduals { max, native: Arc::default(), interpreted: AtomicUsize::new(0) }
    }

    /// The residuals of this process, which share its mappings: [`RESIDUALS_MAX`] in all.
    pub fn shared() -> &'static NativeResiduals {
        static RESIDUALS: LazyLock<NativeResiduals> = LazyLock::new(|| NativeResiduals::new(RESIDUALS_MAX));
        &RESIDUALS
    }

    /// The filter ready to run: native code, or the interpreter beyond the limit and where there is no native code.
    pub fn ready(&self, filter: CompiledFilter) -> Arc<dyn PacketFilter> {
        let take = |made: usize| (made < self.max).then_some(made + 1);
        let may = self.native.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
        if may {
            match Native::of(&filter) {
                Ok(native) => return Arc::new(Placed { native, places: Arc::clone(&self.native) }),
                Err(_) => self.native.fetch_sub(1, Ordering::Relaxed),
            };
        }
        self.interpreted.fetch_add(1, Ordering::Relaxed);
        // The program itself: behind the compiled filter each call would read one more place in memory.
        Arc::new(filter.program().clone())
    }

    /// Number of programs that are native code now.
    pub fn native(&self) -> usize {
        self.native.load(Ordering::Relaxed)
    }

    /// Number of programs that stayed interpreted.
    pub fn interpreted(&self) -> usize {
        self.interpreted.load(Ordering::Relaxed)
    }
}
