//! Native code from filters: the form of values as machine code for x86-64, and from the same source for aarch64,
//! where it was not run yet.
//!
//! ```text
//! CompiledFilter --values--> Ir --verify--> proved --lower--> Cranelift's form --compile--> bytes --W^X--> Native: run(packet), select(batch)
//! ```
//!
//! Only graphs that [`Ir::verify`](tapline_ir::Ir::verify) has proved are compiled: loads of packet bytes then need
//! no check of their own. The code generator appears nowhere in the public interface. Without native code
//! ([`Error`]), the interpreters of `tapline-bpf` and `tapline-ir`, which are the reference for every answer, take
//! its place.
//!
//! The feature `cranelift` brings the code generator. Without it this crate has the same interface, and
//! [`Native::compile`] gives
//! [`Error::NotBuilt`]: users of native code need no `cfg` of their own.
//!
//! Unsafe code: calls into the generated functions (`native.rs`), and the way back from them (`helper.rs`).

#[cfg(not(feature = "cranelift"))]
mod absent;
mod error;
#[cfg(feature = "cranelift")]
mod helper;
#[cfg(feature = "cranelift")]
mod lower;
#[cfg(feature = "cranelift")]
mod native;
#[cfg(feature = "cranelift")]
mod search;
mod set;
#[cfg(feature = "cranelift")]
mod target;
mod tiered;

use tapline_ir::CompiledFilter;

#[cfg(not(feature = "cranelift"))]
pub use absent::Native;
pub use error::Error;
#[cfg(feature = "cranelift")]
pub use native::Native;
pub use set::{NativeResiduals, RESIDUALS_MAX};
pub use tiered::TieredFilter;

/// The most values of a graph; larger ones would take seconds.
pub const VALUES_MAX: usize = 1 << 18;

/// Packets that engines interpret before they ask for native code. Making it takes about half a millisecond and saves
/// about 10 ns a packet on a filter of some tests: short inputs never pay for it, and long ones pay at most twice.
pub const NATIVE_AFTER: u64 = 1 << 16;

impl Native {
    /// Makes native code of a compiled filter.
    ///
    /// # Errors
    /// As [`compile`](Self::compile); in each case the interpreter, [`CompiledFilter`], gives the same verdicts.
    pub fn of(filter: &CompiledFilter) -> Result<Native, Error> {
        Native::compile(filter.values())
    }
}
